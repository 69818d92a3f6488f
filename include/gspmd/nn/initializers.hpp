// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "gspmd/index/random.hpp"
#include "gspmd/nn/detail/square_root.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/integers.hpp"
#include "gspmd/ops/shape.hpp"

/// Initial values of parameters, with the names and scales of jax.nn.initializers.
///
/// T is float, double, bf16 or f16. Numbers are computed as float or double and rounded once. They are functions of the
/// key and of the global index (index/random.hpp), so they do not depend on the mesh or the sharding.
///
/// The functions glorot_, he_ and lecun_ compute the deviation from the fan in and the fan out. The fan in is the
/// number of inputs of a unit: the product of the extents of the dims `in`. The fan out is the product of the extents
/// of the dims `out`. Both are multiplied by the extents of all dims that fan_dims does not name, such as the window of
/// a convolution. The functions ending in _normal draw from a normal distribution that is cut off at two deviations.
///
/// **Communication.** None.
/// **Errors.** Compile error `dim` if a dim of fan_dims does not exist or occurs twice, `type` if `key` is not a u64
/// scalar.
/// **Example.**
///     auto w = initializers::glorot_uniform<float>(key, {512, 2048});
///     auto q = initializers::lecun_normal<bf16>(key, {512, 8, 64}, {.in = {0}, .out = {1, 2}});   // bd,dhk->bhk
namespace gspmd::initializers {

/// The dims of the inputs and of the outputs of a weight. The defaults fit a matrix [in, out] and a convolution's
/// kernel [..., in, out]. The dims `batch` number independent weights, for example experts, and are in neither fan.
struct fan_dims {
  kept_integers in{-2}, out{-1}, batch{};
};

}  // namespace gspmd::initializers

namespace gspmd::detail {

struct fans {
  double in = 1, out = 1;
};

/// Returns the fans of a weight. Records an error if `dims` do not fit its shape.
///   [3,3,16,32] -> in 144, out 288
constexpr fans fans_of(value key, integers shape, const initializers::fan_dims& dims, const char* op, location at) {
  const int rank = static_cast<int>(shape.size());
  dim_mask used = 0;
  bool is_sound = rank <= max_rank;
  const auto product_of = [&](const kept_integers& list) {
    double product = 1;
    for (std::size_t i = 0; i < list.size() && is_sound; ++i) {
      const int d = i < static_cast<std::size_t>(max_rank) ? counted_dim(list[i], rank) : -1;
      is_sound = d >= 0 && d < rank && (used & dim_bit(d)) == 0;
      if (!is_sound) break;
      used |= dim_bit(d);
      product *= static_cast<double>(shape[static_cast<std::size_t>(d)]);
    }
    return product;
  };
  const double in = product_of(dims.in), out = product_of(dims.out);
  product_of(dims.batch);
  if (!is_sound) {
    key.graph()->fail(at, op, mistake::dim,
                      text("each of the dims in, out and batch must be a different dim of ")
                          << shape_text(extents_of(shape)) << "; write for example {.in = {0}, .out = {1}}");
    return {};
  }
  double others = 1;
  for (int d = 0; d < rank; ++d)
    if ((used & dim_bit(d)) == 0) others *= static_cast<double>(shape[static_cast<std::size_t>(d)]);
  return {in * others, out * others};
}

template <class T>
using drawn_as = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
constexpr value drawn(value x, location at) {
  if constexpr (std::is_same_v<T, drawn_as<T>>) return x;
  else return cast<T>(x, at);
}

/// Returns normal numbers between -2 and 2, times `deviation`.
template <class T>
constexpr value cut_normal(value key, integers shape, double deviation, location at) {
  constexpr double share = 0x1.e8b4307d3627ap-1;  // erf(sqrt(2)), the probability of a number between -2 and 2
  const value u = random::uniform<drawn_as<T>>(key, -share, share, shape, at);
  return drawn<T>(operand(erf_inv(u, at), at) * operand(0x1.6a09e667f3bcdp+0 * deviation, at), at);
}

enum class fan_kind { in, average };

/// Returns random numbers with the variance scale / fan.
template <class T>
constexpr value with_variance(const char* op, bool is_normal, value key, integers shape, double scale, fan_kind kind,
                              const initializers::fan_dims& dims, location at) {
  if (!key.is_valid()) return {};
  if (!has_room_for_dims(*key.graph(), shape.size(), op, at)) return made(-1, key);
  const fans n = fans_of(key, shape, dims, op, at);
  const double fan = kind == fan_kind::in ? n.in : (n.in + n.out) / 2;
  const double deviation = fan > 0 ? square_root_of(scale / fan) : 0;
  if (!(deviation > 0)) return constant<T>(key, shape, 0, at);  // a weight without elements
  constexpr double cut_deviation = 0.87962566103423978;         // of the normal distribution between -2 and 2
  if (is_normal) return cut_normal<T>(key, shape, deviation / cut_deviation, at);
  const double most = 1.7320508075688772 * deviation;  // sqrt(3)
  const value unit = random::uniform<drawn_as<T>>(key, -1, 1, shape, at);
  return drawn<T>(operand(unit, at) * operand(most, at), at);
}

}  // namespace gspmd::detail

