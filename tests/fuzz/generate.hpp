// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

/// A valid document out of any bytes: each choice takes the next byte, so that a fuzzer steers it. No byte left is a 0.
class document_generator {
 public:
  document_generator(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  nlohmann::json generate() {
    make_mesh();
    for (int n = 1 + pick(3); n > 0; --n) make_input();
    for (int n = 1 + pick(24); n > 0 && at_ < size_; --n) make_op();
    std::vector<std::string> outputs;
    for (int n = 1 + pick(3); n > 0; --n) {
      // Late values depend on most of the program.
      const auto back = static_cast<std::size_t>(pick(chance(60) ? 3 : 100)) % values_.size();
      const auto& name = values_[values_.size() - 1 - back].name;
      if (std::find(outputs.begin(), outputs.end(), name) == outputs.end()) outputs.push_back(name);
    }
    return {{"mesh", mesh_}, {"inputs", inputs_}, {"ops", ops_}, {"outputs", outputs}};
  }

 private:
  using json = nlohmann::json;
  struct value {
    std::string name;
    std::string type;
    std::vector<std::int64_t> shape;
  };
  static constexpr std::int64_t most_elements = 600;

  int byte() { return at_ < size_ ? data_[at_++] : 0; }
  int pick(int n) { return byte() % n; }
  bool chance(int percent) { return byte() % 100 < percent; }
  static std::int64_t elements(const std::vector<std::int64_t>& shape) {
    std::int64_t n = 1;
    for (const auto e : shape) n *= e;
    return n;
  }
  std::int64_t extent() {
    constexpr std::int64_t extents[] = {4, 6, 2, 8, 3, 5, 1, 7, 9, 12, 0, 16};
    return extents[pick(12)];
  }
  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> s;
    for (int n = pick(4); n > 0; --n) s.push_back(extent());
    while (elements(s) > most_elements) s.pop_back();
    return s;
  }
  std::string type() {
    constexpr const char* types[] = {"s32", "s32", "s32", "s64", "s32", "pred", "f32", "f64"};
    return types[pick(8)];
  }

  void make_mesh() {
    constexpr const char* names[] = {"x", "y", "z"};
    std::vector<int> order;
    int devices = 1;
    auto axes = json::array();
    for (int n = 1 + pick(3), i = 0; i < n; ++i) {
      const int size = 1 + (1 + pick(4)) % 4;
      if (devices * size > 12) break;
      devices *= size;
      axes.push_back({names[i], size});
      axes_.emplace_back(names[i]);
    }
    mesh_ = {{"axes", axes}};
    if (!chance(20)) return;
    for (int d = 0; d < devices; ++d) order.insert(order.begin() + pick(d + 1), d);
    mesh_["device_order"] = order;
  }

  void annotate(json& j, std::size_t rank, const std::string& type_name, bool is_input) {
    auto dims = json::array();
    auto open = json::array();
    auto partial = json::object();
    for (std::size_t d = 0; d < rank; ++d) {
      dims.push_back(json::array());
      open.push_back(chance(25));
    }
    const bool is_number = type_name != "pred";
    const char* kinds[] = {is_number ? "add" : "or", is_number ? "maximum" : "and"};
    const char* kind = kinds[pick(2)];
    for (const auto& axis : axes_) {
      const int use = pick(10);
      if (rank > 0 && use < 7) {
        auto& list = dims[static_cast<std::size_t>(byte()) % rank];
        list.insert(chance(50) ? list.begin() : list.end(), axis);
      } else if (is_input && use == 7) {
        partial[axis] = kind;
      }
    }
    j["sharding"] = dims;
    j["open"] = open;
    if (!partial.empty()) j["partial"] = partial;
  }

  void make_input() {
    const value v{"i" + std::to_string(inputs_.size()), type(), shape()};
    json j = {{"name", v.name}, {"dtype", v.type}, {"shape", v.shape}};
    if (chance(70)) annotate(j, v.shape.size(), v.type, true);
    inputs_.push_back(j);
    values_.push_back(v);
  }

