// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Gather and scatter with all dimension numbers of StableHLO, on random meshes and shardings, compared element by
// element with the specification.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include "support/any_backend.hpp"
#include "support/error_of.hpp"
#include "support/random_split.hpp"
#include "support/reference.hpp"

namespace {

using namespace gspmd;
using reference::any_backend;
using reference::draws;
using reference::host_array;
using reference::index_numbers;
using reference::random_split;
using std::int64_t;
using list = std::vector<int64_t>;

/// Returns numbers whose sums are exact, and some that a sum cannot hide.
template <class T>
T number(draws& r) {
  if constexpr (std::is_same_v<T, bool>) return r.below(2) == 1;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(r.below(9) == 0 ? std::numeric_limits<T>::min() : static_cast<T>(r.below(100) - 50));
  else return r.below(40) == 0 ? std::numeric_limits<T>::quiet_NaN() : static_cast<T>(r.below(100) - 50) / T(8);
}
/// The elements of an array in the library's type.
template <class T>
struct buffer {
  std::unique_ptr<T[]> of;
  explicit buffer(const host_array& a) : of(new T[a.size() + 1]) {
    for (std::size_t i = 0; i < a.size(); ++i) of[i] = static_cast<T>(a.floating() ? a.reals[i] : static_cast<double>(a.ints[i]));
    if constexpr (std::is_integral_v<T>)
      for (std::size_t i = 0; i < a.size(); ++i) of[i] = static_cast<T>(a.ints[i]);
  }
};
template <class T>
host_array drawn(draws& r, const list& shape) {
  host_array a(detail::dtype_of<T>(), shape);
  for (auto& x : a.reals) x = static_cast<double>(number<T>(r));
  for (auto& x : a.ints) x = static_cast<int64_t>(number<T>(r));
  return a;
}
template <class T>
bool same(const T* got, const host_array& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      const auto e = static_cast<T>(expected.reals[i]);
      if (!(got[i] == e || (e != e && got[i] != got[i]))) return false;
    } else if (got[i] != static_cast<T>(expected.ints[i])) {
      return false;
    }
  }
  return true;
}

/// Random dimension numbers: each dim of the table is collapsed, a batch dim or inside of a slice.
struct drawn_case {
  index_numbers n;
  list table, indices, slices;
};
drawn_case random_case(draws& r) {
  drawn_case c;
  const int64_t sizes[] = {1, 2, 3, 4, 5, 7};
  const int64_t rank = 1 + r.below(3), lookups = r.below(3);
  list kinds;
  for (int64_t d = 0; d < rank; ++d) {
    c.table.push_back(sizes[r.below(6)]);
    kinds.push_back(r.below(5));  // 0: a batch, 1, 2: collapsed, otherwise inside
  }
  list batch_of(static_cast<std::size_t>(lookups), -1);
  for (int64_t k = 0; k < lookups; ++k)  // dims of the indices without their columns
    for (int64_t d = 0; d < rank && batch_of[static_cast<std::size_t>(k)] < 0; ++d)
      if (kinds[static_cast<std::size_t>(d)] == 0 && r.below(2) == 0)
        batch_of[static_cast<std::size_t>(k)] = d, kinds[static_cast<std::size_t>(d)] = 9;
  list looked_up;
  for (int64_t d = 0; d < rank; ++d) {
    auto& kind = kinds[static_cast<std::size_t>(d)];
    if (kind == 0) kind = 1;
    if (kind != 9 && (kind <= 2 ? r.below(8) > 0 : r.below(3) > 0)) looked_up.push_back(d);
  }
  std::shuffle(looked_up.begin(), looked_up.end(), r.engine);
  c.n.columns = looked_up;
  for (int64_t k = 0; k < lookups; ++k) {
    const auto b = batch_of[static_cast<std::size_t>(k)];
    c.indices.push_back(b >= 0 ? c.table[static_cast<std::size_t>(b)] : r.below(12) == 0 ? 0 : sizes[r.below(6)]);
  }
  const bool has_vector = looked_up.size() != 1 || r.below(2) == 0;
  c.n.vector_dim = has_vector ? r.below(lookups + 1) : lookups;
  const list free = c.indices;
  if (has_vector)
    c.indices.insert(c.indices.begin() + static_cast<std::ptrdiff_t>(c.n.vector_dim), static_cast<int64_t>(looked_up.size()));
  for (int64_t k = 0; k < lookups; ++k)
    if (const auto b = batch_of[static_cast<std::size_t>(k)]; b >= 0) {
      c.n.table_batch.push_back(b);
      c.n.index_batch.push_back(has_vector && k >= c.n.vector_dim ? k + 1 : k);
    }
  list inside;
  for (int64_t d = 0; d < rank; ++d) {
    const auto kind = kinds[static_cast<std::size_t>(d)], size = c.table[static_cast<std::size_t>(d)];
    c.n.slice_sizes.push_back(kind == 9 || kind <= 2 ? 1 : r.below(2) == 0 ? size : r.below(10) == 0 ? 0 : 1 + r.below(size));
    if (kind == 1 || kind == 2) c.n.collapsed.push_back(d);
    else if (kind != 9) inside.push_back(c.n.slice_sizes.back());
  }
  const auto out = free.size() + inside.size();
  list places(out);
  for (std::size_t d = 0; d < out; ++d) places[d] = static_cast<int64_t>(d);
  std::shuffle(places.begin(), places.end(), r.engine);
  places.resize(inside.size());
  std::sort(places.begin(), places.end());
  c.n.window = places;
  std::size_t next = 0, from = 0;
  for (std::size_t d = 0; d < out; ++d) {
    if (reference::holds(places, static_cast<int64_t>(d))) c.slices.push_back(inside[next++]);
    else c.slices.push_back(free[from++]);
  }
  c.n.clips = r.below(2) == 0;
  return c;
}

