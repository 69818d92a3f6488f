// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "gspmd/detail/ir/collective_time.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/passes/complete/complete.hpp"
#include "gspmd/detail/support/tuning.hpp"
#include "gspmd/detail/support/vec.hpp"

/// Several sweeps of a stencil on one exchange (ghost zones, wide halos). A loop whose user asked for it (ghost_sweeps), of `trips` sweeps,
/// k at a time, becomes
///
///   for each of trips / k rounds
///     b = ghost_blocks(u)        the shard with k times the radius around it: one exchange for each split dim
///     k times: b = sweep(b)      on all of the block; at its ends another radius is wrong after each sweep, and is never read by what is right
///     u = b without its ghosts
///   and a round of what is left
///
/// Each device computes what its neighbours compute too, in the same order of the same numbers: results are those of the plain loop, bit
/// for bit. The sharding is the one that the plain loop has, which is completed first.
namespace gspmd::detail {

class ghost_zones {
 public:
  static constexpr bool are_wished(const graph& g) {
    for (const auto& n : g.nodes)
      if (ghost_sweeps(n) != 1) return true;
    return false;
  }

  constexpr explicit ghost_zones(const graph& g) : old_(g), mesh_(g.mesh->shape), number_(g.nodes.size(), -1) {
    completion completed(g, mesh_);
    completed.run();
    for (const auto& s : completed.shardings) completed_.push_back(s);
    result.mesh = g.mesh;
    result.has_regions = g.has_regions;
    result.allow_replication = g.allow_replication;
    result.largest_bytes = g.largest_bytes;
    result.find_types = g.find_types;
    result.composed = g.composed;
    for (int i = 0; i < static_cast<int>(g.nodes.size()) && !result.failed();) i = is_widened(i) ? add_rounds() : copy(i);
    if (result.failed()) return;
    for (const int i : g.inputs) result.inputs.push_back(number_[i]);
    for (const int o : g.outputs) result.outputs.push_back(number_[o]);
    for (const auto& also : g.also_tagged)
      if (number_[also.node] >= 0) result.also_tagged.push_back({also.tag, number_[also.node]});
  }

  graph result;

 private:
  using list = vec<int>;
  /// Which indices around its own an element reads.
  struct reach {
    inline_vec<index_range, max_mapped_dims> along;  // by split dim; from `begin` to `end`, both included
  };
  /// One loop, as it was written.
  struct sweep {
    int loop = -1;
    std::int64_t at_once = 1;
    list results, body;        // loop_results; the nodes of the body
    vec<std::uint8_t> varies;  // by node: what is carried or counted reaches it
    extents shape;             // of all fields
    sharding layout;           // of all fields
    vec<ghost_blocks> dims;    // split ones, with how far a sweep reads to each side
    list outside;              // fields that stay the same
  };
  /// A round, while it is added.
  struct round {
    std::int64_t sweeps = 0;
    vec<ghost_blocks> blocks;
    extents shape;
    vec<int> ready;  // by node: what stands for it in blocks, outside of the loop of sweeps
  };

  [[nodiscard]] constexpr const node& old(int i) const { return old_.nodes[i]; }
  constexpr void refuse(const node& n, const text& why) {
    result.fail(n.at, name_of(n.op), mistake::region,
                text("stands in a loop of several sweeps on one exchange, ghost, and ")
                    << why << "; compute it outside of the loop, or write the loop without ghost");
  }

  constexpr int copy(int i) {
    node n = old(i);
    for (auto& o : n.operands) o = number_[o];
    n.region = n.region < 0 ? -1 : number_[n.region];
    if (n.op == opcode::loop && !is_while(n)) n.attributes.clear();
    number_[i] = static_cast<int>(result.nodes.size());
    result.nodes.push_back(n);
    return i + 1;
  }

  // ---- what is written ----

