// SPDX-License-Identifier: Apache-2.0
// alone: yes
// expect: gspmd: placement: split and unsplit must be inverse to each other
// expect: placement_law_holds<backwards>
#include <gspmd/layouts/placed_array.hpp>

using namespace gspmd;

struct backwards : contiguous {
  static constexpr std::int64_t split(std::int64_t extent, std::int64_t parts, std::int64_t part, std::int64_t i) {
#ifdef FIXED
    return contiguous::split(extent, parts, part, i);
#else
    return contiguous::split(extent, parts, part, local_extent(extent, parts, part) - 1 - i);
#endif
  }
};

using pod = mesh<axis<"data", 2>>;

int main() {
  detail::sharding rows;
  rows.add_split(0, 0);
  placed_layout<backwards> layout(pod::info.shape, shape<8>::value, rows, backwards{});  // <- here
  return layout.shape().count;
}
