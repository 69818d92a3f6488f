// SPDX-License-Identifier: Apache-2.0
// labels: native once optimised
// timeout: 120
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/run/compile.hpp"
#include "gspmd/windows.hpp"

// Compiled loops with reductions and stores, compared with plain loops. The extents are on both sides of every length
// at which another loop is compiled or used. All memory of the program ends at a protected page, or begins after one.

namespace {

using namespace gspmd;

/// Elements between two protected pages, at the end or at the begin of the space between them. They are NaN.
template <class T>
class guarded {
 public:
  guarded(std::size_t count, bool at_end) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const auto inside = std::max(std::size_t{1}, (count * sizeof(T) + page - 1) / page) * page;
    all_ = inside + 2 * page;
    whole_ = static_cast<std::byte*>(mmap(nullptr, all_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(whole_ != MAP_FAILED);
    REQUIRE(mprotect(whole_, page, PROT_NONE) == 0);
    REQUIRE(mprotect(whole_ + page + inside, page, PROT_NONE) == 0);
    std::memset(whole_ + page, 0xff, inside);
    first_ = reinterpret_cast<T*>(whole_ + page + (at_end ? inside - count * sizeof(T) : 0));
  }
  guarded(guarded&& other) noexcept : whole_(std::exchange(other.whole_, nullptr)), all_(other.all_), first_(other.first_) {}
  guarded& operator=(guarded&&) = delete;
  ~guarded() {
    if (whole_ != nullptr) munmap(whole_, all_);
  }
  [[nodiscard]] T* get() const { return first_; }

 private:
  std::byte* whole_;
  std::size_t all_;
  T* first_;
};

template <class T>
T number(std::size_t i, int k) {
  return static_cast<T>(static_cast<int>((i * 37 + static_cast<std::size_t>(k) * 11) % 23) - 11);  // their sums are exact
}

/// Runs a compiled program twice on its devices. The inputs x and y are whole, and the parts are even. Returns the
/// outputs of every device.
template <class Step, class T, class Out>
std::vector<std::vector<Out>> run_guarded(const std::vector<T>& x, const std::vector<T>& y, bool at_end) {
  constexpr auto devices = static_cast<std::size_t>(Step::device_count);
  const auto& plan = Step::view;
  std::vector<guarded<T>> given;
  std::vector<guarded<Out>> results;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (std::size_t d = 0; d < devices; ++d) {
    for (const auto* whole : {&x, &y}) {
      const auto part = whole->size() / devices;
      given.emplace_back(part, at_end);
      std::copy_n(whole->data() + d * part, part, given.back().get());
      in.push_back(given.back().get());
    }
    for (const int o : plan.outputs) {
      results.emplace_back(static_cast<std::size_t>(detail::elements(plan.value(o).local)), at_end);
      out.push_back(results.back().get());
    }
  }
  simulated_communicator comm(static_cast<int>(devices));
  Step step;
  step.run(comm, in.data(), out.data());
  step.run(comm, in.data(), out.data());
  std::vector<std::vector<Out>> all;
  for (std::size_t k = 0; k < results.size(); ++k) {
    const auto& v = plan.value(plan.outputs[k % plan.outputs.size()]);
    all.emplace_back(results[k].get(), results[k].get() + detail::elements(v.local));
  }
  return all;
}

constexpr auto residual = [](auto q, auto b) {
  auto r = b - 2 * q;
  return std::tuple{sum(r * r), reduce(r, monoid::max), r};
};
constexpr auto residual_alone = [](auto q, auto b) {
  auto r = b - 2 * q;
  return sum(r * r);
};
constexpr auto along_dim_1 = [](auto q, auto b) {
  auto r = b - 2 * q;
  return std::tuple{sum(r * r, {1}), r};
};
constexpr auto along_dim_0 = [](auto q, auto b) {
  auto r = b - 2 * q;
  return sum(r * r, {0});
};

template <int Devices>
using line = mesh<axis<"x", Devices>>;

template <class T, int N, int Devices>
void check_one_dim() {
  using pod = line<Devices>;
  using shard = input<T, shape<N * Devices>, split<"x">>;
  std::vector<T> x(N * Devices), y(x.size());
  T sum_of{}, largest = std::numeric_limits<T>::lowest();
  std::vector<T> r(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = number<T>(i, 1), y[i] = number<T>(i, 2);
    r[i] = y[i] - 2 * x[i];
    sum_of += r[i] * r[i];
    largest = std::max(largest, r[i]);
  }
  for (const bool at_end : {true, false}) {
    CAPTURE(N);
    CAPTURE(at_end);
    const auto all = run_guarded<compile<residual, pod, shard, shard>, T, T>(x, y, at_end);
    for (std::size_t d = 0; d < Devices; ++d) {
      CHECK(all[3 * d][0] == sum_of);
      CHECK(all[3 * d + 1][0] == largest);
      CHECK(std::equal(all[3 * d + 2].begin(), all[3 * d + 2].end(), r.begin() + static_cast<std::ptrdiff_t>(d) * N));
    }
    const auto alone = run_guarded<compile<residual_alone, pod, shard, shard>, T, T>(x, y, at_end);
    for (std::size_t d = 0; d < Devices; ++d) CHECK(alone[d][0] == sum_of);
  }
}

template <class T, int Rows, int Columns>
void check_two_dims() {
  using whole = input<T, shape<Rows, Columns>, split<_, _>>;
  std::vector<T> x(Rows * Columns), y(x.size()), r(x.size()), by_row(Rows), by_column(Columns);
  T sum_of{};
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = number<T>(i, 1), y[i] = number<T>(i, 2);
    r[i] = y[i] - T(2) * x[i];
    by_row[i / Columns] += r[i] * r[i];
    by_column[i % Columns] += r[i] * r[i];
    sum_of += r[i] * r[i];
  }
  for (const bool at_end : {true, false}) {
    CAPTURE(Rows);
    CAPTURE(Columns);
    const auto rows = run_guarded<compile<along_dim_1, line<1>, whole, whole>, T, T>(x, y, at_end);
    CHECK(rows[0] == by_row);
    CHECK(rows[1] == r);
    CHECK(run_guarded<compile<along_dim_0, line<1>, whole, whole>, T, T>(x, y, at_end)[0] == by_column);
    CHECK(run_guarded<compile<residual_alone, line<1>, whole, whole>, T, T>(x, y, at_end)[0][0] == sum_of);
  }
}

template <class T, int Devices, int... N>
void check_extents(std::integer_sequence<int, N...>) {
  (check_one_dim<T, N, Devices>(), ...);
}

// ---- random elementwise programs, in one or two dims and of a drawn extent ----

constexpr unsigned draw(unsigned seed, unsigned k) {
  unsigned x = seed * 2654435761u + k * 40503u + 12345u;
  x ^= x >> 15, x *= 2246822519u, x ^= x >> 13, x *= 3266489917u;
  return x ^ x >> 16;
}
/// Five operators on earlier values, for tensors and numbers. The operators on integers from -11 to 11 are exact.
template <unsigned Seed>
constexpr auto chain(auto x, auto y) {
  auto a = x, b = y;
  for (unsigned k = 0; k < 5; ++k) {
    auto c = a;
    switch (draw(Seed, k) % 5) {
      case 0: c = a + b; break;
      case 1: c = a - b; break;
      case 2: c = b - 3 * a; break;
      case 3: c = k < 3 ? a * b : a + y; break;
      default: c = 2 * x - b; break;
    }
    b = a;
    a = c;
  }
  return a;
}
template <unsigned Seed>
struct drawn {
  static constexpr int devices = static_cast<int>(draw(Seed, 10) % 3) + 1;
  static constexpr int rows = draw(Seed, 11) % 3 == 0 ? static_cast<int>(draw(Seed, 12) % 9) + 1 : 1;
  static constexpr int elems = static_cast<int>(draw(Seed, 13) % (draw(Seed, 14) % 2 == 0 ? 300 : 1100)) + 1;
  static constexpr auto program = [](auto x, auto y) {
    auto r = chain<Seed>(x, y);
    if constexpr (Seed % 2 == 0) return std::tuple{sum(r), reduce(r, monoid::min)};
    else return std::tuple{sum(r), reduce(r, monoid::min), r};
  };
  using shard = input<double, shape<rows * devices, elems>, split<"x", _>>;
  using step = compile<program, line<devices>, shard, shard>;
};
template <unsigned Seed>
void check_drawn() {
  using d = drawn<Seed>;
  constexpr auto part = static_cast<std::size_t>(d::rows) * d::elems;
  std::vector<double> x(part * d::devices), y(x.size()), r(x.size());
  double sum_of = 0, least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = number<double>(i, 1), y[i] = number<double>(i, 2);
    r[i] = chain<Seed>(x[i], y[i]);
    sum_of += r[i];
    least = std::min(least, r[i]);
  }
  for (const bool at_end : {true, false}) {
    CAPTURE(Seed);
    CAPTURE(part);
    const auto all = run_guarded<typename d::step, double, double>(x, y, at_end);
    const auto count = all.size() / d::devices;
    for (std::size_t k = 0; k < d::devices; ++k) {
      CHECK(all[count * k][0] == sum_of);
      CHECK(all[count * k + 1][0] == least);
      if (count == 3)
        CHECK(std::equal(all[3 * k + 2].begin(), all[3 * k + 2].end(), r.begin() + static_cast<std::ptrdiff_t>(k * part)));
    }
  }
}
template <unsigned... Seed>
void check_all_drawn(std::integer_sequence<unsigned, Seed...>) {
  (check_drawn<Seed>(), ...);
}

}  // namespace

// 16 vectors of doubles are 128 with AVX-512, of floats 256, with AVX2 128; 256 and 1024 are constant_row_elems and
// fused_block_elems.
TEST_CASE_TEMPLATE("a compiled sum of a computed line has any extent", T, double, float) {
  check_extents<T, 1>(
      std::integer_sequence<int, 1, 7, 33, 127, 128, 129, 225, 255, 257, 289, 300, 511, 867, 1000, 1023, 1025, 4099>{});
}
TEST_CASE("a compiled sum of a computed line that is split over devices") {
  check_extents<double, 4>(std::integer_sequence<int, 1, 225>{});
  check_extents<float, 2>(std::integer_sequence<int, 225, 432>{});
  check_extents<std::int32_t, 2>(std::integer_sequence<int, 225>{});
}
TEST_CASE("compiled sums of computed rows and columns") {
  check_two_dims<double, 17, 9>();
  check_two_dims<float, 9, 96>();
  check_two_dims<float, 3, 300>();
  check_two_dims<double, 2, 700>();
}
TEST_CASE("compiled random elementwise programs, reduced") { check_all_drawn(std::make_integer_sequence<unsigned, 24>{}); }
