// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/by_name.hpp>
#include <gspmd/fft.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/index/random.hpp>
#include <gspmd/linalg/eigh.hpp>
#include <gspmd/linalg/lu.hpp>
#include <gspmd/linalg/solve.hpp>
#include <gspmd/linalg/tridiagonal.hpp>
#include <gspmd/transform/recompute.hpp>

#include "document.hpp"

/// The operators of the document. Each converts its attributes to a value of the program.
namespace plan_tool {

using gspmd::dtype;
using gspmd::monoid;
using gspmd::value;
using integer_list = std::vector<std::int64_t>;

/// `[2,3]`
inline std::string shape_text(std::span<const std::int64_t> shape) {
  std::string t;
  for (const auto e : shape) t += (t.empty() ? "" : ",") + std::to_string(e);
  return '[' + t + ']';
}
/// Returns the names in `data,model`.
inline std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream in(list);
  for (std::string name; std::getline(in, name, ',');) names.push_back(name);
  return names;
}
inline integer_list shape_of(value v) {
  const auto shape = v.shape();
  return {shape.begin(), shape.end()};
}

inline std::optional<dtype> dtype_named(std::string_view name) {
  for (std::size_t i = 0; i < gspmd::dtype_count; ++i)
    if (name == gspmd::name_of(static_cast<dtype>(i))) return static_cast<dtype>(i);
  return {};
}
inline std::string dtype_names() {
  std::string names;
  for (std::size_t i = 0; i < gspmd::dtype_count; ++i)
    names += (names.empty() ? "" : " ") + std::string(gspmd::name_of(static_cast<dtype>(i)));
  return names;
}
inline std::optional<monoid> monoid_named(std::string_view name) {
  for (const auto m : {monoid::add, monoid::multiply, monoid::max, monoid::min, monoid::and_, monoid::or_})
    if (name == gspmd::name_of(m)) return m;
  return {};
}

inline std::optional<dtype> read_dtype(object_reader& from, std::string_view key = "dtype") {
  static const std::string wanted = "one of " + dtype_names();
  const auto name = from.text(key, wanted.c_str());
  if (!name) return {};
  const auto type = dtype_named(*name);
  if (!type) from.errors().add(path(from.at(), key).str(), in_quotes(*name) + " is no dtype; there are " + dtype_names());
  return type;
}
inline std::optional<monoid> read_monoid(const json& j, const path& at, error_list& errors) {
  const auto kind = j.is_string() ? monoid_named(j.get_ref<const std::string&>()) : std::nullopt;
  if (!kind) errors.add(at.str(), "is " + found(j) + "; it is one of add multiply max min and or");
  return kind;
}
/// Reads a shape whose bytes do not overflow.
inline std::optional<integer_list> read_shape(object_reader& from, dtype type, std::string_view key = "shape") {
  const auto* j = from.require(key, "a list of extents");
  if (j == nullptr) return {};
  const path at(from.at(), key);
  const auto list = read_integers(*j, at, from.errors(), 0, std::numeric_limits<std::int64_t>::max(), gspmd::max_rank);
  if (!list) return {};
  auto bytes = static_cast<long double>(gspmd::bytes_of(type));
  for (const auto e : *list)
    bytes *= static_cast<long double>(e == 0 ? 1 : e);  // products have any order: an extent of 0 cannot prevent overflow
  if (bytes <= 0x1p60L) return list;
  from.errors().add(at.str(), shape_text(*list) + " has more than 2^60 bytes");
  return {};
}

/// One operator of the document while it is built. After an error, its build function returns an invalid value.
struct operation {
  gspmd::dynamic::builder& program;
  std::vector<value> operands;  // an invalid operand was refused before; then the operator is only read
  object_reader& attrs;
  gspmd::location at;
  std::string name;                                               // of the operator
  std::optional<std::vector<std::string>> annotation{};           // reshard
  std::vector<std::pair<std::string, value>>* further = nullptr;  // results after the first one, with the suffixes of their names

  [[nodiscard]] bool is_sound() const {
    return std::all_of(operands.begin(), operands.end(), [](value v) { return v.is_valid(); });
  }
  [[nodiscard]] dtype type() const { return is_sound() ? operands[0].type() : dtype::f32; }
  value complain(std::string_view key, const std::string& what) const {
    attrs.errors().add(key.empty() ? attrs.at().str() : path(attrs.at(), key).str(), what);
    return {};
  }
  /// Reads a list of dims, each in [0, 32).
  [[nodiscard]] std::optional<integer_list> dims(std::string_view key, const char* what) const {
    const auto* j = attrs.require(key, what);
    if (j == nullptr) return {};
    return read_integers(*j, path(attrs.at(), key), attrs.errors(), 0, gspmd::max_rank - 1, gspmd::max_rank);
  }
};

