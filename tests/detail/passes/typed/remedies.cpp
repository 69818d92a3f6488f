// SPDX-License-Identifier: Apache-2.0
// labels: once
// group: dynamic
// Applies each remedy that a refusal of the explicit mode prints to the program that was refused. Then the refusal is
// gone, and the value equals that of one device. GSPMD_PROGRAMS and GSPMD_SEED select the number of random programs and
// the first seed.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/strict_program.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/grad.hpp>
#include <gspmd/windows/pool.hpp>

#include "support/error_of.hpp"

using namespace gspmd;

namespace typed_remedies {

using values = std::vector<value>;

/// A function of the user. Its arguments, given by their ranks, are the user's values.
struct call {
  const char* name;
  std::vector<int> ranks;
  value (*of)(const values&);
};
const std::vector<call>& calls() {
  static const std::vector<call> all{
      {"add", {2, 2}, [](const values& v) { return v[0] + v[1]; }},
      {"subtract", {2, 2}, [](const values& v) { return v[0] - v[1]; }},
      {"multiply", {2, 2}, [](const values& v) { return v[0] * v[1]; }},
      {"divide", {2, 2}, [](const values& v) { return v[0] / v[1]; }},
      {"square", {2}, [](const values& v) { return v[0] * v[0]; }},
      {"quotient", {2, 0}, [](const values& v) { return v[0] / v[1]; }},
      {"max", {2, 2}, [](const values& v) { return max(v[0], v[1]); }},
      {"negative", {2}, [](const values& v) { return -operand(v[0]); }},
      {"relu", {2}, [](const values& v) { return relu(v[0]); }},
      {"plus a number", {2, -1}, [](const values& v) { return v[0] + 1.5; }},
      {"times a number", {-1, 2}, [](const values& v) { return 2.0 * v[1]; }},
      {"a number over it", {-1, 2}, [](const values& v) { return 3.0 / v[1]; }},
      {"times a scalar", {2, 0}, [](const values& v) { return v[0] * v[1]; }},
      {"plus a scalar", {0, 2}, [](const values& v) { return v[0] + v[1]; }},
      {"plus a bias", {2, 1}, [](const values& v) { return v[0] + v[1]; }},
      {"times a scale", {1, 2}, [](const values& v) { return v[0] * v[1]; }},
      {"broadcast",
       {1},
       [](const values& v) {
         return broadcast_in_dim(v[0], {v[0].shape()[0], 3}, {0});
       }},
      {"product", {2, 2}, [](const values& v) { return einsum("ab,bc->ac", v[0], v[1]); }},
      {"product with the other one turned", {2, 2}, [](const values& v) { return einsum("ab,cb->ac", v[0], v[1]); }},
      {"by rows", {2, 2}, [](const values& v) { return einsum("ab,ab->a", v[0], v[1]); }},
      {"times a vector", {2, 1}, [](const values& v) { return einsum("ab,b->a", v[0], v[1]); }},
      {"outer", {1, 1}, [](const values& v) { return einsum("a,b->ab", v[0], v[1]); }},
      {"chain", {2, 2, 2}, [](const values& v) { return einsum<"ab,bc,cd->ad">(v[0], v[1], v[2]); }},
      {"sum", {2}, [](const values& v) { return sum(v[0], 0); }},
      {"sum of all", {2}, [](const values& v) { return sum(v[0]); }},
      {"largest", {2}, [](const values& v) { return reduce(v[0], monoid::max, 1); }},
      {"mean", {2}, [](const values& v) { return mean(v[0], 0); }},
      {"norm", {2}, [](const values& v) { return norm(v[0]); }},
      {"softmax", {2}, [](const values& v) { return softmax(v[0], 1); }},
      {"cumsum", {2}, [](const values& v) { return cumsum(v[0], 0); }},
      {"transpose",
       {2},
       [](const values& v) {
         return transpose(v[0], {1, 0});
       }},
      {"reshape", {2}, [](const values& v) { return reshape(v[0], {v[0].shape()[0] * v[0].shape()[1]}); }},
      {"slice",
       {2},
       [](const values& v) {
         return slice(v[0], {1, 0}, {v[0].shape()[0], v[0].shape()[1]});
       }},
      {"pad",
       {2},
       [](const values& v) {
         return pad(v[0], {0, 1}, {0, 0});
       }},
      {"pad with a number",
       {2},
       [](const values& v) {
         return pad(v[0], {0, 1}, {0, 0}, 2.0);
       }},
      {"shift", {2}, [](const values& v) { return shift(v[0], 1, along(0)); }},
      {"roll", {2}, [](const values& v) { return roll(v[0], 1, along(1)); }},
      {"flip", {2}, [](const values& v) { return flip(v[0], {0}); }},
      {"concatenate",
       {2, 2},
       [](const values& v) {
         return concatenate({v[0], v[1]}, 0);
       }},
      {"concatenate columns",
       {2, 2},
       [](const values& v) {
         return concatenate({v[0], v[1]}, 1);
       }},
      {"stencil", {2}, [](const values& v) { return stencil<1, 1>([](auto u) { return u(-1, 0) + u(0, 1) - u(0, 0); }, v[0]); }},
      {"window",
       {2},
       [](const values& v) {
         return reduce_window(v[0], monoid::add, {2, 1}, {}, {1, 0}, {0, 0});
       }},
      {"sort", {2}, [](const values& v) { return sort(v[0], 0); }},
      {"sort of lines", {1}, [](const values& v) { return sort(v[0], -1, {.descending = true}); }},
      {"argsort", {2}, [](const values& v) { return argsort(v[0], 1); }},
      {"sort_together",
       {2, 2},
       [](const values& v) {
         return sort_together({v[0], v[1]}, 1, along(0))[1];
       }},
      {"sort_together by two keys",
       {1, 1, 1},
       [](const values& v) {
         return sort_together({v[0], v[1], v[2]}, 2, along(0))[2];
       }},
      {"greater", {2, 2}, [](const values& v) { return v[0] > v[1]; }},
      {"clip", {2, 2, 2}, [](const values& v) { return clip(v[1], v[0], v[2]); }},
      {"log_softmax", {2}, [](const values& v) { return log_softmax(v[0], 0); }},
      {"argmax", {2}, [](const values& v) { return argmax(v[0], 0); }},
      {"avg_pool",
       {2},
       [](const values& v) {
         return avg_pool(v[0], {2, 1}, {1, 1}, {1, 0}, {0, 0});
       }},
      {"upsample",
       {2},
       [](const values& v) {
         return upsample(v[0], {2, 1});
       }},
      {"lower triangle", {2}, [](const values& v) { return tril(v[0]); }},
      {"norm by rows", {2}, [](const values& v) { return norm(v[0], 3, along(1)); }},
      {"windowed", {2, 1}, [](const values& v) { return einsum("(a+k-1)b,k->ab", v[0], v[1]); }},
      {"repeated letters", {2, 2}, [](const values& v) { return einsum<"aa,ab->b">(v[0], v[1]); }},
      {"loop",
       {2, 2},
       [](const values& v) {
         return fori_loop(
             2, [&](value, value c) { return c * 2.0 + v[1]; }, v[0]);
       }},
      {"loop with a sum",
       {2, 2},
       [](const values& v) {
         return fori_loop(
             2, [&](value, value c) { return einsum("ab,bc->ac", c, v[1]); }, v[0]);
       }},
  };
  return all;
}

constexpr std::size_t a_number = 1000;
/// A call with values, by their numbers.
struct written {
  std::size_t what = 0;
  std::vector<std::size_t> of;
};
struct random_typed {
  std::vector<dynamic::mesh::axis> axes;
  std::int64_t size = 4;
  std::vector<int> ranks;  // of the inputs
  std::vector<dynamic::value_states> states;
  std::vector<written> ops;

