// SPDX-License-Identifier: Apache-2.0
// labels: native
// Elementwise execution: the meaning of every opcode, and fused groups through both paths.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gspmd/detail/exec/fused_collapse.hpp"
#include "gspmd/detail/exec/fused_dynamic.hpp"
#include "gspmd/detail/exec/fused_static.hpp"

using namespace gspmd;
using namespace gspmd::detail;

namespace {

// ---- making groups ---------------------------------------------------------------------------------------------------
constexpr extents dims(std::initializer_list<std::int64_t> list) {
  extents e;
  for (const auto x : list) e.push_back(x);
  return e;
}
constexpr scalar_op load(dtype type, int slot, const extents& strides) {
  scalar_op o;
  o.op = opcode::parameter;
  o.type = o.operand_type = type;
  o.slot = static_cast<std::int16_t>(slot);
  o.strides = strides;
  return o;
}
constexpr scalar_op number(dtype type, double value) {
  scalar_op o;
  o.type = o.operand_type = type;
  o.real = value;
  o.integer = static_cast<std::int64_t>(value);
  return o;
}
constexpr scalar_op counter(dtype type, int slot, int dim) {
  scalar_op o;
  o.op = opcode::iota;
  o.type = o.operand_type = type;
  o.slot = static_cast<std::int16_t>(slot);
  o.dim = static_cast<std::int8_t>(dim);
  return o;
}
constexpr scalar_op op(opcode code, dtype type, dtype operand_type, std::initializer_list<int> args,
                       const map_function* f = nullptr) {
  scalar_op o;
  o.op = code;
  o.type = type;
  o.operand_type = operand_type;
  for (const int a : args) o.args.push_back(static_cast<std::int16_t>(a));
  o.function = f;
  return o;
}
constexpr scalar_op op(opcode code, dtype type, std::initializer_list<int> args, const map_function* f = nullptr) {
  return op(code, type, type, args, f);
}
constexpr fused_store to(int o, int slot) { return {static_cast<std::int16_t>(o), static_cast<std::int16_t>(slot)}; }

// ---- the meaning, said once more and slowly ---------------------------------------------------------------------------
__extension__ typedef __int128 wide;

// One value of any type.
struct value {
  dtype type = dtype::f32;
  double real = 0;           // of floats
  std::int64_t integer = 0;  // of the rest
};

double as_type(dtype type, double x) { return type == dtype::f32 ? static_cast<double>(static_cast<float>(x)) : x; }
value floating(dtype type, double x) { return {type, as_type(type, x), 0}; }
value wrapped(dtype type, wide x) {
  const auto low = static_cast<std::uint64_t>(x);
  return {type, 0,
          type == dtype::s32 ? static_cast<std::int32_t>(static_cast<std::uint32_t>(low)) : static_cast<std::int64_t>(low)};
}
value truth(bool x) { return {dtype::pred, 0, x ? 1 : 0}; }

value naive_convert(dtype to, const value& x) {
  if (is_floating(to))
    return is_floating(x.type) ? floating(to, x.real)
           : to == dtype::f32  ? value{to, static_cast<double>(static_cast<float>(x.integer)), 0}
                               : value{to, static_cast<double>(x.integer), 0};
  if (to == dtype::pred) return truth(is_floating(x.type) ? x.real != 0 : x.integer != 0);
  if (!is_floating(x.type)) return wrapped(to, x.integer);
  if (std::isnan(x.real)) return {to, 0, 0};
  const std::int64_t most =
      to == dtype::s32 ? std::numeric_limits<std::int32_t>::max() : std::numeric_limits<std::int64_t>::max();
  const std::int64_t least = -most - 1;
  if (x.real >= std::ldexp(1.0, to == dtype::s32 ? 31 : 63)) return {to, 0, most};
  if (x.real <= static_cast<double>(least)) return {to, 0, least};
  return {to, 0, static_cast<std::int64_t>(x.real)};
}

value naive_unary(opcode code, dtype to, const value& x) {
  if (code == opcode::convert) return naive_convert(to, x);
  const dtype t = x.type;
  if (!is_floating(t)) {
    const wide i = x.integer;
    switch (code) {
      case opcode::abs: return wrapped(t, i < 0 ? -i : i);
      case opcode::negate: return wrapped(t, -i);
      case opcode::sign: return wrapped(t, i > 0 ? 1 : i < 0 ? -1 : 0);
      case opcode::relu: return wrapped(t, i > 0 ? i : 0);
      default: return t == dtype::pred ? truth(i == 0) : wrapped(t, -i - 1);  // not
    }
  }
  const double r = x.real;
  switch (code) {
    case opcode::abs: return floating(t, std::signbit(r) ? -r : r);
    case opcode::negate: return floating(t, -r);
    case opcode::sign: return floating(t, r > 0 ? 1 : r < 0 ? -1 : r);
    case opcode::relu: return floating(t, std::isnan(r) ? r : r > 0 ? r : 0);
    case opcode::exponential: return floating(t, std::exp(r));
    case opcode::log: return floating(t, std::log(r));
    case opcode::sqrt: return t == dtype::f32 ? floating(t, std::sqrt(static_cast<float>(r))) : floating(t, std::sqrt(r));
    case opcode::rsqrt:
      return t == dtype::f32 ? floating(t, 1.0f / std::sqrt(static_cast<float>(r))) : floating(t, 1 / std::sqrt(r));
    case opcode::tanh: return floating(t, std::tanh(r));
    case opcode::logistic: return floating(t, static_cast<double>(1 / (1 + std::exp(-static_cast<long double>(r)))));
    case opcode::sine: return floating(t, std::sin(r));
    case opcode::cosine: return floating(t, std::cos(r));
    case opcode::floor: return floating(t, std::floor(r));
    default: return floating(t, std::ceil(r));
  }
}

value naive_binary(opcode code, const value& a, const value& b) {
  const dtype t = a.type;
  const bool is_real = is_floating(t);
  const bool nan = is_real && (std::isnan(a.real) || std::isnan(b.real));
  const bool less = is_real ? a.real < b.real : a.integer < b.integer;
  const bool equal = is_real ? a.real == b.real : a.integer == b.integer;
  const wide i = a.integer, j = b.integer;
  switch (code) {
    case opcode::compare_eq: return truth(equal);
    case opcode::compare_ne: return truth(!equal);
    case opcode::compare_lt: return truth(less);
    case opcode::compare_le: return truth(less || equal);
    case opcode::compare_gt: return truth(!nan && !less && !equal);
    case opcode::compare_ge: return truth(!nan && !less);
    case opcode::maximum: return nan ? floating(t, std::nan("")) : less || equal ? b : a;  // 0.0 and -0.0: the second one
    case opcode::minimum: return nan ? floating(t, std::nan("")) : less ? a : b;
    case opcode::and_: return t == dtype::pred ? truth(i != 0 && j != 0) : value{t, 0, a.integer & b.integer};
    case opcode::or_: return t == dtype::pred ? truth(i != 0 || j != 0) : value{t, 0, a.integer | b.integer};
    case opcode::add: return is_real ? floating(t, a.real + b.real) : wrapped(t, i + j);
    case opcode::subtract: return is_real ? floating(t, a.real - b.real) : wrapped(t, i - j);
    case opcode::multiply: return is_real ? floating(t, a.real * b.real) : wrapped(t, i * j);
    case opcode::divide: return is_real ? floating(t, a.real / b.real) : j == 0 ? wrapped(t, -1) : wrapped(t, i / j);
    default: break;
  }
  if (is_real) return floating(t, std::pow(a.real, b.real));
  if (j < 0) return wrapped(t, i == 1 ? 1 : i == -1 ? (j % 2 == 0 ? 1 : -1) : 0);
  // x^j mod 2^64, by its square root of a power: recursion over the exponent
  struct power {
    static std::uint64_t of(std::uint64_t x, std::uint64_t n) {
      return n == 0 ? 1 : n % 2 != 0 ? x * of(x, n - 1) : of(x * x, n / 2);
    }
  };
  return wrapped(t, static_cast<wide>(power::of(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j))));
}

