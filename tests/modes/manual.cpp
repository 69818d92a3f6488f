// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Manual regions: an accepted program has the values of a naive machine's devices, and their gradients. The bytes of
// each collective are checked.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>
#include <gspmd/transform/grad.hpp>

#include "support/by_hand.hpp"
#include "support/error_of.hpp"
#include "support/manual_witness.hpp"

using namespace gspmd;
using namespace manual_law;
using caught::error_of;
using written_by_hand::same_results;

namespace manual_regions {

/// Returns a random program. `refused` counts the refused programs before it, by witness.
program_of_devices random_program(std::mt19937& random, std::array<int, 4>& refused) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::pair<int, int> meshes[] = {{2, 1}, {3, 1}, {2, 2}, {1, 3}, {2, 3}, {1, 1}, {3, 2}};
  const auto mesh = meshes[below(7)];
  program_of_devices p{{mesh.first, mesh.second}, mesh.first * mesh.second == 4 ? 4 : 6, below(4), {}, {}};
  for (int trial = 0; trial < 40 && p.ops.size() < 6; ++trial) {
    const int count = 3 + static_cast<int>(p.ops.size());
    op o{static_cast<kind>(below(static_cast<int>(kind::count))), below(count), below(count), below(3), below(2), below(4) - 1};
    if (below(3) == 0) o.a = count - 1;
    p.ops.push_back(o);
    if (const std::string words = refusal(p, false); !words.empty()) {
      const witness w = witness_of(p, static_cast<unsigned>(trial));
      CHECK_MESSAGE(w != witness::missing, words);
      ++refused[static_cast<std::size_t>(w)];
      p.ops.pop_back();
    }
  }
  // Tries each way out of the region along each axis until one is accepted: nothing, a sum, the part of a replica and
  // then a sum.
  for (int v = 0, count = 3 + static_cast<int>(p.ops.size()); v < count; ++v) {
    bool is_out = false;
    for (int way = 0; way < 9 && !is_out; ++way) {
      const auto before = p.ops.size();
      int last = v;
      for (int axis = 0; axis < 2; ++axis) {
        const int how = axis == 0 ? way % 3 : way / 3;
        if (how == 2) {
          p.ops.push_back({kind::part_r, last, last, axis, 0, 0});
          last = 2 + static_cast<int>(p.ops.size());
        }
        if (how >= 1) {
          p.ops.push_back({kind::all_reduce, last, last, axis, 0, 0});
          last = 2 + static_cast<int>(p.ops.size());
        }
      }
      p.outs.push_back(last);
      is_out = refusal(p, false).empty();
      if (is_out) break;
      p.outs.pop_back();
      p.ops.resize(before);
    }
  }
  return p;
}

TEST_CASE("random manual programs compute and differentiate as the devices of a naive machine") {
  std::mt19937 random(16);
  int ran = 0, sent = 0;
  std::array<int, 4> refused{};
  for (int k = 0; k < 150; ++k) {
    const program_of_devices p = random_program(random, refused);
    if (p.outs.empty()) continue;
    CHECK_FALSE(is_shown_wrong(p, static_cast<unsigned>(k)));
    std::vector<matrix> in;
    for (int i = 0; i < 3; ++i) {
      in.push_back(matrix::zeros(p.size, p.size));
      for (auto& e : in.back().of) e = (static_cast<double>(random() % 2001) - 1000.0) / 2000.0;
    }
    INFO("program ", k, " on ", p.on.x, "x", p.on.y, ", entry ", p.entry);
    std::string words;
    for (const auto& o : p.ops)
      words += std::to_string(static_cast<int>(o.is)) + "(" + std::to_string(o.a) + "," + std::to_string(o.b) + ";" +
               std::to_string(o.axis) + "," + std::to_string(o.dim) + "," + std::to_string(o.by) + ") ";
    INFO(words);
    const auto program = dynamic::compile(
        [&](value a, value b, value c) {
          const value y = p.build(a, b, c);
          auto g = grad(y, std::tuple{a, b, c});
          return std::tuple{y, std::get<0>(g), std::get<1>(g), std::get<2>(g)};
        },
        dynamic::mesh({{"x", p.on.x}, {"y", p.on.y}}).with({.checked = true}), dynamic::input<double>({p.size, p.size}),
        dynamic::input<double>({p.size, p.size}), dynamic::input<double>({p.size, p.size}));
    const auto result = k % 8 == 0 ? program.run(threads{}, in[0].of, in[1].of, in[2].of)
                                   : program.run(simulated{}, in[0].of, in[1].of, in[2].of);
    const double loss = p.loss(in);
    CHECK(result[0].data<double>()[0] == doctest::Approx(loss).epsilon(1e-9));
    for (int i = 0; i < 3; ++i) {  // along a direction that is nonzero everywhere
      std::vector<matrix> up = in, down = in;
      double found = 0;
      for (std::size_t e = 0; e < in[0].of.size(); ++e) {
        const double d = 0.1 + static_cast<double>(random() % 10) * 0.2;
        up[static_cast<std::size_t>(i)].of[e] += 1e-5 * d;
        down[static_cast<std::size_t>(i)].of[e] -= 1e-5 * d;
        found += d * result[static_cast<std::size_t>(i) + 1].data<double>()[e];
      }
      const double slope = (p.loss(up) - p.loss(down)) / 2e-5;
      CHECK(found == doctest::Approx(slope).epsilon(1e-5));
    }
    ++ran;
    sent += program.traffic().bytes > 0 ? 1 : 0;
  }
  CHECK(ran > 120);
  CHECK(sent > 80);
  CHECK(refused[static_cast<std::size_t>(witness::found)] > 2000);
}

