// SPDX-License-Identifier: Apache-2.0
// alone: yes
// mistakes: 5
// expect: gspmd: options: `overlap` needs a header; add #include <gspmd/plan/overlap.hpp>
// expect: gspmd: options: `search` needs a header; add #include <gspmd/plan/search.hpp>
// expect: gspmd: options: `solve` needs dynamic::compile; leave it out
// expect: gspmd: options: `network` refers to a network, and this one is a temporary; name it: const network n(...)
// expect: gspmd: options: memory is not positive; write a positive number, or leave it out
#include <gspmd/gspmd.hpp>
#include <gspmd/plan/network.hpp>
#include <gspmd/plan/solve.hpp>
#ifdef FIXED
#include <gspmd/plan/overlap.hpp>
#include <gspmd/plan/search.hpp>
constexpr std::int64_t room = 1 << 20;
constexpr bool is_solved = false;
#else
constexpr std::int64_t room = 0;
constexpr bool is_solved = true;
#endif
using namespace gspmd;

using pod = mesh<axis<"x", 4>>;
constexpr auto twice = [](auto x) { return x + x; };
template <options Options>
using step = compile<twice, pod, with<Options>, input<float, shape<32>, split<"x">>>;
constexpr auto hiding = step<options{.overlap = true}>::traffic.bytes;     // <- here
constexpr auto sought = step<options{.search = true}>::traffic.bytes;      // <- here
constexpr auto solved = step<options{.solve = is_solved}>::traffic.bytes;  // <- here
constexpr auto small = step<options{.memory = room}>::traffic.bytes;       // <- here

#ifdef FIXED
const network cluster(1e12, 1e9, 0);
const options on_cluster{.network = cluster};
#else
const options on_cluster{.network = network(1e12, 1e9, 0)};  // <- here
#endif

int main() { return static_cast<int>(hiding + sought + solved + small) + (on_cluster.checked ? 1 : 0); }
