// SPDX-License-Identifier: Apache-2.0
// group: dynamic
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include "support/random_split.hpp"

// A reduction runs in the loop that computes its operand. The operand is not stored, and the bits equal those of a
// reduction of an array.

namespace {

using namespace gspmd;
namespace kernels = detail::kernels;
using reference::draws;
using reference::random_split;

template <class Kernel>
int count(const dynamic::program& p) {
  int n = 0;
  for (const auto& s : p.view().steps) n += detail::is<Kernel>(s) ? 1 : 0;
  return n;
}

const dynamic::mesh one({{"x", 1}});

std::int64_t arena_of(const dynamic::program& p) { return p.view().arena_bytes; }

/// Returns elements whose sums and products are exact in every type, or inexact floats.
template <class T>
std::vector<std::byte> elements_of(draws& r, const std::vector<std::int64_t>& shape, bool is_exact) {
  std::size_t n = 1;
  for (const auto e : shape) n *= static_cast<std::size_t>(e);
  std::vector<std::byte> bytes(n * sizeof(T));
  for (std::size_t i = 0; i < n; ++i) {
    const auto drawn = static_cast<float>(is_exact ? r.below(3) : r.below(1 << 20)) / (is_exact ? 1.0F : 0x1p18F);
    const auto e = static_cast<T>(drawn);
    std::memcpy(bytes.data() + i * sizeof(T), &e, sizeof(T));
  }
  return bytes;
}

struct random_reduction {
  std::vector<std::int64_t> shape, dims, spread;
  std::vector<std::int64_t> small;  // the shape of the second operand, which is broadcast to `shape`
  int function = 0, along = 0;      // 3: neighbours along this dim are combined; 4, 5: reductions that sessions compute
                                    // together with their operands
  bool has_index = false;

  random_reduction(draws& r, std::int64_t most, int functions, bool is_added_up) {
    const auto rank = 1 + r.below(4);
    for (std::int64_t d = 0; d < rank; ++d) {
      const auto kind = r.below(6);
      shape.push_back(kind == 0 ? r.below(3) : kind < 4 ? 1 + r.below(9) : 1 + r.below(most));
      while (size() > 60000) shape.back() = shape.back() / 2;
      if (r.below(2) == 0) dims.push_back(d);
      if (r.below(2) == 0) {
        spread.push_back(d);
        small.push_back(shape.back());
      }
    }
    if (dims.empty()) dims.push_back(r.below(rank));
    function = static_cast<int>(r.below(functions));
    along = static_cast<int>(r.below(rank));
    has_index = r.below(3) == 0;
    if (!is_added_up) return;  // rows of whole vector steps, one value for each, or one row
    shape.back() = 64 * (1 + r.below(r.below(4) == 0 ? 90 : 20));
    while (size() > 60000) shape.front() = shape.front() / 2;
    function = 4 + static_cast<int>(r.below(2));
    dims = {static_cast<std::int64_t>(shape.size()) - 1};
    spread.clear();
    for (std::int64_t d = 0; d < dims[0]; ++d) spread.push_back(d);
    small.assign(shape.begin(), shape.end() - 1);
    has_index = false;
  }
  [[nodiscard]] std::int64_t size() const {
    std::int64_t n = 1;
    for (const auto e : shape) n *= e;
    return n;
  }
  template <class T>
  [[nodiscard]] value computed(value x, value b) const {
    value y = broadcast_in_dim(b, shape, spread);
    if constexpr (std::is_same_v<T, bool>)
      return function == 0 ? bitwise_and(x, bitwise_not(y)) : function == 1 ? bitwise_or(x, y) : not_equal(x, y);
    if (function == 4) return (x - y) * (x - y);
    if constexpr (std::is_floating_point_v<T>)
      if (function == 5) return exp(x - y);
    if (function == 3) y = shift(x, 1, gspmd::along(along)) + shift(x, -2, gspmd::along(along), boundary::edge()) + y;
    else y = function == 0 ? x + y : function == 1 ? max(x, y) : x * y;
    if (has_index) y = y + cast<T>(min(iota<std::int32_t>(x, shape, 0), 2));
    return y;
  }
};

}  // namespace

