// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: plans
// The text of explain, compared with tests/golden/*.txt. GSPMD_WRITE_GOLDEN=1 rewrites the files; check the difference.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/report/explain.hpp>

#include "golden/layouts.hpp"
#include "golden/mlp.hpp"
#include "support/golden_folder.hpp"

namespace {

void compare(const std::string& text, const std::string& name) {
  const std::string path = test::golden_folder() + name;
  if (std::getenv("GSPMD_WRITE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  const std::string golden{std::istreambuf_iterator<char>(file), {}};
  CHECK(text == golden);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    CHECK(line.size() <= 120);
  }
}

}  // namespace

TEST_CASE("explain: a training step") { compare(gspmd::explain<golden::mlp::step>(), "mlp.txt"); }

TEST_CASE("explain: movements, a forced gather, dead code left out, a copied output") {
  compare(gspmd::explain<golden::layouts::step>(), "layouts.txt");
}

TEST_CASE("explain: no operators, one device, nothing sent") {
  constexpr auto identity = [](auto x) { return x; };
  using step = gspmd::compile<identity, gspmd::mesh<gspmd::axis<"x", 1>>, gspmd::input<float, gspmd::shape<>>>;
  CHECK(gspmd::explain<step>() ==
        "mesh x=1: 1 device\n\n"
        "#  operator  line  type  global shape  loop  local shape  sharding\n"
        "0  input 0         f32   []                  []           []  -> output 0\n"
        "   - copy of #0 to the memory of the output\n\n"
        "one device sends\n"
        "  in total     0 bytes\n"
        "            0 messages\n"
        "one device computes\n"
        "  in total     0 flops\n"
        "one device holds\n"
        "  inputs       4 bytes\n"
        "  outputs      4 bytes\n"
        "  arena        0 bytes\n"
        "  in total     8 bytes\n");
}

TEST_CASE("explain: the inputs of a builder are numbered, wherever they are written") {
  gspmd::dynamic::builder b(gspmd::dynamic::mesh({{"x", 1}}));
  const auto vector = [&] { return b.input(gspmd::dynamic::input<float>({4})); };
  const auto first = vector(), second = vector(), third = vector();
  b.output(first - second - third);
  const auto text = explain(b.compile());
  for (const char* const line : {"\n0  input 0 ", "\n1  input 1 ", "\n2  input 2 "}) CHECK(text.find(line) != std::string::npos);
}

namespace {
using axes = std::vector<std::string>;
using input_of = gspmd::dynamic::input_spec(std::vector<std::int64_t>, axes);
/// Element types for which the kernel of a reduction leaves the result itself, and those for which a loop rounds the
/// result.
const auto element_types = {static_cast<input_of*>(gspmd::dynamic::input<float>),
                            static_cast<input_of*>(gspmd::dynamic::input<gspmd::bf16>),
                            static_cast<input_of*>(gspmd::dynamic::input<gspmd::f16>)};
template <class Input, class F>
std::string explained(const Input& input, const F& f) {
  gspmd::dynamic::builder b(gspmd::dynamic::mesh({{"x", 2}}));
  f(b, b.input(input));
  return explain(b.compile());
}
std::size_t times_in(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}
}  // namespace

TEST_CASE("explain: reductions, scans and windows name their monoid for each element type") {
  using gspmd::monoid;
  const std::pair<monoid, std::string> kinds[] = {{monoid::add, "add"}, {monoid::max, "max"}, {monoid::min, "min"}};
  for (const auto in : element_types) {
    for (const auto& split : {axes{"", ""}, axes{"x", ""}, axes{"", "x"}})
      for (const auto& [kind, name] : kinds) {
        const auto text = explained(in({9, 3000}, split), [by = kind](auto& b, auto x) {
          b.output(reduce(x, by, {1}));
          b.output(reduce(x * 2 + 1, by, {1}) * 3);  // reduced by a fused loop, and read by one
          b.output(x - broadcast_in_dim(reduce(x * x, by, {1}), x.shape(), {0}));
          b.output(reduce(x * 2, by, {0, 1}));
        });
        CAPTURE(text);
        CHECK(times_in(text, " reduce(") == 4);
        CHECK(times_in(text, " reduce(" + name + ')') == 4);
      }
    const auto text = explained(in({8, 64}, {"x", ""}), [](auto& b, auto x) {
      b.output(scan_along(x, monoid::max, 1));
      b.output(reduce_window(x, monoid::min, {3, 1}) * 2);
    });
    CAPTURE(text);
    CHECK(times_in(text, " scan_along(max)") == 1);
    CHECK(times_in(text, " reduce_window(min, dim 0 by 3)") == 1);
  }
}

TEST_CASE("explain: the bill agrees with the constants of the step") {
  using step = golden::mlp::step;
  const auto text = gspmd::explain<step>();
  CHECK(text.find("in total") != std::string::npos);
  CHECK(text.find(std::to_string(step::traffic.bytes) + " bytes") != std::string::npos);
  CHECK(text.find(std::to_string(step::traffic.over("model").bytes) + " bytes") != std::string::npos);
  CHECK(text.find(std::to_string(step::peak_bytes_per_device) + " bytes") != std::string::npos);
}
