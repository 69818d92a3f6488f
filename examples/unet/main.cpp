// SPDX-License-Identifier: Apache-2.0
// A 3-D U-Net with spatial partitioning: only the image is annotated, and every layer is split (GSPMD 5.6).
// args: --steps 3
// optimise: -O0
// precompiled: yes

#include <cstdio>
#include <cstring>

#include <gspmd/comm/threads.hpp>
#include <gspmd/report/inspect.hpp>

#include "../common/check.hpp"
#include "../common/command_line.hpp"
#include "../common/progress.hpp"
#include "model.hpp"

namespace unet {
namespace {

struct settings {
  sizes network;
  int steps = 12;
  std::int64_t space = 4;
};

/// Balls of two brightnesses in noise, and the class of each voxel: a kind of ball, or none.
struct images {
  std::vector<float> voxels, labels;

  explicit images(const sizes& s) {
    std::uint32_t random = 12345;
    const auto noise = [&] { return static_cast<float>((random = random * 1664525U + 1013904223U) >> 8U) / 16777216.0F; };
    const auto n = s.image;
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t i = 0; i < n * n * n; ++i) {
        const std::int64_t at[] = {i / (n * n), i / n % n, i % n};
        int inside = 0;
        for (int ball = 1; ball <= 2; ++ball) {
          double squares = 0;
          for (const auto x : at) squares += std::pow(static_cast<double>(x) - static_cast<double>(n * (ball + b) / (3 + b)), 2);
          if (squares < static_cast<double>(n * n) / 30) inside = ball;
        }
        voxels.push_back(static_cast<float>(inside) * 0.5F + 0.6F * noise());
        for (int c = 0; c < s.classes; ++c) labels.push_back(c == inside ? 1.0F : 0.0F);
      }
  }
};

std::vector<std::vector<float>> first_weights(const training_step& step) {
  std::vector<std::vector<float>> all;
  std::uint32_t random = 1;
  for (const auto& shape : step.weights) {
    std::int64_t count = 1, inputs = 1;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      count *= shape[d];
      if (d + 1 < shape.size()) inputs *= shape[d];
    }
    std::vector<float> w;
    for (std::int64_t i = 0; i < count; ++i) {
      random = random * 1664525U + 1013904223U;
      w.push_back((static_cast<float>(random >> 8U) / 8388608.0F - 1.0F) * std::sqrt(6.0F / static_cast<float>(inputs)));
    }
    all.push_back(std::move(w));
  }
  return all;
}

/// Returns the loss before each step.
std::vector<float> train(const settings& o, const images& given, std::int64_t data, std::int64_t space) {
  const auto step = make_step(o.network, data, space);
  const auto program = step.program.compile();
  auto weights = first_weights(step);
  examples::progress progress("step", static_cast<double>(given.voxels.size()));
  std::vector<float> losses;
  for (int k = 0; k < o.steps; ++k) {
    std::vector<const void*> inputs{given.voxels.data(), given.labels.data()};
    for (const auto& w : weights) inputs.push_back(w.data());
    const auto result = program.run(threads{}, inputs);
    losses.push_back(*result[0].data<float>());
    for (std::size_t w = 0; w < weights.size(); ++w)
      std::memcpy(weights[w].data(), result[w + 1].bytes.data(), result[w + 1].bytes.size());
    progress.show(k + 1, o.steps);
  }
  std::printf("  %lld device(s): the loss is %.5f before the first step, and %.5f before step %d\n",
              static_cast<long long>(data * space), static_cast<double>(losses.front()), static_cast<double>(losses.back()),
              o.steps);
  return losses;
}

