// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reports about plans and their costs: texts, pictures and times.

#include "gspmd/report/draw.hpp"
#include "gspmd/report/explain.hpp"
#include "gspmd/report/explain_sharding.hpp"
#include "gspmd/report/inspect.hpp"
#include "gspmd/report/network.hpp"
#include "gspmd/report/report.hpp"
#include "gspmd/report/suggest_annotations.hpp"
