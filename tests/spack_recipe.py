# SPDX-License-Identifier: Apache-2.0
# spack_recipe.py ROOT   loads the Spack recipe with a stand-in for Spack's modules, since CI cannot get Spack: that it is Python, calls what
# a recipe may call, and that its version, its variants and what it depends on are those of the project's CMakeLists.txt and of the Conan recipe.
import itertools
import pathlib
import re
import sys
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

for problem in problems:
    print(f"spack/packages/gspmd/package.py: {problem}")
sys.exit(1 if problems else 0)
