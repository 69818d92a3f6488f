// SPDX-License-Identifier: Apache-2.0
// group: operators
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/report/explain.hpp>

#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/windows.hpp"
#include "support/gradients.hpp"
#include "support/run_random.hpp"

// Windows as users write them: results on both paths, messages, and errors.

using namespace gspmd;

namespace {

using four = mesh<axis<"x", 4>>;

constexpr auto pooled = [](auto x) { return max_pool(x, {3, 1}, {2, 1}, {1, 0}, {1, 0}); };
constexpr auto halved = [](auto x) { return avg_pool(x, {2, 2}); };

std::string pool_refusal(std::function<value(value)> program) {
  dynamic::builder p(dynamic::mesh({{"x", 2}}));
  try {
    p.output(program(p.input(dynamic::input<float>({4, 3}))));
    static_cast<void>(p.compile());
  } catch (const error& e) {
    return e.what();
  }
  return "nothing";
}
bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("pooling: static programs, and the same ones at run time") {
  // 13 rows in 4,4,4,1; 7 outputs in 2,2,2,1. Tiles -1..3, 3..7, 7..11, 11..13: one row from above, and row 11 for the
  // last device.
  using step = compile<pooled, four, input<float, shape<13, 3>, split<"x", _>>>;
  static_assert(step::collectives == collectives{collective_permute<"x">});
  static_assert(step::traffic.bytes == 3 * 4 && step::traffic.messages == 1);
  // Windows that end at the ends of shards: nothing is sent, and nothing copied.
  static_assert(compile<halved, four, input<float, shape<16, 8>, split<"x", _>>>::collectives == collectives{});
  array<float> x({13, 3});
  for (std::int64_t i = 0; i < 39; ++i) x.data()[i] = static_cast<float>(i * 7 % 40);
  x.data()[4] = std::numeric_limits<float>::quiet_NaN();
  const dynamic::mesh m({{"x", 4}});
  dynamic::builder p(m);
  p.output(pooled(p.input(dynamic::input<float>({13, 3}, std::vector<std::string>{"x", ""}))));
  const auto at_run_time = p.compile();
  CHECK(at_run_time.collectives().size() == 1);
  const auto verify = [&](const auto& backend) {
    const auto y = run<step>(backend, x);
    const auto again = at_run_time.run(backend, std::vector<float>(x.data(), x.data() + 39));
    for (std::int64_t o = 0; o < 7; ++o)
      for (std::int64_t c = 0; c < 3; ++c) {
        float want = -std::numeric_limits<float>::infinity();
        for (std::int64_t r = std::max<std::int64_t>(2 * o - 1, 0); r <= 2 * o + 1 && r < 13; ++r)
          if (const float e = x.data()[3 * r + c]; e > want || std::isnan(e)) want = e;
        const float got = y.data()[3 * o + c];
        CHECK((got == want || (std::isnan(got) && std::isnan(want))));
        const float other = again[0].template data<float>()[3 * o + c];
        CHECK((got == other || std::isnan(got)));
      }
  };
  verify(simulated{});
  verify(threads{});
  CHECK(mentions(explain<step>(), "reduce_window(max, dim 0 by 3)"));
}

TEST_CASE("pooling: means, and finer grids") {
  dynamic::builder p(dynamic::mesh({{"x", 3}}));
  const value x = p.input(dynamic::input<double>({5}, std::vector<std::string>{"x"}));
  p.output(avg_pool(x, {3}, {1}, {1}, {1}));
  p.output(avg_pool(x, {2}, {1}));
  p.output(avg_pool(x, {1}, {2}, {3}, {3}));
  p.output(upsample(x, {2}));
  p.output(sum_pool(upsample(x, {2}), {2}));
  const auto y = p.compile().run(simulated{}, std::vector<double>{1, 2, 4, 8, 16});
  const auto is = [&](std::size_t k, const std::vector<double>& want) {
    REQUIRE(y[k].shape[0] == static_cast<std::int64_t>(want.size()));
    for (std::size_t i = 0; i < want.size(); ++i) CHECK(y[k].data<double>()[i] == doctest::Approx(want[i]));
  };
  is(0, {1.5, 7. / 3, 14. / 3, 28. / 3, 12});
  is(1, {1.5, 3, 6, 12});
  is(2, {0, 0, 2, 8, 0, 0});
  is(3, {1, 1, 2, 2, 4, 4, 8, 8, 16, 16});
  is(4, {2, 4, 8, 16, 32});
}

TEST_CASE("pooling: of no elements a finer grid has none, however it is split, and the gradient neither") {
  for (const int devices : {1, 2, 3})
    for (const auto& shape : {std::vector<std::int64_t>{0, 3}, std::vector<std::int64_t>{3, 0}}) {
      CAPTURE(devices);
      CAPTURE(shape[0]);
      dynamic::builder p(dynamic::mesh({{"x", devices}}));
      const value x = p.input(dynamic::input<double>(shape, {"x", ""}));
      for (const value y : {upsample(x, {2, 3}), interpolate(x, {2, 3})}) {
        p.output(y);
        p.output(grad(sum(y * y), std::array{x})[0]);
      }
      const auto y = p.compile().run(simulated{}, std::vector<double>{});
      for (const std::size_t k : {0U, 2U}) {
        CHECK(y[k].shape == std::vector<std::int64_t>{2 * shape[0], 3 * shape[1]});
        CHECK(y[k + 1].shape == shape);
      }
    }
}

TEST_CASE("pooling: interpolation and means of blocks, and their gradients, are those of a formula on every mesh") {
  for (const std::int64_t n : {1, 2, 5, 8, 13})
    for (const std::int64_t f : {1, 2, 3, 4})
      for (const int devices : {1, 2, 4, 5}) {
        CAPTURE(n);
        CAPTURE(f);
        CAPTURE(devices);
        dynamic::builder p(dynamic::mesh({{"x", devices}}));
        const auto coarse = (n + f - 1) / f;
        const value x = p.input(dynamic::input<double>({n, 2}, {"x", ""}));
        const value u = p.input(dynamic::input<double>({n * f, 4})), v = p.input(dynamic::input<double>({coarse, 2}));
        const value fine = interpolate(x, {f, 2}), means = downsample(x, {f, 1});
        p.output(fine);
        p.output(means);
        p.output(grad(sum(fine * u), x));
        p.output(grad(sum(means * v), x));
        const auto made = [](std::int64_t count, int by) {
          std::vector<double> all;
          for (std::int64_t i = 0; i < count; ++i) all.push_back(static_cast<double>(i * by % 11) - 5);
          return all;
        };
        const auto xs = made(n * 2, 7), us = made(n * f * 4, 5), vs = made(coarse * 2, 3);
        const auto y = p.compile().run(simulated{}, xs, us, vs);
        // The elements that make an element of the finer grid: the two whose centres are on either side.
        struct mix {
          std::int64_t low, high;
          double share;
        };
        const auto between = [](std::int64_t i, std::int64_t factor, std::int64_t extent) {
          const double at = (static_cast<double>(i) + 0.5) / static_cast<double>(factor) - 0.5;
          const auto low = static_cast<std::int64_t>(std::floor(at));
          const auto inside = [&](std::int64_t k) { return std::min(std::max(k, std::int64_t{0}), extent - 1); };
          return mix{inside(low), inside(low + 1), at - static_cast<double>(low)};
        };
        std::vector<double> wanted(static_cast<std::size_t>(n * f * 4)), back(static_cast<std::size_t>(n * 2));
        for (std::int64_t i = 0; i < n * f; ++i)
          for (std::int64_t j = 0; j < 4; ++j) {
            const auto a = between(i, f, n), b = between(j, 2, 2);
            const auto to = static_cast<std::size_t>(i * 4 + j);
            const auto add = [&](std::int64_t r, std::int64_t c, double share) {
              const auto from = static_cast<std::size_t>(r * 2 + c);
              wanted[to] += share * xs[from];
              back[from] += share * us[to];
            };
            add(a.low, b.low, (1 - a.share) * (1 - b.share));
            add(a.low, b.high, (1 - a.share) * b.share);
            add(a.high, b.low, a.share * (1 - b.share));
            add(a.high, b.high, a.share * b.share);
          }
        std::vector<double> blocks(static_cast<std::size_t>(coarse * 2)), from_blocks(static_cast<std::size_t>(n * 2));
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = 0; j < 2; ++j) {
            const auto block = static_cast<std::size_t>(i / f * 2 + j), cell = static_cast<std::size_t>(i * 2 + j);
            const double share = 1 / static_cast<double>(std::min(f, n - i / f * f));
            blocks[block] += share * xs[cell];
            from_blocks[cell] = share * vs[block];
          }
        const std::vector<double>* const all[] = {&wanted, &blocks, &back, &from_blocks};
        for (std::size_t k = 0; k < 4; ++k) {
          double off = 0;
          for (std::size_t i = 0; i < all[k]->size(); ++i) off = std::max(off, std::abs(y[k].data<double>()[i] - (*all[k])[i]));
          CHECK(off < 1e-12);
        }
      }
}

