// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// In the explicit mode, parts exchange the elements that they need if the program permits it: values, gradients and
// bytes equal those of the automatic mode.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/strict_program.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/grad.hpp>
#include <gspmd/windows/pool.hpp>

#include "support/error_of.hpp"

using namespace gspmd;

namespace written_exchanges {

/// One operator along a dim that may be split.
struct moved {
  enum kind {
    shifted,
    rolled,
    sliced,
    padded,
    reversed,
    joined,
    star,
    box,
    pooled,
    pooled_largest,
    windowed,
    kinds
  } what = shifted;
  int dim = 0;
  std::int64_t a = 0, b = 0, c = 0;
  int low = 0, high = 0;  // boundaries

  static boundary beyond(int k) {
    const boundary all[] = {boundary::zero(), boundary::edge(), boundary::reflect(), boundary::symmetric(),
                            boundary::wrap(), boundary::zero(), boundary::edge()};
    return all[k % 7];
  }
  [[nodiscard]] value of(value x, value kernel) const {
    const auto rank = static_cast<std::size_t>(x.rank()), d = static_cast<std::size_t>(dim);
    std::vector<std::int64_t> zeros(rank, 0), ones(rank, 1), low_of = zeros, high_of = zeros;
    switch (what) {
      case shifted: return shift(x, a, along(dim), beyond(low));
      case rolled: return roll(x, a, along(dim));
      case sliced: {
        const auto extent = x.shape()[dim], begin = std::min<std::int64_t>(std::abs(a), extent - 1);
        const auto shape = x.shape();
        std::vector<std::int64_t> last(shape.begin(), shape.end()), stride = ones;
        low_of[d] = begin;
        last[d] = std::max(begin + 1, extent - std::abs(b));
        stride[d] = 1 + c;
        return slice(x, low_of, last, stride);
      }
      case padded: {
        low_of[d] = std::abs(a);
        high_of[d] = std::abs(b);
        zeros[d] = c;
        return pad(x, low_of, high_of, 0, zeros);
      }
      case reversed: return flip(x, {dim});
      case joined: return concatenate({x, 2.0 * x}, dim);
      case star:
        return x.rank() == 1 ? stencil<2>([this](auto u) { return u(-1) + 2.0 * u(a % 3) - u(1); },
                                          stencil_field(x, {boundary::sides(beyond(low), beyond(high))}))
                             : stencil<2, 2>([this](auto u) { return u(-1, 0) + 2.0 * u(a % 3, 0) - u(0, 1) + u(0, b % 3); },
                                             stencil_field(x, {boundary::sides(beyond(low), beyond(high)),
                                                               boundary::sides(beyond(high), beyond(low))}));
      case box:
        return x.rank() == 1 ? stencil<1>([](auto u) { return u(-1) * u(1); }, x)
                             : stencil<1, 1>([](auto u) { return u(-1, 1) + 2.0 * u(1, 1) - u(1, -1) + u(0, 0) * u(1, 0); }, x);
      case pooled:
      case pooled_largest: {
        std::vector<std::int64_t> size = ones, stride = ones;
        size[d] = std::min<std::int64_t>(1 + std::abs(a), x.shape()[dim]);
        stride[d] = 1 + c;
        low_of[d] = std::abs(b) % 2;
        return reduce_window(x, what == pooled ? monoid::add : monoid::max, size, stride, low_of, zeros);
      }
      case windowed:
        if (x.shape()[0] < 6) return x;
        return x.rank() == 1 ? einsum("(x+w-1),w->x", x, kernel) : einsum("(x+w-1)y,w->xy", x, kernel);
      case kinds: break;
    }
    return x;
  }
};

struct random_exchanges {
  std::vector<dynamic::mesh::axis> axes;
  std::vector<std::int64_t> shape;
  std::vector<std::string> splits;  // by dim
  std::string names;                // the axes, as with_exchange takes them
  std::vector<moved> ops;

