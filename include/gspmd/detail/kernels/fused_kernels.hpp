// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "gspmd/detail/ir/elementwise/list.hpp"
#include "gspmd/detail/ir/fused_group.hpp"
#include "gspmd/detail/ir/fused_loop.hpp"
#include "gspmd/detail/ir/scalar_ops.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/target.hpp"

/// The kernels of the interpreter of fused groups: one loop for each operator and element type, and one loop for
/// frequent pairs of operators. Pairs are worth a kernel because the time of an interpreted loop is the traffic of
/// intermediate results through the first-level cache.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

struct fused_instruction;

/// Computes n elements of an instruction into `out`. Operand k is in registers[from[k]].
using fused_kernel = void (*)(const fused_instruction& i, const std::byte* const* registers, std::byte* out, std::int64_t n);

struct fused_instruction {
  fused_kernel kernel = nullptr;
  std::int16_t result = 0;  // register
  inline_vec<std::int16_t, max_map_arity> from;
  const map_function* function = nullptr;
  unsigned repeats = 0;  // bit k: operand k is constant, and only its first for_each_index_step elements are in memory
};

/// The address of an operand of an instruction.
struct fused_operand {
  const void* at;
  std::int64_t moves;  // 0 if it repeats

  fused_operand(const fused_instruction& i, const std::byte* const* registers, int k)
      : at(registers[i.from[k]]), moves((i.repeats >> k & 1) == 0 ? 1 : 0) {}
  template <class T>
  [[gnu::always_inline]] T load(std::int64_t begin, std::int64_t i) const {
    return load_element<T>(at, begin * moves + i);
  }
};
/// Calls body(begin, i) for all elements begin + i < n, with i < for_each_index_step.
template <class Body>
[[gnu::always_inline]] inline void for_each_in_steps(std::int64_t n, Body body) {
  const auto rest = n % for_each_index_step, end = n - rest;
  for (std::int64_t begin = 0; begin < end; begin += for_each_index_step)
    for_each_index(
        for_each_index_step, 0, [=](std::int64_t i) __attribute__((always_inline)) { body(begin, i); });
  for_each_index(
      rest, rest, [=](std::int64_t i) __attribute__((always_inline)) { body(end, i); });
}

/// Applies `second` to the result of `first` and to other operands.
///
///   {multiply, subtract, 1}            c - a * b from a, b, c: the product is operand 1 of the difference
///   {compare_gt, select, 0}            a > b ? c : d from a, b, c, d
///   {multiply, add, 0, multiply}       a * b + c * d from a, b, c, d: `other` computes the other operand
///   {subtract, multiply, both_places}  (a - b) * (a - b) from a, b
inline constexpr int both_places = -1;
struct fused_pair {
  std::uint32_t first, second;  // short ids
  int place;                    // index of the result of `first` among the operands of `second`
  std::uint32_t other = 0;
  friend constexpr bool operator==(const fused_pair&, const fused_pair&) = default;
  [[nodiscard]] constexpr bool has_other() const { return other != 0; }
};
template <class O>
inline constexpr std::uint32_t short_id_for = short_id(scalar_code_of<O>);
template <class First, class Second>
constexpr fused_pair pair_at(int place) {
  return {short_id_for<First>, short_id_for<Second>, place};
}
template <class First, class Second, class Other>
constexpr fused_pair pair_with() {
  return {short_id_for<First>, short_id_for<Second>, 0, short_id_for<Other>};
}
inline constexpr fused_pair square_of_difference = pair_at<subtract_op, multiply_op>(both_places),
                            exponential_of_difference = pair_at<subtract_op, exp_op>(0);