  const value& any() {
    const auto n = static_cast<int>(values_.size());
    return values_[static_cast<std::size_t>(n - 1 - pick(chance(50) ? std::min(n, 3) : n))];
  }
  /// One of the same shape and type; `v` itself if there is no other.
  const value& like(const value& v, const std::string& type_name) {
    std::vector<const value*> list;
    for (const auto& other : values_)
      if (other.type == type_name && other.shape == v.shape) list.push_back(&other);
    return list.empty() ? v : *list[static_cast<std::size_t>(byte()) % list.size()];
  }

  void add(const std::string& op, const std::vector<std::string>& operands, const json& attrs, std::string type_name,
           std::vector<std::int64_t> s) {
    if (elements(s) > most_elements || s.size() > 6) return;
    const value v{"o" + std::to_string(ops_.size()), std::move(type_name), std::move(s)};
    json j = {{"name", v.name}, {"op", op}, {"operands", operands}, {"attrs", attrs}};
    if (op == "reshard" || chance(15)) annotate(j, v.shape.size(), v.type, false);
    ops_.push_back(j);
    values_.push_back(v);
  }

  void make_op() {
    const value v = any();
    const bool is_float = v.type[0] == 'f';
    const bool is_pred = v.type == "pred";
    switch (pick(14)) {
      case 0: return add(one_of_unary(is_float, is_pred), {v.name}, json::object(), v.type, v.shape);
      case 1:
      case 2:
      case 3: return add(one_of_binary(is_float, is_pred), {v.name, like(v, v.type).name}, json::object(), v.type, v.shape);
      case 4: {
        constexpr const char* directions[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
        return add("compare", {v.name, like(v, v.type).name}, {{"direction", directions[pick(6)]}}, "pred", v.shape);
      }
      case 5: {
        const auto& which = like(v, "pred");
        if (which.type != "pred") return add("reshard", {v.name}, json::object(), v.type, v.shape);
        return add("select", {which.name, v.name, like(v, v.type).name}, json::object(), v.type, v.shape);
      }
      case 6: {
        const auto to = type();
        if (is_float && to[0] != 'f') return;  // rounding must not reach what is compared
        return add("convert", {v.name}, {{"dtype", to}}, to, v.shape);
      }
      case 7: return make_source();
      case 8: return make_einsum(v);
      case 9: return make_reduce(v, is_float, is_pred);
      case 10: return make_broadcast(v);
      case 11: return make_transpose(v);
      case 12: return make_reshape(v);
      default: return add("reshard", {v.name}, json::object(), v.type, v.shape);
    }
  }

  std::string one_of_unary(bool is_float, bool is_pred) {
    constexpr const char* floats[] = {"abs",  "negate",   "sign", "exponential", "log",    "sqrt",  "rsqrt",
                                      "tanh", "logistic", "relu", "sine",        "cosine", "floor", "ceil"};
    constexpr const char* integers[] = {"negate", "abs", "sign", "relu", "not"};
    return is_pred ? "not" : is_float ? floats[pick(14)] : integers[pick(5)];
  }
  std::string one_of_binary(bool is_float, bool is_pred) {
    constexpr const char* numbers[] = {"add", "multiply", "subtract", "maximum", "minimum", "divide", "power", "and", "or"};
    return is_pred ? numbers[7 + pick(2)] : numbers[pick(is_float ? 7 : 9)];
  }

  void make_source() {
    const auto t = type();
    auto s = chance(60) ? any().shape : shape();
    if (t != "pred" && !s.empty() && chance(60))
      return add("iota", {}, {{"dtype", t}, {"shape", s}, {"dim", pick(static_cast<int>(s.size()))}}, t, s);
    const json number = t == "pred" ? json(chance(50)) : json(pick(7) - 2);
    add("constant", {}, {{"dtype", t}, {"shape", s}, {"value", number}}, t, s);
  }

  void make_einsum(const value& a) {
    if (a.type == "pred") return;
    std::string letters, lhs, rhs, result;
    std::vector<std::int64_t> extents;
    for (const auto e : a.shape) {
      letters += static_cast<char>('a' + letters.size());
      extents.push_back(e);
    }
    lhs = letters;
    std::vector<std::string> operands{a.name};
    if (chance(75)) {
      const value* b = nullptr;
      for (int tries = 0; tries < 4 && (b == nullptr || b->type != a.type); ++tries) b = &any();
      if (b->type != a.type) b = &a;
      operands.push_back(b->name);
      for (const auto e : b->shape) {
        char letter = 0;
        for (std::size_t i = 0; i < lhs.size() && letter == 0; ++i)
          if (extents[i] == e && rhs.find(lhs[i]) == std::string::npos && chance(60)) letter = lhs[i];
        if (letter == 0) {
          letter = static_cast<char>('a' + letters.size());
          letters += letter;
          extents.push_back(e);
        }
        rhs += letter;
      }
    }
    std::int64_t work = 1;
    for (const auto e : extents) work *= std::max<std::int64_t>(e, 1);
    if (work > 20000) return;
    std::vector<std::int64_t> s;
    for (std::size_t i = 0; i < letters.size(); ++i)
      if (chance(60)) {
        const auto place =
            static_cast<std::size_t>(chance(70) ? static_cast<int>(result.size()) : pick(static_cast<int>(result.size()) + 1));
        result.insert(place, 1, letters[i]);
        s.insert(s.begin() + static_cast<std::ptrdiff_t>(place), extents[i]);
      }
    add("einsum", operands, {{"equation", lhs + (operands.size() == 2 ? "," + rhs : "") + "->" + result}}, a.type, s);
  }

  void make_reduce(const value& v, bool is_float, bool is_pred) {
    constexpr const char* kinds[] = {"maximum", "minimum", "add", "multiply", "and", "or"};
    std::string kind = kinds[pick(is_float ? 4 : 6)];
    if (is_pred && (kind == "add" || kind == "multiply")) kind = "or";
    std::vector<int> dims;
    std::vector<std::int64_t> s;
    for (std::size_t d = 0; d < v.shape.size(); ++d) {
      if (chance(45)) dims.push_back(static_cast<int>(d));
      else s.push_back(v.shape[d]);
    }
    add("reduce", {v.name}, {{"dims", dims}, {"kind", kind}}, v.type, s);
  }

  void make_broadcast(const value& v) {
    std::vector<int> dims;
    std::vector<std::int64_t> s;
    for (std::size_t d = 0; d < v.shape.size(); ++d) {
      if (chance(30)) s.push_back(extent());
      dims.push_back(static_cast<int>(s.size()));
      s.push_back(v.shape[d] == 1 && chance(70) ? extent() : v.shape[d]);
    }
    if (chance(30)) s.push_back(extent());
    add("broadcast_in_dim", {v.name}, {{"shape", s}, {"dims", dims}}, v.type, s);
  }

  void make_transpose(const value& v) {
    std::vector<int> permutation;
    for (int d = 0; d < static_cast<int>(v.shape.size()); ++d) permutation.insert(permutation.begin() + pick(d + 1), d);
    std::vector<std::int64_t> s;
    for (const int d : permutation) s.push_back(v.shape[static_cast<std::size_t>(d)]);
    add("transpose", {v.name}, {{"permutation", permutation}}, v.type, s);
  }

  void make_reshape(const value& v) {
    auto s = v.shape;
    for (int n = 1 + pick(3); n > 0; --n) {
      const int what = pick(4);
      const auto d = s.empty() ? std::size_t{0} : static_cast<std::size_t>(byte()) % s.size();
      if (what == 0 && d + 1 < s.size()) {  // merge
        s[d] *= s[d + 1];
        s.erase(s.begin() + static_cast<std::ptrdiff_t>(d) + 1);
      } else if (what == 1) {
        s.insert(s.begin() + static_cast<std::ptrdiff_t>(d), 1);
      } else if (what == 2 && !s.empty() && s[d] == 1) {
        s.erase(s.begin() + static_cast<std::ptrdiff_t>(d));
      } else if (!s.empty()) {  // divide
        for (const std::int64_t part : {2, 3, 5})
          if (s[d] > part && s[d] % part == 0) {
            s[d] /= part;
            s.insert(s.begin() + static_cast<std::ptrdiff_t>(d) + pick(2), part);
            break;
          }
      }
    }
    add("reshape", {v.name}, {{"shape", s}}, v.type, s);
  }

  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
  json mesh_;
  json inputs_ = json::array();
  json ops_ = json::array();
  std::vector<std::string> axes_;
  std::vector<value> values_;
};
