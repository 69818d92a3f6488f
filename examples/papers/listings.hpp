// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <gspmd/dynamic/strict_program.hpp>

#include "report.hpp"

/// The listings of "Global vs Local SPMD", "Megatron via shard_map" and "Computing sharding with einsum" (Edward Yang's
/// blog).
namespace papers {

/// Returns the type of a value on each device, in JAX's notation: float32[8,8]{V:tp}.
inline std::string jax_type(const dynamic::strict_program& p, value x) {
  std::string text = "float32[";
  for (int d = 0; d < x.rank(); ++d) text += (d > 0 ? "," : "") + std::to_string(x.shape()[d]);
  const auto s = p.states(x);
  const bool varies = !s || s->on[0].is != state::invariant;
  return text + (varies ? "]{V:tp}" : "]");
}
/// Returns a placement in DTensor's words, with the letter of a dim instead of its number.
inline std::string placement(const dynamic::strict_program& p, value x, const std::string& letters) {
  const auto s = p.states(x);
  if (!s) return "?";
  if (s->on[0].is == state::partial) return "Partial()";
  if (s->on[0].is == state::shard) return std::string("Shard(") + letters[static_cast<std::size_t>(s->on[0].dim)] + ")";
  return "Replicate()";
}

inline void print_listings(report& r) {
  const dynamic::mesh m({{"tp", 2}});
  const auto states = [](state is, int dim = 0) { return dynamic::value_states{{{is, static_cast<std::int8_t>(dim)}}, {}}; };
  {
    r.table("Megatron via shard_map", "The types that its column-parallel layer prints, in a manual region over tp.");
    dynamic::builder b(m);
    dynamic::strict_program p(b, "tp");
    const value input = b.input(dynamic::input<float>({4, 2, 8})), weight = b.input(dynamic::input<float>({8, 8}));
    p.input(input, states(state::invariant));
    p.input(weight, states(state::shard, 1));
    const value cast = p.transition(input, transition_kind::convert, "tp", {state::invariant}, {state::replica});
    const value output = einsum<"sbi,io->sbo">(cast, weight);
    p.check();
    for (const auto& e : p.errors()) r.note(e.text);
    r.words("input", "type", jax_type(p, input), "float32[4,2,8]");
    r.words("weight", "type", jax_type(p, weight), "float32[8,8]{V:tp}");
    r.words("pcast_input", "type", jax_type(p, cast), "float32[4,2,8]{V:tp}");
    r.words("output", "type", jax_type(p, output), "float32[4,2,8]{V:tp}");
    std::string backward;
    for (const auto& c : p.backward_collectives(output)) backward += (backward.empty() ? "" : ", ") + std::string(c.kind);
    r.words("gradient of input", "collectives", backward, "all_reduce");
  }
  r.table("Computing sharding with einsum",
          "The placements of gradients in its two worked examples, by the types of the explicit mode.");
  const auto einsum_of = [&](const char* what, const std::string& equation, const std::vector<std::int64_t>& a,
                             const dynamic::value_states& as, const std::vector<std::int64_t>& c, const dynamic::value_states& cs,
                             const std::string& expected) {
    dynamic::builder b(m);
    dynamic::strict_program p(b, "");
    const value x = b.input(dynamic::input<float>(a)), y = b.input(dynamic::input<float>(c));
    p.input(x, as);
    p.input(y, cs);
    const value z = einsum(equation, x, y);
    p.check();
    r.words(what, "`" + equation + "`", placement(p, z, equation.substr(equation.find('>') + 1)), expected);
  };
  const auto whole = states(state::replica);
  einsum_of("tensor parallel, grad_input", "sbo,io->sbi", {4, 2, 16}, states(state::shard, 2), {8, 16}, states(state::shard, 1),
            "Partial()");
  einsum_of("tensor parallel, grad_weight", "sbi,sbo->io", {4, 2, 8}, whole, {4, 2, 16}, states(state::shard, 2), "Shard(o)");
  einsum_of("sequence parallel, grad_input", "sbh,h->sbh", {4, 2, 8}, states(state::shard, 0), {8}, whole, "Shard(s)");
  einsum_of("sequence parallel, grad_weight", "sbh,sbh->h", {4, 2, 8}, states(state::shard, 0), {4, 2, 8},
            states(state::shard, 0), "Partial()");
}

}  // namespace papers