  explicit random_typed(std::mt19937& random) {
    const std::vector<std::vector<int>> meshes{{2}, {3}, {2, 2}, {2, 3}, {1, 2}, {4}};
    const auto& sizes = meshes[random() % meshes.size()];
    for (std::size_t a = 0; a < sizes.size(); ++a) axes.push_back({a == 0 ? "x" : "y", sizes[a]});
    size = 1 + static_cast<std::int64_t>(random() % 7);
    ranks = {2, 2, 2, 1, 1, 0};
    for (const int rank : ranks) {
      dynamic::value_states s;
      for (std::size_t a = 0; a < axes.size(); ++a) {
        const auto k = random() % 6;
        const auto dim = static_cast<std::int8_t>(rank == 0 ? 0 : random() % static_cast<unsigned>(rank));
        s.on.push_back(k < 3 && rank > 0 ? axis_state{state::shard, dim, monoid::add}
                       : k < 4           ? axis_state{state::replica}
                       : k < 5           ? axis_state{state::invariant}
                                         : axis_state{state::partial});
      }
      states.push_back(s);
    }
  }
  [[nodiscard]] std::vector<std::int64_t> shape(int rank) const {
    return std::vector<std::int64_t>(static_cast<std::size_t>(rank), size);
  }
};

/// The remedy in a refusal, parsed as a user reads it.
struct way_out {
  int operand = -1;  // -2: the result
  detail::requested_state requested{};
  std::string exchange;  // axes
  bool is_read = false;

