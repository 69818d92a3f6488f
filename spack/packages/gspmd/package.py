# SPDX-License-Identifier: Apache-2.0
# spack repo add spack && spack dev-build --source-path . gspmd@0.2.0   installs the checkout that contains this recipe.  # checkout
# cmake/registry_recipes writes the form for Spack's registry: it drops `# checkout` and uncomments `# registry:`.  # checkout
try:  # Spack 1.0
    from spack_repo.builtin.build_systems.cmake import CMakePackage
except ImportError:  # Spack 0.23 has it in spack.package
    pass

from spack.package import *


class Gspmd(CMakePackage):
    """GSPMD for C++: sharded tensor programs, partitioned at compile time. A header-only library."""

    # registry: homepage = "@HOMEPAGE@"
    # registry: url = "@ARCHIVE_URL@"
    license("Apache-2.0")

    version("0.2.0")  # checkout
    # registry: version("@VERSION@", sha256="@SHA256@")

    variant("cblas", default=True, description="Multiply matrices with OpenBLAS instead of Eigen")
    variant("onednn", default=False, description="Compute convolutions of floats with oneDNN 2")
    variant("mpi", default=False, description="The component mpi")
    variant("hdf5", default=False, description="The component hdf5, serial or parallel")
    variant("tools", default=False, description="The command-line tool gspmd-plan")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("boost@1.74:", type=("build", "link"))  # its headers
    depends_on("openblas@0.3.20:", when="+cblas", type=("build", "link"))
    depends_on("eigen@3.4:5", when="~cblas", type=("build", "link"))
    depends_on("onednn@2", when="+onednn", type=("build", "link"))
    depends_on("mpi", when="+mpi", type=("build", "link"))
    depends_on("hdf5@1.10:", when="+hdf5", type=("build", "link"))
    depends_on("nlohmann-json", when="+tools", type="build")

    requires("platform=linux", msg="gspmd runs on Linux only")
    conflicts("%gcc@:11", msg="gspmd needs GCC 12 or later")
    conflicts("%clang@:15", msg="gspmd needs Clang 16 or later")

    def cmake_args(self):
        args = [
            self.define_from_variant("GSPMD_USE_CBLAS", "cblas"),
            self.define_from_variant("GSPMD_USE_ONEDNN", "onednn"),
            self.define_from_variant("GSPMD_INSTALL_TOOLS", "tools"),
            self.define("GSPMD_BUILD_TESTS", False),
            self.define("GSPMD_BUILD_EXAMPLES", False),
        ]
        # A requested variant that is not found is an error. Otherwise gspmd would use Eigen instead of a CBLAS, or lack
        # the component.
        packages = {"CBLAS": "cblas", "OneDNN": "onednn", "MPI": "mpi", "HDF5C": "hdf5", "nlohmann_json": "tools"}
        for package, variant in packages.items():
            wanted = "REQUIRE" if self.spec.satisfies(f"+{variant}") else "DISABLE"
            args.append(self.define(f"CMAKE_{wanted}_FIND_PACKAGE_{package}", True))
        return args
