// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "gspmd/detail/passes/choose/loop_sums.hpp"
#include "gspmd/detail/passes/solve/form_tables.hpp"
#include "gspmd/detail/passes/solve/operator_kinds.hpp"

namespace gspmd::detail {

/// The choice of shardings of a whole program as a pair_problem.
///
/// Input: the graph, the mesh with its network, and the shardings of completion, which annotated values and inputs
/// keep. Result: `problem`, and the meaning of its variables.
///
/// 1. An operator is a variable. Its states are the ways to run it (operator_ways.hpp), and its costs their own times.
/// 2. An input is a variable with one form, or with all forms if it is not annotated. An annotated reshard or output is
///    a variable with one form that reads its operand. An output without annotation has all forms without partial axes.
/// 3. A value with one user is an edge between the operator that makes it and this user. The costs are the reshards
///    from each form that is made to each form that is needed.
/// 4. Two users of a value share reshards. The value gets a variable for a form that serves both users:
///        made -> form, form -> first user, form -> second user.
///    This is exact, because the cheapest tree to two ends branches once.
/// 5. If a value has n > 2 users, each pair of consecutive users (and the last with the first) gets this variable, and
///    each price is divided by n. The sum is at most the price of the cheapest tree to all users, since each of its n
///    parts is the price of a tree to two users, divided by n. So the problem gives a lower bound.
/// 6. A value that is_made_again, such as a broadcast, is a separate variable for each user.
/// 7. A value that a loop carries is a variable. Prices in loops count once per iteration.
///
/// The problem leaves out: joined and overlapped collectives, and the memory of a device.
class program_problem {
 public:
  constexpr program_problem(const graph& g, const mesh_shape& mesh, const plan_request& request, const value_uses& uses,
                            span<const sharding> preferred, const price_scale& scale, bool is_star = false)
      : is_star_(is_star),
        book_(g),
        known_{g, mesh, request, uses, preferred, book_},
        scale_(scale),
        tables_(mesh, request.network, scale, problem) {
    const auto count = g.nodes.size();
    made_.resize(count, maker{});
    partial_.resize(count, partial_forms{});
    users_of_.resize(count, vec<end_point>{});
    copies_of_.resize(count, vec<int>{});
    way_of.resize(count, -1);
    times_.resize(count, 1);
    is_sum_.resize(count, 0);
    for (int i = 0; i < static_cast<int>(count); ++i) {
      const node& n = known_.at(i);
      if (facts_of(n.op).made == origin::renamed) book_.roots[i] = book_.roots[n.operands[0]];
      for (int r = n.region; r >= 0; r = known_.at(r).region)
        if (known_.at(r).op == opcode::loop && known_.at(r).integer > 1)
          times_[i] = multiply_time(times_[i], known_.at(r).integer);
      if (n.region < 0) continue;
      if (const int carry = summed_up_by(g, uses, i).carry; carry >= 0) is_sum_[carry] = 1;
    }
  }
  program_problem(const program_problem&) = delete;
  program_problem& operator=(const program_problem&) = delete;

  /// Returns true if the problem describes the program: it has no types, no local views, no policies for communication,
  /// no values with a common sharding (shard_alike) and no limit of the memory. A loop must not add a value that a
  /// conditional replaces by 0.
  static constexpr bool is_supported(const graph& g, const plan_request& request) {
    if (g.states_communication() || request.saving > 0 || request.most_memory > 0) return false;
    for (const auto& n : g.nodes) {
      const auto& facts = facts_of(n.op);
      const bool has_policy = n.forbid_reshard || n.gather_limit >= 0 || n.keep_split || n.keep_partial;
      const bool is_alike = facts.made == origin::renamed && facts.reads(n) < n.operands.count;
      if (has_policy || is_alike || (n.local_axes | n.annotation.closed) != 0 || facts.made == origin::viewed ||
          (n.region >= 0 && operand_or_zero(g, n) >= 0))
        return false;
    }
    return true;
  }

