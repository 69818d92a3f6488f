// SPDX-License-Identifier: Apache-2.0
// Prints the tables and figures of the four papers as Markdown, our number next to the published one. Programs are
// planned for the papers' machines and not run. Fails if a difference is not within its band (bands.hpp).
// precompiled: yes

#include <cstdio>

#include <gspmd/comm/threads.hpp>

#include "../common/check.hpp"
#include "../common/command_line.hpp"
#include "bands.hpp"
#include "gshard_tables.hpp"
#include "gspmd_tables.hpp"
#include "listings.hpp"
#include "report.hpp"
#include "update_tables.hpp"

int main(int argc, char** argv) {
  return examples::run_main([&] {
    examples::no_options(argc, argv, "papers",
                         "Plans the programs of four papers, and prints our numbers next to the published ones as Markdown.");
    const auto bands = papers::all_bands();
    papers::report r(bands);
    std::puts("# The papers' tables, and ours");
    papers::print_table_1(r);
    papers::print_tables_2_and_3(r);
    papers::print_tables_4_and_5(r);
    papers::print_sparse(r);
    papers::print_table_8(r);
    papers::print_weights_and_memory(r);
    papers::print_operations_by_term(r);
    papers::print_table_4(r);
    papers::print_communication(r);
    papers::print_weight_updates(r);
    papers::print_listings(r);
    std::puts(
        "\n## Not had at all\n\n"
        "* GShard Fig. 1, 3 and 6, Tables 2 and 3: quality and length of trainings of weeks on 2048 cores, on data that are not "
        "public.\n"
        "* GShard Fig. 2: a drawing; the plans of its Table 4 have the same number of steps on 2048 devices and on 2 "
        "(tests/detail/passes/scaling.cpp).\n"
        "* GSPMD Fig. 1 to 6, 9 and 10, weight-update sharding's Fig. 1 to 7, 9 and 10: drawings of facts that tests check.");
    const bool holds = r.finish();
    std::puts("");
    return examples::check("each number is within the limits of the tables above", holds) ? 0 : 1;
  });
}
