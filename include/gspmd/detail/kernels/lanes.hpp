// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gspmd/detail/support/target.hpp"

/// One vector register of elements, and stores that go around the caches. The compilers' own vector types do it without
/// the intrinsics' headers, and vectorise at -O2 and where two buffers may be the same, which loops over pointers do not.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

#if defined(__AVX512F__)
inline constexpr std::size_t lane_bytes = 64;
#elif defined(__AVX__)
inline constexpr std::size_t lane_bytes = 32;
#else
inline constexpr std::size_t lane_bytes = 16;
#endif

#if defined(__SSE2__)
inline constexpr bool can_stream = true;
#else
inline constexpr bool can_stream = false;
#endif

inline constexpr std::size_t cache_line_bytes = 64;

/// From this size on, a buffer that is only written is better written around the caches: at 16 MiB it costs 5 % or gains
/// nothing, at 64 MiB it gains 15-30 % (bench/collectives.cpp).
inline constexpr std::int64_t stream_from_bytes = std::int64_t{24} << 20;

template <class T>
struct lanes {
  typedef T type __attribute__((vector_size(lane_bytes)));  // an alias template drops the attribute in GCC 12
};
template <class T>
inline constexpr std::int64_t lane_elems = lane_bytes / sizeof(T);

template <class V, class T>
inline void load(V& v, const T* from) {
  std::memcpy(&v, from, sizeof v);
}
template <class V, class T>
inline void store(T* to, const V& v) {
  std::memcpy(to, &v, sizeof v);
}

/// Stores past the caches; `to` is aligned to a lane. fence_streams() must come before other threads may look.
template <class V, class T>
inline void stream(T* to, const V& v) {
#if defined(__clang__) && defined(__SSE2__)
  __builtin_nontemporal_store(v, reinterpret_cast<V*>(to));
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
  store(to, v);
#endif
}

inline void fence_streams() {
#if defined(__SSE2__)
  __builtin_ia32_sfence();
#endif
}

/// How many elements come before the first one that a lane may be streamed to.
template <class T>
inline std::int64_t elements_to_alignment(const T* p) {
  const auto past = reinterpret_cast<std::uintptr_t>(p) % lane_bytes;
  return past == 0 ? 0 : static_cast<std::int64_t>((lane_bytes - past) / sizeof(T));
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
