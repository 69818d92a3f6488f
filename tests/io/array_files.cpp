// SPDX-License-Identifier: Apache-2.0
// labels: threads
// group: states
// .npy and raw files of arrays on meshes.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <complex>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/io/npy.hpp"
#include "gspmd/io/raw_file.hpp"
#include "support/error_of.hpp"
#include "support/layouts.hpp"
#include "support/own_numbers.hpp"
#include "support/sharding_pairs.hpp"
#include "support/stored_states.hpp"

namespace {

using namespace gspmd;
using namespace stored_states;
using caught::contains;
using caught::error_of;

/// Returns the content of a hand-written file, of version 1 or of another version.
std::string npy_of(const std::string& header, const std::string& elements, int version = 1) {
  std::string text = "\x93NUMPY";
  text += static_cast<char>(version);
  text += '\0';
  for (std::size_t i = 0; i < (version == 1 ? 2U : 4U); ++i) text += static_cast<char>(header.size() >> (8 * i) & 0xffU);
  return text + header + elements;
}
std::string dictionary(const std::string& type, bool is_fortran_order, const std::vector<std::int64_t>& shape) {
  std::string text = "{'descr': '" + type + "', 'fortran_order': " + (is_fortran_order ? "True" : "False") + ", 'shape': (";
  for (const auto n : shape) text += std::to_string(n) + ',';
  return text + "), }\n";
}
/// Returns the elements of laid_out::fill in the order of a file. Converts each index from one order to the other.
template <class T>
std::string elements_of(const std::vector<std::int64_t>& shape, bool is_fortran_order, std::uint64_t seed = 0) {
  std::int64_t count = 1;
  for (const auto n : shape) count *= n;
  std::string text;
  for (std::int64_t place = 0; place < count; ++place) {
    std::int64_t index = place;
    if (is_fortran_order) {
      std::vector<std::int64_t> at;
      auto rest = place;
      for (const auto n : shape) {
        at.push_back(rest % n);
        rest /= n;
      }
      index = 0;
      for (std::size_t d = 0; d < shape.size(); ++d) index = index * shape[d] + at[d];
    }
    const auto x = element_at<T>(index, seed);
    text.append(reinterpret_cast<const char*>(&x), sizeof x);
  }
  return text;
}
std::vector<std::int64_t> sizes_of(const detail::extents& shape) { return {shape.begin(), shape.end()}; }

template <class T>
void check_type(const std::string& type) {
  const test_files files("npy-type");
  const auto file = files.file("x.npy");
  const laid_out<T> from(layouts::mesh_of({2, 3}), layouts::shape_of({5, 7}), layouts::split({{0}, {1}}));
  const laid_out<T> to(layouts::mesh_of({4}), layouts::shape_of({5, 7}), layouts::split({{}, {0}}));
  simulated_communicator six(6), four(4);
  auto saved = from.array(six);
  from.fill(six, saved);
  save_npy(six, file, saved);
  auto header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (5, 7), }";
  header += std::string(117 - header.size(), ' ') + '\n';
  CHECK(text_of_file(file) == npy_of(header, elements_of<T>({5, 7}, false)));
  for (const bool is_fortran_order : {false, true})
    for (int version = 1; version <= 3; ++version) {
      write_file(file, npy_of(dictionary(type, is_fortran_order, {5, 7}), elements_of<T>({5, 7}, is_fortran_order), version));
      auto loaded = to.array(four);
      to.fill(four, loaded, 77);
      load_npy(four, file, loaded);
      CHECK(to.wrong(four, loaded) == 0);
    }
  save_raw(six, file, saved);
  CHECK(text_of_file(file) == elements_of<T>({5, 7}, false));
  auto loaded = to.array(four);
  load_raw(four, file, loaded);
  CHECK(to.wrong(four, loaded) == 0);
}

