// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "gspmd/external/detail/ghost_ends.hpp"
#include "gspmd/external/detail/ghosted_facts.hpp"
#include "gspmd/external/ghost_exchange.hpp"

namespace gspmd::detail {

/// Fills the ghost layers around an input's block for the program: first the elements of other devices, in one
/// exchange, then the boundary of its operators beyond the ends of the tensor.
class ghost_filler {
 public:
  ghost_filler(const ghosted_facts& facts, std::size_t k, int device)
      : exchange_(exchange_of(facts, k)),
        beyond_(tables_of(*facts.plan->mesh, facts.value(k)), device, facts.listed[k].low, facts.listed[k].high,
                ends_of(facts, k)),
        device_(device) {}

  [[nodiscard]] int device() const { return device_; }
  /// Fills the layers of `block`. Collective.
  template <class Comm>
  void fill(Comm& comm, const strided_memory& block, std::int64_t elem_bytes) {
    exchange_.fill_memory(comm, block, elem_bytes);
    beyond_.fill(block, elem_bytes);
  }
  static ghost_exchange exchange_of(const ghosted_facts& facts, std::size_t k) {
    std::vector<bool> periodic;
    for (const auto& [below, above] : ends_of(facts, k))
      periodic.push_back((below.reach > 0 && below.beyond == continuation::round) ||
                         (above.reach > 0 && above.beyond == continuation::round));
    return {tables_of(*facts.plan->mesh, facts.value(k)), facts.listed[k].low, facts.listed[k].high, std::move(periodic)};
  }

 private:
  static std::vector<std::array<beyond_end, 2>> ends_of(const ghosted_facts& facts, std::size_t k) {
    std::vector<std::array<beyond_end, 2>> all;
    for (int d = 0; d < facts.value(k).global.count; ++d) {
      const auto& [below, above] = facts.ends[k][static_cast<std::size_t>(d)];
      all.push_back({beyond_end{below.reach, below.beyond, below.fill}, beyond_end{above.reach, above.beyond, above.fill}});
    }
    return all;
  }

  ghost_exchange exchange_;
  ghost_ends beyond_;
  int device_;
};

}  // namespace gspmd::detail
