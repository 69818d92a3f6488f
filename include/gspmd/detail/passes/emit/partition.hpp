// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/emit/partition_state.hpp"
#include "gspmd/detail/passes/emit/region_parts.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Turns a completed graph into the program that every device runs (GSPMD 4.1-4.5).
///
/// For every operator, in order:
/// 1. every mesh axis is given to one factor of the operator's rule, or to none: the joint use of all axes that sends the
///    fewest bytes for the operands and the result; ties go to fewer collectives, then to smaller shards. Work that all devices
///    would repeat is not free: past the first million flops, `flops_per_byte` of them weigh as much as a byte;
/// 2. operands are brought to the sharding this needs; a form of a value that was made before is used again;
/// 3. the operator runs on shards. Axes given to a reduction factor leave the result partial;
/// 4. a partial result stays so until a user of it needs the sum (linear operators pass it on);
/// 5. an einsum that the user set a limit for takes an operand that would be gathered beyond it in parts (window_choice.hpp).
class partitioner : public region_parts {
 public:
  using region_parts::region_parts;

  // In parts, for compilers that limit the steps of one evaluation: begin, load what another one saved, emit_nodes, save. After the
  // last node, when it `can_finish`: finish_partition.

  constexpr void begin() {
    needed_.resize(graph_.nodes.size(), 0);
    program.results.resize(graph_.nodes.size(), -1);
    for (const int o : graph_.outputs) {
      needed_[o] = 1;
      readers_[o].push_back(o);
    }
    std::uint8_t* const needed = needed_.data();
    vec<int>* const readers = readers_.data();
    const node* const nodes = graph_.nodes.data();
    for (int i = static_cast<int>(graph_.nodes.size()); i-- > 0;) {
      const node& n = nodes[i];
      if (graph_.has_regions && is_region_result(n.op)) share_need(i, needed_);
      if (needed[i] == 0) continue;
      if (n.region >= 0) needed[n.region] = 1;
      const int count = facts_of(n.op).reads(n);
      for (int k = 0; k < count; ++k) {
        const int o = n.operands.items[k];
        needed[o] = 1;
        readers[o].push_back(i);
      }
    }
    narrow_wishes(needed_);
  }

  /// Goes on for so many stretches at most; -1: to the last node.
  constexpr void emit_nodes(int stretches = -1) {
    for (int& i = next_; !is_done(); ++i) {
      if (may_price_ <= 0 || i % nodes_per_stretch == 0) {
        if (stretches-- == 0) return;
        begin_stretch();
      }
      const node& n = graph_.nodes[static_cast<std::size_t>(i)];
      const origin made = facts_of(n.op).made;
      if (made == origin::given) {
        program.inputs.push_back(add_value(i, completed_of(i)));
        forms_[static_cast<std::size_t>(i)].push_back(program.inputs.back());  // wherever it stands, it is there from the start
        program.results[static_cast<std::size_t>(i)] = program.inputs.back();
      } else if (needed_[static_cast<std::size_t>(i)] == 0 || made == origin::source) {
        continue;
      } else if (made == origin::renamed) {
        roots_[static_cast<std::size_t>(i)] = root_of(n.operands[0]);
        results_[static_cast<std::size_t>(i)] = form_of(n.operands[0], completed_of(i), i);
      } else if (made == origin::region) {
        emit_region(i);
      } else {
        emit(i);
      }
    }
  }

  /// True after the last node, if the evaluation has room for the outputs too.
  [[nodiscard]] constexpr bool can_finish() const { return is_done() && may_price_ > prices_per_stretch / 2; }

  constexpr void end() {
    begin_stretch();
    for (const int o : graph_.outputs) {
      sharding wanted = completed_of(o);
      wanted.partial = 0;
      program.outputs.push_back(form_of(o, wanted, o, false, true));
    }
    drop_unused();
    for (std::size_t i = 0; i < forms_.size(); ++i) {
      if (results_[i] >= 0) program.results[i] = results_[i];
      else if (!forms_[i].empty()) program.results[i] = forms_[i].front();
    }
  }

  [[nodiscard]] constexpr partition_state save() {
    partition_state s;
    s.next = next_;
    s.form_count.resize(forms_.size(), 0);
    int* next_count = s.form_count.data();
    for (const auto& forms : forms_) {
      const auto count = static_cast<int>(forms.size());
      *next_count++ = count;
      for (int k = 0; k < count; ++k) s.forms.push_back(forms[k]);
    }
    for (const auto& m : made_) {
      s.made_node.push_back(m.node);
      s.made_value.push_back(m.value);
      s.made_level.push_back(m.level);
    }
    s.program = std::move(program);
    s.roots = std::move(roots_);
    s.results = std::move(results_);
    s.open = std::move(open_);
    s.open_at = std::move(open_at_);
    s.given = std::move(given_);
    return s;
  }
  constexpr void load(partition_state s) {
    next_ = s.next;
    const int* next = s.forms.data();
    const int* const counts = s.form_count.data();
    vec<int>* const forms = forms_.data();
    for (std::size_t i = 0; i < forms_.size(); ++i) {
      if (counts[i] == 0) continue;
      forms[i].assign(next, next + counts[i]);
      next += counts[i];
    }
    for (std::size_t i = 0; i < s.made_node.size(); ++i)
      made_.push_back(made_form{s.made_node[i], s.made_value[i], s.made_level[i]});
    program = std::move(s.program);
    roots_ = std::move(s.roots);
    results_ = std::move(s.results);
    open_ = std::move(s.open);
    open_at_ = std::move(s.open_at);
    given_ = std::move(s.given);
    if (is_done()) begin_stretch();
  }

