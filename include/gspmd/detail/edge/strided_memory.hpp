// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gspmd/detail/edge/strided_copy.hpp"

/// External strided memory, of any element type.
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

}  // namespace gspmd::detail
