// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include "gspmd/detail/ir/program_pass.hpp"
#include "gspmd/detail/passes/list/pipeline.hpp"
#include "gspmd/detail/support/frozen.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// The work of one constant evaluation. Clang stops after 1,048,576 steps and GCC after 33 million; a price may take
/// thousands. A multigrid cycle with 400 operators took 1.05 million.
#if defined(__clang__)
inline constexpr effort effort_per_evaluation{64, 96, 200};
inline constexpr std::size_t longest_in_one_evaluation = 480;  // in nodes
#else
inline constexpr effort effort_per_evaluation{256, 512, 1024};
inline constexpr std::size_t longest_in_one_evaluation = 1536;
#endif

/// A program in the global view, before it is planned. If the program is refused, it is a placeholder, and `broken` is
/// the mistake.
struct accepted_program : graph {
  bool is_as_traced = false;  // true: the program is long, so program_to_plan is a separate evaluation

  struct views {
    span<const node> nodes;
    span<const int> inputs, outputs;
    span<const scope> scopes;
    span<const program_pass* const> passes;
  };
  static constexpr auto lists(auto& s, auto f) { return f(s.nodes, s.inputs, s.outputs, s.scopes, s.passes); }
  struct rest_members {
    const mesh_info* mesh = nullptr;
    bool has_regions = false, allow_replication = false, is_explicit = false, has_manual_regions = false, is_as_traced = false;
    std::int64_t largest_bytes = 0;
    mistake broken = mistake::none;
  };
  static constexpr auto rest(auto& s, auto f) {
    return f(s.mesh, s.has_regions, s.allow_replication, s.is_explicit, s.has_manual_regions, s.is_as_traced, s.largest_bytes,
             s.broken);
  }
};
/// Returns views of the lists of a program that is a constant.
constexpr accepted_program::views lists_of_program(const auto& frozen) {
  accepted_program::views views;
  frozen.view_lists(views);
  return views;
}

/// The results of the passes as constants. Each pass is a separate evaluation, from constant to constant, because
/// compilers limit the steps of an evaluation.
///
/// `Program` is a graph as a constant, see frozen_program. `Until` are passes of the same program for another request.
/// Their results are shared up to the pass that makes steps of the local program.
template <class Program, class Mesh, class Until = void>
struct static_passes {
  using off = without<>;
  using chosen_by = std::conditional_t<Mesh::info.request.is_searched, search_pass, choose_pass>;
  static constexpr graph program() { return Program::frozen().thaw(); }
  static constexpr const mesh_shape& mesh() { return Mesh::info.shape; }
  static constexpr const plan_request& request() { return Mesh::info.request; }
  static constexpr auto lists_of_program() { return detail::lists_of_program(Program::frozen()); }
  static constexpr std::size_t node_count() { return lists_of_program().nodes.size(); }
  static constexpr std::vector<split_origin>* origins() { return nullptr; }
  /// Returns true if the program is so long that an evaluation can do only a part of a pass.
  static constexpr bool is_long() { return node_count() > longest_in_one_evaluation; }
  static constexpr std::size_t input_count() { return lists_of_program().inputs.size(); }
  static constexpr std::size_t output_count() { return lists_of_program().outputs.size(); }
  static constexpr std::size_t scope_count() { return lists_of_program().scopes.size(); }
  static constexpr std::int64_t largest_bytes() { return Program::frozen().rest.largest_bytes; }

  template <class Pass>
  static constexpr const auto& frozen() {
    if constexpr (!std::is_void_v<Until> && boost::mp11::mp_contains<before_steps, Pass>::value)
      return Until::template frozen<Pass>();
    else if constexpr (requires { Pass::run(static_passes{}); }) return frozen_result<make<Pass>>::value();
    else return last_part<Pass, 1>();
  }
  template <class Pass>
  static constexpr typename Pass::result of() {
    if constexpr (std::is_trivially_copyable_v<typename Pass::result>) return number<Pass>::made;
    else return frozen<Pass>().thaw();
  }
  template <class Pass>
  static constexpr typename Pass::result take() {
    return of<Pass>();
  }
  /// Returns the lengths of the lists of a result, by their names.
  template <class Pass>
  static constexpr auto lengths() {
    return frozen<Pass>().sizes.template by_name<typename Pass::result::lengths>();
  }
  /// Returns the number of operators of the local program that are movements with a map.
  static constexpr std::size_t movements() {
    local_program::views local;
    frozen<emit_pass>().view_lists(local);
    std::size_t count = 0;
    for (const auto& op : local.ops) count += op.movement >= 0 ? 1 : 0;
    return count;
  }

  /// Returns the plan with the better order of its steps.
  static constexpr const auto& plan() {
    if constexpr (frozen<order_pass>().rest.is_any) {
      if constexpr (is_smaller(plan_view(frozen<place_pass<true>>()), plan_view(frozen<place_pass<false>>())))
        return frozen<place_pass<true>>();
      else return frozen<place_pass<false>>();
    } else {
      return frozen<place_pass<false>>();
    }
  }

 private:
  using before_steps =
      boost::mp11::mp_list<complete_pass, uses_pass, narrow_pass, choose_pass, search_pass, emit_pass, lines_pass>;
  template <class Pass>
  struct number {
    static constexpr auto made = Pass::run(static_passes{});
  };
  template <class Pass>
  struct make {
    static constexpr auto run() { return Pass::run(static_passes{}); }
    static constexpr auto guess() { return Pass::guess(static_passes{}); }
  };
  /// The state of a long pass after `Part` evaluations.
  template <class Pass, std::size_t Part>
  struct make_part {
    static constexpr auto run() {
      auto state = [] {
        if constexpr (Part > 1) return frozen_result<make_part<Pass, Part - 1>>::value().thaw();
        else return Pass::begin(static_passes{});
      }();
      Pass::go_on(static_passes{}, state, effort_per_evaluation);
      return state;
    }
    static constexpr auto guess() {
      list_sizes<typename Pass::result> before_it;
      if constexpr (Part > 1) before_it = frozen_result<make_part<Pass, Part - 1>>::value().sizes;
      return Pass::guess(static_passes{}, before_it, effort_per_evaluation);
    }
  };
  template <class Pass, std::size_t Part>
  static constexpr const auto& last_part() {
    using part = frozen_result<make_part<Pass, Part>>;
    if constexpr (Pass::is_complete(part::value())) return part::value();
    else return last_part<Pass, Part + 1>();
  }
};

}  // namespace gspmd::detail
