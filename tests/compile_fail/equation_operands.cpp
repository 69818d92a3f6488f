// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: another number of operands than the operator takes
// expect: one operand and the call has two
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto product = [](auto x, auto w) {
#ifdef FIXED
  return einsum<"bd,df->bf">(x, w);
#else
  return einsum<"bd->db">(x, w);  // <- here
#endif
};
using step = compile<product, pod, input<float, shape<64, 512>, split<"data", _>>, input<float, shape<512, 256>>>;

int main() {
  array<float> x({64, 512}), w({512, 256});
  auto y = run<step>(simulated{}, x, w);
  return y[0] > 0;
}
