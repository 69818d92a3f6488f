// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/dynamic/placed_tensor.hpp"
#include "gspmd/error.hpp"
#include "gspmd/io/detail/stored_array.hpp"
#include "gspmd/program/array.hpp"
#include "gspmd/program/shard_view.hpp"
#include "gspmd/program/sharded_array.hpp"
#include "gspmd/program/tree.hpp"

namespace gspmd {
namespace detail {

template <class T>
inline constexpr bool is_whole_array = false;
template <class T>
inline constexpr bool is_whole_array<array<T>> = true;

inline std::vector<std::int64_t> as_vector(const extents& e) { return {e.begin(), e.end()}; }

inline stored_box box_on(const mesh_shape& mesh, const extents& global, const sharding& layout, std::int64_t device) {
  const auto held = ranges_of(mesh, global, layout, mesh.coordinates_of(device));
  stored_box box;
  for (int d = 0; d < held.rank; ++d) {
    box.offset.push_back(held.begin[d]);
    box.size.push_back(held.end[d] - held.begin[d]);
  }
  return box;
}

/// Describes an array for a file. `names` has the names of the mesh axes. If it is null, axes are numbers.
inline stored_array as_stored(dtype type, const extents& global, const mesh_shape& mesh, const sharding& layout,
                              const mesh_info* names) {
  stored_array a;
  a.type = type;
  a.global = as_vector(global);
  a.local = as_vector(local_extents(mesh, global, layout));
  a.devices = mesh.device_count();
  a.is_partial = layout.partial != 0;
  a.box_of = [&mesh, global, layout](std::int64_t device) { return box_on(mesh, global, layout, device); };
  a.sharding.resize(a.global.size());
  for (const auto& use : layout.splits) {
    auto& axes = a.sharding[static_cast<std::size_t>(use.dim)];
    axes += (axes.empty() ? "" : ",") + (names != nullptr ? std::string(names->name(use.axis)) : std::to_string(use.axis));
  }
  return a;
}

/// Describes an array that each device holds whole.
inline stored_array as_stored(dtype type, const extents& whole) {
  stored_array a;
  a.type = type;
  a.global = a.local = as_vector(whole);
  a.is_whole = true;
  a.sharding.resize(a.global.size());
  a.box_of = [whole](std::int64_t) { return box_on({}, whole, {}, 0); };
  return a;
}

inline stored_array as_stored(const dynamic::placed_tensor& where) {
  stored_array a;
  a.type = where.type();
  a.global = where.global_shape();
  a.local = where.local_shape();
  a.devices = where.device_count();
  a.sharding = where.sharding();
  a.is_partial = !where.partial_axes().empty();
  a.box_of = [where](std::int64_t device) {
    stored_box box;
    for (int d = 0; d < where.rank(); ++d) {
      const auto range = where.valid_range(device, along(d));
      box.offset.push_back(range.begin);
      box.size.push_back(range.size());
    }
    return box;
  };
  return a;
}

}  // namespace detail

/// Sharded arrays with names, which are saved to a file and loaded from it together: `checkpoint`, `save_safetensors`.
///
/// named_arrays refers to the arrays and does not own them. The array objects must exist at the same addresses when
/// they are saved or loaded. Their contents may be swapped or moved in between.
///
/// **Example.**
///
///     named_arrays model;
///     model.add("embedding", table);
///     model.add("layers", layers);      // a vector of structs: layers.0.w1, layers.0.b1, layers.1.w1, ...
///     load_safetensors(comm, "model.safetensors", model);
class named_arrays {
 public:
  /// Adds an array under a name. `tree` is one of:
  ///  * a sharded_array, or a shard_view of your own memory
  ///  * a number or an array; each device holds it whole
  ///  * a group: a tuple, a vector, or a struct. Its members are named `name.member` or `name.0`.
  ///
  /// A const array can be saved and not restored.
  template <class Tree>
  void add(const std::string& name, Tree& tree) {
    using plain = std::remove_cv_t<Tree>;
    if constexpr (detail::is_element<plain> || detail::is_whole_array<plain> || detail::is_sharded_array<plain>) {
      entries_.push_back({name, [&tree] { return describe(tree); }});
    } else if constexpr (detail::is_shard<plain>) {
      entries_.push_back({name, [tree] { return describe(tree); }});
    } else if constexpr (detail::is_tuple<plain>) {
      [&]<std::size_t... K>(std::index_sequence<K...>) {
        (add(name + '.' + std::to_string(K), detail::part<K>(tree)), ...);
      }(std::make_index_sequence<detail::part_count<plain>()>{});
    } else if constexpr (detail::is_list<plain>) {
      for (std::size_t k = 0; k < tree.size(); ++k) add(name + '.' + std::to_string(k), tree[k]);
    } else if constexpr (detail::user_struct<plain>) {
      [&]<std::size_t... K>(std::index_sequence<K...>) {
        (add(name + '.' + detail::struct_members<plain>::template name<K>, detail::part<K>(tree)), ...);
      }(std::make_index_sequence<detail::part_count<plain>()>{});
    } else {
      static_assert(detail::is_sharded_array<plain>,
                    "gspmd: add takes a sharded_array, a shard_view, an array, a number or a group of them; bring a "
                    "placed_array to a sharded_array by to_step");
    }
  }
  template <class T, class Mesh, class Dims, class Split>
  void add(const std::string& name, const shard_view<T, Mesh, Dims, Split>&& view) {
    add(name, view);
  }
  /// Adds an input or output of a program planned at run time. `shards` are the shards of the devices of this process,
  /// in your own memory.
  ///
  /// **Example.**
  ///
  ///     state.add("u", program.input(0), {u.data()});
  void add(const std::string& name, const dynamic::placed_tensor& where, std::vector<void*> shards) {
    entries_.push_back({name, [where, shards = std::move(shards)] {
                          auto a = detail::as_stored(where);
                          for (auto* shard : shards) a.shards.push_back(static_cast<std::byte*>(shard));
                          return a;
                        }});
  }

