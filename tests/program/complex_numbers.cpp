// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Complex tensors: operators of every kind on random shapes and shardings, compared with loops over
// std::complex<double>, and gradients by their convention. The numbers are small integers, so sums and products are
// exact.
#include <doctest/doctest.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include "support/any_backend.hpp"
#include "support/error_of.hpp"
#include "support/random_split.hpp"

namespace {

using namespace gspmd;
using reference::any_backend;
using reference::draws;
using reference::random_split;
using std::int64_t;
using exact = std::complex<double>;

/// A matrix of exact numbers. `at` returns the number in a row and a column.
struct matrix {
  int64_t rows = 0, columns = 0;
  std::vector<exact> of;

  matrix(int64_t r, int64_t c, const std::function<exact(int64_t, int64_t)>& f) : rows(r), columns(c) {
    for (int64_t i = 0; i < r; ++i)
      for (int64_t j = 0; j < c; ++j) of.push_back(f(i, j));
  }
  [[nodiscard]] exact at(int64_t i, int64_t j) const { return of[static_cast<std::size_t>(i * columns + j)]; }
  template <class T>
  [[nodiscard]] std::vector<T> as() const {
    return {of.begin(), of.end()};
  }
};
exact total(int64_t n, const std::function<exact(int64_t)>& f) {
  exact sum = 0;
  for (int64_t k = 0; k < n; ++k) sum += f(k);
  return sum;
}

template <class Part>
void try_operators(std::uint64_t seed, const dynamic::mesh& m, const any_backend& backend) {
  using number = std::complex<Part>;
  CAPTURE(seed);
  draws r{std::mt19937_64(seed)};
  const int64_t extents[] = {1, 2, 3, 5, 8, 0};
  const int64_t a = extents[r.below(5)], b = extents[r.below(6)], c = extents[r.below(6)], n = extents[r.below(6)];
  const auto draw = [&](int64_t, int64_t) {
    return exact(static_cast<double>(r.below(7) - 3), static_cast<double>(r.below(7) - 3));
  };
  const matrix x(a, b, draw), y(a, b, draw), w(b, c, draw), u(n, b, draw);
  std::vector<std::int32_t> rows;
  for (int64_t k = 0; k < n; ++k) rows.push_back(static_cast<std::int32_t>(r.below(static_cast<int>(a) + 2) - 1));

  const auto p = dynamic::compile(
      [&](value vx, value vy, value vw, value vu, value vrows) {
        const value z = einsum("ab,bc->ac", vx, vw);
        const value placed = scatter(
            vx, vrows, vu,
            {.update_window_dims = {1}, .inserted_window_dims = {0}, .scatter_dims_to_operand_dims = {0}, .index_vector_dim = 1});
        allow_replication(placed);
        return std::array{(vx + vy) * conj(vx) - 2.0 * vy,
                          where(equal(vx, vy), vx, -vy),
                          complex(imag(vx), real(vy)),
                          vx / (vy * conj(vy) + 1.0),
                          abs(vx),
                          z,
                          einsum("ab,bc->ca", vx, vw),
                          einsum("ab,ab->b", vx, vy),
                          einsum("ab->ba", vx),
                          sum(vx, {0}),
                          sum(vx, {0, 1}),
                          cumsum(vx, 1, {.reverse = true}),
                          pad(vx, {1, 0}, {0, 2}),
                          concatenate({flip(vx, {1}), roll(vy, 1, along(0))}, 0),
                          scatter_add(vx, vrows, vu, 0),
                          grad(sum(real(z * conj(z)), {0, 1}), vx),
                          grad(sum(abs(vx), {0, 1}), vx),
                          grad(sum(imag(vx * vy) + real(conj(vx)), {0, 1}), vx),
                          cast<number>(real(vx)) + exp(vx - vx),
                          take(vx, vrows, 0),
                          take(vx, vrows, 0, out_of_range::fill, 2),
                          placed};
      },
      m, dynamic::input<number>({a, b}, random_split(r, m, 2)), dynamic::input<number>({a, b}, random_split(r, m, 2)),
      dynamic::input<number>({b, c}, random_split(r, m, 2)), dynamic::input<number>({n, b}, random_split(r, m, 2)),
      dynamic::input<std::int32_t>({n}));
  const auto xs = x.as<number>(), ys = y.as<number>(), ws = w.as<number>(), us = u.as<number>();
  const auto got = backend.run(p, {xs.data(), ys.data(), ws.data(), us.data(), rows.data()});

  const auto product = [&](int64_t i, int64_t j) { return total(b, [&](int64_t k) { return x.at(i, k) * w.at(k, j); }); };
  const auto row_of = [&](int64_t k) { return static_cast<int64_t>(rows[static_cast<std::size_t>(k)]); };
  const auto inside = [&](int64_t k) { return std::min(std::max(row_of(k), int64_t{0}), a - 1); };
  const auto each = [&](const std::function<exact(exact, exact)>& f) {
    return matrix(a, b, [&](int64_t i, int64_t j) { return f(x.at(i, j), y.at(i, j)); });
  };
  std::vector<matrix> wanted{
      each([](exact s, exact t) { return (s + t) * std::conj(s) - 2.0 * t; }),
      each([](exact s, exact t) { return s == t ? s : -t; }),
      each([](exact s, exact t) { return exact(s.imag(), t.real()); }),
      each([](exact s, exact t) { return s / (t * std::conj(t) + 1.0); }),
      each([](exact s, exact) { return std::abs(s); }),
      matrix(a, c, product),
      matrix(c, a, [&](int64_t j, int64_t i) { return product(i, j); }),
      matrix(1, b, [&](int64_t, int64_t j) { return total(a, [&](int64_t i) { return x.at(i, j) * y.at(i, j); }); }),
      matrix(b, a, [&](int64_t j, int64_t i) { return x.at(i, j); }),
      matrix(1, b, [&](int64_t, int64_t j) { return total(a, [&](int64_t i) { return x.at(i, j); }); }),
      matrix(1, 1, [&](int64_t, int64_t) { return total(a * b, [&](int64_t k) { return x.of[static_cast<std::size_t>(k)]; }); }),
      matrix(a, b, [&](int64_t i, int64_t j) { return total(b - j, [&](int64_t k) { return x.at(i, j + k); }); }),
      matrix(a + 1, b + 2, [&](int64_t i, int64_t j) { return i > 0 && j < b ? x.at(i - 1, j) : exact(0); }),
      matrix(2 * a, b, [&](int64_t i, int64_t j) { return i < a ? x.at(i, b - 1 - j) : y.at((i - a + a - 1) % a, j); }),
      matrix(a, b,
             [&](int64_t i, int64_t j) {
               return x.at(i, j) + total(n, [&](int64_t k) { return row_of(k) == i ? u.at(k, j) : exact(0); });
             }),
      matrix(
          a, b,
          [&](int64_t i, int64_t k) { return total(c, [&](int64_t j) { return 2.0 * product(i, j) * std::conj(w.at(k, j)); }); }),
      each([](exact s, exact) { return s == exact(0) ? exact(0) : s / std::abs(s); }),
      each([](exact, exact t) { return exact(t.imag() + 1, t.real()); }),
      each([](exact s, exact) { return s.real() + 1.0; }),
      matrix(n, b, [&](int64_t k, int64_t j) { return x.at(inside(k), j); }),
      matrix(n, b, [&](int64_t k, int64_t j) { return inside(k) == row_of(k) ? x.at(row_of(k), j) : exact(2); }),
      matrix(a, b, [&](int64_t i, int64_t j) {
        exact last = x.at(i, j);
        for (int64_t k = 0; k < n; ++k)
          if (row_of(k) == i) last = u.at(k, j);
        return last;
      })};
  REQUIRE(got.size() == wanted.size());
  for (std::size_t o = 0; o < wanted.size(); ++o) {
    const bool is_real = got[o].type == detail::part_of(detail::dtype_of<number>());
    int wrong = 0;
    for (std::size_t i = 0; i < wanted[o].of.size(); ++i) {
      const exact is = is_real ? exact(got[o].template data<Part>()[i]) : exact(got[o].template data<number>()[i]);
      if (!(std::abs(is - wanted[o].of[i]) <= 1e-5 * (1 + std::abs(wanted[o].of[i]))) && wrong++ == 0)
        FAIL_CHECK("output ", o, " [", a, ',', b, ',', c, ',', n, "] element ", i, " is ", is.real(), ' ', is.imag(), "i, not ",
                   wanted[o].of[i].real(), ' ', wanted[o].of[i].imag(), 'i');
    }
    CHECK(got[o].bytes.size() == wanted[o].of.size() * (is_real ? 1 : 2) * sizeof(Part));
  }
}

}  // namespace

