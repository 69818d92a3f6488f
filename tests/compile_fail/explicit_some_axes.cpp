// SPDX-License-Identifier: Apache-2.0
// Mistakes in programs whose types state some axes of a mesh and leave the other axes to the planner. Each mistake is
// one error.
// mistakes: 8
// expect: explicit_axes: `z` is not an axis
// expect: which is automatic, before `data`
// expect: these by `model` into 4 parts
// expect: a value is a sum along it is for
// expect: input 0: names `data,model`
// expect: and a region takes explicit axes
// expect: reshard<replica<`data`>>(operand
// expect: which forbid_reshard does not
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/explicit_axes.hpp>
#include <gspmd/modes/manual.hpp>

using namespace gspmd;

namespace {
using pod = mesh<axis<"data", 2>, axis<"model", 4>>;
using mixed = explicit_axes<pod, "data">;
template <class... Parts>
using vector = tensor<float, shape<8>, place<pod, Parts...>>;
constexpr auto doubled = [](auto x) { return x + x; };
constexpr auto terms = [](auto x) { return reshard<gspmd::partial<"model">>(x); };
constexpr auto region = [](auto x) { return manual<"model">([](auto v) { return v; })(x); };
constexpr auto squares = [](auto x) { return sum(x) * sum(x); };
constexpr auto kept = [](auto x, auto y) { return forbid_reshard(x + y); };
template <class Split>
using table = tensor<float, shape<8, 8>, place<pod, replica<"data">, Split>>;
}  // namespace

#ifndef FIXED
constexpr int axis_name = explicit_axes<pod, "z">::device_count;                           // <- here
constexpr int order = compile<doubled, mixed, vector<split<"model,data">>>::device_count;  // <- here
constexpr int uneven =
    compile<doubled, mixed, tensor<float, shape<6>, place<pod, split<"data,model">>>>::device_count;  // <- here
constexpr int sum_along = compile<terms, mixed, vector<split<"data">>>::device_count;                 // <- here
constexpr int all_found =
    compile<doubled, explicit_axes<pod>, vector<replica<"data">, gspmd::partial<"model">>>::device_count;           // <- here
constexpr int local = compile<region, mixed, vector<split<"data">>>::device_count;                                  // <- here
constexpr int typed = compile<squares, mixed, vector<split<"data">>>::device_count;                                 // <- here
constexpr int kept_as_is = compile<kept, mixed, table<split<"model", _>>, table<split<_, "model">>>::device_count;  // <- here
#endif

int main() {}
