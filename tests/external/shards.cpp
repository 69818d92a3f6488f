// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// User memory whose elements have strides.
#include "gspmd/external.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/dynamic/session.hpp"
#include "gspmd/external/program.hpp"
#include "gspmd/gspmd.hpp"
#include "support/eigen_if_there.hpp"
#include "support/error_of.hpp"
#include "support/mdspan_like.hpp"

using namespace gspmd;

namespace {

using caught::contains;
using caught::refusal;

std::vector<double> counted(std::size_t n) {
  std::vector<double> x(n);
  std::iota(x.begin(), x.end(), 1.0);
  return x;
}

/// Returns the elements of a view in row-major order, by the view's own functions.
template <class T>
std::vector<std::remove_const_t<T>> listed(const strided_view<T>& v) {
  std::vector<std::remove_const_t<T>> list;
  std::vector<std::int64_t> at(static_cast<std::size_t>(v.rank()));
  for (std::int64_t n = v.elems(); n > 0; --n) {
    std::int64_t offset = 0;
    for (int d = 0; d < v.rank(); ++d) offset += at[static_cast<std::size_t>(d)] * v.stride(d);
    list.push_back(v.data()[offset]);
    for (int d = v.rank() - 1; d >= 0 && ++at[static_cast<std::size_t>(d)] == v.extent(d); --d)
      at[static_cast<std::size_t>(d)] = 0;
  }
  return list;
}

struct forms {
  std::vector<std::int64_t> shape, strides;
  bool is_in_place;
};
template <class X>
forms form(X&& x) {
  const strided_view v(x);
  return {{v.shape().begin(), v.shape().end()}, {v.strides().begin(), v.strides().end()}, is_in_place(x)};
}
bool operator==(const forms& a, const forms& b) {
  return a.shape == b.shape && a.strides == b.strides && a.is_in_place == b.is_in_place;
}

using rows_mesh = mesh<axis<"x", 3>>;
constexpr auto twice_and_sum = [](auto u, auto v) { return std::tuple{u * 2 + v, sum(u, 1)}; };
using step =
    compile<twice_and_sum, rows_mesh, input<double, shape<7, 4>, split<"x", _>>, input<double, shape<7, 4>, split<"x", _>>>;

}  // namespace

TEST_CASE("libraries' views say where their elements are") {
  auto x = counted(60);
  double c[3][4] = {};
  CHECK(form(c) == forms{{3, 4}, {4, 1}, true});
  double deep[2][3][5] = {};
  CHECK(form(deep) == forms{{2, 3, 5}, {15, 5, 1}, true});
  CHECK(form(x) == forms{{60}, {1}, true});
  CHECK(form(array<double>({3, 4})) == forms{{3, 4}, {4, 1}, true});
  CHECK(form(std::array<float, 3>{}) == forms{{3}, {1}, true});

  using views::mdspan_like;
  CHECK(form(mdspan_like<double, 2>(x.data(), {3, 4}, {4, 1})) == forms{{3, 4}, {4, 1}, true});   // layout_right
  CHECK(form(mdspan_like<double, 2>(x.data(), {3, 4}, {1, 3})) == forms{{3, 4}, {1, 3}, false});  // layout_left
  CHECK(form(mdspan_like<const double, 3>(x.data(), {3, 1, 4}, {10, 0, 2})) == forms{{3, 1, 4}, {10, 0, 2}, false});
  CHECK(form(mdspan_like<double, 0>(x.data(), {}, {})) == forms{{}, {}, true});
  CHECK(contains(refusal([&] { form(mdspan_like<double, 2>(x.data(), {3, 4}, {4, 1}, false)); }), "has no strides"));

  CHECK(form(views::kokkos_like<double>(x.data(), 3, 4, 1, 3)) == forms{{3, 4}, {1, 3}, false});
  CHECK(form(views::kokkos_like<double>(x.data(), 3, 4, 4, 1)) == forms{{3, 4}, {4, 1}, true});
  const views::xtensor_like<double> part{x.data() + 6, {3, 1}, {10, 0}};
  CHECK(form(part) == forms{{3, 1}, {10, 0}, false});
  CHECK_EQ(strided_view(part).data(), x.data() + 6);

  // a: indices -1 to 1 and 0 to 3; b: rows 0 and 1, columns 1 and 3 of a
  const views::multi_array_like<double> a{x.data() + 4, {3, 4}, {4, 1}, {-1, 0}}, b{x.data() + 5, {2, 2}, {4, 2}, {0, 0}};
  CHECK(form(a) == forms{{3, 4}, {4, 1}, true});
  CHECK_EQ(strided_view(a).data(), x.data());
  CHECK(form(b) == forms{{2, 2}, {4, 2}, false});
  CHECK_EQ(strided_view(b).data(), x.data() + 5);
#if defined(__cpp_lib_mdspan)
  using two = std::dextents<int, 2>;
  CHECK(form(std::mdspan<double, two>(x.data(), 3, 4)) == forms{{3, 4}, {4, 1}, true});
  CHECK(form(std::mdspan<double, two, std::layout_left>(x.data(), 3, 4)) == forms{{3, 4}, {1, 3}, false});
  CHECK(form(std::mdspan<double, two, std::layout_stride>(x.data(), {two(3, 4), std::array{10, 2}})) ==
        forms{{3, 4}, {10, 2}, false});
  CHECK(form(std::mdspan<double, std::extents<int>>(x.data())) == forms{{}, {}, true});
#endif
}

