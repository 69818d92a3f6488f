// SPDX-License-Identifier: Apache-2.0
// labels: planner exhaustive
// group: planner
// Every pair of shardings of rank <= 3 on meshes of up to 8 devices: the planned path is compared with an exhaustive
// search. Reductions of uneven extents are in reshard_uneven.cpp. GSPMD_ALL_RESHARDS=1 in the environment adds shapes
// and executes every path.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/detail/ir/message_plan.hpp"
#include "gspmd/detail/passes/list/make_plan.hpp"
#include "gspmd/detail/run/bound_devices.hpp"
#include "gspmd/detail/run/interpreter.hpp"
#include "gspmd/detail/support/text.hpp"
#include "gspmd/plan/budget.hpp"
#include "support/collective_oracle.hpp"
#include "support/graph_builder.hpp"
#include "support/layouts.hpp"
#include "support/reshard_paths.hpp"

using namespace reshards;

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

TEST_CASE("shardings that put every element on the same devices are found, however they are written") {
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
    const auto step = next_step(mesh, {}, large, split({{x}, {}, {y}}), split({{}, {x, y}, {}}));
    CHECK(step_bytes(mesh, large, split({{x}, {}, {y}}), step, 4) == 4 * (16 * 4096 * 1024 / 8) / 8 * 7);
  }
  SUBCASE("several dims move in one grouped all_to_all") {
    const auto mesh = mesh_of({2, 2, 2});
    CHECK(steps_between(mesh, shape_of({8, 8, 8}), split({{x}, {y}, {z}}), split({{y}, {z}, {x}})) ==
          texts{"collective_permute xyz 64"});
    CHECK(steps_between(mesh, shape_of({8, 8, 8}), split({{x, y}, {z}, {}}), split({{}, {x, y}, {z}})) ==
          texts{"all_to_all xyz 64"});
  }
  SUBCASE("the same tiles on other devices") {
    CHECK(steps_between(mesh_of({2, 4}), shape_of({8, 3}), split({{x, y}}), split({{y, x}})) == texts{"collective_permute xy 3"});
    CHECK(steps_between(mesh_of({2, 2}), shape_of({8, 8}), split({{x}, {y}}), split({{y}, {x}})) ==
          texts{"collective_permute xy 16"});
    CHECK(steps_between(mesh_of({2, 2}), shape_of({8}), split({{x}}), split({{y}})) == texts{"collective_permute x 4"});
  }
  SUBCASE("nobody serves three others alone: replicas of a part share it out") {
    CHECK(steps_between(mesh_of({4, 4}), shape_of({16}), split({{x}}), split({{y}})) == texts{"slice", "all_to_all xy 4"});
  }
  SUBCASE("a dim with padding is gathered by way of one with less, where that saves the time of a message") {
    const auto mesh = mesh_of({8});  // shards of 9 are 2,2,2,2,1,0,0,0
    CHECK(steps_between(mesh, shape_of({9, 16384}), split({{x}, {}}), {}) == texts{"all_to_all x 18432", "all_gather x 129024"});
    CHECK(steps_between(mesh, shape_of({9, 4096}), split({{x}, {}}), {}) == texts{"all_gather x 57344"});
    CHECK(steps_between(mesh, shape_of({8, 16384}), split({{x}, {}}), {}) == texts{"all_gather x 114688"});
    const auto both = mesh_of({2, 4});  // the other axis does not move
    CHECK(steps_between(both, shape_of({6, 5, 16384}), split({{x}, {y}, {}}), split({{x}, {}, {}})) ==
          texts{"all_to_all y 61440", "all_gather y 184320"});
  }
  SUBCASE("replicas share the work of a reduction") {
    const auto mesh = mesh_of({8, 8});
    const auto global = shape_of({64});
    CHECK(steps_between(mesh, global, partial({}, axis_bit(x)), {}) == texts{"reduce_scatter x 7", "all_gather xy 63"});
    CHECK(steps_between(mesh, global, partial({}, axis_bit(x)), split({{x}})) == texts{"reduce_scatter x 7", "all_gather y 7"});
    CHECK(steps_between(mesh, shape_of({}), partial({}, axis_bit(x)), {}) == texts{"all_reduce x 2"});
    const auto two = mesh_of({2, 8});  // the same bytes, so one message
    CHECK(steps_between(two, global, partial({}, axis_bit(x)), {}) == texts{"all_reduce x 64"});
    CHECK(steps_between(mesh, global, partial(split({{y}}), axis_bit(x)), split({{y}})) == texts{"all_reduce x 14"});
  }
}

