// SPDX-License-Identifier: Apache-2.0
// Two stencils, compared with hand-written code: Jacobi's iteration on 4096 x 4096 points (5-point), and the heat
// equation on 256^3 (7-point). Run as a loop of the program, as a step that alternates between two fields, and as a
// step on fields with ghost layers, which the step fills. Hand-written: a block of two fields with ghost cells. If
// ghost cells are available immediately (threads), one loop computes the block. Otherwise (MPI), the interior is
// computed during the exchange, then the boundary.
#pragma once

#include <gspmd/external/with_ghosts.hpp>
#include <gspmd/gspmd.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "race.hpp"

namespace bench {

using namespace gspmd;

constexpr int trips = 20;

struct jacobi {
  static constexpr const char* name = "jacobi 4096^2";
  static constexpr std::int64_t extents[] = {4096, 4096};
  static constexpr auto step = [](auto t) {
    return 0.25 * (shift(t, -1, along(0)) + shift(t, 1, along(0)) + shift(t, -1, along(1)) + shift(t, 1, along(1)));
  };
  template <class Split>
  using input = gspmd::input<double, shape<4096, 4096>, Split>;
  using line = split<"x", _>;
  using square = split<"x", "y">;
};
struct heat {
  static constexpr const char* name = "heat 256^3";
  static constexpr std::int64_t extents[] = {256, 256, 256};
  static constexpr auto step = [](auto t) {
    const auto around = shift(t, -1, along(0)) + shift(t, 1, along(0)) + shift(t, -1, along(1)) + shift(t, 1, along(1)) +
                        shift(t, -1, along(2)) + shift(t, 1, along(2));
    return t + 0.1 * (around - 6.0 * t);
  };
  template <class Split>
  using input = gspmd::input<double, shape<256, 256, 256>, Split>;
  using line = split<"x", _, _>;
  using square = split<"x", "y", _>;
};
template <class Problem>
constexpr auto iterate = [](auto t) {
  return fori_loop(
      trips, [](auto, auto u) { return Problem::step(u); }, t);
};

/// The block of one device, with ghost cells at both ends of each dim.
template <class Problem>
struct block {
  static constexpr int rank = static_cast<int>(std::size(Problem::extents));
  std::int64_t n[3] = {1, 1, 1};
  std::int64_t part[2], parts[2];  // the part of the first two dims, and the number of parts
  std::int64_t row, plane;         // strides of the first two dims, ghost cells included
  std::vector<double> field[2];
  int now = 0;

  block(std::int64_t over_x, std::int64_t over_y, int device) : part{device / over_y, device % over_y}, parts{over_x, over_y} {
    for (int d = 0; d < rank; ++d) n[d] = Problem::extents[d] / (d < 2 ? parts[d] : 1);
    row = rank == 3 ? n[2] + 2 : 1;
    plane = (n[1] + 2) * row;
    for (auto& f : field) f.assign(static_cast<std::size_t>((n[0] + 2) * plane), 0.0);
  }
  [[nodiscard]] std::int64_t bytes() const { return 2 * static_cast<std::int64_t>(field[0].size() * sizeof(double)); }
  double& at(std::int64_t i, std::int64_t j, std::int64_t k) {
    return field[now][static_cast<std::size_t>((i + 1) * plane + (j + 1) * row + (rank == 3 ? k + 1 : 0))];
  }
  double& other_at(std::int64_t i, std::int64_t j, std::int64_t k) {
    return field[1 - now][static_cast<std::size_t>(&at(i, j, k) - field[now].data())];
  }
  /// Returns the device before (-1) or after (1) this device along one of the first two dims; -1 if it does not exist.
  [[nodiscard]] int neighbour(int dim, int side) const {
    const auto p = part[dim] + side;
    if (p < 0 || p >= parts[dim]) return -1;
    return static_cast<int>(dim == 0 ? p * parts[1] + part[1] : part[0] * parts[1] + p);
  }
  /// A layer of points, at index -1 (ghost cells) to n. It starts at `begin` and has `pieces` pieces of `length`
  /// points, `step` points apart.
  struct layer {
    std::int64_t begin, pieces, length, step;
  };
  [[nodiscard]] layer layer_of(int dim, std::int64_t index) const {
    if (dim == 0) return {(index + 1) * plane, 1, plane, plane};
    return {plane + (index + 1) * row, n[0], row, plane};
  }

