// SPDX-License-Identifier: Apache-2.0
// Random documents for gspmd-plan (libFuzzer). All bytes give a plan or an error. A program's results on its mesh and
// on one device equal those of the naive evaluator, for floating-point numbers within the evaluator's bound of the
// rounding.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "../../tools/gspmd-plan/dot.hpp"
#include "../../tools/gspmd-plan/explain_sharding.hpp"
#include "../../tools/gspmd-plan/json_out.hpp"
#include "../../tools/gspmd-plan/run.hpp"
#include "../../tools/gspmd-plan/strict_out.hpp"
#include "../../tools/gspmd-plan/svg.hpp"
#include "../../tools/gspmd-plan/table.hpp"
#include "documents.hpp"
#include "support/rounding.hpp"

using namespace plan_tool;

namespace {

constexpr std::size_t most_bytes = 16384;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "gspmd-plan: %s\n", what.c_str());
  std::abort();
}

/// The number of documents of each kind, printed at the end.
struct tally {
  std::uint64_t read = 0, planned = 0, run = 0;
};
tally tallies[5];

reference::compared_elements elements;  // outputs
std::uint64_t regions_run = 0;          // documents with loops or conditionals that were run

void print_tallies() {
  constexpr const char* kinds[] = {"as JSON", "generated", "generated and spoiled", "explicit", "manual"};
  for (int k = 0; k < 5; ++k)
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
  const gspmd::network net = p.built.network ? *p.built.network : gspmd::default_network;
  for (const auto form : {gspmd::number_form::rounded, gspmd::number_form::exact})
    static_cast<void>(plan_table(p, net, colours{true}, {}, form).text());
  if (p.mesh().device_count() <= 64) static_cast<void>(shard_picture(p).of(all));
  static_cast<void>(dot_graph(p, gspmd::number_form::rounded));
  const auto j = json::parse(plan_json(&p, {}, why));  // throws if the text is no JSON
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
  // Several all_reduces in one message may send slightly less than the sum of the single all_reduces that the
  // instructions state.
  const auto sent = p.program().traffic().bytes;
  if (p.plan.graph().has_regions) return;  // an instruction in a body is listed once, and runs in every iteration
  if (any_joined ? sum < sent : sum != sent) fail("the bytes of the instructions are not those of the plan");
  if (collectives != p.program().collectives().size()) fail("the instructions have other collectives than the plan");
}

bool is_small(const planned_program& p) {
  if (p.mesh().device_count() > 16 || p.program().peak_bytes_per_device() > 65536) return false;
  for (const auto& n : p.plan.graph().nodes) {
    using gspmd::dtype;
    if (gspmd::detail::elements(n.shape) > 4096) return false;
    // The evaluator lacks these operators (tests/linalg/solve.cpp, eigh.cpp, lu.cpp, tridiagonal.cpp) and these element
    // types.
    using namespace gspmd::detail;
    for (const auto op : {code_of<cholesky_op>, code_of<triangular_solve_op>, code_of<solve_op>, code_of<eigh_op>,
                          code_of<tridiagonal_op>, code_of<lu_op>, code_of<slogdet_op>})
      if (n.op == op) return false;
    if (n.type == dtype::bf16 || n.type == dtype::f16 || gspmd::is_complex(n.type)) return false;
  }
  return true;
}

