// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/softmax_gradient.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// Every element of the result from the same element of the operands, which are sharded alike: nothing is sent. Several become one
/// loop over the elements.
struct elementwise_op : named_by_opcode,
                        same_dims,
                        without_exchange,
                        without_movements,
                        reads_shards,
                        dims_by_number,
                        names_no_dims {
  static constexpr bool owns(opcode op) { return is_elementwise(op); }
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::loop;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};
  static constexpr replication_words replication = ordinary_replication;

  ///   negate                                   all, add; it turns a maximum into a minimum
  ///   stop_gradient                            all, every monoid
  ///   add, subtract                            all, add             x + 1 of a partial x would add 1 on every device
  ///   real, imag, conj, complex                all, add
  ///   convert from float to float              all, add             unless the user rounds: partial values may be infinite in f16, and their
  ///                                                                 sum is not. A composite or a gradient rounds each partial value
  ///   multiply                                 one, add             a product of two sums is not a sum of products
  ///   divide                                   first, add
  ///   select                                   all, every monoid    the predicate chooses
  ///   maximum, minimum, multiply, and, or      all, their own
  ///   what grows with its operand              all, maximum and minimum, if it has a value for the identity of those
  ///   what is constant almost everywhere       no gradient in any operand
  static constexpr operator_class meets(const node& n, monoid kind) {
    using enum partial_class;
    const bool is_add = kind == monoid::add, is_order = kind == monoid::maximum || kind == monoid::minimum;
    const auto only_if = [](bool holds, partial_class how) { return operator_class{holds ? how : none}; };
    switch (n.op) {
      case opcode::negate: return {is_add || (is_order && is_floating(n.type)) ? all : none, 0, is_order};
      case opcode::real:
      case opcode::imag:
      case opcode::conj:
      case opcode::complex: return only_if(is_add, all);
      case opcode::stop_gradient: return {all, 0, false, true};
      case opcode::select: return {all, 1};
      case opcode::add: return only_if(is_add || (is_order && is_floating(n.type)), is_add ? all : one);
      case opcode::subtract: return only_if(is_add || (is_order && is_floating(n.type)), is_add ? all : first);
      case opcode::multiply:
        if (is_order && is_floating(n.type)) return {scaled};
        return only_if(is_add || kind == monoid::multiply, is_add ? one : all);
      case opcode::divide: return only_if((is_add || is_order) && is_floating(n.type), is_add ? first : quotient);
      case opcode::maximum:
      case opcode::minimum: return only_if(kind == (n.op == opcode::maximum ? monoid::maximum : monoid::minimum), all);
      case opcode::and_: return only_if(kind == monoid::and_, all);
      case opcode::or_: return only_if(kind == monoid::or_, all);
      case opcode::exponential:
      case opcode::expm1:
      case opcode::tanh:
      case opcode::logistic:
      case opcode::erf:
      case opcode::cbrt:
      case opcode::relu: return only_if(is_order, all);
      case opcode::floor:
      case opcode::ceil:
      case opcode::sign: return {is_order ? all : none, is_order ? 0 : every_operand};
      case opcode::convert: {
        const bool is_linear = n.integer == 1 || n.integer == widened_term_number || (n.integer == 2 && n.in_gradient);
        return {is_add && is_linear ? all : none, is_floating(n.type) ? 0U : every_operand};
      }
      default: return is_compare(n.op) || n.type == dtype::pred ? operator_class{none, every_operand} : operator_class{};
    }
  }

  static constexpr int reads(const node& n) { return n.operands.count; }
  static constexpr bool is_made_again(const node& n) { return n.op == opcode::convert && n.integer != widened_term_number; }
  static constexpr bool may_go_round_ring(const node&) { return false; }
  /// 1 for every element of the result, whatever the function.
  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program& p, const instruction& op) {
    return saturating_elements(p.value(op.result).local);
  }
  static constexpr scalar_op in_loop(const graph& g, const node& n) {
    scalar_op s;
    s.op = n.op;
    s.type = n.type;
    s.operand_type = operand_of(g, n, n.op == opcode::select ? 1 : 0).type;
    s.function = n.function;
    return s;
  }
  static constexpr dim_places lies_along(const graph&, const node&) { return {}; }
  static constexpr void lower(lowering&, const instruction&) {}
  static void describe(std::string&, const plan_view&, const plan_step*) {}

  static constexpr void gradient(gradient_builder& b, const node& n) {
    if (give_softmax(b)) return;
    const term y = b.y(), dy = b.dy();
    const auto pick = [](term pred, term a, term c) { return term::of(opcode::select, pred, a, c); };
    switch (n.op) {
      // The gradient by a complex z = a + bi is dL/da - i dL/db while it is passed on, so that what is analytic has its own derivative;
      // who asks for it gets the conjugate, in whose direction L grows (see grad).
      case opcode::abs:
        if (is_complex(b.in_type(0))) b.send(0, pick_zero(b, y, dy));
        else b.send(0, dy * term::of(opcode::sign, b.in(0)));
        break;
      case opcode::real: b.send(0, term::of(opcode::complex, dy, dy.number(0))); break;
      case opcode::imag: b.send(0, term::of(opcode::complex, dy.number(0), -dy)); break;
      case opcode::conj: b.send(0, term::of(opcode::conj, dy)); break;
      case opcode::complex:
        b.send(0, term::of(opcode::real, dy));
        b.send(1, -term::of(opcode::imag, dy));
        break;
      case opcode::negate: b.send(0, -dy); break;
      case opcode::exponential: b.send(0, dy * y); break;
      case opcode::log: b.send(0, dy / b.in(0)); break;
      case opcode::sqrt: b.send(0, dy * 0.5 / y); break;
      case opcode::rsqrt: b.send(0, dy * -0.5 * (y / b.in(0))); break;
      case opcode::tanh: b.send(0, dy * (1.0 - y * y)); break;
      case opcode::logistic: b.send(0, dy * (y * (1.0 - y))); break;
      case opcode::relu:  // y > 0 where x > 0, and x need not live on
        b.send(0, pick(term::of(opcode::compare_gt, y, y.number(0)), dy, dy.number(0)));
        break;
      case opcode::sine: b.send(0, dy * term::of(opcode::cosine, b.in(0))); break;
      case opcode::expm1: b.send(0, dy * (y - -1.0)); break;
      case opcode::log1p: b.send(0, dy / (b.in(0) - -1.0)); break;
      case opcode::erf: b.send(0, dy * (term::of(opcode::exponential, -(b.in(0) * b.in(0))) * 0x1.20dd750429b6dp+0)); break;
      case opcode::erf_inv: b.send(0, dy * (term::of(opcode::exponential, y * y) * 0x1.c5bf891b4ef6bp-1)); break;
      case opcode::cbrt: b.send(0, dy / (y * y * 3.0)); break;
      case opcode::remainder:  // x - y * trunc(x / y)
        b.send(0, dy);
        b.send(1, -(dy * ((b.in(0) - y) / b.in(1))));
        break;
      case opcode::atan2: {
        const term of_both = dy / (b.in(0) * b.in(0) + b.in(1) * b.in(1));
        b.send(0, of_both * b.in(1));
        b.send(1, -(of_both * b.in(0)));
        break;
      }
      case opcode::cosine: b.send(0, -(dy * term::of(opcode::sine, b.in(0)))); break;
      case opcode::convert: {
        const dtype from = operand_of(b.program(), n, 0).type;
        if (is_complex(n.type) && !is_complex(from)) {
          const term part = term::of(opcode::real, dy);
          b.send(0, part_of(n.type) == from ? part
                                            : b.as_term(add_elementwise(b.program(), opcode::convert, {part.id()}, n.at, from)));
          break;
        }
        b.send(0, add_elementwise(b.program(), opcode::convert, {dy.id()}, n.at, from));
        break;
      }
      case opcode::add:
        b.send(0, dy);
        b.send(1, dy);
        break;
      case opcode::subtract:
        b.send(0, dy);
        b.send(1, -dy);
        break;
      case opcode::multiply:
        b.send(0, dy * b.in(1));
        b.send(1, dy * b.in(0));
        break;
      case opcode::divide:
        b.send(0, dy / b.in(1));
        b.send(1, -(dy * y / b.in(1)));
        break;
      case opcode::maximum:
      case opcode::minimum: {  // where both are equal each gets half
        const opcode beats = n.op == opcode::maximum ? opcode::compare_gt : opcode::compare_lt;
        const term half = pick(term::of(opcode::compare_eq, b.in(0), b.in(1)), dy * 0.5, dy.number(0));
        b.send(0, pick(term::of(beats, b.in(0), b.in(1)), dy, half));
        b.send(1, pick(term::of(beats, b.in(1), b.in(0)), dy, half));
        break;
      }
      case opcode::power: {
        const term base = b.in(0), exponent = b.in(1);
        const term slope = exponent * term::of(opcode::power, base, exponent - 1.0);
        const node& written = operand_of(b.program(), n, 1);
        const bool is_never_0 = written.op == opcode::constant && written.real != 0;
        b.send(0, dy * (is_never_0 ? slope  // 0 * 0^-1 is no number
                                   : pick(term::of(opcode::compare_eq, exponent, exponent.number(0)), slope.number(0), slope)));
        const term logarithm =
            pick(term::of(opcode::compare_gt, base, base.number(0)), term::of(opcode::log, base), base.number(0));
        b.send(1, dy * (y * logarithm));
        break;
      }
      case opcode::select:
        b.send(1, pick(b.in(0), dy, dy.number(0)));
        b.send(2, pick(b.in(0), dy.number(0), dy));
        break;
      case opcode::map: give_map(b, n, dy); break;
      default: break;  // constant almost everywhere: floor, ceil, sign, comparisons; stop_gradient, which says so
    }
  }

 private:
  /// The gradient of abs: dy conj(z) / |z|, and 0 where z is 0.
  static constexpr term pick_zero(gradient_builder& b, term y, term dy) {
    const term is_zero = term::of(opcode::compare_eq, y, y.number(0));
    const term ratio = dy / term::of(opcode::select, is_zero, y.number(1), y);
    return term::of(opcode::complex, ratio, ratio.number(0)) * term::of(opcode::conj, b.in(0));
  }
  static constexpr void give_map(gradient_builder& b, const node& n, term dy) {
    if (n.function->derivatives == nullptr) {
      b.program().fail(n.at, "map", mistake::no_derivative, "has no derivative; pass with_derivative(f, df...) instead of f");
      return;
    }
    const span<const int> operands(n.operands.begin(), static_cast<std::size_t>(n.operands.count));
    for (int k = 0; k < n.operands.count; ++k)
      b.send(k,
             dy * b.as_term(add_elementwise(b.program(), opcode::map, operands, n.at, dtype::f32, n.function->derivatives[k])));
  }
};

}  // namespace gspmd::detail