  /// Whether a loop begins at node i that is widened; finds what is to be known of it.
  constexpr bool is_widened(int i) {
    const node& start = old(i);
    if (ghost_sweeps(start) == 1) return false;
    now_ = {};
    now_.loop = i;
    now_.varies.resize(old_.nodes.size(), 0);
    now_.varies[i] = 1;
    for (int k = i + 1; k < static_cast<int>(old_.nodes.size()); ++k) {
      if (old(k).op == opcode::loop_result && old(old(k).operands[0]).region == i) now_.results.push_back(k);
      else if (old(k).region == i) now_.body.push_back(k);
      else if (!now_.results.empty()) break;
    }
    find_fields();
    find_what_varies();
    if (result.failed()) return true;
    find_reach();
    if (now_.dims.empty()) return false;
    const auto wished = ghost_sweeps(start);
    now_.at_once = wished < 0 ? fastest() : wished < start.integer ? wished : start.integer;
    return now_.at_once > 1;
  }
  constexpr void find_fields() {
    bool is_first = true;
    for (const int r : now_.results) {
      const int c = old(r).operands[0];
      if (old(c).shape.count == 0) continue;
      if (is_first) {
        now_.shape = old(c).shape;
        now_.layout = completed_[c];
      } else if (!(old(c).shape == now_.shape)) {
        refuse(old(now_.loop), text("carries fields of ") << shape_text(now_.shape) << " and " << shape_text(old(c).shape)
                                                          << ", where all need one shape");
      } else if (!same_layout(completed_[c], now_.layout)) {
        refuse(old(now_.loop), text("carries fields that are sharded ")
                                   << sharding_text(*old_.mesh, now_.layout, now_.shape.count) << " and "
                                   << sharding_text(*old_.mesh, completed_[c], now_.shape.count)
                                   << ", where all need one sharding");
      }
      is_first = false;
    }
  }
  [[nodiscard]] constexpr bool is_shift(const node& n) const {
    return n.operands.count == 1 && facts_of(n.op).movements(n) == 1 && old(n.operands[0]).shape == n.shape &&
           moves_all_alike(map_of(n));
  }
  [[nodiscard]] constexpr index_map map_of(const node& n) const { return facts_of(n.op).map(old_, n, 0); }
  [[nodiscard]] static constexpr bool is_computed_in_loops(const node& n) {
    return facts_of(n.op).made == origin::shards && facts_of(n.op).runs == realisation::loop;
  }
  /// The identity: a wish for a sharding, or a reshape to the shape that it has.
  [[nodiscard]] constexpr bool is_renamed(const node& n) const {
    return facts_of(n.op).made == origin::renamed || (may_be_moved(old_, n) && old(n.operands[0]).shape == n.shape);
  }
  [[nodiscard]] static constexpr bool is_source(const node& n) { return facts_of(n.op).made == origin::source; }
  [[nodiscard]] static constexpr bool is_stretched(const node& n) {
    return facts_of(n.op).runs == realisation::strides && !is_source(n);
  }

  constexpr void find_what_varies() {
    for (const int i : now_.body) {
      const node& n = old(i);
      if (is_region(n.op) && n.op != opcode::carry) return refuse(n, "begins a body of its own");
      bool any = n.op == opcode::carry;
      bool all_scalars = true;
      for (int k = 0; k < n.operands.count && n.op != opcode::carry; ++k) {
        any = any || now_.varies[n.operands[k]] != 0;
        all_scalars = all_scalars && old(n.operands[k]).shape.count == 0;
      }
      now_.varies[i] = any ? 1 : 0;
      if (!any || n.op == opcode::carry) continue;
      if (n.shape.count == 0) {
        if (!is_computed_in_loops(n) || !all_scalars) return refuse(n, "what it computes of a field is no field");
        continue;
      }
      if (!(n.shape == now_.shape))
        return refuse(n, text("is ") << shape_text(n.shape) << " where the fields are " << shape_text(now_.shape));
      if (n.annotated && !same_tiles(mesh_, n.shape, completed_[i], now_.layout))
        return refuse(n, text("is sharded ")
                             << sharding_text(*old_.mesh, completed_[i], n.shape.count) << " where the fields are sharded "
                             << sharding_text(*old_.mesh, now_.layout, n.shape.count));
      if (!is_shift(n) && !is_computed_in_loops(n) && !is_renamed(n) && !(is_stretched(n) && all_scalars))
        return refuse(n, "is neither elementwise nor a shift, of which stencils consist");
    }
  }
  /// How far a sweep reads along each split dim.
  constexpr void find_reach() {
    vec<ghost_blocks> split;
    for (int d = 0; d < now_.shape.count; ++d) {
      const auto parts = parts_of(mesh_, now_.layout, d);
      if (parts > 1 && now_.shape[d] > 0) split.push_back({d, now_.shape[d], parts, 0, 0});
    }
    vec<index_range> reads(split.size() * old_.nodes.size(), index_range{0, 0});
    const auto of = [&](int i) { return reads.data() + split.size() * static_cast<std::size_t>(i); };
    const auto join = [](index_range& a, index_range b) {
      if (b.begin < a.begin) a.begin = b.begin;
      if (b.end > a.end) a.end = b.end;
    };
    for (const int i : now_.body) {
      const node& n = old(i);
      if (n.op == opcode::carry || now_.varies[i] == 0) continue;
      for (int k = 0; k < facts_of(n.op).reads(n); ++k)
        for (std::size_t b = 0; b < split.size(); ++b) join(of(i)[b], of(n.operands[k])[b]);
      if (!is_shift(n)) continue;
      const auto map = map_of(n);
      for (std::size_t b = 0; b < split.size(); ++b) {
        auto& own = of(i)[b];
        const auto& along = map.dims[0];
        if (along.dim != split[b].dim) continue;
        const auto offset = offset_of(along, split[b].extent);
        if (along.beyond == continuation::round && offset != 0) split[b].beyond = continuation::round;
        index_range by{offset < 0 ? offset : 0, offset > 0 ? offset : 0};
        if (along.beyond != continuation::none && along.beyond != continuation::round) {
          const auto outside = block_reads::beyond_ends(split[b].extent, offset);
          for (auto e = outside.begin; e < outside.end; ++e) {
            const auto to = element_at(along.beyond, split[b].extent, e + offset) - e;
            join(by, {to, to});
          }
        }
        own = {own.begin + by.begin, own.end + by.end};
      }
    }
    for (const int r : now_.results)
      for (std::size_t b = 0; b < split.size(); ++b) {
        const auto& read = of(old(r).operands[1])[b];
        if (-read.begin > split[b].low) split[b].low = -read.begin;
        if (read.end > split[b].high) split[b].high = read.end;
      }
    for (const auto& b : split)
      if (b.low + b.high > 0) now_.dims.push_back(b);
  }

