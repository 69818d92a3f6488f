// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive
// group: random
// Every operator on indices, order, random numbers and control at run time equals the naive evaluator. It runs on every
// mesh of up to 8 devices with every sharding of its operands. Extents are uneven, 0 or 1, some indices are out of
// range, and the element types rotate. By default a fraction of the cases runs; GSPMD_PROGRAMS=1000000 runs all.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gspmd/index.hpp"
#include "gspmd/index/random.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/windows.hpp"
#include "support/evaluate_program.hpp"
#include "support/layouts.hpp"
#include "support/run_random.hpp"
#include "support/traced.hpp"

namespace {

using namespace gspmd;
using reference::traced;
using std::int64_t;
using list = std::vector<int64_t>;

/// The operands of an operator: the element type, the shape of the first operand, and the number of the operator's
/// form.
struct setting {
  dtype type = dtype::f32;
  list shape;
  int form = 0;
  [[nodiscard]] bool second() const { return form % 2 == 1; }
  [[nodiscard]] int dim() const { return form / 2 % 2; }
  [[nodiscard]] int64_t extent(int d) const { return shape[static_cast<std::size_t>(d)]; }
  [[nodiscard]] out_of_range beyond() const { return second() ? out_of_range::fill : out_of_range::clip; }
  [[nodiscard]] scan_options scan() const { return {.exclusive = second(), .reverse = form / 4 % 2 == 1}; }
};

/// Small whole numbers with repetitions. Sums and products of a few are exact in every type.
value numbers(traced& p, dtype type, const list& shape) {
  reference::host_array x(type, shape);
  const bool is_signed =
      detail::is_floating(type) || type == dtype::s8 || type == dtype::s16 || type == dtype::s32 || type == dtype::s64;
  int64_t n = static_cast<int64_t>(p.inputs.size());
  const auto next = [&] {
    n = n * 7 + 3;
    return type == dtype::pred ? n % 2 : n % 11 - (is_signed ? 5 : 0);
  };
  for (auto& r : x.reals) r = static_cast<double>(next()), n %= 1009;
  for (auto& i : x.ints) i = next(), n %= 1009;
  return p.input(std::move(x));
}
/// Indices of `n` positions, from two before the first to two after the last.
value places(traced& p, const setting& s, const list& shape, int64_t n) {
  reference::host_array x(s.form % 3 == 0 ? dtype::s64 : dtype::s32, shape);
  int64_t at = 5;
  for (auto& i : x.ints) {
    at = (at * 5 + 3) % 1009;
    i = at % (n + 4) - 2;
  }
  return p.input(std::move(x));
}
list with_extent(list shape, int d, int64_t extent) {
  shape[static_cast<std::size_t>(d)] = extent;
  return shape;
}

struct tried_operator {
  const char* name;
  void (*make)(traced&, const setting&);
};
const tried_operator operators[] = {
    {"take",
     [](traced& p, const setting& s) {
       const value x = numbers(p, s.type, s.shape);
       p.output(take(x, places(p, s, {4}, s.extent(s.dim())), s.dim(), s.beyond()));
     }},
    {"take_along_axis",
     [](traced& p, const setting& s) {
       const value x = numbers(p, s.type, s.shape);
       p.output(take_along_axis(x, places(p, s, with_extent(s.shape, s.dim(), 2), s.extent(s.dim())), s.dim(), s.beyond()));
     }},
    {"gather",
     [](traced& p, const setting& s) {
       const value x = numbers(p, s.type, s.shape), at = places(p, s, {3, 1}, s.extent(0));
       p.output(gather(x, at, {.offset_dims = {1, 2}, .start_index_map = {0}, .index_vector_dim = 1},
                       {std::min<int64_t>(2, s.extent(0)), s.extent(1)}, s.beyond()));
     }},
    {"scatter_add",
     [](traced& p, const setting& s) {
       const value x = numbers(p, s.type, s.shape), at = places(p, s, {4}, s.extent(s.dim()));
       const value updates = numbers(p, s.type, with_extent(s.shape, s.dim(), 4));
       p.output(scatter_add(x, at, updates, s.dim(), s.second() ? monoid::max : monoid::add));
     }},
    {"scatter",
     [](traced& p, const setting& s) {
       const value x = numbers(p, s.type, s.shape), at = places(p, s, {3, 1}, s.extent(0));
       const value updates = numbers(p, s.type, {3, s.extent(1)});
       p.output(scatter(
           x, at, updates,
           {.update_window_dims = {1}, .inserted_window_dims = {0}, .scatter_dims_to_operand_dims = {0}, .index_vector_dim = 1}));
     }},
    {"segment_sum",
     [](traced& p, const setting& s) {
       const value x = numbers(p, s.type, s.shape);
       p.output(segment_sum(x, places(p, s, {s.extent(0)}, 3), 3));
     }},
    {"histogram", [](traced& p, const setting& s) { p.output(histogram(places(p, s, s.shape, 5), 5)); }},
    {"dynamic_slice",
     [](traced& p, const setting& s) {
       const value x = numbers(p, s.type, s.shape);
       const value starts[] = {places(p, s, {}, s.extent(0)), places(p, s, {}, s.extent(1))};
       p.output(dynamic_slice(x, starts, {std::min<int64_t>(2, s.extent(0)), std::min<int64_t>(2, s.extent(1))}));
     }},
    {"dynamic_update_slice",
     [](traced& p, const setting& s) {
       const value x = numbers(p, s.type, s.shape);
       const value update = numbers(p, s.type, {std::min<int64_t>(2, s.extent(0)), std::min<int64_t>(2, s.extent(1))});
       const value starts[] = {places(p, s, {}, s.extent(0)), places(p, s, {}, s.extent(1))};
       p.output(dynamic_update_slice(x, update, starts));
     }},
    {"sort",
     [](traced& p, const setting& s) { p.output(sort(numbers(p, s.type, s.shape), s.dim(), {.descending = s.second()})); }},
    {"argsort",
     [](traced& p, const setting& s) { p.output(argsort(numbers(p, s.type, s.shape), s.dim(), {.descending = s.second()})); }},
    {"sort_together",
     [](traced& p, const setting& s) {
       const value x = numbers(p, s.type, s.shape), y = numbers(p, dtype::f32, s.shape);
       for (const value v : sort_together({x, y}, 1 + s.form % 2, along(s.dim()))) p.output(v);
     }},
    {"top_k",
     [](traced& p, const setting& s) {
       const auto [largest, at] = top_k(numbers(p, s.type, s.shape), std::min<int64_t>(2, s.extent(1)));
       p.output(largest);
       p.output(at);
     }},
    {"argmax", [](traced& p, const setting& s) { p.output(argmax(numbers(p, s.type, s.shape), s.dim())); }},
    {"argmin", [](traced& p, const setting& s) { p.output(argmin(numbers(p, s.type, s.shape), s.dim())); }},
    {"cumsum", [](traced& p, const setting& s) { p.output(cumsum(numbers(p, s.type, s.shape), s.dim(), s.scan())); }},
    {"scan_along",
     [](traced& p, const setting& s) { p.output(scan_along(numbers(p, s.type, s.shape), monoid::min, s.dim(), s.scan())); }},
    {"flip", [](traced& p, const setting& s) { p.output(flip(numbers(p, s.type, s.shape), {s.dim()})); }},
    {"random bits",
     [](traced& p, const setting& s) {  // with the parts of split numbers
       const value x = numbers(p, dtype::u32, s.shape);
       p.output(x + random::bits(random::key(x, 7), integers(s.shape.data(), s.shape.size())));
     }},
    {"while_loop",
     [](traced& p, const setting& s) {
       const value x = numbers(p, s.type, s.shape);
       const auto [n, last] = while_loop([](const auto& now) { return std::get<0>(now) < 3; },
                                         [](const auto& now) {
                                           return std::tuple{std::get<0>(now) + 1, flip(std::get<1>(now), {0, 1})};
                                         },
                                         std::tuple{constant<int64_t>(x, {}, 0), x});
       p.output(n);
       p.output(last);
     }},
    {"switch_",
     [](traced& p, const setting& s) {
       const value x = numbers(p, s.type, s.shape);
       p.output(switch_(
           places(p, s, {}, 3),
           std::tuple{[](value v) { return v; }, [](value v) { return flip(v, {0}); }, [](value v) { return flip(v, {1}); }},
           std::tuple{x}));
     }},
};

const list shapes[] = {{5, 3}, {1, 4}, {0, 3}, {8, 2}};
constexpr dtype element_types[] = {dtype::f32, dtype::bf16, dtype::s32, dtype::f64, dtype::u8,  dtype::s64,
                                   dtype::f16, dtype::pred, dtype::s8,  dtype::u32, dtype::s16, dtype::u64};

std::string text_of(const tried_operator& op, dtype type) {
  return std::string(op.name) + " of " + std::string(detail::name_of(type));
}

/// Calls visit(shardings) for all shardings of the inputs.
template <class Visit>
void for_each_layout(const traced& p, Visit visit) {
  std::vector<std::vector<detail::sharding>> all;
  for (const auto& x : p.inputs) all.push_back(layouts::all_shardings(p.mesh.shape, static_cast<int>(x.shape.size())));
  // The shardings of the third and later operands rotate, because all triples on eight devices are millions.
  std::vector<std::size_t> at(all.size(), 0);
  for (std::size_t n = 0;; ++n) {
    for (std::size_t k = 2; k < all.size(); ++k) at[k] = n % all[k].size();
    visit(all, at);
    std::size_t k = 0;
    for (; k < std::min<std::size_t>(2, all.size()); ++k) {
      if (++at[k] < all[k].size()) break;
      at[k] = 0;
    }
    if (k == std::min<std::size_t>(2, all.size())) return;
  }
}

}  // namespace

