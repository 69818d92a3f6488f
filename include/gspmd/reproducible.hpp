// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include "gspmd/detail/passes/rewrite/reproduce.hpp"
#include "gspmd/detail/support/callable.hpp"
#include "gspmd/ops/reduce.hpp"
#include "gspmd/ops/traced_body.hpp"

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__)
#error \
    "gspmd: reproducible.hpp: the compiler may reorder additions (-ffast-math, -fassociative-math), by which sums are cut; compile without"
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
      static_assert(written_so<F>, "gspmd: reproducible: the function returns values: one, or a tuple or struct of them");
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
    reproducer again(g, first);
    again.run();
    for_each_leaf(result, [&](value& x) {
      if (!g.failed() && x.is_valid() && x.graph() == &g) x = {&g, again.now(x.id())};
    });
    return result;
  }
};

}  // namespace detail

/// A function that gives what `f` gives, with the same bits on every mesh, with every sharding, on every backend and number of processes, on
/// the run-time path as on the compiled one: wherever the same binary runs, equal bits of arguments give equal bits of results. Which NaN a NaN
/// is is not part of that.
///
///     auto total = reproducible([](value x) { return sum(x); })(x);
///     constexpr auto step = reproducible([](auto x, auto w) { ... grad(loss, w) ... });     // compile<step, pod, ...>
///
/// Everything that adds up floats within `f` is computed so: sums, means and norms, einsums and convolutions, cumsum, sum_pool, scatter_add,
/// those of loops and conditionals, and those of gradients that are taken within `f`. Take them there: the gradient of a sum may be taken outside too, that of a
/// product is refused there. Elementwise operators round each element alike wherever it is; integers and maxima need nothing.
///
/// How: x is cut into parts that are multiples of a grid, a power of two that follows from the largest element, and parts have as few digits that
/// doubles hold every sum of them: no addition rounds, so that none needs an order (Demmel and Nguyen 2013; for products Ozaki et al. 2012). With p digits, 24 of a
/// float, and n terms, what is lost of a sum is at most 2^-p of the largest element, before one rounding to the result's type, and of a product
/// n 2^-p of the largest elements' product. Elements along other dims than those summed have a largest element of their own; those of a
/// convolution, cumsum, sum_pool and scatter_add have one for the tensor.
///
/// Warning: elements that are smaller than 2^-p of that largest one may be lost, also in results in which it does not stand or is multiplied
/// by 0. The product [1e30, 1] . [0, 1] of floats is 0, and so is the 1 of a cumsum of [1, 1e30]. A plain product, convolution, cumsum, pool
/// or scatter keeps them: scale rows of such sizes before, or leave those operators outside.
///
/// A sum has k parts: 1 for up to 2^14 floats, 2 to 2^27; 2 for up to 2^18 doubles, 3 to 2^27. It reads x twice, the first time for the largest
/// and the least element, and sends 2 elements and k doubles in the place of 1 element, in two messages in the place of one. A product of
/// floats has 2 parts and takes 3 products of doubles, one of doubles 3 parts (4 from 2^13 terms on) and 6 products (10); operands are held
/// as k tensors of doubles, and k doubles are sent in the place of 1 element, beside the largest elements of rows and columns.
///
/// An infinity or a NaN is in the sums that it is added to, and in no others, as always. Of a product whose operands have one the row and
/// column are NaN, and of a convolution the whole result. A sum of zeros is +0. Errors: `f` has a manual
/// region or stands in one, or in a program of explicit axes; operators whose bits depend on the plan and that are not sums: products of elements
/// (reduce by multiply), attention, fft, functions of your own (local_op, reduce_by); floats that are given as terms; more than 2^40 terms;
/// at compile time: no arguments, or one that is no value. A header that includes this one is not compiled with -ffast-math. The loop that a
/// `map` of yours stands in is compiled as your flags say: with GCC for processors with FMA say -ffp-contract=off.
template <class F>
constexpr auto reproducible(F f) {
  return detail::reproducible_function<F>{std::move(f)};
}

/// The same of a whole program that is built by calls, when its outputs are there; the values that the builder gave are none any more. `builder`
/// is a dynamic::builder.
///
///     b.output(sum(x));   make_reproducible(b);   auto step = b.compile();
template <class Builder>
  requires requires(Builder& b) { b.graph(); }
void make_reproducible(Builder& builder) {
  if (!builder.graph().failed() && !builder.graph().nodes.empty()) detail::reproducer(builder.graph(), 0).run();
}

/// sum(x, dims) so: `reproducible` says how, and what is sent.
///
///     auto energy = reproducible_sum(u * u);      // the same on 1 and on 64 ranks
constexpr value reproducible_sum(value x, detail::dim_list dims = {}, location at = location::current()) {
  return reproducible([&](value y) { return sum(y, dims, at); })(x);
}

}  // namespace gspmd
