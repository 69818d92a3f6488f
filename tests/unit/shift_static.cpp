// SPDX-License-Identifier: Apache-2.0
// group: operators
#include <doctest/doctest.h>

#include <string>
#include <tuple>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/explain.hpp>
#include <gspmd/gspmd.hpp>

#include "support/equal_plans.hpp"

// Shifts on the static path: a stencil and a convolution, and the plan of the run-time path.

using namespace gspmd;

namespace {
using grid = mesh<axis<"x", 2>, axis<"y", 3>>;
constexpr auto heat = [](auto t) {  // rows uneven over x, columns uneven over y
  const value around = shift(t, 0, -1) + shift(t, 0, 1) + shift(t, 1, -1) + shift(t, 1, 1);
  return t + 0.125 * (around - 4.0 * t);
};
using heat_step = compile<heat, grid, in<double, dims<9, 7>, split<"x", "y">>>;
static_assert(heat_step::collectives ==
              list{collective_permute<"x">, collective_permute<"x">, collective_permute<"y">, collective_permute<"y">});
static_assert(heat_step::traffic.over("x").bytes == 2 * 3 * 8 && heat_step::traffic.over("y").bytes == 2 * 5 * 8);
static_assert(heat_step::traffic.messages == 4 && heat_step::input_shard<0>::local_extents == dims<5, 3>::value);

// A convolution of 3 along the split dim: BXI,xIO->BXO with its gradients.
constexpr auto convolution = [](auto images, auto left, auto middle, auto right) {
  const value a = einsum<"bxi,io->bxo">(shift(images, 1, -1), left);
  const value b = einsum<"bxi,io->bxo">(images, middle);
  const value c = einsum<"bxi,io->bxo">(shift(images, 1, 1), right);
  return a + b + c;
};
constexpr auto trained = [](auto images, auto left, auto middle, auto right) {
  const value y = convolution(images, left, middle, right);
  return grad(sum(y * y), std::tuple{images, left});
};
using four = mesh<axis<"x", 4>>;
using images_in = in<double, dims<2, 10, 3>, split<_, "x", _>>;
using kernel_in = in<double, dims<3, 2>>;
using forward = compile<convolution, four, images_in, kernel_in, kernel_in, kernel_in>;
using backward = compile<trained, four, images_in, kernel_in, kernel_in, kernel_in>;
static_assert(forward::collectives == list{collective_permute<"x">, collective_permute<"x">});
static_assert(forward::traffic.bytes == 2 * (2 * 3 * 8));
static_assert(backward::output_shard<0>::local_extents == dims<2, 3, 3>::value);

// Nothing is sent along dims that are whole, nor where all that is left is zero.
constexpr auto along = [](auto x) { return std::tuple{shift(x, 1, 2), shift(x, 0, 9), shift(x, 0, 0)}; };
static_assert(compile<along, four, in<float, dims<9, 7>, split<"x", _>>>::collectives == list{});
// Farther than a shard: from the second and the third device after it.
constexpr auto far = [](auto x) { return shift(x, 0, 5); };
using far_step = compile<far, four, in<float, dims<8>, split<"x">>>;
static_assert(far_step::traffic.collectives == 1 && far_step::traffic.messages == 2 && far_step::traffic.bytes == 8);

std::vector<double> numbers(std::size_t n, std::size_t step_by) {
  std::vector<double> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<double>(i * step_by % 11) - 5;
  return x;
}
}  // namespace

TEST_CASE("a stencil of the heat equation") {
  const auto t = numbers(9 * 7, 7);
  const auto at = [&](std::int64_t r, std::int64_t c) {
    return r < 0 || r >= 9 || c < 0 || c >= 7 ? 0.0 : t[static_cast<std::size_t>(r * 7 + c)];
  };
  const auto check = [&](const auto& backend) {
    const auto got = run<heat_step>(backend, t);
    for (std::int64_t r = 0; r < 9; ++r)
      for (std::int64_t c = 0; c < 7; ++c) {
        const double around = at(r - 1, c) + at(r + 1, c) + at(r, c - 1) + at(r, c + 1);
        CHECK(got.data()[r * 7 + c] == at(r, c) + 0.125 * (around - 4.0 * at(r, c)));
      }
  };
  check(simulated{});
  check(threads{});
}

TEST_CASE("a convolution and its gradients") {
  const auto images = numbers(2 * 10 * 3, 7);
  const std::vector<double> kernel[] = {numbers(3 * 2, 3), numbers(3 * 2, 5), numbers(3 * 2, 4)};
  std::vector<double> y(2 * 10 * 2), by_images(2 * 10 * 3), by_left(3 * 2);
  const auto each_term = [&](auto visit) {  // output, image, place of the kernel, weight
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t x = 0; x < 10; ++x)
        for (std::int64_t k = 0; k < 3; ++k)
          for (std::int64_t i = 0; i < 3 && x + k - 1 >= 0 && x + k - 1 < 10; ++i)
            for (std::int64_t o = 0; o < 2; ++o)
              visit(static_cast<std::size_t>((b * 10 + x) * 2 + o), static_cast<std::size_t>((b * 10 + x + k - 1) * 3 + i),
                    static_cast<std::size_t>(k), static_cast<std::size_t>(i * 2 + o));
  };
  each_term([&](std::size_t to, std::size_t from, std::size_t k, std::size_t w) { y[to] += images[from] * kernel[k][w]; });
  each_term([&](std::size_t to, std::size_t from, std::size_t k, std::size_t w) {
    by_images[from] += 2 * y[to] * kernel[k][w];
    if (k == 0) by_left[w] += 2 * y[to] * images[from];
  });
  const auto check = [&](const auto& backend) {
    const auto got = run<forward>(backend, images, kernel[0], kernel[1], kernel[2]);
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(got.data()[i] == y[i]);
    const auto [images_got, left_got] = run<backward>(backend, images, kernel[0], kernel[1], kernel[2]);
    for (std::size_t i = 0; i < by_images.size(); ++i) CHECK(images_got.data()[i] == by_images[i]);
    for (std::size_t i = 0; i < by_left.size(); ++i) CHECK(left_got.data()[i] == by_left[i]);
  };
  check(simulated{});
  check(threads{});
}

TEST_CASE("one planner") {
  const auto program = dynamic::compile(heat, dynamic::mesh({{"x", 2}, {"y", 3}}), dynamic::in<double>({9, 7}, {"x", "y"}));
  CHECK(reference::difference(heat_step::view, program.view()) == "");
}

TEST_CASE("what explain says, and what is refused") {
  const auto text = explain<far_step>();
  CHECK(text.find("shift(dim 0, +5)") != std::string::npos);
  CHECK(text.find("collective_permute over x of the boundaries of #0: sends 8 bytes\n") != std::string::npos);
  CHECK(text.find("2 messages\n") != std::string::npos);
  for (const int dim : {-3, 2, 300}) {
    std::string refused;
    try {
      dynamic::builder b(dynamic::mesh({{"x", 4}}));
      b.output(shift(b.input(dynamic::in<float>({8, 3})), dim, 1));
      static_cast<void>(b.compile());
    } catch (const error& e) {
      refused = e.what();
    }
    CHECK(refused.find("shift at shift_static.cpp:") != std::string::npos);
    CHECK(refused.find(": dim " + std::to_string(dim) + " is not a dim of [8,3]; dims count from 0") != std::string::npos);
  }
}
