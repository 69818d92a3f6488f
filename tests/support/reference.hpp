// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/local_function.hpp"
#include "support/all_operators.hpp"
#include "support/elementwise_names.hpp"
#include "support/local_functions.hpp"

/// Evaluates a graph on one device, directly by the StableHLO definitions of its operators. It uses only the structs of
/// gspmd's graph and none of its computations.
namespace reference {

using gspmd::dtype;
using gspmd::monoid;
using gspmd::detail::graph;
using gspmd::detail::node;
using gspmd::detail::opcode;
using namespace elementwise_names;

/// Fails the test: an oracle does not know the value of this operator. Random programs draw only operators that it
/// knows.
[[noreturn]] inline void refuse(const operator_code& op) {
  throw std::logic_error(std::string("the oracle has no value for ") + name_of(op));
}

/// A global array, row-major. Floats are in `reals`, rounded to their type; imaginary parts of complex elements are in
/// `imags`. Integers and pred (0 or 1) are in `ints`; u64 elements are stored by their bits. The other vectors are
/// empty.
struct host_array {
  dtype type = dtype::f32;
  std::vector<std::int64_t> shape;
  std::vector<double> reals, imags;
  std::vector<std::int64_t> ints;

  host_array() = default;
  host_array(dtype element, std::vector<std::int64_t> extents) : type(element), shape(std::move(extents)) {
    (floating() ? reals.resize(size()) : ints.resize(size()));
    if (complex()) imags.resize(size());
  }
  [[nodiscard]] bool complex() const { return type == dtype::c64 || type == dtype::c128; }
  [[nodiscard]] bool floating() const {
    return type == dtype::f32 || type == dtype::f64 || type == dtype::bf16 || type == dtype::f16 || complex();
  }
  [[nodiscard]] std::size_t size() const {
    std::size_t n = 1;
    for (const auto e : shape) n *= static_cast<std::size_t>(e);
    return n;
  }
};

/// Rounds to `digits` binary digits, to the nearest even number. Subnormal numbers have fewer digits.
inline double round_to_digits(double x, int digits, int least_exponent, double most) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const int last = std::max(exponent, least_exponent) - digits;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -last)), last);
  return std::fabs(rounded) > most ? std::copysign(std::numeric_limits<double>::infinity(), x) : rounded;
}
inline double round_to(dtype type, double x) {
  if (type == dtype::bf16) return round_to_digits(x, 8, -125, 0x1.fep127);
  if (type == dtype::f16) return round_to_digits(x, 11, -13, 65504);
  return type == dtype::f32 || type == dtype::c64 ? static_cast<double>(static_cast<float>(x)) : x;
}
inline std::int64_t wrap_to(dtype type, std::uint64_t bits) {
  switch (type) {
    case dtype::s8: return static_cast<std::int8_t>(static_cast<std::uint8_t>(bits));
    case dtype::u8: return static_cast<std::uint8_t>(bits);
    case dtype::s16: return static_cast<std::int16_t>(static_cast<std::uint16_t>(bits));
    case dtype::s32: return static_cast<std::int32_t>(static_cast<std::uint32_t>(bits));
    case dtype::u32: return static_cast<std::uint32_t>(bits);
    default: return static_cast<std::int64_t>(bits);
  }
}
inline std::uint64_t bits_of(std::int64_t x) { return static_cast<std::uint64_t>(x); }

using index = std::vector<std::int64_t>;

inline std::size_t offset_of(const index& at, const std::vector<std::int64_t>& shape) {
  std::size_t offset = 0;
  for (std::size_t d = 0; d < shape.size(); ++d)
    offset = offset * static_cast<std::size_t>(shape[d]) + static_cast<std::size_t>(at[d]);
  return offset;
}

