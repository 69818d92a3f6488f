// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/index_map.hpp"

/// Composition of two maps: a pad followed by a slice is a shift, with one exchange (GSPMD 4.6 and A.2).
namespace gspmd::detail {

/// The extents of a dim of the operand, of the result of the first map, and of the result of the second map. The
/// intermediate tensor is the result of the first map.
struct composed_extents {
  std::int64_t from = 0, between = 0, to = 0;
};

/// The composition of two maps along one dim.
struct composed_dim {
  dim_map map;
  bool is_possible = false;
  bool shows_first_fill = false;   // elements of the intermediate tensor can have no element of the operand
  bool shows_second_fill = false;  // elements of the result can have no element of the intermediate tensor

  [[nodiscard]] constexpr bool is_identity(const composed_extents& e) const {
    return map.from_first == map.to_first && map.from_step == 1 && map.to_step == 1 && map.beyond == continuation::none &&
           e.from == e.to;
  }
};

/// Returns true if each of `to` elements of a result is one of `from` elements of the operand, which can be periodic.
constexpr bool fills_nothing(const dim_map& map, std::int64_t from, std::int64_t to) {
  if (to == 0) return true;
  if (map.from_step == 0 || map.to_step != 1) return false;
  if (map.beyond == continuation::round) return from > 0;
  const auto a = map.from_first - map.from_step * map.to_first, b = a + map.from_step * (to - 1);
  return (a < b ? a : b) >= 0 && (a < b ? b : a) < from;
}

/// Returns `second` after `first` along one dim. The composition is possible if each element moves from the operand to
/// the result at most once. An element that the first map drops must not reappear in the second map.
///   pad by 1 and 0, then slice to before the last     i of the result is i - 1
///   slice from 1, then pad by 1 and 0                 not possible: element 0 is gone
constexpr composed_dim composed(const dim_map& first, const dim_map& second, const composed_extents& e) {
  composed_dim result;
  const auto is_affine = [](const dim_map& map) {
    return map.from_step != 0 && (map.beyond == continuation::none || map.beyond == continuation::round);
  };
  constexpr auto most = std::int64_t{1} << 29;  // products of smaller numbers do not overflow
  const auto is_small = [&](std::int64_t n) { return n < most && n > -most; };
  for (const auto* map : {&first, &second})
    if (!is_affine(*map) || map->is_tile() || !is_small(map->from_first) || !is_small(map->from_step) ||
        !is_small(map->to_first) || !is_small(map->to_step))
      return result;
  if (!is_small(e.from) || !is_small(e.between) || !is_small(e.to)) return result;

  // Solve to_first + to_step * t = from_first + from_step * u: t = t0 + (from_step / x) * k, u = u0 + (to_step / x) *
  // k.
  const auto steps = second.from_step < 0 ? -second.from_step : second.from_step;
  const auto [x, inverse] = common_divisor(first.to_step, steps);
  const auto apart = second.from_first - first.to_first;
  if (apart % x != 0) return result;
  const auto period = steps / x;
  const auto t = apart / x % period * (inverse % period) % period;
  const auto u = (first.to_first + first.to_step * t - second.from_first) / second.from_step;
  const bool is_back = second.from_step < 0;
  result.map = {second.dim,
                continuation::none,
                first.from_first + first.from_step * t,
                first.from_step * (is_back ? -period : period),
                second.to_first + second.to_step * u,
                second.to_step * (first.to_step / x)};

  result.shows_first_fill = !fills_nothing(first, e.from, e.between);
  result.shows_second_fill = !fills_nothing(second, e.between, e.to);
  if (first.beyond == continuation::round || second.beyond == continuation::round) {
    // The composition of periodic maps is periodic, if the intermediate tensor contains all elements that one map reads
    // of the other map.
    const bool is_first = first.beyond == continuation::none || e.from == e.between;
    const bool is_second = second.beyond == continuation::none ? !result.shows_second_fill : e.from == e.between;
    const bool is_turned = !result.shows_first_fill && (first.from_step == 1 || first.from_step == -1);
    result.is_possible = is_first && is_second && is_turned && e.from > 0;
    result.map.beyond = continuation::round;
    result.map.from_first -= floor_div(result.map.from_first, e.from == 0 ? 1 : e.from) * e.from;
    return result;
  }
  const auto both = intersect(steps_within(result.map.from_first, result.map.from_step, 0, e.from),
                              steps_within(result.map.to_first, result.map.to_step, 0, e.to));
  const auto middle = [&](std::int64_t k) { return first.to_first + first.to_step * (t + (is_back ? -period : period) * k); };
  const auto lies_in = [&](std::int64_t i) { return i >= 0 && i < e.between; };
  result.is_possible = both.size() <= 0 || (lies_in(middle(both.begin)) && lies_in(middle(both.end - 1)));
  return result;
}

}  // namespace gspmd::detail
