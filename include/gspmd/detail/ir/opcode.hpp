// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/mp11.hpp"

namespace gspmd::detail {

/// The operators that the scalar loops know, and those that begin and end regions. Every other one is `listed`: it has a struct of its
/// own, see operator_code.
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
  listed,
};

/// The name of an operator with a struct of its own in messages, StableHLO's where it has one; and a number made from that name, by which
/// operators are distinguished: for GCC with -fsanitize=undefined it is no constant whether two addresses are equal.
struct operator_name {
  const char* name = "";
  std::uint64_t id = 0;

  constexpr operator_name() = default;
  constexpr explicit operator_name(const char* written) : name(written), id(0xcbf29ce484222325U) {
    for (const char* c = written; *c != 0; ++c) id = (id ^ static_cast<unsigned char>(*c)) * 0x100000001b3U;
  }
};

/// Which operator a node is. One with a struct of its own is known by a constant: its facts in a graph (ops/operator.hpp), its words in a
/// plan (ir/operator_words.hpp). So the list of operators is open: who includes an operator's header has it.
struct operator_code {
  opcode code = opcode::parameter;
  const operator_name* listed = nullptr;

  constexpr operator_code() = default;
  constexpr operator_code(opcode c) : code(c) {}  // NOLINT: implicit on purpose
  constexpr explicit operator_code(const operator_name& of) : code(opcode::listed), listed(&of) {}

  constexpr operator opcode() const { return code; }  // NOLINT: implicit on purpose
  [[nodiscard]] constexpr std::uint64_t id() const {
    return code == opcode::listed ? listed->id : static_cast<std::uint64_t>(code);
  }

  friend constexpr bool operator==(const operator_code& a, const operator_code& b) {
    return a.code == b.code && a.id() == b.id();
  }
  friend constexpr bool operator==(const operator_code& a, opcode b) { return a.code == b; }
};
/// The same in a plan: known by its words.
struct planned_code : operator_code {
  using operator_code::operator_code;
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
  static_assert(sizeof(enumerated) / sizeof(*enumerated) == static_cast<std::size_t>(opcode::listed));
  return enumerated[static_cast<int>(op)];
}
constexpr const char* name_of(const operator_code& op) { return op.code == opcode::listed ? op.listed->name : name_of(op.code); }

inline constexpr int enumerated_count = static_cast<int>(opcode::listed);

constexpr bool is_elementwise(opcode op) { return op >= opcode::abs && op <= opcode::map; }
constexpr bool is_unary(opcode op) { return op >= opcode::abs && op <= opcode::convert; }
constexpr bool is_binary(opcode op) { return op >= opcode::add && op <= opcode::compare_ge; }
constexpr bool is_compare(opcode op) { return op >= opcode::compare_eq && op <= opcode::compare_ge; }
/// Of an element in an instruction or two, which a loop that waits for memory does meanwhile.
constexpr bool is_arithmetic(opcode op) {
  return (op >= opcode::add && op <= opcode::minimum && op != opcode::divide) || op == opcode::abs || op == opcode::negate ||
         op == opcode::relu || op == opcode::convert;
}
/// Returns the time of one element in a vectorised loop. The unit is one addition; 100 stands for any larger number.
constexpr int additions_of(opcode op) {
  if (is_arithmetic(op)) return 1;
  if (is_compare(op)) return 4;
  switch (op) {
    case opcode::divide:
    case opcode::sqrt:
    case opcode::rsqrt:
    case opcode::floor:
    case opcode::ceil:
    case opcode::select: return 4;
    case opcode::exponential:
    case opcode::expm1:
    case opcode::log:
    case opcode::log1p:
    case opcode::tanh:
    case opcode::logistic: return 24;
    default: return 100;
  }
}
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

constexpr bool is_sum(opcode op) { return op == opcode::add || op == opcode::subtract; }
constexpr bool is_sum_or_product(opcode op) { return is_sum(op) || op == opcode::negate || op == opcode::multiply; }
/// Compilers make no vectors of these in a loop that has elements of 64 bits too.
constexpr bool chooses_polynomials(opcode op) {
  return op == opcode::sine || op == opcode::cosine || op == opcode::erf || op == opcode::erf_inv;
}
constexpr bool draws_bits(opcode op) { return op == opcode::threefry2x32; }

}  // namespace gspmd::detail
