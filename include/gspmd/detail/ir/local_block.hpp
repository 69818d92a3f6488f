// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "gspmd/detail/support/language.hpp"

namespace gspmd {

/// The block of one tensor on one device that the function of a `local_op` gets. It contains the existing elements,
/// row-major, without the padding of uneven shards. The strides include the padding, so data() with stride(k) can be
/// passed to a BLAS. The last stride is 1. T is const for an operand. The block is valid during the call.
///
/// **Example.**
///
///     [](auto x, auto y) { for (std::int64_t i = 0; i < x.extent(0); ++i) y(i) = x(i, 0); }
template <class T, int Rank>
class local_block {
 public:
  using element_type = T;

  constexpr local_block(T* data, const std::int64_t* extents, const std::int64_t* strides) : data_(data) {
    for (std::size_t d = 0; d < static_cast<std::size_t>(Rank); ++d) {
      extents_[d] = extents[d];
      strides_[d] = strides[d];
    }
  }

  [[nodiscard]] static constexpr int rank() { return Rank; }
  [[nodiscard]] constexpr std::int64_t extent(int dim) const { return extents_[static_cast<std::size_t>(dim)]; }
  [[nodiscard]] constexpr std::int64_t stride(int dim) const { return strides_[static_cast<std::size_t>(dim)]; }
  [[nodiscard]] constexpr T* data() const { return data_; }

  /// Returns the element at these indices, one for each dim. Indices count from 0 in the block.
  template <class... Index>
  [[nodiscard]] constexpr T& operator()(Index... indices) const {
    static_assert(sizeof...(Index) == static_cast<std::size_t>(Rank), "gspmd: local_block: give one index for each dim");
    std::int64_t at = 0;
    std::size_t d = 0;
    ((at += static_cast<std::int64_t>(indices) * (d + 1 == sizeof...(Index) ? 1 : strides_[d]), ++d), ...);
    return data_[at];
  }

 private:
  T* data_;
  std::array<std::int64_t, Rank == 0 ? 1 : static_cast<std::size_t>(Rank)> extents_{};
  std::array<std::int64_t, Rank == 0 ? 1 : static_cast<std::size_t>(Rank)> strides_{};
};

}  // namespace gspmd
