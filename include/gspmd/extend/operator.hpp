// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/program/program.hpp"

/// The header for authors of operators that are not elementwise. Write one struct that states every fact of
/// `complete_operator`, and a function that adds a node. No list changes. A missing fact is a compile error that names
/// the operator and the fact. docs/extending/operator.md adds two operators as an example.
namespace gspmd::extend {

// Facts and their values (detail/ops/operator.hpp).
using detail::complete_operator;
using detail::completion_rounds;
using detail::dim_mask;
using detail::dim_places;
using detail::index_map;
using detail::leading_dim;
using detail::operator_class;
using detail::ordinary_replication;
using detail::origin;
using detail::own_collective;
using detail::own_collectives;
using detail::partial_class;
using detail::realisation;
using detail::replication_words;
using detail::scalar_op;

// Base classes for facts that many operators share.
using detail::dims_by_number;
using detail::linear_in_all;
using detail::names_no_dims;
using detail::outside_of_loops;
using detail::plain_operator;
using detail::reads_shards;
using detail::reduced_first;
using detail::same_dims;
using detail::without_arithmetic;
using detail::without_exchange;
using detail::without_movements;
using detail::without_steps;

// The rule: factors, and the factors of the dims of each tensor.
using detail::factor_kind;
using detail::op_rule;
using detail::tensor_map;
using detail::uniform_rule;
using gspmd::monoid;

// Programs: a node, its operands, and the function that adds a node. made() returns the value of a node.
using detail::code_of;
using detail::extents;
using detail::graph;
using detail::made;
using detail::mistake;
using detail::node;
using detail::operand_of;
using detail::text;

// Gradients: b.send(k, gradient), terms, and a tensor that is repeated along new dims.
using detail::add_broadcast;
using detail::gradient_builder;
using detail::term;

// Steps: `lower` adds them to the program of a device.
using detail::dim_bit;
using detail::elements;
using detail::instruction;
using detail::local_program;
using detail::lowering;
using detail::mesh_shape;
using detail::plan_step;
using detail::plan_view;
using detail::saturating_elements;

}  // namespace gspmd::extend
