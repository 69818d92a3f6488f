// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/driver/given_arguments.hpp"
#include "gspmd/detail/edge/distribute.hpp"
#include "gspmd/detail/transport/device_memory.hpp"
#include "gspmd/program/array.hpp"
#include "gspmd/program/row_major.hpp"
#include "gspmd/program/tree.hpp"

namespace gspmd {

namespace detail {

/// The shards of a value on the devices of this process, for any element type. Code that does not depend on the type is
/// compiled once. The class holds one pointer, so moving and swapping groups of sharded_arrays is little code.
class sharded_memory {
 public:
  sharded_memory() = default;
  [[gnu::noinline]] sharded_memory(int count, const mesh_shape& mesh, const planned_value& value,
                                   std::shared_ptr<const void> owner)
      : held_(new held{&mesh, &value, {}, std::move(owner)}) {
    for (int i = 0; i < count; ++i)
      held_->shards.emplace_back(elements(value.local) * bytes_of(value.type), "a shard of a sharded_array");
  }
  sharded_memory(sharded_memory&&) = default;
  sharded_memory& operator=(sharded_memory&&) = default;
  [[gnu::noinline]] ~sharded_memory() {}

  [[nodiscard]] int count() const { return held_ ? static_cast<int>(held_->shards.size()) : 0; }
  [[nodiscard]] std::byte* at(int i) const {
    if (i < 0 || i >= count()) refuse_device(i);
    return held_->shards[static_cast<std::size_t>(i)].get();
  }
  [[nodiscard]] const mesh_shape& mesh() const {
    if (!held_) refuse_empty();
    return *held_->mesh;
  }
  [[nodiscard]] const planned_value& value() const {
    if (!held_) refuse_empty();
    return *held_->value;
  }

 private:
  [[noreturn, gnu::cold, gnu::noinline]] static void refuse_empty() {
    throw error("sharded_array: it is empty, never filled or moved from; make it with distribute or make_result");
  }
  [[noreturn, gnu::cold, gnu::noinline]] void refuse_device(int i) const {
    if (!held_) refuse_empty();
    throw error("sharded_array: device " + std::to_string(i) + " does not exist; the array is on " + counted(count(), "device") +
                " of this process, which count from 0");
  }
  struct held {
    const mesh_shape* mesh;  // constants of a step, or tables that must outlive this object
    const planned_value* value;
    std::vector<aligned_bytes> shards;
    std::shared_ptr<const void> owner;  // owns these tables if they could otherwise be destroyed before this object
  };
  std::unique_ptr<held> held_;
};

}  // namespace detail

/// A tensor on the devices that a communicator holds: the shard of each device, in memory that this object owns.
///
/// `distribute` and `make_result` make sharded_arrays, a step reads and writes them, and `collect` returns the whole
/// array. A default-constructed or moved-from array is empty: local_count() is 0.
///
/// **Errors.** All other functions of an empty array throw gspmd::error.
/// **Threads.** Like a container: several readers or one writer. A step reads its inputs and writes its outputs.
template <class T>
class sharded_array {
 public:
  using element = T;

  sharded_array() = default;
  /// Makes zeros with the layout of a value of a plan.
  template <communicator Comm>
  sharded_array(const Comm& comm, const detail::mesh_shape& mesh, const detail::planned_value& value)
      : memory_(comm.local_count(), mesh, value, nullptr) {}
  sharded_array(int local_count, const detail::mesh_shape& mesh, const detail::planned_value& value,
                std::shared_ptr<const void> owner = nullptr)
      : memory_(local_count, mesh, value, std::move(owner)) {}

  [[nodiscard]] const detail::extents& shape() const { return planned().global; }
  /// The extents of each shard, including padding.
  [[nodiscard]] const detail::extents& local_shape() const { return planned().local; }
  [[nodiscard]] std::int64_t local_elems() const { return detail::elements(planned().local); }
  /// The number of devices of this process that hold shards: 1 for threads and mpi, all devices for simulated.
  [[nodiscard]] int local_count() const { return memory_.count(); }
  /// The shard of the i-th device of this process.
  [[nodiscard]] std::span<T> shard(int i = 0) { return {data(i), static_cast<std::size_t>(local_elems())}; }
  [[nodiscard]] std::span<const T> shard(int i = 0) const { return {data(i), static_cast<std::size_t>(local_elems())}; }
  [[nodiscard]] T* data(int i = 0) { return reinterpret_cast<T*>(memory_.at(i)); }
  [[nodiscard]] const T* data(int i = 0) const { return reinterpret_cast<const T*>(memory_.at(i)); }

