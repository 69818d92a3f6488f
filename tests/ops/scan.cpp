// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: dynamic
// scan over rows that are split along its dim: the messages, and the results of a single device.
#include <doctest/doctest.h>

#include <string>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

namespace {

using namespace gspmd;

constexpr auto sums = [](value h, value xs) {
  return scan(
      [](value c, value x) {
        const value next = c * 0.5 + x;
        return std::tuple{next, next};
      },
      h, xs);
};

dynamic::program planned(const std::vector<std::string>& carried, const std::vector<std::string>& rows, bool allowed,
                         std::int64_t n, std::int64_t width) {
  dynamic::builder b(dynamic::mesh({{"x", 4}}));
  b.graph().allow_replication = allowed;
  const value h = b.input(dynamic::input<double>({width}, carried));
  const value xs = b.input(dynamic::input<double>({n, width}, rows));
  const auto [last, stacked] = sums(h, xs);
  b.output(last);
  b.output(stacked);
  return b.compile();
}

void compare(const dynamic::program& p, std::int64_t n, std::int64_t width) {
  const auto at = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
  std::vector<double> h(at(width, 1)), xs(at(n, width)), rows(at(n, width));
  for (std::size_t i = 0; i < h.size(); ++i) h[i] = static_cast<double>(i % 5) - 2;
  for (std::size_t i = 0; i < xs.size(); ++i) xs[i] = static_cast<double>(i * 7 % 11) - 5;
  const auto results = p.run(simulated{}, std::vector<const void*>{h.data(), xs.data()});
  for (std::size_t i = 0; i < xs.size(); ++i) {
    auto& c = h[i % h.size()];
    c = c * 0.5 + xs[i];
    rows[i] = c;
  }
  REQUIRE(results.size() == 2);
  CHECK(std::vector<double>(results[0].data<double>(), results[0].data<double>() + h.size()) == h);
  CHECK(std::vector<double>(results[1].data<double>(), results[1].data<double>() + rows.size()) == rows);
}

}  // namespace

TEST_CASE("scan: rows that the body keeps split are traded for their dim 0 once, before the loop") {
  for (const auto n : {8, 5, 3, 1})
    for (const auto width : {8, 6}) {
      CAPTURE(n);
      CAPTURE(width);
      const auto p = planned({"x"}, {"x", ""}, false, n, width);
      CHECK(p.traffic().in(collective_kind::all_to_all).collectives == 1);
      CHECK(p.traffic().collectives == 1);
      compare(p, n, width);
    }
}

TEST_CASE("scan: rows that the body needs whole are traded for their dim 0 too, and gathered one by one") {
  for (const auto n : {8, 5, 1}) {
    CAPTURE(n);
    const auto p = planned({""}, {"x", ""}, false, n, 8);
    CHECK(p.traffic().in(collective_kind::all_to_all).collectives == 1);
    CHECK(p.traffic().in(collective_kind::all_gather).collectives == n);
    compare(p, n, 8);
  }
}

TEST_CASE("scan: rows that may be whole on every device are resharded before it") {
  const dynamic::mesh m({{"x", 4}});
  const auto p = dynamic::compile([](value h, value xs) { return sums(h, reshard(xs, split<_, _>{})); }, m,
                                  dynamic::input<double>({1}, {""}), dynamic::input<double>({8, 1}, {"x", ""}));
  CHECK(p.collectives() == std::vector<collective>{all_gather<"x">});
  compare(p, 8, 1);
}

TEST_CASE("scan: rows with no other dim to split stay where they are, and are reduced one by one") {
  for (const std::string carried : {"", "x"})
    for (const auto n : {8, 5, 1}) {
      CAPTURE(n);
      const auto p = planned({carried}, {"x", ""}, false, n, 1);
      CHECK(p.traffic().in(collective_kind::all_reduce).collectives == n);
      CHECK(p.traffic().bytes == n * 12 + (carried.empty() ? 0 : 24));  // the carried value, one number, is gathered
      compare(p, n, 1);
      const auto allowed = planned({carried}, {"x", ""}, true, n, 1);  // then the rows are gathered once, if that sends less
      CHECK(allowed.traffic().bytes <= p.traffic().bytes);
      compare(allowed, n, 1);
    }
}

TEST_CASE("scan: a compiled program reads and writes rows where they are, too") {
  constexpr auto kept = [](auto h, auto xs) {
    const auto [last, stacked] = sums(h, xs);
    return std::tuple{last, reshard(stacked, split<"x", _>{})};
  };
  using step = compile<kept, mesh<axis<"x", 4>>, input<double, shape<1>>, input<double, shape<7, 1>, split<"x", _>>>;
  static_assert(step::collectives == collectives{all_reduce<"x">});
  array<double> h({1}), xs({7, 1});
  h[0] = 3;
  for (int i = 0; i < 7; ++i) xs[i] = i;
  const auto [last, stacked] = run<step>(threads{}, h, xs);
  double c = 3;
  for (int i = 0; i < 7; ++i) {
    c = c * 0.5 + i;
    CHECK(stacked[i] == c);
  }
  CHECK(last[0] == c);
}

TEST_CASE("scan: stacked rows that are wanted split stay with the device that has them") {
  const dynamic::mesh m({{"x", 4}});
  const auto p = dynamic::compile(
      [](value h, value xs) {
        const auto [last, stacked] = sums(h, xs);
        return std::tuple{last, reshard(stacked, split<"x", _>{})};
      },
      m, dynamic::input<double>({6}, {""}), dynamic::input<double>({7, 6}, {"", ""}));
  CHECK(p.traffic().collectives == 0);
  compare(p, 7, 6);
}

TEST_CASE("scan: the gradient by rows that are split is added up where they lie") {
  const dynamic::mesh m({{"x", 4}});
  const auto rows = dynamic::input<double>({8, 1}, {"x", ""});
  const auto by_rows = [](value h, value xs) {
    const auto [last, stacked] = sums(h, xs);
    return reshard(grad(sum(last * last) + sum(stacked), xs), split<"x", _>{});
  };
  const auto p = dynamic::compile(by_rows, m, dynamic::input<double>({1}, {""}), rows);
  CHECK(p.traffic().bytes <= 2 * 8 * 2 * 8);  // one row in each iteration, forward and backward
  const auto one = dynamic::compile(by_rows, dynamic::mesh({{"x", 1}}), dynamic::input<double>({1}, {""}), rows);
  const std::vector<double> h{3}, xs{1, 2, 3, 4, 5, 6, 7, 8};
  const auto a = p.run(simulated{}, std::vector<const void*>{h.data(), xs.data()});
  const auto b = one.run(serial{}, std::vector<const void*>{h.data(), xs.data()});
  for (int i = 0; i < 8; ++i) CHECK(a[0].data<double>()[i] == b[0].data<double>()[i]);
}
