// SPDX-License-Identifier: Apache-2.0
// group: calls
// ranks: 2 3 4
// two nodes: 4
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/ring.hpp"
#include "gspmd/detail/transport/mpi/watch.hpp"
#include "gspmd/mpi.hpp"

// Ranks call different collectives, for every pair of kinds and every kind of transport. One rank reports it, no rank
// hangs, and all computed results are right.

namespace {

using namespace gspmd::detail;
using gspmd::mpi_communicator;

sharding split(int axis, int dim) {
  sharding s;
  s.add_split(axis, dim);
  return s;
}
extents shape_of(std::int64_t rows, std::int64_t columns) {
  extents shape;
  shape.push_back(rows);
  shape.push_back(columns);
  return shape;
}

/// Small enough for the window of a node, too large for it, and larger than MPI sends without a request of the
/// receiver.
constexpr std::array<std::int64_t, 3> sizes{3, 6'000, 200'000};

struct collective {
  std::string name;
  std::function<void(mpi_communicator&)> call;
};

class collectives {
 public:
  explicit collectives(int ranks) {
    mesh_.sizes.push_back(ranks);
    for (const auto n : sizes) add_of_size(ranks, n);
    add("barrier", [](mpi_communicator& comm) { comm.barrier(); });
  }
  [[nodiscard]] const std::vector<collective>& all() const { return all_; }

 private:
  void add(std::string name, std::function<void(mpi_communicator&)> call) { all_.push_back({std::move(name), std::move(call)}); }

  void add_of_size(int ranks, std::int64_t n) {
    const auto text = " of " + std::to_string(n);
    sharding partial;
    partial.partial = 1;
    // If a lambda captures a descriptor by value, GCC warns that it may be used before it is set.
    const auto sum = std::make_shared<reduction>(reduction{shape_of(1, n), partial, {}, 1, gspmd::monoid::add});
    add("all_reduce" + text, [=, this](mpi_communicator& comm) {
      std::vector<float> x(static_cast<std::size_t>(n), 1.0F), y(x.size());
      const float* in = x.data();
      float* out = y.data();
      comm.reduce(mesh_, *sum, &in, &out);
      CHECK(y.front() == static_cast<float>(ranks));
      CHECK(y.back() == static_cast<float>(ranks));
    });
    const auto scatter =
        std::make_shared<reduction>(reduction{shape_of(n * ranks, 1), partial, split(0, 0), 1, gspmd::monoid::max});
    add("reduce_scatter" + text, [=, this](mpi_communicator& comm) {
      std::vector<double> x(static_cast<std::size_t>(n * ranks), 2.0), y(static_cast<std::size_t>(n));
      const double* in = x.data();
      double* out = y.data();
      comm.reduce(mesh_, *scatter, &in, &out);
      CHECK(y.back() == 2.0);
    });
    const auto gather = std::make_shared<movement>(shape_of(n * ranks, 1), split(0, 0), sharding{}, axis_mask{1});
    add("all_gather" + text, [=, this](mpi_communicator& comm) {
      std::vector<float> x(static_cast<std::size_t>(n), 3.0F), y(static_cast<std::size_t>(n * ranks));
      const float* in = x.data();
      float* out = y.data();
      comm.move(mesh_, *gather, &in, &out);
      CHECK(y.front() == 3.0F);
      CHECK(y.back() == 3.0F);
    });
    add("all_gather that is started" + text, [=, this](mpi_communicator& comm) {
      std::vector<std::int32_t> x(static_cast<std::size_t>(n), 4), y(static_cast<std::size_t>(n * ranks));
      const std::int32_t* in = x.data();
      std::int32_t* out = y.data();
      comm.start(mesh_, span<const movement>(gather.get(), 1), &in, &out);
      comm.finish(mesh_, span<const movement>(gather.get(), 1), &in, &out);
      CHECK(y.front() == 4);
      CHECK(y.back() == 4);
    });
    add("all_reduce that is started" + text, [=, this](mpi_communicator& comm) {
      std::vector<float> x(static_cast<std::size_t>(n), 1.0F), y(x.size());
      const float* in = x.data();
      float* out = y.data();
      comm.start(mesh_, span<const reduction>(sum.get(), 1), &in, &out);
      comm.finish(mesh_, span<const reduction>(sum.get(), 1), &in, &out);
      CHECK(y.front() == static_cast<float>(ranks));
      CHECK(y.back() == static_cast<float>(ranks));
    });
    add("reduce_scatters of which two are under way" + text, [=, this](mpi_communicator& comm) {
      std::vector<double> x(static_cast<std::size_t>(n * ranks), 2.0), y(static_cast<std::size_t>(n)), z(y);
      const double* in = x.data();
      double *out = y.data(), *other = z.data();
      comm.start(mesh_, span<const reduction>(scatter.get(), 1), &in, &out);
      comm.start(mesh_, span<const reduction>(scatter.get(), 1), &in, &other);
      comm.finish(mesh_, span<const reduction>(scatter.get(), 1), &in, &other);
      comm.finish(mesh_, span<const reduction>(scatter.get(), 1), &in, &out);
      CHECK(y.back() == 2.0);
      CHECK(z.front() == 2.0);
    });
    for (const bool contiguous : {true, false}) {
      const auto exchange = std::make_shared<movement>(contiguous ? shape_of(ranks, n * ranks) : shape_of(2 * ranks, n * ranks),
                                                       split(0, 0), split(0, 1), axis_mask{1});
      add((contiguous ? "all_to_all" : "all_to_all of columns") + text, [=, this](mpi_communicator& comm) {
        const auto elems = static_cast<std::size_t>((contiguous ? 1 : 2) * n * ranks);
        std::vector<float> x(elems, 5.0F), y(elems);
        const float* in = x.data();
        float* out = y.data();
        comm.move(mesh_, *exchange, &in, &out);
        CHECK(y.front() == 5.0F);
        CHECK(y.back() == 5.0F);
      });
    }
    const auto around = std::make_shared<ring>();
    around->axes.push_back(0);
    around->bytes = n * 8;
    add("ring" + text, [=, this](mpi_communicator& comm) {
      std::vector<double> x(static_cast<std::size_t>(n), 6.0), y(x.size());
      const void* in = x.data();
      void* out = y.data();
      comm.shift(mesh_, *around, ring_buffers{[&](std::int64_t) { return in; }, [&](std::int64_t) { return out; }}, nullptr);
      CHECK(y.back() == 6.0);
    });
    if (ranks != 4) return;
    grid_.sizes = {};
    grid_.sizes.push_back(2);
    grid_.sizes.push_back(2);
    auto from = split(0, 0), to = split(1, 0);
    from.add_split(1, 0);
    to.add_split(0, 0);
    const auto permutation = std::make_shared<movement>(shape_of(4 * n, 1), from, to, axis_mask{3});
    add("permutation" + text, [=, this](mpi_communicator& comm) {
      std::vector<double> x(static_cast<std::size_t>(n), 7.0), y(x.size());
      const double* in = x.data();
      double* out = y.data();
      comm.move(grid_, *permutation, &in, &out);
      CHECK(y.back() == 7.0);
    });
    const auto sum_of_rows = std::make_shared<reduction>(reduction{shape_of(1, n), partial, {}, 1, gspmd::monoid::add});
    add("all_reduce of two ranks" + text, [=, this](mpi_communicator& comm) {
      std::vector<float> x(static_cast<std::size_t>(n), 1.0F), y(x.size());
      const float* in = x.data();
      float* out = y.data();
      comm.reduce(grid_, *sum_of_rows, &in, &out);
      CHECK(y.back() == 2.0F);
    });
  }

