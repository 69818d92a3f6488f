// SPDX-License-Identifier: Apache-2.0
// labels: once
// group: faults
// needs: gspmd::hdf5
// HDF5 files of arrays on meshes; written and read by the library itself on the other side.
#include <doctest/doctest.h>

#include <atomic>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include <hdf5.h>
#include <sys/wait.h>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "gspmd/io/hdf5.hpp"
#include "support/error_of.hpp"
#include "support/file_faults.hpp"
#include "support/layouts.hpp"
#include "support/own_numbers.hpp"
#include "support/saved_layouts.hpp"
#include "support/sharding_pairs.hpp"
#include "support/stored_states.hpp"

namespace {

using namespace gspmd;
using namespace stored_states;
using caught::contains;
using caught::error_of;
using faults::fault;

/// The library reads the variable once, at its first call. It concerns only external files with relative names.
const bool external_prefix_is_set = setenv("HDF5_EXTFILE_PREFIX", "${ORIGIN}", 1) == 0;

std::vector<hsize_t> sizes_of(const std::vector<std::int64_t>& shape) { return {shape.begin(), shape.end()}; }

/// Returns all elements of a dataset, converted to `type` by the library.
template <class T>
std::vector<T> read_whole(const std::string& path, const std::string& name, hid_t type) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  REQUIRE(dataset >= 0);
  const hid_t space = H5Dget_space(dataset);
  std::vector<T> all(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
  CHECK(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data()) >= 0);
  H5Sclose(space);
  H5Dclose(dataset);
  H5Fclose(file);
  return all;
}

/// Writes another program's file: `x` of doubles, with the properties of a dataset.
template <class Properties>
void write_whole(const std::string& path, const std::vector<std::int64_t>& shape, const std::vector<double>& all, hid_t type,
                 Properties set) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const auto sizes = sizes_of(shape);
  const hid_t space = H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
              made = H5Pcreate(H5P_DATASET_CREATE);
  set(made);
  const hid_t dataset = H5Dcreate2(file, "x", type, space, H5P_DEFAULT, made, H5P_DEFAULT);
  REQUIRE(dataset >= 0);
  if (!all.empty()) REQUIRE(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data()) >= 0);
  H5Dclose(dataset);
  H5Pclose(made);
  H5Sclose(space);
  H5Fclose(file);
}
std::vector<double> filled(std::int64_t count, std::uint64_t seed = 0) {
  std::vector<double> all;
  for (std::int64_t k = 0; k < count; ++k) all.push_back(element_at<double>(k, seed));
  return all;
}

template <class T>
struct two_parts {
  T r, i;
};
template <class T>
hid_t type_of_parts(hid_t part) {
  const hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(two_parts<T>));
  H5Tinsert(type, "r", offsetof(two_parts<T>, r), part);
  H5Tinsert(type, "i", offsetof(two_parts<T>, i), part);
  return type;
}

