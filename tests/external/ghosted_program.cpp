// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Programs planned at run time on the caller's blocks with ghost layers, compared with sums computed by the test.
#include "gspmd/external/ghosted_program.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/dynamic/session.hpp"
#include "gspmd/gspmd.hpp"
#include "support/error_of.hpp"
#include "support/ghosted_blocks.hpp"

using namespace gspmd;

namespace {

using caught::contains;
using caught::refusal;
using ghosted::block_of;
using ghosted::number;

using sides = std::vector<layers>;
constexpr double outside = 4;

/// y = the sum of factors times u at offsets, plus 2 k; and the sums of 3 k along its last dim. Everything is random.
struct drawn_stencil {
  struct point {
    int factor;
    std::vector<int> offset;
  };
  std::vector<std::int64_t> shape;
  std::vector<int> beyond;  // by dim: zero, edge, reflect, symmetric, wrap, constant
  std::vector<point> points;
  sides around_u, around_k, around_y;
  std::vector<std::string> split;
  bool y_is_given;

  static drawn_stencil draw(std::mt19937& random, const std::vector<std::string>& axes) {
    const auto pick = [&](int least, int most) {
      return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
    };
    drawn_stencil s;
    const int rank = pick(1, 3);
    const bool has_zeros = pick(0, 1) == 0;  // either zeros or the constant in all dims, so that corners are unique
    for (int d = 0; d < rank; ++d) {
      s.shape.push_back(pick(0, 4) == 0 ? pick(1, 2) : pick(3, 9));
      const int b = pick(0, 5);
      s.beyond.push_back(b == 0 || b == 5 ? (has_zeros ? 0 : 5) : b);
    }
    s.split.resize(static_cast<std::size_t>(rank));
    for (const auto& axis : axes) {
      auto& dim = s.split[static_cast<std::size_t>(pick(0, rank - 1))];
      if (pick(0, 5) > 0) dim += (dim.empty() ? "" : ",") + axis;
    }
    for (int p = pick(1, 5); p > 0; --p) {
      s.points.push_back({pick(1, 9), {}});
      for (int d = 0; d < rank; ++d) {
        const auto extent = static_cast<int>(s.shape[static_cast<std::size_t>(d)]);
        const int beyond_of = s.beyond[static_cast<std::size_t>(d)];
        int by = pick(-3, 3);
        // Mirrors have at most the elements of the tensor, and a periodic dim of extent 1 repeats its element.
        if (by >= extent || -by >= extent) by = beyond_of == 0 || beyond_of == 5 || beyond_of == 1 ? by : 0;
        s.points.back().offset.push_back(by);
      }
    }
    for (int d = 0; d < rank; ++d) {
      int low = 0, high = 0;
      for (const auto& p : s.points) {
        low = std::max(low, -p.offset[static_cast<std::size_t>(d)]);
        high = std::max(high, p.offset[static_cast<std::size_t>(d)]);
      }
      const int beyond_of = s.beyond[static_cast<std::size_t>(d)];
      if (beyond_of == 2 || beyond_of == 3) low = high = std::max(low, high) + 1;  // mirrors on a short part
      s.around_u.push_back({low + pick(0, 1), high + pick(0, 1)});
      s.around_k.push_back({pick(0, 1), pick(0, 2)});
      s.around_y.push_back({pick(0, 2), pick(0, 1)});
    }
    if (pick(0, 2) == 0) s.around_k.clear();
    s.y_is_given = pick(0, 2) > 0;
    if (!s.y_is_given) s.around_y.clear();
    return s;
  }

