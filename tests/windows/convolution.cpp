// SPDX-License-Identifier: Apache-2.0
// group: operators
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/report/explain.hpp>

#include "support/equal_plans.hpp"
#include "support/naive_convolution.hpp"

// convolution as users write it: messages, completion and errors, at compile time and at run time.

using namespace gspmd;

namespace {

using shape_list = std::vector<std::int64_t>;
using split_list = std::vector<std::string>;

struct sent {
  std::int64_t bytes = 0, messages = 0;
  bool only_permutes = true;
};
sent sent_by(const dynamic::program& p) {
  sent result{p.traffic().bytes, p.traffic().messages, true};
  for (const auto& c : p.collectives())
    result.only_permutes = result.only_permutes && c.kind == collective_kind::collective_permute;
  return result;
}

using meshes = std::vector<std::pair<std::string, int>>;

/// One convolution of floats, [n,h,w,c] with [k,k,c,f].
sent layer(const dynamic::mesh& mesh, const shape_list& x, const split_list& split, std::int64_t k, convolution_options options) {
  dynamic::builder p(mesh);
  p.output(convolution(p.input(dynamic::input<float>(x, split)), p.input(dynamic::input<float>({k, k, x[3], 8})),
                       "NHWC,HWIO->NHWC", options));
  return sent_by(p.compile());
}

std::string refusal(const shape_list& x, const shape_list& w, const std::function<value(value, value)>& program) {
  dynamic::builder p(dynamic::mesh({{"x", 2}}));
  try {
    const value a = p.input(dynamic::input<float>(x));
    p.output(program(a, p.input(dynamic::input<float>(w))));
    static_cast<void>(p.compile());
  } catch (const error& e) {
    return e.what();
  }
  return "nothing";
}

constexpr auto net = [](auto x, auto w1, auto w2, auto w3, auto y) {
  const auto layer = [](value h, value w, kept_integers stride) {
    return relu(convolution(h, w, "NHWC,HWIO->NHWC", {.stride = stride, .padding = "same"}));
  };
  const auto h = layer(layer(layer(x, w1, {1, 1}), w2, {2, 2}), w3, {1, 1});
  const value off = h - y;
  const auto loss = sum(off * off);
  const auto by = grad(loss, std::array{w1, w2, w3});
  return std::tuple{loss, by[0], by[1], by[2]};
};

}  // namespace

TEST_CASE("convolution: what lies beyond a shard is sent, and nothing else") {
  const dynamic::mesh four({{"x", 4}}), square({{"x", 2}, {"y", 2}});
  const std::int64_t row = 12 * 3 * 4, pixel = 3 * 4;
  const auto halo = [&](const split_list& split, std::int64_t k, const convolution_options& options, std::int64_t bytes,
                        const dynamic::mesh& mesh) {
    const auto s = layer(mesh, {8, 16, 12, 3}, split, k, options);
    CHECK(s.bytes == bytes);
    CHECK(s.only_permutes);
  };
  halo({"", "x", "", ""}, 3, {.padding = "same"}, 8 * 2 * row, four);  // a row to either side
  halo({"", "x", "", ""}, 5, {.padding = "same"}, 8 * 4 * row, four);
  halo({"", "x", "", ""}, 3, {.padding = "same", .rhs_dilation = {2, 2}}, 8 * 4 * row, four);
  halo({"", "x", "", ""}, 11, {.padding = "same"}, 8 * 9 * row, four);  // whole shards, and a row to the device after the
                                                                        // next one
  halo({"", "x", "", ""}, 1, {}, 0, four);
  halo({"", "x", "", ""}, 4, {.stride = {4, 4}}, 0, four);  // patches
  halo({"", "x", "", ""}, 2, {.stride = {4, 4}}, 0, four);
  halo({"", "x", "", ""}, 3, {.stride = {2, 2}, .padding = "same"}, 8 * 1 * row, four);
  halo({"x", "", "", ""}, 3, {.padding = "same"}, 0, four);
  halo({"", "x", "y", ""}, 3, {.padding = "same"}, 8 * (9 * 7 - 8 * 6) * pixel, square);  // an edge, an edge and a corner
  halo({"y", "x", "", ""}, 3, {.padding = "same"}, 4 * 1 * row, square);
  CHECK(layer(four, {8, 16, 12, 3}, {"", "x", "", ""}, 3, {.padding = "same"}).messages == 2);
  // The halos are one movement into a tile, whether or not they differ between devices. The tile is read in place,
  // without another copy.
  for (const std::int64_t stride : {1, 2}) {
    dynamic::builder p(four);
    p.output(convolution(p.input(dynamic::input<float>({8, 13, 12, 3}, {"", "x", "", ""})),
                         p.input(dynamic::input<float>({3, 3, 3, 8})), "NHWC,HWIO->NHWC",
                         {.stride = {stride, 1}, .padding = "same"}));
    CHECK(p.compile().view().steps.size() == 2);
  }
}

