// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/external/placed_leaves.hpp"
#include "gspmd/external/step.hpp"

namespace gspmd {

/// A strided_step that also takes views of inputs and results with a layout of their own: a placed_view, or a view
/// whose edge states a layout (gspmd/extend/edge.hpp). The messages and their receivers are found in the
/// first call with a layout, and kept.
///
/// **Communication.** Collective. Each element that is on another device in the step's sharding is sent once, before or
/// after the step. The other elements are copied.
/// **Errors.** Throws gspmd::error: the errors of to_step, from_step and strided_step.
/// **Threads.** Like the step.
/// **Example.**
///
///     placed_step<step> s;
///     // keep `theirs`, so that its messages are found only once
///     s(comm, placed_view(theirs, u), placed_view(theirs, next));
///     s.bytes_sent();                                              // by this device, for both, in the last call
template <class Step>
class placed_step {
 public:
  template <communicator Comm, class... Shards>
  void operator()(Comm& comm, Shards&&... shards) {
    static_assert((detail::accept_views<std::remove_cvref_t<Shards>>() && ...));
    using given = std::tuple<std::remove_cvref_t<Shards>...>;
    const auto used = use_.take();
    placed_.begin("placed_step", Step::view);
    [&]<std::size_t... K>(std::index_sequence<K...>) {
      // braces: the collectives run in the order of the arguments
      std::tuple<decltype(bring<detail::leaves_before<given, K>()>(comm, shards))...> all{
          bring<detail::leaves_before<given, K>()>(comm, shards)...};
      (list_results<detail::leaves_before<given, K>()>(shards), ...);
      placed_.check_results();
      std::apply([&](auto&... each) { step_(comm, each...); }, all);
      (take_back<detail::leaves_before<given, K>()>(comm, shards), ...);
    }(std::index_sequence_for<Shards...>{});
  }
  /// Returns the bytes that this device sent in the last call for placed_views. copied_bytes returns the bytes that it
  /// copied for strided_views.
  [[nodiscard]] std::int64_t bytes_sent() const { return placed_.bytes_sent(); }
  [[nodiscard]] std::int64_t copied_bytes() const { return step_.copied_bytes(); }

 private:
  static constexpr std::size_t leaf_count = Step::input_count + Step::output_count;

  /// Stores the memory of the results among the leaves of an argument. The first leaf is leaf `K`.
  template <std::size_t K, class Given>
  void list_results(const Given& given) {
    std::size_t k = K;
    detail::for_each_leaf(given, [&]<class Leaf>(const Leaf& leaf) {
      const auto n = k++;
      if (n < Step::input_count || n >= leaf_count) return;
      if constexpr (detail::has_own_layout<Leaf>) placed_.note_result(n, leaf);
      else if constexpr (detail::is_block_of_step<Leaf>) placed_.note_result(n, detail::external_block(leaf).memory());
      else
        placed_.note_result(
            n, detail::dense_memory(detail::begin_of(leaf), Step::view.value(Step::view.outputs[n - Step::input_count]).local));
    });
  }
  /// Returns a pointer to the shard of leaf `K` instead of a placed_view.
  template <std::size_t K, class Comm, class Given>
  decltype(auto) bring(Comm& comm, Given& given) {
    using plain = std::remove_cv_t<Given>;
    if constexpr (detail::has_own_layout<plain> && K < leaf_count) {
      static_assert(K < Step::input_count || !std::is_const_v<typename plain::element>,
                    "gspmd: placed_step: a result is written and the view given is of const elements");
      return placed_.bring(comm, K, given);
    } else {
      return (given);
    }
  }
  template <std::size_t K, class Comm, class Given>
  void take_back(Comm& comm, const Given& given) {
    if constexpr (detail::has_own_layout<Given> && K >= Step::input_count && K < leaf_count) placed_.take_back(comm, K, given);
  }

  strided_step<Step> step_;
  detail::placed_leaves placed_;
  detail::exclusive_use use_;
};

}  // namespace gspmd