/// Returns true if a slice is not inside the table.
bool lies_outside(const drawn_case& c, const host_array& at) {
  auto n = c.n;
  n.clips = false;
  bool any = false;
  reference::for_each_index(
      c.slices, [&](const reference::index& place) { any = any || !reference::place_in_table(n, c.table, at, place); });
  return any;
}

template <class T, class Index>
void try_once(std::uint64_t seed, const dynamic::mesh& m, const any_backend& backend) {
  CAPTURE(seed);
  draws r{std::mt19937_64(seed)};
  const auto c = random_case(r);
  const auto& n = c.n;
  const bool may_fail = n.clips && r.below(3) == 0;
  const auto beyond = may_fail ? out_of_range::error : n.clips ? out_of_range::clip : out_of_range::fill;
  const auto what = r.below(3);  // gather, scatter, scatter that replaces elements
  const auto x = drawn<T>(r, c.table);
  host_array at(detail::dtype_of<Index>(), c.indices);
  for (auto& i : at.ints) i = r.below(12) == 0 ? std::numeric_limits<Index>::min() : r.below(11) - 2;
  auto updates = drawn<T>(r, c.slices);
  const auto uniform = updates.size() == 0 ? 0 : r.below(4);  // 1: a constant, 2: one number for all updates
  if (uniform == 1 || uniform == 2) {
    if (!updates.reals.empty()) std::fill(updates.reals.begin(), updates.reals.end(), updates.reals[0]);
    if (!updates.ints.empty()) std::fill(updates.ints.begin(), updates.ints.end(), updates.ints[0]);
  }
  const monoid kinds[] = {monoid::add, monoid::max, monoid::min, monoid::multiply, monoid::or_, monoid::and_};
  monoid kind = kinds[r.below(std::is_floating_point_v<T> ? 3 : 6)];  // products of floats are rounded
  if (std::is_same_v<T, bool> && (kind == monoid::add || kind == monoid::multiply)) kind = monoid::or_;

  dynamic::builder b(m);
  b.allow_replication();
  const value in = b.input(dynamic::input<T>(c.table, random_split(r, m, c.table.size())));
  const value indices = b.input(dynamic::input<Index>(c.indices, random_split(r, m, c.indices.size())));
  const value given = uniform == 2 ? b.input(dynamic::input<T>({}, {}))
                                   : b.input(dynamic::input<T>(c.slices, random_split(r, m, c.slices.size())));
  value brought = uniform == 2 ? broadcast_to(given, c.slices) : given;
  if (uniform == 1)
    brought = updates.reals.empty() ? b.constant(updates.type, c.slices, updates.ints[0])
                                    : b.constant(updates.type, c.slices, updates.reals[0]);
  const gather_dims dims{n.window, n.collapsed, n.table_batch, n.index_batch, n.columns, n.vector_dim};
  const scatter_dims to{n.window, n.collapsed, n.table_batch, n.index_batch, n.columns, n.vector_dim};
  host_array expected(x.type, what == 0 ? c.slices : c.table);
  value made;
  if (what == 0) {
    made = gather(in, indices, dims, n.slice_sizes, beyond, 1);
    reference::naive_gather(n, x, at, 1, 1, expected);
  } else if (what == 1) {
    made = scatter(in, indices, brought, to, kind, beyond);
    expected = x;
    reference::naive_scatter(n, at, updates, expected, [&](std::size_t put, std::size_t from) {
      if (x.floating()) expected.reals[put] = reference::combine(kind, expected.reals[put], updates.reals[from]);
      else expected.ints[put] = reference::combine(kind, x.type, expected.ints[put], updates.ints[from]);
    });
  } else {
    made = scatter(in, indices, brought, to, beyond);
    expected = x;
    reference::naive_scatter(n, at, updates, expected, [&](std::size_t put, std::size_t from) {
      if (x.floating()) expected.reals[put] = updates.reals[from];
      else expected.ints[put] = updates.ints[from];
    });
  }
  const auto wanted = random_split(r, m, static_cast<std::size_t>(made.rank()));
  const bool says = r.below(2) == 0;
  b.output(says ? b.reshard(made, wanted) : made);
  const auto p = b.compile();
  const buffer<T> x_data(x), update_data(updates);
  const buffer<Index> index_data(at);
  const auto run = [&] {
    return backend.run(p, std::vector<const void*>{x_data.of.get(), index_data.of.get(), update_data.of.get()});
  };
  if (may_fail && lies_outside(c, at)) {
    const auto text = caught::error_of([&] { run(); });
    CHECK_MESSAGE(text.find(what == 0 ? "gspmd: gather" : "gspmd: scatter") == 0, text);
    CHECK_MESSAGE(text.find("is outside of dim ") != std::string::npos, text);
    return;
  }
  const auto results = run();
  CHECK(same(results[0].template data<T>(), expected));
}

