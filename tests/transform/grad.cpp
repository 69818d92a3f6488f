// SPDX-License-Identifier: Apache-2.0
// group: operators
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdio>

#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/windows.hpp"
#include "support/gradients.hpp"
#include "support/run_random.hpp"

// Every differentiable operator, alone and in random programs. Its gradient is compared with central differences of the
// naive evaluator, and the gradient program on many devices with the gradient on one device. GSPMD_SEED and
// GSPMD_PROGRAMS select the programs and their number.

namespace {

using namespace gspmd;
using reference::gradients_of;
using reference::host_array;
using reference::reals;
using reference::traced;
using reference::weighted_sum;
using list = std::vector<value>;

/// Checks the gradient of weighted_sum(f(inputs)) by every input that is a float: by differences, and partitioned by
/// random annotations on several meshes.
template <class F>
void check(const char* name, const std::vector<host_array>& inputs, F f, double step = 1e-3) {
  INFO(std::string(name));
  const auto build = [&](traced& program, std::vector<std::size_t>& numbers, value& loss) {
    list arguments;
    list by;
    for (const auto& x : inputs) {
      arguments.push_back(program.input(x));
      if (!x.floating()) continue;
      by.push_back(arguments.back());
      numbers.push_back(program.inputs.size() - 1);
    }
    loss = weighted_sum(program, f(arguments));
    return gradients_of(loss, by);
  };
  traced program;
  std::vector<std::size_t> numbers;
  value loss;
  const auto gradients = build(program, numbers, loss);
  REQUIRE_MESSAGE(!program.g.failed(), std::string(program.g.error.view()));
  std::vector<host_array> wanted{program.evaluate(loss)};
  for (const auto& x : gradients) wanted.push_back(program.evaluate(x));
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    reference::difference_check differences;
    differences.look(program, loss, numbers[k], wanted[k + 1], step, 1000);
    CHECK_MESSAGE(differences.wrong == "", differences.wrong);
    CHECK(differences.skipped == 0);
    CHECK((differences.checked > 0 || inputs[k].size() == 0));
  }

  reference::random_numbers random(reference::setting("GSPMD_SEED", 1));
  for (int k = 0; k < 12; ++k) {
    traced parts(reference::random_mesh(random));
    std::vector<std::size_t> again;
    value same_loss;
    const auto same = build(parts, again, same_loss);
    reference::annotate(parts, random);
    parts.output(same_loss);
    for (const auto& x : same) parts.output(x);
    const reference::partitioned_run run(parts);
    REQUIRE_MESSAGE(run.wrong == "", run.wrong);
    const double epsilon = inputs[0].type == dtype::f32 ? 1e-5 : 1e-11;
    for (std::size_t o = 0; o < wanted.size(); ++o) {
      double largest = 1;
      for (const double r : wanted[o].reals) largest = std::max(largest, std::fabs(r));
      const auto differs = reference::difference(run.outputs[o], wanted[o], epsilon * 50 * largest);
      CHECK_MESSAGE(differs == "", differs);
    }
  }
}

const std::vector<host_array> one = {reals({5, 3}, -2, 2)};
const std::vector<host_array> positive = {reals({5, 3}, 0.3, 3)};
const std::vector<host_array> two = {reals({5, 3}, -2, 2, 1), reals({5, 3}, -2, 2, 2)};

}  // namespace

TEST_CASE("elementwise operators of one operand") {
  check("abs", one, [](const list& x) { return abs(x[0]); });
  check("negative", one, [](const list& x) { return negative(x[0]); });
  check("-x", one, [](const list& x) { return -x[0]; });
  check("sign", one, [](const list& x) { return sign(x[0]); });
  check("floor", one, [](const list& x) { return floor(x[0]); });
  check("ceil", one, [](const list& x) { return ceil(x[0]); });
  check("exp", one, [](const list& x) { return exp(x[0]); });
  check("log", positive, [](const list& x) { return log(x[0]); });
  check("sqrt", positive, [](const list& x) { return sqrt(x[0]); });
  check("rsqrt", positive, [](const list& x) { return rsqrt(x[0]); });
  check("tanh", one, [](const list& x) { return tanh(x[0]); });
  check("sigmoid", one, [](const list& x) { return sigmoid(x[0]); });
  check("relu", one, [](const list& x) { return relu(x[0]); });
  check("sin", one, [](const list& x) { return sin(x[0]); });
  check("cos", one, [](const list& x) { return cos(x[0]); });
  check("nothing at all", {reals({0, 3}, 0, 1)}, [](const list& x) { return tanh(x[0]); });
  check("a scalar", {reals({}, 0.3, 1)}, [](const list& x) { return tanh(x[0]); });
}

