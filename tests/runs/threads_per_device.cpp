// SPDX-License-Identifier: Apache-2.0
// labels: threads
// Devices with several threads: results have the same bits as with a single thread.
#include <doctest/doctest.h>

#include <cfenv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>

#include <gspmd/gspmd.hpp>
#include <gspmd/run/threads_per_device.hpp>

#include "support/error_of.hpp"

namespace {

using namespace gspmd;
using caught::contains;
using caught::error_of;

array<float> numbers(std::initializer_list<std::int64_t> shape, int seed) {
  array<float> a(shape);
  for (std::int64_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>((i * 7 + seed) % 23) * 0.25F - 2.5F;
  return a;
}

bool are_same(const array<float>& a, const array<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * sizeof(float)) == 0;
}
template <class... T>
bool are_same(const std::tuple<T...>& a, const std::tuple<T...>& b) {
  return [&]<std::size_t... K>(std::index_sequence<K...>) {
    return (are_same(std::get<K>(a), std::get<K>(b)) && ...);
  }(std::index_sequence_for<T...>{});
}

/// All kernels that threads share, with one or several blocks of rows, large enough to be shared.
constexpr auto everything = [](auto x, auto w) {
  const auto around = shift(x, 1, along(0)) + shift(x, -1, along(0)) + shift(x, 1, along(1)) + shift(x, -1, along(1));
  const auto centred = w - expand_dims(sum(w, 1) / 640.0F, 1);
  return std::tuple{fori_loop(
                        3, [](auto, auto u) { return u * 0.5F + shift(u, 1, along(0)); }, 2.0F * x + around),
                    sum(x * x + 1.0F),
                    sum(exp(x), 1),
                    sum(w, 0),
                    transpose(exp(x), {1, 0}),
                    relu(einsum<"ij,kj->ik">(x, w)),
                    softmax(x, 1),
                    centred * rsqrt(expand_dims(sum(centred * centred, 1), 1) + 1.0F)};
};

template <class Mesh, std::int64_t Rows, class Backend>
void check_compiled(const Backend& backend) {
  using side = input<float, shape<Rows, 640>, split<"x", _>>;
  using step = compile<everything, Mesh, side, side>;
  const auto x = numbers({Rows, 640}, 1), w = numbers({Rows, 640}, 5);
  const auto expected = run<step>(backend, x, w);
  for (const int count : {1, 2, 3}) CHECK(are_same(run<step>(threads_per_device(count, backend), x, w), expected));
}

/// All lookups, sorts and sums along lines; some indices are out of range.
constexpr auto lines_and_lookups = [](auto x, auto rows, auto columns) {
  return std::tuple{take(x, rows, 0),
                    take(x, rows, 0, out_of_range::fill, -1.0),
                    take_along_axis(x, columns, 1),
                    scatter_add(x, rows, 0.1F * x, 0),
                    segment_sum(x, rows, 40),
                    sort(x, 1),
                    sort(x, 0, {.descending = true}),
                    scan_along(x, monoid::add, 1),
                    scan_along(x, monoid::max, 1, {.exclusive = true, .reverse = true})};
};
/// The same as threads_per_device, for any amount of work.
template <class Backend>
struct sharing_everything {
  int threads;
  Backend backend;
};
template <class Backend, class F>
void launch(const sharing_everything<Backend>& on, int devices, F&& f) {
  launch(on.backend, devices, [&](auto& comm) {
    device_threads own(comm, on.threads, 1);
    auto teamed = own.of(comm);
    f(teamed);
  });
}
template <class Backend>
auto agree(const sharing_everything<Backend>& on, const error* failure) -> decltype(agree(on.backend, failure)) {
  return agree(on.backend, failure);
}

/// Pools over a batch and over planes with overlapping windows, and their gradients; the maxima of every line;
/// diagonals; values that a loop and a conditional pass on.
constexpr auto windows_and_copies = [](auto x) {
  const auto pooled = max_pool(x, {1, 3, 2, 1}, {1, 2, 2, 1}, {0, 1, 0, 0}, {0, 1, 0, 0});
  const auto [best, at] = top_k(x, 2);
  const auto swapped = fori_loop(
      3,
      [](auto, auto u, auto v) {
        return std::tuple{v, u};
      },
      x, 2.0F * x);
  return std::tuple{pooled,
                    avg_pool(x, {1, 2, 3, 1}, {1, 1, 1, 1}),
                    reduce_window(x, monoid::add, {2, 1, 1, 3}, {1, 1, 1, 1}),
                    grad(sum(pooled * pooled), x),
                    grad(sum(max_pool(x, {1, 1, 2, 2}, {1, 1, 1, 1})), x),
                    grad(sum(max_pool(x, {2, 1, 1, 1}, {1, 1, 1, 1})), x),
                    best,
                    cast<float>(at),
                    einsum<"biic->bic">(std::array{x}),
                    einsum<"biic->c">(std::array{x}),
                    std::get<0>(swapped),
                    cond(
                        sum(x) > 0.0F, [](auto u) { return u; }, [](auto u) { return -u; }, x)};
};
template <class Mesh, std::int64_t Batch, std::int64_t Channels, class Backend>
void check_windows(const Backend& backend) {
  using step = compile<windows_and_copies, Mesh, input<float, shape<Batch, 6, 6, Channels>, split<"x", _, _, _>>>;
  const auto x = numbers({Batch, 6, 6, Channels}, 1);
  const auto expected = run<step>(backend, x);
  for (const int count : {1, 2, 3, 5}) CHECK(are_same(run<step>(sharing_everything<Backend>{count, backend}, x), expected));
}

template <class Mesh, std::int64_t Rows, std::int64_t Columns, class Backend>
void check_lookups(const Backend& backend) {
  using step = compile<lines_and_lookups, Mesh, input<float, shape<Rows, Columns>, split<"x", _>>,
                       input<std::int32_t, shape<Rows>, split<"x">>, input<std::int32_t, shape<Rows, Columns>, split<"x", _>>>;
  const auto x = numbers({Rows, Columns}, 1);
  array<std::int32_t> rows({Rows}), columns({Rows, Columns});
  for (std::int64_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int32_t>((i * i) % (Rows + 2) - 1);
  for (std::int64_t i = 0; i < columns.size(); ++i) columns[i] = static_cast<std::int32_t>((i * 7) % Columns);
  const auto expected = run<step>(backend, x, rows, columns);
  for (const int count : {1, 2, 3, 5})
    CHECK(are_same(run<step>(sharing_everything<Backend>{count, backend}, x, rows, columns), expected));
}

using alone = mesh<axis<"x", 1>>;
using two = mesh<axis<"x", 2>>;

}  // namespace

TEST_CASE("threads of a device: compiled programs have the bits of one thread") { check_compiled<alone, 517>(threads{}); }

TEST_CASE("threads of a device: several devices, of which the last one has padding") { check_compiled<two, 131>(threads{}); }

TEST_CASE("threads of a device: lookups, sorts and scans have the bits of one thread, of fewer rows than threads too") {
  check_lookups<alone, 37, 19>(serial{});
  check_lookups<alone, 1, 19>(serial{});
  check_lookups<two, 3, 16>(threads{});
}

TEST_CASE("threads of a device: pools, largest elements and copies have the bits of one thread") {
  check_windows<alone, 9, 5>(serial{});
  check_windows<alone, 2, 4>(serial{});
  check_windows<two, 3, 3>(threads{});
}

TEST_CASE("threads of a device: a step object goes from one team to another, and back to none") {
  constexpr auto norm = [](auto x, auto w) { return std::tuple{softmax(x + w, 1), sum(x * w)}; };
  using side = input<float, shape<64, 640>>;
  compile<norm, alone, side, side> step;
  const auto x = numbers({64, 640}, 1), w = numbers({64, 640}, 5);
  array<float> y({64, 640}), expected({64, 640}), z({}), of_sum({});
  launch(serial{}, 1, [&](auto& comm) {
    step(comm, x, w, expected, of_sum);
    device_threads more(comm, 3, 1), fewer(comm, 2, 1);
    CHECK(more.count() == 3);
    for (int repeat = 0; repeat < 2; ++repeat)
      for (auto* const own : {&more, &fewer}) {
        auto teamed = own->of(comm);
        step(teamed, x, w, y, z);
        CHECK(are_same(y, expected));
        CHECK(are_same(z, of_sum));
      }
    step(comm, x, w, y, z);
    CHECK(are_same(y, expected));

    // The helpers of `more` have run already. They round as the caller does from now on.
    array<float> upward({64, 640});
    auto teamed = more.of(comm);
    std::fesetround(FE_UPWARD);
    step(comm, x, w, upward, of_sum);
    step(teamed, x, w, y, z);
    std::fesetround(FE_TONEAREST);
    CHECK(!are_same(upward, expected));
    CHECK(are_same(y, upward));
    step(teamed, x, w, y, z);
    CHECK(are_same(y, expected));
  });
}

namespace {

/// The floating-point environment of the calling thread, by its effects.
struct float_effects {
  int rounding = std::fegetround();
  bool keeps_small = true, rounds_up = false;  // of float arithmetic: keeps subnormal results; rounds to nearest, or up