/// Calls `visit` with every index of `shape` in row-major order: once for rank 0, never if an extent is 0.
template <class Visit>
void for_each_index(const std::vector<std::int64_t>& shape, Visit visit) {
  for (const auto e : shape)
    if (e == 0) return;
  index at(shape.size(), 0);
  while (true) {
    visit(std::as_const(at));
    std::size_t d = shape.size();
    while (d > 0 && ++at[d - 1] == shape[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

inline std::int64_t integer_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  std::uint64_t result = 1;
  for (auto square = bits_of(base); exponent > 0; exponent /= 2, square *= square)
    if (exponent % 2 == 1) result *= square;
  return static_cast<std::int64_t>(result);
}

inline double max(double a, double b) { return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b); }
inline double min(double a, double b) { return std::isnan(a) || std::isnan(b) ? std::nan("") : std::min(a, b); }

inline double unary(const operator_code& op, double x) {
  switch (op.id) {
    case operator_id<abs_op>: return std::fabs(x);
    case operator_id<negative_op>: return -x;
    case operator_id<sign_op>: return x > 0 ? 1 : x < 0 ? -1 : x;
    case operator_id<exp_op>: return std::exp(x);
    case operator_id<log_op>: return std::log(x);
    case operator_id<sqrt_op>: return std::sqrt(x);
    case operator_id<rsqrt_op>: return 1 / std::sqrt(x);
    case operator_id<tanh_op>: return std::tanh(x);
    case operator_id<sigmoid_op>: return 1 / (1 + std::exp(-x));
    case operator_id<relu_op>: return max(x, 0);
    case operator_id<sin_op>: return std::sin(x);
    case operator_id<cos_op>: return std::cos(x);
    case operator_id<floor_op>: return std::floor(x);
    case operator_id<ceil_op>: return std::ceil(x);
    case operator_id<expm1_op>: return std::expm1(x);
    case operator_id<log1p_op>: return std::log1p(x);
    case operator_id<erf_op>: return std::erf(x);
    case operator_id<erf_inv_op>: return gspmd::detail::inverse_error_function(x);
    case operator_id<cbrt_op>: return std::cbrt(x);
    case operator_id<stop_gradient_op>: return x;
    default: refuse(op);
  }
}

inline std::int64_t unary(const operator_code& op, dtype type, std::int64_t x) {
  if (type == dtype::u64 && (op == code_of<abs_op> || op == code_of<relu_op>)) return x;
  if (type == dtype::u64 && op == code_of<sign_op>) return x != 0 ? 1 : 0;
  switch (op.id) {
    case operator_id<abs_op>: return wrap_to(type, x < 0 ? 0 - bits_of(x) : bits_of(x));
    case operator_id<negative_op>: return wrap_to(type, 0 - bits_of(x));
    case operator_id<sign_op>: return x > 0 ? 1 : x < 0 ? -1 : 0;
    case operator_id<relu_op>: return x > 0 ? x : 0;
    case operator_id<not_op>: return type == dtype::pred ? 1 - x : wrap_to(type, bits_of(~x));
    case operator_id<stop_gradient_op>: return x;
    default: refuse(op);
  }
}

inline double binary(const operator_code& op, double a, double b) {
  switch (op.id) {
    case operator_id<add_op>: return a + b;
    case operator_id<subtract_op>: return a - b;
    case operator_id<multiply_op>: return a * b;
    case operator_id<divide_op>: return a / b;
    case operator_id<max_op>: return max(a, b);
    case operator_id<min_op>: return min(a, b);
    case operator_id<pow_op>: return std::pow(a, b);
    case operator_id<fmod_op>: return std::fmod(a, b);
    case operator_id<atan2_op>: return std::atan2(a, b);
    default: refuse(op);
  }
}

inline std::int64_t binary(const operator_code& op, dtype type, std::int64_t a, std::int64_t b) {
  if (type == dtype::pred) {  // StableHLO: add is or, multiply is and
    if (op == code_of<xor_op>) return a ^ b;
    if (op == code_of<add_op> || op == code_of<max_op> || op == code_of<or_op>) return a | b;
    if (op == code_of<multiply_op> || op == code_of<min_op> || op == code_of<and_op>) return a & b;
    refuse(op);
  }
  if (op == code_of<threefry2x32_op>) return static_cast<std::int64_t>(gspmd::detail::threefry2x32(bits_of(a), bits_of(b)));
  if (type == dtype::u32 || type == dtype::u64) {
    const auto x = bits_of(a), y = bits_of(b);
    const auto width = static_cast<std::uint64_t>(8 * gspmd::detail::bytes_of(type));
    if (op == code_of<divide_op>) return wrap_to(type, y == 0 ? ~y : x / y);
    if (op == code_of<fmod_op>) return wrap_to(type, y == 0 ? x : x % y);
    if (op == code_of<max_op> || op == code_of<min_op>) return (x < y) == (op == code_of<min_op>) ? a : b;
    if (op == code_of<right_shift_op>) return y >= width ? 0 : wrap_to(type, x >> y);
    if (op == code_of<pow_op>) {
      std::uint64_t result = 1, square = x;
      for (auto left = y; left > 0; left /= 2, square *= square)
        if (left % 2 == 1) result *= square;
      return wrap_to(type, result);
    }
  }
  switch (op.id) {
    case operator_id<add_op>: return wrap_to(type, bits_of(a) + bits_of(b));
    case operator_id<subtract_op>: return wrap_to(type, bits_of(a) - bits_of(b));
    case operator_id<multiply_op>: return wrap_to(type, bits_of(a) * bits_of(b));
    case operator_id<divide_op>: return b == 0 ? wrap_to(type, bits_of(-1)) : b == -1 ? wrap_to(type, 0 - bits_of(a)) : a / b;
    case operator_id<max_op>: return std::max(a, b);
    case operator_id<min_op>: return std::min(a, b);
    case operator_id<pow_op>: return wrap_to(type, bits_of(integer_power(a, b)));
    case operator_id<and_op>: return a & b;
    case operator_id<or_op>: return a | b;
    case operator_id<xor_op>: return a ^ b;
    case operator_id<fmod_op>: return b == 0 ? a : b == -1 ? 0 : a % b;
    case operator_id<left_shift_op>: {
      const int width = static_cast<int>(8 * gspmd::detail::bytes_of(type));
      return b < 0 || b >= width ? 0 : wrap_to(type, bits_of(a) << b);
    }
    case operator_id<right_shift_op>: {
      const int width = static_cast<int>(8 * gspmd::detail::bytes_of(type));
      return b < 0 || b >= width ? (a < 0 ? -1 : 0) : a >> b;
    }
    default: refuse(op);
  }
}

template <class T>
bool compare(const operator_code& op, T a, T b) {
  switch (op.id) {
    case operator_id<compare_eq_op>: return a == b;
    case operator_id<compare_ne_op>: return a != b;
    case operator_id<compare_lt_op>: return a < b;
    case operator_id<compare_le_op>: return a <= b;
    case operator_id<compare_gt_op>: return a > b;
    case operator_id<compare_ge_op>: return a >= b;
    default: refuse(op);
  }
}

inline void convert(const host_array& x, host_array& result) {
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (result.type == dtype::pred) {
      result.ints[i] = x.floating() ? x.reals[i] != 0 : x.ints[i] != 0;
    } else if (result.floating()) {
      if (x.floating()) result.reals[i] = round_to(result.type, x.reals[i]);
      else if (x.type == dtype::u64) result.reals[i] = round_to(result.type, static_cast<double>(bits_of(x.ints[i])));
      else
        result.reals[i] = result.type == dtype::f32 ? static_cast<double>(static_cast<float>(x.ints[i]))
                                                    : round_to(result.type, static_cast<double>(x.ints[i]));
    } else if (x.floating()) {
      const auto& ends = gspmd::detail::facts_of(result.type);
      // The result for values beyond `most` is implementation-defined.
      const double most = result.type == dtype::s64 ? 9.2e18 : static_cast<double>(ends.most);
      const double least = result.type == dtype::s64 ? -most - 1 : static_cast<double>(ends.least);
      if (result.type == dtype::u64) {
        const double r = x.reals[i];
        result.ints[i] = static_cast<std::int64_t>(!(r >= 1)     ? 0
                                                   : r >= 0x1p64 ? ~std::uint64_t{0}
                                                                 : static_cast<std::uint64_t>(r));
        continue;
      }
      result.ints[i] = std::isnan(x.reals[i]) ? 0 : static_cast<std::int64_t>(std::clamp(x.reals[i], least, most));
    } else {
      result.ints[i] = wrap_to(result.type, bits_of(x.ints[i]));
    }
  }
}

template <class T, class Get>
T call_map(T (*f)(const T*), int arity, Get get) {
  T arguments[gspmd::detail::max_map_arity]{};
  for (int k = 0; k < arity; ++k) arguments[k] = static_cast<T>(get(static_cast<std::size_t>(k)));
  return f(arguments);
}

inline void map(const node& n, const std::vector<const host_array*>& x, host_array& result) {
  const int arity = n.operands.count;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto real = [&](std::size_t k) { return x[k]->reals[i]; };
    const auto integer = [&](std::size_t k) { return x[k]->ints[i]; };
    switch (n.type) {
      case dtype::f32: result.reals[i] = static_cast<double>(call_map(function_for<float>(*n.function), arity, real)); break;
      case dtype::f64: result.reals[i] = call_map(function_for<double>(*n.function), arity, real); break;
      case dtype::s32: result.ints[i] = call_map(function_for<std::int32_t>(*n.function), arity, integer); break;
      case dtype::s64: result.ints[i] = call_map(function_for<std::int64_t>(*n.function), arity, integer); break;
      case dtype::pred: result.ints[i] = call_map(function_for<bool>(*n.function), arity, integer); break;
      default: break;  // no random program has a map of another type
    }
  }
}

