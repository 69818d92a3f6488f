// SPDX-License-Identifier: Apache-2.0
// group: dynamic
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/nn/attention.hpp"
#include "gspmd/transform/vmap.hpp"
#include "support/error_of.hpp"
#include "support/gradients.hpp"
#include "support/layouts.hpp"
#include "support/traced.hpp"

// Attention by blocks equals the einsum, softmax and einsum that it replaces, with gradients, for any split of its
// operands.

namespace {

using namespace gspmd;
using reference::host_array;
using reference::traced;
using std::int64_t;

struct setting {
  dtype type = dtype::f64;
  std::vector<int64_t> examples;
  int64_t heads = 1, per_shared = 1, rows = 1, columns = 1, inner = 1, width = 1;
  attention_options options;

  [[nodiscard]] std::vector<int64_t> shape(int64_t h, int64_t r, int64_t e) const {
    std::vector<int64_t> s = examples;
    s.insert(s.end(), {h, r, e});
    return s;
  }
  [[nodiscard]] std::string text() const {
    std::string t = std::string(detail::name_of(type)) + ", examples";
    for (const auto e : examples) t += ' ' + std::to_string(e);
    for (const auto e : {heads, per_shared, rows, columns, inner, width}) t += ", " + std::to_string(e);
    if (options.causal) t += ", causal from " + std::to_string(options.first_row);
    return t;
  }
  [[nodiscard]] std::vector<value> inputs(traced& p) const {
    return {p.input(reference::reals(shape(heads * per_shared, rows, inner), -2, 2, 1, type)),
            p.input(reference::reals(shape(heads, columns, inner), -2, 2, 2, type)),
            p.input(reference::reals(shape(heads, columns, width), -2, 2, 3, type))};
  }
};

/// The same in operators that are tested elsewhere.
value in_operators(const setting& s, const std::vector<value>& x) {
  int64_t n = 1;
  for (const auto e : s.examples) n *= e;
  const value q = reshape(x[0], {n, s.heads, s.per_shared, s.rows, s.inner});
  const value k = reshape(x[1], {n, s.heads, s.columns, s.inner}), v = reshape(x[2], {n, s.heads, s.columns, s.width});
  const double scale = s.options.scale != 0 ? s.options.scale : 1 / std::sqrt(static_cast<double>(s.inner));
  value scores = einsum<"bgrtk,bgsk->bgrts">(q, k) * scale;
  const auto row = iota<int>(scores, scores.shape(), 3) + static_cast<int>(s.options.first_row);
  const auto hidden = row < iota<int>(scores, scores.shape(), 4);
  if (s.options.causal) scores = where(hidden, scores * 0.0 - 1e30, scores);
  value shares = softmax(scores, 4);
  if (s.options.causal) shares = where(hidden, shares * 0.0, shares);
  return reshape(einsum<"bgrts,bgsv->bgrtv">(shares, v), integers(s.shape(s.heads * s.per_shared, s.rows, s.width)));
}

/// Returns the result and, if `has_gradients`, the gradients of a weighted sum of the result.
std::vector<value> outputs(traced& p, value y, const std::vector<value>& x, bool has_gradients) {
  std::vector<value> all{y};
  if (!has_gradients) return all;
  const auto shape = y.shape();
  const value w = p.input(reference::reals({shape.begin(), shape.end()}, -1.3, 1.7, 5, y.type()));
  for (const value g : reference::gradients_of(sum(y * w), x)) all.push_back(g);
  return all;
}

/// Plans and runs on a mesh, with shardings of q, k and v; empty if it is right.
std::string mistake(const setting& s, const std::vector<int>& mesh, const std::vector<detail::sharding>& layouts,
                    bool has_gradients) {
  traced p(mesh), other;
  const auto x = s.inputs(p), y = s.inputs(other);
  for (const value out : outputs(p, attention(x[0], x[1], x[2], s.options), x, has_gradients)) p.output(out);
  const auto wanted = outputs(other, in_operators(s, y), y, has_gradients);
  if (p.g.failed()) return std::string(p.g.error.view());
  for (std::size_t k = 0; k < layouts.size(); ++k) {
    auto& input = p.g.nodes[static_cast<std::size_t>(p.g.inputs[k])];
    input.annotated = true;
    input.annotation = layouts[k];
  }
  const reference::partitioned_run run(p);
  if (!run.wrong.empty()) return run.wrong;
  const auto values = other.evaluate(static_cast<int>(other.g.nodes.size()) - 1);
  for (std::size_t k = 0; k < run.outputs.size(); ++k) {
    const auto& want = values[static_cast<std::size_t>(wanted[k].id())];
    const double tolerance = s.type == dtype::f64 ? 1e-12 : s.type == dtype::f32 ? 2e-4 : 0.3;
    const auto wrong = reference::difference(run.outputs[k], want, tolerance * static_cast<double>(s.rows + 4));
    if (!wrong.empty()) return "output " + std::to_string(k) + ": " + wrong;
  }
  return {};
}

}  // namespace

