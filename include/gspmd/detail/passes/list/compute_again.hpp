// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/collective_time.hpp"
#include "gspmd/detail/ops/barrier.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/ops/transpose.hpp"
#include "gspmd/detail/passes/list/make_plan.hpp"
#include "gspmd/detail/support/precompiled.hpp"

/// Recomputes values, or gathers them again, if a plan needs more memory than a device may hold.
namespace gspmd::detail {

/// Finds values of a plan that stay in memory without being read while the memory use is at its peak. Rewrites the
/// program so that later users compute these values again:
///
///   g = gather(x); y = f(g); ...the peak...; z = h(g)       g2 = gather(barrier(x)), made where h reads it
///   r = relu(x);   y = f(r); ...the peak...; z = h(r)       r2 = relu(barrier(x))
///
/// Input: a graph and its plan. Result: another graph, or nothing if no value helps.
///
/// 1. If a value was gathered, its shards are kept. If a transpose or a chain of elementwise operators makes it, the
///    operands of the chain are kept. Inputs, and operands that are in memory anyway, cost nothing. If an operand is
///    neither, the chain continues through it, or the operand is kept if it is smaller than the value.
/// 2. While some step has too much in memory, the value across that step with the least time per byte is evicted.
/// 3. The new program is planned, and examined again if it still does not fit.
///
/// Evicts only values of the program itself. Loops, conditionals and local views stay unchanged.
class value_saver {
 public:
  value_saver(const graph& g, const plan& p, const mesh_shape& mesh, const plan_request& request)
      : g_(g), p_(p), view_(p), mesh_(mesh), request_(request), values_(p.values.size()), readers_(g.nodes.size()) {}

  /// Returns the program that needs at most `most_in_arena` bytes in the arena, by an estimate. Returns nothing if no
  /// eviction helps. If `most_in_arena` is -1, evicts every value that may be evicted.
  [[gnu::cold]] std::optional<graph> run(std::int64_t most_in_arena) {
    find_uses();
    find_gaps();
    const auto peak = live_.empty() ? 0 : *std::max_element(live_.begin(), live_.end());
    if (p_.arena_bytes > peak)  // the gaps between the values
      most_in_arena = static_cast<std::int64_t>(static_cast<double>(most_in_arena) * static_cast<double>(peak) /
                                                static_cast<double>(p_.arena_bytes));
    if (most_in_arena < 0)
      for (const auto& w : ways_)
        if (may_give_up(w)) give_up(w);
    while (!live_.empty()) {
      const auto at = std::max_element(live_.begin(), live_.end());
      if (*at <= most_in_arena) break;
      const int step = static_cast<int>(at - live_.begin());
      const way* best = nullptr;
      for (const auto& w : ways_)
        if (w.after < step && step < w.before && may_give_up(w) && (best == nullptr || w.price() < best->price())) best = &w;
      if (best == nullptr) break;
      give_up(*best);
    }
    if (given_up_.empty()) return std::nullopt;
    return rewritten();
  }

 private:
  static constexpr int longest_chain = 16;
  static constexpr int shortest_gap = 2;  // steps

  struct use_of_value {
    int first = -1, last = -1;  // steps
    std::vector<int> steps;     // steps that read it
    bool is_kept = false;       // an evicted value is computed from it
    bool is_given_up = false;
  };
  /// A value between two steps that touch it, and the way to compute it again.
  struct way {
    int value = 0, node = 0;
    int after = 0, before = 0;
    std::vector<int> readers;   // nodes that read it at `before` or later
    std::vector<int> chain;     // nodes, operands first; empty: it is gathered again from its shards
    std::vector<int> barriers;  // nodes that are read to compute it again
    std::vector<int> leaves;    // the values of these nodes that are not inputs
    std::int64_t saved = 0, time = 0;
    [[nodiscard]] double price() const { return static_cast<double>(time + 1) / static_cast<double>(saved); }
  };

  [[nodiscard]] const node& at(int i) const { return g_.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] const planned_value& value(int v) const { return p_.values[v]; }
  [[nodiscard]] use_of_value& use(int v) { return values_[static_cast<std::size_t>(v)]; }
  [[nodiscard]] std::int64_t bytes_of_value(int v) const { return elements(value(v).local) * bytes_of(value(v).type); }
  [[nodiscard]] int slot(const table_range& range, int k) const { return p_.slots[range.begin + k]; }
  [[nodiscard]] bool is_in_arena(int v) const {
    return value(v).where.where == memory_place::kind::arena && !value(v).where.takes_turns() && value(v).row_bytes == 0;
  }
  /// Returns the value that the operator of node `i` leaves in memory, or -1.
  [[nodiscard]] int own_value(int i) const {
    const int v = p_.nodes[i].value;
    return v < 0 || value(v).where.where == memory_place::kind::none ? -1 : v;
  }
  [[nodiscard]] bool is_given(int i) const { return facts_of(at(i).op).made == origin::given; }
  [[nodiscard]] bool is_source(int i) const { return facts_of(at(i).op).made == origin::source; }

