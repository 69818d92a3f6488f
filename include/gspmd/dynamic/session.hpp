// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/edge/given_memory.hpp"
#include "gspmd/detail/edge/leaf_checks.hpp"
#include "gspmd/detail/run/bound_devices.hpp"
#include "gspmd/detail/run/interpreter.hpp"
#include "gspmd/detail/run/step_checks.hpp"
#include "gspmd/dynamic/program.hpp"
#include "gspmd/program/row_major.hpp"
#include "gspmd/program/shard_view.hpp"
#include "gspmd/program/sharded_array.hpp"
#include "gspmd/program/tree.hpp"

/// Programs made at run time, on typed shards as for compiled programs: distribute, make_result and a callable session.
namespace gspmd {
namespace detail {

template <class Leaf> concept holds_elements = !std::is_void_v<leaf_element_t<Leaf>>;

/// Returns the shards of an input from a whole array.
template <class Leaf>
auto distributed_leaf(const held_devices& devices, const std::shared_ptr<const dynamic::program>& p, std::size_t k,
                      const Leaf& leaf) {
  static_assert(
      holds_elements<Leaf>,
      "gspmd: distribute: give arrays, contiguous ranges, pointers, or groups of these; for an any_array pass its data<T>()");
  using T = leaf_element_t<Leaf>;
  static_assert(is_element<T> && !own_element<T>,
                "gspmd: distribute: a program that is made at run time has no elements of this type");
  check_whole(p->view(), k, given_tensor(dtype_of<T>(), leaf));
  if constexpr (std::is_pointer_v<Leaf>)
    if (leaf == nullptr && elements(leaf_of(p->view(), k).global) > 0)
      throw error("distribute: " + words_of_leaf(p->view(), k) + " is given no memory: the pointer is null");
  sharded_array<T> shards(devices.local_count(), *p->view().mesh, leaf_of(p->view(), k), p);
  distribute_leaf(devices, leaf, shards);
  return shards;
}

/// Returns an empty array for a view or a std::vector<bool>: accept_container has reported the error.
template <class Leaf>
  requires(is_external_view<Leaf> || !has_addresses<Leaf>)
sharded_array<float> distributed_leaf(const held_devices&, const std::shared_ptr<const dynamic::program>&, std::size_t,
                                      const Leaf&) {
  return {};
}

template <class Tree>
std::size_t count_leaves(Tree& tree) {
  std::size_t n = 0;
  for_each_leaf(tree, [&n](auto&) { ++n; });
  return n;
}

}  // namespace detail

namespace dynamic {

/// Returns the shards of whole arrays for input `first` of a program and the inputs after it, one input per array.
///
/// `whole` is an array, a contiguous range, a pointer, or a group of these (structs, arrays, vectors, tuples,
/// also nested). The result is a sharded_array, or a group of the same form. The arrays share ownership of
/// the program data that they need. Every process passes the whole data, or at least the elements of its devices.
///
/// **Communication.** None.
/// **Errors.** gspmd::error if the element type, the shape or the number of elements differs from the input's; the text
/// names the input. A range with one dim, or without known extents, needs only the right number of elements. Also if an
/// input does not exist, or the number of devices differs.
/// **Example.**
///
///     auto x = distribute(comm, program, 0, pixels);   auto w = distribute(comm, program, 1, weights);
template <communicator Comm, class Whole>
auto distribute(const Comm& comm, const program& p, std::size_t first, const Whole& whole) {
  static_assert(detail::accept_containers<Whole>());
  detail::check_leaves("distribute", "input", first, detail::count_leaves(whole), p.input_count());
  const detail::held_devices devices(comm, static_cast<int>(p.mesh_info().shape.device_count()));
  const auto kept = std::make_shared<const program>(p);
  return transform_leaves([&](const auto& leaf) { return detail::distributed_leaf(devices, kept, first++, leaf); }, whole);
}

/// Returns zeroed shards for output `first` of a program and the outputs after it, one per leaf of `like`. The result
/// has the form and the element types of `like`. For example, pass the weights to make the next weights.
///
/// **Communication.** None.
/// **Errors.** gspmd::error if the element type differs from the output's, if an output does not exist, or if the
/// number of devices differs.
/// **Example.**
///
///     auto loss = make_result<float>(comm, program, 0);   auto next_w = make_result(comm, program, 1, w);
template <communicator Comm, class Like>
auto make_result(const Comm& comm, const program& p, std::size_t first, const Like& like) {
  detail::check_leaves("make_result", "output", first, detail::count_leaves(like), p.output_count());
  const detail::held_devices devices(comm, static_cast<int>(p.mesh_info().shape.device_count()));
  const auto kept = std::make_shared<const program>(p);
  return transform_leaves(
      [&]<class Leaf>(const Leaf&) {
        using T = typename decltype([] {
          if constexpr (requires { typename Leaf::element; }) return std::type_identity<typename Leaf::element>{};
          else return std::type_identity<detail::leaf_element_t<Leaf>>{};
        }())::type;
        const auto leaf = kept->input_count() + first++;
        const auto& v = detail::leaf_of(kept->view(), leaf);
        if (v.type != detail::dtype_of<T>())
          throw error("make_result: " + detail::words_of_leaf(kept->view(), leaf) + " is " +
                      detail::words_of_tensor(v.type, v.global) + " and cannot have shards of " +
                      detail::name_of(detail::dtype_of<T>()));
        return sharded_array<T>(devices.local_count(), *kept->view().mesh, v, kept);
      },
      like);
}
/// The same for a single output with elements of type T.
template <class T, communicator Comm>
sharded_array<T> make_result(const Comm& comm, const program& p, std::size_t k) {
  return make_result(comm, p, k, sharded_array<T>());
}

/// A program on the devices of a communicator, with their scratch memory. Call it with shards, like an object of a
/// compiled step. Each call checks the arguments, which a compiled step checks by their types.
///
/// **Threads.** One thread at a time, else gspmd::error. Each device of `threads` needs its own session.
/// **Example.**
///
///     dynamic::session s(program);
///     for (int t = 0; t < 100; ++t) s(comm, w, x, loss, w);   // if program.can_alias allows it
class session {
 public:
  explicit session(const dynamic::program& p) : session(p, std::make_unique<detail::interpreter>(p.view(), &p.mesh_info())) {}
  /// The same with loops in native code: `dynamic::native_code code(p)` (gspmd/native/native_code.hpp).
  template <class Native>
    requires requires(const Native& code, const dynamic::program& p) { code.make_steps(p); }
  session(const dynamic::program& p, const Native& code) : session(p, code.make_steps(p)) {}
  /// The same for a program that is planned for ghost layers (external/ghosted_program.hpp).
  template <class Ghosted>
    requires requires(const Ghosted& p) { p.shared_facts(); }
  explicit session(const Ghosted& p)
      : session(p.program(), std::make_unique<detail::interpreter>(p.program().view(), &p.program().mesh_info()),
                p.shared_facts()) {}
  template <class Ghosted, class Native>
    requires requires(const Ghosted& p) { p.shared_facts(); }
  session(const Ghosted& p, const Native& code) : session(p.program(), code.make_steps(p.program()), p.shared_facts()) {}

