// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

/// Generates a valid document from any bytes. Each choice reads the next byte, so a fuzzer steers it. After the last
/// byte, all bytes are 0. With `spoil`, the document also has a few mistakes in its annotations and its mesh. Some of
/// the mistakes do no harm.
///
/// In the modes "explicit" and "manual", the states are guesses, so many ops are refused. The caller must remove these
/// ops.
class document_generator {
 public:
  document_generator(const std::uint8_t* data, std::size_t size, std::string mode = {})
      : data_(data), size_(size), mode_(std::move(mode)) {}

  nlohmann::json generate_and_spoil() {
    auto document = generate();
    for (int n = chance(70) ? 1 : 2; n > 0; --n) spoil(document);
    return document;
  }

  nlohmann::json generate() {
    make_mesh();
    for (int n = 1 + pick(3) + (is_strict() ? 2 : 0); n > 0; --n) make_input();
    for (int n = 1 + pick(24); n > 0 && at_ < size_; --n) make_op();
    std::vector<std::string> outputs;
    for (int n = 1 + pick(3); n > 0; --n) {
      // Late values depend on most of the program.
      const auto back = static_cast<std::size_t>(pick(chance(60) ? 3 : 100)) % values_.size();
      const auto& name = values_[values_.size() - 1 - back].name;
      if (std::find(outputs.begin(), outputs.end(), name) == outputs.end()) outputs.push_back(name);
    }
    json document = {{"mesh", mesh_}, {"inputs", inputs_}, {"ops", ops_}, {"outputs", outputs}};
    if (is_strict()) document["mode"] = mode_;
    return document;
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

  /// An axis of the mesh, and its cuts into sub-axes: 8 with [2, 4] has the parts x:(1)2, x:(2)2 and x:(4)2.
  struct mesh_axis {
    std::string name;
    std::int64_t size = 1;
    std::vector<std::int64_t> cuts;   // the places where annotations may cut it; each is a multiple of the previous one
    std::vector<std::int64_t> named;  // the places where annotations cut it; 1 and the size at the ends

    [[nodiscard]] std::string part(std::int64_t begin, std::int64_t end) const {
      if (begin == 1 && end == size) return name;
      return name + ":(" + std::to_string(begin) + ")" + std::to_string(end / begin);
    }
    void note(std::int64_t at) {
      if (std::find(named.begin(), named.end(), at) == named.end()) named.push_back(at);
      std::sort(named.begin(), named.end());
    }
  };

  void make_mesh() {
    constexpr const char* names[] = {"x", "y", "z"};
    constexpr std::int64_t sizes[] = {2, 3, 4, 1, 8, 6, 4, 2};
    std::vector<int> order;
    int devices = 1;
    auto axes = json::array();
    for (int n = 1 + pick(3), i = 0; i < n; ++i) {
      mesh_axis a{names[i], sizes[pick(8)], {}, {}};
      if (devices * a.size > (is_strict() ? 6 : 16)) break;
      devices *= static_cast<int>(a.size);
      axes.push_back({names[i], a.size});
      a.named = {1};
      a.note(a.size);
      for (std::int64_t at = 2, before = 1; at < a.size; ++at)
        if (a.size % at == 0 && at % before == 0 && chance(60)) a.cuts.push_back(before = at);
      axes_.push_back(a);
    }
    mesh_ = {{"axes", axes}};
    for (int d = 0; d < devices; ++d) order_.push_back(d);
    if (!chance(20)) return;
    for (int d = 0; d < devices; ++d) order.insert(order.begin() + pick(d + 1), d);
    mesh_["device_order"] = order_ = order;
  }

  void annotate(json& j, std::size_t rank, const std::string& type_name, bool is_input) {
    if (chance(25)) return annotate_in_xla(j, rank, type_name, is_input);
    auto dims = json::array();
    auto open = json::array();
    auto partial = json::object();
    for (std::size_t d = 0; d < rank; ++d) {
      dims.push_back(json::array());
      open.push_back(chance(25));
    }
    const bool is_number = type_name != "pred";
    const char* kinds[] = {is_number ? "add" : "or", is_number ? "max" : "and"};
    const char* kind = kinds[pick(2)];
    const auto use = [&](const std::string& axis) {
      const int how = pick(10);
      if (rank > 0 && how < 7) {
        auto& list = dims[static_cast<std::size_t>(byte()) % rank];
        list.insert(chance(50) ? list.begin() : list.end(), axis);
      } else if (is_input && how == 7) {
        partial[axis] = kind;
      }
      return (rank > 0 && how < 7) || (is_input && how == 7);
    };
    for (auto& axis : axes_) {
      std::int64_t begin = 1;
      const bool in_parts = chance(40);
      for (std::size_t i = 0; in_parts && i < axis.cuts.size(); ++i) {
        if (!chance(70)) continue;  // the part extends to a later cut
        const auto end = axis.cuts[i];
        if (use(axis.part(begin, end))) {
          axis.note(begin);
          axis.note(end);
        }
        begin = end;
      }
      if (use(axis.part(begin, axis.size))) axis.note(begin);
    }
    j["sharding"] = dims;
    j["open"] = open;
    if (!partial.empty()) j["partial"] = partial;
  }

  /// XLA's text, with axes and with parts of axes that another annotation names. The text alone cannot cut an axis.
  void annotate_in_xla(json& j, std::size_t rank, const std::string& type_name, bool is_input) {
    struct part {
      std::int64_t size, stride;
      std::size_t at;  // the position among all parts, row-major over the mesh
    };
    const bool may_reduce = is_input && type_name != "pred";
    if (const int word = pick(16); word < 3) {
      constexpr const char* words[] = {"{replicated}", "{ replicated metadata={op_name=\"a}b\"} }", "{unreduced}"};
      j["sharding"] = words[word == 2 && !may_reduce ? 0 : word];
      return;
    } else if (word == 3 && is_input) {
      j["sharding"] = "{unknown}";
      return;
    }
    std::vector<std::vector<part>> groups(rank + 2);  // by dim; unreduced; replicated
    std::vector<std::int64_t> sizes;
    std::int64_t stride = static_cast<std::int64_t>(order_.size());
    for (const auto& axis : axes_)
      for (std::size_t i = 0; i + 1 < axis.named.size(); ++i) {
        const auto size = axis.named[i + 1] / axis.named[i];
        stride /= size;
        const int how = pick(10);
        auto& group = groups[rank > 0 && how < 7      ? static_cast<std::size_t>(byte()) % rank
                             : may_reduce && how == 7 ? rank
                                                      : rank + 1];
        group.insert(chance(50) ? group.begin() : group.end(), {size, stride, sizes.size()});
        sizes.push_back(size);
      }
    std::vector<std::int64_t> tiles;
    std::vector<part> all;
    std::vector<std::string> subgroups;
    const bool replicated_first = chance(30);
    if (replicated_first) std::swap(groups[rank], groups[rank + 1]);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      std::int64_t n = 1;
      for (const auto& p : groups[g]) n *= p.size;
      if (g >= rank && n == 1) continue;
      if (g >= rank) subgroups.emplace_back((g == rank) != replicated_first ? "unreduced" : "replicated");
      tiles.push_back(n);
      all.insert(all.end(), groups[g].begin(), groups[g].end());
    }
    if (tiles.empty()) {
      j["sharding"] = "{replicated}";
      return;
    }
    std::string text = "{devices=[" + joined(tiles) + ']';
    const bool in_order = !mesh_.contains("device_order");
    if (in_order && chance(70)) {
      std::vector<std::size_t> transpose;
      for (const auto& p : all) transpose.push_back(p.at);
      if (sizes.empty()) text += "<=[1]";
      else if (std::is_sorted(transpose.begin(), transpose.end()) && chance(80))
        text += "<=[" + std::to_string(order_.size()) + ']';
      else text += "<=[" + joined(sizes) + "]T(" + joined(transpose) + ')';
    } else {
      std::vector<int> ids;
      for (std::size_t n = 0; n < order_.size(); ++n) {
        std::int64_t position = 0;
        auto rest = static_cast<std::int64_t>(n);
        for (auto p = all.rbegin(); p != all.rend(); ++p) {
          position += rest % p->size * p->stride;
          rest /= p->size;
        }
        ids.push_back(order_[static_cast<std::size_t>(position)]);
      }
      text += joined(ids);
    }
    if (subgroups.size() == 1 && subgroups[0] == "replicated" && chance(70)) {
      text += " last_tile_dim_replicate";
    } else if (!subgroups.empty()) {
      text += " last_tile_dims={" + subgroups[0] + (subgroups.size() > 1 ? ", " + subgroups[1] : "") + '}';
    }
    j["sharding"] = text + '}';
    if (!chance(30)) return;
    auto open = json::array();
    for (std::size_t d = 0; d < rank; ++d) open.push_back(chance(50));
    j["open"] = open;
  }
  template <class T>
  static std::string joined(const std::vector<T>& list) {
    std::string t;
    for (const auto& i : list) t += (t.empty() ? "" : ",") + std::to_string(i);
    return t;
  }