TEST_CASE("what is reduced is not stored") {
  const auto check = [&](auto f, int loops, std::int64_t most, const char* split = "") {
    const auto p =
        dynamic::compile(f, *split == '\0' ? one : dynamic::mesh({{"x", 2}}), dynamic::input<float>({1000, 1000}, {split, ""}));
    CHECK(count<kernels::fused>(p) == loops);
    CHECK(count<kernels::reduce>(p) == 0);
    CHECK(arena_of(p) <= most);
  };
  constexpr std::int64_t block = 74 * 1024;  // 64 KiB, and rows around it
  check([](auto x) { return sum(exp(x)); }, 1, block);
  check([](auto x) { return sum(exp(x), 0); }, 1, block);
  check([](auto x) { return sum(exp(x), 1); }, 1, block);
  check([](auto x) { return mean(x * x - x); }, 2, block + 64);
  check([](auto x) { return std::tuple{sum(x), reduce(x, monoid::max), reduce(x, monoid::min)}; }, 1, 3 * block);
  // A stencil with its halo buffers. Beyond the ends of a dim that is not split, another loop writes zeros.
  const auto laplacian = [](auto x) {
    return shift(x, 1, gspmd::along(0)) + shift(x, -1, gspmd::along(0)) + shift(x, 1, gspmd::along(1), boundary::wrap()) +
           shift(x, -1, gspmd::along(1)) - 4 * x;
  };
  check([&](auto x) { return sum(laplacian(x)); }, 2, block + 3 * 4096);
  check([&](auto x) { return sum(abs(laplacian(x)), 1); }, 2, block + 3 * 4096);
  check([&](auto x) { return reduce(laplacian(x), monoid::max, {0, 1}); }, 1, block + 6 * 4096, "x");
  // exp(x - max) is computed into the result, and summed at the same time.
  const auto p = dynamic::compile([](auto x) { return softmax(x, 1); }, one, dynamic::input<float>({1000, 1000}));
  CHECK(count<kernels::fused>(p) == 2);
  CHECK(count<kernels::reduce>(p) == 1);
  CHECK(arena_of(p) <= detail::blocked_bytes + block);
}

TEST_CASE("several reductions of one value read it once, and where it is split go in one message if they are of one kind") {
  const dynamic::mesh two({{"x", 2}});
  const auto messages = [](const dynamic::program& p) {
    int n = 0;
    for (const auto& s : p.view().steps) n += detail::communicates(s) ? 1 : 0;
    return n;
  };
  const auto check = [&](auto f, int loops, int sent) {
    const auto whole = dynamic::compile(f, one, dynamic::input<float>({1000, 1000}));
    const auto split = dynamic::compile(f, two, dynamic::input<float>({1000, 1000}, {"", "x"}));
    for (const auto* p : {&whole, &split})
      if (loops > 0) {
        CHECK(count<kernels::fused>(*p) == loops);
        CHECK(count<kernels::reduce>(*p) == 0);
      }
    CHECK(messages(whole) == 0);
    CHECK(messages(split) == sent);
  };
  const auto two_of_a_loop = [](auto x) {
    const value e = exp(x);
    return std::tuple{sum(e, 1), sum(e - x, 1)};
  };
  check(two_of_a_loop, 1, 1);
  check([](auto x) { return std::tuple{sum(x, 1), sum(x * x, 1)}; }, 1, 1);  // otherwise a sum of products is a contraction
  check([](auto x) { return std::tuple{sum(x * x, 1), sum(x, 1)}; }, 1, 1);
  check([](auto x) { return std::tuple{sum(x), sum(exp(x)), reduce(x, monoid::max)}; }, 1, 2);
  check([](auto x) { return std::tuple{sum(exp(x), 1), sum(x, 1)}; }, 1, 1);
  check([](auto x) { return std::tuple{sum(x, 1), reduce(x, monoid::max, {1})}; }, 1, 2);
}

TEST_CASE("a sum over what a loop computes from a counter or from pairs holds blocks of it, not the whole") {
  constexpr std::int64_t block = 74 * 1024;
  // EP: numbers the points in a square, and counts the points in the circle.
  const auto points = dynamic::compile(
      [](auto x) {
        const value i = cast<float>(iota<std::int32_t>(x, {1 << 24}, 0));
        const value u = i * 0x1p-24 - 0.5, v = sin(i);
        return sum(where(u * u + v * v < 1.0, x, x * 0.0));
      },
      one, dynamic::input<float>({1 << 24}));
  CHECK(arena_of(points) <= 2 * block);
  // N bodies: the force on each body is a sum over all other bodies.
  const auto force = dynamic::compile(
      [](auto p) {
        const value d = broadcast_in_dim(p, {4096, 4096}, {1}) - broadcast_in_dim(p, {4096, 4096}, {0});
        return sum(d * rsqrt(d * d + 1e-3), 1);
      },
      one, dynamic::input<float>({4096}));
  CHECK(arena_of(force) <= 2 * block);
}