#if HAS_EIGEN
TEST_CASE("Eigen's matrices of both orders, maps, blocks, transposes") {
  auto x = counted(60);
  using row_matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Eigen::MatrixXd m = Eigen::MatrixXd::Random(5, 4);
  row_matrix r = row_matrix::Random(5, 4);
  CHECK(form(m) == forms{{5, 4}, {1, 5}, false});
  CHECK(form(r) == forms{{5, 4}, {4, 1}, true});
  CHECK(form(m.transpose()) == forms{{4, 5}, {5, 1}, true});
  CHECK(form(m.block(1, 1, 2, 3)) == forms{{2, 3}, {1, 5}, false});
  CHECK(form(r.block(1, 1, 2, 3)) == forms{{2, 3}, {4, 1}, false});
  CHECK_EQ(strided_view(r.block(1, 1, 2, 3)).data(), &r(1, 1));
  CHECK(form(m.row(2)) == forms{{4}, {5}, false});
  CHECK(form(m.col(2)) == forms{{5}, {1}, true});
  using strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
  CHECK(form(Eigen::Map<Eigen::MatrixXd, 0, strides>(x.data(), 3, 4, strides(12, 2))) == forms{{3, 4}, {2, 12}, false});
  CHECK(form(Eigen::Map<row_matrix, 0, Eigen::OuterStride<>>(x.data(), 3, 4, Eigen::OuterStride<>(6))) ==
        forms{{3, 4}, {6, 1}, false});
  CHECK(form(Eigen::Matrix<double, 3, 4>()) == forms{{3, 4}, {1, 3}, false});
  const Eigen::MatrixXd& constant = m;
  static_assert(std::is_same_v<decltype(strided_view(constant))::element, const double>);
  static_assert(std::is_same_v<decltype(strided_view(m))::element, double>);

  Eigen::MatrixXd u(7, 4), v(7, 4), next(7, 4);
  for (int i = 0; i < 28; ++i) u.data()[i] = i, v.data()[i] = 100 * i;
  Eigen::VectorXd sums(7);
  run_into<step>(threads{}, std::tuple{strided_view(next), strided_view(sums)}, strided_view(u), strided_view(v));
  CHECK(next == 2 * u + v);
  CHECK(sums == u.rowwise().sum());
}
#endif

TEST_CASE("views are refused in words") {
  auto x = counted(60);
  double* const p = x.data();
  const auto refused = [&](auto&& make) { return refusal([&] { static_cast<void>(make()); }); };
  CHECK(contains(refused([&] {
                   return strided_view(p + 11, {3, 4}, {-4, 1});
                 }),
                 "dim 0 has a negative stride; view it from its other end"));
  CHECK(contains(refused([&] { return strided_view(p, {3, 4}, {1}); }), "the numbers of strides and extents must be equal"));
  CHECK(contains(refused([&] { return strided_view(p, {3, -4}); }), "is negative"));
  CHECK(contains(refused([&] { return strided_view(static_cast<double*>(nullptr), {3, 4}); }), "the pointer is null"));
  CHECK(contains(refused([&] { return strided_view(p, {1 << 30, 1 << 30, 1 << 30}); }), "more than 2^60 bytes"));
  CHECK(contains(refused([&] { return strided_view(p, {3, 4}, {std::int64_t{1} << 58, 1}); }), "spans more than 2^60 bytes"));
  CHECK(contains(refused([&] { return strided_view(p, std::vector<int>(33, 1)); }), "at most 32 dims"));
  CHECK(contains(refused([&] {
                   return strided_view(p, {3, 4}).part({1, 1}, {3, 3});
                 }),
                 "a part of [3,3] at [1,1] is not inside of [3,4]"));
  CHECK(contains(refused([&] { return strided_view(p, {3, 4}).interior({2, 1}); }), "is not inside of"));
  CHECK(contains(refused([&] { return strided_view(p, {3, 4}).interior({1}); }), "is not inside of"));
  CHECK(contains(refused([&] { return strided_view(p, {3, 4}).extent(2); }), "dims count from 0"));
  CHECK(refused([&] { return strided_view(static_cast<double*>(nullptr), {3, 0}); }) == "accepted");
  CHECK(refused([&] { return strided_view(p, {3, 1}, {4, -1}); }) == "accepted");
  CHECK_EQ(strided_view(p, {3, 4}, column_major).text(), "[3,4] with strides [1,3]: copied");
  CHECK_EQ(strided_view(p, {3, 4}).text(), "[3,4] with strides [4,1]: in place");
  CHECK(strided_view(p, {3, 4}, column_major).reversed().is_in_place());
  CHECK(listed(strided_view(p, {4, 5}).part({1, 2}, {2, 3})) == std::vector<double>{8, 9, 10, 13, 14, 15});
  CHECK(listed(strided_view<const double>(strided_view(p, {3, 3}).interior({1, 1}))) == std::vector<double>{5});
}

