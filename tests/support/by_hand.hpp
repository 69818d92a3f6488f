// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/grad.hpp>

/// Hand-written layers, compared with layers in the automatic mode.
namespace written_by_hand {

using namespace gspmd;

inline std::vector<double> some(const dynamic::input_spec& in, int seed) {
  std::int64_t n = 1;
  for (const auto e : in.shape) n *= e;
  std::vector<double> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>((static_cast<int>(i) * 37 + seed * 11) % 17 - 8) / 8;
  return v;
}
using layer = std::function<value(const std::vector<value>&)>;
/// Returns a program with the layer and the gradients of the sum of squares of its result.
inline dynamic::program with_gradients(const layer& f, const dynamic::mesh& m, const std::vector<dynamic::input_spec>& inputs,
                                       bool may_replicate = false) {
  dynamic::builder b(m);
  if (may_replicate) b.allow_replication();
  std::vector<value> in;
  for (const auto& i : inputs) in.push_back(b.input(i));
  const value y = f(in);
  const value flat = reshape(y, {-1});
  std::vector<value> g = grad(einsum("a,a->", flat, flat), in);
  for (std::size_t k = 0; k < g.size(); ++k) {
    if (inputs[k].annotated) g[k] = b.reshard(g[k], inputs[k].sharding);
    b.output(g[k]);
  }
  b.output(y);
  return b.compile();
}
inline std::vector<dynamic::any_array> results_of(const dynamic::program& p, const std::vector<dynamic::input_spec>& inputs,
                                                  bool in_threads) {
  std::vector<std::vector<double>> data;
  for (const auto& in : inputs) data.push_back(some(in, static_cast<int>(data.size())));
  const auto run = [&](auto on) { return data.size() == 3 ? p.run(on, data[0], data[1], data[2]) : p.run(on, data[0], data[1]); };
  return in_threads ? run(threads{}) : run(simulated{});
}
/// Checks that `a` has the same results as `b`, on simulated devices and on threads.
inline void check_same(const dynamic::program& a, const dynamic::program& b, const std::vector<dynamic::input_spec>& inputs) {
  const auto expected = results_of(b, inputs, false);
  for (const bool in_threads : {false, true}) {
    const auto result = results_of(a, inputs, in_threads);
    REQUIRE(result.size() == expected.size());
    for (std::size_t k = 0; k < result.size(); ++k) {
      REQUIRE(result[k].shape == expected[k].shape);
      for (std::size_t i = 0; i < result[k].bytes.size() / sizeof(double); ++i)
        CHECK(result[k].data<double>()[i] == doctest::Approx(expected[k].data<double>()[i]).epsilon(1e-9));
    }
  }
}
/// Checks that both layers have the same values and gradients. Returns both programs.
inline std::pair<dynamic::program, dynamic::program> same_results(const layer& by_hand, const layer& automatic,
                                                                  const dynamic::mesh& m,
                                                                  const std::vector<dynamic::input_spec>& inputs) {
  const auto a = with_gradients(by_hand, m.with({.checked = true}), inputs), b = with_gradients(automatic, m, inputs);
  check_same(a, b, inputs);
  return {a, b};
}

}  // namespace written_by_hand
