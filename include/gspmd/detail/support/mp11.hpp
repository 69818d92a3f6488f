// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/language.hpp"

// Boost.Mp11 with names that <complex.h> defines as macros (I, with -std=gnu++20). The macros are back after this header.
#pragma push_macro("I")
#undef I
#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>
#pragma pop_macro("I")