// ---- memory of any type ------------------------------------------------------------------------------------------------
value read(dtype type, const std::byte* from, std::int64_t i) {
  value v{type, 0, 0};
  with_element(type, [&]<class T>(T x) {
    std::memcpy(&x, from + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    if (is_floating(type)) v.real = static_cast<double>(x);
    else v.integer = static_cast<std::int64_t>(x);
  });
  return v;
}
void write(const value& v, std::byte* to, std::int64_t i) {
  with_element(v.type, [&]<class T>(T x) {
    x = is_floating(v.type) ? static_cast<T>(v.real) : static_cast<T>(v.integer);
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(T)), &x, sizeof(T));
  });
}

bool is_inexact(opcode code) {
  return code == opcode::exponential || code == opcode::log || code == opcode::tanh || code == opcode::logistic ||
         code == opcode::power || code == opcode::sine || code == opcode::cosine;
}
bool same(const value& got, const value& wanted, int ulps) {
  if (!is_floating(got.type)) return got.integer == wanted.integer;
  if (std::isnan(wanted.real)) return std::isnan(got.real);
  if (got.real == wanted.real) return got.real != 0 || std::signbit(got.real) == std::signbit(wanted.real);
  if (ulps == 0 || std::isinf(wanted.real) || std::isinf(got.real)) return false;
  const double size = std::max(std::fabs(wanted.real), got.type == dtype::f32 ? 1.2e-38 : 2.3e-308);
  const double ulp = std::ldexp(1.0, std::ilogb(size) - (got.type == dtype::f32 ? 23 : 52));
  return std::fabs(got.real - wanted.real) <= ulps * std::max(ulp, got.type == dtype::f32 ? 1.5e-45 : 5e-324);
}

std::vector<value> samples(dtype type, std::mt19937& random) {
  std::vector<value> v;
  if (is_floating(type)) {
    const bool f = type == dtype::f32;
    const double inf = std::numeric_limits<double>::infinity();
    for (const double x : {0.0,
                           0.25,
                           0.5,
                           1.0,
                           1.5,
                           2.0,
                           3.0,
                           1e-3,
                           1e-20,
                           17.0,
                           19.5,
                           80.0,
                           88.7,
                           89.5,
                           103.0,
                           104.0,
                           200.0,
                           709.7,
                           710.5,
                           745.0,
                           746.5,
                           1e9,
                           2147483647.0,
                           2147483648.0,
                           4e9,
                           9223372036854775807.0,
                           1e30,
                           f ? 3.4e38 : 1.7e308,
                           f ? 1.2e-38 : 2.3e-308,
                           f ? 1e-45 : 5e-324,
                           inf,
                           std::nan("")}) {
      v.push_back(floating(type, x));
      v.push_back(floating(type, -x));
    }
    for (const double scale : {1.0, 5.0, 40.0, 1e5, 1e-4})
      for (int k = 0; k < 40; ++k) v.push_back(floating(type, std::uniform_real_distribution<>(-scale, scale)(random)));
  } else if (type == dtype::pred) {
    v = {truth(false), truth(true)};
  } else {
    const std::int64_t most =
        type == dtype::s32 ? std::numeric_limits<std::int32_t>::max() : std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t x :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{-1}, std::int64_t{-2}, std::int64_t{7},
          std::int64_t{-13}, std::int64_t{31}, std::int64_t{46341}, std::int64_t{16777217}, most, most - 1, -most, -most - 1})
      v.push_back(wrapped(type, x));
    for (int k = 0; k < 20; ++k) v.push_back(wrapped(type, std::uniform_int_distribution<std::int64_t>(-most, most)(random)));
  }
  return v;
}