/// The pairs of operators that have a common kernel, for f32 and f64. All operands and results have that type, except
/// results of comparisons. Each pair adds 15 ms of compile time per type to every program that interprets.
inline constexpr fused_pair fused_pairs[] = {pair_at<multiply_op, add_op>(0),
                                             pair_at<multiply_op, subtract_op>(0),
                                             pair_at<multiply_op, subtract_op>(1),
                                             pair_at<multiply_op, multiply_op>(0),
                                             pair_with<multiply_op, add_op, multiply_op>(),
                                             pair_with<multiply_op, subtract_op, multiply_op>(),
                                             pair_at<add_op, add_op>(0),
                                             pair_with<add_op, add_op, add_op>(),
                                             pair_at<add_op, multiply_op>(0),
                                             pair_at<add_op, relu_op>(0),
                                             pair_at<subtract_op, multiply_op>(0),
                                             square_of_difference,
                                             exponential_of_difference,
                                             pair_at<compare_gt_op, where_op>(0),
                                             pair_at<compare_eq_op, cast_op>(0)};
inline constexpr std::size_t fused_pair_count = std::size(fused_pairs);
template <class... O>
constexpr loop_facts listed_facts(std::uint32_t id, boost::mp11::mp_list<O...>) {
  loop_facts found;
  ((short_id_for<O> == id ? void(found = scalar_name<O>.loop) : void()), ...);
  return found;
}
constexpr int operands_of(const fused_pair& p) {
  const loop_facts second = listed_facts(p.second, listed_elementwise{});
  return second.operands == 1 || p.place == both_places ? 2 : second.has_condition || p.has_other() ? 4 : 3;
}

/// Two pairs that have a common kernel: the result of `first` is operand `place` of `second`. The operands of the
/// kernel are the operands of `first`, then the other operands of `second`.
///
///   a + b + c + d + e    (a + b + c + d) e    a b + c d - e f    d - (a b + c) e    (c - a b) d + e
struct fused_chain {
  fused_pair first, second;
  int place;
};
inline constexpr fused_pair sum_of_three = pair_at<add_op, add_op>(0), sum_times = pair_at<add_op, multiply_op>(0),
                            product_added = pair_at<multiply_op, add_op>(0), less_product = pair_at<multiply_op, subtract_op>(1),
                            sum_of_products = pair_with<multiply_op, add_op, multiply_op>();
inline constexpr fused_chain fused_chains[] = {{sum_of_three, sum_of_three, 0},
                                               {sum_of_three, sum_times, 0},
                                               {sum_of_products, less_product, 2},
                                               {product_added, less_product, 0},
                                               {less_product, product_added, 0}};
inline constexpr std::size_t fused_chain_count = std::size(fused_chains);

/// The element type that the kernel of an operator is compiled for. It is the signed type if the bits of the result do
/// not depend on the sign of an integer.
template <class O, class T>
using kernel_element = element_t<O::ignores_sign ? signed_of(dtype_of<T>()) : dtype_of<T>()>;
/// The same for conversions. A conversion to an integer that is not wider, or to bool, does not depend on the sign of
/// the source. A conversion from an integer does not depend on the sign of the target.
template <class To, class From>
using convert_from = std::conditional_t<std::is_unsigned_v<From> && std::is_integral_v<To> && sizeof(To) <= sizeof(From),
                                        element_t<signed_of(dtype_of<From>())>, From>;
template <class To, class From>
using convert_to =
    std::conditional_t<std::is_unsigned_v<To> && std::is_integral_v<From>, element_t<signed_of(dtype_of<To>())>, To>;

