# SPDX-License-Identifier: Apache-2.0
"""What is compared: how each program is built, and how its ranks are started on the hosts of a Network."""

import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.dirname(HERE)
ROOT = os.path.dirname(os.path.dirname(BENCH))
GLOO = {"gloo-ring": "ring", "gloo-hd": "hd", "gloo-bcube": "bcube"}
OURS = {"libddp": "encrypted", "libddp-plain": "plain"}
ALL = ["libddp", "libddp-plain", *GLOO, "openmpi", "mpich", "torch"]


def say(text):
    print(text, file=sys.stderr, flush=True)


class Peers:
    def __init__(self, build, wanted):
        self.build, self.wanted, self.skipped, self.found = build, wanted, {}, []
        os.makedirs(os.path.join(build, "network"), exist_ok=True)

    def path(self, name):
        return os.path.join(self.build, "network", name)

    def prepare(self):
        self._compile("switch", ["gcc", "-O2"], "switch.c", [])
        self._compile("nap.so", ["gcc", "-O2", "-shared", "-fPIC"], "nap.c", ["-ldl"])
        for name in self.wanted:
            reason = self._prepare_one(name)
            if reason is None:
                self.found.append(name)
            else:
                self.skipped[name] = reason
                say("skipped: %s: %s" % (name, reason))

    def _prepare_one(self, name):
        if name in OURS:
            return self._build_ours()
        if name in GLOO:
            return self._compile("gloo_peer", ["g++", "-std=c++17", "-O3", "-march=native"], "gloo_peer.cpp", ["-lgloo", "-lpthread"])
        if name == "torch":
            check = "import torch.distributed as d; assert d.is_gloo_available()"
            found = subprocess.run([sys.executable, "-c", check], capture_output=True, check=False).returncode == 0
            return None if found else "python3 cannot import torch with Gloo (pip install torch)"
        runner = "mpirun.openmpi" if name == "openmpi" else "mpiexec.hydra"
        if shutil.which("mpicc." + name) is None or shutil.which(runner) is None:
            return "no mpicc.%s or %s (Debian: lib%s-dev)" % (name, runner, name)
        return self._compile(name, ["mpicc." + name, "-O3", "-march=native"], "mpi_peer.c", [])

    def _build_ours(self):
        if not os.path.exists(os.path.join(self.build, "CMakeCache.txt")):
            generator = ["-G", "Ninja"] if shutil.which("ninja") else []
            subprocess.run(["cmake", "-S", ROOT, "-B", self.build, "-DCMAKE_BUILD_TYPE=Release", "-DDDP_CUDA=OFF", "-DDDP_PYTHON=OFF", "-DDDP_GO=OFF", "-DDDP_JULIA=OFF", *generator], check=True,
                           stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", self.build, "--parallel", "2", "--target", "ddp", "ddp_gloo", "bench.network"], check=True,
                       stdout=sys.stderr)
        return None

    def _compile(self, name, compiler, source, flags):
        target, source = self.path(name), os.path.join(HERE, source)
        result = subprocess.run([*compiler, source, "-o", target, *flags], capture_output=True, text=True, check=False)
        return None if result.returncode == 0 else "its program does not compile: %s" % result.stderr.strip()[-300:]

    def ours(self):
        return os.path.join(self.build, "tests", "bench", "bench.network")

    def _environment(self, net, ranks):
        return {"BENCH_COUNTERS": net.counters, "BENCH_HOSTS": str(net.hosts), "OMP_NUM_THREADS": "1",
                "DDP_MODULE_PATH": os.path.join(self.build, "src", "ddp"), "MASTER_ADDR": net.address(0), "MASTER_PORT": "29731",
                "WORLD_SIZE": str(net.hosts * ranks), "LOCAL_WORLD_SIZE": str(ranks), "DDP_TOKEN": "only-for-this-benchmark",
                "GLOO_SOCKET_IFNAME": "eth0"}

    def commands(self, name, net, ranks, folder, arguments):
        """[(command, environment)]: one for each rank, or one that starts all. Ranks are placed host by host."""
        common = self._environment(net, ranks)
        if name in ("openmpi", "mpich"):
            return [(self._mpi(name, net, ranks, folder), common)]
        result = []
        for rank in range(net.hosts * ranks):
            host = rank // ranks
            if name in OURS:
                command = [self.ours(), *arguments]
            elif name == "torch":
                command = [sys.executable, os.path.join(HERE, "torch_peer.py"), *arguments]
            else:
                command = [self.path("gloo_peer"), GLOO[name], str(rank), str(net.hosts * ranks), folder]
            own = {"DDP_LINKS": OURS.get(name, ""), "RANK": str(rank), "LOCAL_RANK": str(rank % ranks), "DDP_TEST_HOST": str(host)}
            result.append((net.inside(host, command), dict(common, **own)))
        return result

    def _mpi(self, name, net, ranks, folder):
        agent = os.path.join(folder, "agent")
        with open(agent, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nwhile case $1 in -*) true;; *) false;; esac; do shift; done\nn=$((${1##*.} - 1))\nshift\n"
                       "exec ip netns exec %s-$n unshare --uts --ipc sh -c \"hostname host$n; exec $*\"\n" % net.prefix)
        os.chmod(agent, 0o755)
        hosts = [net.address(h) for h in range(net.hosts)]
        if name == "openmpi":
            command = ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "--mca", "plm_rsh_agent", agent, "--mca", "plm", "rsh",
                       "--mca", "plm_rsh_no_tree_spawn", "1",
                       "--mca", "btl", "tcp,self,vader", "--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0",
                       "--mca", "mpi_yield_when_idle", "1", "--mca", "pml", "ob1", "-x", "LD_PRELOAD=" + self.path("nap.so"),
                       "-x", "BENCH_MEETING", "-x", "BENCH_COUNTERS", "-x", "BENCH_HOSTS", "-x", "BENCH_SIZES", "-x", "BENCH_CALLS",
                       "--host", ",".join("%s:%d" % (h, ranks) for h in hosts), self.path(name)]
        else:
            command = ["mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", agent, "-iface", "eth0", "-genv", "UCX_NET_DEVICES", "eth0",
                       "-genv", "LD_PRELOAD", self.path("nap.so"), "-hosts", ",".join("%s:%d" % (h, ranks) for h in hosts),
                       "-n", str(net.hosts * ranks), self.path(name)]
        return net.inside(0, command)
