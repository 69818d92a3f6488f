// SPDX-License-Identifier: Apache-2.0
// What happens over MPI when things go wrong; run by tests/CMakeLists.txt, which checks the text, the exit status and that
// nothing hangs.
//
//   mpi_failures throws|dies|count
#include <gspmd/comm/mpi.hpp>
#include <gspmd/gspmd.hpp>

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string_view>

using namespace gspmd;

// The middle rank fails inside a step, while the others wait for it in the collective that follows.
constexpr auto program = [](auto x) {
  return sum(map(
      [](double e) {
        if (e == 13) throw std::runtime_error("an unlucky number");
        return e;
      },
      x));
};
using step_of_two = compile<program, mesh<axis<"x", 2>>, in<double, dims<8>, split<"x">>>;

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  MPI_Init(&argc, &argv);
  int status = 0;
  try {
    if (what == "count") {
      array<double> x({8});
      run<step_of_two>(mpi{MPI_COMM_WORLD}, x);
    } else {
      launch(mpi{MPI_COMM_WORLD}, 2, [&](auto& comm) {
        std::vector<double> x(step_of_two::input_shard<0>::local_elems, 1.0);
        std::vector<double> y(1);
        step_of_two step;
        step(comm, x, y);
        if (comm.device(0) == 1 && what == "throws") x[2] = 13;
        if (comm.device(0) == 1 && what == "dies") std::raise(SIGKILL);
        step(comm, x, y);
        std::puts("a rank went on");
      });
    }
  } catch (const error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    status = 1;
  }
  MPI_Finalize();
  return status;
}
