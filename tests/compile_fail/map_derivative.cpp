// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: grad needs the derivatives of a map
// expect: map at map_derivative.cpp:
// expect: with_derivative
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto product = [](auto x, auto w) {
  auto y = einsum<"bd,df->bf">(x, w);
#ifdef FIXED
  auto z = map(with_derivative([](auto a) { return a * a; }, [](auto a) { return 2 * a; }), y);
#else
  auto z = map([](auto a) { return a * a; }, y);
#endif
  return grad(sum(z), w);
};
using step = compile<product, pod, input<float, shape<64, 512>, split<"data", _>>, input<float, shape<512, 256>>>;

int main() {
  array<float> x({64, 512}), w({512, 256});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