namespace {
constexpr convolution_options halved{.stride = {2, 2}, .low = {1, 1}, .high = {1, 1}};
}  // namespace

TEST_CASE("convolution: options that have a name") {
  const convolution_options here{.stride = {2, 2}, .low = {1, 1}, .high = {1, 1}};
  const std::vector<std::int64_t> two{2, 2}, one{1, 1};
  const convolution_options listed{.stride = two, .low = one, .high = one};
  const dynamic::mesh four({{"x", 4}});
  for (const auto& options : {halved, here, listed}) {
    dynamic::builder p(four);
    const value x = p.input(dynamic::input<float>({8, 16, 12, 3})), w = p.input(dynamic::input<float>({3, 3, 3, 3}));
    const value once = convolution(x, w, "NHWC,HWIO->NHWC", options);
    p.output(convolution(once, w, "NHWC,HWIO->NHWC", options));
    CHECK(p.compile().output(0).global_shape() == shape_list{8, 4, 3, 3});
  }
}

TEST_CASE("convolution: features and groups are split like letters") {
  dynamic::builder p(dynamic::mesh({{"x", 2}, {"y", 2}}));
  const auto x = p.input(dynamic::input<float>({4, 16, 16, 8}, {"", "x", "", "y"}));
  const auto w = p.input(dynamic::input<float>({3, 3, 1, 16}));
  p.output(convolution(x, w, "NHWC,HWIO->NHWC", {.padding = "same", .feature_group_count = 8}));
  const auto step = p.compile();
  const auto s = sent_by(step);
  CHECK(s.only_permutes);
  CHECK(s.bytes == 4 * 16 * 4 * 4);  // a row with half of the features
  CHECK(explain(step).find("[4,8,16,8]") != std::string::npos);

  dynamic::builder q(dynamic::mesh({{"x", 2}}));
  q.output(convolution(q.input(dynamic::input<float>({4, 16, 8}, {"", "", "x"})),
                       q.input(dynamic::input<float>({3, 8, 4}, {"", "x", ""})), "NWC,WIO->NWC"));
  const auto reduced = q.compile().collectives();
  REQUIRE(reduced.size() == 1);
  CHECK(reduced[0].kind == collective_kind::all_reduce);
}

TEST_CASE("convolution: both operands split along space, as in the gradient by a window") {
  // A window of 64 elements with a stride or dilation of `dilation`. 5 results are partial and are summed.
  for (const std::int64_t dilation : {1, 2}) {
    dynamic::builder p(dynamic::mesh({{"x", 4}}));
    const auto x = p.input(dynamic::input<float>({2, 64 * dilation, 3}, {"", "x", ""}));
    const auto w = p.input(dynamic::input<float>({64, 3, 8}, {"x", "", ""}));
    const auto y = convolution(x, w, "NWC,WIO->NWC", {.stride = {2}, .low = {4}, .high = {4}, .rhs_dilation = {dilation}});
    p.output(p.reshard(y, {"", "", ""}));
    const auto step = p.compile();
    const auto results = (8 + 64 * dilation - (63 * dilation + 1)) / 2 + 1;
    REQUIRE(step.collectives().size() == 2);
    CHECK(step.collectives()[0].kind == collective_kind::collective_permute);
    CHECK(step.collectives()[1].kind == collective_kind::all_reduce);
    // Part i reads from 16 d i - 4 to 16 d i + 15 d + 4, every second element with a dilation of 2. The sums rotate
    // around a ring.
    const auto halo = dilation == 1 ? 8 : 4;
    CHECK(step.traffic().in(collective_kind::collective_permute).bytes == 2 * halo * 3 * 4);
    CHECK(step.traffic().in(collective_kind::all_reduce).bytes == 2 * 3 * (2 * results * 8 / 4) * 4);
  }
  // A window smaller than the result is moved to a split of its features, and no device gathers it.
  const auto split = [](const char* equation, const shape_list& window, const split_list& by) {
    dynamic::builder p(dynamic::mesh({{"x", 4}}));
    p.output(einsum(equation, p.input(dynamic::input<float>({2, 32, 3})), p.input(dynamic::input<float>(window, by))));
    return p.compile();
  };
  const auto collectives = split("b(o+w)i,wif->bof", {5, 3, 8}, {"x", "", ""}).collectives();
  REQUIRE(collectives.size() == 2);
  CHECK(collectives[0].kind == collective_kind::all_to_all);
  // If it has no features, the user must allow that all devices gather it.
  std::string refused;
  try {
    static_cast<void>(split("b(o+w)i,w->boi", {5}, {"x"}));
  } catch (const error& e) {
    refused = e.what();
  }
  CHECK_MESSAGE(refused.find("convolution at convolution.cpp:") != std::string::npos, refused);
  CHECK_MESSAGE(refused.find("operand 1 [5] is sharded [x]") != std::string::npos, refused);
}