inline value build_compare(const operation& o) {
  const auto direction = o.attrs.text("direction", "one of EQ NE LT LE GT GE");
  if (!direction) return {};
  for (const char* name : {"compare_eq", "compare_ne", "compare_lt", "compare_le", "compare_gt", "compare_ge"}) {
    std::string lower = *direction;
    for (auto& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : '?';
    if ("compare_" + lower == name) return o.is_sound() ? gspmd::elementwise(name, o.operands, o.at) : value{};
  }
  return o.complain("direction", "is " + in_quotes(*direction) + "; it is one of EQ NE LT LE GT GE");
}

inline value build_cast(const operation& o) {
  const auto type = read_dtype(o.attrs);
  return type && o.is_sound() ? gspmd::cast(o.operands[0], *type, o.at) : value{};
}

/// Reads the element of a constant: a number, true, false, or one of the strings inf, -inf and nan, because JSON has no
/// such numbers.
inline std::optional<gspmd::operand> read_number(const json& j, dtype type, const operation& o, std::string_view key = "value") {
  if (type == dtype::pred) {
    if (j.is_boolean()) return gspmd::operand(j.get<bool>() ? 1 : 0, o.at);
    if (j.is_number_integer() && (j == 0 || j == 1)) return gspmd::operand(j.get<int>(), o.at);
    o.complain(key, "is " + found(j) + "; a pred is true or false");
    return {};
  }
  if (gspmd::is_floating(type)) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    if (j.is_number()) {
      auto number = j.get<double>();
      double most = std::numeric_limits<double>::max();
      gspmd::with_real_type(gspmd::part_of(type), [&]<class T>(T) { most = static_cast<double>(std::numeric_limits<T>::max()); });
      if (std::abs(number) > most) number = number > 0 ? infinity : -infinity;
      return gspmd::operand(number, o.at);
    }
    if (j == "inf" || j == "-inf") return gspmd::operand(j == "inf" ? infinity : -infinity, o.at);
    if (j == "nan") return gspmd::operand(std::numeric_limits<double>::quiet_NaN(), o.at);
    o.complain(key, "is " + found(j) + "; it is a number, or one of \"inf\" \"-inf\" \"nan\"");
    return {};
  }
  std::optional<gspmd::operand> number;
  gspmd::with_real_type(type, [&]<class T>(T) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      using limits = std::numeric_limits<T>;
      const auto n = read_integer_of<T>(j, path(o.attrs.at(), key), o.attrs.errors(), limits::min(), limits::max());
      if (n) number.emplace(*n, o.at);
    }
  });
  return number;
}

inline value build_constant(const operation& o) {
  const auto type = read_dtype(o.attrs);
  const auto shape = read_shape(o.attrs, type.value_or(dtype::f32));
  const auto* j = o.attrs.require("value", "the number that every element is");
  if (!type || !shape || j == nullptr) return {};
  const auto n = read_number(*j, *type, o);
  return n ? o.program.constant(*type, *shape, n->number(), o.at) : value{};
}

inline value build_iota(const operation& o) {
  const auto type = read_dtype(o.attrs);
  const auto shape = read_shape(o.attrs, type.value_or(dtype::f32));
  const auto* j = o.attrs.require("dim", "the dim that is counted along");
  if (j == nullptr) return {};
  const auto dim = read_integer(*j, path(o.attrs.at(), "dim"), o.attrs.errors(), 0, gspmd::max_rank - 1);
  return type && shape && dim ? o.program.iota(*type, *shape, static_cast<int>(*dim), o.at) : value{};
}

inline value build_einsum(const operation& o) {
  const auto equation = o.attrs.text("equation", "like \"ij,jk->ik\"");
  if (!equation) return {};
  if (const auto problem = gspmd::equation_problem(*equation); !problem.empty())
    return o.complain("equation", in_quotes(*equation) + ", " + problem);
  if (!o.is_sound()) return {};
  return gspmd::einsum(*equation, std::span<const value>(o.operands.data(), o.operands.size()), o.at);
}

/// Reads a list of numbers. The library checks that there is one for each (spatial) dim. If the list is absent, returns
/// an empty list, which means the default of the library.
inline std::optional<std::vector<std::int64_t>> read_window_list(const operation& o, std::string_view key) {
  const auto* j = o.attrs.find(key);
  if (j == nullptr) return std::vector<std::int64_t>{};
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  if (key != "reverse" || !j->is_array())
    return read_integers(*j, path(o.attrs.at(), key), o.attrs.errors(), -most, most, gspmd::max_rank);
  json numbers = json::array();  // true and false mean 1 and 0
  for (const auto& one : *j) numbers.push_back(one.is_boolean() ? json(one.get<bool>() ? 1 : 0) : one);
  return read_integers(numbers, path(o.attrs.at(), key), o.attrs.errors(), 0, 1, gspmd::max_rank);
}
inline std::optional<std::int64_t> read_count(const operation& o, std::string_view key) {
  const auto* j = o.attrs.find(key);
  if (j == nullptr) return 1;
  return read_integer(*j, path(o.attrs.at(), key), o.attrs.errors(), 1, std::numeric_limits<std::int64_t>::max());
}

inline value build_convolution(const operation& o) {
  const auto layout = o.attrs.text("dimension_numbers", "like \"nhwi,hwio->nhwo\"");
  const auto stride = read_window_list(o, "stride"), low = read_window_list(o, "low"), high = read_window_list(o, "high");
  const auto lhs_dilation = read_window_list(o, "lhs_dilation"), rhs_dilation = read_window_list(o, "rhs_dilation");
  const auto reverse = read_window_list(o, "reverse");
  const auto features = read_count(o, "feature_group_count"), batches = read_count(o, "batch_group_count");
  if (!layout || !stride || !low || !high || !lhs_dilation || !rhs_dilation || !reverse || !features || !batches) return {};
  if (!o.is_sound()) return {};
  return gspmd::convolution(o.operands[0], o.operands[1], *layout,
                            {.stride = *stride,
                             .low = *low,
                             .high = *high,
                             .lhs_dilation = *lhs_dilation,
                             .rhs_dilation = *rhs_dilation,
                             .reverse = *reverse,
                             .feature_group_count = *features,
                             .batch_group_count = *batches},
                            o.at);
}

