// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// The containers that are read as row-major tensors.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/gspmd.hpp>

#include "gspmd/dynamic.hpp"
#include "gspmd/dynamic/session.hpp"
#include "gspmd/layouts/placed_array.hpp"
#include "support/eigen_if_there.hpp"
#include "support/error_of.hpp"
#include "support/mdspan_like.hpp"

using namespace gspmd;

namespace {

using caught::contains;
using caught::refusal;

static_assert(is_row_major<std::vector<float>> && is_row_major<std::array<double, 4>> && is_row_major<std::span<const float>>);
static_assert(is_row_major<array<float>>);

// The ways to state the number of dims in several libraries.
struct says_rank {  // Kokkos
  static constexpr std::size_t rank = 2;
};
struct says_rank_1 {
  static constexpr std::size_t rank = 1;
};
struct counts_rank {  // mdarray
  static constexpr std::size_t rank() { return 2; }
};
struct counts_rank_1 {
  static constexpr std::size_t rank() { return 1; }
};
struct rank_of_object {
  [[nodiscard]] int rank() const { return 1; }
};
struct multi_array {  // Boost
  static constexpr std::size_t dimensionality = 2;
};
struct with_shape {
  [[nodiscard]] std::vector<int> shape() const { return {3, 4}; }
};
struct with_dimension {
  [[nodiscard]] int dimension() const { return 2; }
};
struct with_rows {
  [[nodiscard]] int rows() const { return 3; }
  [[nodiscard]] int cols() const { return 4; }
};
enum class layout { row_major, column_major };
template <layout L>
struct tensor : with_dimension {  // xtensor
  static constexpr layout static_layout = L;
  [[nodiscard]] static const float* data() { return nullptr; }
};
static_assert(!is_row_major<says_rank> && is_row_major<says_rank_1>);
static_assert(!is_row_major<counts_rank> && is_row_major<counts_rank_1> && !is_row_major<rank_of_object>);
static_assert(!is_row_major<multi_array> && !is_row_major<with_shape> && !is_row_major<with_dimension> &&
              !is_row_major<with_rows>);
static_assert(is_row_major<tensor<layout::row_major>> && !is_row_major<tensor<layout::column_major>>);

// the check looks into vectors and groups too; tests/compile_fail/column_major_list.cpp has the refused containers
static_assert(detail::accept_containers<std::vector<tensor<layout::row_major>>>());
static_assert(detail::accept_containers<std::vector<std::vector<says_rank_1>>>());
static_assert(detail::accept_containers<std::vector<std::pair<std::vector<float>, const float*>>>());
static_assert(detail::accept_containers<double[4][6]>());

// and the extents that containers report
template <class C>
detail::extents extents_in(const C& c) {
  return detail::known_extents(c).value();
}

/// A view of rows with gaps, as in Kokkos.
struct row_view : says_rank_1 {
  std::vector<float> elements;
  [[nodiscard]] const float* data() const { return elements.data(); }
  [[nodiscard]] std::size_t size() const { return 4; }
  [[nodiscard]] bool span_is_contiguous() const { return elements.size() == 4; }
};

using pair_mesh = mesh<axis<"x", 2>>;
constexpr auto same = [](auto x) { return x * 1; };
using step = compile<same, pair_mesh, input<float, shape<2, 2>, split<"x", _>>>;
constexpr const char* no_gaps = "are not contiguous";

}  // namespace

TEST_CASE("a container with gaps between its elements is refused") {
  const row_view dense{{}, {0, 1, 2, 3}}, apart{{}, {0, 9, 1, 9, 2, 9, 3, 9}};
  const auto y = run<step>(simulated{}, dense);
  CHECK(std::vector<float>(y.begin(), y.end()) == dense.elements);
  CHECK(contains(refusal([&] { static_cast<void>(run<step>(simulated{}, apart)); }), no_gaps));
  simulated_communicator comm(2);
  CHECK(contains(refusal([&] { static_cast<void>(distribute<step, 0>(comm, apart)); }), no_gaps));
  const placed_layout rows(pair_mesh::info.shape, {2, 2}, {});
  CHECK(contains(refusal([&] { static_cast<void>(distribute(comm, rows, apart)); }), no_gaps));
  using one = compile<same, mesh<axis<"x", 1>>, input<float, shape<2, 2>>>;
  CHECK(contains(refusal([&] { static_cast<void>(one::input_shard<0>(apart)); }), no_gaps));
  const auto p = dynamic::compile(same, dynamic::mesh({{"x", 2}}), dynamic::input<float>({2, 2}));
  CHECK(contains(refusal([&] { static_cast<void>(p.run(simulated{}, apart)); }), no_gaps));
}

