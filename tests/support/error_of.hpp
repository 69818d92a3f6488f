// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "gspmd/error.hpp"

/// The error texts of calls that throw.
namespace caught {

/// Returns what() of the gspmd::error that a call throws, with the location. Returns "no error" if it throws none.
std::string error_of(auto&& call) {
  try {
    call();
  } catch (const gspmd::error& e) {
    return e.what();
  }
  return "no error";
}

/// The same without the location. Returns "accepted" if the call does not throw.
std::string refusal(auto&& call) {
  try {
    call();
  } catch (const gspmd::error& e) {
    return e.text();
  }
  return "accepted";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace caught
