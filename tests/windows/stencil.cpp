// SPDX-License-Identifier: Apache-2.0
// group: operators
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/report/explain.hpp>
#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/windows.hpp"

// Stencils as users write them, compared with a reference that reads element by element.

using namespace gspmd;

namespace {

using place = std::vector<std::int64_t>;

enum class beyond { zero, number, edge, reflect, symmetric, wrap, values, rows };
constexpr int beyond_count = 8;

struct end {
  beyond what = beyond::zero;
  int given = -1;  // the input that is beyond this end
};
constexpr double number = 7;

struct random_field {
  place shape;
  std::vector<end> low, high;  // by dim
};
struct random_read {
  int field;
  double factor;
  place by;
};

/// A sum of reads of fields, with numeric factors.
struct random_stencil {
  std::vector<place> inputs;  // shapes: the fields, then the boundaries
  std::vector<random_field> fields;
  std::vector<random_read> reads;
  place result;
  int radius;

  explicit random_stencil(std::mt19937& random) {
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const int rank = 1 + below(3), count = 1 + below(2);
    radius = below(4);
    for (int d = 0; d < rank; ++d) result.push_back(1 + below(rank == 1 ? 12 : rank == 2 ? 8 : 5));
    fields.resize(static_cast<std::size_t>(count));
    inputs.resize(static_cast<std::size_t>(count));
    for (int k = 0; k < count; ++k) {
      auto& f = fields[static_cast<std::size_t>(k)];
      f.shape = result;
      if (k > 0 && below(2) == 0)  // staggered
        for (auto& e : f.shape) e += below(3) == 0 ? 1 : below(4) == 0 && e > 1 ? -1 : 0;
      inputs[static_cast<std::size_t>(k)] = f.shape;
      for (std::size_t d = 0; d < result.size(); ++d) {
        for (auto* side : {&f.low, &f.high}) side->push_back({static_cast<beyond>(below(beyond_count)), -1});
        if (below(5) == 0) f.low[d].what = f.high[d].what = beyond::wrap;
        for (auto* side : {&f.low, &f.high}) {
          end& e = (*side)[d];
          if (e.what != beyond::values && e.what != beyond::rows) continue;
          place shape = f.shape;
          const auto reach = radius + (side == &f.high && f.shape[d] < result[d] ? 1 : 0);
          shape[d] = e.what == beyond::rows ? reach : 1;
          if (reach == 0) shape[d] = 1;
          e.given = static_cast<int>(inputs.size());
          inputs.push_back(shape);
        }
      }
    }
    for (int n = 1 + below(6); n > 0; --n) {
      random_read r{below(count), static_cast<double>(below(9) - 4), {}};
      for (int d = 0; d < rank; ++d) r.by.push_back(below(3) == 0 && rank > 1 ? 0 : below(2 * radius + 1) - radius);
      reads.push_back(r);
    }
  }

  /// Returns the stencil as users write it.
  [[nodiscard]] value traced(const std::vector<value>& x) const {
    std::vector<stencil_field> given;
    for (std::size_t k = 0; k < fields.size(); ++k) {
      const auto& f = fields[k];
      std::vector<boundary::sides> by_dim;
      for (std::size_t d = 0; d < result.size(); ++d) by_dim.emplace_back(named(f.low[d], x), named(f.high[d], x));
      given.emplace_back(x[k], by_dim);
    }
    const auto sum_of = [&](auto... u) {
      const stencil_neighbours all[] = {u...};
      value sum;
      for (const auto& r : reads) {
        const value term = r.factor * all[r.field].at(integers(r.by.data(), r.by.size()));
        sum = sum.is_valid() ? sum + term : term;
      }
      return sum;
    };
    const auto of_radius = [&](auto r) {
      constexpr int n = r;
      const auto run = [&](const auto&... f) {
        if (result.size() == 1) return stencil<n>(sum_of, f...);
        if (result.size() == 2) return stencil<n, n>(sum_of, f...);
        return stencil<n, n, n>(sum_of, f...);
      };
      return fields.size() == 1 ? run(given[0]) : run(given[0], given[1]);
    };
    if (radius == 0) return of_radius(std::integral_constant<int, 0>{});
    if (radius == 1) return of_radius(std::integral_constant<int, 1>{});
    if (radius == 2) return of_radius(std::integral_constant<int, 2>{});
    return of_radius(std::integral_constant<int, 3>{});
  }

