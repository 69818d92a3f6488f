// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/error.hpp"
#include "gspmd/io/detail/manifest.hpp"

namespace gspmd::detail {

/// Reads the text that text_of(manifest) writes. Throws gspmd::error for any other text, boxes that do not make up
/// their arrays, files outside of the directory, and impossible numbers.
class manifest_reader {
 public:
  manifest_reader(std::string_view text, std::string path) : text_(text), path_(std::move(path)) {}

  manifest read() {
    if (!accept(manifest_start)) fail("is no manifest of a checkpoint of this library");
    if (const auto version = number(); version != manifest_version)
      fail("has version " + std::to_string(version) + " of the format, and this library reads version " +
           std::to_string(manifest_version));
    check_sum();
    manifest m;
    expect(", \"step\": ");
    m.step = number();
    expect(", \"block_bytes\": ");
    m.block_bytes = number();
    if (m.block_bytes < 1 || m.block_bytes > most_block_bytes) fail("has blocks of " + std::to_string(m.block_bytes) + " bytes");
    expect(", \"arrays\": ");
    m.arrays = list<stored_entry>(",", [&] { return array(m); });
    expect(",");
    if (at_ != text_.size()) unexpected();
    return m;
  }

  static constexpr std::int64_t most_block_bytes = std::int64_t{1} << 30;

 private:
  [[noreturn]] void fail(const std::string& what) const { throw error("`" + path_ + "` " + what); }
  [[noreturn]] void unexpected() const { fail("has an unexpected character at byte " + std::to_string(at_)); }

  /// Checks the checksum at the end and removes it from the text.
  void check_sum() {
    constexpr auto tail = manifest_end.size() + std::string_view("\"89abcdef\"}\n").size();
    if (text_.size() < tail || text_.substr(text_.size() - tail, manifest_end.size()) != manifest_end) fail("is cut off");
    const auto body = text_.substr(0, text_.size() - tail);
    const auto sum = json_text(hex_text(crc32c(body.data(), body.size()))) + "}\n";
    if (text_.substr(text_.size() - sum.size()) != sum) fail("was changed after it was written: its checksum is another one");
    text_ = body;
  }

  [[nodiscard]] bool accept(std::string_view words) {
    if (text_.substr(at_, words.size()) != words) return false;
    at_ += words.size();
    return true;
  }
  void expect(std::string_view words) {
    if (!accept(words)) unexpected();
  }
  std::int64_t number() {
    std::int64_t n = 0;
    const auto begin = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (n > std::int64_t{1} << 59) unexpected();
      n = 10 * n + (text_[at_] - '0');
    }
    if (at_ == begin) unexpected();
    return n;
  }
  std::string string() {
    std::string s;
    expect("\"");
    while (!accept("\"")) {
      if (at_ < text_.size() && text_[at_] == '\\') ++at_;
      if (at_ >= text_.size()) unexpected();
      s += text_[at_++];
    }
    return s;
  }
  /// Reads at most `most` items, because items may need more memory than their text.
  template <class T, class Read>
  std::vector<T> list(const char* between, Read read, std::int64_t most = most_manifest_bytes) {
    std::vector<T> all;
    expect("[");
    while (!accept("]")) {
      if (!all.empty()) expect(between);
      if (static_cast<std::int64_t>(all.size()) == most) unexpected();
      all.push_back(read());
    }
    return all;
  }
  std::vector<std::int64_t> numbers() {
    return list<std::int64_t>(
        ", ", [&] { return number(); }, max_rank);
  }

  dtype type() {
    const auto name = string();
    for (std::size_t i = 0; i < dtype_end; ++i)
      if (name == stored_type(static_cast<dtype>(i))) return static_cast<dtype>(i);
    fail("has the element type `" + name + "`, which this library does not know");
  }
  std::uint32_t checksum() {
    const auto text = string();
    std::uint32_t sum = 0;
    for (const char c : text) sum = sum << 4 | static_cast<std::uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    if (text != hex_text(sum)) unexpected();
    return sum;
  }

  stored_entry array(const manifest& m) {
    stored_entry a;
    expect("\n  {\"name\": ");
    a.name = string();
    expect(", \"type\": ");
    a.type = type();
    expect(", \"shape\": ");
    a.shape = numbers();
    std::int64_t bytes = bytes_of(a.type);
    for (const auto e : a.shape) {
      if (e > (std::int64_t{1} << 60) / bytes) fail("has an array of more than 2^60 bytes, `" + a.name + '`');
      bytes *= e > 0 ? e : 1;
    }
    expect(", \"sharding\": ");
    a.sharding = list<std::string>(
        ", ", [&] { return string(); }, max_rank);
    expect(", \"parts\": ");
    a.parts = list<stored_part>(",", [&] { return part(m, a); });
    expect("}");
    std::vector<const stored_box*> boxes;
    for (const auto& p : a.parts) boxes.push_back(&p.box);
    if (a.shape.size() > static_cast<std::size_t>(max_rank) || !is_tiling(a.shape, boxes))
      fail("has parts of `" + a.name + "` that are not a partition of the array: some element is in no part or in two parts");
    return a;
  }
  stored_part part(const manifest& m, const stored_entry& a) {
    stored_part p;
    expect("\n    {\"file\": ");
    p.file = string();
    if (p.file.empty() || p.file[0] == '.' || p.file.find('/') != std::string::npos)
      fail("names the file `" + p.file + "`, which is not in its directory");
    expect(", \"offset\": ");
    p.box.offset = numbers();
    expect(", \"size\": ");
    p.box.size = numbers();
    if (p.box.offset.size() != a.shape.size() || p.box.size.size() != a.shape.size()) unexpected();
    for (std::size_t d = 0; d < a.shape.size(); ++d)
      if (p.box.size[d] > a.shape[d]) unexpected();
    expect(", \"bytes\": ");
    const auto bytes = number();
    if (bytes != p.box.elems() * bytes_of(a.type)) unexpected();
    expect(", \"crc32c\": ");
    p.checksums = list<std::uint32_t>(
        ", ", [&] { return checksum(); }, m.block_count(bytes));
    if (static_cast<std::int64_t>(p.checksums.size()) != m.block_count(bytes)) unexpected();
    expect("}");
    return p;
  }

  std::string_view text_;
  std::string path_;
  std::size_t at_ = 0;
};

}  // namespace gspmd::detail
