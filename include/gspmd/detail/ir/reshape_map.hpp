// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/support/inline_vec.hpp"

/// A reshape as a map between the elements of two sharded tensors. The shape changes and the row-major number of every
/// element stays (GSPMD 4.3, Fig. 5c). The number is written in digits, so that a shard of either tensor is a few boxes
/// of digits:
///
///   [3,2] in 2,1 rows -> [6] in 3,3         one digit of 6: 0-3 | 4,5 and 0-2 | 3-5; element 3 moves
///   [3,2] in columns -> [6] in 3,3          digits of 3 and 2: the second digit is 0 | 1; a range is rows and two ends
///                                           of rows
namespace gspmd::detail {

/// A split dim as a number: the digits from `begin` to before `end`, major to minor, are `unit` times its index plus
/// the lower dims.
struct digit_range {
  std::int8_t dim = 0;
  int begin = 0, end = 0;
  std::int64_t unit = 1;
  std::int64_t parts = 1;

  /// Returns the number of boxes that a range of the number consists of.
  [[nodiscard]] constexpr int pieces() const { return 2 * (end - begin) - 1; }
};

using digit_ranges = inline_vec<digit_range, max_axes>;  // the split dims of one tensor with more than one index

struct digit_box {
  int rank = 0;
  std::int64_t begin[max_rank]{};
  std::int64_t end[max_rank]{};

  [[nodiscard]] constexpr std::int64_t elems() const {
    std::int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= begin[d] < end[d] ? end[d] - begin[d] : 0;
    return n;
  }
};

/// The shards of both tensors in digits.
struct reshape_digits {
  bool exist = false;  // false: no digits fit the splits of both tensors
  inline_vec<std::int64_t, max_rank> sizes, weights;
  digit_ranges from, to;

