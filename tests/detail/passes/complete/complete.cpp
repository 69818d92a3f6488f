// SPDX-License-Identifier: Apache-2.0
// labels: planner exhaustive
// group: planner
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/passes/complete/complete.hpp"
#include "gspmd/detail/passes/rewrite/canonical.hpp"
#include "support/graph_builder.hpp"
#include "support/random_program.hpp"

using namespace layouts;

namespace {

/// Returns the sharding of node `i` as `{xy,-}`.
std::string shown(const graph_builder& b, gspmd::detail::span<const sharding> shardings, int i) {
  return text_of(shardings[static_cast<std::size_t>(i)], b.g.nodes[static_cast<std::size_t>(i)].shape.count);
}

/// The propagation of Fig. 4, top right: visits tensors in topological order without operator priorities, forward and
/// then backward.
std::vector<sharding> without_priorities(const graph& g, const mesh_shape& mesh) {
  std::vector<annotation> result;
  for (const auto& n : g.nodes) result.push_back(n.annotated ? n.annotation : open({}, ~dim_mask{0}));
  const auto give = [&](const op_rule& rule, int from, const tensor_map& from_map, int to, const tensor_map& to_map) {
    factor_splits shared;
    for (const auto& use : to_factors(mesh, rule, from_map, result[static_cast<std::size_t>(from)].layout.splits))
      if (rule.uniform || to_map.holds(use.dim)) add_factor_split(shared, use.axis, use.dim);
    return refine(result[static_cast<std::size_t>(to)], to_dims(mesh, rule, to_map, shared),
                  g.nodes[static_cast<std::size_t>(to)].shape);
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const bool forward : {true, false})
      for (int k = 0; k < static_cast<int>(g.nodes.size()); ++k) {
        const int i = forward ? k : static_cast<int>(g.nodes.size()) - 1 - k;
        const node& n = g.nodes[static_cast<std::size_t>(i)];
        op_rule rule;
        rule_of(g, n, rule);
        for (int o = n.operands.count - 1; o >= 0; --o)
          changed = (forward ? give(rule, n.operands[o], rule.operand(o), i, rule.result())
                             : give(rule, i, rule.result(), n.operands[o], rule.operand(o))) ||
                    changed;
      }
  }
  std::vector<sharding> layouts;
  for (const auto& a : result) layouts.push_back(a.layout);
  return layouts;
}

/// Returns the number of pairs of an elementwise operator's tensors with different shardings.
int mismatches(const graph& g, gspmd::detail::span<const sharding> shardings) {
  int count = 0;
  for (std::size_t i = 0; i < g.nodes.size(); ++i)
    if (is_elementwise(g.nodes[i].op))
      for (const int o : g.nodes[i].operands) count += shardings[i] == shardings[static_cast<std::size_t>(o)] ? 0 : 1;
  return count;
}

constexpr int x = 0, y = 1;

}  // namespace

TEST_CASE("Fig. 3: A_y B and B C_x give A_y C_x") {
  graph_builder b({2, 2});
  const int ab = b.input({8, 8}, split({{y}, {}}));
  const int bc = b.input({8, 8}, split({{}, {x}}));
  const int ac = b.einsum("ab,bc->ac", ab, bc);
  b.g.outputs = {ac};
  CHECK(shown(b, b.complete(), ac) == "{y,x}");
}