TEST_CASE("in vectors too, and in vectors of them") {
  const row_view dense{{}, {0, 1, 2, 3}}, apart{{}, {0, 9, 1, 9, 2, 9, 3, 9}};
  constexpr auto sum = [](auto a, auto b) { return a + b; };
  using both = compile<sum, pair_mesh, input<float, shape<2, 2>, split<"x", _>>, input<float, shape<2, 2>, split<"x", _>>>;
  const std::vector<std::vector<row_view>> nested{{dense}, {apart}};
  CHECK(contains(refusal([&] { static_cast<void>(run<both>(simulated{}, std::vector{dense, apart})); }), no_gaps));
  CHECK(contains(refusal([&] { static_cast<void>(run<both>(simulated{}, nested)); }), no_gaps));
  const auto p = dynamic::compile(sum, dynamic::mesh({{"x", 2}}), dynamic::input<float>({2, 2}), dynamic::input<float>({2, 2}));
  CHECK(contains(refusal([&] { static_cast<void>(p.run(simulated{}, nested)); }), no_gaps));
  simulated_communicator comm(2);
  CHECK(contains(refusal([&] { static_cast<void>(distribute(comm, p, 0, nested)); }), no_gaps));
  CHECK_EQ(p.run(simulated{}, std::vector{dense, dense})[0].data<float>()[3], 6);
}

TEST_CASE("the extents that containers know") {
  float x[2][3] = {};
  CHECK(extents_in(x) == detail::extents{2, 3});
  CHECK(extents_in(array<float>({2, 3})) == detail::extents{2, 3});
  CHECK(extents_in(with_rows()) == detail::extents{3, 4});
  CHECK(extents_in(with_shape()) == detail::extents{3, 4});
  CHECK(extents_in(views::kokkos_like<float>(&x[0][0], 2, 3, 3, 1)) == detail::extents{2, 3});
  CHECK(extents_in(views::mdspan_like<float, 2>(&x[0][0], {2, 3}, {3, 1})) == detail::extents{2, 3});
  CHECK(extents_in(views::multi_array_like<float>{&x[0][0], {2, 3}, {3, 1}, {0, 0}}) == detail::extents{2, 3});
  CHECK(extents_in(views::xtensor_like<float>{&x[0][0], {2, 3}, {3, 1}}) == detail::extents{2, 3});
  CHECK_FALSE(detail::known_extents(std::vector<float>(6)));
  CHECK_FALSE(detail::known_extents(&x[0][0]));
}

#if HAS_EIGEN
using row_matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
static_assert(!is_row_major<Eigen::MatrixXf> && !is_row_major<Eigen::ArrayXXf> && !is_row_major<Eigen::Map<Eigen::MatrixXf>>);
static_assert(is_row_major<row_matrix> && is_row_major<Eigen::VectorXf> && is_row_major<Eigen::Ref<const row_matrix>>);

TEST_CASE("Eigen's row-major matrices are read as they are written") {
  row_matrix x(2, 2);
  x << 0, 1, 2, 3;
  const auto y = run<step>(simulated{}, x);
  CHECK(std::vector<float>(y.begin(), y.end()) == std::vector<float>{0, 1, 2, 3});
  row_matrix wide(2, 3);
  wide << 0, 1, 9, 2, 3, 9;
  const Eigen::Ref<const row_matrix, 0, Eigen::OuterStride<>> part = wide.leftCols(2);
  CHECK(contains(refusal([&] { static_cast<void>(run<step>(simulated{}, part)); }), no_gaps));
}
#endif

#ifdef GSPMD_TEST_MOVE_LISTS
TEST_CASE("containers: with GSPMD_TEST_MOVE_LISTS each element that is added moves a list") {
  detail::vec<int> list;
  list.reserve(8);
  for (int i = 0; i < 8; ++i) {
    const int* const before = list.data();
    list.push_back(i);
    CHECK(list.data() != before);
  }
  detail::graph g;
  const value x(&g, detail::add_constant(g, dtype::f64, {2, 3}, 0, 0, {}));
  const auto& shape = x.shape();  // a copy; the reference extends its lifetime
  const auto* const before = g.nodes.data();
  const value y = x + 1.0;
  CHECK(g.nodes.data() != before);
  CHECK(shape == y.shape());
}
#endif