TEST_CASE("elementwise operators of two operands") {
  check("add", two, [](const list& x) { return x[0] + x[1]; });
  check("subtract", two, [](const list& x) { return x[0] - x[1]; });
  check("multiply", two, [](const list& x) { return x[0] * x[1]; });
  check("divide", {reals({5, 3}, -2, 2, 1), reals({5, 3}, 0.5, 2, 2)}, [](const list& x) { return x[0] / x[1]; });
  check("divide by a negative", {reals({5, 3}, -2, 2, 1), reals({5, 3}, -2, -0.5, 2)}, [](const list& x) { return x[0] / x[1]; });
  check("pow", {reals({5, 3}, 0.3, 3, 1), reals({5, 3}, -2, 2, 2)}, [](const list& x) { return pow(x[0], x[1]); });
  check("power of negative bases", one, [](const list& x) { return pow(x[0], 3) + pow(x[0], 2.0); });
  check("power of 0", {reals({3}, {0, 0, 1})}, [](const list& x) { return pow(x[0], 2) + pow(x[0], 1); });
  check("a number to a power", one, [](const list& x) { return pow(2.5, x[0]); });
  check("max", two, [](const list& x) { return max(x[0], x[1]); });
  check("min", two, [](const list& x) { return min(x[0], x[1]); });
  check("numbers", one, [](const list& x) { return 2 / (3.5 - x[0] * 0.25) + max(x[0], 0.3) - min(-0.2, x[0]) + (x[0] - 1); });
  check("the same operand twice", positive,
        [](const list& x) { return x[0] * x[0] + x[0] / x[0] + pow(x[0], x[0]) - max(x[0], x[0]); });
}

TEST_CASE("gathers, scatters and scans") {
  const auto named = [](value x, gspmd::integers shape) { return iota<std::int32_t>(x, shape, 0) * 2 - 1; };  // -1 1 3 5 ...
  check("take", one, [&](const list& x) { return take(x[0], named(x[0], {4, 2}), 0); });
  check("take or a number", one, [&](const list& x) { return take(x[0], named(x[0], {4}), 1, out_of_range::fill, 3.0); });
  check("take_along_axis", one, [&](const list& x) { return take_along_axis(x[0], named(x[0], {5, 2}), 1); });
  check("scatter_add", two, [&](const list& x) { return scatter_add(x[0], named(x[0], {5}), x[1] * x[1], 0); });
  check("scatter by maximum", two, [&](const list& x) { return scatter_add(x[0], named(x[0], {5}) - 2, x[1], 0, monoid::max); });
  check("scatter by multiply", {reals({5, 3}, 0.5, 2, 1), reals({5, 3}, 0.5, 2, 2)},
        [&](const list& x) { return scatter_add(x[0], named(x[0], {5}) / 4, x[1], 0, monoid::multiply); });
  check("scatter in the place of rows, some of them twice", two, [&](const list& x) {
    return scatter(
        x[0], named(x[0], {5}) / 4, x[1],
        {.update_window_dims = {1}, .inserted_window_dims = {0}, .scatter_dims_to_operand_dims = {0}, .index_vector_dim = 1});
  });
  check("dynamic slices", two, [&](const list& x) {
    const value at = sum(named(x[0], {2}), 0) + 1;  // 1
    return dynamic_update_slice(x[0], dynamic_slice(x[1] * x[0], std::array{at, at}, {2, 2}), std::array{at, at});
  });
  check("cumsum", one, [](const list& x) { return cumsum(x[0], 0) * cumsum(x[0], 1, {.exclusive = true}); });
  check("reversed products", {reals({5, 3}, 0.5, 2, 1)},
        [](const list& x) { return scan_along(x[0], monoid::multiply, 0, {.reverse = true}); });
  check("top_k", one, [](const list& x) { return top_k(x[0] * x[0], 2).first; });
  check("sort", one, [](const list& x) { return sort(x[0] * x[0], 0, {.descending = true}) * x[0]; });
  check("sort_together", two, [](const list& x) {
    const auto [key, other] = sort_together({x[0], x[1] * x[1]}, 1, along(0));
    return key * other;
  });
}

TEST_CASE("the gradient of a softmax does not go through its maximum") {
  const auto of = [](auto f) {
    traced program;
    const value x = program.input(reals({5, 3}, -2, 2));
    grad(weighted_sum(program, f(x)), x);
    int maxima = 0, comparisons = 0, quotients = 0;
    for (const auto& n : program.g.nodes) {
      maxima += n.op == detail::code_of<detail::reduce_op> && n.reduced_by == monoid::max ? 1 : 0;
      comparisons += is_compare(n.op) ? 1 : 0;
      quotients += n.op == detail::code_of<detail::divide_op> ? 1 : 0;
    }
    return std::array{maxima, comparisons, quotients};
  };
  CHECK(of([](value x) { return softmax(x, 1); }) == std::array{1, 0, 1});
  CHECK(of([](value x) { return log_softmax(x, 1); }) == std::array{1, 0, 1});
  CHECK(of([](value x) {  // in the user's own words
          const value e = exp(x - sum(x));
          return e / sum(e);
        }) == std::array{0, 0, 1});
  check("by the user", one, [](const list& x) {
    const value e = exp(x[0] - sum(x[0]));
    return e / sum(e);
  });
  check("divided by the sums of another dim: none", {reals({3, 3}, -1, 1)}, [](const list& x) {
    const value e = exp(x[0]);
    return e / broadcast_in_dim(sum(e, {0}), {3, 3}, {0});
  });
}

