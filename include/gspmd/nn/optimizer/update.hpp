// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gspmd/detail/ops/reshard.hpp"
#include "gspmd/nn/detail/quantity.hpp"
#include "gspmd/ops/named.hpp"
#include "gspmd/ops/shape.hpp"
#include "gspmd/program/program.hpp"
#include "gspmd/program/tree.hpp"
#include "gspmd/transform/update.hpp"

namespace gspmd {
namespace optimizer {

/// The parameters and the state after an update: a group of two groups, so a program can return it.
///
/// **Example.**
///
///     auto [w, state] = adam.update(w, grad(loss, w), state);
template <class Params, class State>
struct updated {
  Params params;
  State state;
};

/// A parameter, as described to a decay_mask.
struct parameter {
  std::size_t number;     // in the order of the group
  std::string_view name;  // the member of its record or, at run time, the input; can be empty
  int rank;
};
/// Selects the parameters that weight decay applies to: a function, or a lambda without captures. Optimizers with a
/// member `weight_decay` have a mask as the member `decays`. Without a mask, weight decay applies to all parameters.
///
/// **Example.**
///
///     optimizer::adamw{.weight_decay = 0.1, .decays = optimizer::matrices}
///     optimizer::adamw{.weight_decay = 0.1, .decays = [](const optimizer::parameter& p) { return p.name != "bias"; }}
struct decay_mask {
  using function = bool (*)(const parameter&);
  function decays = nullptr;
  /// The original parameters by number, if the optimizer updates other tensors in their place (with_master_weights,
  /// reformatted).
  const gspmd::detail::constant_vector<parameter>* stood_for = nullptr;

  constexpr decay_mask() = default;
  template <std::convertible_to<function> F>
  constexpr decay_mask(F mask) : decays(mask) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] constexpr bool operator()(parameter p) const {
    if (stood_for != nullptr && p.number < stood_for->size()) p = (*stood_for)[p.number];
    return decays == nullptr || decays(p);
  }
};

/// Returns true for tensors of two dims and more, so that biases and scales of norms do not decay.
constexpr bool matrices(const parameter& p) { return p.rank >= 2; }

}  // namespace optimizer

namespace detail {

template <class Tree>
constexpr constant_vector<value*> leaves_in(Tree& tree) {
  constant_vector<value*> leaves;
  for_each_leaf(tree, [&](value& v) { leaves.push_back(&v); });
  return leaves;
}
template <class Tree>
constexpr graph* graph_in(Tree tree) {
  graph* g = nullptr;
  for_each_leaf(tree, [&](const value& v) { g = v.graph() != nullptr ? v.graph() : g; });
  return g;
}

/// Returns the parameters as a decay_mask sees them.
template <class Tree>
constexpr constant_vector<optimizer::parameter> parameters_of(Tree tree) {
  constant_vector<optimizer::parameter> all;
  for (const value* const p : leaves_in(tree))
    all.push_back({all.size(), p->is_valid() ? std::string_view(p->node().at.name()) : std::string_view(), p->rank()});
  return all;
}
/// Makes `parameters` the original parameters of an optimizer's mask, or of the mask of the optimizer that it wraps. An
/// outer wrapper that set them first wins.
template <class Optimizer>
constexpr void ask_about(Optimizer& o, const constant_vector<optimizer::parameter>& parameters) {
  if constexpr (requires { o.decays.stood_for; }) {
    if (o.decays.stood_for == nullptr) o.decays.stood_for = &parameters;
  } else if constexpr (requires { o.of; }) {
    ask_about(o.of, parameters);
  }
}

/// Returns `next` with the sharding of `before`, if `before` is annotated.
constexpr value lie_beside(value next, value before, location at) {
  if (!next.is_valid() || !before.is_valid() || !before.node().annotated) return next;
  return made(add_reshard(*next.graph(), next.id(), before.node().annotation, at), next);
}
/// Returns the next value of `before`, with the same sharding. So each step finds the state as the previous step did.
constexpr value keep_place(value next, value before, location at) {
  if (!next.is_valid() || !before.is_valid()) return next;
  graph& g = *next.graph();
  const bool is_typed = g.states_communication();
  return is_typed || input_number(g, before.id()) < 0 ? lie_beside(next, before, at) : mark_update(before, next, at);
}

/// Returns zeros with the type, shape and sharding of a tensor.
constexpr value zeros_beside(value like, location at) {
  if (!like.is_valid()) return like;
  const value zeros = gspmd::zeros_like(like, at);
  return like.node().annotated ? lie_beside(zeros, like, at) : shard_alike(zeros, like, at);
}
template <class Tree>
constexpr Tree all_zeros_beside(Tree tree, location at) {
  for_each_leaf(tree, [at](value& v) { v = zeros_beside(v, at); });
  return tree;
}
/// Returns the counter of updates of a new state: 0.
template <class Tree>
constexpr value no_updates(const Tree& tree, location at) {
  graph* const g = graph_in(tree);
  if (g == nullptr) return {};
  return made(*g, add_constant(*g, dtype::s32, {}, 0, 0, at), dtype::s32, {});
}

/// Returns true if the gradients and the state have the form of the parameters. Otherwise reports a compile error.
template <class Params, class Grads, class State, class Wanted>
constexpr bool is_update() {
  if constexpr (!std::is_same_v<Params, Grads>) {
    static_assert(std::is_same_v<Params, Grads>,
                  "gspmd: optimizer: the gradients are a group of another form than the parameters; give grad(loss, parameters)");
    return false;
  } else {
    static_assert(std::is_same_v<State, Wanted>,
                  "gspmd: optimizer: the state does not belong to this optimizer and these parameters; pass the result of its "
                  "init or its last update");
    return std::is_same_v<State, Wanted>;
  }
}

/// One update of all parameters by an optimizer. Its operators are in a scope with the name of the optimizer.
class parameter_update {
 public:
  constexpr parameter_update(graph* g, const char* name, location at) : g_(g), name_(name), at_(at), part_(g, name) {}

