// SPDX-License-Identifier: Apache-2.0
// Common layouts as training steps. Each is planned at the size of a large model, and the bytes of a device are
// compared with the closed form of its paper. Each also runs at a small size on threads, compared with the same step on
// one device. See layouts.hpp and others.hpp.
// precompiled: yes

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/program/dtype.hpp>

#include "../common/check.hpp"
#include "../common/command_line.hpp"
#include "layouts.hpp"
#include "others.hpp"
#include "pipelines.hpp"
#include "six_axes.hpp"

namespace zoo {
namespace {

using axes = std::vector<dynamic::mesh::axis>;

/// A row of the table. `plan` plans the step on a mesh, small or large. `bytes` is the closed form for the large size.
struct entry {
  const char* name;
  axes devices;
  std::function<dynamic::program(const dynamic::mesh&, bool is_large)> plan;
  double bytes;
  std::int32_t indices = 1;  // of a small run: integers are smaller than this
  // The same step on one device, if it is not this plan on axes of one device.
  std::function<dynamic::program(const dynamic::mesh&)> alone = {};  // called with a mesh of such axes
  double permuted = -1;  // the part of `bytes` that is sent from neighbour to neighbour; -1: not checked
};

// A plan sends the bytes of the closed form, or less, for example because gradients are reduced in parts or a gather is
// saved. A plan that sends far less is a different program from the one that the closed form describes.
constexpr double least_ratio = 0.8, most_ratio = 1.001, most_difference = 1e-5;

constexpr layer_sizes small{8, 16, 16, 8, 64}, large{8, 2048, 4096, 32, 16384};

constexpr pipeline_sizes small_stages{{2, 16, 16, 8, 64}, 4, 6}, large_stages{{2, 2048, 4096, 32, 16384}, 4, 8};

entry layer(const char* name, axes devices, dynamic::program (*step)(const dynamic::mesh&, const layer_sizes&), double bytes,
            double permuted = -1) {
  return {name,
          std::move(devices),
          [step](const dynamic::mesh& m, bool is_large) { return step(m, is_large ? large : small); },
          bytes,
          1,
          [](const dynamic::mesh&) {
            return data_parallel(dynamic::mesh({{"data", 1}}), small);
          },
          permuted};
}
template <class Sizes>
entry other(const char* name, axes devices, dynamic::program (*step)(const dynamic::mesh&, const Sizes&), const Sizes& of_small,
            const Sizes& of_large, double bytes, std::int32_t indices = 1) {
  return {name, std::move(devices),
          [=](const dynamic::mesh& m, bool is_large) { return step(m, is_large ? of_large : of_small); }, bytes, indices};
}

entry piped(const char* name, axes devices, dynamic::program (*step)(const dynamic::mesh&, const pipeline_sizes&), double bytes,
            double permuted) {
  return {name,
          std::move(devices),
          [step](const dynamic::mesh& m, bool is_large) { return step(m, is_large ? large_stages : small_stages); },
          bytes,
          1,
          [](const dynamic::mesh& m) { return train_one_by_one(m, small_stages); },
          permuted};
}

std::vector<entry> all_entries() {
  const axes eight{{"data", 8}}, hybrid{{"replica", 2}, {"shard", 4}}, megatron{{"data", 2}, {"model", 4}};
  const axes cube{{"replica", 2}, {"shard", 2}, {"model", 2}}, sequence{{"data", 2}, {"sequence", 4}};
  const axes context{{"data", 2}, {"context", 4}}, one_axis{{"d", 8}}, space{{"data", 2}, {"space", 4}};
  const axes stages{{"stage", 4}, {"data", 2}};
  const moe::sizes few_experts{8, 16, 8, 6, 16, 32}, experts{8, 2048, 64, 64, 4096, 16384};
  const moe::sizes many_tokens{64, 2048, 8, 512, 4096, 16384};
  const table_sizes few_rows{16, 8, 32, 8, 5}, rows{16384, 32, 1'000'000, 128, 13};
  const image_sizes small_images{4, 16, 3, 4}, images{16, 1024, 32, 64};
  const axes six{{"stage", 2}, {"replica", 2}, {"shard_of_experts", 2}, {"shard_in_experts", 2}, {"context", 2}, {"model", 2}};
  const six_axes_sizes few_axes{{{8, 8, 16, 2, 8}, 2, 3}, 4, 3, 2}, all_axes{{{8, 2048, 4096, 32, 4096}, 2, 8}, 16, 128, 2};
  entry of_all = other(
      "all six axes", six, +[](const dynamic::mesh& m, const six_axes_sizes& n) { return six_axes(m, n); }, few_axes, all_axes,
      six_axes_bytes(all_axes, 2, 2, 2, 2, 2));
  of_all.permuted = between_stages_bytes(all_axes.layers, 16);
  of_all.alone = [=](const dynamic::mesh& m) { return six_axes(m, few_axes, false); };
  return {
      layer("data parallel", eight, data_parallel, data_parallel_bytes(large, 8)),
      layer("ZeRO-1", eight, zero_1, zero_2_bytes(large, 8)),
      layer("ZeRO-2", eight, zero_2, zero_2_bytes(large, 8)),
      layer("ZeRO-3, FSDP", eight, fully_sharded, fully_sharded_bytes(large, 8)),
      layer("HSDP", hybrid, hybrid_sharded, hybrid_sharded_bytes(large, 2, 4)),
      layer("tensor parallel", megatron, tensor_parallel, tensor_parallel_bytes(large, 2, 4)),
      layer("TP with sequence parallel", megatron, sequence_parallel, sequence_parallel_bytes(large, 2, 4)),
      layer("HSDP with TP", cube, hybrid_with_tensor_parallel, hybrid_with_tensor_parallel_bytes(large, 2, 2, 2)),
      layer("Ulysses", sequence, ulysses, ulysses_bytes(large, 2, 4)),
      layer("context parallel, keys gathered", context, context_parallel, context_parallel_bytes(large, 2, 4)),
      layer("the same with FSDP", context, context_parallel_fully_sharded, context_parallel_fully_sharded_bytes(large, 2, 4)),
      layer("context parallel by a ring", context, ring_context_parallel, ring_context_parallel_bytes(large, 2, 4),
            ring_bytes(large, 2, 4)),
      layer("the same with FSDP", context, ring_fully_sharded, context_parallel_fully_sharded_bytes(large, 2, 4),
            ring_bytes(large, 2, 4)),
      piped("pipeline, 1F1B, data parallel", stages, pipeline_data_parallel, pipeline_data_parallel_bytes(large_stages, 2),
            between_stages_bytes(large_stages, 2)),
      piped("pipeline, 1F1B, weights gathered once", stages, pipeline_gathered_once,
            pipeline_gathered_once_bytes(large_stages, 2), between_stages_bytes(large_stages, 2)),
      piped("pipeline, 1F1B, with FSDP", stages, pipeline_fully_sharded, pipeline_fully_sharded_bytes(large_stages, 2),
            between_stages_bytes(large_stages, 2)),
      piped("pipeline, GPipe, with TP", {{"stage", 4}, {"model", 2}}, pipeline_tensor_parallel,
            pipeline_tensor_parallel_bytes(large_stages, 2), between_stages_bytes(large_stages, 1)),
      piped("the same with sequence parallel", {{"stage", 4}, {"model", 2}}, pipeline_sequence_parallel,
            pipeline_sequence_parallel_bytes(large_stages, 2), between_stages_bytes(large_stages, 2)),
      std::move(of_all),
      other("experts", one_axis, expert_parallel, few_experts, experts, expert_parallel_bytes(experts, 8)),
      other("experts with FSDP", {{"data", 2}, {"expert", 4}}, expert_parallel_fully_sharded, few_experts, many_tokens,
            expert_parallel_fully_sharded_bytes(many_tokens, 2, 4)),
      other("embedding tables", one_axis, embedding_tables, few_rows, rows, embedding_tables_bytes(rows, 8), 32),
      other("images by rows", space, spatial, small_images, images, spatial_bytes(images, 2, 4)),
  };
}

/// Returns pseudorandom numbers, the same on every machine: floats in [-1, 1), integers below `indices`.
std::vector<std::byte> numbers(dtype type, std::int64_t count, std::size_t input, std::int32_t indices) {
  std::uint32_t state = 12345 + 7919 * static_cast<std::uint32_t>(input);
  const auto next = [&] { return (state = state * 1664525 + 1013904223) >> 8; };
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * static_cast<std::size_t>(gspmd::bytes_of(type)));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto drawn = next();
    if (type == dtype::f32) reinterpret_cast<float*>(bytes.data())[i] = static_cast<float>(drawn) / (1 << 23) - 1;
    else if (type == dtype::s32) reinterpret_cast<std::int32_t*>(bytes.data())[i] = static_cast<std::int32_t>(drawn) % indices;
    else reinterpret_cast<std::uint64_t*>(bytes.data())[i] = drawn;
  }
  return bytes;
}

