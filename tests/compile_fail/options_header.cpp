// SPDX-License-Identifier: Apache-2.0
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
using hiding = compile<twice, pod, with<options{.overlap = true}>, in<float, dims<32>, split<"x">>>;  // <- here
using sought = compile<twice, pod, with<options{.search = true}>, in<float, dims<32>, split<"x">>>;
using small = compile<twice, pod, with<options{.memory = room}>, in<float, dims<32>, split<"x">>>;

int main() { return static_cast<int>(hiding::traffic.bytes + sought::traffic.bytes + small::traffic.bytes); }
