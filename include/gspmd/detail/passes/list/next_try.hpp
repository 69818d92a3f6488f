// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/cut_axis.hpp"
#include "gspmd/detail/passes/list/save_memory.hpp"
#include "gspmd/detail/support/text.hpp"

/// A program is planned once, or again: on a mesh with an axis cut, or at a level of saving. After each try stands what comes next.
namespace gspmd::detail {

/// A try to plan a program: what it found.
struct planned_try {
  axis_cut cut;             // that its reshapes need; then the others are not looked at
  bool is_refused = false;  // for what it would send
  std::int64_t holds = 0;   // bytes on a device; looked at where the mesh has a limit
};

/// Where the search for the least that has to be given up stands. A level is tried as a whole; where that fits and is more than it takes, so many
/// inputs give way as fit by the bytes of each, and more where that was wrong.
struct saving_search {
  int saving = 0;          // what is tried (save_memory.hpp)
  std::int64_t more = 0;   // bytes on a device with less given up, which is too little
  int count = 0;           // inputs that gave way there
  std::int64_t fewer = 0;  // bytes with all of the level given up, which fits
  int tries = 0;           // with some of them
};
inline constexpr int most_tries_with_some = 4;

/// The number of inputs, the cheapest first, that have to give way for `most` bytes, by what it was with `count` of them and with all: those
/// between save in proportion to their bytes.
constexpr int count_that_fits(span<const node> nodes, const saving_search& s, std::int64_t most) {
  const vec<int> inputs = cheapest_inputs(nodes, saving_level(s.saving), most);
  const auto bytes = [&](std::size_t k) {
    const node& n = nodes[static_cast<std::size_t>(inputs[k])];
    return static_cast<double>(bounded_bytes(n.shape, bytes_of(n.type)));
  };
  double all = 0, sum = 0;
  for (auto k = static_cast<std::size_t>(s.count); k < inputs.size(); ++k) all += bytes(k);
  const double wanted = all * static_cast<double>(s.more - most) / static_cast<double>(s.more - s.fewer);
  auto k = static_cast<std::size_t>(s.count);
  while (k < inputs.size() && (sum < wanted || k == static_cast<std::size_t>(s.count))) sum += bytes(k++);
  return k < inputs.size() ? static_cast<int>(k) : 0;
}

struct next_try {
  enum class way : std::uint8_t { none, on_cut_mesh, saving_more } is;
  bool was_best;         // the one that was looked at, of those so far
  saving_search search;  // of the next
};

/// Returns what comes after a try; `least`: what the best one of those before it holds. Both paths read this: the compiler goes from type to
/// type, the run time from value to value.
///
///   an axis to cut                                        the same on the mesh with that cut
///   more than a device may hold, and not all is saved     the next level; a refused one is passed over, but for the first
///   all of a level 1 or 2, which fits                     some of it, while there is a number of inputs between what did not fit and all
///   else                                                  nothing
constexpr next_try after(const planned_try& t, const plan_request& request, std::int64_t least, saving_search s,
                         span<const node> nodes) {
  if (t.cut.axis >= 0) return {next_try::way::on_cut_mesh, false, s};
  const std::int64_t most = request.most_memory;
  const int level = saving_level(s.saving);
  if (most <= 0 || (level == 0 && t.is_refused)) return {next_try::way::none, true, s};
  const bool fits = !t.is_refused && t.holds <= most;
  const auto try_some = [&](bool was_best) -> next_try {
    const int count = s.tries < most_tries_with_some ? count_that_fits(nodes, s, most) : 0;
    ++s.tries;
    s.saving = level + 8 * count;
    return {count > 0 ? next_try::way::saving_more : next_try::way::none, was_best, s};
  };
  if (inputs_giving_way(s.saving) > 0) {
    if (fits) return {next_try::way::none, true, s};
    if (!t.is_refused && t.holds > s.fewer) s.more = t.holds;
    s.count = inputs_giving_way(s.saving);
    return try_some(false);
  }
  const bool is_best = level == 0 || (!t.is_refused && t.holds < least);
  if ((is_best ? t.holds : least) > most) {
    if (!t.is_refused) s.more = t.holds;
    s.saving = level + 1;
    return {level < most_saving ? next_try::way::saving_more : next_try::way::none, is_best, s};
  }
  if (!fits || level < 1 || level > 2 || s.more <= most) return {next_try::way::none, is_best, s};
  s.fewer = t.holds;
  return try_some(is_best);
}

/// Why no plan fits.
constexpr text too_large(std::int64_t least, std::int64_t most) {
  return text("a device holds ") << least << " bytes, inputs, outputs and what is between them, in the plan that holds least; "
                                 << most << " are allowed: split more of the inputs, or use more devices";
}

}  // namespace gspmd::detail
