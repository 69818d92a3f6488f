// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <gspmd/dynamic.hpp>

namespace reference {

/// A backend as a run-time value, so that a test is compiled once and not once for each backend.
class any_backend {
 public:
  template <class Backend>
  any_backend(Backend)
      : run_([](const gspmd::dynamic::program& p, const std::vector<const void*>& inputs) { return p.run(Backend{}, inputs); }) {}

  [[nodiscard]] std::vector<gspmd::dynamic::any_array> run(const gspmd::dynamic::program& p,
                                                           const std::vector<const void*>& inputs) const {
    return run_(p, inputs);
  }

 private:
  std::vector<gspmd::dynamic::any_array> (*run_)(const gspmd::dynamic::program&, const std::vector<const void*>&);
};

}  // namespace reference
