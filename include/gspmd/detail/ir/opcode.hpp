// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/fixed_string.hpp"

namespace gspmd::detail {

/// What a graph's operators are called. Those that the scalar loops know, and those that begin and end regions, stand here; every
/// other operator is an entry of `listed_operators`, whose place in the list is its code.
enum class opcode : std::uint8_t {
  // sources
  parameter,
  constant,
  iota,
  // elementwise, one operand
  abs,
  negate,
  sign,
  exponential,
  log,
  sqrt,
  rsqrt,
  tanh,
  logistic,
  relu,
  sine,
  cosine,
  floor,
  ceil,
  not_,
  expm1,
  log1p,
  erf,
  erf_inv,
  cbrt,
  real,
  imag,
  conj,
  stop_gradient,
  convert,
  // elementwise, two operands
  add,
  subtract,
  multiply,
  divide,
  maximum,
  minimum,
  power,
  and_,
  or_,
  xor_,
  remainder,
  shift_left,
  shift_right,
  atan2,
  threefry2x32,
  complex,
  compare_eq,
  compare_ne,
  compare_lt,
  compare_le,
  compare_gt,
  compare_ge,
  // elementwise, three or any number
  select,
  map,
  // regions: graphs inside the graph (see graph.hpp)
  loop,
  carry,
  loop_result,
  branch,
  otherwise,
  cond_result,
  // the second, third, ... result of the operator that stands before them
  result,
  first_listed,
};

/// An operator with a struct of its own, and its name in messages, StableHLO's where it has one.
template <class Operator, fixed_string Name>
struct listed {
  using type = Operator;
  static constexpr const char* name = Name.chars;
};

// A test adds operators of its own, as `, listed<struct ...>`.
#ifndef GSPMD_TEST_OPERATORS
#define GSPMD_TEST_OPERATORS
#endif

/// A new operator is its struct (see ops/operator.hpp), in a file that ops/registry.hpp includes, one entry here, and its public
/// function.
using listed_operators = boost::mp11::mp_list<
    listed<struct einsum_op, "einsum">, listed<struct convolution_op, "convolution">, listed<struct reduce_op, "reduce">,
    listed<struct broadcast_op, "broadcast_in_dim">, listed<struct transpose_op, "transpose">,
    listed<struct reshape_op, "reshape">, listed<struct shift_op, "shift">, listed<struct pad_op, "pad">,
    listed<struct slice_op, "slice">, listed<struct reverse_op, "reverse">, listed<struct roll_op, "roll">,
    listed<struct composed_op, "move">, listed<struct concatenate_op, "concatenate">, listed<struct reshard_op, "reshard">,
    listed<struct shard_alike_op, "shard_alike">, listed<struct row_op, "row">, listed<struct set_row_op, "set_row">,
    listed<struct add_row_op, "add_row">, listed<struct local_operator, "local_op">,
    listed<struct reduce_window_op, "reduce_window">, listed<struct select_and_scatter_op, "select_and_scatter">,
    listed<struct gather_op, "gather">, listed<struct scatter_op, "scatter">, listed<struct scatter_set_op, "scatter_set">,
    listed<struct scan_op, "scan_along">, listed<struct top_k_op, "top_k">, listed<struct sort_op, "sort">,
    listed<struct reduce_by_op, "reduce_by">, listed<struct scan_by_op, "scan_by">,
    listed<struct ghost_blocks_op, "ghost_blocks">, listed<struct transition_op, "transition">,
    listed<struct opaque_op, "opaque">, listed<struct local_view_op, "local_view">,
    listed<struct placed_op, "permute"> GSPMD_TEST_OPERATORS>;
inline constexpr int opcode_count =
    static_cast<int>(opcode::first_listed) + static_cast<int>(boost::mp11::mp_size<listed_operators>::value);

template <class Listed>
using listed_type = typename Listed::type;
template <class Operator>
inline constexpr opcode code_of =
    static_cast<opcode>(static_cast<std::size_t>(opcode::first_listed) +
                        boost::mp11::mp_find<boost::mp11::mp_transform<listed_type, listed_operators>, Operator>::value);

template <class List>
struct listed_names;
template <class... Listed>
struct listed_names<boost::mp11::mp_list<Listed...>> {
  static constexpr const char* of[sizeof...(Listed)] = {Listed::name...};
};

constexpr const char* name_of(opcode op) {
  constexpr const char* enumerated[] = {
      "parameter",   "constant",    "iota",          "abs",      "negate",     "sign",       "exponential", "log",
      "sqrt",        "rsqrt",       "tanh",          "logistic", "relu",       "sine",       "cosine",      "floor",
      "ceil",        "not",         "expm1",         "log1p",    "erf",        "erf_inv",    "cbrt",        "real",
      "imag",        "conj",        "stop_gradient", "convert",  "add",        "subtract",   "multiply",    "divide",
      "maximum",     "minimum",     "power",         "and",      "or",         "xor",        "remainder",   "shift_left",
      "shift_right", "atan2",       "threefry2x32",  "complex",  "compare_eq", "compare_ne", "compare_lt",  "compare_le",
      "compare_gt",  "compare_ge",  "select",        "map",      "loop",       "carry",      "loop_result", "branch",
      "otherwise",   "cond_result", "result"};
  static_assert(sizeof(enumerated) / sizeof(*enumerated) == static_cast<std::size_t>(opcode::first_listed));
  if (op < opcode::first_listed) return enumerated[static_cast<int>(op)];
  return listed_names<listed_operators>::of[static_cast<int>(op) - static_cast<int>(opcode::first_listed)];
}

constexpr bool is_elementwise(opcode op) { return op >= opcode::abs && op <= opcode::map; }
constexpr bool is_unary(opcode op) { return op >= opcode::abs && op <= opcode::convert; }
constexpr bool is_binary(opcode op) { return op >= opcode::add && op <= opcode::compare_ge; }
constexpr bool is_compare(opcode op) { return op >= opcode::compare_eq && op <= opcode::compare_ge; }
constexpr bool is_region(opcode op) { return op >= opcode::loop && op <= opcode::cond_result; }
constexpr bool is_region_result(opcode op) { return op == opcode::loop_result || op == opcode::cond_result; }

/// The most arguments a `map` may take.
inline constexpr int max_map_arity = 8;
/// The most results of an operator.
inline constexpr int max_results = 4;

/// Computes `n` elements of a map: `arguments[k]` is where the elements of argument k are.
using map_rows = void (*)(const void* object, const void* const* arguments, void* out, std::int64_t n);

/// Computes one element of a map.
template <class T>
using map_element = T (*)(const T* arguments);

/// The same of a type of the user's own.
using own_map_element = void (*)(const void* arguments, void* result);

/// A user's function. A captureless callable is kept in a graph as constant function pointers, one per element type it accepts
/// (null where it does not); narrow types are computed as others. A callable with state is an object that a builder keeps
/// (kept_functions), and `rows` work on it. Arguments and result have one element type.
struct map_function {
  int arity = 0;
  boost::mp11::mp_rename<boost::mp11::mp_transform<map_element, computing_types>, std::tuple> of{};
  const map_function* const* derivatives = nullptr;  // by argument; null: the map has no gradient
  own_map_element of_own[own_type_count] = {};       // by the number of a type of the user's own
  map_rows rows[element_type_count] = {};            // by dtype
  const void* object = nullptr;                      // what `rows` are given
};

}  // namespace gspmd::detail
