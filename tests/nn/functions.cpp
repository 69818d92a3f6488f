// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Activation functions, normalisation, cross_entropy, rotary_embedding and dropout: results and gradients equal loops
// over the elements, in random shardings, also uneven and with extents 1 and 0. cross_entropy of a split vocabulary
// sends the closed form. Initial values have the deviations of their fans.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/nn.hpp>

#include "support/any_backend.hpp"
#include "support/error_of.hpp"
#include "support/random_split.hpp"

namespace {

using namespace gspmd;
using reference::any_backend;
using reference::draws;
using reference::random_split;
using std::int64_t;
using numbers = std::vector<double>;
using shapes = std::vector<std::vector<int64_t>>;

/// A function of the library and its loop. Inputs are doubles. The first `differentiable` inputs have gradients.
struct subject {
  std::string name;
  shapes inputs;
  std::size_t differentiable;
  std::function<value(const std::vector<value>&)> program;
  std::function<numbers(const std::vector<numbers>&)> loop;
  std::function<double(std::size_t, int64_t)> element = [](std::size_t k, int64_t i) {
    return static_cast<double>((i * 37 + 11 * static_cast<int64_t>(k)) % 101 - 50) / 20;
  };
};

int64_t size_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const auto e : shape) n *= e;
  return n;
}

/// Different weights for the elements of a result, so that gradients of all elements differ.
double weight(std::size_t i) { return 1 + static_cast<double>(i % 5) / 4; }

void check(const subject& s, const dynamic::mesh& m, const any_backend& backend, std::uint64_t seed) {
  CAPTURE(s.name);
  CAPTURE(seed);
  draws r{std::mt19937_64(seed)};
  std::vector<numbers> given;
  std::vector<const void*> data;
  dynamic::builder b(m);
  std::vector<value> in;
  for (std::size_t k = 0; k < s.inputs.size(); ++k) {
    in.push_back(b.input(dynamic::input<double>(s.inputs[k], random_split(r, m, s.inputs[k].size()))));
    given.emplace_back();
    for (int64_t i = 0; i < size_of(s.inputs[k]); ++i) given.back().push_back(s.element(k, i));
  }
  for (const auto& x : given) data.push_back(x.data());
  const value y = s.program(in);
  std::vector<int64_t> shape;
  for (int d = 0; d < y.rank(); ++d) shape.push_back(y.shape()[d]);
  value weights = constant<double>(y, shape, 0);
  int64_t step = 1;
  for (int d = y.rank() - 1; d >= 0; --d) {
    weights = weights + iota<double>(y, shape, d) * static_cast<double>(step);
    step *= shape[static_cast<std::size_t>(d)];
  }
  weights = weights % 5.0 / 4.0 + 1.0;
  const auto gradients =
      grad(sum(y * weights), std::vector<value>(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(s.differentiable)));
  b.output(y);
  for (const value g : gradients) b.output(g);
  const auto got = backend.run(b.compile(), data);

  const auto wrong = [](const double* have, const numbers& want, double error) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < want.size(); ++i)
      count += std::isnan(want[i]) ? !std::isnan(have[i]) : !(std::fabs(have[i] - want[i]) <= error * (1 + std::fabs(want[i])));
    return count;
  };
  const numbers wanted = s.loop(given);
  REQUIRE(got[0].bytes.size() == wanted.size() * sizeof(double));
  CHECK(wrong(got[0].data<double>(), wanted, 1e-12) == 0);
  for (std::size_t k = 0; k < s.differentiable; ++k) {
    numbers slopes;
    for (auto& x : given[k]) {
      const double before = x, h = 1e-5;
      double both[2];
      for (const int side : {0, 1}) {
        x = before + (side == 0 ? -h : h);
        both[side] = 0;
        const numbers z = s.loop(given);
        for (std::size_t i = 0; i < z.size(); ++i) both[side] += weight(i) * z[i];
      }
      x = before;
      slopes.push_back((both[1] - both[0]) / (2 * h));
    }
    CAPTURE(k);
    CHECK(wrong(got[1 + k].data<double>(), slopes, 1e-7) == 0);
  }
}
void check(const subject& s) {
  const dynamic::mesh one({{"x", 1}}), three({{"x", 3}}), grid({{"x", 2}, {"y", 2}});
  check(s, one, serial{}, 0);
  for (std::uint64_t seed = 1; seed < 4; ++seed) check(s, three, simulated{}, seed);
  for (std::uint64_t seed = 4; seed < 7; ++seed) check(s, grid, threads{}, seed);
}

