# SPDX-License-Identifier: Apache-2.0
# `cmake --install BUILD --component tools` installs gspmd-plan with its schema, and gspmd-errors. The installed
# program prints VERSION and plans DOCUMENT.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --component tools --prefix "${SCRATCH}/prefix"
                RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE err)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "cmake --install: status ${status}\n${out}${err}")
endif()
set(PROGRAM "${SCRATCH}/prefix/bin/gspmd-plan")
plan(0 --version)
if(NOT out STREQUAL "gspmd-plan ${VERSION}\n")
  message(SEND_ERROR "gspmd-plan --version prints ${out}, and the version is ${VERSION}")
endif()
plan(0 "${DOCUMENT}")
has("${out}" "all_reduce over model of y")
if(NOT EXISTS "${SCRATCH}/prefix/share/gspmd/plan.schema.json")
  message(SEND_ERROR "share/gspmd/plan.schema.json is not installed")
endif()
execute_process(COMMAND "${SCRATCH}/prefix/bin/gspmd-errors" --help RESULT_VARIABLE status OUTPUT_VARIABLE out)
if(NOT status EQUAL 0)
  message(SEND_ERROR "gspmd-errors --help: status ${status}")
endif()
has("${out}" "usage: make 2>&1 | gspmd-errors")
