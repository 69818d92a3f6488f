// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: dynamic
// Pipelines: their results, forward and backward, equal a loop over the layers. The bytes sent equal the closed form.
// Bubbles and memory of their schedules equal the numbers in the papers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/nn/pipeline.hpp>

namespace {

using namespace gspmd;
using list = std::vector<double>;
using names = std::vector<std::string>;

dynamic::input_spec f64(std::vector<std::int64_t> shape, names sharding = {}) {
  if (sharding.empty()) return dynamic::input<double>(std::move(shape));
  return dynamic::input<double>(std::move(shape), std::move(sharding));
}
list numbers(std::int64_t n, double scale, int seed) {
  list x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(scale * static_cast<double>((i * 7 + seed) % 11 - 5));
  return x;
}
template <class Backend>
std::vector<list> run_on(Backend backend, const dynamic::program& p, const std::vector<list>& inputs) {
  std::vector<const void*> given;
  for (const auto& x : inputs) given.push_back(x.data());
  std::vector<list> found;
  for (const auto& r : p.run(backend, given)) {
    std::int64_t n = 1;
    for (const auto e : r.shape) n *= e;
    found.emplace_back(r.template data<double>(), r.template data<double>() + n);
  }
  return found;
}
std::vector<list> run_all(const dynamic::program& p, const std::vector<list>& inputs) { return run_on(simulated{}, p, inputs); }
void check_alike(const std::vector<list>& got, const std::vector<list>& want) {
  REQUIRE(got.size() == want.size());
  for (std::size_t k = 0; k < want.size(); ++k) {
    CAPTURE(k);
    REQUIRE(got[k].size() == want[k].size());
    double most = 0, largest = 0;
    for (std::size_t i = 0; i < want[k].size(); ++i) {
      CHECK(std::isfinite(got[k][i]));  // max() would ignore NaN
      most = std::max(most, std::abs(got[k][i] - want[k][i]));
      largest = std::max(largest, std::abs(want[k][i]));
    }
    CHECK(largest > 1e-3);
    CHECK(most <= 1e-12 * (1 + largest));
  }
}
std::int64_t permutes(const dynamic::program& p) { return p.traffic().in(collective_kind::collective_permute).collectives; }

/// Returns the result of `f` and its gradients with respect to weights and data.
template <class F>
auto with_gradients(F f) {
  return [f](value w, value x) {
    const value y = f(w, x);
    const auto [dw, dx] = grad(sum(y * y), std::tuple{w, x});
    return std::tuple{y, dw, dx};
  };
}
const auto layer = [](value w, value x) { return tanh(einsum<"bd,de->be">(x, w)); };

/// Applies all layers one after the other, for weights [stages, width, width] or [stages, rounds, width, width].
template <class Layer = decltype(layer)>
value one_by_one(value w, value x, std::int64_t stages, std::int64_t rounds, Layer one = layer) {
  const auto D = x.shape()[2], rows = x.shape()[0] * x.shape()[1];
  value h = reshape(x, {rows, D});
  w = reshape(w, {stages, rounds, D, D});
  for (std::int64_t r = 0; r < rounds; ++r)
    for (std::int64_t s = 0; s < stages; ++s) h = one(reshape(slice(w, {s, r, 0, 0}, {s + 1, r + 1, D, D}), {D, D}), h);
  return reshape(h, {x.shape()[0], x.shape()[1], D});
}

}  // namespace

