// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gspmd/external/placed_leaves.hpp"
#include "gspmd/external/session.hpp"

namespace gspmd {

/// Returns a layout that the mesh axes split like input `k` of a program, with another placement for each dim. Dims
/// without a placement are contiguous. The program must outlive the layout.
///
/// **Errors.** Throws gspmd::error: no such input; the errors of placed_layout.
/// **Example.**
///
///     const auto theirs = layout_of_input(program, 0, balanced{});
template <placement... P>
placed_layout<P...> layout_of_input(const dynamic::program& program, std::size_t k, const P&... per_dim) {
  detail::check_leaves("layout_of_input", "input", k, 1, program.input_count());
  const auto& v = program.view().value(program.view().inputs[k]);
  return {*program.view().mesh, v.global, v.layout, per_dim...};
}
/// The same for a result.
template <placement... P>
placed_layout<P...> layout_of_output(const dynamic::program& program, std::size_t k, const P&... per_dim) {
  detail::check_leaves("layout_of_output", "output", k, 1, program.output_count());
  const auto& v = program.view().value(program.view().outputs[k]);
  return {*program.view().mesh, v.global, v.layout, per_dim...};
}

/// A strided_session that also takes placed_views of inputs and results, like placed_step for a program that is
/// compiled at run time.
///
/// **Communication.** Collective. Each element that is on another device in the program's sharding is sent once, before
/// or after the step. The other elements are copied.
/// **Errors.** Throws gspmd::error: the errors of strided_session; blocks of another shape; layouts of another tensor
/// or mesh size.
/// **Threads.** Like session.
/// **Example.**
///
///     placed_session s(program);
///     s(comm, placed_view(theirs, u), placed_view(theirs, next));
///     s.bytes_sent();                          // by this device, for both, in the last call
class placed_session {
 public:
  explicit placed_session(const dynamic::program& p) : program_(p), session_(p) {}

  template <communicator Comm, class... Shards>
  void operator()(Comm& comm, Shards&&... shards) {
    static_assert((detail::accept_views<std::remove_cvref_t<Shards>>() && ...));
    const auto used = use_.take();
    const auto& plan = program_.view();
    if (comm.local_count() != 1) detail::throw_several_devices(static_cast<std::size_t>(comm.local_count()));
    placed_.begin("placed_session", plan);
    shards_.begin("placed_session", plan, program_.mesh_info(), comm.device(0), detail::check_given_array);
    (detail::for_each_leaf(shards, [&](auto& leaf) { add(comm, leaf); }), ...);
    shards_.finish();
    placed_.check_results();
    session_.run(comm, shards_.inputs(), shards_.outputs());
    shards_.put_back();
    std::size_t k = 0;
    const auto take_back = [&]<class Leaf>(Leaf& leaf) {
      if constexpr (detail::has_own_layout<std::remove_cv_t<Leaf>>)
        if (placed_.is_result(k)) placed_.take_back(comm, k, leaf);
      ++k;
    };
    (detail::for_each_leaf(shards, take_back), ...);
  }
  /// Returns the bytes that this device sent in the last call for placed_views. copied_bytes returns the bytes that it
  /// copied for strided_views.
  [[nodiscard]] std::int64_t bytes_sent() const { return placed_.bytes_sent(); }
  [[nodiscard]] std::int64_t copied_bytes() const { return shards_.copied_bytes(); }

 private:
  template <class Comm, class Leaf>
  void add(Comm& comm, Leaf& leaf) {
    const auto k = shards_.count();
    if constexpr (detail::has_own_layout<std::remove_cv_t<Leaf>>) {
      using element = typename std::remove_cv_t<Leaf>::element;
      if (!placed_.is_leaf(k)) return shards_.add_in_place(static_cast<element*>(nullptr));
      shards_.check<element>(k);
      shards_.add_in_place(placed_.bring(comm, k, leaf));
      placed_.note_result(k, leaf);
    } else {
      shards_.add(leaf);
      if (placed_.is_leaf(k)) placed_.note_result(k, shards_.given(k));
    }
  }

  dynamic::program program_;
  dynamic::session session_;
  detail::taken_shards shards_;
  detail::placed_leaves placed_;
  detail::exclusive_use use_;
};

}  // namespace gspmd
