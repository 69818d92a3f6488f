// SPDX-License-Identifier: Apache-2.0
// ranks: 2 3
// group: run
#include <doctest/doctest.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gspmd/detail/transport/mpi/node_memory.hpp"
#include "gspmd/detail/transport/mpi/ranks.hpp"
#include "gspmd/detail/transport/shared_pages.hpp"
#include "gspmd/mpi.hpp"
#include "gspmd/run/run.hpp"

using gspmd::detail::node_memory;
using gspmd::detail::page_source;

namespace {

int count_of_ranks() {
  int n = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  return n;
}
int rank_in_world() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

/// Counts the lines of /proc/self/maps for the library's pages, or for all shared memory.
int mapped(const char* name) {
  int lines = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) lines += line.find(name) != std::string::npos ? 1 : 0;
  return lines;
}

}  // namespace

TEST_CASE("memory of a node, from either source: each process finds that of the others") {
  const int n = count_of_ranks(), me = rank_in_world();
  const std::vector<int> one_node(static_cast<std::size_t>(n), 0);
  const int before = mapped("memfd:gspmd");
  for (const auto source : {page_source::opened, page_source::sent}) {
    const node_memory memory(MPI_COMM_WORLD, me, one_node, 5000, {source});
    REQUIRE(memory.failure() == 0);
    std::memset(memory.mine(), 1 + me, 5000);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int j = 0; j < n; ++j) CHECK(memory.of(j)[4999] == static_cast<std::byte>(1 + j));
    CHECK(memory.of(me) == memory.mine());
    CHECK(mapped("memfd:gspmd") == before + n);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  CHECK(mapped("memfd:gspmd") == before);  // the memory is freed
}

TEST_CASE("memory of a node: processes on others are not found, and without a source it is private") {
  const int n = count_of_ranks(), me = rank_in_world();
  std::vector<int> nodes(static_cast<std::size_t>(n), 0);
  nodes[0] = 1;
  const node_memory memory(MPI_COMM_WORLD, me, nodes, 100);
  for (int j = 0; j < n; ++j) CHECK((memory.of(j) != nullptr) == ((j == 0) == (me == 0)));
  const node_memory alone(MPI_COMM_WORLD, me, nodes, 100, {});
  for (int j = 0; j < n; ++j) CHECK(alone.of(j) == nullptr);
  CHECK(alone.mine()[99] == std::byte{0});
}

