// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ops/modes/transition.hpp"
#include "gspmd/detail/passes/typed/remedies.hpp"
#include "gspmd/detail/passes/typed/user_names.hpp"

namespace gspmd::detail {

/// Finds the type of every value of a program from the types of its inputs. The program is in the explicit mode (the
/// global view) or in the manual mode (the local view). It inserts nothing, and reports mistakes.
///
/// 1. On each axis, the states of the operands must be compatible (axis_rule).
/// 2. In the global view, operands that share a dim must be split in the same way, with the axes in one order. If an
///    operator moves elements by itself (a slice, a window), each element must already be on the device that needs it.
///    That is checked by indices, not by divisibility.
/// 3. A transition is a row of the table, from the state that the value has.
/// 4. A carried value has the state that the body gives it, if a constant initial value can have that state too.
///
/// This class holds the state of the pass over the program. Separate headers type the nodes: operators
/// (operator_types.hpp), loops and conditionals (region_types.hpp), transitions (transition_types.hpp), reshards and
/// required result types (reshard_types.hpp). type_program.hpp has `run`.
class program_typer {
 public:
  /// `local`: axes that are local in the whole program, in addition to those of manual regions. `regions`: only manual
  /// regions are typed; the rest of the program has no types.
  constexpr program_typer(const graph& g, const mesh_info& mesh, axis_mask local, bool regions = false)
      : program(g), on_mesh(mesh), local_here(local), only_regions(regions), typed_mesh_(along_types(mesh)), base_local_(local) {
    types.resize(g.nodes.size(), value_type{});
    wanted.resize(g.nodes.size(), -1);
  }

  constant_vector<value_type> types;  // by node
  constant_vector<typed_step> steps;
  constant_vector<typed_mistake> mistakes;

  constexpr void give(int input, const value_type& t) { types[static_cast<std::size_t>(input)] = t; }
  /// Requires a result to have exactly this type. A constant or a replica is cut to match.
  constexpr void want(int node, const value_type& t) {
    if (static_cast<std::size_t>(node) >= wanted.size()) wanted.resize(program.nodes.size(), -1);
    wanted[static_cast<std::size_t>(node)] = static_cast<int>(wanted_types.size());
    wanted_types.push_back(t);
  }
  /// Types the nodes that were added to the program since the last call.
  constexpr void run();
  constexpr void run_here();  // `run`, compiled in this file
  /// Skips the nodes that were added since the last call, because they have a mistake of another kind.
  constexpr void skip() {
    types.resize(program.nodes.size(), value_type{});
    wanted.resize(program.nodes.size(), -1);
    next = static_cast<int>(program.nodes.size());
  }
  /// Returns the axes of the local view, whose shapes are those of shards.
  [[nodiscard]] constexpr axis_mask local() const { return base_local_; }
  constexpr void set_local(axis_mask axes) { base_local_ = axes; }
  /// Returns the axes along which devices may take different branches from here on. Nothing may be sent over these
  /// axes.
  [[nodiscard]] constexpr axis_mask diverging() const { return diverging_; }
  constexpr void set_diverging(axis_mask axes) { diverging_ = axes; }
  constexpr typed_mistake& refuse(mode_mistake kind, int i, int operand, int axis, const text& what) {
    text where;
    if (i >= 0 && !is_trying) {
      const user_names names(program, i);
      where << graph::place(at(i).at, names.is_in_call() ? names.function() : name_in_program(at(i))) << ": ";
    }
    mistakes.push_back({kind, i, operand, axis, where << what, {}});
    return mistakes.back();
  }
  /// Returns the name of the function that a user wrote to get a node.
  [[nodiscard]] static constexpr const char* name_in_program(const node& n) {
    if (n.op == opcode::loop_result) return "loop";
    if (n.op == opcode::cond_result) return "cond";
    if (facts_of(n.op).made == origin::viewed) return "manual";
    if (n.local_axes != 0 && facts_of(n.op).made == origin::renamed && state_change::is_one(n))
      return n.operands.count == 0 ? "axis_index" : name_of(state_change::of(n).by).data();
    if (facts_of(n.op).made != origin::renamed || state_change::is_one(n)) return name_of(n.op);
    return cotangent_of(n) != cotangent::none                            ? "grad"
           : requested_state::is_one(n) && requested_state::of(n).is_out ? "out"
                                                                         : "reshard";
  }

  // ---- for the typers of its nodes ----

