// SPDX-License-Identifier: Apache-2.0
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/tensor.hpp>

// In the explicit mode, a device computes only its part of a broadcast value, as in the automatic mode. No device holds
// the whole value.
namespace {
using namespace gspmd;
using pod = mesh<axis<"data", 4>, axis<"model", 2>>;
using rows = tensor<float, shape<64, 6>, place<pod, split<"data", _>, replica<"model">>>;
using blocks = tensor<float, shape<64, 6>, place<pod, split<"data", "model">>>;
using everywhere = tensor<float, shape<6>, place<pod, replica<"data">, replica<"model">>>;
using parts = tensor<float, shape<6>, place<pod, split<"model">, replica<"data">>>;

constexpr auto scaled = [](auto x, auto b) { return x * b + b; };
template <class X, class B>
using step = compile<scaled, pod, X, B>;
static_assert(step<rows, everywhere>::collectives == collectives{});
static_assert(step<rows, everywhere>::view.arena_bytes == 0);
static_assert(step<rows, everywhere>::flops_per_device == 2 * 16 * 6);
static_assert(step<blocks, parts>::collectives == collectives{});
static_assert(step<blocks, parts>::view.arena_bytes == 0);
static_assert(step<blocks, parts>::flops_per_device == 2 * 16 * 3);

// A user that needs the whole value gets the whole value.
constexpr auto both = [](auto x, auto b) {
  const auto wide = broadcast_in_dim(b, {64, 6}, {1});
  return std::tuple{x + wide, wide};
};
static_assert(compile<both, pod, rows, everywhere>::collectives == collectives{});

// A conversion between floats accepts partial sums: the gradient of f16 weights, and the mean of f16 values, rounded at
// the reduction.
using chain = mesh<axis<"data", 4>>;
using batch = tensor<f16, shape<64, 6>, place<chain, split<"data", _>>>;
using weights = tensor<f16, shape<6>, place<chain, replica<"data">>>;
constexpr auto descend = [](auto x, auto w) {
  const auto y = cast<float>(x) * cast<float>(w);
  return std::tuple{reshard<replica<"data">>(grad(sum(y * y), w)), reshard<replica<"data">>(mean(x, 0))};
};
static_assert(compile<descend, chain, batch, weights>::traffic.in(collective_kind::all_reduce).bytes == 2 * 2 * 3 * 6 * 2 / 4);
}  // namespace
