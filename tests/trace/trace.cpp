// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// The log of a traced run equals the plan: the number and bytes of every collective, on every device. The results equal
// those of an untraced run.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/report/measure_network.hpp>
#include <gspmd/trace.hpp>

#include "support/error_of.hpp"
#include "support/sanitized.hpp"

namespace {

using namespace gspmd;
using caught::contains;
using caught::error_of;

array<float> numbers(std::initializer_list<std::int64_t> shape) {
  array<float> a(shape);
  for (std::int64_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7) - 3;
  return a;
}

/// Products whose sums are reduced, and a loop with a reduction in every iteration.
constexpr auto layer = [](auto x, auto w, auto v) {
  auto h = relu(einsum<"bd,df->bf">(x, w));
  auto y = fori_loop(
      3, [&](auto, auto u) { return tanh(einsum<"bf,fd->bd">(einsum<"bd,df->bf">(u, w), v)); }, einsum<"bf,fd->bd">(h, v));
  return std::tuple{y, sum(y)};
};

struct layers {
  dynamic::mesh on;
  dynamic::program program = dynamic::compile(layer, on, dynamic::input<float>({6, 5}, {"x", ""}),
                                              dynamic::input<float>({5, 8}, {"", "y"}), dynamic::input<float>({8, 5}, {"y", ""}));
  array<float> x = numbers({6, 5}), w = numbers({5, 8}), v = numbers({8, 5});

  template <class Backend>
  auto run(const Backend& backend) const {
    return program.run(backend, x, w, v);
  }
};

/// Returns the number and bytes of each collective of a plan.
std::map<std::string, std::int64_t> planned(const dynamic::program& program) {
  std::map<std::string, std::int64_t> all;
  for (const auto& s : program.view().steps)
    if (detail::communicates(s)) all[name_of(s.collective) + std::string(" ") + std::to_string(s.bytes_sent)] += s.times;
  return all;
}
/// Returns the same from the events of one device.
std::map<std::string, std::int64_t> seen(const std::string& json, int device) {
  std::map<std::string, std::int64_t> all;
  const auto after = [](const std::string& line, const std::string& key, char end) {
    const auto at = line.find(key) + key.size();
    return line.substr(at, line.find_first_of(std::string(1, end) + '}', at) - at);
  };
  for (std::size_t at = 0; at < json.size();) {
    const auto end = json.find('\n', at);
    const std::string line = json.substr(at, end - at);
    at = end + 1;
    if (contains(line, "\"bytes\": ") && contains(line, "\"tid\": " + std::to_string(device) + ','))
      ++all[after(line, "{\"name\": \"", '"') + ' ' + after(line, "\"bytes\": ", ',')];
  }
  return all;
}

}  // namespace

TEST_CASE("trace: collectives as often as planned, with their bytes, on every device; results as without") {
  for (const auto& mesh :
       {dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::mesh({{"x", 3}, {"y", 1}}), dynamic::mesh({{"x", 1}, {"y", 1}})}) {
    const layers all{mesh};
    const auto expected = all.run(simulated{});
    run_trace watched;
    for (int repeat = 0; repeat < 2; ++repeat) {
      const auto result = all.run(traced(threads{}, watched));
      for (std::size_t k = 0; k < expected.size(); ++k) CHECK(result[k].bytes == expected[k].bytes);
    }
    auto wanted = planned(all.program);
    for (auto& [name, times] : wanted) times *= 2;
    for (int d = 0; d < static_cast<int>(mesh.device_count()); ++d) CHECK(seen(watched.json(), d) == wanted);
    CHECK(watched.left_out() == 0);
    CHECK(contains(watched.table(), "einsum"));
    CHECK(contains(watched.table(), "all_reduce") == !wanted.empty());
    watched.clear();
    CHECK(watched.size() == 0);
  }
}

TEST_CASE("trace: all devices in one thread, several programs, no room for all steps") {
  const layers all{dynamic::mesh({{"x", 2}, {"y", 2}})}, one{dynamic::mesh({{"x", 1}, {"y", 1}})};
  run_trace watched(20);
  static_cast<void>(all.run(traced(simulated{}, watched)));
  const auto first = watched.left_out();
  CHECK(watched.size() == 20);
  CHECK(first > 0);
  static_cast<void>(one.run(traced(serial{}, watched)));
  CHECK(watched.size() == 20);
  CHECK(watched.left_out() > first);

  run_trace roomy;
  static_cast<void>(all.run(traced(simulated{}, roomy)));
  CHECK(seen(roomy.json(), 0) == planned(all.program));
  const auto steps = roomy.size();
  static_cast<void>(one.run(traced(serial{}, roomy)));
  static_cast<void>(all.run(traced(simulated{}, roomy)));
  CHECK(roomy.size() > 2 * steps);
  CHECK(contains(roomy.table(1), "more kinds"));
}

