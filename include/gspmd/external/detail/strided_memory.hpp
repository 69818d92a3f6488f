// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/kernels/fill.hpp"
#include "gspmd/detail/run/step_checks.hpp"
#include "gspmd/detail/transport/device_memory.hpp"
#include "gspmd/error.hpp"
#include "gspmd/external/detail/strided_copy.hpp"

/// User-provided strided memory, of any element type.
namespace gspmd::detail {

struct strided_memory {
  const void* data = nullptr;
  extents shape, strides;  // in elements

  [[nodiscard]] bool is_dense() const { return is_dense_row_major(shape, strides); }
  [[nodiscard]] const void* at(const extents& index, std::int64_t elem_bytes) const {
    std::int64_t offset = 0;
    for (int d = 0; d < shape.count; ++d) offset += index[d] * strides[d];
    return static_cast<const std::byte*>(data) + offset * elem_bytes;
  }
  friend bool operator==(const strided_memory&, const strided_memory&) = default;
};

inline strided_memory dense_memory(const void* data, const extents& shape) { return {data, shape, row_major_strides(shape)}; }

/// Returns true if each index has its own element: each stride is larger than the reach of all smaller strides
/// together. Example: [3,2] with strides [2,1] returns true, and with strides [1,1] false.
inline bool has_own_elements(const strided_memory& m) {
  if (elements(m.shape) == 0) return true;
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride, extent
  for (int d = 0; d < m.shape.count; ++d)
    if (m.shape[d] > 1) dims.emplace_back(m.strides[d], m.shape[d]);
  std::sort(dims.begin(), dims.end());
  std::int64_t reach = 0;
  for (const auto& [stride, extent] : dims) {
    if (stride <= reach) return false;
    reach += stride * (extent - 1);
  }
  return true;
}

/// Finds out if two blocks of memory may share an element. The answer is exact if both have the same strides and each
/// index has its own element. Example: the even columns and the odd columns of a matrix share no element.
class shared_elements {
 public:
  static bool any(const strided_memory& a, std::int64_t elem_bytes, const strided_memory& b, std::int64_t b_elem_bytes) {
    if (!in_one_range(a, elem_bytes, b, b_elem_bytes)) return false;
    const auto apart = bytes_between(a, b);
    if (elem_bytes != b_elem_bytes || a.shape.count != b.shape.count || apart % elem_bytes != 0) return true;
    shared_elements looked;
    for (int d = 0; d < a.shape.count; ++d) {
      if (a.shape[d] == 1 && b.shape[d] == 1) continue;
      if (a.strides[d] != b.strides[d] || a.strides[d] == 0) return true;
      looked.dims_.push_back({a.strides[d], a.shape[d], b.shape[d]});
    }
    std::sort(looked.dims_.begin(), looked.dims_.end(), [](const auto& x, const auto& y) { return x.stride > y.stride; });
    return looked.meet(0, apart / elem_bytes);
  }

  /// Returns true if the byte ranges of the two blocks overlap, from the first to the last element of each.
  static bool in_one_range(const strided_memory& a, std::int64_t elem_bytes, const strided_memory& b, std::int64_t b_elem_bytes) {
    if (elements(a.shape) == 0 || elements(b.shape) == 0) return false;
    const auto apart = bytes_between(a, b);
    return apart < span(a, elem_bytes) && -apart < span(b, b_elem_bytes);
  }

 private:
  struct dim {
    std::int64_t stride, a, b;
  };
  static std::int64_t bytes_between(const strided_memory& a, const strided_memory& b) {
    return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(b.data) - reinterpret_cast<std::uintptr_t>(a.data));
  }
  static std::int64_t span(const strided_memory& m, std::int64_t elem_bytes) {
    std::int64_t last = 0;
    for (int d = 0; d < m.shape.count; ++d) last += (m.shape[d] - 1) * m.strides[d];
    return (last + 1) * elem_bytes;
  }
  /// Returns true if indices i of a and k of b exist with sum((i - k) * stride) == apart, over the dims from d on.
  [[nodiscard]] bool meet(std::size_t d, std::int64_t apart) const {
    if (d == dims_.size()) return apart == 0;
    const auto& [stride, a, b] = dims_[d];
    const auto q = apart >= 0 ? apart / stride : -((-apart + stride - 1) / stride);
    for (const auto n : {q, q + 1})
      if (n > -b && n < a && meet(d + 1, apart - n * stride)) return true;
    return false;
  }
  std::vector<dim> dims_;
};

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
  throw error(
      leaf_text(plan, leaf) + " is " + std::string(shape_text(v.local).view()) + " on every device" +
      (held == v.local ? "" : ", and device " + std::to_string(device) + " holds " + std::string(shape_text(held).view())) +
      ", and the view given is " + std::string(shape_text(given).view()) +
      (fits(turned) ? "; reversed() of it has the dims in the other order" : ""));
}

