// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/transport/communicator.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// The devices of a communicator of any kind, for agreements outside of programs: errors that all devices throw, and
/// small data that one device sends to all. It uses only all_reduces of integers, which every communicator has.
class device_group {
 public:
  template <communicator Comm>
  device_group(Comm& comm, std::string subject)
      : subject_(std::move(subject)), comm_(&comm), count_(comm.device_count()), reduce_(reduce_on<Comm>) {
    for (int i = 0; i < comm.local_count(); ++i) held_.push_back(comm.device(i));
    mesh_.sizes.push_back(count_);
  }

  /// The word that errors begin with: `checkpoint`, `safetensors`.
  [[nodiscard]] const std::string& subject() const { return subject_; }
  [[nodiscard]] int device_count() const { return count_; }
  [[nodiscard]] const std::vector<int>& held() const { return held_; }
  /// Returns true if this process holds device 0, which does the work that is done once.
  [[nodiscard]] bool is_first() const { return holds(0); }

  /// Sets each value to the sum, or the maximum, over all processes.
  void all_reduce(std::int64_t* values, std::size_t size, monoid kind) const {
    if (static_cast<int>(held_.size()) == count_) return;
    constexpr std::size_t most = 8192;
    for (; size > 0; values += std::min(size, most), size -= std::min(size, most))
      reduce_(comm_, mesh_, values, std::min(size, most), kind);
  }

  /// Calls `f`, which must not communicate. If it throws on some devices, all devices throw the text of the lowest of
  /// these devices, after the subject.
  template <class F>
  void together(F f) const {
    std::string text;
    bool has_failed = false;
    try {
      f();
    } catch (const error& e) {
      has_failed = true;
      text = subject_ + ": " + e.text();
    } catch (const std::exception& e) {
      has_failed = true;
      text = subject_ + ": " + e.what();
    }
    std::int64_t found[] = {has_failed ? count_ - held_[0] : 0, has_failed ? 0 : 1};
    all_reduce(found, 2, monoid::max);
    if (found[0] == 0) return;
    const auto at = static_cast<int>(count_ - found[0]);
    throw error(broadcast(text, at), found[1] != 0 ? at : -1);
  }

  /// Returns the text of the process that holds device `from`. Needs no memory for a second copy.
  [[nodiscard]] std::string broadcast(std::string text, int from = 0) const {
    if (static_cast<int>(held_.size()) == count_) return text;
    std::int64_t size = holds(from) ? static_cast<std::int64_t>(text.size()) : 0;
    all_reduce(&size, 1, monoid::add);
    text.resize(static_cast<std::size_t>(size));
    const bool is_mine = holds(from);
    constexpr std::size_t most = 65536;
    std::vector<std::int64_t> words(std::min(text.size() / 8 + 1, most / 8));
    for (std::size_t at = 0; at < text.size(); at += most) {
      const auto n = std::min(most, text.size() - at);
      std::fill(words.begin(), words.end(), 0);
      if (is_mine) std::memcpy(words.data(), text.data() + at, n);
      all_reduce(words.data(), (n + 7) / 8, monoid::add);
      std::memcpy(text.data() + at, words.data(), n);
    }
    return text;
  }

 private:
  [[nodiscard]] bool holds(int device) const { return std::find(held_.begin(), held_.end(), device) != held_.end(); }

  /// The first device of this process contributes the values; the other devices contribute the neutral element.
  template <class Comm>
  static void reduce_on(void* comm, const mesh_shape& mesh, std::int64_t* values, std::size_t size, monoid kind) {
    auto& devices = *static_cast<Comm*>(comm);
    const auto nothing = kind == monoid::add ? 0 : std::numeric_limits<std::int64_t>::min();
    std::vector<std::vector<std::int64_t>> from, to;
    std::vector<const std::int64_t*> in;
    std::vector<std::int64_t*> out;
    for (int i = 0; i < devices.local_count(); ++i) {
      from.emplace_back(size, nothing);
      to.emplace_back(size);
      if (i == 0) std::copy_n(values, size, from[0].data());
      in.push_back(from.back().data());
      out.push_back(to.back().data());
    }
    reduction r;
    r.global.push_back(static_cast<std::int64_t>(size));
    r.from.partial = r.axes = axis_bit(0);
    r.from.reduced_by = r.reduced_by = kind;
    devices.template reduce<std::int64_t>(mesh, numbered(mesh, r), in.data(), out.data());
    std::copy_n(to[0].data(), size, values);
  }

  std::string subject_;
  void* comm_;
  int count_;
  void (*reduce_)(void*, const mesh_shape&, std::int64_t*, std::size_t, monoid);
  std::vector<int> held_;
  mesh_shape mesh_;
};

}  // namespace gspmd::detail
