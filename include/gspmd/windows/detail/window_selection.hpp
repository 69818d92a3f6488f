// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "gspmd/detail/ir/fused_loop.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/target.hpp"
#include "gspmd/windows/detail/window_table.hpp"

/// The gradient of a maximum or minimum over windows.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Returns true if a window selects `next` instead of its previous selection. NaN precedes numbers, as in the
/// reduction.
template <bool IsMinimum, class T>
[[gnu::always_inline]] constexpr bool is_taken(T next, T best) {
  const bool is_better = IsMinimum ? next < best : next > best;
  return is_better | ((next != next) & (best == best));
}

/// The windows that begin in a piece of a line. A line consists of the elements of the tile along its last dim. For
/// each window it has the value selected so far and the number of that element in the window.
template <class T>
struct window_line {
  static constexpr std::int64_t most = 4 * for_each_index_step;
  using number = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;  // as wide as T, so that one loop
                                                                                  // vectorises both
  alignas(cache_line_bytes) T best[most];
  alignas(cache_line_bytes) number taken[most];
};
/// Processes element `number` of the windows [first, end). The elements of consecutive windows are contiguous, from
/// `in` on.
template <bool IsMinimum, class T>
GSPMD_LOOP_FUNCTION void take_in_line(window_line<T>& line, const T* in, std::int64_t number, std::int64_t first,
                                      std::int64_t end) {
  const auto own = static_cast<typename window_line<T>::number>(number);
  T* const best = line.best + first;
  auto* const taken = line.taken + first;
  const T* const from = in + first;
  if (number == 0) {
    std::memcpy(best, from, static_cast<std::size_t>(end - first) * sizeof(T));
    std::memset(taken, 0, static_cast<std::size_t>(end - first) * sizeof(own));
    return;
  }
  for_each_index(
      end - first, [=](std::int64_t q) __attribute__((always_inline)) {
        const bool takes = is_taken<IsMinimum>(from[q], best[q]);
        best[q] = takes ? from[q] : best[q];
        taken[q] = takes ? own : taken[q];
      });
}
/// Computes out[q] += by[q] if window q has selected its element `number`. Otherwise it adds 0, which changes nothing,
/// because the sum is never -0.0.
template <class T>
GSPMD_LOOP_FUNCTION void bring_line(const typename window_line<T>::number* taken, const T* by, std::int64_t number,
                                    std::int64_t n, T* out) {
  const auto own = static_cast<typename window_line<T>::number>(number);
  for_each_index(
      n, [=](std::int64_t q) __attribute__((always_inline)) {
        const T brought = taken[q] == own ? by[q] : T{};
        out[q] += brought;
      });
}
/// Returns true if all gradients of a line have the bits of 0.0, for example between the lines of strided windows. -0.0
/// is not zero here.
template <class T>
bool is_zero_line(const T* by, std::int64_t n) {
  constexpr T zero{};
  return std::memcmp(by, &zero, sizeof zero) == 0 && std::memcmp(by, by + 1, static_cast<std::size_t>(n - 1) * sizeof(T)) == 0;
}

/// Computes out = the gradients of the windows that begin in the tile, for valid[d] elements of the result along each
/// dim d. Each element adds the gradients in the same order with every sharding: lines one after the other, and within
/// a line first the windows that have selected their last element. Example: windows of 2 over 1, 3, 2 with the
/// gradients 10, 20 give 0, 30, 0 for a maximum.
template <bool IsMinimum, class T>
class window_chooser {
 public:
  window_chooser(const window_selection& s, const std::int64_t* valid, const T* in, const T* by, T* out)
      : s_(s), valid_(valid), in_(in), by_(by), out_(out), last_(s.out.count - 1) {}

  void run() {
    std::int64_t in_stride[max_rank], by_stride[max_rank];  // elements
    std::int64_t begins[max_rank];                          // number of positions at which a window can begin
    const window_selection::along_dim* along[max_rank]{};
    for (const auto& w : s_.windows) along[w.dim] = &w;
    std::int64_t by_size = 1, out_size = 1;
    for (int d = last_; d >= 0; --d) {
      if (valid_[d] <= 0) return;
      in_stride[d] = in_size_;
      by_stride[d] = by_size;
      out_stride_[d] = out_size;
      in_size_ *= s_.in[d];
      by_size *= s_.by[d];
      out_size *= s_.out[d];
      begins[d] = along[d] == nullptr ? valid_[d] : along[d]->step * (valid_[d] - 1) + along[d]->room + 1;
    }
    std::int64_t in_at = 0, by_at = 0;
    for (const auto& w : s_.windows) {
      in_at += w.in_at * in_stride[w.dim];
      by_at += w.by_at * by_stride[w.dim];
      tap_step_[outer_] = w.dilation * in_stride[w.dim];
      if (w.dim == last_) inner_ = &w;
      else outer_dims_[outer_++] = &w;
    }
    for (int d = 0; d >= 0;) {
      for (std::int64_t begin = 0; begin < begins[last_]; begin += window_line<T>::most) {
        const auto rest = begins[last_] - begin, n = rest < window_line<T>::most ? rest : window_line<T>::most;
        if (!is_zero_line(by_ + by_at + begin, n)) run_line(in_at + begin, by_ + by_at + begin, begin, n);
      }
      for (d = last_ - 1; d >= 0; --d) {
        in_at += in_stride[d];
        by_at += by_stride[d];
        if (++at_[d] < begins[d]) break;
        in_at -= at_[d] * in_stride[d];
        by_at -= at_[d] * by_stride[d];
        at_[d] = 0;
      }
    }
  }

