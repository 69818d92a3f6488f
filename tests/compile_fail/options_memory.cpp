// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: options: no plan is known that holds so little memory
// expect: a device holds 11264 bytes
// expect: in the plan that holds least; 4096
// expect: computes values again unasked:
// expect: write recompute(f), or plan at run
#include <gspmd/gspmd.hpp>
using namespace gspmd;
#ifdef FIXED
constexpr std::int64_t room = 64 * KiB;
#else
constexpr std::int64_t room = 4 * KiB;
#endif
constexpr auto product = [](auto x, auto w) { return einsum<"bd,df->bf">(x, w); };
using step = compile<product, mesh<axis<"x", 4>>, with<options{.memory = room}>, in<float, dims<32, 64>, split<"x", _>>,
                     in<float, dims<64, 32>, split<"x", _>>>;
constexpr auto bytes = step::peak_bytes_per_device;  // <- here
