// SPDX-License-Identifier: Apache-2.0
// labels: threads
// group: map
#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/session.hpp>
#include <gspmd/gspmd.hpp>

#include "support/error_of.hpp"

// limit_gather: the shards of an einsum's operand rotate around a ring of devices.

using namespace gspmd;

namespace {

using caught::error_of;
constexpr std::int64_t unlimited = -1;

dynamic::mesh ring_of(std::int64_t n) { return dynamic::mesh({{"x", n}}); }

dynamic::program product(const dynamic::mesh& m, const char* equation, const dynamic::input_spec& a, const dynamic::input_spec& b,
                         const std::vector<std::string>& result, std::int64_t limit) {
  dynamic::builder p(m);
  const value x = p.input(a), w = p.input(b);
  value y = einsum(equation, x, w);
  if (limit != unlimited) y = limit_gather(y, limit);
  p.output(p.reshard(y, result));
  return p.compile();
}
dynamic::input_spec f32(std::vector<std::int64_t> shape, std::vector<std::string> split) {
  return dynamic::input<float>(std::move(shape), std::move(split));
}
}  // namespace

TEST_CASE("the bytes and messages of the gather, in the memory of two shards") {  // GShard Table 4, last rows
  for (const std::int64_t n : {2, 3, 4, 8, 16, 256}) {
    CAPTURE(n);
    const auto m = ring_of(n);
    const std::int64_t columns = 64, shard = 256 * columns * 4;
    for (const bool free : {true, false}) {
      const auto w = free ? f32({256, columns * n}, {"", "x"}) : f32({256 * n, columns}, {"x", ""});
      const auto x = f32({free ? 256 : 256 * n, 4 * columns * n * n}, {"", "x"});  // far larger, so w moves
      const auto made = [&](std::int64_t limit) {
        return product(m, free ? "db,df->fb" : "db,df->bf", x, w,
                       free ? std::vector<std::string>{"", "x"} : std::vector<std::string>{"x", ""}, limit);
      };
      const auto gathered = made(unlimited), round = made(0), both = made(4 * shard);
      CHECK(gathered.collectives() == std::vector<collective>{all_gather<"x">});
      CHECK(round.collectives() == std::vector<collective>{collective_permute<"x">});
      CHECK(round.traffic().bytes == (n - 1) * shard);
      CHECK(round.traffic().bytes == gathered.traffic().bytes);
      CHECK(both.traffic().bytes == gathered.traffic().bytes);
      CHECK(round.traffic().messages == n - 1);
      CHECK(round.traffic().messages == gathered.traffic().messages);
      CHECK(round.flops_per_device() == gathered.flops_per_device());
      // Nothing else is in the arena: parts of x and y are whole rows and are used in place.
      CHECK(gathered.view().arena_bytes == n * shard);
      CHECK(round.view().arena_bytes == (n == 2 ? 1 : 2) * shard);
      if (n > 4) CHECK(both.view().arena_bytes == 4 * shard);
      else CHECK(both.collectives() == gathered.collectives());  // the gather is within the limit
      CHECK(round.view().steps.size() == 1);                     // for any number of devices
    }
  }
}

TEST_CASE("what fits may be gathered") {
  const auto m = ring_of(4);
  const auto x = f32({256, 16}, {"x", ""}), w = f32({16, 32}, {"", "x"});
  const std::int64_t bytes = 16 * 32 * 4;
  CHECK(product(m, "bd,df->bf", x, w, {"x", ""}, bytes) == product(m, "bd,df->bf", x, w, {"x", ""}, unlimited));
  CHECK(product(m, "bd,df->bf", x, w, {"x", ""}, bytes - 1).collectives() == std::vector<collective>{collective_permute<"x">});
  const auto one = ring_of(1);
  CHECK(product(one, "bd,df->bf", x, w, {"x", ""}, 0).traffic().collectives == 0);
}

