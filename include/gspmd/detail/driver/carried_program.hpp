// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "gspmd/detail/driver/static_plan.hpp"
#include "gspmd/detail/passes/carried/weight_updates.hpp"

namespace gspmd::detail {

/// A program with next values of inputs. The next values get the shardings that completion finds for the inputs. This
/// completion is a separate evaluation, as in the plan of a program.
template <class Program, class Mesh>
struct carried_program {
 private:
  using passes = static_passes<Program, Mesh>;
  static constexpr graph placed() {
    graph g = Program::frozen().thaw().program;
    place_carried(g, passes::template of<complete_pass>().of);
    return g;
  }
  struct make {
    static constexpr accepted_program run() {
      graph g = placed();
      const mistake broken = g.broken;
      return {std::move(g), broken};
    }
    static constexpr auto guess() { return list_sizes<accepted_program>(Program::frozen().sizes); }
  };

 public:
  static constexpr const auto& frozen() { return frozen_result<make>::value(); }
  static constexpr text error() { return placed().error; }
};

template <class Program, class Mesh>
inline constexpr bool has_open_carried = [] {
  constexpr const auto& frozen = Program::frozen();
  if constexpr (item<3>(frozen.rest) != mistake::none || Mesh::info.automatic_axes != 0) return false;
  else return has_open_marks(item<0>(frozen.lists), item<1>(frozen.lists), item<2>(frozen.lists));
}();

template <class Program, class Mesh>
  requires(has_open_carried<Program, Mesh>)
struct program_on<Program, Mesh> {
  using type = carried_program<Program, Mesh>;
};

}  // namespace gspmd::detail
