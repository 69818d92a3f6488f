// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// labels: planner
// Built at run time, a program throws the text that compilers print for a mistake in the explicit mode
// (compile_fail/typed_mistakes.cpp).
#include <doctest/doctest.h>

#include <string>
#include <tuple>
#include <type_traits>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/strict_program.hpp>

#include "support/error_of.hpp"
#include "support/typed_mistakes.hpp"

using namespace gspmd;

namespace {

using namespace typed_mistakes;

template <class T, class Dims, class Mesh, class... Parts>
value given(dynamic::builder& b, dynamic::strict_program& p, std::type_identity<tensor<T, Dims, place<Mesh, Parts...>>>) {
  std::vector<std::int64_t> shape;
  for (const auto e : Dims::value) shape.push_back(e);
  const value x = b.input(dynamic::input<T>(shape));
  const auto parts = detail::parts_of_place<Parts...>(b.mesh().info(), Dims::rank);
  dynamic::value_states s;
  for (int a = 0; a < 2; ++a)
    s.on.push_back((parts.layout.partial & detail::axis_bit(a)) != 0   ? detail::partial_by(parts.layout.reduced_by)
                   : (parts.layout.replica & detail::axis_bit(a)) != 0 ? axis_state{state::replica}
                                                                       : axis_state{state::invariant});
  for (const auto& use : parts.layout.splits) s.order.emplace_back(use.axis, use.dim);
  p.input(x, s);
  return x;
}

template <class Program>
struct both_ways;
template <auto Callable, class... Inputs>
struct both_ways<program<Callable, Inputs...>> {
  static std::string when_compiled() { return std::string(detail::trace_program<Callable, pod, Inputs...>().error.view()); }
  static std::string when_run() {
    return caught::error_of([] {
      dynamic::builder b(dynamic::mesh({{"x", 2}, {"y", 2}}));
      dynamic::strict_program p(b, "");
      const std::tuple inputs{given(b, p, std::type_identity<Inputs>{})...};
      b.output(std::apply(Callable, inputs));
      static_cast<void>(p.compile());
    });
  }
};

}  // namespace

TEST_CASE("a mistake in the explicit mode has one text, compiled or run") {
  const auto check = [](auto program) {
    using both = both_ways<decltype(program)>;
    const std::string text = both::when_compiled();
    CHECK(text.find(" at typed_mistakes.hpp:") != std::string::npos);
    CHECK(both::when_run() == "gspmd: " + text);
  };
  check(state_conflict{});
  check(partial_varying_mix{});
  check(partial_nonlinear{});
  check(partial_rounded{});
  check(partial_affine{});
  check(partial_affine_bias{});
  check(partial_product{});
  check(partial_denominator{});
  check(wrong_target{});
  check(needs_communication{});
  check(elementwise_conflict{});
  check(ambiguous_contraction{});
  check(batch_mismatch{});
  check(op_on_whole_dim{});
  check(axis_used_twice{});
  check(axis_order{});
  check(out_spec_mismatch{});
  check(carry_mismatch{});
  check(branch_mismatch{});
  check(loss_state{});
}
