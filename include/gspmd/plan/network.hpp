// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/network_rates.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/error.hpp"
#include "gspmd/program/sharding.hpp"

/// A network is one link for each mesh axis, and the speed of a device. With the option `network`, the planner chooses
/// plans by their time on the network. report/network.hpp estimates times on a network.
namespace gspmd {

/// The connection of the devices along one mesh axis.
enum class topology : std::uint8_t {
  torus,     // each device to the next and the previous one, in a ring; two devices share one link
  switched,  // each device by one port to a switch that carries all messages concurrently
  tapered,   // the same, but if more than 16 devices exchange data, they share the links between switches
};

/// The link of a device along one mesh axis. Use two mesh axes for an axis that covers two dims of a torus.
struct axis_link {
  dim_spec axis = _;  // the name of the mesh axis
  topology connected = topology::switched;
  double bytes_per_second = 0;     // for a link or port, in each direction
  double seconds_per_message = 0;  // torus: for each link on the way
};

/// A network and the speed of a device: the flops per second of large products, and the memory bandwidth (with_memory).
/// For a program on `views`, the axes are the axes of the first mesh.
///
/// **Example.**
///
///     constexpr network pod(61.5e12, {{"x", topology::torus, 70e9, 1e-6}, {"y", topology::torus, 70e9, 1e-6}});
///     constexpr network cluster(1e12, 10e9, 1e-6);   // one switch joins all devices
///     static_assert(estimate<step>(pod).communication < 1e-3);
class network {
 public:
  /// Makes a network from the links of the mesh axes.
  ///
  /// **Errors.** Throws gspmd::error: a rate that is not positive, a negative time, or more than 16 links.
  constexpr network(double flops_per_second, std::initializer_list<axis_link> links)
      : network(flops_per_second, detail::span<const axis_link>(links.begin(), links.size())) {}
  constexpr network(double flops_per_second, detail::span<const axis_link> links)
      : flops_per_second_(flops_per_second),
        memory_bytes_per_second_(flops_per_second / static_cast<double>(detail::default_flops_per_byte_of_memory)) {
    if (!(flops_per_second > 0)) throw error("network: a device computes at a positive rate");
    if (links.size() > static_cast<std::size_t>(detail::max_axes)) throw error("network: a mesh has at most 16 axes");
    for (const auto& link : links) {
      if (!(link.bytes_per_second > 0) || !(link.seconds_per_message >= 0))
        throw error("network: axis `" + std::string(link.axis.view()) +
                    "` needs a positive rate and a time that is not negative");
      links_.push_back(link);
    }
  }
  /// Makes a network with a single switch that joins all devices of any mesh. Each device has one port to the switch.
  ///
  /// **Errors.** Throws gspmd::error: the same, or if `connected` is topology::torus.
  constexpr network(double flops_per_second, double bytes_per_second, double seconds_per_message,
                    topology connected = topology::switched)
      : network(flops_per_second, {{_, connected, bytes_per_second, seconds_per_message}}) {
    if (connected == topology::torus) throw error("network: a link between all devices is `switched` or `tapered`");
    is_one_switch_ = true;
  }
  /// Returns the same network with a memory bandwidth, in bytes read and written per second. The default is one byte in
  /// the time of 10 flops.
  ///
  /// **Errors.** Throws gspmd::error: a rate that is not positive.
  /// **Example.**
  ///
  ///     constexpr network tpu_v3 = network(61.5e12, {{"x", topology::torus, 70e9, 1e-6}}).with_memory(450e9);
  [[nodiscard]] constexpr network with_memory(double bytes_per_second) const {
    if (!(bytes_per_second > 0)) throw error("network: the memory of a device has a positive rate");
    network result = *this;
    result.memory_bytes_per_second_ = bytes_per_second;
    return result;
  }
  [[nodiscard]] constexpr double flops_per_second() const { return flops_per_second_; }
  [[nodiscard]] constexpr double memory_bytes_per_second() const { return memory_bytes_per_second_; }
  /// Returns the link of an axis.
  ///
  /// **Errors.** Throws gspmd::error: the network does not describe the axis.
  [[nodiscard]] constexpr const axis_link& link(std::string_view axis) const {
    if (is_one_switch_) return links_[0];
    for (const auto& l : links_)
      if (l.axis.view() == axis) return l;
    throw error("network: the mesh axis `" + std::string(axis) + "` has no link; add one to the network");
  }