namespace {
template <class Kernel>
int count_of(const plan& p) {
  int n = 0;
  for (const auto& s : p.steps) n += is<Kernel>(s) ? 1 : 0;
  return n;
}
}  // namespace

TEST_CASE("a plan does nothing where two shardings are one") {
  graph_builder b({2, 1, 2});
  const int in = b.input({8, 4, 6}, split({{x}, {z}, {}}));
  const int same = b.reshard(b.op(code_of<relu_op>, in), split({{x, y}, {z}, {}}));
  b.g.outputs = {b.op(code_of<negative_op>, same)};
  const auto p = plan_at_run_time(b.g, b.mesh, {});
  REQUIRE(p.error.empty());
  CHECK(count_of<kernels::move>(p) == 0);
  CHECK(count_of<kernels::combine>(p) == 0);
}

TEST_CASE("one gather for two users") {
  graph_builder b({4});
  const int in = b.input({16, 8}, split({{x}, {}}));
  const int w = b.input({8, 8}, split({{x}, {}}));
  b.g.outputs = {b.einsum("bd,df->bf", in, w), b.einsum("bd,fd->bf", in, w)};
  CHECK(collectives(b.partition()) == texts{"all_gather x"});
}

namespace {

/// Allocates every arena from its own memory, with a guard after it.
struct arena_keeper : gspmd::simulated_communicator {
  using gspmd::simulated_communicator::simulated_communicator;
  static constexpr std::size_t guard = 64;
  std::vector<std::vector<std::byte>> stores;
  std::vector<std::size_t> sizes;

  std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    stores.emplace_back(bytes + 2 * guard, std::byte{0x5a});
    sizes.push_back(bytes);
    const auto at = reinterpret_cast<std::uintptr_t>(stores.back().data());
    std::byte* const zeroed = stores.back().data() + (guard - at % guard) % guard;
    std::fill_n(zeroed, bytes, std::byte{0});
    return {std::shared_ptr<void>(), zeroed};
  }
};

}  // namespace

TEST_CASE("resharding takes no memory but the arena, and of that what is alive at once") {
  graph_builder b({4, 2});
  const int in = b.input({16, 8, 4}, split({{x}, {}, {}}));
  const int moved = b.reshard(in, split({{}, {x}, {y}}));                           // a slice, then all_to_all
  const int summed = b.reduce(b.op(code_of<exp_op>, moved), dim_bit(1));            // partial over x
  b.g.outputs = {b.op(code_of<negative_op>, b.reshard(summed, split({{y}, {}})))};  // reduce_scatter, then the cheapest path
  const auto p = plan_at_run_time(b.g, b.mesh, {});
  REQUIRE(p.error.empty());
  const plan_view view(p);

  // The bytes of the arena that are in use during each step. A value is in use from the step that computes it to the
  // last step that reads it. If a step computes the operand of a reduction in blocks, the blocks are in use in that
  // step.
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
    most =
        std::max(most, lines.size() + static_cast<std::size_t>(facts_of(p.steps[i]).scratch_bytes(view, p.steps[i]) + 63) / 64);
  }
  CHECK(static_cast<std::int64_t>(most) * 64 + 128 == p.arena_bytes);  // the blocks leave a gap next to the sums
  CHECK(count_of<kernels::move>(p) + count_of<kernels::combine>(p) >= 3);

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
  CHECK(packed({16, 8}, split({{x}}), {}) == elems{0, 0});                  // consecutive: MPI_Allgather
  CHECK(packed({16, 8}, split({{}, {x}}), {}) == elems{128, 0});            // gathered, then each row is moved to its position
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
