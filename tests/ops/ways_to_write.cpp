// SPDX-License-Identifier: Apache-2.0
// group: operators
#include <doctest/doctest.h>

#include <string>
#include <tuple>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "support/error_of.hpp"

// Two ways to write an operator give one program. A refused operator has the shape that it would have.

namespace {

using namespace gspmd;
using caught::error_of;

const dynamic::mesh pair({{"x", 2}});
const auto given = dynamic::input<float>({8, 6}, {"x", ""});

template <class F, class G>
bool same(F f, G g) {
  return dynamic::compile(f, pair, given, given) == dynamic::compile(g, pair, given, given);
}

constexpr auto doubled = local_op<"bt->bt">([](auto x, auto y) {
  for (std::int64_t i = 0; i < x.extent(0); ++i)
    for (std::int64_t j = 0; j < x.extent(1); ++j) y(i, j) = x(i, j) + x(i, j);
});
struct product {
  constexpr float operator()(float a, float b) const { return a * b; }
};
/// A user's operator with the library's argument types: values and numbers.
constexpr value scaled(operand x, operand by) { return map(product{}, x, by); }
constexpr value twice(operand x) { return doubled(x); }

constexpr auto with_negative_dims = [](auto x) {
  return std::tuple{sum(x, -1), sum(x, {-2, 1}), softmax(x, -1), transpose(x, {-1, 0}), reshape(x, {4, -1})};
};
using step = compile<with_negative_dims, mesh<axis<"x", 2>>, input<float, shape<8, 6>, split<"x", _>>>;
static_assert(step::output_shard<0>::global_extents == shape<8>::value);
static_assert(step::output_shard<1>::global_extents == shape<>::value);
static_assert(step::output_shard<3>::global_extents == shape<6, 8>::value);
static_assert(step::output_shard<4>::global_extents == shape<4, 12>::value);

}  // namespace

TEST_CASE("dims are counted from the end too") {
  CHECK(same([](auto x, auto) { return sum(x, -1); }, [](auto x, auto) { return sum(x, {1}); }));
  CHECK(same([](auto x, auto) { return mean(x, {-2, -1}); }, [](auto x, auto) { return mean(x); }));
  CHECK(same([](auto x, auto) { return reduce(x, monoid::max, -2); }, [](auto x, auto) { return reduce(x, monoid::max, {0}); }));
  CHECK_FALSE(same([](auto x, auto) { return sum(x, -1); }, [](auto x, auto) { return sum(x, 0); }));
  CHECK(same([](auto x, auto) { return softmax(x, -1); }, [](auto x, auto) { return softmax(x, 1); }));
  CHECK(same([](auto x, auto) { return log_softmax(x, -2); }, [](auto x, auto) { return log_softmax(x, 0); }));
  CHECK(same([](auto x, auto) { return shift(x, 3, along(-2)); }, [](auto x, auto) { return shift(x, 3, along(0)); }));
  CHECK(same([](auto x, auto) { return transpose(x, {-1, -2}); }, [](auto x, auto) { return transpose(x, {1, 0}); }));
  CHECK(same(
      [](auto x, auto) {
        return broadcast_in_dim(x, {8, 2, 6}, {0, -1});
      },
      [](auto x, auto) {
        return broadcast_in_dim(x, {8, 2, 6}, {0, 2});
      }));
  CHECK(same(
      [](auto x, auto) {
        return x + iota<float>(x, {8, 6}, -1);
      },
      [](auto x, auto) {
        return x + iota<float>(x, {8, 6}, 1);
      }));
  CHECK(same([](auto x, auto) { return split_dim(x, 2, along(-1)); }, [](auto x, auto) { return split_dim(x, 2, along(1)); }));
}

TEST_CASE("reshape works out the extent that is -1") {
  CHECK(same([](auto x, auto) { return reshape(x, {2, -1, 3}); }, [](auto x, auto) { return reshape(x, {2, 8, 3}); }));
  CHECK(same([](auto x, auto) { return reshape(x, {-1}); }, [](auto x, auto) { return reshape(x, {48}); }));
  const auto refusal = [](auto f) { return error_of([&] { dynamic::compile(f, pair, given); }); };
  CHECK(
      refusal([](auto x) {
        return reshape(x, {5, -1});
      })
          .find(": no extent can replace the negative extent in [5,-1]: the operand [8,6] has 48 elements; one extent may be -1, "
                "and the others must divide them") != std::string::npos);
  for (const auto other : {-1, -2, 0})
    CHECK(refusal([other](auto x) {
            return reshape(x, {other, -1});
          }).find("no extent can replace the negative extent") != std::string::npos);
}

TEST_CASE("a shape is read before what stands beside it is traced") {
  // Compilers may trace an operand first or last. The graph reallocates its nodes at some of these products.
  const auto halves = [](auto x, auto) {
    for (int i = 0; i < 70; ++i) x = broadcast_in_dim(x * 0.5, x.shape(), {0, 1});
    return reshape(x + 1.0, x.shape());
  };
  const auto written = [](auto x, auto) {
    for (int i = 0; i < 70; ++i) x = broadcast_in_dim(x * 0.5, {8, 6}, {0, 1});
    return reshape(x + 1.0, {8, 6});
  };
  CHECK(same(halves, written));
  using compiled = compile<halves, mesh<axis<"x", 2>>, input<float, shape<8, 6>, split<"x", _>>, input<float, shape<1>>>;
  static_assert(compiled::output_shard<0>::global_extents == shape<8, 6>::value);
}

