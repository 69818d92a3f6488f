// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// Returns the position of the number at the end of a name: `layer[3]` and `layer3` -> 5, `layer` -> 5.
[[gnu::cold]] inline std::size_t number_in(std::string_view name) {
  constexpr std::string_view digits = "0123456789";
  const bool is_index = name.ends_with(']');
  const auto end = is_index ? name.substr(0, name.size() - 1) : name;
  const auto begin = end.find_last_not_of(digits) + 1;  // 0 if the whole name is digits
  if (!is_index) return begin;
  return begin > 0 && name[begin - 1] == '[' && begin < end.size() ? begin - 1 : name.size();
}

/// The scopes of a program, which are the parts that its user named. A scope has a path such as `layer[3]/attention`.
/// All calls share the name `layer/attention`. A path has a number if several calls of the same name are in the same
/// scope. Names that the user numbered also count as calls of the same name:
///
///    layer[0], layer[1]  -> layer        layer0, layer1  -> layer*
///    0, 1                -> *            conv2, if it is the only one  -> conv2
class scope_names {
 public:
  /// `shown` is the end of a path, see `is_shown`; if empty, the whole program is shown. Throws gspmd::error if no path
  /// has this end.
  [[gnu::cold]] explicit scope_names(const plan_view& plan, std::string_view shown = {}) : plan_(plan) {
    std::map<std::pair<int, std::string_view>, int> calls;
    std::vector<int> which;
    // Scopes whose paths differ only in numbers have the same stem. `counted` has the names of a stem that end in
    // digits.
    std::vector<std::string> stems;
    std::map<std::string, std::set<std::string_view>> counted;
    for (const auto& s : plan.scopes) {
      which.push_back(calls[{s.outer, s.name}]++);
      const std::string_view own = s.name;
      stems.push_back((s.outer < 0 ? "" : stems[static_cast<std::size_t>(s.outer)] + '/') +
                      std::string(own.substr(0, number_in(own))));
      if (!own.ends_with(']') && number_in(own) < own.size()) counted[stems.back()].insert(own);
    }
    for (std::size_t i = 0; i < plan.scopes.size(); ++i) {
      const auto& s = plan.scopes[i];
      const std::string number = calls[{s.outer, s.name}] > 1 ? '[' + std::to_string(which[i]) + ']' : "";
      paths_.push_back((s.outer < 0 ? "" : path(s.outer) + '/') + s.name + number);
      const std::string_view own = s.name;
      const bool is_counted = own.ends_with(']') || (number_in(own) < own.size() && counted[stems[i]].size() > 1);
      names_.push_back((s.outer < 0 ? "" : name(s.outer) + '/') +
                       std::string(own.substr(0, is_counted ? number_in(own) : own.size())) +
                       (is_counted && !own.ends_with(']') ? "*" : ""));
    }
    if (!shown.empty()) show(shown);
  }

  [[nodiscard]] bool empty() const { return plan_.scopes.empty(); }
  [[nodiscard]] bool shows_all() const { return shown_.empty(); }
  /// Returns the path of a scope, or "" for -1, which means no scope.
  [[nodiscard]] const std::string& path(int scope) const {
    return scope < 0 ? nothing_ : paths_[static_cast<std::size_t>(scope)];
  }
  [[nodiscard]] const std::string& name(int scope) const {
    return scope < 0 ? nothing_ : names_[static_cast<std::size_t>(scope)];
  }
  [[nodiscard]] int scope_of(const plan_step& s) const { return plan_.nodes[static_cast<std::size_t>(s.node)].scope; }
  /// Returns a scope and the scopes around it, the outermost first.
  [[nodiscard, gnu::cold]] std::vector<int> around(int scope) const {
    std::vector<int> found;
    for (; scope >= 0; scope = plan_.scopes[static_cast<std::size_t>(scope)].outer) found.insert(found.begin(), scope);
    return found;
  }
  /// Returns true if an operator, or a loop or conditional around it, is in the part that is shown.
  [[nodiscard]] bool is_shown(int node) const {
    if (shown_.empty()) return true;
    for (; node >= 0; node = plan_.nodes[static_cast<std::size_t>(node)].region)
      if (const int s = plan_.nodes[static_cast<std::size_t>(node)].scope; s >= 0 && shown_[static_cast<std::size_t>(s)])
        return true;
    return false;
  }
  [[nodiscard]] bool is_shown(const plan_step& s) const { return is_shown(s.node); }

 private:
  [[gnu::cold]] void show(std::string_view wanted) {
    bool any = false;
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      const int outer = plan_.scopes[i].outer;
      shown_.push_back((outer >= 0 && shown_[static_cast<std::size_t>(outer)]) || ends_with(paths_[i], wanted));
      any = any || shown_.back();
    }
    if (any) return;
    std::string there;
    std::size_t count = 0;
    std::map<std::string_view, int> listed;
    for (const auto& n : names_)
      if (listed[n]++ == 0 && ++count <= 20) there += (there.empty() ? "" : ", ") + n;
    throw error("no scope of the program is called `" + std::string(wanted) + "`; " +
                (there.empty() ? "none has a name, give one with named<\"...\">(function, arguments...)"
                               : "there are: " + there + (count > 20 ? " and more" : "")));
  }
  /// Compares name by name from the end. A name without a number matches all calls, and `*` matches any digits.
  [[nodiscard]] static bool ends_with(std::string_view path, std::string_view end) {
    while (true) {
      const auto own = path.substr(path.rfind('/') + 1), wanted = end.substr(end.rfind('/') + 1);
      const bool is_any = wanted.ends_with('*') && number_in(own) < own.size() &&
                          own.substr(0, number_in(own)) == wanted.substr(0, wanted.size() - 1);
      if (own != wanted && own.substr(0, own.find('[')) != wanted && !is_any) return false;
      if (end.size() == wanted.size()) return true;
      if (path.size() == own.size()) return false;
      path.remove_suffix(own.size() + 1);
      end.remove_suffix(wanted.size() + 1);
    }
  }

  const plan_view& plan_;
  std::vector<std::string> paths_, names_;  // by scope
  std::vector<bool> shown_;                 // by scope; empty: everything is shown
  std::string nothing_;
};

}  // namespace gspmd::detail
