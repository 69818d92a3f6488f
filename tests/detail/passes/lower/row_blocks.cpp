// SPDX-License-Identifier: Apache-2.0
// labels: once
// group: dynamic
// alone: yes
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include "support/random_split.hpp"

// Steps that process the rows of the same values use blocks of rows. Intermediate values have the memory of a single
// block. The results have the same bits as without blocks.

namespace {

using namespace gspmd;
namespace kernels = detail::kernels;
using reference::draws;

const dynamic::mesh one({{"x", 1}}), two({{"x", 2}}), four({{"x", 2}, {"y", 2}});

template <class Kernel>
int count(const dynamic::program& p) {
  int n = 0;
  for (const auto& s : p.view().steps) n += detail::is<Kernel>(s) ? 1 : 0;
  return n;
}

/// Layer norm over the last dim, as users write it.
value layer_norm_by_hand(value x, std::vector<std::int64_t> shape) {
  std::vector<std::int64_t> kept;
  const int last = static_cast<int>(shape.size()) - 1;
  for (std::int64_t d = 0; d < last; ++d) kept.push_back(d);
  const value centred = x - broadcast_in_dim(mean(x, last), shape, kept);
  return centred * broadcast_in_dim(rsqrt(mean(centred * centred, last) + 1e-5), shape, kept);
}

/// Treats each row as a matrix. Multiplies it by the vectors of the means of its rows and columns, and combines the
/// results.
value times_vectors(value x, const std::vector<std::int64_t>& shape) {
  const int last = static_cast<int>(shape.size()) - 1;
  const auto width = shape.back(), a = width % 4 == 0 ? std::int64_t{4} : width % 2 == 0 ? std::int64_t{2} : std::int64_t{1};
  std::vector<std::int64_t> matrix(shape.begin(), shape.end() - 1);
  matrix.push_back(a);
  matrix.push_back(width / a);
  const std::string rows = last == 1 ? "i" : "ij";
  const value m = reshape(x, matrix);
  const value columns = einsum(rows + "ab," + rows + "a->" + rows + "b", m, mean(m, last + 1));
  const value left = einsum(rows + "b," + rows + "ab->" + rows + "a", columns, m);
  return x + reshape(m * expand_dims(left, last + 1), shape) * 0.125;
}

std::int64_t largest_prime(std::int64_t up_to) {
  for (auto n = up_to;; --n) {
    bool is_prime = true;
    for (std::int64_t d = 2; d * d <= n && is_prime; ++d) is_prime = n % d != 0;
    if (is_prime) return n;
  }
}

/// A program whose result has rows that depend only on the same row of the input. The rows are the indices of all dims
/// except the last.
struct row_program {
  std::vector<std::int64_t> shape;
  std::vector<int> stages;
  bool gives_sums = false, gives_gradient = false;

