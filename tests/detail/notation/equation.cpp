// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: planner
#include <sys/mman.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <regex>
#include <string>
#include <vector>

#include "gspmd/detail/notation/equation.hpp"
#include "gspmd/detail/ops/einsum/einsum.hpp"
#include "gspmd/detail/ops/sources.hpp"

using namespace gspmd::detail;
using gspmd::dtype;

namespace {

std::string letters(const inline_vec<char, max_rank>& v) { return std::string(v.begin(), v.end()); }

void check_parsed(std::string_view equation, std::vector<std::string> operands, const std::string& result) {
  CAPTURE(std::string(equation));
  const auto p = parse_einsum(equation);
  REQUIRE(p.error == nullptr);
  std::vector<std::string> got;
  for (const auto& o : p.operands) got.push_back(letters(o));
  CHECK(got == operands);
  CHECK(letters(p.result) == result);
}

void check_refused(std::string_view equation, int column, const std::string& why) {
  CAPTURE(std::string(equation));
  const auto p = parse_einsum(equation);
  REQUIRE(p.error != nullptr);
  CHECK(p.column == column);
  CHECK(std::string(p.error).find(why) != std::string::npos);
}

/// The text of an equation, without spaces.
std::string written(const equation_sum& s) {
  std::string t;
  for (const auto& term : s.terms) {
    if (term.times < 0) t += '-';
    else if (!t.empty()) t += '+';
    if (term.times != 1 && term.times != -1) t += std::to_string(std::abs(term.times));
    t += term.letter;
    if (term.per != 1) t += '/' + std::to_string(term.per);
  }
  if (s.constant > 0 && !t.empty()) t += '+';
  return s.constant != 0 || t.empty() ? t + std::to_string(s.constant) : t;
}
std::string written(const equation& e) {
  std::string t;
  for (const auto* list : {&e.operands, &e.results}) {
    if (list == &e.results) t += "->";
    for (std::size_t k = 0; k < list->size(); ++k) {
      if (k > 0) t += ',';
      for (const auto& d : (*list)[k].dims) {
        if (d.kind == dim_kind::index) t += '(' + written(d.sum) + ')';
        else if (d.kind == dim_kind::letter) t += d.letter;
        else t += std::string("[") + d.letter + (d.is_stated ? '=' + written(d.sum) : "") + ']';
      }
    }
  }
  return t;
}
std::string said_of(std::string_view s) {
  const auto e = parse_equation(s);
  return e.error == nullptr ? written(e) : std::to_string(e.column) + ": " + e.error;
}

/// The last bytes before protected memory.
class page_end {
 public:
  page_end() : size_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    void* const pages = mmap(nullptr, 2 * size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    begin_ = static_cast<char*>(pages);
    REQUIRE(mprotect(begin_ + size_, size_, PROT_NONE) == 0);
  }
  page_end(const page_end&) = delete;
  page_end& operator=(const page_end&) = delete;
  ~page_end() { munmap(begin_, 2 * size_); }
  [[nodiscard]] std::string_view hold(const std::string& s) const {
    return {std::copy(s.begin(), s.end(), begin_ + size_ - s.size()) - s.size(), s.size()};
  }

 private:
  std::size_t size_;
  char* begin_ = nullptr;
};

}  // namespace

