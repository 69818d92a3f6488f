// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/external/detail/view_exchange.hpp"
#include "gspmd/external/whole.hpp"
#include "gspmd/layouts/placed_array.hpp"

namespace gspmd {

/// Numbers of ghost layers that differ between the low and the high end of a dim.
///
///     ghost_sides{{1, 0}, {2, 0}}          one layer before the begin of the first dim, two after its end
struct ghost_sides {
  detail::int_list low, high;
};

/// Fills the ghost layers of blocks in external memory. Around a device's block are `widths[d]` layers at both ends of
/// dim d. They receive the elements of other devices, including corners, in one exchange.
///
/// Layers outside of the tensor stay unchanged, so you can set your boundary condition there. If a dim is `periodic`,
/// its layers receive the elements of the opposite end. Layers can be wider than a neighbour's block. The parts of each
/// dim must be runs of indices: contiguous, balanced or ragged. After the first call, no memory in proportion to the
/// blocks is allocated.
///
/// **Communication.** Collective. bytes_sent() and messages_sent() return the bytes and messages of a device.
/// **Errors.** Throws gspmd::error: a number of widths that differs from the dims; a negative width; parts that are no
/// runs; a view of another shape; a device that the mesh does not have.
/// **Threads.** Each device needs its own object.
/// **Example.**
///
///     ghost_exchange fill(layout_on<pod, shape<101, 64>, split<"x", _>>(balanced{}), {1, 0});
///     fill(comm, strided_view(u, {rows + 2, 64}));         // the device's rows, and one layer at both ends
///     fill.bytes_sent(comm.device(0), sizeof(double));     // 2 * 64 * 8 for a device between two others
class ghost_exchange {
 public:
  template <placement... P>
  ghost_exchange(const placed_layout<P...>& layout, const detail::int_list& widths, std::initializer_list<bool> periodic = {})
      : ghost_exchange(layout.tables(), widths.items, widths.items, periodic) {}
  template <placement... P>
  ghost_exchange(const placed_layout<P...>& layout, const ghost_sides& widths, std::initializer_list<bool> periodic = {})
      : ghost_exchange(layout.tables(), widths.low.items, widths.high.items, periodic) {}
  /// The same for the tables of a layout.
  ghost_exchange(const detail::placed_tables& tables, const detail::extents& low, const detail::extents& high,
                 std::vector<bool> periodic)
      : tables_(tables), low_(low), high_(high), periodic_(std::move(periodic)) {
    const auto rank = tables_.global.count;
    for (const auto* widths : {&low_, &high_})
      if (widths->count != rank)
        throw error("ghost_exchange: the tensor has " + std::to_string(rank) + " dims and the call gives " +
                    std::to_string(widths->count) + " widths; give one for each");
    periodic_.resize(static_cast<std::size_t>(rank), false);
    for (int d = 0; d < rank; ++d) {
      if (low_[d] < 0 || high_[d] < 0) throw error("ghost_exchange: the width of dim " + std::to_string(d) + " is negative");
      for (const auto& part : tables_.dims[static_cast<std::size_t>(d)].global)
        for (std::size_t i = 1; i < part.size(); ++i)
          if (part[i] != part[i - 1] + 1)
            throw error("ghost_exchange: the parts of dim " + std::to_string(d) +
                        " are no contiguous indices, so they have no neighbours");
    }
  }

  /// Fills the layers of this device's block. Collective.
  template <communicator Comm, class T>
  void operator()(Comm& comm, const strided_view<T>& block) {
    fill(comm, &block, 1);
  }
  /// The same for a communicator that holds several devices (simulated): one block for each device.
  template <communicator Comm, class T>
  void operator()(Comm& comm, const std::vector<strided_view<T>>& blocks) {
    fill(comm, blocks.data(), blocks.size());
  }
  /// The same for memory of one device, with elements of `elem_bytes` bytes.
  template <communicator Comm>
  void fill_memory(Comm& comm, const detail::strided_memory& block, std::int64_t elem_bytes) {
    memory_.assign(1, detail::external_block(block, elem_bytes));
    exchange(comm, elem_bytes);
  }
  /// Returns the bytes that a device sends. messages_sent returns the number of devices that it sends to.
  [[nodiscard]] std::int64_t bytes_sent(int device, std::int64_t bytes_per_elem) const {
    check_device(device);
    std::int64_t elems = 0;
    for (std::int64_t k = 0; k < tables_.mesh.device_count(); ++k)
      if (k != device) elems += detail::elements(boxes(device, k));
    return elems * bytes_per_elem;
  }
  [[nodiscard]] int messages_sent(int device) const {
    check_device(device);
    int count = 0;
    for (std::int64_t k = 0; k < tables_.mesh.device_count(); ++k) count += k != device && !boxes(device, k).empty();
    return count;
  }

