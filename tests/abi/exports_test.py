# SPDX-License-Identifier: Apache-2.0
"""The library exports the functions that the headers declare and nothing else; src/capi/exports.txt lists them with the version that
brought them; the library needs the C library (and what unwinds stacks for it) alone."""
import re

from common import LIBRARY, SANITIZE, declarations, run, tree

problems = []
declared = {}
for function in declarations.load().functions:
    since = re.search(r"Since (\d+\.\d+)", function.comment)
    declared[function.name] = since.group(1) if since else "?"

listed, tiers = {}, {}
for line in tree.read("src/capi/exports.txt").splitlines():
    if line and not line.startswith("#"):
        name, since, tier = line.split()
        listed[name] = since
        tiers[name] = tier
if list(listed) != sorted(listed):
    problems.append("src/capi/exports.txt is not in alphabetical order")
for name in sorted(declared.keys() | listed.keys()):
    if declared.get(name) != listed.get(name):
        problems.append(f"{name}: the header says since {declared.get(name)}, src/capi/exports.txt says {listed.get(name)}")

# The tier is the umbrella header that brings the function; the stable part must stay easy to survey.
stable_headers = set(re.findall(r'#include "(ddp/\w+\.h)"', tree.read("include/ddp/ddp.h")))
for function in declarations.load().functions:
    tier = "stable" if function.header.removeprefix("include/") in stable_headers else "experimental"
    if tiers.get(function.name) != tier:
        problems.append(f"{function.name}: {function.header} is {tier}, src/capi/exports.txt says {tiers.get(function.name)}")
stable = sum(tier == "stable" for tier in tiers.values())
if stable > 169:
    problems.append(f"{stable} stable functions; at most 169 are to be learnt and kept")

exported = set()
for line in run(["nm", "-D", "--defined-only", "--format=posix", LIBRARY]).splitlines():
    name, kind = line.split()[:2]
    if SANITIZE and not name.startswith("ddp_"):
        continue  # the sanitizers' own
    exported.add(name.split("@")[0])
    if kind != "T":
        problems.append(f"{name} is exported as data or weak symbol ({kind})")
problems += [f"{name} is declared and not exported" for name in sorted(declared.keys() - exported)]
problems += [f"{name} is exported and not declared" for name in sorted(exported - declared.keys())]

dynamic = run(["readelf", "-d", LIBRARY])
soname = re.findall(r"SONAME.*\[(.*)\]", dynamic)
if soname != ["libddp.so.0.1"]:
    problems.append(f"the soname is {soname}, not libddp.so.0.1")
if not SANITIZE:
    system = re.compile(r"(libc|libm|libdl|libpthread|librt|libgcc_s|ld-linux.*)\.so\.\d+")
    problems += [f"the library needs {name}" for name in re.findall(r"NEEDED.*\[(.*)\]", dynamic) if not system.fullmatch(name)]
tree.verdict(problems, f"{len(exported)} exported functions, {stable} of them stable")
