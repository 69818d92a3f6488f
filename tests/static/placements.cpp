// SPDX-License-Identifier: Apache-2.0
#include "gspmd/layouts/placements.hpp"

#include <type_traits>

#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/run/compile.hpp"
#include "gspmd/windows.hpp"

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 4>>;
using rows = placements<per_axis::shard(0), per_axis::replicate>;
using sums = placements<per_axis::partial(), per_axis::shard(1)>;

static_assert(std::is_same_v<split_as_placements<pod, split<"data", _>>, rows>);
static_assert(std::is_same_v<split_as_placements<pod, split<_, "model">, partial<"data">>, sums>);
static_assert(std::is_same_v<split_as_placements<pod, split<"data,model">>, placements<per_axis::shard(0), per_axis::shard(0)>>);
static_assert(std::is_same_v<split_as_placements<mesh<axis<"data", 1>, axis<"model", 4>>, split<"model,data">>,
                             placements<per_axis::shard(0), per_axis::shard(0)>>);  // one device along data: no order to lose

constexpr auto add = [](auto a, auto b) { return a + b; };
using by_dim =
    compile<add, pod, input<float, shape<8, 8>, split<"data", _>>, input<float, shape<8, 8>, split<_, "model">, partial<"data">>>;
using by_axis = compile<add, pod, input<float, shape<8, 8>, rows>, input<float, shape<8, 8>, sums>>;
static_assert(by_dim::traffic.bytes == by_axis::traffic.bytes);
static_assert(by_dim::collectives == by_axis::collectives);
