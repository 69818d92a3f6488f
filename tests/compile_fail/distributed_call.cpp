// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a program with types has only the communication that you write
// expect: 1 is invariant over `dp`, operand 0
// expect: `dp`; write reshard<split<`dp`,
#include <gspmd/gspmd.hpp>

#include <gspmd/modes/distributed.hpp>

using namespace gspmd;

using pod = mesh<axis<"dp", 2>>;
using batch = tensor<float, shape<4, 5>, place<pod, split<"dp", _>>>;
#ifdef FIXED
using bias = batch;
#else
using bias = tensor<float, shape<4, 5>, place<pod, split<_, _>>>;
#endif

auto add(const distributed<batch, threads_communicator>& x, const distributed<bias, threads_communicator>& b) {
  return x + b;  // <- here
}

int main() {}