TEST_CASE("elements of every type, byte for byte") {
  check_type<float>("<f4");
  check_type<double>("<f8");
  check_type<std::int32_t>("<i4");
  check_type<std::int64_t>("<i8");
  check_type<bool>("|b1");
  check_type<bf16>("|V2");
  check_type<f16>("<f2");
  check_type<std::int8_t>("|i1");
  check_type<std::uint8_t>("|u1");
  check_type<std::int16_t>("<i2");
  check_type<std::uint32_t>("<u4");
  check_type<std::uint64_t>("<u8");
  check_type<std::complex<float>>("<c8");
  check_type<std::complex<double>>("<c16");
  check_type<own_numbers::residue>("|V" + std::to_string(sizeof(own_numbers::residue)));
}

TEST_CASE("other names of types, and bools that are neither 0 nor 1") {
  const test_files files("npy-names");
  const auto file = files.file("x.npy");
  simulated_communicator one(1);
  const auto load = [&]<class T>(const std::string& type, T& x, const std::string& elements) {
    write_file(file, npy_of(dictionary(type, false, {}), elements));
    load_npy(one, file, x);
  };
  std::int8_t byte = 0;
  bf16 brain{};
  load("<i1", byte, "\x07");
  CHECK(byte == 7);
  load("<V2", brain, std::string("\x80\x3f", 2));
  CHECK(static_cast<float>(brain) == 1);
  for (const auto* const name : {"?", "b1", "|b1"}) {
    bool flag = false;
    load(name, flag, "\x40");
    unsigned char found = 0;
    std::memcpy(&found, &flag, 1);
    CHECK(found == 1);
  }
}

TEST_CASE("every sharding of shapes of rank 0 to 3 on meshes to 6 devices, in both orders") {
  const test_files files("npy-every");
  const auto npy = files.file("x.npy"), raw = files.file("x.raw");
  layouts::for_all_pairs([&](const auto& from, const auto& to, const detail::extents& shape, std::uint64_t round) {
    const laid_out<float> a(from.mesh, shape, from.layout), b(to.mesh, shape, to.layout);
    simulated_communicator ours(static_cast<int>(from.mesh.device_count())), theirs(static_cast<int>(to.mesh.device_count()));
    const auto sizes = sizes_of(shape);
    auto x = a.array(ours);
    a.fill(ours, x, round);
    auto y = b.array(theirs);
    const auto is_loaded = [&](auto load) {
      b.fill(theirs, y, 5);
      load();
      return b.wrong(theirs, y, round) == 0;
    };
    save_npy(ours, npy, x);
    REQUIRE(text_of_file(npy).ends_with(elements_of<float>(sizes, false, round)));
    REQUIRE(is_loaded([&] { load_npy(theirs, npy, y); }));
    write_file(npy, npy_of(dictionary("<f4", true, sizes), elements_of<float>(sizes, true, round)));
    REQUIRE(is_loaded([&] { load_npy(theirs, npy, y); }));
    save_raw(ours, raw, x);
    REQUIRE(text_of_file(raw) == elements_of<float>(sizes, false, round));
    REQUIRE(is_loaded([&] { load_raw(theirs, raw, y); }));
    write_file(raw, "before!" + elements_of<float>(sizes, true, round) + "behind");
    REQUIRE(is_loaded([&] { load_raw(theirs, raw, y, {.begin_byte = 7, .is_fortran_order = true, .may_be_longer = true}); }));
  });
}

TEST_CASE("stretches of a file that devices gather are all of it, each once, however long they may be") {
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{5, 7}, {7, 1, 4}, {3, 4, 5}, {2, 3, 1, 5}, {1, 9}})
    for (std::int64_t most = 1; most <= 300; most += most < 40 ? 1 : 37) {
      const detail::file_stretches stretches(sizes, 2, most);
      std::int64_t next = 0, all = 2;
      for (const auto n : sizes) all *= n;
      for (std::int64_t k = 0; k < stretches.count(); ++k)
        if (const auto box = stretches.box(k); box.any()) {
          REQUIRE(stretches.begin_byte(box) == next);
          REQUIRE(2 * box.elems() <= std::max(most, std::int64_t{2}));
          REQUIRE(2 * box.elems() <= stretches.largest());
          next += 2 * box.elems();
        }
      REQUIRE(next == all);
      REQUIRE(!stretches.box(stretches.count()).any());
    }
}

