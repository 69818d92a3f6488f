// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/compile.hpp"
#include "gspmd/detail/driver/given_plan.hpp"
#include "gspmd/detail/edge/ghost_ends.hpp"
#include "gspmd/detail/ir/may_overwrite.hpp"
#include "gspmd/detail/run/checked_memory.hpp"
#include "gspmd/detail/run/given_rows.hpp"
#include "gspmd/detail/transport/exclusive_use.hpp"
#include "gspmd/strided/ghost_exchange.hpp"
#include "gspmd/strided/taken_shards.hpp"

namespace gspmd {

/// How many ghost layers lie before a block along a dim, and behind it; a number: as many on both sides.
struct layers {
  std::int64_t low, high;
  constexpr layers(int both) : low(both), high(both) {}  // NOLINT: implicit on purpose
  constexpr layers(int before, int behind) : low(before), high(behind) {}
};

/// The ghost layers of a shard, by dim: see ghosted_step. `ghosts<>`: it is a dense shard, or copied.
///
///     ghosts<1, 1>                       a layer on all four sides
///     ghosts<layers{2, 0}, 0>            two rows before it
template <layers... Widths>
struct ghosts {
  static constexpr int rank = sizeof...(Widths);
  static constexpr detail::given_layers given = [] {
    detail::given_layers all;
    all.is_given = rank > 0;
    (all.low.push_back(Widths.low), ...);
    (all.high.push_back(Widths.high), ...);
    return all;
  }();
  static constexpr bool is_any = ((Widths.low != 0 || Widths.high != 0) || ...);
  static_assert(((Widths.low >= 0 && Widths.high >= 0) && ...), "gspmd: ghosts: a width is negative");
};

/// A block whose ghost layers the step fills before it reads them: see filled.
template <class T>
struct filled_view {
  using element = T;
  strided_view<T> block;
};
/// A block whose ghost layers the step is to fill, for ghosted_step.
///
///     s(comm, filled(u), next);
template <class T>
[[nodiscard]] filled_view<T> filled(const strided_view<T>& block) {
  static_assert(!std::is_const_v<T>, "gspmd: filled: ghost layers are written and the view given is of const elements");
  return {block};
}

namespace detail {

template <class Leaf>
inline constexpr bool is_filled_view = false;
template <class T>
inline constexpr bool is_filled_view<filled_view<T>> = true;

/// The layers of the inputs and outputs of a step, as far as they are listed.
template <class Step, class... Ghosts>
struct listed_layers {
  static_assert(sizeof...(Ghosts) <= Step::input_count + Step::output_count,
                "gspmd: ghosted_step: more ghosts<> are listed than the step has inputs and outputs");
  static constexpr std::array<given_layers, sizeof...(Ghosts)> layers{Ghosts::given...};
  static constexpr bool fits = [] {
    for (std::size_t k = 0; k < layers.size(); ++k) {
      const int value = k < Step::input_count ? Step::view.inputs[k] : Step::view.outputs[k - Step::input_count];
      if (layers[k].is_given && layers[k].low.count != Step::view.value(value).global.count) return false;
    }
    return true;
  }();
  static_assert(fits, "gspmd: ghosted_step: ghosts<> has a width, or layers{low, high}, for each dim of its input or output");
};

template <class Step>
struct passes_of_step;
template <constant_callable Callable, class Mesh, class... Inputs>
struct passes_of_step<compile<Callable, Mesh, Inputs...>> {
  using type = typename static_plan<callable_argument<Callable>(), Mesh, Inputs...>::passes;
};

}  // namespace detail

/// A compiled step that reads its inputs among ghost layers of the caller's, and writes its results into such blocks: without a halo of
/// its own and without a copy. `Ghosts` are the layers of the inputs, then of the outputs; those that are not listed, and ghosts<>, are
/// shards as a strided_step takes them.
///
///     using step = compile<heat, mesh<axis<"x", 2>>, in<double, dims<100, 64>, split<"x", _>>>;
///     ghosted_step<step, ghosts<1, 1>, ghosts<1, 1>> s;
///     s(comm, strided_view(u, {52, 66}), strided_view(next, {52, 66}));           // u's layers are valid: nothing is sent
///     s(comm, filled(strided_view(u, {52, 66})), strided_view(next, {52, 66}));   // the step fills them first
///
/// A view has what the device holds of the shard, no padding, and the layers around it, rows any distance apart; its last dim is dense. An input's
/// layers must reach as far as the program reads, and hold what it reads there: elements of other devices, and beyond the ends of the
/// tensor what the program's boundary says. What else lies there is read all the same: boundary values that you keep in the layers take the
/// place of the program's. `filled` has the neighbours' elements brought, corners too, in one exchange, and writes the boundary. Layers of results
/// stay as they are.
///
/// In place are inputs that elementwise operators, and reductions of what they compute, read, stencils and shifts by no more than the layers; and results
/// that elementwise operators make. Other results are copied: copied_bytes(). `traffic` is what the step sends besides what `filled` sends,
/// which is bytes_filled(device). Plans are made again from where operators become loops.
///
/// Threads: as the step. Throws gspmd::error: a view of another shape, or whose last dim is not dense; results over inputs or each other;
/// layers that are filled, over another input, unless both are one block and filled alike; several devices in one communicator; what the step throws. Errors, at compile time: an input with ghosts<> that is read in
/// another way, or farther; `filled` where two operators go on differently beyond one end. Collective.
template <class Step, class... Ghosts>
class ghosted_step {
  using listed = detail::listed_layers<Step, Ghosts...>;
  static_assert(listed::fits || true);
  using program = typename detail::given_plan<typename detail::passes_of_step<Step>::type, listed>::type;
  static_assert(!program::view.is_checked,
                "gspmd: ghosted_step: a checked mesh compares dense shards; give the step itself to it");
  static constexpr std::size_t leaf_count = Step::input_count + Step::output_count;
  static constexpr auto& in_place = program::given::layers;

