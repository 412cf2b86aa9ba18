# SPDX-License-Identifier: Apache-2.0
"""What the Python programs of tests/gpu share. libddp's package: that of a kit (run.sh --pack) if it was made for this Python, else what is
installed. And ranks that share a GPU."""
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


def let_ranks_share(gpus):
    """Where this host has fewer GPUs than ranks: NCCL takes each rank for a host of its own. For correctness, not for speed. True: so it is."""
    rank, ranks = os.environ.get("RANK", "0"), os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE", "1")
    if gpus >= int(ranks):
        return False
    values = {"NCCL_HOSTID": f"libddp-test-{rank}", "NCCL_SOCKET_IFNAME": "=lo", "NCCL_SOCKET_FAMILY": "AF_INET", "NCCL_NET": "Socket",
              "NCCL_NET_PLUGIN": "none", "NCCL_TUNER_PLUGIN": "none", "NCCL_IB_DISABLE": "1", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1",
              "NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0", "NCCL_GIN_ENABLE": "0", "NCCL_RAS_ENABLE": "0", "NCCL_WIN_ENABLE": "0",
              "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", "NCCL_MAX_CTAS": "2"}
    for name, value in values.items():
        os.environ.setdefault(name, value)
    return True