/// A loop over all elements.
auto each(double (*f)(double)) {
  return [f](const std::vector<numbers>& x) {
    numbers y;
    for (const double e : x[0]) y.push_back(f(e));
    return y;
  };
}

/// A loop over lines of `length` elements: inputs x, and gain and bias if they are passed.
auto normalised_lines(std::size_t length, bool is_centred, double epsilon) {
  return [=](const std::vector<numbers>& in) {
    numbers y;
    for (std::size_t begin = 0; begin < in[0].size(); begin += length) {
      const double n = static_cast<double>(length);
      double mean = 0, squares = 0;
      for (std::size_t i = 0; is_centred && i < length; ++i) mean += in[0][begin + i] / n;
      for (std::size_t i = 0; i < length; ++i) squares += std::pow(in[0][begin + i] - mean, 2) / n;
      for (std::size_t i = 0; i < length; ++i) {
        const double e = (in[0][begin + i] - mean) / std::sqrt(squares + epsilon);
        y.push_back(e * (in.size() > 1 ? in[1][i] : 1) + (in.size() > 2 ? in[2][i] : 0));
      }
    }
    return y;
  };
}

}  // namespace

TEST_CASE("gelu, silu and softplus are their formulas, with gradients") {
  for (const auto& shape : shapes{{5, 7}, {1, 4}, {0, 3}}) {
    check({"gelu", {shape}, 1, [](const auto& x) { return gelu(x[0]); }, each([](double x) {
             return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
           })});
    check({"gelu by tanh", {shape}, 1, [](const auto& x) { return gelu(x[0], gelu_form::tanh); }, each([](double x) {
             return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
           })});
    check({"silu", {shape}, 1, [](const auto& x) { return silu(x[0]); }, each([](double x) { return x / (1 + std::exp(-x)); })});
    check({"softplus", {shape}, 1, [](const auto& x) { return softplus(x[0]); }, each([](double x) {
             return std::log1p(std::exp(x));
           })});
  }
  // Large arguments do not overflow.
  const std::vector<float> far{-200, 200, -1e30F, 1e30F};
  const auto y = dynamic::compile(
                     [](value x) {
                       return std::array{softplus(x), silu(x), gelu(x)};
                     },
                     dynamic::mesh({{"x", 2}}), dynamic::input<float>({4}, {"x"}))
                     .run(simulated{}, far);
  for (std::size_t k = 0; k < 3; ++k)
    for (std::size_t i = 0; i < 4; ++i) CHECK(y[k].data<float>()[i] == std::fmax(far[i], 0.0F));
}

TEST_CASE("layer_norm and rms_norm over one or two last dims, with and without gain and bias, with gradients") {
  const auto x3 = [](const auto& x) { return layer_norm(x[0], x[1], x[2]); };
  for (const auto& shape : shapes{{3, 4, 6}, {5, 1, 3}, {0, 2, 5}}) {
    const auto length = static_cast<std::size_t>(shape[2]), plane = static_cast<std::size_t>(shape[1]) * length;
    check({"layer_norm", {shape}, 1, [](const auto& x) { return layer_norm(x[0]); }, normalised_lines(length, true, 1e-5)});
    check({"layer_norm gain, bias", {shape, {shape[2]}, {shape[2]}}, 3, x3, normalised_lines(length, true, 1e-5)});
    check({"layer_norm planes",
           {shape, {shape[1], shape[2]}},
           2,
           [](const auto& x) { return layer_norm(x[0], x[1], {.epsilon = 0.5}); },
           normalised_lines(plane, true, 0.5)});
    check({"rms_norm",
           {shape},
           1,
           [](const auto& x) { return rms_norm(x[0], {.dims = 2}); },
           normalised_lines(plane, false, 1e-5)});
    check({"rms_norm gain",
           {shape, {shape[2]}},
           2,
           [](const auto& x) { return rms_norm(x[0], x[1]); },
           normalised_lines(length, false, 1e-5)});
  }
}

