// SPDX-License-Identifier: Apache-2.0
// labels: threads
// Devices of several threads: results have the bits of one thread.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/threads_per_device.hpp>

#include "support/error_of.hpp"
#include "support/run_random.hpp"

namespace {

using namespace gspmd;
using caught::contains;
using caught::error_of;

/// Every step that threads can share is shared, however small it is.
constexpr std::int64_t all_work = 1;

/// Calls body(comm) on each of `devices` devices, which have so many threads.
template <class Backend, class Body>
void on_teams(const Backend& backend, int devices, int count, const Body& body) {
  launch(backend, devices, [&](auto& comm) {
    device_threads own(comm, count, all_work);
    auto teamed = own.of(comm);
    body(teamed);
  });
}

/// The outputs of a random program, those of all devices: by the reference they are right, and in memory of their own they have these bits.
template <class Backend>
std::vector<std::vector<std::byte>> random_outputs(const Backend& backend, const reference::random_program& program,
                                                   const detail::plan_view& plan, int count, std::string& wrong) {
  std::vector<std::vector<std::byte>> all;
  std::mutex mutex;
  on_teams(backend, program.device_count(), count, [&](auto& comm) {
    reference::bound_program bound(comm, program, plan);
    for (int repeat = 0; repeat < 2; ++repeat) bound.run(comm);
    const auto found = reference::run_and_check(comm, program, plan);
    const std::lock_guard lock(mutex);
    if (wrong.empty()) wrong = found;
    if (comm.device(0) == 0) all = bound.outputs();
  });
  return all;
}

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

/// Programs of the kernels that threads share, whose work is large enough to be shared by a threshold as it is.
constexpr auto loops = [](auto x, auto w) {
  const auto around = shift(x, 0, 1) + shift(x, 0, -1) + shift(x, 1, 1) + shift(x, 1, -1);
  return std::tuple{2.0F * x + around, fori_loop(
                                           3, [](auto, auto u) { return u * 0.5F + shift(u, 0, 1); }, w)};
};
constexpr auto reductions = [](auto x, auto w) {
  return std::tuple{sum(x * x + 1.0F), sum(exponential(x), 1), sum(x * w, 0), reduce(x, monoid::maximum, 1), sum(x), sum(w, 0)};
};
constexpr auto products = [](auto x, auto w) {
  return std::tuple{relu(einsum<"ij,kj->ik">(x, w)), einsum<"ij,ik->jk">(x, w), einsum<"ij,ij->i">(x, w)};
};
constexpr auto rows = [](auto x, auto w) {
  const auto centred = x - expand_dims(sum(x, 1) / 640.0F, 1);
  return std::tuple{softmax(x, 1), centred * rsqrt(expand_dims(sum(centred * centred, 1), 1) + 1.0F) * w};
};

template <auto Program, class Mesh, std::int64_t Rows, std::int64_t Columns, class Backend>
void check_compiled(const char* name, const Backend& backend) {
  INFO(name, " ", Rows, " x ", Columns);
  using side = in<float, dims<Rows, Columns>, split<"x", _>>;
  using step = compile<Program, Mesh, side, side>;
  const auto x = numbers({Rows, Columns}, 1), w = numbers({Rows, Columns}, 5);
  const auto expected = run<step>(backend, x, w);
  for (const int count : {1, 2, 3}) CHECK(are_same(run<step>(threads_per_device(count, backend), x, w), expected));
}

using alone = mesh<axis<"x", 1>>;
using two = mesh<axis<"x", 2>>;

}  // namespace

