// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Einsums of any number of operands, with diagonals and `...`: compared with nested loops on random meshes and
// shardings; the order with the fewest multiplications; and their mistakes.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
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

struct tensor {
  std::string letters;
  std::vector<int64_t> shape;
  std::vector<int64_t> data;
};

/// Computes with one loop over all letters. Letters are repeated for an operand that has extent 1 there.
std::vector<int64_t> naive(const std::vector<tensor>& operands, const std::string& result,
                           const std::map<char, int64_t>& extents) {
  int64_t total = 1, size = 1;
  for (const auto& [letter, extent] : extents) total *= extent;
  for (const char c : result) size *= extents.at(c);
  std::vector<int64_t> out(static_cast<std::size_t>(size));
  for (int64_t n = 0; n < total; ++n) {
    std::map<char, int64_t> at;
    int64_t rest = n;
    for (const auto& [letter, extent] : extents) {
      at[letter] = rest % extent;
      rest /= extent;
    }
    int64_t product = 1, place = 0;
    for (const auto& t : operands) {
      int64_t index = 0;
      for (std::size_t d = 0; d < t.letters.size(); ++d) index = index * t.shape[d] + (t.shape[d] == 1 ? 0 : at[t.letters[d]]);
      product *= t.data[static_cast<std::size_t>(index)];
    }
    for (const char c : result) place = place * extents.at(c) + at[c];
    out[static_cast<std::size_t>(place)] += product;
  }
  return out;
}

/// `letters` are the letters of the operands with `...` expanded. `dots` is the number of expanded letters, the first
/// ones of each operand and the result.
void try_once(std::uint64_t seed, const dynamic::mesh& m, const any_backend& backend) {
  CAPTURE(seed);
  draws r{std::mt19937_64(seed)};
  const int64_t sizes[] = {1, 2, 3, 5, 0, 4};
  std::map<char, int64_t> extents;
  const std::string all = "abcdef", dots = std::string("XY").substr(0, static_cast<std::size_t>(r.below(3)));
  const auto count = 1 + r.below(5);
  std::vector<tensor> operands;
  std::string equation, used;
  for (int64_t k = 0; k < count; ++k) {
    tensor t;
    if (!dots.empty() && (k == 0 || r.below(2) == 0)) t.letters = dots;
    equation += std::string(k > 0 ? "," : "") + (t.letters.empty() ? "" : "...");
    for (int64_t d = r.below(4); d > 0; --d) {
      t.letters += all[static_cast<std::size_t>(r.below(6))];  // a repeated letter is a diagonal
      equation += t.letters.back();
    }
    int64_t size = 1;
    for (const char c : t.letters) {
      if (!extents.contains(c)) extents[c] = sizes[r.below(6)];
      if (used.find(c) == std::string::npos) used += c;
      size *= t.shape.emplace_back(dots.find(c) != std::string::npos && k > 0 && r.below(3) == 0 ? 1 : extents[c]);
    }
    for (int64_t i = 0; i < size; ++i) t.data.push_back(r.below(11) - 5);
    operands.push_back(t);
  }
  std::string result = dots;
  equation += "->" + std::string(dots.empty() ? "" : "...");
  for (const char c : used)
    if (dots.find(c) == std::string::npos && r.below(2) == 0) {
      result += c;
      equation += c;
    }
  CAPTURE(equation);
  dynamic::builder b(m);
  std::vector<value> values;
  std::vector<const void*> data;
  for (const auto& t : operands) {
    values.push_back(b.input(dynamic::input<int64_t>(t.shape, random_split(r, m, t.shape.size()))));
    data.push_back(t.data.data());
  }
  b.output(einsum(equation, values));
  const auto got = backend.run(b.compile(), data);
  const auto wanted = naive(operands, result, extents);
  CHECK(std::vector<int64_t>(got[0].data<int64_t>(), got[0].data<int64_t>() + wanted.size()) == wanted);
}

}  // namespace

