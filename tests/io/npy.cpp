// SPDX-License-Identifier: Apache-2.0
// labels: planner
// The .npy files that gspmd-plan reads and writes.
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "../tools/gspmd-plan/npy.hpp"

using gspmd::dtype;
using gspmd::dynamic::any_array;

namespace {

template <class T>
any_array make(dtype type, std::vector<std::int64_t> shape, const std::vector<T>& data) {
  any_array a{type, std::move(shape), {}};
  a.bytes.resize(data.size() * sizeof(T));
  if (!data.empty()) std::memcpy(a.bytes.data(), data.data(), a.bytes.size());
  return a;
}

any_array read_text(const std::string& text) {
  std::istringstream in(text, std::ios::binary);
  return npy::read(in, text.size());
}
std::string write_text(const any_array& a) {
  std::ostringstream out(std::ios::binary);
  npy::write(out, a);
  return out.str();
}
std::string problem_of(const std::string& text) {
  try {
    static_cast<void>(read_text(text));
  } catch (const npy::problem& p) {
    return p.what();
  }
  return "no problem";
}

/// Returns the content of a hand-written file.
std::string file_of(int version, const std::string& header, const std::string& data) {
  std::string text = "\x93NUMPY";
  text += static_cast<char>(version);
  text += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) text += static_cast<char>(header.size() >> (8 * i) & 0xFFU);
  return text + header + data;
}
template <class T>
std::string bytes_of(const std::vector<T>& data) {
  return {reinterpret_cast<const char*>(data.data()), data.size() * sizeof(T)};
}

}  // namespace

