# SPDX-License-Identifier: Apache-2.0
# Conan's generators read this after they have made gspmd::gspmd: what a recipe cannot say of a target, and those of CMakeLists.txt that have
# sources. It makes the profile's `compiler.cppstd` of no importance: whoever links gspmd::gspmd is compiled as C++20 or later.
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
