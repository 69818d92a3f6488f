// SPDX-License-Identifier: Apache-2.0
// group: operators
#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include "gspmd/detail/ir/composed_map.hpp"

// Consecutive pad, slice, reverse and roll are one movement.

using namespace gspmd;
using namespace gspmd::detail;

namespace {

/// Returns the element of an operand of `from` elements that element `i` of a result reads, or -1.
std::int64_t source_of(const dim_map& map, std::int64_t from, std::int64_t i) {
  if (map.from_step == 0 || (i - map.to_first) % map.to_step != 0) return -1;
  auto e = map.from_first + map.from_step * ((i - map.to_first) / map.to_step);
  if (map.beyond == continuation::round && from > 0) e = ((e % from) + from) % from;
  return e >= 0 && e < from ? e : -1;
}

/// A map and the extent of its result.
struct step {
  dim_map map;
  std::int64_t to;
};
/// Returns pad, slice, reverse and roll on n elements.
std::vector<step> steps_on(std::int64_t n) {
  std::vector<step> all{{dim_map::affine(0, -1, n - 1, 1), n}, {dim_map::affine(0, 1, 0, 1), n}};
  for (std::int64_t low = -2; low <= 2; ++low)
    for (std::int64_t high = -2; high <= 1; ++high)
      for (std::int64_t between = 1; between <= 3; ++between)
        if (const auto to = (n == 0 ? 0 : (n - 1) * between + 1) + low + high; to >= 0)
          all.push_back({dim_map::affine(0, 1, -low, between), to});
  for (std::int64_t begin = 0; begin < n; ++begin)
    for (std::int64_t end = begin; end <= n; end += 2)
      for (std::int64_t by = 1; by <= 3; ++by) all.push_back({dim_map::affine(0, by, begin, 1), (end - begin + by - 1) / by});
  for (std::int64_t by = 1; by < n; ++by) {
    all.push_back({dim_map::affine(0, 1, by, 1), n});
    all.back().map.beyond = continuation::round;
  }
  return all;
}

const std::vector<collective> halo{collective_permute<"x">};
struct planned {
  std::vector<collective> collectives;
  std::int64_t bytes, messages;
  std::vector<double> result;
};
/// Runs a program on a ring of devices. Its input is a vector of `n` elements, with i + 1 as element i.
planned run(std::int64_t n, std::int64_t devices, const std::function<value(value)>& program) {
  dynamic::builder p(dynamic::mesh({{"x", devices}}));
  p.output(program(p.input(dynamic::input<double>({n}, {"x"}))));
  const auto made = p.compile();
  std::vector<double> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i + 1);
  const auto y = made.run(simulated{}, x), on_threads = made.run(threads{}, x);
  CHECK(y[0].bytes == on_threads[0].bytes);
  std::int64_t size = 1;
  for (const auto e : y[0].shape) size *= e;
  return {made.collectives(), made.traffic().bytes, made.traffic().messages, {y[0].data<double>(), y[0].data<double>() + size}};
}

}  // namespace

