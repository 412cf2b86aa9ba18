# SPDX-License-Identifier: Apache-2.0
"""Every place that states the version of libddp states that of CMakeLists.txt. Files that are generated from the headers follow them
(bindings.generated). .github/tag.sh asks this before it makes a tag."""
import re

import tree

PLACES = {
    "CITATION.cff": r"^version: (\S+)$",
    "include/ddp/types.h": r'^#define DDP_VERSION_STRING "(.*)"$',
    "bindings/julia/Project.toml": r'^version = "(.*)"$',
    "bindings/python/pyproject.toml": r'^version = "(.*)"$',
    "bindings/rust/ddp/Cargo.toml": r'^version = "(.*)"$',
    "bindings/rust/ddp-sys/Cargo.toml": r'^version = "(.*)"$',
    "pkgconfig/debian/changelog": r"\Alibddp \((.*)-[^-]*\) ",
    "pkgconfig/vcpkg/ports/libddp/vcpkg.json": r'^ *"version": "(.*)",$',
}

version = re.search(r"^project\(ddp VERSION ([0-9.]+) ", tree.read("CMakeLists.txt"), re.M)[1]
problems = []
for path, pattern in PLACES.items():
    found = re.search(pattern, tree.read(path), re.M) if tree.exists(path) else None
    if not found or found[1] != version:
        problems.append(f"{path}: the version is {found[1] if found else 'missing'}, in CMakeLists.txt {version}")
major, minor, patch = (int(part) for part in version.split("."))
packed = re.search(r"^#define DDP_VERSION (\d+)$", tree.read("include/ddp/types.h"), re.M)
if not packed or int(packed[1]) != major * 1000000 + minor * 1000 + patch:
    problems.append(f"include/ddp/types.h: DDP_VERSION is {packed[1] if packed else 'missing'}, which is not {version}")
changes = re.findall(r"^## ([0-9.]+)", tree.read("include/CHANGES.md"), re.M)
if version not in changes[:1]:
    problems.append(f"include/CHANGES.md: the newest version is {changes[0] if changes else 'missing'}, in CMakeLists.txt {version}")
tree.verdict(problems, f"{version} in {len(PLACES) + 2} files")
