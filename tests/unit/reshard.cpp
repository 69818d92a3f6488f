// SPDX-License-Identifier: Apache-2.0
// labels: planner exhaustive
// group: planner
// Every pair of shardings of rank <= 3 on meshes of up to 8 devices: the path that is planned against an exhaustive search.
// GSPMD_ALL_RESHARDS=1 in the environment: more shapes, and every path is executed.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "gspmd/budget.hpp"
#include "gspmd/comm/simulated.hpp"
#include "gspmd/detail/exec/bound_devices.hpp"
#include "gspmd/detail/exec/interpreter.hpp"
#include "gspmd/detail/exec/message_plan.hpp"
#include "gspmd/detail/passes/make_plan.hpp"
#include "gspmd/detail/support/text.hpp"
#include "support/collective_oracle.hpp"
#include "support/graph_builder.hpp"
#include "support/layouts.hpp"

using namespace layouts;

namespace {

bool is_complete_run() { return std::getenv("GSPMD_ALL_RESHARDS") != nullptr; }

// ---- a reference that knows only which device holds which elements ----------------------------------------------------------

using element_set = std::vector<std::uint64_t>;

/// By the definition: axes of a dim as digits, major to minor, of the number of a step of the extent rounded up.
std::vector<element_set> held_by_devices(const mesh_shape& mesh, const extents& global, const sharding& s) {
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
std::int64_t size_of(const element_set& a) {
  std::int64_t n = 0;
  for (const auto word : a) n += std::popcount(word);
  return n;
}
/// How many elements are in `a` and not in `b`.
std::int64_t lacks(const element_set& a, const element_set& b) {
  std::int64_t n = 0;
  for (std::size_t i = 0; i < a.size(); ++i) n += std::popcount(a[i] & ~b[i]);
  return n;
}
std::int64_t common(const element_set& a, const element_set& b) { return size_of(a) - lacks(a, b); }

struct state {
  sharding s;
  std::vector<element_set> held;
  std::int64_t largest = 0;
};

/// Elements in the high digits, messages in the low ones: fewer elements first, then fewer messages.
using price = std::int64_t;
constexpr price impossible = std::int64_t{1} << 40;
constexpr price message = 1, element = 64;

price price_of(std::int64_t elems) { return elems == 0 ? 0 : elems * element + message; }

/// Any movement in one step: what the device receives that lacks most.
price price_of_move(const state& from, const state& to) {
  std::int64_t most = 0;
  for (std::size_t d = 0; d < from.held.size(); ++d) most = std::max(most, lacks(to.held[d], from.held[d]));
  return price_of(most);
}

/// A reduction over `axes`: each device gets its elements of `to` from n - 1 peers, or, where everybody keeps all, by the ring.
price price_of_reduction(const mesh_shape& mesh, const state& from, const state& to, axis_mask axes) {
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

price price_of_step(const mesh_shape& mesh, const state& from, const state& to) {
  if (from.s.partial == to.s.partial) return price_of_move(from, to);
  if ((to.s.partial & ~from.s.partial) != 0) return impossible;
  return price_of_reduction(mesh, from, to, from.s.partial & ~to.s.partial);
}

struct lattice {
  mesh_shape mesh;
  extents global;
  std::vector<state> states;
  std::vector<price> cheapest;  // from, to

  lattice(const mesh_shape& m, const extents& g) : mesh(m), global(g) {
    const axis_mask all = (axis_mask{1} << mesh.axis_count()) - 1;
    for (const auto& s : all_shardings(mesh, global.count)) {
      const auto held = held_by_devices(mesh, global, s);
      std::int64_t largest = 0;
      for (const auto& set : held) largest = std::max(largest, size_of(set));
      for (axis_mask axes = 0; axes <= all; ++axes)
        if ((axes & s.split_axes()) == 0) states.push_back({partial(s, axes), held, largest});
    }
    const auto n = states.size();
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
  [[nodiscard]] const state* find(const sharding& s) const {
    for (const auto& other : states)
      if (same_layout(other.s, s)) return &other;
    return nullptr;
  }
};

/// What the busiest device sends when every device gets what it lacks from the members of its group over `axes`.
std::int64_t most_sent(const mesh_shape& mesh, const state& from, const state& to, axis_mask axes) {
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
path path_of(const mesh_shape& mesh, const extents& global, sharding from, const sharding& to) {
  path p;
  while (true) {
    const auto step = next_step(mesh, global, from, to);
    if (step.what == reshard_step::kind::none) break;
    p.steps.push_back(step);
    from = step.to;
    if (p.steps.size() > 5) {
      p.wrong = "more than 5 steps";
      return p;
    }
  }
  if (!same_layout(from, to)) p.wrong = "stops before the target";
  return p;
}

std::string steps_of(const path& p, int rank) {
  std::string t;
  for (const auto& step : p.steps)
    t += std::string(step.what == reshard_step::kind::slice    ? " slice "
                     : step.what == reshard_step::kind::reduce ? " reduce "
                                                               : " move ") +
         text_of(step.to, rank);
  return t;
}

// ---- execution --------------------------------------------------------------------------------------------------------------

/// The value of an element on a device: devices that differ in no partial axis agree.
std::int32_t value_at(const mesh_shape& mesh, std::int64_t index, axis_mask partial_axes, const coordinates& at) {
  return oracle::element_at<std::int32_t>(index, group_index(mesh, partial_axes, at));
}

/// How many elements are wrong after a path was executed.
int wrong_after(const mesh_shape& mesh, const extents& global, sharding from, const sharding& to, const path& p, monoid kind) {
  const auto source = from.partial;
  from.kind = kind;
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
    step.to.kind = kind;
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

// ---- all pairs --------------------------------------------------------------------------------------------------------------

struct tally {
  std::int64_t pairs = 0, executed = 0;
  std::int64_t dearer = 0, more_messages = 0;  // than the cheapest path
  std::int64_t beyond = 0;                     // holds more on the way than at both ends
  std::int64_t understated = 0;                // a device receives more than bytes_sent says
  std::int64_t hot = 0;                        // a device sends more than bytes_sent says
  std::int64_t wrong = 0;
  double worst = 1, sum = 0;  // sent, divided by what the cheapest path sends
  std::string first_dearer, first_wrong;
};

enum class reductions { without, with };

/// Checks all pairs with or without something to reduce; executes one in `every`.
void check_all_pairs(const lattice& all, reductions which, int every, tally& t) {
  const auto& mesh = all.mesh;
  const auto& global = all.global;
  const auto n = all.states.size();
  constexpr monoid kinds[] = {monoid::add, monoid::multiply, monoid::maximum, monoid::minimum, monoid::and_, monoid::or_};
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
          t.understated += paid / element > said ? 1 : 0;
          if (step.what == reshard_step::kind::move) t.hot += most_sent(mesh, *at, *next, step.axes) > said ? 1 : 0;
        }
        total += paid;
        at = next;
        t.beyond += at->largest > std::max(from.largest, to.largest) ? 1 : 0;
      }
      const auto best = all.cheapest[i * n + j];
      if (total / element > best / element) {
        if (t.dearer++ == 0)
          t.first_dearer = text() + "sends " + std::to_string(total / element) + ", not " + std::to_string(best / element);
        const double ratio = static_cast<double>(total / element) / static_cast<double>(std::max<price>(best / element, 1));
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

const std::vector<std::vector<int>> meshes{{2}, {3}, {4}, {8}, {2, 2}, {4, 2}, {2, 4}, {3, 2}, {2, 3}, {2, 2, 2}};
using shapes = std::vector<std::vector<std::int64_t>>;

/// Extents that everything divides.
shapes even_shapes(const std::vector<int>& sizes) {
  const bool has_three = std::find(sizes.begin(), sizes.end(), 3) != sizes.end();
  shapes result{{24}, {24, 24}, has_three ? std::vector<std::int64_t>{6, 6, 6} : std::vector<std::int64_t>{8, 8, 8}};
  if (is_complete_run()) result.insert(result.end(), {{48}, {24, 48}, {48, 24, 24}});
  return result;
}
/// Extents that hardly anything divides, and fewer elements than devices.
shapes uneven_shapes() {
  shapes result{{9}, {5}, {1}, {0}, {100}, {9, 5}, {3, 1}, {2, 7}, {17, 33}, {5, 3, 2}, {1, 4, 3}, {9, 7, 5}};
  if (is_complete_run()) result.insert(result.end(), {{7}, {13}, {5, 6}, {10, 12}, {7, 0}, {2, 2, 2}, {6, 10, 14}, {11, 13, 17}});
  return result;
}

tally check_all(bool even, reductions which) {
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

}  // namespace

TEST_CASE("no movement is dearer than the cheapest path, for any extents") {
  for (const bool even : {true, false}) {
    const auto t = check_all(even, reductions::without);
    CAPTURE(t.first_dearer);
    CHECK(t.pairs > 10'000);
    CHECK(t.dearer == 0);
    CHECK(t.more_messages == 0);
    if (even) CHECK(t.hot == 0);
  }
}

TEST_CASE("no reduction is dearer than the cheapest path, for even extents") {
  const auto t = check_all(true, reductions::with);
  CAPTURE(t.first_dearer);
  CHECK(t.pairs > 10'000);
  CHECK(t.dearer == 0);
  CHECK(t.more_messages == 0);
  CHECK(t.hot == 0);
}

// Padding makes the closed form of a step's price an upper bound, so another way than the cheapest may be taken.
TEST_CASE("a reduction of uneven extents is little dearer than the cheapest path") {
  const auto t = check_all(false, reductions::with);
  CAPTURE(t.first_dearer);
  CHECK(t.pairs > 10'000);
  CHECK(t.sum / static_cast<double>(t.pairs) < 0.05);
  CHECK(t.worst < 3);
}

TEST_CASE("shardings that put every element on the same devices are told, however they are written") {
  std::int64_t same = 0;
  for (const auto& sizes : {std::vector<int>{1}, {2}, {1, 2}, {2, 1}, {2, 2}, {3, 2}, {2, 1, 2}, {2, 2, 2}})
    for (const auto& shape : shapes{{}, {0}, {1}, {2}, {3}, {4}, {5}, {8}, {1, 1}, {2, 1}, {3, 4}, {0, 4}}) {
      const lattice all(mesh_of(sizes), shape_of(shape));
      std::string first_wrong;
      for (const auto& from : all.states)
        for (const auto& to : all.states) {
          axis_mask partial_in_one = from.s.partial ^ to.s.partial;
          for (std::size_t a = 0; a < sizes.size(); ++a)
            if (sizes[a] == 1) partial_in_one &= ~axis_bit(static_cast<int>(a));
          if (partial_in_one != 0) continue;
          const bool is_same = from.held == to.held;
          same += is_same ? 1 : 0;
          const auto local = elements(local_extents(all.mesh, all.global, from.s));
          const auto p = path_of(all.mesh, all.global, from.s, to.s);
          bool good = p.wrong.empty() && (elements(all.global) == 0 || same_data(all.mesh, all.global, from.s, to.s) == is_same);
          if (is_same) {
            good = good && p.steps.size() <= 1 && reshard_bytes(all.mesh, all.global, from.s, to.s, 4) == 0 &&
                   movement_axes(all.mesh, all.global, from.s, to.s) == 0 &&
                   local == elements(local_extents(all.mesh, all.global, to.s));
          }
          if (!good && first_wrong.empty()) first_wrong = text_of(from.s, 3) + " to " + text_of(to.s, 3) + steps_of(p, 3);
        }
      CAPTURE(std::string(shape_text(all.mesh.sizes).view()));
      CAPTURE(std::string(shape_text(all.global).view()));
      CHECK(first_wrong == "");
    }
  CHECK(same > 1'000);
}

namespace {

constexpr int x = 0, y = 1, z = 2;
using texts = std::vector<std::string>;

/// The steps of a path, `all_to_all xy 14` with the elements that a device sends, and its data on simulated devices.
texts steps_between(const mesh_shape& mesh, const extents& global, sharding from, const sharding& to) {
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
      result.push_back(name_of(classify(mesh, reduction{global, from, step.to, step.axes, from.kind})) +
                       (' ' + axes_text(step.axes)) + sends);
    from = step.to;
  }
  return result;
}

}  // namespace

TEST_CASE("pairs with a name") {
  SUBCASE("jax#21562: P(y,-,x) to P(-,(x,y),-) trades parts of shards, where XLA replicates all") {
    for (const auto& sizes : {std::vector<int>{2, 4}, {4, 2}, {2, 2}}) {
      const auto mesh = mesh_of(sizes);
      const auto devices = mesh.device_count();
      const auto global = shape_of({8, 16, 8});
      const auto shard = 1024 / devices;
      const auto sends = std::to_string(shard - shard / devices);
      CHECK(steps_between(mesh, global, split({{y}, {}, {x}}), split({{}, {x, y}, {}})) == texts{"all_to_all xy " + sends});
      CHECK(steps_between(mesh, global, split({{}, {x, y}, {}}), split({{y}, {}, {x}})) == texts{"all_to_all xy " + sends});
      CHECK(steps_between(mesh, shape_of({7, 9, 5}), split({{y}, {}, {x}}), split({{}, {x, y}, {}})).size() == 1);
    }
  }
  SUBCASE("xla#15207: {devices=[2,1,4]<=[8]} to {devices=[1,8,1]<=[8]}") {
    const auto mesh = mesh_of({2, 4});
    CHECK(steps_between(mesh, shape_of({2, 8, 4}), split({{x}, {}, {y}}), split({{}, {x, y}, {}})) == texts{"all_to_all xy 7"});
    const auto large = shape_of({16, 4096, 1024});
    const auto step = next_step(mesh, large, split({{x}, {}, {y}}), split({{}, {x, y}, {}}));
    CHECK(step_bytes(mesh, large, split({{x}, {}, {y}}), step, 4) == 4 * (16 * 4096 * 1024 / 8) / 8 * 7);
  }
  SUBCASE("several dims move in one grouped all_to_all") {
    const auto mesh = mesh_of({2, 2, 2});
    CHECK(steps_between(mesh, shape_of({8, 8, 8}), split({{x}, {y}, {z}}), split({{y}, {z}, {x}})) ==
          texts{"collective_permute xyz 64"});
    CHECK(steps_between(mesh, shape_of({8, 8, 8}), split({{x, y}, {z}, {}}), split({{}, {x, y}, {z}})) ==
          texts{"all_to_all xyz 64"});
  }
  SUBCASE("F83: the same tiles on other devices") {
    CHECK(steps_between(mesh_of({2, 4}), shape_of({8, 3}), split({{x, y}}), split({{y, x}})) == texts{"collective_permute xy 3"});
    CHECK(steps_between(mesh_of({2, 2}), shape_of({8, 8}), split({{x}, {y}}), split({{y}, {x}})) ==
          texts{"collective_permute xy 16"});
    CHECK(steps_between(mesh_of({2, 2}), shape_of({8}), split({{x}}), split({{y}})) == texts{"collective_permute x 4"});
  }
  SUBCASE("nobody serves three others alone: replicas of a part share it out") {
    CHECK(steps_between(mesh_of({4, 4}), shape_of({16}), split({{x}}), split({{y}})) == texts{"slice", "all_to_all xy 4"});
  }
  SUBCASE("replicas share the work of a reduction") {
    const auto mesh = mesh_of({8, 8});
    const auto global = shape_of({64});
    CHECK(steps_between(mesh, global, partial({}, axis_bit(x)), {}) == texts{"reduce_scatter x 7", "all_gather xy 63"});
    CHECK(steps_between(mesh, global, partial({}, axis_bit(x)), split({{x}})) == texts{"reduce_scatter x 7", "all_gather y 7"});
    CHECK(steps_between(mesh, shape_of({}), partial({}, axis_bit(x)), {}) == texts{"all_reduce x 2"});
    const auto two = mesh_of({2, 8});  // no fewer bytes, so one message
    CHECK(steps_between(two, global, partial({}, axis_bit(x)), {}) == texts{"all_reduce x 64"});
    CHECK(steps_between(mesh, global, partial(split({{y}}), axis_bit(x)), split({{y}})) == texts{"all_reduce x 14"});
  }
}

namespace {
int count_of(const plan& p, action what) {
  int n = 0;
  for (const auto& s : p.steps) n += s.what == what ? 1 : 0;
  return n;
}
}  // namespace

TEST_CASE("F86: a plan does nothing where two shardings are one") {
  graph_builder b({2, 1, 2});
  const int in = b.input({8, 4, 6}, split({{x}, {z}, {}}));
  const int same = b.reshard(b.op(opcode::relu, in), split({{x, y}, {z}, {}}));
  b.g.outputs = {b.op(opcode::negate, same)};
  const auto p = make_plan(b.g, b.mesh);
  REQUIRE(p.error.empty());
  CHECK(count_of(p, action::move) == 0);
  CHECK(count_of(p, action::combine) == 0);
}

TEST_CASE("F88: one gather for two users") {
  graph_builder b({4});
  const int in = b.input({16, 8}, split({{x}, {}}));
  const int w = b.input({8, 8}, split({{x}, {}}));
  b.g.outputs = {b.einsum("bd,df->bf", in, w), b.einsum("bd,fd->bf", in, w)};
  CHECK(collectives(b.partition()) == texts{"all_gather x"});
}

namespace {

/// Gives every arena out of its own store, with a guard behind it.
struct arena_keeper : gspmd::simulated_communicator {
  using gspmd::simulated_communicator::simulated_communicator;
  static constexpr std::size_t guard = 64;
  std::vector<std::vector<std::byte>> stores;
  std::vector<std::size_t> sizes;

  std::byte* allocate(std::size_t bytes) {
    stores.emplace_back(bytes + 2 * guard, std::byte{0x5a});
    sizes.push_back(bytes);
    const auto at = reinterpret_cast<std::uintptr_t>(stores.back().data());
    return stores.back().data() + (guard - at % guard) % guard;
  }
};

}  // namespace

TEST_CASE("resharding takes no memory but the arena, and of that what is alive at once") {
  graph_builder b({4, 2});
  const int in = b.input({16, 8, 4}, split({{x}, {}, {}}));
  const int moved = b.reshard(in, split({{}, {x}, {y}}));                     // a slice, then all_to_all
  const int summed = b.reduce(b.op(opcode::exponential, moved), dim_bit(1));  // partial over x
  b.g.outputs = {b.op(opcode::negate, b.reshard(summed, split({{y}, {}})))};  // reduce_scatter, then what is cheapest
  const auto p = make_plan(b.g, b.mesh);
  REQUIRE(p.error.empty());
  const plan_view view(p);

  // The bytes of the arena that hold something during each step: of its values from the step that makes them to the last one
  // that reads them.
  std::size_t most = 0;
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    std::set<std::int64_t> lines;
    for (std::size_t v = 0; v < p.values.size(); ++v) {
      const auto& value = p.values[v];
      if (value.where.where != memory_place::kind::arena || value.step < 0) continue;
      std::size_t last = static_cast<std::size_t>(value.step);
      for (std::size_t k = last; k < p.steps.size(); ++k)
        for (int o = 0; o < p.steps[k].operands.count; ++o)
          if (&view.operand(p.steps[k], o) == &value) last = k;
      if (static_cast<std::size_t>(value.step) > i || last < i) continue;
      for (std::int64_t at = 0; at < elements(value.local) * bytes_of(value.type); at += 64) lines.insert(value.where.at + at);
    }
    most = std::max(most, lines.size());
  }
  CHECK(static_cast<std::int64_t>(most) * 64 == p.arena_bytes);
  CHECK(count_of(p, action::move) + count_of(p, action::combine) >= 3);

  arena_keeper comm(static_cast<int>(b.mesh.device_count()));
  bound_devices devices;
  devices.bind(comm, view);
  REQUIRE(comm.sizes.size() == 8);
  for (const auto size : comm.sizes) CHECK(size == static_cast<std::size_t>(p.arena_bytes) + 64);  // on a cache line
  const auto& from = p.values[static_cast<std::size_t>(p.inputs[0])];
  const auto& to = p.values[static_cast<std::size_t>(p.outputs[0])];
  oracle::buffers<float> inputs(8, elements(from.local), 0x11);
  oracle::buffers<float> outputs(8, elements(to.local), 0x22);
  std::vector<const void*> in_pointers(inputs.pointers.begin(), inputs.pointers.end());
  std::vector<void*> out_pointers(outputs.pointers.begin(), outputs.pointers.end());
  for (std::size_t d = 0; d < 8; ++d) {
    devices.devices[d].inputs = &in_pointers[d];
    devices.devices[d].outputs = &out_pointers[d];
    std::fill_n(devices.devices[d].arena + p.arena_bytes, 64, std::byte{0x77});
  }
  interpreter steps(view);
  steps.run(comm, devices.devices.data(), devices.from.data(), devices.to.data());
  CHECK(outputs.damaged(0x22) == 0);
  for (const auto& device : devices.devices)
    CHECK(std::all_of(device.arena + p.arena_bytes, device.arena + p.arena_bytes + 64,
                      [](std::byte at) { return at == std::byte{0x77}; }));
}

TEST_CASE("what MPI packs beside the arena is known") {
  const auto mesh = mesh_of({4, 2});
  const auto packed = [&](const std::vector<std::int64_t>& shape, const sharding& from, const sharding& to) {
    const auto global = shape_of(shape);
    const auto memory = packing_of(mesh, movement{global, from, to, movement_axes(mesh, global, from, to)});
    return std::pair{memory.send_elems, memory.receive_elems};
  };
  using elems = std::pair<std::int64_t, std::int64_t>;
  CHECK(packed({16, 8}, split({{x}}), {}) == elems{0, 0});                  // one after the other: MPI_Allgather
  CHECK(packed({16, 8}, split({{}, {x}}), {}) == elems{128, 0});            // gathered, then each row to its place
  CHECK(packed({16, 8}, split({{x}}), split({{}, {x}})) == elems{32, 32});  // a box for every peer
  CHECK(packed({16, 8}, split({{x, y}}), split({{y, x}})) == elems{0, 0});  // whole shards
  CHECK(packed({16, 8}, {}, split({{x}})) == elems{0, 0});                  // nothing is sent
  const auto global = shape_of({16, 8});
  const auto scatter = [&](const sharding& to) {
    const auto memory = packing_of(mesh, reduction{global, partial({}, axis_bit(x)), to, axis_bit(x), monoid::add});
    return std::pair{memory.send_elems, memory.receive_elems};
  };
  CHECK(scatter({}) == elems{0, 0});
  CHECK(scatter(split({{x}})) == elems{0, 0});
  CHECK(scatter(split({{}, {x}})) == elems{128, 32});
}
