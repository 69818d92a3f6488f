// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/kernels/fused_kernels.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/dynamic/builder.hpp"
#include "gspmd/index/fold.hpp"

namespace gspmd::dynamic {

/// One element of a monoid whose types are known at run time: `real` for floats, `integer` for all other types.
struct monoid_number {
  double real = 0;
  std::int64_t integer = 0;
};

/// A monoid for reduce_by and scan_by that is written at run time.
///
/// `combine` is a program of scalars. Its inputs are the elements of the left value, then the elements of the right
/// value. Its outputs are the elements of the result. It has at most 64 elementwise operators and constants. The
/// element types are f32, f64, s32, s64, u32, u64 and pred. The law is checked on `samples`, or without samples on
/// small numbers: `identity` must be neutral and `combine` associative, as for a monoid that is a type
/// (index/fold.hpp). Floats may differ by a thousandth.
///
/// **Errors.** gspmd::error with the first mistake, in the words of the compile error.
/// **Example.**
///
///     dynamic::builder c(m);
///     const auto left = c.input(dynamic::input<float>({})), right = c.input(dynamic::input<float>({}));
///     c.output(left + right - left * right);                        // the probability of one of two events, or both
///     const auto both = reduce_by(dynamic::value_monoid(c, {{0.0, 0}}), std::vector{x}, 0);
class value_monoid {
 public:
  static constexpr int most_operators = 64;
  static constexpr std::int64_t strip = 64;  // elements that are computed together; they fit into the first-level cache

  value_monoid(const builder& combine, std::vector<monoid_number> identity,
               std::vector<std::vector<monoid_number>> samples = {}) {
    const auto& g = combine.graph();
    if (g.failed()) throw error(std::string(g.error.view()));
    const auto count = g.outputs.size();
    if (count < 1 || count > static_cast<std::size_t>(detail::max_results)) refuse("a monoid has one to four elements");
    if (g.inputs.size() != 2 * count)
      refuse("combine has " + std::to_string(g.inputs.size()) + " inputs and " + std::to_string(count) +
             " outputs; the inputs are the elements of two values, and the outputs those of one");
    if (identity.size() != count)
      refuse("identity() has " + std::to_string(identity.size()) + " numbers and the monoid " + std::to_string(count) +
             " elements");
    for (std::size_t k = 0; k < 2 * count; ++k) {
      const auto& in = node(g, g.inputs[k]);
      const auto& out = node(g, g.outputs[k % count]);
      if (in.shape.count != 0 || out.shape.count != 0) refuse("combine is computed on scalars; give it inputs of rank 0");
      if (in.type != out.type)
        refuse("element " + std::to_string(k % count) + " is " + detail::name_of(in.type) + " and becomes " +
               detail::name_of(out.type) + "; convert it");
    }
    translate(g);
    identity_ = std::move(identity);
    if (samples.empty()) samples = usual_samples();
    for (const auto& s : samples)
      if (s.size() != count) refuse("a sample has " + std::to_string(s.size()) + " numbers; there is one for each element");
    try_law(samples);
  }

  [[nodiscard]] const std::vector<dtype>& types() const { return types_; }

  /// Returns the function that reduces with this object. The object must outlive the function.
  [[nodiscard]] detail::local_function function() const {
    detail::local_function f;
    f.object = this;
    f.fold = [](const detail::fold_call& c) { static_cast<const value_monoid*>(c.object)->fold(c); };
    return f;
  }

 private:
  static constexpr std::size_t element_bytes = 8;
  /// A row of elements for each element of the monoid.
  struct rows {
    alignas(64) std::byte data[detail::max_results][static_cast<std::size_t>(strip) * element_bytes];
  };
  using pointers = std::array<const std::byte*, detail::max_results>;

  [[noreturn]] static void refuse(const std::string& what) { throw error("reduce_by: " + what); }
  static const detail::node& node(const detail::graph& g, int i) { return g.nodes[static_cast<std::size_t>(i)]; }

