// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/text.hpp"

/// The state of a value along one mesh axis: the relation between the data of the devices. Programs in the explicit and
/// the manual mode state it themselves.
namespace gspmd::detail {

///                data of the devices   meaning                    gradient
///   constant     equal data            the value                  does not exist
///   replica      equal data            the value                  partial: a partial value on each device
///   invariant    equal data            the value                  invariant: complete on each device
///   varying      unrelated data        a value on each device     varying
///   shard        part k of a dim       the parts side by side     shard of the same dim
///   partial      partial values        their reduction            of a sum: replica; of another monoid: does not exist
///
/// replica and invariant hold the same bytes. They differ in the step that sums the gradient over the devices.
enum class state : std::uint8_t { constant, replica, invariant, varying, shard, partial };

struct axis_state {
  state is = state::invariant;
  std::int8_t dim = 0;              // shard
  monoid reduced_by = monoid::add;  // partial

  friend constexpr bool operator==(const axis_state& a, const axis_state& b) {
    return a.is == b.is && (a.is != state::shard || a.dim == b.dim) && (a.is != state::partial || a.reduced_by == b.reduced_by);
  }
};

constexpr axis_state shard_of(int dim) { return {state::shard, static_cast<std::int8_t>(dim), monoid::add}; }
constexpr axis_state partial_by(monoid kind) { return {state::partial, 0, kind}; }

/// Returns false for a reduction by a monoid other than the sum: it has no gradient.
constexpr bool is_of_sums(const axis_state& a) { return a.is != state::partial || a.reduced_by == monoid::add; }

/// Returns the state of the gradient of a value. A constant has no gradient; its own state is returned.
constexpr axis_state dual(const axis_state& a) {
  if (a.is == state::replica) return {state::partial};
  if (a.is == state::partial) return {state::replica};
  return a;
}

/// Returns `C`, `R`, `I`, `V`, `S(0)`, `P` or `P<max>`, as in documents.
constexpr text short_text(const axis_state& a) {
  switch (a.is) {
    case state::constant: return "C";
    case state::replica: return "R";
    case state::invariant: return "I";
    case state::varying: return "V";
    case state::shard: return text("S(") << a.dim << ')';
    case state::partial: break;
  }
  if (a.reduced_by == monoid::add) return "P";
  if (a.reduced_by == monoid::max) return "P<max>";
  if (a.reduced_by == monoid::min) return "P<min>";
  return text("P<") << name_of(a.reduced_by) << '>';
}

}  // namespace gspmd::detail