  // ---- mistakes ----

  /// Returns an annotation of the document, or null if the document has none.
  json* any_annotation(json& document) {
    std::vector<json*> list;
    for (const char* part : {"inputs", "ops"})
      for (auto& item : document[part])
        if (item.contains("sharding")) list.push_back(&item);
    return list.empty() ? nullptr : list[static_cast<std::size_t>(byte()) % list.size()];
  }

  void spoil(json& document) {
    json* item = any_annotation(document);
    if (item == nullptr || chance(10)) return spoil_mesh(document["mesh"]);
    json& s = (*item)["sharding"];
    if (s.is_string()) {
      auto text = s.get<std::string>();
      spoil_text(text);
      s = text;
    } else if (s.empty() || chance(10)) {
      s.push_back(json::array());
    } else if (chance(10) && item->contains("open")) {
      (*item)["open"].push_back(true);
    } else if (chance(10)) {
      (*item)["partial"][any_axis_name()] = chance(50) ? "add" : "min";
    } else {
      auto& dim = s[static_cast<std::size_t>(byte()) % s.size()];
      const bool replaces = !dim.empty() && chance(50);
      auto& name = replaces ? dim[static_cast<std::size_t>(byte()) % dim.size()] : (dim.push_back(""), dim.back());
      name = any_axis_name();
    }
  }
  void spoil_mesh(json& mesh) {
    if (mesh["axes"].empty()) return;
    auto& axis = mesh["axes"][static_cast<std::size_t>(byte()) % mesh["axes"].size()];
    constexpr const char* names[] = {"x", "w", "x:(1)2", "x p1", "", "an_axis_with_a_name_of_31_letters"};
    if (chance(50)) axis[1] = pick(9);
    else axis[0] = names[pick(6)];
  }
  /// Axes, parts of axes that overlap or do not exist, priorities, and similar but wrong texts.
  std::string any_axis_name() {
    constexpr const char* ends[] = {
        "",       ":(1)2",  ":(2)2",    ":(1)4",  ":(2)4",  ":(4)2",  ":(1)3",          ":(3)2",
        ":(1)1",  ":(0)2",  ":(2)0",    ":(-1)2", ":(2)",   ":(2",    ":()2",           ":2",
        ": (1)2", ":(1) 2", ":(1)2 p1", " p0",    " p1",    " p15",   " p16",           " p",
        ",y",     "?",      ":(1)2?",   ":(01)2", ":(1)02", ":(1)2x", ":(4294967298)2", ":(1)99999999999999999999"};
    const auto name = axes_.empty() ? std::string("x") : axes_[static_cast<std::size_t>(byte()) % axes_.size()].name;
    return chance(10) ? ends[pick(32)] : name + ends[pick(32)];
  }
  void spoil_text(std::string& text) {
    constexpr const char* words[] = {"{",
                                     "}",
                                     "[",
                                     "]",
                                     "<=[",
                                     "T(1,0)",
                                     " last_tile_dim_replicate",
                                     "devices=",
                                     "manual",
                                     "maximal",
                                     "device=0",
                                     "unreduced",
                                     " last_tile_dims={manual}",
                                     " last_tile_dims={replicated,unreduced}",
                                     " shard_as 1",
                                     " shard_like 2",
                                     "/*",
                                     "*/",
                                     ",",
                                     "-1",
                                     "0",
                                     "2",
                                     "8",
                                     "16",
                                     "1073741825",
                                     "99999999999999999999",
                                     " metadata={op_name=\"",
                                     "{replicated}",
                                     "unknown",
                                     "\\",
                                     "\"",
                                     "{}"};
    const auto at = text.empty() ? std::size_t{0} : static_cast<std::size_t>(byte()) % text.size();
    switch (pick(6)) {
      case 0: text.erase(at, 1 + static_cast<std::size_t>(pick(4))); break;
      case 1: text.insert(at, words[pick(32)]); break;
      case 2: text.insert(text.empty() ? 0 : text.size() - 1, words[pick(32)]); break;
      case 3: text.resize(at); break;
      case 4: {  // another number
        const auto digit = text.find_first_of("0123456789", at);
        if (digit != std::string::npos) text[digit] = static_cast<char>('0' + pick(10));
        break;
      }
      default: {  // swap two numbers: often the list then has no valid product
        const auto a = text.find_first_of("0123456789", at);
        const auto b = a == std::string::npos ? a : text.find_first_of("0123456789", a + 1);
        if (b != std::string::npos) std::swap(text[a], text[b]);
      }
    }
  }

