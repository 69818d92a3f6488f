// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

/// Devices that hold matrices, and a direct implementation of operators and collectives on them.
namespace manual_law {

/// The matrix on one device.
struct matrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> of{};
  [[nodiscard]] double& at(std::int64_t r, std::int64_t c) { return of[static_cast<std::size_t>(r * cols + c)]; }
  [[nodiscard]] double at(std::int64_t r, std::int64_t c) const { return of[static_cast<std::size_t>(r * cols + c)]; }
  static matrix zeros(std::int64_t r, std::int64_t c) {
    return {r, c, std::vector<double>(static_cast<std::size_t>(r * c), 0.0)};
  }
};
inline matrix part_of(const matrix& m, int dim, std::int64_t parts, std::int64_t k) {
  matrix p = dim == 0 ? matrix::zeros(m.rows / parts, m.cols) : matrix::zeros(m.rows, m.cols / parts);
  for (std::int64_t r = 0; r < p.rows; ++r)
    for (std::int64_t c = 0; c < p.cols; ++c) p.at(r, c) = m.at(dim == 0 ? r + k * p.rows : r, dim == 1 ? c + k * p.cols : c);
  return p;
}

enum class kind {
  add,
  multiply,
  product,
  tanh,
  transpose,
  scale,
  all_reduce,
  all_reduce_r,
  gather,
  gather_r,
  scatter,
  exchange,
  rotate,
  shift,
  reverse,
  permute,
  part_r,
  part_i,
  to_replica,
  to_varying,
  to_partial,
  broadcast,
  index,
  halo,
  count
};
struct op {
  kind is = kind::add;
  int a = 0, b = 0;
  int axis = 0;  // 0: x, 1: y, 2: both
  int dim = 0;
  std::int64_t by = 1;
};

/// A permutation given by a number. Some devices receive nothing. Returns the device that sends to device k of n, or
/// -1.
inline std::int64_t source_of(std::int64_t number, std::int64_t k, std::int64_t n) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) order[static_cast<std::size_t>(i)] = i;
  std::mt19937 random(static_cast<unsigned>(number + 5));
  std::shuffle(order.begin(), order.end(), random);
  return (k + number) % 3 == 0 ? -1 : order[static_cast<std::size_t>(k)];
}

/// The devices of a mesh x,y, each with its own values.
struct machine {
  std::int64_t x, y;
  using held = std::vector<matrix>;  // by device
  [[nodiscard]] std::int64_t devices() const { return x * y; }
  [[nodiscard]] std::int64_t size(int axis) const { return axis == 0 ? x : axis == 1 ? y : x * y; }
  [[nodiscard]] std::int64_t place(std::int64_t d, int axis) const { return axis == 0 ? d / y : axis == 1 ? d % y : d; }
  [[nodiscard]] std::int64_t peer(std::int64_t d, int axis, std::int64_t k) const {
    return axis == 0 ? k * y + d % y : axis == 1 ? d / y * y + k : k;
  }

