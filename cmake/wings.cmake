# SPDX-License-Identifier: Apache-2.0
# The components of find_package(gspmd COMPONENTS ...). Each component NAME is a target gspmd::NAME.

# A wing has a folder of include/gspmd, an umbrella header, and a row in docs/reference/headers.md. The row states the
# same dependencies (tests/sources.cmake compares the two).
set(gspmd_wings windows index layouts linalg fft sparse nn io external staggered search native trace)
# The other wings that a wing includes.
set(gspmd_windows_needs index)
set(gspmd_linalg_needs index)
set(gspmd_nn_needs index)
set(gspmd_sparse_needs index)
set(gspmd_external_needs layouts)
# The libraries that a wing links.
set(gspmd_native_libraries dl)
# The centre includes these wings, so their headers belong to gspmd::gspmd.
set(gspmd_wings_of_centre windows index layouts)

# These components exist if CMake finds their library. The HDF5 component belongs to the wing io.
set(gspmd_backends mpi hdf5)
set(gspmd_components ${gspmd_wings} ${gspmd_backends})
list(JOIN gspmd_components ", " gspmd_component_names)
