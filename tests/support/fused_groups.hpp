// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "gspmd/detail/kernels/fused_dynamic.hpp"

/// Hand-written fused groups, and a function that runs a group like a program that is planned at run time.
namespace fused_groups {

using namespace gspmd;
using namespace gspmd::detail;

constexpr extents dims(std::initializer_list<std::int64_t> list) {
  extents e;
  for (const auto x : list) e.push_back(x);
  return e;
}
constexpr scalar_op load(dtype type, int slot, const extents& strides) {
  scalar_op o;
  o.op = opcode::parameter;
  o.type = o.operand_type = type;
  o.slot = static_cast<std::int16_t>(slot);
  o.strides = strides;
  return o;
}
constexpr scalar_op number(dtype type, double value) {
  scalar_op o;
  o.type = o.operand_type = type;
  o.real = value;
  o.integer = static_cast<std::int64_t>(value);
  return o;
}
constexpr scalar_op counter(dtype type, int slot, int dim) {
  scalar_op o;
  o.op = opcode::iota;
  o.type = o.operand_type = type;
  o.slot = static_cast<std::int16_t>(slot);
  o.dim = static_cast<std::int8_t>(dim);
  return o;
}
constexpr scalar_op op(const scalar_code& code, dtype type, dtype operand_type, std::initializer_list<int> args,
                       const map_function* f = nullptr) {
  scalar_op o;
  o.op = code;
  o.type = type;
  o.operand_type = operand_type;
  for (const int a : args) o.args.push_back(static_cast<std::int16_t>(a));
  o.function = f;
  return o;
}
constexpr scalar_op op(const scalar_code& code, dtype type, std::initializer_list<int> args, const map_function* f = nullptr) {
  return op(code, type, type, args, f);
}
/// The operators of listed_elementwise.
inline const std::vector<scalar_code>& listed_codes() {
  static const auto all = []<class... O>(boost::mp11::mp_list<O...>) {
    return std::vector<scalar_code>{scalar_code_of<O>...};
  }(listed_elementwise{});
  return all;
}
inline scalar_code code_with(std::uint32_t id) {
  for (const auto& code : listed_codes())
    if (short_id(code) == id) return code;
  return {};
}
constexpr fused_store to(int o, int slot) { return {static_cast<std::int16_t>(o), static_cast<std::int16_t>(slot)}; }

inline void run_dynamic(const fused_group& group, const void* const* in, void* const* out,
                        const std::int64_t* offsets = nullptr) {
  const fused_code code(group);
  std::vector<std::byte> scratch(static_cast<std::size_t>(code.scratch_bytes), std::byte{0xA5});
  run_fused(code, in, out, offsets, scratch.data());
}

constexpr auto f32 = dtype::f32;
constexpr auto f64 = dtype::f64;
constexpr auto s32 = dtype::s32;
constexpr auto s64 = dtype::s64;
constexpr auto pred = dtype::pred;

inline constexpr map_function axpy = [] {
  map_function f;
  f.arity = 3;
  std::get<map_element<float>>(f.of) = [](const float* a) { return a[0] * a[1] + a[2]; };
  std::get<map_element<double>>(f.of) = [](const double* a) { return a[0] * a[1] + a[2]; };
  std::get<map_element<std::int64_t>>(f.of) = [](const std::int64_t* a) { return (a[0] & 255) * (a[1] & 255) + (a[2] & 255); };
  std::get<map_element<bool>>(f.of) = [](const bool* a) { return a[0] != a[1] || a[2]; };
  return f;
}();

}  // namespace fused_groups
