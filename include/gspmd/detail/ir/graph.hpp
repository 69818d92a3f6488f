// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "gspmd/detail/ir/annotation.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/opcode.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/mistake.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/text.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// The line of the user's program that wrote an operator.
struct location {
  const char* file = "";
  int line = 0;
  /// An input is identified by its number instead of a line. A member of a struct also has a name: {name, -1 - number}.
  static constexpr location input(int number, const char* name = nullptr) {
    return {name, name == nullptr ? number : -1 - number};
  }
  [[nodiscard]] constexpr bool is_input() const { return file == nullptr || line < 0; }
  [[nodiscard]] constexpr int number() const { return file == nullptr ? line : -1 - line; }
  [[nodiscard]] constexpr const char* name() const { return is_input() && file != nullptr ? file : ""; }
  static constexpr location current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

/// A named part of the program (ops/named.hpp). `outer` is the enclosing scope, or -1. Each call of a function is one
/// scope.
struct scope {
  const char* name = "";
  int outer = -1;
};

/// The nodes of one call of a function that adds several nodes (ops/one_call.hpp). The user's code holds only the
/// arguments and the last node.
struct written_call {
  const char* name = "";
  int begin = 0, end = 0;
  inline_vec<int, 16> arguments;  // nodes; -1: a number

  /// Returns true if `node` is an intermediate node of the call.
  [[nodiscard]] constexpr bool is_inner(int node) const { return node >= begin && node < end - 1; }
};

class differentiator;

/// The nodes of one call of a function whose values are recomputed in the backward pass
/// (gspmd/transform/recompute.hpp). `go_back` propagates the gradient through the call.
struct recomputed_call {
  int begin = 0, end = 0;
  int region = -1;  // the region that contains the call
  void (*go_back)(differentiator&, int call) = nullptr;
};

/// One operator of the program in the global view. The first result has the number of the node. If an operator has
/// several results, `opcode::result` nodes follow it, one for each further result, with the operator as their operand.
struct node {
  operator_code op;
  dtype type = dtype::f32;
  extents shape;  // global, of the first result
  std::int8_t results = 1;
  inline_vec<int, max_map_arity> operands;
  inline_vec<std::int64_t, 3 * max_rank> attributes;  // the operator's struct defines their meaning
  monoid reduced_by = monoid::add;                    // reduce
  double real = 0;                                    // constant of a floating type
  std::int64_t integer = 0;  // constant of another type; convert of floats: 1; 2 if the user rounds; 3: widened_term
  const map_function* function = nullptr;
  const struct local_function* local = nullptr;  // local_op; a monoid
  bool in_gradient = false;                      // added by the differentiator
  const char* gradient_of = nullptr;             // the name of the operator that it is a gradient of, if it is known
  bool is_border = false;                        // passes a value into or out of a manual region (modes/local_view.hpp)
  bool is_started = false;                       // a collective that runs concurrently with nodes that do not need it
  bool annotated = false;                        // the user wrote `annotation`
  int state = -1;                                // the number of an input that the planner placed; also on its next values
  bool deferred = false;           // a reshard that is left to the users of the value (passes/rewrite/defer_reshards.hpp)
  bool forbid_reshard = false;     // the user allows no communication on the operands
  bool allow_replication = false;  // the user allows gathers of operands whose split the operator cannot keep
  bool keep_split = false;         // no operator that reads the value may gather it
  bool keep_partial = false;       // the value is reduced only if an operator needs the sum
  axis_mask exchange_axes = 0;     // explicit mode: the axes along which the user permits exchanges
  std::int64_t gather_limit = -1;  // einsum: the most bytes that an operand may be gathered to on a device; -1: any number
  detail::annotation annotation;   // of a value of a manual region: also the axes along which it varies
  location at;
  axis_mask local_axes = 0;  // the axes of its local view: its shape is that of a shard along them (modes/local_view.hpp)
  // In a program whose manual regions leave axes to the planner (passes/typed/manual_regions.hpp): the local axes that
  // plans for this node ignore, as if their size were 1. These are all local axes, except if a collective moves the
  // value. A value can be equal on all devices along a hidden axis, since devices split no work along it.
  axis_mask hidden_axes = 0;
  int region = -1;  // the loop, branch or otherwise node whose body contains it; -1: the program itself
  int scope = -1;   // the named part of the program that it belongs to
  int tag = -1;     // set by the builder of a graph; renumbering keeps it
};

/// Returns true if a loop runs until a condition is false (open_while).
constexpr bool is_while(const node& n) { return n.op == opcode::loop && n.attributes.count > 0 && n.attributes[0] != 0; }

constexpr void set_while(node& n) { n.attributes.push_back(1); }

/// Returns the number of iterations that the user requests for each exchange of halos (passes/ghost/ghost_zones.hpp).
/// Returns -1 if the planner picks the fastest number.
constexpr std::int64_t ghost_sweeps(const node& n) {
  return n.op == opcode::loop && n.attributes.count > 1 ? n.attributes[1] : 1;
}
constexpr void set_ghost_sweeps(node& n, std::int64_t sweeps) {
  n.attributes.clear();
  n.attributes.push_back(0);
  n.attributes.push_back(sweeps);
}

/// Adds attributes. If an operator has attributes other than dims, the operator's struct writes them in `keep(n)` and
/// reads them in `of(n)`. No other code depends on their positions.
template <class... A>
constexpr void add_attributes(node& n, A... attributes) {
  (n.attributes.push_back(static_cast<std::int64_t>(attributes)), ...);
}
/// Returns attribute `k` of an operator whose attributes are dims.
constexpr int attribute_dim(const node& n, int k) { return static_cast<int>(n.attributes[k]); }

class kept_functions;
class program_typer;
struct program_pass;  // ir/program_pass.hpp

/// Holds the types of the values of a program in the explicit mode during tracing, so that each type is computed once.
/// The types belong to one graph. A copy starts empty.
class types_so_far {
 public:
  constexpr types_so_far() = default;
  constexpr types_so_far(const types_so_far&) {}
  constexpr types_so_far& operator=(const types_so_far&) {
    set(nullptr, drop_);
    return *this;
  }
  constexpr ~types_so_far() { set(nullptr, drop_); }
  [[nodiscard]] constexpr program_typer* get() const { return typer_; }
  constexpr void set(program_typer* typer, void (*drop)(program_typer*)) {
    if (typer_ != nullptr) drop_(typer_);
    typer_ = typer;
    drop_ = drop;
  }

