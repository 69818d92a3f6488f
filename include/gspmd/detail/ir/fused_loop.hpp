// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/inline_vec.hpp"

#if defined(__clang__)
#define GSPMD_LOOP_FUNCTION [[gnu::noinline]]
#define GSPMD_KEEP_LOOP_OPTIONS
#else
#define GSPMD_LOOP_FUNCTION [[gnu::noinline, gnu::optimize("fp-contract=off", "no-trapping-math", "no-math-errno")]]
#define GSPMD_KEEP_LOOP_OPTIONS \
  float of_its_own;             \
  asm volatile("" : "=r"(of_its_own));
#endif

namespace gspmd::detail {

struct scalar_op;
/// The strides of inputs and outputs in the user's strided memory (given_layers), which are empty for other values.
/// `place` locates the rows of a loop in this memory (external/detail/given_rows.hpp).
struct given_rows {
  const extents* strides;
  const scalar_op* placed_later;  // a load without offsets that replaces a load that `place` locates
  void (*place)(const given_rows& given, void* runner);
};

// GSPMD_LOOP_FUNCTION marks the functions that contain the loops. GCC compiles them with three options:
//   fp-contract=off    the bits of a result must not depend on the fusion of two operators into one loop (Clang
//                      contracts only within one expression of the source)
//   no-trapping-math   otherwise GCC turns more selects into branches, which it cannot vectorise; see also
//                      apply<select>
//   no-math-errno      see square_root
// GCC inlines only always_inline functions into a function with these options, so groups with a user's map use none of
// the options. GCC gives a function without its own float the float options of its inlined functions, which are those
// of the file (gcc/ipa-inline-transform.cc). GSPMD_KEEP_LOOP_OPTIONS is a float that takes no instruction. Without it
// `floor` was not vectorised.

/// Calls body(i) for i < n so that both compilers vectorise it. `body` may store to memory that it loads from, if it
/// loads the same index before it stores. The pragmas state this. Otherwise in-place updates would not be vectorised.
///
/// The loop of constant length is for GCC at -O2, which vectorises no other loop. It is longer than the loops that GCC
/// unrolls before vectorisation. If the body cannot be vectorised, for example because of a call, Clang warns. It warns
/// here if it has line numbers (-g), otherwise at the function that contains the loop. That function should not be
/// inlined further, and should turn off -Wpass-failed too.
///
/// `rest` is n % for_each_index_step, for callers that have it as a constant.
inline constexpr std::int64_t for_each_index_step = 64;
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#endif
template <class Body>
[[gnu::always_inline]] inline void for_each_index(std::int64_t n, std::int64_t rest, Body body) {
  constexpr std::int64_t step = for_each_index_step;
  for (std::int64_t i = 0; i < n - rest; i += step) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
    for (std::int64_t j = 0; j < step; ++j) body(i + j);
  }
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (std::int64_t j = 0; j < rest; ++j) body(n - rest + j);
}
#if defined(__clang__)
#pragma clang diagnostic pop
#endif
template <class Body>
[[gnu::always_inline]] inline void for_each_index(std::int64_t n, Body body) {
  for_each_index(n, n % for_each_index_step, body);
}

/// Loads an element. A pred is read as a byte, because padding after the end of a shard can be an invalid bool. A
/// complex number is loaded and stored part by part. Otherwise GCC uses an integer of 8 bytes and does not vectorise
/// the loop.
template <class T>
[[gnu::always_inline]] inline T load_element(const void* from, std::int64_t i) {
  if constexpr (dtype_of<T>() == dtype::pred) return static_cast<const unsigned char*>(from)[i] != 0;
  else if constexpr (is_complex_element<T>)
    return {load_element<typename T::value_type>(from, 2 * i), load_element<typename T::value_type>(from, 2 * i + 1)};
  else return static_cast<const T*>(from)[i];
}
template <class T>
[[gnu::always_inline]] inline void store_element(void* to, std::int64_t i, T value) {
  if constexpr (dtype_of<T>() == dtype::pred) static_cast<unsigned char*>(to)[i] = value ? 1 : 0;
  else if constexpr (is_complex_element<T>) {
    store_element(to, 2 * i, value.re);
    store_element(to, 2 * i + 1, value.im);
  } else static_cast<T*>(to)[i] = value;
}

}  // namespace gspmd::detail
