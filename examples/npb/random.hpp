// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gspmd/gspmd.hpp>

#include <cstdint>

/// NPB's random numbers (NPB report RNR-94-007, section 2.3): x[k] = a^k * seed mod 2^46, a = 5^13, and x[k] / 2^46 is
/// the number. Products of 64 bits that overflow are right mod 2^64, and so mod 2^46. So each number is one jump from
/// the seed.
namespace npb {

inline constexpr std::uint64_t multiplier = 1'220'703'125, modulus = std::uint64_t{1} << 46;

constexpr std::uint64_t power_of_multiplier(std::uint64_t exponent) {
  std::uint64_t result = 1;
  for (std::uint64_t base = multiplier; exponent != 0; exponent /= 2, base *= base)
    if (exponent % 2 == 1) result *= base;
  return result % modulus;
}

/// The numbers in sequence, for data that the host prepares.
class sequence {
 public:
  explicit constexpr sequence(std::uint64_t seed) : x_(seed) {}
  constexpr double next() {
    x_ = x_ * multiplier % modulus;
    return static_cast<double>(x_) / static_cast<double>(modulus);
  }

 private:
  std::uint64_t x_;
};

/// Returns a^exponents mod 2^64 for a tensor of u64 below 2^bits.
inline gspmd::value powers_of_multiplier(gspmd::value exponents, int bits) {
  gspmd::value result;
  for (int b = 0; b < bits; ++b) {
    const auto factor = where(equal(bitwise_and(right_shift(exponents, b), 1), 1),
                              gspmd::constant<std::uint64_t>(exponents, {}, power_of_multiplier(std::uint64_t{1} << b)), 1);
    result = b == 0 ? factor : result * factor;
  }
  return result;
}

/// Returns the numbers in (0, 1) for states of the generator.
inline gspmd::value uniform(gspmd::value x) {
  return gspmd::cast<double>(bitwise_and(x, modulus - 1)) * (1.0 / static_cast<double>(modulus));
}

}  // namespace npb
