// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/description.hpp"
#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/ops/lowering.hpp"
#include "gspmd/detail/run/frozen_step.hpp"
#include "gspmd/detail/run/local_function_step.hpp"
#include "gspmd/detail/run/padding.hpp"
#include "gspmd/detail/run/parts/prepared_by_parts.hpp"
#include "gspmd/detail/run/ready_step.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/target.hpp"
#include "gspmd/detail/transport/device_memory.hpp"

/// The header for authors of kernels. A kernel is the code of a step on a device. Write one struct that states every
/// fact of `complete_device_kernel`, and call add_step<K> in the `lower` of an operator. No list, switch or table
/// changes. A missing fact is a compile error that names the kernel and the fact. docs/extending/kernel.md adds a
/// kernel as an example.
namespace gspmd::extend {

// The facts, and base classes for facts that many kernels share (detail/ir/kernels/parts.hpp).
using detail::complete_device_kernel;
using detail::device_kernel;
using detail::element_kinds;
using detail::never_in_place;
using detail::no_description;
using detail::nothing_prepared;
using detail::one_thread;
using detail::plain_step;
using detail::runs_on_one_thread;
using detail::step_role;
using detail::step_work;
using detail::without_scratch;

// A step, its plan, and the memory of its operands and results on a device.
using detail::bound;
using detail::device_memory;
using detail::plan_step;
using detail::plan_view;
using detail::planned_value;
using detail::table_views;

// The description of a step: in a plan, and as a constant in a compiled program.
using detail::description_if;
using detail::description_of;
using detail::description_of_step;
using detail::step_of;

// The step of a kernel in the `lower` of an operator, and the constant that identifies a kernel.
using detail::add_step;
using detail::id_of;
using detail::instruction;
using detail::lowering;

// Element types. `handles` of a kernel is element_kinds::bytes, or element_kinds::all for run<T>.
using detail::bytes_of;
using detail::element_t;
using detail::once;
using detail::with_computing_type;
using detail::with_element_type;

// Padding, and the valid part of a shard.
using detail::clear_padding;
using detail::clear_results;
using detail::copy_operand;
using detail::first_index;
using detail::valid_extent;

// The threads of a device.
using detail::part_of_units;
using detail::prepared_by_parts;

}  // namespace gspmd::extend
