// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "gspmd/detail/support/text.hpp"
#include "gspmd/detail/support/vec.hpp"

/// XLA's textual shardings, before a mesh is known. The grammar is the grammar of XLA's HLO parser. The parser works at
/// compile time and at run time.
///
///    one    ::= '{' word* '}'
///    word   ::= 'replicated' | 'manual' | 'unreduced' | 'unknown' | 'maximal' | 'device=' int |
///           'last_tile_dim_replicate'
///             | 'devices=' '[' ints ']' ( ints | '<=' '[' ints ']' ( 'T' '(' ints ')' )? )
///             | 'last_tile_dims=' '{' types '}' | 'shard_as' int | 'shard_like' int | 'metadata=' '{' anything '}'
///    tuple  ::= '{' ( one ( ',' one )* )? '}'
namespace gspmd::detail {

enum class xla_kind : std::uint8_t { replicated, manual, unreduced, unknown, maximal, tiled, tuple };

constexpr const char* name_of(xla_kind kind) {
  switch (kind) {
    case xla_kind::replicated: return "replicated";
    case xla_kind::manual: return "manual";
    case xla_kind::unreduced: return "unreduced";
    case xla_kind::unknown: return "unknown";
    case xla_kind::maximal: return "maximal";
    case xla_kind::tiled: return "tiled";
    case xla_kind::tuple: return "tuple";
  }
  return "?";
}

/// The parsed text of a sharding, or of a tuple of shardings.
struct xla_tiles {
  xla_kind kind = xla_kind::replicated;
  constant_vector<std::int64_t> dims;     // parts of each data dim, then of each subgroup
  constant_vector<xla_kind> subgroups;    // kinds of the last dims: replicated, manual, unreduced
  constant_vector<std::int64_t> iota;     // device ids: 0, 1, 2, ... in this shape,
  constant_vector<int> transpose;         // then transposed,
  constant_vector<std::int64_t> devices;  // or listed, if there is no iota
  std::int64_t device = -1;               // of maximal
  std::int64_t shard_group = -1;          // shard_as, shard_like: the number of a group that shares a sharding
  bool is_shard_like = false;
  constant_vector<xla_tiles> elements;  // of a tuple

  [[nodiscard]] constexpr int rank() const { return static_cast<int>(dims.size() - subgroups.size()); }
  [[nodiscard]] constexpr std::int64_t device_count() const {
    std::int64_t n = 1;
    for (const auto d : dims) n *= d;
    return n;
  }
};

inline constexpr std::int64_t most_xla_devices = std::int64_t{1} << 30;

class xla_parser {
 public:
  constexpr explicit xla_parser(std::string_view text) : text_(text) {}

  /// The error text, with its column counted from 1. Empty if the text is correct.
  text problem;

