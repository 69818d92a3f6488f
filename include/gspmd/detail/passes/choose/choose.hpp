// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <type_traits>
#include <utility>

#include "gspmd/detail/passes/choose/form_walk.hpp"
#include "gspmd/detail/passes/choose/loop_sums.hpp"
#include "gspmd/detail/passes/choose/operator_chooser.hpp"

namespace gspmd::detail {

/// Where the lists of a choose_state ended, and what it all took, before an item was looked at: a node; after the nodes, an output.
struct item_mark {
  int values = 0, wanted = 0, deliveries = 0, steps = 0;
  int forced = 0;
  std::int64_t time = 0;
};

/// What choose knows after some of the items: another evaluation may go on from there.
struct choose_state {
  form_book book;
  choice_table table;
  vec<int> given;        // see form_walk
  vec<item_mark> marks;  // by item; one more once all are looked at
  int next = 0;          // item
  bool is_complete = false;
  std::int64_t time = 0;  // picoseconds that all of it takes
  int forced = 0;         // gathers that operators cannot do without

  constexpr choose_state() = default;
  constexpr explicit choose_state(const graph& g) : book(g) {}
  /// `all`, which is complete, as it was before `item`; of a program without regions.
  constexpr choose_state(const choose_state& all, int item)
      : book(all.book, all.marks[item].values), next(item), time(all.marks[item].time), forced(all.marks[item].forced) {
    const item_mark& mark = all.marks[item];
    const auto begin = [](const auto& list, int count) {
      return std::remove_cvref_t<decltype(list)>(list.data(), list.data() + count);
    };
    const int nodes = static_cast<int>(all.table.nodes.size());
    table.nodes = begin(all.table.nodes, item < nodes ? item : nodes);
    table.wanted = begin(all.table.wanted, mark.wanted);
    table.deliveries = begin(all.table.deliveries, mark.deliveries);
    table.steps = begin(all.table.steps, mark.steps);
    table.outputs = begin(all.table.outputs, item < nodes ? 0 : item - nodes);
    marks = begin(all.marks, item);
  }
  [[nodiscard]] constexpr item_mark mark() const {
    const auto length = [](const auto& list) { return static_cast<int>(list.size()); };
    return {length(book.values), length(table.wanted), length(table.deliveries), length(table.steps), forced, time};
  }

  [[nodiscard]] constexpr bool is_better_than(const choose_state& other) const {
    return forced <= other.forced && time < other.time;
  }

  template <class S, class F>
  static constexpr auto lists(S& s, F f) {
    return f(s.table.nodes, s.table.wanted, s.table.deliveries, s.table.steps, s.table.outputs, s.book.values, s.book.roots,
             s.book.first, s.book.last, s.book.open, s.book.inside, s.book.level_of_inside, s.given, s.marks);
  }
  template <class S, class F>
  static constexpr auto rest(S& s, F f) {
    return f(s.next, s.is_complete, s.time, s.forced);
  }
};

/// A complete plan, of which another one for the same program, where some wishes differ, takes over what nothing that differs reaches:
/// a choice takes a hundred times as long.
struct replay {
  static constexpr int choice = 8;              // one choice allows for as much of an evaluation as so many replayed items
  static constexpr std::uint8_t wished = 1;     // of a node: something else is asked for
  static constexpr std::uint8_t lies_else = 2;  // its forms are others

  const choose_state& plan;
  vec<std::uint8_t>& differs;  // by node
  vec<int>& now;               // by form of `plan`: the same one of the new plan; -1: it has none
  int& last;                   // the last item that something which differs reaches
  bool& is_worse;              // found out before the end

  [[nodiscard]] constexpr std::int64_t time_of(int i) const { return plan.marks[i + 1].time - plan.marks[i].time; }