 private:
  void check_device(int device) const {
    if (device < 0 || device >= tables_.mesh.device_count())
      throw error("ghost_exchange: device " + std::to_string(device) + " does not exist; the mesh has " +
                  detail::counted(static_cast<int>(tables_.mesh.device_count()), "device") + "; devices count from 0");
  }
  template <class Comm, class T>
  void fill(Comm& comm, const strided_view<T>* blocks, std::size_t count) {
    static_assert(!std::is_const_v<T>, "gspmd: ghost_exchange: ghost layers are written and the view given is of const elements");
    require_devices(comm, static_cast<int>(tables_.mesh.device_count()));
    if (static_cast<std::size_t>(comm.local_count()) != count)
      throw error("ghost_exchange: the communicator holds " + detail::counted(comm.local_count(), "device") +
                  " and the call gives " + detail::counted(static_cast<int>(count), "block") + "; give a block for each");
    memory_.clear();
    for (std::size_t i = 0; i < count; ++i) {
      if (!memory_.emplace_back(blocks[i]).has_own_elements())
        throw error("ghost_exchange: several indices of the view given have the same element: " + blocks[i].text());
    }
    exchange(comm, sizeof(T));
  }
  template <class Comm>
  void exchange(Comm& comm, std::int64_t elem_bytes) {
    const auto count = memory_.size();
    for (std::size_t i = 0; i < count; ++i)
      detail::require_block_shape("ghost_exchange", tables_, comm.device(static_cast<int>(i)), memory_[i].shape(), low_, high_);
    if (!found_ || first_device_ != comm.device(0) || found_count_ != count) {
      found_ = std::make_unique<detail::view_exchange>(comm, [&](std::int64_t a, std::int64_t b) { return boxes(a, b); });
      first_device_ = comm.device(0);
      found_count_ = count;
    }
    found_->run(comm, elem_bytes, memory_.data(), memory_.data());
  }
  /// Returns the boxes that `source` sends to the ghost layers of `target`. If several devices are replicas, the source
  /// has the same coordinates as the target along their axes.
  [[nodiscard]] detail::sent_boxes boxes(std::int64_t source, std::int64_t target) const {
    const auto at = tables_.mesh.coordinates_of(source), wanted = tables_.mesh.coordinates_of(target);
    const auto split = tables_.axes.split_axes();
    for (int a = 0; a < tables_.mesh.axis_count(); ++a)
      if ((split & detail::axis_bit(a)) == 0 && at[a] != wanted[a]) return {};
    std::vector<std::vector<detail::sent_interval>> dims;
    for (int d = 0; d < tables_.global.count; ++d) {
      const auto extent = tables_.global[d], low = low_[d], high = high_[d], width = low > high ? low : high;
      const auto from = held(d, at), to = held(d, wanted);
      auto& found = dims.emplace_back();
      if (from.size() == 0 || to.size() == 0) return {};
      const auto rounds = periodic_[static_cast<std::size_t>(d)] ? (width + extent - 1) / extent : 0;
      for (auto round = -rounds; round <= rounds; ++round) {
        const auto begin = std::max(from.begin + round * extent, to.begin - low);
        const auto end = std::min(from.end + round * extent, to.end + high);
        if (begin >= end) continue;
        const bool is_center = round == 0 && tables_.part(d, at) == tables_.part(d, wanted);
        found.push_back({end - begin, begin - round * extent - from.begin + low, begin - to.begin + low, is_center});
      }
      if (found.empty()) return {};
    }
    return detail::product(dims, true);
  }
  [[nodiscard]] detail::index_range held(int dim, const detail::coordinates& at) const {
    const auto& list = tables_.dims[static_cast<std::size_t>(dim)].global[static_cast<std::size_t>(tables_.part(dim, at))];
    return list.empty() ? detail::index_range{0, 0} : detail::index_range{list.front(), list.back() + 1};
  }

  detail::placed_tables tables_;
  detail::extents low_, high_;
  std::vector<bool> periodic_;
  std::unique_ptr<detail::view_exchange> found_;  // for the devices of the last communicator
  int first_device_ = -1;
  std::size_t found_count_ = 0;
  std::vector<detail::external_block> memory_;
};

}  // namespace gspmd
