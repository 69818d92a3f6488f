// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "gspmd/detail/ir/fused_group.hpp"
#include "gspmd/detail/ir/fused_loop.hpp"
#include "gspmd/detail/ir/scalar_ops.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/target.hpp"

/// The kernels of the interpreter of fused groups: one loop for each opcode and element type, and one loop for frequent
/// pairs of opcodes. Pairs are worth a kernel because the time of an interpreted loop is the traffic of intermediate
/// results through the first-level cache.
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
  opcode first, second;
  int place;  // index of the result of `first` among the operands of `second`
  opcode other = opcode::parameter;
  friend constexpr bool operator==(const fused_pair&, const fused_pair&) = default;
};
inline constexpr fused_pair square_of_difference{opcode::subtract, opcode::multiply, both_places},
    exponential_of_difference{opcode::subtract, opcode::exponential, 0};
/// The pairs of operators that have a common kernel, for f32 and f64. All operands and results have that type, except
/// results of comparisons. Each pair adds 15 ms of compile time per type to every program that interprets.
inline constexpr fused_pair fused_pairs[] = {{opcode::multiply, opcode::add, 0},
                                             {opcode::multiply, opcode::subtract, 0},
                                             {opcode::multiply, opcode::subtract, 1},
                                             {opcode::multiply, opcode::multiply, 0},
                                             {opcode::multiply, opcode::add, 0, opcode::multiply},
                                             {opcode::multiply, opcode::subtract, 0, opcode::multiply},
                                             {opcode::add, opcode::add, 0},
                                             {opcode::add, opcode::add, 0, opcode::add},
                                             {opcode::add, opcode::multiply, 0},
                                             {opcode::add, opcode::relu, 0},
                                             {opcode::subtract, opcode::multiply, 0},
                                             square_of_difference,
                                             exponential_of_difference,
                                             {opcode::compare_gt, opcode::select, 0},
                                             {opcode::compare_eq, opcode::convert, 0}};
inline constexpr std::size_t fused_pair_count = std::size(fused_pairs);
constexpr int operands_of(const fused_pair& p) {
  return is_unary(p.second) || p.place == both_places ? 2 : p.second == opcode::select || p.other != opcode::parameter ? 4 : 3;
}

/// Two pairs that have a common kernel: the result of `first` is operand `place` of `second`. The operands of the
/// kernel are the operands of `first`, then the other operands of `second`.
///
///   a + b + c + d + e    (a + b + c + d) e    a b + c d - e f    d - (a b + c) e    (c - a b) d + e
struct fused_chain {
  fused_pair first, second;
  int place;
};
inline constexpr fused_pair sum_of_three{opcode::add, opcode::add, 0}, sum_times{opcode::add, opcode::multiply, 0},
    product_added{opcode::multiply, opcode::add, 0}, less_product{opcode::multiply, opcode::subtract, 1},
    sum_of_products{opcode::multiply, opcode::add, 0, opcode::multiply};
inline constexpr fused_chain fused_chains[] = {{sum_of_three, sum_of_three, 0},
                                               {sum_of_three, sum_times, 0},
                                               {sum_of_products, less_product, 2},
                                               {product_added, less_product, 0},
                                               {less_product, product_added, 0}};
inline constexpr std::size_t fused_chain_count = std::size(fused_chains);

/// Returns true if the resulting bits do not depend on the sign of an integer type. Then the kernel of the signed type
/// is used.
constexpr bool ignores_sign(opcode op) {
  return op == opcode::add || op == opcode::subtract || op == opcode::multiply || op == opcode::negate || op == opcode::and_ ||
         op == opcode::or_ || op == opcode::xor_ || op == opcode::not_ || op == opcode::shift_left || op == opcode::compare_eq ||
         op == opcode::compare_ne || op == opcode::select || op == opcode::stop_gradient;
}
template <opcode Op, class T>
using kernel_element = element_t<ignores_sign(Op) ? signed_of(dtype_of<T>()) : dtype_of<T>()>;
/// The same for conversions. A conversion to an integer that is not wider, or to bool, does not depend on the sign of
/// the source. A conversion from an integer does not depend on the sign of the target.
template <class To, class From>
using convert_from = std::conditional_t<std::is_unsigned_v<From> && std::is_integral_v<To> && sizeof(To) <= sizeof(From),
                                        element_t<signed_of(dtype_of<From>())>, From>;
