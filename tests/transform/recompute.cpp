// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Functions whose values are recomputed in the backward pass: equal gradients, and less memory.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/modes.hpp>
#include <gspmd/transform/recompute.hpp>
#include <gspmd/transform/vmap.hpp>

#include "support/random_program.hpp"
#include "support/run_random.hpp"

using namespace gspmd;
using std::int64_t;

namespace {

using function = std::function<value(value)>;

/// A random function of a [4,6] value that also reads weights. It has loops, conditionals, vmap and nested functions.
/// Each nested function may be recomputed.
class random_layers {
 public:
  random_layers(std::uint64_t seed, bool again, value w, value b) : random_(seed), again_(again), w_(w), b_(b) {}

  function make(int depth) {
    const bool is_marked = random_.chance(45);
    const function f = plain(depth);
    if (!is_marked || !again_) return f;
    return [f](value x) { return recompute([&](value y) { return f(y); })(x); };
  }
  int met = 0;  // kinds, as bits

 private:
  function plain(int depth) {
    const int kind = random_.between(0, depth > 0 ? 9 : 3);
    met |= 1 << kind;
    const value w = w_, b = b_;
    switch (kind) {
      case 0: return [w](value x) { return tanh(einsum("ab,bc->ac", x, w)); };
      case 1: return [b](value x) { return sin(x) * broadcast_to(b, {4, 6}); };
      case 2: return [](value x) { return x * broadcast_in_dim(mean(x * x, 1), {4, 6}, {0}); };
      case 3: return [w](value x) { return x + 0.25 * einsum("ab,bc->ac", x, tanh(w)); };
      case 4: {
        const function f = make(depth - 1), g = make(depth - 1);
        return [f, g](value x) { return g(f(x)); };
      }
      case 5: {
        const function f = make(depth - 1), g = make(depth - 1);
        return [f, g](value x) { return 0.5 * (f(x) + cos(g(x))); };
      }
      case 6: {
        const function f = make(depth - 1);
        return [f](value x) {
          return fori_loop(
              3, [&](value i, value y) { return f(y) + 0.1 * cast<double>(i); }, x);
        };
      }
      case 7: {
        const function f = make(depth - 1), g = make(depth - 1);
        return [f, g](value x) {
          return cond(
              sum(x) > 0.3, [&](value y) { return f(y); }, [&](value y) { return g(y); }, x);
        };
      }
      case 8:
        return [b](value x) {
          return vmap([b](value row) { return recompute([b](value r) { return sin(r * b) * r; })(row) + b; })(x);
        };
      default: {  // two results; the second is read after other users
        const function f = make(depth - 1);
        const bool again = again_;
        return [f, again](value x) {
          const auto both = [f](value y) { return std::tuple{f(y), y * y}; };
          const auto [a, c] = again ? recompute(both)(x) : both(x);
          return a + 0.3 * tanh(c);
        };
      }
    }
  }

  reference::random_numbers random_;
  bool again_;
  value w_, b_;
};

std::vector<double> numbers(std::size_t count, double scale) {
  std::vector<double> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = scale * std::sin(1.7 * static_cast<double>(i) + 0.4);
  return x;
}

struct found {
  std::vector<std::vector<double>> outputs;
  int64_t arena = 0;
  int barriers = 0;
};

template <class F>
found run_on(const dynamic::mesh& m, const std::vector<std::string>& rows, F f) {
  const auto p =
      dynamic::compile(f, m, dynamic::input<double>({4, 6}, rows), dynamic::input<double>({6, 6}), dynamic::input<double>({6}));
  const auto x = numbers(24, 0.8), w = numbers(36, 0.5), b = numbers(6, 1.1);
  found result;
  for (const auto& y : p.run(simulated{}, {x.data(), w.data(), b.data()}))
    result.outputs.emplace_back(y.template data<double>(), y.template data<double>() + y.bytes.size() / sizeof(double));
  for (const auto& n : p.view().nodes) result.barriers += std::string(detail::name_of(n.op)) == "optimization_barrier" ? 1 : 0;
  return result;
}

void check_equal(const found& got, const found& want) {
  REQUIRE(got.outputs.size() == want.outputs.size());
  for (std::size_t k = 0; k < want.outputs.size(); ++k) {
    REQUIRE(got.outputs[k].size() == want.outputs[k].size());
    for (std::size_t e = 0; e < want.outputs[k].size(); ++e)
      CHECK(std::fabs(got.outputs[k][e] - want.outputs[k][e]) <= 1e-11 * (1 + std::fabs(want.outputs[k][e])));
  }
}

}  // namespace

