// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "gspmd/array.hpp"
#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/exec/device_memory.hpp"
#include "gspmd/detail/exec/scatter.hpp"
#include "gspmd/tree.hpp"

namespace gspmd {

namespace detail {

/// The shards of one value on the devices of this process, whatever its type: what needs no type is compiled once.
struct sharded_memory {
  const mesh_shape* mesh = nullptr;  // constants of a step, or tables that must outlive this object
  const planned_value* value = nullptr;
  std::vector<aligned_bytes> shards;

  sharded_memory() = default;
  sharded_memory(sharded_memory&&) = default;
  sharded_memory& operator=(sharded_memory&&) = default;
  [[gnu::noinline]] ~sharded_memory() {}
  [[gnu::noinline]] sharded_memory(int count, const mesh_shape& on, const planned_value& v) : mesh(&on), value(&v) {
    for (int i = 0; i < count; ++i) shards.emplace_back(elements(v.local) * bytes_of(v.type));
  }
  [[nodiscard]] std::byte* at(int i) const { return shards[static_cast<std::size_t>(i)].get(); }
};

}  // namespace detail

/// A tensor on the devices that a communicator holds: of every one its shard, in memory that this object owns. `scatter` and
/// `make_result` make one, a step takes it, `gather` makes it whole.
template <class T>
class sharded_array {
 public:
  using element = T;

  sharded_array() = default;
  /// Zeros, laid out as a value of a plan.
  template <communicator Comm>
  sharded_array(const Comm& comm, const detail::mesh_shape& mesh, const detail::planned_value& value)
      : memory_(comm.local_count(), mesh, value) {}
  sharded_array(int local_count, const detail::mesh_shape& mesh, const detail::planned_value& value)
      : memory_(local_count, mesh, value) {}

  [[nodiscard]] const detail::extents& shape() const { return planned().global; }
  /// The extents of every shard, padding included.
  [[nodiscard]] const detail::extents& local_shape() const { return planned().local; }
  [[nodiscard]] std::int64_t local_elems() const { return detail::elements(planned().local); }
  /// On how many devices of this process: 1 for threads and mpi, all for simulated.
  [[nodiscard]] int local_count() const { return static_cast<int>(memory_.shards.size()); }
  /// The shard of the i-th of them.
  [[nodiscard]] std::span<T> shard(int i = 0) { return {data(i), static_cast<std::size_t>(local_elems())}; }
  [[nodiscard]] std::span<const T> shard(int i = 0) const { return {data(i), static_cast<std::size_t>(local_elems())}; }
  [[nodiscard]] T* data(int i = 0) { return reinterpret_cast<T*>(memory_.at(i)); }
  [[nodiscard]] const T* data(int i = 0) const { return reinterpret_cast<const T*>(memory_.at(i)); }

  [[nodiscard]] const detail::mesh_shape& mesh() const { return *memory_.mesh; }
  [[nodiscard]] const detail::planned_value& planned() const { return *memory_.value; }

 private:
  detail::sharded_memory memory_;
};

namespace detail {

template <class Leaf>
inline constexpr bool is_sharded_array = false;
template <class T>
inline constexpr bool is_sharded_array<sharded_array<T>> = true;

/// Which devices of how many this process holds: what becomes of shards before and after a step does not depend on anything
/// else of a communicator, and is compiled once for all of them.
class held_devices {
 public:
  template <communicator Comm>
  explicit held_devices(const Comm& comm) : device_count_(comm.device_count()) {
    for (int i = 0; i < comm.local_count(); ++i) held_.push_back(comm.device(i));
  }
  [[nodiscard]] int device_count() const { return device_count_; }
  [[nodiscard]] int local_count() const { return static_cast<int>(held_.size()); }
  [[nodiscard]] int device(int i) const { return held_[static_cast<std::size_t>(i)]; }

