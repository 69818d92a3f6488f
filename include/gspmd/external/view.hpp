// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/text.hpp"
#include "gspmd/error.hpp"
#include "gspmd/external/detail/found_strides.hpp"
#include "gspmd/program/tree.hpp"

namespace gspmd {
template <class T>
class strided_view;

namespace detail {

/// The edge of strided_view.
template <class T>
struct strided_edge : edge_struct, block_of_step {
  static constexpr const char* name = "strided_view";
  using view = strided_view<T>;
  static strided_elements<T> memory(const view& x) { return {x.data(), x.shape(), x.strides()}; }
};

template <class X>
inline constexpr bool is_strided_view = false;
template <class T>
inline constexpr bool is_strided_view<strided_view<T>> = true;

}  // namespace detail

/// The type of `column_major`. In this order of Fortran, the first dim is contiguous.
struct column_major_order {};
/// Selects column-major order: strided_view(p, {50, 64}, column_major).
inline constexpr column_major_order column_major{};

/// A tensor in external memory, with an extent and a stride for each dim, in elements. Nothing is copied, and the
/// memory must outlive the view.
///
/// Index `i` of dim `d` is `stride(d)` elements after index `i - 1`, in any order of storage. So a column-major matrix
/// is the same matrix as a row-major one. If several indices share an element (a stride of 0), the view can be read,
/// not written.
///
/// **Errors.** Throws gspmd::error: a negative extent or stride; a null pointer; more than 32 dims; different numbers
/// of strides and extents; more than 2^60 bytes; a layout without strides. Compile error: a type without pointer,
/// extents and strides.
/// **Example.** A container `x` can be: Eigen's matrices, maps, blocks and tensors; std::mdspan, Kokkos's
/// mdspan and View; Boost.MultiArray; a type with lists shape() and strides(); double[4][6]; a range with one dim
/// (std::vector, std::span); gspmd::array.
///
///     strided_view(p, {50, 64})                      dense, row-major
///     strided_view(p, {50, 64}, {66, 1})             rows of 64 that begin 66 apart
///     strided_view(p, {50, 64}, column_major)
///     strided_view(x)                                a container
template <class T>
class strided_view {
 public:
  using element = T;
  using edge = detail::strided_edge<T>;

  strided_view(T* data, const detail::int_list& shape) : data_(data), shape_(shape.items) {
    detail::found_strides<T> dense{data, shape_, {}};
    detail::set_dense(dense, true);
    strides_ = dense.strides;
    check();
  }
  strided_view(T* data, const detail::int_list& shape, column_major_order) : data_(data), shape_(shape.items) {
    detail::found_strides<T> dense{data, shape_, {}};
    detail::set_dense(dense, false);
    strides_ = dense.strides;
    check();
  }
  strided_view(T* data, const detail::int_list& shape, const detail::int_list& strides)
      : data_(data), shape_(shape.items), strides_(strides.items) {
    check();
  }
  template <class X>
    requires(!detail::is_strided_view<std::remove_cvref_t<X>>)
  explicit strided_view(X&& x) {
    using given = std::remove_reference_t<X>;
    static_assert(detail::lies_somewhere<given>,
                  "gspmd: strided_view: this type does not say where its elements are (extent(d) and stride(d), or shape() and "
                  "strides(), in addition to data()); give a pointer, the extents and the strides");
    if constexpr (detail::says_where_it_lies<given>) {
      const auto found = detail::find_strides(x);
      data_ = found.data;
      shape_ = found.shape;
      strides_ = found.strides;
      check();
    }
  }
  /// Makes a read-only view of the same elements.
  template <class U>
    requires(std::is_same_v<const U, T> && !std::is_same_v<U, T>)
  strided_view(const strided_view<U>& other) : data_(other.data()), shape_(other.shape()), strides_(other.strides()) {}

  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] int rank() const { return shape_.count; }
  [[nodiscard]] const detail::extents& shape() const { return shape_; }
  [[nodiscard]] const detail::extents& strides() const { return strides_; }
  [[nodiscard]] std::int64_t extent(int dim) const { return shape_[checked(dim)]; }
  [[nodiscard]] std::int64_t stride(int dim) const { return strides_[checked(dim)]; }
  [[nodiscard]] std::int64_t elems() const { return detail::elements(shape_); }