template <class To, class From>
using convert_to =
    std::conditional_t<std::is_unsigned_v<To> && std::is_integral_v<From>, element_t<signed_of(dtype_of<To>())>, To>;

/// Kernels are compiled only for opcodes that swapped() does not change: a > b is computed as b < a.
constexpr opcode swapped(opcode op) {
  return op == opcode::compare_gt ? opcode::compare_lt : op == opcode::compare_ge ? opcode::compare_le : op;
}

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"  // see for_each_index
#endif
template <opcode Op, class Out, class In>
GSPMD_LOOP_FUNCTION void fused_kernel_of(const fused_instruction& o, const std::byte* const* registers, std::byte* out,
                                         std::int64_t n) {
  GSPMD_KEEP_LOOP_OPTIONS
  const fused_operand a(o, registers, 0);
  if constexpr (is_unary(Op)) {
    for_each_in_steps(
        n, [=](std::int64_t begin, std::int64_t i) __attribute__((always_inline)) {
          store_element(out, begin + i, apply<Op, Out, In>(a.template load<In>(begin, i)));
        });
  } else {
    const fused_operand b(o, registers, 1);
    if constexpr (Op == opcode::select) {
      const fused_operand c(o, registers, 2);
      for_each_in_steps(
          n, [=](std::int64_t begin, std::int64_t i) __attribute__((always_inline)) {
            store_element(out, begin + i,
                          apply<Op, Out, In>(a.template load<bool>(begin, i), b.template load<In>(begin, i),
                                             c.template load<In>(begin, i)));
          });
    } else {
      for_each_in_steps(
          n, [=](std::int64_t begin, std::int64_t i) __attribute__((always_inline)) {
            store_element(out, begin + i, apply<Op, Out, In>(a.template load<In>(begin, i), b.template load<In>(begin, i)));
          });
    }
  }
}

/// Computes a pair of arithmetic opcodes. `d` is used only if the pair has four operands.
template <fused_pair Pair, class Out, class In>
[[gnu::always_inline]] inline Out apply_pair(In a, In b, In c, In d) {
  const auto first = apply<Pair.first, In, In>(a, b);
  if constexpr (Pair.other != opcode::parameter) c = apply<Pair.other, In, In>(c, d);
  return Pair.place == 0 ? apply<Pair.second, Out, In>(first, c) : apply<Pair.second, Out, In>(c, first);
}