constexpr dtype all_types[] = {dtype::f32, dtype::f64, dtype::s32, dtype::s64, dtype::pred};

std::vector<std::byte> pack(const std::vector<value>& values) {
  std::vector<std::byte> bytes(values.size() * 8 + 8);
  for (std::size_t i = 0; i < values.size(); ++i) write(values[i], bytes.data(), static_cast<std::int64_t>(i));
  return bytes;
}

void run_dynamic(const fused_group& group, const void* const* in, void* const* out, const std::int64_t* offsets = nullptr) {
  const fused_code code(group);
  std::vector<std::byte> scratch(static_cast<std::size_t>(code.scratch_bytes), std::byte{0xA5});
  run_fused(code, in, out, offsets, scratch.data());
}

// Applies `code` to all combinations of the samples through the run-time path and compares.
void check_opcode(opcode code, dtype out_type, dtype in_type) {
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
    if (code == opcode::select) {
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
    if (code == opcode::select) wanted = which[k].integer != 0 ? a[k] : b[k];
    else if (is_unary(code)) wanted = naive_unary(code, out_type, a[k]);
    else wanted = naive_binary(code, a[k], b[k]);
    // the reference is computed in double: of f64 it has an error itself
    if (same(got, wanted, is_inexact(code) ? 4 : 0)) continue;
    FAIL_CHECK(name_of(code), " ", name_of(in_type), " -> ", name_of(out_type), " of ", a[k].real, " / ", a[k].integer, ", ",
               is_unary(code) ? 0.0 : b[k].real, " / ", is_unary(code) ? 0 : b[k].integer, " is ", got.real, " / ", got.integer,
               ", not ", wanted.real, " / ", wanted.integer);
    return;
  }
}

// ---- whole groups, element by element -----------------------------------------------------------------------------------
value naive_map(const scalar_op& o, const std::vector<value>& args) {
  value v{o.type, 0, 0};
  with_element(o.type, [&]<class T>(T) {
    T a[max_map_arity];
    for (std::size_t k = 0; k < args.size(); ++k)
      a[k] = is_floating(o.type) ? static_cast<T>(args[k].real) : static_cast<T>(args[k].integer);
    const T y = function_for<T>(*o.function)(a);
    if (is_floating(o.type)) v.real = static_cast<double>(y);
    else v.integer = static_cast<std::int64_t>(y);
  });
  return v;
}

void evaluate(const fused_group& g, const void* const* in, const std::int64_t* offsets, const std::int64_t* index,
              std::vector<value>& r) {
  for (std::size_t k = 0; k < g.ops.size(); ++k) {
    const scalar_op& o = g.ops[k];
    if (o.op == opcode::parameter) {
      std::int64_t at = 0;
      for (int d = 0; d < g.loop.count; ++d) at += index[d] * o.strides[d];
      r[k] = read(o.type, static_cast<const std::byte*>(in[o.slot]), at);
    } else if (o.op == opcode::constant) {
      r[k] = is_floating(o.type) ? floating(o.type, o.real) : value{o.type, 0, o.integer};
    } else if (o.op == opcode::iota) {
      r[k] = naive_convert(o.type, {dtype::s64, 0, index[o.dim] + offsets[o.slot]});
    } else if (o.op == opcode::map) {
      std::vector<value> args;
      for (const auto a : o.args) args.push_back(r[static_cast<std::size_t>(a)]);
      r[k] = naive_map(o, args);
    } else {
      const auto arg = [&](int i) { return r[static_cast<std::size_t>(o.args[i])]; };
      r[k] = o.op == opcode::select ? (arg(0).integer != 0 ? arg(1) : arg(2))
             : is_unary(o.op)       ? naive_unary(o.op, o.type, arg(0))
                                    : naive_binary(o.op, arg(0), arg(1));
    }
  }
}

std::vector<std::vector<std::byte>> naive(const fused_group& g, const void* const* in, const std::int64_t* offsets) {
  const std::int64_t n = elements(g.loop);
  std::vector<std::vector<std::byte>> out;
  for (std::size_t s = 0; s < g.stores.size(); ++s) out.emplace_back(static_cast<std::size_t>(n * 8));
  std::vector<value> r(g.ops.size());
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t index[max_rank]{};
    std::int64_t left = i;
    for (int d = g.loop.count - 1; d >= 0; --d) {
      index[d] = left % g.loop[d];
      left /= g.loop[d];
    }
    evaluate(g, in, offsets, index, r);
    for (std::size_t s = 0; s < g.stores.size(); ++s) write(r[static_cast<std::size_t>(g.stores[s].op)], out[s].data(), i);
  }
  return out;
}

bool same_values(const fused_group& g, std::size_t s, const std::byte* got, const std::byte* wanted) {
  const dtype type = g.ops[static_cast<std::size_t>(g.stores[s].op)].type;
  for (std::int64_t i = 0; i < elements(g.loop); ++i)
    if (!same(read(type, got, i), read(type, wanted, i), 0)) return false;
  return true;
}

}  // namespace

TEST_CASE("every opcode means what it says, for every type it has") {
  int pairs = 0;
  for (int c = 0; c < opcode_count; ++c) {
    const auto code = static_cast<opcode>(c);
    for (const dtype in : all_types) {
      if (!is_elementwise(code) || code == opcode::map || !is_defined(code, in)) continue;
      for (const dtype out : all_types) {
        if (code == opcode::convert || (is_compare(code) ? out == dtype::pred : out == in)) {
          check_opcode(code, out, in);
          ++pairs;
        }
      }
    }
  }
  CHECK(pairs == 4 * 9 + 2 * 10 + 3 * 3 + 25 + 5 * 9);
  CHECK_FALSE(is_defined(opcode::add, dtype::pred));
  CHECK_FALSE(is_defined(opcode::and_, dtype::f32));
  CHECK_FALSE(is_defined(opcode::exponential, dtype::s32));
  CHECK_FALSE(is_defined(code_of<einsum_op>, dtype::f32));
}

