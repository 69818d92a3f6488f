# SPDX-License-Identifier: Apache-2.0
# drawings.py PLAN.json PLAN.svg PLAN.dot   checks the drawings of a plan against its JSON, so that a change of the plan changes no file here.
# The picture is XML, shows every value with its layout, and its tiles have every index. The graph's edges join declared
# nodes; it shows every instruction with its kind and bytes, and every output.
import json
import re
import sys
import xml.etree.ElementTree as ElementTree

plan = json.load(open(sys.argv[1]))
values = plan["values"]
problems = []


def check(holds, message):
    if not holds:
        problems.append(message)


def axes(text):
    """The sharding that `[x,y, _]` states: [["x", "y"], []]."""
    inside = text[1:-1]
    return [[] if dim == "_" else dim.split(",") for dim in inside.split(", ")] if inside else []


# ---- the picture -----------------------------------------------------------------------------------------------------
svg = "{http://www.w3.org/2000/svg}"
head = re.compile(r"(?P<names>.*?)(?: and (?P<more>\d+) more)?: \w+ \[(?P<shape>[\d,]*)\], (?P<axes>\[[^\]]*\])"
                  r"(?P<rest>[^\[]*), shards of \[(?P<local>[\d,]*)\]")
shown = 0
drawn = None  # the value whose tiles follow, and what they have so far


def finish():
    if drawn and drawn["tiles"]:
        for d, extent in enumerate(drawn["shape"]):
            check(drawn["indices"][d] == set(range(extent)), f"svg: the tiles of {drawn['name']} lack indices of dim {d}")


for element in ElementTree.parse(sys.argv[2]).iter():
    if element.tag == svg + "text" and element.get("font-weight") == "bold":
        finish()
        drawn = None
        found = head.match(element.text)
        if not found:
            name, _, unused = element.text.partition(": ")
            check(unused == "unused" and values.get(name, {}).get("unused"), f"svg: '{element.text}' is no description of a value")
            shown += 1
            continue
        names = found["names"].split(", ")
        shown += len(names) + int(found["more"] or 0)
        shape = [int(n) for n in found["shape"].split(",") if n]
        for name in names:
            check(name in values, f"svg: {name} is no value of the plan")
            value = values.get(name, {"sharding": None, "local_shape": None, "partial": {}})
            check(axes(found["axes"]) == value["sharding"], f"svg: {name} has the sharding {found['axes']}")
            check([int(n) for n in found["local"].split(",") if n] == value["local_shape"], f"svg: {name} has shards of [{found['local']}]")
            check(("partial" in found["rest"]) == bool(value["partial"]), f"svg: {name} is partial or not")
        drawn = {"name": names[0], "shape": shape, "indices": [set() for _ in shape], "tiles": 0}
    elif element.tag == svg + "title" and drawn:
        ranges = re.search(r": \[([^\]]*)\]", element.text)
        if not ranges:
            continue
        drawn["tiles"] += 1
        for d, part in enumerate(p for p in ranges[1].split(", ") if p):
            first, _, last = part.partition("..")
            if first.lstrip("-").isdigit():
                drawn["indices"][d] |= set(range(int(first), int(last or first) + 1))
finish()
check(shown == len(values), f"svg: {shown} of {len(values)} values are shown")

# ---- the graph -------------------------------------------------------------------------------------------------------
lines = open(sys.argv[3]).read().splitlines()
check(lines[0] == "digraph plan {" and lines[-1] == "}", "dot: no graph")
labels = {}
edges = set()
for line in lines[1:-1]:
    node = re.fullmatch(r'  +(\w+) \[.*label="((?:[^"\\]|\\.)*)".*\];', line)
    edge = re.fullmatch(r"  +(\w+) -> (\w+)(?: \[.*\])?;", line)
    if node:
        check(labels.get(node[1], node[2].split("\\n")) == node[2].split("\\n"), f"dot: {node[1]} is two nodes")
        labels[node[1]] = node[2].split("\\n")
    elif edge:
        edges |= {edge[1], edge[2]}
    else:
        check(re.fullmatch(r"  +(node \[.*\];|(sub)?graph .*|label=.*;|style=.*;|})", line) is not None, f"dot: {line}")
check(edges <= set(labels), f"dot: edges join {sorted(edges - set(labels))}, which are no nodes")
first_lines = [label[0] for label in labels.values()]
for instruction in plan["instructions"]:
    kind, value = instruction["kind"], instruction["value"]
    if "bytes" in instruction:  # a collective, as a node or as a part of the operator that needs it
        text = f"{kind}.* over {re.escape(','.join(instruction['axes']))}, {instruction['bytes']} byte"
    elif kind in ("copy", "end"):  # steps of loops, which the graph does not draw
        continue
    else:
        text = f"{re.escape(value)}(,|$| )"
    check(any(re.search(text, line) for line in first_lines), f"dot: no node shows {kind} {value}")
for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)
