// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#if __has_include(<mdspan>)
#include <mdspan>
#endif

/// Views with the interfaces of other libraries, reduced to the functions that gspmd uses.
namespace views {

/// std::mdspan with `Rank` dynamic dims. `Strided` selects whether the layout has strides.
template <class T, std::size_t Rank, class Reference = T&>
class mdspan_like {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using reference = Reference;
  using data_handle_type = T*;
  using index_type = int;

  mdspan_like(T* data, std::array<int, Rank> extents, std::array<int, Rank> strides, bool has_strides = true)
      : data_(data), extents_(extents), strides_(strides), has_strides_(has_strides) {}
  static constexpr std::size_t rank() { return Rank; }
  static constexpr std::size_t rank_dynamic() { return Rank; }
  [[nodiscard]] int extent(std::size_t r) const { return extents_[r]; }
  [[nodiscard]] int stride(std::size_t r) const { return strides_[r]; }
  [[nodiscard]] T* data_handle() const { return data_; }
  [[nodiscard]] std::size_t size() const {
    std::size_t n = 1;
    for (const int e : extents_) n *= static_cast<std::size_t>(e);
    return n;
  }
  [[nodiscard]] bool is_strided() const { return has_strides_; }
  [[nodiscard]] bool is_exhaustive() const { return false; }

 private:
  T* data_;
  std::array<int, Rank> extents_, strides_;
  bool has_strides_;
};

/// Kokkos::View of two dims: `rank` is a constant that can also be called.
template <class T>
class kokkos_like {
 public:
  static constexpr std::integral_constant<std::size_t, 2> rank{};
  kokkos_like(T* data, std::size_t n, std::size_t m, std::size_t s, std::size_t t)
      : data_(data), extents_{n, m}, strides_{s, t} {}
  [[nodiscard]] T* data() const { return data_; }
  template <class I>
  [[nodiscard]] std::size_t extent(I i) const {
    return extents_[static_cast<std::size_t>(i)];
  }
  template <class I>
  [[nodiscard]] std::size_t stride(I i) const {
    return strides_[static_cast<std::size_t>(i)];
  }
  [[nodiscard]] std::size_t size() const { return extents_[0] * extents_[1]; }
  [[nodiscard]] bool span_is_contiguous() const { return true; }

 private:
  T* data_;
  std::array<std::size_t, 2> extents_, strides_;
};

/// Boost.MultiArray: `first` is the element with indices 0, even if the indices begin elsewhere.
template <class T>
struct multi_array_like {
  T* first;
  std::array<std::size_t, 2> shape_list;
  std::array<std::ptrdiff_t, 2> stride_list, base_list;
  static constexpr std::size_t dimensionality = 2;
  [[nodiscard]] T* origin() const { return first; }
  [[nodiscard]] T* data() const { return first; }
  [[nodiscard]] std::size_t num_dimensions() const { return 2; }
  [[nodiscard]] const std::size_t* shape() const { return shape_list.data(); }
  [[nodiscard]] const std::ptrdiff_t* strides() const { return stride_list.data(); }
  [[nodiscard]] const std::ptrdiff_t* index_bases() const { return base_list.data(); }
};

/// xtensor's containers: lists and an offset. Dims of extent 1 have the stride 0.
template <class T>
struct xtensor_like {
  T* first;
  std::array<std::ptrdiff_t, 2> shape_list, stride_list;
  [[nodiscard]] T* data() const { return first - 1; }
  [[nodiscard]] std::size_t data_offset() const { return 1; }
  [[nodiscard]] const auto& shape() const { return shape_list; }
  [[nodiscard]] const auto& strides() const { return stride_list; }
};

}  // namespace views
