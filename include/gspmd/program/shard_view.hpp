// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>

#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/error.hpp"
#include "gspmd/program/along.hpp"
#include "gspmd/program/row_major.hpp"
#include "gspmd/program/sharding.hpp"

namespace gspmd {

/// A view of a device's shard, in memory that the caller owns. The memory is dense and row-major, with the local
/// extents. All shards have the same local extents, rounded up. The global shape, the sharding and the mesh are part of
/// the type. Nothing is copied.
///
/// **Example.**
///
///     // 8 x 8 on two devices; the second has 7 rows of data
///     using rows = shard_view<float, pod, shape<15, 8>, split<"data", _>>;
///     rows x(buffer);                                                  // pointer, std::span, vector, array
template <class T, class Mesh, class Dims, class Split>
class shard_view {
  struct facts {
    detail::sharding value;
    bool ok = false;
    detail::mistake broken = detail::mistake::other;
  };
  static constexpr facts resolved = [] {
    const auto r = detail::resolve(Mesh::info, Split::specs(), Split::rank, Dims::rank);
    return facts{r.value.layout, r.problem.empty(), r.broken};
  }();
  struct problem {
    static constexpr detail::text make() {
      return detail::text("shard_view: ") << detail::resolve(Mesh::info, Split::specs(), Split::rank, Dims::rank).problem;
    }
  };
  static constexpr bool check() {
    if constexpr (!resolved.ok) detail::refuse<resolved.broken, problem>();
    return true;
  }
  static_assert(check());
  static_assert(detail::is_element<std::remove_const_t<T>>,
                "gspmd: an element type is one of float, double, int32_t, int64_t, bool");
  static constexpr bool is_countable = detail::bounded_bytes(Dims::value, sizeof(T)) <= detail::most_bytes;
  static_assert(is_countable, "gspmd: shard_view: a tensor has at most 2^60 bytes");

 public:
  using element = T;
  using mesh_type = Mesh;
  static constexpr detail::sharding layout = resolved.value;
  static constexpr detail::extents global_extents = Dims::value;
  static constexpr detail::extents local_extents = detail::local_extents(Mesh::info.shape, global_extents, layout);
  /// The number of elements that a buffer must hold.
  static constexpr std::int64_t local_elems = is_countable ? detail::elements(local_extents) : 0;

  /// Views `data`, which must have local_elems elements. The size is not checked.
  explicit constexpr shard_view(T* data) : data_(data) {}

  /// Views a range. A range of several dims must be row-major (is_row_major).
  ///
  /// **Errors.** Throws gspmd::error unless the range has local_elems elements without gaps.
  template <class Range, bool = detail::accept_container<std::remove_cvref_t<Range>>()>
    requires requires(Range& r) {
      { std::data(r) } -> std::convertible_to<T*>;
      std::size(r);
    }
  explicit constexpr shard_view(Range&& range) : data_(std::data(range)) {
    detail::require_dense(range);
    const auto size = static_cast<std::int64_t>(std::size(range));
    if (size != local_elems)
      throw error("a shard of " + std::string(detail::shape_text(local_extents).view()) + " has " + std::to_string(local_elems) +
                  " elements and the buffer has " + std::to_string(size) +
                  "; every device allocates the local extents, padding included");
  }

  [[nodiscard]] constexpr T* data() const { return data_; }
  [[nodiscard]] static constexpr std::int64_t size() { return local_elems; }
  [[nodiscard]] constexpr T& operator[](std::int64_t i) const { return data_[i]; }

  /// Returns the global indices along `dim` that `device` holds. The rest of its shard is padding.
  [[nodiscard]] static constexpr detail::index_range valid_range(int device, along dim) {
    return detail::dim_range(Mesh::info.shape, global_extents, layout, detail::counted_dim(dim, global_extents.count),
                             Mesh::info.shape.coordinates_of(device));
  }

 private:
  T* data_;
};

namespace detail {

template <class S>
inline constexpr bool is_shard = false;
template <class T, class Mesh, class Dims, class Split>
inline constexpr bool is_shard<shard_view<T, Mesh, Dims, Split>> = true;

}  // namespace detail
}  // namespace gspmd
