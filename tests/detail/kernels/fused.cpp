// SPDX-License-Identifier: Apache-2.0
// labels: native
// group: fused
// Hand-written fused groups, run by both paths.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "gspmd/detail/kernels/fused_dynamic.hpp"
#include "gspmd/detail/kernels/fused_static.hpp"
#include "support/fused_groups.hpp"
#include "support/slow_operators.hpp"

using namespace gspmd;
using namespace gspmd::detail;
using namespace fused_groups;
using namespace slow_operators;

namespace {
template <std::int64_t N>
struct adam {
  static constexpr extents loop = dims({N});
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {load(f32, 0, dims({1})),
                                     load(f32, 1, dims({1})),
                                     load(f32, 2, dims({1})),
                                     load(f32, 3, dims({1})),
                                     number(f32, 0.9),
                                     number(f32, 0.1),
                                     number(f32, 0.999),
                                     number(f32, 0.001),
                                     number(f32, 1e-3),
                                     number(f32, 1e-8),
                                     op(scalar_code_of<multiply_op>, f32, {4, 1}),
                                     op(scalar_code_of<multiply_op>, f32, {5, 3}),
                                     op(scalar_code_of<add_op>, f32, {10, 11}),
                                     op(scalar_code_of<multiply_op>, f32, {6, 2}),
                                     op(scalar_code_of<multiply_op>, f32, {3, 3}),
                                     op(scalar_code_of<multiply_op>, f32, {7, 14}),
                                     op(scalar_code_of<add_op>, f32, {13, 15}),
                                     op(scalar_code_of<sqrt_op>, f32, {16}),
                                     op(scalar_code_of<add_op>, f32, {17, 9}),
                                     op(scalar_code_of<multiply_op>, f32, {8, 12}),
                                     op(scalar_code_of<divide_op>, f32, {19, 18}),
                                     op(scalar_code_of<subtract_op>, f32, {0, 20})};
  static constexpr std::array stores = {to(21, 0), to(12, 1), to(16, 2)};
};
struct scalar_group {  // rank 0
  static constexpr extents loop = {};
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {load(f64, 0, {}), op(scalar_code_of<exp_op>, f64, {0}),
                                     op(scalar_code_of<cast_op>, f32, f64, {1})};
  static constexpr std::array stores = {to(2, 0), to(1, 1)};
};
struct empty_group {
  static constexpr extents loop = dims({3, 0, 5});
  [[maybe_unused]] static constexpr dim_mask cut = 0;  // not used by an empty loop
  static constexpr std::array ops = {load(f64, 0, dims({0, 5, 1})), op(scalar_code_of<negative_op>, f64, {0})};
  static constexpr std::array stores = {to(1, 0)};
};
struct bias_relu {  // [7, 130] + [130], and a mask from the global index along both dims
  static constexpr extents loop = dims({7, 130});
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {load(f32, 0, dims({130, 1})),
                                     load(f32, 1, dims({0, 1})),
                                     op(scalar_code_of<add_op>, f32, {0, 1}),
                                     op(scalar_code_of<relu_op>, f32, {2}),
                                     counter(s32, 0, 0),
                                     number(s32, 9),
                                     op(scalar_code_of<compare_lt_op>, pred, s32, {4, 5}),
                                     counter(s64, 1, 1),
                                     number(s64, 100),
                                     op(scalar_code_of<compare_lt_op>, pred, s64, {7, 8}),
                                     op(scalar_code_of<and_op>, pred, {6, 9}),
                                     number(f32, 0),
                                     op(scalar_code_of<where_op>, f32, {10, 3, 11})};
  static constexpr std::array stores = {to(12, 0), to(10, 1), to(12, 2)};
};
struct short_rows {  // [1001, 3] * [3] - [1001, 1]
  static constexpr extents loop = dims({1001, 3});
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {load(f64, 0, dims({3, 1})), load(f64, 1, dims({0, 1})), load(f64, 2, dims({1, 0})),
                                     op(scalar_code_of<multiply_op>, f64, {0, 1}), op(scalar_code_of<subtract_op>, f64, {3, 2})};
  static constexpr std::array stores = {to(4, 0)};
};
struct transposed {  // a strided load, rank 3
  static constexpr extents loop = dims({5, 7, 67});
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {load(s32, 0, dims({1, 5, 35})),
                                     load(s64, 1, dims({0, 0, 0})),
                                     op(scalar_code_of<cast_op>, s64, s32, {0}),
                                     op(scalar_code_of<divide_op>, s64, {2, 1}),
                                     op(scalar_code_of<pow_op>, s64, {3, 2}),
                                     op(scalar_code_of<compare_ge_op>, pred, s64, {3, 4}),
                                     op(scalar_code_of<cast_op>, f32, pred, {5})};
  static constexpr std::array stores = {to(3, 0), to(4, 1), to(5, 2), to(6, 3)};
};
struct preds {
  static constexpr extents loop = dims({1003});
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {load(pred, 0, dims({1})),
                                     load(pred, 1, dims({1})),
                                     op(scalar_code_of<or_op>, pred, {0, 1}),
                                     op(scalar_code_of<not_op>, pred, {2}),
                                     op(scalar_code_of<max_op>, pred, {3, 0}),
                                     op(scalar_code_of<cast_op>, f64, pred, {4}),
                                     op(scalar_code_of<compare_lt_op>, pred, {0, 1})};
  static constexpr std::array stores = {to(4, 0), to(5, 1), to(6, 2)};
};
struct mapped {
  static constexpr extents loop = dims({777});
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {load(f32, 0, dims({1})),
                                     load(f32, 1, dims({1})),
                                     number(f32, 0.5),
                                     op(scalar_code_of<multiply_op>, f32, {0, 1}),
                                     op(scalar_code_of<map_op>, f32, {3, 2, 1}, &axpy),
                                     op(scalar_code_of<add_op>, f32, {4, 0}),
                                     op(scalar_code_of<tanh_op>, f32, {5}),
                                     op(scalar_code_of<cast_op>, s64, f32, {5}),
                                     op(scalar_code_of<map_op>, s64, {7, 7, 7}, &axpy)};
  static constexpr std::array stores = {to(5, 0), to(6, 1), to(8, 2)};
};
struct transcendental {
  static constexpr extents loop = dims({515});
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {load(f64, 0, dims({1})),
                                     op(scalar_code_of<exp_op>, f64, {0}),
                                     op(scalar_code_of<add_op>, f64, {1, 0}),
                                     op(scalar_code_of<log_op>, f64, {2}),
                                     op(scalar_code_of<sigmoid_op>, f64, {3}),
                                     op(scalar_code_of<sin_op>, f64, {4}),
                                     op(scalar_code_of<pow_op>, f64, {1, 5}),
                                     op(scalar_code_of<rsqrt_op>, f64, {6}),
                                     op(scalar_code_of<cast_op>, f32, f64, {7}),
                                     op(scalar_code_of<exp_op>, f32, {8}),
                                     op(scalar_code_of<multiply_op>, f32, {9, 9}),
                                     op(scalar_code_of<add_op>, f32, {10, 8})};
  static constexpr std::array stores = {to(7, 0), to(11, 1), to(4, 2), to(3, 3)};
};
struct only_copies {  // a load and a constant are stored
  static constexpr extents loop = dims({2, 65});
  static constexpr dim_mask cut = 0;
  static constexpr std::array ops = {load(s32, 0, dims({65, 1})), number(f64, -2.5), counter(f32, 0, 1)};
  static constexpr std::array stores = {to(0, 0), to(1, 1), to(2, 2), to(0, 3)};
};
template <int N>
struct long_chain {  // more operators than the operands of one fold
  static constexpr extents loop = dims({97});
  static constexpr dim_mask cut = 0;
  static constexpr auto ops = [] {
    std::array<scalar_op, N> all{};
    all[0] = load(f32, 0, dims({1}));
    all[1] = load(f32, 1, dims({0}));
    for (int k = 2; k < N; ++k)
      all[static_cast<std::size_t>(k)] = k % 3 == 0   ? op(scalar_code_of<multiply_op>, f32, {k - 1, 1})
                                         : k % 3 == 1 ? op(scalar_code_of<add_op>, f32, {k - 1, k - 2})
                                                      : op(scalar_code_of<min_op>, f32, {k - 1, 0});
    return all;
  }();
  static constexpr std::array stores = {to(N - 1, 0), to(N / 2, 1)};
};

// The permitted error of a group with a map. The user's function is inlined there. If the processor has a fused
// multiply-add, the compiler may use it on only one path.
int ulps_between_paths(const fused_group& g) {
#if defined(__FMA__)
  for (const scalar_op& o : g.ops)
    if (o.op == scalar_code_of<map_op>) return 16;
#endif
  (void)g;
  return 0;
}

template <class Group>
void check_both(unsigned seed) {
  const fused_group g{Group::loop, Group::ops, Group::stores};
  const std::int64_t n = elements(g.loop);
  std::mt19937 random(seed);
  std::vector<std::vector<std::byte>> inputs(8);
  for (const auto& o : g.ops) {
    if (o.op != opcode::parameter) continue;
    const auto pool = samples(o.type, random);
    std::vector<value> values;
    for (std::int64_t i = 0; i < std::max<std::int64_t>(n, 1); ++i) values.push_back(pool[random() % pool.size()]);
    inputs[static_cast<std::size_t>(o.slot)] = pack(values);
  }
  const void* in[8];
  for (std::size_t k = 0; k < 8; ++k) in[k] = inputs[k].data();
  const std::int64_t offsets[] = {5, 40};
  std::vector<std::vector<std::byte>> a(8, std::vector<std::byte>(static_cast<std::size_t>(n * 8 + 8))), b = a;
  void* out_a[8];
  void* out_b[8];
  for (std::size_t k = 0; k < 8; ++k) {
    out_a[k] = a[k].data();
    out_b[k] = b[k].data();
  }
  run_fused<Group>(in, out_a, offsets);
  run_dynamic(g, in, out_b, offsets);
  for (const auto& s : g.stores) {
    const auto slot = static_cast<std::size_t>(s.slot);
    const dtype type = g.ops[static_cast<std::size_t>(s.op)].type;
    for (std::int64_t i = 0; i < n; ++i) {
      const value x = read(type, a[slot].data(), i), y = read(type, b[slot].data(), i);
      if (same(x, y, ulps_between_paths(g))) continue;
      FAIL_CHECK("store ", slot, " element ", i, ": static ", x.real, " / ", x.integer, ", run-time ", y.real, " / ", y.integer);
      break;
    }
    CHECK(std::memcmp(a[slot].data() + n * bytes_of(type), b[slot].data() + n * bytes_of(type), 8) ==
          0);  // nothing is written past the
               // end
  }
}
}  // namespace