TEST_CASE("complex tensors: every kind of operator, and gradients, on any sharding") {
  const dynamic::mesh one({{"x", 1}}), four({{"x", 4}}), grid({{"x", 2}, {"y", 3}}), line({{"x", 2}, {"y", 1}, {"z", 4}});
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    try_operators<float>(seed, one, serial{});
    for (const auto& m : {four, grid, line}) {
      try_operators<float>(seed, m, simulated{});
      try_operators<double>(seed + 100, m, simulated{});
    }
    if (seed % 4 == 0) try_operators<double>(seed + 200, grid, threads{});
  }
}

TEST_CASE("complex tensors: bytes are those of two parts, and what has no meaning is refused") {
  static_assert(std::is_trivially_copyable_v<c64> && sizeof(c64) == 8 && sizeof(c128) == 16);
  static_assert(detail::dtype_of<std::complex<float>>() == dtype::c64 && detail::dtype_of<c128>() == dtype::c128);
  const dynamic::mesh m({{"x", 4}});
  const auto product = [](value x, value w) { return einsum("ab,bc->ac", x, w); };
  const auto p = dynamic::compile(product, m, dynamic::input<c64>({8, 8}, {"", "x"}), dynamic::input<c64>({8, 8}, {"x", ""}));
  const auto q = dynamic::compile(product, m, dynamic::input<float>({8, 8}, {"", "x"}), dynamic::input<float>({8, 8}, {"x", ""}));
  CHECK(p.traffic().bytes == 2 * q.traffic().bytes);
  CHECK(p.flops_per_device() == 4 * q.flops_per_device());
  const auto refused = [&](auto f, const char* text) {
    const auto said = caught::refusal([&] { static_cast<void>(dynamic::compile(f, m, dynamic::input<c64>({4, 4}))); });
    CAPTURE(said);
    CHECK(caught::contains(said, text));
  };
  refused([](value z) { return max(z, z); }, "is not defined for c64; take real(x), imag(x) or abs(x)");
  refused([](value z) { return z < z; }, "compare_lt");
  refused([](value z) { return reduce(z, monoid::max, {0}); }, "kind max is not defined for c64; take real(x)");
  refused([](value z) { return reduce(z, monoid::multiply, {0}); }, "kind multiply is not defined for c64");
  refused([](value z) { return top_k(z, 1).first; }, "is not defined for c64");
  refused([](value z) { return sort(z, 0); }, "elements of c64 have no order");
  refused([](value z) { return cast<float>(z); }, "of c64 to f32 would lose a part; take real(x), imag(x) or abs(x)");
  refused([](value z) { return grad(sum(z), z); }, "is c64[]; it must be a float of rank 0, a loss: take real(x) or abs(x)");
  refused([](value z) { return einsum("(x+w)b,wb->xb", z, z); }, "einsum at complex_numbers.cpp");
  refused([](value z) { return convolution(z, z, "NC,IO->NC"); }, "is not defined for c64; it is linear");
  refused([](value z) { return sum_pool(z, {2, 2}); }, "is not defined for c64; it is linear: write it for real(x) and imag(x)");
  refused(
      [](value z) {
        return pad(cast<c128>(z), {1, 0}, {0, 0}, 0.1);
      },
      "the number 0.1 is no float, as it must be to fill c128");
  refused([](value z) { return real(real(z)); }, "is not defined for f32, which is real");
}

