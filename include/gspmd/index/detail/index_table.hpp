// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/extend/kernel.hpp"

namespace gspmd {

/// The treatment of an index if its slice is not inside the tensor.
///
///   clip    the index is moved to the nearest index whose slice is inside, as in StableHLO's gather
///   fill    gather gives a fill value instead, scatter drops the update
///   error   the run fails
///
/// **Errors.** With `error`, gspmd::error names the operator, the dim and the index on every device that reads such an
/// index. The other devices are notified, and no device waits.
enum class out_of_range : std::uint8_t { clip, fill, error };

namespace detail {

/// The accesses of gather and scatter to the memory of a device. They read or write slices of a table, at positions in
/// a tensor of indices, to or from a tensor of slices. Every dim of the slices is a dim of the indices, or a dim inside
/// a slice.
struct indexed_access {
  struct table_dim {
    std::int64_t size = 1;    // global
    std::int64_t slice = 1;   // global
    std::int8_t column = -1;  // of the indices: the begin of a slice; -1: 0
    std::int8_t along = -1;   // the dim of the slices that corresponds to it; -1: a slice has one index there
    bool is_aligned = false;  // index i of that dim is index i of this dim
    static constexpr void fields(auto& s, auto f) { f(s.size, s.slice, s.column, s.along, s.is_aligned); }
    friend constexpr bool operator==(const table_dim&, const table_dim&) = default;
  };
  inline_vec<table_dim, max_rank> dims;
  extents table, slices, indices;            // allocated, dense row-major
  inline_vec<std::int8_t, max_rank> lookup;  // by dim of the slices: the dim of the indices; -1: a dim inside a slice
  std::int8_t vector_dim = -1;               // of the indices: their columns; -1: a single column
  dtype index_type = dtype::s64;
  out_of_range beyond = out_of_range::clip;
  monoid combined_by = monoid::add;  // scatter
  bool onto = false;                 // scatter_set: combines instead of replacing
  bool is_uniform = false;           // scatter, scatter_set: one element in memory is used for all elements of the slices
  std::uint64_t fill = 0;            // gather: the bits of an element
  std::uint64_t nothing = 0;         // gather: the bits for an element that another device provides
  static constexpr void fields(auto& s, auto f) {
    f(s.dims, s.table, s.slices, s.indices, s.lookup, s.vector_dim, s.index_type, s.beyond, s.combined_by, s.onto, s.is_uniform,
      s.fill, s.nothing);
  }
  friend constexpr bool operator==(const indexed_access&, const indexed_access&) = default;

  static constexpr int of_slices = max_rank;  // a bound of dim d of the slices has this index plus d
};

struct prepared_gather;
struct prepared_scatter;
struct gathers_by_parts;  // index/detail/part_of_lookup.hpp
template <class K>
struct scatters_by_parts;

namespace kernels {

struct indexing_kernel : device_kernel, without_scratch {
  using description = indexed_access;
  static constexpr element_kinds handles = element_kinds::bytes;
};

/// Reads every slice at its index.
struct gather : plain_step, indexing_kernel, never_in_place {
  static constexpr const char* name = "gather";
  using parts = gathers_by_parts;
  template <class = once>
  static prepared_gather prepare(const indexed_access& access, const plan_view& p, const plan_step& s);
  template <class Program, int Step>
  static constexpr auto freeze();
  static void run(const prepared_gather& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

/// Starts from the identity and combines every slice at its index, in row-major order of the indices.
struct scatter : plain_step, indexing_kernel, never_in_place {
  static constexpr const char* name = "scatter";
  using parts = scatters_by_parts<scatter>;
  template <class = once>
  static prepared_scatter prepare(const indexed_access& access, const plan_view& p, const plan_step& s);
  template <class Program, int Step>
  static constexpr auto freeze();
  static void run(const prepared_scatter& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

/// Starts from operand 0 and writes every slice at its index, or combines it with the existing elements, in row-major
/// order of the indices.
struct scatter_set : indexing_kernel {
  static constexpr const char* name = "scatter_set";
  using parts = scatters_by_parts<scatter_set>;
  static constexpr step_role role = step_role::updates_a_part;
  static constexpr bool works_in_place(const plan_step&) { return true; }
  static constexpr void mark_kept(const table_views&, const plan_step&, std::uint8_t* kept) { kept[1] = kept[2] = 1; }
  template <class = once>
  static prepared_scatter prepare(const indexed_access& access, const plan_view& p, const plan_step& s);
  template <class Program, int Step>
  static constexpr auto freeze();
  static void run(const prepared_scatter& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

}  // namespace kernels

}  // namespace detail
}  // namespace gspmd
