// SPDX-License-Identifier: Apache-2.0
// labels: native
// group: fused
// Elementwise execution: the meaning of every operator.
#include <doctest/doctest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gspmd/detail/kernels/fused_dynamic.hpp"
#include "support/all_operators.hpp"
#include "support/fused_groups.hpp"
#include "support/slow_operators.hpp"

using namespace gspmd;
using namespace gspmd::detail;
using namespace fused_groups;
using namespace slow_operators;

namespace {
// Applies `code` to all combinations of the samples through the run-time path and compares.
void check_opcode(const scalar_code& code, dtype out_type, dtype in_type) {
  std::mt19937 random(7);
  const auto base = samples(in_type, random);
  std::vector<value> a, b;
  std::vector<value> which;
  if (is_unary(code)) {
    a = base;
  } else {
    for (const auto& x : base)
      for (const auto& y : base) {
        a.push_back(x);
        b.push_back(y);
        which.push_back(truth(((a.size() * 2654435761u) >> 7) % 2 == 0));
      }
  }
  const auto n = static_cast<std::int64_t>(a.size());
  const auto a_bytes = pack(a), b_bytes = pack(b), which_bytes = pack(which);
  std::vector<std::byte> result(static_cast<std::size_t>(n * 8));
  std::vector<scalar_op> ops = {load(in_type, 0, dims({1}))};
  if (is_unary(code)) {
    ops.push_back(op(code, out_type, in_type, {0}));
  } else {
    ops.push_back(load(in_type, 1, dims({1})));
    if (code == scalar_code_of<where_op>) {
      ops.push_back(load(dtype::pred, 2, dims({1})));
      ops.push_back(op(code, out_type, in_type, {2, 0, 1}));
    } else {
      ops.push_back(op(code, out_type, in_type, {0, 1}));
    }
  }
  const fused_store stores[] = {to(static_cast<int>(ops.size()) - 1, 0)};
  const void* in[] = {a_bytes.data(), b_bytes.data(), which_bytes.data()};
  void* out[] = {result.data()};
  run_dynamic({dims({n}), ops, stores}, in, out);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto k = static_cast<std::size_t>(i);
    const value got = read(out_type, result.data(), i);
    value wanted;
    if (code == scalar_code_of<where_op>) wanted = which[k].integer != 0 ? a[k] : b[k];
    else if (is_unary(code)) wanted = naive_unary(code, out_type, a[k]);
    else wanted = naive_binary(code, a[k], b[k]);
    // the reference is computed in double: of f64 it has an error itself
    if (same(got, wanted, code.loop().is_exact ? 0 : 4)) continue;
    FAIL_CHECK(name_of(code), " ", name_of(in_type), " -> ", name_of(out_type), " of ", a[k].real, " / ", a[k].integer, ", ",
               is_unary(code) ? 0.0 : b[k].real, " / ", is_unary(code) ? 0 : b[k].integer, " is ", got.real, " / ", got.integer,
               ", not ", wanted.real, " / ", wanted.integer);
    return;
  }
}
}  // namespace

TEST_CASE("every elementwise operator means what it says, for every type it has") {
  int pairs = 0;
  for (const auto& code : listed_codes()) {
    for (const dtype in : all_types) {
      if (code == scalar_code_of<map_op> || code == scalar_code_of<complex_op> || !is_defined(code, in)) continue;
      for (const dtype out : all_types) {
        if (code == scalar_code_of<cast_op> || (is_compare(code) ? out == dtype::pred : out == in)) {
          check_opcode(code, out, in);
          ++pairs;
        }
      }
    }
  }
  CHECK(pairs == 6 * 10 + 2 * 16 + 5 * 4 + 4 * 2 + 49 + 7 * 10 + 1);
  CHECK_FALSE(is_defined(scalar_code_of<add_op>, dtype::pred));
  CHECK_FALSE(is_defined(scalar_code_of<and_op>, dtype::f32));
  CHECK_FALSE(is_defined(scalar_code_of<exp_op>, dtype::s32));
  CHECK_FALSE(is_defined(code_of<einsum_op>, dtype::f32));
}

