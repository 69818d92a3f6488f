// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/tree.hpp"
#include "gspmd/detail/run/step_checks.hpp"
#include "gspmd/program/sharded_array.hpp"

namespace gspmd::detail {

/// The copies and messages that a step keeps for arguments that are views of external memory. Empty before the first
/// call with a view.
struct kept_views {
  std::int64_t copied_bytes = 0, bytes_sent = 0;    // of the last call with a view
  bool keeps_messages = false, has_ghosts = false;  // true if it is a placed_leaves, a ghosted_leaves
  kept_views() = default;
  kept_views(const kept_views&) = delete;
  kept_views& operator=(const kept_views&) = delete;
  virtual ~kept_views() = default;
};
/// Runs a step on arguments with views: see external/shards.hpp. Programs without views do not include the definition.
template <class Comm>
struct call_with_views;
struct ghosted_facts;
/// The facts of a compiled plan for ghost layers, or null.
template <class Program>
constexpr auto ghosts_of() {
  if constexpr (requires { Program::ghosts; }) return static_cast<const ghosted_facts*>(&Program::ghosts);
  else return nullptr;
}
[[noreturn, gnu::cold]] inline void throw_no_ghosts() {
  throw error("step: the program is planned for ghost layers; pass a ghosted_view for each input and result that has layers");
}
/// Reports a missing definition.
template <class Comm>
consteval bool accept_shard_views() {
  constexpr bool is_included = requires { sizeof(call_with_views<Comm>); };
  static_assert(is_included, "gspmd: step: to pass a view of external memory as a shard, include gspmd/external.hpp");
  return is_included;
}

/// The memory of the shards that are passed to a step. It depends on the step only through its tables. So one function
/// reads a group of sharded_arrays for all steps and communicators.
class given_memory {
 public:
  given_memory() = default;
  given_memory(given_memory&&) = default;
  given_memory& operator=(given_memory&&) = default;
  [[gnu::noinline]] ~given_memory() {}

  [[gnu::noinline]] void resize(const plan_view& plan, std::size_t devices) {
    inputs.resize(devices * plan.inputs.size());
    outputs.resize(devices * plan.outputs.size());
  }
  /// Sets the address of leaf `leaf` of the program on device `d`. Inputs are numbered first.
  void put(const plan_view& plan, std::size_t leaf, std::size_t d, const void* shard) {
    inputs[d * plan.inputs.size() + leaf] = shard;
  }
  void put(const plan_view& plan, std::size_t leaf, std::size_t d, void* shard) {
    const auto before = plan.inputs.size();
    if (leaf < before) inputs[d * before + leaf] = shard;
    else outputs[d * plan.outputs.size() + leaf - before] = shard;
  }

  /// Sets the addresses of the leaves of `tree`. The first leaf has the number `leaf`; the first `Inputs` leaves are
  /// inputs.
  template <std::size_t Inputs, class Tree>
  [[gnu::noinline]] void put_tree(const plan_view& plan, const mesh_info& mesh, std::size_t leaf, std::size_t devices,
                                  Tree& tree) {
    using plain = std::remove_cv_t<Tree>;
    if constexpr (is_leaf<plain>) {
      if (tree.local_count() == 0) throw_empty(plan, leaf);
      check_shards(plan, mesh, leaf, devices, tree.local_count(), tree.planned(), tree.mesh());
      for (std::size_t d = 0; d < devices; ++d) {
        if constexpr (Inputs > 0) {
          put(plan, leaf, d, static_cast<const void*>(tree.data(static_cast<int>(d))));
        } else {
          void* shard = tree.data(static_cast<int>(d));
          put(plan, leaf, d, shard);
        }
      }
    } else {
      [&]<std::size_t... P>(std::index_sequence<P...>) {
        (put_tree<(Inputs > leaves_before<plain, P>() ? Inputs - leaves_before<plain, P>() : 0)>(
             plan, mesh, leaf + leaves_before<plain, P>(), devices, part<P>(tree)),
         ...);
      }(std::make_index_sequence<part_count<plain>()>{});
    }
  }

  [[nodiscard]] std::int64_t copied_bytes() const { return views == nullptr ? 0 : views->copied_bytes; }
  [[nodiscard]] std::int64_t bytes_sent() const { return views == nullptr ? 0 : views->bytes_sent; }

  std::unique_ptr<kept_views> views;
  std::vector<const void*> inputs;  // device d, input k: [d * number of inputs + k]
  std::vector<void*> outputs;       // the same with outputs
};

/// Returns true if all leaves are sharded_arrays.
template <class Tree>
constexpr bool is_sharded_tree() {
  if constexpr (is_leaf<Tree>) {
    return is_sharded_array<Tree>;
  } else {
    return []<std::size_t... P>(std::index_sequence<P...>) {
      return (is_sharded_tree<std::remove_cvref_t<decltype(part<P>(std::declval<Tree&>()))>>() && ...);
    }(std::make_index_sequence<part_count<Tree>()>{});
  }
}

}  // namespace gspmd::detail