TEST_CASE("at ties both sides of maximum and minimum get half") {  // which is what central differences say
  const std::vector<host_array> tied = {reals({4}, {1, 2, 3, -1}), reals({4}, {1, 0, 3, 5})};
  check("max", tied, [](const list& x) { return max(x[0], x[1]); });
  check("min", tied, [](const list& x) { return min(x[0], x[1]); });
  check("abs at 0", {reals({3}, {0, 1, -1})}, [](const list& x) { return abs(x[0]); });
  check("maximum of two equal elements", {reals({2, 3}, {4, 1, 4, -1, -1, -7})},
        [](const list& x) { return reduce(x[0], monoid::max, {1}); });
  check("minimum of two equal elements", {reals({2, 3}, {1, 4, 1, -7, 3, -7})},
        [](const list& x) { return reduce(x[0], monoid::min, {1}); });
  traced program;
  const value x = program.input(reals({4}, {3, 3, 1, 3}));
  const value g = grad(reduce(x, monoid::max), x);
  CHECK(reference::difference(program.evaluate(g), reals({4}, {1.0 / 3, 1.0 / 3, 0, 1.0 / 3}), 1e-15) == "");
  const value zero = program.input(reals({2}, {0, 0}));
  CHECK(reference::difference(program.evaluate(grad(sum(relu(zero)), zero)), reals({2}, {0, 0}), 0) == "");
}

TEST_CASE("the power 0 has slope 0, at 0 too") {
  traced program;
  const value x = program.input(reals({3}, {0, 1, -2}));
  const value n = program.input(reals({3}, {0, 0, 0}));
  CHECK(reference::difference(program.evaluate(grad(sum(pow(x, n)), x)), reals({3}, {0, 0, 0}), 0) == "");
}

TEST_CASE("select, convert and map") {
  check("where", {reals({5, 3}, -2, 2, 1), reals({5, 3}, -2, 2, 2), reals({5, 3}, -2, 2, 3)},
        [](const list& x) { return where(x[0] > x[1], x[1] * 2, x[2]); });
  check("select by an input", {reals({4}, -2, 2, 1), reference::integers(dtype::pred, {4}, {1, 0, 0, 1})},
        [](const list& x) { return where(x[1], sin(x[0]), 1.5); });
  check(
      "convert f64 to f32", {reals({5, 3}, {1, 2, 3, 4, 5, 6, 7, 8, -1, -2, -3, -4, -5, 0, 9})},
      [](const list& x) { return cast<float>(x[0]) * 3; }, 0.25);
  check(
      "convert f32 to f64", {reals({5, 3}, -2, 2, 1, dtype::f32)}, [](const list& x) { return cast<double>(x[0]) * 3; }, 0.125);
  check(
      "there and back", {reals({4}, {1, 2, -3, 0.5})}, [](const list& x) { return cast<double>(cast<float>(x[0])) * x[0]; },
      0.25);
  check("through integers", one, [](const list& x) { return cast<double>(cast<std::int32_t>(x[0])); });
  check("map of one argument", one, [](const list& x) {
    return map(with_derivative([](auto a) { return a * a * a; }, [](auto a) { return 3 * a * a; }), x[0]);
  });
  check("map of two arguments", two, [](const list& x) {
    return map(with_derivative([](auto a, auto b) { return a * a * b - b; }, [](auto a, auto b) { return 2 * a * b; },
                               [](auto a, auto) { return a * a - 1; }),
               x[0], x[1]);
  });
  check("map of a value and a number", one, [](const list& x) {
    return map(
        with_derivative([](auto a, auto b) { return a * b; }, [](auto, auto b) { return b; }, [](auto a, auto) { return a; }),
        x[0], 0.5);
  });
}

