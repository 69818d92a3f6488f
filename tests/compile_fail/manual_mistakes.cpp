// SPDX-License-Identifier: Apache-2.0
// Mistakes in manual regions. Each mistake is one error.
// mistakes: 12
// expect: leaves as invariant; name the dim
// expect: of operand 1 would miss a sum over
// expect: equal data over n devices is n
// expect: along `x` may take different
// expect: a value from outside
// expect: before an iteration and a replica
// expect: the collective that is started here
// expect: it is finished already; start
// expect: bad_permutation: device 1 along
// expect: that dim; relu of the partial
// expect: of operand 0, and this is the
// expect: cut by `x`, then by `y`, and the
#include <utility>

#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>

using namespace gspmd;

namespace {

using pod = mesh<axis<"x", 2>>;
using columns = split<_, "x">;
using rows = split<"x", _>;

/// A region on a [4,6] and w [6,4]. The region takes w as `Weight`.
template <auto Body, class Weight, class Gives = gives<>>
struct program {
  static constexpr auto callable = [](auto a, auto w) { return manual<"x">(Body, takes<columns, Weight>{}, Gives{})(a, w); };
  using step = compile<callable, pod, input<float, shape<4, 6>>, input<float, shape<6, 4>>>;
};
constexpr auto forgotten = [](auto a, auto w) { return einsum<"bd,df->bf">(a, w); };
constexpr auto whole_weight = [](auto a, auto w) { return a + reshape(slice(w, {0, 0}, {6, 2}), {4, 3}); };
constexpr auto summed_twice = [](auto a, auto w) {
  return local::all_reduce<"x">(local::all_reduce<"x">(einsum<"bd,df->bf">(a, w)));
};
constexpr auto branch = [](auto a, auto w) {
  const auto sum = [](auto v) { return local::all_reduce<"x">(v); };
  return cond(einsum<"bd->">(a) > 0.0, sum, sum, einsum<"bd,df->bf">(a, w));
};
constexpr auto outside = [](auto a, auto w) {
  return manual<"x">([=](auto v) { return einsum<"bd,df->bf">(v, w); }, takes<rows>{}, gives<rows>{})(a);
};
constexpr auto carried = [](auto a, auto w) {
  return fori_loop(
      2, [&](auto, auto s) { return local::to_replica<"x">(s); }, local::all_reduce<"x">(einsum<"bd,df->bf">(a, w)));
};
constexpr auto unfinished = [](auto a, auto w) {
  const auto it = local::start(local::all_reduce<"x">(einsum<"bd,df->bf">(a, w)));
  return a;
};
constexpr auto finished_twice = [](auto a, auto w) {
  auto it = local::start(local::all_reduce<"x">(einsum<"bd,df->bf">(a, w)));
  const auto first = local::finish(std::move(it));
  return first + local::finish(std::move(it));
};
constexpr auto major_axis_first = [](auto a) {
  return manual<"x", "y">([](auto part) { return local::all_gather<"x">(tanh(part), 0); }, takes<split<"x,y", _>>{},
                          gives<split<"y", _>>{})(a);
};
constexpr auto relu_of_terms = [](auto a, auto w) { return local::all_reduce<"x">(relu(einsum<"bd,df->bf">(a, w))); };
constexpr auto mean_of_parts = [](auto, auto w) { return local::all_reduce<"x">(mean(w, 0)); };
constexpr auto two_send_to_one = [](auto a, auto) { return local::permute<"x">(a, {{0, 1}, {1, 1}}); };

}  // namespace

#ifndef FIXED
constexpr int a = program<forgotten, rows>::step::device_count;                                               // <- here
constexpr int b = program<whole_weight, invariant<"x">, gives<columns>>::step::device_count;                  // <- here
constexpr int c = program<summed_twice, rows>::step::device_count;                                            // <- here
constexpr int d = program<branch, rows>::step::device_count;                                                  // <- here
constexpr int e = compile<outside, pod, input<float, shape<4, 6>>, input<float, shape<6, 4>>>::device_count;  // <- here
constexpr int f = program<carried, rows, gives<rows>>::step::device_count;                                    // <- here
constexpr int g = program<unfinished, rows, gives<columns>>::step::device_count;                              // <- here
constexpr int h = program<finished_twice, rows>::step::device_count;                                          // <- here
constexpr int i = program<two_send_to_one, rows, gives<columns>>::step::device_count;                         // <- here
constexpr int j =
    compile<major_axis_first, mesh<axis<"x", 2>, axis<"y", 3>>, input<float, shape<6, 4>>>::device_count;  // <- here
constexpr int k = program<relu_of_terms, rows>::step::device_count;                                        // <- here
constexpr int l = program<mean_of_parts, rows>::step::device_count;                                        // <- here
#endif

int main() {}