  way_out(const dynamic::mesh& mesh, std::string_view words) {
    const auto& info = mesh.info();
    const auto quoted = [](std::string_view s) {  // after a backtick
      return s.substr(0, s.find('`'));
    };
    const auto behind = [&](std::string_view part) {
      const auto at = words.find(part);
      return at == std::string_view::npos ? std::string_view{} : words.substr(at + part.size());
    };
    if (words.starts_with("with_exchange<`")) {
      exchange = quoted(behind("with_exchange<`"));
      is_read = words.find("`>(f, ...) around this ") != std::string_view::npos;
      return;
    }
    if (!words.starts_with("reshard<")) return;
    const auto names = [&](std::string_view list) {
      detail::axis_mask axes = 0;
      while (!list.empty()) {
        const auto name = list.substr(0, list.find(','));
        axes |= info.mask_of(name);
        list.remove_prefix(name.size() < list.size() ? name.size() + 1 : name.size());
      }
      return axes;
    };
    if (words.starts_with("reshard<replica<`")) requested.layout.replica = names(quoted(behind("replica<`")));
    else if (words.starts_with("reshard<invariant<`")) requested.invariant = names(quoted(behind("invariant<`")));
    else if (words.starts_with("reshard<partial<`")) {
      requested.layout.partial = names(quoted(behind("partial<`")));
      const auto kind = behind("monoid::");
      for (const auto m : {monoid::max, monoid::min, monoid::multiply, monoid::and_, monoid::or_})
        if (!kind.empty() && kind.starts_with(detail::name_of(m))) requested.layout.reduced_by = m;
    } else if (words.starts_with("reshard<split<")) {
      requested.has_splits = true;
      auto list = behind("split<");
      list = list.substr(0, list.find('>'));
      for (int dim = 0; !list.empty(); ++dim) {
        if (list.starts_with("`")) {
          const auto of_dim = quoted(list.substr(1));
          for (auto rest = of_dim; !rest.empty();) {
            const auto name = rest.substr(0, rest.find(','));
            for (const auto a : info.find_run(name)) requested.layout.splits.push_back({a, static_cast<std::int8_t>(dim)});
            rest.remove_prefix(name.size() < rest.size() ? name.size() + 1 : name.size());
          }
          list.remove_prefix(of_dim.size() + 2);
        } else {
          list.remove_prefix(1);
        }
        if (list.starts_with(", ")) list.remove_prefix(2);
      }
    } else {
      return;
    }
    const auto which = behind(">>(");
    if (which.starts_with("operand ")) operand = std::atoi(std::string(which.substr(8)).c_str());
    else if (which.starts_with("the result")) operand = -2;
    is_read = operand != -1;
  }
};

/// Returns the remedies that must be applied together: `reshard<...>(operand 0) and reshard<...>(reshard<...>(operand
/// 1)): ...`.
std::vector<way_out> ways_in(const dynamic::mesh& mesh, std::string_view words) {
  std::vector<way_out> all;
  for (bool is_more = true; is_more;) {
    const auto next = words.find(" and reshard<");
    const auto one = words.substr(0, next);
    is_more = next != std::string_view::npos;
    if (is_more) words.remove_prefix(next + 5);
    if (const auto inner = one.find(">>(reshard<"); inner != std::string_view::npos) {  // the inner one first
      const std::string call(one.substr(inner + 3));
      all.emplace_back(mesh, call);
      all.emplace_back(mesh, std::string(one.substr(0, inner + 3)) + call.substr(call.find(">(") + 2));
    } else {
      all.emplace_back(mesh, one);
    }
  }
  return all;
}

/// The program, with the remedies that were applied to its last call.
struct attempt {
  dynamic::builder builder;
  dynamic::strict_program program;
  values all;
  std::vector<dynamic::mode_error> errors;
  bool is_broken = false;  // by another kind of mistake