  struct element {
    int input;
    std::size_t offset;
  };
  /// Returns the value of field k at a position inside or outside. Returns nothing if it is the number in `constant`.
  [[nodiscard]] std::optional<element> at(int k, place i, double& constant) const {
    const auto& f = fields[static_cast<std::size_t>(k)];
    int from = k;
    bool is_given = false;
    for (std::size_t d = i.size(); d-- > 0;) {
      const auto n = inputs[static_cast<std::size_t>(from)][d];
      if (i[d] >= 0 && i[d] < n) continue;
      const bool from_low = i[d] < 0;
      const end& e = from_low ? f.low[d] : f.high[d];  // also for positions far outside
      auto what = e.what;
      if (is_given && (what == beyond::values || what == beyond::rows)) what = beyond::edge;
      if (what == beyond::zero || what == beyond::number) {
        constant = what == beyond::zero ? 0 : number;
        return {};
      }
      if (what == beyond::values || what == beyond::rows) {
        from = e.given;
        is_given = true;
        const auto rows = inputs[static_cast<std::size_t>(from)][d];
        i[d] = rows == 1 ? 0 : from_low ? i[d] + rows : i[d] - n;
        continue;
      }
      while (i[d] < 0 || i[d] >= n) {
        const bool is_low = i[d] < 0;
        if (what == beyond::wrap) i[d] += is_low ? n : -n;
        else if (what == beyond::edge || n == 1) i[d] = is_low ? 0 : n - 1;
        else if (what == beyond::reflect) i[d] = is_low ? -i[d] : 2 * n - 2 - i[d];
        else i[d] = is_low ? -1 - i[d] : 2 * n - 1 - i[d];
      }
    }
    std::size_t offset = 0;
    const auto& shape = inputs[static_cast<std::size_t>(from)];
    for (std::size_t d = 0; d < i.size(); ++d)
      offset = offset * static_cast<std::size_t>(shape[d]) + static_cast<std::size_t>(i[d]);
    return element{from, offset};
  }
  /// Calls visit(element of the result, factor, element of an input, constant) for every read.
  template <class Visit>
  void each_read(Visit visit) const {
    place i(result.size());
    for (std::size_t e = 0; e < count(result); ++e) {
      auto rest = static_cast<std::int64_t>(e);
      for (std::size_t d = result.size(); d-- > 0; rest /= result[d]) i[d] = rest % result[d];
      for (const auto& r : reads) {
        place from = i;
        for (std::size_t d = 0; d < i.size(); ++d) from[d] += r.by[d];
        double constant = 0;
        const auto found = at(r.field, from, constant);
        visit(e, r.factor, found, constant);
      }
    }
  }
  static std::size_t count(const place& shape) {
    std::size_t n = 1;
    for (const auto e : shape) n *= static_cast<std::size_t>(e);
    return n;
  }

 private:
  static boundary named(const end& e, const std::vector<value>& x) {
    switch (e.what) {
      case beyond::zero: return boundary::zero();
      case beyond::number: return boundary::constant(number);
      case beyond::edge: return boundary::edge();
      case beyond::reflect: return boundary::reflect();
      case beyond::symmetric: return boundary::symmetric();
      case beyond::wrap: return boundary::wrap();
      default: return boundary::values(x[static_cast<std::size_t>(e.given)]);
    }
  }
};

}  // namespace