 private:
  /// Calls visit(tap, offset, number) for the elements of a window along all dims except the last one. `number` is the
  /// number of elements of the window before it, which includes elements along the last dim.
  template <class Visit>
  void for_each_outer_tap(const Visit& visit) const {
    const auto inner = inner_ == nullptr ? 1 : inner_->size;
    std::int64_t tap[max_mapped_dims]{};
    std::int64_t offset = 0, number = 0;
    for (int w = 0; w >= 0; number += inner) {
      visit(tap, offset, number);
      for (w = outer_ - 1; w >= 0; --w) {
        offset += tap_step_[w];
        if (++tap[w] < outer_dims_[w]->size) break;
        offset -= tap[w] * tap_step_[w];
        tap[w] = 0;
      }
    }
  }
  /// `in_at` is the position of element 0 of the first window. It may be outside of the memory if no window begins
  /// there; then `by` is 0.
  void run_line(std::int64_t in_at, const T* by, std::int64_t begin, std::int64_t n) {
    const auto inner = inner_ == nullptr ? 1 : inner_->size, dilation = inner_ == nullptr ? 1 : inner_->dilation;
    for_each_outer_tap([&](const std::int64_t*, std::int64_t offset, std::int64_t number) {
      for (std::int64_t t = 0; t < inner; ++t) {
        const auto at = in_at + offset + t * dilation, first = at < 0 ? -at : 0, end = in_size_ - at < n ? in_size_ - at : n;
        if (first < end) take_in_line<IsMinimum>(line_, in_ + at, number + t, first, end);
      }
    });
    std::int64_t row = 0;  // of the result, along dims without windows
    for (int d = 0, w = 0; d < last_; ++d) {
      if (w < outer_ && outer_dims_[w]->dim == d) ++w;
      else row += at_[d] * out_stride_[d];
    }
    for_each_outer_tap([&](const std::int64_t* tap, std::int64_t, std::int64_t number) {
      std::int64_t target = row;
      for (int w = 0; w < outer_; ++w) {
        const auto& a = *outer_dims_[w];
        const auto place = at_[a.dim] + a.dilation * tap[w] - a.room;
        if (place < 0 || place % a.step != 0 || place / a.step >= valid_[a.dim]) return;
        target += place / a.step * out_stride_[a.dim];
      }
      for (auto t = inner; t-- > 0;) bring(by, begin, n, t, number + t, out_ + target);
    });
  }
  /// Adds the gradients of the piece's windows that have selected element `number`, which is number t along the last
  /// dim, to line `to`.
  void bring(const T* by, std::int64_t begin, std::int64_t n, std::int64_t t, std::int64_t number, T* to) {
    if (inner_ == nullptr) return bring_line(line_.taken, by, number, n, to + begin);
    const auto moved = begin + inner_->dilation * t - inner_->room, step = inner_->step;  // the position of window 0 of the piece
    const auto first = moved < 0 ? -moved : (step - moved % step) % step;
    if (step == 1) {
      const auto end = valid_[last_] - moved < n ? valid_[last_] - moved : n;
      if (first < end) bring_line(line_.taken + first, by + first, number, end - first, to + moved + first);
      return;
    }
    for (auto q = first; q < n && (q + moved) / step < valid_[last_]; q += step)
      if (line_.taken[q] == number) to[(q + moved) / step] += by[q];
  }

  const window_selection& s_;
  const std::int64_t* const valid_;
  const T *const in_, *const by_;
  T* const out_;
  const int last_;
  std::int64_t in_size_ = 1;
  int outer_ = 0;
  const window_selection::along_dim* outer_dims_[max_mapped_dims];  // the windows along dims before the last one
  const window_selection::along_dim* inner_ = nullptr;              // along the last dim
  std::int64_t tap_step_[max_mapped_dims + 1], out_stride_[max_rank], at_[max_rank]{};
  window_line<T> line_{};  // initialised, because windows that do not exist write nothing
};

