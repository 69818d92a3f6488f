// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive threads
// group: random
// Small collectives over the same axes become one message; see detail/passes/emit/join_collectives.hpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "support/graph_builder.hpp"
#include "support/run_random.hpp"
#include "support/traced.hpp"

namespace {

using namespace gspmd;
namespace ir = gspmd::detail;

/// Returns the plan of a graph without joined collectives.
ir::plan apart(const ir::graph& g, const ir::mesh_shape& mesh) {
  ir::step_state steps(g, mesh, {}, layouts::emitted(g, mesh));
  ir::scheduler(steps).run();
  ir::plan result = std::move(steps.out);
  for (const auto& n : g.nodes) result.nodes.push_back({ir::in_words(n.op), n.at, -1, 0, {}, n.region});
  ir::memory_planner memory(result, std::move(steps.base));
  memory.run();
  ir::note_traffic(result);
  return result;
}

struct joined_count {
  std::uint64_t messages = 0, values = 0, in_bodies = 0;
  std::int64_t bytes = 0;  // bytes that are held longer
};

/// Returns true for a message whose parts are not contiguous.
bool is_joined_apart(const ir::plan_step& s) {
  return s.operands.count > 1 && !ir::is_mapped(s) &&
         (ir::is<ir::kernels::move_together>(s) || ir::is<ir::kernels::combine_together>(s));
}

/// Checks that the values of each message are contiguous in the arena, are used in place, or are few.
joined_count check_places(const ir::plan_view& view) {
  joined_count result;
  for (const auto& s : view.steps) {
    if (is_joined_apart(s)) {
      ++result.messages;
      result.values += static_cast<std::uint64_t>(s.operands.count);
      result.in_bodies += s.times > 1 ? 1 : 0;
      REQUIRE(s.operands.count == s.results.count);
      REQUIRE(s.operands.count <= ir::most_moved_together);
      std::int64_t largest = 0;
      for (int k = 0; k < s.operands.count; ++k) {
        std::int64_t size = 0;
        for (const auto* v : {&view.operand(s, k), &view.result(s, k)}) {
          REQUIRE(v->type == s.type);
          result.bytes += (ir::elements(v->local) * ir::bytes_of(v->type) + 63) / 64 * 64;
          size = std::max(size, ir::elements(v->local) * ir::bytes_of(v->type));
        }
        largest += size;
      }
      REQUIRE(largest <= ir::most_joined_bytes_in_all);
    }
    if (!ir::is<ir::kernels::combine>(s) || s.operands.count < 2) continue;
    ++result.messages;
    result.values += static_cast<std::uint64_t>(s.operands.count);
    result.in_bodies += s.times > 1 ? 1 : 0;
    std::int64_t at = view.operand(s, 0).where.at, bytes = 0;
    for (int k = 0; k < s.operands.count; ++k) {
      const auto& from = view.operand(s, k);
      const auto& to = view.result(s, k);
      REQUIRE(from.where == to.where);
      REQUIRE(to.where.where == ir::memory_place::kind::arena);
      REQUIRE(to.where.at == at);
      REQUIRE(from.type == s.type);
      REQUIRE(to.type == s.type);
      const auto size = ir::elements(to.local) * ir::bytes_of(to.type);
      REQUIRE(size <= ir::most_joined_bytes);
      at += size;
      bytes += size;
    }
    REQUIRE(bytes <= ir::most_joined_bytes_in_all);
    result.bytes += (bytes + 63) / 64 * 64;
  }
  return result;
}

/// A random program with many sums over the batch. Most of the sums are reduced over the mesh. All numbers are whole,
/// so sums are exact.
class sums_program {
 public:
  sums_program(std::uint64_t seed, const dynamic::mesh& m, bool is_split) : random_(seed), b_(m) {
    b_.graph().allow_replication = true;
    for (int k = 0; k < 2; ++k) {
      const std::string named = random_.chance(80) ? "x" : "y";
      const std::string axis = is_split ? named : "";
      batches_.push_back(b_.input(dynamic::input<std::int32_t>({6, width}, {axis, ""})));
    }
    for (int k = 0; k < 2; ++k) weights_.push_back(b_.input(dynamic::input<std::int32_t>({width, width}, {"", ""})));
    body(random_.between(4, 25), true);
    for (std::size_t k = 0; k < weights_.size(); ++k)
      if (random_.chance(50)) b_.output(weights_[k]);
    b_.output(random_.one_of(batches_));
  }
  [[nodiscard]] dynamic::program compile() const { return b_.compile(); }
  [[nodiscard]] const ir::graph& graph() { return b_.graph(); }

