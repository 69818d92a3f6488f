// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string>
#include <vector>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/detail/passes/choose/reshard.hpp"
#include "gspmd/detail/support/text.hpp"
#include "support/collective_oracle.hpp"
#include "support/graph_builder.hpp"
#include "support/layouts.hpp"

/// All shardings of a shape on a mesh, and the cheapest path between each pair of shardings by exhaustive search. The
/// planner's paths are compared with these paths.
namespace reshards {

using namespace layouts;

inline bool is_complete_run() { return std::getenv("GSPMD_ALL_RESHARDS") != nullptr; }

// ---- a reference that only uses which device holds which elements
// ----------------------------------------------------------

using element_set = std::vector<std::uint64_t>;

/// Follows the definition: the axes of a dim are digits, major to minor, of the number of a part of the rounded-up
/// extent.
inline std::vector<element_set> held_by_devices(const mesh_shape& mesh, const extents& global, const sharding& s) {
  const auto count = static_cast<std::size_t>(elements(global));
  std::vector<element_set> result;
  for (int device = 0; device < mesh.device_count(); ++device) {
    const auto at = mesh.coordinates_of(device);
    element_set set((count + 63) / 64, 0);
    for (std::size_t e = 0; e < count; ++e) {
      auto rest = static_cast<std::int64_t>(e);
      bool held = true;
      for (int d = global.count - 1; d >= 0; --d) {
        const auto index = rest % global[d];
        rest /= global[d];
        std::int64_t parts = 1, part = 0;
        for (const auto& use : s.splits)
          if (use.dim == d) {
            part = part * mesh.sizes[use.axis] + at[use.axis];
            parts *= mesh.sizes[use.axis];
          }
        std::int64_t step = 0;
        while (step * parts < global[d]) ++step;
        held = held && index >= part * step && index < (part + 1) * step;
      }
      if (held) set[e / 64] |= std::uint64_t{1} << (e % 64);
    }
    result.push_back(std::move(set));
  }
  return result;
}
inline std::int64_t size_of(const element_set& a) {
  std::int64_t n = 0;
  for (const auto word : a) n += std::popcount(word);
  return n;
}
/// Returns the number of elements in `a` that are not in `b`.
inline std::int64_t lacks(const element_set& a, const element_set& b) {
  std::int64_t n = 0;
  for (std::size_t i = 0; i < a.size(); ++i) n += std::popcount(a[i] & ~b[i]);
  return n;
}
inline std::int64_t common(const element_set& a, const element_set& b) { return size_of(a) - lacks(a, b); }

struct state {
  sharding s;
  std::vector<element_set> held;
  std::int64_t largest = 0;
};

/// Elements are in the high digits, messages in the low digits: fewer elements first, then fewer messages.
using price = std::int64_t;
constexpr price impossible = std::int64_t{1} << 40;
constexpr price message = 1, one_elem = 64;

inline price price_of(std::int64_t elems) { return elems == 0 ? 0 : elems * one_elem + message; }

/// Returns the price of any movement in one step: the elements received by the device that lacks the most.
inline price price_of_move(const state& from, const state& to) {
  std::int64_t most = 0;
  for (std::size_t d = 0; d < from.held.size(); ++d) most = std::max(most, lacks(to.held[d], from.held[d]));
  return price_of(most);
}

/// Returns the price of a reduction over `axes`. Each device gets its elements of `to` from n - 1 peers. If all devices
/// keep everything, a ring is used.
inline price price_of_reduction(const mesh_shape& mesh, const state& from, const state& to, axis_mask axes) {
  bool is_all_reduce = true;
  std::int64_t most = 0;
  for (std::size_t d = 0; d < from.held.size(); ++d) {
    if (lacks(to.held[d], from.held[d]) != 0) return impossible;
    is_all_reduce = is_all_reduce && lacks(from.held[d], to.held[d]) == 0;
    most = std::max(most, size_of(to.held[d]));
  }
  std::int64_t n = 1;
  for (int a = 0; a < mesh.axis_count(); ++a)
    if ((axes >> a & 1) != 0) n *= mesh.sizes[a];
  return price_of(is_all_reduce ? (2 * (n - 1) * most + n - 1) / n : (n - 1) * most);
}

inline price price_of_step(const mesh_shape& mesh, const state& from, const state& to) {
  if (from.s.partial == to.s.partial) return price_of_move(from, to);
  if ((to.s.partial & ~from.s.partial) != 0) return impossible;
  return price_of_reduction(mesh, from, to, from.s.partial & ~to.s.partial);
}

/// The same price as the plan states it: whole shards are sent, with their padding.
inline price stated_price_of_step(const mesh_shape& mesh, const extents& global, const state& from, const state& to) {
  const auto axes = movement_axes(mesh, global, from.s, to.s);
  if (from.s.partial == to.s.partial) return price_of(axes == 0 ? 0 : bytes_sent(mesh, movement{global, from.s, to.s, axes}, 1));
  if (axes != 0 || (to.s.partial & ~from.s.partial) != 0) return impossible;
  return price_of(bytes_sent(mesh, reduction{global, from.s, to.s, from.s.partial & ~to.s.partial, from.s.reduced_by}, 1));
}

struct lattice {
  mesh_shape mesh;
  extents global;
  std::vector<state> states;
  std::vector<price> cheapest;  // from, to