TEST_CASE("exponential, log, tanh and logistic are accurate") {
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
    const auto e = [](T x) { return apply<opcode::exponential, T, T>(x); };
    const auto l = [](T x) { return apply<opcode::log, T, T>(x); };
    const auto t = [](T x) { return apply<opcode::tanh, T, T>(x); };
    const auto s = [](T x) { return apply<opcode::logistic, T, T>(x); };
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
  };
  all(float{});
  all(double{});
}

// ---- maps -----------------------------------------------------------------------------------------------------------------
namespace {
constexpr map_function axpy = {.arity = 3,
                               .f32 = [](const float* a) { return a[0] * a[1] + a[2]; },
                               .f64 = [](const double* a) { return a[0] * a[1] + a[2]; },
                               .s32 = nullptr,
                               .s64 = [](const std::int64_t* a) { return (a[0] & 255) * (a[1] & 255) + (a[2] & 255); },
                               .pred = [](const bool* a) { return a[0] != a[1] || a[2]; },
                               .derivatives = nullptr};

// ---- groups by hand, through both paths -----------------------------------------------------------------------------------
constexpr auto f32 = dtype::f32;
constexpr auto f64 = dtype::f64;
constexpr auto s32 = dtype::s32;
constexpr auto s64 = dtype::s64;
constexpr auto pred = dtype::pred;

template <std::int64_t N>
struct adam {
  static constexpr extents loop = dims({N});
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {load(f32, 0, dims({1})),
                                     load(f32, 1, dims({1})),
                                     load(f32, 2, dims({1})),
                                     load(f32, 3, dims({1})),
                                     number(f32, 0.9),
                                     number(f32, 0.1),
                                     number(f32, 0.999),
                                     number(f32, 0.001),
                                     number(f32, 1e-3),
                                     number(f32, 1e-8),
                                     op(opcode::multiply, f32, {4, 1}),
                                     op(opcode::multiply, f32, {5, 3}),
                                     op(opcode::add, f32, {10, 11}),
                                     op(opcode::multiply, f32, {6, 2}),
                                     op(opcode::multiply, f32, {3, 3}),
                                     op(opcode::multiply, f32, {7, 14}),
                                     op(opcode::add, f32, {13, 15}),
                                     op(opcode::sqrt, f32, {16}),
                                     op(opcode::add, f32, {17, 9}),
                                     op(opcode::multiply, f32, {8, 12}),
                                     op(opcode::divide, f32, {19, 18}),
                                     op(opcode::subtract, f32, {0, 20})};
  static constexpr std::array stores = {to(21, 0), to(12, 1), to(16, 2)};
};
struct scalar_group {  // rank 0
  static constexpr extents loop = {};
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {load(f64, 0, {}), op(opcode::exponential, f64, {0}), op(opcode::convert, f32, f64, {1})};
  static constexpr std::array stores = {to(2, 0), to(1, 1)};
};
struct empty_group {
  static constexpr extents loop = dims({3, 0, 5});
  [[maybe_unused]] static constexpr dim_mask cut = 0;  // a loop of nothing asks for none
  static constexpr std::array ops = {load(f64, 0, dims({0, 5, 1})), op(opcode::negate, f64, {0})};
  static constexpr std::array stores = {to(1, 0)};
};
struct bias_relu {  // [7, 130] + [130], and a mask from the global index along both dims
  static constexpr extents loop = dims({7, 130});
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {load(f32, 0, dims({130, 1})),
                                     load(f32, 1, dims({0, 1})),
                                     op(opcode::add, f32, {0, 1}),
                                     op(opcode::relu, f32, {2}),
                                     counter(s32, 0, 0),
                                     number(s32, 9),
                                     op(opcode::compare_lt, pred, s32, {4, 5}),
                                     counter(s64, 1, 1),
                                     number(s64, 100),
                                     op(opcode::compare_lt, pred, s64, {7, 8}),
                                     op(opcode::and_, pred, {6, 9}),
                                     number(f32, 0),
                                     op(opcode::select, f32, {10, 3, 11})};
  static constexpr std::array stores = {to(12, 0), to(10, 1), to(12, 2)};
};
struct short_rows {  // [1001, 3] * [3] - [1001, 1]
  static constexpr extents loop = dims({1001, 3});
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {load(f64, 0, dims({3, 1})), load(f64, 1, dims({0, 1})), load(f64, 2, dims({1, 0})),
                                     op(opcode::multiply, f64, {0, 1}), op(opcode::subtract, f64, {3, 2})};
  static constexpr std::array stores = {to(4, 0)};
};
struct transposed {  // a strided load, rank 3
  static constexpr extents loop = dims({5, 7, 67});
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {load(s32, 0, dims({1, 5, 35})),     load(s64, 1, dims({0, 0, 0})),
                                     op(opcode::convert, s64, s32, {0}), op(opcode::divide, s64, {2, 1}),
                                     op(opcode::power, s64, {3, 2}),     op(opcode::compare_ge, pred, s64, {3, 4}),
                                     op(opcode::convert, f32, pred, {5})};
  static constexpr std::array stores = {to(3, 0), to(4, 1), to(5, 2), to(6, 3)};
};
struct preds {
  static constexpr extents loop = dims({1003});
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {load(pred, 0, dims({1})),
                                     load(pred, 1, dims({1})),
                                     op(opcode::or_, pred, {0, 1}),
                                     op(opcode::not_, pred, {2}),
                                     op(opcode::maximum, pred, {3, 0}),
                                     op(opcode::convert, f64, pred, {4}),
                                     op(opcode::compare_lt, pred, {0, 1})};
  static constexpr std::array stores = {to(4, 0), to(5, 1), to(6, 2)};
};
struct mapped {
  static constexpr extents loop = dims({777});
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {load(f32, 0, dims({1})),
                                     load(f32, 1, dims({1})),
                                     number(f32, 0.5),
                                     op(opcode::multiply, f32, {0, 1}),
                                     op(opcode::map, f32, {3, 2, 1}, &axpy),
                                     op(opcode::add, f32, {4, 0}),
                                     op(opcode::tanh, f32, {5}),
                                     op(opcode::convert, s64, f32, {5}),
                                     op(opcode::map, s64, {7, 7, 7}, &axpy)};
  static constexpr std::array stores = {to(5, 0), to(6, 1), to(8, 2)};
};
struct transcendental {
  static constexpr extents loop = dims({515});
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {
      load(f64, 0, dims({1})),           op(opcode::exponential, f64, {0}), op(opcode::add, f64, {1, 0}),
      op(opcode::log, f64, {2}),         op(opcode::logistic, f64, {3}),    op(opcode::sine, f64, {4}),
      op(opcode::power, f64, {1, 5}),    op(opcode::rsqrt, f64, {6}),       op(opcode::convert, f32, f64, {7}),
      op(opcode::exponential, f32, {8}), op(opcode::multiply, f32, {9, 9}), op(opcode::add, f32, {10, 8})};
  static constexpr std::array stores = {to(7, 0), to(11, 1), to(4, 2), to(3, 3)};
};
struct only_copies {  // a load and a constant are stored
  static constexpr extents loop = dims({2, 65});
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {load(s32, 0, dims({65, 1})), number(f64, -2.5), counter(f32, 0, 1)};
  static constexpr std::array stores = {to(0, 0), to(1, 1), to(2, 2), to(0, 3)};
};
template <int N>
struct long_chain {  // more operators than one fold may have operands
  static constexpr extents loop = dims({97});
  static constexpr dim_mask cut = 0;
  static constexpr auto ops = [] {
    std::array<scalar_op, N> all{};
    all[0] = load(f32, 0, dims({1}));
    all[1] = load(f32, 1, dims({0}));
    for (int k = 2; k < N; ++k)
      all[static_cast<std::size_t>(k)] = k % 3 == 0   ? op(opcode::multiply, f32, {k - 1, 1})
                                         : k % 3 == 1 ? op(opcode::add, f32, {k - 1, k - 2})
                                                      : op(opcode::minimum, f32, {k - 1, 0});
    return all;
  }();
  static constexpr std::array stores = {to(N - 1, 0), to(N / 2, 1)};
};

// What a group with a map may be off by: the user's function is inlined there, and where the processor has a fused multiply-add
// the compiler may use it on one path and not on the other.
int ulps_between_paths(const fused_group& g) {
#if defined(__FMA__)
  for (const scalar_op& o : g.ops)
    if (o.op == opcode::map) return 16;
#endif
  (void)g;
  return 0;
}

template <class Group>
void check_both(unsigned seed) {
  const fused_group g{Group::loop, Group::ops, Group::stores};
  const std::int64_t n = elements(g.loop);
  std::mt19937 random(seed);
  std::vector<std::vector<std::byte>> inputs(8);
  for (const auto& o : g.ops) {
    if (o.op != opcode::parameter) continue;
    const auto pool = samples(o.type, random);
    std::vector<value> values;
    for (std::int64_t i = 0; i < std::max<std::int64_t>(n, 1); ++i) values.push_back(pool[random() % pool.size()]);
    inputs[static_cast<std::size_t>(o.slot)] = pack(values);
  }
  const void* in[8];
  for (std::size_t k = 0; k < 8; ++k) in[k] = inputs[k].data();
  const std::int64_t offsets[] = {5, 40};
  std::vector<std::vector<std::byte>> a(8, std::vector<std::byte>(static_cast<std::size_t>(n * 8 + 8))), b = a;
  void* out_a[8];
  void* out_b[8];
  for (std::size_t k = 0; k < 8; ++k) {
    out_a[k] = a[k].data();
    out_b[k] = b[k].data();
  }
  run_fused<Group>(in, out_a, offsets);
  run_dynamic(g, in, out_b, offsets);
  for (const auto& s : g.stores) {
    const auto slot = static_cast<std::size_t>(s.slot);
    const dtype type = g.ops[static_cast<std::size_t>(s.op)].type;
    for (std::int64_t i = 0; i < n; ++i) {
      const value x = read(type, a[slot].data(), i), y = read(type, b[slot].data(), i);
      if (same(x, y, ulps_between_paths(g))) continue;
      FAIL_CHECK("store ", slot, " element ", i, ": static ", x.real, " / ", x.integer, ", run-time ", y.real, " / ", y.integer);
      break;
    }
    CHECK(std::memcmp(a[slot].data() + n * bytes_of(type), b[slot].data() + n * bytes_of(type), 8) == 0);  // nothing past the end
  }
}
}  // namespace