TEST_CASE("every kind of letter, both ways and one way, on every backend") {
  struct one {
    const char* equation;
    std::vector<std::int64_t> a, b;
    std::vector<std::string> split_a, split_b, result;
  };
  const std::vector<one> list = {
      {"bd,df->bf", {60, 5}, {5, 7}, {"x", ""}, {"", "x"}, {"x", ""}},                       // free
      {"bd,df->bf", {80, 5}, {5, 16}, {"x", ""}, {"", "x"}, {"x", ""}},                      // evenly
      {"bd,df->fb", {80, 5}, {5, 16}, {"x", ""}, {"", "x"}, {"", "x"}},                      // parts of the result are rows
      {"df,bd->bf", {5, 7}, {60, 5}, {"", "x"}, {"x", ""}, {"x", ""}},                       // the first operand rotates
      {"bd,df->bf", {60, 11}, {11, 7}, {"x", ""}, {"x", ""}, {"x", ""}},                     // contracting
      {"bd,df->bf", {600, 3}, {3, 70}, {"x", ""}, {"x", ""}, {"x", ""}},                     // fewer rows than devices
      {"bd,edf->bf", {99, 5}, {9, 5, 7}, {"x", ""}, {"x", "", ""}, {"x", ""}},               // summed in one operand
      {"bcd,bdf->bcf", {9, 33, 5}, {9, 5, 7}, {"", "x", ""}, {"x", "", ""}, {"", "x", ""}},  // batch
      {"bd,df->bf", {1, 5}, {5, 1}, {"x", ""}, {"", "x"}, {"x", ""}},
      {"bd,df->bf", {0, 5}, {5, 8}, {"x", ""}, {"", "x"}, {"x", ""}},
  };
  int windows = 0;
  for (const std::int64_t n : {2, 3, 4, 5, 8})
    for (const auto& c : list)
      for (const std::int64_t limit : {0, 1200}) {
        CAPTURE(n);
        CAPTURE(c.equation);
        CAPTURE(limit);
        std::vector<double> a, b;
        const auto fill = [](std::vector<double>& v, const std::vector<std::int64_t>& shape, int step) {
          std::int64_t elems = 1;
          for (const auto e : shape) elems *= e;
          for (std::int64_t i = 0; i < elems; ++i) v.push_back(static_cast<double>(i * step % 11 - 5));
        };
        fill(a, c.a, 7);
        fill(b, c.b, 5);
        const auto alone =
            product(ring_of(1), c.equation, dynamic::input<double>(c.a), dynamic::input<double>(c.b), c.result, unlimited);
        const auto p = product(ring_of(n), c.equation, dynamic::input<double>(c.a, c.split_a),
                               dynamic::input<double>(c.b, c.split_b), c.result, limit);
        windows += p.traffic().in(collective_kind::collective_permute).collectives > 0 ? 1 : 0;
        const auto wanted = alone.run(serial{}, a, b);
        CHECK(p.run(simulated{}, a, b)[0].bytes == wanted[0].bytes);
        CHECK(p.run(threads{}, a, b)[0].bytes == wanted[0].bytes);
      }
  CHECK(windows > 50);
}

TEST_CASE("several axes: one ring over all of them, or what is small is gathered") {
  const dynamic::mesh m({{"x", 2}, {"y", 3}}, {3, 1, 5, 0, 4, 2});
  std::vector<float> a(120 * 10), b(10 * 13);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 7 % 11) - 5;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 5 % 13) - 6;
  const auto wanted = product(ring_of(1), "bd,df->bf", f32({120, 10}, {"", ""}), f32({10, 13}, {"", ""}), {"", ""}, unlimited);
  for (const auto& split : {std::vector<std::string>{"", "x,y"}, {"", "y,x"}, {"x", "y"}, {"y", "x"}, {"y,x", ""}})
    for (const std::int64_t limit : {0, 200, 400}) {
      CAPTURE(split[0]);
      CAPTURE(split[1]);
      CAPTURE(limit);
      const auto p = product(m, "bd,df->bf", f32({120, 10}, {"x,y", ""}), f32({10, 13}, split), {"x,y", ""}, limit);
      CHECK(p.traffic().in(collective_kind::all_gather).collectives * (limit == 0 ? 1 : 0) == 0);
      CHECK(p.traffic().in(collective_kind::collective_permute).collectives == 1);
      const auto part = product(m, "bd,df->bf", f32({120, 10}, {"x", ""}), f32({10, 13}, split), {"x", ""}, limit);
      for (const auto& q : {p, part}) CHECK(q.run(simulated{}, a, b)[0].bytes == wanted.run(serial{}, a, b)[0].bytes);
    }
}

