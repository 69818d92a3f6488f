# vcpkg install gspmd --overlay-ports=vcpkg/ports   installs the checkout that this port stands in.
# vcpkg takes a package for unchanged as long as this directory is. After a change of the headers:
#   vcpkg remove gspmd --overlay-ports=vcpkg/ports && vcpkg install gspmd --overlay-ports=vcpkg/ports --editable
# A port in a registry differs in one call: vcpkg_from_github(OUT_SOURCE_PATH SOURCE_PATH ...) for these two lines.
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../.." ABSOLUTE)

set(VCPKG_BUILD_TYPE release) # header-only
vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS
  FEATURES cblas GSPMD_USE_CBLAS
  INVERTED_FEATURES mpi CMAKE_DISABLE_FIND_PACKAGE_MPI hdf5 CMAKE_DISABLE_FIND_PACKAGE_HDF5C)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${FEATURE_OPTIONS} -DGSPMD_BUILD_TESTS=OFF -DGSPMD_BUILD_EXAMPLES=OFF
          "-DGSPMD_INSTALL_CMAKE_DIR=share/${PORT}") # it is not moved afterwards: targets name the sources beside it
vcpkg_cmake_install()
vcpkg_cmake_config_fixup()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug" "${CURRENT_PACKAGES_DIR}/lib" "${CURRENT_PACKAGES_DIR}/share/doc"
  "${CURRENT_PACKAGES_DIR}/share/pkgconfig") # it names libraries by their place
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
