// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/choose/known_uses.hpp"
#include "gspmd/detail/passes/choose/later_preferences.hpp"
#include "gspmd/detail/passes/choose/operator_prices.hpp"
#include "gspmd/detail/passes/choose/operator_work.hpp"

namespace gspmd::detail {

/// One way to run an operator, and its price together with its operands, its result and later users.
struct tried_use {
  operator_use use;
  cost price;
};

/// Chooses the use of the mesh axes by one operator.
///
/// Input: the rule of the operator, the preferred shardings of its tensors and the existing forms. Result: an
/// operator_use. Rule: the use takes the least time for the operands, the result, the work and the reshards that later
/// users need. Ties are broken by fewer bytes, fewer collectives and smaller shards. The axes are ordered as the
/// result, then the operands prefer.
class operator_chooser {
 public:
  constexpr operator_chooser(const form_prices& known, reader_preferences& readers)
      : known_(known), readers_(readers), remembered_(known, readers) {}

  /// The time of the operator itself, after its operands are in place. `all`: its work, movements and tiles. `least`:
  /// its work alone, if all devices had equal parts of the work.
  struct own_times {
    std::int64_t all = 0, least = 0;
  };
  [[nodiscard]] constexpr own_times own_time(int i, const node& n, const op_rule& rule, const operator_use& use) const {
    const auto sent = operator_prices(known_, i, n, rule).own(use).time;
    if (use.moved) return {sent, 0};
    const work_counter work(known_.program, known_.mesh, known_.uses, i, rule, !known_.net().is_named);
    return {add_times(sent, past_begin(known_.net().time_of(work.of(use.uses)))),
            past_begin(known_.net().time_of(work.of({})) / known_.mesh.device_count())};
  }

  vec<tried_use>* record = nullptr;  // if set, gets every way, also those that a bound excludes
  int prices = 0;  // computed so far, a measure of the evaluation's length; a price of a reduction with padding counts as four

