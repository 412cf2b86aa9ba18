# SPDX-License-Identifier: Apache-2.0
"""All figures of a run, and the plain data that the table and the picture are made from."""

from statistics_of import Series


class Results:
    def __init__(self, host, cores, date, command, versions, skipped, commit="unknown"):
        self.head = {"cores": cores, "host": host, "date": date, "command": command.strip(), "versions": versions, "commit": commit}
        self.skipped = skipped
        self.series = {}
        self.sections = []

    def add(self, part, key, way, ranks, what, others, figures):
        self.series.setdefault((part, key, way, ranks, what), Series()).add(others, figures)

    def as_data(self):
        rows = []
        for (part, key, way, ranks, what), series in sorted(self.series.items(), key=lambda item: tuple(map(str, item[0]))):
            rows.append(dict(part=part, key=key, way=way, ranks=ranks, what=what, **series.summary()))
        return dict(self.head, skipped=self.skipped, rows=rows, sections=self.sections)


class Lookup:
    """Rows by what they are."""

    def __init__(self, data):
        self.rows = {(row["part"], row["key"], row["way"], row["ranks"], row["what"]): row for row in data["rows"]}

    def row(self, part, key, way, ranks, what):
        return self.rows.get((part, key, way, ranks, what))

    def median(self, part, key, way, ranks, what):
        row = self.row(part, key, way, ranks, what)
        return row["median"] if row else None

    def ranks(self, part, key=None):
        return sorted({row[3] for row in self.rows if row[0] == part and key in (None, row[1])})
