// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "gspmd/detail/ops/reshape.hpp"
#include "gspmd/nn/optimizer/update.hpp"

/// Shapes that many devices split with little padding, for parameters without a dim that is a multiple of the number of
/// devices (Xu et al. 2020, 4.1).
namespace gspmd {
namespace detail {

/// Adjacent dims that become one dim, from `first` to `last` - 1. If there are fewer than two, the shape stays.
struct combined_dims {
  int first = 0, last = 0;

  [[nodiscard]] constexpr bool is_any() const { return last - first > 1; }
  /// Returns the dim of the combined shape that contains dim `d`.
  [[nodiscard]] constexpr int dim_of(int d) const {
    if (!is_any() || d < first) return d;
    return d < last ? first : d - (last - first - 1);
  }
  [[nodiscard]] constexpr extents shape_of(const extents& shape) const {
    if (!is_any()) return shape;
    extents combined;
    for (int d = 0; d < shape.count; ++d)
      if (d > first && d < last) combined[first] *= shape[d];
      else combined.push_back(shape[d]);
    return combined;
  }
};

/// Returns the smallest number of elements that a part can have if `devices` devices split one dim of `shape`. The
/// largest part counts.
constexpr std::int64_t smallest_part(const extents& shape, std::int64_t devices) {
  std::int64_t best = elements(shape);
  for (int d = 0; d < shape.count; ++d)
    if (shape[d] > 1)
      if (const auto part = elements(shape) / shape[d] * shard_extent(shape[d], devices); part < best) best = part;
  return best;
}

/// Returns the adjacent dims to combine so that the parts are smallest. Among equal results it takes the fewest dims,
/// then the first dims. Dims in `apart` are not combined.
///
///     [3,3,256,256] over 10                   [3,196608]: parts of 3 x 19661 elements instead of 3 x 3 x 26 x 256
///     [3,3,256,256] over 10, last two apart   stays: [9,256,256] has parts of 9 x 26 x 256 too
///     [3,3,2,2] over 8, last two apart        [9,2,2]: 2 x 2 x 2 instead of 1 x 3 x 2 x 2
constexpr combined_dims least_padding(const extents& shape, std::int64_t devices, dim_mask apart) {
  combined_dims best;
  std::int64_t least = smallest_part(shape, devices);
  for (int count = 2; count <= shape.count; ++count)
    for (int first = 0; first + count <= shape.count; ++first) {
      const combined_dims tried{first, first + count};
      bool may_be = true;
      for (int d = first; d < first + count; ++d) may_be = may_be && (apart & dim_bit(d)) == 0;
      if (!may_be) continue;
      const auto part = smallest_part(tried.shape_of(shape), devices);
      if (part < least) best = tried, least = part;
    }
  return best;
}

/// Returns the number of last dims that an optimizer reduces separately, so that they must not be combined with other
/// dims.
template <class Optimizer>
constexpr int dims_reduced_apart() {
  if constexpr (requires { Optimizer::dims_reduced_apart; }) return Optimizer::dims_reduced_apart;
  else if constexpr (requires(Optimizer o) { o.of; }) return dims_reduced_apart<decltype(Optimizer::of)>();
  else return 0;
}

/// The reshape of a parameter, its gradient or its state. The user did not write it, so its errors name the optimizer.
struct reformat_op : reshape_op {
  static constexpr replication_words replication{
      "reformatted", "it combines dims of a parameter",
      "annotate the parameter where it is an input, so that its split dims are not combined, or move it by the optimizer itself"};
};
constexpr value reformat(value v, const extents& shape, location at) {
  const int id = add_reshape(*v.graph(), v.id(), shape, at);
  if (id >= 0) v.graph()->nodes[static_cast<std::size_t>(id)].op = code_of<reformat_op>;
  return made(*v.graph(), id, v.type(), shape);
}

/// Returns the tensor in the combined shape of its parameter. Dims that the user split are not combined, so the
/// sharding stays.
template <int ReducedApart, bool IsGradient>
constexpr value reformat(value v, const value& like, std::int64_t devices, location at) {
  if (!v.is_valid() || !like.is_valid() || v.shape() != like.shape()) return v;
  const node param = like.node();
  dim_mask apart = 0;
  for (int d = 0; d < like.rank(); ++d)
    if (like.rank() - d <= ReducedApart || (param.annotated && param.annotation.layout.axes_of(d) != 0)) apart |= dim_bit(d);
  const combined_dims dims = least_padding(v.shape(), devices, apart);
  if (!dims.is_any()) return v;
  const extents shape = dims.shape_of(v.shape());
  if constexpr (IsGradient) keep_partial(v);  // the sum of its partial values waits for the shape that is scattered
  return reformat(v, shape, at);
}

}  // namespace detail

namespace optimizer {

/// An optimizer that updates parameters in shapes that `Devices` devices split with the least padding.
///
/// Adjacent dims of a parameter are combined if that makes the parts smaller that shard_weight_update assigns to each
/// device. Combining moves no elements. The state of the optimizer has the combined shapes.
///
/// The results are those of the optimizer: elementwise updates do not depend on the shape, and norms are over the whole
/// tensor. These dims are not combined: dims that the optimizer reduces separately (the last two in Adafactor), and
/// dims that the user split. If completion splits a parameter, annotate it. Masks of weight decay get the original
/// parameters.
///
/// **Communication.** None in addition to the optimizer.
/// **Errors.** The errors of the optimizer; state with other shapes; a parameter without annotation if completion
/// splits a combined dim.
/// **Example.**
///
///     // Moments of [3,3,5,7] become [315]: a device has 40 elements instead of 45.
///     using even = optimizer::reformatted<optimizer::adam, 8>;
///     using step = compile<shard_weight_update<"data">(train), pod, w_in, optimizer::state_of<even, w_in>, x_in>;
template <class Optimizer, std::int64_t Devices>
struct reformatted {
  static_assert(Devices > 0, "gspmd: reformatted: name the number of devices that a parameter is cut for, 1 or more");
  static constexpr std::int64_t reformatted_for = Devices;
  Optimizer of{};

