// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: plans
// Plans of common programs, planned at run time. Their communication is in tests/golden/plans.txt; the checks state its
// required properties. Names of features are those of the project's inventory.
#include <doctest/doctest.h>

#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/vmap.hpp>

#include "support/golden_plans.hpp"

namespace {

using namespace gspmd;
using golden::collectives_of;
using sharding = std::vector<std::string>;

golden::plan_file& file() {
  static golden::plan_file f("plans.txt");
  return f;
}
dynamic::input_spec f32(std::vector<std::int64_t> shape, sharding s) {
  return dynamic::input<float>(std::move(shape), std::move(s));
}

/// One training step of two layers: 2048 rows of 256, 1024 hidden.
constexpr auto train = [](value x, value w1, value w2) {
  const value h = relu(einsum<"bd,df->bf">(x, w1));
  const value y = einsum<"bf,fd->bd">(h, w2);
  const auto [g1, g2] = grad(mean(y * y), std::tuple{w1, w2});
  return std::tuple{w1 - 0.1 * g1, w2 - 0.1 * g2};
};
dynamic::program train_on(const std::string& title, const dynamic::mesh& m, sharding x, sharding w1, sharding w2) {
  return file().check(title, dynamic::compile(train, m, f32({2048, 256}, std::move(x)), f32({256, 1024}, std::move(w1)),
                                              f32({1024, 256}, std::move(w2))));
}
std::int64_t weights_bytes() { return 4 * 2 * 256 * 1024; }

dynamic::program reshard_on(const std::string& title, const dynamic::mesh& m, std::vector<std::int64_t> shape, sharding from,
                            const sharding& to) {
  dynamic::builder b(m);
  b.output(b.reshard(b.input(f32(std::move(shape), std::move(from))), to));
  return file().check(title, b.compile());
}

}  // namespace

TEST_CASE("the zoo of meshes, one step of training") {
  const dynamic::mesh dp({{"dp", 4}});
  const auto data = train_on("DP", dp, {"dp", ""}, {"", ""}, {"", ""});
  CHECK(collectives_of(data) == "all_reduce dp, all_reduce dp");
  CHECK(data.traffic().bytes == 2 * 3 * weights_bytes() / 4);

  const auto few = train_on("FSDP, only weights and batch annotated", dp, {"dp", ""}, {"dp", ""}, {"dp", ""});
  CHECK(few.traffic().bytes == data.traffic().bytes);
  const auto with_activations = [](value x, value w1, value w2) {
    const value h = relu(mesh_split(einsum<"bd,df->bf">(x, w1), {0, -1}));
    const value y = mesh_split(einsum<"bf,fd->bd">(h, w2), {0, -1});
    const auto [g1, g2] = grad(mean(y * y), std::tuple{w1, w2});
    return std::tuple{w1 - 0.1 * g1, w2 - 0.1 * g2};
  };
  static_cast<void>(file().check("FSDP, activations annotated, no larger than the weights",
                                 dynamic::compile(with_activations, dp, f32({512, 256}, {"dp", ""}), f32({256, 1024}, {"dp", ""}),
                                                  f32({1024, 256}, {"dp", ""}))));
  const auto fully =
      file().check("FSDP, activations annotated", dynamic::compile(with_activations, dp, f32({2048, 256}, {"dp", ""}),
                                                                   f32({256, 1024}, {"dp", ""}), f32({1024, 256}, {"dp", ""})));
  CHECK(fully.traffic().in(collective_kind::all_gather).collectives == 2);
  CHECK(fully.traffic().in(collective_kind::reduce_scatter).collectives == 2);
  CHECK(fully.traffic().bytes == data.traffic().bytes);

  const dynamic::mesh hybrid({{"replicate", 2}, {"shard", 2}});
  const auto hsdp = train_on("HSDP", hybrid, {"replicate,shard", ""}, {"shard", ""}, {"shard", ""});
  CHECK(hsdp.traffic().in(collective_kind::all_gather).collectives == 2);
  CHECK(hsdp.traffic().in(collective_kind::reduce_scatter).collectives == 2);
  CHECK(hsdp.traffic().in(collective_kind::all_reduce).collectives == 2);

  const dynamic::mesh two({{"dp", 2}, {"tp", 4}});
  const auto tp = train_on("DP and TP", two, {"dp", ""}, {"", "tp"}, {"tp", ""});
  CHECK(collectives_of(tp) == "all_reduce tp, all_reduce dp, all_reduce dp");

  const auto sequence = [](value x, value w1, value w2) {
    const value h = relu(einsum<"bsd,df->bsf">(x, w1));
    return mesh_split(einsum<"bsf,fd->bsd">(h, w2), {0, 1, -1});
  };
  const auto w1 = f32({256, 1024}, {"", "tp"}), w2 = f32({1024, 256}, {"tp", ""});
  const auto sp =
      file().check("TP and SP, forward", dynamic::compile(sequence, two, f32({8, 64, 256}, {"dp", "tp", ""}), w1, w2));
  CHECK(collectives_of(sp) == "all_gather tp, reduce_scatter tp");
  const auto whole = file().check(
      "the same layer by TP alone, forward",
      dynamic::compile([](value x, value a, value b) { return einsum<"bsf,fd->bsd">(relu(einsum<"bsd,df->bsf">(x, a)), b); }, two,
                       f32({8, 64, 256}, {"dp", "", ""}), w1, w2));
  CHECK(collectives_of(whole) == "all_reduce tp");
  CHECK(sp.traffic().bytes == whole.traffic().bytes);
  const sharding by_both{"dp,tp", ""}, columns{"", "tp"}, rows{"tp", ""};
  const auto plain = train_on("the batch split by both axes, the weights by one of them", two, by_both, columns, rows);
  const auto sought = train_on("the same, searched", two.with({.search = true}), by_both, columns, rows);
  CHECK(plain.traffic().bytes == 2883584);  // the batch moves; the weights would be 3,670,016 bytes
  CHECK(sought.traffic().bytes == plain.traffic().bytes);

  const auto update = [](auto x, auto w) {  // GSPMD 3.2: a weight that is sharded between steps
    const value y = einsum<"bd,df->bf">(x, w);
    return w - 0.1 * grad(mean(y * y), w);
  };
  const auto f190 = file().check("weight-update sharding",
                                 dynamic::compile(update, dp, f32({2048, 256}, {"dp", ""}), f32({256, 64}, {"dp", ""})));
  CHECK(collectives_of(f190) == "all_gather dp, reduce_scatter dp");
}

