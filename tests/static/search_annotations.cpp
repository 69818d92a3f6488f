// SPDX-License-Identifier: Apache-2.0
// Annotations that the compiler finds, within its limits for one evaluation. tests/search/search_annotations.cpp tests
// the quality of the annotations.
#include <gspmd/gspmd.hpp>
#include <gspmd/search/search_annotations.hpp>

#include <string_view>
#include <type_traits>

using namespace gspmd;

namespace {

// Each device sums its own rows. Every device would compute a sum of replicated rows.
constexpr auto sums = [](auto x, auto b) { return sum(x * x, 1) + b; };
using pod = mesh<axis<"x", 4>, axis<"one", 1>>;
using found = search_annotations<12, sums, pod, input<double, shape<4096, 64>>, input<double, shape<>>>;
static_assert(std::is_same_v<found::input<0>, input<double, shape<4096, 64>, split<"x", _>>>);
static_assert(std::is_same_v<found::step, compile<sums, pod, found::input<0>, found::input<1>>>);
static_assert(found::step::traffic.bytes == 0 && found::step::flops_per_device < 200'000);
static_assert(found::text.starts_with("input 0: [x, _]\n"));
static_assert(found::text.find(": all replicated\n") != std::string_view::npos);

}  // namespace