TEST_CASE("einsum") {
  check("ab->ba", one, [](const list& x) { return einsum<"ab->ba">(x[0]); });
  check("ab->ab", one, [](const list& x) { return einsum<"ab->ab">(x[0]); });
  check("ab->b", one, [](const list& x) { return einsum<"ab->b">(x[0]); });
  check("abc->ca", {reals({2, 5, 3}, -1, 1)}, [](const list& x) { return einsum<"abc->ca">(x[0]); });
  check("ab->", one, [](const list& x) { return einsum<"ab->">(x[0]); });
  check("bd,df->bf", {reals({5, 3}, -1, 1, 1), reals({3, 4}, -1, 1, 2)},
        [](const list& x) { return einsum<"bd,df->bf">(x[0], x[1]); });
  check("bd,fd->fb", {reals({5, 3}, -1, 1, 1), reals({4, 3}, -1, 1, 2)},
        [](const list& x) { return einsum<"bd,fd->fb">(x[0], x[1]); });
  check("nbd,ndf->nbf", {reals({3, 2, 5}, -1, 1, 1), reals({3, 5, 2}, -1, 1, 2)},
        [](const list& x) { return einsum<"nbd,ndf->nbf">(x[0], x[1]); });
  check("bnd,dnf->fnb", {reals({2, 3, 5}, -1, 1, 1), reals({5, 3, 2}, -1, 1, 2)},
        [](const list& x) { return einsum<"bnd,dnf->fnb">(x[0], x[1]); });
  check("a,b->ab", {reals({5}, -1, 1, 1), reals({3}, -1, 1, 2)}, [](const list& x) { return einsum<"a,b->ab">(x[0], x[1]); });
  check("a,a->", {reals({5}, -1, 1, 1), reals({5}, -1, 1, 2)}, [](const list& x) { return einsum<"a,a->">(x[0], x[1]); });
  check("ab,ab->ab", two, [](const list& x) { return einsum<"ab,ab->ab">(x[0], x[1]); });
  check("abs,bc->ac", {reals({2, 3, 4}, -1, 1, 1), reals({3, 2}, -1, 1, 2)},
        [](const list& x) { return einsum<"abs,bc->ac">(x[0], x[1]); });
  check("ab,bcs->ac", {reals({2, 3}, -1, 1, 1), reals({3, 2, 4}, -1, 1, 2)},
        [](const list& x) { return einsum<"ab,bcs->ac">(x[0], x[1]); });
  check("abs,bct->c", {reals({2, 3, 4}, -1, 1, 1), reals({3, 2, 5}, -1, 1, 2)},
        [](const list& x) { return einsum<"abs,bct->c">(x[0], x[1]); });
  check("a,->a", {reals({5}, -1, 1, 1), reals({}, 0.5, 1, 2)}, [](const list& x) { return einsum<"a,->a">(x[0], x[1]); });
  check("a value with itself", {reals({4, 3}, -1, 1)}, [](const list& x) { return einsum<"ab,cb->ac">(x[0], x[0]); });
  check("its norm", {reals({4, 3}, -1, 1)}, [](const list& x) { return einsum<"ab,ab->">(x[0], x[0]); });
  check("a square with itself", {reals({3, 3}, -1, 1)}, [](const list& x) { return einsum<"ab,bc->ac">(x[0], x[0]); });
  check("an empty sum", {reals({2, 0}, -1, 1), reals({0, 3}, -1, 1)},
        [](const list& x) { return einsum<"ab,bc->ac">(x[0], x[1]); });
}

TEST_CASE("reduce") {
  const std::vector<host_array> three = {reals({3, 4, 2}, 0.5, 1.5)};
  for (const auto kind : {monoid::add, monoid::multiply, monoid::max, monoid::min}) {
    INFO(std::string(detail::name_of(kind)));
    check("dim 0", three, [=](const list& x) { return reduce(x[0], kind, {0}); });
    check("dim 1", three, [=](const list& x) { return reduce(x[0], kind, {1}); });
    check("dims 0 and 2", three, [=](const list& x) { return reduce(x[0], kind, {2, 0}); });
    check("all", three, [=](const list& x) { return reduce(x[0], kind); });
    check("a scalar", {reals({}, 0.5, 1)}, [=](const list& x) { return reduce(x[0], kind); });
  }
}

