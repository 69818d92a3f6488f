// SPDX-License-Identifier: Apache-2.0
// Failures over MPI and their consequences. tests/CMakeLists.txt runs this program and checks the text, the exit status
// and that no rank hangs.
//
//   mpi_failures NAME
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <gspmd/detail/transport/mpi/arrival.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/mpi.hpp>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace gspmd;

// The middle rank fails inside a step. The other ranks wait for it in the next collective.
constexpr auto program = [](auto x) {
  return sum(map(
      [](double e) {
        if (e == 13) throw std::runtime_error("an unlucky number");
        return e;
      },
      x));
};
// A rank gets an index out of range, or another table, which the check finds. The sum of the looked-up elements waits
// for this rank.
constexpr auto lookup = [](auto table, auto ids) { return sum(take(table, ids, 0, out_of_range::error)); };
using lookup_of_two = compile<lookup, mesh<axis<"x", 2>>, with<options{.checked = true}>, input<float, shape<3>, split<_>>,
                              input<std::int64_t, shape<4>, split<"x">>>;
// Two branches with collectives over other devices or of another kind. The predicate should be equal on all devices.
constexpr auto branches = [](auto p, auto x) {
  return sum(cond(
      p > 0, [](auto v) { return einsum<"ij->i">(v); }, [](auto v) { return einsum<"ji->i">(v); }, x));
};
using parting_step =
    compile<branches, mesh<axis<"x", 2>, axis<"y", 2>>, input<float, shape<>>, input<double, shape<8, 8>, split<"x", "y">>>;
// A different program from `program`, with the same collective.
constexpr auto sum_of_squares = [](auto x) { return sum(x * x); };
using squares_of_two = compile<sum_of_squares, mesh<axis<"x", 2>>, input<double, shape<8>, split<"x">>>;
using step_of_two = compile<program, mesh<axis<"x", 2>>, input<double, shape<8>, split<"x">>>;
/// 64 MiB of running sums on each device.
using step_of_much = compile<[](auto x) {
  return sum(cumsum(broadcast_in_dim(x, {2, 1 << 23}, {0}), 1));
},
                             mesh<axis<"x", 2>>, input<double, shape<2>, split<"x">>>;

namespace {

/// Two steps on a rank's shard of ones.
struct two_steps {
  step_of_two step;
  std::vector<double> x = std::vector<double>(step_of_two::input_shard<0>::local_elems, 1.0);
  std::vector<double> y = std::vector<double>(1);
  void run(auto& comm) { step(comm, x, y); }
};

/// The same for four devices.
struct four_steps {
  parting_step step;
  std::vector<float> p{1.0F};
  std::vector<double> x = std::vector<double>(16, 1.0), y = std::vector<double>(1);
  void run(auto& comm) { step(comm, p, x, y); }
};

int rank_of_process() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

/// Prints the time at which this rank fails, in milliseconds. The test measures how long all ranks need to end.
void say_when() {
  using namespace std::chrono;
  std::fprintf(stderr, "fails at %lld;\n",
               static_cast<long long>(duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count()));
}
[[noreturn]] void have_enough() {
  say_when();
  throw std::runtime_error("rank 1 has had enough");
}

/// One rank throws between two steps, which destroys its communicator. The other ranks wait for this rank.
template <class Steps>
void leave_alone(mpi_options options = {}) {
  mpi_communicator comm(MPI_COMM_WORLD, options);
  Steps steps;
  steps.run(comm);
  if (comm.device(0) == 1) have_enough();
  steps.run(comm);
}

/// One rank of a launch throws in a step or is killed. The other ranks continue to the next step.
template <class Steps>
void fail_in_launch(const mpi& world, int devices, bool is_killed) {
  launch(world, devices, [&](auto& comm) {
    Steps steps;
    steps.run(comm);
    if (comm.device(0) == 1) {
      say_when();
      if (is_killed) std::raise(SIGKILL);
      steps.x[2] = 13;
    }
    steps.run(comm);
    std::puts("a rank went on");
  });
}

/// Rank 1 leaves while rank 0 computes for longer than the test waits. The program blocks the signal of abort_mpi.
void leave_one_that_computes() {
  sigset_t alarms;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &alarms, nullptr);
  mpi_communicator comm(MPI_COMM_WORLD);
  if (comm.device(0) == 1) have_enough();
  std::this_thread::sleep_for(std::chrono::seconds(100));
}

