// SPDX-License-Identifier: Apache-2.0
// labels: native once optimised
// timeout: 120
#include <doctest/doctest.h>

#include <iterator>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "support/between_guards.hpp"
#include "support/random_callable.hpp"

// Random programs, with products, softmax, reductions, stencils, loops and gradients, compiled for extents at which
// kernels change, between guard pages.

namespace {

using namespace gspmd;
using reference::wrong_between_guards;

constexpr int lengths[] = {1, 7, 9, 17, 31, 33, 63, 65, 70, 127, 129, 225, 255, 257, 289, 300};

/// The sizes that the program of a seed is compiled for: a few rows of a drawn length, or a few columns.
template <unsigned Seed>
struct drawn {
  static constexpr unsigned draw(unsigned k, unsigned n) {
    unsigned x = Seed * 2654435761u + k * 40503u + 12345u;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13, x *= 3266489917u;
    return (x ^ x >> 16) % n;
  }
  static constexpr bool is_long = draw(0, 2) == 0;  // rows; else columns
  static constexpr int few = static_cast<int>(draw(1, 6)) + 1, count = lengths[draw(2, std::size(lengths))];
  static constexpr int rows = is_long ? few : count, columns = is_long ? count : few;
  using number = std::conditional_t<Seed % 3 == 1, double, float>;
  template <unsigned K, int... N>
  using input =
      std::tuple_element_t<draw(K, 3),
                           std::tuple<gspmd::input<number, shape<N...>, split<"x", _>>,
                                      gspmd::input<number, shape<N...>, split<_, "x">>, gspmd::input<number, shape<N...>>>>;
  static std::string wrong() {
    return wrong_between_guards<random_callables::callable<Seed>, mesh<axis<"x", 1 << draw(3, 3)>, axis<"y", 1>>,
                                input<4, rows, columns>, input<5, columns, rows>, input<6, rows, rows>>();
  }
};
template <unsigned First, unsigned... Seed>
void check_drawn(std::integer_sequence<unsigned, Seed...>) {
  const auto one = [](unsigned seed, const std::string& wrong) { CHECK_MESSAGE(wrong == "", "seed ", seed); };
  (one(First + Seed, drawn<First + Seed>::wrong()), ...);
}

}  // namespace

TEST_CASE("compiled random programs of drawn extents") { check_drawn<0>(std::make_integer_sequence<unsigned, 5>{}); }
