# SPDX-License-Identifier: Apache-2.0
# valid/NAME.json: its table, its JSON, the reasons for its shardings, its drawings, and a comparison of all backends
# with one device.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

plan(0 valid/${NAME}.json)
golden(${NAME}.txt "${out}")
plan(0 valid/${NAME}.json --json)
golden(${NAME}.json "${out}")
file(READ "${here}/valid/${NAME}.json" document)
string(JSON last LENGTH "${document}" outputs)
set(why "")
foreach(k RANGE 1 ${last})
  math(EXPR k "${k} - 1")
  string(JSON value GET "${document}" outputs ${k})
  plan(0 valid/${NAME}.json --explain ${value})
  string(APPEND why "${out}")
endforeach()
golden(${NAME}.sharding "${why}")
plan(0 valid/${NAME}.json --dot "${SCRATCH}/plan.dot" --svg "${SCRATCH}/plan.svg" --bytes)
if(PYTHON)
  execute_process(COMMAND "${PYTHON}" "${here}/drawings.py" "${here}/golden/${NAME}.json" "${SCRATCH}/plan.svg" "${SCRATCH}/plan.dot"
                          "${here}/valid/${NAME}.json"
                  RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT status EQUAL 0)
    message(SEND_ERROR "the drawings do not show the plan:\n${out}${err}")
  endif()
endif()
if(NOT document MATCHES "1024")  # devices
  plan(0 valid/${NAME}.json --check)
  plan(0 valid/${NAME}.json --check --backend threads)
endif()
