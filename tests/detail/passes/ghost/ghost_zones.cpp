// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive
// group: random
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "gspmd/comm/threads.hpp"
#include "gspmd/detail/passes/list/program_to_plan.hpp"
#include "gspmd/dynamic.hpp"
#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/ops/ghost_zones.hpp"
#include "gspmd/report/network.hpp"
#include "gspmd/transform/grad.hpp"
#include "gspmd/windows.hpp"
#include "support/all_operators.hpp"
#include "support/evaluate_program.hpp"
#include "support/run_random.hpp"
#include "support/traced.hpp"

// Several sweeps per exchange (`ghost`): random stencils in loops, compared with the naive evaluation of the original
// loop, on simulated devices with NaN in all padding. The messages are compared with closed forms.

using namespace gspmd;

namespace {

using place = std::vector<std::int64_t>;

/// A loop over fields of equal shape. Its body reads them at offsets, also beyond their ends.
class random_loop {
 public:
  reference::traced program;
  int trips = 0, sweeps = 0;

  explicit random_loop(std::uint64_t seed, const std::vector<int>& sizes) : program(sizes), random_(seed) {
    const int rank = random_.between(1, 3);
    for (int d = 0; d < rank; ++d) shape_.push_back(random_.between(1, rank == 1 ? 14 : rank == 2 ? 8 : 5));
    type_ = random_.chance(70) ? dtype::f64 : dtype::s32;
    detail::annotation split;
    split.layout.add_split(0, random_.between(0, rank - 1));
    if (random_.chance(60)) split.layout.add_split(1, random_.between(0, rank - 1));
    trips = random_.between(0, 6);
    sweeps = random_.between(2, 5);
    const int fields = random_.between(1, 2), fixed = random_.between(0, 2);
    for (int k = 0; k < fields + fixed; ++k) {
      const value x = program.input(numbers());
      auto& n = program.g.nodes[static_cast<std::size_t>(x.id())];
      n.annotated = k < fields || random_.chance(50);
      n.annotation = split;
      if (!n.annotated) n.annotation = {};
      (k < fields ? carried_ : fixed_).push_back(x);
    }
    const int loop = detail::open_loop(program.g, trips, here());
    detail::set_ghost_sweeps(program.g.nodes[static_cast<std::size_t>(loop)], sweeps);
    detail::add_pass<detail::ghost_zones_pass>(program.g);
    std::vector<int> held;
    for (auto& c : carried_) held.push_back(detail::add_carry(program.g, c.id(), here()));
    for (std::size_t k = 0; k < held.size(); ++k) carried_[k] = {&program.g, held[k]};
    const int counter = broadcast(converted(loop));
    std::vector<int> next;
    for (std::size_t k = 0; k < held.size(); ++k) {
      int y = sum(counter);
      if (random_.chance(30)) y = add(detail::code_of<detail::add_op>, moved(y), sum(counter));  // of two stages
      next.push_back(y);
    }
    if (held.size() == 2 && random_.chance(30)) next[0] = held[1];  // fields that alternate
    for (std::size_t k = 0; k < held.size(); ++k)
      results_.push_back(detail::add_loop_result(program.g, held[k], next[k], here()));
    program.g.open_region = -1;
    for (const int r : results_) program.output({&program.g, r});
  }

 private:
  static detail::location here() { return detail::location::current(); }
  reference::host_array numbers() {
    reference::host_array x(type_, shape_);
    for (auto& r : x.reals) r = random_.between(-9, 9);
    for (auto& i : x.ints) i = random_.between(-9, 9);
    return x;
  }
  int add(const detail::operator_code& op, int a, int b) { return detail::add_elementwise(program.g, op, {a, b}, here()); }
  int number(int n) { return detail::add_constant(program.g, type_, reference::traced::extents_of(shape_), n, n, here()); }
  int converted(int x) { return detail::add_elementwise(program.g, detail::code_of<detail::cast_op>, {x}, here(), type_); }
  int broadcast(int x) { return detail::add_broadcast(program.g, x, reference::traced::extents_of(shape_), {}, here()); }