TEST_CASE("exponential, log, tanh, logistic, sine, cosine, erf and its inverse are accurate") {
  std::mt19937 random(3);
  const auto check = [&]<class T>(T, double least, double most, auto ours, auto exact, double wanted_ulps) {
    double worst = 0;
    for (int k = 0; k < 20000; ++k) {
      const T x = static_cast<T>(std::uniform_real_distribution<>(least, most)(random));
      const long double y = exact(static_cast<long double>(x));
      const long double ulp = std::ldexp(1.0L, std::ilogb(y) - (sizeof(T) == 4 ? 23 : 52));
      worst = std::max(worst, static_cast<double>(std::fabs(static_cast<long double>(ours(x)) - y) / ulp));
    }
    CHECK(worst < wanted_ulps);
  };
  const auto all = [&]<class T>(T one) {
    const auto e = [](T x) { return apply<exp_op, T>(x); };
    const auto l = [](T x) { return apply<log_op, T>(x); };
    const auto t = [](T x) { return apply<tanh_op, T>(x); };
    const auto s = [](T x) { return apply<sigmoid_op, T>(x); };
    const auto exact_s = [](long double x) { return 1 / (1 + std::exp(-x)); };
    check(
        one, -80, 80, e, [](long double x) { return std::exp(x); }, 2);
    check(
        one, 1e-9, 4, l, [](long double x) { return std::log(x); }, 2);
    check(
        one, 0, 1e30, l, [](long double x) { return std::log(x); }, 2);
    check(
        one, -3, 3, t, [](long double x) { return std::tanh(x); }, 3);
    check(
        one, -1e-3, 1e-3, t, [](long double x) { return std::tanh(x); }, 2.5);
    check(one, -80, 20, s, exact_s, 3.5);
    const auto f = [](T x) { return apply<erf_op, T>(x); };
    const auto exact_f = [](long double x) { return std::erf(x); };
    check(one, -1e-3, 1e-3, f, exact_f, 3);
    check(one, -1.2, 1.2, f, exact_f, 3);
    check(one, -7, 7, f, exact_f, 3);
    const auto sine = [](T x) { return apply<sin_op, T>(x); };
    const auto cosine = [](T x) { return apply<cos_op, T>(x); };
    const auto exact_sine = [](long double x) { return std::sin(x); };
    const auto exact_cosine = [](long double x) { return std::cos(x); };
    for (const double most : {1e-30, 0.78, 0.8, 4., 1e3, 1e9, sizeof(T) == 4 ? 3e38 : 8e307}) {
      check(one, -most, most, sine, exact_sine, 3);
      check(one, -most, most, cosine, exact_cosine, 3);
    }
    // A number next to a multiple of a quarter turn has a result with many digits. This is the nearest such double, for
    // which glibc 2.36 is 8 ulp off, and the nearest such float.
    const T nearest = sizeof(T) == 4 ? static_cast<T>(0x1.88a5b8p106) : static_cast<T>(0x1.6ac5b262ca1ffp849);
    for (const T x : {nearest, static_cast<T>(1.5707963267948966), static_cast<T>(3.141592653589793)}) {
      const long double y = std::min(std::fabs(exact_sine(x)), std::fabs(exact_cosine(x)));
      const T got = std::min(std::fabs(sine(x)), std::fabs(cosine(x)));
      CHECK(std::fabs(static_cast<long double>(got) - y) <= 10 * std::ldexp(1.0L, std::ilogb(y) - (sizeof(T) == 4 ? 23 : 52)));
    }
    CHECK(std::signbit(sine(T(-0.0))));
    CHECK(std::isnan(sine(std::numeric_limits<T>::infinity())));
    CHECK(std::isnan(cosine(std::numeric_limits<T>::quiet_NaN())));
    const auto i = [](T x) { return apply<erf_inv_op, T>(x); };
    const auto exact_i = [&](long double y) {  // Newton's way from there
      long double x = i(static_cast<T>(y));
      for (int step = 0; step < 4; ++step) {
        const long double off = y > 0.5L ? (1 - y) - std::erfc(x) : std::erf(x) - y;
        x -= off / (1.12837916709551257390L * std::exp(-x * x));
      }
      return x;
    };
    check(one, -0.5, 0.5, i, exact_i, 5);
    check(one, 0.5, 1 - 4e-7, i, exact_i, 5);
    if constexpr (sizeof(T) == 8) check(one, 1 - 1e-9, 1 - 1e-15, i, exact_i, 5);
  };
  all(float{});
  all(double{});
}

