// SPDX-License-Identifier: Apache-2.0
// labels: any_mpi
// ranks: 2 3 4
// two nodes: 4
// group: run
// Files of other formats, written and read by ranks.
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <sys/resource.h>

#include <doctest/doctest.h>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/io/npy.hpp"
#include "gspmd/io/raw_file.hpp"
#include "gspmd/io/safetensors.hpp"
#include "gspmd/mpi.hpp"
#include "support/common_directory.hpp"
#include "support/error_of.hpp"
#include "support/layouts.hpp"
#include "support/stored_states.hpp"

using namespace gspmd;
using namespace stored_states;
using namespace common_files;
using caught::contains;

namespace {

struct common_files_in : common_directory {
  explicit common_files_in(const std::string& name) : common_directory(name) {
    if (owned) std::filesystem::create_directories(path);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  [[nodiscard]] std::string file(const std::string& name) const { return path + '/' + name; }
};

}  // namespace

TEST_CASE("safetensors: saved on all ranks, loaded on any number of them and on simulated devices, and the other way") {
  const common_files_in files("mpi-safetensors");
  const auto file = files.file("model");
  const int ranks = size_of(MPI_COMM_WORLD), me = rank_of(MPI_COMM_WORLD);
  {
    mpi_communicator comm(MPI_COMM_WORLD);
    const auto rows = by_rows(ranks);
    auto x = rows.array(comm);
    rows.fill(comm, x);
    named_arrays model;
    model.add("x", x);
    save_safetensors(comm, file, model);
  }
  for_fewer_ranks([&](auto& comm, const auto& layout) {
    auto x = layout.array(comm);
    named_arrays model;
    model.add("x", x);
    load_safetensors(comm, file, model);
    CHECK(layout.wrong(comm, x) == 0);
  });
  MPI_Barrier(MPI_COMM_WORLD);
  if (me == 0) {
    simulated_communicator five(5);
    const auto columns = by_columns(5);
    auto x = columns.array(five);
    named_arrays model;
    model.add("x", x);
    load_safetensors(five, file, model);
    CHECK(columns.wrong(five, x) == 0);
    columns.fill(five, x, 8);
    save_safetensors(five, file, model);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  mpi_communicator comm(MPI_COMM_WORLD);
  const auto rows = by_rows(ranks);
  auto x = rows.array(comm);
  named_arrays model;
  model.add("x", x);
  load_safetensors(comm, file, model);
  CHECK(rows.wrong(comm, x, 8) == 0);
}

TEST_CASE("safetensors: an error of one rank is that of all, and nothing is changed nor left") {
  const common_files_in files("mpi-safetensors-errors");
  const auto file = files.file("model");
  const int ranks = size_of(MPI_COMM_WORLD), me = rank_of(MPI_COMM_WORLD);
  const auto last = ranks - 1;
  mpi_communicator comm(MPI_COMM_WORLD);
  const laid_out<double> rows(layouts::mesh_of({ranks}), layouts::shape_of({4 * ranks, 64}), layouts::split({{0}, {}}));
  auto x = rows.array(comm), y = rows.array(comm);
  rows.fill(comm, x);
  rows.fill(comm, y, 3);
  named_arrays saved, loaded;
  saved.add("x", x);
  loaded.add("x", y);
  save_safetensors(comm, file, saved);

  // The last rank may write no byte of a file after the first 1024.
  ::rlimit most{};
  getrlimit(RLIMIT_FSIZE, &most);
  std::signal(SIGXFSZ, SIG_IGN);
  auto less = most;
  if (me == last) less.rlim_cur = 1024;
  setrlimit(RLIMIT_FSIZE, &less);
  const auto full = error_on_all([&] { save_safetensors(comm, file, saved); });
  setrlimit(RLIMIT_FSIZE, &most);
  CHECK(contains(full, "gspmd: on rank " + std::to_string(last) + ": safetensors: `" + file +
                           ".partial` cannot be written: File too large"));
  const auto other = error_on_all([&] { save_safetensors(comm, me == last ? file + "2" : file, saved); });
  CHECK(contains(other, "safetensors: processes come with different arrays, files or options; give all the same"));
  if (me == 0) CHECK(files_of(files.path) == std::vector<std::string>{"model"});
  load_safetensors(comm, file, saved);
  CHECK(rows.wrong(comm, x) == 0);

  if (me == 0) std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  comm.barrier();
  CHECK(contains(error_on_all([&] { load_safetensors(comm, file, loaded); }), "safetensors: `" + file + "` is cut off: it has "));
  comm.barrier();
  if (me == 0) write_file(file, "a text of no format");
  comm.barrier();
  CHECK(contains(error_on_all([&] { load_safetensors(comm, file, loaded); }),
                 "safetensors: `" + file + "` is no safetensors file"));
  CHECK(rows.wrong(comm, y, 3) == 0);
}

TEST_CASE("npy and raw files: saved on all ranks, loaded on all in another layout, from Fortran's order too") {
  const common_files_in files("mpi-npy");
  const auto npy = files.file("x.npy"), raw = files.file("x.raw");
  const int ranks = size_of(MPI_COMM_WORLD), me = rank_of(MPI_COMM_WORLD);
  mpi_communicator comm(MPI_COMM_WORLD);
  const auto rows = by_rows(ranks), columns = by_columns(ranks);
  auto x = rows.array(comm), y = columns.array(comm);
  rows.fill(comm, x, 4);
  save_npy(comm, npy, x);
  load_npy(comm, npy, y);
  CHECK(columns.wrong(comm, y, 4) == 0);
  columns.fill(comm, y, 6);
  save_raw(comm, raw, y);
  load_raw(comm, raw, x);
  CHECK(rows.wrong(comm, x, 6) == 0);
  comm.barrier();
  if (me == 0) {
    std::string turned = "before!";
    for (std::int64_t k = 0; k < 5; ++k)
      for (std::int64_t i = 0; i < 9; ++i) {
        const auto element = element_at<double>(5 * i + k, 7);
        turned.append(reinterpret_cast<const char*>(&element), sizeof element);
      }
    write_file(raw, turned);
  }
  comm.barrier();
  load_raw(comm, raw, x, {.begin_byte = 7, .is_fortran_order = true});
  load_raw(comm, raw, y, {.begin_byte = 7, .is_fortran_order = true});
  CHECK(rows.wrong(comm, x, 7) == 0);
  CHECK(columns.wrong(comm, y, 7) == 0);
  const auto other = error_on_all([&] { load_raw(comm, raw, x, {.begin_byte = me == ranks - 1 ? 6 : 7}); });
  CHECK(contains(other, "raw file: processes come with different arrays, files or options; give all the same"));
  CHECK(contains(error_on_all([&] { load_npy(comm, raw, x); }), "npy: `" + raw + "` is not a .npy file"));
  CHECK(rows.wrong(comm, x, 7) == 0);
}