  /// Reads at an offset along one dim or several dims.
  int moved(int x) {
    for (int n = random_.chance(30) ? 2 : 1; n > 0; --n) {
      const int dim = random_.between(0, static_cast<int>(shape_.size()) - 1), by = random_.between(-2, 2);
      if (random_.chance(20)) {
        x = detail::add_roll(program.g, x, by, dim, here());
        continue;
      }
      const auto beyond = static_cast<detail::continuation>(random_.between(0, 4));
      x = detail::add_shift(program.g, x, dim, by, here(), beyond,
                            beyond == detail::continuation::none ? random_.between(-1, 3) : 0);
    }
    return x;
  }
  int term(int counter) {
    const int what = random_.between(0, 9);
    if (what == 0) return counter;
    if (what == 1) {
      const int dim = random_.between(0, static_cast<int>(shape_.size()) - 1);
      return detail::add_iota(program.g, type_, reference::traced::extents_of(shape_), dim, here());
    }
    if (what == 2 && !fixed_.empty()) return moved(random_.one_of(fixed_).id());
    if (what == 3 && !fixed_.empty()) return random_.one_of(fixed_).id();
    const int x = moved(random_.one_of(carried_).id());
    if (what == 4) return add(detail::code_of<detail::max_op>, x, random_.one_of(carried_).id());
    if (what > 6) return x;
    return add(detail::code_of<detail::multiply_op>, number(random_.between(-2, 2)), x);
  }
  int sum(int counter) {
    int y = term(counter);
    for (int n = random_.between(0, 3); n > 0; --n) y = add(detail::code_of<detail::add_op>, y, term(counter));
    return y;
  }

  reference::random_numbers random_;
  place shape_;
  dtype type_ = dtype::f64;
  std::vector<value> carried_, fixed_;
  std::vector<int> results_;
};

}  // namespace

TEST_CASE("random loops of stencils with ghost zones equal the loop as it was written") {
  const auto first = reference::setting("GSPMD_SEED", 1), count = reference::programs(600);
  int widened = 0, sending = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    CAPTURE(seed);
    reference::random_numbers random(seed * 3);
    random_loop made(seed, {random.between(1, 4), random.between(1, 3)});
    auto& g = made.program.g;
    REQUIRE_MESSAGE(!g.failed(), std::string(g.error.view()));
    const reference::evaluation want(g, made.program.inputs);
    std::vector<int> outputs(g.outputs.begin(), g.outputs.end());
    const bool is_plain = seed % 8 == 0;  // the same loop without the pass
    if (is_plain) g.passes = {};
    g = detail::program_to_plan_at_run_time(g);
    if (g.failed()) {
      FAIL_CHECK(std::string(g.error.view()));
      continue;
    }
    int blocks = 0;
    for (const auto& n : g.nodes) blocks += n.op == detail::code_of<detail::ghost_blocks_op> ? 1 : 0;
    widened += blocks > 0 ? 1 : 0;
    if (is_plain) CHECK(blocks == 0);
    const reference::partitioned_run run(made.program);
    sending += run.collectives > 0 ? 1 : 0;
    if (!run.wrong.empty()) {
      FAIL_CHECK(run.wrong);
      continue;
    }
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const auto wrong = reference::difference(run.outputs[k], want.values[static_cast<std::size_t>(outputs[k])], 0);
      if (!wrong.empty()) FAIL_CHECK(wrong << ", of output " << k);
    }
  }
  std::printf("%d loops of %d in blocks, %d send\n", widened, static_cast<int>(count), sending);
  CHECK(widened > static_cast<int>(count) / 3);
}

namespace {

/// A damped wave: two fields, a constant field, a counter, and a different boundary at each side.
value waves(int trips, std::int64_t sweeps, value u, value v, value rigid) {
  const auto body = [=](value i, value p, value q) {
    const stencil_field around(p, {{boundary::constant(1), boundary::edge()}, boundary::wrap()});
    const value next = stencil<1, 2>(
        [](auto a, auto b, auto k) {
          return 1.9 * a(0, 0) - 0.9 * b(0, 0) + k(1, 0) * (a(-1, 0) + a(1, 0) + a(0, -2) + a(0, 1) - 4.0 * a(0, 0));
        },
        around, q, rigid);
    return std::tuple{next + broadcast_to(cast<double>(i), {18, 15}) * 0.01, p};
  };
  return std::get<0>(fori_loop(trips, ghost(sweeps, body), u, v));
}
value heat(int trips, std::int64_t sweeps, value u) {
  const auto body = [](value, value t) {
    return stencil<1, 1>([](auto at) { return at(0, 0) + 0.2 * (at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1) - 4.0 * at(0, 0)); },
                         stencil_field(t, {boundary::edge()}));
  };
  return sweeps < 0 ? fori_loop(trips, ghost(body), u) : fori_loop(trips, ghost(sweeps, body), u);
}
std::vector<double> some_numbers(std::size_t n, double from) {
  std::vector<double> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = from + static_cast<double>(i * i % 101) / 7;
  return x;
}

}  // namespace

