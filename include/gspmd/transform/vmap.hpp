// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "gspmd/detail/passes/vmap/vectorize.hpp"
#include "gspmd/detail/support/callable.hpp"
#include "gspmd/ops/traced_body.hpp"

namespace gspmd {

/// Use it instead of a dim of `vmap`, for an argument that all examples share, or a result that does not depend on
/// them.
inline constexpr int not_mapped = std::numeric_limits<int>::min();

/// The dim along which results of a function under `vmap` are stacked: one number for all results, or one for each
/// value that the function returns. Negative numbers count from the end. Without out_dims it is dim 0, and a result
/// that does not depend on the examples is repeated.
template <int... Dims>
struct out_dims {};

namespace detail {

template <int... Dims>
struct in_dims {};

/// The dims of the examples in the arguments of a mapped function, leaf by leaf, and the number of examples.
class mapped_arguments {
 public:
  constexpr mapped_arguments(graph& g, location at) : g_(g), at_(at) {}

  /// Adds the dims of all leaves of argument `number`.
  constexpr void add(const detail::constant_vector<value>& leaves, int dim, int number) {
    for (const value& x : leaves) {
      if (dim == not_mapped) {
        dims_.push_back(-1);
        continue;
      }
      const int d = counted_dim(dim, x.rank());
      dims_.push_back(d);
      if (d < 0 || d >= x.rank()) {
        g_.fail(at_, "vmap", mistake::dim,
                text("argument ") << number << " is " << shape_text(x.shape()) << " and has no dim " << dim
                                  << " to be mapped along; name one that it has, or not_mapped");
        continue;
      }
      if (size >= 0 && x.shape()[d] != size)
        g_.fail(at_, "vmap", mistake::extent,
                text("there are ") << size << " examples along dim " << first_dim_ << " of argument " << first_ << ", and "
                                   << x.shape()[d] << " along dim " << d << " of argument " << number << ' '
                                   << shape_text(x.shape()) << "; the mapped dims of all arguments have one extent");
      if (size >= 0) continue;
      size = x.shape()[d];
      first_ = number;
      first_dim_ = d;
    }
  }
  /// Returns the dim of the next leaf, or -1 if all examples share the leaf. Continues with the first leaf after the
  /// last one.
  constexpr int next() {
    const int dim = dims_[next_++];
    if (next_ == dims_.size()) next_ = 0;
    return dim;
  }

  std::int64_t size = -1;

 private:
  graph& g_;
  location at_;
  detail::constant_vector<int> dims_;
  std::size_t next_ = 0;
  int first_ = 0, first_dim_ = 0;
};

/// The dims along which results are stacked.
struct stacked_results {
  graph& g;
  location at;
  detail::constant_vector<int> dims;

  constexpr void check(const detail::constant_vector<value>& results) const {
    if (dims.size() > 1 && dims.size() != results.size())
      g.fail(at, "vmap", mistake::operand_count,
             text("out_dims names ") << static_cast<std::int64_t>(dims.size()) << " dims, and the function returns "
                                     << static_cast<std::int64_t>(results.size())
                                     << " values; name one for all, or one for each");
    for (std::size_t k = 0; k < results.size(); ++k)
      if (!results[k].is_valid() || results[k].graph() != &g || !g.is_visible(results[k].id()))
        g.fail(at, "vmap", mistake::other,
               text("result ") << static_cast<std::int64_t>(k) << " is no value of this program; return results of operators");
  }
  constexpr value stacked(vectorizer& examples, value x, std::size_t k) const {
    const int dim = dims.empty() ? 0 : dims[dims.size() == 1 ? 0 : k];
    const auto fail = [&](mistake rule, const text& what) {
      return made(g.fail(at, "vmap", rule, text("result ") << static_cast<std::int64_t>(k) << ' ' << what), x);
    };
    const bool depends = examples.depends(x.id());
    if (dim == not_mapped && depends)
      return fail(mistake::other,
                  "depends on a mapped argument, and out_dims names it not_mapped; name the dim that is to count the examples");
    if (dim == not_mapped) return {&g, examples.shared(x.id())};
    if (!dims.empty() && !depends)
      return fail(mistake::other,
                  text("does not depend on a mapped argument, and out_dims requests its dim ")
                      << dim << "; write not_mapped in out_dims, and repeat the result with broadcast_in_dim if necessary");
    const int rank = x.rank() + 1, d = counted_dim(dim, rank);
    if (d < 0 || d >= rank)
      return fail(mistake::dim, text("is ") << shape_text(x.shape()) << ", and with the examples of rank " << rank
                                            << ": there is no dim " << dim << " for them");
    const int id = add_moved_dim(g, examples.stacked(x.id()), 0, d, at);
    return id < 0 ? x : value(&g, id);
  }
};

template <class F, class In, class Out>
struct mapped_function;

template <class F, int... In, int... Out>
struct mapped_function<F, in_dims<In...>, out_dims<Out...>> {
  F f;
  location at;

