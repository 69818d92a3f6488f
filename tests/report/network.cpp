// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: plans
// Estimated times: closed forms, and measurements of the papers (GShard Fig. 9, GSPMD Table 2). examples/papers has
// Tables 2 to 8.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/report/network.hpp>

#include "support/error_of.hpp"

namespace {

using namespace gspmd;
using caught::error_of;
dynamic::input_spec f32(std::vector<std::int64_t> shape, std::vector<std::string> sharding) {
  return dynamic::input<float>(std::move(shape), std::move(sharding));
}

constexpr double bandwidth = 70e9;
network torus_of(double latency = 0) {
  return {61.5e12, {{"x", topology::torus, bandwidth, latency}, {"y", topology::torus, bandwidth, latency}}};
}

/// Returns the slope of log(times) over log(devices), by least squares.
double exponent(const std::vector<double>& devices, const std::vector<double>& times) {
  double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const double x = std::log(devices[i]), y = std::log(times[i]);
    n += 1, sx += x, sy += y, sxx += x * x, sxy += x * y;
  }
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

constexpr auto normalise = [](auto x) { return x / sum(x); };
using step = compile<normalise, mesh<axis<"x", 8>>, input<double, shape<8'000'000>, split<"x">>>;
constexpr network switched(1e9, {{"x", topology::switched, 1e9, 1e-6}});
// all_reduce of 8 bytes by recursive doubling: 3 messages of 8 bytes. A million elements are read, then read again and
// written, at 10^8 bytes/s.
constexpr auto planned = estimate<step>(switched);
static_assert(planned.computation > 0.24 && planned.computation < 0.2401);
constexpr network with_fast_memory = switched.with_memory(1e12);
static_assert(estimate<step>(with_fast_memory).computation == 2'000'000 / 1e9);
static_assert(planned.communication > 3.0239e-6 && planned.communication < 3.0241e-6);
static_assert(planned.over[0] == planned.communication && planned.total() == planned.communication + planned.computation);
// Rows of 4 devices. A grid of 4 x 2 maps a rotated row to a square; a tree of pairs leaves the row unchanged.
constexpr int between(int a, int b) { return a < b ? b - a : a - b; }
constexpr auto on_grid = [](int a, int b) { return between(a / 2, b / 2) + between(a % 2, b % 2); };
constexpr auto on_tree = [](int a, int b) {
  int links = 0;
  for (; a != b; a /= 2, b /= 2) links += 2;
  return links;
};
using plain = mesh<axis<"x", 2>, axis<"y", 4>>;
using round = mesh<axis<"x", 2>, axis<"y", 4>, device_order<0, 1, 3, 2, 4, 5, 7, 6>>;
using renumbered = mesh<axis<"x", 2>, axis<"y", 4>, device_order<0, 2, 4, 6, 1, 3, 5, 7>>;
static_assert(links_along(plain::info, "y", on_grid) == 12 && links_along(round::info, "y", on_grid) == 8);
static_assert(links_along(plain::info, "y", on_tree) == 24 && links_along(renumbered::info, "y", on_tree) == 40);

static_assert(collective_times<step>(switched).size() == 1);
static_assert(collective_times<step>(switched)[0].what == all_reduce<"x">);
static_assert(collective_times<step>(switched)[0].seconds == planned.communication);

}  // namespace