TEST_CASE("trace: a profiler is told of every step, each begins before it ends") {
  const layers one{dynamic::mesh({{"x", 1}, {"y", 1}})};
  run_trace watched;
  int open = 0, deepest = 0;
  std::int64_t count = 0;
  watched.mark(
      [&](const char* name) {
        CHECK(std::string(name) != "");
        ++count;
        deepest = std::max(deepest, ++open);
      },
      [&] { --open; });
  static_cast<void>(one.run(traced(serial{}, watched)));
  CHECK(open == 0);
  CHECK(deepest == 2);  // steps of the loop
  CHECK(count == static_cast<std::int64_t>(watched.size()));
}

TEST_CASE("trace: where a step throws, the profiler is told that it has ended") {
  run_trace watched;
  int open = 0;
  watched.mark([&](const char*) { ++open; }, [&] { --open; });
  const auto fails = [](auto x) {
    return fori_loop(
        2, [](auto, auto u) { return map([](double v) -> double { throw error("no " + std::to_string(v)); }, u); }, x);
  };
  const auto program = dynamic::compile(fails, dynamic::mesh({{"x", 1}}), dynamic::input<double>({2}));
  array<double> x({2});
  CHECK(contains(error_of([&] { static_cast<void>(program.run(traced(serial{}, watched), x)); }), "no 0"));
  CHECK(open == 0);
}

TEST_CASE("trace: the same program on another network has other estimates, in rows of their own") {
  const dynamic::mesh plain({{"x", 2}, {"y", 2}});
  const network slow(1e12, 1e6, 1e-3);
  const layers one{plain}, other{plain.with({.network = slow})};
  run_trace watched;
  static_cast<void>(one.run(traced(simulated{}, watched)));
  const auto rows = [&] {
    const auto table = watched.table();
    return std::count(table.begin(), table.end(), '\n');
  };
  const auto before = rows();
  static_cast<void>(other.run(traced(simulated{}, watched)));
  CHECK(rows() > before);
}

TEST_CASE("trace: a checked program is checked while it is traced") {
  using pod = mesh<axis<"x", 2>>;
  constexpr auto twice = [](auto x) { return x + x; };
  using step = gspmd::compile<twice, pod, with<options{.checked = true}>, input<float, shape<4>>>;
  run_trace watched;
  const auto text = error_of([&] {
    launch(threads{}, 2, [&](auto& comm) {
      auto on = watched.of(comm);
      step s;
      std::vector<float> x(4, comm.device(0) == 1 ? 2.0F : 1.0F), y(4);
      s(on, x, y);
    });
  });
  CHECK(contains(text, "devices hold different data"));
}

TEST_CASE("measure_network: positive rates, the same on all devices, for plans") {
  const auto measured_by = [](auto backend, int devices) {
    std::mutex mutex;
    std::set<std::vector<double>> found;
    launch(backend, devices, [&](auto& comm) {
      const network here = measure_network(comm);
      const dynamic::mesh on = dynamic::mesh({{"x", comm.device_count()}}).with({.network = here});
      const auto program = dynamic::compile([](auto x) { return sum(x); }, on, dynamic::input<float>({8}, {"x"}));
      CHECK(program.traffic().bytes >= 0);
      const std::lock_guard lock(mutex);
      const auto& link = here.link("x");
      found.insert({here.flops_per_second(), here.memory_bytes_per_second(), link.bytes_per_second, link.seconds_per_message});
    });
    REQUIRE(found.size() == 1);
    for (std::size_t k = 0; k < 3; ++k) CHECK((*found.begin())[k] > 0);
    CHECK((*found.begin())[3] >= 0);
  };
  measured_by(threads{}, 3);
  if (reference::is_sanitized) return;  // each uses products and sums of large arrays, which take ten times as long
  measured_by(simulated{}, 2);
  measured_by(serial{}, 1);
}
