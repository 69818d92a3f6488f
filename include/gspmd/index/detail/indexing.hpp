// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "gspmd/detail/ops/as_index.hpp"
#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/index/detail/part_of_lookup.hpp"

/// The common facts and checks of gather and scatter: slices of a table at positions given by indices. The dimension
/// numbers are those of StableHLO.
namespace gspmd::detail {

/// StableHLO's dimension numbers as users write them. index_words has their names.
struct index_dims {
  span<const std::int64_t> window{};     // dims of the slices that are dims within a slice
  span<const std::int64_t> collapsed{};  // dims of the table where a slice has one index; the slices lack these dims
  span<const std::int64_t> table_batch{}, index_batch{};
  span<const std::int64_t> cols{};  // by column of the indices: the dim of the table
  std::int64_t vector_dim = 0;      // the dim of the index vectors; if it is the rank of the indices, each index is one number
};
struct index_words {
  const char *op, *window, *collapsed, *table_batch, *index_batch, *cols, *slices;
};
inline constexpr index_words gather_words{
    "gather",          "offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims",
    "start_index_map", "result"};
inline constexpr index_words scatter_words{"scatter",
                                           "update_window_dims",
                                           "inserted_window_dims",
                                           "input_batching_dims",
                                           "scatter_indices_batching_dims",
                                           "scatter_dims_to_operand_dims",
                                           "updates"};

/// The dimension numbers in the form that the operators store.
struct indexing {
  struct table_dim {
    std::int64_t slice = 1;
    std::int8_t column = -1;  // the column of the indices with the start of a slice; -1: the slice begins at 0
    std::int8_t along = -1;   // the dim of the slices that corresponds: a dim within a slice, or an aligned dim of the indices
    std::int8_t index_batch = -1;  // the dim of the indices that this dim is aligned with
  };
  inline_vec<table_dim, max_rank> table;
  inline_vec<std::int8_t, max_rank> lookup;  // by dim of the slices: the dim of the indices; -1: a dim within a slice
  int vector_dim = -1;                       // the dim of the index vectors; -1: none
  out_of_range beyond = out_of_range::clip;

  /// Returns true if index i of dim `d` corresponds to index i of the slices' dim.
  [[nodiscard]] constexpr bool is_aligned(const extents& shape, int d) const {
    return table[d].index_batch >= 0 || (table[d].along >= 0 && table[d].slice == shape[d]);
  }
  constexpr void keep(node& n) const {
    n.attributes.clear();
    std::int64_t window = 0;
    for (int d = 0; d < lookup.count; ++d)
      if (lookup[d] < 0) window |= std::int64_t{1} << d;
    add_attributes(n, vector_dim, beyond, window);
    for (const auto& t : table)
      add_attributes(n, t.slice, (t.index_batch + 1) * 64 * 2 + (t.column + 1) * 2 + (t.along >= 0 ? 1 : 0));
  }
  static constexpr out_of_range beyond_of(const node& n) { return static_cast<out_of_range>(n.attributes[1]); }
  static constexpr indexing of(const node& n, int slices_rank) {
    indexing ix;
    ix.vector_dim = static_cast<int>(n.attributes[0]);
    ix.beyond = beyond_of(n);
    for (int k = 3; k < n.attributes.count; k += 2) {
      const auto code = n.attributes[k + 1];
      ix.table.push_back({n.attributes[k], static_cast<std::int8_t>(code / 2 % 64 - 1),
                          static_cast<std::int8_t>(code % 2 == 1 ? 0 : -1), static_cast<std::int8_t>(code / 128 - 1)});
    }
    ix.place(n.attributes[2], slices_rank);
    return ix;
  }
  /// Finds the corresponding dims. `window` is the dims of the slices that are dims within a slice.
  constexpr void place(std::int64_t window, int slices_rank) {
    int next_table = 0, next_index = 0;
    for (int d = 0; d < slices_rank; ++d) {
      if ((window >> d & 1) != 0) {
        while (table[next_table].along < 0 || table[next_table].index_batch >= 0) ++next_table;
        table[next_table++].along = static_cast<std::int8_t>(d);
        lookup.push_back(-1);
      } else {
        if (next_index == vector_dim) ++next_index;
        for (auto& t : table)
          if (t.index_batch == next_index) t.along = static_cast<std::int8_t>(d);
        lookup.push_back(static_cast<std::int8_t>(next_index++));
      }
    }
  }
};

/// The kinds of the factors of unaligned dims.
struct index_kinds {
  factor_kind of_lookups;  // of dims of the indices that are also dims of the slices
  factor_kind of_slices;   // of dims within a slice, if the slice is smaller than the table
};

/// The maps of table, slices and indices. Indexed dims of the table may be split: see factor_kind::indexed.
struct index_maps {
  tensor_map table, slices, indices;
};
constexpr index_maps index_rule(const indexing& ix, const extents& table, const extents& slices, const extents& indices,
                                index_kinds kinds, op_rule& rule) {
  index_maps maps;
  inline_vec<std::int8_t, max_rank> by_slices, by_index(indices.count, std::int8_t{-1});
  for (int d = 0; d < slices.count; ++d) {
    int aligned = -1;
    for (int t = 0; t < table.count; ++t)
      if (ix.table[t].along == d && ix.is_aligned(table, t)) aligned = t;
    const auto kind = aligned >= 0 ? factor_kind::parallel : ix.lookup[d] >= 0 ? kinds.of_lookups : kinds.of_slices;
    by_slices.push_back(static_cast<std::int8_t>(rule.add_factor(slices[d], kind)));
    if (ix.lookup[d] >= 0) by_index[ix.lookup[d]] = by_slices[d];
    maps.slices.begin_dim();
    maps.slices.add_factor(by_slices[d]);
  }
  for (int t = 0; t < table.count; ++t) {
    maps.table.begin_dim();
    maps.table.add_factor(ix.is_aligned(table, t) ? by_slices[ix.table[t].along]
                                                  : rule.add_factor(table[t], factor_kind::indexed));
  }
  for (int d = 0; d < indices.count; ++d) {
    maps.indices.begin_dim();
    maps.indices.add_factor(d == ix.vector_dim ? rule.add_factor(indices[d], factor_kind::whole) : by_index[d]);
  }
  return maps;
}

/// Checks the dimension numbers of gather and scatter. Each dim of table and indices is named once.
class index_checker {
 public:
  constexpr index_checker(graph& g, const index_words& words, location at) : g_(g), words_(words), at_(at) {}