/// Returns the largest difference between an output on the mesh and on one device, divided by the largest number of
/// this output.
double largest_difference(const entry& e) {
  axes alone = e.devices;
  for (auto& a : alone) a.size = 1;
  const auto split = e.plan(dynamic::mesh(e.devices), false);
  const auto whole = e.alone ? e.alone(dynamic::mesh(alone)) : e.plan(dynamic::mesh(alone), false);
  std::vector<std::vector<std::byte>> inputs;
  std::vector<const void*> pointers;
  for (std::size_t k = 0; k < whole.input_count(); ++k) {
    const auto in = whole.input(k);
    std::int64_t count = 1;
    for (const auto extent : in.global_shape()) count *= extent;
    inputs.push_back(numbers(in.type(), count, k, e.indices));
    pointers.push_back(inputs.back().data());
  }
  const auto found = split.run(threads{}, pointers), expected = whole.run(serial{}, pointers);
  double largest = found.size() == expected.size() ? 0 : INFINITY;
  for (std::size_t k = 0; k < found.size(); ++k) {
    double apart = 0, size = 0;
    for (std::size_t i = 0; i < expected[k].bytes.size() / sizeof(float); ++i) {
      const double a = static_cast<double>(found[k].data<float>()[i]), b = static_cast<double>(expected[k].data<float>()[i]);
      apart = std::isfinite(a) && std::isfinite(b) ? std::max(apart, std::abs(a - b)) : INFINITY;
      size = std::max(size, std::abs(b));
    }
    largest = std::max(largest, apart / std::max(size, 1e-30));
  }
  return largest;
}