  void compute() {
    compute_box(1, n[0] + 1, 1, n[1] + 1);
    now = 1 - now;
  }
  /// Computes the elements that need no ghost cells from other devices.
  void compute_inner() { compute_box(inner(0).begin, inner(0).end, inner(1).begin, inner(1).end); }
  /// Computes the other elements.
  void compute_rim() {
    const auto rows = inner(0), columns = inner(1);
    compute_box(1, rows.begin, 1, n[1] + 1);
    compute_box(rows.end, n[0] + 1, 1, n[1] + 1);
    compute_box(rows.begin, rows.end, 1, columns.begin);
    compute_box(rows.begin, rows.end, columns.end, n[1] + 1);
    now = 1 - now;
  }
  struct indices {
    std::int64_t begin, end;
  };
  [[nodiscard]] indices inner(int dim) const {
    return {neighbour(dim, -1) < 0 ? 1 : 2, neighbour(dim, 1) < 0 ? n[dim] + 1 : n[dim]};
  }
  void compute_box(std::int64_t first_row, std::int64_t end_row, std::int64_t first, std::int64_t end) {
    const double* const from = field[now].data();
    double* const to = field[1 - now].data();
    if constexpr (rank == 2) {
      for (std::int64_t i = first_row; i < end_row; ++i) {
        const double* const t = from + i * plane;
        double* const out = to + i * plane;
        const auto scalars = [&](std::int64_t j, std::int64_t last) {
          for (; j < last; ++j) out[j] = 0.25 * (((t[j - plane] + t[j + plane]) + t[j - 1]) + t[j + 1]);
          return j;
        };
        constexpr std::int64_t lanes = detail::simd_lanes<double>;
        std::int64_t j = scalars(first, std::min(end, first + detail::elements_to_alignment(out + first)));
        for (; j + lanes <= end; j += lanes) {  // the fields are larger than the caches
          const auto at = [&](std::int64_t by) { return detail::load_simd(t + j + by); };
          detail::stream_simd(out + j, 0.25 * (((at(-plane) + at(plane)) + at(-1)) + at(1)));
        }
        scalars(j, end);
      }
      detail::fence_streams();
    } else {
      for (std::int64_t i = first_row; i < end_row; ++i)
        for (std::int64_t j = first; j < end; ++j) {
          const double* __restrict const t = from + i * plane + j * row;
          double* __restrict const out = to + i * plane + j * row;
          for (std::int64_t k = 1; k <= n[2]; ++k) {
            const double around = ((((t[k - plane] + t[k + plane]) + t[k - row]) + t[k + row]) + t[k - 1]) + t[k + 1];
            out[k] = t[k] + 0.1 * (around - 6.0 * t[k]);
          }
        }
    }
  }
};

struct timing : race_times {
  std::int64_t our_bytes = 0, hand_bytes = 0;
};

enum class how { loop, step, ghosted };
template <class Step>
struct ghosted_of {
  static constexpr bool is_flat = Step::view.value(Step::view.inputs[0]).global.count == 2;
  using layer = std::conditional_t<is_flat, ghosts<1, 1>, ghosts<1, 1, 1>>;
  using type = with_ghosts<Step, layer, layer>;
};

/// Runs both alternately on the device that `comm` holds. Device 0 stores the times of one step. `exchange(block)`
/// starts the exchange of ghost cells. It returns a function that waits for the ghost cells, or a number if the ghost
/// cells are already available.
template <class Problem, class Step, how How, class Comm, class Exchange>
void race(Comm& comm, block<Problem>& hand, const Exchange& exchange, int rounds, timing& times) {
  using shard = typename Step::template input_shard<0>;
  constexpr bool has_ghosts = How == how::ghosted;
  std::vector<double> a(has_ghosts ? hand.field[0].size() : static_cast<std::size_t>(shard::local_elems)),
      b(How == how::loop ? 0 : a.size());
  detail::extents all;
  for (int d = 0; d < block<Problem>::rank; ++d) all.push_back(hand.n[d] + 2);
  std::size_t e = 0;
  for (std::int64_t i = 0; i < hand.n[0]; ++i)
    for (std::int64_t j = 0; j < hand.n[1]; ++j)
      for (std::int64_t k = 0; k < hand.n[2]; ++k) hand.at(i, j, k) = static_cast<double>((i * 7 + j * 5 + k * 3) % 11) - 5;
  if constexpr (has_ghosts) {
    a = hand.field[hand.now];
  } else {
    for (std::int64_t i = 0; i < hand.n[0]; ++i)
      for (std::int64_t j = 0; j < hand.n[1]; ++j)
        for (std::int64_t k = 0; k < hand.n[2]; ++k) a[e++] = hand.at(i, j, k);
  }
  std::conditional_t<has_ghosts, typename ghosted_of<Step>::type, Step> step;
  times.our_bytes = static_cast<std::int64_t>((a.size() + b.size()) * sizeof(double)) + step.view.arena_bytes;
  times.hand_bytes = hand.bytes();
  for (int round = 0; round < rounds + 2; ++round) {
    double ours = 0, by_hand = 0;
    for (int turn = 0; turn < 2; ++turn) {
      comm.barrier();
      const double start = now_ms();
      if ((turn == 0) == (round % 2 == 0)) {
        if constexpr (How == how::loop) {
          step(comm, a, a);  // the field is overwritten, as in the hand-written code
        } else {
          for (int t = 0; t < trips; ++t) {
            if constexpr (has_ghosts) step(comm, exchange_ghosts(strided_view(a.data(), all)), ghosted_view(b.data(), all));
            else step(comm, a, b);
            std::swap(a, b);
          }
        }
        comm.barrier();
        ours = now_ms() - start;
      } else {
        for (int t = 0; t < trips; ++t) {
          auto wait = exchange(hand);
          if constexpr (std::is_arithmetic_v<decltype(wait)>) {
            hand.compute();
          } else {
            hand.compute_inner();
            wait();
            hand.compute_rim();
          }
        }
        comm.barrier();
        by_hand = now_ms() - start;
      }
    }
    if (comm.device(0) == 0 && round >= 2) times.add(ours / trips, by_hand / trips);
  }
  if constexpr (has_ghosts) std::swap(a, hand.field[1 - hand.now]);
  e = 0;
  for (std::int64_t i = 0; i < hand.n[0]; ++i)
    for (std::int64_t j = 0; j < hand.n[1]; ++j)
      for (std::int64_t k = 0; k < hand.n[2]; ++k, ++e)
        if (!(std::abs((has_ghosts ? hand.other_at(i, j, k) : a[e]) - hand.at(i, j, k)) < 1e-9))
          throw error("the fields differ at " + std::to_string(e));
}

inline void print(const std::string& what, const timing& t) {
  t.print(what);
  const double mine = static_cast<double>(t.our_bytes) * 1e-6, other = static_cast<double>(t.hand_bytes) * 1e-6;
  print_row(what + ", memory of a device", "MB", mine, "hand-written", other, {mine / other});
}

/// `run(devices, visit)` calls visit(comm, exchange) on each device, and returns true if this process prints.
template <class Problem, class Mesh, class Split, int X, int Y, class Run>
void compare(const char* backend, const char* mesh_text, int rounds, const Run& run) {
  using input = typename Problem::template input<Split>;
  const auto one = [&]<class Step, how How>(const char* words) {
    timing times;
    const bool prints = run.template operator()<Problem>(X * Y, [&](auto& comm, const auto& exchange) {
      block<Problem> hand(X, Y, comm.device(0));
      timing own;
      race<Problem, Step, How>(comm, hand, exchange, rounds, own);
      if (comm.device(0) == 0) times = own;
    });
    if (prints) print(std::string(Problem::name) + ", " + backend + ' ' + mesh_text + ", " + words, times);
  };
  one.template operator()<compile<iterate<Problem>, Mesh, input>, how::loop>("fori_loop");
  one.template operator()<compile<Problem::step, Mesh, input>, how::step>("a step");
  one.template operator()<compile<Problem::step, Mesh, input>, how::ghosted>("a step in ghost layers");
}

template <class Run>
void compare_all(const char* backend, int devices, int rounds, const Run& run) {
  using line = mesh<axis<"x", 2>>;
  using square = mesh<axis<"x", 2>, axis<"y", 2>>;
  compare<jacobi, line, jacobi::line, 2, 1>(backend, "x=2", rounds, run);
  compare<heat, line, heat::line, 2, 1>(backend, "x=2", rounds, run);
  if (devices < 4) return;
  compare<jacobi, square, jacobi::square, 2, 2>(backend, "x=2, y=2", rounds, run);
  compare<heat, square, heat::square, 2, 2>(backend, "x=2, y=2", rounds, run);
}

}  // namespace bench
