# SPDX-License-Identifier: Apache-2.0
# For the scripts in this directory. PROGRAM is gspmd-plan, SCRATCH a directory for this test. If the environment has
# UPDATE=1, the golden files are written instead of compared.
cmake_minimum_required(VERSION 3.25...3.31)
set(here "${CMAKE_CURRENT_LIST_DIR}")
file(REMOVE_RECURSE "${SCRATCH}")
file(MAKE_DIRECTORY "${SCRATCH}")

# plan(STATUS WANTED ARGS...): runs gspmd-plan in this directory and sets `out` and `err`. Another exit status is a
# failure.
macro(plan wanted)
  execute_process(COMMAND "${PROGRAM}" ${ARGN} WORKING_DIRECTORY "${here}" RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE err TIMEOUT 60)
  if(NOT "${status}" STREQUAL "${wanted}")
    message(SEND_ERROR "gspmd-plan ${ARGN}: status ${status}, not ${wanted}\n${out}${err}")
  endif()
endmacro()

# golden(NAME TEXT): the text must equal golden/NAME.
function(golden name text)
  set(file "${here}/golden/${name}")
  if("$ENV{UPDATE}")
    file(WRITE "${file}" "${text}")
    return()
  endif()
  if(NOT EXISTS "${file}")
    message(SEND_ERROR "golden/${name} is not there; UPDATE=1 ctest -L plan writes it")
    return()
  endif()
  file(READ "${file}" wanted)
  if(NOT "${text}" STREQUAL "${wanted}")
    message(SEND_ERROR "not what golden/${name} holds:\n${text}")
  endif()
endfunction()

# has(TEXT PART): the text contains the part.
function(has text part)
  string(FIND "${text}" "${part}" at)
  if(at EQUAL -1)
    message(SEND_ERROR "no `${part}` in\n${text}")
  endif()
endfunction()
