// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "gspmd/detail/support/language.hpp"

namespace gspmd::detail {

/// The stateful functions of a program that were passed to `map`, and the objects that belong to them. Graphs and plans
/// have pointers to these objects. The objects do not move, and exist as long as this object.
class kept_functions {
 public:
  template <class T>
  const T* keep(T object) {
    auto held = std::make_shared<const T>(std::move(object));
    const T* const kept = held.get();
    objects_.push_back(std::move(held));
    return kept;
  }

 private:
  std::vector<std::shared_ptr<const void>> objects_;
};

}  // namespace gspmd::detail