TEST_CASE("network: closed forms of every kind") {
  const dynamic::mesh m({{"x", 8}, {"y", 2}, {"z", 1}});
  const auto& info = m.info();
  const network net(1, {{"x", topology::torus, 10, 3}, {"y", topology::switched, 5, 7}});
  const auto seconds = [&](collective_kind kind, detail::axis_mask axes, std::int64_t bytes) {
    const auto s = detail::seconds_of(detail::times_of_collective(info.shape, detail::rates_on(net, info), kind, axes, bytes));
    CHECK(s.count == 3);
    CHECK(s[2] == 0);
    return std::pair{s[0], s[1]};
  };
  using pair = std::pair<double, double>;
  const auto x = detail::axis_bit(0), y = detail::axis_bit(1), z = detail::axis_bit(2);
  // a ring of 8 in both directions: 70 bytes are 7 shards of 10, with 4 links to the farthest device
  CHECK(seconds(collective_kind::all_gather, x, 70) == pair{70.0 / 20 + 4 * 3, 0});
  CHECK(seconds(collective_kind::reduce_scatter, x, 70) == pair{70.0 / 20 + 4 * 3, 0});
  CHECK(seconds(collective_kind::all_reduce, x, 140) == pair{2 * (70.0 / 20 + 4 * 3), 0});
  CHECK(seconds(collective_kind::all_gather, y, 30) == pair{0, 30.0 / 5 + 7});
  // both axes: y is slower, so 10 bytes are sent over y first and 7 * 20 over x; 150 in total
  CHECK(seconds(collective_kind::all_gather, x | y, 150) == pair{140.0 / 20 + 12, 10.0 / 5 + 7});
  CHECK(seconds(collective_kind::all_gather, x | y | z, 150) == pair{140.0 / 20 + 12, 10.0 / 5 + 7});
  // 80 bytes, 70 sent to other devices: 2 links on average on a ring of 8, which has two directions
  CHECK(seconds(collective_kind::all_to_all, x, 70) == pair{80.0 * 2 / 20 + 12, 0});
  CHECK(seconds(collective_kind::all_to_all, y, 40) == pair{0, 80.0 / 2 / 5 + 7});
  CHECK(seconds(collective_kind::collective_permute, x, 40) == pair{40.0 / 10 + 3, 0});
  CHECK(seconds(collective_kind::collective_permute, x | y, 40) == pair{0, 40.0 / 5 + 7});
  CHECK(seconds(collective_kind::all_to_all, z, 0) == pair{0, 0});
}

TEST_CASE("network: by a switch each collective takes the least of its algorithms") {
  using kind = collective_kind;
  // A byte takes a picosecond, a message 1000.
  const network one_switch(1e12, 1e12, 1e-9), tapered(1e12, 1e12, 1e-9, topology::tapered);
  const auto on = [](const network& net, kind k, int devices, std::int64_t bytes) {
    const auto m = dynamic::mesh({{"x", devices}}).with({.network = net});
    const auto times = detail::times_of_collective(m.info().shape, m.info().request.network, k, detail::axis_bit(0), bytes);
    CHECK(times[0] == detail::time_of_collective(m.info().shape, m.info().request.network, k, detail::axis_bit(0),
                                                 bytes));  // plans are chosen by this time
    return times[0];
  };
  const auto takes = [&](kind k, int devices, std::int64_t bytes) { return on(one_switch, k, devices, bytes); };
  for (const kind k :
       {kind::all_gather, kind::reduce_scatter}) {  // recursive doubling and halving: log2(n) messages, (n-1)/n bytes
    CHECK(takes(k, 2, 100) == 1000 + 100);
    CHECK(takes(k, 8, 700) == 3 * 1000 + 700);
    CHECK(takes(k, 6, 500) == 3 * 1000 + 500);
    CHECK(takes(k, 1024, 1023) == 10 * 1000 + 1023);
  }
  // 4 bytes per device, counted as 2 * 4 * 7/8: each byte three times (recursive doubling)
  CHECK(takes(kind::all_reduce, 8, 7) == 3 * (1000 + 4));
  CHECK(takes(kind::all_reduce, 2, 4) == 1000 + 4);
  // 8000 bytes: reduce_scatter and all_gather (Rabenseifner)
  CHECK(takes(kind::all_reduce, 8, 14000) == 6 * 1000 + 14000);
  // 12 bytes on each of 6 devices: all bytes are sent to all devices, and each device adds; 12000 bytes are sent in
  // parts
  CHECK(takes(kind::all_reduce, 6, 20) == 3 * 1000 + 5 * 12);
  CHECK(takes(kind::all_reduce, 6, 20000) == 6 * 1000 + 20000);
  // 80 bytes per device: 12 of 8 blocks are sent in 3 messages (Bruck); 80000 bytes: 7 blocks are sent directly
  CHECK(takes(kind::all_to_all, 8, 70) == 3 * 1000 + 12 * 10);
  CHECK(takes(kind::all_to_all, 8, 70000) == 7 * 1000 + 70000);
  CHECK(takes(kind::all_to_all, 6, 50) == 3 * 1000 + (1 + 1 + 2 + 1 + 2) * 10);
  CHECK(takes(kind::all_to_all, 2, 50) == 1000 + 50);
  CHECK(takes(kind::collective_permute, 8, 40) == 1000 + 40);
  // 64 devices that exchange data take twice as long as 16; the other collectives take the same time.
  CHECK(on(tapered, kind::all_to_all, 16, 15'000'000) == 15 * 1000 + 15'000'000);
  CHECK(on(tapered, kind::all_to_all, 64, 63'000'000) == 63 * 1000 + 2 * 63'000'000);
  CHECK(on(tapered, kind::all_reduce, 64, 126'000'000) == 12 * 1000 + 126'000'000);
  CHECK(on(tapered, kind::all_gather, 64, 63'000'000) == 6 * 1000 + 63'000'000);
}

