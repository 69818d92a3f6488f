// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// The values that a checked run compares, and how it says where devices differ.
#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/session.hpp>
#include <gspmd/dynamic/strict_program.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>

#include "support/error_of.hpp"

using namespace gspmd;
using caught::error_of;

namespace checked_values {

/// Half of a number, and of the second one of device 4 the double: each device in turn calls it for `of_device`
/// numbers.
struct liar {
  std::atomic<std::int64_t>* calls;
  std::int64_t of_device;
  double operator()(double v) const {
    const auto call = (*calls)++;
    return call / of_device == 4 && call % of_device == 1 ? 2 * v : v / 2;
  }
};

/// The report of a run in lockstep on a region whose argument w, [rows,4], is one on all devices, and that gives f(w)
/// times x.
template <class Region>
std::string said_of(std::int64_t rows, const dynamic::mesh& m, Region region) {
  const auto program = dynamic::compile(
      [&](value x, value w) {
        return manual<"x", "one", "y">([&](value a, value v) { return a * region(v); },
                                       takes<split<"x,y", _>, held<replica<"x">, replica<"y">>>{},
                                       gives<split<"x,y", _>>{})(x, w);
      },
      m, dynamic::input<double>({6 * rows, 4}), dynamic::input<double>({rows, 4}));
  const std::vector<double> x(static_cast<std::size_t>(24 * rows), 1.0), w(static_cast<std::size_t>(4 * rows), 1.0);
  return error_of([&] { program.run(simulated{}, x, w); });
}

}  // namespace checked_values
using namespace checked_values;

TEST_CASE("what would be in registers only, or in rows of a block, is looked at too") {
  const dynamic::mesh m({{"x", 2}, {"one", 1}, {"y", 3}});
  std::atomic<std::int64_t> calls{0};
  const auto in_a_loop = [&](value w) { return map(liar{&calls, 4}, w); };
  CHECK(said_of(1, m, in_a_loop) == "no error");
  calls = 0;
  const auto found = said_of(1, m.with({.checked = true}), in_a_loop);
  CHECK_MESSAGE(caught::contains(found, "map at "), found);
  CHECK_MESSAGE(
      caught::contains(found,
                       "devices hold different data of a value that must be equal on all devices: at [0,1] device 4 has 2 and "
                       "device 3 has 0.5, along `y`: (x=1, y=1) and (x=1, y=0)"),
      found);

  constexpr std::int64_t rows = 1 << 15;  // more than a block
  const auto by_rows = [&](value w) {
    const value y = map(liar{&calls, 4 * rows}, w);
    return y / broadcast_in_dim(sum(y, 1), {rows, 4}, {0});
  };
  calls = 0;
  CHECK(said_of(rows, m, by_rows) == "no error");
  calls = 0;
  const auto found_in_rows = said_of(rows, m.with({.checked = true}), by_rows);
  CHECK_MESSAGE(caught::contains(found_in_rows, "map at "), found_in_rows);
}

TEST_CASE("two devices are named that differ along one axis, with their places") {
  dynamic::builder b(dynamic::mesh({{"x", 2}, {"y", 3}}).with({.checked = true}));
  dynamic::strict_program p(b, "");
  const value rows = b.input(dynamic::input<double>({6, 2})), scale = b.input(dynamic::input<double>({2}));
  p.input(rows, {{axis_state{state::shard, 0}, {state::replica}}});
  p.input(scale, {{axis_state{state::replica}, {state::invariant}}});
  b.output(einsum("bd,d->bd", rows, p.transition(scale, transition_kind::convert, "y", {state::invariant}, {state::replica})));
  const auto scaled = p.compile();
  // The second number of device d is `second[d]`.
  const auto given = [&](const std::vector<double>& second) {
    return error_of([&] {
      launch(threads{}, 6, [&](auto& comm) {
        std::vector<double> a(6, 1.0), s{1, second[static_cast<std::size_t>(comm.device(0))]}, y(6);
        dynamic::session session(scaled);
        const void* const in[] = {a.data(), s.data()};
        void* const out[] = {y.data()};
        session.run(comm, in, out);
      });
    });
  };
  CHECK(given({2, 2, 2, 2, 2, 2}) == "no error");
  const auto ends_with = [](const std::string& text, const std::string& end) { return text.ends_with(end); };
  const auto by_x = given({2, 2, 2, 5, 5, 5}), by_y = given({2, 2, 5, 2, 2, 5}), one = given({2, 2, 2, 2, 2, 7});
  CHECK_MESSAGE(ends_with(by_x, "at [1] device 3 has 5 and device 0 has 2, along `x`: (x=1, y=0) and (x=0, y=0)"), by_x);
  CHECK_MESSAGE(ends_with(by_y, "at [1] device 2 has 5 and device 0 has 2, along `y`: (x=0, y=2) and (x=0, y=0)"), by_y);
  CHECK_MESSAGE(ends_with(one, "at [1] device 5 has 7 and device 3 has 2, along `y`: (x=1, y=2) and (x=1, y=0)"), one);
}