  // ---- how many sweeps ----

  [[nodiscard]] constexpr round round_of(std::int64_t sweeps) const {
    round made;
    made.sweeps = sweeps;
    for (auto b : now_.dims) {
      b.low = saturating_multiply(b.low, sweeps);
      b.high = saturating_multiply(b.high, sweeps);
      made.blocks.push_back(b);
    }
    std::size_t next = 0;
    for (int d = 0; d < now_.shape.count; ++d) {
      const bool is_blocked = next < made.blocks.size() && made.blocks[next].dim == d;
      if (is_blocked) made.shape.push_back(made.blocks[next].parts);
      made.shape.push_back(is_blocked ? made.blocks[next++].width() : now_.shape[d]);
    }
    return made;
  }
  /// What a round takes: its exchanges, and its sweeps on all of the blocks.
  [[nodiscard]] constexpr std::int64_t time_of(std::int64_t sweeps) const {
    const round made = round_of(sweeps);
    const extents shard = local_extents(mesh_, now_.shape, now_.layout);
    std::int64_t fields = 0, flops = 0, block = 1, exchanged = 0;
    for (const int i : now_.body) {
      if (old(i).shape.count == 0) continue;
      fields += old(i).op == opcode::carry ? bytes_of(old(i).type) : 0;
      flops += now_.varies[i] != 0 && is_computed_in_loops(old(i)) ? 1 : 0;
    }
    std::size_t next = 0;
    for (int d = 0; d < shard.count; ++d) {
      const bool is_blocked = next < made.blocks.size() && made.blocks[next].dim == d;
      block = saturating_multiply(block, is_blocked ? made.blocks[next++].width() : shard[d]);
    }
    auto around = elements(shard);
    for (const auto& b : made.blocks) {
      const auto line = shard[b.dim] > 0 ? around / shard[b.dim] : 0;
      const auto bytes = saturating_multiply(saturating_multiply(line, b.low + b.high), fields);
      exchanged =
          add_times(exchanged, time_of_collective(mesh_, collective_kind::collective_permute, now_.layout.axes_of(b.dim), bytes));
      around = saturating_multiply(line, b.width());
    }
    const auto computed = mesh_.network.time_of_flops(saturating_multiply(block, flops));
    return add_times(exchanged, multiply_time(computed, sweeps));
  }
  [[nodiscard]] constexpr std::int64_t fastest() const {
    const auto trips = old(now_.loop).integer;
    std::int64_t best = 1, least = most_picoseconds;
    for (std::int64_t k = 1; k <= trips && k <= most_ghost_sweeps; ++k) {
      auto time = multiply_time(time_of(k), trips / k);
      if (trips % k > 0) time = add_times(time, time_of(trips % k));
      if (time >= least) continue;
      best = k;
      least = time;
    }
    return best;
  }

