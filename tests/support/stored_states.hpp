// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <unistd.h>

#include "gspmd/program/sharded_array.hpp"

/// Arrays whose elements encode their position, laid out without a program, and directories to save them to.
namespace stored_states {

using namespace gspmd;

/// A directory for one test case, removed at the end. It is in memory if possible, since every save waits for the disk.
struct test_directory {
  std::string path;

  /// `process` is a number that all processes of a test share.
  explicit test_directory(const std::string& name, long process = static_cast<long>(::getpid())) {
    const auto memory = std::filesystem::path("/dev/shm");
    const auto parent = ::access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
    path = (parent / ("gspmd-" + name + '-' + std::to_string(process))).string();
    std::filesystem::remove_all(path);
  }
  ~test_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  test_directory(const test_directory&) = delete;
  test_directory& operator=(const test_directory&) = delete;
};

/// A directory that exists, for files with their own names.
struct test_files : test_directory {
  explicit test_files(const std::string& name) : test_directory(name) { std::filesystem::create_directories(path); }
  [[nodiscard]] std::string file(const std::string& name) const { return path + '/' + name; }
};

inline std::string text_of_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void write_file(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}
/// Returns the files of a checkpoint, in order.
inline std::vector<std::string> files_of(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Returns element `index` of an array. Its bytes differ from those of all other elements; the bytes of a bool are 0 or
/// 1.
template <class T>
T element_at(std::int64_t index, std::uint64_t seed = 0) {
  unsigned char bytes[sizeof(T)];
  auto state = (static_cast<std::uint64_t>(index) + 1) * 0x9e3779b97f4a7c15U + seed;
  for (auto& b : bytes) {
    state ^= state >> 29;
    state *= 0xbf58476d1ce4e5b9U;
    b = static_cast<unsigned char>(std::is_same_v<T, bool> ? state >> 63 : state >> 56);
  }
  T element;
  std::memcpy(&element, bytes, sizeof(T));
  return element;
}

/// A layout must outlive the arrays that use it.
template <class T>
struct laid_out {
  detail::mesh_shape mesh;
  detail::planned_value value;

  laid_out(const detail::mesh_shape& m, const detail::extents& global, const detail::sharding& layout) : mesh(m) {
    value.type = detail::dtype_of<T>();
    value.global = global;
    value.layout = layout;
    value.local = detail::local_extents(mesh, global, layout);
  }
  template <class Comm>
  sharded_array<T> array(const Comm& comm) const {
    return sharded_array<T>(comm, mesh, value);
  }
  /// Calls `f(element of the shard, its index in the whole array, or -1 for padding)`.
  template <class Array, class F>
  void for_each(Array& a, int i, int device, F f) const {
    const auto at = mesh.coordinates_of(device);
    for (std::int64_t n = 0; n < a.local_elems(); ++n) {
      std::int64_t index = 0, rest = n, stride = 1;
      for (int d = value.global.count - 1; d >= 0; --d) {
        const auto range = detail::dim_range(mesh, value.global, value.layout, d, at);
        const auto k = rest % value.local[d];
        rest /= value.local[d];
        index = k < range.size() && index >= 0 ? index + (range.begin + k) * stride : -1;
        stride *= value.global[d];
      }
      f(a.shard(i)[static_cast<std::size_t>(n)], index);
    }
  }
  template <class Comm>
  void fill(const Comm& comm, sharded_array<T>& a, std::uint64_t seed = 0) const {
    for (int i = 0; i < comm.local_count(); ++i)
      for_each(a, i, comm.device(i), [&](T& x, std::int64_t index) { x = element_at<T>(index < 0 ? 1000003 : index, seed); });
  }
  /// Returns the number of elements that differ from the values of fill(). Padding must be zero.
  template <class Comm>
  int wrong(const Comm& comm, const sharded_array<T>& a, std::uint64_t seed = 0) const {
    int count = 0;
    for (int i = 0; i < comm.local_count(); ++i)
      for_each(a, i, comm.device(i), [&](const T& x, std::int64_t index) {
        const T expected = index < 0 ? T{} : element_at<T>(index, seed);
        count += std::memcmp(&x, &expected, sizeof(T)) != 0 ? 1 : 0;
      });
    return count;
  }
};

}  // namespace stored_states
