// SPDX-License-Identifier: Apache-2.0
// One device with two threads, compared with two devices with one thread each, and with one device with one thread. The
// same work on the same memory, alternately. Medians of elapsed time, and the median and middle half of the ratios of
// neighbouring runs.
//
//   threads_per_device [rounds, 15] [words in the names of rows]
#include <gspmd/gspmd.hpp>
#include <gspmd/run/threads_per_device.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "race.hpp"

namespace bench {
namespace {

using namespace gspmd;
using std::int64_t;

constexpr auto jacobi = [](auto t) {
  return 0.25 * (shift(t, -1, along(0)) + shift(t, 1, along(0)) + shift(t, -1, along(1)) + shift(t, 1, along(1)));
};
constexpr auto gelu_of = [](auto x) { return 0.5F * x * (1.0F + tanh(0.7978846F * (x + 0.044715F * x * x * x))); };
constexpr auto softmax_of = [](auto x) { return softmax(x, 1); };
constexpr auto sum_of = [](auto x) { return sum(x * x - x); };
constexpr auto take_of = [](auto ids, auto table) { return take(table, ids, 0); };
constexpr auto scatter_of = [](auto ids, auto updates) { return segment_sum(updates, ids, 4096); };
constexpr auto sort_of = [](auto x) { return sort(x, 1); };
constexpr auto pool_of = [](auto x) { return max_pool(x, {1, 2, 2, 1}); };
constexpr auto pool_gradient = [](auto x) { return grad(sum(max_pool(x, {1, 2, 2, 1})), x); };
constexpr auto top_of = [](auto x) { return top_k(x, 8); };
constexpr auto scan_of = [](auto x) { return scan_along(x, monoid::add, 1); };
/// A step of a perceptron with a hidden layer, by the gradient of the sum of squares of its results.
constexpr auto mlp_step = [](auto x, auto w, auto v) {
  const auto y = einsum<"bf,fd->bd">(relu(einsum<"bd,df->bf">(x, w)), v);
  const auto [dw, dv] = grad(sum(y * y), std::tuple{w, v});
  return std::tuple{w - 1e-6F * dw, v - 1e-6F * dv};
};

struct options {
  int rounds;
  const char* words;
};

/// Returns the time of a call of a step. The inputs are zeros, except row numbers, which are spread over a table of
/// 4096 rows.
template <class Step, class Backend>
double time_of(const Backend& backend, int calls) {
  double ms = 0;
  launch(backend, Step::device_count, [&](auto& comm) {
    Step step;
    std::vector<detail::aligned_bytes> memory;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    const auto take = [&](const detail::planned_value& v) {
      const auto elems = detail::elements(v.local);
      auto* const shard = memory.emplace_back(elems * detail::bytes_of(v.type)).get();
      for (int64_t i = 0; v.type == detail::dtype_of<int>() && i < elems; ++i) {
        const int row = static_cast<int>(i * 2654435761 / 64 % 4096);
        std::memcpy(shard + i * static_cast<int64_t>(sizeof row), &row, sizeof row);
      }
      return shard;
    };
    for (const int i : Step::view.inputs) inputs.push_back(take(Step::view.value(i)));
    for (const int o : Step::view.outputs) outputs.push_back(take(Step::view.value(o)));
    for (int warm = 0; warm < 2; ++warm) step.run(comm, inputs.data(), outputs.data());
    comm.barrier();
    const double start = now_ms();
    for (int c = 0; c < calls; ++c) step.run(comm, inputs.data(), outputs.data());
    comm.barrier();
    if (comm.device(0) == 0) ms = (now_ms() - start) / calls;
  });
  return ms;
}

template <auto Program, class... Inputs>
void compare(const char* name, int calls, const options& o) {
  if (std::string(name).find(o.words) == std::string::npos) return;
  using whole = compile<Program, mesh<axis<"rows", 1>>, Inputs...>;
  using halves = compile<Program, mesh<axis<"rows", 2>>, Inputs...>;
  race_times of_devices, of_one;
  for (int round = -1; round < o.rounds; ++round) {
    const double team = time_of<whole>(threads_per_device(2, serial{}), calls);
    const double devices = time_of<halves>(threads{}, calls);
    const double one = time_of<whole>(serial{}, calls);
    if (round < 0) continue;
    of_devices.add(team, devices);
    of_one.add(team, one);
  }
  of_devices.print(name, 1.05, "two devices");
  of_one.print(name, 1.0, "one thread");
}

template <class T, int64_t Rows, int64_t Columns>
using matrix = input<T, shape<Rows, Columns>, split<"rows", _>>;
template <int64_t Rows, int64_t Columns>
using weight = input<float, shape<Rows, Columns>, split<_, _>>;

using images = input<float, shape<8, 112, 112, 64>, split<"rows", _, _, _>>;

void compare_all(const options& o) {
  compare<jacobi, matrix<double, 1024, 1024>>("jacobi 1024^2 double", 20, o);
  compare<jacobi, matrix<double, 4096, 4096>>("jacobi 4096^2 double", 2, o);
  compare<gelu_of, matrix<float, 256, 256>>("gelu 256^2", 200, o);
  compare<gelu_of, matrix<float, 1024, 1024>>("gelu 1024^2", 20, o);
  compare<softmax_of, matrix<float, 256, 256>>("softmax 256^2", 200, o);
  compare<softmax_of, matrix<float, 2048, 1024>>("softmax 2048 x 1024", 5, o);
  compare<sum_of, matrix<float, 1024, 1024>>("sum(x*x-x) 1024^2", 20, o);
  compare<take_of, input<int, shape<65536>, split<"rows">>, weight<4096, 64>>("take 65536 of 4096 x 64", 5, o);
  compare<scatter_of, input<int, shape<65536>, split<"rows">>, matrix<float, 65536, 64>>("segment_sum 65536 x 64 to 4096", 5, o);
  compare<sort_of, matrix<float, 1024, 1024>>("sort of lines 1024^2", 3, o);
  compare<top_of, matrix<float, 4096, 1024>>("the 8 largest of lines 4096 x 1024", 3, o);
  compare<pool_of, images>("max_pool 2 x 2 of 8 x 112 x 112 x 64", 3, o);
  compare<pool_gradient, images>("gradient of max_pool", 3, o);
  compare<scan_of, matrix<float, 1024, 1024>>("running sum of lines 1024^2", 10, o);
  compare<mlp_step, matrix<float, 256, 512>, weight<512, 1024>, weight<1024, 512>>("MLP step 256 x 512 x 1024", 5, o);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::compare_all({argc > 1 ? std::atoi(argv[1]) : 15, argc > 2 ? argv[2] : ""});
  bench::all_targets.print();
}