  // ---- what is added ----

  constexpr int add_rounds() {
    const node& start = old(now_.loop);
    if (result.failed()) return static_cast<int>(old_.nodes.size());
    const auto rounds = start.integer / now_.at_once, left = start.integer % now_.at_once;
    result.open_region = start.region < 0 ? -1 : number_[start.region];
    const int home = result.open_region;
    for (const int i : now_.body)  // what does not change is computed before
      if (now_.varies[i] == 0) {
        copy(i);
        result.nodes[static_cast<std::size_t>(number_[i])].region = home;
      }
    list carried;
    for (const int r : now_.results) carried.push_back(number_[old(old(r).operands[0]).operands[0]]);
    round whole = round_of(now_.at_once);
    find_ready(whole);
    if (rounds == 1) {
      carried = add_round(whole, carried, -1, 0);
    } else {
      const int loop = open_loop(result, rounds, start.at);
      list held;
      for (const int c : carried) held.push_back(add_carry(result, c, start.at));
      const int first = (term(result, loop, start.at) * term(result, number(now_.at_once), start.at)).id();
      const list next = add_round(whole, held, first, 0);
      for (std::size_t k = 0; k < carried.size(); ++k) carried[k] = add_loop_result(result, held[k], next[k], start.at);
      result.open_region = home;
    }
    if (left > 0) {
      round rest = round_of(left);
      find_ready(rest);
      carried = add_round(rest, carried, -1, start.integer - left);
    }
    for (std::size_t k = 0; k < carried.size(); ++k) number_[now_.results[k]] = carried[k];
    result.open_region = -1;
    int after = now_.results.empty() ? now_.loop : now_.results.back();
    return after + 1;
  }
  constexpr int number(std::int64_t n) { return add_constant(result, dtype::s64, {}, 0, n, old(now_.loop).at); }

  /// The sharding of a field of which the first `done` dims are in blocks.
  [[nodiscard]] constexpr annotation layout_of(const round& r, std::size_t done) const {
    sharding s = now_.layout;
    for (auto& use : s.splits) {
      int more = 0;
      for (std::size_t b = 0; b < done; ++b) more += r.blocks[b].dim < use.dim ? 1 : 0;
      use.dim = static_cast<std::int8_t>(use.dim + more);
    }
    return s;
  }
  constexpr int in_blocks(const round& r, int x, location at) {
    x = add_reshard(result, x, layout_of(r, 0), at);
    for (std::size_t b = 0; b < r.blocks.size(); ++b) {
      ghost_blocks own = r.blocks[b];
      own.dim += static_cast<int>(b);
      x = add_reshard(result, add_ghost_blocks(result, x, own, at), layout_of(r, b + 1), at);
    }
    return x;
  }
  /// What of the outside is read by sweeps, in blocks.
  constexpr void find_ready(round& r) {
    r.ready.resize(old_.nodes.size(), -1);
    for (const int i : now_.body) {
      const node& n = old(i);
      if (now_.varies[i] == 0 || n.op == opcode::carry || n.shape.count == 0) continue;
      for (int k = 0; k < facts_of(n.op).reads(n); ++k) find_ready(r, n.operands[k]);
    }
    for (const int res : now_.results) find_ready(r, old(res).operands[1]);
  }
  constexpr void find_ready(round& r, int i) {
    const node& n = old(i);
    if (now_.varies[i] != 0 || n.shape.count == 0 || r.ready[i] >= 0) return;
    if (is_light(i)) {
      if (!is_source(n) && !is_stretched(n))
        for (const int o : n.operands) find_ready(r, o);
      return;
    }
    r.ready[i] = in_blocks(r, number_[i], n.at);
  }
  /// Whether a field that does not change is rather made in blocks than cut into them: of indices and numbers, and of what has no extent
  /// along a dim in blocks. Outside of the loop it may be much that makes it.
  [[nodiscard]] constexpr bool is_light(int i) const {
    const node& n = old(i);
    if (is_source(n)) return true;
    if (is_stretched(n)) {
      const auto along = facts_of(n.op).lies_along(old_, n);
      for (const auto d : along)
        for (const auto& b : now_.dims)
          if (d == b.dim) return false;
      return true;
    }
    if (n.region != now_.loop || !is_computed_in_loops(n)) return false;
    for (const int o : n.operands)
      if (!is_light(o)) return false;
    return true;
  }

