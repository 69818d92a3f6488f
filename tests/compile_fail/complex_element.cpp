// SPDX-License-Identifier: Apache-2.0
// expect: uint32_t, uint64_t; a complex tensor is two tensors
#include <complex>
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;
#ifdef FIXED
using number = float;
#else
using number = std::complex<float>;
#endif
constexpr auto twice = [](auto x) { return x * 2.0; };
using step = compile<twice, pod, in<number, dims<64, 32>, split<"data", _>>>;

int main() {
  array<number> x({64, 32});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