TEST_CASE("cross_entropy of integer labels along any dim, also ignored and wrong labels, with gradients") {
  // Label 2 is -100, which is ignored. Label 3 does not exist in the last subject.
  const auto element = [](std::size_t k, int64_t i) {
    return k == 0 ? static_cast<double>(i * 37 % 101 - 50) / 10 : i % 4 == 2 ? -100 : static_cast<double>(i * 3 % 5);
  };
  const auto loop = [](std::size_t classes, std::size_t stride) {
    return [=](const std::vector<numbers>& in) {
      numbers losses;
      for (std::size_t line = 0; line < in[1].size(); ++line) {
        const std::size_t begin = line / stride * stride * classes + line % stride;
        double total = 0;
        for (std::size_t c = 0; c < classes; ++c) total += std::exp(in[0][begin + c * stride]);
        const double label = in[1][line];
        if (label == -100) losses.push_back(0);
        else if (label >= static_cast<double>(classes)) losses.push_back(std::numeric_limits<double>::quiet_NaN());
        else losses.push_back(std::log(total) - in[0][begin + static_cast<std::size_t>(label) * stride]);
      }
      return losses;
    };
  };
  for (const auto& labels : shapes{{6}, {2, 3}, {1}, {0}, {}}) {
    auto logits = labels;
    logits.push_back(5);
    check({"cross_entropy",
           {logits, labels},
           1,
           [](const auto& x) { return cross_entropy(x[0], cast<std::int32_t>(x[1])); },
           loop(5, 1),
           element});
  }
  check({"cross_entropy along dim 1",
         {{2, 5, 3}, {2, 3}},
         1,
         [](const auto& x) { return cross_entropy(x[0], cast<int64_t>(x[1]), {.dim = 1}); },
         loop(5, 3),
         element});
  check({"cross_entropy of wrong labels",
         {{8, 3}, {8}},
         0,
         [](const auto& x) { return cross_entropy(x[0], cast<std::int32_t>(x[1])); },
         loop(3, 1),
         element});
}

namespace {
constexpr auto loss_of_logits = [](auto logits, auto labels) {
  const value loss = mean(cross_entropy(logits, labels));
  return std::tuple{loss, grad(loss, logits)};
};
/// A vocabulary of 1,000 tokens, split over four devices.
using loss_step = compile<loss_of_logits, mesh<axis<"model", 4>>, input<float, shape<64, 1000>, split<_, "model">>,
                          input<std::int32_t, shape<64>>>;
// Three all_reduces of one float for each of the 64 lines. The logits are not gathered.
static_assert(loss_step::traffic.bytes == 3 * (2 * 64 * 4 * 3 / 4));
}  // namespace
TEST_CASE("cross_entropy of a split vocabulary sends nothing else for bf16, and nothing for the gradient alone") {
  const dynamic::mesh m({{"x", 4}});
  const auto logits = dynamic::input<bf16>({64, 1000}, {"", "x"});
  const auto labels = dynamic::input<std::int32_t>({64});
  constexpr std::int64_t line = 2 * 64 * 3 / 4;  // bytes of an all_reduce of one byte for each line
  CHECK(dynamic::compile(loss_of_logits, m, logits, labels).traffic().bytes == (2 + 4 + 4) * line);
  const auto gradient = [](value x, value y) { return std::get<1>(loss_of_logits(x, y)); };
  // The gradient does not read the logits of the labels.
  CHECK(dynamic::compile(gradient, m, logits, labels).traffic().bytes == (2 + 4) * line);
}

