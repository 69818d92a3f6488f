// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "gspmd/detail/driver/static_passes.hpp"
#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/support/refuse.hpp"

/// The plan of a compiled program some of whose inputs and outputs lie by the caller's strides, with layers around them that loads at offsets
/// read (given_layers). It is the program's own until its operators become steps.
namespace gspmd::detail {

/// The memory that a value of a plan lies in: an input or output, inputs first; -1: the arena.
constexpr int leaf_at(const plan_view& p, const memory_place& where) {
  if (where.where == memory_place::kind::input) return static_cast<int>(where.at);
  if (where.where == memory_place::kind::output) return static_cast<int>(p.inputs.size()) + static_cast<int>(where.at);
  return -1;
}

/// Whether a step uses what lies by strides only so: a loop loads it by them, or stores it.
constexpr bool uses_strides(const plan_view& p, const plan_step& s, int slot, int leaf, bool is_result) {
  if (facts_of(s).role != step_role::fuses_operators) return false;
  const auto& group = table_of<planned_group>(p)[static_cast<std::size_t>(s.spec)];
  if (is_result) {
    for (int i = group.stores.begin; i < group.stores.begin + group.stores.count; ++i)
      if (const auto& to = table_of<fused_store>(p)[static_cast<std::size_t>(i)]; to.slot == slot) return to.given == leaf + 1;
    return false;
  }
  for (int i = group.ops.begin; i < group.ops.begin + group.ops.count; ++i)
    if (const auto& o = table_of<scalar_op>(p)[static_cast<std::size_t>(i)]; o.is_load() && o.slot == slot && o.given != leaf + 1)
      return false;
  for (int i = group.margins.begin; i < group.margins.begin + group.margins.count; ++i)
    if (table_of<fused_margin>(p)[static_cast<std::size_t>(i)].slot == slot) return false;
  return true;
}

/// The first use of what lies by strides that needs it to be dense; leaf -1: there is none.
struct dense_use {
  int leaf = -1, step = -1;
};
constexpr dense_use find_dense_use(const plan_view& p, span<const given_layers> given) {
  const auto is_given = [&](int leaf) {
    return leaf >= 0 && leaf < static_cast<int>(given.size()) && given[static_cast<std::size_t>(leaf)].is_given;
  };
  const auto inputs = static_cast<int>(p.inputs.size());
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    const auto& s = p.steps[i];
    for (int k = 0; k < s.operands.count; ++k) {
      const auto& where = p.operand(s, k).where;
      const int leaf = leaf_at(p, where);
      if (is_given(leaf) && (leaf >= inputs || where.row_bytes != 0 || !uses_strides(p, s, k, leaf, false)))
        return {leaf, static_cast<int>(i)};
    }
    for (int k = 0; k < s.results.count; ++k) {
      const auto& where = p.result(s, k).where;
      const int leaf = leaf_at(p, where);
      if (is_given(leaf) && (where.row_bytes != 0 || where.takes_turns() || !uses_strides(p, s, k, leaf, true)))
        return {leaf, static_cast<int>(i)};
      if (where.takes_turns() && is_given(leaf_at(p, memory_place(where.other, where.other_at))))
        return {leaf_at(p, memory_place(where.other, where.other_at)), static_cast<int>(i)};
    }
  }
  return {};
}

/// How the loads of an input go on beyond one end of a dim of the tensor, in the words of the program.
struct read_end {
  std::int64_t reach = 0;  // 0: nothing is read there
  continuation beyond = continuation::none;
  std::uint64_t fill = 0;
  bool differs = false;  // one load goes on otherwise than another one
  friend constexpr bool operator==(const read_end&, const read_end&) = default;
};
/// Of the first inputs, by dim: below and above the tensor.
template <std::size_t Inputs>
struct read_ends {
  using ends = std::array<read_end, 2>;
  std::array<std::array<ends, max_rank>, Inputs> of{};
};
template <std::size_t Inputs>
constexpr read_ends<Inputs> find_read_ends(const graph& g) {
  read_ends<Inputs> found;
  struct chain {
    int input = -1;
    bool has_constant = false;
    std::uint64_t constant = 0;
  };
  vec<chain> chains;
  chains.resize(g.nodes.size(), {});
  int input = 0;
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    const node& n = g.nodes[i];
    const auto& facts = facts_of(n.op);
    if (facts.made == origin::given) chains[i].input = input++;
    if (facts.made == origin::renamed && n.operands.count > 0) {  // a reshard or shard_alike: the same elements
      chains[i] = chains[static_cast<std::size_t>(n.operands[0])];
      continue;
    }
    if (n.operands.count != 1 || facts.movements(n) != 1) continue;
    chain c = chains[static_cast<std::size_t>(n.operands[0])];
    if (c.input < 0 || c.input >= static_cast<int>(Inputs)) continue;
    const index_map map = facts.map(g, n, 0);
    if (!moves_all_alike(map) || !(g.nodes[static_cast<std::size_t>(n.operands[0])].shape == n.shape)) continue;
    const auto& along = map.dims[0];
    const auto by = offset_of(along, n.shape[along.dim]);
    if (by != 0) {
      auto& end = found.of[static_cast<std::size_t>(c.input)][static_cast<std::size_t>(along.dim)][by < 0 ? 0 : 1];
      const bool is_constant = along.beyond == continuation::none;
      if (end.reach != 0 && (end.beyond != along.beyond || (is_constant && end.fill != map.fill))) end.differs = true;
      if (is_constant && c.has_constant && c.constant != map.fill) end.differs = true;  // in a corner
      end.beyond = along.beyond;
      end.fill = map.fill;
      if (const auto reach = by < 0 ? -by : by; end.reach < reach) end.reach = reach;
      if (is_constant) c.has_constant = true, c.constant = map.fill;
    }
    chains[i] = c;
  }
  return found;
}

