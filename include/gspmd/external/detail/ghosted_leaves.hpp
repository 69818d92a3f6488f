// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "gspmd/external/detail/ghost_filler.hpp"
#include "gspmd/external/detail/ghosted_memory.hpp"
#include "gspmd/external/detail/taken_shards.hpp"
#include "gspmd/external/ghosts.hpp"

namespace gspmd::detail {

/// The shards, and the blocks with ghost layers, that are passed to a step in one call:
///
///   1. begin, then add for each leaf: checks the type and the shape with the layers, and stores the position
///   2. finish: checks that no memory overlaps wrongly, then fills layers
///   3. inputs(), outputs() and strides() return the arguments for the plan's steps; put_back() copies results that are
///      not in place
class ghosted_leaves {
 public:
  void begin(const char* step, const ghosted_facts& facts, const mesh_info& mesh, int device,
             taken_shards::sharded_check check_array) {
    step_ = step;
    facts_ = &facts;
    device_ = device;
    shards_.begin(step, *facts.plan, mesh, device, check_array);
    memory_.begin(step, facts);
    strides_.assign(facts.leaf_count(), {});
    fillers_.resize(facts.input_count());
  }
  template <class Leaf>
  void add(Leaf& leaf) {
    using plain = std::remove_cv_t<Leaf>;
    const auto k = shards_.count();
    if constexpr (fills_ghost_cells<plain>) {
      require_fillable(k);
      memory_.leaves[k].fills = facts_->is_in_place(k);
      add_block<typename plain::element>(k, plain::edge::name, external_block(leaf));
    } else if constexpr (is_block_of_step<plain>) {
      require_layers_read(k);
      if (facts_->is_listed(k)) add_block<typename plain::element>(k, plain::edge::name, external_block(leaf));
      else shards_.add(leaf);
    } else {
      if (facts_->is_listed(k))
        throw error(leaf_text(*facts_->plan, k) + " has ghost layers; pass a strided_view that includes the layers");
      shards_.add(leaf);
    }
  }
  /// Ends the list of leaves. Collective if layers are filled.
  template <class Comm>
  void finish(Comm& comm) {
    shards_.finish();
    auto& leaves = memory_.leaves;
    for (std::size_t k = 0; k < leaves.size(); ++k) {
      if (facts_->is_in_place(k)) continue;
      const auto inputs = facts_->input_count();
      leaves[k].place = shards_.given(k);
      leaves[k].is_copied = (k < inputs ? shards_.inputs()[k] : shards_.outputs()[k - inputs]) != leaves[k].place.data;
    }
    memory_.check();
    for (std::size_t k = 0; k < fillers_.size(); ++k) {
      if (!leaves[k].fills) continue;
      if (!fillers_[k] || fillers_[k]->device() != device_) fillers_[k].emplace(*facts_, k, device_);
      fillers_[k]->fill(comm, leaves[k].place, facts_->elem_bytes(k));
    }
  }
  [[nodiscard]] const void* const* inputs() const { return shards_.inputs(); }
  [[nodiscard]] void* const* outputs() const { return shards_.outputs(); }
  [[nodiscard]] const extents* strides() const { return strides_.data(); }
  void put_back() const { shards_.put_back(); }
  [[nodiscard]] std::int64_t copied_bytes() const { return shards_.copied_bytes(); }

 private:
  void require_fillable(std::size_t k) const {
    if (k < facts_->can_fill.size() && facts_->is_listed(k) && (facts_->can_fill[k] == fillable::yes || !facts_->is_in_place(k)))
      return;
    const auto is = [&] { return std::string(step_) + ": the layers of input " + std::to_string(k) + " cannot be filled: "; };
    if (k >= facts_->can_fill.size() || !facts_->is_listed(k))
      throw error(std::string(step_) + ": exchange_ghosts() is for inputs with ghost layers, and leaf " + std::to_string(k) +
                  " has none");
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
  template <class T>
  void add_block(std::size_t k, const char* name, const external_block& block) {
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
    if (!facts_->is_in_place(k)) return shards_.template add_block<T>(external_block(inner, block.elem_bytes()));
    const int last = shape.count - 1;
    if (last >= 0 && memory.strides[last] != 1 && memory.shape[last] > 1)
      throw error(leaf_text(*facts_->plan, k) + " has ghost layers, and the last dim of the view is not dense: " + block.text() +
                  "; turn it around with reversed(), and the program's dims with it");
    const bool is_input = k < facts_->input_count();
    if ((!is_input || memory_.leaves[k].fills) && !block.has_own_elements())
      throw error(leaf_text(*facts_->plan, k) +
                  " is written, and several indices of the view given have the same element: " + block.text());
    shards_.template add_in_place<T>(static_cast<T*>(const_cast<void*>(inner.data)));
    strides_[k] = memory.strides;
    memory_.leaves[k].place = is_input ? memory : inner;
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
    throw error(leaf_text(*facts_->plan, k) + " with its ghost layers is " + std::string(shape_text(wanted).view()) +
                " on device " + std::to_string(device_) + ", and the view given is " + std::string(shape_text(given).view()) +
                (k < facts_->input_count() ? "" : "; a reshard at the end of the program says how a result is split") +
                "; pass parts with another distribution to a placed_step or placed_session");
  }

  const char* step_ = "";
  const ghosted_facts* facts_ = nullptr;
  int device_ = -1;
  taken_shards shards_;
  ghosted_memory memory_;
  std::vector<extents> strides_;  // of leaves in place; empty for other leaves
  std::vector<std::optional<ghost_filler>> fillers_;
};

}  // namespace gspmd::detail