TEST_CASE("a pipeline is a loop over its stages, with its gradients, and sends a permute in each tick of both passes") {
  struct one {
    std::int64_t stages, microbatches, rounds, devices, ticks;
  };
  for (const one& c :
       {one{2, 3, 1, 2, 4}, one{3, 4, 1, 3, 6}, one{4, 2, 1, 4, 5}, one{8, 9, 1, 8, 16}, one{4, 5, 1, 2, 8}, one{2, 1, 1, 2, 2},
        one{2, 4, 2, 2, 9}, one{4, 4, 2, 4, 11}, one{3, 5, 3, 3, 19}, one{4, 3, 2, 4, 10}, one{8, 8, 2, 4, 23}}) {
    CAPTURE(c.stages);
    CAPTURE(c.microbatches);
    CAPTURE(c.rounds);
    constexpr std::int64_t rows = 2, width = 3;
    const auto piped = [c](value w, value x) {
      return c.rounds == 1 ? pipeline<"stage">(layer, gpipe{c.stages, c.microbatches})(w, x)
                           : pipeline<"stage">(layer, circular{c.stages, c.microbatches, c.rounds})(w, x);
    };
    std::vector<std::int64_t> shape{c.stages, width, width};
    names split{"stage", "", ""};
    if (c.rounds > 1) {
      shape.insert(shape.begin() + 1, c.rounds);
      split.insert(split.begin() + 1, "");
    }
    const std::vector<list> inputs{numbers(c.stages * c.rounds * width * width, 0.2, 3),
                                   numbers(c.microbatches * rows * width, 0.3, 5)};
    const auto serial = dynamic::compile(with_gradients([c](value w, value x) { return one_by_one(w, x, c.stages, c.rounds); }),
                                         dynamic::mesh({{"one", 1}}), f64(shape), f64({c.microbatches, rows, width}));
    const auto expected = run_all(serial, inputs);
    const auto p = dynamic::compile(with_gradients(piped), dynamic::mesh({{"stage", c.devices}}), f64(shape, split),
                                    f64({c.microbatches, rows, width}));
    check_alike(run_all(p, inputs), expected);
    CHECK(permutes(p) == 2 * c.ticks);
    CHECK(p.traffic().in(collective_kind::collective_permute).bytes == permutes(p) * rows * width * 8);
    for (const auto& k : p.collectives())
      CHECK((k == collective(collective_permute<"stage">) || k == collective(all_reduce<"stage">)));
    const auto forward =
        dynamic::compile(piped, dynamic::mesh({{"stage", c.devices}}), f64(shape, split), f64({c.microbatches, rows, width}));
    CHECK(permutes(forward) == c.ticks);
    // A schedule has the same number of ticks, if a stage does the work of a tick in one tick.
    const auto forward_end = [&](const auto& schedule) {
      std::int64_t end = 0;
      const auto times = timetable(schedule);
      for (std::int64_t s = 0; s < c.stages; ++s)
        for (const auto& w : times.stage(s))
          if (w.work.pass == pipeline_pass::forward) end = std::max(end, w.begin + 1);
      return end;
    };
    CHECK(forward_end(circular{c.stages, c.microbatches, c.rounds}) == c.ticks);
  }
}

TEST_CASE(
    "with data and tensor parallelism inside, gradients of weights are reduced once, in the rounds of a circular schedule too") {
  constexpr std::int64_t D = 8, F = 16, rows = 4;
  struct one {
    std::int64_t stages, microbatches, rounds;
  };
  for (const one& c : {one{2, 4, 1}, one{2, 4, 2}, one{2, 2, 3}}) {
    CAPTURE(c.rounds);
    const auto mlp = [](std::tuple<value, value> w, value x) {
      return x + einsum<"bf,fd->bd">(relu(einsum<"bd,df->bf">(x, std::get<0>(w))), std::get<1>(w));
    };
    const auto step = [c, mlp](value up, value down, value xs) {
      const std::tuple weights{up, down};
      const value y = c.rounds == 1 ? pipeline<"stage">(mlp, gpipe{c.stages, c.microbatches})(weights, xs)
                                    : pipeline<"stage">(mlp, circular{c.stages, c.microbatches, c.rounds})(weights, xs);
      const auto [du, dd] = grad(sum(y * y), weights);
      return std::tuple{y, du, dd};
    };
    std::vector<std::int64_t> up{c.stages, D, F}, down{c.stages, F, D};
    names split_up{"stage", "", "model"}, split_down{"stage", "model", ""};
    if (c.rounds > 1) {
      for (auto* shape : {&up, &down}) shape->insert(shape->begin() + 1, c.rounds);
      for (auto* split : {&split_up, &split_down}) split->insert(split->begin() + 1, "");
    }
    const std::vector<list> inputs{numbers(c.stages * c.rounds * D * F, 0.03, 3), numbers(c.stages * c.rounds * D * F, 0.03, 1),
                                   numbers(c.microbatches * rows * D, 0.3, 5)};
    const auto whole = dynamic::compile(step, dynamic::mesh({{"stage", 1}}), f64(up), f64(down), f64({c.microbatches, rows, D}));
    const auto p = dynamic::compile(step, dynamic::mesh({{"stage", 2}, {"data", 2}, {"model", 2}}), f64(up, split_up),
                                    f64(down, split_down), f64({c.microbatches, rows, D}, {"", "data", ""}));
    check_alike(run_all(p, inputs), run_all(whole, inputs));
    const auto own = 2 * c.rounds * D * F / 2 * 8;  // bytes of a device's weights
    CHECK(p.traffic().over("data").bytes == 2 * own / 2);
    const auto ticks = c.microbatches * c.rounds + c.stages - 1;
    CHECK(permutes(p) == 2 * ticks);
    // A stage sums its result and, in the backward pass, the gradient of its x. If it recomputes, it also sums the
    // forward result again.
    CHECK(p.traffic().over("model").bytes <= 3 * ticks * (rows / 2 * D * 8));
  }
}

