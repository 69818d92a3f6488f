// SPDX-License-Identifier: Apache-2.0
// labels: native once optimised widths
// timeout: 120
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/windows.hpp"
#include "support/between_guards.hpp"

// The kernels of compiled programs, on extents around every length at which another loop is compiled or used, for each
// vector width. All memory ends at a protected page or begins after one, and is NaN except for inputs.

namespace {

using namespace gspmd;
using reference::wrong_between_guards;

template <int Devices>
using on = mesh<axis<"x", Devices>>;
template <class T, int... N>
using row_part = input<T, shape<N...>, split<"x">>;
template <class T, int Rows, int Columns>
using rows_part = input<T, shape<Rows, Columns>, split<"x", _>>;
template <class T, int Rows, int Columns>
using columns_part = input<T, shape<Rows, Columns>, split<_, "x">>;
template <class T, int... N>
using whole = input<T, shape<N...>>;

/// One program for many inputs with different extents. It is planned in a fraction of the time of separate programs.
template <auto F>
constexpr auto each = [](auto... x) { return std::tuple_cat(F(x)...); };

// ---- one dim: elementwise, sums and extrema of computed values, stencils, scans ----

constexpr auto reduced = [](value q) {
  const value r = q - 2 * relu(q);
  return std::tuple{sum(r * r), reduce(r, monoid::max), r};
};
constexpr auto only_reduced = [](value q) {
  const value r = 3 * q - q * q;
  return std::tuple{sum(r), reduce(q * r, monoid::min)};
};
constexpr auto scanned = [](value q) { return std::tuple{cumsum(q, 0), scan_along(q + q, monoid::max, 0, {.reverse = true})}; };
constexpr auto stencil_of_line = [](value q) {
  const value r = shift(q, -1, along(0)) + shift(q, 2, along(0)) - 2 * q;
  return std::tuple{r, sum(r * r)};
};

template <auto F, class T, int Devices, int... N>
std::string lines(std::integer_sequence<int, N...>) {
  return wrong_between_guards<each<F>, on<Devices>, row_part<T, N>...>();
}
template <int... N>
using extents_of = std::integer_sequence<int, N...>;
// 16 vectors of doubles are 32 with SSE2, 64 with AVX2, 128 with AVX-512, and twice that for floats; 256 and 1024 are
// constant_row_elems and fused_block_elems.
using doubles = extents_of<1, 7, 17, 33, 63, 65, 127, 129, 225, 255, 257, 289, 300, 511, 1000, 1025, 4099>;
using floats = extents_of<3, 15, 31, 70, 128, 225, 256, 432, 867, 1023>;
using few = extents_of<9, 33, 129, 225, 257, 1023>;
using split_up = extents_of<3, 257, 897, 2050>;  // over devices, unevenly

// ---- two dims: rows, columns, softmax, collapsed loops, turned and moved ----

constexpr auto rows_and_columns = [](value q) {
  const value r = q - 2 * relu(q);
  return std::tuple{sum(r * r, {1}), reduce(r * r, monoid::max, {0}), sum(r + q)};
};
constexpr auto softmax_of_rows = [](value q) { return std::tuple{softmax(q + q, 1), q - sum(q, {0})}; };
constexpr auto softmax_of_columns = [](value q) { return std::tuple{softmax(q + q, 0)}; };
constexpr auto moved = [](value q) {
  const auto rows = q.shape()[0], columns = q.shape()[1];
  return std::tuple{transpose(q, {1, 0}), flip(q, {1}), pad(q, {1, 2}, {0, 1}, 7), slice(q, {0, columns / 2}, {rows, columns}),
                    concatenate({q, q + q}, 1)};
};
constexpr auto stencil_of_rows = [](value q) {
  const value around = shift(q, -1, along(0)) + shift(q, 1, along(0)) + shift(q, -1, along(1)) + shift(q, 1, along(1));
  const value r = around - 4 * q;
  return std::tuple{r, sum(r * r, {1}), sum(r)};
};
constexpr auto scans_of_rows = [](value q) { return std::tuple{cumsum(q, 1), cumsum(q, 0, {.exclusive = true}), sort(q)}; };

// ---- products, convolutions, lookups ----

/// Products of a tensor with a part of the tensor, with itself and with a vector, in all sizes up to those that a
/// library multiplies.
constexpr auto products = [](value q) {
  const auto rows = q.shape()[0], inner = q.shape()[1];
  const value part = slice(q, {0, 0}, {(rows + 1) / 2, inner});
  return std::tuple{einsum("ab,cb->ac", q, part), einsum("ab,ac->bc", part, part), einsum("ab,b->a", q, sum(q, {0}))};
};
constexpr auto batched = [](value q) {
  return std::tuple{einsum("nab,ncb->nac", q, q),
                    einsum("nab,nac->nbc", q, q),
                    einsum("nab,nab->na", q, q + q),
                    sum(q, {1}),
                    transpose(q, {2, 0, 1}),
                    transpose(q, {1, 0, 2}),
                    q - sum(q, {0, 1})};
};
constexpr auto convolved = [](value q) {  // [n, w, c]
  const auto channels = q.shape()[2];
  const value window = slice(q, {0, 0, 0}, {channels, 3, channels});  // as [o, w, i]
  const convolution_options same{.padding = "same"};
  return std::tuple{convolution(q, window, "NWC,OWI->NWC", same),
                    convolution(q, window, "NWC,OWI->NWC", {.stride = {2}, .padding = "same"})};
};
/// Rows by number, numbers along rows, and rows added to other rows. Numbers are 0 to 11; some are out of range.
constexpr auto looked_up = [](value q, value i) {
  const auto rows = q.shape()[0];
  return std::tuple{take(q, i, 0), take(q, i, 1, out_of_range::fill, 5), segment_sum(take(q, i, 0), i, 7),
                    scatter_add(q, i, take(q, i, 0)),
                    segment_sum(q, iota<std::int32_t>(q, {rows}, 0) - 2, rows + 1, monoid::max)};
};

}  // namespace

