// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/comm/simulated.hpp"
#include "gspmd/ops/einsum.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/plan/network.hpp"
#include "gspmd/run/compile.hpp"

/// Measures the network of this machine, for plans.
namespace gspmd {
namespace detail {

/// Times work that all devices of a communicator do concurrently. The slowest device counts, so all devices get the
/// same times.
template <class Comm>
class device_clock {
 public:
  explicit device_clock(Comm& comm) : comm_(comm) { mesh_.sizes.push_back(comm.device_count()); }

  /// Returns the least time in seconds of `rounds` calls of `work()`. All devices begin each call together. If one call
  /// takes 0.05 seconds or more, the time of that call is returned.
  template <class Work>
  double least_of(int rounds, Work work) {
    constexpr double long_enough = 0.05;
    seconds_of(work);  // warms up caches, pages and the BLAS
    auto least = longest(seconds_of(work));
    if (least >= long_enough) return least;  // on all devices, because longest() is the same there
    for (int k = 1; k < rounds; ++k) least = std::min(least, seconds_of(work));
    return longest(least);
  }

  /// Returns the least time in seconds that each device needs to get `bytes` from each other device.
  double of_gather(std::int64_t bytes, int rounds) {
    const auto n = static_cast<std::int64_t>(comm_.device_count());
    const auto words = std::max<std::int64_t>(bytes / 8, 1);
    extents shape;
    shape.push_back(n * words);
    sharding from;
    from.splits.push_back({0, 0});
    const auto m = numbered(mesh_, movement(shape, from, {}, movement_axes(mesh_, shape, from, {})));
    const auto count = static_cast<std::size_t>(comm_.local_count());
    std::vector<std::vector<std::int64_t>> own(count, std::vector<std::int64_t>(static_cast<std::size_t>(words), 1)),
        all(count, std::vector<std::int64_t>(static_cast<std::size_t>(n * words)));
    std::vector<const std::int64_t*> in;
    std::vector<std::int64_t*> out;
    for (std::size_t d = 0; d < count; ++d) {
      in.push_back(own[d].data());
      out.push_back(all[d].data());
    }
    return least_of(rounds, [&] { comm_.move(mesh_, m, in.data(), out.data()); });
  }

 private:
  template <class Work>
  double seconds_of(Work& work) {
    comm_.barrier();
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  double longest(double seconds) {
    if (comm_.device_count() == 1) return seconds;
    const auto count = static_cast<std::size_t>(comm_.local_count());
    std::vector<double> each(count, seconds);
    std::vector<const double*> in;
    std::vector<double*> out;
    for (auto& s : each) {
      in.push_back(&s);
      out.push_back(&s);
    }
    reduction r;
    r.axes = r.from.partial = axis_bit(0);
    r.reduced_by = r.from.reduced_by = monoid::max;
    comm_.reduce(mesh_, numbered(mesh_, r), in.data(), out.data());
    return each[0];
  }

  Comm& comm_;
  mesh_shape mesh_;
};

inline constexpr auto measured_product = [](auto a, auto b) { return einsum<"ij,jk->ik">(a, b); };
inline constexpr auto measured_sweep = [](auto a, auto b) { return a + b; };

}  // namespace detail

/// Returns the network of a communicator: a single switch that joins its devices. The network has the time of a
/// message, and the bytes per second, flops per second and memory bandwidth of a device. All devices work concurrently
/// while they are measured. All devices get the same numbers, so they make the same plans.
///
/// It takes about half a second. It times all_gathers of 8 bytes from each device, which take log2(n) messages one
/// after another, and of 1 MiB. It also times products of two matrices of 512 x 512 floats, and sums of two arrays of
/// 32 MiB. The least of several times counts, on the slowest device.
/// A communicator with a single device sends nothing. Its messages take no time, and its bytes per second are the
/// memory bandwidth.
///
/// **Communication.** Collective over all devices.
/// **Example.**
///
///     network here = measure_network(comm);
///     auto program = dynamic::compile(layer, mesh, {.network = here}, ...);
template <communicator Comm>
[[nodiscard]] network measure_network(Comm& comm) {
  using one = mesh<axis<"device", 1>>;
  constexpr std::int64_t side = 512, length = std::int64_t{1} << 23;
  using product = compile<detail::measured_product, one, input<float, shape<side, side>>, input<float, shape<side, side>>>;
  using sweep = compile<detail::measured_sweep, one, input<float, shape<length>>, input<float, shape<length>>>;
  detail::device_clock clock(comm);
  simulated_communicator alone(1);
  const auto rate_of = [&](auto step, std::int64_t elems, double amount) {
    std::vector<float> a(static_cast<std::size_t>(elems), 1), b(a), c(a);
    return amount / clock.least_of(5, [&] {
      for (int d = 0; d < comm.local_count(); ++d) step(alone, a, b, c);
    });
  };
  const auto flops = rate_of(product{}, side * side, 2.0 * side * side * side);
  const auto memory = rate_of(sweep{}, length, 3.0 * 4 * length);
  const auto n = static_cast<std::int64_t>(comm.device_count());
  if (n == 1) return network(flops, memory, 0).with_memory(memory);

  constexpr std::int64_t large = std::int64_t{1} << 20;
  const auto of_message = clock.of_gather(8, 100), of_bytes = clock.of_gather(large, 10);
  const auto messages = static_cast<double>(detail::doublings(n)), sent = static_cast<double>((n - 1) * large);
  return network(flops, sent / std::max(of_bytes - of_message, 1e-9), of_message / messages).with_memory(memory);
}

}  // namespace gspmd