static_assert(parse_equation("b(2x+w-1)i,wio->bxo").operands[0].dims[1].sum.terms[0].times == 2);
static_assert(parse_equation("(").column == 2 && parse_equation("(2x+").column == 5 && parse_equation("[u=t/").column == 6);
static_assert(parse_einsum("bd,df->bf").error == nullptr);
static_assert(parse_einsum("bd,df->bx").column == 9);

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
  check_refused("aa->a", 2, "twice in one tensor");
  check_refused("ab,cdc->a", 6, "twice in one tensor");
  check_refused("ab->aa", 6, "twice in one tensor");
  check_refused("ab->c", 5, "in no operand");
  check_refused("ab,bc->ad", 9, "in no operand");
  CHECK(einsum_mistake(parse_einsum("ab,bc->ad")).view() == "no operand has the letter `d`, only a, b, c; write `c` instead");
  CHECK(einsum_mistake(parse_einsum("a(2x+w),w->ay"))
            .view()
            .starts_with("no operand has the letter `y`, only a, x, w; write `x` instead"));
  check_refused("a,b,c->a", 4, "at most two operands");
  check_refused("a->a,", 5, "one result");
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
  check_refused("b,w->b(x+w)", 8, "cannot be solved for");
  check_refused("bx,w->b(x+w)", 8, "an index is allowed in an operand");
  check_refused("b(x),xi->bi", 2, "an index of one letter has no window");
  check_refused("(a+w)c,(b+c)w->ab", 8, "an index in both operands");
  check_refused("[v]d,bs->bsd", 2, "an einsum has no brackets");
}

TEST_CASE("the equation is written as it was meant") {
  CHECK(std::string(equation_text(parse_einsum(" bd, df ->bf")).view()) == "`bd,df->bf`");
  CHECK(std::string(equation_text(parse_einsum("->")).view()) == "`->`");
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
    const int id = o.size() == 1 ? add_einsum(fresh, parse_einsum(equation), {o[0]}, at)
                                 : add_einsum(fresh, parse_einsum(equation), {o[0], o[1]}, at);
    CHECK((id < 0) == fresh.failed());
    return std::string(fresh.error.view());
  };
  const auto contains = [](const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; };

  const int a = x(g, dtype::f32, {2, 3});
  const int b = x(g, dtype::f32, {3, 4});
  const int c = add_einsum(g, parse_einsum("ab,bc->ca"), {a, b}, at);
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

TEST_CASE("what equations may say") {
  for (const char* same :
       {"bd,df->bf", "->", ",->,", "b[t]->b[u=t-2]", "[v]d,bs->bsd", "b(2x+w-1)i,wio->bxo", "(x+3)->x", "x->(2x)", "(-x+7),x->x",
        "[k=5][u=2t/3+1],t->[k]u", "x,y->x,y,xy", "(x+w),(w+2)->xw", "a(x-3w),w->ax"})
    CHECK(said_of(same) == same);
  CHECK(said_of(" b ( 2 x + w - 1 ) , w -> [ x ] ") == "b(2x+w-1),w->[x]");
  CHECK(said_of("[ts=3]->[t][u=4-1+t]s") == "[t][s=3]->[t][u=t+3]s");
  CHECK(said_of("(1+x-1-0)->x") == "(x)->x");
  CHECK(said_of("(w+x),[w=3]->x") == "(w+x),[w=3]->x");
  CHECK(parse_equation("a,b->c,d").results[1].column == 8);
}

