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

/// Prints a line per epoch: the mean loss of its steps, and their time.
class epoch_report {
 public:
  explicit epoch_report(bool talks) : talks_(talks) {}
  void add(float loss) {
    total_ += loss;
    if (++steps_ % steps_per_epoch != 0) return;
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double, std::milli> took = now - begin_;
    if (talks_)
      std::printf("epoch %2d   loss %.5f   %7.2f ms\n", steps_ / steps_per_epoch, static_cast<double>(total_ / steps_per_epoch),
                  took.count());
    total_ = 0;
    begin_ = now;
  }

 private:
  bool talks_;
  int steps_ = 0;
  float total_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// The result of a training.
struct outcome {
  double loss = 0;      // of the last step
  double accuracy = 0;  // on the test rows, in percent
};

/// Trains for a number of steps on the devices of `backend`. If it reports, the first device prints a line per epoch.
template <class Mesh, class Backend>
outcome train_for(int steps, bool reports, const Backend& backend, const digits_data& data) {
  std::vector<outcome> outcomes(static_cast<std::size_t>(Mesh::device_count));  // equal; with MPI, each process sets its own
  launch(backend, Mesh::device_count, [&]<class Comm>(Comm& comm) {
    trainer<Mesh, Comm> t(comm, data.train);
    const int device = comm.device(0);
    epoch_report report(reports && device == 0);
    float loss = 0;
    for (int i = 0; i < steps; ++i) report.add(loss = t.next());
    outcomes[static_cast<std::size_t>(device)] = {loss, 100 * accuracy(t.parameters_now(), data.test)};
  });
  return *std::max_element(outcomes.begin(), outcomes.end(), [](const outcome& a, const outcome& b) { return a.loss < b.loss; });
}

/// Prints the losses on several backends next to the loss on one device.
class comparison {
 public:
  explicit comparison(const digits_data& data) : expected_(train_for<pod<1, 1>>(50, false, serial{}, data).loss) {
    std::printf("loss after 50 steps\n  serial     1x1  %.7f\n", expected_);
  }
  template <class Mesh, class Backend>
  void add(const char* name, const Backend& backend, const digits_data& data) {
    const double loss = train_for<Mesh>(50, false, backend, data).loss;
    const double off = std::abs(loss - expected_);
    std::printf("  %-10s %s  %.7f  off by %.1e\n", name, name_of_mesh<Mesh>().c_str(), loss, off);
    agrees_ = agrees_ && off <= 1e-5;
  }
  /// Returns true if all losses agree to 1e-5.
  [[nodiscard]] bool agrees() const { return agrees_; }

 private:
  double expected_;
  bool agrees_ = true;
};

/// Prints the plan, trains, and tests. If requested, compares: `compare(comparison&)` adds the backends. Returns the
/// exit code.
template <class Mesh, class Backend, class Compare>
int run_all(const options& o, const Backend& backend, const digits_data& data, Compare&& compare) {
  std::printf("%s\n", explain<train_step<Mesh, batch>>().c_str());
  const double percent = train_for<Mesh>(o.epochs * steps_per_epoch, true, backend, data).accuracy;
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
