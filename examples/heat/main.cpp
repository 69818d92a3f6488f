// SPDX-License-Identifier: Apache-2.0
// The heat equation in two or three dims. The command line specifies the mesh and the boundary. Without arguments, runs
// the program that model.hpp compiles. Frames are PGM files. In three dims, a frame is the middle plane of the first
// dim.
// args: --frames 1
// optimise: -O0
// precompiled: yes

#include <gspmd/dynamic.hpp>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "../command_line.hpp"
#include "../pgm.hpp"
#include "model.hpp"

namespace heat {
namespace {

constexpr const char* usage =
    "usage: heat [--extents NxM[xK]] [--mesh AxB[xC]] [--boundary B] [--steps N] [--frames N] [--out DIR]\n"
    "  --extents NxM[xK]  points (240x320)\n"
    "  --mesh AxB[xC]     devices along the dims, each a thread (2x2)\n"
    "  --boundary B       zero, edge, reflect, symmetric, wrap, or the temperature outside (edge)\n"
    "  --steps N          from frame to frame (50)\n"
    "  --frames N         how many (8)\n"
    "  --out DIR          where frames are written (next to the program)\n";

using command_line::number, command_line::usage_error;

struct options {
  std::vector<std::int64_t> extents, mesh;
  std::string boundary;
  int steps = 0, frames = 8;
  std::filesystem::path out;

  [[nodiscard]] bool is_compiled_in() const { return extents.empty() && mesh.empty() && boundary.empty() && steps == 0; }
};

std::vector<std::int64_t> numbers(const std::string& option, std::string_view text, std::int64_t most) {
  std::vector<std::int64_t> result;
  for (std::size_t end = 0; end != std::string_view::npos;) {
    end = text.find('x');
    result.push_back(number<std::int64_t>(option, text.substr(0, end), 1, most));
    if (end != std::string_view::npos) text.remove_prefix(end + 1);
  }
  if (result.size() < 2 || result.size() > 3) throw usage_error(option + ": two or three numbers, as in 2x2");
  return result;
}

options parse(int argc, char** argv) {
  options o;
  o.out = std::filesystem::path(argv[0]).parent_path() / "heat-frames";
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--help" || i + 1 == argc) throw usage_error(option == "--help" ? "" : option + " needs a value");
    const std::string given = argv[i + 1];
    if (option == "--extents") o.extents = numbers(option, given, 1 << 14);
    else if (option == "--mesh") o.mesh = numbers(option, given, 64);
    else if (option == "--boundary") o.boundary = given;
    else if (option == "--steps") o.steps = number(option, given, 1, 1 << 20);
    else if (option == "--frames") o.frames = number(option, given, 1, 999);
    else if (option == "--out") o.out = given;
    else throw usage_error("unknown option " + option);
  }
  return o;
}

boundary named_boundary(const std::string& name) {
  if (name == "zero") return boundary::zero();
  if (name == "edge") return boundary::edge();
  if (name == "reflect") return boundary::reflect();
  if (name == "symmetric") return boundary::symmetric();
  if (name == "wrap") return boundary::wrap();
  return boundary::constant(number<double>("--boundary", name, -1000, 1000));
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
  if (o.mesh.size() > o.extents.size()) throw usage_error("--mesh: has more numbers than --extents");

  frame_function next_frame;
  if (is_compiled_in) {
    std::printf("compiled in: 240x320 points on 2x2 devices; a device sends %lld bytes in %d steps\n",
                static_cast<long long>(compiled_frame::traffic.bytes), compiled_steps);
    next_frame = [](const std::vector<double>& u) {
      array<double> field({240, 320});
      std::copy(u.begin(), u.end(), field.begin());
      const auto next = gspmd::run<compiled_frame>(threads{}, field);
      return std::vector<double>(next.begin(), next.end());
    };
  } else {
    const auto program = compiled_for(o, o.mesh);
    std::printf("a device sends %lld bytes in %d steps\n", static_cast<long long>(program.traffic().bytes), o.steps);
    next_frame = frames_on(threads{}, program);
  }

  const auto rows = o.extents[o.extents.size() - 2], columns = o.extents.back();
  const auto plane = o.extents.size() == 3 ? o.extents[0] / 2 * rows * columns : 0;
  std::filesystem::create_directories(o.out);
  const auto show = [&](const std::vector<double>& u, int frame) {
    char name[32];
    std::snprintf(name, sizeof name, "heat-%03d.pgm", frame);
    pgm::write((o.out / name).string(), u.data() + plane, rows, columns, 0.0, 1.0);
    std::printf("\r[%s%s] frame %d of %d", std::string(static_cast<std::size_t>(frame * 30 / o.frames), '#').c_str(),
                std::string(static_cast<std::size_t>(30 - frame * 30 / o.frames), '.').c_str(), frame, o.frames);
    std::fflush(stdout);
  };
  const auto first = first_field(o.extents);
  auto u = first;
  show(u, 0);
  for (int frame = 1; frame <= o.frames; ++frame) {
    u = next_frame(u);
    show(u, frame);
  }
  std::printf("\nframes are in %s\n", o.out.string().c_str());

  std::string meshes;
  for (const auto& mesh : {std::vector<std::int64_t>{1, 1}, {3, 1}, {1, 4}, {2, 3}, {7, 1}}) {
    const auto other = frames_on(simulated{}, compiled_for(o, mesh));
    auto v = first;
    for (int frame = 1; frame <= o.frames; ++frame) v = other(v);
    const auto name = std::to_string(mesh[0]) + 'x' + std::to_string(mesh[1]);
    if (std::memcmp(u.data(), v.data(), u.size() * sizeof(double)) != 0) throw std::runtime_error("other bits on mesh " + name);
    meshes += ' ' + name;
  }
  std::printf("the same bits on the meshes%s\n", meshes.c_str());
  return 0;
}

}  // namespace
}  // namespace heat

int main(int argc, char** argv) {
  return command_line::report_errors(heat::usage, [&] { return heat::run(heat::parse(argc, argv)); });
}
