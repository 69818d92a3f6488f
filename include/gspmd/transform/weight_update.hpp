// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "gspmd/program/sharding.hpp"
#include "gspmd/transform/update.hpp"

/// Weight-update sharding (Xu et al. 2020, "Automatic Cross-Replica Sharding of Weight Update in Data-Parallel
/// Training").
namespace gspmd {
namespace detail {

/// Returns for each node 1 if an output is computed from it, 0 otherwise.
constexpr vec<std::uint8_t> read_by_outputs(const graph& g, span<const int> outputs) {
  vec<std::uint8_t> is_read(g.nodes.size(), 0);
  vec<int> open;
  const auto add = [&](int i) {
    if (is_read[i] == 0) is_read[i] = 1, open.push_back(i);
  };
  for (const int o : outputs) add(o);
  while (!open.empty()) {
    const int i = open.back();
    open.pop_back();
    for (const int o : g.nodes[static_cast<std::size_t>(i)].operands) add(o);
  }
  return is_read;
}
/// Requests that the updates of all next values are split over these axes if that saves time.
constexpr void ask_weight_updates(graph& g, const std::string_view* axes, std::size_t count, span<const int> outputs) {
  axis_mask mask = 0;
  const auto fail = [&](mistake broken, const text& what) { g.fail({}, "shard_weight_update", broken, what); };
  if (g.states_communication())
    return fail(mistake::states, text("this program writes its own communication; write its update on shards"));
  for (std::size_t k = 0; k < count; ++k) {
    const axis_mask found = g.mesh->mask_of(axes[k]);
    if (found == 0)
      return fail(mistake::unknown_axis, text("`")
                                             << axes[k] << "` is not an axis of the mesh; its axes are " << names_text(*g.mesh));
    mask |= found;
  }
  if (mask == 0) return fail(mistake::other, text("name the axes over which the same is updated, \"data\" say"));
  bool any = false;
  const vec<std::uint8_t> is_read = read_by_outputs(g, outputs);
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    node& n = g.nodes[static_cast<std::size_t>(i)];
    if (!update_mark::is_on(n)) continue;
    auto mark = update_mark::of(n);
    mark.axes = mask;
    mark.keep(n);
    any = any || is_read[i] != 0 || n.region >= 0;
  }
  if (!any)
    fail(mistake::other,
         text("no output is the next value of an input; return update(w, new_w), or the result of an optimizer's update"));
}

template <class F, dim_spec... Axes>
struct updating_by_parts {
  F step;

