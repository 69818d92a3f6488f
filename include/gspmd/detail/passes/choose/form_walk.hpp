// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/passes/choose/choice_table.hpp"
#include "gspmd/detail/passes/choose/form_prices.hpp"
#include "gspmd/detail/passes/choose/written_steps.hpp"

namespace gspmd::detail {

/// The reason why a value is brought to a sharding.
struct purpose {
  int user = 0;        // the node that needs it
  axis_mask lost = 0;  // axes that this node cannot keep, so the value is gathered over them
  bool for_output = false;
};

/// Walks through a program in the order of execution on every device, and keeps the form_book up to date. choose
/// and emit use the same walk. `Client` makes the decisions (choose) or reads them (emit), and is called for each value
/// that is made.
///
///   layout_of(i)                        the sharding of an input, a reshard, a carried value or a conditional's result
///   choice_for(i), wanted(i, k)         the choice for an operator, and the required sharding of its operand k
///   next_path(i, wanted), step(p, k)    the path that brings node i to a sharding, and its step k
///   input, renamed, named, made, made_with_last, moved, ran, ran_movement, copied, opens, ends, closes
///                                       called for each value that is made; see emitter
///
/// A carried value has one sharding, that of its carry node. It is brought to this sharding before the loop and at the
/// end of the body. If a loop needs a value from outside, the form is made before the loop. A conditional makes it in
/// the branch that needs it. Forms that are made in a body are removed at its end.
template <class Client>
class form_walk {
 public:
  constexpr form_walk(const graph& of, const mesh_shape& mesh, int saving, form_book& book, vec<int>& given, Client& client)
      : graph_(of), mesh_(mesh), saving_(saving), book_(book), given_(given), client_(client) {}

  constexpr void visit(int i) {
    const node& n = at(i);
    switch (facts_of(n.op).made) {
      case origin::given: {
        const int form = book_.add_value(i, client_.layout_of(i));
        book_.first[i] = book_.last[i] = form;  // an input exists from the start, in whichever body its node is
        return client_.input(i, form);
      }
      case origin::source: return;
      case origin::renamed: {
        if (graph_.is_explicit && written_step::count_of(n) > 0) return visit_written(i);
        book_.roots[i] = book_.root_of(n.operands[0]);
        if (book_.defers(n) && book_.has_forms(i)) return;
        return client_.renamed(i, bring(n.operands[0], client_.layout_of(i), {i}));
      }
      case origin::region: return visit_region(i);
      case origin::result: return client_.made_with_last(i, book_.add(graph_, i, client_.layout_of(i)));
      case origin::viewed:
      case origin::shards: return visit_operator(i);
    }
  }

  /// Brings node `i` to `wanted` along the path of the client. Returns the form.
  constexpr int bring(int i, const sharding& wanted, const purpose& why) {
    const reshard_path way = client_.next_path(i, wanted);
    const int level = book_.level_of(graph_, i);
    if (way.from < 0 && wanted.partial != 0) {
      sharding whole = wanted;
      whole.partial = 0;
      bring(i, whole, why);
      return bring(i, wanted, why);
    }
    if (way.from < 0) {
      const int root = book_.root_of(i);
      const node& n = at(root);
      sharding needed;
      int operand = -1;
      if (facts_of(n.op).made != origin::source && is_made_from(graph_, mesh_, n, wanted, needed))
        operand = bring(n.operands[0], needed, why);
      const int form = book_.add(graph_, root, wanted);
      client_.made(root, operand, form, level);
      return form;
    }
    int form = way.from;
    for (int k = 0; k < way.steps; ++k) {
      const reshard_step step = client_.step(way, k);
      const int root = book_.root_of(i);
      const bool is_for_one = (gives_way_.empty() || gives_way_[root] != 0) &&
                              is_gathered_again(mesh_, saving_, at(root), book_.layout_of(form), step.to);
      const int next = is_for_one ? book_.add_value(i, step.to) : book_.add(graph_, i, step.to);
      client_.moved(why, form, step, next, level);
      form = next;
    }
    return form;
  }

 private:
  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }

  /// Makes the steps that an explicit program writes. The result is a value of its own: its users never start from
  /// other forms of the operand.
  constexpr void visit_written(int i) {
    const node& n = at(i);
    const int operand = n.operands[0];
    const int level = book_.level_of(graph_, operand);
    const sharding to = client_.layout_of(i);
    int form = bring(operand, client_.layout_of(operand), {i});
    const int count = written_step::count_of(n);
    for (int k = 0; k < count; ++k) {
      const written_step written = written_step::of(n, k);
      if (written.is_reshard) {
        form = resharded(i, form, to, level);
        continue;
      }
      const reshard_step step = planned_step(mesh_, n.shape, written, book_.layout_of(form), to);
      const int next = k + 1 < count ? book_.add_value(operand, step.to) : book_.add(graph_, i, step.to);
      client_.moved({i, written.is_forced ? ~axis_mask{0} : axis_mask{0}}, form, step, next, level);
      form = next;
    }
    client_.renamed(i, form);
  }