TEST_CASE("Fig. 4: a linear layer with a bias and a maximum") {
  for (const int batch : {8, 16, 64}) {
    graph_builder b({2, 4});
    const int bf = b.input({batch, 16}, split({{x}, {y}}));
    const int fd = b.input({16, 16}, split({{y}, {x}}));
    const int dot = b.einsum("bf,fd->bd", bf, fd);
    const int bias = b.input({16});
    const int wide = b.broadcast(bias, {batch, 16}, {1});
    const int sum = b.op(code_of<add_op>, dot, wide);
    const int zero = b.constant({batch, 16}, 0);
    const int result = b.annotate(b.op(code_of<max_op>, sum, zero), split({{x}, {y}}));
    b.g.outputs = {result};

    const auto with = b.complete();
    CHECK(shown(b, with, dot) == "{x,y}");
    CHECK(shown(b, with, sum) == "{x,y}");
    CHECK(shown(b, with, wide) == "{x,y}");
    CHECK(shown(b, with, zero) == "{x,y}");
    CHECK(shown(b, with, bias) == "{y}");  // backward through the broadcast
    CHECK(mismatches(b.g, with) == 0);
    CHECK(shown(b, with, bf) == "{x,y}");  // the user's
    CHECK(shown(b, with, fd) == "{y,x}");

    const auto without = without_priorities(b.g, b.mesh);
    CHECK(shown(b, without, dot) == "{-,x}");  // chosen before the maximum was visited
    CHECK(mismatches(b.g, without) == 1);
  }
}

TEST_CASE("broadcast: backward comes before forward") {
  SUBCASE("the wide side knows: the bias follows") {
    graph_builder b({2, 2});
    const int bias = b.input({8});
    const int wide = b.annotate(b.broadcast(bias, {4, 8}, {1}), split({{x}, {y}}));
    b.g.outputs = {wide};
    CHECK(shown(b, b.complete(), bias) == "{y}");
  }
  SUBCASE("nobody else knows: the wide side follows") {
    graph_builder b({2, 2});
    const int bias = b.input({8}, split({{y}}));
    const int wide = b.broadcast(bias, {4, 8}, {1});
    b.g.outputs = {wide};
    CHECK(shown(b, b.complete(), wide) == "{-,y}");
  }
  SUBCASE("the bias does not spoil what comes from the activations") {
    graph_builder b({2, 2});
    const int bias = b.input({8}, split({{x}}));
    const int wide = b.broadcast(bias, {4, 8}, {1});
    const int act = b.input({4, 8}, split({{x}, {}}));
    const int sum = b.op(code_of<add_op>, act, wide);
    b.g.outputs = {sum};
    const auto s = b.complete();
    CHECK(shown(b, s, sum) == "{x,-}");
    CHECK(shown(b, s, wide) == "{x,-}");
    CHECK(shown(b, s, bias) == "{x}");
  }
  SUBCASE("a stretched dim does not reach the operand") {
    graph_builder b({2, 2});
    const int one = b.input({1, 8});
    const int wide = b.annotate(b.broadcast(one, {4, 8}, {0, 1}), split({{x}, {y}}));
    b.g.outputs = {wide};
    CHECK(shown(b, b.complete(), one) == "{-,y}");
  }
}

TEST_CASE("BD split by batch and DF split by F complete to both") {
  graph_builder b({2, 4});
  const int in = b.input({64, 512}, split({{0}, {}}));
  const int w = b.input({512, 2048}, split({{}, {1}}));
  const int h = b.op(code_of<relu_op>, b.einsum("bd,df->bf", in, w));
  b.g.outputs = {h};
  const auto s = b.complete();
  CHECK(shown(b, s, h) == "{x,y}");
  CHECK(shown(b, s, h - 1) == "{x,y}");
}

TEST_CASE("in a mixture of experts the activations follow the weights") {
  graph_builder inferred({4});
  const auto build = [](graph_builder& b, bool annotated) {
    const auto e = split({{x}, {}, {}});
    const int in = annotated ? b.input({8, 16, 4}, e) : b.input({8, 16, 4});
    const int w1 = b.input({8, 4, 32}, e);
    const int w2 = b.input({8, 32, 4}, e);
    const int h = b.op(code_of<relu_op>, b.einsum("ebd,edf->ebf", in, w1));
    const int out = b.einsum("ebf,efd->ebd", h, w2);
    if (annotated) b.annotate(h, e), b.annotate(out, e);
    b.g.outputs = {out};
  };
  build(inferred, false);
  const auto s = inferred.complete();
  for (std::size_t i = 0; i < s.size(); ++i) CHECK(shown(inferred, s, static_cast<int>(i)) == "{x,-,-}");
  graph_builder annotated({4});
  build(annotated, true);
  const auto t = annotated.complete();
  for (std::size_t i = 0; i < s.size(); ++i) CHECK(s[i] == t[i]);
}

