// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gspmd/dynamic.hpp>

#include "golden_folder.hpp"

/// The collectives of programs as text files under tests/golden, one block per program. GSPMD_WRITE_GOLDEN=1 rewrites
/// the file; check the difference.
namespace golden {

/// `all_gather  over x    1024 bytes  [x, _] -> [_, _] of f32 [64,512] for einsum #2`, one line per collective, then
/// totals.
inline std::string block_of(const gspmd::dynamic::program& p) {
  using namespace gspmd::detail;
  const auto& view = p.view();
  const auto& mesh = p.mesh_info();
  const auto str = [](const gspmd::detail::text& t) { return std::string(t.view()); };
  const auto padded = [](std::string s, std::size_t width) {
    s.resize(s.size() < width ? width : s.size(), ' ');
    return s;
  };
  std::string out = "mesh";
  for (int a = 0; a < mesh.shape.axis_count(); ++a)
    out += (a > 0 ? ", " : " ") + std::string(mesh.name(a)) + '=' + std::to_string(mesh.shape.sizes[a]);
  out += '\n';
  for (const auto& s : view.steps) {
    if (!communicates(s)) continue;
    const bool is_round = is<kernels::contract_round_ring>(s);
    const auto& from = view.operand(s, is_round ? planned_ring_of(view, s).operand : 0);
    const auto& to = view.result(s);
    out += padded(name_of(s.collective), 19) + "over " + padded(str(axes_text(mesh, s.axes)), 4) + "  " +
           padded(std::to_string(s.bytes_sent) + " bytes", 16) + "  " + str(sharding_text(mesh, from.layout, from.global.count)) +
           (is_round ? (planned_ring_of(view, s).both_ways ? ", shard by shard, both ways," : ", shard by shard,")
                     : " -> " + str(sharding_text(mesh, to.layout, to.global.count))) +
           " of " + name_of(from.type) + ' ' + str(shape_text(from.global));
    for (int k = 1; k < s.results.count && !is_round && !is_mapped(s); ++k) {  // in the same message
      const auto &also = view.operand(s, k), &becomes = view.result(s, k);
      out += ", " + str(sharding_text(mesh, also.layout, also.global.count)) + " -> " +
             str(sharding_text(mesh, becomes.layout, becomes.global.count)) + " of " + str(shape_text(also.global));
    }
    out += " for " + std::string(name_of(view.nodes[static_cast<std::size_t>(s.node)].op)) + " #" + std::to_string(s.node) +
           (s.forced ? ", forced" : "") + '\n';
  }
  for (std::size_t k = 0; k < view.outputs.size(); ++k) {
    const auto& v = view.value(view.outputs[k]);
    out += "output " + std::to_string(k) + ": " + str(sharding_text(mesh, v.layout, v.global.count)) + " of " + name_of(v.type) +
           ' ' + str(shape_text(v.global)) + '\n';
  }
  return out + "sends " + std::to_string(p.traffic().bytes) + " bytes in " + std::to_string(p.traffic().messages) +
         " messages, computes " + std::to_string(p.flops_per_device()) + " flops\n";
}

/// The blocks of one file under tests/golden.
class plan_file {
 public:
  explicit plan_file(std::string_view name) : path_(test::golden_folder() + std::string(name)) {
    std::ifstream file(path_);
    std::string title;
    for (std::string one_line; std::getline(file, one_line);) {
      if (one_line.starts_with("== ")) title = one_line.substr(3);
      else if (!one_line.empty()) held_[title] += one_line + '\n';
    }
  }
  /// Compares a program with its block. Returns the program.
  gspmd::dynamic::program check(const std::string& title, const gspmd::dynamic::program& p) {
    CAPTURE(title);
    CHECK_MESSAGE(titles_.insert(title).second, "two programs have one name");
    const auto made = block_of(p);
    written_ += "== " + title + '\n' + made + '\n';
    if (!is_writing()) CHECK(held_[title] == made);
    return p;
  }
  /// Checks that all blocks of the file belong to a program, or writes the file.
  void finish() {
    if (is_writing()) std::ofstream(path_) << written_;
    else
      for (const auto& [title, text] : held_) CHECK_MESSAGE(titles_.contains(title), "no program is called ", title);
  }

 private:
  static bool is_writing() { return std::getenv("GSPMD_WRITE_GOLDEN") != nullptr; }

  std::string path_;
  std::map<std::string, std::string> held_;
  std::set<std::string> titles_;
  std::string written_;
};

/// Returns the kinds and axes of a program's collectives, in order: "all_gather x, all_reduce y".
inline std::string collectives_of(const gspmd::dynamic::program& p) {
  std::string out;
  for (const auto& c : p.collectives())
    out += (out.empty() ? "" : ", ") + std::string(gspmd::detail::name_of(c.kind)) + ' ' + std::string(c.axes.view());
  return out;
}

}  // namespace golden