TEST_CASE("attention over a split sequence") {
  const dynamic::mesh m({{"sp", 4}});
  const auto attention = [](auto q, auto k, auto v) {
    return einsum<"bnst,btnd->bsnd">(softmax(einsum<"bsnd,btnd->bnst">(q, k), 3), v);
  };
  const auto ulysses = [&](auto q, auto k, auto v) {
    const auto heads = [](value x) { return mesh_split(x, {-1, -1, 0, -1}); };
    const value q_heads = heads(q), k_heads = heads(k), v_heads = heads(v);
    return mesh_split(attention(q_heads, k_heads, v_heads), {-1, 0, -1, -1});
  };
  const auto rows = f32({2, 256, 8, 32}, {"", "sp", "", ""});
  const auto u = file().check("Ulysses: sequence to heads and back", dynamic::compile(ulysses, m, rows, rows, rows));
  CHECK(collectives_of(u) == "all_to_all sp, all_to_all sp, all_to_all sp, all_to_all sp");
  const auto gathered = [&](auto q, auto k, auto v) { return mesh_split(attention(q, k, v), {-1, 0, -1, -1}); };
  const auto g = file().check("context parallel: keys and values are gathered", dynamic::compile(gathered, m, rows, rows, rows));
  CHECK(collectives_of(g) == "all_gather sp, all_gather sp");
}

