// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: dynamic
// The search finds the annotations that experts write: data, model or both, FSDP, the mesh of least surface, products
// in two and three dims, and the Transformer layer of GSPMD's Table 1.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/planning_limit.hpp>
#include <gspmd/dynamic/written_program.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/search/find_annotations.hpp>
#include <gspmd/transform/update.hpp>

namespace {

using namespace gspmd;
using lies_so = std::vector<std::string>;
constexpr network cluster(50e12, 25e9, 2e-6);

value f32(dynamic::builder& b, const std::vector<std::int64_t>& shape) { return b.input(dynamic::input<float>(shape)); }
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
/// Returns the message of the error that ends a search.
template <class Program>
std::string refused(const Program& program, const dynamic::annotation_search& asked) {
  try {
    static_cast<void>(dynamic::find_annotations(program, asked));
  } catch (const error& e) {
    return e.what();
  }
  return "";
}

/// A training step of two layers.
auto training(std::int64_t rows, std::int64_t width) {
  return [=](const dynamic::mesh& m) {
    dynamic::builder b(m);
    const value x = f32(b, {rows, width}), w1 = f32(b, {width, 4 * width}), w2 = f32(b, {4 * width, width});
    const auto y = einsum<"bf,fd->bd">(relu(einsum<"bd,df->bf">(x, w1)), w2);
    const auto [g1, g2] = grad(mean(y * y), std::tuple{w1, w2});
    b.output(update(w1, w1 - 0.1 * g1));
    b.output(update(w2, w2 - 0.1 * g2));
    return b;
  };
}
dynamic::builder six_layers(const dynamic::mesh& m) {
  dynamic::builder b(m);
  value h = f32(b, {8192, 1024});
  std::vector<value> w;
  for (int k = 0; k < 6; ++k) w.push_back(f32(b, {1024, 1024}));
  for (const auto& one : w) h = tanh(einsum<"bd,df->bf">(h, one));
  const auto g = grad(mean(h * h), w);
  for (std::size_t k = 0; k < 6; ++k) b.output(update(w[k], w[k] - 0.1 * g[k]));
  return b;
}
dynamic::found_annotations jacobi_on_16_devices() {
  const auto jacobi = [](const dynamic::mesh& m) {  // the program on a mesh
    dynamic::builder b(m);
    const value u = b.input(dynamic::input<float>({4096, 4096}));
    b.output(update(u, 0.25 * (shift(u, 1, along(0)) + shift(u, -1, along(0)) + shift(u, 1, along(1)) + shift(u, -1, along(1)))));
    return b;
  };
  return dynamic::find_annotations(jacobi, {.meshes = dynamic::meshes_of(16), .memory_per_device = 1 * GiB, .most_plans = 100});
}
dynamic::builder product(const dynamic::mesh& m) {
  dynamic::builder b(m);
  const value x = f32(b, {4096, 4096}), y = f32(b, {4096, 4096});
  b.output(einsum<"ab,bc->ac">(x, y));
  return b;
}

}  // namespace

TEST_CASE("find_annotations: two layers, the batch along all devices, the width along all, or one axis for each") {
  const dynamic::mesh m({{"x", 4}, {"y", 2}});
  const auto data = dynamic::find_annotations(training(65536, 512), {.meshes = {m}, .connected = cluster, .most_plans = 150});
  REQUIRE(data.inputs.size() == 3);
  CHECK(data.inputs[0].sharding == lies_so{"x,y", ""});

  const auto model = dynamic::find_annotations(training(64, 8192), {.meshes = {m}, .connected = cluster, .most_plans = 150});
  CHECK(model.inputs[0].sharding == lies_so{"", ""});
  CHECK(model.inputs[1].sharding == lies_so{"", "x,y"});

  const dynamic::mesh square({{"x", 4}, {"y", 4}});
  const auto both =
      dynamic::find_annotations(training(4096, 1024), {.meshes = {square}, .connected = cluster, .most_plans = 200});
  CHECK(both.inputs[0].sharding == lies_so{"x", ""});
  CHECK(both.inputs[1].sharding[1] == "y");
  CHECK(both.inputs[2].sharding[0].starts_with("y"));
  // The best mesh is first, and its annotations have the time in the table.
  for (const auto& c : both.compared) CHECK(both.compared.front().seconds <= c.seconds);
  const auto annotated = [&](const dynamic::mesh& on) {
    auto b = training(4096, 1024)(on);
    for (const auto& i : both.inputs)
      for (const int k : i.inputs) b.annotate({&b.graph(), b.graph().inputs[k]}, i.sharding);
    return b.compile();
  };
  CHECK(estimate(annotated(square.with({.network = cluster})), cluster).total() ==
        doctest::Approx(both.compared.front().seconds));
}