TEST_CASE("both paths give the same bits") {
  check_both<adam<1>>(1);
  check_both<adam<64>>(2);
  check_both<adam<1537>>(3);
  check_both<scalar_group>(4);
  check_both<empty_group>(5);
  check_both<bias_relu>(6);
  check_both<short_rows>(7);
  check_both<transposed>(8);
  check_both<preds>(9);
  check_both<mapped>(10);
  check_both<transcendental>(11);
  check_both<only_copies>(12);
  check_both<long_chain<300>>(13);
}

namespace {
template <class Group>
struct ending_early : Group {
  static constexpr dim_mask cut = dim_bit(Group::loop.count) - 1;
};

// Of the loop only `part` is computed; nothing else is written.
template <class Group>
void check_part(const extents& part) {
  const fused_group g{Group::loop, Group::ops, Group::stores};
  const auto n = static_cast<std::size_t>(elements(g.loop));
  std::mt19937 random(17);
  std::vector<std::vector<std::byte>> inputs(4);
  for (const auto& o : g.ops) {
    if (o.op != opcode::parameter) continue;
    const auto pool = samples(o.type, random);
    std::vector<value> values;
    for (std::size_t i = 0; i < n; ++i) values.push_back(pool[random() % pool.size()]);
    inputs[static_cast<std::size_t>(o.slot)] = pack(values);
  }
  const void* in[4];
  for (std::size_t k = 0; k < 4; ++k) in[k] = inputs[k].data();
  const std::int64_t offsets[] = {5, 40};
  std::vector<std::vector<std::byte>> a(4, std::vector<std::byte>(n * 8, std::byte{0x5A})), b = a;
  void* out_a[4];
  void* out_b[4];
  for (std::size_t k = 0; k < 4; ++k) out_a[k] = a[k].data(), out_b[k] = b[k].data();

  using row = typename row_of_group<ending_early<Group>>::type;
  fused_memory<row> memory;
  run_fused_rows(g, part, compute_rows<row>, memory.rows(), in, out_a, offsets);
  const fused_code code({part, g.ops, g.stores}, g.loop);
  std::vector<std::byte> scratch(static_cast<std::size_t>(code.scratch_bytes), std::byte{0xA5});
  run_fused(code, in, out_b, offsets, scratch.data());
  for (const auto& s : g.stores) {
    // Elements of the part by value, since nobody writes the others: those keep their bytes.
    const auto slot = static_cast<std::size_t>(s.slot);
    const dtype type = g.ops[static_cast<std::size_t>(s.op)].type;
    for (std::int64_t i = 0; i < elements(g.loop); ++i)
      CHECK(same(read(type, a[slot].data(), i), read(type, b[slot].data(), i), ulps_between_paths(g)));
  }
  if (ulps_between_paths(g) == 0) CHECK(a == b);
}
}  // namespace

