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

/// The block of this device in another distribution than that of a step, in external memory: see placed_step and
/// placed_session.
///
/// **Example.**
///
///     placed_view(layout_of_input<step, 0>(balanced{}), strided_view(mine, {rows, 64}))
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

/// Converts the placed_views of a call to dense shards and back. The messages and their receivers are found in the
/// first call with a layout, and kept.
class placed_leaves {
 public:
  /// Begins a call. `step` is the name of the object in messages.
  void begin(const char* step, const plan_view& plan) {
    step_ = step;
    plan_ = &plan;
    leaves_.resize(plan.inputs.size() + plan.outputs.size());
    results_.assign(plan.outputs.size(), {});
    bytes_sent_ = 0;
  }
  [[nodiscard]] bool is_leaf(std::size_t k) const { return k < leaves_.size(); }
  [[nodiscard]] bool is_result(std::size_t k) const { return k >= plan_->inputs.size(); }

  /// Stores the memory of a result that is no placed_view. The pointer is null if the memory is unknown.
  void note_result(std::size_t k, const strided_memory& memory) {
    if (is_result(k) && is_leaf(k)) results_[k - plan_->inputs.size()].memory = memory;
  }
  template <class View>
    requires(has_own_layout<View>)
  void note_result(std::size_t k, const View& given) {
    if (is_result(k) && is_leaf(k)) results_[k - plan_->inputs.size()] = {external_block(given).memory(), true};
  }
  /// Throws gspmd::error if the result of a placed_view overlaps another result. (The step checks results that are no
  /// placed_views.)
  void check_results() const {
    const auto bytes = [&](std::size_t n) { return bytes_of(plan_->value(plan_->outputs[n]).type); };
    const auto is_known = [](const strided_memory& m) { return m.data != nullptr && has_own_elements(m); };
    for (std::size_t a = 0; a < results_.size(); ++a)
      for (std::size_t b = 0; b < a; ++b) {
        const auto &x = results_[a], &y = results_[b];
        if ((!x.is_placed && !y.is_placed) || !is_known(x.memory) || !is_known(y.memory)) continue;
        if (shared_elements::any(x.memory, bytes(a), y.memory, bytes(b)))
          throw error(std::string(step_) + ": outputs " + std::to_string(b) + " and " + std::to_string(a) +
                      " are given memory that overlaps, or whose strides differ so that gspmd cannot exclude an overlap; every "
                      "output needs memory of its own");
      }
  }

  /// Returns the shard of leaf `k` in dense memory of this object: the elements of an input, or memory for a result.
  /// Collective.
  template <class Comm, class View>
  typename View::element* bring(Comm& comm, std::size_t k, const View& given) {
    require_devices(comm, static_cast<int>(plan_->mesh->device_count()));
    require_one_device(step_, comm.local_count());
    auto& mine = leaves_[k];
    const auto& layout = View::edge::layout(given);
    const auto& tables = layout.tables();
    const external_block theirs(given);
    require_block_shape(step_, tables, comm.device(0), theirs.shape());
    if (is_result(k) && !theirs.has_own_elements())
      throw error(std::string(step_) + ": several indices of the view given have the same element: " + theirs.text());
    if (mine.tables != &tables || mine.device != comm.device(0)) find(comm, k, layout);
    bytes_sent_ += mine.bytes;
    const auto shard = shard_of(k);
    if (!is_result(k)) mine.moved->run(comm, theirs.elem_bytes(), &theirs, &shard);
    return reinterpret_cast<typename View::element*>(mine.dense.get());
  }
  /// Writes a result to its block. Collective.
  template <class Comm, class View>
  void take_back(Comm& comm, std::size_t k, const View& given) {
    const auto shard = shard_of(k);
    const external_block theirs(given);
    leaves_[k].moved->run(comm, theirs.elem_bytes(), &shard, &theirs);
  }
  /// Returns the bytes that this device sent in the last call.
  [[nodiscard]] std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  struct leaf {
    std::unique_ptr<view_exchange> moved;
    std::shared_ptr<const void> layout;  // the layout of `moved`; kept alive, so that no other layout has its address
    const placed_tables* tables = nullptr;
    int device = -1;
    std::int64_t bytes = 0;
    aligned_bytes dense;
  };
  struct given_result {
    strided_memory memory;
    bool is_placed = false;
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

  const char* step_ = "";
  const plan_view* plan_ = nullptr;
  std::vector<leaf> leaves_;
  std::vector<given_result> results_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace detail
}  // namespace gspmd