  [[nodiscard]] matrix local(const op& o, const matrix& a, const matrix& b) const {
    if (o.is == kind::product) {
      matrix c = matrix::zeros(a.rows, b.cols);
      for (std::int64_t i = 0; i < a.rows; ++i)
        for (std::int64_t k = 0; k < a.cols; ++k)
          for (std::int64_t j = 0; j < b.cols; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
      return c;
    }
    if (o.is == kind::transpose) {
      matrix c = matrix::zeros(a.cols, a.rows);
      for (std::int64_t i = 0; i < a.rows; ++i)
        for (std::int64_t j = 0; j < a.cols; ++j) c.at(j, i) = a.at(i, j);
      return c;
    }
    matrix c = a;
    for (std::size_t i = 0; i < c.of.size(); ++i)
      c.of[i] = o.is == kind::add        ? a.of[i] + b.of[i]
                : o.is == kind::multiply ? a.of[i] * b.of[i]
                : o.is == kind::tanh     ? std::tanh(a.of[i])
                                         : 0.5 * a.of[i];
    return c;
  }
  [[nodiscard]] matrix sum(const held& a, std::int64_t d, int axis) const {
    matrix s = matrix::zeros(a[static_cast<std::size_t>(d)].rows, a[static_cast<std::size_t>(d)].cols);
    for (std::int64_t k = 0; k < size(axis); ++k)
      for (std::size_t i = 0; i < s.of.size(); ++i) s.of[i] += a[static_cast<std::size_t>(peer(d, axis, k))].of[i];
    return s;
  }
  [[nodiscard]] matrix joined(const held& a, std::int64_t d, int axis, int dim) const {
    const matrix& like = a[static_cast<std::size_t>(d)];
    const auto n = size(axis);
    matrix w = dim == 0 ? matrix::zeros(like.rows * n, like.cols) : matrix::zeros(like.rows, like.cols * n);
    for (std::int64_t k = 0; k < n; ++k)
      for (std::int64_t r = 0; r < like.rows; ++r)
        for (std::int64_t c = 0; c < like.cols; ++c)
          w.at(dim == 0 ? r + k * like.rows : r, dim == 1 ? c + k * like.cols : c) =
              a[static_cast<std::size_t>(peer(d, axis, k))].at(r, c);
    return w;
  }
  [[nodiscard]] held run(const op& o, const held& a, const held& b) const {
    held result;
    for (std::int64_t d = 0; d < devices(); ++d) {
      const auto n = size(o.axis), k = place(d, o.axis);
      const matrix& own = a[static_cast<std::size_t>(d)];
      const auto from = [&](std::int64_t p) { return a[static_cast<std::size_t>(peer(d, o.axis, p))]; };
      switch (o.is) {
        case kind::all_reduce:
        case kind::all_reduce_r: result.push_back(sum(a, d, o.axis)); break;
        case kind::gather:
        case kind::gather_r: result.push_back(joined(a, d, o.axis, o.dim)); break;
        case kind::scatter: result.push_back(part_of(sum(a, d, o.axis), o.dim, n, k)); break;
        case kind::exchange: result.push_back(part_of(joined(a, d, o.axis, 1 - o.dim), o.dim, n, k)); break;
        case kind::rotate: result.push_back(from(((k - o.by) % n + n) % n)); break;
        case kind::shift: result.push_back(k >= o.by && k - o.by < n ? from(k - o.by) : matrix::zeros(own.rows, own.cols)); break;
        case kind::reverse: result.push_back(from(n - 1 - k)); break;
        case kind::permute:
          result.push_back(source_of(o.by, k, n) < 0 ? matrix::zeros(own.rows, own.cols) : from(source_of(o.by, k, n)));
          break;
        case kind::part_r:
        case kind::part_i: result.push_back(part_of(own, o.dim, n, k)); break;
        case kind::broadcast: result.push_back(from((o.by + n) % n)); break;
        case kind::to_replica:
        case kind::to_varying:
        case kind::to_partial: result.push_back(own); break;
        case kind::halo: {  // an index from the device before, and maybe an index from the device after
          const auto wide = [&](std::int64_t p, std::int64_t from_index) {
            const bool is_there = p >= 0 && p < n;
            const matrix neighbour = is_there || o.by == 2 ? from((p + n) % n) : matrix::zeros(own.rows, own.cols);
            return part_of(neighbour, o.dim, o.dim == 0 ? own.rows : own.cols, from_index);
          };
          const auto extent = o.dim == 0 ? own.rows : own.cols;
          std::vector<matrix> parts{wide(k - 1, extent - 1)};
          for (std::int64_t e = 0; e < extent; ++e) parts.push_back(part_of(own, o.dim, extent, e));
          if (o.by > 0) parts.push_back(wide(k + 1, 0));
          const auto count = static_cast<std::int64_t>(parts.size());
          matrix all = o.dim == 0 ? matrix::zeros(count, own.cols) : matrix::zeros(own.rows, count);
          for (std::int64_t e = 0; e < count; ++e)
            for (std::int64_t i = 0; i < (o.dim == 0 ? own.cols : own.rows); ++i)
              all.at(o.dim == 0 ? e : i, o.dim == 0 ? i : e) =
                  parts[static_cast<std::size_t>(e)].at(o.dim == 0 ? 0 : i, o.dim == 0 ? i : 0);
          result.push_back(all);
          break;
        }
        case kind::index:
          result.push_back(own);
          for (auto& e : result.back().of) e *= static_cast<double>(k);
          break;
        default: result.push_back(local(o, own, b[static_cast<std::size_t>(d)]));
      }
    }
    return result;
  }
};

}  // namespace manual_law
