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

// 14 batches of 99 rows and one of 51: neither divides by 2 or 4, so some devices hold a row of padding, and the loss is
// still the mean over the real rows. A step is compiled for each of the two.
constexpr std::int64_t batch = 99, last_batch = train_rows % batch;
constexpr std::size_t full_batches = static_cast<std::size_t>(train_rows / batch);
static_assert(last_batch != 0);

/// Training on the devices that `comm` holds. Whole arrays are cut into shards once, at the beginning; after that every device
/// works in its own memory.
template <class Mesh, communicator Comm>
class trainer {
  using step = train_step<Mesh, batch>;
  using last_step = train_step<Mesh, last_batch>;

 public:
  static constexpr std::size_t steps_per_epoch = full_batches + 1;

  trainer(Comm& comm, const dataset& rows) : comm_(comm) {
    for (std::size_t b = 0; b < steps_per_epoch; ++b) {
      const auto* x = rows.x.data() + b * batch * pixels;
      const auto* labels = rows.labels.data() + b * batch;
      if (b < full_batches) batches_.push_back({scatter<step, 0>(comm, x), scatter<step, 1>(comm, labels)});
      else batches_.push_back({scatter<last_step, 0>(comm, x), scatter<last_step, 1>(comm, labels)});
    }
  }

  /// Trains on the next batch and returns its loss.
  float next() {
    const auto& [x, labels] = batches_[next_batch_];
    if (next_batch_ < full_batches) step_(comm_, x, labels, now_, loss_, then_);
    else last_step_(comm_, x, labels, now_, loss_, then_);
    std::swap(now_, then_);
    next_batch_ = (next_batch_ + 1) % steps_per_epoch;
    return *loss_.data();
  }

  /// Trains on every row once and returns the mean loss.
  float epoch() {
    float total = 0;
    for (std::size_t b = 0; b < full_batches; ++b) total += next() * batch;
    return (total + next() * last_batch) / train_rows;
  }

  /// The share of rows whose largest logit is that of their label.
  double accuracy(const dataset& rows) {
    using classifier = classify_step<Mesh, test_rows>;
    auto logits = make_result<classifier, 0>(comm_);
    classifier{}(comm_, scatter<classifier, 0>(comm_, rows.x), std::get<0>(now_), logits);
    const auto whole = gather(comm_, logits);
    int right = 0;
    for (std::int64_t i = 0; i < test_rows; ++i) {
      const auto* row = whole.data() + i * classes;
      right += std::max_element(row, row + classes) - row == rows.labels[static_cast<std::size_t>(i)];
    }
    return right / static_cast<double>(test_rows);
  }

 private:
  struct labelled_images {
    sharded_array<float> x;
    sharded_array<std::int32_t> labels;
  };
  using state = std::tuple<layers<sharded_array<float>>, layers<sharded_array<float>>>;  // parameters, velocity

  static auto at_rest() {
    return transform_leaves([](const array<float>& w) { return array<float>(w.shape()); }, initial_parameters());
  }

  Comm& comm_;
  step step_;
  last_step last_step_;
  std::vector<labelled_images> batches_;
  std::size_t next_batch_ = 0;
  sharded_array<float> loss_ = make_result<step, 0>(comm_);
  state now_ = {scatter<step, 2>(comm_, initial_parameters()), scatter<step, 3>(comm_, at_rest())};
  state then_ = {make_result<step, 1>(comm_), make_result<step, 2>(comm_)};
};

}  // namespace digits