/// The inputs and outputs of a shard_as group have one sharding, and annotations of its members stay.
void check_groups(const json& document, const planned_program& p) {
  std::map<std::int64_t, std::string> found;  // by group: the splits of its first member
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
      std::string words;  // axes of size 1 are omitted
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

/// Fails if an output differs from the result of the naive evaluator.
void compare(const planned_program& p, const std::vector<any_array>& outputs, const planned_program& evaluated,
             const reference::rounding& expected, const std::string& where) {
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const auto& value = p.value(p.built.outputs[k]);
    const auto node = static_cast<std::size_t>(evaluated.plan.graph().outputs[k]);
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

/// Returns true if a document writes its own communication.
bool is_strict(const json& document) { return document.is_object() && document.contains("mode"); }

std::optional<planned_program> plan(const json& document, devices on, error_list& errors) {
  if (!is_strict(document)) return plan_document(document, on, errors);
  strict_reader reader(document, errors);
  const auto answer = reader.run();
  if (answer)
    for (const auto& line : strict_errors(*answer)) errors.add("", line);
  static_cast<void>(strict_json(answer ? &*answer : nullptr, errors.lines()));
  if (!answer || !errors.empty()) return {};
  auto built = reader.built(on);
  if (!built) return {};
  return planned(std::move(*built), errors);
}

/// Returns an explicit or manual document without its refused ops, and without the ops that need these.
json accepted_part(json document) {
  for (;;) {
    error_list errors;
    const auto answer = strict_reader(document, errors).run();
    if (!answer) return document;
    std::vector<std::string> wrong;
    for (const auto& v : answer->values)
      if (!v.is) wrong.push_back(v.name);
    for (const auto& e : answer->errors)
      if (e.label >= 0) wrong.push_back(answer->name(e.label));
    std::vector<bool> refused(document["ops"].size(), false);
    for (const auto& line : errors.lines())
      if (line.starts_with("ops[")) refused[static_cast<std::size_t>(std::atoi(line.c_str() + 4))] = true;
    for (std::size_t k = 0; k < refused.size(); ++k)
      for (const auto& name : wrong) {
        const auto own = document["ops"][k]["name"].get<std::string>();
        const auto text = document["ops"][k].dump();
        refused[k] = refused[k] || name == own || name.starts_with(own + '.') ||
                     text.find("\"name\":\"" + name + '"') != text.npos || text.find("\"inputs\":[\"" + name + '"') != text.npos;
      }
    json ops = json::array();
    std::map<std::string, bool> known;
    for (const auto& i : document["inputs"]) known[i["name"].get<std::string>()] = true;
    for (std::size_t k = 0; k < refused.size(); ++k) {
      const auto& op = document["ops"][k];
      bool has_all = true;
      for (const auto& o : op["operands"]) has_all = has_all && known.count(o.get<std::string>()) > 0;
      if (refused[k] || !has_all) continue;
      ops.push_back(op);
      const auto name = op["name"].get<std::string>();
      known[name] = true;
      for (const char* result : {".0", ".1", ".2"}) known[name + result] = true;
    }
    // Values that are known by a single name, except further results of loops that carry several values.
    json outputs = json::array();
    for (const auto& v : answer->values) {
      if (!v.is || v.name[0] == 'b' || known.count(v.name) == 0) continue;
      if (v.name.find('.') != v.name.npos || v.name[0] == 'o' || outputs.empty()) outputs.push_back(v.name);
    }
    while (outputs.size() > 4) outputs.erase(0);
    const bool is_done = ops.size() == document["ops"].size() && errors.empty() && answer->errors.empty();
    if (is_done) document["outputs"] = outputs;
    if (is_done) return document;
    if (ops.size() == document["ops"].size()) {  // no error names an op: remove the last op and try again
      if (ops.empty()) return document;
      ops.erase(ops.size() - 1);
    }
    document["ops"] = ops;
    document["outputs"] = json::array();
  }
}

/// Returns true for errors of documents that are typed but cannot be planned.
bool is_known_refusal(const std::string& line) {
  for (const char* words : {"partial by two functions", "plans reduce by one function at a time",
                            "is empty; nothing would be computed", "convert of the partial values"})
    if (line.find(words) != line.npos) return true;
  return false;
}

/// Fails if an output has different bits on one device and on the mesh.
void compare_bits(const planned_program& p, const std::vector<any_array>& on_mesh, const std::vector<any_array>& alone) {
  for (std::size_t k = 0; k < on_mesh.size(); ++k)
    if (on_mesh[k].bytes != alone[k].bytes)
      fail("the output " + p.value(p.built.outputs[k]).name + " is reproducible, and has other bits on one device");
}

void run(const json& document, const planned_program& p) {
  const auto inputs = made_inputs(p);
  error_list errors;
  const auto alone = plan(document, devices::one, errors);
  if (!alone) fail("planned on the mesh, refused on one device: " + errors.lines()[0]);
  // A reproducible program computes the same as the program that it is made of, within the same rounding.
  const bool is_reproducible = document.value("reproducible", false);
  std::optional<planned_program> as_written;
  if (is_reproducible) {
    json written = document;
    written.erase("reproducible");
    as_written = plan(written, devices::of_mesh, errors);
    if (!as_written) fail("planned where it is reproducible, refused where it is not: " + errors.lines()[0]);
  }
  std::vector<reference::host_array> arrays;
  for (const auto& a : inputs) arrays.push_back(as_reference(a));
  // In an explicit or manual document, the data of each device in the local view are separate values of the program for
  // one device.
  const auto& naive = is_strict(document) ? *alone : is_reproducible ? *as_written : p;
  if (!is_small(naive)) return;
  const reference::rounding expected(naive.plan.graph(), arrays);
  if (!expected.is_known()) return;  // a loop may run for any time
  regions_run += p.plan.graph().has_regions ? 1 : 0;
  const auto on_mesh = run_on(p.built.devices_part ? "threads" : "simulated", p.program(), pointers_to(inputs));
  const auto on_one = run_on("serial", alone->program(), pointers_to(inputs));
  compare(p, on_mesh, naive, expected, "on the mesh");
  compare(p, on_one, naive, expected, "on one device");
  if (is_reproducible) compare_bits(p, on_mesh, on_one);
}

}  // namespace

const std::string& operator_names() { return known_operators(); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > most_bytes || size == 0) return 0;
  // `{` begins a document. A letter of documents.hpp begins bytes to generate a document from. Other files are no JSON.
  static const bool prints = std::atexit(print_tallies) == 0;
  const char kind = static_cast<char>(data[0]);
  const bool is_made = is_generated(kind);
  auto& count = tallies[!is_made ? 0 : kind == 'G' ? 1 : kind == 'H' ? 2 : kind == 'E' ? 3 : 4];
  count.read += prints ? 1 : 0;
  error_list errors;
  auto document = is_made ? generated_document(data + 1, size - 1, kind)
                          : parse_document({reinterpret_cast<const char*>(data), size}, errors);
  if (is_made && is_strict(document)) document = accepted_part(std::move(document));
  if (std::getenv("SHOW_DOCUMENT") != nullptr) std::fprintf(stderr, "%s\n", document.dump().c_str());
  std::optional<planned_program> p;
  if (errors.empty()) p = plan(document, devices::of_mesh, errors);
  for (const auto& line : errors.lines()) {
    if (line.empty()) fail("an error without words");
    for (const char c : line)
      if (static_cast<unsigned char>(c) < 0x20) fail("an error that is not one line: " + line);
  }
  if (p && !errors.empty()) fail("a plan with errors");
  if (!p && errors.empty()) fail("neither a plan nor an error");
  if (!p && is_made && kind != 'H' && !is_known_refusal(errors.lines()[0]))
    fail("a document that was generated is refused: " + errors.lines()[0]);
  static_cast<void>(plan_json(p ? &*p : nullptr, errors.lines()));
  if (!p) return 0;
  ++count.planned;
  look_at(*p);
  if (!is_strict(document)) check_groups(document, *p);
  if (!is_small(*p)) return 0;
  ++count.run;
  run(document, *p);
  return 0;
}
