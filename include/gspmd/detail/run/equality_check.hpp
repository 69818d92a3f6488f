// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/run/element_texts.hpp"
#include "gspmd/detail/run/padding.hpp"
#include "gspmd/detail/run/ready_step.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// Runs of a program for a checked mesh. After each step, its results are compared along the axes along which all
/// devices hold the same data, according to layouts and types. Devices exchange a checksum of 8 bytes each. If
/// checksums differ, they exchange the elements in blocks until the first difference is found.
///
/// It is a template, so programs that do not check instantiate nothing.
template <class = once>
class equality_check {
 public:
  static constexpr bool look = true;

  /// `named` is the mesh of the plan. `move` moves words with the communicator (kernels::move).
  equality_check(const plan_view& plan, const mesh_info& named, const devices_here& members, ready_step::joint_function move)
      : plan_(plan), named_(named), devices_(members), move_(move), together_(plan.mesh->wide_axes()) {}

  void look_at_inputs() {
    for (std::size_t k = 0; k < plan_.inputs.size(); ++k) try {
        look_at(plan_.value(plan_.inputs[k]));
      } catch (const error& e) {
        throw e.with_op("input " + std::to_string(k));
      }
  }
  static void begin(const plan_step&) {}
  void look_at_results(const plan_step& s) {
    for (int k = 0; k < s.results.count; ++k) look_at(plan_.result(s, k));
  }

  /// Begins the loop or conditional at step `i`. If its conditions may differ along an axis, the devices along this
  /// axis do not run its steps together. Then results are not compared along this axis. Returns the previous axes,
  /// for `leave`.
  axis_mask enter(int i) {
    const axis_mask before = together_;
    const plan_step& s = plan_.steps[static_cast<std::size_t>(i)];
    const bool is_while = facts_of(s).role == step_role::loop_begin && s.trips == unknown_trips;
    for (int k = i; k <= (is_while ? s.target : i); ++k)
      if (const auto& of = plan_.steps[static_cast<std::size_t>(k)]; facts_of(of).role == step_role::branch)
        together_ &= ~may_differ(plan_.operand(of, 0));
    return before;
  }
  void leave(axis_mask before) { together_ = before; }

 private:
  static constexpr std::int64_t block = 4096;  // number of words that a device sends in one exchange

  /// Returns a number that differs, with high probability, if the data of devices differ.
  static std::int64_t checksum(span<const std::int64_t> words) {
    std::uint64_t sum = words.size();
    for (const auto w : words) sum = (sum ^ static_cast<std::uint64_t>(w)) * 0x9e3779b97f4a7c15U, sum ^= sum >> 29;
    return static_cast<std::int64_t>(sum);
  }

  /// Returns the valid elements of a shard, one after the other, followed by zeros up to the end of the last word.
  static std::vector<std::int64_t> packed_words(const plan_view& plan, const planned_value& v, const device_memory& device) {
    const int rank = v.local.count;
    extents valid;
    for (int d = 0; d < rank; ++d) valid.push_back(dim_range(*plan.mesh, v.global, v.layout, d, device.at).size());
    const auto size = bytes_of(v.type), count = elements(valid);
    std::vector<std::int64_t> words(static_cast<std::size_t>((count * size + 7) / 8), 0);
    const auto row = rank == 0 ? 1 : valid[rank - 1];
    auto* to = reinterpret_cast<std::byte*>(words.data());
    const auto* const shard = static_cast<const std::byte*>(device.read(v.where));
    for (std::int64_t first = 0; first < count; first += row, to += row * size) {
      std::int64_t at = 0, left = first, stride = 1;
      for (int d = rank - 1; d >= 0; --d) {
        at += left % valid[d] * stride;
        left /= valid[d];
        stride *= v.local[d];
      }
      std::memcpy(to, shard + at * size, static_cast<std::size_t>(row * size));
    }
    return words;
  }

  [[nodiscard]] axis_mask may_differ(const planned_value& v) const {
    return plan_.nodes[static_cast<std::size_t>(v.node)].may_differ | ~v.layout.equal_axes(*plan_.mesh);
  }
  /// Compares a value if it is the result of an operator. The intermediate values of an operator are not compared,
  /// because its steps choose their layout.
  void look_at(const planned_value& v) {
    const axis_mask axes = together_ & ~may_differ(v);
    const bool is_own = plan_.nodes[static_cast<std::size_t>(v.node)].value == static_cast<int>(&v - plan_.values.data());
    if (axes == 0 || !is_own || elements(v.local) == 0) return;
    std::vector<std::vector<std::int64_t>> words, sums;
    for (int d = 0; d < devices_.count; ++d) {
      words.push_back(packed_words(plan_, v, devices_.memory[d]));
      sums.push_back({checksum(words.back())});
    }
    const auto all = gathered(axes, sums, 0, 1);
    bool is_one = true;
    for (const auto& group : all)
      for (const auto sum : group) is_one = is_one && sum == group[0];
    if (!is_one) find_difference(v, axes, words);
  }

