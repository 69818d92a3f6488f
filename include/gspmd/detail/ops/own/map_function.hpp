// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ir/fused_loop.hpp"
#include "gspmd/detail/ir/opcode.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/ops/own/kept_functions.hpp"

/// Makes a map_function from a user's function. A stateless function is a constant of its type. A stateful function
/// (captures, a pointer to a function) is an object that the program keeps; a loop of the function's type calls it for
/// a run of elements.
namespace gspmd {

template <class F, class... Derivatives>
struct with_derivative;
template <class T, class F>
struct row_function;

namespace detail {

/// True if the type of the function determines the function: it has no state.
template <class F>
inline constexpr bool is_constant_function = std::is_empty_v<F> && std::is_default_constructible_v<F>;
template <class T, class F>
inline constexpr bool is_constant_function<row_function<T, F>> = false;
template <class F, class... Derivatives>
inline constexpr bool is_constant_function<with_derivative<F, Derivatives...>> =
    is_constant_function<F> && (is_constant_function<Derivatives> && ...);

/// Returns true if type To represents each number of type From.
template <class To, class From>
constexpr bool holds_all() {
  using to = std::numeric_limits<To>;
  using from = std::numeric_limits<From>;
  if constexpr (!std::is_arithmetic_v<To> || !std::is_arithmetic_v<From>) return true;
  else if constexpr (from::is_integer) return (to::is_signed || !from::is_signed) && to::digits >= from::digits;
  else return !to::is_integer && to::digits >= from::digits;
}

/// True if the parameters of a function represent all elements of type T. Also true if the parameters are unknown, as
/// for a template or overloads.
template <class T, class F>
inline constexpr bool parameters_hold = true;
template <class T, class R, class... A>
inline constexpr bool parameters_hold<T, R (*)(A...)> = (holds_all<std::remove_cvref_t<A>, T>() && ...);
template <class T, class R, class... A>
inline constexpr bool parameters_hold<T, R (*)(A...) noexcept> = parameters_hold<T, R (*)(A...)>;
template <class T, class C, class R, class... A>
inline constexpr bool parameters_hold<T, R (C::*)(A...)> = parameters_hold<T, R (*)(A...)>;
template <class T, class C, class R, class... A>
inline constexpr bool parameters_hold<T, R (C::*)(A...) noexcept> = parameters_hold<T, R (*)(A...)>;
template <class T, class C, class R, class... A>
inline constexpr bool parameters_hold<T, R (C::*)(A...) const> = parameters_hold<T, R (*)(A...)>;
template <class T, class C, class R, class... A>
inline constexpr bool parameters_hold<T, R (C::*)(A...) const noexcept> = parameters_hold<T, R (*)(A...)>;
template <class T, class F>
  requires requires { &F::operator(); }
inline constexpr bool parameters_hold<T, F> = parameters_hold<T, decltype(&F::operator())>;

/// Returns true if a result is not truncated when it becomes an element of type T. Floats are rounded. An integer
/// becomes a bool by comparison with 0.
template <class T, class Result>
constexpr bool takes_result() {
  if constexpr (std::is_floating_point_v<T> || !std::is_arithmetic_v<Result>) return true;
  else if constexpr (std::is_same_v<T, bool>) return std::is_integral_v<Result>;
  else return holds_all<T, Result>();
}

template <int Arity>
using map_arguments = std::make_index_sequence<static_cast<std::size_t>(Arity)>;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"        // a function of doubles is also instantiated for longs;
#pragma GCC diagnostic ignored "-Wfloat-conversion"  // the program chooses the type of the call
/// Returns true if a function, called as a Call, accepts and returns elements of type T without truncation.
template <class T, class Call, std::size_t... Index>
constexpr bool takes_elements(std::index_sequence<Index...>) {
  if constexpr (requires(T x) { static_cast<T>(std::declval<Call>()(((void)Index, x)...)); })
    return parameters_hold<T, std::remove_cvref_t<Call>> &&
           takes_result<T, decltype(std::declval<Call>()(((void)Index, std::declval<T&>())...))>();
  else return false;
}

template <class T, class F, std::size_t... Index>
constexpr auto call_pointer(std::index_sequence<Index...>) -> T (*)(const T*) {
  if constexpr (takes_elements<T, F>(std::index_sequence<Index...>{})) {
    return +[](const T* x) { return static_cast<T>(F{}(x[Index]...)); };
  } else {
    return nullptr;
  }
}

/// Returns the call for the own type with this number, or null if that type does not exist.
template <int Number, class F, std::size_t... Index>
constexpr own_map_element own_call_pointer(std::index_sequence<Index...>) {
  if constexpr (has_own_type<Number, F>) {
    using T = typename own_type_of<Number, F>::type;
    if constexpr (takes_elements<T, F>(std::index_sequence<Index...>{}))
      return +[](const void* arguments, void* result) {
        const T* const x = static_cast<const T*>(arguments);
        *static_cast<T*>(result) = static_cast<T>(F{}(x[Index]...));
      };
  }
  return nullptr;
}

/// Calls the object for each element.
template <class T, class F, std::size_t... Index>
constexpr map_rows rows_of_elements(std::index_sequence<Index...>) {
  if constexpr (takes_elements<T, const F&>(std::index_sequence<Index...>{})) {
    return +[](const void* object, const void* const* arguments, void* out, std::int64_t n) {
      const F& f = *static_cast<const F*>(object);
      const void* const x[] = {arguments[Index]...};
      for (std::int64_t i = 0; i < n; ++i) store_element(out, i, static_cast<T>(f(load_element<T>(x[Index], i)...)));
    };
  } else {
    return nullptr;
  }
}
#pragma GCC diagnostic pop

/// Calls the object once for a run of elements. If the result is stored over an argument, the call writes to a buffer
/// first.
template <class T, class F, std::size_t... Index>
constexpr map_rows rows_at_once(std::index_sequence<Index...>) {
  static_assert(std::is_invocable_v<const F&, decltype((void)Index, static_cast<const T*>(nullptr))..., T*, std::int64_t>,
                "gspmd: map: a function for by_rows<T> is called as f(const T* x, ..., T* out, std::int64_t n) with one pointer "
                "for each argument, by several devices concurrently, also when it is const");
  return +[](const void* object, const void* const* arguments, void* out, std::int64_t n) {
    const F& f = *static_cast<const F*>(object);
    const T* const x[] = {static_cast<const T*>(arguments[Index])...};
    if (((x[Index] != out) && ...)) return static_cast<void>(f(x[Index]..., static_cast<T*>(out), n));
    constexpr std::int64_t most = 256;
    T part[most];
    for (std::int64_t first = 0; first < n; first += most) {
      const std::int64_t count = n - first < most ? n - first : most;
      static_cast<void>(f((x[Index] + first)..., static_cast<T*>(part), count));
      std::memcpy(static_cast<T*>(out) + first, part, static_cast<std::size_t>(count) * sizeof(T));
    }
  };
}

template <class F, int Arity>
constexpr map_function make_map_function(const map_function* const* derivatives = nullptr) {
  using arguments = map_arguments<Arity>;
  map_function m;
  m.arity = Arity;
  std::apply([]<class... T>(map_element<T>&... of) { ((of = call_pointer<T, F>(arguments{})), ...); }, m.of);
  [&]<int... Number>(std::integer_sequence<int, Number...>) {
    ((m.of_own[Number] = own_call_pointer<Number, F>(arguments{})), ...);
  }(std::make_integer_sequence<int, own_type_count>{});
  m.derivatives = derivatives;
  return m;
}

template <class F, int Arity>
struct map_holder {
  static constexpr map_function function = make_map_function<F, Arity>();
};
template <class F, class... Derivatives, int Arity>
struct map_holder<with_derivative<F, Derivatives...>, Arity> {
  static_assert(sizeof...(Derivatives) == static_cast<std::size_t>(Arity), "gspmd: map: give one derivative for each argument");
  static constexpr const map_function* derivatives[] = {&map_holder<Derivatives, Arity>::function...};
  static constexpr map_function function = make_map_function<F, Arity>(derivatives);
};

/// Returns the map_function of a function, and keeps a function with state.
template <int Arity>
struct function_keeper {
  kept_functions& store;

