// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "gspmd/detail/edge/whole_run.hpp"
#include "gspmd/detail/ir/can_alias.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/ops/own/kept_functions.hpp"
#include "gspmd/detail/report/explain_plan.hpp"
#include "gspmd/detail/run/bound_devices.hpp"
#include "gspmd/detail/run/interpreter.hpp"
#include "gspmd/detail/run/step_checks.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/dynamic/mesh.hpp"
#include "gspmd/dynamic/placed_tensor.hpp"
#include "gspmd/plan/budget.hpp"
#include "gspmd/program/array.hpp"

namespace gspmd {
namespace detail {

/// Returns the plan of a program. Cuts axes of `m` if reshapes need it. `refined` receives the program on the cut mesh,
/// or the program with recomputed values if a device has a memory limit. It stays empty if neither applies. Throws
/// gspmd::error with the first mistake.
template <class = once>
std::shared_ptr<const plan> planned(dynamic::mesh& m, const graph& g, std::optional<graph>& refined);

template <class = once>
plan_view view_of(const plan& p);

/// Throws gspmd::error if the program is planned for blocks with ghost layers.
inline void require_dense_plan(const mesh_info& mesh) {
  if (!mesh.request.given.empty())
    throw error("session: the program is planned for ghost layers; make a session of the ghosted_program");
}

}  // namespace detail

namespace dynamic {

/// A whole tensor whose element type is known at run time.
struct any_array {
  dtype type = dtype::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  template <class T>
  [[nodiscard]] const T* data() const {
    if (detail::dtype_of<T>() != type)
      throw error(std::string("the array is ") + detail::name_of(type) + ", not " + detail::name_of(detail::dtype_of<T>()));
    return reinterpret_cast<const T*>(bytes.data());
  }
};

/// The estimated time of one step, and a time that no plan is below (the option `solve`).
struct plan_bound {
  double seconds = 0, least_seconds = 0;
};

/// A compiled program. You can keep it, copy it, run it any number of times, and query the plan.
///
/// **Threads.** Any number of threads may run and query one program: it never changes, and every run has its own
/// session.
class program {
 public:
  /// `functions` owns the functions that maps of the graph point to.
  program(mesh m, const detail::graph& g, std::shared_ptr<const detail::kept_functions> functions = nullptr)
      : mesh_(std::move(m)), functions_(std::move(functions)) {
    std::optional<detail::graph> refined;
    plan_ = detail::planned(mesh_, g, refined);
    view_ = detail::view_of(*plan_);
  }
  /// Makes the program of a plan that was made for the mesh.
  program(mesh m, std::shared_ptr<const detail::plan> plan, std::shared_ptr<const detail::kept_functions> functions)
      : mesh_(std::move(m)), functions_(std::move(functions)), plan_(std::move(plan)), view_(detail::view_of(*plan_)) {}
  // Copies share the plan. A move is a copy, so that no moved-from program has a view of a destroyed plan.
  program(const program&) = default;
  program& operator=(const program&) = default;

  [[nodiscard]] const detail::plan_view& view() const { return view_; }
  [[nodiscard]] const detail::mesh_info& mesh_info() const { return mesh_.info(); }

  /// Returns the collectives, in the order of execution on every device.
  [[nodiscard]] std::vector<collective> collectives() const {
    std::vector<collective> result;
    for (const auto& s : view_.steps)
      if (detail::communicates(s)) result.push_back({s.collective, detail::axes_text(mesh_.info(), s.axes).view()});
    return result;
  }
  /// The traffic, memory and arithmetic of one device, as in `compile`.
  [[nodiscard]] gspmd::traffic traffic() const { return {view_, mesh_.info()}; }
  [[nodiscard]] std::int64_t peak_bytes_per_device() const { return detail::peak_bytes(view_); }
  [[nodiscard]] std::int64_t packing_bytes_per_device() const { return detail::packing_bytes(view_); }
  [[nodiscard]] std::int64_t flops_per_device() const { return detail::total_flops(view_); }

  /// Returns the time of the plan and its lower bound, by the planner's prices. Returns nullopt without the option
  /// `solve`, and if the solver does not support the program.
  [[nodiscard]] std::optional<plan_bound> bound() const {
    if (view_.times.least < 0) return {};
    return plan_bound{static_cast<double>(view_.times.plan) / 1e12, static_cast<double>(view_.times.least) / 1e12};
  }

