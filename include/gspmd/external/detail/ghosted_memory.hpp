// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gspmd/detail/ir/can_alias.hpp"
#include "gspmd/extend/edge.hpp"
#include "gspmd/external/detail/ghosted_facts.hpp"

namespace gspmd::detail {

/// The memory of the leaves of a call, with its checks. Memory that passed the checks in the last call is not
/// checked again.
class ghosted_memory {
 public:
  struct leaf {
    strided_memory place;
    bool fills = false;      // the step fills the layers around the input
    bool is_copied = false;  // copied before the step, or after it
    friend bool operator==(const leaf&, const leaf&) = default;
  };
  std::vector<leaf> leaves;

  /// Starts a call.
  void begin(const ghosted_facts& facts) {
    facts_ = &facts;
    leaves.assign(facts.leaf_count(), {});
  }
  /// Throws gspmd::error if a leaf has no memory, or if a result overlaps another result or an input that is read in
  /// place. Also if filled layers of an input overlap another input.
  void check() {
    for (std::size_t k = 0; k < leaves.size(); ++k)
      if (leaves[k].place.data == nullptr && elements(leaves[k].place.shape) > 0) throw_no_memory(*facts_->plan, k);
    if (leaves == checked_) return;
    const auto inputs = facts_->input_count();
    for (std::size_t a = inputs; a < leaves.size(); ++a)
      for (std::size_t b = 0; b < a; ++b)
        if (overlap(a, b))
          throw error(leaf_text(*facts_->plan, a) + " is given memory that overlaps " +
                      (b < inputs ? "input " + std::to_string(b) : "output " + std::to_string(b - inputs)) +
                      ", or whose strides differ so that gspmd cannot exclude an overlap; a result needs memory of its own");
    for (std::size_t k = 0; k < inputs; ++k)
      for (std::size_t j = 0; j < inputs && leaves[k].fills; ++j)
        if (j != k && !leaves[j].is_copied && !is_filled_alike(k, j) && layers_meet(k, j))
          throw error("step: inputs " + std::to_string(k < j ? k : j) + " and " + std::to_string(k < j ? j : k) +
                      " are given blocks that overlap, and their layers are filled differently; give each memory of its own");
    checked_ = leaves;
  }

 private:
  /// Returns true if result `a` must not share memory with leaf `b`. (The step has already checked copied results
  /// against each other.)
  [[nodiscard]] bool overlap(std::size_t a, std::size_t b) const {
    const bool is_input = b < facts_->input_count(), any_copied = leaves[a].is_copied || leaves[b].is_copied;
    const bool a_in_place = facts_->is_in_place(a), b_in_place = facts_->is_in_place(b);
    const auto &x = leaves[a].place, &y = leaves[b].place;
    const auto bytes = facts_->elem_bytes(a), others = facts_->elem_bytes(b);
    if (any_copied && (is_input || !(a_in_place || b_in_place))) return false;
    if (a_in_place && b_in_place) return shared_elements::any(x, bytes, y, others);
    if (!shared_elements::in_one_range(x, bytes, y, others)) return false;
    const bool is_same = x.data == y.data && elements(x.shape) * bytes == elements(y.shape) * others;
    return !is_input || a_in_place || b_in_place || !is_same || !can_alias(*facts_->plan, a - facts_->input_count(), b);
  }
  /// Returns true if two inputs are the same block, so that filling the layers of the first also fills those of the
  /// second.
  [[nodiscard]] bool is_filled_alike(std::size_t k, std::size_t j) const {
    return facts_->is_in_place(j) && leaves[k].place == leaves[j].place && facts_->in_place[k].low == facts_->in_place[j].low &&
           facts_->ends[k] == facts_->ends[j];
  }
  /// Returns true if the layers around input `k` share elements with input `j`.
  [[nodiscard]] bool layers_meet(std::size_t k, std::size_t j) const {
    const auto& [is_given, low, high] = facts_->in_place[k];
    const auto bytes = facts_->elem_bytes(k);
    const auto& block = leaves[k].place;
    extents held = block.shape;
    for (int d = 0; d < held.count; ++d) held[d] -= low[d] + high[d];
    if (elements(held) == 0) return false;  // a device without elements: its layers are not filled
    for (int d = 0; d < block.shape.count; ++d)
      for (const bool is_high : {false, true}) {
        strided_memory side = block;
        side.shape[d] = is_high ? high[d] : low[d];
        auto first = extents(side.shape.count, 0);
        if (is_high) first[d] = block.shape[d] - side.shape[d];
        side.data = side.at(first, bytes);
        if (shared_elements::any(side, bytes, leaves[j].place, facts_->elem_bytes(j))) return true;
      }
    return false;
  }

  const ghosted_facts* facts_ = nullptr;
  std::vector<leaf> checked_;
};

}  // namespace gspmd::detail
