# SPDX-License-Identifier: Apache-2.0
# package_recipes.py ROOT CMAKE [options]   loads the recipes for Spack and Conan with stand-ins for the clients' modules, and reads vcpkg's
# port, since CI cannot get the clients: that they are Python and JSON, call what a recipe may call, and that versions, options, targets and
# what they depend on are those of the project's CMakeLists.txt. Configures tests/consumer, by CMake with the options, as Conan's packages are found.
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types

root = pathlib.Path(sys.argv[1])
cmake = (root / "CMakeLists.txt").read_text()
called = []
problems = []


def directive(name, known):
    def record(*arguments, **options):
        for option in options:
            if option not in known:
                problems.append(f"{name}: Spack knows no argument {option}")
        called.append((name, arguments, options))

    return record


class CMakePackage:
    chosen = {}  # by variant

    class Spec:
        def __init__(self, chosen):
            self.chosen = chosen

        def satisfies(self, condition):
            return self.chosen[condition[1:]] == (condition[0] == "+")

    @property
    def spec(self):
        return self.Spec(self.chosen)

    def define(self, name, value):
        return f"-D{name}={'ON' if value else 'OFF'}"

    def define_from_variant(self, name, variant):
        return self.define(name, self.chosen[variant])


package = types.ModuleType("spack.package")
package.CMakePackage = CMakePackage
for name, known in {
    "version": {"sha256", "branch", "tag", "commit", "url", "git", "preferred"},
    "variant": {"default", "description", "when", "values", "multi"},
    "depends_on": {"type", "when", "patches"},
    "conflicts": {"when", "msg"},
    "license": {"checked_by", "when"},
}.items():
    setattr(package, name, directive(name, known))
package.__all__ = [name for name in vars(package) if not name.startswith("_")]
sys.modules["spack"] = types.ModuleType("spack")
sys.modules["spack.package"] = package

scope = {}
recipe = root / "spack" / "packages" / "gspmd" / "package.py"
exec(compile(recipe.read_text(), str(recipe), "exec"), scope)


def check(holds, message):
    if not holds:
        problems.append(message)


def arguments_of(directive_name):
    return [(a, o) for n, a, o in called if n == directive_name]


version = re.search(r"project\(gspmd VERSION ([0-9.]+)", cmake).group(1)
check([a for a, _ in arguments_of("version")] == [(version,)], f"the version of the project is {version}")
check(f"gspmd@{version} " in recipe.read_text(), f"the first lines of the recipe name another version than {version}")
check(re.search(r"namespace: gspmd$", (root / "spack" / "repo.yaml").read_text(), re.M), "repo.yaml names no namespace")

# Every -D is an option of the project or a variable of CMake's, with every choice of variants, and the defaults are the project's.
options = {n: d for n, d in re.findall(r"option\((GSPMD_\w+) \"[^\"]*\" (ON|OFF)\)", cmake)}
variants = {a[0]: o["default"] for a, o in arguments_of("variant")}
check(all(o.get("description") for _, o in arguments_of("variant")), "a variant has no description")
passed = set()
for choice in itertools.product([True, False], repeat=len(variants)):
    CMakePackage.chosen = dict(zip(variants, choice))
    for define in scope["Gspmd"]().cmake_args():
        name, value = re.fullmatch(r"-D(\w+)=(ON|OFF)", define).groups()
        passed.add(name)
        check(name in options or name.startswith("CMAKE_"), f"CMakeLists.txt has no option {name}")
        if CMakePackage.chosen == variants and name.startswith("GSPMD_USE_"):
            check(options.get(name) == value, f"{name} is {value} by default, and {options.get(name)} in CMakeLists.txt")
for name in options:
    check(not name.startswith("GSPMD_USE_") or name in passed, f"the recipe leaves {name} out")

# What it depends on is what CMakeLists.txt looks for, and as old.
depends = {re.match(r"\w+", a[0]).group(0): a[0] for a, _ in arguments_of("depends_on")}
for package_name, found in {"boost": "Boost", "eigen": "Eigen3", "openblas": "CBLAS", "mpi": "MPI", "onednn": "OneDNN", "hdf5": "HDF5C"}.items():
    check(package_name in depends, f"the recipe does not depend on {package_name}")
    wanted = re.search(rf"find_package\({found}( [0-9.]+)?", cmake)
    check(wanted is not None, f"CMakeLists.txt does not look for {found}")
    if wanted and wanted.group(1):
        check(f"@{wanted.group(1).strip()}:" in depends.get(package_name, ""), f"{found}{wanted.group(1)} in CMakeLists.txt")