TEST_CASE("steps of training on meshes of two and three axes send what the textbook's do") {
  const dynamic::mesh three({{"dp_replicate", 2}, {"dp_shard", 2}, {"tp", 2}});
  const auto hsdp_tp = train_on("HSDP and TP", three, {"dp_replicate,dp_shard", ""}, {"dp_shard", "tp"}, {"tp", "dp_shard"});
  CHECK(hsdp_tp.traffic().over("dp_shard").bytes == 2 * weights_bytes() / 2 / 2);      // all_gather, reduce_scatter
  CHECK(hsdp_tp.traffic().over("dp_replicate").bytes == 2 * weights_bytes() / 4 / 2);  // all_reduce of the scattered gradients
  CHECK(hsdp_tp.traffic().in(collective_kind::all_to_all).collectives == 0);

  const dynamic::mesh two({{"dp", 2}, {"tp", 4}});
  const auto sequence = [](value x, value w1, value w2) {
    const value y = mesh_split(einsum<"bsf,fd->bsd">(relu(einsum<"bsd,df->bsf">(x, w1)), w2), {0, 1, -1});
    const auto [gx, g1, g2] = grad(mean(y * y), std::tuple{x, w1, w2});
    return std::tuple{mesh_split(gx, {0, 1, -1}), w1 - 0.1 * g1, w2 - 0.1 * g2};
  };
  const auto sp =
      file().check("TP and SP, with gradients", dynamic::compile(sequence, two, f32({8, 64, 256}, {"dp", "tp", ""}),
                                                                 f32({256, 1024}, {"", "tp"}), f32({1024, 256}, {"tp", ""})));
  CHECK(sp.traffic().in(collective_kind::all_gather).collectives == 2);
  CHECK(sp.traffic().in(collective_kind::reduce_scatter).collectives == 2);
  CHECK(sp.traffic().over("tp").bytes == 4 * (4 * 8 * 64 * 256 / 2) * 3 / 4);
  CHECK(sp.traffic().over("dp").bytes == weights_bytes() / 4);

  const auto attention_step = [](bool by_heads) {
    return [by_heads](value x, value wq, value wk, value wv, value wo) {
      const auto lies = [by_heads](value v) { return by_heads ? mesh_split(v, {0, -1, 1, -1}) : v; };
      const value q = lies(einsum<"bsd,dnh->bsnh">(x, wq)), k = lies(einsum<"bsd,dnh->bsnh">(x, wk)),
                  v = lies(einsum<"bsd,dnh->bsnh">(x, wv));
      const value mixed = einsum<"bnst,btnh->bsnh">(softmax(einsum<"bsnh,btnh->bnst">(q, k), 3), v);
      const value y = mesh_split(einsum<"bsnh,nhd->bsd">(mesh_split(mixed, {0, 1, -1, -1}), wo), {0, 1, -1});
      const auto g = grad(mean(y * y), std::tuple{wq, wk, wv, wo});
      return std::tuple{wq - 0.1 * std::get<0>(g), wk - 0.1 * std::get<1>(g), wv - 0.1 * std::get<2>(g),
                        wo - 0.1 * std::get<3>(g)};
    };
  };
  const dynamic::mesh rows({{"dp", 2}, {"sp", 4}});
  const auto step = [&](const char* title, bool by_heads) {
    const auto w = f32({256, 8, 32}, {"", "", ""});
    return file().check(title, dynamic::compile(attention_step(by_heads), rows, f32({4, 512, 256}, {"dp", "sp", ""}), w, w, w,
                                                f32({8, 32, 256}, {"", "", ""})));
  };
  const std::int64_t shard = 4 * 4 * 512 * 256 / 8, weights = 4 * (4 * 256 * 256);  // bytes
  const auto ulysses = step("Ulysses, with gradients and update", true);
  CHECK(ulysses.traffic().in(collective_kind::all_to_all).collectives == 5);  // a gather of x replaces three pairs
  CHECK(ulysses.traffic().bytes <= 8 * shard * 3 / 4 + 2 * weights * 7 / 8);
  const auto context = step("context parallel, with gradients and update", false);
  CHECK(context.traffic().bytes <= 4 * shard * 3 + 2 * weights * 7 / 8);
}

TEST_CASE("four rules of einsum") {
  const dynamic::mesh m({{"x", 4}});
  const auto linear = [](auto x, auto w) { return einsum<"abi,aoi->abo">(x, w); };
  const auto plan = [&](const char* title, sharding x, sharding w) {
    return file().check(title, dynamic::compile(linear, m, f32({8, 16, 32}, std::move(x)), f32({8, 64, 32}, std::move(w))));
  };
  CHECK(plan("abi,aoi->abo, nothing split", {"", "", ""}, {"", "", ""}).traffic().collectives == 0);
  CHECK(plan("abi,aoi->abo, batch split", {"x", "", ""}, {"x", "", ""}).traffic().collectives == 0);
  CHECK(plan("abi,aoi->abo, a free dim split", {"", "x", ""}, {"", "", ""}).traffic().collectives == 0);
  const auto contracted = plan("abi,aoi->abo, the contracting dim split", {"", "", "x"}, {"", "", "x"});
  CHECK(contracted.traffic().bytes <= 2 * 3 * (8 * 16 * 64 * 4) / 4);  // an all_reduce of the result
}