  template <class F>
  const map_function* operator()(F f) const {
    if constexpr (is_constant_function<F>) return &map_holder<F, Arity>::function;
    else return store.keep(erased(std::move(f)));
  }
  template <class F, class... Derivatives>
  const map_function* operator()(with_derivative<F, Derivatives...> f) const {
    static_assert(sizeof...(Derivatives) == static_cast<std::size_t>(Arity), "gspmd: map: give one derivative for each argument");
    auto derivatives = [&]<std::size_t... K>(std::index_sequence<K...>) {
      return std::array<const map_function*, sizeof...(K)>{(*this)(std::get<K>(std::move(f.derivatives)))...};
    }(std::index_sequence_for<Derivatives...>{});
    map_function m = erased(static_cast<F&&>(f));
    m.derivatives = store.keep(derivatives)->data();
    return store.keep(m);
  }

 private:
  template <class F>
  map_function erased(F f) const {
    map_function m;
    m.arity = Arity;
    using arguments = map_arguments<Arity>;
    static_assert(takes_elements<float, const F&>(arguments{}) || takes_elements<double, const F&>(arguments{}) ||
                      takes_elements<std::int32_t, const F&>(arguments{}) ||
                      takes_elements<std::int64_t, const F&>(arguments{}) || takes_elements<bool, const F&>(arguments{}) ||
                      takes_elements<std::uint32_t, const F&>(arguments{}) ||
                      takes_elements<std::uint64_t, const F&>(arguments{}),
                  "gspmd: map: the function takes no element type, or none that holds its result; several devices call it "
                  "concurrently, with one number for each argument; it must accept them also when it is const");
    boost::mp11::mp_for_each<computing_types>(
        [&]<class T>(T) { m.rows[static_cast<int>(dtype_of<T>())] = rows_of_elements<T, F>(arguments{}); });
    m.object = store.keep(std::move(f));
    return m;
  }
  template <class T, class F>
  map_function erased(row_function<T, F> f) const {
    map_function m;
    m.arity = Arity;
    m.rows[static_cast<int>(dtype_of<T>())] = rows_at_once<T, F>(map_arguments<Arity>{});
    m.object = store.keep(std::move(f.f));
    return m;
  }
};

}  // namespace detail
}  // namespace gspmd
