// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: record: every member is one `in`; a record inside of a record is not taken
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;
template <class T>
struct layer {
  BOOST_HANA_DEFINE_STRUCT(layer, (T, w), (T, b));
};
template <class T>
struct network {
  BOOST_HANA_DEFINE_STRUCT(network, (layer<T>, first), (T, scale));
};
#ifdef FIXED
constexpr auto program = [](auto l, auto scale) { return (l.w + l.b) * scale; };
using step = compile<program, pod, record<layer, in<float, dims<4, 8>>, in<float, dims<8>>>, in<float, dims<>>>;
#else
constexpr auto program = [](auto n) { return (n.first.w + n.first.b) * n.scale; };
using step = compile<program, pod, record<network, record<layer, in<float, dims<4, 8>>, in<float, dims<8>>>, in<float, dims<>>>>;
#endif

int main() { return step::traffic.bytes > 0 ? 1 : 0; }  // <- here
