// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

#include "gspmd/external/detail/view_exchange.hpp"
#include "gspmd/external/whole.hpp"
#include "gspmd/layouts/blocks.hpp"

/// Input and result blocks with another distribution than that of a step, in external memory.
namespace gspmd {
namespace detail {

template <class Comm>
void exchange_views(Comm& comm, const placed_tables& from, const external_block& source, const placed_tables& to,
                    const external_block& target) {
  require_same_tensor(from, to);
  view_exchange moved(comm, [&](std::int64_t a, std::int64_t b) { return boxes_between(from, to, a, b); });
  moved.run(comm, source.elem_bytes(), &source, &target);
}
inline void require_one_device(const char* what, int count) {
  if (count != 1)
    throw error(std::string(what) + ": the communicator holds " + std::to_string(count) +
                " devices and one view is given; give a placed_array");
}

}  // namespace detail

/// Returns input `K` of a step, from the block of this device in another distribution. The block has the elements
/// `layout.held(device, along(dim))`, in external memory with any strides.
///
/// **Communication.** Collective. Each element that a device needs and does not have is sent once. A device sends
/// bytes_sent_to_redistribute(layout, layout_of_input<Step, K>(), device, bytes).
/// **Errors.** Throws gspmd::error: another shape or mesh size. Compile error: another element type.
/// **Example.**
///
///     auto u = to_step<step, 0>(comm, layout_of_input<step, 0>(balanced{}), strided_view(mine, {rows, 64}));
///     auto u = to_step<step, 0>(comm, layout_of_input<step, 0>(balanced{}), strided_view(mine, {rows, 64}));
template <class Step, std::size_t K, communicator Comm, placement... P, class View>
  requires(detail::is_block_of_step<View>)
auto to_step(Comm& comm, const placed_layout<P...>& layout, const View& mine) {
  using element = std::remove_const_t<typename View::element>;
  const detail::external_block block(mine);
  static_assert(
      std::is_same_v<detail::listed_element_t<element>, detail::listed_element_t<typename Step::template input_element<K>>>,
      "gspmd: to_step: the view's elements are of another type than the input's");
  require_devices(comm, Step::device_count);
  detail::require_one_device("to_step", comm.local_count());
  const auto& value = Step::view.value(Step::view.inputs[K]);
  const auto& tables = layout.tables();
  detail::require_block_shape("to_step", tables, comm.device(0), block.shape());
  sharded_array<element> result(comm, *Step::view.mesh, value);
  detail::exchange_views(comm, tables, block, detail::tables_of(*Step::view.mesh, value),
                         detail::external_block(detail::dense_memory(result.data(), value.local), sizeof(element)));
  return result;
}

/// Writes an input or a result of a step to the block of this device in another distribution, in external memory with
/// any strides.
///
/// **Communication.** Collective. Each element that a device needs and does not have is sent once.
/// **Errors.** Throws gspmd::error: the errors of to_step; a view that maps several indices to one element; a partial
/// value.
/// **Example.**
///
///     from_step(comm, next, layout_of_output<step, 0>(balanced{}), strided_view(mine, {rows, 64}));
template <communicator Comm, class T, placement... P, class View>
  requires(detail::is_block_of_step<View> && std::is_same_v<typename View::element, T>)
void from_step(Comm& comm, const sharded_array<T>& from, const placed_layout<P...>& layout, const View& mine) {
  const detail::external_block block(mine);
  detail::require_one_device("from_step", comm.local_count());
  const auto& tables = layout.tables();
  require_devices(comm, static_cast<int>(tables.mesh.device_count()));
  detail::require_block_shape("from_step", tables, comm.device(0), block.shape());
  if (!block.has_own_elements())
    throw error("from_step: several indices of the view given have the same element: " + block.text());
  detail::exchange_views(comm, detail::tables_of(from.mesh(), from.planned()),
                         detail::external_block(detail::dense_memory(from.data(), from.local_shape()), sizeof(T)), tables, block);
}

}  // namespace gspmd