  /// Translates `combine` into instructions on registers: inputs first, then one register for each constant and
  /// operator. Example: left + right is one instruction, which adds registers 0 and 1 into register 2.
  void translate(const detail::graph& g) {
    for (const int o : g.outputs) types_.push_back(node(g, o).type);
    for (const auto& n : g.nodes)
      if (detail::is_narrow(n.type) || detail::is_complex(n.type))
        refuse(std::string("combine computes with ") + detail::name_of(n.type) +
               "; the elements of a monoid are f32 f64 s32 s64 u32 u64 or pred");
    std::vector<std::int16_t> registers(g.nodes.size());
    std::int16_t next = 0;
    for (const int i : g.inputs) registers[static_cast<std::size_t>(i)] = next++;
    for (std::size_t i = 0; i < g.nodes.size(); ++i) {
      const auto& n = g.nodes[i];
      if (n.op == detail::opcode::parameter) continue;
      if (registers_made_ == most_operators) refuse("combine has more than " + std::to_string(most_operators) + " operators");
      ++registers_made_;
      registers[i] = next++;
      if (n.op == detail::opcode::constant) {
        constants_.push_back({registers[i], n.type, {n.real, n.integer}});
        continue;
      }
      if (!detail::is_elementwise(n.op) || n.shape.count != 0)
        refuse(std::string("combine has a ") + detail::name_of(n.op) +
               "; it is made of elementwise operators and constants of rank 0");
      detail::scalar_op o;
      o.op = detail::scalar_code(*detail::elementwise_facts_of(n.op).in_plan);
      o.type = n.type;
      o.operand_type = node(g, n.operands[n.operands.count - 1]).type;
      o.function = n.function;
      detail::fused_instruction made{detail::fused_kernel_for(o), registers[i], {}, n.function};
      for (const int a : n.operands) made.from.push_back(registers[static_cast<std::size_t>(a)]);
      if (detail::swapped(o.op) != o.op) std::swap(made.from[0], made.from[1]);
      if (made.kernel == nullptr) refuse(std::string("combine has a ") + detail::name_of(n.op) + " that is not known here");
      instructions_.push_back(made);
    }
    for (const int o : g.outputs) results_.push_back(registers[static_cast<std::size_t>(o)]);
  }

  // ---- computing ----

  void put(dtype type, const monoid_number& x, std::byte* to, std::int64_t n) const {
    detail::with_computing_type(type, [&]<class T>(T) {
      if constexpr (!detail::own_element<T>) {
        T e{};
        if constexpr (std::is_same_v<T, bool>) e = x.integer != 0;
        else if constexpr (std::is_integral_v<T>) e = static_cast<T>(x.integer);
        else e = static_cast<T>(x.real);
        for (std::int64_t i = 0; i < n; ++i) detail::store_element(to, i, e);
      }
    });
  }
  [[nodiscard]] std::size_t bytes(std::size_t k) const { return static_cast<std::size_t>(detail::bytes_of(types_[k])); }
  /// `left` and `right` may point into `to`.
  void combine(const pointers& left, const pointers& right, rows& to, std::int64_t n) const {
    alignas(64) std::byte made[most_operators][static_cast<std::size_t>(strip) * element_bytes];
    const std::byte* registers[2 * detail::max_results + most_operators];
    const auto count = types_.size();
    for (std::size_t k = 0; k < count; ++k) registers[k] = left[k], registers[count + k] = right[k];
    for (int r = 0; r < registers_made_; ++r) registers[2 * count + static_cast<std::size_t>(r)] = made[r];
    const auto own = [&](std::int16_t r) { return made[static_cast<std::size_t>(r) - 2 * count]; };
    for (const auto& c : constants_) put(c.type, c.number, own(c.result), n);
    for (const auto& i : instructions_) i.kernel(i, registers, own(i.result), n);
    rows copy;  // an output may be an input that another output overwrites
    for (std::size_t k = 0; k < count; ++k)
      std::memcpy(copy.data[k], registers[static_cast<std::size_t>(results_[k])], static_cast<std::size_t>(n) * bytes(k));
    for (std::size_t k = 0; k < count; ++k) std::memcpy(to.data[k], copy.data[k], static_cast<std::size_t>(n) * bytes(k));
  }
  [[nodiscard]] pointers of(const rows& r) const {
    pointers p{};
    for (std::size_t k = 0; k < types_.size(); ++k) p[k] = r.data[k];
    return p;
  }
  /// Reduces or scans rows of elements, a strip at a time. Example: with addition, a reduction of 1, 2, 3 stores 6, and
  /// a scan stores 1, 3, 6.
  void fold(const detail::fold_call& c) const {
    const auto count = types_.size();
    rows sum;
    for (std::int64_t first = 0; first < c.count; first += strip) {
      const auto n = std::min(strip, c.count - first);
      const auto size = [&](std::size_t k) { return static_cast<std::size_t>(n) * bytes(k); };
      const auto at = [&](std::size_t k, std::int64_t row) {
        return (row * c.step + first) * static_cast<std::int64_t>(bytes(k));
      };
      const auto store = [&](std::int64_t row) {
        for (std::size_t k = 0; k < count; ++k) std::memcpy(static_cast<std::byte*>(c.out[k]) + at(k, row), sum.data[k], size(k));
      };
      for (std::size_t k = 0; k < count; ++k) {
        if (c.has_start) std::memcpy(sum.data[k], static_cast<const std::byte*>(c.start[k]) + at(k, 0), size(k));
        else put(types_[k], identity_[k], sum.data[k], n);
      }
      for (std::int64_t i = 0; i < c.n; ++i) {
        pointers next{};
        for (std::size_t k = 0; k < count; ++k) next[k] = static_cast<const std::byte*>(c.in[k]) + at(k, i);
        if (c.is_scan && c.is_exclusive) store(i);
        if (c.is_reversed) combine(next, of(sum), sum, n);
        else combine(of(sum), next, sum, n);
        if (c.is_scan && !c.is_exclusive) store(i);
      }
      if (!c.is_scan) store(0);
    }
  }

