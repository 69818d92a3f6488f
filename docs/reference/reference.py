#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reference.py [--check] [FOLDER]   makes the reference of the public headers with Doxygen: FOLDER/html/index.html
(default: build/doc), and docs/reference/operator_index.md.

--check   does not write operator_index.md, and fails if it is not up to date

Fails if Doxygen warns, if a public header has no group in the table `groups`, or if a public name is missing in the
reference or has no docstring. A public name is a function, class, alias, concept or variable in a namespace of gspmd
that is not for the implementation. It is declared or named (`using detail::x;`) in a header outside of detail/, or
declared in namespace gspmd by a header in detail/ that public headers include.

Doxygen reads copies of the headers. Each copy puts its names into the group of the header, so the headers themselves
need no commands of Doxygen. A name of `using detail::x;` gets a copy of its declaration.
"""
import collections
import functools
import glob
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml

# The name and the title of each group, and its headers: files without .hpp, or folders with a slash at the end. The
# first group that matches a header has it. The headers of groups marked with * declare the operators of the index.
groups = [
    ("meshes", "Meshes and shardings", "program/mesh program/sharding program/shard_view detail/support/fixed_string"),
    ("inputs", "Inputs, arrays and element types", "program/inputs program/input_arrays program/dtype program/array program/sharded_array"
     " program/row_major program/tree program/hana detail/ir/types detail/ir/tree detail/support/narrow_floats detail/support/own_types"),
    ("values", "Values, scopes and errors", "program/program program/printable ops/named error version precompiled detail/support/refuse"),
    ("elementwise", "Elementwise operators *", "ops/elementwise ops/integers ops/map detail/ops/own/map_function"),
    ("reductions", "Reductions *", "ops/reduce ops/composite"),
    ("shapes", "Shapes, shifts and shardings of values *", "ops/shape ops/dims ops/boundary"),
    ("products", "Products *", "ops/einsum ops/matmul"),
    ("loops", "Loops and branches *", "ops/loops ops/ghost_zones ops/branches ops/scan ops/traced_body"),
    ("own", "Custom operators *", "ops/local_op ops/local_block detail/ir/local_block"),
    ("indexing", "Indexing, order and random numbers *", "index/ index"),
    ("windows", "Windows: stencils, convolutions, pools *", "windows/ windows"),
    ("transform", "Gradients and other transformations *", "transform/"),
    ("run", "Compile and run", "run/ comm/threads comm/simulated comm/communicator detail/transport/communicator core gspmd ops"),
    ("plan", "Options and budgets of the planner", "plan/ ops/policy"),
    ("dynamic", "Planning at run time", "dynamic/ dynamic"),
    ("mpi", "MPI", "comm/mpi comm/mpi_definitions mpi detail/transport/mpi/options"),
    ("modes", "Explicit and manual programs *", "modes/ modes"),
    ("report", "Reports", "report/ report detail/passes/list/pass_list"),
    ("extend", "Extending the library", "extend/"),
    ("linalg", "Linear algebra *", "linalg/ linalg"),
    ("fft", "Fourier transforms *", "fft/ fft"),
    ("sparse", "Sparse matrices *", "sparse/ sparse"),
    ("nn", "Attention, pipelines and optimizers *", "nn/ nn"),
    ("staggered", "Staggered grids *", "staggered/ staggered"),
    ("layouts", "Other layouts and notations", "layouts/ layouts"),
    ("external", "External memory", "external/ external"),
    ("io", "Files and checkpoints", "io/ io"),
    ("search", "Search of annotations", "search/ search"),
    ("native", "Native code at run time", "native/ native"),
    ("trace", "Traces of runs", "trace/ trace"),
]
internal = {"detail", "detail_", "drawing"}  # namespaces for the implementation

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
include = os.path.join(root, "include", "gspmd")
index_page = os.path.join(root, "docs", "reference", "operator_index.md")

opens = re.compile(r"(?:inline )?namespace ([\w:]+) \{$")
closes = re.compile(r"\}  // namespace")
# A declaration at the beginning of a line; clang-format does not indent the contents of namespaces.
declares = [
    re.compile(r"(?:template <.*> )?(?:struct|class|enum class|enum|union|concept) (?:\[\[\w+\]\] )?(\w+)\b(?!<)"),
    re.compile(r"using (\w+) = "),
    re.compile(r"(?:template <.*> )?(?:inline |static )*constexpr [\w:<>, *&]*?[ *&](\w+)(?: =| ?\{|;)"),
    re.compile(r"(?:template <.*> )?(?:\[\[\w+\]\] |inline |static |constexpr )*[\w:][\w:<>,. ]*[*&]* [*&]*((?:operator)[^\w\s(]+|\w+)\("),
]
named = re.compile(r"using detail::(\w+);(?: *// (.*))?")
keywords = re.compile(r"(?:requires|return|static_assert|friend|public|private|if|for|else|using namespace|extern|typedef|template <>)\b")


def group_of(header):
    for name, _, headers in groups:
        if any(header == h or h.endswith("/") and header.startswith(h) for h in headers.split()):
            return name
    return None


def is_public(namespace):
    parts = namespace.split("::")
    return parts[0] == "gspmd" and not internal & set(parts)


@functools.cache
def scan(path):
    """Returns the namespace and the text of each line of a header. The lines that open and close a namespace are in this
    namespace."""
    stack, lines = [], []
    with open(path, encoding="utf-8") as file:
        for line in file.read().split("\n"):
            if (found := opens.match(line)) is not None:
                stack.append(found[1])
            lines.append(("::".join(stack), line))
            if closes.match(line) and stack:
                stack.pop()
    return lines


def declared(line):
    if keywords.match(line) or line.startswith("template") and line.endswith((">", ",")):
        return None
    return next((found[1] for pattern in declares if (found := pattern.match(line))), None)


def take_definition(path, name, comment, forward=False):
    """Returns the declaration of `name`, which a header declares in namespace detail, with a docstring: the lines
    `comment`, or the lines before the declaration. Functions have no body. `forward`: a declaration without a definition."""
    lines = scan(path)
    for at, (namespace, line) in enumerate(lines):
        if "detail" not in namespace.split("::") or declared(line) != name or line.endswith(f" {name};") != forward:
            continue
        first = last = at
        while re.match(r"template|  requires|    requires", lines[first - 1][1]):
            first -= 1
        own = first
        while lines[own - 1][1].startswith("///"):
            own -= 1
        while not lines[last][1].endswith(("{", ";", "}")):
            last += 1
        if lines[last][1].endswith("{"):
            while not lines[last][1].startswith("}"):
                last += 1
        text = "\n".join(line for _, line in lines[first:last + 1])
        if declares[-1].match(line) and not line.startswith(("struct", "class", "enum", "concept")):
            text = re.sub(r"\)(?: const)? \{.*", ");", text, flags=re.S)
        if forward:
            text = text[:-1] + " {};"  # Doxygen ignores declarations
        return "\n".join(comment or [line for _, line in lines[own:first]]) + "\n" + text
    return None


def with_headings(text):
    """Marks words in bold type at the beginning of a line of a docstring as headings for Doxygen, and an example on the
    line of its heading as code."""
    text = re.sub(r"^( *///) \*\*Example\.\*\* (\S.*[;)])$", r"\1 **Example.** ``\2``", text, flags=re.M)
    text = re.sub(r"^( *///) \*\*([A-Z][\w ]+)\.\*\*$(?=\n *///     )", r"\1 @headcode{\2}", text, flags=re.M)
    return re.sub(r"^( *///) \*\*([A-Z][\w ]+)\.\*\*", r"\1 @head{\2}", text, flags=re.M)


def copy_headers(folder):
    """Copies the headers with public names, with their groups. Returns the public names and their headers."""
    public, complaints, used = {}, [], collections.defaultdict(list)
    every = sorted(glob.glob(os.path.join(include, "**", "*.hpp"), recursive=True))
    for path in every:
        header = os.path.relpath(path, include)[:-len(".hpp")]
        inside = "detail" in header.split("/")
        group, lines, comment, any_name = group_of(header), [], [], False
        for namespace, line in scan(path):
            name = None
            if is_public(namespace):
                name = declared(line)
                if not inside and (found := named.match(line)) is not None:
                    name = found[1]
                    used[name].append((namespace, header, group, comment or ["/// " + found[2]] if found[2] else comment))
            if name is not None:
                any_name = True
                if not (inside and re.search(r"(?:struct|class) \w+;", line)):  # a forward declaration
                    public.setdefault(f"{namespace}::{name}", header)
            if opens.match(line) and is_public(namespace):
                line += f" /** @open{{{group}}} */"
            elif closes.match(line) and is_public(namespace):
                line = "/** @} */ " + line
            comment = comment + [line] if line.startswith("///") else []
            lines.append(line)
        if inside and not any_name:
            continue
        if group is None:
            complaints.append(f"include/gspmd/{header}.hpp: no group of docs/reference/reference.py has this header")
        target = os.path.join(folder, "gspmd", header + ".hpp")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(with_headings("\n".join(lines)))
    for name, where in used.items():
        for namespace, header, group, comment in where:
            with open(os.path.join(include, header + ".hpp"), encoding="utf-8") as file:
                included = [os.path.join(root, "include", h) for h in re.findall(r'#include "(gspmd/.*)"', file.read())]
            texts = (take_definition(path, name, comment, forward) for forward in (False, True)
                     for path in included + every)
            text = next((text for text in texts if text is not None), None)
            if text is None:
                complaints.append(f"include/gspmd/{header}.hpp: no declaration of detail::{name} is found")
                continue
            with open(os.path.join(folder, "gspmd", f"{header}.{name}.hpp"), "w", encoding="utf-8") as file:
                file.write(f"namespace {namespace} {{ /** @open{{{group}}} */\n{with_headings(text)}\n/** @}} */ }}\n")
    return public, complaints


def text_of(element):
    return " ".join("".join(element.itertext()).split()) if element is not None else ""


def markdown_of(element):
    """Returns a paragraph of Doxygen's XML as Markdown, with code in backticks."""
    if element is None:
        return ""
    words = element.text or ""
    for child in element:
        inner = markdown_of(child)
        words += (f"`{inner}`" if child.tag == "computeroutput" else inner) + (child.tail or "")
    return " ".join(words.split())