namespace gspmd::initializers {

/// Returns zeros. The key is not used, so that a program can exchange one initializer for another.
template <class T>
constexpr value zeros(value key, integers shape, location at = location::current()) {
  return constant<T>(key, shape, 0, at);
}
/// Returns ones. The key is not used.
template <class T>
constexpr value ones(value key, integers shape, location at = location::current()) {
  return constant<T>(key, shape, 1, at);
}

/// Returns normally distributed numbers with mean 0.
template <class T>
constexpr value normal(value key, integers shape, double deviation = 0.01, location at = location::current()) {
  const value x = random::normal<detail::drawn_as<T>>(key, shape, at);
  return detail::drawn<T>(operand(x, at) * operand(deviation, at), at);
}
/// Returns numbers of a normal distribution with mean 0 that is cut off at two deviations. `deviation` is that of the
/// distribution before the cut.
template <class T>
constexpr value truncated_normal(value key, integers shape, double deviation = 0.01, location at = location::current()) {
  return detail::cut_normal<T>(key, shape, deviation, at);
}
/// Returns uniformly distributed numbers x with 0 <= x < scale.
template <class T>
constexpr value uniform(value key, integers shape, double scale = 0.01, location at = location::current()) {
  return random::uniform<T>(key, 0, scale, shape, at);
}

/// Returns uniformly distributed numbers with the variance 2 / (fan in + fan out), for layers with tanh, logistic or no
/// activation function.
/// **Source.** Glorot and Bengio, 2010 (also known as Xavier).
template <class T>
constexpr value glorot_uniform(value key, integers shape, fan_dims dims = {}, location at = location::current()) {
  return detail::with_variance<T>("glorot_uniform", false, key, shape, 1, detail::fan_kind::average, dims, at);
}
/// Returns numbers of a cut-off normal distribution with the variance of glorot_uniform.
template <class T>
constexpr value glorot_normal(value key, integers shape, fan_dims dims = {}, location at = location::current()) {
  return detail::with_variance<T>("glorot_normal", true, key, shape, 1, detail::fan_kind::average, dims, at);
}
/// Returns uniformly distributed numbers with the variance 2 / fan in, for layers with relu.
/// **Source.** He et al., 2015 (also known as Kaiming).
template <class T>
constexpr value he_uniform(value key, integers shape, fan_dims dims = {}, location at = location::current()) {
  return detail::with_variance<T>("he_uniform", false, key, shape, 2, detail::fan_kind::in, dims, at);
}
/// Returns numbers of a cut-off normal distribution with the variance of he_uniform.
template <class T>
constexpr value he_normal(value key, integers shape, fan_dims dims = {}, location at = location::current()) {
  return detail::with_variance<T>("he_normal", true, key, shape, 2, detail::fan_kind::in, dims, at);
}
/// Returns uniformly distributed numbers with the variance 1 / fan in, for layers that keep the variance of their
/// input.
/// **Source.** LeCun et al., Efficient BackProp, 1998.
template <class T>
constexpr value lecun_uniform(value key, integers shape, fan_dims dims = {}, location at = location::current()) {
  return detail::with_variance<T>("lecun_uniform", false, key, shape, 1, detail::fan_kind::in, dims, at);
}
/// Returns numbers of a cut-off normal distribution with the variance of lecun_uniform.
template <class T>
constexpr value lecun_normal(value key, integers shape, fan_dims dims = {}, location at = location::current()) {
  return detail::with_variance<T>("lecun_normal", true, key, shape, 1, detail::fan_kind::in, dims, at);
}

}  // namespace gspmd::initializers
