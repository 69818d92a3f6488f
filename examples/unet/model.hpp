// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gspmd/dynamic.hpp>
#include <gspmd/index.hpp>
#include <gspmd/ops.hpp>
#include <gspmd/transform/grad.hpp>
#include <gspmd/windows.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// A 3-D U-Net (Çiçek et al. 2016) without batch norm: levels of two 3x3x3 convolutions, connected by pooling on the
/// way down and by transposed convolutions and concatenation on the way up.
namespace unet {

using namespace gspmd;

struct sizes {
  std::int64_t batch = 2, image = 16, channels = 8;  // channels of the first convolution; every lower level has twice the number
  int levels = 3;
  std::int64_t classes = 3;
};

/// A training step that is built: the program, its layers, and the extents of its inputs.
struct training_step {
  dynamic::builder program;
  std::vector<std::string> layers;                 // by label
  std::vector<std::vector<std::int64_t>> weights;  // their shapes, in the order of the inputs after image and labels
};

/// Builds the forward pass and labels all its layers.
class network {
 public:
  network(training_step& step, const sizes& s) : step_(step), sizes_(s) {}

  /// [n,d,h,w,1] to logits [n,d,h,w,classes].
  value operator()(value image) {
    value x = image;
    std::vector<value> across;
    for (int l = 0; l < sizes_.levels; ++l) {
      const auto level = "down " + std::to_string(l);
      const auto wide = sizes_.channels << l;
      x = relu(convolved(x, wide, level + ", first"));
      x = relu(convolved(x, 2 * wide, level + ", second"));
      if (l + 1 == sizes_.levels) break;
      across.push_back(x);
      x = named(max_pool(x, {1, 2, 2, 2, 1}), level + ", pool");
    }
    for (int l = sizes_.levels - 2; l >= 0; --l) {
      const auto level = "up " + std::to_string(l);
      const auto wide = sizes_.channels << (l + 1);
      const auto from = x.shape()[4];
      x = named(
          convolution(x, weight({2, 2, 2, from, from}), layout, {.low = {1, 1, 1}, .high = {1, 1, 1}, .lhs_dilation = {2, 2, 2}}),
          level + ", transposed");
      x = concatenate({x, across[static_cast<std::size_t>(l)]}, 4);
      x = relu(convolved(x, wide, level + ", first"));
      x = relu(convolved(x, wide, level + ", second"));
    }
    return named(convolution(x, weight({1, 1, 1, x.shape()[4], sizes_.classes}), layout), "classes");
  }
  [[nodiscard]] const std::vector<value>& weights() const { return weights_; }

 private:
  static constexpr std::string_view layout = "NDHWC,DHWIO->NDHWC";

  value convolved(value x, std::int64_t channels, const std::string& name) {
    return named(convolution(x, weight({3, 3, 3, x.shape()[4], channels}), layout, {.padding = "same"}), name);
  }
  value weight(std::vector<std::int64_t> shape) {
    weights_.push_back(step_.program.input(dynamic::input<float>(shape)));
    step_.weights.push_back(std::move(shape));
    step_.program.label(-1);
    return weights_.back();
  }
  /// Labels the operators since the last label as this layer.
  value named(value x, const std::string& name) {
    step_.program.label(static_cast<int>(step_.layers.size()));
    step_.layers.push_back(name);
    return x;
  }

  training_step& step_;
  const sizes& sizes_;
  std::vector<value> weights_;
};

/// One step of gradient descent on the cross-entropy: inputs image, labels and weights; outputs the loss, then the
/// weights. Only the image is annotated: its batch is split over `data`, its first spatial dim over `space` (GSPMD
/// 5.6).
inline training_step make_step(const sizes& s, std::int64_t data, std::int64_t space) {
  training_step step{dynamic::builder(dynamic::mesh({{"data", data}, {"space", space}})), {}, {}};
  auto& b = step.program;
  const auto n = s.image;
  const value image = b.input(dynamic::input<float>({s.batch, n, n, n, 1}, {"data", "space", "", "", ""}));
  const value labels = b.input(dynamic::input<float>({s.batch, n, n, n, s.classes}));
  b.label(-1);
  network net(step, s);
  const value chosen = sum(softmax(net(image), 4) * labels, 4);
  const value loss = -1.0 * mean(log(chosen + 1e-6));
  b.label(-1);
  b.output(loss);
  const auto gradients = grad(loss, net.weights());
  for (std::size_t k = 0; k < gradients.size(); ++k) b.output(net.weights()[k] - 0.02 * gradients[k]);
  b.label(-1);
  return step;
}

}  // namespace unet