/// All ranks leave at about the same time. A rank that catches the exception can continue with another communicator.
void leave_together() {
  try {
    mpi_communicator comm(MPI_COMM_WORLD);
    two_steps steps;
    steps.run(comm);
    throw std::runtime_error("enough for all");
  } catch (const std::runtime_error&) {
    mpi_communicator comm(MPI_COMM_WORLD);
    two_steps().run(comm);
    if (comm.device(0) == 0) std::puts("caught, and ended well");
  }
}

/// A collective that rank 0 does not call.
void gather_by_hand(mpi_communicator& comm) {
  detail::mesh_shape all;
  all.sizes.push_back(2);
  detail::movement gather;
  gather.from_global.push_back(80'000);
  gather.to_global = gather.from_global;
  gather.from.add_split(0, 0);
  gather.axes = 1;
  const std::vector<float> x(40'000);
  std::vector<float> y(80'000);
  const float* const from = x.data();
  float* const to = y.data();
  comm.move(all, gather, &from, &to);
}

/// A large arena. Rank 1 may reserve at most `limit` bytes.
void take_much(rlim_t limit) {
  mpi_communicator comm(MPI_COMM_WORLD);
  if (comm.device(0) == 1) {
    const rlimit most{limit, limit};
    setrlimit(RLIMIT_FSIZE, &most);
  }
  const std::int64_t elems = 4 << 20;
  const std::size_t bytes = sizeof(double) * static_cast<std::size_t>(elems);
  const auto in_memory = comm.allocate(bytes), out_memory = comm.allocate(bytes);
  auto* const x = reinterpret_cast<double*>(in_memory.get());
  auto* const y = reinterpret_cast<double*>(out_memory.get());
  std::fill_n(x, elems, 1.0 + comm.device(0));
  detail::mesh_shape all;
  all.sizes.push_back(2);
  detail::reduction sum;
  sum.global.push_back(elems);
  sum.axes = 1;
  sum.reduced_by = monoid::add;
  const double* const from = x;
  double* const to = y;
  comm.reduce(all, sum, &from, &to);
  if (std::count(y, y + elems, 3.0) != elems) throw error("a wrong sum", comm.device(0));
  if (comm.device(0) == 0) std::puts("summed, and ended well");
}

/// Enters a separate user namespace with the same user. Call it before MPI starts threads. Returns false if the system
/// refuses.
bool enter_own_namespace() {
  const auto user = std::to_string(getuid()), group = std::to_string(getgid());
  if (unshare(CLONE_NEWUSER) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  return static_cast<bool>(std::ofstream("/proc/self/uid_map") << user + ' ' + user + " 1" << std::flush) &&
         static_cast<bool>(std::ofstream("/proc/self/gid_map") << group + ' ' + group + " 1" << std::flush);
}

/// Ranks that may not open each other's memory share memory without a file in /dev/shm.
void share_between_namespaces() {
  mpi_communicator comm(MPI_COMM_WORLD);
  const auto memory = comm.allocate(100'000);
  int without_name = 0, named = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    without_name += line.find("/memfd:gspmd") != std::string::npos ? 1 : 0;
    named += line.find("/dev/shm/gspmd") != std::string::npos ? 1 : 0;
  }
  if (without_name != 2 || named != 0) throw error("maps " + std::to_string(without_name) + " and " + std::to_string(named));
  std::puts("shared, and ended well");
}

/// Rank 1 ends the program before the other ranks call run. `again`: after a first run on all ranks.
void leave_before_run(const mpi& world, bool again) {
  if (again) run<step_of_two>(world, array<double>({8}));
  else launch(world, 4, [](auto&) {});  // as in docs/how_to/mpi.md
  if (rank_of_process() == 1) return say_when();
  if (again) run<step_of_two>(world, array<double>({8}));
  else launch(world, 4, [](auto&) { std::puts("a rank went on"); });
}

/// Rank 1 is late for the first run, which prints a note, and for the second run. No rank is ended.
void come_late(const mpi& world) {
  detail::arrival_note_seconds = 0.5;
  for (int k = 0; k < 2; ++k) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_of_process() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    run<step_of_two>(world, array<double>({8}));
  }
  std::puts("ran twice, and ended well");
}

/// Rank 1 calls MPI_Finalize before the first run of rank 0.
void never_come(const mpi& world) {
  if (rank_of_process() == 1) return say_when();
  run<step_of_two>(world, array<double>({8}));
  std::puts("a rank went on");
}

/// Rank 1 can neither share nor allocate memory: its address space is limited to a little more than its present size.
void be_short_of_memory() {
  if (rank_of_process() != 1) return;
  const rlimit files{rlim_t{1} << 20, rlim_t{1} << 20};
  setrlimit(RLIMIT_FSIZE, &files);
  unsigned long pages = 0;
  std::FILE* const sizes = std::fopen("/proc/self/statm", "r");
  if (sizes == nullptr || std::fscanf(sizes, "%lu", &pages) != 1) throw error("no /proc/self/statm");
  std::fclose(sizes);
  const rlim_t most = static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{24} << 20);
  const rlimit space{most, most};
  setrlimit(RLIMIT_AS, &space);
}

/// Passes an intercommunicator: rank 0 is one group, and the other ranks are the other group.
void give_intercommunicator() {
  const int rank = rank_of_process();
  MPI_Comm side = MPI_COMM_NULL, between = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &side);
  MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 1, &between);
  try {
    run<step_of_two>(mpi{between}, array<double>({8}));
    std::puts("a rank went on");
  } catch (const error& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  mpi_communicator refuses(between);
}

/// Two threads of each process launch on separate communicators at the same time, and free them.
void compute_on_two_threads() {
  MPI_Comm comms[2];
  for (auto& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  int wrong[2] = {0, 0};
  const auto work = [&](int which) {
    const mpi backend{comms[which], {.shared_memory = which == 0}};
    for (int launches = 0; launches < 4; ++launches)
      launch(backend, 2, [&](auto& comm) {
        two_steps steps;
        for (int t = 0; t < 20; ++t) {
          std::fill(steps.x.begin(), steps.x.end(), 20.0 + t + 100 * which);
          steps.run(comm);
          if (steps.y[0] != 8 * (20.0 + t + 100 * which)) ++wrong[which];
        }
      });
    MPI_Comm_free(&comms[which]);
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  if (wrong[0] + wrong[1] != 0) throw error("a wrong sum on one of two threads", rank_of_process());
  std::puts("two threads ended well");
}

void run_case(std::string_view what) {
  const bool by_messages = what.ends_with("/messages");
  if (by_messages) what.remove_suffix(std::string_view("/messages").size());
  const mpi world{MPI_COMM_WORLD, {.shared_memory = !by_messages}};
  if (what == "throws" || what == "dies") {
    fail_in_launch<two_steps>(world, 2, what == "dies");
  } else if (what == "dies_of_four") {
    fail_in_launch<four_steps>(world, 4, true);
  } else if (what == "index") {
    launch(world, 2, [](auto& comm) {
      const std::vector<float> table(3);
      std::vector<float> y(1);
      lookup_of_two step;
      step(comm, table, std::vector<std::int64_t>{1, comm.device(0) == 1 ? 7 : 2}, y);
      std::puts("a rank went on");
    });
  } else if (what == "table") {
    launch(world, 2, [](auto& comm) {
      std::vector<float> table{1, 2, 3}, y(1);
      const std::vector<std::int64_t> ids{0, 1};
      lookup_of_two step;
      step(comm, table, ids, y);
      if (comm.device(0) == 1) table[1] = 2.5F;
      step(comm, table, ids, y);
      std::puts("a rank went on");
    });
  } else if (what == "differs") {
    launch(world, 2, [&](auto& comm) {
      two_steps steps;
      steps.run(comm);
      if (comm.device(0) == 1) gather_by_hand(comm);
      steps.run(comm);
      std::puts("a rank went on");
    });
  } else if (what == "programs") {  // each rank runs another program
    launch(world, 2, [&](auto& comm) {
      two_steps steps;
      squares_of_two squares;
      if (comm.device(0) == 1) squares(comm, steps.x, steps.y);
      else steps.run(comm);
      std::puts("a rank went on");
    });
  } else if (what == "never") {  // before any group exists
    launch(world, 2, [&](auto& comm) {
      two_steps steps;
      if (comm.device(0) == 1) return;
      steps.run(comm);
      std::puts("a rank went on");
    });
  } else if (what == "parts") {  // a predicate that differs by rank, before the groups of the branches exist
    launch(world, 4, [&](auto& comm) {
      parting_step step;
      const std::vector<double> x(16, 1.0);
      std::vector<double> y(1);
      const std::vector<float> p{comm.device(0) == 0 ? 1.0F : -1.0F};
      step(comm, p, x, y);
      std::puts("a rank went on");
    });
  } else if (what == "finalizes" || what == "finalizes_of_four") {
    leave_before_run(world, what == "finalizes");
  } else if (what == "exits") {
    if (rank_of_process() == 1) {
      say_when();
      std::exit(0);
    }
    run<step_of_two>(world, array<double>({8}));
  } else if (what == "late") {
    come_late(world);
  } else if (what == "never_comes") {
    never_come(world);
  } else if (what == "own_users") {
    share_between_namespaces();
  } else if (what == "count") {
    launch(world, 2, [](auto&) { std::puts("a rank went on"); });
  } else if (what == "count_of_run") {
    run<step_of_two>(world, array<double>({8}));
  } else if (what == "input") {
    run<step_of_two>(world, std::vector<double>(rank_of_process() == 1 ? 7 : 8));
  } else if (what == "options") {
    launch(mpi{MPI_COMM_WORLD, {.largest_count = 5 + 2 * rank_of_process()}}, 2, [](auto&) { std::puts("a rank went on"); });
  } else if (what == "no_count") {
    launch(mpi{MPI_COMM_WORLD, {.largest_count = 1 - rank_of_process()}}, 2, [](auto&) { std::puts("a rank went on"); });
  } else if (what == "arenas") {
    mpi_communicator comm(MPI_COMM_WORLD);
    static_cast<void>(comm.allocate(rank_of_process() == 1 ? 1000 : 2000));
    std::puts("a rank went on");
  } else if (what == "leaves") {
    leave_alone<two_steps>();
  } else if (what == "leaves_messages") {
    leave_alone<two_steps>({.shared_memory = false});
  } else if (what == "leaves_of_four") {
    leave_alone<four_steps>();
  } else if (what == "computes") {
    leave_one_that_computes();
  } else if (what == "all_leave") {
    leave_together();
  } else if (what == "two_threads") {
    compute_on_two_threads();
  } else if (what == "intercommunicator") {
    give_intercommunicator();
  } else if (what == "null") {
    mpi_communicator refuses(MPI_COMM_NULL);
  } else if (what == "no_arena") {
    launch(mpi{}, 2, [](mpi_communicator& comm) {
      be_short_of_memory();
      step_of_much step;
      const std::vector<double> x(1);
      std::vector<double> y(1);
      step(comm, x, y);
    });
    std::puts("went on");
  } else if (what == "memory") {
    take_much(RLIM_INFINITY);
  } else if (what == "no_memory") {
    take_much(rlim_t{1} << 20);
  } else {
    throw error("no such case");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  int provided = MPI_THREAD_SINGLE;
  const bool is_possible = what != "own_users" || enter_own_namespace();
  MPI_Init_thread(&argc, &argv, what == "two_threads" ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  if (!is_possible || (what == "two_threads" && provided != MPI_THREAD_MULTIPLE)) return MPI_Finalize(), 77;
  // If the test measures the time, the default patience applies. Otherwise a short one saves time.
  if (!what.starts_with("leaves") && !what.starts_with("finalizes") && what != "computes")
    detail::mpi_watch::patience_seconds = 0.2;
  if (!what.starts_with("count") && what != "options" && what != "no_count" && what != "all_from_main")
    detail::seconds_for_rank_0 = 0.1;
  if (what == "all_from_main" || what == "one_from_main") {
    const mpi_environment env(argc, argv);
    if (what == "all_from_main" || env.rank() == 1) throw error("leaves main");
    MPI_Barrier(MPI_COMM_WORLD);
  }
  int status = 0;
  std::unique_ptr<mpi_communicator> kept;
  two_steps steps;
  try {
    if (what == "kept") {
      kept = std::make_unique<mpi_communicator>(MPI_COMM_WORLD);
      steps.run(*kept);
    } else {
      run_case(what);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    status = 1;
  }
  MPI_Finalize();
  if (kept) {
    kept.reset();
    if (steps.y[0] == 8.0) std::puts("finalized, and ended well");
  }
  return status;
}
