// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "model.hpp"

namespace digits {

constexpr std::int64_t train_rows = 1437, test_rows = 360;

/// Images of 64 numbers from 0 to 1, and the digit of each image.
struct dataset {
  std::vector<float> x;
  std::vector<std::int32_t> labels;
  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(labels.size()); }
};

struct digits_data {
  dataset train, test;
};

/// Random bits that are the same with every compiler and library, unlike the distributions of <random>.
class dice {
 public:
  explicit dice(unsigned seed) : bits_(seed) {}
  /// 0 <= result < n
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(static_cast<std::uint64_t>(bits_()) * n >> 32); }
  /// -1 <= result < 1
  float symmetric() { return static_cast<float>(bits_() >> 8) / 8388608.0f - 1.0f; }

 private:
  std::mt19937 bits_;
};

/// Reads digits.csv: 64 pixels from 0 to 16 and the label per line. Distributes the rows in an order that depends only on the seed:
/// the file is sorted by writer, and the test must have some rows of each writer.
inline digits_data read_digits(const std::string& path, unsigned seed = 3) {
  constexpr auto all_rows = static_cast<std::size_t>(train_rows + test_rows), width = static_cast<std::size_t>(pixels);
  std::ifstream file(path);
  if (!file) throw error("cannot open " + path);
  std::vector<int> numbers;
  numbers.reserve(all_rows * (width + 1));
  int number = 0;
  while (file >> number) {
    numbers.push_back(number);
    if (file.peek() == ',') file.get();
  }
  if (numbers.size() != all_rows * (width + 1)) throw error(path + " is not " + std::to_string(all_rows) + " rows of 65 numbers");

  std::vector<std::size_t> order(all_rows);
  for (std::size_t i = 0; i < all_rows; ++i) order[i] = i;
  dice d(seed);
  for (std::size_t i = all_rows - 1; i > 0; --i) std::swap(order[i], order[d.below(i + 1)]);

  digits_data result;
  for (std::size_t i = 0; i < all_rows; ++i) {
    auto& part = i < static_cast<std::size_t>(train_rows) ? result.train : result.test;
    const int* row = numbers.data() + order[i] * (width + 1);
    for (std::size_t p = 0; p < width; ++p) part.x.push_back(static_cast<float>(row[p]) / 16);
    part.labels.push_back(row[width]);
  }
  return result;
}

/// Random weights, uniform in the interval for their fan-in. The biases are 0.
inline layers<array<float>> initial_parameters(unsigned seed = 2) {
  layers<array<float>> p{array<float>({pixels, hidden}), array<float>({hidden}), array<float>({hidden, classes}),
                         array<float>({classes})};
  dice d(seed);
  for (auto& w : p.w1) w = d.symmetric() * 0.3f;   // sqrt(6 / 64)
  for (auto& w : p.w2) w = d.symmetric() * 0.22f;  // sqrt(6 / 128)
  return p;
}

}  // namespace digits