  // ---- memory in use at each step ----

  void find_uses() {
    const int count = static_cast<int>(p_.steps.size());
    live_.assign(p_.steps.size(), 0);
    int end = -1;  // the end of the outermost body around the step
    for (int i = 0; i < count; ++i) {
      const auto& s = p_.steps[i];
      if (i > end && facts_of(s).role == step_role::loop_begin) body_ = i, end = s.target;
      for (int k = 0; k < s.results.count; ++k) {
        auto& u = use(slot(s.results, k));
        if (u.first < 0) u.first = i;
        if (u.last < i) u.last = i;
      }
      for (int k = 0; k < s.operands.count; ++k) {
        auto& u = use(slot(s.operands, k));
        const int last = i <= end && u.first < body_ ? end : i;
        if (u.last < last) u.last = last;
        if (u.steps.empty() || u.steps.back() != i) u.steps.push_back(i);
      }
    }
    std::vector<std::vector<int>> opened(p_.steps.size()), closed(p_.steps.size());
    for (int v = 0; v < static_cast<int>(values_.size()); ++v) {
      if (!is_in_arena(v) || use(v).first < 0) continue;
      opened[static_cast<std::size_t>(use(v).first)].push_back(v);
      closed[static_cast<std::size_t>(use(v).last)].push_back(v);
    }
    std::map<std::int64_t, std::pair<int, std::int64_t>> places;  // by offset: number of live values, bytes of the largest
    std::int64_t now = 0;
    for (std::size_t i = 0; i < p_.steps.size(); ++i) {
      for (const int v : opened[i]) {
        auto& [values, bytes] = places[value(v).where.at];
        const auto own = bytes_of_value(v);
        ++values;
        if (own > bytes) now += own - bytes, bytes = own;
      }
      live_[i] = now + facts_of(p_.steps[static_cast<int>(i)]).scratch_bytes(view_, p_.steps[static_cast<int>(i)]);
      for (const int v : closed[i]) {
        const auto place = places.find(value(v).where.at);
        if (--place->second.first == 0) now -= place->second.second, places.erase(place);
      }
    }
    for (int i = 0; i < static_cast<int>(g_.nodes.size()); ++i)
      for (const int o : at(i).operands)
        if (auto& of = readers_[static_cast<std::size_t>(o)]; of.empty() || of.back() != i) of.push_back(i);
  }

  // ---- values that can be recomputed ----

