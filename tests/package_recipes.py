# SPDX-License-Identifier: Apache-2.0
# package_recipes.py ROOT CMAKE [options]   checks the packages' recipes without the clients, which CI cannot get.
# Loads the recipes for Spack and Conan with stand-ins for the clients' modules, and reads vcpkg's port. Checks that
# they are valid Python and JSON, call only functions that a recipe may call, and have the versions, options, targets
# and dependencies of the project's CMakeLists.txt. Configures tests/consumer by CMake, with the options, in the way in
# which Conan's packages are found. Does the same with the recipes that cmake/registry_recipes writes from an archive.
# Configures the project with version files of several versions of Eigen.
import hashlib
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
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
    "requires": {"when", "msg"},
    "license": {"checked_by", "when"},
}.items():
    setattr(package, name, directive(name, known))
package.__all__ = [name for name in vars(package) if not name.startswith("_")]
sys.modules["spack"] = types.ModuleType("spack")
sys.modules["spack.package"] = package

scope = {}
recipe = root / "spack" / "packages" / "gspmd" / "package.py"
exec(compile(recipe.read_text(), str(recipe), "exec"), scope)
linux_only = "gspmd runs on Linux only"


def check(holds, message):
    if not holds:
        problems.append(message)


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


def arguments_of(directive_name):
    return [(a, o) for n, a, o in called if n == directive_name]


version = re.search(r"project\(gspmd VERSION ([0-9.]+)", cmake).group(1)
check([a for a, _ in arguments_of("version")] == [(version,)], f"the version of the project is {version}")
check(f"gspmd@{version} " in recipe.read_text(), f"the first lines of the recipe name another version than {version}")
check(re.search(r"namespace: gspmd$", (root / "spack" / "repo.yaml").read_text(), re.M), "repo.yaml names no namespace")

# Every -D is an option of the project or a CMake variable, for every choice of variants, and the defaults equal the
# project's.
options = {n: d for n, d in re.findall(r"option\((GSPMD_\w+) \"[^\"]*\" (ON|OFF)\)", cmake)}
variants = {a[0]: o["default"] for a, o in arguments_of("variant")}
check(all(o.get("description") for _, o in arguments_of("variant")), "a variant has no description")
passed = set()
tool = (root / "tools" / "gspmd-plan" / "main.cpp").read_text()
find_packages = {*re.findall(r"find_package\((\w+)", cmake), *re.findall(r"^// package: (\w+)", tool, re.M)}
for choice in itertools.product([True, False], repeat=len(variants)):
    CMakePackage.chosen = dict(zip(variants, choice))
    for define in scope["Gspmd"]().cmake_args():
        name, value = re.fullmatch(r"-D(\w+)=(ON|OFF)", define).groups()
        passed.add(name)
        wanted = re.fullmatch(r"CMAKE_(REQUIRE|DISABLE)_FIND_PACKAGE_(\w+)", name)
        check(wanted[2] in find_packages if wanted else name in options, f"CMakeLists.txt does nothing with {name}")
        if wanted:  # a requested package must exist; otherwise CMake reports an error
            variant = {"CBLAS": "cblas", "OneDNN": "onednn", "MPI": "mpi", "HDF5C": "hdf5", "nlohmann_json": "tools"}[wanted[2]]
            check((wanted[1] == "REQUIRE") == CMakePackage.chosen[variant], f"{name} with {variant}={CMakePackage.chosen[variant]}")
        if CMakePackage.chosen == variants and name.startswith("GSPMD_USE_"):
            check(options.get(name) == value, f"{name} is {value} by default, and {options.get(name)} in CMakeLists.txt")
for name in options:
    check(not name.startswith("GSPMD_USE_") or name in passed, f"the recipe leaves {name} out")

# The dependencies are the packages that CMakeLists.txt searches, with the same oldest versions.
depends = {re.match(r"\w+", a[0]).group(0): a[0] for a, _ in arguments_of("depends_on")}
for package_name, found in {"boost": "Boost", "openblas": "CBLAS", "mpi": "MPI", "onednn": "OneDNN", "hdf5": "HDF5C"}.items():
    check(package_name in depends, f"the recipe does not depend on {package_name}")
    wanted = re.search(rf"find_package\({found}(?: ([0-9]+(?:\.[0-9]+)*)(?:\.\.\.([0-9]+))?)?", cmake)
    check(wanted is not None, f"CMakeLists.txt does not look for {found}")
    if wanted and wanted.group(1):
        accepted = f"@{wanted.group(1)}:{wanted.group(2) or ''}"
        check(accepted in depends.get(package_name, ""), f"CMakeLists.txt accepts {found} {accepted}")
