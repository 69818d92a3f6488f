// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/span.hpp"

#include <initializer_list>

#include "gspmd/detail/ir/graph.hpp"

namespace gspmd::detail {

/// Groups the nodes added during its lifetime into one user-visible call, so that a type error names the call and not a
/// node inside it. `arguments` are the nodes of the call's arguments (-1: a number). A call inside another call belongs
/// to it. Does nothing unless the program is type-checked.
class one_call {
 public:
  constexpr one_call(graph* g, const char* name, span<const int> arguments) : graph_(g) {
    if (g == nullptr || g->is_in_call || (!g->is_explicit && g->open_local == 0)) {
      graph_ = nullptr;
      return;
    }
    call_ = {name, static_cast<int>(g->nodes.size()), 0, {}};
    for (const int a : arguments)
      if (call_.arguments.count < call_.arguments.capacity) call_.arguments.push_back(a);
    g->is_in_call = true;
  }
  constexpr one_call(graph* g, const char* name, std::initializer_list<int> arguments)
      : one_call(g, name, span<const int>(arguments.begin(), arguments.size())) {}
  constexpr ~one_call() {
    if (graph_ == nullptr) return;
    graph_->is_in_call = false;
    call_.end = static_cast<int>(graph_->nodes.size());
    if (call_.end > call_.begin + 1 || (call_.end > call_.begin && !reads_arguments(graph_->nodes.back())))
      graph_->calls.push_back(call_);
  }
  one_call(const one_call&) = delete;

 private:
  [[nodiscard]] constexpr bool reads_arguments(const node& n) const {
    if (n.operands.count != call_.arguments.count) return false;
    for (int k = 0; k < n.operands.count; ++k)
      if (n.operands[k] != call_.arguments[k]) return false;
    return true;
  }

  graph* graph_;
  written_call call_{};
};

}  // namespace gspmd::detail
