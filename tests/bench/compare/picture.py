# SPDX-License-Identifier: Apache-2.0
"""The picture: all-reduce times over sizes (both axes logarithmic), and the cost of training steps as bars. SVG, standard library only."""

import math
from xml.sax.saxutils import escape

from results import Lookup
from ways import ALL_REDUCE, MODELS, SIZES, SIZE_NAMES, STEP_VARIANTS

COLOURS = {
    "zero-copy": "#0b6e4f", "staged": "#3aa17e", "bound": "#9aa0a6", "openmpi": "#b3541e", "mpich": "#d98324", "over-gloo": "#5b7db1",
    "gloo": "#7a4fa3", "torch": "#c2185b", "user": "#3aa17e", "user-in-place": "#1f8f68", "library": "#0b6e4f", "fused": "#0a5c9e", "sharded": "#4a90c2",
    "sharded-shared": "#2c6fa6", "fused-sharded-shared": "#08306b",
}
DRAWN = ("zero-copy", "staged", "bound", "openmpi", "mpich", "gloo", "torch")
PANEL, HEIGHT, GAP, TOP = 520, 360, 60, 70
LABELS = 190  # room for the names next to a panel's lines


class Canvas:
    def __init__(self):
        self.parts = []

    def line(self, x1, y1, x2, y2, colour, width=1.0, dash=""):
        self.parts.append('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f"%s/>' % (
            x1, y1, x2, y2, colour, width, ' stroke-dasharray="%s"' % dash if dash else ""))

    def path(self, points, colour, width, dash=""):
        text = " ".join("%.1f,%.1f" % point for point in points)
        self.parts.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="%.1f"%s/>' % (
            text, colour, width, ' stroke-dasharray="%s"' % dash if dash else ""))

    def rect(self, x, y, width, height, colour):
        self.parts.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>' % (x, y, max(width, 0.5), height, colour))

    def dot(self, x, y, colour):
        self.parts.append('<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>' % (x, y, colour))

    def text(self, x, y, text, size=12, colour="#222", anchor="start", weight="normal"):
        self.parts.append('<text x="%.1f" y="%.1f" font-size="%d" fill="%s" text-anchor="%s" font-weight="%s">%s</text>' % (
            x, y, size, colour, anchor, weight, escape(text)))

    def svg(self, width, height):
        return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif">\n'
                '<rect width="100%%" height="100%%" fill="white"/>\n%s\n</svg>\n') % (width, height, width, height, "\n".join(self.parts))


def time_name(us):
    if us < 1000:
        return "%g us" % us
    return "%g ms" % (us / 1000) if us < 1e6 else "%g s" % (us / 1e6)


def spread(labels, least):
    """Move labels (y, ...) apart so that none covers another; keeps their order."""
    placed = []
    for y, *rest in sorted(labels):
        placed.append([max(y, placed[-1][0] + least) if placed else y, *rest])
    return placed


def lines_panel(canvas, look, ranks, x0, y0):
    series = []
    for way in ALL_REDUCE:
        points = [(size, look.row("all_reduce", "all_reduce", way.name, ranks, "%d/again" % size)) for size in SIZES]
        points = [(size, row) for size, row in points if row]
        if points and way.name in DRAWN:
            series.append((way, points))
    if not series:
        return False
    values = [row["median"] for _, points in series for _, row in points]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def x_of(size):
        return x0 + (math.log2(size) - 9.5) / (27.2 - 9.5) * PANEL

    def y_of(us):
        return y0 + HEIGHT - (math.log10(us) - low) / (high - low) * HEIGHT

    canvas.text(x0, y0 - 14, "All-reduce, %d ranks: time a call (lower is better)" % ranks, 14, weight="bold")
    for power in range(low, high + 1):
        canvas.line(x0, y_of(10 ** power), x0 + PANEL, y_of(10 ** power), "#e3e3e3")
        canvas.text(x0 - 6, y_of(10 ** power) + 4, time_name(10 ** power), 11, "#666", "end")
    for size in SIZES:
        canvas.line(x_of(size), y0, x_of(size), y0 + HEIGHT, "#f0f0f0")
        canvas.text(x_of(size), y0 + HEIGHT + 16, SIZE_NAMES[size], 11, "#666", "middle")
    labels = []
    for way, points in series:
        colour, ours = COLOURS[way.name], not way.needs
        for size, row in points:
            canvas.line(x_of(size), y_of(row["low"]), x_of(size), y_of(row["high"]), colour, 5 if ours else 3)
            canvas.dot(x_of(size), y_of(row["median"]), colour)
        canvas.path([(x_of(size), y_of(row["median"])) for size, row in points], colour, 2.5 if ours else 1.5, "5 4" if way.name == "bound" else "")
        last = points[-1][1]["median"]
        labels.append((y_of(last), "%s, %s" % (way.label.split(":")[0], time_name(float("%.3g" % last))), colour, "bold" if ours else "normal"))
    for y, text, colour, weight in spread(labels, 15):
        canvas.text(x_of(SIZES[-1]) + 10, y + 4, text, 12, colour, weight=weight)
    return True


def bars_panel(canvas, look, model, x0, y0, width):
    """Whole steps; the grey part is forward and backward alone."""
    rows = []
    for ranks in look.ranks("step", model):
        for way, label in STEP_VARIANTS + [("torch", "PyTorch DDP, fused AdamW")]:
            ratio = look.median("step", model, way, ranks, "ratio")
            if ratio:
                rows.append((ranks, way, label, ratio))
    if not rows:
        return 0
    scale = (width - 250) / max(ratio for *_, ratio in rows)
    canvas.text(x0, y0, "Training step: %s" % MODELS[model], 14, weight="bold")
    canvas.text(x0, y0 + 16, "length: the step's time over that of forward and backward alone (grey)", 11, "#666")
    y = y0 + 30
    for at, (ranks, way, label, ratio) in enumerate(rows):
        if at and rows[at - 1][0] != ranks:
            y += 8
        canvas.text(x0 + 176, y + 11, "%d ranks, %s" % (ranks, label.replace("libddp, ", "")), 10, "#333", "end")
        canvas.rect(x0 + 182, y, scale, 14, "#cfd3d6")
        canvas.rect(x0 + 182 + scale, y, (ratio - 1) * scale, 14, COLOURS[way])
        canvas.text(x0 + 188 + ratio * scale, y + 11, "%.2f" % ratio, 11, COLOURS[way], weight="bold")
        y += 19
    return y - y0


def draw(data):
    look, canvas = Lookup(data), Canvas()
    canvas.text(20, 26, "libddp on one host", 18, weight="bold")
    canvas.text(20, 44, "%s; %s; medians, the thick strokes span the middle half" % (data["host"], data["date"]), 11, "#666")
    panels = 0
    for ranks in look.ranks("all_reduce")[:3]:
        panels += lines_panel(canvas, look, ranks, 70 + panels * (PANEL + LABELS + GAP), TOP + 30)
    width = max(1, panels, min(2, len(look.ranks("step")))) * (PANEL + LABELS + GAP) + 40
    top = TOP + 30 + (HEIGHT + 70 if panels else 0)
    heights = [bars_panel(canvas, look, model, 70 + at * (PANEL + LABELS + GAP), top, PANEL + LABELS - 20) for at, model in enumerate(MODELS)]
    return canvas.svg(width, top + max(heights + [0]) + 30)
