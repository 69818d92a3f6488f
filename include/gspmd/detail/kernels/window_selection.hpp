// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "gspmd/detail/ir/kernels/windows.hpp"
#include "gspmd/detail/support/target.hpp"

/// The gradient of a maximum or minimum over windows.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Whether a window takes `next` instead of what it took before: a NaN before numbers, as its reduction does.
template <bool IsMinimum, class T>
constexpr bool is_taken(T next, T best) {
  if (next != next) return best == best;
  return IsMinimum ? next < best : next > best;
}

/// out = what the windows bring that begin in the tile of the gradient, as far as there are valid[d] elements of the result along every
/// dim d. Windows are gone through in their order, so that every sharding adds up the same numbers in the same order.
template <bool IsMinimum, class T>
void select_windows(const window_selection& s, const std::int64_t* valid, const void* from_in, const void* from_by, void* to) {
  const T *const in = static_cast<const T*>(from_in), *const by = static_cast<const T*>(from_by);
  T* const out = static_cast<T*>(to);
  if (elements(s.out) == 0) return;
  std::memset(to, 0, static_cast<std::size_t>(elements(s.out)) * sizeof(T));
  const int rank = s.out.count;
  std::int64_t in_stride[max_rank], by_stride[max_rank], out_stride[max_rank];  // elements
  std::int64_t begins[max_rank];                                                // how many places a window may begin at
  const window_selection::along_dim* along[max_rank]{};
  for (const auto& w : s.windows) along[w.dim] = &w;
  std::int64_t in_size = 1, by_size = 1, out_size = 1;
  for (int d = rank - 1; d >= 0; --d) {
    if (valid[d] <= 0) return;
    in_stride[d] = in_size;
    by_stride[d] = by_size;
    out_stride[d] = out_size;
    in_size *= s.in[d];
    by_size *= s.by[d];
    out_size *= s.out[d];
    begins[d] = along[d] == nullptr ? valid[d] : along[d]->step * (valid[d] - 1) + along[d]->room + 1;
  }
  std::int64_t at[max_rank]{};
  std::int64_t in_at = 0, by_at = 0;
  for (const auto& w : s.windows) {
    in_at += w.in_at * in_stride[w.dim];
    by_at += w.by_at * by_stride[w.dim];
  }
  for (int d = 0; d >= 0;) {
    if (const T brought = by[by_at]; brought != T{}) {
      std::int64_t tap[max_mapped_dims]{}, best_tap[max_mapped_dims]{};
      std::int64_t offset = in_at;
      T best = in[in_at];
      for (int w = 0; w >= 0;) {
        if (is_taken<IsMinimum>(in[offset], best)) {
          best = in[offset];
          for (int k = 0; k < s.windows.count; ++k) best_tap[k] = tap[k];
        }
        for (w = s.windows.count - 1; w >= 0; --w) {
          const auto step = s.windows[w].dilation * in_stride[s.windows[w].dim];
          offset += step;
          if (++tap[w] < s.windows[w].size) break;
          offset -= tap[w] * step;
          tap[w] = 0;
        }
      }
      std::int64_t target = 0;
      for (int k = 0; k < rank && target >= 0; ++k)
        if (along[k] == nullptr) target += at[k] * out_stride[k];
      for (int w = 0; w < s.windows.count && target >= 0; ++w) {
        const auto& a = s.windows[w];
        const auto place = at[a.dim] + a.dilation * best_tap[w] - a.room;
        const bool is_here = place >= 0 && place % a.step == 0 && place / a.step < valid[a.dim];
        target = is_here ? target + place / a.step * out_stride[a.dim] : -1;
      }
      if (target >= 0) out[target] += brought;
    }
    for (d = rank - 1; d >= 0; --d) {
      in_at += in_stride[d];
      by_at += by_stride[d];
      if (++at[d] < begins[d]) break;
      in_at -= at[d] * in_stride[d];
      by_at -= at[d] * by_stride[d];
      at[d] = 0;
    }
  }
}

using window_selector = void (*)(const window_selection& s, const std::int64_t* valid, const void* in, const void* by, void* out);
/// For elements of type T, which are floats: others have no gradient.
template <class T>
constexpr window_selector window_selector_for(bool is_minimum) {
  if constexpr (std::is_floating_point_v<T>) return is_minimum ? select_windows<true, T> : select_windows<false, T>;
  else return nullptr;
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
