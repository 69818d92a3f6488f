// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/mp11.hpp"

namespace gspmd::detail {

/// The operators without a struct: sources, the nodes that begin and end regions, and further results. All other
/// operators are `listed`; see operator_code.
enum class opcode : std::uint8_t {
  // sources
  parameter,
  constant,
  iota,
  // regions: graphs inside the graph (see graph.hpp)
  loop,
  carry,
  loop_result,
  branch,
  otherwise,
  cond_result,
  // the second, third, ... result of the preceding operator
  result,
  listed,
};

/// The element type of an elementwise operator's result.
enum class element_result : std::uint8_t {
  same,    // the type of the operands
  truth,   // pred
  part,    // float for c64, double for c128, otherwise the type of the operand
  pair,    // c64 for float, c128 for double
  chosen,  // the type that the program passes to convert
};

/// The element types that an operator is defined for.
struct dtype_set {
  std::uint32_t types = 0;  // a bit for each dtype
  bool own = false;         // true: user-defined types too

  friend constexpr dtype_set operator|(dtype_set a, dtype_set b) { return {a.types | b.types, a.own || b.own}; }
  [[nodiscard]] constexpr bool has(dtype type) const {
    return is_own(type) ? own : (types >> static_cast<unsigned>(type) & 1U) != 0;
  }
};

/// The facts of an elementwise operator that loops and passes query, as data. The operator's struct states them
/// (ir/elementwise/facts.hpp). Operators that are not elementwise have 0 `operands`.
struct loop_facts {
  static constexpr std::int8_t any_number = -1;  // map

  /// The time of one element in a vectorised loop, in additions. `function` stands for any larger number.
  enum class work_class : std::uint8_t { instruction = 1, few_instructions = 4, vectorised_function = 24, function = 100 };
  /// Marks sums and products, which passes reorder.
  enum class role_class : std::uint8_t { other, sum, product };
  /// The loops that compilers vectorise if they contain the operator.
  enum class vector_class : std::uint8_t {
    any_loop,         // all loops
    own_loop,         // loops without `random_bits`: the operator selects polynomials, so all elements need one width
    random_bits,      // the operator computes with elements of 64 bits
    without_vectors,  // no loop: the operator calls a function for each element
  };
  using find_kernel = void (*(*)(dtype))();  // see scalar_kernel

  std::int8_t operands = 0;
  element_result result = element_result::same;
  bool has_condition = false;  // operand 0 is pred, and the other operands have the result's type
  bool ignores_sign = false;   // the bits of an integer result do not depend on the sign
  bool is_exact = false;
  work_class work = work_class::function;
  role_class role = role_class::other;
  vector_class vectors = vector_class::any_loop;
  std::int16_t flops = 0;  // per element
  dtype_set defined;
  const char* header = "";  // the header that native code includes; empty: native code leaves the loop interpreted
  bool is_listed = false;   // true: the library has the kernels (ir/elementwise/list.hpp); otherwise `kernel` finds them
  find_kernel kernel = nullptr;
};

/// The name of an operator in messages, and a hash of the name, which identifies the operator. The name is StableHLO's
/// name if StableHLO has the operator. GCC with -fsanitize=undefined cannot compare addresses in a constant expression,
/// so operators are not identified by address.
struct operator_name {
  const char* name = "";
  std::uint64_t id = 0;
  loop_facts loop;

  constexpr operator_name() = default;
  constexpr explicit operator_name(const char* written, const loop_facts& facts = {})
      : name(written), id(0xcbf29ce484222325U), loop(facts) {
    for (const char* c = written; *c != 0; ++c) id = (id ^ static_cast<unsigned char>(*c)) * 0x100000001b3U;
  }
};

/// Identifies the operator of a node. If the operator has a struct, `listed` points to a constant, so the list of
/// operators is open. The constant depends on the kind of code:
///
///   operator_code    in a graph: the facts (ops/operator.hpp)
///   planned_code     in a plan: the words (ir/operator_words.hpp), or the name of an elementwise operator
///   scalar_code      in a loop: the name (ir/elementwise/facts.hpp)
struct operator_code {
  opcode code = opcode::parameter;
  std::uint64_t id = 0;
  const operator_name* listed = nullptr;