TEST_CASE("every sharding, gathered in many rounds; a call that fails keeps nobody waiting") {
  const test_files files("gathered");
  const auto file = files.file("x.raw");
  const auto write = [&](auto& comm, detail::stored_array a, std::int64_t most, int handle_of_others,
                         std::optional<error>& failure) {
    const detail::exchanging_group devices(comm, "gathered");
    const auto parts = detail::checked_parts(a, devices.device_count());
    const detail::gathered_write gathered(devices, a, parts, 3, most);
    detail::gathered_memory memory;
    gathered.reserve(memory);
    memory.allocate(devices.held().size());
    gathered.run(handle_of_others == 0 ? detail::posix_file::write_to(file) : detail::posix_file::read(file), memory, failure);
  };
  layouts::for_all_pairs([&](const auto& from, const auto&, const detail::extents& shape, std::uint64_t round) {
    if (shape.count < 2 || detail::elements(shape) == 0) return;
    const laid_out<float> a(from.mesh, shape, from.layout);
    simulated_communicator ours(static_cast<int>(from.mesh.device_count()));
    auto x = a.array(ours);
    a.fill(ours, x, round);
    named_arrays list;
    list.add("x", x);
    auto stored = list.described()[0];
    for (const std::int64_t most : {4, 12, 40}) {
      write_file(file, "abc");
      std::optional<error> failure;
      write(ours, stored, most, 0, failure);
      REQUIRE(!failure);
      REQUIRE(text_of_file(file) == "abc" + elements_of<float>(sizes_of(shape), false, round));
    }
  });
  const laid_out<float> columns(layouts::mesh_of({3}), layouts::shape_of({40, 5}), layouts::split({{}, {0}}));
  std::atomic<int> failed = 0;
  write_file(file, "abc");
  launch(threads{}, 3, [&](auto& comm) {
    auto x = columns.array(comm);
    columns.fill(comm, x, 9);
    named_arrays list;
    list.add("x", x);
    std::optional<error> failure;
    write(comm, list.described()[0], 16, comm.device(0) == 1 ? 1 : 0, failure);
    failed +=
        failure ? (comm.device(0) == 1 && contains(failure->what(), "cannot be written: Bad file descriptor") ? 1 : 100) : 0;
  });
  CHECK(failed == 1);
}

/// A communicator of a user's, which has no exchange.
struct plain_communicator {
  simulated_communicator& all;
  [[nodiscard]] int device_count() const { return all.device_count(); }
  [[nodiscard]] int local_count() const { return all.local_count(); }
  [[nodiscard]] int device(int i) const { return all.device(i); }
  void barrier() { all.barrier(); }
  template <class T>
  void move(const detail::mesh_shape& mesh, const detail::movement& m, const T* const* in, T* const* out) {
    all.move(mesh, m, in, out);
  }
  template <class T>
  void reduce(const detail::mesh_shape& mesh, const detail::reduction& r, const T* const* in, T* const* out) {
    all.reduce(mesh, r, in, out);
  }
};

TEST_CASE("a communicator without an exchange writes row by row") {
  const test_files files("rows");
  const auto file = files.file("x.raw");
  const laid_out<float> columns(layouts::mesh_of({2, 3}), layouts::shape_of({40, 5}), layouts::split({{0}, {1}}));
  simulated_communicator six(6);
  plain_communicator plain{six};
  auto x = columns.array(six);
  columns.fill(six, x, 9);
  CHECK(!detail::exchanging_group(plain, "rows").can_exchange());
  CHECK(detail::exchanging_group(six, "rows").can_exchange());
  save_raw(plain, file, x);
  CHECK(text_of_file(file) == elements_of<float>({40, 5}, false, 9));
}

