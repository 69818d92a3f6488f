// SPDX-License-Identifier: Apache-2.0
// group: dynamic
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <complex>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/dynamic/groups.hpp"
#include "gspmd/dynamic/session.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/layouts/to_step.hpp"
#include "gspmd/run/collect_on.hpp"
#include "gspmd/transform/update.hpp"
#include "support/error_of.hpp"
#include "support/layouts.hpp"

// Programs made at run time on shards with types.

namespace {

using namespace gspmd;
using caught::refusal;

template <class T>
struct layer {
  T w, b;
};

template <class T>
array<T> counting(std::vector<std::int64_t> shape, int first) {
  array<T> a(detail::extents_of(shape));
  for (auto& x : a) x = static_cast<T>(first++ % 13 - 6);
  return a;
}
template <class T>
bool are_equal(const array<T>& a, const array<T>& b) {
  return a.shape() == b.shape() && std::equal(a.begin(), a.end(), b.begin());
}

/// x through `depth` layers, whose weights are a little smaller afterwards, and a sum.
dynamic::program stack(const dynamic::mesh& m, std::int64_t rows, std::int64_t width, int depth,
                       const std::vector<std::string>& w_split) {
  dynamic::builder b(m);
  const value x = b.input(dynamic::input<float>({rows, width}, {"data", ""}));
  const std::vector<layer<dynamic::input_spec>> given(
      static_cast<std::size_t>(depth),
      {dynamic::input<float>({width, width}, w_split), dynamic::input<float>({width}, {w_split[1]})});
  auto w = dynamic::inputs(b, given);
  value h = x;
  for (const auto& l : w) h = relu(einsum("bi,io->bo", h, l.w) + l.b);
  b.output(sum(h));
  b.output(b.reshard(h, {"data", ""}));
  dynamic::outputs(b, transform_leaves([](value v) { return update(v, 0.5 * v); }, w));
  return b.compile();
}

template <class Backend>
void check_stack(const Backend& backend, const dynamic::mesh& m, std::int64_t rows, std::int64_t width) {
  const auto p = stack(m, rows, width, 2, {"", "model"});
  const auto x = counting<float>({rows, width}, 3);
  const std::vector<layer<array<float>>> w{{counting<float>({width, width}, 1), counting<float>({width}, 2)},
                                           {counting<float>({width, width}, 5), counting<float>({width}, 4)}};
  const auto once = p.run(simulated{}, x, w);
  const auto devices = static_cast<int>(m.device_count());
  std::vector<int> wrong(static_cast<std::size_t>(devices), 0);
  launch(backend, devices, [&](auto& comm) {
    auto here = distribute(comm, p, 0, x);
    auto weights = distribute(comm, p, 1, w);
    auto total = make_result<float>(comm, p, 0);
    auto y = make_result<float>(comm, p, 1);
    auto next = make_result(comm, p, 2, weights);
    dynamic::session s(p);
    s(comm, here, weights, total, y, next);
    auto& bad = wrong[static_cast<std::size_t>(comm.device(0))];
    bad += *collect(comm, total).data() != once[0].data<float>()[0];
    const auto whole = collect(comm, y);
    bad += !std::equal(whole.begin(), whole.end(), once[1].data<float>());
    for (int t = 0; t < 3; ++t) {  // over themselves, where the program says so
      if (p.can_alias(2, 1) && p.can_alias(3, 2) && p.can_alias(4, 3) && p.can_alias(5, 4)) {
        s(comm, here, next, total, y, next);
      } else {
        s(comm, here, next, total, y, weights);
        std::swap(next, weights);
      }
    }
    const int root = devices - 1;
    const auto at_root = collect_on(comm, root, next);
    bool is_root = false;
    for (int d = 0; d < comm.local_count(); ++d) is_root = is_root || comm.device(d) == root;
    bad += at_root.size() != 2;
    for (std::size_t l = 0; l < 2; ++l) {
      if (!is_root) {
        bad += at_root[l].w.size() != 0 || at_root[l].b.size() != 0;
        continue;
      }
      for (std::int64_t i = 0; i < width * width; ++i) bad += at_root[l].w[i] != w[l].w[i] / 16;
      for (std::int64_t i = 0; i < width; ++i) bad += at_root[l].b[i] != w[l].b[i] / 16;
    }
  });
  for (const int bad : wrong) CHECK_EQ(bad, 0);
}

}  // namespace

