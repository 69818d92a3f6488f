// SPDX-License-Identifier: Apache-2.0
// labels: once
// timeout: 120
// Devices that are many times the cores: each waits for others that the system has not run for long, and all get to
// their end.
#include <doctest/doctest.h>

#include <gspmd/gspmd.hpp>

#include "support/many_devices.hpp"

TEST_CASE("many devices: 64 and 136 threads meet in every kind of collective, again and again") {
  for (const int devices : {64, 136}) {
    const auto p = many_devices::program(devices, false);
    for (const auto kind :
         {gspmd::collective_kind::all_gather, gspmd::collective_kind::all_reduce, gspmd::collective_kind::collective_permute})
      CHECK_MESSAGE(p.traffic().in(kind).bytes > 0, gspmd::detail::name_of(kind));
    CHECK(many_devices::wrong_on(gspmd::threads{}, devices, 3) == "");
  }
}
