// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include "gspmd/index/sort.hpp"
#include "gspmd/ops/dims.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/shape.hpp"

/// Random numbers from a key, by a counter-based generator over the global index: element i is a function of key and i. So the numbers are
/// the same on every mesh and under every sharding, on devices and in programs of one device, and no device sends anything for them.
///
/// A key is a scalar of u64, a value of the program like others: a constant, an input, or made of another key. One that is used twice
/// gives the same numbers twice. The generator is Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw, Parallel Random Numbers: As
/// Easy as 1, 2, 3, 2011), and bits, uniform, bernoulli and randint are made of it as JAX makes them (jax_threefry_partitionable): the
/// same key, as one number, gives the same bits.
///
///     value noisy(value x, value key) {
///       const value mask = random::bernoulli(random::fold_in(key, 0), 0.9, x.shape());
///       return select(mask, x + 0.1 * random::normal<float>(random::fold_in(key, 1), x.shape()), 0.0);
///     }
namespace gspmd::random {
namespace drawing {

using detail::extents;
using detail::opcode;

/// Whether a value is a key; records the mistake if not.
constexpr bool is_key(value key, std::string_view op, detail::location at) {
  if (key.type() == dtype::u64 && key.rank() == 0) return true;
  key.graph()->fail(at, op, detail::mistake::type,
                    detail::text("the key is ")
                        << detail::name_of(key.type()) << detail::shape_text(key.shape())
                        << "; a key is a u64 scalar: random::key(x, 42), an input, or what fold_in makes");
  return false;
}
/// The number of each element, row-major.
constexpr value indices(value like, integers given, detail::location at) {
  const auto copy = detail::extents_of(given);  // it may be the shape of a node, which moves when others are added
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
/// Both words of each element, the upper one first.
constexpr value words(value key, integers shape, std::string_view op, detail::location at) {
  if (!key.is_valid()) return {};
  if (!detail::has_room_for_dims(*key.graph(), shape.size(), op, at)) return detail::made(-1, key);
  if (!is_key(key, op, at)) return constant<std::uint64_t>(key, shape, 0, at);
  return detail::elementwise(opcode::threefry2x32, {operand(indices(key, shape, at), at), operand(key, at)}, at);
}
constexpr value both(value words, detail::location at) {
  return bitwise_xor(operand(convert<std::uint32_t>(shift_right(operand(words, at), 32), at), at),
                     operand(convert<std::uint32_t>(words, at), at));
}

}  // namespace drawing

/// A key as a constant of the program that `like` belongs to. No communication.
constexpr value key(value like, std::uint64_t seed, detail::location at = detail::location::current()) {
  return constant<std::uint64_t>(like, {}, seed, at);
}

/// A key made of a key and a number: a step of a loop, a layer. Keys made of different numbers are unrelated. `number` is an integer, or
/// a scalar of u64 or another integer type. Errors: `key` is no u64 scalar.
template <class Number>
constexpr value fold_in(value key, Number number, detail::location at = detail::location::current()) {
  if (!key.is_valid()) return {};
  if (!drawing::is_key(key, "random::fold_in", at)) return key;
  value counter;
  if constexpr (std::integral<Number>) counter = constant<std::uint64_t>(key, {}, static_cast<std::uint64_t>(number), at);
  else counter = number.type() == dtype::u64 ? value(number) : convert<std::uint64_t>(number, at);
  return detail::elementwise(detail::opcode::threefry2x32, {operand(counter, at), operand(key, at)}, at);
}

/// Returns `Count` keys made of one, which are unrelated to it and to each other; that of number k is fold_in(key, k).
///
///     const auto [for_weights, for_mask] = random::split<2>(key);
template <std::size_t Count>
constexpr std::array<value, Count> split(value key, detail::location at = detail::location::current()) {
  std::array<value, Count> keys;
  for (std::size_t k = 0; k < Count; ++k) keys[k] = fold_in(key, k, at);
  return keys;
}

/// Random bits: a tensor of u32 of this global shape. No communication.
constexpr value bits(value key, integers shape, detail::location at = detail::location::current()) {
  return drawing::both(drawing::words(key, shape, "random::bits", at), at);
}

/// Numbers of type T, float, double, bf16 or f16, from 0 to 1, 1 excluded, each multiple of the type's epsilon alike. No communication.
///
///     auto x = random::uniform<float>(key, {1024, 8});
template <class T>
constexpr value uniform(value key, integers shape, detail::location at = detail::location::current()) {
  static_assert(detail::is_float_element<T>, "gspmd: random::uniform: float, double, bf16 or f16");
  constexpr int fraction = std::numeric_limits<T>::digits - 1, width = 8 * static_cast<int>(sizeof(T));
  value drawn = drawing::words(key, shape, "random::uniform", at);
  if (width < 64) drawn = drawing::both(drawn, at);
  // Of 16 bits: those of the lower half.
  if (width == 16) drawn = logical_and(operand(drawn, at), 0xffff);
  double unit = 1;
  for (int k = 0; k < fraction; ++k) unit /= 2;
  return operand(convert<T>(shift_right(operand(drawn, at), width - fraction), at), at) * operand(unit, at);
}

/// Normally distributed numbers of type T with mean 0 and deviation 1. No communication.
template <class T>
constexpr value normal(value key, integers shape, detail::location at = detail::location::current()) {
  static_assert(detail::is_float_element<T>, "gspmd: random::normal: float, double, bf16 or f16");
  // Narrow floats are made of floats: a bf16 between -1 and 1 has too few values.
  using wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const wide least = wide(-1) + std::numeric_limits<wide>::epsilon() / 2;
  const value u = operand(uniform<wide>(key, shape, at), at) * operand(wide(1) - least, at) + operand(least, at);
  const value x = operand(erf_inv(maximum(operand(u, at), operand(least, at)), at), at) * operand(0x1.6a09e667f3bcdp+0, at);
  if constexpr (std::is_same_v<T, wide>) return x;
  else return convert<T>(x, at);
}

/// True with probability p, a number or a tensor of float. No communication.
constexpr value bernoulli(value key, operand p, integers shape, detail::location at = detail::location::current()) {
  return operand(uniform<float>(key, shape, at), at) < p;
}

/// Integers of type T, int32, int64, uint32 or uint64, from `low` to `high`, `high` excluded. One of a range of n is at most 2^-32 too
/// likely, of 64 bits 2^-64 (twice the bits are drawn). No communication. Errors: high <= low.
template <class T>
constexpr value randint(value key, T low, T high, integers given, detail::location at = detail::location::current()) {
  static_assert(detail::is_integer_element<T> && sizeof(T) >= 4,
                "gspmd: random::randint: int32_t, int64_t, uint32_t or uint64_t");
  using natural = std::make_unsigned_t<T>;
  if (!key.is_valid()) return {};
  if (!detail::has_room_for_dims(*key.graph(), given.size(), "random::randint", at)) return detail::made(-1, key);
  const auto copy = detail::extents_of(given);
  const integers shape(copy.begin(), copy.end());
  if (!(low < high)) {
    const int id = key.graph()->fail(at, "random::randint", detail::mistake::number,
                                     detail::text("there is no integer from ")
                                         << static_cast<std::int64_t>(low) << " to " << static_cast<std::int64_t>(high)
                                         << ", which is excluded; low is less than high");
    return detail::made(*key.graph(), id, detail::dtype_of<T>(), detail::extents_of(shape));
  }
  const natural span = static_cast<natural>(high) - static_cast<natural>(low);
  constexpr int half = 4 * static_cast<int>(sizeof(T));
  natural factor = static_cast<natural>((natural{1} << half) % span);
  factor = static_cast<natural>(factor * factor % span);  // 2 to the power of all bits
  const auto drawn = [&](int k) {
    const value own = fold_in(key, k, at);
    if constexpr (sizeof(T) == 8) return drawing::words(own, shape, "random::randint", at);
    else return bits(own, shape, at);
  };
  const value high_part = (operand(drawn(0), at) % operand(span, at)) * operand(factor, at);
  const value offset = operand(high_part + (operand(drawn(1), at) % operand(span, at)), at) % operand(span, at);
  if constexpr (std::is_signed_v<T>) return operand(convert<T>(offset, at), at) + operand(low, at);
  else return operand(offset, at) + operand(low, at);
}

/// The numbers from 0 to before n in random order, each order alike: [n] of s32, s64 for n of 2^31 - 1 and more. They are the indices at
/// which 64 random bits for each of them, all different, stand in order: what sort.hpp says of argsort is sent, of 12 or 16 bytes an
/// element, if the result is split. Errors: n < 0, `key` is no u64 scalar.
///
///     take(samples, random::permutation(key, 60'000), 0)
constexpr value permutation(value key, std::int64_t n, detail::location at = detail::location::current()) {
  const std::int64_t shape[] = {n};
  return argsort(drawing::words(key, shape, "random::permutation", at), 0, {}, at);
}

/// `x` in random order along `dim`, one order for all its lines: take(x, permutation(key, n), dim), without a gather of a split dim: the
/// elements go where they belong as those of sort_together do. Errors: those of sort and of permutation.
///
///     const value shuffled = random::shuffle(key, samples, 0);
constexpr value shuffle(value key, value x, int dim, detail::location at = detail::location::current()) {
  if (!key.is_valid() || !x.is_valid()) return {};
  const int d = detail::sorted_dim(x, dim, 0, {&x, 1}, "random::shuffle", at);
  if (d < 0) return x;
  const detail::extents shape(x.shape());
  const std::int64_t line[] = {shape[d]}, along[] = {d};
  const value words = drawing::words(key, line, "random::shuffle", at);
  return sort_together({broadcast_in_dim(words, {shape.begin(), static_cast<std::size_t>(shape.count)}, along, at), x}, 1, d, {},
                       at)[1];
}

}  // namespace gspmd::random
