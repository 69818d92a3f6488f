// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <type_traits>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/ir/same_tiles.hpp"
#include "gspmd/detail/support/text.hpp"
#include "gspmd/detail/transport/communicator.hpp"
#include "gspmd/error.hpp"
#include "gspmd/program/row_major.hpp"

/// Checks of the tensors that a caller passes to a program planned at run time, with the texts of their errors.
namespace gspmd::detail {

/// Returns the name of a leaf in messages: `input 1 (w1)`, `output 0`. Leaves are numbered inputs first.
[[gnu::cold]] inline std::string words_of_leaf(const plan_view& plan, std::size_t leaf) {
  const auto inputs = plan.inputs.size();
  if (leaf >= inputs) return "output " + std::to_string(leaf - inputs);
  const auto& v = plan.value(plan.inputs[leaf]);
  const char* const name = plan.nodes[static_cast<std::size_t>(v.node)].at.name();
  return "input " + std::to_string(leaf) + (*name == '\0' ? "" : " (" + std::string(name) + ')');
}
/// Returns a tensor's type and shape in messages: `f32[4,6]`.
[[gnu::cold]] inline std::string words_of_tensor(dtype type, const extents& shape) {
  return name_of(type) + std::string(shape_text(shape).view());
}
inline const planned_value& leaf_of(const plan_view& plan, std::size_t leaf) {
  const auto inputs = plan.inputs.size();
  return plan.value(leaf < inputs ? plan.inputs[leaf] : plan.outputs[leaf - inputs]);
}

/// The known facts about a user-provided tensor.
struct given_tensor {
  dtype type;
  std::optional<extents> shape;
  std::int64_t elems = -1;  // -1: unknown, for a pointer

  template <class Leaf>
  given_tensor(dtype t, const Leaf& leaf) : type(t), shape(known_extents(leaf)) {
    if (shape) elems = elements(*shape);
    else if constexpr (std::is_array_v<Leaf>) elems = static_cast<std::int64_t>(flat_array<Leaf>::size());
    else if constexpr (!std::is_pointer_v<Leaf>) elems = static_cast<std::int64_t>(std::size(leaf));
  }

  /// Returns true if it may be a tensor of this type and shape. A tensor with one dim is a row of elements and fits any
  /// shape.
  [[nodiscard]] bool fits(dtype wanted, const extents& of_shape) const {
    return type == wanted && (elems < 0 || elems == elements(of_shape)) && (!shape || shape->count == 1 || *shape == of_shape);
  }
  [[nodiscard]] std::string words() const {
    if (shape) return words_of_tensor(type, *shape);
    return name_of(type) +
           (elems < 0 ? std::string() : " with " + std::to_string(elems) + (elems == 1 ? " element" : " elements"));
  }
};

/// Throws gspmd::error unless a whole tensor has the type and the global shape of a leaf.
[[gnu::noinline]] inline void check_whole(const plan_view& plan, std::size_t leaf, const given_tensor& given) {
  const auto& v = leaf_of(plan, leaf);
  if (given.fits(v.type, v.global)) return;
  throw error("distribute: " + words_of_leaf(plan, leaf) + " is " + words_of_tensor(v.type, v.global) +
              " and the array given is " + given.words() +
              (given.shape ? std::string(differing_dim_text(v.global, *given.shape).view()) : ""));
}
/// Throws gspmd::error unless a buffer has the type and the local shape of a leaf.
[[gnu::noinline]] inline void check_buffer(const plan_view& plan, std::size_t leaf, const given_tensor& given) {
  const auto& v = leaf_of(plan, leaf);
  if (given.fits(v.type, v.local)) return;
  throw error("step: " + words_of_leaf(plan, leaf) + " is " + words_of_tensor(v.type, v.global) + ", whose shards are " +
              words_of_tensor(v.type, v.local) + " with " + std::to_string(elements(v.local)) +
              " elements, and the buffer given is " + given.words() +
              "; every device allocates the local extents, padding included");
}
/// Throws gspmd::error unless a sharded_array on `count` devices has the type, shape and sharding of a leaf.
[[gnu::noinline]] inline void check_sharded(const plan_view& plan, const mesh_info& mesh, std::size_t leaf, int count,
                                            int given_count, const planned_value& has, const mesh_shape& given_mesh) {
  const auto& v = leaf_of(plan, leaf);
  const auto is = [&] { return "step: " + words_of_leaf(plan, leaf) + " is " + words_of_tensor(v.type, v.global); };
  if (given_count != count)
    throw error(is() + " on " + counted(count, "device") + " of this communicator, and the sharded_array is on " +
                std::to_string(given_count));
  if (&has == &v) return;
  if (!(has.global == v.global) || has.type != v.type)
    throw error(is() + " and the sharded_array given is " + words_of_tensor(has.type, has.global) +
                std::string(differing_dim_text(v.global, has.global).view()));
  if (same_tiles(given_mesh, has.layout, *plan.mesh, v.layout, v.global.count)) return;
  throw error(is() + " with the sharding " + std::string(sharding_text(mesh, v.layout, v.global.count).view()) +
              ", and the sharded_array " +
              (same_mesh(given_mesh, mesh.shape)
                   ? "has the sharding " + std::string(sharding_text(mesh, has.layout, has.global.count).view()) +
                         "; give both the same annotation, or convert it with to_step"
                   : "is on another mesh of " + counted(static_cast<int>(given_mesh.device_count()), "device") +
                         "; give both the same annotation, or convert it with to_step"));
}
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_leaf(const plan_view& plan, std::size_t leaf, const char* problem) {
  throw error("step: " + words_of_leaf(plan, leaf) + ' ' + problem);
}
/// Throws gspmd::error unless a leaf is an input, because const memory is passed for it.
[[gnu::noinline]] inline void require_input(const plan_view& plan, std::size_t leaf) {
  if (leaf >= plan.inputs.size())
    throw_leaf(plan, leaf, "is given a const array, and outputs are written; give one that is not const");
}
/// Throws gspmd::error unless the elements of a leaf are of type T, like those of the view passed for it.
template <class T>
void check_element(const plan_view& plan, std::size_t leaf) {
  const auto wanted = leaf_of(plan, leaf).type;
  if (wanted != dtype_of<T>())
    throw error("step: " + words_of_leaf(plan, leaf) + " is " + name_of(wanted) + " and the view given is of " +
                name_of(dtype_of<T>()));
}
[[gnu::noinline]] inline void check_leaves(const char* op, const char* kind, std::size_t first, std::size_t count,
                                           std::size_t there) {
  if (count <= there && first <= there - count) return;
  throw error(std::string(op) + ": " + kind + ' ' + std::to_string(first) +
              (count == 1 ? " does" : " and the " + std::to_string(count - 1) + " after it do") + " not exist; the program has " +
              counted(static_cast<int>(there), kind) + ", which count from 0");
}

}  // namespace gspmd::detail