  constexpr bool fail(mistake rule, const text& what) {
    g_.fail(at_, words_.op, rule, what);
    return false;
  }
  /// Returns true if `dims` are dims of a tensor of rank `rank`, none twice or in `taken`. Adds them to
  /// `taken`.
  constexpr bool are_dims(span<const std::int64_t> dims, const char* name, int rank, dim_mask& taken) {
    for (const auto d : dims) {
      if (d < 0 || d >= rank)
        return fail(mistake::dim, text(name) << " names dim " << d << " of a tensor of rank " << rank << "; dims count from 0");
      if ((taken & dim_bit(static_cast<int>(d))) != 0)
        return fail(mistake::dim, text(name) << " names dim " << d << ", which is named before; a dim has one part to play");
      taken |= dim_bit(static_cast<int>(d));
    }
    return true;
  }

  /// Reads the dimension numbers into `ix`. `slice` has the extents of a slice, one for each dim of the table.
  constexpr bool read(const index_dims& dims, const extents& table, const node& indices, const extents& slice, int slices_rank,
                      out_of_range beyond, indexing& ix) {
    const int rank = indices.shape.count;
    if (!may_be_index(indices.type))
      return fail(mistake::type, text("the indices are ")
                                     << name_of(indices.type) << "; they are integers: write cast<std::int64_t>(indices)");
    if (dims.vector_dim < 0 || dims.vector_dim > rank)
      return fail(mistake::dim, text("index_vector_dim ")
                                    << dims.vector_dim << " is no dim of the indices " << shape_text(indices.shape)
                                    << "; it is one, or their rank where each is one number");
    ix.vector_dim = dims.vector_dim == rank ? -1 : static_cast<int>(dims.vector_dim);
    ix.beyond = beyond;
    const std::int64_t cols = ix.vector_dim < 0 ? 1 : indices.shape[ix.vector_dim];
    if (static_cast<std::int64_t>(dims.cols.size()) != cols)
      return fail(mistake::dim, text(words_.cols) << " has " << static_cast<std::int64_t>(dims.cols.size())
                                                  << " dims, and the indices " << shape_text(indices.shape) << " have " << cols
                                                  << " numbers for each slice; there is one dim for each");
    dim_mask one = 0, by_column = 0, of_indices = ix.vector_dim < 0 ? 0 : dim_bit(ix.vector_dim), window = 0;
    if (!are_dims(dims.collapsed, words_.collapsed, table.count, one) ||
        !are_dims(dims.table_batch, words_.table_batch, table.count, one) ||
        !are_dims(dims.index_batch, words_.index_batch, rank, of_indices))
      return false;
    for (const auto d : dims.table_batch) by_column |= dim_bit(static_cast<int>(d));
    if (!are_dims(dims.cols, words_.cols, table.count, by_column) || !are_dims(dims.window, words_.window, slices_rank, window))
      return false;
    if (dims.table_batch.size() != dims.index_batch.size())
      return fail(mistake::dim, text(words_.table_batch) << " and " << words_.index_batch << " name the same number of dims");
    for (std::size_t i = 1; i < dims.window.size(); ++i)
      if (dims.window[i] < dims.window[i - 1])
        return fail(mistake::dim, text(words_.window) << " is in ascending order: the dims of a slice stay in theirs");
    const auto inside = table.count - static_cast<int>(dims.collapsed.size() + dims.table_batch.size());
    if (static_cast<int>(dims.window.size()) != inside)
      return fail(mistake::rank, text(words_.window)
                                     << " names " << static_cast<std::int64_t>(dims.window.size()) << " dims of the "
                                     << words_.slices << ", and a slice of " << shape_text(table) << " has " << inside << " that "
                                     << words_.collapsed << " and " << words_.table_batch << " leave");
    for (int d = 0; d < table.count; ++d) {
      ix.table.push_back({slice[d], -1, static_cast<std::int8_t>((one & dim_bit(d)) != 0 ? -1 : 0), -1});
      if (slice[d] < 0 || slice[d] > table[d])
        return fail(mistake::bounds, text("a slice has ") << slice[d] << " elements along dim " << d << " of "
                                                          << shape_text(table) << "; it has no more than the tensor");
      if ((one & dim_bit(d)) != 0 && slice[d] != 1)
        return fail(mistake::bounds, text("a slice has ") << slice[d] << " elements along dim " << d << " of "
                                                          << shape_text(table) << ", which it does not keep; it has 1");
    }
    for (std::size_t i = 0; i < dims.table_batch.size(); ++i) {
      const auto t = static_cast<int>(dims.table_batch[i]), d = static_cast<int>(dims.index_batch[i]);
      if (table[t] != indices.shape[d])
        return fail(mistake::extent, text("dim ") << t << " of " << shape_text(table) << " and dim " << d << " of the indices "
                                                  << shape_text(indices.shape) << " are a batch; they have one extent");
      ix.table[t].index_batch = static_cast<std::int8_t>(d);
    }
    for (std::size_t c = 0; c < dims.cols.size(); ++c)
      ix.table[static_cast<int>(dims.cols[c])].column = static_cast<std::int8_t>(c);
    std::int64_t kept = 0;
    for (const auto d : dims.window) kept |= std::int64_t{1} << d;
    ix.place(kept, slices_rank);
    return true;
  }

