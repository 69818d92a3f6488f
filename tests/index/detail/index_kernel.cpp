// SPDX-License-Identifier: Apache-2.0
// labels: native
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gspmd/index/detail/index_kernel.hpp"
#include "gspmd/index/detail/scan_kernel.hpp"

// Gather and scatter along one dim of a table, and the maxima of a line, compared with loops over single elements:
// every position, kind of indices and width of elements, extents of 1, parts of a table, and indices out of range.

namespace {

using namespace gspmd::detail;
using gspmd::dtype;
using gspmd::out_of_range;
using std::int32_t, std::int64_t;

struct lookup_case {
  indexed_access access;
  index_ranges part{};
  int dim = 0;  // the dim of the table that is looked up
  bool along = false;
  std::vector<int64_t> named;
};

int64_t count_of(const extents& e) {
  int64_t n = 1;
  for (int d = 0; d < e.count; ++d) n *= e[d];
  return n;
}
void place_of(const extents& shape, int64_t number, int64_t* at) {
  for (int d = shape.count; d-- > 0; number /= shape[d]) at[d] = number % shape[d];
}
int64_t number_of(const extents& shape, const int64_t* at) {
  int64_t number = 0;
  for (int d = 0; d < shape.count; ++d) number = number * shape[d] + at[d];
  return number;
}

/// take(x, i, dim), or take_along_axis(x, i, dim), of up to four dims, on a device that has a part of dim `dim`.
lookup_case draw(std::mt19937& random) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<std::uint32_t>(n)); };
  const auto extent = [&] { return below(3) == 0 ? int64_t{1} : 1 + below(below(6) == 0 ? 70 : 5); };
  lookup_case c;
  indexed_access& a = c.access;
  c.along = below(2) == 0;
  const int rank = static_cast<int>(1 + below(c.along ? 4 : 3)), indices_rank = c.along ? rank : static_cast<int>(below(3));
  c.dim = static_cast<int>(below(rank));
  const int64_t size = extent(), first = below(2) == 0 ? 0 : below(size + 1);
  const int64_t here = first == 0 && below(2) == 0 ? size : below(size - first + 3);  // may be nothing, and more than exists
  for (int d = 0; d < rank; ++d) {
    const int64_t e = d == c.dim ? here : extent();
    a.table.push_back(e);
    const auto of_slices = static_cast<std::int8_t>(d < c.dim || c.along ? d : d + indices_rank - 1);
    if (d == c.dim) a.dims.push_back({size, 1, 0, -1, false});
    else a.dims.push_back({e, c.along ? 1 : e, -1, of_slices, true});
  }
  c.part.table_first[c.dim] = first;
  const auto looked_up = [&](int64_t e) {
    a.indices.push_back(e);
    a.slices.push_back(e);
    a.lookup.push_back(static_cast<std::int8_t>(a.indices.count - 1));
  };
  for (int d = 0; d < rank; ++d) {
    if (c.along) {
      looked_up(d == c.dim ? extent() : a.table[d]);
    } else if (d == c.dim) {
      for (int k = 0; k < indices_rank; ++k) looked_up(extent());
    } else {
      a.slices.push_back(a.table[d]);
      a.lookup.push_back(-1);
    }
  }
  for (int d = 0; d < a.slices.count; ++d) {
    c.part.slices_valid[d] = a.slices[d];
    if (below(6) == 0) c.part.slices_valid[d] = below(a.slices[d] + 1);  // the rest is padding
  }
  a.index_type = below(2) == 0 ? dtype::s32 : dtype::s64;
  a.beyond = below(2) == 0 ? out_of_range::clip : out_of_range::fill;
  for (int64_t i = 0; i < count_of(a.indices); ++i) {
    int64_t named = below(size + 4) - 2;
    if (below(30) == 0) named = below(2) == 0 ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int32_t>::max();
    if (a.index_type == dtype::s64 && below(30) == 0)
      named = below(2) == 0 ? int64_t{1} << 32 : std::numeric_limits<int64_t>::min();
    c.named.push_back(named);
  }
  return c;
}

/// Calls `visit(element of the slices, element of the table or -1, fits)` in row-major order of the slices.
template <class Visit>
void for_each_element(const lookup_case& c, Visit visit) {
  const auto& a = c.access;
  for (int64_t v = 0; v < count_of(a.slices); ++v) {
    int64_t at[max_rank], from[max_rank], row[max_rank];
    place_of(a.slices, v, at);
    bool is_data = true;
    for (int d = 0; d < a.slices.count; ++d) {
      is_data = is_data && at[d] < c.part.slices_valid[d];
      if (a.lookup[d] >= 0) row[a.lookup[d]] = at[d];
    }
    if (!is_data) continue;
    for (int d = 0; d < a.dims.count; ++d)
      if (d != c.dim) from[d] = at[a.dims[d].along];
    const int64_t named = c.named[static_cast<std::size_t>(number_of(a.indices, row))], size = a.dims[c.dim].size;
    const int64_t inside = named < 0 ? 0 : named >= size ? size - 1 : named;
    from[c.dim] = inside - c.part.table_first[c.dim];
    const bool is_here = from[c.dim] >= 0 && from[c.dim] < a.table[c.dim];
    visit(v, is_here ? number_of(a.table, from) : -1, inside == named);
  }
}
std::string told(const lookup_case& c) {
  std::string text = c.along ? "take_along_axis dim " : "take dim ";
  text += std::to_string(c.dim) + " table";
  for (int d = 0; d < c.access.table.count; ++d) (text += ' ') += std::to_string(c.access.table[d]);
  text += " slices";
  for (int d = 0; d < c.access.slices.count; ++d) (text += ' ') += std::to_string(c.access.slices[d]);
  return text;
}
/// Returns the indices in their memory format.
std::vector<std::byte> bytes_of_indices(const lookup_case& c) {
  std::vector<std::byte> bytes(c.named.size() * 8 + 8);
  for (std::size_t i = 0; i < c.named.size(); ++i) {
    const auto narrow = static_cast<int32_t>(c.named[i]);
    if (c.access.index_type == dtype::s32) std::memcpy(&bytes[i * 4], &narrow, 4);
    else std::memcpy(&bytes[i * 8], &c.named[i], 8);
  }
  return bytes;
}