/// Prints the split and the exchanges of every layer. Returns true if all layers are split.
bool show_layers(const sizes& s, std::int64_t space) {
  const auto step = make_step(s, 1, space);
  const dynamic::inspection plan(step.program);
  std::vector<std::int64_t> sent(step.layers.size(), 0);
  for (const auto& i : plan.instructions())
    if (i.communicates && i.sake >= 0) sent[static_cast<std::size_t>(i.sake)] += i.bytes;
  bool all = true;
  std::printf("  %-18s %-24s %-22s %s\n", "layer", "global shape", "sharding", "a device sends, forward");
  for (std::size_t l = 0; l < step.layers.size(); ++l) {
    const auto layer = plan.find(static_cast<int>(l));
    std::string shape;
    for (const auto e : layer->global_shape()) shape += (shape.empty() ? "[" : ",") + std::to_string(e);
    std::printf("  %-18s %-24s %-22s %lld bytes\n", step.layers[l].c_str(), (shape + ']').c_str(), layer->text().c_str(),
                static_cast<long long>(sent[l]));
    all = all && layer->dim_split_by("space") == 1;
  }
  return all;
}

/// Plans the paper's sizes, which are too large to run here, and prints memory and arithmetic next to those of Table 8.
void show_table_8() {
  struct column {
    std::int64_t data, space, image, batch;
    double gigabytes, seconds;  // of Table 8, on TPU v3
  };
  const column table[] = {{1, 1, 128, 4, 14.3, 2.99}, {1, 2, 128, 4, 14.8, 1.56}, {1, 4, 128, 4, 7.9, 0.79},
                          {1, 8, 128, 4, 4.5, 0.39},  {1, 16, 128, 4, 2.7, 0.19}, {4, 16, 256, 8, 14.9, 1.66},
                          {2, 32, 256, 8, 8.52, 0.76}};
  std::printf("  data x space  image  batch  GB a device  (Table 8)  Tflop a device  MB sent  (Table 8: seconds a step)\n");
  for (const auto& c : table) {
    const auto program = make_step({c.batch, c.image, 32, 4, 3}, c.data, c.space).program.compile();
    std::printf("  %4lld x %-5lld %6lld %6lld %12.2f %11.2f %15.2f %8.1f %14.2f\n", static_cast<long long>(c.data),
                static_cast<long long>(c.space), static_cast<long long>(c.image), static_cast<long long>(c.batch),
                static_cast<double>(program.peak_bytes_per_device()) * 1e-9, c.gigabytes,
                static_cast<double>(program.flops_per_device()) * 1e-12, static_cast<double>(program.traffic().bytes) * 1e-6,
                c.seconds);
  }
}

int run(const settings& o) {
  std::printf("training on images of %lld^3, one device, then %lld that share each image\n",
              static_cast<long long>(o.network.image), static_cast<long long>(o.space));
  const images given(o.network);
  const auto alone = train(o, given, 1, 1), shared = train(o, given, 1, o.space);
  double apart = 0;
  for (std::size_t k = 0; k < alone.size(); ++k)
    apart = std::max(apart, static_cast<double>(std::fabs(alone[k] - shared[k]) / std::fabs(alone[k])));
  std::printf("\nlayers on %lld devices; only the image is annotated\n", static_cast<long long>(o.space));
  const bool all = show_layers(o.network, o.space);
  std::puts("\nthe sizes of the paper, planned and not run");
  show_table_8();
  std::puts("");
  const bool is_equal = examples::check_at_most("the losses on several devices differ from one device by", apart, 1e-3);
  const bool learns = examples::check("the loss falls", alone.back() < alone.front());
  return examples::check("every layer is split, although only the image is annotated", all) && is_equal && learns ? 0 : 1;
}

}  // namespace
}  // namespace unet

int main(int argc, char** argv) {
  return examples::run_main([&] {
    unet::settings o;
    examples::command_line line("unet", "Trains a 3-D U-Net whose images are split in space, and compares it with one device.");
    line.option("--image", o.network.image, 4, 256, "voxels along each side of an image, a multiple of 4")
        .option("--steps", o.steps, 2, 10000, "training steps")
        .option("--space", o.space, 1, 64, "devices that share an image, each a thread")
        .parse(argc, argv);
    if (o.network.image % 4 != 0) throw examples::usage_error("unet: --image: the number must be a multiple of 4");
    return unet::run(o);
  });
}