TEST_CASE("threads of a device: random programs have the bits of one thread") {
  const auto first = reference::setting("GSPMD_SEED", 1), count = reference::programs(400);
  std::uint64_t shared = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    const reference::random_program program(seed);
    const auto plan = detail::make_plan(program.g, program.mesh, {});
    const detail::plan_view view(plan);
    const auto steps = detail::find_shared_steps(view, all_work, [](std::size_t) { return false; });
    for (const auto is_shared : steps) shared += is_shared;
    std::string wrong;
    const bool few = program.device_count() <= 4 && seed % 4 == 0;
    const auto expected = random_outputs(simulated{}, program, view, 1, wrong);
    const int most = 2 + static_cast<int>(seed % 3);
    const auto outputs = random_outputs(simulated{}, program, view, most, wrong);
    if (few) static_cast<void>(random_outputs(threads{}, program, view, most, wrong));
    if (!wrong.empty()) FAIL_CHECK("seed ", seed, ", ", most, " threads: ", wrong);
    CHECK_MESSAGE(outputs == expected, "seed ", seed, ", ", most, " threads: other bits\n", program.describe());
  }
  CHECK(shared > count);
}

TEST_CASE("threads of a device: compiled programs have the bits of one thread") {
  check_compiled<loops, alone, 67, 1003>("loops", self{});
  check_compiled<reductions, alone, 1027, 96>("reductions", self{});
  check_compiled<products, alone, 131, 257>("products", threads{});
  check_compiled<rows, alone, 517, 640>("rows", self{});
}

TEST_CASE("threads of a device: several devices, whose last rows are padding") {
  check_compiled<loops, two, 67, 1003>("loops", threads{});
  check_compiled<reductions, two, 1027, 96>("reductions", threads{});
  check_compiled<rows, two, 517, 640>("rows", simulated{});
}

TEST_CASE("threads of a device: a step object goes from one team to another, and back to none") {
  using side = in<float, dims<64, 640>>;
  compile<rows, alone, side, side> step;
  const auto x = numbers({64, 640}, 1), w = numbers({64, 640}, 5);
  array<float> y({64, 640}), z({64, 640}), expected({64, 640}), of_norm({64, 640});
  launch(self{}, 1, [&](auto& comm) {
    step(comm, x, w, expected, of_norm);
    device_threads more(comm, 3, all_work), fewer(comm, 2, all_work);
    CHECK(more.count() == 3);
    for (int repeat = 0; repeat < 2; ++repeat)
      for (auto* const own : {&more, &fewer}) {
        auto teamed = own->of(comm);
        step(teamed, x, w, y, z);
        CHECK(are_same(y, expected));
        CHECK(are_same(z, of_norm));
      }
    step(comm, x, w, y, z);
    CHECK(are_same(y, expected));
  });
}

TEST_CASE("threads of a device: sessions, checked ones too") {
  const auto program = dynamic::compile(rows, dynamic::mesh({{"x", 2}}), dynamic::in<float>({517, 640}, {"x", ""}),
                                        dynamic::in<float>({517, 640}, {"x", ""}));
  const auto x = numbers({517, 640}, 1), w = numbers({517, 640}, 5);
  const auto expected = program.run(threads{}, x, w), shared = program.run(threads_per_device(2, threads{}), x, w);
  for (std::size_t k = 0; k < 2; ++k)
    CHECK(std::memcmp(expected[k].data<float>(), shared[k].data<float>(), 517 * 640 * sizeof(float)) == 0);
}

TEST_CASE("threads of a device: what one of them throws reaches the caller as one error") {
  static constexpr auto refuse = [](float a) {
    if (a == 7) throw std::runtime_error("an unlucky number");
    return a;
  };
  using step = compile<[](auto x) { return map(refuse, x); }, alone, in<float, dims<300000>>>;
  array<float> x({300000});
  for (const std::int64_t at : {0, 299999, 150000}) {
    x[at] = 7;
    const auto message = error_of([&] { static_cast<void>(run<step>(threads_per_device(3, self{}), x)); });
    CHECK(contains(message, "an unlucky number"));
    CHECK(contains(message, "map"));
    x[at] = 1;
  }
  CHECK(are_same(run<step>(threads_per_device(3, self{}), x), x));
}

TEST_CASE("threads of a device: none at all is refused") {
  using step = compile<[](auto x) { return x + x; }, alone, in<float, dims<3>>>;
  const array<float> x({3});
  CHECK(contains(error_of([&] { static_cast<void>(run<step>(threads_per_device(0, self{}), x)); }),
                 "a device has 0 threads; give it one or more"));
}
