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
    "gspmd: reproducible.hpp: the compiler may reorder additions (-ffast-math, -fassociative-math), so exact sums are wrong; compile without these options"
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
      static_assert(written_so<F>,
                    "gspmd: reproducible: the arguments of the function are values, or tuples or structs of values, and at least "
                    "one; capture other arguments");
      const auto refused = unlooped(arguments...);
      if constexpr (call::compiles) return f(arguments...);
      else return refused;
    } else if constexpr (call::refuses) {
      static_assert(
          written_so<F>,
          "gspmd: reproducible: the function does not accept these arguments; call it with the arguments that it takes");
      return unlooped(arguments...);
    } else if constexpr (!call::compiles) {
      return unlooped(arguments...);  // a mistake in the function, which the compiler has reported
    } else if constexpr (!is_values<typename call::result>) {
      static_assert(written_so<F>, "gspmd: reproducible: the function returns a value, or a tuple or struct of values");
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

/// Returns a function with the results of `f`, whose bits are the same on every mesh, with every sharding, backend and
/// number of processes. Compiled programs and programs planned at run time have the same bits too. If the same binary
/// runs, arguments with equal bits give results with equal bits. The bits of a NaN are excluded.
///
/// All sums of floats in `f` are rewritten: sums, means and norms, einsums, convolutions, cumsum, sum_pool and
/// scatter_add, also in loops and conditionals and in gradients taken in `f`. Take gradients in `f`. The gradient of a
/// sum can also be taken outside; the gradient of a product is refused there. Elementwise operators round each element
/// in the same way everywhere. Integers need no change. Maxima, minima and gathers of floats are exact, and a zero in
/// their results is +0.
///
/// **Method.** x is cut into parts. The elements of a part are multiples of a power of two that depends on the largest
/// element. A part has few enough digits that doubles hold all sums of its elements exactly. No addition rounds, so the
/// order does not matter.
///
/// **Accuracy.** Let p be the number of digits of the type, 24 for float, and n the number of terms. A sum loses at
/// most 2^-p of the largest element. A product loses at most n 2^-p of the product of the largest elements of its
/// operands. Then the result is rounded once to its type. Each sum uses the largest element along the dims that it
/// sums. A convolution, cumsum, sum_pool or scatter_add uses the largest element of the tensor.
///
/// **Warning.** Elements smaller than 2^-p of the largest element can be lost. This includes results that do not
/// contain the largest element, or multiply it by 0. The product [1e30, 1] . [0, 1] of floats is 0, and the 1 in a
/// cumsum of [1, 1e30] becomes 0. A plain product, convolution, cumsum, pool or scatter keeps these elements. Scale the
/// rows first, or leave these operators outside.
///
/// **Cost.** A sum has k parts: 1 for up to 2^14 floats, 2 for up to 2^27; 2 for up to 2^18 doubles, 3 for up to 2^27.
/// It reads x twice, first for the largest and the least element. A product of floats has 2 parts and takes 3 products
/// of doubles. A product of doubles has 3 parts and takes 6 products; from 2^13 terms on it has 4 parts and takes 10
/// products. Operands are held as k tensors of doubles.
///
/// **Infinities and NaNs.** An infinity or a NaN is in the sums that contain it, and in no other sum. An infinity or a
/// NaN in an operand of a product makes its row or column of the result NaN. In an operand of a convolution it makes
/// the whole result NaN. A sum of zeros is +0.
///
/// **Compiler flags.** A file that includes this header does not compile with -ffast-math. Your flags apply to the loop
/// around a function that you pass to `map`. With GCC, for processors with FMA, pass -ffp-contract=off.
///
/// **Communication.** A sum sends 2 elements and k doubles in two messages, instead of 1 element in one message. A
/// product sends k doubles instead of 1 element, and the largest elements of rows and columns.
/// **Errors.** Compile error: no arguments, or an argument that is not a value. Compile error, or gspmd::error at run
/// time:
///  * `f` contains a manual region or is called in one, or the program has explicit axes
///  * operators that are not sums and have bits that depend on the plan: products of elements (reduce by multiply),
///    attention, fft, your own functions (local_op, reduce_by)
///  * inputs of floats that are partial
///  * more than 2^40 terms
///
/// **Example.**
///
///     auto total = reproducible([](value x) { return sum(x); })(x);
///     constexpr auto step = reproducible([](auto x, auto w) { ... grad(loss, w) ... });     // compile<step, pod, ...>
///
/// **Source.** Demmel and Nguyen 2013; for products Ozaki et al. 2012.
template <class F>
constexpr auto reproducible(F f) {
  return detail::reproducible_function<F>{std::move(f)};
}

/// Makes a whole program of a dynamic::builder reproducible. Call it after the outputs are set. Values that the builder
/// returned before are invalid afterwards.
///
/// **Example.**
///
///     b.output(sum(x));   make_reproducible(b);   auto step = b.compile();
template <class Builder>
  requires requires(Builder& b) { b.graph(); }
void make_reproducible(Builder& builder) {
  if (!builder.graph().failed() && !builder.graph().nodes.empty()) detail::reproducer(builder.graph(), 0).run();
}

/// Returns sum(x, dims), computed reproducibly. See `reproducible` for the method, accuracy and communication.
///
/// **Example.**
///
///     auto energy = reproducible_sum(u * u);      // the same on 1 and on 64 ranks
constexpr value reproducible_sum(value x, detail::dim_list dims = {}, location at = location::current()) {
  return reproducible([&](value y) { return sum(y, dims, at); })(x);
}

}  // namespace gspmd