  /// Chooses the use of the axes by node `i`.
  ///
  ///   bd,df->bf, x [data, _], w [_, model], preferred [data, model]: b over data, f over model, and nothing is sent
  [[nodiscard]] constexpr operator_use choose(int i, const node& n, const op_rule& rule) {
    const mesh_shape& mesh = known_.mesh;
    const auto held = held_partial(known_, i);
    use_search::preferences asked;  // of the result, the operands, the further results, and the operands as they are
    asked.push_back(to_factors(mesh, rule, rule.result(), known_.preferred_of(i).splits));
    bool agree = rule.uniform && !facts_of(n.op).has_collectives && !is_summed_before(i, n, held, asked[0]);
    for (int k = 0; k < n.operands.count; ++k) {
      asked.push_back(to_factors(mesh, rule, rule.operand(k), known_.preferred_of(n.operands[k]).splits));
      agree = agree && asked[k + 1] == asked[0];
    }
    for (int r = 1; r < n.results; ++r)
      asked.push_back(to_factors(mesh, rule, rule.result(r), known_.preferred_of(i + r).splits));
    for (int k = 0; k < n.operands.count; ++k) {
      const int form = known_.book.first_of(n.operands[k]);
      if (form < 0 || form != known_.book.last_of(n.operands[k])) continue;
      const sharding& is = known_.book.layout_of(form);
      if (is.partial != 0 || is.splits == known_.preferred_of(n.operands[k]).splits) continue;
      asked.push_back(to_factors(mesh, rule, rule.operand(k), is.splits));
      agree = false;
    }
    if (agree && record == nullptr) return use_of(known_, n, rule, asked[0], held);
    const std::uint64_t key = record == nullptr ? remembered_.key_of(i, n, held) : 0;
    if (const factor_splits* const found = key != 0 ? remembered_.find(key) : nullptr; found != nullptr)
      return use_of(known_, n, rule, *found, held);

    use_search::axis_factors first(mesh.axis_count(), std::int8_t{-1});
    for (int t = asked.count - 1; t >= 0; --t)
      for (const auto& use : asked[t])
        if (rule.factors[use.dim].kind != factor_kind::whole) first[use.axis] = use.dim;
    use_search search(mesh, known_.net(), rule, asked);
    operator_use best = use_of(known_, n, rule, search.assemble(first), held);
    const work_counter work(known_.program, known_.mesh, known_.uses, i, rule, !known_.net().is_named);
    operator_prices known(known_, i, n, rule);
    cost least = known.of(best, use_search::no_limit);
    if (least.bytes == 0 && least.refused == 0 && !is_repeated(work, best.uses) && record == nullptr) {
      remembered_.remember(key, best);
      return best;
    }
    // A use that makes whole copies is refused unless the program allows replication, so it is taken only if no other
    // use exists.
    std::uint32_t held_fast = 0;  // by operand: the axes that split it must go on to split it
    if (!known_.program.allow_replication && !n.allow_replication)
      for (int k = 0; k < n.operands.count; ++k)
        if (must_lose_a_split(known_, n, rule, k) || is_looked_into(known_, n, rule, k)) held_fast |= std::uint32_t{1} << k;
    const axis_mask anyway = held_fast != 0 ? axes_gathered_anyway(known_, i) : 0;
    const auto refusals = [&](const operator_use& p) {
      int refused = 0;
      for (int k = 0; k < n.operands.count && held_fast != 0; ++k)
        if ((held_fast >> k & 1U) != 0 &&
            (known_.preferred_of(n.operands[k]).split_axes() & ~p.wanted[k].split_axes() & ~anyway) != 0)
          ++refused;
      return refused + (gives_up_parts(i, n, p) ? 1 : 0);
    };
    // An operator with collectives of its own works on whole lines. The axes that split a line may be better on one
    // or several other dims, so all factors are tried.
    search.know(tensors_of(i, n, rule), facts_of(n.op).has_collectives);
    const later_preferences later(known_, readers_, i, n);
    least.refused += refusals(best);
    least.time = add_times(least.time, add_times(work_time(work.of(best.uses)), later.left_after(best)));
    least.memory = search.memory_of(best.uses);
    const auto price_of = [&](const operator_use& trial, std::int64_t memory, std::int64_t limit) {
      const auto time = work_time(work.of(trial.uses));
      cost price = known.of(trial, limit - time);
      price.time = add_times(price.time, time);
      price.refused += refusals(trial);
      if (price.time > limit) return price;
      price.time = add_times(price.time, later.left_after(trial));
      price.memory = memory;
      return price;
    };
    if (record != nullptr) {
      const cost none{1};
      search.run(none, [&](const factor_splits& uses, std::int64_t memory, std::int64_t limit) {
        const operator_use trial = use_of(known_, n, rule, uses, held);
        cost price = price_of(trial, memory, limit);
        record->push_back({trial, price});
        ++price.refused;  // the search gets no bound, and proposes every use
        return price;
      });
      operator_use moved;
      cost by_movement{std::numeric_limits<int>::max()};
      consider_movement(i, n, known, moved, by_movement);
      if (moved.moved) record->push_back({moved, by_movement});
      return best;
    }
    search.run(least, [&](const factor_splits& uses, std::int64_t memory, std::int64_t limit) {
      if (uses == best.uses) return least;
      const operator_use trial = use_of(known_, n, rule, uses, held);
      const cost price = price_of(trial, memory, limit);
      if (price.time <= limit && price.is_less_than(least)) {
        best = trial;
        least = price;
      }
      return price;
    });
    prices += known.made() * (may_be_padded(rule) ? 4 : 1);
    consider_movement(i, n, known, best, least);
    remembered_.remember(key, best);
    return best;
  }

