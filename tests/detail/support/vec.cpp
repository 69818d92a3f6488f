// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: planner
#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "gspmd/detail/support/frozen.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace {

using gspmd::detail::vec;

struct pair_of {  // has a constructor that counts as one, and no destructor
  int first = 1;
  int second = 2;
  friend constexpr bool operator==(const pair_of&, const pair_of&) = default;
};

/// The same calls to a vec and to a std::vector, drawn by a generator: true if they hold the same after each.
template <class T, class Make>
constexpr bool behaves_as_std_vector(unsigned seed, int calls, Make make) {
  vec<T> a;
  std::vector<T> b;
  const auto draw = [&seed](unsigned below) {
    seed = seed * 1664525U + 1013904223U;
    return (seed >> 16) % below;
  };
  for (int call = 0; call < calls; ++call) {
    const T value = make(static_cast<int>(draw(1000)));
    const auto at = b.empty() ? 0U : draw(static_cast<unsigned>(b.size()));
    switch (b.empty() ? draw(3) : draw(11)) {
      case 0:
        a.push_back(value);
        b.push_back(value);
        break;
      case 1:
        a.resize(draw(20), value);
        b.resize(a.size(), value);
        break;
      case 2: a.reserve(draw(40)); break;
      case 3:
        a.push_back(a[at]);  // one of its own
        b.push_back(T(b[at]));
        break;
      case 4:
        a.insert(a.begin() + at, value);
        b.insert(b.begin() + at, value);
        break;
      case 5:
        a.erase(a.begin() + at);
        b.erase(b.begin() + at);
        break;
      case 6:
        a.pop_back();
        b.pop_back();
        break;
      case 7:
        a.resize(at);
        b.resize(at, value);
        break;
      case 8: {
        vec<T> copy = a;
        copy.push_back(value);
        a = copy;
        b.push_back(value);
        break;
      }
      case 9: {
        vec<T> moved = std::move(a);
        a = std::move(moved);
        break;
      }
      default: a.assign(b.data() + at, b.data() + b.size()); b.erase(b.begin(), b.begin() + at);
    }
    if (a.size() != b.size() || a.empty() != b.empty() || a.end() - a.begin() != static_cast<std::ptrdiff_t>(b.size()))
      return false;
    for (std::size_t i = 0; i < b.size(); ++i)
      if (!(a[i] == b[i])) return false;
    if (!b.empty() && (!(a.front() == b.front()) || !(a.back() == b.back()))) return false;
  }
  return true;
}

constexpr auto number = [](int n) { return n; };
constexpr auto pair = [](int n) { return pair_of{n, n / 2}; };
constexpr auto list = [](int n) { return vec<int>(static_cast<std::size_t>(n % 5), n); };

static_assert(behaves_as_std_vector<int>(1, 60, number));
static_assert(behaves_as_std_vector<pair_of>(2, 60, pair));
static_assert(behaves_as_std_vector<vec<int>>(3, 60, list));
static_assert(vec<int>{1, 2, 3}.back() == 3 && vec<int>{} == vec<int>{} && !(vec<int>{1} == vec<int>{2}));

TEST_CASE("a vec holds what a std::vector holds after the same calls") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    CHECK(behaves_as_std_vector<int>(seed, 200, number));
    CHECK(behaves_as_std_vector<pair_of>(seed, 200, pair));
    CHECK(behaves_as_std_vector<vec<int>>(seed, 200, list));
  }
}

TEST_CASE("resize to more than there are elements, without a value, leaves a vec as it is") {
  vec<int> v{1, 2};
  v.resize(5);
  CHECK(v == vec<int>{1, 2});
}

}  // namespace

namespace {

struct two_lists {
  gspmd::detail::vec<int> numbers;
  gspmd::detail::vec<char> letters;
  int rest_of_it = 0;

  template <class S, class F>
  static constexpr auto lists(S& s, F f) {
    return f(s.numbers, s.letters);
  }
  struct rest_members {
    int rest_of_it = 0;
  };
  template <class S, class F>
  static constexpr auto rest(S& s, F f) {
    return f(s.rest_of_it);
  }
  struct views {
    gspmd::detail::span<const int> numbers;
    gspmd::detail::span<const char> letters;
  };
};
template <std::size_t Guess>
struct make_two_lists {
  static constexpr two_lists run() { return {{1, 2, 3}, {'a'}, 7}; }
  static constexpr gspmd::detail::list_sizes<two_lists> guess() { return {Guess, Guess}; }
};
template <std::size_t Guess>
constexpr bool is_frozen_well() {
  const auto& held = gspmd::detail::frozen_result<make_two_lists<Guess>>::value();
  const two_lists s = held.thaw();
  two_lists::views viewed;
  held.view_lists(viewed);
  return held.fits() && s.numbers.size() == 3 && s.numbers[2] == 3 && s.letters.size() == 1 && s.letters[0] == 'a' &&
         s.rest_of_it == 7 && held.rest.rest_of_it == 7 && viewed.numbers.size() == 3 && viewed.letters[0] == 'a';
}
static_assert(is_frozen_well<8>() && is_frozen_well<3>(), "as guessed, with room to spare and without");
static_assert(is_frozen_well<2>() && is_frozen_well<0>(), "a guess that is too small costs another evaluation");
static_assert(gspmd::detail::frozen_result<make_two_lists<8>>::value().room.of[0] == 8);
static_assert(gspmd::detail::frozen_result<make_two_lists<2>>::value().room.of[0] == 3);

}  // namespace
