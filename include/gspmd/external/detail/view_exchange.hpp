// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gspmd/detail/transport/communicator.hpp"
#include "gspmd/extend/edge.hpp"
#include "gspmd/layouts/detail/placed_tables.hpp"

/// Exchanges boxes of elements between devices, from external memory to external memory.
namespace gspmd::detail {

/// A box that is copied from one block to another: its shape, and its first index in each block.
struct sent_box {
  extents shape, from, to;
};
using sent_boxes = std::vector<sent_box>;

inline std::int64_t elements(const sent_boxes& boxes) {
  std::int64_t n = 0;
  for (const auto& b : boxes) n += elements(b.shape);
  return n;
}

/// An interval of a box along one dim: its size, and its first index in each block.
struct sent_interval {
  std::int64_t size, from, to;
  bool is_center = false;  // with ghost layers: an interval of the block itself
};
/// Returns all boxes of a product of intervals: `dims[d]` are the intervals of dim d. Example: a block with ghost
/// layers on both sides of 2 dims has 3 intervals for each dim. Their product is 9 boxes, or 8 boxes without the
/// center.
inline sent_boxes product(const std::vector<std::vector<sent_interval>>& dims, bool leaves_out_center) {
  sent_boxes all{{}};
  std::vector<bool> is_center{true};
  for (const auto& intervals : dims) {
    sent_boxes next;
    std::vector<bool> next_center;
    for (std::size_t i = 0; i < all.size(); ++i)
      for (const auto& one : intervals) {
        auto box = all[i];
        box.shape.push_back(one.size);
        box.from.push_back(one.from);
        box.to.push_back(one.to);
        next.push_back(box);
        next_center.push_back(is_center[i] && one.is_center);
      }
    all = std::move(next);
    is_center = std::move(next_center);
  }
  if (!leaves_out_center) return all;
  sent_boxes rest;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!is_center[i]) rest.push_back(all[i]);
  return rest;
}

/// Returns the boxes that device `source` holds under placement `from` and device `target` needs under placement `to`.
inline sent_boxes boxes_between(const placed_tables& from, const placed_tables& to, std::int64_t source, std::int64_t target) {
  const auto runs = runs_between(from, to, source, target);
  if (runs.empty()) return {};
  std::vector<std::vector<sent_interval>> dims;
  for (int d = 0; d < from.global.count; ++d) {
    dims.emplace_back();
    for (const auto& r : runs[static_cast<std::size_t>(d)]) dims.back().push_back({r.size, r.from, r.to});
  }
  return product(dims, false);
}

/// An exchange that is computed once: the boxes that the devices of a process send and receive, and buffers for them.
class view_exchange {
 public:
  /// `boxes_of(source, target)` returns the boxes that `source` sends to `target`.
  template <class Comm, class BoxesOf>
  view_exchange(const Comm& comm, BoxesOf boxes_of) {
    for (int i = 0; i < comm.local_count(); ++i) {
      auto& mine = devices_.emplace_back();
      const auto me = comm.device(i);
      for (int k = 0; k < comm.device_count(); ++k) {
        if (k == me) mine.kept = boxes_of(me, me);
        mine.sent.push_back(k == me ? sent_boxes{} : boxes_of(me, k));
        mine.received.push_back(k == me ? sent_boxes{} : boxes_of(k, me));
      }
    }
  }
  /// Copies from `from[i]` to `to[i]`, for the i-th device of this process. One of the two has strides. Collective.
  /// Elements are sent as words of 8, 4, 2 or 1 bytes; for example, an element of 12 bytes is three words of 4 bytes.
  template <class Comm>
  void run(Comm& comm, std::int64_t elem_bytes, const external_block* from, const external_block* to) {
    switch (elem_bytes % 8 == 0 ? 8 : elem_bytes % 4 == 0 ? 4 : elem_bytes % 2 == 0 ? 2 : 1) {
      case 8: return run_in<std::int64_t>(comm, elem_bytes, from, to);
      case 4: return run_in<std::int32_t>(comm, elem_bytes, from, to);
      case 2: return run_in<std::int16_t>(comm, elem_bytes, from, to);
      default: return run_in<std::int8_t>(comm, elem_bytes, from, to);
    }
  }

