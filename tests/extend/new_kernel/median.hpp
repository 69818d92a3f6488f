// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "gspmd/extend/kernel.hpp"
#include "gspmd/extend/operator.hpp"

// A kernel that the library does not have: the median of each line. This header alone adds it.
namespace new_kernel {

using namespace gspmd::extend;

/// The lines of a shard. The description of a step is data in the plan.
struct median_spec {
  std::int64_t lines = 0, length = 0;
  static constexpr void fields(auto& s, auto f) { f(s.lines, s.length); }
  friend constexpr bool operator==(const median_spec&, const median_spec&) = default;
};

/// Writes the medians of the lines [first, last). If a line has an even number of elements, the median is the lower one
/// of the two elements in the middle. `scratch` has memory for one line.
template <class T>
void write_medians(std::int64_t length, std::int64_t first, std::int64_t last, const void* from, void* to, void* scratch) {
  T* const copy = static_cast<T*>(scratch);
  for (std::int64_t l = first; l < last; ++l) {
    const T* const line = static_cast<const T*>(from) + l * length;
    T* const middle = copy + (length - 1) / 2;
    std::copy_n(line, length, copy);
    std::nth_element(copy, middle, copy + length);
    static_cast<T*>(to)[l] = *middle;
  }
}

/// The function for the element type of a step.
struct prepared_medians {
  const median_spec* spec;
  void (*write)(std::int64_t length, std::int64_t first, std::int64_t last, const void* from, void* to, void* scratch);

  void run(std::int64_t first, std::int64_t last, const plan_view& p, const plan_step& s, const device_memory& device) const {
    write(spec->length, first, last, device.read(p.operand(s, 0).where), device.write(p.result(s).where),
          device.arena + s.scratch);
  }
};
struct medians_by_parts;

/// Computes the median of each line.
struct median : device_kernel, plain_step, never_in_place {
  static constexpr const char* name = "median";
  using description = median_spec;
  using parts = medians_by_parts;
  static constexpr element_kinds handles = element_kinds::bytes;

  static constexpr std::int64_t scratch_bytes(const table_views& tables, const plan_step& s) {
    return description_of<median>(tables, s).length * bytes_of(s.type);
  }
  /// Programs that are planned at run time call `prepare` once for a session. It is a template, so other programs do
  /// not compile the function for each element type.
  template <class = once>
  static prepared_medians prepare(const median_spec& spec, const plan_view&, const plan_step& s) {
    prepared_medians prepared{&spec, nullptr};
    with_computing_type(s.type, [&]<class T>(T) {
      if constexpr (requires(T a) { a < a; }) prepared.write = write_medians<T>;
    });
    return prepared;
  }
  /// Compiled programs have the same object as a constant.
  template <class Program, int Step>
  static constexpr prepared_medians freeze() {
    return {&description_of_step<Program, Step, median>, write_medians<element_t<step_of<Program, Step>.type>>};
  }
  static void run(const prepared_medians& prepared, const plan_view& p, const plan_step& s, const device_memory& device) {
    prepared.run(0, prepared.spec->lines, p, s, device);
    clear_padding(p, p.result(s), device);
  }
};

/// The lines that one thread of a device computes.
struct median_part {
  prepared_medians whole;
  part_of_units own;

  median_part(const prepared_medians& all, int part, int parts) : whole(all), own(all.spec->lines, part, parts) {}
  void run(const plan_view& p, const plan_step& s, const device_memory& device) const {
    whole.run(own.first, own.last, p, s, device);
  }
  void end(const plan_view& p, const plan_step& s, const device_memory& device) const { clear_padding(p, p.result(s), device); }
};
struct medians_by_parts : prepared_by_parts<median, prepared_medians, median_part> {
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    const median_spec spec = description_of<median>(p, s);
    return spec.lines < 2 ? 0 : 4 * spec.lines * spec.length;
  }
};

/// The operator with this kernel. The last dim is whole on each device.
struct median_op : plain_operator, reduced_first, without_movements, reads_shards, outside_of_loops, dims_by_number {
  static constexpr const char* name = "median";
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 1, .backward = 1};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;
  static constexpr leading_dim leading{};

  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    tensor_map operand, result;
    for (int d = 0; d <= n.shape.count; ++d) {
      const bool is_last = d == n.shape.count;
      const int f = rule.add_factor(operand_of(g, n, 0).shape[d], is_last ? factor_kind::whole : factor_kind::parallel);
      operand.begin_dim();
      operand.add_factor(f);
      if (is_last) continue;
      result.begin_dim();
      result.add_factor(f);
    }
    rule.maps.push_back(operand);
    rule.maps.push_back(result);
    rule.reduced_by = monoid::add;
  }
  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program& p, const instruction& op) {
    return 4 * elements(p.value(op.operands[0]).local);
  }
  template <class Builder>
  static constexpr void gradient(Builder&, const node&) {}
  static constexpr void lower(lowering& l, const instruction& op) {
    const extents& from = l.value(op.operands[0]).local;
    const std::int64_t length = from[from.count - 1];
    add_step<median>(l, op, {elements(from) / length, length}, {op.operands[0]}, {op.result});
  }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) {
    if (const auto spec = description_if<median>(plan, step)) t += " of " + std::to_string(spec->length);
  }
};

/// Returns the median along the last dim: [..., n] -> [...], for float and double.
constexpr gspmd::value median_of(gspmd::value x, gspmd::location at = gspmd::location::current()) {
  graph& g = *x.graph();
  if (x.id() < 0) return x;
  node n;
  n.op = code_of<median_op>;
  n.type = x.type();
  n.at = at;
  n.operands.push_back(x.id());
  const auto shape = x.shape();
  for (int d = 0; d + 1 < shape.size(); ++d) n.shape.push_back(shape[d]);
  const extents result = n.shape;
  return made(g, g.add(n), x.type(), result);
}

}  // namespace new_kernel
