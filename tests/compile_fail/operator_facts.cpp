// SPDX-License-Identifier: Apache-2.0
// mistakes: 15
// expect: leaves the result partial over a
// expect: factor of 7 and sets no reduced_by;
// expect: reduced_by to max, and meets()
// expect: takes operands that are partial by
// expect: rule() has 1 map, and the node has
// expect: rule() has 1 dim for operand 0,
// expect: factors of 8 for dim 1 of operand
// expect: is true, and rule() has a map for
// expect: a parallel factor of 7 for
// expect: an exchanged factor of 7 for
// expect: reads() is
// expect: 2, and the node has 1 operand
// expect: adds no step for the result
// expect: reduces by add
// expect: gspmd: an operator's `runs` is realisation::steps and its base without_steps has a `lower` that adds none
// expect: gspmd: an operator's `runs` is realisation::loop or strides and its base outside_of_loops
// expect: gspmd: an operator's `completes` names a round and completion has no such round
// expect: gspmd: an operator's `composes` is true and its base without_movements has no `map`
// expect: gspmd: two facts of an operator's struct contradict each other
#include <gspmd/gspmd.hpp>

#include "../extend/new_operator/largest_last.hpp"

// Operators with two contradictory facts. Each operator is largest_last with one wrong fact.
using namespace gspmd;

namespace wrong {

using gspmd::detail::graph;
using gspmd::detail::node;
using gspmd::detail::op_rule;
using new_operator::largest_last_op;

#ifdef FIXED
using no_monoid = largest_last_op;
using other_monoid = largest_last_op;
using no_map = largest_last_op;
using no_dim = largest_last_op;
using other_extent = largest_last_op;
using lost_shards = largest_last_op;
using no_collective = largest_last_op;
using not_uniform = largest_last_op;
using reads_more = largest_last_op;
using no_steps = largest_last_op;
using other_steps = largest_last_op;
#else
struct no_monoid : largest_last_op {
  static constexpr const char* name = "no_monoid";
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    largest_last_op::rule(g, n, rule);
    rule.reduced_by = {};
  }
};
struct other_monoid : largest_last_op {
  static constexpr const char* name = "other_monoid";
  static constexpr gspmd::detail::operator_class meets(const node& n, monoid kind) {
    return new_operator::sum_last_op::meets(n, kind);
  }
};
struct no_map : largest_last_op {
  static constexpr const char* name = "no_map";
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    largest_last_op::rule(g, n, rule);
    rule.maps.pop_back();
  }
};
struct no_dim : largest_last_op {
  static constexpr const char* name = "no_dim";
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    largest_last_op::rule(g, n, rule);
    rule.maps[0].first.pop_back();
  }
};
struct other_extent : largest_last_op {
  static constexpr const char* name = "other_extent";
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    largest_last_op::rule(g, n, rule);
    ++rule.factors[1].size;
  }
};
template <gspmd::detail::factor_kind Kind>
struct last_dim_is : largest_last_op {
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    largest_last_op::rule(g, n, rule);
    rule.factors[1].kind = Kind;
  }
};
struct lost_shards : last_dim_is<gspmd::detail::factor_kind::parallel> {
  static constexpr const char* name = "lost_shards";
};
struct no_collective : last_dim_is<gspmd::detail::factor_kind::exchanged> {
  static constexpr const char* name = "no_collective";
};
struct not_uniform : largest_last_op {
  static constexpr const char* name = "not_uniform";
  static constexpr bool uniform = true;
};
struct reads_more : largest_last_op {
  static constexpr const char* name = "reads_more";
  static constexpr int reads(const node&) { return 2; }
};
struct no_steps : largest_last_op {
  static constexpr const char* name = "no_steps";
  template <class Lowering>
  static constexpr void lower(Lowering&, const gspmd::detail::instruction&) {}
};
struct other_steps : largest_last_op {
  static constexpr const char* name = "other_steps";
  template <class Lowering>
  static constexpr void lower(Lowering& l, const gspmd::detail::instruction& op) {
    sum_last_op::lower(l, op);
  }
};

struct no_lower : gspmd::detail::shard_alike_op {
  static constexpr auto made = gspmd::detail::origin::shards;
  static constexpr auto runs = gspmd::detail::realisation::steps;
};
struct no_loop : gspmd::detail::transpose_op {
  static constexpr auto runs = gspmd::detail::realisation::loop;
};
struct no_round : gspmd::detail::transpose_op {
  static constexpr gspmd::detail::completion_rounds completes{.forward = 4, .backward = 0};
};
struct no_movement : gspmd::detail::transpose_op {
  static constexpr bool composes = true;
};
static_assert(gspmd::detail::checked_operator<no_lower>::holds);     // <- here
static_assert(gspmd::detail::checked_operator<no_loop>::holds);      // <- here
static_assert(gspmd::detail::checked_operator<no_round>::holds);     // <- here
static_assert(gspmd::detail::checked_operator<no_movement>::holds);  // <- here
#endif

template <class Op>
constexpr auto program =
    [](auto x) { return gspmd::detail::made(new_operator::add_last<Op>(*x.graph(), x.id(), location::current()), x); };
template <class Op>
using step = compile<program<Op>, mesh<axis<"x", 2>>, input<double, shape<5, 7>>>;
template <class Op>
using split_step = compile<program<Op>, mesh<axis<"x", 2>>, input<double, shape<5, 7>, split<"_", "x">>>;

}  // namespace wrong

int main() {
  array<double> x({5, 7});
  run<wrong::step<wrong::no_monoid>>(simulated{}, x);          // <- here
  run<wrong::step<wrong::other_monoid>>(simulated{}, x);       // <- here
  run<wrong::step<wrong::no_map>>(simulated{}, x);             // <- here
  run<wrong::step<wrong::no_dim>>(simulated{}, x);             // <- here
  run<wrong::step<wrong::other_extent>>(simulated{}, x);       // <- here
  run<wrong::step<wrong::lost_shards>>(simulated{}, x);        // <- here
  run<wrong::step<wrong::no_collective>>(simulated{}, x);      // <- here
  run<wrong::step<wrong::not_uniform>>(simulated{}, x);        // <- here
  run<wrong::step<wrong::reads_more>>(simulated{}, x);         // <- here
  run<wrong::step<wrong::no_steps>>(simulated{}, x);           // <- here
  run<wrong::split_step<wrong::other_steps>>(simulated{}, x);  // <- here
}