TEST_CASE("pooling: to a finer grid one row goes to either side, to a coarser one nothing") {
  dynamic::builder p(dynamic::mesh({{"x", 4}}));
  const value x = p.input(dynamic::input<float>({16, 6, 3}, {"x", "", ""}));
  p.output(interpolate(x, {2, 2, 1}));
  const auto finer = p.compile();
  CHECK(finer.traffic().bytes == 2 * 6 * 3 * 4);
  CHECK(finer.traffic().messages == 2);
  CHECK(finer.traffic().in(collective_kind::collective_permute).bytes == finer.traffic().bytes);
  CHECK(finer.output(0).sharding() == std::vector<std::string>{"x", "", ""});
  dynamic::builder q(dynamic::mesh({{"x", 4}}));
  q.output(downsample(q.input(dynamic::input<float>({16, 6, 3}, {"x", "", ""})), {2, 4, 1}));
  CHECK(q.compile().traffic().collectives == 0);
}

TEST_CASE("pooling: only the input is annotated, and every layer is split") {
  dynamic::builder p(dynamic::mesh({{"x", 4}}));
  value x = p.input(dynamic::input<float>({2, 64, 9}, std::vector<std::string>{"", "x", ""}));
  std::vector<value> layers;
  for (int k = 0; k < 3; ++k) {
    x = relu(max_pool(tanh(x), {1, 3, 1}, {1, 2, 1}, {0, 1, 0}, {0, 1, 0}));
    x = reduce_window(x, monoid::add, {1, 2, 2}, {}, {0, 1, 1}, {}, {1, 1, 1}, {1, 1, 1});
  }
  x = upsample(x, {1, 8, 1});
  p.output(x);
  const auto step = p.compile();
  for (const auto& made : step.collectives()) CHECK(made.kind == collective_kind::collective_permute);
  CHECK(step.output(0).local_shape()[1] == 16);
}