TEST_CASE("recompute: random functions in functions, loops, conditionals and vmap have the gradients that they have without it") {
  int met = 0, barriers = 0;
  for (std::uint64_t seed = 1; seed <= reference::programs(60); ++seed) {
    INFO("seed " << seed);
    const auto train = [&](bool again) {
      return [seed, again, &met](value x, value w, value b) {
        random_layers layers(seed, again, w, b);
        const function f = layers.make(3);
        met |= layers.met;
        const value y = f(x), loss = sum(y * y);
        const auto g = grad(loss, std::array{x, w, b});
        return std::tuple{loss, g[0], g[1], g[2]};
      };
    };
    const auto want = run_on(dynamic::mesh({{"x", 1}}), {"", ""}, train(false));
    const auto got =
        run_on(dynamic::mesh({{"x", 2}, {"y", 2}}),
               seed % 2 == 0 ? std::vector<std::string>{"x", "y"} : std::vector<std::string>{"x,y", ""}, train(true));
    check_equal(got, want);
    barriers += got.barriers;
  }
  CHECK(barriers > 0);
  if (reference::programs(60) < 60) return;  // under a sanitizer the programs are too few to reach every kind
  CHECK(met == (1 << 10) - 1);
  CHECK(barriers > 100);
}

TEST_CASE("recompute: the gradient of a gradient, a loss inside of a call, and two gradients of one call") {
  const auto layer = [](value x, value w) { return tanh(einsum("ab,bc->ac", x, w)); };
  const auto train = [&](bool again) {
    return [=](value x, value w, value b) {
      const auto call = [&](value y) { return again ? recompute(layer)(y, w) : layer(y, w); };
      const auto loss_of = [&](value y) { return std::tuple{sum(call(call(y))), sum(y) * sum(b)}; };
      const auto [loss, other] = again ? recompute(loss_of)(x) : loss_of(x);
      const value g = grad(loss, x), second = grad(sum(g * g), w), third = grad(loss * other, w);
      const value inner = call(x);  // the gradient with respect to a result of a call that has other users too
      return std::tuple{g, second, third, grad(sum(inner * call(inner)), inner)};
    };
  };
  const dynamic::mesh one({{"x", 1}}), two({{"x", 2}});
  const auto want = run_on(one, {"", ""}, train(false));
  check_equal(run_on(one, {"", ""}, train(true)), want);
  check_equal(run_on(two, {"x", ""}, train(true)), want);
}

TEST_CASE("recompute: in manual regions, and around them") {
  const auto train = [](int how) {
    return [how](value x, value w, value b) {
      const auto part = [](value v, value u) { return sin(v) * einsum("ab,bc->ac", v, u); };
      const auto region = [&](value v) {
        return manual<"x">([&](value l, value u) { return how == 1 ? cos(recompute(part)(l, u)) : cos(part(l, u)); },
                           takes<split<"x", _>, replica<"x">>{}, gives<split<"x", _>>{})(v, w);
      };
      const value y = tanh(how == 2 ? recompute(region)(x) : region(x)), loss = sum(y * y) + sum(b);
      return std::tuple{loss, grad(loss, x), grad(loss, w)};
    };
  };
  const dynamic::mesh m({{"x", 2}, {"y", 2}});
  const auto want = run_on(m, {"x", ""}, train(0));
  for (const int how : {1, 2}) {
    const auto got = run_on(m, {"x", ""}, train(how));
    check_equal(got, want);
    CHECK(got.barriers >= 2);
  }
}

