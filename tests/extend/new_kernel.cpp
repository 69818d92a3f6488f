// SPDX-License-Identifier: Apache-2.0
// labels: once
// group: compiled
// alone: yes
#include "extend/new_kernel/median.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/run/threads_per_device.hpp>

// A kernel that is defined wholly here runs in compiled programs, in programs planned at run time, and on the
// threads of a device.

using namespace gspmd;

namespace {

constexpr auto program = [](auto x) { return std::tuple{new_kernel::median_of(x), new_kernel::median_of(x * 2.0 + 1.0)}; };
constexpr std::size_t lines = 41, length = 512;
using step = compile<program, mesh<axis<"x", 2>>, input<double, shape<41, 512>, split<"x", _>>>;

struct data {
  std::vector<double> x = std::vector<double>(lines * length), medians = std::vector<double>(lines);
  data() {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * 7919 % 10007) - 5000;
    for (std::size_t l = 0; l < lines; ++l) {
      std::vector<double> line(&x[l * length], &x[l * length] + length);
      std::sort(line.begin(), line.end());
      medians[l] = line[(length - 1) / 2];
    }
  }
};

template <class Backend>
void check(const Backend& backend) {
  const data d;
  const auto [first, second] = run<step>(backend, d.x);
  const auto planned =
      dynamic::compile(program, dynamic::mesh({{"x", 2}}),
                       dynamic::input<double>({static_cast<std::int64_t>(lines), static_cast<std::int64_t>(length)}, {"x", ""}));
  const auto at_run_time = planned.run(backend, d.x);
  for (std::size_t l = 0; l < lines; ++l) {
    CHECK(first.data()[l] == d.medians[l]);
    CHECK(second.data()[l] == d.medians[l] * 2 + 1);
    CHECK(at_run_time[0].template data<double>()[l] == d.medians[l]);
    CHECK(at_run_time[1].template data<double>()[l] == d.medians[l] * 2 + 1);
  }
}

}  // namespace

TEST_CASE("a kernel of the tests' own runs on both paths") {
  check(simulated{});
  check(threads{});
}

TEST_CASE("the threads of a device share its lines") {
  using alone = compile<program, mesh<axis<"x", 1>>, input<double, shape<41, 512>>>;
  static_assert(alone::view.steps.size() == 3);
  CHECK(new_kernel::medians_by_parts::work(alone::view, alone::view.steps[0]) > detail::least_shared_work);
  check(threads_per_device(3, simulated{}));
}

TEST_CASE("its descriptions are stored once if they are equal, and explained") {
  std::size_t medians = 0;
  for (const auto& s : step::view.steps) medians += detail::is<new_kernel::median>(s) ? 1 : 0;
  CHECK(medians == 2);
  CHECK(detail::table_of<detail::described_range>(step::view).size() == 1);
  const auto planned = dynamic::compile(program, dynamic::mesh({{"x", 2}}), dynamic::input<double>({4, 6}, {"x", ""}));
  CHECK(explain(planned).find("median of 6") != std::string::npos);
}