/// The same for windows that read no element of another device. It iterates over the windows in their own order.
/// Elements outside of the operand are treated as the worst values. The last dim has no window.
template <bool IsMinimum, class T>
class own_window_chooser {
 public:
  own_window_chooser(const window_selection& s, const std::int64_t* valid, const T* in, const T* by, T* out)
      : s_(s), in_(in), by_(by), out_(out) {
    std::int64_t elems = 1, by_elems = 1;
    for (int d = s.out.count; d-- > 0; elems *= s.out[d], by_elems *= s.by[d]) along_[d] = {valid[d], elems, by_elems};
    for (int w = 0; w < s.windows.count; ++w) {
      const auto& window = s.windows[w];
      auto& along = along_[window.dim];
      taps_[w].elems = window.dilation * along.elems;
      in_at_ -= window.room * along.elems;
      along = {s.by[window.dim], along.elems * window.step, along.by_elems};
    }
  }
  void run() {
    const int last = s_.out.count - 1;
    for (int d = 0; d <= last; ++d)
      if (along_[d].count <= 0) return;
    std::int64_t at[max_rank]{};
    for (int d = 0; d >= 0;) {
      if (find_taps(at))
        for (std::int64_t begin = 0; begin < along_[last].count; begin += window_line<T>::most)
          run_line(begin, std::min(along_[last].count - begin, window_line<T>::most));
      for (d = last - 1; d >= 0; --d) {
        in_at_ += along_[d].elems, by_at_ += along_[d].by_elems;
        if (++at[d] < along_[d].count) break;
        in_at_ -= at[d] * along_[d].elems, by_at_ -= at[d] * along_[d].by_elems;
        at[d] = 0;
      }
    }
  }

 private:
  struct along_dim {
    std::int64_t count, elems, by_elems;  // number of windows; steps between windows in the operand and in their gradients
  };
  struct taps {
    std::int64_t low, high, elems;  // the elements inside the operand; the step between elements
  };
  /// Returns false if no element of a window is inside the operand.
  bool find_taps(const std::int64_t* at) {
    for (int w = 0; w < s_.windows.count; ++w) {
      const auto& window = s_.windows[w];
      const auto first = window.step * at[window.dim] - window.room, behind = s_.in[window.dim] - first;
      auto& t = taps_[w];
      t.low = first < 0 ? ceil_div(-first, window.dilation) : 0;
      t.high = behind > window.dilation * (window.size - 1) ? window.size : ceil_div(behind, window.dilation);
      if (t.low >= t.high) return false;
    }
    return true;
  }
  /// Calls visit(offset, number) for the elements of a window that are inside the operand.
  template <class Visit>
  void for_each_tap(const Visit& visit) const {
    const int inner = s_.windows.count - 1;
    std::int64_t tap[max_mapped_dims];
    for (int w = 0; w < inner; ++w) tap[w] = taps_[w].low;
    for (int w = 0; w >= 0;) {
      std::int64_t offset = 0, number = 0;
      for (int k = 0; k < inner; ++k) offset += tap[k] * taps_[k].elems, number = (number + tap[k]) * s_.windows[k + 1].size;
      for (auto t = taps_[inner].low; t < taps_[inner].high; ++t) visit(offset + t * taps_[inner].elems, number + t);
      for (w = inner - 1; w >= 0; tap[w] = taps_[w].low, --w)
        if (++tap[w] < taps_[w].high) break;
    }
  }
  void run_line(std::int64_t begin, std::int64_t n) {
    bool is_begun = true;
    for (int w = 0; w < s_.windows.count; ++w) is_begun = is_begun && taps_[w].low == 0;
    if (!is_begun) {  // element 0 is outside
      constexpr T end = std::numeric_limits<T>::infinity();
      std::fill_n(line_.best, n, IsMinimum ? end : -end);
      std::fill_n(line_.taken, n, 0);
    }
    const auto at = in_at_ + begin;
    for_each_tap(
        [&](std::int64_t offset, std::int64_t number) { take_in_line<IsMinimum>(line_, in_ + at + offset, number, 0, n); });
    for_each_tap([&](std::int64_t offset, std::int64_t number) {
      bring_line(line_.taken, by_ + by_at_ + begin, number, n, out_ + at + offset);
    });
  }

  const window_selection& s_;
  const T *const in_, *const by_;
  T* const out_;
  along_dim along_[max_rank];
  taps taps_[max_mapped_dims];
  std::int64_t in_at_ = 0, by_at_ = 0;  // of element 0 of a window, which may be outside, and of its gradient
  window_line<T> line_;
};

template <bool IsMinimum, class T>
void select_windows(const window_selection& s, const std::int64_t* valid, const void* in, const void* by, void* out) {
  if (elements(s.out) == 0) return;
  if (s.out.count == 0) return static_cast<void>(std::memcpy(out, by, sizeof(T)));
  std::memset(out, 0, static_cast<std::size_t>(elements(s.out)) * sizeof(T));
  const auto choose = [&]<class Chooser>(std::type_identity<Chooser>) {
    Chooser(s, valid, static_cast<const T*>(in), static_cast<const T*>(by), static_cast<T*>(out)).run();
  };
  if (s.is_own) choose(std::type_identity<own_window_chooser<IsMinimum, T>>{});
  else choose(std::type_identity<window_chooser<IsMinimum, T>>{});
}

using window_selector = void (*)(const window_selection& s, const std::int64_t* valid, const void* in, const void* by, void* out);
/// Returns the function for elements of type T, or null if T is not a float: other types have no gradient.
template <class T>
constexpr window_selector window_selector_for(bool is_minimum) {
  if constexpr (std::is_floating_point_v<T>) return is_minimum ? select_windows<true, T> : select_windows<false, T>;
  else return nullptr;
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
