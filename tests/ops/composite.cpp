// SPDX-License-Identifier: Apache-2.0
// Composites of bf16 and f16 compute in float and round once: each result is the double result, rounded. Elements are
// many and large, so that sums, squares or exponentials of the narrow type itself would overflow or stop growing.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/nn.hpp>

using namespace gspmd;

namespace {

using values = std::vector<value>;
using composite = std::function<values(dynamic::builder&, const values&)>;

/// An input: its shape, its sharding, and its elements by row-major number, which bf16 holds exactly.
struct narrow_input {
  std::vector<std::int64_t> shape;
  std::vector<std::string> split;
  std::function<double(std::int64_t)> element;

  [[nodiscard]] std::int64_t size() const {
    std::int64_t all = 1;
    for (const auto e : shape) all *= e;
    return all;
  }
};

/// Returns the elements of results of T or float. Leaves out counters.
template <class T, class Results>
std::vector<std::vector<double>> as_doubles(const Results& y) {
  std::vector<std::vector<double>> all;
  for (const auto& tensor : y) {
    all.emplace_back();
    const auto add = [&]<class R>(const R* data) {
      std::int64_t n = 1;
      for (const auto e : tensor.shape) n *= e;
      for (std::int64_t i = 0; i < n; ++i) all.back().push_back(static_cast<double>(data[i]));
    };
    if (tensor.type == dtype::s32) continue;  // a counter
    REQUIRE((tensor.type == detail::dtype_of<T>() || tensor.type == dtype::f32));
    if (tensor.type == dtype::f32) add(tensor.template data<float>());
    else add(tensor.template data<T>());
  }
  return all;
}

/// The results of a composite of T on a mesh, as doubles.
template <class T>
std::vector<std::vector<double>> results_of(const composite& f, const std::vector<narrow_input>& inputs, int devices) {
  dynamic::builder b(dynamic::mesh({{"x", devices}}));
  values xs;
  std::vector<array<T>> elements;
  for (const auto& in : inputs) {
    xs.push_back(b.input(devices == 1 || in.split.empty() ? dynamic::input<T>(in.shape) : dynamic::input<T>(in.shape, in.split)));
    elements.emplace_back(in.shape);
    for (std::int64_t i = 0; i < in.size(); ++i) elements.back()[i] = static_cast<T>(in.element(i));
  }
  for (const value v : f(b, xs)) b.output(v);
  const auto p = b.compile();
  const auto y = elements.size() == 1   ? p.run(simulated{}, elements[0])
                 : elements.size() == 2 ? p.run(simulated{}, elements[0], elements[1])
                                        : p.run(simulated{}, elements[0], elements[1], elements[2]);
  return as_doubles<T>(y);
}

/// Checks the results of T on 1 to 4 devices against those of `Wide` on one: they may be off by half of the last place,
/// and by the error of float. `more`: halves of a place of the largest element that they may be off by as well.
template <class T, class Wide>
void check_rounded_once(const std::string& name, const composite& f, const std::vector<narrow_input>& inputs, double more) {
  constexpr double half_place = std::is_same_v<T, f16> ? 0x1p-11 : 0x1p-8, least = std::is_same_v<T, f16> ? 0x1p-25 : 0;
  const auto want = results_of<Wide>(f, inputs, 1);
  for (const int devices : {1, 2, 3, 4}) {
    const auto got = results_of<T>(f, inputs, devices);
    REQUIRE(got.size() == want.size());
    for (std::size_t k = 0; k < want.size(); ++k) {
      double largest = 0;
      for (const double w : want[k]) largest = std::max(largest, std::fabs(w));
      std::size_t wrong = 0, first = 0;
      for (std::size_t i = 0; i < want[k].size(); ++i) {
        const double w = want[k][i], off = std::fabs(got[k][i] - w);
        if (off <= 1.02 * (half_place * std::fabs(w) + least) + more * least + (more * half_place + 1e-5) * largest) continue;
        if (wrong++ == 0) first = i;
      }
      if (wrong == 0) continue;
      FAIL_CHECK(name << " of " << std::string(detail::name_of(detail::dtype_of<T>())) << " on " << devices << " devices, result "
                      << k << ": " << wrong << " wrong, element " << first << " is " << got[k][first] << " and not "
                      << want[k][first]);
    }
  }
}
template <class Wide = double>
void check_both(const std::string& name, const composite& f, const std::vector<narrow_input>& inputs, double more = 0) {
  check_rounded_once<f16, Wide>(name, f, inputs, more);
  check_rounded_once<bf16, Wide>(name, f, inputs, more);
}

/// A composite and its gradient. The loss weighs elements by 1, 0.5, 0 and less.
composite and_gradient(const std::function<value(value)>& f) {
  return [f](dynamic::builder&, const values& xs) {
    const value y = f(xs[0]), wide = cast<double>(y);
    value weights = zeros_like(wide);
    for (int d = 0; d < y.rank(); ++d) weights = weights + cast<double>(iota<std::int64_t>(y, y.shape(), d) % 3);
    return values{y, grad(sum(wide * (weights * -0.5 + 1.0)), xs[0])};
  };
}
/// Returns numbers of 7 bits from -size to size, or positive numbers.
std::function<double(std::int64_t)> both_signs(double size) {
  return [size](std::int64_t i) { return size * (static_cast<double>(i * 37 % 127) - 63) / 64; };
}
std::function<double(std::int64_t)> positive(double size) {
  return [size](std::int64_t i) { return size * static_cast<double>(64 + i * 37 % 64) / 128; };
}

}  // namespace