TEST_CASE("random stencils and their gradients equal a reference that looks up every element") {
  int sending = 0;
  for (unsigned seed = 1; seed <= 1500; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const random_stencil s(random);
    const std::vector<dynamic::mesh::axis> all{{"x", 1 + static_cast<std::int64_t>(random() % 4)},
                                               {"y", 1 + static_cast<std::int64_t>(random() % 2)}};
    const dynamic::mesh m(all);
    std::vector<std::string> split(s.result.size());
    split[random() % split.size()] = "x";
    auto& other = split[random() % split.size()];
    if (other.empty()) other = "y";
    dynamic::builder p(m);
    std::vector<value> x;
    for (std::size_t k = 0; k < s.inputs.size(); ++k)
      x.push_back(k < s.fields.size() ? p.input(dynamic::input<double>(s.inputs[k], split))
                                      : p.input(dynamic::input<double>(s.inputs[k])));
    const value weights = p.input(dynamic::input<double>(s.result));
    const value y = s.traced(x);
    p.output(y);
    const value loss = sum(y * weights);
    for (const auto& by : x) p.output(grad(loss, by));
    const auto step = p.compile();
    sending += step.traffic().bytes > 0 ? 1 : 0;

    std::vector<std::vector<double>> data;
    for (const auto& shape : s.inputs) {
      data.emplace_back(random_stencil::count(shape));
      for (auto& e : data.back()) e = static_cast<double>(random() % 100) - 50;
    }
    std::vector<double> w(random_stencil::count(s.result));
    for (auto& e : w) e = static_cast<double>(random() % 19) - 9;
    std::vector<std::vector<double>> want{std::vector<double>(w.size())};
    for (const auto& d : data) want.emplace_back(d.size());
    s.each_read([&](std::size_t e, double factor, const auto& found, double constant) {
      want[0][e] += factor * (found ? data[static_cast<std::size_t>(found->input)][found->offset] : constant);
      if (found) want[static_cast<std::size_t>(found->input) + 1][found->offset] += factor * w[e];
    });
    data.push_back(w);
    std::vector<const void*> pointers;
    for (const auto& d : data) pointers.push_back(d.data());
    const auto check = [&](const auto& backend) {
      const auto got = step.run(backend, pointers);
      for (std::size_t k = 0; k < want.size(); ++k) {
        CAPTURE(k);
        REQUIRE(got[k].bytes.size() == want[k].size() * sizeof(double));
        int wrong = 0;
        for (std::size_t e = 0; e < want[k].size(); ++e) wrong += got[k].template data<double>()[e] != want[k][e] ? 1 : 0;
        CHECK(wrong == 0);
      }
    };
    check(simulated{});
    if (seed % 20 == 0) check(threads{});
    if (m.device_count() == 1) check(serial{});
  }
  CHECK(sending > 800);
}

namespace {

constexpr auto around = [](value u, value v) {
  const stencil_field at_edges(u, {boundary::edge(), {boundary::constant(2), boundary::symmetric()}});
  return stencil<1, 2>(
      [](auto a, auto b) {
        return std::pair(a(-1, 0) + a(1, 0) + a(0, -2) + a(0, 2) + 3 * b(0, 0), a(1, 1) - b(-1, 0) - b(0, 1));
      },
      at_edges, stencil_field(v, {boundary::wrap(), boundary::reflect()}));
};
using square = mesh<axis<"x", 2>, axis<"y", 3>>;
using both_paths =
    compile<around, square, input<double, shape<7, 8>, split<"x", "y">>, input<double, shape<7, 8>, split<"x", "y">>>;

constexpr auto jacobi = [](value u) {
  return stencil<1, 1>([](auto t) { return 0.25 * (t(-1, 0) + t(1, 0) + t(0, -1) + t(0, 1)); },
                       stencil_field(u, {boundary::edge(), boundary::wrap()}));
};
using jacobi_step = compile<jacobi, mesh<axis<"x", 2>, axis<"y", 2>>, input<float, shape<64, 32>, split<"x", "y">>>;
// One exchange for each dim: a row and a column in each direction, for any boundary.
static_assert(jacobi_step::collectives == collectives{collective_permute<"x">, collective_permute<"y">});
static_assert(jacobi_step::traffic.bytes == (16 + 2 * 32) * 4);

// A box with its corners: rows, then columns including the halo of the rows. One loop reads all nine.
constexpr auto box = [](value u) {
  return stencil<1, 1>(
      [](auto t) { return t(-1, -1) + t(-1, 0) + t(-1, 1) + t(0, -1) + t(0, 0) + t(0, 1) + t(1, -1) + t(1, 0) + t(1, 1); }, u);
};
using box_step = compile<box, mesh<axis<"x", 4>, axis<"y", 4>>, input<float, shape<64, 32>, split<"x", "y">>>;
static_assert(box_step::collectives == collectives{collective_permute<"x">, collective_permute<"y">});
static_assert(box_step::traffic.bytes == (2 * 8 + 2 * 16 + 2 * 2) * 4 && box_step::traffic.messages == 4);
static_assert(box_step::view.steps.size() == 3);

}  // namespace