TEST_CASE("distribute, steps and collect on any mesh, of groups whose depth is known at run time") {
  for (const auto& [data, model] : {std::pair{1, 1}, {2, 1}, {1, 3}, {2, 2}, {5, 1}}) {
    const dynamic::mesh m({{"data", data}, {"model", model}});
    for (const auto& [rows, width] : {std::pair{7, 5}, {4, 4}, {1, 1}, {2, 3}}) check_stack(simulated{}, m, rows, width);
  }
  check_stack(threads{}, dynamic::mesh({{"data", 2}, {"model", 2}}), 7, 5);
  check_stack(threads{}, dynamic::mesh({{"data", 3}, {"model", 1}}), 2, 3);
}

TEST_CASE("a callable takes groups of inputs that are known at run time") {
  const auto forward = [](value x, const std::vector<layer<value>>& w, std::pair<value, value> last) {
    value h = x;
    for (const auto& l : w) h = relu(einsum("bi,io->bo", h, l.w) + l.b);
    return h * last.first + last.second;
  };
  const dynamic::mesh m({{"x", 2}});
  const std::vector<layer<dynamic::input_spec>> w(3, {dynamic::input<float>({4, 4}), dynamic::input<float>({4}, {"x"})});
  const auto p = dynamic::compile(forward, m, dynamic::input<float>({3, 4}, {"x", ""}), w,
                                  std::pair(dynamic::input<float>({}), dynamic::input<float>({})));
  CHECK(p.input_count() == 9);
  CHECK(p.input(8).rank() == 0);
  CHECK(p.input(4).sharding() == std::vector<std::string>{"x"});
}

TEST_CASE("a tensor of any layout is gathered to any device") {
  for (const auto& sizes : {std::vector<int>{3}, std::vector<int>{2, 2}, std::vector<int>{2, 1, 3}}) {
    const auto mesh = layouts::mesh_of(sizes);
    const auto devices = static_cast<int>(mesh.device_count());
    for (const auto& shape : {std::vector<std::int64_t>{}, {7}, {4, 3}, {5, 0}, {2, 3, 2}}) {
      const auto whole = counting<double>(shape, 1);
      for (const auto& s : layouts::all_shardings(mesh, static_cast<int>(shape.size()))) {
        detail::planned_value v;
        v.type = dtype::f64;
        v.global = whole.shape();
        v.layout = s;
        v.local = detail::local_extents(mesh, v.global, s);
        simulated_communicator comm(devices);
        sharded_array<double> shards(comm, mesh, v);
        for (int d = 0; d < devices; ++d) {
          std::fill_n(shards.data(d), shards.local_elems(), -99.0);  // padding must not come
          detail::cut_shard(mesh, v, mesh.coordinates_of(d), whole.data(), shards.data(d));
        }
        for (int to = 0; to < devices; ++to) CHECK(are_equal(collect_on(comm, to, shards), whole));
      }
    }
  }
}

