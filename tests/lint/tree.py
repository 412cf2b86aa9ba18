# SPDX-License-Identifier: Apache-2.0
"""What the lints share: the files of the repository, and sources without comments and strings."""
import os
import re
import subprocess
import sys

ROOT = os.environ.get("DDP_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCE_ENDINGS = (".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".cc")


def files():
    """Paths relative to the root: what git tracks or would add; without git, everything but build folders."""
    try:
        listing = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], check=True,
                                 capture_output=True, text=True).stdout
        return sorted(path for path in listing.splitlines() if os.path.isfile(os.path.join(ROOT, path)))
    except (OSError, subprocess.CalledProcessError):
        found = []
        for folder, folders, names in os.walk(ROOT):
            folders[:] = [name for name in folders if not name.startswith(("build", ".git")) or name == ".github"]
            found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names]
        return sorted(found)


def sources(*folders):
    return [path for path in files() if path.startswith(folders) and path.endswith(SOURCE_ENDINGS)]


def exists(path):
    return os.path.isfile(os.path.join(ROOT, path))


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def strip(text):
    """Comments and the insides of strings become blanks; every line keeps its number."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-zA-Z_])\'(?:\\.|[^\'\\\n])+\'', re.S)

    def blank(match):
        found = match.group(0)
        if found[0] == "/":
            return re.sub(r"[^\n]", " ", found)
        return found[0].replace("R", '"') + re.sub(r"[^\n]", " ", found[1:-1]) + found[-1]

    return token.sub(blank, text)


def verdict(problems, checked):
    """Print what is wrong and end."""
    for problem in problems:
        print(problem)
    print(f"{checked}: {len(problems)} problem(s)" if problems else f"{checked}: fine")
    sys.exit(1 if problems else 0)
