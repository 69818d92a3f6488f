// SPDX-License-Identifier: Apache-2.0
#include "gspmd/index.hpp"
#include "gspmd/layouts/xla_sharding.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/run/compile.hpp"
#include "gspmd/windows.hpp"

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 4>>;
constexpr auto product = [](auto x, auto w) { return einsum<"bd,df->bf">(x, w); };

// the plan does not depend on the notation of the shardings
using written =
    compile<product, pod, input<float, shape<16, 32>, split<"data", "model">>, input<float, shape<32, 8>, split<"model", _>>>;
using xla = compile<product, pod, input<float, shape<16, 32>, xla_split<"{devices=[2,4]<=[8]}">>,
                    input<float, shape<32, 8>, xla_split<"{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}">>>;
static_assert(written::traffic.bytes == xla::traffic.bytes);
static_assert(written::collectives == xla::collectives);