TEST_CASE("einsum: any number of operands, diagonals and `...`, as nested loops have it") {
  const dynamic::mesh one({{"x", 1}}), four({{"x", 4}}), grid({{"x", 2}, {"y", 3}});
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    try_once(3 * seed, one, serial{});
    try_once(3 * seed + 1, four, simulated{});
    try_once(3 * seed + 2, grid, simulated{});
    if (seed < 6) try_once(3 * seed + 1, four, threads{});
  }
}

TEST_CASE("einsum: the order of least multiplications") {
  const dynamic::mesh one({{"x", 1}});
  const auto flops = [&](std::string_view equation, auto... in) {
    return dynamic::compile([&](auto... x) { return einsum(equation, std::array{x...}); }, one, in...).flops_per_device();
  };
  const auto in = [](int64_t a, int64_t b) { return dynamic::input<float>({a, b}); };
  // (ab, bc), cd: 2 * (100 * 5 * 2 + 100 * 2 * 50); ab, (bc, cd) is 2 * (5 * 2 * 50 + 100 * 5 * 50)
  CHECK(flops("ab,bc,cd->ad", in(100, 5), in(5, 2), in(2, 50)) == 2 * (1000 + 10000));
  CHECK(flops("ab,bc,cd->ad", in(50, 2), in(2, 5), in(5, 100)) == 2 * (2 * 5 * 100 + 50 * 2 * 100));
  CHECK(flops("ab,cd,bc->ad", in(50, 2), in(5, 100), in(2, 5)) == 2 * (2 * 5 * 100 + 50 * 2 * 100));
  constexpr auto gradient = [](value x, value w, value v) {
    return grad(sum(einsum<"ab,bc,cd->ad">(x, w, v)), std::array{x, w, v});
  };
  const auto p = dynamic::compile(gradient, one, in(2, 3), in(3, 4), in(4, 2));
  const std::vector<float> x(6, 1), w(12, 2), v(8, 3);
  const auto g = p.run(serial{}, {x.data(), w.data(), v.data()});
  CHECK(g[0].data<float>()[0] == 48);
  CHECK(g[1].data<float>()[0] == 12);
  CHECK(g[2].data<float>()[0] == 12);
}

TEST_CASE("einsum: a trace of a sharded matrix gathers nothing") {
  const dynamic::mesh m({{"x", 4}});
  const auto p = dynamic::compile([](value x) { return einsum<"ii->">(x); }, m, dynamic::input<float>({8, 8}, {"x", ""}));
  CHECK(p.collectives() == std::vector<collective>{all_reduce<"x">});
  std::vector<float> x(64);
  for (std::size_t i = 0; i < 64; ++i) x[i] = static_cast<float>(i);
  CHECK(p.run(threads{}, {x.data()})[0].data<float>()[0] == 9 * 28);
}