  /// Returns the same rates as integers, for each axis of a mesh. If the network does not describe an axis of more than
  /// one device, `problem` names the axis.
  [[nodiscard]] constexpr detail::described_network rates_on(const detail::mesh_info& mesh) const {
    detail::described_network result;
    result.rates.per_mebiflop = per_1024(flops_per_second_ / 1024);
    result.rates.per_kib_of_memory = per_1024(memory_bytes_per_second_);
    result.rates.is_named = true;
    if (is_one_switch_) {
      result.rates.one_switch = rate_of(links_[0]);
      return result;
    }
    for (int a = 0; a < mesh.shape.axis_count(); ++a) {
      const axis_link* described = nullptr;
      for (const auto& l : links_)
        if (l.axis.view() == mesh.base_name(a)) described = &l;
      if (described == nullptr && mesh.shape.sizes[a] > 1 && result.problem.empty())
        result.problem << "the mesh axis `" << mesh.base_name(a) << "` has no link; add one to the network";
      result.rates.links.push_back(described != nullptr ? rate_of(*described) : detail::link_rate{});
    }
    return result;
  }

 private:
  /// Rounds to the nearest integer, and limits the result. It adds only integers: compilers may fuse a floating-point
  /// sum with the product before it, and then it rounds differently.
  static constexpr std::int64_t rounded(double picoseconds) {
    constexpr auto most = static_cast<double>(detail::most_picoseconds / 1024);
    if (!(picoseconds < most)) return detail::most_picoseconds / 1024;
    return (static_cast<std::int64_t>(picoseconds * 1024) + 512) / 1024;
  }
  static constexpr std::int64_t per_1024(double per_second) {
    const auto rate = rounded(1024 * 1e12 / per_second);
    return rate > 0 ? rate : 1;
  }
  static constexpr detail::link_rate rate_of(const axis_link& link) {
    return {per_1024(link.bytes_per_second), rounded(1e12 * link.seconds_per_message), link.connected == topology::torus,
            link.connected == topology::tapered};
  }
  detail::inline_vec<axis_link, detail::max_axes> links_;
  double flops_per_second_ = 0, memory_bytes_per_second_ = 0;
  bool is_one_switch_ = false;
};

/// The network for plans if you specify no network. With it, plans are chosen by bytes.
///
/// A device sends 31.25 GB/s. If more than 16 devices exchange data, they share the links between switches. A message
/// takes no time. A device computes 10^12 flops/s. Its memory has 100 GB/s, which affects estimates and not plans.
///
/// The time of a message differs by a factor of 100 between threads, processes and clusters. A plan for one platform is
/// bad on the other two. Specify your network, so that small exchanges count by their real time.
inline constexpr network default_network(1e12, 31.25e9, 0, topology::tapered);

/// A typical cluster. Use it if you do not know the rates of your cluster.
///
/// A device has a port of 25 GB/s (200 Gb/s: HPE Slingshot 11, InfiniBand HDR). If more than 16 devices exchange data,
/// they share the links between switches. A message takes 2 microseconds. A device computes 10^12 flops/s, and its
/// memory has 100 GB/s.
///
/// Large programs on thousands of devices get the same plans as on the torus of GSPMD's Tables 1 and 2. In small
/// programs the planner prefers few messages: it gathers tensors of some KB, and every device computes the values that
/// need these tensors.
///
/// **Example.**
///
///     using step = compile<layer, pod, with<options{.network = cluster_network}>,
///                          input<float, shape<65536, 8192>, split<"x", "y">>>;
inline constexpr network cluster_network(1e12, 25e9, 2e-6, topology::tapered);

}  // namespace gspmd
