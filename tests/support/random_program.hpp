// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/all_operators.hpp"
#include "support/reference.hpp"

/// Random programs on random meshes with random annotations, and their expected results.
namespace reference {

namespace ir = gspmd::detail;

/// Random numbers that are equal on all platforms for the same seed (splitmix64).
class random_numbers {
 public:
  explicit random_numbers(std::uint64_t seed) : state_(seed ^ 0x5DEECE66Du) {
    state_ = bits() * 0xD1342543DE82EF95u;  // otherwise adjacent seeds would give shifted copies of one stream
  }
  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  /// Returns a number in [low, high].
  int between(int low, int high) { return low + static_cast<int>(bits() % static_cast<std::uint64_t>(high - low + 1)); }
  bool chance(int percent) { return between(0, 99) < percent; }
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  template <class T>
  const T& one_of(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(between(0, static_cast<int>(list.size()) - 1))];
  }

 private:
  std::uint64_t state_;
};

/// The callables of random `map`s: polynomials and clamps. Their integers wrap around.
namespace maps {
inline std::atomic<bool> met_padding = false;  // set if a map reads padding: data has no NaN and no number as large as the
                                               // padding of inputs

template <class T>
void look_at(const T* x, int count) {
  if constexpr (std::is_floating_point_v<T>)
    for (int k = 0; k < count; ++k)
      if (!(std::fabs(x[k]) < T(1e30))) met_padding = true;
}
template <class T>
T multiply_add(const T* x) {
  look_at(x, 2);
  if constexpr (std::is_integral_v<T>) {
    using bits = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<bits>(x[0]) * static_cast<bits>(x[1]) + static_cast<bits>(x[0]));
  } else {
    return x[0] * x[1] + x[0];
  }
}
template <class T>
T clamp(const T* x) {
  look_at(x, 3);
  const T low = x[0] < x[1] ? x[1] : x[0];
  return low > x[2] ? x[2] : low;
}
template <class T>
T quarter_of_sum(const T* x) {
  look_at(x, 5);
  return (x[0] + x[1] + x[2] + x[3]) * static_cast<T>(0.25) - x[4];
}
constexpr bool exclusive_or(const bool* x) { return x[0] != x[1]; }

inline constexpr ir::map_function fused = {2,
                                           {multiply_add<float>, multiply_add<double>, multiply_add<std::int32_t>,
                                            multiply_add<std::int64_t>, nullptr, nullptr, nullptr}};
inline constexpr ir::map_function clamped = {
    3, {clamp<float>, clamp<double>, clamp<std::int32_t>, clamp<std::int64_t>, clamp<bool>, nullptr, nullptr}};
inline constexpr ir::map_function averaged = {
    5, {quarter_of_sum<float>, quarter_of_sum<double>, nullptr, nullptr, nullptr, nullptr, nullptr}};
inline constexpr ir::map_function exclusive = {2, {nullptr, nullptr, nullptr, nullptr, exclusive_or, nullptr, nullptr}};
}  // namespace maps

/// The properties of random programs.
struct random_options {
  int max_devices = 16;
  int devices = 0;  // exact number, if not 0
  int min_operators = 3;
  int max_operators = 14;
  bool annotate = true;  // any annotations
  bool partial_inputs = true;
  bool permute_devices = true;
  bool regions = true;  // loops and conditionals
  bool local_ops = false;
  int einsums = 0;             // percentage of additional einsums
  bool lookups = false;        // many gathers, scatters, scans and top_k
  bool shifts = false;         // many shifts
  bool stencils = false;       // many loops over several shifts and rolls of one value, also inside loops
  bool maps = false;           // many pad, slice, reverse, roll and concatenate
  bool windows = false;        // many reductions of windows
  bool limit_gathers = false;  // einsums must not gather operands above some size
};

/// A random program, its inputs and its expected outputs.
///
/// A runner plans `g` on `mesh`. It requests the buffers of every device, for the input shardings of the plan. It runs
/// the plan and then has the output buffers of every device checked:
///
///  random_program p(seed);
///  local_program q = pass_results(p.g, p.mesh).take<emit_pass>();
///  buffer = p.local_input(i, device, q.value(q.inputs[i]).layout);               for all devices and inputs
///  message = p.check_output(k, device, q.value(q.outputs[k]).layout, buffer);    empty if right
///
/// An input with a partial annotation consists of partial values. The devices along the partial axes (numbered by
/// group_index) have different arrays, whose combination is the global array `inputs[i]`. Padding holds NaN, huge
/// numbers or 0, or only 0. If it holds only 0, no floating-point exception may be raised.
class random_program {
 public:
  std::uint64_t seed = 0;
  graph g;
  ir::mesh_shape mesh;
  std::vector<host_array> inputs;  // global, in the order of g.inputs

  explicit random_program(std::uint64_t seed_value, const random_options& options = {})
      : seed(seed_value), random_(seed_value), options_(options) {
    make_mesh();
    for (int k = 0; k < 3; ++k) palette_.push_back(random_extent());
    if (seed % 25 == 7) palette_[0] = long_extents[seed / 25 % std::size(long_extents)];
    main_type_ = random_type();
    for (int k = random_.between(1, 3); k > 0; --k) make_parameter(random_type(), random_shape());
    const int wanted = random_.between(options.min_operators, options.max_operators);
    for (int tries = 0; operators_ < wanted && tries < 60 * wanted; ++tries) make_operator();
    choose_outputs();
    annotate_results();
    if (options.limit_gathers) limit_gathers();
  }
  random_program(random_program&&) = default;  // the mesh points into vectors that move with it
  random_program(const random_program&) = delete;

  [[nodiscard]] bool has_clean_padding() const { return seed % 4 == 0; }
  [[nodiscard]] int device_count() const { return static_cast<int>(mesh.device_count()); }
  /// Returns the global arrays of all nodes.
  [[nodiscard]] const std::vector<host_array>& values() const { return values_; }
  [[nodiscard]] std::vector<host_array> expected_outputs() const {
    std::vector<host_array> result;
    for (const int o : g.outputs) result.push_back(values_[static_cast<std::size_t>(o)]);
    return result;
  }
  /// Returns the permitted difference from the reference for elements of node `i`. 0: the elements must be equal.
  [[nodiscard]] double tolerance(int i) const { return 2 * facts_[static_cast<std::size_t>(i)].error; }

  /// Returns the padded shard of input `i` on `device` under `layout`. The layout must be partial over the same axes as
  /// the input's annotation, apart from axes of size 1.
  [[nodiscard]] std::vector<std::byte> local_input(int i, int device, const ir::sharding& layout) const {
    const auto id = static_cast<std::size_t>(g.inputs[static_cast<std::size_t>(i)]);
    const auto at = mesh.coordinates_of(device);
    const auto& parts = parts_[static_cast<std::size_t>(i)];
    const auto& global = parts.empty()
                             ? inputs[static_cast<std::size_t>(i)]
                             : parts[static_cast<std::size_t>(ir::group_index(mesh, g.nodes[id].annotation.layout.partial, at))];
    const auto size = static_cast<std::size_t>(ir::bytes_of(global.type));
    const auto local = ir::local_extents(mesh, g.nodes[id].shape, layout);
    std::vector<std::byte> buffer(static_cast<std::size_t>(ir::elements(local)) * size);
    random_numbers garbage(seed * 1315423911u + static_cast<std::uint64_t>(device * 64 + i));
    for (std::size_t e = 0; e * size < buffer.size() && !has_clean_padding(); ++e)
      put_garbage(global.type, garbage, &buffer[e * size]);
    for_each_valid(g.nodes[id].shape, layout, at,
                   [&](std::size_t from, std::size_t to) { put(global, from, &buffer[to * size]); });
    return buffer;
  }

  /// Returns the mistake in the padded shard of output `k` on `device`, or "" if all valid elements are right.
  [[nodiscard]] std::string check_output(int k, int device, const ir::sharding& layout, std::span<const std::byte> buffer) const {
    const int id = g.outputs[static_cast<std::size_t>(k)];
    const host_array& wanted = values_[static_cast<std::size_t>(id)];
    const auto& shape = g.nodes[static_cast<std::size_t>(id)].shape;
    const auto size = static_cast<std::size_t>(ir::bytes_of(wanted.type));
    std::string wrong;
    if (layout.partial != 0) wrong = "an output is partial";
    else if (buffer.size() != static_cast<std::size_t>(ir::elements(ir::local_extents(mesh, shape, layout))) * size)
      wrong = "wrong size";
    else
      for_each_valid(shape, layout, mesh.coordinates_of(device), [&](std::size_t from, std::size_t to) {
        if (!wrong.empty()) return;
        if (wanted.floating()) {
          const auto check = [&](const std::vector<double>& parts, std::size_t at) {
            const double got = real_at(ir::part_of(wanted.type), &buffer[at]), want = parts[from];
            if (got == want || (std::isnan(got) && std::isnan(want)) || std::fabs(got - want) <= tolerance(id)) return;
            wrong = "element " + std::to_string(from) + " is " + text_of(got) + ", not " + text_of(want) + " +- " +
                    text_of(tolerance(id));
          };
          check(wanted.reals, to * size);
          if (wanted.complex()) check(wanted.imags, to * size + size / 2);
        } else {
          const auto got = integer_at(wanted.type, &buffer[to * size]);
          if (got != wanted.ints[from])
            wrong =
                "element " + std::to_string(from) + " is " + std::to_string(got) + ", not " + std::to_string(wanted.ints[from]);
        }
      });
    if (wrong.empty()) return {};
    return "seed " + std::to_string(seed) + ", output " + std::to_string(k) + " (%" + std::to_string(id) + ") on device " +
           std::to_string(device) + ": " + wrong;
  }