 public:
  static constexpr const detail::plan_view& view = program::view;
  /// The traffic of a device in a call, but for `filled`.
  static constexpr gspmd::traffic traffic{program::view, program::mesh::info};

  template <communicator Comm, class... Shards>
  void operator()(Comm& comm, Shards&&... shards) {
    const auto used = bound_.take();
    if (comm.local_count() != 1) detail::throw_several_devices(static_cast<std::size_t>(comm.local_count()));
    require_devices(comm, Step::device_count);
    shards_.begin("ghosted_step", view, program::mesh::info, comm.device(0), check_array);
    [&]<std::size_t... K>(std::index_sequence<K...>) {
      (take<detail::leaves_before<std::tuple<std::remove_cvref_t<Shards>...>, K>()>(comm, shards), ...);
    }(std::index_sequence_for<Shards...>{});
    shards_.finish();
    check_memory();
    for (std::size_t k = 0; k < to_fill_.size(); ++k)
      if (to_fill_[k]) fill(comm, k);
    bound_.bind(comm, view);
    auto& device = bound_.devices[0];
    device.inputs = shards_.inputs();
    device.outputs = shards_.outputs();
    const detail::given_rows rows{strides_.data(), &detail::placed_later, detail::place_given_rows};
    device.given = &rows;
    detail::run_static<program>(comm, bound_.devices.data(), bound_.from.data(), bound_.to.data());
    shards_.put_back();
  }
  /// The bytes that the last call copied of shards that are not in place, in and out.
  [[nodiscard]] std::int64_t copied_bytes() const { return shards_.copied_bytes(); }
  /// Whether input or output `k`, counted from the inputs on, is read or written where it is.
  static constexpr bool is_in_place(std::size_t k) { return k < in_place.size() && in_place[k].is_given; }
  /// The bytes that a device sends to fill the layers of input `k`.
  [[nodiscard]] static std::int64_t bytes_filled(std::size_t k, int device) {
    return exchange_of(k).bytes_sent(device, detail::bytes_of(Step::view.value(Step::view.inputs[k]).type));
  }

