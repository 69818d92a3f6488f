// SPDX-License-Identifier: Apache-2.0
// group: operators
#include <doctest/doctest.h>

#include <cmath>

#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/windows.hpp"
#include "support/traced.hpp"

// The operators that are built of others, and how operands become one shape and type, against the formulas written out:
// by the naive evaluator, on one device, and on many with random annotations.

namespace {

using namespace gspmd;
using reference::host_array;
using reference::integers;
using reference::reals;
using reference::traced;
using list = std::vector<value>;
using place = reference::index;

/// Checks that f(inputs) is `wanted`.
template <class F>
void check(const char* name, const std::vector<host_array>& inputs, F f, const host_array& wanted) {
  INFO(std::string(name));
  const double tolerance = wanted.type == dtype::f32 ? 1e-6 : 1e-13;
  reference::random_numbers random(1);
  for (int k = 0; k < 10; ++k) {
    traced program(k == 0 ? std::vector<int>{1} : reference::random_mesh(random));
    list arguments;
    for (const auto& x : inputs) arguments.push_back(program.input(x));
    const value y = f(arguments);
    REQUIRE_MESSAGE(!program.g.failed(), std::string(program.g.error.view()));
    REQUIRE(y.is_valid());
    const auto naive = reference::difference(program.evaluate(y), wanted, tolerance);
    CHECK_MESSAGE(naive == "", "naive: ", naive);
    program.output(y);
    if (k > 0) reference::annotate(program, random);
    const reference::partitioned_run run(program);
    REQUIRE_MESSAGE(run.wrong == "", run.wrong);
    const auto planned = reference::difference(run.outputs[0], wanted, tolerance);
    CHECK_MESSAGE(planned == "", "planned: ", planned);
  }
}

/// An array whose element at every index is f(index).
template <class F>
host_array filled(dtype type, const std::vector<std::int64_t>& shape, F f) {
  host_array x(type, shape);
  std::size_t e = 0;
  reference::for_each_index(shape, [&](const place& at) {
    if (x.floating()) x.reals[e++] = reference::round_to(type, static_cast<double>(f(at)));
    else x.ints[e++] = static_cast<std::int64_t>(f(at));
  });
  return x;
}
double get(const host_array& x, const place& at) { return x.reals[reference::offset_of(at, x.shape)]; }
std::int64_t get_integer(const host_array& x, const place& at) { return x.ints[reference::offset_of(at, x.shape)]; }

const host_array a = reals({5, 3}, -2, 2, 1);
const host_array b = reals({5, 3}, 0.5, 2, 2);
const host_array cube = reals({2, 5, 3}, -2, 2, 3);

}  // namespace

TEST_CASE("softmax and log_softmax") {
  const auto along = [](const host_array& x, std::size_t dim, const place& at) {
    double total = 0;
    place i = at;
    for (i[dim] = 0; i[dim] < x.shape[dim]; ++i[dim]) total += std::exp(get(x, i));
    return total;
  };
  for (int dim = 0; dim < 2; ++dim) {
    const auto d = static_cast<std::size_t>(dim);
    check(
        "softmax", {a}, [=](const list& x) { return softmax(x[0], dim); },
        filled(dtype::f64, {5, 3}, [&](const place& at) { return std::exp(get(a, at)) / along(a, d, at); }));
    check(
        "log_softmax", {a}, [=](const list& x) { return log_softmax(x[0], dim); },
        filled(dtype::f64, {5, 3}, [&](const place& at) { return std::log(std::exp(get(a, at)) / along(a, d, at)); }));
  }
  check(
      "softmax of rank 3", {cube}, [](const list& x) { return softmax(x[0], 1); },
      filled(dtype::f64, {2, 5, 3}, [&](const place& at) { return std::exp(get(cube, at)) / along(cube, 1, at); }));
  // large numbers do not overflow, and a row of equal numbers is shared evenly
  check(
      "softmax of large numbers", {reals({2, 2}, {1e4, 1e4, -1e4, 0})}, [](const list& x) { return softmax(x[0], 1); },
      reals({2, 2}, {0.5, 0.5, 0, 1}));
  check(
      "log_softmax of large numbers", {reals({1, 2}, {1e4, 0})}, [](const list& x) { return log_softmax(x[0], 1); },
      reals({1, 2}, {0, -1e4}));
  check(
      "softmax of one element", {reals({3, 1}, -1, 1)}, [](const list& x) { return softmax(x[0], 1); }, reals({3, 1}, {1, 1, 1}));
  check(
      "softmax of nothing", {reals({3, 0}, -1, 1)}, [](const list& x) { return softmax(x[0], 1); },
      reals({3, 0}, std::vector<double>{}));
}