TEST_CASE("exponentials of what is far below 0, as masked scores are, are 0 without an underflow, which takes 150 cycles") {
  const auto all = [&]<class T>(T least) {  // the last number whose exponential is one
    volatile T x = 0, y = 0;
    const auto of = [&](T z) {
      x = z;
      y = apply<exp_op, T>(x);
      return static_cast<T>(y);
    };
    CHECK(of(least) == std::numeric_limits<T>::denorm_min());
    CHECK(std::isnan(of(std::numeric_limits<T>::quiet_NaN())));
    for (const T z : {least - 2, T(-1e9), std::numeric_limits<T>::lowest(), -std::numeric_limits<T>::infinity()}) {
      std::feclearexcept(FE_ALL_EXCEPT);
      CHECK(of(z) == 0);
      if (is_chosen_in_vectors<T>) CHECK(std::fetestexcept(FE_UNDERFLOW) == 0);  // else the C library's, which says so
    }
  };
  all(-103.5F);
  all(-745.0);
}

TEST_CASE("a pred that is no bool is true") {
  const std::array ops = {load(pred, 0, dims({1})), op(scalar_code_of<not_op>, pred, {0})};
  const fused_store stores[] = {to(1, 0)};
  std::vector<unsigned char> bytes = {0, 1, 2, 128, 255}, result(5, 7);
  const void* in[] = {bytes.data()};
  void* out[] = {result.data()};
  run_dynamic({dims({5}), ops, stores}, in, out);
  CHECK(result == std::vector<unsigned char>{1, 0, 0, 0, 0});
}

TEST_CASE("two operators, or three, in one instruction give the bits of one after the other") {
  int joined = 0;
  for (const auto& p : fused_pairs)
    for (const dtype type : {f32, f64})
      for (const dtype first_type : {f32, f64, s32, s64}) {
        std::mt19937 random(5);
        const std::int64_t n = 2000;
        std::vector<std::vector<std::byte>> inputs;
        for (int k = 0; k < 4; ++k) {
          const auto pool = samples(k < 2 ? first_type : type, random);
          std::vector<value> values;
          for (std::int64_t i = 0; i < n; ++i) values.push_back(pool[random() % pool.size()]);
          inputs.push_back(pack(values));
        }
        const dtype middle = is_compare(code_with(p.first)) ? pred : first_type;
        if (middle != pred && first_type != type) continue;
        std::vector<scalar_op> ops = {load(first_type, 0, dims({1})), load(first_type, 1, dims({1})), load(type, 2, dims({1})),
                                      load(type, 3, dims({1})), op(code_with(p.first), middle, first_type, {0, 1})};
        if (p.second == short_id_for<where_op>) ops.push_back(op(code_with(p.second), type, {4, 2, 3}));
        else if (p.place == both_places) ops.push_back(op(code_with(p.second), type, {4, 4}));
        else if (is_unary(code_with(p.second))) ops.push_back(op(code_with(p.second), type, middle, {4}));
        else if (p.has_other()) {
          ops.push_back(op(code_with(p.other), type, {2, 3}));
          ops.push_back(op(code_with(p.second), type, {4, 5}));
        } else ops.push_back(p.place == 0 ? op(code_with(p.second), type, {4, 2}) : op(code_with(p.second), type, {2, 4}));
        const auto last = static_cast<std::int16_t>(ops.size() - 1);
        const void* in[] = {inputs[0].data(), inputs[1].data(), inputs[2].data(), inputs[3].data()};
        std::vector<std::byte> together(static_cast<std::size_t>(n * 8)), apart = together, between = together;
        void* out[] = {together.data()};
        void* out_apart[] = {apart.data(), between.data()};
        const fused_store one[] = {to(last, 0)};
        const fused_store both[] = {to(last, 0), to(4, 1)};
        const fused_code code({dims({n}), ops, one});
        if (code.instructions.size() == 1) ++joined;
        if (p == square_of_difference || p == exponential_of_difference) {
          auto adding = code;
          adding.add_up(0, 16);
          CHECK((adding.sum != nullptr));
          adding.add_up(1, 16);  // no such store
          CHECK((adding.sum == nullptr));
        }
        CHECK(fused_code({dims({n}), ops, both}).instructions.size() == 2);
        run_dynamic({dims({n}), ops, one}, in, out);
        run_dynamic({dims({n}), ops, both}, in, out_apart);
        for (std::int64_t i = 0; i < n; ++i)
          if (!same(read(type, together.data(), i), read(type, apart.data(), i), 0)) {
            FAIL_CHECK(name_of(code_with(p.first)), " ", name_of(code_with(p.second)), " differs at ", i);
            break;
          }
      }
  CHECK(joined == 2 * static_cast<int>(fused_pair_count) + 2);
}