/// Kernels are compiled only for operators that swapped() does not change: a > b is computed as b < a.
inline scalar_code swapped(const scalar_code& op) {
  if (op == scalar_code_of<compare_gt_op>) return scalar_code_of<compare_lt_op>;
  return op == scalar_code_of<compare_ge_op> ? scalar_code_of<compare_le_op> : op;
}
template <class O>
inline constexpr bool is_swapped = std::is_same_v<O, compare_gt_op> || std::is_same_v<O, compare_ge_op>;

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"  // see for_each_index
#endif
template <class O, class Out, class In>
GSPMD_LOOP_FUNCTION void fused_kernel_of(const fused_instruction& o, const std::byte* const* registers, std::byte* out,
                                         std::int64_t n) {
  GSPMD_KEEP_LOOP_OPTIONS
  const fused_operand a(o, registers, 0);
  if constexpr (O::operands == 1) {
    for_each_in_steps(
        n, [=](std::int64_t begin, std::int64_t i)
               __attribute__((always_inline)) { store_element(out, begin + i, apply<O, Out>(a.template load<In>(begin, i))); });
  } else {
    const fused_operand b(o, registers, 1);
    if constexpr (O::has_condition) {
      const fused_operand c(o, registers, 2);
      for_each_in_steps(
          n, [=](std::int64_t begin, std::int64_t i) __attribute__((always_inline)) {
            store_element(
                out, begin + i,
                apply<O, Out>(a.template load<bool>(begin, i), b.template load<In>(begin, i), c.template load<In>(begin, i)));
          });
    } else {
      for_each_in_steps(
          n, [=](std::int64_t begin, std::int64_t i) __attribute__((always_inline)) {
            store_element(out, begin + i, apply<O, Out>(a.template load<In>(begin, i), b.template load<In>(begin, i)));
          });
    }
  }
}

/// Computes a pair of arithmetic opcodes. `d` is used only if the pair has four operands.
template <fused_pair Pair, class Out, class In>
[[gnu::always_inline]] inline Out apply_pair(In a, In b, In c, In d) {
  using second = operator_struct<Pair.second>;
  const auto first = apply<operator_struct<Pair.first>, In>(a, b);
  if constexpr (Pair.has_other()) c = apply<operator_struct<Pair.other>, In>(c, d);
  return Pair.place == 0 ? apply<second, Out>(first, c) : apply<second, Out>(c, first);
}

template <std::size_t Pair, class Out, class In>
GSPMD_LOOP_FUNCTION void fused_pair_kernel_of(const fused_instruction& o, const std::byte* const* registers, std::byte* out,
                                              std::int64_t n) {
  GSPMD_KEEP_LOOP_OPTIONS
  constexpr fused_pair p = fused_pairs[Pair];
  constexpr int count = operands_of(p);
  using first = operator_struct<p.first>;
  using second = operator_struct<p.second>;
  const fused_operand a(o, registers, 0), b(o, registers, 1), c(o, registers, count > 2 ? 2 : 0),
      d(o, registers, count > 3 ? 3 : 0);
  for_each_in_steps(
      n, [=](std::int64_t begin, std::int64_t i) __attribute__((always_inline)) {
        const In x = a.template load<In>(begin, i), y = b.template load<In>(begin, i);
        if constexpr (second::operands == 1) {
          using middle = std::conditional_t<first::result == element_result::truth, bool, In>;
          store_element(out, begin + i, apply<second, Out>(apply<first, middle>(x, y)));
        } else if constexpr (p.place == both_places) {
          const In middle = apply<first, In>(x, y);
          store_element(out, begin + i, apply<second, Out>(middle, middle));
        } else if constexpr (second::has_condition) {
          store_element(
              out, begin + i,
              apply<second, Out>(apply<first, bool>(x, y), c.template load<Out>(begin, i), d.template load<Out>(begin, i)));
        } else {
          store_element(out, begin + i,
                        apply_pair<p, Out, In>(x, y, c.template load<In>(begin, i), d.template load<In>(begin, i)));
        }
      });
}

template <std::size_t Chain, class T>
GSPMD_LOOP_FUNCTION void fused_chain_kernel_of(const fused_instruction& o, const std::byte* const* registers, std::byte* out,
                                               std::int64_t n) {
  GSPMD_KEEP_LOOP_OPTIONS
  constexpr fused_chain chain = fused_chains[Chain];
  constexpr int next = operands_of(chain.first);
  const fused_operand a(o, registers, 0), b(o, registers, 1), c(o, registers, 2), d(o, registers, next > 3 ? 3 : 0),
      e(o, registers, next), f(o, registers, next + 1);
  static_assert(operands_of(chain.second) == 3);
  for_each_in_steps(
      n, [=](std::int64_t begin, std::int64_t i) __attribute__((always_inline)) {
        const T m = apply_pair<chain.first, T, T>(a.template load<T>(begin, i), b.template load<T>(begin, i),
                                                  c.template load<T>(begin, i), d.template load<T>(begin, i));
        const T x = e.template load<T>(begin, i), y = f.template load<T>(begin, i);
        store_element(out, begin + i,
                      chain.place == 0 ? apply_pair<chain.second, T, T>(m, x, y, m) : apply_pair<chain.second, T, T>(x, y, m, m));
      });
}
/// Computes the last pair of a loop and adds the results to `sums`, without storing them in between. `sums` has four
/// vectors, as in reduce_long_run. `n` is a multiple of their elements. Also stores the results if `fused_sum::stores`.
using fused_sum_kernel = void (*)(const fused_instruction& i, const std::byte* const* registers, std::byte* out, std::int64_t n,
                                  std::byte* sums);