TEST_CASE("complex tensors: a compiled program of std::complex, split along what is summed, and its gradient") {
  using step = compile<[](auto x, auto w) {
    const value y = einsum<"bd,df->bf">(x, w);
    return std::tuple{y, grad(sum(abs(y)), w), sum(x, {0})};
  },
                       mesh<axis<"x", 2>>, input<std::complex<float>, shape<3, 4>, split<_, "x">>, input<c64, shape<4, 2>>>;
  static_assert(step::collectives == collectives{all_reduce<"x">} && step::traffic.bytes == 3 * 2 * 8);
  array<std::complex<float>> x({3, 4}), w({4, 2});
  for (int64_t i = 0; i < 12; ++i) x[i] = {static_cast<float>(i % 5), static_cast<float>(i % 3) - 1};
  for (int64_t i = 0; i < 8; ++i) w[i] = {1, static_cast<float>(i % 2)};
  const auto [y, dw, column] = run<step>(threads{}, x, w);
  for (int64_t f = 0; f < 2; ++f) {
    std::complex<float> gradient{};
    for (int64_t b = 0; b < 3; ++b) {
      std::complex<float> wanted{};
      for (int64_t d = 0; d < 4; ++d) wanted += x[b * 4 + d] * w[d * 2 + f];
      CHECK(std::abs(std::complex<float>(y[b * 2 + f]) - wanted) < 1e-5F);
      gradient += std::conj(x[b * 4]) * wanted / std::abs(wanted);
    }
    CHECK(std::abs(std::complex<float>(dw[f]) - gradient) < 1e-5F);
  }
  CHECK(std::complex<float>(column[1]) == x[1] + x[5] + x[9]);
}