  explicit row_program(draws& r) {
    constexpr std::int64_t widths[] = {1, 3, 16, 40, 100, 257, 1030};
    const auto width = widths[r.below(7)];
    auto rows = 400000 / width;
    if (r.below(3) == 0) shape = {rows / 24 * 3, 8, width};
    else if (r.below(3) == 0) shape = {4, 2 * (rows / 8), width};
    else if (r.below(2) == 0) shape = {4 * largest_prime(rows / 4), width};  // blocks overlap on one device, on two and on four
    else shape = {r.below(2) == 0 ? rows : rows / 64 * 64, width};
    for (auto n = 2 + r.below(3); n > 0; --n) stages.push_back(static_cast<int>(r.below(9)));
    gives_sums = r.below(3) == 0;
    gives_gradient = r.below(3) == 0;
  }
  /// Libraries add the terms of products with few rows in another order.
  bool has_products() const { return std::count(stages.begin(), stages.end(), 8) > 0; }
  void build(dynamic::builder& to, const dynamic::input_spec& in, const dynamic::input_spec& bias,
             std::int64_t first_extent) const {
    auto local = shape;
    local[0] = first_extent;
    const int last = static_cast<int>(local.size()) - 1;
    const value x = to.input(in), b = to.input(bias);
    std::vector<std::int64_t> kept;
    for (std::int64_t d = 0; d < last; ++d) kept.push_back(d);
    value h = x;
    for (const int stage : stages) {
      switch (stage) {
        case 0: h = softmax(h, last); break;
        case 1: h = h - broadcast_in_dim(mean(h, last), local, kept); break;
        case 2: h = h * broadcast_in_dim(rsqrt(mean(h * h, last) + 1e-5), local, kept); break;
        case 3: h = layer_norm_by_hand(h, local); break;
        case 4: h = h * broadcast_in_dim(b, local, {last}); break;
        case 5: h = tanh(h) + h; break;
        case 6: h = where(iota<std::int32_t>(h, local, last) < 7, h, h * 0.5); break;
        case 7: h = log_softmax(h, last); break;
        default: h = times_vectors(h, local);
      }
    }
    if (gives_sums) to.output(reduce(h, monoid::max, {last}));
    if (gives_gradient) to.output(grad(sum(h * x), x));
    to.output(h);
  }
};

template <class T, class Bytes>
bool are_near(const std::byte* own, const Bytes& other) {
  const double most = std::is_same_v<T, double> ? 1e-10 : std::is_same_v<T, float> ? 1e-3 : 0.1;
  bool all = true;
  for (std::size_t at = 0; at < other.size(); at += sizeof(T)) {
    T a, b;
    std::memcpy(&a, own + at, sizeof a);
    std::memcpy(&b, other.data() + at, sizeof b);
    const auto x = static_cast<double>(a), y = static_cast<double>(b);
    all = all && std::abs(x - y) <= most * (1 + std::abs(y));
  }
  return all;
}

template <class T>
std::vector<T> numbers(draws& r, std::int64_t n) {
  std::vector<T> all(static_cast<std::size_t>(n));
  for (auto& e : all) e = static_cast<T>(static_cast<float>(r.below(1 << 16)) * 0x1p-15F - 1.0F);
  return all;
}

/// Norms of rows, and operators between them. In a compiled program each row is one loop.
constexpr auto norms = [](auto x) {
  const auto along = [](auto v) { return expand_dims(v, 1); };
  const auto centred = x - along(mean(x, 1)), low = x - along(reduce(x, monoid::min, {1}));
  const auto early = where(iota<std::int32_t>(x, x.shape(), 1) < 7, x, x * 0.5);
  const auto normal = centred * along(rsqrt(mean(centred * centred, 1) + 1e-5));
  return std::tuple{softmax(x, 1),
                    log_softmax(early, 1),
                    normal,
                    x * along(rsqrt(mean(x * x, 1) + 1e-5)),
                    low * along(sum(low, 1)) + centred,
                    grad(sum(normal * early), x)};
};
/// Returns true if both have the same bits, or are NaN.
template <class T>
bool is_same_number(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}
/// Returns the number of outputs of a compiled program that differ from the run-time path in any bit of a number. Adds
/// the number of loops over rows to `chains`.
template <class T, int Devices, std::int64_t Rows, std::int64_t Columns>
int differing_outputs(std::size_t& chains) {
  using on = mesh<axis<"x", Devices>>;
  using input = gspmd::input<T, shape<Rows, Columns>, split<"x", _>>;
  using step = compile<norms, on, input>;
  chains = 0;
  for (const auto rows : detail::rows_from_steps<detail::static_plan<norms, on, input>>) chains += rows != nullptr ? 1 : 0;
  draws r{std::mt19937_64(Columns)};
  std::vector<T> x(static_cast<std::size_t>(Rows * Columns));
  for (auto& e : x) e = static_cast<T>(static_cast<float>(r.below(1 << 16)) * 0x1p-15F - 1.0F);
  const T infinity = std::numeric_limits<T>::infinity();
  x[static_cast<std::size_t>(3 * Columns + Columns / 2)] = std::numeric_limits<T>::quiet_NaN();
  x[static_cast<std::size_t>(5 * Columns)] = infinity;
  x[static_cast<std::size_t>((Rows - 1) * Columns + Columns - 1)] = -infinity;
  array<T> given{Rows, Columns};
  std::copy(x.begin(), x.end(), given.begin());
  const auto got = run<step>(simulated{}, given);
  const dynamic::mesh m({{"x", Devices}});
  const auto want = dynamic::compile(norms, m, dynamic::input<T>({Rows, Columns}, {"x", ""})).run(simulated{}, {x.data()});
  int wrong = 0;
  std::size_t k = 0;
  const auto compare_one = [&](const auto& output) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      T other;
      std::memcpy(&other, want[k].bytes.data() + i * sizeof(T), sizeof other);
      const T own = output.data()[i];
      if (!is_same_number(own, other)) {
        ++wrong;
        break;
      }
    }
    ++k;
  };
  std::apply([&](const auto&... output) { (compare_one(output), ...); }, got);
  return wrong;
}