TEST_CASE("recompute: a chain of layers holds the input of each and the values of one") {
  constexpr int64_t rows = 256, features = 32, hidden = 256;
  const auto layer = [](value x, value w1, value w2) { return x + einsum("bf,fd->bd", tanh(einsum("bd,df->bf", x, w1)), w2); };
  const auto chain = [&](int layers, bool again, int axis) {
    dynamic::builder b(dynamic::mesh({{"data", 4}}));
    const std::string split = axis == 1 ? "data" : "";  // the second: fully sharded
    value x = b.input(dynamic::input<float>({rows, features}, {"data", ""}));
    std::vector<value> weights;
    for (int l = 0; l < layers; ++l) {
      const value w1 = b.input(dynamic::input<float>({features, hidden}, {split, ""})),
                  w2 = b.input(dynamic::input<float>({hidden, features}, {split, ""}));
      x = again ? recompute(layer)(x, w1, w2) : layer(x, w1, w2);
      weights.push_back(w1);
      weights.push_back(w2);
    }
    for (const value& g : grad(sum(x * x), weights)) b.output(b.reshard(g, {"data", ""}));
    return b.compile();
  };
  const auto arena = [&](int layers, bool again) { return chain(layers, again, 0).view().arena_bytes; };
  const int64_t input = rows / 4 * features * 4, inner = rows / 4 * hidden * 4;
  const int64_t kept = arena(12, false) - arena(6, false), less = arena(12, true) - arena(6, true);
  CHECK(kept >= 6 * inner);
  CHECK(less == 6 * input);

  // A gathered weight is gathered again: more bytes are sent, and no gathered weight is held.
  const auto once = chain(12, false, 1), twice = chain(12, true, 1);
  const auto gathers = [](const auto& p) {
    return detail::count_traffic(p.view(), detail::of_kind(collective_kind::all_gather)).bytes;
  };
  CHECK(gathers(twice) > gathers(once));
  CHECK(twice.view().arena_bytes < once.view().arena_bytes - 11 * features * hidden * 4);
}

TEST_CASE("recompute: a barrier that is to come behind more values than it can name is refused") {
  const auto told = [](int count) -> std::string {
    try {
      static_cast<void>(dynamic::compile(
          [count](value x) {
            std::vector<value> after;
            for (int k = 0; k < count; ++k) after.push_back(static_cast<double>(k + 2) * x);
            value all = optimization_barrier(x, after);
            for (const value& v : after) all = all + v;
            return all;
          },
          dynamic::mesh({{"x", 1}}), dynamic::input<double>({4})));
    } catch (const error& e) {
      return e.what();
    }
    return "accepted";
  };
  CHECK(told(7) == "accepted");
  const auto text = told(8);
  INFO(text);
  CHECK(text.find("optimization_barrier") != std::string::npos);
  CHECK(text.find("follows 8 values, and may follow 7; name the last of these values") != std::string::npos);
}

// Programs with types, planned at compile time.
namespace {

constexpr auto product = [](auto x, auto w, auto v) { return einsum<"bf,fd->bd">(tanh(einsum<"bd,df->bf">(x, w)), v); };
template <bool Again>
constexpr auto typed_step = [](auto x, auto w, auto v) {
  const auto y = Again ? recompute(product)(x, w, v) : product(x, w, v);
  return grad(einsum<"bd,bd->">(y, y), std::tuple{w, v});
};
using typed_mesh = mesh<axis<"data", 2>>;
using rows_of_x = tensor<float, shape<64, 8>, place<typed_mesh, split<"data", _>>>;
using whole_w = tensor<float, shape<8, 64>, place<typed_mesh, replica<"data">>>;
using whole_v = tensor<float, shape<64, 8>, place<typed_mesh, replica<"data">>>;
using typed_again = compile<typed_step<true>, typed_mesh, rows_of_x, whole_w, whole_v>;
static_assert(typed_again::collectives == collectives{});  // gradients leave as partial sums

}  // namespace

TEST_CASE("recompute: in a program with types") {
  using typed_kept = compile<typed_step<false>, typed_mesh, rows_of_x, whole_w, whole_v>;
  static_assert(typed_again::flops_per_device > typed_kept::flops_per_device);
  array<float> x({64, 8}), w({8, 64}), v({64, 8});
  for (int i = 0; i < 512; ++i) {
    x[i] = 0.01F * static_cast<float>(i % 17);
    w[i] = 0.1F * static_cast<float>(i % 5) - 0.2F;
    v[i] = 0.05F * static_cast<float>(i % 3);
  }
  const auto [dw, dv] = run<typed_again>(simulated{}, x, w, v);
  const auto [want_dw, want_dv] = run<typed_kept>(simulated{}, x, w, v);
  for (int i = 0; i < 512; ++i) CHECK((dw[i] == want_dw[i] && dv[i] == want_dv[i]));
}