/// Whether all that the loops of a plan read of input `k` in its layers was found: beyond an end that is not known there nothing is filled.
template <std::size_t Inputs>
constexpr bool are_reads_known(const plan_view& p, const read_ends<Inputs>& ends, std::size_t k) {
  for (const scalar_op& o : table_of<scalar_op>(p)) {
    if (!o.is_load() || o.given != static_cast<int>(k) + 1) continue;
    for (const auto& along : o.offsets)
      if ((along.by < 0 ? -along.by : along.by) > ends.of[k][static_cast<std::size_t>(along.dim)][along.by < 0 ? 0 : 1].reach)
        return false;
  }
  return true;
}

/// The passes of a program and the mesh that they are for.
template <class Passes>
struct planned_on;
template <class Program, class Mesh, class Until>
struct planned_on<static_passes<Program, Mesh, Until>> {
  template <class Given>
  struct mesh_with {
    static constexpr mesh_info info = [] {
      auto m = Mesh::info;
      m.request.given = span<const given_layers>(Given::layers.data(), Given::layers.size());
      return m;
    }();
  };
  using mesh = Mesh;
  template <class Given>
  using passes = static_passes<Program, mesh_with<Given>, static_passes<Program, Mesh, Until>>;
};

/// The same without leaf `Leaf`, which is copied.
template <class Given, int Leaf>
struct without_leaf {
  static constexpr auto layers = [] {
    auto all = Given::layers;
    all[static_cast<std::size_t>(Leaf)].is_given = false;
    return all;
  }();
};

/// Says why an input cannot be read in place: `p` with what lies by strides.
template <class Passes, class Given, int Leaf, int Step>
struct no_loop_reads {
  static constexpr bool is_too_far() {
    const plan_view p(planned_on<Passes>::template passes<Given>::plan());
    const auto& n = p.nodes[static_cast<std::size_t>(p.steps[static_cast<std::size_t>(Step)].node)];
    return n.moved_dim >= 0 && elements(p.value(p.inputs[Leaf]).global) > 0 &&
           !Given::layers[static_cast<std::size_t>(Leaf)].reaches(n.moved_dim, n.moved_by);
  }
  static constexpr text make() {
    const auto& given = Given::layers[static_cast<std::size_t>(Leaf)];
    const plan_view p(planned_on<Passes>::template passes<Given>::plan());
    const auto& s = p.steps[static_cast<std::size_t>(Step)];
    const auto& n = p.nodes[static_cast<std::size_t>(s.node)];
    const auto dim = static_cast<std::int64_t>(n.moved_dim);
    text t("input ");
    t << Leaf << " has ghost layers of " << shape_text(given.low) << " before and " << shape_text(given.high)
      << " behind it, and " << name_of(n.op);
    if (!n.at.is_input()) t << " in line " << static_cast<std::int64_t>(n.at.line);
    if (elements(p.value(p.inputs[Leaf]).global) == 0) return t << " reads it, which has no elements";
    if (n.moved_dim < 0) return t << " reads it as a dense shard";
    if (n.moved_by == 0) return t << " reads it 0 further along dim " << dim << ", as where the extent is 1, so as a dense shard";
    t << " reads it " << n.moved_by << " further along dim " << dim;
    if (!is_too_far())
      t << "; it is reshaped before, shifted again along the dim, or read by an operator that is not elementwise";
    return t;
  }
};

/// The plan of `Passes` with `Given::layers` in place: results that no loop stores are left out and copied.
template <class Passes, class Given>
struct given_plan {
  using passes = typename planned_on<Passes>::template passes<Given>;
  using mesh = typename planned_on<Passes>::mesh;
  using given = Given;
  static constexpr plan_view view{passes::plan()};
  static constexpr dense_use wrong = find_dense_use(view, span<const given_layers>(Given::layers.data(), Given::layers.size()));

  static auto find() {
    if constexpr (wrong.leaf < 0) {
      return std::type_identity<given_plan>{};
    } else if constexpr (wrong.leaf >= static_cast<int>(view.inputs.size())) {
      return std::type_identity<typename given_plan<Passes, without_leaf<Given, wrong.leaf>>::type>{};
    } else {
      using reason = no_loop_reads<Passes, Given, wrong.leaf, wrong.step>;
      if constexpr (reason::is_too_far())
        static_assert(
            accepted<typename message_of<reason>::type>,
            "gspmd: ghosted_step: an input among ghost layers is read by elementwise operators and reductions of what they "
            "compute, at offsets within the layers; give wider layers, or give it without ghosts<>; see message<>");
      else
        static_assert(
            accepted<typename message_of<reason>::type>,
            "gspmd: ghosted_step: an input among ghost layers is read by elementwise operators and reductions of what they "
            "compute, through no more than one shift along a dim; give it without ghosts<>, or write one shift; see message<>");
      return std::type_identity<given_plan<Passes, without_leaf<Given, wrong.leaf>>>{};
    }
  }
  using type = typename decltype(find())::type;
};

}  // namespace gspmd::detail
