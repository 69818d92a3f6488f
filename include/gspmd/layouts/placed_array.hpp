// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/driver/given_shard.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/layouts/detail/placed_tables.hpp"
#include "gspmd/layouts/open_placement.hpp"
#include "gspmd/program/along.hpp"
#include "gspmd/program/array.hpp"
#include "gspmd/program/row_major.hpp"
#include "gspmd/program/sharded_array.hpp"

/// Tensors in other distributions than the library's shardings, and conversions between the two at the boundary of a
/// program.
namespace gspmd {

/// The layout of a tensor: a mesh, and for each dim the axes that split it and a placement. Dims without a placement
/// are contiguous. The mesh's tables must outlive the layout.
///
/// **Errors.** Throws gspmd::error for more than 32 dims, a negative extent, an element count that overflows, or a
/// partial value. Also for more placements than dims, and for a placement that is not defined for its extent and parts
/// or breaks the law there. A placement without members that breaks the law on small shapes does not compile.
/// **Example.**
///     // rows block-cyclically, blocks of two
///     const placed_layout rows(pod::info.shape, {15, 8}, axes, block_cyclic<2>{});
template <placement... P>
class placed_layout {
  static_assert((detail::accept_placement<P>() && ...));

 public:
  placed_layout(const detail::mesh_shape& mesh, const detail::extents& global, const detail::sharding& axes, const P&... per_dim)
      : tables_(std::make_shared<const detail::placed_tables>(make(mesh, global, axes, per_dim...))) {}
  // A move is a copy, so that every layout has its tables.
  placed_layout(const placed_layout&) = default;
  placed_layout& operator=(const placed_layout&) = default;

  [[nodiscard]] const detail::extents& shape() const { return tables_->global; }
  /// Returns the shape that every device allocates; a part may hold less.
  [[nodiscard]] detail::extents local_shape() const { return tables_->local_extents(); }
  /// Returns the global indices along `dim` that the device holds, in the device's order.
  [[nodiscard]] detail::span<const std::int64_t> held(int device, along dim) const {
    const int d = detail::counted_dim(dim, tables_->global.count);
    const auto part = tables_->part(d, tables_->mesh.coordinates_of(device));
    return tables_->dims[static_cast<std::size_t>(d)].global[static_cast<std::size_t>(part)];
  }
  [[nodiscard]] const detail::placed_tables& tables() const { return *tables_; }

 private:
  static detail::placed_tables make(const detail::mesh_shape& mesh, const detail::extents& global, const detail::sharding& axes,
                                    const P&... per_dim) {
    if (sizeof...(P) > static_cast<std::size_t>(global.count))
      throw error("placement: " + std::to_string(sizeof...(P)) + " placements for a tensor with " + std::to_string(global.count) +
                  " dims");
    if (const auto problem = detail::size_problem(global, 1); !problem.empty())
      throw error("placement: " + std::string(problem.view()));
    if (axes.partial != 0) throw error("placement: the value is partial; reduce it before it is placed otherwise");
    detail::placed_tables t{mesh, global, axes, {}};
    int dim = 0;
    const auto add = [&](const auto& p) {
      t.dims.emplace_back(p, dim, global[dim], detail::parts_of(mesh, axes, dim));
      ++dim;
    };
    (add(per_dim), ...);
    while (dim < global.count) add(contiguous{});
    return t;
  }

  std::shared_ptr<const detail::placed_tables> tables_;
};

/// The shards of a tensor on the devices that a communicator holds, in memory that this object owns. The types of the
/// placements are part of the type, so that a step can refuse unsupported placements. A moved-from array has no
/// shards: shard() throws gspmd::error.
///
/// **Threads.** As for a container: any number of concurrent readers, or one writer.
template <class T, placement... P>
class placed_array {
 public:
  using element = T;

