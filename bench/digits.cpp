// SPDX-License-Identifier: Apache-2.0
// The training step of examples/digits, compiled ahead of time and through dynamic::compile, alternately, on the same
// shards: medians, the median and middle half of the ratios of neighbouring runs. Both must give the same bits.
//
//   digits [rounds, 100]
//   digits rounds loops [part of a name]     elementwise chains, stencils and rows instead (run_time.hpp)
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/session.hpp>

#include "../examples/digits/model.hpp"
#include "race.hpp"
#include "run_time.hpp"

namespace {

using namespace gspmd;

template <std::int64_t Rows, int Data, int Model>
dynamic::program at_run_time() {
  const dynamic::mesh m({{"data", Data}, {"model", Model}});
  return dynamic::compile(digits::train, m, digits::images<Rows>{}, input<std::int32_t, shape<Rows>>{}, digits::parameters{},
                          digits::parameters{});
}

template <std::int64_t Rows, int Data, int Model, class Backend>
void race(const char* name, Backend backend, int rounds) {
  using step_type = digits::train_step<digits::pod<Data, Model>, Rows>;
  const auto program = at_run_time<Rows, Data, Model>();
  bench::race_times times;
  bool equal = true;
  launch(backend, step_type::device_count, [&](auto& comm) {
    const auto& plan = step_type::view;
    std::vector<detail::aligned_bytes> memory;
    std::vector<const void*> inputs;
    std::vector<void*> outputs[2];
    const auto bytes_of = [&](int v) { return detail::elements(plan.value(v).local) * detail::bytes_of(plan.value(v).type); };
    for (int d = 0; d < comm.local_count(); ++d) {
      for (const int i : plan.inputs) {
        memory.emplace_back(bytes_of(i));
        const auto elems = detail::elements(plan.value(i).local);
        for (std::int64_t e = 0; e < elems; ++e) {
          if (plan.value(i).type == dtype::s32)
            reinterpret_cast<std::int32_t*>(memory.back().get())[e] = static_cast<int>(e % 10);
          else
            reinterpret_cast<float*>(memory.back().get())[e] =
                0.1f * static_cast<float>(std::sin(static_cast<double>(e * 7 + i)));
        }
        inputs.push_back(memory.back().get());
      }
      for (auto& list : outputs)
        for (const int o : plan.outputs) {
          memory.emplace_back(bytes_of(o));
          list.push_back(memory.back().get());
        }
    }
    step_type step;
    dynamic::session session(program);
    const bool keeps_time = comm.device(0) == 0;
    for (int round = 0; round < rounds + 5; ++round) {
      double ms[2];
      for (int turn = 0; turn < 2; ++turn) {
        const int which = (turn + round) % 2;
        comm.barrier();
        const double start = bench::now_ms();
        if (which == 0) step.run(comm, inputs.data(), outputs[0].data());
        else session.run(comm, inputs.data(), outputs[1].data());
        comm.barrier();
        ms[which] = bench::now_ms() - start;
      }
      if (!keeps_time || round < 5) continue;
      times.add(ms[1], ms[0]);
    }
    for (std::size_t k = 0; keeps_time && k < plan.outputs.size(); ++k)
      equal = equal && std::memcmp(outputs[0][k], outputs[1][k], static_cast<std::size_t>(bytes_of(plan.outputs[k]))) == 0;
  });
  times.print(std::string("digits, ") + name + ", batch " + std::to_string(Rows), "compiled");
  if (!equal) std::printf("WRONG: the compiled step and the session differ\n");
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 100;
  if (argc > 2) {
    bench::run_time::race_all(rounds, argc > 3 ? argv[3] : "");
    return 0;
  }
  race<256, 1, 1>("serial", serial{}, rounds);
  race<1024, 1, 1>("serial", serial{}, rounds);
  race<256, 2, 2>("simulated 2x2", simulated{}, rounds);
  race<1024, 2, 2>("simulated 2x2", simulated{}, rounds);
  race<256, 2, 1>("threads 2x1", threads{}, rounds);
  race<1024, 2, 1>("threads 2x1", threads{}, rounds);
  race<256, 2, 2>("threads 2x2", threads{}, rounds);
  race<1024, 2, 2>("threads 2x2", threads{}, rounds);
}