struct fused_sum {
  fused_pair pair;
  bool stores;
};
/// Sums of squares, whose terms are not stored, and the sums of softmax, which also stores its exponentials.
inline constexpr fused_sum fused_sums[] = {{square_of_difference, false}, {exponential_of_difference, true}};
inline constexpr std::size_t fused_sum_count = std::size(fused_sums);

template <std::size_t Sum, class T>
GSPMD_LOOP_FUNCTION void fused_sum_kernel_of(const fused_instruction& o, const std::byte* const* registers, std::byte* out,
                                             std::int64_t n, std::byte* sums) {
  GSPMD_KEEP_LOOP_OPTIONS
  constexpr fused_sum sum = fused_sums[Sum];
  using second = operator_struct<sum.pair.second>;
  constexpr int at_once = 4 * simd_lanes<T>;
  static_assert(for_each_index_step % at_once == 0, "operands that repeat have so many elements");
  const fused_operand a(o, registers, 0), b(o, registers, 1);
  T all[at_once];
  std::memcpy(all, sums, sizeof all);
  for (std::int64_t begin = 0; begin < n; begin += at_once) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
    for (int j = 0; j < at_once; ++j) {
      const T middle = apply<operator_struct<sum.pair.first>, T>(a.template load<T>(begin, j), b.template load<T>(begin, j));
      T x;
      if constexpr (second::operands == 1) x = apply<second, T>(middle);
      else x = apply<second, T>(middle, middle);
      if constexpr (sum.stores) store_element(out, begin + j, x);
      all[j] = apply<add_op, T>(all[j], x);
    }
  }
  std::memcpy(sums, all, sizeof all);
}
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

template <class T>
void map_kernel_of(const fused_instruction& o, const std::byte* const* registers, std::byte* out, std::int64_t n) {
  if (const auto rows = o.function->rows[static_cast<int>(dtype_of<T>())]; rows != nullptr) {
    const void* arguments[max_map_arity];
    for (int k = 0; k < o.from.count; ++k) arguments[k] = registers[o.from[k]];
    return rows(o.function->object, arguments, out, n);
  }
  const auto function = function_for<T>(*o.function);
  for (std::int64_t i = 0; i < n; ++i) {
    T args[max_map_arity];
    for (int k = 0; k < o.from.count; ++k) args[k] = load_element<T>(registers[o.from[k]], i);
    store_element(out, i, function(args));
  }
}

/// Returns the kernel of an elementwise operator for one operand type. Returns null if the operator is not defined for
/// the type, or if swapped() replaces the operator.
template <class O, class In>
constexpr fused_kernel kernel_for() {
  constexpr dtype in = dtype_of<In>();
  if constexpr (is_narrow(in)) return nullptr;
  else if constexpr (O::operands == loop_facts::any_number) {
    if constexpr (is_complex(in)) return nullptr;
    else return map_kernel_of<In>;
  } else if constexpr (O::result == element_result::chosen || is_swapped<O> || !O::defined.has(in)) return nullptr;
  else if constexpr (O::result == element_result::truth) return fused_kernel_of<O, bool, kernel_element<O, In>>;
  else if constexpr (constexpr dtype to = result_type(scalar_code_of<O>, in, in); to != in)
    return fused_kernel_of<O, element_t<to>, In>;
  else return fused_kernel_of<O, kernel_element<O, In>, kernel_element<O, In>>;
}
template <class O, class... In>
constexpr std::array<fused_kernel, sizeof...(In)> kernels_for(boost::mp11::mp_list<In...>) {
  return {kernel_for<O, In>()...};
}
/// Returns the kernel of an operator that is not listed. Its kernels are compiled with the program that uses it.
template <class O>
void (*scalar_kernel(dtype type))() {
  static constexpr auto table = kernels_for<O>(element_types{});
  return reinterpret_cast<void (*)()>(table[static_cast<std::size_t>(type)]);
}

