// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "gspmd/detail/passes/list/make_plan.hpp"
#include "gspmd/run/compile.hpp"
#include "support/equal_plans.hpp"
#include "support/evaluate_program.hpp"
#include "support/random_callable.hpp"
#include "support/traced.hpp"

/// Random programs that the compiler plans and whose compiled kernels run, compared with the naive evaluation of the
/// same program.
namespace random_callables {

using meshes = std::tuple<mesh<axis<"x", 2>, axis<"y", 2>>, mesh<axis<"x", 4>, axis<"y", 1>>, mesh<axis<"x", 2>, axis<"y", 3>>,
                          mesh<axis<"x", 2>, axis<"y", 4>, device_order<3, 1, 0, 2, 7, 5, 6, 4>>,
                          mesh<axis<"x", 1>, axis<"y", 2>>, mesh<axis<"y", 2>, axis<"z", 2>, axis<"x", 2>>>;
using splits = std::tuple<split<"x", _>, split<_, "y">, split<"x", "y">, split<"x,y", _>, split<"?", "x">, split<"y", "?">,
                          split<_, _>, unannotated>;

/// The inputs and mesh for which the program of a seed is compiled. `Mesh` is an index into the list.
template <unsigned Seed, unsigned Mesh>
struct program {
  static constexpr unsigned seed = Seed;
  using number = std::conditional_t<Seed % 4 == 1, double, float>;
  template <unsigned Draw>
  using split_of = std::tuple_element_t<Draw % 8, splits>;
  using pod = std::tuple_element_t<Mesh, meshes>;
  using x = input<number, shape<7, 12>, split_of<Seed>>;
  using y = input<number, shape<12, 7>, split_of<Seed / 8 + 3 * Seed>>;
  using z = std::conditional_t<Seed % 5 == 2, input<number, shape<7, 7>, split<_, "x">, partial<"y">>,
                               input<number, shape<7, 7>, split_of<Seed / 3 + Seed>>>;
  using step = compile<callable<Seed>, pod, x, y, z>;

  /// Returns the first difference between the plans made by the compiler and at run time, or "".
  static std::string plan_difference() {
    using planned_on = typename step::mesh_type;
    const auto planned = detail::plan_at_run_time(detail::trace_program<callable<Seed>, planned_on, x, y, z>(),
                                                  planned_on::info.shape, planned_on::info.request);
    return reference::difference(step::view, detail::plan_view(planned));
  }
};

/// The total counts of many plans. A test that reaches only small counts checks little.
struct tally {
  int loops = 0;
  int conditionals = 0;
  int collectives = 0;
  int in_loops = 0;  // of the collectives

  void count(const detail::plan_view& plan) {
    for (const auto& s : plan.steps) {
      loops += detail::is<detail::kernels::loop_begin>(s) ? 1 : 0;
      conditionals += detail::is<detail::kernels::branch>(s) ? 1 : 0;
      collectives += s.bytes_sent > 0 ? 1 : 0;
      in_loops += s.bytes_sent > 0 && s.times > 1 ? 1 : 0;
    }
  }
};

/// The inputs of a program and its expected outputs.
class expectation {
 public:
  expectation(unsigned seed, dtype type, const detail::mesh_info& mesh) : seed_(seed), mesh_(mesh) {
    int k = static_cast<int>(seed);
    for (const auto& shape : {std::vector<std::int64_t>{7, 12}, {12, 7}, {7, 7}})
      inputs_.push_back(reference::reals(shape, -1.1, 1.3, k += 7, type));
    double largest = 0;
    outputs_ = evaluate(inputs_, &largest);
    // The possible effect of another order of sums. A wrong element differs by much more.
    tolerance_ = (type == dtype::f64 ? 1e-12 : 1e-4) * (1 + largest);
  }

  /// Runs `step` on the devices of `comm`. Returns the mistake in their outputs, or "".
  template <class Comm>
  std::string wrong_run(Comm& comm, const detail::plan_view& plan,
                        void (*step)(Comm& comm, const void* const* inputs, void* const* outputs)) const {
    std::vector<detail::aligned_bytes> memory;
    std::vector<const void*> in;
    std::vector<void*> out;
    for (int d = 0; d < comm.local_count(); ++d) {
      for (std::size_t k = 0; k < plan.inputs.size(); ++k) {
        memory.push_back(input_shard(plan, k, comm.device(d)));
        in.push_back(memory.back().get());
      }
      for (const int o : plan.outputs) {
        memory.emplace_back(bytes_of(plan.value(o)));
        out.push_back(memory.back().get());
      }
    }
    step(comm, in.data(), out.data());
    for (int d = 0; d < comm.local_count(); ++d)
      for (std::size_t k = 0; k < plan.outputs.size(); ++k) {
        const auto wrong = wrong_output(plan, k, comm.device(d), out[static_cast<std::size_t>(d) * plan.outputs.size() + k]);
        if (!wrong.empty()) return "seed " + std::to_string(seed_) + ", " + wrong;
      }
    return {};
  }

