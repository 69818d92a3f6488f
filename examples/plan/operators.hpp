// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include "document.hpp"

/// The operators of the document, each from its attributes to a node of the graph.
namespace plan_tool {

namespace ir = gspmd::detail;
using gspmd::dtype;
using gspmd::monoid;

inline std::optional<dtype> dtype_named(std::string_view name) {
  for (const auto t : {dtype::f32, dtype::f64, dtype::s32, dtype::s64, dtype::pred})
    if (name == ir::name_of(t)) return t;
  return {};
}
inline std::optional<monoid> monoid_named(std::string_view name) {
  for (const auto m : {monoid::add, monoid::multiply, monoid::maximum, monoid::minimum, monoid::and_, monoid::or_})
    if (name == ir::name_of(m)) return m;
  return {};
}

inline std::optional<dtype> read_dtype(object_reader& from, std::string_view key = "dtype") {
  const auto name = from.text(key, "one of f32 f64 s32 s64 pred");
  if (!name) return {};
  const auto type = dtype_named(*name);
  if (!type)
    from.errors().add(path(from.at(), key).str(), *name == "bf16"
                                                      ? "bf16 is not there yet; there are f32 f64 s32 s64 pred"
                                                      : in_quotes(*name) + " is no dtype; there are f32 f64 s32 s64 pred");
  return type;
}
inline std::optional<monoid> read_monoid(const json& j, const path& at, error_list& errors) {
  const auto kind = j.is_string() ? monoid_named(j.get_ref<const std::string&>()) : std::nullopt;
  if (!kind) errors.add(at.str(), "is " + found(j) + "; it is one of add multiply maximum minimum and or");
  return kind;
}
/// A shape whose bytes can be counted.
inline std::optional<ir::extents> read_shape(object_reader& from, dtype type, std::string_view key = "shape") {
  const auto* j = from.require(key, "a list of extents");
  if (j == nullptr) return {};
  const path at(from.at(), key);
  const auto list = read_integers(*j, at, from.errors(), 0, std::numeric_limits<std::int64_t>::max(), ir::max_rank);
  if (!list) return {};
  ir::extents shape;
  auto bytes = static_cast<long double>(ir::bytes_of(type));
  for (const auto e : *list) {
    shape.push_back(e);
    bytes *= static_cast<long double>(e == 0 ? 1 : e);  // products are formed in any order: an extent of 0 saves none
  }
  if (bytes <= 0x1p60L) return shape;
  from.errors().add(at.str(), std::string(ir::shape_text(shape).view()) + " has more than 2^60 bytes");
  return {};
}

/// One operator of the document on its way into the graph.
struct operation {
  ir::graph& graph;
  std::vector<int> operands;  // nodes; -1: refused before, this operator is only read
  object_reader& attrs;
  ir::location at;
  std::string name;         // of the operator
  ir::sharding annotation;  // reshard
  bool has_annotation = false;

