// SPDX-License-Identifier: Apache-2.0
// Arguments of run, run_into, distribute and a step: wrong numbers of arguments and wrong element types.
// mistakes: 8
// expect: gspmd: pass one array for each input of the program, of the element type of the input
// expect: the call passes 1 array; also pass
// expect: input 1 (w), double [4,2]
// expect: the call passes 4 arrays; leave out
// expect: run: input 1 (w) is double [4,2]
// expect: and the array passed for it is of
// expect: float; pass an array of double, or
// expect: bool; pass an array of double, or
// expect: is_element<char>
// expect: run_into: output 0 is double [4,2]
// expect: distribute: input 0 is double [4,4]
// expect: and the elements passed are
#include <gspmd/external.hpp>
#include <gspmd/gspmd.hpp>

#include <array>
#include <complex>
#include <span>

using namespace gspmd;

template <class T>
struct weights {
  T w;
};
constexpr auto product = [](auto x, auto layer) { return einsum<"bd,df->bf">(x, layer.w); };
using step = compile<product, mesh<axis<"x", 1>>, input<double, shape<4, 4>>, record<weights, input<double, shape<4, 2>>>>;
constexpr auto twice = [](auto x, auto y) { return x + 2.0 * y; };
using plain = compile<twice, mesh<axis<"x", 1>>, input<double, shape<4, 4>>, input<double, shape<4, 4>>>;

int main() {
  const array<double> x({4, 4});
  const weights<std::vector<double>> w{std::vector<double>(8)};
  double y[4][2];
  std::vector<double> u(16), v(16), next(16);
  simulated_communicator comm(1);
  plain s;
#ifdef FIXED
  run<step>(serial{}, x, w);
  run<step>(threads{}, x, weights<const double*>{&y[0][0]});
  run_into<step>(serial{}, strided_view(y), x, w);
  static_cast<void>(distribute<step, 0>(comm, x));
  s(comm, u, v, next);
#else
  const float single[4][2]{};
  const std::array<bool, 8> bools{};
  std::vector<float> f(16);
  run<step>(serial{}, x);                                                   // <- here
  run<step>(simulated{}, x, w, w, x);                                       // <- here
  run<step>(threads{}, x, single);                                          // <- here
  run<step>(threads{}, x, bools);                                           // <- here
  run<step>(simulated{}, x, "abc");                                         // <- here
  run_into<step>(serial{}, strided_view(f.data(), {4, 2}), x, w);           // <- here
  static_cast<void>(distribute<step, 0>(comm, std::span<const float>(f)));  // <- here
  s(comm, f, v, next);                                                      // <- here
#endif
  return y[0][0] > 0;
}