TEST_CASE(
    "a field that wraps at one end only goes on there with its elements from the other end, and has its own boundary at that") {
  for (const int devices : {1, 2, 4}) {
    CAPTURE(devices);
    dynamic::builder p(dynamic::mesh({{"x", devices}}));
    const value u = p.input(dynamic::input<double>({4}, std::vector<std::string>{"x"}));
    for (const stencil_field& f : {stencil_field(u, {{boundary::wrap(), boundary::constant(7)}}),
                                   stencil_field(u, {{boundary::edge(), boundary::wrap()}})}) {
      p.output(stencil<1>([](auto a) { return a(-1); }, f));
      p.output(stencil<1>([](auto a) { return a(1); }, f));
    }
    const auto y = p.compile().run(simulated{}, std::vector<double>{1, 2, 3, 4});
    const double want[4][4] = {{4, 1, 2, 3}, {2, 3, 4, 7}, {1, 1, 2, 3}, {2, 3, 4, 1}};
    for (std::size_t k = 0; k < 4; ++k)
      for (std::size_t i = 0; i < 4; ++i) CHECK(y[k].data<double>()[i] == want[k][i]);
  }
}

TEST_CASE("a stencil that is compiled in gives what the run-time path gives") {
  array<double> u({7, 8}), v({7, 8});
  for (int i = 0; i < 56; ++i) {
    u[i] = i * i % 23;
    v[i] = i * 5 % 17;
  }
  const auto [a, b] = run<both_paths>(threads{}, u, v);
  const auto p =
      dynamic::compile(around, dynamic::mesh({{"x", 1}}), dynamic::input<double>({7, 8}), dynamic::input<double>({7, 8}));
  const auto alone = p.run(serial{}, u, v);
  for (int i = 0; i < 56; ++i) {
    CHECK(a[i] == alone[0].data<double>()[i]);
    CHECK(b[i] == alone[1].data<double>()[i]);
  }
  // Computed without the library: rows 0 and 6 of a are repeated, 2 is at the left, columns are mirrored at the right.
  const auto at = [&](int i, int j) { return u[i * 8 + j]; };
  CHECK(a[0] == at(0, 0) + at(1, 0) + 2 + at(0, 2) + 3 * v[0]);
  CHECK(a[6 * 8 + 7] == at(5, 7) + at(6, 7) + at(6, 5) + at(6, 6) + 3 * v[55]);
  CHECK(b[7] == at(1, 7) - v[6 * 8 + 7] - v[6]);
}

TEST_CASE("corners come in two messages for each dim") {
  for (const int rank : {2, 3})
    for (const int radius : {1, 2}) {
      const std::int64_t n[] = {6, 5, 4};  // of a shard
      std::vector<dynamic::mesh::axis> axes;
      std::vector<std::string> splits;
      place shape;
      for (int d = 0; d < rank; ++d) {
        splits.push_back(std::string(1, static_cast<char>('x' + d)));
        axes.push_back({splits.back(), 3});
        shape.push_back(3 * n[d]);
      }
      const auto box_of = [&](value u) {
        std::optional<value> sum;
        place by(static_cast<std::size_t>(rank), -radius);
        for (bool more = true; more;) {
          value x = u;
          for (int d = 0; d < rank; ++d)
            if (by[static_cast<std::size_t>(d)] != 0) x = shift(x, by[static_cast<std::size_t>(d)], along(d), boundary::edge());
          sum = sum ? *sum * 0.75 + x : x;
          more = false;
          for (int d = rank - 1; d >= 0 && !more; --d) {
            auto& at = by[static_cast<std::size_t>(d)];
            more = ++at <= radius;
            if (!more) at = -radius;
          }
        }
        return *sum;
      };
      const auto p = dynamic::compile(box_of, dynamic::mesh(axes), dynamic::input<double>(shape, splits));
      std::int64_t bytes = 0;  // along each dim the shard, widened by the earlier dims
      for (int d = 0; d < rank; ++d) {
        std::int64_t layer = 2 * radius;
        for (int k = 0; k < rank; ++k) layer *= k == d ? 1 : k < d ? n[k] + 2 * radius : n[k];
        bytes += layer * 8;
      }
      CHECK(p.traffic().bytes == bytes);
      CHECK(p.traffic().messages == 2 * rank);
      CHECK(p.traffic().collectives == rank);
      const auto alone = dynamic::compile(box_of, dynamic::mesh({{"x", 1}}), dynamic::input<double>(shape));
      std::vector<double> u(static_cast<std::size_t>(rank == 2 ? 18 * 15 : 18 * 15 * 12));
      for (std::size_t i = 0; i < u.size(); ++i) u[i] = static_cast<double>(i * i % 23);
      const auto want = alone.run(serial{}, u), got = p.run(simulated{}, u), threaded = p.run(threads{}, u);
      int wrong = 0;
      for (std::size_t i = 0; i < u.size(); ++i)
        wrong +=
            got[0].data<double>()[i] != want[0].data<double>()[i] || threaded[0].data<double>()[i] != got[0].data<double>()[i];
      CHECK(wrong == 0);
    }
}

