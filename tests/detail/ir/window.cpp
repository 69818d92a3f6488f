// SPDX-License-Identifier: Apache-2.0
// group: planner
#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "gspmd/detail/ir/index_map.hpp"

// The elements that each part of a windowed dim needs, compared with windows over an explicit padded list; and the
// figures of the papers.

using namespace gspmd::detail;

namespace {

/// An operand as a list of positions with padding and holes. An entry is the element at the position, or -1.
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

/// Returns, for each output, the elements at each position of its window.
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

/// The tiles of a split dim, as plans move them.
struct tiles_of {
  dim_map map;
  std::int64_t extent, outputs, parts;

  constexpr tiles_of(const window_dim& w, std::int64_t of, std::int64_t made, std::int64_t count)
      : map(dim_map::tile_of(0, w, made)), extent(of), outputs(made), parts(count) {}
  constexpr tiles_of(const padded_window& w, std::int64_t of, std::int64_t count)
      : tiles_of(w.window(), of, w.outputs(of), count) {}

  /// Returns the element at an index of the tiles, or -1.
  [[nodiscard]] constexpr std::int64_t element(std::int64_t index) const {
    const auto steps = index - map.to_first;
    if (map.from_step == 0 || steps % map.to_step != 0) return -1;
    const auto e = map.from_first + map.from_step * (steps / map.to_step);
    return e >= 0 && e < extent ? e : -1;
  }
  /// Returns the elements that are moved to the tile of a part, or stay in it.
  [[nodiscard]] std::set<std::int64_t> elements(std::int64_t part) const {
    const auto held = map.held(map.tile.extent(), parts, part);
    const auto steps = intersect(steps_from(map, extent, 0, 0, extent), steps_to(map, held.begin, held.end));
    std::set<std::int64_t> all;
    for (auto t = steps.begin; t < steps.end; ++t) all.insert(map.from_first + map.from_step * t);
    return all;
  }
  [[nodiscard]] constexpr std::int64_t shard() const { return shard_extent(extent, parts); }

  // For a map without gaps: the number of elements that a part needs before its own elements and after them, before
  // clipping (GSPMD A.2). Negative numbers mean that elements are removed.
  [[nodiscard]] constexpr std::int64_t left(std::int64_t part) const {
    return part * shard() - (room(part).begin - map.to_first + map.from_first);
  }
  [[nodiscard]] constexpr std::int64_t right(std::int64_t part) const {
    return room(part).end - map.to_first + map.from_first - (part + 1) * shard();
  }
  /// Returns the range of a part as if all parts had whole shards of outputs.
  [[nodiscard]] constexpr index_range room(std::int64_t part) const {
    const auto own = shard_extent(outputs, parts);
    return map.tile.room_for({part * own, (part + 1) * own});
  }
  /// Returns the number of positions of a part's tile before the first element, which is the low padding of its
  /// computation. With a base dilation, it can differ between parts.
  [[nodiscard]] constexpr std::int64_t low_padding(std::int64_t part) const {
    const auto before = room(part).begin - map.to_first;
    return ceil_div(before, map.to_step) * map.to_step - before;
  }
};

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
    const tiles_of split(w, extent, outputs, parts);
    const window_dim inside = w.in_tile();
    const auto shard = (outputs + parts - 1) / parts;
    for (std::int64_t p = 0; p < parts; ++p) {
      // Every position of every window is in the tile of its part, at the index of the algebra, for any part. It holds
      // the element of the list.
      const auto begin = split.map.tile.room(parts, p).begin;
      std::set<std::int64_t> needed;
      for (std::int64_t o = p * shard; o < (p + 1) * shard && o < outputs; ++o)
        for (std::int64_t k = 0; k < w.size; ++k) {
          const auto element = expected[static_cast<std::size_t>(o)][static_cast<std::size_t>(k)];
          if (element >= 0) needed.insert(element);
          const auto at = inside.position(o - p * shard, k);
          if (at < 0 || at >= split.map.tile.local_extent(parts)) ++wrong;
          if (split.element(begin + at) != element) ++wrong;
        }
      // All needed elements are moved to the tile. If windows skip no element, no other elements are moved.
      const auto moved = split.elements(p);
      for (const auto element : needed)
        if (moved.count(element) == 0) ++wrong;
      const bool is_dense = (w.dilation == 1 || w.dilation == -1) && w.stride <= w.size;
      if (is_dense && moved != needed) ++wrong;
      if (p * shard >= outputs && !moved.empty()) ++wrong;
    }
  }
  return wrong;
}

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
                if (extent < 13 - 4 && (extent + low) % 2 == 0 && stride == 3) continue;  // enough cases, to save time
                ++cases;
                wrong += check(extent, w) != 0 ? 1 : 0;
              }
  CHECK(wrong == 0);
  CHECK(cases > 50'000);
}