  constexpr operator_code() = default;
  constexpr operator_code(opcode c) : code(c), id(static_cast<std::uint64_t>(c)) {}  // NOLINT: implicit on purpose
  constexpr explicit operator_code(const operator_name& of) : code(opcode::listed), id(of.id), listed(&of) {}

  /// Returns the facts of an elementwise operator. For other operators they have 0 operands.
  [[nodiscard]] constexpr const loop_facts& loop() const;

  friend constexpr bool operator==(const operator_code& a, const operator_code& b) { return a.id == b.id; }
  friend constexpr bool operator==(const operator_code& a, opcode b) { return a.code == b; }
};
inline constexpr loop_facts no_loop_facts;
constexpr const loop_facts& operator_code::loop() const { return code == opcode::listed ? listed->loop : no_loop_facts; }

struct planned_code : operator_code {
  using operator_code::operator_code;
};
struct scalar_code : operator_code {
  using operator_code::operator_code;
};

constexpr const char* name_of(opcode op) {
  constexpr const char* enumerated[] = {"parameter",   "constant", "iota",      "loop",        "carry",
                                        "loop_result", "branch",   "otherwise", "cond_result", "result"};
  static_assert(sizeof(enumerated) / sizeof(*enumerated) == static_cast<std::size_t>(opcode::listed));
  return enumerated[static_cast<int>(op)];
}
constexpr const char* name_of(const operator_code& op) { return op.code == opcode::listed ? op.listed->name : name_of(op.code); }

inline constexpr int enumerated_count = static_cast<int>(opcode::listed);

constexpr bool is_elementwise(const operator_code& op) { return op.loop().operands != 0; }
constexpr bool is_unary(const operator_code& op) { return op.loop().operands == 1; }
constexpr bool is_compare(const operator_code& op) { return op.loop().result == element_result::truth; }
/// Returns true if an element costs an instruction or two, which is hidden in a loop that waits for memory.
constexpr bool is_arithmetic(const operator_code& op) { return op.loop().work == loop_facts::work_class::instruction; }
/// Returns the time of one element in a vectorised loop, in additions.
constexpr int additions_of(const operator_code& op) { return static_cast<int>(op.loop().work); }
constexpr bool is_region(const operator_code& op) { return op.code >= opcode::loop && op.code <= opcode::cond_result; }
constexpr bool is_region_result(const operator_code& op) {
  return op.code == opcode::loop_result || op.code == opcode::cond_result;
}

/// Returns true if an elementwise operator is defined for operands of `type`. `map` depends on its function.
constexpr bool is_defined(const operator_code& op, dtype type) { return op.loop().defined.has(type); }

/// Returns the type of an elementwise operator's result.
constexpr dtype result_type(const operator_code& op, dtype in, dtype to) {
  switch (op.loop().result) {
    case element_result::same: return in;
    case element_result::truth: return dtype::pred;
    case element_result::part: return part_of(in);
    case element_result::pair: return in == dtype::f64 ? dtype::c128 : dtype::c64;
    case element_result::chosen: return to;
  }
  return in;
}

/// The most arguments a `map` may take.
inline constexpr int max_map_arity = 8;
/// The most results of an operator.
inline constexpr int max_results = 4;

/// Computes `n` elements of a map. `arguments[k]` is the address of the elements of argument k.
using map_rows = void (*)(const void* object, const void* const* arguments, void* out, std::int64_t n);

/// Computes one element of a map.
template <class T>
using map_element = T (*)(const T* arguments);

/// The same for a user's type.
using own_map_element = void (*)(const void* arguments, void* result);

/// A user's function. A graph stores a captureless callable as constant function pointers, one for each element type
/// (null if the callable does not accept the type). Narrow types are computed in other types. A builder stores a
/// callable with state as an object (kept_functions), and `rows` use the object. Arguments and result have the same
/// element type.
struct map_function {
  int arity = 0;
  boost::mp11::mp_rename<boost::mp11::mp_transform<map_element, computing_types>, std::tuple> of{};
  const map_function* const* derivatives = nullptr;  // by argument; null: the map has no gradient
  own_map_element of_own[own_type_count] = {};       // by the number of a user's type
  map_rows rows[element_type_count] = {};            // by dtype
  const void* object = nullptr;                      // the first argument of `rows`
};

}  // namespace gspmd::detail