 private:
  static constexpr std::int64_t width = 4;
  value small(value v) { return max(min(v, 3), -3); }

  void body(int operators, bool may_loop) {
    for (int i = 0; i < operators; ++i) {
      const int what = random_.between(0, 99);
      const value w = random_.one_of(weights_), v = random_.one_of(weights_);
      const value x = random_.one_of(batches_), y = random_.one_of(batches_);
      if (what < 45) {
        value g = einsum("bd,bf->df", x, y);
        if (random_.chance(20)) g = reshape(reshape(g, {width * width}), {width, width});
        weights_.push_back(random_.chance(15) ? g + 0 : small(g));
        if (random_.chance(10)) weights_.push_back(small(g * w));
      } else if (what < 55) {
        const value s = sum(x, {0});  // a bias
        weights_.push_back(small(w + broadcast_to_rows(s)));
      } else if (what < 70) {
        weights_.push_back(small(w - 2 * v));
      } else if (what < 80) {
        batches_.push_back(small(einsum("bd,df->bf", x, w)));
      } else if (what < 87) {
        batches_.push_back(max(x, y - 1));
      } else if (what < 92) {
        weights_.push_back(transpose(w, {1, 0}));
      } else if (what < 94) {
        weights_.push_back(small(einsum("ab,bc->ac", w, v)));
      } else if (may_loop) {
        const auto outside_weights = weights_;
        const auto outside_batches = batches_;
        const auto carried = fori_loop(
            random_.between(0, 3),
            [&](value, value a, value b) {
              weights_ = outside_weights, batches_ = outside_batches;
              weights_.push_back(a);
              weights_.push_back(b);
              body(random_.between(2, 8), false);
              value next = a;
              for (std::size_t k = outside_weights.size() + 2; k < weights_.size(); ++k) next = small(next - weights_[k]);
              return std::tuple{next, random_.one_of(weights_)};
            },
            w, v);
        weights_ = outside_weights, batches_ = outside_batches;
        weights_.push_back(std::get<0>(carried));
        weights_.push_back(std::get<1>(carried));
      }
    }
  }
  value broadcast_to_rows(value s) { return broadcast_in_dim(s, {width, width}, {1}); }

  reference::random_numbers random_;
  dynamic::builder b_;
  std::vector<value> batches_, weights_;
};

}  // namespace

TEST_CASE("sums over a batch: joined messages give the same numbers, send the same bytes, fewer times") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs(10000) / 10;
  joined_count all;
  std::uint64_t larger = 0;
  std::vector<std::vector<std::int32_t>> data;
  for (const std::size_t elems : {24U, 24U, 16U, 16U}) {
    data.emplace_back(elems);
    for (std::size_t i = 0; i < elems; ++i) data.back()[i] = static_cast<std::int32_t>((i * 7 + data.size()) % 5) - 2;
  }
  std::vector<const void*> inputs;
  for (const auto& d : data) inputs.push_back(d.data());
  for (auto seed = first; seed < first + count; ++seed) {
    const dynamic::mesh one(std::vector<dynamic::mesh::axis>{{"x", 1}, {"y", 1}});
    const auto wanted = sums_program(seed, one, false).compile().run(serial{}, inputs);
    for (const auto& sizes : {std::vector<std::int64_t>{2, 1}, {2, 2}, {3, 2}, {5, 1}}) {
      const dynamic::mesh m({{"x", sizes[0]}, {"y", sizes[1]}});
      sums_program made(seed, m, true);
      const auto program = made.compile();
      INFO("seed ", seed, ", mesh ", sizes[0], "x", sizes[1]);
      const auto joined = check_places(program.view());
      const auto plain = apart(ir::canonical_order(made.graph()), m.info().shape);
      const ir::plan_view plain_view(plain);
      all.messages += joined.messages, all.values += joined.values, all.in_bodies += joined.in_bodies;
      CHECK(ir::count_traffic(program.view()).bytes <= ir::count_traffic(plain_view).bytes);
      CHECK(ir::count_traffic(program.view()).collectives <= ir::count_traffic(plain_view).collectives);
      if (joined.messages == 0) CHECK(ir::count_traffic(program.view()).collectives == ir::count_traffic(plain_view).collectives);
      CHECK(ir::peak_bytes(program.view()) <= ir::peak_bytes(plain_view) + 2 * joined.bytes);  // first fit leaves gaps
      larger += ir::peak_bytes(program.view()) > ir::peak_bytes(plain_view) ? 1 : 0;
      const auto got = seed % 16 == 3 ? program.run(threads{}, inputs) : program.run(simulated{}, inputs);
      REQUIRE(got.size() == wanted.size());
      for (std::size_t k = 0; k < got.size(); ++k) CHECK(got[k].bytes == wanted[k].bytes);
    }
  }
  std::printf("%llu messages of %llu values, %llu of them in loops; %llu plans hold more than apart\n",
              static_cast<unsigned long long>(all.messages), static_cast<unsigned long long>(all.values),
              static_cast<unsigned long long>(all.in_bodies), static_cast<unsigned long long>(larger));
  CHECK(all.messages > count);
  CHECK(all.in_bodies >= count / 200);  // loop-invariant collectives have left the loop
}

