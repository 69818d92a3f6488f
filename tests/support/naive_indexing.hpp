// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "gspmd/detail/ir/fused_loop.hpp"
#include "gspmd/detail/ir/local_function.hpp"
#include "gspmd/index/detail/scatter_op.hpp"
#include "support/all_operators.hpp"
#include "support/reference.hpp"

/// Gather and scatter element by element, as specified by StableHLO.
namespace reference {

struct index_numbers {
  std::vector<std::int64_t> window, collapsed, table_batch, index_batch, columns;  // offset_dims, collapsed_slice_dims, ...
  std::int64_t vector_dim = 0;
  std::vector<std::int64_t> slice_sizes;
  bool clips = true;
};

inline bool holds(const std::vector<std::int64_t>& list, std::int64_t d) {
  return std::find(list.begin(), list.end(), d) != list.end();
}

/// Returns the position in the table of element `at` of the slices. Returns nothing if its slice is out of range and
/// not clamped.
inline std::optional<index> place_in_table(const index_numbers& n, const std::vector<std::int64_t>& table,
                                           const host_array& indices, const index& at) {
  index batch, offset;
  for (std::size_t d = 0; d < at.size(); ++d) (holds(n.window, static_cast<std::int64_t>(d)) ? offset : batch).push_back(at[d]);
  index full(table.size(), 0);
  bool fits = true;
  for (std::size_t c = 0; c < n.columns.size(); ++c) {
    index where = batch;
    if (n.vector_dim < static_cast<std::int64_t>(indices.shape.size()))
      where.insert(where.begin() + static_cast<std::ptrdiff_t>(n.vector_dim), static_cast<std::int64_t>(c));
    const auto start = indices.ints[offset_of(where, indices.shape)];
    const auto d = static_cast<std::size_t>(n.columns[c]);
    full[d] = std::clamp<std::int64_t>(start, 0, table[d] - n.slice_sizes[d]);
    fits = fits && full[d] == start;
  }
  if (!fits && !n.clips) return {};
  for (std::size_t i = 0; i < n.table_batch.size(); ++i) {
    auto b = n.index_batch[i];
    if (b > n.vector_dim) --b;  // of the indices without their columns
    full[static_cast<std::size_t>(n.table_batch[i])] = batch[static_cast<std::size_t>(b)];
  }
  std::size_t next = 0;
  for (std::size_t d = 0; d < table.size(); ++d)
    if (!holds(n.collapsed, static_cast<std::int64_t>(d)) && !holds(n.table_batch, static_cast<std::int64_t>(d)))
      full[d] += offset[next++];
  return full;
}

inline void naive_gather(const index_numbers& n, const host_array& x, const host_array& indices, double real,
                         std::int64_t integer, host_array& result) {
  std::size_t to = 0;
  for_each_index(result.shape, [&](const index& at) {
    const auto from = place_in_table(n, x.shape, indices, at);
    if (x.floating()) result.reals[to] = from ? x.reals[offset_of(*from, x.shape)] : round_to(x.type, real);
    else result.ints[to] = from ? x.ints[offset_of(*from, x.shape)] : integer;
    ++to;
  });
}
/// Calls `put(element of the result, element of the updates)`, slice by slice in row-major order of the indices.
template <class Put>
void naive_scatter(const index_numbers& n, const host_array& indices, const host_array& updates, const host_array& result,
                   Put put) {
  std::vector<std::int64_t> dims, shape;  // of the updates: the dims of the indices, then the dims of a slice
  for (const bool inside : {false, true})
    for (std::size_t d = 0; d < updates.shape.size(); ++d)
      if (holds(n.window, static_cast<std::int64_t>(d)) == inside)
        dims.push_back(static_cast<std::int64_t>(d)), shape.push_back(updates.shape[d]);
  for_each_index(shape, [&](const index& ordered) {
    index at(ordered.size());
    for (std::size_t d = 0; d < at.size(); ++d) at[static_cast<std::size_t>(dims[d])] = ordered[d];
    if (const auto to = place_in_table(n, result.shape, indices, at))
      put(offset_of(*to, result.shape), offset_of(at, updates.shape));
  });
}

/// Returns the dimension numbers that a node stores.
inline index_numbers numbers_of(const node& node, const std::vector<std::int64_t>& indices,
                                const std::vector<std::int64_t>& slices) {
  const auto ix = gspmd::detail::indexing::of(node, static_cast<int>(slices.size()));
  index_numbers n;
  n.vector_dim = ix.vector_dim < 0 ? static_cast<std::int64_t>(indices.size()) : ix.vector_dim;
  n.clips = ix.beyond == gspmd::out_of_range::clip;
  std::vector<std::int64_t> column(gspmd::detail::max_rank, -1);
  for (int d = 0; d < ix.table.count; ++d) {
    const auto& t = ix.table[d];
    n.slice_sizes.push_back(t.slice);
    if (t.index_batch >= 0) n.table_batch.push_back(d), n.index_batch.push_back(t.index_batch);
    else if (t.along < 0) n.collapsed.push_back(d);
    else n.window.push_back(t.along);
    if (t.column >= 0) column[static_cast<std::size_t>(t.column)] = d;
  }
  for (const auto d : column)
    if (d >= 0) n.columns.push_back(d);
  return n;
}

inline void gather_node(const node& n, const host_array& x, const host_array& indices, host_array& result) {
  naive_gather(numbers_of(n, indices.shape, result.shape), x, indices, n.real, n.integer, result);
}
inline void scatter_node(const node& n, const host_array& indices, const host_array& updates, host_array& result) {
  for (auto& r : result.reals) r = real_identity(n.reduced_by);
  for (auto& k : result.ints) k = integer_identity(n.reduced_by, n.type);
  naive_scatter(numbers_of(n, indices.shape, updates.shape), indices, updates, result, [&](std::size_t to, std::size_t from) {
    if (result.floating()) result.reals[to] = round_to(n.type, combine(n.reduced_by, result.reals[to], updates.reals[from]));
    else result.ints[to] = combine(n.reduced_by, n.type, result.ints[to], updates.ints[from]);
  });
}
inline void scan_node(const node& n, const host_array& x, host_array& result) {
  const auto way = gspmd::detail::scan_way::of(n);
  const auto dim = static_cast<std::size_t>(way.dim);
  for_each_index(x.shape, [&](const index& at) {  // from the beginning for every element
    double real = real_identity(n.reduced_by);
    auto integer = integer_identity(n.reduced_by, n.type);
    index from = at;
    for (from[dim] = way.is_reversed ? x.shape[dim] - 1 : 0; from[dim] != at[dim]; from[dim] += way.is_reversed ? -1 : 1) {
      if (x.floating()) real = combine(n.reduced_by, real, x.reals[offset_of(from, x.shape)]);
      else integer = combine(n.reduced_by, n.type, integer, x.ints[offset_of(from, x.shape)]);
    }
    const auto to = offset_of(at, x.shape);
    if (x.floating()) result.reals[to] = round_to(n.type, way.is_exclusive ? real : combine(n.reduced_by, real, x.reals[to]));
    else result.ints[to] = way.is_exclusive ? integer : combine(n.reduced_by, n.type, integer, x.ints[to]);
  });
}
/// Computes result `which` of a sort by the first tensors. In a sort of a single tensor, -0 precedes 0.
inline void sort_node(const node& n, const std::vector<const host_array*>& x, host_array& result, std::size_t which) {
  const auto way = gspmd::detail::sort_way::of(n);
  const auto dim = static_cast<std::size_t>(way.dim);
  const auto before = [&](std::size_t a, std::size_t b) {
    for (std::size_t k = 0; k < static_cast<std::size_t>(way.order.keys); ++k) {
      const bool is_descending = (way.order.descending >> k & 1) != 0;
      const auto i = is_descending ? b : a, j = is_descending ? a : b;
      const host_array& key = *x[k];
      if (!key.floating()) {
        if (key.ints[i] == key.ints[j]) continue;
        if (key.type == dtype::u64) return static_cast<std::uint64_t>(key.ints[i]) < static_cast<std::uint64_t>(key.ints[j]);
        return key.ints[i] < key.ints[j];
      }
      const double p = key.reals[i], q = key.reals[j];
      if (std::isnan(p) != std::isnan(q)) return !std::isnan(p);
      if (p < q || p > q) return p < q;
      if (x.size() == 1 && p == 0 && std::signbit(p) != std::signbit(q)) return std::signbit(p);
    }
    return false;
  };
  for_each_index(result.shape, [&](const index& at) {
    if (at[dim] != 0) return;
    std::vector<std::size_t> order;
    index from = at;
    for (from[dim] = 0; from[dim] < result.shape[dim]; ++from[dim]) {
      const auto own = offset_of(from, result.shape);
      auto place = order.size();
      while (place > 0 && before(own, order[place - 1])) --place;
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(place), own);
    }
    from[dim] = 0;
    for (const auto own : order) {
      const auto to = offset_of(from, result.shape);
      if (result.floating()) result.reals[to] = x[which]->reals[own];
      else result.ints[to] = x[which]->ints[own];
      ++from[dim];
    }
  });
}
inline void top_k_node(const host_array& x, host_array& result, bool wants_indices) {
  const auto last = x.shape.size() - 1;
  std::size_t to = 0;
  for_each_index(result.shape, [&](const index& at) {  // the element that at[last] other elements of its line precede
    index from = at;
    for (from[last] = 0; from[last] < x.shape[last]; ++from[last]) {
      const auto e = offset_of(from, x.shape);
      std::int64_t before = 0;
      index other = at;
      for (other[last] = 0; other[last] < x.shape[last]; ++other[last]) {
        const auto o = offset_of(other, x.shape);
        const bool o_nan = x.floating() && std::isnan(x.reals[o]), e_nan = x.floating() && std::isnan(x.reals[e]);
        const bool larger = x.floating()           ? (o_nan && !e_nan) || x.reals[o] > x.reals[e]
                            : x.type == dtype::u64 ? bits_of(x.ints[o]) > bits_of(x.ints[e])
                                                   : x.ints[o] > x.ints[e];
        const bool equal = x.floating() ? (o_nan && e_nan) || x.reals[o] == x.reals[e] : x.ints[o] == x.ints[e];
        if (larger || (equal && other[last] < from[last])) ++before;
      }
      if (before != at[last]) continue;
      if (wants_indices) result.ints[to] = from[last];
      else if (x.floating()) result.reals[to] = x.reals[e];
      else result.ints[to] = x.ints[e];
    }
    ++to;
  });
}
inline void scatter_set_node(const node& n, const host_array& x, const host_array& indices, const host_array& updates,
                             host_array& result) {
  result.reals = x.reals;
  result.ints = x.ints;
  naive_scatter(numbers_of(n, indices.shape, updates.shape), indices, updates, result, [&](std::size_t to, std::size_t from) {
    if (result.floating()) result.reals[to] = updates.reals[from];
    else result.ints[to] = updates.ints[from];
  });
}