TEST_CASE("both paths give the same bits") {
  check_both<adam<1>>(1);
  check_both<adam<64>>(2);
  check_both<adam<1537>>(3);
  check_both<scalar_group>(4);
  check_both<empty_group>(5);
  check_both<bias_relu>(6);
  check_both<short_rows>(7);
  check_both<transposed>(8);
  check_both<preds>(9);
  check_both<mapped>(10);
  check_both<transcendental>(11);
  check_both<only_copies>(12);
  check_both<long_chain<300>>(13);
}

namespace {
template <class Group>
struct ending_early : Group {
  static constexpr dim_mask cut = dim_bit(Group::loop.count) - 1;
};

// Computes only `part` of the loop, and checks that nothing else is written.
template <class Group>
void check_part(const extents& part) {
  const fused_group g{Group::loop, Group::ops, Group::stores};
  const auto n = static_cast<std::size_t>(elements(g.loop));
  std::mt19937 random(17);
  std::vector<std::vector<std::byte>> inputs(4);
  for (const auto& o : g.ops) {
    if (o.op != opcode::parameter) continue;
    const auto pool = samples(o.type, random);
    std::vector<value> values;
    for (std::size_t i = 0; i < n; ++i) values.push_back(pool[random() % pool.size()]);
    inputs[static_cast<std::size_t>(o.slot)] = pack(values);
  }
  const void* in[4];
  for (std::size_t k = 0; k < 4; ++k) in[k] = inputs[k].data();
  const std::int64_t offsets[] = {5, 40};
  std::vector<std::vector<std::byte>> a(4, std::vector<std::byte>(n * 8, std::byte{0x5A})), b = a;
  void* out_a[4];
  void* out_b[4];
  for (std::size_t k = 0; k < 4; ++k) out_a[k] = a[k].data(), out_b[k] = b[k].data();

  using row = typename row_of_group<ending_early<Group>>::type;
  fused_memory<row> memory;
  run_fused_rows(g, part, loop_box(part), compute_rows<row>, memory.rows(), in, out_a, offsets);
  const fused_code code({part, g.ops, g.stores}, g.loop);
  std::vector<std::byte> scratch(static_cast<std::size_t>(code.scratch_bytes), std::byte{0xA5});
  run_fused(code, in, out_b, offsets, scratch.data());
  for (const auto& s : g.stores) {
    // Compares elements of the part by value. All other elements must keep their bytes.
    const auto slot = static_cast<std::size_t>(s.slot);
    const dtype type = g.ops[static_cast<std::size_t>(s.op)].type;
    for (std::int64_t i = 0; i < elements(g.loop); ++i)
      CHECK(same(read(type, a[slot].data(), i), read(type, b[slot].data(), i), ulps_between_paths(g)));
  }
  if (ulps_between_paths(g) == 0) CHECK(a == b);
}
}  // namespace

