// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive native
#include "gspmd/detail/kernels/contraction.hpp"
#include "gspmd/detail/ir/contraction_planner.hpp"
#include "gspmd/detail/kernels/unrolled_product.hpp"
#include "gspmd/detail/run/parts/part_of_contraction.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/sanitized.hpp"

using namespace gspmd::detail;

namespace {

/// Returns the number of matrix products of a plan with whole bounds; 0 for vector plans.
std::int64_t gemm_calls(const contraction_plan& plan) {
  if (plan.is_vector) return 0;
  std::int64_t calls = 1;
  for (const auto& loop : plan.loops) calls *= loop.extent;
  for (int i = 0; i < plan.sums.count - plan.merged_sums; ++i) calls *= plan.sums[i].extent;
  return calls;
}

// "ab,bc->ac" with the extents of a, b, c, ...
constexpr contraction equation(std::string_view text, std::initializer_list<std::int64_t> extents) {
  contraction c;
  int part = 0;
  for (const char x : text) {
    if (x == ',' || x == '>') ++part;
    else if (x != '-') (part == 0 ? c.lhs : part == 1 ? c.rhs : c.out).push_back(static_cast<std::int8_t>(x - 'a'));
  }
  for (const auto n : extents) c.extent.push_back(n);
  return c;
}

std::string text_of(const contraction& c, const std::vector<std::int64_t>& valid) {
  std::string s;
  for (const auto l : c.lhs) s += static_cast<char>('a' + l);
  s += ',';
  for (const auto l : c.rhs) s += static_cast<char>('a' + l);
  s += "->";
  for (const auto l : c.out) s += static_cast<char>('a' + l);
  for (const auto& w : c.windows)
    s += " [" + std::to_string(w.first) + '+' + std::to_string(w.step) + static_cast<char>('a' + w.letter) + '+' +
         std::to_string(w.inner_step) + static_cast<char>('a' + w.inner) + " of " + std::to_string(w.extent) + " held " +
         std::to_string(w.held) + " mod " + std::to_string(w.base) + ']';
  for (int l = 0; l < c.extent.count; ++l) {
    s += ' ';
    s += std::to_string(c.extent[l]);
    s += '/';
    s += std::to_string(valid[static_cast<std::size_t>(l)]);
  }
  return s;
}

using letters = inline_vec<std::int8_t, max_rank>;

std::int64_t offset_of(const letters& dims, const contraction& c, const std::vector<std::int64_t>& at) {
  std::int64_t offset = 0;
  for (const auto l : dims) offset = offset * c.extent[l] + at[static_cast<std::size_t>(l)];
  return offset;
}
std::size_t elems_of(const letters& dims, const contraction& c) {
  std::size_t n = 1;
  for (const auto l : dims) n *= static_cast<std::size_t>(c.extent[l]);
  return n;
}
bool has(const letters& dims, int letter) {
  for (const auto l : dims)
    if (l == letter) return true;
  return false;
}

// The left operand may be read through windows.
const contraction_window* window_at(const contraction& c, int letter) {
  for (const auto& w : c.windows)
    if (w.letter == letter) return &w;
  return nullptr;
}
std::int64_t offset_of_lhs(const contraction& c, const std::vector<std::int64_t>& at) {
  std::int64_t offset = 0;
  const auto index = [&](int l) { return at[static_cast<std::size_t>(l)]; };
  for (const auto l : c.lhs) {
    const auto* const w = window_at(c, l);
    offset = w == nullptr ? offset * c.extent[l] + index(l)
                          : offset * w->extent + w->first + w->step * index(l) + w->inner_step * index(w->inner);
  }
  return offset;
}
std::size_t elems_of_lhs(const contraction& c) {
  std::size_t n = 1;
  for (const auto l : c.lhs) n *= static_cast<std::size_t>(window_at(c, l) == nullptr ? c.extent[l] : window_at(c, l)->extent);
  return n;
}
bool lhs_has(const contraction& c, int letter) {
  for (const auto& w : c.windows)
    if (w.inner == letter) return true;
  return has(c.lhs, letter);
}

// Calls body(at) for every index below the bounds of the letters in use.
template <class Body>
void for_all(const std::vector<std::int64_t>& bounds, Body&& body) {
  std::vector<std::int64_t> at(bounds.size(), 0);
  for (const auto b : bounds)
    if (b <= 0) return;
  for (;;) {
    body(at);
    std::size_t i = at.size();
    while (i > 0 && ++at[i - 1] == bounds[i - 1]) at[--i] = 0;
    if (i == 0) return;
  }
}

template <class T>
T garbage() {
  if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::quiet_NaN();
  else return std::numeric_limits<T>::max() - 12345;
}

// Small whole numbers, so that float sums are exact in any order. Integers have any size, and their products wrap
// around.
template <class T>
T draw(std::mt19937& random) {
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(static_cast<int>(random() % 9) - 4);
  else return static_cast<T>(random());
}

template <class T>
std::vector<T> operand(const letters& dims, const contraction& c, const std::vector<std::int64_t>& valid, std::mt19937& random) {
  std::vector<T> data(elems_of(dims, c));
  std::vector<std::int64_t> bounds;
  for (int l = 0; l < c.extent.count; ++l) bounds.push_back(has(dims, l) ? c.extent[l] : 1);
  for_all(bounds, [&](const std::vector<std::int64_t>& at) {
    bool is_valid = true;
    for (const auto l : dims) is_valid = is_valid && at[static_cast<std::size_t>(l)] < valid[static_cast<std::size_t>(l)];
    data[static_cast<std::size_t>(offset_of(dims, c, at))] = is_valid ? draw<T>(random) : garbage<T>();
  });
  return data;
}

template <class T>
std::vector<T> left_operand(const contraction& c, const std::vector<std::int64_t>& valid, std::mt19937& random) {
  if (c.windows.empty()) return operand<T>(c.lhs, c, valid, random);
  std::vector<T> data(elems_of_lhs(c), garbage<T>());
  std::vector<std::int64_t> bounds;
  for (int l = 0; l < c.extent.count; ++l)
    bounds.push_back(!lhs_has(c, l) ? 1 : has(c.out, l) ? c.extent[l] : valid[static_cast<std::size_t>(l)]);
  for_all(bounds, [&](const auto& at) {
    bool is_held = true;  // elements that are not held are 0
    for (const auto& w : c.windows) {
      const auto index =
          w.first + w.step * at[static_cast<std::size_t>(w.letter)] + w.inner_step * at[static_cast<std::size_t>(w.inner)];
      is_held = is_held && index % w.base == w.held;
    }
    data[static_cast<std::size_t>(offset_of_lhs(c, at))] = is_held ? draw<T>(random) : T{};
  });
  return data;
}

// `run` executes the plan: run(valid, a, b, out, scratch).
template <class T, class Run>
void check_run(const contraction_plan& plan, const contraction& c, const std::vector<std::int64_t>& valid, std::mt19937& random,
               const Run& run) {
  using u = kernel_t<T>;
  const auto a = left_operand<T>(c, valid, random), b = operand<T>(c.rhs, c, valid, random);
  constexpr std::size_t guard = 8;
  std::vector<T> out(elems_of(c.out, c) + guard, garbage<T>());
  std::vector<T> scratch(static_cast<std::size_t>(plan.scratch_elems) + guard, garbage<T>());
  for (std::size_t i = 0; i < guard; ++i) out[elems_of(c.out, c) + i] = scratch[scratch.size() - 1 - i] = T(7);
  run(valid.data(), a.data(), b.data(), out.data(), scratch.data());

  std::vector<u> expected(elems_of(c.out, c), u{});
  std::vector<char> is_defined(expected.size(), 0);
  std::vector<std::int64_t> bounds, out_bounds;
  for (int l = 0; l < c.extent.count; ++l) {
    const bool is_used = lhs_has(c, l) || has(c.rhs, l);
    bounds.push_back(is_used ? valid[static_cast<std::size_t>(l)] : 1);
    out_bounds.push_back(has(c.out, l) ? valid[static_cast<std::size_t>(l)] : 1);
  }
  for_all(bounds, [&](const std::vector<std::int64_t>& at) {
    const auto x = static_cast<u>(a[static_cast<std::size_t>(offset_of_lhs(c, at))]);
    const auto y = static_cast<u>(b[static_cast<std::size_t>(offset_of(c.rhs, c, at))]);
    auto& sum = expected[static_cast<std::size_t>(offset_of(c.out, c, at))];
    sum = static_cast<u>(sum + x * y);
  });
  for_all(out_bounds,
          [&](const std::vector<std::int64_t>& at) { is_defined[static_cast<std::size_t>(offset_of(c.out, c, at))] = 1; });
  bool is_right = true;
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (is_defined[i] != 0 && !(out[i] == static_cast<T>(expected[i]))) is_right = false;
  for (std::size_t i = 0; i < guard; ++i)
    if (out[expected.size() + i] != T(7) || scratch[scratch.size() - 1 - i] != T(7)) is_right = false;
  if (!is_right) FAIL_CHECK(text_of(c, valid));
}

template <class T, class Spec>
void check(Spec spec, const contraction& c, const std::vector<std::int64_t>& valid, std::mt19937& random) {
  check_run<T>(spec(), c, valid, random, [&](auto... pointers) { contract<T>(spec, pointers...); });
}
template <class T>
void check(const contraction& c, const std::vector<std::int64_t>& valid, std::mt19937& random) {
  const auto plan = plan_contraction(c);
  check<T>(runtime_spec{&plan}, c, valid, random);
}

contraction random_equation(std::mt19937& random, int most_letters, std::int64_t most_extent) {
  contraction c;
  const int count = 1 + static_cast<int>(random() % static_cast<unsigned>(most_letters));
  std::vector<std::int8_t> all;
  for (int l = 0; l < count; ++l) {
    const auto dice = random() % 24;
    c.extent.push_back(dice == 0   ? 0
                       : dice <= 2 ? 1
                                   : 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(most_extent)));
    all.push_back(static_cast<std::int8_t>(l));
  }
  const auto some = [&](unsigned percent) {
    letters chosen;
    for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random() % i]);
    for (const auto l : all)
      if (chosen.count < 5 && random() % 100 < percent) chosen.push_back(l);
    return chosen;
  };
  c.lhs = some(70);
  c.rhs = some(70);
  for (const auto l : some(60))
    if (has(c.lhs, l) || has(c.rhs, l)) c.out.push_back(l);
  return c;
}