TEST_CASE("copies between any two strides, of elements of any size") {
  const auto check = [&]<class T>(T, const std::vector<std::int64_t>& shape) {
    const auto rank = shape.size();
    std::vector<std::size_t> order(rank);
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto strides_in = [&](const std::vector<std::size_t>& by, std::int64_t gap) {
      std::vector<std::int64_t> s(rank);
      std::int64_t next = gap;
      for (std::size_t i = rank; i-- > 0; next = next * shape[by[i]] + gap - 1) s[by[i]] = next;
      return std::pair(s, static_cast<std::size_t>(next));
    };
    do {
      auto other = order;
      std::rotate(other.begin(), other.begin() + (rank > 1), other.end());
      for (const std::int64_t gap : {1, 2}) {
        const auto [from, in_size] = strides_in(order, gap);
        const auto [to, out_size] = strides_in(other, 3 - gap);
        std::vector<T> in(in_size + 1), out(out_size + 1), untouched;
        for (std::size_t i = 0; i < in.size(); ++i) {
          const auto bits = static_cast<std::uint64_t>(i * 40503u % 65521 + 1);  // not NaN for any type
          std::memcpy(static_cast<void*>(&in[i]), &bits, std::min(sizeof(T), sizeof bits));
        }
        const auto before = out;
        const strided_view<const T> source(in.data(), shape, from);
        const strided_view<T> target(out.data(), shape, to);
        detail::copy_strided(source.shape(), sizeof(T), in.data(), source.strides(), out.data(), target.strides());
        CHECK(listed(target) == listed(source));
        // nothing else is written: after the target is cleared, the old data remains
        std::vector<T> zeros(static_cast<std::size_t>(source.elems()));
        detail::copy_strided(source.shape(), sizeof(T), zeros.data(), detail::row_major_strides(source.shape()), out.data(),
                             target.strides());
        CHECK(out == before);
      }
    } while (std::next_permutation(order.begin(), order.end()));
  };
  for (const auto& shape :
       {std::vector<std::int64_t>{}, {5}, {1}, {3, 4}, {37, 66}, {1, 9}, {3, 1, 5}, {4, 3, 5}, {3, 2, 1, 4}}) {
    check(double{}, shape);
    check(float{}, shape);
    check(std::int8_t{}, shape);
    check(std::int16_t{}, shape);
    check(std::complex<double>{}, shape);
    check(std::array<char, 12>{}, shape);
  }
  std::vector<std::int64_t> deep(32, 1);
  deep[3] = 2, deep[31] = 3;
  const std::vector<std::complex<double>> x{1, 2, 3, 4, 5, 6};
  std::vector<std::complex<double>> y(6);
  detail::int_list list(deep);
  detail::extents turned(32, 1);
  turned[31] = 2;
  detail::copy_strided(list.items, 16, x.data(), detail::row_major_strides(list.items), y.data(), turned);
  CHECK(y == std::vector<std::complex<double>>{1, 4, 2, 5, 3, 6});
}

