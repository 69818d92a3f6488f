// SPDX-License-Identifier: Apache-2.0
// ranks: 2 3 4
// labels: any_mpi
// needs: gspmd::hdf5
// HDF5 files, written and read by ranks.
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <hdf5.h>
#include <sys/resource.h>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/io/hdf5.hpp"
#include "gspmd/mpi.hpp"
#include "support/common_directory.hpp"
#include "support/error_of.hpp"
#include "support/layouts.hpp"
#include "support/stored_states.hpp"

using namespace gspmd;
using namespace stored_states;
using namespace common_files;
using caught::contains;

TEST_CASE("HDF5: saved on all ranks, loaded on any number of them; in chunks too; one error on all ranks") {
  const common_directory files("mpi-hdf5");
  if (files.owned) std::filesystem::create_directories(files.path);
  MPI_Barrier(MPI_COMM_WORLD);
  const auto file = files.path + "/state.h5", chunks = files.path + "/chunks.h5";
  const int ranks = size_of(MPI_COMM_WORLD), me = rank_of(MPI_COMM_WORLD), last = ranks - 1;
  mpi_communicator comm(MPI_COMM_WORLD);
  const auto rows = by_rows(ranks), columns = by_columns(ranks);
  auto x = rows.array(comm), y = columns.array(comm);
  rows.fill(comm, x, 1);
  columns.fill(comm, y, 2);
  named_arrays saved;
  saved.add("fields/x", x);
  saved.add("fields/y", y);
  save_hdf5(comm, file, saved, {.attributes = {{"program", "test"}}});
  CHECK(read_hdf5_header(file, {.attributes = true}).attributes.at("program") == "test");
  if (me == 0) {  // written by the HDF5 library without gspmd
    const hid_t opened = H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), dataset = H5Dopen2(opened, "fields/y", H5P_DEFAULT);
    std::vector<double> all(45);
    CHECK(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data()) >= 0);
    for (std::int64_t k = 0; k < 45; ++k) {
      const auto expected = element_at<double>(k, 2);
      CHECK(std::memcmp(&all[static_cast<std::size_t>(k)], &expected, sizeof expected) == 0);
    }
    H5Dclose(dataset);
    H5Fclose(opened);
    const hid_t made = H5Fcreate(chunks.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), how = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t sizes[] = {9, 5}, chunk[] = {2, 3};
    H5Pset_chunk(how, 2, chunk);
    const hid_t space = H5Screate_simple(2, sizes, nullptr),
                in_chunks = H5Dcreate2(made, "u", H5T_IEEE_F64BE, space, H5P_DEFAULT, how, H5P_DEFAULT);
    H5Dwrite(in_chunks, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data());
    H5Dclose(in_chunks);
    H5Sclose(space);
    H5Pclose(how);
    H5Fclose(made);
  }
  comm.barrier();
  for_fewer_ranks([&](auto& some, const auto& layout) {
    auto a = layout.array(some), b = layout.array(some), c = layout.array(some);
    named_arrays both, one;
    both.add("fields/y", b);
    both.add("fields/x", a);
    one.add("u", c);
    load_hdf5(some, file, both);
    load_hdf5(some, chunks, one);
    CHECK(layout.wrong(some, a, 1) == 0);
    CHECK(layout.wrong(some, b, 2) == 0);
    CHECK(layout.wrong(some, c, 2) == 0);
  });
  MPI_Barrier(MPI_COMM_WORLD);

  const laid_out<double> long_rows(layouts::mesh_of({ranks}), layouts::shape_of({4 * ranks, 64}), layouts::split({{0}, {}}));
  auto z = long_rows.array(comm);
  named_arrays large;
  large.add("z", z);
  // The last rank may write no byte of a file after the first 1024.
  ::rlimit most{};
  getrlimit(RLIMIT_FSIZE, &most);
  std::signal(SIGXFSZ, SIG_IGN);
  auto less = most;
  if (me == last) less.rlim_cur = 1024;
  setrlimit(RLIMIT_FSIZE, &less);
  const auto full = error_on_all([&] { save_hdf5(comm, file, large); });
  setrlimit(RLIMIT_FSIZE, &most);
  CHECK(contains(full,
                 "gspmd: on rank " + std::to_string(last) + ": hdf5: `" + file + ".partial` cannot be written: File too large"));
  const auto other = error_on_all([&] {
    save_hdf5(comm, file, saved, {.attributes = {{"program", me == last ? "another" : "test"}}});
  });
  CHECK(contains(other, "hdf5: processes come with different arrays, files or options; give all the same"));
  if (me == 0) CHECK(files_of(files.path) == std::vector<std::string>{"chunks.h5", "state.h5"});
  rows.fill(comm, x, 3);
  const int padding = rows.wrong(comm, x, 3);  // a load would set the padding to zero
  const auto& constant = x;
  named_arrays missing, only_saved;
  missing.add("fields/y", y);
  missing.add("fields/z", x);
  only_saved.add("fields/x", constant);
  CHECK(contains(error_on_all([&] { load_hdf5(comm, file, missing); }),
                 "hdf5: `" + file + "` has no array `fields/z`; it has `fields/x`, `fields/y`"));
  CHECK(contains(error_on_all([&] { load_hdf5(comm, file, only_saved); }), "`fields/x` was added as a const object"));
  comm.barrier();
  if (me == 0) std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  comm.barrier();
  CHECK(
      contains(error_on_all([&] { load_hdf5(comm, file, saved); }), "hdf5: `" + file + "` cannot be read: HDF5: truncated file"));
  CHECK(rows.wrong(comm, x, 3) == padding);
}