TEST_CASE("narrow composites: means, norms and softmax of many large elements, and their gradients") {
  const auto of = [](std::int64_t rows, std::int64_t columns, auto element) {
    return std::vector<narrow_input>{{{rows, columns}, {"x", ""}, element}};
  };
  const auto along = [](std::int64_t rows, std::int64_t columns, auto element) {
    return std::vector<narrow_input>{{{rows, columns}, {"", "x"}, element}};
  };
  check_both("mean", and_gradient([](value x) { return mean(x); }), of(7, 300, positive(32768)));
  check_both("mean of many", and_gradient([](value x) { return mean(x); }), of(300, 1000, positive(1)));
  check_both("mean over rows", and_gradient([](value x) { return mean(x, 0); }), of(301, 5, positive(32768)));
  for (const double p : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()})
    check_both("norm", and_gradient([p](value x) { return norm(x, p, {-1}); }), along(3, 30, both_signs(1024)));
  check_both("norm over rows", and_gradient([](value x) { return norm(x, 0); }), of(1003, 3, both_signs(1024)));
  const std::vector<narrow_input> many = along(1, 128256, positive(1)), large = of(21, 5, both_signs(32768));
  check_both(
      "softmax of many", [](dynamic::builder&, const values& x) { return values{softmax(x[0], -1)}; }, many);
  check_both(
      "softmax of large", [](dynamic::builder&, const values& x) { return values{softmax(x[0], 0)}; }, large);
  // The gradient of softmax reads the result as it was rounded.
  check_both("gradient of softmax", and_gradient([](value x) { return softmax(x, -1); }), many, 4);
  check_both("gradient of softmax", and_gradient([](value x) { return softmax(x, 0); }), large, 4);
  check_both("log_softmax of many", and_gradient([](value x) { return log_softmax(x, -1); }), along(1, 128256, both_signs(4)));
  check_both("log_softmax", and_gradient([](value x) { return log_softmax(x, 1); }), of(5, 300, both_signs(16)));
}

