// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/index.hpp>
#include <gspmd/ops.hpp>
#include <gspmd/windows.hpp>

/// The operators of GShard's Table 4, and the growth of their numbers with the number of devices.
namespace papers {

using namespace gspmd;

/// Returns the slope of log(y) over log(x), by least squares.
inline double exponent(const std::vector<double>& x, const std::vector<double>& y) {
  double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double a = std::log(x[i]), b = std::log(y[i]);
    n += 1, sx += a, sy += b, sxx += a * a, sxy += a * b;
  }
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

/// A convolution of 3 x 3 with zeros around the images, BIXY,xyIO->BOXY: the sum of a product for every position of the
/// kernel.
inline value shifted_convolution(value images, const std::vector<value>& kernel) {
  value sum;
  for (int x = 0; x < 3; ++x) {
    const value moved = shift(images, x - 1, along(2));
    for (int y = 0; y < 3; ++y) {
      const value term = einsum<"bixy,io->boxy">(shift(moved, y - 1, along(3)), kernel[static_cast<std::size_t>(3 * x + y)]);
      sum = sum.is_valid() ? sum + term : term;
    }
  }
  return sum;
}

struct table_4_row {
  const char* name;
  double total, per_device;                                      // exponents of flops
  const char* collective;                                        // "" for none
  double communication;                                          // exponent of seconds
  std::function<void(dynamic::builder&, std::int64_t)> program;  // for this number of devices
};

/// D devices on a torus (x, y) that is square or twice as long as wide. Every split dim has extent 8 D and is split
/// over all devices.
inline std::vector<table_4_row> table_4() {
  const std::string all = "x,y";
  const auto f32 = [](std::vector<std::int64_t> shape, std::vector<std::string> sharding) {
    return dynamic::input<float>(std::move(shape), std::move(sharding));
  };
  return {
      {"Add(A,A->A), A", 1, 0, "", 0,
       [=](dynamic::builder& b, std::int64_t d) {
         const auto a = b.input(f32({8 * d}, {all}));
         b.output(a + b.input(f32({8 * d}, {all})));
       }},
      {"Matmul(AB,BC->AC), B", 1, 0, "all_reduce x,y", 0,
       [=](dynamic::builder& b, std::int64_t d) {
         const auto a = b.input(f32({8, 64 * d}, {"", all}));
         b.output(b.reshard(einsum<"ab,bc->ac">(a, b.input(f32({64 * d, 8}, {all, ""}))), {"", ""}));
       }},
      {"Matmul(AB,BC->AC), A", 1, 0, "", 0,
       [=](dynamic::builder& b, std::int64_t d) {
         const auto a = b.input(f32({8 * d, 64}, {all, ""}));
         b.output(einsum<"ab,bc->ac">(a, b.input(f32({64, 64}, {"", ""}))));
       }},
      {"Matmul(AB,BC->AC), A,B", 2, 1, "all_gather x,y", 1,
       [=](dynamic::builder& b, std::int64_t d) {
         const auto a = b.input(f32({8 * d, 8 * d}, {all, ""}));
         b.output(b.reshard(einsum<"ab,bc->ac">(a, b.input(f32({8 * d, 4}, {all, ""}))), {all, ""}));
       }},
      {"Matmul(AB,BC->AC), A,C", 2, 1, "all_gather x,y", 1,
       [=](dynamic::builder& b, std::int64_t d) {
         const auto a = b.input(f32({8 * d, 4}, {all, ""}));
         b.output(b.reshard(einsum<"ab,bc->ac">(a, b.input(f32({4, 8 * d}, {"", all}))), {all, ""}));
       }},
      {"Reduce(AB->A), A", 1, 0, "", 0,
       [=](dynamic::builder& b, std::int64_t d) {
         b.output(sum(b.input(f32({8 * d, 64}, {all, ""})), {1}));
       }},
      {"Reduce(AB->B), A", 1, 0, "all_reduce x,y", 0,
       [=](dynamic::builder& b, std::int64_t d) {
         b.output(b.reshard(sum(b.input(f32({8 * d, 64}, {all, ""})), {0}), {""}));
       }},
      {"Einsum(GSEC,GSM->EGCM), G,E", 1, 0, "all_to_all x,y", 0.5,
       [=](dynamic::builder& b, std::int64_t d) {  // C is O(1/D)
         const auto mask = b.input(f32({d, 512, d, 2048 / d}, {all, "", "", ""}));
         b.output(b.reshard(einsum<"gsec,gsm->egcm">(mask, b.input(f32({d, 512, 16}, {all, "", ""}))), {all, "", "", ""}));
       }},
      {"Convolution(BIXY,xyIO->BOXY), X", 1, 0, "collective_permute x,y, collective_permute x,y", 0,  // to either side
       [=](dynamic::builder& b, std::int64_t d) {
         const auto images = b.input(f32({2, 4, 8 * d, 16}, {"", "", all, ""}));
         std::vector<value> kernel;
         for (int k = 0; k < 9; ++k) kernel.push_back(b.input(f32({4, 8}, {"", ""})));
         b.output(shifted_convolution(images, kernel));
       }},
  };
}

}  // namespace papers
