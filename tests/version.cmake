# SPDX-License-Identifier: Apache-2.0
# vcpkg.json cannot read the version from project(): see that it says the same.
file(READ "${ROOT}/vcpkg/ports/gspmd/vcpkg.json" text)
string(JSON port GET "${text}" version)
if(NOT port STREQUAL VERSION)
  message(FATAL_ERROR "vcpkg/ports/gspmd/vcpkg.json says version ${port}, CMakeLists.txt says ${VERSION}")
endif()
