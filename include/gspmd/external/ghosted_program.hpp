// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/dynamic/builder.hpp"
#include "gspmd/dynamic/session.hpp"
#include "gspmd/external/detail/dense_use.hpp"
#include "gspmd/external/detail/ghost_filler.hpp"
#include "gspmd/external/detail/ghosted_facts.hpp"
#include "gspmd/external/detail/ghosted_leaves.hpp"
#include "gspmd/external/detail/read_ends.hpp"
#include "gspmd/external/ghosts.hpp"

namespace gspmd {

/// The ghost layers of a shard, by dim, for programs that are planned at run time. An empty list means a dense or
/// copied shard. See `ghosts`.
///
///     {1, 1}                   a layer on all four sides
///     {layers{2, 0}, 0}        two rows before the block
struct ghost_widths {
  std::vector<layers> of;
  ghost_widths() = default;
  ghost_widths(std::initializer_list<layers> widths) : of(widths) {}
  explicit ghost_widths(std::vector<layers> widths) : of(std::move(widths)) {}
};

/// A program that is planned at run time for blocks with ghost layers in external memory, like with_ghosts for compiled
/// programs.
///
/// `widths` are the layers of the inputs, then of the outputs. A session of the program takes a ghosted_view for each
/// input and result with layers, and other shards for the remaining arguments. An input with a dim of one element may
/// be copied, if the plan moves it before it reads it. Then the program's boundary is read, and its layers are neither
/// filled nor read. So a session takes only `exchange_ghosts` views of such an input. Each device plans the program
/// when it makes one. Copies share the plan.
///
/// **Communication.** `traffic` for a call, and bytes_exchanged for `exchange_ghosts`.
/// **Errors.** Throws gspmd::error: the errors of builder.compile(); more widths than inputs and outputs; a number of
/// widths that differs from the dims; a negative width; an input that is read beyond its layers, or not by loops; a
/// checked mesh.
/// **Threads.** It does not change, so any number of threads can use it.
/// **Example.**
///
///     const auto heat = dynamic::build(diffuse, m, dynamic::input<double>({n, 64}, {"y", ""}));
///     const ghosted_program program(heat, {{1, 1}, {1, 1}});
///     dynamic::session s(program);                             // one for each device
///     s(comm, exchange_ghosts(strided_view(u, {rows + 2, 66})), ghosted_view(strided_view(next, {rows + 2, 66})));
class ghosted_program {
 public:
  ghosted_program(const dynamic::builder& written, const std::vector<ghost_widths>& widths)
      : held_(std::make_shared<const held>(written, widths)) {}

  [[nodiscard]] const dynamic::program& program() const { return held_->program; }
  /// Returns the traffic of a device in a call, without the traffic of `exchange_ghosts`.
  [[nodiscard]] gspmd::traffic traffic() const { return program().traffic(); }
  /// Returns true if input or output `k` (inputs first) is used in place.
  [[nodiscard]] bool is_in_place(std::size_t k) const { return facts().is_in_place(k); }
  /// Returns the bytes that a device sends to fill the layers of input `k`; 0 if the input is copied. Throws
  /// gspmd::error if it has no layers.
  [[nodiscard]] std::int64_t bytes_exchanged(std::size_t k, int device) const {
    if (k >= facts().input_count() || !facts().is_listed(k))
      throw error("ghosted_program: leaf " + std::to_string(k) + " is no input with ghost layers");
    if (!is_in_place(k)) return 0;
    return detail::ghost_filler::exchange_of(facts(), k).bytes_sent(device, facts().elem_bytes(k));
  }
  [[nodiscard]] const detail::ghosted_facts& facts() const { return held_->facts; }
  /// Returns the facts, and keeps the program alive with them. For dynamic::session.
  [[nodiscard]] std::shared_ptr<const detail::ghosted_facts> shared_facts() const { return {held_, &held_->facts}; }

 private:
  /// The layers, which the program keeps alive because its mesh points at them.
  struct kept {
    std::shared_ptr<const detail::kept_functions> functions;
    std::vector<detail::given_layers> layers;
  };
  struct held {
    std::vector<detail::given_layers> listed;
    std::vector<detail::input_ends> ends;
    std::vector<detail::fillable> can_fill;
    std::shared_ptr<kept> in_place;
    dynamic::program program;
    detail::ghosted_facts facts;

