// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "gspmd/extend/edge.hpp"
#include "gspmd/layouts/blocks.hpp"

// Memory without addresses, such as the memory of an accelerator: all accesses go through copy functions. Each device
// has a block of rows, and the numbers of rows differ from those of the step.
namespace new_edge {

using namespace gspmd::extend;

/// The memory of an accelerator. It has no addresses in this process.
class accelerator {
 public:
  explicit accelerator(std::int64_t elems) : elements_(static_cast<std::size_t>(elems)) {}
  void copy_out(std::int64_t at, double* to) const { *to = elements_[static_cast<std::size_t>(at)]; }
  void copy_in(std::int64_t at, double from) { elements_[static_cast<std::size_t>(at)] = from; }

 private:
  std::vector<double> elements_;
};

struct buffer_edge;

/// The rows of a matrix that this device has.
struct buffer_view {
  using element = double;
  using edge = buffer_edge;

  accelerator* memory;
  const gspmd::placed_layout<gspmd::ragged_list>* layout;
  std::int64_t rows, columns;
};

/// Copies the rows to a shard and back. Rows that are on other devices in the step are sent.
struct buffer_edge : edge_struct {
  static constexpr const char* name = "buffer_view";
  static constexpr bool fills_ghost_cells = false;
  using view = buffer_view;

  static memory_range memory(const view&) { return no_addresses; }
  static const auto& layout(const view& x) { return *x.layout; }
  static extents shape(const view& x) { return {x.rows, x.columns}; }
  static bool has_own_elements(const view&) { return true; }
  static void read(const view& x, const extents& first, const strided_elements<double>& to) {
    for (std::int64_t i = 0; i < to.shape[0]; ++i)
      for (std::int64_t j = 0; j < to.shape[1]; ++j) x.memory->copy_out((first[0] + i) * x.columns + first[1] + j, &to(i, j));
  }
  static void write(const view& x, const extents& first, const strided_elements<const double>& from) {
    for (std::int64_t i = 0; i < from.shape[0]; ++i)
      for (std::int64_t j = 0; j < from.shape[1]; ++j) x.memory->copy_in((first[0] + i) * x.columns + first[1] + j, from(i, j));
  }
};

}  // namespace new_edge