 private:
  /// Returns true if operands would be reduced over axes that split the preferred result, although the result could
  /// stay partial. Then one reduction would serve several terms.
  [[nodiscard]] constexpr bool is_summed_before(int i, const node& n, const operand_shardings& held,
                                                const factor_splits& wanted) const {
    axis_mask used = 0;
    for (const auto& use : wanted) used |= axis_bit(use.axis);
    int terms = 0, scaled = 0;
    for (int k = 0; k < n.operands.count; ++k) {
      if ((held[k].partial & used) == 0) continue;
      const auto how = partial_rule_of(n, k, held[k].reduced_by);
      terms += how == partial_rule::all ? 1 : 0;
      scaled += how == partial_rule::any ? 1 : 0;
    }
    if (terms > 1 || scaled != 1) return terms > 1;
    const shared_sum with = shared_sum_of(known_, i);
    return with.open > 0 || !with.chosen.empty();
  }
  /// Returns true if an operator with collectives of its own would gather its first operand along axes that should
  /// split a result. A gather of the keys alone would look cheaper than an exchange of keys and values.
  [[nodiscard]] constexpr bool gives_up_parts(int i, const node& n, const operator_use& p) const {
    if (!facts_of(n.op).has_collectives) return false;
    axis_mask wanted = 0;
    for (int r = 0; r < n.results; ++r)
      if (known_.is_read(i + r)) wanted |= known_.wanted_of(i + r).split_axes();
    return (known_.preferred_of(n.operands[0]).split_axes() & wanted & ~p.wanted[0].split_axes()) != 0;
  }
  /// Returns true if devices repeat work and the work takes long enough to be shared.
  [[nodiscard]] constexpr bool is_repeated(const work_counter& work, const factor_splits& uses) const {
    axis_mask used = 0;
    for (const auto& use : uses) used |= axis_bit(use.axis);
    return (known_.mesh.wide_axes() & ~used) != 0 && work_time(work.of(uses)) >= least_picoseconds_of_shared_work;
  }
  /// Considers one movement instead of the operator, from a form of its operand to the preferred sharding of the
  /// result. Also considers a reshard before or after the movement, if the movement then begins or ends at a sharding
  /// nearby.
  constexpr void consider_movement(int i, const node& n, operator_prices& prices_of, operator_use& best, cost& least) {
    if (!may_be_moved(known_.program, n)) return;
    operator_use moved;
    moved.moved = true;
    const sharding asked{known_.preferred_of(i).splits};
    const auto consider = [&](sharding form, const sharding& result) {
      form.partial = 0;
      if (!moved.wanted.empty() && form.splits == moved.wanted[0].splits && result.splits == moved.result.splits) return;
      if (!may_be_moved(known_.program, known_.mesh, n, form, result)) return;
      moved.result = result;
      moved.wanted.clear();
      moved.wanted.push_back(form);
      const cost price = prices_of.of(moved, least.limit());
      if (price.refused > least.refused || (price.refused == least.refused && price.time >= least.time)) return;
      best = moved;
      least = price;
    };
    const int o = n.operands[0], rank = known_.shape_of(o).count;
    consider(known_.preferred_of(o), asked);
    for (int v = known_.book.first_of(o); v >= 0; v = known_.book.values[v].next) consider(known_.book.layout_of(v), asked);
    const axis_mask anyway = least.bytes > 0 ? axes_gathered_anyway(known_, i) : 0;
    for (int v = least.bytes > 0 ? known_.book.first_of(o) : -1; v >= 0; v = known_.book.values[v].next) {
      const sharding& form = known_.book.layout_of(v);
      const axis_mask gathered = form.split_axes() & ~asked.split_axes() & known_.preferred_of(o).split_axes() & ~anyway;
      // A gather over these axes would be refused, before the movement or after it.
      if (gathered != 0 && !n.allow_replication && !known_.program.allow_replication) continue;
      for (const auto& near : shardings_near(form, asked, rank)) consider(near, asked);
      if (known_.at(o).keep_split && (form.split_axes() & ~asked.split_axes()) != 0) continue;
      for (const auto& near : shardings_near(asked, form, n.shape.count)) consider(form, near);  // holds more between the steps
    }
  }
  /// Returns the starting shardings of one movement to `result` that may send less than `form`:
  /// - `form`, gathered over the axes that `result` lacks, because a movement cannot begin otherwise;
  /// - the same, with one dim split further by the axes that only `result` has;
  /// - all axes of `result` on one dim, or `form` with one axis on another dim.
  ///
  ///   {x,-} towards {-,y}: {-,-}, {y,-}, {-,y}
  static constexpr vec<sharding> shardings_near(const sharding& form, const sharding& result, int rank) {
    vec<sharding> near;
    sharding fewer;
    for (const auto& use : form.splits)
      if ((result.split_axes() & axis_bit(use.axis)) != 0) fewer.splits.push_back(use);
    if (fewer.splits.count != form.splits.count) near.push_back(fewer);
    for (int d = 0; d < rank; ++d) {
      sharding finer = fewer, together;
      for (const auto& use : result.splits) {
        if ((fewer.split_axes() & axis_bit(use.axis)) == 0) finer.add_split(use.axis, d);
        together.add_split(use.axis, d);
      }
      if (finer.splits.count != fewer.splits.count) near.push_back(finer);
      if (result.splits.count > 1) near.push_back(together);
      for (const auto& moved : fewer.splits) {
        if (moved.dim == d) continue;
        sharding other;
        for (const auto& use : fewer.splits)
          if (use.axis != moved.axis) other.splits.push_back(use);
        other.add_split(moved.axis, d);
        near.push_back(other);
      }
    }
    return near;
  }

