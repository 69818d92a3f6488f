// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace examples {

enum class colours {
  rising,       // from dark to bright
  around_zero,  // blue below zero, white at zero, red above zero
  grey,         // from black to white
};

/// A field of rows x columns numbers, and how it is drawn.
struct picture {
  std::int64_t rows = 0, columns = 0;
  double least = 0, most = 1;  // of the colour map and its scale; other numbers are drawn like these
  colours map = colours::rising;
  // Dashed lines are between the shards of the devices: row_shards x column_shards blocks. If a function is set, it
  // returns the shard of each element instead, or -1 for an element without a shard.
  std::int64_t row_shards = 1, column_shards = 1;
  std::function<std::int64_t(std::int64_t, std::int64_t)> shard_of = {};
};

/// Writes a PNG file: the field, the borders of the shards, and a scale. Makes the folder. Only the first process
/// writes.
void write_png(const std::filesystem::path& path, const picture& drawn, const double* numbers);

/// Writes folder/NAME-003.png for frame 3.
void write_frame(const std::filesystem::path& folder, const std::string& name, int frame, const picture& drawn,
                 const double* numbers);

/// A grey image. 0 is black, 1 is white.
struct grey_image {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> pixels;
};

/// Reads a PNG file. Colours become grey.
grey_image read_png(const std::filesystem::path& path);

}  // namespace examples
