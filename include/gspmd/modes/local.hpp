// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "gspmd/detail/ops/modes/local_view.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/shape.hpp"
#include "gspmd/program/sharding.hpp"

/// The collectives and transitions of a manual region (gspmd/modes/manual.hpp). Each changes one state along `Axes`
/// ("x" or "x,y") into another state. With several axes, the first axis of the mesh is major. The gradient of each is
/// its dual. "B" is the number of bytes that a device holds, and "n" the number of devices along `Axes`; each device
/// sends the stated bytes.
namespace gspmd {

using detail::state;

namespace local {

namespace detail_ {
using namespace gspmd::detail;

/// Returns the mask of the named axes as the `partial` of a resolved sharding. On an error,
/// `problem` is its text.
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
                                    << " parts for the devices along `" << axes.view() << "`, and has another extent; pad it"),
                x);
  return made(g, add_transition(g, x.id(), c, true, at, shift), x.type(), shape);
}
constexpr axis_state chunk(value x, int dim) { return shard_of(counted_dim(dim, x.rank())); }

}  // namespace detail_

/// Returns the sum (or the reduction `kind`) of the partial or varying values of the devices. The result is invariant,
/// or a replica (`To`).
///
/// **Communication.** 2(n-1)/n B. The gradient sends nothing; if the result is a replica, its gradient is partial and
/// sends 2(n-1)/n B.
/// **Errors.** A maximum has no gradient.
/// **Example.**
///
///     auto y = local::all_reduce<"model">(einsum<"bf,fd->bd">(h, w2));
template <dim_spec Axes, state To = state::invariant>
constexpr value all_reduce(value x, monoid kind = monoid::add, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::all_reduce, detail::partial_by(kind), {To}, "all_reduce", at);
}
/// Returns the concatenation of the devices' parts along dim `dim`. The result is invariant, or a replica (`To`).
///
/// **Communication.** (n-1) B. The gradient sends nothing, because each device takes its part. If the result is a
/// replica, its gradient is a reduce_scatter of partial values.
/// **Example.**
///
///     auto whole = local::all_gather<"data", state::replica>(w, 0);         // FSDP
template <dim_spec Axes, state To = state::invariant>
constexpr value all_gather(value x, int dim, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::all_gather, detail_::chunk(x, dim), {To}, "all_gather", at);
}
/// Returns each device's part, along dim `dim`, of the sum (or the reduction `kind`) of the devices' values.
///
/// **Communication.** (n-1)/n B. The gradient is an all_gather.
template <dim_spec Axes>
constexpr value reduce_scatter(value x, int dim, monoid kind = monoid::add, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::reduce_scatter, detail::partial_by(kind), detail_::chunk(x, dim),
                         "reduce_scatter", at);
}
/// Returns `x` split along dim `to` instead of dim `from`.
///
/// **Communication.** (n-1)/n B. The gradient is the inverse all_to_all and sends the same number of bytes.
template <dim_spec Axes>
constexpr value all_to_all(value x, int from, int to, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::all_to_all, detail_::chunk(x, from), detail_::chunk(x, to),
                         "all_to_all", at);
}
/// Returns the value of the device that is `by` positions before this device, cyclically: device k sends to device k +
/// by.
///
/// **Communication.** B. The gradient sends B in the opposite direction.
/// **Example.**
///
///     k = local::rotate<"seq">(k, 1);                                       // ring attention
template <dim_spec Axes>
constexpr value rotate(value x, std::int64_t by = 1, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::permute, {state::varying}, {state::varying}, "rotate", at,
                         {detail::device_shift::kind::round, by});
}
/// Returns the value of the device that is `by` positions before this device, or zeros if no such device exists.
template <dim_spec Axes>
constexpr value shift_devices(value x, std::int64_t by = 1, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::permute, {state::varying}, {state::varying}, "shift_devices", at,
                         {detail::device_shift::kind::ended, by});
}
/// Returns the value of the device at the mirrored position: device k receives from device n - 1 - k.
template <dim_spec Axes>
constexpr value reverse_devices(value x, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::permute, {state::varying}, {state::varying}, "reverse_devices", at,
                         {detail::device_shift::kind::reverse, 0});
}
/// Returns the number of devices along `Axes`.
template <dim_spec Axes>
constexpr std::int64_t axis_size(value like) {
  return like.is_valid() ? like.graph()->mesh->shape.size_of(detail_::axes_named(*like.graph(), Axes).value.layout.partial) : 1;
}