TEST_CASE("convolution: the split of the input goes through a network, forward and backward") {
  for (const auto& split : {split_list{"", "x,y", "", ""}, {"", "x", "y", ""}, {"", "", "y,x", ""}}) {
    dynamic::builder p(dynamic::mesh({{"x", 2}, {"y", 2}}));
    const auto x = p.input(dynamic::input<double>({2, 128, 128, 3}, split));
    std::vector<value> w;
    for (const auto& shape : {shape_list{3, 3, 3, 8}, {3, 3, 8, 8}, {5, 5, 8, 4}})
      w.push_back(p.input(dynamic::input<double>(shape)));
    value h = x;
    std::vector<value> layers;
    for (std::size_t k = 0; k < w.size(); ++k) {
      h = relu(convolution(h, w[k], "NHWC,HWIO->NHWC",
                           {.stride = k == 1 ? kept_integers{2, 2} : kept_integers{1, 1}, .padding = "same"}));
      layers.push_back(h);
    }
    const auto by = grad(sum(h * h), std::array{w[0], w[1], w[2]});
    for (const auto& t : layers) p.output(t);
    const auto forward = p.compile();
    CHECK(sent_by(forward).only_permutes);
    for (std::size_t k = 0; k < 3; ++k) CHECK(forward.output(k).sharding() == split);
    for (const auto& t : by) p.output(t);
    const auto both = p.compile();
    for (const auto& c : both.collectives())
      CHECK((c.kind == collective_kind::collective_permute || c.kind == collective_kind::all_reduce));
  }
}

namespace {
using two = mesh<axis<"x", 2>>;
using net_step = compile<net, two, input<float, shape<1, 9, 8, 2>, split<_, "x", _, _>>, input<float, shape<3, 3, 2, 4>>,
                         input<float, shape<3, 3, 4, 4>>, input<float, shape<3, 3, 4, 2>>, input<float, shape<1, 5, 4, 2>>>;
}  // namespace

TEST_CASE("convolution: compiled and at run time") {
  const auto data = [](std::size_t n, std::size_t seed) {
    std::vector<float> v(n);
    for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<float>((i * 7 + seed) % 5) - 2;
    return v;
  };
  const auto x = data(1 * 9 * 8 * 2, 1), w1 = data(9 * 2 * 4, 2), w2 = data(9 * 4 * 4, 3), w3 = data(9 * 4 * 2, 4),
             y = data(40, 5);
  const auto build = [&](const dynamic::mesh& mesh) {
    dynamic::builder p(mesh);
    const value image = p.input(dynamic::input<float>({1, 9, 8, 2}, {"", "x", "", ""}));
    const value first = p.input(dynamic::input<float>({3, 3, 2, 4})), second = p.input(dynamic::input<float>({3, 3, 4, 4}));
    const value third = p.input(dynamic::input<float>({3, 3, 4, 2})), wanted = p.input(dynamic::input<float>({1, 5, 4, 2}));
    std::apply([&](auto... results) { (p.output(results), ...); }, net(image, first, second, third, wanted));
    return p.compile();
  };
  const auto split = build(dynamic::mesh({{"x", 2}})), whole = build(dynamic::mesh({{"x", 1}}));
  CHECK(reference::difference(net_step::view, split.view()) == "");
  const auto want = whole.run(simulated{}, x, w1, w2, w3, y);
  const auto check = [&](const auto& got, std::size_t k) {
    bool same = true;
    for (std::int64_t i = 0; i < got.size(); ++i) same = same && got.data()[i] == want[k].template data<float>()[i];
    CHECK(same);
  };
  const auto check_all = [&](const auto& backend) {
    const auto [loss, a, b, c] = run<net_step>(backend, x, w1, w2, w3, y);
    check(loss, 0);
    check(a, 1);
    check(b, 2);
    check(c, 3);
  };
  check_all(threads{});
  check_all(simulated{});
}