TEST_CASE("attention of random extents and shardings equals softmax and einsum, with gradients") {
  const std::vector<std::vector<int>> meshes = {{1}, {2}, {3}, {2, 2}, {4}, {2, 3}};
  reference::random_numbers random(29);
  for (int n = 0; n < 150; ++n) {
    setting s;
    s.type = random.chance(70) ? dtype::f64 : random.chance(70) ? dtype::f32 : random.chance(50) ? dtype::bf16 : dtype::f16;
    for (int d = random.between(0, 2); d > 0; --d) s.examples.push_back(random.between(1, 4));
    s.heads = random.between(1, 4);
    s.per_shared = random.chance(60) ? 1 : random.between(2, 4);
    s.rows = random.between(1, 9);
    s.columns = random.between(1, 9);
    s.inner = random.between(1, 5);
    s.width = random.between(1, 5);
    s.options.causal = random.chance(60);
    s.options.first_row = random.chance(50) ? 0 : random.between(-4, 4);
    if (random.chance(30)) s.options.scale = random.chance(50) ? 0.7 : -0.4;
    const auto& mesh = random.one_of(meshes);
    std::vector<detail::sharding> split;
    const auto all = layouts::all_shardings(layouts::mesh_of(mesh), static_cast<int>(s.examples.size()) + 3);
    std::string what = s.text() + ", mesh of " + std::to_string(mesh.size());
    for (int k = 0; k < 3; ++k) {
      split.push_back(random.one_of(all));
      what += ' ' + layouts::text_of(split.back(), static_cast<int>(s.examples.size()) + 3);
    }
    const bool is_narrow = s.type == dtype::bf16 || s.type == dtype::f16;
    const auto wrong = mistake(s, mesh, split, !is_narrow);
    if (!wrong.empty()) FAIL_CHECK(what << ": " << wrong);
  }
}

TEST_CASE("several blocks of rows and columns, whole and cut by the end of the shard and by what rows see") {
  setting s;
  s.inner = 3;
  s.width = 2;
  for (const auto& [rows, columns, first, devices] :
       {std::tuple{140, 260, 0, 1}, std::tuple{66, 258, 200, 2}, std::tuple{70, 20, -66, 2}})
    for (const bool causal : {false, true}) {
      s.rows = rows;
      s.columns = columns;
      s.options = {.causal = causal, .first_row = first};
      detail::sharding by_rows;
      if (devices > 1) by_rows.add_split(0, 1);
      const auto wrong = mistake(s, {devices}, {by_rows}, true);
      if (!wrong.empty()) FAIL_CHECK(s.text() << ", " << devices << " devices: " << wrong);
    }
}

TEST_CASE("large scores neither overflow nor lose what comes after them") {
  const auto planned =
      dynamic::compile([](auto q, auto k, auto v) { return attention(q, k, v, {.scale = 1}); }, dynamic::mesh({{"x", 1}}),
                       dynamic::input<float>({1, 2, 1}), dynamic::input<float>({1, 600, 1}), dynamic::input<float>({1, 600, 1}));
  std::vector<float> q{1, 1000}, k(600, -1e30F), v(600, 5);
  k[0] = 0;
  k[599] = 80;
  v[599] = 2;
  const auto y = planned.run(serial{}, q, k, v);
  CHECK(y[0].data<float>()[0] == doctest::Approx(2));
  CHECK(y[0].data<float>()[1] == doctest::Approx(2));
}