  [[nodiscard]] bool is_of_program(int i) const {
    const node& n = at(i);
    const auto& facts = facts_of(n.op);
    return n.region < 0 && n.local_axes == 0 && n.hidden_axes == 0 && n.results == 1 && facts.made != origin::result &&
           facts.made != origin::region && facts.runs != realisation::region;
  }
  void find_gaps() {
    const auto least = std::max<std::int64_t>(request_.most_memory / 16384, 64);
    for (int v = 0; v < static_cast<int>(values_.size()); ++v) {
      const auto& u = use(v);
      if (!is_in_arena(v) || u.first < 0 || u.steps.empty() || bytes_of_value(v) < least || !is_of_program(value(v).node))
        continue;
      for (std::size_t k = 0; k < u.steps.size(); ++k) {
        const int after = k == 0 ? u.first : u.steps[k - 1];
        if (u.steps[k] - after >= shortest_gap) add_way(v, after, k);
      }
    }
  }
  /// Lists the nodes that read value `v` from its use `k` on. Returns false if they cannot read another value instead.
  [[nodiscard]] bool find_readers(way& w, std::size_t k) {
    const auto& steps = use(w.value).steps;
    for (; k < steps.size(); ++k) {
      bool is_found = false;
      for (const int r : readers_[static_cast<std::size_t>(w.node)]) {
        const int made = p_.nodes[r].value;
        if (p_.steps[steps[k]].node != r && (made < 0 || value(made).step != steps[k])) continue;
        if (!is_of_program(r)) return false;
        is_found = true;
        if (std::find(w.readers.begin(), w.readers.end(), r) == w.readers.end()) w.readers.push_back(r);
      }
      if (!is_found) return false;
    }
    return true;
  }
  void add_way(int v, int after, std::size_t k) {
    way w;
    w.value = v;
    w.node = value(v).node;
    w.after = after;
    w.before = use(v).steps[k];
    const auto& maker = p_.steps[use(v).first];
    w.saved = bytes_of_value(v);
    const bool is_gathered = communicates(maker);
    if (is_gathered) {
      if (maker.collective != collective_kind::all_gather || maker.operands.count != 1 || maker.times != 1) return;
      w.time = time_of_collective(mesh_, request_.network, maker.collective, maker.axes, maker.bytes_sent);
    } else if (own_value(w.node) != v || is_given(w.node)) {
      return;
    }
    if (!find_readers(w, k) || w.readers.empty()) return;
    const int home = is_gathered ? slot(maker.operands, 0) : -1;
    if (way chain = w; !is_given(w.node) && add_to_chain(chain, w.node, is_gathered ? home : v)) keep(std::move(chain));
    if (!is_gathered || (!is_given(w.node) && (!is_in_arena(home) || own_value(w.node) != home))) return;
    w.barriers.push_back(w.node);
    if (!is_given(w.node)) {
      w.leaves.push_back(home);
      if (use(home).last < w.before) w.saved -= bytes_of_value(home);
    }
    keep(std::move(w));
  }
  void keep(way w) {
    if (w.saved > bytes_of_value(w.value) / 4) ways_.push_back(std::move(w));
  }
  /// Adds node `i`, which has a value sharded like `v`, to the chain, and the operands to compute it from. Returns
  /// false if this is impossible or not cheap.
  [[nodiscard]] bool add_to_chain(way& w, int i, int v) {
    const auto& facts = facts_of(at(i).op);
    const bool is_in_loop = facts.runs == realisation::loop || facts.runs == realisation::strides;
    const bool is_copy = is_transpose(at(i));
    const bool is_cheap = (is_in_loop && facts.made == origin::shards) || facts.made == origin::renamed || is_copy;
    if (!is_cheap || !is_of_program(i) || at(i).operands.count == 0 || memory_saved::is_said(at(i))) return false;
    if (static_cast<int>(w.chain.size()) == longest_chain) return false;
    for (const int o : at(i).operands) {
      if (is_source(o) || std::find(w.barriers.begin(), w.barriers.end(), o) != w.barriers.end()) continue;
      if (std::find(w.chain.begin(), w.chain.end(), o) != w.chain.end()) continue;
      const int own = own_value(o);
      const bool lies_alike = own >= 0 && (value(own).global.count != value(v).global.count ||
                                           value(own).layout == (is_copy ? before_transpose(i, v) : value(v).layout));
      if (!is_of_program(o)) return false;
      if (is_given(o) ? lies_alike : lies_alike && is_in_arena(own) && use(own).last >= w.before) {
        add_leaf(w, o, own);
        continue;
      }
      way longer = w;
      if (!is_copy && add_to_chain(longer, o, v)) {
        w = std::move(longer);
        continue;
      }
      if (!lies_alike || !is_in_arena(own)) return false;
      w.saved -= bytes_of_value(own);
      add_leaf(w, o, own);
    }
    w.chain.push_back(i);
    w.time = add_times(w.time, request_.network.time_of({elements(value(v).local), 0}));
    if (i == w.node) w.time = add_times(w.time, request_.network.time_of({0, bytes_of_value(v)}));
    return true;
  }
  /// Returns the sharding of the operand of transpose `i` if the result is sharded like value `v`.
  [[nodiscard]] sharding before_transpose(int i, int v) const {
    sharding before = value(v).layout;
    before.splits.clear();
    for (const auto& use : value(v).layout.splits) before.add_split(use.axis, attribute_dim(at(i), use.dim));
    return before;
  }
  void add_leaf(way& w, int node, int v) {
    w.barriers.push_back(node);
    if (is_in_arena(v)) w.leaves.push_back(v);
    w.time = add_times(w.time, request_.network.time_of({0, bytes_of_value(v)}));
  }

  // ---- evictions ----

  [[nodiscard]] bool may_give_up(const way& w) {
    if (use(w.value).is_given_up || use(w.value).is_kept) return false;
    for (const int leaf : w.leaves)
      if (use(leaf).is_given_up) return false;
    return true;
  }
  void give_up(const way& w) {
    use(w.value).is_given_up = true;
    for (int i = w.after + 1; i < w.before; ++i) live_[static_cast<std::size_t>(i)] -= bytes_of_value(w.value);
    for (const int leaf : w.leaves) {
      use(leaf).is_kept = true;
      for (int i = use(leaf).last + 1; i <= w.before; ++i) live_[static_cast<std::size_t>(i)] += bytes_of_value(leaf);
      use(leaf).last = std::max(use(leaf).last, w.before);
    }
    given_up_.push_back(&w);
  }

  // ---- the program without the evicted values ----

