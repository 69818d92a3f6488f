// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/run/compile.hpp"
#include "support/evaluate_program.hpp"
#include "support/traced.hpp"

/// Runs compiled programs on memory that ends at a protected page, or begins after one.
namespace reference {

/// Bytes between two protected pages, at the end or at the begin of the space between them. All bytes are 0xff, which
/// is NaN for floats.
class guarded_bytes {
 public:
  guarded_bytes(std::int64_t count, bool at_end) : count_(static_cast<std::size_t>(count)) {
    page_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    inside_ = std::max(std::size_t{1}, (count_ + page_ - 1) / page_) * page_;
    void* const whole = mmap(nullptr, inside_ + 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (whole == MAP_FAILED) throw std::runtime_error("no memory between guard pages");
    whole_ = static_cast<std::byte*>(whole);
    if (mprotect(whole_, page_, PROT_NONE) != 0 || mprotect(whole_ + page_ + inside_, page_, PROT_NONE) != 0)
      throw std::runtime_error("no guard pages");
    std::memset(whole_ + page_, 0xff, inside_);
    first_ = at_end ? inside_ - count_ : 0;
  }
  guarded_bytes(guarded_bytes&& other) noexcept
      : whole_(std::exchange(other.whole_, nullptr)),
        page_(other.page_),
        inside_(other.inside_),
        count_(other.count_),
        first_(other.first_) {}
  guarded_bytes& operator=(guarded_bytes&&) = delete;
  ~guarded_bytes() {
    if (whole_ != nullptr) munmap(whole_, inside_ + 2 * page_);
  }
  [[nodiscard]] std::byte* get() const { return whole_ + page_ + first_; }
  void only_read() const {
    if (mprotect(whole_ + page_, inside_, PROT_READ) != 0) throw std::runtime_error("no memory that is only read");
  }
  /// Returns true if bytes around the buffer, inside the unprotected pages, were written.
  [[nodiscard]] bool was_left() const {
    for (std::size_t i = 0; i < inside_; ++i)
      if ((i < first_ || i >= first_ + count_) && whole_[page_ + i] != std::byte{0xff}) return true;
    return false;
  }

 private:
  std::byte* whole_;
  std::size_t page_ = 0, inside_ = 0, count_, first_ = 0;
};

/// Runs a step twice on inputs that must not be written, and compares the results with `wanted`. Returns an error text,
/// or "" if all is right.
inline std::string wrong_run_between_guards(const ir::plan_view& plan, const std::vector<host_array>& inputs,
                                            const std::vector<host_array>& wanted, double largest, bool at_end,
                                            void (*run)(const void* const*, void* const*)) {
  const auto devices = static_cast<std::size_t>(plan.mesh->device_count());
  std::vector<guarded_bytes> given, results;
  std::vector<const void*> in;
  std::vector<void*> out;
  const auto bytes_of = [](const ir::planned_value& v) { return ir::elements(v.local) * ir::bytes_of(v.type); };
  for (std::size_t d = 0; d < devices; ++d) {
    for (std::size_t k = 0; k < plan.inputs.size(); ++k) {
      const auto& v = plan.value(plan.inputs[k]);
      const auto& shard = given.emplace_back(bytes_of(v), at_end);
      partitioned_run::for_each_valid(
          *plan.mesh, v, d, [&](std::size_t from, std::size_t to) { partitioned_run::put(inputs[k], from, shard.get(), to); });
      shard.only_read();
      in.push_back(shard.get());
    }
    for (const int o : plan.outputs) out.push_back(results.emplace_back(bytes_of(plan.value(o)), at_end).get());
  }
  run(in.data(), out.data());
  std::string wrong;
  for (std::size_t k = 0; k < out.size(); ++k) {
    const auto d = k / plan.outputs.size(), which = k % plan.outputs.size();
    const auto& v = plan.value(plan.outputs[which]);
    const auto& want = wanted[which];
    const double part = v.type == dtype::bf16 ? 0x1p-6 : v.type == dtype::f32 ? 1e-5 : 1e-13;
    const auto name = "output " + std::to_string(which) + " on device " + std::to_string(d);
    if (results[k].was_left()) wrong = name + " is left";
    if (v.layout.partial != 0 || v.type != want.type) wrong = name + " is partial or of another type";
    partitioned_run::for_each_valid(*plan.mesh, v, d, [&](std::size_t global, std::size_t local) {
      host_array got(v.type, {1});
      partitioned_run::get(got, results[k].get(), local);
      const double is = got.floating() ? got.reals[0] : static_cast<double>(got.ints[0]);
      const double should = want.floating() ? want.reals[global] : static_cast<double>(want.ints[global]);
      if (is == should || std::fabs(is - should) <= part * (1 + largest)) return;  // false for NaN
      wrong = name + ": element " + std::to_string(global) + " is " + number_text(is) + ", not " + number_text(should);
    });
  }
  return wrong;
}

/// Returns the mistake of a compiled program between guard pages, or "". The reference is the naive evaluation of the
/// same program on multiples of 1/8 up to 11/8. bf16 values are -1, 0 and 1, and integers go up to 11.
template <auto Program, class Mesh, class... Inputs>
std::string wrong_between_guards() {
  using step = gspmd::compile<Program, Mesh, Inputs...>;
  // The graph that the compiler traced, so that no operator is compiled for this file to run.
  auto g = ir::static_plan<Program, Mesh, Inputs...>::passes::program();
  if (g.has_regions) g = ir::canonical_order(g);
  std::vector<host_array> inputs;
  for (const int i : g.inputs) {
    const auto& n = g.nodes[static_cast<std::size_t>(i)];
    auto& x = inputs.emplace_back(n.type, std::vector<std::int64_t>(n.shape.begin(), n.shape.end()));
    const auto whole = [&](std::size_t e) { return static_cast<std::int64_t>((e * 37 + inputs.size() * 11) % 23) - 11; };
    for (std::size_t e = 0; e < x.reals.size(); ++e)
      x.reals[e] = n.type == dtype::bf16 ? static_cast<double>(whole(e) % 2) : static_cast<double>(whole(e)) / 8;
    for (std::size_t e = 0; e < x.ints.size(); ++e) x.ints[e] = whole(e);
  }
  const evaluation all(g, inputs);
  std::vector<host_array> wanted;
  for (const int o : g.outputs) wanted.push_back(all.values[static_cast<std::size_t>(o)]);
  for (const bool at_end : {true, false}) {
    const auto wrong =
        wrong_run_between_guards(step::view, inputs, wanted, all.largest, at_end, [](const void* const* in, void* const* out) {
          gspmd::simulated_communicator comm(step::device_count);
          step held;
          held.run(comm, in, out);
          held.run(comm, in, out);
        });
    if (!wrong.empty()) return wrong + (at_end ? ", before a guard page" : ", behind a guard page");
  }
  return {};
}

}  // namespace reference