TEST_CASE("reshards: one movement where one is enough") {
  const dynamic::mesh m({{"x", 2}, {"y", 4}});
  CHECK(collectives_of(reshard_on("reshard [x,y] to itself", m, {64, 64}, {"x", "y"}, {"x", "y"})).empty());
  CHECK(collectives_of(reshard_on("reshard rows to columns", m, {64, 64}, {"y", ""}, {"", "y"})) == "all_to_all y");
  CHECK(collectives_of(reshard_on("reshard [x,y] to [y,x]", m, {64, 64}, {"x", "y"}, {"y", "x"})).size() > 0);
  CHECK(collectives_of(reshard_on("reshard x,y to y,x on one dim", m, {64}, {"x,y"}, {"y,x"})) == "collective_permute x,y");
  CHECK(collectives_of(reshard_on("reshard whole to split", m, {64, 64}, {"", ""}, {"x", "y"})).empty());
  CHECK(collectives_of(reshard_on("reshard uneven rows to columns", m, {15, 9}, {"y", ""}, {"", "y"})) == "all_to_all y");
  const auto xla = reshard_on("jax#21562 P(y,-,x) to P(-,(x,y),-)", m, {16, 64, 16}, {"y", "", "x"}, {"", "x,y", ""});
  CHECK(xla.traffic().bytes < 2 * 16 * 64 * 16 * 4 / 8 + 1);  // less than two shards: XLA replicates everything
}

TEST_CASE("matrix products on two-dimensional and larger meshes") {
  const auto product = [](auto a, auto b) { return einsum<"ab,bc->ac">(a, b); };
  const dynamic::mesh grid({{"x", 4}, {"y", 4}});
  const auto summa = file().check("SUMMA's layout: all three matrices over a grid",
                                  dynamic::compile(
                                      [&](auto a, auto b) {
                                        return mesh_split(product(a, b), {0, 1});
                                      },
                                      grid, f32({512, 512}, {"x", "y"}), f32({512, 512}, {"x", "y"})));
  CHECK(summa.traffic().bytes <= 2 * 3 * 512 * 512 * 4 / 16);
  const dynamic::mesh cube({{"x", 2}, {"y", 2}, {"z", 2}});
  const auto three =
      file().check("2.5-D: the contracting dim over z", dynamic::compile(
                                                            [&](auto a, auto b) {
                                                              return mesh_split(product(a, b), {0, 1});
                                                            },
                                                            cube, f32({512, 512}, {"x", "z"}), f32({512, 512}, {"z", "y"})));
  CHECK(collectives_of(three) == "all_reduce z");
  const dynamic::mesh pair({{"x", 2}, {"y", 2}});
  const auto batched = file().check("bij,bjk->bik, uneven, batch and a free dim",
                                    dynamic::compile([](auto a, auto b) { return einsum<"bij,bjk->bik">(a, b); }, pair,
                                                     f32({5, 7, 3}, {"x", "y", ""}), f32({5, 3, 9}, {"x", "", ""})));
  CHECK(batched.traffic().collectives == 0);
  const auto doubles =
      file().check("CCSD: abij = acik cbkj, a over x, j over y",
                   dynamic::compile([](auto a, auto b) { return einsum<"acik,cbkj->abij">(a, b); }, pair,
                                    f32({12, 12, 8, 8}, {"x", "", "", ""}), f32({12, 12, 8, 8}, {"", "", "", "y"})));
  CHECK(doubles.traffic().collectives == 0);
  static_cast<void>(file().check(
      "GShard dispatch, groups over both axes",
      dynamic::compile([](auto mask, auto x) { return reshard(einsum<"gsec,gsm->egcm">(mask, x), split<"x,y", _, _, _>{}); },
                       pair, f32({4, 64, 4, 512}, {"x,y", "", "", ""}), f32({4, 64, 32}, {"x,y", "", ""}))));
}

