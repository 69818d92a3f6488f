// SPDX-License-Identifier: Apache-2.0
// labels: planner exhaustive
// group: planner
// The choices of the partitioner, compared with an enumeration of all ways to run one product.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "support/golden_folder.hpp"
#include "support/run_graph.hpp"
#include "support/run_random.hpp"

using namespace layouts;

namespace {

/// bij,bjk->bik, letter by letter.
constexpr std::string_view letters_of_tensor[3] = {"bij", "bjk", "bik"};
constexpr std::string_view all_letters = "bijk";

/// All ways to run a product on one mesh with one shape, and the cost to reshard from and to every sharding.
struct naive_enumeration {
  mesh_shape mesh;
  std::vector<std::int64_t> extent;                // of b, i, j, k
  std::vector<sharding> shardings;                 // of a tensor of rank 3
  std::vector<std::vector<std::int64_t>> cost[3];  // by tensor, way, sharding

  naive_enumeration(const std::vector<int>& sizes, std::vector<std::int64_t> extents_of_letters)
      : mesh(mesh_of(sizes)), extent(std::move(extents_of_letters)), shardings(all_shardings(mesh, 3)) {
    for (const auto& way : all_shardings(mesh, 4))  // letters instead of dims
      for (int t = 0; t < 3; ++t) {
        sharding s;
        for (const auto& use : way.splits) {
          const auto dim = letters_of_tensor[t].find(all_letters[static_cast<std::size_t>(use.dim)]);
          if (dim != std::string_view::npos) s.add_split(use.axis, static_cast<int>(dim));
          else if (t == 2) s.partial |= axis_bit(use.axis);
        }
        std::vector<std::int64_t> row;
        for (const auto& other : shardings) row.push_back(t == 2 ? bytes(t, s, other) : bytes(t, other, s));
        cost[t].push_back(row);
      }
  }
  [[nodiscard]] std::vector<std::int64_t> shape(int t) const {
    std::vector<std::int64_t> result;
    for (const char c : letters_of_tensor[t]) result.push_back(extent[all_letters.find(c)]);
    return result;
  }
  [[nodiscard]] std::int64_t bytes(int t, const sharding& from, const sharding& to) const {
    return reshard_bytes(mesh, shape_of(shape(t)), from, to, 4);
  }
  [[nodiscard]] std::int64_t best(std::size_t left, std::size_t right, std::size_t out) const {
    auto least = std::numeric_limits<std::int64_t>::max();
    for (std::size_t way = 0; way < cost[0].size(); ++way)
      least = std::min(least, cost[0][way][left] + cost[1][way][right] + cost[2][way][out]);
    return least;
  }
  [[nodiscard]] graph_builder program(std::size_t left, std::size_t right, std::size_t out) const {
    graph_builder b(std::vector<int>(mesh.sizes.begin(), mesh.sizes.end()));
    const int l = b.input(shape(0), shardings[left]);
    const int r = b.input(shape(1), shardings[right]);
    b.g.outputs = {b.annotate(b.einsum("bij,bjk->bik", l, r), shardings[out])};
    return b;
  }
};

/// Returns, for each sharding, its image under each renaming of the axes. All axes of the mesh must have one size.
std::vector<std::vector<std::size_t>> renamings(const naive_enumeration& all) {
  std::vector<int> order(static_cast<std::size_t>(all.mesh.axis_count()));
  for (std::size_t a = 0; a < order.size(); ++a) order[a] = static_cast<int>(a);
  std::vector<std::vector<std::size_t>> result;
  do {
    std::vector<std::size_t> to;
    for (const auto& s : all.shardings) {
      sharding renamed;
      for (const auto& use : s.splits) renamed.add_split(order[static_cast<std::size_t>(use.axis)], use.dim);
      to.push_back(
          static_cast<std::size_t>(std::find(all.shardings.begin(), all.shardings.end(), renamed) - all.shardings.begin()));
    }
    result.push_back(to);
  } while (std::next_permutation(order.begin(), order.end()));
  return result;
}

}  // namespace

