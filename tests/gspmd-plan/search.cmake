# SPDX-License-Identifier: Apache-2.0
# --search: the annotations that it finds, the document with these annotations, and the errors. Nothing is measured, so
# the result never changes.
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

# On the mesh of the document with little memory, and on meshes of 16 devices.
set(found "")
file(READ "${here}/search/layers.json" document)
plan(0 search/layers.json --search --plans 150)
string(APPEND found "${out}\n")
string(REPLACE "\"axes\"" "\"memory_per_device\": 8388608, \"axes\"" little "${document}")
file(WRITE "${SCRATCH}/little.json" "${little}")
plan(0 "${SCRATCH}/little.json" --search --plans 150 --annotated "${SCRATCH}/annotated.json")
string(APPEND found "${out}\n")
plan(0 search/layers.json --search --plans 150 --devices 16)
string(APPEND found "${out}")
golden(search.txt "${found}")
if(NOT err STREQUAL "")
  message(SEND_ERROR "a search says on no terminal: ${err}")
endif()

# The written document is valid, and its plan has the annotations that were found.
file(READ "${SCRATCH}/annotated.json" annotated)
string(JSON sharding GET "${annotated}" inputs 0 sharding)
has("${sharding}" "x")
plan(0 "${SCRATCH}/annotated.json" --search --plans 10)
string(REGEX MATCH "> +[0-9.]+ us" again "${out}")
has("${found}" "${again}")
plan(0 "${SCRATCH}/annotated.json" --json)
string(JSON peak GET "${out}" peak_bytes_per_device)
if(peak GREATER 8388608)
  message(SEND_ERROR "the document that a search found for 8388608 bytes holds ${peak}")
endif()

# Annotations of the document stay, unless --anew is given.
plan(0 valid/mlp.json --search --plans 20)
if(out MATCHES "\"sharding\": [^\n]* in x")
  message(SEND_ERROR "an input that is annotated is annotated again:\n${out}")
endif()
plan(0 valid/mlp.json --search --plans 20 --anew)
has("${out}" "in x")

# --anew also drops annotations in bodies and branches, so they name no axes that other meshes lack. Axes of a reshard
# are required.
plan(0 search/loop.json --search --plans 20 --anew --devices 4)
has("${out}" "x=4")
has("${out}" "x=2, y=2")
file(READ "${here}/search/loop.json" loop)
string(REPLACE "\"r\", \"op\": \"reshard\", \"operands\": [\"c\"], \"sharding\": [[\"x\"]"
               "\"r\", \"op\": \"reshard\", \"operands\": [\"c\"], \"sharding\": [[\"y\"]" other "${loop}")
file(WRITE "${SCRATCH}/other.json" "${other}")
plan(0 "${SCRATCH}/other.json" --search --plans 20 --anew --devices 4)
has("${out}" "skipped: 1 of 2 meshes of 4 devices, because the document cannot be built on them; on the first, ops[2].sharding[0][0]: `y` is not an axis")
plan(1 "${SCRATCH}/other.json" --search --plans 20 --anew --devices 7)
has("${err}" "--search: the document can be built on no mesh of 7 devices; on the first, ops[2].sharding[0][0]: `y` is not an axis")

# An annotation is written at its value. The name of the value may contain a '/'.
plan(0 search/heads.json --search --annotated "${SCRATCH}/heads.json")
has("${out}" "\"sharding\": [[\"y\"],[\"x\"],[]]  in blk/r; without it the step takes ")
file(READ "${SCRATCH}/heads.json" annotated)
string(JSON sharding GET "${annotated}" ops 3 sharding 1 0)
if(NOT sharding STREQUAL "x")
  message(SEND_ERROR "blk/r is annotated with ${sharding}")
endif()

string(REPLACE "8388608" "4096" least "${little}")
file(WRITE "${SCRATCH}/least.json" "${least}")
plan(1 "${SCRATCH}/least.json" --search --plans 60)
has("${err}" "--search: find_annotations: no plan was found that fits into the 4096 bytes of a device. The one that holds least, on the mesh x=4, y=4, holds ")
plan(1 strict/manual_runs.json --search)
has("${err}" "--search: the document writes its own communication, and nothing is left to annotate")
plan(2 search/layers.json --devices 8)
has("${err}" "--anew, --devices, --plans and --annotated are about a search, and there is no --search")
plan(2 search/layers.json --search --json)
has("${err}" "--search prints its result instead of the table")
plan(2 search/layers.json --search --plans none)
has("${err}" "--plans needs a whole number from 1 to 999999")
