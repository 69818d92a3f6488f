// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gspmd/program/printable.hpp>
#include <nlohmann/json.hpp>

/// Reads JSON. Every error has a path such as `ops[3].attrs.equation`.
namespace plan_tool {

using json = nlohmann::json;

/// Returns a user's name for a message.
inline std::string in_quotes(std::string_view name) { return '`' + gspmd::printable(name, 60) + '`'; }

/// All mistakes of a document or a file: one line each, of limited length, printable on a terminal.
class error_list {
 public:
  void add(const std::string& where, const std::string& what) {
    ++count_;
    if (lines_.size() < most_lines) lines_.push_back(gspmd::printable(where.empty() ? what : where + ": " + what, most_bytes));
  }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::vector<std::string> lines() const {
    auto result = lines_;
    if (count_ > most_lines) result.push_back("and " + std::to_string(count_ - most_lines) + " errors more");
    return result;
  }

 private:
  static constexpr std::size_t most_lines = 100;
  static constexpr std::size_t most_bytes = 1000;
  std::vector<std::string> lines_;
  std::size_t count_ = 0;
};

/// A position in a document. A path refers to its parent and becomes text only for an error.
class path {
 public:
  path() = default;
  path(const path& up, std::string_view key) : up_(&up), key_(key) {}
  path(const path& up, std::size_t index) : up_(&up), index_(index), is_index_(true) {}

  [[nodiscard]] std::string str() const {
    if (up_ == nullptr) return {};
    const auto above = up_->str();
    if (is_index_) return above + '[' + std::to_string(index_) + ']';
    return above.empty() ? std::string(key_) : above + '.' + std::string(key_);
  }

 private:
  const path* up_ = nullptr;
  std::string_view key_;
  std::size_t index_ = 0;
  bool is_index_ = false;
};

/// Returns `a JSON value`, short enough for a message.
inline std::string found(const json& j) {
  if (j.is_object()) return "an object";
  if (j.is_array()) return "a list";
  if (j.is_string()) return "the string " + in_quotes(j.get_ref<const std::string&>());
  return j.dump();
}

inline std::string joined(const std::vector<std::string>& words) {
  std::string t;
  for (const auto& w : words) t += (t.empty() ? "" : " ") + w;
  return t;
}

/// Reads the members of one object. Every member that is not requested is an error, except `comment`.
///
/// find, require and text request a member. Request a member only if its value is used: a member that does not apply to
/// this object is then refused like an unknown name. refuse_unknown reports the errors. If the document has no other
/// error, the destructor calls it too, so a missing call has no effect.
class object_reader {
 public:
  object_reader(const json& j, const path& at, error_list& errors) : json_(&j), at_(&at), errors_(&errors) {
    if (j.is_object()) return;
    errors.add(at.str(), "is " + found(j) + ", not an object");
    json_ = nullptr;
  }
  object_reader(const object_reader&) = delete;
  object_reader& operator=(const object_reader&) = delete;
  ~object_reader() {
    if (errors_->empty() && std::uncaught_exceptions() == 0) refuse_unknown();
  }

  [[nodiscard]] bool is_object() const { return json_ != nullptr; }
  [[nodiscard]] const path& at() const { return *at_; }
  [[nodiscard]] error_list& errors() const { return *errors_; }

