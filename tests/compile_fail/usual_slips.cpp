// SPDX-License-Identifier: Apache-2.0
// Notations of other libraries. Each gives an error of one sentence.
// mistakes: 5
// expect: gspmd: std::sqrt takes a number and not a value; write gspmd::sqrt(x)
// expect: gspmd: std::max takes numbers and not values; write gspmd::max(x, y)
// expect: gspmd: softmax needs a dim; pass it
// expect: gspmd: compile: each input is an
// expect: gspmd: run: the first argument says where
#include <gspmd/gspmd.hpp>

#include <algorithm>
#include <cmath>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

template <class T>
struct layer {
  T w, b;
};
using layer_input = record<layer, input<double, shape<64>>, input<double, shape<64>>>;

struct options {
  bool fast = true;
};

#ifdef FIXED
constexpr auto root = [](auto x) { return sqrt(x); };
constexpr auto clipped = [](auto x) { return max(x, 0.0); };
constexpr auto shares = [](auto x) { return softmax(x, -1); };
constexpr auto net = [](auto x, auto a, auto b) { return (x * a.w + a.b) * b.w + b.b; };
using net_step = compile<net, pod, input<double, shape<64>>, layer_input, layer_input>;
#else
constexpr auto root = [](auto x) { return std::sqrt(x); };         // <- here
constexpr auto clipped = [](auto x) { return std::max(x, 0.0); };  // <- here
constexpr auto shares = [](auto x) { return softmax(x); };         // <- here
constexpr auto net = [](auto x, std::array<layer<value>, 2> layers) {
  for (const auto& l : layers) x = x * l.w + l.b;
  return x;
};
using net_step = compile<net, pod, input<double, shape<64>>, std::array<layer_input, 2>>;
#endif
template <auto Program>
using step = compile<Program, pod, input<double, shape<64>>>;

int main() {
  array<double> x({64});
  const layer<array<double>> l{x, x};
  double most = run<step<root>>(simulated{}, x)[0];
  most = std::max(most, run<step<clipped>>(simulated{}, x)[0]);
  most = std::max(most, run<step<shares>>(simulated{}, x)[0]);
#ifdef FIXED
  most = std::max(most, run<net_step>(simulated{}, x, l, l)[0]);
  most = std::max(most, run<step<root>>(simulated{}, x)[0]);
#else
  const std::array layers{l, l};
  most = std::max(most, run<net_step>(simulated{}, x, layers)[0]);  // <- here
  constexpr auto plain = [](auto y) { return y * 2.0; };
  most = std::max(most, run<step<plain>>(options{}, x)[0]);  // <- here
#endif
  return most > 1;
}
