# SPDX-License-Identifier: Apache-2.0
# Executed instructions of a compiled step beside the same loops by hand, as callgrind counts them: no clock, so that they are the same on a
# machine that is busy. PROGRAM, VALGRIND; CASE: what PROGRAM runs; AT_MOST or MORE_THAN: the percentage of the instructions by hand.
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
  # Fewer than an eighth of the elements have no loop over them: another function was counted, or none.
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
