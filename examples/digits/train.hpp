// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>
#include <vector>

#include "data.hpp"
#include "model.hpp"

namespace digits {

// 2 and 4 do not divide 479, so the last devices have a row of padding. The loss is still the mean over the real rows.
constexpr int steps_per_epoch = 3;
constexpr std::int64_t batch = train_rows / steps_per_epoch;
static_assert(batch * steps_per_epoch == train_rows);

struct labelled_images {
  sharded_array<float> x;
  sharded_array<std::int32_t> labels;
};

/// Returns the first velocity: zeros.
inline layers<array<float>> at_rest() {
  return transform_leaves([](const array<float>& w) { return array<float>(w.shape()); }, initial_parameters());
}

/// Returns the digit that the network reads in each test row. Uses the same program as training, planned for one
/// device.
inline std::vector<std::int32_t> read_test_rows(const layers<array<float>>& learned, const dataset& rows) {
  const auto logits = run<classify_step<pod<1, 1>, test_rows>>(serial{}, rows.x, learned);
  std::vector<std::int32_t> digits;
  for (std::int64_t i = 0; i < test_rows; ++i) {
    const auto* row = logits.data() + i * classes;
    digits.push_back(static_cast<std::int32_t>(std::max_element(row, row + classes) - row));
  }
  return digits;
}

/// Trains on the devices that `comm` holds. Whole arrays are split into shards once, at the beginning. After that,
/// every device works in its own memory.
template <class Mesh, communicator Comm>
class trainer {
  using step = train_step<Mesh, batch>;

 public:
  trainer(Comm& comm, const dataset& rows) : comm_(comm) {
    for (int b = 0; b < steps_per_epoch; ++b) {
      const auto* x = rows.x.data() + b * batch * pixels;
      const auto* labels = rows.labels.data() + b * batch;
      batches_.push_back({distribute<step, 0>(comm, x), distribute<step, 1>(comm, labels)});
    }
  }

  /// Trains on the next batch and returns its loss.
  float next() {
    const auto& [x, labels] = batches_[next_batch_];
    step_(comm_, x, labels, now_, loss_, then_);
    std::swap(now_, then_);
    next_batch_ = (next_batch_ + 1) % batches_.size();
    return *loss_.data();
  }

  /// Returns the current parameters, whole.
  layers<array<float>> parameters_now() { return collect(comm_, std::get<0>(now_)); }

 private:
  using state = std::tuple<layers<sharded_array<float>>, layers<sharded_array<float>>>;  // parameters, velocity

  Comm& comm_;
  step step_;
  std::vector<labelled_images> batches_;
  std::size_t next_batch_ = 0;
  sharded_array<float> loss_ = make_result<step, 0>(comm_);
  state now_ = {distribute<step, 2>(comm_, initial_parameters()), distribute<step, 3>(comm_, at_rest())};
  state then_ = {make_result<step, 1>(comm_), make_result<step, 2>(comm_)};
};

}  // namespace digits