namespace {

/// Returns the largest number of elements of a loop of a plan.
int64_t largest_loop(const dynamic::program& p) {
  int64_t most = 0;
  for (const auto& g : detail::table_of<detail::planned_group>(p.view())) most = std::max(most, detail::elements(g.loop));
  return most;
}
/// An einsum of numbers 1, 2, ..., whose elements outside of the diagonal are not finite, on a mesh of three devices.
/// If IsComputed, of the doubled numbers.
template <class T, bool IsComputed = false>
std::vector<T> of_diagonal(std::string_view equation, const std::vector<int64_t>& shape, const std::vector<std::string>& split,
                           int64_t most_elements) {
  const dynamic::mesh m({{"x", 3}});
  const auto f = [equation](value x) { return einsum(equation, std::array{IsComputed ? x + x : x}); };
  const auto p = dynamic::compile(f, m, dynamic::input<T>(shape, split));
  CHECK(largest_loop(p) <= most_elements);
  int64_t size = 1;
  for (const auto n : shape) size *= n;
  const auto inner = size / (shape[0] * shape[1]);
  std::vector<T> x(static_cast<std::size_t>(size));
  T beside{};
  if constexpr (std::is_integral_v<T>) beside = std::numeric_limits<T>::max();
  else beside = T(std::numeric_limits<float>::infinity());
  for (int64_t i = 0; i < size; ++i)
    x[static_cast<std::size_t>(i)] = i / inner / shape[1] == i / inner % shape[1] ? T(static_cast<float>(i % 61 + 1)) : beside;
  const auto got = p.run(simulated{}, {x.data()});
  return {got[0].template data<T>(), got[0].template data<T>() + got[0].bytes.size() / sizeof(T)};
}
template <class T>
void check_diagonals() {
  constexpr int64_t n = 7, m = 5;
  const auto at = [](int64_t i, int64_t j, int64_t columns) { return static_cast<float>((i * (n + 1) * columns + j) % 61 + 1); };
  std::vector<T> one, rows;
  std::vector<float> sums(m);
  float trace = 0;
  for (int64_t i = 0; i < n; ++i) one.push_back(T(at(i, 0, 1))), trace += at(i, 0, 1);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < m; ++j) rows.push_back(T(at(i, j, m))), sums[static_cast<std::size_t>(j)] += at(i, j, m);
  CHECK(of_diagonal<T>("ii->i", {n, n}, {"", ""}, n) == one);
  CHECK(of_diagonal<T>("ii->", {n, n}, {"", ""}, n) == std::vector<T>{T(trace)});
  for (const char* const columns : {"", "x"}) {  // the additional dim is split unevenly
    CHECK(of_diagonal<T>("iij->ij", {n, n, m}, {"", "", columns}, n * m) == rows);
    CHECK(of_diagonal<T>("iij->j", {n, n, m}, {"", "", columns}, n * m) == std::vector<T>(sums.begin(), sums.end()));
  }
  std::vector<T> turned;
  for (int64_t j = 0; j < m; ++j)
    for (int64_t i = 0; i < n; ++i) turned.push_back(rows[static_cast<std::size_t>(i * m + j)]);
  CHECK(of_diagonal<T>("iij->ji", {n, n, m}, {"", "", "x"}, n * m) == turned);
}

}  // namespace

TEST_CASE("einsum: of a diagonal that is whole on a device a loop reads nothing else") {
  check_diagonals<float>();
  check_diagonals<int32_t>();
  check_diagonals<bf16>();
  // a split operand is masked in place: all of a shard is read, and nothing is moved
  CHECK(of_diagonal<double>("ii->i", {4, 4}, {"x", ""}, 8) == std::vector<double>{1, 6, 11, 16});
  for (const char* const rows : {"", "x"}) {  // -0.0 stays -0.0, also when masked
    const auto p = dynamic::compile([](value x) { return einsum<"ii->i">(x); }, dynamic::mesh({{"x", 3}}),
                                    dynamic::input<float>({4, 4}, {rows, ""}));
    const std::vector<float> x(16, -0.0F);
    const auto got = p.run(simulated{}, {x.data()});
    CHECK(std::all_of(got[0].data<float>(), got[0].data<float>() + 4, [](float e) { return std::signbit(e); }));
  }
  // a computed operand is not written to memory for it
  CHECK(of_diagonal<double, true>("ii->", {4, 4}, {"", ""}, 16) == std::vector<double>{68});
}

TEST_CASE("what a mask leaves of a rectangle is summed as it is written, where no index of the longer dim is on a diagonal too") {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{3, 5}, {5, 3}, {1, 4}, {4, 1}, {2, 3, 4}, {3, 2, 4}, {3, 3, 2}})
    for (const int summed : {0, 1}) {
      CAPTURE(shape[0]);
      CAPTURE(summed);
      const auto f = [&shape, summed](value x) {
        return sum(where(equal(iota<int64_t>(x, shape, 0), iota<int64_t>(x, shape, 1)), x, 0.0), {summed});
      };
      const int64_t rest = shape.size() > 2 ? shape[2] : 1;
      std::vector<double> x(static_cast<std::size_t>(shape[0] * shape[1] * rest), std::numeric_limits<double>::infinity());
      std::vector<double> left(static_cast<std::size_t>(shape[summed == 0 ? 1 : 0] * rest), 0.0);
      for (int64_t i = 0; i < std::min(shape[0], shape[1]); ++i)
        for (int64_t k = 0; k < rest; ++k)
          x[static_cast<std::size_t>((i * shape[1] + i) * rest + k)] = left[static_cast<std::size_t>(i * rest + k)] =
              static_cast<double>(i * rest + k + 1);
      std::vector<std::string> split(shape.size());
      const auto got = dynamic::compile(f, dynamic::mesh({{"x", 3}}), dynamic::input<double>(shape, split)).run(simulated{}, x);
      CHECK(std::vector<double>(got[0].data<double>(), got[0].data<double>() + left.size()) == left);
    }
}

