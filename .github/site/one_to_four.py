# SPDX-License-Identifier: Apache-2.0
"""Run the program of the page "From one process to four" before and after, check that both learn the same, and draw what they did.

    PYTHONPATH=BUILD/bindings/python python3 .github/site/one_to_four.py BUILD/bin/ddprun [--write]

--write draws .github/site/pages/one_to_four.svg anew; without it nothing is written. Ends with 1 if a loss is off by more than rounding is.
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "../../examples/python/one_to_four")
RANKS = (1, 2, 4)
TOLERANCE = 1e-4
COLOURS = {1: "#4a8fd0", 2: "#d98236", 4: "#5aa548"}


def losses(*command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    said = re.findall(r"loss (\S+)", done.stdout)
    if len(said) < 100 or "test 9" not in done.stdout:
        sys.exit(f"{' '.join(command)}: {len(said)} losses, and {done.stdout[-60:]!r}")
    return [float(each) for each in said]


def line(values, x, y, width, height, top, colour, more=""):
    points = " ".join(f"{x + width * at / (len(values) - 1):.1f},{y + height * (1 - value / top):.1f}" for at, value in enumerate(values))
    return f'<polyline points="{points}" fill="none" stroke="{colour}" {more}/>'


def frame(x, title, marks, right="step 300"):
    """A chart's axes: `marks` are texts at heights from 0 to 1."""
    parts = [f'<text x="{x}" y="22" font-weight="600">{title}</text>', f'<path class="line" d="M{x} 40V240H{x + 340}"/>',
             f'<text x="{x}" y="260" class="soft">step 1</text><text x="{x + 340}" y="260" class="soft" text-anchor="end">{right}</text>']
    return parts + [f'<text x="{x - 6}" y="{240 - 200 * height + 5:.0f}" class="soft" text-anchor="end">{text}</text>' for text, height in marks]


def picture(before, after):
    worst = max(abs(a - b) for each in after.values() for a, b in zip(before, each))
    scale = 10.0 ** -6
    while scale < worst:
        scale *= 10
    top = max(before) * 1.05
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" class="four" role="img" aria-labelledby="four-title" viewBox="0 0 860 310" width="100%" '
             'font-family="system-ui, sans-serif" font-size="14">',
             '<title id="four-title">Left: the loss of the program before, and after with 1, 2 and 4 processes; the four lines lie on each other. '
             f'Right: how far each is from the program before, at most {worst:.0e}.</title>',
             '<style>.four text { fill: currentColor } .four .soft { opacity: .75 } .four .line { stroke: currentColor; opacity: .5; fill: none }</style>']
    parts += frame(50, "Loss", [("0", 0), (f"{top:.1f}", 1)])
    parts.append(line(before, 50, 40, 340, 200, top, "currentColor", 'stroke-width="7" opacity=".25"'))
    parts += [line(values, 50, 40, 340, 200, top, COLOURS[ranks], f'stroke-width="2" stroke-dasharray="9 18" stroke-dashoffset="{9 * at}"')
              for at, (ranks, values) in enumerate(after.items())]
    parts += frame(500, "Distance from the program before", [("0", 0), (f"{scale:.0e}", 1)])
    parts += [line([abs(a - b) for a, b in zip(before, values)], 500, 40, 340, 200, scale, COLOURS[ranks], 'stroke-width="1.2"')
              for ranks, values in after.items()]
    names = [("before", "currentColor", 7, ".25")] + [(f"{ranks} process{'es' if ranks > 1 else ''}", COLOURS[ranks], 2, "1") for ranks in after]
    for at, (name, colour, width, opacity) in enumerate(names):
        x = 50 + 150 * at
        parts.append(f'<path d="M{x} 290h30" stroke="{colour}" stroke-width="{width}" opacity="{opacity}"/><text x="{x + 38}" y="295">{name}</text>')
    return "\n".join(parts + ["</svg>"]) + "\n"


def main():
    ddprun = sys.argv[1]
    before = losses(sys.executable, os.path.join(PROGRAMS, "before.py"))
    after = {ranks: losses(ddprun, "-n", str(ranks), "--no-pty", sys.executable, os.path.join(PROGRAMS, "after.py")) for ranks in RANKS}
    for ranks, values in after.items():
        off = max(abs(a - b) for a, b in zip(before, values))
        print(f"{ranks} process(es): {len(values)} steps, at most {off:.1e} from the program before, at the end {values[-1]:.4f}")
        if len(values) != len(before) or off > TOLERANCE:
            sys.exit("that is more than rounding")
    if "--write" in sys.argv[2:]:
        with open(os.path.join(HERE, "pages/one_to_four.svg"), "w", encoding="utf-8") as file:
            file.write(picture(before, after))


if __name__ == "__main__":
    main()
