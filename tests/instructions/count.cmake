# SPDX-License-Identifier: Apache-2.0
# Compares the executed instructions of a compiled step with hand-written loops, as callgrind counts them. Instructions do not depend on
# the load of the machine. PROGRAM, VALGRIND; CASE: the case of PROGRAM; AT_MOST or MORE_THAN: the percentage of the hand-written loops.
cmake_minimum_required(VERSION 3.25...3.31)

function(count function result)
  set(file "${SCRATCH}/${function}.callgrind")
  file(REMOVE "${file}")
  execute_process(COMMAND "${VALGRIND}" --tool=callgrind "--callgrind-out-file=${file}" "--toggle-collect=${function}" "${PROGRAM}" "${CASE}"
                  RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE err TIMEOUT 100)
  if(NOT "${status}" STREQUAL "0")
    message(FATAL_ERROR "${PROGRAM} ${CASE}: status ${status}\n${out}${err}")
  endif()
  file(STRINGS "${file}" line REGEX "^summary: [0-9]+" LIMIT_COUNT 1)
  string(REGEX REPLACE "^summary: ([0-9]+).*" "\\1" instructions "${line}")
  # Fewer than one instruction for 8 elements cannot be a loop over the elements: callgrind counted another function, or no function.
  if(NOT instructions MATCHES "^[0-9]+$" OR instructions LESS 16384)
    message(FATAL_ERROR "${function}: `${line}` are not the instructions of 131,072 elements")
  endif()
  set(${result} ${instructions} PARENT_SCOPE)
endfunction()

file(MAKE_DIRECTORY "${SCRATCH}")
count(${CASE}_step step)
count(${CASE}_by_hand by_hand)
math(EXPR permille "1000 * ${step} / ${by_hand}")
message("${CASE}: ${step} instructions, by hand ${by_hand}: ${permille} in 1000")
math(EXPR scaled "100 * ${step}")
if(DEFINED AT_MOST)
  math(EXPR limit "${AT_MOST} * ${by_hand}")
  if(scaled GREATER limit)
    message(FATAL_ERROR "the step takes more than ${AT_MOST} % of the instructions by hand")
  endif()
else()
  math(EXPR limit "${MORE_THAN} * ${by_hand}")
  if(NOT scaled GREATER limit)
    message(FATAL_ERROR "what computes 4 rows of 128 again is not seen to take more than ${MORE_THAN} %")
  endif()
endif()