TEST_CASE("sum and mean") {
  const auto total = [](const host_array& x, auto keeps) {
    double t = 0;
    reference::for_each_index(x.shape, [&](const place& at) { t += keeps(at) ? get(x, at) : 0; });
    return t;
  };
  check(
      "over dims 0 and 2", {cube},
      [](const list& x) {
        return sum(x[0], {0, 2});
      },
      filled(dtype::f64, {5}, [&](const place& at) { return total(cube, [&](const place& i) { return i[1] == at[0]; }); }));
  check(
      "in any order", {cube},
      [](const list& x) {
        return sum(x[0], {2, 0});
      },
      filled(dtype::f64, {5}, [&](const place& at) { return total(cube, [&](const place& i) { return i[1] == at[0]; }); }));
  check(
      "over dim 1: the others keep their order", {cube}, [](const list& x) { return sum(x[0], {1}); },
      filled(dtype::f64, {2, 3},
             [&](const place& at) { return total(cube, [&](const place& i) { return i[0] == at[0] && i[2] == at[1]; }); }));
  check(
      "over all", {cube}, [](const list& x) { return sum(x[0]); },
      filled(dtype::f64, {}, [&](const place&) { return total(cube, [](const place&) { return true; }); }));
  check(
      "mean over dims 0 and 1", {cube},
      [](const list& x) {
        return mean(x[0], {0, 1});
      },
      filled(dtype::f64, {3}, [&](const place& at) { return total(cube, [&](const place& i) { return i[2] == at[0]; }) / 10; }));
  check(
      "mean over all", {cube}, [](const list& x) { return mean(x[0]); },
      filled(dtype::f64, {}, [&](const place&) { return total(cube, [](const place&) { return true; }) / 30; }));
  check(
      "sum of a scalar", {reals({}, {3})}, [](const list& x) { return sum(x[0]); }, reals({}, {3}));
  check(
      "sum of nothing", {reals({0, 2}, -1, 1)}, [](const list& x) { return sum(x[0], {0}); }, reals({2}, {0, 0}));
  check(
      "reduced dims are gone, and a reshape brings them back", {a},
      [](const list& x) {
        return x[0] - reshape(sum(x[0], {1}), {5, 1});
      },
      filled(dtype::f64, {5, 3},
             [&](const place& at) { return get(a, at) - total(a, [&](const place& i) { return i[0] == at[0]; }); }));
  check(
      "max", {a}, [](const list& x) { return reduce(x[0], monoid::max, {0}); }, filled(dtype::f64, {3}, [&](const place& at) {
        double most = -9;
        for (std::int64_t i = 0; i < 5; ++i) most = std::max(most, get(a, {i, at[0]}));
        return most;
      }));
  traced program;
  const value x = program.input(a);
  CHECK(sum(x, {2}).rank() == 1);
  CHECK(program.g.failed());
  traced other;
  CHECK(sum(other.input(a), {-3}).rank() == 1);
  CHECK(other.g.failed());
}

TEST_CASE("one_hot and iota") {
  const auto labels = integers(dtype::s32, {4}, {2, 0, 7, -1});  // beyond the end: a row of zeros
  check(
      "one_hot", {labels}, [](const list& x) { return one_hot<double>(x[0], 3); },
      reals({4, 3}, {0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0}));
  const auto square = integers(dtype::s64, {2, 2}, {0, 1, 1, 0});
  check(
      "one_hot of rank 2", {square}, [](const list& x) { return one_hot<std::int32_t>(x[0], 2); },
      integers(dtype::s32, {2, 2, 2}, {1, 0, 0, 1, 0, 1, 1, 0}));
  check(
      "iota", {a},
      [](const list& x) {
        return iota<double>(x[0], {5, 3}, 1) + x[0];
      },
      filled(dtype::f64, {5, 3}, [&](const place& at) { return static_cast<double>(at[1]) + get(a, at); }));
  check(
      "constant", {a},
      [](const list& x) {
        return constant(x[0], {2, 2}, 1.5);
      },
      reals({2, 2}, {1.5, 1.5, 1.5, 1.5}));
}

TEST_CASE("numbers and tensors are mixed, on both sides") {
  const auto every = [](auto f) {
    return filled(dtype::f64, {5, 3}, [=](const place& at) { return f(get(a, at), get(b, at)); });
  };
  check(
      "2.0 * x", {a, b}, [](const list& x) { return 2.0 * x[0]; }, every([](double p, double) { return 2 * p; }));
  check(
      "x - 1", {a, b}, [](const list& x) { return x[0] - 1; }, every([](double p, double) { return p - 1; }));
  check(
      "1 - x", {a, b}, [](const list& x) { return 1 - x[0]; }, every([](double p, double) { return 1 - p; }));
  check(
      "3 / y", {a, b}, [](const list& x) { return 3 / x[1]; }, every([](double, double q) { return 3 / q; }));
  check(
      "pow", {a, b}, [](const list& x) { return pow(x[1], 3) - pow(2, x[0]); },
      every([](double p, double q) { return q * q * q - std::exp2(p); }));
  check(
      "clip", {a, b}, [](const list& x) { return min(max(-0.5, x[0]), 0.5F); },
      every([](double p, double) { return std::min(std::max(-0.5, p), 0.5); }));
  check(
      "where", {a, b}, [](const list& x) { return where(x[0] > 0.25, 1, x[1]); },
      every([](double p, double q) { return p > 0.25 ? 1 : q; }));
  check(
      "select of numbers by a tensor", {a, b}, [](const list& x) { return where(x[0] < x[1], x[0], -2.0); },
      every([](double p, double q) { return p < q ? p : -2; }));
  check(
      "a row", {a, reals({3}, {1, 2, 3})}, [](const list& x) { return x[1] - x[0]; },
      filled(dtype::f64, {5, 3}, [&](const place& at) { return static_cast<double>(at[1] + 1) - get(a, at); }));
  check(
      "a row and a column", {reals({3}, {1, 2, 3}), reals({5, 1}, {10, 20, 30, 40, 50})},
      [](const list& x) { return x[0] + x[1]; },
      filled(dtype::f64, {5, 3}, [](const place& at) { return at[1] + 1 + 10 * (at[0] + 1); }));
  check(
      "f32 takes numbers as f32", {filled(dtype::f32, {3}, [](const place& at) { return at[0]; })},
      [](const list& x) { return 0.1 * x[0]; },
      filled(dtype::f32, {3}, [](const place& at) { return 0.1F * static_cast<float>(at[0]); }));
  traced program;
  const value x = program.input(a);
  CHECK((x + program.input(reals({4}, 0, 1))).rank() == 2);  // [5,3] and [4]
  CHECK(program.g.failed());
}