TEST_CASE("narrow composites: functions of networks, and their gradients") {
  const auto of = [](auto element) { return std::vector<narrow_input>{{{20, 13}, {"x", ""}, element}}; };
  for (const auto form : {gelu_form::exact, gelu_form::tanh})
    check_both("gelu", and_gradient([form](value x) { return gelu(x, form); }), of(both_signs(4)));
  check_both("silu", and_gradient([](value x) { return silu(x); }), of(both_signs(8)));
  check_both("softplus", and_gradient([](value x) { return softplus(x); }), of(both_signs(8)));
  // Squares of 8192 overflow f16.
  check_both("layer_norm", and_gradient([](value x) { return layer_norm(x); }), of(both_signs(8192)));
  check_both("rms_norm", and_gradient([](value x) { return rms_norm(x, {.dims = 2}); }), of(both_signs(8192)));
  check_both("rotary_embedding", and_gradient([](value x) {
               return rotary_embedding(slice(x, {0, 0}, {20, 12}));
             }),
             of(both_signs(4)));
  check_both("dropout", and_gradient([](value x) { return dropout(random::key(x, 1), x, 0.3); }), of(both_signs(4)));
  check_both("cross_entropy", and_gradient([](value x) { return cross_entropy(x, iota<std::int32_t>(x, {20}, 0) % 13); }),
             of(both_signs(16)));
}

TEST_CASE("narrow composites: pools and grids, and their gradients") {
  const auto of = [](auto element) { return std::vector<narrow_input>{{{22, 13}, {"x", ""}, element}}; };
  check_both("avg_pool", and_gradient([](value x) { return avg_pool(x, {7, 7}, {2, 2}); }), of(positive(32768)));
  check_both("avg_pool with padding", and_gradient([](value x) {
               return avg_pool(x, {5, 3}, {1, 2}, {2, 1}, {2, 1});
             }),
             of(positive(32768)));
  check_both("downsample", and_gradient([](value x) { return downsample(x, {7, 3}); }), of(positive(32768)));
  check_both("interpolate", and_gradient([](value x) { return interpolate(x, {3, 5}); }), of(both_signs(32768)));
  check_both("upsample", and_gradient([](value x) { return upsample(x, {3, 1}); }), of(both_signs(32768)));
}

TEST_CASE("narrow composites: attention of large scores and values, and its gradients") {
  const std::vector<std::string> heads{"", "x", "", ""};
  const std::vector<narrow_input> inputs{{{1, 4, 6, 16}, heads, [](std::int64_t i) { return i % 3 == 0 ? 256.0 : 128.0; }},
                                         {{1, 4, 300, 16}, heads, [](std::int64_t i) { return i / 16 % 2 == 0 ? 100.0 : 99.5; }},
                                         {{1, 4, 300, 4}, heads, positive(32768)}};
  check_both(
      "attention", [](dynamic::builder&, const values& x) { return values{attention(x[0], x[1], x[2])}; }, inputs);
  // The logarithms of sums are about 5500, which f16 holds to 4. Rows of k differ in two elements.
  std::vector<narrow_input> smaller = inputs;
  smaller[0].element = [](std::int64_t i) { return i % 3 == 0 ? 512.0 : 256.0; };
  smaller[1].element = [](std::int64_t i) {
    const auto row = i / 16, column = i % 16;
    return 4 - ((row + column) % 8 == 0 ? 0x1p-6 * static_cast<double>(row / 8 % 3) : 0);
  };
  const auto gradient = [](dynamic::builder&, const values& x) {
    const auto g = grad(sum(cast<double>(attention(x[0], x[1], x[2]))), std::array{x[0], x[1], x[2]});
    return values{g[0], g[1], g[2]};
  };
  check_both<float>("gradient of attention", gradient, smaller);  // float itself has lost places there
}