  [[nodiscard]] std::string sharding_text(const ir::annotation& s, int rank) const {
    std::string t = "{";
    for (int d = 0; d < rank; ++d) {
      t += d > 0 ? "," : "";
      for (const auto& use : s.layout.splits)
        if (use.dim == d) t += static_cast<char>('x' + use.axis);
      if (!s.layout.is_split(d)) t += '-';
      if ((s.open & ir::dim_bit(d)) != 0) t += '?';
    }
    t += '}';
    if (s.layout.partial != 0) {
      t += std::string(" partial ") + ir::name_of(s.layout.reduced_by) + " over ";
      for (int a = 0; a < mesh.axis_count(); ++a)
        if ((s.layout.partial & ir::axis_bit(a)) != 0) t += static_cast<char>('x' + a);
    }
    return t;
  }

  /// Returns the program as text. Mesh axes are x, y, z.
  [[nodiscard]] std::string describe() const {
    std::string t = "seed " + std::to_string(seed) + ", mesh";
    for (int a = 0; a < mesh.axis_count(); ++a)
      t += std::string(" ") + static_cast<char>('x' + a) + ":" + std::to_string(mesh.sizes[a]);
    if (mesh.order != nullptr) {
      t += ", order";
      for (const auto d : order_) t += " " + std::to_string(d);
    }
    t += '\n';
    for (std::size_t i = 0; i < g.nodes.size(); ++i) {
      const node& n = g.nodes[i];
      t += "  ";
      for (int r = n.region; r >= 0; r = g.nodes[static_cast<std::size_t>(r)].region) t += "  ";
      t += "%" + std::to_string(i) + " = " + ir::name_of(n.op);
      if (n.op == opcode::loop) t += " " + std::to_string(n.integer);
      if (n.op == gspmd::detail::code_of<gspmd::detail::reduce_op>) t += std::string(" ") + ir::name_of(n.reduced_by);
      if (n.op == code_of<map_op>)
        t += n.function == &maps::fused      ? " fused"
             : n.function == &maps::clamped  ? " clamped"
             : n.function == &maps::averaged ? " averaged"
                                             : " exclusive";
      for (const int o : n.operands) t += " %" + std::to_string(o);
      if (n.op == gspmd::detail::code_of<gspmd::detail::einsum_op>) {
        t += ' ';
        int at = 0;
        for (int k = 0; k < n.operands.count; ++k) {
          t += k > 0 ? "," : "";
          for (int d = g.nodes[static_cast<std::size_t>(n.operands[k])].shape.count; d > 0; --d)
            t += static_cast<char>(n.attributes[at++]);
        }
        t += "->";
        for (; at < n.attributes.count;) t += static_cast<char>(n.attributes[at++]);
      } else if (!n.attributes.empty()) {
        t += " dims" + std::string(ir::shape_text(n.attributes).view());
      }
      if (n.op == gspmd::detail::code_of<gspmd::detail::shift_op>) t += " by " + std::to_string(n.integer);
      if (is_mapped(n))
        for (const auto& d : ir::maps_of(n))
          t += " dim " + std::to_string(d.dim) + ": " + std::to_string(d.from_first) + " + " + std::to_string(d.from_step) +
               " t -> " + std::to_string(d.to_first) + " + " + std::to_string(d.to_step) + " t" +
               (d.beyond == gspmd::detail::continuation::round ? " round" : "");
      t += std::string(" : ") + ir::name_of(n.type) + std::string(ir::shape_text(n.shape).view());
      if (n.annotated) t += " " + sharding_text(n.annotation, n.shape.count);
      t += '\n';
    }
    t += "  return";
    for (const int o : g.outputs) t += " %" + std::to_string(o);
    return t + '\n';
  }

 private:
  using shape_list = std::vector<std::int64_t>;

  /// Bounds for a value: the permitted difference between the library and the reference, and the quantities that
  /// determine it.
  struct facts {
    double error = 0;      // 0: equal for any order of computation
    double magnitude = 0;  // of the elements, and of the sums of the absolute values of their parts
    int grid = 0;          // elements are multiples of 2^-grid; `no_grid`: no useful grid
    bool usable = true;    // finite and moderate: operators may use it
  };
  static constexpr int no_grid = 200;

  static double epsilon(dtype type) {
    if (type == dtype::bf16) return 0x1p-7;
    if (type == dtype::f16) return 0x1p-10;
    return type == dtype::f32 || type == dtype::c64 ? 0x1p-23 : 0x1p-52;
  }
  static bool fits(dtype type, double magnitude, int grid) { return std::ldexp(magnitude, grid) < 2 / epsilon(type); }
  /// Returns true if the values are moderate enough for a meaningful check.
  static bool is_tame(dtype type, const facts& f) {
    return f.magnitude <= 1e4 && f.error <= (type == dtype::bf16 ? 0.25 : type == dtype::f16 ? 0.03 : 1e-3);
  }
  /// Returns the facts of a sum or product with `terms` roundings, whose operands have the total error `error`.
  static facts rounded(dtype type, double error, double magnitude, int grid, double terms = 12) {
    if (error == 0 && (magnitude == 0 || fits(type, magnitude, grid))) return {0, magnitude, grid, true};
    return {error + terms * epsilon(type) * magnitude, magnitude, no_grid, true};
  }

  // ---- shapes, types, meshes ----
  /// Extents at which kernels change, for all widths of vectors. Some programs have one of these extents; this depends
  /// on the seed only.
  static constexpr std::int64_t long_extents[] = {31, 32, 33, 63, 64, 65, 70, 127, 128, 129, 225, 255, 256, 257, 289, 300};
  static std::size_t size_of(const shape_list& shape) {
    std::size_t n = 1;
    for (const auto e : shape) n *= static_cast<std::size_t>(e);
    return n;
  }
  std::int64_t random_extent() {
    const int kind = random_.between(0, 99);
    if (kind < 2) return 0;
    if (kind < 14) return 1;
    if (kind < 92) return random_.between(2, 7);
    return random_.one_of(std::vector<int>{8, 9, 12, 15, 16});
  }
  shape_list random_shape() {
    while (true) {
      shape_list shape;
      const int rank = random_.one_of(std::vector<int>{0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4});
      for (int d = 0; d < rank; ++d) shape.push_back(random_.one_of(palette_));
      if (size_of(shape) <= max_elements) return shape;
    }
  }
  /// Mostly one type per program, so that values can be combined.
  dtype random_type() {
    if (random_.chance(50)) return main_type_;
    const auto type = random_.one_of(std::vector<dtype>{dtype::f32, dtype::f32, dtype::f32, dtype::f32, dtype::f64, dtype::f64,
                                                        dtype::s32, dtype::s64, dtype::pred});
    // In a third of all programs, a narrow or unsigned type. This depends on the seed only.
    constexpr dtype others[] = {dtype::s8, dtype::u8, dtype::s16, dtype::u32};
    constexpr dtype doubles[] = {dtype::bf16, dtype::f16, dtype::c64, dtype::c128, dtype::bf16, dtype::c64, dtype::f16};
    if (type == dtype::f64 && seed % 3 == 2) return doubles[seed / 3 % 7];  // likewise for the other types
    if (type == dtype::s64 && seed % 6 == 5) return dtype::u64;
    return type == dtype::s32 && seed % 3 == 1 ? others[seed / 3 % 4] : type;
  }
  static ir::extents extents_of(const shape_list& shape) {
    ir::extents result;
    for (const auto e : shape) result.push_back(e);
    return result;
  }
  void make_mesh() {
    while (true) {
      mesh.sizes.clear();
      for (int a = random_.between(1, 3); a > 0; --a)
        mesh.sizes.push_back(random_.between(1, options_.devices > 4 ? options_.devices
                                                : random_.chance(15) ? std::max(4, options_.max_devices)
                                                                     : 4));
      const auto count = mesh.device_count();
      if (options_.devices != 0 ? count == options_.devices : count <= options_.max_devices && (count > 1 || random_.chance(20)))
        break;
    }
    if (!options_.permute_devices || !random_.chance(30)) return;
    const auto count = static_cast<std::size_t>(mesh.device_count());
    for (std::size_t d = 0; d < count; ++d) order_.push_back(static_cast<std::int32_t>(d));
    for (std::size_t d = count; d > 1; --d)
      std::swap(order_[d - 1], order_[static_cast<std::size_t>(random_.between(0, static_cast<int>(d) - 1))]);
    position_.resize(count);
    for (std::size_t p = 0; p < count; ++p) position_[static_cast<std::size_t>(order_[p])] = static_cast<std::int32_t>(p);
    mesh.order = order_.data();
    mesh.position = position_.data();
  }

  // ---- annotations ----
  ir::annotation random_sharding(int rank) {
    ir::annotation s;
    std::vector<int> axes;
    for (int a = 0; a < mesh.axis_count(); ++a) axes.insert(axes.begin() + random_.between(0, a), a);
    for (const int a : axes)
      if (rank > 0 && random_.chance(70)) s.layout.add_split(a, random_.between(0, rank - 1));
    if (random_.chance(40))
      for (int d = 0; d < rank; ++d)
        if (random_.chance(50)) s.open |= ir::dim_bit(d);
    return s;
  }
  void annotate_results() {
    if (!options_.annotate) return;
    for (auto& n : g.nodes)
      if (n.op != opcode::parameter && !n.annotated && random_.chance(30)) {
        n.annotated = true;
        n.annotation = random_sharding(n.shape.count);
      }
  }

  /// Uses its own random numbers, so that the program is the same as without limits.
  void limit_gathers() {
    random_numbers limits(seed + 77);
    for (auto& n : g.nodes)
      if (n.op == gspmd::detail::code_of<gspmd::detail::einsum_op> && n.operands.count == 2 && limits.chance(90)) {
        const auto& x = g.nodes[static_cast<std::size_t>(n.operands[limits.between(0, 1)])];
        n.gather_limit = ir::elements(x.shape) * ir::bytes_of(x.type) * limits.one_of(std::vector<int>{0, 0, 1, 3, 5, 7, 7}) / 8;
      }
  }