  [[nodiscard]] constexpr const node& at(int i) const { return program.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr value_type& type(int i) { return types[static_cast<std::size_t>(i)]; }
  /// Returns the mesh as types see it: automatic axes have one device, and all values are constant along them.
  [[nodiscard]] constexpr const mesh_shape& mesh() const { return typed_mesh_; }
  [[nodiscard]] constexpr bool is_automatic(int a) const { return (on_mesh.automatic_axes & axis_bit(a)) != 0; }

  [[nodiscard]] constexpr bool is_local(int a) const { return (local_here & axis_bit(a)) != 0; }
  [[nodiscard]] constexpr bool is_all_local() const { return local_here == axis_bit(mesh().axis_count()) - 1; }
  [[nodiscard]] constexpr text words_of(const value_type& t, int rank) const { return type_text(on_mesh, t, rank, local_here); }
  [[nodiscard]] constexpr held_operand held(int x) const {
    return {at(x).shape, types[static_cast<std::size_t>(x)].layout, bytes_of(at(x).type)};
  }
  /// Returns the axes along which a node has another state than its operand, or that split a dim in another order.
  [[nodiscard]] constexpr axis_mask changed_axes(int i) const {
    const value_type &from = types[static_cast<std::size_t>(at(i).operands[0])], &to = types[static_cast<std::size_t>(i)];
    axis_mask axes = 0;
    for (int a = 0; a < mesh().axis_count(); ++a)
      if (!(from.on(a) == to.on(a))) axes |= axis_bit(a);
    for_each_split_dim(mesh(), sharding{from.layout.splits}, sharding{to.layout.splits},
                       [&](const split_change& change) { axes |= change.from_axes | change.to_axes; });
    return axes;
  }
  /// Returns the axes along which devices may take different branches: those along which the predicate of a
  /// conditional varies.
  [[nodiscard]] constexpr axis_mask varying_predicate(int branch) const {
    return types[static_cast<std::size_t>(at(branch).operands[0])].layout.varying;
  }
  [[nodiscard]] constexpr axis_mask diverging_at(int i) const {
    axis_mask axes = diverging_;
    for (int r = at(i).region; r >= 0; r = at(r).region) {
      if (at(r).op == opcode::branch) axes |= varying_predicate(r);
      if (at(r).op == opcode::otherwise) axes |= varying_predicate(at(r).operands[0]);
      if (is_while(at(r)))  // its body is one conditional: iterations may end on some devices only
        for (int k = r + 1; k < static_cast<int>(types.size()); ++k)
          if (at(k).op == opcode::branch && at(k).region == r && types[static_cast<std::size_t>(at(k).operands[0])].is_known)
            axes |= varying_predicate(k);
    }
    return axes;
  }
  /// Returns true if all elements of a value are zero. A value that a loop carries from zeros may become partial; it
  /// counts as zeros until the loop is typed.
  [[nodiscard]] constexpr bool may_be_zeros(int i) const {
    while (at(i).op == opcode::carry) {  // of a loop in a loop: its initial value is carried too
      for (const auto& c : carried)
        if (c.carry == i && c.is_settled) return false;
      i = at(i).operands[0];
    }
    for (const int z : zeros)
      if (z == i) return true;
    return is_zero(at(i));
  }

  const graph& program;
  const mesh_info& on_mesh;
  axis_mask local_here;  // the local axes at the node that is visited
  bool only_regions;
  int next = 0;  // the next node
  struct typed_loop {
    int loop = 0;
    std::size_t mistakes = 0, steps = 0;  // before its body
  };
  constant_vector<typed_loop> loops;
  struct carried_value {
    int carry = 0;
    value_type is;
    bool is_settled = false;  // it stays constant
  };
  constant_vector<carried_value> carried;
  constant_vector<int> zeros;   // inputs that replace carried values, and may count as zeros
  constant_vector<int> wanted;  // by node
  constant_vector<value_type> wanted_types;
  inline_vec<value_type, max_results> further;        // further results of the operator typed last
  bool is_trying = false;                             // a remedy is being tried
  void (*type_again)(program_typer&, int) = nullptr;  // types a node again, for remedies

 private:
  constexpr void visit(int i);
  constexpr void visit_border(int i);

  mesh_shape typed_mesh_;
  axis_mask base_local_;  // axes of the local view, everywhere
  axis_mask diverging_ = 0;
};

}  // namespace gspmd::detail
