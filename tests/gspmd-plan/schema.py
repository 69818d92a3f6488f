# SPDX-License-Identifier: Apache-2.0
# schema.py PROGRAM SCHEMA FOLDER   compares plan.schema.json with the reader of gspmd-plan
# 1. The operators of the schema are those of `gspmd-plan --help`, and loop, cond, reduce_by and scan_by.
# 2. Each object has the members that the reader lists for it, and each operator has the reader's number of operands.
# 3. Every document of FOLDER that the reader accepts is valid. Every document with a wrong member is invalid.
import glob
import json
import os
import re
import subprocess
import sys

program, schema_file, folder = sys.argv[1:]
schema = json.load(open(schema_file))
defs = schema["$defs"]
problems = []


def check(holds, message):
    if not holds:
        problems.append(message)


def answer(document):
    """The errors of gspmd-plan for a document."""
    done = subprocess.run([program, "-"], input=json.dumps(document), capture_output=True, text=True, timeout=60)
    return done.stderr


def members_at(place, text):
    """The members that the reader lists for the object at `place`."""
    found = re.search(re.escape(place) + r": `surplus` is not a member here; (?:the members are: (.*)|leave it out)", text)
    return None if found is None else set((found[1] or "").split())


def compare(what, place, document, properties):
    listed = members_at(place, answer(document))
    wanted = set(properties) - {"comment"}
    check(listed == wanted, f"{what}: the reader lists {listed and sorted(listed)}, and the schema {sorted(wanted)}")


rules = [(rule["if"]["properties"]["op"], rule["then"]) for rule in defs["operator"]["allOf"] if "op" in rule["if"].get("properties", {})]
shapes = {}  # by operator: the rule for its operands and attrs
for condition, then in rules:
    if "attrs" in then.get("properties", {}) and "operands" in then["properties"]:
        for name in condition.get("enum", [condition.get("const")]):
            shapes[name] = then["properties"]

# ---- operators -------------------------------------------------------------------------------------------------------
shown = subprocess.run([program, "--help"], capture_output=True, text=True).stdout
operators = shown.rpartition("operators: ")[2].split()
check(len(operators) > 80, "--help lists no operators")
automatic = set(operators) | {"loop", "cond", "reduce_by", "scan_by"}
check(set(defs["op"]["properties"]["op"]["enum"]) == automatic, f"operators: {set(defs['op']['properties']['op']['enum']) ^ automatic}")
only_strict = set(defs["strict_op"]["properties"]["op"]["enum"]) - automatic
check(set(shapes) == automatic | only_strict, f"operators without a rule: {(automatic | only_strict) ^ set(shapes)}")

mesh = {"axes": [["x", 2]]}
float_input = {"name": "a", "dtype": "f32", "shape": [4, 4]}
int_input = {"name": "i", "dtype": "s32", "shape": [4, 4]}
samples = {"dtype": "f32", "direction": "EQ", "kind": "add", "mode": "fill", "equation": "ij->ij", "dimension_numbers": "io,io->io",
           "amount": 1, "dim": 0, "taps": [[1.0, [0, 0]]], "verb": "permute", "from": "V", "to": "V", "axis": "x", "axes": ["x"]}


def base(op, mode=None):
    document = {"mesh": mesh, "inputs": [float_input, int_input], "ops": [op], "outputs": ["o"]}
    return document if mode is None else {"mode": mode, **document}


for name, rule in sorted(shapes.items()):
    mode = "manual" if name in only_strict - {"manual"} else "explicit" if name in only_strict else None
    least, most = rule["operands"]["minItems"], rule["operands"]["maxItems"]
    properties = rule["attrs"]["properties"]
    given = {key: samples[key] for key in properties if key in samples}
    op = {"name": "o", "op": name, "operands": ["a"] * max(least, 1 if name in ("opaque", "manual") else 0), "attrs": {**given, "surplus": 1}}
    if name in ("loop", "manual"):
        op["body"] = {"inputs": ["c"], "outputs": ["c"]}
    if name == "cond":
        op["branches"] = [{"inputs": [], "outputs": ["a"]}]
    if name in ("reduce_by", "scan_by"):
        op["combine"] = {"inputs": ["l", "r"], "outputs": ["l"]}
    if name == "reshard":
        op["sharding"] = [[], []]
    listed = members_at("ops[0].attrs", answer(base(op, mode)))
    wanted = set(properties) - {"comment"}
    if name == "random":  # the members depend on the type
        listed = listed | {"p"}
    check(listed == wanted, f"{name}: the reader lists {listed and sorted(listed)}, and the schema {sorted(wanted)}")
    for count in (least - 1, most + 1):
        if name in operators and count >= 0:
            text = answer(base({"name": "o", "op": name, "operands": ["a"] * count}))
            check("operands: " in text, f"{name}: {count} operands are accepted")

