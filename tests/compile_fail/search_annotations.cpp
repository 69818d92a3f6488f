// SPDX-License-Identifier: Apache-2.0
// If a search would take the compiler too long, the error says to search at run time.
// mistakes: 3
// expect: gspmd: search_annotations: the compiler makes 1 to 32 plans; search at run time
// expect: gspmd: search_annotations: the program has more than 128 operators or 16 inputs; search at run time
// expect: gspmd: search_annotations: the program writes its own communication
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/tensor.hpp>
#include <gspmd/search/search_annotations.hpp>
using namespace gspmd;
using pod = mesh<axis<"x", 4>>;
using row_shards = tensor<float, shape<8>, place<pod, split<"x">>>;
constexpr auto twice = [](auto x) { return x + x; };
#ifdef FIXED
constexpr std::size_t most_plans_of_all = 1;
constexpr int adds = 2;
using typed = compile<twice, pod, row_shards>;
#else
constexpr std::size_t most_plans_of_all = 33;
constexpr int adds = 200;
using typed = search_annotations<1, twice, pod, row_shards>::step;  // <- here
#endif
constexpr auto sums = [](auto x) {
  for (int k = 0; k < adds; ++k) x = x + x;
  return x;
};
constexpr auto many = search_annotations<most_plans_of_all, twice, pod, input<float, shape<8>>>::step::device_count;  // <- here
constexpr auto large = search_annotations<1, sums, pod, input<float, shape<8>>>::step::device_count;                  // <- here
constexpr auto written = typed::device_count;