  explicit random_exchanges(std::mt19937& random) {
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const std::vector<std::vector<int>> meshes{{2}, {3}, {4}, {8}, {2, 2}, {2, 3}, {3, 2}, {1, 2}, {2, 1}};
    const auto& sizes = meshes[random() % meshes.size()];
    const int rank = 1 + below(2);
    for (int d = 0; d < rank; ++d) shape.push_back(1 + below(rank == 1 ? 14 : 8));
    splits.resize(static_cast<std::size_t>(rank));
    for (std::size_t a = 0; a < sizes.size(); ++a) {
      axes.push_back({a == 0 ? "x" : "y", sizes[a]});
      names += a == 0 ? "x" : ",y";
      if (a > 0 && below(4) == 0) continue;  // it splits nothing
      auto& s = splits[static_cast<std::size_t>(below(rank))];
      s += (s.empty() ? "" : ",") + axes.back().name;
    }
    for (int k = 1 + below(4); k > 0; --k)
      ops.push_back(
          {static_cast<moved::kind>(below(moved::kinds)), below(rank), below(7) - 3, below(5) - 2, below(2), below(7), below(7)});
  }
  [[nodiscard]] dynamic::value_states states() const {
    dynamic::value_states s{std::vector<axis_state>(axes.size(), axis_state{state::invariant}), {}};
    for (std::size_t d = 0; d < splits.size(); ++d)
      for (std::size_t a = 0; a < axes.size(); ++a)
        if (splits[d].find(axes[a].name) != std::string::npos) {
          s.on[a] = axis_state{state::shard, static_cast<std::int8_t>(d), monoid::add};
          s.order.emplace_back(static_cast<int>(a), static_cast<int>(d));
        }
    return s;
  }
  [[nodiscard]] value chain(value x, value kernel) const {
    for (const auto& op : ops) {
      if (const auto now = x.shape(); now.count == 0 || *std::max_element(now.begin(), now.end()) > 60) break;
      x = op.of(x, kernel);
    }
    return x;
  }
};

enum class mode { alone, types, planner };
dynamic::program compiled(const random_exchanges& r, mode m) {
  dynamic::builder b{m == mode::alone ? dynamic::mesh({{"x", 1}}) : dynamic::mesh(r.axes)};
  const value x =
      m == mode::planner ? b.input(dynamic::input<double>(r.shape, r.splits)) : b.input(dynamic::input<double>(r.shape));
  const value kernel = b.input(dynamic::input<double>({3}));
  std::vector<value> results;
  const auto add = [&](value y) {
    const value loss = sum(y * y);
    results = {y, grad(loss, x)};
  };
  if (m == mode::types) {
    dynamic::strict_program p(b, "");
    p.input(x, r.states());
    dynamic::value_states whole{r.states().on, {}};
    for (auto& on : whole.on) on = {on.is == state::shard ? state::replica : state::invariant};
    p.input(kernel, whole);
    add(p.with_exchange(
        r.names, [&](value v) { return r.chain(v, kernel); }, x));
    for (const auto v : results) b.output(v);
    return p.compile();
  }
  add(r.chain(x, kernel));
  for (auto v : results) b.output(m == mode::planner ? b.reshard(v, r.splits) : v);
  return b.compile();
}

}  // namespace written_exchanges

using namespace written_exchanges;

TEST_CASE("random exchanges that are written give one device's values and gradients, and send what the automatic mode does") {
  std::mt19937 random(7);
  const char* const asked = std::getenv("GSPMD_PROGRAMS");
  const int count = asked != nullptr ? std::atoi(asked) : 200;
  int sent = 0, alike = 0;
  for (int trial = 0; trial < count; ++trial) {
    const random_exchanges r(random);
    CAPTURE(trial);
    const auto alone = compiled(r, mode::alone);
    const auto typed = compiled(r, mode::types);
    std::vector<double> xs, ks{1, -2, 3};
    std::int64_t n = 1;
    for (const auto e : r.shape) n *= e;
    for (std::int64_t k = 0; k < n; ++k) xs.push_back(static_cast<double>(random() % 7) - 3);
    const auto expected = alone.run(serial{}, xs, ks);
    const auto found = trial % 8 == 0 ? typed.run(threads{}, xs, ks) : typed.run(simulated{}, xs, ks);
    for (std::size_t k = 0; k < found.size(); ++k) {
      CAPTURE(k);
      REQUIRE(found[k].bytes.size() == expected[k].bytes.size());
      const double *is = found[k].data<double>(), *wanted = expected[k].data<double>();
      CHECK(std::equal(is, is + found[k].bytes.size() / sizeof(double), wanted,
                       [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }));
    }
    const auto planned = compiled(r, mode::planner);
    bool is_alike = true;  // where the planner thought of nothing else
    for (const auto& c : planned.collectives()) is_alike = is_alike && c.kind == collective_kind::collective_permute;
    if (is_alike) CHECK(typed.traffic().bytes == planned.traffic().bytes);
    alike += is_alike && typed.traffic().bytes > 0 ? 1 : 0;
    sent += typed.traffic().bytes > 0 ? 1 : 0;
  }
  CHECK(sent > count / 2);
  CHECK(alike > count / 3);
}

