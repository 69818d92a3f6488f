// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "gspmd/external/blocks.hpp"
#include "gspmd/external/detail/view_exchange.hpp"
#include "gspmd/external/shards.hpp"

namespace gspmd {
template <class T, placement... P>
class placed_view;
namespace detail {

/// The edge of placed_view.
template <class T, placement... P>
struct placed_edge : strided_edge<T> {
  static constexpr const char* name = "placed_view";
  using view = placed_view<T, P...>;
  static strided_elements<T> memory(const view& x) { return strided_edge<T>::memory(x.block()); }
  static const placed_layout<P...>& layout(const view& x) { return x.layout(); }
};

}  // namespace detail

/// The block of this device in another distribution than that of a step, in external memory. Pass it to a step or a
/// session as a shard: see external/shards.hpp. The messages and their receivers are found in the first call with a
/// layout, and kept. So keep the layout.
///
/// **Communication.** Collective. Each element that is on another device in the step's sharding is sent once, before or
/// after the step. The other elements are copied.
/// **Errors.** Throws gspmd::error: the errors of to_step and from_step.
/// **Example.**
///
///     const auto theirs = layout_of_input<step, 0>(balanced{});
///     s(comm, placed_view(theirs, strided_view(u, {rows, 64})), placed_view(theirs, strided_view(next, {rows, 64})));
///     s.bytes_sent();                          // by this device, for both, in the last call
template <class T, placement... P>
class placed_view {
 public:
  using element = T;
  using edge = detail::placed_edge<T, P...>;
  placed_view(const placed_layout<P...>& layout, const strided_view<T>& block) : layout_(layout), block_(block) {}
  [[nodiscard]] const placed_layout<P...>& layout() const { return layout_; }
  [[nodiscard]] const strided_view<T>& block() const { return block_; }

 private:
  placed_layout<P...> layout_;
  strided_view<T> block_;
};

namespace detail {

/// The views in a call with views that have their own layouts. Converts these views to dense shards and back.
class placed_leaves : public strided_leaves {
 public:
  placed_leaves() { keeps_messages = true; }
  void begin(const plan_view& plan, int device) {
    strided_leaves::begin(plan, device);
    plan_ = &plan;
    leaves_.resize(plan.inputs.size() + plan.outputs.size());
    for (auto& l : leaves_) l.is_placed = false;
  }
  template <class Comm, class View>
  typename View::element* take(Comm& comm, std::size_t k, const View& view) {
    if constexpr (has_own_layout<View>) return bring(comm, k, view);
    else return strided_leaves::take(comm, k, view);
  }
  void check_results(const plan_view& plan, const given_memory& given) {
    strided_leaves::check_results(plan, given);
    check_placed_results();
  }
  /// Writes the results to their views. Collective.
  template <class Comm, class... Shards>
  void put_back(Comm& comm, const Shards&... shards) {
    strided_leaves::put_back(comm);
    std::size_t k = 0;
    const auto take_back = [&]<class Leaf>(const Leaf& given) {
      if constexpr (has_own_layout<Leaf>)
        if (is_result(k)) {
          const auto shard = shard_of(k);
          const external_block theirs(given);
          leaves_[k].moved->run(comm, theirs.elem_bytes(), &shard, &theirs);
        }
      ++k;
    };
    (for_each_leaf(shards, take_back), ...);
  }

 protected:
  [[nodiscard]] strided_memory memory_of(std::size_t k) const {
    return leaves_[k].is_placed ? leaves_[k].given : strided_leaves::memory_of(k);
  }

