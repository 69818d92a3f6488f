// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "report.hpp"

/// The bands, by table and quantity.
namespace papers {

/// Equal to the published number, or within `tolerance`.
inline band agrees(const char* table, const char* quantity, double tolerance = 0, const char* of = "") {
  return {claim::agreement, table, quantity, of, 1 - tolerance, 1 + tolerance};
}
inline band exponent_agrees(const char* table, const char* quantity) {
  return {claim::agreement, table, quantity, "", -0.02, 0.02};
}
inline band unchanged(const char* table, const char* quantity, const char* of, double low, double high) {
  return {claim::regression, table, quantity, of, low, high};
}
inline band constructed(const char* table, const char* quantity, const char* of = "") {
  return {claim::construction, table, quantity, of, 1, 1};
}

inline std::vector<band> all_bands() {
  return {
      agrees("GSPMD Table 1 and Fig. 7", "elements sent"),
      constructed("GSPMD Table 1 and Fig. 7", "weights of both"),
      constructed("GSPMD Table 1 and Fig. 7", "BSM"),
      constructed("GSPMD Table 1 and Fig. 7", "BSH"),
      constructed("GSPMD Table 1 and Fig. 7", "BSND, the largest"),
      agrees("GSPMD Table 2", "FLOPS util, %", 0.03),
      unchanged("GSPMD Table 2", "step time, s", "", 0.74, 0.87),
      unchanged("GSPMD Table 2", "peak memory, GB", "", 0.94, 0.98),
      unchanged("GSPMD Table 2", "peak memory, GB, without a limit", "", 1.9, 5.3),
      unchanged("GSPMD Table 2", "peak memory, GB, layers recomputed", "", 0.1, 0.25),
      agrees("GSPMD Table 3", "FLOPS util, %", 0.03),
      unchanged("GSPMD Table 3", "FLOPS util, %", "64 layers of 4096 on 8 x 32", 0.88, 0.9),
      unchanged("GSPMD Table 3", "step time, s", "", 0.66, 0.82),
      unchanged("GSPMD Table 3", "peak memory, GB", "", 0.96, 1.15),
      unchanged("GSPMD Table 3", "peak memory, GB, without a limit", "", 1.6, 2.7),
      unchanged("GSPMD Table 3", "peak memory, GB, layers recomputed", "", 0.08, 0.2),
      unchanged("GSPMD Table 4", "bubbles, %", "", 1.0, 1.12),
      unchanged("GSPMD Table 4", "recompute, %", "", 0.92, 1.06),
      unchanged("GSPMD Table 4", "useful time, s", "", 0.88, 0.94),
      unchanged("GSPMD Table 4", "peak memory, GB", "", 1.5, 1.8),
      unchanged("GSPMD Table 4", "peak memory, GB", "(8,8,4), 32 x 32", 1.42, 1.44),
      unchanged("GSPMD Table 5", "bubbles, %", "", 1.0, 1.1),
      unchanged("GSPMD Table 6", "FLOPS util, %", "", 0.84, 1.18),
      unchanged("GSPMD Table 6", "step time, s", "", 0.75, 1.02),
      unchanged("GSPMD Table 6", "all_to_all, % of the step", "", 1.65, 2.95),
      unchanged("GSPMD Table 6", "peak memory, GB", "", 1.7, 1.9),
      constructed("GSPMD Table 7", "operations by the first", "8 experts on 8 x 4"),
      constructed("GSPMD Table 7", "memory by the first", "8 experts on 8 x 4"),
      unchanged("GSPMD Table 7", "operations by the first", "", 0.96, 1.1),
      unchanged("GSPMD Table 7", "memory by the first", "", 0.9, 1.03),
      unchanged("GSPMD Table 7", "memory by the first", "64 experts on 64 x 32", 1.3, 1.4),
      unchanged("GSPMD Table 8", "peak memory, GB", "", 0.6, 1.25),
      unchanged("GSPMD Table 8", "peak memory, GB", "128^3, 1 x 1", 2.3, 2.6),
      constructed("GSPMD Table 8", "step time by the first", "128^3, 1 x 1"),
      constructed("GSPMD Table 8", "step time by the first", "256^3, 4 x 16"),
      unchanged("GSPMD Table 8", "step time by the first", "", 0.9, 1.15),
      unchanged("GSPMD Table 8", "step time by the first", "256^3, 2 x 32", 2.1, 2.4),
      unchanged("GShard Table 1", "experts", "", 1.0, 1.005),
      unchanged("GShard Table 1", "weights, billions of 2^30", "", 0.95, 1.0),
      unchanged("GShard Fig. 7 and 5.1", "memory by 128 experts", "", 1.0, 1.19),
      exponent_agrees("GShard 3.1, operations by term", "exponent, in all"),
      exponent_agrees("GShard 3.1, operations by term", "exponent, for a device"),
      unchanged("GShard 3.1, operations by term", "exponent, in all", "Top2Gating", 0.2, 0.3),
      unchanged("GShard 3.1, operations by term", "exponent, for a device", "Top2Gating", 0.2, 0.3),
      exponent_agrees("GShard Table 4", "operations"),
      exponent_agrees("GShard Table 4", "operations of a device"),
      exponent_agrees("GShard Table 4", "time of communication"),
      unchanged("GShard Fig. 9 and 5.3", "AllToAll, times", "", 1.0, 1.4),
      unchanged("GShard Fig. 9 and 5.3", "AllReduce, times", "", 1.0, 2.0),
      unchanged("GShard Fig. 8 and 5.2", "times", "", 0.9, 1.2),
      unchanged("Weight-update sharding, Fig. 11 and 6.1", "ms saved", "", 0.6, 0.65),
      unchanged("Weight-update sharding, Fig. 11 and 6.1", "step time, whole by parts", "", 0.75, 0.78),
      unchanged("Weight-update sharding, Fig. 11 and 6.1", "bytes sent, parts by whole", "", 0.99, 1.5),
      agrees("Weight-update sharding, 4.2 and Fig. 8", "moments, parts by whole"),
      unchanged("Weight-update sharding, 4.2 and Fig. 8", "memory saved, by V (1 - 1/N)", "", 1.0, 2.2),
      unchanged("Weight-update sharding, 4.2 and Fig. 8", "memory of Adam in parts by descent's", "", 0.85, 1.06),
  };
}

}  // namespace papers
