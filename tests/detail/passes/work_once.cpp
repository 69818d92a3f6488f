// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: plans
// Communication that is done once, late or early: at the point where it moves the fewest bytes.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include "support/run_graph.hpp"

using namespace layouts;

namespace {

using texts = std::vector<std::string>;
constexpr int x = 0;
const sharding whole;

/// Checks the plan's collectives and bytes, and its results.
void check(const graph_builder& b, const texts& wanted, std::int64_t bytes) {
  const auto p = b.partition();
  CHECK(collectives(p) == wanted);
  CHECK(bytes_sent(b.mesh, p) == bytes);
  CHECK(wrong_run(b) == "");
}

int convert(graph_builder& b, int a, dtype to) { return add_elementwise(b.g, code_of<cast_op>, {a}, {}, to); }

}  // namespace

TEST_CASE("a sum is gathered and not its terms, and of what is sliced only the slice") {
  SUBCASE("a sum of three") {
    graph_builder b({4});
    const int terms[] = {b.input({16, 16}, split({{x}, {}})), b.input({16, 16}, split({{x}, {}})),
                         b.input({16, 16}, split({{x}, {}}))};
    b.g.outputs = {b.annotate(b.op(code_of<add_op>, b.op(code_of<add_op>, terms[0], terms[1]), terms[2]), whole)};
    check(b, {"all_gather x"}, 12 * 16 * 4);
  }
  SUBCASE("the half of the columns") {
    graph_builder b({4});
    using numbers = std::vector<std::int64_t>;
    const int a = b.input({16, 16}, split({{x}, {}}));
    b.g.outputs = {b.annotate(add_slice(b.g, a, numbers{0, 0}, numbers{16, 8}, numbers{1, 1}, {}), whole)};
    check(b, {"all_gather x"}, 12 * 8 * 4);
  }
}

TEST_CASE("one gather serves two users") {
  SUBCASE("two products with one weight: forward and backward") {
    graph_builder b({4});
    const int w = b.input({16, 16}, split({{x}, {}}));
    const int forward = b.einsum("bd,df->bf", b.input({64, 16}, split({{x}, {}})), w);
    const int backward = b.einsum("bf,df->bd", b.input({64, 16}, split({{x}, {}})), w);
    b.g.outputs = {forward, backward};
    check(b, {"all_gather x"}, 12 * 16 * 4);
  }
  SUBCASE("two elementwise operators whose results are replicated") {
    graph_builder b({4});
    const int w = b.input({16, 16}, split({{x}, {}}));
    b.g.outputs = {b.annotate(b.op(code_of<negative_op>, w), whole), b.annotate(b.op(code_of<abs_op>, w), whole)};
    check(b, {"all_gather x"}, 12 * 16 * 4);
  }
  SUBCASE("one of the users is the output itself") {
    graph_builder b({4});
    const int w = b.input({16, 16}, split({{x}, {}}));
    const int c = b.reshard(w, whole);
    b.g.outputs = {c, b.annotate(b.op(code_of<negative_op>, w), whole)};
    check(b, {"all_gather x"}, 12 * 16 * 4);
  }
  SUBCASE("each user wants a type of its own, no larger: still one, of the operand") {
    graph_builder b({4});
    const int w = b.input({16, 16}, split({{x}, {}}));
    b.g.outputs = {b.annotate(convert(b, w, dtype::f64), whole), b.annotate(b.op(code_of<abs_op>, w), whole)};
    check(b, {"all_gather x"}, 12 * 16 * 4);
  }
}

