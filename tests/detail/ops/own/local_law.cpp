// SPDX-License-Identifier: Apache-2.0
// group: map
// alone: yes
#include <doctest/doctest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "support/error_of.hpp"

// The law of custom operators: functions that break it, and the error texts. The functions here have state, so the
// compiler accepts them and the run-time path checks them. compile_fail/local_law.cpp has the same checks at compile
// time.

namespace {

using namespace gspmd;
using caught::error_of;
using std::int64_t;

const int unknown = std::atoi("3");  // unknown at compile time

bool contains(const std::string& text, const std::string& part) {
  CAPTURE(text);
  CAPTURE(part);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

/// Returns the error of a program with a single operator on tensors of these shapes, or "no error".
template <class T = float, class Op>
std::string said_of(const Op& op, const std::vector<std::vector<int64_t>>& shapes) {
  return error_of([&] {
    const dynamic::mesh m({{"x", 2}});
    dynamic::builder b(m);
    std::vector<value> x;
    for (const auto& shape : shapes) x.push_back(b.input(dynamic::input<T>(shape)));
    if constexpr (Op::operand_count == 1) b.output(op(x[0]));
    else b.output(op(x[0], x[1]));
    static_cast<void>(b.compile());
  });
}

using in_1 = local_block<const float, 1>;
using in_2 = local_block<const float, 2>;
using out_0 = local_block<float, 0>;
using out_1 = local_block<float, 1>;
using out_2 = local_block<float, 2>;

}  // namespace

TEST_CASE("a function that mixes a letter that may be split") {
  const int one = unknown - 2;
  const auto running = [one](in_2 x, out_2 y) {
    for (int64_t i = 0; i < x.extent(0); ++i)
      for (int64_t j = 0; j < x.extent(1); ++j) y(i, j) = j < one ? x(i, j) : y(i, j - one) + x(i, j);
  };
  const std::string text = said_of(local_op<"bt->bt">(running), {{4, 4}});
  contains(text, "gspmd: local_op at ");
  contains(text, "local_law.cpp:");
  contains(text, "the function of `bt->bt` does not work part by part along `t`");
  contains(text, "side by side, are not its result for the whole (`t` of 2, cut at 1; `b` of 1); mark `t` as whole: [t] or");
  CHECK(said_of(local_op<"b[t]->b[t]">(running), {{4, 4}}) == "no error");
  CHECK(said_of(local_op<"b[t]->bt">(running), {{4, 4}}) == "no error");  // one pair of brackets is sufficient
}

TEST_CASE("errors of every kind that a rule can have") {
  const float one = static_cast<float>(unknown - 2);
  // the mean is not the sum of means; the maximum is not the sum of maxima
  const auto mean_of_rows = [one](in_2 x, out_1 y) {
    for (int64_t i = 0; i < x.extent(0); ++i) {
      y(i) = 0;
      for (int64_t j = 0; j < x.extent(1); ++j) y(i) += x(i, j) / static_cast<float>(x.extent(1)) * one;
    }
  };
  contains(said_of(local_op<"bt->b">(mean_of_rows), {{4, 4}}), "combined by add, are not its result for the whole (`t` of 2");
  CHECK(said_of(local_op<"b[t]->b">(mean_of_rows), {{4, 4}}) == "no error");
  contains(said_of(local_op<"[b]t->b">(mean_of_rows), {{4, 4}}), "along `t`");
  const auto maximum_of_rows = [one](in_2 x, out_1 y) {
    for (int64_t i = 0; i < x.extent(0); ++i) {
      y(i) = x(i, 0) * one;
      for (int64_t j = 1; j < x.extent(1); ++j) y(i) = x(i, j) > y(i) ? x(i, j) : y(i);
    }
  };
  contains(said_of(local_op<"bt->b">(maximum_of_rows), {{4, 4}}), "state the monoid with reduces<...>");
  contains(said_of(local_op<"bt->b", reduces<monoid::min>>(maximum_of_rows), {{4, 4}}), "combined by min");
  CHECK(said_of(local_op<"bt->b", reduces<monoid::max>>(maximum_of_rows), {{4, 4}}) == "no error");
  // a bias is added once for each part
  const auto affine = [one](in_1 x, in_1 c, out_1 y) {
    y(0) = c(0) * one;
    for (int64_t i = 0; i < x.extent(0); ++i) y(0) += x(i);
  };
  contains(said_of(local_op<"i,[c=1]->[c]">(affine), {{4}, {1}}), "along `i`");
  // the index in the block is not the index in the tensor
  const auto counted = [one](in_1 x, out_1 y) {
    for (int64_t i = 0; i < x.extent(0); ++i) y(i) = x(i) + static_cast<float>(i) * one;
  };
  contains(said_of(local_op<"n->n">(counted), {{4}}), "along `n`");
  // a stencil that treats the end of a block as the end of the tensor, visible only in the third element
  const auto far_neighbour = [one](in_1 x, out_1 y) {
    for (int64_t i = 0; i < x.extent(0); ++i) y(i) = x(i) + (i >= 3 ? x(i - 3) * one : 0);
  };
  contains(said_of(local_op<"n->n">(far_neighbour), {{4}}), "(`n` of 4, cut at 1)");
  // dense memory is assumed
  const auto dense_scale = [one](in_2 x, out_2 y) {
    for (int64_t i = 0; i < x.extent(0) * x.extent(1); ++i) y.data()[i] = x.data()[i] * one;
  };
  CHECK(said_of(local_op<"bt->bt">(dense_scale), {{4, 4}}) != "no error");
  const auto strided_scale = [one](in_2 x, out_2 y) {
    for (int64_t i = 0; i < x.extent(0); ++i)
      for (int64_t j = 0; j < x.extent(1); ++j) y.data()[i * y.stride(0) + j] = x.data()[i * x.stride(0) + j] * one;
  };
  CHECK(said_of(local_op<"bt->bt">(strided_scale), {{4, 4}}) == "no error");
}

TEST_CASE("functions that do not write their result, or more than that, or throw") {
  const float one = static_cast<float>(unknown - 2);
  contains(said_of(local_op<"n->n">([one](in_1 x, out_1 y) {
                     for (int64_t i = 0; i < x.extent(0); ++i) y(i) += x(i) * one;
                   }),
                   {{4}}),
           "leaves elements of its result as they were, or reads them");
  contains(said_of(local_op<"bt->bt">([one](in_2 x, out_2 y) {
                     for (int64_t i = 0; i < x.extent(0); ++i)
                       for (int64_t j = 0; j < x.stride(0); ++j) y(i, j) = x(i, j) * one;
                   }),
                   {{4, 4}}),
           "writes past the extents of its block");
  contains(said_of(local_op<"n->n">([one](in_1 x, out_1 y) {
                     if (x.extent(0) > 2) throw std::runtime_error("too many: " + std::to_string(one));
                     for (int64_t i = 0; i < x.extent(0); ++i) y(i) = x(i);
                   }),
                   {{4}}),
           "threw on small blocks (`n` of 3): too many");
}

namespace {

/// Sums that are wrong above a limit. On small numbers the function keeps the law.
struct bounded_sum {
  float limit;
  std::vector<double> tried;