void try_all(const any_backend& backend, const std::vector<dynamic::mesh>& meshes, std::uint64_t count) {
  for (std::uint64_t seed = 0; seed < count; ++seed)
    for (const auto& m : meshes) {
      try_once<double, int64_t>(5 * seed, m, backend);
      try_once<float, std::int32_t>(5 * seed + 1, m, backend);
      try_once<std::int32_t, std::int32_t>(5 * seed + 2, m, backend);
      try_once<int64_t, int64_t>(5 * seed + 3, m, backend);
      try_once<bool, std::int32_t>(5 * seed + 4, m, backend);
    }
}

TEST_CASE("gather and scatter are what StableHLO says, on every mesh") {
  try_all(simulated{},
          {dynamic::mesh({{"x", 2}}), dynamic::mesh({{"x", 2}, {"y", 3}}), dynamic::mesh({{"x", 8}}), dynamic::mesh({{"x", 1}})},
          60);
  try_all(threads{}, {dynamic::mesh({{"x", 2}, {"y", 2}})}, 12);
}

TEST_CASE("a split table is not gathered: what is sent is the result, or its own part of the gradient") {
  const dynamic::mesh m({{"x", 4}});
  const auto bytes = [&](auto make) {
    dynamic::builder b(m);
    const value table = b.input(dynamic::input<float>({1024, 8}, {"x", ""}));
    const value ids = b.input(dynamic::input<std::int32_t>({64}, {"x"}));
    b.output(make(b, table, ids));
    return b.compile().traffic().bytes;
  };
  // The indices are gathered on all devices (64 of 4 bytes, 3/4 sent). The partial rows are sent to their devices: 64
  // rows of 32 bytes, 3/4 sent.
  CHECK(bytes([](auto& b, value table, value ids) { return b.reshard(embedding(table, ids), {"x", ""}); }) == 3 * 64 + 3 * 512);
  // Each device adds the rows that belong to its part. The split rows are gathered on all devices.
  CHECK(bytes([](auto& b, value table, value ids) {
          const value loss = sum(embedding(table, ids) * embedding(table, ids));
          return b.reshard(grad(loss, table), {"x", ""});
        }) <= 3 * 64 + 2 * 3 * 512);
  // Counts of split bins: an all_reduce of 8 numbers.
  CHECK(bytes([](auto&, value, value ids) { return histogram(ids, 8); }) == 2 * 3 * 8);
  // A slice of a split dim: an all_reduce of 4 rows.
  CHECK(bytes([](auto& b, value table, value) {
          const value at = b.input(dynamic::input<std::int32_t>({}, {}));
          return dynamic_slice(table, std::array{at, at}, {4, 8});
        }) == 2 * 3 * 32);
}