least = re.search(r"cmake_minimum_required\(VERSION ([0-9.]+?)\.\.\.", cmake).group(1)
check(f"cmake@{least}:" == depends.get("cmake"), f"CMakeLists.txt needs CMake {least}")
for _, options_given in arguments_of("depends_on"):
    condition = options_given.get("when", "")
    check(condition == "" or condition[1:] in variants, f"there is no variant for `{condition}`")

# The oldest compilers are those of the Conan recipe.
oldest = dict(re.findall(r"\"(gcc|clang)\": \"(\d+)\"", (root / "conan" / "conanfile.py").read_text()))
check(len(oldest) == 2, "the Conan recipe names no compilers")
for compiler, major in oldest.items():
    check((f"%{compiler}@:{int(major) - 1}",) in [a for a, _ in arguments_of("conflicts")], f"{compiler} {major} is the oldest")

spack_problems, problems = problems, []

# ---- Conan 2 ---------------------------------------------------------------------------------------------------------


class Attributes(types.SimpleNamespace):
    """What CppInfo has of each component, and properties that CMakeDeps reads."""

    def __init__(self):
        super().__init__(properties={}, requires=[], defines=[], system_libs=[], bindirs=["bin"], libdirs=["lib"])

    def set_property(self, name, value):
        self.properties[name] = value


class Components(dict):
    def __missing__(self, name):
        return self.setdefault(name, Attributes())


class ConanFile:
    def __init__(self, chosen):
        self.options = types.SimpleNamespace(**chosen)
        self.needs = []
        self.cpp_info = Attributes()
        self.cpp_info.components = Components()
        self.recipe_folder = str(root / "conan")
        self.exported = []

    def requires(self, reference, options=None):
        self.needs.append(reference.split("/")[0])


def copied(recipe, pattern, source, target):
    files = [f for f in pathlib.Path(source).glob(pattern if "/" in pattern else f"**/{pattern}") if f.is_file() or pattern.endswith("*")]
    check(files, f"conan: nothing is called {pattern} in {source}")
    for f in files:
        to = pathlib.Path(target) / f.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if f.is_dir() else shutil.copy)(f, to, **({"dirs_exist_ok": True} if f.is_dir() else {}))


for name, members in {
    "conan": {"ConanFile": ConanFile},
    "conan.errors": {"ConanInvalidConfiguration": Exception},
    "conan.tools": {},
    "conan.tools.files": {"copy": copied, "load": lambda recipe, path: pathlib.Path(path).read_text()},
    "conan.tools.layout": {"basic_layout": None},
    "conan.tools.scm": {"Version": str},
}.items():
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)
conan = {}
exec(compile((root / "conan" / "conanfile.py").read_text(), "conan/conanfile.py", "exec"), conan)
Recipe = conan["Gspmd"]
check(Recipe.options.keys() == Recipe.default_options.keys(), "conan: an option has no default")
aliases = set(re.findall(r"add_library\(gspmd::(mpi|hdf5|gspmd) ALIAS", cmake))
for choice in itertools.product([True, False], repeat=len(Recipe.options)):
    chosen = dict(zip(Recipe.options, choice))
    recipe = Recipe(chosen)
    recipe.set_version()
    check(recipe.version == version, f"conan: the version is {recipe.version}")
    recipe.requirements()
    recipe.package_info()
    components = recipe.cpp_info.components
    targets = {c.properties["cmake_target_name"] for c in components.values()}
    wanted = {f"gspmd::{a}" for a in aliases if a == "gspmd" or chosen[a]}
    check(targets == wanted, f"conan: with {chosen} the targets are {targets}, and CMakeLists.txt has {wanted}")
    for component in components.values():
        for needed in component.requires:
            package_of = needed.split("::")[0]
            check(package_of in (recipe.needs if "::" in needed else components), f"conan: {needed} is not required")
        check(component.libdirs == [] and component.bindirs == [], "conan: headers have no folders of libraries")

