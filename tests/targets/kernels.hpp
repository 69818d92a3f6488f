// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gspmd/detail/ir/contraction_planner.hpp"
#include "gspmd/detail/ir/scalar_ops.hpp"
#include "gspmd/detail/kernels/contraction.hpp"
#include "gspmd/detail/kernels/permute.hpp"
#include "gspmd/detail/kernels/reduce.hpp"
#include "gspmd/detail/transport/combine.hpp"

// Returns the mistakes of the kernels in this translation unit, or an empty text. One of the units uses only some
// kernels. The linker may take kernels that both units have from either unit, so these must work with the kernels of
// the other unit.
namespace {

template <bool All>
std::string wrong_kernels() {
  using namespace gspmd::detail;
  constexpr std::int64_t rows = 37, columns = 83, inner = 41;
  const auto numbers = [](std::int64_t n) {
    std::vector<float> a(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) a[static_cast<std::size_t>(i)] = static_cast<float>(i * 7 % 11);
    return a;
  };
  const auto a = numbers(rows * inner), b = numbers(inner * columns), c = numbers(rows * columns);
  const auto at = [](const std::vector<float>& x, std::int64_t i) { return x[static_cast<std::size_t>(i)]; };
  const auto equal = [](float x, float y) { return std::fabs(x - y) <= 1e-5f * std::fabs(y); };
  std::string wrong;
  std::vector<float> out(static_cast<std::size_t>(rows * columns));

  const std::int64_t valid[] = {rows, columns, inner};
  extents shape(2, rows);
  shape[1] = columns;
  for (int d = 0; d < 2; ++d) {
    const reduction_spec spec{shape, dim_bit(d), gspmd::monoid::add};
    reduce(reduction_kernel_for<float>(spec.reduced_by), plan_reduction(spec), valid, c.data(), out.data());
    for (std::int64_t k = 0; k < shape[1 - d]; ++k) {
      float sum = 0;
      for (std::int64_t i = 0; i < shape[d]; ++i) sum += at(c, d == 0 ? i * columns + k : k * columns + i);
      if (!equal(at(out, k), sum)) wrong = "reduce";
    }
  }

  if constexpr (!All) return wrong;

  contraction product;  // ac,cb->ab
  const std::int8_t lhs[] = {0, 2}, rhs[] = {2, 1}, result[] = {0, 1};
  for (int d = 0; d < 2; ++d) {
    product.lhs.push_back(lhs[d]);
    product.rhs.push_back(rhs[d]);
    product.out.push_back(result[d]);
  }
  for (const auto extent : valid) product.extent.push_back(extent);
  const auto plan = plan_contraction(product);
  std::vector<float> scratch(static_cast<std::size_t>(plan.scratch_elems) + 1);
  contract<float>(runtime_spec{&plan}, valid, a.data(), b.data(), out.data(), scratch.data());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < inner; ++k) sum += at(a, i * inner + k) * at(b, k * columns + j);
      if (!equal(at(out, i * columns + j), sum)) wrong = "contract";
    }

  permutation_spec turned{shape, {}};
  turned.permutation.push_back(1);
  turned.permutation.push_back(0);
  permute<raw_bits<float>>(plan_permutation(turned), c.data(), out.data());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      if (at(out, j * rows + i) != at(c, i * columns + j)) wrong = "permute";

  reduce_row(
      combiner_of<float>(gspmd::monoid::add), out.data(), 3, [&](std::int64_t j) { return c.data() + j; }, 0, rows * columns - 2,
      false);
  for (std::int64_t i = 0; i < rows * columns - 2; ++i)
    if (at(out, i) != at(c, i) + at(c, i + 1) + at(c, i + 2)) wrong = "combine";

  if (!equal(exponential(1.5f), std::exp(1.5f))) wrong = "exp";
  return wrong;
}

}  // namespace