TEST_CASE("random programs of many operators equal the naive reference") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs(10000) / 50;
  for (auto seed = first; seed < first + count; ++seed) {
    const reference::random_program program(seed, {.max_devices = 8, .min_operators = 15, .max_operators = 40});
    const auto plan = ir::plan_at_run_time(program.g, program.mesh, {});
    check_places(ir::plan_view(plan));
    simulated_communicator comm(program.device_count());
    const auto message = reference::run_and_check(comm, program, ir::plan_view(plan));
    if (!message.empty()) FAIL_CHECK(message);
  }
}

TEST_CASE("every operator stands behind what it reads, once") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  int joined = 0;
  for (auto seed = first; seed < first + reference::programs(10000); ++seed) {
    reference::random_numbers random(seed);
    layouts::graph_builder b(reference::random_mesh(random));
    std::vector<int> values{b.input({5, 3}), b.input({5, 3}), b.input({5, 3})};
    for (int k = random.between(10, 40); k > 0; --k) {
      const int x = random.one_of(values), y = random.one_of(values);
      const int made = random.chance(30) ? b.op(ir::code_of<ir::negative_op>, x) : b.op(ir::code_of<ir::multiply_op>, x, y);
      values.push_back(random.chance(25) ? b.annotate(made, reference::random_sharding(b.mesh, 2, random)) : made);
    }
    b.g.outputs = {values.back(), values[values.size() - 2], random.one_of(values)};
    const auto p = ir::pass_results(b.g, b.mesh).take<ir::emit_pass>();
    std::vector<int> made(p.values.size(), 0);
    for (const int v : p.inputs) made[static_cast<std::size_t>(v)] = 1;
    for (const auto& op : p.ops) {
      joined += op.joined ? 1 : 0;
      for (const int o : op.operands) CHECK_MESSAGE(made[static_cast<std::size_t>(o)] == 1, "seed " << seed);
      CHECK_MESSAGE(++made[static_cast<std::size_t>(op.result)] == 1, "seed " << seed);
    }
  }
  CHECK(joined > 100);
}

TEST_CASE("what is too large stays apart, and a full message is followed by another") {
  const dynamic::mesh m(std::vector<dynamic::mesh::axis>{{"x", 2}});
  // `many` gradients of 8 KiB each, and one slightly larger gradient.
  const auto plan_of = [&](int many, std::int64_t large) {
    dynamic::builder b(m);
    const value x = b.input(dynamic::input<float>({65536, 128}, {"x", ""}));
    const value u = b.input(dynamic::input<float>({65536, 16}, {"x", ""}));
    const value y = b.input(dynamic::input<float>({65536, large}, {"x", ""}));
    std::vector<value> w;
    for (int k = 0; k < many; ++k) w.push_back(b.input(dynamic::input<float>({128, 16}, {"", ""})));
    const value v = b.input(dynamic::input<float>({128, large}, {"", ""}));
    std::vector<value> results;
    for (int k = 0; k < many; ++k) results.push_back(w[static_cast<std::size_t>(k)] - einsum("bd,bf->df", x, u * (k + 1.5)));
    results.push_back(v - einsum("bd,bf->df", x, y));
    for (const value r : results) b.output(r);
    return b.compile();
  };
  const auto counts = [](const dynamic::program& p) {
    std::vector<int> list;
    for (const auto& s : p.view().steps)
      if (ir::is<ir::kernels::combine>(s)) list.push_back(s.operands.count);
    std::sort(list.begin(), list.end());
    return list;
  };
  CHECK(counts(plan_of(2, 16)) == std::vector{3});
  CHECK(counts(plan_of(2, 17)) == std::vector{1, 2});
  CHECK(counts(plan_of(7, 16)) == std::vector{8});
  CHECK(counts(plan_of(8, 16)) == std::vector{1, 8});
  CHECK(plan_of(7, 16).traffic().over("x").messages == 2);  // of a ring of two
  CHECK(plan_of(7, 16).traffic().over("x").bytes == 8 * 128 * 16 * 4);
}

