// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ops/sources.hpp"

/// The ranges of random numbers, and their error texts.
namespace gspmd::detail {

/// The smallest and the largest number of type T with low <= x < high.
template <class T>
struct float_range {
  double first = 0, last = 0;
  text problem;

  static constexpr float_range of(double low, double high) {
    float_range r;
    constexpr auto type = static_cast<double>(std::numeric_limits<T>::max());
    constexpr double widest = std::is_same_v<T, double> ? type : static_cast<double>(std::numeric_limits<float>::max());
    if (!(low >= -type && low <= type && high >= -type && high <= type) || high / 2 - low / 2 > widest / 2) {
      r.problem =
          problem_of(low, high, ", which is too wide for ", "; both ends and their difference are finite numbers of the type");
      return r;
    }
    const T from = static_cast<T>(low), to = static_cast<T>(high);
    r.first = static_cast<double>(static_cast<double>(from) < low ? next(from, 1) : from);
    r.last = static_cast<double>(static_cast<double>(to) < high ? to : next(to, -1));
    if (!(r.first <= r.last)) r.problem = problem_of(low, high, ", without its end, and has no ", "; low is less than high");
    return r;
  }
  /// Returns the distance of neighbouring numbers of type T at the end of the range with the larger absolute value,
  /// towards 0.
  [[nodiscard]] constexpr double step() const {
    const double low = first < 0 ? -first : first, high = last < 0 ? -last : last, most = low < high ? high : low;
    double power = 1;
    while (power >= most && power > 0x1p-126) power /= 2;
    while (power * 2 < most) power *= 2;
    for (int k = 1; k < std::numeric_limits<T>::digits; ++k) power /= 2;
    return power;
  }
  /// Returns the number of values first + k * step() that are at most `last`.
  [[nodiscard]] constexpr double cells() const {
    const double by = step();
    auto most = static_cast<double>(static_cast<std::int64_t>((last - first) / by));
    if (first + most * by > last) --most;  // the difference was rounded: [-1, 0)
    return most + 1;
  }

 private:
  [[gnu::cold]] static constexpr text problem_of(double low, double high, const char* wrong, const char* remedy) {
    return text("the range is from") << number_text(low) << " to" << number_text(high) << wrong << cpp_name_of(dtype_of<T>())
                                     << remedy;
  }
  /// Returns the next number of the type in a direction, 1 or -1.
  static constexpr T next(T x, int way) {
    using natural =
        std::conditional_t<sizeof(T) == 2, std::uint16_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
    constexpr auto sign = static_cast<natural>(natural{1} << (8 * sizeof(T) - 1));
    auto bits = std::bit_cast<natural>(x);
    if ((bits & static_cast<natural>(~sign)) == 0) bits = way > 0 ? natural{1} : static_cast<natural>(sign | 1U);
    else bits = static_cast<natural>(((bits & sign) != 0) == (way > 0) ? bits - 1 : bits + 1);
    return std::bit_cast<T>(bits);
  }
};

/// The smallest and the largest integer of type T with low <= x < high. `high` may be one more than the largest T.
template <class T>
struct integer_range {
  T first = 0, last = 0;
  text problem;

  static constexpr integer_range of(const written_number& low, const written_number& high) {
    integer_range r;
    const bool is_end = std::is_same_v<T, std::uint64_t> && high.real == 0x1p64 && !high.is_natural;
    const bool is_least = high.is_integer && high.integer == std::numeric_limits<std::int64_t>::min();
    const auto in_type = [](std::int64_t n, bool is_natural) {
      return is_natural ? std::in_range<T>(static_cast<std::uint64_t>(n)) : std::in_range<T>(n);
    };
    const std::int64_t end = is_end ? -1 : static_cast<std::int64_t>(static_cast<std::uint64_t>(high.integer) - 1);
    const bool is_natural = is_end || (high.is_natural && end < 0);
    if (!(low.is_integer || low.is_natural) || !in_type(low.integer, low.is_natural)) r.problem = problem_of(low, "low", "");
    else if (is_least) r.problem = empty(low, high);
    else if (!(high.is_integer || high.is_natural || is_end)) r.problem = problem_of(high, "high", "");
    else if (!in_type(end, is_natural) && !is_natural && end < 0) r.problem = empty(low, high);
    else if (!in_type(end, is_natural)) r.problem = problem_of(high, "high", ", or one more than its largest");
    else if (static_cast<T>(end) < static_cast<T>(low.integer)) r.problem = empty(low, high);
    r.first = static_cast<T>(low.integer);
    r.last = static_cast<T>(end);
    return r;
  }

 private:
  [[gnu::cold]] static constexpr text problem_of(const written_number& n, const char* end, const char* more) {
    return text(end) << " is" << number_text(n) << "; write a number that " << cpp_name_of(dtype_of<T>()) << " holds" << more;
  }
  [[gnu::cold]] static constexpr text empty(const written_number& low, const written_number& high) {
    return text("there is no integer from") << number_text(low) << " to" << number_text(high)
                                            << ", which is excluded; low is less than high";
  }
};

}  // namespace gspmd::detail
