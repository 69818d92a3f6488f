// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive
// group: random
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>

#include "gspmd/ops.hpp"
#include "support/gradients.hpp"
#include "support/naive_convolution.hpp"
#include "support/random_split.hpp"
#include "support/run_random.hpp"
#include "support/traced.hpp"

// Convolutions of any rank, layout and window, split anyhow, their gradients and the gradients of these, against loops over StableHLO's
// definition. The numbers are small and whole, so that all sums are exact.

namespace {

using namespace gspmd;
using reference::convolution_case;
using reference::draws;
using reference::host_array;
using reference::traced;

bool chance(draws& r, std::int64_t percent) { return r.below(100) < percent; }
std::string shuffled(draws& r, std::string s) {
  for (std::size_t i = s.size(); i > 1; --i) std::swap(s[i - 1], s[static_cast<std::size_t>(r.below(static_cast<std::int64_t>(i)))]);
  return s;
}

convolution_case draw_case(draws& r) {
  for (;;) {
    convolution_case c;
    const auto rank = 1 + r.below(3);
    const auto names = shuffled(r, "DHWXY").substr(0, static_cast<std::size_t>(rank));
    c.lhs = shuffled(r, "NC" + names);
    c.rhs = shuffled(r, "IO" + names);
    c.result = shuffled(r, "NC" + names);
    if (chance(r, 50)) {
      c.lhs = c.result = "N" + names + "C";
      c.rhs = names + "IO";
    }
    for (const char l : c.result)
      if (l != 'N' && l != 'C') c.spatial += l;
    if (chance(r, 25)) c.feature_groups = 2 + r.below(3);
    else if (chance(r, 25)) c.batch_groups = 2 + r.below(2);
    c.batch = (chance(r, 4) ? 0 : 1 + r.below(3)) * c.batch_groups;
    c.in_features = (chance(r, 3) ? 0 : 1 + r.below(3)) * c.feature_groups;
    c.out_features = (1 + r.below(3)) * c.feature_groups * c.batch_groups;
    const auto most = rank == 1 ? 13 : rank == 2 ? 7 : 4;
    bool fits = true;
    for (std::size_t s = 0; s < static_cast<std::size_t>(rank); ++s) {
      const auto plain = chance(r, 40);
      c.extent.push_back(chance(r, 3) ? 0 : 1 + r.below(most));
      c.window.push_back(1 + r.below(rank == 3 ? 3 : 4));
      c.stride.push_back(plain ? 1 : 1 + r.below(3));
      c.low.push_back(plain ? r.below(2) : r.below(6) - 2);
      c.high.push_back(plain ? r.below(2) : r.below(6) - 2);
      c.lhs_dilation.push_back(plain ? 1 : 1 + r.below(3));
      c.rhs_dilation.push_back(plain ? 1 : 1 + r.below(3));
      c.reverse.push_back(chance(r, 25) ? 1 : 0);
      fits = fits && c.output(s) >= 0;
    }
    if (fits) return c;
  }
}

convolution_options options_of(const convolution_case& c) {
  return {.stride = c.stride,
          .low = c.low,
          .high = c.high,
          .lhs_dilation = c.lhs_dilation,
          .rhs_dilation = c.rhs_dilation,
          .reverse = c.reverse,
          .feature_group_count = c.feature_groups,
          .batch_group_count = c.batch_groups};
}

host_array draw_array(draws& r, dtype type, const std::vector<std::int64_t>& shape) {
  host_array x(type, shape);
  for (auto& e : x.reals) e = static_cast<double>(r.below(7) - 3);
  for (auto& e : x.ints) e = r.below(7) - 3;
  return x;
}

void annotate(draws& r, traced& program, value x) {
  auto& n = program.g.nodes[static_cast<std::size_t>(x.id())];
  n.annotated = true;
  n.annotation = {};
  for (int a = 0; a < program.mesh.shape.axis_count(); ++a) {
    const auto d = r.below(static_cast<std::int64_t>(x.rank()) + 1);
    if (d < x.rank()) n.annotation.splits.push_back({static_cast<std::int8_t>(a), static_cast<std::int8_t>(d)});
  }
  std::stable_sort(n.annotation.splits.begin(), n.annotation.splits.end(), [](auto a, auto b) { return a.dim < b.dim; });
}

/// What is wrong with a random convolution; empty if nothing is.
std::string check(std::uint64_t seed, bool& sends) {
  draws r{std::mt19937_64(seed)};
  const auto c = draw_case(r);
  const std::vector<std::vector<int>> meshes = {{1}, {2}, {3}, {4}, {5}, {8}, {2, 2}, {3, 2}, {2, 4}, {2, 2, 2}};
  const auto& mesh = meshes[static_cast<std::size_t>(r.below(static_cast<std::int64_t>(meshes.size())))];
  const dtype types[] = {dtype::f64, dtype::f32, dtype::s32, dtype::s64};
  const auto type = types[r.below(6) < 4 ? r.below(2) : 2 + r.below(2)];
  traced program(mesh);
  const host_array arrays[] = {draw_array(r, type, c.lhs_shape()), draw_array(r, type, c.rhs_shape()),
                               draw_array(r, type, c.result_shape()), draw_array(r, type, c.lhs_shape()),
                               draw_array(r, type, c.rhs_shape())};
  std::vector<value> in;
  for (const auto& a : arrays) in.push_back(program.input(a));
  const auto &x = in[0], &w = in[1], &dy = in[2], &v = in[3], &u = in[4];
  const value y = convolution(x, w, c.layout(), options_of(c));
  if (program.g.failed()) return std::string(program.g.error.view());

  std::vector<value> outputs{y};
  std::vector<host_array> wanted{host_array(type, c.result_shape())};
  const auto sum = [](host_array& to, std::size_t i, const host_array& a, std::size_t k, const host_array& b, std::size_t l) {
    if (to.floating()) to.reals[i] += a.reals[k] * b.reals[l];
    else to.ints[i] += a.ints[k] * b.ints[l];
  };
  const auto level = detail::is_floating(type) ? r.below(3) : 0;  // 0: y alone; 1: its gradients; 2: the gradients of these
  if (level > 0) {
    const auto first = reference::gradients_of(gspmd::sum(y * dy), {x, w});
    outputs.insert(outputs.end(), first.begin(), first.end());
    wanted.emplace_back(type, c.lhs_shape());
    wanted.emplace_back(type, c.rhs_shape());
    if (level > 1) {
      const auto second = reference::gradients_of(gspmd::sum(first[0] * v) + gspmd::sum(first[1] * u), {x, w, dy});
      outputs.insert(outputs.end(), second.begin(), second.end());
      wanted.emplace_back(type, c.lhs_shape());
      wanted.emplace_back(type, c.rhs_shape());
      wanted.emplace_back(type, c.result_shape());
    }
  }
  if (program.g.failed()) return std::string(program.g.error.view());
  c.for_each_product([&](std::size_t i, std::size_t k, std::size_t o) {
    sum(wanted[0], o, arrays[0], i, arrays[1], k);
    if (level < 1) return;
    sum(wanted[1], i, arrays[2], o, arrays[1], k);
    sum(wanted[2], k, arrays[2], o, arrays[0], i);
    if (level < 2) return;
    sum(wanted[3], i, arrays[2], o, arrays[4], k);
    sum(wanted[4], k, arrays[2], o, arrays[3], i);
    sum(wanted[5], o, arrays[3], i, arrays[1], k);
    sum(wanted[5], o, arrays[0], i, arrays[4], k);
  });
  for (const auto& t : outputs) {
    if (chance(r, 40)) annotate(r, program, t);
    program.output(t);
  }
  for (const auto& t : in)
    if (chance(r, 60)) annotate(r, program, t);
  program.g.allow_replication = chance(r, 30);
  const reference::partitioned_run run(program);
  sends = run.collectives > 0;
  std::string wrong = run.wrong;
  for (std::size_t k = 0; k < outputs.size() && wrong.empty(); ++k) {
    wrong = reference::difference(run.outputs[k], wanted[k], 0);
    if (!wrong.empty()) wrong = "output " + std::to_string(k) + ": " + wrong;
  }
  if (wrong.empty()) return {};
  wrong = "seed " + std::to_string(seed) + ", " + c.text() + ": " + wrong + "; mesh";
  for (const auto n : mesh) wrong += ' ' + std::to_string(n);
  return wrong;
}

}  // namespace

TEST_CASE("random convolutions, their gradients and the gradients of these equal the definition") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::setting("GSPMD_PROGRAMS", 3000);
  std::uint64_t sending = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    bool sends = false;
    const auto wrong = check(seed, sends);
    if (!wrong.empty()) FAIL_CHECK(wrong);
    sending += sends ? 1 : 0;
  }
  std::printf("random convolutions: %llu of %llu send\n", static_cast<unsigned long long>(sending),
              static_cast<unsigned long long>(count));
  CHECK(sending > count / 3);
}