TEST_CASE("two maps as one are the two of them, element by element") {
  int possible = 0, wrong = 0, refused = 0;
  for (std::int64_t from = 0; from <= 6; ++from)
    for (const auto& a : steps_on(from))
      for (const auto& b : steps_on(a.to)) {
        const auto both = composed(a.map, b.map, {from, a.to, b.to});
        bool shows_first = false, shows_second = false;
        for (std::int64_t i = 0; i < b.to; ++i) {
          const auto middle = source_of(b.map, a.to, i);
          shows_second = shows_second || middle < 0;
          const auto wanted = middle < 0 ? -1 : source_of(a.map, from, middle);
          if (both.is_possible && source_of(both.map, from, i) != wanted) ++wrong;
        }
        for (std::int64_t m = 0; m < a.to; ++m) shows_first = shows_first || source_of(a.map, from, m) < 0;
        if (both.is_possible && ((shows_first && !both.shows_first_fill) || (shows_second && !both.shows_second_fill))) ++wrong;
        // A plain movement that removes no element that returns later is possible.
        const bool is_plain = a.map.beyond == continuation::none && b.map.beyond == continuation::none;
        if (is_plain && a.map.to_step == 1 && from > 0 && b.to > 0 && !shows_second && !both.is_possible) ++refused;
        possible += both.is_possible ? 1 : 0;
      }
  CHECK(wrong == 0);
  CHECK(refused == 0);
  CHECK(possible > 40'000);
}

TEST_CASE("pad and slice are one collective_permute of what crosses the boundaries (GSPMD 4.6)") {
  for (const std::int64_t devices : {2, 3, 4, 8})
    for (const std::int64_t n : {16, 21}) {
      const auto shifted = run(n, devices, [&](value x) { return slice(pad(x, {1}, {0}), {0}, {n}); });
      CHECK(shifted.collectives == halo);
      CHECK(shifted.bytes == 8);
      CHECK(shifted.messages == 1);
      for (std::int64_t i = 0; i < n; ++i) CHECK(shifted.result[static_cast<std::size_t>(i)] == static_cast<double>(i));
      // Forward and back: nothing moves, and nothing is computed.
      const auto same = run(n, devices, [&](value x) { return slice(pad(x, {2}, {3}, 9), {2}, {n + 2}); });
      CHECK(same.bytes == 0);
      CHECK(same.result[0] == 1);
      // A stencil written with slices of a padded field: one exchange, the same as with shifts.
      const auto sum = run(n, devices, [&](value x) {
        const value p = pad(x, {1}, {1});
        return slice(p, {0}, {n}) + slice(p, {1}, {n + 1}) * 2.0 + slice(p, {2}, {n + 2});
      });
      CHECK(sum.collectives == halo);
      CHECK(sum.bytes == (devices == 2 ? 8 : 16));
      for (std::int64_t i = 0; i < n; ++i)
        CHECK(sum.result[static_cast<std::size_t>(i)] == static_cast<double>(i + 2 * (i + 1) + (i + 1 < n ? i + 2 : 0)));
      // Any number of movements.
      const auto turned = run(n, devices, [&](value x) { return roll(flip(roll(flip(x, {0}), 3, along(0)), {0}), 4, along(0)); });
      CHECK(turned.collectives.size() == 1);
      CHECK(turned.bytes == 8);
      for (std::int64_t i = 0; i < n; ++i)
        CHECK(turned.result[static_cast<std::size_t>(i)] == static_cast<double>((i + n - 1) % n + 1));
    }
}

TEST_CASE("a tensor that is cut and put together again round its end is a roll: one collective_permute (GSPMD 4.6)") {
  for (const std::int64_t n : {12, 13})
    for (std::int64_t k = 1; k < n; ++k) {
      const auto rotated = run(n, 4, [&](value x) { return concatenate({slice(x, {k}, {n}), slice(x, {0}, {k})}, 0); });
      const auto rolled = run(n, 4, [&](value x) { return roll(x, -k, along(0)); });
      CHECK(rotated.collectives == rolled.collectives);
      CHECK(rotated.bytes == rolled.bytes);
      CHECK(rotated.result == rolled.result);
      CHECK(rotated.result[0] == static_cast<double>(k + 1));
      if (n == 12 && k <= 3) CHECK(rotated.bytes == 8 * k);
    }
  const auto same = run(12, 4, [](value x) {
    return concatenate({slice(x, {0}, {5}), slice(x, {5}, {7}), slice(x, {7}, {12})}, 0);
  });
  CHECK(same.bytes == 0);
  const auto other = run(12, 4, [](value x) { return concatenate({slice(x, {5}, {12}), slice(x, {1}, {6})}, 0); });  // not a roll
  CHECK(other.result[7] == 2);
}

TEST_CASE("what is read, written down or lost between two movements stays between them") {
  const auto lost = run(16, 4, [](value x) { return pad(slice(x, {1}, {15}), {1}, {1}); });  // the ends are zeros
  CHECK(lost.result.front() == 0);
  CHECK(lost.result.back() == 0);
  CHECK(lost.result[7] == 8);
  const auto other = run(16, 4, [](value x) { return pad(pad(x, {1}, {0}, 5), {1}, {0}, 6); });  // two constants
  CHECK(other.result[0] == 6);
  CHECK(other.result[1] == 5);
  CHECK(other.result[2] == 1);
  const auto alike = run(16, 4, [](value x) { return pad(pad(x, {1}, {0}, 5), {1}, {0}, 5); });
  CHECK(alike.collectives.size() == 1);

  dynamic::builder p(dynamic::mesh({{"x", 4}}));
  const value x = p.input(dynamic::input<double>({16}, {"x"}));
  const value padded = pad(x, {1}, {0});
  p.output(slice(padded, {0}, {16}));
  p.output(padded);
  CHECK(p.compile().collectives().size() == 2);
  dynamic::builder q(dynamic::mesh({{"x", 4}}));
  const value y = q.input(dynamic::input<double>({16}, {"x"}));
  q.output(slice(q.reshard(pad(y, {1}, {0}), {""}), {0}, {16}));  // the user requests the whole value
  CHECK(q.compile().traffic().in(collective_kind::all_gather).collectives == 1);
}

TEST_CASE("composed in a compiled program, in a loop, and in a gradient") {
  using ring = mesh<axis<"x", 4>>;
  constexpr auto ahead = [](auto x) { return slice(pad(x, {1, 0}, {0, 0}), {0, 0}, {16, 3}); };
  using made = gspmd::compile<ahead, ring, input<float, shape<16, 3>, split<"x", _>>>;
  static_assert(made::collectives == collectives{collective_permute<"x">});
  static_assert(made::traffic.bytes == 3 * 4 && made::traffic.messages == 1);

  const auto looped = run(12, 3, [](value x) {
    return fori_loop(
        5, [](value, value t) { return slice(pad(t, {1}, {0}, 7), {0}, {12}); }, x);
  });
  CHECK(looped.bytes == 5 * 8);
  CHECK(looped.result[4] == 7);
  CHECK(looped.result[5] == 1);
  const auto back = run(12, 3, [](value x) { return grad(sum(slice(pad(x, {2}, {0}), {0}, {12}) * x), x); });
  for (std::size_t i = 0; i < 12; ++i)
    CHECK(back.result[i] == (i >= 2 ? static_cast<double>(i - 1) : 0) + (i < 10 ? static_cast<double>(i + 3) : 0));
}
