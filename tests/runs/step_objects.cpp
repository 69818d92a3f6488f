// SPDX-License-Identifier: Apache-2.0
// labels: threads
// group: map
// Objects that are used otherwise than they are meant: steps, arrays, launches.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/detail/kernels/blas_threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/session.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/layouts/placed_array.hpp>

#include "support/error_of.hpp"

using namespace gspmd;

namespace {

using caught::contains;
using caught::error_of;

template <int N>
using line = mesh<axis<"x", N>>;

constexpr auto sums = [](value a, value b) { return std::tuple{sum(a + b), a * 2.0f, b - a}; };
template <int N>
using step = compile<sums, line<N>, input<float, shape<8>, split<"x">>, input<float, shape<8>, split<"x">>>;

/// Memory of a device for `step`: two inputs, three outputs.
struct buffers {
  std::vector<float> a = std::vector<float>(8, 1.0f), b = std::vector<float>(8, 2.0f), total = std::vector<float>(1),
                     twice = std::vector<float>(8), less = std::vector<float>(8);
};

// ---- one step, another communicator ----

TEST_CASE("a step refuses to run when the communicator has other devices than its mesh") {
  std::vector<step<4>> held(4);
  std::vector<buffers> memory(4);
  const auto call = [&](auto& comm) {
    const auto d = static_cast<std::size_t>(comm.device(0));
    auto& m = memory[d];
    held[d](comm, m.a.data(), m.b.data(), m.total.data(), m.twice.data(), m.less.data());
  };
  launch(threads{}, 4, call);
  CHECK(memory[3].total[0] == 24.0f);
  CHECK(contains(error_of([&] { launch(threads{}, 2, call); }), "the mesh has 4 devices but the communicator has 2 ranks"));
  launch(threads{}, 4, call);
  CHECK(memory[0].total[0] == 24.0f);
}

/// Devices of a mesh in another order, as a communicator may hold them.
struct some_devices : simulated_communicator {
  using simulated_communicator::simulated_communicator;
  int last = 1;
  [[nodiscard]] int device(int i) const { return i == 1 ? last : i == last ? 1 : i; }
};
TEST_CASE("a step follows a communicator whose first device alone is the same") {
  detail::bound_devices devices;
  some_devices comm(3);
  devices.bind(comm, step<3>::view);
  CHECK(devices.devices[1].at[0] == 1);
  comm.last = 2;
  devices.bind(comm, step<3>::view);
  CHECK(devices.devices[1].at[0] == 2);
}

// ---- memory ----

TEST_CASE("memory that overlaps is refused") {
  buffers m;
  const auto problem_of = [&](const float* a, const float* b, float* total, float* twice, float* less) {
    return error_of([&] {
      simulated_communicator comm(1);
      step<1>{}(comm, a, b, total, twice, less);
    });
  };
  float *a = m.a.data(), *b = m.b.data(), *total = m.total.data(), *twice = m.twice.data(), *less = m.less.data();
  CHECK(problem_of(a, b, total, twice, less) == "no error");
  CHECK(problem_of(a, a, total, twice, less) == "no error");  // both are only read
  CHECK(contains(problem_of(a, b, total, twice, twice),
                 "outputs 1 and 2 are given memory that overlaps; every output needs memory of its own"));
  CHECK(contains(problem_of(a, b, twice + 7, twice, less), "outputs 0 and 1 are given memory that overlaps"));
  static_assert(step<1>::can_alias<2, 0> && step<1>::can_alias<2, 1>);
  CHECK(problem_of(a, b, total, twice, a) == "no error");
  CHECK(problem_of(a, b, total, twice, b) == "no error");
  std::vector<float> twelve(12, 1.0f);
  CHECK(
      contains(problem_of(a, twelve.data(), total, twice, twelve.data() + 4), "output 2 is given memory that overlaps input 1"));
  CHECK(contains(problem_of(nullptr, b, total, twice, less), "input 0 is given no memory: the pointer is null"));
  CHECK(contains(problem_of(a, b, total, nullptr, less), "output 1 is given no memory: the pointer is null"));
}

TEST_CASE("an output in the memory of an input that is read later is refused") {
  constexpr auto product = [](value w, value x) { return einsum<"ij,j->i">(w, x); };
  using rows = compile<product, line<1>, input<float, shape<3, 3>>, input<float, shape<3>>>;
  static_assert(!rows::can_alias<0, 1> && rows::shared_input<0> == -1);
  std::vector<float> w(9, 1.0f), x(3, 1.0f);
  simulated_communicator comm(1);
  CHECK(contains(error_of([&] { rows{}(comm, w.data(), x.data(), x.data()); }),
                 "output 0 is given the memory of input 1, which is read after the output is written"));
  CHECK(
      contains(error_of([&] { rows{}(comm, w.data(), x.data(), w.data()); }), "output 0 is given memory that overlaps input 0"));
}

TEST_CASE("memory is looked at again when it changes, and devices of one process must not write to each other's") {
  std::vector<buffers> memory(2);
  step<2> held;
  simulated_communicator comm(2);
  const auto problem_of = [&](float* last) {
    return error_of([&] {
      std::vector<const void*> in;
      std::vector<void*> out;
      for (auto& m : memory) {
        in.insert(in.end(), {m.a.data(), m.b.data()});
        out.insert(out.end(), {m.total.data(), m.twice.data(), m.less.data()});
      }
      out.back() = last;
      held.run(comm, in.data(), out.data());
    });
  };
  float* const own = memory[1].less.data();
  for (int round = 0; round < 3; ++round) {
    CHECK(problem_of(own) == "no error");
    CHECK(contains(problem_of(memory[0].less.data()), "output 2 is given overlapping memory on two devices"));
    CHECK(contains(problem_of(memory[0].less.data()), "output 2 is given overlapping memory on two devices"));
    CHECK(contains(problem_of(memory[0].a.data()), "output 2 is given memory that overlaps input 0"));
  }
}

TEST_CASE("empty arrays, and what was moved from") {
  simulated_communicator comm(2);
  const auto x = distribute<step<2>, 0>(comm, std::vector<float>(8, 1.0f));
  auto total = make_result<step<2>, 0>(comm), twice = make_result<step<2>, 1>(comm), less = make_result<step<2>, 2>(comm);
  step<2> held;
  auto y = distribute<step<2>, 1>(comm, std::vector<float>(8, 2.0f));
  const auto taken = std::move(y);
  CHECK(contains(error_of([&] { held(comm, x, y, total, twice, less); }), "input 1 is an empty sharded_array"));
  sharded_array<float> never;
  CHECK(contains(error_of([&] { held(comm, x, taken, total, never, less); }), "output 1 is an empty sharded_array"));
  CHECK(contains(error_of([&] { collect(comm, never); }), "sharded_array: it is empty, never filled or moved from"));
  CHECK(contains(error_of([&] { static_cast<void>(never.shape()); }), "it is empty"));
  CHECK(contains(error_of([&] { static_cast<void>(never.data()); }), "it is empty"));
  CHECK(contains(error_of([&] { static_cast<void>(x.shard(2)); }), "device 2 does not exist; the array is on 2 devices"));
  held(comm, x, taken, total, twice, less);
  step<2> other(std::move(held));  // both may go on
  held(comm, x, taken, total, twice, less);
  other(comm, x, taken, total, twice, less);
  CHECK(total.data(1)[0] == 24.0f);

  array<float> whole({8});
  const array<float> kept(std::move(whole));
  CHECK(whole.size() == 0);
  CHECK(array<float>(whole).size() == 0);
  CHECK(contains(error_of([&] { run<step<2>>(simulated{}, kept, whole); }), "the array given"));
  CHECK(contains(error_of([&] { run<step<2>>(simulated{}, kept, static_cast<const float*>(nullptr)); }),
                 "input 1 is given no memory: the pointer is null"));

  const placed_layout<block_cyclic<2>> rows(line<2>::info.shape, detail::extents_of(std::vector<std::int64_t>{8}),
                                            step<2>::input_shard<0>::layout, block_cyclic<2>{});
  auto placed = distribute(comm, rows, kept);
  const auto moved_to = std::move(placed);
  CHECK(contains(error_of([&] { collect(comm, placed); }), "placed_array: device 0 does not exist"));
  CHECK(collect(comm, moved_to).size() == 8);
}

TEST_CASE("a program and a session may be used after they were moved from") {
  auto program =
      dynamic::compile([](value x) { return tanh(x) * 2.0f; }, dynamic::mesh({{"x", 2}}), dynamic::input<float>({4}, {"x"}));
  const std::vector<float> x(4, 0.5f);
  const auto wanted = program.run(simulated{}, x)[0].bytes;
  {
    const auto taken = std::move(program);
    CHECK(taken.run(simulated{}, x)[0].bytes == wanted);
  }
  CHECK(program.run(simulated{}, x)[0].bytes == wanted);
  dynamic::session first(program);
  dynamic::session second(std::move(first));
  simulated_communicator comm(2);
  std::array<float, 2> in{0.5f, 0.5f}, out[2];
  for (auto* s : {&first, &second}) {
    out[0].fill(0);
    const void* inputs[] = {in.data(), in.data()};
    void* outputs[] = {out[0].data(), out[1].data()};
    s->run(comm, inputs, outputs);
    CHECK(std::memcmp(out[0].data(), wanted.data(), sizeof in) == 0);
  }
}

// ---- threads ----

TEST_CASE("one step object for two devices at once is refused") {
  step<2> shared;
  std::vector<buffers> memory(2);
  CHECK(contains(error_of([&] {
                   launch(threads{}, 2, [&](auto& comm) {
                     auto& m = memory[static_cast<std::size_t>(comm.device(0))];
                     shared(comm, m.a.data(), m.b.data(), m.total.data(), m.twice.data(), m.less.data());
                   });
                 }),
                 "this object is already running"));
  std::vector<step<2>> held(2);  // and is free again
  launch(threads{}, 2, [&](auto& comm) {
    const auto d = static_cast<std::size_t>(comm.device(0));
    auto& m = memory[d];
    held[d](comm, m.a.data(), m.b.data(), m.total.data(), m.twice.data(), m.less.data());
  });
  simulated_communicator all(2);
  std::vector<const void*> in;
  std::vector<void*> out;
  for (auto& m : memory) {
    in.insert(in.end(), {m.a.data(), m.b.data()});
    out.insert(out.end(), {m.total.data(), m.twice.data(), m.less.data()});
  }
  shared.run(all, in.data(), out.data());
  CHECK(memory[1].total[0] == 24.0f);
}

TEST_CASE("a session that a function of its own program calls is refused") {
  dynamic::session* running = nullptr;
  const auto again = [&running](float x) {
    if (running != nullptr) {
      simulated_communicator comm(1);
      running->run(comm, nullptr, nullptr);
    }
    return x;
  };
  const auto program =
      dynamic::compile([&](value x) { return map(again, x); }, dynamic::mesh({{"x", 1}}), dynamic::input<float>({2}));
  dynamic::session s(program);
  running = &s;
  simulated_communicator comm(1);
  const float in[2] = {1, 2};
  float out[2];
  const void* inputs[] = {in};
  void* outputs[] = {out};
  CHECK(contains(error_of([&] { s.run(comm, inputs, outputs); }), "this object is already running"));
  running = nullptr;
  s.run(comm, inputs, outputs);
  CHECK(out[1] == 2);
}

// ---- exceptions ----

struct own_exception {
  int number;
};
/// Returns the kind of `thrown` after a launch: 1 for bad_alloc, the number of an own_exception, 0 for other
/// exceptions.
template <class Backend, class Thrown>
int arrives(const Backend& backend, int devices, const Thrown& thrown) {
  try {
    launch(backend, devices, [&](auto& comm) {
      if (comm.device(0) == comm.device_count() - 1 || comm.local_count() > 1) throw thrown;
      comm.barrier();
    });
  } catch (const std::bad_alloc&) {
    return 1;
  } catch (const own_exception& e) {
    return e.number;
  } catch (...) {
    return 0;
  }
  return -1;
}

TEST_CASE("what a device throws arrives as it is, on every backend") {
  const own_exception own{42};
  CHECK(arrives(serial{}, 1, own) == 42);
  CHECK(arrives(simulated{}, 3, own) == 42);
  CHECK(arrives(threads{}, 1, own) == 42);
  CHECK(arrives(threads{}, 3, own) == 42);
  CHECK(arrives(serial{}, 1, std::bad_alloc()) == 1);
  CHECK(arrives(simulated{}, 3, std::bad_alloc()) == 1);
  CHECK(arrives(threads{}, 3, std::bad_alloc()) == 1);
}

TEST_CASE("what a map throws arrives alike: a std::exception with the operator, anything else as it is") {
  const auto throws_in_map = [](const auto& backend, int devices, auto thrown) {
    const auto broken = [thrown](float) -> float { throw thrown; };
    const auto p = dynamic::compile([&](value x) { return map(broken, x); }, dynamic::mesh({{"x", devices}}),
                                    dynamic::input<float>({6}, {"x"}));
    try {
      p.run(backend, std::vector<float>(6));
    } catch (const error& e) {
      return e.op() + ": " + e.text();
    } catch (const own_exception& e) {
      return std::to_string(e.number);
    }
    return std::string();
  };
  for (const auto& text : {throws_in_map(serial{}, 1, std::bad_alloc()), throws_in_map(simulated{}, 2, std::bad_alloc()),
                           throws_in_map(threads{}, 2, std::bad_alloc())})
    CHECK(text == "map: std::bad_alloc");
  for (const auto& text : {throws_in_map(serial{}, 1, own_exception{7}), throws_in_map(simulated{}, 2, own_exception{7}),
                           throws_in_map(threads{}, 2, own_exception{7})})
    CHECK(text == "7");
}

// ---- the BLAS ----

#if defined(GSPMD_HAS_CBLAS)
TEST_CASE("the BLAS has one thread for each device of a process, and those of before when they are through") {
  int (*volatile asked)() = &openblas_get_num_threads;
  if (asked == nullptr) return;  // another BLAS
  const int before = detail::set_blas_threads(2);
  const auto now = [&] { return asked(); };
  REQUIRE(now() == 2);
  using product = compile<[](value a, value b) { return einsum<"ab,bc->ac">(a, b); }, line<2>,
                          input<float, shape<64, 64>, split<"x", _>>, input<float, shape<64, 64>>>;
  using alone = compile<[](value a, value b) { return einsum<"ab,bc->ac">(a, b); }, line<1>, input<float, shape<64, 64>>,
                        input<float, shape<64, 64>>>;
  const std::vector<float> x(64 * 64, 1.0f);
  run<alone>(serial{}, x, x);
  CHECK(now() == 2);
  run<product>(simulated{}, x, x);
  CHECK(now() == 2);
  run<product>(threads{}, x, x);
  CHECK(now() == 2);
  std::atomic<int> thread_count{0};
  launch(threads{}, 2, [&](auto&) { thread_count += now(); });
  CHECK(thread_count == 2);
  launch(threads{}, 1, [&](auto&) { CHECK(now() == 2); });
  launch(threads{}, 2, [&](auto& comm) {
    if (comm.device(0) == 0) launch(threads{}, 2, [](auto&) {});
    comm.barrier();
    CHECK(now() == 1);  // what ended was not the last one
    comm.barrier();
  });
  CHECK_THROWS_AS(launch(threads{}, 2, [](auto&) { throw own_exception{0}; }), const own_exception&);
  CHECK(now() == 2);
  detail::set_blas_threads(before);
}
#endif

}  // namespace