TEST_CASE("std::complex is given and got: whole arrays, pointers to shards, sharded arrays, and in a function of one's own") {
  using number = std::complex<double>;
  constexpr auto program = [](auto x) {
    const auto squared = local_op<"a->a", types<number(number)>>([](auto z, auto result) {
      for (int64_t i = 0; i < z.extent(0); ++i) result(i) = z(i) * z(i);
    });
    return std::tuple{x * x, squared(x), cast<c64>(x)};
  };
  using step = compile<program, mesh<axis<"x", 2>>, input<number, shape<4>, split<"x">>>;
  static_assert(std::is_same_v<step::input_element<0>, number> && std::is_same_v<step::output_element<2>, std::complex<float>>);
  const std::vector<number> x{{1, 2}, {3, -1}, {0, 1}, {2, 2}};
  const array<number> whole = std::get<0>(run<step>(threads{}, x));
  const auto [y, own, narrow] = run<step>(simulated{}, x.data());
  for (int64_t i = 0; i < 4; ++i) {
    const number wanted = x[static_cast<std::size_t>(i)] * x[static_cast<std::size_t>(i)];
    CHECK(std::abs(whole[i] - wanted) == 0);
    CHECK(std::abs(y[i] - wanted) == 0);
    CHECK(std::abs(own[i] - wanted) == 0);
    CHECK(narrow[i] == std::complex<float>(x[static_cast<std::size_t>(i)]));
  }
  launch(threads{}, 2, [&](auto& comm) {
    step s;
    const auto shards = distribute<step, 0>(comm, x);
    auto y_shards = make_result<step, 0>(comm);
    number products[2];
    std::complex<float> narrow_shard[2];
    s(comm, shards.data(), y_shards.data(), products, narrow_shard);
    CHECK(std::abs(products[0] - y_shards.shard()[0]) == 0);
    auto own_shards = make_result<step, 1>(comm);
    auto narrow_shards = make_result<step, 2>(comm);
    s(comm, shards, y_shards, own_shards, narrow_shards);
    const array<number> gathered = collect(comm, y_shards);
    CHECK(std::abs(gathered[3] - x[3] * x[3]) == 0);
  });
}

TEST_CASE("arrays of narrow and of complex numbers are given as the vectors that hold them") {
  const auto twice = [](value x) { return x + x; };
  const dynamic::mesh m({{"x", 2}});
  const auto narrow = dynamic::compile(twice, m, dynamic::input<bf16>({3})).run(simulated{}, std::vector<bf16>(3, bf16(1.5F)));
  CHECK(static_cast<float>(narrow[0].data<bf16>()[2]) == 3);
  const auto wide =
      dynamic::compile(twice, m, dynamic::input<c128>({2})).run(simulated{}, std::array<std::complex<double>, 2>{1, {2, 3}});
  CHECK(wide[0].data<std::complex<double>>()[1] == std::complex<double>(4, 6));
}

