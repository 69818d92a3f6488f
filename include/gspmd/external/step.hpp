// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/extend/edge.hpp"
#include "gspmd/external/whole.hpp"
#include "gspmd/run/compile.hpp"

namespace gspmd {
namespace detail {

/// Returns the pointer to the elements of a dense shard, or null if the shard has no pointer.
template <class Leaf>
const void* begin_of(const Leaf& leaf) {
  if constexpr (std::is_pointer_v<Leaf>) return leaf;
  else if constexpr (requires { static_cast<const void*>(leaf.data()); }) return leaf.data();
  else return nullptr;
}

}  // namespace detail

/// A compiled step that takes views of external memory as shards: a strided_view, or a view with an edge of your own
/// (gspmd/extend/edge.hpp). A view has the local extents. If this device holds less along a dim, the view can also have
/// only the elements of the device.
///
/// A shard that is dense, row-major and of the local extents is used in place. The device copies other inputs before
/// the step and other results after it. The copies are in memory of this object, which stays for the next call. If
/// results are copied, they can be in the memory of an input, even if step::can_alias is false.
///
/// **Errors.** Throws gspmd::error: the errors of the step; a view of another shape; results that share elements. If
/// the step throws, no result is copied.
/// **Threads.** Like the step.
/// **Example.**
///
///     strided_step<step> s;
///     s(comm, strided_view(u, {52, 66}).interior({1, 1}), strided_view(next, {52, 66}).interior({1, 1}));
///     s.copied_bytes();                        // 2 * 50 * 64 * 8
template <class Step>
class strided_step {
 public:
  /// Runs the step: see compile::operator(). Either all leaves of a group are views, or none. Collective.
  template <communicator Comm, class... Shards>
  void operator()(Comm& comm, Shards&&... shards) {
    static_assert((detail::accept_views<std::remove_cvref_t<Shards>>() && ...));
    const auto used = use_.take();
    using given = std::tuple<std::remove_cvref_t<Shards>...>;
    constexpr auto leaves = detail::leaf_count<given>();
    if constexpr (leaves == Step::input_count + Step::output_count) {
      if constexpr ((detail::has_block_of_step<std::remove_cvref_t<Shards>>() || ...))
        if (comm.local_count() != 1) detail::throw_several_devices(static_cast<std::size_t>(comm.local_count()));
      copies_.begin(Step::view, comm.device(0));
      [&]<std::size_t... K>(std::index_sequence<K...>) {
        std::tuple<kept<decltype(dense<detail::leaves_before<given, K>()>(shards))>...> all{
            dense<detail::leaves_before<given, K>()>(shards)...};
        copies_.check_results();
        std::apply([&](auto&... each) { step_(comm, each...); }, all);
      }(std::index_sequence_for<Shards...>{});
      copies_.put_back();
    } else {
      step_(comm, shards...);  // reports the mistake
    }
  }
  /// Returns the bytes that the last call copied, in and out. Returns 0 if all shards were used in place.
  [[nodiscard]] std::int64_t copied_bytes() const { return copies_.copied_bytes(); }

 private:
  /// Makes a pointer to const elements const itself, so that the step reports a const result.
  template <class Dense>
  using kept = std::conditional_t<std::is_const_v<std::remove_pointer_t<Dense>>, const Dense, Dense>;
  /// Returns the shard, or the group of shards, that begins at leaf `K`, with pointers instead of views.
  template <std::size_t K, class Given>
  decltype(auto) dense(Given& given) {
    using plain = std::remove_cv_t<Given>;
    std::size_t k = K;
    if constexpr (detail::has_block_of_step<plain>()) {
      return transform_leaves(
          [&]<class Leaf>(const Leaf& leaf) {
            static_assert(
                detail::is_block_of_step<Leaf>,
                "gspmd: strided_step: in a group of shards one is a view of external memory, such as a strided_view, and "
                "another one is not; pass views for all of them");
            if constexpr (detail::is_block_of_step<Leaf>)
              return static_cast<typename Leaf::element*>(copies_.take(k++, detail::external_block(leaf)));
          },
          given);
    } else {
      detail::for_each_leaf(given, [&](const auto& leaf) { copies_.note(k++, detail::begin_of(leaf)); });
      return (given);
    }
  }

  Step step_;
  detail::dense_copies copies_;
  detail::exclusive_use use_;
};

}  // namespace gspmd