inline value build_reduce(const operation& o) {
  const auto dims = o.dims("dims", "the list of dims to reduce");
  const auto* j = o.attrs.require("kind", "one of add multiply max min and or");
  if (!dims || j == nullptr) return {};
  const auto kind = read_monoid(*j, path(o.attrs.at(), "kind"), o.attrs.errors());
  if (!kind) return {};
  for (auto d = dims->begin(); d != dims->end(); ++d)
    if (std::find(dims->begin(), d, *d) != d) return o.complain("dims", "names dim " + std::to_string(*d) + " twice");
  return o.is_sound() ? gspmd::reduce(o.operands[0], *kind, *dims, o.at) : value{};
}

inline value build_broadcast(const operation& o) {
  const auto shape = read_shape(o.attrs, o.type());
  const auto dims = o.dims("dims", "the dim of the result for each dim of the operand");
  return shape && dims && o.is_sound() ? gspmd::broadcast_in_dim(o.operands[0], *shape, *dims, o.at) : value{};
}

inline value build_transpose(const operation& o) {
  const auto permutation = o.dims("permutation", "the dim of the operand for each dim of the result");
  return permutation && o.is_sound() ? gspmd::transpose(o.operands[0], *permutation, o.at) : value{};
}

inline value build_reshape(const operation& o) {
  const auto shape = read_shape(o.attrs, o.type());
  return shape && o.is_sound() ? gspmd::reshape(o.operands[0], *shape, o.at) : value{};
}

/// Reads a list of integers. The library checks that there is one for each dim.
inline std::optional<std::vector<std::int64_t>> read_list(const operation& o, std::string_view key, const char* what) {
  const auto* j = o.attrs.require(key, what);
  if (j == nullptr) return {};
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  return read_integers(*j, path(o.attrs.at(), key), o.attrs.errors(), -most, most, gspmd::max_rank);
}
/// Returns true if these lists have one number for each dim of the operand.
template <class... Lists>
bool fit_rank(const operation& o, const char* names, const Lists&... lists) {
  const auto rank = static_cast<std::size_t>(o.operands[0].rank());
  if (((lists.size() == rank) && ...)) return true;
  o.complain("", "the operand has " + std::to_string(rank) + " dims; " + names + " have one number for each");
  return false;
}

inline value build_pad(const operation& o) {
  const auto low = read_list(o, "low", "the number of elements that are added before each dim");
  const auto high = read_list(o, "high", "the number of elements that are added after each dim");
  const auto interior = read_list(o, "interior", "the number of elements that are added between the elements of each dim");
  const auto* j = o.attrs.require("value", "the number that is added");
  const auto n = j != nullptr && o.is_sound() ? read_number(*j, o.type(), o) : std::nullopt;
  if (!low || !high || !interior || !n || !fit_rank(o, "low, high and interior", *low, *high, *interior)) return {};
  return gspmd::pad(o.operands[0], *low, *high, n->number(), *interior, o.at);
}

inline value build_slice(const operation& o) {
  const auto start = read_list(o, "start", "the first index of each dim");
  const auto limit = read_list(o, "limit", "the index after the last index of each dim");
  const auto stride = read_list(o, "stride", "how far indices are apart in each dim");
  if (!start || !limit || !stride || !o.is_sound() || !fit_rank(o, "start, limit and stride", *start, *limit, *stride)) return {};
  return gspmd::slice(o.operands[0], *start, *limit, *stride, o.at);
}

inline value build_reduce_window(const operation& o) {
  const auto size = read_list(o, "window", "the size of the window along each dim");
  const auto stride = read_window_list(o, "stride"), low = read_window_list(o, "low"), high = read_window_list(o, "high");
  const auto base = read_window_list(o, "base_dilation"), dilation = read_window_list(o, "window_dilation");
  const auto* j = o.attrs.require("kind", "one of add multiply max min and or");
  const auto kind = j == nullptr ? std::nullopt : read_monoid(*j, path(o.attrs.at(), "kind"), o.attrs.errors());
  if (!size || !stride || !low || !high || !base || !dilation || !kind || !o.is_sound()) return {};
  return gspmd::reduce_window(o.operands[0], *kind, *size, *stride, *low, *high, *base, *dilation, o.at);
}
template <value (*Pool)(value, gspmd::integers, gspmd::integers, gspmd::integers, gspmd::integers, gspmd::location)>
value build_pool(const operation& o) {
  const auto size = read_list(o, "window", "the size of the window along each dim");
  const auto stride = read_window_list(o, "stride"), low = read_window_list(o, "low"), high = read_window_list(o, "high");
  if (!size || !stride || !low || !high || !o.is_sound()) return {};
  return Pool(o.operands[0], *size, *stride, *low, *high, o.at);
}

inline value build_flip(const operation& o) {
  const auto dims = o.dims("dims", "the list of dims that are turned round");
  return dims && o.is_sound() ? gspmd::flip(o.operands[0], *dims, o.at) : value{};
}

