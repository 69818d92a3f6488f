// SPDX-License-Identifier: Apache-2.0
// Grey images as files: PGM, one byte per pixel. For the examples.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace pgm {

struct image {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> pixels;  // 0 black, 1 white
};

inline image read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string magic;
  image result;
  int most = 0;
  file >> magic >> result.columns >> result.rows >> most;
  file.get();
  if (!file || magic != "P5" || most != 255 || result.rows < 1 || result.columns < 1 || result.rows > 1 << 15 ||
      result.columns > 1 << 15)
    throw std::runtime_error(path + ": no PGM file of 8 bits a pixel (P5, width, height, 255)");
  std::string bytes(static_cast<std::size_t>(result.rows * result.columns), '\0');
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) throw std::runtime_error(path + ": it ends early");
  for (const char b : bytes) result.pixels.push_back(static_cast<float>(static_cast<unsigned char>(b)) / 255.0F);
  return result;
}

/// Writes rows x columns numbers. Numbers up to `black` are black, and numbers from `white` on are white.
template <class T>
void write(const std::string& path, const T* numbers, std::int64_t rows, std::int64_t columns, T black, T white) {
  std::string bytes;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const T share = std::clamp((numbers[i] - black) / (white - black), T{0}, T{1});
    bytes.push_back(static_cast<char>(static_cast<unsigned char>(std::lround(share * 255))));
  }
  std::ofstream file(path, std::ios::binary);
  file << "P5\n" << columns << ' ' << rows << "\n255\n";
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error(path + ": cannot be written");
}

}  // namespace pgm