// Every device adds the shards in their order of arrival. If several devices held the same sum, their sums would
// differ.
TEST_CASE("what devices decide by is one number: no ring adds up a result that several of them hold") {
  const auto m = ring_of(4);
  const auto made = [&](const dynamic::input_spec& a, const dynamic::input_spec& w, const auto& after) {
    dynamic::builder p(m);
    const value x = p.input(a), y = limit_gather(einsum("bd,df->bf", x, p.input(w)), 0);
    p.output(after(x, p.reshard(y, {"", ""})));
    return p.compile();
  };
  const auto last_bits = [](value, value y) {
    return map([](float v) { return static_cast<float>(std::bit_cast<std::uint32_t>(v) & 1U); }, y);
  };
  const auto chosen = [&](value x, value y) {  // a branch with a collective, and one without
    const value odd = map([](float n) { return std::fmod(n, 2.0F); }, sum(last_bits(x, y))) > 0.5;
    return cond(
        odd, [](value b, value) { return sum(b); }, [](value, value c) { return sum(c); }, x, y);
  };
  const auto a = f32({1, 400}, {"", "x"}), w = f32({400, 640}, {"", ""});
  std::vector<float> x(400), weights(400 * 640);
  std::uint32_t state = 1;
  for (auto* list : {&x, &weights})
    for (auto& v : *list) v = static_cast<float>((state = state * 1664525U + 1013904223U) >> 8) / (1 << 24) - 0.5F;

  const auto step = made(a, w, last_bits);
  CHECK(step.traffic().bytes == 3 * (100 + 160) * 4);  // around a ring that splits the result, which is gathered
  simulated_communicator comm(4);
  dynamic::session held(step);
  std::vector<std::vector<float>> bits(4, std::vector<float>(640));
  std::vector<const void*> in;
  std::vector<void*> out;
  for (std::size_t d = 0; d < 4; ++d) {
    in.insert(in.end(), {x.data() + 100 * d, weights.data()});
    out.push_back(bits[d].data());
  }
  held.run(comm, in.data(), out.data());
  CHECK(bits == std::vector<std::vector<float>>(4, bits[0]));

  const auto both_ways = made(a, w, chosen);
  CHECK(error_of([&] { both_ways.run(simulated{}, x, weights); }) == "no error");
  CHECK(error_of([&] { both_ways.run(threads{}, x, weights); }) == "no error");

  const auto counted = made(dynamic::input<std::int32_t>({1, 400}, {"", "x"}), dynamic::input<std::int32_t>({400, 640}, {"", ""}),
                            [](value, value y) { return y; });
  CHECK(counted.traffic().bytes == 3 * 100 * 4);  // sums of integers are equal in any order
}

TEST_CASE("in a loop, and in gradients") {
  const auto m = ring_of(4);
  dynamic::builder p(m);
  const value x = p.input(f32({256, 12}, {"x", ""})), w = p.input(f32({12, 12}, {"", "x"}));
  const auto body = [&](value, value h) { return p.reshard(limit_gather(einsum("bd,df->bf", h, w), 0), {"x", ""}) * 0.25; };
  p.output(fori_loop(3, body, x));
  const auto step = p.compile();
  CHECK(step.traffic().collectives == 3);
  CHECK(step.traffic().bytes == 3 * 3 * 12 * 3 * 4);

  const auto loss = [](value a, value b) { return sum(tanh(limit_gather(einsum<"bd,df->bf">(a, b), 0))); };
  const auto both = [&](value a, value b) { return grad(loss(a, b), std::tuple{a, b}); };
  const auto unbounded = [](value a, value b) { return grad(sum(tanh(einsum<"bd,df->bf">(a, b))), std::tuple{a, b}); };
  const auto bounded_step = dynamic::compile(both, m, f32({8, 12}, {"x", ""}), f32({12, 12}, {"", "x"}));
  const auto step_of_gather = dynamic::compile(unbounded, m, f32({8, 12}, {"x", ""}), f32({12, 12}, {"", "x"}));
  CHECK(bounded_step.traffic().in(collective_kind::all_gather).collectives == 0);
  CHECK(step_of_gather.traffic().in(collective_kind::all_gather).collectives > 0);
  std::vector<float> a(8 * 12), b(12 * 12);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 7 % 11) / 16 - 0.25F;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 5 % 13) / 16 - 0.375F;
  const auto got = bounded_step.run(threads{}, a, b), wanted = step_of_gather.run(simulated{}, a, b);
  for (std::size_t k = 0; k < 2; ++k)
    for (std::size_t i = 0; i < (k == 0 ? a : b).size(); ++i)
      CHECK(got[k].data<float>()[i] == doctest::Approx(wanted[k].data<float>()[i]).epsilon(1e-5));
}

TEST_CASE("explain says how it goes round") {
  const auto text = [](std::int64_t n, std::int64_t limit) {
    return dynamic::explain(
        product(ring_of(n), "bd,df->bf", f32({256, 16}, {"x", ""}), f32({16, 32}, {"", "x"}), {"x", ""}, limit));
  };
  CHECK(text(4, 0).find("collective_permute over x of #1: [_, x], shard by shard, not gathered: 3 times round the ring, "
                        "sends 1536 bytes") != std::string::npos);
  CHECK(text(8, 1024).find("4 times round the ring, both ways, sends 1792 bytes") != std::string::npos);
  CHECK(text(4, 0).find("in 1 collective_permute") != std::string::npos);
}

TEST_CASE("refusals") {
  const auto m = ring_of(4);
  CHECK(error_of([&] {
          dynamic::builder p(m);
          const value x = p.input(f32({8, 8}, {"x", ""}));
          p.output(limit_gather(relu(x), 0));
          static_cast<void>(p.compile());
        }).find("it takes the result of an einsum of two operands, not of relu") != std::string::npos);
  CHECK(error_of([&] {
          dynamic::builder p(m);
          const value x = p.input(f32({8, 8}, {"x", ""}));
          p.output(limit_gather(einsum("ab,bc->ac", x, x), -5));
          static_cast<void>(p.compile());
        }).find("the limit is negative") != std::string::npos);
}
