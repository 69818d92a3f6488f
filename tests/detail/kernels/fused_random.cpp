// SPDX-License-Identifier: Apache-2.0
// labels: native
// group: fused
// Random fused groups: whole, collapsed and partial.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/fused_collapse.hpp"
#include "gspmd/detail/kernels/fused_dynamic.hpp"
#include "support/fused_groups.hpp"
#include "support/slow_operators.hpp"

using namespace gspmd;
using namespace gspmd::detail;
using namespace fused_groups;
using namespace slow_operators;

namespace {
value naive_map(const scalar_op& o, const std::vector<value>& args) {
  value v{o.type, 0, 0};
  with_computing_type(o.type, [&]<class T>(T) {
    T a[max_map_arity];
    for (std::size_t k = 0; k < args.size(); ++k)
      a[k] = is_floating(o.type) ? static_cast<T>(args[k].real) : static_cast<T>(args[k].integer);
    const T y = function_for<T>(*o.function)(a);
    if (is_floating(o.type)) v.real = static_cast<double>(y);
    else v.integer = static_cast<std::int64_t>(y);
  });
  return v;
}

void evaluate(const fused_group& g, const void* const* in, const std::int64_t* offsets, const std::int64_t* index,
              std::vector<value>& r) {
  for (std::size_t k = 0; k < g.ops.size(); ++k) {
    const scalar_op& o = g.ops[k];
    if (o.op == opcode::parameter) {
      std::int64_t at = 0;
      for (int d = 0; d < g.loop.count; ++d) at += index[d] * o.strides[d];
      r[k] = read(o.type, static_cast<const std::byte*>(in[o.slot]), at);
    } else if (o.op == opcode::constant) {
      r[k] = is_floating(o.type) ? floating(o.type, o.real) : value{o.type, 0, o.integer};
    } else if (o.op == opcode::iota) {
      r[k] = naive_convert(o.type, {dtype::s64, 0, index[o.dim] + offsets[o.slot]});
    } else if (o.op == scalar_code_of<map_op>) {
      std::vector<value> args;
      for (const auto a : o.args) args.push_back(r[static_cast<std::size_t>(a)]);
      r[k] = naive_map(o, args);
    } else {
      const auto arg = [&](int i) { return r[static_cast<std::size_t>(o.args[i])]; };
      r[k] = o.op == scalar_code_of<where_op> ? (arg(0).integer != 0 ? arg(1) : arg(2))
             : is_unary(o.op)                 ? naive_unary(o.op, o.type, arg(0))
                                              : naive_binary(o.op, arg(0), arg(1));
    }
  }
}

std::vector<std::vector<std::byte>> naive(const fused_group& g, const void* const* in, const std::int64_t* offsets) {
  const std::int64_t n = elements(g.loop);
  std::vector<std::vector<std::byte>> out;
  for (std::size_t s = 0; s < g.stores.size(); ++s) out.emplace_back(static_cast<std::size_t>(n * 8));
  std::vector<value> r(g.ops.size());
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t index[max_rank]{};
    std::int64_t left = i;
    for (int d = g.loop.count - 1; d >= 0; --d) {
      index[d] = left % g.loop[d];
      left /= g.loop[d];
    }
    evaluate(g, in, offsets, index, r);
    for (std::size_t s = 0; s < g.stores.size(); ++s) write(r[static_cast<std::size_t>(g.stores[s].op)], out[s].data(), i);
  }
  return out;
}

bool same_values(const fused_group& g, std::size_t s, const std::byte* got, const std::byte* wanted) {
  const dtype type = g.ops[static_cast<std::size_t>(g.stores[s].op)].type;
  for (std::int64_t i = 0; i < elements(g.loop); ++i)
    if (!same(read(type, got, i), read(type, wanted, i), 0)) return false;
  return true;
}
}  // namespace

