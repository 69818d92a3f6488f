// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: random
// The order of steps with less memory; see detail/passes/order/order_steps.hpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <vector>

#include "gspmd/detail/ir/same_plan.hpp"
#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/run/compile.hpp"
#include "support/equal_plans.hpp"
#include "support/run_random.hpp"

namespace {

using namespace gspmd;
namespace ir = gspmd::detail;

/// The plan of a graph with its steps in the order of the program, before memory is assigned.
struct steps_as_traced {
  ir::plan plan;
  ir::vec<int> base;
  steps_as_traced(const ir::graph& g, const ir::mesh_shape& mesh) {
    auto made = ir::pass_results(g, mesh).take<ir::steps_pass>();
    plan = std::move(made.steps);
    base = std::move(made.base);
  }
  [[nodiscard]] ir::plan placed() const {
    ir::plan p = plan;
    ir::place_in_memory(p, base);
    return p;
  }
  [[nodiscard]] ir::plan placed_in(const std::vector<int>& order) const {
    ir::plan p = plan;
    ir::put_in_order(p, order);
    ir::place_in_memory(p, base);
    return p;
  }
  [[nodiscard]] ir::plan ordered() const {
    std::vector<int> order(plan.steps.size(), 0);
    const ir::plan p = placed();
    if (!ir::step_orderer(ir::plan_view(plan), std::span<const int>(base.data(), base.size())).run(order.data())) return p;
    const ir::plan q = placed_in(order);
    return ir::is_smaller(ir::plan_view(q), ir::plan_view(p)) ? q : p;
  }
};

/// Checks that every step reads values of earlier steps, and that no step moved into or out of a body.
void check_order(const ir::plan& p, const ir::plan& as_traced) {
  REQUIRE(p.steps.size() == as_traced.steps.size());
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    const auto& s = p.steps[i];
    const auto& t = as_traced.steps[i];
    if (ir::is<ir::kernels::copy>(t) || ir::facts_of(t).work == ir::step_work::controls) {
      CHECK(s.kernel == t.kernel);
      CHECK(s.target == t.target);
    }
    CHECK(s.times == t.times);
    for (int k = 0; k < s.operands.count; ++k) {
      const int made = p.values[static_cast<std::size_t>(p.slots[static_cast<std::size_t>(s.operands.begin + k)])].step;
      const bool is_carried = made >= 0 && ir::is<ir::kernels::copy>(p.steps[static_cast<std::size_t>(made)]);
      if (!is_carried && made >= static_cast<int>(i)) FAIL_CHECK("step ", i, " reads what step ", made, " makes");
    }
  }
}

/// Returns the least arena of all valid orders of the steps, or 0 if there are too many orders.
class all_orders {
 public:
  explicit all_orders(const steps_as_traced& given) : given_(given), as_traced_(given.placed()), needs_(given.plan.steps.size()) {
    std::vector<int> maker(given.base.size(), -1);
    const auto root = [&](int slot) { return static_cast<std::size_t>(given.base[at(given.plan.slots[at(slot)])]); };
    for (std::size_t i = 0; i < needs_.size(); ++i) {
      const auto& s = given.plan.steps[i];
      for (int k = 0; k < s.operands.count; ++k)
        if (maker[root(s.operands.begin + k)] >= 0) needs_[i].push_back(maker[root(s.operands.begin + k)]);
      for (int k = 0; k < s.results.count; ++k) maker[root(s.results.begin + k)] = static_cast<int>(i);
    }
    done_.resize(needs_.size());
    least = as_traced_.arena_bytes;
    go();
    if (count_ > most) least = 0;
  }
  std::int64_t least = 0;

 private:
  static constexpr int most = 400;
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  void go() {
    if (count_ > most) return;
    if (order_.size() == needs_.size()) {
      ++count_;
      const auto p = given_.placed_in(order_);
      if (ir::is_smaller(ir::plan_view(p), ir::plan_view(as_traced_))) least = std::min(least, p.arena_bytes);
    }
    for (std::size_t i = 0; i < needs_.size(); ++i) {
      if (done_[i] || std::any_of(needs_[i].begin(), needs_[i].end(), [&](int n) { return !done_[at(n)]; })) continue;
      done_[i] = true;
      order_.push_back(static_cast<int>(i));
      go();
      order_.pop_back();
      done_[i] = false;
    }
  }
  const steps_as_traced& given_;
  ir::plan as_traced_;
  std::vector<std::vector<int>> needs_;
  std::vector<bool> done_;
  std::vector<int> order_;
  int count_ = 0;
};