TEST_CASE("compiled loops over a line, and their sums and extrema") {
  CHECK(lines<reduced, double, 1>(doubles{}) == "");
  CHECK(lines<reduced, float, 1>(floats{}) == "");
  CHECK(lines<only_reduced, double, 1>(few{}) == "");
  CHECK(lines<only_reduced, float, 1>(few{}) == "");
  CHECK(lines<reduced, bf16, 1>(few{}) == "");
  CHECK(lines<reduced, std::int32_t, 1>(few{}) == "");
}
TEST_CASE("compiled stencils and scans of a line") {
  CHECK(lines<stencil_of_line, double, 1>(few{}) == "");
  CHECK(lines<scanned, double, 1>(few{}) == "");
}
TEST_CASE("compiled loops over rows: sums along either dim, softmax") {
  CHECK(wrong_between_guards<each<rows_and_columns>, on<1>, whole<double, 17, 9>, whole<float, 9, 96>, whole<float, 3, 300>,
                             whole<double, 2, 700>, whole<float, 5, 1025>, whole<bf16, 4, 129>>() == "");
  CHECK(wrong_between_guards<each<softmax_of_rows>, on<1>, whole<float, 3, 7>, whole<double, 2, 225>, whole<float, 3, 289>>() ==
        "");
  CHECK(wrong_between_guards<each<softmax_of_columns>, on<1>, whole<float, 7, 33>, whole<double, 129, 5>>() == "");
}
TEST_CASE("compiled stencils and scans of rows, and rows that are moved") {
  CHECK(wrong_between_guards<each<stencil_of_rows>, on<1>, whole<double, 5, 33>, whole<float, 4, 257>>() == "");
  CHECK(wrong_between_guards<each<scans_of_rows>, on<1>, whole<double, 5, 33>, whole<float, 3, 257>>() == "");
  CHECK(wrong_between_guards<each<moved>, on<1>, whole<double, 5, 33>, whole<bf16, 9, 129>, whole<std::int32_t, 3, 257>>() == "");
}
TEST_CASE("compiled products, convolutions and lookups") {
  CHECK(wrong_between_guards<each<products>, on<1>, whole<double, 3, 5>, whole<float, 17, 33>, whole<double, 31, 65>,
                             whole<bf16, 9, 70>, whole<std::int32_t, 7, 33>>() == "");
  CHECK(wrong_between_guards<each<batched>, on<1>, whole<float, 3, 5, 7>, whole<double, 2, 9, 17>, whole<bf16, 2, 3, 9>>() == "");
  CHECK(wrong_between_guards<each<convolved>, on<1>, whole<float, 3, 33, 2>, whole<double, 5, 17, 3>>() == "");
  CHECK(wrong_between_guards<looked_up, on<1>, whole<float, 13, 33>, whole<std::int32_t, 17>>() == "");
}
// One device of several uses the loops of a single device, so this processor's vector width is sufficient.
#ifndef GSPMD_TEST_NARROWER
TEST_CASE("compiled loops, stencils, scans, products and lookups of parts of tensors") {
  CHECK(lines<reduced, float, 2>(split_up{}) == "");
  CHECK(lines<only_reduced, double, 4>(split_up{}) == "");
  CHECK(lines<stencil_of_line, float, 4>(split_up{}) == "");
  CHECK(lines<scanned, float, 2>(split_up{}) == "");
  CHECK(wrong_between_guards<each<rows_and_columns>, on<2>, rows_part<double, 7, 129>, columns_part<float, 5, 511>>() == "");
  CHECK(wrong_between_guards<each<softmax_of_rows>, on<2>, rows_part<float, 5, 257>, columns_part<double, 3, 449>>() == "");
  CHECK(wrong_between_guards<each<stencil_of_rows>, on<4>, rows_part<double, 9, 65>, columns_part<float, 3, 513>>() == "");
  CHECK(wrong_between_guards<each<products>, on<2>, rows_part<float, 9, 33>, columns_part<double, 7, 65>>() == "");
  CHECK(wrong_between_guards<looked_up, on<2>, columns_part<double, 12, 225>, row_part<std::int32_t, 9>>() == "");
}
#endif