TEST_CASE("pooling: windows over one value share one exchange") {
  const auto messages = [](auto program) {
    dynamic::builder p(dynamic::mesh({{"x", 4}}));
    p.output(program(p.input(dynamic::input<float>({64}, std::vector<std::string>{"x"}))));
    return p.compile().collectives().size();
  };
  using enum monoid;
  CHECK(messages([](value x) { return reduce_window(x, add, {3}, {}, {1}, {1}); }) == 1);
  CHECK(messages([](value x) {
          return reduce_window(x, multiply, {3}, {}, {1}, {1}) +
                 reduce_window(x, add, {3}, {}, {1}, {1}) * reduce_window(x, add, {3}, {}, {1}, {1});
        }) == 2);               // one for each identity outside
  CHECK(messages([](value x) {  // two elements to either side
          return reduce_window(x, add, {3}, {}, {1}, {1}) + reduce_window(x, add, {5}, {}, {2}, {2}) +
                 reduce_window(x, add, {2}, {}, {0}, {1}, {}, {1});
        }) == 1);
}

TEST_CASE("pooling: windows that share an exchange give what they give alone") {
  reference::random_numbers random(5);
  int shared = 0;
  for (int k = 0; k < 60; ++k) {
    const auto size = [&] { return static_cast<std::int64_t>(random.between(1, 5)); };
    std::vector<std::array<std::int64_t, 6>> windows;  // along two dims: size, low, stride
    const std::int64_t stride = random.between(1, 2), base = random.between(1, 2);
    for (int w = random.between(2, 4); w > 0; --w) {
      const auto a = size(), b = random.chance(50) ? size() : 1;
      windows.push_back(
          {a, random.between(0, static_cast<int>(a) - 1), stride, b, random.between(0, static_cast<int>(b) - 1), 1});
    }
    const auto build = [&](reference::traced& program) {
      const value x = program.input(reference::reals({11, 7}, -2, 2));
      std::vector<value> results;
      for (const auto& w : windows)
        results.push_back(reduce_window(x, monoid::add, {w[0], w[3]}, {w[2], w[5]}, {w[1], w[4]},
                                        {w[0] - 1 - w[1], w[3] - 1 - w[4]}, {base, 1}));
      return results;
    };
    reference::traced one, parts(reference::random_mesh(random));
    const auto wanted = build(one), results = build(parts);
    reference::annotate(parts, random);
    for (const auto& y : results) parts.output(y);
    const reference::partitioned_run run(parts);
    REQUIRE_MESSAGE(run.wrong == "", run.wrong);
    shared += run.collectives > 0 ? 1 : 0;
    for (std::size_t o = 0; o < wanted.size(); ++o)
      CHECK(reference::difference(run.outputs[o], one.evaluate(wanted[o]), 1e-12) == "");
  }
  CHECK(shared > 20);
}