  [[nodiscard]] dynamic::builder build(const dynamic::mesh& m) const {
    dynamic::builder b(m);
    const auto u = b.input(dynamic::input<double>(shape, split)), k = b.input(dynamic::input<double>(shape, split));
    value sum = 2.0 * k;
    for (const auto& p : points) {
      value at = u;
      for (std::size_t d = 0; d < shape.size(); ++d)
        if (p.offset[d] != 0) at = shift(at, p.offset[d], along(d), boundary_of(beyond[d]));
      sum = sum + static_cast<double>(p.factor) * at;
    }
    b.output(sum);
    b.output(gspmd::sum(3.0 * k, static_cast<int>(shape.size()) - 1));
    return b;
  }
  static boundary boundary_of(int beyond) {
    switch (beyond) {
      case 1: return boundary::edge();
      case 2: return boundary::reflect();
      case 3: return boundary::symmetric();
      case 4: return boundary::wrap();
      case 5: return boundary::constant(outside);
      default: return boundary::zero();
    }
  }
  /// Returns element `i` of y, computed from the whole arrays.
  [[nodiscard]] double at(std::int64_t i) const {
    double sum = 2 * number<double>(i + 5);
    for (const auto& p : points) {
      std::int64_t left = i, from = 0, stride = 1;
      double beyond_all = -1;  // the constant that replaces the element
      for (std::size_t d = shape.size(); d-- > 0; left /= shape[d], stride *= shape[d]) {
        const auto n = shape[d];
        auto k = left % n + p.offset[d];
        if (k < 0 || k >= n) switch (beyond[d]) {
            case 1: k = k < 0 ? 0 : n - 1; break;
            case 2: k = k < 0 ? -k : 2 * (n - 1) - k; break;
            case 3: k = k < 0 ? -k - 1 : 2 * n - 1 - k; break;
            case 4: k = (k % n + n) % n; break;
            default: beyond_all = beyond[d] == 0 ? 0 : outside, k = 0;
          }
        from += k * stride;
      }
      sum += p.factor * (beyond_all < 0 ? number<double>(from) : beyond_all);
    }
    return sum;
  }
};

/// Runs the program on blocks whose layers it fills, and then on the same blocks with valid layers. Returns true if y
/// is written in place.
bool check_drawn(const drawn_stencil& s, const dynamic::mesh& m) {
  const auto written = s.build(m);
  const ghosted_program program(written, {ghost_widths(s.around_u), ghost_widths(s.around_k), ghost_widths(s.around_y)});
  const bool is_short = std::count(s.shape.begin(), s.shape.end(), 1) > 0;  // then the planner may move it first
  CHECK((program.is_in_place(0) || is_short));
  CHECK((program.is_in_place(1) == !s.around_k.empty() || is_short));
  const auto& plan = program.program().view();
  const auto &u_is = plan.value(plan.inputs[0]), &y_is = plan.value(plan.outputs[0]), &sums_is = plan.value(plan.outputs[1]);
  const auto& listed = program.facts().listed;
  launch(threads{}, static_cast<int>(m.device_count()), [&](auto& comm) {
    const int me = comm.device(0);
    block_of<double> u(*plan.mesh, u_is, listed[0], me, 77), k(*plan.mesh, u_is, listed[1], me, 88);
    block_of<double> y(*plan.mesh, y_is, listed[2], me, 55), sums(*plan.mesh, sums_is, {}, me, 66);
    const auto y_before = y.memory, k_before = [&] {
      k.each(u_is.global, [](double& element, std::int64_t i) { element = number<double>(i + 5); });
      return k.memory;
    }();
    u.each(u_is.global, [](double& element, std::int64_t i) { element = number<double>(i); });
    dynamic::session session(program);
    bool is_right = true;
    const auto row = s.shape.back();
    const auto look = [&] {
      y.each(y_is.global, [&](double& element, std::int64_t i) {
        is_right = is_right && element == s.at(i);
        element = 55;
      });
      sums.each(sums_is.global, [&](double& element, std::int64_t i) {
        double sum = 0;
        for (std::int64_t j = 0; j < row; ++j) sum += 3 * number<double>(i * row + j + 5);
        is_right = is_right && element == sum;
        element = 66;
      });
    };
    const auto run = [&](const auto& of_u) {
      if (s.around_k.empty() || program.is_in_place(1)) session(comm, of_u, k.view(), y.view(), sums.view());
      else session(comm, of_u, exchange_ghosts(k.view()), y.view(), sums.view());
      look();
    };
    const auto u_before = u.memory;
    run(exchange_ghosts(u.view()));
    if (program.is_in_place(0)) run(u.view());
    else {
      CHECK(u.memory == u_before);  // layers that nothing reads are not filled
      CHECK(contains(refusal([&] { run(u.view()); }), "input 0 has a dim of one element and is moved before it is read"));
      run(exchange_ghosts(u.view()));
    }
    CHECK(is_right);
    CHECK(y.memory == y_before);  // neither layers nor gaps are written
    CHECK(k.memory == k_before);
  });
  return program.is_in_place(2);
}

const std::vector<std::vector<dynamic::mesh::axis>> meshes = {{{"x", 1}},           {{"x", 2}},           {{"x", 3}},
                                                              {{"x", 2}, {"y", 2}}, {{"x", 3}, {"y", 2}}, {{"x", 4}}};
std::vector<std::string> names_of(const std::vector<dynamic::mesh::axis>& axes) {
  std::vector<std::string> names;
  for (const auto& a : axes) names.push_back(a.name);
  return names;
}

}  // namespace