  template <class Params>
  constexpr auto init(const Params& params, location at = location::current()) const {
    return of.init(formatted<false>(params, params, at), at);
  }
  template <class Params, class Grads, class State>
  constexpr updated<Params, State> update(const Params& params, const Grads& grads, const State& state, value given_rate = {},
                                          location at = location::current()) const {
    updated<Params, State> next{params, state};
    if constexpr (gspmd::detail::is_update<Params, Grads, State, decltype(init(params, at))>()) {
      const auto asked = gspmd::detail::parameters_of(next.params);
      Optimizer named = of;
      gspmd::detail::ask_about(named, asked);
      auto moved = named.update(formatted<false>(params, params, at), formatted<true>(grads, params, at), state, given_rate, at);
      next.state = moved.state;
      const auto before = gspmd::detail::leaves_in(next.params), after = gspmd::detail::leaves_in(moved.params);
      for (std::size_t k = 0; k < before.size() && k < after.size(); ++k) {
        value& p = *before[k];
        if (!p.is_valid() || !after[k]->is_valid()) continue;
        const auto shape = p.shape();
        const value now = after[k]->shape() == shape ? *after[k] : gspmd::detail::reformat(*after[k], shape, at);
        p = gspmd::detail::keep_place(now, p, at);
      }
    }
    return next;
  }

 private:
  template <bool IsGradient, class Tree, class Params>
  static constexpr Tree formatted(Tree tree, Params params, location at) {
    const auto like = gspmd::detail::leaves_in(params), leaves = gspmd::detail::leaves_in(tree);
    for (std::size_t k = 0; k < leaves.size() && k < like.size(); ++k)
      *leaves[k] =
          gspmd::detail::reformat<gspmd::detail::dims_reduced_apart<Optimizer>(), IsGradient>(*leaves[k], *like[k], Devices, at);
    return tree;
  }
};

}  // namespace optimizer
}  // namespace gspmd
