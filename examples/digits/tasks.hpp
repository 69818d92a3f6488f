// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "../common/check.hpp"
#include "../common/picture.hpp"
#include "../common/progress.hpp"
#include "options.hpp"
#include "train.hpp"

namespace digits {

/// The result of a training.
struct outcome {
  double first_loss = 0, loss = 0;   // of the first and the last step
  double milliseconds = 0;           // of all steps
  std::vector<std::int32_t> digits;  // that the network reads in the test rows
};

/// Trains for a number of steps on the devices of `backend`. If it reports, the first device shows its progress.
template <class Mesh, class Backend>
outcome train_for(int steps, bool reports, const Backend& backend, const digits_data& data) {
  std::vector<outcome> outcomes(static_cast<std::size_t>(Mesh::device_count));  // equal; with MPI, each process sets its own
  launch(backend, Mesh::device_count, [&]<class Comm>(Comm& comm) {
    trainer<Mesh, Comm> t(comm, data.train);
    const int device = comm.device(0);
    examples::progress progress("step", static_cast<double>(batch));
    outcome result;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) {
      result.loss = t.next();
      if (i == 0) result.first_loss = result.loss;
      if (reports && device == 0) progress.show(i + 1, steps);
    }
    result.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    result.digits = read_test_rows(t.parameters_now(), data.test);
    outcomes[static_cast<std::size_t>(device)] = std::move(result);
  });
  return *std::max_element(outcomes.begin(), outcomes.end(), [](const outcome& a, const outcome& b) { return a.loss < b.loss; });
}

/// Draws test rows as images of 8 x 8 pixels. Row k of the picture shows images that the network reads as digit k.
inline void draw(const std::filesystem::path& path, const dataset& test, const std::vector<std::int32_t>& digits) {
  constexpr std::int64_t side = 8, tile = side + 2, most = 16;  // images in a row of the picture
  const examples::picture p{.rows = tile * classes, .columns = tile * most, .map = examples::colours::grey};
  std::vector<double> image(static_cast<std::size_t>(p.rows * p.columns));
  std::array<std::int64_t, classes> drawn{};
  for (std::size_t row = 0; row < digits.size(); ++row) {
    const auto k = static_cast<std::size_t>(digits[row]);
    if (drawn[k] == most) continue;
    for (std::int64_t i = 0; i < side; ++i)
      for (std::int64_t j = 0; j < side; ++j)
        image[static_cast<std::size_t>((digits[row] * tile + i + 1) * p.columns + drawn[k] * tile + j + 1)] =
            static_cast<double>(test.x[row * static_cast<std::size_t>(pixels) + static_cast<std::size_t>(i * side + j)]);
    ++drawn[k];
  }
  examples::write_png(path, p, image.data());
}

/// Prints the losses on several backends next to the loss on one device.
class comparison {
 public:
  explicit comparison(const digits_data& data) : expected_(train_for<pod<1, 1>>(50, false, serial{}, data).loss) {
    std::printf("the loss after 50 steps\n  serial     1x1  %.7f\n", expected_);
  }
  template <class Mesh, class Backend>
  void add(const char* name, const Backend& backend, const digits_data& data) {
    const double loss = train_for<Mesh>(50, false, backend, data).loss;
    const double off = std::abs(loss - expected_);
    std::printf("  %-10s %s  %.7f  differs by %.1e\n", name, name_of_mesh<Mesh>().c_str(), loss, off);
    apart_ = off <= apart_ ? apart_ : off;
  }
  /// Returns the largest difference from the loss on one device.
  [[nodiscard]] double apart() const { return apart_; }

 private:
  double expected_, apart_ = 0;
};

/// Trains and tests. If requested, compares: `compare(comparison&)` adds the backends. Returns the exit code.
template <class Mesh, class Backend, class Compare>
int run_all(const options& o, const Backend& backend, const digits_data& data, Compare&& compare) {
  using step = train_step<Mesh, batch>;
  if (o.prints_plan) std::printf("%s\n", explain<step>().c_str());
  const outcome result = train_for<Mesh>(o.epochs * steps_per_epoch, true, backend, data);
  std::printf("%d devices; a device sends %lld bytes per training step\n", Mesh::device_count,
              static_cast<long long>(step::traffic.bytes));
  std::printf("%d epochs took %.0f ms; the loss fell from %.3f to %.5f\n", o.epochs, result.milliseconds, result.first_loss,
              result.loss);
  draw(o.out, data.test, result.digits);
  std::printf("picture: %s; row k shows images that the network reads as digit k\n", o.out.c_str());
  bool is_right = true;
  if (o.compares) {
    comparison c(data);
    compare(c);
    is_right = examples::check_at_most("the loss differs from one device by", c.apart(), 1e-5);
  }
  const auto right = std::inner_product(result.digits.begin(), result.digits.end(), data.test.labels.begin(), 0, std::plus<>(),
                                        std::equal_to<>());
  const double percent = 100.0 * right / static_cast<double>(test_rows);
  char claim[128];
  std::snprintf(claim, sizeof claim,
                "the network recognises %.1f %% of %lld digits that it has not seen; at least %d %% is required", percent,
                static_cast<long long>(test_rows), o.expected_percent);
  return examples::check(claim, percent >= o.expected_percent) && is_right ? 0 : 1;
}

}  // namespace digits