TEST_CASE("convolution: with features last it is one that a library of convolutions can do, and right whoever does it") {
  const auto is_direct = [](const char* layout, const shape_list& x, const shape_list& w, const convolution_options& options) {
    dynamic::builder p(dynamic::mesh({{"x", 1}}));
    p.output(convolution(p.input(dynamic::input<float>(x)), p.input(dynamic::input<float>(w)), layout, options));
    const auto step = p.compile();
    bool all = true;
    for (const auto& c : detail::table_of<detail::contraction_plan>(step.view())) all = all && c.direct.is_one;
    return all;
  };
  const auto* const nhwc = "NHWC,HWIO->NHWC";
  const shape_list x{2, 9, 8, 6}, w{3, 2, 6, 4};
  CHECK(is_direct(nhwc, x, w, {}));
  CHECK(is_direct(nhwc, x, w, {.stride = {2, 3}, .padding = "same", .rhs_dilation = {2, 1}, .reverse = {1, 0}}));
  CHECK(is_direct(nhwc, x, {1, 2, 6, 4}, {}));
  CHECK(is_direct("NHWC,OIWH->NHWC", x, {4, 6, 2, 3}, {}));
  CHECK(!is_direct("NCHW,HWIO->NHWC", {2, 6, 9, 8}, w, {}));
  CHECK(!is_direct(nhwc, x, w, {.low = {1, 1}, .lhs_dilation = {2, 2}}));
  CHECK(!is_direct(nhwc, x, {3, 2, 3, 4}, {.feature_group_count = 2}));

  reference::convolution_case c;
  c.lhs = c.result = "NHWC";
  c.rhs = "OHWI";
  c.batch = 2;
  c.in_features = 8;
  c.out_features = 10;
  c.spatial = "HW";
  c.extent = {17, 13};
  c.window = {3, 2};
  c.stride = {1, 2};
  c.low = {1, 0};
  c.high = {1, 1};
  c.lhs_dilation = {1, 1};
  c.rhs_dilation = {1, 3};
  c.reverse = {0, 1};
  const auto results = static_cast<std::size_t>(2 * 17 * c.output(1) * 10);
  std::vector<float> image(2 * 17 * 13 * 8), window(10 * 3 * 2 * 8), by(results), wanted(results), slope(window.size());
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>(i * 7 % 11) - 5;
  for (std::size_t i = 0; i < window.size(); ++i) window[i] = static_cast<float>(i * 5 % 7) - 3;
  for (std::size_t i = 0; i < by.size(); ++i) by[i] = static_cast<float>(i * 3 % 5) - 2;
  c.for_each_product([&](std::size_t i, std::size_t k, std::size_t o) {
    wanted[o] += image[i] * window[k];
    slope[k] += image[i] * by[o];
  });
  for (const int devices : {1, 2, 3}) {
    dynamic::builder p(dynamic::mesh({{"x", devices}}));
    const auto kernel = p.input(dynamic::input<float>(c.rhs_shape()));
    const auto y =
        convolution(p.input(dynamic::input<float>(c.lhs_shape(), {"", "x", "", ""})), kernel, "NHWC,OHWI->NHWC",
                    {.stride = c.stride, .low = c.low, .high = c.high, .rhs_dilation = c.rhs_dilation, .reverse = c.reverse});
    p.output(y);
    p.output(grad(sum(y * p.input(dynamic::input<float>(c.result_shape()))), kernel));
    const auto step = p.compile();
    int makes_window = 0;
    for (const auto& made : detail::table_of<detail::contraction_plan>(step.view()))
      makes_window += made.direct.makes_window ? 1 : 0;
    CHECK(makes_window == 1);
    const auto got = step.run(threads{}, window, image, by);
    int wrong = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) wrong += got[0].data<float>()[i] != wanted[i] ? 1 : 0;
    for (std::size_t i = 0; i < slope.size(); ++i) wrong += got[1].data<float>()[i] != slope[i] ? 1 : 0;
    CHECK(wrong == 0);
  }
}

