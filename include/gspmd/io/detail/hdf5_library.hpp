// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include <hdf5.h>

#include "gspmd/error.hpp"

/// The C library of HDF5, a serial or a parallel build: each process passes it one file of its own.
namespace gspmd::detail {

/// Exclusive use of the library while this object lives: most builds are not thread-safe. The library prints no errors
/// meanwhile.
class hdf5_session {
 public:
  hdf5_session() : alone_(mutex()) {
    H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  hdf5_session(const hdf5_session&) = delete;
  hdf5_session& operator=(const hdf5_session&) = delete;
  ~hdf5_session() { H5Eset_auto2(H5E_DEFAULT, print_, print_data_); }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  std::lock_guard<std::mutex> alone_;
  H5E_auto2_t print_ = nullptr;
  void* print_data_ = nullptr;
};

/// Returns the reason why the last call of the library failed: the first of its errors, from the function that detected
/// it.
inline std::string hdf5_reason() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned number, const H5E_error2_t* e, void* to) -> herr_t {
        if (number == 0 && e->desc != nullptr) *static_cast<std::string*>(to) = e->desc;
        return 0;
      },
      &text);
  return text.empty() ? "HDF5 gives no reason" : "HDF5: " + text;
}

/// An object of the library, which the destructor closes. If `id` is negative, throws gspmd::error with `what` and the
/// library's reason.
class hdf5_object {
 public:
  hdf5_object(hid_t id, herr_t (*give_back)(hid_t), const std::string& what) : id_(id), close_(give_back) {
    if (id_ < 0) throw error(what + ": " + hdf5_reason());
  }
  hdf5_object(hdf5_object&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  hdf5_object& operator=(hdf5_object&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~hdf5_object() {
    if (id_ >= 0) close_(id_);
  }

  [[nodiscard]] hid_t id() const { return id_; }
  /// Closes the object now, and throws if that fails: the library writes the last bytes of a file when the file is
  /// closed.
  void close(const std::string& what) {
    if (close_(std::exchange(id_, -1)) < 0) throw error(what + ": " + hdf5_reason());
  }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

inline void check_hdf5(herr_t status, const std::string& what) {
  if (status < 0) throw error(what + ": " + hdf5_reason());
}

}  // namespace gspmd::detail
