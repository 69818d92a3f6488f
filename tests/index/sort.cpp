// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Sorting along any dim, split or not, equals a stable sort of each line on every mesh. The bytes equal closed forms.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/report/inspect.hpp>

#include "support/any_backend.hpp"
#include "support/error_of.hpp"
#include "support/random_split.hpp"

namespace {

using namespace gspmd;
using reference::any_backend;
using reference::draws;
using reference::random_split;
using std::int64_t;

template <class T>
T drawn(draws& r, int64_t values) {
  const auto i = r.below(values);
  if constexpr (std::is_same_v<T, bool>) return i % 2 == 1;
  else if constexpr (detail::is_integer_element<T>) {
    if (i == 0) return std::numeric_limits<T>::max();
    return i == 1 ? std::numeric_limits<T>::min() : static_cast<T>(i);
  } else {
    const float special[] = {std::nanf(""), -std::nanf(""), HUGE_VALF, -HUGE_VALF, 0.0f, -0.0f};
    return static_cast<T>(i < 6 ? special[i] : static_cast<float>(i - values / 2) / 8);
  }
}
template <class T>
double real(T x) {
  if constexpr (detail::is_narrow_float<T>) return static_cast<float>(x);
  else return static_cast<double>(x);
}
/// Returns true if x precedes y in ascending order.
template <class T>
bool is_less(T x, T y) {
  if constexpr (detail::is_float_element<T>) {
    if (std::isnan(real(x)) || std::isnan(real(y))) return !std::isnan(real(x)) && std::isnan(real(y));
    return real(x) < real(y);
  } else {
    return x < y;
  }
}
template <class T>
bool same_bits(T x, T y) {
  if constexpr (detail::is_float_element<T>)
    if (std::isnan(real(x)) && std::isnan(real(y))) return true;
  return std::memcmp(&x, &y, sizeof x) == 0;
}

/// The input of a sort: the keys of a program, and the origin of each element of a line.
struct lines {
  int64_t outer = 1, n = 1, inner = 1;
  template <class Visit>
  void each(Visit visit) const {  // visit(place of an index of a line)
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t j = 0; j < inner; ++j)
        visit([=, this](int64_t i) { return static_cast<std::size_t>((o * n + i) * inner + j); });
  }
};

template <class T>
void try_once(std::uint64_t seed, const dynamic::mesh& m, const any_backend& backend, int64_t longest = 40) {
  CAPTURE(seed);
  CAPTURE(detail::name_of(detail::dtype_of<T>()));
  draws r{std::mt19937_64(seed)};
  std::vector<int64_t> shape;
  for (int64_t d = 1 + r.below(3); d > 0; --d) shape.push_back(r.below(12) == 0 ? 0 : 1 + r.below(4));
  const auto dim = static_cast<std::size_t>(r.below(static_cast<int64_t>(shape.size())));
  shape[dim] = r.below(12) == 0 ? 0 : 1 + r.below(longest);
  lines l;
  for (std::size_t d = 0; d < shape.size(); ++d) (d < dim ? l.outer : d > dim ? l.inner : l.n) *= shape[d];
  const auto size = static_cast<std::size_t>(l.outer * l.n * l.inner);
  const sort_options how{.descending = r.below(2) == 0};
  const auto values = 1 + r.below(40);
  const std::unique_ptr<T[]> x(new T[size + 1]), y(new T[size + 1]);
  std::vector<double> z(size + 1);
  for (std::size_t i = 0; i < size; ++i) {
    x[i] = drawn<T>(r, values);
    y[i] = drawn<T>(r, 1 + values / 4);
    z[i] = static_cast<double>(i);
  }
  const int keys = static_cast<int>(1 + r.below(2)), along = static_cast<int>(dim);

  dynamic::builder b(m);
  const value a = b.input(dynamic::input<T>(shape, random_split(r, m, shape.size())));
  const value second = b.input(dynamic::input<T>(shape, random_split(r, m, shape.size())));
  const value third = b.input(dynamic::input<double>(shape, random_split(r, m, shape.size())));
  b.output(sort(a, along, how));
  b.output(argsort(a, along, how));
  for (const value v : sort_together({a, second, third}, keys, gspmd::along(along), how)) b.output(v);
  const auto results = backend.run(b.compile(), std::vector<const void*>{x.get(), y.get(), z.data()});

  bool same = true;
  l.each([&](auto at) {
    std::vector<int64_t> order(static_cast<std::size_t>(l.n));
    const auto sorted_by = [&](int count) {
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](int64_t i, int64_t k) {
        for (int key = 0; key < count; ++key) {
          const T p = (key == 0 ? x : y)[at(how.descending ? k : i)], q = (key == 0 ? x : y)[at(how.descending ? i : k)];
          if (is_less(p, q) || is_less(q, p)) return is_less(p, q);
        }
        return i < k;
      });
    };
    sorted_by(1);
    for (int64_t i = 0; i < l.n; ++i) {
      const auto from = order[static_cast<std::size_t>(i)];
      const T got = results[0].data<T>()[at(i)], wanted = x[at(from)];
      same = same && !is_less(got, wanted) && !is_less(wanted, got);
      same = same && results[1].data<std::int32_t>()[at(i)] == from;
      if (i > 0 && detail::is_float_element<T> && real(got) == 0 && real(results[0].data<T>()[at(i - 1)]) == 0)
        same = same && (how.descending ? std::signbit(real(got)) || !std::signbit(real(results[0].data<T>()[at(i - 1)]))
                                       : !std::signbit(real(got)) || std::signbit(real(results[0].data<T>()[at(i - 1)])));
    }
    sorted_by(keys);
    for (int64_t i = 0; i < l.n; ++i) {
      const auto from = at(order[static_cast<std::size_t>(i)]);
      same = same && same_bits(results[2].data<T>()[at(i)], x[from]) && same_bits(results[3].data<T>()[at(i)], y[from]) &&
             results[4].data<double>()[at(i)] == z[from];
    }
  });
  CHECK(same);
}

