// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive
// group: random
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>

#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/windows.hpp"
#include "support/gradients.hpp"
#include "support/naive_convolution.hpp"
#include "support/random_split.hpp"
#include "support/run_random.hpp"
#include "support/traced.hpp"

// Convolutions of any rank, layout, window and split, their gradients and second gradients, compared with loops over
// StableHLO's definition. The numbers are small and whole, so that all sums are exact.

namespace {

using namespace gspmd;
using reference::convolution_case;
using reference::draws;
using reference::host_array;
using reference::traced;

bool chance(draws& r, std::int64_t percent) { return r.below(100) < percent; }
std::string shuffled(draws& r, std::string s) {
  for (std::size_t i = s.size(); i > 1; --i)
    std::swap(s[i - 1], s[static_cast<std::size_t>(r.below(static_cast<std::int64_t>(i)))]);
  return s;
}

convolution_case draw_case(draws& r) {
  for (;;) {
    convolution_case c;
    const auto rank = chance(r, 5) ? 5 + r.below(3) : 1 + r.below(3);
    const auto names = shuffled(r, "DHWXYZT").substr(0, static_cast<std::size_t>(rank));
    c.lhs = shuffled(r, "NC" + names);
    c.rhs = shuffled(r, "IO" + names);
    c.result = shuffled(r, "NC" + names);
    if (chance(r, 50)) {
      c.lhs = c.result = "N" + names + "C";
      c.rhs = names + "IO";
    }
    for (const char l : c.result)
      if (l != 'N' && l != 'C') c.spatial += l;
    if (chance(r, 25)) c.feature_groups = 2 + r.below(3);
    else if (chance(r, 25)) c.batch_groups = 2 + r.below(2);
    c.batch = (chance(r, 4) ? 0 : 1 + r.below(3)) * c.batch_groups;
    c.in_features = (chance(r, 3) ? 0 : 1 + r.below(3)) * c.feature_groups;
    c.out_features = (1 + r.below(3)) * c.feature_groups * c.batch_groups;
    const auto most = rank == 1 ? 13 : rank == 2 ? 7 : rank == 3 ? 4 : 2;
    bool fits = true;
    for (std::size_t s = 0; s < static_cast<std::size_t>(rank); ++s) {
      const auto plain = chance(r, rank > 3 ? 85 : 40);
      c.extent.push_back(chance(r, 3) ? 0 : 1 + r.below(most));
      c.window.push_back(1 + r.below(rank > 3 ? 2 : rank == 3 ? 3 : 4));
      c.stride.push_back(plain ? 1 : 1 + r.below(3));
      c.low.push_back(plain ? r.below(2) : r.below(6) - 2);
      c.high.push_back(plain ? r.below(2) : r.below(6) - 2);
      c.lhs_dilation.push_back(plain ? 1 : 1 + r.below(3));
      c.rhs_dilation.push_back(plain ? 1 : 1 + r.below(3));
      c.reverse.push_back(chance(r, 25) ? 1 : 0);
      fits = fits && c.output(s) >= 0;
    }
    if (fits) return c;
  }
}

convolution_options options_of(const convolution_case& c) {
  return {.stride = c.stride,
          .low = c.low,
          .high = c.high,
          .lhs_dilation = c.lhs_dilation,
          .rhs_dilation = c.rhs_dilation,
          .reverse = c.reverse,
          .feature_group_count = c.feature_groups,
          .batch_group_count = c.batch_groups};
}

host_array draw_array(draws& r, dtype type, const std::vector<std::int64_t>& shape) {
  host_array x(type, shape);
  for (auto& e : x.reals) e = static_cast<double>(r.below(7) - 3);
  for (auto& e : x.ints) e = r.below(7) - 3;
  return x;
}

void annotate(draws& r, traced& program, value x) {
  auto& n = program.g.nodes[static_cast<std::size_t>(x.id())];
  n.annotated = true;
  n.annotation = {};
  for (int a = 0; a < program.mesh.shape.axis_count(); ++a) {
    const auto d = r.below(static_cast<std::int64_t>(x.rank()) + 1);
    if (d < x.rank()) n.annotation.layout.splits.push_back({static_cast<std::int8_t>(a), static_cast<std::int8_t>(d)});
  }
  std::sort(
      n.annotation.layout.splits.begin(), n.annotation.layout.splits.end(),
      [](gspmd::detail::axis_use a, gspmd::detail::axis_use b) { return a.dim != b.dim ? a.dim < b.dim : a.axis < b.axis; });
}

std::vector<int> draw_mesh(draws& r) {
  const std::vector<std::vector<int>> meshes = {{1}, {2}, {3}, {4}, {5}, {8}, {2, 2}, {3, 2}, {2, 4}, {2, 2, 2}};
  return meshes[static_cast<std::size_t>(r.below(static_cast<std::int64_t>(meshes.size())))];
}

void add_product(host_array& to, std::size_t i, const host_array& a, std::size_t k, const host_array& b, std::size_t l) {
  if (to.floating()) to.reals[i] += a.reals[k] * b.reals[l];
  else to.ints[i] += a.ints[k] * b.ints[l];
}

/// Annotates some inputs and outputs randomly and runs the program. Returns the mistake in the outputs.
std::string run(draws& r, traced& program, const std::vector<value>& in, const std::vector<value>& outputs,
                const std::vector<host_array>& wanted, bool& sends) {
  for (const auto& t : outputs) {
    if (chance(r, 40)) annotate(r, program, t);
    program.output(t);
  }
  for (const auto& t : in)
    if (chance(r, 60)) annotate(r, program, t);
  program.g.allow_replication = true;  // for split windows, and groups that are not divisible into parts
  const reference::partitioned_run made(program);
  sends = made.collectives > 0;
  std::string wrong = made.wrong;
  for (std::size_t k = 0; k < outputs.size() && wrong.empty(); ++k) {
    wrong = reference::difference(made.outputs[k], wanted[k], 0);
    if (!wrong.empty()) wrong = "output " + std::to_string(k) + ": " + wrong;
  }
  return wrong;
}

/// Returns the mistake in a random convolution, or "".
std::string check(std::uint64_t seed, bool& sends) {
  draws r{std::mt19937_64(seed)};
  const auto c = draw_case(r);
  const auto mesh = draw_mesh(r);
  const dtype types[] = {dtype::f64, dtype::f32, dtype::s32, dtype::s64};
  const auto type = types[r.below(6) < 4 ? r.below(2) : 2 + r.below(2)];
  traced program(mesh);
  const host_array arrays[] = {draw_array(r, type, c.lhs_shape()), draw_array(r, type, c.rhs_shape()),
                               draw_array(r, type, c.result_shape()), draw_array(r, type, c.lhs_shape()),
                               draw_array(r, type, c.rhs_shape())};
  std::vector<value> in;
  for (const auto& a : arrays) in.push_back(program.input(a));
  const auto &x = in[0], &w = in[1], &dy = in[2], &v = in[3], &u = in[4];
  std::vector<value> outputs{convolution(x, w, c.layout(), options_of(c))};
  if (program.g.failed()) return std::string(program.g.error.view());
  std::vector<host_array> wanted{host_array(type, c.result_shape())};
  const auto level = detail::is_floating(type) ? r.below(3) : 0;  // 0: y alone; 1: its gradients; 2: second gradients
  if (level > 0) {
    const auto first = reference::gradients_of(gspmd::sum(outputs[0] * dy), {x, w});
    outputs.insert(outputs.end(), first.begin(), first.end());
    wanted.emplace_back(type, c.lhs_shape());
    wanted.emplace_back(type, c.rhs_shape());
    if (level > 1) {
      const auto second = reference::gradients_of(gspmd::sum(first[0] * v) + gspmd::sum(first[1] * u), {x, w, dy});
      outputs.insert(outputs.end(), second.begin(), second.end());
      wanted.emplace_back(type, c.lhs_shape());
      wanted.emplace_back(type, c.rhs_shape());
      wanted.emplace_back(type, c.result_shape());
    }
  }
  if (program.g.failed()) return std::string(program.g.error.view());
  c.for_each_product([&](std::size_t i, std::size_t k, std::size_t o) {
    add_product(wanted[0], o, arrays[0], i, arrays[1], k);
    if (level < 1) return;
    add_product(wanted[1], i, arrays[2], o, arrays[1], k);
    add_product(wanted[2], k, arrays[2], o, arrays[0], i);
    if (level < 2) return;
    add_product(wanted[3], i, arrays[2], o, arrays[4], k);
    add_product(wanted[4], k, arrays[2], o, arrays[3], i);
    add_product(wanted[5], o, arrays[3], i, arrays[1], k);
    add_product(wanted[5], o, arrays[0], i, arrays[4], k);
  });
  std::string wrong = run(r, program, in, outputs, wanted, sends);
  if (wrong.empty()) return {};
  wrong = "seed " + std::to_string(seed) + ", " + c.text() + ": " + wrong + "; mesh";
  for (const auto n : mesh) wrong += ' ' + std::to_string(n);
  return wrong;
}

/// An einsum with indices, parsed and computed by its letters. A dim is a sum of letters with strides, and a number.
struct naive_dim {
  std::int64_t times[128]{};
  std::int64_t first = 0;
};
std::vector<std::vector<naive_dim>> naive_dims(const std::string& equation) {
  std::vector<std::vector<naive_dim>> tensors(1);
  for (std::size_t i = 0; i < equation.size(); ++i) {
    const char c = equation[i];
    if (c == ',' || c == '>') tensors.emplace_back();
    if (c == ',' || c == '>' || c == '-') continue;
    naive_dim d;
    if (c != '(') d.times[static_cast<std::size_t>(c)] = 1;
    for (std::int64_t sign = 1, number = 0; c == '(' && equation[i] != ')';) {
      const char next = equation[++i];
      if (next >= '0' && next <= '9') number = 10 * number + (next - '0');
      else if (next == '+' || next == '-' || next == ')') {
        d.first += sign * number;
        number = 0;
        sign = next == '-' ? -1 : 1;
      } else {
        d.times[static_cast<std::size_t>(next)] = sign * (number == 0 ? 1 : number);
        number = 0;
      }
    }
    tensors.back().push_back(d);
  }
  return tensors;
}

std::string check_einsum(std::uint64_t seed, const std::string& equation, bool& sends) {
  draws r{std::mt19937_64(seed)};
  const auto tensors = naive_dims(equation);
  // Extents: the extent of a letter if the dim is only this letter; then the largest extent that stays below the end of
  // an index.
  std::int64_t extent[128]{};
  std::vector<std::vector<std::int64_t>> shapes(tensors.size());
  for (std::size_t k = 0; k < tensors.size(); ++k)
    for (const auto& d : tensors[k]) {
      int letter = 0, letters = 0;
      for (int l = 0; l < 128; ++l)
        if (d.times[l] != 0) letter = (++letters, l);
      if (letters == 1 && k + 1 < tensors.size() && extent[letter] == 0) extent[letter] = 1 + r.below(4);
    }
  for (std::size_t k = 0; k + 1 < tensors.size(); ++k)
    for (const auto& d : tensors[k]) {
      int open = 0, letters = 0, letter = 0;
      for (int l = 0; l < 128; ++l)
        if (d.times[l] != 0) {
          ++letters;
          letter = l;
          if (extent[l] == 0) open = l;
        }
      if (letters == 1) {
        shapes[k].push_back(extent[letter]);
        continue;
      }
      const auto size = 1 + r.below(14);
      shapes[k].push_back(size);
      for (; open != 0; ++extent[open]) {
        std::int64_t index = d.first + d.times[open] * extent[open];
        for (int l = 0; l < 128; ++l)
          if (d.times[l] != 0 && l != open && (d.times[l] > 0) == (d.times[open] > 0)) index += d.times[l] * (extent[l] - 1);
        if (d.times[open] > 0 ? index >= size : index < 0) break;
      }
      if (open != 0 && extent[open] == 0) return {};  // refused: the window is larger
    }
  for (const auto& d : tensors.back())
    for (int l = 0; l < 128; ++l)
      if (d.times[l] != 0) shapes.back().push_back(extent[l]);

  traced program(draw_mesh(r));
  std::vector<host_array> arrays;
  std::vector<value> in;
  for (const auto& shape : shapes) {
    arrays.push_back(draw_array(r, dtype::f64, shape));
    in.push_back(program.input(arrays.back()));
  }
  const bool two = tensors.size() == 3;
  std::vector<value> outputs{einsum(equation, in[0], two ? in[1] : value{})};
  if (program.g.failed()) return equation + ": " + std::string(program.g.error.view());
  if (chance(r, 70)) {
    const auto by = reference::gradients_of(gspmd::sum(outputs[0] * in.back()), {in.begin(), in.end() - 1});
    outputs.insert(outputs.end(), by.begin(), by.end());
  }
  if (program.g.failed()) return equation + ": " + std::string(program.g.error.view());
  std::vector<host_array> wanted{host_array(dtype::f64, shapes.back())};
  for (std::size_t k = 1; k < outputs.size(); ++k) wanted.emplace_back(dtype::f64, shapes[k - 1]);
  const host_array one(dtype::f64, {});
  std::vector<int> letters;
  for (int l = 0; l < 128; ++l)
    if (extent[l] != 0) letters.push_back(l);
  std::int64_t at[128]{};
  for (bool more = true; more;) {
    std::size_t offsets[3]{};
    bool is_inside = true;
    for (std::size_t k = 0; k < tensors.size(); ++k)
      for (std::size_t d = 0; d < tensors[k].size(); ++d) {
        std::int64_t index = tensors[k][d].first;
        for (const int l : letters) index += tensors[k][d].times[l] * at[l];
        is_inside = is_inside && index >= 0 && index < shapes[k][d];
        offsets[k] = offsets[k] * static_cast<std::size_t>(shapes[k][d]) + static_cast<std::size_t>(index);
      }
    const auto y = two ? offsets[2] : offsets[1];
    const double w = two && is_inside ? arrays[1].reals[offsets[1]] : 1;
    if (is_inside) {
      wanted[0].reals[y] += arrays[0].reals[offsets[0]] * w;
      if (wanted.size() > 1) wanted[1].reals[offsets[0]] += arrays.back().reals[y] * w;
      if (wanted.size() > 2) wanted[2].reals[offsets[1]] += arrays.back().reals[y] * arrays[0].reals[offsets[0]];
    }
    more = false;
    for (auto l = letters.rbegin(); l != letters.rend() && !more; ++l) {
      if (++at[*l] < extent[*l]) more = true;
      else at[*l] = 0;
    }
  }
  const auto wrong = run(r, program, in, outputs, wanted, sends);
  return wrong.empty() ? wrong : "seed " + std::to_string(seed) + ", " + equation + ": " + wrong;
}

}  // namespace

