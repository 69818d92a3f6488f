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
  /// An input is known by its number, not by a line, and by its name if it is a member of a struct: {name, -1 - number}.
  static constexpr location input(int number, const char* name = nullptr) {
    return {name, name == nullptr ? number : -1 - number};
  }
  [[nodiscard]] constexpr bool is_input() const { return file == nullptr || line < 0; }
  [[nodiscard]] constexpr int number() const { return file == nullptr ? line : -1 - line; }
  [[nodiscard]] constexpr const char* name() const { return is_input() && file != nullptr ? file : ""; }
  static constexpr location current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

/// A part of the program that its user named (ops/named.hpp), in another one or in none (-1). Each call of a function is one.
struct scope {
  const char* name = "";
  int outer = -1;
};

/// The nodes of one call of a function that adds several (ops/one_call.hpp). Its user has the arguments and the last node.
struct written_call {
  const char* name = "";
  int begin = 0, end = 0;
  inline_vec<int, 16> arguments;  // nodes; -1: a number

  /// Whether a node is made on the way.
  [[nodiscard]] constexpr bool is_inner(int node) const { return node >= begin && node < end - 1; }
};

class differentiator;

/// The nodes of one call of a function whose values are computed again on the way back (gspmd/recompute.hpp), and what goes back through it.
struct recomputed_call {
  int begin = 0, end = 0;
  int region = -1;  // where it stands
  void (*go_back)(differentiator&, int call) = nullptr;
};

/// One operator of the program for one giant device. Its first result has the node's number; where it has more, nodes that stand for
/// them follow it, each with the operator as its operand.
struct node {
  operator_code op;
  dtype type = dtype::f32;
  extents shape;  // global, of the first result
  std::int8_t results = 1;
  inline_vec<int, max_map_arity> operands;
  inline_vec<std::int64_t, 3 * max_rank> attributes;  // what they are, the operator's struct says
  monoid reduced_by = monoid::add;                    // reduce
  double real = 0;                                    // constant of a floating type
  std::int64_t integer = 0;  // constant of another type; convert of floats: 1; 2 if the user rounds; 3: widened_term
  const map_function* function = nullptr;
  const struct local_function* local = nullptr;  // local_op; a monoid
  bool in_gradient = false;                      // the differentiator wrote it
  bool is_border = false;                        // it stands between a manual region and what is around it (ops/local_view.hpp)
  bool is_started = false;                       // a collective that goes on beside what does not need it
  bool annotated = false;                        // `annotation` was written by the user
  int state = -1;                                // of an input that the planner placed, and of its next values: its number
  bool deferred = false;           // a reshard that is left to what its readers compute (passes/rewrite/defer_reshards.hpp)
  bool forbid_reshard = false;     // the user allows no communication on the operands
  bool allow_replication = false;  // the user knows that operands may be gathered because the operator cannot keep their split
  bool keep_split = false;         // the user lets no operator that reads it gather it
  bool keep_partial = false;       // the user wants it reduced no earlier than an operator needs the sum
  axis_mask exchange_axes = 0;     // along which the user lets its parts get what others hold, where types say what is sent
  std::int64_t gather_limit = -1;  // einsum: the most bytes that an operand may be gathered to on a device; -1: any number
  detail::annotation annotation;   // of a value of a manual region it says also along which axes it varies
  location at;
  axis_mask local_axes = 0;  // whose local view it stands in: its shape is that of a shard along these (ops/local_view.hpp)
  // Of a program in which manual regions leave axes to the planner (passes/typed/manual_regions.hpp), the local axes along which no plan looks
  // at it: all, but where a collective moves it. Those along which it varies are fewer: of equal data too devices split nothing there.
  axis_mask hidden_axes = 0;
  int region = -1;  // the loop, branch or otherwise node in whose body it stands; -1: the program itself
  int scope = -1;   // the named part of the program that it belongs to
  int tag = -1;     // what the builder of a graph calls it; survives every renumbering
};

/// Whether a loop runs until a condition does not hold (open_while).
constexpr bool is_while(const node& n) { return n.op == opcode::loop && n.attributes.count > 0 && n.attributes[0] != 0; }

constexpr void set_while(node& n) { n.attributes.push_back(1); }

/// How many trips of a loop the user asks for on one exchange of margins (passes/ghost/ghost_zones.hpp); -1: as many as are fastest.
constexpr std::int64_t ghost_sweeps(const node& n) {
  return n.op == opcode::loop && n.attributes.count > 1 ? n.attributes[1] : 1;
}
constexpr void set_ghost_sweeps(node& n, std::int64_t sweeps) {
  n.attributes.clear();
  n.attributes.push_back(0);
  n.attributes.push_back(sweeps);
}

