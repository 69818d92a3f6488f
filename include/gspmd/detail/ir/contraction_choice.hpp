// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/contraction_plan.hpp"
#include "gspmd/detail/support/tuning.hpp"

namespace gspmd::detail {

/// Chooses the method of a contraction: the packed buffers and the matrices. Buffers: 0 lhs, 1 rhs, 2 the result.
struct contraction_choice {
  enum kind : std::int8_t { absent, batch, left, right, sum };  // of a letter; left and right: free letters
  static constexpr int kind_count = 5;
  using letter_list = inline_vec<std::int8_t, max_rank>;

  /// Letters that are adjacent, in the same order, in every unpacked buffer that has them. They act as one letter.
  struct group {
    kind what = absent;
    int first = 0, count = 0;  // in `sequence`
    std::int64_t extent = 1;
    bool has_unit_stride[3]{};  // in buffers that are not packed
  };

  /// One method: the packed buffers, and the groups that form the extents of the matrices (-1: no group, extent 1).
  struct choice {
    unsigned packed = 0;
    int m = -1, n = -1, k = -1;
    int vector = -1;
    double cost = 0;
  };

  const contraction& c;
  letter_list order[3]{};  // letters after summing, without those of extent 1
  letter_list dims[3]{};   // the dims of these letters, by letter; the left operand also has dims that only a window keeps
  std::int64_t stride[3][max_letters]{};  // of letters, in unpacked buffers
  std::int8_t window_of[max_letters]{};   // of letters in a window: the number of the window, from 1
  kind kind_of[max_letters]{};
  double total = 1;  // multiplications
  double size[3] = {1, 1, 1};
  letter_list list_of_kind[kind_count]{};
  inline_vec<std::int8_t, max_letters> sequence{};
  inline_vec<group, max_letters> groups{};

  static constexpr unsigned buffers_of(kind what) {
    constexpr unsigned sets[kind_count] = {0, 7, 5, 6, 3};
    return sets[what];
  }

  constexpr explicit contraction_choice(const contraction& what) : c(what) {
    bool in[3][max_letters]{};
    const letter_list* lists[3] = {&c.lhs, &c.rhs, &c.out};
    for (int b = 0; b < 3; ++b)
      for (const auto letter : *lists[b]) in[b][letter] = true;
    for (int w = 0; w < c.windows.count; ++w) {
      in[0][c.windows[w].inner] = true;
      window_of[c.windows[w].letter] = window_of[c.windows[w].inner] = static_cast<std::int8_t>(w + 1);
    }
    for (int l = 0; l < c.extent.count; ++l) {
      if (c.extent[l] == 1 || is_phased_inner(l)) continue;
      if (in[2][l]) kind_of[l] = in[0][l] ? (in[1][l] ? batch : left) : right;
      else if (in[0][l] && in[1][l]) kind_of[l] = sum;
      if (kind_of[l] != absent) total *= static_cast<double>(c.extent[l]);
    }
    for (int b = 0; b < 3; ++b) {
      for (const auto letter : *lists[b])
        if (kind_of[letter] != absent || is_phased_inner(letter) ||
            (b == 0 && has_window(letter) && extent_of_dim(b, letter) != 1)) {
          dims[b].push_back(letter);
          size[b] *= static_cast<double>(extent_of_dim(b, letter));
        }
      set_strides(b, dims[b], stride[b]);
      for (const auto letter : dims[b]) {
        add_letter(b, letter);
        if (b == 0 && has_window(letter)) add_letter(b, c.windows[window_of[letter] - 1].inner);
      }
    }
  }

  /// Returns true if a letter belongs to a window with phases.
  constexpr bool is_phased(int letter) const { return window_of[letter] != 0 && c.windows[window_of[letter] - 1].base > 1; }
  constexpr bool is_phased_inner(int letter) const {
    return is_phased(letter) && c.windows[window_of[letter] - 1].inner == letter;
  }
  constexpr bool is_phased_group(int g) const { return g >= 0 && is_phased(sequence[groups[g].first]); }