TEST_CASE("complex tensors: loops carry and stack them, conditionals choose them, and gradients go through both") {
  const dynamic::mesh m({{"x", 2}});
  const auto p = dynamic::compile(
      [](value z, value rows) {
        const value turned = fori_loop(
            3, [&](value, value h) { return h * z; }, z);
        const auto [last, all] = scan([](value h, value row) { return std::pair{h + row, h * row}; }, sum(z, {0}), rows);
        const value chosen = cond(
            sum(real(z)) > 0.0, [](value x) { return conj(x); }, [](value x) { return -x; }, z);
        return std::tuple{turned, last, all, chosen, grad(sum(real(turned)), z), grad(sum(real(all)), rows)};
      },
      m, dynamic::input<c128>({4, 3}, {"x", ""}), dynamic::input<c128>({5, 3}, {"x", ""}));
  std::vector<exact> z, rows;
  for (int i = 0; i < 12; ++i) z.emplace_back(i % 3, i % 4 - 1);
  for (int i = 0; i < 15; ++i) rows.emplace_back(i % 4 - 1, i % 2);
  const auto got = p.run(simulated{}, z, rows);
  const auto is = [&](std::size_t o, std::size_t i, exact wanted) {
    const exact own = got[o].data<exact>()[i];
    if (!(std::abs(own - wanted) < 1e-12))
      FAIL_CHECK("output ", o, " element ", i, " is ", own.real(), " + ", own.imag(), "i, not ", wanted.real(), " + ",
                 wanted.imag(), 'i');
  };
  for (std::size_t i = 0; i < 12; ++i) {
    is(0, i, z[i] * z[i] * z[i] * z[i]);
    is(3, i, std::conj(z[i]));
    is(4, i, std::conj(4.0 * z[i] * z[i] * z[i]));
  }
  for (std::size_t j = 0; j < 3; ++j) {
    exact h = z[j] + z[j + 3] + z[j + 6] + z[j + 9];
    for (std::size_t k = 0; k < 5; ++k) {
      is(2, k * 3 + j, h * rows[k * 3 + j]);
      exact slope = h;  // of all terms with this row: its own and those of later rows
      for (std::size_t l = k + 1; l < 5; ++l) slope += rows[l * 3 + j];
      is(5, k * 3 + j, std::conj(slope));
      h += rows[k * 3 + j];
    }
    is(1, j, h);
  }
}

namespace {

constexpr auto of_pairs = [](auto x, auto y) { return std::tuple{x * y, conj(x) * y + x, -x - y}; };

/// Returns the number of parts of x * y, conj(x) * y + x and -x - y that differ in any bit from the textbook's, for n
/// numbers. Some numbers are infinite or NaN.
template <class Part, int64_t N>
int wrong_parts() {
  using number = std::complex<Part>;
  constexpr Part infinity = std::numeric_limits<Part>::infinity(), none = std::numeric_limits<Part>::quiet_NaN();
  draws r{std::mt19937_64(static_cast<std::uint64_t>(N))};
  array<number> x{N}, y{N};
  const auto part = [&] {
    const auto kind = r.below(12);
    return kind == 0   ? infinity
           : kind == 1 ? -infinity
           : kind == 2 ? none
           : kind == 3 ? Part(-0.0)
                       : static_cast<Part>(r.below(9) - 4);
  };
  for (auto* const all : {&x, &y})
    for (auto& e : *all) {
      const Part re = part();
      e = number(re, part());
    }
  using step = compile<of_pairs, mesh<axis<"d", 2>>, input<number, shape<N>, split<"d">>, input<number, shape<N>, split<"d">>>;
  const auto [product, other, difference] = run<step>(simulated{}, x, y);
  int wrong = 0;
  const auto is_same = [](Part a, Part b) { return (a != a && b != b) || (a == b && std::signbit(a) == std::signbit(b)); };
  const auto check = [&](number got, Part re, Part im) { wrong += is_same(got.real(), re) && is_same(got.imag(), im) ? 0 : 1; };
  for (int64_t i = 0; i < N; ++i) {
    const Part a = x.begin()[i].real(), b = x.begin()[i].imag(), c = y.begin()[i].real(), d = y.begin()[i].imag();
    check(number(product.begin()[i]), a * c - b * d, a * d + b * c);
    check(number(other.begin()[i]), a * c - -b * d + a, a * d + -b * c + b);
    check(number(difference.begin()[i]), -a - c, -b - d);
  }
  return wrong;
}

}  // namespace

TEST_CASE("complex tensors: products are the textbook's where parts are infinite or NaN, and of any length") {
  CHECK(wrong_parts<float, 1>() == 0);
  CHECK(wrong_parts<float, 67>() == 0);
  CHECK(wrong_parts<float, 1000>() == 0);
  CHECK(wrong_parts<double, 129>() == 0);
}
