// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/extend/edge.hpp"
#include "gspmd/external/view.hpp"
#include "gspmd/program/sharded_array.hpp"
#include "gspmd/run/run.hpp"

/// Whole arrays with any strides.
namespace gspmd {
namespace detail {

/// Returns an argument with pointers instead of its views, for the checks of types, counts and null pointers.
template <class Tree>
decltype(auto) with_pointers(const Tree& tree) {
  if constexpr (has_block_of_step<Tree>()) {
    return transform_leaves(
        []<class Leaf>(const Leaf& leaf) {
          static_assert(
              is_block_of_step<Leaf>,
              "gspmd: in a group of arrays one is a view of external memory, such as a strided_view, and another one is "
              "not; pass views for all of them");
          // any address that is not null: a view without addresses is read by its edge
          if constexpr (is_block_of_step<Leaf>)
            return static_cast<const typename Leaf::element*>(static_cast<const void*>(&leaf));
        },
        tree);
  } else {
    return (tree);
  }
}

/// Returns the memory of the whole arrays that are passed to a program.
template <class... Arguments>
std::vector<external_block> external_inputs(const plan_view& plan, const Arguments&... arguments) {
  const whole_inputs checked(plan, with_pointers(arguments)...);
  std::vector<external_block> all;
  for (std::size_t k = 0; k < checked.pointers.size(); ++k) {
    const auto& v = plan.value(plan.inputs[k]);
    all.emplace_back(dense_memory(checked.pointers[k], v.global), bytes_of(v.type));
  }
  std::size_t k = 0;
  const auto look = [&]<class Leaf>(const Leaf& leaf) {
    if constexpr (is_block_of_step<Leaf>) {
      external_block given(leaf);
      require_whole_shape("run: input " + std::to_string(k), all[k].shape(), given.shape());
      all[k] = given;
    }
    ++k;
  };
  (for_each_leaf(arguments, look), ...);
  return all;
}

/// The memory for the whole results of a program: the caller's views, or dense arrays that are copied when all devices
/// have run. A dense array is used if a view is not dense, or if it shares memory with an input that other devices may
/// still read.
class external_results {
 public:
  template <class Results>
  external_results(const plan_view& plan, const std::vector<external_block>& inputs, const Results& results) : plan_(&plan) {
    for_each_leaf(results, [&]<class Leaf>(const Leaf& leaf) { add(leaf, inputs); });
    if (views_.size() != plan.outputs.size())
      throw error("run_into: the program has " + counted(static_cast<int>(plan.outputs.size()), "result") +
                  " and the call gives memory for " + std::to_string(views_.size()));
    for (std::size_t a = 0; a < views_.size(); ++a)
      for (std::size_t b = 0; b < a; ++b)
        if (shared_elements::any(views_[a].memory(), elem_bytes(a), views_[b].memory(), elem_bytes(b)))
          throw error("run_into: results " + std::to_string(b) + " and " + std::to_string(a) +
                      " are given memory that overlaps, or whose strides differ so that gspmd cannot exclude an overlap");
  }
  [[nodiscard]] void* const* pointers() const { return pointers_.data(); }
  void put_back() const {
    for (std::size_t k = 0; k < views_.size(); ++k)
      if (is_copied_[k]) views_[k].write(extents(views_[k].shape().count, 0), dense_memory(pointers_[k], views_[k].shape()));
  }

 private:
  template <class Leaf>
  void add(const Leaf& leaf, const std::vector<external_block>& inputs) {
    if constexpr (!is_block_of_step<Leaf>) {
      static_assert(is_block_of_step<Leaf>, "gspmd: run_into: pass a view, such as a strided_view, for each result");
    } else {
      static_assert(!std::is_const_v<typename Leaf::element>,
                    "gspmd: run_into: a result is written and the view given is of const elements");
      const auto k = views_.size();
      const auto where = "run_into: result " + std::to_string(k);
      if (k < plan_->outputs.size()) {
        const auto& v = plan_->value(plan_->outputs[k]);
        if (v.type != dtype_of<typename Leaf::element>())
          throw error(where + " is " + name_of(v.type) + " and the view given is of " +
                      name_of(dtype_of<typename Leaf::element>()));
        require_whole_shape(where, v.global, external_block(leaf).shape());
      }
      const auto& given = views_.emplace_back(leaf);
      if (!given.has_own_elements())
        throw error(where + " is written, and several indices of the view given have the same element: " + given.text());
      is_copied_.push_back(!given.is_dense() || lies_in_any(k, inputs));
      if (is_copied_.back()) copies_.emplace_back(elements(given.shape()) * given.elem_bytes(), "the dense copy of a result");
      pointers_.push_back(is_copied_.back() ? copies_.back().get() : given.data());
    }
  }
  [[nodiscard]] bool lies_in_any(std::size_t k, const std::vector<external_block>& inputs) const {
    if (k >= plan_->outputs.size()) return false;  // reported when all views are counted
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (shared_elements::in_one_range(views_[k].memory(), elem_bytes(k), inputs[i].memory(), inputs[i].elem_bytes()))
        return true;
    return false;
  }
  [[nodiscard]] std::int64_t elem_bytes(std::size_t k) const { return bytes_of(plan_->value(plan_->outputs[k]).type); }

