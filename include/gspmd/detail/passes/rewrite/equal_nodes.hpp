// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "gspmd/detail/ops/compositions/folded_nodes.hpp"
#include "gspmd/detail/ops/registry.hpp"

namespace gspmd::detail {

/// Finds operators that are written twice: the same operator with equal operands, attributes, annotations and
/// policies, if the first one is visible there. The program then uses the value of the first operator (common
/// subexpression elimination). A loss that is differentiated twice is computed once, and a shift that is read in five
/// places is one shift.
///
/// A source (a constant, an iota) is kept each time it is written, as are values that are recomputed from sources
/// alone. Each copy gets the sharding of its user. One shared source would tie the shardings of its users together
/// in completion. Users of equal sources are equal nevertheless. Inputs, loops, conditionals and carried values are
/// never equal.
class equal_nodes {
 public:
  /// `homes`: by node, the region that contains it.
  constexpr equal_nodes(const graph& g, const vec<int>& homes) : graph_(g), homes_(homes), folded_(g) {
    const auto count = g.nodes.size();
    taken_.resize(count, 0);
    meaning_.resize(count, 0);
    light_.resize(count, 0);
    hashes_.resize(count, 0);
    std::size_t size = 16;
    while (size < 2 * count) size *= 2;
    table_.resize(size, -1);
    for (int i = 0; i < static_cast<int>(count); i += nodes_[i].results) look_at(i);
  }
  /// Returns the node that replaces node `i`; `i` itself if no earlier node is equal.
  [[nodiscard]] constexpr int operator[](int i) const { return taken_.data()[i]; }
  /// Returns the numbers that are known without running the program.
  [[nodiscard]] constexpr const folded_nodes& folded() const { return folded_; }

 private:
  constexpr void look_at(int i) {
    const node& n = nodes_[i];
    for (int r = 0; r < n.results; ++r) taken_[i + r] = meaning_[i + r] = i + r;
    folded_.look_at(i);
    if (const int same = folded_.operand_of(i); same >= 0) {
      taken_[i] = taken_[same];
      meaning_[i] = meaning_[same];
      light_[i] = light_[same];
      return;
    }
    const auto& facts = facts_of(n.op);
    if (facts.made == origin::given || facts.made == origin::region || facts.made == origin::result) return;
    light_[i] = facts.made == origin::source || folded_.is_number(i) || (facts.is_made_again(n) && has_light_operands(n)) ? 1 : 0;
    hashes_[i] = hash_of(n);
    const std::size_t mask = table_.size() - 1;
    for (std::size_t place = static_cast<std::size_t>(hashes_[i]) & mask;; place = (place + 1) & mask) {
      const int other = table_[place];
      if (other < 0) {
        table_[place] = i;
        return;
      }
      if (hashes_[other] != hashes_[i] || !is_equal(nodes_[other], n)) continue;
      if (light_[i] == 0 && !is_visible_from(homes_.data()[i], homes_.data()[other])) continue;
      for (int r = 0; r < n.results; ++r) {
        meaning_[i + r] = other + r;
        if (light_[i] == 0) taken_[i + r] = other + r;
      }
      return;
    }
  }
  [[nodiscard]] constexpr bool has_light_operands(const node& n) const {
    for (const int o : n.operands)
      if (light_[o] == 0) return false;
    return true;
  }
  /// Returns true if a node in `home` can be read in `region`: `home` is `region` or surrounds it.
  [[nodiscard]] constexpr bool is_visible_from(int region, int home) const {
    while (region != home && region >= 0) region = nodes_[region].region;
    return region == home;
  }

  [[nodiscard]] constexpr std::uint64_t hash_of(const node& n) const {
    std::uint64_t h = n.op.id * 31 + static_cast<std::uint64_t>(n.type);
    const auto mix = [&](std::int64_t x) { h = (h ^ static_cast<std::uint64_t>(x)) * 0x9e3779b97f4a7c15U, h ^= h >> 29U; };
    for (const int o : n.operands) mix(meaning_[o]);
    for (const auto a : n.attributes) mix(a);
    for (const auto e : n.shape) mix(e);
    mix(n.integer);
    mix(std::bit_cast<std::int64_t>(n.real));
    return h;
  }
  [[nodiscard]] constexpr bool is_equal(const node& a, const node& b) const {
    if (a.op != b.op || a.type != b.type || a.results != b.results || a.operands.count != b.operands.count ||
        !(a.shape == b.shape) || !(a.attributes == b.attributes))
      return false;
    for (int k = 0; k < a.operands.count; ++k)
      if (meaning_[a.operands[k]] != meaning_[b.operands[k]]) return false;
    if (a.reduced_by != b.reduced_by || a.integer != b.integer ||
        std::bit_cast<std::int64_t>(a.real) != std::bit_cast<std::int64_t>(b.real) || a.function != b.function ||
        a.local != b.local)
      return false;
    return a.local_axes == b.local_axes && a.hidden_axes == b.hidden_axes && a.annotation.closed == b.annotation.closed &&
           a.forbid_reshard == b.forbid_reshard && a.allow_replication == b.allow_replication &&
           a.gather_limit == b.gather_limit && a.keep_split == b.keep_split && a.keep_partial == b.keep_partial &&
           a.exchange_axes == b.exchange_axes && a.annotated == b.annotated && (!a.annotated || a.annotation == b.annotation);
  }

  const graph& graph_;
  const vec<int>& homes_;
  folded_nodes folded_;
  const node* nodes_ = graph_.nodes.data();
  vec<int> taken_;             // by node
  vec<int> meaning_;           // by node: the first node with an equal value, in any region
  vec<std::uint8_t> light_;    // by node: computed wherever it is read
  vec<std::uint64_t> hashes_;  // by node
  vec<int> table_;             // nodes by hash, open addressing; -1: free
};

}  // namespace gspmd::detail
