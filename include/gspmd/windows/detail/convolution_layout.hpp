// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/text.hpp"

namespace gspmd::detail {

/// The meaning of the dims of a convolution's tensors: `NHWC,HWIO->NHWC`. N is the batch and C the features. In the
/// window, I is the features of the operand, and O the features of the result. Each other letter is a spatial dim. Case
/// does not matter.
struct convolution_layout {
  inline_vec<char, max_rank> tensors[3];  // operand, window, result, in lower case: n, i, o and the spatial letters
  inline_vec<char, max_rank> spatial;     // in the order of the result
  text error;

  constexpr explicit convolution_layout(std::string_view written) {
    int k = 0;
    for (std::size_t at = 0; at < written.size() && error.empty(); ++at) {
      char c = written[at];
      if (c == ' ') continue;
      if (c == ',' && k == 0) k = 1;
      else if (c == '-' && k == 1 && at + 1 < written.size() && written[at + 1] == '>') {
        k = 2;
        ++at;
      } else {
        add(k, c, static_cast<int>(at) + 1);
      }
    }
    if (error.empty() && k != 2) fail("has not the form `NHWC,HWIO->NHWC`");
    for (k = 0; k < 3 && error.empty(); ++k) {
      if (k != 1) need(k, 'n', "batch dim `N`");
      if (k != 2) need(k, 'i', k == 0 ? "feature dim `C`" : "dim `I` of the features of the operand");
      if (k != 0) need(k, 'o', k == 2 ? "feature dim `C`" : "dim `O` of the features of the result");
      for (const auto& other : tensors)
        for (const char c : other)
          if (is_spatial(c)) need(k, c, nullptr);
    }
    for (const char c : tensors[2])
      if (error.empty() && is_spatial(c)) spatial.push_back(c);
  }

  [[nodiscard]] constexpr int place(int k, char c) const {
    for (int d = 0; d < tensors[k].count; ++d)
      if (tensors[k][d] == c) return d;
    return -1;
  }
  static constexpr bool is_spatial(char c) { return c != 'n' && c != 'i' && c != 'o'; }
  static constexpr const char* name_of_tensor(int k) { return k == 0 ? "the operand" : k == 1 ? "the window" : "the result"; }

 private:
  constexpr void fail(const text& what) {
    if (error.empty()) error = what;
  }
  constexpr void add(int k, char c, int column) {
    const bool is_small = c >= 'a' && c <= 'z';
    if (!is_small && !(c >= 'A' && c <= 'Z'))
      return fail(text("column ") << column << ": letters, one comma and one -> are allowed here");
    if (!is_small) c = static_cast<char>(c - 'A' + 'a');
    if (c == 'c' && k == 1)
      return fail(text("column ") << column << ": the features of the window are `I` of the operand and `O` of the result");
    if (c == 'c') c = k == 0 ? 'i' : 'o';
    if ((k == 0 && c == 'o') || (k == 1 && c == 'n') || (k == 2 && c == 'i'))
      return fail(text("column ") << column << ": " << name_of_tensor(k) << " has no such dim");
    if (place(k, c) >= 0) return fail(text("column ") << column << ": " << name_of_tensor(k) << " has this dim twice");
    if (tensors[k].count == max_rank) return fail("a tensor has at most 32 dims");
    tensors[k].push_back(c);
  }
  constexpr void need(int k, char c, const char* what) {
    if (place(k, c) >= 0) return;
    text t(name_of_tensor(k));
    t << " has no ";
    if (what != nullptr) t << what;
    else t << "spatial dim `" << static_cast<char>(c - 'a' + 'A') << '`';
    fail(t);
  }
};

}  // namespace gspmd::detail