TEST_CASE("random groups, as they are and collapsed") {
  std::mt19937 random(2024);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  constexpr scalar_code exact_unary[] = {scalar_code_of<abs_op>,  scalar_code_of<negative_op>, scalar_code_of<sign_op>,
                                         scalar_code_of<relu_op>, scalar_code_of<sqrt_op>,     scalar_code_of<floor_op>,
                                         scalar_code_of<ceil_op>, scalar_code_of<not_op>,      scalar_code_of<cast_op>};
  constexpr scalar_code exact_binary[] = {
      scalar_code_of<add_op>,        scalar_code_of<subtract_op>,   scalar_code_of<multiply_op>,  scalar_code_of<divide_op>,
      scalar_code_of<max_op>,        scalar_code_of<min_op>,        scalar_code_of<and_op>,       scalar_code_of<or_op>,
      scalar_code_of<compare_eq_op>, scalar_code_of<compare_lt_op>, scalar_code_of<compare_ge_op>};
  constexpr std::int64_t sizes[] = {0, 1, 2, 3, 5, 17, 33, 64, 129};
  constexpr std::int64_t long_sizes[] = {513, 1000, 1024, 1025, 2500};
  for (int round = 0; round < 500; ++round) {
    extents loop;
    const int rank = pick(5);
    for (int d = 0; d < rank; ++d)
      loop.push_back(d == rank - 1 || rank < 3 ? sizes[round % 20 == 0 ? pick(9) : 1 + pick(8)] : 1 + pick(4));
    if (round % 5 == 0 && rank > 0) {  // rows longer than a block, or nearly as long
      for (int d = 0; d < rank; ++d) loop[d] = 1 + pick(3);
      loop[pick(4) == 0 ? 0 : rank - 1] = long_sizes[pick(5)];
    }
    vec<scalar_op> ops;
    std::vector<std::vector<std::byte>> inputs;
    const int count = 1 + pick(30);
    for (int k = 0; k < count; ++k) {
      const dtype type = all_types[pick(static_cast<int>(std::size(all_types)))];
      // earlier operands of the same type
      const auto some = [&](dtype t) {
        std::vector<int> found;
        for (int j = 0; j < k; ++j)
          if (ops[static_cast<std::size_t>(j)].type == t) found.push_back(j);
        return found.empty() ? -1 : found[static_cast<std::size_t>(pick(static_cast<int>(found.size())))];
      };
      const int x = some(type), y = some(type), p = some(pred);
      const int kind = k < 3 ? pick(3) : pick(14);
      if (kind == 1 && rank > 0) {
        ops.push_back(counter(type, pick(2), pick(rank)));
      } else if (kind == 2) {
        ops.push_back(number(type, type == pred ? pick(2) : pick(100) - (type == dtype::u32 || type == dtype::u64 ? 0 : 50)));
      } else if (kind == 3 && x >= 0 && y >= 0 && p >= 0) {
        ops.push_back(op(scalar_code_of<where_op>, type, {p, x, y}));
      } else if (kind == 4 && x >= 0 && y >= 0 && accepts(axpy, type)) {
        ops.push_back(op(scalar_code_of<map_op>, type, {x, y, x}, &axpy));
      } else if (kind < 8 && x >= 0 && kind > 4) {
        const scalar_code code = exact_unary[pick(9)];
        if (is_defined(code, type))
          ops.push_back(op(code, code == scalar_code_of<cast_op> ? all_types[pick(static_cast<int>(std::size(all_types)))] : type,
                           type, {x}));
        else ops.push_back(op(scalar_code_of<cast_op>, type, {x}));
      } else if (kind >= 8 && x >= 0) {
        const scalar_code code = exact_binary[pick(11)];
        if (is_defined(code, type)) ops.push_back(op(code, is_compare(code) ? pred : type, type, {x, y}));
        else ops.push_back(op(scalar_code_of<max_op>, type, {x, y}));
      } else {
        // dense, transposed, or broadcast along any dims
        extents strides(rank, 0);
        std::int64_t size = 1;
        const bool reversed = pick(4) == 0;
        for (int i = 0; i < rank; ++i) {
          const int d = reversed ? i : rank - 1 - i;
          if (pick(4) == 0 && k % 2 == 0) continue;
          strides[d] = size;
          size *= std::max<std::int64_t>(loop[d], 1);
        }
        ops.push_back(load(type, static_cast<int>(inputs.size()), strides));
        std::vector<value> values;
        const auto pool = samples(type, random);
        for (std::int64_t i = 0; i < size; ++i) values.push_back(pool[random() % pool.size()]);
        inputs.push_back(pack(values));
      }
    }
    std::vector<fused_store> stores;
    for (int s = 0; s < 1 + pick(4); ++s) stores.push_back(to(s == 0 ? count - 1 : pick(count), s));
    std::vector<const void*> in;
    for (const auto& i : inputs) in.push_back(i.data());
    const std::int64_t offsets[] = {pick(1000), 0};
    const fused_group g{loop, ops, stores};
    const auto wanted = naive(g, in.data(), offsets);

    auto small_loop = loop;
    auto small_ops = ops;
    collapse_loop(small_loop, small_ops);
    CHECK(elements(small_loop) == elements(loop));
    for (const bool collapsed : {false, true}) {
      const fused_group tried{collapsed ? small_loop : loop, collapsed ? small_ops : ops, stores};
      std::vector<std::vector<std::byte>> results;
      std::vector<void*> out;
      for (std::size_t s = 0; s < stores.size(); ++s) {
        results.emplace_back(static_cast<std::size_t>(elements(loop) * 8 + 8));
      }
      for (auto& r : results) out.push_back(r.data());
      run_dynamic(tried, in.data(), out.data(), offsets);
      for (std::size_t s = 0; s < stores.size(); ++s) {
        INFO("round ", round, " store ", s, " collapsed ", collapsed);
        CHECK(same_values(g, s, results[s].data(), wanted[s].data()));
      }
    }

    // The same for the elements that exist.
    auto part = loop;
    dim_mask cut = 0;
    for (int d = 0; d < loop.count; ++d)
      if (pick(2) == 0) {
        part[d] = pick(static_cast<int>(loop[d]) + 1);
        cut |= dim_bit(d);
      }
    auto room = loop;
    auto part_ops = ops;
    auto left = collapse_loop(room, part_ops, cut);
    auto small_part = room;
    CHECK((elements(loop) == 0 || std::popcount(left) == std::popcount(cut)));
    for (; left != 0; left &= left - 1, cut &= cut - 1) {
      const int d = std::countr_zero(cut);
      auto& extent = small_part[std::countr_zero(left)];
      extent = extent / loop[d] * part[d];
    }
    CHECK(elements(small_part) == elements(part));
    std::vector<std::vector<std::byte>> results(
        stores.size(), std::vector<std::byte>(static_cast<std::size_t>(elements(loop) * 8), std::byte{}));
    std::vector<void*> out;
    for (auto& r : results) out.push_back(r.data());
    const fused_code code({small_part, part_ops, stores}, room);
    std::vector<std::byte> scratch(static_cast<std::size_t>(code.scratch_bytes), std::byte{0xA5});
    run_fused(code, in.data(), out.data(), offsets, scratch.data());
    for (std::size_t s = 0; s < stores.size(); ++s) {
      const auto bytes = static_cast<std::size_t>(bytes_of(ops[static_cast<std::size_t>(stores[s].op)].type));
      auto expected = wanted[s];
      for (std::int64_t i = 0; i < elements(loop); ++i) {
        bool exists = true;
        std::int64_t rest = i;
        for (int d = loop.count - 1; d >= 0; --d) {
          exists = exists && rest % loop[d] < part[d];
          rest /= loop[d];
        }
        if (!exists) std::memset(expected.data() + static_cast<std::size_t>(i) * bytes, 0, bytes);
      }
      INFO("round ", round, " store ", s, " in part");
      CHECK(same_values(g, s, results[s].data(), expected.data()));
    }
  }
}

