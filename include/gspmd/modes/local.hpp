// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "gspmd/detail/ops/local_view.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/shape.hpp"
#include "gspmd/sharding.hpp"

/// The collectives and changes of state that a manual region (gspmd/modes/manual.hpp) writes. Each goes from one state to another one along
/// `Axes` ("x" or "x,y", then in the order of the mesh, major first), and its gradient is its dual. Bytes are what one of n devices sends,
/// of B that it holds.
namespace gspmd {

using detail::state;

namespace local {

namespace detail_ {
using namespace gspmd::detail;

/// One axis or several, as the terms of a sum name them; none: what is wrong.
constexpr auto axes_named(const graph& g, const dim_spec& axes) {
  return detail::resolve(*g.mesh, static_cast<const dim_spec*>(nullptr), 0, 0, axes.view(), monoid::add);
}
constexpr value change(value x, const dim_spec& axes, transition_kind by, axis_state from, axis_state to, const char* name,
                       location at, const device_shift& shift = {}) {
  if (!x.is_valid()) return {};
  graph& g = *x.graph();
  const auto named = axes_named(g, axes);
  if (!named.problem.empty() && axes.view().find(":(") != std::string_view::npos)
    return made(
        g.fail(at, name, named.broken,
               text(named.problem) << "; groups of devices within an axis are parts that the mesh has: write it as two axes, or "
                                      "m.with_parts({`"
                                   << axes.view() << "`}) of a dynamic::mesh"),
        x);
  if (!named.problem.empty()) return made(g.fail(at, name, named.broken, named.problem), x);
  const axis_mask mask = named.value.layout.partial;
  if (mask == 0 || (mask & ~g.open_local) != 0)
    return made(g.fail(at, name, mistake::states,
                       text("unbound_axis: `")
                           << axes.view() << "` is not local here; it is written in manual<\"" << axes.view() << "\">(...)"),
                x);
  if (!g.may_read({x.id()}, at, name)) return made(-1, x);
  const auto n = g.mesh->shape.size_of(mask);
  const state_change c{by, mask, from, to};
  extents shape = x.shape();
  const auto fits = [&](const axis_state& s) { return s.is != state::shard || (s.dim >= 0 && s.dim < x.rank()); };
  if (!fits(from) || !fits(to))
    return made(g.fail(at, name, mistake::dim,
                       text("dim ") << int{(fits(from) ? to : from).dim} << " is not a dim of " << shape_text(x.shape())
                                    << (x.rank() == 0 ? "; reshape(x, {1}) gives a scalar a dim" : "; dims count from 0")),
                x);
  if (!change_local_shape(c, n, shape))
    return made(g.fail(at, name, mistake::extent,
                       text("dim ") << int{to.dim} << " of " << shape_text(x.shape()) << " is cut into " << n
                                    << " parts for the devices along `" << axes.view() << "`, and has not as many; pad it"),
                x);
  return made(g, add_transition(g, x.id(), c, true, at, shift), x.type(), shape);
}
constexpr axis_state chunk(value x, int dim) { return shard_of(counted_dim(dim, x.rank())); }

}  // namespace detail_

/// The sum (or `kind`) of what the devices hold: of a partial value, or of one that varies. It is invariant, or a replica (`To`), whose
/// gradient is a term on each device. Sends 2(n-1)/n B; the gradient nothing, of a replica as much. Of a maximum there is no gradient.
///
///     auto y = local::all_reduce<"model">(einsum<"bf,fd->bd">(h, w2));
template <dim_spec Axes, state To = state::invariant>
constexpr value all_reduce(value x, monoid kind = monoid::add, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::all_reduce, detail::partial_by(kind), {To}, "all_reduce", at);
}
/// The parts of dim `dim` that the devices hold, side by side: invariant, or a replica. Sends (n-1) B; the gradient nothing, as each device
/// takes its part; of a replica, whose gradient are terms, a reduce_scatter.
///
///     auto whole = local::all_gather<"data", state::replica>(w, 0);         // FSDP
template <dim_spec Axes, state To = state::invariant>
constexpr value all_gather(value x, int dim, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::all_gather, detail_::chunk(x, dim), {To}, "all_gather", at);
}
/// The sum (or `kind`) of what the devices hold, of which each keeps its part of dim `dim`. Sends (n-1)/n B; the gradient is an all_gather.
template <dim_spec Axes>
constexpr value reduce_scatter(value x, int dim, monoid kind = monoid::add, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::reduce_scatter, detail::partial_by(kind), detail_::chunk(x, dim),
                         "reduce_scatter", at);
}
/// Parts of dim `from` become parts of dim `to`. Sends (n-1)/n B, and the gradient, the way back, as much.
template <dim_spec Axes>
constexpr value all_to_all(value x, int from, int to, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::all_to_all, detail_::chunk(x, from), detail_::chunk(x, to),
                         "all_to_all", at);
}
/// Returns what the device `by` places before this one holds, round the end: device k sends to k + by. Sends B; so does the gradient, the
/// other way.
///
///     k = local::rotate<"seq">(k, 1);                                       // ring attention
template <dim_spec Axes>
constexpr value rotate(value x, std::int64_t by = 1, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::permute, {state::varying}, {state::varying}, "rotate", at,
                         {detail::device_shift::kind::round, by});
}
/// The same, not round the end: there zeros come in.
template <dim_spec Axes>
constexpr value shift_devices(value x, std::int64_t by = 1, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::permute, {state::varying}, {state::varying}, "shift_devices", at,
                         {detail::device_shift::kind::ended, by});
}
/// Returns what the device holds that is as far from the last one as this one is from the first.
template <dim_spec Axes>
constexpr value reverse_devices(value x, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::permute, {state::varying}, {state::varying}, "reverse_devices", at,
                         {detail::device_shift::kind::reverse, 0});
}
/// The number of devices along `Axes`.
template <dim_spec Axes>
constexpr std::int64_t axis_size(value like) {
  return like.is_valid() ? like.graph()->mesh->shape.size_of(detail_::axes_named(*like.graph(), Axes).value.layout.partial) : 1;
}

