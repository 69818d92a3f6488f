// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Hand-written versions of known layers send the stated bytes, and equal those of the automatic mode.
#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>
#include <gspmd/transform/grad.hpp>

#include "support/by_hand.hpp"

using namespace gspmd;
using written_by_hand::same_results;

namespace manual_regions {

TEST_CASE("Megatron's layers by hand are those of the automatic mode") {
  const auto [by_hand, automatic] = same_results(
      [](const std::vector<value>& in) {
        return manual<"data", "model">(
            [](value x, value w1, value w2) {
              const value h = tanh(einsum("bd,df->bf", local::to_replica<"model">(x), w1));
              return local::all_reduce<"model">(einsum("bf,fd->bd", h, w2));
            },
            takes<split<"data", _>, held<split<_, "model">, replica<"data">>, held<split<"model", _>, replica<"data">>>{},
            gives<split<"data", _>>{})(in[0], in[1], in[2]);
      },
      [](const std::vector<value>& in) { return einsum("bf,fd->bd", tanh(einsum("bd,df->bf", in[0], in[1])), in[2]); },
      dynamic::mesh({{"data", 2}, {"model", 2}}),
      {dynamic::input<double>({8, 6}, {"data", ""}), dynamic::input<double>({6, 10}, {"", "model"}),
       dynamic::input<double>({10, 6}, {"model", ""})});
  const traffic a = by_hand.traffic(), b = automatic.traffic();
  CHECK(a.bytes == b.bytes);
  // y and the gradient with respect to x, [4,6] each, are summed along model; the gradients of both weights, [6,5],
  // along data.
  CHECK(a.over("model").bytes == 2 * 24 * 8);
  CHECK(a.over("data").bytes == 2 * 30 * 8);
}

TEST_CASE("FSDP by hand gathers weights and scatters their gradients") {
  const auto [by_hand, automatic] = same_results(
      [](const std::vector<value>& in) {
        return manual<"data">(
            [](value x, value w1, value w2) {
              const value h = tanh(einsum("bd,df->bf", x, local::all_gather<"data", state::replica>(w1, 0)));
              return einsum("bf,fd->bd", h, local::all_gather<"data", state::replica>(w2, 0));
            },
            takes<split<"data", _>, split<"data", _>, split<"data", _>>{}, gives<split<"data", _>>{})(in[0], in[1], in[2]);
      },
      [](const std::vector<value>& in) { return einsum("bf,fd->bd", tanh(einsum("bd,df->bf", in[0], in[1])), in[2]); },
      dynamic::mesh({{"data", 4}}),
      {dynamic::input<double>({64, 8}, {"data", ""}), dynamic::input<double>({8, 12}, {"data", ""}),
       dynamic::input<double>({12, 8}, {"data", ""})});
  const traffic a = by_hand.traffic(), b = automatic.traffic();
  CHECK(a.bytes == b.bytes);
  CHECK(a.in(collective_kind::all_gather).bytes == 2 * 3 * 24 * 8);
  CHECK(a.in(collective_kind::reduce_scatter).bytes == 2 * 3 * 24 * 8);
}

TEST_CASE("SUMMA by hand: rows of blocks gather the one factor, columns the other one") {
  const auto [by_hand, automatic] = same_results(
      [](const std::vector<value>& in) {
        return manual<"x", "y">(
            [](value p, value q) {
              return einsum("ik,kj->ij", local::all_gather<"y", state::replica>(p, 1),
                            local::all_gather<"x", state::replica>(q, 0));
            },
            takes<split<"x", "y">, split<"x", "y">>{}, gives<split<"x", "y">>{})(in[0], in[1]);
      },
      [](const std::vector<value>& in) { return reshard(einsum("ik,kj->ij", in[0], in[1]), split<"x", "y">{}); },
      dynamic::mesh({{"x", 2}, {"y", 2}}),
      {dynamic::input<double>({8, 8}, {"x", "y"}), dynamic::input<double>({8, 8}, {"x", "y"})});
  const traffic a = by_hand.traffic(), b = automatic.traffic();
  CHECK(a.in(collective_kind::all_gather).bytes == 2 * 16 * 8);
  CHECK(a.bytes <= b.bytes);
}

TEST_CASE("ring attention by hand is attention") {
  const auto attention = [](const std::vector<value>& in) {
    const value s = einsum("qd,kd->qk", in[0], in[1]);
    const value p = exp(s - broadcast_in_dim(stop_gradient(reduce(s, monoid::max, {1})), {12, 12}, {0}));
    return einsum("qk,kd->qd", p / broadcast_in_dim(einsum("qk->q", p), {12, 12}, {0}), in[2]);
  };
  const auto ring = [](const std::vector<value>& in) {
    return manual<"seq">(
        [](value q, value k, value v) {
          const auto n = local::axis_size<"seq">(q);
          const std::int64_t rows = q.shape()[0], width = q.shape()[1], keys = k.shape()[0];
          value most, total, out;
          for (std::int64_t step = 0; step < n; ++step) {
            const value s = einsum("qd,kd->qk", q, k);
            const value here = stop_gradient(reduce(s, monoid::max, {1}));
            const value now = step == 0 ? here : max(most, here);
            const value p = exp(s - broadcast_in_dim(now, {rows, keys}, {0}));
            const value sum = einsum("qk->q", p), part = einsum("qk,kd->qd", p, v);
            if (step == 0) {
              total = sum, out = part;
            } else {
              const value scale = exp(most - now);
              total = total * scale + sum;
              out = out * broadcast_in_dim(scale, {rows, width}, {0}) + part;
            }
            most = now;
            if (step + 1 < n) k = local::rotate<"seq">(k), v = local::rotate<"seq">(v);
          }
          return out / broadcast_in_dim(total, {rows, width}, {0});
        },
        takes<split<"seq", _>, split<"seq", _>, split<"seq", _>>{}, gives<split<"seq", _>>{})(in[0], in[1], in[2]);
  };
  const auto in = dynamic::input<double>({12, 4}, {"seq", ""});
  const auto [by_hand, automatic] = same_results(ring, attention, dynamic::mesh({{"seq", 3}}), {in, in, in});
  const traffic a = by_hand.traffic();
  static_cast<void>(automatic);
  CHECK(a.in(collective_kind::collective_permute).bytes == 2 * 2 * 2 * 16 * 8);  // keys and values, twice, and the gradients back
  CHECK(a.bytes == a.in(collective_kind::collective_permute).bytes);
}

TEST_CASE("a norm on parts of the sequence: its weight is a replica, or its gradient would miss a sum") {
  const auto norm = [](value x, value w, std::int64_t rows) {
    const value s = rsqrt(einsum("sd,sd->s", x, x) + 1.0);
    return x * broadcast_in_dim(s, {rows, 6}, {0}) * broadcast_in_dim(w, {rows, 6}, {1});
  };
  const auto [by_hand, automatic] = same_results(
      [=](const std::vector<value>& in) {
        return manual<"model">(
            [=](value x, value w, value u) {
              const value y = local::all_gather<"model", state::replica>(norm(x, w, x.shape()[0]), 0);
              return local::reduce_scatter<"model">(einsum("sf,df->sd", einsum("sd,df->sf", y, u), u), 0);
            },
            takes<split<"model", _>, replica<"model">, split<_, "model">>{}, gives<split<"model", _>>{})(in[0], in[1], in[2]);
      },
      [=](const std::vector<value>& in) {
        const value y = reshard(reshard(norm(in[0], in[1], 8), split<"model", _>{}), split<_, _>{});
        return reshard(einsum("sf,df->sd", einsum("sd,df->sf", y, in[2]), in[2]), split<"model", _>{});
      },
      dynamic::mesh({{"model", 2}}),
      {dynamic::input<double>({8, 6}, {"model", ""}), dynamic::input<double>({6}),
       dynamic::input<double>({6, 40}, {"", "model"})});
  const traffic a = by_hand.traffic(), b = automatic.traffic();
  CHECK(a.bytes == b.bytes);
  CHECK(a.in(collective_kind::all_gather).bytes == a.in(collective_kind::reduce_scatter).bytes);
}

TEST_CASE("a pipeline by hand: a stage is what a device does, and no dim of stages is written") {
  constexpr std::int64_t stages = 3, batches = 4, rows = 2, width = 5;
  const auto batch = [=](value x, std::int64_t t) { return reshape(slice(x, {t, 0, 0}, {t + 1, rows, width}), {rows, width}); };
  const auto by_hand = [=](const std::vector<value>& in) {
    return manual<"stage">(
        [=](value x, value w) {  // [4,2,5] whole; [1,5,5] belongs to the device
          const value own = reshape(w, {width, width}), place = local::axis_index<"stage">(x);
          const value is_first = broadcast_in_dim(equal(place, 0), {rows, width}, {});
          value now;
          std::vector<value> kept;
          for (std::int64_t t = 0; t < batches + stages - 1; ++t) {
            value given = batch(x, t < batches ? t : batches - 1);
            if (t > 0) given = where(is_first, given, local::shift_devices<"stage">(now));
            now = tanh(einsum("bd,df->bf", given, own));
            kept.push_back(reshape(now, {1, 1, rows, width}));
          }
          return concatenate(kept, 1);
        },
        takes<replica<"stage">, split<"stage", _, _>>{}, gives<split<"stage", _, _, _>>{})(in[0], in[1]);
  };
  const auto with_stages = [=](const std::vector<value>& in) {
    const value x = in[0];
    const value is_first = equal(iota<std::int32_t>(x, {stages, rows, width}, 0), 0);
    value now;
    std::vector<value> kept;
    for (std::int64_t t = 0; t < batches + stages - 1; ++t) {
      value given = broadcast_in_dim(batch(x, t < batches ? t : batches - 1), {stages, rows, width}, {1, 2});
      if (t > 0) given = where(is_first, given, shift(now, -1, along(0)));
      now = reshard(tanh(einsum("sbd,sdf->sbf", given, in[1])), split<"stage", _, _>{});
      kept.push_back(reshape(now, {stages, 1, rows, width}));
    }
    return concatenate(kept, 1);
  };
  const auto [a, b] = same_results(
      by_hand, with_stages, dynamic::mesh({{"stage", stages}}),
      {dynamic::input<double>({batches, rows, width}), dynamic::input<double>({stages, width, width}, {"stage", "", ""})});
  // The result of a stage is sent to the next stage five times, and its gradient back.
  CHECK(a.traffic().in(collective_kind::collective_permute).bytes == 2 * 5 * rows * width * 8);
  CHECK(a.traffic().in(collective_kind::collective_permute).bytes == b.traffic().in(collective_kind::collective_permute).bytes);
  CHECK(a.traffic().bytes <= b.traffic().bytes);  // every stage has a partial value of the gradient with respect to x,
                                                  // which is summed once
}

TEST_CASE("experts by hand: each device is one, and no dim of experts is written but to send") {
  const auto by_hand = [](const std::vector<value>& in) {
    return manual<"expert">(
        [](value x, value w) {  // [2,4,3,5]: the device's groups for each expert; [1,5,6]
          const value mine = local::all_to_all<"expert">(x, 0, 1);
          const value h = tanh(einsum("gcd,df->gcf", reshape(mine, {8, 3, 5}), reshape(w, {5, 6})));
          return local::all_to_all<"expert">(reshape(h, {8, 1, 3, 6}), 1, 0);
        },
        takes<split<"expert", _, _, _>, split<"expert", _, _>>{}, gives<split<"expert", _, _, _>>{})(in[0], in[1]);
  };
  const auto with_experts = [](const std::vector<value>& in) {
    const value mine = reshard(in[0], split<_, "expert", _, _>{});
    const value h = tanh(einsum("gecd,edf->gecf", mine, in[1]));
    return reshard(reshard(h, split<_, "expert", _, _>{}), split<"expert", _, _, _>{});
  };
  const auto [a, b] = same_results(
      by_hand, with_experts, dynamic::mesh({{"expert", 4}}),
      {dynamic::input<double>({8, 4, 3, 5}, {"expert", "", "", ""}), dynamic::input<double>({4, 5, 6}, {"expert", "", ""})});
  // [2,4,3,5] and [2,4,3,6], three quarters of each, there and back.
  CHECK(a.traffic().in(collective_kind::all_to_all).bytes == 2 * (120 + 144) * 8 * 3 / 4);
  CHECK(a.traffic().bytes == a.traffic().in(collective_kind::all_to_all).bytes);
  CHECK(a.traffic().bytes == b.traffic().bytes);
}

/// Returns the totals of the parts before the device's part, and zeros for all other parts.
value compare_before(value totals, value place) {
  const value part = iota<std::int32_t>(totals, {totals.shape()[0], totals.shape()[1]}, 1);
  return where(part < broadcast_in_dim(place, {totals.shape()[0], totals.shape()[1]}, {}), totals, zeros_like(totals));
}

TEST_CASE("a kernel of the user's own gets spans of the device's shard") {
  constexpr auto running_sum = local_op<"b[t]->b[t]", types<double(double)>>([](auto x, auto y) {
    for (std::int64_t i = 0; i < x.extent(0); ++i)
      for (std::int64_t t = 0; t < x.extent(1); ++t) y(i, t) = x(i, t) + (t > 0 ? y(i, t - 1) : 0.0);
  });
  const auto program = dynamic::compile(
      [=](value x) {
        return manual<"x">(
            [=](value a) {  // sums of the own part, and of all parts before it
              const value own = running_sum(a);
              const value totals = local::all_gather<"x", state::replica>(slice(own, {0, 2}, {2, 3}), 1);
              const value before = compare_before(totals, local::axis_index<"x">(a));
              return own + broadcast_in_dim(einsum("bp->b", before), {2, 3}, {0});
            },
            takes<split<_, "x">>{}, gives<split<_, "x">>{})(x);
      },
      dynamic::mesh({{"x", 2}}), dynamic::input<double>({2, 6}));
  const std::vector<double> x{1, 2, 3, 4, 5, 6, 1, 1, 1, 1, 1, 1}, expected{1, 3, 6, 10, 15, 21, 1, 2, 3, 4, 5, 6};
  const auto result = program.run(threads{}, x);
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(result[0].data<double>()[i] == expected[i]);
  CHECK(program.traffic().bytes == 2 * 8);
}

}  // namespace manual_regions
