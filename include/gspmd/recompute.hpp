// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gspmd/detail/passes/grad/recomputation.hpp"
#include "gspmd/detail/support/callable.hpp"
#include "gspmd/ops/traced_body.hpp"

/// Values that are computed again on the way back instead of kept (rematerialisation, which GSPMD 5.1 counts on). What is saved to disk is in
/// checkpoint.hpp.
namespace gspmd {
namespace detail {

/// A call of a function while it is traced.
class open_recomputed {
 public:
  constexpr explicit open_recomputed(graph* g) : graph_(g) {
    if (g != nullptr) begin_ = static_cast<int>(g->nodes.size()), region_ = g->open_region;
  }
  constexpr ~open_recomputed() {
    if (graph_ == nullptr || graph_->failed()) return;
    const int end = static_cast<int>(graph_->nodes.size());
    if (end > begin_) graph_->recomputed.push_back({begin_, end, region_, &recomputation::go_back});
  }
  open_recomputed(const open_recomputed&) = delete;
  open_recomputed& operator=(const open_recomputed&) = delete;

 private:
  graph* graph_;
  int begin_ = 0, region_ = -1;
};

template <class F>
struct recomputed_function {
  F f;

  template <class... Arguments>
  constexpr auto operator()(const Arguments&... arguments) const {
    using call = call_with<const F&, const Arguments&...>;
    if constexpr (sizeof...(Arguments) == 0 || !(is_values<Arguments> && ...)) {
      static_assert(
          written_so<F>,
          "gspmd: recompute: the arguments of the function are values, or tuples or structs of values, and there is one at "
          "least; capture what is none");
      const auto refused = unlooped(arguments...);
      if constexpr (call::compiles) return f(arguments...);
      else return refused;
    } else if constexpr (call::refuses) {
      static_assert(
          written_so<F>,
          "gspmd: recompute: the function is called with as many arguments as it is given; call it with those that it takes");
      return unlooped(arguments...);
    } else if constexpr (!call::compiles) {
      return unlooped(arguments...);  // a mistake in the function, which the compiler has reported
    } else {
      const open_recomputed open(graph_of(arguments...));
      return f(arguments...);
    }
  }
};

}  // namespace detail

/// A function that gives what `f` gives, and of which a gradient keeps what it reads and no value that it makes: on the way back these are
/// computed again from that (JAX: `jax.checkpoint` or `remat`; torch: `torch.utils.checkpoint`). A chain of layers, each called so, holds the
/// input of each layer, and the values of one; the forward pass is computed twice.
///
///     auto loss = [](value x, auto layers) { for (auto& w : layers) x = recompute(layer)(x, w); return sum(x * x); };
///     auto g = grad(loss(x, layers), layers);
///
/// Arguments and results are values, or tuples or structs of them; `f` may read others that it captures. It nests: of a function that is
/// computed again and that calls others so, the values of one of these at a time. It may stand in loops, conditionals, vmap and manual
/// regions, and hold these; of a loop what it carries is kept, and its body computed again, without being told. A call that the loss itself
/// comes from is not computed twice: its values would be made again at once. Values are those without it, bit for bit, where `f`
/// computes the same from the same; without a gradient it is `f`.
///
/// Communication: that of `f` a second time, on the way back: a weight that `f` gathers is not kept but gathered again, as fully sharded data
/// parallelism does. The copies read an `optimization_barrier` of each value that `f` reads, so that they are not taken for what was computed
/// before. Errors, at compile time: no arguments, an argument that is no value.
template <class F>
constexpr auto recompute(F f) {
  return detail::recomputed_function<F>{std::move(f)};
}

/// The identity on `x`, as a value of its own: what is computed from it is computed again, though the same was computed from `x` before, and
/// where `x` was gathered its readers gather again (the operator of this name in XLA). It comes behind up to seven values of `after` in the
/// program; a plan that needs less memory may move it. Equal barriers are one, and one of what a loop does not change is made before the loop.
/// It sends nothing, and is no copy. The gradient goes to `x` as it is. Errors, at compile time: more than seven values in `after`.
///
///     auto late = optimization_barrier(w, std::array{gradient});   // gathered when the gradient is there, not before
constexpr value optimization_barrier(value x, detail::span<const value> after = {}, location at = location::current()) {
  if (!x.is_valid()) return x;
  detail::constant_vector<int> behind;
  for (const value& v : after)
    if (v.is_valid() && v.graph() == x.graph()) behind.push_back(v.id());
  constexpr std::size_t most = detail::max_map_arity - 1;  // the first operand is x
  if (behind.size() > most) {
    x.graph()->fail(at, "optimization_barrier", detail::mistake::operand_count,
                    detail::text("comes behind ")
                        << static_cast<std::int64_t>(behind.size()) << " values, and may behind "
                        << static_cast<std::int64_t>(most) << "; name those that are made last, or a barrier of some of them");
    return x;
  }
  return detail::made(detail::add_barrier(*x.graph(), x.id(), detail::span<const int>(behind.data(), behind.size()), at), x);
}

}  // namespace gspmd