  template <class... Arguments>
  constexpr auto operator()(const Arguments&... arguments) const {
    using call = call_with<const F&, const Arguments&...>;
    if constexpr (sizeof...(Arguments) == 0 || !(is_values<Arguments> && ...)) {
      static_assert(
          written_so<F>,
          "gspmd: vmap: the arguments of the function are values, or tuples or structs of values; capture other arguments");
      return unlooped(arguments...);
    } else if constexpr (call::refuses) {
      static_assert(written_so<F>,
                    "gspmd: vmap: the function does not accept these arguments; it gets one example of each mapped argument");
      return unlooped(arguments...);
    } else if constexpr (!call::compiles) {
      return unlooped(arguments...);  // a mistake in the function, which the compiler has reported
    } else if constexpr (!is_values<typename call::result>) {
      static_assert(written_so<F>, "gspmd: vmap: the function returns a value, or a tuple or struct of values");
      return unlooped(arguments...);
    } else if constexpr (sizeof...(In) != 0 && sizeof...(In) != sizeof...(Arguments)) {
      static_assert(
          written_so<F>,
          "gspmd: vmap: name one dim for each argument, vmap<0, not_mapped>(f), or none, and all are mapped along dim 0");
      return like_result(unlooped(arguments...), arguments...);
    } else if constexpr (sizeof...(In) != 0 && ((In == not_mapped) && ...)) {
      static_assert(written_so<F>,
                    "gspmd: vmap: no argument is mapped; name a dim of an argument, or call the function without vmap");
      return like_result(unlooped(arguments...), arguments...);
    } else {
      return mapped(arguments...);
    }
  }