    held(const dynamic::builder& written, const std::vector<ghost_widths>& widths)
        : held(written, written.canonical_graph(), layers_of(widths)) {}
    held(const dynamic::builder& written, const detail::graph& g, std::vector<detail::given_layers> layers)
        : listed(std::move(layers)),
          ends(g.inputs.size()),
          in_place(std::make_shared<kept>(kept{written.functions(), listed})),
          program(planned(written.mesh(), g, in_place)) {
      detail::find_read_ends(g, ends.data(), ends.size());
      for (std::size_t k = 0; k < ends.size(); ++k) can_fill.push_back(detail::fillable_input(program.view(), ends[k], k));
      facts = {&program.view(),
               {listed.data(), listed.size()},
               {in_place->layers.data(), in_place->layers.size()},
               {ends.data(), ends.size()},
               {can_fill.data(), can_fill.size()}};
    }
    held(const held&) = delete;
    held& operator=(const held&) = delete;
  };
  static std::vector<detail::given_layers> layers_of(const std::vector<ghost_widths>& widths) {
    std::vector<detail::given_layers> all;
    for (const auto& w : widths) {
      auto& given = all.emplace_back();
      given.is_given = !w.of.empty();
      if (w.of.size() > static_cast<std::size_t>(detail::max_rank)) throw error("ghosted_program: a tensor has at most 32 dims");
      for (const auto& [low, high] : w.of) {
        if (low < 0 || high < 0)
          throw error("ghosted_program: the ghost layers of leaf " + std::to_string(all.size() - 1) + " have a negative width");
        given.low.push_back(low);
        given.high.push_back(high);
      }
    }
    return all;
  }
  static void check(const detail::plan_view& plan, const std::vector<detail::given_layers>& layers) {
    const auto inputs = plan.inputs.size(), leaves = inputs + plan.outputs.size();
    if (layers.size() > leaves)
      throw error("ghosted_program: ghost layers of " + std::to_string(layers.size()) +
                  " leaves are listed and the program has " + detail::counted(static_cast<int>(inputs), "input") + " and " +
                  detail::counted(static_cast<int>(leaves - inputs), "output"));
    for (std::size_t k = 0; k < layers.size(); ++k) {
      const auto rank = plan.value(k < inputs ? plan.inputs[k] : plan.outputs[k - inputs]).global.count;
      if (layers[k].is_given && layers[k].low.count != rank)
        throw error(detail::leaf_text(plan, k) + " has " + detail::counted(rank, "dim") + " and ghost layers of " +
                    std::to_string(layers[k].low.count) + " are listed; give a width, or layers{low, high}, for each dim");
    }
  }
  /// Returns true if the plan may move an input only because it is so short. On longer inputs the same program reads it
  /// in place.
  static bool is_short(const detail::plan_view& plan, int leaf) {
    for (const auto extent : plan.value(plan.inputs[static_cast<std::size_t>(leaf)]).global)
      if (extent == 1) return true;
    return false;
  }
  /// Returns the plan with the largest number of leaves in place. Short inputs that are moved, and results that no loop
  /// stores, are copied.
  static dynamic::program planned(const dynamic::mesh& m, const detail::graph& g, const std::shared_ptr<kept>& kept) {
    if (m.info().request.is_checked)
      throw error("ghosted_program: a checked mesh compares dense shards; compile the program for it and run that");
    auto& layers = kept->layers;
    for (;;) {
      auto asked = m.info().request;
      asked.given = {layers.data(), layers.size()};
      dynamic::program made(m.with_request(asked), g, {kept, kept->functions.get()});
      check(made.view(), layers);
      const auto wrong = detail::find_dense_use(made.view(), asked.given);
      if (wrong.leaf < 0) return made;
      if (wrong.leaf < static_cast<int>(made.input_count()) && !is_short(made.view(), wrong.leaf))
        throw error("ghosted_program: " + std::string(detail::dense_use_text(made.view(), asked.given, wrong).view()) +
                    detail::remedy_of(made.view(), asked.given, wrong));
      layers[static_cast<std::size_t>(wrong.leaf)].is_given = false;
    }
  }

  std::shared_ptr<const held> held_;
};

/// Returns the plan as text, like explain for other programs. The last lines are the bytes that `exchange_ghosts` adds
/// for each input with layers, on the device that sends most.
inline std::string explain(const ghosted_program& p) {
  std::string text = dynamic::explain(p.program());
  for (std::size_t k = 0; k < p.facts().input_count(); ++k) {
    if (!p.facts().is_listed(k)) continue;
    std::int64_t most = 0;
    for (int d = 0; d < static_cast<int>(p.program().mesh_info().shape.device_count()); ++d)
      most = std::max(most, p.bytes_exchanged(k, d));
    text += "exchange_ghosts(view) of input " + std::to_string(k) + " sends at most " + std::to_string(most) + " bytes more\n";
  }
  return text;
}

}  // namespace gspmd
