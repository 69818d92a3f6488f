// SPDX-License-Identifier: Apache-2.0
// Blurs a photograph, finds its edges and halves its size, as one program for one device. The images must have the same
// bits on meshes of 1 to 8 devices. Most meshes do not divide 512 rows and columns evenly.
// args: --no-pictures
// optimise: -O0
// precompiled: yes

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include <cstdio>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "../common/check.hpp"
#include "../common/command_line.hpp"
#include "../common/picture.hpp"

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

dynamic::program filters_on(const examples::grey_image& image, std::int64_t rows, std::int64_t columns) {
  return dynamic::compile(filters, dynamic::mesh({{"rows", rows}, {"columns", columns}}),
                          dynamic::input<float>({image.rows, image.columns}, {"rows", "columns"}));
}

/// Draws a result, with the borders of the shards on 2 x 2 devices.
void draw(const std::filesystem::path& path, const dynamic::any_array& result, double most) {
  const std::vector<double> pixels(result.data<float>(), result.data<float>() + result.shape[0] * result.shape[1]);
  examples::write_png(path,
                      {.rows = result.shape[0],
                       .columns = result.shape[1],
                       .most = most,
                       .map = examples::colours::grey,
                       .row_shards = 2,
                       .column_shards = 2},
                      pixels.data());
}

int run(int argc, char** argv) {
  std::filesystem::path file = GSPMD_EXAMPLE_DIR "/camera.png", out = "photo-frames";
  bool draws_nothing = false;
  examples::command_line line("photo",
                              "Blurs a photograph, finds its edges and halves its size, and compares meshes bit by bit.");
  line.path("--file", file, "a PNG file (default: the photograph of the example)", true)
      .path("--out", out, "folder of the results, PNG files")
      .flag("--no-pictures", draws_nothing, "write no files");
  line.parse(argc, argv);

  const auto image = examples::read_png(file);
  std::printf("a photograph of %lldx%lld pixels\n", static_cast<long long>(image.rows), static_cast<long long>(image.columns));
  const auto alone = filters_on(image, 1, 1).run(serial{}, image.pixels);
  bool is_same = true;
  for (const auto& [rows, columns] : {std::pair(1, 1), {2, 1}, {3, 1}, {2, 2}, {5, 1}, {2, 3}, {1, 7}, {4, 2}, {8, 1}}) {
    const auto program = filters_on(image, rows, columns);
    const auto images = program.run(threads{}, image.pixels);
    for (std::size_t k = 0; k < alone.size(); ++k) is_same = is_same && images[k].bytes == alone[k].bytes;
    std::printf("%d x %d devices: each sends %6lld bytes in %lld messages\n", rows, columns,
                static_cast<long long>(program.traffic().bytes), static_cast<long long>(program.traffic().messages));
  }
  if (!draws_nothing) {
    draw(out / "blurred.png", alone[0], 1);
    draw(out / "edges.png", alone[1], 2);
    draw(out / "half.png", alone[2], 1);
    std::printf("pictures: %s/blurred.png, edges.png and half.png\n", out.c_str());
  }
  return examples::check("every mesh gives the same bits as one device", is_same) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main([&] { return run(argc, argv); });
}