template <std::size_t Pair, class Out, class In>
GSPMD_LOOP_FUNCTION void fused_pair_kernel_of(const fused_instruction& o, const std::byte* const* registers, std::byte* out,
                                              std::int64_t n) {
  GSPMD_KEEP_LOOP_OPTIONS
  constexpr fused_pair p = fused_pairs[Pair];
  constexpr int count = operands_of(p);
  const fused_operand a(o, registers, 0), b(o, registers, 1), c(o, registers, count > 2 ? 2 : 0),
      d(o, registers, count > 3 ? 3 : 0);
  for_each_in_steps(
      n, [=](std::int64_t begin, std::int64_t i) __attribute__((always_inline)) {
        const In x = a.template load<In>(begin, i), y = b.template load<In>(begin, i);
        if constexpr (is_unary(p.second)) {
          using middle = std::conditional_t<is_compare(p.first), bool, In>;
          store_element(out, begin + i, apply<p.second, Out, middle>(apply<p.first, middle, In>(x, y)));
        } else if constexpr (p.place == both_places) {
          const In middle = apply<p.first, In, In>(x, y);
          store_element(out, begin + i, apply<p.second, Out, In>(middle, middle));
        } else if constexpr (p.second == opcode::select) {
          store_element(out, begin + i,
                        apply<p.second, Out, Out>(apply<p.first, bool, In>(x, y), c.template load<Out>(begin, i),
                                                  d.template load<Out>(begin, i)));
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
      const T middle = apply<sum.pair.first, T, T>(a.template load<T>(begin, j), b.template load<T>(begin, j));
      T x;
      if constexpr (is_unary(sum.pair.second)) x = apply<sum.pair.second, T, T>(middle);
      else x = apply<sum.pair.second, T, T>(middle, middle);
      if constexpr (sum.stores) store_element(out, begin + j, x);
      all[j] = apply<opcode::add, T, T>(all[j], x);
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

/// The kernels of all combinations of an elementwise opcode and an operand type. It is a template, so only programs
/// that interpret instantiate it.
template <class>
struct fused_kernels {
  static constexpr std::size_t types = element_type_count;
  using by_type = std::array<fused_kernel, types>;

  static constexpr std::array<by_type, enumerated_count> elementwise = [] {
    std::array<by_type, enumerated_count> table{};
    boost::mp11::mp_for_each<boost::mp11::mp_iota_c<enumerated_count>>([&]<class O>(O) {
      boost::mp11::mp_for_each<boost::mp11::mp_iota_c<types>>([&]<class Index>(Index) {
        constexpr auto op = static_cast<opcode>(O::value);
        using in = boost::mp11::mp_at<element_types, Index>;
        if constexpr (is_narrow(dtype_of<in>())) return;
        else if constexpr (op == opcode::map) {
          if constexpr (!is_complex_element<in>) table[O::value][Index::value] = map_kernel_of<in>;
        } else if constexpr (op != opcode::convert && is_defined(op, dtype_of<in>())) {
          using kernel_in = kernel_element<op, in>;
          if constexpr (is_compare(op) && swapped(op) == op) table[O::value][Index::value] = fused_kernel_of<op, bool, kernel_in>;
          else if constexpr (is_compare(op)) return;
          else if constexpr (result_type(op, dtype_of<in>(), dtype_of<in>()) != dtype_of<in>())
            table[O::value][Index::value] = fused_kernel_of<op, element_t<result_type(op, dtype_of<in>(), dtype_of<in>())>, in>;
          else table[O::value][Index::value] = fused_kernel_of<op, kernel_in, kernel_in>;
        }
      });
    });
    return table;
  }();

  /// Indexed [to][from].
  static constexpr std::array<by_type, types> convert = [] {
    std::array<by_type, types> table{};
    boost::mp11::mp_for_each<boost::mp11::mp_iota_c<types>>([&]<class O>(O) {
      boost::mp11::mp_for_each<boost::mp11::mp_iota_c<types>>([&]<class Index>(Index) {
        using to = boost::mp11::mp_at<element_types, O>;
        using from = boost::mp11::mp_at<element_types, Index>;
        if constexpr (is_converted_directly(dtype_of<from>(), dtype_of<to>()))
          table[O::value][Index::value] = fused_kernel_of<opcode::convert, convert_to<to, from>, convert_from<to, from>>;
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
  /// convert(a == b) from s32 to a float, as in one_hot.
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
  if (o.op == opcode::convert) return fused_kernels<Once>::convert[static_cast<std::size_t>(o.type)][in];
  return fused_kernels<Once>::elementwise[static_cast<std::size_t>(swapped(o.op))][in];
}
/// Returns the kernel that converts indices to elements.
template <class Once = once>
fused_kernel fused_kernel_of_indices(dtype to) {
  return fused_kernels<Once>::convert[static_cast<std::size_t>(to)][static_cast<std::size_t>(dtype::s64)];
}

/// Returns the kernel of `second` applied to the result of `first`, which is operand `place`. If `other` is not
/// parameter, it computes the other operand. Returns null if there is no such kernel.
template <class Once = once>
fused_kernel fused_kernel_for(const scalar_op& first, const scalar_op& second, int place, opcode other) {
  if (second.type != dtype::f32 && second.type != dtype::f64) return nullptr;
  const auto to = static_cast<std::size_t>(second.type);
  if (place > 0 && (second.op == opcode::add || second.op == opcode::multiply)) place = 0;  // a + b = b + a
  for (std::size_t p = 0; p < fused_pair_count; ++p) {
    const auto& known = fused_pairs[p];
    if (known.first != first.op || known.second != second.op || known.place != place || known.other != other) continue;
    if (first.operand_type == second.type) return fused_kernels<Once>::pair[p][to];
    if (second.op == opcode::convert && first.operand_type == dtype::s32) return fused_kernels<Once>::one_hot[to];
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
    const bool changes_places = known.second.first == opcode::add || known.second.first == opcode::multiply;
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
GSPMD_KERNELS_ONCE(fused_kernel fused_kernel_for<once>(const scalar_op&));
GSPMD_KERNELS_ONCE(fused_kernel fused_kernel_of_indices<once>(dtype));
GSPMD_KERNELS_ONCE(fused_kernel fused_kernel_for<once>(const scalar_op&, const scalar_op&, int, opcode));
GSPMD_KERNELS_ONCE(fused_kernel fused_kernel_for<once>(fused_kernel, fused_kernel, int));
GSPMD_KERNELS_ONCE(fused_sum_kernel fused_sum_kernel_for<once>(fused_kernel, bool));

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