inline void elementwise(const node& n, const std::vector<const host_array*>& x, host_array& result) {
  if (n.op == code_of<cast_op>) return convert(*x[0], result);
  if (n.op == code_of<map_op>) return map(n, x, result);
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (n.op == code_of<where_op>) {
      const host_array& chosen = *x[x[0]->ints[i] != 0 ? 1 : 2];
      if (result.floating()) result.reals[i] = chosen.reals[i];
      else result.ints[i] = chosen.ints[i];
    } else if (gspmd::detail::is_compare(n.op)) {
      result.ints[i] = x[0]->floating()           ? compare(n.op, x[0]->reals[i], x[1]->reals[i])
                       : x[0]->type == dtype::u64 ? compare(n.op, bits_of(x[0]->ints[i]), bits_of(x[1]->ints[i]))
                                                  : compare(n.op, x[0]->ints[i], x[1]->ints[i]);
    } else if (gspmd::detail::is_unary(n.op)) {
      if (result.floating()) result.reals[i] = round_to(n.type, unary(n.op, x[0]->reals[i]));
      else result.ints[i] = unary(n.op, n.type, x[0]->ints[i]);
    } else {
      if (result.floating()) result.reals[i] = round_to(n.type, binary(n.op, x[0]->reals[i], x[1]->reals[i]));
      else result.ints[i] = binary(n.op, n.type, x[0]->ints[i], x[1]->ints[i]);
    }
  }
}

