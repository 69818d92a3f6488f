// SPDX-License-Identifier: Apache-2.0
// group: planner
#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "gspmd/detail/ir/window.hpp"

// Which elements each part of a windowed dim needs, against windows laid over a padded list one by one; and the papers' figures.

using namespace gspmd::detail;

namespace {

/// An operand as a list of positions, padding and holes included: the element that lies there, or -1.
std::vector<std::int64_t> laid_out(std::int64_t extent, const padded_window& w) {
  std::vector<std::int64_t> list;
  for (std::int64_t i = 0; i < w.low; ++i) list.push_back(-1);
  for (std::int64_t i = 0; i < extent; ++i) {
    if (i > 0) list.insert(list.end(), static_cast<std::size_t>(w.base_dilation - 1), -1);
    list.push_back(i);
  }
  for (std::int64_t i = 0; i < w.high; ++i) list.push_back(-1);
  const auto cut = [&](std::int64_t n, bool front) {
    for (; n < 0 && !list.empty(); ++n) list.erase(front ? list.begin() : list.end() - 1);
  };
  cut(w.low, true);
  cut(w.high, false);
  return list;
}

/// By output, what it reads for each place of the window.
std::vector<std::vector<std::int64_t>> windows_of(std::int64_t extent, const padded_window& w) {
  const auto list = laid_out(extent, w);
  std::vector<std::vector<std::int64_t>> all;
  for (std::size_t begin = 0;; begin += static_cast<std::size_t>(w.stride)) {
    std::vector<std::int64_t> read;
    for (std::int64_t k = 0; k < w.size; ++k) {
      const auto at = begin + static_cast<std::size_t>((w.reversed ? w.size - 1 - k : k) * w.window_dilation);
      if (at >= list.size()) break;
      read.push_back(list[at]);
    }
    const auto last = begin + static_cast<std::size_t>((w.size - 1) * w.window_dilation);
    if (last >= list.size()) return all;
    all.push_back(read);
  }
}

int check(std::int64_t extent, const padded_window& padded) {
  int wrong = 0;
  const auto expected = windows_of(extent, padded);
  const window_dim w = padded.window();
  const auto outputs = padded.outputs(extent);
  if (outputs != static_cast<std::int64_t>(expected.size())) return 1;
  for (std::int64_t o = 0; o < outputs; ++o)
    for (std::int64_t k = 0; k < w.size; ++k) {
      const auto at = w.position(o, k);
      const bool is_element = at >= 0 && at % w.base == 0 && at / w.base < extent;
      if ((is_element ? at / w.base : -1) != expected[static_cast<std::size_t>(o)][static_cast<std::size_t>(k)]) ++wrong;
      const window_dim back = w.transposed();
      if (is_element) {
        const auto from = back.position(at / w.base, k);
        if (from % back.base != 0 || from / back.base != o) ++wrong;
      }
    }
  for (std::int64_t parts = 1; parts <= 5; ++parts) {
    const window_parts split{w, extent, outputs, parts};
    const auto shard = (outputs + parts - 1) / parts, own = (extent + parts - 1) / parts;
    for (std::int64_t p = 0; p < parts; ++p) {
      std::set<std::int64_t> needed;
      for (std::int64_t o = p * shard; o < (p + 1) * shard && o < outputs; ++o)
        for (const auto element : expected[static_cast<std::size_t>(o)])
          if (element >= 0) needed.insert(element);
      const auto reads = split.reads(p);
      // A range, whose ends are needed, unless windows pass over them.
      for (const auto element : needed)
        if (element < reads.begin || element >= reads.end) ++wrong;
      const bool is_dense = (w.dilation == 1 || w.dilation == -1) && w.stride <= w.size;
      if (is_dense && !needed.empty() && (*needed.begin() != reads.begin || *needed.rbegin() + 1 != reads.end)) ++wrong;
      if (is_dense && needed.empty() && reads.size() > 0) ++wrong;
      if (shard == 0 || (p + 1) * shard > outputs) continue;
      // Of a part with all its outputs, the halos say the same before anything is clipped.
      const index_range unclipped{p * own - split.left()(p), (p + 1) * own + split.right()(p)};
      if (!(unclipped == w.elements(split.positions(p)))) ++wrong;
      if (reads.size() > 0 && !(intersect(unclipped, {0, extent}) == reads)) ++wrong;
      const auto begin = split.positions(p).begin;
      std::int64_t before = 0;
      while ((begin + before) % w.base != 0) ++before;
      if (before != split.low_padding(p)) ++wrong;
    }
  }
  return wrong;
}

std::vector<std::int64_t> halos(const affine_quotient& halo) { return {halo(0), halo(1), halo(2), halo(3)}; }
using list = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("windows: every small one reads what a list of positions says") {
  int wrong = 0, cases = 0;
  for (std::int64_t extent = 0; extent <= 13; ++extent)
    for (std::int64_t size = 1; size <= 5; ++size)
      for (std::int64_t stride = 1; stride <= 3; ++stride)
        for (std::int64_t base = 1; base <= 3; ++base)
          for (std::int64_t dilation = 1; dilation <= 3; ++dilation)
            for (std::int64_t low = -2; low <= 3; ++low)
              for (std::int64_t high = -2; high <= 3; ++high) {
                const padded_window w{size, stride, low, high, base, dilation, (extent + size + low + high) % 2 == 0};
                if (extent < 13 - 4 && (extent + low) % 2 == 0 && stride == 3) continue;  // enough of them, and time is scarce
                ++cases;
                wrong += check(extent, w) != 0 ? 1 : 0;
              }
  CHECK(wrong == 0);
  CHECK(cases > 50'000);
}

TEST_CASE("windows: halos that differ between parts (GSPMD, figure 9)") {
  // 12 elements, window 3, stride 2, padded by 1 on both sides, over 4: shards of 3, outputs 2,2,2,0.
  constexpr padded_window padded{.size = 3, .stride = 2, .low = 1, .high = 1};
  constexpr window_parts split{padded.window(), 12, padded.outputs(12), 4};
  static_assert(split.outputs == 6 && split.shard() == 3 && split.shard_outputs() == 2);
  CHECK(halos(split.left()) == list{1, 0, -1, -2});  // 1 - i
  CHECK(halos(split.right()) == list{1, 2, 3, 4});   // 1 + i
  CHECK(split.left().a == -1 * split.left().c);
  CHECK(split.right().a == 1 * split.right().c);
  // Begins and limits: -1,3,7,11 and 4,8,12,16.
  for (std::int64_t p = 0; p < 4; ++p) {
    CHECK(3 * p - split.left()(p) == 4 * p - 1);
    CHECK(3 * (p + 1) + split.right()(p) == 4 * p + 4);
  }
  // The last part, whose right halo 4 is clipped to nothing, has no outputs, and reads nothing.
  CHECK(split.reads(0) == index_range{0, 4});
  CHECK(split.reads(1) == index_range{3, 8});
  CHECK(split.reads(2) == index_range{7, 12});
  CHECK(split.reads(3).size() == 0);
}

TEST_CASE("windows: base dilation (GSPMD, figure 10)") {
  SUBCASE("case 1: the outputs of a part are as far apart as elements: all parts are alike") {
    constexpr padded_window padded{.size = 5, .stride = 3, .low = 1, .high = 3, .base_dilation = 3};
    constexpr window_parts split{padded.window(), 6, padded.outputs(6), 3};
    static_assert(split.outputs == 6 && split.shard() == 2);
    for (std::int64_t p = 0; p < 3; ++p) CHECK(split.low_padding(p) == 1);
    CHECK(split.left().a == 0);
    CHECK(split.right().a == 0);
    CHECK(split.left()(0) == 0);
    CHECK(split.right()(0) == 1);
  }
  SUBCASE("case 2: stride 1, another low padding for each part") {
    constexpr padded_window padded{.size = 3, .high = 1, .base_dilation = 3};
    constexpr window_parts split{padded.window(), 5, padded.outputs(5), 3};
    static_assert(split.outputs == 12 && split.shard_outputs() % 3 == 1);
    const list offsets{2 - split.low_padding(0), 2 - split.low_padding(1), 2 - split.low_padding(2)};
    CHECK(offsets == list{2, 0, 1});  // where outputs begin behind a low padding of 2
  }
  SUBCASE("case 3: strided, another low padding for each part, which no padding of all of them replaces") {
    constexpr padded_window padded{.size = 3, .stride = 2, .high = 3, .base_dilation = 3};
    constexpr window_parts split{padded.window(), 6, padded.outputs(6), 3};
    static_assert(split.outputs == 9 && 2 * split.shard_outputs() % 3 == 0);
    constexpr window_parts other{padded.window(), 5, 6, 3};
    static_assert(2 * other.shard_outputs() % 3 == 1);
    const list offsets{2 - other.low_padding(0), 2 - other.low_padding(1), 2 - other.low_padding(2)};
    CHECK(offsets == list{2, 0, 1});  // `00w`, `w00`, `0w0` of a window of 5
  }
}
