// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ops/own/local.hpp"
#include "gspmd/detail/ops/own/local_holder.hpp"
#include "gspmd/detail/ops/own/map_function.hpp"
#include "gspmd/detail/run/local_function_step.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/ops/elementwise.hpp"

namespace gspmd {

/// An option of `local_op`: the reduction over letters that only operands have. The default is add.
template <monoid Kind>
struct reduces {};
/// An option of `local_op`: the element types, `types<std::int64_t(float)>` for one operand and one result. For two
/// results: `types<std::tuple<float, std::int64_t>(float)>`. By default all tensors have one type: double, float,
/// int64 or int32, if the function takes it.
template <class Signature>
struct types {};
/// An option of `local_op`: the flops for every combination of the indices of all letters. The default is 1.
template <std::int64_t Count>
struct flops {};

/// A function of blocks with its gradient, for `local_op`. g(operands..., y, dy) is called with values of the program:
/// y is the result and dy the gradient with respect to y. For two results the arguments are y0, y1, dy0, dy1. g
/// composes operators, local_ops among them, and returns the gradients with respect to the operands: one value, or a
/// tuple with one value for each operand. Return value{} for an operand without a gradient.
///
/// **Example.**
///     const auto backward = [](value x, value y, value dy) { return running_sum_from_the_right(dy); };
///     local_op<"b[t]->b[t]">(with_gradient(running_sum, backward))
template <class F, class G>
struct with_gradient : F {
  constexpr with_gradient(F f, G g) : F(std::move(f)), gradient(std::move(g)) {}
  with_gradient()
    requires(detail::is_constant_function<F> && detail::is_constant_function<G>)
  = default;
  [[no_unique_address]] G gradient;
};

namespace detail {

template <class F, class G>
inline constexpr bool is_constant_function<with_gradient<F, G>> = is_constant_function<F> && is_constant_function<G>;

template <class G, std::size_t... K, std::size_t... J>
constexpr void call_gradient(const G& gradient_of, graph& g, const int* operands, const int* results, const int* dy, int* out,
                             std::index_sequence<K...>, std::index_sequence<J...>) {
  auto given = gradient_of(value(&g, operands[K])..., value(&g, results[J])..., value(&g, dy[J])...);
  if constexpr (std::is_convertible_v<decltype(given), value>) {
    static_assert(sizeof...(K) == 1, "gspmd: local_op: give a tuple with one gradient for each operand");
    out[0] = value(given).id();
  } else {
    static_assert(std::tuple_size_v<decltype(given)> == sizeof...(K),
                  "gspmd: local_op: give a tuple with one gradient for each operand");
    ((out[K] = std::get<K>(given).id()), ...);
  }
}
template <class G, int Operands, int Results>
constexpr void constant_gradient(const void*, graph& g, const int* operands, const int* results, const int* dy, int* out) {
  call_gradient(G{}, g, operands, results, dy, out, std::make_index_sequence<static_cast<std::size_t>(Operands)>{},
                std::make_index_sequence<static_cast<std::size_t>(Results)>{});
}
template <class G, int Operands, int Results>
void object_gradient(const void* object, graph& g, const int* operands, const int* results, const int* dy, int* out) {
  call_gradient(*static_cast<const G*>(object), g, operands, results, dy, out,
                std::make_index_sequence<static_cast<std::size_t>(Operands)>{},
                std::make_index_sequence<static_cast<std::size_t>(Results)>{});
}

/// The local_function of a local_operator as a constant, so that a graph can store a pointer to it.
template <class Rule, class List, std::int64_t Flops, class F>
struct local_holder {
  static constexpr local_function function = make_local_function<List, true>(Rule::value, Flops);
};
template <class Rule, class List, std::int64_t Flops, class F, class G>
struct local_holder<Rule, List, Flops, with_gradient<F, G>> {
  static constexpr local_function function = [] {
    local_function f = make_local_function<List, true>(Rule::value, Flops);
    f.gradient = &constant_gradient<G, Rule::value.operand_count(), Rule::value.results>;
    return f;
  }();
};
template <class Rule, class F>
void add_gradient(local_function&, const F&) {}
template <class Rule, class F, class G>
void add_gradient(local_function& f, const with_gradient<F, G>& object) {
  f.gradient = &object_gradient<G, Rule::value.operand_count(), Rule::value.results>;
  f.gradient_object = &object.gradient;
}

template <class... Options>
struct local_options {
  static constexpr monoid kind = monoid::add;
  static constexpr std::int64_t flops = 1;
  using signature = void;
};
template <monoid Kind, class... Rest>
struct local_options<reduces<Kind>, Rest...> : local_options<Rest...> {
  static constexpr monoid kind = Kind;
};
template <std::int64_t Count, class... Rest>
struct local_options<gspmd::flops<Count>, Rest...> : local_options<Rest...> {
  static_assert(Count >= 0, "gspmd: local_op: flops<n> counts; n is not negative");
  static constexpr std::int64_t flops = Count;
};
template <class Signature, class... Rest>
struct local_options<types<Signature>, Rest...> : local_options<Rest...> {
  using signature = Signature;
};

template <fixed_string Text, class Rule>
struct local_syntax {
  static constexpr text make() { return equation_problem("rule", Text.view(), Rule::value.column, Rule::value.error); }
};
template <class Rule, std::size_t Given>
struct local_operand_count {
  static constexpr text make() {
    return text("local_op: operands of the rule ") << local_rule_text(Rule::value) << ": " << Rule::value.operand_count()
                                                   << ", of the call: " << static_cast<std::int64_t>(Given);
  }
};
template <class Rule, class Typed>
struct broken_law {
  static constexpr text make() { return text("local_op: ") << law_text(Rule::value, compiled_law<Typed>); }
};

/// The checks of an operator before it is made. The value is the first fault, in the order of a user's repairs.
enum class local_fault : std::uint8_t { none, rule, types, function, law };

template <class Signature>
inline constexpr int arity_of = -1;
template <class R, class... A>
inline constexpr int arity_of<R(A...)> = static_cast<int>(sizeof...(A));

template <class Rule, class F, class Signature>
struct local_facts {
  using list = boost::mp11::mp_list<>;
  static constexpr local_fault fault = Rule::value.error != nullptr ? local_fault::rule : local_fault::types;
};
template <class Rule, class F, class Signature>
  requires(Rule::value.error == nullptr && (std::is_void_v<Signature> || arity_of<Signature> == Rule::value.operand_count()))
struct local_facts<Rule, F, Signature> {
  using list = typename typed_list<Rule, F, Signature>::type;
  static constexpr local_fault find() {
    if constexpr (boost::mp11::mp_empty<list>::value) {
      return local_fault::function;
    } else if constexpr (is_constant_function<F>) {
      constexpr auto found = compiled_law<boost::mp11::mp_front<list>>.broken;
      return found == law_finding::kind::holds || found == law_finding::kind::unknown ? local_fault::none : local_fault::law;
    } else {
      return local_fault::none;
    }
  }
  static constexpr local_fault fault = find();
};

}  // namespace detail

/// A custom operator, returned by local_op. Call it with one tensor for each operand of its rule. It returns a value,
/// or an array of values if its rule has several results: `auto [quotient, rest] = divide(x, y);`
template <fixed_string Rule, class F, class... Options>
class local_operator {
  using asked = detail::local_options<Options...>;
  using rule = detail::rule_constant<Rule, asked::kind>;
  using facts = detail::local_facts<rule, F, typename asked::signature>;