TEST_CASE("broadcasts, reshape, transpose, reshard") {
  check("a new dim", {reals({3}, -1, 1)}, [](const list& x) { return broadcast_in_dim(x[0], {4, 3}, {1}); });
  check("new dims around", {reals({3}, -1, 1)}, [](const list& x) { return broadcast_in_dim(x[0], {4, 3, 2}, {1}); });
  check("stretched", {reals({1, 3}, -1, 1)}, [](const list& x) { return broadcast_in_dim(x[0], {4, 3}, {0, 1}); });
  check("stretched and new", {reals({3, 1}, -1, 1)}, [](const list& x) { return broadcast_in_dim(x[0], {2, 3, 5}, {1, 2}); });
  check("stays 1", {reals({1, 3}, -1, 1)}, [](const list& x) { return broadcast_in_dim(x[0], {2, 1, 3}, {1, 2}); });
  check("from a scalar", {reals({}, 0.5, 1)}, [](const list& x) { return broadcast_in_dim(x[0], {2, 5}, {}); });
  check("out of order", {reals({3, 2}, -1, 1)}, [](const list& x) { return broadcast_in_dim(x[0], {2, 4, 3}, {2, 0}); });
  check("out of order, stretched", {reals({3, 1, 2}, -1, 1)}, [](const list& x) {
    return broadcast_in_dim(x[0], {2, 4, 5, 3}, {3, 1, 0});
  });
  check("as NumPy does: rows", {reals({4, 3}, -1, 1, 1), reals({3}, -1, 1, 2)}, [](const list& x) { return x[0] * x[1]; });
  check("as NumPy does: both", {reals({4, 1}, -1, 1, 1), reals({1, 3}, -1, 1, 2)}, [](const list& x) { return x[0] * x[1]; });
  check("as NumPy does: ranks", {reals({2, 1, 3}, -1, 1, 1), reals({4, 1}, -1, 1, 2), reals({}, 0.5, 1, 3)},
        [](const list& x) { return where(x[0] > 0.1, x[1] * x[2], x[0] - x[2]); });
  check("reshape", {reals({4, 3}, -1, 1)}, [](const list& x) { return reshape(sin(x[0]), {2, 6}); });
  check("reshape to one dim", {reals({4, 3}, -1, 1)}, [](const list& x) { return reshape(x[0], {12}); });
  check("reshape of 1", {reals({1, 1}, -1, 1)}, [](const list& x) { return reshape(x[0], {}); });
  check("transpose", {reals({2, 3, 5}, -1, 1)}, [](const list& x) { return transpose(x[0], {2, 0, 1}); });
  check("shift", {reals({4, 3}, -1, 1)},
        [](const list& x) { return shift(x[0], 1, along(0)) * x[0] + sin(shift(x[0], -2, along(1))); });
  check("pad", {reals({4, 3}, -1, 1)}, [](const list& x) { return sin(pad(x[0], {1, -1}, {-2, 2}, 3, {1, 0})); });
  check("slice", {reals({7, 3}, -1, 1)}, [](const list& x) { return sin(slice(x[0], {1, 0}, {7, 2}, {2, 1})); });
  check("flip", {reals({4, 3}, -1, 1)}, [](const list& x) { return flip(x[0], {0, 1}) * sin(x[0]); });
  check("roll", {reals({4, 3}, -1, 1)}, [](const list& x) { return roll(x[0], 3, along(0)) * sin(roll(x[0], -1, along(1))); });
  check("concatenate", {reals({4, 3}, -1, 1), reals({1, 3}, -1, 1)}, [](const list& x) {
    const value both = concatenate({x[1], x[0], x[1]}, 0);
    return both * both;
  });
  check("shift by more than there is", {reals({4, 3}, -1, 1)}, [](const list& x) { return shift(x[0], 5, along(0)) + x[0]; });
  check("reshard", one, [](const list& x) { return tanh(reshard(x[0], split<"x", _>{})); });
  check("replicate", one, [](const list& x) { return replicate(x[0]) * x[0]; });
}

TEST_CASE("windows") {
  const auto x = reals({11, 5}, -2, 2);
  using enum monoid;
  check("sums", {x}, [](const list& l) { return sin(reduce_window(l[0], add, {3, 2}, {2, 1}, {1, 0}, {2, -1})); });
  check("sums, dilated", {x}, [](const list& l) {
    return sin(reduce_window(l[0], add, {3, 2}, {2, 3}, {}, {}, {3, 2}, {2, 1}));
  });
  check("sums of everything", {x}, [](const list& l) { return sin(reduce_window(l[0], add, {11, 5})); });
  check("maxima", {x}, [](const list& l) { return sin(reduce_window(l[0], max, {3, 2}, {2, 1})); });
  check("minima, padded", {x}, [](const list& l) { return reduce_window(l[0], min, {4, 3}, {1, 2}, {2, 0}, {1, 1}) * 3.0; });
  check("maxima, dilated", {x}, [](const list& l) {
    return reduce_window(l[0], max, {3, 3}, {2, 1}, {0, 1}, {0, 1}, {1, 2}, {2, 1});
  });
  check("products", {reals({7, 3}, 0.5, 2)}, [](const list& l) { return reduce_window(l[0], multiply, {3, 1}, {2, 1}); });
  check("max_pool", {x}, [](const list& l) { return max_pool(l[0], {2, 1}); });
  check("avg_pool", {x}, [](const list& l) { return sin(avg_pool(l[0], {3, 2}, {1, 2}, {1, 0}, {1, 0})); });
  check("upsample", {x}, [](const list& l) { return sin(upsample(l[0], {3, 2})); });
  check("nothing", {reals({0, 3}, 0, 1)}, [](const list& l) { return max_pool(l[0], {1, 2}); });
  check("five dims", {reals({3, 2, 3, 2, 3}, -2, 2)}, [](const list& l) {
    return sin(sum_pool(l[0], {2, 2, 2, 2, 2}, {1, 1, 1, 1, 1}));
  });
}

