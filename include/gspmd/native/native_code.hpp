// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/run/static_program.hpp"
#include "gspmd/dynamic/program.hpp"
#include "gspmd/extend/kernel.hpp"
#include "gspmd/native/detail/native_library.hpp"
#include "gspmd/native/detail/native_source.hpp"

/// The loops of a program that is planned at run time, compiled by the system's compiler while the program runs. Only a
/// native_code object does this.
namespace gspmd {
namespace dynamic {

/// Options of native_code. Each empty text is determined when the program runs.
struct native_options {
  /// The compiler and the words before its flags, separated by spaces. If empty: GSPMD_CXX, then CXX, then c++.
  std::string compiler;
  /// Flags for speed and rounding. With the compiler and flags of the program, results have the same bits as a session
  /// without native code. If these flags allow fused multiply-add and those of the program do not, some bits may
  /// differ.
  std::string flags = "-O3 -march=native";
  /// A directory that only the user may access (mode 0700); it is created if missing. If empty: GSPMD_CACHE, then gspmd
  /// in XDG_CACHE_HOME or in ~/.cache. No parent directory may be writable by other users, unless it is sticky like
  /// /tmp.
  std::string cache;
  /// The directory that contains gspmd/core.hpp. If empty: GSPMD_INCLUDE, then the directory of the headers that the
  /// program was compiled with, if its path was absolute. If sizes or numbers that the loops share with the program
  /// differ in these headers, no native code is made.
  std::string include;
  /// The seconds that native_code waits for the compiler, or for another process that compiles the same loops. After
  /// that it ends the compiler and all its processes, and there is no native code. The limit must be positive. For 0, a
  /// negative number or NaN there is no native code, and why_not() names the option. Infinity means no limit.
  double most_seconds = 300;
};

}  // namespace dynamic

namespace detail {

inline std::string native_cache() {
  if (auto own = first_set({"GSPMD_CACHE"}); !own.empty()) return own;
  if (auto caches = first_set({"XDG_CACHE_HOME"}); !caches.empty()) return caches + "/gspmd";
  if (auto home = first_set({"HOME"}); !home.empty()) return home + "/.cache/gspmd";
  throw native_refusal{"there is no directory for compiled loops: set GSPMD_CACHE, or native_options::cache"};
}
/// Returns the directory of the headers from the path of this header. A relative path is refused: from the directory in
/// which the program runs, it may lead to files of other users.
inline std::string include_of(const std::string& header) {
  const std::string end = "/gspmd/native/native_code.hpp";
  if (header.size() <= end.size() || header.front() != '/' || header.compare(header.size() - end.size(), end.size(), end) != 0)
    throw native_refusal{"the directory of gspmd's headers is not known, since the program was compiled with `" + header +
                         "`: set GSPMD_INCLUDE or native_options::include"};
  const auto directory = header.substr(0, header.size() - end.size());
  const std::unique_ptr<char, void (*)(void*)> path(realpath(directory.c_str(), nullptr), std::free);
  return path == nullptr ? directory : std::string(path.get());
}
inline std::string own_include() {
  const auto given = first_set({"GSPMD_INCLUDE"});
  return given.empty() ? include_of(__FILE__) : given;
}

/// The native code of a program, shared by its sessions.
struct native_loops {
  native_source source;
  native_library library;
  const fused_rows_function* functions;
  bool has_own_lanes;  // vectors have the length of this program's vectors, so partial sums can be passed between them

  native_loops(const plan_view& plan, const dynamic::native_options& o) : native_loops(native_source(plan), o) {}
  native_loops(native_source given, const dynamic::native_options& o)
      : source(std::move(given)),
        library(source.text, native_source::headers(), o.include.empty() ? own_include() : o.include,
                !o.compiler.empty()                       ? o.compiler
                : first_set({"GSPMD_CXX", "CXX"}).empty() ? std::string("c++")
                                                          : first_set({"GSPMD_CXX", "CXX"}),
                o.flags, o.cache.empty() ? native_cache() : o.cache, o.most_seconds),
        functions(static_cast<const fused_rows_function*>(library.symbol("gspmd_loops"))),
        has_own_lanes(*static_cast<const int*>(library.symbol("gspmd_simd_bytes")) == simd_bytes) {}
};

/// A fused step of a session that native code computes.
struct native_step {
  std::shared_ptr<const native_loops> loops;
  std::size_t loop;
  mutable std::vector<const void*> inputs, from;
  mutable std::vector<void*> outputs, to;
  mutable std::vector<std::int64_t> offsets, numbers;
  mutable std::vector<const scalar_op*> ops;
  mutable std::vector<const fused_margin*> margins;
  std::vector<const reduction_kernel*> kernels;

  native_step(std::shared_ptr<const native_loops> all, std::size_t which, const plan_view& plan, const plan_step& s)
      : loops(std::move(all)), loop(which) {
    const auto room = [](const auto& counted) { return static_cast<std::size_t>(counted) + 1; };
    const auto group = group_of(plan, s);
    inputs.resize(room(s.operands.count));
    outputs.resize(room(s.results.count));
    offsets.resize(room(s.bounds.count));
    const auto n = room(group.ops.size());
    constexpr auto pieces = static_cast<std::size_t>(most_row_pieces);
    from.resize(pieces * n);
    margins.resize(n);
    to.resize(pieces * room(group.stores.size()));
    ops.resize(2 * n);
    numbers.resize(2 * from.size() + n + to.size() + pieces);
    for (const auto& f : reductions_of(plan, s)) {
      const auto& spec = table_of<reduction_spec>(plan)[static_cast<std::size_t>(f.reduction)];
      with_computing_type(f.type,
                          [&](auto element) { kernels.push_back(&reduction_kernel_for<decltype(element)>(spec.reduced_by)); });
    }
  }