  mesh_shape mesh_, grid_;
  std::vector<collective> all_;
};

/// Returns the error text of this rank if `odd` calls `a` and the other ranks call `b`. Returns nothing if the call
/// finishes.
std::optional<std::string> told(mpi_communicator& comm, int odd, const collective& a, const collective& b) {
  try {
    (comm.device(0) == odd ? a : b).call(comm);
  } catch (const gspmd::error& e) {
    return e.what();
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("ranks that meet in different collectives") {
  mpi_watch::patience_seconds = 0.01;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const collectives list(ranks);
  const auto& all = list.all();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& a = all[i];
    const auto& b = all[(i * 7 + 3) % all.size() == i ? 0 : (i * 7 + 3) % all.size()];
    if (a.name == b.name) continue;
    const bool shares = i % 3 == 0, is_new = i % 4 != 0;
    CAPTURE(a.name);
    CAPTURE(b.name);
    CAPTURE(shares);
    CAPTURE(is_new);
    std::optional<std::string> text;
    {
      mpi_communicator comm(MPI_COMM_WORLD, {.shared_memory = shares});
      if (!is_new) {
        a.call(comm);
        b.call(comm);
      }
      text = told(comm, ranks - 1, a, b);
    }
    const bool says = text && text->find("met in different collectives: rank ") != std::string::npos;
    const bool waits = text && text->find(", which has finished; all ranks") != std::string::npos;
    if (text && !says && !waits) FAIL(*text);
    // A collective of two ranks, or a permutation, moves nothing on some ranks. A rank that has already left did not
    // take part.
    const auto names = a.name + b.name;
    const bool of_some = names.find("two ranks") != std::string::npos || names.find("permutation") != std::string::npos;
    int said = says || (of_some && waits) ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &said, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(said > 0);
  }
}