  // ---- sources ----
  int make_parameter(dtype type, const shape_list& shape) {
    const ir::region_scope outside(g, -1);
    host_array x(type, shape);
    facts f;
    if (x.floating()) {
      const bool quarters = random_.chance(60);
      for (auto* part : {&x.reals, &x.imags})
        for (auto& r : *part) r = quarters ? 0.25 * random_.between(-8, 8) : round_to(type, 4 * random_.unit() - 2);
      f = {0, 2, quarters ? 2 : no_grid, true};
    } else {
      for (auto& i : x.ints) i = small_integer(type, -4, 5);
    }
    const int id = ir::add_parameter(g, type, extents_of(shape), ir::location::current());
    parts_.emplace_back();
    node& n = g.nodes.back();
    if (options_.annotate && random_.chance(75)) {
      n.annotated = true;
      n.annotation = random_sharding(n.shape.count);
      if (options_.partial_inputs && random_.chance(40)) split_parts(n, x, f);
    }
    inputs.push_back(x);
    values_.push_back(std::move(x));
    facts_.push_back(f);
    return id;
  }

  /// Makes an input partial over axes that do not split it.
  void split_parts(node& n, const host_array& x, facts& f) {
    ir::sharding& s = n.annotation.layout;
    for (int a = 0; a < mesh.axis_count(); ++a)
      if ((s.split_axes() & ir::axis_bit(a)) == 0 && random_.chance(70)) s.partial |= ir::axis_bit(a);
    if (s.partial == 0) return;
    std::vector<monoid> kinds;
    for (const auto kind :
         {monoid::add, monoid::add, monoid::add, monoid::multiply, monoid::max, monoid::min, monoid::and_, monoid::or_})
      if (ir::is_defined(kind, x.type)) kinds.push_back(kind);
    s.reduced_by = random_.one_of(kinds);
    const auto count = static_cast<std::size_t>(mesh.size_of(s.partial));
    auto& parts = parts_.back();
    parts.assign(count, x);
    double magnitude = 0;
    for (std::size_t e = 0; e < x.size(); ++e) {
      const auto last = static_cast<std::size_t>(random_.between(0, static_cast<int>(count) - 1));  // this part has the remainder
      double sum = 0;
      for (std::size_t p = 0; p < count; ++p) {
        if (p == last) continue;
        if (x.floating()) {
          const double delta = f.grid == no_grid ? 2 * random_.unit() : 0.25 * random_.between(0, 8);
          double& own = parts[p].reals[e];
          double& rest = parts[last].reals[e];
          if (x.complex()) parts[p].imags[e] = 0;  // the last part has all of the imaginary part
          if (s.reduced_by == monoid::add) own = round_to(x.type, delta - 1), rest -= own;
          else if (s.reduced_by == monoid::multiply) own = random_.chance(50) ? -1 : 1, rest *= own;
          else own = round_to(x.type, s.reduced_by == monoid::max ? own - delta : own + delta);
          sum += std::fabs(own);
        } else {
          std::int64_t& own = parts[p].ints[e];
          std::int64_t& rest = parts[last].ints[e];
          const auto least = x.type == dtype::pred ? 0 : ir::facts_of(x.type).least;
          const auto noise = x.type == dtype::pred ? random_.between(0, 1) : random_.between(0, 7);
          switch (s.reduced_by) {
            case monoid::add:
              own = noise;
              rest = wrap_to(x.type, bits_of(rest - own));
              break;
            case monoid::multiply:
              own = noise % 2 == 0 ? wrap_to(x.type, bits_of(-1)) : 1;
              rest = wrap_to(x.type, bits_of(rest * own));
              break;
            case monoid::max: own = x.type == dtype::pred ? own & noise : std::max(own - noise, least); break;
            case monoid::min: own = x.type == dtype::pred ? own | noise : own + noise; break;
            case monoid::and_: own |= noise; break;
            case monoid::or_: own &= noise; break;
          }
        }
      }
      if (x.floating()) {
        parts[last].reals[e] = round_to(x.type, parts[last].reals[e]);
        sum += std::fabs(parts[last].reals[e]);
        magnitude = std::max(magnitude, s.reduced_by == monoid::add ? sum : 4.0);
      }
    }
    if (!x.floating()) return;
    f = s.reduced_by == monoid::add ? rounded(x.type, 0, magnitude, f.grid) : facts{0, magnitude, f.grid, true};
  }

  int make_constant(dtype type, const shape_list& shape) {
    const double real = 0.25 * random_.between(-8, 8);
    return commit(ir::add_constant(g, type, extents_of(shape), real, small_integer(type, -3, 4), ir::location::current()));
  }
  int small_integer(dtype type, int least, int most) {
    const int drawn = type == dtype::pred ? random_.between(0, 1) : random_.between(least, most);
    return type == dtype::u8 || type == dtype::u32 || type == dtype::u64 ? drawn - least : drawn;
  }
  int make_iota(dtype type, const shape_list& shape) {
    if (shape.empty() || type == dtype::pred) return make_constant(type, shape);
    return commit(ir::add_iota(g, type, extents_of(shape), random_.between(0, static_cast<int>(shape.size()) - 1),
                               ir::location::current()));
  }

  // ---- picking operands ----
  node& at(int i) { return g.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] shape_list shape_of(int i) const { return values_[static_cast<std::size_t>(i)].shape; }

