// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: dynamic
// scan over rows that are split along the dim it goes over: what moves, and the same numbers as one device.
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
  const value h = b.input(dynamic::in<double>({width}, carried));
  const value xs = b.input(dynamic::in<double>({n, width}, rows));
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
  const auto results = p.run_pointers(simulated{}, std::vector<const void*>{h.data(), xs.data()});
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
                                  dynamic::in<double>({1}, {""}), dynamic::in<double>({8, 1}, {"x", ""}));
  CHECK(p.collectives() == std::vector<collective>{all_gather<"x">});
  compare(p, 8, 1);
}

TEST_CASE("scan: rows with no dim to split are refused, or gathered once before the loop where that is allowed") {
  for (const std::string carried : {"", "x"}) {
    std::string text;
    try {
      static_cast<void>(planned({carried}, {"x", ""}, false, 8, 1));
    } catch (const error& e) {
      text = e.what();
    }
    CAPTURE(text);
    CHECK(text.find("scan at scan_rows.cpp:") != std::string::npos);
    CHECK(text.find("goes over the rows of [8,1], which is sharded [x, _]: every device along `x` would hold [_, _]") !=
          std::string::npos);
    for (const auto n : {8, 5, 1}) {
      const auto p = planned({carried}, {"x", ""}, true, n, 1);
      CHECK(p.traffic().in(collective_kind::all_gather).collectives >= 1);
      CHECK(p.collectives().front() == all_gather<"x">);
      compare(p, n, 1);
    }
  }
}
