// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive threads
// group: random
#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "gspmd/dynamic.hpp"
#include "support/run_random.hpp"

// Random programs whose values are annotated by the axes of two or three meshes over the same devices.

namespace {

using namespace gspmd;
using reference::random_numbers;

/// Meshes of the same devices: the prime factors of their number in one order, for each mesh exchanged or not and put together
/// to axes.
std::vector<dynamic::mesh> random_meshes(random_numbers& random, int devices) {
  std::vector<std::int64_t> digits;  // major to minor
  for (int rest = devices, p = 2; rest > 1; ++p)
    for (; rest % p == 0; rest /= p) digits.insert(digits.begin() + random.between(0, static_cast<int>(digits.size())), p);
  std::vector<std::int64_t> stride(digits.size(), 1);
  for (std::size_t i = digits.size(); i-- > 1;) stride[i - 1] = stride[i] * digits[i];
  std::vector<dynamic::mesh> meshes;
  for (int m = random.between(2, 3); m > 0; --m) {
    std::vector<std::size_t> turn(digits.size());
    for (std::size_t i = 0; i < turn.size(); ++i) turn[i] = i;
    if (random.chance(50))
      for (std::size_t i = turn.size(); i > 1; --i)
        std::swap(turn[i - 1], turn[static_cast<std::size_t>(random.between(0, static_cast<int>(i) - 1))]);
    std::vector<dynamic::mesh::axis> axes;
    for (const auto t : turn) {
      if (axes.empty() || random.chance(50))
        axes.push_back({std::string(1, static_cast<char>('a' + m)) + std::to_string(axes.size()), 1});
      axes.back().size *= digits[t];
    }
    if (random.chance(20)) axes.insert(axes.begin() + random.between(0, static_cast<int>(axes.size())), {"one", 1});
    std::vector<std::int32_t> order;
    for (std::int64_t i = 0; i < devices; ++i) {
      std::int64_t rest = i, id = 0;
      for (std::size_t k = turn.size(); k-- > 0;) {
        id += rest % digits[turn[k]] * stride[turn[k]];
        rest /= digits[turn[k]];
      }
      order.push_back(static_cast<std::int32_t>(id));
    }
    meshes.emplace_back(axes, order);
  }
  return meshes;
}

/// Some sharding by the axes of one mesh, as `dynamic::in` takes it.
std::vector<dim_spec> random_names(random_numbers& random, const detail::mesh_info& mesh, int rank) {
  std::vector<std::string> dims(static_cast<std::size_t>(rank));
  std::vector<int> axes;
  for (int a = 0; a < mesh.shape.axis_count(); ++a) axes.insert(axes.begin() + random.between(0, a), a);
  for (const int a : axes)
    if (rank > 0 && random.chance(75)) {
      auto& d = dims[static_cast<std::size_t>(random.between(0, rank - 1))];
      d += (d.empty() ? "" : ",") + std::string(mesh.name(a));
    }
  std::vector<dim_spec> specs;
  for (auto& d : dims) specs.emplace_back(std::string_view(random.chance(20) ? d += "?" : d));
  return specs;
}

struct annotated {
  reference::random_program program;
  dynamic::mesh mesh;
  int by_other_meshes = 0;
  std::string wrong;
};

annotated with_views(std::uint64_t seed) {
  reference::random_options options;
  options.partial_inputs = false;
  options.permute_devices = false;
  reference::random_program program(seed, options);
  random_numbers random(seed + 77);
  const auto meshes = random_meshes(random, program.device_count());
  annotated result{std::move(program), dynamic::views(meshes), 0, {}};
  const auto& info = result.mesh.info();
  for (auto& n : result.program.g.nodes) {
    if (!n.annotated) continue;
    const auto which = static_cast<std::size_t>(random.between(0, static_cast<int>(meshes.size()) - 1));
    const auto& own = meshes[which].info();
    const auto specs = random_names(random, own, n.shape.count);
    const auto r = detail::resolve(info, specs.data(), n.shape.count, n.shape.count);
    const auto alone = detail::resolve(own, specs.data(), n.shape.count, n.shape.count);
    if (!r.problem.empty() || !alone.problem.empty()) result.wrong = "seed " + std::to_string(seed) + ": not resolved";
    for (std::int64_t d = 0; d < info.shape.device_count(); ++d)
      for (int dim = 0; dim < n.shape.count; ++dim)
        if (detail::part_index(info.shape, r.value, dim, info.shape.coordinates_of(d)) !=
            detail::part_index(own.shape, alone.value, dim, own.shape.coordinates_of(d)))
          result.wrong = "seed " + std::to_string(seed) + ": another part under " + std::string(specs[0].view());
    // what is written is read again as the same
    std::vector<dim_spec> written;
    for (int dim = 0; dim < n.shape.count; ++dim) written.push_back(detail::spec_of(info, r.value, dim));
    if (!detail::same_layout(detail::resolve(info, written.data(), n.shape.count, n.shape.count).value, r.value))
      result.wrong = "seed " + std::to_string(seed) + ": is not read as it is written";
    n.annotation = r.value;
    result.by_other_meshes += which > 0 && !r.value.splits.empty() ? 1 : 0;
  }
  result.program.mesh = info.shape;
  return result;
}

}  // namespace

TEST_CASE("random programs on two or three meshes over the same devices equal the naive reference") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::setting("GSPMD_PROGRAMS", 3000);
  std::uint64_t collectives = 0, by_other_meshes = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    const auto a = with_views(seed);
    if (!a.wrong.empty()) FAIL_CHECK(a.wrong);
    by_other_meshes += a.by_other_meshes > 0 ? 1 : 0;
    const auto plan = detail::make_plan(a.program.g, a.program.mesh);
    const detail::plan_view view(plan);
    for (const auto& s : plan.steps) collectives += s.bytes_sent > 0 ? 1 : 0;
    simulated_communicator comm(a.program.device_count());
    const auto wrong = reference::run_and_check(comm, a.program, view);
    if (!wrong.empty()) FAIL_CHECK(wrong);
    if (seed % 10 != 0) continue;
    std::vector<std::string> on_threads(static_cast<std::size_t>(a.program.device_count()));
    launch(threads{}, a.program.device_count(),
           [&](auto& c) { on_threads[static_cast<std::size_t>(c.device(0))] = reference::run_and_check(c, a.program, view); });
    for (const auto& message : on_threads)
      if (!message.empty()) FAIL_CHECK(message);
  }
  std::printf("random views: seeds %llu to %llu, %llu with annotations by a second mesh, %llu collectives\n",
              static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + count - 1),
              static_cast<unsigned long long>(by_other_meshes), static_cast<unsigned long long>(collectives));
  CHECK(by_other_meshes > count / 2);
  CHECK(collectives > count / 2);
}