 private:
  int device_count_;
  std::vector<int> held_;
};

inline void check_whole_size(const extents& shape, std::size_t given) {
  if (static_cast<std::int64_t>(given) != elements(shape))
    throw error("scatter: the input is " + std::string(shape_text(shape).view()) + " with " + std::to_string(elements(shape)) +
                " elements and the array given has " + std::to_string(given));
}

template <class T>
void cut_shards(const held_devices& devices, const T* from, sharded_array<T>& shards) {
  for (int i = 0; i < devices.local_count(); ++i)
    cut_shard(shards.mesh(), shards.planned(), shards.mesh().coordinates_of(devices.device(i)), from, shards.data(i));
}

template <class T, class Whole>
[[gnu::noinline]] sharded_array<T> scatter_leaf(const held_devices& devices, const mesh_shape& mesh, const planned_value& value,
                                                const Whole& whole) {
  sharded_array<T> shards(devices.local_count(), mesh, value);
  if constexpr (std::is_pointer_v<Whole>) {
    cut_shards<T>(devices, whole, shards);
  } else {
    check_whole_size(shards.shape(), static_cast<std::size_t>(std::size(whole)));
    cut_shards<T>(devices, std::data(whole), shards);
  }
  return shards;
}

template <class Step, std::size_t K, class Whole>
auto scatter_on(const held_devices& devices, const Whole& whole) {
  constexpr auto first = Step::template first_input<K>;
  static_assert(leaf_count<Whole>() == Step::template first_input<K + 1> - first,
                "gspmd: scatter: give an array for an `in`, and for a `record` its struct of arrays");
  return with_leaf_numbers<first>(
      [&]<std::size_t Leaf>(std::integral_constant<std::size_t, Leaf>, const auto& array) {
        return scatter_leaf<typename Step::template input_element<Leaf>>(devices, *Step::view.mesh,
                                                                         Step::view.value(Step::view.inputs[Leaf]), array);
      },
      whole);
}

template <class Step, std::size_t K>
auto make_result_on(const held_devices& devices) {
  using result = typename Step::callable_result;
  const auto make = [&]<std::size_t Leaf>(std::integral_constant<std::size_t, Leaf>, const auto&) {
    return sharded_array<typename Step::template output_element<Leaf>>(devices.local_count(), *Step::view.mesh,
                                                                       Step::view.value(Step::view.outputs[Leaf]));
  };
  if constexpr (is_tuple<result>) return with_leaf_numbers<leaves_before<result, K>()>(make, std::tuple_element_t<K, result>{});
  else return with_leaf_numbers<0>(make, result{});
}

}  // namespace detail

/// Argument `K` of a step, cut from whole arrays: `whole` is an array, a contiguous range or a pointer, or for a `record` the
/// struct of them; the result is a sharded_array, or the struct of sharded_arrays. No communication: every process gives
/// the whole, or at least what its devices hold of it. Throws gspmd::error: a wrong number of elements or devices.
///
///     auto x = scatter<step, 0>(comm, pixels);   auto w = scatter<step, 1>(comm, weights);
template <class Step, std::size_t K, communicator Comm, class Whole>
auto scatter(const Comm& comm, const Whole& whole) {
  require_devices(comm, Step::device_count);
  return detail::scatter_on<Step, K>(detail::held_devices(comm), whole);
}

/// Zeroed memory for result `K` of a step, counting the parts of the tuple that the program returns: a sharded_array, or
/// the struct of them.
///
///     auto loss = make_result<step, 0>(comm);   auto w_next = make_result<step, 1>(comm);
///     s(comm, x, labels, w, loss, w_next);
template <class Step, std::size_t K, communicator Comm>
auto make_result(const Comm& comm) {
  require_devices(comm, Step::device_count);
  return detail::make_result_on<Step, K>(detail::held_devices(comm));
}

/// The whole array of a sharded one, or a group of them of a group, on every device. Collective.
template <communicator Comm, class Tree>
auto gather(Comm& comm, const Tree& tree) {
  return transform_leaves(
      [&]<class T>(const sharded_array<T>& shards) {
        array<T> whole(shards.shape());
        const auto& v = shards.planned();
        const detail::movement m{v.global, v.layout, {}, detail::movement_axes(shards.mesh(), v.global, v.layout, {})};
        std::vector<const T*> in;
        std::vector<T*> out;
        for (int i = 0; i < comm.local_count(); ++i) {
          in.push_back(shards.data(i));
          out.push_back(whole.data());
        }
        comm.template move<T>(shards.mesh(), m, in.data(), out.data());
        return whole;
      },
      tree);
}

}  // namespace gspmd
