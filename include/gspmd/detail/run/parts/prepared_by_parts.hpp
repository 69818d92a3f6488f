// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "gspmd/detail/run/frozen_step.hpp"
#include "gspmd/detail/run/parts/part_of_units.hpp"
#include "gspmd/detail/run/ready_step.hpp"

/// The fact `parts` of a kernel: the threads of a device share its steps. Each thread calls the kernel with a
/// device_memory that has the number of its part. It writes nothing that another thread reads or writes in this step.
/// If `parts` is one_thread, one thread runs the steps. Otherwise it is a struct with these members:
///
///   is_one                      true
///   work(p, s)                  operations of a step, counted as for least_shared_work; 0: one thread runs the step
///   freeze<Program, Step>()     compiled programs: an object with run(p, s, device). It runs the whole step if
///                               device.parts is 1
///   adopt(prepared)             sessions: the same object, made from the object that the kernel prepared for the
///                               thread
///   of_part(object, p, s, part, parts, room)    optional: an object that replaces this object in a shared step. If it
///                               has end(p, s, device), this function ends the step after all threads have run their
///                               parts
///   has_parts(p, s)             required with of_part: returns true if this step has such objects
///   room_bytes(p, s)            optional: bytes of memory that the threads share in this step
///
/// prepared_by_parts has all these members except `work`.
namespace gspmd::detail {

/// A step, as one thread runs it.
template <class K, class Prepared>
struct shared_whole {
  Prepared whole;

  void run(const plan_view& p, const plan_step& s, const device_memory& device) const { K::run(whole, p, s, device); }
};
/// A kernel with `prepare`. A Part, made from the prepared step, computes the part of a thread.
template <class K, class Prepared, class Part>
struct prepared_by_parts {
  static constexpr bool is_one = true;
  using shared = shared_whole<K, Prepared>;

  template <class Program, int Step>
  static constexpr auto freeze() {
    return adopt(freeze_by<Program, Step, K>());
  }
  static constexpr shared adopt(const Prepared& prepared) { return {prepared}; }
  static bool has_parts(const plan_view&, const plan_step&) { return true; }
  static Part of_part(const shared& all, const plan_view&, const plan_step&, int part, int parts, std::byte*) {
    return Part(all.whole, part, parts);
  }
};

}  // namespace gspmd::detail