TEST_CASE("on threads only the device asked gets the array, and compiled steps' shards go the same way") {
  constexpr auto doubled = [](value x) { return x * 2.0; };
  using step = compile<doubled, mesh<axis<"x", 2>, axis<"y", 2>>, input<double, shape<7, 3>, split<"y", _>>>;
  const auto x = counting<double>({7, 3}, 0);
  std::array<std::int64_t, 4> sizes{};
  std::array<bool, 4> is_right{};
  launch(threads{}, 4, [&](auto& comm) {
    auto here = distribute<step, 0>(comm, x);
    auto y = make_result<step, 0>(comm);
    step{}(comm, here, y);
    const auto whole = collect_on(comm, 2, y);
    const auto me = static_cast<std::size_t>(comm.device(0));
    sizes[me] = whole.size();
    is_right[me] = me != 2 || (whole[20] == 2 * x[20] && whole[8] == 2 * x[8] && whole[0] == 2 * x[0]);
  });
  CHECK(sizes == std::array<std::int64_t, 4>{0, 0, 21, 0});
  CHECK(is_right == std::array{true, true, true, true});
}

TEST_CASE("arrays outlive the program they were made for") {
  simulated_communicator comm(2);
  std::optional<sharded_array<float>> x, y;
  const auto whole = counting<float>({5}, 1);
  {
    auto p = std::make_unique<dynamic::program>(
        dynamic::compile([](value v) { return v + 1.0; }, dynamic::mesh({{"x", 2}}), dynamic::input<float>({5}, {"x"})));
    x = distribute(comm, *p, 0, whole);
    y = make_result<float>(comm, *p, 0);
    dynamic::session s(*p);
    p.reset();
    s(comm, *x, *y);
  }
  CHECK(y->shape() == whole.shape());
  CHECK(are_equal(collect(comm, *x), whole));
  CHECK(collect(comm, *y)[4] == whole[4] + 1);
}

TEST_CASE("buffers, pointers, C arrays and shards of compiled steps") {
  const auto p = dynamic::compile(
      [](value a, value b) {
        return std::tuple{a + b, sum(a)};
      },
      dynamic::mesh({{"x", 2}}), dynamic::input<double>({3, 2}, {"x", ""}), dynamic::input<double>({3, 2}, {"x", ""}));
  constexpr auto same = [](value a) { return a + 0.0; };
  using step = compile<same, mesh<axis<"y", 2>>, input<double, shape<3, 2>, split<"y", _>>>;
  std::array<double, 2> sums{};
  std::array<std::array<double, 4>, 2> results{};
  launch(threads{}, 2, [&](auto& comm) {
    const auto me = static_cast<std::size_t>(comm.device(0));
    const std::vector<double> a(4, me == 0 ? 1.0 : 2.0);
    double b[2][2] = {{1, 2}, {3, 4}};
    dynamic::session s(p);
    s(comm, a, std::as_const(b), results[me], &sums[me]);
    s(comm, std::span(a), step::input_shard<0>(&b[0][0]), results[me].data(), std::span(&sums[me], 1));
    const auto of_step = distribute<step, 0>(comm, counting<double>({3, 2}, 6));  // of a mesh with another name for its axis
    auto y = make_result<double>(comm, p, 0);
    s(comm, of_step, of_step, y, &sums[me]);
    auto back = make_result<step, 0>(comm);
    step{}(comm, y, back);  // and back to a compiled step
    if (back.data()[0] != 2 * of_step.data()[0]) throw error("another number came back");
  });
  CHECK(results[0] == std::array<double, 4>{2, 3, 4, 5});
  CHECK(results[1][1] == 4);
  CHECK(sums == std::array{15.0, 15.0});
}

