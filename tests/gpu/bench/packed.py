# SPDX-License-Identifier: Apache-2.0
"""libddp's Python package for the programs of tests/gpu: that of a kit (run.sh --pack) if it was made for this Python, else what is installed."""
import importlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def skip(why):
    """End the program with the exit status that run.sh takes for skipped."""
    print("skipped:", why, flush=True)
    sys.exit(77)


def import_libddp(name):
    """The module libddp.`name`; without it the program is skipped."""
    folder = os.path.join(HERE, "..", "python")
    if os.path.isdir(folder):
        with open(os.path.join(folder, "VERSION"), encoding="utf-8") as file:
            version, _, later = file.read().strip().partition(" ")
        made_for = tuple(map(int, version.split(".")))
        if made_for == sys.version_info[:2] or (later and made_for < sys.version_info[:2]):
            sys.path.insert(0, folder)
    try:
        return importlib.import_module("libddp." + name)
    except Exception as error:  # whatever a broken installation raises
        return skip(f"libddp's Python package cannot be imported for Python {sys.version_info.major}.{sys.version_info.minor} ({error})")
