// SPDX-License-Identifier: Apache-2.0
// group: dynamic
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>
#include <tuple>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/fft.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/modes/manual.hpp"
#include "gspmd/transform/vmap.hpp"
#include "support/error_of.hpp"
#include "support/gradients.hpp"
#include "support/layouts.hpp"
#include "support/traced.hpp"

// Transforms equal products with the matrix of e^(-2 pi i jk / n), with gradients, for any split of the operand.

namespace {

using namespace gspmd;
using reference::host_array;
using reference::traced;
using std::int64_t;

struct setting {
  bool is_double = true;
  std::vector<int64_t> shape;
  std::vector<int64_t> dims;
  int what = 0;  // fft, ifft, rfft, irfft

  [[nodiscard]] bool from_real() const { return what == 2; }
  [[nodiscard]] std::string text() const {
    constexpr const char* names[] = {"fft", "ifft", "rfft", "irfft"};
    std::string t = std::string(names[what]) + (is_double ? " of double" : " of float");
    for (const auto e : shape) t += ' ' + std::to_string(e);
    t += " along";
    for (const auto d : dims) t += ' ' + std::to_string(d);
    return t;
  }
  [[nodiscard]] value call(value x, int64_t n) const {
    return what == 0   ? fft(x, dims)
           : what == 1 ? ifft(x, dims)
           : what == 2 ? rfft(x, dims)
           : n < 0     ? irfft(x, dims)
                       : irfft(x, n, dims);
  }
};

/// Returns the product with the matrix, along one dim.
value by_matrix(value x, int dim, bool is_inverse) {
  const auto s = x.shape();
  int64_t outer = 1, inner = 1;
  for (int d = 0; d < x.rank(); ++d) (d < dim ? outer : inner) *= d == dim ? 1 : s[d];
  const int64_t n = s[dim];
  const value jk = (iota<int64_t>(x, {n, n}, 0) * iota<int64_t>(x, {n, n}, 1)) % n;
  const value turn = cast<double>(jk) * ((is_inverse ? 2 : -2) * std::numbers::pi / static_cast<double>(n));
  value matrix = complex(cos(turn), sin(turn)) * (is_inverse ? 1.0 / static_cast<double>(n) : 1.0);
  const bool is_double = x.type() == dtype::c128;
  if (!is_double) matrix = cast<c64>(matrix);
  const value y = einsum<"ajb,jk->akb">(reshape(x, {outer, n, inner}), matrix);
  return reshape(y, s);
}
/// Computes the same with operators that other files test.
value in_operators(const setting& s, value x, int64_t n) {
  if (s.from_real()) x = s.is_double ? cast<c128>(x) : cast<c64>(x);
  const int last = static_cast<int>(*std::max_element(s.dims.begin(), s.dims.end()));
  for (const auto d : s.dims)
    if (s.what != 3 || d != last) x = by_matrix(x, static_cast<int>(d), s.what % 2 == 1);
  const auto all = x.shape();
  std::vector<int64_t> from(s.shape.size(), 0), to(all.begin(), all.end());
  const auto at = static_cast<std::size_t>(last);
  if (s.what == 2) {
    to[at] = to[at] / 2 + 1;
    return slice(x, from, to);
  }
  if (s.what != 3) return x;
  // Element 0, and n / 2 for even n, once; twice the real part of all other elements.
  const int64_t m = to[at];
  const value k = iota<int64_t>(x, {m, n}, 0), j = iota<int64_t>(x, {m, n}, 1);
  const value turn = cast<double>(k * j % n) * (2 * std::numbers::pi / static_cast<double>(n));
  const value times = (2 - cast<double>(bitwise_or(equal(k, 0), equal(k * 2, n)))) * (1.0 / static_cast<double>(n));
  int64_t outer = 1, inner = 1;
  for (std::size_t d = 0; d < to.size(); ++d) (d < at ? outer : inner) *= d == at ? 1 : to[d];
  const auto part = [&](value p, value matrix) {
    return einsum<"akb,kj->ajb">(reshape(p, {outer, m, inner}), s.is_double ? matrix : cast<float>(matrix));
  };
  to[at] = n;
  return reshape(part(real(x), cos(turn) * times) - part(imag(x), sin(turn) * times), to);
}

/// Returns the parts of a result, and the gradients of a weighted sum of these with respect to the parts of the
/// operand.
std::vector<value> outputs(traced& p, value y, const std::vector<value>& parts) {
  std::vector<value> all{y};
  if (detail::is_complex(y.type())) all = {real(y), imag(y)};
  value loss;
  for (std::size_t k = 0; k < all.size(); ++k) {
    const auto shape = y.shape();
    const auto weights = reference::reals({shape.begin(), shape.end()}, -1.3, 1.7, 5 + static_cast<int>(k), all[k].type());
    const value term = sum(all[k] * p.input(weights));
    loss = k == 0 ? term : loss + term;
  }
  for (const value g : reference::gradients_of(loss, parts)) all.push_back(g);
  return all;
}

/// Plans and runs on a mesh with a split operand. Returns the mistake, or "".
std::string mistake(const setting& s, const std::vector<int>& mesh, const detail::sharding& layout) {
  traced p(mesh), other;
  const auto last = static_cast<std::size_t>(*std::max_element(s.dims.begin(), s.dims.end()));
  std::vector<int64_t> given = s.shape;
  const int64_t n = given[last];
  if (s.what == 3) given[last] = n / 2 + 1;
  std::vector<value> parts, same;
  for (int part = 0; part < (s.from_real() ? 1 : 2); ++part) {
    const auto x = reference::reals(given, -2, 2, 1 + part, s.is_double ? dtype::f64 : dtype::f32);
    parts.push_back(p.input(x));
    same.push_back(other.input(x));
  }
  const auto whole = [&](const std::vector<value>& x) { return s.from_real() ? x[0] : complex(x[0], x[1]); };
  for (const value out : outputs(p, s.call(whole(parts), n), parts)) p.output(out);
  const auto wanted = outputs(other, in_operators(s, whole(same), n), same);
  if (p.g.failed()) return std::string(p.g.error.view());
  if (other.g.failed()) return std::string(other.g.error.view());
  for (std::size_t part = 0; part < parts.size(); ++part) {
    auto& input = p.g.nodes[static_cast<std::size_t>(p.g.inputs[part])];
    input.annotated = true;
    input.annotation = layout;
  }
  const reference::partitioned_run run(p);
  if (!run.wrong.empty()) return run.wrong;
  const auto values = other.evaluate(static_cast<int>(other.g.nodes.size()) - 1);
  for (std::size_t k = 0; k < run.outputs.size(); ++k) {
    double size = 1;
    for (const auto e : s.shape) size *= static_cast<double>(e);
    const auto wrong = reference::difference(run.outputs[k], values[static_cast<std::size_t>(wanted[k].id())],
                                             (s.is_double ? 1e-13 : 1e-5) * (size + 4));
    if (!wrong.empty()) return "output " + std::to_string(k) + ": " + wrong;
  }
  return {};
}

}  // namespace

