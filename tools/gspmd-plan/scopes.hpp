// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <gspmd/dynamic/builder.hpp>

#include "document.hpp"

namespace plan_tool {

/// `"scope": "layer[3]/attention"` of an op. Nodes that are built during the lifetime of this object belong to that
/// part of the program, within the scope of the enclosing op.
class op_scope {
 public:
  op_scope(gspmd::dynamic::builder& program, const json& op, const path& at, error_list& errors) : program_(program) {
    const auto given = op.is_object() ? op.find("scope") : op.end();
    before_ = program_.open_scope();
    if (!op.is_object() || given == op.end() || given->is_null()) return;
    const path here(at, "scope");
    try {
      if (!given->is_string()) throw gspmd::error("is " + found(*given) + ", not a path of names like layer[3]/attention");
      const auto& words = given->get_ref<const std::string&>();
      if (words.size() > 255 || gspmd::printable(words) != words)
        throw gspmd::error(in_quotes(words) + " cannot be a path: 1 to 255 bytes without control characters");
      program_.enter_scope(words);
    } catch (const gspmd::error& e) {
      errors.add(here.str(), e.text());
    }
  }
  ~op_scope() { program_.leave_scope(before_); }
  op_scope(const op_scope&) = delete;
  op_scope& operator=(const op_scope&) = delete;

 private:
  gspmd::dynamic::builder& program_;
  int before_;
};

}  // namespace plan_tool