TEST_CASE("reductions, normalisation, statistics") {
  const dynamic::mesh m({{"x", 4}, {"y", 2}});
  const auto one = [&](const char* title, auto f, std::vector<std::int64_t> shape, sharding s) {
    return file().check(title, dynamic::compile(f, m, f32(std::move(shape), std::move(s))));
  };
  CHECK(collectives_of(one("softmax along a split dim", [](auto x) { return softmax(x, 1); }, {64, 100}, {"y", "x"})) ==
        "all_reduce x, all_reduce x");
  CHECK(one("softmax along a whole dim", [](auto x) { return softmax(x, 1); }, {64, 100}, {"x,y", ""}).traffic().collectives ==
        0);
  const auto normalise = [](auto x) {
    const auto column = [](value v) { return reshape(v, {64, 1}); };
    const value centred = x - column(mean(x, {1}));
    return centred * column(rsqrt(mean(centred * centred, {1}) + 1e-6));
  };
  CHECK(collectives_of(one("layer norm over a split dim", normalise, {64, 256}, {"y", "x"})) == "all_reduce x, all_reduce x");
  const auto ensemble = [](auto x) {  // U7: members over x, state over y
    const value centred = x - mean(x, {0});
    return einsum<"es,et->st">(centred, centred);
  };
  static_cast<void>(one("ensemble covariance", ensemble, {16, 128}, {"x", "y"}));
  const auto norm = [](auto x) { return sum(x * x); };
  CHECK(collectives_of(one("norm of a matrix over the whole mesh", norm, {63, 65}, {"x", "y"})) == "all_reduce x,y");
  const auto maximum_of = [](auto x) { return reduce(x, monoid::max, {0}); };
  // y is free: each half of the mesh reduces half of the columns
  CHECK(one("maximum over split rows", maximum_of, {63, 8}, {"x", ""}).traffic().bytes < 2 * 3 * (8 * 4) / 4);
}

TEST_CASE("losses, embeddings, optimisers, reshapes") {
  const dynamic::mesh m({{"data", 2}, {"model", 4}});
  const auto loss = [](auto logits, auto labels) { return mean(sum(one_hot<float>(labels, 40) * log_softmax(logits, 1), {1})); };
  static_cast<void>(
      file().check("cross entropy, the vocabulary split",
                   dynamic::compile(loss, m, f32({32, 40}, {"data", "model"}), dynamic::input<std::int32_t>({32}, {"data"}))));
  const auto embed = [](auto tokens, auto table) { return einsum<"bv,vd->bd">(one_hot<float>(tokens, 40), table); };
  const auto embedding =
      file().check("embedding, the table split by rows",
                   dynamic::compile(embed, m, dynamic::input<std::int32_t>({32}, {"data"}), f32({40, 64}, {"model", ""})));
  CHECK(embedding.traffic().in(collective_kind::all_gather).collectives == 0);
  const auto adam = [](auto w, auto g, auto m1, auto m2) {
    const value first = 0.9 * m1 + 0.1 * g;
    const value second = 0.99 * m2 + 0.01 * g * g;
    return std::tuple{w - 0.001 * first / (sqrt(second) + 1e-8), first, second};
  };
  const auto shard = f32({64, 64}, {"data", "model"});
  auto partial = f32({64, 64}, {"", "model"});
  partial.partial_axes = "data";
  CHECK(collectives_of(file().check("Adam on shards, from a gradient that is partial",
                                    dynamic::compile(adam, m, shard, partial, shard, shard))) == "reduce_scatter data");
  const auto heads = [](auto x) { return reshape(x, {8, 16, 4, 32}); };
  CHECK(file()
            .check("reshape: split dims become heads", dynamic::compile(heads, m, f32({8, 16, 128}, {"data", "", "model"})))
            .traffic()
            .collectives == 0);
  const auto forced = [](auto x) { return allow_replication(reshape(x, {3, 2})); };
  static_cast<void>(file().check("reshape of [2,3] to [3,2], split", dynamic::compile(forced, m, f32({2, 3}, {"data", ""}))));
  const auto flipped = [](auto x) { return transpose(x, {1, 0}); };
  CHECK(file()
            .check("transpose of split rows", dynamic::compile(flipped, m, f32({64, 32}, {"data", "model"})))
            .traffic()
            .collectives == 0);
}

TEST_CASE("unmatched dims: gathered, or shard by shard round a ring") {
  const dynamic::mesh m({{"x", 8}});
  const auto product = [](std::int64_t limit) {
    return [limit](auto a, auto b) {
      const value c = einsum<"ab,bc->ac">(a, b);
      return mesh_split(limit < 0 ? c : limit_gather(c, limit), {0, -1});
    };
  };
  for (const bool free : {true, false}) {
    const std::string name = free ? "a free dim, " : "a contracting dim, ";
    const auto rows = f32({4096, 64}, {"x", ""}), b = free ? f32({64, 256}, {"", "x"}) : f32({64, 256}, {"x", ""});
    const auto made = [&](const char* how, std::int64_t limit) {
      return file().check(name + how, dynamic::compile(product(limit), m, rows, b));
    };
    const auto gathered = made("gathered", -1), one_way = made("round a ring", 0), both = made("both ways round", 48 * KiB);
    CHECK(collectives_of(gathered) == "all_gather x");
    CHECK(collectives_of(one_way) == "collective_permute x");
    CHECK(one_way.traffic().bytes == gathered.traffic().bytes);
    CHECK(both.traffic().bytes == gathered.traffic().bytes);
  }
}