TEST_CASE("shared memory is given out again when all ranks have let go of it") {
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  const auto kept = comm.allocate(10'000);
  std::memset(kept.get(), 7, 10'000);
  const std::byte* first = nullptr;
  for (int i = 0; i < 100; ++i) {
    const auto memory = comm.allocate(10'000);
    if (i == 0) first = memory.get();
    CHECK(memory.get() == first);
    CHECK(memory.get()[9'999] == std::byte{0});
    std::memset(memory.get(), 1, 10'000);
  }
  const int before = mapped("gspmd");
  for (std::size_t i = 0; i < 100; ++i) static_cast<void>(comm.allocate(20'000 + 5'000 * i));
  CHECK(mapped("gspmd") == before);
  CHECK(kept.get()[9'999] == std::byte{7});
}

TEST_CASE("memory that is sent, on nodes of two sizes") {
  const int n = count_of_ranks(), me = rank_in_world();
  std::vector<int> nodes(static_cast<std::size_t>(n), 0);
  nodes.back() = n - 1;
  const node_memory memory(MPI_COMM_WORLD, me, nodes, 100, {page_source::sent});
  REQUIRE(memory.failure() == 0);
  for (int j = 0; j < n; ++j) CHECK((memory.of(j) != nullptr) == ((j == n - 1) == (me == n - 1)));
}

TEST_CASE("pages of another size, file or user are not mapped") {
  using namespace gspmd::detail;
  const offered_pages mine(page_source::opened, 5000), other(page_source::opened, 5000);
  REQUIRE((mine.offer().failure == 0 && other.offer().failure == 0));
  CHECK(open_pages(mine.offer(), 5000));
  CHECK(!open_pages(mine.offer(), 50'000));
  auto mixed = mine.offer();
  mixed.file = other.offer().file;
  CHECK(!open_pages(mixed, 5000));
  const offered_pages from(page_source::sent, 5000), to(page_source::sent, 5000);
  CHECK(!to.receive_from(from.offer(), 5000));  // nothing was sent
  REQUIRE(mine.send_to(to.offer()) != 0);       // `mine` has no socket
  REQUIRE(from.send_to(to.offer()) == 0);
  CHECK(!to.receive_from(mine.offer(), 5000));  // the pages belong to another process
  REQUIRE(from.send_to(to.offer()) == 0);
  CHECK(to.receive_from(from.offer(), 5000));
  CHECK(from.send_to(mine.offer()) == ECONNREFUSED);
}

TEST_CASE("a message with two descriptors is ignored, and both are closed") {
  using namespace gspmd::detail;
  const offered_pages from(page_source::sent, 5000), to(page_source::sent, 5000);
  REQUIRE((from.offer().failure == 0 && to.offer().failure == 0));
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), pages = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  REQUIRE((socket >= 0 && pages >= 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, to.offer().name, sizeof to.offer().name);
  union {
    char bytes[CMSG_SPACE(2 * sizeof(int))];
    cmsghdr aligned;
  } control{};
  char text = 0;
  iovec one{&text, 1};
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = sizeof address;
  message.msg_iov = &one;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  auto* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(2 * sizeof(int));
  const int both[] = {pages, pages};
  std::memcpy(CMSG_DATA(head), both, sizeof both);
  REQUIRE(::sendmsg(socket, &message, 0) == 1);
  const auto open_descriptors = [] {
    int n = 0;
    for (int fd = 0; fd < 1024; ++fd) n += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return n;
  };
  const int before = open_descriptors();
  REQUIRE(from.send_to(to.offer()) == 0);
  CHECK(to.receive_from(from.offer(), 5000));  // the next message is accepted
  CHECK(open_descriptors() == before);
  ::close(pages);
  ::close(socket);
}

TEST_CASE("shared memory that one rank holds on to is not given out again, and may outlive its communicator") {
  auto comm = std::make_unique<gspmd::mpi_communicator>(MPI_COMM_WORLD);
  auto memory = comm->allocate(10'000);
  auto* const first = memory.get();
  std::memset(first, 7, 10'000);
  if (rank_in_world() != 1) memory.reset();
  const auto other = comm->allocate(10'000);
  CHECK(other.get() != first);
  comm.reset();
  if (memory) CHECK(memory.get()[9'999] == std::byte{7});
}

TEST_CASE("without shared memory a rank takes no part in an allocation but its own") {
  gspmd::mpi_communicator comm(MPI_COMM_WORLD, {.shared_memory = false});
  const int before = mapped("gspmd");
  if (comm.device(0) == 0) CHECK(comm.allocate(100).get()[99] == std::byte{0});
  CHECK(mapped("gspmd") == before);
}

TEST_CASE("ranks that lie on a node, by what they say of themselves") {
  using namespace gspmd::detail;
  const auto card = [](std::int64_t node, std::int64_t per_node) {
    return rank_card{
        .shared_memory = 1, .largest_count = 10, .small_shard_bytes = 20, .ranks_per_node = per_node, .node = node, .cores = 2};
  };
  const std::vector<rank_card> scattered{card(0, 0), card(1, 0), card(0, 0), card(1, 0), card(1, 0)};
  CHECK(nodes_of(scattered) == std::vector<int>{0, 1, 0, 1, 1});
  CHECK(!is_oversubscribed(scattered, 2));
  CHECK(is_oversubscribed(scattered, 3));
  CHECK(nodes_of({card(0, 2), card(0, 2), card(0, 2), card(0, 2), card(0, 2)}) == std::vector<int>{0, 0, 2, 2, 4});
  CHECK(nodes_of({card(0, 2), card(1, 2), card(0, 2), card(1, 2)}) == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("options that a rank may not have are an error that names it") {
  using namespace gspmd::detail;
  const rank_card good{.shared_memory = 1, .largest_count = 10, .small_shard_bytes = 20};
  CHECK_NOTHROW(check_cards({good, good}));
  const auto message_with = [&](auto member, std::int64_t value) -> std::string {
    rank_card bad = good;
    bad.*member = value;
    try {
      check_cards({good, good, bad});
    } catch (const gspmd::error& e) {
      return e.what();
    }
    return {};
  };
  CHECK(message_with(&rank_card::shared_memory, 0) ==
        "gspmd: mpi_options::shared_memory is 1 on rank 0 and 0 on rank 2; give all ranks the same");
  CHECK(message_with(&rank_card::largest_count, 11) ==
        "gspmd: mpi_options::largest_count is 10 on rank 0 and 11 on rank 2; give all ranks the same");
  CHECK(message_with(&rank_card::largest_count, std::int64_t{1} << 31) ==
        "gspmd: mpi_options::largest_count is 2147483648 on rank 2; give 1 to 2147483647");
  CHECK(message_with(&rank_card::small_shard_bytes, 21) ==
        "gspmd: mpi_options::small_shard_bytes is 20 on rank 0 and 21 on rank 2; give all ranks the same");
  CHECK(message_with(&rank_card::ranks_per_node, 2) ==
        "gspmd: GSPMD_RANKS_PER_NODE is 0 on rank 0 and 2 on rank 2; give all ranks the same");
  CHECK(message_with(&rank_card::ranks_per_node, -1) ==
        "gspmd: GSPMD_RANKS_PER_NODE on rank 2 is no number of ranks; give 1 or more");
}