 private:
  struct of_device {
    sent_boxes kept;
    std::vector<sent_boxes> sent, received;  // to and from each device
    std::vector<std::int64_t> sent_words, received_words;
    std::vector<std::byte> packed, arrived;
  };
  template <bool IsPack>
  static std::byte* copy(const sent_boxes& boxes, std::int64_t elem_bytes, const external_block& block, std::byte* packed) {
    for (const auto& b : boxes) {
      if constexpr (IsPack) block.read(b.from, dense_memory(packed, b.shape));
      else block.write(b.to, dense_memory(packed, b.shape));
      packed += elements(b.shape) * elem_bytes;
    }
    return packed;
  }
  template <class Word, class Comm>
  void run_in(Comm& comm, std::int64_t elem_bytes, const external_block* from, const external_block* to) {
    static_assert(
        requires(const Word* const* i, Word* const* o, const std::int64_t* const* n) { comm.exchange(i, n, o, n); },
        "gspmd: the communicator has no exchange(in, sent, out, received)");
    auto& [in, out, sent, received] = std::get<pointers<Word>>(pointers_);
    in.clear();
    out.clear();
    sent.clear();
    received.clear();
    const auto words = elem_bytes / static_cast<std::int64_t>(sizeof(Word));
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      auto& mine = devices_[i];
      std::int64_t to_send = 0, to_receive = 0;
      mine.sent_words.clear();
      mine.received_words.clear();
      for (std::size_t k = 0; k < mine.sent.size(); ++k) {
        to_send += mine.sent_words.emplace_back(elements(mine.sent[k]) * words);
        to_receive += mine.received_words.emplace_back(elements(mine.received[k]) * words);
      }
      mine.packed.resize(static_cast<std::size_t>(to_send) * sizeof(Word));
      mine.arrived.resize(static_cast<std::size_t>(to_receive) * sizeof(Word));
      auto* packed = mine.packed.data();
      for (const auto& boxes : mine.sent) packed = copy<true>(boxes, elem_bytes, from[i], packed);
      in.push_back(reinterpret_cast<const Word*>(mine.packed.data()));
      out.push_back(reinterpret_cast<Word*>(mine.arrived.data()));
      sent.push_back(mine.sent_words.data());
      received.push_back(mine.received_words.data());
    }
    comm.template exchange<Word>(in.data(), sent.data(), out.data(), received.data());
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      auto* arrived = devices_[i].arrived.data();
      for (const auto& boxes : devices_[i].received) arrived = copy<false>(boxes, elem_bytes, to[i], arrived);
      for (const auto& b : devices_[i].kept) {
        if (to[i].has_strides()) from[i].read(b.from, to[i].box(b.to, b.shape));
        else to[i].write(b.to, from[i].box(b.from, b.shape));
      }
    }
  }

  /// Arrays by device. They are members, so that calls allocate nothing.
  template <class Word>
  struct pointers {
    std::vector<const Word*> in;
    std::vector<Word*> out;
    std::vector<const std::int64_t*> sent, received;
  };
  std::tuple<pointers<std::int64_t>, pointers<std::int32_t>, pointers<std::int16_t>, pointers<std::int8_t>> pointers_;
  std::vector<of_device> devices_;
};

/// Throws gspmd::error unless a view has the extents of the device's elements, plus `low` before and `high` after them.
inline void require_block_shape(const char* what, const placed_tables& t, int device, const extents& given, const extents& low,
                                const extents& high) {
  const auto at = t.mesh.coordinates_of(device);
  extents wanted;
  for (int d = 0; d < t.global.count; ++d)
    wanted.push_back(t.dims[static_cast<std::size_t>(d)].held(t.part(d, at)) + low[d] + high[d]);
  if (given == wanted) return;
  throw error(std::string(what) + ": the block of device " + std::to_string(device) + " is " +
              std::string(shape_text(wanted).view()) +
              (low == extents(low.count, 0) && high == low ? "" : ", ghost layers included,") + " and the view given is " +
              std::string(shape_text(given).view()));
}
/// The same for a block without ghost layers.
inline void require_block_shape(const char* what, const placed_tables& t, int device, const extents& given) {
  const extents none(t.global.count, 0);
  require_block_shape(what, t, device, given, none, none);
}

}  // namespace gspmd::detail
