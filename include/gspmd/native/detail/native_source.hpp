// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "gspmd/detail/kernels/fused_static.hpp"
#include "gspmd/detail/run/loop_reduction_step.hpp"
#include "gspmd/extend/kernel.hpp"
#include "gspmd/native/detail/native_library.hpp"
#include "gspmd/version.hpp"

/// Writes the fused loops of a plan as C++ source. The source instantiates the functions that the static path
/// compiles for these loops, named by their rows (fused_row.hpp). So native code computes the same results as the
/// static path.
namespace gspmd::detail {

struct native_source {
  static constexpr std::size_t functions_per_loop = 3;  // compute, stream, accumulate; see static_program.hpp
  static std::vector<std::string> headers() { return {"gspmd/detail/kernels/fused_static.hpp", "gspmd/version.hpp"}; }
  static constexpr std::size_t most_ops = 255;  // a word has 8 bits for an operand

  std::string text;
  std::vector<int> loop_of_step;          // index in the table of functions; -1: the step keeps its function
  std::vector<bool> computes_any_length;  // of the loops
  int left_out = 0;                       // loops without native code, see can_write

  explicit native_source(const plan_view& plan) {
    std::vector<std::string> rows, loops, used_headers = headers();
    for (const auto& s : plan.steps) {
      const auto* const group = description_by<kernels::fused>(plan, s);
      loop_of_step.push_back(-1);
      if (group == nullptr || elements(group->loop) == 0) continue;
      if (!can_write(group_of(plan, s))) {
        ++left_out;
        continue;
      }
      for (const auto& o : group_of(plan, s).ops)
        if (*o.op.loop().header != 0) (void)index_of(used_headers, o.op.loop().header);
      const auto length = row_length(*group, group_of(plan, s));
      const auto row = index_of(rows, row_text(group_of(plan, s), length));
      const auto loop = index_of(loops, functions_text(plan, s, *group, "row" + std::to_string(row)));
      if (loop == computes_any_length.size()) computes_any_length.push_back(length.rest < 0);
      loop_of_step.back() = static_cast<int>(loop);
    }
    for (const auto& header : used_headers) text += "#include \"" + header + "\"\n";
    text += "using namespace gspmd::detail;\n" + conditions_text();
    for (std::size_t r = 0; r < rows.size(); ++r) text += "using row" + std::to_string(r) + " = " + rows[r] + ";\n";
    text +=
        "extern \"C\" {\n__attribute__((visibility(\"default\"))) int gspmd_simd_bytes = simd_bytes;\n"
        "__attribute__((visibility(\"default\"))) fused_rows_function gspmd_loops[] = {\n";
    for (const auto& l : loops) text += "  " + l + ",\n";
    text += "  nullptr};\n}\n";
  }