TEST_CASE("whole arrays by strides, on every mesh") {
  const auto x = counted(200);
  const strided_view u(x.data(), {7, 4}, {5, 1}), v(x.data() + 60, {7, 4}, column_major);
  array<double> dense_u({7, 4}), dense_v({7, 4});
  const auto list_u = listed(u), list_v = listed(v);
  std::copy(list_u.begin(), list_u.end(), dense_u.begin());
  std::copy(list_v.begin(), list_v.end(), dense_v.begin());
  const auto same = [](const auto& a, const auto& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); };
  const auto by_dense = run<step>(threads{}, dense_u, dense_v);
  const auto &next = std::get<0>(by_dense), &sums = std::get<1>(by_dense);
  const auto check = [&](auto backend) {
    const auto given = run<step>(backend, u, v), mixed = run<step>(backend, dense_u, v);
    CHECK((same(std::get<0>(given), next) && same(std::get<1>(given), sums)));
    CHECK((same(std::get<0>(mixed), next) && same(std::get<1>(mixed), sums)));
    std::vector<double> place(7 * 6, -1), sums_place(14, -1);
    const strided_view to(place.data(), {7, 4}, {6, 1}), sums_to(sums_place.data(), {7}, {2});
    run_into<step>(backend, std::tuple{to, sums_to}, u, dense_v);
    CHECK((same(listed(to), next) && same(listed(sums_to), sums)));
    CHECK(place[4] == -1);
    CHECK(sums_place[1] == -1);
  };
  check(threads{});
  check(simulated{});
  // a value of rank 0, an empty tensor, a stride of 0
  using small = compile<[](auto s, auto e) {
    return std::tuple{s * 2, sum(e)};
  },
                        rows_mesh, input<double, shape<>>, input<double, shape<4, 3>>>;
  const auto [s, e] = run<small>(threads{}, strided_view(x.data(), {}), strided_view(x.data(), {4, 3}, {0, 1}));
  CHECK(s[0] == 2);
  CHECK(e[0] == 4 * (1 + 2 + 3));

  const auto refused = [&](auto&&... arguments) {
    return refusal([&] { static_cast<void>(run<step>(simulated{}, arguments...)); });
  };
  CHECK_EQ(refused(u, u.reversed()),
           "run: input 1 is [7,4] and the view given is [4,7]; its reversed() has the dims in the other order");
  std::vector<double> y(100);
  const strided_view to(y.data(), {7, 4}), sums_to(y.data() + 50, {7});
  const auto refused_into = [&](auto&& results) { return refusal([&] { run_into<step>(simulated{}, results, u, v); }); };
  CHECK(
      contains(refused_into(std::tuple{to, strided_view(y.data() + 27, {7})}), "results 0 and 1 are given memory that overlaps"));
  CHECK(contains(refused_into(std::tuple{to, strided_view(y.data(), {7}, {0})}),
                 "several indices of the view given have the same element"));
  CHECK(contains(refused_into(std::tuple{to, strided_view(y.data(), {8})}), "result 1 is [7] and the view given is [8]"));
  CHECK(refused_into(std::tuple{to, sums_to}) == "accepted");
}

TEST_CASE("whole results over arguments, which other devices may not have cut yet") {
  constexpr std::int64_t n = 96;
  constexpr auto turned = [](auto u) { return transpose(u, {1, 0}); };
  using rows_of_4 = compile<turned, mesh<axis<"x", 4>>, input<double, shape<n, n>, split<"x", _>>>;
  const auto program = dynamic::compile(turned, dynamic::mesh({{"x", 4}}), dynamic::input<double>({n, n}, {"x", ""}));
  const auto numbers = counted(static_cast<std::size_t>(n * n));
  const auto check = [&](std::int64_t from, std::int64_t to, auto run_over) {
    int wrong = 0;
    for (int again = 0; again < 8; ++again) {
      std::vector<double> x(static_cast<std::size_t>(n * (n + 1)));
      std::copy(numbers.begin(), numbers.end(), x.begin() + from);
      run_over(strided_view(x.data() + to, {n, n}), strided_view(x.data() + from, {n, n}));
      for (std::int64_t i = 0; i < n * n; ++i)
        wrong += x[static_cast<std::size_t>(to + i)] != numbers[static_cast<std::size_t>(i % n * n + i / n)];
    }
    CHECK_EQ(wrong, 0);
  };
  const auto by_step = [](const auto& y, const auto& x) { run_into<rows_of_4>(threads{}, y, x); };
  const auto by_pointer = [](const auto& y, const auto& x) { run_into<rows_of_4>(threads{}, y, x.data()); };
  const auto at_run_time = [&](const auto& y, const auto& x) { run_into(program, threads{}, y, x); };
  for (const auto& [from, to] : {std::pair<std::int64_t, std::int64_t>{0, 0}, {0, n / 2}, {n / 2, 0}}) {
    check(from, to, by_step);
    check(from, to, by_pointer);
    check(from, to, at_run_time);
  }
  // without a race: results that must wait, for any strides of an argument; a single row of many has an arbitrary
  // stride
  std::vector<double> x(static_cast<std::size_t>(n * n)), y(x);
  const auto waits = [&](const detail::strided_memory& input) {
    const detail::external_results places(rows_of_4::view, {detail::external_block(input, 8)}, strided_view(y.data(), {n, n}));
    return places.pointers()[0] != y.data();
  };
  CHECK(!waits(detail::dense_memory(x.data(), {n, n})));
  CHECK(waits(detail::dense_memory(y.data(), {n, n})));
  CHECK(waits({y.data() + n * n - 1, {n, n}, {0, 0}}));
  CHECK(waits({y.data() + 5, {n, n}, {0, 1}}));
  CHECK(!waits({x.data() + 5, {n, n}, {0, 1}}));
  using one_row = compile<[](auto u) { return u * 2; }, mesh<axis<"x", 4>>, input<double, shape<1, 8>, split<_, "x">>>;
  std::iota(x.begin(), x.end(), 0.0);
  run_into<one_row>(threads{}, strided_view(x.data(), {1, 8}, {0, 1}), strided_view(x.data() + 3, {1, 8}, {0, 0}));
  CHECK(std::vector<double>(x.begin(), x.begin() + 9) == std::vector<double>{6, 6, 6, 6, 6, 6, 6, 6, 8});
}

