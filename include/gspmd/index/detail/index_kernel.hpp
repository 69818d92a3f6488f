// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "gspmd/detail/support/target.hpp"
#include "gspmd/index/detail/index_table.hpp"

/// Gather and scatter of slices on one device.
namespace gspmd::detail {

/// The part of table and slices that a device holds.
struct index_ranges {
  std::int64_t table_first[max_rank];   // by dim of the table: the first global index on this device
  std::int64_t slices_first[max_rank];  // by dim of the slices
  std::int64_t slices_valid[max_rank];  // number of indices that are not padding
};

/// The code that is compiled for elements of one type. All other code is compiled once.
struct slice_code {
  std::int64_t elem_bytes = 0;
  /// Copies `n` elements between a slice and a table, with a step in each.
  void (*row)(void* table, void* slice, std::int64_t n, std::int64_t table_step, std::int64_t slice_step) = nullptr;
  /// Lines of elements. Each element is a slice, or a part of a slice. Element i of a line is at position index[i] *
  /// table_step + i * along of the table. The table has `size` valid indices; this device holds indices [first, first +
  /// here). table_per_line, slices_per_line and index_per_line are the steps from line to line.
  struct elements {
    void *table, *slices;
    const void* index;
    std::int64_t line_count, table_per_line, slices_per_line, index_per_line;
    std::int64_t n, size, first, here, table_step, along;
    bool clips, is_uniform;  // scatter: all elements are the first element of the slices
    std::uint64_t fill, nothing;
  };
  void (*by_s32)(const elements&) = nullptr;
  void (*by_s64)(const elements&) = nullptr;
  /// Gather: writes one value to `n` elements of a slice.
  void (*fill)(void* slice, std::int64_t n, std::int64_t step, std::uint64_t bits) = nullptr;
};

inline namespace GSPMD_TARGET {

/// Loops over the dims of a tensor, the last dim fastest. Adjacent dims that are contiguous in all tensors become one
/// loop.
struct index_loops {
  struct loop {
    std::int64_t count, table_step, slices_step, index_step;
  };
  loop of[max_rank];
  int count = 0;

  void add(const loop& inner) {
    if (inner.count == 1) return;
    if (count > 0) {
      loop& outer = of[count - 1];
      if (outer.table_step == inner.table_step * inner.count && outer.slices_step == inner.slices_step * inner.count &&
          outer.index_step == inner.index_step * inner.count) {
        outer = {outer.count * inner.count, inner.table_step, inner.slices_step, inner.index_step};
        return;
      }
    }
    of[count++] = inner;
  }
};

/// A dim of the table along which the start of a slice is looked up. If a dim of the slice runs along it, also that
/// dim.
struct looked_up_dim {
  std::int64_t most, first, here;  // the largest start; the part of the table on this device
  std::int64_t column, table_step;
  std::int64_t slices_step, slices_first, slices_count;  // of the slice's dim; count -1: the slice has no such dim
  int dim;                                               // of the table
};

/// Iterates over all slices and finds the elements that this device holds.
class slice_walk {
 public:
  slice_walk(const indexed_access& s, const index_ranges& r) : s_(s) {
    std::int64_t table_step[max_rank], slices_step[max_rank], index_step[max_rank];
    const auto strides = [](const extents& shape, std::int64_t* step) {
      std::int64_t size = 1;
      for (int d = shape.count; d-- > 0; size *= shape[d]) step[d] = size;
    };
    strides(s.table, table_step);
    strides(s.slices, slices_step);
    strides(s.indices, index_step);
    column_step_ = s.vector_dim < 0 ? 0 : index_step[s.vector_dim];
    std::int64_t aligned_step[max_rank]{};  // of the table, by dim of the slices
    bool is_looked_up[max_rank]{};
    for (int d = 0; d < s.dims.count; ++d) {
      const auto& t = s.dims[d];
      if (t.along >= 0 && t.is_aligned) aligned_step[t.along] = table_step[d];
      else if (t.along >= 0) is_looked_up[t.along] = true;
      if (t.is_aligned && t.column < 0) continue;
      looked_up_dim& l = looked_up_[looked_up_count_++];
      l = {t.size - t.slice,
           r.table_first[d],
           s.table[d],
           t.column < 0 ? -1 : t.column * column_step_,
           table_step[d],
           0,
           0,
           -1,
           d};
      if (t.is_aligned) l.here = -1;  // only the range of the index is checked
      else if (t.along >= 0)
        l.slices_step = slices_step[t.along], l.slices_first = r.slices_first[t.along], l.slices_count = r.slices_valid[t.along];
    }
    for (int d = 0; d < s.slices.count; ++d) {
      is_empty_ = is_empty_ || r.slices_valid[d] == 0;
      if (is_looked_up[d]) continue;
      if (s.lookup[d] >= 0) lookups_.add({r.slices_valid[d], aligned_step[d], slices_step[d], index_step[s.lookup[d]]});
      else inside_.add({r.slices_valid[d], aligned_step[d], slices_step[d], 0});
    }
  }

  /// Returns true if by_element() applies: the slices are looked up along one dim, have no dim along it, and the index
  /// has no columns. If there are several slices, neighbouring slices must also be contiguous in the slices and in the
  /// indices.
  [[nodiscard]] bool is_by_element() const {
    if (looked_up_count_ != 1 || looked_up_[0].here < 0 || looked_up_[0].slices_count >= 0 || looked_up_[0].column != 0)
      return false;
    if (lookups_.count == 0) return inside_.count == 0;
    return last_line().slices_step == 1 && last_line().index_step == 1;
  }
  void by_element(const slice_code& code, void* table, void* slices, const void* index) const {
    if (is_empty_) return;
    const auto& l = looked_up_[0];
    const index_loops::loop once{1, 0, 1, 1}, line = lookups_.count == 0 ? once : last_line(),
                                              outer = lookups_.count < 2 ? once : lookups_.of[lookups_.count - 2];
    const auto by_lines = s_.index_type == dtype::s32 ? code.by_s32 : code.by_s64;
    const std::int64_t index_bytes = s_.index_type == dtype::s32 ? 4 : 8;
    for_each_row(
        0, 0, {},
        [&](std::int64_t from_table, std::int64_t from_slices, std::int64_t n, std::int64_t table_step, std::int64_t step) {
          for (std::int64_t i = 0; i < n; ++i, from_table += table_step, from_slices += step)
            for_each_lookup(lookups_.count - 2, [&](std::int64_t t, std::int64_t v, std::int64_t row) {
              by_lines({static_cast<std::byte*>(table) + (from_table + t) * code.elem_bytes,
                        static_cast<std::byte*>(slices) + (s_.is_uniform ? 0 : from_slices + v) * code.elem_bytes,
                        static_cast<const std::byte*>(index) + row * index_bytes, outer.count, outer.table_step,
                        s_.is_uniform ? 0 : outer.slices_step, outer.index_step, line.count, l.most + 1, l.first, l.here,
                        l.table_step, line.table_step, s_.beyond != out_of_range::fill, s_.is_uniform, s_.fill, s_.nothing});
            });
        });
  }

  /// Calls `visit(table, slices, begin, box, fits, is_here)` for every slice. `table` and `slices` are the offsets of
  /// its first element on this device. `begin` is the offset of its first element in the slices. All offsets are in
  /// elements. `box` has the loops over the elements on this device. `fits` is true if all indices are in range.
  /// `is_here` is true if this device holds an element of the slice.
  template <class Visit>
  void run(const void* index, Visit visit) const {
    for_each_lookup([&](std::int64_t table, std::int64_t slices, std::int64_t row) {
      index_loops box;
      std::int64_t from_table = table, from_slices = slices;
      bool fits = true, is_here = true;
      for (int k = 0; k < looked_up_count_; ++k) {
        const auto& l = looked_up_[k];
        const std::int64_t named = l.column < 0 ? 0 : read(index, row + l.column);
        const std::int64_t start = std::max(std::min(named, l.most), std::int64_t{0});
        fits = fits && start == named;
        if (l.here < 0) continue;
        std::int64_t place = start - l.first + l.slices_first;
        if (l.slices_count < 0) {
          is_here = is_here && place >= 0 && place < l.here;
        } else {
          const std::int64_t low = std::max(std::int64_t{0}, -place), high = std::min(l.slices_count, l.here - place);
          is_here = is_here && low < high;
          box.add({high - low, l.table_step, l.slices_step, 0});
          place += low;
          from_slices += low * l.slices_step;
        }
        from_table += place * l.table_step;
      }
      visit(from_table, from_slices, slices, box, fits, is_here);
    });
  }
  /// Calls `outside(dim of the table, index)` for every index that is out of range.
  template <class Outside>
  void check(const void* index, Outside outside) const {
    for_each_lookup([&](std::int64_t, std::int64_t, std::int64_t row) {
      for (int k = 0; k < looked_up_count_; ++k) {
        const auto& l = looked_up_[k];
        if (l.column < 0) continue;
        const std::int64_t named = read(index, row + l.column);
        if (named < 0 || named > l.most) outside(l.dim, named);
      }
    });
  }
  /// Calls `row(table, slices, n, table_step, slices_step)` for the elements of a slice: the loops of `box`, inside
  /// them the dims that this device holds whole.
  template <class Row>
  void for_each_row(std::int64_t table, std::int64_t slices, const index_loops& box, Row row) const {
    if (box.count == 0 && inside_.count == 1)  // whole rows are frequent: a slice is often one row
      return row(table, slices, inside_.of[0].count, inside_.of[0].table_step, inside_.of[0].slices_step);
    index_loops all = box;
    for (int k = 0; k < inside_.count; ++k) all.add(inside_.of[k]);
    if (all.count == 0) return row(table, slices, std::int64_t{1}, std::int64_t{1}, std::int64_t{1});
    std::int64_t at[max_rank]{};
    const auto& last = all.of[all.count - 1];
    while (true) {
      row(table, slices, last.count, last.table_step, last.slices_step);
      int d = all.count - 2;
      for (; d >= 0; --d) {
        const auto& l = all.of[d];
        table += l.table_step, slices += l.slices_step;
        if (++at[d] < l.count) break;
        table -= l.count * l.table_step, slices -= l.count * l.slices_step;
        at[d] = 0;
      }
      if (d < 0) return;
    }
  }
  /// Returns the loops over a whole slice, including elements that this device does not hold.
  [[nodiscard]] index_loops whole() const {
    index_loops box;
    for (int k = 0; k < looked_up_count_; ++k)
      if (looked_up_[k].slices_count >= 0) box.add({looked_up_[k].slices_count, 0, looked_up_[k].slices_step, 0});
    return box;
  }
  [[nodiscard]] bool is_all(const index_loops& box) const {
    std::int64_t here = 1, all = 1;
    for (int k = 0; k < box.count; ++k) here *= box.of[k].count;
    for (int k = 0; k < looked_up_count_; ++k)
      if (looked_up_[k].slices_count >= 0) all *= looked_up_[k].slices_count;
    return here == all;
  }

 private:
  [[nodiscard]] const index_loops::loop& last_line() const { return lookups_.of[lookups_.count - 1]; }
  /// Calls `visit(table, slices, row)` for every slice, with the offsets of its first element and of its indices. The
  /// offset in the table does not include the dims that are looked up.
  template <class Visit>
  void for_each_lookup(Visit visit) const {
    for_each_lookup(lookups_.count, visit);
  }
  /// The same for the first `dims` loops.
  template <class Visit>
  void for_each_lookup(int dims, Visit visit) const {
    if (is_empty_) return;
    std::int64_t at[max_rank]{};
    std::int64_t table = 0, slices = 0, row = 0;
    while (true) {
      visit(table, slices, row);
      int d = dims - 1;
      for (; d >= 0; --d) {
        const auto& l = lookups_.of[d];
        table += l.table_step, slices += l.slices_step, row += l.index_step;
        if (++at[d] < l.count) break;
        table -= l.count * l.table_step, slices -= l.count * l.slices_step, row -= l.count * l.index_step;
        at[d] = 0;
      }
      if (d < 0) return;
    }
  }
  [[nodiscard]] std::int64_t read(const void* index, std::int64_t at) const {
    if (s_.index_type == dtype::s32) return static_cast<const std::int32_t*>(index)[at];
    return static_cast<const std::int64_t*>(index)[at];
  }

  const indexed_access& s_;
  std::int64_t column_step_ = 0;
  looked_up_dim looked_up_[max_rank];
  int looked_up_count_ = 0;
  index_loops lookups_, inside_;  // dims of the indices; dims that are whole in every slice
  bool is_empty_ = false;
};

template <class Bits>
void copy_row(void* table, void* slice, std::int64_t n, std::int64_t table_step, std::int64_t slice_step) {
  const auto* const from = static_cast<const Bits*>(table);
  auto* const to = static_cast<Bits*>(slice);
  if (table_step == 1 && slice_step == 1) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(Bits));
  else
    for (std::int64_t i = 0; i < n; ++i) to[i * slice_step] = from[i * table_step];
}
/// Calls `body(table, slices, index, place)` for every line. Element i, with the local index `own`, is element
/// place(own, i) of the table. The frequent case place(own, i) = own is compiled separately: with the multiplication,
/// 10^7 numbers in 10^6 bins took 1.14 times as long.
template <class Elem, class Index, class Body>
void by_place(const slice_code::elements& e, Body body) {
  const auto each = [&](auto place) {
    for (std::int64_t l = 0; l < e.line_count; ++l)
      body(static_cast<Elem*>(e.table) + l * e.table_per_line, static_cast<Elem*>(e.slices) + l * e.slices_per_line,
           static_cast<const Index*>(e.index) + l * e.index_per_line, place);
  };
  if (e.table_step == 1 && e.along == 0) return each([](std::int64_t own, std::int64_t) { return own; });
  const std::int64_t step = e.table_step, along = e.along;
  each([step, along](std::int64_t own, std::int64_t i) { return own * step + i * along; });
}
/// Copies every element from the position of its index. An element that this device does not hold is read at the first
/// position and then replaced, so the loop has no branches.
template <class Bits, class Index>
void gather_elements(const slice_code::elements& e) {
  const auto fill = static_cast<Bits>(e.fill), nothing = static_cast<Bits>(e.nothing);
  const std::int64_t n = e.n, first = e.first;
  const auto last = static_cast<Index>(std::min<std::int64_t>(e.size - 1, std::numeric_limits<Index>::max()));
  const bool is_whole = first == 0 && e.here >= e.size && e.clips, clips = e.clips;
  const auto here = static_cast<std::uint64_t>(e.here);
  by_place<Bits, Index>(e, [&](const Bits* __restrict table, Bits* __restrict to, const Index* __restrict index, auto place) {
    if (here == 0) {
      std::fill_n(to, n, nothing);
    } else if (is_whole) {
      for (std::int64_t i = 0; i < n; ++i) to[i] = table[place(std::max(std::min(index[i], last), Index{0}), i)];
    } else {
      for (std::int64_t i = 0; i < n; ++i) {
        const Index at = std::max(std::min(index[i], last), Index{0});
        const std::int64_t own = at - first;
        const bool is_here = static_cast<std::uint64_t>(own) < here;
        const Bits value = table[place(is_here ? own : 0, i)];
        to[i] = !is_here ? nothing : at == index[i] || clips ? value : fill;
      }
    }
  });
}
template <class Bits>
void fill_row(void* slice, std::int64_t n, std::int64_t step, std::uint64_t bits) {
  auto* const to = static_cast<Bits*>(slice);
  if (step == 1) std::fill_n(to, n, static_cast<Bits>(bits));
  else
    for (std::int64_t i = 0; i < n; ++i) to[i * step] = static_cast<Bits>(bits);
}
template <class Bits>
constexpr slice_code gather_code() {
  return {sizeof(Bits), copy_row<Bits>, gather_elements<Bits, std::int32_t>, gather_elements<Bits, std::int64_t>, fill_row<Bits>};
}

inline void gather_slices(const slice_code& code, const indexed_access& s, const index_ranges& r, const void* table,
                          const void* index, void* slices) {
  const slice_walk walk(s, r);
  if (walk.is_by_element()) return walk.by_element(code, const_cast<void*>(table), slices, index);
  auto* const from = static_cast<std::byte*>(const_cast<void*>(table));
  auto* const to = static_cast<std::byte*>(slices);
  const auto size = code.elem_bytes;
  const auto fill = [&](std::int64_t t, std::int64_t v, const index_loops& box, std::uint64_t bits) {
    walk.for_each_row(t, v, box, [&](std::int64_t, std::int64_t at, std::int64_t n, std::int64_t, std::int64_t step) {
      code.fill(to + at * size, n, step, bits);
    });
  };
  walk.run(index, [&](std::int64_t t, std::int64_t v, std::int64_t begin, const index_loops& box, bool fits, bool is_here) {
    if (!is_here || !walk.is_all(box)) fill(0, begin, walk.whole(), s.nothing);
    if (!is_here) return;
    if (!fits && s.beyond == out_of_range::fill) return fill(t, v, box, s.fill);
    walk.for_each_row(t, v, box, [&](std::int64_t a, std::int64_t b, std::int64_t n, std::int64_t step, std::int64_t slice_step) {
      code.row(from + a * size, to + b * size, n, step, slice_step);
    });
  });
}

/// Update rules of scatter: `of` returns the new element of the table from its old element and an element of a slice.
template <class T>
struct takes_its_place {
  using element = T;
  static T of(T, T update) { return update; }
};
template <monoid Kind, class T>
struct is_combined {
  using element = combined_t<Kind, T>;
  static element of(element before, element update) { return combine_lanes<Kind>(before, update); }
};
template <class How>
void scatter_row(void* table, void* slice, std::int64_t n, std::int64_t table_step, std::int64_t slice_step) {
  using element = typename How::element;
  auto* to = static_cast<element*>(table);
  const auto* const from = static_cast<const element*>(slice);
  if (table_step == 1 && slice_step == 1)
    for (std::int64_t i = 0; i < n; ++i) to[i] = How::of(to[i], from[i]);
  else if (table_step == 1 && slice_step == 0)
    for (const element update = *from; n-- > 0; ++to) *to = How::of(*to, update);
  else
    for (std::int64_t i = 0; i < n; ++i) to[i * table_step] = How::of(to[i * table_step], from[i * slice_step]);
}
/// Compares positions as unsigned numbers of the width of an index. Keeps the element of uniform slices in a register,
/// like a hand-written loop. Otherwise, counting 10^7 numbers in 256 bins took 1.5 times as long.
template <class How, class Index>
void scatter_elements(const slice_code::elements& e) {
  using element = typename How::element;
  using place_here = std::make_unsigned_t<Index>;
  constexpr std::int64_t most = std::numeric_limits<Index>::max();
  std::int64_t all_here = std::min(e.here, e.size - e.first);  // without padding
  if constexpr (sizeof(Index) < sizeof(most))
    all_here = std::min(all_here, most + 1 - e.first);  // without positions that no
                                                        // Index can represent
  const auto here = static_cast<place_here>(std::max(std::int64_t{0}, all_here)), first = static_cast<place_here>(e.first);
  const auto last = static_cast<Index>(std::min(e.size - 1, most));
  const std::int64_t n = e.n;
  by_place<element, Index>(
      e, [&](element* __restrict table, const element* __restrict from, const Index* __restrict index, auto place) {
        const auto all = [&](auto at, auto update) {
          for (std::int64_t i = 0; i < n; ++i) {
            const auto own = static_cast<place_here>(static_cast<place_here>(at(i)) - first);
            if (own >= here) continue;
            element& to = table[place(static_cast<std::int64_t>(own), i)];
            to = How::of(to, update(i));
          }
        };
        const auto each = [&](auto update) {
          if (e.clips) all([=](std::int64_t i) { return std::max(std::min(index[i], last), Index{0}); }, update);
          else all([=](std::int64_t i) { return index[i]; }, update);
        };
        if (e.is_uniform) each([one = *from](std::int64_t) { return one; });
        else each([=](std::int64_t i) { return from[i]; });
      });
}
template <class How>
constexpr slice_code scatter_code() {
  return {sizeof(typename How::element), scatter_row<How>, scatter_elements<How, std::int32_t>,
          scatter_elements<How, std::int64_t>, nullptr};
}
inline void scatter_slices(const slice_code& code, const indexed_access& s, const index_ranges& r, const void* index,
                           const void* slices, void* table) {
  const slice_walk walk(s, r);
  if (walk.is_by_element()) return walk.by_element(code, table, const_cast<void*>(slices), index);
  auto* const from = static_cast<std::byte*>(const_cast<void*>(slices));
  auto* const to = static_cast<std::byte*>(table);
  const auto size = code.elem_bytes;
  walk.run(index, [&](std::int64_t t, std::int64_t v, std::int64_t, const index_loops& box, bool fits, bool is_here) {
    if (!is_here || (!fits && s.beyond == out_of_range::fill)) return;
    walk.for_each_row(t, v, box, [&](std::int64_t a, std::int64_t b, std::int64_t n, std::int64_t step, std::int64_t slice_step) {
      if (s.is_uniform) code.row(to + a * size, from, n, step, 0);
      else code.row(to + a * size, from + b * size, n, step, slice_step);
    });
  });
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
