// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "gspmd/detail/edge/edge_facts.hpp"
#include "gspmd/detail/edge/strided_memory.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/kernels/fill.hpp"
#include "gspmd/detail/support/text.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// The functions of an edge whose elements have no strides.
struct edge_functions {
  void (*read)(const void* view, const extents& first, const strided_memory& to);
  void (*write)(const void* view, const extents& first, const strided_memory& from);
  bool (*has_own_elements)(const void* view);
};
template <class E>
struct functions_of_edge {
  using view = typename E::view;
  using element = edge_element<E>;
  static void read(const void* x, const extents& first, const strided_memory& to) {
    auto* const data = static_cast<element*>(const_cast<void*>(to.data));
    E::read(*static_cast<const view*>(x), first, strided_elements<element>{data, to.shape, to.strides});
  }
  static void write(const void* x, const extents& first, const strided_memory& from) {
    if constexpr (!std::is_const_v<typename view::element>) {
      auto* const data = static_cast<const element*>(from.data);
      E::write(*static_cast<const view*>(x), first, strided_elements<const element>{data, from.shape, from.strides});
    }
  }
  static bool has_own_elements(const void* x) { return E::has_own_elements(*static_cast<const view*>(x)); }
  static constexpr edge_functions all{read, write, has_own_elements};
};

/// A view of external memory without its type. A view without strides must outlive the object.
class external_block {
 public:
  external_block() = default;
  external_block(const strided_memory& memory, std::int64_t elem_bytes) : memory_(memory), elem_bytes_(elem_bytes) {}
  template <class View>
  explicit external_block(const View& view) : elem_bytes_(sizeof(typename View::element)) {
    using E = typename View::edge;
    if constexpr (complete_edge<E>) {  // else accept_views reports the missing fact
      const auto found = E::memory(view);
      if constexpr (edge_with_strides<E>) {
        memory_ = {found.data, found.shape, found.strides};
      } else {
        memory_ = {found.first, E::shape(view), {}};
        range_bytes_ = found.bytes;
        view_ = &view;
        functions_ = &functions_of_edge<E>::all;
      }
    }
  }

  [[nodiscard]] const extents& shape() const { return memory_.shape; }
  [[nodiscard]] std::int64_t elem_bytes() const { return elem_bytes_; }
  [[nodiscard]] bool has_strides() const { return functions_ == nullptr; }
  [[nodiscard]] bool is_dense() const { return has_strides() && memory_.is_dense(); }
  /// Returns the address of the first element. Requires strides.
  [[nodiscard]] void* data() const { return const_cast<void*>(memory_.data); }
  /// Returns the memory that the view may access, for overlap checks. Without strides, it is the whole range.
  [[nodiscard]] strided_memory memory() const {
    if (has_strides()) return memory_;
    return {memory_.data, {(range_bytes_ + elem_bytes_ - 1) / elem_bytes_}, {1}};
  }
  /// Returns a box of the elements. Requires strides.
  [[nodiscard]] strided_memory box(const extents& first, const extents& box_shape) const {
    return {memory_.at(first, elem_bytes_), box_shape, memory_.strides};
  }
  [[nodiscard]] bool has_own_elements() const {
    return has_strides() ? detail::has_own_elements(memory_) : functions_->has_own_elements(view_);
  }
  /// Copies `to.shape` elements, starting at index `first` of the view.
  void read(const extents& first, const strided_memory& to) const {
    if (!has_strides()) return functions_->read(view_, first, to);
    copy_strided(to.shape, elem_bytes_, memory_.at(first, elem_bytes_), memory_.strides, const_cast<void*>(to.data), to.strides);
  }
  void write(const extents& first, const strided_memory& from) const {
    if (!has_strides()) return functions_->write(view_, first, from);
    copy_strided(from.shape, elem_bytes_, from.data, from.strides, const_cast<void*>(memory_.at(first, elem_bytes_)),
                 memory_.strides);
  }
  /// Returns the shape and the strides in messages: `[50,64] with strides [66,1]`.
  [[nodiscard]] std::string text() const {
    const std::string extents_text(shape_text(shape()).view());
    return has_strides() ? extents_text + " with strides " + std::string(shape_text(memory_.strides).view()) : extents_text;
  }

 private:
  strided_memory memory_;
  std::int64_t elem_bytes_ = 1, range_bytes_ = 0;
  const void* view_ = nullptr;  // for functions_
  const edge_functions* functions_ = nullptr;
};

/// Throws gspmd::error unless a view of a whole tensor has the tensor's extents.
inline void require_whole_shape(const std::string& what, const extents& wanted, const extents& given) {
  if (given == wanted) return;
  extents turned = given;
  std::reverse(turned.begin(), turned.end());
  throw error(what + " is " + std::string(shape_text(wanted).view()) + " and the view given is " +
              std::string(shape_text(given).view()) +
              (turned == wanted ? "; its reversed() has the dims in the other order" : ""));
}

/// Fills the shard of the device at `at` from a view of the whole tensor. distribute.hpp has the overload for a dense
/// array.
inline void cut_shard(const mesh_shape& mesh, const planned_value& v, const coordinates& at, const external_block& whole,
                      void* shard) {
  for (int a = 0; a < mesh.axis_count(); ++a)
    if ((v.layout.partial & axis_bit(a)) != 0 && at[a] != 0) return fill_with_identity(v, v.layout.reduced_by, shard);
  extents begin, shape;
  for (int d = 0; d < v.global.count; ++d) {
    const auto range = dim_range(mesh, v.global, v.layout, d, at);
    begin.push_back(range.begin);
    shape.push_back(range.size());
  }
  if (elements(shape) > 0) whole.read(begin, {shard, shape, row_major_strides(v.local)});
}

}  // namespace gspmd::detail