  /// Makes an array of zeros.
  template <communicator Comm>
  placed_array(const Comm& comm, placed_layout<P...> layout) : layout_(std::move(layout)), local_(layout_.local_shape()) {
    detail::require_device_count(comm.device_count(), static_cast<int>(layout_.tables().mesh.device_count()));
    for (int i = 0; i < comm.local_count(); ++i)
      shards_.emplace_back(detail::elements(local_) * static_cast<std::int64_t>(sizeof(T)), "a shard of a placed_array");
  }

  [[nodiscard]] const placed_layout<P...>& layout() const { return layout_; }
  [[nodiscard]] const detail::extents& shape() const { return layout_.shape(); }
  [[nodiscard]] const detail::extents& local_shape() const { return local_; }
  [[nodiscard]] int local_count() const { return static_cast<int>(shards_.size()); }
  /// Returns the shard of the i-th device of this process: dense, with the local shape. Elements after those that the
  /// device holds are padding.
  [[nodiscard]] detail::span<T> shard(int i = 0) {
    return {reinterpret_cast<T*>(at(i)), static_cast<std::size_t>(detail::elements(local_))};
  }
  [[nodiscard]] detail::span<const T> shard(int i = 0) const {
    return {reinterpret_cast<const T*>(at(i)), static_cast<std::size_t>(detail::elements(local_))};
  }

 private:
  [[nodiscard]] std::byte* at(int i) const {
    if (i < 0 || i >= local_count())
      throw error("placed_array: device " + std::to_string(i) + " does not exist; the array is on " +
                  detail::counted(local_count(), "device") + " of this process" +
                  (local_count() == 0 ? ": it was moved from" : ", which count from 0"));
    return shards_[static_cast<std::size_t>(i)].get();
  }

