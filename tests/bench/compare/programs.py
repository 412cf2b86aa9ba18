# SPDX-License-Identifier: Apache-2.0
"""Building what is measured, and finding which peers this machine has."""

import glob
import os
import shutil
import subprocess
import sys

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(os.path.dirname(BENCH))
TARGETS = ["ddp", "ddprun", "bench.all_reduce", "bench.step", "bench.adamw"]


def say(text):
    print(text, file=sys.stderr, flush=True)


def _run(command, log):
    with open(log, "a", encoding="utf-8") as file:
        file.write("$ %s\n" % " ".join(command))
        file.flush()
        return subprocess.run(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, check=False).returncode == 0


class Programs:
    """Paths of the programs, and why a peer is missing."""

    def __init__(self, build, out, more=()):
        """more: targets besides those of the comparison."""
        self.build, self.log, self.targets = build, os.path.join(out, "build.log"), [*TARGETS, *more]
        self.skipped = {}
        self.peers = {}
        open(self.log, "w", encoding="utf-8").close()

    def prepare(self):
        self._build_ours()
        os.makedirs(os.path.join(self.build, "peers"), exist_ok=True)
        self._compile("bound", ["gcc", "clang", "cc"], "bound_all_reduce.c", ["-std=gnu11"])
        for mpi, package in (("openmpi", "libopenmpi-dev"), ("mpich", "libmpich-dev")):
            if self._runner(mpi) is None:
                self.skip(mpi, "no mpirun of it (Debian: %s)" % package)
            else:
                self._compile(mpi, ["mpicc." + mpi], "mpi_all_reduce.c", [], package)
        self._compile("gloo", ["g++", "clang++", "c++"], "gloo_all_reduce.cpp", ["-std=c++17", "-lgloo", "-lpthread"], "libgloo-dev")
        self._find_torch()

    def skip(self, peer, reason):
        self.skipped[peer] = reason
        say("skipped: %s: %s" % (peer, reason))

    def _build_ours(self):
        say("building libddp in %s" % self.build)
        if not os.path.exists(os.path.join(self.build, "CMakeCache.txt")):
            generator = ["-G", "Ninja"] if shutil.which("ninja") else []
            if not _run(["cmake", "-S", ROOT, "-B", self.build, "-DCMAKE_BUILD_TYPE=Release", "-DPython3_EXECUTABLE=" + sys.executable] + generator, self.log):
                sys.exit("cmake failed; see %s" % self.log)
        known = subprocess.run(["cmake", "--build", self.build, "--target", "help"], capture_output=True, text=True, check=False).stdout
        known = {word.strip(":") for word in known.split()}
        optional = {"ddp_gloo", "ddp_python", "bench.gloo"}
        targets = [each for each in dict.fromkeys([*self.targets, "ddp_gloo"]) if each in known or each not in optional]
        if not _run(["cmake", "--build", self.build, "--parallel", "--target"] + targets, self.log):
            sys.exit("the build failed; see %s" % self.log)

    def _compile(self, name, compilers, source, flags, package=None):
        compiler = next((found for found in map(shutil.which, compilers) if found), None)
        target = os.path.join(self.build, "peers", name)
        if compiler is None:
            self.skip(name, "no %s (Debian: %s)" % (compilers[0], package))
            return
        source = os.path.join(BENCH, "peers", source)
        compiled = _run([compiler, "-O3", "-march=native", source, "-o", target] + flags, self.log)
        if compiled:
            self.peers[name] = target
        else:
            self.skip(name, "its program does not compile%s; see %s" % (" (Debian: %s)" % package if package else "", self.log))

    def _find_torch(self):
        check = "import torch, torch.distributed as d; assert d.is_gloo_available(); print(torch.__version__)"
        found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            self.peers["torch"] = found.stdout.strip()
        else:
            self.skip("torch", "python3 cannot import torch with Gloo (pip install torch)")

    @staticmethod
    def _runner(mpi):
        return shutil.which("mpirun.openmpi" if mpi == "openmpi" else "mpiexec.mpich")

    def has(self, name):
        return os.access(os.path.join(self.build, "tests", "bench", name), os.X_OK)

    def python_path(self):
        return os.path.join(self.build, "bindings", "python")

    def ours(self, name):
        for pattern in ("tests/bench/", "bin/", "src/ddprun/", ""):
            path = os.path.join(self.build, pattern + name)
            if os.access(path, os.X_OK) and os.path.isfile(path):
                return path
        found = glob.glob(os.path.join(self.build, "**", name), recursive=True)
        return found[0] if found else sys.exit("%s was not built in %s" % (name, self.build))

    def environment(self):
        return {"DDP_MODULE_PATH": os.path.join(self.build, "src", "ddp"), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}

    def ddprun(self, ranks, program, *arguments):
        return [[self.ours("ddprun"), "-n", str(ranks), "--no-prefix", self.ours(program), *arguments]]

    def mpirun(self, mpi, ranks, *arguments):
        command = [self._runner(mpi), "-n", str(ranks)]
        if mpi == "openmpi":
            command += ["--bind-to", "none", "--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
        return [command + [self.peers[mpi], *arguments]]

    def versions(self):
        lines = {}
        for mpi, command in (("openmpi", ["mpirun.openmpi", "--version"]), ("mpich", ["mpiexec.mpich", "--version"])):
            if mpi in self.peers:
                text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
                words = text.replace(":", " ").split()
                lines[mpi] = next((word for word in words if word[0].isdigit()), "?")
        if "torch" in self.peers:
            lines["torch"] = self.peers["torch"]
        return lines
