// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <numeric>

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ir/row_work.hpp"
#include "gspmd/detail/passes/lower/recomputed_rows.hpp"
#include "gspmd/detail/passes/lower/step_state.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/tuning.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// The facts about rows that each listed kernel states.
struct row_facts {
  void (*find_rows)(const step_state& lowered, const plan_step& s, row_work& work);
  int (*take_rows)(step_state& lowered, plan_step& s, const row_part& part);  // returns how many dims fewer the bounds count
};
template <class Kernels>
struct row_facts_of;
template <class... K>
struct row_facts_of<mp11::mp_list<K...>> {
  static constexpr row_facts by_kernel[sizeof...(K)] = {{K::find_rows, K::take_rows}...};
};
inline constexpr row_facts no_row_facts{not_by_rows::find_rows, not_by_rows::take_rows};
constexpr const row_facts& row_facts_of_step(const plan_step& s) {
  const kernel_name& kernel = *s.kernel.name;
  return kernel.is_listed() ? row_facts_of<listed_kernels>::by_kernel[kernel.number] : no_row_facts;
}

/// Runs consecutive steps on blocks of rows of the same values. Each step finds the rows of the previous step in the
/// cache. A value that only these steps read has memory for one block.
///
///   softmax of [8192, 1024], along dim 1      rows [32, 1024]: largest elements, exp and its sums, quotients; and the
///                                             next 32 rows
///
/// Rows are indices of the first dims, along which no step reduces. A step reads the same elements in the same order
/// as without blocks, so the bits are the same. The last block may overlap the previous block; the shared rows are
/// computed twice. Steps are not blocked if their rows end early on some device, or if they count along the rows.
class row_blocker {
 public:
  constexpr explicit row_blocker(step_state& state) : s_(state), plan_(state.out) {}

  constexpr void run() {
    if (!is_worth_a_look()) return;
    find_uses();
    row_recomputer(s_, last_).run_everywhere();
    find_uses();
    const int count = static_cast<int>(plan_.steps.size());
    for (int i = 0; i < count;) {
      run_of_steps r = grow(i);
      bool is_worth = is_worth_it(r);
      if (is_worth && row_recomputer(s_, last_).run(r.begin, r.end)) {
        find_uses();
        r = grow(i);
        is_worth = is_worth_it(r);
      }
      if (is_worth) {
        runs_.push_back(r);
        i = r.end;
      } else {
        ++i;
      }
    }
    if (!runs_.empty()) rewrite();
  }

 private:
  struct touched_value {
    int root = 0;
    std::int64_t elems = 0;  // of all rows
    int touches = 0;
    bool is_made = false;
  };
  struct run_of_steps {
    int begin = 0, end = 0;  // steps
    std::int64_t rows = 0, at_once = 0;
    vec<touched_value> touched;
  };
  static constexpr int most_steps = 32;

  [[nodiscard]] constexpr int root(int v) const { return s_.base[v]; }
  [[nodiscard]] constexpr int slot(const table_range& range, int k) const { return plan_.slots[range.begin + k]; }
  [[nodiscard]] constexpr std::int64_t bytes_of_value(int v, std::int64_t elems) const {
    return saturating_multiply(elems, bytes_of(plan_.values[v].type));
  }

  [[nodiscard]] constexpr bool is_worth_a_look() const {
    for (const auto& s : plan_.steps)
      for (int k = 0; k < s.operands.count; ++k) {
        const int v = slot(s.operands, k);
        if (bytes_of_value(v, saturating_elements(plan_.values[v].local)) >= least_row_loop_bytes / 4) return true;
      }
    return false;
  }

  constexpr void find_uses() {
    last_ = vec<int>(plan_.values.size(), -1);
    lasting_ = last_;
    for (int i = 0; i < static_cast<int>(plan_.steps.size()); ++i)
      for (int k = 0; k < plan_.steps[i].operands.count; ++k) last_[root(slot(plan_.steps[i].operands, k))] = i;
    for (const int o : plan_.outputs) last_[root(o)] = static_cast<int>(plan_.steps.size());
  }

  [[nodiscard]] constexpr row_work work_of(const plan_step& s) const {
    row_work work;
    row_facts_of_step(s).find_rows(s_, s, work);
    if (work.rows < 2) return {};
    for (int k = 0; k < s.results.count; ++k) {
      const int v = slot(s.results, k);
      if (root(v) != v || work.made[k] != elements(plan_.values[v].local)) return {};
    }
    return work;
  }

  // ---- which steps go together ----