TEST_CASE("five dims, some of extent 1, and long rows in Fortran's order") {
  const test_files files("npy-five");
  const auto file = files.file("x.npy");
  const auto check = [&](const std::vector<std::int64_t>& sizes, const detail::sharding& layout) {
    const laid_out<double> on(layouts::mesh_of({2, 3}), layouts::shape_of(sizes), layout);
    simulated_communicator six(6);
    auto x = on.array(six);
    write_file(file, npy_of(dictionary("<f8", true, sizes), elements_of<double>(sizes, true)));
    load_npy(six, file, x);
    CHECK(on.wrong(six, x) == 0);
    save_npy(six, file, x);
    CHECK(text_of_file(file).ends_with(elements_of<double>(sizes, false)));
  };
  check({3, 1, 4, 1, 5}, layouts::split({{}, {}, {1}, {}, {0}}));
  check({1, 2, 1, 7, 3}, layouts::split({{0}, {}, {}, {1}, {}}));
  check({1, 1, 1, 1, 1}, layouts::split({{0}, {1}, {}, {}, {}}));
  check({70000, 5}, layouts::split({{}, {0, 1}}));
  check({5, 70000}, layouts::split({{0}, {1}}));
}

constexpr auto doubled = [](auto x) { return x * 2.0; };
using on_four = compile<doubled, mesh<axis<"x", 2>, axis<"y", 2>>, input<double, shape<7, 5>, split<"x", "y">>>;

TEST_CASE("on threads, numbers, arrays, memory of one's own and programs that are planned at run time") {
  const test_files files("npy-threads");
  const auto file = files.file("x.npy"), number = files.file("number.npy");
  array<double> whole({7, 5});
  std::iota(whole.begin(), whole.end(), 0.5);
  launch(threads{}, 4, [&](auto& comm) {
    save_npy(comm, file, distribute<on_four, 0>(comm, whole));
    save_npy(comm, number, 2.5);
  });
  CHECK(read_npy_header(file).shape == std::vector<std::int64_t>{7, 5});
  CHECK(npy_dtype(read_npy_header(number)) == dtype::f64);
  const auto program = dynamic::compile(doubled, dynamic::mesh({{"ranks", 3}}), dynamic::input<double>({7, 5}, {"", "ranks"}));
  std::atomic<int> wrong = 0;
  launch(threads{}, 3, [&](auto& comm) {
    const auto where = program.input(0);
    std::vector<double> mine(static_cast<std::size_t>(where.local_elems()), -1);
    using rows = shard_view<double, mesh<axis<"a", 3>>, shape<7, 5>, split<"a", _>>;
    std::vector<double> own(static_cast<std::size_t>(rows::local_elems), -1);
    array<double> all({7, 5});
    double one = 0;
    load_npy(comm, file, {where, {mine.data()}});
    load_npy(comm, file, rows(own));
    load_npy(comm, file, all);
    load_npy(comm, number, one);
    wrong += one == 2.5 ? 0 : 1;
    const auto columns = where.valid_range(comm.device(0), along(1));
    for (int i = 0; i < 7; ++i)
      for (auto k = columns.begin; k < columns.end; ++k)
        wrong += mine[static_cast<std::size_t>(i * where.local_shape()[1] + k - columns.begin)] != whole[i * 5 + k] ? 1 : 0;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const auto index = rows::valid_range(comm.device(0), along(0)).begin * 5 + static_cast<std::int64_t>(i);
      wrong += own[i] != (index < 35 ? whole[index] : 0) ? 1 : 0;
    }
    for (std::int64_t i = 0; i < 35; ++i) wrong += all[i] != whole[i] ? 1 : 0;
  });
  CHECK(wrong == 0);
}