/// Loops over all letters, the letters of the result outermost. Floats are summed in double and rounded once.
inline void einsum(const node& n, const std::vector<const host_array*>& x, host_array& result) {
  std::vector<int> letters;                              // each once; first the letters of the result
  std::vector<std::int64_t> extents;                     // of each letter
  std::vector<std::vector<std::size_t>> dims(x.size());  // by operand: the number of the letter of each dim
  int at = 0;
  for (const auto* operand : x) at += static_cast<int>(operand->shape.size());
  for (std::size_t d = 0; d < result.shape.size(); ++d) {
    letters.push_back(static_cast<std::int8_t>(n.attributes[at++]));
    extents.push_back(result.shape[d]);
  }
  const std::size_t kept = letters.size();
  at = 0;
  for (std::size_t k = 0; k < x.size(); ++k)
    for (const auto extent : x[k]->shape) {
      const int letter = static_cast<int>(n.attributes[at++]);
      const auto found = static_cast<std::size_t>(std::find(letters.begin(), letters.end(), letter) - letters.begin());
      if (found == letters.size()) {
        letters.push_back(letter);
        extents.push_back(extent);
      }
      dims[k].push_back(found);
    }
  std::vector<double> reals(result.reals.size(), 0.0);
  std::vector<std::uint64_t> ints(result.ints.size(), 0);
  for_each_index(extents, [&](const index& i) {
    double real = 1;
    std::uint64_t integer = 1;
    for (std::size_t k = 0; k < x.size(); ++k) {
      std::size_t offset = 0;
      for (std::size_t d = 0; d < dims[k].size(); ++d)
        offset = offset * static_cast<std::size_t>(x[k]->shape[d]) + static_cast<std::size_t>(i[dims[k][d]]);
      if (result.floating()) real *= x[k]->reals[offset];
      else integer *= bits_of(x[k]->ints[offset]);
    }
    std::size_t to = 0;
    for (std::size_t d = 0; d < kept; ++d) to = to * static_cast<std::size_t>(extents[d]) + static_cast<std::size_t>(i[d]);
    if (result.floating()) reals[to] += real;
    else ints[to] += integer;
  });
  for (std::size_t i = 0; i < reals.size(); ++i) result.reals[i] = round_to(n.type, reals[i]);
  for (std::size_t i = 0; i < ints.size(); ++i) result.ints[i] = wrap_to(n.type, ints[i]);
}

inline double real_identity(monoid kind) {
  const double infinity = std::numeric_limits<double>::infinity();
  switch (kind) {
    case monoid::multiply: return 1;
    case monoid::max: return -infinity;
    case monoid::min: return infinity;
    default: return 0;
  }
}
inline std::int64_t integer_identity(monoid kind, dtype type) {
  const auto& ends = gspmd::detail::facts_of(type);
  switch (kind) {
    case monoid::multiply: return 1;
    case monoid::max: return type == dtype::pred ? 0 : ends.least;
    case monoid::min: return type == dtype::pred ? 1 : type == dtype::u64 ? -1 : ends.most;
    case monoid::and_: return type == dtype::pred ? 1 : wrap_to(type, bits_of(-1));
    default: return 0;
  }
}
inline double combine(monoid kind, double a, double b) {
  switch (kind) {
    case monoid::multiply: return a * b;
    case monoid::max: return max(a, b);
    case monoid::min: return min(a, b);
    default: return a + b;
  }
}
inline std::int64_t combine(monoid kind, dtype type, std::int64_t a, std::int64_t b) {
  switch (kind) {
    case monoid::add: return binary(code_of<add_op>, type, a, b);
    case monoid::multiply: return binary(code_of<multiply_op>, type, a, b);
    case monoid::max: return type == dtype::u64 ? binary(code_of<max_op>, type, a, b) : std::max(a, b);
    case monoid::min: return type == dtype::u64 ? binary(code_of<min_op>, type, a, b) : std::min(a, b);
    case monoid::and_: return a & b;
    case monoid::or_: return a | b;
  }
  return 0;
}

inline void reduce(const node& n, const host_array& x, host_array& result) {
  std::vector<bool> reduced(x.shape.size(), false);
  for (const auto d : n.attributes) reduced[static_cast<std::size_t>(d)] = true;
  for (auto& r : result.reals) r = real_identity(n.reduced_by);
  for (auto& i : result.ints) i = integer_identity(n.reduced_by, n.type);
  std::size_t from = 0;
  for_each_index(x.shape, [&](const index& at) {
    index kept;
    for (std::size_t d = 0; d < at.size(); ++d)
      if (!reduced[d]) kept.push_back(at[d]);
    const auto to = offset_of(kept, result.shape);
    if (x.floating()) result.reals[to] = combine(n.reduced_by, result.reals[to], x.reals[from]);
    else result.ints[to] = combine(n.reduced_by, n.type, result.ints[to], x.ints[from]);
    ++from;
  });
  for (auto& r : result.reals) r = round_to(n.type, r);
}

/// Computes the result whose element at each index is element `source(index)` of x.
template <class Source>
void gather(const host_array& x, host_array& result, Source source) {
  std::size_t to = 0;
  for_each_index(result.shape, [&](const index& at) {
    const auto from = offset_of(source(at), x.shape);
    if (x.floating()) result.reals[to] = x.reals[from];
    else result.ints[to] = x.ints[from];
    ++to;
  });
}

/// Takes, sets or adds one row at the index, which is clamped to the nearest row.
inline void rows(const node& n, const std::vector<const host_array*>& x, host_array& result) {
  const bool adds = n.op == gspmd::detail::code_of<gspmd::detail::add_row_op>;
  const bool put = adds || n.op == gspmd::detail::code_of<gspmd::detail::set_row_op>;
  const auto last = x[0]->shape[0] - 1;
  const auto row = std::max<std::int64_t>(0, std::min(x[put ? 2 : 1]->ints[0], last));
  gather(*x[0], result, [&](const index& at) {
    index from = at;
    if (!put) from.insert(from.begin(), row);
    return from;
  });
  if (!put) return;
  std::size_t k = 0;
  for_each_index(x[1]->shape, [&](const index& at) {
    index to = at;
    to.insert(to.begin(), row);
    const auto offset = offset_of(to, result.shape);
    if (result.floating()) result.reals[offset] = x[1]->reals[k] + (adds ? result.reals[offset] : 0);
    else result.ints[offset] = adds ? wrap_to(n.type, bits_of(result.ints[offset]) + bits_of(x[1]->ints[k])) : x[1]->ints[k];
    ++k;
  });
}