 public:
  static constexpr int operand_count = rule::value.operand_count();
  static constexpr int result_count = rule::value.results;

  constexpr explicit local_operator(F f) : function_(std::move(f)) {}

  template <class... Rest>
    requires(std::is_convertible_v<Rest, operand> && ...)
  constexpr auto operator()(operand first, Rest... rest) const {
    if constexpr (facts::fault == detail::local_fault::none && sizeof...(Rest) + 1 != static_cast<std::size_t>(operand_count))
      detail::refuse<detail::mistake::operand_count, detail::local_operand_count<rule, sizeof...(Rest) + 1>>();
    if constexpr (result_count == 1) {
      return call(first, rest...)[0];
    } else {
      return call(first, rest...);
    }
  }

 private:
  using results = std::array<value, static_cast<std::size_t>(rule::value.results)>;

  template <class... Rest>
  constexpr results call(operand first, Rest... rest) const {
    constexpr auto count = 1 + sizeof...(Rest);
    const operand operands[] = {first, operand(rest, first.at)...};
    for (const auto& o : operands)
      if (!o.is_number() && !o.tensor().is_valid()) return {};
    value tensor;
    for (const auto& o : operands)
      if (!o.is_number()) tensor = o.tensor();
    detail::graph* const g = tensor.graph();
    if (g == nullptr) return {};
    if constexpr (facts::fault != detail::local_fault::none) {
      tensor.note_refused();  // the error is reported in the line that makes the operator
      return all_of(tensor);
    } else if constexpr (count != static_cast<std::size_t>(operand_count)) {
      tensor.note_refused();
      return all_of(tensor);
    } else {
      int ids[count]{};
      for (std::size_t k = 0; k < count; ++k) {
        if (operands[k].is_number()) {
          g->fail(first.at, "local_op", detail::mistake::type,
                  detail::text("operand ") << static_cast<int>(k) << " is a number; local_op takes tensors");
          return stand_in(*g, operands);
        }
        ids[k] = operands[k].tensor().id();
      }
      const auto* const f = function_in(*g);
      if (f == nullptr) {
        g->fail(first.at, "local_op", detail::mistake::other,
                "the function has a state (captures, an address), which only the run-time path of gspmd/dynamic/compile.hpp "
                "takes; give "
                "a captureless lambda");
        return stand_in(*g, operands);
      }
      const int id = detail::add_local_op(*g, *f, ids, first.at);
      if (id < 0) return stand_in(*g, operands);
      results made;
      for (int r = 0; r < result_count; ++r) made[static_cast<std::size_t>(r)] = value(g, id + r);
      return made;
    }
  }

