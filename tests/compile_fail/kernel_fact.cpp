// SPDX-License-Identifier: Apache-2.0
// alone: yes
// expect: gspmd: a kernel states every fact
// expect: copies
// expect: K::scratch_bytes
#include <gspmd/extend/kernel.hpp>

// A kernel without the memory that it needs. static/complete_kernel.cpp checks all other facts.
using namespace gspmd::extend;

struct copies : device_kernel, plain_step, never_in_place, runs_on_one_thread {
  static constexpr const char* name = "copies";
  using description = no_description;
  static constexpr element_kinds handles = element_kinds::bytes;
#ifdef FIXED
  static constexpr std::int64_t scratch_bytes(const table_views&, const plan_step&) { return 0; }
#endif
  static constexpr nothing_prepared prepare(const no_description&, const plan_view&, const plan_step&) { return {}; }
  static void run(nothing_prepared, const plan_view& p, const plan_step& s, const device_memory& device) {
    copy_operand(p, s, 0, device);
  }
};

static_assert(id_of<copies>.name->work == step_work::computes);  // <- here

int main() {}