 private:
  graph& g_;
  const index_words& words_;
  location at_;
};

/// The common facts of gather and scatter.
struct indexing_operator : plain_operator, without_movements, reads_shards, without_arithmetic, outside_of_loops, dims_by_number {
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 1, .backward = 1};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;

 protected:
  static void describe_mode(std::string& t, const plan_view& plan, const plan_step* step) {
    const auto access = description_if<kernels::gather, kernels::scatter, kernels::scatter_set>(plan, step);
    if (!access) return;
    const auto beyond = access->beyond;
    t += beyond == out_of_range::fill ? " (fill)" : beyond == out_of_range::error ? " (error)" : "";
  }
  /// Returns the description of the step, from the local shapes of table, slices and indices.
  template <class Lowering>
  static constexpr indexed_access access_of(Lowering& l, const indexing& ix, int table, int slices, int indices) {
    indexed_access a;
    const extents& global = l.value(table).global;
    for (int d = 0; d < global.count; ++d)
      a.dims.push_back({global[d], ix.table[d].slice, ix.table[d].column, ix.table[d].along, ix.is_aligned(global, d)});
    a.table = l.value(table).local;
    a.slices = l.value(slices).local;
    a.indices = l.value(indices).local;
    a.lookup = ix.lookup;
    a.vector_dim = static_cast<std::int8_t>(ix.vector_dim);
    a.index_type = l.value(indices).type;
    a.beyond = ix.beyond;
    return a;
  }
  /// Returns the value that a scatter reads as updates, operand `k`. If all updates are equal, it is one element: in a
  /// histogram, storing and reading all the ones took longer than counting.
  static constexpr int updates_of(lowering& l, const instruction& op, int k, indexed_access& a) {
    const int one = l.one_element(op, op.operands[k]);
    a.is_uniform = one >= 0;
    return a.is_uniform ? one : op.operands[k];
  }
  /// Adds bounds, because only the device can compute its part of a split table and of split slices.
  static constexpr void note_indexed(lowering& l, const indexed_access& a, int table, int slices, plan_step& s) {
    for (int d = 0; d < l.value(table).local.count; ++d)
      if (!a.dims[d].is_aligned && l.value(table).layout.axes_of(d) != 0) l.add_bound(s, d, table, d);
    for (int d = 0; d < l.value(slices).local.count; ++d)
      if (l.value(slices).layout.axes_of(d) != 0) l.add_bound(s, indexed_access::of_slices + d, slices, d);
  }
};

}  // namespace gspmd::detail
