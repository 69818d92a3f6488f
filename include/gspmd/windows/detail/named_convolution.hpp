// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "gspmd/detail/ops/einsum/convolution.hpp"
#include "gspmd/detail/ops/reshape.hpp"
#include "gspmd/windows/detail/convolution_layout.hpp"

namespace gspmd::detail {

/// Adds a convolution with the conventional arguments. Groups become separate dims, by a reshape of whole shards, and
/// are merged after the convolution. An operator supports max_windows windows. If there are more, the smallest windows
/// are unfolded before: the elements that an element of the result reads become a dim of the operand. `Options` is
/// gspmd::convolution_options.
template <class Options>
class named_convolution {
 public:
  constexpr named_convolution(graph& into, int lhs, int rhs, std::string_view layout, const Options& options, location at)
      : g_(into), written_(layout), layout_(layout), options_(options), at_(at), operands_{lhs, rhs} {}

  constexpr int add() {
    if (operands_[0] < 0 || operands_[1] < 0 || !g_.may_read(operands_, at_, "convolution") || !fits_layout() || !has_fields() ||
        !fits_groups() || !find_windows())
      return -1;
    choose_unfolded();
    const auto features = options_.feature_group_count, batches = options_.batch_group_count;
    const auto groups = features > 1 ? features : batches;
    const char group = unused_letter();
    windowed_einsum e;
    int ids[2]{};
    for (int k = 0; k < 3; ++k) {
      extents shape;
      for (int d = 0; d < layout_.tensors[k].count; ++d) {
        const char c = layout_.tensors[k][d];
        const bool is_grouped = groups > 1 && c == (k == 0 ? (features > 1 ? 'i' : 'n') : 'o');
        if (is_grouped) {
          e.letters[k].push_back(static_cast<std::int8_t>(group));
          shape.push_back(groups);
        }
        e.letters[k].push_back(static_cast<std::int8_t>(letter_of(k, c)));
        shape.push_back(extent(k, d) / (is_grouped ? groups : 1));
      }
      if (k < 2) ids[k] = groups > 1 ? add_reshape(g_, operands_[k], shape, at_) : operands_[k];
      else result_ = shape;
    }
    ids[0] = unfold(e.letters[0], ids[0]);
    if (ids[0] < 0) return -1;
    for (int s = 0; s < layout_.spatial.count; ++s) {
      if (is_unfolded_[s]) continue;
      e.letters[0][place_of(e.letters[0], layout_.spatial[s])] = static_cast<std::int8_t>(code_of_window(e.windows.count));
      e.windows.push_back(window_along(s));
    }
    const int made = add_windowed_einsum(g_, e, ids[0], ids[1], result_, at_);
    return groups > 1 && made >= 0 ? add_reshape(g_, made, shape(2), at_) : made;
  }
  /// Returns the shape of the substitute for a rejected result: extents of 1, in the rank of the result.
  [[nodiscard]] constexpr extents shape_of_refused() const {
    extents all;
    for (int d = 0; d < layout_.tensors[2].count; ++d) all.push_back(1);
    return all;
  }

 private:
  [[nodiscard]] constexpr extents shape(int k) const {
    if (k < 2) return g_.nodes[static_cast<std::size_t>(operands_[k])].shape;
    extents all;
    for (int d = 0; d < layout_.tensors[2].count; ++d) all.push_back(extent(2, d));
    return all;
  }
  constexpr bool refuse(mistake rule, const text& what) { return g_.fail(at_, "convolution", rule, what) >= 0; }
  static constexpr char capital(char c) { return static_cast<char>(c - 'a' + 'A'); }
  [[nodiscard]] constexpr std::int64_t extent_of(int k, char c) const { return shape(k)[layout_.place(k, c)]; }

