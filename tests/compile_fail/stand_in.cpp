// SPDX-License-Identifier: Apache-2.0
// The stand-in for a refused program has the structure and the types of the program's results, so no use of the results
// is a second error.
// expect: gspmd: reshape keeps the number of elements
// expect: stand_in.cpp:
#include <gspmd/gspmd.hpp>

#include <cmath>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

// A refused reshape returns a value with the requested rank. Otherwise this recursion would not end.
constexpr value grown(value x, std::initializer_list<std::int64_t> shape) {
  return x.rank() == 3 ? x : grown(reshape(x, shape), shape);
}

template <class T>
struct weights {
  T w, b;
};
constexpr auto program = [](auto x, weights<value> p) {
#ifdef FIXED
  auto y = grown(x, {4, 16, 32});
#else
  auto y = grown(x, {4, 16, 33});
#endif
  return std::tuple{y, weights<value>{p.w * 2.0, p.b * 2.0}, sum(y)};
};
using step = compile<program, pod, input<double, shape<64, 32>, split<"data", _>>,
                     record<weights, input<double, shape<8>>, input<double, shape<4>>>>;
static_assert(step::collectives == collectives{all_reduce<"data">});  // <- here

int main() {
  array<double> x({64, 32});
  weights<array<double>> p{array<double>({8}), array<double>({4})};
  auto [y, q, total] = run<step>(simulated{}, x, p);
  p = q;
  array<double> whole = y;
  step s;
  simulated_communicator comm(2);
  auto z = make_result<step, 0>(comm);
  auto r = make_result<step, 1>(comm);
  auto sums = make_result<step, 2>(comm);
  s(comm, distribute<step, 0>(comm, x), distribute<step, 1>(comm, p), z, r, sums);
  static_assert(step::output_shard<0>::local_extents.count == 3);
  const double* data = y.data();
  return std::abs(whole[0] - total[0]) > data[1] + q.w[2] + collect(comm, z)[0];
}