TEST_CASE("network: all_reduce over several axes scatters along the fast ones, and adds the parts along the slow ones") {
  const network two_speeds(1e12, {{"x", topology::switched, 1e12, 1e-9}, {"y", topology::switched, 1e10, 1e-9}});
  const auto m = dynamic::mesh({{"x", 8}, {"y", 2}}).with({.network = two_speeds});
  const auto takes = [&](std::int64_t bytes) {
    const auto times = detail::times_of_collective(m.info().shape, m.info().request.network, collective_kind::all_reduce,
                                                   detail::axis_bit(0) | detail::axis_bit(1), bytes);
    return std::pair{times[0], times[1]};
  };
  using pair = std::pair<std::int64_t, std::int64_t>;
  CHECK(takes(30) == pair{3 * (1000 + 16), 1000 + 16 * 100});                       // 16 bytes per device
  CHECK(takes(30000) == pair{6 * 1000 + 2 * 14000, 1000 + 2000 * 100});             // 16000
  CHECK(takes(3'000'000) == pair{6 * 1000 + 2 * 1'400'000, 1000 + 200'000 * 100});  // two devices have the same bytes in
                                                                                    // both cases
  // Along a ring messages do not pass each other, so all devices gather the whole sums.
  const network one_ring(1e12, {{"x", topology::torus, 1e12, 1e-9}});
  const auto ring = dynamic::mesh({{"x", 8}}).with({.network = one_ring});
  CHECK(detail::time_of_collective(ring.info().shape, ring.info().request.network, collective_kind::all_reduce, 1, 14) ==
        4 * 1000 + 7 * 8 / 2);
  CHECK(detail::time_of_collective(ring.info().shape, ring.info().request.network, collective_kind::all_reduce, 1, 14000) ==
        2 * (4 * 1000 + 7000 / 2));
}

TEST_CASE("network: small sums are added up, none is gathered to save messages, on a cluster") {
  const auto plan = [](auto f, std::vector<std::int64_t> shape, std::vector<std::string> sharding) {
    std::string all;
    for (const auto& c : dynamic::compile(f, dynamic::mesh({{"x", 8}, {"y", 4}}).with({.network = cluster_network}),
                                          f32(std::move(shape), std::move(sharding)))
                             .collectives())
      all += std::string(detail::name_of(c.kind)) + ' ' + std::string(c.axes.view()) + "; ";
    return all;
  };
  const auto norm = [](auto x) { return sum(x * x); };
  for (const std::int64_t n : {8, 100, 8192, 1 << 24}) CHECK(plan(norm, {n}, {"x"}) == "all_reduce x; ");
  CHECK(plan(norm, {64, 64}, {"x", "y"}) == "all_reduce x,y; ");
  CHECK(plan([](auto x) { return x / sqrt(sum(x * x)); }, {8192}, {"x"}) == "all_reduce x; ");
  CHECK(plan([](auto x) { return reduce(x, monoid::max, {0}); }, {64, 8}, {"x", ""}) == "all_reduce x; ");
}

TEST_CASE("network: what is not described is refused") {
  const std::string name = "x";  // an axis that is known at run time
  CHECK(network(1, {{name, topology::torus, 7, 0}}).link(name).bytes_per_second == 7);
  CHECK(error_of([] { static_cast<void>(network(0, {})); }) == "gspmd: network: a device computes at a positive rate");
  CHECK(error_of([] {
          static_cast<void>(network(1, {{"x", topology::torus, 0, 0}}));
        }) == "gspmd: network: axis `x` needs a positive rate and a time that is not negative");
  CHECK(error_of([] { static_cast<void>(network(1, 1, 0, topology::torus)); }) ==
        "gspmd: network: a link between all devices is `switched` or `tapered`");
  const dynamic::mesh m({{"rows", 4}});
  dynamic::builder b(m);
  b.output(b.reshard(b.input(f32({8}, {"rows"})), {""}));
  const auto p = b.compile();
  CHECK(error_of([&] { static_cast<void>(estimate(p, torus_of())); }) ==
        "gspmd: network: the mesh axis `rows` has no link; add one to the network");
  CHECK(error_of([&] { static_cast<void>(links_along(m.info(), "x", on_grid)); }) ==
        "gspmd: links_along: the mesh has no axis `x`");
}

TEST_CASE("GShard Fig. 9 and 5.3, collectives on a two-dimensional torus") {
  const auto time_of = [](int side, auto program) {
    const dynamic::mesh m({{"x", side}, {"y", side}});
    dynamic::builder b(m);
    program(b, static_cast<std::int64_t>(side) * side);
    const auto p = b.compile();
    CHECK(p.traffic().collectives == 1);
    return estimate(p, torus_of()).communication;
  };
  std::vector<double> devices, reduce, exchange, gather, shift;
  constexpr std::int64_t elems = 1 << 21;  // 8 MiB, a multiple of all squares
  for (const int side : {4, 8, 16, 32, 64}) {
    devices.push_back(side * side);
    reduce.push_back(time_of(side, [](auto& b, std::int64_t) {
      auto partial = f32({elems}, {""});
      partial.partial_axes = "x,y";
      b.output(b.reshard(b.input(partial), {""}));
    }));
    exchange.push_back(time_of(side, [](auto& b, std::int64_t n) {  // every device has 8 MiB
      b.output(b.reshard(b.input(f32({n, elems}, {"x,y", ""})), {"", "x,y"}));
    }));
    gather.push_back(time_of(side, [](auto& b, std::int64_t n) {
      b.output(b.reshard(b.input(f32({n, elems}, {"x,y", ""})), {"", ""}));
    }));
    shift.push_back(time_of(side, [](auto& b, std::int64_t n) {
      b.output(b.reshard(b.input(f32({n, elems}, {"x,y", ""})), {"y,x", ""}));
    }));
  }
  CHECK(std::abs(exponent(devices, reduce)) < 0.02);
  CHECK(exponent(devices, exchange) == doctest::Approx(0.5).epsilon(0.02));
  CHECK(exponent(devices, gather) == doctest::Approx(1).epsilon(0.02));
  CHECK(exponent(devices, shift) == doctest::Approx(0));
  // The paper measured 9 times the time for 2048 instead of 16 partitions, a factor of 128; sqrt(128) is 11.3.
  const auto rectangle = [](int x, int y) {
    const dynamic::mesh m({{"x", x}, {"y", y}});
    dynamic::builder b(m);
    b.output(b.reshard(b.input(f32({x * y, elems}, {"x,y", ""})), {"", "x,y"}));
    return estimate(b.compile(), torus_of()).communication;
  };
  const double grown = rectangle(32, 64) / rectangle(4, 4);
  CHECK(grown > 9);
  CHECK(grown < 12.1);
}

TEST_CASE("the utilisation of GSPMD Table 2, from the plans' flops") {
  struct column {
    std::int64_t layers, model, hidden, heads, x, y, batch;
    double seconds, measured;
  };
  const column columns[] = {
      {32, 8192, 65536, 128, 8, 16, 64, 5.74, 62.7},       {32, 8192, 65536, 128, 16, 32, 256, 6.25, 57.1},
      {32, 8192, 65536, 128, 32, 64, 1024, 6.30, 56.9},    {64, 8192, 65536, 128, 32, 64, 512, 6.31, 56.5},
      {128, 8192, 65536, 128, 32, 64, 256, 6.71, 54.1},    {256, 8192, 65536, 128, 32, 64, 128, 7.64, 47.5},
      {128, 16384, 131072, 256, 32, 64, 128, 12.66, 55.6},
  };
  constexpr std::int64_t length = 1024, width = 256, vocabulary = 32000;
  for (const auto& c : columns) {
    const dynamic::mesh m({{"x", static_cast<int>(c.x)}, {"y", static_cast<int>(c.y)}});
    dynamic::builder b(m);
    const auto x = b.input(f32({c.batch, length, c.model}, {"x", "", "y"}));
    const auto wo = b.input(f32({c.heads, width, c.model}, {"y", "", "x"}));
    const auto w_in = b.input(f32({c.model, c.hidden}, {"x", "y"}));
    const auto w_out = b.input(f32({c.hidden, c.model}, {"y", "x"}));
    value q[3];
    for (auto& v : q) {
      const auto w = b.input(f32({c.model, c.heads, width}, {"x", "y", ""}));
      v = mesh_split(einsum<"bsm,mnd->bsnd">(x, w), {0, -1, 1, -1});
    }
    const auto scores = softmax(einsum<"bsnd,btnd->bnst">(q[0], q[1]), 3);
    const auto mixed = mesh_split(einsum<"bnst,btnd->bsnd">(scores, q[2]), {0, -1, 1, -1});
    const auto attended = mesh_split(einsum<"bsnd,ndm->bsm">(mixed, wo), {0, -1, 1});
    const auto h = relu(mesh_split(einsum<"bsm,mh->bsh">(attended, w_in), {0, -1, 1}));
    b.output(mesh_split(einsum<"bsh,hm->bsm">(h, w_out), {0, -1, 1}));
    const auto layer = b.compile();
    const auto logits = dynamic::compile([](auto y, auto e) { return einsum<"bsm,mv->bsv">(y, e); }, m,
                                         f32({c.batch, length, c.model}, {"x", "", ""}), f32({c.model, vocabulary}, {"", "y"}));
    // The backward pass has two products for each product of the forward pass.
    const auto flops = 3 * static_cast<double>(c.layers * layer.flops_per_device() + logits.flops_per_device());
    const double utilisation = 100 * flops / 61.5e12 / c.seconds;
    CAPTURE(c.layers);
    CAPTURE(c.batch);
    CHECK(utilisation == doctest::Approx(c.measured).epsilon(0.025));
  }
}

namespace {

/// A column of GSPMD's Table 2, on a mesh x by y.
struct wide_model {
  int layers, x, y;
  std::int64_t batch, model, hidden, heads, width;
};

/// A training step with gradients and update, or only its forward pass.
dynamic::program transformer(const wide_model& c, int layers, bool is_training, const dynamic::mesh& on) {
  constexpr std::int64_t length = 1024, vocabulary = 32000;
  const auto bf = [](std::vector<std::int64_t> shape, std::vector<std::string> sharding) {
    return dynamic::input<bf16>(std::move(shape), std::move(sharding));
  };
  dynamic::builder b(on);
  std::vector<value> weights;
  const auto weight = [&](std::vector<std::int64_t> shape, std::vector<std::string> sharding) {
    return weights.emplace_back(b.input(bf(std::move(shape), std::move(sharding))));
  };
  value x = b.input(bf({c.batch, length, c.model}, {"x", "", "y"}));
  for (int layer = 0; layer < layers; ++layer) {
    value q[3];
    for (auto& v : q)
      v = mesh_split(einsum<"bsm,mnd->bsnd">(x, weight({c.model, c.heads, c.width}, {"x", "y", ""})), {0, -1, 1, -1});
    const auto scores = softmax(einsum<"bsnd,btnd->bnst">(q[0], q[1]), 3);
    const auto mixed = mesh_split(einsum<"bnst,btnd->bsnd">(scores, q[2]), {0, -1, 1, -1});
    x = x + mesh_split(einsum<"bsnd,ndm->bsm">(mixed, weight({c.heads, c.width, c.model}, {"y", "", "x"})), {0, -1, 1});
    const auto h = relu(mesh_split(einsum<"bsm,mh->bsh">(x, weight({c.model, c.hidden}, {"x", "y"})), {0, -1, 1}));
    x = x + mesh_split(einsum<"bsh,hm->bsm">(h, weight({c.hidden, c.model}, {"y", "x"})), {0, -1, 1});
  }
  const auto loss = sum(log_softmax(einsum<"bsm,mv->bsv">(x, weight({c.model, vocabulary}, {"x", "y"})), 2));
  if (!is_training) b.output(loss);
  const auto gradients = is_training ? grad(loss, weights) : std::vector<value>{};
  for (std::size_t k = 0; k < gradients.size(); ++k) b.output(weights[k] - 0.01 * gradients[k]);
  return b.compile();
}

/// The paper's devices: TPUv3 cores, two share 900 GB/s of memory bandwidth. The whole machine, 32 x 32 chips, is a
/// torus. In a part of the machine the ends are not connected, so messages go in one direction and take longer paths.
network tpu_v3(int devices) {
  const bool is_whole = devices == 2048;
  const double rate = is_whole ? bandwidth : bandwidth / 2, latency = is_whole ? 1e-6 : 2e-6;
  return network(61.5e12, {{"x", topology::torus, rate, latency}, {"y", topology::torus, rate, latency}}).with_memory(450e9);
}

}  // namespace

TEST_CASE("training steps of GSPMD Table 2, of all layers, have the paper's collectives, and on a cluster too") {
  for (const wide_model& c :
       {wide_model{32, 8, 16, 64, 8192, 65536, 128, 256}, wide_model{256, 32, 64, 128, 8192, 65536, 128, 256}}) {
    const dynamic::mesh devices({{"x", c.x}, {"y", c.y}});
    const auto net = tpu_v3(c.x * c.y);
    const auto training = transformer(c, c.layers, true, devices.with({.network = net})),
               forward = transformer(c, c.layers, false, devices.with({.network = net}));
    // Layer by layer: weights are gathered along x and their gradients scattered; the same holds for activations along
    // y.
    int gathered = 0, scattered = 0;
    for (const auto& s : training.collectives()) {
      gathered += s == all_gather<"x"> ? 1 : 0;
      scattered += s == reduce_scatter<"x"> ? 1 : 0;
    }
    CHECK(gathered == 6 * c.layers + 1);
    CHECK(scattered == 6 * c.layers + 1);
    CHECK(training.traffic().in(collective_kind::all_to_all).collectives == 0);
    CAPTURE(c.layers);
    // Plans for a cluster without other information, and without a network, are as good.
    for (const auto& other : {devices.with({.network = cluster_network}), devices}) {
      CHECK(estimate(transformer(c, c.layers, true, other), net).total() <= 1.1 * estimate(training, net).total());
      CHECK(estimate(transformer(c, c.layers, false, other), net).total() <= 1.1 * estimate(forward, net).total());
    }
  }
}

TEST_CASE("network: an operator takes what its arithmetic takes, or its memory") {
  const network net = network(1e12, 1e12, 0).with_memory(1e11);  // a flop takes a picosecond, a byte ten
  CHECK(net.memory_bytes_per_second() == 1e11);
  CHECK(network(1e12, 1e12, 0).memory_bytes_per_second() == 1e11);
  const dynamic::mesh m({{"x", 2}});
  const auto picoseconds = [&](auto f, auto... inputs) {
    return estimate(dynamic::compile(f, m.with({.network = net}), inputs...), net).computation * 1e12;
  };
  const auto about = [](double t) { return doctest::Approx(t).epsilon(1e-9); };
  // A device has 32 rows, 48 columns and 256 terms; each counts 16 more.
  CHECK(picoseconds([](auto a, auto b) { return einsum<"ik,kj->ij">(a, b); }, f32({64, 256}, {"x", ""}),
                    f32({256, 48}, {"", ""})) == about(2 * (32 + 16) * (48 + 16) * (256 + 16)));
  // A product with a vector, 4 bytes for 2 flops: the matrix and the vector are read, and the result is written.
  CHECK(picoseconds([](auto a, auto b) { return einsum<"ik,k->i">(a, b); }, f32({64, 256}, {"x", ""}), f32({256}, {""})) ==
        about(10 * 4 * (32 * 256 + 256 + 32)));
  // One loop reads and writes once, regardless of its flops; a sum only reads. Broadcast operands cost nothing.
  const auto x = f32({4096}, {"x"});
  CHECK(picoseconds([](auto v) { return relu(v); }, x) == about(10 * 4 * 2 * 2048));
  CHECK(picoseconds([](auto v) { return relu(exp(v) * 2.0); }, x) == about(10 * 4 * 2 * 2048 + 2048));
  CHECK(picoseconds([](auto v) { return sum(v); }, x) == about(10 * (4 * 2048 + 4)));
  CHECK(picoseconds([](auto v) { return v - sum(v); }, x) == about(10 * (4 * 2048 + 4) + 10 * 4 * 2 * 2048));
  CHECK(error_of([&] { static_cast<void>(net.with_memory(0)); }) == "gspmd: network: the memory of a device has a positive rate");
}

namespace {
// Listed once and 3 times as long. Both bodies are listed, and one counts.
constexpr auto repeated = [](auto x) {
  return fori_loop(
      3,
      [](value i, value h) {
        return cond(
            i < std::int64_t{1}, [](value v) { return v * sum(v); }, [](value v) { return v / sum(v); }, h);
      },
      x);
};
using repeated_step = compile<repeated, mesh<axis<"x", 8>>, input<double, shape<8'000'000>, split<"x">>>;
constexpr auto two_times = collective_times<repeated_step>(switched);
static_assert(two_times.size() == 2 && two_times[0].times == 3 && two_times[1].times == 3);
constexpr double time_of_three = estimate<repeated_step>(switched).communication - 3 * planned.communication;
static_assert(time_of_three < 1e-12 && time_of_three > -1e-12);
static_assert(repeated_step::traffic.collectives == 3);
}  // namespace

TEST_CASE("network: loops take as often as they run, a conditional as its dearer body") {
  const dynamic::mesh m({{"x", 8}, {"y", 4}});
  const network net(1, {{"x", topology::switched, 1, 0}, {"y", topology::switched, 2, 0}});
  // A sum over x sends 7 bytes in 7 s; a sum over y sends 6 bytes in 3 s.
  const auto p = dynamic::compile(
      [](auto a, auto b) {
        const auto times = [](value v, value by, std::int64_t n) {
          return fori_loop(
              n, [&](value, value h) { return h * sum(h) + sum(by); }, v);
        };
        const value s = reduce(b, monoid::max);  // y
        return fori_loop(
            10,
            [&](value i, value h) {
              return cond(
                  i < std::int64_t{4}, [&](value v) { return times(v, b, 2) * s; }, [](value v) { return v * sum(v); }, h);
            },
            a);
      },
      m, dynamic::input<float>({8}, {"x"}), dynamic::input<float>({8}, {"y"}));
  std::string all;
  double total = 0;
  for (const auto& c : collective_times(p, net)) {
    all += std::string(detail::name_of(c.what.kind)) + ' ' + std::string(c.what.axes.view()) + ' ' +
           std::to_string(static_cast<int>(c.seconds)) + ' ' + std::to_string(c.times) + "; ";
    total += c.seconds * static_cast<double>(c.times);
  }
  // The sum of `by` is equal in both iterations of the inner loop, and is computed before it.
  CHECK(all == "all_reduce y 3 10; all_reduce x 7 20; all_reduce y 3 10; all_reduce x 7 10; ");
  const auto t = estimate(p, net);
  CHECK(total - t.communication == 10 * 7);  // of the cheaper body
  CHECK(t.over[0] == 20 * 7);
  CHECK(t.over[1] == (10 + 10) * 3);
  CHECK(t.over[0] + t.over[1] == t.communication);
}

// One contracting dim is split by x in one operand and by y in the other operand. The operand on the slow axis stays.
namespace {
constexpr auto product = [](auto a, auto b) { return einsum<"ij,jk->ik">(a, b); };
constexpr network fast_x(1e15, {{"x", topology::torus, 100e9, 1e-6}, {"y", topology::switched, 1e9, 1e-6}});
constexpr network fast_y(1e15, {{"x", topology::switched, 1e9, 1e-6}, {"y", topology::torus, 100e9, 1e-6}});
using grid = mesh<axis<"x", 4>, axis<"y", 4>>;
template <options Options>
using product_with = compile<product, grid, with<Options>, input<float, shape<512, 512>, split<_, "x">>,
                             input<float, shape<512, 512>, split<"y", _>>>;
using step_fast_x = product_with<options{.network = fast_x}>;
using step_fast_y = product_with<options{.network = fast_y}>;
static_assert(step_fast_x::accepted && step_fast_y::accepted);
static_assert(step_fast_x::traffic.over("y").bytes < step_fast_x::traffic.over("x").bytes);
static_assert(step_fast_y::traffic.over("x").bytes < step_fast_y::traffic.over("y").bytes);
static_assert(estimate<step_fast_x>(fast_x).total() < estimate<step_fast_y>(fast_x).total());
static_assert(estimate<step_fast_y>(fast_y).total() < estimate<step_fast_x>(fast_y).total());
}  // namespace

TEST_CASE("options.network: the speeds of the axes decide what crosses which, at run time as when compiling") {
  const dynamic::mesh m({{"x", 4}, {"y", 4}});
  const auto plan_on = [](const dynamic::mesh& on) {
    return dynamic::compile(product, on, f32({512, 512}, {"", "x"}), f32({512, 512}, {"y", ""}));
  };
  const auto on_x = plan_on(m.with({.network = fast_x})), on_y = plan_on(m.with({.network = fast_y}));
  CHECK(on_x.traffic().over("y").bytes == step_fast_x::traffic.over("y").bytes);
  CHECK(on_x.traffic().over("x").bytes == step_fast_x::traffic.over("x").bytes);
  CHECK(on_y.traffic().over("y").bytes == step_fast_y::traffic.over("y").bytes);
  CHECK(on_y.traffic().over("x").bytes == step_fast_y::traffic.over("x").bytes);
  for (const auto* net : {&fast_x, &fast_y})
    CHECK(estimate(plan_on(m.with({.network = *net})), *net).total() <= estimate(plan_on(m), *net).total());
  // arrays of the mesh itself
  std::vector<float> a(512 * 512, 1), b(512 * 512, 2);
  const auto c = run<step_fast_x>(simulated{}, a, b);
  CHECK(c[0] == 1024);
  const std::string unknown = error_of([&] { static_cast<void>(dynamic::mesh({{"z", 2}}).with({.network = fast_x})); });
  CHECK(unknown == "gspmd: network: the mesh axis `z` has no link; add one to the network");
}

TEST_CASE("one switch: a message costs what it costs, on any axis") {
  const dynamic::mesh m({{"x", 4}, {"y", 2}});
  const network slow(1e12, 10e9, 1e-3), prompt(1e12, 10e9, 0);
  const auto reduced = [&](const network& net) {
    return dynamic::compile([](auto a, auto b) { return reshard(einsum<"ij,jk->ik">(a, b), split<_, _>{}); },
                            m.with({.network = net}), f32({64, 64}, {"", "x"}), f32({64, 64}, {"x", ""}));
  };
  // The devices along y may each reduce one half of a partial sum over x: fewer bytes, one more message.
  CHECK(reduced(slow).traffic().messages <= reduced(prompt).traffic().messages);
  CHECK(reduced(slow).traffic().bytes >= reduced(prompt).traffic().bytes);
  for (const auto* net : {&slow, &prompt}) {
    const auto t = estimate(reduced(*net), *net);
    CHECK(t.communication <= estimate(reduced(slow), *net).communication);
    CHECK(t.communication <= estimate(reduced(prompt), *net).communication);
  }
}

TEST_CASE("GSPMD Table 1, finalized, on a torus: the paper's collectives, however large the mesh") {
  struct column {
    std::int64_t x, y, batch, messages;
  };
  const auto layer = [](const dynamic::mesh& m, std::int64_t batch) {
    constexpr std::int64_t length = 1024, model = 8192, hidden = 65536, heads = 128, width = 256;
    dynamic::builder b(m);
    const auto x = b.input(f32({batch, length, model}, {"x", "", "y"}));
    const auto wo = b.input(f32({heads, width, model}, {"y", "", "x"}));
    const auto w_in = b.input(f32({model, hidden}, {"x", "y"}));
    const auto w_out = b.input(f32({hidden, model}, {"y", "x"}));
    value q[3];
    for (auto& v : q)
      v = mesh_split(einsum<"bsm,mnd->bsnd">(x, b.input(f32({model, heads, width}, {"x", "y", ""}))), {0, -1, 1, -1});
    const auto scores = softmax(einsum<"bsnd,btnd->bnst">(q[0], q[1]), 3);
    const auto mixed = mesh_split(einsum<"bnst,btnd->bsnd">(scores, q[2]), {0, -1, 1, -1});
    const auto attended = mesh_split(einsum<"bsnd,ndm->bsm">(mixed, wo), {0, -1, 1});
    const auto h = relu(mesh_split(einsum<"bsm,mh->bsh">(attended, w_in), {0, -1, 1}));
    b.output(mesh_split(einsum<"bsh,hm->bsm">(h, w_out), {0, -1, 1}));
    return b.compile();
  };
  for (const auto& c : {column{8, 16, 64, 102}, {16, 32, 256, 214}, {32, 64, 1024, 438}}) {
    const dynamic::mesh m({{"x", c.x}, {"y", c.y}});
    const network net = torus_of(1e-6);
    const auto p = layer(m.with({.network = net}), c.batch);
    CAPTURE(c.x);
    CHECK(p.traffic().in(collective_kind::all_gather).collectives == 8);
    CHECK(p.traffic().in(collective_kind::reduce_scatter).collectives == 2);
    CHECK(p.traffic().collectives == 10);
    CHECK(p.traffic().messages == c.messages);
    const double seconds = estimate(p, torus_of(1e-6)).communication;
    CHECK(seconds < 0.032);
    for (const auto& other : {m.with({.network = cluster_network}), m})
      CHECK(estimate(layer(other, c.batch), torus_of(1e-6)).communication <= 1.1 * seconds);
  }
}
