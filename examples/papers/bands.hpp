// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "report.hpp"

/// The bands of `ours / published`, by table and quantity. Bytes, memory in closed form and operations are held tightly; estimated times loosely.
namespace papers {

inline std::vector<band> all_bands() {
  return {
      {"GSPMD Table 1 and Fig. 7", "elements sent", "", 1, 1},
      {"GSPMD Table 1 and Fig. 7", "weights of both", "", 1, 1},
      {"GSPMD Table 1 and Fig. 7", "BSM", "", 1, 1},
      {"GSPMD Table 1 and Fig. 7", "BSH", "", 1, 1},
      {"GSPMD Table 1 and Fig. 7", "BSND, the largest", "", 1, 1},
      {"GSPMD Table 2", "parameters, billions", "", 1.07, 1.1},
      {"GSPMD Table 2", "FLOPS util, %", "", 0.975, 1.0},
      {"GSPMD Table 2", "step time, s, forward twice", "", 0.84, 1.16},
      {"GSPMD Table 2", "peak memory, GB", "", 0.94, 0.98},
      {"GSPMD Table 2", "step time, s, in that memory", "", 0.74, 0.87},
      {"GSPMD Table 2", "peak memory, GB, without a limit", "", 1.9, 5.3},
      {"GSPMD Table 2", "peak memory, GB, layers computed again", "", 0.1, 0.25},
      {"GSPMD Table 3", "parameters, billions", "", 1.07, 1.08},
      {"GSPMD Table 3", "FLOPS util, %", "", 0.97, 1.0},
      {"GSPMD Table 3", "FLOPS util, %", "64 layers of 4096 on 8 x 32", 0.88, 0.9},
      {"GSPMD Table 3", "step time, s, forward twice", "", 0.84, 1.16},
      {"GSPMD Table 3", "peak memory, GB", "", 0.96, 1.1},
      {"GSPMD Table 3", "step time, s, in that memory", "", 0.66, 0.82},
      {"GSPMD Table 3", "peak memory, GB, without a limit", "", 1.6, 2.7},
      {"GSPMD Table 3", "peak memory, GB, layers computed again", "", 0.08, 0.2},
      {"GSPMD Table 4", "bubbles, %", "", 1.0, 1.12},
      {"GSPMD Table 4", "recompute, %", "", 0.92, 1.06},
      {"GSPMD Table 4", "useful time, s", "", 0.88, 0.94},
      {"GSPMD Table 4", "peak memory, GB", "", 1.5, 1.8},
      {"GSPMD Table 4", "peak memory, GB", "(8,8,4), 32 x 32", 1.1, 1.2},
      {"GSPMD Table 5", "bubbles, %", "", 1.0, 1.1},
      {"GSPMD Table 6", "all_to_all, % of the step", "", 0.6, 1.1},
      {"GSPMD Table 6", "memory by the first", "", 0.92, 1.0},
      {"GSPMD Table 6", "operations by the first", "", 1, 1},
      {"GSPMD Table 7", "operations by the first", "", 0.96, 1.1},
      {"GSPMD Table 7", "memory by the first", "", 0.9, 1.03},
      {"GSPMD Table 7", "memory by the first", "64 experts on 64 x 32", 1.3, 1.4},
      {"GSPMD Table 8", "peak memory, GB", "", 0.6, 1.25},
      {"GSPMD Table 8", "peak memory, GB", "128^3, 1 x 1", 2.3, 2.6},
      {"GSPMD Table 8", "step time by the first", "", 0.9, 1.15},
      {"GSPMD Table 8", "step time by the first", "256^3, 2 x 32", 2.1, 2.4},
      {"GShard Table 1", "experts", "", 1.0, 1.005},
      {"GShard Table 1", "weights, billions", "", 1.03, 1.045},
      {"GShard Fig. 7 and 5.1", "memory by 128 experts", "", 1.0, 1.19},
      {"GShard 3.1, operations by term", "exponent, in all", "", -0.01, 0.01},
      {"GShard 3.1, operations by term", "exponent, for a device", "", -0.01, 0.01},
      {"GShard 3.1, operations by term", "exponent, in all", "Top2Gating", 0.2, 0.3},
      {"GShard 3.1, operations by term", "exponent, for a device", "Top2Gating", 0.2, 0.3},
      {"GShard Table 4", "operations", "", -0.001, 0.001},
      {"GShard Table 4", "operations of a device", "", -0.001, 0.001},
      {"GShard Table 4", "time of communication", "", -0.02, 0.02},
      {"GShard Fig. 9 and 5.3", "AllToAll, times", "", 1.0, 1.4},
      {"GShard Fig. 9 and 5.3", "AllReduce, times", "", 1.0, 2.0},
      {"GShard Fig. 8 and 5.2", "times", "", 0.9, 1.2},
      {"Weight-update sharding, Fig. 11 and 6.1", "ms saved", "", 0.6, 0.65},
      {"Weight-update sharding, Fig. 11 and 6.1", "step time, whole by parts", "", 0.75, 0.78},
      {"Weight-update sharding, Fig. 11 and 6.1", "bytes sent, parts by whole", "", 0.99, 1.5},
      {"Weight-update sharding, 4.2 and Fig. 8", "moments, parts by whole", "", 1, 1},
      {"Weight-update sharding, 4.2 and Fig. 8", "memory saved, by V (1 - 1/N)", "", 1.0, 2.2},
      {"Weight-update sharding, 4.2 and Fig. 8", "memory of Adam in parts by descent's", "", 0.85, 1.06},
  };
}

}  // namespace papers
