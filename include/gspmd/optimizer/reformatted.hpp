// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "gspmd/detail/ops/reshape.hpp"
#include "gspmd/optimizer/update.hpp"

/// Shapes that many devices cut with little padding, for parameters of which no dim is a multiple of their number (Xu et al. 2020, 4.1).
namespace gspmd {
namespace detail {

/// Adjacent dims that become one, from `first` to before `last`; none: the shape stays.
struct combined_dims {
  int first = 0, last = 0;

  [[nodiscard]] constexpr bool is_any() const { return last - first > 1; }
  /// The dim that a dim becomes.
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

/// The elements of the largest part, of those cuts along one dim that `devices` devices have, that is the smallest one.
constexpr std::int64_t smallest_part(const extents& shape, std::int64_t devices) {
  std::int64_t best = elements(shape);
  for (int d = 0; d < shape.count; ++d)
    if (shape[d] > 1)
      if (const auto part = elements(shape) / shape[d] * shard_extent(shape[d], devices); part < best) best = part;
  return best;
}

/// The adjacent dims to combine for the smallest parts; of several the fewest, the first of these. `apart`: dims that must stay.
///
///   [3,3,256,256] over 10                   [3,196608]: parts of 3 x 19661 elements in the place of 3 x 3 x 26 x 256
///   [3,3,256,256] over 10, last two apart   stays: [9,256,256] has parts of 9 x 26 x 256 too
///   [3,3,2,2] over 8, last two apart        [9,2,2]: 2 x 2 x 2 in the place of 1 x 3 x 2 x 2
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

/// How many of the last dims an optimizer reduces apart from others, so that none of them may become a part of another one.
template <class Optimizer>
constexpr int dims_reduced_apart() {
  if constexpr (requires { Optimizer::dims_reduced_apart; }) return Optimizer::dims_reduced_apart;
  else if constexpr (requires(Optimizer o) { o.of; }) return dims_reduced_apart<decltype(Optimizer::of)>();
  else return 0;
}

/// The reshape of a parameter, its gradient or its state, which the user did not write: a mistake names the optimizer.
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

/// The parameter in the other shape, which lies as it does: dims that its user split are not combined.
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
  if constexpr (IsGradient) keep_partial(v);  // the sum of its terms waits for the shape in which it is scattered
  return reformat(v, shape, at);
}

}  // namespace detail

namespace optimizer {

/// An optimizer that moves parameters in shapes that `Devices` devices cut with least padding: adjacent dims of a parameter are combined, which
/// moves no element, if that makes the parts smaller that shard_weight_update gives each of them. Its state has these shapes.
///
///     using even = optimizer::reformatted<optimizer::adam, 8>;      // moments of [3,3,5,7] are [315]: a device has 40 elements, 45 without
///     using step = compile<shard_weight_update<"data">(train), pod, w_in, optimizer::state_of<even, w_in>, x_in>;
///
/// Numbers are the optimizer's: what it does element by element is that of any shape, and norms are over the whole tensor. Dims that it reduces
/// apart from others, the last two of Adafactor's, are not combined, nor those that the user has split: annotate parameters that completion splits.
/// Masks of weight decay are asked about the parameters as they are. Communication: none of its own. Errors: those of the optimizer; state of other
/// shapes; a parameter that is not annotated, and of which completion splits a dim that is combined.
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
