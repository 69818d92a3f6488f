// SPDX-License-Identifier: Apache-2.0
// Random documents for gspmd-plan (libFuzzer): whatever the bytes, there is a plan or an error, and a program computes on its mesh
// and on one device what the naive evaluator does, floating-point numbers up to the rounding that it bounds.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "../../examples/plan/dot.hpp"
#include "../../examples/plan/json_out.hpp"
#include "../../examples/plan/run.hpp"
#include "../../examples/plan/svg.hpp"
#include "../../examples/plan/table.hpp"
#include "../../examples/plan/why.hpp"
#include "documents.hpp"
#include "support/rounding.hpp"

using namespace plan_tool;

namespace {

constexpr std::size_t most_bytes = 16384;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "gspmd-plan: %s\n", what.c_str());
  std::abort();
}

/// How many documents of each kind there were; printed at the end.
struct tally {
  std::uint64_t read = 0, planned = 0, run = 0;
};
tally tallies[3];

reference::compared_elements elements;  // of outputs
std::uint64_t regions_run = 0;          // documents with loops or conditionals that were run

void print_tallies() {
  constexpr const char* kinds[] = {"as JSON", "generated", "generated and spoiled"};
  for (int k = 0; k < 3; ++k)
    std::fprintf(stderr, "documents %s: %llu, planned %llu, run %llu\n", kinds[k],
                 static_cast<unsigned long long>(tallies[k].read), static_cast<unsigned long long>(tallies[k].planned),
                 static_cast<unsigned long long>(tallies[k].run));
  std::fprintf(stderr, "elements of outputs: %llu, compared %llu, of them not exact %llu\n",
               static_cast<unsigned long long>(elements.all), static_cast<unsigned long long>(elements.compared),
               static_cast<unsigned long long>(elements.inexact));
  std::fprintf(stderr, "documents with loops or conditionals that were run: %llu\n",
               static_cast<unsigned long long>(regions_run));
}

void look_at(const planned_program& p) {
  std::vector<std::string> why;
  std::vector<int> all;
  for (int v = 0; v < static_cast<int>(p.built.values.size()); ++v) {
    for (const auto& line : sharding_reasons(p).of(v)) why.push_back(line);
    all.push_back(v);
  }
  static_cast<void>(plan_table(p, colours{true}, {}).text());
  if (p.mesh().device_count() <= 64) static_cast<void>(shard_picture(p).of(all));
  static_cast<void>(dot_graph(p));
  const auto j = json::parse(plan_json(&p, {}, why));  // throws if it is no JSON
  if (j["values"].size() != all.size()) fail("a value is missing in the plan");
  if (p.program().traffic().bytes < 0 || p.program().peak_bytes_per_device() < 0) fail("a negative number of bytes");
  std::int64_t sum = 0;
  std::size_t collectives = 0;
  bool any_joined = false;
  for (const auto& i : p.plan.instructions()) {
    sum += i.bytes;
    collectives += i.communicates && !i.joined ? 1 : 0;
    any_joined = any_joined || i.joined;
  }
  // Several all_reduces in one message may send a little less than each alone, which is what an instruction says.
  const auto sent = p.program().traffic().bytes;
  if (p.plan.graph().has_regions) return;  // what stands in a body is listed once, and runs as often as it does
  if (any_joined ? sum < sent : sum != sent) fail("the bytes of the instructions are not those of the plan");
  if (collectives != p.program().collectives().size()) fail("the instructions have other collectives than the plan");
}

bool is_small(const planned_program& p) {
  if (p.mesh().device_count() > 16 || p.program().peak_bytes_per_device() > 65536) return false;
  for (const auto& n : p.plan.graph().nodes) {
    using gspmd::dtype;
    if (gspmd::detail::elements(n.shape) > 4096) return false;
    // The evaluator has no numbers of these types.
    if (n.type == dtype::bf16 || n.type == dtype::f16 || gspmd::is_complex(n.type)) return false;
  }
  return true;
}

/// Inputs and outputs of one shard_as group have one sharding, and what any of them says itself stays.
void check_groups(const json& document, const planned_program& p) {
  std::map<std::int64_t, std::string> found;  // by group: how the first of it is split
  for (const char* list : {"inputs", "ops"}) {
    if (!document.contains(list)) continue;
    for (const auto& item : document[list]) {
      if (!item.contains("sharding") || !item["sharding"].is_string()) continue;
      const auto said = gspmd::xla_sharding::parse(item["sharding"].get_ref<const std::string&>());
      const int v = p.find(item["name"].get_ref<const std::string&>());
      const auto& value = p.value(v);
      const auto& outputs = p.built.outputs;
      if (said.tiles().shard_group < 0) continue;
      if (!value.is_input && std::find(outputs.begin(), outputs.end(), v) == outputs.end()) continue;
      std::string words;  // axes of size 1 say nothing
      bool is_split = false;
      for (const auto& dim : p.plan.find(v)->sharding()) {
        words += '[';
        for (const auto& name : names_in(dim))
          if (p.mesh().size_of(name) > 1) words += ' ' + name;
        is_split = is_split || words.back() != '[';
        words += ']';
      }
      if (said.tiles().kind == gspmd::detail::xla_kind::replicated && !item.contains("open") && is_split)
        fail(value.name + " says that it is replicated and is " + words);
      if (!said.tiles().is_shard_like && found.emplace(said.tiles().shard_group, words).first->second != words)
        fail(value.name + " is " + words + " and another of its shard_as group is not");
    }
  }
}