// Replaces some letters by pairs, for which the left operand has one dim. The other letters of the pairs are in another
// tensor too.
contraction random_windows(std::mt19937& random, int most_letters, std::int64_t most_extent) {
  contraction c = random_equation(random, most_letters, most_extent);
  for (const auto l : c.lhs)
    if (!has(c.rhs, l) && !has(c.out, l)) (random() % 2 == 0 ? c.rhs : c.out).push_back(l);
  for (const auto l : c.lhs) {
    if (random() % 3 == 0 || c.windows.count == 3) continue;
    contraction_window w;
    w.letter = l;
    w.inner = static_cast<std::int8_t>(c.extent.count);
    c.extent.push_back(random() % 12 == 0 ? 0 : 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(most_extent)));
    const bool in_out = random() % 2 == 0;
    auto& other = in_out ? c.out : c.rhs;
    other.insert(static_cast<int>(random() % static_cast<unsigned>(other.count + 1)), w.inner);
    if (random() % 6 == 0 && !has(in_out ? c.rhs : c.out, w.inner)) (in_out ? c.rhs : c.out).push_back(w.inner);
    const auto step = [&] { return (random() % 2 == 0 ? 1 : 1 + static_cast<std::int64_t>(random() % 3)); };
    w.step = step();
    w.inner_step = random() % 3 == 0 ? -step() : step();
    if (random() % 8 == 0) w.step = -w.step;
    const auto reach = [&](std::int64_t by, int letter) { return c.extent[letter] == 0 ? 0 : by * (c.extent[letter] - 1); };
    const auto a = reach(w.step, w.letter), b = reach(w.inner_step, w.inner);
    w.first = static_cast<std::int64_t>(random() % 2) - std::min(a, std::int64_t{0}) - std::min(b, std::int64_t{0});
    w.extent =
        w.first + std::max(a, std::int64_t{0}) + std::max(b, std::int64_t{0}) + 1 + static_cast<std::int64_t>(random() % 2);
    if (random() % 2 == 0) {
      w.base = 1 + static_cast<std::int64_t>(random() % 4);
      w.held = static_cast<std::int64_t>(random() % static_cast<unsigned>(w.base));
    }
    c.windows.push_back(w);
  }
  return c;
}

