# SPDX-License-Identifier: Apache-2.0
"""include/ENVIRONMENT.md has the variables that the library knows (os/environment.cpp), and no others: their names are promised."""
import re

import tree

ELSEWHERE = {"DDP_LIBRARY": "bindings/python/README.md and others: where a language finds libddp.so", "DDP_LIB_DIR": "bindings/rust: where cargo finds it",
             "DDP_RESTARTS": "src/ddprun/README.md: for programs, which libddp does not read", "DDP_TEST_HOST": "tests only: another host's name"}

page = set(re.findall(r"`(DDP_[A-Z_]+)`", "".join(re.findall(r"^\| (`DDP_.*?) \|", tree.read("include/ENVIRONMENT.md"), re.M))))
table = re.search(r"kKnown\{(.*?)\};", tree.read("src/os/environment.cpp"), re.S)[1]
known = set(re.findall(r'"(DDP_[A-Z_]+)"', table))
problems = [f"include/ENVIRONMENT.md lacks {name}, which the library knows" for name in sorted(known - page - set(ELSEWHERE))]
problems += [f"include/ENVIRONMENT.md has {name}, which the library does not know" for name in sorted(page - known)]
problems += [f"{name} is not known to the library any more: take it out of this test" for name in ELSEWHERE if name not in known]
tree.verdict(problems, f"{len(page)} variables")
