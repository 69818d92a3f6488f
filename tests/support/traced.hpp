// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/detail/passes/list/make_plan.hpp"
#include "gspmd/detail/passes/rewrite/canonical.hpp"
#include "gspmd/detail/run/interpreter.hpp"
#include "gspmd/transform/grad.hpp"
#include "support/all_operators.hpp"
#include "support/random_program.hpp"

/// Programs written with the public operators and traced at run time, with numbers for their inputs.
namespace reference {

using gspmd::value;

class traced {
 public:
  graph g;
  ir::mesh_info mesh;
  std::vector<host_array> inputs;

  explicit traced(const std::vector<int>& mesh_sizes = {1}) {
    constexpr const char* names[] = {"x", "y", "z", "u"};
    for (std::size_t a = 0; a < mesh_sizes.size(); ++a) mesh.add_axis(names[a], mesh_sizes[a]);
    g.mesh = &mesh;
  }
  traced(const traced&) = delete;  // values point into the graph

  value input(host_array x) {
    const int id = ir::add_parameter(g, x.type, extents_of(x.shape), ir::location::input(static_cast<int>(inputs.size())));
    inputs.push_back(std::move(x));
    return {&g, id};
  }
  void output(value x) { g.outputs.push_back(x.id()); }

  /// Evaluates the nodes up to `last` with the naive evaluator.
  [[nodiscard]] std::vector<host_array> evaluate(int last) const {
    std::vector<host_array> values(g.nodes.size());
    for (std::size_t k = 0; k < inputs.size(); ++k) values[static_cast<std::size_t>(g.inputs[k])] = inputs[k];
    for (int i = 0; i <= last; ++i) values[static_cast<std::size_t>(i)] = evaluate_node(g, i, values);
    return values;
  }
  [[nodiscard]] host_array evaluate(value x) const { return evaluate(x.id())[static_cast<std::size_t>(x.id())]; }

  static ir::extents extents_of(const std::vector<std::int64_t>& shape) {
    ir::extents result;
    for (const auto e : shape) result.push_back(e);
    return result;
  }
};

/// Returns different numbers in (low, high) that are not round.
inline host_array reals(const std::vector<std::int64_t>& shape, double low, double high, int seed = 1, dtype type = dtype::f64) {
  host_array x(type, shape);
  double at = 0.1234567 * seed;
  for (auto& r : x.reals) {
    at += 0.6180339887498949;
    at -= std::floor(at);
    r = round_to(type, low + (high - low) * at);
  }
  return x;
}
inline host_array reals(const std::vector<std::int64_t>& shape, const std::vector<double>& list) {
  host_array x(dtype::f64, shape);
  x.reals = list;
  return x;
}
inline host_array integers(dtype type, const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& list) {
  host_array x(type, shape);
  x.ints = list;
  return x;
}

inline std::string number_text(double x) {
  char digits[40];
  std::snprintf(digits, sizeof digits, "%.17g", x);
  return digits;
}

/// Returns the first difference, or "". NaN never equals anything.
inline std::string difference(const host_array& got, const host_array& want, double tolerance) {
  if (got.type != want.type) return "the types differ";
  if (got.shape != want.shape) return "the shapes differ";
  for (std::size_t i = 0; i < want.reals.size(); ++i)
    if (!(got.reals[i] == want.reals[i] || std::fabs(got.reals[i] - want.reals[i]) <= tolerance))
      return "element " + std::to_string(i) + " is " + number_text(got.reals[i]) + ", not " + number_text(want.reals[i]);
  for (std::size_t i = 0; i < want.ints.size(); ++i)
    if (got.ints[i] != want.ints[i])
      return "element " + std::to_string(i) + " is " + std::to_string(got.ints[i]) + ", not " + std::to_string(want.ints[i]);
  return {};
}

/// The outputs of a program that was planned for its mesh and run on simulated devices, assembled from the shards.
/// `wrong` reports an element that differs between two devices. Padding of the inputs holds NaN or large numbers. The
/// devices' own memory holds NaN.
struct partitioned_run {
  std::vector<host_array> outputs;
  std::string wrong;
  int collectives = 0;