least_eigen = re.search(r"Eigen3_VERSION VERSION_LESS ([0-9.]+)\)", cmake).group(1)
check(f"@{least_eigen}:" in depends.get("eigen", ""), f"CMakeLists.txt accepts Eigen from {least_eigen} on")
least = re.search(r"cmake_minimum_required\(VERSION ([0-9.]+?)\.\.\.", cmake).group(1)
check(f"cmake@{least}:" == depends.get("cmake"), f"CMakeLists.txt needs CMake {least}")
for _, options_given in arguments_of("depends_on"):
    condition = options_given.get("when", "")
    check(condition == "" or condition[1:] in variants, f"there is no variant for `{condition}`")

# The oldest compilers are those of the Conan recipe.
oldest = dict(re.findall(r"\"(gcc|clang)\": \"(\d+)\"", (root / "conan" / "conanfile.py").read_text()))
check(len(oldest) == 2, "the Conan recipe names no compilers")
check([(a, o.get("msg")) for a, o in arguments_of("requires")] == [(("platform=linux",), linux_only)], "other systems are not refused")
for compiler, major in oldest.items():
    check((f"%{compiler}@:{int(major) - 1}",) in [a for a, _ in arguments_of("conflicts")], f"{compiler} {major} is the oldest")

spack_problems, problems = problems, []

# ---- Conan 2 ---------------------------------------------------------------------------------------------------------


class Attributes(types.SimpleNamespace):
    """What CppInfo has of each component, and properties that CMakeDeps reads."""

    def __init__(self):
        super().__init__(properties={}, requires=[], defines=[], system_libs=[], includedirs=["include"], bindirs=["bin"], libdirs=["lib"])

    def set_property(self, name, value):
        self.properties[name] = value


class Components(dict):
    def __missing__(self, name):
        return self.setdefault(name, Attributes())


def cpp_info():
    info = Attributes()
    info.components = Components()
    return info


class ConanFile:
    def __init__(self, chosen):
        self.options = types.SimpleNamespace(**chosen)
        self.needs = []
        self.cpp_info = cpp_info()
        self.cpp = types.SimpleNamespace(source=cpp_info())
        self.folders = types.SimpleNamespace(root=None)
        self.recipe_folder = str(root / "conan")
        self.package_folder = None

    def requires(self, reference):  # a forced option of another package would break programs that need another value
        self.needs.append(reference)


def copied(recipe, pattern, source, target):
    files = [f for f in pathlib.Path(source).glob(pattern if "/" in pattern else f"**/{pattern}") if f.is_file() or pattern.endswith("*")]
    check(files, f"conan: nothing is called {pattern} in {source}")
    for f in files:
        to = pathlib.Path(target) / f.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if f.is_dir() else shutil.copy)(f, to, **({"dirs_exist_ok": True} if f.is_dir() else {}))


def unpacked(recipe, url, sha256, strip_root):
    check(url == archive_url and strip_root, "conan: the archive is not that of the release")
    check(sha256 == hashlib.sha256(archive.read_bytes()).hexdigest(), "conan: another checksum than the archive's")
    with tarfile.open(archive) as tar:
        tar.extractall(place / "unpacked")
    shutil.move(place / "unpacked" / f"gspmd-{version}", recipe.source_folder)


class Refused(Exception):
    pass


for name, members in {
    "conan": {"ConanFile": ConanFile},
    "conan.errors": {"ConanInvalidConfiguration": Refused},
    "conan.tools": {},
    "conan.tools.files": {"copy": copied, "load": lambda recipe, path: pathlib.Path(path).read_text(), "get": unpacked},
    "conan.tools.layout": {"basic_layout": lambda recipe: None},
    "conan.tools.scm": {"Version": str},
}.items():
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)


def recipe_in(path):
    scope = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope["Gspmd"]