/// The same for a whole tensor.
inline void require_whole_shape(const std::string& what, const extents& wanted, const extents& given) {
  if (given == wanted) return;
  extents turned = given;
  std::reverse(turned.begin(), turned.end());
  throw error(what + " is " + std::string(shape_text(wanted).view()) + " and the view given is " +
              std::string(shape_text(given).view()) +
              (turned == wanted ? "; reversed() of it has the dims in the other order" : ""));
}

/// Fills the shard of the device at `at` from a strided whole array. The overload in scatter.hpp takes a dense array.
inline void cut_shard(const mesh_shape& mesh, const planned_value& v, const coordinates& at, const strided_memory& whole,
                      void* shard) {
  const auto bytes = bytes_of(v.type);
  for (int a = 0; a < mesh.axis_count(); ++a)
    if ((v.layout.partial & axis_bit(a)) != 0 && at[a] != 0) return fill_with_identity(v, v.layout.reduced_by, shard);
  extents begin, shape;
  for (int d = 0; d < v.global.count; ++d) {
    const auto range = dim_range(mesh, v.global, v.layout, d, at);
    begin.push_back(range.begin);
    shape.push_back(range.size());
  }
  if (elements(shape) > 0) copy_strided(shape, bytes, whole.at(begin, bytes), whole.strides, shard, row_major_strides(v.local));
}

/// The dense copies of the strided memory that is passed to a step on one device. The copies are kept for the next
/// call.
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
  void* take(std::size_t k, const strided_memory& given) {
    require_shard_shape(*plan_, k, device_, given.shape);
    const bool is_result = k >= plan_->inputs.size();
    if (is_result && !has_own_elements(given))
      throw error(leaf_text(*plan_, k) + " is written, and several indices of the view given have the same element: " +
                  std::string(shape_text(given.shape).view()) + " with strides " + std::string(shape_text(given.strides).view()));
    const auto& v = value(k);
    auto& l = leaves_[k];
    l.is_given = true;
    l.given = given;
    if (given.shape == v.local && given.is_dense()) return const_cast<void*>(given.data);
    l.is_copied = true;
    copied_bytes_ += elements(given.shape) * bytes_of(v.type);
    if (l.copy.get() == nullptr || l.bytes != elements(v.local) * bytes_of(v.type)) {
      l.bytes = elements(v.local) * bytes_of(v.type);
      l.copy = aligned_bytes(l.bytes, "the dense copy of a shard");
    }
    if (!is_result)
      copy_strided(given.shape, bytes_of(v.type), given.data, given.strides, l.copy.get(), row_major_strides(v.local));
    return l.copy.get();
  }
  /// Records a leaf that is passed as dense memory.
  void note(std::size_t k, const void* data) {
    leaves_[k].is_given = data != nullptr;
    leaves_[k].given = dense_memory(data, value(k).local);
  }
  [[nodiscard]] const strided_memory& given(std::size_t k) const { return leaves_[k].given; }
  /// Throws gspmd::error if a result that is copied back overlaps another result. (The step checks results in place.)
  void check_results() const {
    const auto inputs = plan_->inputs.size();
    for (std::size_t a = inputs; a < leaves_.size(); ++a)
      for (std::size_t b = inputs; b < a; ++b) {
        const auto &x = leaves_[a], &y = leaves_[b];
        if (!x.is_given || !y.is_given || (!x.is_copied && !y.is_copied)) continue;
        if (shared_elements::any(x.given, bytes_of(value(a).type), y.given, bytes_of(value(b).type)))
          throw error("step: outputs " + std::to_string(b - inputs) + " and " + std::to_string(a - inputs) +
                      " are given memory that overlaps, or whose strides differ so that gspmd cannot exclude an overlap; every "
                      "output needs memory of its own");
      }
  }
  /// Copies the results back to the user's memory, after the step.
  void put_back() const {
    for (std::size_t k = plan_->inputs.size(); k < leaves_.size(); ++k)
      if (const auto& l = leaves_[k]; l.is_copied)
        copy_strided(l.given.shape, bytes_of(value(k).type), l.copy.get(), row_major_strides(value(k).local),
                     const_cast<void*>(l.given.data), l.given.strides);
  }
  /// Returns the bytes that the last call copied in and out.
  [[nodiscard]] std::int64_t copied_bytes() const { return copied_bytes_; }

 private:
  struct leaf {
    bool is_given = false, is_copied = false;
    strided_memory given;
    std::int64_t bytes = 0;
    aligned_bytes copy;
  };
  [[nodiscard]] const planned_value& value(std::size_t k) const {
    const auto inputs = plan_->inputs.size();
    return plan_->value(k < inputs ? plan_->inputs[k] : plan_->outputs[k - inputs]);
  }

  const plan_view* plan_ = nullptr;
  int device_ = 0;
  std::int64_t copied_bytes_ = 0;
  std::vector<leaf> leaves_;
};

}  // namespace gspmd::detail