  placed_layout<P...> layout_;
  detail::extents local_;
  std::vector<detail::aligned_bytes> shards_;
};

namespace detail {

template <class T, placement... P>
inline constexpr bool is_placed_array<placed_array<T, P...>> = true;
template <class T, placement... P>
struct placed_array_text<placed_array<T, P...>> {
  static constexpr text make() {
    text t;
    ((t << (t.empty() ? "" : ",") << P::text()), ...);
    if (t.empty()) t << "contiguous";
    return t;
  }
};

inline void require_same_tensor(const placed_tables& from, const placed_tables& to) {
  if (!(from.global == to.global))
    throw error("redistribute: the tensor is " + std::string(shape_text(from.global).view()) + " and the layout is for " +
                std::string(shape_text(to.global).view()));
  if (from.mesh.device_count() != to.mesh.device_count())
    throw error("redistribute: the meshes have " + std::to_string(from.mesh.device_count()) + " and " +
                std::to_string(to.mesh.device_count()) + " devices");
}

/// Moves shards from one layout to another. in[i] and out[i] belong to the i-th device of `comm`. If the layout of two
/// devices changes from {0, 1}, {2, 3} to {0, 2}, {1, 3}, device 0 sends element 1 and receives element 2.
template <class T, class Comm>
void redistribute_shards(Comm& comm, const placed_tables& from, const placed_tables& to, const T* const* in, T* const* out) {
  static_assert(
      requires(const T* const* i, T* const* o, const std::int64_t* const* n) { comm.exchange(i, n, o, n); },
      "gspmd: redistribute: the communicator has no exchange(in, sent, out, received)");
  const auto devices = comm.device_count();
  const auto held = comm.local_count();
  const auto from_local = from.local_extents(), to_local = to.local_extents();
  std::vector<std::vector<std::int64_t>> sent(static_cast<std::size_t>(held)), received(static_cast<std::size_t>(held));
  std::vector<std::unique_ptr<T[]>> packed, arrived;
  std::vector<const T*> from_packed;
  std::vector<T*> to_arrived;
  std::vector<const std::int64_t*> sent_of, received_of;
  for (int i = 0; i < held; ++i) {
    auto& s = sent[static_cast<std::size_t>(i)];
    auto& r = received[static_cast<std::size_t>(i)];
    std::int64_t all_sent = 0, all_received = 0;
    for (int k = 0; k < devices; ++k) {
      s.push_back(elements(runs_between(from, to, comm.device(i), k)));
      r.push_back(elements(runs_between(from, to, k, comm.device(i))));
      all_sent += s.back();
      all_received += r.back();
    }
    packed.emplace_back(new_elements<T>(all_sent, "the sent elements"));
    arrived.emplace_back(new_elements<T>(all_received, "the received elements"));
    T* to_pack = packed.back().get();
    for (int k = 0; k < devices; ++k)
      if (const auto runs = runs_between(from, to, comm.device(i), k); !runs.empty())
        to_pack = copy_runs<true>(runs, from_local, in[i], to_pack);
    from_packed.push_back(packed.back().get());
    to_arrived.push_back(arrived.back().get());
    sent_of.push_back(s.data());
    received_of.push_back(r.data());
  }
  comm.template exchange<T>(from_packed.data(), sent_of.data(), to_arrived.data(), received_of.data());
  for (int i = 0; i < held; ++i) {
    T* unpack = to_arrived[static_cast<std::size_t>(i)];
    for (int k = 0; k < devices; ++k)
      if (const auto runs = runs_between(from, to, k, comm.device(i)); !runs.empty())
        unpack = copy_runs<false>(runs, to_local, out[i], unpack);
  }
}

/// Returns the pointers to the shards of the devices that `comm` holds.
template <class T, class Comm, class Arrays>
std::vector<T*> shard_pointers(const Comm& comm, Arrays& arrays) {
  std::vector<T*> result;
  for (int i = 0; i < comm.local_count(); ++i) result.push_back(arrays.shard(i).data());
  return result;
}

/// Returns the layout of a value of a step as tables.
inline placed_tables tables_of(const mesh_shape& mesh, const planned_value& v) {
  return placed_layout<>(mesh, v.global, v.layout).tables();
}

}  // namespace detail

/// Distributes a whole array to shards in a layout. No communication.
///
/// **Errors.** Throws gspmd::error for a wrong number of elements or devices.
/// **Example.**
///     auto x = distribute(comm, rows, whole);
template <communicator Comm, placement... P, class Whole>
auto distribute(const Comm& comm, const placed_layout<P...>& layout, const Whole& whole) {
  static_assert(detail::accept_container<Whole>());
  using T = std::conditional_t<detail::has_addresses<Whole>, detail::leaf_element_t<Whole>, bool>;
  placed_array<T, P...> result(comm, layout);
  if constexpr (detail::has_addresses<Whole>) {
    detail::require_dense(whole);
    if (static_cast<std::int64_t>(std::size(whole)) != detail::elements(layout.shape()))
      throw error("distribute: the layout is " + std::string(detail::shape_text(layout.shape()).view()) +
                  " and the array given has " + std::to_string(std::size(whole)) + " elements");
    const auto& tables = layout.tables();
    const detail::placed_tables source =
        placed_layout<>(tables.mesh, tables.global, {}).tables();  // every device has the whole array
    for (int i = 0; i < comm.local_count(); ++i) {
      const auto runs = detail::runs_between(source, tables, comm.device(i), comm.device(i));
      if (runs.empty()) continue;
      const std::unique_ptr<T[]> buffer(detail::new_elements<T>(detail::elements(runs), "a part of an array"));
      detail::copy_runs<true>(runs, tables.global, std::data(whole), buffer.get());
      detail::copy_runs<false>(runs, result.local_shape(), result.shard(i).data(), buffer.get());
    }
  }
  return result;
}

/// Returns the same tensor in another layout over the same devices. The meshes may differ.
///
/// **Communication.** Collective. A device receives each element that it requires and does not hold once, and no other
/// element; see bytes_sent_to_redistribute.
/// **Example.**
///     auto even = redistribute(comm, x, placed_layout(pod::info.shape, x.shape(), axes));
template <communicator Comm, class T, placement... P, placement... Q>
placed_array<T, Q...> redistribute(Comm& comm, const placed_array<T, P...>& from, const placed_layout<Q...>& to) {
  detail::require_same_tensor(from.layout().tables(), to.tables());
  placed_array<T, Q...> result(comm, to);
  const auto in = detail::shard_pointers<const T>(comm, from);
  const auto out = detail::shard_pointers<T>(comm, result);
  detail::redistribute_shards<T>(comm, from.layout().tables(), to.tables(), in.data(), out.data());
  return result;
}

/// Returns the bytes that device `device` sends if a tensor with elements of `bytes_per_elem` bytes changes its
/// layout.
template <placement... P, placement... Q>
std::int64_t bytes_sent_to_redistribute(const placed_layout<P...>& from, const placed_layout<Q...>& to, int device,
                                        std::int64_t bytes_per_elem) {
  detail::require_same_tensor(from.tables(), to.tables());
  std::int64_t elems = 0;
  for (int k = 0; k < from.tables().mesh.device_count(); ++k)
    if (k != device) elems += detail::elements(detail::runs_between(from.tables(), to.tables(), device, k));
  return elems * bytes_per_elem;
}

/// Returns the whole array on every device. Collective.
template <communicator Comm, class T, placement... P>
array<T> collect(Comm& comm, const placed_array<T, P...>& from) {
  const auto& tables = from.layout().tables();
  const placed_layout<> whole(tables.mesh, tables.global, {});
  const auto copies = redistribute(comm, from, whole);
  array<T> result(tables.global);
  std::copy_n(copies.shard(0).data(), result.size(), result.data());
  return result;
}

namespace detail {

template <class Step, std::size_t K, class Comm, class T, class Shards>
sharded_array<T> brought_to_step(Comm& comm, const placed_tables& from, const Shards& shards) {
  require_devices(comm, Step::device_count);
  const auto& value = Step::view.value(Step::view.inputs[K]);
  if (dtype_of<T>() != value.type)
    throw error("to_step: input " + std::to_string(K) + " is " + name_of(value.type) + " and the array given is " +
                name_of(dtype_of<T>()));
  const auto to = tables_of(*Step::view.mesh, value);
  require_same_tensor(from, to);
  sharded_array<T> result(comm, *Step::view.mesh, value);
  const auto in = shard_pointers<const T>(comm, shards);
  const auto out = shard_pointers<T>(comm, result);
  redistribute_shards<T>(comm, from, to, in.data(), out.data());
  return result;
}

}  // namespace detail

/// Returns a placed array as input `K` of a step (leaves are counted individually), in the sharding of the step.
/// Collective.
///
/// **Example.**
///     auto w = to_step<step, 1>(comm, w_cyclic);   s(comm, x, w, y);
template <class Step, std::size_t K, communicator Comm, class T, placement... P>
sharded_array<T> to_step(Comm& comm, const placed_array<T, P...>& from) {
  return detail::brought_to_step<Step, K, Comm, T>(comm, from.layout().tables(), from);
}
/// The same for an output of another step, whose mesh may be a different mesh over the same devices. The two meshes
/// need no common finer mesh. So this converts between steps on 2x3 and on 3x2 devices, which mesh_views cannot
/// combine.
///
/// **Example.**
///     auto x = to_step<second, 0>(comm, y_of_first);
template <class Step, std::size_t K, communicator Comm, class T>
sharded_array<T> to_step(Comm& comm, const sharded_array<T>& from) {
  return detail::brought_to_step<Step, K, Comm, T>(comm, detail::tables_of(from.mesh(), from.planned()), from);
}

/// Returns an input or an output of a step in another layout. Collective.
template <communicator Comm, class T, placement... P>
placed_array<T, P...> from_step(Comm& comm, const sharded_array<T>& from, const placed_layout<P...>& to) {
  const auto tables = detail::tables_of(from.mesh(), from.planned());
  detail::require_same_tensor(tables, to.tables());
  placed_array<T, P...> result(comm, to);
  const auto in = detail::shard_pointers<const T>(comm, from);
  const auto out = detail::shard_pointers<T>(comm, result);
  detail::redistribute_shards<T>(comm, tables, to.tables(), in.data(), out.data());
  return result;
}

}  // namespace gspmd