TEST_CASE("find_annotations: weights are split over all devices where memory forces it, those of equal layers alike") {
  const dynamic::mesh m({{"x", 8}});
  const auto found = dynamic::find_annotations(
      six_layers, {.meshes = {m}, .connected = cluster, .memory_per_device = 45 * MiB, .most_plans = 60});
  REQUIRE(found.inputs.size() == 2);
  CHECK(found.inputs[0].sharding == lies_so{"x", ""});
  CHECK(found.inputs[1].inputs == std::vector<int>{1, 2, 3, 4, 5, 6});
  CHECK(std::count(found.inputs[1].sharding.begin(), found.inputs[1].sharding.end(), "x") == 1);
  const auto& best = found.compared.front();
  CHECK(best.memory <= 45 * MiB);
  // At most gathers of the weights in both directions, and a scatter of their gradients.
  CHECK(best.bytes <= std::int64_t{3} * 6 * 1024 * 1024 * 4 * 7 / 8);
  const auto whole = std::find_if(found.compared.begin(), found.compared.end(),
                                  [](const auto& c) { return c.name == "input 0 along dim 0, all else replicated"; });
  REQUIRE(whole != found.compared.end());
  CHECK(!whole->fits);
  CHECK(whole->seconds < best.seconds);
}

TEST_CASE("find_annotations: a stencil takes the mesh of least surface") {
  const auto found = jacobi_on_16_devices();
  CHECK(found.mesh.axes().size() == 2);
  CHECK(found.mesh.axes()[0].size == 4);
  CHECK(found.compared.front().bytes == 4 * 1024 * 4);
  CHECK(found.is_complete);
}

TEST_CASE("find_annotations: products in two and in three dims") {
  constexpr std::int64_t part = 4096 * 4096 * 4 / 64;  // of a matrix, on 64 devices
  // A squared matrix that keeps its sharding: along two axes as in SUMMA, and fewer bytes along three.
  const auto squared = [](const dynamic::mesh& m) {
    dynamic::builder b(m);
    const value x = f32(b, {4096, 4096});
    b.output(update(x, einsum<"ab,bc->ac">(x, x)));
    return b;
  };
  const auto two = dynamic::find_annotations(
      squared, {.meshes = {dynamic::mesh({{"x", 64}}), dynamic::mesh({{"x", 8}, {"y", 8}})}, .most_plans = 60});
  CHECK(two.mesh.axes().size() == 2);
  CHECK(two.compared.front().bytes == 2 * 7 * part);
  const auto three = dynamic::find_annotations(squared, {.meshes = dynamic::meshes_of(64), .most_plans = 200});
  CHECK(three.mesh.axes().size() == 3);
  CHECK(three.compared.front().bytes < two.compared.front().bytes);
  // The 3-D product of two matrices with suitable shardings: the memory holds only the multiplied blocks.
  const auto blocks = dynamic::find_annotations(
      product, {.meshes = {dynamic::mesh({{"x", 4}, {"y", 4}, {"z", 4}})}, .memory_per_device = 12 * part, .most_plans = 300});
  CHECK(blocks.compared.front().memory <= 12 * part);
  CHECK(blocks.compared.front().bytes <= 6 * part);
}

