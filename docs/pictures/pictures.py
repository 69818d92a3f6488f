#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pictures.py [--check]   writes the pictures of the documents: NAME.svg in this folder for each function picture_NAME.

--check   writes nothing, and fails if a file differs from its function, is missing, or has no function

All pictures are 400 units wide and have a background, so they are readable on narrow pages, in light and dark themes.
Devices have a colour and their number, so no fact depends on colours alone.
"""
import os
import sys

devices = ["#9ecae9", "#ffd27f", "#a8d8a0", "#f2a9b8"]  # the colour of device k
ink, faint, paper, shade = "#1c2530", "#7b8794", "#ffffff", "#eef1f4"
red, blue = "#b3261e", "#1f5fa8"
sans = "Helvetica, Arial, sans-serif"
mono = "Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class Picture:
    def __init__(self, title, height):
        self.title, self.height, self.parts = title, height, []

    def rect(self, x, y, w, h, fill=paper, stroke=ink, line=1, dash="", radius=0):
        more = (f' stroke-dasharray="{dash}"' if dash else "") + (f' rx="{radius}"' if radius else "")
        self.parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="{fill}" stroke="{stroke}" stroke-width="{line}"{more}/>')

    def text(self, x, y, words, size=12, fill=ink, anchor="middle", font=sans, bold=False):
        words = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text x="{x}" y="{y}" font-family="{font}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"{weight}>'
                          f"{words}</text>")

    def left(self, x, y, words, **more):
        self.text(x, y, words, anchor="start", **more)

    def code(self, x, y, words, size=11, anchor="start", fill=ink):
        self.text(x, y, words, size=size, anchor=anchor, font=mono, fill=fill)

    def line(self, x1, y1, x2, y2, stroke=ink, line=1.0, dash=""):
        more = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{stroke}" stroke-width="{line}"{more}/>')

    def arrow(self, x1, y1, x2, y2, stroke=ink, line=1.5):
        """A line with a head at (x2, y2)."""
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        bx, by = x2 - 7 * dx, y2 - 7 * dy
        self.line(x1, y1, round(bx, 1), round(by, 1), stroke, line)
        points = [(x2, y2), (bx - 4 * dy, by + 4 * dx), (bx + 4 * dy, by - 4 * dx)]
        self.parts.append('<polygon points="' + " ".join(f"{px:.1f},{py:.1f}" for px, py in points) + f'" fill="{stroke}"/>')

    def device(self, x, y, w, h, k, label=None, size=12):
        self.rect(x, y, w, h, devices[k % len(devices)])
        self.text(x + w / 2, y + h / 2 + size * 0.36, str(k) if label is None else label, size=size)

    def hatched(self, x, y, w, h, fill=shade):
        self.rect(x, y, w, h, fill, faint)
        for k in range(1, int((w + h) // 6)):
            left, right = max(0, 6 * k - h), min(w, 6 * k)
            self.line(x + left, y + 6 * k - left, x + right, y + 6 * k - right, faint, 0.7)

    def svg(self):
        title = self.title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="600" height="{self.height * 3 // 2}" viewBox="0 0 400 {self.height}" '
                f'role="img">\n<title>{title}</title>\n'
                f'<rect x="0" y="0" width="400" height="{self.height}" rx="8" fill="{paper}" stroke="#c5ccd3"/>\n'
                + "\n".join(self.parts) + "\n</svg>\n")


def cells(p, x, y, rows, columns, size, fill):
    """A grid of squares; fill(i, j) returns a colour, or None for no square."""
    for i in range(rows):
        for j in range(columns):
            colour = fill(i, j)
            if colour == "hatched":
                p.hatched(x + j * size, y + i * size, size, size)
            elif colour:
                p.rect(x + j * size, y + i * size, size, size, colour, ink, 0.6)


def picture_first():
    p = Picture("Two annotated matrices on a mesh of 2 x 2 devices, and the shardings that gspmd infers", 286)

    def title(x, y, name, sharding, inferred):
        p.left(x, y, name, bold=True)
        p.code(x, y + 14, sharding, size=10, fill=blue if inferred else ink)

    def tiles(x, y, w, h, rows, columns, held):
        """`rows` x `columns` tiles. `held(r, c)`: the devices that hold a tile, as a stack."""
        for r in range(rows):
            for c in range(columns):
                ks = held(r, c)
                for n, k in reversed(list(enumerate(ks))):
                    tw, th = w / columns - 8, h / rows - 8
                    p.device(x + c * w / columns + 5 * n, y + r * h / rows - 5 * n, tw, th, k, "" if n else ", ".join(str(q) for q in ks))

    p.left(14, 22, "mesh", bold=True)
    p.code(14, 36, "data=2, model=2", size=10)
    p.text(76, 54, "model", size=11)
    p.text(22, 96, "data", size=11)
    for k in range(4):
        p.device(42 + 36 * (k % 2), 60 + 32 * (k // 2), 34, 30, k)
    p.left(14, 138, "A stack is one tile on several devices.", size=10)
    p.left(218, 138, "Black: annotated.", size=10)
    p.left(314, 138, "Blue: inferred.", size=10, fill=blue)
    title(150, 22, "x [64,512]", 'split<"data", _>', False)
    tiles(150, 50, 80, 80, 2, 1, lambda r, c: [2 * r, 2 * r + 1])
    p.text(247, 92, "\u00d7", size=18)
    title(268, 22, "w1 [512,2048]", 'split<_, "model">', False)
    tiles(268, 50, 112, 80, 1, 2, lambda r, c: [c, c + 2])
    p.line(10, 148, 390, 148, faint, 0.7)
    title(14, 168, "h = relu(x w1)", "[data, model]", True)
    tiles(14, 196, 88, 80, 2, 2, lambda r, c: [2 * r + c])
    p.text(112, 238, "\u00d7", size=18)
    title(128, 168, "w2 [2048,512]", "[model, _]", True)
    tiles(128, 196, 76, 80, 2, 1, lambda r, c: [r, r + 2])
    p.text(242, 214, "partial sums", size=10)
    p.arrow(222, 226, 262, 226)
    p.code(242, 243, "all_reduce", size=9, anchor="middle", fill=red)
    p.text(242, 256, "over model", size=10)
    title(286, 168, "y = h w2", "[data, _]", True)
    tiles(286, 196, 80, 80, 2, 1, lambda r, c: [2 * r, 2 * r + 1])
    return p


def picture_mesh():
    p = Picture("A mesh of 2 x 2 devices, and the shards of a matrix for four shardings", 290)
    p.text(62, 22, "mesh", bold=True)
    p.code(18, 38, "data=2, model=2")
    p.text(86, 62, "model", fill=blue)
    for k in range(2):
        p.text(66 + 40 * k, 78, str(k), fill=blue)
        p.text(38, 106 + 40 * k, str(k), fill=red)
    p.text(8, 126, "data", fill=red, anchor="start", size=11)
    for k in range(4):
        p.device(46 + 40 * (k % 2), 84 + 40 * (k // 2), 38, 36, k)
    p.left(18, 192, "A stack is one shard", size=11)
    p.left(18, 206, "on several devices.", size=11)

    def stack(x, y, w, h, ks):
        for n, k in reversed(list(enumerate(ks))):
            p.device(x + 5 * n, y - 5 * n, w, h, k, "" if n else ", ".join(str(q) for q in ks))

    def matrix(x, y, sharding, words, tiles):
        p.code(x, y, sharding, size=12)
        p.left(x, y + 15, words, size=11, fill="#4a5560")
        for tx, ty, w, h, ks in tiles:
            stack(x + tx, y + 34 + ty, w, h, ks)

    matrix(155, 22, "[data, _]", "rows over data", [(0, 0, 80, 34, [0, 1]), (0, 42, 80, 34, [2, 3])])
    matrix(280, 22, "[_, model]", "columns over model", [(0, 0, 38, 70, [0, 2]), (50, 0, 38, 70, [1, 3])])
    matrix(155, 160, "[data, model]", "both dims", [(44 * (k % 2), 38 * (k // 2), 40, 34, [k]) for k in range(4)])
    matrix(280, 160, "[data,model, _]", "rows over both axes", [(0, 20 * k, 80, 17, [k]) for k in range(4)])
    return p


def picture_replicas():
    p = Picture("A weight that is split over model and replicated along data: four devices hold two different shards", 208)
    p.text(200, 20, "a weight w [4,6] with sharding [_, model] on data=2, model=2", size=12)
    cells(p, 20, 66, 4, 6, 14, lambda i, j: devices[0] if j < 3 else devices[1])
    p.text(62, 58, "w", bold=True)
    p.text(41, 138, "part 0", size=11)
    p.text(83, 138, "part 1", size=11)
    p.arrow(112, 94, 140, 94)
    for k in range(4):
        x, y = 150 + 122 * (k % 2), 48 + 68 * (k // 2)
        p.rect(x, y, 112, 60, shade, faint, radius=4)
        p.left(x + 6, y + 27, f"device {k}", size=11)
        p.left(x + 6, y + 42, f"part {k % 2}", size=11)
        cells(p, x + 66, y + 8, 4, 3, 11, lambda i, j, k=k: devices[k % 2])
    for k in range(2):
        p.text(206 + 122 * k, 42, f"model {k}", size=11, fill=blue)
    p.text(200, 198, "Devices of one column are replicas: they hold equal data.", size=11)
    return p


def picture_partial():
    p = Picture("Partial values: each device multiplies its part of the summed dim; all_reduce or reduce_scatter adds the results", 292)
    p.left(14, 20, "y = x w, and the summed dim is split over two devices", size=12)
    for k in range(2):
        y = 36 + 60 * k
        p.left(14, y + 24, f"device {k}", size=11)
        for part in range(2):
            mine = part == k
            p.rect(74 + 26 * part, y, 26, 40, devices[k] if mine else paper, ink if mine else faint, 1, "" if mine else "3 3")
            p.rect(150, y + 20 * part, 48, 20, devices[k] if mine else paper, ink if mine else faint, 1, "" if mine else "3 3")
        p.text(100, y + 54, f"x[:, {k}]", size=10, fill="#4a5560")
        p.text(137, y + 25, "\u00d7", size=16)
        p.text(174, y + 54, f"w[{k}, :]", size=10, fill="#4a5560")
        p.text(214, y + 25, "=", size=16)
        p.rect(232, y, 48, 40, devices[k], ink, 1, "4 2")
        p.text(256, y + 24, f"P{k}", bold=True)
    p.left(290, 56, "partial values:", size=11, bold=True)
    p.left(290, 72, "their sum is y,", size=11)
    p.left(290, 88, "and each has", size=11)
    p.left(290, 104, "the shape of y", size=11)
    p.line(14, 158, 386, 158, faint, 0.8)
    both = "#d9c9ef"
    for n, (name, words) in enumerate([("all_reduce", "each device gets the sum"), ("reduce_scatter", "each device gets its part")]):
        x = 14 + 194 * n
        p.code(x, 178, name, size=12)
        p.left(x, 194, words, size=11, fill="#4a5560")
        for k in range(2):
            p.left(x, 228 + 46 * k, f"device {k}", size=11)
            if n == 0:
                p.rect(x + 58, 204 + 44 * k, 48, 38, both)
                p.text(x + 82, 227 + 44 * k, "P0+P1", size=11)
            else:
                for part in range(2):
                    mine = part == k
                    p.rect(x + 58, 204 + 44 * k + 19 * part, 48, 19, both if mine else paper, ink if mine else faint, 1, "" if mine else "3 3")
                    if mine:
                        p.text(x + 82, 218 + 44 * k + 19 * part, "P0+P1", size=11)
    return p


def picture_collectives():
    p = Picture("The data of three devices before and after each collective", 338)
    tints = ["#9ecae9", "#ffd27f", "#a8d8a0"]
    p.text(190, 20, "before", bold=True)
    p.text(332, 20, "after", bold=True)
    for side in (148, 290):
        for k in range(3):
            p.text(side + 14 + 36 * k, 34, str(k), size=10, fill="#4a5560")
    p.left(12, 34, "device", size=10, fill="#4a5560")

    def box(x, y, parts):
        for n in range(3):
            kind = parts[n]
            if kind is None:
                p.rect(x, y + 12 * n, 29, 12, paper, "#c5ccd3", 0.6)
            else:
                tint, label = kind
                p.rect(x, y + 12 * n, 29, 12, tint, ink, 0.7)
                if label:
                    p.text(x + 14.5, y + 9.6 + 12 * n, label, size=10)

    def row(n, name, before, after):
        y = 40 + 49 * n
        p.code(12, y + 22, name, size=11)
        for k in range(3):
            box(148 + 36 * k, y, [before(k, part) for part in range(3)])
            box(290 + 36 * k, y, [after(k, part) for part in range(3)])
        p.arrow(257, y + 18, 282, y + 18)

    total = "#d9c9ef"
    letters = "abc"
    own = lambda k, part: (tints[k], letters[k]) if part == k else None
    everything = lambda k, part: (tints[part], letters[part])
    term = lambda k, part: (tints[k], f"{letters[k]}{part}")
    row(0, "all_gather", own, everything)
    row(1, "all_slice", everything, own)
    row(2, "all_reduce", term, lambda k, part: (total, f"\u03a3{part}"))
    row(3, "reduce_scatter", term, lambda k, part: (total, f"\u03a3{part}") if part == k else None)
    row(4, "all_to_all", term, lambda k, part: (tints[part], f"{letters[part]}{k}"))
    row(5, "collective_permute", own, lambda k, part: (tints[(k - 1) % 3], letters[(k - 1) % 3]) if part == k else None)
    return p


def picture_halo():
    p = Picture("A halo exchange with corners: first rows along x, then columns along y with the rows that were received before", 300)
    size, n = 13, 4

    def panel(x0, title, steps):
        p.text(x0 + 92, 20, title, bold=True, size=12)
        for k in range(4):
            x, y = x0 + 97 * (k % 2), 44 + 106 * (k // 2)

            def fill(i, j, k=k):
                r, c = k // 2, k % 2
                inside_i, inside_j = 1 <= i <= n, 1 <= j <= n
                if inside_i and inside_j:
                    return devices[k]
                other_r = 0 if i == 0 and r == 1 else 1 if i == n + 1 and r == 0 else r if inside_i else None
                other_c = 0 if j == 0 and c == 1 else 1 if j == n + 1 and c == 0 else c if inside_j else None
                if other_r is None or other_c is None:
                    return None
                if other_c != c and steps < 2:
                    return "hatched"
                return devices[2 * other_r + other_c]

            cells(p, x, y, n + 2, n + 2, size, fill)
            p.rect(x + size, y + size, n * size, n * size, "none", ink, 2)
            p.text(x + 3 * size, y + 3.35 * size, str(k), bold=True)

    panel(12, "1. rows, over x", 1)
    panel(204, "2. columns, over y", 2)
    for x in (12 + 39, 12 + 97 + 39):
        p.arrow(x, 112, x, 160, red)
        p.arrow(x + 14, 160, x + 14, 112, red)
    for y in (44 + 39, 150 + 39):
        p.arrow(204 + 64, y, 204 + 112, y, red)
        p.arrow(204 + 112, y + 14, 204 + 64, y + 14, red)
    p.rect(14, 256, 12, 12, "none", ink, 2)
    p.left(32, 266, "shard of a device; the cells around it are its halo", size=11)
    p.hatched(14, 276, 12, 12)
    p.left(32, 286, "not received yet; corners arrive with the columns", size=11)
    return p


def picture_ghost_zone():
    p = Picture("Ghost zones: after one exchange of four layers a device computes four sweeps; the valid cells shrink by one at each end", 206)
    p.text(200, 20, "one device, a stencil of radius 1, ghost<4>", bold=True, size=12)
    size, own, width = 15, 8, 4
    for sweep in range(5):
        y = 36 + 28 * sweep
        p.left(12, y + 12, "exchange" if sweep == 0 else f"sweep {sweep}", size=11)
        for c in range(own + 2 * width):
            x = 88 + c * size
            if width <= c < width + own:
                p.rect(x, y, size, size, devices[0], ink, 0.7)
            elif sweep <= c < own + 2 * width - sweep:
                p.rect(x, y, size, size, devices[1 if c < width else 2], ink, 0.7)
            else:
                p.rect(x, y, size, size, paper, "#c5ccd3", 0.7)
        p.left(336, y + 12, "4 layers" if sweep == 0 else f"{own + 2 * (width - sweep)} cells", size=11)
    p.text(200, 192, "Yellow and green cells are the neighbours'; they are computed twice.", size=10.5)
    return p


def picture_uneven():
    p = Picture("Uneven shards: ten rows over four devices by gspmd, and by the balanced blocks of most MPI codes", 250)

    def blocks(x, title, note, counts, longest):
        p.left(x, 22, title, bold=True, size=12)
        p.left(x, 38, note, size=11, fill="#4a5560")
        y = 50
        first = 0
        for k, count in enumerate(counts):
            for r in range(longest):
                if r < count:
                    p.rect(x, y + 12 * r, 70, 12, devices[k], ink, 0.7)
                elif longest == 3 and title.startswith("gspmd"):
                    p.hatched(x, y + 12 * r, 70, 12)
            words = f"rows {first} to {first + count - 1}" if count > 1 else f"row {first}"
            p.left(x + 78, y + 12, f"device {k}", size=11)
            p.left(x + 78, y + 26, words, size=11, fill="#4a5560")
            first += count
            y += 12 * longest + 8
    blocks(14, "gspmd", "10 / 4 rounded up: 3, 3, 3, 1", [3, 3, 3, 1], 3)
    blocks(210, "balanced", "3, 3, 2, 2: convert by to_step", [3, 3, 2, 2], 3)
    p.hatched(14, 230, 14, 12)
    p.left(34, 240, "padding: never changes a result", size=11)
    return p


def picture_planning():
    p = Picture("Stages of planning: trace, rewrite, complete, choose, emit, lower, order and place", 372)
    stages = [
        ("trace", "calls your function on values: a graph of operators"),
        ("rewrite", "composes movements, merges equal operators"),
        ("complete", "infers a sharding for every value"),
        ("choose", "picks the split of each operator by its time"),
        ("emit", "inserts collectives; shapes become local"),
        ("lower", "fuses operators into loops: steps of kernels"),
        ("order", "orders the steps, for little memory"),
        ("place", "an offset in the arena for each buffer"),
    ]
    for n, (name, words) in enumerate(stages):
        y = 14 + 39 * n
        p.rect(14, y, 84, 27, devices[0] if n < 2 else devices[1] if n < 4 else devices[2], ink, 1, radius=5)
        p.text(56, y + 18, name, bold=True, size=12)
        p.left(112, y + 18, words, size=11)
        p.arrow(56, y + 27, 56, y + 39)
    p.rect(14, 326, 84, 30, shade, ink, 1.5, radius=5)
    p.text(56, 345, "plan", bold=True, size=12)
    p.left(112, 338, "a table of steps: the same on every device,", size=11)
    p.left(112, 353, "a compile-time constant or a run-time object", size=11)
    p.line(384, 106, 384, 144, red, 1.5)
    p.line(384, 144, 360, 144, red, 1.5)
    p.arrow(384, 106, 330, 106, red)
    p.left(262, 123 + 5, "other proposals", size=11, fill=red)
    return p


def picture_modes():
    p = Picture("Who writes the all_reduce of a product: the planner in the automatic mode, you in the explicit and manual mode", 282)
    rows = [
        ("automatic", "whole tensors", ["auto y = einsum<\"bf,fd->bd\">(h, w);", "return relu(y);"],
         "The planner inserts the all_reduce.", "gspmd inserts", devices[0]),
        ("explicit", "whole tensors, typed", ["auto y = einsum<\"bf,fd->bd\">(h, w);", "return relu(reshard<replica<\"model\">>(y));"],
         "Without the reshard it does not compile.", "types check", devices[1]),
        ("manual", "the shards of a device", ["auto y = einsum<\"bf,fd->bd\">(h, w);", "return relu(local::all_reduce<\"model\">(y));"],
         "Without the all_reduce it does not compile.", "states check", devices[2]),
    ]
    for n, (name, view, code, words, who, colour) in enumerate(rows):
        y = 12 + 90 * n
        p.rect(12, y, 376, 80, paper, ink, 1, radius=5)
        p.rect(12, y, 94, 80, colour, ink, 1, radius=5)
        p.text(59, y + 26, name, bold=True, size=13)
        p.text(59, y + 46, who, size=10.5)
        p.left(116, y + 18, "you write a program for " + view, size=11, fill="#4a5560")
        p.code(116, y + 36, code[0], size=10)
        p.code(116, y + 50, code[1], size=10)
        p.left(116, y + 70, words, size=11)
    return p


def picture_states():
    p = Picture("The states of a value along an axis with two devices: replica, invariant, sharded, partial, varying", 330)
    for x, words in [(130, "device 0"), (196, "device 1"), (316, "its gradient")]:
        p.text(x, 20, words, size=11, bold=True)
    both = "#d9c9ef"

    def pair(x, y, first, second):
        for k, (fill, label, dash) in enumerate([first, second]):
            if label == "top" or label == "bottom":
                for part in range(2):
                    mine = (label == "top") == (part == 0)
                    p.rect(x + 66 * k, y + 18 * part, 50, 18, fill if mine else paper, ink if mine else faint, 1, "" if mine else "3 3")
            else:
                p.rect(x + 66 * k, y, 50, 36, fill, ink, 1, dash)
                p.text(x + 25 + 66 * k, y + 23, label, size=12)

    rows = [
        ("replica", (both, "A", ""), (both, "A", ""), "partial: each device", "has a term of the sum"),
        ("invariant", (both, "A", ""), (both, "A", ""), "whole and equal", "on each device"),
        ("sharded", (devices[0], "top", ""), (devices[1], "bottom", ""), "sharded: the same", "part as the value"),
        ("partial", (devices[0], "P0", "4 2"), (devices[1], "P1", "4 2"), "a replica", ""),
        ("varying", (devices[0], "B", ""), (devices[1], "C", ""), "varying", ""),
    ]
    for n, (name, first, second, words, more) in enumerate(rows):
        y = 32 + 52 * n
        p.left(14, y + 22, name, bold=True, size=12)
        pair(105, y, first, second)
        p.left(250, y + (16 if more else 22), words, size=11)
        p.left(250, y + 31, more, size=11)
    p.left(14, 304, "A is the value. Replicated is a replica or invariant. P0 + P1 = A.", size=11)
    p.left(14, 320, "B and C are unrelated: only the code of a device can have them.", size=11)
    return p


def picture_cost():
    p = Picture("The estimated time of a plan: each operator takes the larger of its flop time and its memory time; collectives are added", 246)
    p.left(14, 20, "operator: the larger of two times (roofline)", bold=True, size=12)
    rows = [("product", 150, 60), ("elementwise loop", 18, 96)]
    for n, (name, flops, memory) in enumerate(rows):
        y = 32 + 48 * n
        p.left(14, y + 20, name, size=11)
        p.rect(120, y, flops, 15, devices[0], ink, 2 if flops > memory else 0.7)
        p.left(124 + flops, y + 12, "flops / flop rate", size=11)
        p.rect(120, y + 18, memory, 15, devices[1], ink, 2 if memory > flops else 0.7)
        p.left(124 + memory, y + 30, "bytes / memory rate", size=11)
    p.left(14, 142, "collective: messages and bytes", bold=True, size=12)
    p.rect(120, 152, 36, 15, devices[3], ink, 0.7)
    p.rect(156, 152, 84, 15, devices[2], ink, 0.7)
    p.left(14, 164, "all_reduce", size=11)
    p.left(248, 164, "messages, then bytes", size=11)
    p.left(14, 194, "plan: the sum", bold=True, size=12)
    x = 14
    for width, colour, name in [(130, devices[0], "product"), (104, devices[2], "all_reduce"), (84, devices[1], "loop")]:
        p.rect(x, 204, width, 24, colour, ink, 0.8)
        p.text(x + width / 2, 220, name, size=11)
        x += width
    p.arrow(x + 4, 216, 388, 216)
    p.text(362, 208, "time", size=11)
    return p


def picture_block_cyclic():
    p = Picture("A matrix of 6 x 6 blocks, distributed block-cyclically over a grid of 2 x 2 devices", 240)
    p.text(104, 20, "matrix, in blocks", bold=True, size=12)
    p.text(302, 20, "memory of device 0", bold=True, size=12)
    for i in range(6):
        for j in range(6):
            k = 2 * (i % 2) + j % 2
            p.device(14 + 30 * j, 32 + 30 * i, 30, 30, k, size=11)
    for i in range(3):
        for j in range(3):
            p.device(248 + 36 * j, 50 + 36 * i, 36, 36, 0, f"{2 * i},{2 * j}", size=10)
    p.text(302, 178, "blocks (row, column)", size=11)
    p.text(302, 194, "0, 2, 4 in each dim", size=11)
    p.arrow(200, 104, 240, 104)
    p.text(104, 230, "block rows over x, columns over y", size=11)
    return p


def picture_pipeline():
    p = Picture("A pipeline with four stages, six microbatches and the schedule one_forward_one_backward", 176)
    drawing = """0 1 2 3 . . . . . . -0 _ 4 -1 _ 5 -2 _ . -3 _ . -4 _ . -5 _