TEST_CASE("a reduction of an iota, a constant or a broadcast, or one that reads its operand again, stores no operand") {
  constexpr std::int64_t block = 74 * 1024, n = 600;
  const auto check = [](auto f, std::int64_t elems, const char* split = "") {
    const auto alone = dynamic::compile(f, one, dynamic::input<float>({n}), dynamic::input<float>({n}));
    const auto split_up = dynamic::compile(f, dynamic::mesh({{"x", 2}, {"y", 3}}), dynamic::input<float>({n}, {split}),
                                           dynamic::input<float>({n}, {"y"}));
    std::vector<float> x, y;
    for (int k = 0; k < n; ++k) {
      x.push_back(static_cast<float>((k * 7919) % 601));
      y.push_back(static_cast<float>((k * 104729) % 397));
    }
    const auto expected = alone.run(serial{}, x, y), found = split_up.run(simulated{}, x, y);
    for (std::size_t k = 0; k < expected.size(); ++k) CHECK(found[k].bytes == expected[k].bytes);
    for (const auto* p : {&alone, &split_up}) {
      CHECK(arena_of(*p) <= 3 * block);
      CHECK(arena_of(*p) < elems * 4 / 6);  // a shard of the sum
    }
  };
  const auto pairs = [](auto x, auto y) { return broadcast_in_dim(x, {n, n}, {0}) - broadcast_in_dim(y, {n, n}, {1}); };
  check([](auto x, auto) { return sum(cast<float>(fmod(iota<std::int32_t>(x, {1 << 21}, 0), 64))); }, 1 << 21);
  check([](auto x, auto) { return sum(iota<std::int32_t>(x, {1 << 21}, 0)); }, 1 << 21);
  check([](auto x, auto) { return reduce(broadcast_in_dim(x, {n, 4 * n}, {0}), monoid::max, {1}); }, 4 * n * n, "x");
  check([](auto x, auto) { return std::tuple{sum(broadcast_in_dim(x, {n, 4 * n}, {0}), 1), sum(x)}; }, 4 * n * n, "x");
  check([](auto x, auto) { return einsum<"ab->b">(iota<std::int32_t>(x, {4 * n, n}, 0)); }, 4 * n * n);
  // Movements that only rename indices.
  check([](auto x, auto) { return sum(transpose(iota<std::int32_t>(x, {4 * n, n}, 0), {1, 0}), 1); }, 4 * n * n);
  check([](auto x, auto) { return sum(slice(iota<std::int32_t>(x, {4 * n, n}, 0), {0, 1}, {4 * n, n}), 0); }, 4 * n * n);
  check([](auto x, auto) { return sum(reshape(iota<std::int32_t>(x, {4 * n, n}, 0), {4 * n, 4, n / 4}), 1); }, 4 * n * n);
  check([](auto x, auto) { return sum(reshape(iota<std::int32_t>(x, {4 * n, n}, 0), {4 * n * n})); }, 4 * n * n);
  check(
      [](auto x, auto) {
        return reduce(transpose(broadcast_in_dim(x, {n, 4 * n}, {0}), {1, 0}), monoid::max, {0});
      },
      4 * n * n, "x");
  check([](auto x, auto) { return reduce(flip(broadcast_in_dim(x, {n, 4 * n}, {0}), {1}), monoid::max, {1}); }, 4 * n * n, "x");
  check([](auto x, auto) { return sum(flip(broadcast_in_dim(zeros_like(x) + 2.0F, {n, 4 * n}, {0}), {0, 1}), 1); }, 4 * n * n);
  // The reduction is split over y too, though the broadcast is replicated over y.
  check([](auto x, auto) { return reduce(broadcast_in_dim(x, {n, 4 * n}, {0}), monoid::max, {0}); }, 4 * n * n, "x");
  // The largest element, and then its position. If the dim is split, an all_reduce is between the two.
  check([&](auto x, auto y) { return argmax(pairs(x, y), 1); }, n * n, "x");
  check([&](auto x, auto y) { return argmin(abs(pairs(x, y)), 0); }, n * n, "x");
  check([&](auto x, auto y) { return argmax(exp(pairs(x, y) * 0.01F) + 1.0F, 1); }, n * n, "x");
  check(
      [&](auto x, auto y) {
        value d = pairs(x, y);
        for (int k = 0; k < 10; ++k) d = d * 0.5F + 1.0F;
        return argmin(d, 0);
      },
      n * n, "x");
  check(
      [&](auto x, auto y) {
        const value d = pairs(x, y), largest = reduce(d, monoid::max, {1});
        return sum(min(d - broadcast_in_dim(largest, {n, n}, {0}), 1.0F), 1);
      },
      n * n, "x");
}

