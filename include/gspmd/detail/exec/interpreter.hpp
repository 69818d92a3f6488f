// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>

#include "gspmd/detail/exec/element_types.hpp"
#include "gspmd/detail/exec/fused_dynamic.hpp"
#include "gspmd/detail/exec/local_step.hpp"
#include "gspmd/detail/exec/meeting_subject.hpp"
#include "gspmd/detail/exec/static_program.hpp"
#include "gspmd/detail/exec/windowed.hpp"

/// The run-time path: the steps of a plan, one after the other, by the kernels that the static path uses.
namespace gspmd::detail {

struct runtime_step {
  const plan_view* view;
  const plan_step* s;
  const void* prepared = nullptr;  // the reduction_plan or permutation_plan

  [[nodiscard]] const plan_view& plan() const { return *view; }
  [[nodiscard]] const plan_step& step() const { return *s; }
  [[nodiscard]] auto contraction() const {
    const int spec = s->what == action::windowed ? window_of(*view, *s).contraction : s->spec;
    return runtime_spec{&view->contractions[static_cast<std::size_t>(spec)]};
  }
  [[nodiscard]] auto reduction() const {
    return prepared_spec{&view->reductions[static_cast<std::size_t>(s->spec)], static_cast<const reduction_plan*>(prepared)};
  }
  [[nodiscard]] auto permutation() const {
    return prepared_spec{&view->permutations[static_cast<std::size_t>(s->spec)], static_cast<const permutation_plan*>(prepared)};
  }
};

class interpreter {
 public:
  explicit interpreter(const plan_view& plan) : plan_(plan) {
    std::int64_t scratch = 0;
    std::size_t operands = 1;
    std::size_t results = 1;
    std::size_t bounds = 1;
    for (const auto& s : plan.steps) {
      operands = std::max(operands, static_cast<std::size_t>(s.operands.count));
      results = std::max(results, static_cast<std::size_t>(s.results.count));
      bounds = std::max(bounds, static_cast<std::size_t>(s.bounds.count));
      if (s.what == action::loop_begin) counters_.resize(plan.steps.size());
      ready_.push_back(0);
      if (s.what == action::fused) {
        ready_.back() = loops_.size();
        loops_.emplace_back();
        if (group_of_step(plan_, s).cut != 0) continue;  // made for the devices that are met
        loops_.back().emplace_back(group_of(plan_, s));
        scratch = std::max(scratch, loops_.back().back().scratch_bytes);
      } else if (s.what == action::reduce) {
        ready_.back() = reductions_.size();
        reductions_.push_back(plan_reduction(plan_.reductions[static_cast<std::size_t>(s.spec)]));
      } else if (s.what == action::permute) {
        ready_.back() = permutations_.size();
        permutations_.push_back(plan_permutation(plan_.permutations[static_cast<std::size_t>(s.spec)]));
      } else if (s.what == action::move) {
        ready_.back() = moves_.size();
        moves_.push_back(numbered(*plan_.mesh, movement_of(plan_, s)));
      } else if (s.what == action::combine) {
        ready_.back() = combines_.size();
        combines_.push_back(numbered(*plan_.mesh, reduction_of(plan_, s)));
      }
    }
    scratch_ = aligned_bytes(scratch);
    scratch_bytes_ = scratch;
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
          communicate(comm, current, devices, from, to);
        } else if (s.what == action::windowed) {
          with_element_type(s.type, [&](auto element) {
            using T = decltype(element);
            if constexpr (!std::is_same_v<T, bool>) run_windowed<T>(runtime_step{&plan_, &s}, comm, devices);
          });
          for (int d = 0; d < comm.local_count(); ++d) clear_results(plan_, s, devices[d]);
        } else if (s.what >= action::loop_begin) {
          current = go_on(s, current, devices, comm.local_count());
        } else {
          for (int d = 0; d < comm.local_count(); ++d) compute(current, devices[d]);
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
  void communicate(Comm& comm, int current, const device_memory* devices, const void** from, void** to) {
    const auto& s = plan_.steps[static_cast<std::size_t>(current)];
    const auto ready = ready_[static_cast<std::size_t>(current)];
    for (int d = 0; d < comm.local_count(); ++d) {
      from[d] = devices[d].read(plan_.operand(s, 0).where);
      to[d] = devices[d].write(plan_.result(s).where);
      keep_operand(plan_, s, devices[d]);
    }
    with_element_type(s.type, [&](auto element) {
      using T = decltype(element);
      const auto* in = reinterpret_cast<const T* const*>(from);
      auto* out = reinterpret_cast<T* const*>(to);
      if (s.what == action::move) comm.template move<T>(*plan_.mesh, moves_[ready], in, out);
      else comm.template reduce<T>(*plan_.mesh, combines_[ready], in, out);
    });
    for (int d = 0; d < comm.local_count(); ++d) clear_results(plan_, s, devices[d]);
  }

  /// The loop of a fused step, for the elements that exist on a device.
  const fused_code& loop_of(const plan_step& s, std::size_t ready, const device_memory& device) {
    auto& made = loops_[ready];
    if (group_of_step(plan_, s).cut == 0) return made.front();
    const extents loop = existing_loop(plan_, s, device);
    for (const auto& code : made)
      if (code.group.loop == loop) return code;
    auto group = group_of(plan_, s);
    group.loop = loop;
    made.emplace_back(group, group_of_step(plan_, s).loop);
    if (made.back().scratch_bytes > scratch_bytes_) {
      scratch_bytes_ = made.back().scratch_bytes;
      scratch_ = aligned_bytes(scratch_bytes_);
    }
    return made.back();
  }

  void compute(int current, const device_memory& device) {
    const auto& s = plan_.steps[static_cast<std::size_t>(current)];
    const auto ready = ready_[static_cast<std::size_t>(current)];
    switch (s.what) {
      case action::contract:
        with_element_type(s.type, [&](auto element) {
          using T = decltype(element);
          if constexpr (!std::is_same_v<T, bool>) run_contract<T>(runtime_step{&plan_, &s}, device);
        });
        break;
      case action::reduce:
        with_element_type(s.type, [&](auto element) {
          run_reduce<decltype(element)>(runtime_step{&plan_, &s, &reductions_[ready]}, device);
        });
        break;
      case action::permute:
        with_element_type(s.type, [&](auto element) {
          run_permute<decltype(element)>(runtime_step{&plan_, &s, &permutations_[ready]}, device);
        });
        break;
      case action::copy:
      case action::row:
      case action::set_row: run_copy(plan_, s, device); break;
      case action::local: run_local_function(plan_, s, device); break;
      default:
        for (int k = 0; k < s.operands.count; ++k) inputs_[static_cast<std::size_t>(k)] = device.read(plan_.operand(s, k).where);
        for (int k = 0; k < s.results.count; ++k) outputs_[static_cast<std::size_t>(k)] = device.write(plan_.result(s, k).where);
        find_offsets(plan_, s, device, offsets_.data());
        {
          const auto& code = loop_of(s, ready, device);  // before scratch_ is read: it may grow
          run_fused(code, inputs_.data(), outputs_.data(), offsets_.data(), scratch_.get());
        }
        if (group_of_step(plan_, s).cut != 0) clear_results(plan_, s, device);
    }
  }

  plan_view plan_;
  std::vector<std::size_t> ready_;              // by step: the place in the list of its kind
  std::vector<std::vector<fused_code>> loops_;  // more than one where devices differ in what exists
  std::vector<reduction_plan> reductions_;
  std::vector<permutation_plan> permutations_;
  std::vector<movement> moves_;
  std::vector<struct reduction> combines_;
  aligned_bytes scratch_;  // what the largest of the loops needs
  std::int64_t scratch_bytes_ = 0;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::int64_t> counters_;  // by step: of the loops
};

}  // namespace gspmd::detail