TEST_CASE("what is written is read again, for every type and rank") {
  const std::vector<any_array> arrays = {
      make<float>(dtype::f32, {2, 3}, {1, -2.5F, 3, 4, 5, 6}),
      make<double>(dtype::f64, {3}, {0.1, -0.2, 1e300}),
      make<std::int32_t>(dtype::s32, {}, {-7}),
      make<std::int64_t>(dtype::s64, {1, 2, 1, 2}, {1, 2, 3, std::int64_t{1} << 60}),
      make<std::uint8_t>(dtype::pred, {4}, {0, 1, 1, 0}),
      make<std::uint16_t>(dtype::bf16, {2}, {0x3f80, 0x7fc0}),
      make<std::uint16_t>(dtype::f16, {1}, {0x3c00}),
      make<std::int8_t>(dtype::s8, {2}, {-1, 127}),
      make<std::uint8_t>(dtype::u8, {2}, {255, 2}),
      make<std::int16_t>(dtype::s16, {1}, {-300}),
      make<std::uint32_t>(dtype::u32, {1}, {4'000'000'000}),
      make<std::uint64_t>(dtype::u64, {1}, {18'000'000'000'000'000'000U}),
      make<float>(dtype::f32, {0, 3}, {}),
      make<float>(dtype::f32, std::vector<std::int64_t>(32, 1), {9}),
  };
  for (const auto& a : arrays) {
    const auto text = write_text(a);
    CHECK((text.size() - a.bytes.size()) % 64 == 0);
    const auto b = read_text(text);
    CHECK(b.type == a.type);
    CHECK(b.shape == a.shape);
    CHECK(b.bytes == a.bytes);
  }
}

TEST_CASE("a header as NumPy writes it") {
  CHECK(write_text(make<float>(dtype::f32, {5}, std::vector<float>(5))).substr(10, 60) ==
        "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }   ");
  CHECK(write_text(make<std::uint8_t>(dtype::pred, {}, {1})).substr(10, 56) ==
        "{'descr': '|b1', 'fortran_order': False, 'shape': (), } ");
  CHECK(write_text(make<double>(dtype::f64, {1, 2}, {1, 2})).substr(10, 58) ==
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2), ");
}

TEST_CASE("versions 1 to 3, keys in any order, both quotes") {
  const std::string data = bytes_of(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6});
  for (int version = 1; version <= 3; ++version) {
    const auto a = read_text(file_of(version, "{ \"shape\" : (2,3,), 'fortran_order':False,'descr': '<i4'}\n", data));
    CHECK(a.shape == std::vector<std::int64_t>{2, 3});
    CHECK(a.data<std::int32_t>()[5] == 6);
  }
  CHECK(read_text(file_of(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (6L,), }", data)).shape ==
        std::vector<std::int64_t>{6});
}

TEST_CASE("Fortran order becomes C order") {
  // a[i][j][k] = 100 i + 10 j + k, the first index fastest
  std::vector<double> fortran;
  for (int k = 0; k < 4; ++k)
    for (int j = 0; j < 3; ++j)
      for (int i = 0; i < 2; ++i) fortran.push_back(100 * i + 10 * j + k);
  const auto a = read_text(file_of(1, "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3, 4), }", bytes_of(fortran)));
  int at = 0;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k) CHECK(a.data<double>()[at++] == 100 * i + 10 * j + k);
  CHECK(read_text(file_of(1, "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 0, 4), }", "")).bytes.empty());
}

TEST_CASE("a byte that is not 0 is true") {
  const auto a =
      read_text(file_of(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", std::string("\x00\x02\xFF", 3)));
  CHECK(a.bytes == std::vector<std::byte>{std::byte{0}, std::byte{1}, std::byte{1}});
}

TEST_CASE("files that are wrong") {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  CHECK(problem_of("") == "is not a .npy file");
  CHECK(problem_of("PK\x03\x04 and so on") == "is not a .npy file");
  CHECK(problem_of(file_of(4, good, "")) == "is a .npy file of version 4; 1 to 3 are read");
  CHECK(problem_of(file_of(1, good, "1234567")) == "is cut off: 7 bytes of data where the header promises 8");
  CHECK(problem_of(file_of(1, good, "123456789")) == "is too long: 9 bytes of data where the header promises 8");
  CHECK(problem_of(file_of(1, good, "").substr(0, 20)) == "is cut off in the header");
  CHECK(problem_of(file_of(2, good, "").substr(0, 11)) == "is cut off in the header");
  CHECK(problem_of(std::string("\x93NUMPY\x02\x00\xFF\xFF\xFF\xFF", 12)) == "is cut off in the header");
  CHECK(problem_of(file_of(1, "{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", "12345678")).find("dtype `>f4`") !=
        std::string::npos);
  CHECK(problem_of(file_of(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "")).find("structured") !=
        std::string::npos);
  CHECK(problem_of(file_of(1, "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,), }", "")).find("neither True nor False") !=
        std::string::npos);
  CHECK(problem_of(file_of(1, "{'descr': '<f4', 'fortran_order': False, 'shape': 2, }", "")) ==
        "the header has no `(` at character 50");
  CHECK(problem_of(file_of(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", "")).find("no extent") !=
        std::string::npos);
  CHECK(problem_of(file_of(1, "{'descr': '<f4', 'fortran_order': False}", "")).find("lacks") != std::string::npos);
  CHECK(problem_of(file_of(1, good + "x", "12345678")) == "the header has text after the dictionary");
  CHECK(problem_of(file_of(1, "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "12345678"))
            .find("`descr`") != std::string::npos);
  CHECK(problem_of(file_of(1, "{'descr': '<f4", "")) == "the header has a string without an end");
  CHECK(
      problem_of(file_of(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 2), }", "")).find("2^60") !=
      std::string::npos);
  CHECK(problem_of(file_of(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,), }", ""))
            .find("too large") != std::string::npos);
  CHECK(problem_of(file_of(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 1099511627776, 1099511627776), }", ""))
            .find("2^60") != std::string::npos);
}

TEST_CASE("files on disk") {
  const auto file = (std::filesystem::temp_directory_path() / "gspmd_npy_test.npy").string();
  const auto a = make<float>(dtype::f32, {2}, {1, 2});
  npy::write(file, a);
  CHECK(npy::read(file).bytes == a.bytes);
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  CHECK_THROWS_AS(static_cast<void>(npy::read(file)), npy::problem);
  std::filesystem::remove(file);
  CHECK_THROWS_AS(static_cast<void>(npy::read(file)), npy::problem);
  CHECK_THROWS_AS(npy::write("/nowhere/a.npy", a), npy::problem);
}
