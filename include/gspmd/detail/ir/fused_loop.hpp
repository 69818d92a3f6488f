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
/// The strides of inputs and outputs that lie by them (given_layers; no strides of others), and who finds the rows of a loop there (detail/run/given_rows.hpp).
struct given_rows {
  const extents* strides;
  const scalar_op* placed_later;  // a load without offsets, in the place of one that `place` finds
  void (*place)(const given_rows& given, void* runner);
};

// GSPMD_LOOP_FUNCTION stands before the functions that the loops end in. GCC compiles them with three options of their own:
//   fp-contract=off    whether two operators meet in one loop must not show in the bits (Clang fuses only what stands in one
//                      expression of the source)
//   no-trapping-math   else GCC makes branches of more selects than it can vectorise; for what it does all the same see apply<select>
//   no-math-errno      see square_root
// GCC inlines into such a function only what is always_inline, so groups with a user's map do without. And it gives a function that has no
// float of its own the float options of what it inlines (gcc/ipa-inline-transform.cc), which are the file's: GSPMD_KEEP_LOOP_OPTIONS is a
// float that takes no instruction. Without it `floor` was no vector instruction.

/// Calls body(i) for i < n so that both compilers vectorise it. `body` may store to memory that it loads from only at the
/// same index and after loading it; the pragmas say so, else every in-place update would run scalar.
///
/// The loop of constant length is for GCC at -O2, which vectorises no other. It is longer than what GCC unrolls before
/// the vectoriser sees it. When the body cannot be vectorised, say for a call in it, Clang warns: here if it knows lines (-g), else
/// at the function that the loop ends in, which should not be inlined further and turn off -Wpass-failed too.
///
/// `rest` is n % for_each_index_step, for those who know it as a constant.
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

/// A pred is read as a byte: what lies past the end of a shard need not be a valid bool. A complex number is read and written part by part:
/// GCC makes one integer of 8 bytes of it otherwise, and no vectors of the loop.
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
