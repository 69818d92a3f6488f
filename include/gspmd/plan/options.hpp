// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/network_rates.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/program/mesh.hpp"

/// The options of a plan. Programs that are compiled and programs that are planned at run time take the same struct.
namespace gspmd {

class network;

namespace detail {

using describe_network = described_network (*)(const network*, const mesh_info&);
using hide_function = void (*)(plan&, span<const int> base, const network_rates&);
using choose_all_function = decltype(plan_request::solve);

// GCC 12 refuses addresses of functions inside template arguments, so the options below refer to variables with them.
template <class Network>
inline constexpr describe_network describe_as =
    [](const network* n, const mesh_info& m) { return static_cast<const Network*>(n)->rates_on(m); };
/// The function that overlaps collectives with computation. plan/overlap.hpp specialises it for bool.
template <class>
struct overlap_header {
  static constexpr bool is_included = false;
};

template <class>
inline constexpr choose_all_function choose_all_by = nullptr;  // plan/solve.hpp specialises it for bool

/// A network, as an option. It refers to the network, so the network has a name, and in a compiled program static
/// storage.
struct network_option {
  const network* of = nullptr;
  const describe_network* describe = nullptr;

  constexpr network_option() = default;
  template <class Network>  // a template, so that this header does not include plan/network.hpp
    requires std::same_as<std::remove_cvref_t<Network>, network>
  constexpr network_option(Network&& given) : of(&given), describe(&describe_as<std::remove_cvref_t<Network>>) {
    static_assert(std::is_lvalue_reference_v<Network>,
                  "gspmd: options: `network` refers to a network, and this one is a temporary; name it: const network n(...)");
  }

  [[nodiscard]] constexpr described_network on(const mesh_info& mesh) const { return (*describe)(of, mesh); }
};

/// Whether collectives overlap with computation.
struct overlap_option {
  const hide_function* hide = nullptr;

  constexpr overlap_option() = default;
  template <std::same_as<bool> Switch>  // a template, so that this header does not include plan/overlap.hpp
  constexpr overlap_option(Switch is_on) {
    static_assert(overlap_header<Switch>::is_included,
                  "gspmd: options: `overlap` needs a header; add #include <gspmd/plan/overlap.hpp>");
    if constexpr (overlap_header<Switch>::is_included)
      if (is_on) hide = &overlap_header<Switch>::hide;
  }
};

struct solve_option {
  const choose_all_function* solve = nullptr;
  constexpr solve_option() = default;
  template <std::same_as<bool> Switch>  // a template, so that this header does not include plan/solve.hpp
  constexpr solve_option(Switch is_on) : solve(is_on ? &choose_all_by<Switch> : nullptr) {
    static_assert(choose_all_by<Switch> != nullptr,
                  "gspmd: options: `solve` needs a header; add #include <gspmd/plan/solve.hpp>");
  }
};

inline constexpr std::int64_t unlimited_memory = INT64_MAX;

}  // namespace detail

/// The options of a plan. Pass them to `compile` as `with<options{...}>`, after the mesh. At run time pass them to
/// dynamic::compile after the mesh, or to dynamic::mesh::with.
///
/// Plans of all options compute the same results, except for the last bits of sums.
///
/// **Errors.** Compile error, at run time gspmd::error: a memory limit that is not positive, or that no known plan
/// fits; a network that does not describe a mesh axis of more than one device. Compile error: `search`, `solve` or
/// `overlap` without its header; `solve` in a compiled program; a network that is a temporary.
/// **Example.**
///
///     constexpr network torus(61.5e12, {{"x", topology::torus, 70e9, 1e-6}, {"y", topology::torus, 70e9, 1e-6}});
///     using step = compile<layer, pod, with<options{.network = torus, .memory = 512 * MiB}>,
///                          input<float, shape<64, 512>, split<"x", "y">>>;
///     auto program = dynamic::compile(layer, m, {.network = torus, .search = true}, dynamic::input<float>({n, 512}));
struct options {
  /// The planner chooses the plan that takes the least time on this network, then the plan that sends the fewest bytes.
  /// The time is the time of the collectives, by axis, and the time of the devices: the larger of computation and
  /// memory traffic. Without this option the planner uses default_network. See plan/network.hpp.
  detail::network_option network = {};

