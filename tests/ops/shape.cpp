// SPDX-License-Identifier: Apache-2.0
// group: operators
#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/report/explain.hpp>

// pad, slice, reverse, roll and concatenate as users write them: results, messages and errors.

using namespace gspmd;

namespace {

using place = std::vector<std::int64_t>;

/// Checks a program on a tensor with the elements i + 1 against `source`. `source` returns the position in the tensor
/// of an element of the result, or nothing if `outside` is expected.
void check(const place& shape, const place& result, std::function<value(value)> program,
           std::function<place(const place&)> source, double outside = 0) {
  std::int64_t size = 1;
  for (const auto e : shape) size *= e;
  std::vector<double> x(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i + 1);
  const auto offset = [](const place& at, const place& in) {
    std::int64_t o = 0;
    for (std::size_t d = 0; d < in.size(); ++d) o = o * in[d] + at[d];
    return static_cast<std::size_t>(o);
  };
  std::vector<std::string> whole(shape.size()), first = whole, last = whole;
  first.front() = "x";
  last.back() = "y";
  for (const auto& split : {whole, first, last}) {
    dynamic::builder p(dynamic::mesh({{"x", 4}, {"y", 3}}));
    p.output(program(p.input(dynamic::input<double>(shape, split))));
    const auto step = p.compile();
    const bool has_parts = result.front() >= 4 && result.back() >= 3;  // otherwise devices hold copies of the result
    for (const auto& made : step.collectives()) CHECK((made.kind == collective_kind::collective_permute || !has_parts));
    const auto verify = [&](const auto& backend) {
      const auto got = step.run(backend, x);
      std::int64_t count = 1;
      for (const auto e : result) count *= e;
      REQUIRE(got[0].shape == result);
      place at(result.size());
      int wrong = 0;
      for (std::int64_t k = 0; k < count; ++k) {
        auto rest = k;
        for (std::size_t d = result.size(); d-- > 0; rest /= result[d]) at[d] = rest % result[d];
        const auto from = source(at);
        const double want = from.empty() ? outside : x[offset(from, shape)];
        wrong += got[0].template data<double>()[k] != want ? 1 : 0;
      }
      CHECK(wrong == 0);
    };
    verify(simulated{});
    verify(threads{});
  }
}

std::string refusal(std::function<value(value, value)> program) {
  dynamic::builder p(dynamic::mesh({{"x", 2}}));
  try {
    const value x = p.input(dynamic::input<float>({4, 3}));
    p.output(program(x, p.input(dynamic::input<float>({4, 5}))));
    static_cast<void>(p.compile());
  } catch (const error& e) {
    return e.what();
  }
  return "nothing";
}
bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("pad") {
  check(
      {7, 5}, {10, 5},
      [](value x) {
        return pad(x, {1, 0}, {2, 0});
      },
      [](const place& i) {
        return i[0] < 1 || i[0] > 7 ? place{} : place{i[0] - 1, i[1]};
      });
  check(
      {7, 5}, {4, 8},
      [](value x) {
        return pad(x, {-2, 3}, {-1, 0}, 9);
      },
      [](const place& i) {
        return i[1] < 3 ? place{} : place{i[0] + 2, i[1] - 3};
      },
      9);
  check(
      {7, 5}, {18, 5},
      [](value x) {
        return pad(x, {-2, 0}, {1, 0}, -1, {2, 0});
      },
      [](const place& i) {
        return (i[0] + 2) % 3 != 0 || i[0] + 2 > 18 ? place{} : place{(i[0] + 2) / 3, i[1]};
      },
      -1);
  check(
      {2, 3}, {2, 0},
      [](value x) {
        return pad(x, {0, -1}, {0, -2});
      },
      [](const place&) { return place{}; });
  check(
      {0, 3}, {3, 3},
      [](value x) {
        return pad(x, {2, 0}, {1, 0}, 4, {5, 0});
      },
      [](const place&) { return place{}; }, 4);
  check(
      {2, 3}, {2, 3},
      [](value x) {
        return pad(x, {0, 0}, {0, 0});
      },
      [](const place& i) { return i; });
  check(
      {2, 1, 2, 1, 2, 3}, {3, 2, 3, 2, 3, 4},
      [](value x) {
        return pad(x, {1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0}, 5);
      },
      [](const place& i) {
        place from;
        for (const auto k : i) {
          if (k == 0) return place{};
          from.push_back(k - 1);
        }
        return from;
      },
      5);
}

TEST_CASE("slice") {
  check(
      {11, 5}, {6, 2},
      [](value x) {
        return slice(x, {3, 1}, {9, 3});
      },
      [](const place& i) {
        return place{i[0] + 3, i[1] + 1};
      });
  check(
      {11, 5}, {4, 5},
      [](value x) {
        return slice(x, {1, 0}, {11, 5}, {3, 1});
      },
      [](const place& i) {
        return place{1 + 3 * i[0], i[1]};
      });
  check(
      {11, 5}, {1, 5},
      [](value x) {
        return slice(x, {10, 0}, {11, 5});
      },
      [](const place& i) {
        return place{10, i[1]};
      });
  check(
      {11, 5}, {0, 5},
      [](value x) {
        return slice(x, {4, 0}, {4, 5});
      },
      [](const place&) { return place{}; });
  check(
      {11, 5}, {11, 5},
      [](value x) {
        return slice(x, {0, 0}, {11, 5});
      },
      [](const place& i) { return i; });
}

TEST_CASE("reverse and roll") {
  check(
      {11, 5}, {11, 5}, [](value x) { return flip(x, {0}); },
      [](const place& i) {
        return place{10 - i[0], i[1]};
      });
  check(
      {11, 5}, {11, 5},
      [](value x) {
        return flip(x, {-1, 0});
      },
      [](const place& i) {
        return place{10 - i[0], 4 - i[1]};
      });
  check(
      {11, 5}, {11, 5}, [](value x) { return flip(x, {}); }, [](const place& i) { return i; });
  for (const std::int64_t by : {-25, -4, -1, 0, 1, 6, 11, 37})
    check(
        {11, 5}, {11, 5}, [by](value x) { return roll(x, by, along(0)); },
        [by](const place& i) {
          return place{((i[0] - by) % 11 + 11) % 11, i[1]};
        });
  check(
      {3, 1}, {3, 1}, [](value x) { return roll(x, 4, along(1)); }, [](const place& i) { return i; });
}

TEST_CASE("concatenate") {
  check(
      {7, 5}, {17, 5},
      [](value x) {
        return concatenate({x, slice(x, {0, 0}, {3, 5}), x}, 0);
      },
      [](const place& i) {
        return place{i[0] < 7 ? i[0] : i[0] < 10 ? i[0] - 7 : i[0] - 10, i[1]};
      });
  check(
      {7, 5}, {7, 10},
      [](value x) {
        return concatenate({x * 1.0, x}, -1);
      },
      [](const place& i) {
        return place{i[0], i[1] % 5};
      });
  check(
      {7, 5}, {7, 5}, [](value x) { return concatenate({x}, 0); }, [](const place& i) { return i; });
  check(
      {2, 5}, {40, 5}, [](value x) { return concatenate(std::vector<value>(20, x), 0); },
      [](const place& i) {
        return place{i[0] % 2, i[1]};
      });
  check(
      {7, 5}, {9, 5},
      [](value x) {
        const value last = concatenate({x, constant(x, {2, 5}, 3.0)}, 0);
        return fori_loop(
            3,
            [](value, value t) {
              return concatenate({slice(t, {0, 0}, {7, 5}), slice(t, {7, 0}, {9, 5})}, 0);
            },
            last);
      },
      [](const place& i) { return i[0] < 7 ? i : place{}; }, 3);
}

TEST_CASE("static programs") {
  constexpr auto cut = [](auto x) { return slice(x, {1, 0}, {9, 6}, {2, 1}); };
  using four = mesh<axis<"x", 4>>;
  using step = compile<cut, four, input<float, shape<10, 6>, split<"x", _>>>;
  // parts 3,3,3,1 of x and 1,1,1,1 of the result, which are rows 1, 3, 5, 7: the last two are on the device before
  static_assert(step::collectives == collectives{collective_permute<"x">});
  static_assert(step::traffic.bytes == 6 * 4 && step::traffic.messages == 1);
  constexpr auto inside = [](auto x) { return pad(slice(x, {0, 1}, {10, 5}), {0, 1}, {0, 1}); };
  static_assert(compile<inside, four, input<float, shape<10, 6>, split<"x", _>>>::collectives == collectives{});
  CHECK(says(explain<step>(), "slice(dim 0 from 1 to 8 by 2)"));
}

TEST_CASE("refusals name the operator, the dim, the numbers and the remedy") {
  CHECK(says(refusal([](value x, value) { return pad(x, {1}, {1}); }), "names 1 numbers for the dims of [4,3]"));
  CHECK(says(refusal([](value x, value) { return pad(x, {-3, 0}, {-2, 0}); }), "pad at shape.cpp:"));
  CHECK(says(refusal([](value x, value) {
               return pad(x, {-3, 0}, {-2, 0});
             }),
             "adds -3 before and -2 after the 4 elements of dim 0 of [4,3]: that leaves -1; take away at most 4"));
  CHECK(says(refusal([](value x, value) {
               return pad(x, {0, 0}, {0, 0}, 0, {0, -1});
             }),
             "puts -1 elements between those of dim 1"));
  CHECK(says(refusal([](value x, value) {
               return pad(x, {INT64_MAX, 0}, {0, 0});
             }),
             "adds more to dim 0 of [4,3] than can be counted"));
  CHECK(says(refusal([](value x, value) { return pad(x, {std::int64_t{1} << 59, 0}, {std::int64_t{1} << 59, 0}); }), "pad"));
  CHECK(says(refusal([](value x, value) { return pad(x, {1, 0}, {0, 0}, 1e300); }), "is too large for f32"));
  CHECK(says(refusal([](value x, value) { return slice(x, {0, 0}, {5, 3}); }), "is from 0 to before 5 of dim 0 of [4,3]"));
  CHECK(says(refusal([](value x, value) { return slice(x, {3, 0}, {2, 3}); }), "is from 3 to before 2 of dim 0 of [4,3]"));
  CHECK(says(refusal([](value x, value) { return slice(x, {-1, 0}, {2, 3}); }), "start is no less than 0"));
  CHECK(says(refusal([](value x, value) { return slice(x, {0, 0}, {4, 3}, {1, 0}); }), "has a stride of 0 along dim 1 of [4,3]"));
  CHECK(says(refusal([](value x, value) { return slice(x, {0}, {4}); }), "names 1 numbers"));
  CHECK(says(refusal([](value x, value) { return flip(x, {2}); }), "dim 2 is not a dim of [4,3]"));
  CHECK(says(refusal([](value x, value) { return flip(x, {0, -2}); }), "names dim 0 of [4,3] twice"));
  CHECK(says(refusal([](value x, value) { return roll(x, 1, along(2)); }), "dim 2 is not a dim of [4,3]"));
  CHECK(says(refusal([](value x, value y) {
               return concatenate({x, y}, 0);
             }),
             "joins [4,3] and, as operand 1, [4,5] along dim 0; their other extents must be equal"));
  CHECK(says(refusal([](value x, value y) { return concatenate({x, y}, 2); }), "dim 2 is not a dim of [4,3]"));
  CHECK(says(refusal([](value x, value) { return concatenate({x, cast<double>(x)}, 0); }), "joins f32 and, as operand 1, f64"));
  CHECK(says(refusal([](value, value) { return concatenate({}, 0); }), "joins no tensors"));
}