TEST_CASE("each file and each call that is wrong is a sentence, and nothing is loaded") {
  const test_files files("npy-wrong");
  const auto file = files.file("x.npy");
  const laid_out<float> rows(layouts::mesh_of({2}), layouts::shape_of({3}), layouts::split({{0}}));
  const laid_out<float> terms(layouts::mesh_of({2}), layouts::shape_of({3}), layouts::partial({}, 1));
  simulated_communicator two(2);
  auto x = rows.array(two), sum = terms.array(two);
  rows.fill(two, x);
  const auto npy = [&](const std::string& content, const std::string& words) {
    write_file(file, content);
    const auto text = error_of([&] { load_npy(two, file, x); });
    CAPTURE(text);
    CHECK(contains(text, "gspmd: npy: `" + file + "` " + words));
  };
  const std::string good = dictionary("<f4", false, {3});
  npy("", "is not a .npy file");
  npy("PK\x03\x04 and so on", "is not a .npy file");
  npy(npy_of(good, "", 4), "is a .npy file of version 4; 1 to 3 are read");
  npy(npy_of(good, "12345678901"), "is cut off: 11 bytes of data where the header promises 12");
  npy(npy_of(good, "1234567890123"), "is too long: 13 bytes of data where the header promises 12");
  npy(npy_of(good, "").substr(0, 20), "is cut off in the header");
  npy(npy_of(good, "", 2).substr(0, 11), "is cut off in the header");
  npy(npy_of(dictionary(">f4", false, {3}), std::string(12, 'z')),
      "has elements of `>f4`, high bytes first, which are not turned round; save it as `<f4`");
  npy(npy_of(dictionary("<f8", false, {3}), std::string(24, 'z')), "has <f8 [3] and the array given is <f4 [3]");
  npy(npy_of(dictionary("<f4", false, {3, 1}), std::string(12, 'z')), "has <f4 [3,1] and the array given is <f4 [3]");
  npy(npy_of("{'descr': '<f4', 'shape': (3,)}", std::string(12, 'z')), "the header lacks descr, fortran_order or shape");
  npy(npy_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}", std::string(12, 'z')),
      "the header has a structured dtype; only elements of one number are read");
  CHECK(contains(error_of([&] { static_cast<void>(read_npy_header(file)); }),
                 "gspmd: npy: `" + file + "` the header has a structured"));
  write_file(file, npy_of(dictionary("<U7", false, {3}), std::string(84, 'z')));
  CHECK(contains(error_of([&] { static_cast<void>(read_npy_header(file)); }),
                 "gspmd: npy: `" + file + "` has the dtype `<U7`; only little-endian <f4 "));

  const auto raw = [&](const std::string& content, const raw_options& options, const std::string& words) {
    write_file(file, content);
    const auto text = error_of([&] { load_raw(two, file, x, options); });
    CAPTURE(text);
    CHECK(contains(text, "gspmd: raw file: " + words));
  };
  const auto has = [&](int bytes) { return '`' + file + "` has " + std::to_string(bytes) + " bytes, and f32 [3] from byte "; };
  raw("12345678901", {}, has(11) + "0 ends at byte 12");
  raw("1234567890123", {}, has(13) + "0 ends at byte 12; set may_be_longer if others follow");
  raw("123456789012345", {.begin_byte = 4, .may_be_longer = true}, has(15) + "4 ends at byte 16");
  raw("123456789012", {.begin_byte = -1}, "begin_byte is -1; it counts bytes from 0");
  CHECK(contains(error_of([&] { load_raw(two, files.path, x); }), "raw file: `" + files.path + "` is no file"));
  CHECK(contains(error_of([&] { save_raw(two, file, sum); }), "raw file: `array` is partial"));
  CHECK(contains(error_of([&] { save_npy(two, files.path + "/none/x", x); }),
                 "x.partial` cannot be made: No such file or directory"));
  const auto& constant = x;
  write_file(file, std::string(12, 'z'));
  CHECK(contains(error_of([&] { load_raw(two, file, constant); }), "`array` was added as a const object"));
  CHECK(rows.wrong(two, x) == 1);  // the padding, which a load would have set to zero
  load_raw(two, file, x);
  CHECK(x.shard(1)[1] == 0);
  CHECK(files_of(files.path) == std::vector<std::string>{"x.npy"});
}

}  // namespace