TEST_CASE("built operators") {
  check("softmax", one, [](const list& x) { return softmax(x[0], 1); });
  check("softmax along dim 0", one, [](const list& x) { return softmax(x[0], 0); });
  check("log_softmax", one, [](const list& x) { return log_softmax(x[0], 1); });
  check("log_softmax of rank 3", {reals({2, 4, 3}, -3, 3)}, [](const list& x) { return log_softmax(x[0], 1); });
  check("mean", one, [](const list& x) { return mean(x[0], {0}); });
  check("mean of all", one, [](const list& x) { return mean(x[0]); });
  check("cross entropy", {reals({5, 4}, -2, 2), reference::integers(dtype::s32, {5}, {3, 0, 1, 1, 2})},
        [](const list& x) { return -1.0 * mean(sum(one_hot<double>(x[1], 4) * log_softmax(x[0], 1), {1})); });
  check("layer", {reals({5, 4}, -1, 1, 1), reals({4, 3}, -1, 1, 2), reals({3}, -1, 1, 3)},
        [](const list& x) { return tanh(einsum<"bd,df->bf">(x[0], x[1]) + x[2]); });
}

TEST_CASE("by intermediate values, by what the loss does not hang on, and twice") {
  traced program;
  const value x = program.input(reals({3}, {1, 2, 3}));
  const value unused = program.input(reals({2, 2}, {1, 2, 3, 4}));
  const value number = program.input(reference::integers(dtype::s32, {2}, {1, 2}));
  const value h = x * x;
  const value loss = sum(h * h);
  const auto [by_h, by_x, by_unused, by_number] = grad(loss, std::tuple{h, x, unused, number});
  const value later = sin(x);
  const value by_later = grad(loss, later);
  REQUIRE(!program.g.failed());
  CHECK(reference::difference(program.evaluate(by_h), reals({3}, {2, 8, 18}), 1e-12) == "");
  CHECK(reference::difference(program.evaluate(by_x), reals({3}, {4, 32, 108}), 1e-12) == "");
  CHECK(reference::difference(program.evaluate(by_unused), reals({2, 2}, {0, 0, 0, 0}), 0) == "");
  CHECK(reference::difference(program.evaluate(by_number), reference::integers(dtype::s32, {2}, {0, 0}), 0) == "");
  CHECK(reference::difference(program.evaluate(by_later), reals({3}, {0, 0, 0}), 0) == "");
  CHECK(reference::difference(program.evaluate(grad(loss, loss)), reals({}, {1}), 0) == "");

  check("the gradient of a gradient", {reals({4}, 0.3, 2)},
        [](const list& v) { return grad(sum(pow(v[0], 3) * tanh(v[0])) + mean(log_softmax(v[0], 0)), v[0]); });
  check("of a contraction", {reals({4, 3}, -1, 1, 1), reals({3, 2}, -1, 1, 2)},
        [](const list& v) { return grad(sum(tanh(einsum<"ab,bc->ac">(v[0], v[1]))), v[1]); });
}

TEST_CASE("what cannot be differentiated is refused") {
  const auto error_of = [](auto f) {
    traced program;
    const value x = program.input(reals({3}, {1, 2, 3}));
    const value n = program.input(reference::integers(dtype::s32, {}, {1}));
    static_cast<void>(f(x, n));
    CHECK(program.g.failed());
    return std::string(program.g.error.view());
  };
  const auto ends = [](const std::string& s, const std::string& end) {
    return s.size() >= end.size() && s.substr(s.size() - end.size()) == end;
  };
  CHECK(ends(error_of([](value x, value) { return grad(tanh(x), x); }),
             ": the value to differentiate is f64[3]; it must be a float of rank 0, a loss: sum or mean it"));
  CHECK(ends(error_of([](value, value n) { return grad(n, n); }),
             ": the value to differentiate is s32[]; it must be a float of rank 0, a loss: sum or mean it"));
  const auto text = error_of([](value x, value) { return grad(sum(map([](auto a) { return a * a; }, x)), x); });
  CHECK(text.substr(0, 16) == "map at grad.cpp:");
  CHECK(ends(text, ": has no derivative; pass with_derivative(f, df...) instead of f"));
  // a map that the loss does not hang on needs none
  traced program;
  const value x = program.input(reals({3}, {1, 2, 3}));
  static_cast<void>(map([](auto a) { return a * a; }, x));
  CHECK(grad(sum(x), x).is_valid());
  CHECK(!program.g.failed());
}

namespace {

/// A random program of differentiable operators on values that stay tame.
class random_composition {
 public:
  traced program;
  std::vector<value> by;
  value loss;
  value before;  // whose weighted sum the loss is

