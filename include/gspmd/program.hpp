// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"

namespace gspmd {

/// The line of the program that calls an operator; every operator takes it as its last, defaulted argument.
using detail::location;

/// A tensor of the program for one giant device, while the program is traced: it has a global shape and no data. What a
/// callable that is given to `compile` gets as arguments, combines with operators, and returns.
class value {
 public:
  constexpr value() = default;
  constexpr value(detail::graph* g, int id) : graph_(g), id_(id) {}

  /// The global extents.
  [[nodiscard]] constexpr const detail::extents& shape() const { return is_valid() ? node().shape : nothing; }
  [[nodiscard]] constexpr int rank() const { return shape().size(); }
  [[nodiscard]] constexpr dtype type() const { return is_valid() ? node().type : dtype::f32; }

  [[nodiscard]] constexpr detail::graph* graph() const { return graph_; }
  [[nodiscard]] constexpr int id() const { return id_; }
  /// False for the result of an operator that was refused; the first mistake of a program is the one that is reported.
  [[nodiscard]] constexpr bool is_valid() const { return graph_ != nullptr && id_ >= 0; }
  [[nodiscard]] constexpr const detail::node& node() const { return graph_->nodes[static_cast<std::size_t>(id_)]; }

 private:
  static constexpr detail::extents nothing{};
  detail::graph* graph_ = nullptr;
  int id_ = -1;
};

}  // namespace gspmd