def read_names(folder):
    """Returns for each name of the reference its briefs: a pair of the brief and Doxygen's element for each docstring."""
    names = collections.defaultdict(list)
    for path in sorted(glob.glob(os.path.join(folder, "xml", "*.xml"))):
        for compound in xml.parse(path).getroot().iter("compounddef"):
            kind, full = compound.get("kind"), re.sub(r"<.*", "", compound.findtext("compoundname") or "").strip()
            if kind in ("struct", "class", "union", "concept"):
                names[full].append((compound.find("briefdescription"), compound))
            if kind == "namespace":
                for member in compound.iter("memberdef"):
                    name = re.sub(r"\s*<.*", "", member.findtext("name")) if "operator" not in member.findtext("name") else member.findtext("name")
                    names[f"{full}::{name}"].append((member.find("briefdescription"), member))
    return names


def is_operator(member, group):
    if member.get("kind") != "function":
        return False
    title = next(title for name, title, _ in groups if name == group)
    if not title.endswith("*"):
        return False
    returned = text_of(member.find("type"))
    if not re.search(r"\bvalue\b|\bauto\b|Tree|Carry|Grads|_body|row_function", returned):
        return False
    return not re.search(r"distributed<", text_of(member.find("type")) + (member.findtext("argsstring") or "").replace(" ", ""))