TEST_CASE("partial results are summed before they are reduced") {
  const auto product = [](graph_builder& b) {
    return b.einsum("ab,bc->ac", b.input({8, 64}, split({{}, {x}})), b.input({64, 8}, split({{x}, {}})));
  };
  const std::int64_t all_reduce = 2 * 3 * (8 * 8 / 4) * 4;
  SUBCASE("P + P") {
    graph_builder b({4});
    b.g.outputs = {b.annotate(b.op(code_of<add_op>, product(b), product(b)), whole)};
    check(b, {"all_reduce x"}, all_reduce);
  }
  SUBCASE("2 (P - P) + P^T, and only then a maximum") {
    graph_builder b({4});
    const int difference = b.op(code_of<subtract_op>, product(b), product(b));
    const int twice = b.op(code_of<multiply_op>, difference, b.constant({8, 8}, 2));
    const int sum = b.op(code_of<add_op>, twice, b.transpose(product(b), {1, 0}));
    b.g.outputs = {b.annotate(b.op(code_of<relu_op>, sum), whole)};
    check(b, {"all_reduce x"}, all_reduce);
  }
  SUBCASE("what is not partial is not added to a part") {
    graph_builder b({4});
    b.g.outputs = {b.annotate(b.op(code_of<add_op>, product(b), b.input({8, 8}, whole)), whole)};
    check(b, {"all_reduce x"}, all_reduce);
  }
}

TEST_CASE("all_reduce then slice is reduce_scatter") {
  const std::int64_t reduce_scatter = 3 * (8 * 8 / 4) * 4;
  const auto product = [](graph_builder& b) {  // the user annotates it as replicated
    return b.annotate(b.einsum("ab,bc->ac", b.input({8, 64}, split({{}, {x}})), b.input({64, 8}, split({{x}, {}}))), whole);
  };
  SUBCASE("at once") {
    graph_builder b({4});
    b.g.outputs = {b.reshard(product(b), split({{x}, {}}))};
    check(b, {"reduce_scatter x"}, reduce_scatter);
  }
  SUBCASE("through a scaling and a transpose") {
    graph_builder b({4});
    const int scaled = b.annotate(b.op(code_of<multiply_op>, product(b), b.constant({8, 8}, 3)), whole);
    const int turned = b.annotate(b.transpose(scaled, {1, 0}), whole);
    b.g.outputs = {b.reshard(turned, split({{x}, {}}))};
    check(b, {"reduce_scatter x"}, reduce_scatter);
  }
  SUBCASE("before what is not linear, if that is sliced") {
    graph_builder b({4});
    const int activated = b.annotate(b.op(code_of<relu_op>, product(b)), whole);
    b.g.outputs = {b.reshard(b.annotate(b.transpose(activated, {1, 0}), whole), split({{x}, {}}))};
    check(b, {"reduce_scatter x"}, reduce_scatter);
  }
  SUBCASE("not where the whole is needed too: then the slice is free") {
    graph_builder b({4});
    const int p = product(b);
    b.g.outputs = {b.reshard(p, split({{x}, {}})), p};
    const auto program = b.partition();
    CHECK(bytes_sent(b.mesh, program) == 2 * reduce_scatter);
    CHECK(wrong_run(b) == "");
  }
}

