// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace gspmd::detail {

/// Every operator a graph may hold, under StableHLO's name where it has one.
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
  compare_eq,
  compare_ne,
  compare_lt,
  compare_le,
  compare_gt,
  compare_ge,
  // elementwise, three or any number
  select,
  map,
  // the rest
  einsum,
  reduce,
  broadcast_in_dim,
  transpose,
  reshape,
  reshard,
  shard_alike,
  dynamic_index,
  dynamic_update,
  shift,
  local_op,  // a user's own
  // regions: graphs inside the graph (see graph.hpp)
  loop,
  carry,
  loop_result,
  branch,
  otherwise,
  cond_result,
};
inline constexpr int opcode_count = static_cast<int>(opcode::cond_result) + 1;

constexpr const char* name_of(opcode op) {
  constexpr const char* names[opcode_count] = {
      "parameter",  "constant",    "iota",        "abs",       "negate",     "sign",       "exponential",      "log",
      "sqrt",       "rsqrt",       "tanh",        "logistic",  "relu",       "sine",       "cosine",           "floor",
      "ceil",       "not",         "convert",     "add",       "subtract",   "multiply",   "divide",           "maximum",
      "minimum",    "power",       "and",         "or",        "compare_eq", "compare_ne", "compare_lt",       "compare_le",
      "compare_gt", "compare_ge",  "select",      "map",       "einsum",     "reduce",     "broadcast_in_dim", "transpose",
      "reshape",    "reshard",     "shard_alike", "row",       "set_row",    "shift",      "local_op",         "loop",
      "carry",      "loop_result", "branch",      "otherwise", "cond_result"};
  return names[static_cast<int>(op)];
}

constexpr bool is_elementwise(opcode op) { return op >= opcode::abs && op <= opcode::map; }
constexpr bool is_unary(opcode op) { return op >= opcode::abs && op <= opcode::convert; }
constexpr bool is_binary(opcode op) { return op >= opcode::add && op <= opcode::compare_ge; }
constexpr bool is_region_start(opcode op) { return op == opcode::loop || op == opcode::branch || op == opcode::otherwise; }
constexpr bool is_region_result(opcode op) { return op == opcode::loop_result || op == opcode::cond_result; }
constexpr bool is_compare(opcode op) { return op >= opcode::compare_eq && op <= opcode::compare_ge; }

/// The most arguments a `map` may take.
inline constexpr int max_map_arity = 8;

/// Computes `n` elements of a map: `arguments[k]` is where the elements of argument k are.
using map_rows = void (*)(const void* object, const void* const* arguments, void* out, std::int64_t n);

/// A user's function. A captureless callable is kept in a graph as constant function pointers, one per element type it accepts
/// (null where it does not). A callable with state is an object that a builder keeps (kept_functions), and `rows` work on it.
/// Arguments and result have one element type.
struct map_function {
  int arity = 0;
  float (*f32)(const float*) = nullptr;
  double (*f64)(const double*) = nullptr;
  std::int32_t (*s32)(const std::int32_t*) = nullptr;
  std::int64_t (*s64)(const std::int64_t*) = nullptr;
  bool (*pred)(const bool*) = nullptr;
  const map_function* const* derivatives = nullptr;  // by argument; null: the map has no gradient
  map_rows rows[5] = {};                             // by dtype
  const void* object = nullptr;                      // what `rows` are given
};

}  // namespace gspmd::detail