  /// Returns the extent of dim d of tensor k. That of the result follows from the operands.
  [[nodiscard]] constexpr std::int64_t extent(int k, int d) const {
    if (k < 2) return shape(k)[d];
    const char c = layout_.tensors[2][d];
    if (c == 'n') return extent_of(0, 'n') / options_.batch_group_count;
    if (c == 'o') return extent_of(1, 'o');
    for (int s = 0; s < windows_.count; ++s)
      if (layout_.spatial[s] == c) return windows_[s].outputs(extent_of(0, c));
    return 1;
  }
  /// Mesh axes may split the larger letter of a window. Usually this letter counts the outputs. If the window has more
  /// elements than outputs, as in the gradient of the window, the letter counts the window. A split of this letter
  /// leaves the result partial.
  [[nodiscard]] static constexpr letter_window letters_of_window(char c, const window_dim& w, std::int64_t outputs) {
    const auto of_result = static_cast<std::int8_t>(c), of_window = static_cast<std::int8_t>(capital(c));
    if (w.size <= outputs || outputs == 0 || w.dilation < 0) return {of_result, of_window, w};
    return {of_window, of_result, {outputs, w.dilation, w.stride, w.offset, w.base}};
  }
  [[nodiscard]] constexpr letter_window window_along(int s) const {
    const char c = layout_.spatial[s];
    return letters_of_window(c, windows_[s].window(), windows_[s].outputs(extent_of(0, c)));
  }
  /// Returns the letter of a dim. A spatial dim of the window is the inner letter of a window.
  [[nodiscard]] static constexpr char letter_of(int k, char c) {
    return convolution_layout::is_spatial(c) && k == 1 ? capital(c) : c;
  }
  constexpr void choose_unfolded() {
    for (int left = layout_.spatial.count; left > max_windows; --left) {
      int smallest = -1;
      for (int s = 0; s < layout_.spatial.count; ++s)
        if (!is_unfolded_[s] && (smallest < 0 || windows_[s].size < windows_[smallest].size)) smallest = s;
      is_unfolded_[smallest] = true;
    }
  }
  /// X[.., J, ..] -> X[.., o, .., w] along the unfolded windows. `letters` are those of the operand, and then those of
  /// the result.
  constexpr int unfold(inline_vec<std::int8_t, max_rank>& letters, int operand) {
    for (int s = 0; s < layout_.spatial.count && operand >= 0;) {
      windowed_einsum e;
      e.letters[0] = e.letters[2] = letters;
      extents shape = g_.nodes[static_cast<std::size_t>(operand)].shape;
      for (; s < layout_.spatial.count && e.windows.count < max_windows; ++s) {
        if (!is_unfolded_[s]) continue;
        const char c = layout_.spatial[s];
        const int d = place_of(letters, c);
        if (shape.count == max_rank) {
          refuse(mistake::rank, text("`") << written_ << "` has " << layout_.spatial.count
                                          << " spatial dims; the windows of all but " << max_windows
                                          << " become dims of the operand, which would have more than " << max_rank);
          return -1;
        }
        e.letters[0][d] = static_cast<std::int8_t>(code_of_window(e.windows.count));
        e.letters[2].push_back(static_cast<std::int8_t>(capital(c)));
        e.windows.push_back(window_along(s));
        shape[d] = windows_[s].outputs(extent_of(0, c));
        shape.push_back(windows_[s].size);
      }
      if (e.windows.empty()) break;
      const auto type = g_.nodes[static_cast<std::size_t>(operand)].type;
      letters = e.letters[2];
      operand = add_windowed_einsum(g_, e, operand, add_number(g_, 1, type, extents{}, "convolution", at_), shape, at_);
    }
    return operand;
  }
  [[nodiscard]] constexpr char unused_letter() const {
    for (const char c : {'g', 'h', 'j', 'k', 'l', 'm', 'p', 'q', 'r'}) {
      bool is_used = false;
      for (const char s : layout_.spatial) is_used = is_used || s == c;
      if (!is_used) return c;
    }
    return 's';
  }

  constexpr bool fits_layout() {
    if (!layout_.error.empty()) return refuse(mistake::layout, text("the layout `") << written_ << "`: " << layout_.error);
    for (int k = 0; k < 2; ++k) {
      const node& x = g_.nodes[static_cast<std::size_t>(operands_[k])];
      if (x.shape.count != layout_.tensors[k].count)
        return refuse(mistake::rank, text("the layout `") << written_ << "` has " << layout_.tensors[k].count << " dims of "
                                                          << convolution_layout::name_of_tensor(k) << ", the tensor is "
                                                          << shape_text(x.shape) << " of rank " << x.shape.count);
      if (x.type == dtype::pred) return refuse(mistake::type, text("operand ") << k << " is pred; convert it to a number first");
      if (is_complex(x.type)) return refuse(mistake::type, not_defined_with_windows(x.type));
    }
    const auto type_of = [&](int k) { return g_.nodes[static_cast<std::size_t>(operands_[k])].type; };
    if (type_of(0) != type_of(1))
      return refuse(mistake::type, text("operand 0 is ") << name_of(type_of(0)) << " and operand 1 is " << name_of(type_of(1))
                                                         << "; convert one of them");
    return true;
  }