TEST_CASE("shards by strides: padded blocks, columns, what a device holds") {
  const auto x = counted(28), z = counted(28);
  array<double> u({7, 4}), v({7, 4});
  std::copy(x.begin(), x.end(), u.begin());
  std::fill(v.begin(), v.end(), 0.5);
  const auto by_dense = run<step>(threads{}, u, v);
  const auto &wanted = std::get<0>(by_dense), &wanted_sums = std::get<1>(by_dense);
  launch(threads{}, 3, [&](auto& comm) {
    const int me = comm.device(0);
    using shard = step::input_shard<0>;
    const auto mine = shard::valid_range(me, along(0));  // 3, 3, 1 rows
    const auto rows = mine.size();
    step s;
    const auto check = [&](strided_view<double> in, strided_view<double> in_v, strided_view<double> out,
                           strided_view<double> sums, std::int64_t copied) {
      for (std::int64_t i = 0; i < rows; ++i)
        for (int j = 0; j < 4; ++j) {
          in.data()[i * in.stride(0) + j * in.stride(1)] = u[(mine.begin + i) * 4 + j];
          in_v.data()[i * in_v.stride(0) + j * in_v.stride(1)] = v[(mine.begin + i) * 4 + j];
        }
      for (int again = 0; again < 2; ++again) s(comm, in, in_v, out, sums);
      CHECK_EQ(s.copied_bytes(), copied * 8);
      bool is_right = true;
      for (std::int64_t i = 0; i < rows; ++i) {
        is_right = is_right && sums.data()[i * sums.stride(0)] == wanted_sums[mine.begin + i];
        for (int j = 0; j < 4; ++j)
          is_right = is_right && out.data()[i * out.stride(0) + j * out.stride(1)] == wanted[(mine.begin + i) * 4 + j];
      }
      CHECK(is_right);
    };
    // dense, with the local extents: in place
    std::vector<double> a(60), b(60), c(60, -1), d(60);
    check({a.data(), {3, 4}}, {b.data(), {3, 4}}, {c.data(), {3, 4}}, {d.data(), {3}}, 0);
    // the interior of blocks with ghost layers; the elements around it do not change
    std::fill(c.begin(), c.end(), -1);
    const strided_view<double> padded(a.data(), {5, 6}), padded_out(c.data(), {5, 6});
    check(padded.interior({1, 1}), {b.data(), {3, 4}, column_major}, padded_out.interior({1, 1}), {d.data(), {3}, {2}},
          12 + 12 + 12 + 3);
    int untouched = 0;
    for (const double value : c) untouched += value == -1;
    CHECK_EQ(untouched, 60 - 12);
    // only the elements of this device
    std::fill(c.begin(), c.end(), -1);
    check({a.data(), {rows, 4}}, {b.data(), {rows, 4}}, {c.data(), {rows, 4}}, {d.data(), {rows}},
          rows < 3 ? 3 * rows * 4 + rows : 0);
    if (rows < 3) CHECK(c[static_cast<std::size_t>(rows) * 4] == -1);
    // a result over an input, regardless of can_alias, if they are copied: the sums read u after the first result
    // is written
    const strided_view<double> block(a.data(), {3, 4}, column_major);
    check(block, {b.data(), {3, 4}}, {c.data(), {3, 4}}, {d.data(), {3}}, 12);
    s(comm, block, strided_view(b.data(), {3, 4}), block, d.data());
    CHECK(a[0] == wanted[mine.begin * 4]);
    CHECK(d[0] == wanted_sums[mine.begin]);
    // containers, pointers and sharded_arrays together with views
    auto shards = make_result<step, 0>(comm);
    std::vector<double> line(3);
    s(comm, padded.interior({1, 1}), b.data(), shards, line);

    if (me != 0) return;
    const auto refused = [&](auto&&... shard_list) { return refusal([&] { s(comm, shard_list...); }); };
    const strided_view<double> rows_view(a.data(), {3, 4}), to(c.data(), {3, 4}, {5, 1}), line_to(d.data(), {3});
    CHECK_EQ(
        refused(rows_view.reversed(), rows_view, to, line_to),
        "step: input 0 is [3,4] on every device, and the view given is [4,3]; its reversed() has the dims in the other order");
    CHECK(contains(refused(rows_view, rows_view, strided_view(c.data(), {3, 4}, {0, 1}), line_to),
                   "step: output 0 is written, and several"));
    CHECK(contains(refused(rows_view, rows_view, to, strided_view(c.data() + 1, {3})),
                   "outputs 0 and 1 are given memory that overlaps"));
    CHECK(contains(refused(rows_view, rows_view, to, c.data() + 1), "outputs 0 and 1 are given memory that overlaps"));
  });
  simulated_communicator all(3);
  step s;
  std::vector<double> a(28);
  CHECK(contains(refusal([&] { s(all, strided_view(a.data(), {3, 4}), a, a, a); }), "the communicator holds 3 devices"));
}