TEST_CASE("transforms of random extents, dims and shardings equal products by a matrix, with gradients") {
  const std::vector<std::vector<int>> meshes = {{1}, {2}, {3}, {2, 2}, {4}, {2, 3}};
  reference::random_numbers random(31);
  for (int n = 0; n < 160; ++n) {
    setting s;
    s.is_double = random.chance(70);
    s.what = random.between(0, 3);
    const int rank = random.between(1, 4);
    for (int d = 0; d < rank; ++d) s.shape.push_back(random.between(1, random.chance(20) ? 19 : 7));
    for (int d = 0; d < rank; ++d)
      if (random.chance(60)) s.dims.push_back(d);
    if (s.dims.empty()) s.dims.push_back(random.between(0, rank - 1));
    const auto& mesh = random.one_of(meshes);
    const auto split = random.one_of(layouts::all_shardings(layouts::mesh_of(mesh), rank));
    const auto wrong = mistake(s, mesh, split);
    if (!wrong.empty())
      FAIL_CHECK(s.text() << ", mesh of " << mesh.size() << " axes, " << layouts::text_of(split, rank) << ": " << wrong);
  }
}

// ---- lines that are long, prime, alone, next to other lines and in shards with gaps ----

namespace {

template <class T, bool IsInverse>
std::string mistake_of_lines(int64_t outer, int64_t n, int64_t inner) {
  constexpr T marker = T(77);
  const int64_t gap = 3, extents[] = {outer, n, inner}, strides[] = {n * (inner + gap), inner + gap, 1};
  const auto size = static_cast<std::size_t>(outer * n * (inner + gap));
  const int64_t elems = detail::line_transform::of(n, outer * inner).scratch_elems(sizeof(std::complex<T>));
  const int64_t along[] = {1, elems, 1}, ones[] = {1, 1, 1};
  std::vector<std::complex<T>> x(size, {std::numeric_limits<T>::quiet_NaN(), 0}), y(size, {marker, marker});
  detail::aligned_bytes scratch((elems + 1) * static_cast<int64_t>(sizeof x[0]));
  auto* const room = static_cast<std::complex<T>*>(static_cast<void*>(scratch.get()));
  room[elems] = marker;
  const auto at = [&](int64_t o, int64_t k, int64_t i) { return static_cast<std::size_t>(o * strides[0] + k * strides[1] + i); };
  double number = 0.3;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t k = 0; k < n; ++k)
      for (int64_t i = 0; i < inner; ++i) {
        for (int part = 0; part < 2; ++part) {
          number += 0.6180339887498949;
          number -= std::floor(number);
          reinterpret_cast<T*>(&x[at(o, k, i)])[part] = static_cast<T>(number - 0.5);
        }
      }
  const detail::erased_block blocks[] = {{x.data(), extents, strides}, {y.data(), extents, strides}, {room, along, ones}};
  detail::transform_lines<IsInverse, T>(3, blocks);
  if (room[elems] != marker) return "it writes beyond its scratch";
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t k = 0; k < n; ++k)
      for (int64_t g = inner; g < inner + gap; ++g)
        if (y[at(o, k, 0) + static_cast<std::size_t>(g)] != std::complex<T>(marker, marker)) return "it writes between its lines";
  for (int t = 0; t < 12; ++t) {  // elements of lines here and there
    const int64_t o = t * 5 % outer, i = t * 3 % inner, k = t == 0 ? 0 : t == 1 ? n - 1 : t * 7919 % n;
    std::complex<double> want = 0;
    for (int64_t j = 0; j < n; ++j) {
      const double turn = (IsInverse ? 2 : -2) * std::numbers::pi * static_cast<double>(j * k % n) / static_cast<double>(n);
      want += std::complex<double>(x[at(o, j, i)]) * std::complex<double>(std::cos(turn), std::sin(turn));
    }
    if (IsInverse) want /= static_cast<double>(n);
    const double wrong = std::abs(std::complex<double>(y[at(o, k, i)]) - want);
    const double scale = (IsInverse ? 1 / std::sqrt(static_cast<double>(n)) : std::sqrt(static_cast<double>(n)));
    if (!(wrong <= scale * (sizeof(T) == 8 ? 1e-14 : 1e-6)))
      return "element " + std::to_string(k) + " of line " + std::to_string(o) + ", " + std::to_string(i) + " is wrong by " +
             std::to_string(wrong / scale) + " of its size";
  }
  return {};
}

}  // namespace