std::vector<std::int64_t> random_bounds(const contraction& c, std::mt19937& random) {
  std::vector<std::int64_t> valid;
  for (int l = 0; l < c.extent.count; ++l)
    valid.push_back(random() % 2 == 0 ? c.extent[l]
                                      : static_cast<std::int64_t>(random() % static_cast<unsigned>(c.extent[l] + 1)));
  return valid;
}

template <class T>
void check_random(unsigned seed, int cases, int most_letters, std::int64_t most_extent) {
  std::mt19937 random(seed);
  for (int i = 0; i < cases; ++i) {
    const auto c = random_equation(random, most_letters, most_extent);
    check<T>(c, random_bounds(c, random), random);
    check<T>(c, std::vector<std::int64_t>(c.extent.begin(), c.extent.end()), random);
  }
}

// Plans that the cost estimate does not choose at these sizes must be right too.
template <class T>
void check_forced(const contraction& c, const std::vector<std::int64_t>& valid, std::mt19937& random, unsigned packed) {
  for (const auto n : c.extent)
    if (n == 0) return;
  contraction_planner planner(c);
  for (int b = 0; b < 3; ++b)
    if ((packed >> b & 1U) != 0 && planner.dims[b].count < 2) return;
  const auto plan = planner.plan_as(packed);
  check<T>(runtime_spec{&plan}, c, valid, random);
}

}  // namespace