inline std::optional<int> read_dim(const operation& o, const char* what) {
  const auto* j = o.attrs.require("dim", what);
  if (j == nullptr) return {};
  const auto dim = read_integer(*j, path(o.attrs.at(), "dim"), o.attrs.errors(), 0, gspmd::max_rank - 1);
  return dim ? std::optional<int>(static_cast<int>(*dim)) : std::nullopt;
}

/// concat(a[amount:], a[:amount])
inline value build_roll(const operation& o) {
  const auto dim = read_dim(o, "the dim whose elements are moved");
  const auto* j = o.attrs.require("amount", "by how many places to the front");
  if (j == nullptr) return {};
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  const auto amount = read_integer(*j, path(o.attrs.at(), "amount"), o.attrs.errors(), -most, most);
  return dim && amount && o.is_sound() ? gspmd::roll(o.operands[0], -*amount, gspmd::along(*dim), o.at) : value{};
}

/// Reads the boundary of a tensor: a number, or the name of a kind of boundary.
inline std::optional<gspmd::boundary> read_boundary(const json& j, const path& at, const operation& o) {
  using gspmd::boundary;
  if (j.is_string()) {
    const std::pair<const char*, boundary> named[] = {{"zero", boundary::zero()},
                                                      {"edge", boundary::edge()},
                                                      {"reflect", boundary::reflect()},
                                                      {"symmetric", boundary::symmetric()},
                                                      {"wrap", boundary::wrap()}};
    for (const auto& [name, is] : named)
      if (j == name) return is;
  } else if (o.is_sound() && (j.is_number() || j.is_boolean())) {
    const auto n = read_number(j, o.type(), o, "outside");
    if (!n) return {};
    return boundary::constant(n->number());
  }
  o.attrs.errors().add(at.str(), "is " + found(j) + "; it is a number, or one of zero edge reflect symmetric wrap");
  return {};
}
constexpr std::int64_t most_steps = std::int64_t{1} << 31;

/// Element i along the dim is element i + amount.
inline value build_shift(const operation& o) {
  const auto dim = read_dim(o, "the dim that is moved along");
  const auto* j = o.attrs.require("amount", "how much further the elements are found");
  if (j == nullptr) return {};
  const auto amount = read_integer(*j, path(o.attrs.at(), "amount"), o.attrs.errors(), -most_steps, most_steps);
  const auto* const outside = o.attrs.find("outside");
  const auto beyond = outside == nullptr ? gspmd::boundary::zero() : read_boundary(*outside, path(o.attrs.at(), "outside"), o);
  return dim && amount && beyond && o.is_sound() ? gspmd::shift(o.operands[0], *amount, gspmd::along(*dim), *beyond, o.at)
                                                 : value{};
}

/// Computes the sum of the operand at offsets, each multiplied by a number. `outside`: the boundary, for all dims, or
/// for each dim, with [before, after].
inline value build_stencil(const operation& o) {
  const auto* const taps = o.attrs.require("taps", "a list like [[-2.0, [0, 0]], [1.0, [0, 1]]]: factors and their offsets");
  if (taps == nullptr) return {};
  const path at_taps(o.attrs.at(), "taps"), at_outside(o.attrs.at(), "outside");
  if (!taps->is_array() || taps->empty() || taps->size() > 1000)
    return o.complain("taps", "is " + found(*taps) + "; it is a list of 1 to 1000 of [factor, [offsets]]");
  const auto rank = o.is_sound() ? static_cast<std::size_t>(o.operands[0].rank()) : 0;
  std::vector<std::pair<gspmd::boundary, gspmd::boundary>> beyond(rank, {gspmd::boundary::zero(), gspmd::boundary::zero()});
  const auto* const outside = o.attrs.find("outside");
  if (!o.is_sound()) return {};
  if (o.type() == dtype::pred) return o.complain("", "a stencil adds up numbers, and the operand is pred");
  if (outside != nullptr && outside->is_array() && outside->size() != rank)
    return o.complain("outside",
                      "has " + std::to_string(outside->size()) + " entries; the operand has " + std::to_string(rank) + " dims");
  for (std::size_t d = 0; outside != nullptr && d < rank; ++d) {
    const json& along = outside->is_array() ? (*outside)[d] : *outside;
    const bool has_sides = along.is_array() && along.size() == 2;
    const path at(at_outside, d);
    const auto low = read_boundary(has_sides ? along[0] : along, at, o),
               high = read_boundary(has_sides ? along[1] : along, at, o);
    if (!low || !high) return {};
    beyond[d] = {*low, *high};
  }
  value sum;
  for (std::size_t k = 0; k < taps->size(); ++k) {
    const json& tap = (*taps)[k];
    const path at(at_taps, k);
    if (!tap.is_array() || tap.size() != 2) {
      o.attrs.errors().add(at.str(), "is " + found(tap) + "; it is [factor, [offsets]]");
      return {};
    }
    const auto factor = read_number(tap[0], o.type(), o, "taps");
    const auto offsets = read_integers(tap[1], path(at, 1), o.attrs.errors(), -most_steps, most_steps, gspmd::max_rank);
    if (!factor || !offsets) return {};
    if (offsets->size() != rank) {
      o.attrs.errors().add(
          at.str(), "has " + std::to_string(offsets->size()) + " offsets; the operand has " + std::to_string(rank) + " dims");
      return {};
    }
    value moved = o.operands[0];
    for (std::size_t d = 0; d < rank; ++d)
      if (const auto by = (*offsets)[d]; by != 0)
        moved = gspmd::shift(moved, by, gspmd::along(d), by < 0 ? beyond[d].first : beyond[d].second, o.at);
    const value times = o.program.constant(o.type(), shape_of(moved), factor->number(), o.at);
    const value term = gspmd::elementwise("multiply", std::vector<value>{moved, times}, o.at);
    sum = k == 0 ? term : gspmd::elementwise("add", std::vector<value>{sum, term}, o.at);
  }
  return sum;
}