TEST_CASE("stencils that are drawn, on drawn meshes, extents, splits, boundaries and layers, are sums by hand") {
  std::mt19937 random(20261128);
  int refused = 0, in_place = 0;
  for (int round = 0; round < 120; ++round) {
    CAPTURE(round);
    const auto& axes = meshes[random() % meshes.size()];
    const auto s = drawn_stencil::draw(random, names_of(axes));
    // If the planner moves a tensor before an operator reads it, layers are useless. The tensor is copied if a dim has
    // one element, otherwise refused.
    if (const auto why = refusal([&] { in_place += check_drawn(s, dynamic::mesh(axes)) ? 1 : 0; }); why != "accepted") {
      ++refused;
      CHECK((contains(why, " as a dense shard") || contains(why, " further along dim ")));
    }
  }
  CHECK(refused < 6);
  CHECK(in_place > 60);
}

TEST_CASE("a builder's callable, fields of which some have layers, and what is asked of a program") {
  constexpr auto flow = [](value u, value k) { return u + 0.5 * k * (shift(u, 1, along(0)) - u); };
  const dynamic::mesh m({{"x", 3}});
  const auto in = dynamic::input<double>({8, 5}, {"x", ""});
  const ghosted_program program(dynamic::build(flow, m, in, in), {{layers{0, 1}, 0}, {}, {1, 1}});
  CHECK(program.is_in_place(0));
  CHECK(!program.is_in_place(1));
  CHECK(program.is_in_place(2));
  CHECK_EQ(program.traffic().bytes, 0);
  CHECK_EQ(program.bytes_exchanged(0, 1), 5 * 8);
  CHECK_EQ(program.bytes_exchanged(0, 0), 0);
  CHECK(contains(explain(program), "subtract"));
  CHECK(contains(explain(program), "exchange_ghosts(view) of input 0 sends at most 40 bytes more"));
  const auto plain = dynamic::compile(flow, m, in, in);
  std::vector<double> u(40), k(40);
  for (int i = 0; i < 40; ++i) {
    u[static_cast<std::size_t>(i)] = number<double>(i);
    k[static_cast<std::size_t>(i)] = number<double>(i + 5);
  }
  const auto all = plain.run(threads{}, u, k);
  const double* const wanted = all[0].data<double>();
  launch(threads{}, 3, [&](auto& comm) {
    const int me = comm.device(0);
    const auto& plan = program.program().view();
    const auto& is = plan.value(plan.inputs[0]);
    const auto fill_in = [&](block_of<double>& block, const std::vector<double>& from) {
      block.each(is.global, [&](double& element, std::int64_t i) { element = from[static_cast<std::size_t>(i)]; });
    };
    block_of<double> mine(*plan.mesh, is, program.facts().listed[0], me, 0), speed(*plan.mesh, is, {}, me, 0);
    block_of<double> next(*plan.mesh, is, program.facts().listed[2], me, 0);
    fill_in(mine, u);
    fill_in(speed, k);
    dynamic::session s(program);
    bool is_right = true;
    for (int again = 0; again < 2; ++again) {
      s(comm, exchange_ghosts(mine.view()), speed.view(), next.view());
      next.each(is.global, [&](double& element, std::int64_t i) { is_right = is_right && element == wanted[i]; });
    }
    CHECK(is_right);
    CHECK_EQ(s.copied_bytes(), speed.held[0] * 5 * 8);
  });
}

TEST_CASE("of a tensor without elements nothing is read, filled or written, however the plan splits it") {
  constexpr auto around = [](value u) {
    return shift(u, 1, along(0), boundary::wrap()) + shift(u, -1, along(1), boundary::edge()) - sort(u, 1) +
           shift(shift(u, 1, along(0), boundary::wrap()), 1, along(0), boundary::wrap());
  };
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{{0, 4}, {1, 0}, {5, 0}, {0, 0}}) {
    const dynamic::mesh m({{"x", 3}});
    const ghosted_program program(dynamic::build(around, m, dynamic::input<double>(shape, {"x", ""})), {{1, 2}, {1, 2}});
    CHECK(program.is_in_place(0));
    launch(threads{}, 3, [&](auto& comm) {
      const auto mine = program.program().input(0).valid_range(comm.device(0), along(0));
      const std::int64_t rows = mine.end - mine.begin + 2, columns = shape[1] + 4;
      std::vector<double> u(static_cast<std::size_t>(rows * columns), 7.0), next = u;
      const auto before = u;
      dynamic::session s(program);
      const auto view = [&](std::vector<double>& of) { return ghosted_view(of.data(), {rows, columns}); };
      for (int again = 0; again < 2; ++again, std::swap(u, next)) {
        s(comm, exchange_ghosts(view(u)), view(next));
        s(comm, view(u), view(next));
      }
      CHECK(next == before);
      CHECK(u == before);
      CHECK_EQ(s.copied_bytes(), 0);
    });
  }
}