  float_effects() {
    volatile float small = 1e-38F, half = 0.5F, one = 1, little = 1e-10F;
    keeps_small = small * half != 0.0F;
    rounds_up = one + little > 1.0F;
  }
  friend bool operator==(const float_effects&, const float_effects&) = default;
};

}  // namespace

TEST_CASE("threads of a device: helpers work in the floating-point environment of the caller, not in that of their creation") {
  detail::thread_team team(3, false);
  float_effects found[3];
  const auto check_all = [&](const float_effects& wanted) {
    team.run([&](int k) {
      found[k] = {};
      if (k == 1) std::fesetround(FE_TOWARDZERO);  // inside one job: the next job begins with the caller's mode again
    });
    for (const auto& one : found) CHECK(one == wanted);
  };
  const float_effects usual;
  CHECK((usual.rounding == FE_TONEAREST && usual.keeps_small && !usual.rounds_up));
  check_all(usual);
  std::fesetround(FE_UPWARD);
  const float_effects upward;
  CHECK((upward.rounding == FE_UPWARD && upward.rounds_up));
  check_all(upward);
  std::fesetround(FE_TONEAREST);
  check_all(usual);
#if defined(__SSE__)
  const auto before = _mm_getcsr();
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  const float_effects flushed;
  CHECK(!flushed.keeps_small);
  check_all(flushed);
  _mm_setcsr(before);
  check_all(usual);
#endif
}

TEST_CASE("threads: the threads of a launch begin in the floating-point environment of the caller") {
  float_effects found[3];
  std::fesetround(FE_UPWARD);
  const float_effects upward;
  launch(threads{}, 3, [&](auto& comm) { found[comm.device(0)] = {}; });
  std::fesetround(FE_TONEAREST);
  for (const auto& one : found) CHECK(one == upward);
}

TEST_CASE("threads of a device: what one of them throws reaches the caller as one error") {
  static constexpr auto refuse = [](float a) {
    if (a == 7) throw std::runtime_error("an unlucky number");
    return a;
  };
  using step = compile<[](auto x) { return map(refuse, x); }, alone, input<float, shape<300000>>>;
  array<float> x({300000});
  for (const std::int64_t at : {0, 299999, 150000}) {
    x[at] = 7;
    const auto message = error_of([&] { static_cast<void>(run<step>(threads_per_device(3, serial{}), x)); });
    CHECK(contains(message, "an unlucky number"));
    CHECK(contains(message, "map"));
    x[at] = 1;
  }
  CHECK(are_same(run<step>(threads_per_device(3, serial{}), x), x));
}

TEST_CASE("threads of a device: none at all is refused") {
  using step = compile<[](auto x) { return x + x; }, alone, input<float, shape<3>>>;
  const array<float> x({3});
  CHECK(contains(error_of([&] { static_cast<void>(run<step>(threads_per_device(0, serial{}), x)); }),
                 "a device has 0 threads; give it one or more"));
}