template <class... T>
void try_types(std::uint64_t seed, const dynamic::mesh& m, const any_backend& backend, int64_t longest = 40) {
  (try_once<T>(seed++, m, backend, longest), ...);
}

TEST_CASE("sorts are what a stable sort of each line gives, on every mesh and of every type") {
  const dynamic::mesh meshes[] = {
      dynamic::mesh({{"x", 1}}),           dynamic::mesh({{"x", 2}}), dynamic::mesh({{"x", 3}}),
      dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::mesh({{"x", 5}}), dynamic::mesh({{"x", 2}, {"y", 3}}),
      dynamic::mesh({{"x", 7}}),           dynamic::mesh({{"x", 8}}), dynamic::mesh({{"x", 2}, {"y", 4}})};
  std::uint64_t seed = 0;
  for (const auto& m : meshes)
    for (int count = 0; count < 2; ++count, seed += 100)
      try_types<float, double, std::int32_t, int64_t, bool, bf16, f16, std::int8_t, std::uint8_t, std::int16_t, std::uint32_t,
                std::uint64_t>(seed, m, simulated{});
  for (int count = 0; count < 6; ++count) try_types<float, std::int32_t>(seed += 100, meshes[3], threads{});
}

TEST_CASE("long lines on many devices: columns") {
  for (std::uint64_t seed = 0; seed < 12; ++seed)
    try_types<float, std::int16_t>(7000 + 10 * seed, dynamic::mesh({{"x", static_cast<int64_t>(3 + seed % 6)}}), simulated{},
                                   1400);
}

TEST_CASE("bytes of a split sort are closed forms") {
  const auto bytes = [](int64_t devices, std::vector<int64_t> shape, auto make) {
    dynamic::builder b(dynamic::mesh({{"x", devices}}));
    b.output(make(b.input(dynamic::input<float>(shape, {"", "x"}))));
    return b.compile().traffic().bytes;
  };
  const auto by = [](value x) { return sort(x); };
  CHECK(bytes(2, {3, 1001}, by) == 3 * 501 * 4);                                    // the other part
  CHECK(bytes(8, {1, 8192}, by) == (3 * 1024 - 2 * 1024 / 8) * 4);                  // three parts, without the elements that stay
  CHECK(bytes(4, {8, 4096}, by) == 2 * 8 * 1024 * 3 / 4 * 4);                       // lines are distributed, and returned
  CHECK(bytes(2, {1, 1000}, [](value x) { return argsort(x); }) == 500 * (4 + 4));  // with the indices
}

using splits = std::vector<std::string>;

