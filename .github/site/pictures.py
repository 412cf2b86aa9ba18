# SPDX-License-Identifier: Apache-2.0
"""Draws the diagrams of the guide, for light and for dark pages, as wide as a phone shows with text that can be read.

    python3 .github/site/pictures.py            # writes include/pictures/*.svg
    python3 .github/site/pictures.py --check    # ends with 1 if a file there is another one"""
import os
import sys
from xml.sax.saxutils import escape

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../include/pictures")
WIDTH = 520
SIZE = 16  # of all text, at a width of 520: 11 pixels on a phone that is 360 wide
STYLE = """
    .ground { fill: #ffffff } .text { fill: #1f2328 } .soft { fill: #59636e } .line { stroke: #59636e; fill: none }
    .a { fill: #d5e6f8; stroke: #3b7dbd } .b { fill: #fbe1cb; stroke: #c8702a } .c { fill: #d3edcb; stroke: #45912f }
    .box { fill: #f3f4f6; stroke: #8b949e } .bad { stroke: #cf222e; fill: none }
    @media (prefers-color-scheme: dark) {
      .ground { fill: #161b22 } .text { fill: #e6edf3 } .soft { fill: #a5adb6 } .line { stroke: #a5adb6 }
      .a { fill: #1d3b5c; stroke: #6cb0f5 } .b { fill: #573117; stroke: #eb9a55 } .c { fill: #1f4a17; stroke: #7cc765 }
      .box { fill: #21262d; stroke: #6e7681 } .bad { stroke: #ff7b72 }
    }"""


def text(x, y, content, style="text", anchor="start", mono=False):
    family = ' font-family="ui-monospace, monospace" font-size="15"' if mono else ""
    return f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}"{family}>{escape(content)}</text>'


