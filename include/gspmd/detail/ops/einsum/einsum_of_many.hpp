// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "gspmd/detail/ops/einsum/einsum.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/detail/support/span.hpp"

/// Einsums of any number of operands, with `...` and diagonals. They become einsums with one or two operands.
///
///   ...ab,...bc->...ac   `...` becomes letters that the equation lacks, aligned at the right. An extent of 1 is
///                        dropped if another operand has a larger extent
///   ii->i                the elements off the diagonal are masked and then summed, so a sharded tensor is not
///                        gathered. If both dims are whole, a loop reads only the diagonal (passes/lower/diagonals.hpp)
///   ab,bc,cd->ad         two operands at a time, in the order with the fewest multiplications, then the smallest
///                        intermediate values. All orders of up to 8 operands are tried; with more operands, the best
///                        pair is next
namespace gspmd::detail {

/// Returns true if add_einsum does not support the equation.
constexpr bool is_einsum_of_many(std::string_view equation) {
  int operands = 1, dots = 0;
  bool repeats = false, is_written = true, is_mistaken = false;
  for (std::size_t i = 0, begin = 0; i < equation.size(); ++i) {
    const char c = equation[i];
    if (c == '(' || c == '[') return false;  // windows need one or two operands
    if (c == '-') is_written = false;
    if (!is_written) {
      if (c == '.') ++dots;
      continue;
    }
    if (c == ',') {
      ++operands;
      begin = i + 1;
    } else if (c == '.') {
      ++dots;
    } else if (c != ' ') {
      if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) is_mistaken = true;
      for (std::size_t k = begin; k < i; ++k) repeats = repeats || equation[k] == c;
    }
  }
  return operands > 2 || dots > 0 || (repeats && !is_mistaken);  // a mistaken equation is reported as an ordinary one
}

class einsum_of_many {
 public:
  constexpr einsum_of_many(graph& g, std::string_view equation, location at) : g_(g), equation_(equation), at_(at) {
    for (auto& e : extent_) e = -1;
  }