TEST_CASE("contraction: random equations, extents and bounds agree with a loop over all letters") {
  check_random<float>(1, 4000, 6, 5);
  check_random<double>(2, 4000, 6, 5);
  check_random<std::int32_t>(3, 3000, 6, 5);
  check_random<std::int64_t>(4, 3000, 6, 5);
}

TEST_CASE("contraction: larger extents, past the block sizes of the kernels") {
  check_random<float>(5, 200, 3, 90);
  check_random<double>(6, 100, 4, 30);
  check_random<std::int32_t>(7, 100, 3, 90);
  check_random<std::int64_t>(8, 50, 3, 150);
}

TEST_CASE("contraction: every set of packed buffers gives the same result") {
  std::mt19937 random(9);
  for (int i = 0; i < 2000; ++i) {
    const auto c = random_equation(random, 6, 5);
    const auto valid = random_bounds(c, random);
    for (unsigned packed = 0; packed < 8; ++packed) {
      check_forced<double>(c, valid, random, packed);
      check_forced<std::int32_t>(c, valid, random, packed);
    }
  }
}

TEST_CASE("contraction: many small products, of every width and in every layout") {
  std::mt19937 random(13);
  constexpr std::string_view equations[] = {"abc,acd->abd", "acb,acd->abd", "abc,acd->adb",
                                            "abc,adc->abd", "abc,cd->abd",  "abcd,bade->abce"};
  int many = 0;
  for (int i = 0; i < 1500; ++i) {
    const auto below = [&](unsigned most) { return 1 + static_cast<std::int64_t>(random() % most); };
    auto c = equation(equations[random() % 6], {});
    const int letters = c.lhs.count + 1;  // batches, rows, terms and columns
    for (int l = 0; l + 3 < letters; ++l) c.extent.push_back(below(35));
    const auto rows = below(9), terms = below(9), columns = below(19);
    for (const auto n : {rows, terms, columns}) c.extent.push_back(n);
    many += rows * columns * terms <= worth_a_gemm_call ? 1 : 0;
    const std::vector<std::int64_t> whole(c.extent.begin(), c.extent.end());
    check<float>(c, whole, random);
    check<double>(c, whole, random);
    check<double>(c, random_bounds(c, random), random);
  }
  CHECK(many > 800);
}

