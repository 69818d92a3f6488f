// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <type_traits>

#include "gspmd/detail/support/language.hpp"

namespace gspmd {
namespace detail {

/// A type like std::complex<float>, also from other libraries: two numbers of a float type and nothing else. <complex>
/// is not included, because it brings streams into every file.
template <class T, class Part>
concept complex_of =
    std::is_class_v<T> && std::is_trivially_copyable_v<T> && sizeof(T) == 2 * sizeof(Part) && requires(const T& x) {
      typename T::value_type;
      requires std::is_same_v<typename T::value_type, Part>;
      { x.real() } -> std::convertible_to<Part>;
      { x.imag() } -> std::convertible_to<Part>;
      T(Part{}, Part{});
    };

/// A complex number: the real part, then the imaginary part. It converts to and from std::complex. A product is the
/// textbook formula and does not correct results with infinite parts.
template <class T>
struct complex_number {
  using value_type = T;
  T re, im;

  complex_number() = default;  // trivial, like a float
  [[gnu::always_inline]] constexpr complex_number(T real, T imag) : re(real), im(imag) {}
  template <class Number>
    requires std::is_arithmetic_v<Number>
  [[gnu::always_inline]] constexpr explicit complex_number(Number real) : re(static_cast<T>(real)), im(0) {}
  template <class Part>
    requires(!std::is_same_v<Part, T>)
  [[gnu::always_inline]] constexpr explicit complex_number(complex_number<Part> x)
      : re(static_cast<T>(x.re)), im(static_cast<T>(x.im)) {}
  template <complex_of<T> Other>
    requires(!std::is_same_v<Other, complex_number>)
  constexpr complex_number(const Other& x) : re(x.real()), im(x.imag()) {}  // NOLINT(google-explicit-constructor)
  template <complex_of<T> Other>
    requires(!std::is_same_v<Other, complex_number>)
  constexpr operator Other() const {  // NOLINT(google-explicit-constructor)
    return Other(re, im);
  }

  [[nodiscard]] constexpr T real() const { return re; }
  [[nodiscard]] constexpr T imag() const { return im; }

  [[gnu::always_inline]] friend constexpr complex_number operator+(complex_number a, complex_number b) {
    return {a.re + b.re, a.im + b.im};
  }
  [[gnu::always_inline]] friend constexpr complex_number operator-(complex_number a, complex_number b) {
    return {a.re - b.re, a.im - b.im};
  }
  [[gnu::always_inline]] friend constexpr complex_number operator-(complex_number a) { return {-a.re, -a.im}; }
  [[gnu::always_inline]] friend constexpr complex_number operator*(complex_number a, complex_number b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
  /// Scales by the larger part of b, so that no square overflows (Smith, Algorithm 116, 1962).
  [[gnu::always_inline]] friend constexpr complex_number operator/(complex_number a, complex_number b) {
    const auto size = [](T x) { return x < 0 ? -x : x; };
    const bool is_steep = size(b.im) > size(b.re);
    const T large = is_steep ? b.im : b.re, small = is_steep ? b.re : b.im, ratio = small / large, scale = large + small * ratio;
    return is_steep ? complex_number{(a.re * ratio + a.im) / scale, (a.im * ratio - a.re) / scale}
                    : complex_number{(a.re + a.im * ratio) / scale, (a.im - a.re * ratio) / scale};
  }
  [[gnu::always_inline]] friend constexpr bool operator==(complex_number a, complex_number b) {
    return (a.re == b.re) & (a.im == b.im);
  }
};

template <class T>
inline constexpr bool is_complex_element = std::is_same_v<T, complex_number<float>> || std::is_same_v<T, complex_number<double>>;

template <class T>
struct listed_element {
  using type = T;
};
template <complex_of<float> T>
struct listed_element<T> {
  using type = complex_number<float>;
};
template <complex_of<double> T>
struct listed_element<T> {
  using type = complex_number<double>;
};
/// The element type of gspmd for elements of type T. It has the same size and layout.
template <class T>
using listed_element_t = typename listed_element<T>::type;

}  // namespace detail
}  // namespace gspmd
