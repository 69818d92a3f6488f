// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: dynamic
// An operator that cannot keep the split of its operand is refused, on both paths, unless the user allows the gather.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

namespace {

using namespace gspmd;

const dynamic::mesh& pod() {
  static const dynamic::mesh m({{"x", 2}, {"y", 4}});
  return m;
}
dynamic::program compiled(const auto& f, std::vector<std::int64_t> shape, std::vector<std::string> sharding) {
  return dynamic::compile(f, pod(), dynamic::input<float>(std::move(shape), std::move(sharding)));
}
std::string error_of(const auto& f, std::vector<std::int64_t> shape, std::vector<std::string> sharding) {
  try {
    static_cast<void>(compiled(f, std::move(shape), std::move(sharding)));
  } catch (const error& e) {
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("replication: the text names the operator, both shardings and two ways out") {
  const auto t = error_of([](auto x) { return reshape(x, {3, 2}); }, {2, 3}, {"x", ""});
  CHECK(t.find("gspmd: reshape at refusals.cpp:") == 0);
  CHECK(t.find(": operand 0 [2,3] is sharded [x, _] and the operator, with result [3,2], cannot work on that split: every device "
               "along `x` would hold [_, _]; reshard the operand to a sharding that the operator keeps, or write "
               "allow_replication(...) "
               "around it") != std::string::npos);
}

TEST_CASE("replication: what can be kept, and what the user resharded, is no mistake") {
  CHECK(error_of([](auto x) { return reshape(x, {2, 2, 3}); }, {2, 6}, {"x", ""}) == "");
  CHECK(error_of([](auto x) { return reshape(x, {4, 3}); }, {2, 6}, {"x", ""}) == "");
  CHECK(error_of([](auto x) { return reshape(x, {12}); }, {2, 6}, {"x", ""}) == "");
  CHECK(error_of([](auto x) { return reshape(x, {3, 2}); }, {2, 3}, {"", ""}) == "");
  CHECK(error_of([](auto x) { return reshape(replicate(x), {3, 2}); }, {2, 3}, {"x", ""}) == "");
  // The planner removes a split without a report only if that costs less: an einsum gathers, although it could keep the
  // split.
  CHECK(error_of([](auto x) { return einsum<"ab,cb->ac">(x, x); }, {8, 64}, {"x", ""}) == "");
}

TEST_CASE("replication: a view gathers what is whole behind it anyway, and nothing else") {
  const auto view = [](auto x) { return reshape(x, {3, 2}); };
  const auto whole = compiled([&](auto x) { return replicate(view(x)); }, {2, 3}, {"x", ""});
  CHECK(whole.traffic().collectives == 1);
  CHECK(whole.traffic().bytes == 3 * 4);
  // "x" splits the columns of the weight, so all rows are read.
  const auto columns = dynamic::compile([&](auto x, auto w) { return einsum<"ab,bc->ac">(view(x), w); }, pod(),
                                        dynamic::input<float>({2, 3}, {"x", ""}), dynamic::input<float>({2, 8}, {"", "x"}));
  CHECK(columns.traffic().collectives == 1);
  CHECK(columns.traffic().bytes == 3 * 4);
  CHECK(error_of([&](auto x) { return relu(view(x)); }, {2, 3}, {"x", ""}) != "");
  CHECK(error_of([&](auto x) { return einsum<"ab,cb->ac">(view(x), view(x)); }, {2, 3}, {"x", ""}) != "");

  array<float> x({2, 3});
  for (int i = 0; i < 6; ++i) x[i] = static_cast<float>(i);
  const auto y = whole.run(simulated{}, x);
  for (int i = 0; i < 6; ++i) CHECK(y[0].data<float>()[i] == static_cast<float>(i));
}

TEST_CASE("replication: allowed for one operator and its gradient, and for no other one") {
  const auto allowed = [](auto x) { return allow_replication(reshape(x, {3, 2})); };
  const auto p = compiled(allowed, {2, 3}, {"x", ""});
  CHECK(p.traffic().in(collective_kind::all_gather).collectives == 1);
  const auto again = [&](auto x) { return reshape(relu(mesh_split(allowed(x), {-1, 0})), {2, 3}); };
  CHECK(error_of(again, {2, 3}, {"x", ""}).find("operand 0 [3,2] is sharded [_, x]") != std::string::npos);
  const auto backward = [&](auto x) {
    const value y = mesh_split(allowed(x), {-1, 0});
    return grad(sum(y * y), x);
  };
  CHECK(error_of(backward, {2, 3}, {"x", ""}) == "");

  array<float> x({2, 3});
  for (int i = 0; i < 6; ++i) x[i] = static_cast<float>(i);
  const auto y = p.run(simulated{}, x);
  for (int i = 0; i < 6; ++i) CHECK(y[0].data<float>()[i] == static_cast<float>(i));
}

TEST_CASE("replication: a builder is strict as well") {
  dynamic::builder b(pod());
  b.output(reshape(b.input(dynamic::input<float>({9, 5}, {"", "y"})), {45}));
  CHECK_THROWS_AS(static_cast<void>(b.compile()), error);
}

TEST_CASE("reshapes of 24 elements between all shapes of rank 2 and 3, split in all ways: right, and kept where it can be") {
  std::vector<std::vector<std::int64_t>> shapes;
  for (std::int64_t a = 1; a <= 24; ++a)
    for (std::int64_t b = 1; b <= 24; ++b) {
      if (a * b == 24) shapes.push_back({a, b});
      if (24 % (a * b) == 0) shapes.push_back({a, b, 24 / (a * b)});
    }
  int kept = 0, gathered = 0;
  for (const int size : {2, 3, 4}) {
    const dynamic::mesh m({{"x", size}});
    for (const auto& from : shapes)
      for (const auto& to : shapes)
        for (std::size_t d = 0; d < from.size(); ++d) {
          std::vector<std::string> sharding(from.size());
          sharding[d] = "x";
          dynamic::builder b(m);
          const auto x = b.input(dynamic::input<std::int32_t>(from, sharding));
          b.output(allow_replication({x.graph(), detail::add_reshape(b.graph(), x.id(), detail::extents_of(to), {})}));
          const auto p = b.compile();
          bool can_be_kept = false;  // the split cuts the elements in runs that a split of some dim of the result also cuts
          std::int64_t major = 1;
          for (std::size_t k = 0; k < d; ++k) major *= from[k];
          std::int64_t before = 1;
          for (const auto e : to) {
            if (e % size == 0 && from[d] % size == 0 && before == major) can_be_kept = true;
            before *= e;
          }
          if (can_be_kept) {
            CAPTURE(size);
            CAPTURE(detail::shape_text(detail::extents_of(from)).view());
            CAPTURE(detail::shape_text(detail::extents_of(to)).view());
            CAPTURE(d);
            CHECK(p.traffic().collectives == 0);
          }
          (p.traffic().collectives == 0 ? kept : gathered) += 1;
          std::vector<std::int32_t> data(24);
          for (int i = 0; i < 24; ++i) data[static_cast<std::size_t>(i)] = i;
          const auto y = p.run(simulated{}, {data.data()});
          bool same = true;
          for (int i = 0; i < 24; ++i) same = same && y[0].data<std::int32_t>()[i] == i;
          CHECK(same);
        }
  }
  MESSAGE(kept, " kept, ", gathered, " gathered");
}

TEST_CASE("with_policy: what is said of a function holds for its operators, those of its gradient, and not for reshards") {
  const auto layer = [](auto x, auto w) { return einsum<"bd,df->bf">(tanh(x), w); };
  const auto in_x = [](std::vector<std::string> s) { return dynamic::input<float>({16, 16}, std::move(s)); };
  const auto mistake_of = [&](const auto& f, std::vector<std::string> x, std::vector<std::string> w) -> std::string {
    try {
      static_cast<void>(dynamic::compile(f, pod(), in_x(std::move(x)), in_x(std::move(w))));
    } catch (const error& e) {
      return e.what();
    }
    return {};
  };
  const auto strict = [&](auto x, auto w) { return with_policy({.forbid_reshard = true}, layer, x, w); };
  CHECK(mistake_of(layer, {"", "x"}, {"y", ""}) == "");
  CHECK(mistake_of(strict, {"", "x"}, {"y", ""}).find("einsum at refusals.cpp:") == 7);
  CHECK(mistake_of(strict, {"", "x"}, {"y", ""}).find("forbid_reshard does not allow") != std::string::npos);
  CHECK(mistake_of(strict, {"x", ""}, {"", "y"}) == "");
  const auto resharded = [&](auto x, auto w) {
    return with_policy(
        {.forbid_reshard = true}, [&](auto a, auto b) { return layer(replicate(a), replicate(b)); }, x, w);
  };
  CHECK(mistake_of(resharded, {"", "x"}, {"y", ""}) == "");

  // In the backward pass the gradient of tanh is partial over y. Its sum is communication that the policy forbids.
  const auto gradient_of = [](const auto& f) {
    return [=](auto x, auto w) { return grad(sum(f(x, w)), std::vector<value>{x})[0]; };
  };
  CHECK(mistake_of(gradient_of(layer), {"", ""}, {"", "y"}) == "");
  CHECK(mistake_of(gradient_of(strict), {"", ""}, {"", "y"}).find("forbid_reshard does not allow") != std::string::npos);
  CHECK(mistake_of(gradient_of(strict), {"y", ""}, {"", ""}) == "");

  // A limit for each einsum of a function. The nearest limit applies.
  const auto two = [](auto x, auto w) { return einsum<"bd,df->bf">(limit_gather(einsum<"bd,df->bf">(x, w), 1 << 20), w); };
  const auto limited = [&](auto x, auto w) { return with_policy({.limit_gather = 256}, two, x, w); };
  const auto limits = [&](const auto& f) {
    dynamic::builder b(pod());
    const auto x = b.input(in_x({"x", ""})), w = b.input(in_x({"", "x"}));
    f(x, w);
    std::vector<std::int64_t> found;
    for (const auto& n : b.graph().nodes)
      if (n.operands.count == 2) found.push_back(n.gather_limit);
    return found;
  };
  CHECK(limits(limited) == std::vector<std::int64_t>{1 << 20, 256});
  // If a function may gather, its reshapes may too.
  const auto turned = [](auto x) { return reshape(x, {3, 2}); };
  CHECK(error_of([&](auto x) { return with_policy({.allow_replication = true}, turned, x); }, {2, 3}, {"x", ""}) == "");
}

TEST_CASE("keep_split: no operator gathers the value; where none can do without, the program is refused") {
  const dynamic::mesh m({{"x", 4}});
  const auto in = [](std::vector<std::int64_t> shape) { return dynamic::input<float>(std::move(shape), {"x", ""}); };
  const auto product = [&](const auto& f) { return dynamic::compile(f, m, in({1024, 256}), in({256, 256})); };
  const auto gathered = product([](auto x, auto w) { return einsum<"bd,df->bf">(x, w); });
  CHECK(gathered.traffic().in(collective_kind::all_gather).bytes == 3 * 64 * 256 * 4);
  const auto kept = product([](auto x, auto w) { return einsum<"bd,df->bf">(x, keep_split(w)); });
  CHECK(kept.traffic().in(collective_kind::all_gather).collectives == 0);
  CHECK(kept.traffic().bytes > gathered.traffic().bytes);
  // A reshard is explicit, so its users get the whole value.
  const auto asked = product([](auto x, auto w) { return einsum<"bd,df->bf">(x, replicate(keep_split(w))); });
  CHECK(asked.traffic().bytes == gathered.traffic().bytes);

  const auto t = error_of([](auto x) { return allow_replication(reshape(keep_split(x), {3, 2})); }, {2, 3}, {"x", ""});
  CHECK(t.find("gspmd: reshape at refusals.cpp:") == 0);
  CHECK(t.find(": operand 0 is sharded [x, _] and the operator needs [_, _]: this takes all_gather over `x`, which keep_split "
               "does not allow; give the operands equal shardings, or reshard it yourself") != std::string::npos);
}

TEST_CASE("keep_partial: a value is reduced where its sum is needed, and not before") {
  const dynamic::mesh m({{"x", 4}});
  const auto two = [&](const auto& f) {
    return dynamic::compile(f, m, dynamic::input<float>({64, 256}, {"", "x"}), dynamic::input<float>({256, 32}, {"x", ""}),
                            dynamic::input<float>({32, 512}, {"", ""}));
  };
  const auto chain = [](bool keeps, const auto& after) {
    return [=](auto x, auto w, auto v) {
      const value h = einsum<"bd,df->bf">(x, w);
      return einsum<"bf,fg->bg">(after(keeps ? keep_partial(h) : h), v);
    };
  };
  const auto same = [](auto h) { return h * 0.5; };
  CHECK(two(chain(false, same)).traffic().bytes == 2 * 3 * 64 * 32 * 4 / 4);
  const auto later = two(chain(true, [](auto h) { return keep_partial(h * 0.5); }));
  CHECK(later.traffic().bytes == 2 * 3 * 64 * 512 * 4 / 4);
  CHECK(later.traffic().collectives == 1);
  // An operator that is not linear needs the sum, so nothing is refused.
  CHECK(two(chain(true, [](auto h) { return tanh(h); })).traffic().bytes == two(chain(false, same)).traffic().bytes);

  std::vector<float> x(64 * 256), w(256 * 32), v(32 * 512);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 5);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i % 3);
  const auto a = later.run(simulated{}, {x.data(), w.data(), v.data()});
  const auto b = two(chain(false, same)).run(simulated{}, {x.data(), w.data(), v.data()});
  CHECK(a[0].bytes == b[0].bytes);  // whole numbers
}

TEST_CASE("with_policy: what is kept is kept in the gradient too") {
  dynamic::builder b(pod());
  const auto x = b.input(dynamic::input<float>({16, 16}, {"x", ""})), w = b.input(dynamic::input<float>({16, 16}, {"", "y"}));
  const auto layer = [](auto a, auto c) { return einsum<"bd,df->bf">(tanh(a), c); };
  const value y = with_policy({.keep_split = true, .keep_partial = true}, layer, x, w);
  b.output(grad(sum(y), std::vector<value>{x})[0]);
  int of_program = 0, of_gradient = 0;
  for (const auto& n : b.graph().nodes) {
    if (n.keep_split && n.keep_partial) ++(n.in_gradient ? of_gradient : of_program);
    if (n.op == detail::opcode::parameter) CHECK(!n.keep_split);
  }
  CHECK(of_program == 2);
  CHECK(of_gradient >= 2);
  static_cast<void>(b.compile());
}