TEST_CASE("an annotated iota or broadcast is computed again in another sharding, and not sent") {
  dynamic::builder b(dynamic::mesh({{"x", 2}}));
  const value a = b.input(dynamic::input<float>({8, 8}, {"", "x"})), v = b.input(dynamic::input<float>({8}, {""}));
  for (const value source : {iota<float>(a, {8, 8}, 0), broadcast_in_dim(v, {8, 8}, {0})}) {
    const value by_rows = b.reshard(source, {"x", ""});
    b.output(by_rows);
    b.output(b.reshard(a * by_rows, {"", "x"}));
  }
  CHECK(b.compile().traffic().bytes == 0);
}

namespace {
/// A constant, an iota or a broadcast, followed by movements.
struct moved_source {
  using list = std::vector<std::int64_t>;
  struct movement {
    std::int64_t kind;
    list a, b, c;
  };
  std::int64_t kind;
  list shape, moved, small, spread, reduced;
  std::vector<movement> movements;

  explicit moved_source(draws& r) : kind(r.below(3)) {
    for (auto rank = 1 + r.below(3); rank > 0; --rank) shape.push_back(r.below(5) == 0 ? r.below(2) : 1 + r.below(8));
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (r.below(2) == 0) continue;
      spread.push_back(static_cast<std::int64_t>(d));
      small.push_back(r.below(4) == 0 ? 1 : shape[d]);
    }
    moved = shape;
    for (auto k = r.below(4); k >= 0; --k) add_movement(r);
    for (std::size_t d = 0; d < moved.size(); ++d)
      if (r.below(2) == 0) reduced.push_back(static_cast<std::int64_t>(d));
  }
  void add_movement(draws& r) {
    const auto d = static_cast<std::size_t>(r.below(static_cast<std::int64_t>(moved.size())));
    const std::int64_t extent = moved[d], dim = static_cast<std::int64_t>(d);
    movement m{r.below(6), list(moved.size()), moved, list(moved.size(), 1)};
    if (m.kind == 0) {
      for (std::size_t k = 0; k < moved.size(); ++k) m.a[k] = static_cast<std::int64_t>(k);
      std::shuffle(m.a.begin(), m.a.end(), r.engine);
      for (std::size_t k = 0; k < moved.size(); ++k) moved[k] = m.b[static_cast<std::size_t>(m.a[k])];
    } else if (m.kind == 1) {
      const auto at = moved.begin() + dim;
      if (const auto part = 1 + r.below(3); r.below(2) == 0 && extent % part == 0) {
        *at = extent / part;
        moved.insert(at + r.below(2), part);
      } else if (d + 1 < moved.size()) {
        *at *= *(at + 1);
        moved.erase(at + 1);
      }
      m.a = moved;
    } else if (m.kind == 2) {
      m.a[d] = r.below(extent + 1);
      m.b[d] = m.a[d] + r.below(extent - m.a[d] + 1);
      m.c[d] = 1 + r.below(2);
      moved[d] = (m.b[d] - m.a[d] + m.c[d] - 1) / m.c[d];
    } else if (m.kind == 3) {
      m.a = {dim};
    } else if (m.kind == 4) {
      m.a[d] = 1;
      ++moved[d];
    } else {
      m.a = {r.below(7) - 3, dim};
    }
    movements.push_back(m);
  }
  template <class T>
  [[nodiscard]] value made(dynamic::builder& b, value x) const {
    if (kind == 0) return b.constant(detail::dtype_of<T>(), shape, 2);
    return kind == 1 ? iota<T>(x, shape, static_cast<int>(spread.empty() ? 0 : spread[0])) : broadcast_in_dim(x, shape, spread);
  }
  [[nodiscard]] value after_movements(value v) const {
    for (const auto& m : movements) {
      switch (m.kind) {
        case 0: v = transpose(v, m.a); break;
        case 1: v = allow_replication(reshape(v, m.a)); break;
        case 2: v = slice(v, m.a, m.b, m.c); break;
        case 3: v = flip(v, m.a); break;
        case 4: v = pad(v, m.a, list(m.a.size()), 1); break;
        default: v = roll(v, m.a[0], gspmd::along(m.a[1]));
      }
    }
    return v;
  }
};

