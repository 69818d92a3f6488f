// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: dynamic
// A loop adds several times per iteration to a sum. The sum stays partial until the loop has ended, and is right for
// any added values.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/comm/simulated.hpp>
#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

namespace {

using namespace gspmd;
using list = std::vector<double>;

/// Whole numbers, so that sums in any order are equal.
list whole_numbers(std::int64_t n, int seed) {
  list x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(static_cast<double>((i * 7 + seed) % 5 - 2));
  return x;
}
list first_result(const dynamic::program& p, const std::vector<list>& inputs) {
  std::vector<const void*> given;
  for (const auto& x : inputs) given.push_back(x.data());
  const auto r = p.run(simulated{}, given);
  std::int64_t n = 1;
  for (const auto e : r[0].shape) n *= e;
  return {r[0].data<double>(), r[0].data<double>() + n};
}

constexpr std::int64_t rows = 20, D = 6, F = 5;

/// Returns a term that a trip adds, [D,F]: of x [rows,D] and y [rows,F], which axes split by rows, or of c [D,F], which
/// is whole or split.
value term(int kind, value i, value x, value y, value c) {
  const value t = cast<double>(i);
  switch (kind) {
    case 0: return einsum<"bd,bf->df">(x * t, y);
    case 1: return einsum<"bd,bf->df">(x, y);  // not of the loop
    case 2: return c * t;
    case 3: return c;
    case 4: return broadcast_to(t, {D, F});
    case 5: return constant<double>(c, {D, F}, 3);
    case 6: return 2.0 * einsum<"bd,bf->df">(x + t, y);
    case 7:
      return cond(
          fmod(i, 2) < 1, [&](value v) { return einsum<"bd,bf->df">(v, y); }, [&](value) { return zeros_like(c); }, x * t);
    case 8:
      return cond(
          fmod(i, 2) < 1, [&](value v) { return v * c; }, [&](value v) { return v + c; }, c * t);
    default: return broadcast_in_dim(sum(x * t, 0), {D, F}, {0});
  }
}

}  // namespace

TEST_CASE("a sum to which a loop adds twice in a trip is reduced once, after the loop") {
  const auto bytes = [](int first, int second) {
    const auto f = [=](value x, value y, value c) {
      return fori_loop(
          4, [&](value i, value g) { return (g + term(first, i, x, y, c)) + term(second, i, x, y, c); }, zeros_like(c));
    };
    const auto p = dynamic::compile(f, dynamic::mesh({{"x", 2}}), dynamic::input<double>({rows, D}, {"x", ""}),
                                    dynamic::input<double>({rows, F}, {"x", ""}), dynamic::input<double>({D, F}, {"", ""}));
    CHECK(first_result(p, {whole_numbers(rows * D, 1), whole_numbers(rows * F, 2), whole_numbers(D * F, 3)}).size() == D * F);
    return p.traffic().bytes;
  };
  CHECK(bytes(0, 6) == D * F * 8);
  CHECK(bytes(6, 7) == D * F * 8);
  CHECK(bytes(0, 2) == D * F * 8);  // one device adds the whole values
  CHECK(bytes(2, 3) == 0);
}

TEST_CASE("random sums in a row, on any mesh") {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::vector<std::vector<dynamic::mesh::axis>> meshes{
      {{"x", 2}, {"y", 2}}, {{"x", 3}, {"y", 2}}, {{"x", 1}, {"y", 4}}, {{"x", 8}, {"y", 1}}};
  const char* const splits[] = {"", "x", "y", "x,y"};
  int kept = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<int> kinds;
    for (int k = 1 + below(6); k > 0; --k) kinds.push_back(below(3) == 0 ? below(10) : 6 * below(2));
    const int trips = below(4), uses = below(3);
    const bool has_two = below(4) == 0, is_nested = below(4) == 0;
    const auto add_all = [&](value i, value g, value x, value y, value c) {
      for (const int kind : kinds) {
        const value t = term(kind, i, x, y, c);
        g = kind % 2 == 0 ? g + t : t + g;
      }
      return g;
    };
    const auto f = [&](value x, value y, value c) {
      const auto once = [&](value by) {
        if (!has_two)
          return fori_loop(
              trips, [&](value i, value g) { return add_all(i + cast<std::int64_t>(by), g, x, y, c); }, zeros_like(c));
        const auto [g, h] = fori_loop(
            trips,
            [&](value i, value a, value b) {
              return std::tuple{add_all(i + cast<std::int64_t>(by), a, x, y, c), (b + a * c) + term(0, i, x, y, c)};
            },
            zeros_like(c), zeros_like(c));
        return g + h;
      };
      const value zero = cast<double>(constant<std::int64_t>(c, {}, 0));
      const value g = is_nested ? fori_loop(
                                      2, [&](value i, value all) { return (all + once(cast<double>(i))) + c; }, zeros_like(c))
                                : once(zero);
      return uses == 0 ? g : uses == 1 ? g * c : g + einsum<"df,ef,eg->dg">(g, c, c + g);
    };
    const std::vector<list> inputs{whole_numbers(rows * D, round), whole_numbers(rows * F, round + 1),
                                   whole_numbers(D * F, round + 2)};
    const auto on = [&](const dynamic::mesh& m, const std::string& by_rows, const std::vector<std::string>& of_c) {
      return dynamic::compile(f, m, dynamic::input<double>({rows, D}, {by_rows, ""}),
                              dynamic::input<double>({rows, F}, {by_rows, ""}), dynamic::input<double>({D, F}, of_c));
    };
    const list expected = first_result(on(dynamic::mesh({{"x", 1}, {"y", 1}}), "", {"", ""}), inputs);
    const auto& axes = meshes[static_cast<std::size_t>(below(4))];
    const int of_rows = 1 + below(3), of_c = below(3);
    const auto p = on(dynamic::mesh(axes), splits[of_rows], {below(2) == 0 ? "" : splits[of_c], ""});
    CAPTURE(round);
    CAPTURE(explain(p));
    CHECK(first_result(p, inputs) == expected);
    kept += p.traffic().in(collective_kind::all_reduce).collectives == 1;
  }
  CHECK(kept > 50);
}

namespace {

constexpr auto three_trips = [](auto x, auto y, auto c) {
  return fori_loop(
      3, [&](value i, value g) { return (g + einsum<"bd,bf->df">(x, y)) + cast<double>(i) * c; }, zeros_like(c));
};
using pod = mesh<axis<"x", 2>>;
using added = compile<three_trips, pod, input<double, shape<4, 2>, split<"x", _>>, input<double, shape<4, 3>, split<"x", _>>,
                      input<double, shape<2, 3>, split<_, _>>>;
static_assert(added::traffic.in(collective_kind::all_reduce).bytes == 2 * 3 * 8);

}  // namespace

TEST_CASE("compiled, on threads: of what is whole the first device has the term") {
  array<double> x({4, 2}), y({4, 3}), c({2, 3});
  x.fill(2);
  y.fill(3);
  c.fill(5);
  const auto g = run<added>(threads{}, x, y, c);
  for (std::int64_t k = 0; k < 6; ++k) CHECK(g[k] == 3 * (4 * 2 * 3) + (0 + 1 + 2) * 5);
}