Recipe = recipe_in(root / "conan" / "conanfile.py")
check(Recipe.options.keys() == Recipe.default_options.keys(), "conan: an option has no default")
aliases = set(re.findall(r"add_library\(gspmd::(mpi|hdf5|gspmd) ALIAS", cmake))
lists = {n: words.split() for n, words in re.findall(r"^set\(gspmd_(\w+) ([^)]*)\)", (root / "cmake" / "wings.cmake").read_text(), re.M)}
wings = {wing: lists.get(f"{wing}_needs", []) for wing in lists["wings"]}
check("gspmd" in aliases and set(lists["backends"]) == aliases - {"gspmd"}, f"CMakeLists.txt has the targets {aliases}, and wings.cmake {lists['backends']}")
check(Recipe.wings == wings, f"conan: the wings are {Recipe.wings}, and cmake/wings.cmake has {wings}")
for choice in itertools.product([True, False], repeat=len(Recipe.options)):
    chosen = dict(zip(Recipe.options, choice))
    recipe = Recipe(chosen)
    recipe.set_version()
    check(recipe.version == version, f"conan: the version is {recipe.version}")
    recipe.requirements()
    recipe.layout()
    recipe.package_info()
    components = recipe.cpp_info.components
    parts = list(components.values())
    targets = {c.properties["cmake_target_name"] for c in parts}
    wanted = {f"gspmd::{a}" for a in [*wings, *aliases] if a in wings or a == "gspmd" or chosen[a]}
    check(targets == wanted, f"conan: with {chosen} the targets are {targets}, and CMakeLists.txt has {wanted}")
    # CMakeDeps advises the user to link the target of the whole package.
    advised = recipe.cpp_info.properties["cmake_target_name"]
    check(advised == "gspmd::all", f"conan: with {chosen} the advice is {advised}")
    for wing in wings:
        check(components[wing].system_libs == lists.get(f"{wing}_libraries", []), f"conan: {wing} links other libraries than in cmake/wings.cmake")
    for component in parts:
        for needed in component.requires:
            package_of = needed.split("::")[0]
            known = [n.split("/")[0] for n in recipe.needs] if "::" in needed else components
            check(package_of in known, f"conan: {needed} is not required")
        check(component.libdirs == [] and component.bindirs == [], "conan: headers have no folders of libraries")
    # `conan editable add`: headers and build module of the checkout, and no module of a package
    source = recipe.cpp.source
    check("gspmd" in source.components, "conan: editable has no component gspmd")
    for name, part in source.components.items():
        check(all((root / d / "gspmd" / "gspmd.hpp").is_file() for d in part.includedirs), f"conan: editable, {name} has no headers")
    check(recipe.folders.root == ".." and all(os.path.isfile(m) for m in source.properties["cmake_build_modules"]), "conan: editable has no module")
    check("cmake_build_modules" not in recipe.cpp_info.properties, "conan: editable has the module of a package")
for system, compiler, major, sentence in [
    *[(s, "gcc", "13", linux_only) for s in ("Windows", "Macos", "FreeBSD", "Android", "SunOS")],
    ("Linux", "gcc", "11", "gspmd needs gcc 12 or later"),
    ("Linux", "gcc", "12", ""),
]:
    recipe = Recipe(Recipe.default_options)
    recipe.settings = types.SimpleNamespace(os=system, compiler=type("compiler", (str,), {"version": major})(compiler))
    try:
        recipe.validate()
        said = ""
    except Refused as refused:
        said = str(refused)
    check(said == sentence, f"conan: on {system} with {compiler} {major}: '{said}'")


