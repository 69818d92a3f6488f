# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=checkout -P sources.cmake     Checks rules for the library's sources that no compiler checks.
cmake_minimum_required(VERSION 3.25)
set(complaints "")

# A pass reads the facts of an operator (ops/operator.hpp) and names no operator, except the operators of regions.
file(GLOB_RECURSE passes "${ROOT}/include/gspmd/detail/passes/*.hpp")
list(LENGTH passes count)
if(count LESS 10)
  message(FATAL_ERROR "no passes in ${ROOT}/include/gspmd/detail/passes")
endif()
foreach(file IN LISTS passes)
  if(file MATCHES "/rewrite/read_in_place\\.hpp$") # names reshape and reduce; remedy: two facts of operators, `renumbers` and `sums_dims`
    continue()
  endif()
  file(STRINGS "${file}" lines REGEX "opcode::|code_of<|_op>")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "opcode::(loop|carry|loop_result|branch|otherwise|cond_result|result)([^a-z_]|$)" "" rest "${line}")
    if(rest MATCHES "opcode::|code_of<")
      string(APPEND complaints "${file}: a pass names an operator:${line}\n")
    endif()
  endforeach()
endforeach()

# An operator's struct writes and reads its attributes by name (`keep`, `of`). No other code uses their positions.
file(GLOB_RECURSE readers "${ROOT}/include/gspmd/*.hpp" "${ROOT}/include/gspmd/*.ipp")
list(FILTER readers EXCLUDE REGEX "/detail/(ops/.*|ir/graph|passes/typed/find_types|passes/rewrite/read_in_place)\\.hpp$|/(windows|index|layouts|linalg|fft|sparse|nn|io|external|staggered|search|native|trace)/detail/")
foreach(file IN LISTS readers)
  file(STRINGS "${file}" lines REGEX "attributes(\\[|\\.items|\\.push_back)")
  foreach(line IN LISTS lines)
    string(APPEND complaints "${file}: knows the place of an attribute; ask the operator's struct:${line}\n")
  endforeach()
endforeach()
file(GLOB_RECURSE readers "${ROOT}/tests/*.?pp")
foreach(file IN LISTS readers)
  file(STRINGS "${file}" lines REGEX "attributes\\[[1-9]")
  foreach(line IN LISTS lines)
    string(APPEND complaints "${file}: knows the place of an attribute; ask the operator's struct:${line}\n")
  endforeach()
endforeach()

# A kernel states the facts of its steps (ir/kernels/). Other code uses the number of a kernel only to make a step.
file(GLOB_RECURSE headers "${ROOT}/include/gspmd/*.hpp" "${ROOT}/include/gspmd/*.ipp")
list(FILTER headers EXCLUDE REGEX "/detail/ir/(kernels/.*|kernel_list|kernel_facts|plan_step)\\.hpp$")
set(added 0)
foreach(file IN LISTS headers)
  file(STRINGS "${file}" lines REGEX "id_of<|add_step<|(^|[^a-z_])is<")
  foreach(line IN LISTS lines)
    if(line MATCHES "add_step[(<]|\\.kernel = id_of<[a-z_:]+>;" AND NOT line MATCHES "(==|!=|<|>) *id_of<|id_of<[a-z_:]+> *(==|!=)|[^a-z_]is<")
      math(EXPR added "${added} + 1")
    else()
      string(APPEND complaints "${file}: asks which kernel a step is of; let it be a fact of all kernels:${line}\n")
    endif()
  endforeach()
endforeach()
if(added LESS 10)
  message(FATAL_ERROR "no steps are added in ${ROOT}/include")
endif()

# A composite computes bf16 and f16 as float (ops/composite.hpp). A public header that sums elements uses that header,
# except for exact sums.
file(GLOB_RECURSE headers "${ROOT}/include/gspmd/*.hpp" "${ROOT}/include/gspmd/*.ipp")
list(FILTER headers EXCLUDE REGEX "/detail/|/(reproducible|index/lookup|index/order)\\.hpp$")
set(composites 0)
foreach(file IN LISTS headers)
  file(STRINGS "${file}" lines REGEX "[^_a-z.>/:](sum|sum_pool|cumsum|segment_sum)\\(")
  list(FILTER lines EXCLUDE REGEX "^ *//|^constexpr value|cast<std::int64_t>")
  if(lines STREQUAL "")
    continue()
  endif()
  math(EXPR composites "${composites} + 1")
  file(READ "${file}" text)
  if(NOT text MATCHES "ops/composite\\.hpp|composite_type|\\.wide\\(\\)")
    string(APPEND complaints "${file}: adds up elements in their type; use detail::rounded_once (ops/composite.hpp):${lines}\n")
  endif()
