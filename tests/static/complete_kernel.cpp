// SPDX-License-Identifier: Apache-2.0
// alone: yes
// A kernel or a pass is refused if it omits any of its facts.
#include "gspmd/detail/ir/add_pass.hpp"
#include "gspmd/detail/ir/kernels/local_function.hpp"

namespace gspmd::detail {
static_assert(complete_kernel<kernels::combine>);

#define GSPMD_WITHOUT(fact)                  \
  struct without_##fact : kernels::combine { \
    static constexpr char fact = '\0';       \
  };                                         \
  static_assert(!complete_kernel<without_##fact>);
GSPMD_WITHOUT(work)
GSPMD_WITHOUT(role)
GSPMD_WITHOUT(handles)
GSPMD_WITHOUT(works_in_place)
GSPMD_WITHOUT(mark_kept)
GSPMD_WITHOUT(scratch_bytes)
GSPMD_WITHOUT(axes)
GSPMD_WITHOUT(messages)
GSPMD_WITHOUT(packing)
GSPMD_WITHOUT(rounds)
struct without_tables : kernels::combine {
  using tables = void;
};
static_assert(!complete_kernel<without_tables>);

// A kernel that is not listed.
static_assert(complete_device_kernel<kernels::local>);

#undef GSPMD_WITHOUT
#define GSPMD_WITHOUT(fact)                       \
  struct device_without_##fact : kernels::local { \
    static constexpr void* fact = nullptr;        \
  };                                              \
  static_assert(!complete_device_kernel<device_without_##fact>);
GSPMD_WITHOUT(name)
GSPMD_WITHOUT(role)
GSPMD_WITHOUT(handles)
GSPMD_WITHOUT(works_in_place)
GSPMD_WITHOUT(mark_kept)
GSPMD_WITHOUT(scratch_bytes)
GSPMD_WITHOUT(prepare)
GSPMD_WITHOUT(run)
struct device_without_types : device_kernel, plain_step, never_in_place, without_scratch {
  static constexpr const char* name = "device_without_types";
  static constexpr element_kinds handles = element_kinds::bytes;
  static nothing_prepared prepare(const no_description&, const plan_view&, const plan_step&);
  static void run(nothing_prepared, const plan_view&, const plan_step&, const device_memory&);
};
struct device_without_parts : device_without_types {
  using description = no_description;
};
struct device_without_description : device_without_types, runs_on_one_thread {};
struct device_with_both : device_without_parts, runs_on_one_thread {};
static_assert(!complete_device_kernel<device_without_parts>);
static_assert(!complete_device_kernel<device_without_description>);
static_assert(complete_device_kernel<device_with_both>);

// A pass, and a pass that gets the shardings from completion.
struct a_pass : plain_pass {
  static constexpr const char* name = "a pass";
  static constexpr pass_position position = pass_position::in_order;
  static constexpr bool applies(const graph&) { return true; }
  static constexpr node_order run(graph&) { return node_order::kept; }
};
struct completed_pass : a_pass {
  static constexpr pass_position position = pass_position::completed;
  static constexpr node_order run(graph&, const vec<sharding>&) { return node_order::kept; }
};
static_assert(checked_program_pass<a_pass>::holds && checked_program_pass<completed_pass>::holds);
#undef GSPMD_WITHOUT
#define GSPMD_WITHOUT(fact)                \
  struct pass_without_##fact : a_pass {    \
    static constexpr void* fact = nullptr; \
  };                                       \
  static_assert(!complete_program_pass<pass_without_##fact>);
GSPMD_WITHOUT(name)
GSPMD_WITHOUT(position)
GSPMD_WITHOUT(reads_movements)
GSPMD_WITHOUT(applies)
GSPMD_WITHOUT(run)
struct run_without_shardings : completed_pass {
  static constexpr node_order run(graph&) { return node_order::kept; }
};
static_assert(!has_run_of_position<run_without_shardings>);
}  // namespace gspmd::detail
