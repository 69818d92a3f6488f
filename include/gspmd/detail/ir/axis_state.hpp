// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/text.hpp"

/// The state of a value along one mesh axis, which says what the devices along it hold, in programs that state it themselves (modes
/// explicit and manual).
namespace gspmd::detail {

///                the devices hold      what it stands for          its gradient
///   constant     equal data            the value                   it has none
///   replica      equal data            the value                   partial: a term of it on each device
///   invariant    equal data            the value                   invariant: complete on each device
///   varying      unrelated data        a value on each device      varying
///   shard        part k of a dim       the parts side by side      shard of the same dim
///   partial      terms                 their reduction             of a sum: replica; of another monoid: none
///
/// replica and invariant are the same bytes: they differ in who adds up the gradient.
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

/// Returns false for a reduction by another monoid than the sum: it has no gradient.
constexpr bool is_of_sums(const axis_state& a) { return a.is != state::partial || a.reduced_by == monoid::add; }

/// The state of the gradient of a value. A constant has none, and is its own.
constexpr axis_state dual(const axis_state& a) {
  if (a.is == state::replica) return {state::partial};
  if (a.is == state::partial) return {state::replica};
  return a;
}

/// `C`, `R`, `I`, `V`, `S(0)`, `P`, `P<max>`, as a document writes them.
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
  if (a.reduced_by == monoid::maximum) return "P<max>";
  if (a.reduced_by == monoid::minimum) return "P<min>";
  return text("P<") << name_of(a.reduced_by) << '>';
}

}  // namespace gspmd::detail
