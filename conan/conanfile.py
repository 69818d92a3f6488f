# SPDX-License-Identifier: Apache-2.0
# conan create conan         packages the checkout that contains this recipe  # checkout
# conan editable add conan   lets consumers use the headers of the checkout in place  # checkout
# cmake/registry_recipes writes the form for ConanCenter: it drops `# checkout` and uncomments `# registry:`.  # checkout
import os
import re  # checkout

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.files import copy
from conan.tools.files import load  # checkout
# registry: from conan.tools.files import get
from conan.tools.layout import basic_layout
from conan.tools.scm import Version


class Gspmd(ConanFile):
    name = "gspmd"
    description = "GSPMD for C++: sharded tensor programs, partitioned at compile time"
    license = "Apache-2.0"
    # registry: homepage = "@HOMEPAGE@"
    # registry: url = "https://github.com/conan-io/conan-center-index"
    topics = ("spmd", "sharding", "tensor", "mpi", "hpc", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"cblas": [True, False], "mpi": [True, False], "hdf5": [True, False]}
    default_options = {"cblas": True, "mpi": False, "hdf5": False}
    minimum_compilers = {"gcc": "12", "clang": "16"}
    # The wings, with the wings that each includes (cmake/wings.cmake).
    wings = {"windows": ["index"], "index": [], "layouts": [], "linalg": ["index"], "fft": [], "sparse": ["index"], "nn": ["index"], "io": [],
             "external": ["layouts"], "staggered": [], "search": [], "native": [], "trace": []}

    def set_version(self):  # checkout
        text = load(self, os.path.join(self.recipe_folder, "..", "CMakeLists.txt"))  # checkout
        self.version = re.search(r"project\(gspmd VERSION ([0-9.]+)", text).group(1)  # checkout

    def export_sources(self):  # checkout
        root = os.path.join(self.recipe_folder, "..")  # checkout
        for pattern in ("LICENSE", "include/*", "cmake/precompiled_*.cpp", "cmake/conan_targets.cmake", "cmake/wings.cmake"):  # checkout
            copy(self, pattern, root, self.export_sources_folder)  # checkout

    # registry: def source(self):
    # registry:     get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def requirements(self):
        self.requires("boost/[>=1.74]")  # checkout
        # registry: self.requires("boost/@boost@")
        if self.options.cblas:
            self.requires("openblas/[>=0.3.20]")  # checkout
            # registry: self.requires("openblas/@openblas@")
        else:
            self.requires("eigen/[>=3.4 <6]")  # checkout
            # registry: self.requires("eigen/@eigen@")
        if self.options.mpi:
            self.requires("openmpi/[>=4.1 <5]")  # checkout
            # registry: self.requires("openmpi/@openmpi@")
        if self.options.hdf5:
            self.requires("hdf5/[>=1.10 <2]")  # checkout
            # registry: self.requires("hdf5/@hdf5@")

    def validate(self):  # conan_targets.cmake sets the standard, whatever the profile says
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("gspmd runs on Linux only")
        compiler = str(self.settings.compiler)
        minimum = self.minimum_compilers.get(compiler)
        if minimum and Version(self.settings.compiler.version) < minimum:
            raise ConanInvalidConfiguration(f"gspmd needs {compiler} {minimum} or later")

    def layout(self):
        self.folders.root = ".."  # checkout
        basic_layout(self)
        # `conan editable add` takes headers and build module from the checkout.  # checkout
        self.cpp.source.components["gspmd"].includedirs = ["include"]  # checkout
        module = os.path.join(self.recipe_folder, "..", "cmake", "conan_targets.cmake")  # checkout
        self.cpp.source.set_property("cmake_build_modules", [os.path.abspath(module)])  # checkout

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        copy(self, "*.hpp", os.path.join(self.source_folder, "include"), os.path.join(self.package_folder, "include"))
        modules = os.path.join(self.package_folder, "lib", "cmake", "gspmd")
        copy(self, "precompiled_*.cpp", os.path.join(self.source_folder, "cmake"), modules)
        for module in ("conan_targets.cmake", "wings.cmake"):
            copy(self, module, os.path.join(self.source_folder, "cmake"), modules)

    def package_id(self):
        self.info.clear()

    def package_info(self):
        # CMakeDeps advises to link the target of the whole package, gspmd::all, which contains all targets. Programs
        # link gspmd::gspmd and the targets of the wings that they include.
        core = self.cpp_info.components["gspmd"]
        self.cpp_info.set_property("cmake_target_name", "gspmd::all")
        core.set_property("cmake_target_name", "gspmd::gspmd")
        module = os.path.join("lib", "cmake", "gspmd", "conan_targets.cmake")
        if os.path.isfile(os.path.join(self.package_folder or "", module)):  # an editable package has its module in layout()
            self.cpp_info.set_property("cmake_build_modules", [module])
        core.bindirs = []
        core.libdirs = []
        core.system_libs = ["pthread"]
        core.requires = ["boost::headers"]
        if self.options.cblas:
            core.defines = ["GSPMD_HAS_CBLAS=1"]
            core.requires.append("openblas::openblas")
        else:
            core.requires.append("eigen::eigen")
        for wing, needs in self.wings.items():
            self._component(wing, ["gspmd", *needs])
        self.cpp_info.components["native"].system_libs = ["dl"]
        if self.options.mpi:
            self._component("mpi", ["gspmd", "openmpi::openmpi"])
        if self.options.hdf5:
            self._component("hdf5", ["io", "hdf5::hdf5_c"])

    def _component(self, name, requires):
        component = self.cpp_info.components[name]
        component.set_property("cmake_target_name", f"gspmd::{name}")
        component.includedirs = []  # those of gspmd::gspmd
        component.bindirs = []
        component.libdirs = []
        component.requires = requires
