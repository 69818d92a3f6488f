# SPDX-License-Identifier: Apache-2.0
# Conan's CMakeDeps includes this file after it makes the targets of the recipe (conan/conanfile.py). This file adds the
# parts that a recipe cannot state: the C++ standard, the targets with sources, and a result for each component of
# find_package(gspmd COMPONENTS ...). Programs that link gspmd::gspmd are compiled as C++20 or later, whatever
# `compiler.cppstd` the profile sets.
target_compile_features(gspmd::gspmd INTERFACE cxx_std_20)
if(NOT TARGET gspmd::precompiled)
  add_library(gspmd::precompiled_run INTERFACE IMPORTED)
  target_sources(gspmd::precompiled_run INTERFACE "${CMAKE_CURRENT_LIST_DIR}/precompiled_run.cpp")
  target_compile_definitions(gspmd::precompiled_run INTERFACE GSPMD_PRECOMPILED)
  target_link_libraries(gspmd::precompiled_run INTERFACE gspmd::gspmd)
  add_library(gspmd::precompiled INTERFACE IMPORTED)
  target_sources(gspmd::precompiled INTERFACE "${CMAKE_CURRENT_LIST_DIR}/precompiled_planner.cpp"
                                              "${CMAKE_CURRENT_LIST_DIR}/precompiled_kernels.cpp")
  target_link_libraries(gspmd::precompiled INTERFACE gspmd::precompiled_run)
  add_library(gspmd::pch INTERFACE IMPORTED)
  target_precompile_headers(gspmd::pch INTERFACE <gspmd/gspmd.hpp>)
  target_link_libraries(gspmd::pch INTERFACE gspmd::gspmd)
endif()
foreach(component IN LISTS gspmd_FIND_COMPONENTS)
  if(NOT component MATCHES "^(mpi|hdf5)$")
    set(gspmd_missing "gspmd has no component ${component}; there are mpi and hdf5")
  elseif(TARGET gspmd::${component})
    set(gspmd_${component}_FOUND TRUE)
    continue()
  else()
    set(gspmd_missing "gspmd's component ${component}: the Conan package was made without it; set the option gspmd/*:${component}=True")
  endif()
  set(gspmd_${component}_FOUND FALSE)
  if(gspmd_FIND_REQUIRED_${component})
    set(gspmd_FOUND FALSE)
    set(gspmd_NOT_FOUND_MESSAGE "${gspmd_missing}")
  endif()
endforeach()
