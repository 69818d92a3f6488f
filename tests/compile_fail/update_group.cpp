// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: update: the next value is a group of another form than the inputs
#include <tuple>

#include <gspmd/gspmd.hpp>
#include <gspmd/transform/update.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;
#ifdef FIXED
constexpr auto program = [](value u) { return update(u, u * 0.5); };
#else
constexpr auto program = [](value u) {
  return update(u, std::tuple{u * 0.5});  // <- here
};
#endif
using step = compile<program, pod, input<float, shape<8>, split<"data">>>;

int main() { return step::traffic.bytes > 0 ? 1 : 0; }