  attempt(const random_typed& r, const std::vector<written>& ops, const std::vector<way_out>& ways)
      : builder(dynamic::mesh(r.axes)), program(builder, "") {
    for (std::size_t k = 0; k < r.ranks.size(); ++k) {
      all.push_back(builder.input(dynamic::input<double>(r.shape(r.ranks[k]))));
      program.input(all.back(), r.states[k]);
    }
    for (std::size_t k = 0; k < ops.size(); ++k) {
      values of;
      for (const auto i : ops[k].of) of.push_back(i == a_number ? value{} : all[i]);
      std::string exchange;
      if (k + 1 == ops.size())
        for (const auto& w : ways) {
          if (!w.exchange.empty()) {
            exchange += (exchange.empty() ? "" : ",") + w.exchange;
          } else if (w.operand < 0 || w.operand >= static_cast<int>(of.size()) ||
                     ops[k].of[static_cast<std::size_t>(w.operand)] == a_number) {
            is_broken = true;  // the operand does not exist
          } else {
            const value x = of[static_cast<std::size_t>(w.operand)];
            for (auto& o : of)
              if (o.graph() != nullptr && o.id() == x.id())
                o = {x.graph(), detail::add_requested_state(*x.graph(), x.id(), w.requested, location::current())};
          }
        }
      const auto f = calls()[ops[k].what].of;
      values given;  // numbers are not values
      for (const auto o : of)
        if (o.graph() != nullptr) given.push_back(o);
      all.push_back(program.with_exchange(
          exchange, [&](const values&) { return f(of); }, given));
    }
    program.check();
    errors = program.errors();
    is_broken = is_broken || !builder.take_mistake().empty();
  }
};

}  // namespace typed_remedies

using namespace typed_remedies;