  lattice(const mesh_shape& m, const extents& g, bool with_paths = true) : mesh(m), global(g) {
    const axis_mask all = (axis_mask{1} << mesh.axis_count()) - 1;
    for (const auto& s : all_shardings(mesh, global.count)) {
      const auto held = held_by_devices(mesh, global, s);
      std::int64_t largest = 0;
      for (const auto& set : held) largest = std::max(largest, size_of(set));
      for (axis_mask axes = 0; axes <= all; ++axes)
        if ((axes & s.split_axes()) == 0) states.push_back({partial(s, axes), held, largest});
    }
    const auto n = states.size();
    if (!with_paths) return;
    cheapest.resize(n * n);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) cheapest[i * n + j] = i == j ? 0 : price_of_step(mesh, states[i], states[j]);
    for (std::size_t k = 0; k < n; ++k)
      for (std::size_t i = 0; i < n; ++i) {
        const auto first = cheapest[i * n + k];
        if (first >= impossible) continue;
        for (std::size_t j = 0; j < n; ++j) cheapest[i * n + j] = std::min(cheapest[i * n + j], first + cheapest[k * n + j]);
      }
  }
  /// Returns, by source, the price that the plan states for the cheapest path to `to`. Only paths count that contain a
  /// reduction and never leave more than `most` elements on a device. The last step may be a movement, as everywhere
  /// else.
  [[nodiscard]] std::vector<price> stated_to(std::size_t to, std::int64_t most) const {
    const auto n = states.size();
    const auto& target = states[to];
    std::vector<price> least(n, impossible);
    std::vector<bool> done(n, false);
    const auto counts = [&](const state& s) {
      return s.largest <= most && s.s.partial != target.s.partial && (target.s.partial & ~s.s.partial) == 0;
    };
    for (std::size_t k = 0; k < n; ++k)
      if (states[k].s.partial == target.s.partial && states[k].largest <= most)
        least[k] = k == to ? 0 : stated_price_of_step(mesh, global, states[k], target);
    while (true) {
      std::size_t k = n;
      for (std::size_t i = 0; i < n; ++i)
        if (!done[i] && least[i] < impossible && (k == n || least[i] < least[k])) k = i;
      if (k == n) return least;
      done[k] = true;
      for (std::size_t i = 0; i < n; ++i)
        if (!done[i] && counts(states[i]))
          least[i] = std::min(least[i], least[k] + stated_price_of_step(mesh, global, states[i], states[k]));
    }
  }
  [[nodiscard]] const state* find(const sharding& s) const {
    for (const auto& other : states)
      if (other.s == s) return &other;
    return nullptr;
  }
};

/// Returns the bytes that the busiest device sends, if every device gets its missing elements from its group over
/// `axes`.
inline std::int64_t most_sent(const mesh_shape& mesh, const state& from, const state& to, axis_mask axes) {
  std::vector<std::int64_t> sent(from.held.size(), 0);
  for (int d = 0; d < mesh.device_count(); ++d) {
    const auto me = mesh.coordinates_of(d);
    auto lacked = to.held[static_cast<std::size_t>(d)];
    for (std::size_t w = 0; w < lacked.size(); ++w) lacked[w] &= ~from.held[static_cast<std::size_t>(d)][w];
    for (int p = 0; p < mesh.device_count(); ++p) {
      const auto peer = mesh.coordinates_of(p);
      bool in_group = p != d;
      for (int a = 0; a < mesh.axis_count(); ++a) in_group = in_group && ((axes >> a & 1) != 0 || peer[a] == me[a]);
      if (in_group) sent[static_cast<std::size_t>(p)] += common(lacked, from.held[static_cast<std::size_t>(p)]);
    }
  }
  return *std::max_element(sent.begin(), sent.end());
}

struct path {
  std::vector<reshard_step> steps;
  std::string wrong;
};
inline path path_of(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  path p;
  for_each_step(mesh, {}, global, from, to, 1, [&](const sharding&, const reshard_step& step) { p.steps.push_back(step); });
  if (p.steps.size() > 8) p.wrong = "more than 8 steps";
  if ((p.steps.empty() ? from : p.steps.back().to) != to) p.wrong = "stops before the target";
  return p;
}

