// SPDX-License-Identifier: Apache-2.0
#include "picture.hpp"

#include <png.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string_view>

#include "command_line.hpp"

namespace examples {
namespace {

using byte = unsigned char;
using rgb = std::array<double, 3>;

// The colours of a file: a map of 250 colours, and two for text and lines.
constexpr int map_colours = 250;
constexpr byte white = 250, black = 251;

constexpr std::array<rgb, 5> rising{{{13, 8, 92}, {126, 3, 168}, {204, 71, 120}, {248, 149, 64}, {240, 249, 33}}};
constexpr std::array<rgb, 5> around_zero{{{5, 48, 97}, {67, 147, 195}, {247, 247, 247}, {214, 96, 77}, {103, 0, 31}}};
constexpr std::array<rgb, 2> grey{{{0, 0, 0}, {255, 255, 255}}};

std::vector<byte> palette_of(colours map) {
  const auto* const anchors = map == colours::rising ? rising.data() : map == colours::grey ? grey.data() : around_zero.data();
  const int count = map == colours::grey ? 2 : 5;
  std::vector<byte> palette;
  for (int i = 0; i < map_colours; ++i) {
    const double at = static_cast<double>(i) * (count - 1) / (map_colours - 1);
    const auto left = std::min(static_cast<int>(at), count - 2);
    for (std::size_t c = 0; c < 3; ++c) {
      const double from = anchors[left][c], to = anchors[left + 1][c];
      palette.push_back(static_cast<byte>(std::lround(from + (at - left) * (to - from))));
    }
  }
  palette.insert(palette.end(), {255, 255, 255, 0, 0, 0});
  return palette;
}

/// Returns the rows of a character, 3 x 5 pixels: one octal digit per row, and the left pixel is its highest bit.
constexpr unsigned glyph(char c) {
  constexpr std::string_view known = "0123456789-.+e";
  constexpr unsigned rows[] = {075557, 026227, 071747, 071717, 055711, 074717, 074757,
                               071222, 075757, 075717, 000700, 000002, 002720, 007647};
  const auto at = known.find(c);
  return at == std::string_view::npos ? 0 : rows[at];
}

class canvas {
 public:
  canvas(std::int64_t height, std::int64_t width)
      : height_(height), width_(width), pixels_(static_cast<std::size_t>(height * width), white) {}

  void set(std::int64_t i, std::int64_t j, byte colour) {
    if (i >= 0 && j >= 0 && i < height_ && j < width_) pixels_[static_cast<std::size_t>(i * width_ + j)] = colour;
  }
  void fill(std::int64_t i, std::int64_t j, std::int64_t height, std::int64_t width, byte colour) {
    for (std::int64_t y = i; y < i + height; ++y)
      for (std::int64_t x = j; x < j + width; ++x) set(y, x, colour);
  }
  /// A part of a dashed line, black and white, so that it is visible on each colour.
  void line(std::int64_t i, std::int64_t j, std::int64_t height, std::int64_t width) {
    for (std::int64_t y = i; y < i + height; ++y)
      for (std::int64_t x = j; x < j + width; ++x) set(y, x, (x + y) / 4 % 2 == 0 ? white : black);
  }
  void text(std::int64_t i, std::int64_t j, double number) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.3g", number);
    for (const char* c = digits; *c != '\0'; ++c, j += 8)
      for (int y = 0; y < 5; ++y)
        for (int x = 0; x < 3; ++x)
          if ((glyph(*c) >> (3 * (4 - y) + 2 - x) & 1U) != 0) fill(i + 2 * y, j + 2 * x, 2, 2, black);
  }
  void write(const std::filesystem::path& path, colours map) const {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = static_cast<png_uint_32>(width_);
    image.height = static_cast<png_uint_32>(height_);
    image.format = PNG_FORMAT_RGB_COLORMAP;
    const auto palette = palette_of(map);
    image.colormap_entries = static_cast<png_uint_32>(palette.size() / 3);
    if (png_image_write_to_file(&image, path.c_str(), 0, pixels_.data(), 0, palette.data()) == 0)
      throw std::runtime_error(path.string() + ": " + image.message);
  }