inline void same(const host_array& x, host_array& result) {
  result.reals = x.reals;
  result.imags = x.imags;
  result.ints = x.ints;
}

/// An einsum whose first operand is read through windows. Its attributes are the letters of the operands and the
/// result. Then each windowed dim has the outer letter, the inner letter, and the size, stride, dilation, offset and
/// base of the window.
inline void convolution(const node& n, const host_array& x, const host_array& w, host_array& result) {
  const std::vector<std::int64_t> a(n.attributes.begin(), n.attributes.end());
  const std::size_t ranks[] = {x.shape.size(), w.shape.size(), result.shape.size()};
  const std::size_t first_window = ranks[0] + ranks[1] + ranks[2];
  const auto window = [&](std::int64_t letter) {
    return a.data() + first_window + 7 * gspmd::detail::window_of(static_cast<int>(letter));
  };
  const auto is_window = [](std::int64_t letter) { return gspmd::detail::is_window(static_cast<int>(letter)); };
  std::vector<std::int64_t> letters, extents;
  const auto know = [&](std::int64_t letter, std::int64_t extent) {
    if (std::find(letters.begin(), letters.end(), letter) != letters.end()) return;
    letters.push_back(letter);
    extents.push_back(extent);
  };
  const auto place = [&](std::int64_t letter) {
    return static_cast<std::size_t>(std::find(letters.begin(), letters.end(), letter) - letters.begin());
  };
  for (std::size_t d = 0; d < ranks[0]; ++d)
    if (!is_window(a[d])) know(a[d], x.shape[d]);
  for (std::size_t d = 0; d < ranks[1]; ++d) know(a[ranks[0] + d], w.shape[d]);
  for (std::size_t d = 0; d < ranks[2]; ++d) know(a[ranks[0] + ranks[1] + d], result.shape[d]);
  for (std::size_t k = first_window; k < a.size(); k += 7) know(a[k + 1], a[k + 2]);
  std::vector<double> reals(result.reals.size(), 0.0);
  std::vector<std::uint64_t> ints(result.ints.size(), 0);
  for_each_index(extents, [&](const index& i) {
    std::size_t at[] = {0, 0, 0};
    for (std::size_t d = 0; d < ranks[0]; ++d) {
      std::int64_t element = 0;
      if (is_window(a[d])) {
        const auto* const v = window(a[d]);
        const auto position = v[3] * i[place(v[0])] + v[4] * i[place(v[1])] + v[5];
        if (position % v[6] != 0 || position < 0 || position / v[6] >= x.shape[d]) return;
        element = position / v[6];
      } else {
        element = i[place(a[d])];
      }
      at[0] = at[0] * static_cast<std::size_t>(x.shape[d]) + static_cast<std::size_t>(element);
    }
    const auto offset = [&](std::size_t first, const std::vector<std::int64_t>& shape) {
      std::size_t sum = 0;
      for (std::size_t d = 0; d < shape.size(); ++d)
        sum = sum * static_cast<std::size_t>(shape[d]) + static_cast<std::size_t>(i[place(a[first + d])]);
      return sum;
    };
    at[1] = offset(ranks[0], w.shape);
    at[2] = offset(ranks[0] + ranks[1], result.shape);
    if (result.floating()) reals[at[2]] += x.reals[at[0]] * w.reals[at[1]];
    else ints[at[2]] += bits_of(x.ints[at[0]]) * bits_of(w.ints[at[1]]);
  });
  for (std::size_t i = 0; i < reals.size(); ++i) result.reals[i] = round_to(n.type, reals[i]);
  for (std::size_t i = 0; i < ints.size(); ++i) result.ints[i] = wrap_to(n.type, ints[i]);
}

/// A custom operator of local_functions.hpp.
inline void local(const node& n, const host_array& x, host_array& result) {
  namespace own = local_functions;
  if (n.local == own::minima || n.local == own::sums) {
    node as_reduce = n;
    as_reduce.attributes.push_back(0);
    return reduce(as_reduce, x, result);
  }
  if (n.local == own::copy_and_minima) return same(x, result);
  gather(x, result, [&](const index& at) -> index {
    if (n.local == own::turned) return {at[1], at[2], at[0]};
    if (n.local == own::rows_reversed) return {at[0], x.shape[1] - 1 - at[1]};
    return {x.shape[0] - 1 - at[0]};
  });
}

/// Returns true for pad, slice, reverse, roll, and several movements combined.
inline bool is_mapped(const node& n) {
  namespace ir = gspmd::detail;
  return n.op == ir::code_of<ir::pad_op> || n.op == ir::code_of<ir::slice_op> || n.op == ir::code_of<ir::flip_op> ||
         n.op == ir::code_of<ir::roll_op> || n.op == ir::code_of<ir::composed_op>;
}