namespace {

constexpr auto causal = [](auto q, auto k, auto v) {
  const auto y = attention(q, k, v, {.causal = true});
  const auto [dq, dk, dv] = grad(sum(y * y), std::tuple{q, k, v});
  return std::tuple{y, dq, dk, dv};
};
template <int64_t Rows>
using causal_step = compile<causal, mesh<axis<"x", 2>>, input<double, shape<2, Rows, 4>, split<_, "x", _>>,
                            input<double, shape<2, Rows, 4>>, input<double, shape<2, Rows, 4>>>;

}  // namespace

// The example of docs/reference/operators.md.
namespace {

constexpr auto attend = [](auto q, auto k, auto v) {
  const auto y = attention(q, k, v, {.causal = true});
  return std::tuple{y, grad(sum(y * y), q)};
};
using by_heads = split<_, "model", _, _>;
using many = input<float, shape<2, 8, 2048, 64>, by_heads>;
using few = input<float, shape<2, 2, 2048, 64>, by_heads>;  // a head of k and v for four of q
using attend_step = compile<attend, mesh<axis<"model", 2>>, many, few, few>;
static_assert(attend_step::traffic.bytes == 0);
static_assert(attend_step::peak_bytes_per_device < 22'000'000);  // one head's scores are 16.8 MB, and a device has 8 heads

}  // namespace

TEST_CASE("the memory is linear in the rows") {
  const auto bytes = [](int64_t rows) {
    const auto in = dynamic::input<float>({1, 4, rows, 64});
    return dynamic::compile(causal, dynamic::mesh({{"x", 1}}), in, in, in).peak_bytes_per_device();
  };
  const auto one = bytes(2048), two = bytes(4096), four = bytes(8192);
  CHECK(four - two == 2 * (two - one));
  CHECK(one < 2048 * 4 * 64 * 4 * 9);  // q, k, v, the result, its gradient, three gradients
}

TEST_CASE("a compiled program gives what one of the run time gives") {
  using step = causal_step<70>;
  std::vector<double> q(2 * 70 * 4), k = q, v = q;
  for (std::size_t i = 0; i < q.size(); ++i) {
    q[i] = static_cast<double>(i * 37 % 101) / 50 - 1;
    k[i] = static_cast<double>(i * 53 % 97) / 50 - 1;
    v[i] = static_cast<double>(i * 29 % 89) / 50 - 1;
  }
  const auto in = dynamic::input<double>({2, 70, 4});
  const auto planned =
      dynamic::compile(causal, dynamic::mesh({{"x", 2}}), dynamic::input<double>({2, 70, 4}, {"", "x", ""}), in, in);
  const auto wanted = planned.run(simulated{}, q, k, v);
  const auto [y, dq, dk, dv] = run<step>(threads{}, q, k, v);
  int wrong = 0;
  for (std::size_t i = 0; i < q.size(); ++i)
    wrong += (y.data()[i] == wanted[0].data<double>()[i]) + (dq.data()[i] == wanted[1].data<double>()[i]) +
                         (dk.data()[i] == wanted[2].data<double>()[i]) + (dv.data()[i] == wanted[3].data<double>()[i]) ==
                     4
                 ? 0
                 : 1;
  CHECK(wrong == 0);
}