/// Adds attributes. An operator with other ones than dims has a struct that writes them, `keep(n)`, and reads them, `of(n)`; nobody else
/// knows their places.
template <class... A>
constexpr void add_attributes(node& n, A... attributes) {
  (n.attributes.push_back(static_cast<std::int64_t>(attributes)), ...);
}
/// The attribute `k` of an operator whose attributes are dims.
constexpr int attribute_dim(const node& n, int k) { return static_cast<int>(n.attributes[k]); }

class kept_functions;

class graph;

/// A function that programs of some modes have. It is known without its address whether there is one: for GCC with
/// -fsanitize=undefined it is no constant whether that is null.
class pass_of_mode {
 public:
  using function = void (*)(graph&, bool annotate);
  constexpr pass_of_mode() = default;
  constexpr pass_of_mode(std::nullptr_t) {}                         // NOLINT: implicit on purpose
  constexpr pass_of_mode(function f) : run_(f), is_there_(true) {}  // NOLINT: implicit on purpose
  constexpr void operator()(graph& g, bool annotate) const { run_(g, annotate); }
  friend constexpr bool operator==(const pass_of_mode& pass, std::nullptr_t) { return !pass.is_there_; }

 private:
  function run_ = nullptr;
  bool is_there_ = false;
};

class program_typer;

/// Where a program that writes its own communication keeps the types of its values while it is traced, so that none is found twice. They
/// belong to this graph: a copy begins without.
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

/// A program in the global view, in the order it was written; operands come before their users.
///
/// Bodies of loops and conditionals are graphs inside the graph: runs of nodes of the same list, between a node that opens them
/// and the nodes that are their results. What a body reads from outside it simply names. With regions in brackets:
///
///   loop (trips in `integer`, 1 where is_while; the counter)  [ carry(init)...  body  ]  loop_result(carry, next)...
///   branch(pred)  [ body ]  otherwise(branch)  [ body ]  cond_result(otherwise, value if true, value if false)...
///
/// While a program is traced, nodes may be added to a region that was closed before; canonical_order brings them together.
class graph {
 public:
  vec<node> nodes;
  vec<int> inputs;
  vec<int> outputs;
  vec<scope> scopes;                    // named parts; the outer one comes first
  const mesh_info* mesh = nullptr;      // what annotations name
  kept_functions* functions = nullptr;  // where functions with state are kept; null: there is no such place
  int open_region = -1;                 // where `add` puts nodes
  int open_scope = -1;                  // and the part that they belong to
  bool has_regions = false;
  struct composed_value {
    int tag, reader;  // its own, and that of an operator that reads its operand instead
    dtype type;
    extents shape;
  };
  vec<composed_value> composed;    // values that are no longer made, see compose_movements
  std::int64_t largest_bytes = 0;  // of a tensor
  struct tagged {
    int tag;
    int node;
  };
  vec<tagged> also_tagged;  // further tags of nodes that stand for equal ones
  // Of a program that writes its own communication (passes/typed): finds the type of every value, which becomes its annotation where that
  // is asked for, or records the mistake. Null: completion and choose do what they find best.
  pass_of_mode find_types;
  // Of a program with manual regions: finds the states of what stands in them, and turns it into what is planned where that is asked for,
  // or records the mistake.
  pass_of_mode type_local;
  // Of a program with next values of inputs (passes/carried): gives them the places of these.
  void (*place_carried)(graph&, const vec<sharding>& completed) = nullptr;
  types_so_far typer;
  // Of a program with values that are made behind others (ops/barrier.hpp): leaves of these what is planned, once their order is settled.
  pass_of_mode settle_barriers;
  // Of a program with staggered fields (gspmd/staggered.hpp): gives them one extent.
  pass_of_mode align_fields;
  vec<recomputed_call> recomputed;  // as it is traced; who is inside of another one comes before it
  vec<written_call> calls;          // of a program whose types may be refused, as it is traced
  bool is_in_call = false;          // `add` adds to what a call consists of
  axis_mask open_local = 0;         // the axes whose local view `add` puts nodes in
  bool allow_replication = true;    // for all operators; programs that users write start without it
  text error;                       // the first mistake found; operators after it are not checked
  mistake broken = mistake::none;   // the rule it breaks

  static constexpr auto lists(auto& s, auto f) { return f(s.nodes, s.inputs, s.outputs, s.scopes); }
  static constexpr auto rest(auto& s, auto f) {
    return f(s.mesh, s.has_regions, s.allow_replication, s.largest_bytes, s.find_types);
  }

