// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "gspmd/detail/support/language.hpp"

namespace gspmd::detail {

/// The functions with state that a program was given for `map`, and whatever belongs to them. Graphs and plans point at what
/// is kept here: it does not move, and lives as long as this object.
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
