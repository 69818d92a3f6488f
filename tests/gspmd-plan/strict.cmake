# SPDX-License-Identifier: Apache-2.0
# strict/NAME.json: an explicit or manual document, its states, its collectives forward and backward, and mistakes.
# Documents called NAME_mistakes have mistakes. Other documents are also planned, drawn and run. The results are
# compared with a program for one device, where the data of each device in the local view is a separate value.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

set(status 0)
if(NAME MATCHES "_mistakes$")
  set(status 1)
endif()
plan(${status} strict/${NAME}.json --json)
golden(${NAME}.json "${out}")
plan(${status} strict/${NAME}.json)
golden(${NAME}.txt "${out}${err}")
if(NOT NAME MATCHES "_mistakes$")
  file(READ "${here}/strict/${NAME}.json" document)
  string(JSON last GET "${document}" outputs 0)
  plan(0 strict/${NAME}.json --check --explain ${last} --dot "${SCRATCH}/plan.dot" --svg "${SCRATCH}/plan.svg" --timeline "${SCRATCH}/plan.trace")
  plan(0 strict/${NAME}.json --check --backend threads)
  string(REGEX MATCHALL "check [^\n]*equal to the bit" equal "${out}")
  string(JSON outputs LENGTH "${document}" outputs)
  list(LENGTH equal count)
  if(NOT count EQUAL outputs)
    message(SEND_ERROR "${count} of ${outputs} outputs are those of one device:\n${out}${err}")
  endif()
  plan(0 strict/${NAME}.json --from ${last} --to ${last})
  golden(${NAME}.plan "${out}")
  plan(0 strict/${NAME}.json --report summary)
endif()
