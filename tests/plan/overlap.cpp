// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Collectives that the planner starts early: their positions, all other properties unchanged, and the same plan on both
// paths. Random programs are in random_programs.cpp, and over MPI.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/nn/pipeline.hpp>
#include <gspmd/plan/network.hpp>
#include <gspmd/plan/overlap.hpp>

#include "support/equal_plans.hpp"

namespace overlapped_programs {

using namespace gspmd;
using pod = mesh<axis<"data", 4>>;
constexpr auto train = [](auto x, auto w1, auto w2, auto w3) {
  const auto h1 = relu(einsum<"bd,df->bf">(x, w1));
  const auto h2 = relu(einsum<"bd,df->bf">(h1, w2));
  const auto y = einsum<"bd,df->bf">(h2, w3);
  const auto [g1, g2, g3] = grad(0.5 * sum(y * y), std::tuple{w1, w2, w3});
  return std::tuple{w1 - 0.00001 * g1, w2 - 0.00001 * g2, w3 - 0.00001 * g3};
};
// Weights are split over the devices that split the batch; the last device has 126 of 510 rows.
using weight = input<float, shape<64, 64>, split<"data", _>>;
template <options Options = options{}>
using step_with = compile<train, pod, with<Options>, input<float, shape<510, 64>, split<"data", _>>, weight, weight, weight>;
using plain = step_with<>;
using hiding = step_with<options{.overlap = true}>;

/// The numbers of the steps that start collectives, of the steps that finish them, and of products.
struct places {
  std::vector<int> started, finished, products;

  explicit constexpr places(const detail::plan_view& p) {
    using namespace detail;
    for (int i = 0; i < static_cast<int>(p.steps.size()); ++i) {
      const auto& s = p.steps[static_cast<std::size_t>(i)];
      if (is<kernels::start_move>(s) || is<kernels::start_combine>(s)) started.push_back(i);
      if (is<kernels::finish_move>(s) || is<kernels::finish_combine>(s)) finished.push_back(i);
      if (!communicates(s) && facts_of(s).role == step_role::plain && facts_of(s).work == step_work::computes)
        products.push_back(i);
    }
  }
};

static_assert(plain::collectives == hiding::collectives && plain::traffic.bytes == hiding::traffic.bytes);
static_assert(places(plain::view).started.empty());
// All collectives except the first gather, which has nothing to overlap with, and the last reduction.
static_assert(places(hiding::view).started.size() == places(hiding::view).finished.size());
static_assert(places(hiding::view).started.size() >= 4);
static_assert(hiding::peak_bytes_per_device >= plain::peak_bytes_per_device);

template <class Step>
std::vector<float> trained(const auto& backend) {
  array<float> x({510, 64});
  array<float> w[3] = {array<float>({64, 64}), array<float>({64, 64}), array<float>({64, 64})};
  unsigned seed = 7;
  const auto fill = [&](array<float>& a) {
    for (auto& e : a) e = static_cast<float>((seed = seed * 1664525U + 1013904223U) >> 16) / 65536.0F - 0.5F;
  };
  fill(x);
  for (auto& each : w) fill(each);
  std::vector<float> all;
  for (int round = 0; round < 3; ++round) {
    auto [a, b, c] = run<Step>(backend, x, w[0], w[1], w[2]);
    w[0] = a, w[1] = b, w[2] = c;
  }
  for (const auto& each : w) all.insert(all.end(), each.begin(), each.end());
  return all;
}

}  // namespace overlapped_programs

TEST_CASE("overlapped: what is computed stays what it is, to the bit, on every backend") {
  using namespace overlapped_programs;
  const auto expected = trained<plain>(simulated{});
  CHECK(trained<hiding>(simulated{}) == expected);
  CHECK(trained<hiding>(threads{}) == expected);
  CHECK(std::any_of(expected.begin(), expected.end(), [&](float e) { return e != expected.front(); }));
}

TEST_CASE("overlapped: the same plan on both paths, and no earlier than the time on the network asks for") {
  using namespace overlapped_programs;
  const auto planned_on = [](const dynamic::mesh& m, std::int64_t width) {
    const auto w = dynamic::input<float>({width, width}, {"data", ""});
    return dynamic::compile([](value x, value a, value b, value c) { return train(x, a, b, c); }, m,
                            dynamic::input<float>({510 * width / 64, width}, {"data", ""}), w, w, w);
  };
  const dynamic::mesh m({{"data", 4}});
  const auto program = planned_on(m.with({.overlap = true}), 64);
  CHECK(reference::difference(program.view(), hiding::view) == "");
  // The second weight is gathered during the first product if the network is faster than the product. If the gather
  // takes longer than all products together, all weights are gathered first.
  const auto before_first_product = [&](double bytes_per_second) {
    const network net(1e9, bytes_per_second, 0);
    const auto p = planned_on(m.with({.network = net, .overlap = true}), 240);
    const places at(p.view());
    return std::count_if(at.started.begin(), at.started.end(), [&](int i) { return i < at.products.front(); });
  };
  CHECK(before_first_product(1e12) == 0);
  CHECK(before_first_product(1e3) == 2);
}