  /// Adds a round on what is carried, the first sweep of which is number first + `more`, `first` a value or -1; gives what it leaves.
  constexpr list add_round(const round& r, const list& carried, int first, std::int64_t more) {
    const node& start = old(now_.loop);
    const int home = result.open_region;
    const list begun = [&] {
      list made;
      for (std::size_t k = 0; k < carried.size(); ++k)
        made.push_back(old(now_.results[k]).shape.count == 0 ? carried[k] : in_blocks(r, carried[k], start.at));
      return made;
    }();
    const int loop = open_loop(result, r.sweeps, start.at);
    made_ = r.ready;
    list held;
    for (std::size_t k = 0; k < carried.size(); ++k) {
      held.push_back(add_carry(result, begun[k], start.at));
      made_[old(now_.results[k]).operands[0]] = held[k];
    }
    made_[now_.loop] = (term(result, loop, start.at) + term(result, first < 0 ? number(more) : first, start.at)).id();
    block_reads reads(result, std::span<const ghost_blocks>(r.blocks.data(), r.blocks.size()), r.shape);
    for (const int i : now_.body)
      if (now_.varies[i] != 0 && old(i).op != opcode::carry) add_in_blocks(r, reads, i);
    list next;
    for (const int res : now_.results) next.push_back(in_sweep(r, reads, old(res).operands[1]));
    for (std::size_t k = 0; k < next.size(); ++k) {
      next[k] = add_loop_result(result, held[k], next[k], start.at);
    }
    result.open_region = home;
    for (std::size_t k = 0; k < next.size(); ++k) {
      if (old(now_.results[k]).shape.count == 0) continue;
      const auto blocks = std::span<const ghost_blocks>(r.blocks.data(), r.blocks.size());
      next[k] = add_reshard(result, add_without_ghosts(result, next[k], blocks, now_.shape, start.at), layout_of(r, 0), start.at);
    }
    return next;
  }
  /// What stands for a node in a sweep.
  constexpr int in_sweep(const round& r, block_reads& reads, int i) {
    if (made_[i] < 0) {
      if (now_.varies[i] != 0 || (old(i).shape.count > 0 && is_light(i))) add_in_blocks(r, reads, i);
      else made_[i] = number_[i];
    }
    return made_[i];
  }
  constexpr void add_in_blocks(const round& r, block_reads& reads, int i) {
    node n = old(i);
    if (n.shape.count > 0 && is_renamed(n)) {
      made_[i] = in_sweep(r, reads, n.operands[0]);
    } else if (n.shape.count > 0 && is_shift(n)) {
      const auto map = map_of(n);
      const auto offset = offset_of(map.dims[0], n.shape[map.dims[0].dim]);
      made_[i] = reads.shifted(in_sweep(r, reads, n.operands[0]), map.dims[0], offset, map.fill, n.at);
    } else if (is_source(n) && facts_of(n.op).in_loop(old_, n).is_index()) {
      made_[i] = reads.index_as(n.type, facts_of(n.op).in_loop(old_, n).dim, n.at);
    } else if (n.shape.count > 0 && is_stretched(n)) {
      const int from = now_.varies[n.operands[0]] != 0 ? in_sweep(r, reads, n.operands[0]) : number_[n.operands[0]];
      inline_vec<std::int8_t, max_rank> dims;
      for (int k = 0; k < old(n.operands[0]).shape.count; ++k)
        dims.push_back(static_cast<std::int8_t>(reads.place_of(attribute_dim(n, k))));
      made_[i] = add_broadcast(result, from, r.shape, dims, n.at);
    } else {
      list operands;
      for (const int o : n.operands) operands.push_back(in_sweep(r, reads, o));
      for (int k = 0; k < n.operands.count; ++k) n.operands[k] = operands[static_cast<std::size_t>(k)];
      if (n.shape.count > 0) n.shape = r.shape;
      n.annotated = false;
      n.annotation = {};
      n.tag = -1;
      made_[i] = result.add_sized(n);
    }
  }

  const graph& old_;
  const mesh_shape& mesh_;
  vec<sharding> completed_;
  vec<int> number_;  // by old node: the new one, outside of what is widened
  vec<int> made_;    // by old node: the new one in the sweep that is added
  sweep now_;
};

}  // namespace gspmd::detail
