// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gspmd/detail/support/target.hpp"
#include "gspmd/detail/support/tuning.hpp"

/// Vectors with the width of the target machine, and streaming stores, which bypass the caches. They use the compilers'
/// vector types, so no header of intrinsics is needed. Compilers vectorise reductions over floats, loops of unknown
/// length, and loops over buffers that may alias, only at some levels of optimisation. With these types the kernels are
/// fast at -O2 too.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

#if defined(__AVX512F__)
inline constexpr int simd_bytes = 64;
#elif defined(__AVX__)
inline constexpr int simd_bytes = 32;
#else
inline constexpr int simd_bytes = 16;
#endif

#if defined(__SSE2__)
inline constexpr bool can_stream = true;
#else
inline constexpr bool can_stream = false;
#endif

inline constexpr std::size_t cache_line_bytes = 64;

/// A vector of `Bytes` bytes. (An alias template drops the attribute in GCC 12.)
template <class T, int Bytes>
struct short_vector {
  typedef T type __attribute__((vector_size(Bytes)));
};
template <class T>
using simd = typename short_vector<T, simd_bytes>::type;
template <class T>
inline constexpr int simd_lanes = simd_bytes / static_cast<int>(sizeof(T));

template <class T>
[[gnu::always_inline]] inline simd<T> load_simd(const T* from) {
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
  return x - simd<T>{};  // not +, which would turn -0.0 into 0.0
}

/// Stores a vector past the caches. `to` is aligned to a vector. fence_streams() must be called before another thread
/// reads the data.
template <class T>
[[gnu::always_inline]] inline void stream_simd(T* to, const simd<T>& v) {
#if defined(__clang__) && defined(__SSE2__)
  __builtin_nontemporal_store(v, reinterpret_cast<simd<T>*>(to));
#elif defined(__AVX512F__)
  typedef long long raw __attribute__((vector_size(64)));
  __builtin_ia32_movntdq512(reinterpret_cast<raw*>(to), reinterpret_cast<raw>(v));
#elif defined(__AVX__)
  typedef long long raw __attribute__((vector_size(32)));
  __builtin_ia32_movntdq256(reinterpret_cast<raw*>(to), reinterpret_cast<raw>(v));
#elif defined(__SSE2__)
  typedef long long raw __attribute__((vector_size(16)));
  __builtin_ia32_movntdq(reinterpret_cast<raw*>(to), reinterpret_cast<raw>(v));
#else
  store_simd(to, v);
#endif
}

inline void fence_streams() {
#if defined(__SSE2__)
  __builtin_ia32_sfence();
#endif
}

/// Returns the number of elements before the first address that is aligned for streaming.
template <class T>
inline std::int64_t elements_to_alignment(const T* p) {
  const auto past = reinterpret_cast<std::uintptr_t>(p) % simd_bytes;
  return past == 0 ? 0 : static_cast<std::int64_t>((simd_bytes - past) / sizeof(T));
}

/// Streams `Bytes` bytes, which are whole cache lines.
template <std::int64_t Bytes>
[[gnu::always_inline]] inline void stream_lines(std::byte* to, const std::byte* from) {
  using byte = unsigned char;
  for (std::int64_t i = 0; i < Bytes; i += simd_bytes)
    stream_simd(reinterpret_cast<byte*>(to + i), load_simd(reinterpret_cast<const byte*>(from + i)));
}
/// Streams the whole cache lines of `bytes` bytes, and stores the rest.
[[gnu::noinline]] inline void stream_part(std::byte* to, const std::byte* from, std::int64_t bytes) {
  constexpr std::int64_t line = cache_line_bytes;
  if (reinterpret_cast<std::uintptr_t>(to) % cache_line_bytes == 0)
    for (; bytes >= line; bytes -= line, to += line, from += line) stream_lines<line>(to, from);
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
