// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/choose/reshard.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// What it takes to bring one tensor of an operator from or to a sharding, of those asked for so far. The proposals for an operator
/// are many more than the shardings that they ask of one tensor, and a price takes thousands of steps.
class known_prices {
 public:
  struct entry {
    std::uint64_t key = 0;
    sharding layout;
    sharding from;  // `layout` itself, or where the way to it begins
    reshard_price price;
    std::int64_t proven = 0;  // no way sends fewer elements
  };

  /// What is known of `s`; `find(entry)` works it out.
  template <class Find>
  constexpr entry& of(const sharding& s, Find find) {
    std::uint64_t key = s.partial;  // hardly two shardings have the same: a call to compare them is rare
    for (int i = 0; i < s.splits.count; ++i)
      key = 1021 * key + static_cast<std::uint64_t>(32 * s.splits.items[i].axis + s.splits.items[i].dim + 1);
    entry* const end = entries_.end();
    for (entry* e = entries_.begin(); e != end; ++e)
      if (e->key == key && same_layout(e->layout, s)) return *e;
    entry found;
    found.key = key;
    found.layout = s;
    find(found);
    entries_.push_back(found);
    return entries_.back();
  }
  [[nodiscard]] constexpr int count() const { return static_cast<int>(entries_.size()); }

 private:
  vec<entry> entries_;
};

}  // namespace gspmd::detail