TEST_CASE("lines of every kind, alone and beside others, within their shard and their scratch") {
  for (const int64_t n : {1,  2,  3,  4,   5,   6,   7,   8,   9,   11,  13,  16,   17,   19,   24,   30,   34,     49,
                          60, 64, 97, 100, 121, 128, 143, 169, 243, 256, 509, 1000, 1024, 2310, 4099, 8192, 10'000, 12'500})
    for (const auto& [outer, inner] : {std::pair{1, 1}, {5, 1}, {17, 1}, {1, 17}, {3, 7}, {1, 2}}) {
      if (n > 2000 && outer * inner > 5) continue;
      const std::string wrong[] = {
          mistake_of_lines<double, false>(outer, n, inner), mistake_of_lines<double, true>(outer, n, inner),
          mistake_of_lines<float, false>(outer, n, inner), mistake_of_lines<float, true>(outer, n, inner)};
      for (const auto& w : wrong)
        if (!w.empty()) FAIL_CHECK(outer << " x " << n << " x " << inner << ": " << w);
    }
}

// ---- traffic ----

// The example of docs/reference/operators.md.
namespace {

/// The heat equation on a torus, exact in the space of frequencies.
constexpr auto spread = [](auto u, auto decay) { return ifft(decay * fft(u, {0, 1, 2}), {0, 1, 2}); };
template <class Split, class Mesh>
using spread_step = compile<spread, Mesh, input<c128, shape<64, 64, 64>, Split>, input<c128, shape<64, 64, 64>>>;

using slabs = spread_step<split<"x", _, _>, mesh<axis<"x", 4>>>;
using pencils = spread_step<split<"y", "x", _>, mesh<axis<"y", 2>, axis<"x", 2>>>;
constexpr std::int64_t shard = 64 * 64 * 64 / 4 * 16;  // bytes
static_assert(slabs::traffic.in(collective_kind::all_to_all).collectives == 2);
static_assert(slabs::traffic.bytes == 2 * shard * 3 / 4);
static_assert(pencils::traffic.in(collective_kind::all_to_all).collectives == 4);
static_assert(pencils::traffic.bytes == 4 * shard * 1 / 2);

}  // namespace