TEST_CASE("pooling: convolutions of other sizes and a sum share one exchange") {
  for (const std::int64_t apart : {1, 2, 3})
    for (const std::int64_t stride : {1, 2}) {
      const auto run_on = [&](int devices, std::size_t& exchanges) {
        dynamic::builder p(dynamic::mesh({{"x", devices}}));
        const value x = p.input(dynamic::input<double>({2, 13, 3}, std::vector<std::string>{"", "x", ""}));
        const value small = p.input(dynamic::input<double>({3, 3, 2})), large = p.input(dynamic::input<double>({5, 3, 2}));
        const auto around = [&](value w, std::int64_t room) {
          return convolution(x, w, "NHC,HIO->NHO", {.stride = {stride}, .low = {room}, .high = {room}, .lhs_dilation = {apart}});
        };
        p.output(around(small, 1));
        p.output(around(large, 2));
        p.output(reduce_window(x, monoid::add, {1, 2, 1}, {1, stride, 1}, {0, 1, 0}, {0, 0, 0}, {1, apart, 1}));
        const auto step = p.compile();
        exchanges = 0;
        for (const auto& made : step.collectives()) exchanges += made.kind == collective_kind::collective_permute ? 1U : 100U;
        const auto numbers = [](int count) {
          std::vector<double> list;
          for (int i = 0; i < count; ++i) list.push_back(i * 7 % 23 - 11);
          return list;
        };
        return step.run(simulated{}, numbers(78), numbers(18), numbers(30));
      };
      std::size_t none = 0, exchanges = 0;
      const auto want = run_on(1, none);
      for (const int devices : {2, 4, 5}) {
        const auto got = run_on(devices, exchanges);
        CHECK(none == 0);
        CHECK(exchanges == 1);
        for (std::size_t k = 0; k < 3; ++k) {
          REQUIRE(got[k].shape == want[k].shape);
          std::int64_t count = 1;
          for (const auto e : want[k].shape) count *= e;
          int wrong = 0;
          for (std::int64_t i = 0; i < count; ++i) wrong += got[k].data<double>()[i] != want[k].data<double>()[i] ? 1 : 0;
          CHECK(wrong == 0);
        }
      }
    }
}

TEST_CASE("pooling: the first of equal maxima has the gradient, on every mesh") {
  using reference::traced;
  reference::random_numbers random(7);
  const auto build = [](traced& program, std::vector<value>& results) {
    auto ties = reference::reals({9, 7}, -2, 2);
    for (auto& r : ties.reals) r = std::floor(r);
    const value x = program.input(ties);
    using enum monoid;
    for (const value y : {max_pool(x, {3, 2}, {1, 1}), max_pool(x, {2, 2}, {2, 3}, {1, 0}, {0, 1}),
                          reduce_window(x, min, {3, 2}, {2, 1}, {0, 1}, {2, 0}, {1, 2}, {2, 1}), max_pool(x, {1, 3}, {3, 4})}) {
      const value loss = reference::weighted_sum(program, y);
      results.push_back(reference::gradients_of(loss, {x})[0]);
    }
  };
  traced one;
  std::vector<value> wanted;
  build(one, wanted);
  for (int k = 0; k < 30; ++k) {
    traced parts(reference::random_mesh(random));
    std::vector<value> results;
    build(parts, results);
    reference::annotate(parts, random);
    for (const auto& x : results) parts.output(x);
    const reference::partitioned_run run(parts);
    REQUIRE_MESSAGE(run.wrong == "", run.wrong);
    for (std::size_t o = 0; o < wanted.size(); ++o)
      CHECK(reference::difference(run.outputs[o], one.evaluate(wanted[o]), 1e-12) == "");
  }
}