TEST_CASE("a batch split flows through twenty operators, forward and backward") {
  for (const bool at_end : {false, true}) {
    graph_builder b({4});
    const int in = b.input({16, 8});
    std::vector<int> chain{in};
    for (int k = 0; k < 20; ++k) {
      const int last = chain.back();
      switch (k % 4) {
        case 0: chain.push_back(b.op(code_of<tanh_op>, last)); break;
        case 1: chain.push_back(b.einsum("bd,df->bf", last, b.input({8, 8}))); break;
        case 2: chain.push_back(b.op(code_of<add_op>, last, last)); break;
        default: chain.push_back(b.op(code_of<relu_op>, last)); break;
      }
    }
    b.annotate(at_end ? chain.back() : in, split({{x}, {}}));
    b.g.outputs = {chain.back()};
    const auto s = b.complete();
    for (const int i : chain) CHECK(shown(b, s, i) == "{x,-}");
  }
}

TEST_CASE("only open dims of an annotated value are refined") {
  graph_builder b({2, 2});
  const int a = b.input({8, 8}, split({{x}, {y}}));
  const int closed = b.annotate(b.op(code_of<tanh_op>, a), split({{x}, {}}));
  const int half = b.annotate(b.op(code_of<tanh_op>, a), open(split({{}, {}}), 0b10));
  const int after = b.op(code_of<tanh_op>, closed);
  b.g.outputs = {after, half};
  const auto s = b.complete();
  CHECK(shown(b, s, closed) == "{x,-}");
  CHECK(shown(b, s, half) == "{-,y}");
  CHECK(shown(b, s, after) == "{x,-}");
}

TEST_CASE("reshapes and transposes pass shardings on") {
  graph_builder b({2, 4});
  const int a = b.input({8, 12}, split({{y}, {x}}));
  const int t = b.transpose(a, {1, 0});
  const int r = b.reshape(t, {4, 3, 8});
  b.g.outputs = {r};
  const auto s = b.complete();
  CHECK(shown(b, s, t) == "{x,y}");
  CHECK(shown(b, s, r) == "{x,-,y}");
}

TEST_CASE("batch dims come first, then the larger operand") {
  graph_builder b({2});
  const int large = b.input({8, 8, 8}, split({{}, {x}, {}}));
  const int batch = b.input({8, 8}, split({{x}, {}}));
  const int both = b.einsum("bij,bj->bi", large, batch);
  const int wide = b.input({32, 8}, split({{x}, {}}));
  const int narrow = b.input({8, 16}, split({{}, {x}}));
  const int free = b.einsum("ik,kj->ij", wide, narrow);
  const int other_way = b.einsum("ki,jk->ij", narrow, wide);
  b.g.outputs = {both, free, other_way};
  const auto s = b.complete();
  CHECK(shown(b, s, both) == "{x,-}");
  CHECK(shown(b, s, free) == "{x,-}");
  CHECK(shown(b, s, other_way) == "{-,x}");
}