TEST_CASE("what is equal along a row, in rows of any length and in ranges that begin anywhere") {
  std::mt19937 random(5);
  for (const std::int64_t row : {1, 2, 63, 64, 65, 256, 257, 511, 512, 513, 1000, 4097})
    for (const dtype type : all_types) {
      const extents loop = dims({2, 3, row});
      vec<scalar_op> ops = {load(type, 0, dims({3 * row, row, 1})),
                            load(type, 1, dims({3, 1, 0})),
                            load(type, 2, dims({1, 0, 0})),
                            load(type, 3, dims({0, 1, 0})),
                            counter(type, 0, 1),
                            counter(type, 1, 2),
                            load(type, 4, dims({0, 0, 1})),
                            number(type, 1)};
      const auto combine = [&](const scalar_code& code, int x, int y) {
        ops.push_back(op(is_defined(code, type) ? code : scalar_code_of<max_op>, type, {x, y}));
        return static_cast<int>(ops.size()) - 1;
      };
      const int scaled = combine(scalar_code_of<multiply_op>, combine(scalar_code_of<subtract_op>, 0, 1), 2);
      const int counted =
          combine(scalar_code_of<add_op>, combine(scalar_code_of<max_op>, 3, 4), combine(scalar_code_of<multiply_op>, 5, 7));
      const int last = combine(scalar_code_of<max_op>, combine(scalar_code_of<min_op>, scaled, counted),
                               combine(scalar_code_of<subtract_op>, 3, 6));
      vec<fused_store> stores = {to(last, 0), to(scaled, 1)};
      if (random() % 3 == 0) stores.push_back(to(1, 2));  // a stored operand, so its block has all elements
      if (accepts(axpy, type) && random() % 2 == 0) {
        ops.push_back(op(scalar_code_of<map_op>, type, {last, 2, 4}, &axpy));  // also as an operand of a user's function
        stores.push_back(to(static_cast<int>(ops.size()) - 1, static_cast<int>(stores.size())));
      }
      const auto pool = samples(type, random);
      std::vector<std::vector<std::byte>> inputs;
      for (const std::int64_t size : {6 * row, std::int64_t{6}, std::int64_t{2}, std::int64_t{3}, row}) {
        std::vector<value> values;
        for (std::int64_t i = 0; i < size; ++i) values.push_back(pool[random() % pool.size()]);
        inputs.push_back(pack(values));
      }
      std::vector<const void*> in;
      for (const auto& i : inputs) in.push_back(i.data());
      const std::int64_t offsets[] = {40, 7};
      const fused_group g{loop, ops, stores};
      const auto wanted = naive(g, in.data(), offsets);

      const fused_code code(g);
      std::vector<std::byte> scratch(static_cast<std::size_t>(code.scratch_bytes), std::byte{0xA5});
      std::vector<std::vector<std::byte>> results(stores.size(),
                                                  std::vector<std::byte>(static_cast<std::size_t>(elements(loop) * 8)));
      std::vector<void*> out;
      for (auto& r : results) out.push_back(r.data());
      const auto total = elements(loop), unit = code.blocks.has_whole_rows ? row : 1;
      for (std::int64_t begin = 0, end = 0; begin < total; begin = end) {
        end = std::min(total, begin + (1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(2 * row))) / unit * unit);
        std::fill(scratch.begin(), scratch.end(), std::byte{0xA5});  // nothing remains of the previous range
        run_fused(code, in.data(), out.data(), offsets, scratch.data(), nullptr, begin, end);
      }
      for (std::size_t s = 0; s < stores.size(); ++s) {
        INFO("rows of ", row, " type ", static_cast<int>(type), " store ", s);
        CHECK(same_values(g, s, results[s].data(), wanted[s].data()));
      }
    }
}

