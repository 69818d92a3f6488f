# SPDX-License-Identifier: Apache-2.0
# HDF5's C library, serial or parallel: its headers and a library. Defines HDF5C::HDF5C. (CMake's own FindHDF5 asks for a C compiler, which
# a project in C++ need not have.) Of several ones a serial one is taken, which goes with any MPI.
# Choose one by hand with -DHDF5C_INCLUDE_DIR=... -DHDF5C_LIBRARY=...
include(FindPackageHandleStandardArgs)

find_path(HDF5C_INCLUDE_DIR hdf5.h HINTS "${HDF5_ROOT}" ENV HDF5_ROOT PATH_SUFFIXES include hdf5/serial hdf5/openmpi hdf5/mpich)
if(HDF5C_INCLUDE_DIR)
  cmake_path(GET HDF5C_INCLUDE_DIR FILENAME variant)  # Debian's libraries are called after it
  cmake_path(GET HDF5C_INCLUDE_DIR PARENT_PATH beside)
  find_library(HDF5C_LIBRARY NAMES "hdf5_${variant}" hdf5 HINTS "${beside}" PATH_SUFFIXES lib "hdf5/${variant}")
  file(STRINGS "${HDF5C_INCLUDE_DIR}/H5public.h" line REGEX "^#define H5_VERS_INFO " LIMIT_COUNT 1)
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" HDF5C_VERSION "${line}")
endif()
mark_as_advanced(HDF5C_INCLUDE_DIR HDF5C_LIBRARY)

# A parallel one includes MPI's header.
set(HDF5C_MPI "")
set(HDF5C_NEEDS "")
if(HDF5C_INCLUDE_DIR)
  file(GLOB configurations "${HDF5C_INCLUDE_DIR}/H5pubconf*.h")
  foreach(configuration IN LISTS configurations)
    file(STRINGS "${configuration}" line REGEX "^#define H5_HAVE_PARALLEL 1" LIMIT_COUNT 1)
    if(line)
      set(MPI_CXX_SKIP_MPICXX ON)
      find_package(MPI QUIET COMPONENTS CXX)
      set(HDF5C_MPI MPI::MPI_CXX)
      set(HDF5C_NEEDS MPI_CXX_FOUND)
    endif()
  endforeach()
endif()

find_package_handle_standard_args(HDF5C REQUIRED_VARS HDF5C_LIBRARY HDF5C_INCLUDE_DIR ${HDF5C_NEEDS} VERSION_VAR HDF5C_VERSION)
if(HDF5C_FOUND AND NOT TARGET HDF5C::HDF5C)
  add_library(HDF5C::HDF5C UNKNOWN IMPORTED)
  set_target_properties(HDF5C::HDF5C PROPERTIES
    IMPORTED_LOCATION "${HDF5C_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${HDF5C_INCLUDE_DIR}" INTERFACE_LINK_LIBRARIES "${HDF5C_MPI}")
endif()
