// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "model.hpp"

namespace moe {

/// Random bits that are the same with every compiler and library, unlike the distributions of <random>.
class dice {
 public:
  explicit dice(unsigned seed) : bits_(seed) {}
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(static_cast<std::uint64_t>(bits_()) * n >> 32); }
  /// -1 <= result < 1
  float symmetric() { return static_cast<float>(bits_() >> 8) / 8388608.0F - 1.0F; }

 private:
  std::mt19937 bits_;
};

/// Characters to predict, [G,S], and the preceding characters of each, [G,S,context].
struct batch {
  std::vector<std::int32_t> before, next;
};

/// A text of newlines and printable ASCII. The last eighth is for the test.
class text_file {
 public:
  explicit text_file(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("cannot open " + path);
    for (auto c = std::istreambuf_iterator<char>(file); c != std::istreambuf_iterator<char>(); ++c) {
      const int code = *c == '\n' ? 0 : *c - 31;
      if (code < 0 || code >= characters) throw std::runtime_error(path + " is not ASCII");
      codes_.push_back(code);
    }
    training_ = codes_.size() / 8 * 7;
  }

  /// Returns pieces of the text, one for each group.
  [[nodiscard]] batch batch_of_training(std::int64_t groups, std::int64_t tokens, dice& d) const {
    batch b;
    const auto length = static_cast<std::size_t>(tokens + context);
    for (std::int64_t g = 0; g < groups; ++g) add(b, d.below(training_ - length), tokens);
    return b;
  }
  [[nodiscard]] std::vector<batch> test_batches(std::int64_t groups, std::int64_t tokens) const {
    std::vector<batch> all;
    auto at = training_;
    const auto length = static_cast<std::size_t>(tokens);
    while (at + length * static_cast<std::size_t>(groups) + context < codes_.size()) {
      all.emplace_back();
      for (std::int64_t g = 0; g < groups; ++g, at += length) add(all.back(), at, tokens);
    }
    return all;
  }

  /// Returns the nats per character of the test, for a predictor that uses the frequencies of characters, or of pairs of
  /// characters, in the training.
  [[nodiscard]] double nats_of_characters() const {
    return nats([](std::size_t) { return std::size_t{0}; });
  }
  [[nodiscard]] double nats_of_pairs() const {
    return nats([this](std::size_t i) { return static_cast<std::size_t>(codes_[i - 1]); });
  }

 private:
  void add(batch& b, std::size_t begin, std::int64_t tokens) const {
    for (std::int64_t s = 0; s < tokens; ++s, ++begin) {
      for (std::size_t k = 0; k < context; ++k) b.before.push_back(codes_[begin + k]);
      b.next.push_back(codes_[begin + context]);
    }
  }
  template <class Known>
  [[nodiscard]] double nats(Known known) const {
    constexpr auto n = static_cast<std::size_t>(characters);
    std::vector<double> counts(n * n, 0.1), sums(n, 0.1 * static_cast<double>(n));
    for (std::size_t i = 1; i < training_; ++i) {
      counts[known(i) * n + static_cast<std::size_t>(codes_[i])] += 1;
      sums[known(i)] += 1;
    }
    double total = 0;
    for (std::size_t i = training_; i < codes_.size(); ++i)
      total -= std::log(counts[known(i) * n + static_cast<std::size_t>(codes_[i])] / sums[known(i)]);
    return total / static_cast<double>(codes_.size() - training_);
  }

  std::vector<std::int32_t> codes_;
  std::size_t training_ = 0;
};

}  // namespace moe
