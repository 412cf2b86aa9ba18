# SPDX-License-Identifier: Apache-2.0
"""The picture: loss over time and over bytes, both on logarithmic axes. Dark where the reader's system is. SVG, standard library only."""

import math
from xml.sax.saxutils import escape

import figures
from ways import WAYS

WIDTH, HEIGHT, GAP, LEFT, TOP = 440, 300, 70, 60, 84


def style():
    light = "".join(".%s { stroke: %s; fill: %s } " % (way, WAYS[way].colour, WAYS[way].colour) for way in WAYS)
    dark = "".join(".%s { stroke: %s; fill: %s } " % (way, WAYS[way].dark, WAYS[way].dark) for way in WAYS)
    return ("<style>%s.title { font-weight: 600 } .title, .text { fill: #1f2933 } .soft { fill: #616e7c; font-size: 11px } "
            ".grid { stroke: #d5dae0 } .goal { stroke: #616e7c } text { stroke: none } "
            "@media (prefers-color-scheme: dark) { %s.title, .text { fill: #e4e7eb } .soft { fill: #9aa5b1 } .grid { stroke: #3e4c59 } "
            ".goal { stroke: #9aa5b1 } }</style>") % (light, dark)


def line(kind, x1, y1, x2, y2, dash=""):
    return '<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"%s/>' % (kind, x1, y1, x2, y2, ' stroke-dasharray="%s"' % dash if dash else "")


def text(kind, x, y, content, anchor="start"):
    return '<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>' % (kind, x, y, anchor, escape(content))


class Panel:
    """Loss over one column of the points (logarithmic)."""

    def __init__(self, x0, title, runs, column, scale, name, goal):
        self.x0, self.title, self.runs, self.column, self.scale, self.name, self.goal = x0, title, runs, column, scale, name, goal
        across = [point[column] / scale for _, run in runs for point in run["points"][1:]]
        losses = [point[1] for _, run in runs for point in run["points"][1:]]
        self.low, self.high = math.log10(min(across)) - 0.05, math.log10(max(across)) + 0.05
        self.least, self.most = math.floor(min(losses) * 5) / 5, math.ceil(max(losses) * 5) / 5

    def x(self, value):
        return self.x0 + (math.log10(value) - self.low) / (self.high - self.low) * WIDTH

    def y(self, loss):
        return TOP + (self.most - loss) / (self.most - self.least) * HEIGHT

    def grid(self):
        parts = [text("title", self.x0, TOP - 14, self.title)]
        for step in range(round((self.most - self.least) * 5) + 1):
            loss = self.least + step / 5
            parts += [line("grid", self.x0, self.y(loss), self.x0 + WIDTH, self.y(loss)),
                      text("soft", self.x0 - 8, self.y(loss) + 4, "%.1f" % loss, "end")]
        for power in range(math.ceil(self.low) - 1, math.floor(self.high) + 1):
            for times in (1, 3):
                value = times * 10.0 ** power
                if self.low <= math.log10(value) <= self.high:
                    parts += [line("grid", self.x(value), TOP, self.x(value), TOP + HEIGHT),
                              text("soft", self.x(value), TOP + HEIGHT + 16, "%g %s" % (value, self.name), "middle")]
        if self.goal:
            parts.append(line("goal", self.x0, self.y(self.goal), self.x0 + WIDTH, self.y(self.goal), "5 4"))
        return parts

    def draw(self):
        parts = self.grid()
        for way, run in self.runs:
            points = [(self.x(point[self.column] / self.scale), self.y(point[1])) for point in run["points"][1:] if point[self.column] > 0]
            parts.append('<polyline class="%s" points="%s" stroke-width="2" style="fill: none"/>' % (way, " ".join("%.1f,%.1f" % each for each in points)))
            parts += ['<circle class="%s" cx="%.1f" cy="%.1f" r="2.5"/>' % (way, *each) for each in points]
        return parts


def legend(runs):
    parts, x = [], LEFT
    for way, _ in runs:
        parts += ['<rect class="%s" x="%d" y="42" width="18" height="4"/>' % (way, x), text("text", x + 24, 49, WAYS[way].label)]
        x += 44 + round(7.2 * len(WAYS[way].label))
    return parts


def draw(data):
    runs = [(way, figures.over_link(data, way)) for way in WAYS if figures.over_link(data, way)]
    width = LEFT + 2 * WIDTH + GAP + 30
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d 440" width="%d" height="440" font-family="system-ui, sans-serif" '
             'font-size="13" role="img" aria-labelledby="outer-title">' % (width, width),
             '<title id="outer-title">Loss of a small GPT over time and over bytes sent, on a slow link</title>', style()]
    if runs:
        lines.append(text("title", LEFT, 24, "A small GPT learns a text on 2 hosts: link of %g Mbit/s, %g ms" % (data["rate_mbit"], data["delay_ms"])))
        lines += legend(runs)
        goal = figures.goal(data)
        lines += Panel(LEFT, "Loss on unseen text, over seconds of training", runs, 3, 1, "s", goal).draw()
        lines += Panel(LEFT + WIDTH + GAP, "Loss on unseen text, over MB sent by a rank", runs, 2, 1e6, "MB", goal).draw()
        lines.append(text("soft", LEFT, 432, "%s; %s parameters; dashed: last loss of plain DDP, worst of its seeds; tests/bench/HISTORY.md" % (
            data["date"], format(runs[0][1]["parameters"], ","))))
    return "\n".join([*lines, "</svg>", ""])