/// `v` is read row by row, and whole in a later step of each block. `w` has the same size.
constexpr auto read_both_ways = [](auto x, auto g) {
  const auto along = [](auto a) { return expand_dims(a, 1); };
  const auto v = einsum<"ab,b->a">(x, g);
  const auto q = sum(x * along(v), 1);
  const auto y = x * along(q) + expand_dims(v, 0);
  const auto w = sum(exp(y - along(reduce(y, monoid::max, {1}))), 1);
  return einsum<"ab,b->a">(x, w);
};
std::vector<double> read_both_ways_by_hand(const std::vector<float>& x, const std::vector<float>& g) {
  const std::size_t n = g.size();
  std::vector<double> v(n), w(n), out(n), y(n);
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = 0; b < n; ++b) v[a] += static_cast<double>(x[a * n + b]) * static_cast<double>(g[b]);
  for (std::size_t a = 0; a < n; ++a) {
    double q = 0;
    for (std::size_t b = 0; b < n; ++b) q += static_cast<double>(x[a * n + b]) * v[a];
    for (std::size_t b = 0; b < n; ++b) y[b] = static_cast<double>(x[a * n + b]) * q + v[b];
    const double most = *std::max_element(y.begin(), y.end());
    for (const double e : y) w[a] += std::exp(e - most);
  }
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = 0; b < n; ++b) out[a] += static_cast<double>(x[a * n + b]) * w[b];
  return out;
}

/// Negative gravity between all pairs of N bodies, with positions `x` and masses `m`: the force that pushes each body
/// away from the others.
template <std::int64_t N>
constexpr auto gravity = [](auto x, auto m) {
  const auto away = reshard(broadcast_in_dim(x, {N, N, 3}, {0, 2}) - broadcast_in_dim(x, {N, N, 3}, {1, 2}), split<"x", _, _>{});
  const auto near = rsqrt(einsum<"ijc,ijc->ij">(away, away) + 0.0025);
  return einsum<"ijc,ij->ic">(away, broadcast_in_dim(m, {N, N}, {1}) * near * near * near);
};
template <std::int64_t N, int Devices>
void check_gravity(bool by_blocks) {
  const std::string here = std::to_string(N) + " bodies, " + std::to_string(Devices) + " devices";
  using step = compile<gravity<N>, mesh<axis<"x", Devices>>, input<double, shape<N, 3>, split<"x", _>>, input<double, shape<N>>>;
  CHECK_MESSAGE((step::view.arena_bytes < detail::blocked_bytes + N * 32) == by_blocks, here, ": ", step::view.arena_bytes);
  array<double> x{N, 3}, m({N});
  for (std::int64_t i = 0; i < 3 * N; ++i) x.data()[i] = std::sin(static_cast<double>(i * i));
  for (std::int64_t i = 0; i < N; ++i) m.data()[i] = static_cast<double>(1 + i % 3);
  const auto compiled = run<step>(threads{}, x, m);
  const dynamic::mesh on({{"x", Devices}});
  const auto p = dynamic::compile(gravity<N>, on, dynamic::input<double>({N, 3}, {"x", ""}), dynamic::input<double>({N}));
  CHECK(count<kernels::rows_begin>(p) == (by_blocks ? 1 : 0));
  std::vector<double> at_run_time(static_cast<std::size_t>(3 * N));
  const auto bytes = p.run(simulated{}, {x.data(), m.data()})[0].bytes;
  std::memcpy(at_run_time.data(), bytes.data(), at_run_time.size() * sizeof(double));
  double wrong = 0;
  for (std::int64_t i = 0; i < N; ++i) {
    double pull[3] = {0, 0, 0};
    for (std::int64_t j = 0; j < N; ++j) {
      double away[3], square = 0.0025;
      for (int c = 0; c < 3; ++c) away[c] = x.data()[3 * i + c] - x.data()[3 * j + c], square += away[c] * away[c];
      for (int c = 0; c < 3; ++c) pull[c] += m.data()[j] * away[c] / (square * std::sqrt(square));
    }
    for (int c = 0; c < 3; ++c) {
      const auto k = 3 * i + c;
      const double scale = 1 + std::abs(pull[c]);
      wrong = std::max({wrong, std::abs(compiled.data()[k] - pull[c]) / scale,
                        std::abs(at_run_time[static_cast<std::size_t>(k)] - pull[c]) / scale});
    }
  }
  CHECK_MESSAGE(wrong < 1e-11, here, ": ", wrong);
}

