// SPDX-License-Identifier: Apache-2.0
// The functions that the Fortran program calls: a compiled step on blocks that Fortran owns, and the exchange of their
// ghost layers.
#include <ISO_Fortran_binding.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

#include "gspmd/external/blocks.hpp"
#include "gspmd/external/ghost_exchange.hpp"
#include "gspmd/external/placed_view.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/mpi.hpp"

namespace {

using namespace gspmd;

constexpr auto heat = [](auto t) {
  auto around = shift(t, -1, along(0)) + shift(t, 1, along(0)) + shift(t, -1, along(1)) + shift(t, 1, along(1));
  return t + 0.1 * (around - 4.0 * t);
};
// Fortran's u(nx, ny) is u[ny][nx] here, and the ranks split ny.
using step = compile<heat, mesh<axis<"y", 3>>, input<double, shape<40, 64>, split<"y", _>>>;
using rows_layout = decltype(layout_of_input<step, 0>(ragged_list{}));

/// A view of a Fortran array, from its descriptor. The dims are in the opposite order. Sections are not copied.
strided_view<double> view_of(const CFI_cdesc_t* array) {
  if (array->type != CFI_type_double) throw error("the array is not of real(c_double)");
  std::vector<std::int64_t> extents, strides;
  for (int d = array->rank - 1; d >= 0; --d) {
    extents.push_back(array->dim[d].extent);
    strides.push_back(array->dim[d].sm / static_cast<std::int64_t>(sizeof(double)));
  }
  return {static_cast<double*>(array->base_addr), extents, strides};
}

struct solver {
  solver(MPI_Comm all, const std::vector<std::int64_t>& rows)
      : comm(all), layout(layout_of_input<step, 0>(ragged_list{rows})), ghosts(layout, {1, 1}) {}
  mpi_communicator comm;
  rows_layout layout;
  ghost_exchange ghosts;
  step next;
};

/// Returns 0, or prints a message and returns 1: an exception must not reach Fortran.
template <class F>
int status_of(F f) {
  try {
    f();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

}  // namespace

extern "C" {

/// Makes a solver on the ranks of a communicator. Rank r has `ly[r]` columns of u (PETSc's ownership ranges). After an
/// error, prints a message and returns null.
void* heat_begin(MPI_Fint comm, const std::int64_t* ly, int ranks) {
  std::unique_ptr<solver> made;
  status_of([&] { made = std::make_unique<solver>(MPI_Comm_f2c(comm), std::vector<std::int64_t>(ly, ly + ranks)); });
  return made.release();
}
/// Fills the ghost layers of u(0:nx+1, 0:ly+1) with elements of the neighbours.
int heat_fill_ghosts(void* s, CFI_cdesc_t* u) {
  auto& mine = *static_cast<solver*>(s);
  return status_of([&] { mine.ghosts(mine.comm, view_of(u)); });
}
/// Computes one step from u(1:nx, 1:ly) to next(1:nx, 1:ly).
int heat_step(void* s, CFI_cdesc_t* u, CFI_cdesc_t* next) {
  auto& mine = *static_cast<solver*>(s);
  return status_of([&] { mine.next(mine.comm, placed_view(mine.layout, view_of(u)), placed_view(mine.layout, view_of(next))); });
}
void heat_end(void* s) { delete static_cast<solver*>(s); }

}  // extern "C"
