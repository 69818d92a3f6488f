// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/detail/edge/strided_memory.hpp"
#include "gspmd/detail/transport/exclusive_use.hpp"
#include "gspmd/dynamic/program.hpp"
#include "gspmd/dynamic/step.hpp"
#include "gspmd/strided/whole.hpp"

/// Programs that are compiled at run time on memory of the caller's, wherever its elements lie.
namespace gspmd {

namespace detail {

template <class Backend>
void run_strided(const dynamic::program& program, const Backend& backend, const std::vector<strided_memory>& inputs,
                 void* const* outputs) {
  launch(backend, static_cast<int>(program.view().mesh->device_count()), [&](auto& comm) {
    dynamic::session steps(program);
    run_whole<true>(program.view(), comm, inputs.data(), outputs,
                    [&](auto& devices, const void* const* in, void* const* out) { steps.run(devices, in, out); });
  });
}

}  // namespace detail

/// `program.run` of which some arguments are strided_views: every device copies its shard from where the elements lie.
///
///     auto y = run(program, threads{}, strided_view(matrix), w)[0];
template <class Backend, class... Arguments>
std::vector<dynamic::any_array> run(const dynamic::program& program, const Backend& backend, const Arguments&... arguments) {
  const auto& plan = program.view();
  auto [inputs, arrays] = detail::before_launch(backend, [&] {
    std::vector<dynamic::any_array> made;
    for (const int o : plan.outputs) {
      const auto& v = plan.value(o);
      made.push_back({v.type,
                      {v.global.begin(), v.global.end()},
                      std::vector<std::byte>(static_cast<std::size_t>(detail::elements(v.global) * detail::bytes_of(v.type)))});
    }
    return std::pair(detail::strided_inputs(plan, arguments...), std::move(made));
  });
  std::vector<void*> outputs;
  for (auto& a : arrays) outputs.push_back(a.bytes.data());
  detail::run_strided(program, backend, inputs, outputs.data());
  return std::move(arrays);
}

/// The same with whole results that go where `results` says: see run_into of a compiled step.
///
///     run_into(program, threads{}, strided_view(y), strided_view(x), w);
template <class Backend, class Results, class... Arguments>
void run_into(const dynamic::program& program, const Backend& backend, const Results& results, const Arguments&... arguments) {
  auto [inputs, outputs] = detail::before_launch(backend, [&] {
    auto given = detail::strided_inputs(program.view(), arguments...);
    detail::strided_results places(program.view(), given, results);
    return std::pair(std::move(given), std::move(places));
  });
  detail::run_strided(program, backend, inputs, outputs.pointers());
  outputs.put_back();
}

/// A session whose shards are typed and checked, and may be strided_views: strided_step for a program that is compiled at run time. Shards
/// are views, of the local extents or of just what the device holds, sharded_arrays, contiguous ranges of as many elements as a shard has,
/// or pointers.
///
///     strided_session s(program);
///     s(comm, strided_view(u, {n + 2, m + 2}).interior({1, 1}), strided_view(next, {n + 2, m + 2}).interior({1, 1}));
///
/// Threads: as session. Throws gspmd::error: another number of shards, another type, shape, sharding or number of elements; what a session
/// throws.
class strided_session {
 public:
  explicit strided_session(const dynamic::program& p) : program_(p), session_(p) {}

  /// Runs on the device of `comm`, which holds one: the shards of all inputs, then of all outputs. Collective.
  template <communicator Comm, class... Shards>
  void operator()(Comm& comm, Shards&&... shards) {
    const auto used = use_.take();
    const auto& plan = program_.view();
    if (comm.local_count() != 1) detail::throw_several_devices(static_cast<std::size_t>(comm.local_count()));
    copies_.begin(plan, comm.device(0));
    given_.clear();
    (detail::for_each_leaf(shards, [&](auto& leaf) { add(leaf); }), ...);
    const auto inputs = plan.inputs.size();
    if (given_.size() != inputs + plan.outputs.size())
      throw error("strided_session: the program has " + detail::counted(static_cast<int>(inputs), "input") + " and " +
                  detail::counted(static_cast<int>(plan.outputs.size()), "output") + ", and the call gives " +
                  detail::counted(static_cast<int>(given_.size()), "shard") +
                  "; give the shards of all inputs, then of all outputs");
    copies_.check_results();
    session_.run(comm, given_.data(), written());
    copies_.put_back();
  }
  /// The bytes that the last call copied, in and out; 0: all was used in place.
  [[nodiscard]] std::int64_t copied_bytes() const { return copies_.copied_bytes(); }

 private:
  template <class Leaf>
  void add(Leaf& leaf) {
    const auto& plan = program_.view();
    const auto k = given_.size(), inputs = plan.inputs.size();
    if (k >= inputs + plan.outputs.size()) return given_.push_back(nullptr);  // counted, and refused
    const auto& v = plan.value(k < inputs ? plan.inputs[k] : plan.outputs[k - inputs]);
    using plain = std::remove_cv_t<Leaf>;
    if constexpr (detail::is_strided_view<plain>) {
      check<typename plain::element>(k, v);
      given_.push_back(copies_.take(k, detail::memory_of(leaf)));
    } else {
      if constexpr (detail::is_sharded_array<plain>) {
        using element = typename plain::element;
        if (leaf.local_count() == 0)
          detail::throw_leaf(plan, k,
                             "is given an empty sharded_array, never filled or moved from; make it with scatter or make_result");
        check<std::conditional_t<std::is_const_v<Leaf>, const element, element>>(k, v);
        detail::check_sharded(plan, program_.mesh_info(), k, 1, leaf.local_count(), leaf.planned(), leaf.mesh());
        given_.push_back(leaf.data());
      } else if constexpr (std::is_pointer_v<plain>) {
        check<std::remove_pointer_t<plain>>(k, v);
        given_.push_back(leaf);
      } else {
        static_assert(detail::dense_by_itself<Leaf>,
                      "gspmd: strided_session: a shard is a strided_view, a sharded_array, a contiguous range or a pointer");
        check<std::remove_pointer_t<decltype(std::data(leaf))>>(k, v);
        detail::require_dense(leaf);
        if (static_cast<std::int64_t>(std::size(leaf)) != detail::elements(v.local))
          throw error(detail::leaf_text(plan, k) + " is " + std::string(detail::shape_text(v.local).view()) +
                      " on every device, with " + std::to_string(detail::elements(v.local)) +
                      " elements, and the range given has " + std::to_string(std::size(leaf)));
        given_.push_back(std::data(leaf));
      }
      copies_.note(k, given_.back());
    }
  }
  template <class T>
  void check(std::size_t k, const detail::planned_value& v) const {
    const auto& plan = program_.view();
    if (v.type != detail::dtype_of<std::remove_const_t<T>>())
      throw error(detail::leaf_text(plan, k) + " is " + detail::name_of(v.type) + " and the shard given is of " +
                  detail::name_of(detail::dtype_of<std::remove_const_t<T>>()));
    if (std::is_const_v<T> && k >= plan.inputs.size())
      throw error(detail::leaf_text(plan, k) + " is written and the shard given is const");
  }
  /// The pointers to results, behind those to inputs.
  void* const* written() {
    const auto inputs = program_.view().inputs.size();
    results_.clear();
    for (std::size_t k = inputs; k < given_.size(); ++k) results_.push_back(const_cast<void*>(given_[k]));
    return results_.data();
  }

  dynamic::program program_;
  dynamic::session session_;
  detail::dense_copies copies_;
  std::vector<const void*> given_;
  std::vector<void*> results_;
  detail::exclusive_use use_;
};

}  // namespace gspmd