  void operator()(in_2 x, out_1 y) const {
    for (int64_t r = 0; r < x.extent(0); ++r) {
      y(r) = 0;
      for (int64_t j = 0; j < x.extent(1); ++j) y(r) = y(r) + x(r, j) < limit ? y(r) + x(r, j) : x(r, j);
    }
  }
  [[nodiscard]] const std::vector<double>& samples() const { return tried; }
};
/// Reads the row of an index. Only indices of rows may be tried.
struct picked_row {
  int one;

  void operator()(local_block<const float, 2> x, local_block<const int64_t, 1> row, local_block<float, 2> y) const {
    for (int64_t i = 0; i < y.extent(0); ++i) {
      if (row(i) < 0 || row(i) >= x.extent(0)) throw std::runtime_error("no row " + std::to_string(row(i)));
      for (int64_t d = 0; d < y.extent(1); ++d) y(i, d) = x(row(i), d) * static_cast<float>(one);
    }
  }
  [[nodiscard]] static std::vector<std::tuple<float, int>> samples() { return {{1.5F, 0}, {-2.0F, 1}, {7.0F, 0}}; }
};

}  // namespace

TEST_CASE("numbers that the user states are tried") {
  const auto bounded = [](std::vector<double> tried) {
    return said_of(local_op<"rj->r">(bounded_sum{static_cast<float>(333'333 * unknown), std::move(tried)}), {{4, 4}});
  };
  CHECK(bounded({}) == "no error");  // small numbers
  CHECK(bounded({1, 2, 200'000}) == "no error");
  contains(bounded({1, 600'000, 900'000}), "combined by add, are not its result for the whole (`j` of 3, cut at 2; `r` of 1)");
  // each sample is used in a position where it matters
  CHECK(bounded({1, 2, 3, 4, 5, 6, 7, 999'998, 4}) != "no error");

  const auto picked = [](const auto& op) {
    return error_of([&] {
      dynamic::compile([&](auto x, auto i) { return op(x, i); }, dynamic::mesh({{"x", 2}}), dynamic::input<float>({3, 4}),
                       dynamic::input<int64_t>({5}));
    });
  };
  using signature = types<float(float, int64_t)>;
  CHECK(picked(local_op<"[v]d,n->nd", signature>(picked_row{unknown - 2})) == "no error");
  contains(picked(local_op<"[v]d,n->nd", signature>([p = picked_row{1}](auto x, auto i, auto y) { p(x, i, y); })),
           "threw on small blocks (`v` of ");
}

TEST_CASE("extents that must be equal are stated, and what failed says with which it was tried") {
  const float one = static_cast<float>(unknown - 2);
  const auto solve = [one](in_2 b, in_2 l, out_2 x) {  // L x = b for each row b
    for (int64_t r = 0; r < x.extent(0); ++r)
      for (int64_t k = 0; k < x.extent(1); ++k) {
        x(r, k) = b(r, k) * one;
        for (int64_t j = 0; j < k; ++j) x(r, k) = x(r, k) - l(k, j) * x(r, j);
        x(r, k) = x(r, k) / l(k, k);
      }
  };
  const std::vector<std::vector<int64_t>> shapes{{5, 4}, {4, 4}};
  const std::string text = said_of(local_op<"r[j],[k][j]->r[k]">(solve), shapes);
  contains(text,
           "(`r` of 2, cut at 1; `j` of 3, `k` of 4); mark `r` as whole: [r], state that `k` is as long as `j` if it is: [k=j],");
  CHECK(said_of(local_op<"r[j],[k=j][j]->r[k]">(solve), shapes) == "no error");
  contains(said_of(local_op<"r[j],[k=j][j]->r[k]">(solve), {{5, 4}, {3, 4}}),
           "dim `k` of `r[j],[k][j]->r[k]` is 3 and the rule states 4");
  // if the extents are not the reason, the error does not mention them
  const auto mixed = [one](in_2 x, in_2 w, out_2 y) {
    for (int64_t r = 0; r < y.extent(0); ++r)
      for (int64_t k = 0; k < y.extent(1); ++k) y(r, k) = x(0, 0) * w(0, 0) * one;
  };
  CHECK(!detail::parse_local_rule("r[j],[k=j][j]->r[k]").error);
  CHECK(said_of(local_op<"r[j],[k=j][j]->r[k]">(mixed), shapes).find("as long as") == std::string::npos);
  contains(said_of(local_op<"r[j],[k=j][j]->r[k]">(mixed), shapes), "cut at 1; `j` of 3, `k` of 3)");
}

TEST_CASE("rules that are none, with the column") {
  const auto said = [](const char* rule) {
    const auto parsed = detail::parse_local_rule(rule);
    return parsed.error == nullptr ? std::string("nothing") : std::to_string(parsed.column) + ": " + parsed.error;
  };
  for (const char* good :
       {"b->b", "b [t] -> b [t]", "bi,io->bo", ",a,b,->[k=3]ab", "b[t]->b[u=2t/3-1]", "[c=3]x->x", "->", "[ts]->[t][s]"})
    CHECK(said(good) == "nothing");
  contains(said("bb->b"), "2: a letter occurs twice");
  contains(said("b->bb"), "5: a letter occurs twice");
  contains(said("b[t->bt"), "4: write letters between [ and ]");
  contains(said("b[t"), "] is missing");
  contains(said("b]->b"), "2: ] without [");
  contains(said("[[b]]->b"), "2: [ inside of [ ]");
  contains(said("b->b,b,b,b,b"), "11: too many results");
  contains(said("b->b[u=3],v"), "11: a letter that only results have is whole");
  contains(said("b->b->b"), "5: a second ->");
  contains(said("b"), "-> and the letters of the result are missing");
  contains(said("b->bu"), "a letter that only results have is whole");
  contains(said("b->b[u]"), "its extent is stated");
  contains(said("b->bu=4"), "only the extent of a letter in brackets is stated");
  contains(said("b->b[u=]"), "an extent is a number or follows from another letter");
  contains(said("b->b[u=t-2]"), "an extent follows from a letter that no tensor has");
  contains(said("b->b[u=b/0]"), "write a number other than 0 after /");
  contains(said("b->b[u=b-]"), "10: an extent is a number or follows from another letter");
  contains(said("b(x+3)->bx"), "2: a function of blocks sees no neighbours");
  contains(said("b->b[u=3]v"), "10: a letter that only results have is whole");
  contains(said("b->b[u=1000000b]"), "at most 6 digits");
  contains(said("[t]->[u=t-1][v=u-1]"), "follows from another one");
  contains(said("[t=2s][s]->[u=t]"), "follows from another one");
  contains(said("[t=2]->[t=3]"), "stated twice");
  contains(said("a,b,c,d,e,f,g,h,i->[u=1]"), "too many operands");
  contains(said("a.->a"), "2: only letters");
}

TEST_CASE("operands that do not fit the rule") {
  const auto product = local_op<"bi,io->bo">([n = unknown](auto x, auto w, auto y) {
    static_cast<void>(n);
    for (int64_t b = 0; b < y.extent(0); ++b)
      for (int64_t o = 0; o < y.extent(1); ++o) {
        y(b, o) = 0;
        for (int64_t i = 0; i < x.extent(1); ++i) y(b, o) += x(b, i) * w(i, o);
      }
  });
  CHECK(said_of(product, {{4, 3}, {3, 2}}) == "no error");
  CHECK(said_of<std::int32_t>(product, {{4, 3}, {3, 2}}) == "no error");
  contains(said_of(product, {{4, 3}, {3}}), "operand 1 of `bi,io->bo` has 2 letters, the tensor is [3] of rank 1");
  contains(said_of(product, {{4, 3}, {4, 2}}), "dim `i` of `bi,io->bo` is 4 in operand 1 and 3 in another one");
  contains(said_of<bool>(product, {{4, 3}, {3, 2}}),
           "does not take blocks of pred, pred; it takes f64, f64 or f32, f32 or s64, s64");
  const auto grey = local_op<"[c=3]x->x">([n = unknown](auto c, auto y) {
    static_cast<void>(n);
    for (int64_t i = 0; i < y.extent(0); ++i) y(i) = c(0, i) + c(1, i) + c(2, i);
  });
  CHECK(said_of(grey, {{3, 5}}) == "no error");
  contains(said_of(grey, {{4, 5}}), "dim `c` of `[c]x->x` is 4 and the rule states 3");
  const auto shorter = local_op<"[t]->[u=t-2]">([n = unknown](auto x, auto y) {
    static_cast<void>(n);
    for (int64_t i = 0; i < y.extent(0); ++i) y(i) = x(i + 2);
  });
  CHECK(said_of(shorter, {{2}}) == "no error");
  contains(said_of(shorter, {{1}}), "the extent that `[t]->[u]` states for `u` is -1");
  const auto bits = local_op<"i->", reduces<monoid::or_>>([n = unknown](auto x, auto y) {
    static_cast<void>(n);
    y() = x(0);
  });
  contains(said_of(bits, {{2}}), "the reductions of `i->` are or, which is not defined for f32");
}

TEST_CASE("a whole letter that is split is gathered only where the user says so") {
  const auto reversed = local_op<"[t]->[t]">([n = unknown](auto x, auto y) {
    static_cast<void>(n);
    for (int64_t i = 0; i < x.extent(0); ++i) y(i) = x(x.extent(0) - 1 - i);
  });
  const dynamic::mesh m({{"x", 2}});
  const auto sharded = dynamic::input<float>({4}, {"x"});
  const std::string text = error_of([&] { dynamic::compile([&](auto x) { return reversed(x); }, m, sharded); });
  contains(text, "local_op at ");
  contains(text, "cannot work on that split");
  contains(text, "allow_replication");
  const auto step = dynamic::compile([&](auto x) { return allow_replication(reversed(x)); }, m, sharded);
  CHECK(step.traffic().bytes == 8);
  contains(explain(step), "local_op `[t]->[t]`");
  CHECK(contains(error_of([&] { dynamic::compile([&](auto x) { return forbid_reshard(reversed(x)); }, m, sharded); }),
                 "which forbid_reshard does not allow"));
}

// ---- the static path ----

namespace {

float opaque(float x) { return x * static_cast<float>(unknown - 2); }  // the compiler cannot evaluate it

constexpr auto running_sum = local_op<"b[t]->b[t]">([](auto x, auto y) {
  for (int64_t i = 0; i < x.extent(0); ++i)
    for (int64_t j = 0; j < x.extent(1); ++j) y(i, j) = j == 0 ? x(i, j) : y(i, j - 1) + x(i, j);
});
constexpr auto dot = local_op<"bi,i->b", flops<2>>([](in_2 x, in_1 w, out_1 y) {
  for (int64_t b = 0; b < x.extent(0); ++b) {
    float sum = 0;
    for (int64_t i = 0; i < x.extent(1); ++i) sum += x(b, i) * w(i);
    y(b) = opaque(sum);
  }
});
constexpr auto broken_dot = local_op<"bi,i->b">([](in_2 x, in_1 w, out_1 y) {
  for (int64_t b = 0; b < x.extent(0); ++b) {
    float sum = 1;
    for (int64_t i = 0; i < x.extent(1); ++i) sum += x(b, i) * w(i);
    y(b) = opaque(sum);
  }
});

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;
using rows = input<float, shape<7, 5>, split<"data", "model">>;
using sums =
    compile<[](auto x, auto w) { return dot(allow_replication(running_sum(x)) * 2.0, w); }, pod, rows, input<float, shape<5>>>;
static_assert(compile<[](auto x, auto w) { return dot(x, w); }, pod, rows, input<float, shape<5>>>::flops_per_device ==
              2 * 4 * 3);
static_assert(compile<[](auto x, auto w) { return dot(x, w); }, pod, rows, input<float, shape<5>>>::collectives ==
              collectives{all_reduce<"model">});
using refused = compile<[](auto x, auto w) { return broken_dot(x, w); }, pod, rows, input<float, shape<5>>>;

template <class Backend>
void check_static(const Backend& backend) {
  array<float> x({7, 5}), w({5});
  for (int64_t i = 0; i < 35; ++i) x[i] = static_cast<float>(i % 6 - 2);
  for (int64_t i = 0; i < 5; ++i) w[i] = static_cast<float>(i - 1);
  const auto y = run<sums>(backend, x, w);
  for (int64_t b = 0; b < 7; ++b) {
    float running = 0, expected = 0;
    for (int64_t i = 0; i < 5; ++i) {
      running += x[b * 5 + i];
      expected += 2 * running * w[i];
    }
    CHECK(y[b] == expected);
  }
}

}  // namespace

TEST_CASE("compiled programs; a law that only the program can try is tried before the first use") {
  check_static(simulated{});
  check_static(threads{});
  array<float> x({7, 5}), w({5});
  for (int again = 0; again < 2; ++again) {
    const std::string text = error_of([&] { run<refused>(simulated{}, x, w); });
    contains(text, "gspmd: local_op at ");
    contains(text, "the function of `bi,i->b` does not work part by part along `i`");
    contains(text, "combined by add");
    contains(error_of([&] { run<refused>(threads{}, x, w); }), "along `i`");
  }
}

// ---- gradients ----

namespace {

constexpr auto from_the_right = local_op<"b[t]->b[t]">([](auto x, auto y) {
  for (int64_t i = 0; i < x.extent(0); ++i)
    for (int64_t j = x.extent(1) - 1; j >= 0; --j) y(i, j) = j + 1 == x.extent(1) ? x(i, j) : y(i, j + 1) + x(i, j);
});
constexpr auto running_sum_with_gradient = local_op<"b[t]->b[t]">(with_gradient(
    [](auto x, auto y) {
      for (int64_t i = 0; i < x.extent(0); ++i)
        for (int64_t j = 0; j < x.extent(1); ++j) y(i, j) = j == 0 ? x(i, j) : y(i, j - 1) + x(i, j);
    },
    [](value, value, value dy) { return from_the_right(dy); }));
constexpr auto loss_gradient = [](auto x, auto w) { return grad(sum(running_sum_with_gradient(x) * w), x); };
using gradient_step =
    compile<loss_gradient, mesh<axis<"data", 2>>, input<double, shape<3, 4>, split<"data", _>>, input<double, shape<3, 4>>>;

}  // namespace

TEST_CASE("gradients") {
  array<double> x({3, 4}), w({3, 4});
  for (int64_t i = 0; i < 12; ++i) w[i] = static_cast<double>(i * i);
  const auto by_x = run<gradient_step>(simulated{}, x, w);
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t t = 0; t < 4; ++t) {
      double expected = 0;
      for (int64_t s = t; s < 4; ++s) expected += w[b * 4 + s];
      CHECK(by_x[b * 4 + t] == expected);
    }

  // two operands, captures
  const dynamic::mesh m({{"x", 2}});
  const double scale = unknown;
  const auto product = local_op<"bi,i->b">(with_gradient(
      [scale](local_block<const double, 2> a, local_block<const double, 1> v, local_block<double, 1> y) {
        for (int64_t b = 0; b < a.extent(0); ++b) {
          y(b) = 0;
          for (int64_t i = 0; i < a.extent(1); ++i) y(b) += scale * a(b, i) * v(i);
        }
      },
      [scale](value a, value v, value, value dy) {
        return std::tuple{einsum<"b,i->bi">(dy, v) * scale, einsum<"bi,b->i">(a, dy) * scale};
      }));
  const auto program = dynamic::compile(
      [&](auto a, auto v) {
        auto loss = sum(product(a, v));
        return std::tuple{grad(loss, a), grad(loss, v)};
      },
      m, dynamic::input<double>({3, 4}, {"x", ""}), dynamic::input<double>({4}));
  array<double> v({4});
  for (int64_t i = 0; i < 4; ++i) v[i] = static_cast<double>(i + 1);
  const auto both = program.run(simulated{}, w, v);
  for (int64_t i = 0; i < 12; ++i) CHECK(both[0].data<double>()[i] == scale * v[i % 4]);
  for (int64_t i = 0; i < 4; ++i) CHECK(both[1].data<double>()[i] == scale * (w[i] + w[4 + i] + w[8 + i]));

  const auto gradient_of = [&](const auto& op) {
    return error_of([&] { dynamic::compile([&](auto a) { return grad(sum(op(a)), a); }, m, dynamic::input<double>({3, 4})); });
  };
  contains(gradient_of(running_sum), "local_op at ");
  contains(gradient_of(running_sum), "has no gradient; pass with_gradient(f, g) instead of f");
  const auto wrong = local_op<"n[k]->n">(with_gradient(
      [scale](auto a, auto y) {
        for (int64_t i = 0; i < a.extent(0); ++i) y(i) = static_cast<std::remove_reference_t<decltype(y(i))>>(scale);
      },
      [](value, value, value dy) { return dy; }));
  contains(gradient_of(wrong), "the gradient by operand 0 is f64[3], the operand is f64[3,4]");
}

TEST_CASE("a function of large blocks is tried on few of them") {
  int64_t calls = 0;
  const auto mixing = [&calls](local_block<const float, 3> x, local_block<float, 3> y, int64_t from) {
    ++calls;
    for (int64_t g = 0; g < x.extent(0); ++g)
      for (int64_t i = 0; i < 64; ++i)
        for (int64_t j = 0; j < 64; ++j) y(g, i, j) = x(g < from ? g : g - from, i, j);
  };
  using in_3 = local_block<const float, 3>;
  using out_3 = local_block<float, 3>;
  const auto own = local_op<"g[i=64][j=64]->g[i][j]">([&](in_3 x, out_3 y) { mixing(x, y, 9); });
  CHECK(said_of(own, {{8, 64, 64}}) == "no error");
  CHECK(calls < 8);
  const auto before = local_op<"g[i=64][j=64]->g[i][j]">([&](in_3 x, out_3 y) { mixing(x, y, 1); });
  contains(said_of(before, {{8, 64, 64}}), "(`g` of 2, cut at 1; `i` of 64, `j` of 64)");
}