/// Returns every way to split `rank` dims by the axes of a mesh.
std::vector<splits> all_splits(const dynamic::mesh& m, std::size_t rank) {
  std::vector<splits> all{splits(rank)};
  for (int a = 0; a < m.info().shape.axis_count(); ++a) {
    const std::string axis(m.info().name(a));
    for (std::size_t k = 0, count = all.size(); k < count; ++k)
      for (std::size_t d = 0; d < rank; ++d) {
        splits s = all[k];
        const std::string before = s[d];
        s[d] = before.empty() ? axis : before + "," + axis;
        all.push_back(s);
        s[d] = axis + "," + before;
        if (!before.empty()) all.push_back(s);
      }
  }
  return all;
}
bool names(const splits& s, std::string_view axis) {
  return std::any_of(s.begin(), s.end(), [&](const std::string& dim) { return dim.find(axis) != std::string::npos; });
}

TEST_CASE("a split line is sorted by way of another dim where that sends less") {
  const auto bytes = [](const dynamic::mesh& m, const std::vector<int64_t>& shape, const splits& from, const splits& to,
                        bool indices, const splits* by = nullptr) {
    dynamic::builder b(m);
    value x = b.input(dynamic::input<float>(shape, from));
    if (by != nullptr) x = b.reshard(x, *by);
    value y = indices ? argsort(x) : sort(x);
    if (by != nullptr) y = b.reshard(y, *by);
    b.output(b.reshard(y, to));
    return b.compile().traffic().bytes;
  };
  const dynamic::mesh line({{"x", 8}}), square({{"x", 2}, {"y", 2}}), both({{"x", 2}, {"y", 4}});
  CHECK(bytes(line, {8, 64}, {"", "x"}, {"x", ""}, false) == 64 * 7 / 8 * 4);          // one exchange, and the result stays
  CHECK(bytes(line, {8, 64}, {"", "x"}, {"x", ""}, true) == 64 * 7 / 8 * 4);           // indices are not sent
  CHECK(bytes(both, {8, 64}, {"", "x,y"}, {"", "x,y"}, false) == 2 * 64 * 7 / 8 * 4);  // there and back
  CHECK(bytes(square, {2, 64}, {"", "x"}, {"y", "x"}, true) == (64 / 2) * (4 + 4));    // the idle axis takes a line
  CHECK(bytes(both, {4, 2, 8}, {"", "", "y"}, {"", "", "x"}, false) ==
        8 * 3 * 4 / 4 + 112);  // [y, x, _] in between: 144 by [y, _, _]
  CHECK(bytes(dynamic::mesh({{"x", 2}}), {1, 64}, {"", "x"}, {"", "x"}, true) ==
        32 * (4 + 4));  // and no line is gathered for its indices

  int tried = 0;
  for (const auto& m : {dynamic::mesh({{"x", 3}}), dynamic::mesh({{"x", 4}}), square, both})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{8, 16}, {2, 24}, {16, 4}, {11, 9}, {4, 4, 8}}) {
      if (shape.size() == 3 && m.info().shape.device_count() != 8) continue;  // each axis on a dim of its own
      const auto all = all_splits(m, shape.size());
      for (std::size_t from = 0; from < all.size(); ++from)
        for (std::size_t to = from % 3; to < all.size(); to += 3) {
          const bool indices = (from + to) % 2 == 1;
          const auto sent = bytes(m, shape, all[from], all[to], indices);
          for (const auto& by : all) {
            bool repeats = false;  // more copies than necessary
            for (const std::string_view axis : {"x", "y"})
              repeats = repeats || (names(all[from], axis) && names(all[to], axis) && !names(by, axis));
            if (repeats) continue;
            ++tried;
            const auto so = bytes(m, shape, all[from], all[to], indices, &by);
            CHECK_MESSAGE(sent <= so, detail::shape_text(detail::extents_of(shape)).view(), ' ', from, ' ', to, ' ', indices);
          }
        }
    }
  CHECK(tried > 1000);
}