TEST_CASE("both paths leave out what does not exist") {
  check_part<adam<1537>>(dims({1000}));
  check_part<adam<64>>(dims({0}));
  check_part<bias_relu>(dims({5, 101}));
  check_part<short_rows>(dims({77, 2}));
  check_part<mapped>(dims({500}));
  check_part<only_copies>(dims({1, 64}));
  check_part<preds>(dims({63}));
}

namespace {
/// Returns the number of elements that the row function writes if it is called for `elems`. Returns -1 if it throws and
/// writes nothing.
template <class Group>
std::int64_t written_of(std::int64_t elems) {
  constexpr std::size_t room = 512;
  std::vector<std::vector<float>> inputs(4, std::vector<float>(room, 1.5F)), outputs(4, std::vector<float>(room, -7.0F));
  const void* in[4];
  void* out[4];
  for (std::size_t k = 0; k < 4; ++k) in[k] = inputs[k].data(), out[k] = outputs[k].data();
  using row = typename row_of_group<Group>::type;
  fused_memory<row> memory;
  const extents part = dims({elems});
  const fused_group g{Group::loop, Group::ops, Group::stores};
  bool is_refused = false;
  try {
    run_fused_rows(g, part, loop_box(part), compute_rows<row>, memory.rows(), in, out, nullptr);
  } catch (const gspmd::error&) {
    is_refused = true;
  }
  const auto& first = outputs[static_cast<std::size_t>(Group::stores[0].slot)];
  const auto written = static_cast<std::int64_t>(room) - std::count(first.begin(), first.end(), -7.0F);
  return is_refused && written == 0 ? -1 : written;
}
}  // namespace