  [[nodiscard]] const dynamic::program& program() const { return program_; }

  /// Runs the program on the devices of `comm`. Pass the shards of the inputs, then the shards of the outputs, one by
  /// one, in groups or in vectors.
  ///
  /// A shard is a sharded_array of `distribute`, `make_result` or a compiled step. If `comm` holds one device, a shard
  /// may also be a pointer, a contiguous range, or a view of external memory (external/shards.hpp). The elements of a
  /// range are dense and row-major, with the local shape or with one dim. After the first call nothing is allocated.
  /// Outputs must not overlap inputs or each other. But output `k` may use the memory of input `i` if
  /// program().can_alias(k, i).
  ///
  /// **Communication.** Collective.
  /// **Errors.** gspmd::error that names the input or output with its type and shape, if a tensor is missing or has
  /// another type, shape or sharding. Also for a null pointer, an empty array, a const output, overlapping memory, and
  /// every error on a device.
  template <communicator Comm, class... Shards>
  void operator()(Comm& comm, Shards&&... shards) {
    const auto used = bound_.take();
    const auto& plan = program_.view();
    const auto wanted = plan.inputs.size() + plan.outputs.size();
    if (const std::size_t count = (std::size_t{0} + ... + detail::count_leaves(shards)); count != wanted)
      throw error("step: the program has " + detail::counted(static_cast<int>(plan.inputs.size()), "input") + " and " +
                  detail::counted(static_cast<int>(plan.outputs.size()), "output") + " and the call gives " +
                  detail::counted(static_cast<int>(count), "tensor") +
                  "; give the shards of the inputs, then those of the outputs");
    const int held = comm.local_count();
    given_.resize(plan, static_cast<std::size_t>(held));
    const auto put_all = [&](const auto& shard_of) {
      std::size_t leaf = 0;
      (detail::for_each_leaf(shards, [&](auto& given) { put(held, leaf++, given, shard_of); }), ...);
    };
    if constexpr (!(detail::has_view<std::remove_cvref_t<Shards>>() || ...)) {
      put_all(nullptr);
      run_on(comm, given_.inputs.data(), given_.outputs.data());
    } else if constexpr (detail::accept_shard_views<Comm>()) {
      detail::call_with_views<Comm>::template run<void>(
          comm, plan, ghosts_.facts.get(), bound_, given_, put_all, [&] { start(comm); }, shards...);
    }
  }
  /// Returns the bytes that the last call with views copied, in and out, because a view was not dense or had no
  /// padding.
  [[nodiscard]] std::int64_t copied_bytes() const { return given_.copied_bytes(); }
  /// Returns the bytes that this device sent in the last call with views for views with a layout of their own.
  [[nodiscard]] std::int64_t bytes_sent() const { return given_.bytes_sent(); }

