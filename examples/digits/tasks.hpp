// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "options.hpp"
#include "train.hpp"

namespace digits {

/// Calls `f(trainer, talks)` on the devices of `backend`; `talks` is true on the first one. All return the same number; so
/// does this function.
template <class Mesh, class Backend, class F>
double with_trainers(const Backend& backend, const digits_data& data, F&& f) {
  std::vector<double> results(static_cast<std::size_t>(Mesh::device_count));  // with MPI only the own one is set
  launch(backend, Mesh::device_count, [&]<class Comm>(Comm& comm) {
    trainer<Mesh, Comm> t(comm, data.train);
    results[static_cast<std::size_t>(comm.device(0))] = f(t, comm.device(0) == 0);
  });
  return *std::max_element(results.begin(), results.end());
}

/// Prints a line per epoch and returns the accuracy on the test rows, in percent.
template <class Mesh, class Backend>
double train_and_test(const Backend& backend, const digits_data& data, int epochs) {
  return with_trainers<Mesh>(backend, data, [&](auto& trainer, bool talks) {
    for (int e = 1; e <= epochs; ++e) {
      const auto start = std::chrono::steady_clock::now();
      const float loss = trainer.epoch();
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
      if (talks) std::printf("epoch %2d   loss %.5f   %7.2f ms\n", e, static_cast<double>(loss), took.count());
    }
    return 100 * trainer.accuracy(data.test);
  });
}

template <class Mesh, class Backend>
double loss_after_50_steps(const Backend& backend, const digits_data& data) {
  return with_trainers<Mesh>(backend, data, [](auto& trainer, bool) {
    for (int i = 1; i < 50; ++i) trainer.next();
    return static_cast<double>(trainer.next());
  });
}

/// Sets the losses on several backends beside that of one device.
class comparison {
 public:
  explicit comparison(const digits_data& data) : expected_(loss_after_50_steps<pod<1, 1>>(self{}, data)) {
    std::printf("loss after 50 steps\n  self       1x1  %.7f\n", expected_);
  }
  template <class Mesh, class Backend>
  void add(const char* name, const Backend& backend, const digits_data& data) {
    const double loss = loss_after_50_steps<Mesh>(backend, data);
    const double off = std::abs(loss - expected_);
    std::printf("  %-10s %s  %.7f  off by %.1e\n", name, name_of_mesh<Mesh>().c_str(), loss, off);
    agrees_ = agrees_ && off <= 1e-5;
  }
  /// Whether all agree to 1e-5.
  [[nodiscard]] bool agrees() const { return agrees_; }

 private:
  double expected_;
  bool agrees_ = true;
};

/// Prints the plan, trains, tests, and compares if asked to: `compare(comparison&)` adds the backends. The exit code.
template <class Mesh, class Backend, class Compare>
int run_all(const options& o, const Backend& backend, const digits_data& data, Compare&& compare) {
  std::printf("%s\n", explain<train_step<Mesh, batch>>().c_str());
  const double percent = train_and_test<Mesh>(backend, data, o.epochs);
  bool is_fine = percent >= o.expected_percent;
  std::printf("test accuracy %.2f %%%s\n", percent, is_fine ? "" : ", less than expected");
  if (o.compares) {
    comparison c(data);
    compare(c);
    std::puts(c.agrees() ? "they agree to 1e-5" : "they do not agree to 1e-5");
    is_fine = is_fine && c.agrees();
  }
  return is_fine ? 0 : 1;
}

}  // namespace digits