std::size_t blocked = 0, several_dims = 0, overlapping = 0;

/// Compares all rows together with a few rows at a time.
template <class T>
void compare(std::uint64_t seed) {
  draws r{std::mt19937_64(seed)};
  const row_program f(r);
  const auto width = f.shape.back();
  std::int64_t all = 1;
  for (const auto e : f.shape) all *= e;
  const auto x = numbers<T>(r, all), b = numbers<T>(r, width);
  const auto& m = seed % 3 == 0 ? one : seed % 3 == 1 ? two : four;
  std::vector<std::string> split(f.shape.size());
  if (seed % 3 == 1) split[0] = "x";
  if (seed % 3 == 2) split = reference::random_split(r, m, f.shape.size());
  // (A dim that is split along the rows is summed in another order.)
  if (seed % 3 == 2) split.back() = "";
  dynamic::builder whole(m);
  f.build(whole, dynamic::input<T>(f.shape, split), dynamic::input<T>({width}), f.shape[0]);
  const auto program = whole.compile();
  bool overlaps = false;
  for (const auto& s : program.view().steps) {
    if (!is<kernels::rows_begin>(s)) continue;
    ++blocked;
    const auto& blocks = detail::table_of<detail::row_blocks>(program.view())[static_cast<std::size_t>(s.spec)];
    overlaps = overlaps || blocks.rows % blocks.at_once != 0;
    several_dims += f.shape.size() > 2 && blocks.rows > f.shape[0] ? 1 : 0;
  }
  const auto got = seed % 2 == 0 ? program.run(simulated{}, {x.data(), b.data()}) : program.run(threads{}, {x.data(), b.data()});
  const auto piece = (f.shape[0] + 6) / 7;
  const auto row_elems = all / f.shape[0];
  const auto compare_rows = [&](std::int64_t begin, std::int64_t n) {
    auto shape = f.shape;
    shape[0] = n;
    dynamic::builder few(one);
    f.build(few, dynamic::input<T>(shape), dynamic::input<T>({width}), n);
    const auto want = few.compile().run(simulated{}, {x.data() + begin * row_elems, b.data()});
    for (std::size_t k = 0; k < want.size(); ++k) {
      const auto bytes = want[k].bytes.size() / static_cast<std::size_t>(n);
      const auto* const own = got[k].bytes.data() + static_cast<std::size_t>(begin) * bytes;
      const bool is_same =
          f.has_products() ? are_near<T>(own, want[k].bytes) : std::memcmp(own, want[k].bytes.data(), want[k].bytes.size()) == 0;
      CHECK_MESSAGE(is_same, "seed ", seed, " output ", k, " rows ", begin, " to ", begin + n);
    }
  };
  overlapping += overlaps ? 1 : 0;
  for (std::int64_t begin = 0; begin < f.shape[0]; begin += piece) {
    // Rows that two blocks compute are at the end of each device. If such rows exist, all rows are compared.
    const std::int64_t looked_at = overlaps ? piece : begin == 0 ? 3 : 1;
    compare_rows(begin, std::min({f.shape[0] - begin, piece, looked_at}));
  }
  compare_rows(f.shape[0] - 1, 1);
}