TEST_CASE("a gather comes before what makes the value larger") {
  const auto use = [](graph_builder& b, int w) {  // requires all of w on every device
    return b.einsum("bd,df->bf", b.input({64, 16}, split({{x}, {}})), w);
  };
  SUBCASE("a widening conversion, whether the result was to be split or not") {
    for (const bool is_split : {false, true}) {
      graph_builder b({4});
      int w = convert(b, b.input({16, 8}, split({{x}, {}})), dtype::f64);
      b.annotate(w, is_split ? split({{x}, {}}) : whole);
      w = is_split ? b.reshard(w, whole) : w;
      b.g.outputs = {w};
      check(b, {"all_gather x"}, 12 * 8 * 4);
    }
  }
  SUBCASE("a narrowing conversion comes first") {
    for (const bool is_split : {false, true}) {
      graph_builder b({4});
      const int in = add_parameter(b.g, dtype::f64, shape_of({16, 8}), {});
      int w = convert(b, b.annotate(in, split({{x}, {}})), dtype::f32);
      b.annotate(w, is_split ? split({{x}, {}}) : whole);
      b.g.outputs = {is_split ? b.reshard(w, whole) : w};
      check(b, {"all_gather x"}, 12 * 8 * 4);
    }
  }
  SUBCASE("a broadcast that was made split, and is needed whole") {
    graph_builder b({4});
    const int bias = b.input({16}, split({{x}}));
    const int w = b.annotate(b.broadcast(bias, {16, 8}, {0}), split({{x}, {}}));
    b.g.outputs = {use(b, w), b.op(code_of<negative_op>, w)};
    check(b, {"all_gather x"}, 12 * 4);
  }
  SUBCASE("both, one after the other") {
    graph_builder b({4});
    const int bias = b.input({16}, split({{x}}));
    const int w = b.annotate(b.broadcast(b.annotate(convert(b, bias, dtype::s64), split({{x}})), {16, 8}, {0}), split({{x}, {}}));
    b.g.outputs = {b.reshard(w, whole)};
    check(b, {"all_gather x"}, 12 * 4);
    CHECK(b.partition().ops.size() == 3);  // a value without users is gone
  }
}

TEST_CASE("a slice comes before an elementwise operator where that moves less") {
  graph_builder b({4});
  const int in = b.input({16, 8}, split({{}, {x}}));
  const int whole_result = b.annotate(b.op(code_of<negative_op>, in), whole);
  b.g.outputs = {b.reshard(whole_result, split({{x}, {}}))};
  check(b, {"all_to_all x"}, 3 * (16 * 8 / 16) * 4);
}

namespace {
/// The gradient of a layer, summed over microbatches. `how` selects its other users.
struct microbatches {
  bool scaled = false, read_in_loop = false;
  template <class V>
  auto operator()(V xs, V w) const {
    const auto zero = gspmd::constant(w, {48, 32}, 0.0F);
    const auto body = [&](auto g, auto rows) {
      const auto y = gspmd::tanh(gspmd::einsum<"bd,df->bf">(rows, w));
      auto one = gspmd::grad(gspmd::sum(y * y), w);
      if (scaled) one = -one * 0.25;
      return std::tuple{g + one, read_in_loop ? gspmd::sum(g) : gspmd::sum(rows)};
    };
    const auto [g, ys] = gspmd::scan(body, zero, xs);
    return std::tuple{g, ys};
  }
};
}  // namespace

TEST_CASE("gradients over microbatches are reduced once, after the loop") {
  using namespace gspmd;
  for (const std::int64_t rows : {16, 13})  // 13 over 4: uneven
    for (const auto& how : {microbatches{}, microbatches{true, false}, microbatches{false, true}}) {
      const auto on = [&](int devices) {
        return dynamic::compile(how, dynamic::mesh({{"data", devices}}), dynamic::input<float>({5, rows, 48}, {"", "data", ""}),
                                dynamic::input<float>({48, 32}, {"", ""}));
      };
      const auto p = on(4);
      CAPTURE(rows);
      CAPTURE(how.scaled);
      CAPTURE(how.read_in_loop);
      const std::int64_t all_reduce = 2 * 3 * (48 * 32 / 4) * 4;
      if (how.read_in_loop) CHECK(p.traffic().bytes > all_reduce + 5 * 6);
      else CHECK(p.traffic().bytes == all_reduce + 5 * 6);  // and one number in each iteration
      std::vector<float> xs(static_cast<std::size_t>(5 * rows * 48)), w(48 * 32);
      for (std::size_t i = 0; i < xs.size(); ++i) xs[i] = static_cast<float>(i * 7 % 13) / 13 - 0.5F;
      for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i * 5 % 11) / 11 - 0.5F;
      const auto split = p.run(simulated{}, xs, w), alone = on(1).run(serial{}, xs, w);
      double worst = 0;
      for (std::size_t k = 0; k < 2; ++k) {
        const auto *const a = reinterpret_cast<const float*>(split[k].bytes.data()), *const b = reinterpret_cast<const float*>(
                                                                                         alone[k].bytes.data());
        for (std::size_t i = 0; i < split[k].bytes.size() / sizeof(float); ++i)
          worst = std::fmax(worst, std::fabs(a[i] - b[i]) / (1 + std::fabs(b[i])));
      }
      CHECK(worst < 1e-4);
    }
}