/// A device that sends, and the device that receives from it, by their positions along the axes.
struct device_pair {
  std::int64_t source = 0, target = 0;
};
/// Returns the value of the device that is paired with this device, or zeros if no pair has this device as its target.
/// The same as jax.lax.ppermute and StableHLO's collective_permute.
///
/// Each device sends to at most one device and receives from at most one device.
///
/// **Communication.** B. The gradient sends B in the opposite direction.
/// **Errors.** Compile error `bad_permutation` if a position is out of range, or if a device sends or receives twice.
/// Also if `Axes` have more than 64 devices; `rotate`, `shift_devices` and `reverse_devices` have no such limit.
/// **Example.**
///
///     auto other = local::permute<"x">(v, {{0, 1}, {1, 0}});  // two devices exchange; the others get zeros
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
/// Returns this device's part, along dim `dim`, of data that all devices hold.
///
/// **Communication.** None. The gradient of a replica pads the part with zeros. The gradient of an invariant value
/// (`From`) is an all_gather.
template <dim_spec Axes, state From = state::replica>
constexpr value own_part(value x, int dim, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::convert, {From}, detail_::chunk(x, dim), "own_part", at);
}
/// Returns an invariant value as a replica, so that each device can use it with other data. Megatron's f.
///
/// **Communication.** None forward. The gradient is an all_reduce of the devices' partial values.
template <dim_spec Axes>
constexpr value to_replica(value x, location at = location::current()) {
  return detail_::change(x, Axes, detail::transition_kind::convert, {state::invariant}, {state::replica}, "to_replica", at);
}
/// Returns a replica as a varying value, for example as the carried value of a loop. Converts a varying value (`From`)
/// so that no dim counts as split over the devices any more. A sum, mean or norm of the result belongs to one device.
///
/// **Communication.** None, also in the gradient.
/// **Example.**
///
///     auto m = mean(local::to_varying<"data", state::varying>(rows), 0);     // of the rows of this device
template <dim_spec Axes, state From = state::replica>
constexpr value to_varying(value x, location at = location::current()) {
  static_assert(From == state::varying || From == state::replica,
                "gspmd: local::to_varying: from state::replica or state::varying; of an invariant value write to_replica first");
  return detail_::change(x, Axes, detail::transition_kind::reinterpret, {From}, {state::varying}, "to_varying", at);
}
/// Returns a partial value whose partial values are the devices' varying values. If `From` is replica, the first device
/// holds the value and the other devices hold zeros.
///
/// **Communication.** None, also in the gradient.
/// **Example.**
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

/// Returns the position of the device along `Axes`, from 0, as a varying s32 scalar. `like` is any value of the region.
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
/// Returns the value of device `root` on all devices.
///
/// **Communication.** 2(n-1)/n B: an all_reduce, where all devices except `root` contribute zeros.
template <dim_spec Axes, state To = state::invariant>
constexpr value broadcast(value x, std::int64_t root = 0, location at = location::current()) {
  if (!x.is_valid()) return {};
  if (root < 0 || root >= axis_size<Axes>(x))
    return detail::made(x.graph()->fail(at, "broadcast", detail::mistake::states,
                                        detail::text("device ") << root << " does not exist along `" << Axes.view()
                                                                << "`, which has devices 0 to " << axis_size<Axes>(x) - 1),
                        x);
  const value is_root = equal({axis_index<Axes>(x, at), at}, {root, at});
  const detail::extents shape = x.shape();
  const value here = broadcast_in_dim(is_root, integers(shape.begin(), static_cast<std::size_t>(shape.count)), {}, at);
  return all_reduce<Axes, To>(where({here, at}, {x, at}, {zeros_like(x, at), at}), monoid::add, at);
}

/// Returns `x` with ghost cells along dim `dim`: the last `low` indices of the previous device and the first `high`
/// indices of the next device (halo exchange).
///
/// Before the first and after the last device the ghost cells are zeros; if `wraps`, they are periodic.
///
/// **Communication.** low + high indices. The gradient sends the same number in the opposite direction.
/// **Example.**
///
///     auto u = local::halo<"x">(field, 1, 1, along(0));                     // [n/4 + 2, m] of [n/4, m]
template <dim_spec Axes>
constexpr value halo(value x, std::int64_t low, std::int64_t high, along dim, bool wraps = false,
                     location at = location::current()) {
  if (!x.is_valid()) return {};
  auto& g = *x.graph();
  const int d = detail::counted_dim(dim, x.rank());
  if (d < 0 || d >= x.rank() || low < 0 || high < 0 || low > x.shape()[d] || high > x.shape()[d])
    return detail::made(g.fail(at, "halo", detail::mistake::bounds,
                               detail::text("margins of ") << low << " and " << high << " along dim " << dim.dim << " of "
                                                           << detail::shape_text(x.shape())
                                                           << "; a halo is at most the extent of a shard, and dims count from 0"),
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

/// A collective that was started. It is not a value, so no operator can read it. A program that does not finish it
/// exactly once is refused.
class [[nodiscard]] started {
 public:
  constexpr started(const started&) = delete;
  constexpr started& operator=(const started&) = delete;
  constexpr started(started&& o) noexcept : of_(o.of_), at_(o.at_), is_done_(o.is_done_) { o.is_done_ = true; }
  constexpr ~started() {
    if (!is_done_ && of_.is_valid())
      of_.graph()->fail(at_, "start", detail::mistake::states,
                        "the collective that is started here is never finished; write finish(std::move(it))");
  }

 private:
  constexpr started(value of, location at) : of_(of), at_(at) {}
  friend constexpr started start(value sent, location at);
  friend constexpr value finish(started&& it, location at);

  value of_;
  location at_;
  bool is_done_ = false;
};
/// Starts the collective that returned `sent`; `finish` returns its result. No operator can read the result before.
///
/// With threads and MPI, the collective is under way until the first operator that reads its result. Operators that
/// only the collective needs are computed first. A started reduction adds in the order of the devices. A reduction that
/// is not started does the same, unless MPI_Allreduce or MPI_Reduce_scatter performs it.
///
/// **Communication.** The bytes of the collective. Reports count them where the collective starts.
/// **Errors.** Compile error if a started collective is not finished, or is finished twice.
/// **Example.**
///
///     auto next = local::start(local::rotate<"seq">(k));
///     out = out + einsum<"qd,kd->qk">(q, k);
///     k = local::finish(std::move(next));
constexpr started start(value sent, location at = location::current());
/// Returns the value of a started collective.
constexpr value finish(started&& it, location at = location::current());

constexpr started start(value sent, location at) {
  if (sent.is_valid() && sent.node().op != detail::code_of<detail::transition_op>)
    sent.graph()->fail(at, "start", detail::mistake::states,
                       "start takes a collective of namespace local; write start(rotate(x))");
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
