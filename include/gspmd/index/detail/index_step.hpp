// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "gspmd/error.hpp"
#include "gspmd/index/detail/index_kernel.hpp"

/// Gather and scatter as steps of a plan.
namespace gspmd::detail {

struct prepared_gather {
  const indexed_access* access;
  slice_code code;
};
struct prepared_scatter {
  const indexed_access* access;
  slice_code code;
  void (*clear)(void* table, std::int64_t n);  // writes the identity; null: the result begins as a copy of the table
};

/// The unsigned type of the width of T. Gathers and replacing scatters depend only on the width of their elements.
template <class T>
using index_bits =
    std::conditional_t<sizeof(T) == 1, std::uint8_t,
                       std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                          std::conditional_t<sizeof(T) == 4, std::uint32_t,
                                                             std::conditional_t<sizeof(T) == 8, std::uint64_t, two_words>>>>;

template <class T>
constexpr prepared_gather gather_of(const indexed_access& access) {
  return {&access, gather_code<index_bits<T>>()};
}
template <class T, monoid Kind>
void write_identity(void* table, std::int64_t n) {
  std::fill_n(static_cast<T*>(table), n, identity<T>(Kind));
}
template <class T, monoid Kind>
constexpr prepared_scatter scatter_of(const indexed_access& access) {
  constexpr monoid natural = natural_kind<T>(Kind);
  if constexpr (!monoid_is_defined<T>(natural)) return {&access, {}, nullptr};  // the program is refused earlier
  else return {&access, scatter_code<is_combined<natural, T>>(), write_identity<T, natural>};
}
template <class T>
constexpr prepared_scatter scatter_set_of(const indexed_access& access) {
  return {&access, scatter_code<takes_its_place<index_bits<T>>>(), nullptr};
}

namespace kernels {

[[gnu::noinline]] inline index_ranges ranges_of(const plan_view& p, const plan_step& s, const indexed_access& access,
                                                const device_memory& device) {
  index_ranges r{};
  for (int d = 0; d < access.slices.count; ++d) r.slices_valid[d] = access.slices[d];
  for (int b = 0; b < s.bounds.count; ++b) {
    const auto& item = p.bounds[static_cast<std::size_t>(s.bounds.begin + b)];
    if (item.index < indexed_access::of_slices) {
      r.table_first[item.index] = first_index(p, item, device.at);
    } else {
      r.slices_first[item.index - indexed_access::of_slices] = first_index(p, item, device.at);
      r.slices_valid[item.index - indexed_access::of_slices] = valid_extent(p, item, device.at);
    }
  }
  return r;
}
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_outside(const indexed_access& access, int dim, std::int64_t index) {
  const auto& d = access.dims[dim];
  const std::string what = d.slice == 1 ? "" : "a slice of " + std::to_string(d.slice) + " from ";
  const bool may_be_larger = index == std::numeric_limits<std::int64_t>::max();  // see as_index
  throw error(what + "index " + std::to_string(index) + (may_be_larger ? " or more" : "") + " is outside of dim " +
              std::to_string(dim) + ", whose extent is " + std::to_string(d.size) +
              "; correct the index, or pass out_of_range::clip or fill");
}
/// Throws if an index is outside of the table and the user chose out_of_range::error. It is called before any element
/// is written.
inline void check_indices(const indexed_access& access, const index_ranges& r, const void* index) {
  if (access.beyond != out_of_range::error) return;
  slice_walk(access, r).check(index, [&](int dim, std::int64_t named) { throw_outside(access, dim, named); });
}
template <class>
prepared_gather gather::prepare(const indexed_access& access, const plan_view&, const plan_step& s) {
  prepared_gather prepared{};
  with_element_type(s.type, [&]<class T>(T) { prepared = gather_of<T>(access); });
  return prepared;
}
inline void gather::run(const prepared_gather& prepared, const plan_view& p, const plan_step& s, const device_memory& device) {
  const index_ranges ranges = ranges_of(p, s, *prepared.access, device);
  const void* const index = device.read(p.operand(s, 1).where);
  check_indices(*prepared.access, ranges, index);
  gather_slices(prepared.code, *prepared.access, ranges, device.read(p.operand(s, 0).where), index,
                device.write(p.result(s).where));
  clear_padding(p, p.result(s), device);
}

/// Returns the code that combines elements of the type of a step. It covers all types and monoids, and only programs
/// that call it contain it.
template <class>
prepared_scatter prepare_combining(const indexed_access& access, const plan_step& s) {
  prepared_scatter prepared{};
  with_computing_type(s.type, [&]<class T>(T) {
    with_monoid(access.combined_by, [&](auto kind) { prepared = scatter_of<T, decltype(kind)::value>(access); });
  });
  return prepared;
}
template <class Once>
prepared_scatter scatter::prepare(const indexed_access& access, const plan_view&, const plan_step& s) {
  return prepare_combining<Once>(access, s);
}
inline void scatter::run(const prepared_scatter& prepared, const plan_view& p, const plan_step& s, const device_memory& device) {
  void* const table = device.write(p.result(s).where);
  const index_ranges ranges = ranges_of(p, s, *prepared.access, device);
  const void* const index = device.read(p.operand(s, 0).where);
  check_indices(*prepared.access, ranges, index);
  prepared.clear(table, elements(p.result(s).local) * (is_complex(p.result(s).type) ? 2 : 1));
  scatter_slices(prepared.code, *prepared.access, ranges, index, device.read(p.operand(s, 1).where), table);
  clear_padding(p, p.result(s), device);
}

template <class Once>
prepared_scatter scatter_set::prepare(const indexed_access& access, const plan_view&, const plan_step& s) {
  if (access.onto) return {&access, prepare_combining<Once>(access, s).code, nullptr};
  prepared_scatter prepared{};
  with_element_type(s.type, [&]<class T>(T) { prepared = scatter_set_of<T>(access); });
  return prepared;
}
inline void scatter_set::run(const prepared_scatter& prepared, const plan_view& p, const plan_step& s,
                             const device_memory& device) {
  const index_ranges ranges = ranges_of(p, s, *prepared.access, device);
  const void* const index = device.read(p.operand(s, 1).where);
  check_indices(*prepared.access, ranges, index);
  copy_operand(p, s, 0, device);
  scatter_slices(prepared.code, *prepared.access, ranges, index, device.read(p.operand(s, 2).where),
                 device.write(p.result(s).where));
}

template <class Program, int Step>
constexpr auto gather::freeze() {
  return gather_of<element_t<step_of<Program, Step>.type>>(description_of_step<Program, Step, gather>);
}
template <class Program, int Step>
constexpr auto scatter::freeze() {
  constexpr const indexed_access& access = description_of_step<Program, Step, scatter>;
  return scatter_of<element_t<step_of<Program, Step>.type>, access.combined_by>(access);
}
template <class Program, int Step>
constexpr auto scatter_set::freeze() {
  constexpr const indexed_access& access = description_of_step<Program, Step, scatter_set>;
  using element = element_t<step_of<Program, Step>.type>;
  if constexpr (access.onto) return prepared_scatter{&access, scatter_of<element, access.combined_by>(access).code, nullptr};
  else return scatter_set_of<element>(access);
}

}  // namespace kernels

}  // namespace gspmd::detail

#if defined(GSPMD_PRECOMPILED)
#include "gspmd/index/detail/index_step_instances.ipp"
#endif