TEST_CASE("convolution: more spatial dims than an operator has windows, and as many as tensors have room for") {
  const auto sends = [](const std::string& dims, const std::string& split) {
    dynamic::builder p(dynamic::mesh({{"x", 2}}));
    const auto rank = dims.size();
    shape_list x(rank + 2, 2), w(rank + 2, 1);
    x[1] = 4;
    w[0] = 3;
    split_list by(rank + 2);
    by[1 + dims.find(split)] = "x";
    std::vector<std::int64_t> around(rank, 0);
    around[0] = 1;
    w[rank] = 2;  // features
    const auto layout = 'N' + dims + "C," + dims + "IO->N" + dims + 'C';
    p.output(convolution(p.input(dynamic::input<float>(x, by)), p.input(dynamic::input<float>(w)), layout,
                         {.low = around, .high = around}));
    return sent_by(p.compile());
  };
  const std::string six = "ABDEFG", sixteen = "ABDEFGHJKLMPQRST";
  CHECK(sends(six, "A").bytes == (2 * 2 * 2 * 2 * 2 * 2 * 2) * 4);  // a row of the first dim
  CHECK(sends(six, "A").only_permutes);
  CHECK(sends(six, "G").bytes == 0);
  CHECK(sends(sixteen, "T").bytes == 0);
  const auto refused = refusal(shape_list(20, 1), shape_list(20, 1), [](value a, value b) {
    return convolution(a, b, "NABDEFGHJKLMPQRSTUVC,ABDEFGHJKLMPQRSTUVIO->NABDEFGHJKLMPQRSTUVC");
  });
  const bool said = refused.find(
                        "has 18 spatial dims; the windows of all but 4 become dims of the operand, which would have more "
                        "than 32") != std::string::npos;
  CHECK_MESSAGE(said, refused);
}

TEST_CASE("convolution: what is refused") {
  using std::string;
  const auto says = [](const string& text, const string& part) {
    const bool said = text.find(part) != string::npos;
    CHECK_MESSAGE(said, text);
  };
  const shape_list x{2, 8, 8, 6}, w{3, 3, 6, 4};
  const auto with = [&](const char* layout, const convolution_options& options, const shape_list& window) {
    return refusal(x, window, [&](value a, value b) { return convolution(a, b, layout, options); });
  };
  const auto* const nhwc = "NHWC,HWIO->NHWC";
  says(with("NHWC,HWIO->NHC", {}, w), "the layout `NHWC,HWIO->NHC`: the result has no spatial dim `W`");
  says(with("NHWC,HWIO", {}, w), "has not the form `NHWC,HWIO->NHWC`");
  says(with("NHWC,HWCO->NHWC", {}, w), "column 8: the features of the window are `I` of the operand and `O` of the result");
  says(with("NHHC,HWIO->NHWC", {}, w), "column 3: the operand has this dim twice");
  says(with("NHWC,HWIO->NHW7", {}, w), "column 15: letters, one comma and one -> are allowed here");
  says(with("NWC,WIO->NWC", {}, w), "has 3 dims of the operand, the tensor is [2,8,8,6] of rank 4");
  says(with(nhwc, {.stride = {1}}, w), "stride has 1 numbers, `NHWC,HWIO->NHWC` has 2 spatial dims");
  says(with(nhwc, {.stride = {1, 0}}, w), "stride of dim `W` is 0; it is at least 1");
  says(with(nhwc, {.padding = "full"}, w), "padding is `full`; it is `valid` or `same`");
  says(with(nhwc, {.padding = "same", .low = {1, 1}}, w), "leave out padding, or low and high");
  says(with(nhwc, {.low = {-3, 0}, .high = {-3, 0}}, w),
       "the window has 3 elements along dim `H` and spans 3, dim 1 of the operand [2,8,8,6] is 2 with its padding of -3 and -3");
  says(with(nhwc, {.feature_group_count = 4}, w), "feature_group_count is 4, and dim 3 of operand 0, its features, is 6");
  says(with(nhwc, {.feature_group_count = 3}, {3, 3, 2, 4}), "dim 3 of operand 1, the features of the result, is 4");
  says(with(nhwc, {.batch_group_count = 3}, w), "batch_group_count is 3, and dim 0 of operand 0, its batch, is 2");
  says(with(nhwc, {.feature_group_count = 2, .batch_group_count = 2}, w), "one of them is 1");
  says(with(nhwc, {}, {3, 3, 5, 4}), "dim 3 of operand 0 has 6 features in 1 group, dim 2 of the window takes 5 of each group");
  const auto einsum_with = [&](const char* equation) {
    return refusal({4, 8}, {9, 3}, [&](value a, value b) { return einsum(equation, a, b); });
  };
  says(einsum_with("b(x+w),wf->bxf"), "the window `w` of `(x+w)` has 9 elements and spans 9, dim 1 of operand 0 is 8 of [4,8]");
  says(einsum_with("b(x+w),w(f+x)->bxf"), "column 9: an index in both operands");
  says(einsum_with("b(x+1),wf->bxf"), "an index of one letter has no window");
}