TEST_CASE("compound assignment") {
  CHECK(same([](auto x, auto y) { return x += y; }, [](auto x, auto y) { return x + y; }));
  CHECK(same([](auto x, auto) { return x -= 2.0; }, [](auto x, auto) { return x - 2.0; }));
  CHECK(same([](auto x, auto y) { return x *= y; }, [](auto x, auto y) { return x * y; }));
  CHECK(same([](auto x, auto y) { return x /= y; }, [](auto x, auto y) { return x / y; }));
}

TEST_CASE("functions of operands may call map and local_op") {
  CHECK(same([](auto x, auto) { return scaled(x, 3.0); }, [](auto x, auto) { return map(product{}, x, 3.0); }));
  CHECK(same([](auto x, auto y) { return scaled(x, y); }, [](auto x, auto y) { return map(product{}, x, y); }));
  CHECK(same([](auto x, auto) { return twice(x); }, [](auto x, auto) { return doubled(x); }));
}

constexpr auto doubled_and_sums = local_op<"bt->bt,b">([](auto x, auto y, auto rows) {
  for (std::int64_t i = 0; i < x.extent(0); ++i) {
    rows(i) = 0;
    for (std::int64_t j = 0; j < x.extent(1); ++j) {
      y(i, j) = 2 * x(i, j);
      rows(i) = rows(i) + x(i, j);
    }
  }
});
constexpr auto of_two_results = [](value x) {
  const auto [y, rows] = doubled_and_sums(x);
  return std::tuple{rows, y + broadcast_in_dim(rows, {5, 7}, {0})};
};

TEST_CASE("a compiled local_op of two results, one of which is reduced") {
  using grid = mesh<axis<"a", 2>, axis<"b", 2>>;
  using two_results = compile<of_two_results, grid, input<double, shape<5, 7>, split<"a", "b">>>;
  static_assert(two_results::collectives == collectives{all_reduce<"b">});
  static_assert(two_results::traffic.bytes == 24);
  std::vector<double> x(35);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  const auto [rows, y] = run<two_results>(simulated{}, x);
  for (std::int64_t i = 0; i < 5; ++i) {
    const double sum = 21 + 49 * static_cast<double>(i);
    CHECK(rows[i] == sum);
    for (std::int64_t j = 0; j < 7; ++j) CHECK(y[7 * i + j] == 2 * x[static_cast<std::size_t>(7 * i + j)] + sum);
  }
}

TEST_CASE("a refused value has the rank, and where they are known the extents, of the result") {
  dynamic::builder b(pair);
  const value x = b.input(given);
  const value y = b.input(dynamic::input<float>({8, 5}));
  const auto shape_of = [](value v) { return std::string(detail::shape_text(v.shape()).view()); };
  CHECK(shape_of(x + y) == "[8,6]");
  CHECK(b.graph().failed());
  const auto first = std::string(b.graph().error.view());
  CHECK(shape_of(sum(x, 2)) == "[8]");
  CHECK(shape_of(sum(x, {0, 5})) == "[]");
  CHECK(shape_of(reshape(x, {7, 7, 7})) == "[7,7,7]");
  CHECK(shape_of(reshape(x, {7, -1})) == "[7,1]");
  CHECK(shape_of(transpose(x, {0, 0})) == "[8,6]");
  CHECK(shape_of(shift(x, 1, along(4))) == "[8,6]");
  CHECK(shape_of(broadcast_in_dim(x, {2, 2}, {0, 1})) == "[2,2]");
  CHECK(shape_of(einsum("ab,bc->ac", x, y)) == "[8,5]");
  CHECK(shape_of(einsum<"abc->ca">(x)) == "[1,8]");
  CHECK((x < cast<double>(x)).type() == dtype::pred);
  CHECK(shape_of(doubled(sum(x, 0))) == "[6,1]");
  CHECK(shape_of(fori_loop(
            -1, [](value, value t) { return t; }, x)) == "[8,6]");
  CHECK(shape_of(fori_loop(
            2, [](value, value t) { return sum(t, 0); }, x)) == "[8,6]");
  CHECK(shape_of(std::get<1>(scan([](value h, value row) { return std::tuple{h, row}; }, x, sum(x)))) == "[0]");
  CHECK(shape_of(cond(
            x > 0.0, [](value t) { return sum(t, 0); }, [](value t) { return sum(t, 0); }, x)) == "[6]");
  CHECK(shape_of(grad(x, y)) == "[8,5]");
  CHECK(std::string(b.graph().error.view()) == first);  // the first mistake is the one that is reported
}

TEST_CASE("a compiled callable may capture constant numbers") {
  constexpr float rate = 0.5F;
  constexpr double bias = 2;
  constexpr std::int8_t times = 3;
  constexpr auto captured = [rate, bias, times](auto x) { return x * rate * times + bias; };  // with padding between them
  constexpr auto written = [](auto x) { return x * 0.5F * 3 + 2.0; };
  auto not_constant = [](auto x) { return x * 0.5F * 3 + 2.0; };  // captures nothing, and so is known all the same
  using pod = mesh<axis<"x", 2>>;
  using input = gspmd::input<float, shape<5>, split<"x">>;
  array<float> x({5});
  for (std::int64_t i = 0; i < 5; ++i) x[i] = static_cast<float>(i);
  const auto by_capture = run<compile<captured, pod, input>>(simulated{}, x);
  const auto by_constant = run<compile<written, pod, input>>(simulated{}, x);
  const auto by_variable = run<compile<not_constant, pod, input>>(simulated{}, x);
  for (std::int64_t i = 0; i < 5; ++i) {
    CHECK(by_capture[i] == 1.5F * static_cast<float>(i) + 2);
    CHECK(by_constant[i] == by_capture[i]);
    CHECK(by_variable[i] == by_capture[i]);
  }
}