  /// Returns the mistake in the gradients, or "". The reference is a finite difference of the same loss in f64 along a
  /// direction.
  [[nodiscard]] std::string wrong_gradients() const {
    if (!has_gradients(seed_)) return {};
    auto at = inputs_;
    for (auto& x : at) x.type = dtype::f64;
    const auto outputs = evaluate(at, nullptr);
    double slope = 0;
    const double h = 1e-6;
    auto ahead = at;
    auto behind = at;
    for (std::size_t k = 0; k < 2; ++k)
      for (std::size_t e = 0; e < at[k].size(); ++e) {
        const double along = std::sin(static_cast<double>(3 * e + k + 1));
        ahead[k].reals[e] += h * along;
        behind[k].reals[e] -= h * along;
        slope += outputs[2 + k].reals[e] * along;
      }
    const double wanted = (evaluate(ahead, nullptr)[1].reals[0] - evaluate(behind, nullptr)[1].reals[0]) / (2 * h);
    if (std::fabs(slope - wanted) <= 1e-6 * (1 + std::fabs(wanted))) return {};
    return "seed " + std::to_string(seed_) + ": the slope is " + reference::number_text(slope) + " and differences say " +
           reference::number_text(wanted);
  }

 private:
  using host_array = reference::host_array;
  using shards = reference::partitioned_run;

  [[nodiscard]] std::vector<host_array> evaluate(const std::vector<host_array>& inputs, double* largest) const {
    reference::traced traced;
    traced.g.mesh = &mesh_;
    std::vector<value> in;
    for (const auto& x : inputs) in.push_back(traced.input(x));
    for (const value& v : traced_results(seed_, in[0], in[1], in[2])) traced.output(v);
    const auto g = detail::canonical_order(traced.g);
    const reference::evaluation all(g, inputs);
    if (largest != nullptr) *largest = all.largest;
    std::vector<host_array> outputs;
    for (const int o : g.outputs) outputs.push_back(all.values[static_cast<std::size_t>(o)]);
    return outputs;
  }
  static std::int64_t bytes_of(const detail::planned_value& v) { return detail::elements(v.local) * detail::bytes_of(v.type); }

  /// Returns a shard whose padding is NaN. A partial input is split into parts whose sum is the input.
  [[nodiscard]] detail::aligned_bytes input_shard(const detail::plan_view& plan, std::size_t k, int device) const {
    const auto& v = plan.value(plan.inputs[k]);
    detail::aligned_bytes buffer(bytes_of(v));
    std::memset(buffer.get(), 0xff, static_cast<std::size_t>(bytes_of(v)));
    const auto part = detail::group_index(*plan.mesh, v.layout.partial, plan.mesh->coordinates_of(device));
    const auto others = plan.mesh->size_of(v.layout.partial) - 1;
    auto whole = inputs_[k];
    for (auto& r : whole.reals) r = part > 0 ? 0.25 : r - 0.25 * static_cast<double>(others);
    shards::for_each_valid(*plan.mesh, v, static_cast<std::size_t>(device),
                           [&](std::size_t from, std::size_t to) { shards::put(whole, from, buffer.get(), to); });
    return buffer;
  }
  [[nodiscard]] std::string wrong_output(const detail::plan_view& plan, std::size_t k, int device, const void* shard) const {
    const auto& v = plan.value(plan.outputs[k]);
    const auto& wanted = outputs_[k];
    if (v.layout.partial != 0 || v.type != wanted.type) return "output " + std::to_string(k) + " is partial or of another type";
    std::string wrong;
    shards::for_each_valid(*plan.mesh, v, static_cast<std::size_t>(device), [&](std::size_t global, std::size_t local) {
      host_array got(v.type, {1});
      shards::get(got, static_cast<const std::byte*>(shard), local);
      if (std::fabs(got.reals[0] - wanted.reals[global]) <= tolerance_) return;  // false for NaN
      wrong = "output " + std::to_string(k) + " on device " + std::to_string(device) + ": element " + std::to_string(global) +
              " is " + reference::number_text(got.reals[0]) + ", not " + reference::number_text(wanted.reals[global]) + " +- " +
              reference::number_text(tolerance_);
    });
    return wrong;
  }

  unsigned seed_;
  const detail::mesh_info& mesh_;
  std::vector<host_array> inputs_;
  std::vector<host_array> outputs_;
  double tolerance_ = 0;
};

/// Runs a program twice on the devices of `comm`, the second time with a used arena.
template <class Program, class Comm>
std::string wrong_run_on(Comm& comm, const expectation& e) {
  using step = typename Program::step;
  return e.wrong_run<Comm>(comm, step::view, [](Comm& devices, const void* const* in, void* const* out) {
    step held;
    held.run(devices, in, out);
    held.run(devices, in, out);
  });
}
template <class Program>
expectation expectation_of() {
  return {Program::seed, detail::dtype_of<typename Program::number>(), Program::pod::info};
}

/// Runs a program on simulated devices and then on one thread per device. GCC 12 plans a program again for every
/// function template that names it, so this function does all checks of a program.
template <class Program>
std::string wrong_run_here(tally& all) {
  using step = typename Program::step;
  all.count(step::view);
  if (const auto other = Program::plan_difference(); !other.empty())
    return "seed " + std::to_string(Program::seed) + ", the plans differ: " + other;
  const auto e = expectation_of<Program>();
  if (auto wrong = e.wrong_gradients(); !wrong.empty()) return wrong;
  simulated_communicator simulated_devices(step::device_count);
  if (const auto wrong = wrong_run_on<Program>(simulated_devices, e); !wrong.empty()) return "simulated, " + wrong;
  std::vector<std::string> wrong(step::device_count);
  launch(threads{}, step::device_count,
         [&](threads_communicator& comm) { wrong[static_cast<std::size_t>(comm.device(0))] = wrong_run_on<Program>(comm, e); });
  for (const auto& w : wrong)
    if (!w.empty()) return "threads, " + w;
  return {};
}

}  // namespace random_callables
