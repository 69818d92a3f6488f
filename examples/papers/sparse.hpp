// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/layouts.hpp>
#include <gspmd/ops.hpp>

/// The layers of experts of GSPMD 5.4 and 5.5, in the letters of Fig. 8: E experts with room for C tokens of each of B sequences.
namespace papers {

using namespace gspmd;

/// x [B,S,M], mask [B,S,E,C], w_in [E,M,H], w_out [E,H,M] give [B,S,M]. `inside` are the places on the mesh of what goes to the experts and
/// comes back, [E,B,C,M]; `hidden` those of [E,B,C,H].
inline value experts_layer(value x, value mask, value w_in, value w_out, std::array<int, 4> inside, std::array<int, 4> hidden) {
  const auto sent = mesh_split(einsum<"bsm,bsec->ebcm">(x, mask), {inside[0], inside[1], inside[2], inside[3]});
  const auto h = relu(mesh_split(einsum<"ebcm,emh->ebch">(sent, w_in), {hidden[0], hidden[1], hidden[2], hidden[3]}));
  const auto back = mesh_split(einsum<"ebch,ehm->ebcm">(h, w_out), {inside[0], inside[1], inside[2], inside[3]});
  return einsum<"ebcm,bsec->bsm">(back, mask);
}
/// Fig. 8a: sequences and experts are split over one axis.
inline value sparse_layer(value x, value mask, value w_in, value w_out) {
  return mesh_split(experts_layer(x, mask, w_in, w_out, {0, -1, -1, -1}, {0, -1, -1, -1}), {0, -1, -1});
}
/// Fig. 8b: M, and H in the experts, over a second one.
inline value hybrid_layer(value x, value mask, value w_in, value w_out) {
  return mesh_split(experts_layer(x, mask, w_in, w_out, {0, -1, -1, 1}, {0, -1, -1, 1}), {0, -1, 1});
}

/// A layer of experts of Table 6, an expert for each device of a torus of x * y, 4 sequences of 1024 tokens. The paper does not give M and H.
inline dynamic::program sparse_layer_on_torus(int x, int y, const dynamic::mesh& m) {
  const std::int64_t experts = x * y, batch = 4 * experts, length = 1024, model = 512, hidden = 2048;
  dynamic::builder b(m);
  const auto in = [&](std::vector<std::int64_t> shape) {
    std::vector<std::string> sharding(shape.size());
    sharding[0] = "x,y";
    return b.input(dynamic::in<float>(std::move(shape), std::move(sharding)));
  };
  const auto tokens = in({batch, length, model}), mask = in({batch, length, experts, 4096 / experts});
  const auto w_in = in({experts, model, hidden}), w_out = in({experts, hidden, model});
  const auto sent = b.reshard(einsum<"bsm,bsec->ebcm">(tokens, mask), {"x,y", "", "", ""});
  const auto back = einsum<"ebch,ehm->ebcm">(relu(einsum<"ebcm,emh->ebch">(sent, w_in)), w_out);
  b.output(b.reshard(einsum<"ebcm,bsec->bsm">(back, mask), {"x,y", "", ""}));
  return b.compile();
}

}  // namespace papers