TEST_CASE("rotary_embedding turns pairs by their positions, with gradients") {
  const auto loop = [](int64_t rows, int64_t width, bool interleaved, double first, double base) {
    return [=](const std::vector<numbers>& in) {
      numbers y(in[0].size());
      for (std::size_t line = 0; line * static_cast<std::size_t>(width) < in[0].size(); ++line) {
        const auto row = static_cast<int64_t>(line) % rows;
        const double position = in.size() > 1 ? in[1][static_cast<std::size_t>(row)] : first + static_cast<double>(row);
        for (int64_t i = 0; i < width / 2; ++i) {
          const double angle = position * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(width));
          const auto begin = static_cast<int64_t>(line) * width;
          const auto a = static_cast<std::size_t>(begin + (interleaved ? 2 * i : i));
          const auto b = static_cast<std::size_t>(begin + (interleaved ? 2 * i + 1 : i + width / 2));
          y[a] = in[0][a] * std::cos(angle) - in[0][b] * std::sin(angle);
          y[b] = in[0][b] * std::cos(angle) + in[0][a] * std::sin(angle);
        }
      }
      return y;
    };
  };
  for (const auto& shape : shapes{{2, 5, 8}, {1, 3, 2}, {3, 0, 4}, {3, 4, 12}}) {
    const int64_t rows = shape[1], width = shape[2];
    check({"halves",
           {shape},
           1,
           [](const auto& x) { return rotary_embedding(x[0], {.base = 100, .first_row = 3}); },
           loop(rows, width, false, 3, 100)});
    check({"interleaved",
           {shape},
           1,
           [](const auto& x) { return rotary_embedding(x[0], {.interleaved = true}); },
           loop(rows, width, true, 0, 10000)});
    check({"positions",
           {shape, {rows}},
           1,
           [](const auto& x) { return rotary_embedding(x[0], cast<std::int32_t>(x[1] * 20.0)); },
           [=](const std::vector<numbers>& in) {
             numbers positions;
             for (const double e : in[1]) positions.push_back(std::trunc(e * 20));
             return loop(rows, width, false, 0, 10000)({in[0], positions});
           }});
  }
  // Shards of the last dim that contain parts of pairs.
  const dynamic::mesh four({{"x", 4}});
  for (const bool interleaved : {false, true}) {
    dynamic::builder b(four);
    const value x = b.input(dynamic::input<double>({3, 6}, {"", "x"}));
    b.output(rotary_embedding(x, {.interleaved = interleaved}));
    numbers given(18);
    for (std::size_t i = 0; i < 18; ++i) given[i] = static_cast<double>(i);
    const auto y = b.compile().run(threads{}, {given.data()});
    const numbers wanted = loop(3, 6, interleaved, 0, 10000)({given});
    for (std::size_t i = 0; i < 18; ++i) CHECK(std::fabs(y[0].data<double>()[i] - wanted[i]) < 1e-12 * 20);
  }
}