 private:
  static void check_array(const detail::plan_view& plan, const detail::mesh_info& mesh, std::size_t leaf, int count,
                          const detail::planned_value& has, const detail::mesh_shape& on) {
    detail::check_shards(plan, mesh, leaf, 1, count, has, on);
  }

  static constexpr auto ends = detail::find_read_ends<Step::input_count>(detail::passes_of_step<Step>::type::program());
  static constexpr bool ends_differ(std::size_t k) {
    for (const auto& dim : ends.of[k])
      for (const auto& end : dim)
        if (end.differs) return true;
    return false;
  }
  static constexpr bool can_fill(std::size_t k) { return !ends_differ(k) && detail::are_reads_known(view, ends, k); }

  /// The leaves of an argument, the first of which is leaf `K`.
  template <std::size_t K, class Comm, class Given>
  void take(Comm& comm, Given& given) {
    if constexpr (detail::is_filled_view<std::remove_cv_t<Given>>) {
      static_assert(K < Step::input_count && K < sizeof...(Ghosts), "gspmd: ghosted_step: filled() is for inputs with ghosts<>");
      if constexpr (K < Step::input_count) {
        static_assert(!ends_differ(K),
                      "gspmd: ghosted_step: operators of the program go on differently beyond one end of a dim, so that no layer "
                      "can hold what all read there; fill the layers yourself, or use one boundary");
        static_assert(ends_differ(K) || can_fill(K),
                      "gspmd: ghosted_step: an operator between the input and a shift of it hides what is read beyond the ends "
                      "of the tensor; fill the layers yourself, or shift the input itself");
      }
    }
    std::size_t k = K;
    detail::for_each_leaf(given, [&]<class Leaf>(Leaf& leaf) {
      using plain = std::remove_cv_t<Leaf>;
      if (k < leaf_count) {
        blocks_[k].data = nullptr;
        to_fill_[k] = false;
      }
      const bool has_layers = k < sizeof...(Ghosts) && listed::layers[k].is_given;
      if constexpr (detail::is_filled_view<plain>) {
        if (k >= Step::input_count || !has_layers || !can_fill(k))
          throw error(
              "ghosted_step: filled() is for inputs with ghosts<>, beyond whose ends all operators are known to go on alike; "
              "leaf " +
              std::to_string(k) + " is none");
        to_fill_[k] = is_in_place(k);
        take_block(comm, k, leaf.block);
      } else if constexpr (detail::is_strided_view<plain>) {
        if (has_layers) take_block(comm, k, leaf);
        else shards_.add(leaf);
      } else {
        if (has_layers) throw error(detail::leaf_text(view, k) + " has ghost layers; give a strided_view of it with them");
        shards_.add(leaf);
      }
      ++k;
    });
  }
  template <class Comm, class T>
  void take_block(Comm& comm, std::size_t k, const strided_view<T>& block) {
    const auto& wanted = listed::layers[k];
    check_shape(k, comm.device(0), block);
    detail::extents shape = block.shape();
    for (int d = 0; d < shape.count; ++d) shape[d] -= wanted.low[d] + wanted.high[d];
    auto inner = block.part(wanted.low, shape);
    if (!is_in_place(k)) return shards_.add(inner);
    const int last = block.rank() - 1;
    if (block.stride(last) != 1 && block.extent(last) > 1)
      throw error(detail::leaf_text(view, k) + " lies among ghost layers, and the last dim of the view given is not dense: " +
                  block.text() + "; turn it around with reversed(), and the program's dims with it");
    if ((k >= Step::input_count || to_fill_[k]) && !detail::has_own_elements(detail::memory_of(block)))
      throw error(detail::leaf_text(view, k) +
                  " is written, and several indices of the view given have the same element: " + block.text());
    shards_.template add_in_place<T>(inner.data());
    strides_[k] = block.strides();
    blocks_[k] = detail::memory_of(k < Step::input_count ? block : inner);
  }
  template <class T>
  static void check_shape(std::size_t k, int device, const strided_view<T>& block) {
    const auto& v = k < Step::input_count ? Step::view.value(Step::view.inputs[k])
                                          : Step::view.value(Step::view.outputs[k - Step::input_count]);
    const auto at = Step::view.mesh->coordinates_of(device);
    detail::extents wanted;
    for (int d = 0; d < v.global.count; ++d)
      wanted.push_back(detail::dim_range(*Step::view.mesh, v.global, v.layout, d, at).size() + listed::layers[k].low[d] +
                       listed::layers[k].high[d]);
    if (block.shape() == wanted) return;
    throw error(detail::leaf_text(view, k) + " with its ghost layers is " + std::string(detail::shape_text(wanted).view()) +
                " on device " + std::to_string(device) + ", and the view given is " +
                std::string(detail::shape_text(block.shape()).view()));
  }
  /// Throws gspmd::error: a leaf without memory; a result lies on another one, or on an input that is read where it is; the layers that are
  /// filled for an input lie on another one.
  void check_memory() {
    for (std::size_t k = 0; k < leaf_count; ++k) {
      places_[k] = is_in_place(k) ? blocks_[k] : shards_.given(k);
      if (places_[k].data == nullptr && detail::elements(places_[k].shape) > 0) detail::throw_no_memory(view, k);
    }
    if (places_ == checked_ && to_fill_ == checked_to_fill_) return;
    for (std::size_t a = Step::input_count; a < leaf_count; ++a)
      for (std::size_t b = 0; b < a; ++b)
        if (overlap(a, b))
          throw error(detail::leaf_text(view, a) + " is given memory that overlaps " +
                      (b < Step::input_count ? "input " + std::to_string(b) : "output " + std::to_string(b - Step::input_count)) +
                      ", or that cannot be told from such since their strides differ; a result needs memory of its own");
    for (std::size_t k = 0; k < Step::input_count; ++k)
      for (std::size_t j = 0; j < Step::input_count && to_fill_[k]; ++j)
        if (j != k && !is_copied(j) && !is_filled_alike(k, j) && layers_meet(k, j))
          throw error("ghosted_step: inputs " + std::to_string(k < j ? k : j) + " and " + std::to_string(k < j ? j : k) +
                      " are given blocks that overlap, and their layers are filled differently; give each memory of its own");
    checked_ = places_;
    checked_to_fill_ = to_fill_;
  }
  /// Whether leaf `k` is read before the step, or written after it.
  [[nodiscard]] bool is_copied(std::size_t k) const {
    const void* has = k < Step::input_count ? shards_.inputs()[k] : shards_.outputs()[k - Step::input_count];
    return !is_in_place(k) && has != places_[k].data;
  }
  /// Whether result `a` may not lie where leaf `b` does. (Of results that are copied, and lie on each other, finish has said it.)
  [[nodiscard]] bool overlap(std::size_t a, std::size_t b) const {
    const bool is_input = b < Step::input_count, any_copied = is_copied(a) || is_copied(b);
    const auto &x = places_[a], &y = places_[b];
    const auto bytes = bytes_of_leaf(a), others = bytes_of_leaf(b);
    if (any_copied && (is_input || !(is_in_place(a) || is_in_place(b)))) return false;
    if (is_in_place(a) && is_in_place(b)) return detail::shared_elements::any(x, bytes, y, others);
    if (!detail::shared_elements::in_one_range(x, bytes, y, others)) return false;
    const bool is_same = x.data == y.data && detail::elements(x.shape) * bytes == detail::elements(y.shape) * others;
    return !is_input || is_in_place(a) || is_in_place(b) || !is_same || !detail::may_overwrite(view, a - Step::input_count, b);
  }
  /// Whether inputs are one block, in which filling the layers of one is filling those of the other.
  [[nodiscard]] bool is_filled_alike(std::size_t k, std::size_t j) const {
    return is_in_place(j) && places_[k] == places_[j] && in_place[k].low == in_place[j].low && ends.of[k] == ends.of[j];
  }
  /// Whether the layers around input `k` share elements with input `j`.
  [[nodiscard]] bool layers_meet(std::size_t k, std::size_t j) const {
    detail::extents held = places_[k].shape;
    for (int d = 0; d < held.count; ++d) held[d] -= in_place[k].low[d] + in_place[k].high[d];
    if (detail::elements(held) == 0) return false;  // a device that holds nothing, whose layers nobody fills
    for (int d = 0; d < places_[k].shape.count; ++d)
      for (const bool is_high : {false, true}) {
        detail::strided_memory side = places_[k];
        side.shape[d] = is_high ? in_place[k].high[d] : in_place[k].low[d];
        auto first = detail::extents(side.shape.count, 0);
        if (is_high) first[d] = places_[k].shape[d] - side.shape[d];
        side.data = side.at(first, bytes_of_leaf(k));
        if (detail::shared_elements::any(side, bytes_of_leaf(k), places_[j], bytes_of_leaf(j))) return true;
      }
    return false;
  }
  static std::int64_t bytes_of_leaf(std::size_t k) {
    return detail::bytes_of(
        Step::view.value(k < Step::input_count ? Step::view.inputs[k] : Step::view.outputs[k - Step::input_count]).type);
  }