# ---- other objects ---------------------------------------------------------------------------------------------------
op = {"name": "o", "op": "negative", "operands": ["a"]}
for kind, mode in (("document", None), ("strict_document", "manual")):
    found = re.search(r"`surplus` is not a member here; the members are: (.*)", answer({**base(op, mode), "surplus": 1}))
    check(found and set(found[1].split()) == set(defs[kind]["properties"]) - {"comment"}, f"{kind}: the reader lists {found and found[1]}")
compare("mesh", "mesh", {**base(op), "mesh": {**mesh, "surplus": 1}}, defs["mesh"]["properties"])
links = {"flops_per_second": 1, "links": {"x": {"topology": "torus", "bytes_per_second": 1, "surplus": 1}}, "surplus": 1}
text = {**base(op), "mesh": {**mesh, "network": links}}
compare("link", "mesh.network.links.x", text, defs["link"]["properties"])
one_switch = members_at("mesh.network", answer({**base(op), "mesh": {**mesh, "network": {"flops_per_second": 1, "bytes_per_second": 1, "surplus": 1}}}))
with_links = members_at("mesh.network", answer(text))
check(one_switch | with_links == set(defs["network"]["properties"]) - {"comment"}, f"network: {one_switch} and {with_links}")
compare("input", "inputs[0]", {**base(op), "inputs": [{**float_input, "surplus": 1}]}, defs["input"]["properties"])
compare("strict_input", "inputs[0]", {**base(op, "manual"), "inputs": [{**float_input, "surplus": 1}]}, defs["strict_input"]["properties"])
region_members = {"body", "while", "branches", "combine"}
compare("op", "ops[0]", base({**op, "surplus": 1}), set(defs["op"]["properties"]) - region_members)
loop = {"name": "o", "op": "loop", "operands": ["a"], "attrs": {"trips": 1}, "body": {"inputs": ["c"], "outputs": ["c"], "surplus": 1}}
compare("region", "ops[0].body", base(loop), defs["region"]["properties"])

# ---- documents -------------------------------------------------------------------------------------------------------
try:
    import jsonschema
except ImportError:  # Debian's package is for Debian's Python
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        import jsonschema
    except ImportError:
        jsonschema = None
        check("CI" not in os.environ, "the Python module jsonschema is missing: apt-get install python3-jsonschema")
        print("not tested: the documents, because the Python module jsonschema is missing")
if jsonschema:
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    accepted = [f for part in ("valid", "strict", "members", "run", "search") for f in sorted(glob.glob(f"{folder}/{part}/*.json"))]
    check(len(accepted) > 50, f"{len(accepted)} documents in {folder}")
    for file in accepted:
        for error in validator.iter_errors(json.load(open(file))):
            check(False, f"{file}: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}")
    # The mistakes of the other documents in invalid/ are not in their structure.
    for name in ("device_order_twice explicit_members inputs mesh missing_parts names network network_links next_values no_outputs "
                 "operators random regions reproducible scopes shardings terminal top_list").split():
        check(not validator.is_valid(json.load(open(f"{folder}/invalid/{name}.json"))), f"invalid/{name}.json is valid")
    for file in sorted(glob.glob(f"{folder}/members/*.json")):
        text = open(file).read()
        for at in [m.end() for m in re.finditer("{", text)]:
            check(not validator.is_valid(json.loads(text[:at] + '"surplus": 1, ' + text[at:])),
                  f"{file}: a member `surplus` is valid at {at}")
for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)
