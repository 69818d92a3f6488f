// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: strided_view: this type does not say where its elements are
#include <array>

#include <gspmd/external.hpp>

using namespace gspmd;

struct grid {
  float elements[12] = {};
  float* data() { return elements; }
  static constexpr int rows() { return 3; }
  static constexpr int cols() { return 4; }
};

int main() {
  grid g;
#ifdef FIXED
  return static_cast<int>(strided_view(g.data(), {g.rows(), g.cols()}).elems()) - 12;
#else
  return static_cast<int>(strided_view(g).elems()) - 12;  // <- here
#endif
}