/// Random steps over rows of floats, integers and doubles. Several values end in one step, some are also read by
/// earlier steps, and some are also outputs.
struct mixed_rows {
  std::uint64_t seed;
  std::int64_t width;

  void build(dynamic::builder& to, std::int64_t rows, const std::vector<std::string>& split) const {
    draws r{std::mt19937_64(seed)};
    const std::vector<std::int64_t> shape{rows, width};
    std::vector<value> f{to.input(dynamic::input<float>(shape, split)), to.input(dynamic::input<float>(shape, split))};
    std::vector<value> s{to.input(dynamic::input<std::int32_t>(shape, split))}, d{cast<double>(f[0])};
    const auto some = [&](const std::vector<value>& of) {
      const auto n = static_cast<std::int64_t>(of.size());
      return of[static_cast<std::size_t>(n - 1 - r.below(std::min(n, std::int64_t{3})))];
    };
    const auto along = [&](value v) { return broadcast_in_dim(v, shape, {0}); };
    for (auto n = 4 + r.below(6); n > 0; --n) {
      const value x = some(f), y = some(f), i = some(s);
      switch (r.below(8)) {
        case 0: f.push_back(softmax(x, 1)); break;
        case 1: f.push_back(x * y * along(rsqrt(mean(y * y, 1) + 1e-3))); break;
        case 2: f.push_back(tanh(x * 1.25) + y * 0.25); break;
        case 3: s.push_back(cast<std::int32_t>(x * 20.0) + i); break;
        case 4: f.push_back(cast<float>(i - along(reduce(i, monoid::min, {1}))) * 0.03 + x); break;
        case 5: d.push_back(cast<double>(x) * along(reduce(some(d), monoid::max, {1}))); break;
        case 6: f.push_back(cast<float>(some(d)) * 0.5 + where(i < 3, x, y)); break;
        default: s.push_back(i - along(reduce(some(s), monoid::max, {1})));
      }
    }
    for (const auto& o : {f.back(), some(f), s.back(), d.back()})
      if (r.below(3) > 0) to.output(o);
    to.output(some(f));
  }
};
/// Returns the number of values that share memory with a result of another type.
int compare_mixed(std::uint64_t seed) {
  draws r{std::mt19937_64(seed + 1000)};
  constexpr std::int64_t widths[] = {2, 40, 257, 1032};
  const mixed_rows f{seed, widths[r.below(4)]};
  const auto rows = (r.below(2) == 0 ? 300000 : 200000) / f.width * 2, elems = rows * f.width;
  const auto& m = seed % 2 == 0 ? one : two;
  dynamic::builder whole(m);
  f.build(whole, rows, {"x", ""});
  const auto program = whole.compile();
  int others = 0;
  const auto& plan = program.view();
  for (const auto& v : plan.values) {
    if (v.counter < 0 || v.whole < 0) continue;
    for (const auto& o : plan.values)
      if (o.counter == v.counter && o.where == v.where && o.type != v.type) {
        ++others;
        break;
      }
  }
  const auto x = numbers<float>(r, elems), y = numbers<float>(r, elems);
  std::vector<std::int32_t> i(x.size());
  for (auto& e : i) e = static_cast<std::int32_t>(r.below(41)) - 20;
  const auto got = program.run(threads{}, {x.data(), y.data(), i.data()});
  constexpr std::int64_t some = 3;
  for (const auto begin : {std::int64_t{0}, rows / 3, rows / 2 - some, rows / 2, rows - some}) {
    dynamic::builder few(one);
    f.build(few, some, {"", ""});
    const auto at = begin * f.width;
    const auto want = few.compile().run(simulated{}, {x.data() + at, y.data() + at, i.data() + at});
    for (std::size_t k = 0; k < want.size(); ++k) {
      const auto& bytes = want[k].bytes;
      const auto* const own = got[k].bytes.data() + static_cast<std::size_t>(begin / some) * bytes.size() +
                              static_cast<std::size_t>(begin % some) * (bytes.size() / some);
      CHECK_MESSAGE(std::memcmp(own, bytes.data(), bytes.size()) == 0, "seed ", seed, " output ", k, " row ", begin);
    }
  }
  return others;
}