/// Resizes to a finer or coarser grid.
template <value (*Resize)(value, gspmd::integers, gspmd::location)>
value build_resized(const operation& o) {
  const auto factors = read_list(o, "factors", "how many times as fine, or as coarse, along each dim");
  return factors && o.is_sound() ? Resize(o.operands[0], *factors, o.at) : value{};
}

inline value build_concatenate(const operation& o) {
  const auto dim = read_dim(o, "the dim along which the operands follow each other");
  return dim && o.is_sound() ? gspmd::concatenate(o.operands, *dim, o.at) : value{};
}

inline value build_reshard(const operation& o) {
  return o.annotation && o.is_sound() ? o.program.reshard(o.operands[0], *o.annotation, o.at) : value{};
}

/// Reads the rule for indices out of range: `mode` is clip, fill or error.
inline std::optional<gspmd::out_of_range> read_mode(const operation& o, gspmd::out_of_range otherwise) {
  const auto* j = o.attrs.find("mode");
  if (j == nullptr) return otherwise;
  if (*j == "clip") return gspmd::out_of_range::clip;
  if (*j == "fill") return gspmd::out_of_range::fill;
  if (*j == "error") return gspmd::out_of_range::error;
  o.complain("mode", "is " + found(*j) + "; it is one of \"clip\" \"fill\" \"error\"");
  return {};
}
inline std::optional<std::int64_t> read_vector_dim(const operation& o) {
  const auto* j = o.attrs.require("index_vector_dim", "the dim of the indices that has their columns");
  if (j == nullptr) return {};
  return read_integer(*j, path(o.attrs.at(), "index_vector_dim"), o.attrs.errors(), 0, gspmd::max_rank);
}

inline value build_gather(const operation& o) {
  const auto offset = o.dims("offset_dims", "the dims of the result that run inside of a slice");
  const auto collapsed = o.dims("collapsed_slice_dims", "the dims along which a slice is one index");
  const auto map = o.dims("start_index_map", "the dim for each column of the indices");
  const auto batch = read_window_list(o, "operand_batching_dims"),
             index_batch = read_window_list(o, "start_indices_batching_dims");
  const auto sizes = read_list(o, "slice_sizes", "the size of a slice along each dim");
  const auto vector_dim = read_vector_dim(o);
  const auto mode = read_mode(o, gspmd::out_of_range::clip);
  const auto* fill = o.attrs.find("value");
  if (fill != nullptr && mode && *mode != gspmd::out_of_range::fill)
    return o.complain("value", "is for indices outside in the mode \"fill\"; leave it out, or write that mode");
  const auto n = fill == nullptr || !o.is_sound() ? gspmd::operand(0, o.at) : read_number(*fill, o.type(), o);
  if (!offset || !collapsed || !map || !batch || !index_batch || !sizes || !vector_dim || !mode || !n || !o.is_sound()) return {};
  const gspmd::gather_dims dims{*offset, *collapsed, *batch, *index_batch, *map, *vector_dim};
  return gspmd::gather(o.operands[0], o.operands[1], dims, *sizes, *mode, n->number(), o.at);
}
/// Without a kind, the updates replace the elements.
inline value build_scatter(const operation& o) {
  const auto window = o.dims("update_window_dims", "the dims of the updates that run inside of a slice");
  const auto inserted = o.dims("inserted_window_dims", "the dims along which a slice is one index");
  const auto map = o.dims("scatter_dims_to_operand_dims", "the dim for each column of the indices");
  const auto batch = read_window_list(o, "input_batching_dims"),
             index_batch = read_window_list(o, "scatter_indices_batching_dims");
  const auto vector_dim = read_vector_dim(o);
  const auto mode = read_mode(o, gspmd::out_of_range::fill);
  const auto* j = o.attrs.find("kind");
  const auto kind = j == nullptr ? monoid::add : read_monoid(*j, path(o.attrs.at(), "kind"), o.attrs.errors());
  if (!window || !inserted || !map || !batch || !index_batch || !vector_dim || !mode || !kind || !o.is_sound()) return {};
  const gspmd::scatter_dims dims{*window, *inserted, *batch, *index_batch, *map, *vector_dim};
  if (j == nullptr) return gspmd::scatter(o.operands[0], o.operands[1], o.operands[2], dims, *mode, o.at);
  return gspmd::scatter(o.operands[0], o.operands[1], o.operands[2], dims, *kind, *mode, o.at);
}
inline value build_dynamic_slice(const operation& o) {
  const auto sizes = read_list(o, "sizes", "the size of the slice along each dim");
  if (!sizes || !o.is_sound()) return {};
  return gspmd::dynamic_slice(o.operands[0], std::span(o.operands).subspan(1), *sizes, o.at);
}
inline value build_dynamic_update_slice(const operation& o) {
  if (!o.is_sound()) return {};
  return gspmd::dynamic_update_slice(o.operands[0], o.operands[1], std::span(o.operands).subspan(2), o.at);
}