using varying = split<"x", _>;

TEST_CASE("a permutation sends what one device holds, whoever gets nothing, and what is started is finished") {
  const auto program = dynamic::compile(
      [](value x) {
        return manual<"x", "y">(
            [](value v) {
              auto it = local::start(local::permute<"y">(v, {{0, 2}, {2, 1}}));
              const value square = einsum<"ab,cb->ac">(v, v);
              return square + local::finish(std::move(it));
            },
            takes<split<"x", "y">>{}, gives<split<"x", "y">>{})(x);
      },
      dynamic::mesh({{"x", 2}, {"y", 3}}), dynamic::input<double>({2, 3}));
  const std::vector<double> in{1, 2, 3, 4, 5, 6}, expected{1, 7, 10, 16, 31, 40};
  for (const auto& result : {program.run(threads{}, in), program.run(simulated{}, in)})
    for (std::size_t i = 0; i < 6; ++i) CHECK(result[0].data<double>()[i] == expected[i]);
  CHECK(program.traffic().in(collective_kind::collective_permute).bytes == 8);
  CHECK(program.traffic().in(collective_kind::collective_permute).messages == 1);
  const auto steps = program.view().steps;  // independent work runs while the message is in progress
  const auto place_of = [&](auto is) { return std::find_if(steps.begin(), steps.end(), is) - steps.begin(); };
  using detail::step_work;
  const auto works = [](step_work work) {
    return [work](const detail::plan_step& s) { return detail::facts_of(s).work == work; };
  };
  const auto start = place_of(works(step_work::moves)), end = place_of(works(step_work::ends_moving));
  REQUIRE(end < static_cast<std::ptrdiff_t>(steps.size()));
  CHECK(start + 1 < end);
  CHECK(std::count_if(steps.begin() + start, steps.begin() + end, works(step_work::computes)) > 0);
  const auto mistake = error_of([] {
    static_cast<void>(dynamic::compile(
        [](value x) {
          return manual<"x">([](value v) { return local::permute<"x">(v, {{0, 1}}); }, takes<varying>{}, gives<varying>{})(x);
        },
        dynamic::mesh({{"x", 65}}), dynamic::input<double>({65, 2})));
  });
  CHECK(mistake.find("`x` has 65 devices, and a list names 64 at most; write rotate or shift_devices") != std::string::npos);
}

TEST_CASE("places, permutations and broadcasts go along several axes at once") {
  const auto program = dynamic::compile(
      [](value x) {
        return manual<"x", "y">(
            [](value v) {
              const value place =
                  cast<double>(local::axis_index<"x,y">(v)) + static_cast<double>(10 * local::axis_size<"x,y">(v));
              const value all = local::broadcast<"x,y", state::replica>(v, 3);
              return local::permute<"x,y">(v, {{0, 2}, {2, 1}, {3, 3}}) + all + broadcast_in_dim(place, {1, 2}, {});
            },
            takes<split<"x,y", _>>{}, gives<split<"x,y", _>>{})(x);
      },
      dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::input<double>({4, 2}));
  const std::vector<double> in{1, 2, 3, 4, 5, 6, 700, 800}, expected{740, 840, 746, 847, 743, 844, 1443, 1643};
  for (const auto& result : {program.run(threads{}, in), program.run(simulated{}, in)})
    for (std::size_t i = 0; i < 8; ++i) CHECK(result[0].data<double>()[i] == expected[i]);
}