TEST_CASE("integers and bools") {
  const auto n = integers(dtype::s32, {2, 3}, {7, -7, 0, 2147483647, -5, 12});
  const auto m = integers(dtype::s32, {2, 3}, {2, 2, 3, 1, -3, 5});
  const auto every = [&](dtype type, auto f) {
    return filled(type, {2, 3}, [&](const place& at) { return f(get_integer(n, at), get_integer(m, at)); });
  };
  using s64 = std::int64_t;
  check(
      "n + m wraps", {n, m}, [](const list& x) { return x[0] + x[1]; },
      every(dtype::s32, [](s64 p, s64 q) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(p + q)); }));
  check(
      "n * 2 wraps", {n, m}, [](const list& x) { return x[0] * 2; },
      every(dtype::s32, [](s64 p, s64) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(2 * p)); }));
  check(
      "n / m to zero", {n, m}, [](const list& x) { return x[0] / x[1]; }, every(dtype::s32, [](s64 p, s64 q) { return p / q; }));
  check(
      "n - 1", {n, m}, [](const list& x) { return x[0] - 1; }, every(dtype::s32, [](s64 p, s64) { return p - 1; }));
  check(
      "abs and sign", {n, m}, [](const list& x) { return abs(x[0]) + sign(x[0]) * 0; },
      every(dtype::s32, [](s64 p, s64) { return p < 0 ? -p : p; }));
  check(
      "max", {n, m}, [](const list& x) { return max(x[0], x[1]) + min(x[0], 0); },
      every(dtype::s32, [](s64 p, s64 q) { return std::max(p, q) + std::min<s64>(p, 0); }));
  check(
      "comparisons", {n, m},
      [](const list& x) { return bitwise_or(equal(x[0], 7), bitwise_and(x[0] < x[1], bitwise_not(x[1] >= 3))); },
      every(dtype::pred, [](s64 p, s64 q) { return p == 7 || (p < q && !(q >= 3)); }));
  check(
      "bits", {n, m}, [](const list& x) { return bitwise_and(x[0], 6); }, every(dtype::s32, [](s64 p, s64) { return p & 6; }));
  check(
      "bits or", {n, m}, [](const list& x) { return bitwise_or(x[0], x[1]); },
      every(dtype::s32, [](s64 p, s64 q) { return p | q; }));
  check(
      "sum", {m}, [](const list& x) { return sum(x[0], {1}); }, integers(dtype::s32, {2}, {7, 3}));
  check(
      "product", {m}, [](const list& x) { return reduce(x[0], monoid::multiply); }, integers(dtype::s32, {}, {-180}));
  check(
      "einsum", {m}, [](const list& x) { return einsum<"ab,cb->ac">(x[0], x[0]); },
      integers(dtype::s32, {2, 2}, {17, 11, 11, 35}));
  check(
      "and of bools", {m}, [](const list& x) { return reduce(x[0] > 0, monoid::and_, {1}); }, integers(dtype::pred, {2}, {1, 0}));
  check(
      "or of bools", {m}, [](const list& x) { return reduce(x[0] > 4, monoid::or_, {1}); }, integers(dtype::pred, {2}, {0, 1}));
  check(
      "cast", {n}, [](const list& x) { return cast<double>(cast<std::int64_t>(x[0]) * 3); },
      filled(dtype::f64, {2, 3}, [&](const place& at) { return 3 * get_integer(n, at); }));
  check(
      "truncates", {reals({4}, {1.75, -1.75, 3e9, -3e9})}, [](const list& x) { return cast<std::int32_t>(x[0]); },
      integers(dtype::s32, {4}, {1, -1, 2147483647, -2147483648LL}));
  check(
      "count", {a}, [](const list& x) { return sum(cast<std::int64_t>(x[0] > 0.0)); },
      [] {
        std::int64_t count = 0;
        for (const double r : a.reals) count += r > 0 ? 1 : 0;
        return integers(dtype::s64, {}, {count});
      }());
}