  random_composition(std::uint64_t seed, const std::vector<int>& mesh) : program(mesh), random_(seed) {
    for (int k = 0; k < 3; ++k) palette_.push_back(random_.chance(12) ? 1 : random_.between(2, 5));
    for (int k = random_.between(1, 3); k > 0; --k) {
      host_array x(dtype::f64, random_shape());
      for (auto& r : x.reals) r = 4 * random_.unit() - 2;
      by.push_back(program.input(x));
      values_.push_back(x);
    }
    const int wanted = random_.between(2, 10);
    int operators = 0;
    for (int tries = 0; operators < wanted && tries < 100 * wanted; ++tries) {
      const auto nodes = program.g.nodes.size();
      const value made = make();
      if (program.g.failed()) return;
      if (keep(nodes, made)) ++operators;
    }
    before = pick();
    for (int tries = 0; tries < 20 && before.node().op == opcode::parameter; ++tries) before = pick();
    loss = weighted_sum(program, before);
  }

 private:
  using opcode = detail::opcode;
  [[nodiscard]] const host_array& at(value x) const { return values_[static_cast<std::size_t>(x.id())]; }
  std::vector<std::int64_t> random_shape() {
    std::vector<std::int64_t> shape;
    for (int d = random_.between(0, 3); d > 0; --d) shape.push_back(random_.one_of(palette_));
    return shape;
  }
  value pick() {
    while (true) {
      const int n = static_cast<int>(program.g.nodes.size());
      const int i = random_.chance(60) ? random_.between(n / 2, n - 1) : random_.between(0, n - 1);
      const value x(&program.g, i);
      if (x.type() == dtype::f64) return x;
    }
  }
  /// Takes the new nodes back if one of their values is wild.
  bool keep(std::size_t nodes, value made) {
    bool tame = made.is_valid() && program.g.nodes.size() > nodes;
    for (auto i = nodes; i < program.g.nodes.size(); ++i) {
      values_.push_back(reference::evaluate_node(program.g, static_cast<int>(i), values_));
      tame = tame && values_.back().size() <= 400;
      for (const double r : values_.back().reals) tame = tame && std::fabs(r) < 20;
    }
    if (!tame) {
      program.g.nodes.resize(nodes);
      values_.resize(nodes);
    }
    return tame;
  }
  [[nodiscard]] bool all(value x, bool (*holds)(double)) const {
    for (const double r : at(x).reals)
      if (!holds(r)) return false;
    return true;
  }
  detail::inline_vec<std::int8_t, detail::max_rank> order(int rank) {
    detail::inline_vec<std::int8_t, detail::max_rank> result;
    for (int d = 0; d < rank; ++d) result.insert(random_.between(0, d), static_cast<std::int8_t>(d));
    return result;
  }
  value add(int id) { return {&program.g, id}; }