inline bool read_flag(const operation& o, std::string_view key) {
  const auto* j = o.attrs.find(key);
  if (j != nullptr && !j->is_boolean()) o.complain(key, "is " + found(*j) + "; it is true or false");
  return j != nullptr && j->is_boolean() && j->get<bool>();
}
inline value build_cumsum(const operation& o) {
  const auto dim = read_dim(o, "the dim along which elements are added up");
  const auto* j = o.attrs.find("kind");
  const auto kind = j == nullptr ? monoid::add : read_monoid(*j, path(o.attrs.at(), "kind"), o.attrs.errors());
  const gspmd::scan_options how{.exclusive = read_flag(o, "exclusive"), .reverse = read_flag(o, "reverse")};
  return dim && kind && o.is_sound() ? gspmd::scan_along(o.operands[0], *kind, *dim, how, o.at) : value{};
}
inline value build_top_k(const operation& o) {
  const auto* j = o.attrs.require("k", "how many elements along the last dim");
  const auto k = j == nullptr
                     ? std::nullopt
                     : read_integer(*j, path(o.attrs.at(), "k"), o.attrs.errors(), 0, std::numeric_limits<std::int64_t>::max());
  if (!k || !o.is_sound()) return {};
  const auto [values, indices] = gspmd::top_k(o.operands[0], *k, o.at);
  o.further->emplace_back(".indices", indices);
  return values;
}
inline value build_sort(const operation& o) {
  const auto dim = read_dim(o, "the dim along which elements are put in order");
  const gspmd::sort_options how{.descending = read_flag(o, "descending")};
  const auto* j = o.attrs.find("keys");
  const auto count = static_cast<std::int64_t>(o.operands.size());
  const auto keys = j == nullptr ? std::int64_t{1} : read_integer(*j, path(o.attrs.at(), "keys"), o.attrs.errors(), 1, count);
  if (!dim || !keys || !o.is_sound()) return {};
  const auto all = [&]<std::size_t... K>(std::index_sequence<K...>) {
    const auto made = gspmd::sort_together({o.operands[K]...}, static_cast<int>(*keys), gspmd::along(*dim), how, o.at);
    for (std::size_t k = 1; k < made.size(); ++k) o.further->emplace_back("." + std::to_string(k), made[k]);
    return made[0];
  };
  if (count == 1) return gspmd::sort(o.operands[0], *dim, how, o.at);
  return count == 2 ? all(std::make_index_sequence<2>()) : all(std::make_index_sequence<3>());
}
inline value build_argsort(const operation& o) {
  const auto dim = read_dim(o, "the dim along which elements are put in order");
  const gspmd::sort_options how{.descending = read_flag(o, "descending")};
  return dim && o.is_sound() ? gspmd::argsort(o.operands[0], *dim, how, o.at) : value{};
}
inline bool is_integer(dtype type) { return !gspmd::is_floating(type) && type != dtype::pred; }
/// Reads a key of random numbers: a scalar integer.
inline value read_key(const operation& o) {
  if (!o.is_sound() || o.operands.empty()) return {};
  const value key = o.operands[0];
  if (!is_integer(key.type()) || key.rank() != 0) {
    o.complain(
        "", "the key is " + std::string(gspmd::name_of(key.type())) + shape_text(shape_of(key)) + "; it is an integer of rank 0");
    return {};
  }
  return key.type() == dtype::u64 ? key : gspmd::cast(key, dtype::u64, o.at);
}
inline value build_fold_in(const operation& o) {
  const auto* j = o.attrs.require("number", "the number that the new key depends on");
  const auto n = j == nullptr ? std::nullopt
                              : read_integer_of<std::uint64_t>(*j, path(o.attrs.at(), "number"), o.attrs.errors(), 0,
                                                               std::numeric_limits<std::uint64_t>::max());
  const value key = read_key(o);
  return n && key.is_valid() ? gspmd::random::fold_in(key, *n, o.at) : value{};
}

