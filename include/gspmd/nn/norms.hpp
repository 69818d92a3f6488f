// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/nn/detail/floats.hpp"
#include "gspmd/nn/detail/quantity.hpp"
#include "gspmd/ops/composite.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/reduce.hpp"

/// Normalisation over the last dims: layer_norm and rms_norm.
///
/// bf16 and f16 are computed as float and rounded once (ops/composite.hpp). `gain` and `bias` have the shape of the
/// normalised dims. Each of the three tensors may be bf16, f16 or float, and the result has the type of `x`.
///
/// **Communication.** None if the normalised dims are not split. Otherwise each mean is one all_reduce with one number
/// for each line: two in layer_norm, one in rms_norm. For bf16 and f16 these numbers are floats.
/// **Errors.** Compile error `type` if the elements of a tensor are not real floats, or `gain` is computed in another
/// type than `x`; `rank` if `x` does not have the normalised dims; `extent` if the shape of `gain` or `bias` differs.
namespace gspmd {

/// Options of the norms: the normalised dims and epsilon.
struct norm_options {
  int dims = 0;           ///< the number of last dims to normalise; 0: the dims of `gain`, or 1 without gain
  double epsilon = 1e-5;  ///< is added to the mean of the squares
};

namespace detail {

class normalisation {
 public:
  constexpr normalisation(const char* name, value x, norm_options options, location at)
      : name_(name), x_(x), dims_(options.dims), epsilon_(options.epsilon), at_(at) {}

  /// Returns true if `x` can be normalised with `gain` and `bias`, which may be missing. Otherwise records an error.
  constexpr bool accepts(value gain, value bias) {
    if (!has_floats(x_, name_, at_)) return false;
    if (dims_ == 0) dims_ = gain.is_valid() ? gain.rank() : 1;
    if (dims_ < 1 || dims_ > x_.rank())
      return refuse(mistake::rank, text("normalises the last ") << dims_ << " dims of " << shape_text(x_.shape())
                                                                << ", which has " << x_.rank() << " dims");
    extents last;
    for (int d = x_.rank() - dims_; d < x_.rank(); ++d) last.push_back(x_.shape()[d]);
    for (const value v : {gain, bias}) {
      if (!v.is_valid()) continue;
      if (!(extents(v.shape()) == last))
        return refuse(mistake::extent, text(v.id() == bias.id() ? "the bias is " : "the gain is ")
                                           << shape_text(v.shape()) << " and the last dims of " << shape_text(x_.shape())
                                           << " are " << shape_text(last) << "; both must be equal");
      if (composite_type(v.type()) != composite_type(x_.type()))
        return refuse(mistake::type, text(v.id() == bias.id() ? "the bias is " : "the gain is ")
                                         << name_of(v.type()) << " and the operand is " << name_of(x_.type())
                                         << "; convert one operand");
    }
    return true;
  }
  /// Returns t - mean(t).
  [[nodiscard]] constexpr quantity centred(const quantity& t) const { return t - kept(mean_of(t)); }
  /// Returns t / sqrt(mean(t^2) + epsilon).
  [[nodiscard]] constexpr quantity scaled(const quantity& t) const { return t * kept(rsqrt(mean_of(t * t) + epsilon_)); }

 private:
  [[nodiscard]] constexpr quantity mean_of(const quantity& t) const {
    extents dims;
    for (int d = x_.rank() - dims_; d < x_.rank(); ++d) dims.push_back(d);
    return {mean(t.tensor(), integers(dims), at_), at_};
  }
  /// Restores the normalised dims of a mean, with extent 1.
  [[nodiscard]] constexpr quantity kept(const quantity& t) const {
    const dim_mask dims = (dim_bit(x_.rank()) - 1) & ~(dim_bit(x_.rank() - dims_) - 1);
    return {keep_dims(t.tensor(), x_, dims, at_), at_};
  }
  constexpr bool refuse(mistake rule, const text& what) const { return x_.graph()->fail(at_, name_, rule, what) >= 0; }

  const char* name_;
  value x_;
  int dims_;
  double epsilon_;
  location at_;
};

/// Returns the normalised `x`, times `gain` plus `bias`, which may be missing.
constexpr value normalised(const char* name, bool is_centred, value x, value gain, value bias, norm_options options,
                           location at) {
  const one_call call(x.graph(), name, {x.id(), gain.id(), bias.id()});
  normalisation by(name, x, options, at);
  if (!by.accepts(gain, bias)) return made(-1, x);
  const quantity wide = quantity(x, at).wide();
  quantity y = by.scaled(is_centred ? by.centred(wide) : wide);
  if (gain.is_valid()) y = y * quantity(gain, at).wide();
  if (bias.is_valid()) y = y + quantity(bias, at).wide();
  return y.as(x.type()).tensor();
}

}  // namespace detail

/// Returns (x - mean) / sqrt(variance + epsilon) over the last dim, times `gain` plus `bias` if they are passed.
/// Several last dims are normalised together if options.dims or the rank of `gain` is their number. The variance is the
/// mean of the squared differences.
///
/// **Shapes.** x [..., d], gain [d], bias [d] -> [..., d].
/// **Example.**
///     auto y = layer_norm(x, gain, bias);
///     auto z = layer_norm(x, {.dims = 2, .epsilon = 1e-6});
/// **Source.** Ba, Kiros and Hinton, Layer Normalization, 2016.
constexpr value layer_norm(value x, norm_options options = {}, location at = location::current()) {
  if (!x.is_valid()) return {};
  return detail::normalised("layer_norm", true, x, {}, {}, options, at);
}
constexpr value layer_norm(value x, value gain, norm_options options = {}, location at = location::current()) {
  if (!x.is_valid() || !gain.is_valid()) return {};
  return detail::normalised("layer_norm", true, x, gain, {}, options, at);
}
constexpr value layer_norm(value x, value gain, value bias, norm_options options = {}, location at = location::current()) {
  if (!x.is_valid() || !gain.is_valid() || !bias.is_valid()) return {};
  return detail::normalised("layer_norm", true, x, gain, bias, options, at);
}

/// Returns x / sqrt(mean(x^2) + epsilon) over the last dim, times `gain` if it is passed. Several last dims are
/// normalised together if options.dims or the rank of `gain` is their number.
///
/// **Shapes.** x [..., d], gain [d] -> [..., d].
/// **Example.**
///     auto y = rms_norm(x, gain, {.epsilon = 1e-6});
/// **Source.** Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.
constexpr value rms_norm(value x, norm_options options = {}, location at = location::current()) {
  if (!x.is_valid()) return {};
  return detail::normalised("rms_norm", false, x, {}, {}, options, at);
}
constexpr value rms_norm(value x, value gain, norm_options options = {}, location at = location::current()) {
  if (!x.is_valid() || !gain.is_valid()) return {};
  return detail::normalised("rms_norm", false, x, gain, {}, options, at);
}

}  // namespace gspmd