/// Four layers, which the compiler plans too.
constexpr auto four_layers = [](auto x, auto w1, auto w2, auto w3, auto w4) {
  auto h = x;
  const auto weights = std::array{w1, w2, w3, w4};
  for (const auto& w : weights) h = relu(einsum<"bd,de->be">(h, w));
  const auto g = grad(mean(h * h), weights);
  return std::tuple{w1 - 0.1 * g[0], w2 - 0.1 * g[1], w3 - 0.1 * g[2], w4 - 0.1 * g[3]};
};
using weight = input<float, shape<256, 256>, split<_, _>>;
using pod = mesh<axis<"data", 2>>;
using four = ir::static_plan<four_layers, pod, input<float, shape<64, 256>, split<"data", _>>, weight, weight, weight, weight>;
constexpr ir::plan_view as_written{four::passes::frozen<ir::place_pass<false>>()};
static_assert(four::view.arena_bytes < as_written.arena_bytes / 2);

dynamic::input_spec f32(std::vector<std::int64_t> shape) { return dynamic::input<float>(std::move(shape), {"", ""}); }

}  // namespace

TEST_CASE("of two operands the one that takes more on the way is made first") {
  // Sethi and Ullman: a product of two values that need n intermediate matrices each needs n + 1. If one needs more,
  // the product needs the larger number.
  const dynamic::mesh m({{"x", 1}});
  dynamic::builder b(m);
  const value a = b.input(f32({64, 64}));
  const auto product = [](const value& x, const value& y) { return einsum<"ab,bc->ac">(x, y); };
  const auto fresh = [&] { return product(b.input(f32({64, 64})), a); };  // equal products would be merged
  value right = fresh();
  for (int i = 0; i < 4; ++i) {
    value left = fresh();
    for (int k = 0; k <= i; ++k) {
      const value first = fresh(), second = fresh();
      left = product(left, product(first, second));
    }
    const value first = fresh();
    right = product(first, product(right, left));  // the first operand waits for the second
  }
  b.output(sum(right, {0, 1}));
  const steps_as_traced steps(ir::canonical_order(b.graph()), m.info().shape);
  const auto before = steps.placed();
  const auto after = steps.ordered();
  check_order(after, before);
  const std::int64_t matrix = 64 * 64 * 4;
  CHECK(before.arena_bytes / matrix == 9);
  CHECK(after.arena_bytes / matrix == 5);  // the number of Sethi and Ullman
}

TEST_CASE("a weight is updated as soon as its gradient is there") {
  constexpr int layers = 12;
  const dynamic::mesh m({{"x", 2}});
  dynamic::builder b(m);
  value h = b.input(dynamic::input<float>({32, 128}, {"x", ""}));
  std::array<value, layers> weights;
  for (auto& w : weights) w = b.input(f32({128, 128}));
  for (const auto& w : weights) h = relu(einsum<"bd,de->be">(h, w));
  const auto gradients = grad(mean(h * h), weights);
  for (std::size_t i = 0; i < weights.size(); ++i) b.output(weights[i] - 0.1 * gradients[i]);
  const steps_as_traced steps(ir::canonical_order(b.graph()), m.info().shape);
  const auto before = steps.placed();
  const auto after = steps.ordered();
  check_order(after, before);
  const std::int64_t weight = 128 * 128 * 4, rows = 16 * 128 * 4;
  CHECK(before.arena_bytes > layers * weight);
  CHECK(after.arena_bytes < 3 * weight + (layers + 4) * rows);
  CHECK(after.shared_inputs == before.shared_inputs);  // each may overwrite the old value
  for (std::size_t k = 0; k < weights.size(); ++k) CHECK(after.shared_inputs[k] == static_cast<int>(k) + 1);
}

TEST_CASE("the compiler orders steps as the program at run time does") {
  const auto g =
      ir::trace_program<four_layers, pod, input<float, shape<64, 256>, split<"data", _>>, weight, weight, weight, weight>();
  CHECK(reference::difference(four::view, ir::plan_view(ir::plan_at_run_time(g, pod::info.shape, pod::info.request))) == "");
}

