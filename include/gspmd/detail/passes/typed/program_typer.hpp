// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ops/transition.hpp"
#include "gspmd/detail/passes/typed/remedies.hpp"
#include "gspmd/detail/passes/typed/user_names.hpp"

namespace gspmd::detail {

/// Finds the type of every value of a program in the explicit mode (the global view) or the manual one (the local view) from those of its
/// inputs, inserts nothing, and says what is wrong.
///
/// 1. on each axis the operands' states meet (axis_rule);
/// 2. in the global view operands that share a dim are split alike, axes in one order, and what an operator moves by itself
///    (a slice, a window) must lie where it is needed already: that is looked at by indices, not by divisibility;
/// 3. a transition is a row of the table, from the state that the value has;
/// 4. what a loop carries has the state that its body gives it, where a constant it begins with can have that too.
///
/// This is what is known while it goes through the program; what it does with a node stands in headers of their own: operators
/// (operator_types.hpp), loops and conditionals (region_types.hpp), transitions (transition_types.hpp), reshards and what a result must be
/// (reshard_types.hpp). type_program.hpp has `run`.
class program_typer {
 public:
  /// `local`: axes that are local in all of the program; those of manual regions are besides. `regions`: only they are typed, the rest of
  /// the program has no types.
  constexpr program_typer(const graph& g, const mesh_info& mesh, axis_mask local, bool regions = false)
      : program(g), on_mesh(mesh), local_here(local), only_regions(regions), typed_mesh_(along_types(mesh)), base_local_(local) {
    types.resize(g.nodes.size(), value_type{});
    wanted.resize(g.nodes.size(), -1);
  }

  constant_vector<value_type> types;  // by node
  constant_vector<typed_step> steps;
  constant_vector<typed_mistake> mistakes;

  constexpr void give(int input, const value_type& t) { types[static_cast<std::size_t>(input)] = t; }
  /// Requires a result to be of exactly this type; a constant or a replica is cut for it.
  constexpr void want(int node, const value_type& t) {
    if (static_cast<std::size_t>(node) >= wanted.size()) wanted.resize(program.nodes.size(), -1);
    wanted[static_cast<std::size_t>(node)] = static_cast<int>(wanted_types.size());
    wanted_types.push_back(t);
  }
  /// Types what was added to the program since the last call.
  constexpr void run();
  constexpr void run_here();  // `run`, compiled in this file
  /// Forgets what was added since: it had a mistake of another kind.
  constexpr void skip() {
    types.resize(program.nodes.size(), value_type{});
    wanted.resize(program.nodes.size(), -1);
    next = static_cast<int>(program.nodes.size());
  }
  /// Axes of the local view: there shapes are those of shards.
  [[nodiscard]] constexpr axis_mask local() const { return base_local_; }
  constexpr void set_local(axis_mask axes) { base_local_ = axes; }
  /// Axes along which devices may go different ways from here on: nothing may be sent over them.
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

  // ---- for those that type its nodes ----

  [[nodiscard]] constexpr const node& at(int i) const { return program.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr value_type& type(int i) { return types[static_cast<std::size_t>(i)]; }
  /// The mesh as types see it: along axes of which they say nothing there is one device, on which everything is constant.
  [[nodiscard]] constexpr const mesh_shape& mesh() const { return typed_mesh_; }
  [[nodiscard]] constexpr bool is_automatic(int a) const { return (on_mesh.automatic_axes & axis_bit(a)) != 0; }

  [[nodiscard]] constexpr bool is_local(int a) const { return (local_here & axis_bit(a)) != 0; }
  [[nodiscard]] constexpr bool is_all_local() const { return local_here == axis_bit(mesh().axis_count()) - 1; }
  [[nodiscard]] constexpr text words_of(const value_type& t, int rank) const { return type_text(on_mesh, t, rank, local_here); }
  [[nodiscard]] constexpr held_operand held(int x) const {
    return {at(x).shape, types[static_cast<std::size_t>(x)].layout, bytes_of(at(x).type)};
  }
  /// The axes along which a node is in another state than its operand, or which split a dim in another order.
  [[nodiscard]] constexpr axis_mask changed_axes(int i) const {
    const value_type &from = types[static_cast<std::size_t>(at(i).operands[0])], &to = types[static_cast<std::size_t>(i)];
    axis_mask axes = 0;
    for (int a = 0; a < mesh().axis_count(); ++a)
      if (!(from.on(a) == to.on(a))) axes |= axis_bit(a);
    for_each_split_dim(mesh(), sharding{from.layout.splits}, sharding{to.layout.splits},
                       [&](const split_change& change) { axes |= change.from_axes | change.to_axes; });
    return axes;
  }
  /// The devices along these axes may go different ways in a body: those along which the predicate of a conditional around it varies.
  [[nodiscard]] constexpr axis_mask varying_predicate(int branch) const {
    return types[static_cast<std::size_t>(at(branch).operands[0])].layout.varying;
  }
  [[nodiscard]] constexpr axis_mask diverging_at(int i) const {
    axis_mask axes = diverging_;
    for (int r = at(i).region; r >= 0; r = at(r).region) {
      if (at(r).op == opcode::branch) axes |= varying_predicate(r);
      if (at(r).op == opcode::otherwise) axes |= varying_predicate(at(r).operands[0]);
      if (is_while(at(r)))  // its body is one conditional: where trips end on some devices only, they end for these
        for (int k = r + 1; k < static_cast<int>(types.size()); ++k)
          if (at(k).op == opcode::branch && at(k).region == r && types[static_cast<std::size_t>(at(k).operands[0])].is_known)
            axes |= varying_predicate(k);
    }
    return axes;
  }
  /// Whether a value is nothing but zeros, or is carried round a loop that begins with zeros and may turn out to carry a partial sum: that
  /// is believed until the loop has been gone through.
  [[nodiscard]] constexpr bool may_be_zeros(int i) const {
    while (at(i).op == opcode::carry) {  // of a loop in a loop: what it begins with is carried too
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
  axis_mask local_here;  // where the node stands that is visited
  bool only_regions;
  int next = 0;  // node
  struct typed_loop {
    int loop = 0;
    std::size_t mistakes = 0, steps = 0;  // before its body
  };
  constant_vector<typed_loop> loops;
  struct carried_value {
    int carry = 0;
    value_type is;
    bool is_settled = false;  // it is constant for good
  };
  constant_vector<carried_value> carried;
  constant_vector<int> zeros;   // inputs that stand for what a loop carries, and may be believed to be zeros
  constant_vector<int> wanted;  // by node
  constant_vector<value_type> wanted_types;
  inline_vec<value_type, max_results> further;        // results of the operator typed last, but the first
  bool is_trying = false;                             // what a way out of a mistake would lead to
  void (*type_again)(program_typer&, int) = nullptr;  // of a node, for those that try

 private:
  constexpr void visit(int i);
  constexpr void visit_border(int i);

  mesh_shape typed_mesh_;
  axis_mask base_local_;  // axes of the local view, everywhere
  axis_mask diverging_ = 0;
};

}  // namespace gspmd::detail
