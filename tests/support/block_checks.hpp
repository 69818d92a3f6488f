// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "gspmd/external.hpp"
#include "gspmd/external/ghost_exchange.hpp"

/// Blocks with ghost layers. The value of each element is determined by its global indices.
namespace blocks {

using namespace gspmd;

/// Returns the number of an element from its indices. Returns -1 outside of the tensor, except along periodic dims.
inline double number_of(const detail::extents& shape, const detail::extents& index, const std::vector<bool>& periodic) {
  double n = 0;
  for (int d = 0; d < shape.count; ++d) {
    auto i = index[d];
    if (periodic[static_cast<std::size_t>(d)]) i = ((i % shape[d]) + shape[d]) % shape[d];
    if (i < 0 || i >= shape[d]) return -1;
    n = n * static_cast<double>(shape[d]) + static_cast<double>(i);
  }
  return n + 1;
}

/// Calls `visit(local, global, is_inside)` for the elements of a device's block, including its ghost layers.
template <class Layout, class Visit>
void for_each_of_block(const Layout& layout, int device, const detail::extents& widths, Visit visit) {
  const int rank = layout.shape().count;
  detail::extents shape;
  for (int d = 0; d < rank; ++d) shape.push_back(static_cast<std::int64_t>(layout.held(device, along(d)).size()) + 2 * widths[d]);
  detail::extents at(rank, 0);
  for (std::int64_t n = detail::elements(shape); n > 0; --n) {
    detail::extents global;
    bool is_inside = true;
    for (int d = 0; d < rank; ++d) {
      const auto held = layout.held(device, along(d));
      global.push_back((held.size() > 0 ? held[0] : 0) + at[d] - widths[d]);
      is_inside = is_inside && at[d] >= widths[d] && at[d] < shape[d] - widths[d];
    }
    visit(at, global, is_inside);
    for (int d = rank - 1; d >= 0 && ++at[d] == shape[d]; --d) at[d] = 0;
  }
}

/// Returns the number of wrong elements in the blocks of a communicator's devices after an exchange.
template <class Comm, class Layout>
int wrong_ghosts(Comm& comm, const Layout& layout, const detail::extents& widths, std::initializer_list<bool> periodic_dims) {
  const int rank = layout.shape().count;
  std::vector<bool> periodic(periodic_dims);
  periodic.resize(static_cast<std::size_t>(rank), false);
  struct block {
    detail::extents strides;
    bool is_empty = false;
    std::vector<double> memory;
    double& at(const detail::extents& index) {
      std::int64_t offset = 0;
      for (int d = 0; d < strides.count; ++d) offset += index[d] * strides[d];
      return memory[static_cast<std::size_t>(offset)];
    }
  };
  std::vector<block> blocks(static_cast<std::size_t>(comm.local_count()));
  std::vector<strided_view<double>> views;
  for (int i = 0; i < comm.local_count(); ++i) {
    auto& mine = blocks[static_cast<std::size_t>(i)];
    detail::extents shape;
    std::int64_t next = 1;  // column-major, with a gap after each column
    for (int d = 0; d < rank; ++d) {
      const auto held = static_cast<std::int64_t>(layout.held(comm.device(i), along(d)).size());
      mine.is_empty = mine.is_empty || held == 0;
      shape.push_back(held + 2 * widths[d]);
      mine.strides.push_back(next);
      next = next * shape[d] + 1;
    }
    mine.memory.assign(static_cast<std::size_t>(next) + 1, -1);
    for_each_of_block(layout, comm.device(i), widths, [&](const auto& at, const auto& global, bool is_inside) {
      if (is_inside) mine.at(at) = number_of(layout.shape(), global, periodic);
    });
    views.emplace_back(mine.memory.data(), shape, mine.strides);
  }
  ghost_exchange fill(layout, widths, periodic_dims);
  for (int again = 0; again < 2; ++again) {
    if (views.size() == 1) fill(comm, views[0]);
    else fill(comm, views);
  }
  int wrong = 0;
  for (int i = 0; i < comm.local_count(); ++i) {
    auto& mine = blocks[static_cast<std::size_t>(i)];
    for_each_of_block(layout, comm.device(i), widths, [&](const auto& at, const auto& global, bool) {
      wrong += mine.at(at) != (mine.is_empty ? -1 : number_of(layout.shape(), global, periodic));
    });
  }
  return wrong;
}

}  // namespace blocks