  constexpr xla_tiles parse() {
    xla_tiles result;
    skip();
    const auto begin = at_;
    if (!take('{')) {
      fail("a sharding begins with `{`");
      return result;
    }
    skip();
    if (peek() == '{' || peek() == '}') {
      result.kind = xla_kind::tuple;
      while (problem.empty() && peek() == '{') {
        result.elements.push_back(one(at_++));
        skip();
        if (peek() == '}' || !problem.empty()) break;
        if (!take(',')) fail("write `,` or `}` after a sharding of a tuple");
        skip();
        if (problem.empty() && peek() != '{') fail("a sharding of a tuple begins with `{`");
      }
      if (problem.empty()) take('}');
    } else {
      result = one(begin);
    }
    skip();
    if (problem.empty() && at_ != text_.size()) fail("write nothing after the last `}`");
    return result;
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;

  constexpr text& fail_at(std::size_t at) {
    problem << "XLA sharding, column " << static_cast<std::int64_t>(at + 1) << ": ";
    return problem;
  }
  constexpr void fail(std::string_view what) {
    if (problem.empty()) fail_at(at_) << what;
  }
  [[nodiscard]] constexpr char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  constexpr bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  constexpr void expect(char c, std::string_view what) {
    skip();
    if (!take(c)) fail(what);
  }
  /// Skips blanks, and comments such as /*index=5*/, which XLA writes into long tuples.
  constexpr void skip() {
    for (;;) {
      while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) ++at_;
      if (text_.substr(at_, 2) != "/*") return;
      const auto end = text_.find("*/", at_ + 2);
      if (end == std::string_view::npos) return;
      at_ = end + 2;
    }
  }
  constexpr std::string_view word() {
    const auto begin = at_;
    while (at_ < text_.size() && ((text_[at_] >= 'a' && text_[at_] <= 'z') || (text_[at_] >= 'A' && text_[at_] <= 'Z') ||
                                  text_[at_] == '_' || (at_ > begin && text_[at_] >= '0' && text_[at_] <= '9')))
      ++at_;
    return text_.substr(begin, at_ - begin);
  }
  constexpr std::int64_t integer(std::int64_t least) {
    skip();
    const auto begin = at_;
    std::int64_t n = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      if (n <= most_xla_devices) n = n * 10 + (text_[at_] - '0');
      ++at_;
    }
    if (!problem.empty()) return least;
    if (at_ == begin) fail("write a number here");
    else if (n > most_xla_devices) fail_at(begin) << "the number is larger than 2^30";
    else if (n < least) fail_at(begin) << "the number is " << n << "; it is at least " << least;
    return n;
  }
  template <class T>
  constexpr void integers(constant_vector<T>& list, std::int64_t least) {
    do {
      list.push_back(static_cast<T>(integer(least)));
      skip();
    } while (problem.empty() && take(','));
  }
  constexpr std::int64_t product(const constant_vector<std::int64_t>& list, std::size_t at) {
    std::int64_t n = 1;
    for (const auto i : list) {
      if (i != 0 && n > most_xla_devices / i) {
        if (problem.empty()) fail_at(at) << "more than 2^30 devices";
        return 1;
      }
      n *= i;
    }
    return n;
  }

  constexpr void skip_braces() {
    expect('{', "write `{` after metadata=");
    bool in_quotes = false;
    for (int depth = 1; problem.empty() && depth > 0; ++at_) {
      const char c = peek();
      if (at_ >= text_.size()) return fail("the `{` after metadata= is not closed");
      if (c == '"') in_quotes = !in_quotes;
      else if (c == '\\' && in_quotes) ++at_;
      else if (c == '{' && !in_quotes) ++depth;
      else if (c == '}' && !in_quotes) --depth;
    }
  }

  constexpr void read_devices(xla_tiles& x) {
    skip();
    const auto begin = at_;
    if (!x.dims.empty()) return fail("devices= occurs twice");
    expect('[', "write `[` after devices=");
    if (problem.empty()) integers(x.dims, 1);
    expect(']', "write `]` after the parts of the dims");
    if (!problem.empty()) return;
    const auto count = product(x.dims, begin);
    if (!problem.empty()) return;
    skip();
    const auto list_at = at_;
    if (text_.substr(at_, 2) == "<=") {
      at_ += 2;
      expect('[', "write `[` after <=");
      if (problem.empty()) integers(x.iota, 1);
      expect(']', "write `]` after the shape of the devices");
      if (!problem.empty()) return;
      const auto listed = product(x.iota, list_at);
      if (problem.empty() && listed != count) return mismatch(list_at, x, count, listed);
      skip();
      const auto transpose_at = at_;
      if (take('T')) {
        expect('(', "write `(` after T");
        if (problem.empty()) integers(x.transpose, 0);
        expect(')', "write `)` after the order of the dims");
        if (problem.empty() && !is_permutation(x)) fail_at(transpose_at) << "T(...) names each dim of <=[...] once, from 0";
      } else {
        for (std::size_t i = 0; i < x.iota.size(); ++i) x.transpose.push_back(static_cast<int>(i));
      }
    } else {
      integers(x.devices, 0);
      if (!problem.empty()) return;
      const auto listed = static_cast<std::int64_t>(x.devices.size());
      if (listed != count) return mismatch(list_at, x, count, listed);
      constant_vector<char> named(x.devices.size(), char{0});
      for (const auto id : x.devices) {
        if (id >= count) {
          fail_at(list_at) << "the device " << id << " is named and the ids of " << count << " devices are 0 to " << count - 1
                           << "; a sharding over some of the devices is not supported";
          return;
        }
        if (named[static_cast<std::size_t>(id)]) {
          fail_at(list_at) << "the device " << id << " is named twice";
          return;
        }
        named[static_cast<std::size_t>(id)] = 1;
      }
    }
  }
  constexpr void mismatch(std::size_t at, const xla_tiles& x, std::int64_t wanted, std::int64_t listed) {
    fail_at(at) << "devices=[";
    for (std::size_t i = 0; i < x.dims.size(); ++i) (i > 0 ? problem << "," : problem) << x.dims[i];
    problem << "] has " << wanted << (wanted == 1 ? " part and " : " parts and ") << listed
            << (listed == 1 ? " device is named" : " devices are named");
  }
  static constexpr bool is_permutation(const xla_tiles& x) {
    constant_vector<char> named(x.iota.size(), char{0});
    for (const auto t : x.transpose) {
      if (t >= static_cast<int>(named.size()) || named[static_cast<std::size_t>(t)]) return false;
      named[static_cast<std::size_t>(t)] = 1;
    }
    return x.transpose.size() == named.size();
  }