 private:
  program_typer* typer_ = nullptr;
  void (*drop_)(program_typer*) = nullptr;
};

/// A program in the global view, in the order of the user's program. Operands precede their users.
///
/// Bodies of loops and conditionals are ranges of the same list of nodes. Each body is between a node that opens it and
/// the nodes that are its results. A body reads outside values directly. With regions in brackets:
///
///   loop (iterations in `integer`, 1 if is_while; the counter)  [ carry(init)...  body  ]  loop_result(carry, next)...
///   branch(pred)  [ body ]  otherwise(branch)  [ body ]  cond_result(otherwise, value if true, value if false)...
///
/// During tracing, nodes can be added to a region that is already closed. canonical_order moves them into the region.
class graph {
 public:
  vec<node> nodes;
  vec<int> inputs;
  vec<int> outputs;
  vec<scope> scopes;                    // named parts; an outer scope precedes its inner scopes
  const mesh_info* mesh = nullptr;      // the mesh whose axes annotations name
  kept_functions* functions = nullptr;  // owns functions with state; null: no owner
  int open_region = -1;                 // the region of nodes that `add` creates
  int open_scope = -1;                  // the scope of nodes that `add` creates
  bool has_regions = false;
  struct composed_value {
    int tag, reader;  // the tag of the value, and the tag of an operator that now reads the operand of the value
    dtype type;
    extents shape;
  };
  vec<composed_value> composed;    // values that compose_movements removed
  std::int64_t largest_bytes = 0;  // of the largest tensor
  struct tagged {
    int tag;
    int node;
  };
  vec<tagged> also_tagged;          // further tags of nodes that replaced equal nodes
  vec<const program_pass*> passes;  // passes that functions of the program added (add_pass)
  bool is_explicit = false;         // explicit mode: types state the sharding of every value, and completion infers none
  bool has_manual_regions = false;
  types_so_far typer;
  vec<recomputed_call> recomputed;  // collected during tracing; an inner call precedes the call that contains it
  vec<written_call> calls;          // collected during tracing, if the types of the program may be refused
  bool is_in_call = false;          // `add` adds nodes of a call
  axis_mask open_local = 0;         // the axes of the local view of nodes that `add` creates
  bool allow_replication = true;    // for all operators; false at the start of programs that users write
  text error;                       // the first mistake; later operators are not checked
  mistake broken = mistake::none;   // the rule it breaks

