# SPDX-License-Identifier: Apache-2.0
"""Run the program of "From one process to four" (examples/README.md) before and after, check that both learn the same, and draw what they did.

    PYTHONPATH=BUILD/bindings/python python3 .github/site/one_to_four.py BUILD/bin/ddprun [--write]

--write draws .github/site/../../examples/one_to_four/losses.svg anew; without it nothing is written. Ends with 1 if a loss is off by more than rounding is.
"""
import os
import re
import subprocess
import sys

from pictures import line, picture as drawing, text

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


def curve(values, top, height, colour, more=""):
    points = " ".join(f"{60 + 440 * at / (len(values) - 1):.1f},{top + height * (1 - value):.1f}" for at, value in enumerate(values))
    return f'<polyline points="{points}" fill="none" stroke="{colour}" {more}/>'


def frame(y, title, most):
    """A chart's axes, 160 high below y."""
    return [text(12, y - 16, title), line((60, y), (60, y + 160), (500, y + 160)), text(52, y + 10, most, "soft", "end"),
            text(52, y + 162, "0", "soft", "end"), text(60, y + 182, "step 1", "soft"), text(500, y + 182, "step 300", "soft", "end")]


def picture(before, after):
    worst = max(abs(a - b) for each in after.values() for a, b in zip(before, each))
    scale = 10.0 ** -6
    while scale < worst:
        scale *= 10
    top = max(before) * 1.05
    parts = frame(48, "Loss, before and on 1, 2 and 4 processes", f"{top:.1f}")
    parts.append(curve([value / top for value in before], 48, 160, "#8b949e", 'stroke-width="7" opacity=".4"'))
    parts += [curve([value / top for value in values], 48, 160, COLOURS[ranks], f'stroke-width="2" stroke-dasharray="9 18" stroke-dashoffset="{9 * at}"')
              for at, (ranks, values) in enumerate(after.items())]
    parts += frame(288, "Distance from the program before", f"{scale:.0e}")
    parts += [curve([abs(a - b) / scale for a, b in zip(before, values)], 288, 160, COLOURS[ranks]) for ranks, values in after.items()]
    names = [("before", "#8b949e")] + [(f"{ranks} process{'es' if ranks > 1 else ''}", COLOURS[ranks]) for ranks in after]
    for at, (name, colour) in enumerate(names):
        x = (12, 106, 244, 392)[at]
        parts += [f'<path d="M{x} 500h20" stroke="{colour}" stroke-width="4"/>', text(x + 26, 506, name)]
    return drawing(522, "Above: the loss of the program before, and after with 1, 2 and 4 processes; the four lines coincide. "
                   f"Below: how far each is from the program before, at most {worst:.0e}.", *parts, by="one_to_four.py")


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
        with open(os.path.join(HERE, "../../examples/one_to_four/losses.svg"), "w", encoding="utf-8") as file:
            file.write(picture(before, after))


if __name__ == "__main__":
    main()