TEST_CASE("a row is computed for as many elements as are asked for, or refused") {
  CHECK(written_of<adam<225>>(225) == 225);
  for (const int n : {1, 64, 224, 226}) CHECK(written_of<adam<225>>(n) == -1);  // its length is a constant
  for (const int n : {300, 300 - 64, 300 + 64}) CHECK(written_of<adam<300>>(n) == n);
  for (const int n : {1, 44, 299, 301}) CHECK(written_of<adam<300>>(n) == -1);  // its remainder of 44 is a constant
  for (const int n : {1, 44, 225, 301}) CHECK(written_of<ending_early<adam<225>>>(n) == n);
}

namespace {
template <std::int64_t Row, bool EndsEarly>
struct many_widths {  // results of 4, 1, 8, 2 and 16 bytes
  static constexpr extents loop = dims({3, Row});
  static constexpr dim_mask cut = EndsEarly ? dim_bit(1) : 0;
  static constexpr std::array ops = {load(f32, 0, dims({Row, 1})),
                                     counter(s32, 0, 1),
                                     op(scalar_code_of<cast_op>, f32, s32, {1}),
                                     op(scalar_code_of<multiply_op>, f32, {0, 2}),
                                     op(scalar_code_of<compare_lt_op>, pred, f32, {3, 0}),
                                     op(scalar_code_of<cast_op>, f64, f32, {3}),
                                     op(scalar_code_of<cast_op>, dtype::f16, f32, {3}),
                                     op(scalar_code_of<cast_op>, dtype::c128, f64, {5})};
  static constexpr std::array stores = {to(3, 0), to(4, 1), to(5, 2), to(6, 3), to(7, 4)};
};

/// Checks the elements of each row of results, with compute_rows and with stream_rows. If `apart` is 0, element
/// `first_line` begins a cache line.
template <class Group>
void check_streams(std::int64_t elems, std::int64_t first_line, std::int64_t apart) {
  using row = typename row_of_group<Group>::type;
  const extents part = dims({3, elems});
  const fused_group g{Group::loop, Group::ops, Group::stores};
  std::vector<float> input(static_cast<std::size_t>(elements(g.loop)));
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 37) * 0.375F - 3;
  const void* in[] = {input.data()};
  const std::int64_t offsets[] = {5};
  std::vector<std::byte> results[2];
  for (const bool streams : {false, true}) {
    constexpr std::size_t room = 16 * 1024;  // of one result: 3 * 300 elements of 16 bytes, and the memory around them
    std::vector<std::byte> memory((std::size(Group::stores) + 1) * room, std::byte{0x5A});
    const auto past = reinterpret_cast<std::uintptr_t>(memory.data()) % cache_line_bytes;
    std::byte* const begin = memory.data() + (cache_line_bytes - past);
    void* out[5];
    for (std::size_t k = 0; k < std::size(Group::stores); ++k) {
      const auto bytes = bytes_of_store<Group>(k);
      out[k] = begin + k * room + 1024 - first_line * bytes + (k == 1 ? apart : 0);
    }
    fused_memory<row> rows;
    run_fused_rows(g, part, loop_box(part), streams ? stream_rows<row> : compute_rows<row>, rows.rows(), in, out, offsets);
    fence_streams();
    results[streams ? 1 : 0].assign(begin, begin + std::size(Group::stores) * room);
  }
  CHECK(results[0] == results[1]);
}
}  // namespace

