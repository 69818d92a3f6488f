// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/ops/composite.hpp"
#include "gspmd/program/program.hpp"

/// The arithmetic of optimizers: that of values, except that each operator reports the line of the user's call.
namespace gspmd::detail {

/// A tensor with the line of the user's call, or a number, which is used as a constant tensor. Two numbers result in a
/// number.
class quantity {
 public:
  constexpr quantity(double number = 0) : number_(number) {}  // NOLINT: implicit on purpose
  constexpr quantity(value v, location at) : value_(v), at_(at), is_number_(false) {}

  [[nodiscard]] constexpr bool is_number() const { return is_number_; }
  [[nodiscard]] constexpr double number() const { return number_; }
  [[nodiscard]] constexpr value tensor() const { return value_; }
  [[nodiscard]] constexpr location at() const { return at_; }
  [[nodiscard]] constexpr operand as_operand(location at) const {
    return is_number_ ? operand(number_, at) : operand(value_, at);
  }

  friend constexpr quantity operator+(const quantity& a, const quantity& b) {
    if (a.is_number_ && b.is_number_) return a.number_ + b.number_;
    const location at = line_of(a, b);
    return {a.as_operand(at) + b.as_operand(at), at};
  }
  friend constexpr quantity operator-(const quantity& a, const quantity& b) {
    if (a.is_number_ && b.is_number_) return a.number_ - b.number_;
    const location at = line_of(a, b);
    return {a.as_operand(at) - b.as_operand(at), at};
  }
  friend constexpr quantity operator*(const quantity& a, const quantity& b) {
    if (a.is_number_ && b.is_number_) return a.number_ * b.number_;
    const location at = line_of(a, b);
    return {a.as_operand(at) * b.as_operand(at), at};
  }
  friend constexpr quantity operator/(const quantity& a, const quantity& b) {
    if (a.is_number_ && b.is_number_) return a.number_ / b.number_;
    const location at = line_of(a, b);
    return {a.as_operand(at) / b.as_operand(at), at};
  }
  // In the functions below, at least one operand is a tensor.
  friend constexpr quantity max(const quantity& a, const quantity& b) {
    const location at = line_of(a, b);
    return {gspmd::max(a.as_operand(at), b.as_operand(at)), at};
  }
  friend constexpr quantity min(const quantity& a, const quantity& b) {
    const location at = line_of(a, b);
    return {gspmd::min(a.as_operand(at), b.as_operand(at)), at};
  }
  friend constexpr quantity pow(const quantity& a, const quantity& b) {
    const location at = line_of(a, b);
    return {gspmd::pow(a.as_operand(at), b.as_operand(at)), at};
  }
  friend constexpr quantity operator>(const quantity& a, const quantity& b) {
    const location at = line_of(a, b);
    return {a.as_operand(at) > b.as_operand(at), at};
  }
  friend constexpr quantity where(const quantity& condition, const quantity& a, const quantity& b) {
    const location at = condition.at_;
    return {gspmd::where(condition.as_operand(at), a.as_operand(at), b.as_operand(at)), at};
  }
  friend constexpr quantity sqrt(const quantity& a) { return {gspmd::sqrt(a.value_, a.at_), a.at_}; }
  friend constexpr quantity rsqrt(const quantity& a) { return {gspmd::rsqrt(a.value_, a.at_), a.at_}; }
  friend constexpr quantity cos(const quantity& a) { return {gspmd::cos(a.value_, a.at_), a.at_}; }
  friend constexpr quantity floor(const quantity& a) { return {gspmd::floor(a.value_, a.at_), a.at_}; }

  /// Returns the quantity in another element type. A number fits every type.
  [[nodiscard]] constexpr quantity as(dtype type) const {
    if (is_number_ || !value_.is_valid() || value_.type() == type) return *this;
    return {converted(value_, type, at_), at_};
  }
  /// Returns the quantity in the type that a composite computes in.
  [[nodiscard]] constexpr quantity wide() const { return as(composite_type(value_.type())); }

 private:
  static constexpr location line_of(const quantity& a, const quantity& b) { return a.is_number_ ? b.at_ : a.at_; }

  value value_;
  location at_;
  double number_ = 0;
  bool is_number_ = true;
};

}  // namespace gspmd::detail
