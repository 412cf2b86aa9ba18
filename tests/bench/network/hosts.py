# SPDX-License-Identifier: Apache-2.0
"""Hosts on one machine: network namespaces whose eth0 leads to a switch with a rate and a delay."""

import os
import subprocess
import tempfile

SUBNET = "10.78.0."


class Network:
    """`with Network(...) as net:` makes the hosts 0 to hosts - 1 and takes them away again. Needs root."""

    def __init__(self, switch, hosts, rate_mbit, delay_ms, buffer_kib):
        self.switch, self.hosts, self.rate, self.delay, self.buffer = switch, hosts, rate_mbit, delay_ms, buffer_kib
        self.prefix = "ddpnet%d" % os.getpid()
        self.process = None

    def name(self, host):
        return "%s-%d" % (self.prefix, host)

    @staticmethod
    def address(host):
        return SUBNET + str(host + 1)

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="ddp-net-")
        self.counters = os.path.join(self.folder.name, "counters")
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self):
        for host in range(self.hosts):
            run("ip", "netns", "add", self.name(host))
        command = [self.switch, "-r", str(self.rate), "-d", str(self.delay), "-b", str(self.buffer), "-c", self.counters]
        self.process = subprocess.Popen(command + [self.name(h) for h in range(self.hosts)], stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError("the switch did not start")
        for host in range(self.hosts):
            self._configure(host)

    def _configure(self, host):
        ip = ("ip", "-n", self.name(host))
        run(*ip, "link", "set", "eth0", "address", "02:00:00:00:00:%02x" % (host + 1))
        run(*ip, "link", "set", "eth0", "gso_max_size", "16384")
        run(*ip, "address", "add", self.address(host) + "/24", "dev", "eth0")
        run(*ip, "link", "set", "eth0", "up")
        run(*ip, "link", "set", "lo", "up")
        for other in range(self.hosts):
            if other != host:
                run(*ip, "neighbour", "add", self.address(other), "lladdr", "02:00:00:00:00:%02x" % (other + 1), "dev", "eth0")
        run("tc", "-n", self.name(host), "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "%gmbit" % self.rate, "burst", "64k",
            "latency", "200ms")

    def __exit__(self, *_):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for host in range(self.hosts):
            subprocess.run(["ip", "netns", "del", self.name(host)], stderr=subprocess.DEVNULL, check=False)
        self.folder.cleanup()

    def inside(self, host, command):
        """`command` on a host that has a name of its own, and no shared memory with the others."""
        script = "hostname host%d; exec \"$@\"" % host
        return ["ip", "netns", "exec", self.name(host), "unshare", "--uts", "--ipc", "sh", "-c", script, "sh", *command]


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
