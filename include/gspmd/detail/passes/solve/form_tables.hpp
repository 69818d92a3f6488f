// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "gspmd/detail/passes/choose/reshard.hpp"
#include "gspmd/detail/passes/solve/pair_problem.hpp"

namespace gspmd::detail {

/// Prices as costs of a pair_problem. Prices above `most` are cut to it, and all prices are divided by 2^shift, so that
/// the sum of all costs fits into 64 bits. A plan whose time is known gives `most`: a plan with a larger price is
/// worse.
struct price_scale {
  std::int64_t most = 0;
  int shift = 0;
  constexpr explicit price_scale(std::int64_t known_time) : most(add_times(known_time, 1)) {
    while (most >> shift > (std::int64_t{1} << 44)) ++shift;
  }
  [[nodiscard]] constexpr std::int64_t cost_of(std::int64_t time) const { return (time < most ? time : most) >> shift; }
  [[nodiscard]] constexpr std::int64_t time_of(std::int64_t cost) const { return cost << shift; }
};

/// The forms of values and the prices of reshards between forms, as maps and tables of a pair_problem. Values with the
/// same shape and element type share both.
class form_tables {
 public:
  constexpr form_tables(const mesh_shape& mesh, const network_rates& net, const price_scale& scale, pair_problem& problem)
      : mesh_(mesh), net_(net), scale_(scale), problem_(problem) {}

  /// The form of a value in each state of a variable.
  struct port {
    int kind = 0;
    vec<int> forms;  // distinct, by row of a table: numbers of forms of the kind
    int map = 0;     // by state: the row
  };

  [[nodiscard]] constexpr int kind_of(const extents& shape, std::int64_t elem_bytes) {
    for (std::size_t k = 0; k < kinds_.size(); ++k)
      if (kinds_[k].elem_bytes == elem_bytes && kinds_[k].shape == shape) return static_cast<int>(k);
    kind made;
    made.shape = shape;
    made.elem_bytes = elem_bytes;
    kinds_.push_back(std::move(made));
    return static_cast<int>(kinds_.size()) - 1;
  }
  /// Returns the port of a variable whose states give values of `of_kind` these forms. Equal ports have one number.
  [[nodiscard]] constexpr int add_port(int of_kind, const vec<sharding>& by_state) {
    port made;
    made.kind = of_kind;
    vec<int> map;
    for (const auto& s : by_state) {
      const int form = number_of(kinds_[of_kind], s);
      int row = 0;
      while (row < static_cast<int>(made.forms.size()) && made.forms[row] != form) ++row;
      if (row == static_cast<int>(made.forms.size())) made.forms.push_back(form);
      map.push_back(row);
    }
    for (std::size_t p = 0; p < ports_.size(); ++p)
      if (const port& other = ports_[p];
          other.kind == of_kind && is_same(other.forms, made.forms) && is_same(problem_.maps[other.map], map))
        return static_cast<int>(p);
    made.map = static_cast<int>(problem_.maps.size());
    problem_.maps.push_back(std::move(map));
    ports_.push_back(std::move(made));
    return static_cast<int>(ports_.size()) - 1;
  }
  [[nodiscard]] constexpr const port& at(int p) const { return ports_[p]; }
  [[nodiscard]] constexpr const sharding& form(int p, int state) const {
    const port& of = ports_[p];
    return kinds_[of.kind].forms[of.forms[problem_.maps[of.map][state]]];
  }
  /// Returns the distinct forms of several ports of the same kind.
  [[nodiscard]] constexpr vec<sharding> forms_of(const vec<int>& ports) const {
    vec<int> numbers;
    for (const int p : ports)
      for (const int f : ports_[p].forms) {
        bool is_known = false;
        for (const int other : numbers) is_known = is_known || other == f;
        if (!is_known) numbers.push_back(f);
      }
    vec<sharding> forms;
    for (const int f : numbers) forms.push_back(kinds_[ports_[ports[0]].kind].forms[f]);
    return forms;
  }
  /// The number of executions of a reshard, and the number of edges that share its price.
  struct share {
    std::int64_t times = 1, shared_by = 1;
    friend constexpr bool operator==(const share&, const share&) = default;
  };
  /// Adds the edge for the reshards from the forms of variable `from` to the forms of variable `to`. Adds nothing if
  /// all prices are 0.
  constexpr void add_edge(int from, int from_port, int to, int to_port, const share& part) {
    const bool is_backward = from > to;  // to the value that a loop carries
    const int table = table_of(from_port, to_port, part, is_backward);
    if (table < 0) return;
    const int from_map = ports_[from_port].map, to_map = ports_[to_port].map;
    is_backward ? problem_.add_edge(to, from, to_map, from_map, table) : problem_.add_edge(from, to, from_map, to_map, table);
  }
  /// The same for a variable that needs two forms. Both are made from the form that makes the sum of the prices least.
  constexpr void add_double_edge(int from, int from_port, int to, int first, int second, const share& part) {
    const port &made = ports_[from_port], &a = ports_[first], &b = ports_[second];
    kind& of = kinds_[made.kind];
    pair_problem::cost_table table{static_cast<int>(made.forms.size()), static_cast<int>(problem_.maps[a.map].size()), {}};
    for (const int m : made.forms)
      for (int x = 0; x < table.column_count; ++x) {
        const int one = a.forms[problem_.maps[a.map][x]], other = b.forms[problem_.maps[b.map][x]];
        std::int64_t least = most_picoseconds;
        for (const auto* const forms : {&made.forms, &a.forms, &b.forms})
          for (const int f : *forms) {
            const auto time = add_times(price_of(of, m, f), add_times(price_of(of, f, one), price_of(of, f, other)));
            least = time < least ? time : least;
          }
        table.of.push_back(scale_.cost_of(multiply_time(least, part.times)) / part.shared_by);
      }
    vec<int> map;
    for (int x = 0; x < table.column_count; ++x) map.push_back(x);
    problem_.maps.push_back(std::move(map));
    problem_.tables.push_back(std::move(table));
    problem_.add_edge(from, to, made.map, static_cast<int>(problem_.maps.size()) - 1,
                      static_cast<int>(problem_.tables.size()) - 1);
  }

