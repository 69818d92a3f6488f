// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: dynamic
// Pipeline steps with any schedule. Each device is a stage with its own sequence of works. The results equal those of
// one device. The bytes sent and held match the schedule.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/nn/pipeline.hpp>
#include <gspmd/transform/recompute.hpp>

namespace {

using namespace gspmd;
using list = std::vector<double>;
using names = std::vector<std::string>;

list some(std::int64_t n, double scale, int seed) {
  list x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(scale * static_cast<double>((i * 7 + seed) % 11 - 5));
  return x;
}
template <class Backend>
std::vector<list> results(const dynamic::program& p, Backend backend, const std::vector<list>& inputs) {
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
void check_same(const std::vector<list>& got, const std::vector<list>& want) {
  REQUIRE(got.size() == want.size());
  for (std::size_t k = 0; k < want.size(); ++k) {
    CAPTURE(k);
    REQUIRE(got[k].size() == want[k].size());
    double most = 0, largest = 0;
    bool are_numbers = true;
    for (std::size_t i = 0; i < want[k].size(); ++i) {
      are_numbers = are_numbers && std::isfinite(got[k][i]);
      most = std::max(most, std::abs(got[k][i] - want[k][i]));
      largest = std::max(largest, std::abs(want[k][i]));
    }
    CHECK(are_numbers);
    CHECK(largest > 1e-6);
    CHECK(most <= 1e-12 * (1 + largest));
  }
}

const auto layer = [](value w, value x) { return tanh(einsum<"bd,df->bf">(x, w)); };
const auto squares = [](value y, value t) { return 100.0 * mean((y - t) * (y - t)); };

/// Distributes layers [layers, 3, 3] to the stages of `schedule`, [stages, rounds, each, 3, 3]. Missing layers are
/// copies of the first layer.
template <class Schedule>
struct laid_out {
  const Schedule& schedule;
  std::int64_t layers, each = (layers + schedule.stages * schedule.rounds - 1) / (schedule.stages * schedule.rounds);

  template <class F>
  void for_each_number(F f) const {
    for (std::int64_t s = 0, i = 0; s < schedule.stages; ++s)
      for (std::int64_t r = 0; r < schedule.rounds; ++r)
        for (std::int64_t l = (r * schedule.stages + s) * each; l < (r * schedule.stages + s + 1) * each; ++l)
          for (std::int64_t k = 0; k < 9; ++k, ++i)
            f(static_cast<std::size_t>(i), static_cast<std::size_t>((l < layers ? l : 0) * 9 + k), l < layers);
  }
  [[nodiscard]] list of(const list& by_layer) const {
    list parts(static_cast<std::size_t>(schedule.stages * schedule.rounds * each * 9));
    for_each_number([&](std::size_t i, std::size_t k, bool) { parts[i] = by_layer[k]; });
    return parts;
  }
  [[nodiscard]] list back(const list& parts) const {
    list by_layer(static_cast<std::size_t>(layers * 9));
    for_each_number([&](std::size_t i, std::size_t k, bool is_there) {
      if (is_there) by_layer[k] = parts[i];
      else CHECK(parts[i] == 0);  // a missing layer has no gradient
    });
    return by_layer;
  }
  [[nodiscard]] dynamic::input_spec in() const {
    if (schedule.rounds == 1) return dynamic::input<double>({schedule.stages, each, 3, 3}, {"stage", "", "", ""});
    return dynamic::input<double>({schedule.stages, schedule.rounds, each, 3, 3}, {"stage", "", "", "", ""});
  }
};
dynamic::program one_after_the_other(std::int64_t layers, std::int64_t microbatches) {
  const auto f = [=](value w, value xs, value ts) {
    const auto flat = [&](value v) { return reshape(v, {microbatches * 4, 3}); };
    value h = flat(xs);
    for (std::int64_t l = 0; l < layers; ++l) h = layer(reshape(slice(w, {l, 0, 0}, {l + 1, 3, 3}), {3, 3}), h);
    const value loss = squares(h, flat(ts));
    const auto [dw, dx] = grad(loss, std::tuple{w, xs});
    return std::tuple{loss, dw, dx};
  };
  return dynamic::compile(f, dynamic::mesh({{"one", 1}}), dynamic::input<double>({layers, 3, 3}),
                          dynamic::input<double>({microbatches, 4, 3}), dynamic::input<double>({microbatches, 4, 3}));
}
template <class Schedule>
void check_schedule(const Schedule& schedule, std::int64_t layers, int data) {
  CAPTURE(Schedule::name);
  CAPTURE(schedule.stages);
  CAPTURE(schedule.microbatches);
  std::vector<dynamic::mesh::axis> axes{{"stage", static_cast<int>(schedule.stages)}};
  if (data > 1) axes.push_back({"data", data});
  const std::int64_t m = schedule.microbatches;
  const auto xs = dynamic::input<double>({m, 4, 3}, {"", data > 1 ? "data" : "", ""});
  const laid_out<Schedule> places{schedule, layers};
  const auto p = dynamic::compile(
      [=](value w, value x, value t) { return pipeline_step<"stage">(stage_of(layer, layers), squares, schedule)(w, x, t); },
      dynamic::mesh(axes), places.in(), xs, xs);
  const list w = some(layers * 9, 0.2, 3), x = some(m * 12, 0.3, 5), t = some(m * 12, 0.1, 2);
  auto found = results(p, threads{}, {places.of(w), x, t});
  found[1] = places.back(found[1]);
  check_same(found, results(one_after_the_other(layers, m), serial{}, {w, x, t}));
  const detail::tick_table table(schedule);
  const auto permutes = p.traffic().in(collective_kind::collective_permute);
  CHECK(permutes.collectives == table.messages());
  CHECK(permutes.bytes == table.messages() * 4 / data * 3 * 8);
}

}  // namespace

TEST_CASE("a step by 1F1B, interleaved 1F1B, GPipe or a circular schedule is one on one device") {
  for (const std::int64_t stages : {2, 3, 4, 8})
    for (const std::int64_t microbatches : {std::int64_t{1}, stages, 2 * stages + 1}) {
      if (stages == 8 && microbatches > 8) continue;
      const std::int64_t layers = stages == 4 ? 6 : stages;  // with two layers per stage, the last stage has none
      check_schedule(one_forward_one_backward{stages, microbatches}, layers, stages < 4 ? 2 : 1);
      // There is a message in each tick. With two alternating stages, every other tick has no message.
      const detail::tick_table table(one_forward_one_backward{stages, microbatches});
      CHECK(table.messages() == (stages == 2 && microbatches > 1 ? 1 : 2) * (microbatches + stages - 1));
      CHECK(table.ticks() == 2 * (microbatches + stages - 1));
      CHECK(table.depth() <= stages);
    }
  check_schedule(interleaved{2, 4, 2}, 4, 2);
  check_schedule(interleaved{4, 8, 3}, 11, 1);
  check_schedule(gpipe{3, 5}, 3, 2);
  check_schedule(circular{2, 3, 3}, 6, 1);
}

TEST_CASE("stages that are interleaved take turns: of an even number of them a message goes in each tick, as many as ticks") {
  for (const std::int64_t stages : {2, 4, 6, 8})
    for (const std::int64_t rounds : {2, 3}) {
      CAPTURE(stages);
      CAPTURE(rounds);
      const detail::tick_table table(interleaved{stages, 2 * stages, rounds});
      CHECK(table.ticks() == 2 * (2 * stages * rounds + stages - 1));
      CHECK(table.messages() == table.ticks());
    }
  // With three stages, the last and the first stage, which are neighbours, work in the same tick.
  const detail::tick_table odd(interleaved{3, 6, 2});
  CHECK(odd.messages() > odd.ticks());
  CHECK(odd.messages() < odd.ticks() + 16);  // one additional message for each tick with both passes
}

TEST_CASE("gradients of weights are reduced over the axes of the data once, by every schedule") {
  const auto all_reduced = [](const auto& schedule) {
    CAPTURE(schedule.stages);
    const std::int64_t S = schedule.stages, R = schedule.rounds, D = 8;
    const auto f = [=](value w, value x, value t) {
      const auto [loss, dw, dx] = pipeline_step<"stage">(layer, squares, schedule)(w, x, t);
      return std::tuple{loss, w - 0.5 * dw};
    };
    const auto w = R == 1 ? dynamic::input<double>({S, D, D}, {"stage", "", ""})
                          : dynamic::input<double>({S, R, D, D}, {"stage", "", "", ""});
    const auto xs = dynamic::input<double>({schedule.microbatches, 4, D}, {"", "data", ""});
    const auto p = dynamic::compile(f, dynamic::mesh({{"stage", static_cast<int>(S)}, {"data", 2}}), w, xs, xs);
    const std::int64_t of_weights = 8 * R * D * D, of_loss = 8 + 8 * 2 * (S - 1) / S;  // over data, then over stage
    CHECK(p.traffic().in(collective_kind::all_reduce).bytes == of_weights + of_loss);
    CHECK(p.traffic().bytes == p.traffic().in(collective_kind::collective_permute).bytes + of_weights + of_loss);
  };
  all_reduced(one_forward_one_backward{4, 8});
  all_reduced(one_forward_one_backward{2, 1});
  all_reduced(interleaved{2, 4, 2});
  all_reduced(interleaved{4, 8, 3});
  all_reduced(gpipe{4, 5});
  all_reduced(circular{4, 8, 2});
}

TEST_CASE("what a stage keeps is not written over before it is read, and nothing is read that did not arrive") {
  const auto follow = [](const auto& schedule) {
    CAPTURE(schedule.stages);
    const detail::tick_table table(schedule);
    const std::int64_t stages = schedule.stages, parts = stages * schedule.rounds;
    struct thing {
      bool is_gradient = false;
      std::int64_t microbatch = -1, part = -1;
      bool operator==(const thing&) const = default;
    };
    std::vector<std::vector<thing>> memory(static_cast<std::size_t>(stages),
                                           std::vector<thing>(static_cast<std::size_t>(table.depth())));
    int wrong = 0;
    std::int64_t passes = 0;
    for (const auto& segment : table.segments())
      for (std::int64_t t = segment.begin; t < segment.end; ++t) {
        std::vector<thing> sent(static_cast<std::size_t>(stages));
        for (std::int64_t s = 0; s < stages; ++s) {
          const auto& w = table.at(t, s);
          const auto& own = memory[static_cast<std::size_t>(s)];
          const std::int64_t part = w.round * stages + s;
          if (w.does == detail::stage_tick::idle) continue;
          ++passes;
          wrong += w.does == detail::stage_tick::forward ? !segment.goes_forward : !segment.goes_backward;
          wrong += part > 0 && own[static_cast<std::size_t>(w.x)] != thing{false, w.microbatch, part};
          const bool goes_back = w.does == detail::stage_tick::backward;
          wrong += goes_back && part + 1 < parts && own[static_cast<std::size_t>(w.dy)] != thing{true, w.microbatch, part};
          sent[static_cast<std::size_t>(s)] = {goes_back, w.microbatch, goes_back ? part - 1 : part + 1};
        }
        const auto& phase = segment.phases[static_cast<std::size_t>((t - segment.begin) % segment.period())];
        for (std::int64_t s = 0; s < stages; ++s) {
          const auto k = static_cast<std::size_t>(s), before = static_cast<std::size_t>((s + stages - 1) % stages),
                     next = static_cast<std::size_t>((s + 1) % stages);
          const auto& w = table.at(t, s);
          const bool is_up = detail::tick_table<std::decay_t<decltype(schedule)>>::any(phase.up);
          const bool is_down = detail::tick_table<std::decay_t<decltype(schedule)>>::any(phase.down);
          const thing from_before = phase.up[before] != 0 ? sent[before] : thing{},
                      from_next = phase.down[next] != 0 ? sent[next] : thing{};
          if (phase.is_one) {
            if (is_up || is_down) memory[k][static_cast<std::size_t>(w.up)] = phase.up[before] != 0 ? from_before : from_next;
            continue;
          }
          if (is_up) memory[k][static_cast<std::size_t>(w.up)] = from_before;
          if (is_down) memory[k][static_cast<std::size_t>(w.down)] = from_next;
        }
      }
    CHECK(wrong == 0);
    CHECK(passes == 2 * stages * schedule.rounds * schedule.microbatches);
  };
  for (const std::int64_t stages : {1, 2, 3, 4, 5, 8})
    for (const std::int64_t microbatches : {1, 2, 3, 7, 16}) {
      CAPTURE(microbatches);
      follow(one_forward_one_backward{stages, microbatches});
      follow(eager_one_forward_one_backward{stages, microbatches});
      follow(gpipe{stages, microbatches});
      for (const std::int64_t rounds : {2, 3}) {
        follow(circular{stages, microbatches, rounds});
        follow(interleaved{stages, stages * microbatches, rounds});
      }
    }
}

TEST_CASE("1F1B keeps as much of any batch, GPipe all its microbatches") {
  const auto peak = [](const auto& schedule) {
    constexpr std::int64_t D = 4, rows = 64;
    const std::int64_t m = schedule.microbatches;
    const auto f = [=](value w, value x, value t) {
      const auto [loss, dw, dx] = pipeline_step<"stage">(layer, squares, schedule)(w, x, t);
      return std::tuple{loss, dw, dx};
    };
    const auto xs = dynamic::input<double>({m, rows, D});
    const auto p =
        dynamic::compile(f, dynamic::mesh({{"stage", 4}}), dynamic::input<double>({4, D, D}, {"stage", "", ""}), xs, xs);
    return static_cast<double>(p.peak_bytes_per_device()) / static_cast<double>(rows * D * 8);  // in microbatches
  };
  const double eight = peak(one_forward_one_backward{4, 8}), more = peak(one_forward_one_backward{4, 32});
  const double all_of_eight = peak(gpipe{4, 8}), all_of_more = peak(gpipe{4, 32});
  const double of_arguments = (more - eight) / 24;  // xs, targets, the gradients with respect to xs, and their messages
  CHECK(of_arguments <= 4.1);
  CHECK(all_of_more - all_of_eight == doctest::Approx(24 * (of_arguments + 1)).epsilon(0.03));
  CHECK(all_of_more - more == doctest::Approx(32 + 1 - (4 + 1)).epsilon(0.15));
}

TEST_CASE("stages that take turns hold one sum of the gradients of their weights") {
  const auto peak = [](const auto& schedule, std::int64_t data) {
    constexpr std::int64_t D = 64;
    const auto f = [=](value w, value x, value t) {
      const auto [loss, dw, dx] = pipeline_step<"stage">(layer, squares, schedule)(w, x, t);
      return std::tuple{loss, w - 0.5 * dw};
    };
    const auto xs = dynamic::input<double>({schedule.microbatches, 4 * data, D}, {"", "data", ""});
    const auto p =
        dynamic::compile(f, dynamic::mesh({{"stage", static_cast<int>(schedule.stages)}, {"data", static_cast<int>(data)}}),
                         dynamic::input<double>({schedule.stages, D, D}, {"stage", "", ""}), xs, xs);
    return static_cast<double>(p.peak_bytes_per_device()) / static_cast<double>(D * D * 8);  // in weights
  };
  // Two of its ticks each have a backward pass, whose gradient it holds in addition to the sum. GPipe has one such
  // tick.
  for (const std::int64_t data : {1, 2})
    for (const std::int64_t stages : {2, 4})
      CHECK(peak(one_forward_one_backward{stages, 2 * stages}, data) < peak(gpipe{stages, 2 * stages}, data) + 1);
}

TEST_CASE("layers of a stage that are computed again keep what is between them, and the values of one") {
  constexpr std::int64_t S = 2, M = 4, rows = 256, D = 8, F = 64, each = 6;
  const auto wide = [](std::tuple<value, value> w, value x) {
    return x + einsum<"bf,fd->bd">(tanh(einsum<"bd,df->bf">(x, std::get<0>(w))), std::get<1>(w));
  };
  const auto stage = [=](auto one) {
    return [=](std::tuple<value, value> w, value x) {
      for (std::int64_t l = 0; l < each; ++l) {
        const auto of = [&](value v) {
          return reshape(slice(v, {l, 0, 0}, {l + 1, v.shape()[1], v.shape()[2]}), {v.shape()[1], v.shape()[2]});
        };
        x = one(std::tuple{of(std::get<0>(w)), of(std::get<1>(w))}, x);
      }
      return x;
    };
  };
  const auto planned_with = [&](auto one) {
    return dynamic::compile(
        [=](value up, value down, value xs) {
          const std::tuple w{up, down};
          const value y = pipeline<"stage">(stage(one), gpipe{S, M})(w, xs);
          const auto [du, dd] = grad(sum(y * y), w);
          return std::tuple{sum(y * y), du, dd};
        },
        dynamic::mesh({{"stage", S}}), dynamic::input<double>({S, each, D, F}, {"stage", "", "", ""}),
        dynamic::input<double>({S, each, F, D}, {"stage", "", "", ""}), dynamic::input<double>({M, rows, D}));
  };
  const auto kept = planned_with(wide), again = planned_with(recompute(wide));
  const std::vector<list> inputs{some(S * each * D * F, 0.02, 3), some(S * each * D * F, 0.02, 1), some(M * rows * D, 0.3, 5)};
  check_same(results(again, simulated{}, inputs), results(kept, simulated{}, inputs));
  // The hidden units of all layers but one are not kept. The x of each layer is kept.
  const std::int64_t hidden = rows * F * 8, between = rows * D * 8;
  CHECK(kept.peak_bytes_per_device() - again.peak_bytes_per_device() >= (each - 1) * (hidden - 2 * between));
  CHECK(again.traffic().bytes == kept.traffic().bytes);
}

TEST_CASE("groups in which integers go along, and a schedule of one's own") {
  struct one_at_a_time {  // each microbatch passes forward and backward before the next one
    std::int64_t stages = 2, microbatches = 3, rounds = 1;
    [[nodiscard]] detail::text misfit() const { return {}; }
    [[nodiscard]] std::vector<pipeline_work> works(std::int64_t) const {
      std::vector<pipeline_work> all;
      for (std::int64_t m = 0; m < microbatches; ++m)
        for (const auto pass : {pipeline_pass::forward, pipeline_pass::backward}) all.push_back({pass, m, 0});
      return all;
    }
  };
  const auto stage = [](value v, std::tuple<value, value> in, value part) {
    const auto [h, counts] = in;
    return std::tuple{tanh(einsum<"bd,de->be">(h, v)) + 0.1 * cast<double>(counts) * cast<double>(part), counts + 1};
  };
  const auto of_first = [](std::tuple<value, value> y, value t) { return squares(std::get<0>(y), t); };
  const auto stepped = [=](value w, value x, value t) {
    const auto [loss, dw, dx] =
        pipeline_step<"stage">(stage, of_first, one_at_a_time{})(w, std::tuple{x, cast<std::int64_t>(10.0 * t)}, t);
    return std::tuple{loss, dw, std::get<0>(dx)};
  };
  const auto in_sequence = [=](value w, value x, value t) {
    const auto flat = [](value v) { return reshape(v, {6, 3}); };
    std::tuple<value, value> h{flat(x), flat(cast<std::int64_t>(10.0 * t))};
    for (std::int64_t s = 0; s < 2; ++s)
      h = stage(reshape(slice(w, {s, 0, 0}, {s + 1, 3, 3}), {3, 3}), h, constant<std::int64_t>(w, {}, s));
    const value loss = of_first(h, flat(t));
    const auto [dw, dx] = grad(loss, std::tuple{w, x});
    return std::tuple{loss, dw, dx};
  };
  const std::vector<list> inputs{some(18, 0.2, 3), some(18, 0.3, 5), some(18, 0.125, 2)};
  const auto on = [&](auto f, const dynamic::mesh& m, const names& split) {
    const auto in = dynamic::input<double>({3, 2, 3});
    return dynamic::compile(f, m, split.empty() ? dynamic::input<double>({2, 3, 3}) : dynamic::input<double>({2, 3, 3}, split),
                            in, in);
  };
  check_same(results(on(stepped, dynamic::mesh({{"stage", 2}}), {"stage", "", ""}), threads{}, inputs),
             results(on(in_sequence, dynamic::mesh({{"one", 1}}), {}), serial{}, inputs));
  CHECK(detail::tick_table(one_at_a_time{}).depth() == 1);  // of stage 1 an x; of stage 0 a gradient
}

namespace {

/// GPipe with changed works of stage 1: `add` after the first `keep` works.
struct changed_schedule {
  std::int64_t stages = 2, microbatches = 2, rounds = 1, keep = 0;
  std::vector<pipeline_work> add = {};
  [[nodiscard]] detail::text misfit() const { return {}; }
  [[nodiscard]] std::vector<pipeline_work> works(std::int64_t s) const {
    auto all = detail::there_and_back(stages, microbatches, rounds);
    if (s != 1) return all;
    all.resize(static_cast<std::size_t>(keep));
    all.insert(all.end(), add.begin(), add.end());
    return all;
  }
};

}  // namespace

TEST_CASE("a schedule that has not each pass once is refused") {
  const auto there = pipeline_pass::forward, back = pipeline_pass::backward;
  const auto refused = [](const changed_schedule& schedule, const char* part) {
    const auto holds = [part](const auto& f) {
      std::string text = "accepted";
      try {
        f();
      } catch (const error& e) {
        text = e.what();
      }
      INFO(text);
      CHECK(text.find(part) != std::string::npos);
    };
    holds([&] { static_cast<void>(timetable(schedule)); });
    if (schedule.rounds != 1 || schedule.stages != 2 || schedule.microbatches < 1) return;
    holds([&] {
      const auto f = [=](value w, value x) { return std::get<1>(pipeline_step<"stage">(layer, squares, schedule)(w, x, x)); };
      const auto xs = dynamic::input<double>({schedule.microbatches, 2, 3});
      static_cast<void>(dynamic::compile(f, dynamic::mesh({{"stage", 2}}), dynamic::input<double>({2, 3, 3}), xs));
    });
  };
  CHECK(timetable(changed_schedule{.keep = 4}).ticks() == timetable(gpipe{2, 2}).ticks());
  refused({.keep = 3},
          "timetable: stage 1 never runs backward with microbatch 0; let works(stage) have each pass of each microbatch once");
  refused({.keep = 0, .add = {{there, 0}, {back, 0}}}, "timetable: stage 1 never runs forward with microbatch 1");
  refused({.keep = 4, .add = {{back, 1}}}, "timetable: stage 1 runs backward with microbatch 1 twice; let works(stage)");
  refused({.keep = 2, .add = {{back, 1}, {back, 1}}},
          "timetable: stage 1 runs backward with microbatch 1 twice; let works(stage)");
  refused({.keep = 4, .add = {{there, 2}}},
          "stage 1 runs forward with microbatch 2 in round 0, and there are 2 microbatches and 1 rounds; count both from 0");
  refused({.keep = 4, .add = {{there, -1}}}, "stage 1 runs forward with microbatch -1 in round 0");
  refused({.keep = 4, .add = {{back, 0, 1}}}, "stage 1 runs backward with microbatch 0 in round 1, and there are 2");
  refused({.rounds = 2, .keep = 7},
          "stage 1 never runs backward with microbatch 0 in round 0; let works(stage) have each pass of "
          "each microbatch and round once");
  refused({.rounds = 2, .keep = 8, .add = {{there, 1, 1}}}, "stage 1 runs forward with microbatch 1 in round 1 twice");
  refused({.rounds = 0}, "the schedule has 2 stages, 2 microbatches and 0 rounds; give 1 or more of each");
  refused({.microbatches = 0}, "the schedule has 2 stages, 0 microbatches and 1 rounds; give 1 or more of each");
  refused({.microbatches = -3}, "the schedule has 2 stages, -3 microbatches and 1 rounds; give 1 or more of each");
  refused({.stages = 0}, "the schedule has 0 stages, 2 microbatches and 1 rounds; give 1 or more of each");
  const auto in_step = [](const changed_schedule& schedule) {
    try {
      const auto f = [=](value w, value x) { return std::get<1>(pipeline_step<"stage">(layer, squares, schedule)(w, x, x)); };
      static_cast<void>(dynamic::compile(f, dynamic::mesh({{"stage", 2}}), dynamic::input<double>({2, 3, 3}),
                                         dynamic::input<double>({2, 2, 3})));
    } catch (const error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  for (const auto& schedule : {changed_schedule{.rounds = 0}, changed_schedule{.microbatches = 0}}) {
    const auto text = in_step(schedule);
    INFO(text);
    CHECK(text.find(": the schedule has 2 stages") != std::string::npos);
  }
}

TEST_CASE("mistakes in steps by a schedule are one sentence") {
  const auto refused = [](auto schedule, auto loss) {
    try {
      const auto f = [=](value w, value x) { return std::get<1>(pipeline_step<"stage">(layer, loss, schedule)(w, x, x)); };
      static_cast<void>(dynamic::compile(f, dynamic::mesh({{"stage", 2}}), dynamic::input<double>({schedule.stages, 3, 3}),
                                         dynamic::input<double>({schedule.microbatches, 2, 3})));
    } catch (const error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const auto holds = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  holds(refused(one_forward_one_backward{4, 4}, squares),
        "one_forward_one_backward has 4 stages, and along `stage` are 2 devices, and each device is one stage");
  holds(refused(one_forward_one_backward{2, 20000}, squares),
        "20000 microbatches on 2 stages in 1 rounds, more than 32768 passes");
  holds(refused(one_forward_one_backward{2, 4}, [](value y, value) { return sum(y, 1); }),
        "the loss of a microbatch is f64[2]; return a float of rank 0");
  holds(refused(interleaved{2, 3, 2}, squares), "interleaved has 3 microbatches, no multiple of its 2 stages; give a multiple");
  const auto of_stage = [](auto schedule, auto stage, std::vector<std::int64_t> weights) {
    try {
      const auto loss = [](value y, value) { return mean(cast<double>(y)); };
      const auto f = [=](value w, value x) { return std::get<1>(pipeline_step<"stage">(stage, loss, schedule)(w, x, x)); };
      static_cast<void>(dynamic::compile(f, dynamic::mesh({{"stage", 2}}), dynamic::input<double>(std::move(weights)),
                                         dynamic::input<double>({schedule.microbatches, 2, 3})));
    } catch (const error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const auto longer = [](value w, value x) { return concatenate({x, einsum<"bd,df->bf">(x, w)}, 1); };
  const auto other_type = [](value w, value x) { return einsum<"bd,df->bf">(x, w) > 0.0; };
  const auto is_refused = [&](auto schedule, std::vector<std::int64_t> weights) {
    const char* const remedy = "; the next stage gets that, so return the type and shape of x";
    for (const auto& [text, part] :
         {std::pair{of_stage(schedule, longer, weights), "a stage is given f64[2,3] and returns f64[2,6]"},
          std::pair{of_stage(schedule, other_type, weights), "a stage is given f64[2,3] and returns pred[2,3]"}}) {
      holds(text, "pipeline_step at step.cpp");
      holds(text, part);
      holds(text, remedy);
    }
  };
  is_refused(one_forward_one_backward{2, 4}, {2, 3, 3});
  is_refused(gpipe{2, 4}, {2, 3, 3});
  is_refused(interleaved{2, 4, 2}, {2, 2, 3, 3});
  is_refused(eager_one_forward_one_backward{2, 4}, {2, 3, 3});
  const auto of_complex = [](auto schedule) {
    try {
      const auto far = [](value y, value t) { return mean(real(y * t)); };
      const auto f = [=](value w, value x) {
        return std::get<1>(
            pipeline_step<"stage">([](value v, value h) { return einsum<"bd,df->bf">(h, v); }, far, schedule)(w, x, x));
      };
      static_cast<void>(dynamic::compile(f, dynamic::mesh({{"stage", 2}}), dynamic::input<std::complex<double>>({2, 3, 3}),
                                         dynamic::input<std::complex<double>>({4, 2, 3})));
    } catch (const error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const char* const complex_data =
      "the data is c128[4,2,3], and a stage that gets complex numbers has no gradient "
      "here; give real and imaginary parts as two tensors of a group";
  holds(of_complex(one_forward_one_backward{2, 4}), complex_data);
  holds(of_complex(eager_one_forward_one_backward{2, 4}), complex_data);
}