  /// Returns true if this letter of the left operand is read through a window.
  constexpr bool has_window(int letter) const {
    return window_of[letter] != 0 && c.windows[window_of[letter] - 1].letter == letter;
  }
  constexpr std::int64_t extent_of_dim(int buffer, int letter) const {
    return buffer == 0 && has_window(letter) ? c.windows[window_of[letter] - 1].extent : c.extent[letter];
  }
  constexpr void add_letter(int buffer, std::int8_t letter) {
    if (kind_of[letter] == absent) return;
    for (const auto other : order[buffer])
      if (other == letter) return;
    order[buffer].push_back(letter);
  }
  /// Sets the strides of the letters in a buffer whose dims have this order.
  constexpr void set_strides(int buffer, const letter_list& laid_out, std::int64_t* strides) const {
    std::int64_t elems = 1;
    for (int i = laid_out.count - 1; i >= 0; --i) {
      const auto letter = laid_out[i];
      if (buffer == 0 && has_window(letter)) {
        const auto& w = c.windows[window_of[letter] - 1];
        strides[letter] += w.step * elems;
        strides[w.inner] += w.inner_step * elems;
      } else {
        strides[letter] += elems;
      }
      elems *= extent_of_dim(buffer, letter);
    }
  }

  constexpr bool are_neighbours(unsigned buffers, int a, int b) const {
    if (window_of[a] != 0 || window_of[b] != 0) return false;
    for (int buffer = 0; buffer < 3; ++buffer)
      if ((buffers >> buffer & 1U) != 0 && stride[buffer][a] != stride[buffer][b] * c.extent[b]) return false;
    return true;
  }

  constexpr void make_groups(unsigned packed) {
    groups.count = 0;
    sequence.count = 0;
    for (const auto what : {batch, left, right, sum}) {
      const unsigned fixed = buffers_of(what) & ~packed;
      const unsigned reference = fixed != 0 ? fixed : buffers_of(what);
      const auto& letters = order[(reference & 4U) != 0 ? 2 : (reference & 1U) != 0 ? 0 : 1];
      int previous = -1;
      for (const auto letter : letters) {
        if (kind_of[letter] != what) continue;
        if (previous < 0 || !are_neighbours(fixed, previous, letter)) {
          group fresh;
          fresh.what = what;
          fresh.first = sequence.count;
          groups.push_back(fresh);
        }
        sequence.push_back(letter);
        auto& g = groups[groups.count - 1];
        ++g.count;
        g.extent *= c.extent[letter];
        previous = letter;
      }
    }
    for (auto& g : groups)
      for (int b = 0; b < 3; ++b) {
        const int last = sequence[g.first + g.count - 1];
        g.has_unit_stride[b] =
            (buffers_of(g.what) >> b & 1U) != 0 && (packed >> b & 1U) == 0 && stride[b][last] == 1 && !is_phased(last);
      }
  }

  constexpr double extent_of(int g) const { return g < 0 ? 1.0 : static_cast<double>(groups[g].extent); }
  constexpr bool has_unit_stride(int g, int buffer) const { return g < 0 || groups[g].has_unit_stride[buffer]; }

  /// Returns true if groups a and b form a matrix in a buffer. A matrix needs a unit stride in one direction; a vector
  /// can have any stride.
  constexpr bool is_matrix(int a, int b, int buffer, unsigned packed) const {
    if (buffer == 0 && !c.windows.empty()) return is_matrix_of_windows(a, b, (packed & 1U) != 0);
    if ((packed >> buffer & 1U) != 0 && (is_phased_group(a) || is_phased_group(b))) {  // a phased letter has no unit stride
      const auto laid_out = packed_order(buffer, a, b);
      return !is_phased(laid_out[laid_out.count - 1]);
    }
    return (packed >> buffer & 1U) != 0 || a < 0 || b < 0 || has_unit_stride(a, buffer) || has_unit_stride(b, buffer);
  }
  /// Returns the same for a buffer with windows: in addition, rows must not overlap and strides must be positive.
  constexpr bool is_matrix_of_windows(int a, int b, bool is_packed) const {
    std::int64_t packed_stride[max_letters]{};
    if (is_packed) set_strides(0, packed_order(0, a, b), packed_stride);
    const std::int64_t* const strides = is_packed ? packed_stride : stride[0];
    const auto along = [&](int g) { return g < 0 ? 1 : strides[sequence[groups[g].first + groups[g].count - 1]]; };
    if (along(a) <= 0 || along(b) <= 0) return false;
    if (a < 0 || b < 0) return true;
    return (along(a) == 1 && along(b) >= groups[a].extent && !is_phased_group(a)) ||
           (along(b) == 1 && along(a) >= groups[b].extent && !is_phased_group(b));
  }