/// Returns the index of the element at index i of a dim that continues beyond its ends. The result is outside if no
/// element exists.
inline std::int64_t mirrored(gspmd::detail::continuation how, std::int64_t i, std::int64_t size) {
  using gspmd::detail::continuation;
  while (how != continuation::none && (i < 0 || i >= size)) {
    const bool low = i < 0;
    if (how == continuation::round) i += low ? size : -size;
    else if (how == continuation::edge || size == 1) i = low ? 0 : size - 1;
    else if (how == continuation::reflect) i = low ? -i : 2 * (size - 1) - i;
    else i = low ? -1 - i : 2 * size - 1 - i;
  }
  return i;
}

/// Calls `visit(position in the window, element of x at this position, true if it exists)` for each position in the
/// window of an output.
template <class Visit>
void for_each_in_window(const node& n, const index& shape, const index& output, Visit visit) {
  struct along {
    std::size_t dim;
    std::int64_t size, stride, dilation, offset, base;
  };
  std::vector<along> windows;
  index sizes;
  for (int i = 0; i < n.attributes.count; i += 6) {
    const std::int64_t* const a = n.attributes.items + i;
    windows.push_back({static_cast<std::size_t>(a[0]), a[1], a[2], a[3], a[4], a[5]});
    sizes.push_back(a[1]);
  }
  for_each_index(sizes, [&](const index& w) {
    index from = output;
    bool inside = true;
    for (std::size_t k = 0; k < w.size(); ++k) {
      auto& i = from[windows[k].dim];
      i = windows[k].stride * i + windows[k].dilation * w[k] + windows[k].offset;
      inside = inside && i >= 0 && i % windows[k].base == 0 && i / windows[k].base < shape[windows[k].dim];
      i /= windows[k].base;
    }
    visit(from, inside);
  });
}
inline void reduce_window(const node& n, const host_array& x, host_array& result) {
  std::size_t to = 0;
  for_each_index(result.shape, [&](const index& at) {
    double real = real_identity(n.reduced_by);
    auto integer = integer_identity(n.reduced_by, n.type);
    for_each_in_window(n, x.shape, at, [&](const index& from, bool inside) {
      if (!inside) return;
      if (x.floating()) real = combine(n.reduced_by, real, x.reals[offset_of(from, x.shape)]);
      else integer = combine(n.reduced_by, n.type, integer, x.ints[offset_of(from, x.shape)]);
    });
    if (x.floating()) result.reals[to] = round_to(n.type, real);
    else result.ints[to] = integer;
    ++to;
  });
}
/// Adds the value of each window to the first element of the window that is the largest, or smallest.
inline void select_and_scatter(const node& n, const host_array& x, const host_array& brought, host_array& result) {
  std::size_t from = 0;
  for_each_index(brought.shape, [&](const index& at) {
    const std::size_t none = x.reals.size();
    std::size_t best = none;
    for_each_in_window(n, x.shape, at, [&](const index& place, bool inside) {
      if (!inside) return;
      const auto e = offset_of(place, x.shape);
      const auto is_better = [&] {
        return n.reduced_by == monoid::max ? x.reals[e] > x.reals[best] : x.reals[e] < x.reals[best];
      };
      if (best == none || is_better() || (std::isnan(x.reals[e]) && !std::isnan(x.reals[best]))) best = e;
    });
    if (best != none) result.reals[best] += brought.reals[from];
    ++from;
  });
  for (auto& r : result.reals) r = round_to(n.type, r);
}

// Defined in naive_indexing.hpp.
void gather_node(const node& n, const host_array& x, const host_array& indices, host_array& result);
void scan_node(const node& n, const host_array& x, host_array& result);
void top_k_node(const host_array& x, host_array& result, bool wants_indices);
void sort_node(const node& n, const std::vector<const host_array*>& x, host_array& result, std::size_t which);
void fold_node(const node& n, const std::vector<const host_array*>& x, host_array& result, std::size_t which);
void scatter_node(const node& n, const host_array& indices, const host_array& updates, host_array& result);
void scatter_set_node(const node& n, const host_array& x, const host_array& indices, const host_array& updates,
                      host_array& result);