TEST_CASE("what is counted for the steps of an operator is what they send") {
  struct sums {
    using values = std::tuple<float, std::int32_t>;
    static constexpr values identity() { return {0.0f, 0}; }
    static constexpr values combine(values a, values b) {
      return {std::get<0>(a) + std::get<0>(b), std::max(std::get<1>(a), std::get<1>(b))};
    }
  };
  const dynamic::mesh meshes[] = {dynamic::mesh({{"x", 2}}),           dynamic::mesh({{"x", 3}}),
                                  dynamic::mesh({{"x", 2}, {"y", 3}}), dynamic::mesh({{"x", 8}}),
                                  dynamic::mesh({{"x", 2}, {"y", 4}}), dynamic::mesh({{"x", 1}, {"y", 5}})};
  int64_t counted = 0;
  draws r{std::mt19937_64(29)};
  for (int n = 0; n < 600; ++n) {
    CAPTURE(n);
    const auto& m = meshes[n % 6];
    std::vector<int64_t> shape;
    for (int64_t d = 1 + r.below(3); d > 0; --d) shape.push_back(r.below(16) == 0 ? 0 : 1 + r.below(r.below(3) == 0 ? 300 : 6));
    const auto split = random_split(r, m, shape.size());
    const auto type = std::vector<dtype>{dtype::f32, dtype::f64, dtype::bf16, dtype::s16}[static_cast<std::size_t>(r.below(4))];
    const auto dim = static_cast<std::size_t>(r.below(static_cast<int64_t>(shape.size())));
    dynamic::builder b(m);
    const value x = b.input({type, shape, split, true, {}, monoid::add});
    const auto k = std::min<int64_t>(r.below(4), shape.back());
    switch (n / 6 % 6) {
      case 0: b.output(sort(x, static_cast<int>(dim))); break;
      case 1: b.output(argsort(x, static_cast<int>(dim))); break;
      case 2: b.output(cumsum(x, static_cast<int>(dim))); break;
      case 3: b.output(top_k(x, k).first); break;
      case 4:
      case 5: {
        const value f = b.input(dynamic::input<float>(shape, split)), i = b.input(dynamic::input<std::int32_t>(shape, split));
        if (n / 6 % 6 == 4) b.output(scan_by<sums>({f, i}, static_cast<int>(dim))[0]);
        else b.output(reduce_by<sums>({f, i}, static_cast<int>(dim))[1]);
      }
    }
    const dynamic::inspection plan(b);
    const detail::graph g = b.canonical_graph();
    const auto& listed = plan.instructions();
    for (const auto& op : listed) {
      if (op.moves) continue;
      for (const auto& node : g.nodes) {
        if (facts_of(node.op).sends == nullptr || op.kind != name_of(node.op)) continue;
        std::vector<std::pair<std::string, int64_t>> said, sent;
        const auto& lies = plan.values()[static_cast<std::size_t>(op.operands[0])].tensor.sharding();
        const auto s =
            detail::resolve(m.info(), lies.data(), static_cast<int>(lies.size()), static_cast<int>(lies.size()), {}, monoid::add);
        for (const auto& c : facts_of(node.op).sends(g, m.info().shape, node, s.value.layout))
          if (c.bytes != 0) said.emplace_back(name_of(c.what), c.bytes);
        for (const auto& i : listed)
          if (i.is_inside && i.bytes != 0) sent.emplace_back(i.kind, i.bytes);
        std::sort(said.begin(), said.end());
        std::sort(sent.begin(), sent.end());
        CHECK(said == sent);
        counted += static_cast<int64_t>(said.size());
      }
    }
  }
  CHECK(counted > 300);
}

TEST_CASE("what cannot be sorted or reduced together is refused") {
  struct counts {
    using values = std::tuple<std::int32_t>;
    static constexpr values identity() { return {0}; }
    static constexpr values combine(values a, values b) { return {std::get<0>(a) + std::get<0>(b)}; }
  };
  const auto of = [](auto make) {
    return caught::error_of([&] {
      dynamic::builder b(dynamic::mesh({{"x", 2}}));
      const value x = b.input(dynamic::input<float>({4, 6}, {"", "x"})), y = b.input(dynamic::input<float>({6}, {"x"}));
      make(x, y);
      b.output(x);
      static_cast<void>(b.compile());
    });
  };
  const auto says = [](const std::string& text, const char* op, const char* what) {
    CHECK_MESSAGE(text.find("gspmd: " + std::string(op)) == 0, text);
    CHECK_MESSAGE(text.find(what) != std::string::npos, text);
  };
  says(of([](value x, value) { sort(x, 2); }), "sort", "dim 2 is not a dim of [4,6]");
  says(of([](value x, value) { argsort(x, -3); }), "argsort", "dim -3 is not a dim of [4,6]");
  says(of([](value x, value y) { sort_together({x, y}, 1); }), "sort_together", "have the shapes [4,6] and [6]");
  says(of([](value x, value) {
         sort_together({x, x}, 3);
       }),
       "sort_together", "sorts 2 tensors by 3; the number of keys is from 1");
  says(of([](value x, value) { reduce_by<counts>({x}, 0); }), "reduce_by", "tensor 0 is f32 and element 0 of the monoid is s32");
  says(of([](value x, value) { scan_by<counts>({x}, 5); }), "scan_by", "dim 5 is not a dim of [4,6]");
  says(of([](value x, value) { norm(x, 0.5, {}); }), "norm", "p is less than 1");
}

}  // namespace