  /// Returns the order of a buffer's dims if it is packed. Dims that the product does not cover come first, the dims of
  /// the matrix last. If the matrix contains the last dim of the buffer, this dim stays last, which keeps rows
  /// contiguous.
  constexpr letter_list packed_order(int buffer, int a, int b) const {
    const int last = dims[buffer][dims[buffer].count - 1];
    if (a >= 0) {
      letter_list own;
      append_dims(own, buffer, a);
      for (const auto d : own)
        if (d == last) {
          const int other = a;
          a = b;
          b = other;
          break;
        }
    }
    letter_list result;
    for (const auto letter : dims[buffer]) {
      const bool is_inner_kept = buffer == 0 && has_window(letter) && kind_of[c.windows[window_of[letter] - 1].inner] != absent;
      if (kind_of[letter] == absent && !is_inner_kept) result.push_back(letter);
    }
    for (int g = 0; g < groups.count; ++g)
      if (g != a && g != b && (buffers_of(groups[g].what) >> buffer & 1U) != 0) append_dims(result, buffer, g);
    if (a >= 0) append_dims(result, buffer, a);
    if (b >= 0) append_dims(result, buffer, b);
    return result;
  }
  /// Appends the dims of a group's letters. If only a window has a letter, its dim is the dim of the window.
  constexpr void append_dims(letter_list& to, int buffer, int g) const {
    for (int i = 0; i < groups[g].count; ++i) {
      auto dim = sequence[groups[g].first + i];
      if (buffer == 0 && window_of[dim] != 0) {
        bool is_dim = false, is_there = false;
        for (const auto d : dims[0]) is_dim = is_dim || d == dim;
        if (!is_dim) dim = c.windows[window_of[dim] - 1].letter;
        for (const auto d : to) is_there = is_there || d == dim;
        if (is_there) continue;
      }
      to.push_back(dim);
    }
  }

  // Costs are in multiplications at the peak rate of a matrix product, about 60 per ns. Moving an element costs 10 to
  // 40.
  constexpr double gemm_cost(double m, double n, double k) const {
    const double work = m * n * k;
    if (work <= worth_a_gemm_call) return total / work * (100 + work * 16);
    if (m == 1 || n == 1 || k == 1) return total / work * (4000 + work * 8);
    return total / work * (6000 + work + 12 * (m * k + k * n) + 24 * m * n);
  }
  /// Returns the cost of products that kernels/small_product.hpp computes, whose columns are contiguous in an operand
  /// and in the result. Four rows, or one remaining row, take the same time with a vector of 8, 4 or 1 elements.
  constexpr double small_product_cost(std::int64_t rows, std::int64_t cols, std::int64_t k) const {
    const auto vectors = cols / 8 + cols % 8 / 4 + cols % 4;
    return total / static_cast<double>(rows * cols * k) * (1200 + 50 * static_cast<double>((rows / 4 + rows % 4) * k * vectors));
  }
  constexpr double product_cost(unsigned packed, int m, int n, int k) const {
    const double cost = gemm_cost(extent_of(m), extent_of(n), extent_of(k));
    const bool is_swapped = n >= 0 && !groups[n].has_unit_stride[2];
    const int cols = is_swapped ? m : n, rows = is_swapped ? n : m, from = is_swapped ? 0 : 1;
    if (cols < 0 || packed != 0 || !groups[cols].has_unit_stride[from] ||
        extent_of(m) * extent_of(n) * extent_of(k) > worth_a_gemm_call)
      return cost;
    const auto small = small_product_cost(rows < 0 ? 1 : groups[rows].extent, groups[cols].extent, k < 0 ? 1 : groups[k].extent);
    return small < cost ? small : cost;
  }
  constexpr double packing_cost(unsigned packed) const {
    double cost = 0;
    for (int b = 0; b < 3; ++b)
      if ((packed >> b & 1U) != 0) cost += 400 + 40 * size[b];
    return cost;
  }