  [[nodiscard]] constexpr bool failed() const { return !error.empty(); }
  /// Returns what the program is besides its nodes, for a pass that makes them anew.
  [[nodiscard]] constexpr graph without_nodes() const {
    graph g;
    g.mesh = mesh;
    g.has_regions = has_regions;
    g.allow_replication = allow_replication;
    g.largest_bytes = largest_bytes;
    g.find_types = find_types;
    g.type_local = type_local;
    g.place_carried = place_carried;
    g.settle_barriers = settle_barriers;
    g.align_fields = align_fields;
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
                      "uses a value of the body of a loop or conditional outside of it; return the value from the body");
    nodes.push_back(n);
    return static_cast<int>(nodes.size()) - 1;
  }
  /// Whether operands stand in the manual region that is open, or none does and none is; records the mistake if not. Who compares shapes
  /// asks before: those of another view are no mistake of theirs.
  constexpr bool may_read(std::initializer_list<int> operands, location at, std::string_view op) {
    return may_read(span<const int>(operands.begin(), operands.size()), at, op);
  }
  constexpr bool may_read(span<const int> operands, location at, std::string_view op) {
    for (std::size_t k = 0; k < operands.size() && type_local != nullptr; ++k) {
      const int o = operands[k];
      if (o < 0 || nodes[static_cast<std::size_t>(o)].local_axes == open_local) continue;
      text what("operand ");
      what << static_cast<std::int64_t>(k)
           << (open_local != 0 ? " is a value from outside of this manual region; give it to the region as an argument"
                               : " is a value of a manual region, outside of it; return it from the region");
      fail(at, op, mistake::states, what);
      return false;
    }
    return true;
  }
  /// Whether the bytes of a tensor can be counted; records the mistake if not. Asked for what may be larger than every tensor
  /// before it.
  constexpr bool is_countable(const node& n, std::string_view op) {
    const std::int64_t bytes = bounded_bytes(n.shape, bytes_of(n.type));
    if (bytes > largest_bytes) largest_bytes = bytes;
    if (bytes >= 0 && bytes <= most_bytes) return true;
    fail(n.at, op, mistake::size, size_problem(n.shape, bytes_of(n.type)));
    return false;
  }
  /// Adds a node that may be larger than its operands.
  constexpr int add_sized(const node& n) { return is_countable(n, name_of(n.op)) ? add(n) : -1; }
  /// The operator that makes the value of node `i`.
  constexpr node& maker_of(int i) {
    node& n = nodes[static_cast<std::size_t>(i)];
    return n.op == opcode::result ? nodes[static_cast<std::size_t>(n.operands[0])] : n;
  }
  /// Adds a further result of the node that was added last, or of the one whose further result that is.
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
  /// Adds a node that opens a region; what is added from now on stands in its body.
  constexpr int open(node n) {
    const int id = add(n);
    if (id >= 0) open_region = id;
    has_regions = true;
    return id;
  }
  /// True when node `i` stands in the body of `region`, or in a body inside it.
  [[nodiscard]] constexpr bool is_inside(int i, int region) const {
    int r = nodes[static_cast<std::size_t>(i)].region;
    while (r != region && r >= 0) r = nodes[static_cast<std::size_t>(r)].region;
    return r == region;
  }
  /// True when what stands in the open region may read node `i`: it stands there, or further outside.
  [[nodiscard]] constexpr bool is_visible(int i) const {
    const node& n = nodes[static_cast<std::size_t>(i)];
    const int home = n.op == opcode::loop ? i : n.region;  // the counter belongs to the body
    int r = open_region;
    while (r != home && r >= 0) r = nodes[static_cast<std::size_t>(r)].region;
    return r == home;
  }
  /// Records a mistake at the user's line and gives the number that poisons what is built on it.
  constexpr int fail(location at, std::string_view op, mistake rule, const text& what) {
    if (error.empty()) {
      error << place(at, op) << ": " << what;
      broken = rule;
    }
    return -1;
  }
  /// Adds what a refused operator leaves: a tensor of the type and shape that its result would have, so that what the program
  /// goes on to ask of it (its rank, an extent) makes no second mistake of the first.
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
  /// `input 0`, `input 2 (w1)`: a member of a struct.
  static constexpr text input_text(location at) {
    text t = text("input ") << at.number();
    return at.name()[0] == '\0' ? t : t << " (" << at.name() << ')';
  }
  /// `einsum at mlp.cpp:12`, `input 0`, or where there are no lines but names: "einsum `scores`", or neither: `compile`
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
