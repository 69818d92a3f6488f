// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/transport/group_key.hpp"

namespace gspmd::detail {

/// A cache of values that were computed for collectives. The key is the content of the descriptor: extents, splits
/// and axes on a mesh. The address of a descriptor would be a faster key, but the next descriptor on the stack has
/// the same address.
///
/// Descriptor is movement or reduction. For a reduction the monoid is not part of the key. A lookup allocates nothing
/// and takes about 10 ns.
template <class Descriptor, class Value>
class descriptor_cache {
 public:
  /// Returns the value of `d`. If it is not in the cache, make() computes it. The reference is valid until the next
  /// call.
  template <class Make>
  const Value& find(const mesh_shape& mesh, const Descriptor& d, Make make) {
    const auto hash = hash_of(mesh, d);
    if (const auto* known = slots_[free_or_equal(mesh, d, hash)].get()) return known->value;
    auto made = std::make_unique<entry>(
        entry{hash, group_key(mesh, d.axes), operand_of(d), result_of(d), d.from.splits, d.to.splits, {}, order_of(d), make()});
    if (const auto* map = map_of(d)) made->map = *map;
    if (count_ == most_entries) clear();
    if (2 * (count_ + 1) > slots_.size()) grow();
    auto& slot = slots_[free_or_equal(mesh, d, hash)];
    slot = std::move(made);
    ++count_;
    return slot->value;
  }

 private:
  // A program has few collectives. The limit bounds the memory of a process that keeps making new programs.
  static constexpr std::size_t most_entries = 4096;
  static constexpr std::uint64_t odd = 0x9e3779b97f4a7c15U;

  static const extents& operand_of(const movement& m) { return m.from_global; }
  static const extents& operand_of(const reduction& r) { return r.global; }
  static const extents& result_of(const movement& m) { return m.to_global; }
  static const extents& result_of(const reduction& r) { return r.global; }
  static const index_map* map_of(const movement& m) { return m.map; }
  static const index_map* map_of(const reduction&) { return nullptr; }
  static inline_vec<std::int8_t, max_rank> order_of(const movement& m) { return m.from_order; }
  static inline_vec<std::int8_t, max_rank> order_of(const reduction&) { return {}; }

  struct entry {
    std::uint64_t hash;
    group_key key;
    extents operand, result;
    decltype(sharding::splits) from, to;
    std::optional<index_map> map;
    inline_vec<std::int8_t, max_rank> order;
    Value value;

    [[nodiscard]] bool is(const mesh_shape& mesh, const Descriptor& d) const {
      return result == result_of(d) && from == d.from.splits && to == d.to.splits && is_mapped_alike(d) && order == order_of(d) &&
             key.names(mesh, d.axes);
    }
    [[nodiscard]] bool is_mapped_alike(const Descriptor& d) const {
      const auto* theirs = map_of(d);
      if (theirs == nullptr) return !map;
      return map && *map == *theirs && operand == operand_of(d);
    }
  };

  static std::uint64_t hash_of(const mesh_shape& mesh, const Descriptor& d) {
    std::uint64_t sum = d.axes * odd, factor = odd;
    const auto add = [&](std::uint64_t word) {  // the products are independent, so the processor computes them in parallel
      factor += 2 * (odd >> 8);
      sum += word * factor;
    };
    for (const auto n : result_of(d)) add(static_cast<std::uint64_t>(n));
    for (const auto n : mesh.sizes) add(static_cast<std::uint64_t>(n));
    if (const auto* map = map_of(d))
      for (const auto& m : map->dims)
        for (const auto n : {m.from_first, m.from_step, m.to_first, m.to_step, m.tile.outputs, m.tile.span})
          add(static_cast<std::uint64_t>(n));
    for (const auto* side : {&d.from, &d.to}) {
      add(static_cast<std::uint64_t>(side->splits.count));
      for (const auto& use : side->splits) add(static_cast<std::uint64_t>(use.axis * 64 + use.dim + 1));
    }
    return sum * odd >> 20;
  }

  /// Returns the slot of the entry, or the free slot for a new entry. A free slot always exists.
  [[nodiscard]] std::size_t free_or_equal(const mesh_shape& mesh, const Descriptor& d, std::uint64_t hash) const {
    auto at = static_cast<std::size_t>(hash) & (slots_.size() - 1);
    while (slots_[at] && !(slots_[at]->hash == hash && slots_[at]->is(mesh, d))) at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  void grow() {
    std::vector<std::unique_ptr<entry>> larger(2 * slots_.size());
    for (auto& known : slots_) {
      if (!known) continue;
      auto at = static_cast<std::size_t>(known->hash) & (larger.size() - 1);
      while (larger[at]) at = (at + 1) & (larger.size() - 1);
      larger[at] = std::move(known);
    }
    slots_ = std::move(larger);
  }
  /// Removes all entries. Started collectives still read their values, so the entries are kept until the next call of
  /// clear().
  void clear() {
    before_ = std::exchange(slots_, std::vector<std::unique_ptr<entry>>(16));
    count_ = 0;
  }

  std::vector<std::unique_ptr<entry>> slots_ = std::vector<std::unique_ptr<entry>>(16);  // a power of 2; at least half are free
  std::vector<std::unique_ptr<entry>> before_;
  std::size_t count_ = 0;
};

}  // namespace gspmd::detail