  static ghost_exchange exchange_of(std::size_t k) {
    const auto& v = Step::view.value(Step::view.inputs[k]);
    std::vector<bool> periodic;
    for (int d = 0; d < v.global.count; ++d) {
      const auto& of = ends.of[k][static_cast<std::size_t>(d)];
      periodic.push_back((of[0].reach > 0 && of[0].beyond == detail::continuation::round) ||
                         (of[1].reach > 0 && of[1].beyond == detail::continuation::round));
    }
    return {detail::tables_of(*Step::view.mesh, v), listed::layers[k].low, listed::layers[k].high, std::move(periodic)};
  }
  struct filler {
    ghost_exchange exchange;
    detail::ghost_ends beyond;
    int device;
  };
  template <class Comm>
  void fill(Comm& comm, std::size_t k) {
    if (!fillers_[k] || fillers_[k]->device != comm.device(0)) {
      const auto& v = Step::view.value(Step::view.inputs[k]);
      std::vector<std::array<detail::beyond_end, 2>> all;
      for (int d = 0; d < v.global.count; ++d) {
        const auto& of = ends.of[k][static_cast<std::size_t>(d)];
        all.push_back({detail::beyond_end{of[0].reach, of[0].beyond, of[0].fill},
                       detail::beyond_end{of[1].reach, of[1].beyond, of[1].fill}});
      }
      fillers_[k].emplace(
          filler{exchange_of(k),
                 {detail::tables_of(*Step::view.mesh, v), comm.device(0), listed::layers[k].low, listed::layers[k].high, all},
                 comm.device(0)});
    }
    fillers_[k]->exchange.fill_memory(comm, blocks_[k], bytes_of_leaf(k));
    fillers_[k]->beyond.fill(blocks_[k], bytes_of_leaf(k));
  }

  detail::bound_devices bound_;
  detail::taken_shards shards_;
  std::array<detail::extents, leaf_count> strides_;
  std::array<detail::strided_memory, leaf_count> blocks_;            // of those in place
  std::array<detail::strided_memory, leaf_count> places_, checked_;  // of all; and those that were found good
  std::array<bool, leaf_count> to_fill_{}, checked_to_fill_{};
  std::array<std::optional<filler>, Step::input_count> fillers_;
};

}  // namespace gspmd