TEST_CASE("stages of several layers, which they need not divide; embedding and loss outside, over the axis of the stages too") {
  constexpr std::int64_t words = 12, D = 4, batch = 16;
  for (const auto& [layers, stages, rounds] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t>{6, 3, 1}, {5, 4, 1}, {7, 2, 2}, {4, 2, 2}}) {
    CAPTURE(layers);
    const auto cut = circular{stages, 4, rounds};
    const auto end = [](value table, value ws, value y) {
      const value p = log_softmax(einsum<"bd,vd->bv">(y, table), 1);
      const value loss = -1.0 * mean(p * p);
      const auto g = grad(loss, std::tuple{table, ws});
      return std::tuple{reshape(loss, {1}), std::get<0>(g), std::get<1>(g)};
    };
    const auto start = [](value table, value x) { return einsum<"bv,vd->bd">(x, table); };
    const auto piped = [&](value table, value ws, value x) {
      const auto xs = microbatches(start(table, x), 4);
      const auto run = [&](const auto& schedule) {
        return pipeline<"stage">(stage_of(layer, ws.shape()[0]), schedule)(stage_weights(ws, schedule), xs);
      };
      const value y = whole_batch(cut.rounds == 1 ? run(gpipe{cut.stages, 4}) : run(cut));
      return end(table, ws, reshard(y, split<"stage,data", "?">{}));
    };
    const auto serial = [&](value table, value ws, value x) {
      value h = start(table, x);
      for (std::int64_t l = 0; l < ws.shape()[0]; ++l) h = layer(reshape(slice(ws, {l, 0, 0}, {l + 1, D, D}), {D, D}), h);
      return end(table, ws, h);
    };
    const std::vector<list> inputs{numbers(words * D, 0.1, 2), numbers(layers * D * D, 0.2, 3), numbers(batch * words, 0.2, 5)};
    const auto whole =
        dynamic::compile(serial, dynamic::mesh({{"one", 1}}), f64({words, D}), f64({layers, D, D}), f64({batch, words}));
    const auto p = dynamic::compile(piped, dynamic::mesh({{"stage", stages}, {"data", 2}}), f64({words, D}), f64({layers, D, D}),
                                    f64({batch, words}, {"stage,data", ""}));
    check_alike(run_all(p, inputs), run_all(whole, inputs));
  }
}

