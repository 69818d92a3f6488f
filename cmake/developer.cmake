# SPDX-License-Identifier: Apache-2.0
# Settings of tests, examples and benchmarks. Consumers do not get them.

# Compilers allocate and free millions of small objects. With these settings, glibc keeps all freed objects by size,
# requests memory in large pages, and returns none. Measured: Clang takes a quarter less processor time, GCC a
# twentieth.
set(GSPMD_COMPILER_ENVIRONMENT
    "GLIBC_TUNABLES=glibc.malloc.tcache_count=65535:glibc.malloc.top_pad=67108864:glibc.malloc.trim_threshold=1073741824:glibc.malloc.hugetlb=1")
# GCC collects no garbage below 2 GB. Measured: a seventh less processor time than with 256 MB.
set(GSPMD_COMPILER_FLAGS "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(GSPMD_COMPILER_FLAGS --param=ggc-min-heapsize=1048576)
endif()
find_package(Python3 COMPONENTS Interpreter QUIET)
if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "${GSPMD_COMPILER_ENVIRONMENT}")
  if(Python3_FOUND)  # notes time and memory of each compilation
    list(PREPEND CMAKE_CXX_COMPILER_LAUNCHER "${Python3_EXECUTABLE}" -IS "${PROJECT_SOURCE_DIR}/.ci/units" run "${CMAKE_BINARY_DIR}/units.log")
  endif()
  find_program(CCACHE_EXECUTABLE ccache)
  mark_as_advanced(CCACHE_EXECUTABLE)
  if(CCACHE_EXECUTABLE)
    # Checkouts in several folders share compiled files: no absolute path enters ccache's keys. Without `sloppiness`,
    # ccache compiles each file that uses a precompiled header anew.
    list(APPEND CMAKE_CXX_COMPILER_LAUNCHER "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
                "${CCACHE_EXECUTABLE}")
  endif()
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)

set(GSPMD_MPI_PREFLAGS "")
if(MPI_CXX_FOUND)
  execute_process(COMMAND "${MPIEXEC_EXECUTABLE}" --version OUTPUT_VARIABLE gspmd_mpiexec ERROR_VARIABLE gspmd_mpiexec)
  if(gspmd_mpiexec MATCHES "Open MPI|OpenRTE")
    set(GSPMD_MPI_PREFLAGS --allow-run-as-root --oversubscribe)
  endif()
endif()

# gspmd_own(TARGET [FLAGS...]): our warnings, as errors; FLAGS (an optimisation level) if no build type is set. In a
# build of installed tools only, a new compiler's warnings do not stop the build.
function(gspmd_own target)
  set(werror "")
  if(GSPMD_BUILD_TESTS OR GSPMD_BUILD_EXAMPLES OR GSPMD_BUILD_BENCH OR GSPMD_BUILD_FUZZ)
    set(werror -Werror)
  endif()
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow ${werror} ${GSPMD_COMPILER_FLAGS})
  if(NOT CMAKE_BUILD_TYPE)
    target_compile_options(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# gspmd_precompiled_without_ccache(TARGET): disables ccache for a target that makes a precompiled header with Clang.
# Such a header contains the paths and times of its sources, so it does not fit another checkout.
function(gspmd_precompiled_without_ccache target)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CCACHE_EXECUTABLE)
    set(launcher ${CMAKE_CXX_COMPILER_LAUNCHER})
    list(REMOVE_ITEM launcher "${CCACHE_EXECUTABLE}")
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${launcher}")
  endif()
endfunction()

# gspmd_install_tool(TARGET): `cmake --install` installs the program, in the component `tools`. If it is not built,
# `cmake --install` says so and continues, so the headers can be installed without a build.
function(gspmd_install_tool target)
  include(GNUInstallDirs)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS ${target} COMPONENT tools OPTIONAL)
  install(CODE "if(NOT EXISTS \"$<TARGET_FILE:${target}>\")
    message(STATUS \"gspmd: $<TARGET_FILE_NAME:${target}> is not built, so it is not installed: cmake --build ${CMAKE_BINARY_DIR} --target ${target}\")
  endif()" COMPONENT tools)
endfunction()

# gspmd_marker(VARIABLE FILE KEY): the words after `// KEY:` at the beginning of a line of FILE, as a list. Empty if
# FILE has no such line.
function(gspmd_marker variable file key)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(STRINGS "${file}" line REGEX "^// *${key}:" LIMIT_COUNT 1)
  string(REGEX REPLACE "^// *${key}: *" "" line "${line}")
  separate_arguments(words UNIX_COMMAND "${line}")
  set(${variable} "${words}" PARENT_SCOPE)
endfunction()

# gspmd_add_test(NAME TARGET [LABELS label...] [TIMEOUT seconds] [MPI ranks...] [ARGS argument...] [ENVIRONMENT
# name=value...] [PRINTS file]): one ctest entry NAME, or with MPI one entry NAME.<ranks> for each number of ranks.
# PRINTS: the output must contain the lines of the file (tests/prints).
function(gspmd_add_test name target)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "TIMEOUT;PRINTS" "LABELS;MPI;ARGS;ENVIRONMENT")
  if(DEFINED arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "gspmd_add_test(${name}): not understood: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set(ran_nothing "\\[doctest\\] test cases: *0 ") # doctest reports no error if --source-file matches no file
  # One BLAS thread per device: the tests run more devices than there are cores.
  set(environment OPENBLAS_NUM_THREADS=1 ${arg_ENVIRONMENT})
  set(checker "")
  if(arg_PRINTS)
    set(checker "${PROJECT_SOURCE_DIR}/tests/prints" "${arg_PRINTS}")
  endif()
  if(NOT DEFINED arg_MPI)
    if(checker)
      add_test(NAME ${name} COMMAND ${checker} $<TARGET_FILE:${target}> ${arg_ARGS})
    else()
      add_test(NAME ${name} COMMAND ${target} ${arg_ARGS})
    endif()
    set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" ENVIRONMENT "${environment}"
                                            FAIL_REGULAR_EXPRESSION "${ran_nothing}")
    return()
  endif()
  # Containers often forbid the system call for vader's single copy. MPI itself leaks a little when it ends.
  list(APPEND environment OMPI_MCA_btl_vader_single_copy_mechanism=none ASAN_OPTIONS=detect_leaks=0)
  list(APPEND arg_LABELS mpi)
  list(REMOVE_DUPLICATES arg_LABELS)
  foreach(ranks IN LISTS arg_MPI)
    add_test(NAME ${name}.${ranks} COMMAND ${checker} "${MPIEXEC_EXECUTABLE}" ${GSPMD_MPI_PREFLAGS} ${MPIEXEC_NUMPROC_FLAG} ${ranks}
                                           $<TARGET_FILE:${target}> ${arg_ARGS})
    set_tests_properties(${name}.${ranks} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS};ranks-${ranks}"
                                                     ENVIRONMENT "${environment}" PROCESSORS ${ranks} FAIL_REGULAR_EXPRESSION "${ran_nothing}")
  endforeach()
endfunction()

# The target `reference`: the HTML reference of the public headers, in build/doc.
find_program(DOXYGEN_EXECUTABLE doxygen)
mark_as_advanced(DOXYGEN_EXECUTABLE)
if(DOXYGEN_EXECUTABLE AND Python3_FOUND)
  add_custom_target(reference COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/docs/reference/reference.py" USES_TERMINAL)
endif()
