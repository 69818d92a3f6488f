// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/error.hpp"
#include "gspmd/program/along.hpp"
#include "gspmd/program/array.hpp"
#include "gspmd/program/mesh.hpp"
#include "gspmd/program/sharding.hpp"

/// Tensors of any rank as text: a matrix of matrices. The last dim runs to the right, the dim before it downwards, the
/// dim before that to the right again in blocks, and so on. So every dim is visible (ezyang's blog, "Draw high
/// dimensional tensors as a matrix of matrices").
///
///      0  1    4  5        [2,2,2,2]: dim 3 is 0 1, dim 2 is 0 2, dim 1 is 0 4, dim 0 is 0 8
///      2  3    6  7
///
///      8  9   12 13
///     10 11   14 15
namespace gspmd {
namespace detail {

/// The dims that run in one direction, minor first, and the gaps between neighbouring cells in that direction.
struct drawn_direction {
  struct gap {
    int level = 0;  // of the dim whose index changes there: 0 for the last dim in this direction
    bool is_cut = false;
  };
  std::vector<gap> gaps;  // the number of cells minus 1
  std::int64_t cells = 1;

  /// `cut_every[d]`: draws a line after this number of indices of dim d; 0: no line.
  drawn_direction(const extents& shape, const std::vector<std::int64_t>& cut_every, int last_dim) {
    std::vector<int> dims;
    for (int d = last_dim; d >= 0; d -= 2) {
      dims.push_back(d);
      cells *= shape[d];
    }
    for (std::int64_t i = 1; i < cells; ++i) {
      std::int64_t rest = i;
      for (std::size_t level = 0; level < dims.size(); ++level) {
        const auto extent = shape[dims[level]];
        if (rest % extent != 0) {
          const auto every = cut_every[static_cast<std::size_t>(dims[level])];
          gaps.push_back({static_cast<int>(level), every > 0 && rest % extent % every == 0});
          break;
        }
        rest /= extent;
      }
    }
  }
};

inline std::string without_margin(const std::vector<std::string>& text_lines, bool keep_margin) {
  std::size_t margin = std::string::npos;
  for (const auto& l : text_lines) margin = std::min(margin, l.find_first_not_of(' '));
  if (margin == std::string::npos || keep_margin) margin = 0;
  std::string result;
  for (const auto& l : text_lines) {
    const auto end = l.find_last_not_of(' ');
    if (end != std::string::npos) result += l.substr(margin, end + 1 - margin);
    result += '\n';
  }
  return result;
}

/// `cells` are in row-major order of the shape.
inline std::string draw_cells(const extents& shape, const std::vector<std::string>& cells,
                              const std::vector<std::int64_t>& cut_every) {
  if (cells.empty()) return "";
  const drawn_direction across(shape, cut_every, shape.count - 1), down(shape, cut_every, shape.count - 2);
  bool any_cut = false;
  for (const auto* direction : {&across, &down})
    for (const auto& g : direction->gaps) any_cut = any_cut || g.is_cut;
  std::size_t width = 2;
  for (const auto& c : cells) width = std::max(width, c.size());

  std::vector<std::size_t> begin{any_cut ? std::size_t{1} : 0};  // of each column; lines extend further to the left by 1
  for (const auto& g : across.gaps) {
    const auto level = static_cast<std::size_t>(g.level);
    begin.push_back(begin.back() + width + (level == 0 ? (g.is_cut ? 3 : 1) : 2 * level + 1));
  }
  const auto middle = [&](std::size_t gap) { return (begin[gap] + width + begin[gap + 1] - 1) / 2; };
  const auto full = begin.back() + width + across.gaps.size() + down.gaps.size() + 3;

  std::vector<std::string> text_lines;
  for (std::int64_t row = 0; row < down.cells; ++row) {
    std::string line(full, ' ');
    for (std::size_t k = 0; k < across.gaps.size(); ++k)
      if (across.gaps[k].is_cut || across.gaps[k].level > 1) line[middle(k)] = across.gaps[k].is_cut ? '|' : ':';
    for (std::int64_t column = 0; column < across.cells; ++column) {
      std::int64_t index = 0, stride = 1, x = column, y = row;
      for (int d = shape.count - 1; d >= 0; --d) {
        auto& rest = (shape.count - 1 - d) % 2 == 0 ? x : y;
        index += rest % shape[d] * stride;
        rest /= shape[d];
        stride *= shape[d];
      }
      const auto& cell = cells[static_cast<std::size_t>(index)];
      line.replace(begin[static_cast<std::size_t>(column)] + width - cell.size(), cell.size(), cell);
    }
    text_lines.push_back(line);
    if (row + 1 == down.cells) break;
    const auto gap = down.gaps[static_cast<std::size_t>(row)];
    if (gap.level == 0 && !gap.is_cut) continue;
    // a line of one level runs through the gaps of its own level and of lower levels
    std::string between(full, ' ');
    const char dash = gap.is_cut ? '-' : gap.level > 1 ? '.' : ' ';
    for (std::size_t first = 0; first < begin.size();) {
      auto last = first;
      while (last < across.gaps.size() && across.gaps[last].level <= gap.level) ++last;
      const auto from = begin[first] - (gap.is_cut ? 1 : 0);
      const auto to = begin[last] + width + (gap.is_cut ? 1 + static_cast<std::size_t>(gap.level) : 0);
      for (auto i = from; i < to; ++i) between[i] = dash;
      first = last + 1;
    }
    for (std::size_t k = 0; k < across.gaps.size(); ++k) {
      const auto& g = across.gaps[k];
      if (g.level < gap.level) continue;
      char& c = between[middle(k)];
      if (g.is_cut) c = c == '-' ? '+' : '|';
      else if (g.level > 1 && c == ' ') c = ':';
    }
    text_lines.push_back(between);
  }
  return without_margin(text_lines, any_cut);
}

template <class T>
std::string cell_of(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", static_cast<double>(value));
    return text;
  } else {
    return std::to_string(static_cast<std::int64_t>(value));
  }
}

template <class T>
std::vector<std::string> cells_of(const array<T>& x) {
  std::vector<std::string> cells;
  for (const auto value : x) cells.push_back(cell_of(value));
  return cells;
}

}  // namespace detail

