# SPDX-License-Identifier: Apache-2.0
# The ```cpp blocks of a document that have a marker `<!-- WORD ... -->` on the line before.

# gspmd_block_markers(TEXT WORD OUT): sets OUT to the markers, each with the line "```cpp". OUT_complete is ON if every marker has
# this line.
function(gspmd_block_markers text word out)
  string(REGEX MATCHALL "<!-- ${word}[^\n]*-->\n```cpp\n" markers "${text}")
  string(REGEX MATCHALL "<!-- ${word}" mentioned "${text}")
  list(LENGTH markers count)
  list(LENGTH mentioned asked)
  set(complete FALSE)
  if(count EQUAL asked)
    set(complete TRUE)
  endif()
  set(${out} "${markers}" PARENT_SCOPE)
  set(${out}_complete ${complete} PARENT_SCOPE)
endfunction()

# gspmd_take_block(DOCUMENT MARKER CODE): sets CODE to the block after the first MARKER in the variable DOCUMENT. DOCUMENT keeps the part
# from this block on.
function(gspmd_take_block document_variable marker code_variable)
  set(document "${${document_variable}}")
  string(FIND "${document}" "${marker}" at)
  string(LENGTH "${marker}" length)
  math(EXPR at "${at} + ${length}")
  string(SUBSTRING "${document}" ${at} -1 document)
  string(FIND "${document}" "\n```" end)
  string(SUBSTRING "${document}" 0 ${end} block)
  set(${document_variable} "${document}" PARENT_SCOPE)
  set(${code_variable} "${block}" PARENT_SCOPE)
endfunction()
