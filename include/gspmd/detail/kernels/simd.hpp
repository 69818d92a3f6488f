// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/kernels/lanes.hpp"
#include "gspmd/detail/support/target.hpp"

/// Vectors as wide as the machine that is compiled for. Compilers vectorise reductions over floats and loops of unknown
/// length only at some levels of optimisation; with these types the kernels are fast at -O2 as well.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

inline constexpr int simd_bytes = static_cast<int>(lane_bytes);

template <class T>
using simd = typename lanes<T>::type;

/// A vector of so many bytes: where a whole one does not fit.
template <class T, int Bytes>
struct short_vector {
  typedef T type __attribute__((vector_size(Bytes)));
};

template <class T>
inline constexpr int simd_lanes = simd_bytes / static_cast<int>(sizeof(T));

template <class T>
inline simd<T> load_simd(const T* from) {
  simd<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <class T>
inline void store_simd(T* to, const simd<T>& v) {
  std::memcpy(to, &v, sizeof v);
}
template <class T>
inline simd<T> broadcast_simd(T x) {
  return x - simd<T>{};  // not +: that would turn -0.0 into 0.0
}

/// The type whose arithmetic the kernels use for T: sums and products of integers wrap around, so they are done unsigned,
/// and bool is a byte that is 0 or 1.
template <class T, bool Wraps = true>
struct kernel_arithmetic {
  using type = T;
};
template <class T, bool Wraps>
  requires std::is_integral_v<T>
struct kernel_arithmetic<T, Wraps> {
  using type = typename std::conditional_t<std::is_same_v<T, bool>, std::type_identity<unsigned char>,
                                           std::conditional_t<Wraps, std::make_unsigned<T>, std::type_identity<T>>>::type;
};
template <class T, bool Wraps = true>
using kernel_t = typename kernel_arithmetic<T, Wraps>::type;

/// combine, lane by lane.
template <monoid Kind, class V>
inline V combine_simd(V a, V b) {
  if constexpr (Kind == monoid::add) return a + b;
  else if constexpr (Kind == monoid::multiply) return a * b;
  else if constexpr (Kind == monoid::maximum) return ((a != a) | (a > b)) ? a : b;  // a NaN on either side wins
  else if constexpr (Kind == monoid::minimum) return ((a != a) | (a < b)) ? a : b;
  else if constexpr (Kind == monoid::and_) return a & b;
  else return a | b;
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