TEST_CASE("one dim is as good as the shape, and another shape is refused") {
  const auto same = [](value v) { return v + 0.0; };
  const auto p = dynamic::compile(same, dynamic::mesh({{"x", 1}}), dynamic::input<double>({6, 4}));
  simulated_communicator comm(1);
  double flat[24], rows[6][4], turned[4][6] = {};
  for (int i = 0; i < 24; ++i) flat[i] = rows[i / 4][i % 4] = i;
  const std::vector<double> list(std::begin(flat), std::end(flat));
  const array<double> one_dim = counting<double>({24}, 0), across({4, 6});
  dynamic::session s(p);
  const auto sent_back = [&](const auto& given) {
    auto x = distribute(comm, p, 0, given);
    array<double> y({6, 4});
    s(comm, x, y);
    double again[24];
    s(comm, given, again);
    return std::equal(y.begin(), y.end(), again) && y[23] == again[23] ? y[23] : -99;
  };
  CHECK_EQ(sent_back(flat), 23);
  CHECK_EQ(sent_back(rows), 23);
  CHECK_EQ(sent_back(list), 23);
  CHECK_EQ(sent_back(std::span<const double>(list)), 23);
  CHECK_EQ(sent_back(one_dim), one_dim[23]);

  const std::string in_scatter = "distribute: input 0 is f64[6,4] and the array given is ";
  CHECK_EQ(refusal([&] { distribute(comm, p, 0, turned); }), in_scatter + "f64[4,6]; dim 0 differs");
  CHECK_EQ(refusal([&] { distribute(comm, p, 0, across); }), in_scatter + "f64[4,6]; dim 0 differs");
  const double few[23] = {};
  CHECK_EQ(refusal([&] { distribute(comm, p, 0, few); }), in_scatter + "f64[23]");

  const auto in_step = [](const std::string& leaf, const std::string& given) {
    return "step: " + leaf + " is f64[6,4], whose shards are f64[6,4] with 24 elements, and the buffer given is " + given +
           "; every device allocates the local extents, padding included";
  };
  CHECK_EQ(refusal([&] { s(comm, turned, flat); }), in_step("input 0", "f64[4,6]"));
  CHECK_EQ(refusal([&] { s(comm, std::as_const(turned), flat); }), in_step("input 0", "f64[4,6]"));
  CHECK_EQ(refusal([&] { s(comm, across, flat); }), in_step("input 0", "f64[4,6]"));
  CHECK_EQ(refusal([&] { s(comm, rows, turned); }), in_step("output 0", "f64[4,6]"));
  CHECK_EQ(refusal([&] { s(comm, few, flat); }), in_step("input 0", "f64[23]"));
}

TEST_CASE("shards go from program to program, from layouts of one's own too") {
  constexpr auto same = [](value v) { return v + 0.0; };
  const auto rows = dynamic::compile(same, dynamic::mesh({{"x", 4}}), dynamic::input<float>({5, 6}, {"x", ""}));
  const auto both = dynamic::compile(same, dynamic::mesh({{"y", 2}, {"z", 2}}), dynamic::input<float>({5, 6}, {"z", "y"}));
  const auto twice = dynamic::compile(same, dynamic::mesh({{"x", 4}}), dynamic::input<double>({5, 6}, {"x", ""}));
  const auto whole = counting<float>({5, 6}, 1);
  simulated_communicator comm(4);
  const auto x = distribute(comm, rows, 0, whole);
  const auto y = to_step(comm, both, 0, x);
  CHECK(y.local_shape() == shape<3, 3>::value);
  CHECK(are_equal(collect(comm, y), whole));
  const placed_layout cyclic(x.mesh(), whole.shape(), x.planned().layout, block_cyclic<1>{});
  CHECK(are_equal(collect(comm, to_step(comm, both, 0, distribute(comm, cyclic, whole))), whole));
  CHECK_EQ(refusal([&] { to_step(comm, twice, 0, x); }), "to_step: input 0 is f64[5,6] and the array given is f32[5,6]");
  CHECK_EQ(refusal([&] { to_step(comm, twice, 1, x); }),
           "to_step: input 1 does not exist; the program has 1 input, which count from 0");
}