TEST_CASE("a compiled program gives what one of the run time gives") {
  using step = compile<spread, mesh<axis<"x", 2>>, input<c128, shape<6, 10, 9>, split<"x", _, _>>, input<c128, shape<6, 10, 9>>>;
  std::vector<std::complex<double>> u(6 * 10 * 9), decay(u.size());
  for (std::size_t i = 0; i < u.size(); ++i) {
    u[i] = {static_cast<double>(i * 37 % 101) / 50 - 1, static_cast<double>(i * 53 % 97) / 50 - 1};
    decay[i] = {static_cast<double>(i * 29 % 89) / 50 - 1, 0};
  }
  const auto planned = dynamic::compile(spread, dynamic::mesh({{"x", 2}}), dynamic::input<c128>({6, 10, 9}, {"x", "", ""}),
                                        dynamic::input<c128>({6, 10, 9}));
  const auto wanted = planned.run(simulated{}, u, decay);
  const auto y = run<step>(threads{}, u, decay);
  int wrong = 0;
  for (std::size_t i = 0; i < u.size(); ++i)
    wrong += std::complex<double>(y.data()[i]) == wanted[0].data<std::complex<double>>()[i] ? 0 : 1;
  CHECK(wrong == 0);
}

TEST_CASE("transforms are explained, counted, mapped over examples, written by hand, and refused where they do not fit") {
  const auto all_dims = [](auto u) { return fft(u, {}); };
  const auto in = [](std::vector<int64_t> shape, std::vector<std::string> split = {}) {
    split.resize(shape.size());
    return dynamic::input<c128>(shape, split);
  };
  const dynamic::mesh mesh({{"x", 2}, {"y", 3}});

  // Whole dims first: with p devices along an axis, each sends (p - 1) / p of its shard once.
  const int64_t bytes = 12 * 18 * 24 * 16;
  for (const auto& slabs : std::vector<std::vector<std::string>>{{"x"}, {"", "x"}, {"", "", "x"}}) {
    const auto p = dynamic::compile(all_dims, mesh, in({12, 18, 24}, slabs));
    CHECK(p.traffic().in(collective_kind::all_to_all).bytes == bytes / 2 / 2);
    CHECK(p.traffic().bytes == bytes / 2 / 2);
  }
  for (const auto& pencils : std::vector<std::vector<std::string>>{{"x", "y"}, {"x", "", "y"}, {"", "x", "y"}}) {
    const auto p = dynamic::compile(all_dims, mesh, in({12, 18, 24}, pencils));
    CHECK(p.traffic().in(collective_kind::all_to_all).bytes == bytes / 6 / 2 + bytes / 6 / 3 * 2);
    CHECK(p.traffic().bytes == bytes / 6 / 2 + bytes / 6 / 3 * 2);
  }
  const auto kept = dynamic::compile([](auto u) { return ifft(fft(u, {1}), -1); }, mesh, in({12, 16}, {"y"}));
  CHECK(kept.traffic().bytes == 0);
  CHECK(kept.flops_per_device() == 2 * 5 * 16 * 4 * 4);
  CHECK(explain(kept).find("fft along dim 1") != std::string::npos);
  CHECK(explain(kept).find("fft, inverse, along dim 1") != std::string::npos);

  // A single dim that is split would be gathered.
  const auto gathered = [&](auto f) {
    return caught::error_of([&] { static_cast<void>(dynamic::compile(f, mesh, in({16}, {"x"}))); });
  };
  CHECK(caught::contains(gathered(all_dims), "needs whole lines along the dim that it transforms: it would gather [16]"));
  CHECK(caught::contains(gathered([](auto u) { return forbid_reshard(fft(u, {0})); }), "(it is transformed)"));
  CHECK(gathered([](auto u) { return allow_replication(fft(u, {0})); }) == "no error");

  // Over split examples, and hand-written: a device's columns, moved, then its rows.
  std::vector<std::complex<double>> u(4 * 6);
  for (std::size_t i = 0; i < u.size(); ++i) u[i] = {static_cast<double>(i * 7 % 11), static_cast<double>(i * 5 % 13)};
  const auto plain = dynamic::compile(all_dims, mesh, in({4, 6})).run(simulated{}, u);
  const auto mapped =
      dynamic::compile([](value v) { return vmap([](value e) { return fft(e, {0}); })(fft(v, {0})); }, mesh, in({4, 6}, {"x"}))
          .run(simulated{}, u);
  const auto by_hand = dynamic::compile(
                           [](value v) {
                             return manual<"x">([](value own) { return fft(local::all_to_all<"x">(fft(own, {1}), 0, 1), {0}); },
                                                takes<split<"x", _>>{}, gives<split<_, "x">>{})(v);
                           },
                           dynamic::mesh({{"x", 2}}), in({4, 6}, {"x"}))
                           .run(simulated{}, u);
  for (std::size_t i = 0; i < u.size(); ++i)
    for (const auto* other : {&mapped, &by_hand})
      CHECK(std::abs((*other)[0].data<std::complex<double>>()[i] - plain[0].data<std::complex<double>>()[i]) < 1e-12);

  const auto refusal = [&](auto f, auto x) { return caught::error_of([&] { static_cast<void>(dynamic::compile(f, mesh, x)); }); };
  CHECK(
      caught::contains(refusal(all_dims, dynamic::input<float>({4})), "x is f32; a transform is of complex numbers: write rfft"));
  CHECK(caught::contains(refusal([](auto v) { return ifft(v, 0); }, dynamic::input<int>({4})), "ifft at"));
  CHECK(caught::contains(refusal([](auto v) { return fft(v, 2); }, in({4, 4})), "is not a dim of [4,4]"));
  CHECK(caught::contains(refusal(all_dims, in({4, 0})), "has no elements; give it at least one"));
  CHECK(caught::contains(refusal(all_dims, in({1, 1, 1, 1, 1, 1, 1, 1, 1})), "of tensors of at most 8 dims"));
  CHECK(caught::contains(
      refusal([](auto v) { return vmap([](value e) { return fft(e, 0); })(v); }, in({2, 1, 1, 1, 1, 1, 1, 1, 4})),
      "is in a vmap and would have 9 dims; it takes at most 8"));
  CHECK(caught::contains(refusal([](auto v) { return rfft(v, 0); }, in({4})), "rfft at"));
  CHECK(caught::contains(refusal([](auto v) { return irfft(v, 9, gspmd::along(0)); }, in({4})),
                         "dim 0 of [4] is to have 9 real numbers, and their transform has n / 2 + 1 elements"));
}