TEST_CASE("results that go past the caches are the same, wherever lines begin, and nothing around them is written") {
  using any = many_widths<300, true>;
  for (const std::int64_t elems : {1, 63, 64, 65, 127, 128, 129, 191, 192, 200, 255, 256, 299, 300})
    for (std::int64_t first_line = 0; first_line < 64; ++first_line) check_streams<any>(elems, first_line, 0);
  for (const std::int64_t apart : {1, 2, 8, 63, 64})
    check_streams<any>(300, 0, apart);  // no element begins a line in all results, except for 64
  for (std::int64_t first_line = 0; first_line < 64; ++first_line) {
    check_streams<many_widths<225, false>>(225, first_line, 0);  // rows of constant length
    check_streams<many_widths<300, false>>(300, first_line, 0);  // whole steps and a rest
    check_streams<many_widths<256, false>>(256, first_line, 0);
  }
}

namespace {
/// Reads up to `Reach` elements to both sides. Elements before a row are in input 1, elements after it in input 2.
template <std::int64_t Row, int Reach, bool EndsEarly>
struct reaching {
  static constexpr extents loop = dims({5, Row});
  static constexpr dim_mask cut = EndsEarly ? dim_bit(1) : 0;
  static constexpr int loads = 2 * Reach + 1;
  static constexpr int by(int load) { return (load % 2 == 0 ? -1 : 1) * ((load + 1) / 2); }
  static constexpr auto ops = [] {
    std::array<scalar_op, 3 * loads + 3> all{};
    std::size_t n = 0;
    for (int k = 0; k < loads; ++k) {
      all[n] = load(f64, 0, dims({Row, 1}));
      if (k > 0) all[n].offsets.push_back({1, by(k)});
      ++n;
    }
    all[n++] = number(f64, 3);
    all[n++] = counter(f64, 0, 1);
    for (int k = 0; k < loads; ++k, n += 2) {
      const int last = static_cast<int>(n) - 1;
      all[n] = op(scalar_code_of<multiply_op>, f64, {last, loads});
      all[n + 1] = op(scalar_code_of<add_op>, f64, {last + 1, k});
    }
    all[n] = op(scalar_code_of<cast_op>, f32, f64, {static_cast<int>(n) - 1});
    return all;
  }();
  static constexpr std::array stores = {to(3 * loads + 1, 0), to(3 * loads + 2, 1)};
  static constexpr auto margins = [] {
    std::array<fused_margin, loads - 1> all{};
    for (int k = 1; k < loads; ++k) {
      const bool before = by(k) < 0;
      all[static_cast<std::size_t>(k - 1)] = {static_cast<std::int16_t>(k), static_cast<std::int16_t>(before ? 1 : 2),
                                              before ? Reach : 0, dims({Reach, 1})};
    }
    return all;
  }();
};

/// Compares rows [1, 4), columns [first, end) of a loop whose loads pass both ends with a direct sum.
template <class Group, int Reach>
void check_reach(std::int64_t first, std::int64_t end, bool streams) {
  const auto rows = Group::loop[0], elems = Group::loop[1];
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  std::vector<double> middle(at(rows * elems)), before(at(rows * Reach)), behind(before), found(middle.size(), -7);
  std::vector<float> narrow(middle.size(), -7);
  int n = 0;
  for (auto* const all : {&middle, &before, &behind})
    for (auto& x : *all) x = n++ % 19;
  const void* in[] = {middle.data(), before.data(), behind.data()};
  void* out[] = {found.data(), narrow.data()};
  const std::int64_t offsets[] = {5};
  using row = typename row_of_group<Group>::type;
  fused_memory<row> memory;
  auto box = loop_box(Group::loop);
  box.begin[0] = 1, box.end[0] = 4, box.begin[1] = first, box.end[1] = end;
  run_fused_rows({Group::loop, Group::ops, Group::stores, Group::margins}, Group::loop, box,
                 streams ? stream_rows<row> : compute_rows<row>, memory.rows(), in, out, offsets);
  fence_streams();
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < elems; ++j) {
      double wanted = static_cast<double>(j + 5);
      for (int k = 0; k < Group::loads; ++k) {
        const auto from = j + Group::by(k);
        wanted = wanted * 3 + (from < 0        ? before[at(i * Reach + Reach + from)]
                               : from >= elems ? behind[at(i * Reach + from - elems)]
                                               : middle[at(i * elems + from)]);
      }
      if (i < 1 || i >= 4 || j < first || j >= end) wanted = -7;
      const auto e = at(i * elems + j);
      if (found[e] != wanted || narrow[e] != static_cast<float>(wanted)) ++wrong;
    }
  CHECK(wrong == 0);
}
template <std::int64_t Row, int Reach>
void check_reaches() {
  for (const bool streams : {false, true}) {
    for (const std::int64_t first : {0, 1, Reach})
      for (const std::int64_t left : {0, 1, Reach})
        if (first < Row - left) check_reach<reaching<Row, Reach, true>, Reach>(first, Row - left, streams);
    check_reach<reaching<Row, Reach, false>, Reach>(0, Row, streams);
    check_reach<reaching<Row, Reach, false>, Reach>(0, 1, streams);  // a boundary
  }
}
}  // namespace