TEST_CASE("both paths leave out what does not exist") {
  check_part<adam<1537>>(dims({1000}));
  check_part<adam<64>>(dims({0}));
  check_part<bias_relu>(dims({5, 101}));
  check_part<short_rows>(dims({77, 2}));
  check_part<mapped>(dims({500}));
  check_part<only_copies>(dims({1, 64}));
  check_part<preds>(dims({63}));
}

TEST_CASE("in place: an output may be an input") {
  using group = adam<1100>;
  std::vector<float> w(1100), m(1100), v(1100), g(1100);
  for (std::size_t i = 0; i < 1100; ++i) {
    w[i] = static_cast<float>(i) * 0.25f;
    m[i] = static_cast<float>(i % 7);
    v[i] = static_cast<float>(i % 5);
    g[i] = static_cast<float>(i % 11) - 5;
  }
  auto w2 = w, m2 = m, v2 = v, w3 = w, m3 = m, v3 = v;
  const void* in[] = {w.data(), m.data(), v.data(), g.data()};
  void* out[] = {w2.data(), m2.data(), v2.data()};
  run_fused<group>(in, out, nullptr);
  const void* in3[] = {w3.data(), m3.data(), v3.data(), g.data()};
  void* out3[] = {w3.data(), m3.data(), v3.data()};
  run_dynamic({group::loop, group::ops, group::stores}, in3, out3);
  run_fused<group>(in, const_cast<void* const*>(std::array<void*, 3>{w.data(), m.data(), v.data()}.data()), nullptr);
  CHECK((w2 == w && m2 == m && v2 == v));
  CHECK((w3 == w && m3 == m && v3 == v));
}

TEST_CASE("in place: two inputs change places") {
  struct swap_group {
    static constexpr auto make() {
      return std::array{load(f32, 0, dims({1})), load(f32, 1, dims({1})), op(opcode::negate, f32, {0})};
    }
  };
  const auto ops = swap_group::make();
  std::vector<float> a(1000, 1.0f), b(1000, 2.0f);
  const void* in[] = {a.data(), b.data()};
  void* out[] = {a.data(), b.data()};
  const fused_store swap[] = {to(1, 0), to(0, 1)};
  run_dynamic({dims({1000}), ops, swap}, in, out);
  CHECK((a == std::vector<float>(1000, 2.0f) && b == std::vector<float>(1000, 1.0f)));
  const fused_store negated[] = {to(2, 1), to(1, 0)};  // b = -a, a = b
  run_dynamic({dims({1000}), ops, negated}, in, out);
  CHECK((a == std::vector<float>(1000, 1.0f) && b == std::vector<float>(1000, -2.0f)));
}

TEST_CASE("in place: a result waits while a later operator reads what it overwrites") {
  const std::array ops = {load(f32, 0, dims({1})), load(f32, 1, dims({1})), op(opcode::negate, f32, {0}),
                          op(opcode::divide, f32, {1, 2})};
  std::vector<float> a(3000, 2.0f), b(3000, 6.0f);
  const void* in[] = {a.data(), b.data()};
  void* out[] = {b.data(), a.data()};
  const fused_store stores[] = {to(2, 0), to(3, 1)};  // b = -a, a = b / -a
  run_dynamic({dims({3000}), ops, stores}, in, out);
  CHECK((a == std::vector<float>(3000, -3.0f) && b == std::vector<float>(3000, -2.0f)));
}

TEST_CASE("a pred that is no bool is true") {
  const std::array ops = {load(pred, 0, dims({1})), op(opcode::not_, pred, {0})};
  const fused_store stores[] = {to(1, 0)};
  std::vector<unsigned char> bytes = {0, 1, 2, 128, 255}, result(5, 7);
  const void* in[] = {bytes.data()};
  void* out[] = {result.data()};
  run_dynamic({dims({5}), ops, stores}, in, out);
  CHECK(result == std::vector<unsigned char>{1, 0, 0, 0, 0});
}

