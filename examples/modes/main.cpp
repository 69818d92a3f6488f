// SPDX-License-Identifier: Apache-2.0
// One training step of two layers, and one of a Transformer block (block.cpp), each in three modes. Annotations: the
// planner finds the communication. Types: the program writes all communication. Manual: the program is a device's work.
// All modes give the same numbers, and the compiler checks their bytes. README.md explains them.
// optimise: -O0

#include <cmath>
#include <cstdio>
#include <tuple>
#include <type_traits>

#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>
#include <gspmd/modes/tensor.hpp>

#include "../common/check.hpp"
#include "../common/command_line.hpp"
#include "block.hpp"

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

namespace {

// Automatic: global shapes and a few annotations.
constexpr auto automatic = [](auto x, auto w1, auto w2) {
  auto h = tanh(einsum<"bd,df->bf">(x, w1));
  auto y = einsum<"bf,fd->bd">(h, w2);
  auto g = grad(einsum<"bd->">(y * y), std::tuple{w1, w2});
  return std::tuple{w1 - 0.1 * std::get<0>(g), w2 - 0.1 * std::get<1>(g)};
};
using automatic_step = compile<automatic, pod, input<float, shape<8, 6>, split<"data", _>>,
                               input<float, shape<6, 10>, split<_, "model">>, input<float, shape<10, 6>, split<"model", _>>>;

// Explicit: the same, except for the lines that communicate. Each weight is one value for devices with different data
// along `data`, so the gradients of the weights are partial, and `summed` sums them.
using activations = tensor<float, shape<8, 6>, place<pod, split<"data", _>, replica<"model">>>;
using column_parallel = tensor<float, shape<6, 10>, place<pod, split<_, "model">, replica<"data">>>;
using row_parallel = tensor<float, shape<10, 6>, place<pod, split<"model", _>, replica<"data">>>;

constexpr auto explicitly = [](auto x, auto w1, auto w2) {
  auto h = tanh(einsum<"bd,df->bf">(x, w1));
  auto y = reshard<invariant<"model">>(einsum<"bf,fd->bd">(h, w2));  // all_reduce over model
  auto g = grad(einsum<"bd->">(y * y), std::tuple{w1, w2});          // partial over data: the loss is partial
  const auto summed = [](auto term) { return reshard<replica<"data">>(term); };
  return std::tuple{w1 - 0.1 * summed(std::get<0>(g)), w2 - 0.1 * summed(std::get<1>(g))};
};
using explicit_step = compile<explicitly, pod, activations, column_parallel, row_parallel>;

static_assert(explicit_step::collectives == collectives{all_reduce<"model">, all_reduce<"data">, all_reduce<"data">});
static_assert(std::is_same_v<typed_result<explicitly, pod, activations, column_parallel, row_parallel>, column_parallel>);

// Manual: the same from the view of one device, on its shards: x [4,6], w1 [6,5], w2 [5,6].
constexpr auto by_device = [](auto x, auto w1, auto w2) {
  auto h = tanh(einsum<"bd,df->bf">(x, w1));
  auto y = local::all_reduce<"model">(einsum<"bf,fd->bd">(h, w2));
  auto loss = local::to_partial<"data">(einsum<"bd->">(y * y));  // partial again: each device has the sum of its rows
  auto g = grad(loss, std::tuple{w1, w2});
  const auto summed = [](auto term) { return local::all_reduce<"data", state::replica>(term); };
  return std::tuple{w1 - 0.1 * summed(std::get<0>(g)), w2 - 0.1 * summed(std::get<1>(g))};
};
using rows = held<split<"data", _>, replica<"model">>;
using columns_of_w1 = held<split<_, "model">, replica<"data">>;
using rows_of_w2 = held<split<"model", _>, replica<"data">>;
constexpr auto manually = [](auto x, auto w1, auto w2) {
  return manual<"data", "model">(by_device, takes<rows, columns_of_w1, rows_of_w2>{}, gives<columns_of_w1, rows_of_w2>{})(x, w1,
                                                                                                                          w2);
};
using manual_step = compile<manually, pod, input<float, shape<8, 6>, split<"data", _>>,
                            input<float, shape<6, 10>, split<_, "model">>, input<float, shape<10, 6>, split<"model", _>>>;

static_assert(manual_step::collectives == explicit_step::collectives);
static_assert(manual_step::traffic.bytes == explicit_step::traffic.bytes);

bool are_close(const array<float>& a, const array<float>& b) {
  for (std::int64_t i = 0; i < a.size(); ++i)
    if (std::fabs(a[i] - b[i]) > 1e-5F) return false;
  return true;
}

}  // namespace

static int compare_modes() {
  array<float> x({8, 6}), w1({6, 10}), w2({10, 6});
  for (std::int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 5) * 0.2F - 0.4F;
  for (std::int64_t i = 0; i < w1.size(); ++i)
    w1[i] = static_cast<float>(i % 7) * 0.1F - 0.3F, w2[i] = static_cast<float>(i % 3) * 0.1F;
  const auto [a1, a2] = run<automatic_step>(threads{}, x, w1, w2);
  const auto [e1, e2] = run<explicit_step>(threads{}, x, w1, w2);
  const auto [m1, m2] = run<manual_step>(threads{}, x, w1, w2);
  std::printf("one device sends %lld bytes as planned, %lld as types state, %lld hand-written\n",
              static_cast<long long>(automatic_step::traffic.bytes), static_cast<long long>(explicit_step::traffic.bytes),
              static_cast<long long>(manual_step::traffic.bytes));
  const bool is_right = are_close(a1, e1) && are_close(a2, e2) && are_close(a1, m1) && are_close(a2, m2) && run_block();
  return examples::check("all modes give the same weights, to 1e-5", is_right) ? 0 : 1;
}

int main(int argc, char** argv) {
  return examples::run_main([&] {
    examples::no_options(argc, argv, "modes",
                         "Computes training steps in the automatic, explicit and manual mode, and compares their weights.");
    return compare_modes();
  });
}