  void make_input() {
    const value v{"i" + std::to_string(inputs_.size()), type(), shape()};
    json j = {{"name", v.name}, {"dtype", v.type}, {"shape", v.shape}};
    if (is_strict()) give_states(j, v);
    else if (chance(70)) annotate(j, v.shape.size(), v.type, true);
    inputs_.push_back(j);
    values_.push_back(v);
  }

  const value& any() {
    const auto n = static_cast<int>(values_.size());
    return values_[static_cast<std::size_t>(n - 1 - pick(chance(50) ? std::min(n, 3) : n))];
  }
  /// Returns a value of the same shape and type, or `v` itself if no other exists.
  const value& like(const value& v, const std::string& type_name) {
    std::vector<const value*> list;
    for (const auto& other : values_)
      if (other.type == type_name && other.shape == v.shape) list.push_back(&other);
    return list.empty() ? v : *list[static_cast<std::size_t>(byte()) % list.size()];
  }

  void add(const std::string& op, const std::vector<std::string>& operands, const json& attrs, std::string type_name,
           std::vector<std::int64_t> s) {
    if (elements(s) > most_elements || s.size() > 6) return;
    const value v{new_name(), std::move(type_name), std::move(s)};
    json j = {{"name", v.name}, {"op", op}, {"operands", operands}, {"attrs", attrs}};
    if (!is_strict() && (op == "reshard" || chance(15))) annotate(j, v.shape.size(), v.type, false);
    if (is_strict() && op == "reshard") return;
    ops_.push_back(j);
    values_.push_back(v);
    if (!is_strict()) return;
    auto guess = operands.empty() ? std::vector<std::string>(axes_.size(), "C") : on_[operands[0]];
    for (auto& is : guess) is = is_local_ && is[0] == 'S' ? "V" : is;
    on_[v.name] = guess;
  }