TEST_CASE("two operators in one instruction give the bits of one after the other") {
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
        const dtype middle = is_compare(p.first) ? pred : first_type;
        if (middle != pred && first_type != type) continue;
        std::vector<scalar_op> ops = {load(first_type, 0, dims({1})), load(first_type, 1, dims({1})), load(type, 2, dims({1})),
                                      load(type, 3, dims({1})), op(p.first, middle, first_type, {0, 1})};
        if (p.second == opcode::select) ops.push_back(op(p.second, type, {4, 2, 3}));
        else if (is_unary(p.second)) ops.push_back(op(p.second, type, middle, {4}));
        else ops.push_back(p.place == 0 ? op(p.second, type, {4, 2}) : op(p.second, type, {2, 4}));
        const void* in[] = {inputs[0].data(), inputs[1].data(), inputs[2].data(), inputs[3].data()};
        std::vector<std::byte> together(static_cast<std::size_t>(n * 8)), apart = together, between = together;
        void* out[] = {together.data()};
        void* out_apart[] = {apart.data(), between.data()};
        const fused_store one[] = {to(5, 0)};
        const fused_store both[] = {to(5, 0), to(4, 1)};
        const fused_code code({dims({n}), ops, one});
        if (code.instructions.size() == 1) ++joined;
        CHECK(fused_code({dims({n}), ops, both}).instructions.size() == 2);
        run_dynamic({dims({n}), ops, one}, in, out);
        run_dynamic({dims({n}), ops, both}, in, out_apart);
        for (std::int64_t i = 0; i < n; ++i)
          if (!same(read(type, together.data(), i), read(type, apart.data(), i), 0)) {
            FAIL_CHECK(name_of(p.first), " ", name_of(p.second), " differs at ", i);
            break;
          }
      }
  CHECK(joined == 2 * static_cast<int>(fused_pair_count) + 2);
}

TEST_CASE("blocks: whole rows in multiples of 64 elements, or parts of one row") {
  const auto elems = [](std::int64_t rows, std::int64_t row) { return fused_blocks(dims({rows, row}), true).elems; };
  CHECK(elems(256, 10) == 960);
  CHECK(elems(256, 128) == 1024);
  CHECK(elems(9, 100) == 1000);
  CHECK(elems(9, 1024) == 1024);
  CHECK(elems(9, 1025) == 576);
  CHECK(elems(9, 0) == 1024);
  CHECK_FALSE(fused_blocks(dims({9, 1025}), true).has_whole_rows);
  CHECK(fused_blocks(dims({9, 100}), false).row == 900);
  CHECK(fused_blocks(dims({}), true).elems == 1024);
}