 private:
  [[nodiscard]] bool is_result(std::size_t k) const { return k >= plan_->inputs.size(); }
  /// Throws gspmd::error if the result of a placed_view overlaps another result. (The step checks results that are no
  /// placed_views.)
  void check_placed_results() const {
    const auto inputs = plan_->inputs.size();
    const auto is_known = [](const strided_memory& m) { return m.data != nullptr && has_own_elements(m); };
    for (std::size_t a = inputs; a < leaves_.size(); ++a)
      for (std::size_t b = inputs; b < a; ++b) {
        if (!leaves_[a].is_placed && !leaves_[b].is_placed) continue;
        const auto x = memory_of(a), y = memory_of(b);
        if (is_known(x) && is_known(y) && shared_elements::any(x, bytes_of(value(a).type), y, bytes_of(value(b).type)))
          throw error("step: outputs " + std::to_string(b - inputs) + " and " + std::to_string(a - inputs) +
                      " are given memory that overlaps, or whose strides differ so that gspmd cannot exclude an overlap; every "
                      "output needs memory of its own");
      }
  }

  /// Returns the shard of leaf `k` in dense memory of this object: the elements of an input, or memory for a result.
  /// Collective.
  template <class Comm, class View>
  typename View::element* bring(Comm& comm, std::size_t k, const View& given) {
    require_devices(comm, static_cast<int>(plan_->mesh->device_count()));
    auto& mine = leaves_[k];
    is_view_[k] = mine.is_placed = true;
    const auto& layout = View::edge::layout(given);
    const auto& tables = layout.tables();
    const external_block theirs(given);
    require_block_shape("step", tables, comm.device(0), theirs.shape());
    if (is_result(k) && !theirs.has_own_elements())
      throw error(leaf_text(*plan_, k) +
                  " is written, and several indices of the view given have the same element: " + theirs.text());
    mine.given = theirs.memory();
    if (mine.tables != &tables || mine.device != comm.device(0)) find(comm, k, layout);
    bytes_sent += mine.bytes;
    const auto shard = shard_of(k);
    if (!is_result(k)) mine.moved->run(comm, theirs.elem_bytes(), &theirs, &shard);
    return reinterpret_cast<typename View::element*>(mine.dense.get());
  }

  struct leaf {
    bool is_placed = false;
    strided_memory given;  // the caller's
    std::unique_ptr<view_exchange> moved;
    std::shared_ptr<const void> layout;  // the layout of `moved`; kept alive, so that no other layout has its address
    const placed_tables* tables = nullptr;
    int device = -1;
    std::int64_t bytes = 0;
    aligned_bytes dense;
  };
  [[nodiscard]] const planned_value& value(std::size_t k) const {
    const auto inputs = plan_->inputs.size();
    return plan_->value(k < inputs ? plan_->inputs[k] : plan_->outputs[k - inputs]);
  }
  [[nodiscard]] external_block shard_of(std::size_t k) const {
    return {dense_memory(leaves_[k].dense.get(), value(k).local), bytes_of(value(k).type)};
  }
  template <class Comm, class Layout>
  void find(Comm& comm, std::size_t k, const Layout& layout) {
    auto& mine = leaves_[k];
    const auto& v = value(k);
    const auto kept = std::make_shared<const Layout>(layout);
    const auto& theirs = kept->tables();
    const auto ours = tables_of(*plan_->mesh, v);
    const auto &from = is_result(k) ? ours : theirs, &to = is_result(k) ? theirs : ours;
    require_same_tensor(from, to);
    mine.tables = nullptr;  // until everything is found
    mine.moved =
        std::make_unique<view_exchange>(comm, [&](std::int64_t a, std::int64_t b) { return boxes_between(from, to, a, b); });
    mine.bytes = 0;
    for (int d = 0; d < comm.device_count(); ++d)
      if (d != comm.device(0)) mine.bytes += elements(boxes_between(from, to, comm.device(0), d)) * bytes_of(v.type);
    mine.dense = aligned_bytes(elements(v.local) * bytes_of(v.type), "a shard of a step");
    mine.layout = kept;
    mine.device = comm.device(0);
    mine.tables = &theirs;
  }

  const plan_view* plan_ = nullptr;
  std::vector<leaf> leaves_;
};

template <class Comm>
struct leaves_with_layouts {
  using type = placed_leaves;
};

}  // namespace detail
}  // namespace gspmd