TEST_CASE("priorities are passed on in stages") {
  const auto build = [](int stage_of_weight, int stage_of_batch) {
    graph_builder b({2});
    annotation rows = split({{x}, {}});
    annotation columns = split({{}, {x}});
    rows.stages = static_cast<std::uint64_t>(stage_of_batch);
    columns.stages = static_cast<std::uint64_t>(stage_of_weight);
    const int in = b.input({8, 8}, rows);
    const int w = b.input({8, 64}, columns);
    const int h = b.op(code_of<relu_op>, b.einsum("bd,df->bf", in, w));
    b.g.outputs = {h};
    const auto s = b.complete();
    CHECK(shown(b, s, in) == "{x,-}");
    CHECK(shown(b, s, w) == "{-,x}");
    return shown(b, s, h);
  };
  CHECK(build(0, 0) == "{-,x}");  // the larger operand
  CHECK(build(1, 0) == "{x,-}");
  CHECK(build(0, 1) == "{-,x}");
  CHECK(build(3, 2) == "{x,-}");

  // batch first, then megatron, then the remaining dims of the parameters: one value may have dims of several stages
  graph_builder b({2, 2, 2});
  const int data = 0, model = 1, rest = 2;
  annotation weight = split({{rest}, {model}});
  weight.stages = (std::uint64_t{1} << (4 * model)) | (std::uint64_t{2} << (4 * rest));
  const int in = b.input({8, 8}, split({{data}, {}}));
  const int w = b.input({8, 8}, weight);
  const int h = b.einsum("bd,df->bf", in, w);
  const int w_next = b.op(code_of<tanh_op>, w);
  b.g.outputs = {h, w_next};
  const auto s = b.complete();
  CHECK(shown(b, s, h) == "{x,y}");
  CHECK(shown(b, s, w) == "{z,y}");
  CHECK(shown(b, s, w_next) == "{z,y}");
}

TEST_CASE("shard_alike ties values that do not depend on each other") {
  graph_builder b({2, 2});
  const int w = b.input({8, 8}, split({{x}, {}}));
  const int velocity = b.input({8, 8});
  const int tied = add_shard_alike(b.g, velocity, w, {});
  const int other = b.input({8, 8});
  const int late = b.annotate(b.op(code_of<tanh_op>, other), split({{}, {y}}));
  const int mine = b.input({8, 8});
  const int tied_late = add_shard_alike(b.g, mine, late, {});
  b.g.outputs = {tied, tied_late, late};
  const auto s = b.complete();
  CHECK(shown(b, s, velocity) == "{x,-}");
  CHECK(shown(b, s, tied) == "{x,-}");
  CHECK(shown(b, s, mine) == "{-,y}");
  CHECK(collectives(b.partition()).empty());

  const int wrong = add_shard_alike(b.g, w, b.input({8}), {});
  CHECK(wrong == -1);
  CHECK(b.g.error.view().find("only tensors of one shape can have equal shardings") != std::string_view::npos);
}

TEST_CASE("a group has one sharding, whatever the neighbours of its members offer") {
  SUBCASE("three members, connected by twos; the neighbours of two disagree") {
    graph_builder b({2, 2});
    const int rows = b.input({8, 8}, split({{x}, {}}));
    const int columns = b.input({8, 8}, split({{}, {x}}));
    const int first = b.op(code_of<tanh_op>, rows);
    const int second = b.op(code_of<tanh_op>, columns);
    const int third = b.input({8, 8});
    const int a = add_shard_alike(b.g, second, third, {});
    const int c = add_shard_alike(b.g, third, first, {});
    b.g.outputs = {a, c, first};
    const auto s = b.complete();
    for (const int i : {first, second, third, a, c}) CHECK(shown(b, s, i) == "{x,-}");
  }
  SUBCASE("an annotation that comes late comes before what a neighbour offers early") {
    graph_builder b({2, 2});
    const int early = b.op(code_of<tanh_op>, b.input({8, 8}, split({{x}, {}})));
    const int late = b.annotate(b.op(code_of<tanh_op>, b.input({8, 8})), split({{}, {x}}));
    const int tied = add_shard_alike(b.g, early, late, {});
    b.g.outputs = {tied};
    const auto s = b.complete();
    CHECK(shown(b, s, early) == "{-,x}");
    CHECK(shown(b, s, tied) == "{-,x}");
  }
  SUBCASE("from a loop's body to what is outside of it, and back") {
    for (const bool from_inside : {true, false}) {
      graph_builder b({2, 2});
      const int outside = b.input({8, 8});
      if (!from_inside) b.annotate(outside, split({{}, {y}}));
      const int init = b.input({8, 8});
      open_loop(b.g, 3, {});
      const int carry = add_carry(b.g, init, {});
      const int inside = b.op(code_of<tanh_op>, carry);
      if (from_inside) b.annotate(inside, split({{}, {y}}));
      const int tied = add_shard_alike(b.g, inside, outside, {});
      b.g.outputs = {add_loop_result(b.g, carry, tied, {}), outside};
      const auto s = b.complete();
      for (const int i : {outside, init, carry, inside, tied}) CHECK(shown(b, s, i) == "{-,y}");
    }
  }
}