/// The gradient with respect to a of the sum of squares of gelu(a + c) w.
constexpr auto gelu_gradient = [](auto a, auto c, auto w) {
  const auto x = a + expand_dims(c, 0);
  const auto h = 0.5 * x * (1.0 + tanh(0.7978846 * (x + 0.044715 * x * x * x)));
  const auto y = einsum<"rf,fo->ro">(h, w);
  return grad(sum(y * y), a);
};
/// Returns the error of some columns, divided by their largest element.
double error_of_gelu_gradient(const float* a, const float* c, const float* w, std::int64_t rows, std::int64_t columns,
                              std::int64_t outs, const float* got) {
  double wrong = 0, largest = 0;
  std::vector<double> slope(static_cast<std::size_t>(columns)), y(static_cast<std::size_t>(outs));
  for (std::int64_t r = 0; r < rows; ++r) {
    std::fill(y.begin(), y.end(), 0.0);
    for (std::int64_t f = 0; f < columns; ++f) {
      const double x = static_cast<double>(a[r * columns + f]) + static_cast<double>(c[f]);
      const double t = std::tanh(0.7978846 * (x + 0.044715 * x * x * x));
      slope[static_cast<std::size_t>(f)] = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978846 * (1 + 3 * 0.044715 * x * x);
      for (std::int64_t o = 0; o < outs; ++o)
        y[static_cast<std::size_t>(o)] += 0.5 * x * (1 + t) * static_cast<double>(w[f * outs + o]);
    }
    for (std::int64_t f = 0; f < columns; ++f) {
      double want = 0;
      for (std::int64_t o = 0; o < outs; ++o)
        want += 2 * y[static_cast<std::size_t>(o)] * static_cast<double>(w[f * outs + o]) * slope[static_cast<std::size_t>(f)];
      wrong = std::max(wrong, std::abs(want - static_cast<double>(got[r * columns + f])));
      largest = std::max(largest, std::abs(want));
    }
  }
  return wrong / largest;
}

}  // namespace

TEST_CASE("a gradient computes again what is a product of what it reads anyway") {
  constexpr std::int64_t columns = 130, outs = 3;
  const auto check = [&](std::int64_t rows, const dynamic::mesh& m, bool again) {
    draws r{std::mt19937_64(7)};
    const auto a = numbers<float>(r, rows * columns), c = numbers<float>(r, columns), w = numbers<float>(r, columns * outs);
    const auto p = dynamic::compile(gelu_gradient, m, dynamic::input<float>({rows, columns}, {"x", ""}),
                                    dynamic::input<float>({columns}), dynamic::input<float>({columns, outs}));
    int stores = 0;
    for (const auto& s : p.view().steps)
      if (is<kernels::fused>(s))
        stores += detail::table_of<detail::planned_group>(p.view())[static_cast<std::size_t>(s.spec)].stores.count;
    CHECK_MESSAGE((stores < 6) == again, rows, " rows: ", stores);
    const auto bytes = p.run(simulated{}, {a.data(), c.data(), w.data()})[0].bytes;
    std::vector<float> got(a.size());
    std::memcpy(got.data(), bytes.data(), got.size() * sizeof(float));
    CHECK(error_of_gelu_gradient(a.data(), c.data(), w.data(), rows, columns, outs, got.data()) < 1e-5);
  };
  check(400, one, true);
  check(800, two, true);
  check(801, two, false);  // loops that end early on the last device do not use blocks
  check(100, one, false);  // these few rows stay in the first-level cache

  using step = compile<gelu_gradient, mesh<axis<"x", 2>>, input<float, shape<800, columns>, split<"x", _>>,
                       input<float, shape<columns>>, input<float, shape<columns, outs>>>;
  draws r{std::mt19937_64(7)};
  array<float> a{800, columns}, c({columns}), w{columns, outs};
  for (auto* x : {&a, &c, &w})
    for (auto& e : *x) e = static_cast<float>(r.below(1 << 16)) * 0x1p-15F - 1.0F;
  const auto got = run<step>(threads{}, a, c, w);
  CHECK(error_of_gelu_gradient(a.data(), c.data(), w.data(), 800, columns, outs, got.data()) < 1e-5);
}

