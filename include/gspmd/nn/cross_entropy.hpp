// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "gspmd/detail/ops/as_index.hpp"
#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/nn/detail/floats.hpp"
#include "gspmd/ops/composite.hpp"
#include "gspmd/ops/dims.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/reduce.hpp"

/// The loss of classifiers and language models.
namespace gspmd {

/// Options of cross_entropy.
struct cross_entropy_options {
  int dim = -1;                ///< the dim of the classes in the logits
  std::int64_t ignore = -100;  ///< a label with this number has the loss 0, for example for padding
};

namespace detail {

/// Returns the labels as s32 or s64, or an invalid value and an error if they do not fit the logits.
constexpr value class_labels(value logits, value labels, int dim, location at) {
  auto& g = *logits.graph();
  const auto refuse = [&](mistake rule, const text& what) {
    g.fail(at, "cross_entropy", rule, what);
    return value{};
  };
  if (dim < 0 || dim >= logits.rank())
    return refuse(mistake::dim,
                  text("dim ") << dim << " is not a dim of the logits " << shape_text(logits.shape()) << "; dims count from 0");
  extents expected;
  for (int d = 0; d < logits.rank(); ++d)
    if (d != dim) expected.push_back(logits.shape()[d]);
  if (!may_be_index(labels.type()))
    return refuse(mistake::type, text("the labels are ")
                                     << name_of(labels.type()) << "; they must be integers, the numbers of the classes");
  if (!(extents(labels.shape()) == expected))
    return refuse(mistake::extent, text("the labels are ")
                                       << shape_text(labels.shape()) << "; for logits " << shape_text(logits.shape())
                                       << " with classes along dim " << dim << " they must be " << shape_text(expected));
  return {&g, as_index(g, labels.id(), at)};
}

}  // namespace detail

/// Returns -log(softmax(logits)) of the class in `labels`, for each line of logits. Integers number the classes from 0.
/// Write mean(cross_entropy(...)) for the loss of a batch.
///
/// The loss and the gradient of a label options.ignore are 0. The loss of another label outside of the classes is NaN.
/// bf16 and f16 are computed as float and rounded once (ops/composite.hpp).
///
/// **Shapes.** logits [..., classes], labels [...] -> [...]. With options.dim, the classes are another dim.
/// **Communication.** None if the dim of the classes is not split. If it is split (a vocabulary over the devices), the
/// logits stay split: three all_reduces, each with one number for each line. They are the maximum, the sum of the
/// exponentials and the logit of the label. The gradient by the logits sends nothing.
/// **Errors.** Compile error `type` if the logits are not real floats or the labels are not integers, `extent` if the
/// shape of the labels is not that of the logits without the classes, `dim` if options.dim does not exist.
/// **Example.**
///     const auto losses = cross_entropy(logits, next_tokens);
///     const auto loss = sum(losses) / sum(cast<float>(not_equal(next_tokens, -100)));
/// **Source.** Shoeybi et al., Megatron-LM, 2019, section 3 (over a split vocabulary).
constexpr value cross_entropy(value logits, value labels, cross_entropy_options options = {}, location at = location::current()) {
  if (!logits.is_valid() || !labels.is_valid()) return {};
  const detail::one_call call(logits.graph(), "cross_entropy", {logits.id(), labels.id()});
  if (!detail::has_floats(logits, "cross_entropy", at)) return detail::made(-1, labels);
  const int dim = detail::counted_dim(options.dim, logits.rank());
  const value classes = detail::class_labels(logits, labels, dim, at);
  auto& g = *logits.graph();
  const detail::extents shape(logits.shape());
  if (!classes.is_valid()) return detail::made(g, -1, logits.type(), detail::extents(labels.shape()));
  const value index = detail::made(g, detail::add_iota(g, classes.type(), shape, dim, at), classes.type(), shape);
  const value is_class = equal(operand(index, at), operand(expand_dims(classes, dim, at), at));
  const auto mask = detail::dim_bit(dim);
  const value largest = stop_gradient(detail::keep_dims(reduce(logits, monoid::max, dim, at), logits, mask, at), at);
  const auto without_dim = [&](value v) { return reshape(v, labels.shape(), at); };
  return detail::rounded_once(
      at,
      [&](value wide, value top) {
        const value total = sum(exp(operand(wide, at) - operand(top, at), at), dim, at);
        const value chosen = sum(where(operand(is_class, at), operand(wide, at), operand(0, at)), dim, at);
        const value margin = operand(without_dim(top), at) - operand(chosen, at);
        const value loss = operand(log(total, at), at) + operand(margin, at);
        const value is_known = bitwise_and(operand(operand(classes, at) >= operand(0, at), at),
                                           operand(operand(classes, at) < operand(shape[dim], at), at));
        const value checked =
            where(operand(is_known, at), operand(loss, at), operand(std::numeric_limits<double>::quiet_NaN(), at));
        return where(operand(equal(operand(classes, at), operand(options.ignore, at)), at), operand(0, at), operand(checked, at));
      },
      logits, largest);
}

}  // namespace gspmd