TEST_CASE("find_annotations: the Transformer layer of GSPMD Table 1 takes no longer than 2D finalized, and holds no more") {
  const auto layer = [](const dynamic::mesh& m, bool annotated) {
    constexpr std::int64_t B = 64, S = 1024, M = 8192, H = 65536, N = 128, D = 256;
    dynamic::builder b(m);
    const auto in = [&](std::vector<std::int64_t> shape, const lies_so& lies) {
      return annotated ? b.input(dynamic::input<float>(std::move(shape), lies)) : f32(b, shape);
    };
    const auto at = [&](value v, const lies_so& lies) { return annotated ? b.reshard(v, lies) : v; };
    const auto x = in({B, S, M}, {"x", "", "y"}), wo = in({N, D, M}, {"y", "", "x"});
    const auto w_in = in({M, H}, {"x", "y"}), w_out = in({H, M}, {"y", "x"});
    value q[3];
    for (auto& v : q) v = at(einsum<"bsm,mnd->bsnd">(x, in({M, N, D}, {"x", "y", ""})), {"x", "", "y", ""});
    const auto scores = softmax(einsum<"bsnd,btnd->bnst">(q[0], q[1]), 3);
    const auto mixed = at(einsum<"bnst,btnd->bsnd">(scores, q[2]), {"x", "", "y", ""});
    const auto attended = at(einsum<"bsnd,ndm->bsm">(mixed, wo), {"x", "", "y"});
    const auto h = relu(at(einsum<"bsm,mh->bsh">(attended, w_in), {"x", "", "y"}));
    b.output(at(einsum<"bsh,hm->bsm">(h, w_out), {"x", "", "y"}));
    return b;
  };
  const network torus(61.5e12, {{"x", topology::torus, 70e9, 1e-6}, {"y", topology::torus, 70e9, 1e-6}});
  const dynamic::mesh m({{"x", 8}, {"y", 16}});
  const auto drawn = layer(m.with({.network = torus}), true).compile();
  const auto found = dynamic::find_annotations(
      [&](const dynamic::mesh& on) { return layer(on, false); },
      {.meshes = {m}, .connected = torus, .memory_per_device = drawn.peak_bytes_per_device(), .most_plans = 330});
  CHECK_MESSAGE(found.compared.front().seconds <= estimate(drawn, torus).total() * (1 + 1e-9), found.text());
  CHECK(found.compared.front().memory <= drawn.peak_bytes_per_device());
  CHECK(found.inputs.size() == 5);  // the weights of queries, keys and values are one decision
}

TEST_CASE("find_annotations: a value is annotated where that makes the step faster, and named as a program writes it") {
  // Heads are split over x, later values are not. The sum over heads is reduced to rows if an annotation says so.
  const auto heads = [](const dynamic::mesh& m) {
    dynamic::builder b(m);
    const auto in = [&](std::vector<std::int64_t> shape, const lies_so& lies) {
      return b.input(dynamic::input<float>(std::move(shape), lies));
    };
    const auto x = in({64, 1024, 1024}, {"y", "", ""}), wv = in({1024, 16, 64}, {"", "x", ""}),
               wo = in({16, 64, 1024}, {"x", "", ""});
    const auto w_in = in({1024, 4096}, {"", ""}), w_out = in({4096, 1024}, {"", ""});
    b.label(-1);
    const value v = einsum<"bsm,mnd->bsnd">(x, wv);
    b.label(0);
    const value attended = einsum<"bsnd,ndm->bsm">(v, wo);
    b.label(1);
    const value h = relu(einsum<"bsm,mh->bsh">(attended, w_in));
    b.label(2);
    b.output(einsum<"bsh,hm->bsm">(h, w_out));
    return b;
  };
  const auto found = dynamic::find_annotations(heads, {.meshes = {dynamic::mesh({{"x", 8}, {"y", 16}})}, .connected = cluster});
  CHECK(found.inputs.empty());  // all inputs are annotated and keep their annotations
  REQUIRE_MESSAGE(found.values.size() == 1, found.text());
  REQUIRE(found.values[0].labels.size() == 1);
  CHECK(found.values[0].labels[0] <= 2);
  CHECK(found.values[0].sharding[0] == "y");
  CHECK(found.values[0].sharding[1] == "x");
  CHECK(found.compared.front().name == "found, with annotations of values");
  CHECK(found.values[0].seconds_without > found.compared.front().seconds);
  CHECK_MESSAGE(has(found.run_time_lines(), "reshard<split<\"y\", \"x\", _"), found.run_time_lines());
  CHECK_MESSAGE(has(found.run_time_lines(), ">>(relu at find_annotations.cpp:"), found.run_time_lines());
}

TEST_CASE("find_annotations: the same is found again, within the plans that were allowed") {
  std::vector<int> plans;
  dynamic::annotation_search asked{.meshes = dynamic::meshes_of(8), .connected = cluster, .most_plans = 25};
  asked.report = [&](const dynamic::search_progress& p) {
    plans.push_back(p.plans);
    CHECK(p.most_plans == 25);
    CHECK(has(p.mesh, "x="));
  };
  const auto one = dynamic::find_annotations(training(4096, 1024), asked);
  CHECK(plans.size() == static_cast<std::size_t>(one.plans));
  CHECK(one.plans <= 25);
  CHECK(!one.is_complete);
  CHECK(has(one.text(), "the search ended there"));
  CHECK(dynamic::find_annotations(training(4096, 1024), asked).text() == one.text());
  CHECK(has(one.run_time_lines(), "dynamic::input<float>({4096, 1024}, {\"x"));
  CHECK(has(one.compiled_lines(), "input<float, shape<4096, 1024>, split<\"x"));
}