  /// Returns `count` words, from word `first` on, of each device of a group, one device after the other. Missing
  /// words are zeros.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> gathered(axis_mask axes,
                                                                const std::vector<std::vector<std::int64_t>>& words,
                                                                std::int64_t first, std::int64_t count) const {
    const auto n = plan_.mesh->size_of(axes);
    extents shape;
    shape.push_back(n);
    shape.push_back(count);
    sharding from;
    for (int a = 0; a < plan_.mesh->axis_count(); ++a)
      if ((axes & axis_bit(a)) != 0) from.splits.push_back({static_cast<std::int8_t>(a), 0});
    const auto m = numbered(*plan_.mesh, movement(shape, from, {}, movement_axes(*plan_.mesh, shape, from, {})));

    using kind = memory_place::kind;
    planned_value values[2];
    values[0].where = {kind::input, 0};
    values[1].where = {kind::output, 0};
    const int slots[] = {0, 1};
    plan_view moving;
    moving.mesh = plan_.mesh;
    moving.values = values;
    moving.slots = slots;
    plan_step step;
    step.kernel = id_of<kernels::move>;
    step.type = dtype::s64;
    step.spec = -1;
    step.operands = {0, 1};
    step.results = {1, 1};
    const auto devices = static_cast<std::size_t>(devices_.count);
    std::vector<std::vector<std::int64_t>> own(devices), all(devices);
    std::vector<const void*> in(devices);
    std::vector<void*> out(devices);
    std::vector<device_memory> memory(devices);
    for (std::size_t d = 0; d < devices; ++d) {
      own[d].assign(static_cast<std::size_t>(count), 0);
      const auto size = static_cast<std::int64_t>(words[d].size());
      for (std::int64_t k = first; k < size && k < first + count; ++k)
        own[d][static_cast<std::size_t>(k - first)] = words[d][static_cast<std::size_t>(k)];
      all[d].assign(static_cast<std::size_t>(n * count), 0);
      in[d] = own[d].data();
      out[d] = all[d].data();
      memory[d] = {&in[d], &out[d], nullptr, devices_.memory[d].at};
    }
    move_(&m, moving, step, {memory.data(), devices_.count, devices_.from, devices_.to, devices_.communicator, devices_.go_on});
    return all;
  }

  /// Throws if an element is another number on a device than on the first device of its group.
  [[gnu::cold, gnu::noinline]] void find_difference(const planned_value& v, axis_mask axes,
                                                    const std::vector<std::vector<std::int64_t>>& words) const {
    const auto size = bytes_of(v.type), n = plan_.mesh->size_of(axes);
    const auto most = elements(v.local) * size;  // the same number of blocks on all devices
    for (std::int64_t first = 0; first * 8 < most; first += block) {
      const auto all = gathered(axes, words, first, block);
      for (std::size_t d = 0; d < all.size(); ++d) {
        const auto* const held = reinterpret_cast<const std::byte*>(all[d].data());
        for (std::int64_t at = 0; at < block * 8; at += size)
          for (std::int64_t k = 1; k < n; ++k)
            if (!element_texts<>::is_one_number(v.type, held + at, held + k * block * 8 + at))
              refuse(v, axes, devices_.memory[d].at, k, (first * 8 + at) / size, held + at);
      }
    }
  }
  /// Throws the error. `held` has the element of the first device of the group; the element of each next device is
  /// one block further. `member` and the first device have different numbers. The error names two devices that differ
  /// along one axis only, on the path from the first device to `member`.
  [[noreturn, gnu::cold]] void refuse(const planned_value& v, axis_mask axes, const coordinates& at, std::int64_t member,
                                      std::int64_t element, const std::byte* held) const {
    const auto& mesh = *plan_.mesh;
    const auto number = [&](const coordinates& of) { return held + group_index(mesh, axes, of) * block * 8; };
    coordinates one = group_member(mesh, axes, at, 0), other = one;
    const coordinates last = group_member(mesh, axes, at, member);
    int axis = 0;
    for (;; ++axis, one = other) {
      other[axis] = last[axis];
      if (!element_texts<>::is_one_number(v.type, number(one), number(other))) break;
    }
    std::string index;
    for (int d = v.local.count - 1; d >= 0; --d) {
      const auto range = dim_range(mesh, v.global, v.layout, d, at);
      index = std::to_string(range.begin + element % range.size()) + (index.empty() ? "" : ",") + index;
      element /= range.size();
    }
    const auto has = [&](const coordinates& of) {
      return "device " + std::to_string(mesh.device_at(of)) + " has " + element_texts<>::of(v.type, number(of));
    };
    const auto place = [&](const coordinates& of) {
      std::string words;
      for (int a = 0; a < mesh.axis_count(); ++a)
        if (mesh.sizes[a] > 1) words += (words.empty() ? "" : ", ") + std::string(named_.name(a)) + '=' + std::to_string(of[a]);
      return '(' + words + ')';
    };
    throw error("devices hold different data of a value that must be equal on all devices: at [" + index + "] " + has(other) +
                " and " + has(one) + ", along `" + std::string(named_.name(axis)) + "`: " + place(other) + " and " + place(one));
  }

  const plan_view& plan_;
  const mesh_info& named_;
  const devices_here& devices_;
  ready_step::joint_function move_;
  axis_mask together_;  // axes along which all devices run this step
};

}  // namespace gspmd::detail