 private:
  /// Returns assertions that compare the program with the headers that are compiled: the numbers and structs that
  /// both use. The headers may have been upgraded or edited since the program was compiled.
  static std::string conditions_text() {
    std::string text = std::string("#line 1 \"") + native_library::conditions + "\"\n";
    const auto require = [&text](const std::string& value, auto is) {
      text += "static_assert(" + value + " == " + std::to_string(is) + ");\n";
    };
    const auto enumerator = [](const std::string& name) { return name == "and" || name == "or" ? name + '_' : name; };
    require("GSPMD_VERSION", GSPMD_VERSION);
    for (int k = 0; k < enumerated_count; ++k) require(std::string("int(opcode::") + name_of(static_cast<opcode>(k)) + ")", k);
    [&]<class... O>(boost::mp11::mp_list<O...>) {
      (require(std::string("short_id(scalar_code_of<") + O::name + "_op>)", short_id(scalar_code_of<O>)), ...);
    }(listed_elementwise{});
    for (int k = 0; k < static_cast<int>(element_type_count); ++k)
      require(std::string("int(gspmd::dtype::") + name_of(static_cast<dtype>(k)) + ")", k);
    for (int k = 0; k <= static_cast<int>(monoid::or_); ++k)
      require("int(gspmd::monoid::" + enumerator(name_of(static_cast<monoid>(k))) + ")", k);
    require("sizeof(scalar_op)", sizeof(scalar_op));
    require("sizeof(fused_margin)", sizeof(fused_margin));
    require("sizeof(fused_rows)", sizeof(fused_rows));
    require("sizeof(partial_reductions)", sizeof(partial_reductions));
    const auto require_place = [&](const std::string& member, std::size_t is) {
      require("__builtin_offsetof(" + member + ")", is);
    };
    require_place("fused_rows, from", offsetof(fused_rows, from));
    require_place("fused_rows, from_step", offsetof(fused_rows, from_step));
    require_place("fused_rows, index", offsetof(fused_rows, index));
    require_place("fused_rows, index_step", offsetof(fused_rows, index_step));
    require_place("fused_rows, to", offsetof(fused_rows, to));
    require_place("fused_rows, to_step", offsetof(fused_rows, to_step));
    require_place("fused_rows, elems", offsetof(fused_rows, elems));
    require_place("fused_rows, pieces", offsetof(fused_rows, pieces));
    require("most_row_pieces", most_row_pieces);
    require_place("partial_reductions, now", offsetof(partial_reductions, now));
    require_place("partial_reductions, neutral", offsetof(partial_reductions, neutral));
    require_place("partial_reductions, run", offsetof(partial_reductions, run));
    require_place("partial_reductions, left", offsetof(partial_reductions, left));
    require_place("partial_reductions, is_whole", offsetof(partial_reductions, is_whole));
    require_place("partial_reductions, end_run", offsetof(partial_reductions, end_run));
    require_place("partial_reductions, context", offsetof(partial_reductions, context));
    require("for_each_index_step", for_each_index_step);
    return text + words_conditions_text() + "#line 1 \"gspmd-loops\"\n";
  }
  /// Returns assertions that the words of a row are read as they were written. The row has one operation of each
  /// kind.
  static std::string words_conditions_text() {
    auto load = scalar_op::load(dtype::f64, 0);
    load.strides = extents(1, 5);
    auto iota = scalar_op::constant(dtype::s32, 0, 0);
    iota.op = opcode::iota;
    auto compared = scalar_op::constant(dtype::pred, 0, 0);
    compared.op = scalar_code_of<compare_lt_op>;
    compared.operand_type = dtype::f64;
    compared.args = {0, 1};
    const scalar_op ops[] = {load, scalar_op::constant(dtype::f64, 1.5, 0), scalar_op::constant(dtype::s64, 0, -7), iota,
                             compared};
    const fused_store stores[] = {{4, 0}};
    return "namespace gspmd_conditions {\nusing known_row = " +
           row_text({extents(1, 8), span(ops, std::size(ops)), span(stores, 1)}, {8, 8, false}) +
           ";\nconstexpr auto& known = known_row::ops;\n"
           "static_assert(known_row::loop.count == 1 && known_row::loop[0] == 8 && known_row::rest == 8 && "
           "!known_row::in_pieces);\n"
           "static_assert(known[0].op == opcode::parameter && known[0].type == gspmd::dtype::f64 && known[0].strides[0] == 5);\n"
           "static_assert(known[1].op == opcode::constant && known[1].real == 1.5);\n"
           "static_assert(known[2].type == gspmd::dtype::s64 && known[2].integer == -7);\n"
           "static_assert(known[3].op == opcode::iota && known[3].dim == 0);\n"
           "static_assert(known[4].op == scalar_code_of<compare_lt_op> && known[4].type == gspmd::dtype::pred);\n"
           "static_assert(known[4].operand_type == gspmd::dtype::f64 && known[4].args.count == 2);\n"
           "static_assert(known[4].args[0] == 0 && known[4].args[1] == 1);\n"
           "static_assert(std::size(known_row::stores) == 1 && known_row::stores[0].op == 4);\n}\n";
  }

  /// The arguments of fused_row, as computed by row_of_group for the group in freeze().
  struct length_of_row {
    std::int64_t elems, rest;
    bool in_pieces;
  };

  static std::size_t index_of(std::vector<std::string>& list, std::string text) {
    const auto at = std::find(list.begin(), list.end(), text) - list.begin();
    if (at == static_cast<std::ptrdiff_t>(list.size())) list.push_back(std::move(text));
    return static_cast<std::size_t>(at);
  }
  /// Returns true if native code can include the struct of an operator: the library's structs, and structs that state
  /// their header.
  static bool is_in_a_header(const scalar_code& op) {
    return !is_elementwise(op) || op.loop().is_listed || *op.loop().header != 0;
  }
  /// Returns false for loops that have too many operations, call a user's function or use a user's own type.
  static bool can_write(const fused_group& group) {
    if (group.ops.size() > most_ops) return false;
    for (const auto& o : group.ops)
      if (o.op == scalar_code_of<map_op> || is_own(o.type) || is_own(o.operand_type) || !is_in_a_header(o.op)) return false;
    return true;
  }
  static std::int64_t inner_elems_of(const fused_group& group) {
    const int last = group.loop.count - 1;
    std::int64_t low = 0, high = 0;
    for (const auto& o : group.ops)
      for (const auto& along : o.offsets) {
        if (along.dim != last || o.given != 0) continue;
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
      if (f.type != type || (kind != monoid::add && kind != monoid::max && kind != monoid::min)) return "nullptr";
      std::size_t store = 0;
      while (group.stores[store].slot != f.stored) ++store;
      text += ",accumulated<" + std::to_string(store) + ",gspmd::monoid(" + std::to_string(static_cast<int>(kind)) + ")>";
    }
    return text + ">";
  }
};

}  // namespace gspmd::detail