  static constexpr bool is_constant = detail::is_constant_function<F>;

  static constexpr results all_of(const value& tensor) {
    results all;
    all.fill(tensor);
    return all;
  }
  /// Returns placeholders for the results of a refused call, with the extents of the letters in the operands.
  static constexpr results stand_in(detail::graph& g, const operand* operands) {
    detail::extents by_letter(rule::value.letters.count, 1);
    dtype type = dtype::f32;
    for (int k = 0; k < operand_count; ++k) {
      const value x = operands[k].tensor();
      const auto& letters = rule::value.tensors[k];
      if (x.is_valid()) type = x.type();
      for (int d = 0; d < letters.count && d < x.rank(); ++d) by_letter[letters[d]] = x.shape()[d];
    }
    results made;
    for (int r = 0; r < result_count; ++r) {
      detail::extents shape;
      for (const auto l : rule::value.result(r)) shape.push_back(by_letter[l]);
      made[static_cast<std::size_t>(r)] = value(&g, g.add_stand_in(type, shape));
    }
    return made;
  }

  constexpr const detail::local_function* function_in(detail::graph& g) const {
    if constexpr (is_constant) {
      return &detail::local_holder<rule, typename facts::list, asked::flops, F>::function;
    } else {
      if (g.functions == nullptr) return nullptr;
      const F* const object = g.functions->keep(function_);
      auto made = detail::make_local_function<typename facts::list, false>(rule::value, asked::flops, object);
      detail::add_gradient<rule>(made, *object);
      return g.functions->keep(made);
    }
  }