TEST_CASE("dropout keeps elements as random::bernoulli does, on every mesh, and its gradient has the same zeros") {
  const std::vector<double> x{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const auto f = [](value in) {
    const value key = random::key(in, 7);
    const value y = dropout(key, in, 0.25);
    return std::array{y,
                      grad(sum(y), in),
                      cast<double>(random::bernoulli(key, 0.75, {4, 3})),
                      dropout(key, in, 0.0),
                      dropout(key, in, 1.0),
                      grad(sum(dropout(key, in, 1.0)), in)};
  };
  for (const int devices : {1, 3}) {
    const auto p = dynamic::compile(f, dynamic::mesh({{"x", devices}}), dynamic::input<double>({4, 3}, {"x", ""}));
    CHECK(p.traffic().bytes == 0);
    const auto y = p.run(simulated{}, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double kept = y[2].data<double>()[i];
      CHECK(y[0].data<double>()[i] == (kept == 1 ? x[i] / 0.75 : 0));
      CHECK(y[1].data<double>()[i] == (kept == 1 ? 1 / 0.75 : 0));
      CHECK(y[3].data<double>()[i] == x[i]);
      CHECK(y[4].data<double>()[i] == 0);
      CHECK(y[5].data<double>()[i] == 0);
    }
  }
}

TEST_CASE("initializers: deviations and limits from the fans, and the same numbers on every mesh") {
  using initializers::fan_dims;
  const auto f = [](value x) {
    const value key = random::key(x, 3);
    const std::vector<int64_t> matrix{200, 300}, window{3, 3, 50, 80}, heads{100, 4, 60};
    return std::array{initializers::normal<float>(key, matrix, 0.5),
                      initializers::truncated_normal<float>(key, matrix),
                      initializers::uniform<float>(key, matrix, 0.5),
                      initializers::glorot_uniform<float>(key, matrix),
                      initializers::glorot_normal<float>(key, window),
                      initializers::he_uniform<float>(key, window),
                      initializers::he_normal<float>(key, heads, {.in = {0}, .out = {1, 2}}),
                      initializers::lecun_uniform<float>(key, heads, {.in = {0, 1}}),
                      initializers::lecun_normal<float>(key, {20, 50, 60}, {.in = {1}, .out = {2}, .batch = {0}}),
                      cast<float>(initializers::he_normal<bf16>(key, matrix)),
                      initializers::ones<float>(key, {2, 3}),
                      initializers::zeros<float>(key, {0, 3}) + initializers::he_normal<float>(key, {0, 3})};
  };
  // The mean, the deviation, and the limit of the largest absolute value (0: none).
  const double share = 0.87962566103423978;
  const auto uniform = [](double deviation) { return std::array{0.0, deviation, deviation * std::sqrt(3.0)}; };
  const auto normal = [=](double deviation) { return std::array{0.0, deviation, 2 * deviation / share}; };
  const std::vector<std::array<double, 3>> wanted{{0, 0.5, 0},
                                                  {0, 0.01 * share, 0.02},
                                                  {0.25, 0.5 / std::sqrt(12.0), 0.5},
                                                  uniform(std::sqrt(2.0 / 500)),
                                                  normal(std::sqrt(2.0 / (9 * 130))),
                                                  uniform(std::sqrt(2.0 / 450)),
                                                  normal(std::sqrt(2.0 / 100)),
                                                  uniform(std::sqrt(1.0 / 400)),
                                                  normal(std::sqrt(1.0 / 50)),
                                                  normal(std::sqrt(2.0 / 200)),
                                                  {1, 0, 1}};
  std::vector<std::vector<std::byte>> first;
  const float none = 0;
  for (const int devices : {1, 3}) {
    const auto y = dynamic::compile(f, dynamic::mesh({{"x", devices}}), dynamic::input<float>({})).run(simulated{}, {&none});
    if (first.empty())
      for (const auto& tensor : y) first.push_back(tensor.bytes);
    for (std::size_t k = 0; k < y.size(); ++k) {
      CAPTURE(k);
      CHECK(y[k].bytes == first[k]);
      if (k >= wanted.size()) continue;
      const auto n = y[k].bytes.size() / sizeof(float);
      const auto* const x = y[k].data<float>();
      double mean = 0, squares = 0, largest = 0;
      for (std::size_t i = 0; i < n; ++i) {
        mean += static_cast<double>(x[i]) / static_cast<double>(n);
        largest = std::fmax(largest, std::fabs(static_cast<double>(x[i])));
      }
      for (std::size_t i = 0; i < n; ++i) squares += std::pow(static_cast<double>(x[i]) - mean, 2) / static_cast<double>(n);
      CHECK(std::fabs(mean - wanted[k][0]) < 0.02 * wanted[k][1] + 1e-6);
      CHECK(std::fabs(std::sqrt(squares) - wanted[k][1]) < 0.02 * wanted[k][1] + 1e-6);
      if (wanted[k][2] > 0) CHECK(largest <= 1.005 * wanted[k][2]);
      if (wanted[k][2] > 0) CHECK(largest > 0.99 * wanted[k][2]);
    }
  }
}

namespace {
/// A step of a classifier with a split vocabulary. `with_everything` has each function of this file in it.
constexpr auto with_everything = [](auto x, auto labels, auto gain, auto w) {
  const value key = random::key(x, 5);
  const value h = dropout(key, gelu(layer_norm(x, gain, gain)) + softplus(rms_norm(x)), 0.25);
  const value logits = matmul(rotary_embedding(silu(h)), w + initializers::glorot_uniform<float>(key, {6, 10}));
  const value loss = mean(cross_entropy(logits, labels));
  const auto [by_gain, by_w] = grad(loss, std::array{gain, w});
  return std::tuple{loss + dot(gain, gain), by_gain, by_w};
};
}  // namespace
TEST_CASE("a compiled program has the plan and the results of the same program at run time") {
  using pod = mesh<axis<"data", 2>, axis<"model", 2>>;
  using step = compile<with_everything, pod, input<float, shape<4, 6>, split<"data", _>>, input<std::int32_t, shape<4>>,
                       input<float, shape<6>>, input<float, shape<6, 10>, split<_, "model">>>;
  const auto program = dynamic::compile(with_everything, dynamic::mesh({{"data", 2}, {"model", 2}}),
                                        dynamic::input<float>({4, 6}, {"data", ""}), dynamic::input<std::int32_t>({4}),
                                        dynamic::input<float>({6}), dynamic::input<float>({6, 10}, {"", "model"}));
  CHECK(program.traffic().bytes == step::traffic.bytes);
  array<float> x({4, 6}), gain({6}), w({6, 10});
  array<std::int32_t> labels({4});
  for (int64_t i = 0; i < 60; ++i) w[i] = static_cast<float>(i * 37 % 101 - 50) / 50;
  for (int64_t i = 0; i < 24; ++i) x[i] = static_cast<float>(i * 29 % 53 - 26) / 13;
  for (int64_t i = 0; i < 6; ++i) gain[i] = 1 + static_cast<float>(i) / 8;
  for (int64_t i = 0; i < 4; ++i) labels[i] = static_cast<std::int32_t>(3 * i);
  const auto [loss, by_gain, by_w] = run<step>(simulated{}, x, labels, gain, w);
  const auto y = program.run(simulated{}, x, labels, gain, w);
  CHECK(std::isfinite(loss[0]));
  CHECK(loss[0] == y[0].data<float>()[0]);
  for (int64_t i = 0; i < 6; ++i) CHECK(by_gain[i] == y[1].data<float>()[i]);
  for (int64_t i = 0; i < 60; ++i) CHECK(by_w[i] == y[2].data<float>()[i]);
}

TEST_CASE("mistakes in the functions of networks are refused with the remedy") {
  const auto refusal = [](auto f, std::vector<int64_t> a, std::vector<int64_t> b) {
    return caught::refusal([&] {
      dynamic::compile(f, dynamic::mesh({{"x", 2}}), dynamic::input<float>(std::move(a)),
                       dynamic::input<std::int32_t>(std::move(b)));
    });
  };
  const auto says = [&](auto f, std::vector<int64_t> a, std::vector<int64_t> b, const std::string& text) {
    const std::string said = refusal(f, std::move(a), std::move(b));
    CAPTURE(said);
    CHECK(caught::contains(said, "functions.cpp:"));  // the user's line
    CHECK(said.ends_with(text));
  };
  says([](value, value n) { return gelu(n); }, {}, {2},
       "the operand is s32[2]; its elements must be real floats, for example cast<float>(x)");
  says([](value x, value) { return layer_norm(x, {.dims = 3}); }, {4, 6}, {},
       "normalises the last 3 dims of [4,6], which has 2 dims");
  says([](value x, value n) { return layer_norm(x, cast<float>(n)); }, {4, 6}, {4},
       "the gain is [4] and the last dims of [4,6] are [6]; both must be equal");
  says([](value x, value n) { return rms_norm(x, cast<double>(n)); }, {4, 6}, {6},
       "the gain is f64 and the operand is f32; convert one operand");
  says([](value x, value n) { return cross_entropy(x, n); }, {4, 6}, {6},
       "the labels are [6]; for logits [4,6] with classes along dim 1 they must be [4]");
  says([](value x, value) { return cross_entropy(x, x); }, {4, 6}, {},
       "the labels are f32; they must be integers, the numbers of the classes");
  says([](value x, value n) { return cross_entropy(x, n, {.dim = 2}); }, {4, 6}, {4},
       "dim 2 is not a dim of the logits [4,6]; dims count from 0");
  says([](value x, value) { return rotary_embedding(x); }, {4, 5}, {},
       "the operand is [4,5]; its last dim must have an even extent, because pairs are rotated");
  says([](value x, value n) { return rotary_embedding(x, n); }, {4, 6}, {3},
       "the positions are s32[3] and the operand is [4,6]; positions are integers, one for each row");
  says([](value x, value) { return dropout(random::key(x, 1), x, 1.5); }, {4}, {}, "the rate is 1.5; it is from 0 to 1");
  says([](value x, value) { return dropout(x, x, 0.5); }, {4}, {}, "what fold_in makes");
  says([](value x, value) { return initializers::he_normal<float>(random::key(x, 1), {6}); }, {4}, {},
       "each of the dims in, out and batch must be a different dim of [6]; write for example {.in = {0}, .out = {1}}");
}
