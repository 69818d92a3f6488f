// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "gspmd/external/detail/ghost_filler.hpp"
#include "gspmd/external/detail/ghosted_memory.hpp"
#include "gspmd/external/detail/given_rows.hpp"
#include "gspmd/external/ghosts.hpp"
#include "gspmd/external/placed_view.hpp"

namespace gspmd::detail {

/// The views in a call of a step that is planned for ghost layers:
///
///   1. begin, then take for each view: checks the type and the shape with the layers, and stores the position
///   2. check_results: checks that no memory overlaps wrongly, then fills layers
///   3. strides() are the strides of the leaves in place; put_back() copies results that are not in place
class ghosted_leaves : public placed_leaves {
 public:
  ghosted_leaves() { has_ghosts = true; }
  void begin(const ghosted_facts& facts, int device) {
    placed_leaves::begin(*facts.plan, device);
    facts_ = &facts;
    device_ = device;
    memory_.begin(facts);
    strides_.assign(facts.leaf_count(), {});
    fillers_.resize(facts.input_count());
  }
  template <class Comm, class View>
  typename View::element* take(Comm& comm, std::size_t k, const View& view) {
    if constexpr (has_ghost_cells<View>) {
      if constexpr (fills_ghost_cells<View>) {
        require_fillable(k);
        memory_.leaves[k].fills = facts_->is_in_place(k);
      } else {
        require_layers_read(k);
      }
      const external_block block(view);
      return static_cast<typename View::element*>(facts_->is_listed(k) ? take_ghosted(k, View::edge::name, block)
                                                                       : take_block(k, block));
    } else {
      require_no_layers(k);
      if constexpr (is_block_of_step<View>)
        if (facts_->is_listed(k))
          return static_cast<typename View::element*>(take_ghosted(k, View::edge::name, external_block(view)));
      return placed_leaves::take(comm, k, view);
    }
  }
  /// Collective if layers are filled.
  template <class Comm>
  void check_results(Comm& comm, const given_memory& given) {
    for (std::size_t k = 0; k < is_view_.size(); ++k)
      if (!is_view_[k] && facts_->is_listed(k))
        throw error(leaf_text(*facts_->plan, k) + " has ghost layers or strides; pass a ghosted_view or a strided_view");
    placed_leaves::check_results(*facts_->plan, given);
    auto& leaves = memory_.leaves;
    for (std::size_t k = 0; k < leaves.size(); ++k) {
      if (facts_->is_in_place(k)) continue;
      const auto inputs = facts_->input_count();
      leaves[k].place = memory_of(k);
      leaves[k].is_copied = (k < inputs ? given.inputs[k] : given.outputs[k - inputs]) != leaves[k].place.data;
    }
    memory_.check();
    for (std::size_t k = 0; k < fillers_.size(); ++k) {
      if (!leaves[k].fills) continue;
      if (!fillers_[k] || fillers_[k]->device() != device_) fillers_[k].emplace(*facts_, k, device_);
      fillers_[k]->fill(comm, leaves[k].place, facts_->elem_bytes(k));
    }
  }
  [[nodiscard]] const extents* strides() const { return strides_.data(); }

