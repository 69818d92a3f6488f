// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/edge/view_exchange.hpp"
#include "gspmd/detail/transport/exclusive_use.hpp"
#include "gspmd/strided/blocks.hpp"
#include "gspmd/strided/step.hpp"

namespace gspmd {

/// The block that this device has of a tensor that is dealt by another rule than a step's, in memory of the caller's: see placed_step.
///
///     placed_view(layout_of_input<step, 0>(balanced{}), strided_view(mine, {rows, 64}))
template <class T, placement... P>
class placed_view {
 public:
  using element = T;
  placed_view(const placed_layout<P...>& layout, const strided_view<T>& block) : layout_(layout), block_(block) {}
  [[nodiscard]] const placed_layout<P...>& layout() const { return layout_; }
  [[nodiscard]] const strided_view<T>& block() const { return block_; }

 private:
  placed_layout<P...> layout_;
  strided_view<T> block_;
};

namespace detail {
template <class Leaf>
inline constexpr bool is_placed_view = false;
template <class T, placement... P>
inline constexpr bool is_placed_view<placed_view<T, P...>> = true;
}  // namespace detail

/// A strided_step that takes placed_views too, of inputs and of results: each element that the step's sharding has elsewhere is sent once,
/// before the step or after it, and what stays is copied. What is sent and to whom is found in the first call with a layout, and kept.
///
///     placed_step<step> s;
///     s(comm, placed_view(theirs, u), placed_view(theirs, next));     // `theirs` is kept by the caller, else it is found again
///     s.bytes_sent();                                                 // by this device, for both, in the last call
///
/// Threads: as the step. Throws gspmd::error: what to_step, from_step and strided_step throw. Collective.
template <class Step>
class placed_step {
 public:
  template <communicator Comm, class... Shards>
  void operator()(Comm& comm, Shards&&... shards) {
    using given = std::tuple<std::remove_cvref_t<Shards>...>;
    const auto used = use_.take();
    bytes_sent_ = 0;
    [&]<std::size_t... K>(std::index_sequence<K...>) {
      // braces: collectives in the order of the arguments
      std::tuple<decltype(bring<detail::leaves_before<given, K>()>(comm, shards))...> all{
          bring<detail::leaves_before<given, K>()>(comm, shards)...};
      std::array<given_result, Step::output_count> results;
      (list_results<detail::leaves_before<given, K>()>(results, shards), ...);
      check_results(results);
      std::apply([&](auto&... each) { step_(comm, each...); }, all);
      (take_back<detail::leaves_before<given, K>()>(comm, shards), ...);
    }(std::index_sequence_for<Shards...>{});
  }
  /// The bytes that this device sent in the last call for placed_views, and that it copied for strided_views.
  [[nodiscard]] std::int64_t bytes_sent() const { return bytes_sent_; }
  [[nodiscard]] std::int64_t copied_bytes() const { return step_.copied_bytes(); }

 private:
  static constexpr std::size_t leaf_count = Step::input_count + Step::output_count;
  struct leaf {
    std::unique_ptr<detail::view_exchange> moved;
    std::shared_ptr<const void> layout;  // for which it was found: kept, so that no other one has its address
    const detail::placed_tables* tables = nullptr;
    int device = -1;
    std::int64_t bytes = 0;
    detail::aligned_bytes dense;
  };

  struct given_result {
    detail::strided_memory memory;
    bool is_placed = false;
  };

  template <std::size_t K>
  static const detail::planned_value& value() {
    if constexpr (K < Step::input_count) return Step::view.value(Step::view.inputs[K]);
    else return Step::view.value(Step::view.outputs[K - Step::input_count]);
  }