TEST_CASE("narrow composites: optimizers") {
  const std::vector<narrow_input> inputs{
      {{12, 40}, {"x", ""}, both_signs(4)},    // the parameters
      {{12, 40}, {"x", ""}, positive(2048)}};  // their gradients: f16 does not hold the squares
  auto smaller = inputs;
  smaller[1].element = positive(128);  // Adafactor's state has means of squares, and f16 must hold these
  const auto check = [&](const char* name, const auto& optimizer, const std::vector<narrow_input>& given) {
    check_both(
        name,
        [&](dynamic::builder&, const values& x) {
          auto next = optimizer.update(x[0], x[1], optimizer.init(x[0]));
          values all;
          detail::for_each_leaf(next, [&](value v) { all.push_back(v); });
          return all;
        },
        given);
  };
  check("sgd", optimizer::sgd{.rate = 1e-3, .weight_decay = 0.01}, inputs);
  check("momentum", optimizer::momentum{.rate = 1e-3, .nesterov = true, .weight_decay = 0.01}, inputs);
  check("adam", optimizer::adam{.rate = 1e-2, .weight_decay = 0.01}, inputs);
  check("adamw", optimizer::adamw{.rate = 1e-2}, inputs);
  check("lars", optimizer::lars{.rate = 1}, inputs);
  check("lamb", optimizer::lamb{.rate = 1e-2}, inputs);
  check("adafactor", optimizer::adafactor{}, smaller);
  check_both(
      "global_norm", [](dynamic::builder&, const values& x) { return values{optimizer::global_norm(x[1])}; }, inputs);
  check_both(
      "clip_by_global_norm", [](dynamic::builder&, const values& x) { return values{optimizer::clip_by_global_norm(x[1], 0.5)}; },
      inputs);
}

namespace {

constexpr std::int64_t microbatch_count = 40;

/// Returns a pipeline's loss and its gradients with respect to the data and to weights, which are ones. Weights are
/// [stages, 1] or [stages, rounds, 1]. All elements of a microbatch are equal, so bf16 and f16 represent the gradients
/// of one microbatch exactly. In f16, half of the last place of the first gradient is 2, and the other gradients are
/// smaller.
template <class T, class Schedule>
std::vector<std::vector<double>> step_of(const Schedule& schedule, int devices, int data) {
  const std::int64_t S = schedule.stages, R = schedule.rounds, M = schedule.microbatches;
  const auto step = pipeline_step<"x">([](value w, value x) { return x * w; },
                                       [](value y, value target) { return mean(y - target); }, schedule);
  const auto w = R == 1 ? dynamic::input<T>({S, 1}, {"x", ""}) : dynamic::input<T>({S, R, 1}, {"x", "", ""});
  const auto batches = dynamic::input<T>({M, 4}, {"", "data"});
  const auto p = dynamic::compile(step, dynamic::mesh({{"x", devices}, {"data", data}}), w, batches, batches);
  std::vector<T> xs;
  for (std::int64_t i = 0; i < M * 4; ++i)
    xs.push_back(static_cast<T>(i < 4 ? 4096 : 1 + static_cast<double>(i / 4 * 37 % 64) / 64));
  const std::vector<T> ones(static_cast<std::size_t>(S * R), static_cast<T>(1.0)), targets(xs.size(), static_cast<T>(0.0));
  return as_doubles<T>(p.run(threads{}, ones, xs, targets));
}
template <class T, class Schedule>
void check_step(const Schedule& schedule, int devices, int data) {
  CAPTURE(schedule.stages);
  CAPTURE(schedule.rounds);
  CAPTURE(devices);
  CAPTURE(data);
  constexpr double half_place = std::is_same_v<T, f16> ? 0x1p-11 : 0x1p-8;
  const auto want = step_of<double>(schedule, devices, data), got = step_of<T>(schedule, devices, data);
  REQUIRE(got.size() == 3);
  for (std::size_t k = 0; k < 3; ++k) {
    REQUIRE(got[k].size() == want[k].size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < want[k].size(); ++i)
      wrong += !(std::fabs(got[k][i] - want[k][i]) <= 1.001 * half_place * std::fabs(want[k][i]));
    CAPTURE(k);
    CAPTURE(got[k][0]);
    CAPTURE(want[k][0]);
    CHECK(wrong == 0);
  }
}
template <class T>
void check_steps() {
  constexpr auto M = microbatch_count;
  for (const int devices : {1, 2, 4})
    check_step<T>(eager_one_forward_one_backward{4, M}, devices > 1 ? 2 : 1, devices > 2 ? 2 : 1);
  check_step<T>(one_forward_one_backward{1, M}, 1, 1);
  check_step<T>(one_forward_one_backward{2, M}, 2, 1);
  check_step<T>(one_forward_one_backward{2, M}, 2, 2);
  check_step<T>(interleaved{2, M, 2}, 2, 2);
  check_step<T>(gpipe{4, M}, 4, 1);
  check_step<T>(circular{2, M, 2}, 2, 1);
}

}  // namespace
TEST_CASE("narrow composites: the mean loss of many microbatches and its gradients, by every schedule") {
  check_steps<f16>();
  check_steps<bf16>();
}