/// A device that sends and the device that gets it, by their places along the axes.
struct device_pair {
  std::int64_t source = 0, target = 0;
};
/// Returns what the device that is paired with this one holds, zeros where there is none (jax.lax.ppermute, StableHLO's
/// collective_permute): a device sends to one at most, and gets from one. Sends B; the gradient as much, the other way. Along 64 devices at
/// most; round, ended and reversed orders (`rotate`, `shift_devices`, `reverse_devices`) have no such limit.
///
///     auto other = local::permute<"x">(v, {{0, 1}, {1, 0}});                // two devices exchange; the others get zeros
template <dim_spec Axes>
constexpr value permute(value x, detail::span<const device_pair> pairs, location at = location::current()) {
  detail::device_shift list{detail::device_shift::kind::listed, 0};
  const auto n = axis_size<Axes>(x);
  const auto refuse = [&](const detail::text& what) {
    return detail::made(x.graph()->fail(at, "permute", detail::mistake::states, detail::text("bad_permutation: ") << what), x);
  };
  if (!x.is_valid()) return {};
  if (n > detail::max_placed)
    return refuse(detail::text("`") << Axes.view() << "` has " << n << " devices, and a list names " << detail::max_placed
                                    << " at most; write rotate or shift_devices, or permute along one axis after the other");
  for (std::int64_t i = 0; i < n; ++i) list.from.push_back(-1);
  for (const auto& [source, target] : pairs) {
    if (source < 0 || source >= n || target < 0 || target >= n)
      return refuse(detail::text("from ") << source << " to " << target << ": places along `" << Axes.view() << "` are 0 to "
                                          << n - 1);
    if (list.from[static_cast<int>(target)] >= 0)
      return refuse(detail::text("device ") << target << " along `" << Axes.view() << "` gets from two: from "
                                            << std::int64_t{list.from[static_cast<int>(target)]} << " and from " << source);
    for (int i = 0; i < list.from.count; ++i)
      if (list.from[i] == source)
        return refuse(detail::text("device ") << source << " along `" << Axes.view() << "` sends to two: to " << i << " and to "
                                              << target << "; write broadcast, or two permutations");
    list.from[static_cast<int>(target)] = static_cast<std::int8_t>(source);
  }
  return detail_::change(x, Axes, detail::transition_kind::permute, {state::varying}, {state::varying}, "permute", at, list);
}
template <dim_spec Axes>
constexpr value permute(value x, std::initializer_list<device_pair> pairs, location at = location::current()) {
  return permute<Axes>(x, detail::span(pairs.begin(), pairs.size()), at);
}
/// Each device's part of dim `dim` of what all of them hold. Sends nothing. The gradient of a replica puts it among zeros, that of an
/// invariant value (`From`) is an all_gather.
template <dim_spec Axes, state From = state::replica>
constexpr value own_part(value x, int dim, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::convert, {From}, detail_::chunk(x, dim), "own_part", at);
}
/// An invariant value that devices use each in its way: nothing forward; its gradient, of which each device has a term, is an all_reduce.
/// Megatron's f.
template <dim_spec Axes>
constexpr value to_replica(value x, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::convert, {state::invariant}, {state::replica}, "to_replica", at);
}
/// A replica as a value that varies: what a loop carries. Or what varies (`From`), of which no dim is taken for a part of one of all
/// devices any more: a sum, a mean or a norm of it is one device's own. Nothing is sent, nor for its gradient.
///
///     auto m = mean(local::to_varying<"data", state::varying>(rows), 0);     // of the rows of this device
template <dim_spec Axes, state From = state::replica>
constexpr value to_varying(value x, location at = location::current()) {
  static_assert(From == state::varying || From == state::replica,
                "gspmd: local::to_varying: from state::replica or state::varying; of an invariant value write to_replica first");
  return detail_::change(x, Axes, detail::transition_kind::reinterpret, {From}, {state::varying}, "to_varying", at);
}
/// Returns a partial value whose terms are what the devices hold; of a replica (`From`) the first device has the term, the others zeros.
/// Nothing is sent, nor for its gradient.
///
///     y = y + local::to_partial<"model", state::replica>(bias);              // y is partial: the bias is counted once
template <dim_spec Axes, state From = state::varying>
constexpr value to_partial(value x, location at = location::current()) {
  static_assert(From == state::varying || From == state::replica,
                "gspmd: local::to_partial: from state::varying or state::replica; of an invariant value write to_replica first");
  return detail_::change(x, Axes,
                         From == state::replica ? detail::transition_kind::convert : detail::transition_kind::reinterpret, {From},
                         detail::partial_by(monoid::add), "to_partial", at);
}