TEST_CASE("rows are gone through once, by blocks") {
  const std::int64_t rows = 4096, width = 1024, row_bytes = width * 4;
  const std::vector<std::int64_t> shape{rows, width};
  const auto check = [&](auto f, int loops) {
    for (const auto* m : {&one, &two}) {
      const auto p = dynamic::compile(f, *m, dynamic::input<float>(shape, {"x", ""}));
      CHECK(count<kernels::rows_begin>(p) == 1);
      CHECK(count<kernels::rows_end>(p) == 1);
      CHECK(count<kernels::fused>(p) == loops);
      CHECK(p.view().arena_bytes <= detail::blocked_bytes + 32 * row_bytes);
    }
  };
  check([](auto x) { return softmax(x, 1); }, 2);
  check([](auto x) { return log_softmax(x, 1); }, 3);
  check([&](auto x) { return layer_norm_by_hand(x, {4096, 1024}); }, 4);
  check([&](auto x) { return x * broadcast_in_dim(rsqrt(mean(x * x, 1) + 1e-5), {4096, 1024}, {0}); }, 2);
  check([](auto x) { return grad(sum(softmax(x, 1) * x), x); }, 3);
  // The result overwrites the scores, as without blocks.
  const auto scores = dynamic::compile(
      [](auto x) {
        return tanh(transpose(softmax(transpose(x, {1, 0}), 1), {1, 0}));
      },
      one, dynamic::input<float>(shape));
  CHECK(count<kernels::rows_begin>(scores) == 1);
  CHECK(scores.view().arena_bytes <= rows * row_bytes + detail::blocked_bytes);
  // Values that fit the second-level cache do not use blocks, and values that are reduced along the rows do not.
  const auto small = dynamic::compile([](auto x) { return softmax(x, 1); }, one, dynamic::input<float>({64, 64}));
  CHECK(count<kernels::rows_begin>(small) == 0);
  const auto columns = dynamic::compile([](auto x) { return softmax(x, 0); }, one, dynamic::input<float>(shape));
  CHECK(count<kernels::rows_begin>(columns) == 0);
  // The first loop reads an element of `g` for each row, the second loop also for each column. `x - g` is stored and
  // not recomputed.
  const auto both = dynamic::compile(
      [](auto x, auto g) {
        const auto away = x - expand_dims(g, 1);
        return away * expand_dims(sum(away * away, 1), 1) + expand_dims(g, 0);
      },
      one, dynamic::input<float>({1024, 1024}), dynamic::input<float>({1024}));
  CHECK(count<kernels::rows_begin>(both) == 1);
  // The exchange in between is between blocks, not inside a block.
  const auto split = dynamic::compile([](auto x) { return softmax(x, 1); }, two, dynamic::input<float>(shape, {"", "x"}));
  CHECK(count<kernels::combine>(split) == 2);
}

TEST_CASE("rows by blocks have the bits of rows alone") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    if (seed % 4 == 3) compare<double>(seed);
    else if (seed % 8 == 5) compare<bf16>(seed);
    else compare<float>(seed);
  }
  CHECK(blocked > 30);
  CHECK(several_dims > 3);
  CHECK(overlapping > 5);
}

