// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace gspmd::detail {

/// Stores a T as an attribute of a communicator of the user. The T exists until MPI_Comm_free of that communicator,
/// or until MPI_Finalize begins, when MPI can still free the objects of the T. Duplicates of the communicator do not
/// have it. When MPI_Finalize begins, T::leave(list of all T) is called.
template <class T>
class mpi_kept {
 public:
  /// Returns the T of `comm`, and makes it if `comm` has none.
  static T& with(MPI_Comm comm) {
    auto& all = instance();
    const std::lock_guard alone(all.mutex_);
    if (T* const known = all.find_in(comm)) return *known;
    all.kept_.push_back(std::make_unique<T>());
    T* const kept = all.kept_.back().get();
    check_mpi(MPI_Comm_set_attr(comm, all.of_user_, kept), "MPI_Comm_set_attr", -1);
    return *kept;
  }
  /// Returns the T of `comm`, or null.
  static T* find(MPI_Comm comm) {
    auto& all = instance();
    const std::lock_guard alone(all.mutex_);
    return all.find_in(comm);
  }

 private:
  T* find_in(MPI_Comm comm) const {
    T* kept = nullptr;
    int is_there = 0;
    check_mpi(MPI_Comm_get_attr(comm, of_user_, &kept, &is_there), "MPI_Comm_get_attr", -1);
    return is_there != 0 ? kept : nullptr;
  }
  mpi_kept() {
    check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, let_go, &of_user_, nullptr), "MPI_Comm_create_keyval", -1);
    check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, let_go_of_all, &of_process_, nullptr), "MPI_Comm_create_keyval", -1);
    check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, of_process_, nullptr), "MPI_Comm_set_attr", -1);
  }
  static mpi_kept& instance() {
    static auto* const all = new mpi_kept;  // never freed if a program ends without MPI_Finalize
    return *all;
  }
  static int let_go(MPI_Comm, int, void* kept, void*) {
    std::unique_ptr<T> last;  // destroyed after the mutex is unlocked, because its destructor may wait for other processes
    auto& all = instance();
    const std::lock_guard alone(all.mutex_);
    const auto found = std::find_if(all.kept_.begin(), all.kept_.end(), [&](const auto& one) { return one.get() == kept; });
    if (found != all.kept_.end()) {
      last = std::move(*found);
      all.kept_.erase(found);
    }
    return MPI_SUCCESS;
  }
  /// MPI_Finalize deletes the attributes of MPI_COMM_SELF first.
  static int let_go_of_all(MPI_Comm, int, void*, void*) {
    T::leave(instance().kept_);
    instance().kept_.clear();
    return MPI_SUCCESS;
  }

  int of_user_ = MPI_KEYVAL_INVALID, of_process_ = MPI_KEYVAL_INVALID;
  std::mutex mutex_;  // with MPI_THREAD_MULTIPLE several threads may call, each with another communicator
  std::vector<std::unique_ptr<T>> kept_;
};

}  // namespace gspmd::detail