  [[no_unique_address]] F function_;
};

/// Makes a custom operator from a rule and a function of the blocks of one device. Call the operator like any other
/// operator.
///
/// **Example.**
///     constexpr auto running_sum = local_op<"b[t]->b[t]">([](auto x, auto y) {
///       for (std::int64_t i = 0; i < x.extent(0); ++i)
///         for (std::int64_t j = 0; j < x.extent(1); ++j) y(i, j) = j == 0 ? x(i, j) : y(i, j - 1) + x(i, j);
///     });
///     auto y = running_sum(x);
///
/// The rule is in einsum's notation, with 1 to 8 operands and 1 to 4 results: `mn->m[k=2],n` has two results. A letter
/// of a result may be split; then the function gets parts of the dim. A letter that a result does not have may be
/// split, too. Then the results of the function for the parts are reduced, by add or by the option `reduces<...>`.
///
/// A letter in brackets is whole on every device. An operand that is split along this letter is split along another
/// letter instead, or gathered. A gather is an error unless the call is in allow_replication(...). A letter that only
/// results have is whole, and the rule states its extent: `b[t]->b[u=t-2]`, `n->[k=5]`, `[u=2t]`, `[u=t/2+1]`. An
/// extent in an operand is a requirement: `[k=j][j]` is a square.
///
/// The function gets a local_block for each operand and then one for each result. It must write every element of the
/// results. Extents are without padding. If a device holds no element of the result, or nothing to reduce, the
/// function is not called; for a reduction the library fills in the identity. A whole letter may have extent 0. The
/// function is a captureless lambda. On the run-time path it may have captures, and the program keeps a copy. If it
/// throws, the caller gets the exception with the source line of the operator. It is compiled for double, float, int64
/// and int32, if its parameters accept them, or for the types in `types<R(A...)>`.
///
/// The operator must obey a law: for every letter that may be split, f of the parts, side by side or reduced, equals f
/// of the whole. The law is checked on small blocks before the operator is accepted. The blocks contain whole numbers
/// from -4 to 9, or the numbers that a member `samples()` of the function returns: an array of numbers, or of tuples
/// with one number for each operand. Other numbers are not checked. Integers must agree exactly, float to 1e-4 and
/// double to 1e-9 of their size.
///
/// If the compiler can run the function, it checks the law for the first element type. It reports a broken law in the
/// line that makes the operator. Otherwise, and for the other element types, the check runs later, and a gspmd::error
/// reports the same text. It runs when a program is built at run time, or when a device first runs the operator of a
/// compiled program. Functions with side effects observe the calls of the check.
///
/// The operator counts n flops of `flops<n>`, by default 1, for every combination of local indices of the letters. The
/// gradient requires `with_gradient`.
///
/// **Threads.** Devices call the function concurrently.
template <fixed_string Rule, class... Options, class F>
constexpr auto local_op(F f) {
  using asked = detail::local_options<Options...>;
  using rule = detail::rule_constant<Rule, asked::kind>;
  using facts = detail::local_facts<rule, F, typename asked::signature>;
  using detail::local_fault;
  if constexpr (facts::fault == local_fault::rule) {
    detail::refuse<detail::mistake::rule, detail::local_syntax<Rule, rule>>();
  } else if constexpr (facts::fault == local_fault::law) {
    detail::refuse<detail::mistake::law, detail::broken_law<rule, boost::mp11::mp_front<typename facts::list>>>();
  } else {
    static_assert(facts::fault != local_fault::types,
                  "gspmd: local_op: types<R(A...)> names a type for each operand of the rule");
    static_assert(
        facts::fault != local_fault::function,
        "gspmd: local_op: the function takes no element type; several devices call it concurrently, with a local_block for "
        "each operand of the rule and one for each result: it must take them also when it is const, and return nothing");
  }
  return local_operator<Rule, F, Options...>(std::move(f));
}

}  // namespace gspmd