with tempfile.TemporaryDirectory() as made:
    place = pathlib.Path(made)
    recipe = Recipe({name: False for name in Recipe.options})
    recipe.export_sources_folder = recipe.source_folder = str(place / "sources")
    recipe.package_folder = str(place / "package")
    recipe.export_sources()
    recipe.package()
    recipe.package_info()
    (module,) = recipe.cpp_info.properties["cmake_build_modules"]
    check((place / "package" / "licenses" / "LICENSE").is_file(), "conan: the package has no licence")
    (place / "gspmd-config.cmake").write_text(  # as CMakeDeps writes it
        f"""add_library(gspmd::gspmd INTERFACE IMPORTED)
set_property(TARGET gspmd::gspmd PROPERTY INTERFACE_INCLUDE_DIRECTORIES "{place}/package/include")
include("{place}/package/{module}")
"""
    )
    (place / "gspmd-config-version.cmake").write_text("set(PACKAGE_VERSION_COMPATIBLE TRUE)")
    built = place / "built"
    run = subprocess.run(
        [*sys.argv[2:], "-S", root / "tests" / "consumer", "-B", built, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
        + [f"-Dgspmd_DIR={place}", "-DCMAKE_CXX_STANDARD=17", "-DCONSUMER_PRECOMPILED=gspmd::precompiled"],  # of a default profile
        capture_output=True,
        text=True,
    )
    check(run.returncode == 0, f"conan: tests/consumer is not configured with the package:\n{run.stdout}{run.stderr}")
    if run.returncode == 0:
        commands = json.loads((built / "compile_commands.json").read_text())
        names = {os.path.basename(c["file"]) for c in commands}
        check("precompiled_kernels.cpp" in names, "conan: gspmd::precompiled has no sources")
        for command in commands:
            check("++20" in command["command"] or "++2a" in command["command"], f"conan: {command['file']} is not compiled as C++20")

# ---- vcpkg -----------------------------------------------------------------------------------------------------------
port = json.loads((root / "vcpkg" / "ports" / "gspmd" / "vcpkg.json").read_text())
order = "name version port-version maintainers summary description homepage documentation license supports dependencies default-features features"
check(list(port) == [k for k in order.split() if k in port], "vcpkg: `vcpkg format-manifest` has the fields in another order")
check(list(port["features"]) == sorted(port["features"]), "vcpkg: `vcpkg format-manifest` sorts features")
text = json.dumps(port, indent=2) + "\n"
check((root / "vcpkg" / "ports" / "gspmd" / "vcpkg.json").read_text() == text, "vcpkg: `vcpkg format-manifest` indents otherwise")
check(port["features"].keys() == Recipe.options.keys(), "vcpkg: the features are not Conan's options")
check(port["default-features"] == [o for o, on in Recipe.default_options.items() if on], "vcpkg: other defaults than Conan's")
for dependencies in [port["dependencies"], *(f["dependencies"] for f in port["features"].values())]:
    of = [d if isinstance(d, str) else d["name"] for d in dependencies]
    check(of == sorted(of), f"vcpkg: `vcpkg format-manifest` sorts {of}")
usage = (root / "vcpkg" / "ports" / "gspmd" / "usage").read_text()
portfile = (root / "vcpkg" / "ports" / "gspmd" / "portfile.cmake").read_text()
for feature in port["features"]:
    check(re.search(rf"(INVERTED_)?FEATURES[^)]*\b{feature} [A-Z]", portfile), f"vcpkg: the port does nothing with the feature {feature}")
    check(feature not in aliases or f"gspmd::{feature})" in usage, f"vcpkg: usage says nothing of {feature}")
check("if(GSPMD_INSTALL)" in cmake and "GSPMD_INSTALL_CMAKE_DIR" in cmake, "vcpkg: CMakeLists.txt has no GSPMD_INSTALL_CMAKE_DIR")
check(set(variants) - {"onednn"} == set(Recipe.options), "spack: the variants are not Conan's options")

for problem in spack_problems:
    print(f"spack/packages/gspmd/package.py: {problem}")
for problem in problems:
    print(problem)
sys.exit(1 if problems or spack_problems else 0)