TEST_CASE("a batch that is split is a batch of split microbatches, and what goes through a pipeline may be a group") {
  const auto step = [](value w, value x) {
    const auto stage = [](value v, std::tuple<value, value> in) {
      const auto [h, kept] = in;
      return std::tuple{tanh(einsum<"bd,de->be">(h, v)) + kept, kept};
    };
    const value xs = microbatches(x, 3);
    const auto [y, kept] = pipeline<"stage">(stage, gpipe{2, 3})(w, std::tuple{xs, 0.5 * xs});
    return std::tuple{whole_batch(y), whole_batch(kept)};
  };
  const auto p = dynamic::compile(step, dynamic::mesh({{"stage", 2}, {"data", 2}}), f64({2, 3, 3}, {"stage", "", ""}),
                                  f64({12, 3}, {"data", ""}));
  CHECK(p.traffic().over("data").bytes == 0);
  const auto w = numbers(18, 0.2, 1), x = numbers(36, 0.3, 4);
  const auto got = run_all(p, {w, x});
  for (std::size_t b = 0; b < 12; ++b) {
    list h(x.begin() + static_cast<std::ptrdiff_t>(3 * b), x.begin() + static_cast<std::ptrdiff_t>(3 * b + 3));
    for (std::size_t s = 0; s < 2; ++s) {
      list next(3, 0);
      for (std::size_t d = 0; d < 3; ++d)
        for (std::size_t e = 0; e < 3; ++e) next[e] += h[d] * w[(s * 3 + d) * 3 + e];
      for (std::size_t e = 0; e < 3; ++e) h[e] = std::tanh(next[e]) + 0.5 * x[3 * b + e];
    }
    for (std::size_t e = 0; e < 3; ++e) {
      CHECK(got[0][3 * b + e] == doctest::Approx(h[e]));
      CHECK(got[1][3 * b + e] == doctest::Approx(0.5 * x[3 * b + e]));
    }
  }
}

TEST_CASE(
    "in bubbles a stage computes on a microbatch, and what has no gradient at 0 has the gradients of a loop over the stages") {
  const auto stage = [](value v, value h) {
    return einsum<"bd,de->be">(h, v) / broadcast_in_dim(sqrt(sum(h * h, 1)), {h.shape()[0], h.shape()[1]}, {0});
  };
  const auto check = [](auto piped, auto serial, std::int64_t rounds) {
    CAPTURE(rounds);
    std::vector<std::int64_t> shape{3, 3, 3};
    names split{"stage", "", ""};
    if (rounds > 1) shape.insert(shape.begin() + 1, rounds), split.insert(split.begin() + 1, "");
    const std::vector<list> inputs{numbers(27 * rounds, 0.2, 3), numbers(24, 0.3, 5)};
    const auto p = dynamic::compile(piped, dynamic::mesh({{"stage", 3}}), f64(shape, split), f64({4, 2, 3}));
    const auto whole = dynamic::compile(serial, dynamic::mesh({{"one", 1}}), f64(shape), f64({4, 2, 3}));
    check_alike(run_all(p, inputs), run_all(whole, inputs));
  };
  const auto serial = [stage](std::int64_t rounds) {
    return with_gradients([stage, rounds](value w, value x) { return one_by_one(w, x, 3, rounds, stage); });
  };
  check(with_gradients([stage](value w, value x) { return pipeline<"stage">(stage, gpipe{3, 4})(w, x); }), serial(1), 1);
  check(with_gradients([stage](value w, value x) { return pipeline<"stage">(stage, circular{3, 4, 2})(w, x); }), serial(2), 2);
  const auto squares = [](value y, value t) { return mean((y - t) * (y - t)); };
  check(
      [stage, squares](value w, value x) {
        return pipeline_step<"stage">(stage, squares, eager_one_forward_one_backward{3, 4})(w, x, x);
      },
      [stage, squares](value w, value x) {
        const value loss = squares(one_by_one(w, x, 3, 1, stage), stop_gradient(x));
        const auto [dw, dx] = grad(loss, std::tuple{w, x});
        return std::tuple{loss, dw, dx};
      },
      1);
}