namespace {
enum class otherwise { zero, zero_first, nested, itself, also_read };
struct some_microbatches {
  otherwise way;

  std::tuple<gspmd::value, gspmd::value> operator()(gspmd::value xs, gspmd::value w) const {
    using namespace gspmd;
    using carried = std::tuple<value, value, value>;
    const value zero = constant<float>(w, {w.shape()[0], w.shape()[1]}, 0);
    const auto body = [&](const carried& before, value rows) {
      const auto [sum_of_some, last, i] = before;
      const auto gradient = [&](value) { return einsum<"bd,bf->df">(rows, tanh(einsum<"bd,df->bf">(rows, w))); };
      const auto none = [&](value) { return zero; };
      const value is_even = equal(fmod(i, 2), 0), is_first = equal(i, 0);
      value g;
      switch (way) {
        case otherwise::zero_first: g = cond(is_even, none, gradient, i); break;
        case otherwise::nested:
          g = cond(
              is_even, [&](value k) { return 0.5F * cond(is_first, none, gradient, k); }, none, i);
          break;
        case otherwise::itself:
          g = cond(
              is_even, gradient, [&](value) { return w; }, i);
          break;
        default: g = cond(is_even, gradient, none, i);
      }
      return std::tuple{carried{sum_of_some + g, way == otherwise::also_read ? max(last, g) : last, i + 1}, i};
    };
    const auto [all, numbers] = scan(body, carried{zero, zero, constant<std::int64_t>(w, {}, 0)}, xs);
    return {std::get<0>(all), std::get<1>(all)};
  }
};
}  // namespace

TEST_CASE("what a conditional gives is reduced after the loop that adds it up, where 0 is in its place otherwise") {
  using namespace gspmd;
  for (const std::int64_t rows : {16, 13, 3})
    for (const auto way : {otherwise::zero, otherwise::zero_first, otherwise::nested, otherwise::itself, otherwise::also_read}) {
      const auto on = [&](int devices) {
        return dynamic::compile(some_microbatches{way}, dynamic::mesh({{"data", devices}}),
                                dynamic::input<float>({5, rows, 12}, {"", "data", ""}), dynamic::input<float>({12, 8}, {"", ""}));
      };
      const auto p = on(4);
      CAPTURE(rows);
      CAPTURE(static_cast<int>(way));
      const std::int64_t all_reduce = 2 * 3 * (12 * 8 / 4) * 4;
      if (way == otherwise::itself || way == otherwise::also_read) CHECK(p.traffic().bytes > all_reduce);
      else CHECK(p.traffic().bytes == all_reduce);
      std::vector<float> xs(static_cast<std::size_t>(5 * rows * 12)), w(12 * 8);
      for (std::size_t i = 0; i < xs.size(); ++i) xs[i] = static_cast<float>(i * 7 % 13) / 13 - 0.5F;
      for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i * 5 % 11) / 11 - 0.5F;
      const auto split = p.run(simulated{}, xs, w), alone = on(1).run(serial{}, xs, w);
      double worst = 0, largest = 0;
      for (std::size_t i = 0; i < w.size(); ++i) {
        const float a = split[0].data<float>()[i], b = alone[0].data<float>()[i];
        worst = std::fmax(worst, std::fabs(a - b));
        largest = std::fmax(largest, std::fabs(b));
      }
      CHECK(worst < 1e-4);
      CHECK(largest > 1e-2);
    }
}