/// The place of the device along `Axes`, from 0: a scalar, s32, that varies. `like`: any value of the region.
template <dim_spec Axes>
constexpr value axis_index(value like, location at = location::current()) {
  if (!like.is_valid()) return {};
  auto& g = *like.graph();
  const detail::axis_mask axes = detail_::axes_named(g, Axes).value.layout.partial;
  if (axes == 0 || (axes & ~g.open_local) != 0)
    return detail::made(g,
                        g.fail(at, "axis_index", detail::mistake::states,
                               detail::text("unbound_axis: `") << Axes.view() << "` is not local here"),
                        dtype::s32, {});
  detail::node n = detail::source(detail::code_of<detail::transition_op>, dtype::s32, {}, at);
  detail::state_change{detail::transition_kind::reinterpret, axes, {state::constant}, {state::varying}}.keep(n);
  return {&g, g.add(n)};
}
/// Returns what device `root` holds, on all devices. Sends 2(n-1)/n B, as an all_reduce of which the others' terms are zeros.
template <dim_spec Axes, state To = state::invariant>
constexpr value broadcast(value x, std::int64_t root = 0, location at = location::current()) {
  if (!x.is_valid()) return {};
  if (root < 0 || root >= axis_size<Axes>(x))
    return detail::made(x.graph()->fail(at, "broadcast", detail::mistake::states,
                                        detail::text("device ") << root << " is none of those along `" << Axes.view()
                                                                << "`, which are 0 to " << axis_size<Axes>(x) - 1),
                        x);
  const value is_root = equal({axis_index<Axes>(x, at), at}, {root, at});
  const detail::extents shape = x.shape();
  const value here = broadcast_in_dim(is_root, integers(shape.begin(), static_cast<std::size_t>(shape.count)), {}, at);
  return all_reduce<Axes, To>(select({here, at}, {x, at}, {zeros_like(x, at), at}), monoid::add, at);
}

