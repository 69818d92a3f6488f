// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>

#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/text.hpp"
#include "gspmd/error.hpp"
#include "gspmd/extend/edge.hpp"
#include "gspmd/program/row_major.hpp"

/// Pointers, extents and strides of other libraries' containers. They are found by the members of the containers, so no
/// library is included.
namespace gspmd::detail {

constexpr void add_dim(extents& list, std::int64_t n) {
  if (list.count == max_rank) throw error("strided_view: a tensor has at most 32 dims");
  list.push_back(n);
}

/// A list of extents or strides in any form: {3, 4}, a vector, an array.
struct int_list {
  extents items;
  constexpr int_list(std::initializer_list<std::int64_t> list) {
    for (const auto n : list) add_dim(items, n);
  }
  template <class Range>
    requires requires(const Range& r) {
      static_cast<std::int64_t>(*std::begin(r));
      std::end(r);
    }
  constexpr int_list(const Range& list) {
    for (const auto& n : list) add_dim(items, static_cast<std::int64_t>(n));
  }
};

template <class T>
using found_strides = strided_elements<T>;

/// Eigen: matrices, maps, blocks, transposes. A vector has one dim.
template <class X>
concept eigen_like = requires(X& x) {
  x.data(), x.rows(), x.cols(), x.innerStride(), x.outerStride();
  X::IsRowMajor, X::IsVectorAtCompileTime;
};
/// Eigen's tensors, which are dense in row-major or column-major order.
template <class X>
concept eigen_tensor_like = requires(X& x) {
  x.data(), x.dimension(0);
  X::NumDimensions, X::Layout;
};
/// std::mdspan and its reference implementation, mdarray, Kokkos::View.
template <class X>
concept extents_and_strides = requires(X& x) { x.extent(0), X::rank; } &&
                              (
                                  requires(X& x) { x.data(); } || requires(X& x) { x.data_handle(); }) &&
                              (requires(X& x) { x.stride(0); });
/// Boost.MultiArray.
template <class X>
concept boost_multi_array_like =
    requires(X& x) { x.origin(), x.index_bases()[0], x.shape()[0], x.strides()[0], x.num_dimensions(); };
/// xtensor, and other containers with lists of extents and strides.
template <class X>
concept shape_and_strides =
    requires(X& x) { x.data(), std::begin(x.shape()), std::begin(x.strides()); } && !boost_multi_array_like<X>;
template <class X> concept dense_by_itself = requires(X& x) { *std::data(x), std::size(x); } && is_row_major<std::remove_cv_t<X>>;

template <class X>
constexpr int rank_of() {
  if constexpr (requires { X::rank(); }) return static_cast<int>(X::rank());
  else return static_cast<int>(X::rank);
}
template <class X>
constexpr auto* pointer_to_first(X& x) {
  if constexpr (requires { x.data_handle(); }) return x.data_handle();
  else return x.data();
}

/// Returns true if a view shows plain elements in memory. Views that compute elements on access and atomic views do
/// not.
template <class X>
constexpr bool shows_its_memory() {
  if constexpr (requires {
                  typename X::reference;
                  typename X::element_type;
                }) {
    return std::is_same_v<typename X::reference, typename X::element_type&>;
  } else {
    return true;
  }
}

template <class X>
concept says_where_it_lies = (std::rank_v<X> > 0) || eigen_like<X> || eigen_tensor_like<X> || extents_and_strides<X> ||
                             boost_multi_array_like<X> || shape_and_strides<X> || dense_by_itself<X>;

/// The same without the reasons, which would be many lines of an error.
template <class X>
inline constexpr bool lies_somewhere = says_where_it_lies<X>;

template <class T>
constexpr void set_dense(found_strides<T>& found, bool is_row_major) {
  found.strides = extents(found.shape.count, 1);
  if (!size_problem(found.shape, sizeof(T)).empty()) return;  // the view rejects it
  const int last = found.shape.count - 1;
  for (int i = 1; i <= last; ++i) {
    const int inner = is_row_major ? last - i + 1 : i - 1, d = is_row_major ? last - i : i;
    found.strides[d] = found.strides[inner] * found.shape[inner];
  }
}

template <class X>
constexpr auto find_strides(X& x) {
  const auto number = [](auto n) { return static_cast<std::int64_t>(n); };
  if constexpr (std::rank_v<X> > 0) {
    using element = std::remove_all_extents_t<X>;
    found_strides<element> found{reinterpret_cast<element*>(&x), {}, {}};
    [&]<std::size_t... D>(std::index_sequence<D...>) {
      (found.shape.push_back(number(std::extent_v<X, D>)), ...);
    }(std::make_index_sequence<std::rank_v<X>>{});
    set_dense(found, true);
    return found;
  } else if constexpr (eigen_like<X>) {
    found_strides<std::remove_pointer_t<decltype(x.data())>> found{x.data(), {}, {}};
    const auto inner = number(x.innerStride()), outer = number(x.outerStride());
    if constexpr (X::IsVectorAtCompileTime) {
      found.shape = {number(x.rows() * x.cols())};
      found.strides = {inner};
    } else {
      found.shape = {number(x.rows()), number(x.cols())};
      found.strides = X::IsRowMajor ? extents{outer, inner} : extents{inner, outer};
    }
    return found;
  } else if constexpr (eigen_tensor_like<X>) {
    found_strides<std::remove_pointer_t<decltype(x.data())>> found{x.data(), {}, {}};
    for (int d = 0; d < static_cast<int>(X::NumDimensions); ++d)
      add_dim(found.shape, number(x.dimension(static_cast<std::size_t>(d))));
    set_dense(found, static_cast<int>(X::Layout) == 1);  // Eigen::RowMajor
    return found;
  } else if constexpr (extents_and_strides<X>) {
    static_assert(shows_its_memory<X>(),
                  "gspmd: strided_view: this view's accessor computes its elements; pass a view of stored elements");
    found_strides<std::remove_pointer_t<decltype(pointer_to_first(x))>> found{pointer_to_first(x), {}, {}};
    if constexpr (requires { x.is_strided(); })
      if (!x.is_strided()) throw error("strided_view: the layout of this view has no strides; give a copy in one that has");
    if constexpr (rank_of<X>() > 0)  // a view of rank 0 has no stride
      for (std::size_t d = 0; d < static_cast<std::size_t>(rank_of<X>()); ++d) {
        add_dim(found.shape, number(x.extent(d)));
        found.strides.push_back(number(x.stride(d)));
      }
    return found;
  } else if constexpr (boost_multi_array_like<X>) {
    found_strides<std::remove_pointer_t<decltype(x.origin())>> found{x.origin(), {}, {}};
    for (std::size_t d = 0; d < static_cast<std::size_t>(x.num_dimensions()); ++d) {
      add_dim(found.shape, number(x.shape()[d]));
      found.strides.push_back(number(x.strides()[d]));
      found.data += x.index_bases()[d] * x.strides()[d];
    }
    return found;
  } else if constexpr (shape_and_strides<X>) {
    found_strides<std::remove_pointer_t<decltype(x.data())>> found{x.data(), int_list(x.shape()).items,
                                                                   int_list(x.strides()).items};
    if constexpr (requires { x.data_offset(); }) found.data += x.data_offset();
    return found;
  } else {
    found_strides<std::remove_pointer_t<decltype(std::data(x))>> found{std::data(x), {}, {}};
    if constexpr (requires { x.shape().count; }) {
      found.shape = x.shape();
    } else {
      require_dense(x);
      found.shape = {number(std::size(x))};
    }
    set_dense(found, true);
    return found;
  }
}

/// Throws gspmd::error if a view cannot have these extents and strides.
inline void check_strides(const extents& shape, const extents& strides, std::size_t elem_bytes, bool is_null) {
  const auto bytes = static_cast<std::int64_t>(elem_bytes);
  const auto refuse = [&](const std::string& why) {
    throw error("strided_view: " + std::string(shape_text(shape).view()) + " with strides " +
                std::string(shape_text(strides).view()) + ": " + why);
  };
  if (shape.count != strides.count) refuse("the numbers of strides and extents must be equal");
  if (const auto problem = size_problem(shape, bytes); !problem.empty()) refuse(std::string(problem.view()));
  if (elements(shape) == 0) return;
  if (is_null) refuse("the pointer is null");
  std::int64_t reach = 0;  // the distance from the first element to the last
  for (int d = 0; d < shape.count; ++d) {
    if (shape[d] == 1) continue;
    if (strides[d] < 0)
      refuse("dim " + std::to_string(d) +
             " has a negative stride; view it from its other end, and reverse it in the program (gspmd::flip)");
    if (strides[d] > (most_bytes / bytes - reach) / (shape[d] - 1)) refuse("it spans more than 2^60 bytes");
    reach += strides[d] * (shape[d] - 1);
  }
}

/// Returns the type of the elements, const if they cannot be written. Returns const std::byte for a type without known
/// strides.
template <class X>
constexpr auto element_in_memory() {
  if constexpr (says_where_it_lies<X>)
    return std::type_identity<std::remove_pointer_t<decltype(find_strides(std::declval<X&>()).data)>>{};
  else return std::type_identity<const std::byte>{};
}

}  // namespace gspmd::detail
