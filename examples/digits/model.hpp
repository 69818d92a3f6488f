// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tuple>

#include <gspmd/gspmd.hpp>

namespace digits {

using namespace gspmd;

constexpr std::int64_t pixels = 64, hidden = 128, classes = 10;

/// The parameters, of type T: a value in the program, an array on the host, or a sharded_array on the devices.
template <class T>
struct layers {
  T w1, b1, w2, b2;
};

// The programs, written for one device.

inline constexpr auto classify = [](value x, layers<value> p) {
  const auto h = relu(einsum<"bd,df->bf">(x, p.w1) + p.b1);
  return einsum<"bf,fc->bc">(h, p.w2) + p.b2;
};

inline constexpr auto train = [](value x, value labels, layers<value> p, layers<value> velocity) {
  const auto log_likelihood = sum(one_hot<float>(labels, classes) * log_softmax(classify(x, p), 1), {1});
  const auto loss = -mean(log_likelihood);
  const auto gradient = grad(loss, p);
  velocity = transform_leaves([](value v, value g) { return 0.9 * v + g; }, velocity, gradient);
  p = transform_leaves([](value w, value v) { return w - 0.2 * v; }, p, velocity);
  return std::tuple{loss, p, velocity};
};

// Data x Model devices: the batch is split over `data`, the hidden layer over `model`. gspmd decides about inputs
// without `split`.

template <int Data, int Model>
using pod = mesh<axis<"data", Data>, axis<"model", Model>>;

/// The meshes that --devices can choose, smallest first. Each is compiled separately.
using pods = std::tuple<pod<1, 1>, pod<2, 1>, pod<2, 2>, pod<2, 4>>;

template <std::int64_t Rows>
using images = input<float, shape<Rows, pixels>, split<"data", _>>;

using parameters = record<layers, input<float, shape<pixels, hidden>, split<_, "model">>, input<float, shape<hidden>>,
                          input<float, shape<hidden, classes>, split<"model", _>>, input<float, shape<classes>>>;

template <class Mesh, std::int64_t Rows>
using train_step = compile<train, Mesh, images<Rows>, input<std::int32_t, shape<Rows>>, parameters, parameters>;

template <class Mesh, std::int64_t Rows>
using classify_step = compile<classify, Mesh, images<Rows>, parameters>;

}  // namespace digits