 private:
  std::int64_t height_, width_;
  std::vector<byte> pixels_;
};

}  // namespace

void write_png(const std::filesystem::path& path, const picture& p, const double* numbers) {
  if (!is_first_process()) return;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  const std::int64_t zoom = std::max<std::int64_t>(1, 320 / std::max(p.rows, p.columns));
  const std::int64_t height = p.rows * zoom, width = p.columns * zoom, edge = 8, bar = 12, labels = 72;
  const std::int64_t most_height = std::max<std::int64_t>(height, 64);
  canvas c(most_height + 2 * edge, width + 3 * edge + bar + labels);
  const auto colour_of = [&](double number) {
    const double share = std::clamp((number - p.least) / (p.most - p.least), 0.0, 1.0);
    return static_cast<byte>(std::lround((share >= 0 ? share : 0) * (map_colours - 1)));
  };
  for (std::int64_t i = 0; i < p.rows; ++i)
    for (std::int64_t j = 0; j < p.columns; ++j)
      c.fill(edge + i * zoom, edge + j * zoom, zoom, zoom, colour_of(numbers[i * p.columns + j]));
  const auto shard_of = [&](std::int64_t i, std::int64_t j) {
    if (p.shard_of) return p.shard_of(i, j);
    // The shards of a dim have equal extents, except the last ones.
    const auto rows = (p.rows + p.row_shards - 1) / p.row_shards, columns = (p.columns + p.column_shards - 1) / p.column_shards;
    return i / rows * p.column_shards + j / columns;
  };
  const auto is_border = [&](std::int64_t i, std::int64_t j, std::int64_t other_i, std::int64_t other_j) {
    const auto shard = shard_of(i, j), other = shard_of(other_i, other_j);
    return shard != other && shard >= 0 && other >= 0;
  };
  for (std::int64_t i = 0; i < p.rows; ++i)
    for (std::int64_t j = 0; j < p.columns; ++j) {
      if (i > 0 && is_border(i, j, i - 1, j)) c.line(edge + i * zoom, edge + j * zoom, 1, zoom);
      if (j > 0 && is_border(i, j, i, j - 1)) c.line(edge + i * zoom, edge + j * zoom, zoom, 1);
    }

  const auto left = width + 2 * edge;
  for (std::int64_t i = 0; i < most_height; ++i) {
    const double share = 1 - static_cast<double>(i) / static_cast<double>(most_height - 1);
    c.fill(edge + i, left, 1, bar, colour_of(p.least + share * (p.most - p.least)));
  }
  for (const int k : {0, 1, 2}) c.text(edge + (most_height - 10) * k / 2, left + bar + 4, p.most + (p.least - p.most) * k / 2);
  c.write(path, p.map);
}

void write_frame(const std::filesystem::path& folder, const std::string& name, int frame, const picture& drawn,
                 const double* numbers) {
  char number[16];
  std::snprintf(number, sizeof number, "-%03d.png", frame);
  write_png(folder / (name + number), drawn, numbers);
}

grey_image read_png(const std::filesystem::path& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_file(&image, path.c_str()) == 0) throw std::runtime_error(path.string() + ": " + image.message);
  image.format = PNG_FORMAT_GRAY;
  std::vector<byte> bytes(PNG_IMAGE_SIZE(image));
  const png_color background{0, 0, 0};
  if (png_image_finish_read(&image, &background, bytes.data(), 0, nullptr) == 0)
    throw std::runtime_error(path.string() + ": " + image.message);
  grey_image result{image.height, image.width, {}};
  for (const byte b : bytes) result.pixels.push_back(static_cast<float>(b) / 255.0F);
  return result;
}

}  // namespace examples
