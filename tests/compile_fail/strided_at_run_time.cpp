// SPDX-License-Identifier: Apache-2.0
// alone: yes
// mistakes: 2
// expect: gspmd: a view of external memory is not accepted here; pass it to a step or a session
#include <vector>

#include <gspmd/comm/simulated.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/session.hpp>
#include <gspmd/external/program.hpp>
#include <gspmd/gspmd.hpp>

using namespace gspmd;

int main() {
  const auto program = dynamic::compile([](value u) { return u * 2; }, dynamic::mesh({{"x", 1}}), dynamic::input<double>({3, 4}));
  std::vector<double> x(12);
  const strided_view given(x.data(), {3, 4}, column_major);
  simulated_communicator comm(1);
#ifdef FIXED
  const auto &dense = x, &dense_too = x;
#else
  const strided_view<const double> dense = given;
  const auto& dense_too = given;
#endif
  const auto shards = dynamic::distribute(comm, program, 0, dense);  // <- here
  const auto y = program.run(serial{}, dense_too);                   // <- here
  return run(program, serial{}, given).size() == y.size() && shards.local_count() == 1 ? 0 : 1;
}