TEST_CASE("rows whose loads reach over their ends, in as many pieces as are computed together and in more") {
  static_assert(most_row_pieces == 5);
  check_reaches<9, 1>();  // three pieces, of few elements and of many
  check_reaches<300, 1>();
  check_reaches<2, 2>();  // no inner piece
  check_reaches<300, 2>();
  check_reaches<300, 3>();  // seven
}

TEST_CASE("in place: an output may be an input") {
  using group = adam<1100>;
  std::vector<float> w(1100), m(1100), v(1100), g(1100);
  for (std::size_t i = 0; i < 1100; ++i) {
    w[i] = static_cast<float>(i) * 0.25f;
    m[i] = static_cast<float>(i % 7);
    v[i] = static_cast<float>(i % 5);
    g[i] = static_cast<float>(i % 11) - 5;
  }
  auto w2 = w, m2 = m, v2 = v, w3 = w, m3 = m, v3 = v;
  const void* in[] = {w.data(), m.data(), v.data(), g.data()};
  void* out[] = {w2.data(), m2.data(), v2.data()};
  run_fused<group>(in, out, nullptr);
  const void* in3[] = {w3.data(), m3.data(), v3.data(), g.data()};
  void* out3[] = {w3.data(), m3.data(), v3.data()};
  run_dynamic({group::loop, group::ops, group::stores}, in3, out3);
  run_fused<group>(in, const_cast<void* const*>(std::array<void*, 3>{w.data(), m.data(), v.data()}.data()), nullptr);
  CHECK((w2 == w && m2 == m && v2 == v));
  CHECK((w3 == w && m3 == m && v3 == v));
}

