// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gspmd/detail/kernels/fused_static.hpp"
#include "gspmd/detail/run/loop_reduction_step.hpp"
#include "gspmd/detail/run/padding.hpp"

/// The fused loops of a plan as C++: the same functions that the static path compiles for them, named by their rows (fused_row.hpp). So
/// they compute what it computes.
namespace gspmd::detail {

struct native_source {
  static constexpr std::size_t functions_per_loop = 3;  // compute, stream, accumulate; see static_program.hpp
  static constexpr const char* header = "gspmd/detail/kernels/fused_static.hpp";
  static constexpr std::size_t most_ops = 255;  // a word has 8 bits for an operand

  std::string text;
  std::vector<int> loop_of_step;          // in the table of functions; -1: stays as it is
  std::vector<bool> computes_any_length;  // of the loops
  int left_out = 0;                       // loops that have no such function, since they call a function of the user's

  explicit native_source(const plan_view& plan) {
    std::vector<std::string> rows, loops;
    for (const auto& s : plan.steps) {
      const auto* const group = description_by<kernels::fused>(plan, s);
      loop_of_step.push_back(-1);
      if (group == nullptr || elements(group->loop) == 0) continue;
      if (!can_write(group_of(plan, s))) {
        ++left_out;
        continue;
      }
      const auto length = row_length(*group, group_of(plan, s));
      const auto row = index_of(rows, row_text(group_of(plan, s), length));
      const auto loop = index_of(loops, functions_text(plan, s, *group, "row" + std::to_string(row)));
      if (loop == computes_any_length.size()) computes_any_length.push_back(length.rest < 0);
      loop_of_step.back() = static_cast<int>(loop);
    }
    text = std::string("#include \"") + header + "\"\nusing namespace gspmd::detail;\n";
    for (std::size_t r = 0; r < rows.size(); ++r) text += "using row" + std::to_string(r) + " = " + rows[r] + ";\n";
    text +=
        "extern \"C\" {\n__attribute__((visibility(\"default\"))) int gspmd_simd_bytes = simd_bytes;\n"
        "__attribute__((visibility(\"default\"))) fused_rows_function gspmd_loops[] = {\n";
    for (const auto& l : loops) text += "  " + l + ",\n";
    text += "  nullptr};\n}\n";
  }

 private:
  /// The arguments of fused_row; as row_of_group has them, of the group that freeze() takes.
  struct length_of_row {
    std::int64_t elems, rest;
    bool in_pieces;
  };

  static std::size_t index_of(std::vector<std::string>& list, std::string text) {
    const auto at = std::find(list.begin(), list.end(), text) - list.begin();
    if (at == static_cast<std::ptrdiff_t>(list.size())) list.push_back(std::move(text));
    return static_cast<std::size_t>(at);
  }
  static bool can_write(const fused_group& group) {
    if (group.ops.size() > most_ops) return false;
    for (const auto& o : group.ops)
      if (o.op == opcode::map || is_own(o.type) || is_own(o.operand_type)) return false;
    return true;
  }
  static std::int64_t inner_elems_of(const fused_group& group) {
    const int last = group.loop.count - 1;
    std::int64_t low = 0, high = 0;
    for (const auto& o : group.ops)
      for (const auto& along : o.offsets) {
        if (along.dim != last) continue;
        low = std::max(low, -along.by);
        high = std::max(high, along.by);
      }
    return last < 0 ? 1 : std::max<std::int64_t>(group.loop[last] - low - high, 0);
  }
  static length_of_row row_length(const planned_group& planned, const fused_group& group) {
    const int last = group.loop.count - 1;
    const auto inner = inner_elems_of(group), row = last < 0 ? 1 : group.loop[last];
    bool is_cut = last >= 0 && (planned.cut & dim_bit(last)) != 0;
    if (planned.reductions.count > 0)
      is_cut = is_cut || (last >= 0 && row > (group.loop.count == 1 ? least_accumulated_elems - 1 : fused_block_elems));
    return {!is_cut && inner < constant_row_elems ? inner : 0, is_cut ? -1 : inner % for_each_index_step,
            !is_cut && last >= 0 && inner < row};
  }
  static std::string row_text(const fused_group& group, const length_of_row& length) {
    std::vector<std::uint64_t> words(2 * group.ops.size() + group.stores.size());
    write_row_words(group.ops, group.stores, group.loop.count - 1, words.data());
    std::string text = "fused_row<row_description<" + std::to_string(group.ops.size());
    for (const auto w : words) {
      char digits[16];
      text += ",0x";
      text.append(digits, std::to_chars(digits, digits + sizeof digits, w, 16).ptr);
      text += "ULL";
    }
    return text + ">," + std::to_string(length.elems) + "," + std::to_string(length.rest) + "," +
           (length.in_pieces ? "true>" : "false>");
  }
  static std::string functions_text(const plan_view& plan, const plan_step& s, const planned_group& planned,
                                    const std::string& row) {
    const auto group = group_of(plan, s);
    std::string text = "compute_rows<" + row + ">, ";
    if (planned.reductions.count > 0) return text + "nullptr, " + accumulation_text(plan, s, group, row);
    std::int64_t bytes = 0;
    for (const auto& store : group.stores) bytes += bytes_of(group.ops[static_cast<std::size_t>(store.op)].type);
    const auto stores = static_cast<std::int64_t>(group.stores.size());
    const bool streams = can_stream && stores <= 16 && elements(group.loop) >= stream_from_bytes / bytes &&
                         inner_elems_of(group) >= least_streamed_row_bytes * stores / bytes;
    return text + (streams ? "stream_rows<" + row + ">" : "nullptr") + ", nullptr";
  }
  static std::string accumulation_text(const plan_view& plan, const plan_step& s, const fused_group& group,
                                       const std::string& row) {
    const auto reductions = reductions_of(plan, s);
    const dtype type = reductions[0].type;
    if ((type != dtype::f32 && type != dtype::f64) || !group.margins.empty() || 4 * simd_bytes / bytes_of(type) < 32)
      return "nullptr";
    std::string text = "accumulate_rows<" + row;
    for (const auto& f : reductions) {
      const monoid kind = table_of<reduction_spec>(plan)[static_cast<std::size_t>(f.reduction)].reduced_by;
      if (f.type != type || (kind != monoid::add && kind != monoid::maximum && kind != monoid::minimum)) return "nullptr";
      std::size_t store = 0;
      while (group.stores[store].slot != f.stored) ++store;
      text += ",accumulated<" + std::to_string(store) + ",gspmd::monoid(" + std::to_string(static_cast<int>(kind)) + ")>";
    }
    return text + ">";
  }
};

}  // namespace gspmd::detail
