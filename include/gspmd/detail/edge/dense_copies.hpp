// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gspmd/detail/edge/external_block.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/run/step_checks.hpp"
#include "gspmd/detail/transport/device_memory.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// Throws gspmd::error unless a view of a leaf has the shape of every shard. Each extent may also be the extent without
/// padding on this device.
inline void require_shard_shape(const plan_view& plan, std::size_t leaf, int device, const extents& given) {
  const auto inputs = plan.inputs.size();
  const auto& v = plan.value(leaf < inputs ? plan.inputs[leaf] : plan.outputs[leaf - inputs]);
  const auto at = plan.mesh->coordinates_of(device);
  extents held;
  for (int d = 0; d < v.global.count; ++d) held.push_back(dim_range(*plan.mesh, v.global, v.layout, d, at).size());
  const auto fits = [&](const extents& shape) {
    for (int d = 0; d < held.count; ++d)
      if (shape[d] != v.local[d] && shape[d] != held[d]) return false;
    return shape.count == held.count;
  };
  if (fits(given)) return;
  extents turned = given;
  std::reverse(turned.begin(), turned.end());
  throw error(leaf_text(plan, leaf) + " is " + std::string(shape_text(v.local).view()) + " on every device" +
              (held == v.local ? "" : "; device " + std::to_string(device) + " has " + std::string(shape_text(held).view())) +
              ", and the view given is " + std::string(shape_text(given).view()) +
              (fits(turned) ? "; its reversed() has the dims in the other order" : ""));
}

/// The dense copies of the views that are passed to a step on one device. The copies are kept for the next call.
class dense_copies {
 public:
  dense_copies() = default;
  dense_copies(dense_copies&&) = default;
  dense_copies& operator=(dense_copies&&) = default;

  /// Starts a call on this device.
  void begin(const plan_view& plan, int device) {
    plan_ = &plan;
    device_ = device;
    const auto leaves = plan.inputs.size() + plan.outputs.size();
    if (leaves_.size() != leaves) leaves_ = std::vector<leaf>(leaves);
    for (auto& l : leaves_) l.is_given = l.is_copied = false;
    copied_bytes_ = 0;
  }
  /// Returns the memory of a leaf for the step: the user's memory, or a copy. Throws gspmd::error if the shape is not
  /// that of the shard, or if several indices of a result share an element.
  void* take(std::size_t k, const external_block& given) {
    require_shard_shape(*plan_, k, device_, given.shape());
    const bool is_result = k >= plan_->inputs.size();
    if (is_result && !given.has_own_elements())
      throw error(leaf_text(*plan_, k) +
                  " is written, and several indices of the view given have the same element: " + given.text());
    const auto& v = value(k);
    auto& l = leaves_[k];
    l.is_given = true;
    l.given = given;
    if (given.shape() == v.local && given.is_dense()) return given.data();
    l.is_copied = true;
    copied_bytes_ += elements(given.shape()) * bytes_of(v.type);
    if (l.copy.get() == nullptr || l.bytes != elements(v.local) * bytes_of(v.type)) {
      l.bytes = elements(v.local) * bytes_of(v.type);
      l.copy = aligned_bytes(l.bytes, "the dense copy of a shard");
    }
    if (!is_result) given.read(extents(given.shape().count, 0), copy_of(k));
    return l.copy.get();
  }
  /// Records a leaf that is passed as dense memory.
  void note(std::size_t k, const void* data) {
    leaves_[k].is_given = data != nullptr;
    leaves_[k].given = external_block(dense_memory(data, value(k).local), bytes_of(value(k).type));
  }
  [[nodiscard]] strided_memory given(std::size_t k) const { return leaves_[k].given.memory(); }
  /// Throws gspmd::error if a result that is copied back overlaps another result. (The step checks results in place.)
  void check_results() const {
    const auto inputs = plan_->inputs.size();
    for (std::size_t a = inputs; a < leaves_.size(); ++a)
      for (std::size_t b = inputs; b < a; ++b) {
        const auto &x = leaves_[a], &y = leaves_[b];
        if (!x.is_given || !y.is_given || (!x.is_copied && !y.is_copied)) continue;
        if (shared_elements::any(given(a), bytes_of(value(a).type), given(b), bytes_of(value(b).type)))
          throw error("step: outputs " + std::to_string(b - inputs) + " and " + std::to_string(a - inputs) +
                      " are given memory that overlaps, or that may overlap because its strides differ; every output needs "
                      "memory of its own");
      }
  }
  /// Copies the results back to the user's memory, after the step.
  void put_back() const {
    for (std::size_t k = plan_->inputs.size(); k < leaves_.size(); ++k)
      if (const auto& l = leaves_[k]; l.is_copied) l.given.write(extents(l.given.shape().count, 0), copy_of(k));
  }
  /// Returns the bytes that the last call copied in and out.
  [[nodiscard]] std::int64_t copied_bytes() const { return copied_bytes_; }

 private:
  struct leaf {
    bool is_given = false, is_copied = false;
    external_block given;
    std::int64_t bytes = 0;
    aligned_bytes copy;
  };
  [[nodiscard]] const planned_value& value(std::size_t k) const {
    const auto inputs = plan_->inputs.size();
    return plan_->value(k < inputs ? plan_->inputs[k] : plan_->outputs[k - inputs]);
  }

  /// Returns the elements of a view in its dense copy.
  [[nodiscard]] strided_memory copy_of(std::size_t k) const {
    return {leaves_[k].copy.get(), leaves_[k].given.shape(), row_major_strides(value(k).local)};
  }

  const plan_view* plan_ = nullptr;
  int device_ = 0;
  std::int64_t copied_bytes_ = 0;
  std::vector<leaf> leaves_;
};

}  // namespace gspmd::detail