endforeach()
if(composites LESS 4)
  message(FATAL_ERROR "no composites in ${ROOT}/include")
endif()

# Includes have one direction. docs/reference/headers.md has a table of folders, with the folders that each may include.
# Every header may include gspmd/error.hpp and gspmd/version.hpp, and no header of a folder includes an umbrella.
set(centre comm program ops plan run transform modes dynamic report extend)
set(until_the_doors "")
set(exceptions "")
# The facts of operators, and functions that add the nodes of a wing to a program. gspmd/extend/operator.hpp replaces
# them.
list(APPEND until_the_doors
    detail/ops/as_index detail/ops/broadcast detail/ops/composed detail/ops/concatenate detail/ops/einsum/convolution
    detail/ops/einsum/einsum detail/ops/elementwise detail/ops/elementwise_node detail/ops/gradient_builder detail/ops/one_call
    detail/ops/operator detail/ops/own/kept_functions detail/ops/reduce detail/ops/registry detail/ops/reshape detail/ops/reshard
    detail/ops/rows detail/ops/shift detail/ops/sources detail/ops/transpose)
# Types of programs and plans, code that several kernels share, and the runner. gspmd/extend/kernel.hpp has the names
# that every kernel needs.
list(APPEND until_the_doors
    detail/ir/collective detail/ir/element_bits detail/ir/fused_group detail/ir/fused_loop detail/ir/graph detail/ir/index_map
    detail/ir/kernel_facts detail/ir/layout detail/ir/can_alias
    detail/ir/mesh_info detail/ir/plan detail/ir/scalar_math detail/ir/types detail/ir/window
    detail/kernels/fused_kernels detail/kernels/fused_static detail/kernels/gemm
    detail/kernels/reduce detail/kernels/reduce_rows detail/kernels/simd detail/kernels/transpose_block detail/run/bound_devices
    detail/run/equality_check detail/run/loop_reduction_step
    detail/run/plan_runner detail/run/static_program)
# Other kinds of inputs, plans for another request, and the texts of plans. Public headers of run/ and report/ replace
# them.
list(APPEND until_the_doors
    detail/driver/edge_elements detail/driver/given_shard detail/driver/static_passes detail/driver/static_plan detail/notation/mesh_views
    detail/notation/xla_convert detail/report/cost_report detail/report/explain_plan)
# The boxes that files are read and written in, and communicators that forward calls. io/ and trace/ use them.
list(APPEND until_the_doors
    detail/transport/box detail/transport/communicator detail/transport/device_memory
    detail/transport/forwarding_communicator detail/transport/meeting_subject)
# Includes that remain to be removed, with the remedy.
# reproducible(f) names the operators that sum. A fact of the operator, `exact`, replaces this. Or
# transform/reproducible.hpp becomes a wing.
list(APPEND exceptions
    detail/ops/compositions/exact_sum>index/detail/gather_op
    detail/ops/compositions/exact_sum>windows/detail/reduce_window_op
    detail/ops/compositions/exact_sum>index/detail/scan_op
    detail/ops/compositions/exact_sum>index/detail/scatter_op
    detail/ops/compositions/exact_sum>index/detail/sort_op)
# vmap of a row operator, with one index per example, is a gather. Gather and scatter stay in detail/ops, or vmap
# becomes a wing that names index/.
list(APPEND exceptions
    detail/ops/compositions/leading>index/detail/gather_op
    detail/ops/compositions/leading>index/detail/scatter_op)
# An input of a builder may have XLA's text as its sharding. resolve_xla_at_run_time moves to detail/notation.
list(APPEND exceptions
    dynamic/builder>layouts/xla_sharding)
# Tables of a placement, which layouts/ computes. They become a public header of layouts/.
list(APPEND exceptions
    external/detail/ghost_ends>layouts/detail/placed_tables
    external/detail/view_exchange>layouts/detail/placed_tables)