reference::host_array as_reference(const any_array& a) {
  reference::host_array result(a.type, a.shape);
  gspmd::with_real_type(a.type, [&](auto element) {
    const auto* data = a.data<decltype(element)>();
    for (std::size_t i = 0; i < result.reals.size(); ++i) result.reals[i] = static_cast<double>(data[i]);
    for (std::size_t i = 0; i < result.ints.size(); ++i) result.ints[i] = static_cast<std::int64_t>(data[i]);
  });
  return result;
}

/// Fails where an output is not what the naive evaluator of the program gives.
void compare(const planned_program& p, const std::vector<any_array>& outputs, const reference::rounding& expected,
             const std::string& where) {
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const auto& value = p.value(p.built.outputs[k]);
    const auto node = static_cast<std::size_t>(p.plan.node_of(p.built.outputs[k]));
    const auto& naive = expected.values[node];
    const auto& radius = expected.radii[node];
    gspmd::with_real_type(value.type, [&](auto element) {
      const auto* data = outputs[k].data<decltype(element)>();
      const auto at = reference::first_unexplained(data, naive, radius, elements);
      if (at < 0) return;
      const auto e = static_cast<std::size_t>(at);
      char text[200];
      std::snprintf(text, sizeof text, " differs at element %lld: %.17g, and by the naive evaluator %.17g up to %.3g",
                    static_cast<long long>(at), static_cast<double>(data[e]),
                    naive.floating() ? naive.reals[e] : static_cast<double>(naive.ints[e]), radius.reals[e]);
      fail("the output " + value.name + ' ' + where + text);
    });
  }
}

void run(const json& document, const planned_program& p) {
  const auto inputs = made_inputs(p);
  error_list errors;
  const auto alone = plan_document(document, devices::one, errors);
  if (!alone) fail("planned on the mesh, refused on one device: " + errors.lines()[0]);
  std::vector<reference::host_array> arrays;
  for (const auto& a : inputs) arrays.push_back(as_reference(a));
  const reference::rounding expected(p.plan.graph(), arrays);
  if (!expected.is_known()) return;  // a loop may take any time
  regions_run += p.plan.graph().has_regions ? 1 : 0;
  compare(p, run_on("simulated", p.program(), pointers_to(inputs)), expected, "on the mesh");
  compare(p, run_on("self", alone->program(), pointers_to(inputs)), expected, "on one device");
}

}  // namespace

const std::string& operator_names() { return known_operators(); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > most_bytes || size == 0) return 0;
  // What begins with { is a document, what begins with G is bytes to generate one from, with H one that has mistakes; the rest
  // is no JSON.
  static const bool prints = std::atexit(print_tallies) == 0;
  const bool is_generated = data[0] == 'G';
  const bool is_spoiled = data[0] == 'H';
  auto& count = tallies[is_generated ? 1 : is_spoiled ? 2 : 0];
  count.read += prints ? 1 : 0;
  error_list errors;
  const auto document = is_generated || is_spoiled ? generated_document(data + 1, size - 1, is_spoiled)
                                                   : parse_document({reinterpret_cast<const char*>(data), size}, errors);
  if (std::getenv("SHOW_DOCUMENT") != nullptr) std::fprintf(stderr, "%s\n", document.dump().c_str());
  std::optional<planned_program> p;
  if (errors.empty()) p = plan_document(document, devices::of_mesh, errors);
  for (const auto& line : errors.lines()) {
    if (line.empty()) fail("an error without words");
    for (const char c : line)
      if (static_cast<unsigned char>(c) < 0x20) fail("an error that is not one line: " + line);
  }
  if (p && !errors.empty()) fail("a plan with errors");
  if (!p && errors.empty()) fail("neither a plan nor an error");
  if (!p && is_generated) fail("a document that was generated is refused: " + errors.lines()[0]);
  static_cast<void>(plan_json(p ? &*p : nullptr, errors.lines()));
  if (!p) return 0;
  ++count.planned;
  look_at(*p);
  check_groups(document, *p);
  if (!is_small(*p)) return 0;
  ++count.run;
  run(document, *p);
  return 0;
}