  /// Returns the arrays with their current addresses, for code that writes and reads files.
  ///
  /// **Errors.** Throws gspmd::error with the name of the array, for example if an array is empty.
  [[nodiscard]] std::vector<detail::stored_array> described() const {
    std::vector<detail::stored_array> arrays;
    for (const auto& e : entries_) {
      try {
        arrays.push_back(e.describe());
      } catch (const error& failure) {
        throw error('`' + e.name + "`: " + failure.text());
      }
      arrays.back().name = e.name;
    }
    return arrays;
  }

 private:
  struct entry {
    std::string name;
    std::function<detail::stored_array()> describe;
  };

  template <class T>
  static std::byte* bytes_at(T* data) {
    return reinterpret_cast<std::byte*>(const_cast<std::remove_const_t<T>*>(data));
  }
  template <class Array>
  static detail::stored_array describe(Array& array) {
    using plain = std::remove_cv_t<Array>;
    if constexpr (detail::is_element<plain>) {
      auto a = detail::as_stored(detail::dtype_of<plain>(), detail::extents{});
      a.is_constant = std::is_const_v<Array>;
      a.shards.push_back(bytes_at(&array));
      return a;
    } else if constexpr (detail::is_whole_array<plain>) {
      if (array.size() != detail::elements(array.shape()))
        throw error("array: it is empty, never filled or moved from; make it with its shape");
      auto a = detail::as_stored(detail::dtype_of<std::remove_cvref_t<decltype(*array.data())>>(), array.shape());
      a.is_constant = std::is_const_v<Array>;
      a.shards.push_back(bytes_at(array.data()));
      return a;
    } else if constexpr (detail::is_shard<plain>) {
      using element = std::remove_cvref_t<decltype(*array.data())>;
      auto a = detail::as_stored(detail::dtype_of<element>(), Array::global_extents, Array::mesh_type::info.shape, Array::layout,
                                 &Array::mesh_type::info);
      a.is_constant = std::is_const_v<std::remove_reference_t<decltype(*array.data())>>;
      a.shards.push_back(bytes_at(array.data()));
      return a;
    } else {
      const auto& value = array.planned();
      auto a = detail::as_stored(detail::dtype_of<typename Array::element>(), value.global, array.mesh(), value.layout, nullptr);
      a.is_constant = std::is_const_v<Array>;
      for (int i = 0; i < array.local_count(); ++i) a.shards.push_back(bytes_at(array.data(i)));
      return a;
    }
  }

  std::vector<entry> entries_;
};

/// The array of a file that holds a single array. It converts from the arrays that named_arrays::add takes: a
/// sharded_array, a shard_view, a number or an array. It also converts from a tensor of a program planned at run time
/// with the shards of this process.
///
/// **Example.**
///
///     save_npy(comm, "u.npy", u);
///     save_npy(comm, "u.npy", {program.output(0), {u.data()}});
class one_array {
 public:
  template <class Array>
    requires(!std::is_same_v<std::remove_cvref_t<Array>, one_array>)
  one_array(Array&& array) {
    using plain = std::remove_cvref_t<Array>;
    static_assert(
        detail::is_element<plain> || detail::is_whole_array<plain> || detail::is_sharded_array<plain> || detail::is_shard<plain>,
        "gspmd: this file holds one array: give a sharded_array, a shard_view, an array or a number");
    list_.add("array", array);
  }
  one_array(const dynamic::placed_tensor& where, std::vector<void*> shards) { list_.add("array", where, std::move(shards)); }

  [[nodiscard]] const named_arrays& list() const { return list_; }

 private:
  named_arrays list_;
};

}  // namespace gspmd