file(STRINGS "${ROOT}/docs/reference/headers.md" rows REGEX "^\\| `[a-z_/]+/` \\|")
set(folders "")
foreach(row IN LISTS rows)
  string(REGEX REPLACE "^\\| `([a-z_/]+)/`.*" "\\1" folder "${row}")
  string(REGEX REPLACE ".*\\|([^|]*)\\|$" "\\1" cell "${row}")
  string(REGEX MATCHALL "`[a-z_/.]+`" cell "${cell}")
  list(TRANSFORM cell REPLACE "`([a-z_/]+[a-z_])(/|\\.hpp)`" "\\1")
  list(APPEND folders "${folder}")
  set("may_${folder}" ${cell})
  if(NOT IS_DIRECTORY "${ROOT}/include/gspmd/${folder}")
    string(APPEND complaints "docs/reference/headers.md: there is no folder include/gspmd/${folder}\n")
  endif()
endforeach()
# The targets of the wings, in cmake/wings.cmake, have the dependencies of this table.
include("${ROOT}/cmake/wings.cmake")
set(wings ${folders})
list(FILTER wings EXCLUDE REGEX "^detail/")
list(REMOVE_ITEM wings ${centre})
if(NOT wings STREQUAL gspmd_wings)
  string(APPEND complaints "cmake/wings.cmake lists the wings ${gspmd_wings}, and docs/reference/headers.md has ${wings}\n")
endif()
foreach(wing IN LISTS gspmd_wings)
  if(NOT "${gspmd_${wing}_needs}" STREQUAL "${may_${wing}}")
    string(APPEND complaints "cmake/wings.cmake: ${wing} needs '${gspmd_${wing}_needs}', and docs/reference/headers.md says '${may_${wing}}'\n")
  endif()
endforeach()
# gspmd_folder_of(FOLDER HEADER): detail/ir of detail/ir/plan, linalg of linalg/detail/matrix_ops, nothing of core.
function(gspmd_folder_of folder header)
  string(REGEX MATCH "^(detail/[a-z_]+|[a-z_]+)/" found "${header}")
  string(REGEX REPLACE "/$" "" found "${found}")
  set(${folder} "${found}" PARENT_SCOPE)
endfunction()
file(GLOB_RECURSE headers RELATIVE "${ROOT}/include/gspmd" "${ROOT}/include/gspmd/*.hpp" "${ROOT}/include/gspmd/*.ipp")
set(arrows 0)
set(used "")
set(wings_of_centre "")
foreach(file IN LISTS headers)
  string(REGEX REPLACE "\\.[hi]pp$" "" header "${file}")
  gspmd_folder_of(from "${header}")
  if(NOT from IN_LIST wings AND NOT header IN_LIST wings)
    file(STRINGS "${ROOT}/include/gspmd/${file}" lines REGEX "^#include \"gspmd/")
    list(TRANSFORM lines REPLACE "^#include \"gspmd/([a-z_]+)[./].*" "\\1")
    list(APPEND wings_of_centre ${lines})
  endif()
  if(from STREQUAL "")
    if(NOT header IN_LIST folders AND NOT header MATCHES "^(gspmd|core|mpi|random|error|version|precompiled)$")
      string(APPEND complaints "${file}: the top folder is for umbrella headers\n")
    endif()
    continue()
  endif()
  if(NOT from IN_LIST folders)
    string(APPEND complaints "${file}: docs/reference/headers.md does not list the folder ${from}\n")
  endif()
  file(STRINGS "${ROOT}/include/gspmd/${file}" lines REGEX "^#include \"gspmd/")
  foreach(line IN LISTS lines)
    math(EXPR arrows "${arrows} + 1")
    string(REGEX REPLACE ".*\"gspmd/(.*)\\.[hi]pp\".*" "\\1" target "${line}")
    gspmd_folder_of(to "${target}")
    if(to STREQUAL from OR target MATCHES "^(error|version)$" OR to IN_LIST "may_${from}" AND NOT target MATCHES "^[a-z]+/detail/" OR
       target IN_LIST "may_${from}")
      continue()
    endif()
    if(from IN_LIST centre AND to MATCHES "^detail/")
      continue()
    endif()
    if(NOT from IN_LIST centre AND NOT from MATCHES "^detail/") # a wing
      if(to IN_LIST centre OR to STREQUAL "detail/support")
        continue()
      endif()
      if(target IN_LIST until_the_doors)
        list(APPEND used "${target}")
        continue()
      endif()
    endif()
    if("${header}>${target}" IN_LIST exceptions)
      list(APPEND used "${header}>${target}")
      continue()
    endif()
    string(APPEND complaints "${file}: ${from}/ may not include this, see docs/reference/headers.md: ${line}\n")
  endforeach()
endforeach()
if(arrows LESS 200)
  message(FATAL_ERROR "no includes are found in ${ROOT}/include/gspmd")