TEST_CASE("random groups, as they are and collapsed") {
  std::mt19937 random(2024);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  constexpr opcode exact_unary[] = {opcode::abs,   opcode::negate, opcode::sign, opcode::relu,   opcode::sqrt,
                                    opcode::floor, opcode::ceil,   opcode::not_, opcode::convert};
  constexpr opcode exact_binary[] = {opcode::add,        opcode::subtract,   opcode::multiply,  opcode::divide,
                                     opcode::maximum,    opcode::minimum,    opcode::and_,      opcode::or_,
                                     opcode::compare_eq, opcode::compare_lt, opcode::compare_ge};
  constexpr std::int64_t sizes[] = {0, 1, 2, 3, 5, 17, 33, 64, 129};
  constexpr std::int64_t long_sizes[] = {513, 1000, 1024, 1025, 2500};
  for (int round = 0; round < 500; ++round) {
    extents loop;
    const int rank = pick(5);
    for (int d = 0; d < rank; ++d)
      loop.push_back(d == rank - 1 || rank < 3 ? sizes[round % 20 == 0 ? pick(9) : 1 + pick(8)] : 1 + pick(4));
    if (round % 5 == 0 && rank > 0) {  // rows longer than a block, or nearly
      for (int d = 0; d < rank; ++d) loop[d] = 1 + pick(3);
      loop[pick(4) == 0 ? 0 : rank - 1] = long_sizes[pick(5)];
    }
    vec<scalar_op> ops;
    std::vector<std::vector<std::byte>> inputs;
    const int count = 1 + pick(30);
    for (int k = 0; k < count; ++k) {
      const dtype type = all_types[pick(5)];
      // operands of one type among those before
      const auto some = [&](dtype t) {
        std::vector<int> found;
        for (int j = 0; j < k; ++j)
          if (ops[static_cast<std::size_t>(j)].type == t) found.push_back(j);
        return found.empty() ? -1 : found[static_cast<std::size_t>(pick(static_cast<int>(found.size())))];
      };
      const int x = some(type), y = some(type), p = some(pred);
      const int kind = k < 3 ? pick(3) : pick(14);
      if (kind == 1 && rank > 0) {
        ops.push_back(counter(type, pick(2), pick(rank)));
      } else if (kind == 2) {
        ops.push_back(number(type, type == pred ? pick(2) : pick(100) - 50));
      } else if (kind == 3 && x >= 0 && y >= 0 && p >= 0) {
        ops.push_back(op(opcode::select, type, {p, x, y}));
      } else if (kind == 4 && x >= 0 && y >= 0 && type != s32) {
        ops.push_back(op(opcode::map, type, {x, y, x}, &axpy));
      } else if (kind < 8 && x >= 0 && kind > 4) {
        const opcode code = exact_unary[pick(9)];
        if (is_defined(code, type)) ops.push_back(op(code, code == opcode::convert ? all_types[pick(5)] : type, type, {x}));
        else ops.push_back(op(opcode::convert, type, {x}));
      } else if (kind >= 8 && x >= 0) {
        const opcode code = exact_binary[pick(11)];
        if (is_defined(code, type)) ops.push_back(op(code, is_compare(code) ? pred : type, type, {x, y}));
        else ops.push_back(op(opcode::maximum, type, {x, y}));
      } else {
        // dense, transposed, or broadcast along any dims
        extents strides(rank, 0);
        std::int64_t size = 1;
        const bool reversed = pick(4) == 0;
        for (int i = 0; i < rank; ++i) {
          const int d = reversed ? i : rank - 1 - i;
          if (pick(4) == 0 && k % 2 == 0) continue;
          strides[d] = size;
          size *= std::max<std::int64_t>(loop[d], 1);
        }
        ops.push_back(load(type, static_cast<int>(inputs.size()), strides));
        std::vector<value> values;
        const auto pool = samples(type, random);
        for (std::int64_t i = 0; i < size; ++i) values.push_back(pool[random() % pool.size()]);
        inputs.push_back(pack(values));
      }
    }
    std::vector<fused_store> stores;
    for (int s = 0; s < 1 + pick(4); ++s) stores.push_back(to(s == 0 ? count - 1 : pick(count), s));
    std::vector<const void*> in;
    for (const auto& i : inputs) in.push_back(i.data());
    const std::int64_t offsets[] = {pick(1000), 0};
    const fused_group g{loop, ops, stores};
    const auto wanted = naive(g, in.data(), offsets);

    auto small_loop = loop;
    auto small_ops = ops;
    collapse_loop(small_loop, small_ops);
    CHECK(elements(small_loop) == elements(loop));
    for (const bool collapsed : {false, true}) {
      const fused_group tried{collapsed ? small_loop : loop, collapsed ? small_ops : ops, stores};
      std::vector<std::vector<std::byte>> results;
      std::vector<void*> out;
      for (std::size_t s = 0; s < stores.size(); ++s) {
        results.emplace_back(static_cast<std::size_t>(elements(loop) * 8 + 8));
      }
      for (auto& r : results) out.push_back(r.data());
      run_dynamic(tried, in.data(), out.data(), offsets);
      for (std::size_t s = 0; s < stores.size(); ++s) {
        INFO("round ", round, " store ", s, " collapsed ", collapsed);
        CHECK(same_values(g, s, results[s].data(), wanted[s].data()));
      }
    }

    // The same, as far as the elements exist.
    auto part = loop;
    dim_mask cut = 0;
    for (int d = 0; d < loop.count; ++d)
      if (pick(2) == 0) {
        part[d] = pick(static_cast<int>(loop[d]) + 1);
        cut |= dim_bit(d);
      }
    auto room = loop;
    auto part_ops = ops;
    auto left = collapse_loop(room, part_ops, cut);
    auto small_part = room;
    CHECK((elements(loop) == 0 || std::popcount(left) == std::popcount(cut)));
    for (; left != 0; left &= left - 1, cut &= cut - 1) {
      const int d = std::countr_zero(cut);
      auto& extent = small_part[std::countr_zero(left)];
      extent = extent / loop[d] * part[d];
    }
    CHECK(elements(small_part) == elements(part));
    std::vector<std::vector<std::byte>> results(
        stores.size(), std::vector<std::byte>(static_cast<std::size_t>(elements(loop) * 8), std::byte{}));
    std::vector<void*> out;
    for (auto& r : results) out.push_back(r.data());
    const fused_code code({small_part, part_ops, stores}, room);
    std::vector<std::byte> scratch(static_cast<std::size_t>(code.scratch_bytes), std::byte{0xA5});
    run_fused(code, in.data(), out.data(), offsets, scratch.data());
    for (std::size_t s = 0; s < stores.size(); ++s) {
      const auto bytes = static_cast<std::size_t>(bytes_of(ops[static_cast<std::size_t>(stores[s].op)].type));
      auto expected = wanted[s];
      for (std::int64_t i = 0; i < elements(loop); ++i) {
        bool exists = true;
        std::int64_t rest = i;
        for (int d = loop.count - 1; d >= 0; --d) {
          exists = exists && rest % loop[d] < part[d];
          rest /= loop[d];
        }
        if (!exists) std::memset(expected.data() + static_cast<std::size_t>(i) * bytes, 0, bytes);
      }
      INFO("round ", round, " store ", s, " in part");
      CHECK(same_values(g, s, results[s].data(), expected.data()));
    }
  }
}

TEST_CASE("collapse joins what every load allows") {
  vec<scalar_op> ops = {load(f32, 0, dims({24, 6, 6, 1})), load(f32, 1, dims({0, 0, 0, 0}))};
  extents loop = dims({3, 4, 1, 6});
  collapse_loop(loop, ops);
  CHECK((loop == dims({72}) && ops[0].strides == dims({1}) && ops[1].strides == dims({0})));

  ops = {load(f32, 0, dims({24, 6, 1})), load(f32, 1, dims({0, 0, 1}))};
  loop = dims({3, 4, 6});
  collapse_loop(loop, ops);
  CHECK((loop == dims({12, 6}) && ops[0].strides == dims({6, 1}) && ops[1].strides == dims({0, 1})));

  ops = {load(f32, 0, dims({24, 6, 1})), counter(s32, 0, 0)};
  loop = dims({3, 4, 6});
  collapse_loop(loop, ops);
  CHECK((loop == dims({3, 24}) && ops[0].strides == dims({24, 1}) && ops[1].dim == 0));

  ops = {load(f32, 0, dims({1, 1})), counter(s32, 0, 1)};
  loop = dims({1, 1});
  collapse_loop(loop, ops);
  CHECK((loop == dims({1}) && ops[1].dim == 0));

  ops = {load(f32, 0, dims({1, 1}))};
  loop = dims({1, 1});
  collapse_loop(loop, ops);
  CHECK(loop.count == 0);

  ops = {load(f32, 0, dims({24, 6, 1}))};  // what is inside of a dim that is cut joins it, what is outside does not
  loop = dims({3, 4, 6});
  CHECK(collapse_loop(loop, ops, dim_bit(1)) == dim_bit(1));
  CHECK((loop == dims({3, 24}) && ops[0].strides == dims({24, 1})));
}
