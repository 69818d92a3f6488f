// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>
#include <gspmd/transform/grad.hpp>

#include "support/naive_machine.hpp"

/// Programs that consist of numbered operators and collectives, for manual regions and for the naive machine.
namespace manual_law {

using namespace gspmd;

template <dim_spec A>
value apply_along(const op& o, value a) {
  switch (o.is) {
    case kind::all_reduce: return local::all_reduce<A>(a);
    case kind::all_reduce_r: return local::all_reduce<A, state::replica>(a);
    case kind::gather: return local::all_gather<A>(a, o.dim);
    case kind::gather_r: return local::all_gather<A, state::replica>(a, o.dim);
    case kind::scatter: return local::reduce_scatter<A>(a, o.dim);
    case kind::exchange: return local::all_to_all<A>(a, 1 - o.dim, o.dim);
    case kind::rotate: return local::rotate<A>(a, o.by);
    case kind::shift: return local::shift_devices<A>(a, o.by);
    case kind::reverse: return local::reverse_devices<A>(a);
    case kind::permute: {
      std::vector<local::device_pair> pairs;
      const auto n = local::axis_size<A>(a);
      for (std::int64_t k = 0; k < n; ++k)
        if (source_of(o.by, k, n) >= 0) pairs.push_back({source_of(o.by, k, n), k});
      return local::permute<A>(a, pairs);
    }
    case kind::part_r: return local::own_part<A>(a, o.dim);
    case kind::part_i: return local::own_part<A, state::invariant>(a, o.dim);
    case kind::to_replica: return local::to_replica<A>(a);
    case kind::to_varying: return local::to_varying<A>(a);
    case kind::to_partial: return local::to_partial<A>(a);
    case kind::halo: return local::halo<A>(a, 1, o.by > 0 ? 1 : 0, along(o.dim), o.by == 2);
    case kind::broadcast: return local::broadcast<A>(a, (o.by + local::axis_size<A>(a)) % local::axis_size<A>(a));
    default: return a * broadcast_in_dim(cast<double>(local::axis_index<A>(a)), {a.shape()[0], a.shape()[1]}, {});
  }
}
inline value apply(const op& o, value a, value b) {
  if ((o.is == kind::add || o.is == kind::multiply) && !(a.shape() == b.shape()))
    a.graph()->fail({}, "test", detail::mistake::other, "the naive machine stretches nothing");
  switch (o.is) {
    case kind::add: return a + b;
    case kind::multiply: return a * b;
    case kind::product: return einsum("ab,bc->ac", a, b);
    case kind::tanh: return tanh(a);
    case kind::transpose: return transpose(a, {1, 0});
    case kind::scale: return 0.5 * a;
    default: break;
  }
  return o.axis == 0 ? apply_along<"x">(o, a) : o.axis == 1 ? apply_along<"y">(o, a) : apply_along<"x,y">(o, a);
}

/// Three inputs [size,size] enter in different states. The loss is the sum of the last values.
struct program_of_devices {
  machine on;
  std::int64_t size = 6;
  int entry = 0;
  std::vector<op> ops;
  std::vector<int> outs;  // indices of the values that leave the region; earlier ops made them invariant

  template <class Spec>
  value with(value a, value b, value c) const {
    return manual<"x", "y">(
        [this](value p, value q, value r) {
          std::vector<value> v{p, q, r};
          for (const auto& o : ops) v.push_back(apply(o, v[static_cast<std::size_t>(o.a)], v[static_cast<std::size_t>(o.b)]));
          value total = einsum("ab->", v.back() * 0.0);
          for (const int o : outs) total = total + einsum("ab->", v[static_cast<std::size_t>(o)]);
          return total;
        },
        Spec{})(a, b, c);
  }
  [[nodiscard]] value build(value a, value b, value c) const {
    switch (entry) {
      case 0: return with<takes<split<"x", "y">, replica<"x,y">, invariant<"x,y">>>(a, b, c);
      case 1: return with<takes<split<"x,y", _>, held<split<_, "y">, replica<"x">>, replica<"x,y">>>(a, b, c);
      case 2: return with<takes<held<split<"y", _>>, held<split<_, "x">, replica<"y">>, split<_, "x,y">>>(a, b, c);
      default: return with<takes<replica<"x,y">, replica<"x,y">, held<split<"y,x", _>>>>(a, b, c);
    }
  }
  [[nodiscard]] double loss(const std::vector<matrix>& in) const {
    std::vector<machine::held> v(3);
    for (std::int64_t d = 0; d < on.devices(); ++d) {
      const auto i = on.place(d, 0), j = on.place(d, 1);
      const auto cut = [&](const matrix& m, int dim, int axis) { return part_of(m, dim, on.size(axis), on.place(d, axis)); };
      switch (entry) {
        case 0: v[0].push_back(cut(cut(in[0], 0, 0), 1, 1)), v[1].push_back(in[1]), v[2].push_back(in[2]); break;
        case 1: v[0].push_back(cut(in[0], 0, 2)), v[1].push_back(cut(in[1], 1, 1)), v[2].push_back(in[2]); break;
        case 2: v[0].push_back(cut(in[0], 0, 1)), v[1].push_back(cut(in[1], 1, 0)), v[2].push_back(cut(in[2], 1, 2)); break;
        default: v[0].push_back(in[0]), v[1].push_back(in[1]), v[2].push_back(part_of(in[2], 0, on.devices(), j * on.x + i));
      }
    }
    for (const auto& o : ops) v.push_back(on.run(o, v[static_cast<std::size_t>(o.a)], v[static_cast<std::size_t>(o.b)]));
    double total = 0;
    for (const int o : outs)
      for (const double e : v[static_cast<std::size_t>(o)][0].of) total += e;
    return total;
  }
};

/// Returns the error text of a program, or "" if the program is accepted.
inline std::string refusal(const program_of_devices& p, bool differentiates) {
  dynamic::builder b(dynamic::mesh({{"x", p.on.x}, {"y", p.on.y}}));
  std::vector<value> in;
  for (int k = 0; k < 3; ++k) in.push_back(b.input(dynamic::input<double>({p.size, p.size})));
  value y = p.build(in[0], in[1], in[2]);
  if (differentiates && b.graph().error.empty()) y = grad(y, in[0]);
  if (!b.graph().error.empty()) return b.take_mistake();
  b.graph().outputs.push_back(y.id());
  detail::run_at_run_time<detail::check_regions_pass>(b.graph());
  return std::string(b.graph().error.view());
}

}  // namespace manual_law