  // ---- the law ----

  [[nodiscard]] std::vector<std::vector<monoid_number>> usual_samples() const {
    constexpr int numbers[] = {1, 0, 3, 2, 1};  // the same samples as for a monoid that is a type
    std::vector<std::vector<monoid_number>> all(5);
    for (std::size_t i = 0; i < all.size(); ++i)
      for (std::size_t k = 0; k < types_.size(); ++k) {
        const int x = numbers[(i + 2 * k) % 5];
        all[i].push_back({static_cast<double>(x), types_[k] == dtype::pred ? x != 0 : x});
      }
    return all;
  }
  [[nodiscard]] rows row_of(const std::vector<monoid_number>& numbers) const {
    rows r{};
    for (std::size_t k = 0; k < types_.size(); ++k) put(types_[k], numbers[k], r.data[k], 1);
    return r;
  }
  [[nodiscard]] rows combined(const rows& a, const rows& b) const {
    rows r{};
    combine(of(a), of(b), r, 1);
    return r;
  }
  [[nodiscard]] bool are_equal(const rows& a, const rows& b) const {
    bool same = true;
    for (std::size_t k = 0; k < types_.size(); ++k)
      detail::with_computing_type(types_[k], [&]<class T>(T) {
        if constexpr (!detail::own_element<T>)
          same = same && detail::nearly_equal(detail::load_element<T>(a.data[k], 0), detail::load_element<T>(b.data[k], 0));
      });
    return same;
  }
  void try_law(const std::vector<std::vector<monoid_number>>& samples) const {
    const rows nothing = row_of(identity_);
    std::vector<rows> all;
    for (const auto& s : samples) all.push_back(row_of(s));
    for (const auto& a : all)
      if (!are_equal(combined(a, nothing), a) || !are_equal(combined(nothing, a), a))
        refuse(
            "combine(x, identity()) or combine(identity(), x) is not x for a sample of this monoid; correct identity(), or state "
            "samples() that occur");
    for (const auto& a : all)
      for (const auto& b : all)
        for (const auto& c : all)
          if (!are_equal(combined(combined(a, b), c), combined(a, combined(b, c))))
            refuse(
                "combine(combine(a, b), c) is not combine(a, combine(b, c)) for samples of this monoid: parts of a dim cannot be "
                "reduced apart; correct combine, or state samples() that occur");
  }

  struct constant {
    std::int16_t result;
    dtype type;
    monoid_number number;
  };
  std::vector<dtype> types_;
  std::vector<monoid_number> identity_;
  std::vector<constant> constants_;
  std::vector<detail::fused_instruction> instructions_;
  std::vector<std::int16_t> results_;
  int registers_made_ = 0;
};

}  // namespace gspmd::dynamic

namespace gspmd {
namespace detail {

template <class Op>
std::vector<value> folded_at_run_time(const dynamic::value_monoid& m, detail::span<const value> tensors, int dim,
                                      scan_options options, const char* op, location at) {
  std::vector<value> all(m.types().size());
  if (tensors.empty() || !tensors[0].is_valid()) return all;
  auto& g = *tensors[0].graph();
  if (tensors.size() != all.size())
    return g.fail(at, op, mistake::operand_count, "the number of tensors must be the number of elements of the monoid"), all;
  if (g.functions == nullptr)
    return g.fail(at, op, mistake::other, "a monoid with state needs the run-time path: use dynamic::compile"), all;
  const auto* const kept = g.functions->keep(m);
  fold_spec how{};
  const int id = add_checked_fold<Op>(tensors, m.types(), *g.functions->keep(kept->function()), dim, options, op, at, how);
  const extents shape = shape_of_fold(extents(tensors[0].shape()), how);
  for (std::size_t k = 0; k < all.size(); ++k) all[k] = made(g, id < 0 ? -1 : id + static_cast<int>(k), m.types()[k], shape);
  return all;
}

}  // namespace detail

/// The same as reduce_by and scan_by in index/fold.hpp, with a monoid that is written at run time. They send the same
/// bytes.
inline std::vector<value> reduce_by(const dynamic::value_monoid& m, detail::span<const value> tensors, int dim,
                                    location at = location::current()) {
  return detail::folded_at_run_time<detail::reduce_by_op>(m, tensors, dim, {}, "reduce_by", at);
}
inline std::vector<value> scan_by(const dynamic::value_monoid& m, detail::span<const value> tensors, int dim,
                                  scan_options options = {}, location at = location::current()) {
  return detail::folded_at_run_time<detail::scan_by_op>(m, tensors, dim, options, "scan_by", at);
}

}  // namespace gspmd