  /// The same from pointers: `inputs[d * inputs + k]` is the shard of input k on device d of `comm`: dense, row-major,
  /// with the local extents. The caller ensures that the memory is right.
  template <communicator Comm>
  void run(Comm& comm, const void* const* inputs, void* const* outputs) {
    const auto used = bound_.take();
    run_on(comm, inputs, outputs);
  }

 private:
  session(const dynamic::program& p, std::unique_ptr<detail::interpreter> steps,
          std::shared_ptr<const detail::ghosted_facts> ghosts = nullptr)
      : program_(p), steps_(std::move(steps)), ghosts_{std::move(ghosts)} {
    if (ghosts_.facts == nullptr) detail::require_dense_plan(p.mesh_info());
  }
  /// The facts of a plan for ghost layers, or null. A move is a copy, as for the program.
  struct kept_ghosts {
    std::shared_ptr<const detail::ghosted_facts> facts;
    explicit kept_ghosts(std::shared_ptr<const detail::ghosted_facts> f) : facts(std::move(f)) {}
    kept_ghosts(const kept_ghosts&) = default;
    kept_ghosts& operator=(const kept_ghosts&) = default;
  };
  template <class Comm>
  void run_on(Comm& comm, const void* const* inputs, void* const* outputs) {
    if (ghosts_.facts != nullptr) detail::throw_no_ghosts();
    bound_.bind(comm, program_.view(), inputs, outputs);
    start(comm);
  }
  template <class Comm>
  void start(Comm& comm) {
    const auto& view = program_.view();
    if (!steps_) steps_ = std::make_unique<detail::interpreter>(view, &program_.mesh_info());  // a moved-from session has none
    steps_->run(comm, bound_.devices.data(), bound_.from.data(), bound_.to.data());
  }
  /// Stores the shards of a leaf. `shard_of(k, view)` returns the shard of a view of external memory.
  template <class Given, class ShardOf>
  void put(int held, std::size_t leaf, Given& given, const ShardOf& shard_of) {
    using plain = std::remove_cv_t<Given>;
    const auto& plan = program_.view();
    if constexpr (detail::is_sharded_array<plain>) {
      if (given.local_count() == 0)
        detail::throw_leaf(plan, leaf,
                           "is given an empty sharded_array, never filled or moved from; make it with distribute or make_result");
      detail::check_sharded(plan, program_.mesh_info(), leaf, held, given.local_count(), given.planned(), given.mesh());
      for (int d = 0; d < held; ++d) put_at(leaf, static_cast<std::size_t>(d), given.data(d));
    } else if constexpr (detail::is_external_view<plain>) {
      using element = typename plain::element;
      detail::check_element<std::remove_const_t<element>>(plan, leaf);
      if constexpr (std::is_const_v<element>) detail::require_input(plan, leaf);
      put_at(leaf, 0, shard_of(leaf, given));
    } else if constexpr (!detail::has_addresses<plain>) {
      static_assert(detail::accept_container<plain>());
    } else {
      static_assert(detail::holds_elements<plain>,
                    "gspmd: step: give a sharded_array, a contiguous range or a pointer for each tensor, or groups of them");
      static_assert(std::is_pointer_v<plain> || detail::accept_container<plain>());
      if (held != 1) detail::throw_several_devices(static_cast<std::size_t>(held));
      detail::check_buffer(plan, leaf,
                           detail::given_tensor(detail::dtype_of<detail::leaf_element_t<plain>>(), std::as_const(given)));
      if constexpr (std::is_pointer_v<plain>) {
        put_at(leaf, 0, given);
      } else if constexpr (std::rank_v<plain> > 1) {
        put_at(leaf, 0, reinterpret_cast<std::conditional_t<std::is_const_v<Given>, const void*, void*>>(&given));
      } else {
        detail::require_dense(given);
        if constexpr (detail::is_shard<plain>) check_view(leaf, given);
        put_at(leaf, 0, std::data(given));
      }
    }
  }
  /// Checks a view of a compiled step's shard, whose type states its sharding.
  template <class T, class Mesh, class Dims, class Split>
  void check_view(std::size_t leaf, const shard_view<T, Mesh, Dims, Split>&) const {
    using view = shard_view<T, Mesh, Dims, Split>;
    detail::planned_value has;
    has.type = detail::dtype_of<std::remove_cv_t<T>>();
    has.global = view::global_extents;
    has.layout = view::layout;
    detail::check_sharded(program_.view(), program_.mesh_info(), leaf, 1, 1, has, Mesh::info.shape);
  }
  void put_at(std::size_t leaf, std::size_t d, const void* shard) {
    detail::require_input(program_.view(), leaf);
    given_.put(program_.view(), leaf, d, shard);
  }
  void put_at(std::size_t leaf, std::size_t d, void* shard) { given_.put(program_.view(), leaf, d, shard); }

  dynamic::program program_;
  std::unique_ptr<detail::interpreter> steps_;
  kept_ghosts ghosts_;
  detail::bound_devices bound_;
  detail::given_memory given_;
};

}  // namespace dynamic
}  // namespace gspmd