TEST_CASE("a step takes groups in which integers go along, of which there is no gradient") {
  const auto stage = [](value v, std::tuple<value, value> in) {
    const auto [h, counts] = in;
    return std::tuple{tanh(einsum<"bd,de->be">(h, v)) + 0.1 * cast<double>(counts), counts + 1};
  };
  const auto squares = [](std::tuple<value, value> y, value t) {
    const value d = std::get<0>(y) - t;
    return mean(d * d);
  };
  const auto stepped = [stage, squares](value w, value x, value t) {
    const auto [loss, dw, dx] = pipeline_step<"stage">(stage, squares, eager_one_forward_one_backward{2, 3})(
        w, std::tuple{x, cast<std::int64_t>(10.0 * t)}, t);
    return std::tuple{loss, dw, std::get<0>(dx)};
  };
  const auto serial = [stage, squares](value w, value x, value t) {
    const auto rows = [](value v) { return reshape(v, {6, 3}); };
    std::tuple<value, value> h{rows(x), rows(cast<std::int64_t>(10.0 * t))};
    for (std::int64_t s = 0; s < 2; ++s) h = stage(reshape(slice(w, {s, 0, 0}, {s + 1, 3, 3}), {3, 3}), h);
    const value loss = squares(h, rows(t));
    const auto [dw, dx] = grad(loss, std::tuple{w, x});
    return std::tuple{loss, dw, dx};
  };
  const std::vector<list> inputs{numbers(18, 0.2, 3), numbers(18, 0.3, 5), numbers(18, 0.125, 2)};
  const auto compiled = [](auto f, const dynamic::mesh& m, names split) {
    return dynamic::compile(f, m, f64({2, 3, 3}, std::move(split)), f64({3, 2, 3}), f64({3, 2, 3}));
  };
  check_alike(run_all(compiled(stepped, dynamic::mesh({{"stage", 2}}), {"stage", "", ""}), inputs),
              run_all(compiled(serial, dynamic::mesh({{"one", 1}}), {}), inputs));
}

TEST_CASE(
    "a step that goes backward while others go forward gives the loss and gradients of the whole, and keeps as much of any "
    "batch") {
  constexpr std::int64_t S = 3, D = 8, rows = 16;
  const auto squares = [](value y, value t) { return mean((y - t) * (y - t)); };
  const auto compiled = [&](auto f, std::int64_t M, const dynamic::mesh& m, bool is_split) {
    const names over = is_split ? names{"", "data", ""} : names{"", "", ""};
    return dynamic::compile(f, m, f64({S, D, D}, {"stage", "", ""}), f64({M, rows, D}, over), f64({M, rows, D}, over));
  };
  const dynamic::mesh pod({{"stage", 3}, {"data", 2}});
  std::vector<std::int64_t> peaks;
  for (const std::int64_t M : {1, 4, 16, 32}) {
    CAPTURE(M);
    const auto eager = [M, squares](value w, value x, value t) {
      return pipeline_step<"stage">(layer, squares, eager_one_forward_one_backward{S, M})(w, x, t);
    };
    const auto after = [M, squares](value w, value x, value t) {
      const value loss = squares(pipeline<"stage">(layer, gpipe{S, M})(w, x), t);
      const auto [dw, dx] = grad(loss, std::tuple{w, x});
      return std::tuple{loss, dw, dx};
    };
    const auto serial = [squares](value w, value x, value t) {
      const value loss = squares(one_by_one(w, x, S, 1), t);
      const auto [dw, dx] = grad(loss, std::tuple{w, x});
      return std::tuple{loss, 100.0 * dw, 100.0 * dx};
    };
    const auto enlarged = [eager](value w, value x, value t) {
      const auto [loss, dw, dx] = eager(w, x, t);
      return std::tuple{loss, 100.0 * dw, 100.0 * dx};
    };
    const std::vector<list> inputs{numbers(S * D * D, 0.2, 3), numbers(M * rows * D, 0.3, 5), numbers(M * rows * D, 0.1, 2)};
    const auto p = compiled(enlarged, M, pod, true);
    check_alike(run_all(p, inputs), run_all(compiled(serial, M, dynamic::mesh({{"stage", 1}}), false), inputs));
    CHECK(permutes(p) == 2 * (M + 2 * (S - 1)));
    CHECK(p.traffic().over("data").bytes <= 2 * D * D * 8 / 2 + 16);  // the gradient of the weights, once, and the loss
    const auto of_arguments = (3 + 1) * M * rows * D * 8 / 2;         // xs, targets and gradients, and their rows on the stages
    peaks.push_back(compiled(eager, M, pod, true).peak_bytes_per_device() - of_arguments);
    if (M == 32) CHECK(peaks.back() < compiled(after, M, pod, true).peak_bytes_per_device() - of_arguments);
  }
  CHECK(peaks[3] <= peaks[2] + 64);
}