TEST_CASE("attention is explained, counted, mapped over examples, and refused where its operands do not fit") {
  const dynamic::mesh mesh({{"x", 2}});
  const auto f = [](auto q, auto k, auto v) { return attention(q, k, v, {.causal = true}); };
  const auto in = [](std::vector<int64_t> shape, std::vector<std::string> split = {}) {
    split.resize(shape.size());
    return dynamic::input<float>(shape, split);
  };
  const auto planned = dynamic::compile(f, mesh, in({4, 6, 3}, {"", "x"}), in({4, 8, 3}), in({4, 8, 5}));
  CHECK(planned.traffic().bytes == 0);
  CHECK(planned.flops_per_device() == 2 * 4 * 3 * 8 * (3 + 5) + 3);
  CHECK(explain(planned).find("attention by blocks of 3 x 8, causal") != std::string::npos);

  // Rows of k that are split: heads are split in their place, and where there is one head alone k would be gathered.
  const auto moved = dynamic::compile(f, mesh, in({4, 6, 3}), in({4, 8, 3}, {"", "x"}), in({4, 8, 5}, {"", "x"}));
  CHECK(moved.traffic().in(collective_kind::all_to_all).bytes == 4 * 8 * (3 + 5) / 2 / 2 * 4);
  const auto gathered = [&](auto g) {
    return caught::error_of([&] {
      static_cast<void>(dynamic::compile(g, mesh, in({1, 6, 3}), in({1, 8, 3}, {"", "x"}), in({1, 8, 5})));
    });
  };
  CHECK(caught::contains(gathered(f),
                         "needs whole rows, and all rows of k and v, so it would gather [1,8,3], which is sharded [_, x, _]"));
  CHECK(caught::contains(gathered([](auto q, auto k, auto v) { return forbid_reshard(attention(q, k, v)); }),
                         "operand 1 is sharded [_, x, _] and the operator needs [_, _, _] (the rows of k and v)"));
  CHECK(gathered([](auto q, auto k, auto v) { return allow_replication(attention(q, k, v)); }) == "no error");

  const auto mapped = [](value q, value k, value v) {
    return vmap<0, not_mapped, 1>([](value a, value b, value c) { return attention(a, b, c, {.causal = true}); })(q, k, v);
  };
  const auto examples = dynamic::compile(mapped, mesh, in({2, 4, 6, 3}, {"x"}), in({4, 8, 3}), in({4, 2, 8, 5}));
  std::vector<float> q(2 * 4 * 6 * 3), k(4 * 8 * 3), v(4 * 2 * 8 * 5);
  for (auto* x : {&q, &k, &v})
    for (std::size_t i = 0; i < x->size(); ++i) (*x)[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  const auto both = examples.run(simulated{}, q, k, v);
  int wrong = 0;
  for (std::size_t e = 0; e < 2; ++e) {
    const std::vector<float> one(q.begin() + static_cast<std::ptrdiff_t>(e * 72),
                                 q.begin() + static_cast<std::ptrdiff_t>(e * 72 + 72));
    std::vector<float> own;
    for (std::size_t h = 0; h < 4; ++h)
      own.insert(own.end(), v.begin() + static_cast<std::ptrdiff_t>((2 * h + e) * 40),
                 v.begin() + static_cast<std::ptrdiff_t>((2 * h + e + 1) * 40));
    const auto y = planned.run(simulated{}, one, k, own);
    for (std::size_t i = 0; i < 120; ++i)
      wrong += std::fabs(y[0].data<float>()[i] - both[0].data<float>()[e * 120 + i]) < 1e-6F ? 0 : 1;
  }
  CHECK(wrong == 0);

  const auto refusal = [&](auto a, auto b, auto c) {
    return caught::error_of([&] { static_cast<void>(dynamic::compile(f, mesh, a, b, c)); });
  };
  CHECK(caught::contains(refusal(in({6, 3}), in({8, 3}), in({8, 5})), "give it [examples..., heads, rows, elements]"));
  CHECK(caught::contains(refusal(in({4, 6, 3}), in({4, 8, 2}), in({4, 8, 5})),
                         "dim 2 of q, k and v, [4,6,3], [4,8,2] and [4,8,5]: rows of q and k have the same length"));
  CHECK(caught::contains(refusal(in({4, 6, 3}), in({3, 8, 3}), in({3, 8, 5})),
                         "k and v have the same number of heads, and q a multiple of that number"));
  CHECK(caught::contains(refusal(in({4, 6, 3}), in({4, 0, 3}), in({4, 0, 5})),
                         "k and v have the same number of rows, at least one"));
  CHECK(caught::contains(refusal(in({2, 4, 6, 3}), in({1, 4, 8, 3}), in({2, 4, 8, 5})), "all three have the same examples"));
  CHECK(caught::contains(refusal(in({4, 6, 3}), in({4, 8, 3}), dynamic::input<double>({4, 8, 5})), "give it floats of one type"));
  CHECK(caught::contains(caught::error_of([&] {
                           static_cast<void>(
                               dynamic::compile([](value many) { return vmap([](value x) { return attention(x, x, x); })(many); },
                                                mesh, in({2, 1, 1, 1, 1, 1, 4, 6, 3})));
                         }),
                         "is in a vmap and would have 9 dims; it takes at most 8"));
  const auto twice = [](auto x) { return grad(sum(grad(sum(attention(x, x, x)), x) * x), x); };
  CHECK(caught::contains(caught::error_of([&] {
                           static_cast<void>(dynamic::compile(twice, mesh, in({4, 6, 3})));
                         }),
                         "has a gradient, and that has none"));
}