namespace {
template <class T>
struct pair_of {
  T u, v;
};
}  // namespace

TEST_CASE("groups of views") {
  constexpr auto swapped = [](auto p) { return pair_of<value>{p.v * 2, p.u * 1}; };
  using grouped =
      compile<swapped, rows_mesh, record<pair_of, input<double, shape<4, 3>, split<"x", _>>, input<double, shape<4, 3>>>>;
  const auto x = counted(12), z = counted(40);
  std::vector<double> a(12), b(40);
  const pair_of<strided_view<const double>> given{{x.data(), {4, 3}, column_major}, {z.data(), {4, 3}, {9, 2}}};
  const pair_of<strided_view<double>> place{{a.data(), {4, 3}, column_major}, {b.data(), {4, 3}, {9, 2}}};
  std::vector<double> doubled = listed(given.v);
  for (auto& n : doubled) n *= 2;
  const auto y = run<grouped>(threads{}, given);
  CHECK(std::ranges::equal(y.u, doubled));
  CHECK(std::ranges::equal(y.v, listed(given.u)));
  run_into<grouped>(threads{}, place, given);
  CHECK(listed(place.u) == doubled);
  CHECK(listed(place.v) == listed(given.u));
  simulated_communicator comm(3);
  const auto shards = distribute<grouped, 0>(comm, given);
  const auto u = collect(comm, shards.u), v = collect(comm, shards.v);
  CHECK((std::ranges::equal(u, listed(given.u)) && std::ranges::equal(v, listed(given.v))));
  CHECK(contains(refusal([&] { distribute<step, 0>(comm, given.u); }),
                 "distribute: the input is [7,4] and the view given is [4,3]"));
  // shards: one device
  using alone = compile<swapped, mesh<axis<"x", 1>>, record<pair_of, input<double, shape<4, 3>>, input<double, shape<4, 3>>>>;
  simulated_communicator one(1);
  alone s;
  std::fill(a.begin(), a.end(), 0), std::fill(b.begin(), b.end(), 0);
  s(one, given, place);
  CHECK(listed(place.u) == doubled);
  CHECK(listed(place.v) == listed(given.u));
  CHECK_EQ(s.copied_bytes(), 4 * 12 * 8);
  // views and arrays in one group, in a step and in a session
  std::fill(a.begin(), a.end(), 0), std::fill(b.begin(), b.end(), 0);
  s(one, std::tuple{given.u, listed(given.v)}, std::tuple{a.data(), place.v});
  CHECK((a == doubled && listed(place.v) == listed(given.u)));
  CHECK_EQ(s.copied_bytes(), 2 * 12 * 8);
  const auto program = dynamic::compile([](value p, value q) { return std::pair(q * 2, p * 1); }, dynamic::mesh({{"x", 1}}),
                                        dynamic::input<double>({4, 3}), dynamic::input<double>({4, 3}));
  dynamic::session at_run_time(program);
  std::fill(a.begin(), a.end(), 0), std::fill(b.begin(), b.end(), 0);
  at_run_time(one, std::tuple{given.u, listed(given.v)}, std::tuple{a.data(), place.v});
  CHECK((a == doubled && listed(place.v) == listed(given.u)));
  CHECK_EQ(at_run_time.copied_bytes(), 2 * 12 * 8);
  CHECK_EQ(refusal([&] {
             at_run_time(one, given.u, strided_view(static_cast<const float*>(nullptr), {4, 0}), a, b);
           }),
           "step: input 1 is f64 and the view given is of f32");
}