template <class... O>
constexpr std::array<std::array<fused_kernel, element_type_count>, sizeof...(O)> kernels_of_list(boost::mp11::mp_list<O...>) {
  return {kernels_for<O>(element_types{})...};
}
template <class... O>
constexpr std::array<std::uint64_t, sizeof...(O)> ids_of_list(boost::mp11::mp_list<O...>) {
  return {operator_id<O>...};
}

/// The kernels of all combinations of a listed operator and an operand type. It is a template, so only programs that
/// interpret instantiate it.
template <class>
struct fused_kernels {
  static constexpr std::size_t types = element_type_count;
  using by_type = std::array<fused_kernel, types>;

  /// Indexed by the position in listed_elementwise, then by the operand type.
  static constexpr auto elementwise = kernels_of_list(listed_elementwise{});
  static constexpr auto ids = ids_of_list(listed_elementwise{});

  /// Indexed [to][from].
  static constexpr std::array<by_type, types> convert = [] {
    std::array<by_type, types> table{};
    boost::mp11::mp_for_each<boost::mp11::mp_iota_c<types>>([&]<class O>(O) {
      boost::mp11::mp_for_each<boost::mp11::mp_iota_c<types>>([&]<class Index>(Index) {
        using to = boost::mp11::mp_at<element_types, O>;
        using from = boost::mp11::mp_at<element_types, Index>;
        if constexpr (is_converted_directly(dtype_of<from>(), dtype_of<to>()))
          table[O::value][Index::value] = fused_kernel_of<cast_op, convert_to<to, from>, convert_from<to, from>>;
      });
    });
    return table;
  }();

  /// The kernels of fused_pairs, for f32 and f64.
  static constexpr std::array<std::array<fused_kernel, 2>, fused_pair_count> pair = [] {
    std::array<std::array<fused_kernel, 2>, fused_pair_count> table{};
    boost::mp11::mp_for_each<boost::mp11::mp_iota_c<fused_pair_count>>([&]<class P>(P) {
      table[P::value] = {fused_pair_kernel_of<P::value, float, float>, fused_pair_kernel_of<P::value, double, double>};
    });
    return table;
  }();
  /// The kernels of fused_chains.
  static constexpr std::array<std::array<fused_kernel, 2>, fused_chain_count> chain = [] {
    std::array<std::array<fused_kernel, 2>, fused_chain_count> table{};
    boost::mp11::mp_for_each<boost::mp11::mp_iota_c<fused_chain_count>>([&]<class C>(C) {
      table[C::value] = {fused_chain_kernel_of<C::value, float>, fused_chain_kernel_of<C::value, double>};
    });
    return table;
  }();
  /// The kernels of fused_sums.
  static constexpr std::array<std::array<fused_sum_kernel, 2>, fused_sum_count> sum = [] {
    std::array<std::array<fused_sum_kernel, 2>, fused_sum_count> table{};
    boost::mp11::mp_for_each<boost::mp11::mp_iota_c<fused_sum_count>>([&]<class S>(S) {
      table[S::value] = {fused_sum_kernel_of<S::value, float>, fused_sum_kernel_of<S::value, double>};
    });
    return table;
  }();
  /// cast(a == b) from s32 to a float, as in one_hot.
  static constexpr std::array<fused_kernel, 2> one_hot = {fused_pair_kernel_of<fused_pair_count - 1, float, std::int32_t>,
                                                          fused_pair_kernel_of<fused_pair_count - 1, double, std::int32_t>};