TEST_CASE("overlapped: rows that are gone through together hide a collective, and stay together") {
  using namespace overlapped_programs;
  // Scores of 4,000 rows, then a softmax and a norm, during which the next weight is gathered.
  const auto block = [](value x, value w1, value w2) {
    const value h = einsum<"bd,df->bf">(x, w1), y = softmax(h, 1) * (h - broadcast_in_dim(mean(h, 1), {16000, 64}, {0}));
    return einsum<"bf,fd->bd">(y, w2);
  };
  const auto planned_on = [&](const dynamic::mesh& m) {
    const auto w = dynamic::input<double>({64, 64}, {"data", ""});
    return dynamic::compile(block, m, dynamic::input<double>({16000, 64}, {"data", ""}), w, w);
  };
  const dynamic::mesh m({{"data", 4}});
  const network net(1e12, 1e8, 0);
  const auto plain = planned_on(m), hiding = planned_on(m.with({.network = net, .overlap = true}));
  int rows = 0, inside = 0;
  for (const auto& s : hiding.view().steps) rows += detail::goes_by_rows(s) ? 1 : 0;
  const places at(hiding.view());
  for (std::size_t k = 0; k < at.started.size(); ++k)
    for (int i = at.started[k]; i < at.finished[k]; ++i)
      inside += detail::goes_by_rows(hiding.view().steps[static_cast<std::size_t>(i)]) ? 1 : 0;
  CHECK(rows >= 1);
  CHECK(inside >= 1);
  std::vector<double> x(16000 * 64), w1(64 * 64), w2(64 * 64);
  unsigned seed = 3;
  for (auto* all : {&x, &w1, &w2})
    for (auto& e : *all) e = static_cast<double>((seed = seed * 1664525U + 1013904223U) >> 16) / 65536.0 - 0.5;
  const std::vector<const void*> given{x.data(), w1.data(), w2.data()};
  const auto expected = plain.run(simulated{}, given);
  CHECK(hiding.run(simulated{}, given)[0].bytes == expected[0].bytes);
  CHECK(hiding.run(threads{}, given)[0].bytes == expected[0].bytes);
}

TEST_CASE("overlapped: what a stage of a pipeline sends is under way beside the work of its tick") {
  using namespace overlapped_programs;
  const auto layer = [](value w, value x) { return tanh(einsum<"bd,df->bf">(x, w)); };
  const auto train_stages = [&](value w, value xs) {
    const value y = pipeline<"stage">(layer, gpipe{.stages = 4, .microbatches = 6})(w, xs);
    const value loss = mean(y * y);
    return std::tuple{loss, w - 0.5 * grad(loss, w)};
  };
  const auto planned_on = [&](const dynamic::mesh& m) {
    return dynamic::compile(train_stages, m, dynamic::input<double>({4, 32, 32}, {"stage", "", ""}),
                            dynamic::input<double>({6, 5, 32}));
  };
  const dynamic::mesh m({{"stage", 4}});
  const auto plain = planned_on(m), hiding = planned_on(m.with({.overlap = true}));
  CHECK(plain.traffic().bytes == hiding.traffic().bytes);
  const places at(hiding.view());
  // In the forward pass, during the copies that the backward pass needs. In the backward pass, during the recomputed
  // product.
  int started = 0, beside_products = 0;
  for (std::size_t k = 0; k < at.started.size(); ++k) {
    const auto begin = at.started[k], end = at.finished[k];
    if (hiding.view().steps[static_cast<std::size_t>(begin)].collective != collective_kind::collective_permute) continue;
    ++started;
    for (int i = begin; i < end; ++i)
      if (detail::is<detail::kernels::contract>(hiding.view().steps[static_cast<std::size_t>(i)])) ++beside_products;
  }
  CHECK(started == 2);
  CHECK(beside_products == 1);
  std::vector<double> w(4 * 32 * 32), x(6 * 5 * 32);
  unsigned seed = 5;
  for (auto* all : {&w, &x})
    for (auto& e : *all) e = static_cast<double>((seed = seed * 1664525U + 1013904223U) >> 16) / 65536.0 - 0.5;
  const std::vector<const void*> given{w.data(), x.data()};
  const auto expected = plain.run(simulated{}, given);
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
    CHECK(hiding.run(simulated{}, given)[k].bytes == expected[k].bytes);
    CHECK(hiding.run(threads{}, given)[k].bytes == expected[k].bytes);
  }
}

TEST_CASE("overlapped: margins as wide as a shard are each under way beside a product, and joined where there is none") {
  using namespace overlapped_programs;
  const auto beside = [](value u, value v, value w) {
    return shift(u, 16, along(0)) + shift(v, 16, along(0)) + einsum<"ab,bc->ac">(u, w);
  };
  const auto alone = [](value u, value v, value w) { return shift(u, 16, along(0)) + shift(v, 16, along(0)) + w; };
  const auto planned_on = [](auto f, const dynamic::mesh& m) {
    const auto rows = dynamic::input<float>({64, 64}, {"data", ""});
    return dynamic::compile(f, m, rows, rows, dynamic::input<float>({64, 64}));
  };
  const dynamic::mesh m({{"data", 4}});
  const auto plain = planned_on(beside, m), hiding = planned_on(beside, m.with({.overlap = true}));
  CHECK(places(hiding.view()).started.size() == 2);
  CHECK(planned_on(alone, m.with({.overlap = true})).traffic().collectives == 1);
  CHECK(plain.traffic().bytes == hiding.traffic().bytes);
  std::vector<float> u(64 * 64), v(64 * 64), w(64 * 64);
  unsigned seed = 5;
  for (auto* all : {&u, &v, &w})
    for (auto& e : *all) e = static_cast<float>((seed = seed * 1664525U + 1013904223U) >> 16) / 65536.0F - 0.5F;
  const std::vector<const void*> given{u.data(), v.data(), w.data()};
  CHECK(hiding.run(threads{}, given)[0].bytes == plain.run(simulated{}, given)[0].bytes);
}
