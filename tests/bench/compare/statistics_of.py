# SPDX-License-Identifier: Apache-2.0
"""Medians and spread of measured figures."""

QUIET = 0.35  # cores that others may use while a launch counts as quiet
ENOUGH = 2    # quiet launches that suffice to leave the disturbed ones out


def quantile(values, part):
    ordered = sorted(values)
    at = part * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def median(values):
    return quantile(values, 0.5)


class Series:
    """The figures of one cell of a table, launch by launch."""

    def __init__(self):
        self.launches = []  # (cores used by others, figures)

    def add(self, others, figures):
        self.launches.append((others, list(figures)))

    @property
    def quiet(self):
        return [launch for launch in self.launches if launch[0] <= QUIET]

    @property
    def disturbed(self):
        """Does the summary rest on launches during which the machine was not quiet?"""
        return len(self.quiet) < min(ENOUGH, len(self.launches))

    def figures(self):
        chosen = self.launches if self.disturbed else self.quiet
        return [figure for _, figures in chosen for figure in figures]

    def summary(self):
        figures = self.figures()
        return {
            "median": median(figures),
            "low": quantile(figures, 0.25),
            "high": quantile(figures, 0.75),
            "launches": len(self.launches),
            "quiet_launches": len(self.quiet),
            "others": round(median([others for others, _ in self.launches]), 2),
            "disturbed": self.disturbed,
        }


def slowest(by_rank):
    """Of figures that every rank measured block by block: each block's slowest rank."""
    return [max(block) for block in zip(*by_rank)]
