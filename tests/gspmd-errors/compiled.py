#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compiled.py FILTER OUTPUT FILE...   checks gspmd-errors on the OUTPUT of a compiler for the FILEs of compile_fail/

Each mistake of a FILE must be one line with the place of a line `// <- here`, and the lines must contain each text
`// expect:` of the FILE. No other line of an error of gspmd may be left. compile_fail.cmake calls this script.
"""
import os
import re
import subprocess
import sys

see_message = re.compile(r"; see (?:message<>|the column that message<> names)$")
filter_, output, *files = sys.argv[1:]
with open(output, "rb") as f:
    done = subprocess.run([sys.executable, filter_], stdin=f, capture_output=True, timeout=60)
lines = done.stdout.decode(errors="replace").splitlines()
found = [line for line in lines if ": error: gspmd: " in line]
complaints = []
others = {"body.cpp", "captured_constant.cpp", "mpi_header.cpp"}  # one mistake of each is an error of the compiler, which passes unchanged
if done.returncode != (1 if found else 0) or done.stderr:
    complaints.append(f"status {done.returncode}, {done.stderr.decode(errors='replace')}")
mistakes = 0
for name in files:
    file = os.path.basename(name)
    with open(name, encoding="utf-8") as f:
        text = f.read()
    count = re.search(r"^// mistakes: (\d+)", text, re.M)
    count = (int(count[1]) if count else 1) - (file in others)
    mistakes += count
    here = {str(number) for number, line in enumerate(text.split("\n"), 1) if "// <- here" in line}
    own = [line for line in found if (at := re.match(r"(.*?):(\d+):\d+: ", line)) and os.path.basename(at[1]) == file and at[2] in here]
    if len(own) != count:
        complaints.append(f"{len(own)} lines for {name}")
    joined = "\n".join(lines if file in others else own)
    for expected in re.findall(r"// expect: *(.*\S)", text):
        # the filter joins the lines of message<>, and removes the reference to message<>; types are in the notes
        is_left_out = expected == "gspmd: the program is refused" or re.fullmatch(r"\w+<\w+>", expected)
        if not is_left_out and see_message.sub("", expected).replace("gspmd needs", "gspmd: needs") not in joined:
            complaints.append(f"{name}: not in its lines: {expected}")
others = others.intersection(map(os.path.basename, files))
left = [line for line in lines if line not in found and re.search(r"message<|static assertion failed|: error: ", line)]
if len(left) != len(others):
    complaints += [f"not removed: {line[:200]}" for line in left]
if len(found) != mistakes:
    complaints.append(f"{len(found)} sentences for {mistakes} mistakes")
if complaints:
    sys.exit("gspmd-errors:\n  " + "\n  ".join(complaints) + "\nIt prints:\n" + "\n".join(lines))