  void make_op() {
    const value v = any();
    const bool is_float = v.type[0] == 'f';
    const bool is_pred = v.type == "pred";
    if (is_strict() && chance(45)) return make_written(v);
    if (depth_ < 2 && chance(depth_ == 0 ? 10 : 5)) return chance(65) ? make_loop() : make_cond();
    switch (pick(15)) {
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
        return add("where", {which.name, v.name, like(v, v.type).name}, json::object(), v.type, v.shape);
      }
      case 6: {
        const auto to = type();
        return add("cast", {v.name}, {{"dtype", to}}, to, v.shape);
      }
      case 7: return make_source();
      case 8: return make_einsum(v);
      case 9: return make_reduce(v, is_float, is_pred);
      case 10: return make_broadcast(v);
      case 11: return make_transpose(v);
      case 12: return make_reshape(v);
      case 13: return chance(40) ? make_pad(v) : chance(50) ? make_window(v, is_pred) : make_grid(v, is_pred);
      default: return add("reshard", {v.name}, json::object(), v.type, v.shape);
    }
  }

  std::string one_of_unary(bool is_float, bool is_pred) {
    constexpr const char* floats[] = {"abs",  "negative", "sign", "exp", "log", "sqrt",  "rsqrt",
                                      "tanh", "sigmoid",  "relu", "sin", "cos", "floor", "ceil"};
    constexpr const char* integers[] = {"negative", "abs", "sign", "relu", "not"};
    return is_pred ? "not" : is_float ? floats[pick(14)] : integers[pick(5)];
  }
  std::string one_of_binary(bool is_float, bool is_pred) {
    constexpr const char* numbers[] = {"add", "multiply", "subtract", "max", "min", "divide", "pow", "and", "or"};
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
    constexpr const char* kinds[] = {"max", "min", "add", "multiply", "and", "or"};
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

  void make_pad(const value& v) {
    std::vector<std::int64_t> low, high;
    for (const auto e : v.shape) {
      high.push_back(chance(50) ? 0 : pick(5) - 2 + (chance(20) ? e : 0));
      low.push_back(-high.back());
    }
    const std::vector<int> interior(v.shape.size(), 0);
    const json zero = v.type == "pred" ? json(false) : json(0);
    add("pad", {v.name}, {{"low", low}, {"high", high}, {"interior", interior}, {"value", zero}}, v.type, v.shape);
  }

  /// A shift, or a stencil with a sum.
  void make_grid(const value& v, bool is_pred) {
    constexpr const char* beyond[] = {"zero", "edge", "reflect", "symmetric", "wrap"};
    const auto rank = static_cast<int>(v.shape.size());
    if (rank == 0) return;
    if (is_pred || chance(50))
      return add("shift", {v.name}, {{"dim", pick(rank)}, {"amount", pick(9) - 4}, {"outside", beyond[pick(5)]}}, v.type,
                 v.shape);
    json taps = json::array(), outside = json::array();
    for (int n = 1 + pick(4); n > 0; --n) {
      std::vector<int> by;
      for (int d = 0; d < rank; ++d) by.push_back(chance(50) ? 0 : pick(5) - 2);
      taps.push_back({pick(7) - 3, by});
    }
    for (int d = 0; d < rank; ++d) outside.push_back(beyond[pick(5)]);
    add("stencil", {v.name}, {{"taps", taps}, {"outside", outside}}, v.type, v.shape);
  }

  /// Windows that keep the shape.
  void make_window(const value& v, bool is_pred) {
    std::vector<std::int64_t> window, low, high;
    for (std::size_t d = 0; d < v.shape.size(); ++d) {
      window.push_back(chance(50) && v.shape[d] > 0 ? 1 + pick(4) : 1);
      low.push_back(pick(static_cast<int>(window.back())));
      high.push_back(window.back() - 1 - low.back());
    }
    constexpr const char* kinds[] = {"max", "min", "add", "multiply"};
    add("reduce_window", {v.name}, {{"window", window}, {"low", low}, {"high", high}, {"kind", kinds[pick(is_pred ? 2 : 4)]}},
        v.type, v.shape);
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

  // ---- loops and conditionals ----

  /// Ops of a body. The body can read the values around it. Its inputs are other names for the operands. `make_outputs`
  /// names its results.
  template <class Outputs>
  json make_body(const std::vector<value>& operands, int most, Outputs make_outputs) {
    auto outside = values_;
    if (is_strict()) values_.clear();
    auto outer = std::exchange(ops_, json::array());
    ++depth_;
    std::vector<std::string> inputs;
    for (const auto& o : operands) {
      inputs.push_back("b" + std::to_string(named_++));
      values_.push_back({inputs.back(), o.type, o.shape});
      on_[inputs.back()] = on_[o.name];
    }
    for (int n = pick(most + 1); n > 0 && at_ < size_; --n) make_op();
    const std::vector<std::string> outputs = make_outputs(inputs);
    --depth_;
    values_ = std::move(outside);
    return {{"inputs", inputs}, {"ops", std::exchange(ops_, std::move(outer))}, {"outputs", outputs}};
  }
  void add_results(const std::string& name, json op, const std::vector<value>& like_these) {
    op["name"] = name;
    ops_.push_back(std::move(op));
    for (std::size_t k = 0; k < like_these.size(); ++k) {
      values_.push_back(
          {like_these.size() == 1 ? name : name + '.' + std::to_string(k), like_these[k].type, like_these[k].shape});
      on_[values_.back().name] = on_[like_these[k].name];
    }
  }
  [[nodiscard]] std::string new_name() { return "o" + std::to_string(named_++); }

  /// Adds a scalar constant.
  std::string scalar(const char* t, int number) {
    const auto name = new_name();
    ops_.push_back({{"name", name},
                    {"op", "constant"},
                    {"operands", json::array()},
                    {"attrs", {{"dtype", t}, {"shape", json::array()}, {"value", number}}}});
    values_.push_back({name, t, {}});
    on_[name] = std::vector<std::string>(axes_.size(), "C");
    return name;
  }
  void make_loop() {
    std::vector<value> carried;
    for (int n = 1 + pick(2); n > 0; --n) carried.push_back(any());
    const int kind = is_strict() ? 2 * pick(2) : pick(3);
    json op = {{"op", "loop"}};
    if (kind == 0) op["attrs"] = {{"trips", pick(4)}};
    if (kind == 1) op["attrs"] = {{"trips", scalar("s32", pick(4))}};
    if (kind == 2) carried.push_back({scalar("s32", pick(3)), "s32", {}});  // the counter of a while loop
    std::vector<std::string> operands;
    for (const auto& c : carried) operands.push_back(c.name);
    op["operands"] = operands;
    if (kind == 2)
      op["while"] = make_body(carried, 1, [&](const auto& inputs) {
        const auto limit = scalar("s32", 1 + pick(3)), on = new_name();
        ops_.push_back({{"name", on}, {"op", "compare"}, {"operands", {inputs.back(), limit}}, {"attrs", {{"direction", "LT"}}}});
        return std::vector<std::string>{on};
      });
    op["body"] = make_body(carried, 4, [&](const auto& inputs) {
      std::vector<std::string> outputs;
      for (std::size_t k = 0; k < inputs.size(); ++k)
        outputs.push_back(like({inputs[k], carried[k].type, carried[k].shape}, carried[k].type).name);
      if (kind != 2) return outputs;
      const auto one = scalar("s32", 1), next = new_name();
      ops_.push_back({{"name", next}, {"op", "add"}, {"operands", {inputs.back(), one}}});
      outputs.back() = next;
      return outputs;
    });
    add_results(new_name(), std::move(op), carried);
  }
  void make_cond() {
    std::vector<value> given{any()};
    if (chance(40)) given.push_back(any());
    std::vector<std::string> operands{scalar("s32", pick(3))};
    for (const auto& g : given) operands.push_back(g.name);
    json branches = json::array();
    for (int n = 1 + pick(3); n > 0; --n)
      branches.push_back(make_body(given, 3, [&](const auto& inputs) {
        std::vector<std::string> outputs;
        for (std::size_t k = 0; k < inputs.size(); ++k)
          outputs.push_back(like({inputs[k], given[k].type, given[k].shape}, given[k].type).name);
        return outputs;
      }));
    add_results(new_name(), {{"op", "cond"}, {"operands", operands}, {"branches", branches}}, given);
  }

  // ---- explicit and manual documents ----

  [[nodiscard]] bool is_strict() const { return !mode_.empty(); }
  std::string state(std::size_t rank) {
    constexpr const char* states[] = {"V", "R", "I", "P", "S", "S", "C", "P<max>"};
    std::string is = states[pick(8)];
    if (is == "S") is = rank == 0 ? "R" : "S(" + std::to_string(pick(static_cast<int>(rank))) + ')';
    return is;
  }
  void give_states(json& j, const value& v) {
    is_local_ = mode_ == "manual";
    std::vector<std::string> on;
    auto dims = json::array(), replica = json::array();
    auto partial = json::object(), states = json::object();
    for (std::size_t d = 0; d < v.shape.size(); ++d) dims.push_back(json::array());
    const bool is_number = v.type != "pred";
    for (const auto& a : axes_) {
      auto is = state(v.shape.size());
      if (!is_number && is[0] == 'P') is = "I";
      if (!is_local_ && (is == "V" || is == "C")) is = "R";
      on.push_back(is);
      states[a.name] = is;
      if (is[0] == 'S') dims[static_cast<std::size_t>(is[2] - '0')].push_back(a.name);
      if (is == "R") replica.push_back(a.name);
      if (is[0] == 'P') partial[a.name] = is == "P" ? "add" : "max";
    }
    on_[v.name] = on;
    if (chance(15)) j["grad"] = false;
    if (is_local_) j["state"] = states;
    else {
      j["sharding"] = dims;
      j["replica"] = replica;
      j["partial"] = partial;
    }
  }
  /// Ops that only these documents have.
  void make_written(const value& v) {
    switch (pick(12)) {
      case 0:
        if (axes_.empty()) return;
        return add("axis_index", {}, {{"axis", axes_[static_cast<std::size_t>(byte()) % axes_.size()].name}}, "s32", {});
      case 1: return add("detach", {v.name}, json::object(), v.type, v.shape);
      case 2: {
        constexpr const char* classes[] = {"linear", "multilinear", "nonlinear"};
        const std::vector<std::int64_t> s = shape();
        return add("opaque", {v.name, like(v, v.type).name}, {{"dtype", v.type}, {"shape", s}, {"class", classes[pick(3)]}},
                   v.type, s);
      }
      case 3: {
        const auto key = like({v.name, "s32", {}}, "s32");
        const std::vector<std::int64_t> s = shape();
        return add("random", {key.name}, {{"dtype", "s32"}, {"shape", s}, {"low", 0}, {"high", 9}}, "s32", s);
      }
      case 4:
        if (mode_ == "explicit" && !is_local_ && depth_ < 2) return make_manual();
        return make_transition(v);
      default: return make_transition(v);
    }
  }
  void make_transition(const value& v) {
    if (axes_.empty()) return;
    constexpr const char* verbs[] = {"convert", "reinterpret", "all_gather",    "all_to_all",
                                     "permute", "all_reduce",  "reduce_scatter"};
    const auto a = static_cast<std::size_t>(byte()) % axes_.size();
    auto on = on_[v.name];
    std::string from = on.empty() || chance(10) ? state(v.shape.size()) : on[a], to = state(v.shape.size());
    std::string verb = verbs[pick(7)];
    if (chance(85)) {  // a transition that is valid from this state
      if (from[0] == 'P') verb = chance(50) && !v.shape.empty() ? "reduce_scatter" : "all_reduce";
      else if (from == "V") verb = verbs[1 + 3 * pick(2)];
      else if (from[0] == 'S') verb = verbs[2 + pick(2)];
      else verb = verbs[pick(2)];
      if (verb == "all_reduce" || verb == "all_gather") to = chance(50) ? "R" : "I";
      if ((verb == "reduce_scatter" || verb == "all_to_all") && !v.shape.empty())
        to = "S(" + std::to_string(pick(static_cast<int>(v.shape.size()))) + ')';
      if (verb == "permute") to = from;
      if (verb == "reinterpret") to = chance(50) ? "P" : "V";
    }
    auto s = v.shape;
    const auto dim = [&](const std::string& is) -> std::int64_t& {
      return s[std::min<std::size_t>(static_cast<std::size_t>(is[2] - '0'), s.size() - 1)];
    };
    const bool cuts = verb == "reduce_scatter" || verb == "all_to_all" || (verb == "convert" && to[0] == 'S');
    if (is_local_) {
      const bool joins = verb == "all_gather" || verb == "all_to_all" || (verb == "convert" && from[0] == 'S');
      if (joins && from == "V") s.insert(s.begin(), axes_[a].size);
      if (joins && from[0] == 'S' && !s.empty()) dim(from) *= axes_[a].size;
      if (cuts && to[0] == 'S' && !s.empty()) {
        if (dim(to) % axes_[a].size != 0) return;
        dim(to) /= axes_[a].size;
      }
      if (verb == "reduce_scatter" && to == "V") return;
    }
    json attrs = {{"verb", verb}, {"axes", {axes_[a].name}}, {"from", from}, {"to", to}};
    if (verb == "permute") {
      attrs["pairs"] = json::array();
      const auto by = pick(static_cast<int>(axes_[a].size));
      for (std::int64_t k = 0; k < axes_[a].size; ++k)
        if (chance(85)) attrs["pairs"].push_back({k, (k + by) % axes_[a].size});
    }
    add("transition", {v.name}, attrs, v.type, s);
    if (on.empty() || values_.back().shape != s) return;
    on[a] = to;
    on_[values_.back().name] = on;
  }
  /// A manual region of an explicit document, over one axis or all axes. Shapes in it are those of shards.
  void make_manual() {
    if (axes_.empty()) return;
    const auto a = static_cast<std::size_t>(byte()) % axes_.size();
    const auto n = axes_[a].size;
    std::vector<value> outer{any()}, inner;
    if (chance(60)) outer.push_back(any());
    std::vector<std::string> operands;
    for (const auto& o : outer) {
      operands.push_back(o.name);
      inner.push_back(o);
      const auto on = on_[o.name];
      if (on.empty()) return;
      if (on[a][0] != 'S') continue;
      if (o.shape.empty()) return;
      auto& extent = inner.back().shape[std::min<std::size_t>(static_cast<std::size_t>(on[a][2] - '0'), o.shape.size() - 1)];
      if (extent % n != 0) return;
      extent /= n;
    }
    is_local_ = true;
    value left;
    std::vector<std::string> on;
    const auto before = on_;
    json op = {{"op", "manual"}, {"operands", operands}};
    op["body"] = make_body(inner, 4, [&](const auto&) {
      left = values_.back();
      on = on_[left.name];
      return std::vector<std::string>{left.name};
    });
    is_local_ = false;
    if (on.empty()) return;
    json out = {{"sharding", json::array()}, {"replica", json::array()}, {"partial", json::object()}};
    for (std::size_t d = 0; d < left.shape.size(); ++d) out["sharding"].push_back(json::array());
    for (std::size_t k = 0; k < axes_.size(); ++k) {
      auto is = on[k];
      if (is == "V") is = left.shape.empty() ? "I" : "S(0)";
      if (is[0] == 'S') {
        const auto d = std::min<std::size_t>(static_cast<std::size_t>(is[2] - '0'), left.shape.size() - 1);
        if (left.shape.empty()) return;
        out["sharding"][d].push_back(axes_[k].name);
        if (k == a) left.shape[d] *= n;
      }
      if (is == "R") out["replica"].push_back(axes_[k].name);
      if (is[0] == 'P') out["partial"][axes_[k].name] = is == "P" ? "add" : "max";
      on[k] = is;
    }
    op["attrs"] = {{"axes", {axes_[a].name}}, {"out", {out}}};
    const auto name = new_name();
    left.name = name;
    on_[name] = on;
    add_results(name, std::move(op), {left});
  }

  const std::uint8_t* data_;
  std::size_t size_;
  std::string mode_;
  bool is_local_ = false;                               // the op that is being made is in the local view
  std::map<std::string, std::vector<std::string>> on_;  // by value: a guess of its state on each axis
  std::size_t at_ = 0;
  json mesh_;
  json inputs_ = json::array();
  json ops_ = json::array();
  std::vector<mesh_axis> axes_;
  std::vector<int> order_;  // the order of the devices
  std::vector<value> values_;
  int depth_ = 0;  // nesting depth of the current body
  int named_ = 0;  // number of values of ops and inputs of bodies
};