def operator_index(names):
    rows, order = {}, [name for name, _, _ in groups]
    scopes = {"gspmd": "", "gspmd::local": "local::", "gspmd::random": "random::", "gspmd::optimizer": "optimizer::",
              "gspmd::initializers": "initializers::"}
    for full, found in names.items():
        scope, _, name = full.rpartition("::")
        if scope not in scopes:
            continue
        overloads = []
        for brief, member in found:
            place = member.find("location")
            header = place.get("file").removeprefix("gspmd/").removesuffix(".hpp")
            group = group_of(header)
            if group is not None and is_operator(member, group) and text_of(brief):
                overloads.append((header.count("/"), order.index(group), int(place.get("line")), header, markdown_of(brief)))
        if overloads:
            _, _, _, header, summary = min(overloads)
            shown = scopes[scope] + name.replace("operator", "operator ")
            rows[shown] = f"| `{shown}` | {summary.replace('|', chr(92) + '|')} | `gspmd/{header}.hpp` |"
    lines = [
        "# Index of all operators", "",
        "This page lists all operators in alphabetical order, with the header that declares each operator. `docs/reference/reference.py` writes it from",
        "the docstrings; do not edit it. [Operators](operators.md) describes them by family.", "",
        "| operator | description | header |", "|---|---|---|",
    ]
    key = lambda name: (name.split("::")[-1].lower(), name)
    return "\n".join(lines + [rows[name] for name in sorted(rows, key=key)]) + "\n"


