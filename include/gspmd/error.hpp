// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/program/printable.hpp"

namespace gspmd {

namespace detail {

/// Makes `text` and `op` safe to print, and returns the whole sentence, in the format that `error` describes.
template <class = once>
[[gnu::cold]] std::string error_sentence(std::string& text, int rank, std::string& op, const char* file, int line);

}  // namespace detail

/// The exception type of all failures at run time, also of failed allocations for arrays, shards, arenas, messages and
/// the scratch memory of operators.
///
/// Two kinds of exceptions pass unchanged. The first kind is thrown by your own function inside of `launch`. The second
/// is std::bad_alloc of tables that grow with the program and not with its tensors.
///
/// `what()` returns `gspmd: <op> at <file>:<line> on rank <r>: <text>`, without the parts that are unknown. The code
/// that detects a fault passes the text. Its callers add the operator and the rank:
///
///     throw gspmd::error("the extent 7 does not fit");
///     catch (const gspmd::error& e) { throw e.with_op("einsum", file, line); }
///
/// Every text is one line that is safe to print. Control characters, for example from file names, are escaped (see
/// printable). A text of more than 16 KiB is cut.
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

  /// Returns the text without operator, file, line and rank.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  /// Returns the device (MPI rank or thread) that failed. Returns -1 if it is unknown or all devices fail in the same
  /// way.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// Returns the name of the operator at fault, as the user wrote it. It may be empty.
  [[nodiscard]] const std::string& op() const noexcept { return op_; }
  /// Return the user's source file and line of that operator; nullptr and 0 if they are unknown.
  [[nodiscard]] const char* file() const noexcept { return file_; }
  [[nodiscard]] int line() const noexcept { return line_; }

  /// Returns a copy with the rank of the device that failed.
  [[nodiscard]] error with_rank(int rank) const { return {text_, rank, op_, file_, line_}; }
  /// Returns a copy with the operator of the user's program that failed. `file` must outlive the error; pass a literal.
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

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/error.ipp"
#endif
