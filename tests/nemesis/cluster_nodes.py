"""Owns three search servers of one cluster on one machine, each in a network namespace of its own with its data on a
small disk of its own; the bridge between them; and what can be done to either. It measures nothing."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from outbox.embedded.elasticsearch import EmbeddedElasticsearch
from outbox.embedded.opensearch import EmbeddedOpenSearch
from outbox.embedded.process import Command, SupervisedProcess
from outbox.embedded.products import ELASTICSEARCH, release_of
from outbox.embedded.search_server import EmbeddedSearch
from outbox.embedded.server_account import Account
from tests.nemesis.small_disk import WATERMARKS, SmallDisk

NODES = 3
HTTP, TRANSPORT = 9200, 9300
HEAP = "400m"
# Dead and deaf nodes are found in seconds: a short run meets every fault.
QUICK = {
    "cluster.fault_detection.follower_check.interval": "500ms",
    "cluster.fault_detection.follower_check.timeout": "1500ms",
    "cluster.fault_detection.follower_check.retry_count": 2,
    "cluster.fault_detection.leader_check.interval": "500ms",
    "cluster.fault_detection.leader_check.timeout": "1500ms",
    "cluster.fault_detection.leader_check.retry_count": 2,
    "cluster.publish.timeout": "5s",
    # A node without a master answers no reads either: they would be old.
    "cluster.no_master_block": "all",
    **WATERMARKS,
    "http.max_content_length": "2mb",
}


def run(*argv: str, check: bool = True) -> str:
    done = subprocess.run(argv, text=True, capture_output=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


class Network:
    """`with Network() as network`: three namespaces at .11, .12 and .13, and one with the bridge between them: in this
    machine's own the rules of others, such as Docker's, would hold. This machine is at .1.

    A server that listens on another address than loopback demands limits that few accounts may set. So each listens on
    its own loopback only, and what the others send to its port on theirs is brought there."""

    def __init__(self) -> None:
        tag = f"{os.getpid() % 100_000:05d}"
        self._net = f"10.213.{os.getpid() % 200 + 20}"
        self._hub, self._here = f"nemesis-{tag}-hub", f"nmh{tag}"
        self.name = f"nemesis-{tag}"
        self.spaces = [f"{self.name}-{n}" for n in range(NODES)]
        self.addresses = [f"{self._net}.{11 + n}" for n in range(NODES)]
        # Not every kernel can delay packets; a narrow link with a long queue delays them too.
        self.can_delay = True

    def __enter__(self) -> Network:
        try:
            run("ip", "netns", "add", self._hub)
            self._at_hub("ip", "link", "add", "bridge", "type", "bridge")
            self._at_hub("ip", "link", "set", "bridge", "up")
            run("ip", "link", "add", self._here, "type", "veth", "peer", "name", "here", "netns", self._hub)
            run("ip", "addr", "add", f"{self._net}.1/24", "dev", self._here)
            run("ip", "link", "set", self._here, "up")
            self._at_hub("ip", "link", "set", "here", "master", "bridge", "up")
            for n in range(NODES):
                self._add(n)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _add(self, n: int) -> None:
        run("ip", "netns", "add", self.spaces[n])
        self._at_hub("ip", "link", "add", f"n{n}", "type", "veth", "peer", "name", "eth0", "netns", self.spaces[n])
        self._at_hub("ip", "link", "set", f"n{n}", "master", "bridge", "up")
        self.inside(n, "ip", "addr", "add", f"{self.addresses[n]}/24", "dev", "eth0")
        self.inside(n, "ip", "link", "set", "eth0", "up")
        self.inside(n, "ip", "link", "set", "lo", "up")
        for device in ("all", "eth0"):
            self.inside(n, "sysctl", "-qw", f"net.ipv4.conf.{device}.route_localnet=1")
        nat = ("iptables", "-t", "nat", "-A")
        inward = ("-p", "tcp", "-d", self.addresses[n], "-j", "DNAT", "--to-destination", "127.0.0.1")
        self.inside(n, *nat, "PREROUTING", *inward)
        self.inside(n, *nat, "POSTROUTING", "-p", "tcp", "-o", "eth0", "-j", "MASQUERADE")
        for other in range(NODES):
            if other != n:
                port = ("--dport", str(TRANSPORT + other))
                outward = ("-p", "tcp", "-d", "127.0.0.1", *port, "-j", "DNAT", "--to-destination")
                self.inside(n, *nat, "OUTPUT", *outward, self.addresses[other])

    def __exit__(self, *_: object) -> None:
        for space in (*self.spaces, self._hub):
            run("ip", "netns", "del", space, check=False)
        run("ip", "link", "del", self._here, check=False)

    def _at_hub(self, *argv: str, check: bool = True) -> str:
        return run("ip", "netns", "exec", self._hub, *argv, check=check)

    def inside(self, n: int, *argv: str, check: bool = True) -> str:
        return run("ip", "netns", "exec", self.spaces[n], *argv, check=check)

    # Faults. Clients at .1 are always heard.

    def deafen(self, n: int, to: Sequence[int]) -> None:
        """Node `n` hears nothing from these."""
        for other in to:
            self.inside(n, "iptables", "-t", "raw", "-A", "PREROUTING", "-s", self.addresses[other], "-j", "DROP")

    def part(self, n: int, from_: Sequence[int]) -> None:
        self.deafen(n, from_)
        for other in from_:
            self.deafen(other, [n])

    def slow(self, n: int, milliseconds: int, kilobits: int) -> str:
        """Both directions; answers how."""
        delay = ("netem", "delay", f"{milliseconds}ms", f"{milliseconds // 4}ms")
        narrow = ("tbf", "rate", f"{kilobits}kbit", "burst", "8kb", "latency", f"{4 * milliseconds}ms")
        for way in (delay, narrow) if self.can_delay else (narrow,):
            try:
                self._at_hub("tc", "qdisc", "replace", "dev", f"n{n}", "root", *way)
                self.inside(n, "tc", "qdisc", "replace", "dev", "eth0", "root", *way)
                return " ".join(way)
            except RuntimeError:
                self.can_delay = False
        raise RuntimeError("no way to slow a link here")

    def heal(self) -> None:
        for n in range(NODES):
            self.inside(n, "iptables", "-t", "raw", "-F", "PREROUTING")
            self._at_hub("tc", "qdisc", "del", "dev", f"n{n}", "root", check=False)
            self.inside(n, "tc", "qdisc", "del", "dev", "eth0", "root", check=False)


class _Clustered(SmallDisk, EmbeddedSearch):
    """A node with a fixed address instead of loopback."""

    network: Network
    place: int
    ready_seconds = 600.0
    megabytes = 300

    @property
    def url(self) -> str:
        return f"http://{self.network.addresses[self.place]}:{HTTP}"

    @property
    def port(self) -> int:
        return HTTP

    @property
    def name(self) -> str:
        return f"n{self.place}"

    def _all_settings(self) -> dict[str, object]:
        settings = super()._all_settings()
        del settings["discovery.type"]
        names = [f"n{n}" for n in range(NODES)]
        return settings | {
            "cluster.name": self.network.name,
            "node.name": self.name,
            "http.port": HTTP,
            "transport.port": TRANSPORT + self.place,
            "discovery.seed_hosts": [f"127.0.0.1:{TRANSPORT + n}" for n in range(NODES)],
            **(
                {}
                if (self.folder / "data" / "nodes").exists() or (self.folder / "data" / "_state").exists()
                else {
                    "cluster.initial_cluster_manager_nodes"
                    if self.product is not ELASTICSEARCH
                    else "cluster.initial_master_nodes": names
                }
            ),
            **QUICK,
        }

    def _run(self) -> None:
        """As root into the namespace; there the program gets its own account."""
        self._port = HTTP
        self._node_name = self.name
        with contextlib.suppress(FileNotFoundError):
            self.log.replace(self.log.with_suffix(".log.1"))
        self._prepare()
        command = self._command()
        who = ("--reuid", str(self._account.uid), "--regid", str(self._account.gid), "--clear-groups")
        into = ["nsenter", f"--net=/run/netns/{self.network.spaces[self.place]}"]
        argv = [*into, "setpriv", *who, *command.argv]
        root = Command(argv, command.cwd, command.env, command.stop_signal)
        self._process = SupervisedProcess(root, Account(os.geteuid(), os.getegid()), self.log)


class ElasticsearchNode(_Clustered, EmbeddedElasticsearch):
    pass


class OpenSearchNode(_Clustered, EmbeddedOpenSearch):
    pass


class Cluster:
    """The nodes; what they say of themselves is asked by whoever has a client."""

    def __init__(self, folder: Path, network: Network, release: str) -> None:
        self.network = network
        kind = ElasticsearchNode if release_of(release).product == ELASTICSEARCH else OpenSearchNode
        self.nodes: list[_Clustered] = []
        for n in range(NODES):
            node = kind(folder / f"node-{n}", version=release, heap=HEAP)
            node.network, node.place = network, n
            self.nodes.append(node)

    def start(self) -> None:
        for node in self.nodes:
            node.mount()
            node.launch()
        for node in self.nodes:
            node.await_ready()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
            node.unmount()

    @property
    def running(self) -> bool:
        return all(node.running for node in self.nodes)

    def named(self, name: str) -> _Clustered:
        return next(node for node in self.nodes if node.name == name)