def main_page():
    lines = ["/** @mainpage Reference of gspmd", "", "All public names, by group. README.md is the introduction; docs/README.md lists the tutorials and how-to pages.", "",
             "| group | headers |", "|---|---|"]
    for name, title, headers in groups:
        shown = ", ".join(f"gspmd/{h}" if h.endswith("/") else f"gspmd/{h}.hpp" for h in headers.split() if not h.startswith("detail/"))
        lines.append(f"| @ref {name} | {shown} |")
    lines.append("*/")
    lines += [f"/** @defgroup {name} {title.removesuffix(' *')} */" for name, title, _ in groups]
    return "\n".join(lines) + "\n"


def main(arguments):
    check = "--check" in arguments
    rest = [a for a in arguments if a != "--check"]
    if len(rest) > 1 or any(a.startswith("-") for a in rest):
        sys.exit(__doc__)
    folder = os.path.abspath(rest[0] if rest else os.path.join(root, "build", "doc"))
    headers = os.path.join(folder, "headers")
    for old in ("headers", "html", "xml"):
        shutil.rmtree(os.path.join(folder, old), ignore_errors=True)
    os.makedirs(headers)
    public, complaints = copy_headers(headers)
    with open(os.path.join(headers, "groups.dox"), "w", encoding="utf-8") as file:
        file.write(main_page())
    with open(os.path.join(root, "docs", "reference", "Doxyfile"), encoding="utf-8") as file:
        options = file.read() + f'INPUT = "{headers}"\nOUTPUT_DIRECTORY = "{folder}"\nSTRIP_FROM_PATH = "{headers}"\nSTRIP_FROM_INC_PATH = "{headers}"\n'
    done = subprocess.run(["doxygen", "-"], input=options, text=True, stderr=subprocess.PIPE, check=False)
    complaints += dict.fromkeys(line.replace(headers, "include") for line in done.stderr.splitlines())
    if done.returncode != 0:
        sys.exit("\n".join(complaints + ["doxygen failed"]))
    names = read_names(folder)
    for name in names:
        if is_public(name) and name.count("::") == 1:
            public.setdefault(name, "*")
    for name, header in sorted(public.items()):
        if name not in names:
            complaints.append(f"include/gspmd/{header}.hpp: {name} is not in the reference")
        elif not name.startswith("gspmd::extend::") and not any(text_of(brief) or text_of(e.find("detaileddescription")) for brief, e in names[name]):
            complaints.append(f"include/gspmd/{header}.hpp: {name} has no docstring")
    if len(public) < 400:
        complaints.append(f"docs/reference/reference.py finds only {len(public)} public names")
    page = operator_index(names)
    if check:
        with open(index_page, encoding="utf-8") as file:
            if file.read() != page:
                complaints.append("docs/reference/operator_index.md is not up to date; run docs/reference/reference.py")
    else:
        with open(index_page, "w", encoding="utf-8") as file:
            file.write(page)
    if complaints:
        sys.exit("\n".join(complaints))
    print(f"{len(public)} public names, {page.count(chr(10)) - 7} operators: {os.path.relpath(folder)}/html/index.html")


if __name__ == "__main__":
    main(sys.argv[1:])
