// SPDX-License-Identifier: Apache-2.0
// instructions CASE   runs a compiled step and the same hand-written loops once each, in the functions CASE_step and
//                     CASE_by_hand.
// callgrind counts their instructions (count.cmake). Returns 1 if their results differ.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

#include <gspmd/gspmd.hpp>

namespace {

using namespace gspmd;
using std::int64_t;

constexpr int64_t rows = 128, columns = 1024;
using device = mesh<axis<"x", 1>>;
using matrix = input<float, shape<rows, columns>, split<"x", _>>;
using floats = std::vector<float>;

// ---- a chain of elementwise operators, as one loop ----

constexpr auto chain = [](auto x, auto y) { return relu((x * 2.0f + y) * x - 0.5f) + floor(y); };
// GCC has no vector instruction for floor by default.
[[gnu::noinline, gnu::optimize("no-trapping-math")]] void chain_of(const float* __restrict x, const float* __restrict y,
                                                                   float* __restrict out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float t = (x[i] * 2.0F + y[i]) * x[i] - 0.5F;
    out[i] = (t > 0 ? t : 0) + __builtin_floorf(y[i]);
  }
}

// ---- a select with one computed side: compilers make branches of `x > 0 ? 2 * x : y`, and no branches of masks

constexpr auto choice = [](auto x, auto y) { return where(x > 0.0f, x * 2.0f, y); };
void choice_of(const float* __restrict x, const float* __restrict y, float* __restrict out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const auto mask = x[i] > 0 ? ~0U : 0U;
    out[i] = std::bit_cast<float>((std::bit_cast<unsigned>(2 * x[i]) & mask) | (std::bit_cast<unsigned>(y[i]) & ~mask));
  }
}

// ---- five points to one, zeros outside ----

constexpr auto stencil = [](auto t) {
  return 0.25f * (shift(t, -1, along(0)) + shift(t, 1, along(0)) + shift(t, -1, along(1)) + shift(t, 1, along(1)));
};
void stencil_of(const float* __restrict t, float* __restrict out) {
  static const float zeros[columns] = {};
  for (int64_t i = 0; i < rows; ++i) {
    const float* const at = t + i * columns;
    const float* const up = i > 0 ? at - columns : zeros;
    const float* const down = i + 1 < rows ? at + columns : zeros;
    float* const to = out + i * columns;
    to[0] = 0.25F * ((up[0] + down[0]) + at[1]);
    for (int64_t j = 1; j + 1 < columns; ++j) to[j] = 0.25F * (((up[j] + down[j]) + at[j - 1]) + at[j + 1]);
    to[columns - 1] = 0.25F * ((up[columns - 1] + down[columns - 1]) + at[columns - 2]);
  }
}

// ---- a softmax of each row ----

constexpr auto rows_softmax = [](auto x) { return softmax(x, 1); };
/// Compilers may not reorder sums, so this sum uses 64 partial sums.
void softmax_of(const float* __restrict x, float* __restrict y) {
  constexpr int64_t parts = 64;
  float some[parts];
  for (int64_t j = 0; j < parts; ++j) some[j] = x[j];
  for (int64_t i = parts; i < columns; i += parts)
    for (int64_t j = 0; j < parts; ++j) some[j] = ((some[j] != some[j]) | (some[j] > x[i + j])) ? some[j] : x[i + j];
  float most = some[0];
  for (const float v : some) most = v > most ? v : most;
  for (float& s : some) s = 0;
  for (int64_t i = 0; i < columns; i += parts)
    for (int64_t j = 0; j < parts; ++j) some[j] += y[i + j] = detail::exponential(x[i + j] - most);
  float all = 0;
  for (const float s : some) all += s;
  for (int64_t i = 0; i < columns; ++i) y[i] /= all;
}

using chain_program = compile<chain, device, matrix, matrix>;
using choice_program = compile<choice, device, matrix, matrix>;
using stencil_program = compile<stencil, device, matrix>;
using softmax_program = compile<rows_softmax, device, matrix>;

floats numbers(int64_t first) {
  floats v(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = 0.01F * static_cast<float>((static_cast<std::size_t>(first) * i + 3) % 601) - 2.5F;
  return v;
}

}  // namespace

// callgrind's --toggle-collect names these functions.
extern "C" {
[[gnu::noipa]] void chain_step(chain_program& step, gspmd::simulated_communicator& comm, const floats& x, const floats& y,
                               floats& out) {
  step(comm, x, y, out);
}
[[gnu::noipa]] void chain_by_hand(const floats& x, const floats& y, floats& out) {
  chain_of(x.data(), y.data(), out.data(), rows * columns);
}
[[gnu::noipa]] void choice_step(choice_program& step, gspmd::simulated_communicator& comm, const floats& x, const floats& y,
                                floats& out) {
  step(comm, x, y, out);
}
[[gnu::noipa]] void choice_by_hand(const floats& x, const floats& y, floats& out) {
  choice_of(x.data(), y.data(), out.data(), rows * columns);
}
[[gnu::noipa]] void stencil_step(stencil_program& step, gspmd::simulated_communicator& comm, const floats& t, floats& out) {
  step(comm, t, out);
}
[[gnu::noipa]] void stencil_by_hand(const floats& t, floats& out) { stencil_of(t.data(), out.data()); }
[[gnu::noipa]] void softmax_step(softmax_program& step, gspmd::simulated_communicator& comm, const floats& x, floats& y) {
  step(comm, x, y);
}
[[gnu::noipa]] void softmax_by_hand(const floats& x, floats& y) {
  for (int64_t r = 0; r < rows; ++r) softmax_of(x.data() + r * columns, y.data() + r * columns);
}
// The control: hand-written, and 4 rows of 128 are computed twice.
[[gnu::noipa]] void control_step(const floats& x, const floats& y, floats& out) {
  chain_of(x.data(), y.data(), out.data(), rows * columns);
  chain_of(x.data(), y.data(), out.data(), 4 * columns);
}
[[gnu::noipa]] void control_by_hand(const floats& x, const floats& y, floats& out) {
  chain_of(x.data(), y.data(), out.data(), rows * columns);
}
}

int main(int argc, char** argv) {
  const std::string_view name = argc == 2 ? argv[1] : "";
  const floats x = numbers(7), y = numbers(11);
  floats out(x.size()), hand(x.size());
  gspmd::launch(gspmd::serial{}, 1, [&](auto& comm) {
    if (name == "chain") {
      chain_program step;
      step(comm, x, y, out);  // the first call allocates the memory of the step
      chain_step(step, comm, x, y, out);
      chain_by_hand(x, y, hand);
    } else if (name == "choice") {
      choice_program step;
      step(comm, x, y, out);
      choice_step(step, comm, x, y, out);
      choice_by_hand(x, y, hand);
    } else if (name == "stencil") {
      stencil_program step;
      step(comm, x, out);
      stencil_step(step, comm, x, out);
      stencil_by_hand(x, hand);
    } else if (name == "softmax") {
      softmax_program step;
      step(comm, x, out);
      softmax_step(step, comm, x, out);
      softmax_by_hand(x, hand);
    } else if (name == "control") {
      control_step(x, y, out);
      control_by_hand(x, y, hand);
    }
  });
  float most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    most = std::fmax(most, std::fabs(out[i]));
    if (std::fabs(out[i] - hand[i]) <= 1e-5F * (1 + std::fabs(hand[i]))) continue;
    std::printf("element %zu is %g, by hand %g\n", i, static_cast<double>(out[i]), static_cast<double>(hand[i]));
    return 1;
  }
  return most > 0 ? 0 : 1;  // something was computed
}