 private:
  [[nodiscard]] constexpr bool is_done() const { return next_ == static_cast<int>(graph_.nodes.size()); }

  /// Where every reader of a value takes the same slice of it, the slice is all that is made: all_reduce and slice become
  /// reduce_scatter, through any elementwise operators in between.
  constexpr void narrow_wishes(const vec<std::uint8_t>& needed) {
    const node* const nodes = graph_.nodes.data();
    sharding* const completed = completed_.data();
    for (int i = static_cast<int>(graph_.nodes.size()); i-- > 0;) {
      const vec<int>& readers = readers_[i];
      const int count = static_cast<int>(readers.size());
      if (needed[i] == 0 || facts_of(nodes[i].op).made == origin::given || count == 0 || readers[0] == i) continue;
      bool alike = true;
      sharding slice = completed[i];
      for (int r = 0; r < count && alike; ++r) {
        const int reader = readers[r];
        const node& user = nodes[reader];
        const auto& wish = completed[reader].splits;
        alike = false;
        if (reader == i) break;  // an output
        const auto& facts = facts_of(user.op);
        if (!facts.keeps_slices) break;
        sharding asked = slice;
        if (facts.uniform) {
          asked.splits = wish;
        } else {
          op_rule rule;
          facts.rule(graph_, user, rule);
          asked.splits = to_dims(mesh_, rule, rule.operand(0), to_factors(mesh_, rule, rule.result(), wish));
        }
        alike = r == 0 || asked.splits == slice.splits;
        slice = asked;
      }
      if (alike && !(slice.splits == completed[i].splits) && lies_inside(mesh_, nodes[i].shape, completed[i], slice))
        completed[i].splits = slice.splits;
    }
  }

  /// What carries a value round a loop, or ends a branch, is kept.
  [[nodiscard]] static constexpr bool is_wanted(const local_op& op, const vec<std::uint8_t>& is_read) {
    return op.what == local_kind::control || op.what == local_kind::copy || is_read[static_cast<std::size_t>(op.result)] != 0;
  }
  /// Takes out the operators whose result nobody reads: a broadcast that was only needed in another sharding, say.
  constexpr void drop_unused() {
    vec<std::uint8_t> is_read(program.values.size(), 0);
    for (const int v : program.outputs) is_read[static_cast<std::size_t>(v)] = 1;
    std::size_t at = program.ops.size();
    bool any = false;
    while (at-- > 0) {
      const auto& op = program.ops[at];
      if (!is_wanted(op, is_read)) any = true;
      else
        for (const int o : op.operands) is_read[static_cast<std::size_t>(o)] = 1;
    }
    if (!any) return;
    vec<local_op> kept;
    for (const auto& op : program.ops)
      if (is_wanted(op, is_read)) kept.push_back(op);
    program.ops = std::move(kept);
    for (auto& forms : forms_) {
      vec<int> left;
      for (const int v : forms)
        if (is_read[static_cast<std::size_t>(v)] != 0) left.push_back(v);
      if (!left.empty()) forms = std::move(left);
    }
    for (auto& v : results_)
      if (v >= 0 && is_read[static_cast<std::size_t>(v)] == 0) v = -1;
  }

  constexpr void emit(int i) {
    const node& n = graph_.nodes[static_cast<std::size_t>(i)];
    op_rule rule;
    rule_of(graph_, n, rule);
    use_plan plan = choose_with_sums(i, n, rule);

    local_op op;
    op.node = i;
    if (n.gather_limit >= 0) {
      const window round = window_of(n, plan);
      op.window = round.how;
      if (round.how.operand >= 0) plan.wanted[round.how.operand] = round.form;
    }
    for (int k = 0; k < n.operands.count; ++k)
      op.operands.push_back(form_of(n.operands[k], plan.wanted[k], i, loses_a_split(n, rule, k, plan.wanted[k])));
    if (const int count = facts_of(n.op).movements(n); count > 0) return emit_movements(op, n, count, plan.result);
    op.result = add_form(i, plan.result);
    program.ops.push_back(op);
  }

  /// An operator that consists of movements: each but the first one writes into what the one before it left.
  constexpr void emit_movements(const local_op& all, const node& n, int count, const sharding& layout) {
    for (int k = 0; k < count; ++k) {
      local_op op = all;
      op.operands.clear();
      op.operands.push_back(all.operands[k]);
      if (k > 0) op.operands.push_back(program.ops.back().result);
      op.result = k + 1 < count ? add_value(all.node, layout) : add_form(all.node, layout);
      const auto traffic = traffic_of(graph_, mesh_, n, k, layout);
      op.movement = k;
      op.axes = traffic.axes;
      op.bytes_sent = traffic.elems() * bytes_of(n.type);
      op.collective = collective_kind::collective_permute;
      program.ops.push_back(op);
    }
  }

  vec<std::uint8_t> needed_;  // by node: what no output depends on is not computed
  int next_ = 0;              // the node to go on with
};

}  // namespace gspmd::detail