TEST_CASE("einsum: diagonals in compiled programs, with gradients, of one index and of none") {
  constexpr auto f = [](auto x, auto w) {
    return std::tuple{einsum<"iij->j">(std::array{x}), einsum<"jj->j">(std::array{w}), einsum<"iij,jj->i">(std::array{x, w}),
                      grad(sum(einsum<"iij,jj->i">(std::array{x, w})), std::array{x, w})};
  };
  const auto check = [&]<int64_t N, int64_t M>() {
    using step =
        compile<f, mesh<axis<"x", 2>>, input<double, shape<N, N, M>, split<_, _, "x">>, input<double, shape<M, M>, split<_, _>>>;
    array<double> x({N, N, M}), w({M, M});
    for (int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i % 13 - 6);
    for (int64_t i = 0; i < w.size(); ++i) w[i] = static_cast<double>(i % 7 - 3);
    const auto [sums, of_square, products, gradients] = run<step>(threads{}, x, w);
    const auto& [of_x, of_w] = gradients;
    for (int64_t j = 0; j < M; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < N; ++i) sum += x[(i * N + i) * M + j];
      CHECK(sums[j] == sum);
      CHECK(of_square[j] == w[j * M + j]);
      for (int64_t k = 0; k < M; ++k) CHECK(of_w[j * M + k] == (j == k ? sum : 0));
    }
    for (int64_t i = 0; i < N; ++i) {
      double product = 0;
      for (int64_t j = 0; j < M; ++j) {
        product += x[(i * N + i) * M + j] * w[j * M + j];
        for (int64_t k = 0; k < N; ++k) CHECK(of_x[(i * N + k) * M + j] == (i == k ? w[j * M + j] : 0));
      }
      CHECK(products[i] == product);
    }
  };
  check.operator()<5, 3>();
  check.operator()<1, 1>();
  check.operator()<3, 0>();
}

TEST_CASE("einsum: what is wrong with an equation of many operands") {
  const dynamic::mesh two({{"x", 2}});
  const auto said = [&](std::string_view equation, int64_t b = 4) {
    return caught::refusal([&] {
      dynamic::compile(
          [&](value x, value y) {
            return einsum(equation, std::array{x, y, y});
          },
          two, dynamic::input<float>({3, 4}), dynamic::input<float>({b, b + 1}));
    });
  };
  CHECK(caught::contains(said("...a,ab,ab->b"), "has `...` in an operand and not after ->, so it is ambiguous"));
  CHECK(caught::contains(said("ab,bb,bc->c"), "takes the diagonal of dims 0 and 1 of [4,5], whose extents differ"));
  CHECK(caught::contains(said("ab,bc,bc->ad"),
                         "has `d` after -> and in no operand; remove it, or use broadcast_in_dim to add a dim"));
  CHECK(caught::contains(said("ab,bc,bc->cc"), "has `c` twice after ->"));
  CHECK(caught::contains(said("ab,bc,cd->ad"), "gives dim `c` the extents 5 and 4; a letter has one extent"));
  CHECK(caught::contains(said("ab,bc,bcd->ad"), "names 3 dims of operand 2, the tensor is [4,5] of rank 2"));
  CHECK(caught::contains(said("ab,bc,bc,c->a"), "has 4 operands, the call has 3"));
  CHECK(caught::contains(said("ab,bc,b2->a"), "has at column 8 an unexpected character"));
}