endif()
# gspmd::gspmd has the headers of the wings that the centre includes.
set(others ${wings_of_centre})
list(REMOVE_ITEM others ${wings})
list(REMOVE_ITEM wings_of_centre ${others})
list(REMOVE_DUPLICATES wings_of_centre)
list(SORT wings_of_centre)
list(SORT gspmd_wings_of_centre)
if(NOT wings_of_centre STREQUAL gspmd_wings_of_centre)
  string(APPEND complaints "cmake/wings.cmake: the centre includes ${wings_of_centre}, not ${gspmd_wings_of_centre}\n")
endif()
foreach(exception IN LISTS until_the_doors exceptions)
  if(NOT exception IN_LIST used)
    string(APPEND complaints "tests/sources.cmake: nothing needs the exception ${exception} any more\n")
  endif()
endforeach()

# The same holds between the folders of passes. Each may include the folders before it.
set(pass_folders request rewrite complete choose solve emit lower order place refuse ghost list typed grad vmap carried)
foreach(file IN LISTS headers)
  if(NOT file MATCHES "^detail/passes/([a-z_]+)/")
    continue()
  endif()
  set(from "${CMAKE_MATCH_1}")
  list(FIND pass_folders "${from}" here)
  if(here EQUAL -1)
    string(APPEND complaints "${file}: tests/sources.cmake does not list the folder of passes ${from}\n")
  endif()
  file(STRINGS "${ROOT}/include/gspmd/${file}" lines REGEX "^#include \"gspmd/detail/passes/")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE ".*detail/passes/([a-z_]+)/.*" "\\1" to "${line}")
    list(FIND pass_folders "${to}" there)
    if(there GREATER here)
      string(APPEND complaints "${file}: passes/${from} may not include passes/${to}: ${line}\n")
    endif()
  endforeach()
endforeach()

# A test is in the folder of its subject. tests/CMakeLists.txt does not compile a file in another folder.
file(GLOB tests RELATIVE "${ROOT}/tests" "${ROOT}/tests/*")
foreach(folder IN LISTS tests)
  if(NOT IS_DIRECTORY "${ROOT}/tests/${folder}" OR IS_DIRECTORY "${ROOT}/include/gspmd/${folder}" OR folder MATCHES
     "^(runs|mpi|static|compile_fail|gspmd-errors|gspmd-plan|fuzz|consumer|golden|instructions|link|mpi_failures|sanitized|support|targets)$")
    continue()
  endif()
  string(APPEND complaints "tests/${folder} is no folder of include/gspmd, and tests/CMakeLists.txt does not compile it\n")
endforeach()

# System headers may come first: no header of gspmd uses a name that <complex.h>, <term.h>, <curses.h>,
# <sys/sysmacros.h>, <sys/param.h>, <termios.h> or X11 defines as a macro, or GCC itself with -std=gnu++20.
set(macros I lines columns tab bell newline buttons border major minor makedev None Bool Status True False Always Success Complex KeyPress
    Above Below Unsorted TRUE FALSE MIN MAX howmany powerof2 roundup isset setbit clrbit isclr ECHO B0 HUGE OVERFLOW UNDERFLOW DOMAIN unix
    linux i386)
list(JOIN macros "|" macros)
set(macros "(^|[^A-Za-z0-9_])(${macros})([^A-Za-z0-9_]|$)")
file(GLOB_RECURSE headers "${ROOT}/include/gspmd/*.hpp" "${ROOT}/include/gspmd/*.ipp")
foreach(file IN LISTS headers)
  file(STRINGS "${file}" lines REGEX "${macros}")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^ *#.*|//.*|\"([^\"\\\\]|\\\\.)*\"" "" code "${line}")
    if(code MATCHES "${macros}")
      string(APPEND complaints "${file}: ${CMAKE_MATCH_2} is a macro of system headers:${line}\n")
    endif()
  endforeach()
  # Boost uses some of these names. These two headers save and undefine the macros while they include Boost.
  file(STRINGS "${file}" lines REGEX "^#include <boost/")
  if(lines AND NOT file MATCHES "/(detail/support/mp11|program/hana)\\.hpp$")
    string(APPEND complaints "${file}: include gspmd/detail/support/mp11.hpp or gspmd/program/hana.hpp:${lines}\n")
  endif()
  # language.hpp must come first, so that a wrong -std gives one error.
  file(STRINGS "${file}" first REGEX "^#include \"gspmd/" LIMIT_COUNT 1)
  if(NOT first AND NOT file MATCHES "/(language|version)\\.hpp$")
    string(APPEND complaints "${file}: include gspmd/detail/support/language.hpp, or a header that does\n")
  endif()