inline std::string steps_of(const path& p, int rank) {
  std::string t;
  for (const auto& step : p.steps)
    t += std::string(step.what == reshard_step::kind::slice    ? " slice "
                     : step.what == reshard_step::kind::reduce ? " reduce "
                                                               : " move ") +
         text_of(step.to, rank);
  return t;
}

// ---- execution ------------------------------------------------------------------------------------------------------

/// Returns the value of an element on a device. Devices with the same coordinates on all partial axes have equal
/// values.
inline std::int32_t value_at(const mesh_shape& mesh, std::int64_t index, axis_mask partial_axes, const coordinates& at) {
  return oracle::element_at<std::int32_t>(index, group_index(mesh, partial_axes, at));
}

/// Returns the number of wrong elements after executing a path.
inline int wrong_after(const mesh_shape& mesh, const extents& global, sharding from, const sharding& to, const path& p,
                       monoid kind) {
  const auto source = from.partial;
  from.reduced_by = kind;
  gspmd::simulated_communicator comm(static_cast<int>(mesh.device_count()));
  const int n = comm.local_count();
  oracle::buffers<std::int32_t> held(n, elements(local_extents(mesh, global, from)), 0x55);
  for (int d = 0; d < n; ++d) {
    const auto me = mesh.coordinates_of(d);
    oracle::for_each_held(mesh, global, from, me, [&](std::int64_t local, std::int64_t index) {
      held.pointers[static_cast<std::size_t>(d)][local] = value_at(mesh, index, source, me);
    });
  }
  for (auto step : p.steps) {
    step.to.reduced_by = kind;
    oracle::buffers<std::int32_t> next(n, elements(local_extents(mesh, global, step.to)), 0x33);
    if (step.what == reshard_step::kind::reduce)
      comm.reduce(mesh, reduction{global, from, step.to, step.axes, kind}, held.const_pointers.data(), next.pointers.data());
    else comm.move(mesh, movement{global, from, step.to, step.axes}, held.const_pointers.data(), next.pointers.data());
    held = std::move(next);
    from = step.to;
  }
  int wrong = 0;
  const axis_mask reduced = source & ~to.partial;
  for (int d = 0; d < n; ++d) {
    const auto me = mesh.coordinates_of(d);
    oracle::for_each_held(mesh, global, to, me, [&](std::int64_t local, std::int64_t index) {
      auto expected = value_at(mesh, index, source, group_member(mesh, reduced, me, 0));
      for (std::int64_t j = 1; j < mesh.size_of(reduced); ++j)
        expected = oracle::folded(kind, expected, value_at(mesh, index, source, group_member(mesh, reduced, me, j)));
      wrong += held.pointers[static_cast<std::size_t>(d)][local] != expected;
    });
  }
  return wrong;
}

// ---- all pairs ------------------------------------------------------------------------------------------------------

struct tally {
  std::int64_t pairs = 0, executed = 0;
  std::int64_t dearer = 0, more_messages = 0;  // than the cheapest path
  std::int64_t beyond = 0;                     // holds more on the way than at both ends
  std::int64_t understated = 0;                // a device receives more than bytes_sent states
  std::int64_t hot = 0;                        // a device sends more than bytes_sent states
  std::int64_t wrong = 0;
  double worst = 1, sum = 0;  // sent elements, divided by those of the cheapest path
  std::string first_dearer, first_wrong;
};

enum class reductions { without, with };