TEST_CASE("groups of devices within an axis are its parts, contiguous and strided") {
  const std::vector<double> in{1, 2, 3, 4, 5, 6, 7, 8};
  const auto sums = []<dim_spec Part>() {
    return dynamic::compile(
        [](value x) {
          return manual<"x">([](value v) { return local::all_reduce<Part, state::replica>(v) + 0.0 * v; }, takes<varying>{},
                             gives<varying>{})(x);
        },
        dynamic::mesh({{"x", 4}}).with_parts({"x:(2)2"}), dynamic::input<double>({4, 2}));
  };
  const auto near = sums.operator()<"x:(2)2">().run(threads{}, in), far = sums.operator()<"x:(1)2">().run(threads{}, in);
  const std::vector<double> pairs{4, 6, 4, 6, 12, 14, 12, 14}, strided{6, 8, 10, 12, 6, 8, 10, 12};
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(near[0].data<double>()[i] == pairs[i]);
    CHECK(far[0].data<double>()[i] == strided[i]);
  }
  CHECK(sums.operator()<"x:(2)2">().traffic().bytes == 16);
}

TEST_CASE("a bias is counted once beside a partial sum") {
  const auto program = dynamic::compile(
      [](value x, value bias) {
        return manual<"x">(
            [](value v, value b) {
              const value terms = local::to_partial<"x">(v);
              return local::all_reduce<"x">(terms + local::to_partial<"x", state::replica>(b));
            },
            takes<varying, replica<"x">>{}, gives<>{})(x, bias);
      },
      dynamic::mesh({{"x", 3}}), dynamic::input<double>({3, 2}), dynamic::input<double>({1, 2}));
  const auto result = program.run(simulated{}, std::vector<double>{1, 2, 3, 4, 5, 6}, std::vector<double>{10, 20});
  CHECK(result[0].data<double>()[0] == 19);
  CHECK(result[0].data<double>()[1] == 32);
}

TEST_CASE("collectives of each row, in a loop over rows, are those of all rows at once") {
  // The collectives of a function of one row are written for all rows with one more dim, or with a scan. (vmap does not
  // exist there.)
  const auto of_row = [](value row, int dim) {  // [..,2] of [..,4]
    const auto whole = local::all_gather<"x", state::replica>(row, dim);
    const auto norm = local::all_reduce<"x", state::replica>(row * row);
    const auto moved = local::permute<"x">(tanh(row), {{1, 0}}) + local::rotate<"x">(row);
    const auto part = local::reduce_scatter<"x">(local::to_varying<"x">(whole * whole), dim);
    return (moved + norm) * part;
  };
  const auto with_rows = [](auto f) {
    return [=](const std::vector<value>& in) {
      const auto turned = [=](value a, value w) { return transpose(f(a, w), {1, 0}); };
      return manual<"x">(turned, takes<split<_, "x">, replica<"x">>{}, gives<split<"x", _>>{})(in[0], in[1]);
    };
  };
  const auto in_loop = [=](value a, value w) {
    const auto body = [=](value sum, value row) { return std::tuple{sum + row, of_row(row, 0) * sum}; };
    return std::get<1>(scan(body, local::to_varying<"x">(w), a));
  };
  const auto all_rows = [=](value a, value w) {
    const value before = cumsum(a, 0, {.exclusive = true});
    return of_row(a, 1) * (before + broadcast_in_dim(local::to_varying<"x">(w), {4, 2}, {1}));
  };
  const auto [by_loop, at_once] = same_results(with_rows(in_loop), with_rows(all_rows), dynamic::mesh({{"x", 2}}),
                                               {dynamic::input<double>({4, 4}), dynamic::input<double>({2})});
  const auto sent_by = [&](auto f) {
    return dynamic::compile(
               [&](value a, value w) {
                 return with_rows(f)({a, w});
               },
               dynamic::mesh({{"x", 2}}), dynamic::input<double>({4, 4}), dynamic::input<double>({2}))
        .traffic()
        .bytes;
  };
  CHECK(sent_by(in_loop) == sent_by(all_rows));
  // The gradient of a loop runs its iterations again, with the same messages.
  CHECK(by_loop.traffic().bytes == at_once.traffic().bytes + sent_by(in_loop));
}

}  // namespace manual_regions
