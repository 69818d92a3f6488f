// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/transport/exclusive_use.hpp"
#include "gspmd/strided/placed_leaves.hpp"
#include "gspmd/strided/step.hpp"

namespace gspmd {

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
    placed_.begin("placed_step", Step::view);
    [&]<std::size_t... K>(std::index_sequence<K...>) {
      // braces: collectives in the order of the arguments
      std::tuple<decltype(bring<detail::leaves_before<given, K>()>(comm, shards))...> all{
          bring<detail::leaves_before<given, K>()>(comm, shards)...};
      (list_results<detail::leaves_before<given, K>()>(shards), ...);
      placed_.check_results();
      std::apply([&](auto&... each) { step_(comm, each...); }, all);
      (take_back<detail::leaves_before<given, K>()>(comm, shards), ...);
    }(std::index_sequence_for<Shards...>{});
  }
  /// The bytes that this device sent in the last call for placed_views, and that it copied for strided_views.
  [[nodiscard]] std::int64_t bytes_sent() const { return placed_.bytes_sent(); }
  [[nodiscard]] std::int64_t copied_bytes() const { return step_.copied_bytes(); }

 private:
  static constexpr std::size_t leaf_count = Step::input_count + Step::output_count;

  /// Notes the memory of the results among the leaves of an argument, the first of which is leaf `K`.
  template <std::size_t K, class Given>
  void list_results(const Given& given) {
    std::size_t k = K;
    detail::for_each_leaf(given, [&]<class Leaf>(const Leaf& leaf) {
      const auto n = k++;
      if (n < Step::input_count || n >= leaf_count) return;
      if constexpr (detail::is_placed_view<Leaf>) placed_.note_result(n, leaf);
      else if constexpr (detail::is_strided_view<Leaf>) placed_.note_result(n, detail::memory_of(leaf));
      else
        placed_.note_result(
            n, detail::dense_memory(detail::begin_of(leaf), Step::view.value(Step::view.outputs[n - Step::input_count]).local));
    });
  }
  /// A pointer to the shard of leaf `K` in the place of a placed_view.
  template <std::size_t K, class Comm, class Given>
  decltype(auto) bring(Comm& comm, Given& given) {
    using plain = std::remove_cv_t<Given>;
    if constexpr (detail::is_placed_view<plain> && K < leaf_count) {
      static_assert(K < Step::input_count || !std::is_const_v<typename plain::element>,
                    "gspmd: placed_step: a result is written and the view given is of const elements");
      return placed_.bring(comm, K, given);
    } else {
      return (given);
    }
  }
  template <std::size_t K, class Comm, class Given>
  void take_back(Comm& comm, const Given& given) {
    if constexpr (detail::is_placed_view<Given> && K >= Step::input_count && K < leaf_count) placed_.take_back(comm, K, given);
  }

  strided_step<Step> step_;
  detail::placed_leaves placed_;
  detail::exclusive_use use_;
};

}  // namespace gspmd