TEST_CASE("contraction: the left operand is read through windows") {
  std::mt19937 random(12);
  for (int i = 0; i < (reference::is_sanitized ? 1000 : 4000); ++i) {
    const auto c = random_windows(random, 4, i % 40 == 0 ? 20 : 4);
    const auto valid = random_bounds(c, random);
    check<float>(c, valid, random);
    check<std::int32_t>(c, valid, random);
    for (unsigned packed = 0; packed < 8; ++packed) check_forced<double>(c, valid, random, packed);
  }
}

TEST_CASE("contraction: the usual equations are one product, or one per batch, without copies") {
  struct usual {
    const char* text;
    std::int64_t calls;
  };
  for (const std::int64_t n : {2, 7, 64, 512}) {
    for (const usual& e :
         {usual{"ab,bc->ac", 1}, usual{"ab,cb->ac", 1}, usual{"ba,bc->ac", 1}, usual{"ba,cb->ac", 1}, usual{"ab,bc->ca", 1},
          usual{"ab,cb->ca", 1}, usual{"ba,bc->ca", 1}, usual{"abc,cd->abd", 1}, usual{"abc,dc->abd", 1}, usual{"abc,abd->cd", 1},
          usual{"abc,abd->dc", 1}, usual{"abc,bcd->ad", 1}, usual{"ab,b->a", 1}, usual{"ab,a->b", 1}, usual{"a,ab->b", 1},
          usual{"a,a->", 1}, usual{"ab,ab->", 1}, usual{"abc,cde->abde", 1}, usual{"cab,cde->abde", 1}}) {
      contraction c = equation(e.text, {n, n + 1, n + 2, n + 3, n + 4});
      c.padded = 0;
      const auto plan = plan_contraction(c);
      INFO(e.text << " " << n);
      CHECK(gemm_calls(plan) == e.calls);
      CHECK_FALSE((plan.lhs.packed || plan.rhs.packed || plan.unpacked));
      CHECK((plan.scratch_elems == 0 || plan.levels > 0));
    }
  }
  // Batched, at sizes for which matrix products are right.
  const auto attention =
      plan_contraction(equation("bshd,bthd->bhst", {1, 4, 1, 64, 1, 1, 1, 8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 128, 128}));
  CHECK(gemm_calls(attention) == 32);
  CHECK(attention.scratch_elems == 0);
  const auto weighted =
      plan_contraction(equation("bhst,bthd->bshd", {1, 4, 1, 64, 1, 1, 1, 8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 128, 128}));
  CHECK(gemm_calls(weighted) == 32);
  CHECK(weighted.scratch_elems == 0);
  const auto batched = plan_contraction(equation("abc,acd->abd", {16, 64, 64, 64}));
  CHECK(gemm_calls(batched) == 16);
  CHECK(batched.scratch_elems == 0);
  // Only batch letters: no product of matrices.
  CHECK(plan_contraction(equation("ab,ab->ab", {64, 64})).is_vector);
  // Contracting letters that are separated in both operands: copies, and then one product.
  const auto apart = plan_contraction(equation("acik,cbkj->abij", {48, 48, 48, 1, 1, 1, 1, 1, 48, 48, 48}));
  CHECK(gemm_calls(apart) == 1);
}

namespace {
constexpr auto static_plan =
    plan_contraction(equation("bshd,bthd->bhst", {1, 2, 1, 5, 1, 1, 1, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 7, 9}));
constexpr auto static_sum = plan_contraction(equation("abcd,ed->ac", {3, 4, 5, 6, 7}));
constexpr auto static_large = plan_contraction(equation("acik,cbkj->abij", {48, 48, 48, 1, 1, 1, 1, 1, 48, 48, 48}));
static_assert(static_large.unpacked);
}  // namespace