namespace {

/// Returns true if finally a value rejects a neighbour's sharding, because it already uses the axis or splits the dim
/// differently.
bool has_conflict(const graph& g, const mesh_shape& mesh, gspmd::detail::span<const sharding> s) {
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    const node& n = g.nodes[i];
    if (n.operands.empty()) continue;
    op_rule rule;
    rule_of(g, n, rule);
    const int tensors = n.operands.count + 1;
    const auto number = [&](int t) { return t < n.operands.count ? n.operands[t] : static_cast<int>(i); };
    const auto map = [&](int t) -> const tensor_map& { return t < n.operands.count ? rule.operand(t) : rule.result(); };
    for (int from = 0; from < tensors; ++from)
      for (int to = 0; to < tensors; ++to) {
        if (from == to) continue;
        const sharding& target = s[static_cast<std::size_t>(number(to))];
        factor_splits shared;
        for (const auto& use :
             to_factors(mesh, rule, map(from), s[static_cast<std::size_t>(number(from))].splits, rule.is_moved_unevenly))
          if (rule.uniform || (map(to).holds(use.dim) && rule.factors[use.dim].kind != factor_kind::whole))
            add_factor_split(shared, use.axis, use.dim);
        const auto offered = to_dims(mesh, rule, map(to), shared, rule.is_moved_unevenly);
        for (int d = 0; d < g.nodes[static_cast<std::size_t>(number(to))].shape.count; ++d) {
          std::vector<int> wanted, own;
          for (const auto& use : offered)
            if (use.dim == d) wanted.push_back(use.axis);
          for (const auto& use : target.splits)
            if (use.dim == d) own.push_back(use.axis);
          const bool taken = wanted.size() <= own.size() && std::equal(wanted.begin(), wanted.end(), own.begin());
          const node& t = g.nodes[static_cast<std::size_t>(number(to))];
          if (!taken && (!t.annotated || (t.annotation.open & dim_bit(d)) != 0)) return true;
        }
      }
  }
  return false;
}

}  // namespace

TEST_CASE("random programs: the order of independent lines and what is annotated besides do not matter") {
  int calm = 0;
  reference::random_options options;
  options.regions = false;  // the nodes of a body stay together
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    reference::random_program p(seed, options);
    CAPTURE(p.describe());
    const auto complete = [&p](const graph& g) {
      const plan_request request;
      completion c(g, p.mesh, request);
      c.run();
      return c.shardings;
    };
    const graph g = canonical_order(p.g);
    const auto s = complete(g);

    // Nodes in another order that keeps operands before users: the same program after canonical_order.
    reference::random_numbers random(seed);
    graph shuffled;
    std::vector<int> number(p.g.nodes.size(), -1);
    std::vector<int> waiting;
    for (int i = 0; i < static_cast<int>(p.g.nodes.size()); ++i) waiting.push_back(i);
    while (!waiting.empty()) {
      const auto k = static_cast<std::size_t>(random.between(0, static_cast<int>(waiting.size()) - 1));
      node n = p.g.nodes[static_cast<std::size_t>(waiting[k])];
      bool ready = true;
      for (auto& o : n.operands) ready = ready && (o = number[static_cast<std::size_t>(o)]) >= 0;
      if (!ready) continue;
      number[static_cast<std::size_t>(waiting[k])] = shuffled.add(n);
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(k));
    }
    for (const int i : p.g.inputs) shuffled.inputs.push_back(number[static_cast<std::size_t>(i)]);
    for (const int o : p.g.outputs) shuffled.outputs.push_back(number[static_cast<std::size_t>(o)]);
    REQUIRE(complete(canonical_order(shuffled)) == s);

    // Annotating the choices of completion changes nothing, unless two candidates exclude each other. Then an
    // annotation may precede the former first candidate.
    if (has_conflict(g, p.mesh, s)) continue;
    ++calm;
    for (std::size_t i = 0; i < s.size(); ++i) {
      if (g.nodes[i].annotated) continue;
      graph more = g;
      more.nodes[i].annotated = true;
      more.nodes[i].annotation = s[i];
      if (random.chance(50)) more.nodes[i].annotation.open = ~dim_mask{0};
      const auto again = complete(more);
      bool same = true;
      for (std::size_t k = 0; k < s.size(); ++k) same = same && again[k] == s[k];
      REQUIRE(same);
    }
  }
  CHECK(calm > 300);
}

