// SPDX-License-Identifier: Apache-2.0
#include <tuple>

#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/run/compile.hpp"
#include "gspmd/windows.hpp"

using namespace gspmd;

using line_of_4 = mesh<axis<"x", 4>>;

// [8] on 4 devices becomes [2,4] on 2 and 2 devices. The product over the minor half is reduced over that half alone.
constexpr auto halves = [](auto a) { return reshape(a, {2, 4}) * 2.0; };
using cut = compile<halves, line_of_4, input<float, shape<8>, split<"x">>>;
static_assert(cut::traffic.bytes == 0);
static_assert(cut::output_shard<0>::local_elems == 2);
static_assert(cut::output_shard<0>::layout.splits.count == 2);
static_assert(cut::input_shard<0>::layout.splits.count == 2);  // x, in two parts

constexpr auto row_sums = [](auto a) { return sum(reshape(a, {2, 4}), {1}); };
using sums = compile<row_sums, line_of_4, input<float, shape<8>, split<"x">>>;
static_assert(sums::traffic.over("x").bytes == sums::traffic.bytes);

// 6 = 2x3
constexpr auto two_by_three = [](auto a) { return reshape(a, {2, 3, 5}) + 1.0; };
using six = compile<two_by_three, mesh<axis<"x", 6>>, input<float, shape<6, 5>, split<"x", _>>>;
static_assert(six::traffic.bytes == 0 && six::output_shard<0>::local_elems == 5);

// no axis is cut: the mesh of the step is the user's mesh
constexpr auto same = [](auto a) { return reshape(a, {4, 2}) + 1.0; };
using plain = compile<same, line_of_4, input<float, shape<8>, split<"x">>>;
static_assert(std::is_same_v<plain::mesh_type, line_of_4> && plain::traffic.bytes == 0);
