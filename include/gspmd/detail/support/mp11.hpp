// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/language.hpp"

// Includes Boost.Mp11 although <complex.h> defines some of its names as macros (I, with -std=gnu++20). After this
// header the macros are defined again.
#pragma push_macro("I")
#undef I
#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>
#pragma pop_macro("I")