  const plan_view* plan_;
  std::vector<external_block> views_;
  std::vector<void*> pointers_;
  std::vector<bool> is_copied_;
  std::vector<aligned_bytes> copies_;
};

template <class Step, class Backend, class Outputs>
void run_external(const Backend& backend, const std::vector<external_block>& inputs, const Outputs& outputs) {
  const auto on_devices = [&](auto& comm) {
    Step held;
    run_whole<has_partial_outputs(Step::view)>(
        Step::view, comm, inputs.data(), outputs,
        [&held](auto& devices, const void* const* in, void* const* out) { held.run(devices, in, out); });
  };
  static_assert(
      can_launch<Backend>,
      "gspmd: run: the first argument says where: serial{}, threads{}, simulated{}, or with gspmd/comm/mpi.hpp mpi{comm} or "
      "mpi{comm, options}");
  if constexpr (can_launch<Backend>) launch(backend, Step::device_count, on_devices);
}

template <class Tree>
void scatter_external(const held_devices& devices, const Tree& whole, auto& tree) {
  if constexpr (is_leaf<Tree>) {
    using T = typename std::remove_cvref_t<decltype(tree)>::element;
    static_assert(
        is_block_of_step<Tree> &&
            std::is_same_v<listed_element_t<std::remove_const_t<typename Tree::element>>, listed_element_t<T>>,
        "gspmd: distribute: this view is of other elements than the input, or in a group with arrays that are no views");
    const external_block given(whole);
    require_whole_shape("distribute: the input", tree.shape(), given.shape());
    for (int i = 0; i < devices.local_count(); ++i)
      cut_shard(tree.mesh(), tree.planned(), tree.mesh().coordinates_of(devices.device(i)), given, tree.data(i));
  } else {
    [&]<std::size_t... K>(std::index_sequence<K...>) {
      (scatter_external(devices, part<K>(whole), part<K>(tree)), ...);
    }(std::make_index_sequence<part_count<Tree>()>{});
  }
}

}  // namespace detail

/// Returns the results of a step, like `run` of gspmd/run/run.hpp, with strided_views among the arguments. Each device
/// copies its shard directly from the view, and there is no other copy. Either all leaves of a group (record) are
/// strided_views, or none.
///
/// **Example.**
///
///     auto y = run<step>(threads{}, strided_view(matrix), w);
template <class Step, class Backend, class... Arguments>
  requires(detail::has_block_of_step<Arguments>() || ...)
auto run(const Backend& backend, const Arguments&... arguments) {
  using result = typename Step::callable_result;
  static_assert((detail::accept_views<Arguments>() && ...));
  static_assert(detail::call_arguments<Step, "run", 0, Step::input_count, Arguments...>::accept());
  auto [inputs, arrays] = detail::before_launch(backend, [&] {
    return [&]<std::size_t... K>(std::index_sequence<K...>) {
      return std::pair(detail::external_inputs(Step::view, arguments...),
                       std::tuple<detail::output_array<Step, K>...>(
                           detail::output_array<Step, K>(Step::view.value(Step::view.outputs[K]).global)...));
    }(std::make_index_sequence<Step::output_count>{});
  });
  void* outputs[Step::output_count + 1]{};
  std::apply(
      [&](auto&... a) {
        std::size_t k = 0;
        ((outputs[k++] = a.data()), ...);
      },
      arrays);
  detail::run_external<Step>(backend, inputs, outputs);
  if constexpr (Step::is_form_known) return detail::like_result<result, 0>(arrays);
  else return detail::unknown_result<typename Step::template output_element<0>>{};
}

/// Runs a compiled program once and writes its whole results to `results`: a strided_view, or a tuple or struct with a
/// view for each result.
///
/// If a view is dense, row-major, and shares no memory with an argument, the result is written in place. Otherwise a
/// dense array is copied when all devices have run, so results can overlap arguments. The arguments are those of run,
/// strided_views or not. With mpi, each rank gets the whole results.
///
/// **Errors.** Compile error: a missing or superfluous argument or result, or the wrong element type. Throws
/// gspmd::error: the errors of run; another shape; results that share elements.
/// **Example.**
///
///     run_into<step>(threads{}, strided_view(y), strided_view(x), w);
template <class Step, class Backend, class Results, class... Arguments>
void run_into(const Backend& backend, const Results& results, const Arguments&... arguments) {
  static_assert((detail::accept_views<Arguments>() && ...));
  static_assert(detail::accept_views<Results>());
  static_assert(detail::call_arguments<Step, "run_into", 0, Step::input_count, Arguments...>::accept());
  static_assert(detail::call_arguments<Step, "run_into", Step::input_count, Step::output_count, Results>::accept());
  auto [inputs, outputs] = detail::before_launch(backend, [&] {
    auto given = detail::external_inputs(Step::view, arguments...);
    detail::external_results places(Step::view, given, results);
    return std::pair(std::move(given), std::move(places));
  });
  detail::run_external<Step>(backend, inputs, outputs.pointers());
  outputs.put_back();
}

/// Returns argument `K` of a step, cut from strided_views. For a `record`, pass its struct of views. See scatter
/// (gspmd/program/sharded_array.hpp).
///
/// **Example.**
///
///     auto x = distribute<step, 0>(comm, strided_view(matrix));
template <class Step, std::size_t K, communicator Comm, class Whole>
  requires(detail::has_block_of_step<Whole>())
auto distribute(const Comm& comm, const Whole& whole) {
  static_assert(detail::accept_views<Whole>());
  constexpr auto first = Step::template first_input<K>;
  static_assert(detail::leaf_count<Whole>() == Step::template first_input<K + 1> - first,
                "gspmd: distribute: give an array for an `input`, and for a `record` its struct of arrays");
  using tree = typename detail::sharded_tree<Whole, Step::template input_element, first>::type;
  const detail::held_devices devices(comm, Step::device_count);
  auto shards = detail::make_leaves<tree>(devices, Step::view, Step::view.inputs.data() + first);
  detail::scatter_external(devices, whole, shards);
  return shards;
}

}  // namespace gspmd