  constexpr void read_types(xla_tiles& x) {
    if (!x.subgroups.empty()) return fail("the last dims are said twice");
    expect('{', "write `{` after last_tile_dims=");
    do {
      skip();
      const auto begin = at_;
      const auto name = word();
      if (name == "replicated") x.subgroups.push_back(xla_kind::replicated);
      else if (name == "manual") x.subgroups.push_back(xla_kind::manual);
      else if (name == "unreduced") x.subgroups.push_back(xla_kind::unreduced);
      else if (problem.empty()) fail_at(begin) << "a subgroup is replicated, manual or unreduced";
      skip();
    } while (problem.empty() && take(','));
    expect('}', "write `}` after the subgroups");
  }

  /// Parses one sharding after its `{`, which is at `begin`.
  constexpr xla_tiles one(std::size_t begin) {
    xla_tiles x;
    bool has_kind = false;
    const auto set_kind = [&](xla_kind kind, std::size_t at) {
      if (has_kind && problem.empty())
        fail_at(at) << "a sharding is one of replicated, manual, unreduced, unknown, maximal, devices=";
      has_kind = true;
      x.kind = kind;
    };
    for (skip(); problem.empty() && peek() != '}'; skip()) {
      const auto word_at = at_;
      const auto name = word();
      const bool has_value = !name.empty() && take('=');
      if (name == "replicated" && !has_value) set_kind(xla_kind::replicated, word_at);
      else if (name == "manual" && !has_value) set_kind(xla_kind::manual, word_at);
      else if (name == "unreduced" && !has_value) set_kind(xla_kind::unreduced, word_at);
      else if (name == "unknown" && !has_value) set_kind(xla_kind::unknown, word_at);
      else if (name == "maximal" && !has_value) set_kind(xla_kind::maximal, word_at);
      else if (name == "device" && has_value) x.device = integer(0);
      else if (name == "devices" && has_value) {
        set_kind(xla_kind::tiled, word_at);
        if (problem.empty()) read_devices(x);
      } else if (name == "last_tile_dim_replicate" && !has_value) {
        if (!x.subgroups.empty()) fail_at(word_at) << "the last dims are said twice";
        x.subgroups.push_back(xla_kind::replicated);
      } else if (name == "last_tile_dims" && has_value) read_types(x);
      else if ((name == "shard_as" || name == "shard_like") && !has_value) {
        if (x.shard_group >= 0 && problem.empty())
          fail_at(word_at) << "a sharding has one group; write shard_as or shard_like once";
        x.is_shard_like = name == "shard_like";
        x.shard_group = integer(0);
      } else if (name == "metadata" && has_value) skip_braces();
      else if (at_ >= text_.size() && name.empty()) fail("the `{` of the sharding is not closed");
      else if (problem.empty())
        fail_at(word_at)
            << "write replicated, manual, unreduced, unknown, maximal device=, devices=[...], last_tile_dim_replicate, "
               "last_tile_dims={...}, shard_as, shard_like or metadata={...}";
    }
    if (!problem.empty()) return x;
    take('}');
    if (!has_kind) {
      fail_at(begin) << "the sharding says neither replicated, manual, unreduced, unknown, maximal nor devices=";
    } else if ((x.kind == xla_kind::maximal) != (x.device >= 0)) {
      fail_at(begin) << "write maximal together with device=";
    } else if (x.subgroups.size() > x.dims.size()) {
      fail_at(begin) << "the last dims of devices=[...] are said to be subgroups, and there are fewer dims";
    }
    return x;
  }
};

