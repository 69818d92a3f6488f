// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <type_traits>

#include "gspmd/detail/ir/scalar_math.hpp"
#include "gspmd/detail/support/target.hpp"

/// The error function within 3 ulp and its inverse within 5 ulp, without branches and calls, like scalar_math.hpp.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Returns x P(x^2) below 1, and 1 - e^-x^2 R((x - k) / (x + k)) from 1 on. P interpolates erf(x) / x and R
/// interpolates erfc(x) e^x^2 at Chebyshev's nodes, computed with 50 digits. The truncation of the polynomials adds at
/// most 0.15 ulp.
template <class T>
[[gnu::always_inline]] inline T error_function(T x) {
  if constexpr (!is_chosen_in_vectors<T>) return __builtin_erf(x);
  constexpr bool is_float = std::is_same_v<T, float>;
  constexpr T most = is_float ? 4 : 6, k = is_float ? 2 : 3;  // from `most` on the result is 1
  const T size = absolute(x), s = choose(size < most, size, most), square = s * s, t = (s - k) / (s + k);
  T near, beyond;
  if constexpr (is_float) {
    near =
        polynomial(square, 1.12837917, -0.376126267, 0.112835947, -0.026854212, 0.00518908742, -0.000801686429, 7.87587506e-05);
    beyond = polynomial(t, 0.25539564, -0.427185888, 0.241664025, -0.0789719523, 0.0035926707, 0.00683736679);
  } else {
    near = polynomial(square, 1.1283791670955126, -0.3761263890318375, 0.11283791670954879, -0.026866170645076792,
                      0.0052239776248180145, -0.000854832698083379, 0.0001205533111164271, -1.4925595266831182e-05,
                      1.6461000484121368e-06, -1.6350312701054695e-07, 1.4659775274047436e-08, -1.1372848856791674e-09,
                      5.957176147748911e-11);
    beyond = polynomial(t, 0.17900115118138996, -0.32623356004303716, 0.24560380171233195, -0.15011593650078744,
                        0.07166583719774874, -0.024392499318273194, 0.004269136347508256, 0.0007077464443901538,
                        -0.0005970623517093284, 4.525472635483354e-05, 6.406182073530546e-05, -1.284889451252353e-05,
                        -8.008021319412685e-06, 2.023603179641757e-06, 1.2801900862962662e-06);
  }
  const T y = choose(size < T(1), x * near, with_sign_of(T(1) - exponential(-square) * beyond, x));
  return choose(x != x, x, y);
}

/// Returns the x whose error function is y. The polynomials are those of M. Giles, Approximating the erfinv function,
/// 2011.
template <class T>
[[gnu::always_inline]] inline T inverse_error_function(T y) {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const T w = -logarithm((T(1) - y) * (T(1) + y));
  T x;
  if constexpr (std::is_same_v<T, float>) {
    const bool is_inner = w < T(5);
    const T near = w - T(2.5), far = square_root(choose(is_inner, T(5), w)) - T(3);
    const T inner = polynomial(near, 1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06,
                               -3.5233877e-06, 3.43273939e-07, 2.81022636e-08);
    const T outer = polynomial(far, 2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844,
                               0.00134934322, 0.000100950558, -0.000200214257);
    x = choose(is_inner, inner, outer);
  } else {
    const bool is_inner = w < T(6.25), is_outer = w >= T(16);
    const T root = square_root(choose(is_inner, T(6.25), w));
    const T inner =
        polynomial(w - T(3.125), 1.6536545626831027356, 0.24015818242558961693, -0.0060336708714301490533,
                   -0.00074070253416626697512, 0.0001867342080340571352, -1.3882523362786468719e-05, -1.3654692000834678645e-06,
                   4.2347877827932403518e-07, -2.9070369957882005086e-08, -4.1126339803469836976e-09, 1.051212273321532285e-09,
                   -5.4154120542946279317e-11, -1.2975133253453532498e-11, 2.6335093153082322977e-12, -8.1519341976054721522e-14,
                   -4.0545662729752068639e-14, 6.6376381343583238325e-15, 2.0972767875968561637e-17, -1.333171662854620906e-16,
                   1.115787767802518096e-17, 1.2858480715256400167e-18, -1.685059138182016589e-19, -3.6444120640178196996e-21);
    const T middle =
        polynomial(root - T(3.25), 3.0838856104922207635, 1.0052589676941592334, 0.005370914553590063617,
                   -0.0037512085075692412107, 0.0024914420961078508066, -0.0016882755560235047313, 0.00095328937973738049703,
                   -0.0003550375203628474796, 2.4031110387097893999e-05, 6.8284851459573175448e-05, -4.7318229009055733981e-05,
                   1.2475304481671778723e-05, 2.9234449089955446044e-06, -4.013867526981545969e-06, 1.5027403968909827627e-06,
                   1.8239629214389227755e-08, -2.7517406297064545428e-07, 9.0756561938885390979e-08, 2.2137376921775787049e-09);
    const T outer =
        polynomial(root - T(5), 4.8499064014085844221, 1.0103004648645343977, -0.00013871931833623122026,
                   -0.00021503011930044477347, 7.5995277030017761139e-05, -1.9681778105531670567e-05, 4.5260625972231537039e-06,
                   -9.9298272942317002539e-07, 2.2900482228026654717e-07, -6.7711997758452339498e-08, 2.9147953450901080826e-08,
                   -1.4960026627149240478e-08, 7.6157012080783393804e-09, -3.7894654401267369937e-09, 1.5076572693500548083e-09,
                   -2.5556418169965252055e-10, -2.7109920616438573243e-11);
    x = choose(is_inner, inner, choose(is_outer, outer, middle));
  }
  return choose(absolute(y) == T(1), y * infinity, x * y);  // NaN if |y| > 1
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