def try_package(recipe, folder):
    """Makes the package of `recipe` in `folder` and configures tests/consumer with it, as CMakeDeps lets it be found."""
    recipe.package_folder = str(folder / "package")
    recipe.package()
    recipe.package_info()
    (module,) = recipe.cpp_info.properties["cmake_build_modules"]
    check((folder / "package" / "licenses" / "LICENSE").is_file(), "conan: the package has no licence")
    lines = []  # in the form that CMakeDeps writes
    for name, component in recipe.cpp_info.components.items():
        lines.append(f"add_library(gspmd::{name} INTERFACE IMPORTED)")
        needs = [*(f"gspmd::{n}" for n in component.requires if "::" not in n), *component.system_libs]
        if needs:
            lines.append(f"target_link_libraries(gspmd::{name} INTERFACE {' '.join(needs)})")
        for directory in component.includedirs:
            lines.append(f'target_include_directories(gspmd::{name} INTERFACE "{folder}/package/{directory}")')
    lines.append(f'include("{folder}/package/{module}")')
    (folder / "gspmd-config.cmake").write_text("\n".join(lines) + "\n")
    (folder / "gspmd-config-version.cmake").write_text("set(PACKAGE_VERSION_COMPATIBLE TRUE)")
    configure = [*sys.argv[2:], "-S", root / "tests" / "consumer", f"-Dgspmd_DIR={folder}", "-DCMAKE_CXX_STANDARD=17"]  # default profile
    built = folder / "built"
    ran = run(*configure, "-B", built, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    check(ran.returncode == 0, f"conan: tests/consumer is not configured with the package:\n{ran.stdout}{ran.stderr}")
    if ran.returncode == 0:
        commands = json.loads((built / "compile_commands.json").read_text())
        names = {os.path.basename(c["file"]) for c in commands}
        check("precompiled_kernels.cpp" in names, "conan: gspmd::precompiled has no sources")
        for command in commands:
            check("++20" in command["command"] or "++2a" in command["command"], f"conan: {command['file']} is not compiled as C++20")
    for component, sentence in {
        "mpi": "gspmd's component mpi: the Conan package was made without it; set the option gspmd/*:mpi=True",
        "gpu": f"gspmd has no component gpu; the components are {', '.join([*wings, *lists['backends']])}",
    }.items():
        ran = run(*configure, "-B", folder / component, f"-DGSPMD_COMPONENTS={component}")
        said = " ".join(ran.stderr.split())
        check(ran.returncode != 0 and sentence in said, f"conan: without the component {component} CMake says: {said}")


with tempfile.TemporaryDirectory() as made:
    place = pathlib.Path(made)
    recipe = Recipe({name: False for name in Recipe.options})
    recipe.export_sources_folder = recipe.source_folder = str(place / "sources")
    recipe.export_sources()
    try_package(recipe, place / "checkout")

    # The recipes for registries, from an archive with the contents of a release.
    archive, archive_url = place / "release.tar.gz", "https://example.org/release.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for part in ("LICENSE", "CMakeLists.txt", "include", "cmake", "conan"):
            tar.add(root / part, f"gspmd-{version}/{part}")
    exact = {"boost": "1.83.0", "openblas": "0.3.24", "eigen": "3.4.0", "openmpi": "4.1.0", "hdf5": "1.14.3"}
    ran = run(sys.executable, root / "cmake" / "registry_recipes", "--homepage", "https://example.org", "--archive", archive, "--archive-url",
              archive_url, "--require", *[f"{n}/{v}" for n, v in exact.items()], "--", place / "recipes")
    check(ran.returncode == 0, f"cmake/registry_recipes: {ran.stderr}")
    for file in (place / "recipes").rglob("*"):
        if file.is_file():
            check(not re.search(r"# checkout|# registry:|@[A-Z_a-z]\w*@", file.read_text()), f"cmake/registry_recipes leaves a mark in {file.name}")
    Registered = recipe_in(place / "recipes" / "conan" / "all" / "conanfile.py")
    check(Registered.homepage == "https://example.org" and Registered.url.startswith("https://"), "conan: the registry's form has no addresses")
    recipe = Registered({name: name != "cblas" for name in Registered.options})
    recipe.requirements()
    check(recipe.needs == [f"{n}/{exact[n]}" for n in ("boost", "eigen", "openmpi", "hdf5")], f"conan: the registry's form requires {recipe.needs}")
    recipe = Registered({name: False for name in Registered.options})
    data = (place / "recipes" / "conan" / "all" / "conandata.yml").read_text()
    recipe.version = version
    recipe.conan_data = {"sources": {version: dict(re.findall(r"(url|sha256): \"(.*)\"", data))}}
    recipe.source_folder = str(place / "source")
    recipe.layout()
    recipe.source()
    try_package(recipe, place / "registry")
    registered = json.loads((place / "recipes" / "vcpkg" / "gspmd" / "vcpkg.json").read_text())
    check(registered["homepage"] == "https://example.org", "vcpkg: the registry's form has no homepage")
    called.clear()
    for form in (place / "recipes" / "spack" / "gspmd" / "package.py",):
        exec(compile(form.read_text(), str(form), "exec"), {})
    check(arguments_of("version") == [((version,), {"sha256": hashlib.sha256(archive.read_bytes()).hexdigest()})], "spack: the archive has no checksum")

    # Any Eigen from 3.4 on works at the user's path. Eigen 5.0.1's version file accepts only a range, and that of 3.4.0
    # accepts no range.
    refused = "gspmd needs Eigen 3.4 or later"
    for eigen, compatible in {
        "5.0.1": 'PACKAGE_FIND_VERSION_RANGE AND NOT PACKAGE_FIND_VERSION_MAX VERSION_LESS "5"',
        "3.4.0": 'NOT PACKAGE_FIND_VERSION_RANGE AND PACKAGE_FIND_VERSION VERSION_EQUAL "3.4"',
        "3.3.9": "FALSE",
    }.items():
        folder = place / f"eigen-{eigen}"
        folder.mkdir()
        (folder / "Eigen3Config.cmake").write_text("add_library(Eigen3::Eigen INTERFACE IMPORTED)\n")
        (folder / "Eigen3ConfigVersion.cmake").write_text(
            f'set(PACKAGE_VERSION "{eigen}")\nif({compatible})\n  set(PACKAGE_VERSION_COMPATIBLE TRUE)\nendif()\n'
        )
        prefix = folder / "prefix"
        with_eigen = f"-DEigen3_DIR:PATH={folder}"
        options_of = ["-DGSPMD_USE_CBLAS=OFF", "-DGSPMD_BUILD_TESTS=OFF", "-DGSPMD_BUILD_EXAMPLES=OFF", f"-DCMAKE_INSTALL_PREFIX={prefix}"]
        ran = run(*sys.argv[2:], "-S", root, "-B", folder / "gspmd", with_eigen, *options_of)
        said = " ".join(ran.stderr.split())
        if eigen == "3.3.9":
            check(ran.returncode != 0 and refused in said, f"Eigen {eigen} is not refused: {said}")
            continue
        check(ran.returncode == 0, f"gspmd is not configured with Eigen {eigen}: {said}")
        run(sys.argv[2], "--install", folder / "gspmd")
        consume = [*sys.argv[2:], "-S", root / "conan" / "test_package", f"-DCMAKE_PREFIX_PATH={prefix}"]
        ran = run(*consume, "-B", folder / "built", with_eigen)
        taken = f"Eigen3_DIR:PATH={folder}\n" in (folder / "built" / "CMakeCache.txt").read_text()
        check(ran.returncode == 0 and taken, f"a consumer is not configured with Eigen {eigen}: {ran.stderr}")
    (folder / "Eigen3ConfigVersion.cmake").write_text('set(PACKAGE_VERSION "3.3.9")\n')
    ran = run(*consume, "-B", folder / "built", f"-DEigen3_DIR:PATH={folder}")
    check(ran.returncode != 0 and refused in " ".join(ran.stderr.split()), f"a consumer takes Eigen 3.3.9: {ran.stderr}")

# git ignores the files that the clients build in the checkout. Conan's basic_layout builds in build-release,
# test_package in its own folder.
ignored = set((root / ".gitignore").read_text().split())
for folder in ("/build-*/", "/conan/test_package/build/", "/vcpkg_installed/", "/spack-build-*"):
    check(folder in ignored, f".gitignore lacks {folder}")

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
for feature, package_name in {"cblas": "CBLAS", "mpi": "MPI", "hdf5": "HDF5C"}.items():
    check(f"{feature} CMAKE_REQUIRE_FIND_PACKAGE_{package_name}" in portfile, f"vcpkg: the feature {feature} goes on without {package_name}")
check(port["supports"] == "linux", "vcpkg: other systems are not refused")
check("if(GSPMD_INSTALL)" in cmake and "GSPMD_INSTALL_CMAKE_DIR" in cmake, "vcpkg: CMakeLists.txt has no GSPMD_INSTALL_CMAKE_DIR")
check(set(variants) - {"onednn", "tools"} == set(Recipe.options), "spack: the variants are not Conan's options")

for problem in spack_problems:
    print(f"spack/packages/gspmd/package.py: {problem}")
for problem in problems:
    print(problem)
sys.exit(1 if problems or spack_problems else 0)