TEST_CASE("no triple of shardings of a product sends more than the best of all ways to run it") {
  const auto skip = reference::setting("GSPMD_EVERY_TRIPLE", 0) != 0 ? 1U : 37U;  // on the mesh of three axes
  for (const auto& sizes : {std::vector<int>{2, 2}, {4, 2}, {2, 2, 2}})
    for (const std::vector<std::int64_t>& extents_of_letters :
         {std::vector<std::int64_t>{8, 8, 8, 8}, {8, 16, 64, 8}, {16, 64, 8, 32}, {3, 5, 7, 9}, {1, 10, 6, 13}}) {
      if (sizes.size() == 3 && skip != 1 && extents_of_letters[0] == 1) continue;
      const naive_enumeration all(sizes, extents_of_letters);
      const auto count = all.shardings.size();
      std::vector<std::vector<std::size_t>> alike;
      if (sizes.size() == 3) alike = renamings(all);
      std::int64_t dearer = 0;
      std::int64_t tried = 0;
      std::uint64_t number = 0;
      std::string first;
      for (std::size_t left = 0; left < count; ++left)
        for (std::size_t right = 0; right < count; ++right)
          for (std::size_t out = 0; out < count; ++out) {
            if (std::any_of(alike.begin(), alike.end(), [&](const auto& to) {
                  return std::tuple{to[left], to[right], to[out]} < std::tuple{left, right, out};
                }))
              continue;
            if (sizes.size() == 3 && number++ % skip != 0) continue;
            const auto b = all.program(left, right, out);
            const auto p = b.partition();
            const auto sent = bytes_sent(b.mesh, p);
            const auto best = all.best(left, right, out);
            ++tried;
            if (sent <= best || dearer++ != 0) continue;
            first = text_of(all.shardings[left], 3) + text_of(all.shardings[right], 3) + "->" + text_of(all.shardings[out], 3) +
                    " sends " + std::to_string(sent) + ", not " + std::to_string(best);
          }
      CAPTURE(std::string(shape_text(all.mesh.sizes).view()));
      CAPTURE(extents_of_letters[1]);
      CAPTURE(tried);
      CAPTURE(first);
      CHECK(dearer == 0);
      CHECK(tried > 5'000);
    }
}

TEST_CASE("no triple with uneven extents sends more than the best of all ways") {
  const std::vector<std::int64_t> uneven[] = {{3, 5, 7, 9}, {5, 9, 11, 14}, {2, 3, 5, 7}, {9, 17, 33, 15}};
  for (const auto& sizes : {std::vector<int>{2, 2}, {4, 2}, {2, 2, 2}})
    for (const auto& extents_of_letters : uneven) {
      const naive_enumeration all(sizes, extents_of_letters);
      const auto count = all.shardings.size();
      const std::size_t stride = sizes.size() == 2 ? 3 : 197;  // of all triples; coprime to their number
      std::int64_t dearer = 0, cheaper = 0;
      for (std::size_t triple = 0; triple < count * count * count; triple += stride) {
        const auto left = triple / count / count, right = triple / count % count, out = triple % count;
        const auto b = all.program(left, right, out);
        const auto sent = bytes_sent(b.mesh, b.partition());
        const auto best = all.best(left, right, out);
        dearer += sent > best ? 1 : 0;
        cheaper += sent < best ? 1 : 0;  // not possible in any way
      }
      CAPTURE(std::string(shape_text(all.mesh.sizes).view()));
      CAPTURE(extents_of_letters[1]);
      CHECK(cheaper == 0);
      CHECK(dearer == 0);
    }
}

TEST_CASE("a sample of the triples gives the numbers of one device, uneven sizes too") {
  for (const auto& sizes : {std::vector<int>{2, 2}, {4, 2}, {2, 2, 2}})
    for (const std::vector<std::int64_t>& extents_of_letters :
         {std::vector<std::int64_t>{4, 8, 8, 4}, {3, 5, 7, 9}, {1, 6, 3, 2}}) {
      const naive_enumeration all(sizes, extents_of_letters);
      const auto count = all.shardings.size();
      const auto step = count * count * count / 150;
      std::string first;
      for (std::size_t i = step / 2; i < count * count * count && first.empty(); i += step) {
        const auto left = i / count / count;
        const auto right = i / count % count;
        const auto out = i % count;
        const auto wrong = wrong_run(all.program(left, right, out));
        if (!wrong.empty())
          first = text_of(all.shardings[left], 3) + text_of(all.shardings[right], 3) + "->" + text_of(all.shardings[out], 3) +
                  ": " + wrong;
      }
      CAPTURE(std::string(shape_text(all.mesh.sizes).view()));
      CAPTURE(extents_of_letters[1]);
      CHECK(first == "");
    }
}

TEST_CASE("64 triples of shardings of bij,bjk->bik, as text") {
  const std::vector<sharding> list = {split({{0}, {}, {}}), split({{}, {0}, {}}), split({{}, {}, {0}}), split({{0}, {1}, {}})};
  std::string text =
      "bij,bjk->bik with b=8, i=16, j=32, k=64 in f32 on x=2, y=2\n"
      "given, what the operator runs on, what is sent and for which tensor, bytes per device\n\n";
  for (const auto& left : list)
    for (const auto& right : list)
      for (const auto& out : list) {
        graph_builder b({2, 2});
        const int l = b.input({8, 16, 32}, left);
        const int r = b.input({8, 32, 64}, right);
        const int o = b.annotate(b.einsum("bij,bjk->bik", l, r), out);
        b.g.outputs = {o};
        const auto p = b.partition();
        std::string sent;
        text += text_of(left, 3) + ' ' + text_of(right, 3) + " -> " + text_of(out, 3) + ":  ";
        for (const auto& op : p.ops) {
          if (op.what == instruction_kind::compute)
            text += text_of(p.value(op.operands[0]).layout, 3) + ' ' + text_of(p.value(op.operands[1]).layout, 3) + " -> " +
                    text_of(p.value(op.result).layout, 3);
          else if (op.what != instruction_kind::slice)
            sent += std::string(sent.empty() ? "  " : ", ") + name_of(op.collective) + ' ' + axes_text(op.axes) + " of " +
                    (p.value(op.result).node == l   ? "left"
                     : p.value(op.result).node == r ? "right"
                                                    : "result");
        }
        text += sent + "  " + std::to_string(bytes_sent(b.mesh, p)) + '\n';
        CHECK(wrong_run(b) == "");
      }
  const std::string path = test::golden_folder() + "product_triples.txt";
  if (std::getenv("GSPMD_WRITE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  const std::string held{std::istreambuf_iterator<char>(file), {}};
  CHECK(text == held);
}

TEST_CASE("Fig. 6, grouped over Y, by device numbers") {
  // The mesh [[0,1],[2,3]] of (Y, X): AB,BC->AC with A and the rows of BC over X, its columns over Y.
  constexpr int Y = 0, X = 1;
  graph_builder b({2, 2});
  const int l = b.input({64, 32}, split({{X}, {}}));
  const int r = b.input({32, 16}, split({{X}, {Y}}));
  const int o = b.annotate(b.einsum("ab,bc->ac", l, r), split({{X}, {Y}}));
  b.g.outputs = {o};
  const auto p = b.partition();
  REQUIRE(p.ops.size() == 2);
  const auto& gather = p.ops[0];
  CHECK(gather.collective == collective_kind::all_gather);
  CHECK(p.value(gather.result).node == r);
  std::set<std::vector<int>> groups;
  for (int device = 0; device < 4; ++device) {
    std::vector<int> group;
    for (int k = 0; k < b.mesh.size_of(gather.axes); ++k)
      group.push_back(b.mesh.device_at(group_member(b.mesh, gather.axes, b.mesh.coordinates_of(device), k)));
    groups.insert(group);
  }
  CHECK(groups == std::set<std::vector<int>>{{0, 1}, {2, 3}});
  // aBc = einsum(aB, Bc): a local part of A and C, all of B
  CHECK(p.value(p.ops[1].operands[0]).local == shape_of({32, 32}));
  CHECK(p.value(p.ops[1].operands[1]).local == shape_of({32, 8}));
  CHECK(p.value(p.ops[1].result).local == shape_of({32, 8}));
  CHECK(wrong_run(b) == "");
}

TEST_CASE("local on the group dim, then all_to_all to the experts") {
  for (const std::int64_t groups : {8, 6}) {  // 6 over 4: uneven
    graph_builder b({4});
    const int mask = b.input({groups, 16, 8, 4}, split({{0}, {}, {}, {}}));
    const int in = b.input({groups, 16, 8}, split({{0}, {}, {}}));
    b.g.outputs = {b.annotate(b.einsum("GSEC,GSM->EGCM", mask, in), split({{0}, {}, {}, {}}))};
    const auto p = b.partition();
    CHECK(collectives(p) == std::vector<std::string>{"all_to_all x"});
    CHECK(p.ops[0].what == instruction_kind::compute);
    CHECK(wrong_run(b) == "");
  }
}

TEST_CASE("many axes: the search by one axis at a time is no dearer than gathering both operands") {
  for (const auto& axes : {std::vector<int>{2, 2, 2, 2}, {2, 3, 2, 2, 2}}) {
    const auto mesh = mesh_of(axes);
    reference::random_numbers random(7);
    for (int k = 0; k < 100; ++k) {
      graph_builder b(axes);
      const auto left = reference::random_sharding(mesh, 2, random);
      const auto right = reference::random_sharding(mesh, 2, random);
      const auto out = reference::random_sharding(mesh, 2, random);
      b.g.outputs = {b.annotate(b.einsum("ab,bc->ac", b.input({24, 12}, left), b.input({12, 36}, right)), out)};
      const auto gathered = reshard_bytes(mesh, shape_of({24, 12}), left.layout, {}, 4) +
                            reshard_bytes(mesh, shape_of({12, 36}), right.layout, {}, 4);
      CHECK(bytes_sent(mesh, b.partition()) <= gathered);
    }
    if (axes.size() > 4) continue;  // the test has names for four axes
    graph_builder b(axes);
    b.g.outputs = {b.einsum("ab,bc->ac", b.input({24, 12}, split({{0, 1}, {2}})), b.input({12, 36}, split({{3}, {0, 2}})))};
    CHECK(wrong_run(b) == "");
  }
}

TEST_CASE("the table of choices says what every operator gets and how, and emit carries it out") {
  graph_builder b({2, 2});
  const int l = b.input({8, 16}, split({{0}, {}}));
  const int r = b.input({16, 4}, split({{0}, {1}}));
  const int o = b.annotate(b.einsum("ab,bc->ac", l, r), split({{0}, {1}}));
  b.g.outputs = {o};
  const auto uses = uses_of(b.g);
  const pass_results results(b.g, b.mesh);
  const auto table = results.take<choose_pass>().best.table;
  CHECK(results.of<choose_pass>().best.table.nodes.size() == table.nodes.size());  // run again, because it was taken
  const auto& chosen = table.nodes[o];
  CHECK(text_of(table.wanted[chosen.wanted], 2) == "{x,-}");
  CHECK(text_of(table.wanted[chosen.wanted + 1], 2) == "{-,y}");  // gathered over x
  CHECK(text_of(chosen.result, 2) == "{x,y}");
  REQUIRE(table.paths.size() == 3);  // two operands and an output
  CHECK(table.paths[0].steps == 0);
  REQUIRE(table.paths[1].steps == 1);
  CHECK(table.steps[table.paths[1].step].what == reshard_step::kind::move);
  CHECK(table.steps[table.paths[1].step].axes == axis_bit(0));
  CHECK(table.paths[2].steps == 0);

  // Another table is another program: the operator on pieces of the contracting dim, if the table says so.
  choice_table other = table;
  other.wanted[chosen.wanted] = split({{}, {0}});
  other.wanted[chosen.wanted + 1] = split({{0}, {1}});
  other.nodes[o].result = partial(split({{}, {1}}), axis_bit(0));
  other.paths.clear();
  other.steps.clear();
  const auto add_path = [&](int form, const sharding& from, const sharding& to, const extents& shape) {
    reshard_path way{form, static_cast<int>(other.steps.size()), 0};
    for_each_step(b.mesh, {}, shape, from, to, 4, [&](const sharding&, const reshard_step& step) {
      other.steps.push_back(step);
      ++way.steps;
    });
    other.paths.push_back(way);
    return way.steps;
  };
  int forms = 2;  // the inputs
  forms += add_path(0, split({{0}, {}}), split({{}, {0}}), shape_of({8, 16}));
  forms += add_path(1, split({{0}, {1}}), split({{0}, {1}}), shape_of({16, 4}));
  add_path(forms, other.nodes[o].result, split({{0}, {1}}), shape_of({8, 4}));
  const auto emitted = emitter(b.g, b.mesh, 0, other).run(uses);
  std::vector<std::string> collectives;
  for (const auto& op : emitted.ops)
    if (op.what == instruction_kind::move || op.what == instruction_kind::reduce)
      collectives.emplace_back(name_of(op.collective));
  CHECK(collectives == std::vector<std::string>{"all_to_all", "reduce_scatter"});
  CHECK(text_of(emitted.value(emitted.outputs[0]).layout, 2) == "{x,y}");
}