TEST_CASE("narrow composites: the float gradient of a pipeline's bf16 weights is reduced once, after the last tick") {
  const auto all_reduced = [](const auto& schedule) {
    CAPTURE(schedule.rounds);
    constexpr std::int64_t D = 8;
    const std::int64_t S = schedule.stages, R = schedule.rounds;
    const auto layer = [](value w, value x) { return tanh(einsum<"bd,df->bf">(x, w)); };
    const auto loss = [](value y, value t) { return mean(cast<float>(y - t)); };
    const auto f = [=](value w, value x) { return std::get<1>(pipeline_step<"x">(layer, loss, schedule)(w, x, x)); };
    const auto w =
        R == 1 ? dynamic::input<bf16>({S, D, D}, {"x", "", ""}) : dynamic::input<bf16>({S, R, D, D}, {"x", "", "", ""});
    const auto xs = dynamic::input<bf16>({schedule.microbatches, 4, D}, {"", "data", ""});
    const auto p = dynamic::compile(f, dynamic::mesh({{"x", static_cast<int>(S)}, {"data", 2}}), w, xs);
    CHECK(p.traffic().in(collective_kind::all_reduce).bytes == 4 * R * D * D);
    CHECK(p.traffic().bytes == p.traffic().in(collective_kind::collective_permute).bytes + 4 * R * D * D);
  };
  all_reduced(eager_one_forward_one_backward{2, 4});
  all_reduced(one_forward_one_backward{2, 4});
  all_reduced(interleaved{2, 4, 2});
}

