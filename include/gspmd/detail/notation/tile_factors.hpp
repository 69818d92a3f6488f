// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/notation/xla_text.hpp"
#include "gspmd/detail/support/vec.hpp"

/// Conversion between device lists and mesh axes.
///
/// A list of devices in the order of the tiles can be a product of axes. This is so if the device of tile i is a sum
/// with one term for each digit of i in a mixed radix. Each digit is a factor. A factor has a number of parts, the
/// distance of the parts in the numbering of the devices, and the dim that it cuts. A mesh axis inside a factor cuts
/// that dim.
///
///  devices=[4,2]0,4,1,5,2,6,3,7   i = 2a + b, device = a + 4b:  dim 0 by {4 parts, 1 apart}, dim 1 by {2 parts, 4
///                                                               apart}
namespace gspmd::detail {

struct tile_factor {
  std::int64_t size = 1;
  std::int64_t stride = 1;
  int dim = 0;  // a data dim, or the rank plus the number of a kind of subgroup
};

/// Subgroups in XLA's order.
inline constexpr xla_kind subgroup_kinds[] = {xla_kind::manual, xla_kind::unreduced, xla_kind::replicated};

constexpr int subgroup_number(xla_kind kind) { return kind == xla_kind::manual ? 0 : kind == xla_kind::unreduced ? 1 : 2; }

/// Returns the largest possible factors of a list, major to minor, without dims. An empty result for several devices
/// means that the list is not a product. Example: 0,4,1,5,2,6,3,7 gives {4 parts, 1 apart}, {2 parts, 4 apart}.
constexpr constant_vector<tile_factor> factors_of_list(const constant_vector<std::int64_t>& list) {
  constant_vector<tile_factor> result;
  const auto n = static_cast<std::int64_t>(list.size());
  const auto at = [&](std::int64_t i) { return list[static_cast<std::size_t>(i)]; };
  if (at(0) != 0) return result;
  std::int64_t done = 1;
  while (done < n) {
    const std::int64_t stride = at(done);
    std::int64_t size = 2;
    while (size * done < n && at(size * done) == size * stride) ++size;
    if (n % (size * done) != 0) return {};
    result.insert(result.begin(), tile_factor{size, stride, 0});
    done *= size;
  }
  for (std::int64_t i = 0; i < n; ++i) {  // check the rest of the list
    std::int64_t rest = i, id = 0;
    for (auto k = result.size(); k-- > 0;) {
      id += rest % result[k].size * result[k].stride;
      rest /= result[k].size;
    }
    if (id != at(i)) return {};
  }
  return result;
}

constexpr constant_vector<tile_factor> factors_of_iota(const xla_tiles& x) {
  constant_vector<tile_factor> result;
  constant_vector<std::int64_t> apart(x.iota.size(), 1);
  for (auto i = x.iota.size(); i-- > 1;) apart[i - 1] = apart[i] * x.iota[i];
  for (const int t : x.transpose) {
    tile_factor f{x.iota[static_cast<std::size_t>(t)], apart[static_cast<std::size_t>(t)], 0};
    if (f.size == 1) continue;
    if (!result.empty() && result.back().stride == f.size * f.stride) {
      result.back().size *= f.size;
      result.back().stride = f.stride;
    } else {
      result.push_back(f);
    }
  }
  return result;
}

/// Cuts factors where dims begin. Returns false if a dim begins inside a factor and does not divide it.
///  {8 parts, 1 apart} as [2,4]  -> dim 0 {2, 4 apart}, dim 1 {4, 1 apart}
///  {3, 1}, {2, 3} as [2,3]      -> no
constexpr bool cut_at_dims(constant_vector<tile_factor>& factors, const constant_vector<std::int64_t>& dims) {
  constant_vector<tile_factor> result;
  auto dim = static_cast<int>(dims.size());
  std::int64_t left = 1;  // parts of the dim that no factor covers yet
  for (auto k = factors.size(); k-- > 0;) {
    auto f = factors[k];
    while (f.size > 1) {
      while (left == 1) left = dims[static_cast<std::size_t>(--dim)];
      const auto part = f.size < left ? f.size : left;
      if (f.size % part != 0 || left % part != 0) return false;
      result.push_back({part, f.stride, dim});
      f.size /= part;
      f.stride *= part;
      left /= part;
    }
  }
  std::reverse(result.begin(), result.end());
  factors = result;
  return true;
}

/// Sorts the subgroups of a list by kind, and the devices of each subgroup. Only membership in a subgroup matters, not
/// the order. Example: devices=[2,2]1,0,3,2 last_tile_dim_replicate gives the devices 0,1,2,3.
constexpr xla_tiles with_sorted_subgroups(const xla_tiles& x) {
  const int rank = x.rank();
  constant_vector<std::size_t> order;  // of the dims of x, except those with one part
  xla_tiles result;
  result.kind = x.kind;
  const auto take = [&](std::size_t d) {
    if (x.dims[d] > 1) order.push_back(d);
  };
  for (int d = 0; d < rank; ++d) {
    take(static_cast<std::size_t>(d));
    result.dims.push_back(x.dims[static_cast<std::size_t>(d)]);
  }
  for (const auto kind : subgroup_kinds) {
    std::int64_t size = 1;
    for (std::size_t g = 0; g < x.subgroups.size(); ++g)
      if (x.subgroups[g] == kind) {
        take(static_cast<std::size_t>(rank) + g);
        size *= x.dims[static_cast<std::size_t>(rank) + g];
      }
    result.dims.push_back(size);
    result.subgroups.push_back(kind);
  }
  const auto n = static_cast<std::int64_t>(x.devices.size());
  constant_vector<std::int64_t> stride(x.dims.size(), 1);
  for (auto d = x.dims.size(); d-- > 1;) stride[d - 1] = stride[d] * x.dims[d];
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t rest = i, from = 0;
    for (auto k = order.size(); k-- > 0;) {
      from += rest % x.dims[order[k]] * stride[order[k]];
      rest /= x.dims[order[k]];
    }
    result.devices.push_back(x.devices[static_cast<std::size_t>(from)]);
  }
  // The innermost subgroup first, then its blocks by their first device, and so on outwards.
  struct first_of {
    std::int64_t id, at;
  };
  std::int64_t block = 1;
  for (int g = 2; g >= 0; --g) {
    const auto size = result.dims[static_cast<std::size_t>(rank + g)];
    if (size == 1) continue;
    const auto before = result.devices;
    constant_vector<first_of> blocks(static_cast<std::size_t>(size), first_of{});
    for (std::int64_t begin = 0; begin < n; begin += block * size) {
      for (std::int64_t b = 0; b < size; ++b) {
        const auto at = begin + b * block;
        blocks[static_cast<std::size_t>(b)] = {before[static_cast<std::size_t>(at)], at};
      }
      std::sort(blocks.begin(), blocks.end(), [](const first_of& a, const first_of& b) { return a.id < b.id; });
      for (std::int64_t i = 0; i < block * size; ++i)
        result.devices[static_cast<std::size_t>(begin + i)] =
            before[static_cast<std::size_t>(blocks[static_cast<std::size_t>(i / block)].at + i % block)];
    }
    block *= size;
  }
  return result;
}

