// SPDX-License-Identifier: Apache-2.0
// The heat equation in two or three dims. The command line specifies the mesh and the boundary. Without arguments, runs
// the program that model.hpp compiles. Frames are PNG files. In three dims, a frame is the middle plane of the first
// dim.
// args: --frames 1
// optimise: -O0
// precompiled: yes

#include <gspmd/dynamic.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string>
#include <system_error>
#include <vector>

#include "../common/check.hpp"
#include "../common/command_line.hpp"
#include "../common/picture.hpp"
#include "../common/progress.hpp"
#include "model.hpp"

namespace heat {
namespace {

struct options {
  std::vector<std::int64_t> extents, mesh;
  std::string boundary;
  int steps = 0, frames = 8;
  std::filesystem::path out = "heat-frames";

  [[nodiscard]] bool is_compiled_in() const { return extents.empty() && mesh.empty() && boundary.empty() && steps == 0; }
};

options parse(int argc, char** argv) {
  options o;
  examples::command_line line("heat", "Computes how heat spreads in two or three dims, and compares meshes bit by bit.");
  line.extents("--extents", o.extents, 2, 3, 1 << 14, "points along the dims (default 240x320)")
      .extents("--mesh", o.mesh, 2, 3, 64, "devices along the dims, each a thread (default 2x2)")
      .word("--boundary", o.boundary, {}, "zero, edge, reflect, symmetric, wrap, or the temperature outside (default edge)")
      .option("--steps", o.steps, 0, 1 << 20, "steps from frame to frame; 0: 50, as in the compiled program")
      .option("--frames", o.frames, 1, 999, "number of frames")
      .path("--out", o.out, "folder of the frames, PNG files");
  line.parse(argc, argv);
  return o;
}

boundary named_boundary(const std::string& name) {
  if (name == "zero") return boundary::zero();
  if (name == "edge") return boundary::edge();
  if (name == "reflect") return boundary::reflect();
  if (name == "symmetric") return boundary::symmetric();
  if (name == "wrap") return boundary::wrap();
  double outside = 0;
  const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), outside);
  if (problem != std::errc{} || end != name.data() + name.size() || !(std::fabs(outside) <= 1000))
    throw examples::usage_error("heat: --boundary: " + name + " is neither a boundary nor a number from -1000 to 1000");
  return boundary::constant(outside);
}

/// Returns some hot balls in a cold field.
std::vector<double> first_field(const std::vector<std::int64_t>& extents) {
  std::vector<double> field;
  const auto planes = extents.size() == 3 ? extents[0] : 1;
  const auto rows = extents[extents.size() - 2], columns = extents.back();
  for (std::int64_t k = 0; k < planes; ++k)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        const auto is_near = [&](double at_i, double at_j, double radius) {
          const auto z = extents.size() == 3 ? static_cast<double>(k) / static_cast<double>(planes) - 0.5 : 0.0;
          const auto y = static_cast<double>(i) / static_cast<double>(rows) - at_i;
          const auto x = static_cast<double>(j) / static_cast<double>(columns) - at_j;
          return x * x + y * y + z * z < radius * radius;
        };
        field.push_back(is_near(0.3, 0.25, 0.15) || is_near(0.7, 0.65, 0.2) || is_near(0.0, 1.0, 0.2) ? 1.0 : 0.0);
      }
  return field;
}

using frame_function = std::function<std::vector<double>(const std::vector<double>&)>;

dynamic::program compiled_for(const options& o, const std::vector<std::int64_t>& mesh) {
  static constexpr const char* names[] = {"x", "y", "z"};
  std::vector<dynamic::mesh::axis> axes;
  std::vector<std::string> split;
  for (std::size_t d = 0; d < o.extents.size(); ++d) {
    axes.push_back({names[d], d < mesh.size() ? mesh[d] : 1});
    split.emplace_back(names[d]);
  }
  const auto around = named_boundary(o.boundary);
  return dynamic::compile([&](value u) { return steps(u, around, o.steps); }, dynamic::mesh(axes),
                          dynamic::input<double>(o.extents, split));
}
template <class Backend>
frame_function frames_on(const Backend& backend, const dynamic::program& p) {
  return [backend, p](const std::vector<double>& u) {
    const auto next = p.run(backend, u)[0];
    return std::vector<double>(next.template data<double>(), next.template data<double>() + u.size());
  };
}

