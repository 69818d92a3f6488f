// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "gspmd/detail/driver/static_plan.hpp"
#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/program/mesh.hpp"
#include "gspmd/transform/grad.hpp"
#include "gspmd/windows.hpp"

/// Random programs that the compiler can trace: a function of a seed, and a callable whose type contains the seed. A
/// random draw and an added node are separate statements: C++ does not order arguments, and two traces must give the
/// same graph. Only the callable is a template, so a hundred programs cost a hundred plans, and the generator is
/// compiled once.
namespace random_callables {

using namespace gspmd;

class generator {
 public:
  constexpr explicit generator(unsigned seed) : state_(seed * 2654435761u + 12345u) {}

  /// Returns `operators` values of rank 2, each computed from earlier values. If `regions`, a loop or conditional
  /// computes one value.
  constexpr std::vector<value> make(value x, value y, value z, unsigned operators, bool regions) {
    pool_ = {x, y, z};
    const unsigned region = regions ? next(operators) : operators;
    for (unsigned i = 0; i < operators; ++i) {
      const value a = pick();
      pool_.push_back(i == region ? make_region(a, 0) : make_one(a, pick()));
    }
    return pool_;
  }

 private:
  constexpr unsigned next(unsigned n) {
    state_ = state_ * 1664525u + 1013904223u;
    return (state_ >> 16) % n;
  }
  constexpr value pick() { return pool_[next(static_cast<unsigned>(pool_.size()))]; }
  static constexpr value tamed(value x) { return x * 0.25; }
  static constexpr value as(value x, value like) { return like.type() == dtype::f64 ? cast<double>(x) : cast<float>(x); }

  constexpr value make_one(value a, value b) {
    const bool alike = a.shape() == b.shape();
    const std::int64_t rows = a.shape()[0], columns = a.shape()[1];
    switch (next(16)) {
      case 0: return relu(a);
      case 1: return alike ? a * b : a - 0.5;
      case 2: return alike ? a + b : tanh(a);
      case 3: return rows == b.shape()[0] ? tamed(einsum("ab,ac->bc", a, b)) : tamed(einsum("ab,cb->ac", a, a));
      case 4: return columns == b.shape()[0] ? tamed(einsum("ab,bc->ac", a, b)) : einsum("ab->ba", a);
      case 5: return transpose(a, {1, 0});
      case 6: return a - tamed(sum(a, {0}));
      case 7: return softmax(a, 1);
      case 8: {
        const value flat = allow_replication(reshape(a, {rows * columns}));
        return allow_replication(reshape(flat, {columns, rows}));
      }
      case 9: {
        const auto dim = static_cast<int>(next(2));
        return shift(a, static_cast<std::int64_t>(next(9)) - 4, along(dim));
      }
      case 10:
        return map(with_derivative([](auto p, auto q) { return p * q - p; }, [](auto, auto q) { return q - 1; },
                                   [](auto p, auto) { return p; }),
                   a, alike ? b : tanh(a));
      case 11: {
        const value condition = a > 0.1234;
        const value on_true = alike ? b : -a;
        return where(condition, on_true, tanh(a));
      }
      case 12: {
        const value largest = reduce(a, monoid::max, {1});
        const value average = mean(a, {0});
        const value product = einsum("a,b->ab", largest, average);
        return a * 0.5 - product;
      }
      case 13: return a + as(iota<std::int32_t>(a, {rows, columns}, static_cast<int>(next(2))) * 3, a) * 0.125;
      case 14: return reshard(tanh(a), split<"y", "?">{});
      default: return tamed(einsum("acb,ab->ca", broadcast_in_dim(sin(a), {rows, 5, columns}, {0, 2}), a));
    }
  }

  /// Returns a value with the shape of `v`, as the body of a loop does with a carried value.
  constexpr value make_step(value v) {
    const value other = pick();
    switch (next(7)) {
      case 0: return tanh(v);
      case 1: return tamed(einsum("ac,cb->ab", tamed(einsum("ab,cb->ac", v, v)), v));
      case 2: return v.shape() == other.shape() ? v * 0.5 + other : v * sum(other) * 0.0625;
      case 3: return v - tamed(sum(v, {0}));
      case 4: return shift(v, 1, along(next(2)));
      case 5: {
        if (v.shape()[1] != other.shape()[0]) return v;
        const value product = einsum("ab,bc->ac", v, other);
        return tamed(einsum("ac,bc->ab", product, tanh(other)));
      }
      default: return softmax(v, 0);
    }
  }
  constexpr value make_body(value v, int depth) {
    const value r = make_step(v);
    return depth == 0 && next(3) == 0 ? make_region(r, 1) : r;
  }
  constexpr value make_region(value h, int depth) {
    switch (next(3)) {
      case 0: {
        const auto trips = static_cast<std::int64_t>(next(4));
        const auto [last, before] = fori_loop(
            trips,
            [&](value i, value v, value w) {
              const value r = make_body(v, depth);
              return std::tuple{r * 0.5 + w, v + as(i, v) * 0.125};
            },
            h, tanh(h));
        return last - before;
      }
      case 1:
        return cond(
            sum(h) > 0.1234, [&](value v) { return make_body(v, depth); }, [&](value v) { return make_step(v); }, h);
      default: {
        const value start = tamed(sum(h, {0}));
        const auto [last, rows] = scan(
            [&](value c, value x) {
              const value r = c * 0.5 + x;
              return std::tuple{r, tanh(r)};
            },
            start, reshard(h, split<_, "?">{}));
        return rows + einsum("b->b", last);
      }
    }
  }

  unsigned state_;
  std::vector<value> pool_;
};

/// The program of a seed. Its results are the last value and a loss. With gradients, also the gradients by `x` and `y`.
constexpr bool has_gradients(unsigned seed) { return seed % 3 == 0; }
constexpr bool has_regions(unsigned seed) { return seed % 4 == 0 || seed % 5 == 0; }
/// Gradients and loops multiply the number of operators, and compilers take a second for forty operators.
constexpr unsigned operators_of(unsigned seed) { return 6 - (has_regions(seed) ? 2 : 0) - (has_gradients(seed) ? 2 : 0); }

template <bool Gradients>
constexpr std::array<value, Gradients ? 4 : 2> results(unsigned seed, value x, value y, value z) {
  const auto made = generator(seed).make(x, y, z, operators_of(seed), has_regions(seed));
  const value first = mean(made[made.size() - 1] * 0.5);
  const value loss = first + sum(tanh(made[made.size() - 2])) * 0.125;
  if constexpr (Gradients) {
    const auto by = grad(loss, std::array{x, y});
    return {made.back(), loss, by[0], by[1]};
  } else {
    return {made.back(), loss};
  }
}
template <unsigned Seed>
constexpr auto callable = [](value x, value y, value z) { return results<has_gradients(Seed)>(Seed, x, y, z); };

/// Returns the results of the same program, traced at run time.
inline std::vector<value> traced_results(unsigned seed, value x, value y, value z) {
  const auto list = [](const auto& array) { return std::vector<value>(array.begin(), array.end()); };
  return has_gradients(seed) ? list(results<true>(seed, x, y, z)) : list(results<false>(seed, x, y, z));
}

}  // namespace random_callables