/// `Other`: the C++ type for elements that HDF5 reads with its own type `other`.
template <class T, class Other>
void check_type(const std::string& type, hid_t other) {
  CAPTURE(type);
  const test_files files("hdf5-type");
  const auto file = files.file("x.h5"), again = files.file("again.h5");
  const laid_out<T> from(layouts::mesh_of({2, 3}), layouts::shape_of({5, 7}), layouts::split({{0}, {1}}));
  const laid_out<T> to(layouts::mesh_of({4}), layouts::shape_of({5, 7}), layouts::split({{}, {0}}));
  simulated_communicator six(6), four(4);
  auto saved = from.array(six);
  from.fill(six, saved);
  named_arrays out, in;
  out.add("group/x", saved);
  save_hdf5(six, file, out);
  const auto found = read_hdf5_header(file);
  REQUIRE(found.datasets.size() == 1);
  CHECK(found.datasets[0].name == "group/x");
  CHECK(found.datasets[0].type == type);
  CHECK(found.datasets[0].shape == std::vector<std::int64_t>{5, 7});
  const auto all = read_whole<Other>(file, "group/x", other);
  int wrong = 0;
  for (std::size_t k = 0; k < 35; ++k) {
    const auto expected = element_at<T>(static_cast<std::int64_t>(k));
    if constexpr (sizeof(T) == sizeof(Other)) {
      wrong += std::memcmp(&all[k], &expected, sizeof(T)) != 0 ? 1 : 0;
    } else {  // a narrow float: exact in a wider one
      const auto wide = static_cast<Other>(static_cast<float>(expected));
      wrong += all[k] == wide || (all[k] != all[k] && wide != wide) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
  auto loaded = to.array(four);
  to.fill(four, loaded, 77);
  in.add("group/x", loaded);
  load_hdf5(four, file, in);
  CHECK(to.wrong(four, loaded) == 0);
  save_hdf5(four, again, in);
  CHECK(text_of_file(again) == text_of_file(file));
}

TEST_CASE("elements of every type, as the library itself reads them; the same file from any mesh") {
  check_type<float, float>("f32", H5T_NATIVE_FLOAT);
  check_type<double, double>("f64", H5T_NATIVE_DOUBLE);
  check_type<std::int8_t, std::int8_t>("s8", H5T_NATIVE_SCHAR);
  check_type<std::int16_t, std::int16_t>("s16", H5T_NATIVE_INT16);
  check_type<std::int32_t, std::int32_t>("s32", H5T_NATIVE_INT32);
  check_type<std::int64_t, std::int64_t>("s64", H5T_NATIVE_INT64);
  check_type<std::uint8_t, std::uint8_t>("u8", H5T_NATIVE_UINT8);
  check_type<std::uint32_t, std::uint32_t>("u32", H5T_NATIVE_UINT32);
  check_type<std::uint64_t, std::uint64_t>("u64", H5T_NATIVE_UINT64);
  check_type<f16, double>("f16", H5T_NATIVE_DOUBLE);
  check_type<bf16, double>("bf16", H5T_NATIVE_DOUBLE);
  const hid_t truth = H5Tenum_create(H5T_NATIVE_INT8);
  for (std::int8_t k = 0; k < 2; ++k) H5Tenum_insert(truth, k == 0 ? "FALSE" : "TRUE", &k);
  check_type<bool, std::int8_t>("pred", truth);
  check_type<std::complex<float>, two_parts<float>>("c64", type_of_parts<float>(H5T_NATIVE_FLOAT));
  check_type<std::complex<double>, two_parts<double>>("c128", type_of_parts<double>(H5T_NATIVE_DOUBLE));
  constexpr auto bytes = sizeof(own_numbers::residue);
  check_type<own_numbers::residue, own_numbers::residue>("an opaque type of " + std::to_string(bytes) + " bytes",
                                                         H5Tcreate(H5T_OPAQUE, bytes));
}

TEST_CASE("every sharding of shapes of rank 0 to 3 on meshes to 6 devices, contiguous and in chunks") {
  const test_files files("hdf5-every");
  const auto file = files.file("x.h5");
  layouts::for_all_pairs([&](const auto& from, const auto& to, const detail::extents& shape, std::uint64_t round) {
    const laid_out<double> a(from.mesh, shape, from.layout), b(to.mesh, shape, to.layout);
    simulated_communicator ours(static_cast<int>(from.mesh.device_count())), theirs(static_cast<int>(to.mesh.device_count()));
    auto x = a.array(ours);
    a.fill(ours, x, round);
    auto y = b.array(theirs);
    b.fill(theirs, y, 5);
    named_arrays out, in;
    out.add("x", x);
    in.add("x", y);
    save_hdf5(ours, file, out);
    REQUIRE(read_whole<double>(file, "x", H5T_NATIVE_DOUBLE).size() == static_cast<std::size_t>(detail::elements(shape)));
    load_hdf5(theirs, file, in);
    REQUIRE(b.wrong(theirs, y, round) == 0);
    const std::vector<std::int64_t> sizes(shape.begin(), shape.end());
    if (sizes.empty() || detail::elements(shape) == 0 || round % 5 != 0) return;
    write_whole(file, sizes, filled(detail::elements(shape), round + 1), H5T_IEEE_F64LE, [&](hid_t made) {
      auto chunk = sizes_of(sizes);
      for (auto& c : chunk) c = (c + 1) / 2;
      H5Pset_chunk(made, static_cast<int>(chunk.size()), chunk.data());
      H5Pset_shuffle(made);
    });
    load_hdf5(theirs, file, in);
    REQUIRE(b.wrong(theirs, y, round + 1) == 0);
  });
}

TEST_CASE("files of others: high bytes first, in chunks, in another file, compact, never written, by a soft link") {
  const test_files files("hdf5-others");
  const auto file = files.file("x.h5");
  const laid_out<double> on(layouts::mesh_of({2, 2}), layouts::shape_of({9, 10}), layouts::split({{0}, {1}}));
  simulated_communicator four(4);
  auto x = on.array(four);
  named_arrays in;
  in.add("x", x);
  const auto check = [&](std::uint64_t seed, hid_t type, auto set, const hdf5_load_options& options = {}) {
    CAPTURE(seed);
    write_whole(file, {9, 10}, filled(90, seed), type, set);
    on.fill(four, x, 100);
    load_hdf5(four, file, in, options);
    CHECK(on.wrong(four, x, seed) == 0);
  };
  check(1, H5T_IEEE_F64LE, [](hid_t) {});
  check(2, H5T_IEEE_F64BE, [](hid_t) {});
  CHECK(read_hdf5_header(file).datasets[0].type == "f64 with high bytes first");
  check(3, H5T_IEEE_F64LE, [](hid_t made) { H5Pset_layout(made, H5D_COMPACT); });
  const auto elements = files.file("elements");
  check(4, H5T_IEEE_F64LE, [&](hid_t made) { H5Pset_external(made, elements.c_str(), 16, 720); }, {.may_open_other_files = true});
  const auto load_x = [&] { load_hdf5(four, file, in); };
  const auto load_trusted = [&] { load_hdf5(four, file, in, {.may_open_other_files = true}); };
  CHECK(error_of(load_x) == "gspmd: hdf5: `x` in `" + file + "` is stored in the other file `" + elements +
                                "`; set may_open_other_files if you trust the file");
  std::filesystem::resize_file(elements, 735);
  CHECK(contains(error_of(load_trusted), '`' + elements + "` is cut off: it has 735 bytes"));
  std::filesystem::remove(elements);
  faults::put(faults::obstacle::pipe, elements, "");
  CHECK(contains(error_of(load_trusted), '`' + elements + "` is no file"));
  check(5, H5T_IEEE_F64BE, [](hid_t made) {
    const hsize_t chunk[] = {4, 3};
    H5Pset_chunk(made, 2, chunk);
    H5Pset_shuffle(made);
    if (H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0) H5Pset_deflate(made, 6);
  });
  {
    const hid_t opened = H5Fopen(file.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), space = H5Screate(H5S_SCALAR),
                null = H5Screate(H5S_NULL);
    H5Lcreate_soft("/x", opened, "alias", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_hard(opened, "/", opened, "round", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/nowhere", opened, "dangling", H5P_DEFAULT, H5P_DEFAULT);
    H5Dclose(H5Dcreate2(opened, "nothing", H5T_IEEE_F64LE, null, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    const hid_t fixed = H5Tcopy(H5T_C_S1), attribute_of = H5Screate(H5S_SCALAR);
    H5Tset_size(fixed, 8);
    const hid_t attribute = H5Acreate2(opened, "units", fixed, attribute_of, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, fixed, "m/s\0\0\0\0\0");
    H5Aclose(attribute);
    const hid_t number = H5Acreate2(opened, "number", H5T_STD_I32LE, attribute_of, H5P_DEFAULT, H5P_DEFAULT);
    H5Aclose(number);
    H5Sclose(attribute_of);
    H5Tclose(fixed);
    H5Sclose(space);
    H5Sclose(null);
    H5Fclose(opened);
  }
  {
    const auto other = files.file("other.h5");
    const hid_t made = H5Fcreate(other.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external("x.h5", "x", made, "linked", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external("none.h5", "x", made, "lost", H5P_DEFAULT, H5P_DEFAULT);
    const hsize_t sizes[] = {9, 10};
    const hid_t space = H5Screate_simple(2, sizes, nullptr), virtual_of = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_virtual(virtual_of, space, file.c_str(), "x", space);
    H5Dclose(H5Dcreate2(made, "x", H5T_IEEE_F64LE, space, H5P_DEFAULT, virtual_of, H5P_DEFAULT));
    H5Pclose(virtual_of);
    H5Sclose(space);
    H5Fclose(made);
    auto z = on.array(four), v = on.array(four);
    named_arrays linked, lost;
    linked.add("linked", z);
    linked.add("x", v);
    lost.add("lost", z);
    const hdf5_load_options trusted{.may_open_other_files = true};
    load_hdf5(four, other, linked, trusted);
    CHECK(on.wrong(four, z, 5) == 0);
    CHECK(on.wrong(four, v, 5) == 0);
    CHECK(contains(error_of([&] { load_hdf5(four, other, lost, trusted); }),
                   "hdf5: `" + other + "` has no array `lost`; it has `linked`, `x`"));
    const auto refused = [&](const std::string& what) {
      return "gspmd: hdf5: " + what + "`; set may_open_other_files if you trust the file";
    };
    CHECK(error_of([&] { load_hdf5(four, other, linked); }) ==
          refused("`linked` in `" + other + "` is a link to the other file `" + file));
    named_arrays virtual_one;
    virtual_one.add("x", v);
    CHECK(error_of([&] { load_hdf5(four, other, virtual_one); }) ==
          refused("`x` in `" + other + "` is a virtual dataset, of the file `" + file));
    const auto header = read_hdf5_header(other);
    CHECK((header.datasets.size() == 1 && header.datasets[0].name == "x"));
    // A missing source is not an array of zeros.
    const auto moved = files.file("moved.h5");
    std::filesystem::rename(file, moved);
    CHECK(
        contains(error_of([&] { load_hdf5(four, other, virtual_one, trusted); }), "its source `" + file + "` cannot be opened"));
    write_whole(file, {9, 10}, {}, H5T_IEEE_F64LE, [](hid_t) {});
    {
      const hid_t emptied = H5Fopen(file.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
      H5Ldelete(emptied, "x", H5P_DEFAULT);
      H5Fclose(emptied);
    }
    CHECK(contains(error_of([&] { load_hdf5(four, other, virtual_one, trusted); }),
                   "its source `" + file + "` has no dataset `x`"));
    std::filesystem::rename(moved, file);
  }
  {  // sources with one name in two folders are two files
    const auto other = files.file("two_sources.h5"), folder = other.substr(0, other.rfind('/'));
    for (const std::string part : {"/a", "/b"}) {
      std::filesystem::create_directory(folder + part);
      write_whole(folder + part + "/s.h5", {9, 10}, filled(90, 5), H5T_IEEE_F64LE, [](hid_t) {});
    }
    const hid_t second = H5Fopen((folder + "/b/s.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Lmove(second, "x", second, "y", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(second);
    const hsize_t sizes[] = {9, 10};
    const hid_t made = H5Fcreate(other.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(2, sizes, nullptr), properties = H5Pcreate(H5P_DATASET_CREATE);
    for (const hsize_t row : {0, 4}) {
      const hsize_t begin[] = {row, 0}, rows[] = {row == 0 ? hsize_t{4} : hsize_t{5}, 10};
      H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, nullptr, rows, nullptr);
      H5Pset_virtual(properties, space, row == 0 ? "a/s.h5" : "b/s.h5", row == 0 ? "x" : "y", space);
    }
    H5Sselect_all(space);
    H5Dclose(H5Dcreate2(made, "x", H5T_IEEE_F64LE, space, H5P_DEFAULT, properties, H5P_DEFAULT));
    H5Pclose(properties);
    H5Sclose(space);
    H5Fclose(made);
    auto z = on.array(four);
    named_arrays both;
    both.add("x", z);
    const hdf5_load_options trusted{.may_open_other_files = true};
    load_hdf5(four, other, both, trusted);
    CHECK(on.wrong(four, z, 5) == 0);
    std::filesystem::remove(folder + "/b/s.h5");
    CHECK(contains(error_of([&] { load_hdf5(four, other, both, trusted); }), "its source `b/s.h5` cannot be opened"));
  }
  {  // contiguous, in another file
    const auto other = files.file("other.h5"), plain = files.file("plain.h5");
    write_whole(plain, {9, 10}, filled(90, 8), H5T_IEEE_F64LE, [](hid_t) {});
    const hid_t made = H5Fcreate(other.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external("plain.h5", "x", made, "x", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(made);
    auto z = on.array(four);
    named_arrays linked;
    linked.add("x", z);
    load_hdf5(four, other, linked, {.may_open_other_files = true});
    CHECK(on.wrong(four, z, 8) == 0);
  }
  {  // a link to a dataset with its elements in a third file: ${ORIGIN} is the folder of the linked file
    REQUIRE(external_prefix_is_set);
    const auto other = files.file("origin.h5"), folder = other.substr(0, other.rfind('/')) + "/linked";
    std::filesystem::create_directory(folder);
    write_whole(folder + "/x.h5", {9, 10}, filled(90, 9), H5T_IEEE_F64LE,
                [](hid_t made) { H5Pset_external(made, "elements", 0, 720); });
    REQUIRE(std::filesystem::file_size(folder + "/elements") == 720);
    const hid_t made = H5Fcreate(other.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external("linked/x.h5", "x", made, "x", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(made);
    auto z = on.array(four);
    named_arrays linked;
    linked.add("x", z);
    load_hdf5(four, other, linked, {.may_open_other_files = true});
    CHECK(on.wrong(four, z, 9) == 0);
    std::filesystem::resize_file(folder + "/elements", 719);
    CHECK(contains(error_of([&] { load_hdf5(four, other, linked, {.may_open_other_files = true}); }),
                   '`' + folder + "/elements` is cut off: it has 719 bytes"));
  }
  auto y = on.array(four);
  named_arrays alias, nothing;
  alias.add("alias", y);
  nothing.add("nothing", y);
  load_hdf5(four, file, alias);
  CHECK(on.wrong(four, y, 5) == 0);
  CHECK(contains(error_of([&] { load_hdf5(four, file, nothing); }), "hdf5: `nothing` is [0] in `" + file + "` and the array"));
  const auto header = read_hdf5_header(file, {.attributes = true});
  CHECK(read_hdf5_header(file).attributes.empty());
  std::string names;
  for (const auto& d : header.datasets) names += d.name + ' ';
  CHECK(names == "alias nothing x ");
  CHECK(header.attributes == std::map<std::string, std::string>{{"units", "m/s"}});

  write_whole(file, {9, 10}, {}, H5T_IEEE_F64LE, [](hid_t made) {
    const double seven = 7;
    H5Pset_fill_value(made, H5T_NATIVE_DOUBLE, &seven);
  });
  load_hdf5(four, file, in);
  int wrong = 0;
  for (int i = 0; i < 4; ++i)
    on.for_each(x, i, i, [&](double found, std::int64_t k) { wrong += found == (k < 0 ? 0 : 7) ? 0 : 1; });
  CHECK(wrong == 0);
}

/// Makes a file with `x`, doubles of shape [2, 3], in chunks of the shape `chunk`. `add` adds its groups and links.
template <class Add>
void write_chunked(const std::string& path, const std::vector<hsize_t>& chunk, bool is_packed, Add add) {
  const hid_t made = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), properties = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t sizes[] = {2, 3}, most[] = {H5S_UNLIMITED, H5S_UNLIMITED};
  const hid_t space = H5Screate_simple(2, sizes, most);
  H5Pset_chunk(properties, 2, chunk.data());
  H5Pset_alloc_time(properties, H5D_ALLOC_TIME_INCR);
  if (is_packed) H5Pset_shuffle(properties);
  H5Dclose(H5Dcreate2(made, "x", H5T_IEEE_F64LE, space, H5P_DEFAULT, properties, H5P_DEFAULT));
  add(made);
  H5Sclose(space);
  H5Pclose(properties);
  H5Fclose(made);
}

TEST_CASE(
    "hostile files: every link that leaves the file, every size beyond the request, ends in an error or right data, and soon") {
  const faults::time_limit seconds(120);
  const test_files files("hdf5-hostile");
  const auto file = files.file("x.h5");
  simulated_communicator two(2);
  const laid_out<double> on(layouts::mesh_of({2}), layouts::shape_of({2, 3}), layouts::split({{0}}));
  auto x = on.array(two);
  const auto load = [&](const std::string& name, const hdf5_load_options& options = {}) {
    named_arrays in;
    in.add(name, x);
    return error_of([&] { load_hdf5(two, file, in, options); });
  };
  // A chunk of 1 GiB for 48 bytes. If compressed, it would be decompressed whole. Without filters the library reads a
  // part of the chunk.
  write_chunked(file, {8192, 16384}, true, [](hid_t) {});
  CHECK(contains(load("x"), "`x` in `" + file +
                                "` has 48 bytes in packed chunks of more than 67108864, which need as much memory; write "
                                "it in smaller chunks (h5repack -l)"));
  write_chunked(file, {2048, 4096}, true, [](hid_t) {});
  CHECK(load("x") == "no error");
  write_chunked(file, {8192, 16384}, false, [](hid_t) {});
  CHECK(load("x") == "no error");

  const auto pipe = files.file("pipe"), secret = files.file("secret");
  faults::put(faults::obstacle::pipe, pipe, "");
  write_file(secret, std::string(1000, 's'));
  constexpr int depth = 2000;
  write_chunked(file, {2, 3}, false, [&](hid_t made) {
    int number = 0;
    for (const auto& target : {pipe, secret, std::string("/dev/zero"), std::string("/proc/self/mem"), file}) {
      H5Lcreate_external(target.c_str(), "x", made, ("link" + std::to_string(number)).c_str(), H5P_DEFAULT, H5P_DEFAULT);
      const hsize_t sizes[] = {2, 3};
      const hid_t space = H5Screate_simple(2, sizes, nullptr), stored = H5Pcreate(H5P_DATASET_CREATE),
                  seen = H5Pcreate(H5P_DATASET_CREATE);
      H5Pset_external(stored, target.c_str(), 0, 48);
      H5Dclose(
          H5Dcreate2(made, ("stored" + std::to_string(number)).c_str(), H5T_IEEE_F64LE, space, H5P_DEFAULT, stored, H5P_DEFAULT));
      H5Pset_virtual(seen, space, target.c_str(), "x", space);
      H5Dclose(
          H5Dcreate2(made, ("virtual" + std::to_string(number)).c_str(), H5T_IEEE_F64LE, space, H5P_DEFAULT, seen, H5P_DEFAULT));
      H5Pclose(stored);
      H5Pclose(seen);
      H5Sclose(space);
      ++number;
    }
    H5Lcreate_soft("/link0/x", made, "soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/loop", made, "loop", H5P_DEFAULT, H5P_DEFAULT);
    hid_t group = H5Gcreate2(made, "\x1b[2Jdeep", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    for (int k = 0; k < depth; ++k) {
      const hid_t next = H5Gcreate2(group, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
      if (k % 100 == 0) H5Lcreate_hard(made, "/", next, "up", H5P_DEFAULT, H5P_DEFAULT);
      H5Gclose(group);
      group = next;
    }
    H5Lcreate_hard(made, "x", group, "x", H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(group);
  });
  for (const std::string kind : {"link", "stored", "virtual"})
    for (int number = 0; number < 5; ++number) {
      CAPTURE(kind);
      CHECK(contains(load(kind + std::to_string(number)), "; set may_open_other_files if you trust the file"));
      const auto trusted = load(kind + std::to_string(number), {.may_open_other_files = true});
      if (number == 4 || (kind == "stored" && number == 1)) CHECK(trusted == "no error");  // plain files, long enough
      else CHECK(contains(trusted, "hdf5: `"));
    }
  CHECK(contains(load("soft"), "set may_open_other_files if you trust the file"));
  const auto text = load("loop");
  CHECK(contains(text, "` has no array `loop`; it has `\\x1B[2Jdeep/g/g/"));
  CHECK(printable(text) == text);
  const auto header = read_hdf5_header(file);
  CHECK(header.datasets.size() == 12);
  CHECK(header.datasets[0].name.size() == 2 * depth + 10);
  CHECK(load("x") == "no error");
}

TEST_CASE("attributes of fixed length end where their convention says") {
  const test_files files("hdf5-texts");
  const auto file = files.file("x.h5");
  const hid_t made = H5Fcreate(file.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), scalar = H5Screate(H5S_SCALAR);
  const auto add = [&](const char* name, H5T_str_t filled_by, std::string bytes, char rest) {
    bytes.resize(16, rest);
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, 16);
    H5Tset_strpad(type, filled_by);
    const hid_t attribute = H5Acreate2(made, name, type, scalar, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(H5Awrite(attribute, type, bytes.data()) >= 0);
    H5Aclose(attribute);
    H5Tclose(type);
  };
  add("c", H5T_STR_NULLTERM, std::string("heat\0garbage", 12), '.');
  add("filled", H5T_STR_NULLTERM, "heat", '\0');
  add("fortran", H5T_STR_SPACEPAD, "heat of it", ' ');
  add("spaces", H5T_STR_SPACEPAD, "", ' ');
  add("h5py", H5T_STR_NULLPAD, "heat ", '\0');
  add("full", H5T_STR_NULLPAD, "heat", '!');
  H5Sclose(scalar);
  H5Fclose(made);
  CHECK(read_hdf5_header(file, {.attributes = true}).attributes ==
        std::map<std::string, std::string>{{"c", "heat"},
                                           {"filled", "heat"},
                                           {"fortran", "heat of it"},
                                           {"spaces", ""},
                                           {"h5py", "heat "},
                                           {"full", "heat!!!!!!!!!!!!"}});
}

TEST_CASE("on threads: a tree with groups, attributes, numbers and memory of one's own") {
  const test_files files("hdf5-threads");
  const auto file = files.file("x.h5");
  array<float> whole({7, 5});
  std::iota(whole.begin(), whole.end(), 0.5F);
  std::atomic<int> wrong = 0;
  launch(threads{}, 3, [&](auto& comm) {
    using rows = shard_view<float, mesh<axis<"a", 3>>, shape<7, 5>, split<"a", _>>;
    std::vector<float> mine(static_cast<std::size_t>(rows::local_elems), -1);
    const auto first = rows::valid_range(comm.device(0), along(0)).begin * 5;
    for (std::size_t i = 0; i < mine.size(); ++i)
      if (first + static_cast<std::int64_t>(i) < 35) mine[i] = whole[first + static_cast<std::int64_t>(i)];
    rows view(mine);
    auto layers = std::tuple(std::vector{whole, whole}, 2.5);
    named_arrays out;
    out.add("fields/u", view);
    out.add("model", layers);
    save_hdf5(comm, file, out, {.attributes = {{"program", "wärme"}, {"empty", ""}}});
    auto loaded = std::tuple(std::vector{array<float>({7, 5}), array<float>({7, 5})}, 0.0);
    std::vector<float> own(mine.size(), -1);
    rows other(own);
    named_arrays in;
    in.add("model", loaded);
    in.add("fields/u", other);
    load_hdf5(comm, file, in);
    wrong += std::get<1>(loaded) == 2.5 ? 0 : 1;
    for (std::int64_t i = 0; i < 35; ++i) wrong += std::get<0>(loaded)[1][i] != whole[i] ? 1 : 0;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const auto k = first + static_cast<std::int64_t>(i);
      wrong += own[i] != (k < 35 ? whole[k] : 0) ? 1 : 0;
    }
  });
  CHECK(wrong == 0);
  const auto header = read_hdf5_header(file, {.attributes = true});
  CHECK(header.attributes == std::map<std::string, std::string>{{"program", "wärme"}, {"empty", ""}});
  std::string names;
  for (const auto& d : header.datasets) names += d.name + ' ';
  CHECK(names == "fields/u model.0.0 model.0.1 model.1 ");
}

TEST_CASE("each file and each call that is wrong is a sentence, and nothing is loaded") {
  const test_files files("hdf5-wrong");
  const auto file = files.file("x.h5");
  const laid_out<float> rows(layouts::mesh_of({2}), layouts::shape_of({300}), layouts::split({{0}}));
  const laid_out<float> terms(layouts::mesh_of({2}), layouts::shape_of({3}), layouts::partial({}, 1));
  const laid_out<double> wide(layouts::mesh_of({2}), layouts::shape_of({300}), layouts::split({{0}}));
  const laid_out<float> square(layouts::mesh_of({2}), layouts::shape_of({10, 30}), layouts::split({{0}}));
  simulated_communicator two(2);
  auto x = rows.array(two), y = rows.array(two), sum = terms.array(two), z = square.array(two);
  auto w = wide.array(two);
  rows.fill(two, x);
  rows.fill(two, y, 3);
  named_arrays saved;
  saved.add("a", x);
  saved.add("g/b", x);
  save_hdf5(two, file, saved);
  const auto good = text_of_file(file);
  const auto load = [&](const std::string& name, auto& to) {
    named_arrays in;
    in.add("a", y);
    in.add(name, to);
    const auto text = error_of([&] { load_hdf5(two, file, in); });
    CHECK(rows.wrong(two, y, 3) == 0);
    return text;
  };
  CHECK(load("c", y) == "gspmd: hdf5: `" + file + "` has no array `c`; it has `a`, `g/b`");
  CHECK(load("g", y) == "gspmd: hdf5: `" + file + "` has no array `g`; it has `a`, `g/b`");
  CHECK(load("g/b", w) == "gspmd: hdf5: `g/b` is f32 in `" + file + "` and the array given is f64");
  CHECK(load("g/b", z) == "gspmd: hdf5: `g/b` is [300] in `" + file + "` and the array given is [10,30]");
  CHECK(contains(load("g//b", y), "the name `g//b` has a part that is empty or `.`"));
  const auto broken = [&](const std::string& content) {
    write_file(file, content);
    return load("g/b", y);
  };
  CHECK(broken("a text of no format") == "gspmd: hdf5: `" + file + "` is no HDF5 file");
  CHECK(broken("") == "gspmd: hdf5: `" + file + "` is no HDF5 file");
  CHECK(contains(broken(good.substr(0, good.size() - 1)), "hdf5: `" + file + "` cannot be read: HDF5: truncated file"));
  CHECK(contains(broken(good.substr(0, 400)), "hdf5: `" + file + "` cannot be read: HDF5: "));
  for (std::size_t size = 8; size < good.size(); size += 97) CHECK(contains(broken(good.substr(0, size)), "hdf5: `"));
  std::filesystem::remove(file);
  CHECK(contains(load("g/b", y), "hdf5: `" + file + "` cannot be opened: No such file or directory"));
  CHECK(contains(error_of([&] { static_cast<void>(read_hdf5_header(file)); }), "hdf5: `" + file + "` cannot be opened: No such"));
  CHECK(contains(error_of([&] { load_hdf5(two, files.path, saved); }), "hdf5: `" + files.path + "` is no file"));

  const auto save = [&](const std::string& name, auto& from, const hdf5_options& options = {}) {
    named_arrays out;
    out.add("a", x);
    out.add(name, from);
    return error_of([&] { save_hdf5(two, file, out, options); });
  };
  CHECK(contains(save("/b", x), "hdf5: the name `/b` has a part that is empty or `.`; `/` separates a group from its members"));
  CHECK(contains(save("g/./b", x), "has a part that is empty or `.`"));
  CHECK(contains(save("a/b", x), "hdf5: the name `a` is that of a group too, with `a/b`"));
  CHECK(contains(save("\xff", x), "is no UTF-8"));
  CHECK(contains(save("p", sum), "hdf5: `p` is partial"));
  CHECK(contains(save("b", x, {.attributes = {{"", "x"}}}),
                 "hdf5: attributes are to be UTF-8 without zeros, with a name, and `` is not"));
  CHECK(contains(save("b", x, {.attributes = {{"k", std::string("a\0b", 3)}}}), "and `k` is not"));
  CHECK(files_of(files.path).empty());
}

TEST_CASE("a save that is killed, or finds no room, at any of its calls leaves the file before it; a second saver is told") {
  using namespace saved_layouts;
  const auto save = [](const std::string& file, std::uint64_t seed) {
    simulated_communicator four(4);
    auto x = on_plane.array(four);
    auto r = on_all.array(four);
    on_plane.fill(four, x, seed);
    on_all.fill(four, r, seed);
    named_arrays state;
    state.add("x", x);
    for (const char* const name : {"g/r", "g/r1", "g/r2", "g/r3", "g/r4", "g/r5"}) state.add(name, r);  // a call for each
    save_hdf5(four, file, state);
  };
  const auto loaded_from = [](const std::string& file) {
    simulated_communicator three(3);
    auto x = on_row.array(three);
    named_arrays state;
    state.add("x", x);
    load_hdf5(three, file, state);
    return on_row.wrong(three, x, 1) == 0 ? 1 : on_row.wrong(three, x, 2) == 0 ? 2 : 0;
  };
  for (const auto what : {fault::killed, fault::full}) {
    int before = 0;
    for (bool is_due = true; is_due; ++before) {
      CAPTURE(before);
      const test_files files("hdf5-faults");
      const auto file = files.file("x");
      save(file, 1);
      std::string text = "no error";
      if (what == fault::full) {
        is_due = faults::with(what, before + 1, [&] { text = error_of([&] { save(file, 2); }); });
      } else {
        const auto child = faults::begin_process([&] {
          if (!faults::with(what, before + 1, [&] { save(file, 2); })) _exit(7);
        });
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        is_due = WIFSIGNALED(status);
      }
      const auto found = loaded_from(file);
      REQUIRE((found == 1 || found == 2));
      if (found == 1 && what == fault::full) {
        REQUIRE(contains(text, "hdf5: `" + file));
        REQUIRE(contains(text, "No space left on device"));
        REQUIRE(files_of(files.path) == std::vector<std::string>{"x"});
      }
      REQUIRE((is_due || (found == 2 && text == "no error")));
      save(file, 1);
      REQUIRE(files_of(files.path) == std::vector<std::string>{"x"});
    }
    CHECK(before >= 12);
  }
  const test_files files("hdf5-two");
  const auto file = files.file("x");
  const auto child = faults::begin_process([&] { faults::with(fault::stopped, 5, [&] { save(file, 1); }); });
  int status = 0;
  REQUIRE(waitpid(child, &status, WUNTRACED) == child);
  REQUIRE(WIFSTOPPED(status));
  CHECK(contains(error_of([&] { save(file, 2); }), "hdf5: another save to `" + file + "` is under way; wait for it"));
  kill(child, SIGCONT);
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(loaded_from(file) == 1);
}

}  // namespace