  [[nodiscard]] bool is_sound() const {
    for (const int o : operands)
      if (o < 0) return false;
    return true;
  }
  [[nodiscard]] const ir::extents& shape(std::size_t k) const { return graph.nodes[static_cast<std::size_t>(operands[k])].shape; }
  int complain(std::string_view key, const std::string& what) const {
    attrs.errors().add(key.empty() ? attrs.at().str() : path(attrs.at(), key).str(), what);
    return -1;
  }
  /// A list of dims, each of [0, 32).
  [[nodiscard]] std::optional<ir::inline_vec<std::int8_t, ir::max_rank>> dims(std::string_view key, const char* what) const {
    const auto* j = attrs.require(key, what);
    if (j == nullptr) return {};
    const auto list = read_integers(*j, path(attrs.at(), key), attrs.errors(), 0, ir::max_rank - 1, ir::max_rank);
    if (!list) return {};
    ir::inline_vec<std::int8_t, ir::max_rank> result;
    for (const auto d : *list) result.push_back(static_cast<std::int8_t>(d));
    return result;
  }
};

inline int build_compare(const operation& o) {
  const auto direction = o.attrs.text("direction", "one of EQ NE LT LE GT GE");
  if (!direction) return -1;
  constexpr std::array<const char*, 6> names = {"EQ", "NE", "LT", "LE", "GT", "GE"};
  for (std::size_t i = 0; i < names.size(); ++i)
    if (*direction == names[i])
      return o.is_sound() ? ir::add_elementwise(
                                o.graph, static_cast<ir::opcode>(static_cast<int>(ir::opcode::compare_eq) + static_cast<int>(i)),
                                o.operands, o.at)
                          : -1;
  return o.complain("direction", "is " + in_quotes(*direction) + "; it is one of EQ NE LT LE GT GE");
}

inline int build_convert(const operation& o) {
  const auto type = read_dtype(o.attrs);
  return type && o.is_sound() ? ir::add_elementwise(o.graph, ir::opcode::convert, o.operands, o.at, *type) : -1;
}

/// The element of a constant: a number, true or false, or one of the strings inf, -inf and nan, which JSON has no numbers for.
struct constant_number {
  double real = 0;
  std::int64_t integer = 0;
};
inline std::optional<constant_number> read_number(const json& j, dtype type, const operation& o) {
  constant_number n;
  if (type == dtype::pred) {
    const bool is_bit = j.is_number_integer() && (j == 0 || j == 1);
    if (j.is_boolean() || is_bit) {
      n.integer = j.is_boolean() ? static_cast<int>(j.get<bool>()) : j.get<int>();
      return n;
    }
    o.complain("value", "is " + found(j) + "; a pred is true or false");
    return {};
  }
  if (ir::is_floating(type)) {
    if (j.is_number()) {
      n.real = j.get<double>();
      const double most = static_cast<double>(std::numeric_limits<float>::max());
      if (type == dtype::f32 && std::abs(n.real) > most) n.real = n.real > 0 ? HUGE_VAL : -HUGE_VAL;
      return n;
    }
    const double infinity = std::numeric_limits<double>::infinity();
    n.real = j == "inf" ? infinity : j == "-inf" ? -infinity : std::numeric_limits<double>::quiet_NaN();
    if (j == "inf" || j == "-inf" || j == "nan") return n;
    o.complain("value", "is " + found(j) + "; it is a number, or one of \"inf\" \"-inf\" \"nan\"");
    return {};
  }
  const bool is_32 = type == dtype::s32;
  const auto integer = read_integer(j, path(o.attrs.at(), "value"), o.attrs.errors(),
                                    is_32 ? std::numeric_limits<std::int32_t>::min() : std::numeric_limits<std::int64_t>::min(),
                                    is_32 ? std::numeric_limits<std::int32_t>::max() : std::numeric_limits<std::int64_t>::max());
  if (!integer) return {};
  n.integer = *integer;
  return n;
}

inline int build_constant(const operation& o) {
  const auto type = read_dtype(o.attrs);
  const auto shape = read_shape(o.attrs, type.value_or(dtype::f32));
  const auto* j = o.attrs.require("value", "the number that every element is");
  if (!type || !shape || j == nullptr) return -1;
  const auto n = read_number(*j, *type, o);
  return n ? ir::add_constant(o.graph, *type, *shape, n->real, n->integer, o.at) : -1;
}

inline int build_iota(const operation& o) {
  const auto type = read_dtype(o.attrs);
  const auto shape = read_shape(o.attrs, type.value_or(dtype::f32));
  const auto* j = o.attrs.require("dim", "the dim that is counted along");
  if (j == nullptr) return -1;
  const auto dim = read_integer(*j, path(o.attrs.at(), "dim"), o.attrs.errors(), 0, ir::max_rank - 1);
  return type && shape && dim ? ir::add_iota(o.graph, *type, *shape, static_cast<int>(*dim), o.at) : -1;
}

inline int build_einsum(const operation& o) {
  const auto equation = o.attrs.text("equation", "like \"ij,jk->ik\"");
  if (!equation) return -1;
  const auto parsed = ir::parse_einsum(*equation);
  if (parsed.error != nullptr)
    return o.complain("equation", in_quotes(*equation) + ", column " + std::to_string(parsed.column) + ": " + parsed.error);
  if (!o.is_sound()) return -1;
  return o.operands.size() == 1 ? ir::add_einsum(o.graph, parsed, {o.operands[0]}, o.at)
                                : ir::add_einsum(o.graph, parsed, {o.operands[0], o.operands[1]}, o.at);
}

inline int build_reduce(const operation& o) {
  const auto dims = o.dims("dims", "the list of dims to reduce");
  const auto* j = o.attrs.require("kind", "one of add multiply maximum minimum and or");
  if (!dims || j == nullptr) return -1;
  const auto kind = read_monoid(*j, path(o.attrs.at(), "kind"), o.attrs.errors());
  if (!kind) return -1;
  ir::dim_mask mask = 0;
  for (const auto d : *dims) {
    if ((mask & ir::dim_bit(d)) != 0) return o.complain("dims", "names dim " + std::to_string(d) + " twice");
    mask |= ir::dim_bit(d);
  }
  return o.is_sound() ? ir::add_reduce(o.graph, o.operands[0], mask, *kind, o.at) : -1;
}

inline int build_broadcast(const operation& o) {
  const auto type = o.is_sound() ? o.graph.nodes[static_cast<std::size_t>(o.operands[0])].type : dtype::f32;
  const auto shape = read_shape(o.attrs, type);
  const auto dims = o.dims("dims", "the dim of the result for each dim of the operand");
  return shape && dims && o.is_sound() ? ir::add_broadcast(o.graph, o.operands[0], *shape, *dims, o.at) : -1;
}

inline int build_transpose(const operation& o) {
  const auto permutation = o.dims("permutation", "the dim of the operand for each dim of the result");
  return permutation && o.is_sound() ? ir::add_transpose(o.graph, o.operands[0], *permutation, o.at) : -1;
}

inline int build_reshape(const operation& o) {
  const auto type = o.is_sound() ? o.graph.nodes[static_cast<std::size_t>(o.operands[0])].type : dtype::f32;
  const auto shape = read_shape(o.attrs, type);
  return shape && o.is_sound() ? ir::add_reshape(o.graph, o.operands[0], *shape, o.at) : -1;
}

/// A list of integers, one for each dim if the library finds as many.
inline std::optional<std::vector<std::int64_t>> read_list(const operation& o, std::string_view key, const char* what) {
  const auto* j = o.attrs.require(key, what);
  if (j == nullptr) return {};
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  return read_integers(*j, path(o.attrs.at(), key), o.attrs.errors(), -most, most, ir::max_rank);
}
/// Whether there is one number for each dim of the operand in these lists.
template <class... Lists>
bool fit_rank(const operation& o, const char* names, const Lists&... lists) {
  const auto rank = static_cast<std::size_t>(o.shape(0).count);
  if (((lists.size() == rank) && ...)) return true;
  o.complain("", "the operand has " + std::to_string(rank) + " dims; " + names + " have one number for each");
  return false;
}

inline int build_pad(const operation& o) {
  const auto low = read_list(o, "low", "what is added at the begin of each dim");
  const auto high = read_list(o, "high", "what is added at the end of each dim");
  const auto interior = read_list(o, "interior", "what is added between the elements of each dim");
  const auto type = o.is_sound() ? o.graph.nodes[static_cast<std::size_t>(o.operands[0])].type : dtype::f32;
  const auto* j = o.attrs.require("value", "the number that is added");
  const auto value = j != nullptr && o.is_sound() ? read_number(*j, type, o) : std::nullopt;
  if (!low || !high || !interior || !value || !fit_rank(o, "low, high and interior", *low, *high, *interior)) return -1;
  ir::written_number number(value->real);
  if (!ir::is_floating(type)) number = ir::written_number(value->integer);
  return ir::add_pad(o.graph, o.operands[0], *low, *high, *interior, number, o.at);
}

inline int build_slice(const operation& o) {
  const auto start = read_list(o, "start", "the first index of each dim");
  const auto limit = read_list(o, "limit", "the index behind the last one of each dim");
  const auto stride = read_list(o, "stride", "how far indices are apart in each dim");
  if (!start || !limit || !stride || !o.is_sound() || !fit_rank(o, "start, limit and stride", *start, *limit, *stride)) return -1;
  return ir::add_slice(o.graph, o.operands[0], *start, *limit, *stride, o.at);
}

inline int build_reverse(const operation& o) {
  const auto dims = o.dims("dims", "the list of dims that are turned round");
  if (!dims || !o.is_sound()) return -1;
  const std::vector<int> list(dims->begin(), dims->end());
  return ir::add_reverse(o.graph, o.operands[0], list, o.at);
}

inline std::optional<int> read_dim(const operation& o, const char* what) {
  const auto* j = o.attrs.require("dim", what);
  if (j == nullptr) return {};
  const auto dim = read_integer(*j, path(o.attrs.at(), "dim"), o.attrs.errors(), 0, ir::max_rank - 1);
  return dim ? std::optional<int>(static_cast<int>(*dim)) : std::nullopt;
}

/// concat(a[amount:], a[:amount])
inline int build_rotate(const operation& o) {
  const auto dim = read_dim(o, "the dim whose elements are moved");
  const auto* j = o.attrs.require("amount", "by how many places to the front");
  if (j == nullptr) return -1;
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  const auto amount = read_integer(*j, path(o.attrs.at(), "amount"), o.attrs.errors(), -most, most);
  return dim && amount && o.is_sound() ? ir::add_roll(o.graph, o.operands[0], -*amount, *dim, o.at) : -1;
}

inline int build_concatenate(const operation& o) {
  const auto dim = read_dim(o, "the dim along which the operands follow each other");
  if (!dim || !o.is_sound()) return -1;
  const std::vector<int> operands(o.operands.begin(), o.operands.end());
  return ir::add_concatenate(o.graph, operands, *dim, o.at);
}

inline int build_reshard(const operation& o) {
  if (!o.has_annotation) return -1;
  return o.is_sound() ? ir::add_reshard(o.graph, o.operands[0], o.annotation, o.at) : -1;
}

/// An operator that is not elementwise.
struct operator_entry {
  const char* name;
  std::size_t least_operands;
  std::size_t most_operands;
  int (*build)(const operation&);
};
inline constexpr auto any_number = std::numeric_limits<std::size_t>::max();
inline constexpr operator_entry special_operators[] = {
    {"compare", 2, 2, build_compare},
    {"convert", 1, 1, build_convert},
    {"constant", 0, 0, build_constant},
    {"iota", 0, 0, build_iota},
    {"einsum", 1, 2, build_einsum},
    {"reduce", 1, 1, build_reduce},
    {"broadcast_in_dim", 1, 1, build_broadcast},
    {"transpose", 1, 1, build_transpose},
    {"reshape", 1, 1, build_reshape},
    {"concatenate", 1, any_number, build_concatenate},
    {"pad", 1, 1, build_pad},
    {"slice", 1, 1, build_slice},
    {"reverse", 1, 1, build_reverse},
    {"rotate", 1, 1, build_rotate},
    {"reshard", 1, 1, build_reshard},
};
/// Of the document's table, what the library does not have.
inline constexpr const char* missing_operators[] = {
    "convolution", "reduce_window", "cumsum",  "sort",          "argmax",
    "top_k",       "gather",        "scatter", "dynamic_slice", "dynamic_update_slice"};

/// The elementwise opcodes that the document names as the library does.
inline std::optional<ir::opcode> elementwise_named(std::string_view name) {
  for (int i = 0; i < ir::opcode_count; ++i) {
    const auto op = static_cast<ir::opcode>(i);
    if (!ir::is_elementwise(op) || ir::is_compare(op) || op == ir::opcode::convert || op == ir::opcode::map) continue;
    if (name == ir::name_of(op)) return op;
  }
  return {};
}

inline std::string list_operators() {
  std::string list;
  for (int i = 0; i < ir::opcode_count; ++i)
    if (elementwise_named(ir::name_of(static_cast<ir::opcode>(i))))
      list += std::string(ir::name_of(static_cast<ir::opcode>(i))) + ' ';
  for (const auto& entry : special_operators) list += std::string(entry.name) + ' ';
  list.pop_back();
  return list;
}
inline const std::string& known_operators() {
  static const std::string list = list_operators();
  return list;
}

/// Adds the operator; -1 and at least one error if it cannot be. Mistakes that the library finds are left in the graph.
inline int build_operator(const operation& o, const path& at_op) {
  const auto wrong_count = [&](std::size_t least, std::size_t most) {
    if (o.operands.size() >= least && o.operands.size() <= most) return false;
    const bool any = most == any_number;
    std::string wanted =
        (any ? "at least " : "") + std::to_string(least) + (least == most || any ? "" : " or " + std::to_string(most));
    wanted += most == 1 ? " operand" : " operands";
    o.attrs.errors().add(path(at_op, "operands").str(),
                         o.name + " takes " + wanted + ", and there are " + std::to_string(o.operands.size()));
    return true;
  };
  if (const auto op = elementwise_named(o.name)) {
    const std::size_t count = ir::is_unary(*op) ? 1 : *op == ir::opcode::select ? 3 : 2;
    if (wrong_count(count, count)) return -1;
    o.attrs.refuse_unknown();
    return o.is_sound() ? ir::add_elementwise(o.graph, *op, o.operands, o.at) : -1;
  }
  for (const auto& entry : special_operators) {
    if (o.name != entry.name) continue;
    if (wrong_count(entry.least_operands, entry.most_operands)) return -1;
    const int id = entry.build(o);
    o.attrs.refuse_unknown();  // now that the operator asked for those it knows
    return id;
  }
  for (const auto* name : missing_operators)
    if (o.name == name) {
      o.attrs.errors().add(path(at_op, "op").str(),
                           "the operator " + o.name + " is not there yet; there are: " + known_operators());
      return -1;
    }
  o.attrs.errors().add(path(at_op, "op").str(), in_quotes(o.name) + " is no operator; there are: " + known_operators());
  return -1;
}

}  // namespace plan_tool
