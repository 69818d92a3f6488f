// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/choose/operator_use.hpp"

namespace gspmd::detail {

/// Returns true if node `i` is certainly brought to its preferred sharding: it is an output, or an elementwise user
/// prefers the same splits.
constexpr bool is_kept(const form_prices& known, int i) {
  for (const int reader : known.readers_of(i))
    if (reader == i ||
        (facts_of(known.at(reader).op).uniform && known.preferred_of(reader).splits == known.preferred_of(i).splits))
      return true;
  return false;
}

constexpr std::int64_t bytes_of_all(const node& n) { return bounded_bytes(n.shape, bytes_of(n.type)); }

/// The shardings that elementwise users and outputs prefer for each value. Each list is made once, because a value can
/// have hundreds of users.
class reader_preferences {
 public:
  struct preference {
    sharding wanted;
    int last = 0;  // the last user that prefers it; an output counts as after all nodes
  };

  constexpr const vec<preference>& of(const form_prices& known, int o) {
    if (at_.empty()) at_.resize(known.program.nodes.size(), -1);
    if (at_[o] >= 0) return lists_[at_[o]];
    at_[o] = static_cast<int>(lists_.size());
    vec<preference> found;
    for (const int reader : known.readers_of(o)) {  // the last user first
      const node& user = known.at(reader);
      if (!facts_of(user.op).uniform || !is_kept(known, reader)) continue;
      if (bytes_of_all(user) < bytes_of_all(known.at(o))) continue;  // the user reshards its smaller result instead
      preference one{{}, reader == o ? static_cast<int>(known.program.nodes.size()) : reader};
      one.wanted.splits = known.preferred_of(reader).splits;
      bool is_known = false;
      for (const auto& other : found) is_known = is_known || other.wanted == one.wanted;
      if (!is_known) found.push_back(one);
    }
    lists_.push_back(std::move(found));
    return lists_.back();
  }

 private:
  vec<int> at_;  // by node: index of its list; -1: not made yet
  vec<vec<preference>> lists_;
};

/// The shardings that users after node `i` prefer for the operands of node `i`. A use of the axes that makes these
/// forms saves the later reshards.
class later_preferences {
 public:
  constexpr later_preferences(const form_prices& known, reader_preferences& readers, int i, const node& n)
      : known_(known), n_(n) {
    for (int k = 0; k < n.operands.count; ++k) {
      const int o = n.operands[k];
      if (known.is_again<operand_shardings>(n, k, nullptr) || known.readers_of(o).size() < 2 || !known.book.has_forms(o))
        continue;
      for (const auto& preference : readers.of(known, o)) {
        if (preference.last <= i) continue;
        const auto time = known.time_in_all_trips(known.best_form(o, preference.wanted).price.time, known.level_of(o));
        if (time == 0) continue;
        preferences_.push_back({k, preference.wanted, time});
        all_ = add_times(all_, time);
      }
    }
  }

  /// Returns an upper bound of the time of later reshards if node `i` runs as `p`. For each operand, `p` serves only
  /// the preference that gains most.
  [[nodiscard]] constexpr std::int64_t left_after(const operator_use& p) const {
    std::int64_t left = all_;
    int operand = -1;
    std::int64_t most = 0;
    for (const auto& preference : preferences_) {
      if (preference.operand != operand) {
        left -= most;
        most = 0;
        operand = preference.operand;
      }
      const auto& form = p.wanted[operand];
      if ((preference.wanted.partial & ~form.partial) != 0) continue;
      const int o = n_.operands[operand];
      const auto size = bytes_of(known_.at(o).type);
      const auto then = price_of_reshard(known_.mesh, known_.net(), known_.shape_of(o), form, preference.wanted, size).time;
      const auto gain = preference.time - known_.time_in_all_trips(then, known_.level_of(o));
      if (gain > most) most = gain;
    }
    return left - most;
  }

 private:
  struct later_preference {
    int operand = 0;
    sharding wanted;
    std::int64_t time = 0;  // of the reshard from the forms that exist now
  };
  const form_prices& known_;
  const node& n_;
  vec<later_preference> preferences_;
  std::int64_t all_ = 0;
};

}  // namespace gspmd::detail
