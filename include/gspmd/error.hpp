// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/printable.hpp"

namespace gspmd {

namespace detail {

/// Makes the text and the operator of an error safe to print, and returns its sentence.
template <class = once>
[[gnu::cold]] std::string error_sentence(std::string& text, int rank, std::string& op, const char* file, int line) {
  constexpr std::size_t most_bytes = 16384;
  text = printable(text, most_bytes);
  op = printable(op);
  std::string context = op;
  const auto add = [&context](const std::string& words) {
    if (!context.empty()) context += ' ';
    context += words;
  };
  if (file != nullptr) add(line > 0 ? "at " + std::string(file) + ':' + std::to_string(line) : '`' + std::string(file) + '`');
  if (rank >= 0) add("on rank " + std::to_string(rank));
  return "gspmd: " + (context.empty() ? text : context + ": " + text);
}
GSPMD_COMPILED_ONCE(std::string error_sentence<once>(std::string&, int, std::string&, const char*, int));

}  // namespace detail

/// Everything that goes wrong at run time is reported by this one type. So is memory that cannot be had for arrays, shards, arenas, messages
/// and what operators compute with. As they are arrive only what a user's own function throws inside of `launch`, and the std::bad_alloc of
/// tables that grow with a program and not with its tensors.
///
/// The text of `what()` is `gspmd: <op> at <file>:<line> on rank <r>: <text>`; what is not known is left out. The place
/// that finds the fault knows the text, the places it passes on its way up add the operator and the rank:
///
///     throw gspmd::error("the extent 7 does not fit");
///     catch (const gspmd::error& e) { throw e.with_op("einsum", file, line); }
///
/// Every text is one line that is safe to print: control characters, which can come from files, are escaped (see printable). A text of more
/// than 16 KiB is cut.
class error : public std::runtime_error {
 public:
  explicit error(std::string text, int rank = -1) : error(std::move(text), rank, {}, nullptr, 0) {}
  error(std::string text, int rank, std::string op, const char* file, int line)
      : std::runtime_error(detail::error_sentence(text, rank, op, file, line)),
        text_(std::move(text)),
        op_(std::move(op)),
        file_(file),
        line_(line),
        rank_(rank) {}

  /// The bare text, without operator, place and rank.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  /// The device (MPI rank, thread) that failed; -1 where that is unknown or all fail alike.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// The operator at fault, as the user wrote it; may be empty.
  [[nodiscard]] const std::string& op() const noexcept { return op_; }
  /// The user's source file and line of that operator; nullptr and 0 where unknown.
  [[nodiscard]] const char* file() const noexcept { return file_; }
  [[nodiscard]] int line() const noexcept { return line_; }

  /// A copy that says on which device it happened.
  [[nodiscard]] error with_rank(int rank) const { return {text_, rank, op_, file_, line_}; }
  /// A copy that says in which operator of the user's program it happened. `file` must outlive the error (a literal).
  [[nodiscard]] error with_op(std::string_view op, const char* file = nullptr, int line = 0) const {
    return {text_, rank_, std::string(op), file, line};
  }

 private:
  std::string text_;
  std::string op_;
  const char* file_ = nullptr;
  int line_ = 0;
  int rank_ = -1;
};

}  // namespace gspmd
