// SPDX-License-Identifier: Apache-2.0
// alone: yes
// expect: gspmd: an elementwise operator states every fact
// expect: hypot_op
// expect: O::gradient
#include <gspmd/extend/elementwise.hpp>
#include <gspmd/gspmd.hpp>

// An elementwise operator without a gradient. static/complete_operator.cpp checks all other facts.
using namespace gspmd;
using namespace gspmd::extend;

struct hypot_op : elementwise_struct,
                  keeps_type,
                  not_folded,
                  needs_function,
                  any_role,
                  vectorised_everywhere,
                  one_flop,
                  regards_sign,
                  reduces_operands {
  static constexpr const char* name = "hypot";
  static constexpr int operands = 2;
  static constexpr dtype_set defined = defined_for::real_floats;
  static constexpr bool is_exact = false;
  static constexpr extend::kernel_home kernels = kernels_of_program();
  template <class T>
  static T value(T a, T b) {
    return sqrt_op::value(a * a + b * b);
  }
#ifdef FIXED
  static constexpr void gradient(gradient_builder& b, const node&) {
    const term share = b.dy() / b.y();
    b.send(0, share * b.in(0));
    b.send(1, share * b.in(1));
  }
#endif
};

constexpr value hypot(operand a, operand b) { return extend::elementwise<hypot_op>({a, b}); }  // <- here

int main() {}
