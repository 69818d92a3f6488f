// SPDX-License-Identifier: Apache-2.0
// alone: yes
// mistakes: 3
// expect: gspmd: options: `overlap` needs a header; add #include <gspmd/plan/overlap.hpp>
// expect: gspmd: options: `search` needs a header; add #include <gspmd/plan/search.hpp>
// expect: gspmd: options: memory is not positive; write a positive number, or leave it out
#include <gspmd/gspmd.hpp>
#ifdef FIXED
#include <gspmd/plan/overlap.hpp>
#include <gspmd/plan/search.hpp>
constexpr std::int64_t room = 1 << 20;
#else
constexpr std::int64_t room = 0;
#endif
using namespace gspmd;

using pod = mesh<axis<"x", 4>>;
constexpr auto twice = [](auto x) { return x + x; };
template <options Options>
using step = compile<twice, pod, with<Options>, in<float, dims<32>, split<"x">>>;
constexpr auto hiding = step<options{.overlap = true}>::traffic.bytes;  // <- here
constexpr auto sought = step<options{.search = true}>::traffic.bytes;   // <- here
constexpr auto small = step<options{.memory = room}>::traffic.bytes;    // <- here

int main() { return static_cast<int>(hiding + sought + small); }