  /// The memory of the results among the leaves of an argument, the first of which is leaf `K`.
  template <std::size_t K, class Given>
  static void list_results(std::array<given_result, Step::output_count>& results, const Given& given) {
    std::size_t k = K;
    detail::for_each_leaf(given, [&]<class Leaf>(const Leaf& leaf) {
      const auto n = k++ - Step::input_count;
      if (n >= results.size()) return;  // an input, or one too many
      if constexpr (detail::is_placed_view<Leaf>) results[n] = {detail::memory_of(leaf.block()), true};
      else if constexpr (detail::is_strided_view<Leaf>) results[n].memory = detail::memory_of(leaf);
      else results[n].memory = detail::dense_memory(detail::begin_of(leaf), Step::view.value(Step::view.outputs[n]).local);
    });
  }
  /// Throws gspmd::error: the result of a placed_view lies on another one. (Of the others the step knows it.)
  static void check_results(const std::array<given_result, Step::output_count>& results) {
    const auto bytes = [](std::size_t n) { return detail::bytes_of(Step::view.value(Step::view.outputs[n]).type); };
    const auto is_known = [](const detail::strided_memory& m) { return m.data != nullptr && detail::has_own_elements(m); };
    for (std::size_t a = 0; a < results.size(); ++a)
      for (std::size_t b = 0; b < a; ++b) {
        const auto &x = results[a], &y = results[b];
        if ((!x.is_placed && !y.is_placed) || !is_known(x.memory) || !is_known(y.memory)) continue;
        if (detail::shared_elements::any(x.memory, bytes(a), y.memory, bytes(b)))
          throw error("placed_step: outputs " + std::to_string(b) + " and " + std::to_string(a) +
                      " are given memory that overlaps, or that cannot be told from such since their strides differ; every "
                      "output needs memory of its own");
      }
  }

  /// A pointer to the shard of leaf `K` in the place of a placed_view.
  template <std::size_t K, class Comm, class Given>
  decltype(auto) bring(Comm& comm, Given& given) {
    using plain = std::remove_cv_t<Given>;
    if constexpr (detail::is_placed_view<plain> && K < leaf_count) {
      using element = typename plain::element;
      static_assert(K < Step::input_count || !std::is_const_v<element>,
                    "gspmd: placed_step: a result is written and the view given is of const elements");
      const auto& v = value<K>();
      auto& mine = leaves_[K];
      require_devices(comm, Step::device_count);
      detail::require_one_device("placed_step", comm.local_count());
      const auto& tables = given.layout().tables();
      detail::require_block_shape("placed_step", tables, comm.device(0), given.block().shape());
      if (K >= Step::input_count && !detail::has_own_elements(detail::memory_of(given.block())))
        throw error("placed_step: several indices of the view given have the same element: " + given.block().text());
      if (mine.tables != &tables || mine.device != comm.device(0)) find(comm, v, given.layout(), mine, K < Step::input_count);
      bytes_sent_ += mine.bytes;
      const auto shard = detail::dense_memory(mine.dense.get(), v.local);
      const auto theirs = detail::memory_of(given.block());
      if constexpr (K < Step::input_count) mine.moved->run(comm, sizeof(element), &theirs, &shard);
      return reinterpret_cast<element*>(mine.dense.get());
    } else {
      return (given);
    }
  }
  template <std::size_t K, class Comm, class Given>
  void take_back(Comm& comm, const Given& given) {
    if constexpr (detail::is_placed_view<Given> && K >= Step::input_count && K < leaf_count) {
      const auto shard = detail::dense_memory(leaves_[K].dense.get(), value<K>().local);
      const auto theirs = detail::memory_of(given.block());
      leaves_[K].moved->run(comm, sizeof(typename Given::element), &shard, &theirs);
    }
  }
  template <class Comm, class Layout>
  static void find(Comm& comm, const detail::planned_value& v, const Layout& layout, leaf& mine, bool is_input) {
    const auto kept = std::make_shared<const Layout>(layout);
    const auto& theirs = kept->tables();
    const auto ours = detail::tables_of(*Step::view.mesh, v);
    const auto &from = is_input ? theirs : ours, &to = is_input ? ours : theirs;
    detail::require_same_tensor(from, to);
    mine.tables = nullptr;  // until all is found
    mine.moved = std::make_unique<detail::view_exchange>(
        comm, [&](std::int64_t a, std::int64_t b) { return detail::boxes_between(from, to, a, b); });
    mine.bytes = 0;
    for (int k = 0; k < comm.device_count(); ++k)
      if (k != comm.device(0))
        mine.bytes += detail::elements(detail::boxes_between(from, to, comm.device(0), k)) * detail::bytes_of(v.type);
    mine.dense = detail::aligned_bytes(detail::elements(v.local) * detail::bytes_of(v.type), "a shard of a step");
    mine.layout = kept;
    mine.device = comm.device(0);
    mine.tables = &theirs;
  }

  strided_step<Step> step_;
  std::array<leaf, leaf_count> leaves_;
  std::int64_t bytes_sent_ = 0;
  detail::exclusive_use use_;
};

}  // namespace gspmd