 private:
  struct kind {
    extents shape;
    std::int64_t elem_bytes = 0;
    vec<sharding> forms;
    vec<vec<std::int64_t>> prices;  // by form, by form; -1: not computed
  };
  struct known_table {
    int from = 0, to = 0;
    share part;
    bool is_backward = false;
    int table = -1;  // -1: all prices are 0
  };

  static constexpr bool is_same(const vec<int>& a, const vec<int>& b) {
    bool is_equal = a.size() == b.size();
    for (std::size_t k = 0; k < a.size() && is_equal; ++k) is_equal = a[k] == b[k];
    return is_equal;
  }
  static constexpr int number_of(kind& k, const sharding& s) {
    for (std::size_t f = 0; f < k.forms.size(); ++f)
      if (k.forms[f] == s) return static_cast<int>(f);
    k.forms.push_back(s);
    k.prices.push_back({});
    return static_cast<int>(k.forms.size()) - 1;
  }
  constexpr std::int64_t price_of(kind& k, int from, int to) {
    auto& row = k.prices[from];
    if (static_cast<int>(row.size()) <= to) row.resize(k.forms.size(), -1);
    if (row[to] < 0) {
      std::int64_t time = 0;
      for_each_step(mesh_, net_, k.shape, k.forms[from], k.forms[to], k.elem_bytes,
                    [&](const sharding& at, const reshard_step& step) {
                      const auto bytes = step_bytes(mesh_, k.shape, at, step, k.elem_bytes);
                      time = add_times(time, step_time(mesh_, net_, k.shape, at, step, bytes));
                    });
      row[to] = time;
    }
    return row[to];
  }
  constexpr int table_of(int from, int to, const share& part, bool is_backward) {
    for (std::size_t k = known_.size(); k-- > 0;)
      if (const known_table& t = known_[k]; t.from == from && t.to == to && t.part == part && t.is_backward == is_backward)
        return t.table;
    const vec<int>&row_forms = ports_[is_backward ? to : from].forms, &column_forms = ports_[is_backward ? from : to].forms;
    pair_problem::cost_table made{static_cast<int>(row_forms.size()), static_cast<int>(column_forms.size()), {}};
    bool is_free = true;
    for (const int a : row_forms)
      for (const int b : column_forms) {
        kind& of = kinds_[ports_[from].kind];
        const auto price = multiply_time(is_backward ? price_of(of, b, a) : price_of(of, a, b), part.times);
        made.of.push_back(scale_.cost_of(price) / part.shared_by);
        is_free = is_free && made.of.back() == 0;
      }
    known_table entry{from, to, part, is_backward, -1};
    if (!is_free) {
      entry.table = static_cast<int>(problem_.tables.size());
      problem_.tables.push_back(std::move(made));
    }
    known_.push_back(entry);
    return entry.table;
  }

  const mesh_shape& mesh_;
  const network_rates& net_;
  price_scale scale_;
  pair_problem& problem_;
  vec<kind> kinds_;
  vec<port> ports_;
  vec<known_table> known_;
};

}  // namespace gspmd::detail