TEST_CASE("find_annotations: a network that the mesh names is given as `connected`, by which plans are estimated too") {
  dynamic::annotation_search asked{.meshes = {dynamic::mesh({{"x", 4}}).with({.network = cluster})}, .most_plans = 5};
  CHECK(has(refused(training(64, 32), asked), "find_annotations: the mesh names a network; give it as `connected`"));
  asked.connected = cluster;
  CHECK(refused(training(64, 32), asked) == "");
}

TEST_CASE("meshes_of: products of one, two and three factors") {
  const auto sizes = [](const std::vector<dynamic::mesh>& meshes) {
    std::vector<std::vector<std::int64_t>> found;
    for (const auto& m : meshes) {
      found.emplace_back();
      for (const auto& a : m.axes()) found.back().push_back(a.size);
    }
    return found;
  };
  CHECK(sizes(dynamic::meshes_of(12)) == std::vector<std::vector<std::int64_t>>{{12}, {3, 4}, {2, 6}, {2, 2, 3}});
  CHECK(sizes(dynamic::meshes_of(8, {"row", "column"})) == std::vector<std::vector<std::int64_t>>{{8}, {2, 4}, {4, 2}});
  CHECK(dynamic::meshes_of(8, {"row", "column"})[1].axes()[1].name == "column");
  CHECK(sizes(dynamic::meshes_of(7)) == std::vector<std::vector<std::int64_t>>{{7}});
  CHECK(sizes(dynamic::meshes_of(1)) == std::vector<std::vector<std::int64_t>>{{1}});
  CHECK_THROWS_WITH_AS(static_cast<void>(dynamic::meshes_of(0)), doctest::Contains("meshes_of: a mesh has 1 to 2^30 devices"),
                       error);
}

TEST_CASE("find_annotations: a batch of 33 is split over 8 devices, with padding") {
  const auto layers = [](const dynamic::mesh& m) {
    dynamic::builder b(m);
    const value x = f32(b, {33, 2048}), w = f32(b, {2048, 2048}), v = f32(b, {2048, 2048});
    b.output(relu(einsum<"bd,df->bf">(relu(einsum<"bd,df->bf">(x, w)), v)));
    return b;
  };
  const auto found = dynamic::find_annotations(layers, {.meshes = {dynamic::mesh({{"x", 8}})}, .connected = cluster});
  CHECK(found.inputs[0].sharding == lies_so{"x", ""});  // five rows each, and nothing is sent
  CHECK(found.compared.front().bytes == 0);
}

TEST_CASE("find_annotations: scalars, one device, and an axis that divides nothing") {
  const auto scaled = [](const dynamic::mesh& m) {
    dynamic::builder b(m);
    const value x = f32(b, {6, 10}), s = f32(b, {});
    b.output(x * s);
    return b;
  };
  const auto alone = dynamic::find_annotations(scaled, {.meshes = dynamic::meshes_of(1)});
  CHECK(alone.compared.front().bytes == 0);
  CHECK(alone.is_complete);
  const auto seven = dynamic::find_annotations(scaled, {.meshes = {dynamic::mesh({{"x", 7}, {"one", 1}})}});
  REQUIRE(seven.inputs.size() == 2);
  CHECK(seven.inputs[0].sharding == lies_so{"x", ""});  // one row of six each, and the last device has none; two if split
                                                        // by columns
  CHECK(seven.inputs[1].sharding.empty());
  CHECK(has(seven.run_time_lines(), "dynamic::input<float>({}, {})  // input 1"));
  // If only one plan is permitted, the search makes one plan.
  const auto one = dynamic::find_annotations(scaled, {.meshes = {dynamic::mesh({{"x", 2}})}, .most_plans = 1});
  CHECK(one.plans == 1);
  CHECK(!one.is_complete);
}