namespace {

/// Programs with several values that need the same collective, on four devices. Dims of 6 are split unevenly.
dynamic::program program_of(int values, const char* kind) {
  const std::string k = kind;
  dynamic::builder b(dynamic::mesh({{"x", k == "permute" ? 2 : 4}, {"y", k == "permute" ? 2 : 1}}));
  const auto split = [&](const char* first, const char* second) { return std::vector<std::string>{first, second}; };
  const auto examples = [&] { return b.input(dynamic::input<std::int32_t>({8, 6}, split("x", ""))); };
  value chain = b.input(dynamic::input<std::int32_t>({8, 6}, split("", "")));
  for (int t = 0; t < values; ++t) {
    const auto like = [&](const std::vector<std::string>& at) { return b.input(dynamic::input<std::int32_t>({6, 6}, at)); };
    if (k == "weight update") {                                              // Xu et al. 2020, Fig. 10
      const value w = like(split("x", "")), x = examples(), y = examples();  // a single x would be gathered once for all
      b.output(b.reshard(w - 2 * b.reshard(einsum("bd,bf->df", x, y), split("x", "")), split("", "")));
    } else if (k == "gathered inputs") {
      chain = max(einsum("bd,df->bf", chain, b.reshard(like(split("x", "")), split("", ""))), 3);
      if (t + 1 == values) b.output(chain);
    } else if (k == "all_to_all") {
      b.output(b.reshard(like(split("x", "")) + t, split("", "x")));
    } else if (k == "permute") {
      b.output(b.reshard(like(split("x,y", "")) + t, split("y,x", "")));
    } else if (k == "partial inputs") {
      auto in = dynamic::input<std::int32_t>({6, 6}, split("", ""));
      in.partial_axes = "x";
      b.output(b.reshard(b.input(in), split("", "")));
    }
  }
  return b.compile();
}

}  // namespace

TEST_CASE("T small collectives of any kind become one, with the same bytes and numbers") {
  struct want {
    const char* kind;
    std::int64_t collectives, bytes;  // of one value
  };
  // of [6, 6]: shards of 2 rows
  for (const auto& w : {want{"weight update", 2, 3 * 2 * 6 * 4 * 2}, want{"gathered inputs", 1, 3 * 2 * 6 * 4},
                        want{"all_to_all", 1, 0}, want{"permute", 1, 2 * 6 * 4}, want{"partial inputs", 1, 0}}) {
    CAPTURE(w.kind);
    const auto alone = program_of(1, w.kind), five = program_of(5, w.kind);
    CHECK(alone.traffic().collectives == w.collectives);
    CHECK(five.traffic().collectives == w.collectives);
    CHECK(five.traffic().bytes == 5 * alone.traffic().bytes);
    CHECK(five.traffic().messages == alone.traffic().messages);
    if (w.bytes > 0) CHECK(alone.traffic().bytes == w.bytes);
    CHECK(check_places(five.view()).values == static_cast<std::uint64_t>(5 * w.collectives));
    const auto many = program_of(ir::most_moved_together + 1, w.kind);
    CHECK(many.traffic().collectives == 2 * w.collectives);
    std::vector<std::vector<std::int32_t>> data;
    std::vector<const void*> inputs;
    for (std::size_t i = 0; i < 16; ++i) {
      data.emplace_back(48);
      for (std::size_t e = 0; e < 48; ++e) data.back()[e] = static_cast<std::int32_t>(e * 7 + i * 5) % 11 - 5;
    }
    for (const auto& d : data) inputs.push_back(d.data());
    inputs.resize(five.view().inputs.size());
    const auto one = five.run(simulated{}, inputs), other = five.run(threads{}, inputs);
    for (std::size_t k = 0; k < one.size(); ++k) CHECK(one[k].bytes == other[k].bytes);
  }
}