/// Returns true if the program moves no elements, and a program that moves an input with the same elements does.
template <class T>
bool compare_moved(std::uint64_t seed, const dynamic::mesh& m) {
  draws r{std::mt19937_64(seed)};
  const moved_source f(r);
  const auto kind = std::is_same_v<T, bf16> || r.below(2) == 0 ? monoid::max : monoid::add;
  const auto small = elements_of<T>(r, f.small, true);
  const bool also_stores = r.below(3) == 0;
  auto split = random_split(r, m, f.small.size());
  for (std::size_t d = 0; d < split.size(); ++d)
    if (f.small[d] == 1) split[d].clear();
  const auto in = dynamic::input<T>(f.small, split);
  const auto add_outputs = [&](dynamic::builder& b, value v) {
    v = f.after_movements(v);
    b.output(reduce(v, kind, f.reduced));
    if (also_stores) b.output(v);
  };
  dynamic::builder source(one), made(m), moved(m);
  source.output(f.template made<T>(source, source.input(dynamic::input<T>(f.small))));
  add_outputs(made, f.template made<T>(made, made.input(in)));
  add_outputs(moved, moved.input(dynamic::input<T>(f.shape, random_split(r, m, f.shape.size()))));
  const auto elements = source.compile().run(simulated{}, {small.data()})[0];
  const auto program = made.compile(), reference = moved.compile();
  const auto got = program.run(simulated{}, {small.data()});
  const auto want = reference.run(simulated{}, {elements.bytes.data()});
  for (std::size_t k = 0; k < want.size(); ++k) CHECK_MESSAGE(got[k].bytes == want[k].bytes, "seed ", seed, " output ", k);
  const auto movements = [](const auto& p) { return count<kernels::move>(p) + count<kernels::permute>(p); };
  return movements(program) == 0 && movements(reference) > 0;
}
}  // namespace

TEST_CASE("movements of constants, iotas and broadcasts have the elements of movements of an array") {
  const dynamic::mesh meshes[] = {one, dynamic::mesh({{"x", 2}}), dynamic::mesh({{"x", 3}}), dynamic::mesh({{"x", 2}, {"y", 2}})};
  int unmoved = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const auto& m = meshes[seed % 4];
    const bool is_unmoved = seed % 3 == 0   ? compare_moved<float>(seed, m)
                            : seed % 3 == 1 ? compare_moved<std::int32_t>(seed, m)
                                            : compare_moved<bf16>(seed, m);
    unmoved += is_unmoved ? 1 : 0;
  }
  CHECK(unmoved > 100);
}

