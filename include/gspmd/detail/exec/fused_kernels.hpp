// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include "gspmd/detail/exec/fused_group.hpp"
#include "gspmd/detail/exec/fused_loop.hpp"
#include "gspmd/detail/exec/scalar_ops.hpp"

/// One tight loop per opcode and element type, for the interpreter of fused groups.
namespace gspmd::detail {

struct fused_register;

/// Computes n elements of `op` from its operands' registers into `out`.
using fused_kernel = void (*)(const scalar_op& op, const fused_register* registers, std::byte* out, std::int64_t n);

/// The value of an op for the elements of one block.
struct fused_register {
  std::byte* at = nullptr;         // this block's elements
  std::byte* home = nullptr;       // the register's own memory, or where the loop's first element is in an input or output
  std::int64_t element_bytes = 0;  // of the distance between blocks in `home`; 0: the register's own memory
  fused_kernel kernel = nullptr;   // of an elementwise op
  enum : unsigned char { computed, in_place, gathered, filled, numbered } source = computed;
};

using dtype_list = boost::mp11::mp_list<float, double, std::int32_t, std::int64_t, bool>;

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"  // see for_each_index
#define GSPMD_LOOP_FUNCTION [[gnu::noinline]]
#else
#define GSPMD_LOOP_FUNCTION [[gnu::noinline, gnu::optimize("fp-contract=off", "no-trapping-math", "no-math-errno")]]
#endif
template <opcode Op, class Out, class In>
GSPMD_LOOP_FUNCTION void fused_kernel_of(const scalar_op& op, const fused_register* registers, std::byte* out, std::int64_t n) {
  const void* const a = registers[op.args[0]].at;
  if constexpr (is_unary(Op)) {
    for_each_index(
        n, [=](std::int64_t i)
               __attribute__((always_inline)) { store_element(out, i, apply<Op, Out, In>(load_element<In>(a, i))); });
  } else {
    const void* const b = registers[op.args[1]].at;
    if constexpr (Op == opcode::select) {
      const void* const c = registers[op.args[2]].at;
      for_each_index(
          n, [=](std::int64_t i) __attribute__((always_inline)) {
            store_element(out, i, apply<Op, Out, In>(load_element<bool>(a, i), load_element<In>(b, i), load_element<In>(c, i)));
          });
    } else {
      for_each_index(
          n, [=](std::int64_t i) __attribute__((always_inline)) {
            store_element(out, i, apply<Op, Out, In>(load_element<In>(a, i), load_element<In>(b, i)));
          });
    }
  }
}
#undef GSPMD_LOOP_FUNCTION
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

template <class T>
void map_kernel_of(const scalar_op& op, const fused_register* registers, std::byte* out, std::int64_t n) {
  if (const auto rows = op.function->rows[static_cast<int>(dtype_of<T>())]; rows != nullptr) {
    const void* arguments[max_map_arity];
    for (int k = 0; k < op.args.count; ++k) arguments[k] = registers[op.args[k]].at;
    return rows(op.function->object, arguments, out, n);
  }
  const auto function = function_for<T>(*op.function);
  for (std::int64_t i = 0; i < n; ++i) {
    T args[max_map_arity];
    for (int k = 0; k < op.args.count; ++k) args[k] = load_element<T>(registers[op.args[k]].at, i);
    store_element(out, i, function(args));
  }
}

/// The kernel of every pair of an elementwise opcode and an operand type that exists. A template, so that only those pay for
/// the instantiations who interpret.
template <class = void>
struct fused_kernels {
  static constexpr std::size_t types = boost::mp11::mp_size<dtype_list>::value;
  using by_type = std::array<fused_kernel, types>;

  static constexpr std::array<by_type, opcode_count> elementwise = [] {
    std::array<by_type, opcode_count> table{};
    using pairs =
        boost::mp11::mp_product<boost::mp11::mp_list, boost::mp11::mp_iota_c<opcode_count>, boost::mp11::mp_iota_c<types>>;
    boost::mp11::mp_for_each<pairs>([&]<class O, class I>(boost::mp11::mp_list<O, I>) {
      constexpr auto op = static_cast<opcode>(O::value);
      using in = boost::mp11::mp_at<dtype_list, I>;
      if constexpr (op == opcode::map) {
        table[O::value][I::value] = map_kernel_of<in>;
      } else if constexpr (op != opcode::convert && is_defined(op, dtype_of<in>())) {
        if constexpr (is_compare(op)) table[O::value][I::value] = fused_kernel_of<op, bool, in>;
        else table[O::value][I::value] = fused_kernel_of<op, in, in>;
      }
    });
    return table;
  }();

  /// [to][from]
  static constexpr std::array<by_type, types> convert = [] {
    std::array<by_type, types> table{};
    using pairs = boost::mp11::mp_product<boost::mp11::mp_list, boost::mp11::mp_iota_c<types>, boost::mp11::mp_iota_c<types>>;
    boost::mp11::mp_for_each<pairs>([&]<class O, class I>(boost::mp11::mp_list<O, I>) {
      table[O::value][I::value] =
          fused_kernel_of<opcode::convert, boost::mp11::mp_at<dtype_list, O>, boost::mp11::mp_at<dtype_list, I>>;
    });
    return table;
  }();

  static fused_kernel find(const scalar_op& o) {
    const auto in = static_cast<std::size_t>(o.operand_type);
    if (o.op == opcode::convert) return convert[static_cast<std::size_t>(o.type)][in];
    return elementwise[static_cast<std::size_t>(o.op)][in];
  }
};

}  // namespace gspmd::detail