TEST_CASE("a convolution whose images are split in two directions") {
  const dynamic::mesh m({{"x", 2}, {"y", 2}});
  constexpr auto convolution = [](value images, value kernel) {  // 3 x 3, zeros around, one kernel for all nine positions
    value sum;
    for (int i = 0; i < 3; ++i) {
      const value rows = shift(images, i - 1, along(1));
      for (int j = 0; j < 3; ++j) {
        const value patch = shift(rows, j - 1, along(2));
        const value term = einsum<"bhwc,co->bhwo">(patch, kernel);
        sum = sum.is_valid() ? sum + term : term;
      }
    }
    return sum;
  };
  const auto images = f32({4, 32, 48, 3}, {"", "x", "y", ""}), kernel = f32({3, 8}, {"", ""});
  const auto p =
      file().check("3x3 box convolution, rows over x, columns over y", dynamic::compile(convolution, m, images, kernel));
  // Above and below: a row of 24 columns. Then, for each of the three, a column of 16 rows to the left and to the
  // right.
  CHECK(p.traffic().bytes == 4 * 4 * 3 * (2 * 24 + 6 * 16));
  CHECK(p.traffic().in(collective_kind::collective_permute).collectives == 8);
  CHECK(p.traffic().messages == 8);
  CHECK(p.traffic().collectives == 8);
  const auto loss = [&](value x, value w) { return grad(sum(convolution(x, w)), std::tuple{x, w}); };
  const auto g = file().check("3x3 box convolution, its gradients", dynamic::compile(loss, m, images, kernel));
  CHECK(g.traffic().in(collective_kind::all_gather).collectives == 0);
  CHECK(g.traffic().in(collective_kind::all_to_all).collectives == 0);
}

TEST_CASE("golden plans: what nobody annotated") {
  // Sums of split einsums stay split until the end. A value whose users need one other sharding is moved once.
  const dynamic::mesh m({{"m", 8}});
  const auto gradient = [](auto... given) {
    const std::array all{given...};
    value total;
    for (std::size_t k = 0; k < all.size(); k += 2) {
      const value one = einsum<"td,id->ti">(all[k], all[k + 1]);
      total = k == 0 ? one : total + one;
    }
    return total;
  };
  const auto dy = f32({65536, 8192}, {"", "m"}), w = f32({8192, 8192}, {"", "m"});
  static_cast<void>(
      file().check("gradient by the input of three projections", dynamic::compile(gradient, m, dy, w, dy, w, dy, w)));

  const auto rows = f32({8, 8}, {"m", ""}), columns = f32({8, 8}, {"", "m"});
  const auto product = [](auto x, auto y) { return reshard(x * y, split<_, "m">{}); };
  static_cast<void>(file().check("product of rows and columns, wanted in columns", dynamic::compile(product, m, rows, columns)));
  const auto twice = [](auto x, auto y) {
    const auto h = tanh(x);
    return std::tuple{reshard(h * y, split<_, "m">{}), reshard(h + y, split<_, "m">{})};
  };
  static_cast<void>(file().check("rows that two operators want in columns", dynamic::compile(twice, m, rows, columns)));
}

TEST_CASE("golden plans: an ensemble of networks, members over one axis and the batch over another") {
  const dynamic::mesh m({{"member", 4}, {"data", 2}});
  const auto members = [](value x, value w1, value w2) { return vmap<not_mapped, 0, 0>(train)(x, w1, w2); };
  const auto on = [&](const std::string& title, const sharding& x) {
    return file().check(title, dynamic::compile(members, m, f32({2048, 256}, x), f32({8, 256, 1024}, {"member", "", ""}),
                                                f32({8, 1024, 256}, {"member", "", ""})));
  };
  // Nothing is sent between members. The gradients of two weights are summed over the batch.
  const auto p = on("ensemble of eight networks", {"data", ""});
  for (const auto& c : p.collectives()) CHECK(c.axes.view() == "data");
  CHECK(p.traffic().bytes == 2 * weights_bytes());
}

TEST_CASE("nothing else stands in plans.txt") { file().finish(); }
