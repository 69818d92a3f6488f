// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// matmul, dot and outer equal loops over the indices of NumPy, for ranks 0 to 4, in random shardings; their mistakes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include "support/any_backend.hpp"
#include "support/error_of.hpp"
#include "support/random_split.hpp"

namespace {

using namespace gspmd;
using reference::any_backend;
using reference::draws;
using reference::random_split;
using std::int64_t;

struct tensor {
  std::vector<int64_t> shape;
  std::vector<int64_t> data;

  /// The element at an index, aligned at the right. Extents of 1 are repeated.
  [[nodiscard]] int64_t operator()(const std::vector<int64_t>& index) const {
    int64_t place = 0;
    for (std::size_t d = 0; d < shape.size(); ++d)
      place = place * shape[d] + (shape[d] == 1 ? 0 : index[index.size() - shape.size() + d]);
    return data[static_cast<std::size_t>(place)];
  }
};

/// Calls f for each index of a shape.
void for_each_index(const std::vector<int64_t>& shape, const std::function<void(const std::vector<int64_t>&)>& f) {
  int64_t n = 1;
  for (const auto e : shape) n *= e;
  std::vector<int64_t> index(shape.size());
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i;
    for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) index[d] = rest % shape[d];
    f(index);
  }
}

/// NumPy's definition: a vector is a matrix with one row or column, which the result lacks.
tensor naive_matmul(tensor a, tensor b) {
  const bool is_row = a.shape.size() == 1, is_column = b.shape.size() == 1;
  if (is_row) a.shape.insert(a.shape.begin(), 1);
  if (is_column) b.shape.push_back(1);
  const std::size_t ra = a.shape.size(), rb = b.shape.size(), rank = std::max(ra, rb);
  const int64_t k = a.shape[ra - 1];
  tensor y;
  for (std::size_t d = 0; d + 2 < rank; ++d) {
    const int64_t m = d + ra < rank ? 1 : a.shape[d + ra - rank], n = d + rb < rank ? 1 : b.shape[d + rb - rank];
    y.shape.push_back(m == 1 ? n : m);
  }
  y.shape.push_back(a.shape[ra - 2]);
  y.shape.push_back(b.shape[rb - 1]);
  for_each_index(y.shape, [&](const std::vector<int64_t>& at) {
    int64_t sum = 0;
    auto left = at, right = at;
    for (int64_t i = 0; i < k; ++i) {
      left[rank - 1] = right[rank - 2] = i;
      sum += a(left) * b(right);
    }
    y.data.push_back(sum);
  });
  if (is_column) y.shape.pop_back();
  if (is_row) y.shape.erase(y.shape.end() - (is_column ? 1 : 2));
  return y;
}
tensor naive_dot(const tensor& a, const tensor& b) {
  const std::size_t ra = a.shape.size(), rb = b.shape.size();
  tensor y;
  const bool is_scalar = ra == 0 || rb == 0;
  const std::size_t db = rb < 2 ? 0 : rb - 2;
  for (std::size_t d = 0; d < ra; ++d)
    if (is_scalar || d + 1 < ra) y.shape.push_back(a.shape[d]);
  for (std::size_t d = 0; d < rb; ++d)
    if (is_scalar || d != db) y.shape.push_back(b.shape[d]);
  for_each_index(y.shape, [&](const std::vector<int64_t>& at) {
    const auto middle = at.begin() + static_cast<std::ptrdiff_t>(is_scalar || ra == 0 ? ra : ra - 1);
    std::vector<int64_t> left(at.begin(), middle), right(middle, at.end());
    int64_t sum = 0;
    if (is_scalar) sum = a(left) * b(right);
    for (int64_t i = 0; !is_scalar && i < a.shape[ra - 1]; ++i) {
      auto l = left, r = right;
      l.push_back(i);
      r.insert(r.begin() + static_cast<std::ptrdiff_t>(db), i);
      sum += a(l) * b(r);
    }
    y.data.push_back(sum);
  });
  return y;
}
tensor naive_outer(const tensor& a, const tensor& b) {
  tensor y{{static_cast<int64_t>(a.data.size()), static_cast<int64_t>(b.data.size())}, {}};
  for (const auto m : a.data)
    for (const auto n : b.data) y.data.push_back(m * n);
  return y;
}