TEST_CASE("contraction: a constant plan and a run-time plan are the same kernel") {
  std::mt19937 random(10);
  const auto attention = equation("bshd,bthd->bhst", {1, 2, 1, 5, 1, 1, 1, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 7, 9});
  const auto sum = equation("abcd,ed->ac", {3, 4, 5, 6, 7});
  for (int i = 0; i < 20; ++i) {
    check<float>(constant_spec<static_plan>{}, attention, random_bounds(attention, random), random);
    check<double>(constant_spec<static_sum>{}, sum, random_bounds(sum, random), random);
  }
}

TEST_CASE("gemm: every transposition, leading dimension and accumulation") {
  std::mt19937 random(11);
  for (int i = 0; i < 400; ++i) {
    const bool ta = random() % 2 == 0, tb = random() % 2 == 0, accumulate = random() % 2 == 0;
    const auto size = [&] { return static_cast<std::int64_t>(random() % (random() % 2 == 0 ? 5 : 70)); };
    const auto m = size(), n = size(), k = size();
    const auto pad = [&] { return static_cast<std::int64_t>(random() % 3); };
    const auto lda = (ta ? m : k) + pad() + 1, ldb = (tb ? k : n) + pad() + 1, ldc = n + pad() + 1;
    const auto fill = [&](std::int64_t elems) {
      std::vector<double> v(static_cast<std::size_t>(elems));
      for (auto& x : v) x = draw<double>(random);
      return v;
    };
    const auto a = fill((ta ? k : m) * lda), b = fill((tb ? n : k) * ldb);
    auto c = fill(m * ldc);
    auto expected = c;
    if (!accumulate)
      for (std::int64_t r = 0; r < m; ++r)
        for (std::int64_t j = 0; j < n; ++j) c[static_cast<std::size_t>(r * ldc + j)] = std::nan("");
    for (std::int64_t r = 0; r < m; ++r)
      for (std::int64_t j = 0; j < n; ++j) {
        auto& x = expected[static_cast<std::size_t>(r * ldc + j)];
        if (!accumulate) x = 0;
        for (std::int64_t p = 0; p < k; ++p)
          x += a[static_cast<std::size_t>(ta ? p * lda + r : r * lda + p)] *
               b[static_cast<std::size_t>(tb ? j * ldb + p : p * ldb + j)];
      }
    gemm(ta, tb, m, n, k, a.data(), lda, b.data(), ldb, c.data(), ldc, accumulate);
    INFO(ta << tb << accumulate << " " << m << " " << n << " " << k);
    CHECK(c == expected);
  }
}

namespace {
// Returns the error of an einsum of equal numbers, whose roundings do not cancel.
double error_of(std::string_view text, std::initializer_list<std::int64_t> extents) {
  const contraction c = equation(text, extents);
  const auto plan = plan_contraction(c);
  std::int64_t terms = 1;
  for (int l = 0; l < c.extent.count; ++l)
    if (!has(c.out, l)) terms *= c.extent[l];
  const std::vector<float> a(elems_of(c.lhs, c), 0.3f), b(elems_of(c.rhs, c), 0.3f);
  std::vector<float> out(elems_of(c.out, c)), scratch(static_cast<std::size_t>(plan.scratch_elems) + 1);
  contract<float>(runtime_spec{&plan}, c.extent.begin(), a.data(), b.data(), out.data(), scratch.data());
  double worst = 0;
  for (const float x : out)
    worst = std::max(worst, std::fabs(static_cast<double>(x) /
                                          (static_cast<double>(0.3f) * static_cast<double>(0.3f) * static_cast<double>(terms)) -
                                      1));
  return worst;
}
}  // namespace