  template <class... A>
  constexpr auto operator()(const A&... arguments) const {
    auto result = step(arguments...);
    graph* g = nullptr;
    auto given = std::tuple{arguments...};
    for_each_leaf(given, [&](value& v) { g = v.graph() != nullptr ? v.graph() : g; });
    constexpr std::string_view axes[] = {Axes.view()...};
    vec<int> outputs;
    for_each_leaf(result, [&](value& v) {
      if (v.is_valid() && v.graph() == g) outputs.push_back(v.id());
    });
    if (g != nullptr && !g->failed()) ask_weight_updates(*g, axes, sizeof...(Axes), outputs);
    return result;
  }
};

/// Example: 12'300'000 -> `12.3 us`.
inline std::string microseconds(std::int64_t picoseconds) {
  const auto tenths = (picoseconds + 50'000) / 100'000;
  return std::to_string(tenths / 10) + '.' + std::to_string(tenths % 10) + " us";
}
inline std::string words_of_update(const graph& g, const node& n, const update_mark& mark, std::int64_t states) {
  const auto str = [](const text& t) { return std::string(t.view()); };
  const auto times = [&] {
    return " saves " + microseconds(mark.saved) + " of the update, and sends " + microseconds(mark.sent_longer) + " longer";
  };
  const node* next = &g.nodes[static_cast<std::size_t>(n.operands[0])];
  while (!next->annotated && is_operand_reshaped(*next)) next = &g.nodes[static_cast<std::size_t>(next->operands[0])];
  switch (mark.outcome) {
    case update_outcome::split:
      return "updated as " + str(sharding_text(*g.mesh, next->annotation.layout, next->shape.count)) +
             (next->shape == n.shape ? "" : " of its elements as " + str(shape_text(next->shape))) + " and gathered, " +
             std::to_string(states) + (states == 1 ? " state stays" : " states stay") + " split; that" + times();
    case update_outcome::split_before: return "split over the axes before";
    case update_outcome::kept_by_user: return "updated whole, as keep_update_whole says";
    case update_outcome::placed_by_user: return "updated whole: the program states the sharding of its new value";
    case update_outcome::in_body: return "updated whole: a loop or a conditional updates it";
    case update_outcome::too_small: return "updated whole: none of its dims can be cut";
    case update_outcome::too_slow: return "updated whole: in parts it" + times();
    case update_outcome::other_reader: return "whole: no weight's update reads it element by element";
    default: return {};
  }
}
inline std::string explain_weight_updates(const graph& g) {
  std::string all;
  for (const node& n : g.nodes) {
    if (!update_mark::is_on(n)) continue;
    const auto mark = update_mark::of(n);
    std::int64_t states = 0;
    for (const node& other : g.nodes)
      if (update_mark::is_on(other) && update_mark::of(other).outcome == update_outcome::split_state &&
          update_mark::of(other).weight == mark.input)
        ++states;
    const std::string words = words_of_update(g, n, mark, states);
    if (words.empty()) continue;
    const node& before = g.nodes[static_cast<std::size_t>(g.inputs[static_cast<std::size_t>(mark.input)])];
    const std::string name = before.at.name();
    all += "input " + std::to_string(mark.input) + (name.empty() ? "" : " (" + name + ')') + ' ' + name_of(n.type) +
           std::string(shape_text(n.shape).view()) + ": " + words + '\n';
  }
  return all;
}

}  // namespace detail

/// Returns a step of data-parallel training that updates the weights in parts: each device along these axes updates one
/// part (ZeRO-1) and then gets the parts that the other devices updated. Pass it to `compile` or dynamic::compile
/// instead of `step`. The program needs no annotations for it.
///
/// It applies to inputs with marked next values (update; optimizers mark them) that are updated by a reduction over
/// the axes, as completion places the program without this function. A weight is also read before that reduction. Only
/// the update reads its moments.
/// The update of a weight and its moments are split along the dim with the smallest parts (4.1 of the paper). Moments
/// have this sharding before and after the step too. The weight keeps its sharding. Moments of other shapes are split
/// if the operators of the update propagate the split. Moments that are sums over the split dim are split along one of
/// their own dims.
///
/// A weight is updated whole in these cases (3.2 of the paper). explain_weight_updates returns the case.
///  * Splitting the update does not save more time than two collectives take longer than one. The time of the update
///    is estimated from the bytes that it reads and writes, the time of the collectives on the network of the mesh.
///  * None of its dims can be split.
///  * The program annotates its new value, or a loop or conditional computes it.
///  * You call keep_update_whole.
///
/// V bytes of moments take V/N bytes on each of N devices (4.2 of the paper).
///
/// **Communication.** For a weight of D bytes over N devices, a reduce_scatter and an all_gather of (N-1)/N D bytes
/// each. Together they are the all_reduce that they replace. A norm of the weight adds one number.
/// **Errors.** Compile error, or gspmd::error at run time: an unknown axis or no axis; no output is a next value; no
/// next value is updated by a reduction over the axes; a program that writes its own communication.
/// **Example.**
///
///     constexpr auto train = [](auto w, auto state, auto x) { return adam.update(w, grad(loss(w, x), w), state); };
///     using step = compile<shard_weight_update<"data">(train), pod, w_in,
///                          optimizer::state_of<optimizer::adam, w_in>, x_in>;
template <dim_spec... Axes, class F>
constexpr auto shard_weight_update(F step) {
  static_assert(sizeof...(Axes) > 0, "gspmd: shard_weight_update: name the axes over which the same is updated, \"data\" say");
  return detail::updating_by_parts<F, Axes...>{step};
}
/// The same for a dynamic::builder. Call it after the outputs are set.
///
/// **Example.**
///
///     shard_weight_update(b, {"data"});
template <class Builder>
  requires requires(Builder& b) { b.graph(); }
void shard_weight_update(Builder& builder, const std::vector<std::string>& axes) {
  const std::vector<std::string_view> names(axes.begin(), axes.end());
  if (detail::graph& g = builder.graph(); !g.failed()) detail::ask_weight_updates(g, names.data(), names.size(), g.outputs);
}

/// Returns the same inputs, and makes shard_weight_update leave their updates whole, with the moments that the updates
/// read.
///
/// **Errors.** Compile error, or gspmd::error at run time: a value that is not an input of the program.
template <class Tree>
constexpr Tree keep_update_whole(Tree inputs, location at = location::current()) {
  detail::for_each_leaf(inputs, [at](value& v) {
    if (!v.is_valid()) return;
    detail::graph& g = *v.graph();
    if (detail::input_number(g, v.id()) < 0)
      g.fail(at, "keep_update_whole", detail::mistake::other,
             "this is no input of the program; give the weight or the moment that is one");
    else detail::keep_whole_update(g.nodes[static_cast<std::size_t>(v.id())]);
  });
  return inputs;
}

/// Returns the decision for each weight of a step and its reason, one line for each weight (here broken). For a builder
/// it describes the program as it would be compiled.
///
/// **Example.**
///
///     input 0 (w) f32[64,64]: updated as [data, _] and gathered, 2 states stay split;
///                             that saves 3.1 us of the update, and sends 0.0 us longer
template <class Step>
std::string explain_weight_updates() {
  return detail::explain_weight_updates(Step::planned_graph());
}
template <class Builder>
  requires requires(const Builder& b) { b.canonical_graph(); }
std::string explain_weight_updates(const Builder& builder) {
  return detail::explain_weight_updates(builder.canonical_graph());
}

}  // namespace gspmd
