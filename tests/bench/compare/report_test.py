# SPDX-License-Identifier: Apache-2.0
"""The table and the picture of a run: medians come from quiet launches, every figure appears, and the picture is XML."""

import os
import sys
import unittest
import xml.etree.ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import headline  # noqa: E402
import picture  # noqa: E402
import report  # noqa: E402
import sections  # noqa: E402
from launches import all_reduce_figures, step_figures  # noqa: E402
from results import Results  # noqa: E402
from ways import ALL_REDUCE, SIZES  # noqa: E402


def sample():
    results = Results("4 cores of a test", 4, "2026-01-02", "tests/bench/run.sh", {"torch": "1.2"}, {"mpich": "not here"})
    for at, way in enumerate(ALL_REDUCE):
        for ranks in (2, 4):
            for size in SIZES:
                results.add("all_reduce", "all_reduce", way.name, ranks, "%d/again" % size, 0.0, [size / 1000 + at] * 5)
    for ranks in (2, 4):
        for way, step in (("user", 130.0), ("torch", 250.0)):
            for what, value in (("local", 100.0), ("step", step), ("cost", step - 100), ("ratio", step / 100)):
                results.add("step", "mlp", way, ranks, what, 0.0, [value])
    return results


class ReportTest(unittest.TestCase):
    def test_disturbed_launches_are_left_out_when_there_are_quiet_ones(self):
        results = sample()
        for others, figure in ((0.0, 7.0), (0.1, 9.0), (3.0, 500.0)):
            results.add("adamw", "adamw", "adamw", 1, "adamw", others, [figure])
        row = next(row for row in results.as_data()["rows"] if row["part"] == "adamw")
        self.assertEqual((row["median"], row["quiet_launches"], row["disturbed"]), (8.0, 2, False))

    def test_a_cell_without_quiet_launches_is_marked(self):
        results = sample()
        results.add("adamw", "adamw", "adamw", 1, "adamw", 2.0, [7.0])
        results.add("adamw", "adamw", "adamw", 1, "adamw", 2.0, [9.0])
        self.assertIn("8.0 [7.5-8.5]~", report.markdown(results.as_data()))

    def test_ratios_compare_with_the_best_peer(self):
        text = report.markdown(sample().as_data())
        mpi = min(SIZES[0] / 1000 + at for at, way in enumerate(ALL_REDUCE) if way.name in report.MPI)
        self.assertIn("| best MPI / zero-copy | %.2f |" % (mpi / (SIZES[0] / 1000)), text)
        self.assertIn("Skipped: mpich: not here.", text)
        self.assertIn("| 2.50 |", text)

    def test_the_picture_is_xml_and_names_everybody(self):
        drawn = picture.draw(sample().as_data())
        xml.etree.ElementTree.fromstring(drawn)
        for name in ("MPICH", "zero-copy", "PyTorch DDP"):
            self.assertIn(name, drawn)

    def test_the_headline_takes_the_most_ranks_that_have_a_core_each(self):
        results = sample()
        for way, us in (("zero-copy", 2000.0), ("openmpi", 9000.0), ("mpich", 8000.0)):
            for ranks, times in ((2, us), (8, 9 * us)):
                results.add("all_reduce", "all_reduce", way, ranks, "%d/fresh" % (25 << 20), 0.0, [times])
        data = dict(results.as_data(), cores=3)
        self.assertEqual(headline.read(data)[:2], (2, [("libddp, its memory", 2.0, "ours"), ("best MPI", 8.0, "theirs")]))
        xml.etree.ElementTree.fromstring(headline.draw(data))

    def test_a_section_has_its_command_its_tables_and_its_other_lines(self):
        section = {"title": "T", "note": "", "command": "bench.x", "others": 0.0, "lines": ["before", "| a |", "| --- |", "| 1 |", "behind"]}
        self.assertEqual(sections.markdown(section), ["## T", "", "```", "bench.x", "```", "", "```", "before", "```", "", "| a |", "| --- |", "| 1 |", "",
                                                      "```", "behind", "```", ""])
        self.assertIn("Not quiet: others used 1.5 cores.", sections.markdown(dict(section, others=1.5)))
        self.assertIn("Skipped: no PyTorch.", sections.markdown(dict(section, skipped="no PyTorch")))

    def test_nothing_measured_is_still_a_report(self):
        data = Results("x", 4, "2026-01-02", "y", {}, {}).as_data()
        report.markdown(data)
        xml.etree.ElementTree.fromstring(picture.draw(data))
        xml.etree.ElementTree.fromstring(headline.draw(data))

    def test_the_slowest_rank_of_each_block_counts(self):
        self.assertEqual(all_reduce_figures(["R 0 1024 again 1.0 5.0", "noise", "R 1 1024 again 3.0 2.0"]), {(1024, "again"): [3.0, 5.0]})
        times, memory = step_figures(["T 0 step 1.0", "T 1 step 2.0", "M 0 share 1.5", "M 1 share 0.5", "M 0 resident -3.0"])
        self.assertEqual((times, memory), ({"step": [2.0]}, {"share": 1.5, "resident": -3.0}))


unittest.main()