  [[nodiscard]] constexpr quantity of(value v) const { return {v, at_}; }
  [[nodiscard]] constexpr location at() const { return at_; }
  constexpr bool fail(mistake broken, const text& what) const {
    g_->fail(at_, name_, broken, what);
    return false;
  }

  /// Returns the number of updates before this one, as a double, and adds 1 to the counter.
  [[nodiscard]] constexpr quantity count(value& step) const {
    const value before = step;
    if (!before.is_valid()) return 0;
    if (before.type() != dtype::s32 || before.rank() != 0)
      fail(mistake::type, text("the counter of updates is ") << name_of(before.type()) << shape_text(before.shape())
                                                             << "; give the state that init made, whose counter is s32[]");
    if (g_->failed()) return 0;
    step = keep_place((of(before) + 1.0).tensor(), before, at_);
    return of(before).as(dtype::f64);
  }

  /// Returns the rate: `given` if the program passes a rate, or else the rate of the schedule.
  [[nodiscard]] constexpr quantity rate(const quantity& scheduled, value given) const {
    if (given.graph() == nullptr) return scheduled;
    if (given.is_valid() && (!is_floating(given.type()) || given.rank() != 0))
      fail(mistake::type, text("the rate is ")
                              << name_of(given.type()) << shape_text(given.shape()) << "; give a float of rank 0");
    return of(given).as(dtype::f64);
  }

  /// Replaces each parameter p and its tensors in the groups of the state by the results of f(p, gradient,
  /// {states...}). A new tensor has the sharding and the type of the old tensor. f gets bf16 and f16 as float
  /// (ops/composite.hpp), and its results are rounded.
  template <class F, class Params, class... States>
  constexpr void each(F f, Params& params, Params grads, States&... states) {
    constexpr std::size_t count = sizeof...(States);
    const std::array<constant_vector<value*>, count + 2> lists{leaves_in(params), leaves_in(grads), leaves_in(states)...};
    for (const auto& list : lists)
      if (list.size() != lists[0].size()) {
        fail(mistake::other, text("there are ") << static_cast<std::int64_t>(lists[0].size()) << " parameters and "
                                                << static_cast<std::int64_t>(list.size())
                                                << (&list == &lists[1] ? " gradients; give grad(loss, parameters)"
                                                                       : " tensors in a part of the state; give the state that "
                                                                         "init made of these parameters"));
        return;
      }
    for (std::size_t k = 0; k < lists[0].size(); ++k) {
      value& p = *lists[0][k];
      const value d = *lists[1][k];
      if (g_->failed() || !p.is_valid() || !d.is_valid() || !fits(k, p, d)) return;
      std::array<quantity, count> before;
      for (std::size_t i = 0; i < count; ++i) {
        const value s = *lists[i + 2][k];
        if (s.is_valid() && s.type() != p.type()) return refuse_state(s.type(), s.shape(), p.type(), s.shape());
        before[i] = of(s).wide();
      }
      now_ = {k, std::string_view(p.node().at.name()), p.rank()};
      type_ = p.type();
      const std::array<quantity, count + 1> after = f(of(p).wide(), of(d).wide(), before);
      const auto replace = [this](value& v, const quantity& next) { v = keep_place(next.as(v.type()).tensor(), v, at_); };
      replace(p, after[0]);
      for (std::size_t i = 0; i < count; ++i) replace(*lists[i + 2][k], after[i + 1]);
    }
  }
  /// Returns the weight decay of the parameter that `each` processes.
  [[nodiscard]] constexpr double decay(double of_all, const optimizer::decay_mask& decays) const {
    return decays(now_) ? of_all : 0;
  }
  /// Returns true if the tensor has a float type. Otherwise records an error.
  [[nodiscard]] constexpr bool is_float(value p, std::size_t k = 0) const {
    return is_floating(p.type()) ||
           fail(mistake::type, text("tensor ")
                                   << static_cast<std::int64_t>(k) << " is " << name_of(p.type()) << shape_text(p.shape())
                                   << ", and an optimizer moves floats; keep it out of the parameters, or "
                                      "cast<float>(x)");
  }
  /// Returns true if a tensor of the state has this shape; records the mistake if not.
  [[nodiscard]] constexpr bool is_state(const quantity& s, const extents& shape) const {
    const value v = s.tensor();
    if (v.is_valid() && v.shape() != shape) refuse_state(type_, v.shape(), type_, shape);
    return v.is_valid() && v.shape() == shape;
  }

 private:
  constexpr void refuse_state(dtype own, const extents& own_shape, dtype type, const extents& shape) const {
    fail(mistake::extent, text("a tensor of the state is ")
                              << name_of(own) << shape_text(own_shape) << " and that of its parameter is " << name_of(type)
                              << shape_text(shape) << "; give the state that init made of these parameters");
  }
  [[nodiscard]] constexpr bool fits(std::size_t k, value p, value d) const {
    if (!is_float(p, k)) return false;
    return (p.type() == d.type() && p.shape() == d.shape()) ||
           fail(mistake::extent, text("gradient ") << static_cast<std::int64_t>(k) << " is " << name_of(d.type())
                                                   << shape_text(d.shape()) << " and its parameter " << name_of(p.type())
                                                   << shape_text(p.shape()) << "; give grad(loss, parameters)");
  }

  graph* g_;
  const char* name_;
  location at_;
  open_part part_;
  optimizer::parameter now_{};
  dtype type_ = dtype::f32;  // the parameter that `each` processes
};

}  // namespace detail
}  // namespace gspmd
