// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

#include "gspmd/extend/edge.hpp"
#include "gspmd/external/whole.hpp"
#include "gspmd/program/row_major.hpp"
#include "gspmd/program/sharded_array.hpp"

namespace gspmd::detail {

/// The shards that are passed to a step in one call, after checks: the pointer to each shard or to its dense copy. A
/// shard is a view of external memory, a sharded_array, a contiguous range with the number of elements of a shard, or a
/// pointer.
class taken_shards {
 public:
  /// Throws gspmd::error unless a sharded_array is leaf `leaf`. The array has the plan's value `has`, on `count`
  /// devices of the mesh `on`.
  using sharded_check = void (*)(const plan_view& plan, const mesh_info& mesh, std::size_t leaf, int count,
                                 const planned_value& has, const mesh_shape& on);
  /// Begins a call on this device. `step` is the name of the object in messages.
  void begin(const char* step, const plan_view& plan, const mesh_info& mesh, int device, sharded_check check_array) {
    step_ = step;
    plan_ = &plan;
    mesh_ = &mesh;
    check_array_ = check_array;
    copies_.begin(plan, device);
    given_.clear();
  }
  [[nodiscard]] std::size_t count() const { return given_.size(); }
  /// Returns true if the next shard exceeds the leaves of the plan. These shards are counted, and finish() reports the
  /// number.
  [[nodiscard]] bool is_beyond() const { return given_.size() >= plan_->inputs.size() + plan_->outputs.size(); }
  [[nodiscard]] const planned_value& value(std::size_t k) const {
    const auto inputs = plan_->inputs.size();
    return plan_->value(k < inputs ? plan_->inputs[k] : plan_->outputs[k - inputs]);
  }

  template <class Leaf>
  void add(Leaf& leaf) {
    const auto k = given_.size();
    if (is_beyond()) return given_.push_back(nullptr);
    const auto& v = value(k);
    using plain = std::remove_cv_t<Leaf>;
    if constexpr (is_block_of_step<plain>) {
      add_block<typename plain::element>(external_block(leaf));
    } else {
      if constexpr (is_sharded_array<plain>) {
        using element = typename plain::element;
        if (leaf.local_count() == 0)
          throw error(leaf_text(*plan_, k) +
                      " is given an empty sharded_array, never filled or moved from; make it with distribute or make_result");
        check<std::conditional_t<std::is_const_v<Leaf>, const element, element>>(k);
        check_array_(*plan_, *mesh_, k, leaf.local_count(), leaf.planned(), leaf.mesh());
        given_.push_back(leaf.data());
      } else if constexpr (std::is_pointer_v<plain>) {
        check<std::remove_pointer_t<plain>>(k);
        given_.push_back(leaf);
      } else if constexpr (!has_addresses<plain>) {
        static_assert(accept_container<plain>());
        given_.push_back(nullptr);
      } else {
        static_assert(dense_by_itself<Leaf>,
                      "gspmd: a shard is a strided_view, a sharded_array, a contiguous range or a pointer");
        check<std::remove_pointer_t<decltype(std::data(leaf))>>(k);
        require_dense(leaf);
        if (static_cast<std::int64_t>(std::size(leaf)) != elements(v.local))
          throw error(leaf_text(*plan_, k) + " is " + std::string(shape_text(v.local).view()) + " on every device, with " +
                      std::to_string(elements(v.local)) + " elements, and the range given has " +
                      std::to_string(std::size(leaf)));
        given_.push_back(std::data(leaf));
      }
      copies_.note(k, given_.back());
    }
  }
  /// Adds a view with elements of type T.
  template <class T>
  void add_block(const external_block& block) {
    check<T>(given_.size());
    given_.push_back(copies_.take(given_.size(), block));
  }
  /// Adds a shard that the step can use in place, as the caller has checked.
  template <class T>
  void add_in_place(T* data) {
    if (!is_beyond()) check<T>(given_.size());
    given_.push_back(data);
  }
  /// Returns the caller's memory of leaf `k`, from add.
  [[nodiscard]] strided_memory given(std::size_t k) const { return copies_.given(k); }
  /// Throws gspmd::error if T is not the element type of a leaf, or if T is const and the leaf is written.
  template <class T>
  void check(std::size_t k) const {
    if (value(k).type != dtype_of<std::remove_const_t<T>>())
      throw error(leaf_text(*plan_, k) + " is " + name_of(value(k).type) + " and the shard given is of " +
                  name_of(dtype_of<std::remove_const_t<T>>()));
    if (std::is_const_v<T> && k >= plan_->inputs.size())
      throw error(leaf_text(*plan_, k) + " is written and the shard given is const");
  }

  /// Ends the list of shards. Throws gspmd::error: more or fewer shards than the program has; results that overlap.
  void finish() {
    const auto inputs = plan_->inputs.size(), outputs = plan_->outputs.size();
    if (given_.size() != inputs + outputs)
      throw error(std::string(step_) + ": the program has " + counted(static_cast<int>(inputs), "input") + " and " +
                  counted(static_cast<int>(outputs), "output") + ", and the call gives " +
                  counted(static_cast<int>(given_.size()), "shard") + "; give the shards of all inputs, then of all outputs");
    copies_.check_results();
    results_.clear();
    for (std::size_t k = inputs; k < given_.size(); ++k) results_.push_back(const_cast<void*>(given_[k]));
  }
  [[nodiscard]] const void* const* inputs() const { return given_.data(); }
  [[nodiscard]] void* const* outputs() const { return results_.data(); }
  void put_back() const { copies_.put_back(); }
  [[nodiscard]] std::int64_t copied_bytes() const { return copies_.copied_bytes(); }

 private:
  const char* step_ = "";
  const plan_view* plan_ = nullptr;
  const mesh_info* mesh_ = nullptr;
  sharded_check check_array_ = nullptr;
  dense_copies copies_;
  std::vector<const void*> given_;
  std::vector<void*> results_;
};

}  // namespace gspmd::detail
