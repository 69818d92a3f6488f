// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ir/collective.hpp"

namespace gspmd::detail {

/// Base of a communicator that runs steps in another way and communicates as `Comm` does.
template <class Comm>
class forwarding_communicator {
 public:
  static constexpr bool shares_memory = requires { requires Comm::shares_memory; };

  [[nodiscard]] int device_count() const { return comm_.device_count(); }
  [[nodiscard]] int local_count() const { return comm_.local_count(); }
  [[nodiscard]] int device(int i) const { return comm_.device(i); }
  void barrier() { comm_.barrier(); }
  template <class T>
  void move(const mesh_shape& mesh, const movement& m, const T* const* in, T* const* out) {
    comm_.move(mesh, m, in, out);
  }
  template <class T>
  void reduce(const mesh_shape& mesh, const reduction& r, const T* const* in, T* const* out) {
    comm_.reduce(mesh, r, in, out);
  }
  template <class T>
  void exchange(const T* const* in, const std::int64_t* const* sent, T* const* out, const std::int64_t* const* received)
    requires requires(Comm& c) { c.exchange(in, sent, out, received); }
  {
    comm_.exchange(in, sent, out, received);
  }
  [[nodiscard]] auto serial() const
    requires requires(const Comm& c) { c.serial(); }
  {
    return comm_.serial();
  }
  [[nodiscard]] auto allocate(std::size_t bytes)
    requires requires(Comm& c) { c.allocate(bytes); }
  {
    return comm_.allocate(bytes);
  }

 protected:
  explicit forwarding_communicator(Comm& comm) : comm_(comm) {}
  Comm& comm_;
};

}  // namespace gspmd::detail