TEST_CASE("bubbles are those of GSPMD's Tables 4 and 5, a little above what was measured there") {
  const auto near = [](double ideal, double found, double measured) {
    CHECK(100 * found == doctest::Approx(ideal).epsilon(0.001));
    CHECK(measured >= 0.89 * 100 * found);
    CHECK(measured <= 100 * found);
  };
  // Stages and microbatches of Table 4. No schedule with two passes depends on the durations of its passes.
  for (const pipeline_ticks ticks : {pipeline_ticks{1, 1}, pipeline_ticks{1, 2}, pipeline_ticks{1, 3}}) {
    near(5.88, timetable(gpipe{2, 16}, ticks).bubble_ratio(), 5.6);
    near(15.79, timetable(gpipe{4, 16}, ticks).bubble_ratio(), 14.8);
    near(8.57, timetable(gpipe{4, 32}, ticks).bubble_ratio(), 8.0);
    near(17.95, timetable(gpipe{8, 32}, ticks).bubble_ratio(), 16.5);
    near(17.95, timetable(gpipe{8, 32}, ticks).bubble_ratio(), 16.1);
  }
  near(9.86, timetable(gpipe{8, 64}).bubble_ratio(), 9.6);
  near(30.43, timetable(gpipe{8, 16}).bubble_ratio(), 29.9);
  near(9.86, timetable(circular{8, 16, 4}).bubble_ratio(), 9.0);
  near(10.49, timetable(gpipe{16, 128}).bubble_ratio(), 10.4);
  near(31.91, timetable(gpipe{16, 32}).bubble_ratio(), 31.0);
  near(10.49, timetable(circular{16, 32, 4}).bubble_ratio(), 10.0);
}

TEST_CASE("what a stage holds, and how long it is idle, by schedule") {
  constexpr std::int64_t S = 4, M = 12, R = 3;
  for (std::int64_t s = 0; s < S; ++s) {
    CHECK(timetable(gpipe{S, M}).activations(s) == M);
    CHECK(timetable(circular{S, M, R}).activations(s) == R * M);
    CHECK(timetable(one_forward_one_backward{S, M}).activations(s) == S - s);
    CHECK(timetable(one_forward_one_backward{S, 2}).activations(s) == std::min<std::int64_t>(2, S - s));
    CHECK(timetable(eager_one_forward_one_backward{S, M}).activations(s) == 2 * (S - 1 - s) + 1);
    CHECK(timetable(interleaved{S, M, R}).activations(s) == 2 * (S - 1 - s) + (R - 1) * S + 1);
    CHECK(timetable(interleaved{S, S, R}).activations(s) == std::min(R * S, 2 * (S - 1 - s) + (R - 1) * S + 1));
  }
  const auto ideal = [](double rounds) { return doctest::Approx((S - 1) / (rounds * M + S - 1)); };
  CHECK(timetable(gpipe{S, M}).bubble_ratio() == ideal(1));
  CHECK(timetable(one_forward_one_backward{S, M}).bubble_ratio() == ideal(1));
  CHECK(timetable(interleaved{4, 4, 3}).activations(0) == 12);
  CHECK(timetable(eager_one_forward_one_backward{S, M}).bubble_ratio() == ideal(1));
  CHECK(timetable(circular{S, M, R}).bubble_ratio() == ideal(R));
  CHECK(timetable(interleaved{S, M, R}).bubble_ratio() == ideal(R));
  CHECK(timetable(circular{S, 5, 2}).bubble_ratio() > timetable(circular{S, 8, 2}).bubble_ratio());
  CHECK(timetable(gpipe{S, M}).messages() == 2 * M * (S - 1));
  CHECK(timetable(interleaved{S, M, R}).messages() == 2 * M * (S * R - 1));
  CHECK(timetable(gpipe{1, M}).messages() == 0);
  static_assert(timetable(one_forward_one_backward{.stages = 4, .microbatches = 16}).activations(0) == 4);
}