  static constexpr touched_value* find(vec<touched_value>& all, int root, std::int64_t elems) {
    for (auto& t : all)
      if (t.root == root && t.elems == elems) return &t;
    return nullptr;
  }
  static constexpr bool is_made(const vec<touched_value>& all, int root) {
    for (const auto& t : all)
      if (t.root == root && t.is_made) return true;
    return false;
  }
  [[nodiscard]] constexpr std::int64_t row_bytes(const vec<touched_value>& all, std::int64_t rows) const {
    std::int64_t bytes = 0;
    for (const auto& t : all) bytes = saturating_add(bytes, bytes_of_value(t.root, t.elems / rows));
    return bytes;
  }

  constexpr run_of_steps grow(int begin) const {
    run_of_steps r;
    r.begin = r.end = begin;
    for (int i = begin; i < static_cast<int>(plan_.steps.size()) && i < begin + most_steps; ++i) {
      const plan_step& s = plan_.steps[i];
      const row_work own = work_of(s);
      if (own.rows == 0 || s.times != plan_.steps[begin].times) break;
      const auto rows = i == begin ? own.rows : std::gcd(r.rows, own.rows);
      vec<touched_value> touched = r.touched;
      bool goes_along = i == begin, fits = rows > 1;
      for (int k = 0; k < s.operands.count && fits; ++k) {
        const int v = root(slot(s.operands, k));
        touched_value* known = find(touched, v, own.read[k]);
        fits = known != nullptr || !is_made(touched, v);
        if (own.read[k] == 0) continue;
        if (known == nullptr) {
          touched.push_back({v, own.read[k], 1, false});
        } else {
          goes_along = true;
          ++known->touches;
        }
      }
      for (int k = 0; k < s.results.count && fits; ++k) touched.push_back({slot(s.results, k), own.made[k], 1, true});
      if (!fits || !goes_along || row_bytes(touched, rows) > most_row_bytes) break;
      r.rows = rows;
      r.touched = std::move(touched);
      r.end = i + 1;
    }
    return r;
  }
  constexpr bool is_worth_it(run_of_steps& r) const {
    if (r.end - r.begin < 2) return false;
    std::int64_t all = 0, again = 0;
    for (const auto& t : r.touched) {
      const auto bytes = bytes_of_value(t.root, t.elems);
      all = saturating_add(all, bytes);
      again = saturating_add(again, saturating_multiply(bytes, t.touches - 1));
    }
    const auto row = row_bytes(r.touched, r.rows);
    if (all < least_blocked_bytes) {
      r.at_once = r.rows;
      return all >= least_row_loop_bytes && again >= all / 4 && row >= least_row_loop_bytes / 128;
    }
    if (again < least_blocked_bytes / 4) return false;
    auto most = blocked_bytes / (row < 1 ? 1 : row);
    if (most < 1) most = 1;
    if (most >= r.rows) return false;
    r.at_once = most;
    for (auto n = most; n > most / 2; --n)
      if (r.rows % n == 0) {
        r.at_once = n;
        break;
      }
    return true;
  }

  // ---- the steps on blocks ----

  constexpr int add_value(const planned_value& v, int base) {
    plan_.values.push_back(v);
    s_.base.push_back(base);
    return static_cast<int>(plan_.values.size()) - 1;
  }
  constexpr table_range add_slots(const vec<int>& values) {
    const table_range range{static_cast<int>(plan_.slots.size()), static_cast<int>(values.size())};
    for (const int v : values) plan_.slots.push_back(v);
    return range;
  }

  constexpr void move_bounds(plan_step& s, int merged) {
    const table_range bounds = s.bounds;
    s.bounds.begin = static_cast<int>(plan_.bounds.size());
    for (int b = bounds.begin; b < bounds.begin + bounds.count; ++b) {
      bound moved = plan_.bounds[b];
      moved.index = static_cast<std::int8_t>(moved.index - merged);
      plan_.bounds.push_back(moved);
    }
  }
  constexpr void take_rows(plan_step& s, const run_of_steps& r) {
    const int merged = row_facts_of_step(s).take_rows(s_, s, row_part{r.rows, r.at_once});
    if (merged != 0) move_bounds(s, merged);
  }

  /// Adds the value for the rows of a block: in separate memory, or, if all rows are stored, in the memory of value
  /// `place`.
  constexpr int rows_of(int v, std::int64_t elems, const run_of_steps& r, int counter, int place) {
    const planned_value whole = plan_.values[v];
    planned_value rows;
    rows.node = whole.node;
    rows.type = whole.type;
    rows.local = rows.global = extents(1, elems / r.rows * r.at_once);
    rows.step = whole.step;
    rows.whole = v;
    if (counter < 0) return add_value(rows, static_cast<int>(plan_.values.size()));
    rows.counter = counter;
    rows.row_bytes = bytes_of_value(v, elems / r.rows);
    return add_value(rows, root(place));
  }