TEST_CASE("programs compiled at run time") {
  const auto x = counted(200);
  const strided_view u(x.data(), {7, 4}, {5, 1}), v(x.data() + 60, {7, 4}, column_major);
  const auto by_type = run<step>(threads{}, u, v);
  const auto &next = std::get<0>(by_type), &sums = std::get<1>(by_type);
  for (const std::int64_t devices : {1, 2, 3, 5, 9}) {
    const auto p = dynamic::compile(twice_and_sum, dynamic::mesh({{"x", devices}}), dynamic::input<double>({7, 4}, {"x", ""}),
                                    dynamic::input<double>({7, 4}, {"", ""}));
    const auto whole = run(p, threads{}, u, v);
    CHECK(std::equal(next.begin(), next.end(), whole[0].data<double>()));
    CHECK(std::equal(sums.begin(), sums.end(), whole[1].data<double>()));
    std::vector<double> y(7 * 6, -1), s(7);
    const strided_view to(y.data(), {7, 4}, {6, 1});
    run_into(p, simulated{}, std::tuple{to, strided_view(s)}, u, v);
    CHECK(std::ranges::equal(listed(to), next));
    CHECK(std::ranges::equal(s, sums));
    // shards with only the elements of each device, all in one array: device d has rows of the array, with gaps
    std::fill(y.begin(), y.end(), -1);
    std::vector<std::vector<double>> parts(static_cast<std::size_t>(devices));
    launch(threads{}, static_cast<int>(devices), [&](auto& comm) {
      const int me = comm.device(0);
      const auto rows = p.input(0).valid_range(me, along(0));
      const auto all = p.input(1).valid_range(me, along(0));
      auto& line = parts[static_cast<std::size_t>(me)];
      line.resize(static_cast<std::size_t>(p.output(1).local_elems()));
      dynamic::session session(p);
      for (int again = 0; again < 2; ++again)
        session(comm, u.part({rows.begin, 0}, {rows.size(), 4}), v.part({all.begin, 0}, {all.size(), 4}),
                to.part({rows.begin, 0}, {rows.size(), 4}), line);
      const bool is_one_row = p.input(0).local_shape()[0] == 1;  // a single row has no gaps
      CHECK_EQ(session.copied_bytes(), (is_one_row ? all.size() : 2 * rows.size() + all.size()) * 4 * 8);
      CHECK(std::equal(line.begin(), line.begin() + rows.size(), sums.begin() + rows.begin));
    });
    CHECK(std::ranges::equal(listed(to), next));
    CHECK(y[4] == -1);
  }
  const auto p =
      dynamic::compile(twice_and_sum, dynamic::mesh({{"x", 1}}), dynamic::input<double>({7, 4}), dynamic::input<double>({7, 4}));
  dynamic::session session(p);
  simulated_communicator comm(1), two(2);
  std::vector<double> y(28), s(7);
  std::vector<double> longer(200);
  const std::vector<float> floats(28);
  const auto refused = [&](auto&... shards) { return refusal([&] { session(comm, shards...); }); };
  CHECK(contains(refused(u, v, y), "the program has 2 inputs and 2 outputs and the call gives 3 tensors"));
  CHECK(contains(refused(u, v, y, s, s, s), "the call gives 6 tensors"));
  CHECK(contains(
      refused(u, floats, y, s),
      "step: input 1 is f64[7,4], whose shards are f64[7,4] with 28 elements, and the buffer given is f32 with 28 elements"));
  CHECK(contains(
      refused(u, v, longer, s),
      "step: output 0 is f64[7,4], whose shards are f64[7,4] with 28 elements, and the buffer given is f64 with 200 elements"));
  const std::vector<double> constant(28);
  CHECK(contains(refused(u, v, constant, s), "step: output 0 is given a const array"));
  CHECK(contains(refused(u, y, s, y), "step: output 0 is f64[7,4]"));
  CHECK(contains(refusal([&] { session(two, u, v, y, s); }), "the communicator holds 2 devices"));
  CHECK(contains(refusal([&] { static_cast<void>(run(p, serial{}, u, u.reversed())); }),
                 "run: input 1 is [7,4] and the view given is [4,7]"));
  CHECK(refused(u, v, y, s) == "accepted");
  CHECK(std::ranges::equal(y, next));

  // sharded_arrays together with views
  const auto shards = dynamic::distribute(comm, p, 1, listed(v));
  auto kept = dynamic::make_result<double>(comm, p, 0);
  sharded_array<double> empty;
  const auto& constant_shards = kept;
  CHECK(refused(u, shards, kept, s) == "accepted");
  CHECK(std::ranges::equal(kept.shard(), next));
  CHECK(contains(refused(u, empty, kept, s), "step: input 1 is given an empty sharded_array"));
  CHECK(contains(refused(u, shards, constant_shards, s), "step: output 0 is given a const array"));
  CHECK(contains(refused(u, shards, shards, s), "step: output 0 is given a const array"));
  CHECK(contains(refused(u, shards, kept, kept), "step: output 1 is f64[7] and the sharded_array given is f64[7,4]"));
}

