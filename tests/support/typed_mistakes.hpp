// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gspmd/gspmd.hpp>
#include <gspmd/modes/tensor.hpp>
#include <gspmd/transform/grad.hpp>

/// One program of the explicit mode for each kind of mistake, and for bugs of other systems. The compilers' messages
/// (compile_fail/typed_mistakes.cpp) are equal to the exceptions of programs that are built at run time
/// (tests/detail/passes/typed/typed_mistakes.cpp).
namespace typed_mistakes {

using namespace gspmd;

using pod = mesh<axis<"x", 2>, axis<"y", 2>>;
template <class... Parts>
using at = tensor<float, shape<6, 4>, place<pod, Parts...>>;
template <class... Parts>
using square = tensor<float, shape<4, 4>, place<pod, Parts...>>;

/// A program in the form that compilers see.
template <auto Callable, class... Inputs>
struct program {
  using step = compile<Callable, pod, Inputs...>;
};

using invariant_one = at<split<_, _>>;
using replica_one = at<split<_, _>, replica<"x">>;
using rows = at<split<"x", _>>;
using columns = at<split<_, "x">>;
using terms = at<split<_, _>, partial<"x">>;

// The mistake of each program, named by its kind. If another system had the bug, the comment describes its cause there.
constexpr auto add = [](auto a, auto b) { return a + b; };
constexpr auto multiply = [](auto a, auto b) { return a * b; };
constexpr auto divide = [](auto a, auto b) { return a / b; };
constexpr auto product = [](auto a, auto b) { return einsum<"ab,bc->ac">(a, b); };
constexpr auto rectify = [](auto a) { return relu(a); };
constexpr auto rounded = [](auto a) { return cast<f16>(a); };
constexpr auto plus_one = [](auto a) { return a + 1.0; };
constexpr auto squares = [](auto a) { return a * a; };
constexpr auto to_maximum = [](auto a) { return reshard<partial<"x", monoid::max>>(a); };
constexpr auto first_rows = [](auto a) { return slice(a, {0, 0}, {4, 4}); };
constexpr auto by_rows = [](auto a, auto b) { return einsum<"ab,ab->a">(a, b); };
constexpr auto running_sum = [](auto a) { return cumsum(a, 0); };
constexpr auto by_columns = [](auto a, auto b) { return einsum<"ab,bc->ac">(a, b, out<split<_, "x">>{}); };
constexpr auto carried = [](auto a) {
  return fori_loop(
      2, [](value, value c) { return reshard<invariant<"x">>(c); }, a);
};
constexpr auto either = [](auto p, auto a, auto b) {
  return cond(
      p > 0.0, [](value v, value) { return v + v; }, [](value, value v) { return v + v; }, a, b);
};
constexpr auto gradient = [](auto a) { return grad(sum(a * a), a); };
constexpr auto on_no_axis = [](auto a) { return reshard<invariant<"z">>(a); };

using state_conflict = program<multiply, rows, invariant_one>;  // a norm's weight with a sharded sequence: Megatron
using partial_varying_mix = program<add, terms, columns>;       // one expert's output and a partial sum
using partial_nonlinear = program<rectify, terms>;
using partial_rounded = program<rounded, terms>;  // partial values that f16 cannot hold, although it can hold their sum
using partial_affine = program<plus_one, terms>;  // a constant counted on every device: DTensor
using partial_affine_bias = program<add, terms, replica_one>;  // a bias before the sum
using partial_product = program<squares, terms>;
using partial_denominator = program<divide, replica_one, terms>;  // a mean of local means: counts are partial: Megatron
using wrong_target = program<to_maximum, terms>;
using needs_communication = program<first_rows, rows>;
using elementwise_conflict = program<add, rows, columns>;
using ambiguous_contraction = program<product, columns, square<split<_, _>, replica<"x">>>;
using batch_mismatch = program<by_rows, rows, replica_one>;
using op_on_whole_dim = program<running_sum, rows>;
using axis_used_twice = program<product, rows, square<split<_, "x">>>;
using axis_order = program<add, at<split<"x,y", _>>, at<split<"y,x", _>>>;
using mesh_mismatch = program<squares, tensor<float, shape<6, 4>, place<mesh<axis<"x", 4>>>>>;
using rank_mismatch = program<squares, at<split<"x">>>;
using unbound_axis = program<on_no_axis, rows>;
using out_spec_mismatch = program<by_columns, rows, square<split<_, _>, replica<"x">>>;
using carry_mismatch = program<carried, replica_one>;
using branch_mismatch = program<either, tensor<float, shape<>, place<pod>>, replica_one, invariant_one>;
using loss_state = program<gradient, replica_one>;

}  // namespace typed_mistakes
