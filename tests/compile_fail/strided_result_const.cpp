// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: step: this is not the shard that the step takes here
// expect: output 0 is written and the
// expect: argument is const
#include <gspmd/external.hpp>
#include <gspmd/gspmd.hpp>

using namespace gspmd;

constexpr auto twice = [](auto x) { return x * 2; };
using step = compile<twice, mesh<axis<"data", 1>>, input<float, shape<3, 4>>>;

int main() {
  launch(serial{}, step::device_count, [](auto& comm) {
    step s;
    float x[3][4] = {}, y[3][4] = {};
#ifdef FIXED
    s(comm, strided_view(x), strided_view(y));
#else
    s(comm, strided_view(x), strided_view<const float>(strided_view(y)));  // <- here
#endif
  });
}
// lines: 26