  constexpr void rewrite() {
    const vec<plan_step> before = plan_.steps;
    const int count = static_cast<int>(before.size());
    vec<int> place(before.size() + 1, 0);
    for (std::size_t k = 0, next = 0, run = 0; k <= before.size(); ++k) {
      if (run < runs_.size() && static_cast<int>(k) == runs_[run].end) ++run, ++next;
      if (run < runs_.size() && static_cast<int>(k) == runs_[run].begin) ++next;
      place[k] = static_cast<int>(next++);
    }
    plan_.steps.clear();
    for (auto& v : plan_.values)
      if (v.step >= 0) v.step = place[static_cast<std::size_t>(v.step)];
    std::size_t next = 0;
    for (int i = 0; i < count;) {
      if (next < runs_.size() && runs_[next].begin == i) {
        i = add_run(runs_[next++], before);
        continue;
      }
      plan_.steps.push_back(before[i]);
      if (before[i].target >= 0) plan_.steps.back().target = place[static_cast<std::size_t>(before[i].target)];
      ++i;
    }
  }
  /// Returns true if some step of each block reads all rows of a value, including the rows of earlier blocks.
  [[nodiscard]] constexpr bool is_read_whole(int v, const run_of_steps& r, const vec<plan_step>& before) const {
    for (int i = r.begin; i < r.end; ++i) {
      row_work own;
      for (int k = 0; k < before[i].operands.count; ++k) {
        if (root(slot(before[i].operands, k)) != v) continue;
        if (own.rows == 0) own = work_of(before[i]);
        if (own.read[k] == 0) return true;
      }
    }
    return false;
  }
  /// Returns where the steps store a value that has no users after the run: in the memory of a lasting result of the
  /// last step that reads the value, if that step works in place. Then the cache lines of the result are loaded while
  /// the value is computed, not only in the last step. Returns -1 if there is no such result.
  [[nodiscard]] constexpr int lasting_place_of(const touched_value& t, const run_of_steps& r,
                                               const vec<plan_step>& before) const {
    const auto elems = elements(plan_.values[t.root].local);
    const int last = last_[t.root];
    if (!t.is_made || last < r.begin || last >= r.end || t.elems != elems || is_read_whole(t.root, r, before)) return -1;
    const plan_step& s = before[last];
    if (!facts_of(s).works_in_place(s)) return -1;
    vec<std::uint8_t> kept(static_cast<std::size_t>(s.operands.count), 0);
    facts_of(s).mark_kept(plan_view(plan_), s, kept.data());
    const auto fits = [&](int v) {
      return elements(plan_.values[v].local) == elems && bytes_of(plan_.values[v].type) == bytes_of(plan_.values[t.root].type);
    };
    int first = -1;  // only the first operand that could be stored there is
    for (int k = s.operands.count; k-- > 0;) {
      const int v = root(slot(s.operands, k));
      if (v == t.root && kept[k] != 0) return -1;
      if (fits(v) && last_[v] == last && is_made(r.touched, v)) first = v;
    }
    if (first != t.root) return -1;
    for (int k = 0; k < s.results.count; ++k)
      if (const int v = slot(s.results, k); last_[v] >= r.end && fits(v)) return v;
    return -1;
  }
  /// Returns true if a step writes to the memory of a lasting value of `bytes` bytes.
  [[nodiscard]] constexpr bool writes_lasting(const plan_step& s, std::int64_t bytes, const run_of_steps& r) const {
    for (int k = 0; k < s.results.count; ++k) {
      const int made = slot(s.results, k);
      if ((last_[made] >= r.end || lasting_[made] >= 0) && bytes_of_value(made, elements(plan_.values[made].local)) == bytes)
        return true;
    }
    return false;
  }
  /// Returns true if the memory of `v` can be overwritten during the run. The last step that reads `v` must run before
  /// all steps that write a lasting value of the same size. It may also be that step and write in place. No step may
  /// read `v` whole.
  [[nodiscard]] constexpr bool is_given_up(int v, const run_of_steps& r, const vec<plan_step>& before) const {
    const auto bytes = bytes_of_value(v, elements(plan_.values[v].local));
    int forms = 0;
    for (const auto& t : r.touched)
      if (t.root == v) forms += t.elems == elements(plan_.values[v].local) ? 1 : 2;
    if (forms != 1 || is_read_whole(v, r, before)) return false;
    for (int i = r.end; i-- > r.begin;) {
      const plan_step& s = before[i];
      bool reads = false;
      for (int k = 0; k < s.operands.count; ++k) reads = reads || root(slot(s.operands, k)) == v;
      if (!reads) continue;
      for (int earlier = r.begin; earlier < i; ++earlier)
        if (writes_lasting(before[earlier], bytes, r)) return false;
      if (!writes_lasting(s, bytes, r)) return true;
      if (!facts_of(s).works_in_place(s)) return false;
      vec<std::uint8_t> kept(static_cast<std::size_t>(s.operands.count), 0);
      facts_of(s).mark_kept(plan_view(plan_), s, kept.data());
      for (int k = 0; k < s.operands.count; ++k)
        if (root(slot(s.operands, k)) == v && kept[k] != 0) return false;
      return true;
    }
    return false;
  }
  /// Returns a mask with bit k set if taken[k] leaves the run: see is_given_up.
  [[nodiscard]] constexpr std::uint64_t given_up_of(const vec<int>& taken, const run_of_steps& r,
                                                    const vec<plan_step>& before) const {
    std::uint64_t bits = 0;
    for (std::size_t k = 0; k < taken.size() && k < 64; ++k)
      if (r.rows % r.at_once == 0 && is_given_up(taken[k], r, before)) bits |= std::uint64_t{1} << k;
    return bits;
  }
  /// Sets lasting_, unless a taken value would be kept longer: outputs must still be able to overwrite inputs. Returns
  /// given_up_of.
  constexpr std::uint64_t find_lasting_places(const vec<int>& taken, const run_of_steps& r, const vec<plan_step>& before) {
    const auto given_up = given_up_of(taken, r, before);
    bool is_any = false;
    for (const auto& t : r.touched)
      if (t.is_made) is_any = (lasting_[t.root] = lasting_place_of(t, r, before)) >= 0 || is_any;
    if (is_any && given_up_of(taken, r, before) != given_up)
      for (const auto& t : r.touched) lasting_[t.root] = -1;
    return given_up;
  }
  /// Adds the steps of a run with a first and a last step of its own. Returns the end of the run among the old steps.
  constexpr int add_run(const run_of_steps& r, const vec<plan_step>& before) {
    planned_value number;
    number.type = dtype::s64;
    number.node = plan_.values[slot(before[r.begin].results, 0)].node;
    number.step = static_cast<int>(plan_.steps.size());
    const int counter = add_value(number, static_cast<int>(plan_.values.size()));
    vec<int> taken, given(1, counter), rows;
    for (const auto& t : r.touched)
      if (!t.is_made || last_[t.root] >= r.end) (t.is_made ? given : taken).push_back(t.root);
    const auto given_up = find_lasting_places(taken, r, before);
    for (const auto& t : r.touched) {
      const int place = t.is_made ? lasting_[t.root] : -1;
      const bool stays = t.is_made && last_[t.root] < r.end && place < 0;
      rows.push_back(rows_of(t.root, t.elems, r, stays ? -1 : counter, place < 0 ? t.root : place));
    }
    const auto rows_in = [&](const table_range& whole, const vec<std::int64_t>& elems) {
      vec<int> slots;
      for (int k = 0; k < whole.count; ++k) {
        int v = slot(whole, k);
        for (std::size_t t = 0; t < r.touched.size(); ++t)
          if (r.touched[t].root == root(v) && r.touched[t].elems == elems[k]) {
            v = rows[t];
            break;
          }
        slots.push_back(v);
      }
      return slots;
    };
    const row_blocks blocks{r.rows, r.at_once, given_up};
    plan_step begin;
    begin.kernel = id_of<kernels::rows_begin>;
    begin.node = before[r.begin].node;
    begin.spec = entry_of(table_of<row_blocks>(plan_), blocks);
    begin.operands = add_slots(taken);
    begin.results = add_slots(given);
    begin.bounds.begin = static_cast<int>(plan_.bounds.size());
    begin.trips = (r.rows + r.at_once - 1) / r.at_once;
    begin.times = before[r.begin].times;
    begin.target = number.step + 1 + r.end - r.begin;
    plan_.steps.push_back(begin);
    for (int i = r.begin; i < r.end; ++i) {
      const row_work own = work_of(before[i]);
      plan_step s = before[i];
      s.operands = add_slots(rows_in(before[i].operands, own.read));
      s.results = add_slots(rows_in(before[i].results, own.made));
      s.times = saturating_multiply(s.times, begin.trips);
      take_rows(s, r);
      plan_.steps.push_back(s);
    }
    plan_step end;
    end.kernel = id_of<kernels::rows_end>;
    end.node = begin.node;
    end.times = begin.times;
    end.operands = end.results = {static_cast<int>(plan_.slots.size()), 0};
    end.bounds = begin.bounds;
    end.target = number.step;
    plan_.steps.push_back(end);
    return r.end;
  }

  step_state& s_;
  plan& plan_;
  vec<int> last_;     // by memory: the last step that reads it
  vec<int> lasting_;  // by value that a run makes: lasting_place_of
  vec<run_of_steps> runs_;
};

}  // namespace gspmd::detail
