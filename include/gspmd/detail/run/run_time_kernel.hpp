// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/detail/run/ready_step.hpp"

/// Steps of kernels that are not listed, for programs that are planned at run time: see at_run_time<K>::make_ready
/// (ir/kernel_facts.hpp). The interpreter includes this header, so dynamic::builder and dynamic::compile do.
namespace gspmd::detail {

/// The objects that the kernels prepared for the steps of a plan, each in separate memory.
struct prepared_objects : std::vector<std::unique_ptr<const void, void (*)(const void*)>> {};

/// The object that kernel K prepares, and the description that it refers to.
template <class K>
struct prepared_device_step {
  typename K::description description;
  decltype(K::prepare(std::declval<const typename K::description&>(), std::declval<const plan_view&>(),
                      std::declval<const plan_step&>())) prepared;

  prepared_device_step(const plan_view& p, const plan_step& s)
      : description(description_of<K>(p, s)), prepared(K::prepare(description, p, s)) {}
};

inline namespace GSPMD_TARGET {

template <class K>
void at_run_time<K>::make_ready(const plan_view& p, const plan_step& s, ready_step& ready, prepared_objects& objects) {
  using prepared = decltype(prepared_device_step<K>::prepared);
  if constexpr (!std::is_empty_v<prepared>) {
    auto made = std::make_unique<const prepared_device_step<K>>(p, s);
    ready.prepared = &made->prepared;
    const void* const kept = made.get();
    objects.emplace_back(
        kept, +[](const void* o) { delete static_cast<const prepared_device_step<K>*>(o); });
    static_cast<void>(made.release());
  }
  with_handled_type<K>(s.type, [&](auto element) { ready.alone = run_alone<K, decltype(element), prepared>; });
}

}  // namespace GSPMD_TARGET

}  // namespace gspmd::detail