TEST_CASE("a schedule is drawn with a line for each stage") {
  CHECK(timetable(one_forward_one_backward{2, 3}).drawing() ==
        "stage 0  0  1  .  . -0  _  2 -1  _  . -2  _\n"
        "stage 1  .  0 -0  _  1 -1  _  2 -2  _  .  .\n");
  CHECK(timetable(circular{2, 2, 2}, {1, 1}).drawing() ==
        "stage 0  0a  1a  0b  1b   .   . -1b -0b -1a -0a\n"
        "stage 1   .  0a  1a  0b  1b -1b -0b -1a -0a   .\n");
}

TEST_CASE("mistakes in pipelines are one sentence") {
  const auto refused = [](auto f, std::vector<std::int64_t> w = {2, 3, 3}) {
    try {
      static_cast<void>(dynamic::compile(f, dynamic::mesh({{"stage", 2}}), f64(std::move(w)), f64({4, 2, 3})));
    } catch (const error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const auto holds = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const auto by = [&](auto schedule) {
    return refused([schedule](value w, value x) { return pipeline<"stage">(layer, schedule)(w, x); });
  };
  holds(by(gpipe{4, 4}), "a weight is [2,3,3], and dim 0 counts the 4 stages");
  holds(by(gpipe{2, 8}), "the data is [4,2,3], and dim 0 counts the 8 microbatches");
  holds(by(circular{2, 4, 2}), "a weight is [2,3,3], and dim 1 counts the 2 rounds");
  holds(by(gpipe{2, 0}), "gpipe has 2 stages, 0 microbatches and 1 rounds; give 1 or more of each");
  holds(refused([](value w, value x) {
          return pipeline<"rank">(layer, gpipe{2, 4})(w, x);
        }),
        "`rank` is not an axis of the mesh");
  holds(refused([](value w, value x) {
          return pipeline<"stage">([](value, value h) { return concatenate({h, h}, 1); }, gpipe{2, 4})(w, x);
        }),
        ": a stage is given f64[2,3] and returns f64[2,6]; the next stage gets that, so return the type and shape of x");
  holds(refused([](value w, value x) {
          const auto loss = [](value y, value) { return sum(y); };
          return std::get<1>(pipeline_step<"stage">(layer, loss, eager_one_forward_one_backward{2, 4})(w, x, w));
        }),
        "the target is [2,3,3], and dim 0 counts the 4 microbatches");
  holds(refused([](value w, value x) {
          const auto loss = [](value y, value) { return sum(y, 1); };
          return std::get<1>(pipeline_step<"stage">(layer, loss, eager_one_forward_one_backward{2, 4})(w, x, x));
        }),
        "the loss of a microbatch is f64[2]; return a float of rank 0");
  holds(refused([](value w, value x) {
          return pipeline<"stage">(stage_of(layer), gpipe{2, 4})(sum(w, {1, 2}), x);
        }),
        "dim 0 counts the layers of a stage");
  holds(refused([](value w, value x) { return stage_weights(sum(w), gpipe{2, 4}) + sum(x); }), "there are no layers in []");
  holds(refused([](value w, value x) { return microbatches(x, 3) + sum(w); }), "[4,2,3] is not cut into 3 equal microbatches");
  holds(refused([](value w, value x) { return whole_batch(sum(x, {1, 2})) + sum(w); }), "there are no microbatches in [4]");
  const auto thrown = [](auto schedule) {
    try {
      static_cast<void>(timetable(schedule));
    } catch (const error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  holds(thrown(interleaved{4, 6, 2}), "interleaved has 6 microbatches, no multiple of its 4 stages; give a multiple");
  holds(thrown(one_forward_one_backward{0, 6}), "one_forward_one_backward has 0 stages");
  struct backward_first {
    std::int64_t stages = 2, microbatches = 1, rounds = 1;
    [[nodiscard]] detail::text misfit() const { return {}; }
    [[nodiscard]] std::vector<pipeline_work> works(std::int64_t) const {
      return {{pipeline_pass::backward, 0, 0}, {pipeline_pass::forward, 0, 0}};
    }
  };
  holds(thrown(backward_first{}), "stage 0 waits for a pass that waits for it");
}

TEST_CASE("between stages activations lie over all axes, where a stage returns them so: each message is that much shorter") {
  // The hidden units of a stage are split over `model`. x is replicated over `model`, or split by features.
  const auto stage_with = [](bool is_split) {
    return [=](std::tuple<value, value> w, value x) {
      const value h = tanh(einsum<"bd,df->bf">(x, std::get<0>(w)));
      const value y = x + einsum<"bf,fd->bd">(h, std::get<1>(w));
      return is_split ? reshard(y, split<"data", "model">{}) : reshard(y, split<"data", _>{});
    };
  };
  const auto squares = [](value y, value t) { return mean((y - t) * (y - t)); };
  for (const std::int64_t rows : {4, 3})
    for (const std::int64_t D : {8, 5}) {
      CAPTURE(rows);
      CAPTURE(D);
      constexpr std::int64_t S = 2, M = 3, F = 6;
      const std::vector<list> inputs{numbers(S * D * F, 0.1, 3), numbers(S * F * D, 0.1, 1), numbers(M * rows * D, 0.3, 5),
                                     numbers(M * rows * D, 0.2, 2)};
      const auto on = [&](const auto& f, const dynamic::mesh& m, bool is_piped) {
        const std::string s = is_piped ? "stage" : "", d = is_piped ? "data" : "", t = is_piped ? "model" : "";
        return dynamic::compile(f, m, f64({S, D, F}, {s, "", t}), f64({S, F, D}, {s, t, ""}), f64({M, rows, D}, {"", d, ""}),
                                f64({M, rows, D}, {"", d, ""}));
      };
      const auto by_gpipe = [&](bool is_split) {
        return [=](value up, value down, value x, value t) {
          const std::tuple w{up, down};
          const value loss = squares(pipeline<"stage">(stage_with(is_split), gpipe{S, M})(w, x), t);
          const auto [du, dd] = grad(loss, w);
          return std::tuple{loss, du, dd};
        };
      };
      const auto by_1f1b = [&](bool is_split) {
        return [=](value up, value down, value x, value t) {
          const auto [loss, dw, dx] =
              pipeline_step<"stage">(stage_with(is_split), squares, one_forward_one_backward{S, M})(std::tuple{up, down}, x, t);
          return std::tuple{loss, std::get<0>(dw), std::get<1>(dw)};
        };
      };
      const auto one_after_the_other = [=](value up, value down, value x, value t) {
        value h = reshape(x, {M * rows, D});
        for (std::int64_t s = 0; s < S; ++s) {
          const value u = reshape(slice(up, {s, 0, 0}, {s + 1, D, F}), {D, F});
          h = h + einsum<"bf,fd->bd">(tanh(einsum<"bd,df->bf">(h, u)), reshape(slice(down, {s, 0, 0}, {s + 1, F, D}), {F, D}));
        }
        const value loss = squares(h, reshape(t, {M * rows, D}));
        const auto [du, dd] = grad(loss, std::tuple{up, down});
        return std::tuple{loss, du, dd};
      };
      const auto expected = run_all(on(one_after_the_other, dynamic::mesh({{"one", 1}}), false), inputs);
      const dynamic::mesh pod({{"stage", 2}, {"data", 2}, {"model", 2}});
      const auto check = [&](const auto& of, std::int64_t messages) {
        const auto whole = on(of(false), pod, true), split = on(of(true), pod, true);
        const std::int64_t own_rows = (rows + 1) / 2;
        const auto sent = [&](const dynamic::program& p) { return p.traffic().in(collective_kind::collective_permute); };
        CHECK(permutes(whole) == messages);
        CHECK(permutes(split) == messages);
        CHECK(sent(whole).bytes == messages * own_rows * D * 8);
        CHECK(sent(split).bytes == messages * own_rows * ((D + 1) / 2) * 8);
        return std::pair{whole, split};
      };
      const auto [whole, split] = check(by_gpipe, 2 * (M + S - 1));
      check_alike(run_all(whole, inputs), expected);
      check_alike(run_all(split, inputs), expected);
      const auto [whole_step, split_step] = check(by_1f1b, M + S - 1);  // two stages alternate: one message serves both
                                                                        // directions
      check_alike(run_on(threads{}, whole_step, inputs), expected);
      check_alike(run_on(threads{}, split_step, inputs), expected);
    }
}
