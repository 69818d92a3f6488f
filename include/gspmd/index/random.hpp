// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include "gspmd/index/detail/random_range.hpp"
#include "gspmd/index/sort.hpp"
#include "gspmd/ops/dims.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/shape.hpp"

/// Random numbers from a key, by a counter-based generator: element i is a function of the key and of the global index
/// i. The numbers are equal on every mesh and with every sharding, and need no communication.
///
/// A key is a u64 scalar of the program: a constant, an input, or the result of fold_in. If a key is used twice, it
/// gives the same numbers twice. The generator is Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw,
/// Parallel Random Numbers: As Easy as 1, 2, 3, 2011). The functions bits, uniform without a range, bernoulli and
/// randint have the bits of JAX for the same key (jax_threefry_partitionable).
///
///     value noisy(value x, value key) {
///       const value mask = random::bernoulli(random::fold_in(key, 0), 0.9, x.shape());
///       return where(mask, x + 0.1 * random::normal<float>(random::fold_in(key, 1), x.shape()), 0.0);
///     }
namespace gspmd::random {
namespace drawing {

using detail::code_of;
using detail::extents;
using detail::threefry2x32_op;

/// Returns true if a value is a key. Otherwise records an error.
constexpr bool is_key(value key, std::string_view op, detail::location at) {
  if (key.type() == dtype::u64 && key.rank() == 0) return true;
  key.graph()->fail(at, op, detail::mistake::type,
                    detail::text("the key is ")
                        << detail::name_of(key.type()) << detail::shape_text(key.shape())
                        << "; a key is a u64 scalar: random::key(x, 42), an input, or what fold_in makes");
  return false;
}
/// Returns the row-major index of each element.
constexpr value indices(value like, integers given, detail::location at) {
  const auto copy = detail::extents_of(given);  // it may be the shape of a node, which moves when nodes are added
  const integers shape(copy.begin(), copy.end());
  value index;
  std::int64_t stride = 1;
  for (auto d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
    const value along = iota<std::uint64_t>(like, shape, d, at);
    const value part = stride == 1 ? along : operand(along, at) * operand(stride, at);
    index = index.is_valid() ? operand(index, at) + operand(part, at) : part;
    stride *= shape[static_cast<std::size_t>(d)];
  }
  return shape.empty() ? constant<std::uint64_t>(like, shape, 0, at) : index;
}
/// Returns two random words of 32 bits for each element. The first word is the upper half.
constexpr value words(value key, integers shape, std::string_view op, detail::location at) {
  if (!key.is_valid()) return {};
  if (!detail::has_room_for_dims(*key.graph(), shape.size(), op, at)) return detail::made(-1, key);
  if (!is_key(key, op, at)) return constant<std::uint64_t>(key, shape, 0, at);
  return detail::elementwise(code_of<threefry2x32_op>, {operand(indices(key, shape, at), at), operand(key, at)}, at);
}
constexpr value both(value words, detail::location at) {
  return bitwise_xor(operand(cast<std::uint32_t>(right_shift(operand(words, at), 32), at), at),
                     operand(cast<std::uint32_t>(words, at), at));
}

}  // namespace drawing

/// Returns a key as a constant of the program of `like`. No communication.
constexpr value key(value like, std::uint64_t seed, detail::location at = detail::location::current()) {
  return constant<std::uint64_t>(like, {}, seed, at);
}

/// Returns a key computed from a key and a number, for example the number of a layer or of an iteration. Keys of
/// different numbers are unrelated. `number` is an integer, or a scalar of an integer type.
///
/// **Errors.** `key` is not a u64 scalar.
template <class Number>
constexpr value fold_in(value key, Number number, detail::location at = detail::location::current()) {
  if (!key.is_valid()) return {};
  if (!drawing::is_key(key, "random::fold_in", at)) return key;
  value counter;
  if constexpr (std::integral<Number>) counter = constant<std::uint64_t>(key, {}, static_cast<std::uint64_t>(number), at);
  else counter = number.type() == dtype::u64 ? value(number) : cast<std::uint64_t>(number, at);
  return detail::elementwise(detail::code_of<detail::threefry2x32_op>, {operand(counter, at), operand(key, at)}, at);
}

/// Returns `Count` keys that are unrelated to `key` and to each other. Key k is fold_in(key, k).
///
/// **Example.**
///     const auto [for_weights, for_mask] = random::split<2>(key);
template <std::size_t Count>
constexpr std::array<value, Count> split(value key, detail::location at = detail::location::current()) {
  std::array<value, Count> keys;
  for (std::size_t k = 0; k < Count; ++k) keys[k] = fold_in(key, k, at);
  return keys;
}

/// Returns integers of type T (default: u32). All numbers of the type are equally likely. No communication.
///
/// **Example.**
///     random::bits(key, {8})                  random::bits<std::uint64_t>(key, {8})
template <class T = std::uint32_t>
constexpr value bits(value key, integers shape, detail::location at = detail::location::current()) {
  static_assert(detail::is_integer_element<T>, "gspmd: random::bits: an integer type");
  const value words = drawing::words(key, shape, "random::bits", at);
  if constexpr (std::is_same_v<T, std::uint64_t>) return words;
  else if constexpr (sizeof(T) == 8) return cast<T>(words, at);
  else if constexpr (std::is_same_v<T, std::uint32_t>) return drawing::both(words, at);
  else return cast<T>(drawing::both(words, at), at);
}

/// Returns numbers x of type T (float, double, bf16 or f16) with 0 <= x < 1: all multiples of the type's epsilon,
/// equally likely. No communication.
///
/// **Example.**
///     auto x = random::uniform<float>(key, {1024, 8});
template <class T>
constexpr value uniform(value key, integers shape, detail::location at = detail::location::current()) {
  static_assert(detail::is_float_element<T>, "gspmd: random::uniform: float, double, bf16 or f16");
  constexpr int fraction = std::numeric_limits<T>::digits - 1, width = 8 * static_cast<int>(sizeof(T));
  value drawn = drawing::words(key, shape, "random::uniform", at);
  if (width < 64) drawn = drawing::both(drawn, at);
  // 16-bit floats use the lower half of the word.
  if (width == 16) drawn = bitwise_and(operand(drawn, at), 0xffff);
  double unit = 1;
  for (int k = 0; k < fraction; ++k) unit /= 2;
  return operand(cast<T>(right_shift(operand(drawn, at), width - fraction), at), at) * operand(unit, at);
}

/// Returns numbers x of type T (float, double, bf16 or f16) with low <= x < high. No communication.
///
/// The results of bf16 and f16 are `low` plus multiples of one step, all equally likely. The step is the spacing of
/// the type at the bound that is farther from 0.
///
/// **Errors.** `low` or `high` is not finite; no number of type T is in the range; `high - low` overflows T (float for
/// bf16 and f16).
/// **Example.** random::uniform<bf16>(key, -1, 1, {1024, 8})
template <class T>
constexpr value uniform(value key, double low, double high, integers given, detail::location at = detail::location::current()) {
  static_assert(detail::is_float_element<T>, "gspmd: random::uniform: float, double, bf16 or f16");
  using wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  if (!key.is_valid()) return {};
  if (!detail::has_room_for_dims(*key.graph(), given.size(), "random::uniform", at)) return detail::made(-1, key);
  const auto copy = detail::extents_of(given);
  const integers shape(copy.begin(), copy.end());
  if (low == 0 && high == 1) return uniform<T>(key, shape, at);
  const auto range = detail::float_range<T>::of(low, high);
  if (!range.problem.empty()) {
    const int id = key.graph()->fail(at, "random::uniform", detail::mistake::other, range.problem);
    return detail::made(*key.graph(), id, detail::dtype_of<T>(), copy);
  }
  const value unit = uniform<wide>(key, shape, at);
  const auto first = static_cast<wide>(range.first), last = static_cast<wide>(range.last);
  if constexpr (std::is_same_v<T, wide>) {
    const value x = operand(operand(unit, at) * operand(static_cast<wide>(high - range.first), at), at) + operand(first, at);
    return min(operand(x, at), operand(last, at));  // a sum may round to `high`
  } else {
    const value cell = floor(operand(unit, at) * operand(static_cast<wide>(range.cells()), at), at);
    return cast<T>(operand(operand(cell, at) * operand(static_cast<wide>(range.step()), at), at) + operand(first, at), at);
  }
}

/// Returns normally distributed numbers of type T with mean 0 and deviation 1. No communication.
template <class T>
constexpr value normal(value key, integers shape, detail::location at = detail::location::current()) {
  static_assert(detail::is_float_element<T>, "gspmd: random::normal: float, double, bf16 or f16");
  // Narrow floats are computed from floats: a bf16 between -1 and 1 has too few values.
  using wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const wide least = wide(-1) + std::numeric_limits<wide>::epsilon() / 2;
  const value u = operand(uniform<wide>(key, shape, at), at) * operand(wide(1) - least, at) + operand(least, at);
  const value x = operand(erf_inv(max(operand(u, at), operand(least, at)), at), at) * operand(0x1.6a09e667f3bcdp+0, at);
  if constexpr (std::is_same_v<T, wide>) return x;
  else return cast<T>(x, at);
}

/// Returns true with probability p, a number or a tensor of float. Probabilities are rounded up to multiples of 2^-23.
/// No communication.
///
/// **Errors.** The number p is NaN or outside [0, 1]. The elements of a tensor p are not checked: NaN and elements
/// below 0 give false, elements above 1 give true.
constexpr value bernoulli(value key, operand p, integers shape, detail::location at = detail::location::current()) {
  if (p.is_number() && !(p.number().real >= 0 && p.number().real <= 1) && key.is_valid()) {
    key.graph()->fail(at, "random::bernoulli", detail::mistake::other,
                      detail::text("the probability is") << detail::number_text(p.number()) << "; it is from 0 to 1");
    p = operand(1.0, p.at);
  }
  return operand(uniform<float>(key, shape, at), at) < p;
}

/// Returns integers x of type T with low <= x < high. `high` may be one more than the largest T (0x1p64 for u64). No
/// communication.
///
/// Each integer of a range of n has a probability of at most 1/n + 2^-32, as in JAX. If T has 64 bits, it is at most
/// 1/n + 2^-64.
/// **Errors.** `low` or `high - 1` is not a number of type T; high <= low.
/// **Example.** random::randint<std::int32_t>(key, 1, 7, {100})
template <class T>
constexpr value randint(value key, detail::written_number low, detail::written_number high, integers given,
                        detail::location at = detail::location::current()) {
  static_assert(detail::is_integer_element<T>, "gspmd: random::randint: an integer type");
  if (!key.is_valid()) return {};
  if (!detail::has_room_for_dims(*key.graph(), given.size(), "random::randint", at)) return detail::made(-1, key);
  const auto copy = detail::extents_of(given);
  const integers shape(copy.begin(), copy.end());
  const auto range = detail::integer_range<T>::of(low, high);
  if (!range.problem.empty()) {
    const int id = key.graph()->fail(at, "random::randint", detail::mistake::other, range.problem);
    return detail::made(*key.graph(), id, detail::dtype_of<T>(), copy);
  }
  if constexpr (sizeof(T) < 4) {
    using wide = std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>;
    return cast<T>(randint<wide>(key, low, high, shape, at), at);
  } else {
    using natural = std::make_unsigned_t<T>;
    const auto span = static_cast<natural>(static_cast<natural>(range.last) - static_cast<natural>(range.first) + 1);
    if (span == 0) return bits<T>(key, shape, at);  // all numbers of the type
    constexpr int half = 4 * static_cast<int>(sizeof(T));
    natural factor = static_cast<natural>((natural{1} << half) % span);
    factor = static_cast<natural>(factor * factor % span);  // 2 to the power of all bits
    const auto drawn = [&](int k) { return bits<natural>(fold_in(key, k, at), shape, at); };
    const value high_part = (operand(drawn(0), at) % operand(span, at)) * operand(factor, at);
    const value offset = operand(high_part + (operand(drawn(1), at) % operand(span, at)), at) % operand(span, at);
    if constexpr (std::is_signed_v<T>) return operand(cast<T>(offset, at), at) + operand(range.first, at);
    else return operand(offset, at) + operand(range.first, at);
  }
}

/// Returns the numbers 0 to n - 1 in random order: [n] of s32, or of s64 if n is 2^31 - 1 or more. All orders are
/// equally likely. The result is the argsort of 64 random bits for each number.
///
/// **Communication.** If the result is split, that of argsort (sort.hpp) with elements of 12 or 16 bytes.
/// **Errors.** n < 0; `key` is not a u64 scalar.
/// **Example.**
///     take(samples, random::permutation(key, 60'000), 0)
constexpr value permutation(value key, std::int64_t n, detail::location at = detail::location::current()) {
  const std::int64_t shape[] = {n};
  return argsort(drawing::words(key, shape, "random::permutation", at), 0, {}, at);
}

/// Returns `x` in random order along `dim`, with the same order for all lines. The result equals take(x,
/// permutation(key, n), dim). shuffle uses sort_together, so a split dim is not gathered.
///
/// **Errors.** Those of sort and permutation.
/// **Example.**
///     const value shuffled = random::shuffle(key, samples, 0);
constexpr value shuffle(value key, value x, int dim, detail::location at = detail::location::current()) {
  if (!key.is_valid() || !x.is_valid()) return {};
  const int d = detail::sorted_dim(x, dim, 0, {&x, 1}, "random::shuffle", at);
  if (d < 0) return x;
  const detail::extents shape(x.shape());
  const std::int64_t line[] = {shape[d]}, dims[] = {d};
  const value words = drawing::words(key, line, "random::shuffle", at);
  return sort_together({broadcast_in_dim(words, {shape.begin(), static_cast<std::size_t>(shape.count)}, dims, at), x}, 1,
                       along(d), {}, at)[1];
}

}  // namespace gspmd::random