  /// Returns the time of the work in all iterations, without the time to begin it.
  [[nodiscard]] constexpr std::int64_t work_time(const operator_work& work) const {
    return known_.time_in_all_trips(past_begin(known_.net().time_of(work)), known_.book.depth());
  }
  [[nodiscard]] static constexpr std::int64_t past_begin(std::int64_t time) {
    return time <= picoseconds_to_begin ? 0 : time - picoseconds_to_begin;
  }

  [[nodiscard]] constexpr bool may_be_padded(const op_rule& rule) const {
    const auto devices = known_.mesh.device_count();
    bool reduces = false, is_even = true;
    for (int f = 0; f < rule.factors.count; ++f) {
      for (int r = 0; r < rule.results; ++r) reduces = reduces || rule.leaves_partial(f, r);
      is_even = is_even && rule.factors[f].size % devices == 0;
    }
    return reduces && !is_even;
  }

  [[nodiscard]] constexpr use_search::use_tensors tensors_of(int i, const node& n, const op_rule& rule) const {
    const form_book& book = known_.book;
    use_search::use_tensors tensors;
    for (int k = 0; k <= n.operands.count; ++k) {
      const bool is_result = k == n.operands.count;
      const int o = is_result ? i : n.operands[k];
      use_tensor t;
      t.factor_of = use_search::axis_factors(known_.mesh.axis_count(), std::int8_t{-1});
      const auto know = [&](const sharding& s) {
        t.elems = local_elements(known_.mesh, rule.uniform ? uniform_extents(rule) : known_.shape_of(o), s);
        for (const auto& use : to_factors(known_.mesh, rule, is_result ? rule.result() : rule.operand(k), s.splits))
          t.factor_of[use.axis] = use.dim;
      };
      const int form = is_result ? -1 : book.first_of(o);
      if (!is_result) t.shared_by = readers_alike(known_, i, k);
      if (is_result ? known_.is_read(i) : form >= 0) t.elem_bytes = bytes_of(known_.at(o).type);
      if (is_result) know(known_.preferred_of(i));
      else if (form >= 0 && form == book.last_of(o) && book.layout_of(form).partial == 0 &&
               !known_.is_again<operand_shardings>(n, k, nullptr))
        know(book.layout_of(form));
      else t.elems = elements(known_.shape_of(o));  // gives no bound
      tensors.push_back(t);
    }
    return tensors;
  }

  const form_prices& known_;
  reader_preferences& readers_;
  known_uses remembered_;
};

}  // namespace gspmd::detail