  /// Brings `form`, a form of the operand of node `i`, to `to` by the steps of a written reshard. Returns the form of
  /// node `i`.
  constexpr int resharded(int i, int form, const sharding& to, int level) {
    const node& n = at(i);
    const mesh_info& on = *graph_.mesh;
    const sharding from = book_.layout_of(form);
    for_each_reshard_step(mesh_, on.request.network, n.shape, from, to, n.local_axes | on.automatic_axes, bytes_of(n.type),
                          [&](const sharding&, const reshard_step& taken_step) {
                            const bool is_last = taken_step.to.splits == to.splits && taken_step.to.partial == to.partial;
                            const int next_form =
                                is_last ? book_.add(graph_, i, taken_step.to) : book_.add_value(n.operands[0], taken_step.to);
                            client_.moved({i, 0}, form, taken_step, next_form, level);
                            form = next_form;
                          });
    return form;
  }

  constexpr void visit_operator(int i) {
    const node& n = at(i);
    const node_choice choice = client_.choice_for(i);
    inline_vec<int, max_map_arity> operands;
    for (int k = 0; k < n.operands.count; ++k)
      operands.push_back(
          bring(n.operands[k], client_.wanted(i, k), {i, (choice.forced >> k & 1U) != 0 ? choice.lost : axis_mask{0}}));
    const int movements = movements_of(n, choice.moved);
    int written = -1;  // the result of the previous movement; each movement writes into it
    for (int k = 0; k + 1 < movements; ++k) {
      const int next = book_.add_value(i, choice.result);
      client_.ran_movement(i, k, operands[k], written, next);
      written = next;
    }
    const int result = book_.add(graph_, i, choice.result);
    if (movements > 0) client_.ran_movement(i, movements - 1, operands[movements - 1], written, result);
    else client_.ran(i, choice, operands, result);
  }

  constexpr void copy_to(int result, int from, sharding layout, int user) {
    if (is_zero(at(from))) layout.partial = 0;  // zeros on every device are also partial zeros
    client_.copied(user, bring(from, layout, {user}), result);
  }
  constexpr void open_body(int i, int operand, int result) {
    book_.open.push_back(i);
    client_.opens(i, operand, result);
  }
  constexpr void close_body() {
    book_.close_body();
    client_.closes();
  }

  constexpr void visit_region(int i) {
    const node& n = at(i);
    const int start = book_.open.empty() ? -1 : book_.open.back();
    if (n.op == opcode::loop) {
      for (int k = i + 1; at(k).op == opcode::carry && at(k).region == i; ++k) {
        const sharding layout = client_.layout_of(k);
        const int carried = book_.add_value(k, layout);
        copy_to(carried, at(k).operands[0], layout, k);
        book_.name(graph_, k, carried);
      }
      const int counter = book_.add(graph_, i, {});
      client_.named(i, counter);
      open_body(i, -1, counter);
    } else if (n.op == opcode::branch) {
      open_body(i, bring(n.operands[0], {}, {i}), -1);
    } else if (n.op == opcode::otherwise) {
      int first = i + 1;
      while (!is_result_of(graph_, first, opcode::cond_result, i)) ++first;
      for (int k = first; is_result_of(graph_, k, opcode::cond_result, i); ++k) {
        const sharding layout = client_.layout_of(k);
        given_.push_back(book_.add_value(k, layout));
        copy_to(given_.back(), at(k).operands[1], layout, k);
      }
      close_body();
      open_body(i, -1, -1);
    } else if (n.op == opcode::loop_result && start >= 0 && is_result_of(graph_, i, opcode::loop_result, start)) {
      vec<int> carried, next;
      for (int k = i; is_result_of(graph_, k, opcode::loop_result, start); ++k) {
        carried.push_back(book_.first_of(at(k).operands[0]));
        next.push_back(bring(at(k).operands[1], sharding(book_.layout_of(carried.back())), {k}));
      }
      end_body(i, carried, next);
    } else if (n.op == opcode::cond_result && n.operands[0] == start) {
      int count = 0;
      while (is_result_of(graph_, i + count, opcode::cond_result, start)) ++count;
      const vec<int> results(given_.end() - count, given_.end());
      for (int k = 0; k < count; ++k) {
        if (const sharding layout = client_.layout_of(i + k); layout.partial != 0) book_.values[results[k]].layout = layout;
        copy_to(results[k], at(i + k).operands[2], book_.layout_of(results[k]), i + k);
      }
      end_body(i, results, {});
      given_.resize(given_.size() - static_cast<std::size_t>(count));
    }
  }
  /// Ends the body of a region. `results` are the values of node `i` and of the nodes after it, and exist from here on.
  /// The copies of `next` to them are adjacent, because the scheduler treats them as one.
  constexpr void end_body(int i, const vec<int>& results, const vec<int>& next) {
    for (std::size_t k = 0; k < next.size(); ++k) client_.copied(i + static_cast<int>(k), next[k], results[k]);
    client_.ends(i);
    close_body();
    for (std::size_t k = 0; k < results.size(); ++k) {
      book_.name(graph_, i + static_cast<int>(k), results[k]);
      client_.named(i + static_cast<int>(k), results[k]);
    }
  }

  const graph& graph_;
  const mesh_shape& mesh_;
  int saving_;
  const vec<std::uint8_t> gives_way_ = giving_way(graph_.nodes, saving_, 1, 0);  // inputs gathered again, at level 1
  form_book& book_;
  vec<int>& given_;  // results of the open conditionals
  Client& client_;
};

}  // namespace gspmd::detail
