// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: options: every known plan needs more memory than the limit
// expect: a device holds 11264 bytes
// expect: memory; 4096 are allowed: split
// expect: recomputes values only if you write
// expect: recompute(f); write it, or plan at
#include <gspmd/gspmd.hpp>
using namespace gspmd;
#ifdef FIXED
constexpr std::int64_t room = 64 * KiB;
#else
constexpr std::int64_t room = 4 * KiB;
#endif
constexpr auto product = [](auto x, auto w) { return einsum<"bd,df->bf">(x, w); };
using step = compile<product, mesh<axis<"x", 4>>, with<options{.memory = room}>, input<float, shape<32, 64>, split<"x", _>>,
                     input<float, shape<64, 32>, split<"x", _>>>;
constexpr auto bytes = step::peak_bytes_per_device;  // <- here