/// Computes each line along the dim separately, element by element, with the program's own monoid function.
inline void fold_node(const node& n, const std::vector<const host_array*>& x, host_array& result, std::size_t which) {
  const auto way = gspmd::detail::fold_operator::spec_of(n);
  const auto dim = static_cast<std::size_t>(way.dim);
  const auto length = static_cast<std::size_t>(x[0]->shape[dim]);
  std::vector<std::int64_t> lines = x[0]->shape;
  lines[dim] = 1;
  for_each_index(lines, [&](const index& line) {
    std::vector<std::vector<std::uint64_t>> in, out;  // of each tensor, elements of its own type
    gspmd::detail::fold_call call{};
    for (const auto* from : x) {
      in.emplace_back(length + 1), out.emplace_back(length + 1);
      index at = line;
      for (std::size_t i = 0; i < length; ++i) {
        at[dim] = static_cast<std::int64_t>(i);
        const auto e = offset_of(at, from->shape);
        gspmd::detail::with_real_type(from->type, [&]<class T>(T) {
          gspmd::detail::store_element(in.back().data(), static_cast<std::int64_t>(i),
                                       from->floating() ? static_cast<T>(from->reals[e]) : static_cast<T>(from->ints[e]));
        });
      }
    }
    for (std::size_t k = 0; k < x.size(); ++k) {
      const auto last = length > 0 && way.is_reversed ? length - 1 : 0;
      call.in[k] =
          reinterpret_cast<const std::byte*>(in[k].data()) + last * static_cast<std::size_t>(gspmd::detail::bytes_of(x[k]->type));
      call.out[k] = reinterpret_cast<std::byte*>(out[k].data()) +
                    (way.is_scan ? last : 0) * static_cast<std::size_t>(gspmd::detail::bytes_of(x[k]->type));
    }
    call.n = static_cast<std::int64_t>(length);
    call.step = way.is_reversed ? -1 : 1;
    call.count = 1;
    call.is_scan = way.is_scan;
    call.is_exclusive = way.is_exclusive;
    call.is_reversed = way.is_reversed;
    call.object = n.local->object;
    n.local->fold(call);
    for (std::size_t i = 0; i < (way.is_scan ? length : 1); ++i) {
      index at = line;
      at[dim] = static_cast<std::int64_t>(i);
      if (!way.is_scan) at.erase(at.begin() + static_cast<std::ptrdiff_t>(dim));
      const auto to = offset_of(at, result.shape);
      gspmd::detail::with_real_type(result.type, [&]<class T>(T) {
        const T got = gspmd::detail::load_element<T>(out[which].data(), static_cast<std::int64_t>(i));
        if (result.floating()) result.reals[to] = static_cast<double>(got);
        else result.ints[to] = static_cast<std::int64_t>(got);
      });
    }
  });
}

}  // namespace reference
