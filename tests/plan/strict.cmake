# SPDX-License-Identifier: Apache-2.0
# strict/NAME.json: an explicit or manual document, its states, collectives forward and backward, and mistakes. Those called
# NAME_mistakes have some.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

set(status 0)
if(NAME MATCHES "_mistakes$")
  set(status 1)
endif()
plan(${status} strict/${NAME}.json --json)
golden(${NAME}.json "${out}")
plan(${status} strict/${NAME}.json)
golden(${NAME}.txt "${out}${err}")
