// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/index.hpp>
#include <gspmd/nn/attention.hpp>
#include <gspmd/nn/norms.hpp>
#include <gspmd/ops.hpp>
#include <gspmd/transform/grad.hpp>
#include <gspmd/transform/update.hpp>
#include <gspmd/windows.hpp>

/// A training step of one layer of a Transformer, written for one device: forward pass, backward pass, momentum,
/// update. A `placement` distributes it over a mesh. It names axes and specifies no communication.
namespace zoo {

using namespace gspmd;
using names = std::vector<std::string>;  // the axes of each dim; without an entry, the planner finds them

/// B sequences of T tokens of D numbers, N heads, F hidden units.
struct layer_sizes {
  std::int64_t batch, tokens, width, heads, hidden;
};

/// The weights of the layer: of queries, keys and values [D,N,K] each; of the heads' results [N,K,D]; of the hidden
/// units [D,F] and [F,D].
struct weight_names {
  names heads = {"", "", ""}, answers = {"", "", ""}, in = {"", ""}, out = {"", ""};
};

struct placement {
  names tokens;                  // [B,T,D] between layers
  weight_names weights = {};     // before and after the step
  names read = {}, hidden = {};  // [B,T,D], the operands of products with weights, and [B,T,F]; empty: inferred
  // [B,N,T,K]: the queries of the attention, its keys and values, and its results; empty: inferred
  names queries = {}, keys = {}, mixed = {};
  std::optional<weight_names> gradients = {}, momenta = {};  // nullopt: inferred, and like the weights
  value (*attend)(value, value, value) = [](value q, value k, value v) { return attention(q, k, v); };
};

/// Returns the bytes of the layer's weights.
inline double weight_bytes(const layer_sizes& n) {
  return 4.0 * static_cast<double>(4 * n.width * n.width + 2 * n.width * n.hidden);
}
/// Returns the bytes of a tensor of the layer's tokens.
inline double token_bytes(const layer_sizes& n) { return 4.0 * static_cast<double>(n.batch * n.tokens * n.width); }

inline const names& of_weight(const weight_names& w, std::size_t k) {
  return k < 3 ? w.heads : k == 3 ? w.answers : k == 4 ? w.in : w.out;
}
/// Returns the six weights as inputs. `changed` returns each input from the input for one layer.
template <class Changed = std::identity>
std::vector<value> inputs(dynamic::builder& b, const layer_sizes& n, const weight_names& w, Changed changed = {}) {
  const auto [B, T, D, N, F] = n;
  const std::vector<std::int64_t> heads{D, N, D / N}, answers{N, D / N, D},
      shapes[]{heads, heads, heads, answers, {D, F}, {F, D}};
  std::vector<value> all;
  for (std::size_t k = 0; k < 6; ++k) all.push_back(b.input(changed(dynamic::input<float>(shapes[k], of_weight(w, k)))));
  return all;
}

/// Returns the result of the layer for x, [B,T,D].
inline value layer(dynamic::builder& b, const std::vector<value>& w, value x, const placement& where) {
  const auto placed = [&](value v, const names& sharding) { return sharding.empty() ? v : b.reshard(v, sharding); };
  const value in = placed(layer_norm(x), where.read);
  const value q = placed(einsum<"btd,dnk->bntk">(in, w[0]), where.queries);
  const value k = placed(einsum<"btd,dnk->bntk">(in, w[1]), where.keys);
  const value v = placed(einsum<"btd,dnk->bntk">(in, w[2]), where.keys);
  const value mixed = placed(where.attend(q, k, v), where.mixed);
  const value attended = b.reshard(x + einsum<"bntk,nkd->btd">(mixed, w[3]), where.tokens);
  const value wide = einsum<"btd,df->btf">(placed(layer_norm(attended), where.read), w[4]);
  const value hidden = relu(placed(wide, where.hidden));
  return b.reshard(attended + einsum<"btf,fd->btd">(hidden, w[5]), where.tokens);
}

/// Inputs: x and the target, [B,T,D]; six weights and their momenta. Outputs: the loss, the gradient by x for the
/// previous layer, six weights and their momenta.
inline dynamic::program train(const dynamic::mesh& m, const layer_sizes& n, const placement& where) {
  dynamic::builder b(m);
  const value x = b.input(dynamic::input<float>({n.batch, n.tokens, n.width}, where.tokens));
  const value target = b.input(dynamic::input<float>({n.batch, n.tokens, n.width}, where.tokens));
  const auto w = inputs(b, n, where.weights);
  const auto momenta = inputs(b, n, where.momenta.value_or(where.weights));
  const value y = layer(b, w, x, where);

  const value difference = y - target;
  const value loss = mean(difference * difference);
  std::vector<value> sources = w;
  sources.push_back(x);
  auto gradients = grad(loss, sources);
  b.output(loss);
  b.output(b.reshard(gradients.back(), where.tokens));
  std::vector<value> next;
  for (std::size_t i = 0; i < w.size(); ++i) {
    value g = gradients[i];
    if (const auto& of = where.gradients) g = b.reshard(g, of_weight(*of, i));
    next.push_back(update(momenta[i], 0.9 * momenta[i] + g));
    b.output(update(w[i], w[i] - 0.1 * next.back()));
  }
  for (const value& v_next : next) b.output(v_next);
  return b.compile();
}

}  // namespace zoo
