// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// alone: yes
// A reshard of a program with types converts any layout to any other layout, and so does its gradient.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/strict_program.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/grad.hpp>

using namespace gspmd;

namespace reshard_pairs {

using layouts = std::vector<dynamic::value_states>;

/// Returns all layouts of a tensor of `rank` dims over `axes` axes. Each axis splits a dim, in every order of the axes
/// of that dim, or is a replica, invariant or partial.
layouts all_layouts(int rank, int axes) {
  layouts all{{}};
  all.back().on.resize(static_cast<std::size_t>(axes));
  for (int a = 0; a < axes; ++a) {
    layouts more;
    for (const auto& l : all) {
      for (const state is : {state::replica, state::invariant, state::partial}) {
        more.push_back(l);
        more.back().on[static_cast<std::size_t>(a)] = {is};
      }
      for (int d = 0; d < rank; ++d)
        for (std::size_t at = 0; at <= l.order.size(); ++at) {
          // before or after the other axes of its dim, in every position that gives another order
          if (at < l.order.size() && l.order[at].second != d) continue;
          more.push_back(l);
          more.back().on[static_cast<std::size_t>(a)] = {state::shard, static_cast<std::int8_t>(d), monoid::add};
          more.back().order.insert(more.back().order.begin() + static_cast<std::ptrdiff_t>(at), {a, d});
        }
    }
    all = std::move(more);
  }
  return all;
}

/// Returns the bytes that the automatic mode sends from one layout to another. Neither layout is partial.
std::int64_t sent_by_planner(const std::vector<dynamic::mesh::axis>& axes, const std::vector<std::int64_t>& shape,
                             const dynamic::value_states& from, const dynamic::value_states& to) {
  const auto names = [&](const dynamic::value_states& s) {
    std::vector<std::string> dims(shape.size());
    for (const auto& [axis, dim] : s.order) {
      auto& name = dims[static_cast<std::size_t>(dim)];
      name += (name.empty() ? "" : ",") + axes[static_cast<std::size_t>(axis)].name;
    }
    return dims;
  };
  dynamic::builder b{dynamic::mesh(axes)};
  b.output(b.reshard(b.input(dynamic::input<double>(shape, names(from))), names(to)));
  return b.compile().traffic().bytes;
}

void try_pair(const std::vector<dynamic::mesh::axis>& axes, const std::vector<std::int64_t>& shape,
              const dynamic::value_states& from, const dynamic::value_states& to) {
  dynamic::builder b{dynamic::mesh(axes).with({.checked = true})};
  dynamic::strict_program p(b, "");
  const value x = b.input(dynamic::input<double>(shape));
  p.input(x, from);
  const value y = p.reshard(x, to);
  p.check();
  REQUIRE(p.error_count() == 0);
  REQUIRE(p.states(y).has_value());
  CHECK(p.states(y)->on == to.on);
  std::int64_t written = 0;
  for (const auto& c : p.collectives()) written += c.bytes;
  const auto sums = [](const dynamic::value_states& s) {
    return std::count_if(s.on.begin(), s.on.end(), [](const axis_state& is) { return is.is == state::partial; });
  };
  const auto& mesh = b.mesh().info().shape;
  const detail::sharding begin = from.type(0).layout, end = to.type(0).layout;
  if (sums(from) == 0 && sums(to) == 0) CHECK(written == sent_by_planner(axes, shape, from, to));
  else CHECK(written <= detail::price_of_reshard(mesh, {}, detail::extents_of(shape), begin.planned(), end.planned(), 8).bytes);
  if ((end.partial & ~begin.partial) == 0)
    CHECK(written == detail::price_of_reshard(mesh, {}, detail::extents_of(shape), begin.planned(), end.planned(), 8).bytes);
  b.output(y);
  // the gradient of the sum of y * y is 2 x, if y permits a loss
  const bool has_loss = std::none_of(to.on.begin(), to.on.end(),
                                     [](const axis_state& s) { return s.is == state::replica || s.is == state::partial; });
  if (has_loss) {
    value loss = y * y;
    for (std::size_t d = shape.size(); d-- > 0;) loss = sum(loss, static_cast<int>(d));
    b.output(grad(loss, x));
    p.check();
    REQUIRE(p.error_count() == 0);
  }
  const auto step = p.compile();
  std::vector<double> data;
  std::int64_t elems = 1;
  for (const auto n : shape) elems *= n;
  for (std::int64_t k = 0; k < elems; ++k) data.push_back(static_cast<double>(k % 13) - 5);
  const auto found = step.run(simulated{}, data);
  const double* is = found[0].data<double>();
  CHECK(std::equal(data.begin(), data.end(), is));
  if (has_loss) {
    const double* slope = found[1].data<double>();
    for (std::int64_t k = 0; k < elems; ++k) CHECK(slope[k] == 2 * data[static_cast<std::size_t>(k)]);
    return;
  }
  CHECK(step.traffic().bytes == written);
}

/// Tries every pair, or one in `one_in`. Returns the number of pairs tried.
int try_all(const std::vector<dynamic::mesh::axis>& axes, const std::vector<std::int64_t>& shape, int one_in,
            std::mt19937& random) {
  const auto all = all_layouts(static_cast<int>(shape.size()), static_cast<int>(axes.size()));
  int count = 0;
  for (const auto& from : all)
    for (const auto& to : all) {
      if (one_in > 1 && random() % static_cast<unsigned>(one_in) != 0) continue;
      CAPTURE(count);
      try_pair(axes, shape, from, to);
      ++count;
    }
  return count;
}

TEST_CASE("a reshard of a program with types goes from any layout to any other one") {
  std::mt19937 random(3);
  SUBCASE("of two axes, every pair") { CHECK(try_all({{"x", 2}, {"y", 4}}, {8, 8}, 1, random) > 400); }
  SUBCASE("of uneven parts, of more devices than elements, and over an axis of one") {
    CHECK(try_all({{"x", 2}, {"y", 3}}, {5, 7}, 3, random) > 100);
    CHECK(try_all({{"x", 2}, {"y", 3}}, {3, 2}, 3, random) > 100);
    CHECK(try_all({{"x", 1}, {"y", 3}}, {4, 6}, 3, random) > 100);
  }
  SUBCASE("of three axes, some pairs") {
    CHECK(try_all({{"x", 2}, {"y", 2}, {"z", 3}}, {12, 12, 12}, 200, random) > 100);
    CHECK(try_all({{"x", 2}, {"y", 2}, {"z", 3}}, {5, 3, 7}, 200, random) > 100);
  }
}

TEST_CASE("a written reshard to other dims is one exchange, and so is its gradient") {
  const axis_state rows{state::shard, 0}, columns{state::shard, 1};
  for (const std::int64_t n : {4, 8}) {
    const std::vector<dynamic::mesh::axis> axes{{"x", n}, {"y", n}};
    dynamic::builder b{dynamic::mesh(axes)};
    dynamic::strict_program p(b, "");
    const value a = b.input(dynamic::input<float>({1024, 1024}));
    p.input(a, {{rows, columns}, {{0, 0}, {1, 1}}});
    const value y = p.reshard(a, {{columns, columns}, {{0, 1}, {1, 1}}});
    p.check();
    const std::int64_t shard = 4 * 1024 * 1024 / (n * n);
    for (const auto& sent : {p.collectives(), p.backward_collectives(y)}) {
      REQUIRE(sent.size() == 1);
      CHECK(sent[0].kind == "all_to_all");
      CHECK(sent[0].axes == "x,y");
      CHECK(sent[0].bytes == shard);
    }
    b.output(y);
    CHECK(p.compile().traffic().bytes == shard);
  }
}

TEST_CASE("a program that gives its input is one, at run time too") {
  for (const bool is_checked : {false, true}) {
    const dynamic::mesh m({{"x", 2}, {"y", 2}});
    dynamic::builder b{is_checked ? m.with({.checked = true}) : m};
    b.output(b.input(dynamic::input<double>({3}, {"x"})));
    const std::vector<double> data{1, 2, 3};
    const auto step = b.compile();
    REQUIRE(step.view().outputs.size() == 1);
    const auto found = step.run(simulated{}, data);
    CHECK(std::equal(data.begin(), data.end(), found[0].data<double>()));
  }
}

}  // namespace reshard_pairs