TEST_CASE("what a stencil refuses names the operator, the dim and the numbers") {
  const auto problem = [](auto program) {
    try {
      dynamic::compile(program, dynamic::mesh({{"x", 2}}), dynamic::input<double>({6, 8}, {"x", ""}),
                       dynamic::input<double>({6, 10}));
    } catch (const error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const auto says = [](const std::string& text, const std::string& part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  says(problem([](value u, value) { return stencil<1, 1>([](auto t) { return t(0, 2); }, u); }),
       "reads 2 along dim 1 of [6,8], beyond its radius of 1 there");
  says(problem([](value u, value) { return stencil<1, 1>([](auto t) { return t(-3, 0); }, u); }), "reads -3 along dim 0");
  says(problem([](value u, value) { return stencil<1>([](auto t) { return t(1); }, u); }),
       "has 1 radii and reads a field of [6,8]");
  says(problem([](value u, value) { return stencil<1, 1>([](auto t) { return t(1); }, u); }), "reads at 1 offsets");
  says(problem([](value u, value) {
         return stencil<1, 1>([](auto t) { return t(1, 0); },
                              stencil_field(u, {boundary::edge(), boundary::edge(), boundary::edge()}));
       }),
       "is given 3 boundaries");
  says(problem([](value u, value v) { return stencil<1, 1>([](auto a, auto b) { return a(0, 0) + b(0, 0); }, u, v); }),
       "reads a field of [6,10] for results of [6,8]: dim 1");
  says(problem([](value u, value v) {
         return stencil<1, 1>([](auto t) { return t(0, 1); }, stencil_field(u, {boundary::edge(), boundary::values(v)}));
       }),
       "is given [6,10] as the values beyond dim 1 of [6,8]; give [6,1]");
  says(problem([](value u, value v) { return shift(u, 1, along(0), boundary::values(v)); }),
       "takes no tensor as the values beyond an end");
  const auto fits = problem([](value u, value) { return stencil<1, 1>([](auto t) { return t(1, -1); }, u); });
  CHECK(fits.empty());
}

TEST_CASE("margins of several fields for one loop go in one exchange for each dim") {
  const auto steps = [](value a, value b, value c) {
    return fori_loop(
        3,
        [](value, value u, value v, value w) {
          return stencil<1, 1>(
              [](auto x, auto y, auto z) {
                return std::tuple{x(-1, 0) + y(1, 0) - z(0, 1), x(0, -1) + y(0, 1) + z(0, 0), x(0, 0) - y(0, -1) + z(-1, 0)};
              },
              stencil_field(u, {boundary::wrap()}), stencil_field(v, {boundary::edge()}), w);
        },
        a, b, c);
  };
  for (const std::int64_t n : {7, 300}) {  // 300 is large enough for overlap
    const auto in = dynamic::input<double>({n, n}, {"x", "y"});
    const auto p = dynamic::compile(steps, dynamic::mesh({{"x", 3}, {"y", 2}}), in, in, in);
    const auto alone = dynamic::compile(steps, dynamic::mesh({{"x", 1}, {"y", 1}}), in, in, in);
    CHECK(p.traffic().collectives == 3 * 2);
    CHECK(p.traffic().messages == 3 * 2 * 2);
    std::vector<double> u(static_cast<std::size_t>(n * n)), v(u.size()), w(u.size());
    for (std::size_t i = 0; i < u.size(); ++i) {
      u[i] = static_cast<double>(i * i % 23);
      v[i] = static_cast<double>(i * 7 % 19);
      w[i] = static_cast<double>(i * 5 % 17);
    }
    const auto want = alone.run(serial{}, u, v, w), got = p.run(simulated{}, u, v, w), threaded = p.run(threads{}, u, v, w);
    for (std::size_t k = 0; k < 3; ++k) {
      int wrong = 0;
      for (std::size_t i = 0; i < u.size(); ++i)
        wrong +=
            got[k].data<double>()[i] != want[k].data<double>()[i] || threaded[k].data<double>()[i] != got[k].data<double>()[i];
      CHECK(wrong == 0);
    }
  }
}

namespace {

/// Waves on a C grid: pressure in the centres of n x m cells, velocities on their (n + 1) x m and n x (m + 1) faces. No
/// flow passes the walls.
auto waves(value p, value u, value v, int steps) {
  return fori_loop(
      steps,
      [](value, value p0, value u0, value v0) {
        const value u1 = stencil<1, 0>([](auto a, auto q) { return a(0, 0) - 2.0 * (q(0, 0) - q(-1, 0)); }, u0,
                                       stencil_field(p0, {boundary::edge(), boundary::zero()}));
        const value v1 = stencil<0, 1>([](auto a, auto q) { return a(0, 0) - (q(0, 0) - q(0, -1)); }, v0,
                                       stencil_field(p0, {boundary::zero(), boundary::edge()}));
        const value p1 = stencil<1, 1>(
            [](auto q, auto a, auto b) { return q(0, 0) - (a(1, 0) - a(0, 0)) - 2.0 * (b(0, 1) - b(0, 0)); }, p0, u1, v1);
        return std::tuple{p1, u1, v1};
      },
      p, u, v);
}
struct wave_fields {
  std::vector<double> p, u, v;
};
/// The same as in a textbook.
void step_by_hand(wave_fields& f, std::int64_t n, std::int64_t m) {
  const auto at = [](std::vector<double>& x, std::int64_t width, std::int64_t i, std::int64_t j) -> double& {
    return x[static_cast<std::size_t>(i * width + j)];
  };
  for (std::int64_t i = 1; i < n; ++i)
    for (std::int64_t j = 0; j < m; ++j) at(f.u, m, i, j) -= 2 * (at(f.p, m, i, j) - at(f.p, m, i - 1, j));
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 1; j < m; ++j) at(f.v, m + 1, i, j) -= at(f.p, m, i, j) - at(f.p, m, i, j - 1);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < m; ++j)
      at(f.p, m, i, j) -= at(f.u, m, i + 1, j) - at(f.u, m, i, j) + 2 * (at(f.v, m + 1, i, j + 1) - at(f.v, m + 1, i, j));
}

}  // namespace

TEST_CASE("fields that stream in nine directions, rolled along both dims in one movement, share one exchange for each dim") {
  constexpr std::array<int, 9> down{0, 0, 1, 0, -1, 1, 1, -1, -1}, right{0, 1, 0, -1, 0, 1, -1, -1, 1};
  const auto streams = [&](std::array<value, 9> f) {  // several loops read the fields, and each loop reads its parts of all
                                                      // halo buffers
    for (std::size_t k = 0; k < 9; ++k) f[k] = roll(roll(f[k], down[k], along(0)), right[k], along(1));
    value rho = f[0];
    for (std::size_t k = 1; k < 9; ++k) rho = rho + f[k];
    std::array<value, 9> next;
    for (std::size_t k = 0; k < 9; ++k) next[k] = 0.5 * f[k] + 0.0625 * rho * tanh(f[8 - k]);
    return next;
  };
  const auto steps = [&](value a, value b, value c, value d, value e, value f, value g, value h, value i) {
    const auto body = [&](value, value a1, value b1, value c1, value d1, value e1, value f1, value g1, value h1, value i1) {
      const auto next = streams({a1, b1, c1, d1, e1, f1, g1, h1, i1});
      return std::tuple{next[0], next[1], next[2], next[3], next[4], next[5], next[6], next[7], next[8]};
    };
    return fori_loop(2, body, a, b, c, d, e, f, g, h, i);
  };
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{7, 5}, {40, 9}, {9, 64}}) {
    const auto in = dynamic::input<double>({rows, columns}, {"x", "y"});
    const auto p = dynamic::compile(steps, dynamic::mesh({{"x", 3}, {"y", 2}}), in, in, in, in, in, in, in, in, in);
    CHECK(p.traffic().collectives == 2 * 2);
    CHECK(p.traffic().messages == 2 * (2 + 2));
    std::vector<std::vector<double>> now(9, std::vector<double>(static_cast<std::size_t>(rows * columns)));
    for (std::size_t k = 0; k < 9; ++k)
      for (std::size_t i = 0; i < now[k].size(); ++i) now[k][i] = static_cast<double>((i * i + 3 * k * i + k) % 23) / 8;
    const auto run = [&](auto backend) {
      return p.run(backend, now[0], now[1], now[2], now[3], now[4], now[5], now[6], now[7], now[8]);
    };
    const auto got = run(simulated{}), threaded = run(threads{});
    for (int trip = 0; trip < 2; ++trip) {
      const auto before = now;
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < columns; ++c) {
          double f[9], rho = 0;
          for (std::size_t k = 0; k < 9; ++k) {
            const auto from = (r - down[k] + rows) % rows * columns + (c - right[k] + columns) % columns;
            f[k] = before[k][static_cast<std::size_t>(from)];
            rho += f[k];
          }
          for (std::size_t k = 0; k < 9; ++k)
            now[k][static_cast<std::size_t>(r * columns + c)] = 0.5 * f[k] + 0.0625 * rho * std::tanh(f[8 - k]);
        }
    }
    double worst = 0;
    for (std::size_t k = 0; k < 9; ++k)
      for (std::size_t i = 0; i < now[k].size(); ++i)
        for (const auto* const y : {&got, &threaded}) worst = std::max(worst, std::abs((*y)[k].data<double>()[i] - now[k][i]));
    CHECK(worst < 1e-13);
  }
}