endforeach()

# Examples are user code, so they use only public names.
file(GLOB_RECURSE examples "${ROOT}/examples/*.hpp" "${ROOT}/tools/*.hpp" "${ROOT}/examples/*.cpp" "${ROOT}/tools/*.cpp")
list(LENGTH examples count)
if(count LESS 20)
  message(FATAL_ERROR "no examples in ${ROOT}/examples")
endif()
foreach(file IN LISTS examples)
  file(STRINGS "${file}" lines REGEX "detail::|namespace +[a-z]+ *= *gspmd|gspmd/detail/")
  foreach(line IN LISTS lines)
    string(APPEND complaints "${file}: an example names what is not public:${line}\n")
  endforeach()
endforeach()

# A comment starts with the thing or the returned value, in the words of GLOSSARY.md.
file(GLOB_RECURSE sources "${ROOT}/include/*.hpp" "${ROOT}/include/*.ipp" "${ROOT}/tests/*.hpp" "${ROOT}/tests/*.cpp" "${ROOT}/examples/*.hpp" "${ROOT}/tools/*.hpp"
     "${ROOT}/examples/*.cpp" "${ROOT}/tools/*.cpp" "${ROOT}/bench/*.hpp" "${ROOT}/bench/*.cpp")
foreach(file IN LISTS sources)
  file(STRINGS "${file}" lines REGEX "^ *///? What |(^|[^a-z])(deed|delivery|deliveries|state_wish|wish|wishes|wished)([^a-z]|$)")
  foreach(line IN LISTS lines)
    string(APPEND complaints "${file}: say what it is or returns (\"What ...\"), in words of GLOSSARY.md:${line}\n")
  endforeach()
endforeach()

# Headers that comments and documents name, other sources that they name with a folder, and files that documents link
# to, must exist. The end of a path is enough for a header: gspmd/run/run.hpp, passes/list/pipeline.hpp, plan.hpp.
# (CHANGELOG.md names earlier files.)
file(GLOB_RECURSE files RELATIVE "${ROOT}" "${ROOT}/include/*.hpp" "${ROOT}/include/*.ipp" "${ROOT}/tests/*.*" "${ROOT}/examples/*.*" "${ROOT}/tools/*.*" "${ROOT}/bench/*.*"
     "${ROOT}/docs/*.*" "${ROOT}/cmake/*.*")
list(JOIN files "\n/" files)
set(files "/${files}\n")
file(GLOB documents "${ROOT}/*.md" "${ROOT}/docs/*.md" "${ROOT}/docs/*/*.md" "${ROOT}/examples/*/*.md" "${ROOT}/tools/*/*.md")
set(prose ${documents})
list(REMOVE_ITEM prose "${ROOT}/CHANGELOG.md")
file(GLOB_RECURSE sources "${ROOT}/include/*.hpp" "${ROOT}/include/*.ipp" "${ROOT}/tests/*.hpp" "${ROOT}/tests/*.cpp" "${ROOT}/examples/*.hpp" "${ROOT}/tools/*.hpp"
     "${ROOT}/examples/*.cpp" "${ROOT}/tools/*.cpp" "${ROOT}/bench/*.hpp" "${ROOT}/bench/*.cpp")
set(named_header "[A-Za-z0-9_/.-]+\\.[hi]pp")
set(named_source "[A-Za-z0-9_-]+/[A-Za-z0-9_/-]+\\.(cpp|cmake|md)")
foreach(kind IN ITEMS code prose)
  set(named 0)
  set(texts ${sources})
  set(begins "//.*")
  if(kind STREQUAL "prose")
    set(texts ${prose})
    set(begins "")
  endif()
  foreach(file IN LISTS texts)
    file(STRINGS "${file}" lines REGEX "${begins}[a-z0-9_]\\.(hpp|ipp|cpp|cmake|md)")
    foreach(line IN LISTS lines)
      if(kind STREQUAL "code")
        string(REGEX REPLACE "^[^/]*(/[^/][^/]*)*//" "" line "${line}")
      endif()
      string(REGEX MATCHALL "${named_header}|${named_source}" names "${line}")
      foreach(name IN LISTS names)
        if(name MATCHES "^\\.\\./") # a link, see below
          continue()
        endif()
        math(EXPR named "${named} + 1")
        string(FIND "${files}" "/${name}\n" at)
        if(at EQUAL -1)
          string(APPEND complaints "${file}: names ${name}, which is no file\n")
        endif()
      endforeach()
    endforeach()
  endforeach()
  if(named LESS 30)
    message(FATAL_ERROR "no files are named in the ${kind} of ${ROOT}")
  endif()
