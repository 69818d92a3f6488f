// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ops/rows.hpp"
#include "gspmd/nn/pipeline/schedule.hpp"
#include "gspmd/ops/reduce.hpp"
#include "gspmd/ops/shape.hpp"
#include "gspmd/transform/vmap.hpp"

/// Building blocks for the loops of pipelines: stages that are computed together, with their dim split over an axis.
namespace gspmd::detail {

/// True if a stage takes the number of its part of all layers as a third argument, after weights and data.
template <class Stage, class Weights, class Data>
inline constexpr bool wants_part = !call_with<const Stage&, const Weights&, const Data&, const value&>::refuses;

/// The call of a stage, and the type of its result.
template <class Stage, class Weights, class Data, bool WantsPart = wants_part<Stage, Weights, Data>>
struct stage_call : call_with<const Stage&, const Weights&, const Data&> {};
template <class Stage, class Weights, class Data>
struct stage_call<Stage, Weights, Data, true> : call_with<const Stage&, const Weights&, const Data&, const value&> {};

constexpr value row_of(value x, value index, location at) {
  extents shape;
  for (int d = 1; d < x.rank(); ++d) shape.push_back(x.shape()[d]);
  return made(*x.graph(), add_dynamic_index(*x.graph(), x.id(), index.id(), at), x.type(), shape);
}
constexpr extents with_extent(const extents& shape, std::int64_t first) {
  extents longer = shape;
  longer.insert(0, first);
  return longer;
}
constexpr integers as_integers(const extents& shape) { return {shape.begin(), static_cast<std::size_t>(shape.count)}; }
/// Repeats `x` n times: [a, b, ...] -> [n, a, b, ...].
constexpr value for_each_stage(value x, std::int64_t n, location at) {
  extents dims;
  for (int d = 0; d < x.rank(); ++d) dims.push_back(d + 1);
  return broadcast_in_dim(x, as_integers(with_extent(x.shape(), n)), as_integers(dims), at);
}
/// Broadcasts a mask [stages] to the shape of `like`, whose dim 0 counts the stages.
constexpr value along_stages(value of_stages, value like, location at) {
  return broadcast_in_dim(of_stages, as_integers(like.shape()), {0}, at);
}

/// The stages of a pipeline along a mesh axis, during tracing.
template <dim_spec Axis, class Stage, class Schedule>
struct stages_on {
  Stage stage;
  Schedule schedule;
  location at;
  const char* op;

  /// Returns true if `Stage` can be called as a stage. Otherwise reports a compile error.
  template <class Weights, class Data>
  static consteval bool is_stage() {
    using call = stage_call<Stage, Weights, Data>;
    if constexpr (!is_values<Weights> || !is_values<Data>) {
      static_assert(written_so<Stage>,
                    "gspmd: pipeline: it is called with the weights of all stages and with the microbatches, values or groups of "
                    "values; capture other arguments");
      return false;
    } else if constexpr (call::refuses) {
      static_assert(
          written_so<Stage>,
          "gspmd: pipeline: a stage is called as stage(weights, x), or stage(weights, x, part), with the values of one stage");
      return false;
    } else if constexpr (!call::compiles) {
      return false;  // a mistake in the stage; the compiler has reported it
    } else if constexpr (!std::is_same_v<typename call::result, Data>) {
      static_assert(written_so<Stage>,
                    "gspmd: pipeline: a stage returns a value or group like its argument x, because the next stage gets it as x");
      return false;
    } else {
      return true;
    }
  }
  constexpr void check_dim(const value& x, int dim, std::int64_t extent, const char* what, const char* counted) const {
    if (x.graph()->failed() || (x.rank() > dim && x.shape()[dim] == extent)) return;
    x.graph()->fail(at, op, mistake::extent,
                    text(what) << " is " << shape_text(x.shape()) << ", and dim " << dim << " counts the " << extent << ' '
                               << counted << " of the schedule; let the extent be this number, or choose another schedule");
  }
  template <class Weights, class Data>
  constexpr bool fits(graph& g, const Weights& weights, const Data& xs) const {
    if (const text what = schedule.misfit(); !what.empty()) g.fail(at, op, mistake::extent, what);
    else if (const text none = misfit_of("the schedule", schedule.stages, schedule.microbatches, schedule.rounds); !none.empty())
      g.fail(at, op, mistake::extent, none);
    for (const value& w : leaves_of(weights)) {
      check_dim(w, 0, schedule.stages, "a weight", "stages");
      if (schedule.rounds > 1) check_dim(w, 1, schedule.rounds, "a weight", "rounds");
    }
    for (const value& x : leaves_of(xs)) check_dim(x, 0, schedule.microbatches, "the data", "microbatches");
    return !g.failed();
  }
  /// Like `fits`, for pipeline_step. It also rejects complex data, because pipeline_step adds products of data and
  /// gradients as floats.
  template <class Weights, class Data>
  constexpr bool fits_step(graph& g, const Weights& weights, const Data& xs) const {
    for (const value& x : leaves_of(xs))
      if (x.is_valid() && is_complex(x.type()) && !g.failed())
        g.fail(at, op, mistake::type,
               text("the data is ") << name_of(x.type()) << shape_text(x.shape())
                                    << ", and a stage that gets complex numbers has no gradient here; give real and imaginary "
                                       "parts as two tensors of a group");
    return !g.failed() && fits(g, weights, xs);
  }

