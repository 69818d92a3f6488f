// SPDX-License-Identifier: Apache-2.0
// Blurs a photograph, finds its edges and halves its size, as one program for one device. The images must have the same
// bits on meshes of 1 to 8 devices. Most meshes do not divide 512 rows and columns evenly.
// args: --check
// optimise: -O0
// precompiled: yes

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "../pgm.hpp"

namespace {

using namespace gspmd;

constexpr boundary::sides mirrored = boundary::symmetric();

/// Applies the binomial filter 1 4 6 4 1 along both dims.
value blur(value image) {
  const auto rows = stencil<2, 0>([](auto u) { return (u(-2, 0) + 4 * (u(-1, 0) + u(1, 0)) + 6 * u(0, 0) + u(2, 0)) / 16; },
                                  stencil_field(image, {mirrored}));
  return stencil<0, 2>([](auto u) { return (u(0, -2) + 4 * (u(0, -1) + u(0, 1)) + 6 * u(0, 0) + u(0, 2)) / 16; },
                       stencil_field(rows, {mirrored}));
}

/// Returns the steepness of the image, by Sobel's operator.
value edges(value image) {
  return stencil<1, 1>(
      [](auto u) {
        const value down = u(1, -1) + 2 * u(1, 0) + u(1, 1) - u(-1, -1) - 2 * u(-1, 0) - u(-1, 1);
        const value across = u(-1, 1) + 2 * u(0, 1) + u(1, 1) - u(-1, -1) - 2 * u(0, -1) - u(1, -1);
        return sqrt(down * down + across * across);
      },
      stencil_field(image, {mirrored}));
}

/// Returns every other row and column of the blurred image.
value half(value blurred) { return slice(blurred, {0, 0}, {blurred.shape()[0], blurred.shape()[1]}, {2, 2}); }

auto filters = [](value image) {
  const auto smooth = blur(image);
  return std::tuple(smooth, edges(smooth), half(smooth));
};

dynamic::program filters_on(const pgm::image& image, std::int64_t rows, std::int64_t columns) {
  return dynamic::compile(filters, dynamic::mesh({{"rows", rows}, {"columns", columns}}),
                          dynamic::input<float>({image.rows, image.columns}, {"rows", "columns"}));
}

int run(const std::filesystem::path& out, const std::string& file, bool writes) {
  const auto image = pgm::read(file);
  const auto alone = filters_on(image, 1, 1).run(serial{}, image.pixels);
  for (const auto& [rows, columns] : {std::pair(1, 1), {2, 1}, {3, 1}, {2, 2}, {5, 1}, {2, 3}, {1, 7}, {4, 2}, {8, 1}}) {
    const auto program = filters_on(image, rows, columns);
    const auto images = program.run(threads{}, image.pixels);
    for (std::size_t k = 0; k < alone.size(); ++k)
      if (images[k].bytes != alone[k].bytes)
        throw std::runtime_error("image " + std::to_string(k) + " differs on " + std::to_string(rows) + 'x' +
                                 std::to_string(columns) + " devices");
    std::printf("%d x %d devices: the same bits as one; each sends %6lld bytes in %lld messages\n", rows, columns,
                static_cast<long long>(program.traffic().bytes), static_cast<long long>(program.traffic().messages));
  }
  if (!writes) return 0;
  std::filesystem::create_directories(out);
  const char* const names[] = {"blurred.pgm", "edges.pgm", "half.pgm"};
  for (std::size_t k = 0; k < alone.size(); ++k)
    pgm::write((out / names[k]).string(), alone[k].data<float>(), alone[k].shape[0], alone[k].shape[1], 0.0F, 1.0F);
  std::printf("blurred.pgm, edges.pgm and half.pgm are in %s\n", out.string().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool checks = argc > 1 && std::string_view(argv[1]) == "--check";
  const bool has_file = argc > 1 && !checks;
  if (argc > 2 || (has_file && argv[1][0] == '-')) {
    std::fprintf(stderr, "usage: photo [FILE.pgm | --check]\n  --check  writes no images\n");
    return 2;
  }
  try {
    return run(std::filesystem::path(argv[0]).parent_path() / "photo-images",
               has_file ? argv[1] : GSPMD_EXAMPLE_DIR "/camera.pgm", !checks);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}