namespace {
std::size_t programs_with_some = 0, several = 0, stored = 0;

/// Compares sums and maxima of computed values. One program may reduce them while it computes them. Two other programs
/// store an array and read it.
template <class T>
void compare(std::uint64_t seed, const dynamic::mesh& m, bool is_even, bool is_added_up = false) {
  draws r{std::mt19937_64(seed)};
  // (Exponentials are not exact, so their sum depends on the sharding.)
  const random_reduction f(r, seed % 16 == 0 ? 30000 : 300, is_even && std::is_floating_point_v<T> ? 6 : 5, is_added_up);
  const auto split = is_even ? std::vector<std::string>(f.shape.size()) : random_split(r, m, f.shape.size());
  constexpr bool is_pred = std::is_same_v<T, bool>;
  // (The sum of many bf16 depends on the rounding, and so on the sharding of its operand.)
  const bool has_sum = is_even || !std::is_same_v<T, bf16>;
  const monoid first = is_pred ? monoid::or_ : has_sum ? monoid::add : monoid::min, second = is_pred ? monoid::and_ : monoid::max;
  const bool also_stores = r.below(3) == 0, has_two = !is_added_up && r.below(2) == 0,
             reads_one = !is_added_up && r.below(3) == 0;
  const auto x = elements_of<T>(r, f.shape, !is_even), b = elements_of<T>(r, f.small, !is_even);
  const auto in = dynamic::input<T>(f.shape, split), small = dynamic::input<T>(f.small);
  const auto reduce_to = [&](dynamic::builder& to, value y) {
    to.output(reduce(y, first, f.dims));
    if (has_two) to.output(reduce(y, second, f.dims));
  };
  const auto compute = [&](dynamic::builder& in_program) {
    const value v = in_program.input(in), w = in_program.input(small);
    return f.template computed<T>(v, w);
  };
  dynamic::builder computing(m), reading(m), reducing(m);
  computing.output(compute(computing));
  reduce_to(reading, reading.input(in));
  const value v = reducing.input(in), w = reducing.input(small), y = f.template computed<T>(v, w);
  reduce_to(reducing, y);
  if (reads_one) reducing.output(reduce(v, second, f.dims));  // of an operand of the loop
  if (also_stores) reducing.output(y);
  const auto computed = computing.compile(), read = reading.compile(), reduced = reducing.compile();
  std::size_t reductions = 0;
  for (const auto& g : detail::table_of<detail::planned_group>(reduced.view())) {
    reductions += static_cast<std::size_t>(g.reductions.count);
    several += g.reductions.count > 1 ? 1 : 0;
    stored += g.reductions.count > 0 && g.stores.count > g.reductions.count ? 1 : 0;
  }
  programs_with_some += reductions > 0 ? 1 : 0;
  const auto got = reduced.run(simulated{}, {x.data(), b.data()});
  const auto stored_y = computed.run(simulated{}, {x.data(), b.data()})[0];
  const auto together = read.run(simulated{}, {stored_y.bytes.data()});
  for (std::size_t k = 0; k < together.size(); ++k) {
    dynamic::builder alone(m);
    alone.output(reduce(alone.input(in), k == 0 ? first : second, f.dims));
    const auto want = alone.compile().run(simulated{}, {stored_y.bytes.data()})[0];
    CHECK_MESSAGE(got[k].bytes == want.bytes, "seed ", seed, " output ", k);
    CHECK_MESSAGE(together[k].bytes == want.bytes, "seed ", seed, " output ", k);
  }
  if (reads_one) {
    dynamic::builder alone(m);
    alone.output(reduce(alone.input(in), second, f.dims));
    const auto want = alone.compile().run(simulated{}, {x.data()})[0];
    CHECK_MESSAGE(got[together.size()].bytes == want.bytes, "seed ", seed, " of an input");
  }
  if (also_stores) CHECK_MESSAGE(got.back().bytes == stored_y.bytes, "seed ", seed);
}
}  // namespace

TEST_CASE("reductions by the loop that computes their operand have the bits of those of an array") {
  const dynamic::mesh meshes[] = {dynamic::mesh({{"x", 3}}), dynamic::mesh({{"x", 2}, {"y", 2}})};
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const bool is_even = seed % 3 == 0;
    const auto& m = is_even ? one : meshes[seed % 2];
    switch (seed / 3 % 6) {
      case 0: compare<float>(seed, m, is_even); break;
      case 1: compare<double>(seed, m, is_even); break;
      case 2: compare<std::int32_t>(seed, m, is_even); break;
      case 3: compare<bf16>(seed, m, is_even); break;
      case 4: compare<std::uint8_t>(seed, m, is_even); break;
      default: compare<bool>(seed, m, is_even);
    }
  }
  CHECK(programs_with_some > 100);
  CHECK(several > 30);
  CHECK(stored > 20);
}

TEST_CASE("sums that sessions make while they compute have the bits of those of an array") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    compare<float>(seed, one, true, true);
    compare<double>(seed, one, true, true);
  }
}

namespace {
constexpr auto roughness = [](auto x) {
  const value y = shift(x, 1, gspmd::along(0)) * 0.5F + shift(x, -3, gspmd::along(0), boundary::wrap()) - x;
  return std::tuple{sum(y), reduce(abs(y), monoid::max), sum(x), sum(x * x)};
};
}  // namespace

TEST_CASE("a compiled step reduces what a stencil computes and what it reads, bit for bit as a session does") {
  using step = compile<roughness, mesh<axis<"x", 3>>, input<float, shape<77>, split<"x">>>;
  array<float> x({77});
  for (std::int64_t i = 0; i < 77; ++i) x.data()[i] = static_cast<float>(i * i % 31) / 7.0F;
  const auto want =
      dynamic::compile(roughness, dynamic::mesh({{"x", 3}}), dynamic::input<float>({77}, {"x"})).run(simulated{}, x);
  const auto got = run<step>(threads{}, x);
  const float all[] = {*std::get<0>(got).data(), *std::get<1>(got).data(), *std::get<2>(got).data(), *std::get<3>(got).data()};
  for (std::size_t k = 0; k < 4; ++k) CHECK(all[k] == *want[k].data<float>());
  int made = 0;
  for (const auto& g : detail::table_of<detail::planned_group>(step::view)) made += g.margins.count > 0 ? g.reductions.count : 0;
  CHECK(made == 3);  // by one loop; x * x is another loop
}