int run() {
  std::printf(
      "A training step of one layer on 8 devices, of a layer on each stage of pipelines, all six axes on 64. Bytes: what one "
      "device sends, planned for %lld sequences of %lld tokens of "
      "%lld numbers (experts, tables and images: others.hpp), beside the closed form. Difference: of the step on threads, at a "
      "small size, from one device, relative.\n\n",
      static_cast<long long>(large.batch), static_cast<long long>(large.tokens), static_cast<long long>(large.width));
  std::puts("| layout | mesh | MB sent | closed form | ratio | peak MB | difference |\n|---|---|---|---|---|---|---|");
  int wrong = 0;
  for (const auto& e : all_entries()) {
    const auto p = e.plan(dynamic::mesh(e.devices), true);
    const auto bytes = static_cast<double>(p.traffic().bytes);
    const double ratio = bytes / e.bytes, apart = largest_difference(e);
    std::string mesh;
    for (const auto& a : e.devices) mesh += (mesh.empty() ? "" : ", ") + a.name + ' ' + std::to_string(a.size);
    const auto permuted = static_cast<double>(p.traffic().in(collective_kind::collective_permute).bytes);
    const bool is_right = apart <= most_difference && ratio >= least_ratio && ratio <= most_ratio &&
                          (e.permuted < 0 || std::abs(permuted - e.permuted) < 1);
    wrong += !is_right;
    std::printf("| %s | %s | %.1f | %.1f | %.3f | %.0f | %.0e%s |\n", e.name, mesh.c_str(), bytes * 1e-6, e.bytes * 1e-6, ratio,
                static_cast<double>(p.peak_bytes_per_device()) * 1e-6, apart, is_right ? "" : " WRONG");
  }
  std::puts("");
  return examples::check(
             "each plan sends 0.8 to 1 of the bytes of its paper, and its result differs from one device by at most 1e-5",
             wrong == 0)
             ? 0
             : 1;
}

}  // namespace
}  // namespace zoo

int main(int argc, char** argv) {
  return examples::run_main([&] {
    examples::no_options(argc, argv, "zoo",
                         "Plans and runs training steps in common parallel layouts, and compares their traffic with papers.");
    return zoo::run();
  });
}