TEST_CASE("what is reduced at once is made one after the other") {
  const dynamic::mesh m({{"x", 1}});
  for (const bool in_a_loop : {false, true}) {
    dynamic::builder b(m);
    const value a = b.input(f32({32, 32}));
    const auto many = [&](const value& x) {
      std::vector<value> large;
      for (int i = 0; i < 10; ++i) large.push_back(transpose(x * static_cast<double>(i), {1, 0}));
      value total = sum(large[0], {0, 1});
      for (int i = 1; i < 10; ++i) total = total + sum(large[static_cast<std::size_t>(i)], {0, 1});
      return total;
    };
    if (in_a_loop)
      b.output(fori_loop(
          3, [&](const value&, const value& x) { return x * many(x); }, a));
    else b.output(many(a));
    const steps_as_traced steps(b.graph(), m.info().shape);  // as written, all large values first
    const auto before = steps.placed();
    const auto after = steps.ordered();
    check_order(after, before);
    CHECK(before.arena_bytes >= 10 * 32 * 32 * 4);
    CHECK(after.arena_bytes < 5 * 32 * 32 * 4);
  }
}

TEST_CASE("the order stays as it is where nothing is gained") {
  const dynamic::mesh m({{"x", 1}});
  dynamic::builder b(m);
  const value a = b.input(f32({16, 16}));
  value h = a;
  for (int i = 0; i < 20; ++i) h = einsum<"ab,bc->ac">(h, a);
  b.output(h);
  const steps_as_traced steps(b.graph(), m.info().shape);
  std::vector<int> order(steps.plan.steps.size());
  CHECK_FALSE(ir::step_orderer(ir::plan_view(steps.plan), steps.base).run(order.data()));
  CHECK(steps.ordered().steps == steps.placed().steps);
}

TEST_CASE("random programs: steps that are made a few operators at a time are those that are made at once") {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    const reference::random_program r(seed);
    const ir::graph g = ir::program_to_plan_at_run_time(r.g);
    if (g.failed()) continue;
    const auto local = ir::pass_results(g, r.mesh).take<ir::emit_pass>();
    const auto finished = [&](std::size_t most) {
      ir::step_state state(g, r.mesh, {}, local);
      while (!state.is_done_) {
        ir::scheduler(state).go_on(most);
        ir::step_state next;  // the state that is passed from one constant evaluation to the next
        ir::step_state::lists(state,
                              [&](auto&... from) { ir::step_state::lists(next, [&](auto&... to) { ((to = from), ...); }); });
        ir::step_state::rest(state, [&](auto&... from) { ir::step_state::rest(next, [&](auto&... to) { ((to = from), ...); }); });
        next.graph_ = &g;
        next.read(local);
        state = std::move(next);
      }
      ir::scheduler(state).finish();
      for (const auto& n : g.nodes) state.out.nodes.push_back({ir::in_words(n.op), n.at, -1, 0, {}, n.region});
      ir::place_in_memory(state.out, state.base);
      return std::move(state.out);
    };
    const auto at_once = finished(local.ops.size());
    REQUIRE(ir::same_plan(ir::plan_view(finished(1 + seed % 7)), ir::plan_view(at_once)));
  }
}

TEST_CASE("random programs: never more memory, and how often the least") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs(3000);
  int lowered = 0, small = 0, least_before = 0, least_after = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    const reference::random_program program(seed);
    const steps_as_traced steps(program.g, program.mesh);
    const auto before = steps.placed();
    const auto after = steps.ordered();
    CAPTURE(seed);
    check_order(after, before);
    REQUIRE(after.arena_bytes <= before.arena_bytes);
    for (std::size_t k = 0; k < after.shared_inputs.size(); ++k)
      if (before.shared_inputs[k] >= 0) REQUIRE(after.shared_inputs[k] >= 0);
    if (after.arena_bytes == before.arena_bytes) REQUIRE(after.steps == before.steps);
    else ++lowered;
    if (program.g.has_regions) continue;
    const auto least = all_orders(steps).least;
    if (least == 0) continue;  // or the arena is empty
    ++small;
    least_before += before.arena_bytes == least ? 1 : 0;
    least_after += after.arena_bytes == least ? 1 : 0;
    CHECK(after.arena_bytes >= least);
  }
  std::printf("%d of %d plans take less memory; of %d with few orders %d were at the least before and %d are now\n", lowered,
              static_cast<int>(count), small, least_before, least_after);
  CHECK(lowered > static_cast<int>(count) / 50);
  CHECK(least_after * 100 > small * 95);
}
