# SPDX-License-Identifier: Apache-2.0
# Reports and pictures of a document with many layers are as short as those of a single layer, for every way to number
# the scopes.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

# document(FILE COUNT SCOPE): COUNT layers of seven operators; `@` in SCOPE is the number of a layer; empty: without
# scopes.
function(document file count scope)
  set(inputs "{\"name\": \"x0\", \"dtype\": \"f32\", \"shape\": [64, 128], \"sharding\": [[\"data\"], []]}")
  set(ops "")
  math(EXPR last "${count} - 1")
  foreach(k RANGE ${last})
    math(EXPR next "${k} + 1")
    foreach(part attention mlp)
      string(REPLACE "@" "${k}" own "${scope}")
      set(${part} "")
      if(scope)
        set(${part} ", \"scope\": \"${own}/${part}\"")
      endif()
    endforeach()
    string(APPEND inputs ",
      {\"name\": \"q${k}\", \"dtype\": \"f32\", \"shape\": [128, 128], \"sharding\": [[], [\"model\"]]},
      {\"name\": \"u${k}\", \"dtype\": \"f32\", \"shape\": [128, 512], \"sharding\": [[\"data\"], [\"model\"]]},
      {\"name\": \"d${k}\", \"dtype\": \"f32\", \"shape\": [512, 128], \"sharding\": [[\"model\"], []]}")
    string(APPEND ops "${comma}
      {\"name\": \"s${k}\", \"op\": \"einsum\", \"operands\": [\"x${k}\", \"q${k}\"], \"attrs\": {\"equation\": \"bd,df->bf\"}${attention}},
      {\"name\": \"e${k}\", \"op\": \"tanh\", \"operands\": [\"s${k}\"]${attention}},
      {\"name\": \"a${k}\", \"op\": \"einsum\", \"operands\": [\"e${k}\", \"q${k}\"], \"attrs\": {\"equation\": \"bf,df->bd\"}${attention}},
      {\"name\": \"r${k}\", \"op\": \"add\", \"operands\": [\"a${k}\", \"x${k}\"]${attention}},
      {\"name\": \"h${k}\", \"op\": \"einsum\", \"operands\": [\"r${k}\", \"u${k}\"], \"attrs\": {\"equation\": \"bd,df->bf\"}${mlp}},
      {\"name\": \"g${k}\", \"op\": \"relu\", \"operands\": [\"h${k}\"]${mlp}},
      {\"name\": \"x${next}\", \"op\": \"einsum\", \"operands\": [\"g${k}\", \"d${k}\"], \"attrs\": {\"equation\": \"bf,fd->bd\"}${mlp}}")
    set(comma ",")
  endforeach()
  file(WRITE "${file}" "{\"mesh\": {\"axes\": [[\"data\", 2], [\"model\", 2]]},
    \"inputs\": [${inputs}], \"ops\": [${ops}], \"outputs\": [\"x${count}\"]}")
endfunction()

# at_most(WHAT LIMIT NUMBER)
function(at_most what limit number)
  if(number GREATER limit)
    message(SEND_ERROR "${what}: ${number}, which is more than ${limit}")
  endif()
endfunction()

function(lines_of text variable)
  string(REGEX MATCHALL "\n" lines "${text}")
  list(LENGTH lines count)
  set(${variable} ${count} PARENT_SCOPE)
endfunction()

# shown_as_written(FILE): if a browser is installed, it must find every element of the page at the same position. A
# browser repairs a page that is not well-formed, and drops elements that it considers wrong.
find_program(DOT NAMES dot)
find_program(BROWSER NAMES chromium-headless-shell chromium google-chrome)
function(shown_as_written file)
  if(NOT BROWSER)
    return()
  endif()
  execute_process(COMMAND "${BROWSER}" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "--user-data-dir=${SCRATCH}/browser" --dump-dom "file://${file}"
                  RESULT_VARIABLE status OUTPUT_VARIABLE shown ERROR_VARIABLE err TIMEOUT 60)
  file(READ "${file}" written)
  foreach(text written shown)
    string(REGEX MATCHALL "<(h[12]|pre|svg|rect|text|details|summary|div|span|i|b|tr|td)[ >]|</(svg|details|div)>" ${text} "${${text}}")
    list(TRANSFORM ${text} REPLACE " " ">")
  endforeach()
  list(LENGTH written count)
  if(NOT status STREQUAL "0" OR count LESS 100 OR NOT written STREQUAL shown)
    message(SEND_ERROR "${BROWSER}: status ${status}; it shows other elements than the ${count} of ${file}\n${err}")
  endif()
endfunction()

# The number of layers, the scope in the document, and the scope that denotes all layers. The operators of a document
# are 1,001.
foreach(case "12;layer@;layer*" "143;layer[@];layer" "12;net/@;net/*" "12;;")
  list(POP_FRONT case count)
  list(POP_FRONT case scope)
  list(POP_FRONT case common)
  set(document "${SCRATCH}/layers.json")
  document("${document}" ${count} "${scope}")

  plan(0 "${document}")
  lines_of("${out}" count_of_lines)
  at_most("lines of the table of `${scope}`" 60 ${count_of_lines})
  has("${out}" " times the same ")
  plan(0 "${document}" --all)
  has("${out}" "\nh1 ")
  has("${out}" "\nh11 ")

  plan(0 "${document}" --report outline --layers "${SCRATCH}/layers.svg" --svg "${SCRATCH}/shards.svg" --html "${SCRATCH}/page.html")
  lines_of("${out}" count_of_lines)
  at_most("lines of the outline of `${scope}`" 40 ${count_of_lines})
  foreach(picture layers shards)
    file(READ "${SCRATCH}/${picture}.svg" drawn LIMIT 200)
    string(REGEX MATCH "height=\"([0-9]+)\"" found "${drawn}")
    if(NOT found)
      message(SEND_ERROR "${picture}.svg has no height:\n${drawn}")
    endif()
    at_most("height of ${picture}.svg of `${scope}`" 3000 ${CMAKE_MATCH_1})
  endforeach()
  file(READ "${SCRATCH}/shards.svg" drawn)
  math(EXPR more "${count} - 4")
  has("${drawn}" ">h0, h1, h2, h3 and ${more} more: f32 [64,512], ")
  file(READ "${SCRATCH}/page.html" page)
  shown_as_written("${SCRATCH}/page.html")

  plan(0 "${document}" --report summary)
  set(summary "${out}")
  plan(0 "${document}" --report most-expensive)
  # The reductions after the products of all layers are one row, whatever the number and name of the layers.
  string(REGEX MATCH "[^\n]*  reduce_scatter  data [^\n]*" row "${out}")
  has("${row}" " ${count}  reduce_scatter  data ")
  if(scope)
    has("${drawn}" ">in ${common}/mlp<")
    has("${summary}" "\n${common}/mlp ")
    has("${row}" "  ${common}/mlp")
    math(EXPR alike "${count} - 2")  # the first and the last layer differ
    if(NOT page MATCHES ">${alike} times, all equal")
      message(SEND_ERROR "the page does not show the layers of `${scope}` once")
    endif()
    # The graph has the nodes of one layer for all equal layers, in frames.
    plan(0 "${document}" --dot "${SCRATCH}/plan.dot")
    file(READ "${SCRATCH}/plan.dot" drawn_graph)
    if(NOT drawn_graph MATCHES "label=\"[^\"]* to [^\"]*: [0-9]+ times, all equal\"")
      message(SEND_ERROR "the graph does not show the layers of `${scope}` once")
    endif()
    if(DOT)
      execute_process(COMMAND "${DOT}" -Tsvg "${SCRATCH}/plan.dot" OUTPUT_VARIABLE drawn_graph RESULT_VARIABLE status TIMEOUT 60)
      if(NOT status EQUAL 0 OR NOT drawn_graph MATCHES "<svg width=\"[0-9]+pt\" height=\"([0-9]+)pt\"")
        message(SEND_ERROR "${DOT}: status ${status}")
      else()
        at_most("points of the graph of `${scope}`" 4000 ${CMAKE_MATCH_1})
      endif()
    endif()
    # The name of all layers shows all layers. The name of a layer shows this layer.
    plan(0 "${document}" --scope "${common}/mlp" --all)
    has("${out}" "\nh0 ")
    has("${out}" "\nh11 ")
    string(REPLACE "@" "1" own "${scope}")
    plan(0 "${document}" --scope "${own}/mlp" --all)
    has("${out}" "\nh1 ")
    string(FIND "${out}" "\nh11 " other)
    if(NOT other EQUAL -1)
      message(SEND_ERROR "--scope ${own}/mlp shows another layer:\n${out}")
    endif()
  endif()
endforeach()
