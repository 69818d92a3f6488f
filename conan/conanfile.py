# SPDX-License-Identifier: Apache-2.0
import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.files import copy, load
from conan.tools.layout import basic_layout
from conan.tools.scm import Version


class Gspmd(ConanFile):
    name = "gspmd"
    description = "GSPMD for C++: sharded tensor programs, partitioned at compile time"
    license = "Apache-2.0"
    topics = ("gspmd", "spmd", "sharding", "mpi", "hpc", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"cblas": [True, False], "mpi": [True, False], "hdf5": [True, False]}
    default_options = {"cblas": True, "mpi": False, "hdf5": False}
    test_package_folder = "../tests/consumer"
    minimum_compilers = {"gcc": "12", "clang": "16"}

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "..", "CMakeLists.txt"))
        self.version = re.search(r"project\(gspmd VERSION ([0-9.]+)", text).group(1)

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..")
        for pattern in ("LICENSE", "include/*", "cmake/precompiled_*.cpp", "conan/gspmd-targets.cmake"):
            copy(self, pattern, root, self.export_sources_folder)

    def requirements(self):
        self.requires("boost/[>=1.74]", options={"header_only": True})
        if self.options.cblas:
            self.requires("openblas/[>=0.3.20]")
        else:
            self.requires("eigen/[>=3.4 <4]")
        if self.options.mpi:
            self.requires("openmpi/[>=4.1 <5]")
        if self.options.hdf5:
            self.requires("hdf5/[>=1.10 <2]")

    def validate(self):  # the standard is that of gspmd-targets.cmake, whatever the profile says
        compiler = str(self.settings.compiler)
        minimum = self.minimum_compilers.get(compiler)
        if minimum and Version(self.settings.compiler.version) < minimum:
            raise ConanInvalidConfiguration(f"gspmd needs {compiler} {minimum} or later")

    def layout(self):
        basic_layout(self)

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        copy(self, "*.hpp", os.path.join(self.source_folder, "include"), os.path.join(self.package_folder, "include"))
        modules = os.path.join(self.package_folder, "lib", "cmake", "gspmd")
        copy(self, "precompiled_*.cpp", os.path.join(self.source_folder, "cmake"), modules)
        copy(self, "gspmd-targets.cmake", os.path.join(self.source_folder, "conan"), modules)

    def package_id(self):
        self.info.clear()

    def package_info(self):
        self.cpp_info.set_property("cmake_target_name", "gspmd::all")  # or gspmd::gspmd would be this, with MPI in it
        self.cpp_info.set_property("cmake_build_modules", [os.path.join("lib", "cmake", "gspmd", "gspmd-targets.cmake")])
        core = self.cpp_info.components["gspmd"]
        core.set_property("cmake_target_name", "gspmd::gspmd")
        core.bindirs = []
        core.libdirs = []
        core.system_libs = ["pthread"]
        core.requires = ["boost::headers"]
        if self.options.cblas:
            core.defines = ["GSPMD_HAS_CBLAS=1"]
            core.requires.append("openblas::openblas")
        else:
            core.requires.append("eigen::eigen")
        if self.options.mpi:
            mpi = self.cpp_info.components["mpi"]
            mpi.set_property("cmake_target_name", "gspmd::mpi")
            mpi.bindirs = []
            mpi.libdirs = []
            mpi.requires = ["gspmd", "openmpi::openmpi"]
        if self.options.hdf5:
            hdf5 = self.cpp_info.components["hdf5"]
            hdf5.set_property("cmake_target_name", "gspmd::hdf5")
            hdf5.bindirs = []
            hdf5.libdirs = []
            hdf5.requires = ["gspmd", "hdf5::hdf5_c"]
