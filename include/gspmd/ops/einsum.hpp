// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

#include "gspmd/detail/ops/einsum/affine_einsum.hpp"
#include "gspmd/detail/ops/einsum/convolution.hpp"
#include "gspmd/detail/ops/einsum/einsum.hpp"
#include "gspmd/detail/ops/einsum/einsum_of_many.hpp"
#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/detail/support/fixed_string.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/error.hpp"
#include "gspmd/program/program.hpp"

namespace gspmd {
namespace detail {

constexpr text einsum_problem(std::string_view equation, const einsum_equation& e) {
  return equation_problem("equation", equation, e.column, "") << einsum_mistake(e).view();
}

template <fixed_string Equation>
struct equation_syntax {
  static constexpr text make() { return einsum_problem(Equation.view(), parse_einsum(Equation.view())); }
};

template <fixed_string Equation>
struct equation_operands {
  static constexpr text make() {
    const bool two = parse_einsum(Equation.view()).operands.count == 2;
    return text("einsum: the equation `") << Equation.view() << "` has "
                                          << (two ? "two operands and the call has one" : "one operand and the call has two")
                                          << "; an equation of two operands is `ab,bc->ac`, of one `abc->ca`";
  }
};

/// Returns the result of a call that does not compile, so that tracing continues without another error.
constexpr value reported(value operand) {
  operand.note_refused();
  return operand;
}

/// Returns the shape of a refused einsum: the extent of each letter in the operands, or 1 if no operand has the
/// letter.
constexpr extents shape_of_refused(const einsum_equation& e, value first, value second) {
  extents shape;
  for (const char c : e.result) {
    std::int64_t extent = 1;
    for (int k = 0; k < e.operands.count; ++k) {
      const extents given = (k == 0 ? first : second).shape();
      for (int d = 0; d < e.operands[k].count && d < given.count; ++d)
        if (e.operands[k][d] == c) extent = given[d];
    }
    shape.push_back(extent);
  }
  return shape;
}

constexpr value einsum_of(const einsum_equation& e, value first, value second, location at) {
  if (!first.is_valid() || (e.operands.count == 2 && !second.is_valid())) return {};
  graph& g = *first.graph();
  const int arguments[]{first.id(), second.is_valid() ? second.id() : -1};
  const one_call call(&g, "einsum", detail::span<const int>(arguments, e.operands.count == 2 ? 2 : 1));
  const int id =
      e.operands.count == 2 ? add_any_einsum(g, e, {first.id(), second.id()}, at) : add_any_einsum(g, e, {first.id()}, at);
  return id >= 0 ? value(&g, id) : made(g, id, first.type(), shape_of_refused(e, first, second));
}

constexpr value einsum_of_values(std::string_view equation, detail::span<const value> operands, location at) {
  vec<int> ids;
  for (const auto& x : operands) {
    if (!x.is_valid()) return {};
    ids.push_back(x.graph() == operands[0].graph() ? x.id() : -1);
  }
  graph& g = *operands[0].graph();
  const one_call call(&g, "einsum", detail::span<const int>(ids.data(), ids.size()));
  const int id = add_einsum_of_many(g, equation, detail::span<const int>(ids.data(), ids.size()), at);
  return id >= 0 ? value(&g, id) : made(id, operands[0]);
}

}  // namespace detail

/// Returns the einsum of two tensors. A letter names a dim. Letters that the result lacks are summed.
///
/// **Shapes.** Global shapes follow the equation. Local shapes are those of the shards.
/// **Communication.** None if operands and result use each mesh axis for the same letter. If a summed letter is split,
/// the result is partial. An all_reduce or reduce_scatter follows if a user of the result requires the sum.
/// **Errors.** At compile time: syntax (with column), number of operands, rank, extents, types.
/// **Example.**
///     auto h = einsum<"bd,df->bf">(x, w);
/// **Source.** GSPMD, sections 3.2 and 4.4.
///
/// A dim of one operand may be an index of two letters, with strides and a constant. The einsum then reads the dim
/// through a window and is a convolution. If a letter occurs only in an index, its extent is the largest for which no
/// index is after the end of the dim. With a negative constant, an index before the begin of the dim reads zero.
/// `convolution` has paddings at both ends, groups and layouts.
///
/// The larger letter of an index may be split. Then the dim is split in the same way. Neighbouring devices send the
/// elements that a window reads outside of a shard. For an index `(2x+w-1)` over w of 3 this is at most 1 element on
/// each side, by collective_permute (halo exchange, GSPMD 4.3). The other letter of an index is whole. The gradients
/// are einsums of the same kind.
///
/// **Errors.** At compile time: an index without exactly two letters; an index in both operands or in the result; a
/// window that is larger than its dim.
/// **Example.**
///     auto y = einsum<"b(2x+w)i,wio->bxo">(image, kernel);   // [8,65,3], [3,3,16] -> [8,32,16]
///     auto g = einsum<"b(2x+w)i,bxo->wio">(image, dy);       // the gradient with respect to the kernel
///
/// `...` matches any number of dims, which are aligned at the right. Among them, extents of 1 are repeated. A letter
/// that occurs twice in an operand takes the diagonal of these dims. If both dims are whole on a device, only the
/// diagonal is read; otherwise the other elements are masked. If there are more than two operands, the einsum
/// multiplies two at a time, in the order with the fewest multiplications. Its intermediate values may be sharded like
/// any other value.
///
/// **Errors.** `...` in the operands and not in the result, a diagonal of two different extents.
/// **Example.**
///     auto y = einsum<"...ab,...bc->...ac">(x, w);           // [5,2,3], [3,4] -> [5,2,4]
template <fixed_string Equation>
constexpr auto einsum(value a, value b,
                      location at = location::current()) {  // a value; `auto`: GCC reports from the line of the call
  constexpr auto parsed = detail::parse_einsum(Equation.view());
  if constexpr (detail::is_einsum_of_many(Equation.view())) {
    const value operands[] = {a, b};
    return detail::einsum_of_values(Equation.view(), operands, at);
  } else if constexpr (parsed.error != nullptr) {
    detail::refuse<detail::mistake::equation, detail::equation_syntax<Equation>>();
    return detail::reported(a);
  } else if constexpr (parsed.operands.count != 2) {
    detail::refuse<detail::mistake::operand_count, detail::equation_operands<Equation>>();
    return detail::reported(a);
  } else {
    return detail::einsum_of(parsed, a, b, at);
  }
}

/// Returns the einsum of two tensors of a narrow type, with elements of type Result. Result is the type of the sums:
/// float for bf16 and f16, int32 for int8, uint8 and int16. So neither the sums nor the reductions over devices are
/// rounded. all_reduce and reduce_scatter send elements of Result.
///
/// einsum_as takes two operands. For more operands, apply it to the last step; the intermediate value has the type of
/// the operands. Convert the operands of a convolution or of a windowed einsum instead: its result has the type of the
/// operands.
///
/// **Example.**
///     auto y = einsum_as<float, "bd,df->bf">(x, w);           // x and w are bf16
///     auto z = einsum_as<float, "ab,bc->ac">(einsum<"ab,bc->ac">(x, w), v);
template <class Result, fixed_string Equation>
constexpr value einsum_as(value a, value b, location at = location::current()) {
  const value made = einsum<Equation>(a, b, at);
  if (!made.is_valid() || made.graph()->failed()) return made;
  detail::keep_sum_wide(*made.graph(), made.id(), detail::dtype_of<Result>(), at);
  return made;
}

/// Returns the einsum of a single tensor: a transpose, or a sum over the letters that the result lacks, for example
/// `einsum<"abc->ca">(x)`.
template <fixed_string Equation>
constexpr auto einsum(value a, location at = location::current()) {
  constexpr auto parsed = detail::parse_einsum(Equation.view());
  if constexpr (detail::is_einsum_of_many(Equation.view())) {
    return detail::einsum_of_values(Equation.view(), detail::span<const value>(&a, 1), at);
  } else if constexpr (parsed.error != nullptr) {
    detail::refuse<detail::mistake::equation, detail::equation_syntax<Equation>>();
    return detail::reported(a);
  } else if constexpr (parsed.operands.count != 1) {
    detail::refuse<detail::mistake::operand_count, detail::equation_operands<Equation>>();
    return detail::reported(a);
  } else {
    return detail::einsum_of(parsed, a, {}, at);
  }
}

/// Returns the einsum of any number of tensors; see the overload of two tensors.
///
/// **Example.**
///     auto y = einsum<"ab,bc,cd->ad">(std::array{x, w, v});
///     auto trace = einsum<"ii->">(std::array{x});
template <fixed_string Equation, std::size_t Count>
constexpr value einsum(const std::array<value, Count>& operands, location at = location::current()) {
  if constexpr (Count == 1 && !detail::is_einsum_of_many(Equation.view())) return einsum<Equation>(operands[0], at);
  else if constexpr (Count == 2 && !detail::is_einsum_of_many(Equation.view()))
    return einsum<Equation>(operands[0], operands[1], at);
  else return detail::einsum_of_values(Equation.view(), operands, at);
}
template <fixed_string Equation, std::same_as<value>... More>
constexpr value einsum(value a, value b, value c, More... more) {
  return einsum<Equation>(std::array{a, b, c, more...});
}

/// The same with an equation that is known only at run time: einsum("bd,df->bf", x, w). Compiling the program reports
/// a mistake in the equation.
constexpr value einsum(std::string_view equation, value a, value b = {}, location at = location::current()) {
  if (!a.is_valid()) return {};
  if (detail::is_einsum_of_many(equation)) {
    const value operands[] = {a, b};
    return detail::einsum_of_values(equation, detail::span<const value>(operands, b.graph() != nullptr ? 2 : 1), at);
  }
  const auto parsed = detail::parse_einsum(equation);
  if (parsed.error != nullptr)
    return detail::made(a.graph()->fail(at, "einsum", detail::mistake::equation, detail::einsum_problem(equation, parsed)), a);
  if ((parsed.operands.count == 2) == (b.graph() != nullptr)) return detail::einsum_of(parsed, a, b, at);
  // The number of operands is wrong, so this adds an error.
  const int id = b.graph() != nullptr ? detail::add_any_einsum(*a.graph(), parsed, {a.id(), b.id()}, at)
                                      : detail::add_any_einsum(*a.graph(), parsed, {a.id()}, at);
  return detail::made(id, a);
}

constexpr value einsum(std::string_view equation, detail::span<const value> operands, location at = location::current()) {
  if (operands.size() == 1 || operands.size() == 2)
    return einsum(equation, operands[0], operands.size() == 2 ? operands[1] : value{}, at);
  if (operands.empty()) throw error("einsum: an einsum has operands");
  return detail::einsum_of_values(equation, operands, at);
}

/// Returns the first mistake in the text of an equation, with its column, counted from 1. Returns an empty text if
/// there is no mistake. This function only checks the equation; einsum refuses it.
inline std::string equation_problem(std::string_view equation) {
  if (detail::is_einsum_of_many(equation)) return {};  // its mistakes are found when the program is built
  const auto parsed = detail::parse_einsum(equation);
  if (parsed.error == nullptr) return {};
  return "column " + std::to_string(parsed.column) + ": " + std::string(detail::einsum_mistake(parsed).view());
}

/// Limits the gathers of the einsum that made `x`. An operand may be split along mesh axes that the einsum cannot use.
/// If the gathered operand would take more than `bytes` on a device, the einsum takes it in parts instead. The shards
/// rotate around the ring of devices along these axes: each device multiplies the shard that it holds and passes it
/// on. The gradient has the same limit.
///
/// A device holds its own shard and 2 others; a gather would leave all n. If 4 other shards fit into `bytes` (3 on 4
/// devices), shards travel both ways around the ring, in half the number of iterations. If the parts of the other
/// operand or of the result are not contiguous, they are copied.
///
/// The results equal those of the gathered einsum, also for floats, except for the order of additions of the parts of
/// a summed letter. Because this order differs between devices, a ring with sums also splits the result. So all
/// devices that hold an element have the same bits, and a program can branch on it.
///
/// **Communication.** The same bytes as the gather, in messages of collective_permute.
/// **Errors.** At compile time: `x` is not made by an einsum of two operands; `bytes` is negative; both operands would
/// have to be gathered beyond the limit; rounded-up shards do not nest.
/// **Example.**
///     auto y = limit_gather(einsum<"bd,df->bf">(x, w), 4 * MiB);   // x is ["x", _], w is [_, "x"]
/// **Source.** GShard, section 3.3.2, Fig. 4c, and the last rows of Table 4.
constexpr value limit_gather(value x, std::int64_t bytes, location at = location::current()) {
  if (!x.is_valid()) return x;
  auto& made = x.graph()->nodes[static_cast<std::size_t>(x.id())];
  if (made.op != detail::code_of<detail::einsum_op> || made.operands.count != 2)
    return detail::made(
        x.graph()->fail(at, "limit_gather", detail::mistake::other,
                        detail::text("it takes the result of an einsum of two operands, not of ") << detail::name_of(made.op)),
        x);
  if (bytes < 0) return detail::made(x.graph()->fail(at, "limit_gather", detail::mistake::other, "the limit is negative"), x);
  made.gather_limit = bytes;
  return x;
}

}  // namespace gspmd
