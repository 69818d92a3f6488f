# SPDX-License-Identifier: Apache-2.0
# spack repo add spack && spack dev-build --source-path . gspmd@0.1.2   installs the checkout that this recipe stands in.
# A recipe in a registry differs in one line: `url` or `git`, with the checksum of the version.
try:  # Spack 1.0
    from spack_repo.builtin.build_systems.cmake import CMakePackage
except ImportError:  # Spack 0.23 has it in spack.package
    pass

from spack.package import *


class Gspmd(CMakePackage):
    """GSPMD for C++: sharded tensor programs, partitioned at compile time. Headers only."""

    license("Apache-2.0")

    version("0.1.2")

    variant("cblas", default=True, description="Multiply matrices with OpenBLAS instead of Eigen")
    variant("onednn", default=False, description="Compute convolutions of floats with oneDNN 2")
    variant("mpi", default=False, description="The component mpi")
    variant("hdf5", default=False, description="The component hdf5, serial or parallel")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("boost@1.74:", type=("build", "link"))  # its headers
    depends_on("openblas@0.3.20:", when="+cblas", type=("build", "link"))
    depends_on("eigen@3.4:3", when="~cblas", type=("build", "link"))
    depends_on("onednn@2", when="+onednn", type=("build", "link"))
    depends_on("mpi", when="+mpi", type=("build", "link"))
    depends_on("hdf5@1.10:", when="+hdf5", type=("build", "link"))

    conflicts("%gcc@:11", msg="gspmd needs GCC 12 or later")
    conflicts("%clang@:15", msg="gspmd needs Clang 16 or later")
    conflicts("platform=windows", msg="gspmd is for Linux")

    def cmake_args(self):
        return [
            self.define_from_variant("GSPMD_USE_CBLAS", "cblas"),
            self.define_from_variant("GSPMD_USE_ONEDNN", "onednn"),
            self.define("CMAKE_DISABLE_FIND_PACKAGE_MPI", self.spec.satisfies("~mpi")),
            self.define("CMAKE_DISABLE_FIND_PACKAGE_HDF5C", self.spec.satisfies("~hdf5")),
            self.define("GSPMD_BUILD_TESTS", False),
            self.define("GSPMD_BUILD_EXAMPLES", False),
        ]
