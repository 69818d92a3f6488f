# SPDX-License-Identifier: Apache-2.0
# oneDNN 2: its headers and a library. Defines OneDNN::OneDNN. (Debian's own dnnl-config.cmake requires OpenCL's headers too, which
# gspmd does not need.)
# To choose one: -DONEDNN_INCLUDE_DIR=... -DONEDNN_LIBRARY=...
include(FindPackageHandleStandardArgs)

find_path(ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(ONEDNN_LIBRARY NAMES dnnl)
mark_as_advanced(ONEDNN_INCLUDE_DIR ONEDNN_LIBRARY)

if(ONEDNN_INCLUDE_DIR)
  set(parts "")
  file(STRINGS "${ONEDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" lines REGEX "^#define DNNL_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "[0-9]+$" part "${line}")
    list(APPEND parts "${part}")
  endforeach()
  list(JOIN parts "." OneDNN_VERSION)
  if(NOT OneDNN_VERSION MATCHES "^2\\.") # 3 has other functions
    set(ONEDNN_LIBRARY "")
  endif()
endif()

find_package_handle_standard_args(OneDNN REQUIRED_VARS ONEDNN_LIBRARY ONEDNN_INCLUDE_DIR VERSION_VAR OneDNN_VERSION)
if(OneDNN_FOUND AND NOT TARGET OneDNN::OneDNN)
  add_library(OneDNN::OneDNN UNKNOWN IMPORTED)
  set_target_properties(OneDNN::OneDNN PROPERTIES
    IMPORTED_LOCATION "${ONEDNN_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${ONEDNN_INCLUDE_DIR}")
endif()