TEST_CASE("contraction: long sums are as exact as short ones") {
  constexpr double most = 3e-5;
  CHECK(error_of("a,a->", {1 << 22}) < most);
  CHECK(error_of("ab,ab->b", {1 << 18, 20}) < most);  // along vectors
  CHECK(error_of("abc,abc->c", {300, 500, 33}) < most);
  CHECK(error_of("ab,ab->a", {3, 1 << 20}) < most);
  CHECK(error_of("ab,a->b", {1 << 18, 20}) < most);  // a matrix and a vector
  CHECK(error_of("ab,b->a", {20, 1 << 18}) < most);
  CHECK(error_of("ab,ac->bc", {1 << 20, 3, 5}) < most);      // matrices
  CHECK(error_of("abd,bac->dc", {1000, 500, 3, 5}) < most);  // with sums in different orders
}

namespace {

constexpr contraction matrices(std::int64_t batch, std::int64_t m, std::int64_t k, std::int64_t n) {
  return equation("abc,acd->abd", {batch, m, k, n});
}
constexpr contraction unrolled_equations[] = {
    matrices(5, 3, 3, 3),
    matrices(7, 4, 4, 4),
    matrices(3, 8, 8, 8),
    matrices(4, 1, 2, 5),  // one row
    matrices(4, 5, 2, 1),  // one column
    matrices(3, 2, 16, 7),
    matrices(2, 4, 4, 27),
    equation("acb,acd->abd", {4, 5, 3, 6}),  // the left operand transposed
    equation("abc,adc->abd", {4, 5, 3, 6}),  // the right operand
    equation("abc,acd->adb", {4, 5, 3, 6}),  // the result
    equation("bac,cad->bad", {4, 5, 3, 6}),  // rows with gaps
    equation("bac,cad->dab", {4, 5, 3, 6}),
    equation("bc,acd->abd", {4, 3, 3, 3}),          // one left operand
    equation("abec,aecd->aebd", {3, 4, 2, 11, 2}),  // two loops
};

template <class T, std::size_t I>
void check_unrolled(std::mt19937& random) {
  static constexpr contraction C = unrolled_equations[I];
  static constexpr contraction_plan plan = plan_contraction(C);
  static_assert(is_unrolled<T>(plan));
  constexpr auto shape = product_shape_of(plan, plan.sums[0].extent);
  std::vector<std::int64_t> valid(C.extent.begin(), C.extent.end());
  const auto whole = [&](const std::int64_t* bounds, const T* a, const T* b, T* out, T* scratch) {
    run_unrolled<T, shape>(plan, bounds, a, b, out, reinterpret_cast<std::byte*>(scratch), false, true);
  };
  check_run<T>(plan, C, valid, random, whole);
  for (const int parts : {2, 5})  // of several threads
    check_run<T>(plan, C, valid, random, [&](const std::int64_t* bounds, const T* a, const T* b, T* out, T* scratch) {
      for (int part = parts; part-- > 0;) {
        const auto cut = cut_contraction(plan, part, parts);
        run_unrolled<T, shape>(cut.plan, bounds, a + cut.lhs, b + cut.rhs, out + cut.out, reinterpret_cast<std::byte*>(scratch),
                               false, true);
      }
    });
  check_run<T>(plan, C, valid, random, [&](const std::int64_t* bounds, const T* a, const T* b, T* out, T* scratch) {
    const std::vector<T> before(elems_of(C.out, C), T(3));
    std::copy(before.begin(), before.end(), out);
    run_unrolled<T, shape>(plan, bounds, a, b, out, reinterpret_cast<std::byte*>(scratch), true, true);
    for (std::size_t i = 0; i < before.size(); ++i) out[i] -= T(3);
  });
  for (auto& bound : valid) bound -= bound > 1 ? 1 : 0;  // a shard that is not full
  check_run<T>(plan, C, valid, random, whole);
}

template <std::size_t... I>
void check_unrolled(std::mt19937& random, std::index_sequence<I...>) {
  (check_unrolled<std::conditional_t<I % 3 == 2, double, float>, I>(random), ...);
}

}  // namespace

TEST_CASE(
    "small products of constant extents: whole, for several threads, added to what is there, and of shards that are not full") {
  std::mt19937 random(11);
  check_unrolled(random, std::make_index_sequence<std::size(unrolled_equations)>{});
}
