// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include "gspmd/detail/ir/types.hpp"

namespace gspmd::detail {

using element_types = boost::mp11::mp_list<float, double, std::int32_t, std::int64_t, bool>;  // in the order of dtype

/// Calls `f(T{})` with the element type that `type` names.
template <class F>
void with_element_type(dtype type, F&& f) {
  boost::mp11::mp_with_index<5>(static_cast<std::size_t>(type), [&](auto i) { f(boost::mp11::mp_at_c<element_types, i>{}); });
}

}  // namespace gspmd::detail