/// Reads a JSON number, if it exists, in its written form: an integer or not.
inline gspmd::operand number_of(const json* j) {
  if (j == nullptr) return 0;
  return j->is_number_unsigned()  ? gspmd::operand(j->get<std::uint64_t>())
         : j->is_number_integer() ? gspmd::operand(j->get<std::int64_t>())
                                  : gspmd::operand(j->get<double>());
}
/// Draws random numbers. pred has `p`, integers have `low` and `high`, floats have `normal`, or `low` and `high`.
/// Without a range, integers are all numbers of the type, and floats are from 0 to 1.
inline value build_random(const operation& o) {
  const auto type = read_dtype(o.attrs);
  const auto shape = read_shape(o.attrs, type.value_or(dtype::f32));
  const value key = read_key(o);
  const auto read = [&](bool is_member, const char* name) -> const json* {
    const auto* j = is_member || !type ? o.attrs.find(name) : nullptr;
    if (j == nullptr || j->is_number()) return j;
    o.complain(name, "is " + found(*j) + ", not a number");
    return nullptr;
  };
  const bool is_float = type && gspmd::is_floating(*type), is_pred = type == dtype::pred;
  const bool is_normal = (is_float || !type) && read_flag(o, "normal");
  const auto* p = read(is_pred, "p");
  const auto *low = read(!is_pred && !is_normal, "low"), *high = read(!is_pred && !is_normal, "high");
  if (low != nullptr && high == nullptr) return o.complain("high", "is missing; a range that has `low` has `high` too");
  if (!type || !shape || !key.is_valid()) return {};
  if (gspmd::is_complex(*type))
    return o.complain("dtype", "is " + std::string(gspmd::name_of(*type)) + "; draw both parts and combine them with `complex`");
  value made;
  gspmd::with_real_type(*type, [&]<class T>(T) {
    if constexpr (std::is_same_v<T, bool>) {
      made = gspmd::random::bernoulli(key, {p == nullptr ? 0.5 : p->get<double>(), o.at}, *shape, o.at);
    } else if constexpr (std::is_integral_v<T>) {
      made = high == nullptr ? gspmd::random::bits<T>(key, *shape, o.at)
                             : gspmd::random::randint<T>(key, number_of(low).number(), number_of(high).number(), *shape, o.at);
    } else {
      made = is_normal ? gspmd::random::normal<T>(key, *shape, o.at)
             : high == nullptr
                 ? gspmd::random::uniform<T>(key, *shape, o.at)
                 : gspmd::random::uniform<T>(key, low == nullptr ? 0.0 : low->get<double>(), high->get<double>(), *shape, o.at);
    }
  });
  return made;
}
inline value build_permutation(const operation& o) {
  const auto* j = o.attrs.require("n", "how many numbers");
  const auto n = j == nullptr
                     ? std::nullopt
                     : read_integer(*j, path(o.attrs.at(), "n"), o.attrs.errors(), 0, std::numeric_limits<std::int32_t>::max());
  const value key = read_key(o);
  return n && key.is_valid() ? gspmd::random::permutation(key, *n, o.at) : value{};
}
inline value build_shuffle(const operation& o) {
  const auto dim = read_dim(o, "the dim along which elements change places");
  const value key = read_key(o);
  return dim && key.is_valid() ? gspmd::random::shuffle(key, o.operands[1], *dim, o.at) : value{};
}
inline value build_optimization_barrier(const operation& o) {
  return o.is_sound() ? gspmd::optimization_barrier(o.operands[0], std::span(o.operands).subspan(1), o.at) : value{};
}
template <value (*Arg)(value, int, gspmd::location)>
value build_arg(const operation& o) {
  const auto dim = read_dim(o, "the dim along which elements are compared");
  return dim && o.is_sound() ? Arg(o.operands[0], *dim, o.at) : value{};
}

template <auto Transform>
value build_fft(const operation& o) {
  const auto dims = o.dims("dims", "the list of dims that are transformed");
  return dims && o.is_sound() ? Transform(o.operands[0], *dims, o.at) : value{};
}
/// Uses the lower triangle of the matrices, unless `upper`, `transposed` or `unit_diagonal` is set.
inline value build_triangular_solve(const operation& o) {
  const gspmd::triangular how{!read_flag(o, "upper"), read_flag(o, "transposed"), read_flag(o, "unit_diagonal")};
  return o.is_sound() ? gspmd::triangular_solve(o.operands[0], o.operands[1], how, o.at) : value{};
}
/// `parts`: the number of parts of each system; default: 1.
inline value build_tridiagonal_solve(const operation& o) {
  const auto* j = o.attrs.find("parts");
  const auto parts =
      j == nullptr ? std::optional<std::int64_t>(1)
                   : read_integer(*j, path(o.attrs.at(), "parts"), o.attrs.errors(), 1, std::numeric_limits<std::int64_t>::max());
  if (!parts || !o.is_sound()) return {};
  return gspmd::tridiagonal_solve(o.operands[0], o.operands[1], o.operands[2], o.operands[3], {.parts = *parts}, o.at);
}
inline value build_eigh(const operation& o) {
  if (!o.is_sound()) return {};
  const auto [values, vectors] = gspmd::eigh(o.operands[0], o.at);
  o.further->emplace_back(".values", values);
  return vectors;
}
inline value build_lu(const operation& o) {
  if (!o.is_sound()) return {};
  const auto [factors, order] = gspmd::lu(o.operands[0], o.at);
  o.further->emplace_back(".order", order);
  return factors;
}
inline value build_slogdet(const operation& o) {
  if (!o.is_sound()) return {};
  const auto [sign, log_size] = gspmd::slogdet(o.operands[0], o.at);
  o.further->emplace_back(".log", log_size);
  return sign;
}
/// `n`: the extent of the last of `dims`; default: an even extent.
inline value build_irfft(const operation& o) {
  const auto dims = o.dims("dims", "the list of dims that are transformed");
  const auto* j = o.attrs.find("n");
  if (j == nullptr) return dims && o.is_sound() ? gspmd::irfft(o.operands[0], *dims, o.at) : value{};
  const auto n = read_integer(*j, path(o.attrs.at(), "n"), o.attrs.errors(), 1, std::numeric_limits<std::int64_t>::max());
  return dims && n && o.is_sound() ? gspmd::irfft(o.operands[0], *n, *dims, o.at) : value{};
}

