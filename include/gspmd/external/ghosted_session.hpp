// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "gspmd/detail/run/bound_devices.hpp"
#include "gspmd/detail/run/interpreter.hpp"
#include "gspmd/external/detail/ghosted_leaves.hpp"
#include "gspmd/external/detail/given_rows.hpp"
#include "gspmd/external/ghosted_program.hpp"
#include "gspmd/external/session.hpp"

namespace gspmd {

/// Runs a ghosted_program on blocks with ghost layers in external memory, like ghosted_step. It reads inputs in place,
/// and writes results into blocks.
///
/// The documentation of ghosted_step describes the views, the layers, and the leaves that are used in place. After the
/// first call, no memory in proportion to the blocks is allocated.
///
/// **Communication.** Collective.
/// **Errors.** Throws gspmd::error: the errors of ghosted_step; `exchange_ghosts` for an input whose layers cannot be
/// filled.
/// **Threads.** Like session.
/// **Example.**
///
///     ghosted_session s(program);
///     // u's layers are valid: nothing is sent
///     s(comm, strided_view(u, {rows + 2, 66}), strided_view(next, {rows + 2, 66}));
///     // the session fills them first
///     s(comm, exchange_ghosts(strided_view(u, {rows + 2, 66})), strided_view(next, {rows + 2, 66}));
class ghosted_session {
 public:
  explicit ghosted_session(const ghosted_program& p)
      : ghosted_session(p, std::make_unique<detail::interpreter>(p.program().view(), &p.program().mesh_info())) {}
  /// The same with loops in native code: `dynamic::native_code code(p.program())` (gspmd/native/native_code.hpp).
  template <class Native>
    requires requires(const Native& code) { code.make_steps(); }
  ghosted_session(const ghosted_program& p, const Native& code) : ghosted_session(p, code.make_steps()) {}

  template <communicator Comm, class... Shards>
  void operator()(Comm& comm, Shards&&... shards) {
    static_assert((detail::accept_views<std::remove_cvref_t<Shards>>() && ...));
    const auto used = bound_.take();
    const auto& program = program_.program();
    if (comm.local_count() != 1) detail::throw_several_devices(static_cast<std::size_t>(comm.local_count()));
    require_devices(comm, static_cast<int>(program.view().mesh->device_count()));
    leaves_.begin("ghosted_session", program_.facts(), program.mesh_info(), comm.device(0), detail::check_given_array);
    (detail::for_each_leaf(shards, [&](auto& leaf) { leaves_.add(leaf); }), ...);
    leaves_.finish(comm);
    bound_.bind(comm, program.view());
    auto& device = bound_.devices[0];
    device.inputs = leaves_.inputs();
    device.outputs = leaves_.outputs();
    const detail::given_rows rows{leaves_.strides(), &detail::placed_later, detail::place_given_rows};
    device.given = &rows;
    steps_->run(comm, bound_.devices.data(), bound_.from.data(), bound_.to.data());
    leaves_.put_back();
  }
  /// Returns the bytes that the last call copied for shards that are not in place, in and out.
  [[nodiscard]] std::int64_t copied_bytes() const { return leaves_.copied_bytes(); }

 private:
  ghosted_session(const ghosted_program& p, std::unique_ptr<detail::interpreter> steps) : program_(p), steps_(std::move(steps)) {}

  ghosted_program program_;
  std::unique_ptr<detail::interpreter> steps_;
  detail::bound_devices bound_;
  detail::ghosted_leaves leaves_;
};

}  // namespace gspmd
