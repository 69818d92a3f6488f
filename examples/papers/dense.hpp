// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/index.hpp>
#include <gspmd/layouts.hpp>
#include <gspmd/ops.hpp>
#include <gspmd/transform/grad.hpp>
#include <gspmd/transform/recompute.hpp>
#include <gspmd/transform/update.hpp>
#include <gspmd/windows.hpp>

/// The dense Transformer of GSPMD 5.1, in the letters of its Table 1: B sequences of S tokens of M numbers, N heads of
/// D, H hidden units.
namespace papers {

using namespace gspmd;

/// Annotations of Table 1, by name for inputs and by position on the mesh (x, y) for mesh_split.
struct table_1 {
  const char* name;
  std::array<const char*, 3> bsm, bsh;
  std::array<int, 3> bsm_axes, bsh_axes;
  std::array<int, 4> bsnd_axes;
};
inline constexpr table_1 attempts[] = {
    {"attempt 1", {"", "", "x"}, {"", "", "y"}, {-1, -1, 0}, {-1, -1, 1}, {-1, -1, 1, -1}},
    {"attempt 2", {"x", "", ""}, {"x", "", "y"}, {0, -1, -1}, {0, -1, 1}, {0, -1, 1, -1}},
    {"finalized", {"x", "", "y"}, {"x", "", "y"}, {0, -1, 1}, {0, -1, 1}, {0, -1, 1, -1}},
};

inline value split_as(value v, const std::array<int, 3>& a) { return mesh_split(v, {a[0], a[1], a[2]}); }
inline value split_as(value v, const std::array<int, 4>& a) { return mesh_split(v, {a[0], a[1], a[2], a[3]}); }

/// w_in [M,H], w_out [H,M].
inline value feed_forward(const table_1& t, value x, value w_in, value w_out) {
  const auto h = relu(split_as(einsum<"bsm,mh->bsh">(x, w_in), t.bsh_axes));
  return split_as(einsum<"bsh,hm->bsm">(h, w_out), t.bsm_axes);
}
/// w: of queries, keys and values, [M,N,D] each; wo [N,D,M]. Scores are not scaled, as in Table 1's graph.
inline value self_attention(const table_1& t, value x, const std::array<value, 3>& w, value wo) {
  value q[3];
  for (std::size_t k = 0; k < 3; ++k) q[k] = split_as(einsum<"bsm,mnd->bsnd">(x, w[k]), t.bsnd_axes);
  const auto scores = softmax(einsum<"bsnd,btnd->bnst">(q[0], q[1]), 3);
  const auto mixed = split_as(einsum<"bnst,btnd->bsnd">(scores, q[2]), t.bsnd_axes);
  return split_as(einsum<"bsnd,ndm->bsm">(mixed, wo), t.bsm_axes);
}

/// A model of Tables 2 and 3: one of their columns.
struct dense_model {
  std::int64_t layers, model, hidden, heads, width, x, y, batch;
  static constexpr std::int64_t length = 1024, vocabulary = 32000;

  /// 4MND + 2MH per layer, and the embedding.
  [[nodiscard]] constexpr double parameters_of_layer() const {
    return 4.0 * static_cast<double>(model * heads * width) + 2.0 * static_cast<double>(model * hidden);
  }
  [[nodiscard]] dynamic::mesh mesh() const { return dynamic::mesh({{"x", x}, {"y", y}}); }
};

/// Inputs of a step of a model: 32-bit weights. Products read them as 16 bits, as in the paper.
class dense_inputs {
 public:
  dense_inputs(dynamic::builder& b, const dense_model& n) : b_(b), n_(n) {}

  value activation() { return b_.input(dynamic::input<bf16>({n_.batch, dense_model::length, n_.model}, {"x", "", "y"})); }
  /// A layer with the finalized annotations and its residuals. Its weights are inputs. `is_again`: the backward pass
  /// recomputes it from x.
  value layer(value x, bool is_again = false) {
    const auto [L, M, H, N, D, X, Y, B] = n_;
    const std::array<value, 6> w{input({M, N, D}, {"x", "y", ""}), input({M, N, D}, {"x", "y", ""}),
                                 input({M, N, D}, {"x", "y", ""}), input({N, D, M}, {"y", "", "x"}),
                                 input({M, H}, {"x", "y"}),        input({H, M}, {"y", "x"})};
    const auto f = [](value h, const std::array<value, 6>& of) {
      const auto& t = attempts[2];
      const auto half = [&](std::size_t k) { return cast<bf16>(of[k]); };
      h = h + self_attention(t, h, {half(0), half(1), half(2)}, half(3));
      return h + feed_forward(t, h, half(4), half(5));
    };
    return is_again ? recompute(f)(x, w) : f(x, w);
  }
  /// Returns the loss: the sum over the vocabulary for predicted words.
  value loss(value x) {
    return sum(log_softmax(einsum<"bsm,mv->bsv">(x, cast<bf16>(input({n_.model, dense_model::vocabulary}, {"x", "y"}))), 2));
  }
  [[nodiscard]] const std::vector<value>& weights() const { return weights_; }

 private:
  value input(std::vector<std::int64_t> shape, std::vector<std::string> sharding) {
    weights_.push_back(b_.input(dynamic::input<float>(std::move(shape), std::move(sharding))));
    return weights_.back();
  }
  dynamic::builder& b_;
  const dense_model& n_;
  std::vector<value> weights_;
};

/// A training step with this number of layers, by gradient descent; or only its forward pass.
inline dynamic::program dense_step(const dense_model& n, const dynamic::mesh& m, int layers, bool is_training,
                                   bool is_again = false) {
  dynamic::builder b(m);
  dense_inputs in(b, n);
  value x = in.activation();
  for (int l = 0; l < layers; ++l) x = in.layer(x, is_again);
  const value loss = in.loss(x);
  if (!is_training) b.output(loss);
  const auto gradients = is_training ? grad(loss, in.weights()) : std::vector<value>{};
  for (std::size_t k = 0; k < gradients.size(); ++k) b.output(update(in.weights()[k], in.weights()[k] - 0.01 * gradients[k]));
  return b.compile();
}

}  // namespace papers