TEST_CASE("a limit of planning counts work, and the same program takes the same") {
  const dynamic::mesh m({{"x", 8}});
  std::int64_t used = 0;
  for (int repeat = 0; repeat < 2; ++repeat) {
    const dynamic::planning_limit limit(100'000);
    static_cast<void>(product(m).compile());
    CHECK((repeat == 0 || limit.used() == used));
    CHECK(!limit.is_exceeded());
    used = limit.used();
  }
  const auto b = product(m);
  const dynamic::planning_limit outer(used - 1);
  const dynamic::planning_limit inner(used);  // ends later, so the outer limit holds
  CHECK_THROWS_WITH_AS(
      static_cast<void>(b.compile()),
      ("gspmd: planning takes more work than the " + std::to_string(used - 1) + " prices and nodes that a planning_limit allows")
          .c_str(),
      error);
  CHECK(inner.is_exceeded());
}

TEST_CASE("find_annotations ends with the error of a planning_limit") {
  dynamic::annotation_search asked{.meshes = {dynamic::mesh({{"x", 8}})}};
  std::int64_t units = 0;
  {
    const dynamic::planning_limit limit(1'000'000);
    CHECK(refused(product, asked).empty());
    units = limit.used() / 2;
  }
  const dynamic::planning_limit limit(units);
  int late = 0;  // plans that are tried after the limit
  asked.report = [&](const dynamic::search_progress&) { late += limit.is_exceeded() ? 1 : 0; };
  CHECK(has(refused(product, asked), "planning takes more work than the " + std::to_string(units) + " prices and nodes"));
  CHECK(limit.is_exceeded());
  CHECK(late == 0);
}

TEST_CASE("find_annotations: what it refuses") {
  const dynamic::mesh m({{"x", 8}});
  CHECK(has(refused(product, {}), "find_annotations: give at least one mesh"));
  // A limit is a positive number: 0 and negative numbers mean neither "no limit" nor a search that ends immediately.
  for (const int limit : {0, -1}) {
    const auto error_of = [&](const char* name) {
      return std::string("find_annotations: ") + name + " is " + std::to_string(limit) +
             "; write a positive number, or leave it out";
    };
    CHECK(has(refused(product, {.meshes = {m}, .most_plans = limit}), error_of("most_plans")));
    CHECK(has(refused(product, {.meshes = {m}, .most_work = limit}), error_of("most_work")));
    CHECK(has(refused(product, {.meshes = {m}, .most_seconds = limit}), error_of("most_seconds")));
    CHECK(has(refused(product, {.meshes = {m}, .memory_per_device = limit}), error_of("memory_per_device")));
    CHECK_THROWS_WITH_AS(
        dynamic::planning_limit{limit},
        ("gspmd: planning_limit: units is " + std::to_string(limit) + "; write a positive number, or leave it out").c_str(),
        error);
  }
  CHECK(has(refused(product, {.meshes = {m}, .most_seconds = std::numeric_limits<double>::quiet_NaN()}), "most_seconds is nan"));
  CHECK(has(refused(product, {.meshes = {m}, .most_seconds = -1e-9}), "most_seconds is -1e-09"));
  const auto little = refused(product, {.meshes = {m}, .memory_per_device = MiB, .most_plans = 40});
  CHECK_MESSAGE(
      has(little,
          "find_annotations: no plan was found that fits into the 1048576 bytes of a device. The one that holds least, on "
          "the mesh x=8, holds "),
      little);
  CHECK_MESSAGE(has(little, "inputs "), little);
  CHECK_MESSAGE(has(little, "(most of them input "), little);
  CHECK_MESSAGE(has(little, "use more devices"), little);
  CHECK(dynamic::find_annotations(product, {.meshes = {m}, .most_work = 1}).plans == 1);
  CHECK(dynamic::find_annotations(product, {.meshes = {m}, .most_work = std::numeric_limits<std::int64_t>::max()}).is_complete);
  CHECK(has(refused(product, {.meshes = {m}, .most_seconds = 1e-12}),
            "find_annotations: most_seconds ended the search before its first plan"));
  const auto written = [](const dynamic::mesh& on) {
    dynamic::builder b(on);
    const dynamic::written_program typed(b);
    b.output(relu(f32(b, {8, 8})));
    return b;
  };
  CHECK(has(refused(written, {.meshes = {m}}), "find_annotations: the program writes its own communication"));
  const auto mistaken = [](const dynamic::mesh& on) {
    dynamic::builder b(on);
    b.output(einsum<"ab,bc->ac">(f32(b, {4, 5}), f32(b, {4, 5})));
    return b;
  };
  CHECK(has(refused(mistaken, {.meshes = {m}}), "einsum"));
}
