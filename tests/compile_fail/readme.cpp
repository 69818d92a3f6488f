// SPDX-License-Identifier: Apache-2.0
// The first program of the README, with its wrong line.
// expect: gspmd: extents that must be equal differ
// expect: einsum at readme.cpp:16: dim `f` of
// expect: `bf,df->bd` is 2048 in operand 0
// expect: and 512 in operand 1; a letter has
#include <gspmd/gspmd.hpp>
using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;
constexpr auto mlp = [](auto x, auto w1, auto w2) {
  auto h = relu(einsum<"bd,df->bf">(x, w1));
#ifdef FIXED
  return einsum<"bf,fd->bd">(h, w2);
#else
  return einsum<"bf,df->bd">(h, w2);
#endif
};
using step = compile<mlp, pod, input<float, shape<64, 512>, split<"data", _>>, input<float, shape<512, 2048>, split<_, "model">>,
                     input<float, shape<2048, 512>, split<"model", _>>>;

int main() {
  array<float> x({64, 512}), w1({512, 2048}), w2({2048, 512});
  auto y = run<step>(threads{}, x, w1, w2);  // <- here
  return y[0] != 0;
}
