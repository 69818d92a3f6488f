// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "gspmd/detail/run/bound_devices.hpp"
#include "gspmd/extend/edge.hpp"

/// Views of external memory as shards of a step or a session: a strided_view, a placed_view (external/placed_view.hpp),
/// a ghosted_view (external/with_ghosts.hpp), or a view with an edge of your own (gspmd/extend/edge.hpp). Pass them in
/// any mixture with sharded_arrays, pointers and ranges, one by one or in groups.
///
/// A strided_view has the local extents. If this device holds less along a dim, the view can also have only the
/// elements of the device. A view that is dense, row-major and of the local extents is used in place. The device copies
/// other inputs before the step and other results after it. The copies are in memory of the step object, which stays
/// for the next call. If results are copied, they can be in the memory of an input, even if step::can_alias is false.
///
/// **Errors.** Throws gspmd::error: the errors of the step; a view of another shape; results that share elements; a
/// communicator that holds several devices. If the step throws, no result is copied.
/// **Example.**
///
///     step s;                                  // or dynamic::session s(program);
///     s(comm, strided_view(u, {52, 66}).interior({1, 1}), weights, strided_view(next, {52, 66}).interior({1, 1}));
///     s.copied_bytes();                        // 2 * 50 * 64 * 8
namespace gspmd::detail {

/// The copies of the strided views in a call.
class strided_leaves : public kept_views {
 public:
  void begin(const plan_view& plan, int device) {
    copies_.begin(plan, device);
    is_view_.assign(plan.inputs.size() + plan.outputs.size(), false);
    bytes_sent = 0;
  }
  /// Returns the memory of the view, or its copy.
  template <class Comm, class View>
  typename View::element* take(Comm&, std::size_t k, const View& view) {
    return static_cast<typename View::element*>(take_block(k, external_block(view)));
  }
  /// Checks that copied results overlap no other result. `given` has the memory of the leaves that are no views.
  void check_results(const plan_view& plan, const given_memory& given) {
    const auto inputs = plan.inputs.size();
    for (std::size_t k = 0; k < is_view_.size(); ++k)
      if (!is_view_[k]) copies_.note(k, k < inputs ? given.inputs[k] : given.outputs[k - inputs]);
    copies_.check_results();
    copied_bytes = copies_.copied_bytes();
  }
  template <class Comm, class... Shards>
  void put_back(Comm&, const Shards&...) {
    copies_.put_back();
  }

 protected:
  void* take_block(std::size_t k, const external_block& block) {
    is_view_[k] = true;
    return copies_.take(k, block);
  }
  /// Returns the caller's memory of a leaf.
  [[nodiscard]] strided_memory memory_of(std::size_t k) const { return copies_.given(k); }
  std::vector<bool> is_view_;

 private:
  dense_copies copies_;
};

/// The views in a call with a view that has its own layout. Defined in external/placed_view.hpp.
template <class Comm>
struct leaves_with_layouts;

/// Runs a step on arguments with ghost cells: external/detail/ghosted_leaves.hpp defines it.
template <class Comm>
struct call_with_ghosts;

template <class Comm>
struct call_with_views {
  /// Runs a step on the devices `bound`, for the plan of a compiled `Program`, or of a session if it is void.
  ///
  /// `put_all(shard_of)` stores the shards in `given`: `shard_of(k, view)` returns the shard of a view. `start()` runs
  /// the bound devices. `ghosts` are the facts of a plan for ghost layers, or null.
  template <class Program, class Ghosts, class PutAll, class Start, class... Shards>
  static void run(Comm& comm, const plan_view& plan, Ghosts ghosts, bound_devices& bound, given_memory& given, PutAll put_all,
                  Start start, const Shards&... shards) {
    static_assert((accept_views<Shards>() && ...));
    constexpr bool has_ghosts =
        (!std::is_void_v<Program> && !std::is_null_pointer_v<Ghosts>) || (has_leaf<ghost_cells_constant, Shards>() || ...);
    static_assert(
        !has_ghosts || !std::is_null_pointer_v<Ghosts>,
        "gspmd: step: a view has ghost cells, and the step is not planned for them; use with_ghosts<step, ghosts<...>...>");
    if (comm.local_count() != 1) throw_several_devices(static_cast<std::size_t>(comm.local_count()));
    if constexpr (!has_ghosts) {
      if (ghosts != nullptr) throw_no_ghosts();
      auto& leaves = kept<(has_leaf<own_layout_constant, Shards>() || ...)>(given.views);
      leaves.begin(plan, comm.device(0));
      put_all([&](std::size_t k, const auto& view) { return leaves.take(comm, k, view); });
      leaves.check_results(plan, given);
      bound.bind(comm, plan, given.inputs.data(), given.outputs.data());
      start();
      leaves.put_back(comm, shards...);
    } else if constexpr (!std::is_null_pointer_v<Ghosts>) {
      constexpr bool is_included = requires { sizeof(call_with_ghosts<Comm>); };
      static_assert(is_included,
                    "gspmd: step: to pass a view with ghost cells, include gspmd/external/with_ghosts.hpp, or "
                    "gspmd/external/ghosted_program.hpp for a session");
      if constexpr (is_included)
        call_with_ghosts<Comm>::template run<Program>(comm, plan, ghosts, bound, given, put_all, start, shards...);
    }
  }

 private:
  template <bool HasLayouts>
  static auto& kept(std::unique_ptr<kept_views>& views) {
    if constexpr (HasLayouts) {
      constexpr bool is_included = requires { sizeof(leaves_with_layouts<Comm>); };
      static_assert(is_included, "gspmd: step: to pass a view with a layout of its own, include gspmd/external/placed_view.hpp");
      using leaves = typename leaves_with_layouts<Comm>::type;
      if (views == nullptr || !views->keeps_messages) views = std::make_unique<leaves>();
      return static_cast<leaves&>(*views);
    } else {
      if (views == nullptr) views = std::make_unique<strided_leaves>();
      return static_cast<strided_leaves&>(*views);
    }
  }
};

}  // namespace gspmd::detail