tensor random_tensor(draws& r, std::vector<int64_t> shape) {
  tensor t{std::move(shape), {}};
  for_each_index(t.shape, [&](const auto&) { t.data.push_back(r.below(11) - 5); });
  return t;
}
void check(draws& r, const dynamic::mesh& m, const any_backend& backend, const tensor& a, const tensor& b,
           value (*f)(value, value, location), tensor (*naive)(const tensor&, const tensor&)) {
  CAPTURE(a.shape);
  CAPTURE(b.shape);
  dynamic::builder builder(m);
  const value x = builder.input(dynamic::input<int64_t>(a.shape, random_split(r, m, a.shape.size())));
  const value w = builder.input(dynamic::input<int64_t>(b.shape, random_split(r, m, b.shape.size())));
  builder.output(allow_replication(f(x, w, location::current())));
  const auto got = backend.run(builder.compile(), {a.data.data(), b.data.data()});
  const tensor want = naive(a, b);
  CHECK(got[0].shape == want.shape);
  CHECK(std::vector<int64_t>(got[0].data<int64_t>(), got[0].data<int64_t>() + want.data.size()) == want.data);
}
void try_once(std::uint64_t seed, const dynamic::mesh& m, const any_backend& backend) {
  CAPTURE(seed);
  draws r{std::mt19937_64(seed)};
  const int64_t sizes[] = {1, 2, 3, 5, 0, 4};
  const auto size = [&] { return sizes[r.below(6)]; };
  const auto vector_or = [&](std::vector<int64_t> matrix, std::size_t summed, const std::vector<int64_t>& batch) {
    if (r.below(4) == 0) return std::vector<int64_t>{matrix[summed]};
    matrix.insert(matrix.begin(), batch.end() - r.below(static_cast<int64_t>(batch.size()) + 1), batch.end());
    for (std::size_t d = 0; d + 2 < matrix.size(); ++d)
      if (r.below(3) == 0) matrix[d] = 1;
    return matrix;
  };
  const std::vector<int64_t> batch{size(), size()};
  const int64_t k = size();
  const tensor a = random_tensor(r, vector_or({size(), k}, 1, batch)), b = random_tensor(r, vector_or({k, size()}, 0, batch));
  check(r, m, backend, a, b, matmul, [](const tensor& x, const tensor& w) { return naive_matmul(x, w); });
  check(r, m, backend, a, b, dot, naive_dot);
  check(r, m, backend, random_tensor(r, {}), b, dot, naive_dot);
  const tensor u = random_tensor(r, {size()}), v = random_tensor(r, {size()});
  check(r, m, backend, u, v, outer, naive_outer);
}

}  // namespace

TEST_CASE("matmul, dot and outer of all ranks, as loops over NumPy's indices have them") {
  const dynamic::mesh one({{"x", 1}}), three({{"x", 3}}), grid({{"x", 2}, {"y", 2}});
  for (std::uint64_t seed = 0; seed < 10; ++seed) try_once(seed, one, serial{});
  for (std::uint64_t seed = 10; seed < 30; ++seed) try_once(seed, three, simulated{});
  for (std::uint64_t seed = 30; seed < 50; ++seed) try_once(seed, grid, threads{});
  draws r{std::mt19937_64(50)};
  check(r, one, serial{}, random_tensor(r, {2, 3}), random_tensor(r, {}), outer, naive_outer);
  check(r, one, serial{}, random_tensor(r, {2, 0}), random_tensor(r, {4, 1, 2}), outer, naive_outer);
}

TEST_CASE("matmul of matrices is the einsum of the same program, with its gradients") {
  const dynamic::mesh m({{"x", 2}, {"y", 2}});
  const auto x = dynamic::input<float>({8, 6}, {"x", "y"}), w = dynamic::input<float>({6, 4}, {"y", ""});
  const auto same = [&](auto f, auto g) {
    const auto step = [](auto product) {
      return [product](value a, value b) { return grad(sum(tanh(product(a, b))), std::vector<value>{a, b}); };
    };
    return dynamic::compile(step(f), m, x, w) == dynamic::compile(step(g), m, x, w);
  };
  CHECK(same([](value a, value b) { return matmul(a, b); }, [](value a, value b) { return einsum<"ab,bc->ac">(a, b); }));
  CHECK(same([](value a, value b) { return dot(a, b); }, [](value a, value b) { return einsum<"ab,bc->ac">(a, b); }));
}

TEST_CASE("mistakes in products name both shapes and the remedy") {
  const auto said = [](auto f, std::vector<int64_t> a, std::vector<int64_t> b) {
    return caught::refusal([&] {
      dynamic::compile(f, dynamic::mesh({{"x", 2}}), dynamic::input<float>(std::move(a)), dynamic::input<float>(std::move(b)));
    });
  };
  const auto product = [](value a, value b) { return matmul(a, b); };
  CHECK(said(product, {8, 6}, {8, 4})
            .ends_with(": the operands are [8,6] and [8,4]; the last dim of the first must equal the "
                       "second-to-last (or only) dim of the second: transpose one"));
  CHECK(said(product, {2, 8, 6}, {3, 6, 4})
            .ends_with(": the operands are [2,8,6] and [3,6,4]; the batch dims, aligned at the right, must be equal or 1"));
  CHECK(said(product, {}, {6, 4}).ends_with(": the operands are [] and [6,4]; for an operand of rank 0, write a * b"));
  CHECK(said(product, {}, {6, 4}).starts_with("matmul at matmul.cpp:"));
  CHECK(said([](value a, value b) { return dot(a, b); }, {3}, {4}).starts_with("dot at matmul.cpp:"));
}