namespace {
/// The error of an operator on [8,4], whose rows are split over x, with this exchange written, or none; "no error" if
/// it is accepted.
std::string said_of(std::int64_t devices, const char* exchanged, value (*f)(value)) {
  dynamic::builder b(dynamic::mesh({{"x", devices}, {"y", 2}}));
  dynamic::strict_program p(b, "");
  const value x = b.input(dynamic::input<double>({8, 4}));
  p.input(x, {{detail::shard_of(0), {state::invariant}}, {}});
  b.output(*exchanged == 0 ? f(x) : p.with_exchange(exchanged, f, x));
  return caught::error_of([&] { static_cast<void>(p.compile()); });
}
}  // namespace

TEST_CASE("an exchange that is not written is refused with the way to write it, on one device along an axis too") {
  struct moving {
    std::string name;
    value (*f)(value);
  };
  const moving all[] = {
      {"shift", [](value x) { return stencil<1, 0>([](auto u) { return u(-1, 0) + u(1, 0); }, x); }},
      {"shift", [](value x) { return shift(x, 1, along(0)); }},
      {"roll", [](value x) { return roll(x, 1, along(0)); }},
      {"flip", [](value x) { return flip(x, {0}); }},
      {"slice",
       [](value x) {
         return slice(x, {2, 0}, {8, 4});
       }},
      {"pad",
       [](value x) {
         return pad(x, {2, 0}, {0, 0});
       }},
      {"concatenate",
       [](value x) {
         return concatenate({x, 2.0 * x}, 0);
       }},
      {"reduce_window",
       [](value x) {
         return reduce_window(x, monoid::add, {3, 1});
       }},
      {"convolution", [](value x) { return einsum("(i+k)j,k->ij", x, constant(x, {3}, 1.0)); }},
  };
  for (const auto& [name, f] : all)
    for (const std::int64_t devices : {1, 2, 3}) {
      CAPTURE(name);
      CAPTURE(devices);
      const std::string words = said_of(devices, "", f);
      CHECK(words.find(name + " at ") != std::string::npos);
      CHECK(words.find("; write with_exchange<`x`>(f, ...) around this " + name + ": ") != std::string::npos);
      CHECK(said_of(devices, "y", f) == words);
      CHECK(said_of(devices, "x", f) == "no error");
      CHECK(said_of(devices, "y,x", f) == "no error");
    }
  CHECK(said_of(2, "", [](value x) { return slice(x, {1, 0}, {7, 4}); }) == "no error");  // every row stays in its part
  CHECK(said_of(1, "", [](value x) { return slice(x, {1, 0}, {7, 4}); }) == "no error");
  CHECK(said_of(2, "", [](value x) { return shift(x, 1, along(1)); }) == "no error");
  CHECK(caught::contains(said_of(2, "z", [](value x) { return shift(x, 1, along(0)); }), "`z`"));
}

TEST_CASE("a loop of sweeps exchanges a halo in each trip, and its gradient too") {
  for (const std::int64_t devices : {1, 2, 5}) {
    std::vector<std::vector<std::byte>> results[2];
    std::int64_t sent[2];
    for (const bool is_typed : {false, true}) {
      dynamic::builder b(dynamic::mesh({{"x", devices}}));
      dynamic::strict_program p(b, "");
      if (!is_typed) b.graph().is_explicit = false;
      const value x = b.input(is_typed ? dynamic::input<double>({11}) : dynamic::input<double>({11}, {"x"}));
      if (is_typed) p.input(x, {{detail::shard_of(0)}, {}});
      const value y = p.with_exchange(
          "x",
          [](value u) {
            return fori_loop(
                3, [](value, value v) { return stencil<1>([](auto w) { return w(-1) * w(1) + w(0); }, v); }, u);
          },
          x);
      b.output(y);
      b.output(grad(sum(y), x));
      const auto program = is_typed ? p.compile() : b.compile();
      sent[is_typed ? 1 : 0] = program.traffic().bytes;
      const std::vector<double> data{1, -1, 2, 0, 1, 1, -1, 2, 1, 0, 1};
      for (const auto& r : program.run(threads{}, data)) results[is_typed ? 1 : 0].push_back(r.bytes);
    }
    CHECK(results[0] == results[1]);
    CHECK(sent[0] == sent[1]);
    CHECK((sent[1] > 0) == (devices > 1));
  }
}