TEST_CASE("each way out that is printed is one") {
  const auto setting = [](const char* name, int otherwise) {
    const char* const s = std::getenv(name);
    return s != nullptr ? std::atoi(s) : otherwise;
  };
  const int first = setting("GSPMD_SEED", 1), count = setting("GSPMD_PROGRAMS", 150);
  int taken = 0, right = 0;
  for (int seed = first; seed < first + count; ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    random_typed r(random);
    dynamic::builder plain{dynamic::mesh({{"x", 1}})};
    values alone;
    for (const int rank : r.ranks) alone.push_back(plain.input(dynamic::input<double>(r.shape(rank))));
    std::vector<std::vector<double>> data;
    for (const int rank : r.ranks) {
      data.emplace_back(static_cast<std::size_t>(rank == 0 ? 1 : rank == 1 ? r.size : r.size * r.size));
      for (auto& e : data.back()) e = static_cast<double>(random() % 5) - 1.5;
    }
    for (int trial = 0; trial < 12 && r.ops.size() < 4; ++trial) {
      written w{random() % calls().size(), {}};
      bool fits = true;
      for (const int rank : calls()[w.what].ranks) {
        if (rank < 0) {
          w.of.push_back(a_number);
          continue;
        }
        std::vector<std::size_t> of;
        for (std::size_t i = 0; i < alone.size(); ++i)
          if (alone[i].rank() == rank && alone[i].type() == dtype::f64 && (rank == 0 || alone[i].shape()[0] == r.size) &&
              (rank < 2 || alone[i].shape()[1] == r.size))
            of.push_back(i);
        fits = fits && !of.empty();
        if (fits) w.of.push_back(of[random() % of.size()]);
      }
      if (!fits || (r.size < 2 && std::string_view(calls()[w.what].name) == "slice")) continue;
      auto ops = r.ops;
      ops.push_back(w);
      const attempt plainly(r, ops, {});
      if (plainly.is_broken) continue;
      const std::string name = calls()[w.what].name;
      CAPTURE(seed);
      CAPTURE(name);
      values of;
      for (const auto i : w.of) of.push_back(i == a_number ? value{} : alone[i]);
      const value expected = calls()[w.what].of(of);
      const auto check_value = [&](attempt& a) {
        a.builder.output(a.all.back());
        const auto words = caught::error_of([&] {
          const auto step = a.program.compile();
          const auto found = step.run(simulated{}, data[0], data[1], data[2], data[3], data[4], data[5]);
          plain.output(expected);
          const auto wanted = plain.compile().run(serial{}, data[0], data[1], data[2], data[3], data[4], data[5]);
          plain.graph().outputs.clear();
          REQUIRE(found[0].bytes.size() == wanted[0].bytes.size());
          if (expected.type() != dtype::f64) {
            CHECK(found[0].bytes == wanted[0].bytes);
            return;
          }
          for (std::size_t k = 0; k < found[0].bytes.size() / sizeof(double); ++k) {
            const double is = found[0].data<double>()[k], want = wanted[0].data<double>()[k];
            const bool is_right =  // a quotient of partial values by zero is not a number
                is == want || !std::isfinite(want) || std::fabs(is - want) <= 1e-9 * (1 + std::fabs(want));
            CHECK(is_right);
            if (!is_right) break;
          }
        });
        const bool is_plain = words == "no error" || caught::contains(words, "plans reduce by one function at a time");
        CHECK_MESSAGE(is_plain, words);
        ++right;
      };
      if (plainly.errors.empty()) {
        r.ops = ops;
        alone.push_back(expected);
        continue;
      }
      // Every remedy of every mistake, and then some remedy for each remaining mistake.
      const auto is_of_body = [&](const dynamic::mode_error& e) {  // there the user's values are values of the body
        return name.starts_with("loop") && !e.text.starts_with("loop");
      };
      for (const auto& mistake : plainly.errors) CHECK_MESSAGE(!mistake.remedies.empty(), mistake.text);
      for (const auto& mistake : plainly.errors)
        for (const auto& remedy : mistake.remedies) {
          if (is_of_body(mistake)) break;
          std::vector<way_out> ways;
          dynamic::mode_error now = mistake;
          std::string words = remedy, path;
          for (int depth = 0; depth < 8; ++depth) {
            path += now.text + " [" + words + "]; ";
            for (const auto& way : ways_in(dynamic::mesh(r.axes), words)) {
              ways.push_back(way);
              CHECK_MESSAGE(way.is_read, words);
            }
            attempt next(r, ops, ways);
            CAPTURE(path);
            CHECK(!next.is_broken);
            if (next.is_broken) break;
            bool is_gone = true;
            for (const auto& e : next.errors)
              is_gone = is_gone && !(e.kind == now.kind && e.axis == now.axis && e.operand == now.operand && e.text == now.text);
            std::string left;
            for (const auto& e : next.errors) left += "LEFT: " + e.text + "; ";
            CHECK_MESSAGE(is_gone, left);
            ++taken;
            if (!is_gone) break;
            if (next.errors.empty()) {
              check_value(next);
              break;
            }
            const auto& e = next.errors[random() % next.errors.size()];
            if (is_of_body(e)) break;
            if (e.remedies.empty()) break;
            now = e;
            words = e.remedies[random() % e.remedies.size()];
          }
        }
    }
  }
  CHECK(taken > 8 * count);
  CHECK(right > 5 * count);
}