/// Evaluates the operators that are listed and not enumerated.
inline void listed(const node& n, const std::vector<const host_array*>& x, host_array& result) {
  namespace ir = gspmd::detail;
  const auto is = [&](auto... code) { return ((n.op == code) || ...); };
  if (is(ir::code_of<ir::einsum_op>)) {
    einsum(n, x, result);
  } else if (is(ir::code_of<ir::reduce_op>)) {
    reduce(n, *x[0], result);
  } else if (is(ir::code_of<ir::reduce_window_op>)) {
    reduce_window(n, *x[0], result);
  } else if (is(ir::code_of<ir::select_and_scatter_op>)) {
    select_and_scatter(n, *x[0], *x[1], result);
  } else if (is(ir::code_of<ir::convolution_op>)) {
    convolution(n, *x[0], *x[1], result);
  } else if (is(ir::code_of<ir::local_operator>)) {
    local(n, *x[0], result);
  } else if (is(ir::code_of<ir::broadcast_op>)) {
    gather(*x[0], result, [&](const index& at) {
      index from;
      for (std::size_t d = 0; d < x[0]->shape.size(); ++d)
        from.push_back(x[0]->shape[d] == 1 ? 0 : at[static_cast<std::size_t>(n.attributes[static_cast<int>(d)])]);
      return from;
    });
  } else if (is(ir::code_of<ir::transpose_op>)) {
    gather(*x[0], result, [&](const index& at) {
      index from(at.size());
      for (std::size_t d = 0; d < at.size(); ++d) from[static_cast<std::size_t>(n.attributes[static_cast<int>(d)])] = at[d];
      return from;
    });
  } else if (is(ir::code_of<ir::shift_op>)) {
    std::size_t to = 0;
    const auto way = ir::shift_way::of(n);
    for_each_index(result.shape, [&](const index& at) {
      index from = at;
      const auto size = x[0]->shape[static_cast<std::size_t>(way.dim)];
      auto& along = from[static_cast<std::size_t>(way.dim)];
      along = mirrored(way.beyond, along + n.integer, size);
      const bool inside = along >= 0 && along < size;
      if (result.floating()) result.reals[to] = inside ? x[0]->reals[offset_of(from, x[0]->shape)] : round_to(n.type, n.real);
      else result.ints[to] = inside ? x[0]->ints[offset_of(from, x[0]->shape)] : way.integer;
      ++to;
    });
  } else if (is_mapped(n)) {
    std::size_t to = 0;
    for_each_index(result.shape, [&](const index& at) {
      index from = at;
      bool inside = true;
      for (const auto& d : ir::maps_of(n)) {
        const auto size = x[0]->shape[static_cast<std::size_t>(d.dim)];
        auto& i = from[static_cast<std::size_t>(d.dim)];
        inside = inside && d.from_step != 0 && (i - d.to_first) % d.to_step == 0;
        if (!inside) break;
        i = d.from_first + d.from_step * ((i - d.to_first) / d.to_step);
        if (size > 0) i = mirrored(d.beyond, i, size);
        inside = i >= 0 && i < size;
      }
      if (result.floating()) result.reals[to] = inside ? x[0]->reals[offset_of(from, x[0]->shape)] : round_to(n.type, n.real);
      else result.ints[to] = inside ? x[0]->ints[offset_of(from, x[0]->shape)] : n.integer;
      ++to;
    });
  } else if (is(ir::code_of<ir::concatenate_op>)) {
    const auto dim = static_cast<std::size_t>(n.attributes[0]);
    std::size_t to = 0;
    for_each_index(result.shape, [&](const index& at) {
      index from = at;
      std::size_t k = 0;
      for (; from[dim] >= x[k]->shape[dim]; ++k) from[dim] -= x[k]->shape[dim];
      if (result.floating()) result.reals[to] = x[k]->reals[offset_of(from, x[k]->shape)];
      else result.ints[to] = x[k]->ints[offset_of(from, x[k]->shape)];
      ++to;
    });
  } else if (is(ir::code_of<ir::row_op>, ir::code_of<ir::set_row_op>, ir::code_of<ir::add_row_op>)) {
    rows(n, x, result);
  } else if (is(ir::code_of<ir::gather_op>)) {
    gather_node(n, *x[0], *x[1], result);
  } else if (is(ir::code_of<ir::scan_op>)) {
    scan_node(n, *x[0], result);
  } else if (is(ir::code_of<ir::top_k_op>)) {
    top_k_node(*x[0], result, false);
  } else if (is(ir::code_of<ir::sort_op>)) {
    sort_node(n, x, result, 0);
  } else if (is(ir::code_of<ir::reduce_by_op>, ir::code_of<ir::scan_by_op>)) {
    fold_node(n, x, result, 0);
  } else if (is(ir::code_of<ir::scatter_op>)) {
    scatter_node(n, *x[0], *x[1], result);
  } else if (is(ir::code_of<ir::scatter_set_op>)) {
    scatter_set_node(n, *x[0], *x[1], *x[2], result);
  } else if (is(ir::code_of<ir::reshape_op>, ir::code_of<ir::reshard_op>, ir::code_of<ir::shard_alike_op>,
                ir::code_of<ir::update_op>, ir::code_of<ir::barrier_op>, ir::code_of<ir::ordered_barrier_op>)) {
    same(*x[0], result);
  } else {
    throw std::logic_error(std::string("the reference does not know ") + ir::name_of(n.op));
  }
}