TEST_CASE("element types at the edge: bool, integers, complex numbers") {
  const auto p = dynamic::compile(
      [](value flags, value n, value z) {
        return std::tuple{bitwise_not(flags), n + n, z * z};
      },
      dynamic::mesh({{"x", 2}}), dynamic::input<bool>({3}, {"x"}), dynamic::input<std::int64_t>({3}, {"x"}),
      dynamic::input<std::complex<float>>({3}, {"x"}));
  simulated_communicator comm(2);
  const bool flags[3] = {true, false, true};
  const std::vector<std::int64_t> n{1, 2, 3};
  const std::vector<std::complex<float>> z{{0, 1}, {2, 0}, {1, 1}};
  auto f = distribute(comm, p, 0, flags);
  auto i = distribute(comm, p, 1, n);
  auto c = distribute(comm, p, 2, z);
  auto [not_f, two_i, c_c] = make_result(comm, p, 0, std::tie(f, i, c));
  dynamic::session{p}(comm, f, i, c, not_f, two_i, c_c);
  CHECK(collect_on(comm, 1, not_f)[1]);
  CHECK(collect_on(comm, 0, two_i)[2] == 6);
  CHECK(collect_on(comm, 0, c_c)[0] == std::complex<float>(-1, 0));
}

TEST_CASE("what is refused, by name, type and shape") {
  const dynamic::mesh m({{"x", 2}, {"y", 1}});
  dynamic::builder b(m);
  const value u = b.input(dynamic::input<float>({5, 4}, {"x", ""}));
  const value w = b.input(dynamic::input<double>({4}, {""}));
  b.name(w, "w1");
  b.output(u + u);
  b.output(sum(w));
  const auto p = b.compile();
  const auto turned = dynamic::compile([](value v) { return v + v; }, m, dynamic::input<float>({5, 4}, {"", "x"}));
  const auto longer = dynamic::compile([](value v) { return v + v; }, m, dynamic::input<float>({6, 4}, {"x", ""}));
  const auto on_line =
      dynamic::compile([](value v) { return v + v; }, dynamic::mesh({{"z", 2}}), dynamic::input<float>({5, 4}, {"", "z"}));
  const auto partial = dynamic::compile([](value v) { return v + v; }, m,
                                        dynamic::input_spec{dtype::f32, {5, 4}, {"", ""}, true, "x", monoid::add});
  simulated_communicator comm(2), three(3), one(1);
  const array<float> a({5, 4});
  const array<double> v({4});

  CHECK_EQ(refusal([&] {
             distribute(comm, p, 0, array<float>({4, 5}));
           }),
           "distribute: input 0 is f32[5,4] and the array given is f32[4,5]; dim 0 differs");
  CHECK_EQ(refusal([&] { distribute(comm, p, 1, std::vector<float>(4)); }),
           "distribute: input 1 (w1) is f64[4] and the array given is f32 with 4 elements");
  CHECK_EQ(refusal([&] { distribute(comm, p, 0, std::pair(a, array<double>({1}))); }),
           "distribute: input 1 (w1) is f64[4] and the array given is f64[1]");
  CHECK_EQ(refusal([&] { distribute(comm, p, 0, std::vector<float>(19)); }),
           "distribute: input 0 is f32[5,4] and the array given is f32 with 19 elements");
  CHECK_EQ(refusal([&] { distribute(comm, p, 1, static_cast<const float*>(nullptr)); }),
           "distribute: input 1 (w1) is f64[4] and the array given is f32");
  CHECK_EQ(refusal([&] { distribute(comm, p, 1, static_cast<const double*>(nullptr)); }),
           "distribute: input 1 (w1) is given no memory: the pointer is null");
  CHECK_EQ(refusal([&] { distribute(comm, p, 2, v); }),
           "distribute: input 2 does not exist; the program has 2 inputs, which count from 0");
  CHECK_EQ(refusal([&] {
             distribute(comm, p, 1, std::vector{v, v, v});
           }),
           "distribute: input 1 and the 2 after it do not exist; the program has 2 inputs, which count from 0");
  CHECK_EQ(refusal([&] { make_result<double>(comm, p, 0); }), "make_result: output 0 is f32[5,4] and cannot have shards of f64");
  CHECK_EQ(refusal([&] { make_result<float>(comm, p, 7); }),
           "make_result: output 7 does not exist; the program has 2 outputs, which count from 0");
  CHECK(refusal([&] { make_result<float>(three, p, 0); }).find("the mesh has 2 devices but the communicator has 3 ranks") == 0);

  auto x = distribute(comm, p, 0, a);
  auto k = distribute(comm, p, 1, v);
  auto y = make_result(comm, p, 0, x);
  auto t = make_result(comm, p, 1, k);
  dynamic::session s(p);
  CHECK_EQ(refusal([&] { s(comm, x, k, y); }),
           "step: the program has 2 inputs and 2 outputs and the call gives 3 tensors; give the shards of the inputs, then those "
           "of the outputs");
  CHECK_EQ(refusal([&] { s(comm, k, x, y, t); }), "step: input 0 is f32[5,4] and the sharded_array given is f64[4]");
  CHECK_EQ(refusal([&] { s(comm, x, x, y, t); }), "step: input 1 (w1) is f64[4] and the sharded_array given is f32[5,4]");
  CHECK_EQ(refusal([&] {
             s(comm, distribute(comm, longer, 0, array<float>({6, 4})), k, y, t);
           }),
           "step: input 0 is f32[5,4] and the sharded_array given is f32[6,4]; dim 0 differs");
  CHECK_EQ(refusal([&] { s(comm, distribute(comm, turned, 0, a), k, y, t); }),
           "step: input 0 is f32[5,4] with the sharding [x, _], and the sharded_array has the sharding [_, x]; give both the "
           "same annotation, or convert it with to_step");
  CHECK_EQ(refusal([&] { s(comm, distribute(comm, on_line, 0, a), k, y, t); }),
           "step: input 0 is f32[5,4] with the sharding [x, _], and the sharded_array is on another mesh of 2 devices; give both "
           "the same annotation, or convert it with to_step");
  CHECK_EQ(
      refusal([&] { s(comm, x, sharded_array<double>(), y, t); }),
      "step: input 1 (w1) is given an empty sharded_array, never filled or moved from; make it with distribute or make_result");
  CHECK_EQ(refusal([&] { s(comm, x, k, std::as_const(y), t); }),
           "step: output 0 is given a const array, and outputs are written; give one that is not const");
  CHECK_EQ(refusal([&] { s(comm, x, std::vector<double>(4), y, t); }),
           "step: the communicator holds 2 devices; give a sharded_array for every tensor");
  CHECK_EQ(refusal([&] { collect_on(comm, 2, x); }),
           "collect_on: there is no device 2; the communicator has 2 devices, which count from 0");
  CHECK_EQ(refusal([&] { collect_on(comm, 0, distribute(comm, partial, 0, a)); }),
           "collect_on: the array is partial, so devices hold partial values of it; reshard it in a program first");
  const auto in_buffers = [&](auto& mine) {
    std::vector<float> rows(12), few(11);
    std::vector<double> vector(4), number(1);
    dynamic::session own(p);
    own(mine, rows, vector, rows, number);
    own(mine, few, vector, rows, number);
  };
  CHECK_EQ(refusal([&] { launch(threads{}, 2, in_buffers); }),
           "step: input 0 is f32[5,4], whose shards are f32[3,4] with 12 elements, and the buffer given is f32 with 11 elements; "
           "every device allocates the local extents, padding included");
  CHECK_EQ(refusal([&] {
             launch(threads{}, 2, [&](auto& mine) {
               std::vector<double> rows(12);
               double number = 0;
               dynamic::session{p}(mine, rows, rows.data(), rows, &number);
             });
           }),
           "step: input 0 is f32[5,4], whose shards are f32[3,4] with 12 elements, and the buffer given is f64 with 12 elements; "
           "every device allocates the local extents, padding included");
}
