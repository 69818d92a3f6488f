// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// A run on a checked mesh finds a device whose data contradicts a type. manual.cpp and strict_program.cpp run random
// programs on checked meshes, which shows that right programs pass.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
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

namespace checked_meshes {

std::vector<double> some(std::size_t n, int seed) {
  std::vector<double> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<double>((static_cast<int>(i) * 37 + seed * 11) % 17 - 8) / 8;
  return v;
}

/// A number that differs between devices: each call returns another number.
std::atomic<int> calls;
std::atomic<bool> lies;

TEST_CASE("on a checked mesh a kernel or an input that lies is found") {
  const auto kernel = local_op<"[b][d]->[b][d]", types<double(double)>>([](auto x, auto y) {
    const int call = calls++;
    for (std::int64_t i = 0; i < x.extent(0); ++i)
      for (std::int64_t d = 0; d < x.extent(1); ++d) y(i, d) = lies && i == 1 && d == 2 && call % 3 == 1 ? 7.5 : x(i, d) / 2;
  });
  const auto region = [=](value x, value w) {
    return manual<"x", "y">(
        [=](value a, value v) {
          const value own = kernel(v);  // a replica over x, different on each device along y
          return local::all_reduce<"x,y">(einsum("bd,bd->", tanh(own), a));
        },
        takes<held<split<"x", _>, replica<"y">>, held<split<_, "y">, replica<"x">>>{}, gives<held<>>{})(x, w);
  };
  const dynamic::mesh m({{"x", 3}, {"y", 1}});
  const auto x = dynamic::input<double>({6, 4}), w = dynamic::input<double>({2, 4});
  const auto plain = dynamic::compile(region, m, x, w), program = dynamic::compile(region, m.with({.checked = true}), x, w);
  const auto dx = some(24, 1), dw = some(8, 2);
  lies = false;
  CHECK(program.run(threads{}, dx, dw)[0].data<double>()[0] == plain.run(threads{}, dx, dw)[0].data<double>()[0]);
  CHECK(program.traffic().bytes == plain.traffic().bytes);
  lies = true;
  const auto differs = [](const std::string& text) {
    return caught::contains(text, "devices hold different data of a value that must be equal on all devices: at [1,2] device ") &&
           caught::contains(text, " has 7.5") && caught::contains(text, "local_op at ") && caught::contains(text, "checked.cpp:");
  };
  calls = 0;
  const auto in_lockstep = error_of([&] { program.run(simulated{}, dx, dw); });
  CHECK_MESSAGE(differs(in_lockstep), in_lockstep);
  CHECK(caught::contains(in_lockstep, "device 1 has 7.5 and device 0 has -0.125"));
  const auto on_threads = error_of([&] { program.run(threads{}, dx, dw); });
  CHECK_MESSAGE(differs(on_threads), on_threads);
  CHECK(error_of([&] { plain.run(threads{}, dx, dw); }) == "no error");
  lies = false;

  // Tests a program without regions, and an input: one device receives a different input.
  dynamic::builder b(dynamic::mesh({{"x", 2}}).with({.checked = true}));
  dynamic::strict_program p(b, "");
  const value rows = b.input(dynamic::input<double>({5, 4})), scale = b.input(dynamic::input<double>({4}));
  p.input(rows, {{axis_state{state::shard, 0}}});
  p.input(scale, {{axis_state{state::replica}}});
  b.output(einsum("bd,d->bd", rows, scale));
  const auto scaled = p.compile();
  const auto given = [&](double last) {
    return error_of([&] {
      launch(threads{}, 2, [&](auto& comm) {
        std::vector<double> a(12, 1.0), s{1, -0.0, std::nan(""), 4}, y(12);
        if (comm.device(0) == 1) s = {1, 0.0, -std::nan(""), last};
        dynamic::session session(scaled);
        const void* const in[] = {a.data(), s.data()};
        void* const out[] = {y.data()};
        session.run(comm, in, out);
      });
    });
  };
  CHECK(given(4) == "no error");
  CHECK(caught::contains(given(5), "input 1"));
  CHECK(caught::contains(given(5), "at [3] device 1 has 5 and device 0 has 4"));
}

TEST_CASE("a mesh stays checked, and within its memory, where a reshape cuts an axis of it") {
  const auto program = dynamic::compile(
      [](value x) {
        return reshape(x, {2, 4, 3});
      },
      dynamic::mesh({{"x", 4}}).with({.checked = true}).with({.memory = 1 << 20}), dynamic::input<double>({8, 3}, {"x", ""}));
  CHECK(program.view().mesh->axis_count() == 2);
  CHECK(program.view().is_checked);
  CHECK(program.mesh_info().request.most_memory == 1 << 20);
}

TEST_CASE("on a checked mesh devices that go different ways are asked for nothing") {
  const auto program = dynamic::compile(
      [](value x) {
        return manual<"x">(
            [](value v) {
              const value here = equal(local::axis_index<"x">(v), 1);
              const value twice = cond(
                  here, [](value a) { return tanh(a) * 2.0; }, [](value a) { return a; }, v);
              const value n = while_loop([](value i) { return i < 5; }, [](value i) { return i + 2; }, local::axis_index<"x">(v));
              return twice + broadcast_in_dim(cast<double>(n), {2}, {});
            },
            takes<split<"x">>{}, gives<split<"x">>{})(x);
      },
      dynamic::mesh({{"x", 3}}).with({.checked = true}), dynamic::input<double>({6}));
  const std::vector<double> x{1, 2, 0, 0, 5, 6}, expected{7, 8, 5, 5, 11, 12};
  const auto result = program.run(threads{}, x);
  for (std::size_t i = 0; i < 6; ++i) CHECK(result[0].data<double>()[i] == expected[i]);
}

}  // namespace checked_meshes