. 0 1 2 . . . . -0 _ 3 -1 _ 4 -2 _ 5 -3 _ . -4 _ . -5 _ . .
. . 0 1 . . -0 _ 2 -1 _ 3 -2 _ 4 -3 _ 5 -4 _ . -5 _ . . . .
. . . 0 -0 _ 1 -1 _ 2 -2 _ 3 -3 _ 4 -4 _ 5 -5 _ . . . . . ."""  # docs/how_to/pipelines.md, a test compares it
    p.text(200, 20, "one_forward_one_backward{.stages = 4, .microbatches = 6}", size=12)
    width = 12.4
    for s, line in enumerate(drawing.split("\n")):
        y = 34 + 26 * s
        p.left(8, y + 15, f"stage {s}", size=11)
        marks = line.split(" ")
        for t, mark in enumerate(marks):
            x = round(56 + width * t, 1)
            if mark == ".":
                p.rect(x, y, width, 22, paper, "#c5ccd3", 0.6)
            elif mark == "_":
                continue
            elif mark.startswith("-"):
                p.rect(x, y, 2 * width, 22, devices[2], ink, 0.7)
                p.text(x + width, y + 15, mark[1:], size=10.5)
            else:
                p.rect(x, y, width, 22, devices[0], ink, 0.7)
                p.text(x + width / 2, y + 15, mark, size=10.5)
    p.arrow(56, 146, 390, 146)
    p.text(372, 140, "ticks", size=10.5)
    p.rect(56, 156, 14, 12, devices[0], ink, 0.7)
    p.left(76, 166, "forward", size=11)
    p.rect(140, 156, 14, 12, devices[2], ink, 0.7)
    p.left(160, 166, "backward", size=11)
    p.rect(234, 156, 14, 12, paper, "#c5ccd3", 0.6)
    p.left(254, 166, "idle", size=11)
    return p


def picture_overlap():
    p = Picture("Two layers with gathered weights: blocking, and overlapped", 150)

    def bar(x, y, w, words, colour):
        p.rect(x, y, w, 24, colour, ink, 0.8)
        p.text(x + w / 2, y + 16, words, size=10.5)

    gather, layer = devices[3], devices[0]
    p.left(10, 31, "blocking", size=11)
    x = 76
    for n, w in [(1, 84), (2, 84)]:
        bar(x, 15, 66, f"gather w{n}", gather)
        bar(x + 66, 15, w, f"layer {n}", layer)
        x += 66 + w
    p.left(10, 82, "overlapped", size=11)
    bar(76, 66, 66, "gather w1", gather)
    bar(142, 66, 84, "layer 1", layer)
    bar(226, 66, 84, "layer 2", layer)
    bar(142, 94, 66, "gather w2", gather)
    bar(226, 94, 66, "gather w3", gather)
    p.arrow(76, 130, 388, 130)
    p.text(372, 144, "time", size=11)
    return p


def picture_ghost_cells():
    p = Picture("A block of your own with one layer of ghost cells, as a strided view and its interior", 214)
    size = 18
    cells(p, 20, 40, 7, 9, size, lambda i, j: devices[0] if 0 < i < 6 and 0 < j < 8 else devices[1])
    p.rect(20 + size, 40 + size, 7 * size, 5 * size, "none", ink, 2.2)
    p.left(20, 28, "memory of this rank: 7 x 9 numbers", size=11)
    p.code(194, 60, "strided_view(u, {7, 9})", size=11)
    p.left(194, 76, "the whole block", size=11, fill="#4a5560")
    p.code(194, 104, ".interior({1, 1})", size=11)
    p.left(194, 120, "5 x 7 elements, rows 9 apart", size=11, fill="#4a5560")
    p.rect(194, 140, 14, 14, devices[0], ink, 0.7)
    p.left(214, 152, "elements of this rank", size=11)
    p.rect(194, 162, 14, 14, devices[1], ink, 0.7)
    p.left(214, 174, "ghost cells: copies of the", size=11)
    p.left(214, 188, "neighbours' elements, or", size=11)
    p.left(214, 202, "boundary values", size=11)
    return p


def picture_staggered():
    p = Picture("A staggered grid of 3 x 2 cells: pressures in the cells, velocities on the faces, walls around it", 226)
    x0, y0, w = 40, 34, 54
    for i in range(2):
        for j in range(3):
            p.rect(x0 + w * j, y0 + w * i, w, w, shade, faint)
            p.parts.append(f'<circle cx="{x0 + w * j + w // 2}" cy="{y0 + w * i + w // 2}" r="6" fill="{devices[0]}" stroke="{ink}"/>')
    for i in range(2):
        for j in range(4):
            x, y = x0 + w * j, y0 + w * i + w // 2
            p.arrow(x - 11, y, x + 12, y, red if 0 < j < 3 else faint, 2)
    for i in range(3):
        for j in range(3):
            x, y = x0 + w * j + w // 2, y0 + w * i
            p.arrow(x, y - 11, x, y + 12, blue if 0 < i < 2 else faint, 2)
    p.rect(x0, y0, 3 * w, 2 * w, "none", ink, 3)
    for n, (words, more, colour) in enumerate([("pressure p [2,3]", "in each cell", devices[0]), ("u [2,4]", "faces along dim 1: n + 1", red),
                                               ("v [3,3]", "faces along dim 0: m + 1", blue), ("walls", "their faces keep 0", faint)]):
        y = 44 + 32 * n
        p.rect(232, y - 9, 12, 12, colour, ink, 0.7)
        p.left(252, y + 1, words, size=11.5, bold=True)
        p.left(252, y + 15, more, size=11, fill="#4a5560")
    p.text(200, 190, "The fields have extents n and n + 1. In the plan, staggered(f, ...)", size=11)
    p.text(200, 205, "gives them one extent, so their shards begin at equal indices.", size=11)
    return p


def picture_unstructured():
    p = Picture("An unstructured mesh whose vertices and edges are split over two devices, and the halo of each device", 230)
    spots = [(40, 50), (100, 38), (160, 56), (66, 104), (126, 96), (186, 112), (44, 160), (104, 158), (164, 166)]
    edges = [(0, 1), (1, 2), (0, 3), (1, 3), (1, 4), (2, 4), (2, 5), (3, 4), (4, 5), (3, 6), (3, 7), (4, 7), (6, 7), (7, 8), (4, 8), (5, 8)]
    owner = [0, 0, 0, 0, 0, 1, 1, 1, 1]
    dark = [blue, "#a8690a"]
    for e, (a, b) in enumerate(edges):
        p.line(*spots[a], *spots[b], dark[e // 8], 2.5)
    for k, (x, y) in enumerate(spots):
        p.parts.append(f'<circle cx="{x}" cy="{y}" r="11" fill="{devices[owner[k]]}" stroke="{ink}"/>')
        p.text(x, y + 4, str(k), size=11)
    for d in range(2):
        mine = edges[8 * d:8 * d + 8]
        halo = sorted({v for edge in mine for v in edge if owner[v] != d})
        y = 44 + 78 * d
        p.rect(222, y - 12, 14, 14, devices[d], ink, 0.7)
        p.left(244, y, f"device {d}", bold=True, size=12)
        p.left(244, y + 17, "vertices " + ", ".join(str(v) for v in range(9) if owner[v] == d), size=11)
        p.line(222, y + 28, 236, y + 28, dark[d], 2.5)
        p.left(244, y + 32, f"edges {8 * d} to {8 * d + 7}", size=11)
        p.left(244, y + 47, "halo: " + ("vertices " if len(halo) > 1 else "vertex ") + ", ".join(map(str, halo)), size=11)
    p.text(200, 216, "A product sends each element of a halo once.", size=11)
    return p


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    folder = os.path.dirname(os.path.abspath(__file__))
    pictures = {name[len("picture_"):] + ".svg": make().svg() for name, make in sorted(globals().items()) if name.startswith("picture_")}
    failed = 0
    for name, text in pictures.items():
        path = os.path.join(folder, name)
        if not arguments:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            continue
        old = open(path, encoding="utf-8").read() if os.path.exists(path) else ""
        if old != text:
            print(f"docs/pictures/{name} differs from its function in pictures.py; run docs/pictures/pictures.py")
            failed = 1
    for name in sorted(os.listdir(folder)):
        if name.endswith(".svg") and name not in pictures:
            print(f"docs/pictures/{name} has no function in pictures.py")
            failed = 1
    return failed


sys.exit(main(sys.argv[1:]))