/// Returns the real or imaginary part of an array. For a real array this is the array itself, or zeros.
inline host_array part_of(const host_array& x, bool imaginary) {
  if (!x.floating()) return x;
  host_array part(dtype::f64, x.shape);
  if (!imaginary) part.reals = x.reals;
  else if (x.complex()) part.reals = x.imags;
  return part;
}
/// Evaluates operators on complex operands or results. If the operator moves, chooses or adds, each part of the result
/// is computed from the same parts of the operands. A product has four terms.
inline host_array evaluate_parts(const node& n, const std::vector<const host_array*>& x, host_array result) {
  const auto of = [&](const std::vector<host_array>& operands, bool imaginary) {
    node real = n;
    real.type = dtype::f64;
    if (imaginary) real.real = 0;  // a padding number has no imaginary part
    host_array part(dtype::f64, result.shape);
    std::vector<const host_array*> all;
    for (const auto& o : operands) all.push_back(&o);
    if (gspmd::detail::is_elementwise(n.op)) elementwise(real, all, part);
    else listed(real, all, part);
    return part.reals;
  };
  const auto parts = [&](bool imaginary) {
    std::vector<host_array> all;
    for (const auto* o : x) all.push_back(part_of(*o, imaginary));
    return all;
  };
  const auto re = parts(false), im = parts(true);
  const bool multiplies =
      x.size() == 2 && (n.op == code_of<multiply_op> || n.op == gspmd::detail::code_of<gspmd::detail::einsum_op>);
  if (n.op == code_of<compare_eq_op> || n.op == code_of<compare_ne_op>) {
    for (std::size_t i = 0; i < result.size(); ++i) {
      const bool equal = re[0].reals[i] == re[1].reals[i] && im[0].reals[i] == im[1].reals[i];
      result.ints[i] = equal == (n.op == code_of<compare_eq_op>);
    }
  } else if (n.op == code_of<abs_op>) {
    for (std::size_t i = 0; i < result.size(); ++i) result.reals[i] = std::hypot(re[0].reals[i], im[0].reals[i]);
  } else if (n.op == code_of<real_op>) {
    result.reals = re[0].reals;
  } else if (n.op == code_of<imag_op>) {
    result.reals = im[0].reals;
  } else if (n.op == code_of<conj_op>) {
    result.reals = re[0].reals;
    for (std::size_t i = 0; i < result.size(); ++i) result.imags[i] = -im[0].reals[i];
  } else if (n.op == code_of<complex_op>) {
    result.reals = re[0].reals;
    result.imags = re[1].reals;
  } else if (n.op == code_of<cast_op>) {
    result.reals = re[0].floating() ? re[0].reals : std::vector<double>(re[0].ints.begin(), re[0].ints.end());
    if (x[0]->complex()) result.imags = im[0].reals;
  } else if (multiplies) {
    const auto a = of({re[0], re[1]}, false), b = of({im[0], im[1]}, false), c = of({re[0], im[1]}, false),
               d = of({im[0], re[1]}, false);
    for (std::size_t i = 0; i < result.size(); ++i) {
      result.reals[i] = a[i] - b[i];
      result.imags[i] = c[i] + d[i];
    }
  } else {
    result.reals = of(re, false);
    result.imags = of(im, true);
  }
  for (auto& r : result.reals) r = round_to(n.type, r);
  for (auto& r : result.imags) r = round_to(n.type, r);
  return result;
}

/// Returns the value of node `i` from the values of earlier nodes. `values` must already have the parameters.
inline host_array evaluate_node(const graph& g, int i, const std::vector<host_array>& values) {
  const node& n = g.nodes[static_cast<std::size_t>(i)];
  if (n.op == opcode::parameter) return values[static_cast<std::size_t>(i)];
  host_array result(n.type, std::vector<std::int64_t>(n.shape.begin(), n.shape.end()));
  std::vector<const host_array*> x;
  for (const int o : n.operands) x.push_back(&values[static_cast<std::size_t>(o)]);
  const bool by_parts = result.complex() || (!x.empty() && x[0]->complex());
  if (by_parts && n.op != opcode::constant && n.op != opcode::iota && n.op != opcode::carry) return evaluate_parts(n, x, result);
  switch (n.op.code) {
    case opcode::constant:
      for (auto& r : result.reals) r = round_to(n.type, n.real);
      for (auto& k : result.ints) k = n.type == dtype::pred ? n.integer != 0 : n.integer;
      break;
    case opcode::iota: {
      std::size_t to = 0;
      for_each_index(result.shape, [&](const index& at) {
        const auto along = at[static_cast<std::size_t>(n.attributes[0])];
        if (result.floating()) result.reals[to++] = round_to(n.type, static_cast<double>(along));
        else result.ints[to++] = along;
      });
      break;
    }
    case opcode::carry: same(*x[0], result); break;
    case opcode::result: {
      const node& maker = g.nodes[static_cast<std::size_t>(n.operands[0])];
      if (maker.op == gspmd::detail::code_of<gspmd::detail::top_k_op>) {
        top_k_node(values[static_cast<std::size_t>(maker.operands[0])], result, true);
        break;
      }
      std::vector<const host_array*> all;
      for (const int o : maker.operands) all.push_back(&values[static_cast<std::size_t>(o)]);
      const auto which = static_cast<std::size_t>(i - n.operands[0]);
      if (maker.op == gspmd::detail::code_of<gspmd::detail::sort_op>) {
        sort_node(maker, all, result, which);
        break;
      }
      if (maker.local != nullptr && maker.local->fold != nullptr) {
        fold_node(maker, all, result, which);
        break;
      }
      node as_reduce = g.nodes[static_cast<std::size_t>(n.operands[0])];  // of copy_and_minima
      as_reduce.shape = n.shape;
      as_reduce.attributes.push_back(0);
      reduce(as_reduce, values[static_cast<std::size_t>(as_reduce.operands[0])], result);
      break;
    }
    default:
      if (gspmd::detail::is_elementwise(n.op)) elementwise(n, x, result);
      else listed(n, x, result);
  }
  return result;
}

/// Returns the values of all nodes. `inputs` are in the order of g.inputs.
inline std::vector<host_array> evaluate(const graph& g, const std::vector<host_array>& inputs) {
  std::vector<host_array> values(g.nodes.size());
  for (std::size_t k = 0; k < g.inputs.size(); ++k) values[static_cast<std::size_t>(g.inputs[k])] = inputs[k];
  for (std::size_t i = 0; i < g.nodes.size(); ++i) values[i] = evaluate_node(g, static_cast<int>(i), values);
  return values;
}

}  // namespace reference

#include "support/naive_indexing.hpp"  // defines the functions declared above