  /// Returns true if a step can use the memory directly: the elements are contiguous, and the last dim is fastest.
  /// Otherwise they are copied once, on their way in or out.
  [[nodiscard]] bool is_in_place() const { return detail::is_dense_row_major(shape_, strides_); }

  /// Returns the part of `shape` elements that begins at the indices `begin`. Throws gspmd::error if it is not inside
  /// the view.
  ///
  ///     view.part({1, 0}, {48, 64})        rows 1 to 48
  [[nodiscard]] strided_view part(const detail::int_list& begin, const detail::int_list& shape) const {
    bool fits = begin.items.count == rank() && shape.items.count == rank();
    for (int d = 0; fits && d < rank(); ++d)
      fits = begin.items[d] >= 0 && shape.items[d] >= 0 && begin.items[d] + shape.items[d] <= shape_[d];
    if (!fits)
      throw error("strided_view: a part of " + std::string(detail::shape_text(shape.items).view()) + " at " +
                  std::string(detail::shape_text(begin.items).view()) + " is not inside of " + text());
    auto* first = data_;
    for (int d = 0; d < rank(); ++d) first = shape_[d] > 0 ? first + begin.items[d] * strides_[d] : first;
    return {first, shape.items, strides_};
  }
  /// Returns the view without `widths` indices at both ends of each dim. For a block with ghost layers, this is the
  /// block.
  ///
  ///     strided_view(p, {52, 66}).interior({1, 1})        50 rows of 64
  [[nodiscard]] strided_view interior(const detail::int_list& widths) const {
    detail::extents shape;
    for (int d = 0; d < rank() && d < widths.items.count; ++d) shape.push_back(shape_[d] - 2 * widths.items[d]);
    return part(widths, shape);
  }
  /// Returns the dims in reverse order: Fortran's column-major u(nx, ny) becomes u[ny][nx], which is dense and
  /// row-major.
  [[nodiscard]] strided_view reversed() const {
    detail::extents shape, strides;
    for (int d = rank() - 1; d >= 0; --d) {
      shape.push_back(shape_[d]);
      strides.push_back(strides_[d]);
    }
    return {data_, shape, strides};
  }

  /// Returns `[50,64] with strides [66,1]: copied`, or `...: in place`.
  [[nodiscard]] std::string text() const {
    return std::string(detail::shape_text(shape_).view()) + " with strides " + std::string(detail::shape_text(strides_).view()) +
           (is_in_place() ? ": in place" : ": copied");
  }

 private:
  [[nodiscard]] int checked(int dim) const {
    if (dim >= 0 && dim < rank()) return dim;
    throw error("strided_view: dim " + std::to_string(dim) + " does not exist in " +
                std::string(detail::shape_text(shape_).view()) + "; dims count from 0");
  }
  void check() const { detail::check_strides(shape_, strides_, sizeof(T), data_ == nullptr); }

  T* data_ = nullptr;
  detail::extents shape_, strides_;
};

template <class T>
strided_view(T*, std::initializer_list<std::int64_t>) -> strided_view<T>;
template <class T, class Shape>
strided_view(T*, const Shape&) -> strided_view<T>;
template <class T>
strided_view(T*, std::initializer_list<std::int64_t>, column_major_order) -> strided_view<T>;
template <class T, class Shape>
strided_view(T*, const Shape&, column_major_order) -> strided_view<T>;
template <class T>
strided_view(T*, std::initializer_list<std::int64_t>, std::initializer_list<std::int64_t>) -> strided_view<T>;
template <class T, class Shape, class Strides>
strided_view(T*, const Shape&, const Strides&) -> strided_view<T>;
template <class X>
  requires(!detail::is_strided_view<std::remove_cvref_t<X>>)
strided_view(X&& x) -> strided_view<typename decltype(detail::element_in_memory<std::remove_reference_t<X>>())::type>;

/// Returns true if a step uses the memory of a container directly: see strided_view::is_in_place.
///
///     is_in_place(matrix)        false: it is column-major, and a step works on a copy
template <class X>
bool is_in_place(X&& x) {
  return strided_view(x).is_in_place();
}

}  // namespace gspmd
