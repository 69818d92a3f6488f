// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: dynamic
// alone: yes
// With the same number of plans, the compiler finds the annotations that a search at run time finds.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/report/network.hpp>
#include <gspmd/search/find_annotations.hpp>
#include <gspmd/search/search_annotations.hpp>
#include <gspmd/transform/update.hpp>

namespace {

using namespace gspmd;
using lies_so = std::vector<std::string>;
using line_of_4 = mesh<axis<"x", 4>>;

constexpr auto product = [](auto x, auto y) { return einsum<"ab,bc->ac">(x, y); };
constexpr auto two_layers = [](auto x, auto w1, auto w2) {
  const auto y = einsum<"bf,fd->bd">(relu(einsum<"bd,df->bf">(x, w1)), w2);
  return update(x, x - 0.1 * y);
};
constexpr auto jacobi = [](auto u) {
  return update(u, 0.25 * (shift(u, 1, along(0)) + shift(u, -1, along(0)) + shift(u, 1, along(1)) + shift(u, -1, along(1))));
};

template <class Input>
struct annotation_of {
  static lies_so dims() { return {}; }
};
template <class T, class Dims, dim_spec... D>
struct annotation_of<input<T, Dims, split<D...>, partial<"">>> {
  static lies_so dims() { return {std::string(dim_spec(D).view())...}; }
};

/// Checks that `Found` equals the result of a search at run time with the same number of plans.
template <class Found, class Program>
void check_same(const Program& program, const dynamic::annotation_search& asked) {
  const auto found = dynamic::find_annotations(program, asked);
  CHECK_MESSAGE(found.plans >= static_cast<int>(Found::plans), Found::text);
  std::size_t inputs = 0;
  for (const auto& i : found.inputs) inputs += i.inputs.size();
  CHECK(inputs == Found::step::input_count);
  [&]<std::size_t... K>(std::index_sequence<K...>) {
    const lies_so annotations[] = {annotation_of<typename Found::template input<K>>::dims()...};
    for (const auto& i : found.inputs)
      for (const int k : i.inputs)
        CHECK_MESSAGE(annotations[k] == (i.is_annotated ? i.sharding : lies_so{}), found.text() << Found::text);
  }(std::make_index_sequence<Found::step::input_count>{});
  double best = 0;  // without annotations of values
  for (const auto& c : found.compared)
    if (c.name == "found" && best == 0) best = c.seconds;
  CHECK(estimate<typename Found::step>(default_network).total() == doctest::Approx(best));
  CHECK(found.compared.front().memory > 0);
}

}  // namespace

TEST_CASE("search_annotations: a product") {
  using matrix = input<float, shape<512, 512>>;
  using found = search_annotations<4, product, line_of_4, matrix, matrix>;
  static_assert(!found::is_complete && found::plans >= 4 && found::plans <= 5);  // the last plan annotates the result explicitly
  check_same<found>(
      [](const dynamic::mesh& m) {
        dynamic::builder b(m);
        const value x = b.input(dynamic::input<float>({512, 512})), y = b.input(dynamic::input<float>({512, 512}));
        b.output(product(x, y));
        return b;
      },
      {.meshes = {dynamic::mesh({{"x", 4}})}, .most_plans = 5});
}

TEST_CASE("search_annotations: a stencil, and what its best plan is compared with") {
  using found = search_annotations<4, jacobi, mesh<axis<"x", 2>, axis<"y", 2>>, input<float, shape<512, 512>>>;
  check_same<found>(
      [](const dynamic::mesh& m) {
        dynamic::builder b(m);
        b.output(jacobi(b.input(dynamic::input<float>({512, 512}))));
        return b;
      },
      {.meshes = {dynamic::mesh({{"x", 2}, {"y", 2}})}, .most_plans = 5});
  static_assert(found::text.find("all replicated") != std::string_view::npos);
  static_assert(found::step::traffic.bytes > 0);
}

TEST_CASE("search_annotations: annotations that are there stay, and the memory of a device is kept") {
  constexpr std::int64_t bytes = 1 * MiB;
  using found =
      search_annotations<4, two_layers, line_of_4, with<options{.memory = bytes}>, input<float, shape<256, 256>, split<"x", _>>,
                         input<float, shape<256, 512>>, input<float, shape<512, 256>>>;
  static_assert(std::is_same_v<found::input<0>, input<float, shape<256, 256>, split<"x", _>>>);
  static_assert(found::step::peak_bytes_per_device <= bytes);
  const auto program = [](const dynamic::mesh& m) {
    dynamic::builder b(m);
    const value x = b.input(dynamic::input<float>({256, 256}, {"x", ""}));
    const value w1 = b.input(dynamic::input<float>({256, 512})), w2 = b.input(dynamic::input<float>({512, 256}));
    b.output(two_layers(x, w1, w2));
    return b;
  };
  const auto at_run_time =
      dynamic::find_annotations(program, {.meshes = {dynamic::mesh({{"x", 4}})}, .memory_per_device = bytes, .most_plans = 5});
  CHECK(annotation_of<found::input<1>>::dims() == at_run_time.inputs[0].sharding);
}

TEST_CASE("search_annotations: a small program is searched to its end") {
  using found = search_annotations<8, [](auto x) { return x * x; }, line_of_4, input<double, shape<64>>>;
  static_assert(found::is_complete && found::plans == 3);
  static_assert(found::text.find("no other annotation of one input") != std::string_view::npos);
}