/// Returns what the device holds, extended along `dim` by the last `low` indices of the device before it and the first `high` of the one
/// behind it (halo exchange). Beyond the first and the last device lie zeros, or round the end (`wraps`) what the other one has. Sends
/// low + high indices, the gradient as many, the other way.
///
///     auto u = local::halo<"x">(field, 0, 1, 1);                            // [n/4 + 2, m] of [n/4, m]
template <dim_spec Axes>
constexpr value halo(value x, int dim, std::int64_t low, std::int64_t high, bool wraps = false,
                     location at = location::current()) {
  if (!x.is_valid()) return {};
  auto& g = *x.graph();
  const int d = detail::counted_dim(dim, x.rank());
  if (d < 0 || d >= x.rank() || low < 0 || high < 0 || low > x.shape()[d] || high > x.shape()[d])
    return detail::made(g.fail(at, "halo", detail::mistake::bounds,
                               detail::text("margins of ")
                                   << low << " and " << high << " along dim " << dim << " of " << detail::shape_text(x.shape())
                                   << ": a neighbour has as many indices as the device, and dims count from 0"),
                        x);
  const auto indices = [&](std::int64_t begin, std::int64_t end) {
    detail::extents first(x.rank(), 0), last = x.shape();
    first[d] = begin;
    last[d] = end;
    const auto span = [](const detail::extents& e) { return integers(e.begin(), static_cast<std::size_t>(e.count)); };
    return slice(x, span(first), span(last), {}, at);
  };
  const auto sent = [&](value v, std::int64_t by) { return wraps ? rotate<Axes>(v, by, at) : shift_devices<Axes>(v, by, at); };
  value result = x;
  if (low > 0) result = concatenate({sent(indices(x.shape()[d] - low, x.shape()[d]), 1), result}, d, at);
  if (high > 0) result = concatenate({result, sent(indices(0, high), -1)}, d, at);
  return result;
}

/// A collective that was started: no value, so that no operator takes it. It is finished exactly once, or the program is refused.
class [[nodiscard]] started {
 public:
  constexpr started(const started&) = delete;
  constexpr started& operator=(const started&) = delete;
  constexpr started(started&& o) noexcept : of_(o.of_), at_(o.at_), is_done_(o.is_done_) { o.is_done_ = true; }
  constexpr ~started() {
    if (!is_done_ && of_.is_valid())
      of_.graph()->fail(at_, "start", detail::mistake::states,
                        "what is started here is never finished; write finish(std::move(it))");
  }

 private:
  constexpr started(value of, location at) : of_(of), at_(at) {}
  friend constexpr started start(value sent, location at);
  friend constexpr value finish(started&& it, location at);

  value of_;
  location at_;
  bool is_done_ = false;
};
/// Starts a collective, whose value comes out of `finish`: between them the program does what does not need it, and no operator can take it
/// by mistake. `sent` is what a collective returns. It is under way until the first operator that reads it, with threads and over MPI, and
/// what is computed for it alone goes first. Its bytes are counted there. A reduction adds in the order of the devices; so does one that is
/// not started, but where MPI_Allreduce or MPI_Reduce_scatter does it. Errors, at compile time: one that is not finished, or twice.
///
///     auto next = local::start(local::rotate<"seq">(k));
///     out = out + einsum<"qd,kd->qk">(q, k);
///     k = local::finish(std::move(next));
constexpr started start(value sent, location at = location::current());
/// The value of a collective that was started.
constexpr value finish(started&& it, location at = location::current());

constexpr started start(value sent, location at) {
  if (sent.is_valid() && sent.node().op != detail::code_of<detail::transition_op>)
    sent.graph()->fail(at, "start", detail::mistake::states,
                       "what is started is a collective of namespace local; write start(rotate(x))");
  else if (sent.is_valid()) sent.graph()->nodes[static_cast<std::size_t>(sent.id())].is_started = true;
  return {sent, at};
}
constexpr value finish(started&& it, location at) {
  if (it.is_done_ && it.of_.is_valid())
    return detail::made(it.of_.graph()->fail(at, "finish", detail::mistake::states, "it is finished already; start another one"),
                        it.of_);
  it.is_done_ = true;
  return it.of_;
}

}  // namespace local
}  // namespace gspmd