enum class xla_form : std::uint8_t { iota, list };

constexpr void write_ints(text& t, const auto& list) {
  bool first = true;
  for (const auto i : list) {
    if (!first) t << ',';
    first = false;
    t << static_cast<std::int64_t>(i);
  }
}

/// Returns the device ids of a tiled sharding, row-major over its dims. Example: devices=[4,2]<=[2,4]T(1,0) gives
/// 0,4,1,5,2,6,3,7.
constexpr constant_vector<std::int64_t> devices_of(const xla_tiles& x) {
  if (x.iota.empty()) return x.devices;
  constant_vector<std::int64_t> apart(x.iota.size(), 1), size, stride, at;
  for (auto i = x.iota.size(); i-- > 1;) apart[i - 1] = apart[i] * x.iota[i];
  for (const int t : x.transpose) {
    if (x.iota[static_cast<std::size_t>(t)] == 1) continue;
    size.push_back(x.iota[static_cast<std::size_t>(t)]);
    stride.push_back(apart[static_cast<std::size_t>(t)]);
    at.push_back(0);
  }
  constant_vector<std::int64_t> result;
  std::int64_t id = 0;
  for (const auto count = x.device_count(); static_cast<std::int64_t>(result.size()) < count;) {
    result.push_back(id);
    for (auto k = size.size(); k-- > 0;) {
      id += stride[k];
      if (++at[k] < size[k]) break;
      id -= stride[k] * size[k];
      at[k] = 0;
    }
  }
  return result;
}

constexpr void write_xla(text& t, const xla_tiles& x, xla_form form) {
  t << '{';
  if (x.kind == xla_kind::tuple) {
    for (std::size_t i = 0; i < x.elements.size(); ++i) {
      if (i > 0) t << ", ";
      write_xla(t, x.elements[i], form);
    }
    t << '}';
    return;
  }
  if (x.kind == xla_kind::tiled) {
    t << "devices=[";
    write_ints(t, x.dims);
    t << ']';
    if (!x.iota.empty() && form == xla_form::iota) {
      t << "<=[";
      write_ints(t, x.iota);
      t << ']';
      bool in_order = true;
      for (std::size_t i = 0; i < x.transpose.size(); ++i) in_order = in_order && x.transpose[i] == static_cast<int>(i);
      if (!in_order) {
        t << "T(";
        write_ints(t, x.transpose);
        t << ')';
      }
    } else {
      write_ints(t, devices_of(x));
    }
    if (x.subgroups.size() == 1 && x.subgroups[0] == xla_kind::replicated) {
      t << " last_tile_dim_replicate";
    } else if (!x.subgroups.empty()) {
      t << " last_tile_dims={";
      for (std::size_t i = 0; i < x.subgroups.size(); ++i) t << (i > 0 ? ", " : "") << name_of(x.subgroups[i]);
      t << '}';
    }
  } else {
    t << name_of(x.kind);
    if (x.kind == xla_kind::maximal) t << " device=" << x.device;
  }
  if (x.shard_group >= 0) t << (x.is_shard_like ? " shard_like " : " shard_as ") << x.shard_group;
  t << '}';
}

}  // namespace gspmd::detail