  static void take_over(interpreter& steps, std::size_t i, native_step made) {
    const auto* const kept = new native_step(std::move(made));
    steps.objects().emplace_back(kept, [](const void* o) { delete static_cast<const native_step*>(o); });
    steps.step(i).alone = run;
    steps.step(i).prepared = kept;
  }
  static void run(const void* prepared, const plan_view& plan, const plan_step& s, const device_memory& device) {
    const auto& self = *static_cast<const native_step*>(prepared);
    const auto n = self.margins.size(), all = self.from.size();
    auto* const steps = self.numbers.data();
    auto *const index = steps + all, *const index_steps = index + all, *const to_steps = index_steps + n;
    const fused_rows rows{self.ops.data(), self.margins.data(), self.from.data(), steps,    self.ops.data() + n,
                          index,           index_steps,         self.to.data(),   to_steps, to_steps + self.to.size(),
                          most_row_pieces};
    const auto* const functions = self.loops->functions + self.loop * native_source::functions_per_loop;
    if (self.kernels.empty())
      return run_fused_step(plan, s, device, functions[0], functions[1], rows, self.inputs.data(), self.outputs.data(),
                            self.offsets.data());
    run_reduced_step(plan, s, device, functions[0], self.loops->source.computes_any_length[self.loop],
                     self.loops->has_own_lanes ? functions[2] : nullptr, rows, self.inputs.data(), self.outputs.data(),
                     self.offsets.data(), self.kernels.data());
  }
};

}  // namespace detail

namespace dynamic {

/// The fused loops of a program as machine code.
///
/// The loops are written as C++ and compiled by the system's compiler. The result is cached in a directory of the user,
/// so the next program with the same loops only loads it. The loops are the same as those of gspmd::compile, and
/// equally fast. Maps of user functions, products, sorts and similar steps run as without native code. If several
/// processes of a node construct the object concurrently, one process compiles and the others wait for at most
/// native_options::most_seconds.
///
/// **Communication.** None: the object is local.
/// **Errors.** Nothing is thrown if there is no compiler or it fails: sessions then run without native code, and
/// why_not() returns the reason. A program with more rights than its user (set-user-ID) gets no native code.
/// **Threads.** Any number of threads may use one object.
/// **Example.**
///
///     const dynamic::native_code code(program);         // a second or more of the compiler, or a few ms
///     if (!code.is_used()) std::puts(code.why_not().c_str());
///     const auto y = code.run(threads{}, x, w);         // as program.run
///     dynamic::session s(program, code);                // gspmd/dynamic/session.hpp
class native_code {
 public:
  explicit native_code(const program& p, const native_options& options = {}) : program_(p) {
    try {
      detail::native_source source(p.view());
      left_out_ = source.left_out;
      if (source.computes_any_length.empty()) {
        why_not_ = "the program has no loop that can be compiled";
        return;
      }
      loops_ = std::make_shared<const detail::native_loops>(std::move(source), options);
    } catch (const detail::native_refusal& refusal) {
      why_not_ = refusal.why;
    }
  }

  /// Returns true if sessions use native code.
  [[nodiscard]] bool is_used() const { return loops_ != nullptr; }
  /// Returns the reason if sessions do not use native code, else an empty text.
  [[nodiscard]] const std::string& why_not() const { return why_not_; }
  /// Returns true if the code was in the cache, so that nothing was compiled.
  [[nodiscard]] bool was_cached() const { return is_used() && loops_->library.was_cached; }
  /// Returns the number of compiled loops; equal loops count once.
  [[nodiscard]] int loop_count() const { return is_used() ? static_cast<int>(loops_->source.computes_any_length.size()) : 0; }
  /// Returns the number of steps with loops that are not compiled, because they call user functions or have more than
  /// 255 operators.
  [[nodiscard]] int left_out_count() const { return left_out_; }

  /// Returns the steps of a session of `p` with native code. Throws gspmd::error if the code was made for another
  /// program.
  [[nodiscard]] std::unique_ptr<detail::interpreter> make_steps(const program& p) const {
    if (p.view().steps.data() != program_.view().steps.data())
      throw error("session: the native code was made for another program; make a native_code of this program");
    return make_steps();
  }

  /// Runs once on whole arrays and returns whole arrays, like program::run.
  template <class Backend, class... Arguments>
  std::vector<any_array> run(const Backend& backend, const Arguments&... arguments) const {
    static_assert((detail::accept_containers<Arguments>() && ...));
    const auto inputs = detail::before_launch(backend, [&] { return detail::whole_inputs(program_.view(), arguments...); });
    return run(backend, inputs.pointers);
  }
  /// The same for pointers to whole arrays, one for each input.
  template <class Backend>
  std::vector<any_array> run(const Backend& backend, const std::vector<const void*>& inputs) const {
    return program_.run_by(backend, inputs, [this](auto& comm, const void* const* in, void* const* out) {
      const auto steps = make_steps();
      program_.run_steps(comm, *steps, in, out);
    });
  }

 private:
  [[nodiscard]] std::unique_ptr<detail::interpreter> make_steps() const {
    const auto& view = program_.view();
    auto steps = std::make_unique<detail::interpreter>(view, &program_.mesh_info());
    for (std::size_t i = 0; is_used() && i < view.steps.size(); ++i)
      if (const int loop = loops_->source.loop_of_step[i]; loop >= 0)
        detail::native_step::take_over(*steps, i,
                                       detail::native_step(loops_, static_cast<std::size_t>(loop), view, view.steps[i]));
    return steps;
  }

  program program_;
  std::shared_ptr<const detail::native_loops> loops_;
  std::string why_not_;
  int left_out_ = 0;
};

}  // namespace dynamic
}  // namespace gspmd
