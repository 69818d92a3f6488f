// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>

#include "gspmd/detail/ir/elementwise/arithmetic.hpp"
#include "gspmd/detail/ir/elementwise/choice.hpp"
#include "gspmd/detail/ir/elementwise/order.hpp"
#include "gspmd/detail/ir/fused_group.hpp"

namespace gspmd::detail {

/// A product of complex tensors is computed as a product of real tensors. The parts of one operand are an additional
/// summed letter, and the parts of the result an additional kept letter. The other operand has both letters: at index 0
/// of the first letter it has its elements z, and at index 1 it has i z.
///
///   (a + bi) z = a z + b (i z)
///
/// Adds the computation of z and i z to a loop over [2, elements] of complex elements of `type`. Input 0 of the loop
/// has the elements z. Bound 0 is the start of the first dim. Returns the number of the register.
template <class Group>
constexpr int add_both_turns(Group& group, dtype type) {
  const auto add = [&group](const scalar_code& op, dtype of, std::initializer_list<int> args) {
    scalar_op s = scalar_op::constant(result_type(op, of, of), 0, 0);
    s.op = op;
    s.operand_type = of;
    for (const int a : args) s.args.push_back(static_cast<std::int16_t>(a));
    return group.add_op(s);
  };
  scalar_op load = scalar_op::load(type, 0), turn = scalar_op::constant(dtype::s32, 0, 0);
  load.strides = extents(2, 0);
  load.strides[1] = 1;
  turn.op = opcode::iota;  // along dim 0
  const dtype part = part_of(type);
  const int z = group.add_op(load), index = group.add_op(turn), zero = group.add_op(scalar_op::constant(dtype::s32, 0, 0));
  const int real = add(scalar_code_of<real_op>, type, {z}), imag = add(scalar_code_of<imag_op>, type, {z});
  const int turned = add(scalar_code_of<complex_op>, part, {add(scalar_code_of<negative_op>, part, {imag}), real});
  return add(scalar_code_of<where_op>, type, {add(scalar_code_of<compare_eq_op>, dtype::s32, {index, zero}), z, turned});
}

}  // namespace gspmd::detail