  [[nodiscard]] const detail::mesh_shape& mesh() const { return memory_.mesh(); }
  [[nodiscard]] const detail::planned_value& planned() const { return memory_.value(); }

 private:
  detail::sharded_memory memory_;
};

namespace detail {

template <class Leaf>
inline constexpr bool is_sharded_array = false;
template <class T>
inline constexpr bool is_sharded_array<sharded_array<T>> = true;

/// The devices that this process holds. The code before and after a step depends on nothing else of a communicator, so
/// it is compiled once for all communicators. The constructor checks that the communicator has `device_count` devices.
class held_devices {
 public:
  template <communicator Comm>
  [[gnu::noinline]] held_devices(const Comm& comm, int device_count) {
    require_devices(comm, device_count);
    for (int i = 0; i < comm.local_count(); ++i) held_.push_back(comm.device(i));
  }
  held_devices(const held_devices&) = delete;
  held_devices& operator=(const held_devices&) = delete;
  [[gnu::noinline]] ~held_devices() {}

  [[nodiscard]] int local_count() const { return static_cast<int>(held_.size()); }
  [[nodiscard]] int device(int i) const { return held_[static_cast<std::size_t>(i)]; }

 private:
  std::vector<int> held_;
};

[[gnu::cold]] inline void check_whole_size(const extents& shape, std::size_t given) {
  if (static_cast<std::int64_t>(given) != elements(shape))
    throw error("distribute: the input is " + std::string(shape_text(shape).view()) + " with " + std::to_string(elements(shape)) +
                " elements and the array given has " + std::to_string(given));
}

template <class T>
void cut_shards(const held_devices& devices, const T* from, sharded_array<T>& shards) {
  for (int i = 0; i < devices.local_count(); ++i)
    cut_shard(shards.mesh(), shards.planned(), shards.mesh().coordinates_of(devices.device(i)), from, shards.data(i));
}

/// The group of sharded arrays for `Tree`, a group of values or of whole arrays. `Element<Leaf>` is the element type of
/// a leaf.
template <class Tree, template <std::size_t> class Element, std::size_t First>
struct sharded_tree {
  template <std::size_t... K>
  static auto find(std::index_sequence<K...>)
      -> regrouped<Tree, std::tuple<typename sharded_tree<std::remove_cvref_t<decltype(part<K>(std::declval<Tree&>()))>, Element,
                                                          First + leaves_before<Tree, K>()>::type...>>;
  using type = typename decltype(find(std::make_index_sequence<part_count<Tree>()>{}))::type;
};
template <class Tree, template <std::size_t> class Element, std::size_t First>
  requires is_leaf<Tree>
struct sharded_tree<Tree, Element, First> {
  using type = sharded_array<Element<First>>;
};

// The functions below use only the tables of a step and the devices of a communicator. They are compiled once for all
// steps and communicators.

/// Makes zeros with the layouts of the values whose numbers are in `values`.
template <class Tree>
[[gnu::noinline, gnu::cold]] Tree make_leaves(const held_devices& devices, const plan_view& plan, const int* values) {
  Tree tree;
  for_each_leaf(tree, [&]<class T>(sharded_array<T>& leaf) {
    leaf = sharded_array<T>(devices.local_count(), *plan.mesh, plan.value(*values++));
  });
  return tree;
}

/// Reinterprets elements as another C++ type with the same layout, for example the complex numbers of two libraries.
template <class T, class Given>
const T* as_elements(const Given* data) {
  static_assert(std::is_same_v<listed_element_t<T>, listed_element_t<Given>>,
                "gspmd: the array passed has another element type than the tensor; pass an array of the tensor's element type");
  return reinterpret_cast<const T*>(data);
}
template <class T, class Whole>
void distribute_leaf(const held_devices& devices, const Whole& whole, sharded_array<T>& shards) {
  if constexpr (std::is_pointer_v<Whole>) {
    cut_shards<T>(devices, as_elements<T>(whole), shards);
  } else if constexpr (std::rank_v<Whole> > 1) {
    distribute_leaf(devices, flat_array<Whole>{whole}, shards);
  } else {
    require_dense(whole);
    check_whole_size(shards.shape(), static_cast<std::size_t>(std::size(whole)));
    cut_shards<T>(devices, as_elements<T>(std::data(whole)), shards);
  }
}
template <class Tree, class Whole>
void distribute_tree(const held_devices& devices, const Whole& whole, Tree& tree) {
  if constexpr (is_leaf<Whole>) {
    distribute_leaf(devices, whole, tree);
  } else {
    [&]<std::size_t... K>(std::index_sequence<K...>) {
      (distribute_tree(devices, part<K>(whole), part<K>(tree)), ...);
    }(std::make_index_sequence<part_count<Whole>()>{});
  }
}
template <class Tree, class Whole>
[[gnu::noinline, gnu::cold]] Tree scatter_leaves(const held_devices& devices, const plan_view& plan, const int* values,
                                                 const Whole& whole) {
  auto tree = make_leaves<Tree>(devices, plan, values);
  distribute_tree(devices, whole, tree);
  return tree;
}

}  // namespace detail

/// Returns the shards of argument `K` of a step, cut from whole arrays.
///
/// `whole` is an array, a contiguous range or a pointer; the result is a sharded_array. For a `record`, `whole` is the
/// struct of arrays, and the result is the struct of sharded_arrays. Each process passes the whole array, or memory in
/// which at least the elements of its devices are set.
///
/// **Communication.** None.
/// **Errors.** Compile error: the element type of an array differs from the input's. Throws gspmd::error: a wrong
/// number of elements or devices.
/// **Example.**
///
///     auto x = distribute<step, 0>(comm, pixels);   auto w = distribute<step, 1>(comm, weights);
template <class Step, std::size_t K, communicator Comm, class Whole>
auto distribute(const Comm& comm, const Whole& whole) {
  constexpr auto first = Step::template first_input<K>;
  static_assert(detail::leaf_count<Whole>() == Step::template first_input<K + 1> - first,
                "gspmd: distribute: give an array for an `input`, and for a `record` its struct of arrays");
  static_assert(detail::accept_containers<Whole>());
  using arguments = detail::call_arguments<Step, "distribute", first, Step::template first_input<K + 1> - first, Whole>;
  static_assert(arguments::accept());
  using tree = typename detail::sharded_tree<Whole, Step::template input_element, first>::type;
  if constexpr (!arguments::facts.fit() || !arguments::facts.are_arrays) return tree{};
  else
    return detail::scatter_leaves<tree>(detail::held_devices(comm, Step::device_count), Step::view,
                                        Step::view.inputs.data() + first, whole);
}

/// Returns zeroed memory for result `K` of a step: a sharded_array or a struct of sharded_arrays. `K` counts the
/// elements of the tuple that the program returns.
///
/// **Communication.** None.
/// **Errors.** Throws gspmd::error: a wrong number of devices.
/// **Example.**
///
///     auto loss = make_result<step, 0>(comm);   auto w_next = make_result<step, 1>(comm);
///     s(comm, x, labels, w, loss, w_next);
template <class Step, std::size_t K, communicator Comm>
auto make_result(const Comm& comm) {
  using result = typename Step::callable_result;
  const detail::held_devices devices(comm, Step::device_count);
  if constexpr (detail::is_tuple<result>) {
    constexpr auto first = detail::leaves_before<result, K>();
    using tree = typename detail::sharded_tree<std::tuple_element_t<K, result>, Step::template output_element, first>::type;
    return detail::make_leaves<tree>(devices, Step::view, Step::view.outputs.data() + first);
  } else {
    using tree = typename detail::sharded_tree<result, Step::template output_element, 0>::type;
    return detail::make_leaves<tree>(devices, Step::view, Step::view.outputs.data());
  }
}

/// Returns the whole array of a sharded_array on every device. For a group of sharded_arrays it returns a group of
/// arrays.
///
/// **Communication.** Collective: one all_gather for each sharded_array that is split.
/// **Errors.** Throws gspmd::error if an array is partial.
template <communicator Comm, class Tree>
auto collect(Comm& comm, const Tree& tree) {
  return transform_leaves(
      [&]<class T>(const sharded_array<T>& shards) {
        array<T> whole(shards.shape());
        const auto& v = shards.planned();
        if (v.layout.partial != 0)
          throw error("collect: the array is partial, so devices hold partial values of it; reshard it in a program first");
        const detail::movement m{v.global, v.layout, {}, detail::movement_axes(shards.mesh(), v.global, v.layout, {})};
        using element = detail::listed_element_t<T>;
        std::vector<const element*> in;
        std::vector<element*> out;
        for (int i = 0; i < comm.local_count(); ++i) {
          in.push_back(reinterpret_cast<const element*>(shards.data(i)));
          out.push_back(reinterpret_cast<element*>(whole.data()));
        }
        comm.template move<element>(shards.mesh(), m, in.data(), out.data());
        return whole;
      },
      tree);
}

}  // namespace gspmd