template <class T>
array<T> filled(std::initializer_list<std::int64_t> shape, std::initializer_list<T> numbers) {
  array<T> a(shape);
  std::copy(numbers.begin(), numbers.end(), a.data());
  return a;
}

constexpr auto looked_up = [](value table, value ids, value w) {
  const value rows = embedding(table, ids);
  const value loss = sum(rows * w);
  const auto [values, where] = top_k(cumsum(rows, 0), 2);
  const value added = scatter_add(table, ids, rows);
  return std::tuple{grad(loss, table), values, where, added, sort(added, 0, {.descending = true})};
};

TEST_CASE("a compiled program looks rows up and adds up their gradients") {
  using devices = mesh<axis<"x", 2>>;
  using step = compile<looked_up, devices, input<float, shape<5, 3>, split<"x", _>>, input<std::int32_t, shape<4>, split<_>>,
                       input<float, shape<4, 3>, split<_, _>>>;
  const auto table = filled<float>({5, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14});
  const auto ids =
      filled<std::int32_t>({4}, {4, 0, 9, 4});  // the third index is clamped to the last row by the lookup, and ignored by
                                                // the sum
  const auto w = filled<float>({4, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const auto [g, values, where, added, sorted] = run<step>(threads{}, table, ids, w);
  const float expected[] = {4, 5, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 18, 21, 24};
  const float sums[] = {14, 13, 16, 14, 30, 27, 44, 40};
  const std::int32_t places[] = {2, 1, 2, 1, 2, 1, 2, 1};
  const float more[] = {0, 2, 4, 3, 4, 5, 6, 7, 8, 9, 10, 11, 36, 39, 42};
  for (int i = 0; i < 15; ++i) CHECK(g.data()[i] == expected[i]);
  for (int i = 0; i < 8; ++i) CHECK(values.data()[i] == sums[i]);
  for (int i = 0; i < 8; ++i) CHECK(where.data()[i] == places[i]);
  for (int i = 0; i < 15; ++i) CHECK(added.data()[i] == more[i]);
  for (int i = 0; i < 15; ++i) CHECK(sorted.data()[i] == more[12 - i / 3 * 3 + i % 3]);
}

// The table is computed in a loop that only the sum reads, and the scatter becomes this sum.
TEST_CASE("rows are added to a table that is computed") {
  const auto p = dynamic::compile([](value table, value ids, value rows) { return scatter_add(table * 2.0 + 1.0, ids, rows); },
                                  dynamic::mesh({{"x", 2}}), dynamic::input<double>({4, 2}, {"x", ""}),
                                  dynamic::input<std::int32_t>({2}), dynamic::input<double>({2, 2}));
  const std::vector<double> table{1, 2, 3, 4, 5, 6, 7, 8}, rows{10, 20, 30, 40},
      wanted{3, 5, 7, 9, 11 + 30, 13 + 40, 15 + 10, 17 + 20};
  const std::vector<std::int32_t> ids{3, 2};
  const auto found = p.run(simulated{}, table, ids, rows);
  for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(found[0].data<double>()[i] == wanted[i]);
}

/// Results of all functions that take indices, for five indices and a start, which is the first index.
constexpr auto everything_looked_up = [](value x, value i) {
  const value start = reshape(slice(i, {0}, {1}), {}), zero = constant<std::int32_t>(x, {}, 0);
  const value rows = take(x, i, 0), one = constant<double>(x, {1, 2}, 0.5);
  return std::array{
      rows,
      take(x, i, 0, out_of_range::fill, -1.0),
      take_along_axis(x, broadcast_to(expand_dims(i, 1), {5, 2}), 0),
      gather(x, i, {.offset_dims = {1, 2}, .start_index_map = {0}, .index_vector_dim = 1}, {3, 2}),
      scatter_add(x, i, rows),
      scatter_add(x, i, rows, 0, monoid::max, out_of_range::clip),
      scatter(
          x, i, rows,
          {.update_window_dims = {1}, .inserted_window_dims = {0}, .scatter_dims_to_operand_dims = {0}, .index_vector_dim = 1},
          out_of_range::clip),
      segment_sum(rows, i, 7),
      dynamic_slice(x, std::array{start, zero}, {2, 2}),
      dynamic_update_slice(x, one, std::array{start, zero}),
      one_hot<double>(i, 7),
      one_hot<double>(i, 300),
      cast<double>(histogram(detail::bytes_of(i.type()) < 4 ? cast<std::int32_t>(i) : i, 7))};
};
template <class T>
void check_indices_of(const std::vector<T>& named) {
  std::vector<std::int64_t> wide;  // the same indices as s64; larger indices become the largest s64
  for (const T i : named) wide.push_back(std::in_range<std::int64_t>(i) ? static_cast<std::int64_t>(i) : INT64_MAX);
  const std::vector<double> x{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (const auto& m : {dynamic::mesh({{"x", 1}}), dynamic::mesh({{"x", 2}})}) {
    const auto results = [&](const auto& indices) {
      using element = std::remove_cvref_t<decltype(indices[0])>;
      const auto p =
          dynamic::compile(everything_looked_up, m, dynamic::input<double>({5, 2}, {"x", ""}), dynamic::input<element>({5}));
      return p.run(simulated{}, x, indices);
    };
    const auto found = results(named), wanted = results(wide);
    for (std::size_t k = 0; k < wanted.size(); ++k) CHECK_MESSAGE(found[k].bytes == wanted[k].bytes, "result ", k);
  }
}
TEST_CASE("indices of every integer type name the elements that those of s64 name, also beyond s32 and s64") {
  constexpr std::uint64_t half = std::uint64_t{1} << 63;
  check_indices_of<std::uint64_t>({half + 1, 3, ~std::uint64_t{0}, 0, std::uint64_t{1} << 32});
  check_indices_of<std::uint64_t>({4, 0, half, half - 1, 1});
  check_indices_of<std::uint32_t>({0x80000001, 3, 0xffffffff, 0, 2});
  check_indices_of<std::uint8_t>({255, 3, 1, 0, 6});
  check_indices_of<std::int8_t>({-128, 3, 127, 0, -1});
  check_indices_of<std::int16_t>({-32768, 3, 32767, 0, -1});
  const auto fails = [](auto f) { return caught::error_of([&] { f(); }); };
  const auto strict =
      dynamic::compile([](value x, value i) { return take(x, i, 0, out_of_range::error); }, dynamic::mesh({{"x", 2}}),
                       dynamic::input<double>({4}, {"x"}), dynamic::input<std::uint64_t>({2}));
  const std::vector<double> x{1, 2, 3, 4};
  CHECK(caught::contains(fails([&] {
                           static_cast<void>(strict.run(simulated{}, x, std::vector<std::uint64_t>{1, half}));
                         }),
                         "index 9223372036854775807 or more is outside of dim 0, whose extent is 4"));
  CHECK(strict.run(simulated{}, x, std::vector<std::uint64_t>{1, 3})[0].data<double>()[1] == 4);
  // The number of iterations of a loop is an index too.
  const auto counted = dynamic::compile(
      [](value n) {
        return fori_loop(
            n, [](value, value c) { return c + 1; }, constant<std::int32_t>(n, {}, 0));
      },
      dynamic::mesh({{"x", 1}}), dynamic::input<std::uint64_t>({}));
  CHECK(counted.run(serial{}, std::vector<std::uint64_t>{5})[0].data<std::int32_t>()[0] == 5);
}

// A separate step for the sum would read and write the whole table in every iteration.
constexpr auto added_up = [](value table, value ids, value rows) {
  return fori_loop(
      8, [=](value, value t) { return scatter_add(t, ids, rows); }, table);
};
TEST_CASE("equal updates are one number in memory, also where only the device knows which part it has") {
  constexpr auto counted = [](value ids, value rows) {
    return std::pair(histogram(ids, 5), scatter_add(rows, ids, broadcast_to(sum(rows), {1000, 4})));
  };
  using step =
      compile<counted, mesh<axis<"x", 3>>, input<std::int32_t, shape<1000>, split<"x">>, input<double, shape<7, 4>, split<_, _>>>;
  static_assert(step::view.arena_bytes < 2000);
  std::vector<std::int32_t> ids(1000);
  std::array<int, 7> count{};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>(i * i % 7) - 1;
    if (ids[i] >= 0) ++count[static_cast<std::size_t>(ids[i])];
  }
  array<double> rows({7, 4});
  std::fill_n(rows.data(), 28, 1.0);
  const auto [counts, added] = run<step>(threads{}, ids, rows);
  for (std::size_t i = 0; i < 5; ++i) CHECK(counts.data()[i] == count[i]);
  for (std::size_t i = 0; i < 28; ++i) CHECK(added.data()[i] == 1 + 28 * count[i / 4]);
}

TEST_CASE("rows are added where they are looked up: no other table is written") {
  using step = compile<added_up, mesh<axis<"x", 2>>, input<double, shape<1000, 4>, split<"x", _>>,
                       input<std::uint64_t, shape<4>, split<_>>, input<double, shape<4, 4>, split<_, _>>>;
  static_assert(step::view.arena_bytes < 1000);
  const auto table = filled<double>({1000, 4}, {1, 2, 3, 4});
  const auto ids = filled<std::uint64_t>({4}, {999, 5, 999, 0x8000000000000005});  // the last index is out of range
  const auto rows = filled<double>({4, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  const auto found = run<step>(threads{}, table, ids, rows);
  for (int i = 0; i < 4; ++i) {
    CHECK(found.data()[i] == i + 1);
    CHECK(found.data()[20 + i] == 8 * (5 + i));
    CHECK(found.data()[3996 + i] == 8 * (10 + 2 * i));
  }
}

TEST_CASE("a scatter that adds goes onto the other operand of a sum that reads it, and onto no other sum") {
  const auto f = [](value t, value ids, value rows) {
    const value apart = scatter_add(zeros_like(t), ids, rows);
    return std::tuple{apart, t + t, scatter_add(zeros_like(t), ids, rows) + t};
  };
  const auto rows_in = dynamic::input<double>({4, 2});
  const auto p = dynamic::compile(f, dynamic::mesh({{"x", 1}}), rows_in, dynamic::input<std::int32_t>({4}), rows_in);
  const std::vector<double> t(8, 1), rows(8, 3);
  const std::vector<std::int32_t> ids{0, 2, 2, 3};
  const auto found = p.run(serial{}, t, ids, rows);
  for (std::size_t i = 0; i < 8; ++i) {
    const double added = i / 2 == 1 ? 0 : i / 2 == 2 ? 6 : 3;
    CHECK(found[0].data<double>()[i] == added);
    CHECK(found[1].data<double>()[i] == 2);
    CHECK(found[2].data<double>()[i] == 1 + added);
  }
}

}  // namespace