TEST_CASE("collapse joins what every load allows") {
  vec<scalar_op> ops = {load(f32, 0, dims({24, 6, 6, 1})), load(f32, 1, dims({0, 0, 0, 0}))};
  extents loop = dims({3, 4, 1, 6});
  collapse_loop(loop, ops);
  CHECK((loop == dims({72}) && ops[0].strides == dims({1}) && ops[1].strides == dims({0})));

  ops = {load(f32, 0, dims({24, 6, 1})), load(f32, 1, dims({0, 0, 1}))};
  loop = dims({3, 4, 6});
  collapse_loop(loop, ops);
  CHECK((loop == dims({12, 6}) && ops[0].strides == dims({6, 1}) && ops[1].strides == dims({0, 1})));

  ops = {load(f32, 0, dims({24, 6, 1})), counter(s32, 0, 0)};
  loop = dims({3, 4, 6});
  collapse_loop(loop, ops);
  CHECK((loop == dims({3, 24}) && ops[0].strides == dims({24, 1}) && ops[1].dim == 0));

  ops = {load(f32, 0, dims({1, 1})), counter(s32, 0, 1)};
  loop = dims({1, 1});
  collapse_loop(loop, ops);
  CHECK((loop == dims({1}) && ops[1].dim == 0));

  ops = {load(f32, 0, dims({1, 1}))};
  loop = dims({1, 1});
  collapse_loop(loop, ops);
  CHECK(loop.count == 0);

  ops = {load(f32, 0, dims({24, 6, 1}))};  // a dim inside of a cut dim joins it, a dim outside does not
  loop = dims({3, 4, 6});
  CHECK(collapse_loop(loop, ops, dim_bit(1)) == dim_bit(1));
  CHECK((loop == dims({3, 24}) && ops[0].strides == dims({24, 1})));
}