  static bool is_pair(fused_kernel kernel, const fused_pair& wanted, std::size_t type) {
    for (std::size_t p = 0; p < fused_pair_count; ++p)
      if (fused_pairs[p] == wanted) return kernel == pair[p][type];
    return false;
  }
};

// Only the following functions name fused_kernels. They can be compiled once per target; then no other file
// instantiates the tables.

/// Returns the kernel of one operator, or null if there is no such kernel.
template <class Once = once>
fused_kernel fused_kernel_for(const scalar_op& o) {
  const auto in = static_cast<std::size_t>(o.operand_type);
  if (o.op == scalar_code_of<cast_op>) return fused_kernels<Once>::convert[static_cast<std::size_t>(o.type)][in];
  if (!o.op.loop().is_listed) return reinterpret_cast<fused_kernel>(o.op.loop().kernel(o.operand_type));
  const scalar_code op = swapped(o.op);
  std::size_t place = 0;
  while (fused_kernels<Once>::ids[place] != op.id) ++place;
  return fused_kernels<Once>::elementwise[place][in];
}
/// Returns the kernel that converts indices to elements.
template <class Once = once>
fused_kernel fused_kernel_of_indices(dtype to) {
  return fused_kernels<Once>::convert[static_cast<std::size_t>(to)][static_cast<std::size_t>(dtype::s64)];
}

/// Returns the kernel of `second` applied to the result of `first`, which is operand `place`. If `other` is not
/// parameter, it computes the other operand. Returns null if there is no such kernel.
template <class Once = once>
fused_kernel fused_kernel_for(const scalar_op& first, const scalar_op& second, int place, const scalar_code& other) {
  if (second.type != dtype::f32 && second.type != dtype::f64) return nullptr;
  const auto to = static_cast<std::size_t>(second.type);
  if (place > 0 && (second.op == scalar_code_of<add_op> || second.op == scalar_code_of<multiply_op>)) place = 0;  // a + b = b + a
  const std::uint32_t id = short_id(second.op), first_id = short_id(first.op), other_id = short_id(other);
  for (std::size_t p = 0; p < fused_pair_count; ++p) {
    const auto& known = fused_pairs[p];
    if (known.first != first_id || known.second != id || known.place != place || known.other != other_id) continue;
    if (first.operand_type == second.type) return fused_kernels<Once>::pair[p][to];
    if (second.op == scalar_code_of<cast_op> && first.operand_type == dtype::s32) return fused_kernels<Once>::one_hot[to];
  }
  return nullptr;
}

/// Returns the kernel of two pairs, if the result of the first is operand `place` of the second. Returns null if there
/// is no such kernel.
template <class Once = once>
fused_kernel fused_kernel_for(fused_kernel first, fused_kernel second, int place) {
  using kernels = fused_kernels<Once>;
  for (std::size_t c = 0; c < fused_chain_count; ++c) {
    const auto& known = fused_chains[c];
    const bool changes_places = known.second.first == short_id_for<add_op> || known.second.first == short_id_for<multiply_op>;
    if (known.place != (changes_places && place == 1 ? 0 : place)) continue;
    for (std::size_t type = 0; type < 2; ++type)
      if (kernels::is_pair(first, known.first, type) && kernels::is_pair(second, known.second, type))
        return kernels::chain[c][type];
  }
  return nullptr;
}
/// Returns the kernel that sums the results of `kernel`. Returns null if there is no such kernel, or if it would not
/// store results that must be stored.
template <class Once = once>
fused_sum_kernel fused_sum_kernel_for(fused_kernel kernel, bool is_stored) {
  using kernels = fused_kernels<Once>;
  for (std::size_t s = 0; s < fused_sum_count; ++s)
    for (std::size_t type = 0; type < 2; ++type)
      if (kernels::is_pair(kernel, fused_sums[s].pair, type) && (fused_sums[s].stores || !is_stored))
        return kernels::sum[s][type];
  return nullptr;
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail

#if defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/kernels/fused_kernels_instances.ipp"
#endif
