// SPDX-License-Identifier: Apache-2.0
// labels: planner exhaustive
// group: planner
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/all_operators.hpp"
#include "support/graph_builder.hpp"
#include "support/random_program.hpp"

using namespace layouts;

namespace {

using texts = std::vector<std::string>;
constexpr int x = 0, y = 1;

// ---- the elements that a step needs and that devices hold -----------------------------------------------------------

using box = std::vector<index_range>;

box box_of(const mesh_shape& mesh, const extents& global, const sharding& s, const coordinates& at) {
  box b;
  for (int d = 0; d < global.count; ++d) b.push_back(dim_range(mesh, global, s, d, at));
  return b;
}
bool is_empty(const box& b) {
  return std::any_of(b.begin(), b.end(), [](index_range r) { return r.size() == 0; });
}
bool contains(const box& outer, const box& inner) {
  if (is_empty(inner)) return true;
  for (std::size_t d = 0; d < inner.size(); ++d)
    if (inner[d].begin < outer[d].begin || inner[d].end > outer[d].end) return false;
  return true;
}
/// Returns true if `boxes` contain every element of `wanted`.
bool covered(const box& wanted, const std::vector<box>& boxes) {
  if (is_empty(wanted)) return true;
  std::vector<std::int64_t> at;
  for (const auto& r : wanted) at.push_back(r.begin);
  while (true) {
    const bool found = std::any_of(boxes.begin(), boxes.end(), [&](const box& b) {
      for (std::size_t d = 0; d < at.size(); ++d)
        if (at[d] < b[d].begin || at[d] >= b[d].end) return false;
      return true;
    });
    if (!found) return false;
    std::size_t d = at.size();
    while (d > 0 && ++at[d - 1] == wanted[d - 1].end) {
      --d;
      at[d] = wanted[d].begin;
    }
    if (d == 0) return true;
  }
}

/// Returns true if each axis splits at most one dim, once, and no axis both splits and is partial.
bool is_valid(const sharding& s, int rank) {
  axis_mask used = s.partial;
  int dim = 0;
  for (const auto& use : s.splits) {
    if ((used & axis_bit(use.axis)) != 0 || use.dim < dim || use.dim >= rank) return false;
    used |= axis_bit(use.axis);
    dim = use.dim;
  }
  return true;
}

/// Returns the mistake in a single operation from one layout to another, or "".
std::string wrong_step(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to,
                       instruction_kind what, axis_mask axes) {
  if (!is_valid(to, global.count)) return "not a sharding";
  for (std::int64_t device = 0; device < mesh.device_count(); ++device) {
    const auto at = mesh.coordinates_of(device);
    const auto needed = box_of(mesh, global, to, at);
    if (what == instruction_kind::move) {
      std::vector<box> held;
      for (std::int64_t k = 0; k < mesh.size_of(axes); ++k)
        held.push_back(box_of(mesh, global, from, group_member(mesh, axes, at, k)));
      if (!covered(needed, held)) return "a device needs what no member of its group holds";
    } else if (!contains(box_of(mesh, global, from, at), needed)) {
      return "a device needs what it does not hold";
    }
  }
  if (what == instruction_kind::reduce) {
    if (axes == 0 || (axes & ~from.partial) != 0) return "reduced over axes that are not partial";
    if (to.partial != (from.partial & ~axes)) return "the reduced axes are still partial";
  } else if (to.partial != from.partial) {
    return "the partial axes changed without a reduction";
  }
  if (to.partial != 0 && to.reduced_by != from.reduced_by) return "the kind of the reduction changed";
  if (what == instruction_kind::move && (axes == 0 || (axes & ~from.split_axes()) != 0))
    return "moved over axes that split nothing";
  if (what == instruction_kind::slice && axes != 0) return "a slice over axes";
  return {};
}

instruction_kind kind_of(reshard_step::kind k) {
  return k == reshard_step::kind::slice  ? instruction_kind::slice
         : k == reshard_step::kind::move ? instruction_kind::move
                                         : instruction_kind::reduce;
}

std::vector<int> axes_of(const sharding& s, int dim) {
  std::vector<int> axes;
  for (const auto& use : s.splits)
    if (use.dim == dim) axes.push_back(use.axis);
  return axes;
}

/// Returns the mistake in running an operator of the program on shards of these layouts, or "". (Random programs test
/// reshapes and broadcasts.)
std::string wrong_compute(const graph& g, const local_program& p, const instruction& op) {
  const node& n = g.nodes[static_cast<std::size_t>(op.node)];
  const sharding& result = p.value(op.result).layout;
  axis_mask partial_before = 0;  // axes over which operands are partial
  axis_mask summed = 0;          // axes that split dims that the operator reduces
  for (const int o : op.operands) {
    const auto& s = p.value(o).layout;
    if (s.partial != 0 && result.partial != 0 && s.reduced_by != result.reduced_by)
      return "one reduction is left for later as another one";
    partial_before |= s.partial;
  }
  if (is_elementwise(n.op)) {
    for (const int o : op.operands)
      if (!(p.value(o).layout.splits == result.splits)) return "elementwise on shards of different elements";
  } else if (n.op == code_of<transpose_op>) {
    for (int d = 0; d < n.shape.count; ++d)
      if (axes_of(result, d) != axes_of(p.value(op.operands[0]).layout, gspmd::detail::attribute_dim(n, d)))
        return "transpose of another shard";
  } else if (n.op == code_of<reduce_op>) {
    int kept = 0;
    for (int d = 0; d < p.value(op.operands[0]).global.count; ++d) {
      const auto axes = axes_of(p.value(op.operands[0]).layout, d);
      if (std::find(n.attributes.begin(), n.attributes.end(), d) == n.attributes.end()) {
        if (axes != axes_of(result, kept++)) return "reduce of another shard";
      } else {
        for (const int a : axes) summed |= axis_bit(a);
      }
    }
    if (summed != 0 && result.reduced_by != n.reduced_by) return "a reduction left for later has another kind";
  } else if (n.op == code_of<einsum_op>) {
    int at = 0;
    std::vector<std::pair<char, std::vector<int>>> letters;
    const auto disagrees = [&](const sharding& s, int rank, bool is_result) {
      for (int d = 0; d < rank; ++d) {
        const char letter = static_cast<char>(n.attributes[at++]);
        const auto axes = axes_of(s, d);
        for (const auto& [known, uses] : letters)
          if (known == letter && uses != axes) return true;
        if (is_result)
          letters.erase(std::remove_if(letters.begin(), letters.end(), [&](const auto& l) { return l.first == letter; }),
                        letters.end());
        else letters.emplace_back(letter, axes);
      }
      return false;
    };
    for (const int o : op.operands)
      if (disagrees(p.value(o).layout, p.value(o).global.count, false)) return "a letter is split in two ways";
    if (disagrees(result, n.shape.count, true)) return "a letter is split in two ways";
    for (const auto& letter : letters)  // not in the result
      for (const int a : letter.second) summed |= axis_bit(a);
    if (summed != 0 && result.reduced_by != monoid::add) return "a sum left for later is no sum";
    axis_mask partial_axes = 0;
    for (const int o : op.operands) {
      if ((partial_axes & p.value(o).layout.partial) != 0) return "a product of two partial sums";
      partial_axes |= p.value(o).layout.partial;
    }
  } else {
    return {};
  }
  return result.partial == (partial_before | summed) ? "" : "the partial axes are wrong";
}

/// Returns the mistake in a local program, or "".
std::string wrong_program(const graph& g, const mesh_shape& mesh, gspmd::detail::span<const sharding> completed,
                          const local_program& p) {
  std::vector<bool> made(p.values.size(), false);
  for (const int i : p.inputs) made[static_cast<std::size_t>(i)] = true;
  const auto source = [&g](int node) {  // a reshard is replaced by its operand
    while (g.nodes[static_cast<std::size_t>(node)].op == code_of<reshard_op> ||
           g.nodes[static_cast<std::size_t>(node)].op == code_of<shard_alike_op>)
      node = g.nodes[static_cast<std::size_t>(node)].operands[0];
    return node;
  };
  for (const auto& op : p.ops) {
    for (const int o : op.operands)
      if (!made[static_cast<std::size_t>(o)]) return "used before it is made";
    if (made[static_cast<std::size_t>(op.result)]) return "made twice";
    made[static_cast<std::size_t>(op.result)] = true;
    const auto& to = p.value(op.result);
    if (!is_valid(to.layout, to.global.count)) return "not a sharding";
    if (!(to.local == local_extents(mesh, to.global, to.layout))) return "wrong local shape";
    std::string wrong;
    if (op.what == instruction_kind::compute) {
      wrong = wrong_compute(g, p, op);
    } else {
      const auto& from = p.value(op.operands[0]);
      if (source(from.node) != source(to.node) || !(from.global == to.global)) return "another value";
      wrong = wrong_step(mesh, to.global, from.layout, to.layout, op.what, op.axes);
    }
    if (!wrong.empty()) return "%" + std::to_string(op.node) + ": " + wrong;
  }
  for (std::size_t k = 0; k < p.outputs.size(); ++k) {
    const auto& v = p.value(p.outputs[k]);
    if (!made[static_cast<std::size_t>(p.outputs[k])]) return "an output is not made";
    if (source(v.node) != source(g.outputs[k])) return "an output is another value";
    if (v.layout.partial != 0) return "an output is partial";
    if (!(v.layout.splits == completed[static_cast<std::size_t>(g.outputs[k])].splits)) return "an output has not its sharding";
  }
  return {};
}

/// Walks from one sharding to another. Has the collectives of the path, or the mistake.
struct walk {
  int steps = 0;
  std::string wrong;
  texts names;
  std::int64_t largest = 0;  // elements of the largest shard on the path, without both ends
};
walk walk_of(const mesh_shape& mesh, const extents& global, sharding from, const sharding& to) {
  walk w;
  for (; w.steps <= 6; ++w.steps) {
    const auto step = next_step(mesh, {}, global, from, to);
    if (step.what == reshard_step::kind::none) {
      if (from != to) w.wrong = "stopped before the target";
      return w;
    }
    w.wrong = wrong_step(mesh, global, from, step.to, kind_of(step.what), step.axes);
    if (!w.wrong.empty()) return w;
    if (step.to == from) w.wrong = "a step that does not move";
    if (step.what == reshard_step::kind::move)
      w.names.push_back(std::string(name_of(classify(mesh, movement{global, from, step.to, step.axes}))) + ' ' +
                        axes_text(step.axes));
    if (step.what == reshard_step::kind::reduce)
      w.names.push_back(std::string(name_of(classify(mesh, reduction{global, from, step.to, step.axes, from.reduced_by}))) + ' ' +
                        axes_text(step.axes));
    from = step.to;
    if (from != to) w.largest = std::max(w.largest, elements(local_extents(mesh, global, from)));
  }
  w.wrong = "more than 6 steps";
  return w;
}

/// Replaces the partial axes by every subset of the axes that do not split.
template <class Visit>
void for_each_partial(const mesh_shape& mesh, const sharding& s, axis_mask allowed, Visit visit) {
  const axis_mask all = (axis_mask{1} << mesh.axis_count()) - 1;
  for (axis_mask axes = 0; axes <= all; ++axes)
    if ((axes & (s.split_axes() | ~allowed)) == 0) visit(partial(s, axes));
}

}  // namespace