  /// Returns the member, or null if it is absent or the JSON null.
  const json* find(std::string_view key) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
    if (json_ == nullptr) return nullptr;
    const auto it = json_->find(std::string(key));
    return it == json_->end() || it->is_null() ? nullptr : &*it;
  }
  const json* require(std::string_view key, const char* what) {
    const auto* j = find(key);
    if (j == nullptr && json_ != nullptr) errors_->add(path(*at_, key).str(), std::string("is missing; it is ") + what);
    return j;
  }
  std::optional<std::string> text(std::string_view key, const char* what) {
    const auto* j = require(key, what);
    if (j == nullptr) return {};
    if (j->is_string()) return j->get<std::string>();
    errors_->add(path(*at_, key).str(), "is " + found(*j) + ", not a string");
    return {};
  }
  /// Stops reading an object that another mistake makes useless. Its other members are not refused.
  void skip() { json_ = nullptr; }
  /// Refuses members that were not requested. Call it after all requests.
  void refuse_unknown() {
    if (json_ == nullptr) return;
    for (const auto& [key, value] : json_->items()) {
      if (key == "comment" || std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      std::string list;
      for (const auto k : known_) list += (list.empty() ? "" : " ") + std::string(k);
      errors_->add(at_->str(),
                   in_quotes(key) + " is not a member here; " + (list.empty() ? "leave it out" : "the members are: " + list));
    }
  }

 private:
  const json* json_;
  const path* at_;
  error_list* errors_;
  std::vector<std::string_view> known_;
};

/// Reads an integer in [least, most]. Any other value is an error.
template <class T>
std::optional<T> read_integer_of(const json& j, const path& at, error_list& errors, T least, T most) {
  if (!j.is_number_integer()) {
    errors.add(at.str(), "is " + found(j) + ", not an integer");
    return {};
  }
  const auto checked = [&](auto n) -> std::optional<T> {
    if (std::in_range<T>(n) && static_cast<T>(n) >= least && static_cast<T>(n) <= most) return static_cast<T>(n);
    errors.add(at.str(), "is " + j.dump() + ", not from " + std::to_string(least) + " to " + std::to_string(most));
    return {};
  };
  return j.is_number_unsigned() ? checked(j.get<std::uint64_t>()) : checked(j.get<std::int64_t>());
}
inline std::optional<std::int64_t> read_integer(const json& j, const path& at, error_list& errors, std::int64_t least,
                                                std::int64_t most) {
  return read_integer_of<std::int64_t>(j, at, errors, least, most);
}

/// Reads a list of at most `most_count` integers in [least, most].
inline std::optional<std::vector<std::int64_t>> read_integers(const json& j, const path& at, error_list& errors,
                                                              std::int64_t least, std::int64_t most, std::size_t most_count) {
  if (!j.is_array()) {
    errors.add(at.str(), "is " + found(j) + ", not a list of integers");
    return {};
  }
  if (j.size() > most_count) {
    errors.add(at.str(), "has " + std::to_string(j.size()) + " entries; at most " + std::to_string(most_count));
    return {};
  }
  std::vector<std::int64_t> list;
  list.reserve(j.size());
  bool is_right = true;
  for (std::size_t i = 0; i < j.size(); ++i) {
    const auto n = read_integer(j[i], path(at, i), errors, least, most);
    is_right = is_right && n.has_value();
    list.push_back(n.value_or(0));
  }
  if (!is_right) return {};
  return list;
}

inline constexpr std::size_t most_document_bytes = std::size_t{32} << 20;
inline constexpr std::size_t most_json_values = std::size_t{1} << 21;

/// Checks a document before it is stored: an object must not have a key twice, and the stored document must fit into
/// memory. (The parser that stores and calls a callback takes quadratic time for a list of objects.)
class document_check : public json::json_sax_t {
 public:
  std::string problem;

  bool null() override { return count(); }
  bool boolean(bool) override { return count(); }
  bool number_integer(json::number_integer_t) override { return count(); }
  bool number_unsigned(json::number_unsigned_t) override { return count(); }
  bool number_float(json::number_float_t, const std::string&) override { return count(); }
  bool string(std::string&) override { return count(); }
  bool binary(json::binary_t&) override { return count(); }
  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return count();
  }
  bool key(std::string& name) override {
    return keys_.back().insert(name).second || fail("an object has the member " + in_quotes(name) + " twice");
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override { return count(); }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const json::exception& e) override {
    std::string what = e.what();
    if (const auto end = what.find("] "); end != std::string::npos) what.erase(0, end + 2);
    return fail("not JSON: " + what);
  }

 private:
  bool fail(std::string what) {
    problem = std::move(what);
    return false;
  }
  bool count() { return ++count_ <= most_json_values || fail("the document has more than 2^21 JSON values"); }

  std::vector<std::set<std::string>> keys_;  // of the objects around this position
  std::size_t count_ = 0;
};

/// Parses a document. Returns null and adds an error if it is no JSON, has an object with a duplicate key, or is too
/// long.
inline json parse_document(std::string_view text, error_list& errors) {
  if (text.size() > most_document_bytes) {
    errors.add("", "the document has " + std::to_string(text.size()) + " bytes; at most 32 MiB");
    return nullptr;
  }
  document_check check;
  if (json::sax_parse(text.begin(), text.end(), &check)) return json::parse(text.begin(), text.end());
  errors.add("", check.problem);
  return nullptr;
}

/// Returns the bytes of a file, or adds an error. `-` is standard input.
inline std::string read_file(const std::string& name, error_list& errors) {
  std::ifstream file;
  std::istream* in = &file;
  if (name == "-") {
    std::string text;
    char buffer[4096];
    for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, stdin)) > 0 && text.size() <= most_document_bytes;)
      text.append(buffer, n);
    return text;
  }
  file.open(name, std::ios::binary);
  if (!file) {
    errors.add("", "cannot be opened: " + std::string(std::strerror(errno)));
    return {};
  }
  std::string text;
  char buffer[4096];
  while (text.size() <= most_document_bytes && (in->read(buffer, sizeof buffer) || in->gcount() > 0))
    text.append(buffer, static_cast<std::size_t>(in->gcount()));
  if (in->bad()) errors.add("", "cannot be read; a directory?");
  return text;
}

}  // namespace plan_tool