/// Checks all pairs with or without a reduction. Executes one pair in `every`.
inline void check_all_pairs(const lattice& all, reductions which, int every, tally& t) {
  const auto& mesh = all.mesh;
  const auto& global = all.global;
  const auto n = all.states.size();
  constexpr monoid kinds[] = {monoid::add, monoid::multiply, monoid::max, monoid::min, monoid::and_, monoid::or_};
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      const auto& from = all.states[i];
      const auto& to = all.states[j];
      if ((to.s.partial & ~from.s.partial) != 0 || (to.s.partial != from.s.partial) != (which == reductions::with)) continue;
      ++t.pairs;
      const auto p = path_of(mesh, global, from.s, to.s);
      const auto text = [&] {
        return std::string(shape_text(mesh.sizes).view()) + ' ' + std::string(shape_text(global).view()) + ' ' +
               text_of(from.s, global.count) + " to " + text_of(to.s, global.count) + ':' + steps_of(p, global.count) + ' ';
      };
      const auto refuse = [&](const std::string& why) {
        if (t.wrong++ == 0) t.first_wrong = text() + why;
      };
      if (!p.wrong.empty()) {
        refuse(p.wrong);
        continue;
      }
      price total = 0;
      const state* at = &from;
      for (const auto& step : p.steps) {
        const auto* next = all.find(step.to);
        if (next == nullptr) {
          refuse("not a sharding");
          break;
        }
        const auto paid = price_of_step(mesh, *at, *next);
        if (step.what == reshard_step::kind::slice) {
          if (next->s.partial != at->s.partial || paid != 0) refuse("a slice of what is not there");
        } else {
          const auto said = step_bytes(mesh, global, at->s, step, 1);
          if (paid >= impossible) refuse("an impossible step");
          t.understated += paid / one_elem > said ? 1 : 0;
          if (step.what == reshard_step::kind::move) t.hot += most_sent(mesh, *at, *next, step.axes) > said ? 1 : 0;
        }
        total += paid;
        at = next;
        t.beyond += at->largest > std::max(from.largest, to.largest) ? 1 : 0;
      }
      const auto best = all.cheapest[i * n + j];
      if (total / one_elem > best / one_elem) {
        if (t.dearer++ == 0)
          t.first_dearer = text() + "sends " + std::to_string(total / one_elem) + ", not " + std::to_string(best / one_elem);
        const double ratio = static_cast<double>(total / one_elem) / static_cast<double>(std::max<price>(best / one_elem, 1));
        t.worst = std::max(t.worst, ratio);
        t.sum += ratio - 1;
      } else if (total > best) {
        ++t.more_messages;
      }
      if (t.pairs % every != 0) continue;
      ++t.executed;
      if (wrong_after(mesh, global, from.s, to.s, p, kinds[t.executed % 6]) != 0) refuse("wrong data");
    }
}

inline const std::vector<std::vector<int>> meshes{{2}, {3}, {4}, {8}, {2, 2}, {4, 2}, {2, 4}, {3, 2}, {2, 3}, {2, 2, 2}};
using shapes = std::vector<std::vector<std::int64_t>>;

/// Returns extents that all axes divide.
inline shapes even_shapes(const std::vector<int>& sizes) {
  const bool has_three = std::find(sizes.begin(), sizes.end(), 3) != sizes.end();
  shapes result{{24}, {24, 24}, has_three ? std::vector<std::int64_t>{6, 6, 6} : std::vector<std::int64_t>{8, 8, 8}};
  if (is_complete_run()) result.insert(result.end(), {{48}, {24, 48}, {48, 24, 24}});
  return result;
}
/// Returns extents that hardly any axis divides, and shapes with fewer elements than devices.
inline shapes uneven_shapes() {
  shapes result{{9}, {5}, {1}, {0}, {100}, {9, 5}, {3, 1}, {2, 7}, {17, 33}, {5, 3, 2}, {1, 4, 3}, {9, 7, 5}};
  if (is_complete_run()) result.insert(result.end(), {{7}, {13}, {5, 6}, {10, 12}, {7, 0}, {2, 2, 2}, {6, 10, 14}, {11, 13, 17}});
  return result;
}

inline tally check_all(bool even, reductions which) {
  tally t;
  for (const auto& sizes : meshes)
    for (const auto& shape : even ? even_shapes(sizes) : uneven_shapes())
      check_all_pairs(lattice(mesh_of(sizes), shape_of(shape)), which, is_complete_run() ? 1 : 97, t);
  if (is_complete_run())
    MESSAGE(t.pairs, " pairs, ", t.executed, " executed, ", t.dearer, " dearer, at worst ", t.worst, " times, on average ",
            1 + t.sum / static_cast<double>(t.pairs), "; ", t.more_messages, " with more messages; ", t.hot, " send more");
  CAPTURE(t.first_wrong);
  CHECK(t.wrong == 0);
  CHECK(t.beyond == 0);
  CHECK(t.understated == 0);
  return t;
}

using texts = std::vector<std::string>;

/// Returns the steps of a path as `all_to_all xy 14`, with the elements that a device sends. Runs it on simulated
/// devices.
inline texts steps_between(const mesh_shape& mesh, const extents& global, sharding from, const sharding& to) {
  const auto p = path_of(mesh, global, from, to);
  CHECK(p.wrong == "");
  CHECK(wrong_after(mesh, global, from, to, p, monoid::add) == 0);
  texts result;
  for (const auto& step : p.steps) {
    const auto sends = ' ' + std::to_string(step_bytes(mesh, global, from, step, 1));
    if (step.what == reshard_step::kind::slice) result.emplace_back("slice");
    else if (step.what == reshard_step::kind::move)
      result.push_back(name_of(classify(mesh, movement{global, from, step.to, step.axes})) + (' ' + axes_text(step.axes)) +
                       sends);
    else
      result.push_back(name_of(classify(mesh, reduction{global, from, step.to, step.axes, from.reduced_by})) +
                       (' ' + axes_text(step.axes)) + sends);
    from = step.to;
  }
  return result;
}

}  // namespace reshards
