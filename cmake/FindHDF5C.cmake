# SPDX-License-Identifier: Apache-2.0
# HDF5's C library, serial or parallel: its headers and a library. Defines HDF5C::HDF5C. (CMake's own FindHDF5 requires a C compiler, which
# a C++ project may not have.) If several exist, takes a serial one, which works with any MPI.
# To choose one: -DHDF5C_INCLUDE_DIR=... -DHDF5C_LIBRARY=...
include(FindPackageHandleStandardArgs)

find_path(HDF5C_INCLUDE_DIR hdf5.h HINTS "${HDF5_ROOT}" ENV HDF5_ROOT PATH_SUFFIXES include hdf5/serial hdf5/openmpi hdf5/mpich)
if(HDF5C_INCLUDE_DIR)
  cmake_path(GET HDF5C_INCLUDE_DIR FILENAME variant)  # Debian names its libraries after this folder
  cmake_path(GET HDF5C_INCLUDE_DIR PARENT_PATH beside)
  find_library(HDF5C_LIBRARY NAMES "hdf5_${variant}" hdf5 HINTS "${beside}" PATH_SUFFIXES lib "hdf5/${variant}")
  file(STRINGS "${HDF5C_INCLUDE_DIR}/H5public.h" line REGEX "^#define H5_VERS_INFO " LIMIT_COUNT 1)
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" HDF5C_VERSION "${line}")
endif()
mark_as_advanced(HDF5C_INCLUDE_DIR HDF5C_LIBRARY)

# A parallel HDF5 includes MPI's header. A program that links a static HDF5 must link the libraries of its filters and drivers.
set(HDF5C_LINKS "")
set(HDF5C_NEEDS "")
set(called "")
if(HDF5C_LIBRARY MATCHES "\\.a$")
  set(HDF5C_LINKS "${CMAKE_DL_LIBS}")
  set(called FILTER_DEFLATE:z FILTER_SZIP:sz FILTER_SZIP:aec ROS3_VFD:curl ROS3_VFD:crypto)
endif()
if(HDF5C_INCLUDE_DIR)
  file(GLOB configurations "${HDF5C_INCLUDE_DIR}/H5pubconf*.h")
  foreach(configuration IN LISTS configurations)
    file(STRINGS "${configuration}" line REGEX "^#define H5_HAVE_PARALLEL 1" LIMIT_COUNT 1)
    if(line)
      set(MPI_CXX_SKIP_MPICXX ON)
      find_package(MPI QUIET COMPONENTS CXX)
      list(APPEND HDF5C_LINKS MPI::MPI_CXX)
      set(HDF5C_NEEDS MPI_CXX_FOUND)
    endif()
    foreach(part_library IN LISTS called)
      string(REPLACE ":" ";" part_library "${part_library}")
      list(POP_FRONT part_library part)
      file(STRINGS "${configuration}" line REGEX "^#define H5_HAVE_${part} 1" LIMIT_COUNT 1)
      if(line)
        find_library(HDF5C_${part_library} NAMES ${part_library} HINTS "${beside}" PATH_SUFFIXES lib)
        mark_as_advanced(HDF5C_${part_library})
        if(HDF5C_${part_library})  # szip is one library or two
          list(APPEND HDF5C_LINKS "${HDF5C_${part_library}}")
        endif()
      endif()
    endforeach()
  endforeach()
endif()

find_package_handle_standard_args(HDF5C REQUIRED_VARS HDF5C_LIBRARY HDF5C_INCLUDE_DIR ${HDF5C_NEEDS} VERSION_VAR HDF5C_VERSION)
if(HDF5C_FOUND AND NOT TARGET HDF5C::HDF5C)
  add_library(HDF5C::HDF5C UNKNOWN IMPORTED)
  set_target_properties(HDF5C::HDF5C PROPERTIES
    IMPORTED_LOCATION "${HDF5C_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${HDF5C_INCLUDE_DIR}" INTERFACE_LINK_LIBRARIES "${HDF5C_LINKS}")
endif()
