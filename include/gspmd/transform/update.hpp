// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <vector>

#include "gspmd/detail/passes/carried/weight_updates.hpp"
#include "gspmd/program/program.hpp"
#include "gspmd/program/tree.hpp"

/// Inputs of a step whose next values are outputs of the step, so that steps can run one after another: weights,
/// moments, a field of a grid. An output marked as a next value has the sharding of its input, whether you annotated
/// the input or completion chose its sharding.
namespace gspmd {
namespace detail {

/// Marks `next` as the next value of the input `before`. If the types or shapes differ, records a mistake.
constexpr value mark_update(value before, value next, location at, const char* op = "update") {
  if (!before.is_valid() || !next.is_valid()) return next;
  graph& g = *next.graph();
  if (g.states_communication()) return next;  // types state the shardings
  const auto fail = [&](mistake broken, const text& what) {
    g.fail(at, op, broken, what);
    return next;
  };
  const auto input = before.graph() == &g ? input_number(g, before.id()) : -1;
  if (input < 0)
    return fail(mistake::other, text("the value before is no input of this program; give the input whose next value this is"));
  if (before.type() != next.type() || !(before.shape() == next.shape()))
    return fail(before.type() != next.type() ? mistake::type : mistake::extent,
                text("input ") << input << " is " << name_of(before.type()) << shape_text(before.shape())
                               << " and its next value " << name_of(next.type()) << shape_text(next.shape())
                               << "; give one of the same type and shape, so that a step can follow");
  add_pass<place_carried_pass>(g);
  return made(add_update(g, next.id(), input, at), next);
}

template <class Tree>
constexpr std::vector<value*> values_in(Tree& tree) {
  std::vector<value*> values;
  for_each_leaf(tree, [&](value& v) { values.push_back(&v); });
  return values;
}

/// Returns true if the next values are a group of the same form as their inputs. Otherwise reports a compile error.
template <class Tree, class Next>
consteval bool is_group_like() {
  static_assert(std::is_same_v<Tree, Next>,
                "gspmd: update: the next value is a group of another form than the inputs; give a value for a value, and the "
                "same struct, array or tuple for a group");
  return std::is_same_v<Tree, Next>;
}

template <std::size_t Count, class F>
struct carrying_step {
  F step;

  template <class... A>
  constexpr auto operator()(const A&... arguments) const {
    static_assert(Count <= sizeof...(A), "gspmd: carried: the function has fewer arguments than are carried");
    auto result = step(arguments...);
    if constexpr (Count <= sizeof...(A)) mark(result, arguments...);
    return result;
  }

 private:
  template <class Result, class... A>
  static constexpr void mark(Result& result, const A&... arguments) {
    std::tuple given{arguments...};
    std::vector<value*> before;
    [&]<std::size_t... K>(std::index_sequence<K...>) {
      (for_each_leaf(std::get<K>(given), [&](value& v) { before.push_back(&v); }), ...);
    }(std::make_index_sequence<Count>{});
    const auto next = values_in(result);
    for (std::size_t k = 0; k < before.size() && k < next.size(); ++k)
      *next[k] = mark_update(*before[k], *next[k], {}, "carried");
    if (next.size() < before.size() && before[0]->graph() != nullptr)
      before[0]->graph()->fail(
          {}, "carried", mistake::other,
          text() << static_cast<std::int64_t>(before.size()) << " tensors are carried and the function returns "
                 << static_cast<std::int64_t>(next.size()) << "; return the next values of all of them first, in their order");
  }
};

}  // namespace detail

/// Marks `next` as the value of the input `before` in the next step. Groups are marked leaf by leaf. Return the result
/// of this function from the program.
///
/// The output has the sharding of the input, also if completion chose that sharding. Therefore you can pass the shards
/// of the output to the next step unchanged. If no later step of the plan reads the input, the output can overwrite its
/// memory (`can_alias`). Optimizers mark parameters and state that are inputs.
/// In programs whose types state shardings, it returns `next` unchanged.
///
/// **Communication.** A reshard to the sharding of the input, if `next` has another sharding.
/// **Errors.** Compile error or gspmd::error: a type or shape other than the input's; a group of another form; a
/// `before` that is not an input; two outputs that are next values of the same input.
/// **Example.**
///
///     constexpr auto step = [](value u, value f) { return update(u, 0.25 * (u + f)); };
template <class Tree, class Next>
constexpr auto update(const Tree& before, Next next, location at = location::current()) {
  if constexpr (detail::is_group_like<Tree, Next>()) {
    auto inputs = before;
    const auto from = detail::values_in(inputs), to = detail::values_in(next);
    if (from.size() == to.size()) {
      for (std::size_t k = 0; k < from.size(); ++k) *to[k] = detail::mark_update(*from[k], *to[k], at);
    } else if (!from.empty() && from[0]->graph() != nullptr) {
      from[0]->graph()->fail(at, "update", detail::mistake::other,
                             detail::text("the groups have ")
                                 << static_cast<std::int64_t>(from.size()) << " inputs and "
                                 << static_cast<std::int64_t>(to.size()) << " next values; give one for each");
    }
  }
  return next;
}

/// Marks next values in a function of the form (state, batch) -> (state, ...). The first tensors of its result are the
/// next values of the tensors in its first `Count` arguments. For `compile` and dynamic::compile.
///
/// **Errors.** The errors of update; a result with fewer tensors than the first `Count` arguments.
/// **Example.**
///
///     constexpr auto train = [](auto w, value x) { return std::tuple{descend(w, grad(loss(w, x), w)), loss(w, x)}; };
///     using step = compile<carried(train), pod, weights_in, batch_in>;
template <std::size_t Count = 1, class F>
constexpr auto carried(F step) {
  return detail::carrying_step<Count, F>{step};
}

}  // namespace gspmd