namespace {

/// Returns the gradient of a maximum over windows along both dims of [rows, columns], by the definition. The number of
/// each window is added to its first largest element; NaN precedes numbers.
std::vector<float> pool_gradient(const std::vector<float>& x, std::array<std::int64_t, 2> extents,
                                 std::array<std::int64_t, 2> size, std::array<std::int64_t, 2> stride,
                                 std::array<std::int64_t, 2> low, std::array<std::int64_t, 2> outputs,
                                 const std::vector<float>& u) {
  std::vector<float> dx(x.size(), 0);
  for (std::int64_t i = 0; i < outputs[0]; ++i)
    for (std::int64_t j = 0; j < outputs[1]; ++j) {
      std::int64_t taken = -1;
      for (std::int64_t a = 0; a < size[0]; ++a)
        for (std::int64_t b = 0; b < size[1]; ++b) {
          const auto row = i * stride[0] - low[0] + a, column = j * stride[1] - low[1] + b;
          if (row < 0 || column < 0 || row >= extents[0] || column >= extents[1]) continue;
          const auto at = row * extents[1] + column;
          const auto of = [&](std::int64_t e) { return x[static_cast<std::size_t>(e)]; };
          if (taken < 0 || (std::isnan(of(at)) ? !std::isnan(of(taken)) : of(at) > of(taken))) taken = at;
        }
      if (taken >= 0) dx[static_cast<std::size_t>(taken)] += u[static_cast<std::size_t>(i * outputs[1] + j)];
    }
  return dx;
}

}  // namespace