TEST_CASE("random convolutions, their gradients and the gradients of these equal the definition") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs(3000);
  std::uint64_t sending = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    bool sends = false;
    const auto wrong = check(seed, sends);
    if (!wrong.empty()) FAIL_CHECK(wrong);
    sending += sends ? 1 : 0;
  }
  std::printf("random convolutions: %llu of %llu send\n", static_cast<unsigned long long>(sending),
              static_cast<unsigned long long>(count));
  CHECK(sending > count / 3);
}

TEST_CASE("einsums with indices equal loops over their letters") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs(3000) / 12;
  std::uint64_t sending = 0;
  for (const char* equation :
       {"b(2x+w)i,wio->bxo", "wio,b(x+2w-1)i->obx", "b(x+w-1)(3y+v)i,wvio->bxyo", "b(x+w)i,bxo->wio", "b(x-w+2)i,wio->bxo",
        "b(3-w+2x)i,wio->bxo", "(x+w)c,wc->xc", "b(x+w)i,wo->bxo", "b(x+w)i,wfj->bxf", "(2x+w)b,xwb->bx", "b(x+w)i,xwio->bxo",
        "(5x+w),w->x", "(x+w)(y-v+3)f,xyf->wvf", "(x+w),xw->xw", "(x+w)a,w->axw"}) {
    for (auto seed = first; seed < first + count; ++seed) {
      bool sends = false;
      const auto wrong = check_einsum(seed, equation, sends);
      if (!wrong.empty()) FAIL_CHECK(wrong);
      sending += sends ? 1 : 0;
    }
  }
  std::printf("einsums with indices: %llu send\n", static_cast<unsigned long long>(sending));
  CHECK(sending > count);
}
