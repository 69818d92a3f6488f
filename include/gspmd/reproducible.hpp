// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include "gspmd/detail/passes/rewrite/reproduce.hpp"
#include "gspmd/detail/support/callable.hpp"
#include "gspmd/ops/reduce.hpp"
#include "gspmd/ops/traced_body.hpp"

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__)
#error "gspmd: reproducible.hpp: the compiler may reorder additions (-ffast-math, -fassociative-math), by which sums are cut; compile without"
#endif
#if defined(__FLT_EVAL_METHOD__) && (__FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2)
#error "gspmd: reproducible.hpp: doubles are computed in more digits than they have (x87); compile with -mfpmath=sse -msse2"
#endif

namespace gspmd {
namespace detail {

template <class F>
struct reproducible_function {
  F f;

  template <class... Arguments>
  constexpr auto operator()(const Arguments&... arguments) const {
    using call = call_with<const F&, const Arguments&...>;
    if constexpr (sizeof...(Arguments) == 0 || !(is_values<Arguments> && ...)) {
      static_assert(
          written_so<F>,
          "gspmd: reproducible: the arguments of the function are values, or tuples or structs of values, and there is one at "
          "least; capture what is none");
      const auto refused = unlooped(arguments...);
      if constexpr (call::compiles) return f(arguments...);
      else return refused;
    } else if constexpr (call::refuses) {
      static_assert(
          written_so<F>,
          "gspmd: reproducible: the function is called with as many arguments as it is given; call it with those that it takes");
      return unlooped(arguments...);
    } else if constexpr (!call::compiles) {
      return unlooped(arguments...);  // a mistake in the function, which the compiler has reported
    } else if constexpr (!is_values<typename call::result>) {
      static_assert(written_so<F>,
                    "gspmd: reproducible: the function returns values: one, or a tuple or struct of them");
      return unlooped(arguments...);
    } else {
      return rewritten(arguments...);
    }
  }

 private:
  template <class... Arguments>
  constexpr auto rewritten(const Arguments&... arguments) const {
    using result_type = typename call_with<const F&, const Arguments&...>::result;
    graph* const found = graph_of(arguments...);
    if (found == nullptr) return result_type(f(arguments...));
    graph& g = *found;
    const int first = static_cast<int>(g.nodes.size());
    result_type result = f(arguments...);
    if (g.failed() || static_cast<int>(g.nodes.size()) == first) return result;
    if (g.find_types != nullptr || g.open_local != 0) {
      g.fail(g.nodes[static_cast<std::size_t>(first)].at, "reproducible", mistake::region,
             "stands in a program that writes its own communication, explicit or manual; it is for those that are planned");
      return result;
    }
    reproducer again(g, first);
    again.run();
    for_each_leaf(result, [&](value& x) {
      if (!g.failed() && x.is_valid() && x.graph() == &g) x = {&g, again.now(x.id())};
    });
    return result;
  }
};

}  // namespace detail

template <class F>
constexpr auto reproducible(F f) {
  return detail::reproducible_function<F>{std::move(f)};
}

}  // namespace gspmd