 private:
  template <class... Arguments>
  constexpr auto mapped(Arguments... arguments) const {
    using result_type = typename call_with<const F&, const Arguments&...>::result;
    graph* const found = graph_of(arguments...);
    if (found == nullptr) return result_type(f(arguments...));
    graph& g = *found;
    mapped_arguments given(g, at);
    const detail::constant_vector<int> in{In...};
    int number = 0;
    ((given.add(leaves_of(arguments), in.empty() ? 0 : in[static_cast<std::size_t>(number)], number), ++number), ...);
    if (g.failed()) return refused(g, given, arguments...);
    detail::constant_vector<int> leading;
    const auto lead = [&](const value& x) {
      const int dim = given.next();
      leading.push_back(dim < 0 ? x.id() : add_moved_dim(g, x.id(), dim, 0, at));
    };
    (for_each_leaf(arguments, lead), ...);
    vectorizer examples(g, given.size, at);
    std::size_t k = 0;
    const auto take = [&](value& x) {
      if (const int dim = given.next(); dim >= 0)
        x = made(g, examples.add_example(x.id(), leading[k], dim), x.type(), row_of(x, dim));
      ++k;
    };
    (for_each_leaf(arguments, take), ...);
    result_type result = call(arguments...);
    const stacked_results results{g, at, {Out...}};
    const auto leaves = leaves_of(result);
    results.check(leaves);
    detail::constant_vector<int> ids;
    for (const value& x : leaves) ids.push_back(x.id());
    if (!g.failed()) examples.run(ids);
    k = 0;
    for_each_leaf(result, [&](value& x) {
      x = g.failed() ? stand_in(x, given.size) : results.stacked(examples, x, k);
      ++k;
    });
    if (!g.failed()) examples.finish();
    return result;
  }
  template <class... Arguments>
  constexpr auto call(const Arguments&... arguments) const {
    return f(arguments...);
  }
  /// Returns a result of the right form for a call that is refused. The compiler has already reported the error.
  template <class Reported, class... Arguments>
  constexpr auto like_result(const Reported&, const Arguments&... arguments) const {
    return call(arguments...);
  }
  /// Returns a placeholder for the result of a refused call, so that the code after it does not report a second
  /// mistake.
  template <class... Arguments>
  constexpr auto refused(graph& g, mapped_arguments& given, Arguments&... arguments) const {
    const auto take = [&](value& x) {
      if (const int dim = given.next(); dim >= 0) x = {&g, g.add_stand_in(x.type(), row_of(x, dim))};
    };
    (for_each_leaf(arguments, take), ...);
    auto result = call(arguments...);
    for_each_leaf(result, [&](value& x) { x = stand_in(x, given.size); });
    return result;
  }
  static constexpr extents row_of(value x, int dim) {
    extents shape;
    for (int d = 0; d < x.rank(); ++d)
      if (d != dim) shape.push_back(x.shape()[d]);
    return shape;
  }
  static constexpr value stand_in(value x, std::int64_t size) {
    if (!x.is_valid()) return x;
    extents shape = x.shape();
    if (shape.count < max_rank) shape.insert(0, size < 0 ? 1 : size);
    return {x.graph(), x.graph()->add_stand_in(x.type(), shape)};
  }
};

}  // namespace detail

/// Returns a function of many examples, made from a function `f` of a single example (JAX's vmap). Its arguments have
/// one more dim. Its result is the result of `f` for each example, stacked.
///
/// Write `f` in the global view, with the dims of a single example. It is traced once. Operators that depend on an
/// example compute all examples together; other operators are computed once.
///
///  * Template arguments: a dim for each argument, the same for all tensors of a group. Negative dims count from the
///    end. Without template arguments it is dim 0 of all arguments.
///  * The dim of the examples is an ordinary dim. If it is split over a mesh axis, each device has its own examples.
///    Annotations and reshards in `f` name the dims of a single example, and do not change the sharding of the dim of
///    the examples. vmap also works in the explicit mode and in manual regions.
///  * vmap can be nested, and combined with grad: grad in `f` gives the gradients of each example.
///  * In a loop all examples iterate together. If the predicate of a cond depends on the example, both branches are
///    computed, and the result is selected (GSPMD 3.3, JAX). A while_loop continues as long as one example does.
///  * Random numbers from one key are the same for all examples. Map the keys if they should differ.
///
/// **Communication.** None for the dim of the examples, except in a while_loop: each iteration computes an or over the
/// examples.
/// **Errors.** Compile error, or gspmd::error at run time:
///  * no argument is mapped, or a dim does not exist
///  * mapped dims have different extents
///  * out_dims names a dim for a result that does not depend on an example, or not_mapped for a result that does
///  * a tensor in `f` has more than 31 dims
///  * a local_op depends on an example
///
/// **Example.**
///
///     y = vmap(f)(x);                              // x [n,d], f: [d] -> [k], y [n,k]
///     y = vmap<0, not_mapped>(f)(x, w);            // all examples see one w
///     y = vmap<1>(f, out_dims<-1>{})(x);           // examples are columns, of the result too
///     auto y = vmap<0, not_mapped>([](value x, value w) { return tanh(einsum<"d,df->f">(x, w)); })(x, w);
template <int... Dims, class F, int... Out>
constexpr auto vmap(F f, [[maybe_unused]] out_dims<Out...> along = {}, location at = location::current()) {
  return detail::mapped_function<F, detail::in_dims<Dims...>, out_dims<Out...>>{std::move(f), at};
}

}  // namespace gspmd