TEST_CASE("in place: two inputs change places") {
  struct swap_group {
    static constexpr auto make() {
      return std::array{load(f32, 0, dims({1})), load(f32, 1, dims({1})), op(scalar_code_of<negative_op>, f32, {0})};
    }
  };
  const auto ops = swap_group::make();
  std::vector<float> a(1000, 1.0f), b(1000, 2.0f);
  const void* in[] = {a.data(), b.data()};
  void* out[] = {a.data(), b.data()};
  const fused_store swap[] = {to(1, 0), to(0, 1)};
  run_dynamic({dims({1000}), ops, swap}, in, out);
  CHECK((a == std::vector<float>(1000, 2.0f) && b == std::vector<float>(1000, 1.0f)));
  const fused_store negated[] = {to(2, 1), to(1, 0)};  // b = -a, a = b
  run_dynamic({dims({1000}), ops, negated}, in, out);
  CHECK((a == std::vector<float>(1000, 1.0f) && b == std::vector<float>(1000, -2.0f)));
}

TEST_CASE("in place: a result waits while a later operator reads what it overwrites") {
  const std::array ops = {load(f32, 0, dims({1})), load(f32, 1, dims({1})), op(scalar_code_of<negative_op>, f32, {0}),
                          op(scalar_code_of<divide_op>, f32, {1, 2})};
  std::vector<float> a(3000, 2.0f), b(3000, 6.0f);
  const void* in[] = {a.data(), b.data()};
  void* out[] = {b.data(), a.data()};
  const fused_store stores[] = {to(2, 0), to(3, 1)};  // b = -a, a = b / -a
  run_dynamic({dims({3000}), ops, stores}, in, out);
  CHECK((a == std::vector<float>(3000, -3.0f) && b == std::vector<float>(3000, -2.0f)));
}

TEST_CASE("blocks: whole rows in multiples of 64 elements, or parts of one row") {
  const auto elems = [](std::int64_t rows, std::int64_t row) { return fused_blocks(dims({rows, row}), true).elems; };
  CHECK(elems(256, 10) == 320);
  CHECK(elems(256, 128) == 512);
  CHECK(elems(9, 100) == 500);
  CHECK(elems(9, 512) == 512);
  CHECK(elems(9, 513) == 320);
  CHECK(elems(9, 0) == 512);
  CHECK(fused_blocks(dims({9, 512}), true).has_whole_rows);
  CHECK_FALSE(fused_blocks(dims({9, 513}), true).has_whole_rows);
  CHECK(fused_blocks(dims({9, 100}), false).row == 900);
  CHECK(fused_blocks(dims({}), true).elems == 512);
}