TEST_CASE("resharding: every pair of shardings of rank <= 2, by legal steps, at most 6") {
  const std::vector<std::vector<std::vector<std::int64_t>>> shapes = {
      {{}}, {{24}, {9}, {5}, {1}, {0}}, {{8, 24}, {9, 5}, {3, 1}, {2, 7}, {12, 10}, {0, 4}, {17, 33}}};
  std::int64_t pairs = 0;
  for (const auto& sizes : {std::vector<int>{2, 2}, {4}, {2, 3}, {3, 2}, {8}, {2, 2, 2}}) {
    const auto mesh = mesh_of(sizes);
    for (int rank = 0; rank <= 2; ++rank)
      for (const auto& shape : shapes[static_cast<std::size_t>(rank)]) {
        const auto global = shape_of(shape);
        std::string first_wrong;
        std::int64_t wrong = 0;
        for (const auto& whole_from : all_shardings(mesh, rank))
          for_each_partial(mesh, whole_from, ~axis_mask{0}, [&](const sharding& from) {
            for (const auto& whole_to : all_shardings(mesh, rank))
              for_each_partial(mesh, whole_to, from.partial, [&](const sharding& to) {
                ++pairs;
                const auto w = walk_of(mesh, global, from, to);
                if (!w.wrong.empty() && wrong++ == 0)
                  first_wrong = text_of(from, rank) + " to " + text_of(to, rank) + ": " + w.wrong;
              });
          });
        CAPTURE(std::string(shape_text(mesh.sizes).view()));
        CAPTURE(std::string(shape_text(global).view()));
        CAPTURE(first_wrong);
        CHECK(wrong == 0);
      }
  }
  CHECK(pairs > 40'000);
}

TEST_CASE("resharding: rank 3 on even extents, and never dearer than gathering everything") {
  const auto mesh = mesh_of({2, 2});
  const auto global = shape_of({8, 8, 8});
  std::int64_t wrong = 0;
  std::int64_t dearer = 0;
  std::string first;
  for (const auto& from : all_shardings(mesh, 3))
    for (const auto& to : all_shardings(mesh, 3)) {
      const auto w = walk_of(mesh, global, from, to);
      wrong += !w.wrong.empty();
      const bool is_dearer = reshard_bytes(mesh, global, from, to, 4) > reshard_bytes(mesh, global, from, {}, 4);
      if (is_dearer && dearer++ == 0) first = text_of(from, 3) + " to " + text_of(to, 3);
    }
  CAPTURE(first);
  CHECK(wrong == 0);
  CHECK(dearer == 0);
}

TEST_CASE("resharding: the steps of known cases") {
  const auto mesh = mesh_of({2, 4});
  const auto global = shape_of({16, 16, 16});
  const auto names = [&](const sharding& from, const sharding& to) {
    const auto w = walk_of(mesh, global, from, to);
    CHECK(w.wrong == "");
    return w.names;
  };
  CHECK(names(split({{x}}), split({{x}})) == texts{});
  CHECK(names(split({}), split({{x}, {y}})) == texts{});
  CHECK(names(split({{x}}), split({{x, y}})) == texts{});
  CHECK(names(split({{x}}), split({})) == texts{"all_gather x"});
  CHECK(names(split({{x, y}}), split({})) == texts{"all_gather xy"});
  CHECK(names(split({{x, y}}), split({{x}})) == texts{"all_gather y"});
  CHECK(names(split({{x}, {}}), split({{}, {x}})) == texts{"all_to_all x"});
  CHECK(names(split({{x, y}}), split({{y, x}})) == texts{"collective_permute xy"});
  CHECK(names(partial({}, 1), split({})) == texts{"all_reduce x"});
  CHECK(names(partial({}, 3), split({})) == texts{"all_reduce xy"});
  CHECK(names(partial({}, 1), split({{x}})) == texts{"reduce_scatter x"});
  CHECK(names(partial(split({{y}}), 1), split({{y, x}})) == texts{"reduce_scatter x"});
  CHECK(names(partial({}, 3), partial({}, 2)) == texts{"all_reduce x"});

  // P(y,-,x) -> P(-,(x,y),-): the data is exchanged and never gathered
  const auto w = walk_of(mesh, global, split({{y}, {}, {x}}), split({{}, {x, y}, {}}));
  CHECK(w.wrong == "");
  CHECK(!w.names.empty());
  for (const auto& name : w.names) CHECK(name.find("all_gather") == std::string::npos);
  CHECK(w.largest <= elements(global) / 8);
}

TEST_CASE("no communication") {
  graph_builder b({2, 4});
  const int in = b.input({64, 512}, split({{x}, {}}));
  const int w = b.input({512, 2048}, split({{}, {y}}));
  b.g.outputs = {b.op(code_of<relu_op>, b.einsum("bd,df->bf", in, w))};
  const auto p = b.partition();
  CHECK(collectives(p) == texts{});
  CHECK(p.value(p.outputs[0]).local == shape_of({32, 512}));
  CHECK(p.ops.size() == 2);
}

TEST_CASE("the weight is gathered just before its use") {
  graph_builder b({2, 4});
  const int in = b.input({4096, 64}, split({{x}, {}}));
  const int w = b.input({64, 128}, split({{x}, {y}}));
  const int h = b.einsum("bd,df->bf", in, w);
  b.g.outputs = {h};
  const auto p = b.partition();
  CHECK(collectives(p) == texts{"all_gather x"});
  REQUIRE(p.ops.size() == 2);
  CHECK(p.value(p.ops[0].operands[0]).node == w);
  CHECK(p.ops[0].node == h);
  CHECK(!p.ops[0].forced);
  CHECK(bytes_sent(b.mesh, p) == 32 * 32 * 4);
}

TEST_CASE("the contracting dim is split: all_reduce, reduce_scatter, or partial until the sum is needed") {
  const auto product = [](graph_builder& b) {
    return b.einsum("ab,bc->ac", b.input({16, 32}, split({{}, {x}})), b.input({32, 8}, split({{x}, {}})));
  };
  graph_builder replicated({4});
  replicated.g.outputs = {product(replicated)};
  CHECK(collectives(replicated.partition()) == texts{"all_reduce x"});

  graph_builder scattered({4});
  scattered.g.outputs = {scattered.annotate(product(scattered), split({{x}, {}}))};
  CHECK(collectives(scattered.partition()) == texts{"reduce_scatter x"});
  CHECK(2 * bytes_sent(scattered.mesh, scattered.partition()) == bytes_sent(replicated.mesh, replicated.partition()));

  graph_builder kept({4});
  const int a = product(kept);
  const int c = product(kept);
  const int sum = kept.op(code_of<add_op>, a, c);
  kept.g.outputs = {kept.op(code_of<tanh_op>, sum)};
  const auto p = kept.partition();
  CHECK(collectives(p) == texts{"all_reduce x"});
  REQUIRE(p.ops.size() == 5);
  CHECK(p.ops[2].node == sum);
  CHECK(p.ops[2].what == instruction_kind::compute);
  CHECK(p.value(p.ops[2].result).layout.partial == 1);
  CHECK(p.ops[3].what == instruction_kind::reduce);
}

TEST_CASE("local on the group dim, then all_to_all to the experts") {
  graph_builder b({4});
  const int mask = b.input({8, 16, 8, 4}, split({{x}, {}, {}, {}}));
  const int in = b.input({8, 16, 8}, split({{x}, {}, {}}));
  const int dispatched = b.annotate(b.einsum("GSEC,GSM->EGCM", mask, in), split({{x}, {}, {}, {}}));
  b.g.outputs = {dispatched};
  const auto p = b.partition();
  CHECK(collectives(p) == texts{"all_to_all x"});
  CHECK(p.ops[0].what == instruction_kind::compute);
  CHECK(text_of(p.value(p.ops[0].result).layout, 4) == "{-,x,-,-}");
}

TEST_CASE("what is partial is reduced once, and only when it must be") {
  const auto partial_sum = [](graph_builder& b) { return b.einsum("ab->a", b.input({8, 32}, split({{}, {x}}))); };
  SUBCASE("x * x reduces x once") {
    graph_builder b({4});
    const int s = partial_sum(b);
    b.g.outputs = {b.op(code_of<multiply_op>, s, s)};
    const auto p = b.partition();
    CHECK(collectives(p) == texts{"all_reduce x"});
    CHECK(p.value(p.ops.back().operands[0]).layout.partial == 0);
    CHECK(p.value(p.ops.back().operands[1]).layout.partial == 0);
  }
  SUBCASE("two users that need the sum share it") {
    graph_builder b({4});
    const int s = partial_sum(b);
    b.g.outputs = {b.op(code_of<tanh_op>, s), b.op(code_of<abs_op>, s)};
    CHECK(collectives(b.partition()) == texts{"all_reduce x"});
  }
  SUBCASE("scaling by a replicated value and negating leave it partial") {
    graph_builder b({4});
    const int scaled = b.op(code_of<multiply_op>, partial_sum(b), b.input({8}, split({{}})));
    const int negated = b.op(code_of<negative_op>, scaled);
    b.g.outputs = {negated};
    const auto p = b.partition();
    CHECK(collectives(p) == texts{"all_reduce x"});
    CHECK(p.ops.back().what == instruction_kind::reduce);
  }
  SUBCASE("adding a replicated value does not: it would be added on every device") {
    graph_builder b({4});
    const int s = partial_sum(b);
    const int sum = b.op(code_of<add_op>, s, b.input({8}, split({{}})));
    b.g.outputs = {sum};
    const auto p = b.partition();
    CHECK(collectives(p) == texts{"all_reduce x"});
    CHECK(p.ops.back().node == sum);
    CHECK(p.ops.back().what == instruction_kind::compute);
  }
  SUBCASE("a maximum of partial sums reduces first; a maximum of partial maxima does not") {
    for (const auto kind : {monoid::add, monoid::max}) {
      graph_builder b({4});
      const auto part = [&] { return b.reduce(b.input({8, 32}, split({{}, {x}})), 0b10, kind); };
      const int m = b.op(code_of<max_op>, part(), part());
      b.g.outputs = {m};
      CHECK(collectives(b.partition()).size() == (kind == monoid::add ? 2U : 1U));
    }
  }
  SUBCASE("partial inputs") {
    graph_builder b({2, 2});
    const int a = b.input({8}, partial({}, 1));
    const int c = b.input({8}, partial({}, 1));
    b.g.outputs = {b.op(code_of<add_op>, a, c)};
    CHECK(collectives(b.partition()) == texts{"all_reduce x"});
  }
}

TEST_CASE("reshapes") {
  SUBCASE("[6] over 2 -> [2,3]: nothing moves") {
    graph_builder b({2});
    b.g.outputs = {b.reshape(b.input({6}, split({{x}})), {2, 3})};
    const auto p = b.partition();
    CHECK(collectives(p) == texts{});
    CHECK(text_of(p.value(p.outputs[0]).layout, 2) == "{x,-}");
  }
  SUBCASE("[2,3] over 2 -> [6], and [8] over 2x2 -> [2,4]") {
    graph_builder b({2, 2});
    b.g.outputs = {b.reshape(b.input({2, 3}, split({{x}, {}})), {6}), b.reshape(b.input({8}, split({{x, y}})), {2, 4})};
    const auto p = b.partition();
    CHECK(collectives(p) == texts{});
    CHECK(text_of(p.value(p.outputs[1]).layout, 2) == "{x,y}");
  }
  SUBCASE("[8] over one axis of 4 -> [2,4], and the axis cannot be cut in two: columns") {
    graph_builder b({4});
    b.g.outputs = {b.reshape(b.input({8}, split({{x}})), {2, 4})};
    const auto p = b.partition();
    CHECK(collectives(p) == texts{});
    CHECK(bytes_sent(b.mesh, p) == 8);
    CHECK(text_of(p.value(p.outputs[0]).layout, 2) == "{-,x}");
  }
  SUBCASE("[2,3] -> [3,2] split: gathered") {
    graph_builder b({2});
    b.g.outputs = {b.reshape(b.input({2, 3}, split({{x}, {}})), {3, 2})};
    CHECK(collectives(b.partition()) == texts{"forced all_gather x"});
  }
}

TEST_CASE("what was brought to a layout once is used again; what nobody needs is not computed") {
  graph_builder b({4});
  const int w = b.input({16, 16}, split({{x}, {}}));
  const int a = b.annotate(b.op(code_of<tanh_op>, w), split({{}, {}}));
  const int c = b.annotate(b.op(code_of<abs_op>, w), split({{}, {}}));
  b.op(code_of<negative_op>, w);
  b.g.outputs = {a, c};
  const auto p = b.partition();
  CHECK(collectives(p).size() <= 2);
  for (const auto& op : p.ops)
    if (op.what == instruction_kind::compute) CHECK(b.g.nodes[static_cast<std::size_t>(op.node)].op != code_of<negative_op>);
}

TEST_CASE("constants and iotas are made where they are needed") {
  graph_builder b({2, 2});
  const int in = b.input({8, 8}, split({{x}, {y}}));
  const int line = add_iota(b.g, dtype::f32, shape_of({8, 8}), 1, {});
  b.g.outputs = {b.op(code_of<add_op>, b.op(code_of<add_op>, in, line), b.constant({8, 8}, 2))};
  const auto p = b.partition();
  CHECK(collectives(p) == texts{});
  CHECK(p.value(p.outputs[0]).local == shape_of({4, 4}));
}

TEST_CASE("batch, free and contracting dims of abi,aoi->abo") {
  const auto run = [](const sharding& left, const sharding& right) {
    graph_builder b({4});
    b.g.outputs = {b.einsum("abi,aoi->abo", b.input({8, 8, 64}, left), b.input({8, 8, 64}, right))};
    const auto p = b.partition();
    return std::pair{collectives(p), text_of(p.value(p.ops[0].result).layout, 3)};
  };
  CHECK(run({}, {}) == std::pair{texts{}, std::string("{-,-,-}")});
  CHECK(run(split({{x}}), split({{x}})) == std::pair{texts{}, std::string("{x,-,-}")});
  CHECK(run(split({{}, {x}}), {}) == std::pair{texts{}, std::string("{-,x,-}")});
  CHECK(run({}, split({{}, {x}})) == std::pair{texts{}, std::string("{-,-,x}")});
  CHECK(run(split({{}, {}, {x}}), split({{}, {}, {x}})) == std::pair{texts{"all_reduce x"}, std::string("{-,-,-} partial 1")});
}

TEST_CASE("every triple of shardings of a product, even and uneven, legal and never dearer than gathering both operands") {
  for (const auto& sizes : {std::vector<int>{2, 2}, {2, 3}})
    for (const std::vector<std::int64_t>& e : {std::vector<std::int64_t>{24, 12, 36}, {7, 5, 3}}) {
      const auto mesh = mesh_of(sizes);
      std::int64_t wrong = 0;
      std::int64_t dearer = 0;
      std::string first;
      for (const auto& left : all_shardings(mesh, 2))
        for (const auto& right : all_shardings(mesh, 2))
          for (const auto& out : all_shardings(mesh, 2)) {
            graph_builder b(sizes);
            const int l = b.input({e[0], e[1]}, left);
            const int r = b.input({e[1], e[2]}, right);
            b.g.outputs = {b.annotate(b.einsum("ab,bc->ac", l, r), out)};
            const auto p = b.partition();
            auto message = wrong_program(b.g, mesh, b.complete(), p);
            wrong += !message.empty();
            const auto gathered = reshard_bytes(mesh, shape_of({e[0], e[1]}), left, {}, 4) +
                                  reshard_bytes(mesh, shape_of({e[1], e[2]}), right, {}, 4);
            if (message.empty() && bytes_sent(mesh, p) > gathered) {
              ++dearer;
              message = "sends " + std::to_string(bytes_sent(mesh, p)) + ", not " + std::to_string(gathered);
            }
            if (!message.empty() && first.empty())
              first = text_of(left, 2) + text_of(right, 2) + "->" + text_of(out, 2) + ": " + message;
          }
      CAPTURE(std::string(shape_text(mesh.sizes).view()));
      CAPTURE(e[0]);
      CAPTURE(first);
      CHECK(wrong == 0);
      CHECK(dearer == 0);
    }
}

TEST_CASE("random programs: every operation of the local program is legal") {
  reference::random_options options;
  options.regions = false;  // a value has one producer here; carried values have several
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    reference::random_program r(seed, options);
    CAPTURE(r.describe());
    const plan_request request;
    completion c(r.g, r.mesh, request);
    c.run();
    REQUIRE(wrong_program(r.g, r.mesh, c.shardings, emitted(r.g, r.mesh)) == "");
  }
}