  /// Whether item `i` is what it is in `plan`.
  [[nodiscard]] constexpr bool is_same(const form_prices& known, int i) const {
    const int count = static_cast<int>(known.program.nodes.size());
    if (i >= count)
      return (differs[known.book.root_of(known.program.outputs[static_cast<std::size_t>(i - count)])] & lies_else) == 0;
    const node& n = known.at(i);
    const origin made = facts_of(n.op).made;
    if (made == origin::given || made == origin::source) return true;
    if ((differs[i] & wished) != 0 || n.results != 1 || made == origin::region || made == origin::result) return false;
    for (const int o : n.operands)
      if ((differs[known.book.root_of(o)] & lies_else) != 0) return false;
    return operand_summed_up(known, i) < 0;
  }
  /// Compares the forms that item `i` made. Whether nothing after it can differ and `state`, which is to be as `plan` from here on,
  /// is no better.
  constexpr bool is_decided(const form_prices& known, int i, const choose_state& state) {
    const auto& made = state.book.values;
    const auto& had = plan.book.values;
    const int begin = state.marks[i].values, end = static_cast<int>(made.size());
    const int from = plan.marks[i].values, to = plan.marks[i + 1].values;
    bool alike = end - begin == to - from;
    for (int k = 0; k < to - from && alike; ++k)
      alike = made[begin + k].node == had[from + k].node && same_layout(made[begin + k].layout, had[from + k].layout);
    for (int k = 0; k < to - from; ++k) now.push_back(alike ? begin + k : -1);
    if (!alike) {
      for (int k = begin; k < end; ++k) note(known, made[k].node);
      for (int k = from; k < to; ++k) note(known, had[k].node);
    }
    if (state.time >= plan.time || state.forced > plan.forced) return is_worse = true;
    if (i < last || known.book.depth() > 0) return false;
    const auto& mark = plan.marks[i + 1];
    const auto time = add_times(state.time, plan.time - mark.time);
    return is_worse = time >= plan.time || state.forced + plan.forced - mark.forced > plan.forced;
  }
  /// The forms of node `i` are others: what reads it is reached.
  constexpr void note(const form_prices& known, int i) {
    const int root = known.book.root_of(i);
    if ((differs[root] & lies_else) != 0) return;
    differs[root] |= lies_else;
    reach(known, root);
  }
  constexpr void reach(const form_prices& known, int i) {
    const int count = static_cast<int>(known.program.nodes.size());
    for (const int reader : known.readers_of(i)) {
      const int at = reader == i ? count + static_cast<int>(known.program.outputs.size()) - 1 : reader;
      if (at > last) last = at;
      if (reader == i) continue;
      const node& n = known.at(reader);
      const auto& facts = facts_of(n.op);
      if (facts.made == origin::renamed) reach(known, reader);
      else if (facts.made == origin::region) last = count + static_cast<int>(known.program.outputs.size()) - 1;
      else if (facts.made == origin::shards && facts.is_made_again(n)) note(known, reader);
    }
  }
};

/// Chooses for every operator, in order (GSPMD 4.1-4.5), and emits nothing; `state` is what it fills:
/// 1. every mesh axis is given to one factor of the operator's rule, or to none: the joint use of all axes that takes least time on
///    the mesh's network, for the operands, the result and the work of one device; ties go to fewer bytes, then to fewer collectives,
///    then to smaller shards;
/// 2. operands are brought to the sharding this needs; a form of a value that was made before is used again;
/// 3. the operator runs on shards. Axes given to a reduction factor leave the result partial;
/// 4. a partial result stays so until a user of it needs the sum (linear operators pass it on);
/// 5. an einsum that the user set a limit for takes an operand that would be gathered beyond it in parts (ring_choice.hpp).
class chooser {
 public:
  constexpr chooser(const graph& g, const mesh_shape& mesh, const value_uses& uses, std::span<const sharding> wishes,
                    choose_state& state, replay* known = nullptr)
      : known_{g, mesh, uses, wishes, state.book},
        state_(state),
        operators_(known_),
        walk_(g, mesh, state.book, state.given, *this),
        replay_(known) {}