TEST_CASE("narrow composites: messages are floats, and no float copy is stored") {
  const dynamic::mesh m({{"x", 4}});
  const auto p = dynamic::compile([](value x) { return mean(x, 0); }, m, dynamic::input<f16>({64, 1000}, {"x", ""}));
  CHECK(p.traffic().bytes == 2 * 3 * 1000 * 4 / 4);
  const auto s = dynamic::compile([](value x) { return softmax(x, -1); }, m, dynamic::input<bf16>({1024, 4096}, {"x", ""}));
  CHECK(s.peak_bytes_per_device() < 2 * 256 * 4096 * 2 + 100'000);
  // A gradient keeps the rounded result, in 16 bits.
  const auto g = dynamic::compile([](value x, value w) { return grad(sum(cast<float>(softmax(x, -1)) * w), x); }, m,
                                  dynamic::input<bf16>({1024, 4096}, {"x", ""}), dynamic::input<float>({1, 4096}));
  CHECK(g.peak_bytes_per_device() < 3 * 256 * 4096 * 2 + 200'000);
}

TEST_CASE("loops widen bf16 and f16 elements where they read them: no float copy of a tensor is stored") {
  constexpr std::int64_t rows = 64, columns = 96;
  const auto stored_copies = [](int devices, bool splits_rows, const std::function<value(value)>& f) {
    const dynamic::mesh m({{"x", devices}});
    const auto spec =
        splits_rows ? dynamic::input<bf16>({rows, columns}, {"x", ""}) : dynamic::input<bf16>({rows, columns}, {"", "x"});
    const auto p = dynamic::compile(
        [&](value x, value mask) {
          return grad(sum(cast<float>(f(x * 0.125F + mask))), std::vector<value>{x, mask});
        },
        m, spec, dynamic::input<bf16>({columns}));
    const detail::plan_view v = p.view();
    int count = 0;
    for (const auto& s : v.steps)
      for (int k = 0; k < s.results.count; ++k) {
        const auto& made = v.result(s, k);
        const bool is_copy =
            v.nodes[static_cast<std::size_t>(made.node)].op == detail::code_of<detail::cast_op> && made.type == dtype::f32;
        count += is_copy && detail::elements(made.local) == rows * columns / devices;
      }
    return count;
  };
  const std::vector<std::function<value(value)>> composites{
      [](value x) { return softmax(x, 1); }, [](value x) { return log_softmax(x, 1); }, [](value x) { return x / norm(x); },
      [](value x) {
        return (x - reshape(mean(x, 1), {rows, 1})) * x;
      },
      [](value x) {
        const value wide = cast<float>(x);
        return cast<bf16>(wide * wide - exp(wide) * sum(wide));
      }};
  for (std::size_t k = 0; k < composites.size(); ++k)
    for (const bool splits_rows : {true, false})
      for (const int devices : {1, 2}) {
        CAPTURE(k);
        CAPTURE(splits_rows);
        CAPTURE(devices);
        CHECK(stored_copies(devices, splits_rows, composites[k]) == 0);
      }
}

TEST_CASE("mean divides by the number of elements: the mean of equal numbers is that number on every mesh") {
  for (const int devices : {1, 2, 3, 4})
    for (const std::int64_t n : {7, 41, 49, 1000}) {
      CAPTURE(devices);
      CAPTURE(n);
      const dynamic::mesh m({{"x", devices}});
      const auto f = [](value x) { return std::array{mean(x), mean(x * x, 0)}; };
      const auto y = dynamic::compile(f, m, dynamic::input<float>({n}, {"x"}))
                         .run(simulated{}, std::vector<float>(static_cast<std::size_t>(n), 1));
      CHECK(y[0].data<float>()[0] == 1);
      CHECK(y[1].data<float>()[0] == 1);
    }
  const auto none = dynamic::compile(
                        [](value x) {
                          return std::array{mean(x, 0), mean(x), mean(x, 1)};
                        },
                        dynamic::mesh({{"x", 2}}), dynamic::input<double>({0, 3}, {"x", ""}))
                        .run(simulated{}, std::vector<double>{});
  for (int i = 0; i < 3; ++i) CHECK(std::isnan(none[0].data<double>()[i]));
  CHECK(std::isnan(none[1].data<double>()[0]));
  CHECK(none[2].shape == std::vector<std::int64_t>{0});
  // Partial sums are divided where that saves a message.
  const auto two = dynamic::compile([](value x) { return mean(x) + mean(x * x); }, dynamic::mesh({{"x", 2}}),
                                    dynamic::input<float>({64}, {"x"}));
  CHECK(two.collectives().size() == 1);
}

namespace {
constexpr auto of_both = [](auto x, auto y) { return std::array{mean(x), norm(y), mean(softmax(y, 0))}; };
}
TEST_CASE("narrow composites: a compiled program") {
  using step = compile<of_both, mesh<axis<"x", 2>>, input<f16, shape<300>, split<"x">>, input<bf16, shape<300>, split<"x">>>;
  array<f16> x({300});
  array<bf16> y({300});
  x.fill(f16(500.0F));
  y.fill(bf16(300.0F));
  const auto [of_x, length, share] = run<step>(simulated{}, x, y);
  CHECK(static_cast<float>(of_x[0]) == 500);
  CHECK(static_cast<float>(length[0]) == static_cast<float>(bf16(300 * std::sqrt(300.0))));
  CHECK(static_cast<float>(share[0]) == static_cast<float>(bf16(1 / 300.0)));
}
