// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Gradients of varying values that are read as partial values. The values are not replicas, so the data of every device
// count.
#include <doctest/doctest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>
#include <gspmd/transform/grad.hpp>

#include "support/error_of.hpp"

using namespace gspmd;

namespace local_gradients {

const std::vector<double> v{1, -2, 3, 4}, r{5, 6}, weights{2, 7};

/// The sum over devices of (r + v) w, or, first half on the first device and so on, of the part of the sum over
/// devices.
value of_sum(value x, value w) { return einsum("a,a->", local::all_reduce<"x">(x), w); }
value of_parts(value x, value w) {
  const value part = local::reduce_scatter<"x">(x, 0);
  return local::all_reduce<"x">(einsum("a,a->", part, local::own_part<"x", state::invariant>(w, 0)));
}

}  // namespace local_gradients
using namespace local_gradients;

TEST_CASE("a replica that is added to what varies has a term of its gradient on every device") {
  for (const auto loss : {of_sum, of_parts})
    for (const auto backend : {0, 1}) {
      const auto program = dynamic::compile(
          [&](value x, value a, value w) {
            const value y = manual<"x">([&](value own, value b, value c) { return loss(own + b, c); },
                                        takes<split<"x">, replica<"x">, held<>>{}, gives<held<>>{})(x, a, w);
            return grad(y * y, std::tuple{x, a, w});
          },
          dynamic::mesh({{"x", 2}}), dynamic::input<double>({4}), dynamic::input<double>({2}), dynamic::input<double>({2}));
      const auto g = backend == 0 ? program.run(simulated{}, v, r, weights) : program.run(threads{}, v, r, weights);
      const double sums[] = {v[0] + v[2] + 2 * r[0], v[1] + v[3] + 2 * r[1]};
      const double y = sums[0] * weights[0] + sums[1] * weights[1];
      for (std::size_t i = 0; i < 4; ++i) CHECK(g[0].data<double>()[i] == 2 * y * weights[i % 2]);
      for (std::size_t i = 0; i < 2; ++i) CHECK(g[1].data<double>()[i] == 2 * 2 * y * weights[i]);
      for (std::size_t i = 0; i < 2; ++i) CHECK(g[2].data<double>()[i] == 2 * y * sums[i]);
    }
}

TEST_CASE("inside of a region such a gradient is to be summed, and is no replica") {
  const auto result = [](auto inside, auto leaves) {
    std::string said;
    std::vector<double> found;
    said = caught::error_of([&] {
      const auto program = dynamic::compile([&](value x) { return manual<"x">(inside, takes<split<"x">>{}, leaves)(x); },
                                            dynamic::mesh({{"x", 2}}), dynamic::input<double>({4}));
      const auto out = program.run(simulated{}, v);
      found.assign(out[0].template data<double>(), out[0].template data<double>() + 2);
    });
    return std::pair{said, found};
  };
  // A replica that depends on no argument.
  const auto of = [](value x, bool is_summed) {
    const value one = local::all_reduce<"x", state::replica>(stop_gradient(x));
    const value g = grad(of_sum(one + x, zeros_like(x) + 3.0), one);
    return is_summed ? local::all_reduce<"x">(g) : g;
  };
  const auto summed = result([&](value x) { return of(x, true); }, gives<held<>>{});
  CHECK(summed.first == "no error");
  CHECK(summed.second == std::vector<double>{6, 6});
  const auto of_part = [](value x) {
    const value part = local::own_part<"x", state::replica>(local::all_reduce<"x", state::replica>(stop_gradient(x)), 0);
    return grad(einsum("a->", local::all_reduce<"x">(part)), part);
  };
  const auto of_chunk = result(of_part, gives<replica<"x">>{});
  CHECK_MESSAGE(caught::contains(of_chunk.first, "the result is varying over `x` and leaves as a replica"), of_chunk.first);
  const auto alone = result([&](value x) { return of(x, false); }, gives<replica<"x">>{});
  CHECK_MESSAGE(caught::contains(alone.first, "the result is varying over `x` and leaves as a replica"), alone.first);
}
