// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/io/npy.hpp>
#include <gspmd/program/dtype.hpp>

#include "whole_file.hpp"

/// Whole arrays in NumPy's file format (versions 1 to 3, C and Fortran order).
namespace npy {

/// A mistake in a file. The text does not contain the file's name.
struct problem : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Converts from Fortran order (dim 0 is contiguous) to C order (the last dim is contiguous).
inline std::vector<std::byte> to_c_order(const std::vector<std::byte>& from, const std::vector<std::int64_t>& shape,
                                         std::size_t size) {
  std::vector<std::byte> to(from.size());
  std::vector<std::size_t> stride(shape.size(), size);
  for (std::size_t d = 1; d < shape.size(); ++d) stride[d] = stride[d - 1] * static_cast<std::size_t>(shape[d - 1]);
  std::vector<std::int64_t> index(shape.size(), 0);
  std::size_t source = 0;
  for (std::size_t i = 0; i < to.size(); i += size) {
    std::memcpy(&to[i], &from[source], size);
    for (std::size_t d = shape.size(); d-- > 0;) {
      source += stride[d];
      if (++index[d] < shape[d]) break;
      source -= stride[d] * static_cast<std::size_t>(shape[d]);
      index[d] = 0;
    }
  }
  return to;
}

/// Twelve bytes, and the largest header of a file.
inline constexpr std::uint64_t most_header_bytes = 12 + (1U << 20);

/// Reads from a stream of `file_bytes` bytes.
inline gspmd::dynamic::any_array read(std::istream& in, std::uint64_t file_bytes) {
  // Reads the start first: a file may promise more elements than it has, and a file may be large.
  std::string text(static_cast<std::size_t>(std::min(file_bytes, most_header_bytes)), '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  in.clear();
  const auto h = [&] {
    try {
      return gspmd::parse_npy_header(text, static_cast<std::int64_t>(file_bytes));
    } catch (const gspmd::error& e) {
      throw problem(e.text());
    }
  }();
  gspmd::dynamic::any_array array;
  array.type = gspmd::npy_dtype(h);
  array.shape = h.shape;
  const auto bytes = file_bytes - static_cast<std::uint64_t>(h.begin);
  in.seekg(h.begin);
  array.bytes.resize(bytes);
  if (bytes > 0 && !in.read(reinterpret_cast<char*>(array.bytes.data()), static_cast<std::streamsize>(bytes)))
    throw problem("cannot be read to its end");
  if (array.type == gspmd::dtype::pred)
    for (auto& b : array.bytes) b = b == std::byte{0} ? std::byte{0} : std::byte{1};
  if (h.is_fortran_order && h.shape.size() > 1)
    array.bytes = to_c_order(array.bytes, h.shape, static_cast<std::size_t>(gspmd::bytes_of(array.type)));
  return array;
}

/// Throws `problem`.
inline gspmd::dynamic::any_array read(const std::string& file) {
  std::error_code failed;
  const auto status = std::filesystem::status(file, failed);
  if (status.type() == std::filesystem::file_type::not_found) throw problem("is not there");
  if (status.type() != std::filesystem::file_type::regular) throw problem("is not a file");
  const auto bytes = std::filesystem::file_size(file, failed);
  if (failed) throw problem("has no size: " + failed.message());
  std::ifstream in(file, std::ios::binary);
  if (!in) throw problem(std::string("cannot be opened: ") + std::strerror(errno));
  return read(in, bytes);
}

/// Writes version 1, C order, with the data at a multiple of 64 bytes, in the same form as NumPy.
inline void write(std::ostream& out, const gspmd::dynamic::any_array& array) {
  const auto header = gspmd::npy_header_text(array.type, array.shape);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  out.write(reinterpret_cast<const char*>(array.bytes.data()), static_cast<std::streamsize>(array.bytes.size()));
}

/// Throws `problem`. After that, the file does not exist, or has its previous contents.
inline void write(const std::string& file, const gspmd::dynamic::any_array& array) {
  const auto failed =
      plan_tool::write_whole_file(file, plan_tool::chosen_by::program, [&](std::ostream& out) { write(out, array); });
  if (!failed.empty()) throw problem("cannot be written: " + failed);
}

}  // namespace npy
