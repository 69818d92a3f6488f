// SPDX-License-Identifier: Apache-2.0
// How the partitioner chooses: against an enumeration of everything that one product could do.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "support/graph_builder.hpp"
#include "support/run_random.hpp"

using namespace layouts;

namespace {

/// bij,bjk->bik, letter by letter.
constexpr std::string_view letters_of_tensor[3] = {"bij", "bjk", "bik"};
constexpr std::string_view all_letters = "bijk";

/// Every way to run a product of one mesh and shape, and what it costs to get there from, and back to, every sharding.
struct naive_enumeration {
  mesh_shape mesh;
  std::vector<std::int64_t> extent;                // of b, i, j, k
  std::vector<sharding> shardings;                 // of a tensor of rank 3
  std::vector<std::vector<std::int64_t>> cost[3];  // by tensor, way, sharding

  naive_enumeration(const std::vector<int>& sizes, std::vector<std::int64_t> extents_of_letters)
      : mesh(mesh_of(sizes)), extent(std::move(extents_of_letters)), shardings(all_shardings(mesh, 3)) {
    for (const auto& way : all_shardings(mesh, 4))  // a letter in the place of a dim
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

/// By sharding, what becomes of it when the axes are renamed; for meshes whose axes have one size.
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

TEST_CASE("F39: no triple of shardings of a product sends more than the best of all ways to run it") {
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