  explicit partitioned_run(const traced& program) {
    const graph g = ir::canonical_order(program.g);
    const auto& mesh = program.mesh.shape;
    const auto planned = ir::plan_at_run_time(g, mesh, program.mesh.request);
    if (!planned.error.empty()) {
      wrong = std::string(planned.error.view());
      return;
    }
    const ir::plan_view plan(planned);
    for (const auto& s : planned.steps) collectives += s.bytes_sent > 0 ? 1 : 0;
    const auto devices = static_cast<std::size_t>(mesh.device_count());
    std::vector<ir::aligned_bytes> memory;
    std::vector<const void*> in;
    std::vector<void*> out;
    const auto shard = [&](const ir::planned_value& v) {
      const auto bytes = ir::elements(v.local) * ir::bytes_of(v.type);
      memory.emplace_back(bytes);
      auto* p = static_cast<std::byte*>(static_cast<void*>(memory.back().get()));
      std::memset(p, v.type == dtype::pred ? 1 : ir::is_floating(v.type) ? 0xff : 0x7f, static_cast<std::size_t>(bytes));
      return p;
    };
    for (std::size_t d = 0; d < devices; ++d) {
      for (std::size_t k = 0; k < plan.inputs.size(); ++k) {
        const auto& v = plan.value(plan.inputs[k]);
        auto* p = shard(v);
        for_each_valid(mesh, v, d, [&](std::size_t from, std::size_t to) { put(program.inputs[k], from, p, to); });
        in.push_back(p);
      }
      for (const int o : plan.outputs) out.push_back(shard(plan.value(o)));
    }
    std::vector<ir::device_memory> states;
    for (std::size_t d = 0; d < devices; ++d) {
      memory.emplace_back(plan.arena_bytes);
      std::memset(memory.back().get(), 0xff, static_cast<std::size_t>(plan.arena_bytes));
      states.push_back({in.data() + d * plan.inputs.size(), out.data() + d * plan.outputs.size(), memory.back().get(),
                        mesh.coordinates_of(static_cast<std::int64_t>(d))});
    }
    std::vector<const void*> from(devices);
    std::vector<void*> to(devices);
    gspmd::simulated_communicator comm(static_cast<int>(devices));
    ir::interpreter steps(plan);
    steps.run(comm, states.data(), from.data(), to.data());
    for (std::size_t k = 0; k < plan.outputs.size(); ++k) {
      const auto& v = plan.value(plan.outputs[k]);
      outputs.emplace_back(v.type, std::vector<std::int64_t>(v.global.begin(), v.global.end()));
      std::vector<bool> known(outputs.back().size());
      for (std::size_t d = 0; d < devices; ++d)
        for_each_valid(mesh, v, d, [&](std::size_t global, std::size_t local) {
          host_array one(v.type, {1});
          get(one, static_cast<const std::byte*>(out[d * plan.outputs.size() + k]), local);
          auto& whole = outputs.back();
          const bool same = whole.floating() ? std::memcmp(&whole.reals[global], one.reals.data(), sizeof(double)) == 0
                                             : whole.ints[global] == one.ints[0];
          if (known[global] && !same)
            wrong = "device " + std::to_string(d) + " has another element " + std::to_string(global) + " of output " +
                    std::to_string(k);
          known[global] = true;
          if (whole.floating()) whole.reals[global] = one.reals[0];
          else whole.ints[global] = one.ints[0];
        });
      for (const bool k_is_known : known)
        if (!k_is_known) wrong = "no device has some element of output " + std::to_string(k);
    }
  }

  template <class Visit>
  static void for_each_valid(const ir::mesh_shape& mesh, const ir::planned_value& v, std::size_t device, Visit visit) {
    const auto at = mesh.coordinates_of(static_cast<std::int64_t>(device));
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> begins;
    for (int d = 0; d < v.global.count; ++d) {
      const auto range = ir::dim_range(mesh, v.global, v.layout, d, at);
      sizes.push_back(range.size());
      begins.push_back(range.begin);
    }
    const std::vector<std::int64_t> global(v.global.begin(), v.global.end());
    const std::vector<std::int64_t> local(v.local.begin(), v.local.end());
    for_each_index(sizes, [&](const index& i) {
      index there = i;
      for (std::size_t d = 0; d < there.size(); ++d) there[d] += begins[d];
      visit(offset_of(there, global), offset_of(i, local));
    });
  }
  static void put(const host_array& x, std::size_t from, std::byte* shard, std::size_t to) {
    ir::with_real_type(x.type, [&](auto element) {
      using T = decltype(element);
      const auto e = x.floating() ? static_cast<T>(x.reals[from]) : static_cast<T>(x.ints[from]);
      std::memcpy(shard + to * sizeof(T), &e, sizeof(T));
    });
  }
  static void get(host_array& x, const std::byte* shard, std::size_t from) {
    ir::with_real_type(x.type, [&](auto element) {
      using T = decltype(element);
      T e{};
      std::memcpy(&e, shard + from * sizeof(T), sizeof(T));
      if (x.floating()) x.reals[0] = static_cast<double>(e);
      else x.ints[0] = static_cast<std::int64_t>(e);
    });
  }
};

/// Returns a sharding of `rank` dims by some axes of the mesh, in any order.
inline ir::annotation random_sharding(const ir::mesh_shape& mesh, int rank, random_numbers& random) {
  ir::annotation s;
  std::vector<int> axes;
  for (int a = 0; a < mesh.axis_count(); ++a) axes.insert(axes.begin() + random.between(0, a), a);
  for (const int a : axes)
    if (rank > 0 && random.chance(70)) s.layout.add_split(a, random.between(0, rank - 1));
  if (random.chance(40))
    for (int d = 0; d < rank; ++d)
      if (random.chance(50)) s.open |= ir::dim_bit(d);
  return s;
}

/// Annotates inputs (often) and results (sometimes) that have no annotation yet.
inline void annotate(traced& program, random_numbers& random) {
  for (auto& n : program.g.nodes) {
    const int percent = n.op == opcode::parameter ? 75 : 20;
    if (n.annotated || n.op == gspmd::detail::code_of<gspmd::detail::reshard_op> || !random.chance(percent)) continue;
    n.annotated = true;
    n.annotation = random_sharding(program.mesh.shape, n.shape.count, random);
  }
}

inline std::vector<int> random_mesh(random_numbers& random) {
  static const std::vector<std::vector<int>> meshes = {{2},    {3},    {4},    {5},    {7},    {8},       {2, 2},
                                                       {2, 3}, {3, 2}, {1, 4}, {2, 4}, {4, 2}, {2, 2, 2}, {2, 1, 3}};
  return random.one_of(meshes);
}

}  // namespace reference