/// Returns the whole tensor as lines of text; an empty text for a tensor without elements.
///
/// **Example.**
///
///     std::fputs(draw(x).c_str(), stdout);
template <class T>
std::string draw(const array<T>& x) {
  return detail::draw_cells(x.shape(), detail::cells_of(x), std::vector<std::int64_t>(detail::max_rank, 0));
}

/// Returns the tensor with lines that split dim `dim` into pieces of `size` (default: 1), as torch.split does.
///
/// **Errors.** gspmd::error if the dim does not exist or the size is below 1.
template <class T>
std::string draw_split(const array<T>& x, std::int64_t size, along dim) {
  const int d = detail::counted_dim(dim, x.shape().count);
  if (d < 0 || d >= x.shape().count)
    throw error("draw_split: dim " + std::to_string(dim.dim) + " of a tensor with " + std::to_string(x.shape().count) + " dims");
  if (size < 1) throw error("draw_split: pieces of " + std::to_string(size) + "; they have at least 1 element");
  std::vector<std::int64_t> every(detail::max_rank, 0);
  every[static_cast<std::size_t>(d)] = size;
  return detail::draw_cells(x.shape(), detail::cells_of(x), every);
}
template <class T>
std::string draw_split(const array<T>& x, along dim) {
  return draw_split(x, 1, dim);
}

namespace detail {

template <class T>
std::string draw_split(const array<T>& x, const mesh_shape& mesh, const sharding& s) {
  const auto local = local_extents(mesh, x.shape(), s);
  std::vector<std::int64_t> every(max_rank, 0);
  for (int d = 0; d < x.shape().count; ++d)
    if (parts_of(mesh, s, d) > 1) every[static_cast<std::size_t>(d)] = local[d];
  return draw_cells(x.shape(), cells_of(x), every);
}

inline std::string draw_devices(const mesh_shape& mesh, const extents& shape, const sharding& s) {
  extents parts = shape;
  std::vector<std::int64_t> every(max_rank, 1);
  for (int d = 0; d < shape.count; ++d) parts[d] = parts_of(mesh, s, d);
  std::vector<std::string> cells(static_cast<std::size_t>(elements(parts)));
  std::vector<char> mark(cells.size(), ' ');
  for (std::int64_t device = 0; device < mesh.device_count(); ++device) {
    const auto at = mesh.coordinates_of(device);
    std::int64_t tile = 0;
    char m = ' ';
    for (int d = 0; d < shape.count; ++d) {
      const auto index = part_index(mesh, s, d, at);
      tile = tile * parts[d] + index;
      const auto held = part_range(shape[d], parts[d], index).size();
      const auto local = shard_extent(shape[d], parts[d]);
      if (held < local && m != '(') m = held == 0 ? '(' : '*';
    }
    auto& cell = cells[static_cast<std::size_t>(tile)];
    cell += (cell.empty() ? "" : ",") + std::to_string(device);
    mark[static_cast<std::size_t>(tile)] = m;
  }
  for (std::size_t i = 0; i < cells.size(); ++i)
    cells[i] = mark[i] == '(' ? '(' + cells[i] + ')' : mark[i] == '*' ? cells[i] + '*' : cells[i];
  return draw_cells(parts, cells, every);
}

template <class Mesh, class Split>
sharding drawn_sharding(int rank) {
  const auto r = resolve(Mesh::info, Split::specs(), Split::rank, rank);
  if (!r.problem.empty()) throw error("draw: " + std::string(r.problem.view()));
  return r.value.layout;
}

}  // namespace detail

/// Returns the tensor with lines between its shards.
///
/// **Errors.** gspmd::error if the sharding does not fit.
/// **Example.**
///
///     draw_split(x, pod{}, split<"data", _>{})
template <class T, class Mesh, dim_spec... Dims>
std::string draw_split(const array<T>& x, Mesh, split<Dims...>) {
  return detail::draw_split(x, Mesh::info.shape, detail::drawn_sharding<Mesh, split<Dims...>>(x.shape().count));
}

/// Returns a cell for each tile of the tensor, with the devices that hold the tile; several devices if the tile is
/// replicated.
///
/// `*` marks a tile with some padding, and `(...)` a tile that is all padding.
///
/// **Errors.** gspmd::error as for draw_split.
/// **Example.**
///
///     draw_devices(mesh<axis<"x", 2>, axis<"y", 2>>{}, shape<5>{}, split<"x">{})        0,1 | 2,3*
template <class Mesh, std::int64_t... Extents, dim_spec... Dims>
std::string draw_devices(Mesh, shape<Extents...> shape, split<Dims...>) {
  return detail::draw_devices(Mesh::info.shape, shape.value, detail::drawn_sharding<Mesh, split<Dims...>>(shape.rank));
}

}  // namespace gspmd