  [[nodiscard]] graph rewritten() const {
    graph out = g_;
    out.nodes.clear();
    std::vector<int> number(g_.nodes.size(), -1);
    std::vector<std::vector<const way*>> before(g_.nodes.size());
    for (const way* w : given_up_)
      before[static_cast<std::size_t>(*std::min_element(w->readers.begin(), w->readers.end()))].push_back(w);
    std::map<std::pair<int, int>, int> instead;  // by user and operand: the value to read
    const auto next = [&] { return static_cast<int>(out.nodes.size()); };
    for (int i = 0; i < static_cast<int>(g_.nodes.size()); ++i) {
      for (const way* w : before[static_cast<std::size_t>(i)]) {
        std::map<int, int> again;
        for (const int o : w->barriers) {
          node n = planned_barrier(g_, o, at(w->node).at);
          n.scope = at(i).scope;
          n.in_gradient = at(i).in_gradient;
          n.operands[0] = number[static_cast<std::size_t>(o)];
          if (o == w->barriers.front()) memory_saved{w->saved, w->time}.say(n);
          again[o] = next();
          out.nodes.push_back(n);
        }
        for (const int c : w->chain) {
          node n = at(c);
          n.tag = -1;
          for (auto& o : n.operands) {
            const auto found = again.find(o);
            o = found != again.end() ? found->second : number[static_cast<std::size_t>(o)];
          }
          again[c] = next();
          out.nodes.push_back(n);
        }
        for (const int r : w->readers) instead[{r, w->node}] = again.at(w->node);
      }
      node n = at(i);
      for (auto& o : n.operands) {
        const auto found = instead.find({i, o});
        o = found != instead.end() ? found->second : number[static_cast<std::size_t>(o)];
      }
      if (n.region >= 0) n.region = number[static_cast<std::size_t>(n.region)];
      number[static_cast<std::size_t>(i)] = next();
      out.nodes.push_back(n);
    }
    for (auto* const list : {&out.inputs, &out.outputs})
      for (auto& i : *list) i = number[static_cast<std::size_t>(i)];
    for (auto& t : out.also_tagged) t.node = number[static_cast<std::size_t>(t.node)];
    return out;
  }

  const graph& g_;
  const plan& p_;
  plan_view view_;
  const mesh_shape& mesh_;
  const plan_request& request_;
  std::vector<use_of_value> values_;
  std::vector<std::vector<int>> readers_;  // by node
  std::vector<std::int64_t> live_;         // by step: bytes
  std::vector<way> ways_;
  std::vector<const way*> given_up_;
  int body_ = -1;
};

/// Returns the time of a plan if its operators and collectives run one after the other.
[[gnu::cold]] inline std::int64_t time_of_plan(const plan& p, const mesh_shape& mesh, const plan_request& request) {
  std::int64_t time = 0;
  for (const auto& n : p.nodes) time = add_times(time, request.network.time_of(n.work));
  for (const auto& s : p.steps)
    if (communicates(s))
      time =
          add_times(time, multiply_time(time_of_collective(mesh, request.network, s.collective, s.axes, s.bytes_sent), s.times));
  return time;
}

/// Returns one plan, at the level of saving in `request`.
template <class = once>
plan plan_once(const graph& g, const mesh_shape& mesh, const plan_request& request);

/// Replaces `best` by a plan that computes values again and fits into the memory of a device. If `best` fits too, it is
/// replaced only if the new plan takes less time. If `best` does not fit and neither does the new plan, inputs are
/// split too (level 2). `program`: the program of the new plan.
[[gnu::cold]] inline void compute_again(plan& best, const graph& g, const mesh_shape& mesh, plan_request request,
                                        std::optional<graph>& program) {
  constexpr int most_rounds = 6;
  const auto most = request.most_memory;
  const bool fits = best.broken == mistake::none;
  if (g.is_explicit || most <= 0 || (fits ? best.saving == 0 : best.broken != mistake::memory)) return;
  std::int64_t least = fits ? 0 : peak_bytes(plan_view(best));
  for (const int level : {0, 2}) {
    request.saving = level;
    std::optional<graph> now;
    plan made = plan_once(g, mesh, request);
    for (int round = 0; made.broken == mistake::none; ++round) {
      const auto held = peak_bytes(plan_view(made));
      if (held <= most) {
        if (fits && time_of_plan(best, mesh, request) <= time_of_plan(made, mesh, request)) return;
        best = std::move(made);
        program = std::move(now);
        return;
      }
      if (held < least) {
        least = held;
        best.error = too_large(least, most);
      }
      const auto in_arena = made.arena_bytes - (held - most);
      if (in_arena <= 0 || round == most_rounds) break;
      auto next = value_saver(now ? *now : g, made, mesh, request).run(in_arena - in_arena / 32 * round);
      if (!next) break;
      now = std::move(next);
      made = plan_once(*now, mesh, request);
    }
    if (fits) return;
  }
}

}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/passes/list/compute_again.ipp"
#endif