  /// Returns the node of the result, or -1 if the einsum was rejected.
  constexpr int add(span<const int> operands) {
    if (!read()) return -1;
    if (operands_.size() != operands.size())
      return refuse(mistake::operand_count, text("has ") << static_cast<int>(operands_.size()) << " operands, the call has "
                                                         << static_cast<int>(operands.size()));
    if (!g_.may_read(operands, at_, "einsum")) return -1;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (operands[k] < 0) return -1;
      operands_[k].id = operands[k];
      if (!fits_rank(static_cast<int>(k))) return -1;
    }
    name_dots();
    if (!is_sound_ || !take_diagonals() || !learn_extents()) return -1;
    if (operands_.size() <= most_tried) return join_best();
    join_greedily();
    return operands_[0].id;
  }

 private:
  static constexpr std::size_t most_tried = 8;
  using letter_list = inline_vec<char, max_rank>;
  struct tensor {
    letter_list letters;
    int dots_at = -1;  // the position of `...` among the letters
    int id = -1;
  };

  constexpr int refuse(mistake rule, const text& what) {
    is_sound_ = false;
    return g_.fail(at_, "einsum", rule, text("the equation `") << equation_ << "` " << what);
  }
  [[nodiscard]] constexpr extents shape(const tensor& t) const { return g_.nodes[static_cast<std::size_t>(t.id)].shape; }
  static constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

  constexpr bool read() {
    tensor now;
    bool has_arrow = false;
    const auto& s = equation_;
    for (std::size_t i = 0; i <= s.size() && is_sound_; ++i) {
      const char c = i < s.size() ? s[i] : ',';
      const auto column = static_cast<int>(i) + 1;
      if (c == ' ') continue;
      if (c == '-' && !has_arrow && i + 1 < s.size() && s[i + 1] == '>') {
        operands_.push_back(now);
        now = {};
        has_arrow = true;
        ++i;
      } else if (c == ',') {
        if (i < s.size() && has_arrow) refuse(mistake::equation, text("has a comma after -> at column ") << column);
        if (!has_arrow) operands_.push_back(now);
        else result_ = now;
        if (i < s.size()) now = {};
      } else if (c == '.') {
        if (s.substr(i, 3) != "..." || now.dots_at >= 0)
          refuse(mistake::equation, text("has at column ") << column << " dots that are not a single `...`");
        now.dots_at = now.letters.count;
        i += 2;
      } else if (!is_letter(c)) {
        refuse(mistake::equation, text("has at column ")
                                      << column
                                      << " an unexpected character; with `...`, diagonals or three operands it has "
                                         "letters, commas and one ->");
      } else if (now.letters.count == max_rank) {
        refuse(mistake::rank, "names more than 32 dims of a tensor");
      } else {
        if (has_arrow && holds(now.letters, c)) refuse(mistake::equation, text("has `") << c << "` twice after ->");
        now.letters.push_back(c);
        used_[static_cast<int>(c)] = true;
      }
    }
    if (is_sound_ && !has_arrow) refuse(mistake::equation, "has no ->");
    return is_sound_;
  }

  constexpr bool fits_rank(int k) {
    const tensor& t = operands_[static_cast<std::size_t>(k)];
    const int rank = shape(t).count, letters = t.letters.count;
    if (g_.nodes[static_cast<std::size_t>(t.id)].type == dtype::pred)
      return refuse(mistake::type, text("takes numbers, operand ") << k << " is pred; convert it to a number first") >= 0;
    if (t.dots_at < 0 ? rank == letters : rank >= letters) return true;
    return refuse(mistake::rank, text("names ") << letters << (t.dots_at < 0 ? "" : " or more") << " dims of operand " << k
                                                << ", the tensor is " << shape_text(shape(t)) << " of rank " << rank) >= 0;
  }
  constexpr char fresh() {
    for (char c = 'A'; c <= 'z'; ++c)
      if (is_letter(c) && !used_[static_cast<int>(c)]) {
        used_[static_cast<int>(c)] = true;
        return c;
      }
    refuse(mistake::rank, "has more than 52 dims");
    return 'a';
  }

  /// Replaces `...` by letters, aligned at the right.
  constexpr void name_dots() {
    int most = 0;
    bool any = false;
    for (const auto& t : operands_)
      if (t.dots_at >= 0) {
        any = true;
        if (const int own = shape(t).count - t.letters.count; own > most) most = own;
      }
    if (any != (result_.dots_at >= 0)) {
      refuse(mistake::equation, any ? "has `...` in an operand and not after ->, so it is ambiguous which dims are summed; write "
                                      "`...` after -> too, or letters"
                                    : "has `...` after -> and in no operand");
      return;
    }
    letter_list dots;
    for (int d = 0; d < most; ++d) dots.push_back(fresh());
    extents widest(most, 1);
    for (const auto& t : operands_) {
      const int own = t.dots_at < 0 ? 0 : shape(t).count - t.letters.count;
      for (int d = 0; d < own; ++d)
        if (const auto e = shape(t)[t.dots_at + d]; e != 1) widest[most - own + d] = e;
    }
    for (auto& t : operands_) {
      const int own = t.dots_at < 0 ? 0 : shape(t).count - t.letters.count;
      letter_list named;
      dim_mask dropped = 0;
      for (int d = 0, letter = 0; d < shape(t).count; ++d) {
        const int dot = d - t.dots_at;
        const bool is_dot = t.dots_at >= 0 && dot >= 0 && dot < own;
        const char c = is_dot ? dots[most - own + dot] : t.letters[letter++];
        if (is_dot && shape(t)[d] == 1 && widest[most - own + dot] != 1) {
          dropped |= dim_bit(d);
          continue;
        }
        named.push_back(c);
      }
      // a dim of extent 1, so the sum needs no communication
      if (dropped != 0) t.id = add_reduce(g_, t.id, dropped, monoid::add, at_);
      t.letters = named;
    }
    letter_list named;
    for (int d = 0; d <= result_.letters.count; ++d) {
      if (d == result_.dots_at)
        for (const char c : dots) named.push_back(c);
      if (d < result_.letters.count) named.push_back(result_.letters[d]);
    }
    result_.letters = named;
  }

  /// Takes the diagonals of operands that have a letter twice. The second occurrence becomes another letter. Elements
  /// with different indices are masked, and the new letter is summed.
  constexpr bool take_diagonals() {
    for (auto& t : operands_) {
      const extents given = shape(t);
      const auto first_of = [&t](int d) {
        int first = 0;
        while (t.letters[first] != t.letters[d]) ++first;
        return first;
      };
      for (int d = 1; d < t.letters.count; ++d)
        if (const int first = first_of(d); given[first] != given[d])
          return refuse(mistake::extent, text("takes the diagonal of dims ")
                                             << first << " and " << d << " of " << shape_text(given)
                                             << ", whose extents differ") >= 0;
      for (int d = 1; d < t.letters.count; ++d) {
        const int first = first_of(d);
        if (first == d) continue;
        const extents own = shape(t);
        const dtype type = g_.nodes[static_cast<std::size_t>(t.id)].type;
        const int equal = add_elementwise(
            g_, code_of<compare_eq_op>, {add_iota(g_, dtype::s64, own, first, at_), add_iota(g_, dtype::s64, own, d, at_)}, at_);
        const double nothing = is_floating(type) ? -0.0 : 0;  // 0.0 would turn -0.0 into 0.0
        t.id = add_elementwise(g_, code_of<where_op>, {equal, t.id, add_constant(g_, type, own, nothing, 0, at_)}, at_);
        if (operands_.size() == 1) {
          t.letters[d] = fresh();
          continue;
        }
        t.id = add_reduce(g_, t.id, dim_bit(d), monoid::add, at_);  // immediately, so that the products are of the diagonal only
        letter_list left;
        for (int k = 0; k < t.letters.count; ++k)
          if (k != d) left.push_back(t.letters[k]);
        t.letters = left;
        --d;
      }
    }
    return is_sound_;
  }

  constexpr bool learn_extents() {
    for (std::size_t k = 0; k < operands_.size(); ++k)
      for (int d = 0; d < operands_[k].letters.count; ++d) {
        const char c = operands_[k].letters[d];
        auto& known = extent_[static_cast<int>(c)];
        const auto own = shape(operands_[k])[d];
        if (known >= 0 && known != own)
          return refuse(mistake::extent, text("gives dim `") << c << "` the extents " << known << " and " << own
                                                             << "; a letter has one extent") >= 0;
        known = own;
      }
    for (const char c : result_.letters)
      if (extent_[static_cast<int>(c)] < 0) return refuse_letter(c);
    return true;
  }

  constexpr bool refuse_letter(char letter) {
    const auto count = [this](char c) {
      int n = 0;
      for (const tensor& t : operands_) n += holds(t.letters, c) ? 1 : 0;
      return n;
    };
    text what("has `");
    what << letter << "` after -> and in no operand; ";
    add_letter_remedy(what, count, [this](char c) { return holds(result_.letters, c); });
    return refuse(mistake::equation, what) >= 0;
  }

  // ---- the order of the products ----

  using letter_set = std::uint64_t;
  static constexpr letter_set bit(char c) { return letter_set{1} << (c - 'A'); }
  static constexpr letter_set set_of(const letter_list& letters) {
    letter_set all = 0;
    for (const char c : letters) all |= bit(c);
    return all;
  }
  [[nodiscard]] constexpr double size_of(letter_set letters) const {
    double size = 1;
    for (; letters != 0; letters &= letters - 1)
      size *= static_cast<double>(extent_[static_cast<int>('A' + std::countr_zero(letters))]);
    return size;
  }
  /// The cost of an order of products: the multiplications are compared first, then the elements of intermediate
  /// values.
  struct price {
    double products = 0, elems = 0;
    friend constexpr bool operator<(const price& a, const price& b) {
      return a.products != b.products ? a.products < b.products : a.elems < b.elems;
    }
  };

  /// Adds an einsum on `a` and `b`, or on `a` alone if `b` is null. The result keeps the letters of `wanted`; the last
  /// einsum has the letters of the whole result.
  constexpr tensor join(const tensor& a, const tensor* b, letter_set wanted, bool is_last) {
    einsum_equation e;
    e.operands.push_back(a.letters);
    if (b != nullptr) e.operands.push_back(b->letters);
    tensor made;
    const auto keep = [&](const letter_list& letters) {
      for (const char c : letters)
        if ((wanted & bit(c)) != 0 && !holds(made.letters, c)) made.letters.push_back(c);
    };
    if (is_last) {
      made.letters = result_.letters;
    } else {
      keep(a.letters);
      if (b != nullptr) keep(b->letters);
    }
    e.result = made.letters;
    made.id = b != nullptr ? add_einsum(g_, e, {a.id, b->id}, at_) : add_einsum(g_, e, {a.id}, at_);
    return made;
  }

  /// Tries all orders. The cheapest order of each set of operands is found from the cheapest orders of its parts.
  constexpr int join_best() {
    const auto count = operands_.size();
    if (count == 1) return join(operands_[0], nullptr, 0, true).id;
    const std::size_t sets = std::size_t{1} << count;
    vec<price> cost(sets, price{});
    vec<int> part(sets, 0);
    vec<letter_set> kept(sets, 0);
    for (std::size_t s = 1; s < sets; ++s) {
      letter_set inside = 0, outside = set_of(result_.letters);
      for (std::size_t k = 0; k < count; ++k) ((s >> k & 1) != 0 ? inside : outside) |= set_of(operands_[k].letters);
      kept[s] = std::has_single_bit(s) ? inside : inside & outside;
      if (std::has_single_bit(s)) continue;
      bool any = false;
      for (std::size_t a = (s - 1) & s; a != 0; a = (a - 1) & s) {
        const std::size_t b = s & ~a;
        if (a < b) continue;
        const price own{cost[a].products + cost[b].products + size_of(kept[a] | kept[b]),
                        cost[a].elems + cost[b].elems + size_of(kept[s])};
        if (any && !(own < cost[s])) continue;
        any = true;
        cost[s] = own;
        part[s] = static_cast<int>(a);
      }
    }
    return join_set(sets - 1, part, kept, sets - 1).id;
  }
  constexpr tensor join_set(std::size_t set, const vec<int>& part, const vec<letter_set>& kept, std::size_t all) {
    if (std::has_single_bit(set)) return operands_[static_cast<std::size_t>(std::countr_zero(set))];
    const auto one = static_cast<std::size_t>(part[set]), other = set & ~one;
    const bool is_swapped = std::countr_zero(one) > std::countr_zero(other);  // keeps the user's order of the operands
    const tensor a = join_set(is_swapped ? other : one, part, kept, all), b = join_set(is_swapped ? one : other, part, kept, all);
    return join(a, &b, kept[set], set == all);
  }

  constexpr void join_greedily() {
    while (operands_.size() > 1) {
      price best;
      std::size_t first = 0, second = 0;
      const auto wanted = [&](std::size_t a, std::size_t b) {
        letter_set others = set_of(result_.letters);
        for (std::size_t k = 0; k < operands_.size(); ++k)
          if (k != a && k != b) others |= set_of(operands_[k].letters);
        return others;
      };
      for (std::size_t a = 0; a < operands_.size(); ++a)
        for (std::size_t b = a + 1; b < operands_.size(); ++b) {
          const auto both = set_of(operands_[a].letters) | set_of(operands_[b].letters);
          const price own{size_of(both), size_of(both & wanted(a, b))};
          if (second != 0 && !(own < best)) continue;
          best = own;
          first = a;
          second = b;
        }
      const tensor made = join(operands_[first], &operands_[second], wanted(first, second), operands_.size() == 2);
      operands_[first] = made;
      vec<tensor> left;
      for (std::size_t k = 0; k < operands_.size(); ++k)
        if (k != second) left.push_back(operands_[k]);
      operands_ = std::move(left);
    }
  }

  graph& g_;
  std::string_view equation_;
  location at_;
  vec<tensor> operands_;
  tensor result_;
  bool used_[128]{};
  bool is_sound_ = true;
  std::int64_t extent_[128];  // -1: not known yet
};

/// Adds an einsum of any number of operands. Returns -1 if the einsum was rejected.
constexpr int add_einsum_of_many(graph& g, std::string_view equation, span<const int> operands, location at) {
  return einsum_of_many(g, equation, at).add(operands);
}

}  // namespace gspmd::detail
