// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Manual regions and their surroundings: loops and conditionals inside, other axes, nested regions; and mistakes, each
// with its remedy.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/strict_program.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>
#include <gspmd/transform/grad.hpp>

#include "support/by_hand.hpp"
#include "support/error_of.hpp"

using namespace gspmd;
using caught::error_of;
using written_by_hand::same_results;
using written_by_hand::some;

namespace manual_regions {

using varying = split<"x", _>;

/// Returns the text of the first mistake of a region over x:2 that takes x [4,2] as `Spec`.
template <class Spec, class Gives = gives<>, class Body>
std::string mistake_of(Body body) {
  return error_of([&] {
    static_cast<void>(dynamic::compile([&](value x) { return manual<"x">(body, takes<Spec>{}, Gives{})(x); },
                                       dynamic::mesh({{"x", 2}}), dynamic::input<double>({4, 2})));
  });
}
TEST_CASE("mistakes of manual regions are named, with the way out") {
  const auto has = [](const std::string& text, std::string_view part) {
    if (text.find(part) == std::string::npos) MESSAGE("not `", part, "` but: ", text);
    return text.find(part) != std::string::npos;
  };
  const auto total = [](value v) { return einsum("ab->", v); };
  CHECK(has(mistake_of<varying>([](value x) { return x; }),
            "the result is varying over `x` and leaves as invariant; name the dim that `x` splits"));
  CHECK(has(mistake_of<invariant<"x">>([](value x) { return x * cast<double>(local::axis_index<"x">(x)); }),
            "the gradient of operand 0 would miss a sum over `x`"));
  CHECK(has(mistake_of<invariant<"x">>([](value x) { return local::all_reduce<"x">(x); }),
            "the operand is invariant over `x`, and a sum of equal data over n devices is n times the value"));
  CHECK(has(mistake_of<replica<"x">>([](value x) { return x; }), "leaves as invariant; let it leave as replica<\"x\">"));
  CHECK(has(mistake_of<replica<"x">, gives<varying>>([](value x) { return x; }), "so it has that many copies"));
  CHECK(has(mistake_of<varying, gives<varying>>([=](value x) {
              return cond(
                  total(x) > 0.0, [](value v) { return local::all_reduce<"x">(v); }, [](value v) { return zeros_like(v); }, x);
            }),
            "devices along `x` may take different branches here, and this is an all_reduce of all devices"));
  CHECK(has(mistake_of<varying, gives<varying>>([=](value x) {
              return while_loop([=](value v) { return total(local::all_reduce<"x", state::replica>(v)) + total(v) < 9.0; },
                                [](value v) { return v + 1.0; }, x);
            }),
            "devices along `x` may take different branches here"));
  CHECK(has(mistake_of<varying>([=](value x) {  // the condition is varying
              return cond(
                  total(x) > 0.0, [](value v) { return v; }, [](value v) { return 2.0 * v; }, local::all_reduce<"x">(x));
            }),
            "the predicate varies over `x`"));
  CHECK(has(mistake_of<varying>([](value x) {
              return fori_loop(
                  3, [](value, value a) { return local::to_replica<"x">(a); }, local::all_reduce<"x">(x));
            }),
            "is invariant over `x` before an iteration and a replica after it; write local::to_replica<`x`>(operand 0): 0 bytes "
            "forward, 32 bytes (all_reduce) backward"));
  CHECK(has(mistake_of<varying>([](value x) { return local::all_reduce<"y">(x); }), "`y` is not an axis of the mesh"));
  CHECK(
      has(mistake_of<varying>([](value x) { return reshard(x, split<_, _>{}) + reshard(x, varying{}); }), "which is local here"));
  CHECK(has(mistake_of<varying>([=](value x) { return grad(total(x), x); }), "the loss is varying over `x`"));
  CHECK(has(mistake_of<varying>([=](value x) { return grad(total(local::all_reduce<"x">(x, monoid::max)), x); }),
            "has no gradient"));
  CHECK(has(mistake_of<varying>([](value x) { return local::reduce_scatter<"x">(einsum("ab->b", x), 1); }),
            "dim 1 is not a dim of [2]"));
  CHECK(has(mistake_of<varying>([](value x) {
              return local::reduce_scatter<"x">(slice(x, {0, 0}, {1, 2}), 0);
            }),
            "is cut into 2 parts"));
  CHECK(has(mistake_of<varying>([](value x) { return x * local::all_reduce<"x">(x); }),
            "write local::to_replica<`x`>(operand 1): 0 bytes forward, 32 bytes (all_reduce) backward; or"));
  CHECK(has(mistake_of<varying>([](value x) {
              return local::permute<"x">(x, {{0, 1}, {1, 1}});
            }),
            "bad_permutation: device 1 along `x` gets from two: from 0 and from 1"));
  CHECK(has(mistake_of<varying>([](value x) {
              return local::permute<"x">(x, {{0, 0}, {0, 1}});
            }),
            "bad_permutation: device 0 along `x` sends to two: to 0 and to 1; write broadcast, or two permutations"));
  CHECK(has(mistake_of<varying>([](value x) {
              return local::permute<"x">(x, {{0, 2}});
            }),
            "bad_permutation: from 0 to 2: places along `x` are 0 to 1"));
  CHECK(has(mistake_of<varying, gives<varying>>([](value x) {
              const auto it = local::start(local::rotate<"x">(x));
              return x;
            }),
            "the collective that is started here is never finished; write finish(std::move(it))"));
  CHECK(has(mistake_of<varying, gives<varying>>([](value x) {
              auto it = local::start(local::rotate<"x">(x));
              const value first = local::finish(std::move(it));
              return first + local::finish(std::move(it));
            }),
            "it is finished already; start another one"));
  CHECK(has(mistake_of<varying, gives<varying>>([](value x) { return local::finish(local::start(x + x)); }),
            "start takes a collective of namespace local"));
  CHECK(has(mistake_of<varying>([](value x) { return local::all_reduce<"x:(2)1">(x); }),
            "groups of devices within an axis are parts that the mesh has: write it as two axes, or m.with_parts({`x:(2)1`})"));
  CHECK(has(mistake_of<varying>([](value x) { return local::broadcast<"x">(x, 2); }),
            "device 2 does not exist along `x`, which has devices 0 to 1"));
  CHECK(has(mistake_of<split<"z", _>>([](value x) { return x; }), "`z` is not an axis of the mesh"));
  CHECK(has(mistake_of<partial<"x">>([](value x) { return x; }), "in_spec_mismatch"));
  CHECK(has(mistake_of<varying, gives<varying, varying>>([](value x) { return x; }),
            "1 results are returned, and `gives` names 2"));
  const auto of_two = [&](auto program, dynamic::mesh m, std::int64_t rows) {
    return error_of([&] {
      static_cast<void>(dynamic::compile(program, m, dynamic::input<double>({rows, 2}), dynamic::input<double>({rows, 2})));
    });
  };
  const dynamic::mesh x2({{"x", 2}});
  CHECK(has(of_two(
                [](value a, value b) {
                  return manual<"x">([=](value v) { return einsum("ab,cb->ac", v, b); }, takes<varying>{}, gives<varying>{})(a);
                },
                x2, 4),
            "operand 1 is a value from outside of this manual region; give it to the region as an argument"));
  CHECK(has(of_two(
                [](value a, value b) {
                  value kept;
                  const value y = manual<"x">([&](value v) { return kept = 2.0 * v; }, takes<varying>{}, gives<varying>{})(a);
                  return einsum("ab,cb->ac", kept, y + b);
                },
                x2, 4),
            "operand 0 is a value of a manual region that is used outside of the region; return it from the region"));
  CHECK(has(
      of_two([](value a, value b) { return manual<"x">([](value v) { return v; }, takes<varying>{}, gives<varying>{})(a) + b; },
             x2, 5),
      "of the argument [5,2] dim 0, 5 elements, is cut by `x` into 2 parts that are not equal"));
}

TEST_CASE("a sum over a dim of which devices have parts is not taken for the whole of it") {
  // x [4,2] is split by rows over x. Sums over rows are partial values; sums over columns are complete on each device.
  using body = value (*)(value);
  const auto said = [](body f, auto taken) {
    return error_of([&] {
      static_cast<void>(dynamic::compile(
          [&](value x) {
            return manual<"x">([f](value v) { return reshape(f(v), {1, -1}); }, decltype(taken){}, gives<split<"x", _>>{})(x);
          },
          dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::input<double>({4, 2})));
    });
  };
  constexpr takes<split<"x", _>> rows;
  const std::pair<body, const char*> refused[] = {
      {[](value v) { return relu(sum(v, 0)); }, "relu at manual_regions.cpp:"},
      {[](value v) { return relu(2.0 * sum(v, 0) + sum(v, 0)); },
       "operand 0 is a sum over a dim, and each device along `x` has a part of that dim"},
      {[](value v) { return tanh(einsum("ab,ac->b", v, v)); },
       "; write local::all_reduce<`x`>(operand 0): 16 bytes (all_reduce) forward, 0 bytes backward; or "
       "local::to_varying<`x`, state::varying>(the summed value) for one device's own sum: 0 bytes forward, 0 bytes backward"},
      {[](value v) { return norm(v, 0); }, "norm at manual_regions.cpp:"},
      {[](value v) { return sum(v, 1) / sum(v); }, "divide at manual_regions.cpp:"},
      {[](value v) { return exp(local::rotate<"x">(sum(v, 0))); }, "exp at manual_regions.cpp:"},
      {[](value v) { return mean(v, 0); },
       "each device along `x` has a part of a dim of operand 0, and this is the mean of the part; divide the all_reduce of its "
       "sum by the whole extent; write local::to_varying<`x`, state::varying>(operand 0) for the mean of one device's "
       "own"},
      {[](value v) { return mean(v); }, "mean at manual_regions.cpp:"},
  };
  for (const auto& [f, words] : refused) {
    CAPTURE(words);
    const std::string found = said(f, rows);
    CHECK_MESSAGE(caught::contains(found, words), found);
  }
  const body right[] = {
      [](value v) { return relu(sum(v, 1)); },
      [](value v) { return mean(v, 1); },
      [](value v) { return 2.0 * sum(v, 0) + sum(v, 0); },
      [](value v) { return relu(local::all_reduce<"x", state::replica>(sum(v, 0))) + sum(v, 0); },
      [](value v) { return relu(reduce(v, monoid::max, {0})); },
      [](value v) { return mean(local::to_varying<"x", state::varying>(v), 0); },
      [](value v) { return norm(local::to_varying<"x", state::varying>(v), 0); },
      [](value v) { return relu(where(sum(v) > 0.0, sum(v, 1), 0.5)); },
      [](value v) { return relu(sum(local::all_gather<"x", state::replica>(v, 0), 0)) * sum(v, 0); },
  };
  for (const auto f : right) CHECK(said(f, rows) == "no error");
}

TEST_CASE("one device's own mean, said to be one, has its gradient") {
  same_results(
      [](const std::vector<value>& in) {
        return manual<"x">(
            [](value v, value w) {
              const value rest =
                  v - mean(local::to_varying<"x", state::varying>(v), 0);  // as in a norm over the rows of one device
              return rest * rest * w;
            },
            takes<split<"x", _>, replica<"x">>{}, gives<split<"x", _>>{})(in[0], in[1]);
      },
      [](const std::vector<value>& in) {
        const value parts = reshape(in[0], {2, 2, 3});
        const value rest = reshape(parts - broadcast_in_dim(mean(parts, 1), {2, 2, 3}, {0, 2}), {4, 3});
        return rest * rest * in[1];
      },
      dynamic::mesh({{"x", 2}}), {dynamic::input<double>({4, 3}, {"x", ""}), dynamic::input<double>({3}, {""})});
}

TEST_CASE(
    "a value from outside of a region is said to be one, by whatever operator reads it, whose extents are no mistake then") {
  using reads = value (*)(value, value);  // v is inside the region, [2,2] of [4,2]; b is outside: [4,2]
  const reads second[] = {
      [](value v, value b) { return v + b; },
      [](value v, value b) { return v * sum(b); },  // found at the sum
      [](value v, value b) { return max(v, b); },
      [](value v, value b) { return einsum("ab,ab->a", v, b); },
      [](value v, value b) { return einsum("ab,ca->cb", v, b); },
      [](value v, value b) { return einsum<"ab,cb,cb->a">(v, b, b); },
      [](value v, value b) {
        return concatenate({v, b}, 1);
      },
      [](value v, value b) { return where(v > 0.0, b, v); },
      [](value v, value b) { return take(v, cast<std::int64_t>(b), 0); },
      [](value v, value b) { return scatter_add(v, cast<std::int64_t>(v), b); },
      [](value v, value b) {
        return convolution(reshape(v, {2, 2, 1}), b, "NWC,WO->NWO");
      },
      [](value v, value b) { return einsum("(i+k)b,kb->ib", v, b); },
      [](value v, value b) { return stencil<0, 0>([](auto p, auto q) { return p(0, 0) + q(0, 0); }, v, b); },
      [](value v, value b) {
        return sort_together({v, b}, 1, along(0))[1];
      },
      [](value v, value b) { return shard_alike(v, b); },
      [](value v, value b) { return v + local::all_reduce<"x">(b); },
      [](value v, value b) { return v + local::halo<"x">(b, 1, 1, along(0)); },
      [](value v, value b) { return v + local::all_gather<"x">(b, 0); },
      [](value v, value b) { return v + manual<"y">([](value c) { return c; }, takes<held<>>{}, gives<held<>>{})(b); },
  };
  const dynamic::mesh mesh({{"x", 2}, {"y", 1}});
  for (const auto f : second) {
    const std::string words = error_of([&] {
      static_cast<void>(dynamic::compile(
          [f](value a, value b) {
            return manual<"x">([=](value v) { return f(v, b); }, takes<split<"x", _>>{}, gives<split<"x", _>>{})(a);
          },
          mesh, dynamic::input<double>({4, 2}), dynamic::input<double>({4, 2})));
    });
    CAPTURE(words);
    CHECK(caught::contains(words, " is a value from outside of this manual region; give it to the region as an argument"));
  }
}

TEST_CASE("loops, conditionals and gradients inside of a region") {
  const auto [by_hand, automatic] = same_results(
      [](const std::vector<value>& in) {
        return manual<"x">(
            [](value a, value w) {
              // Every part of w visits every device, so the carried values are varying from the beginning.
              auto [sum, part] = fori_loop(
                  local::axis_size<"x">(a),
                  [&](value, value s, value p) {
                    return std::tuple{s + einsum("bd,fd->bf", a, p), local::rotate<"x">(p, -1)};
                  },
                  zeros_like(einsum("bd,fd->bf", a, w)), w);
              const value n = einsum("ab,ab->", w, w);
              const value chosen = cond(
                  local::all_reduce<"x">(n) > 0.0, [](value v) { return 2.0 * v; }, [](value v) { return -v; }, sum);
              return chosen + 0.0 * broadcast_in_dim(einsum("fd->", part), {a.shape()[0], w.shape()[0]}, {});
            },
            takes<split<"x", _>, split<"x", _>>{}, gives<split<"x", _>>{})(in[0], in[1]);
      },
      [](const std::vector<value>& in) {  // the parts of w, added up
        return 2.0 * einsum("bd,gfd->bf", in[0], reshape(in[1], {3, 2, 5}));
      },
      dynamic::mesh({{"x", 3}}), {dynamic::input<double>({6, 5}), dynamic::input<double>({6, 5})});
  static_cast<void>(automatic);
  CHECK(by_hand.traffic().in(collective_kind::all_gather).bytes == 0);

  // grad inside a region, of a loss that is a sum over all devices: partial values with respect to a replica, own
  // values with respect to varying data.
  const auto inside = dynamic::compile(
      [](value x, value w) {
        return manual<"x">(
            [](value a, value u) {
              const value y = einsum("bd,d->b", a, u);
              const auto [ga, gu] = grad(local::to_partial<"x">(einsum("b,b->", y, y)), std::tuple{a, u});
              return std::tuple{ga, local::all_reduce<"x">(gu)};
            },
            takes<split<"x", _>, replica<"x">>{}, gives<split<"x", _>, held<>>{})(x, w);
      },
      dynamic::mesh({{"x", 2}}), dynamic::input<double>({4, 2}), dynamic::input<double>({2}));
  const std::vector<double> x{1, 2, 3, 4, 5, 6, 7, 8}, w{1, -2};
  const auto result = inside.run(simulated{}, x, w);
  double expected[2] = {0, 0};
  for (std::size_t r = 0; r < 4; ++r)
    for (std::size_t c = 0; c < 2; ++c) {
      const double y = x[2 * r] * w[0] + x[2 * r + 1] * w[1];
      CHECK(result[0].data<double>()[2 * r + c] == doctest::Approx(2 * y * w[c]));
      expected[c] += 2 * y * x[2 * r + c];
    }
  for (std::size_t c = 0; c < 2; ++c) CHECK(result[1].data<double>()[c] == doctest::Approx(expected[c]));
}

TEST_CASE("a gradient is cut as the value which it is the gradient of: what moves its parts is held to their order") {
  using cut_by_xy = split<"x,y", _>;
  constexpr takes<cut_by_xy> taken;
  dynamic::mesh m({{"x", 2}, {"y", 3}});
  SUBCASE("of all axes") {}
  SUBCASE("of some") { m = dynamic::mesh({{"x", 2}, {"y", 3}, {"z", 2}}); }
  const auto of_squares = [](value v) { return grad(local::to_partial<"x,y">(einsum("ab,ab->", v, v)), v); };
  const auto region = [=](auto body, auto gives) { return [=](value x) { return manual<"x", "y">(body, taken, gives)(x); }; };
  const auto said = [&](auto body, auto gives) {
    return error_of([&] { static_cast<void>(dynamic::compile(region(body, gives), m, dynamic::input<double>({12, 2}))); });
  };
  const auto twice = [=](value v) { return of_squares(v) + grad(local::to_partial<"x,y">(sum(of_squares(v) * v)), v); };
  const auto over_x = [](value g) { return local::all_gather<"x", state::replica>(g, 0); };
  const auto over_y = [](value g) { return local::all_gather<"y", state::replica>(g, 0); };
  const auto by_y_x = gspmd::gives<split<"y,x", _>>{};
  for (const auto& found :
       {said([=](value v) { return over_x(of_squares(v)); }, gspmd::gives<held<split<"y", _>, replica<"x">>>{}),
        said([=](value v) { return over_x(twice(v)); }, gspmd::gives<held<split<"y", _>, replica<"x">>>{}),
        said([=](value v) { return over_x(2.0 * tanh(of_squares(v))); }, gspmd::gives<held<split<"y", _>, replica<"x">>>{})})
    CHECK_MESSAGE(caught::contains(found, "begin with its last axis: all_gather over `y` first"), found);
  for (const auto& found : {said(of_squares, by_y_x), said(twice, by_y_x)})
    CHECK_MESSAGE(caught::contains(found, "name the axes in the order of the result"), found);

  // Rows are in order if they are gathered over y, or stay in place.
  const auto x = some(dynamic::input<double>({12, 2}), 1);
  const auto is_right = [&](auto body, auto gives, double times) {
    const auto given = dynamic::compile(region(body, gives), m, dynamic::input<double>({12, 2})).run(simulated{}, x);
    REQUIRE(given[0].bytes.size() == 24 * sizeof(double));
    for (std::size_t i = 0; i < 24; ++i) CHECK(given[0].template data<double>()[i] == doctest::Approx(times * x[i]));
  };
  is_right(of_squares, gspmd::gives<cut_by_xy>{}, 2);
  is_right(twice, gspmd::gives<cut_by_xy>{}, 6);
  is_right([=](value v) { return over_y(of_squares(v)); }, gspmd::gives<held<split<"x", _>, replica<"y">>>{}, 2);
}

TEST_CASE("in a program with types a region may take some axes; the others go on") {
  dynamic::builder b(dynamic::mesh({{"data", 2}, {"model", 2}}));
  dynamic::strict_program p(b, "");
  const value x = b.input(dynamic::input<double>({6, 4})), w = b.input(dynamic::input<double>({4, 8})),
              v = b.input(dynamic::input<double>({8, 4}));
  using on = axis_state;
  p.input(x, {{on{state::shard, 0}, on{state::invariant}}});
  p.input(w, {{on{state::replica}, on{state::shard, 1}}});
  p.input(v, {{on{state::replica}, on{state::shard, 0}}});
  const value y = manual<"model">([](value a, value u, value t) {
    const value h = tanh(einsum("bd,df->bf", local::to_replica<"model">(a), u));
    return local::all_reduce<"model">(einsum("bf,fd->bd", h, t));
  })(x, w, v);
  CHECK(y.shape() == detail::extents{6, 4});
  b.output(y);
  const auto flat = einsum("bd,bd->", y, y);
  for (const auto& g : grad(flat, std::vector<value>{x})) b.output(g);
  const auto program = b.compile();
  CHECK(program.traffic().over("data").bytes == 0);
  CHECK(program.traffic().bytes == 2 * 3 * 4 * 8);  // y and the gradient with respect to x, [3,4]
  dynamic::builder c(dynamic::mesh({{"one", 1}}));
  const value cx = c.input(dynamic::input<double>({6, 4})), cw = c.input(dynamic::input<double>({4, 8})),
              cv = c.input(dynamic::input<double>({8, 4}));
  const value cy = einsum("bf,fd->bd", tanh(einsum("bd,df->bf", cx, cw)), cv);
  c.output(cy);
  c.output(grad(einsum("bd,bd->", cy, cy), cx));
  const auto one = c.compile();
  const auto dx = some(dynamic::input<double>({6, 4}), 1), dw = some(dynamic::input<double>({4, 8}), 2),
             dv = some(dynamic::input<double>({8, 4}), 3);
  const auto given = program.run(simulated{}, dx, dw, dv), expected = one.run(serial{}, dx, dw, dv);
  for (std::size_t k = 0; k < 2; ++k)
    for (std::size_t i = 0; i < 24; ++i) CHECK(given[k].data<double>()[i] == doctest::Approx(expected[k].data<double>()[i]));
}

TEST_CASE("a region inside of a region takes other axes") {
  using on = axis_state;
  const dynamic::mesh m({{"data", 2}, {"model", 3}});
  const auto two_layers = [](value x, value w, value v) { return einsum("bf,fd->bd", tanh(einsum("bd,df->bf", x, w)), v); };
  const auto built = [&](dynamic::builder& b, auto body) {
    dynamic::strict_program p(b, "");
    std::vector<value> in{b.input(dynamic::input<double>({6, 4})), b.input(dynamic::input<double>({4, 9})),
                          b.input(dynamic::input<double>({9, 4}))};
    p.input(in[0], {{on{state::shard, 0}, on{state::invariant}}});
    p.input(in[1], {{on{state::replica}, on{state::shard, 1}}});
    p.input(in[2], {{on{state::replica}, on{state::shard, 0}}});
    return std::pair{manual<"data">(body)(in[0], in[1], in[2]), in};
  };
  dynamic::builder b(m);
  // [3,4] [4,9] [9,4] outside, [3,4] [4,3] [3,4] inside.
  const auto [loss, in] = built(b, [](value x, value w, value v) {
    const value y = manual<"model">([](value a, value u, value t) {
      const value h = tanh(einsum("bd,df->bf", local::to_replica<"model">(a), u));
      return local::all_reduce<"model">(einsum("bf,fd->bd", h, t));
    })(x, w, v);
    return local::all_reduce<"data">(local::to_partial<"data">(einsum("bd,bd->", y, y)));
  });
  b.output(loss);
  for (const auto& g : grad(loss, in)) b.output(g);
  const auto program = b.compile();
  // [3,4] along model twice; along data the loss. The gradients of the weights leave the region as partial values.
  CHECK(program.traffic().over("model").bytes == 2 * (2 * 2 * 12 * 8) / 3);

  dynamic::builder one(dynamic::mesh({{"one", 1}}));
  const std::vector<value> alone{one.input(dynamic::input<double>({6, 4})), one.input(dynamic::input<double>({4, 9})),
                                 one.input(dynamic::input<double>({9, 4}))};
  const value y = two_layers(alone[0], alone[1], alone[2]), total = einsum("bd,bd->", y, y);
  one.output(total);
  for (const auto& g : grad(total, alone)) one.output(g);
  const auto x = some(dynamic::input<double>({6, 4}), 1), w = some(dynamic::input<double>({4, 9}), 2),
             v = some(dynamic::input<double>({9, 4}), 3);
  const auto expected = one.compile().run(serial{}, x, w, v), given = program.run(simulated{}, x, w, v);
  REQUIRE(given.size() == 4);
  for (std::size_t k = 0; k < 4; ++k) {
    REQUIRE(given[k].shape == expected[k].shape);
    for (std::size_t i = 0; i < given[k].bytes.size() / sizeof(double); ++i)
      CHECK(given[k].data<double>()[i] == doctest::Approx(expected[k].data<double>()[i]));
  }

  const auto refused = [&](auto body) {
    return error_of([&] {
      dynamic::builder c(m);
      const auto made = built(c, body);
      c.output(made.first);
      static_cast<void>(c.compile());
    });
  };
  const auto has = [](const std::string& text, std::string_view part) {
    if (text.find(part) == std::string::npos) MESSAGE("not `", part, "` but: ", text);
    return text.find(part) != std::string::npos;
  };
  const auto total_of = [](value r) { return local::all_reduce<"data">(local::to_partial<"data">(einsum("bd->", r))); };
  CHECK(has(refused([=](value r, value, value) { return total_of(manual<"data">([](value q) { return q; })(r)); }),
            "axis_used_twice: `data` is local already"));
  CHECK(has(refused([=](value r, value, value) {
              return total_of(manual<"model">([](value q) { return q; }, takes<split<"data", _>>{})(r));
            }),
            "argument 0 names `data`, which the region leaves as it is"));
}

TEST_CASE("an axis moves only where it is the innermost of its dim, and leaves it in the order in which it cuts it") {
  std::vector<double> data(36);
  for (std::size_t i = 0; i < 36; ++i) data[i] = static_cast<double>(i);
  struct size {
    std::int64_t x, y;
  };
  for (const auto& [nx, ny] : {size{2, 3}, size{3, 2}, size{1, 2}, size{2, 1}, size{1, 1}}) {  // for any sizes
    const auto run = [&, nx = nx, ny = ny](auto in, auto out, auto body) {
      return error_of([&] {
        const auto program = dynamic::compile([&](value v) { return manual<"x", "y">(body, in, out)(v); },
                                              dynamic::mesh({{"x", nx}, {"y", ny}}), dynamic::input<double>({6, 6}));
        const auto found = program.run(simulated{}, data);
        for (std::size_t i = 0; i < 36; ++i) CHECK(found[0].template data<double>()[i] == data[i]);
      });
    };
    const auto refused = [](const std::string& words) {
      CAPTURE(words);
      return words.find("dim 0 ") != std::string::npos && words.find("cut by `") != std::string::npos;
    };
    constexpr takes<split<"x,y", _>> by_x_then_y;
    constexpr takes<split<"y,x", _>> by_y_then_x;
    constexpr auto gather_x = [](value v) { return local::all_gather<"x">(v, 0); };
    constexpr auto gather_y = [](value v) { return local::all_gather<"y">(v, 0); };
    constexpr auto gather = [](value v) { return local::all_gather<"x,y">(v, 0); };
    CHECK(run(by_x_then_y, gives<split<"x", _>>{}, gather_y) == "no error");
    CHECK(run(by_y_then_x, gives<split<"y", _>>{}, gather_x) == "no error");
    CHECK(run(by_x_then_y, gives<>{}, gather) == "no error");
    CHECK(run(by_y_then_x, gives<>{}, [=](value v) { return gather_y(gather_x(v)); }) == "no error");
    CHECK(refused(run(by_x_then_y, gives<split<"y", _>>{}, gather_x)));
    CHECK(refused(run(by_y_then_x, gives<>{}, gather)));
    const auto exchange = [](value v) { return local::all_to_all<"x">(v, 0, 1); };
    CHECK(run(by_y_then_x, gives<split<"y", "x">>{}, exchange) == "no error");
    CHECK(refused(run(by_x_then_y, gives<split<"y", "x">>{}, exchange)));
    // A value computed from parts is split like the parts: through operators, other dims and loops.
    CHECK(refused(run(by_x_then_y, gives<split<"y", _>>{}, [=](value v) { return gather_x(tanh(v) + 1.0); })));
    CHECK(refused(run(by_x_then_y, gives<split<"y", _>>{}, [=](value v) {
      return gather_x(fori_loop(
          3, [](value, value now) { return now * 2.0; }, v));
    })));
    // A dim that a reshape joins with other dims, or divides, is split too.
    const std::int64_t rows = 6 / (nx * ny);
    const auto joined = [rows](value v) { return reshape(v, {rows * 6}); };
    const auto divided = [=](value v) { return reshape(joined(v), {rows, 3, 2}); };
    CHECK(run(by_x_then_y, gives<split<"x,y">>{}, joined) == "no error");
    CHECK(refused(run(by_x_then_y, gives<split<"y,x">>{}, joined)));
    CHECK(run(by_x_then_y, gives<split<"x,y", _, _>>{}, divided) == "no error");
    if (rows > 1)
      CHECK(refused(run(by_x_then_y, gives<split<"y,x", _, _>>{}, divided)));  // a dim of extent 1 gives no
                                                                               // information
    // A scattered value is split further, and leaves with that split.
    constexpr takes<held<split<"y", _>, replica<"x">>> by_y;
    const auto own = [](value v) { return local::own_part<"x">(v, 0); };
    CHECK(run(by_y, gives<split<"y,x", _>>{}, own) == "no error");
    CHECK(refused(run(by_y, gives<split<"x,y", _>>{}, own)));
    if (rows > 1) continue;
    const auto unit_dims = [=](value v) { return reshape(own(v), {1, 1, 6}); };  // each of the axes cuts one of these dims
    CHECK(run(by_y, gives<split<"y", "x", _>>{}, unit_dims) == "no error");
    CHECK(refused(run(by_y, gives<split<"x", "y", _>>{}, unit_dims)));
  }
}

}  // namespace manual_regions