TEST_CASE("several sweeps on one exchange: as many bits, and as many times fewer messages") {
  const dynamic::mesh m({{"x", 3}, {"y", 3}});
  const std::int64_t n = 6, o = 5, trips = 12;  // of a shard of 18 x 15
  const auto in = dynamic::input<double>({18, 15}, {"x", "y"});
  const auto u = some_numbers(18 * 15, -3), v = some_numbers(18 * 15, 2), rigid = some_numbers(18 * 15, 0.01);
  const auto plain = dynamic::compile([](value x) { return heat(12, 1, x); }, m, in);
  const auto plain_waves = dynamic::compile([](value x, value y, value k) { return waves(7, 1, x, y, k); }, m, in, in, in);
  const auto want = plain.run(simulated{}, u), want_waves = plain_waves.run(simulated{}, u, v, rigid);
  CHECK(plain.traffic().messages == trips * 4);
  for (const std::int64_t k : {2, 3, 4, 5, 12, 100}) {
    CAPTURE(k);
    const auto wide = dynamic::compile([k](value x) { return heat(12, k, x); }, m, in);
    std::int64_t bytes = 0;
    const auto rounds = (trips + k - 1) / k;
    for (std::int64_t done = 0; done < trips; done += k) {
      const auto r = std::min(k, trips - done);
      bytes += (2 * r * o + 2 * r * (n + 2 * r)) * 8;  // columns, with the halo of the rows
    }
    if (k <= o) {  // halo buffers wider than a shard come from devices further away
      CHECK(wide.traffic().bytes == bytes);
      CHECK(wide.traffic().messages == rounds * 4);
    }
    const auto leapfrog = [k](value p, value q) {  // q is one sweep older than p
      const auto body = [](value, value a, value b) { return std::tuple{shift(a, 1, along(0)) + shift(a, -1, along(0)) - b, a}; };
      return fori_loop(2 * k, ghost(k, body), p, q);
    };
    const auto rows = dynamic::input<double>({18, 15}, {"x", ""});
    const auto two_fields = dynamic::compile(leapfrog, m, rows, rows);
    if (k <= n) CHECK(two_fields.traffic().bytes == 2 * (2 * k + 2 * (k - 1)) * 15 * 8);
    const auto wide_waves = dynamic::compile([k](value x, value y, value z) { return waves(7, k, x, y, z); }, m, in, in, in);
    for (int backend = 0; backend < 2; ++backend) {
      const auto got = backend == 0 ? wide.run(simulated{}, u) : wide.run(threads{}, u);
      const auto got_waves = backend == 0 ? wide_waves.run(simulated{}, u, v, rigid) : wide_waves.run(threads{}, u, v, rigid);
      CHECK(std::memcmp(got[0].data<double>(), want[0].data<double>(), u.size() * sizeof(double)) == 0);
      CHECK(std::memcmp(got_waves[0].data<double>(), want_waves[0].data<double>(), u.size() * sizeof(double)) == 0);
    }
  }
}

TEST_CASE("the time of a network chooses how many sweeps go on one exchange") {
  const auto sweeps_on = [](double latency, std::int64_t extent) {
    const network net(1e11, {{"x", topology::switched, 1e10, latency}});
    const auto step = dynamic::compile([](value x) { return heat(96, -1, x); }, dynamic::mesh({{"x", 4}}).with({.network = net}),
                                       dynamic::input<double>({extent, extent}, {"x", ""}));
    return 96 * 2 / step.traffic().messages;
  };
  CHECK(sweeps_on(0, 64) == 1);
  CHECK(sweeps_on(1e-6, 4096) == 1);
  const auto some = sweeps_on(1e-6, 64), more = sweeps_on(1e-4, 64);
  CHECK(some > 1);
  CHECK(more > some);
  // Without information about a network, messages cost nothing.
  const auto step = dynamic::compile([](value x) { return heat(96, -1, x); }, dynamic::mesh({{"x", 4}}),
                                     dynamic::input<double>({64, 64}, {"x", ""}));
  CHECK(step.traffic().messages == 96 * 2);
}