  /// Goes on until all is chosen, for the outputs too; or until so many nodes were looked at, or so many prices worked out. With a plan to
  /// replay: or until it is sure that this one is no better.
  constexpr void run(int most_nodes, int most_prices) {
    const graph& g = known_.program;
    const int count = static_cast<int>(g.nodes.size());
    const int items = count + static_cast<int>(g.outputs.size());
    for (int work = 0; state_.next < items; work += is_replayed_ ? 1 : replay::choice) {
      if ((work / replay::choice >= most_nodes || operators_.prices >= most_prices) &&
          (state_.next >= count || known_.at(state_.next).op != opcode::result))
        return;
      const int i = state_.next++;
      state_.marks.push_back(state_.mark());
      is_replayed_ = replay_ != nullptr && replay_->is_same(known_, i);
      is_replayed_ ? ++replayed_ : ++chosen_;
      delivery_ = is_replayed_ ? replay_->plan.marks[i].deliveries : 0;
      look_at(i);
      if (is_replayed_) state_.time = add_times(state_.marks[i].time, replay_->time_of(i));
      if (replay_ != nullptr && replay_->is_decided(known_, i, state_)) return;
    }
    state_.marks.push_back(state_.mark());
    state_.is_complete = true;
  }
  /// How many operators were chosen, and items replayed.
  [[nodiscard]] constexpr int chosen() const { return chosen_; }
  [[nodiscard]] constexpr int replayed() const { return replayed_; }

  // ---- what form_walk asks ----
  [[nodiscard]] constexpr sharding layout_of(int i) const {
    const node& n = known_.at(i);
    const origin made = facts_of(n.op).made;
    if (made == origin::result && known_.uses.needed[i] != 0) return further_[i - n.operands[0] - 1];
    sharding s = known_.wish_of(i);
    if (made == origin::region) s.partial = 0;
    return s;
  }
  constexpr const node_choice& choice_for(int i) { return is_replayed_ ? choose_again(i) : choose(i); }
  constexpr const sharding& wanted(int i, int k) const { return state_.table.wanted[state_.table.nodes[i].wanted + k]; }
  constexpr delivery next_delivery(int i, const sharding& wanted) {
    if (is_replayed_) return delivered_again();
    delivery way{known_.best_form(i, wanted).value, static_cast<int>(state_.table.steps.size()), 0};
    if (way.from >= 0)
      for_each_step(known_.mesh, known_.shape_of(i), state_.book.layout_of(way.from), wanted, bytes_of(known_.at(i).type),
                    [&](const sharding&, const reshard_step& step) {
                      state_.table.steps.push_back(step);
                      ++way.steps;
                    });
    state_.table.deliveries.push_back(way);
    return way;
  }
  constexpr const reshard_step& step(const delivery& way, int k) const { return state_.table.steps[way.step + k]; }
  // What is made is emit's business.
  constexpr void input(int, int) {}
  constexpr void renamed(int, int) {}
  constexpr void named(int, int) {}
  constexpr void made_with_last(int, int) {}
  constexpr void made(int, int, int, int) {}
  constexpr void moved(const purpose&, int form, const reshard_step& step, int next, int level) {
    if (is_replayed_) return;
    const auto& from = state_.book.values[form];
    const node& n = known_.at(from.node);
    const auto bytes = step_bytes(known_.mesh, n.shape, from.layout, step, bytes_of(n.type));
    static_cast<void>(next);
    add_time(step_time(known_.mesh, n.shape, from.layout, step, bytes), level);
  }
  constexpr void ran(int, const node_choice&, const inline_vec<int, max_map_arity>&, int) {}
  constexpr void ran_movement(int, int, int, int, int) {}
  constexpr void copied(int, int, int) {}
  constexpr void opens(int, int, int) {}
  constexpr void ends(int) {}
  constexpr void closes() {}

  /// Whether a node is looked at at all: what no output needs is not computed, but inputs are there.
  static constexpr bool is_visited(const graph& g, const value_uses& uses, int i) {
    return uses.needed[i] != 0 || facts_of(g.nodes[static_cast<std::size_t>(i)].op).made == origin::given;
  }

  [[nodiscard]] constexpr int prices() const { return operators_.prices; }