  [[nodiscard]] constexpr digit_box whole() const {
    digit_box box;
    box.rank = sizes.count;
    for (int d = 0; d < sizes.count; ++d) box.end[d] = sizes[d];
    return box;
  }
};

/// Calls `visit(dim, parts, weight)` for each split dim of one tensor. `weight` is the weight of its index in the
/// row-major number.
template <class Visit>
constexpr void for_each_split(const mesh_shape& mesh, const extents& global, const sharding& s, Visit visit) {
  std::int64_t weight = 1;
  for (int d = global.count; d-- > 0; weight *= global[d])
    if (const auto parts = parts_of(mesh, s, d); parts > 1) visit(d, parts, weight);
}

/// Returns the shards of both tensors in digits. `exist` is false if no digits fit the splits of both.
constexpr reshape_digits digits_of(const mesh_shape& mesh, const extents& from_global, const sharding& from,
                                   const extents& to_global, const sharding& to) {
  reshape_digits digits;
  const auto all = elements(from_global);
  if (all == 0) return digits;
  inline_vec<std::int64_t, 2 * max_axes + 2> ends(2, 1);  // boundaries of the digits: each divides the previous one
  ends[0] = all;
  for (const bool is_result : {false, true}) {
    const extents& global = is_result ? to_global : from_global;
    for_each_split(mesh, global, is_result ? to : from, [&](int dim, std::int64_t, std::int64_t weight) {
      const auto end = weight * global[dim];
      int at = 0;
      while (ends[at] > end) ++at;
      if (global[dim] > 1 && ends[at] != end) ends.insert(at, end);
    });
  }
  if (all == 1) ends.pop_back();
  for (int k = 0; k + 1 < ends.count; ++k) {
    if (ends[k] % ends[k + 1] != 0 || digits.sizes.count == max_rank) return digits;
    digits.sizes.push_back(ends[k] / ends[k + 1]);
    digits.weights.push_back(ends[k + 1]);
  }
  digits.exist = true;
  for (const bool is_result : {false, true}) {
    const extents& global = is_result ? to_global : from_global;
    for_each_split(mesh, global, is_result ? to : from, [&](int dim, std::int64_t parts, std::int64_t weight) {
      if (global[dim] == 1) return;
      digit_range range;
      range.dim = static_cast<std::int8_t>(dim);
      range.parts = parts;
      while (ends[range.begin] != weight * global[dim]) ++range.begin;
      range.end = range.begin + 1;
      while (weight % ends[range.end] != 0) ++range.end;
      range.unit = weight / ends[range.end];
      (is_result ? digits.to : digits.from).push_back(range);
    });
  }
  return digits;
}

/// Cuts `box` to box `k` of the range [begin, end) of a range's number. If the range consists of fewer boxes, the box
/// becomes empty.
///
///   digits of 3 and 4, [2, 9): 1* (all of the second digit), 02-03, 20
constexpr void cut_to_piece(const reshape_digits& digits, const digit_range& range, std::int64_t begin, std::int64_t end, int k,
                            digit_box& box) {
  const auto cut = [&box](int d, std::int64_t from, std::int64_t to) { box.begin[d] = from, box.end[d] = to; };
  const auto weight = [&](int d) { return digits.weights[d] / digits.weights[range.end - 1]; };
  int d = range.begin;
  if (begin >= end) return cut(d, 0, 0);
  const int last = range.end - 1;
  for (; d < last && begin / weight(d) == (end - 1) / weight(d); ++d) {  // the digit has a single value
    const auto digit = begin / weight(d);
    cut(d, digit, digit + 1);
    begin -= digit * weight(d);
    end -= digit * weight(d);
  }
  const int count = last - range.begin;  // pieces at each end
  if (k == 0) return cut(d, (begin + weight(d) - 1) / weight(d), end / weight(d));
  const bool is_low = k <= count;
  const int at = range.begin + (is_low ? k : k - count);
  auto rest = is_low ? begin : end;
  if (at <= d || rest % weight(d) == 0) return cut(range.begin, 0, 0);
  for (; d < at; ++d) {
    cut(d, rest / weight(d), rest / weight(d) + 1);
    rest %= weight(d);
  }
  const auto digit = rest / weight(at);
  if (is_low) cut(at, at == last ? digit : digit + 1, digits.sizes[at]);
  else cut(at, 0, digit);
}

/// Returns the number of boxes of a shard.
constexpr std::int64_t pieces_of(const digit_ranges& ranges) {
  std::int64_t n = 1;
  for (const auto& r : ranges) n *= r.pieces();
  return n;
}

/// Cuts `box` to box number `k` of the shard of the device at `at`. A part of a dim with one index holds this index or
/// nothing.
constexpr void cut_to_shard(const mesh_shape& mesh, const reshape_digits& digits, const digit_ranges& ranges,
                            const extents& global, const sharding& s, const coordinates& at, std::int64_t k, digit_box& box) {
  for (const auto& r : ranges) {
    const auto part = part_range(global[r.dim], r.parts, part_index(mesh, s, r.dim, at));
    cut_to_piece(digits, r, part.begin * r.unit, part.end * r.unit, static_cast<int>(k % r.pieces()), box);
    k /= r.pieces();
  }
}
/// Returns true if the device at `at` holds no elements because other devices hold a dim of extent 1.
constexpr bool is_beside_unit_dims(const extents& global, const sharding& s, const coordinates& at) {
  for (const auto& use : s.splits)
    if (global[use.dim] == 1 && at[use.axis] != 0) return true;
  return false;
}

/// Returns the range of parts of a split dim that contain elements of `box`.
constexpr index_range parts_around(const reshape_digits& digits, const digit_range& range, const extents& global,
                                   const digit_box& box) {
  std::int64_t least = 0, most = 0;
  for (int d = range.begin; d < range.end; ++d) {
    const auto weight = digits.weights[d] / digits.weights[range.end - 1];
    least += box.begin[d] * weight;
    most += (box.end[d] - 1) * weight;
  }
  const auto shard = shard_extent(global[range.dim], range.parts) * range.unit;
  return {least / shard, most / shard + 1};
}

/// Returns the strides of the digits in the shard of a tensor: the distance of two elements that differ by one in a
/// digit. Between two split dims the elements of the shard are in the order of the tensor.
constexpr inline_vec<std::int64_t, max_rank> strides_in_shard(const reshape_digits& digits, const digit_ranges& ranges,
                                                              const extents& global, const extents& local) {
  inline_vec<std::int64_t, max_rank> strides;
  for (int k = 0; k < digits.sizes.count; ++k) {
    std::int64_t split_end = 1;  // of the next lower split dim, in the number
    for (const auto& r : ranges)
      if (const auto end = digits.weights[r.begin] * digits.sizes[r.begin]; end <= digits.weights[k] && end > split_end)
        split_end = end;
    std::int64_t weight = 1, stride = 1;
    for (int d = global.count; d-- > 0 && weight < split_end; weight *= global[d]) stride *= local[d];
    strides.push_back(stride * (digits.weights[k] / split_end));
  }
  return strides;
}

}  // namespace gspmd::detail