/// An operator that is not elementwise.
struct operator_entry {
  const char* name;
  std::size_t least_operands;
  std::size_t most_operands;
  value (*build)(const operation&);
};
inline constexpr auto any_number = std::numeric_limits<std::size_t>::max();
inline constexpr operator_entry special_operators[] = {
    {"compare", 2, 2, build_compare},
    {"cast", 1, 1, build_cast},
    {"constant", 0, 0, build_constant},
    {"iota", 0, 0, build_iota},
    {"einsum", 1, any_number, build_einsum},
    {"convolution", 2, 2, build_convolution},
    {"reduce", 1, 1, build_reduce},
    {"broadcast_in_dim", 1, 1, build_broadcast},
    {"transpose", 1, 1, build_transpose},
    {"reshape", 1, 1, build_reshape},
    {"concatenate", 1, any_number, build_concatenate},
    {"pad", 1, 1, build_pad},
    {"slice", 1, 1, build_slice},
    {"reduce_window", 1, 1, build_reduce_window},
    {"max_pool", 1, 1, build_pool<gspmd::max_pool>},
    {"avg_pool", 1, 1, build_pool<gspmd::avg_pool>},
    {"sum_pool", 1, 1, build_pool<gspmd::sum_pool>},
    {"upsample", 1, 1, build_resized<gspmd::upsample>},
    {"interpolate", 1, 1, build_resized<gspmd::interpolate>},
    {"downsample", 1, 1, build_resized<gspmd::downsample>},
    {"shift", 1, 1, build_shift},
    {"stencil", 1, 1, build_stencil},
    {"flip", 1, 1, build_flip},
    {"roll", 1, 1, build_roll},
    {"reshard", 1, 1, build_reshard},
    {"optimization_barrier", 1, any_number, build_optimization_barrier},
    {"cumsum", 1, 1, build_cumsum},
    {"top_k", 1, 1, build_top_k},
    {"sort", 1, 3, build_sort},
    {"argsort", 1, 1, build_argsort},
    {"fold_in", 1, 1, build_fold_in},
    {"random", 1, 1, build_random},
    {"permutation", 1, 1, build_permutation},
    {"shuffle", 2, 2, build_shuffle},
    {"argmax", 1, 1, build_arg<gspmd::argmax>},
    {"argmin", 1, 1, build_arg<gspmd::argmin>},
    {"gather", 2, 2, build_gather},
    {"scatter", 3, 3, build_scatter},
    {"dynamic_slice", 1, any_number, build_dynamic_slice},
    {"dynamic_update_slice", 2, any_number, build_dynamic_update_slice},
    {"fft", 1, 1, build_fft<gspmd::fft>},
    {"ifft", 1, 1, build_fft<gspmd::ifft>},
    {"rfft", 1, 1, build_fft<gspmd::rfft>},
    {"irfft", 1, 1, build_irfft},
    {"cholesky", 1, 1, [](const operation& o) { return o.is_sound() ? gspmd::cholesky(o.operands[0], o.at) : value{}; }},
    {"triangular_solve", 2, 2, build_triangular_solve},
    {"solve", 2, 2, [](const operation& o) { return o.is_sound() ? gspmd::solve(o.operands[0], o.operands[1], o.at) : value{}; }},
    {"eigh", 1, 1, build_eigh},
    {"lu", 1, 1, build_lu},
    {"slogdet", 1, 1, build_slogdet},
    {"det", 1, 1, [](const operation& o) { return o.is_sound() ? gspmd::det(o.operands[0], o.at) : value{}; }},
    {"inv", 1, 1, [](const operation& o) { return o.is_sound() ? gspmd::inv(o.operands[0], o.at) : value{}; }},
    {"tridiagonal_solve", 4, 4, build_tridiagonal_solve},
};
/// The elementwise operators with the same names in documents and in the library. A comparison has a direction instead.
inline const std::vector<gspmd::elementwise_operator>& elementwise_operators() {
  static const auto list = [] {
    auto all = gspmd::elementwise_operators();
    std::erase_if(all, [](const auto& o) { return o.name.starts_with("compare_"); });
    return all;
  }();
  return list;
}

inline std::string list_operators() {
  std::string list;
  for (const auto& o : elementwise_operators()) list += std::string(o.name) + ' ';
  for (const auto& entry : special_operators) list += std::string(entry.name) + ' ';
  list.pop_back();
  return list;
}
inline const std::string& known_operators() {
  static const std::string list = list_operators();
  return list;
}

/// Adds the operator. If it is impossible, returns an invalid value and adds at least one error. The program keeps the
/// library's errors.
inline value build_operator(const operation& o, const path& at_op) {
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
  for (const auto& known : elementwise_operators()) {
    if (o.name != known.name) continue;
    const auto count = static_cast<std::size_t>(known.operands);
    if (wrong_count(count, count)) return {};
    o.attrs.refuse_unknown();
    return o.is_sound() ? gspmd::elementwise(o.name, o.operands, o.at) : value{};
  }
  for (const auto& entry : special_operators) {
    if (o.name != entry.name) continue;
    if (wrong_count(entry.least_operands, entry.most_operands)) return {};
    const auto result = entry.build(o);
    o.attrs.refuse_unknown();  // the operator has now read all members that it uses
    return result;
  }
  o.attrs.errors().add(path(at_op, "op").str(), in_quotes(o.name) + " is no operator; there are: " + known_operators());
  return {};
}

}  // namespace plan_tool
