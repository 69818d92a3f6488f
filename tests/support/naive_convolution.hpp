// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// Convolution as defined by StableHLO, with loops over indices. This code does not use the library's representation of
/// windows.
namespace reference {

struct convolution_case {
  std::string lhs, rhs, result;  // capital letters: N, C, I, O and spatial letters
  std::int64_t batch = 1, in_features = 1, out_features = 1, feature_groups = 1, batch_groups = 1;
  std::string spatial;  // in the order of the result
  std::vector<std::int64_t> extent, window, stride, low, high, lhs_dilation, rhs_dilation, reverse;

  [[nodiscard]] std::size_t place(char c) const { return spatial.find(c); }
  [[nodiscard]] std::int64_t padded(std::size_t s) const {
    return low[s] + high[s] + (extent[s] == 0 ? 0 : (extent[s] - 1) * lhs_dilation[s] + 1);
  }
  [[nodiscard]] std::int64_t span(std::size_t s) const { return (window[s] - 1) * rhs_dilation[s] + 1; }
  [[nodiscard]] std::int64_t output(std::size_t s) const {
    return padded(s) < span(s) ? -1 : (padded(s) - span(s)) / stride[s] + 1;
  }

  [[nodiscard]] std::vector<std::int64_t> lhs_shape() const {
    std::vector<std::int64_t> shape;
    for (const char c : lhs) shape.push_back(c == 'N' ? batch : c == 'C' ? in_features : extent[place(c)]);
    return shape;
  }
  [[nodiscard]] std::vector<std::int64_t> rhs_shape() const {
    std::vector<std::int64_t> shape;
    for (const char c : rhs)
      shape.push_back(c == 'I' ? in_features / feature_groups : c == 'O' ? out_features : window[place(c)]);
    return shape;
  }
  [[nodiscard]] std::vector<std::int64_t> result_shape() const {
    std::vector<std::int64_t> shape;
    for (const char c : result) shape.push_back(c == 'N' ? batch / batch_groups : c == 'C' ? out_features : output(place(c)));
    return shape;
  }
  [[nodiscard]] std::string layout() const { return lhs + ',' + rhs + "->" + result; }

  [[nodiscard]] std::string text() const {
    std::string t = layout();
    const auto add = [&](const char* name, const std::vector<std::int64_t>& list) {
      t += std::string(" ") + name;
      for (const auto n : list) t += ' ' + std::to_string(n);
    };
    add("lhs", lhs_shape());
    add("rhs", rhs_shape());
    add("stride", stride);
    add("low", low);
    add("high", high);
    add("lhs_dilation", lhs_dilation);
    add("rhs_dilation", rhs_dilation);
    add("reverse", reverse);
    add("groups", {feature_groups, batch_groups});
    return t;
  }

  /// Calls visit(element of the operand, of the window, of the result) for every product.
  template <class Visit>
  void for_each_product(Visit visit) const {
    const auto rank = spatial.size();
    std::vector<std::int64_t> o(rank), k(rank), j(rank);
    const auto next = [](std::vector<std::int64_t>& at, const std::vector<std::int64_t>& bounds) {
      for (std::size_t s = at.size(); s-- > 0;) {
        if (++at[s] < bounds[s]) return true;
        at[s] = 0;
      }
      return false;
    };
    std::vector<std::int64_t> outputs;
    for (std::size_t s = 0; s < rank; ++s) outputs.push_back(output(s));
    for (const auto n : outputs)
      if (n <= 0) return;
    const auto offset = [&](const std::string& dims, const std::vector<std::int64_t>& shape, std::int64_t n, std::int64_t i,
                            std::int64_t f, const std::vector<std::int64_t>& at) {
      std::int64_t result_offset = 0;
      for (std::size_t d = 0; d < dims.size(); ++d) {
        const char c = dims[d];
        const auto at_dim = c == 'N' ? n : c == 'I' ? i : c == 'O' ? f : c == 'C' ? (i >= 0 ? i : f) : at[place(c)];
        result_offset = result_offset * shape[d] + at_dim;
      }
      return static_cast<std::size_t>(result_offset);
    };
    const auto lhs_is = lhs_shape(), rhs_is = rhs_shape(), result_is = result_shape();
    const auto per_group = in_features / feature_groups;
    for (std::int64_t n = 0; n < batch / batch_groups; ++n)
      for (std::int64_t f = 0; f < out_features; ++f) do {
          do {
            bool is_inside = true;
            for (std::size_t s = 0; s < rank && is_inside; ++s) {
              const auto in_window = reverse[s] != 0 ? window[s] - 1 - k[s] : k[s];
              const auto position = o[s] * stride[s] + in_window * rhs_dilation[s] - low[s];
              is_inside = position >= 0 && position % lhs_dilation[s] == 0 && position / lhs_dilation[s] < extent[s];
              j[s] = position / lhs_dilation[s];
            }
            for (std::int64_t i = 0; i < per_group && is_inside; ++i) {
              const auto feature_group = f / (out_features / feature_groups), batch_group = f / (out_features / batch_groups);
              visit(offset(lhs, lhs_is, n + batch_group * (batch / batch_groups), feature_group * per_group + i, -1, j),
                    offset(rhs, rhs_is, -1, i, f, k), offset(result, result_is, n, -1, f, o));
            }
          } while (next(k, window));
        } while (next(o, outputs));
  }
};

}  // namespace reference