TEST_CASE("what a ghosted_program and its session are not given") {
  constexpr auto two_ends = [](value u) { return shift(u, -1, along(0)) + 2.0 * shift(u, -1, along(0), boundary::edge()); };
  constexpr auto down = [](value u) { return shift(u, -2, along(0)) + u; };
  constexpr auto sorted = [](value u) { return sort(u, 1); };
  const dynamic::mesh m({{"x", 2}});
  const auto in = dynamic::input<double>({8, 3}, {"x", ""});
  const auto written = dynamic::build(down, m, in);
  const auto says = [](const char* text, const dynamic::builder& b, const std::vector<ghost_widths>& widths) {
    CHECK(contains(refusal([&] { ghosted_program{b, widths}; }), text));
  };
  says("ghost layers of 3 leaves are listed and the program has 1 input and 1 output", written, {{2, 0}, {0, 0}, {0, 0}});
  says("input 0 has 2 dims and ghost layers of 1 are listed; give a width, or layers{low, high}, for each dim", written, {{2}});
  says("the ghost layers of leaf 1 have a negative width", written, {{2, 0}, {0, -1}});
  says("reads it -2 further along dim 0; give wider layers, or none to it", written, {{1, 0}});
  const char* const dense =
      " reads it as a dense shard, for no loop over elements computes it (nor a large sum of products); list no layers for it";
  says(dense, dynamic::build(sorted, m, in), {{1, 0}});
  const auto k = dynamic::input<double>({3}, {""});
  const auto product = dynamic::build([](value u, value v) { return einsum("ij,j->i", u, v); }, m, in, k);
  const auto why = refusal([&] { ghosted_program{product, {{1, 0}}}; });
  CHECK((contains(why, "einsum in line ") && contains(why, dense)));
  const auto large = dynamic::input<double>({512, 256}, {"x", ""});
  says(dense, dynamic::build([](value u, value v) { return sum(u * v, 1); }, m, large, large), {{1, 0}});
  const auto twice =
      dynamic::build([](value u) { return shift(shift(u, 1, along(0), boundary::edge()), 1, along(0)) + u; }, m, in);
  says("; list no layers for it, or write one shift", twice, {{2, 2}});
  says("a checked mesh compares dense shards", dynamic::build(down, m.with({.checked = true}), in), {{2, 0}});
  const ghosted_program program(written, {{layers{2, 0}, 0}, {0, 0}});
  CHECK(contains(refusal([&] { static_cast<void>(program.bytes_exchanged(1, 0)); }), "leaf 1 is no input with ghost layers"));
  const char* const ghosted_only = "session: the program is planned for ghost layers; make a session of the ghosted_program";
  CHECK(contains(refusal([&] { dynamic::session{program.program()}; }), ghosted_only));
  CHECK(contains(refusal([&] { static_cast<void>(program.program().run(threads{}, std::vector<double>(24))); }), ghosted_only));
  const ghosted_program differing(dynamic::build(two_ends, m, in), {{1, 0}});
  simulated_communicator both(2);
  std::vector<double> u(6 * 3), y(4 * 3), more(40);
  launch(threads{}, 2, [&](auto& comm) {
    std::vector<double> memory(6 * 3), next(4 * 3);
    const ghosted_view block(memory.data(), {6, 3});
    const strided_view to(next.data(), {4, 3});
    dynamic::session s(program), d(differing);
    const auto refuses = [&](auto& session, const char* text, auto&&... shards) {
      CHECK(contains(refusal([&] { session(comm, shards...); }), text));
    };
    refuses(s, "input 0 with its ghost layers is [6,3] on device", ghosted_view(block.block.part({1, 0}, {5, 3})), to);
    refuses(
        s,
        "; a reshard at the end of the program says how a result is split; the extents of a view include its layers. Pass parts",
        block, to.part({0, 0}, {3, 3}));
    refuses(s, "output 0 is given memory that overlaps input 0", block, block.block.part({2, 0}, {4, 3}));
    refuses(s, "step: the program is planned for ghost layers; pass a ghosted_view", block.block, to);
    refuses(s, "step: the program is planned for ghost layers; pass a ghosted_view", memory.data(), next.data());
    refuses(s, "output 0 has ghost layers or strides; pass a ghosted_view or a strided_view", block, next.data());
    refuses(s, "step: output 0 is given as exchange_ghosts(view), which is for inputs with ghost layers; pass a ghosted_view",
            block, exchange_ghosts(to));
    refuses(s, "and the call gives 1 tensor", block);
    refuses(d, "input 0: its ghost layers cannot be filled: operators of the program go on differently beyond one end",
            exchange_ghosts(strided_view(memory.data(), {6, 3}).part({1, 0}, {6 - 1, 3})), next);
    s(comm, exchange_ghosts(block), to);
    CHECK_EQ(s.copied_bytes(), 0);
  });
  dynamic::session s(program);
  CHECK(contains(refusal([&] { s(both, ghosted_view(u.data(), {6, 3}), strided_view(y.data(), {4, 3})); }), "holds 2 devices"));
}