TEST_CASE("one column for every mistake") {
  const std::pair<const char*, const char*> wrong[] = {
      {"(2x+w->x", "6: an index is a sum of letters"},
      {"(2x+w", "6: ) is missing"},
      {"()->", "2: an index is a sum of letters"},
      {"(3)->", "1: an index is a sum of letters"},
      {"(0x)->x", "3: an index is a sum of letters"},
      {"(x/2)->x", "2: an index is a sum of letters"},
      {"(x2)->x", "3: an index is a sum of letters"},
      {"(x+[w])->x", "4: an index is a sum of letters"},
      {"((x))->x", "2: an index is a sum of letters"},
      {"(x+-w)->x", "4: an index is a sum of letters"},
      {"(1000000x)->x", "9: a number has at most 6 digits"},
      {"x)->x", "2: only letters, [ ], ( ), commas and one -> are allowed here"},
      {"[(x)]->x", "2: write letters between [ and ]"},
      {"[x", "3: ] is missing"},
      {"[x]]->x", "4: ] without ["},
      {"[x[y]]->x", "3: [ inside of [ ]"},
      {"x=3->x", "2: only the extent of a letter in brackets"},
      {"[x=]->x", "4: an extent is a number or follows"},
      {"[x=y+z],yz->x", "3: an extent is a number or follows"},
      {"[x=-y],y->x", "3: an extent is a number or follows"},
      {"[x=y/0],y->x", "7: write a number other than 0 after /"},
      {"[x=3],[x=3]->x", "9: the extent of this letter is stated twice"},
      {"[x=y]->x", "4: an extent follows from a letter that no tensor has"},
      {"b(x+w)->bx", "3: the extent of this letter cannot be solved for"},
      {"b(x+w)->bxw", "3: the extent of this letter cannot be solved for"},
      {"x->(x+w)", "7: the extent of this letter cannot be solved for"},
      {"(x+w)x->x", "6: a letter occurs twice in one tensor"},
      {"(w+x)[w=3]->x", "7: a letter occurs twice in one tensor"},
      {"(x+x)->x", "4: a letter occurs twice in one tensor"},
      {"x=>x", "2: only letters"},
      {"x->x->x", "5: a second ->"},
      {"x", "2: -> and the letters of the result are missing"},
  };
  for (const auto& [text, why] : wrong) {
    CAPTURE(std::string(text));
    CAPTURE(said_of(text));
    CHECK(said_of(text).starts_with(why));
  }
}

TEST_CASE("all short texts: what is read is what is written, and nothing behind the end is read") {
  const std::string sum = "\\s*-?\\s*T(\\s*[+-]\\s*T)*\\s*", term = "(\\d{0,6}\\s*[ax]\\s*(/\\s*\\d{1,6})?|\\d{1,6})";
  std::string sums;
  for (const char c : sum) sums += c == 'T' ? term : std::string(1, c);
  const std::string tensor = "([ax ]|\\(" + sums + "\\)|\\[(\\s*[ax]\\s*(=" + sums + ")?)*\\s*\\])*";
  const std::regex shape(tensor + "(," + tensor + ")*->" + tensor + "(," + tensor + ")*");
  const auto is_about_letters = [](const std::string& why) {  // facts that `shape` does not check
    for (const char* part : {"occurs twice", "stated twice", "cannot be solved", "that no tensor has", "an index is a sum",
                             "an extent is a number", "write a number other than 0 after /"})
      if (why.find(part) != std::string::npos) return true;
    return false;
  };
  const page_end end;
  int right = 0, wrong = 0, unlike = 0;
  std::string last;
  const auto look = [&](const std::string& s) {
    const auto e = parse_equation(end.hold(s));
    bool fine = true;
    if (e.error == nullptr) {
      ++right;
      fine = said_of(written(e)) == written(e) && std::regex_match(s, shape);
    } else {
      ++wrong;
      fine = e.column >= 1 && e.column <= static_cast<int>(s.size()) + 1;
      if (fine && s.find("->") != std::string::npos) fine = is_about_letters(e.error) || !std::regex_match(s, shape);
    }
    if (fine || ++unlike > 1) return;
    last = s;
  };
  const std::string alphabet = "ax[](),->+20/= ";
  const auto all = [&](const auto& self, std::string s, std::size_t room) -> void {
    look(s);
    if (room == 0) return;
    for (const char c : alphabet) self(self, s + c, room - 1);
  };
  all(all, "", 5);
  for (const char* head : {"(", "[a=", "a->", "[a", "(2x", "x,(x+"})  // longer ones, from where it gets difficult
    for (const char* tail : {"->", ")->x", "]->a", ""}) {
      const auto middle = [&](const auto& self, std::string s, std::size_t room) -> void {
        look(head + s + tail);
        if (room == 0) return;
        for (const char c : alphabet) self(self, s + c, room - 1);
      };
      middle(middle, "", 3);
    }
  CAPTURE(last);
  CHECK(unlike == 0);
  CHECK(right > 100);
  MESSAGE(right, " equations, ", wrong, " mistakes");
}
