# SPDX-License-Identifier: Apache-2.0
"""pkgconfig/sbom.py names what is inside the built files: every library whose headers the sources include, with its licence, and every
library that the loader opens. The same files give the same document."""
import glob
import json
import os
import re
import subprocess
import sys

from common import LIBRARY, run, tree

SCRIPT = os.path.join(tree.ROOT, "pkgconfig/sbom.py")
BUILD = os.path.dirname(os.path.dirname(LIBRARY))
FILES = [LIBRARY, *(path for path in (os.path.join(BUILD, "bin/ddprun"), *sorted(glob.glob(os.path.join(BUILD, "src/ddp/libddp_*.so")))) if os.path.exists(path))]
# The library that a header of others is of; headers of the C library and of the kernel are of none.
FOREIGN = {"asio": "asio", "nlohmann": "nlohmann-json", "sodium": "libsodium", "xxhash": "xxhash", "CLI": "cli11", "gloo": "gloo",
           "openssl": "openssl"}
SYSTEM = {"sys", "linux", "netinet", "arpa", "net", "asm", "ddp"}
problems = []

sources = [path for path in tree.sources("src/") if path.endswith((".cpp", ".hpp", ".cu", ".cuh", ".h"))]
included = {}
for path in sources:
    for header in re.findall(r"^ *#include <([^>]+)>", tree.read(path), re.M):
        first = re.split(r"[/.]", header)[0]
        if first in FOREIGN or first.startswith("cuda"):
            included.setdefault(FOREIGN.get(first, "cuda-cudart"), path)
        elif header.endswith(".hpp") or ("/" in header and first not in SYSTEM):
            problems.append(f"{path} includes <{header}>: name its library here and in pkgconfig/sbom.py")


def made(files):
    return run([sys.executable, "-B", SCRIPT, *files])


document = json.loads(made(FILES))
if made(FILES) != made(FILES[::-1]):
    problems.append("the same files in another order give another document")
packages = {each["SPDXID"]: each for each in document["packages"]}
files = {each["SPDXID"]: each for each in document["files"]}
known = {**packages, **files, "SPDXRef-DOCUMENT": document}
relations = [(each["spdxElementId"], each["relationshipType"], each["relatedSpdxElement"]) for each in document["relationships"]]
problems += [f"{each} refers to something that is not there" for each in relations if each[0] not in known or each[2] not in known]
if len(packages) != len(document["packages"]):
    problems.append("two packages have one identity")
for path in FILES:
    name = os.path.basename(path)
    identity = next(key for key, each in files.items() if each["fileName"] == "./" + name)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", run(["readelf", "-dW", path])))
    opened = {packages[other]["name"] for one, kind, other in relations if one == identity and kind == "DYNAMIC_LINK"}
    static = {packages[other]["name"] for one, kind, other in relations if one == identity and kind == "STATIC_LINK"}
    if opened != needed:
        problems.append(f"{name} needs {sorted(needed)}, and the document names {sorted(opened)}")
    if any(soname.startswith("libstdc++.so") for soname in needed) == ("libstdc++" in static):
        problems.append(f"{name}: the C++ library is named twice, or not at all")
    digest = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout.split()[0]
    if digest not in json.dumps(files[identity]["checksums"]):
        problems.append(f"{name}: its checksum is not {digest}")

# Whatever was built, sbom.py knows each library that the sources include.
sys.path.insert(0, os.path.dirname(SCRIPT))
import sbom  # noqa: E402

inside = {name for names in sbom.INSIDE.values() for name in names}
problems += [f"{path} includes headers of {name}, which no file of pkgconfig/sbom.py has inside" for name, path in included.items() if name not in inside]
problems += [f"pkgconfig/sbom.py: {name} has no licence" for name in inside if not sbom.LIBRARIES[name][0]]
tree.verdict(problems, f"{len(FILES)} files, {len(packages)} packages")
