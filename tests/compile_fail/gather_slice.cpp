// SPDX-License-Identifier: Apache-2.0
// expect: gather at gather_slice.cpp:
// expect: slice has 33 elements along dim 1
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using four = mesh<axis<"x", 4>>;

constexpr auto program = [](auto x, auto i) {
#ifdef FIXED
  return gather(x, i, {.offset_dims = {1}, .collapsed_slice_dims = {0}, .start_index_map = {0}, .index_vector_dim = 1}, {1, 32});
#else
  return gather(x, i, {.offset_dims = {1}, .collapsed_slice_dims = {0}, .start_index_map = {0}, .index_vector_dim = 1}, {1, 33});
#endif
};
using step = compile<program, four, input<float, shape<64, 32>, split<"x", _>>, input<std::int32_t, shape<8>, split<_>>>;

int main() {
  array<float> x({64, 32});
  array<std::int32_t> i({8});
  auto y = run<step>(simulated{}, x, i);  // <- here
  return y[0] > 0;
}
