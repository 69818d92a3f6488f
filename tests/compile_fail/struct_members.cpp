// SPDX-License-Identifier: Apache-2.0
// Structs whose members cannot be bound.
// mistakes: 5
// expect: gspmd: struct: a member is a C array; make it a std::array
// expect: gspmd: struct: it has a base class; make the base class a member
// expect: gspmd: struct: a member is a reference; make it a value, an array or a group
// expect: gspmd: struct: it has more than 64 members; group them in structs of their own, or in a std::array
// expect: gspmd: record: the struct must be an aggregate; make its members public, and remove its constructors
#include <gspmd/gspmd.hpp>

#include <array>

using namespace gspmd;

template <class T>
struct listed {
#ifdef FIXED
  std::array<T, 2> all;
#else
  T all[2];
#endif
};
template <class T>
struct layer {
  T w;
#ifndef FIXED

 private:
  int uses_ = 0;
#endif
};
template <class T>
struct first {
  T a;
};
template <class T>
#ifdef FIXED
struct derived {
  first<T> base;
#else
struct derived : first<T> {
#endif
  T b;
};
template <class T>
struct borrowed {
#ifdef FIXED
  T a;
#else
  T& a;
#endif
};
template <class T>
struct many {
  T a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6,
      d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0, h1, h2, h3, h4, h5,
      h6, h7;
#ifndef FIXED
  T i0;
#endif
};

using step = compile<[](auto l) { return l.w * 2.0; }, mesh<axis<"x", 2>>, record<layer, input<float, shape<4>>>>;

static_assert(detail::is_tree_of<listed<value>, value>());    // <- here
static_assert(detail::is_tree_of<derived<value>, value>());   // <- here
static_assert(detail::is_tree_of<borrowed<value>, value>());  // <- here
static_assert(detail::is_tree_of<many<value>, value>());      // <- here

int main() { return step::traffic.bytes > 0 ? 1 : 0; }  // <- here