TEST_CASE("a second caller is refused before it touches the copies of the first one") {
  dynamic::session* running = nullptr;
  std::string said;
  std::vector<double> x(8, 1.0), y(8, -1.0), other(8, -1.0);
  const strided_view from(x.data(), {4}, {2}), to(y.data(), {4}, {2}), elsewhere(other.data(), {4}, {2});
  const auto again = [&](double element) {
    simulated_communicator comm(1);
    if (running != nullptr) said = refusal([&] { (*running)(comm, from, elsewhere); });
    return element + 1;
  };
  const auto program =
      dynamic::compile([&](value u) { return map(again, u); }, dynamic::mesh({{"x", 1}}), dynamic::input<double>({4}));
  dynamic::session s(program);
  running = &s;
  simulated_communicator comm(1);
  s(comm, from, to);
  CHECK(contains(said, "this object is already running"));
  CHECK(y == std::vector<double>{2, -1, 2, -1, 2, -1, 2, -1});
  CHECK(other == std::vector<double>(8, -1.0));
  CHECK_EQ(s.copied_bytes(), 2 * 4 * 8);
}

TEST_CASE("results that interleave") {
  // real and imaginary parts, even and odd rows: the same strides, and no common element
  std::vector<double> x(64);
  const auto memory = [&](std::int64_t from, const detail::extents& shape, const detail::extents& strides) {
    return detail::strided_memory{x.data() + from, shape, strides};
  };
  const auto shared = [](const auto& a, const auto& b) {
    return detail::shared_elements::any(a, 8, b, 8) && detail::shared_elements::any(b, 8, a, 8);
  };
  CHECK(!shared(memory(0, {3, 4}, {8, 2}), memory(1, {3, 4}, {8, 2})));
  CHECK(!shared(memory(0, {3, 4}, {8, 1}), memory(4, {3, 4}, {8, 1})));
  CHECK(shared(memory(0, {3, 4}, {8, 1}), memory(3, {3, 4}, {8, 1})));
  CHECK(shared(memory(0, {3, 4}, {8, 1}), memory(19, {3, 4}, {8, 1})));
  CHECK(!shared(memory(0, {3, 4}, {8, 1}), memory(20, {3, 4}, {8, 1})));
  CHECK(shared(memory(0, {3, 4}, {8, 1}), memory(1, {3, 4}, {7, 1})));  // unknown
  CHECK(shared(memory(0, {1, 3}, {0, 1}), memory(0, {4, 3}, {0, 1})));  // strides of 0: no division by them
  // compared with a test of every pair
  for (std::int64_t from = 0; from < 40; ++from)
    for (const auto& strides : {detail::extents{8, 1}, {1, 8}, {9, 2}, {12, 3}, {2, 7}})
      for (const auto& other : {detail::extents{3, 4}, {2, 1}, {1, 5}}) {
        const auto a = memory(0, {3, 4}, strides), b = memory(from, other, strides);
        if (!detail::has_own_elements(a) || !detail::has_own_elements(b)) continue;
        bool meets = false;
        for (int i = 0; i < 12; ++i)
          for (int k = 0; k < other[0] * other[1]; ++k)
            meets =
                meets || i / 4 * strides[0] + i % 4 * strides[1] == from + k / other[1] * strides[0] + k % other[1] * strides[1];
        CHECK_EQ(shared(a, b), meets);
      }
  CHECK(!detail::has_own_elements(memory(0, {3, 4}, {3, 1})));
  CHECK(detail::has_own_elements(memory(0, {3, 4}, {1, 3})));
}