TEST_CASE("pooling: gradients of lines longer than a piece, with NaN, infinities and ties") {
  reference::random_numbers random(11);
  for (int k = 0; k < 150; ++k) {
    const auto below = [&](int most) { return static_cast<std::int64_t>(random.between(1, most)); };
    const std::array<std::int64_t, 2> extents{below(7), k % 3 == 0 ? below(9) : random.between(200, 800)};
    std::array<std::int64_t, 2> size{}, stride{}, low{}, high{}, outputs{};
    for (std::size_t d = 0; d < 2; ++d) {
      size[d] = below(4);
      stride[d] = below(4);
      low[d] = random.between(0, static_cast<int>(size[d]) - 1);
      high[d] = random.between(0, static_cast<int>(size[d]) - 1);
      const auto room = extents[d] + low[d] + high[d] - size[d];
      outputs[d] = room < 0 ? 0 : room / stride[d] + 1;
    }
    if (outputs[0] * outputs[1] == 0) continue;
    std::vector<float> x(static_cast<std::size_t>(extents[0] * extents[1])), u(static_cast<std::size_t>(outputs[0] * outputs[1]));
    for (auto& e : x) {
      e = static_cast<float>(random.between(-3, 3));
      if (random.chance(4)) e = std::numeric_limits<float>::quiet_NaN();
      if (random.chance(4)) e = std::numeric_limits<float>::infinity();
    }
    for (auto& e : u) e = static_cast<float>(random.between(-5, 5));
    const auto want = pool_gradient(x, extents, size, stride, low, outputs, u);
    for (const int devices : {1, 3}) {
      dynamic::builder p(dynamic::mesh({{"x", devices}}));
      const std::vector<std::string> split = k % 2 == 0 ? std::vector<std::string>{"x", ""} : std::vector<std::string>{"", "x"};
      const value in = p.input(dynamic::input<float>({extents[0], extents[1]}, split));
      const value by = p.input(dynamic::input<float>({outputs[0], outputs[1]}));
      const value y = max_pool(in, {size[0], size[1]}, {stride[0], stride[1]}, {low[0], low[1]}, {high[0], high[1]});
      p.output(grad(sum(y * by), in));
      const auto got = p.compile().run(simulated{}, x, u)[0];
      CAPTURE(k);
      CAPTURE(devices);
      int wrong = 0;
      for (std::size_t i = 0; i < want.size(); ++i) wrong += got.data<float>()[i] != want[i] ? 1 : 0;
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("pooling: gradients of windows along all dims but the last, split along any of them") {
  reference::random_numbers random(12);
  for (int k = 0; k < 100; ++k) {
    const auto below = [&](int most) { return static_cast<std::int64_t>(random.between(1, most)); };
    const std::array<std::int64_t, 2> extents{below(8), below(8)};
    const std::int64_t channels = k % 4 == 0 ? 1 : k % 4 == 1 ? random.between(250, 270) : below(70);
    std::array<std::int64_t, 2> size{}, stride{}, low{}, high{}, outputs{};
    for (std::size_t d = 0; d < 2; ++d) {
      size[d] = below(5);
      stride[d] = below(4);
      low[d] = random.between(0, static_cast<int>(size[d]) - 1);
      high[d] = random.between(0, static_cast<int>(size[d]) - 1);
      const auto room = extents[d] + low[d] + high[d] - size[d];
      outputs[d] = room < 0 ? 0 : room / stride[d] + 1;
    }
    const auto elems = extents[0] * extents[1], made = outputs[0] * outputs[1];
    if (made == 0) continue;
    std::vector<float> x(static_cast<std::size_t>(elems * channels)), u(static_cast<std::size_t>(made * channels));
    for (auto& e : x) {
      e = static_cast<float>(random.between(-3, 3));
      if (random.chance(4)) e = std::numeric_limits<float>::quiet_NaN();
      if (random.chance(4)) e = std::numeric_limits<float>::infinity();
    }
    for (auto& e : u) e = static_cast<float>(random.between(-5, 5));
    std::vector<float> want(x.size());
    const auto channel_of = [channels](const std::vector<float>& all, std::int64_t c) {
      std::vector<float> own;
      for (auto i = c; i < static_cast<std::int64_t>(all.size()); i += channels) own.push_back(all[static_cast<std::size_t>(i)]);
      return own;
    };
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto own = pool_gradient(channel_of(x, c), extents, size, stride, low, outputs, channel_of(u, c));
      for (std::size_t i = 0; i < own.size(); ++i)
        want[i * static_cast<std::size_t>(channels) + static_cast<std::size_t>(c)] = own[i];
    }
    for (const auto& split : std::vector<std::vector<std::string>>{{"", "", ""}, {"", "", "x"}, {"x", "", ""}, {"", "x", ""}}) {
      dynamic::builder p(dynamic::mesh({{"x", 3}}));
      const value in = p.input(dynamic::input<float>({extents[0], extents[1], channels}, split));
      const value by = p.input(dynamic::input<float>({outputs[0], outputs[1], channels}));
      const value y = max_pool(in, {size[0], size[1], 1}, {stride[0], stride[1], 1}, {low[0], low[1], 0}, {high[0], high[1], 0});
      p.output(p.reshard(grad(sum(y * by), in), split));
      const auto got = p.compile().run(simulated{}, x, u)[0];
      CAPTURE(k);
      int wrong = 0;
      for (std::size_t i = 0; i < want.size(); ++i) wrong += got.data<float>()[i] != want[i] ? 1 : 0;
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("pooling: windows along six dims, whose first maximum is the first in row-major order") {
  for (const int devices : {1, 2}) {
    dynamic::builder p(dynamic::mesh({{"x", devices}}));
    const value x = p.input(dynamic::input<float>({2, 2, 2, 2, 2, 2}, {"", "", "", "", "", "x"}));
    p.output(grad(sum(max_pool(x, {2, 2, 2, 2, 2, 2}, {1, 1, 1, 1, 1, 1})), x));
    std::vector<float> data(64, 0), wanted(64, 0);
    data[1] = data[32] = 5;  // [0,0,0,0,0,1] and [1,0,0,0,0,0]
    wanted[1] = 1;
    const auto got = p.compile().run(simulated{}, data)[0];
    for (std::size_t i = 0; i < 64; ++i) CHECK(got.data<float>()[i] == wanted[i]);
  }
}

TEST_CASE("pooling: the gradient of windows that end where shards do sends nothing") {
  dynamic::builder p(dynamic::mesh({{"x", 4}}));
  const value x = p.input(dynamic::input<float>({16, 5}, std::vector<std::string>{"x", ""}));
  const value w = p.input(dynamic::input<float>({8, 5}, std::vector<std::string>{"x", ""}));
  const value y = max_pool(x, {2, 1});
  p.output(p.reshard(grad(sum(y * w), std::array{x})[0], std::vector<std::string>{"x", ""}));
  CHECK(p.compile().collectives().empty());
}

TEST_CASE("pooling: the gradient of a maximum gets the windows that hold its elements, and what they bring, and nothing else") {
  for (const std::int64_t size : {2, 3, 5}) {
    dynamic::builder p(dynamic::mesh({{"x", 4}}));
    const value x = p.input(dynamic::input<float>({16, 6}, {"x", ""})), u = p.input(dynamic::input<float>({16, 6}, {"x", ""}));
    p.output(grad(sum(max_pool(x, {size, 1}, {1, 1}, {size / 2, 0}, {(size - 1) / 2, 0}) * u), x));
    const auto step = p.compile();
    // Windows reach size - 1 elements beyond each end of a shard, and begin at most size - 1 outputs before its last
    // one.
    const auto halo = size == 5 ? 2 * 4 : 2 * (size - 1);
    CHECK(step.traffic().bytes == (halo + size - 1) * 6 * 4);
    CHECK(step.traffic().in(collective_kind::collective_permute).bytes == step.traffic().bytes);
  }
}

TEST_CASE("pooling: refusals name the operator, the dim and the numbers") {
  using enum monoid;
  CHECK(mentions(pool_refusal([](value x) { return max_pool(x, {5, 1}); }), "reduce_window at pool.cpp:"));
  CHECK(mentions(pool_refusal([](value x) {
                   return max_pool(x, {5, 1});
                 }),
                 "has a window that takes 5 along dim 0 of [4,3], and with 0 before and 0 after the dim, its extent is 4"));
  CHECK(mentions(pool_refusal([](value x) {
                   return reduce_window(x, add, {1, 2}, {}, {0, -1}, {0, -1}, {}, {1, 3});
                 }),
                 "has a window that takes 4 along dim 1 of [4,3], and with -1 before and -1 after the dim, its extent is 1"));
  CHECK(mentions(pool_refusal([](value x) { return max_pool(x, {2}); }), "names 1 numbers for the dims of [4,3]"));
  CHECK(mentions(pool_refusal([](value x) {
                   return max_pool(x, {2, 1}, {0, 1});
                 }),
                 "has a stride of 0 along dim 0 of [4,3]; it is at least 1"));
  CHECK(mentions(pool_refusal([](value x) { return upsample(x, {2, 0}); }), "upsample at pool.cpp:"));
  CHECK(mentions(pool_refusal([](value x) { return upsample(x, {2, 0}); }), "has a factor of 0 along dim 1 of [4,3]"));
  CHECK(mentions(pool_refusal([](value x) { return interpolate(x, {2}); }), "names 1 factors for the dims of [4,3]"));
  CHECK(mentions(pool_refusal([](value x) { return downsample(cast<int>(x), {2, 1}); }), "write downsample(cast<double>(x)"));
  CHECK(mentions(pool_refusal([](value x) { return reduce_window(x, and_, {2, 1}); }), "kind and is not defined for f32"));
  CHECK(mentions(pool_refusal([](value x) { return reduce_window(x, add, {1, 1}, {}, {INT64_MAX, 0}); }), "than can be counted"));
  CHECK(mentions(pool_refusal([](value x) {
                   return reduce_window(x, add, {1, 1}, {}, {}, {}, {INT64_MAX, 1});
                 }),
                 "at most 2^31"));
  CHECK(mentions(pool_refusal([](value x) { return avg_pool(cast<int>(x), {2, 1}); }), "write avg_pool(cast<double>(x)"));
  CHECK(mentions(pool_refusal([](value x) {
                   const value g = grad(sum(max_pool(x, {2, 1})), std::array{x})[0];
                   return grad(sum(g * g), std::array{x})[0];
                 }),
                 "has no gradient of its own"));
}