/// The factors of a tiled sharding, in the order of the tiles. Subgroups are the dims rank (manual), rank + 1
/// (unreduced) and rank + 2 (replicated). `position` renumbers the devices; null keeps their numbers.
struct tile_factors {
  constant_vector<tile_factor> list;
  bool is_product = false;
};
constexpr tile_factors factors_of(const xla_tiles& x, const std::int32_t* position) {
  tile_factors result;
  const int rank = x.rank();
  if (!x.iota.empty() && position == nullptr) {
    result.list = factors_of_iota(x);
    result.is_product = cut_at_dims(result.list, x.dims);
    for (auto& f : result.list)
      if (f.dim >= rank) f.dim = rank + subgroup_number(x.subgroups[static_cast<std::size_t>(f.dim - rank)]);
    if (result.is_product) return result;
  }
  xla_tiles listed = x;
  listed.devices = devices_of(x);
  listed.iota.clear();
  if (position != nullptr)
    for (auto& id : listed.devices) id = position[id];
  const auto sorted = with_sorted_subgroups(listed);
  result.list = factors_of_list(sorted.devices);
  result.is_product = (!result.list.empty() || sorted.devices.size() == 1) && cut_at_dims(result.list, sorted.dims);
  return result;
}

constexpr void sort_by_stride(constant_vector<tile_factor>& list) {  // major first
  for (std::size_t i = 1; i < list.size(); ++i)
    for (std::size_t k = i; k > 0 && list[k - 1].stride < list[k].stride; --k) std::swap(list[k - 1], list[k]);
}

}  // namespace gspmd::detail
