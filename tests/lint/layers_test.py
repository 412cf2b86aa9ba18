# SPDX-License-Identifier: Apache-2.0
"""Includes go one way: src/layers.txt says which folder may include which, and no folder is above itself.
Third-party headers stay in the one folder that is written against them."""
import re

import tree

# header prefix: where it may be included
THIRD_PARTY = {
    "asio": ["src/control/", "src/ddprun/loop.cpp"],
    "gloo/": ["src/modules/gloo/"],
    "nlohmann/": ["src/checkpoint/", "src/ddprun/"],
    "CLI/": ["src/ddprun/"],
    "sodium": ["src/control/"],
    "xxhash": ["src/core/hash.cpp"],
    "cuda": ["src/modules/cuda/"],
    "nccl": ["src/modules/cuda/"],
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)


def read_layers():
    layers = {}
    for line in tree.read("src/layers.txt").splitlines():
        line = line.split("#")[0].strip()
        if line:
            folder, _, allowed = line.partition(":")
            layers[folder.strip()] = allowed.split()
    return layers


def includes(path):
    text = re.sub(r"/\*.*?\*/", lambda match: re.sub(r"[^\n]", " ", match.group(0)), tree.read(path), flags=re.S)
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match.group(1), match.group(2)


def check_order(layers, problems):
    """Each folder may name only folders that stand above it in the file: so there is no circle."""
    seen = set()
    for folder, allowed in layers.items():
        problems += [f"src/layers.txt: {folder} may not name {other}, which does not stand above it"
                     for other in allowed if other not in seen]
        seen.add(folder)


def layer_of(path, layers):
    """The longest folder in layers.txt above a path that is relative to src; None if there is none."""
    while "/" in path:
        path = path.rsplit("/", 1)[0]
        if path in layers:
            return path
    return None


def check_source(path, layers, problems):
    own = layer_of(path[len("src/"):], layers)
    if own is None:
        problems.append(f"{path}: its folder is not in src/layers.txt")
        return
    for line, kind, name in includes(path):
        other = layer_of(name, layers) if kind == '"' else None
        if kind == '"' and "/" not in name:
            problems.append(f'{path}:{line}: "{name}" is named without its folder')
        elif other is not None and other != own and other not in layers[own]:
            problems.append(f"{path}:{line}: {own} may not include {name} (src/layers.txt)")
        elif other is not None and not tree.exists(f"src/{name}"):
            problems.append(f"{path}:{line}: src/{name} does not exist")


def check_third_party(path, problems):
    for line, _, name in includes(path):
        for prefix, homes in THIRD_PARTY.items():
            # "cuda/module.hpp" is ours, <cuda.h> is not
            if name.startswith(prefix) and not (prefix in ("cuda", "nccl") and name.endswith(".hpp")):
                if not path.startswith(tuple(homes)):
                    problems.append(f"{path}:{line}: <{name}> belongs in {', '.join(homes)} only")


def check_user(path, layers, problems):
    """What stands for a user's program sees the public headers alone."""
    for line, kind, name in includes(path):
        if kind == '"' and layer_of(name, layers) is not None:
            problems.append(f"{path}:{line}: only public headers here, not {name}")


layers = read_layers()
problems = []
check_order(layers, problems)
sources = tree.sources("src/")
for source in sources:
    check_source(source, layers, problems)
    check_third_party(source, problems)
for header in tree.sources("include/"):
    problems += [f"{header}:{line}: a public header includes {name}" for line, _, name in includes(header)
                 if name != "stdint.h" and not name.startswith("ddp/")
                 and not (header == "include/ddp/dlpack.h" and name in ("stddef.h", "dlpack/dlpack.h"))  # no other includes it
                 and not (header.endswith(".hpp") and re.fullmatch(r"[a-z_]+", name))]  # C++ may use its standard library
for user in tree.sources("examples/", "tests/capi/", "tests/cpp/", "tests/consumer/", "bindings/"):
    check_user(user, layers, problems)
tree.verdict(problems, f"{len(sources)} sources against {len(layers)} layers")
