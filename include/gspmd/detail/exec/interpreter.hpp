// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>

#include <boost/mp11/algorithm.hpp>

#include "gspmd/detail/exec/fused_dynamic.hpp"
#include "gspmd/detail/exec/local_step.hpp"
#include "gspmd/detail/exec/static_program.hpp"

/// The run-time path: the steps of a plan, one after the other, by the kernels that the static path uses.
namespace gspmd::detail {

struct runtime_step {
  const plan_view* view;
  const plan_step* s;

  [[nodiscard]] const plan_view& plan() const { return *view; }
  [[nodiscard]] const plan_step& step() const { return *s; }
  [[nodiscard]] auto contraction() const { return runtime_spec{&view->contractions[static_cast<std::size_t>(s->spec)]}; }
  [[nodiscard]] auto reduction() const { return runtime_spec{&view->reductions[static_cast<std::size_t>(s->spec)]}; }
  [[nodiscard]] auto permutation() const { return runtime_spec{&view->permutations[static_cast<std::size_t>(s->spec)]}; }
};

using element_types = boost::mp11::mp_list<float, double, std::int32_t, std::int64_t, bool>;  // in the order of dtype

/// Calls `f(T{})` with the element type that `type` names.
template <class F>
void with_element_type(dtype type, F&& f) {
  boost::mp11::mp_with_index<5>(static_cast<std::size_t>(type), [&](auto i) { f(boost::mp11::mp_at_c<element_types, i>{}); });
}

inline fused_group group_of(const plan_view& plan, const plan_step& s) {
  const auto& g = plan.groups[static_cast<std::size_t>(s.spec)];
  return {g.loop, plan.scalar_ops.subspan(static_cast<std::size_t>(g.ops.begin), static_cast<std::size_t>(g.ops.count)),
          plan.stores.subspan(static_cast<std::size_t>(g.stores.begin), static_cast<std::size_t>(g.stores.count))};
}

/// The scratch that the loops of a plan need, the largest of them.
inline std::int64_t fused_scratch_bytes(const plan_view& plan) {
  std::int64_t most = 0;
  for (const auto& s : plan.steps)
    if (s.what == action::fused) most = std::max(most, fused_scratch_bytes(group_of(plan, s)));
  return most;
}

class interpreter {
 public:
  explicit interpreter(const plan_view& plan) : plan_(plan), scratch_(fused_scratch_bytes(plan)) {
    std::size_t operands = 1;
    std::size_t results = 1;
    std::size_t bounds = 1;
    for (const auto& s : plan.steps) {
      operands = std::max(operands, static_cast<std::size_t>(s.operands.count));
      results = std::max(results, static_cast<std::size_t>(s.results.count));
      bounds = std::max(bounds, static_cast<std::size_t>(s.bounds.count));
      if (s.what == action::loop_begin) counters_.resize(plan.steps.size());
    }
    inputs_.resize(operands);
    outputs_.resize(results);
    offsets_.resize(bounds);
  }

  template <class Comm>
  void run(Comm& comm, const device_memory* devices, const void** from, void** to) {
    int current = 0;
    try {
      for (; current < static_cast<int>(plan_.steps.size()); ++current) {
        const auto& s = plan_.steps[static_cast<std::size_t>(current)];
        if (s.what == action::move || s.what == action::combine) {
          communicate(comm, s, devices, from, to);
        } else if (s.what >= action::loop_begin) {
          current = go_on(s, current, devices, comm.local_count());
        } else {
          for (int d = 0; d < comm.local_count(); ++d) compute(s, devices[d]);
        }
      }
    } catch (const error& e) {
      throw at_step(e, plan_, current);
    } catch (const std::exception& e) {  // from a user's map, or a communicator of the user's
      throw at_step(error(e.what()), plan_, current);
    }
  }

 private:
  /// The step before the one that comes after a step of a loop or conditional.
  int go_on(const plan_step& s, int current, const device_memory* devices, int count) {
    switch (s.what) {
      case action::loop_begin:
        if (s.trips == 0) return s.target;
        counters_[static_cast<std::size_t>(current)] = 0;
        set_counter(plan_, s, devices, count, 0);
        return current;
      case action::loop_end: {
        const auto& begin = plan_.steps[static_cast<std::size_t>(s.target)];
        const auto i = ++counters_[static_cast<std::size_t>(s.target)];
        if (i == begin.trips) return current;
        set_counter(plan_, begin, devices, count, i);
        return s.target;
      }
      case action::branch: return holds(plan_, s, devices, count) ? current : s.target;
      case action::otherwise: return s.target;
      default: return current;
    }
  }

  template <class Comm>
  void communicate(Comm& comm, const plan_step& s, const device_memory* devices, const void** from, void** to) {
    for (int d = 0; d < comm.local_count(); ++d) {
      from[d] = devices[d].read(plan_.operand(s, 0).where);
      to[d] = devices[d].write(plan_.result(s).where);
    }
    with_element_type(s.type, [&](auto element) {
      using T = decltype(element);
      const auto* in = reinterpret_cast<const T* const*>(from);
      auto* out = reinterpret_cast<T* const*>(to);
      if (s.what == action::move) comm.template move<T>(*plan_.mesh, movement_of(plan_, s), in, out);
      else comm.template reduce<T>(*plan_.mesh, reduction_of(plan_, s), in, out);
    });
  }

  void compute(const plan_step& s, const device_memory& device) {
    const runtime_step step{&plan_, &s};
    switch (s.what) {
      case action::contract:
        with_element_type(s.type, [&](auto element) {
          using T = decltype(element);
          if constexpr (!std::is_same_v<T, bool>) run_contract<T>(step, device);
        });
        break;
      case action::reduce: with_element_type(s.type, [&](auto element) { run_reduce<decltype(element)>(step, device); }); break;
      case action::permute: with_element_type(s.type, [&](auto element) { run_permute<decltype(element)>(step, device); }); break;
      case action::copy:
      case action::row:
      case action::set_row: run_copy(plan_, s, device); break;
      default:
        for (int k = 0; k < s.operands.count; ++k) inputs_[static_cast<std::size_t>(k)] = device.read(plan_.operand(s, k).where);
        for (int k = 0; k < s.results.count; ++k) outputs_[static_cast<std::size_t>(k)] = device.write(plan_.result(s, k).where);
        for (int b = 0; b < s.bounds.count; ++b)
          offsets_[static_cast<std::size_t>(b)] =
              first_index(plan_, plan_.bounds[static_cast<std::size_t>(s.bounds.begin + b)], device.at);
        run_fused(group_of(plan_, s), inputs_.data(), outputs_.data(), offsets_.data(), scratch_.get());
    }
  }

  plan_view plan_;
  aligned_bytes scratch_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::int64_t> counters_;  // by step: of the loops
};

}  // namespace gspmd::detail