  value make() {
    const value x = pick();
    const value y = pick();
    const int rank = x.rank();
    auto& g = program.g;
    switch (random_.between(0, 27)) {
      case 0: return tanh(x);
      case 1: return sigmoid(x);
      case 2: return sin(x);
      case 3: return cos(x);
      case 4: return all(x, [](double r) { return r < 2; }) ? exp(x) : value();
      case 5: return all(x, [](double r) { return r > 0.1; }) ? log(x) : value();
      case 6: return all(x, [](double r) { return r > 0.1; }) ? sqrt(x) : value();
      case 7: return all(x, [](double r) { return r > 0.1; }) ? rsqrt(x) : value();
      case 8: return abs(x);
      case 9: return relu(x);
      case 10: return -x;
      case 11: return common(x, y) ? x + y : value();
      case 12: return common(x, y) ? x - y : value();
      case 13: return common(x, y) ? x * y : value();
      case 14: return common(x, y) && all(y, [](double r) { return std::fabs(r) > 0.2; }) ? x / y : value();
      case 15: return common(x, y) ? max(x, y) : value();
      case 16: return common(x, y) ? min(x, y) : value();
      case 17:
        return common(x, y) && all(x, [](double r) { return r > 0.2; }) && all(y, [](double r) { return std::fabs(r) < 3; })
                   ? pow(x, y)
                   : value();
      case 18: return common(x, y) ? where(x > y, 0.5 * x, y) : value();
      case 19: return 1.5 * x - 0.25;
      case 20:
        return common(x, y) ? map(with_derivative([](auto a, auto b) { return a * b - a; }, [](auto, auto b) { return b - 1; },
                                                  [](auto a, auto) { return a; }),
                                  x, y)
                            : value();
      case 21: return rank > 0 ? softmax(x, random_.between(0, rank - 1)) : value();
      case 22: return rank > 0 ? log_softmax(x, random_.between(0, rank - 1)) : value();
      case 23: {
        const auto kind =
            random_.one_of(std::vector<monoid>{monoid::add, monoid::add, monoid::multiply, monoid::max, monoid::min});
        if (kind == monoid::multiply && !all(x, [](double r) { return std::fabs(r) > 0.2; })) return {};
        detail::dim_mask dims = 0;
        for (int d = 0; d < rank; ++d)
          if (random_.chance(50)) dims |= detail::dim_bit(d);
        return add(detail::add_reduce(g, x.id(), dims, kind, {}));
      }
      case 24: return add(detail::add_transpose(g, x.id(), order(rank), {}));
      case 25: {
        detail::extents shape;
        std::int64_t rest = detail::elements(x.shape());
        while (rest > 1) {
          std::int64_t e = random_.between(2, static_cast<int>(rest));
          while (rest % e != 0) ++e;
          shape.push_back(e);
          rest /= e;
        }
        return add(detail::add_reshape(g, x.id(), shape, {}));
      }
      case 26:
        return random_.chance(50)
                   ? spread(x)
                   : add(detail::add_reshard(g, x.id(), reference::random_sharding(program.mesh.shape, rank, random_), {}));
      default: return contract(x, y);
    }
  }
  static bool common(value x, value y) {
    for (int d = 1; d <= x.rank() && d <= y.rank(); ++d) {
      const auto a = x.shape()[x.rank() - d];
      const auto b = y.shape()[y.rank() - d];
      if (a != b && a != 1 && b != 1) return false;
    }
    return true;
  }
  value spread(value x) {
    detail::extents shape;
    detail::inline_vec<std::int8_t, detail::max_rank> dims;
    for (int d = 0; d < x.rank(); ++d) {
      if (random_.chance(30)) shape.push_back(random_.one_of(palette_));
      dims.push_back(static_cast<std::int8_t>(shape.count));
      shape.push_back(x.shape()[d] == 1 && random_.chance(50) ? random_.one_of(palette_) : x.shape()[d]);
    }
    if (random_.chance(50)) shape.push_back(random_.one_of(palette_));
    return add(detail::add_broadcast(program.g, x.id(), shape, dims, {}));
  }
  /// Letters of equal extents meet at random; the result has some of all letters in any order.
  value contract(value x, value y) {
    const int operands = random_.chance(80) ? 2 : 1;
    std::string equation;
    std::string letters;
    std::vector<std::int64_t> sizes;
    for (int k = 0; k < operands; ++k) {
      const value v = k == 0 ? x : y;
      if (k == 1) equation += ',';
      std::string own;
      for (const auto e : v.shape()) {
        char c = 0;
        for (std::size_t l = 0; l < letters.size() && c == 0; ++l)
          if (sizes[l] == e && own.find(letters[l]) == std::string::npos && random_.chance(70)) c = letters[l];
        if (c == 0) {
          c = static_cast<char>('a' + letters.size());
          letters += c;
          sizes.push_back(e);
        }
        own += c;
      }
      equation += own;
    }
    equation += "->";
    for (const auto l : order(static_cast<int>(letters.size())))
      if (random_.chance(55)) equation += letters[static_cast<std::size_t>(l)];
    return detail::einsum_of(detail::parse_einsum(equation), x, y, {});
  }

  reference::random_numbers random_;
  std::vector<std::int64_t> palette_;
  std::vector<host_array> values_;
};

}  // namespace

TEST_CASE("random compositions: differences, and many devices") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs(400);
  int checked = 0;
  int skipped = 0;
  int collectives = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    INFO("seed " << seed);
    reference::random_numbers random(seed + 77);
    random_composition c(seed, reference::random_mesh(random));
    const auto gradients = gradients_of(c.loss, c.by);
    REQUIRE_MESSAGE(!c.program.g.failed(), std::string(c.program.g.error.view()));
    c.program.output(c.loss);
    double largest = 1;
    for (const auto& v : c.program.evaluate(static_cast<int>(c.program.g.nodes.size()) - 1))
      for (const double r : v.reals) largest = std::max(largest, std::fabs(r));
    std::vector<host_array> wanted{c.program.evaluate(c.loss)};
    for (std::size_t k = 0; k < gradients.size(); ++k) {
      c.program.output(gradients[k]);
      wanted.push_back(c.program.evaluate(gradients[k]));
      reference::difference_check differences;
      differences.look(c.program, c.loss, k, wanted.back(), 1e-4, 12);
      CHECK_MESSAGE(differences.wrong == "", differences.wrong);
      checked += differences.checked;
      skipped += differences.skipped;
    }
    reference::annotate(c.program, random);
    const reference::partitioned_run run(c.program);
    CHECK_MESSAGE(run.wrong == "", run.wrong);
    collectives += run.collectives;
    for (std::size_t o = 0; o < wanted.size() && o < run.outputs.size(); ++o) {
      const auto differs = reference::difference(run.outputs[o], wanted[o], 1e-11 * largest);
      CHECK_MESSAGE(differs == "", "output ", o, ": ", differs);
    }
  }
  std::printf("random gradients: seeds %llu to %llu, %d elements checked, %d skipped, %d collectives\n",
              static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + count - 1), checked, skipped,
              collectives);
  CHECK(skipped * 50 <= checked);
  CHECK(collectives > static_cast<int>(count));
}
