// SPDX-License-Identifier: Apache-2.0
// labels: native
#include "gspmd/detail/kernels/permute.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace gspmd::detail;

namespace {

template <class T>
void check(const permutation_spec& s, std::size_t misalign = 0) {
  const auto size = static_cast<std::size_t>(elements(s.in));
  constexpr std::size_t guard = 8;
  const std::unique_ptr<T[]> in_memory(new T[size + misalign + 1]), out_memory(new T[size + misalign + guard]);
  T *const in = in_memory.get() + misalign, *const out = out_memory.get() + misalign;
  std::mt19937 random(1);
  const auto element = [&](std::size_t i) {  // distinct, within the range of T
    if constexpr (std::is_same_v<T, bool>) return random() % 2 == 0;
    else return static_cast<T>(i + 1);
  };
  for (std::size_t i = 0; i < size; ++i) in[i] = element(i);
  for (std::size_t i = 0; i < size + guard; ++i) out[i] = T{};
  permute<raw_bits<T>>(plan_permutation(s), in, out);

  std::vector<std::size_t> stride(static_cast<std::size_t>(s.in.count) + 1, 1);
  for (int d = s.in.count - 1; d >= 0; --d)
    stride[static_cast<std::size_t>(d)] = stride[static_cast<std::size_t>(d) + 1] * static_cast<std::size_t>(s.in[d]);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < size; ++i) {
    std::size_t rest = i, from = 0;
    for (int r = s.permutation.count - 1; r >= 0; --r) {
      const auto d = static_cast<std::size_t>(s.permutation[r]);
      const auto n = static_cast<std::size_t>(s.in[s.permutation[r]]);
      from += rest % n * stride[d + 1];
      rest /= n;
    }
    wrong += out[i] == in[from] ? 0U : 1U;
  }
  for (std::size_t i = 0; i < guard; ++i) wrong += out[size + i] == T{} ? 0U : 1U;
  if (wrong != 0) {
    std::string text;
    for (int d = 0; d < s.in.count; ++d) {
      text += std::to_string(s.in[d]);
      text += '(';
      text += std::to_string(s.permutation[d]);
      text += ") ";
    }
    FAIL_CHECK(text << ": " << wrong << " wrong elements");
  }
}

permutation_spec make(std::vector<std::int64_t> in, std::vector<int> order) {
  permutation_spec s;
  for (const auto n : in) s.in.push_back(n);
  for (const auto d : order) s.permutation.push_back(static_cast<std::int8_t>(d));
  return s;
}

template <class T>
void check_random(unsigned seed, int cases, int most_rank, std::int64_t most_extent) {
  std::mt19937 random(seed);
  for (int i = 0; i < cases; ++i) {
    const auto rank = static_cast<std::size_t>(random() % static_cast<unsigned>(most_rank + 1));
    std::vector<std::int64_t> in;
    std::vector<int> order;
    for (std::size_t d = 0; d < rank; ++d) {
      const auto dice = random() % 30;
      in.push_back(dice == 0 ? 0 : dice <= 3 ? 1 : 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(most_extent)));
      order.push_back(static_cast<int>(d));
    }
    std::shuffle(order.begin(), order.end(), random);
    const auto s = make(in, order);
    check<T>(s, random() % 3);
  }
}

constexpr permutation_spec plane = [] {
  permutation_spec s;
  for (const auto n : {3, 33, 50}) s.in.push_back(n);
  for (const auto d : {0, 2, 1}) s.permutation.push_back(static_cast<std::int8_t>(d));
  return s;
}();
static_assert(plan_permutation(plane).loops.count == 1);

}  // namespace

TEST_CASE("permute: random shapes and orders agree with the definition") {
  check_random<float>(1, 1500, 6, 5);
  check_random<double>(2, 1000, 6, 5);
  check_random<std::int32_t>(3, 500, 6, 5);
  check_random<std::int64_t>(4, 500, 6, 5);
  check_random<bool>(5, 1000, 6, 5);
}

TEST_CASE("permute: planes of whole blocks, tiles and what is left over") {
  check_random<float>(6, 100, 3, 100);
  check_random<double>(7, 60, 3, 100);
  check_random<bool>(8, 60, 3, 100);
  for (const std::int64_t m : {1, 7, 8, 16, 63, 64, 65, 128, 200})
    for (const std::int64_t n : {1, 8, 15, 16, 64, 67, 130}) {
      const auto s = make({m, n}, {1, 0});
      check<float>(s);
      check<double>(s, 1);
      check<std::int64_t>(s);
    }
  check<double>(plane);
}

TEST_CASE("permute: arrays past the caches, aligned and not") {
  const auto even = make({2048, 1600}, {1, 0}), odd = make({1999, 1701}, {1, 0}), inner = make({3, 1024, 1040}, {2, 0, 1});
  for (const std::size_t misalign : {0U, 1U, 3U}) {
    check<float>(even, misalign);
    check<double>(odd, misalign);
    check<double>(inner, misalign);
  }
}

TEST_CASE("permute: dims that stay neighbours are one, and rows that stay whole are copied") {
  const auto identity = plan_permutation(make({3, 4, 5}, {0, 1, 2}));
  CHECK(identity.row == 60);
  CHECK(identity.loops.empty());
  const auto rows = plan_permutation(make({3, 4, 5}, {1, 0, 2}));
  CHECK(rows.row == 5);
  CHECK(rows.loops.count == 2);
  const auto pair = plan_permutation(make({3, 1, 4, 5}, {2, 3, 1, 0}));
  CHECK(pair.rows == 3);
  CHECK(pair.cols == 20);
  CHECK(pair.loops.empty());
}