  /// Returns the candidates for M, N or K among the groups of a kind. These are the groups with a unit stride in a
  /// buffer, the largest group, and -1 for no group.
  constexpr inline_vec<int, 5> candidates(kind what) const {
    inline_vec<int, 5> list;
    int largest = -1;
    for (int g = 0; g < groups.count; ++g) {
      if (groups[g].what != what) continue;
      if (groups[g].has_unit_stride[0] || groups[g].has_unit_stride[1] || groups[g].has_unit_stride[2]) list.push_back(g);
      if (largest < 0 || groups[g].extent > groups[largest].extent) largest = g;
    }
    bool listed = largest < 0;
    for (const auto g : list) listed = listed || g == largest;
    if (!listed) list.push_back(largest);
    list.push_back(-1);
    return list;
  }

  constexpr void consider_gemms(unsigned packed, choice& best) const {
    const auto ms = candidates(left), ns = candidates(right), ks = candidates(sum);
    const double packing = packing_cost(packed);
    for (const auto m : ms)
      for (const auto n : ns)
        for (const auto k : ks) {
          if (!is_matrix(m, k, 0, packed) || !is_matrix(k, n, 1, packed) || !is_matrix(m, n, 2, packed)) continue;
          // A single product without copies is optimal, so an estimate for small sizes must not replace it.
          const bool is_all = packed == 0 && k >= 0 && (m >= 0) + (n >= 0) + 1 == groups.count;
          const double cost = is_all ? 0 : packing + product_cost(packed, m, n, k);
          if (best.cost < 0 || cost < best.cost) best = {packed, m, n, k, -1, cost};
        }
  }

  constexpr void consider_vector(choice& best) const {
    double terms = 1;
    for (int g = 0; g < groups.count; ++g)
      if (groups[g].what == sum) terms *= extent_of(g);
    for (int g = 0; g < groups.count; ++g) {
      if (!groups[g].has_unit_stride[2]) continue;
      bool is_smooth = true;
      for (int b = 0; b < 2; ++b)
        if ((buffers_of(groups[g].what) >> b & 1U) != 0 && !groups[g].has_unit_stride[b]) is_smooth = false;
      const double cost = total * (is_smooth ? 8 : 40) + total / extent_of(g) * (30 + 500 / terms);
      if (best.cost < 0 || cost < best.cost) best = {0, -1, -1, -1, g, cost};
    }
  }

  constexpr choice choose() {
    choice best;
    best.cost = -1;
    make_groups(0);
    consider_gemms(0, best);
    if (best.cost == 0) return best;
    consider_vector(best);
    bool has_matrices = false;  // otherwise packing cannot create a matrix
    for (const auto& g : groups) has_matrices = has_matrices || g.what != batch;
    for (unsigned packed = 1; has_matrices && packed < 8; ++packed) {
      if (best.cost <= packing_cost(packed)) continue;
      bool is_sensible = true;
      for (int b = 0; b < 3; ++b)
        if ((packed >> b & 1U) != 0 && dims[b].count < 2) is_sensible = false;
      if (!is_sensible) continue;
      make_groups(packed);
      consider_gemms(packed, best);
    }
    make_groups(best.packed);
    return best;
  }
};

}  // namespace gspmd::detail
