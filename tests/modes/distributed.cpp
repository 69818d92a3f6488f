// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Operators on distributed tensors, called separately: each is a step, and types state the data of the devices.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <gspmd/gspmd.hpp>
#include <gspmd/modes/distributed.hpp>
#include <gspmd/transform/grad.hpp>

using namespace gspmd;

namespace {

using pod = mesh<axis<"dp", 2>>;
using batch = tensor<double, shape<3, 5>, place<pod, split<"dp", _>>>;  // an uneven one
using weights = tensor<double, shape<5, 2>, place<pod, split<_, _>, replica<"dp">>>;
using terms = tensor<double, shape<5, 2>, place<pod, split<_, _>, partial<"dp">>>;

constexpr auto gradient_of = [](value x, value w) {
  const value y = einsum<"bd,df->bf">(x, w);
  return grad(einsum<"bf->">(y * y), w);
};
constexpr auto sum_up = [](value g) { return reshard<invariant<"dp">>(g); };

// The sum over microbatches sends nothing. The types require one all_reduce for all microbatches.
static_assert(compile<gradient_of, pod, batch, weights>::collectives == collectives{});
static_assert(compile<sum_up, pod, terms>::collectives == collectives{all_reduce<"dp">});

}  // namespace

TEST_CASE("gradients of microbatches on distributed tensors are terms until they are summed") {
  std::vector<double> xs(15), ws(10), expected(10, 0);
  for (std::size_t k = 0; k < xs.size(); ++k) xs[k] = static_cast<double>(k % 7) - 3;
  for (std::size_t k = 0; k < ws.size(); ++k) ws[k] = static_cast<double>(k % 4) - 1;
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t f = 0; f < 2; ++f) {
      double y = 0;
      for (std::size_t d = 0; d < 5; ++d) y += xs[r * 5 + d] * ws[d * 2 + f];
      for (std::size_t d = 0; d < 5; ++d) expected[d * 2 + f] += 3 * 2 * y * xs[r * 5 + d];
    }
  launch(threads{}, 2, [&](threads_communicator& comm) {
    const auto x = distribute<batch>(comm, xs);
    const auto w = distribute<weights>(comm, ws);
    auto g = call<gradient_of>(x, w);
    static_assert(std::is_same_v<decltype(g)::type, terms>);
    for (int microbatch = 1; microbatch < 3; ++microbatch) g = g + call<gradient_of>(x, w);
    CHECK_THROWS_AS(static_cast<void>(collect(g)), error);
    const auto sum = call<sum_up>(g);
    static_assert(std::is_same_v<decltype(sum)::type, tensor<double, shape<5, 2>, place<pod, split<_, _>>>>);
    const auto whole = collect(sum);
    for (std::int64_t k = 0; k < whole.size(); ++k) CHECK(whole[k] == expected[static_cast<std::size_t>(k)]);
  });
}