def rect(x, y, width, height, style, content="", under=""):
    parts = [f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>']
    middle = x + width / 2
    if under:
        parts += [text(middle, y + height / 2 - 4, content, anchor="middle"), text(middle, y + height / 2 + 16, under, "soft", "middle")]
    elif content:
        parts.append(text(middle, y + height / 2 + 6, content, anchor="middle"))
    return "\n".join(parts)


def line(*points, style="line", arrow=False, dashes=False):
    path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
    more = (' marker-end="url(#tip)"' if arrow else "") + (' stroke-dasharray="5 4"' if dashes else "")
    return f'<path class="{style}" d="{path}"{more}/>'


def cross(x, y):
    return line((x - 8, y - 8), (x + 8, y + 8), style="bad") + line((x - 8, y + 8), (x + 8, y - 8), style="bad")


def picture(height, about, *parts, by="pictures.py"):
    body = "\n".join(parts)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="about" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="system-ui, sans-serif" font-size="{SIZE}" stroke-width="1.5">
<!-- Written by .github/site/{by} -->
<title id="about">{escape(about)}</title>
<style>{STYLE}
    text {{ stroke: none }} .bad {{ stroke-width: 3 }}
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path class="line" d="M1 1 L7 4 L1 7"/></marker></defs>
<rect class="ground" width="{WIDTH}" height="{height}" rx="8"/>
{body}
</svg>
"""


def step():
    layers = [("layer 4", 12), ("layer 3", 88), ("layer 2", 164), ("layer 1", 240)]
    parts = [text(12, 26, "rank 0 computes gradients"), text(12, 302, "rank 1 computes gradients"), text(12, 168, "both average")]
    for y in (38, 234):
        parts += [rect(x, y, 72, 44, "a", name) for name, x in layers] + [rect(424, y, 84, 44, "c", "step")]
    parts += [rect(172, 136, 118, 50, "b", "bucket 0", "hidden"), rect(322, 136, 96, 50, "b", "bucket 1", "exposed")]
    for x, to in ((160, 176), (312, 326)):
        parts += [line((x, 82), (to, 134), arrow=True), line((x, 234), (to, 188), arrow=True)]
    parts += [line((414, 136), (426, 84), arrow=True), line((414, 186), (426, 232), arrow=True),
              text(12, 336, "time", "soft"), line((54, 331), (506, 331), arrow=True)]
    return picture(350, "Two ranks. Each computes the gradients of layers 4 to 1. Layers 4 and 3 fill bucket 0, layers 2 and 1 bucket 1. Bucket 0 is "
                   "averaged while layers 2 and 1 are computed, bucket 1 after them. Then each rank makes the step.", *parts)


def objects():
    columns = {"group": 322, "model": 392, "optimizer": 470}
    rows = [("ddp_group_create", "group"), ("ddp_model_create", "model"), ("ddp_model_add_array", "model"), ("ddp_model_commit", "model"),
            ("ddp_optimizer_create_adam", "optimizer"), None, ("ddp_model_begin_backward", "model"), ("ddp_model_mark_ready", "model"),
            ("ddp_model_end_backward", "model"), ("ddp_optimizer_step", "optimizer"), None, ("ddp_optimizer_destroy", "optimizer"),
            ("ddp_model_destroy", "model"), ("ddp_group_destroy", "group")]
    top, pitch = 62, 30
    at = [top + pitch * number for number in range(len(rows))]
    first = {name: min(y for y, row in zip(at, rows) if row and row[1] == name) for name in columns}
    last = {name: max(y for y, row in zip(at, rows) if row and row[1] == name) for name in columns}
    parts = [text(14, 28, "calls, in time", "soft")] + [text(x, 28, name, anchor="middle") for name, x in columns.items()]
    parts += [rect(x - 15, first[name] - 12, 30, last[name] - first[name] + 24, style)
              for (name, x), style in zip(columns.items(), ("a", "b", "c"))]
    parts.append(rect(8, at[5] - 8, 262, at[9] - at[5] + 26, "box"))
    parts.append(text(18, at[5] + 12, "each step"))
    for y, row in zip(at, rows):
        if row:
            x = columns[row[1]]
            parts += [text(18, y + 5, row[0], mono=True), line((274, y), (x, y), dashes=True), f'<circle class="box" cx="{x}" cy="{y}" r="6"/>']
    return picture(at[-1] + 28, "The group lives from ddp_group_create to ddp_group_destroy. Within it the model is created, gets its arrays and is committed. "
                   "The optimizer is made of the model. Each step begins a pass, marks gradients, ends the pass, and makes the optimizer's step.", *parts)


def host(x, y, name, ranks, width=220):
    parts = [rect(x, y, width, 150, "box"), text(x + 12, y + 24, name)]
    room = (width - 36) / 2
    parts += [rect(x + 12 + number * (room + 12), y + 36, room, 40, "a", rank) for number, rank in enumerate(ranks)]
    parts.append(rect(x + 12, y + 100, width - 24, 38, "b", "shared memory"))
    parts += [line((x + 12 + number * (room + 12) + room / 2, y + 77), (x + 12 + number * (room + 12) + room / 2, y + 98), arrow=True) for number in range(2)]
    return "\n".join(parts)


def transports():
    parts = [text(12, 26, "One host: no sockets, no copy of the library's gradients"), host(12, 38, "host a", ("rank 0", "rank 1")),
             text(12, 228, "Several hosts: sockets between them (Gloo module)"),
             host(12, 240, "host a", ("rank 0", "rank 1")), host(288, 240, "host b", ("rank 2", "rank 3")),
             line((234, 359), (286, 359), arrow=True), line((286, 366), (234, 366), arrow=True), text(260, 412, "sockets", anchor="middle"),
             text(12, 454, "Tensors on GPUs: NCCL, within a host and between hosts")]
    for number in range(4):
        x = 12 + 126 * number
        parts += [rect(x, 468, 116, 40, "a", f"rank {number}"), rect(x, 524, 116, 40, "c", "GPU"),
                  line((x + 58, 508), (x + 58, 522)), line((x + 58, 564), (x + 58, 578))]
    parts.append(rect(12, 580, 494, 38, "b", "NCCL"))
    return picture(632, "Ranks of one host use shared memory. Several hosts use shared memory within each host and sockets between them. "
                   "Tensors on GPUs are reduced by NCCL.", *parts)


def memory():
    def row(y, title, where, way, copies):
        parts = [text(12, y, title)]
        if way:
            parts += [rect(12, y + 12, 130, 50, "a", where), rect(196, y + 12, 144, 50, "b", *way),
                      line((144, y + 30), (194, y + 30), arrow=True), line((194, y + 46), (144, y + 46), arrow=True)]
        else:
            parts.append(rect(12, y + 12, 328, 50, "b", where, "summed in place"))
        return parts + [text(356, y + 42, copies)]

    parts = row(28, "Your own array, ranks of one host", "your array", ("shared chunks", "summed there"), "1 copy in, 1 out")
    parts += row(124, "NULL as gradient, or ddp_group_alloc", "memory that all ranks map", None, "no copy")
    parts += row(220, "Your own tensor on a GPU", "your tensor", ("bucket", "NCCL sums it"), "1 kernel in, 1 out")
    parts += row(316, "NULL on a GPU, or ddp_group_alloc", "bucket on the GPU", None, "no copy")
    parts.append(text(12, 412, "ddp_group_alloc: only if a bucket is one piece of memory.", "soft"))
    return picture(430, "Your own arrays are copied into shared chunks, summed there and copied back. Gradients of the library and memory of ddp_group_alloc are "
                   "summed in place. On GPUs one kernel packs a bucket and one unpacks it, unless the bucket is the library's.", *parts)


def recovery():
    top, pitch = 74, 46
    parts = []
    for number in range(5):
        y = top + pitch * number
        parts.append(text(12, y + 6, "new" if number == 4 else f"rank {number}"))
    lane = lambda number: top + pitch * number
    for number in range(4):
        parts.append(rect(76, lane(number) - 11, 92 if number == 2 else 104, 22, "a"))
    parts += [cross(170, lane(2)), rect(188, 52, 58, 4 * pitch - 2, "c"), rect(362, 52, 58, 5 * pitch - 2, "c")]
    for number, now in ((0, "0"), (1, "1"), (3, "2")):
        parts.append(rect(254, lane(number) - 11, 102, 22, "a"))
        parts.append(text(217, lane(number) + 6, now, anchor="middle"))
        parts.append(rect(428, lane(number) - 11, 80, 22, "a"))
        parts.append(text(391, lane(number) + 6, now, anchor="middle"))
    parts += [text(391, lane(4) + 6, "3", anchor="middle"), rect(428, lane(4) - 11, 80, 22, "a"), line((300, lane(4)), (358, lane(4)), arrow=True),
              text(254, lane(4) + 6, "waits", "soft")]
    parts += [text(122, 34, "train", "soft", "middle"), text(217, 34, "recover", anchor="middle"), text(305, 34, "train", "soft", "middle"),
              text(391, 34, "recover", anchor="middle"), text(468, 34, "train", "soft", "middle")]
    legend = ["A rank dies in step 41. Calls on the others fail: PEER_FAILED.", "All that are left call ddp_group_recover. They get new",
              "numbers and the state of step 40, and continue with step 41.", "A new rank waits. Calls fail with ABORTED; all recover,",
              "and the new rank gets the state of the others."]
    parts += [text(12, 318 + 26 * number, each, "soft") for number, each in enumerate(legend)]
    return picture(440, "Four ranks train. One dies. The three others call ddp_group_recover, get new numbers, and continue with the next step. "
                   "A new rank waits; all call ddp_group_recover again, and four ranks continue.", *parts)


def ports():
    parts = [rect(8, 8, 150, 372, "box"), text(22, 34, "host a"), rect(362, 8, 150, 372, "box"), text(376, 34, "host b"),
             rect(20, 122, 126, 48, "a", "rank 0"), rect(374, 122, 126, 48, "a", "rank 2"),
             rect(20, 262, 126, 48, "a", "ranks 0, 1"), rect(374, 262, 126, 48, "a", "ranks 2, 3"),
             rect(20, 52, 126, 40, "c", "ddprun"), rect(374, 52, 126, 40, "c", "sshd")]
    parts += [line((148, 72), (372, 72), arrow=True), text(260, 62, "22: ssh", anchor="middle"), text(260, 94, "ddprun --hosts only", "soft", "middle"),
              line((372, 146), (148, 146), arrow=True), text(260, 136, "29500: rendezvous", anchor="middle"),
              text(260, 168, "MASTER_PORT, --port,", "soft", "middle"), text(260, 190, "else random (--hosts)", "soft", "middle"),
              line((148, 276), (372, 276), arrow=True), line((372, 292), (148, 292), arrow=True), text(260, 264, "data and messages", anchor="middle"),
              text(260, 316, "DDP_PORT_RANGE, else", "soft", "middle"), text(260, 338, "any free port", "soft", "middle"),
              text(12, 408, "Ports for data are open while connections are made, the"), text(12, 432, "rendezvous until all ranks are there. In a group that can"),
              text(12, 456, "recover, each rank keeps one port open.")]
    return picture(474, "From host a to host b: port 22 for ddprun --hosts. From host b to host a: the rendezvous at rank 0. In both directions: ports of "
                   "DDP_PORT_RANGE for data.", *parts)


def tree():
    def draw(x, pitch, low, high, parts, leaves):
        """The node of leaves low to high - 1; gives its place."""
        if high - low == 1:
            return x + pitch * low, leaves
        middle = 1
        while middle * 2 < high - low:
            middle *= 2
        left, right = draw(x, pitch, low, low + middle, parts, leaves), draw(x, pitch, low + middle, high, parts, leaves)
        depth = (high - low - 1).bit_length()
        at = ((left[0] + right[0]) / 2, leaves - 20 - 44 * depth)
        for child in (left, right):
            parts.insert(0, line(at, child))
        parts.append(f'<circle class="b" cx="{at[0]:g}" cy="{at[1]:g}" r="12"/>')
        parts.append(text(at[0], at[1] + 6, "+", anchor="middle"))
        return at

    parts = [text(12, 28, "Six ranks: ((x0 + x1) + (x2 + x3)) + (x4 + x5)")]
    draw(52, 84, 0, 6, parts, 220)
    parts += [rect(28 + 84 * number, 206, 48, 32, "a", f"x{number}") for number in range(6)]
    parts.append(text(12, 278, "Eight parts on three ranks: each rank adds its own"))
    draw(42, 62, 0, 8, parts, 466)
    shares = [(0, 2, "a", "rank 0"), (2, 4, "b", "rank 1"), (4, 8, "c", "rank 2")]
    for low, high, style, name in shares:
        parts += [rect(20 + 62 * number, 452, 44, 32, style, f"p{number}") for number in range(low, high)]
        parts.append(text(42 + 62 * (low + high - 1) / 2, 508, name, anchor="middle"))
    return picture(524, "A sum over six ranks: two sums of two and two, and then the sum of four and the sum of two. Eight parts on three ranks: "
                   "ranks 0 and 1 add two parts each, rank 2 adds four, and the tree is the same as of eight ranks.", *parts)


def main():
    differ = []
    for draw in (step, objects, transports, memory, recovery, ports, tree):
        path, wanted = os.path.join(FOLDER, draw.__name__ + ".svg"), draw()
        if "--check" in sys.argv[1:]:
            with open(path, encoding="utf-8") as file:
                differ += [path] if file.read() != wanted else []
            continue
        os.makedirs(FOLDER, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(wanted)
    for path in differ:
        print(f"{os.path.relpath(path)} is not what {os.path.basename(__file__)} draws")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