TEST_CASE("a scheme on fields of N and N + 1 points equals the one by hand on every mesh") {
  std::int64_t sending = 0;
  for (const std::int64_t n : {1, 2, 5, 8})
    for (const std::int64_t m : {1, 3, 7})
      for (const std::int64_t x : {1, 2, 3, 4})
        for (const std::int64_t y : {1, 2}) {
          CAPTURE(n);
          CAPTURE(m);
          CAPTURE(x);
          CAPTURE(y);
          const int steps = 3;
          const std::vector<std::string> split{"x", "y"};
          const auto program = [](value p, value u, value v) { return waves(p, u, v, steps); };
          const auto step =
              dynamic::compile(program, dynamic::mesh({{"x", x}, {"y", y}}), dynamic::input<double>({n, m}, split),
                               dynamic::input<double>({n + 1, m}, split), dynamic::input<double>({n, m + 1}, split));
          wave_fields f{std::vector<double>(static_cast<std::size_t>(n * m)),
                        std::vector<double>(static_cast<std::size_t>((n + 1) * m)),
                        std::vector<double>(static_cast<std::size_t>(n * (m + 1)))};
          for (auto* const list : {&f.p, &f.u, &f.v})
            for (std::size_t i = 0; i < list->size(); ++i) (*list)[i] = static_cast<double>(i * i * 3 % 29) - 11;
          const auto got = step.run(simulated{}, f.p, f.u, f.v);
          const auto threaded = (n + m) % 2 == 0 ? step.run(threads{}, f.p, f.u, f.v) : got;
          for (const auto& c : step.collectives()) {
            sending += 1;
            if (n > 1 && m > 1)
              CHECK(c.kind == collective_kind::collective_permute);  // along an axis of extent 1, the
                                                                     // data of one device is sent to all
          }
          for (int s = 0; s < steps; ++s) step_by_hand(f, n, m);
          const std::vector<double>* const want[] = {&f.p, &f.u, &f.v};
          for (std::size_t k = 0; k < 3; ++k)
            for (const auto* const result : {&got, &threaded}) {
              int wrong = 0;
              for (std::size_t i = 0; i < want[k]->size(); ++i) wrong += (*result)[k].data<double>()[i] != (*want[k])[i];
              CHECK(wrong == 0);
            }
        }
  CHECK(sending > 100);
}