endforeach()

# A block that a document quotes from a source is a literal part of the source.
include("${CMAKE_CURRENT_LIST_DIR}/blocks.cmake")
set(quoted 0)
foreach(file IN LISTS documents)
  file(READ "${file}" text)
  gspmd_block_markers("${text}" from markers)
  if(NOT markers_complete)
    string(APPEND complaints "${file}: a marker `<!-- from ... -->` has no line \"```cpp\" after it\n")
  endif()
  foreach(marker IN LISTS markers)
    math(EXPR quoted "${quoted} + 1")
    string(REGEX REPLACE "<!-- from ([^ ]*) -->.*" "\\1" source "${marker}")
    gspmd_take_block(text "${marker}" block)
    file(READ "${ROOT}/${source}" whole)
    string(FIND "${whole}" "${block}" at)
    if(at EQUAL -1)
      string(APPEND complaints "${file}: this is no part of ${source}:\n${block}\n")
    endif()
  endforeach()
endforeach()
if(quoted LESS 5)
  message(FATAL_ERROR "no blocks come from sources in ${ROOT}/docs")
endif()

# A test with a longer timeout than the default states the reason.
file(GLOB_RECURSE files "${ROOT}/tests/*.cpp")
set(timeouts 0)
foreach(file IN LISTS files)
  file(STRINGS "${file}" timeout REGEX "^// timeout: " LIMIT_COUNT 1)
  file(STRINGS "${file}" reason REGEX "^// slow: [^ ]+ [^ ]+ " LIMIT_COUNT 1)
  if(NOT timeout)
    continue()
  endif()
  math(EXPR timeouts "${timeouts} + 1")
  string(REGEX MATCH "[0-9]+" timeout "${timeout}")
  if(timeout GREATER 300 AND NOT reason)
    string(APPEND complaints "${file}: may run for ${timeout} s; say why: // slow: REASON\n")
  endif()
endforeach()
if(timeouts LESS 5)
  message(FATAL_ERROR "no tests with a timeout in ${ROOT}/tests")
endif()

# Links of documents lead to existing files, and to headings of documents.
set(links 0)
# anchors_of(FILE): sets `anchors` to the anchors of the headings, as GitHub writes them
function(anchors_of file)
  set(anchors "")
  file(STRINGS "${file}" headings REGEX "^#+ ")
  foreach(heading IN LISTS headings)
    string(REGEX REPLACE "^#+ +" "" heading "${heading}")
    string(TOLOWER "${heading}" heading)
    string(REGEX REPLACE "[^a-z0-9 _-]" "" heading "${heading}")
    string(REPLACE " " "-" heading "${heading}")
    list(APPEND anchors "${heading}")
  endforeach()
  set(anchors "${anchors}" PARENT_SCOPE)
endfunction()
foreach(file IN LISTS documents)
  get_filename_component(folder "${file}" DIRECTORY)
  file(READ "${file}" text)
  string(REGEX REPLACE "[][;]" "@" text "${text}") # brackets and semicolons would join or split the entries of a list
  string(REGEX MATCHALL "@\\([A-Za-z0-9_./#-]+\\)" found "${text}")
  foreach(link IN LISTS found)
    string(REGEX MATCH "@\\(([^)#]*)#?([^)]*)\\)" link "${link}")
    set(target "${folder}/${CMAKE_MATCH_1}")
    set(anchor "${CMAKE_MATCH_2}")
    if(CMAKE_MATCH_1 STREQUAL "")
      set(target "${file}")
    endif()
    math(EXPR links "${links} + 1")
    if(NOT EXISTS "${target}")
      string(APPEND complaints "${file}: a link to ${target}, which is no file\n")
    elseif(anchor AND target MATCHES "\\.md$")
      anchors_of("${target}")
      if(NOT anchor IN_LIST anchors)
        string(APPEND complaints "${file}: a link to #${anchor}, which is no heading of ${target}\n")
      endif()
    endif()
  endforeach()
endforeach()
if(links LESS 20)
  message(FATAL_ERROR "no links are found in the documents of ${ROOT}")
endif()

if(complaints)
  message(FATAL_ERROR "${complaints}")
endif()
