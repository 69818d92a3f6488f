// SPDX-License-Identifier: Apache-2.0
// A run that saves its state repeatedly until it is killed. tests/CMakeLists.txt starts it again and again.
//
//   mpi_saves DIRECTORY RANK CALL    restores the newest state, checks it, and saves the next one. CALL counts from 1
//                                    the calls that write, flush or rename a file. RANK is killed at this call.
//                                    CALL 0: no rank is killed; removes DIRECTORY
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gspmd/io/checkpoint.hpp"
#include "gspmd/mpi.hpp"
#include "support/layouts.hpp"
#include "support/stored_states.hpp"

using namespace gspmd;

namespace {

int calls_left = 0;  // 0: no limit

void count_call() {
  if (calls_left > 0 && --calls_left == 0) kill(getpid(), SIGKILL);
}

}  // namespace

extern "C" {
ssize_t write(int file, const void* data, std::size_t size) {
  if (calls_left == 1) static_cast<void>(syscall(SYS_write, file, data, size / 2));
  count_call();
  return syscall(SYS_write, file, data, size);
}
int fsync(int file) {
  count_call();
  return static_cast<int>(syscall(SYS_fsync, file));
}
int rename(const char* from, const char* to) noexcept {
  count_call();
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  MPI_Init(&argc, &argv);
  const std::string directory = argv[1];
  const int dying = std::atoi(argv[2]), call = std::atoi(argv[3]);
  int status = 0;
  try {
    mpi_communicator comm(MPI_COMM_WORLD);
    const stored_states::laid_out<double> rows(layouts::mesh_of({comm.device_count()}), layouts::shape_of({7, 6}),
                                               layouts::split({{0}, {}}));
    auto x = rows.array(comm);
    checkpoint state;
    state.add("x", x);
    const auto step = state.restore_latest(comm, directory);
    if (step && rows.wrong(comm, x, static_cast<std::uint64_t>(*step)) != 0) throw error("another state than was saved");
    if (comm.device(0) == 0) std::printf("went on from %d\n", step ? static_cast<int>(*step) : -1);
    std::fflush(stdout);
    const auto next = step.value_or(-1) + 1;
    rows.fill(comm, x, static_cast<std::uint64_t>(next));
    comm.barrier();
    if (comm.device(0) == dying) calls_left = call;
    state.save(comm, directory, next, {.keep = 2, .block_bytes = 32});
    calls_left = 0;
    comm.barrier();
    if (call == 0 && comm.device(0) == 0 && std::filesystem::remove_all(directory) > 0) std::puts("saved, and ended well");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    status = 1;
  }
  MPI_Finalize();
  return status;
}
