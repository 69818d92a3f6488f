// SPDX-License-Identifier: Apache-2.0
// labels: planner
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "gspmd/detail/ops/einsum.hpp"
#include "gspmd/detail/ops/sources.hpp"

using namespace gspmd::detail;
using gspmd::dtype;

namespace {

std::string letters(const inline_vec<char, max_rank>& v) { return std::string(v.begin(), v.end()); }

void check_parsed(std::string_view equation, std::vector<std::string> operands, const std::string& result) {
  CAPTURE(std::string(equation));
  const auto p = parse_equation(equation);
  REQUIRE(p.error == nullptr);
  std::vector<std::string> got;
  for (const auto& o : p.operands) got.push_back(letters(o));
  CHECK(got == operands);
  CHECK(letters(p.result) == result);
}

void check_refused(std::string_view equation, int column, const std::string& why) {
  CAPTURE(std::string(equation));
  const auto p = parse_equation(equation);
  REQUIRE(p.error != nullptr);
  CHECK(p.column == column);
  CHECK(std::string(p.error).find(why) != std::string::npos);
}

}  // namespace

static_assert(parse_equation("bd,df->bf").error == nullptr);
static_assert(parse_equation("bd,df->bx").column == 9);

TEST_CASE("equations that are right") {
  check_parsed("bd,df->bf", {"bd", "df"}, "bf");
  check_parsed("ab->ba", {"ab"}, "ba");
  check_parsed("ab->", {"ab"}, "");
  check_parsed("->", {""}, "");
  check_parsed(",->", {"", ""}, "");
  check_parsed(",a->a", {"", "a"}, "a");
  check_parsed("a,->a", {"a", ""}, "a");
  check_parsed("a,b->ba", {"a", "b"}, "ba");
  check_parsed(" b d , d f  -> b f ", {"bd", "df"}, "bf");
  check_parsed("aA,Ab->ab", {"aA", "Ab"}, "ab");  // letters of two cases are two letters
  check_parsed("GSEC,GSM->EGCM", {"GSEC", "GSM"}, "EGCM");
  check_parsed("zZ,Zz->zZ", {"zZ", "Zz"}, "zZ");
  check_parsed("abcdefghijklmnopqrstuvwxyzABCDEF->", {"abcdefghijklmnopqrstuvwxyzABCDEF"}, "");
}

TEST_CASE("mistakes are found where they are") {
  check_refused("", 1, "-> and the letters of the result are missing");
  check_refused("ab,bc", 6, "missing");
  check_refused("aa->a", 2, "twice in one operand");
  check_refused("ab,cdc->a", 6, "twice in one operand");
  check_refused("ab->aa", 6, "twice in the result");
  check_refused("ab->c", 5, "in no operand");
  check_refused("ab,bc->ad", 9, "in no operand");
  check_refused("a,b,c->a", 4, "at most two operands");
  check_refused("a->a,", 5, "at most two operands");
  check_refused("a->->", 4, "second ->");
  check_refused("a->a->", 5, "second ->");
  check_refused("a.b->a", 2, "only letters");
  check_refused("a-b", 2, "only letters");
  check_refused("a- >a", 2, "only letters");
  check_refused("a-", 2, "only letters");
  check_refused("a>b", 2, "only letters");
  check_refused("a1->a", 2, "only letters");
  check_refused("a\t->a", 2, "only letters");
  check_refused("...a->a", 1, "only letters");
  check_refused("abcdefghijklmnopqrstuvwxyzABCDEFG->", 33, "at most 32 dims");
  check_refused("\xc3\xa4->", 1, "only letters");
}

TEST_CASE("the equation is written as it was meant") {
  CHECK(std::string(equation_text(parse_equation(" bd, df ->bf")).view()) == "`bd,df->bf`");
  CHECK(std::string(equation_text(parse_equation("->")).view()) == "`->`");
}

TEST_CASE("add_einsum checks operands against the equation") {
  graph g;
  const auto at = location{"dir/user.cpp", 7};
  const auto shape = [](std::initializer_list<std::int64_t> e) {
    extents x;
    for (const auto i : e) x.push_back(i);
    return x;
  };
  const auto x = [&](graph& to, dtype type, std::initializer_list<std::int64_t> e) {
    return add_parameter(to, type, shape(e), at);
  };
  const auto error_of = [&](std::string_view equation, auto make_operands) {
    graph fresh;
    const std::vector<int> o = make_operands(fresh);
    const int id = o.size() == 1 ? add_einsum(fresh, parse_equation(equation), {o[0]}, at)
                                 : add_einsum(fresh, parse_equation(equation), {o[0], o[1]}, at);
    CHECK((id < 0) == fresh.failed());
    return std::string(fresh.error.view());
  };
  const auto contains = [](const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; };

  const int a = x(g, dtype::f32, {2, 3});
  const int b = x(g, dtype::f32, {3, 4});
  const int c = add_einsum(g, parse_equation("ab,bc->ca"), {a, b}, at);
  REQUIRE(c >= 0);
  CHECK(g.nodes[static_cast<std::size_t>(c)].shape == shape({4, 2}));
  CHECK(g.nodes[static_cast<std::size_t>(c)].attributes.count == 6);
  CHECK(g.nodes[static_cast<std::size_t>(c)].type == dtype::f32);

  const auto extent = error_of("ab,bc->ac", [&](graph& to) {
    return std::vector{x(to, dtype::f32, {2, 3}), x(to, dtype::f32, {4, 5})};
  });
  CHECK(contains(extent, "einsum at user.cpp:7:"));
  CHECK(contains(extent, "dim `b` of `ab,bc->ac` is 3 in operand 0 and 4 in operand 1"));
  CHECK(contains(error_of("ab,bc->ac",
                          [&](graph& to) {
                            return std::vector{x(to, dtype::f32, {2, 3}), x(to, dtype::f64, {3, 5})};
                          }),
                 "convert one"));
  CHECK(contains(error_of("ab,bc->ac",
                          [&](graph& to) {
                            return std::vector{x(to, dtype::f32, {2, 3})};
                          }),
                 "has 2 operands, the call has 1"));
  CHECK(contains(error_of("ab->a", [&](graph& to) { return std::vector{x(to, dtype::f32, {2})}; }),
                 "2 letters, the tensor is [2] of rank 1"));
  CHECK(contains(error_of("ab->a", [&](graph& to) { return std::vector{x(to, dtype::pred, {2, 2})}; }), "pred"));
}