  template <class Accept>
  int pick_if(Accept accept) {
    std::vector<int> found;
    for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i)
      if (facts_[static_cast<std::size_t>(i)].usable && g.is_visible(i) && accept(g.nodes[static_cast<std::size_t>(i)])) {
        found.push_back(i);
        if (2 * i >= static_cast<int>(g.nodes.size())) found.push_back(i);  // prefers later values, so that programs get deep
      }
    return found.empty() ? -1 : random_.one_of(found);
  }
  int pick() {
    return pick_if([](const node&) { return true; });
  }
  /// Returns an existing or a new value of this type and shape.
  int pick_like(dtype type, const shape_list& shape) {
    const auto wanted = extents_of(shape);
    const int old = pick_if([&](const node& n) { return n.type == type && n.shape == wanted; });
    if (old >= 0 && random_.chance(80)) return old;
    switch (random_.between(0, 3)) {
      case 0: return make_constant(type, shape);
      case 1: return make_iota(type, shape);
      case 2: return make_parameter(type, shape);
      default: {
        shape_list small;
        ir::inline_vec<std::int8_t, ir::max_rank> dims;
        for (std::size_t d = 0; d < shape.size(); ++d)
          if (random_.chance(60)) {
            small.push_back(random_.chance(25) ? 1 : shape[d]);
            dims.push_back(static_cast<std::int8_t>(d));
          }
        const int from = make_parameter(type, small);
        return commit(ir::add_broadcast(g, from, wanted, dims, ir::location::current()));
      }
    }
  }

  // ---- operators ----
  void make_operator() {
    const int x = pick();
    if (x < 0) {
      make_parameter(random_type(), random_shape());
      return;
    }
    const auto here = ir::location::current();
    const dtype type = at(x).type;
    const shape_list shape = shape_of(x);
    const auto rank = static_cast<int>(shape.size());
    if (options_.einsums > 0 && random_.chance(options_.einsums)) return make_einsum(x);
    if (options_.regions && random_.chance(depth_ == 0 ? 12 : depth_ == 1 ? 6 : 0)) return make_region();
    if (random_.chance(depth_ > 0 ? 12 : 2)) return make_row(x);
    if (options_.local_ops && random_.chance(30)) return make_local(x);
    if (options_.lookups && random_.chance(40)) return make_lookup(x);
    if (options_.shifts && random_.chance(30)) return make_shift(x);
    if (options_.stencils && random_.chance(35)) return void(make_stencil(x));
    if (options_.maps && random_.chance(40)) return make_mapped(x);
    if (options_.windows && random_.chance(65)) {
      const int kind = random_.between(0, 9);
      return kind < 5 ? make_window(x) : kind < 8 ? make_convolution(x) : make_scatter(x);
    }
    switch (random_.between(0, 23)) {
      case 0:
      case 1: make_unary(x); break;
      case 2: {
        const dtype to = random_type();
        if (ir::is_complex(type) && !ir::is_complex(to))
          commit(ir::add_elementwise(g, random_.chance(50) ? code_of<real_op> : code_of<abs_op>, {x}, here));
        else commit(ir::add_elementwise(g, code_of<cast_op>, {x}, here, to));
        break;
      }
      case 3:
      case 4:
      case 5:
      case 22:
      case 23: {
        auto op = random_.one_of(binary_operators());
        if (random_.chance(50))
          op = random_.one_of(
              std::vector<operator_code>{code_of<add_op>, code_of<add_op>, code_of<subtract_op>, code_of<multiply_op>});
        if (type == dtype::pred)
          op = random_.one_of(std::vector<operator_code>{code_of<and_op>, code_of<or_op>, code_of<max_op>, code_of<min_op>});
        if (!ir::is_defined(op, type)) break;
        const int y = random_.chance(10) ? x : pick_like(type, shape);
        if (y < 0) break;
        if (random_.chance(50)) commit(ir::add_elementwise(g, op, {x, y}, here));
        else commit(ir::add_elementwise(g, op, {y, x}, here));
        break;
      }
      case 6: {
        const operator_code op = random_.one_of(comparisons());
        if (!ir::is_defined(op, type)) break;
        const int y = pick_like(type, shape);
        if (y >= 0) commit(ir::add_elementwise(g, op, {x, y}, here));
        break;
      }
      case 7: {
        const int chooser = pick_like(dtype::pred, shape);
        const int y = pick_like(type, shape);
        if (chooser >= 0 && y >= 0) commit(ir::add_elementwise(g, code_of<where_op>, {chooser, x, y}, here));
        break;
      }
      case 8: {
        const bool floats = type == dtype::f32 || type == dtype::f64;
        if (!floats && type != dtype::s32 && type != dtype::s64 && type != dtype::pred)
          break;  // the reference has no other
                  // types
        const ir::map_function* f = type == dtype::pred ? &maps::exclusive : &maps::fused;
        if (random_.chance(40)) f = &maps::clamped;
        else if (floats && random_.chance(50)) f = &maps::averaged;
        std::vector<int> y;
        for (int k = 1; k < f->arity; ++k) y.push_back(pick_like(type, shape));
        for (const int o : y)
          if (o < 0) return;
        if (f->arity == 2) commit(ir::add_elementwise(g, code_of<map_op>, {x, y[0]}, here, type, f));
        else if (f->arity == 3) commit(ir::add_elementwise(g, code_of<map_op>, {x, y[0], y[1]}, here, type, f));
        else commit(ir::add_elementwise(g, code_of<map_op>, {x, y[0], y[1], y[2], y[3]}, here, type, f));
        break;
      }
      case 9:
      case 10:
      case 11:
      case 12: make_einsum(x); break;
      case 13:
      case 14: {
        std::vector<monoid> kinds;
        for (const auto kind : {monoid::add, monoid::add, monoid::multiply, monoid::max, monoid::min, monoid::and_, monoid::or_})
          if (ir::is_defined(kind, type)) kinds.push_back(kind);
        ir::dim_mask dims = 0;
        for (int d = 0; d < rank; ++d)
          if (random_.chance(45)) dims |= ir::dim_bit(d);
        commit(ir::add_reduce(g, x, dims, random_.one_of(kinds), here));
        break;
      }
      case 15:
      case 16: make_broadcast(x); break;
      case 17: {
        ir::inline_vec<std::int8_t, ir::max_rank> permutation;
        for (int d = 0; d < rank; ++d) permutation.insert(random_.between(0, d), static_cast<std::int8_t>(d));
        commit(ir::add_transpose(g, x, permutation, here));
        break;
      }
      case 18:
      case 19: make_reshape(x); break;
      case 20:
        if (options_.annotate && random_.chance(75)) {
          auto s = random_sharding(rank);
          for (const auto& use : s.layout.splits)
            if (random_.chance(20)) s.stages |= static_cast<std::uint64_t>(random_.between(1, 3)) << (4 * use.axis);
          commit(ir::add_reshard(g, x, s, here));
        } else {
          for (int other = 0; other < static_cast<int>(g.nodes.size()); ++other)
            if (at(other).shape == at(x).shape && other != x) {
              commit(ir::add_shard_alike(g, x, other, here));
              break;
            }
        }
        break;
      default:
        if (random_.chance(30)) make_iota(random_type(), random_shape());
        else if (inputs.size() < 5) make_parameter(random_type(), random_shape());
        break;
    }
  }

  void make_shift(int x) {
    if (at(x).shape.empty()) return;
    const int dim = random_.between(0, at(x).shape.count - 1);
    const auto size = static_cast<int>(at(x).shape[dim]);
    const int most = random_.chance(60) ? std::min(2, size) : size + 1;
    shift_somehow(x, dim, random_.between(-most, most));
  }
  /// Half of the shifts have zeros outside.
  int shift_somehow(int x, int dim, int offset) {
    const auto here = ir::location::current();
    if (random_.chance(50)) return commit(ir::add_shift(g, x, dim, offset, here));
    const auto beyond = static_cast<ir::continuation>(random_.between(0, 4));
    return commit(ir::add_shift(g, x, dim, offset, here, beyond, beyond == ir::continuation::none ? random_.between(0, 1) : 0));
  }
  /// Combines neighbours of a value along some dims, and sometimes the value itself. Returns -1 if values get too
  /// large.
  int make_stencil(int x) {
    const auto here = ir::location::current();
    const int rank = at(x).shape.count;
    if (rank == 0) return -1;
    const bool is_pred = at(x).type == dtype::pred;
    const int some_dim = random_.between(0, rank - 1);
    const bool rolls = random_.chance(25), along_one = random_.chance(40);
    int sum = random_.chance(50) ? x : -1;
    for (int k = random_.between(1, 5); k > 0; --k) {
      const int dim = along_one ? some_dim : random_.between(0, rank - 1);
      const auto size = static_cast<int>(at(x).shape[dim]);
      const int most = std::min(random_.chance(70) ? 1 : 3, size), offset = random_.between(-most, most);
      int y = rolls ? commit(ir::add_roll(g, x, offset, dim, here)) : shift_somehow(x, dim, offset);
      for (int corner = 0; corner < 2 && y >= 0 && random_.chance(35); ++corner)
        y = shift_somehow(y, random_.between(0, rank - 1), random_.between(-1, 1));
      const auto op = is_pred ? random_.one_of(std::vector<operator_code>{code_of<and_op>, code_of<or_op>})
                      : random_.chance(60) && !ir::is_complex(at(x).type)
                          ? random_.one_of(std::vector<operator_code>{code_of<max_op>, code_of<min_op>})
                          : random_.one_of(std::vector<operator_code>{code_of<add_op>, code_of<subtract_op>});
      if (y < 0) return -1;
      sum = sum < 0 ? y : commit(ir::add_elementwise(g, op, {sum, y}, here));
      if (sum < 0) return -1;
    }
    return sum;
  }
  /// Adds runs of movements too. A run becomes one movement if its intermediate values have no other users.
  void make_mapped(int x) {
    do x = mapped_somehow(x);
    while (x >= 0 && random_.chance(40));
  }
  int mapped_somehow(int x) {
    const auto here = ir::location::current();
    const ir::extents shape = at(x).shape;
    const int rank = shape.count;
    if (rank == 0 || rank > ir::max_mapped_dims) return -1;  // with more dims it is several operators
    std::vector<std::int64_t> low, high, between, start, limit, stride;
    std::vector<int> dims;
    switch (random_.between(0, 4)) {
      case 0:
        for (int d = 0; d < rank; ++d) {
          const auto size = static_cast<int>(shape[d]);
          between.push_back(random_.chance(25) ? random_.between(1, 2) : 0);
          const auto within = size == 0 ? 0 : size + (size - 1) * static_cast<int>(between.back());
          low.push_back(random_.chance(50) ? random_.between(-within, 3) : 0);
          const int left = within + static_cast<int>(low.back());
          high.push_back(random_.chance(50) ? random_.between(std::max(-left, -3), 3) : std::max(0, -left));
        }
        return commit(ir::add_pad(
            g, x, low, high, between,
            at(x).type == dtype::pred || random_.chance(50) ? random_.between(0, 1) : small_integer(at(x).type, -3, 3), here));
      case 1:
        for (int d = 0; d < rank; ++d) {
          const auto size = static_cast<int>(shape[d]);
          start.push_back(random_.chance(60) ? random_.between(0, size) : 0);
          limit.push_back(random_.chance(60) ? random_.between(static_cast<int>(start.back()), size) : size);
          stride.push_back(random_.chance(40) ? random_.between(1, 3) : 1);
        }
        return commit(ir::add_slice(g, x, start, limit, stride, here));
      case 2:
        for (int d = 0; d < rank; ++d)
          if (random_.chance(60)) dims.push_back(d);
        return commit(ir::add_flip(g, x, dims, here));
      case 3: return commit(ir::add_roll(g, x, random_.between(-12, 12), random_.between(0, rank - 1), here));
      default: {
        const int dim = random_.between(0, rank - 1);
        std::vector<int> joined{x};
        for (int k = random_.between(0, 3); k > 0; --k)
          joined.push_back(pick_if([&](const node& n) {
            if (n.type != at(x).type || n.shape.count != rank) return false;
            for (int d = 0; d < rank; ++d)
              if (d != dim && n.shape[d] != shape[d]) return false;
            return true;
          }));
        if (random_.chance(50)) std::swap(joined.front(), joined.back());
        return commit(ir::add_concatenate(g, joined, dim, here));
      }
    }
  }
  void make_window(int x) {
    const ir::extents shape = at(x).shape;
    const dtype type = at(x).type;
    if (shape.count == 0 || shape.count > ir::max_mapped_dims || ir::is_complex(type))
      return;  // with more dims it is several operators
    const auto kind =
        type == dtype::pred
            ? random_.one_of(std::vector<monoid>{monoid::and_, monoid::or_, monoid::max})
            : random_.one_of(std::vector<monoid>{monoid::add, monoid::add, monoid::max, monoid::min, monoid::multiply});
    // A window of a maximum must have an element, otherwise the result is infinite.
    const bool may_be_empty = type == dtype::pred || kind == monoid::add || kind == monoid::multiply;
    std::vector<std::int64_t> size, stride, low, high, base, dilation;
    for (int d = 0; d < shape.count; ++d) {
      const bool any = random_.chance(60);
      size.push_back(any ? random_.between(1, 4) : 1);
      stride.push_back(any && random_.chance(40) ? random_.between(1, 3) : 1);
      low.push_back(any && may_be_empty ? random_.between(-1, 3) : 0);
      high.push_back(any && may_be_empty ? random_.between(-1, 3) : 0);
      base.push_back(any && may_be_empty && random_.chance(30) ? random_.between(1, 3) : 1);
      dilation.push_back(any && random_.chance(30) ? random_.between(1, 3) : 1);
      const auto i = static_cast<std::size_t>(d);
      const ir::padded_window w{size[i], stride[i], low[i], high[i], base[i], dilation[i], false};
      if (w.outputs(shape[d]) == 0) size[i] = stride[i] = base[i] = dilation[i] = 1, low[i] = high[i] = 0;
    }
    commit(ir::add_reduce_window(g, x, {size, stride, low, high, base, dilation}, kind, ir::location::current()));
  }
  /// Adds an einsum through windows along some dims of x: forward convolutions, their gradients, and related einsums.
  void make_convolution(int x) {
    const dtype type = at(x).type;
    const ir::extents shape = at(x).shape;
    if (type == dtype::pred || ir::is_complex(type) || shape.count == 0 || shape.count > 4) return;
    ir::windowed_einsum e;
    shape_list other, result;
    double work = 1;
    const auto note = [&](int k, std::int8_t letter, std::int64_t extent) {
      auto& to = k == 1 ? other : result;
      const int place = random_.between(0, e.letters[k].count);
      e.letters[k].insert(place, letter);
      to.insert(to.begin() + place, extent);
    };
    const int windowed = random_.between(0, shape.count - 1);
    for (int d = 0; d < shape.count; ++d) {
      const auto letter = static_cast<std::int8_t>('a' + d), inner = static_cast<std::int8_t>('A' + d);
      if (e.windows.count < ir::max_windows && (d == windowed || random_.chance(30))) {
        e.letters[0].push_back(static_cast<std::int8_t>(ir::code_of_window(e.windows.count)));
        const std::int64_t outputs = random_.between(1, 9), size = random_.between(1, 4);
        const int dilation = random_.between(1, 2) * (random_.chance(30) ? -1 : 1);
        const ir::window_dim w{size, random_.chance(60) ? 1 : random_.between(2, 3), dilation,
                               random_.between(-3, 3) - (dilation < 0 ? dilation * (size - 1) : 0),
                               random_.chance(70) ? 1 : random_.between(2, 3)};
        e.windows.push_back({letter, inner, w});
        const bool is_forward = random_.chance(75);  // otherwise the gradient by the window
        note(is_forward ? 2 : 1, letter, outputs);
        note(is_forward ? 1 : 2, inner, size);
        work *= static_cast<double>(outputs * size);
      } else {
        e.letters[0].push_back(letter);
        const int kind = random_.between(0, 2);  // batch, feature, group
        if (kind != 0) note(1, letter, shape[d]);
        if (kind != 1) note(2, letter, shape[d]);
        work *= static_cast<double>(shape[d]);
      }
    }
    if (random_.chance(50) && other.size() < 4 && result.size() < 4) {
      const int features = random_.between(1, 4);
      note(1, 'z', features);
      note(2, 'z', features);
      work *= features;
    }
    if (work > 20'000 || size_of(result) > max_elements) return;
    const int w = pick_like(type, other);
    if (w >= 0) commit(ir::add_windowed_einsum(g, e, x, w, extents_of(result), ir::location::current()));
  }
  /// Adds the gradient of a maximum or minimum over windows of x.
  void make_scatter(int x) {
    const ir::extents shape = at(x).shape;
    const dtype type = at(x).type;
    if (!ir::is_floating(type) || ir::is_complex(type) || shape.count == 0 || shape.count > ir::max_mapped_dims) return;
    if (facts_[static_cast<std::size_t>(x)].error != 0) return;  // rounding would choose other elements
    ir::inline_vec<ir::windowed_dim, ir::max_mapped_dims> windows;
    shape_list brought;
    for (int d = 0; d < shape.count; ++d) {
      const ir::padded_window w{random_.between(1, 4),  random_.between(1, 3),      random_.between(-1, 2),
                                random_.between(-1, 2), random_.chance(20) ? 2 : 1, random_.chance(20) ? 2 : 1};
      if (random_.chance(40) || w.outputs(shape[d]) == 0) {
        brought.push_back(shape[d]);
        continue;
      }
      windows.push_back({d, w.window(), w.outputs(shape[d])});
      brought.push_back(w.outputs(shape[d]));
    }
    if (windows.empty() || size_of(brought) > max_elements) return;
    const int dy = pick_like(type, brought);
    const auto kind = random_.chance(70) ? monoid::max : monoid::min;
    if (dy >= 0) commit(ir::add_select_and_scatter(g, x, dy, windows, kind, ir::location::current()));
  }
  void make_local(int x) {
    namespace own = local_functions;
    const int rank = at(x).shape.count;
    if (at(x).type >= dtype::pred || rank < 1 || rank > 3) return;  // local_functions have no narrow and no unsigned types
    const ir::local_function* f = rank == 1 ? own::reversed : rank == 3 ? own::turned : own::rows_reversed;
    if (rank == 2 && random_.chance(60)) f = random_.chance(50) && ir::is_floating(at(x).type) ? own::sums : own::minima;
    if (rank == 2 && at(x).shape[0] > 0 && random_.chance(30)) f = own::copy_and_minima;
    const int id = ir::add_local_op(g, *f, std::span<const int>(&x, 1), ir::location::current());
    if (f->rule.results == 1) return void(commit(id));
    const node least = g.nodes.back();  // both or none
    g.nodes.pop_back();
    if (commit(id) < 0) return;
    g.nodes.push_back(least);
    commit(id + 1);
  }

  // ---- loops and conditionals ----
  /// Reads or writes a row, mostly at the counter of a loop.
  void make_row(int x) {
    const shape_list shape = shape_of(x);
    if (shape.empty() || shape[0] == 0) return;
    int i = pick_if([](const node& n) { return n.op == opcode::loop; });
    if (i < 0 || random_.chance(20)) i = pick_if([](const node& n) { return n.type == dtype::s64 && n.shape.count == 0; });
    if (i < 0) i = make_constant(dtype::s64, {});
    if (random_.chance(50)) {
      commit(ir::add_dynamic_index(g, x, i, ir::location::current()));
    } else {
      const int row = pick_like(at(x).type, shape_list(shape.begin() + 1, shape.end()));
      const bool adds = at(x).type != dtype::pred && random_.chance(30);
      const auto here = ir::location::current();
      if (row >= 0)
        commit(adds ? ir::add_dynamic_update<ir::add_row_op>(g, x, row, i, here)
                    : ir::add_dynamic_update<ir::set_row_op>(g, x, row, i, here));
    }
  }

  /// Accepts operator `id` and its further results, which are the nodes after it.
  void commit_all(int id) {
    if (id < 0) return;
    std::vector<node> further(g.nodes.begin() + id + 1, g.nodes.end());
    g.nodes.resize(static_cast<std::size_t>(id) + 1);
    if (commit(id) < 0) return;
    for (const node& n : further) {
      g.nodes.push_back(n);
      commit(++id);
    }
  }
  /// Sorts one tensor alone, or together with its indices, or together with these and another tensor.
  void make_sort(int x, int dim) {
    const auto here = ir::location::current();
    std::vector<int> operands{x};
    const int more = random_.between(0, 2);
    if (more > 0) operands.push_back(commit(ir::add_iota(g, dtype::s32, at(x).shape, dim, here)));
    const bool has_other = more > 1 && !ir::is_floating(at(x).type);  // a further result has no rounding of its own
    if (const int other = has_other ? pick_like(at(x).type, shape_of(x)) : -1; other >= 0) operands.push_back(other);
    const auto direction = static_cast<std::uint8_t>(random_.between(0, 1));
    if (operands.back() >= 0)
      commit_all(ir::add_sort(g, operands, dim, {static_cast<std::int8_t>(more > 0 ? 2 : 1), direction}, here));
  }

  /// Adds operators on rows by number, sums of rows, and operators along a dim.
  void make_lookup(int x) {
    namespace own = gspmd::detail;
    const auto here = ir::location::current();
    const node from = at(x);
    const int rank = from.shape.count;
    if (rank == 0) return;
    const int dim = random_.between(0, rank - 1);
    const monoid kinds[] = {from.type == dtype::pred ? monoid::or_ : monoid::add, monoid::max, monoid::min};
    const monoid drawn = kinds[random_.between(0, 2)], kind = ir::is_complex(from.type) ? monoid::add : drawn;
    const int what = random_.between(0, 4);
    if (what == 0)
      return void(commit(ir::add_scan(g, x, dim, kind, kind == monoid::add && random_.chance(50), random_.chance(50), here)));
    if (what == 1) {
      if (ir::is_complex(from.type) || facts_[static_cast<std::size_t>(x)].error != 0) return;  // rounding would change the order
      if (random_.chance(50)) return make_sort(x, dim);
      return commit_all(ir::add_top_k(g, x, random_.between(0, static_cast<int>(from.shape[rank - 1])), here));
    }
    const int i = pick_if([](const node& n) { return (n.type == dtype::s32 || n.type == dtype::s64) && n.shape.count <= 2; });
    if (i < 0 || from.shape[dim] == 0) return;
    const ir::extents at_index = at(i).shape;
    std::vector<std::int64_t> window, sizes(from.shape.begin(), from.shape.end());
    const std::vector<std::int64_t> row{dim};
    for (int d = 0; d + 1 < rank; ++d) window.push_back(d < dim ? d : d + at_index.count);
    sizes[static_cast<std::size_t>(dim)] = 1;
    ir::index_dims dims;
    dims.window = window;
    dims.collapsed = dims.cols = row;
    dims.vector_dim = at_index.count;
    const auto beyond = random_.chance(50) ? gspmd::out_of_range::clip : gspmd::out_of_range::fill;
    if (what == 2) return void(commit(ir::add_gather(g, x, i, dims, sizes, beyond, 1, here)));
    shape_list updates(from.shape.begin(), from.shape.end());
    updates.erase(updates.begin() + dim);
    updates.insert(updates.begin() + dim, at_index.begin(), at_index.end());
    const int u = pick_like(from.type, updates);
    if (u < 0) return;
    if (what == 3) commit(ir::add_scatter(g, i, u, from.shape, dims, kind, beyond, here));
    else commit(ir::add_scatter_set(g, x, i, u, dims, beyond, here));
  }

  void make_region() {
    const auto nodes = g.nodes.size();
    const auto input_count = inputs.size();
    const int operators = operators_;
    const int before = g.open_region;
    ++depth_;
    const bool made = random_.chance(60) ? make_loop() : make_cond();
    --depth_;
    g.open_region = before;
    if (made) return;
    g.nodes.resize(nodes);  // undo all changes
    values_.resize(nodes);
    facts_.resize(nodes);
    inputs.resize(input_count);
    g.inputs.resize(input_count);
    parts_.resize(input_count);
    operators_ = operators;
  }
  void make_operators(int most) {
    const int wanted = operators_ + random_.between(0, most);
    for (int tries = 0; operators_ < wanted && tries < 8 * most; ++tries) make_operator();
  }
  int note(int id, host_array v, facts f) {
    values_.push_back(std::move(v));
    facts_.push_back(f);
    return id;
  }
  int note_copy(int id, int of) {
    const auto i = static_cast<std::size_t>(of);
    return note(id, host_array(values_[i]), facts(facts_[i]));
  }

  bool make_loop() {
    const auto here = ir::location::current();
    std::vector<int> inits;
    for (int k = random_.between(1, 3); k > 0; --k)
      inits.push_back(random_.chance(15) ? make_constant(random_type(), random_shape()) : pick());
    for (const int i : inits)
      if (i < 0) return false;
    const int loop =
        note(ir::open_loop(g, random_.one_of(std::vector<int>{0, 1, 2, 2, 3, 4}), here), host_array(dtype::s64, {}), {});
    std::vector<int> carries;
    for (const int i : inits) carries.push_back(note_copy(ir::add_carry(g, i, here), i));
    make_operators(5);
    std::vector<int> nexts;
    for (const int c : carries) {
      const auto wanted = at(c).shape;
      const auto type = at(c).type;
      int next = pick_if([&](const node& n) { return n.type == type && n.shape == wanted; });
      if (options_.stencils && random_.chance(60)) next = make_stencil(random_.chance(80) ? c : carries[0]);
      if (next >= 0 && (at(next).type != type || !(at(next).shape == wanted))) next = c;
      if (!options_.stencils && type != dtype::pred && random_.chance(40)) {
        const int added = pick_like(type, shape_of(c));
        if (added >= 0) next = commit(ir::add_elementwise(g, code_of<add_op>, {c, added}, here));
      }
      if (next < 0) return false;
      nexts.push_back(next);
    }
    const int first = static_cast<int>(g.nodes.size());
    g.open_region = at(loop).region;
    for (std::size_t k = 0; k < carries.size(); ++k) note_copy(ir::add_loop_result(g, carries[k], nexts[k], here), inits[k]);
    ++operators_;
    return replay(loop, first + static_cast<int>(carries.size()));
  }

  bool make_cond() {
    const auto here = ir::location::current();
    int pred = pick_if([](const node& n) { return n.type == dtype::pred && n.shape.count == 0; });
    if (pred < 0 || random_.chance(20)) {
      const int x = pick_if([&](const node& n) { return n.shape.count == 0 && (n.op == opcode::loop || n.type == dtype::s64); });
      if (x >= 0) pred = commit(ir::add_elementwise(g, code_of<compare_lt_op>, {x, make_constant(dtype::s64, {})}, here));
      else pred = make_constant(dtype::pred, {});
    }
    if (pred < 0) return false;
    const int branch = note_marker(ir::open_branch(g, pred, here));
    make_operators(3);
    std::vector<int> on_true;
    for (int k = random_.between(1, 2); k > 0; --k) on_true.push_back(pick());
    const int otherwise = note_marker(ir::open_otherwise(g, branch, here));
    make_operators(3);
    std::vector<int> on_false;
    for (const int t : on_true) {
      if (t < 0) return false;
      const int f = pick_like(at(t).type, shape_of(t));
      if (f < 0) return false;
      on_false.push_back(f);
    }
    g.open_region = at(branch).region;
    for (std::size_t k = 0; k < on_true.size(); ++k)
      note_copy(ir::add_cond_result(g, otherwise, on_true[k], on_false[k], here), on_true[k]);
    ++operators_;
    return replay(branch, static_cast<int>(g.nodes.size()));
  }
  int note_marker(int id) { return note(id, host_array(dtype::pred, {}), {0, 0, 0, false}); }

  /// Recomputes nodes [begin, end) by the definition of loops and conditionals. Returns false if values get too large.
  bool replay(int begin, int end) {
    for (int i = begin; i < end;) {
      const node& n = at(i);
      const auto copy = [this](int to, int from) {
        values_[static_cast<std::size_t>(to)] = host_array(values_[static_cast<std::size_t>(from)]);
        facts_[static_cast<std::size_t>(to)] = facts(facts_[static_cast<std::size_t>(from)]);
      };
      if (n.op == opcode::loop) {
        int body = i + 1;
        while (at(body).op == opcode::carry && at(body).region == i) ++body;
        int first = body;
        while (at(first).op != opcode::loop_result || at(at(first).operands[0]).region != i) ++first;
        const int count = body - i - 1;
        for (int k = 0; k < count; ++k) copy(first + k, at(i + 1 + k).operands[0]);
        for (std::int64_t t = 0; t < at(i).integer; ++t) {
          values_[static_cast<std::size_t>(i)].ints[0] = t;
          for (int k = 0; k < count; ++k) copy(i + 1 + k, first + k);
          if (!replay(body, first)) return false;
          for (int k = 0; k < count; ++k) copy(first + k, at(first + k).operands[1]);
        }
        i = first + count;
      } else if (n.op == opcode::branch) {
        int otherwise = i + 1;
        while (at(otherwise).op != opcode::otherwise || at(otherwise).operands[0] != i) ++otherwise;
        int first = otherwise + 1;
        while (at(first).op != opcode::cond_result || at(first).operands[0] != otherwise) ++first;
        const bool taken = values_[static_cast<std::size_t>(n.operands[0])].ints[0] != 0;
        if (!(taken ? replay(i + 1, otherwise) : replay(otherwise + 1, first))) return false;
        int last = first;
        for (; last < static_cast<int>(g.nodes.size()) && at(last).op == opcode::cond_result && at(last).operands[0] == otherwise;
             ++last)
          copy(last, at(last).operands[taken ? 1 : 2]);
        i = last;
      } else {
        if (n.op != opcode::parameter) {
          if (!inputs_allow(n)) return false;
          host_array v = evaluate_node(g, i, values_);
          const facts f = facts_of(n, v);
          for (const auto* part : {&v.reals, &v.imags})
            for (const double r : *part)
              if (!std::isfinite(r)) return false;
          if (v.floating() && !is_tame(v.type, f)) return false;
          values_[static_cast<std::size_t>(i)] = std::move(v);
          facts_[static_cast<std::size_t>(i)] = f;
        }
        ++i;
      }
    }
    return true;
  }

  static const std::vector<operator_code>& unary_operators() {
    static const std::vector<operator_code> all = {code_of<abs_op>,     code_of<negative_op>, code_of<sign_op>,  code_of<exp_op>,
                                                   code_of<log_op>,     code_of<sqrt_op>,     code_of<rsqrt_op>, code_of<tanh_op>,
                                                   code_of<sigmoid_op>, code_of<relu_op>,     code_of<sin_op>,   code_of<cos_op>,
                                                   code_of<floor_op>,   code_of<ceil_op>,     code_of<not_op>};
    return all;
  }
  static const std::vector<operator_code>& binary_operators() {
    static const std::vector<operator_code> all = {code_of<add_op>,    code_of<subtract_op>, code_of<multiply_op>,
                                                   code_of<divide_op>, code_of<max_op>,      code_of<min_op>,
                                                   code_of<pow_op>,    code_of<and_op>,      code_of<or_op>};
    return all;
  }
  static const std::vector<operator_code>& comparisons() {
    static const std::vector<operator_code> all = {code_of<compare_eq_op>, code_of<compare_ne_op>, code_of<compare_lt_op>,
                                                   code_of<compare_le_op>, code_of<compare_gt_op>, code_of<compare_ge_op>};
    return all;
  }

  void make_unary(int x) {
    auto op = random_.one_of(unary_operators());
    if (random_.chance(40)) op = random_.chance(50) ? code_of<tanh_op> : code_of<sigmoid_op>;
    if (!ir::is_defined(op, at(x).type)) return;
    const bool of_positive = op == code_of<log_op> || op == code_of<sqrt_op> || op == code_of<rsqrt_op>;
    if (of_positive && !all(x, [](double v) { return v > 0.05; }))
      x = commit(ir::add_elementwise(g, code_of<sigmoid_op>, {x}, ir::location::current()));
    if (x >= 0) commit(ir::add_elementwise(g, op, {x}, ir::location::current()));
  }

  void make_einsum(int x) {
    const dtype type = at(x).type;
    if (type == dtype::pred) return;
    const int y = random_.chance(25) ? -1 : pick_if([&](const node& n) { return n.type == type; });
    ir::einsum_equation e;
    std::vector<std::pair<char, std::int64_t>> letters;
    for (const int o : {x, y}) {
      if (o < 0) break;
      e.operands.push_back({});
      auto& own = e.operands[e.operands.count - 1];
      for (const auto extent : shape_of(o)) {
        std::vector<char> matching;
        if (o == y && e.operands.count == 2)
          for (const auto& [letter, size] : letters)
            if (size == extent && !ir::holds(own, letter) && ir::holds(e.operands[0], letter)) matching.push_back(letter);
        if (!matching.empty() && random_.chance(75)) {
          own.push_back(random_.one_of(matching));
        } else {
          letters.emplace_back(static_cast<char>((random_.chance(50) ? 'a' : 'A') + static_cast<int>(letters.size())), extent);
          own.push_back(letters.back().first);
        }
      }
    }
    for (const auto& letter : letters)
      if (random_.chance(60) && e.result.count < 4) e.result.insert(random_.between(0, e.result.count), letter.first);
    double work = 1;
    for (const auto& letter : letters) work *= static_cast<double>(letter.second);
    if (work > 100'000) return;
    if (y < 0) commit(ir::add_einsum(g, e, {x}, ir::location::current()));
    else commit(ir::add_einsum(g, e, {x, y}, ir::location::current()));
  }

  void make_broadcast(int x) {
    shape_list shape;
    ir::inline_vec<std::int8_t, ir::max_rank> dims;
    const auto insert_dims = [&] {
      while (random_.chance(35) && shape.size() < 4) shape.push_back(random_.one_of(palette_));
    };
    for (const auto extent : shape_of(x)) {
      insert_dims();
      dims.push_back(static_cast<std::int8_t>(shape.size()));
      shape.push_back(extent == 1 && random_.chance(60) ? random_.one_of(palette_) : extent);
    }
    insert_dims();
    if (shape.size() > 5 || size_of(shape) > max_elements) return;
    commit(ir::add_broadcast(g, x, extents_of(shape), dims, ir::location::current()));
  }

  void make_reshape(int x) {
    shape_list shape = shape_of(x);
    auto rest = static_cast<std::int64_t>(values_[static_cast<std::size_t>(x)].size());
    switch (random_.between(0, 3)) {
      case 0:  // merges neighbours
        if (shape.size() >= 2) {
          const auto d = random_.between(0, static_cast<int>(shape.size()) - 2);
          shape[static_cast<std::size_t>(d)] *= shape[static_cast<std::size_t>(d) + 1];
          shape.erase(shape.begin() + d + 1);
        }
        break;
      case 1:  // splits one dim
        if (!shape.empty() && shape.size() < 5) {
          const auto d = random_.between(0, static_cast<int>(shape.size()) - 1);
          auto& extent = shape[static_cast<std::size_t>(d)];
          std::vector<std::int64_t> divisors;
          for (std::int64_t k = 1; k <= extent; ++k)
            if (extent % k == 0) divisors.push_back(k);
          if (divisors.empty()) break;
          const auto inner = random_.one_of(divisors);
          extent /= inner;
          shape.insert(shape.begin() + d + 1, inner);
        }
        break;
      case 2:  // adds and removes dims of one element
        for (std::size_t d = 0; d < shape.size();) {
          if (shape[d] == 1 && random_.chance(50)) shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(d));
          else ++d;
        }
        if (shape.size() < 4) shape.insert(shape.begin() + random_.between(0, static_cast<int>(shape.size())), 1);
        break;
      default:  // any shape with this number of elements
        if (rest == 0) {
          for (std::size_t d = shape.size(); d > 1; --d)
            std::swap(shape[d - 1], shape[static_cast<std::size_t>(random_.between(0, static_cast<int>(d) - 1))]);
          break;
        }
        shape.clear();
        for (std::int64_t prime = 2; rest > 1; ++prime)
          for (; rest % prime == 0; rest /= prime) {
            if (shape.size() < 4 && random_.chance(50))
              shape.insert(shape.begin() + random_.between(0, static_cast<int>(shape.size())), prime);
            else if (!shape.empty())
              shape[static_cast<std::size_t>(random_.between(0, static_cast<int>(shape.size()) - 1))] *= prime;
            else shape.push_back(prime);
          }
    }
    commit(ir::add_reshape(g, x, extents_of(shape), ir::location::current()));
  }

  // ---- accepting a node ----
  /// Evaluates the node that was just added. Removes it if its values are too large or its result depends on rounding.
  /// Returns its number, or -1.
  int commit(int id) {
    if (id < 0) return -1;
    const node n = g.nodes.back();
    facts f;
    bool accepted = ir::elements(n.shape) <= static_cast<std::int64_t>(max_elements) && inputs_allow(n);
    if (accepted) {
      values_.push_back(evaluate_node(g, id, values_));
      const host_array& v = values_.back();
      f = facts_of(n, v);
      bool finite = true;
      for (const auto* part : {&v.reals, &v.imags})
        for (const double r : *part) finite = finite && std::isfinite(r);
      if (!finite) {  // the maximum of no elements: it may be returned, but no operator uses it
        accepted = n.op == gspmd::detail::code_of<gspmd::detail::reduce_op> &&
                   (n.reduced_by == monoid::max || n.reduced_by == monoid::min);
        f = {0, 0, 0, false};
      } else if (v.floating()) {
        accepted = is_tame(v.type, f);
      }
      if (!accepted) values_.pop_back();
    }
    if (!accepted) {
      g.nodes.pop_back();
      return -1;
    }
    facts_.push_back(f);
    if (!n.operands.empty()) ++operators_;
    return id;
  }

  [[nodiscard]] bool all(int i, bool (*holds)(double)) const {
    for (const double x : values_[static_cast<std::size_t>(i)].reals)
      if (!holds(x)) return false;
    return true;
  }
  /// Returns true if the operator is defined and smooth on these operands.
  [[nodiscard]] bool inputs_allow(const node& n) const {
    if (n.operands.empty()) return true;
    const int a = n.operands[0];
    const int b = n.operands[n.operands.count - 1];
    const auto& x = values_[static_cast<std::size_t>(a)];
    const auto& y = values_[static_cast<std::size_t>(b)];
    const auto exact = [&](int i) { return facts_[static_cast<std::size_t>(i)].error == 0; };
    if (!ir::is_elementwise(n.op)) return true;
    switch (n.op.id) {
      case operator_id<sign_op>:
      case operator_id<floor_op>:
      case operator_id<ceil_op>: return exact(a);
      case operator_id<exp_op>: return !x.complex() && all(a, [](double v) { return v < 6; });
      case operator_id<log_op>:
      case operator_id<sqrt_op>:
      case operator_id<rsqrt_op>: return all(a, [](double v) { return v > 0.05; });
      case operator_id<divide_op>: return !y.complex() && (!y.floating() || all(b, [](double v) { return std::fabs(v) > 0.1; }));
      case operator_id<pow_op>:
        return !x.floating() ||
               (all(a, [](double v) { return v > 0.1 && v < 8; }) && all(b, [](double v) { return std::fabs(v) <= 3; }));
      case operator_id<cast_op>:
        if (x.floating()) return ir::is_floating(n.type) || exact(a);
        if (ir::is_floating(n.type))
          for (const auto i : x.ints)
            if (i > 10000 || i < -10000) return false;
        return true;
      case operator_id<abs_op>:
      case operator_id<negative_op>:
      case operator_id<tanh_op>:
      case operator_id<sigmoid_op>:
      case operator_id<relu_op>:
      case operator_id<sin_op>:
      case operator_id<cos_op>:
      case operator_id<not_op>:
      case operator_id<real_op>:
      case operator_id<imag_op>:
      case operator_id<conj_op>:
      case operator_id<complex_op>:
      case operator_id<stop_gradient_op>:
      case operator_id<add_op>:
      case operator_id<subtract_op>:
      case operator_id<multiply_op>:
      case operator_id<max_op>:
      case operator_id<min_op>:
      case operator_id<and_op>:
      case operator_id<or_op>:
      case operator_id<xor_op>:
      case operator_id<where_op>:
      case operator_id<map_op>: return true;
      default:
        if (!ir::is_compare(n.op)) reference::refuse(n.op);
        return exact(a) && exact(b);
    }
  }

  [[nodiscard]] facts facts_of(const node& n, const host_array& v) const {
    if (!v.floating()) return {};
    std::vector<facts> x;
    double worst = 0;  // error, magnitude and grid of the worst operand
    double largest = 0;
    int finest = 0;
    for (const int o : n.operands) {
      x.push_back(facts_[static_cast<std::size_t>(o)]);
      worst = std::max(worst, x.back().error);
      largest = std::max(largest, x.back().magnitude);
      finest = std::max(finest, x.back().grid);
    }
    double own = 0;  // the largest element
    for (const auto* part : {&v.reals, &v.imags})
      for (const double r : *part) own = std::max(own, std::fabs(r));
    const auto smallest = [&](int k) {
      double low = std::numeric_limits<double>::infinity();
      for (const double r : values_[static_cast<std::size_t>(n.operands[k])].reals) low = std::min(low, std::fabs(r));
      return std::max(low - x[static_cast<std::size_t>(k)].error, 1e-3);
    };
    const auto function = [&](double slope) {  // with the accuracy of a math library
      return facts{slope * worst + 16 * epsilon(n.type) * std::max(1.0, std::max(own, slope)), std::max(own, 1.0), no_grid, true};
    };
    const auto product = [&](double terms) {
      if (v.complex()) terms *= 2;
      const double magnitude = terms * x[0].magnitude * x[1].magnitude;
      const double error = terms * (x[0].error * x[1].magnitude + x[1].error * x[0].magnitude + x[0].error * x[1].error);
      return rounded(n.type, error, magnitude, std::min(x[0].grid + x[1].grid, no_grid), terms + 12);
    };
    if (n.op == ir::code_of<ir::local_operator>) {
      const double terms = terms_of(n, v);
      if (n.local == local_functions::sums) return rounded(n.type, terms * worst, terms * largest, finest, terms + 12);
      return {worst, std::max(largest, own), finest, true};
    }
    if (n.op == ir::code_of<ir::reduce_op> || n.op == ir::code_of<ir::reduce_window_op>) {
      const double terms = terms_of(n, v);
      if (n.reduced_by == monoid::add) return rounded(n.type, terms * worst, terms * largest, finest, terms + 12);
      if (n.reduced_by != monoid::multiply) return {worst, std::max(largest, own), finest, true};
      const double base = std::max(1.0, largest);
      const double magnitude = std::pow(base, terms);
      return rounded(n.type, terms * worst * magnitude, magnitude, static_cast<int>(std::min(terms * finest, 1.0 * no_grid)),
                     terms + 12);
    }
    if (n.op == ir::code_of<ir::scan_op> || n.op == ir::code_of<ir::scatter_op>) {
      const double terms = static_cast<double>(values_[static_cast<std::size_t>(n.operands[n.operands.count - 1])].size() + 1);
      if (n.reduced_by == monoid::add) return rounded(n.type, terms * worst, terms * largest, finest, terms + 12);
      return {worst, std::max(largest, own), finest, true};
    }
    if (n.op == ir::code_of<ir::gather_op> || n.op == ir::code_of<ir::scatter_set_op>)
      return {worst, std::max(largest, own), finest, true};
    if (n.op == ir::code_of<ir::convolution_op>) return product(terms_of(n, v));
    if (n.op == ir::code_of<ir::select_and_scatter_op>) {
      const double terms = terms_of(n, v);
      return rounded(n.type, terms * x[1].error, terms * x[1].magnitude, x[1].grid, terms + 12);
    }
    if (n.op == ir::code_of<ir::add_row_op>)
      return rounded(n.type, x[0].error + x[1].error, x[0].magnitude + x[1].magnitude, finest);
    if (n.op == ir::code_of<ir::pad_op>) return {worst, std::max(largest, own), finest, true};
    if (n.op == ir::code_of<ir::einsum_op>) {
      const double terms = terms_of(n, v);
      if (n.operands.count == 2) return product(terms);
      return rounded(n.type, terms * worst, terms * largest, finest, terms + 12);
    }
    if (n.op == opcode::constant) return {0, own, 2, true};
    if (n.op == opcode::iota) return {0, own, 0, true};
    const facts moved{worst, largest, finest, true};  // moves, chooses or changes signs
    if (!ir::is_elementwise(n.op)) return moved;
    switch (n.op.id) {
      case operator_id<sign_op>:
      case operator_id<floor_op>:
      case operator_id<ceil_op>: return {0, own, 0, true};
      case operator_id<exp_op>: return function(own * 1.1);
      case operator_id<log_op>: return function(1 / smallest(0));
      case operator_id<sqrt_op>: return function(0.5 / std::sqrt(smallest(0)));
      case operator_id<rsqrt_op>: return function(0.5 / std::pow(smallest(0), 1.5));
      case operator_id<abs_op>: {
        if (!values_[static_cast<std::size_t>(n.operands[0])].complex()) return {worst, largest, finest, true};
        const facts f = function(1);
        return {f.error + worst, std::max(f.magnitude, 2 * largest), no_grid, true};
      }
      case operator_id<tanh_op>:
      case operator_id<sigmoid_op>:
      case operator_id<sin_op>:
      case operator_id<cos_op>: return function(1);
      case operator_id<pow_op>: return function(8 * std::max(own, 1.0) * (1 + 3 / smallest(0)));
      case operator_id<cast_op>:
        if (n.operands.count == 1 && !values_[static_cast<std::size_t>(n.operands[0])].floating()) return {0, own, 0, true};
        if (n.type == dtype::f64 || n.type == dtype::c128) return x[0];
        return rounded(n.type, x[0].error, x[0].magnitude, x[0].grid);
      case operator_id<add_op>:
      case operator_id<subtract_op>: return rounded(n.type, x[0].error + x[1].error, x[0].magnitude + x[1].magnitude, finest);
      case operator_id<multiply_op>: return product(1);
      case operator_id<divide_op>: {
        const double low = smallest(1);
        return rounded(n.type, x[0].error / low + x[1].error * x[0].magnitude / (low * low), std::max(own, x[0].magnitude / low),
                       no_grid);
      }
      case operator_id<map_op>: {
        if (n.function == &maps::clamped) return {worst, largest, finest, true};
        if (n.function == &maps::averaged) return rounded(n.type, 2 * worst, 5 * largest, finest + 2);
        const facts p = product(1);
        return rounded(n.type, p.error + x[0].error, p.magnitude + x[0].magnitude, std::max(p.grid, x[0].grid));
      }
      case operator_id<negative_op>:
      case operator_id<relu_op>:
      case operator_id<real_op>:
      case operator_id<imag_op>:
      case operator_id<conj_op>:
      case operator_id<complex_op>:
      case operator_id<stop_gradient_op>:
      case operator_id<max_op>:
      case operator_id<min_op>:
      case operator_id<where_op>: return moved;
      default: reference::refuse(n.op);
    }
  }
  /// Returns the number of elements that a reduction or einsum combines to one element.
  [[nodiscard]] double terms_of(const node& n, const host_array& v) const {
    if (v.size() == 0) return 0;
    double all_terms = 1;
    if (n.op == ir::code_of<ir::convolution_op>) {  // the letters of both operands that the result lacks
      const auto e = ir::windowed_einsum_of(g, n);
      const auto extent = ir::global_extents(g, n, e);
      std::vector<int> summed;
      for (int k = 0; k < 2; ++k)
        for (const int letter : e.letters[k])
          if (!ir::is_window(letter) && ir::place_of(e.letters[2], letter) < 0 &&
              std::find(summed.begin(), summed.end(), letter) == summed.end()) {
            summed.push_back(letter);
            all_terms *= static_cast<double>(extent[letter]);
          }
      return all_terms;
    }
    if (n.op == ir::code_of<ir::reduce_window_op> || n.op == ir::code_of<ir::select_and_scatter_op>) {
      for (const auto& along : ir::windows_of(n)) all_terms *= static_cast<double>(along.window.size);
      return all_terms;
    }
    std::vector<int> listed;
    int letter = 0;
    for (const int o : n.operands)
      for (const auto extent : values_[static_cast<std::size_t>(o)].shape) {
        const int name =
            n.op == gspmd::detail::code_of<gspmd::detail::einsum_op> ? static_cast<int>(n.attributes[letter]) : letter;
        ++letter;
        if (std::find(listed.begin(), listed.end(), name) != listed.end()) continue;
        listed.push_back(name);
        all_terms *= static_cast<double>(extent);
      }
    return all_terms / static_cast<double>(v.size());
  }

  void choose_outputs() {
    std::vector<bool> used(g.nodes.size(), false);
    for (const auto& n : g.nodes)
      for (const int o : n.operands) used[static_cast<std::size_t>(o)] = true;
    std::vector<int> sinks;
    for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i)
      if (!used[static_cast<std::size_t>(i)] && !at(i).operands.empty() && is_value(i)) sinks.push_back(i);
    if (!sinks.empty()) g.outputs.push_back(sinks.back());
    for (const int s : sinks)
      if (s != sinks.back() && random_.chance(60)) g.outputs.push_back(s);
    while (g.outputs.empty() || (random_.chance(30) && g.outputs.size() < 4))  // any value, maybe an input, maybe repeated
      if (const int i = random_.between(0, static_cast<int>(g.nodes.size()) - 1); is_value(i)) g.outputs.push_back(i);
  }
  /// Returns true for a node that is a value of the program, not of a body or a mark.
  [[nodiscard]] bool is_value(int i) const {
    const operator_code op = g.nodes[static_cast<std::size_t>(i)].op;
    return g.is_visible(i) && op != opcode::branch && op != opcode::otherwise && op != opcode::loop;
  }

  // ---- buffers ----
  /// Calls `visit(global offset, local offset)` for every valid element of a device.
  template <class Visit>
  void for_each_valid(const ir::extents& global, const ir::sharding& layout, const ir::coordinates& where, Visit visit) const {
    const auto local = ir::local_extents(mesh, global, layout);
    const shape_list global_shape(global.begin(), global.end());
    const shape_list local_shape(local.begin(), local.end());
    shape_list sizes;
    shape_list begins;
    for (int d = 0; d < global.count; ++d) {
      const auto range = ir::dim_range(mesh, global, layout, d, where);
      sizes.push_back(range.size());
      begins.push_back(range.begin);
    }
    for_each_index(sizes, [&](const index& i) {
      index there = i;
      for (std::size_t d = 0; d < there.size(); ++d) there[d] += begins[d];
      visit(offset_of(there, global_shape), offset_of(i, local_shape));
    });
  }

  template <class T>
  static void store(T x, std::byte* to) {
    std::memcpy(to, &x, sizeof x);
  }
  template <class T>
  static T load(const std::byte* from) {
    T x;
    std::memcpy(&x, from, sizeof x);
    return x;
  }
  static void put(const host_array& x, std::size_t e, std::byte* to) {
    switch (x.type) {
      case dtype::f32: store(static_cast<float>(x.reals[e]), to); break;
      case dtype::f64: store(x.reals[e], to); break;
      case dtype::bf16: store(gspmd::bf16(x.reals[e]), to); break;
      case dtype::f16: store(gspmd::f16(x.reals[e]), to); break;
      case dtype::c64:
        store(static_cast<float>(x.reals[e]), to);
        store(static_cast<float>(x.imags[e]), to + 4);
        break;
      case dtype::c128:
        store(x.reals[e], to);
        store(x.imags[e], to + 8);
        break;
      case dtype::s32: store(static_cast<std::int32_t>(x.ints[e]), to); break;
      case dtype::s64: store(x.ints[e], to); break;
      default:
        for (std::int64_t b = 0; b < ir::bytes_of(x.type); ++b) to[b] = static_cast<std::byte>(x.ints[e] >> (8 * b));
    }
  }
  /// Writes a value that padding can hold. A bool other than 0 and 1 is not valid in C++, so a bool is random.
  static void put_garbage(dtype type, random_numbers& random, std::byte* to) {
    const int kind = random.between(0, 3);
    if (type == dtype::pred) {
      *to = static_cast<std::byte>(kind % 2);
      return;
    }
    std::memset(to, kind == 0 ? 0 : 0x7f, static_cast<std::size_t>(ir::bytes_of(type)));
    if (kind < 2) return;
    if (type == dtype::f32 || type == dtype::c64) store(std::numeric_limits<float>::quiet_NaN(), to);
    if (type == dtype::f64 || type == dtype::c128) store(std::numeric_limits<double>::quiet_NaN(), to);
    if (type == dtype::bf16) store(std::numeric_limits<gspmd::bf16>::quiet_NaN(), to);
    if (type == dtype::f16) store(std::numeric_limits<gspmd::f16>::quiet_NaN(), to);
  }
  static double real_at(dtype type, const std::byte* from) {
    if (type == dtype::bf16) return static_cast<double>(static_cast<float>(load<gspmd::bf16>(from)));
    if (type == dtype::f16) return static_cast<double>(static_cast<float>(load<gspmd::f16>(from)));
    return type == dtype::f32 ? static_cast<double>(load<float>(from)) : load<double>(from);
  }
  static std::int64_t integer_at(dtype type, const std::byte* from) {
    switch (type) {
      case dtype::s32: return load<std::int32_t>(from);
      case dtype::s64:
      case dtype::u64: return load<std::int64_t>(from);
      case dtype::s8: return load<std::int8_t>(from);
      case dtype::s16: return load<std::int16_t>(from);
      case dtype::u32: return load<std::uint32_t>(from);
      default: return static_cast<std::int64_t>(*from);
    }
  }
  static std::string text_of(double x) {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.17g", x);
    return digits;
  }

  static constexpr std::size_t max_elements = 2500;

  random_numbers random_;
  random_options options_;
  int operators_ = 0;
  int depth_ = 0;                      // number of open bodies
  std::vector<std::int64_t> palette_;  // the extents of the program
  dtype main_type_ = dtype::f32;
  std::vector<std::int32_t> order_, position_;
  std::vector<host_array> values_;              // by node
  std::vector<facts> facts_;                    // by node
  std::vector<std::vector<host_array>> parts_;  // by input; empty: the input is not partial
};

}  // namespace reference
