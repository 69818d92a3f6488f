// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a network says how the devices along every axis of a mesh are connected
// expect: network: the mesh axis `y` has no
// expect: link; add one to the network
#include <gspmd/gspmd.hpp>
#include <gspmd/plan/network.hpp>

using namespace gspmd;

using pod = mesh<axis<"x", 2>, axis<"y", 3>>;
#ifdef FIXED
constexpr network links(1e12, {{"x", topology::torus, 1e9, 1e-6}, {"y", topology::switched, 1e9, 1e-6}});
#else
constexpr network links(1e12, {{"x", topology::torus, 1e9, 1e-6}});
#endif

constexpr auto turned = [](auto x) { return reshard(x, split<_, "y">{}); };
using step = compile<turned, pod, with<options{.network = links}>, input<float, shape<6, 6>, split<"x", _>>>;

int main() { return step::traffic.bytes > 0 ? 1 : 0; }  // <- here
