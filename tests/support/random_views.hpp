// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "support/random_program.hpp"

/// Random programs whose values are annotated with the axes of several meshes over the same devices.
namespace reference {

using namespace gspmd;

/// Returns meshes over the same devices. They use the prime factors of the number of devices in one order. Each mesh
/// exchanges some factors and combines adjacent factors to axes.
inline std::vector<dynamic::mesh> random_meshes(random_numbers& random, int devices) {
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

/// Returns a random sharding by the axes of one mesh, in the format of `dynamic::input`.
inline std::vector<dim_spec> random_names(random_numbers& random, const detail::mesh_info& mesh, int rank) {
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
  random_program program;
  dynamic::mesh mesh;
  int by_other_meshes = 0;
  std::string wrong;
};

/// Returns the program of a seed, annotated with the axes of two or three meshes.
inline annotated with_views(std::uint64_t seed, random_options options = {}) {
  options.partial_inputs = false;
  options.permute_devices = false;
  random_program program(seed, options);
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
        if (detail::part_index(info.shape, r.value.layout, dim, info.shape.coordinates_of(d)) !=
            detail::part_index(own.shape, alone.value.layout, dim, own.shape.coordinates_of(d)))
          result.wrong = "seed " + std::to_string(seed) + ": another part under " + std::string(specs[0].view());
    // Check that the written sharding is read as the same sharding.
    std::vector<dim_spec> written;
    for (int dim = 0; dim < n.shape.count; ++dim) written.push_back(detail::spec_of(info, r.value.layout, dim));
    if (detail::resolve(info, written.data(), n.shape.count, n.shape.count).value.layout != r.value.layout)
      result.wrong = "seed " + std::to_string(seed) + ": is not read as it is written";
    n.annotation = r.value;
    result.by_other_meshes += which > 0 && !r.value.layout.splits.empty() ? 1 : 0;
  }
  result.program.mesh = info.shape;
  return result;
}

}  // namespace reference
