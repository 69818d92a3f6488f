// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gspmd/detail/passes/grad/recomputation.hpp"
#include "gspmd/detail/support/callable.hpp"
#include "gspmd/ops/traced_body.hpp"

/// Values that the backward pass recomputes instead of keeping them (rematerialisation, which GSPMD 5.1 relies on).
/// checkpoint.hpp saves data to disk.
namespace gspmd {
namespace detail {

/// Records the nodes that a call of a recomputed function adds while the call is traced.
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
          "least; capture other arguments");
      const auto refused = unlooped(arguments...);
      if constexpr (call::compiles) return f(arguments...);
      else return refused;
    } else if constexpr (call::refuses) {
      static_assert(written_so<F>,
                    "gspmd: recompute: the function does not accept these arguments; call it with the arguments that it takes");
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

/// Returns a function with the same results as `f`. Its gradient keeps only the values that `f` reads. The backward
/// pass recomputes the values that `f` computes (JAX: `jax.checkpoint` or `remat`; torch: `torch.utils.checkpoint`).
///
/// If each layer of a chain is called this way, the program holds the input of each layer and the inner values of one
/// layer. The forward pass is computed twice.
///
///  * Arguments and results are values, or tuples or structs of values. `f` may capture and read other values.
///  * Calls can be nested: if a recomputed function calls others, the values of only one inner call are held at a
///    time.
///  * Calls can be in loops, conditionals, vmap and manual regions, and can contain these. A loop keeps its carried
///    values and recomputes its body in any case.
///  * If the loss itself is a result of the call, the call is not computed twice, because its values would be needed
///    again immediately.
///  * Values have the same bits as without recompute if `f` computes the same results from the same arguments.
///    Without a gradient the result is the same as calling `f`.
///
/// The recomputed operators read an `optimization_barrier` of each value that `f` reads. Therefore the planner does not
/// merge the recomputed operators with the original ones.
///
/// **Communication.** The backward pass repeats the communication of `f`. A weight that `f` gathers is gathered again,
/// as in fully sharded data parallelism.
/// **Errors.** Compile error: no arguments, or an argument that is not a value.
/// **Example.**
///
///     auto loss = [](value x, auto layers) { for (auto& w : layers) x = recompute(layer)(x, w); return sum(x * x); };
///     auto g = grad(loss(x, layers), layers);
template <class F>
constexpr auto recompute(F f) {
  return detail::recomputed_function<F>{std::move(f)};
}

/// Returns `x` as a new value. Operators on the new value are recomputed, even if the same operators on `x` exist. If
/// `x` was gathered, the users of the new value gather it again. XLA has an operator of the same name.
///
/// The new value follows up to seven values of `after` in the program. A plan that needs less memory may move it. Equal
/// barriers are merged. A barrier of a loop-invariant value is computed before the loop. It copies nothing. The
/// gradient passes to `x` unchanged.
///
/// **Communication.** None.
/// **Errors.** Compile error, or gspmd::error at run time: more than seven values in `after`.
/// **Example.**
///
///     auto late = optimization_barrier(w, std::array{gradient});   // gathered when the gradient exists, not before
constexpr value optimization_barrier(value x, detail::span<const value> after = {}, location at = location::current()) {
  if (!x.is_valid()) return x;
  detail::constant_vector<int> behind;
  for (const value& v : after)
    if (v.is_valid() && v.graph() == x.graph()) behind.push_back(v.id());
  constexpr std::size_t most = detail::max_map_arity - 1;  // the first operand is x
  if (behind.size() > most) {
    x.graph()->fail(at, "optimization_barrier", detail::mistake::operand_count,
                    detail::text("follows ")
                        << static_cast<std::int64_t>(behind.size()) << " values, and may follow "
                        << static_cast<std::int64_t>(most) << "; name the last of these values, or a barrier of some values");
    return x;
  }
  return detail::made(detail::add_barrier(*x.graph(), x.id(), detail::span<const int>(behind.data(), behind.size()), at), x);
}

}  // namespace gspmd