  template <class List>
  constexpr bool has_numbers(const List& list, const char* name, std::int64_t least) {
    if (list.size() != 0 && list.size() != static_cast<std::size_t>(layout_.spatial.count))
      return refuse(mistake::rank, text(name) << " has " << static_cast<std::int64_t>(list.size()) << " numbers, `" << written_
                                              << "` has " << layout_.spatial.count
                                              << " spatial dims; name one for each, in the order of the result");
    for (std::size_t s = 0; s < list.size(); ++s)
      if (list[s] < least || list[s] > most || list[s] < -most)
        return refuse(mistake::window, text(name) << " of dim `" << capital(layout_.spatial[static_cast<int>(s)]) << "` is "
                                                  << list[s] << (list[s] < least ? "; it is at least " : "; it is at most ")
                                                  << (list[s] < least ? least : most));
    return true;
  }
  constexpr bool has_fields() {
    return has_numbers(options_.stride, "stride", 1) && has_numbers(options_.low, "low", -most) &&
           has_numbers(options_.high, "high", -most) && has_numbers(options_.lhs_dilation, "lhs_dilation", 1) &&
           has_numbers(options_.rhs_dilation, "rhs_dilation", 1) && has_numbers(options_.reverse, "reverse", 0);
  }

  constexpr bool fits_groups() {
    const auto features = options_.feature_group_count, batches = options_.batch_group_count;
    if (features < 1 || batches < 1 || (features > 1 && batches > 1))
      return refuse(mistake::layout, text("feature_group_count is ") << features << " and batch_group_count is " << batches
                                                                     << "; both are at least 1, and one of them is 1");
    const auto divides = [&](std::int64_t groups, const char* name, int k, char c, const char* what) {
      const auto all = extent_of(k, c);
      return all % groups == 0 ||
             refuse(mistake::layout, text(name) << " is " << groups << ", and dim " << layout_.place(k, c) << " of operand " << k
                                                << ", " << what << ", is " << all << "; the groups have equal parts");
    };
    if (!divides(features, "feature_group_count", 0, 'i', "its features") ||
        !divides(features, "feature_group_count", 1, 'o', "the features of the result") ||
        !divides(batches, "batch_group_count", 0, 'n', "its batch") ||
        !divides(batches, "batch_group_count", 1, 'o', "the features of the result"))
      return false;
    const auto own = extent_of(0, 'i'), each = extent_of(1, 'i');
    return own == each * features ||
           refuse(mistake::extent, text("dim ") << layout_.place(0, 'i') << " of operand 0 has " << own << " features in "
                                                << features << (features == 1 ? " group" : " groups") << ", dim "
                                                << layout_.place(1, 'i') << " of the window takes " << each << " of each group");
  }

  constexpr bool find_windows() {
    const bool is_same = options_.padding == "same";
    if (!is_same && options_.padding != "valid")
      return refuse(mistake::window, text("padding is `")
                                         << options_.padding << "`; it is `valid` or `same`, or numbers in low and high");
    if (is_same && (options_.low.size() != 0 || options_.high.size() != 0))
      return refuse(mistake::window,
                    text("padding is `same`, which determines low and high; leave out padding, or low and high"));
    for (int s = 0; s < layout_.spatial.count; ++s) {
      const char c = layout_.spatial[s];
      const auto number = [&](const auto& list, std::int64_t none) {
        return list.size() == 0 ? none : list[static_cast<std::size_t>(s)];
      };
      padded_window w;
      w.size = extent_of(1, c);
      w.stride = number(options_.stride, 1);
      w.low = number(options_.low, 0);
      w.high = number(options_.high, 0);
      w.base_dilation = number(options_.lhs_dilation, 1);
      w.window_dilation = number(options_.rhs_dilation, 1);
      w.reversed = number(options_.reverse, 0) != 0;
      const auto extent = extent_of(0, c);
      if (w.size < 1)
        return refuse(mistake::window, text("dim `")
                                           << capital(c) << "` of the window " << shape_text(shape(1)) << " has no elements");
      const auto span = (w.size - 1) * w.window_dilation + 1;
      if (is_same) {
        const auto whole = w.padded(extent);
        const auto needed = ((whole + w.stride - 1) / w.stride - 1) * w.stride + span - whole;
        w.low = needed > 0 && whole > 0 ? needed / 2 : 0;
        w.high = needed > 0 && whole > 0 ? needed - w.low : 0;
      }
      if (w.padded(extent) < span && !(is_same && extent == 0))
        return refuse(mistake::window, text("the window has ")
                                           << w.size << " elements along dim `" << capital(c) << "` and spans " << span
                                           << ", dim " << layout_.place(0, c) << " of the operand " << shape_text(shape(0))
                                           << " is " << w.padded(extent) << " with its padding of " << w.low << " and " << w.high
                                           << "; give it more padding, or a smaller window");
      windows_.push_back(w);
    }
    return true;
  }

  static constexpr std::int64_t most = std::int64_t{1} << 31;
  graph& g_;
  std::string_view written_;
  convolution_layout layout_;
  const Options& options_;
  location at_;
  int operands_[2];
  inline_vec<padded_window, max_rank> windows_;
  bool is_unfolded_[max_rank]{};
  extents result_;
};

}  // namespace gspmd::detail