TEST_CASE("two pairs in one instruction give the bits of one after the other, with operands that are one element too") {
  for (const auto& chain : fused_chains)
    for (const dtype type : {f32, f64})
      for (int way = 0; way < 16;
           ++way) {  // bit 0: operands of a sum or product change places; the others: which operands are one element
        std::mt19937 random(5);
        const std::int64_t n = 700;
        const int firsts = operands_of(chain.first), loads = firsts + operands_of(chain.second) - 1;
        const auto pool = samples(type, random);
        std::vector<std::vector<std::byte>> inputs;
        std::vector<const void*> in;
        std::vector<scalar_op> ops;
        for (int k = 0; k < loads; ++k) {
          std::vector<value> values;
          for (std::int64_t i = 0; i < n; ++i) values.push_back(pool[random() % pool.size()]);
          inputs.push_back(pack(values));
          ops.push_back(load(type, k, dims({(way >> (1 + k % 3) & 1) != 0 ? 0 : 1})));
        }
        for (const auto& bytes : inputs) in.push_back(bytes.data());
        const auto added = [&](const scalar_code& code, int a, int b) {
          ops.push_back(op(code, type, {a, b}));
          return static_cast<int>(ops.size()) - 1;
        };
        const auto add_pair = [&](const fused_pair& p, const std::vector<int>& from, bool turns) {
          const int first = turns ? added(code_with(p.first), from[1], from[0]) : added(code_with(p.first), from[0], from[1]);
          const int other = !p.has_other() ? from[2] : added(code_with(p.other), from[2], from[3]);
          return p.place == 0 ? added(code_with(p.second), first, other) : added(code_with(p.second), other, first);
        };
        const int middle = add_pair(chain.first, {0, 1, 2, 3}, false);
        std::vector<int> from = {firsts, firsts + 1};
        from.insert(from.begin() + chain.place, middle);
        const int last = add_pair(chain.second, from, (way & 1) != 0);
        std::vector<std::byte> together(static_cast<std::size_t>(n * 8)), apart = together, between = together;
        void* out[] = {together.data()};
        void* out_apart[] = {apart.data(), between.data()};
        const fused_store one[] = {to(last, 0)};
        const fused_store both[] = {to(last, 0), to(middle, 1)};
        CHECK(fused_code({dims({n}), ops, one}).instructions.size() == 1);
        CHECK(fused_code({dims({n}), ops, both}).instructions.size() == 2);
        run_dynamic({dims({n}), ops, one}, in.data(), out);
        run_dynamic({dims({n}), ops, both}, in.data(), out_apart);
        // The operators separately: each result is stored, so that no operator is fused.
        std::vector<fused_store> each;
        std::vector<std::vector<std::byte>> results;
        std::vector<void*> out_each;
        for (int k = loads; k <= last; ++k) {
          each.push_back(to(k, k - loads));
          results.emplace_back(static_cast<std::size_t>(n * 8));
        }
        for (auto& bytes : results) out_each.push_back(bytes.data());
        run_dynamic({dims({n}), ops, each}, in.data(), out_each.data());
        for (std::int64_t i = 0; i < n; ++i) {
          const auto wanted = read(type, results.back().data(), i);
          if (same(read(type, together.data(), i), wanted, 0) && same(read(type, apart.data(), i), wanted, 0)) continue;
          FAIL_CHECK("chain ", &chain - fused_chains, " way ", way, " differs at ", i);
          break;
        }
      }
}