 private:
  constexpr void look_at(int i) {
    const graph& g = known_.program;
    const int count = static_cast<int>(g.nodes.size());
    if (i >= count) {
      const int o = g.outputs[static_cast<std::size_t>(i - count)];
      sharding whole = known_.wish_of(o);
      whole.partial = 0;
      state_.table.outputs.push_back(whole);
      walk_.bring(o, whole, {o, false, true});
      return;
    }
    state_.table.nodes.push_back({layout_of(i), 0, 0, {}, false});
    if (is_visited(g, known_.uses, i)) walk_.visit(i);
  }
  constexpr delivery delivered_again() {
    const choice_table& from = replay_->plan.table;
    const delivery& known = from.deliveries[delivery_++];
    const int i = state_.next - 1, of_this = known.from - replay_->plan.marks[i].values;
    const int form = of_this >= 0 ? state_.marks[i].values + of_this : known.from < 0 ? -1 : replay_->now[known.from];
    delivery way{form, static_cast<int>(state_.table.steps.size()), known.steps};
    for (int k = 0; k < known.steps; ++k) state_.table.steps.push_back(from.steps[known.step + k]);
    state_.table.deliveries.push_back(way);
    return way;
  }
  constexpr const node_choice& choose_again(int i) {
    const choice_table& from = replay_->plan.table;
    node_choice& choice = state_.table.nodes[i];
    choice = from.nodes[i];
    choice.wanted = static_cast<int>(state_.table.wanted.size());
    const int begin = from.nodes[i].wanted;
    for (int k = 0; k < known_.at(i).operands.count; ++k) state_.table.wanted.push_back(from.wanted[begin + k]);
    state_.forced += replay_->plan.marks[i + 1].forced - replay_->plan.marks[i].forced;
    return choice;
  }

  constexpr void add_time(std::int64_t time, int level) {
    state_.time = add_times(state_.time, known_.time_in_all_trips(time, level));
  }

  constexpr const node_choice& choose(int i) {
    const node& n = known_.at(i);
    op_rule rule;
    rule_of(known_.program, n, rule);
    operator_use use = choose_with_sums(i, n, rule);
    node_choice& choice = state_.table.nodes[i];
    choice.result = use.result;
    choice.moved = use.moved;
    further_.clear();
    for (int r = 1; r < n.results; ++r) further_.push_back(further_result(known_.mesh, rule, use.uses, r));
    if (n.gather_limit >= 0) {
      const auto round = ring_choice(known_, n, use).find();
      choice.ring = round.how;
      if (round.how.operand >= 0) use.wanted[round.how.operand] = round.form;
    }
    choice.wanted = static_cast<int>(state_.table.wanted.size());
    for (int k = 0; k < n.operands.count; ++k) {
      state_.table.wanted.push_back(use.wanted[k]);
      if (!loses_a_split(known_, n, rule, k, use.wanted[k])) continue;
      choice.forced |= std::uint32_t{1} << k;
      ++state_.forced;
    }
    add_time(operators_.own_time(i, n, rule, use), state_.book.depth());
    return choice;
  }

  /// A sum that a loop only adds to stays partial with what it adds.
  constexpr operator_use choose_with_sums(int i, const node& n, const op_rule& rule) {
    const int k = operand_summed_up(known_, i);
    if (k < 0 || !is_added_partial(n, k)) return operators_.choose(i, n, rule);
    const int carry = n.operands[k];
    sharding& layout = state_.book.values[state_.book.first_of(carry)].layout;
    layout.partial = state_.book.layout_of(state_.book.last_of(n.operands[1 - k])).partial;
    layout.reduced_by = monoid::add;
    state_.table.nodes[carry].result = layout;
    const operator_use use = operators_.choose(i, n, rule);
    if (same_layout(use.wanted[k], layout) && same_layout(use.result, layout)) return use;
    layout.partial = 0;
    state_.table.nodes[carry].result = layout;
    return operators_.choose(i, n, rule);
  }
  /// Whether what is added to such a sum is partial, and lies as the sum does.
  [[nodiscard]] constexpr bool is_added_partial(const node& n, int k) const {
    const form_book& book = state_.book;
    const int added = n.operands[1 - k];
    if (!book.has_forms(added)) return false;
    for (int v = book.first_of(added); v >= 0; v = book.values[v].next)
      if (book.layout_of(v).partial == 0) return false;
    const sharding& from = book.layout_of(book.last_of(added));
    return from.reduced_by == monoid::add && from.splits == book.layout_of(book.first_of(n.operands[k])).splits;
  }

  form_prices known_;
  choose_state& state_;
  operator_chooser operators_;
  form_walk<chooser> walk_;
  inline_vec<sharding, max_results> further_;  // of the operator chosen last: those of its further results
  replay* replay_;                             // null: everything is chosen anew
  bool is_replayed_ = false;                   // the item that is looked at
  int delivery_ = 0;                           // of the plan that is replayed: the next one
  int chosen_ = 0, replayed_ = 0;
};

}  // namespace gspmd::detail
