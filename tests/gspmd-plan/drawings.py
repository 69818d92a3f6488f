# SPDX-License-Identifier: Apache-2.0
# drawings.py PLAN.json PLAN.svg PLAN.dot DOCUMENT.json   checks the drawings of a plan against its JSON and its
#                                                         document
# A change of the plan changes no file here. The picture is XML, shows every value with its layout, and its tiles have
# every index.
# The graph shows every instruction with its kind and bytes, and every output. Its edges join declared nodes and are the
# dependences of the document: along them each input reaches the outputs that depend on it and no others, and each
# operand reaches its operator.
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
drawn = None  # the value of the following tiles, and the indices that these tiles cover so far


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
inputs = {}  # names by node
edges = {}
for line in lines[1:-1]:
    node = re.fullmatch(r'  +(\w+) \[.*label="((?:[^"\\]|\\.)*)".*\];', line)
    edge = re.fullmatch(r"  +(\w+) -> (\w+)(?: \[.*\])?;", line)
    if node:
        label = [re.sub(r"\\(.)", r"\1", part) for part in node[2].split("\\n")]
        check(labels.setdefault(node[1], label) == label, f"dot: {node[1]} is two nodes")
        if "shape=ellipse" in line and "peripheries" not in line:
            inputs[node[1]] = labels[node[1]][0]
    elif edge:
        edges.setdefault(edge[1], set()).add(edge[2])
    else:
        check(re.fullmatch(r"  +(node \[.*\];|(sub)?graph .*|label=.*;|style=.*;|})", line) is not None, f"dot: {line}")
joined = set(edges).union(*edges.values())
check(joined <= set(labels), f"dot: edges join {sorted(joined - set(labels))}, which are no nodes")
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

document = json.load(open(sys.argv[4]))
regions = any(part in op for op in document["ops"] for part in ("body", "branches"))


def texts(part):
    """All texts in a part of the document: the names of values are among them."""
    if isinstance(part, str):
        return [part]
    return [text for inner in (part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()) for text in texts(inner)]


def named(text):
    """The operator or input that a name belongs to: `s` for the result `s.1`."""
    return text if text in needs else text.split(".")[0]


needs = {x["name"]: {x["name"]} for x in document["inputs"]}  # the inputs that a value depends on
for op in document["ops"]:
    parts = [named(text) for key, part in op.items() if key not in ("name", "op") for text in texts(part)]
    needs[op["name"]] = set().union(*(needs.get(part, set()) for part in parts))
reached = {}  # the nodes that a node reaches along edges
for node in labels:
    found, next_ones = set(), [node]
    while next_ones:
        at = next_ones.pop()
        next_ones += edges.get(at, set()) - found
        found |= {at} | edges.get(at, set())
    reached[node] = found
for k, output in enumerate(document["outputs"]):
    expected = needs[named(output)]
    drawn = {inputs[node] for node in inputs if f"out{k}" in reached[node]}
    # An operator with a region has several results. Each may depend on fewer inputs than the operator.
    check(drawn <= expected if regions else drawn == expected, f"dot: {output} depends on {sorted(drawn)}, not on {sorted(expected)}")
targets = set().union(*edges.values())
for node, label in labels.items():
    if regions or node in inputs:
        continue
    kind = label[0].partition(" ")[0]
    check(node in targets or kind in ("constant", "iota"), f"dot: no edge leads to {label[0]}")
    further = label[0] in values or label[0] == "(unnamed)"  # a result after the first one, which may be unused
    check(node in edges or node.startswith("out") or further, f"dot: no edge leads from {label[0]}")
nodes_of = {}  # the nodes of a value; a label is KIND NAME, followed by the message
for node, label in labels.items():
    rest = label[0] if node in inputs or label[0] in values else label[0].partition(" ")[2]
    for name in values:
        if rest == name or rest.startswith((f"{name} over ", f"{name}, ")):
            nodes_of.setdefault(name, set()).add(node)
same = {}  # an operator that only renames or redistributes its operand
for op in [] if regions else document["ops"]:
    name, operands = op["name"], [same.get(o, o) for o in op.get("operands", [])]
    if name not in nodes_of or op["op"] == "reshard":
        same[name] = operands[0] if operands else name
        continue
    for operand in operands:
        check(operand not in nodes_of or any(reached[node] & nodes_of[name] for node in nodes_of[operand]),
              f"dot: no edges lead from {operand} to {name}")
for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)