  pair_problem problem;
  bool has_trees = false;  // a value has more than two users
  vec<int> way_of;         // by node: the variable of its operator; -1: none

  constexpr void build() {
    const graph& g = known_.program;
    for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i)
      if (known_.uses.needed[i] != 0 || facts_of(known_.at(i).op).made == origin::given) add_node(i);
    for (const int o : g.outputs) add_output(o);
    for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
      connect_users(i);
      share_work(i);
    }
    number_variables();
  }

  /// Returns true if variable `v` of the problem is an operator, an input or an output.
  [[nodiscard]] constexpr bool is_way(int v) const { return problem.variables[v].states > 1; }
  /// Returns the way to run node `i` in a solution.
  [[nodiscard]] constexpr const operator_use& way(int i, const vec<int>& states) const {
    return kinds_[variables_[way_of[i]].kind].ways.of[states[place_[way_of[i]]]];
  }
  /// Returns the preferred shardings of all values in a solution: the form that serves the users of the value.
  [[nodiscard]] constexpr vec<sharding> preferred(const vec<int>& states) const {
    vec<sharding> list(known_.preferred.data(), known_.preferred.data() + known_.preferred.size());
    const graph& g = known_.program;
    for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
      const node& n = known_.at(i);
      if (n.annotated || book_.roots[i] != i) continue;
      const auto& users = users_of_[i];
      sharding found = list[i];
      const bool is_made = made_[i].variable >= 0;
      if (is_made) found = tables_.form(made_[i].port, states[place_[made_[i].variable]]);
      else if (way_of[i] >= 0) found = way(i, states).result;
      else continue;
      if (facts_of(n.op).made != origin::given && !users.empty()) {
        const sharding needed = tables_.form(users[0].port, states[place_[users[0].variable]]);
        if (users.size() == 1 || found.partial != 0) found = needed;
      }
      list[i] = found;
    }
    for (std::size_t k = 0; k < outputs_.size(); ++k)
      if (outputs_[k].node >= 0) {
        sharding& of = list[outputs_[k].node];
        of = tables_.form(outputs_[k].end.port, states[place_[outputs_[k].end.variable]]);
      }
    return list;
  }

 private:
  /// A variable, and the port of a value of the variable.
  struct end_point {
    int variable = -1, port = -1;
  };
  using maker = end_point;
  static constexpr std::int64_t step = 64;  // between the positions of two nodes, for the variables between them
  struct free_output {
    int node = -1;
    end_point end;
  };
  struct new_variable {
    std::int64_t position = 0;  // a variable is after the variables that it reads
    int kind = -1;              // of its operator; -1: it is a value
    vec<std::int64_t> costs;
    int states = 0;
  };
  struct new_edge {
    end_point from, to;
    form_tables::share part;
    int second_port = -1;  // of `to`, if it needs two forms
  };

  // ---- nodes ----

  constexpr void add_node(int i) {
    const node& n = known_.at(i);
    switch (facts_of(n.op).made) {
      case origin::given: return add_input(i);
      case origin::renamed:
        if (n.annotated && !book_.defers(n)) add_fixed_user(i, known_.preferred_of(i), step * i);
        return;
      case origin::shards:
        if (!facts_of(n.op).is_made_again(n)) made_[i] = {add_operator(i, step * i), -1};
        if (made_[i].variable >= 0) note_results(i);
        return;
      case origin::region: return add_region_value(i);
      case origin::source:
      case origin::result:
      case origin::viewed: return;
    }
  }
  /// Adds a value that a loop carries, a result of a loop or a conditional, or the predicate of a conditional. A
  /// carried value has one form in all iterations, which its result keeps.
  constexpr void add_region_value(int i) {
    const node& n = known_.at(i);
    const std::int64_t position = step * i;
    if (n.op == opcode::branch)
      return add_user(book_.roots[n.operands[0]], add_value(n.operands[0], {sharding{}}, position), position);
    if (n.op == opcode::carry) {
      auto forms = n.annotated ? vec<sharding>{known_.preferred_of(i)} : all_forms(i);
      for (std::size_t k = 0, count = forms.size(); k < count && is_sum_[i] != 0; ++k)
        for (axis_mask axes = known_.mesh.wide_axes() & ~forms[k].split_axes(), some = axes; some != 0;
             some = (some - 1) & axes) {
          sharding sum = forms[k];
          sum.partial = some;
          forms.push_back(sum);
          note_partial(i, sum);
        }
      made_[i] = add_value(i, forms, position);
      return add_user(book_.roots[n.operands[0]], made_[i], position);
    }
    if (n.op == opcode::loop_result) {
      made_[i] = made_[n.operands[0]];
      partial_[i] = partial_[n.operands[0]];
      return add_user(book_.roots[n.operands[1]], made_[i], position);
    }
    if (n.op != opcode::cond_result) return;
    made_[i] = add_value(i, n.annotated ? vec<sharding>{known_.preferred_of(i)} : all_forms(i), position);
    for (int k = 1; k <= 2; ++k) add_user(book_.roots[n.operands[k]], made_[i], position);
  }
  constexpr void note_partial(int i, const sharding& s) {
    const partial_form form{s.partial, s.reduced_by};
    bool is_known = s.partial == 0;
    for (const auto& other : partial_[i]) is_known = is_known || other == form;
    if (!is_known && partial_[i].count < partial_forms::capacity) partial_[i].push_back(form);
  }
  constexpr void add_input(int i) {
    const node& n = known_.at(i);
    const bool is_free = !n.annotated && n.state < 0;
    note_partial(i, known_.preferred_of(i));
    made_[i] = add_value(i, is_free ? all_forms(i) : vec<sharding>{known_.preferred_of(i)}, step * i);
  }
  constexpr void note_results(int i) {
    const operator_kind& of = kinds_[variables_[made_[i].variable].kind];
    for (int r = 0; r < known_.at(i).results; ++r) {
      made_[i + r] = {made_[i].variable, of.results[r]};
      for (const auto& way : of.ways.of) note_partial(i + r, kinds_.result(i, way, r));
    }
  }
  /// Adds an output of node `o`.
  constexpr void add_output(int o) {
    const node& n = known_.at(o);
    const int root = book_.roots[o];
    const std::int64_t end = step * static_cast<std::int64_t>(known_.program.nodes.size());
    sharding whole = known_.preferred_of(o);
    whole.partial = 0;
    const bool is_free = !n.annotated && n.state < 0 && root == o && facts_of(n.op).made != origin::given;
    if (!is_free) return add_fixed_user(o, whole, end);
    auto forms = all_forms(o);
    if (made_[o].variable >= 0)
      for (const auto& form : tables_.forms_of({made_[o].port})) {
        bool is_known = form.partial != 0;
        for (const auto& other : forms) is_known = is_known || other == form;
        if (!is_known) forms.push_back(form);
      }
    const end_point made = add_value(o, forms, end);
    add_user(root, made, end);
    outputs_.push_back({o, made});
  }
  constexpr void add_fixed_user(int i, const sharding& needed, std::int64_t position) {
    add_user(book_.roots[i], add_value(i, {needed}, position), position);
  }

  /// Adds the variable of a way to run node `i`. Returns its number.
  constexpr int add_operator(int i, std::int64_t position) {
    const node& n = known_.at(i);
    inline_vec<partial_forms, max_map_arity> partial;
    for (const int o : n.operands) partial.push_back(partial_[book_.roots[o]]);
    const int kind = kinds_.add(i, partial);
    vec<std::int64_t> costs;
    for (const auto time : kinds_[kind].ways.times) costs.push_back(scale_.cost_of(multiply_time(time, times_[i])));
    variables_.push_back({position, kind, std::move(costs), static_cast<int>(kinds_[kind].ways.of.size())});
    const int variable = static_cast<int>(variables_.size()) - 1;
    const int reads = facts_of(n.op).reads(n);
    for (int k = 0; k < n.operands.count && k < reads; ++k) {
      bool is_again = false;  // x * x reads one form
      for (int o = 0; o < k; ++o)
        is_again = is_again || (book_.roots[n.operands[o]] == book_.roots[n.operands[k]] &&
                                kinds_[kind].operands[o] == kinds_[kind].operands[k]);
      if (!is_again) add_user(book_.roots[n.operands[k]], {variable, kinds_[kind].operands[k]}, position);
    }
    way_of[i] = variable;
    return variable;
  }
  /// Registers a user of a value. A value that is_made_again gets a variable for this user.
  constexpr void add_user(int root, const end_point& user, std::int64_t position) {
    const node& n = known_.at(root);
    if (facts_of(n.op).made == origin::shards && facts_of(n.op).is_made_again(n)) {
      if (is_from_sources(root)) return;
      const int copy = add_operator(root, position - 1);
      copies_of_[root].push_back(copy);
      edges_.push_back({{copy, kinds_[variables_[copy].kind].results[0]}, user, {times_[root], 1}});
      users_of_[root].push_back(user);
      return;
    }
    users_of_[root].push_back(user);
  }
  /// Returns true if every device computes the value from constants.
  [[nodiscard]] constexpr bool is_from_sources(int i) const {
    for (int steps = 0; steps < 16; ++steps) {
      i = book_.roots[i];
      const node& n = known_.at(i);
      if (facts_of(n.op).made == origin::source) return true;
      if (facts_of(n.op).made != origin::shards || !facts_of(n.op).is_made_again(n) || n.operands.count != 1) return false;
      i = n.operands[0];
    }
    return false;
  }
  /// Adds a variable for these forms of value `of`.
  constexpr end_point add_value(int of, const vec<sharding>& forms, std::int64_t position) {
    return {add_states(static_cast<int>(forms.size()), position), tables_.add_port(kinds_.kind_of_value(of), forms)};
  }
  /// Returns all shardings of node `i` without partial axes, the smallest shards first.
  [[nodiscard]] constexpr vec<sharding> all_forms(int i) const {
    auto list = all_shardings(known_.mesh, known_.shape_of(i), known_.preferred_of(i));
    const auto elems = [&](const sharding& s) { return local_elements(known_.mesh, known_.shape_of(i), s); };
    for (std::size_t k = 1; k < list.size(); ++k)
      for (std::size_t j = k; j > 0 && elems(list[j]) < elems(list[j - 1]); --j) std::swap(list[j], list[j - 1]);
    return list;
  }

  // ---- values ----

  constexpr void connect_users(int i) {
    const auto& users = users_of_[i];
    const maker& made = made_[i];
    if (made.variable < 0 || users.empty()) return;
    const auto count = users.size();
    if (count == 1) {
      edges_.push_back({made, users[0], {times_[i], 1}});
      return;
    }
    if (count == 2 && users[0].variable == users[1].variable) {  // x * transpose(x)
      edges_.push_back({made, users[0], {times_[i], 1}, users[1].port});
      return;
    }
    has_trees = has_trees || count > 2;
    if (is_star_) {
      const end_point form = add_form(i, made, users);
      edges_.push_back({made, form, {times_[i], 1}});
      for (const auto& user : users) edges_.push_back({form, user, {times_[i], 1}});
      return;
    }
    const form_tables::share part{times_[i], count == 2 ? 1 : static_cast<std::int64_t>(count)};
    for (std::size_t u = 0; u < (count == 2 ? 1 : count); ++u) {
      const end_point &a = users[u], &b = users[(u + 1) % count];
      const end_point form = add_form(i, made, {a, b});
      edges_.push_back({made, form, part});
      edges_.push_back({form, a, part});
      edges_.push_back({form, b, part});
    }
  }
  /// Adds the variable for the form of node `i` that serves these users.
  constexpr end_point add_form(int i, const end_point& made, const vec<end_point>& users) {
    vec<int> ports{made.port};
    for (const auto& user : users) {
      bool is_known = false;
      for (const int p : ports) is_known = is_known || p == user.port;
      if (!is_known) ports.push_back(user.port);
    }
    int found = -1;
    for (int f = 0; f < static_cast<int>(forms_.size()); ++f) {
      bool is_same = forms_[f].ports.size() == ports.size();
      for (std::size_t k = 0; k < ports.size() && is_same; ++k) is_same = forms_[f].ports[k] == ports[k];
      if (is_same) found = f;
    }
    if (found < 0) {
      const auto forms = tables_.forms_of(ports);
      known_form made_now;
      made_now.port = tables_.add_port(kinds_.kind_of_value(i), forms);
      made_now.states = static_cast<int>(forms.size());
      made_now.ports = std::move(ports);
      found = static_cast<int>(forms_.size());
      forms_.push_back(std::move(made_now));
    }
    return {add_states(forms_[found].states, variables_[made.variable].position + 1), forms_[found].port};
  }
  constexpr int add_states(int states, std::int64_t position) {
    new_variable v;
    v.position = position;
    v.states = states;
    v.costs.resize(static_cast<std::size_t>(states), 0);
    variables_.push_back(std::move(v));
    return static_cast<int>(variables_.size()) - 1;
  }
  struct known_form {
    vec<int> ports;  // of the operator that makes the value, and of its users
    int port = 0, states = 0;
  };

  /// Lets the copies of a value that is_made_again share the least work of all ways. The value is computed once, in a
  /// way that need not be the way of any copy.
  constexpr void share_work(int i) {
    const auto& copies = copies_of_[i];
    if (copies.size() < 2) return;
    const auto costs = variables_[copies[0]].costs;
    std::int64_t least = costs[0];
    for (const auto cost : costs) least = cost < least ? cost : least;
    for (const int c : copies)
      for (auto& cost : variables_[c].costs) cost = least / static_cast<std::int64_t>(copies.size());
  }
  /// Numbers the variables by position, and adds them and their edges to the problem.
  constexpr void number_variables() {
    const auto count = variables_.size();
    vec<int> order, sorted(count, 0);
    for (int v = 0; v < static_cast<int>(count); ++v) order.push_back(v);
    for (std::size_t width = 1; width < count; width *= 2) {  // a stable merge sort
      for (std::size_t begin = 0; begin < count; begin += 2 * width) {
        const std::size_t middle = begin + width < count ? begin + width : count;
        const std::size_t end = begin + 2 * width < count ? begin + 2 * width : count;
        std::size_t a = begin, b = middle;
        for (std::size_t k = begin; k < end; ++k) {
          const bool is_first = b == end || (a < middle && variables_[order[a]].position <= variables_[order[b]].position);
          sorted[k] = order[is_first ? a++ : b++];
        }
      }
      std::swap(order, sorted);
    }
    place_.resize(count, 0);
    for (const int v : order) place_[v] = problem.add_variable(variables_[v].costs);
    for (const auto& e : edges_) {
      const int from = place_[e.from.variable], to = place_[e.to.variable];
      e.second_port < 0 ? tables_.add_edge(from, e.from.port, to, e.to.port, e.part)
                        : tables_.add_double_edge(from, e.from.port, to, e.to.port, e.second_port, e.part);
    }
    problem.connect();
  }

  bool is_star_;    // all users of a value are served from one form: no lower bound, but close to real plans
  form_book book_;  // has no forms: states which values have the same forms
  form_prices known_;
  price_scale scale_;
  form_tables tables_;
  operator_kinds kinds_{known_, tables_};
  vec<maker> made_;               // by node
  vec<std::int64_t> times_;       // by node: the iterations of the loops around it
  vec<std::uint8_t> is_sum_;      // by node: a carried value that the loop only adds to (loop_sums.hpp)
  vec<partial_forms> partial_;    // by node
  vec<vec<end_point>> users_of_;  // by root
  vec<vec<int>> copies_of_;       // by node that is_made_again: its variables
  vec<new_variable> variables_;
  vec<new_edge> edges_;
  vec<known_form> forms_;
  vec<free_output> outputs_;
  vec<int> place_;  // by variable: its number in the problem
};

}  // namespace gspmd::detail