  template <class Number>
  constexpr operand here(Number x) const {
    return operand(x, at);
  }
  /// Returns `x` in the type that composites compute in.
  constexpr value widened(value x) const { return converted(x, composite_type(x.type()), at); }
  /// Returns `x` divided by the number of microbatches, in the type that composites compute in.
  constexpr value part_of_mean(value x) const { return here(widened(x)) / here(static_cast<double>(schedule.microbatches)); }
  /// Returns true if the loss, a weight or a data tensor is bf16 or f16. Then pipeline_step adds the gradients of whole
  /// losses and divides the sums. Otherwise pipeline_step divides each loss. A narrow gradient would round 1 /
  /// microbatches, and f16 would underflow.
  template <class Weights, class Data>
  constexpr bool divides_sums(dtype of_loss, const Weights& weights, const Data& xs) const {
    const auto is_rounded = [](dtype type) { return composite_type(type) != type; };
    bool any = is_rounded(of_loss);
    for (const value& w : leaves_of(weights)) any = any || is_rounded(w.type());
    for (const value& x : leaves_of(xs)) any = any || is_rounded(x.type());
    return any;
  }
  /// Returns the gradient of the mean loss in `type`, from the sum of the microbatches' gradients.
  constexpr value mean_gradient(value sum, dtype type, bool divides) const {
    return converted(divides && is_floating(type) ? part_of_mean(sum) : sum, type, at);
  }
  constexpr value zeros(graph& g, dtype type, const extents& shape) const {
    return made(g, add_constant(g, type, shape, 0, 0, at), type, shape);
  }
  /// Splits dim `dim` (the stages) over the axis. Completion decides about the other dims.
  constexpr value placed(value x, int dim = 0) const {
    if (!x.is_valid()) return x;
    resolved_sharding r;
    axis_mask used = 0;
    add_axes(*x.graph()->mesh, Axis.view(), dim, r, used);
    for (int d = 0; d < x.rank(); ++d)
      if (d != dim) r.value.open |= dim_bit(d);
    return annotate(x, r, op, at);
  }
  /// Returns the number of each stage, [stages].
  template <class Data>
  constexpr value places(const Data& xs) const {
    return iota<std::int64_t>(leaves_of(xs)[0], {schedule.stages}, 0, at);
  }
  /// Returns a copy of the first microbatch for each stage. A stage computes on its copy until a microbatch arrives.
  /// Zeros would not be safe: a stage may have no finite value or gradient at 0.
  template <class Data>
  constexpr Data copies(graph& g, const Data& xs) const {
    return transform_leaves(
        [&](value x) {
          const value one = row_of(x, zeros(g, dtype::s64, {}), at);
          return placed(stop_gradient(for_each_stage(one, schedule.stages, at), at));
        },
        xs);
  }
  /// Returns zeros for the results of all stages, one row for each microbatch and stage.
  template <class Data>
  constexpr Data empty_rows(graph& g, const Data& xs) const {
    return transform_leaves(
        [&](value x) {
          extents shape = x.shape();
          shape.insert(1, schedule.stages);
          return placed(zeros(g, x.type(), shape), 1);
        },
        xs);
  }
  constexpr value with_row(graph& g, value all, value row, value index) const {
    return made(add_dynamic_update<set_row_op>(g, all.id(), row.id(), index.id(), at), all);
  }
  /// Returns the input of each stage: the microbatch if `is_entering` is set, or the data that arrived from the
  /// previous stage.
  template <class Data>
  constexpr Data entering(const Data& xs, value microbatch, value is_entering, const Data& arrived) const {
    return transform_leaves(
        [&](value x, value before) {
          const value one = for_each_stage(row_of(x, microbatch, at), schedule.stages, at);
          return where(here(along_stages(is_entering, before, at)), here(one), here(before));
        },
        xs, arrived);
  }
  /// Returns the rows of one stage, computed as a sum over the rows of all stages. The rows of other stages count as 0.
  constexpr value of_stage(value rows, value place, std::int64_t stage_number) const {
    const value is_it = broadcast_in_dim(equal(here(place), here(stage_number)), as_integers(rows.shape()), {1}, at);
    return reduce(where(here(is_it), here(rows), here(zeros_like(rows, at))), monoid::add, 1, at);
  }
  /// Returns the result of a stage for one microbatch. Records an error if the result has another type or shape than
  /// `x`.
  template <class Weights, class Data>
  constexpr Data one_stage(const Weights& w, const Data& x, value part) const {
    const Data out = [&] {
      if constexpr (wants_part<Stage, Weights, Data>) return stage(w, x, part);
      else return stage(w, x);
    }();
    const auto to = leaves_of(out);
    std::size_t k = 0;
    for (const value& from : leaves_of(x)) {
      if (k == to.size()) break;
      const value y = to[k++];
      if (!y.is_valid() || (y.type() == from.type() && y.shape() == from.shape())) continue;
      from.graph()->fail(at, op, mistake::region,
                         text("a stage is given ")
                             << name_of(from.type()) << shape_text(from.shape()) << " and returns " << name_of(y.type())
                             << shape_text(y.shape()) << "; the next stage gets that, so return the type and shape of x");
      return x;
    }
    return out;
  }
  /// Returns the results of all stages, each computed from its own input.
  template <class Weights, class Data>
  constexpr Data stages_of(const Weights& weights, const Data& in, value parts) const {
    const auto one = [this](const Weights& w, const Data& x, value part) { return one_stage(w, x, part); };
    return transform_leaves([&](value v) { return placed(v); }, vmap(one, out_dims<>{}, at)(weights, in, parts));
  }
};

}  // namespace gspmd::detail
