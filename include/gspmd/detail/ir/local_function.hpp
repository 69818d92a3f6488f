// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/opcode.hpp"
#include "gspmd/detail/ir/rule.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/text.hpp"

/// A user's operator: a rule in the notation of einsum, and a function of the blocks of one device.
namespace gspmd::detail {

class graph;

/// The largest number of operands of such an operator.
inline constexpr int max_local_operands = max_map_arity;

/// One letter of a rule. Its extent can be stated: `times * extent of another letter / per + plus`, or the number
/// `plus`.
struct rule_letter {
  char name = 0;
  factor_kind kind = factor_kind::parallel;
  bool in_operand = false;
  bool in_result = false;
  bool stated = false;
  std::int8_t of = -1;  // another letter; -1: none
  std::int64_t times = 1;
  std::int64_t per = 1;
  std::int64_t plus = 0;
  int column = 0;  // of its first occurrence in the rule
};

/// `bi,io->bo`, `b[t]->b[u=t-2]`: every letter is a factor. A letter in brackets is whole on every device. A letter
/// that only operands have, without brackets, is a reduction. A letter that only results have is whole, and its extent
/// is stated. If one result has a letter of an operand and another result does not, the other result is reduced.
struct local_rule {
  inline_vec<rule_letter, max_rank> letters;
  // letters of the operands, then of the results
  inline_vec<inline_vec<std::int8_t, max_rank>, max_local_operands + max_results> tensors;
  std::int8_t results = 1;
  monoid reduced_by = monoid::add;
  const char* error = nullptr;
  int column = 0;  // of the error, from 1

  [[nodiscard]] constexpr int operand_count() const { return tensors.count - results; }
  [[nodiscard]] constexpr const inline_vec<std::int8_t, max_rank>& result(int r = 0) const {
    return tensors[operand_count() + r];
  }
  /// Returns true if result `r` is reduced when several devices hold parts of this letter.
  [[nodiscard]] constexpr bool reduces(int letter, int r) const {
    if (letters[letter].kind == factor_kind::whole) return false;
    for (const auto l : result(r))
      if (l == letter) return false;
    return true;
  }
  [[nodiscard]] constexpr bool has_reduction(int r) const {
    for (int l = 0; l < letters.count; ++l)
      if (reduces(l, r)) return true;
    return false;
  }
  [[nodiscard]] constexpr std::int64_t stated_extent(int letter, const extents& by_letter) const {
    const auto& l = letters[letter];
    return l.of < 0 ? l.plus : l.times * by_letter[l.of] / l.per + l.plus;
  }
};

/// A block of one device as passed to the function before its type is known: the existing elements and the strides.
struct erased_block {
  void* data = nullptr;
  const std::int64_t* extents = nullptr;
  const std::int64_t* strides = nullptr;
};

/// The function for one choice of element types. `law` checks the law at run time and returns a description of the
/// violation. If `law` is null, the law was checked at compile time and holds.
struct local_entry {
  dtype operands[max_local_operands]{};
  dtype results[max_results]{};
  void (*run)(const void* object, const erased_block* blocks) = nullptr;  // the operands, then the results
  text (*law)(const void* object) = nullptr;
};

/// A reduction or scan along a dim by a user's monoid. Pointers refer to the first elements. The elements of a row are
/// contiguous. Consecutive rows of operands, and of the results of a scan, are `step` elements apart.
struct fold_call {
  const void* in[max_results];
  void* out[max_results];
  const void* start[max_results];  // the initial values
  std::int64_t n, step, count;     // rows; the elements of each row
  bool has_start, is_scan, is_exclusive, is_reversed;
  const void* object;  // the local_function's
};

struct local_function {
  static constexpr int most_entries = 4;
  local_rule rule;
  local_entry entries[most_entries]{};
  int entry_count = 0;
  std::int64_t flops = 1;        // for every combination of the indices of all letters
  const void* object = nullptr;  // a function with state; passed to `run` and `law`
  /// Adds the gradients with respect to the operands to a graph. Null: the function has no gradient. `results` are
  /// nodes, `dy` are the gradients of the results. `out` gets nodes, or -1 for no gradient.
  void (*gradient)(const void* object, graph& g, const int* operands, const int* results, const int* dy, int* out) = nullptr;
  const void* gradient_object = nullptr;
  void (*fold)(const fold_call& call) = nullptr;  // of a monoid, which sets no other function
};

}  // namespace gspmd::detail