TEST_CASE("ghost zones in a loop, with what that loop computes") {
  const auto nested = [](std::int64_t k) {
    return [k](value u) {
      const auto outer = [k](value i, value x) {
        const value scale = x * 0.5;
        const auto inner = [=](value j, value t) {
          return 0.25 * (shift(t, 1, along(0)) + shift(t, -1, along(0), boundary::edge()) + roll(t, 1, along(1))) + scale +
                 broadcast_to(cast<double>(i + j), {9, 7});
        };
        return fori_loop(5, ghost(k, inner), x);
      };
      return fori_loop(3, outer, u);
    };
  };
  const dynamic::mesh m({{"x", 2}, {"y", 3}});
  const auto in = dynamic::input<double>({9, 7}, {"x", "y"});
  const auto x = some_numbers(63, -5);
  const auto want = dynamic::compile(nested(1), m, in).run(simulated{}, x),
             got = dynamic::compile(nested(3), m, in).run(simulated{}, x);
  CHECK(std::memcmp(got[0].data<double>(), want[0].data<double>(), 63 * sizeof(double)) == 0);
}

TEST_CASE("gradients go through the plain loop") {
  const dynamic::mesh m({{"x", 2}, {"y", 2}});
  const auto in = dynamic::input<double>({9, 7}, {"x", "y"});
  const auto loss = [](std::int64_t k) {
    return [k](value x) {
      const value y = heat(5, k, x);
      const value l = sum(y * y * y);
      return std::tuple{y, grad(l, x)};
    };
  };
  const auto x = some_numbers(63, -5);
  const auto want = dynamic::compile(loss(1), m, in).run(simulated{}, x),
             got = dynamic::compile(loss(3), m, in).run(simulated{}, x);
  for (std::size_t k = 0; k < 2; ++k) CHECK(std::memcmp(got[k].data<double>(), want[k].data<double>(), 63 * sizeof(double)) == 0);
}

TEST_CASE("what cannot go in blocks is refused with its line") {
  const auto problem = [](auto body, auto... carried) {
    try {
      dynamic::compile([&](value u, auto... v) { return fori_loop(4, ghost<2>(body), u, v...); }, dynamic::mesh({{"x", 2}}),
                       dynamic::input<double>({6, 8}, {"x", ""}), carried...);
    } catch (const error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const auto says = [](const std::string& text, const std::string& part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const auto near = [](value u) { return shift(u, 1, along(0)) + shift(u, -1, along(0)); };
  says(problem([&](value, value u) { return near(u) * sum(u); }), "reduce at ghost_zones.cpp");
  says(problem([&](value, value u) { return near(u) * sum(u); }), "its result from a field is not a field");
  says(problem([&](value, value u) { return near(flip(u, {0})); }), "is neither elementwise nor a shift");
  says(problem([&](value, value u) { return near(map([](double x) { return x + 1; }, u)); }), "is a function of yours");
  says(problem([&](value, value u) { return near(reshard(u, split<_, "x">{})); }),
       "is sharded [_, x] where the fields are sharded [x, _]");
  says(problem(
           [&](value, value u, value v) {
             return std::tuple{near(u), v + 1.0};
           },
           dynamic::input<double>({8})),
       "carries fields of [6,8] and [8], where all need one shape");
  says(problem([&](value, value u) {
         return cond(
             sum(u) > 0.0, [](value x) { return x; }, [](value x) { return -x; }, u);
       }),
       "compute it outside of the loop, or write the loop without ghost");
  try {
    dynamic::compile([&](value n, value u) { return fori_loop(n, ghost<2>([&](value, value x) { return near(x); }), u); },
                     dynamic::mesh({{"x", 2}}), dynamic::input<std::int64_t>({}), dynamic::input<double>({6}, {"x"}));
    CHECK(false);
  } catch (const error& e) {
    says(e.what(), "computes how many trips there are");
  }
  CHECK(problem([&](value i, value u) { return near(u) * broadcast_to(cast<double>(i), {6, 8}); }).empty());
}
