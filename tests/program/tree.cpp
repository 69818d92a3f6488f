// SPDX-License-Identifier: Apache-2.0
// group: map
#include <array>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/program/input_arrays.hpp"

using namespace gspmd;

namespace {

template <class T>
struct layer {
  T w, b;
};
template <class T>
struct network {
  std::array<layer<T>, 2> layers;
  T scale;
};
struct fixed {
  value w, b;
};

// ---- members ----

template <class T>
struct names_of_containers {
  T data, begin, leaves, element;
};
struct nothing {};
template <class T>
struct tied {
  T first;
  nothing head;
  T last;
};
class no_default {
 public:
  explicit no_default(int);

 private:
  int x_;
};
struct holds_no_default {
  value first;
  no_default second, third;
};
struct borrowed {
  const array<float>& x;
  array<float> y;
};
template <class T>
struct eight {
  T a, b, c, d, e, f, g, h;
};
template <class T>
struct largest {
  eight<T> a;
  T b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6,
      e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0, h1, h2, h3, h4, h5, h6, h7, i0, i1, i2, i3, i4, i5,
      i6;
};
static_assert(detail::part_count<layer<value>>() == 2 && detail::leaf_count<network<array<float>>>() == 5);
static_assert(detail::leaf_count<names_of_containers<array<float>>>() == 4);
static_assert(detail::leaf_count<tied<value>>() == 2 && detail::part_count<tied<value>>() == 3);
static_assert(detail::part_count<holds_no_default>() == 3 && detail::part_count<borrowed>() == 2);
static_assert(detail::part_count<largest<value>>() == 64 && detail::leaf_count<largest<value>>() == 71);

template <class Struct, std::size_t K>
constexpr std::string_view name = detail::struct_members<Struct>::template name<K>;
static_assert(name<network<value>, 0> == "layers" && name<network<array<float>>, 1> == "scale");
static_assert(name<largest<value>, 0> == "a" && name<largest<sharded_array<float>>, 63> == "i6");
static_assert(name<borrowed, 0> == "0" && name<borrowed, 1> == "1");

static_assert(detail::is_leaf<value> && detail::is_leaf<array<float>> && detail::is_leaf<std::array<float, 3>>);
static_assert(detail::is_leaf<dynamic::input_spec> && detail::is_leaf<no_default>);

// ---- transform_leaves ----

template <class T, std::size_t N>
struct sized {
  std::array<T, N> all;
  T last;
};
template <class T>
struct listed {
  std::vector<layer<T>> layers;
};
constexpr auto halves = [](int x) { return x * 0.5; };
static_assert(transform_leaves(halves, network<int>{{layer<int>{1, 2}, layer<int>{3, 4}}, 5}).layers[1].b == 2.0);
static_assert(transform_leaves(halves, sized<layer<int>, 1>{{layer<int>{1, 2}}, {3, 4}}).last.b == 2.0);
static_assert(std::is_same_v<decltype(transform_leaves(halves, sized<layer<int>, 2>{})), sized<layer<double>, 2>>);
static_assert(std::is_same_v<decltype(transform_leaves(halves, tied<int>{})), tied<double>>);
static_assert(std::is_same_v<decltype(transform_leaves(halves, listed<int>{})), listed<double>>);
static_assert(std::is_same_v<detail::regrouped<fixed, std::tuple<value, value>>::type, fixed>);
static_assert(std::is_same_v<detail::regrouped<fixed, std::tuple<int, int>>::type, std::tuple<int, int>>);

// ---- programs ----

template <class>
using fixed_record = fixed;
constexpr auto scaled = [](network<value> n, fixed by) {
  for (auto& l : n.layers) l = {l.w * n.scale + by.w, l.b - by.b};
  return std::tuple{n, fixed{by.b, by.w}};
};
using vector_input = input<float, shape<4>>;
using layer_input = record<layer, vector_input, vector_input>;
using step = compile<scaled, mesh<axis<"x", 2>>, record<network, array_of<layer_input, layer_input>, input<float, shape<>>>,
                     record<fixed_record, vector_input, vector_input>>;

TEST_CASE("structs without macros are inputs and results, and their members name the inputs") {
  const auto filled = [](float x) {
    array<float> a({4});
    a.fill(x);
    return a;
  };
  network<array<float>> n{{layer<array<float>>{filled(1), filled(2)}, layer<array<float>>{filled(3), filled(4)}},
                          array<float>({})};
  n.scale.fill(10);
  const std::tuple by{filled(5), filled(6)};
  const auto [after, swapped] = run<step>(simulated{}, n, by);
  CHECK(after.layers[0].w[0] == 15);
  CHECK(after.layers[1].b[3] == -2);
  CHECK(after.scale[0] == 10);
  CHECK(std::get<0>(swapped)[0] == 6);
  CHECK(detail::tensor_words(step::view, 2, " is ").view() == "input 2 (w) is float [4]");
  CHECK(detail::tensor_words(step::view, 4, " is ").view() == "input 4 (scale) is float []");

  const dynamic::input_spec spec = dynamic::input<float>({4});
  const network<dynamic::input_spec> specs{{layer<dynamic::input_spec>{spec, spec}, {spec, spec}}, dynamic::input<float>({})};
  const auto program =
      dynamic::compile(scaled, dynamic::mesh({{"x", 2}}), specs, record<fixed_record, vector_input, vector_input>{});
  CHECK(detail::tensor_words(program.view(), 6, " is ").view() == "input 6 (b) is float [4]");
}

}  // namespace