template <class Bits>
int gathered(std::mt19937& random) {
  lookup_case c = draw(random);
  c.access.fill = 77;
  c.access.nothing = 88;
  std::vector<Bits> table(static_cast<std::size_t>(count_of(c.access.table)));
  for (auto& e : table) e = static_cast<Bits>(random());
  std::vector<Bits> slices(static_cast<std::size_t>(count_of(c.access.slices)), Bits{99}), expected = slices;
  for_each_element(c, [&](int64_t to, int64_t from, bool fits) {
    expected[static_cast<std::size_t>(to)] = from < 0 ? Bits{88}
                                             : fits || c.access.beyond == out_of_range::clip
                                                 ? table[static_cast<std::size_t>(from)]
                                                 : Bits{77};
  });
  const auto index = bytes_of_indices(c);
  gather_slices(gather_code<Bits>(), c.access, c.part, table.data(), index.data(), slices.data());
  INFO(told(c));
  CHECK(slices == expected);
  return slice_walk(c.access, c.part).is_by_element() ? 1 : 0;
}
/// A sum that depends on the order of its terms.
struct appended {
  using element = std::uint64_t;
  static element of(element before, element update) { return before * 31 + update; }
};
int scattered(std::mt19937& random) {
  const lookup_case c = draw(random);
  std::vector<std::uint64_t> slices(static_cast<std::size_t>(count_of(c.access.slices)));
  for (auto& e : slices) e = random();
  std::vector<std::uint64_t> table(static_cast<std::size_t>(count_of(c.access.table)), 5), expected = table;
  for_each_element(c, [&](int64_t from, int64_t to, bool fits) {
    if (to < 0 || (!fits && c.access.beyond == out_of_range::fill)) return;
    auto& e = expected[static_cast<std::size_t>(to)];
    e = appended::of(e, slices[static_cast<std::size_t>(from)]);
  });
  const auto index = bytes_of_indices(c);
  scatter_slices(scatter_code<appended>(), c.access, c.part, index.data(), slices.data(), table.data());
  INFO(told(c));
  CHECK(table == expected);
  return slice_walk(c.access, c.part).is_by_element() ? 1 : 0;
}

/// Compares the first `k` elements of a line with a complete sort.
template <class T>
void top_of_drawn_line(std::mt19937& random) {
  const auto n = static_cast<std::size_t>(random() % 150), k = static_cast<std::size_t>(random() % 40);
  const auto kinds = 1 + random() % 60;  // a small number, so there are ties
  std::vector<T> x(n);
  for (auto& e : x) {
    e = static_cast<T>(random() % kinds);
    if constexpr (std::numeric_limits<T>::has_quiet_NaN) {
      const auto special = random() % 40;
      if (special == 0) e = std::numeric_limits<T>::quiet_NaN();
      if (special == 1) e = -std::numeric_limits<T>::infinity();
      if (special == 2) e = -T{0};
    }
  }
  std::vector<int32_t> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = static_cast<int32_t>(i);
  const auto is_nan = [](T e) { return e != e; };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const T e = x[static_cast<std::size_t>(a)], f = x[static_cast<std::size_t>(b)];
    return is_nan(e) ? !is_nan(f) : !is_nan(f) && e > f;
  });
  std::vector<T> best(k);
  std::vector<int32_t> at(k);
  top_of_line<T>(x.data(), nullptr, static_cast<int64_t>(n), 1000, static_cast<int64_t>(k), best.data(), at.data());
  INFO(n, " elements, the first ", k);
  for (std::size_t i = 0; i < k; ++i) {
    if (i >= n) {
      CHECK(at[i] == no_element);
      continue;
    }
    CHECK(at[i] == 1000 + order[i]);
    const T e = x[static_cast<std::size_t>(order[i])];
    CHECK(std::memcmp(&best[i], &e, sizeof(T)) == 0);
  }
}

}  // namespace

TEST_CASE("what is looked up along one dim equals loops over single elements") {
  std::mt19937 random(5);
  int by_element = 0;
  for (int k = 0; k < 3000; ++k) {
    by_element += gathered<std::uint8_t>(random) + gathered<std::uint16_t>(random) + gathered<std::uint32_t>(random) +
                  gathered<std::uint64_t>(random);
    by_element += scattered(random);
  }
  CHECK(by_element > 5000);
  CHECK(by_element < 14000);
}

TEST_CASE("the largest of a line equal those of the line in order, with ties, NaN and both zeros") {
  std::mt19937 random(6);
  for (int k = 0; k < 2000; ++k) {
    top_of_drawn_line<float>(random);
    top_of_drawn_line<double>(random);
    top_of_drawn_line<std::int8_t>(random);
    top_of_drawn_line<std::uint64_t>(random);
  }
}