TEST_CASE("random programs: laws of completion") {
  int refined = 0, groups = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    reference::random_program p(seed);
    CAPTURE(p.describe());
    const auto complete = [&p](const graph& g) {
      const plan_request request;
      completion c(g, p.mesh, request);
      c.run();
      return c.shardings;
    };
    const auto s = complete(p.g);
    REQUIRE(s.size() == p.g.nodes.size());
    bool valid = true;
    bool kept = true;
    for (std::size_t i = 0; i < s.size(); ++i) {
      const node& n = p.g.nodes[i];
      axis_mask used = s[i].partial;
      int last_dim = 0;
      for (const auto& use : s[i].splits) {  // each axis at most once, in the order of the dims
        valid = valid && use.dim >= last_dim && use.dim < n.shape.count && (used & axis_bit(use.axis)) == 0;
        used |= axis_bit(use.axis);
        last_dim = use.dim;
      }
      refined += !n.annotated && !s[i].splits.empty();
      if (!n.annotated) {
        valid = valid && s[i].partial == 0;
        continue;
      }
      kept = kept && p.mesh.size_of(s[i].partial ^ n.annotation.layout.partial) == 1 &&
             (s[i].partial == 0 || s[i].reduced_by == n.annotation.layout.reduced_by);
      for (int d = 0; d < n.shape.count; ++d) {  // apart from axes of size 1, the annotation stays; open dims may get more axes
        std::vector<int> wanted;
        std::vector<int> got;
        for (const auto& use : n.annotation.layout.splits)
          if (use.dim == d && p.mesh.sizes[use.axis] > 1) wanted.push_back(use.axis);
        for (const auto& use : s[i].splits)
          if (use.dim == d && p.mesh.sizes[use.axis] > 1) got.push_back(use.axis);
        const bool is_open = (n.annotation.open & dim_bit(d)) != 0;
        kept = kept && got.size() >= wanted.size() && std::equal(wanted.begin(), wanted.end(), got.begin()) &&
               (is_open || got == wanted);
      }
    }
    REQUIRE(valid);
    REQUIRE(kept);

    bool alike = true;  // groups of open members have one sharding
    for (std::size_t i = 0; i < s.size(); ++i) {
      const node& n = p.g.nodes[i];
      if (n.op != code_of<shard_alike_op>) continue;
      bool is_open = !n.annotated;
      for (const int o : n.operands) is_open = is_open && !p.g.nodes[static_cast<std::size_t>(o)].annotated;
      for (const int o : n.operands) alike = alike && (!is_open || s[i].splits == s[static_cast<std::size_t>(o)].splits);
      groups += is_open && !s[i].splits.empty();
    }
    REQUIRE(alike);

    const auto again = complete(p.g);
    bool same = true;
    for (std::size_t i = 0; i < s.size(); ++i) same = same && s[i] == again[i];
    REQUIRE(same);  // deterministic

    graph annotated = p.g;  // the choice is a fixed point: annotating it, with open dims, changes nothing
    for (std::size_t i = 0; i < s.size(); ++i) {
      annotated.nodes[i].annotated = true;
      annotated.nodes[i].annotation = s[i];
    }
    const auto fixed = complete(annotated);
    for (std::size_t i = 0; i < s.size(); ++i) same = same && s[i] == fixed[i];
    REQUIRE(same);
  }
  CHECK(refined > 3000);
  CHECK(groups > 5);
}