int run(options o) {
  const bool is_compiled_in = o.is_compiled_in();
  if (o.extents.empty()) o.extents = {240, 320};
  if (o.mesh.empty()) o.mesh = {2, 2};
  if (o.boundary.empty()) o.boundary = "edge";
  if (o.steps == 0) o.steps = compiled_steps;
  if (o.mesh.size() > o.extents.size()) throw examples::usage_error("heat: --mesh has more numbers than --extents");

  frame_function next_frame;
  if (is_compiled_in) {
    std::printf("240x320 points on 2x2 devices, planned by the compiler; a device sends %lld bytes per step\n",
                static_cast<long long>(compiled_frame::traffic.bytes / compiled_steps));
    next_frame = [](const std::vector<double>& u) {
      array<double> field({240, 320});
      std::copy(u.begin(), u.end(), field.begin());
      const auto next = gspmd::run<compiled_frame>(threads{}, field);
      return std::vector<double>(next.begin(), next.end());
    };
  } else {
    const auto program = compiled_for(o, o.mesh);
    std::printf("planned at run time; a device sends %lld bytes per step\n",
                static_cast<long long>(program.traffic().bytes / o.steps));
    next_frame = frames_on(threads{}, program);
  }

  const auto rows = o.extents[o.extents.size() - 2], columns = o.extents.back();
  const auto plane = o.extents.size() == 3 ? o.extents[0] / 2 * rows * columns : 0;
  const auto draw = [&](const std::vector<double>& u, int frame) {
    const bool is_flat = o.extents.size() == 2;
    const auto mesh_of = [&](std::size_t d) { return d < o.mesh.size() ? o.mesh[d] : 1; };
    examples::write_frame(
        o.out, "heat", frame,
        {.rows = rows, .columns = columns, .row_shards = mesh_of(is_flat ? 0 : 1), .column_shards = mesh_of(is_flat ? 1 : 2)},
        u.data() + plane);
  };
  const auto first = first_field(o.extents);
  auto u = first;
  draw(u, 0);
  {
    examples::progress progress("frame", static_cast<double>(u.size()) * o.steps);
    for (int frame = 1; frame <= o.frames; ++frame) {
      u = next_frame(u);
      draw(u, frame);
      progress.show(frame, o.frames);
    }
  }
  const auto mean = [](const std::vector<double>& v) {
    return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
  };
  std::printf("after %d steps the mean temperature is %.6f and the highest is %.4f; at the beginning they were %.6f and 1\n",
              o.frames * o.steps, mean(u), *std::max_element(u.begin(), u.end()), mean(first));
  std::printf("pictures: %s/heat-*.png\n", o.out.c_str());

  std::string meshes;
  bool is_same = true;
  for (const auto& mesh : {std::vector<std::int64_t>{1, 1}, {3, 1}, {1, 4}, {2, 3}, {7, 1}}) {
    const auto other = frames_on(simulated{}, compiled_for(o, mesh));
    auto v = first;
    for (int frame = 1; frame <= o.frames; ++frame) v = other(v);
    const auto name = std::to_string(mesh[0]) + 'x' + std::to_string(mesh[1]);
    is_same = is_same && std::memcmp(u.data(), v.data(), u.size() * sizeof(double)) == 0;
    meshes += ' ' + name;
  }
  return examples::check("the meshes" + meshes + " give the same bits", is_same) ? 0 : 1;
}

}  // namespace
}  // namespace heat

int main(int argc, char** argv) {
  return examples::run_main([&] { return heat::run(heat::parse(argc, argv)); });
}
