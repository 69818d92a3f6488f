// SPDX-License-Identifier: Apache-2.0
// Documents for the fuzz target: generated from bytes, and mutated as documents instead of as bytes. This file does not
// include gspmd, so it compiles at the same time as plan.cpp.
#include "documents.hpp"

#include <cstring>
#include <iterator>
#include <random>
#include <string_view>
#include <vector>

#include "generate.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

using nlohmann::json;
using generator = std::minstd_rand;

std::size_t pick(generator& random, std::size_t n) { return n == 0 ? 0 : random() % n; }

/// Returns a random place in the document. It enters lists and objects with a probability above one half.
json& any_place(json& j, generator& random) {
  json* at = &j;
  while ((at->is_array() || at->is_object()) && !at->empty() && pick(random, 8) != 0) {
    auto it = at->begin();
    std::advance(it, static_cast<std::ptrdiff_t>(pick(random, at->size())));
    at = &*it;
  }
  return *at;
}

std::vector<std::string> names_in(const json& j, const char* list) {
  std::vector<std::string> names;
  if (!j.is_object() || !j.contains(list) || !j[list].is_array()) return names;
  for (const auto& v : j[list])
    if (v.is_object() && v.contains("name") && v["name"].is_string()) names.push_back(v["name"].get<std::string>());
  return names;
}

std::string any_name(const json& j, generator& random) {
  auto names = names_in(j, "inputs");
  for (auto& n : names_in(j, "ops")) names.push_back(n);
  return names.empty() ? "a" : names[pick(random, names.size())];
}

json any_sharding(const json& document, std::size_t rank, generator& random) {
  auto s = json::array();
  for (std::size_t d = 0; d < rank; ++d) s.push_back(json::array());
  if (rank == 0 || !document.contains("mesh") || !document["mesh"].is_object() || !document["mesh"].contains("axes")) return s;
  for (const auto& axis : document["mesh"]["axes"])
    if (axis.is_array() && !axis.empty() && pick(random, 2) == 0) s[pick(random, rank)].push_back(axis[0]);
  return s;
}

/// Adds a value to a group of values that share a sharding. Keeps the rest of the value's XLA text.
void join_group(json& sharding, generator& random) {
  constexpr const char* groups[] = {" shard_as 1}", " shard_as 2}", " shard_like 1}", " shard_like 2}"};
  auto text =
      sharding.is_string() ? sharding.get<std::string>() : std::string(pick(random, 4) == 0 ? "{replicated}" : "{unknown}");
  if (!text.empty()) text.pop_back();
  sharding = text.substr(0, text.find(" shard_")) + groups[pick(random, std::size(groups))];
}

void mutate_integer(json& j, generator& random) {
  constexpr std::int64_t numbers[] = {
      0, 1, 2, 3, 4, 5, 7, 8, 12, 16, 64, -1, 1000003, std::int64_t{1} << 30, std::int64_t{1} << 45, std::int64_t{1} << 62};
  if (pick(random, 3) == 0) j = numbers[pick(random, std::size(numbers))];
  else j = static_cast<std::int64_t>(static_cast<std::uint64_t>(j.get<std::int64_t>()) + pick(random, 3) - 1);
}

void mutate_string(json& document, json& j, generator& random) {
  const std::string& operators = operator_names();
  constexpr const char* words[] = {"f32",     "f64",          "s32", "s64", "pred",    "add",       "multiply", "max",   "min",
                                   "and",     "or",           "x",   "y",   "z",       "ij,jk->ik", "ij->ji",   "ij->i", "i,i->",
                                   "i,j->ij", "bij,bjk->bik", "EQ",  "LT",  "reshard", "inf",       "x:(2)2"};
  switch (pick(random, 4)) {
    case 0: j = any_name(document, random); break;
    case 1: {
      std::size_t at = pick(random, operators.size());
      while (at > 0 && operators[at - 1] != ' ') --at;
      j = operators.substr(at, operators.find(' ', at) - at);
      break;
    }
    case 2: j = words[pick(random, std::size(words))]; break;
    default: {
      auto s = j.get<std::string>();
      if (!s.empty()) s[pick(random, s.size())] = static_cast<char>('a' + pick(random, 26));
      j = s;
    }
  }
}

void mutate_list(json& document, generator& random) {
  constexpr const char* lists[] = {"ops", "inputs", "outputs"};
  const char* name = lists[pick(random, 3)];
  if (!document.contains(name) || !document[name].is_array()) return;
  auto& list = document[name];
  if (std::string_view(name) == "outputs") return list.push_back(any_name(document, random));
  if (list.empty()) return;
  auto& item = list[pick(random, list.size())];
  switch (pick(random, 4)) {
    case 0: {  // the same value again, under another name
      json copy = item;
      if (copy.is_object()) copy["name"] = "n" + std::to_string(pick(random, 1000));
      list.push_back(copy);
      break;
    }
    case 1: list.erase(pick(random, list.size())); break;
    case 2:
      if (item.is_object() && pick(random, 2) == 0) item["sharding"] = any_sharding(document, pick(random, 4), random);
      else if (item.is_object()) join_group(item["sharding"], random);
      break;
    default:
      if (item.is_object() && item.contains("operands") && item["operands"].is_array() && !item["operands"].empty())
        item["operands"][pick(random, item["operands"].size())] = any_name(document, random);
  }
}

}  // namespace

nlohmann::json generated_document(const std::uint8_t* data, std::size_t size, char kind) {
  document_generator bytes(data, size, kind == 'E' ? "explicit" : kind == 'M' ? "manual" : "");
  return kind == 'H' ? bytes.generate_and_spoil() : bytes.generate();
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed) {
  generator random(seed + 1);
  if (size > 0 && is_generated(static_cast<char>(data[0]))) {
    const auto rest = LLVMFuzzerMutate(data + 1, size - 1, max_size - 1);
    data[0] = static_cast<std::uint8_t>("GHEM"[pick(random, 4)]);
    return rest + 1;
  }
  json document = json::parse(data, data + size, nullptr, false);
  if (!document.is_object() || pick(random, 16) == 0) return LLVMFuzzerMutate(data, size, max_size);
  for (std::size_t n = 1 + pick(random, 4); n > 0; --n) {
    auto& j = any_place(document, random);
    const bool in_lists = pick(random, 3) == 0;
    if (in_lists) mutate_list(document, random);
    else if (j.is_number_integer()) mutate_integer(j, random);
    else if (j.is_string()) mutate_string(document, j, random);
    else if (j.is_boolean()) j = !j.get<bool>();
    else if (j.is_array() && !j.empty() && pick(random, 2) == 0) j.erase(pick(random, j.size()));
    else if (j.is_array()) j.push_back(j.empty() ? json("x") : j[pick(random, j.size())]);
    else if (!j.is_object()) j = static_cast<int>(pick(random, 4));
    if (!document.is_object()) break;
  }
  const auto text = document.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > max_size) return size;
  std::memcpy(data, text.data(), text.size());
  return text.size();
}