  /// The most bytes that a device holds: inputs, outputs and all values between them, as `peak_bytes_per_device` counts
  /// them.
  ///
  /// If a plan holds more, the planner plans the program again and trades time for memory, in this order. It takes the
  /// first plan that fits.
  ///  1. Gathered inputs are not kept. Each user gathers them again, as in fully sharded data parallelism. The second
  ///     gathers add to the traffic.
  ///  2. Inputs without an annotation are split over axes that have no other use for them.
  ///  3. States are split along several dims. Einsums take gathered operands in parts that rotate around a ring of
  ///     devices. The threshold is a quarter, then a 16th, then a 64th of the limit.
  ///  4. States (inputs with next values) get the sharding that the computation of their next values has.
  ///
  /// If a step of this list leaves memory unused, only some inputs change: first the inputs that are read least often,
  /// then the largest. A bisection finds the number of inputs that change, in about seven more plans. At run time the
  /// planner also recomputes and gathers values between inputs and outputs. explain_memory (report/memory.hpp) lists
  /// the changes and their times.
  std::int64_t memory = detail::unlimited_memory;

  /// The planner searches for a better plan. Without this option it takes the best of a few plans: the plan of
  /// completion and, for programs of up to 32 values, the plans of a few rules. With it the planner also changes the
  /// sharding of single values as long as the time falls. It searches only if communication and repeated work take at
  /// least 1 microsecond. Planning takes longer. Compiled programs include gspmd/plan/search.hpp.
  bool search = false;

  /// At run time only: the planner chooses all shardings together, with a lower bound. See gspmd/plan/solve.hpp.
  detail::solve_option solve = {};

  /// Devices compute while collectives are under way. Include gspmd/plan/overlap.hpp, which says how.
  detail::overlap_option overlap = {};

  /// After each step, a run compares the data that must be equal on several devices. It finds a kernel or an input
  /// whose values contradict its type.
  ///
  /// The compared data are the inputs and values whose types are invariant, replica or constant along an axis, also in
  /// manual regions. In a program without types, they are the values that no axis splits. Bits are compared, except
  /// that 0 equals -0 and every NaN equals every NaN. The program computes and sends the same as without the check, but
  /// each operator stores its result, so a run uses more memory. Nothing is sent while a device computes.
  ///
  /// **Communication.** For each such value one all_gather of 8 bytes per device along these axes. No plan counts these
  /// bytes.
  /// **Errors.** If devices differ, gspmd::error on all devices of the group. The text names the operator and its line,
  /// or the number of the input, and the first element that differs. It also names two devices that differ along one
  /// axis, with their mesh coordinates and their values.
  bool checked = false;
};

/// The options of a compiled program, as a type: the argument of `compile` after the mesh.
template <options Options>
struct with {};

namespace detail {

/// True in programs that include plan/search.hpp.
template <class>
inline constexpr bool has_search = false;

/// Adds the options that differ from their defaults to a request. The network must describe the mesh.
constexpr void add_options(plan_request& asked, const options& given, const mesh_info& mesh) {
  if (given.network.of != nullptr) asked.network = given.network.on(mesh).rates;
  if (given.memory != unlimited_memory) asked.most_memory = given.memory;
  if (given.search) asked.is_searched = true;
  if (given.solve.solve != nullptr) asked.solve = *given.solve.solve;
  if (given.overlap.hide != nullptr) asked.hide = *given.overlap.hide;
  if (given.checked) asked.is_checked = true;
}
/// Returns the reason why the network cannot be used for the mesh, or an empty text.
constexpr text network_problem(const options& given, const mesh_info& mesh) {
  if (given.network.of == nullptr) return {};
  const text problem = given.network.on(mesh).problem;
  return problem.empty() ? problem : text("network: ") << problem;
}

/// A mesh with the options of a compiled program.
template <class Mesh, options Options>
struct mesh_with {
 private:
  struct problem {
    static constexpr text make() { return network_problem(Options, Mesh::info); }
  };
  static constexpr bool is_described = problem::make().empty(), has_header = !Options.search || has_search<Mesh>;
  static constexpr bool check() {
    static_assert(Options.memory > 0, "gspmd: options: memory is not positive; write a positive number, or leave it out");
    static_assert(has_header, "gspmd: options: `search` needs a header; add #include <gspmd/plan/search.hpp>");
    static_assert(Options.solve.solve == nullptr, "gspmd: options: `solve` needs dynamic::compile; leave it out");
    if constexpr (!is_described) refuse<mistake::network, problem>();
    return true;
  }
  static_assert(check());

 public:
  /// False if an option is wrong. The compiler has then reported it.
  static constexpr bool accepted = is_described && has_header && Options.memory > 0 && Options.solve.solve == nullptr;
  static constexpr mesh_info info = [] {
    auto m = Mesh::info;
    if (accepted) add_options(m.request, Options, Mesh::info);
    return m;
  }();
  static constexpr int device_count = Mesh::device_count;
};
template <class Mesh, options Options>
struct changed_mesh<mesh_with<Mesh, Options>> : std::type_identity<Mesh> {};
template <class Mesh, options Options>
inline constexpr bool accepts_meshes<mesh_with<Mesh, Options>> = accepts_meshes<Mesh> && mesh_with<Mesh, Options>::accepted;

}  // namespace detail
}  // namespace gspmd