  /// The inputs, the outputs, and the results of all operators that the outputs need, with their shardings, in the
  /// order of the program. Throws gspmd::error if the input or output does not exist.
  [[nodiscard]] std::size_t input_count() const { return view_.inputs.size(); }
  [[nodiscard]] std::size_t output_count() const { return view_.outputs.size(); }
  [[nodiscard]] placed_tensor input(std::size_t k) const { return placed(view_.inputs, k, "input"); }
  [[nodiscard]] placed_tensor output(std::size_t k) const { return placed(view_.outputs, k, "output"); }
  [[nodiscard]] std::vector<traced_operator> operators() const {
    std::vector<traced_operator> result;
    for (const auto& n : view_.nodes) {
      if (n.value < 0) continue;
      const char* const file = n.at.is_input() ? "" : n.at.file;
      result.push_back({detail::name_of(n.op), file, n.at.is_input() ? n.at.number() : n.at.line,
                        placed_tensor(mesh_.shared_info(), view_.value(n.value))});
    }
    return result;
  }
  /// Returns the input whose memory a session may use for output `k`, or -1 if output `k` updates no input.
  [[nodiscard]] int shared_input(std::size_t k) const {
    static_cast<void>(output(k));
    return view_.shared_inputs[k];
  }
  /// Returns true if a session may write output `k` to the memory of input `i`: no step reads the input after the
  /// output is written.
  [[nodiscard]] bool can_alias(std::size_t k, std::size_t i) const {
    static_cast<void>(output(k));
    static_cast<void>(input(i));
    return detail::can_alias(view_, k, i);
  }

  /// Returns true if every device runs the same steps on the same memory, on meshes with the same axes and devices.
  /// Source locations do not count. A function with state in a map equals only itself, so a program with a stateful
  /// function equals only its copies.
  friend bool operator==(const program& a, const program& b) {
    return a.plan_ == b.plan_ || (detail::same_mesh(a.mesh_.info(), b.mesh_.info()) && detail::same_plan(a.view_, b.view_));
  }

  /// Runs once on whole arrays and returns whole arrays, like run<step>.
  template <class Backend, class... Arguments>
  std::vector<any_array> run(const Backend& backend, const Arguments&... arguments) const {
    static_assert((detail::accept_containers<Arguments>() && ...));
    const auto inputs = detail::before_launch(backend, [&] { return detail::whole_inputs(view_, arguments...); });
    return run(backend, inputs.pointers);
  }
  /// The same for pointers to whole arrays, one for each input. The caller ensures that their sizes and types are
  /// right.
  template <class Backend>
  std::vector<any_array> run(const Backend& backend, const std::vector<const void*>& inputs) const {
    return run_by(backend, inputs,
                  [this](auto& group, const void* const* in, void* const* out) { this->run_on(group, in, out); });
  }
  /// The same with a function that runs the program on the devices of a communicator: run(comm, inputs, outputs). It
  /// may call run_steps with steps that are made from this program's plan.
  template <class Backend, class Run>
  std::vector<any_array> run_by(const Backend& backend, const std::vector<const void*>& inputs, Run run) const {
    auto arrays = detail::before_launch(backend, [&] {
      std::vector<any_array> made;
      for (const int o : view_.outputs) made.push_back(zeros(view_.value(o)));
      return made;
    });
    std::vector<void*> outputs;
    for (auto& a : arrays) outputs.push_back(a.bytes.data());
    launch(backend, static_cast<int>(mesh_.device_count()), [&](auto& group) { run(group, inputs.data(), outputs.data()); });
    return arrays;
  }

  template <class Comm>
  void run_steps(Comm& comm, detail::interpreter& steps, const void* const* inputs, void* const* outputs) const;

 private:
  static any_array zeros(const detail::planned_value& v) {
    const auto bytes = detail::elements(v.global) * detail::bytes_of(v.type);
    return {v.type, std::vector<std::int64_t>(v.global.begin(), v.global.end()),
            detail::taken(
                bytes, [&] { return std::vector<std::byte>(static_cast<std::size_t>(bytes)); },
                [&] { return "a result of " + std::string(detail::shape_text(v.global).view()); })};
  }
  template <class Comm>
  void run_on(Comm& comm, const void* const* inputs, void* const* outputs) const;

  [[nodiscard]] placed_tensor placed(detail::span<const int> list, std::size_t k, const char* what) const {
    if (k >= list.size())
      throw error(std::string(what) + ' ' + std::to_string(k) + " does not exist; the program has " +
                  std::to_string(list.size()) + ", which count from 0");
    return {mesh_.shared_info(), view_.value(list[k])};
  }
  dynamic::mesh mesh_;
  std::shared_ptr<const detail::kept_functions> functions_;
  std::shared_ptr<const detail::plan> plan_;
  detail::plan_view view_;
};

/// Returns the plan of a program as text, like `explain<step>()`.
inline std::string explain(const program& p, const detail::explained_part& part = {}) {
  return detail::explain_plan(p.view(), p.mesh_info(), part);
}

template <class Comm>
void program::run_on(Comm& comm, const void* const* inputs, void* const* outputs) const {
  detail::interpreter steps(view_, &mesh_.info());
  run_steps(comm, steps, inputs, outputs);
}
template <class Comm>
void program::run_steps(Comm& comm, detail::interpreter& steps, const void* const* inputs, void* const* outputs) const {
  detail::require_dense_plan(mesh_.info());
  detail::bound_devices bound;
  detail::run_whole<true>(view_, comm, inputs, outputs, [&](auto& members, const void* const* in, void* const* out) {
    bound.bind(members, view_, in, out);
    steps.run(members, bound.devices.data(), bound.from.data(), bound.to.data());
  });
}

}  // namespace dynamic
}  // namespace gspmd

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/dynamic/program.ipp"
#endif

#if defined(GSPMD_PRECOMPILED)
#include "gspmd/dynamic/program_instances.ipp"
#endif