 private:
  void require_fillable(std::size_t k) const {
    if (k < facts_->can_fill.size() && facts_->is_listed(k) && (facts_->can_fill[k] == fillable::yes || !facts_->is_in_place(k)))
      return;
    const auto is = [&] { return leaf_text(*facts_->plan, k) + ": its ghost layers cannot be filled: "; };
    if (k >= facts_->can_fill.size() || !facts_->is_listed(k))
      throw error(leaf_text(*facts_->plan, k) +
                  " is given as exchange_ghosts(view), which is for inputs with ghost layers; pass " +
                  (facts_->is_listed(k) ? "a ghosted_view" : "the view itself"));
    if (facts_->can_fill[k] == fillable::ends_differ)
      throw error(is() +
                  "operators of the program go on differently beyond one end of a dim, so that no layer can hold what all "
                  "read there; fill the layers yourself, or use one boundary");
    throw error(
        is() +
        "an operator between the input and its shift hides the elements that are read beyond the ends of the tensor; fill "
        "the layers yourself, or shift the input itself");
  }
  /// A copied input is read with the program's boundary and not with the caller's layers. So its layers must be filled,
  /// not read.
  void require_layers_read(std::size_t k) const {
    if (k >= facts_->input_count() || !facts_->is_listed(k) || facts_->is_in_place(k)) return;
    throw error(leaf_text(*facts_->plan, k) +
                " has a dim of one element and is moved before it is read, so that nothing reads its ghost layers; give "
                "exchange_ghosts(view), so that the program reads its boundary, or list no layers for it");
  }
  /// Reports a leaf with layers whose argument has none.
  void require_no_layers(std::size_t k) const {
    if (!facts_->is_listed(k)) return;
    const auto& [is_given, low, high] = facts_->listed[k];
    for (int d = 0; d < low.count; ++d)
      if (low[d] > 0 || high[d] > 0)
        throw error(leaf_text(*facts_->plan, k) +
                    " has ghost layers; pass a ghosted_view, with the layers, or exchange_ghosts(view)");
  }
  void* take_ghosted(std::size_t k, const char* name, const external_block& block) {
    const auto& around = facts_->listed[k];
    if (!block.has_strides())
      throw error(leaf_text(*facts_->plan, k) + " has ghost layers, and the elements of a " + name +
                  " have no strides; give a strided_view of it with its layers, or list no layers for it");
    const auto memory = block.memory();
    check_shape(k, memory.shape);
    extents shape = memory.shape;
    for (int d = 0; d < shape.count; ++d) shape[d] -= around.low[d] + around.high[d];
    const strided_memory inner{elements(shape) > 0 ? memory.at(around.low, block.elem_bytes()) : memory.data, shape,
                               memory.strides};
    if (!facts_->is_in_place(k)) return take_block(k, external_block(inner, block.elem_bytes()));
    const int last = shape.count - 1;
    if (last >= 0 && memory.strides[last] != 1 && memory.shape[last] > 1)
      throw error(leaf_text(*facts_->plan, k) + " has ghost layers, and the last dim of the view is not dense: " + block.text() +
                  "; turn it around with reversed(), and the program's dims with it");
    const bool is_input = k < facts_->input_count();
    if ((!is_input || memory_.leaves[k].fills) && !block.has_own_elements())
      throw error(leaf_text(*facts_->plan, k) +
                  " is written, and several indices of the view given have the same element: " + block.text());
    is_view_[k] = true;
    strides_[k] = memory.strides;
    memory_.leaves[k].place = is_input ? memory : inner;
    return const_cast<void*>(inner.data);
  }
  void check_shape(std::size_t k, const extents& given) const {
    const auto& v = facts_->value(k);
    const auto& mesh = *facts_->plan->mesh;
    const auto& around = facts_->listed[k];
    const auto at = mesh.coordinates_of(device_);
    extents wanted;
    bool is_none = elements(v.global) == 0 && given.count == v.global.count;  // then its sharding does not determine the shape
    for (int d = 0; d < v.global.count; ++d) {
      wanted.push_back(dim_range(mesh, v.global, v.layout, d, at).size() + around.low[d] + around.high[d]);
      is_none = is_none && given[d] >= around.low[d] + around.high[d] &&
                (v.global[d] > 0 || given[d] == around.low[d] + around.high[d]);
    }
    if (given == wanted || is_none) return;
    throw error(
        leaf_text(*facts_->plan, k) + " with its ghost layers is " + std::string(shape_text(wanted).view()) + " on device " +
        std::to_string(device_) + ", and the view given is " + std::string(shape_text(given).view()) +
        (k < facts_->input_count() ? "" : "; a reshard at the end of the program says how a result is split") +
        "; the extents of a view include its layers. Pass parts with another distribution as a placed_view, and list no layers "
        "for them");
  }

  const ghosted_facts* facts_ = nullptr;
  int device_ = -1;
  ghosted_memory memory_;
  std::vector<extents> strides_;  // of leaves in place; empty for other leaves
  std::vector<std::optional<ghost_filler>> fillers_;
};

/// Reports at compile time that the layers of input `K` cannot be filled.
template <class Program, std::size_t K>
consteval bool accept_fill() {
  constexpr auto& facts = Program::ghosts;
  static_assert(K < facts.input_count() && facts.is_listed(K), "gspmd: step: exchange_ghosts() is for inputs with ghosts<>");
  if constexpr (K < facts.input_count() && facts.is_listed(K)) {
    static_assert(facts.can_fill[K] != fillable::ends_differ,
                  "gspmd: step: operators of the program go on differently beyond one end of a dim, so that no layer can hold "
                  "what all read there; fill the layers yourself, or use one boundary");
    static_assert(facts.can_fill[K] != fillable::not_known,
                  "gspmd: step: an operator between the input and its shift hides the elements that are read beyond the ends of "
                  "the tensor; fill the layers yourself, or shift the input itself");
  }
  return true;
}

template <class Comm>
struct call_with_ghosts {
  /// See call_with_views.
  template <class Program, class PutAll, class Start, class... Shards>
  static void run(Comm& comm, const plan_view& plan, const ghosted_facts* facts, bound_devices& bound, given_memory& given,
                  PutAll put_all, Start start, const Shards&... shards) {
    if (facts == nullptr)
      throw error("session: a view has ghost cells, and the program is not planned for them; plan a ghosted_program");
    require_devices(comm, static_cast<int>(plan.mesh->device_count()));
    if (given.views == nullptr || !given.views->has_ghosts) given.views = std::make_unique<ghosted_leaves>();
    auto& leaves = static_cast<ghosted_leaves&>(*given.views);
    leaves.begin(*facts, comm.device(0));
    put_all([&]<class K, class View>(K k, const View& view) {
      if constexpr (!std::is_void_v<Program> && fills_ghost_cells<View>) static_assert(accept_fill<Program, K::value>());
      return leaves.take(comm, k, view);
    });
    leaves.check_results(comm, given);
    bound.bind(comm, plan);
    auto& device = bound.devices[0];
    device.inputs = given.inputs.data();
    device.outputs = given.outputs.data();
    const given_rows rows{leaves.strides(), &placed_later, place_given_rows};
    device.given = &rows;
    start();
    leaves.put_back(comm, shards...);
  }
};

}  // namespace gspmd::detail