TEST_CASE("what a block reads whole keeps its memory until the last block") {
  constexpr std::int64_t n = 384;
  draws r{std::mt19937_64(7)};
  auto x = numbers<float>(r, n * n), g = numbers<float>(r, n);
  for (auto& e : x) e *= 0.125F;
  const auto want = read_both_ways_by_hand(x, g);
  const auto check = [&](const char* path, const auto& got) {
    double wrong = 0, largest = 0;
    for (std::size_t a = 0; a < want.size(); ++a) {
      wrong = std::max(wrong, std::abs(static_cast<double>(got[a]) - want[a]));
      largest = std::max(largest, std::abs(want[a]));
    }
    CHECK_MESSAGE(wrong < 1e-4 * largest, path, ": ", wrong, " of ", largest);
  };
  const auto p = dynamic::compile(read_both_ways, one, dynamic::input<float>({n, n}), dynamic::input<float>({n}));
  CHECK(count<kernels::rows_begin>(p) == 1);
  std::vector<float> out(static_cast<std::size_t>(n));
  const auto bytes = p.run(simulated{}, {x.data(), g.data()})[0].bytes;
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  check("run time", out);
  array<float> rows{n, n}, weights({n});
  std::copy(x.begin(), x.end(), rows.begin());
  std::copy(g.begin(), g.end(), weights.begin());
  const auto got = run<compile<read_both_ways, mesh<axis<"x", 1>>, input<float, shape<n, n>>, input<float, shape<n>>>>(
      simulated{}, rows, weights);
  check("compiled", std::vector<float>(got.begin(), got.end()));
}

TEST_CASE("exponentials of softmax lie where its result will: the arena has one block, of the differences") {
  const auto p = dynamic::compile([](auto x) { return softmax(x, 1); }, one, dynamic::input<float>({2048, 1024}));
  CHECK(count<kernels::rows_begin>(p) == 1);
  CHECK(p.view().arena_bytes < 2 * 8 * 1024 * 4);  // blocks of 8 rows
  draws r{std::mt19937_64(3)};
  const auto x = numbers<float>(r, 2048 * 1024);
  const auto result = p.run(simulated{}, {x.data()});
  const auto* const y = result[0].data<float>();
  double worst = 0;
  for (std::size_t i = 0; i < 2048; ++i) {
    double all = 0;
    for (std::size_t j = 0; j < 1024; ++j) all += std::exp(static_cast<double>(x[i * 1024 + j]));
    for (std::size_t j = 0; j < 1024; ++j)
      worst = std::max(worst,
                       std::abs(std::exp(static_cast<double>(x[i * 1024 + j])) / all / static_cast<double>(y[i * 1024 + j]) - 1));
  }
  CHECK(worst < 1e-5);
}

TEST_CASE("values lie where results of other types of their width will, and have the bits of rows alone") {
  int others = 0;
  for (std::uint64_t seed = 0; seed < 24; ++seed) others += compare_mixed(seed);
  CHECK(others > 0);
}

TEST_CASE("compiled programs do the steps of a row one after the other") {
  std::size_t chains = 0;
  CHECK(differing_outputs<float, 1, 1100, 256>(chains) == 0);  // whole steps of the vectors
  CHECK(chains > 0);
  CHECK(differing_outputs<float, 2, 7001, 51>(chains) == 0);  // rows that end early on one of the devices
  CHECK(differing_outputs<double, 1, 1001, 300>(chains) == 0);
  CHECK(chains > 0);
  CHECK(differing_outputs<float, 1, 90001, 3>(chains) == 0);
  CHECK(chains > 0);
  CHECK(differing_outputs<float, 1, 7000, 64>(chains) == 0);  // one step of the vectors
  CHECK(chains > 0);
  CHECK(differing_outputs<double, 1, 17, 2048>(chains) == 0);  // all rows are one block
  CHECK(chains > 0);
  CHECK(differing_outputs<float, 1, 515, 100>(chains) == 0);  // likewise; four rows are processed together, then three
  CHECK(chains > 0);
}

TEST_CASE("products of matrices and vectors that are computed row by row have the memory of a block of rows") {
  check_gravity<400, 1>(true);
  check_gravity<520, 2>(true);
  check_gravity<401, 2>(false);  // on one device the rows end early
}