  /// Returns true if the program states its communication: it is explicit or has manual regions.
  [[nodiscard]] constexpr bool states_communication() const { return is_explicit || has_manual_regions; }
  [[nodiscard]] constexpr bool failed() const { return !error.empty(); }
  /// Returns a graph with everything except the nodes, for a pass that rebuilds the nodes.
  [[nodiscard]] constexpr graph without_nodes() const {
    graph g;
    g.mesh = mesh;
    g.has_regions = has_regions;
    g.allow_replication = allow_replication;
    g.largest_bytes = largest_bytes;
    g.is_explicit = is_explicit;
    g.has_manual_regions = has_manual_regions;
    g.passes = passes;
    g.scopes = scopes;
    g.composed = composed;
    return g;
  }

  constexpr int add(node n) {
    n.region = open_region;
    n.local_axes = open_local;
    n.scope = open_scope;
    if (!n.is_border && !may_read({n.operands.begin(), static_cast<std::size_t>(n.operands.count)}, n.at, name_of(n.op)))
      return -1;
    if (n.shape.count == max_rank && is_complex(n.type))
      return fail(n.at, name_of(n.op), mistake::rank, "a complex tensor has at most 31 dims; real(x) and imag(x) have 32");
    if (has_regions && !is_region_result(n.op))
      for (const int o : n.operands)
        if (!is_visible(o))
          return fail(n.at, name_of(n.op), mistake::region,
                      "uses a value of the body of a loop or conditional outside of the body; return the value from the body");
    nodes.push_back(n);
    return static_cast<int>(nodes.size()) - 1;
  }
  /// Returns true if all operands belong to the open manual region, or if no manual region is open and no operand
  /// belongs to one. Otherwise records the mistake. Operators that compare shapes call this first, because shapes of
  /// different views do not compare.
  constexpr bool may_read(std::initializer_list<int> operands, location at, std::string_view op) {
    return may_read(span<const int>(operands.begin(), operands.size()), at, op);
  }
  constexpr bool may_read(span<const int> operands, location at, std::string_view op) {
    for (std::size_t k = 0; k < operands.size() && has_manual_regions; ++k) {
      const int o = operands[k];
      if (o < 0 || nodes[static_cast<std::size_t>(o)].local_axes == open_local) continue;
      text what("operand ");
      what << static_cast<std::int64_t>(k)
           << (open_local != 0 ? " is a value from outside of this manual region; give it to the region as an argument"
                               : " is a value of a manual region that is used outside of the region; return it from the region");
      fail(at, op, mistake::states, what);
      return false;
    }
    return true;
  }
  /// Returns true if the bytes of a tensor can be counted; otherwise records the mistake. Callers check a node that can
  /// be larger than all previous tensors.
  constexpr bool is_countable(const node& n, std::string_view op) {
    const std::int64_t bytes = bounded_bytes(n.shape, bytes_of(n.type));
    if (bytes > largest_bytes) largest_bytes = bytes;
    if (bytes >= 0 && bytes <= most_bytes) return true;
    fail(n.at, op, mistake::size, size_problem(n.shape, bytes_of(n.type)));
    return false;
  }
  /// Adds a node that may be larger than its operands.
  constexpr int add_sized(const node& n) { return is_countable(n, name_of(n.op)) ? add(n) : -1; }
  /// Returns the operator that computes the value of node `i`.
  constexpr node& maker_of(int i) {
    node& n = nodes[static_cast<std::size_t>(i)];
    return n.op == opcode::result ? nodes[static_cast<std::size_t>(n.operands[0])] : n;
  }
  /// Adds a further result of the last operator. The last node is this operator or one of its further results.
  constexpr int add_result(dtype type, const extents& shape) {
    const int last = static_cast<int>(nodes.size()) - 1;
    const int maker = nodes.back().op == opcode::result ? nodes.back().operands[0] : last;
    node n;
    n.op = opcode::result;
    n.type = type;
    n.shape = shape;
    n.at = nodes[static_cast<std::size_t>(maker)].at;
    n.operands.push_back(maker);
    const int id = add_sized(n);
    if (id >= 0) ++nodes[static_cast<std::size_t>(maker)].results;
    return id;
  }
  /// Adds a node that opens a region. Later nodes are added to the body of the region.
  constexpr int open(node n) {
    const int id = add(n);
    if (id >= 0) open_region = id;
    has_regions = true;
    return id;
  }
  /// Returns true if node `i` is in the body of `region`, or in a nested body.
  [[nodiscard]] constexpr bool is_inside(int i, int region) const {
    int r = nodes[static_cast<std::size_t>(i)].region;
    while (r != region && r >= 0) r = nodes[static_cast<std::size_t>(r)].region;
    return r == region;
  }
  /// Returns true if nodes of the open region may read node `i`: `i` is in the open region or in an enclosing one.
  [[nodiscard]] constexpr bool is_visible(int i) const {
    const node& n = nodes[static_cast<std::size_t>(i)];
    const int home = n.op == opcode::loop ? i : n.region;  // the counter belongs to the body
    int r = open_region;
    while (r != home && r >= 0) r = nodes[static_cast<std::size_t>(r)].region;
    return r == home;
  }
  /// Records a mistake at the user's line. Returns -1; a node with the operand -1 is not added.
  constexpr int fail(location at, std::string_view op, mistake rule, const text& what) {
    if (error.empty()) {
      error << place(at, op) << ": " << what;
      broken = rule;
    }
    return -1;
  }
  /// Adds a constant with the type and shape that the result of a refused operator would have. Later queries of its
  /// rank or extents then cause no second error.
  constexpr int add_stand_in(dtype type, const extents& shape) {
    if (!failed()) fail({}, "program", mistake::other, "a value of another program is used");
    node n;
    n.op = opcode::constant;
    n.type = type;
    n.shape = shape;
    for (auto& e : n.shape) e = e < 0 ? 1 : e;
    if (bounded_bytes(n.shape, bytes_of(type)) > most_bytes)
      for (auto& e : n.shape) e = 1;
    n.region = open_region;
    n.scope = open_scope;
    nodes.push_back(n);
    return static_cast<int>(nodes.size()) - 1;
  }
  /// Returns `input 0`, or `input 2 (w1)` for a member of a struct.
  static constexpr text input_text(location at) {
    text t = text("input ") << at.number();
    return at.name()[0] == '\0' ? t : t << " (" << at.name() << ')';
  }
  /// Returns `einsum at mlp.cpp:12` or `input 0`. If there are names instead of lines: "einsum `scores`". Without both:
  /// `compile`.
  static constexpr text place(location at, std::string_view op) {
    if (at.is_input()) return input_text(at);
    if (at.line == 0 && *at.file == '\0') return op;
    if (at.line == 0) return text(op) << " `" << at.file << '`';
    return text(op) << " at " << base_name(at.file) << ':' << at.line;
  }
  static constexpr std::string_view base_name(std::string_view path) {
    const auto slash = path.rfind('/');
    return slash == std::string_view::npos ? path : path.substr(slash + 1);
  }
};

}  // namespace gspmd::detail
