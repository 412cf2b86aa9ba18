# SPDX-License-Identifier: Apache-2.0
"""One training: where its text comes from, how its ranks are started, and what they print."""

import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.dirname(HERE)
ROOT = os.path.dirname(os.path.dirname(BENCH))
sys.path.append(os.path.join(BENCH, "network"))

from hosts import Network  # noqa: E402
from ways import WAYS  # noqa: E402

BLOCK, UNSEEN = 8192, 10  # the text is cut into blocks, of which each tenth is held back


def say(text):
    print(text, file=sys.stderr, flush=True)


def documents():
    """The licence and all that is written in Markdown."""
    found = [os.path.join(ROOT, "LICENSE")]
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in ("build", "shared", "node_modules"))
        found += [os.path.join(folder, name) for name in sorted(names) if name.endswith(".md")]
    return found


class Runs:
    def __init__(self, options):
        self.options, self.build, self.out = options, options.build, options.out
        self.switch = os.path.join(self.out, "switch")

    def prepare(self):
        whole = b"".join(open(path, "rb").read() for path in documents())
        blocks = [whole[at:at + BLOCK] for at in range(0, len(whole), BLOCK)]
        self.text_bytes = len(whole)
        self._write("seen", b"".join(block for at, block in enumerate(blocks) if at % UNSEEN != UNSEEN - 1))
        self._write("unseen", b"".join(blocks[UNSEEN - 1::UNSEEN]))
        if not self.options.no_build:
            self._build()
        if not self.options.no_link:
            subprocess.run(["gcc", "-O2", os.path.join(BENCH, "network", "switch.c"), "-o", self.switch], check=True)

    def _build(self):
        if not os.path.exists(os.path.join(self.build, "CMakeCache.txt")):
            generator = ["-G", "Ninja"] if shutil.which("ninja") else []
            without = ["-DDDP_%s=OFF" % each for each in ("CUDA", "PYTHON", "GO", "JULIA", "RUST", "FORTRAN")]
            subprocess.run(["cmake", "-S", ROOT, "-B", self.build, "-DCMAKE_BUILD_TYPE=Release", *without, *generator], check=True,
                           stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", self.build, "--parallel", "2", "--target", "ddp", "ddp_gloo", "bench.outer"], check=True,
                       stdout=sys.stderr)

    def _write(self, name, content):
        with open(os.path.join(self.out, name), "wb") as file:
            file.write(content)

    def train(self, way, seed, over_link):
        texts = ["text=" + os.path.join(self.out, "seen"), "unseen=" + os.path.join(self.out, "unseen")]
        program = [os.path.join(self.build, "tests", "bench", "bench.outer")]
        command = [*program, *WAYS[way].arguments, *texts, "seed=%d" % seed, *self.options.set]
        common = {"MASTER_PORT": str(20000 + os.getpid() % 10000), "WORLD_SIZE": "2", "DDP_TOKEN": "only-for-this-benchmark",
                  "DDP_MODULE_PATH": os.path.join(self.build, "src", "ddp")}
        if not over_link:
            common.update(MASTER_ADDR="127.0.0.1", LOCAL_WORLD_SIZE="2")
            return self._collect([(command, dict(common, RANK=rank, LOCAL_RANK=rank)) for rank in ("0", "1")])
        with Network(self.switch, 2, self.options.rate, self.options.delay, self.options.buffer) as net:
            common.update(MASTER_ADDR=net.address(0), LOCAL_WORLD_SIZE="1", LOCAL_RANK="0")
            return self._collect([(net.inside(host, command), dict(common, RANK=str(host), DDP_TEST_HOST=str(host))) for host in (0, 1)])

    def _collect(self, commands):
        processes = [subprocess.Popen(command, env=dict(os.environ, **environment), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
                     for command, environment in commands]
        try:
            text = "".join(process.communicate(timeout=self.options.limit)[0] for process in processes)
        finally:
            for process in processes:
                process.kill()
        if any(process.returncode != 0 for process in processes):
            sys.exit("a rank ended with an error")
        lines = [line.split() for line in text.splitlines()]
        return {"parameters": next(int(line[1]) for line in lines if line[0] == "parameters"),
                "points": [[int(line[1]), float(line[2]), int(line[3]), float(line[4]), float(line[5])] for line in lines if line[0] == "P"]}
