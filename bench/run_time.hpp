// SPDX-License-Identifier: Apache-2.0
// Elementwise chains, stencils and rows: compiled ahead of time, through a `dynamic` session, and through a session
// with native code. They run alternately on one device and the same memory. Medians of processor time, the median and
// middle half of the ratios of neighbouring runs. All must give the same bits. The loops of native code are compiled at
// the first use.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/session.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/native/native_code.hpp>

#include "race.hpp"

namespace bench::run_time {

using namespace gspmd;
using single = mesh<axis<"one", 1>>;

/// Runs `step` and the sessions on the same shards.
template <class Step, class... Sessions>
void race(const char* name, int rounds, Step& step, Sessions&... sessions) {
  constexpr int ways = 1 + sizeof...(Sessions);
  const auto& plan = Step::view;
  std::vector<detail::aligned_bytes> memory;
  std::vector<const void*> inputs;
  std::vector<void*> outputs[ways];
  const auto bytes_of = [&](int v) { return detail::elements(plan.value(v).local) * detail::bytes_of(plan.value(v).type); };
  for (const int i : plan.inputs) {
    memory.emplace_back(bytes_of(i));
    const auto n = detail::elements(plan.value(i).local);
    const bool is_double = plan.value(i).type == dtype::f64;
    for (std::int64_t e = 0; e < n; ++e) {
      const double x = std::sin(static_cast<double>(e * 7 + i));
      if (is_double) reinterpret_cast<double*>(memory.back().get())[e] = x;
      else reinterpret_cast<float*>(memory.back().get())[e] = static_cast<float>(x);
    }
    inputs.push_back(memory.back().get());
  }
  for (auto& list : outputs)
    for (const int o : plan.outputs) {
      memory.emplace_back(bytes_of(o));
      list.push_back(memory.back().get());
    }
  simulated_communicator comm{1};
  race_times times[ways];  // against the compiled step
  for (int round = 0; round < rounds + 5; ++round) {
    double ms[ways];
    for (int turn = 0; turn < ways; ++turn) {
      const int which = (turn + round) % ways;
      const double start = bench::thread_ms();
      int way = 0;
      const auto run = [&](auto& s) {
        if (way == which) s.run(comm, inputs.data(), outputs[way].data());
        ++way;
      };
      run(step);
      (run(sessions), ...);
      ms[which] = bench::thread_ms() - start;
    }
    for (int way = 1; round >= 5 && way < ways; ++way) times[way].add(ms[way], ms[0]);
  }
  for (int way = 1; way < ways; ++way) {
    times[way].print(std::string(name) + (way == 1 ? ", session" : ", native code"), "compiled");
    for (std::size_t k = 0; k < plan.outputs.size(); ++k)
      if (std::memcmp(outputs[0][k], outputs[way][k], static_cast<std::size_t>(bytes_of(plan.outputs[k]))) != 0)
        std::printf("WRONG: %s: the bits differ\n", name);
  }
}

template <auto Program, class... In>
void race_of(const char* name, int rounds, std::string_view wanted) {
  if (std::string_view(name).find(wanted) == std::string_view::npos) return;
  compile<Program, single, In...> step;
  const dynamic::mesh m({{"one", 1}});
  const auto program = dynamic::compile(Program, m, In{}...);
  dynamic::session session(program);
  const dynamic::native_code code(program);
  if (!code.is_used()) std::printf("without native code: %s\n", code.why_not().c_str());
  dynamic::session native(program, code);
  race(name, rounds, step, session, native);
}

constexpr auto polynomial = [](auto x, auto y) { return 2.0 * x + 3.0 * y - x * y; };
constexpr auto gelu = [](auto x) { return 0.5 * x * (1.0 + tanh(0.7978845608 * (x + 0.044715 * x * x * x))); };
constexpr auto biased_relu = [](auto x, auto b) { return relu(x + b); };
constexpr auto update = [](auto w, auto g) { return w - 0.01 * (g + 0.0001 * w); };
constexpr auto adam = [](auto w, auto m, auto v, auto g) {
  auto m1 = 0.9 * m + 0.1 * g;
  auto v1 = 0.999 * v + 0.001 * (g * g);
  return std::tuple{w - 0.01 * (m1 / 0.9) / (sqrt(v1 / 0.999) + 1e-8), m1, v1};
};
constexpr auto layer_norm = [](auto x) {
  const auto centred = x - expand_dims(mean(x, 1), 1);
  return centred * expand_dims(rsqrt(mean(centred * centred, 1) + 1e-5), 1);
};
constexpr auto softmax_of_rows = [](auto x) { return softmax(x, 1); };
constexpr auto sum_of_polynomial = [](auto x) { return sum(x * x - x); };
constexpr auto jacobi = [](auto t) {
  return 0.25 * (shift(t, -1, along(0)) + shift(t, 1, along(0)) + shift(t, -1, along(1)) + shift(t, 1, along(1)));
};
constexpr auto heat = [](auto t) {
  const auto around = shift(t, -1, along(0)) + shift(t, 1, along(0)) + shift(t, -1, along(1)) + shift(t, 1, along(1)) +
                      shift(t, -1, along(2)) + shift(t, 1, along(2));
  return t + 0.1 * (around - 6.0 * t);
};

/// Runs the comparisons whose names contain `wanted`.
inline void race_all(int rounds, std::string_view wanted) {
  using small = input<float, shape<256, 256>>;
  using large = input<float, shape<1024, 1024>>;
  using row = input<float, shape<1, 256>>;
  race_of<polynomial, small, small>("2x+3y-xy 256^2", rounds, wanted);
  race_of<polynomial, large, large>("2x+3y-xy 1024^2", rounds, wanted);
  race_of<gelu, small>("gelu 256^2", rounds, wanted);
  race_of<gelu, large>("gelu 1024^2", rounds, wanted);
  race_of<biased_relu, small, row>("relu(x+bias) 256^2", rounds, wanted);
  race_of<update, small, small>("w-r(g+dw) 256^2", rounds, wanted);
  race_of<adam, small, small, small, small>("adam 256^2", rounds, wanted);
  race_of<layer_norm, large>("layer norm 1024^2", rounds, wanted);
  race_of<softmax_of_rows, large>("softmax 1024^2", rounds, wanted);
  race_of<sum_of_polynomial, large>("sum(x*x-x) 1024^2", rounds, wanted);
  race_of<jacobi, input<double, shape<256, 256>>>("jacobi 256^2 double", rounds, wanted);
  race_of<jacobi, input<double, shape<1024, 1024>>>("jacobi 1024^2 double", rounds, wanted);
  race_of<jacobi, input<float, shape<1024, 1024>>>("jacobi 1024^2 float", rounds, wanted);
  race_of<heat, input<double, shape<64, 64, 64>>>("heat 64^3 double", rounds, wanted);
  race_of<heat, input<double, shape<128, 128, 128>>>("heat 128^3 double", rounds, wanted);
}

}  // namespace bench::run_time
