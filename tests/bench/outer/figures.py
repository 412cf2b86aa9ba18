# SPDX-License-Identifier: Apache-2.0
"""What the runs came to, as a table."""

from ways import WAYS


def of(data, way):
    return [run for run in data["runs"] if run["way"] == way]


def over_link(data, way):
    return next((run for run in of(data, way) if run["over_link"]), None)


def last_losses(data, way):
    return [run["points"][-1][1] for run in of(data, way)]


def goal(data):
    """The loss to reach: the last one of plain DDP, with the seed for which it is worst."""
    return max(last_losses(data, "ddp"), default=None)


def seconds_to(points, loss):
    """When the loss was first reached, on the line between two evaluations. None: never."""
    for (_, before, _, begin, _), (_, after, _, end, _) in zip(points, points[1:]):
        if after <= loss:
            return begin + (end - begin) * (before - loss) / (before - after) if before > after else end
    return None


def table(data):
    wanted, plain = goal(data), over_link(data, "ddp")
    lines = ["| way | last loss of each seed | sent by a rank, MB | of plain DDP's | ms a step | of them waiting | s to the loss %s | plain DDP's over it |" % (
        "%.3f" % wanted if wanted else ""), "| --- " * 8 + "|"]
    for way in WAYS:
        losses, run = last_losses(data, way), over_link(data, way)
        if not losses:
            continue
        cells = [""] * 6
        if run:
            steps, _, sent, seconds, waited = run["points"][-1]
            reached = seconds_to(run["points"], wanted) if wanted else None
            cells = ["%.1f" % (sent / 1e6), "", "%.1f" % (seconds / steps * 1e3), "%.1f" % (waited / steps * 1e3),
                     "%.1f" % reached if reached else "not reached", ""]
            if plain:
                plain_reached = seconds_to(plain["points"], wanted)
                cells[1] = "1/%.0f" % (plain["points"][-1][2] / sent) if way != "ddp" else "1"
                cells[5] = "%.1f" % (plain_reached / reached) if reached else ""
        lines.append("| %s | %s | %s |" % (WAYS[way].label, ", ".join("%.3f" % each for each in losses), " | ".join(cells)))
    return "\n".join(lines) + "\n"
