# vcpkg install gspmd --overlay-ports=vcpkg/ports   installs the checkout that contains this port.  # checkout
# vcpkg regards a package as unchanged while this directory is unchanged. After a change of the headers:  # checkout
#   vcpkg remove gspmd --overlay-ports=vcpkg/ports && vcpkg install gspmd --overlay-ports=vcpkg/ports --editable  # checkout
# cmake/registry_recipes writes the form for vcpkg's registry: it drops `# checkout` and uncomments `# registry:`.  # checkout
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../.." ABSOLUTE)  # checkout
# registry: vcpkg_download_distfile(ARCHIVE URLS "@ARCHIVE_URL@" FILENAME "gspmd-@VERSION@.tar.gz" SHA512 @SHA512@)
# registry: vcpkg_extract_source_archive(SOURCE_PATH ARCHIVE "${ARCHIVE}")

set(VCPKG_BUILD_TYPE release) # header-only
# A requested feature that is not found is an error. Otherwise gspmd would use Eigen instead of a CBLAS, or lack the
# component.
vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS
  FEATURES cblas GSPMD_USE_CBLAS cblas CMAKE_REQUIRE_FIND_PACKAGE_CBLAS
           mpi CMAKE_REQUIRE_FIND_PACKAGE_MPI hdf5 CMAKE_REQUIRE_FIND_PACKAGE_HDF5C
  INVERTED_FEATURES mpi CMAKE_DISABLE_FIND_PACKAGE_MPI hdf5 CMAKE_DISABLE_FIND_PACKAGE_HDF5C)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${FEATURE_OPTIONS} -DGSPMD_BUILD_TESTS=OFF -DGSPMD_BUILD_EXAMPLES=OFF -DGSPMD_INSTALL_TOOLS=OFF
          "-DGSPMD_INSTALL_CMAKE_DIR=share/${PORT}" # targets name the sources next to them, so the folder is not moved afterwards
  MAYBE_UNUSED_VARIABLES CMAKE_REQUIRE_FIND_PACKAGE_CBLAS)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug" "${CURRENT_PACKAGES_DIR}/lib" "${CURRENT_PACKAGES_DIR}/share/doc"
  "${CURRENT_PACKAGES_DIR}/share/pkgconfig") # gspmd.pc contains absolute paths of libraries
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