TEST_CASE("indices, order, chance and control: every mesh and sharding, all element types, equal the naive evaluator") {
  const auto count = reference::programs(12'000);
  constexpr std::uint64_t about = 120'000;  // all cases
  const std::uint64_t stride = count >= about ? 1 : about / count | 1;
  std::uint64_t number = 0, ran = 0, refused = 0;
  bool was_tried[std::size(operators)][std::size(element_types)]{};
  for (const auto& sizes : layouts::all_meshes(8, 3)) {
    if (sizes.size() > 1 && std::count(sizes.begin(), sizes.end(), 1) > (sizes.size() == 2 ? 1 : 0)) continue;
    for (std::size_t o = 0; o < std::size(operators); ++o)
      for (const auto& shape : shapes) {
        traced empty(sizes);
        operators[o].make(empty, {dtype::f32, shape, 0});
        if (empty.g.failed()) continue;  // for example, no maximum of zero elements
        for_each_layout(empty, [&](const auto& all, const auto& at) {
          const auto n = number++;
          if (n % stride != 0) return;
          const auto turn = n / stride;
          const auto t = static_cast<std::size_t>((turn + o) % std::size(element_types));
          std::string what = text_of(operators[o], element_types[t]);
          traced p(sizes);
          operators[o].make(p, {element_types[t], shape, static_cast<int>(turn / std::size(element_types) % 8)});
          if (p.g.failed()) {
            ++refused;
            CHECK_MESSAGE(element_types[t] == dtype::pred, what, ": ", std::string(p.g.error.view()));
            return;
          }
          for (std::size_t k = 0; k < p.inputs.size(); ++k) {
            auto& input = p.g.nodes[static_cast<std::size_t>(p.g.inputs[k])];
            input.annotated = true;
            input.annotation = all[k][at[k]];
          }
          was_tried[o][t] = true;
          ++ran;
          what += ", mesh";
          for (const int size : sizes) what += ' ' + std::to_string(size);
          for (std::size_t k = 0; k < p.inputs.size(); ++k)
            what += ' ' + layouts::text_of(all[k][at[k]], static_cast<int>(p.inputs[k].shape.size()));
          const reference::partitioned_run run(p);
          if (!run.wrong.empty()) FAIL_CHECK(what << ": " << run.wrong);
          const reference::evaluation wanted(p.g, p.inputs);
          for (std::size_t k = 0; k < run.outputs.size(); ++k) {
            const auto wrong = reference::difference(run.outputs[k], wanted.values[static_cast<std::size_t>(p.g.outputs[k])], 0);
            if (!wrong.empty()) FAIL_CHECK(what << ": output " << k << ": " << wrong);
          }
        });
      }
  }
  CAPTURE(number);
  CAPTURE(ran);
  CHECK(ran >= std::min(number, count) / 2);
  CHECK(refused < ran / 10);
  if (count >= 12'000)
    for (std::size_t o = 0; o < std::size(operators); ++o)
      for (std::size_t t = 0; t < std::size(element_types); ++t)
        CHECK_MESSAGE((was_tried[o][t] || element_types[t] == dtype::pred), text_of(operators[o], element_types[t]));
  if (stride == 1) MESSAGE(number << " cases, " << ran << " run, " << refused << " refused");
}
