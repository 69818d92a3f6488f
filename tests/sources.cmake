# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=checkout -P sources.cmake     What must hold in the sources of the library and no compiler checks.
set(complaints "")

# A pass asks for facts that an operator states (ops/operator.hpp) and names no operator, but for those that regions are made of.
file(GLOB passes "${ROOT}/include/gspmd/detail/passes/*.hpp")
list(LENGTH passes count)
if(count LESS 10)
  message(FATAL_ERROR "no passes in ${ROOT}/include/gspmd/detail/passes")
endif()
foreach(file IN LISTS passes)
  file(STRINGS "${file}" lines REGEX "opcode::|code_of<|_op>")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "opcode::(loop|carry|loop_result|branch|otherwise|cond_result)([^a-z_]|$)" "" rest "${line}")
    if(rest MATCHES "opcode::|code_of<")
      string(APPEND complaints "${file}: a pass names an operator:${line}\n")
    endif()
  endforeach()
endforeach()

if(complaints)
  message(FATAL_ERROR "${complaints}")
endif()