TEST_CASE("windows: halos that differ between parts (GSPMD, figure 9)") {
  // 12 elements, window 3, stride 2, padded by 1 on both sides, over 4: shards of 3, outputs 2,2,2,0.
  constexpr tiles_of split({.size = 3, .stride = 2, .low = 1, .high = 1}, 12, 4);
  static_assert(split.outputs == 6 && split.shard() == 3);
  for (std::int64_t p = 0; p < 4; ++p) {
    CHECK(split.left(p) == 1 - p);
    CHECK(split.right(p) == 1 + p);
    // Begins and limits: -1,3,7,11 and 4,8,12,16.
    CHECK(split.room(p).begin - split.map.to_first + split.map.from_first == 4 * p - 1);
    CHECK(split.room(p).end - split.map.to_first + split.map.from_first == 4 * p + 4);
  }
  // The last part has no outputs and receives nothing. Its right halo of 4 is clipped to nothing.
  CHECK(split.elements(0) == std::set<std::int64_t>{0, 1, 2, 3});
  CHECK(split.elements(1) == std::set<std::int64_t>{3, 4, 5, 6, 7});
  CHECK(split.elements(2) == std::set<std::int64_t>{7, 8, 9, 10, 11});
  CHECK(split.elements(3).empty());
}

TEST_CASE("windows: base dilation (GSPMD, figure 10)") {
  const auto paddings = [](const tiles_of& split) {
    return list{split.low_padding(0), split.low_padding(1), split.low_padding(2)};
  };
  SUBCASE("case 1: the outputs of a part are as far apart as elements: all parts are alike") {
    constexpr tiles_of split({.size = 5, .stride = 3, .low = 1, .high = 3, .base_dilation = 3}, 6, 3);
    static_assert(split.outputs == 6 && split.shard() == 2);
    CHECK(paddings(split) == list{1, 1, 1});
    CHECK(split.elements(0) == std::set<std::int64_t>{0, 1, 2});  // no left halo, and one element to the right
    CHECK(split.elements(1) == std::set<std::int64_t>{2, 3, 4});
    CHECK(split.elements(2) == std::set<std::int64_t>{4, 5});
  }
  SUBCASE("case 2: stride 1, another low padding for each part") {
    constexpr tiles_of split({.size = 3, .high = 1, .base_dilation = 3}, 5, 3);
    static_assert(split.outputs == 12);
    CHECK(paddings(split) == list{0, 2, 1});  // so outputs begin at 2, 0 and 1 after a low padding of 2
  }
  SUBCASE("case 3: strided, another low padding for each part, which no padding of all of them replaces") {
    constexpr tiles_of alike({.size = 3, .stride = 2, .high = 3, .base_dilation = 3}, 6, 3);
    static_assert(alike.outputs == 9);
    CHECK(paddings(alike) == list{0, 0, 0});  // 3 outputs are 2 elements further
    constexpr padded_window padded{.size = 3, .stride = 2, .high = 1, .base_dilation = 3};
    constexpr tiles_of split(padded, 5, 3);
    static_assert(split.outputs == 6);
    CHECK(paddings(split) == list{0, 2, 1});  // `00w`, `w00`, `0w0` of a window of 5
  }
}
