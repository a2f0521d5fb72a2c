"""Owns one node that runs pods: containerd, a bridge, names, a kubelet; and that nothing of them is left at the end."""

import json
import os
import shutil
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import yaml

from tests.deployed import golang
from tests.deployed.cluster import NODE, ApiServer, running
from tests.deployed.debian import fetch_programs, install, require_root
from tests.deployed.engine import FORWARD, Engine
from tests.deployed.shell import DeploymentFailed, MissingSoftware, ask, await_until, run, say

BRIDGE = "outbox-deployed"
GATEWAY = "10.231.0.1"
PODS = "10.231.0.0/24"
PAUSE = "outbox-pause:local"
CONTROL_GROUPS = Path("/sys/fs/cgroup")
KUBEPODS = "kubepods"
NETWORKS = Path("/run/netns")
# What the kubelet and containerd make outside of the folders that they are given.
OUTSIDE = (Path("/var/log/containers"), Path("/run/containerd"), Path("/var/lib/kubelet"), NETWORKS)
PACKAGES = ("containerd", "containernetworking-plugins")
DOMAIN = "cluster.local"


class PodNode:
    def __init__(self, folder: Path, place: Path, names: "Names") -> None:
        self.names = names
        self._socket = place / "containerd.sock"
        self._ctr = str(fetch_programs(folder, PACKAGES) / "usr" / "bin" / "ctr")

    def ctr(self, *words: str | Path, check: bool = True) -> str:
        return run(self._ctr, "-a", self._socket, "-n", "k8s.io", *words, check=check)

    @property
    def answers(self) -> bool:
        return self._socket.exists() and bool(self.ctr("version"))

    @property
    def version(self) -> str:
        return self.ctr("version").split("Version:")[-1].split()[0]

    @property
    def endpoint(self) -> str:
        return f"unix://{self._socket}"

    def processes(self) -> dict[str, int]:
        """The first process of each container, by its id."""
        rows = [line.split() for line in self.ctr("task", "ls").splitlines()[1:]]
        return {row[0]: int(row[1]) for row in rows}


def exported(engine: Engine, folder: Path, names: tuple[str, ...]) -> None:
    """Images for the node, which has no registry either; an image that it has already is not written again."""
    for name in names:
        identity = engine.docker("image", "inspect", "-f", "{{.Id}}", name).strip()
        if _stamp(folder, name).exists() and _stamp(folder, name).read_text() == identity:
            continue
        _stamp(folder, name).unlink(missing_ok=True)
        _archive(folder, name).parent.mkdir(parents=True, exist_ok=True)
        engine.docker("save", "-o", _archive(folder, name), name)
        _archive(folder, name).with_suffix(".id").write_text(identity)


@contextmanager
def node(server: ApiServer, folder: Path) -> Iterator[PodNode]:
    """Ready for pods. Its traffic stays on a bridge of its own, without a way out."""
    require_root("a node that runs pods")
    if (CONTROL_GROUPS / "memory" / KUBEPODS).exists() or (CONTROL_GROUPS / KUBEPODS).exists():
        raise MissingSoftware("a kubelet has its control groups on this machine already")
    install({"runc": "runc", "iptables": "iptables"})
    golang.kubernetes(folder, "kubelet")
    fetch_programs(folder, PACKAGES)
    before = {path for path in OUTSIDE if path.exists()}
    spaces = _spaces()
    try:
        with ExitStack() as stack:
            stack.enter_context(_bridge())
            names = stack.enter_context(Names.served())
            made = stack.enter_context(_containerd(server.folder, folder, names))
            stack.enter_context(_kubelet(server, folder, made))
            ready = ("wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=90s")
            await_until(lambda: server.kubectl("get", "node", NODE), "the kubelet has made its node", 60)
            server.kubectl(*ready)
            try:
                yield made
            finally:
                _emptied(server, made)
    finally:
        _clean(server.folder, spaces)
        for path in set(OUTSIDE) - before:
            with suppress(OSError):
                shutil.rmtree(path)
        left = traces(server.folder, spaces)
        if left:
            raise DeploymentFailed(f"left behind: {left}")


def traces(place: Path, spaces: frozenset[str] = frozenset()) -> list[str]:
    """What of a node is still there."""
    found = [f"mount {mount}" for mount in _mounts(place)]
    found += [f"interface {BRIDGE}"] if Path("/sys/class/net", BRIDGE).exists() else []
    found += [f"rule {line}" for line in ask("iptables-save").splitlines() if BRIDGE in line]
    found += [f"control group {path}" for path in _groups() if path.name == KUBEPODS]
    found += [f"network namespace {name}" for name in _spaces() - spaces]
    return found + [f"process {pid}" for pid in _processes(place)]


# The network


@contextmanager
def _bridge() -> Iterator[None]:
    """Pods meet on it, and this machine is on it. Another engine's rules may forbid what is forwarded."""
    rule = ("FORWARD", "-i", BRIDGE, "-o", BRIDGE, "-j", "ACCEPT")
    forward = FORWARD.read_text()  # the plugin of the bridge switches it on
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    try:
        run("ip", "address", "add", f"{GATEWAY}/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        run("iptables", "-I", *rule)
        try:
            yield
        finally:
            ask("iptables", "-D", *rule)
    finally:
        for link in Path("/sys/class/net", BRIDGE, "brif").glob("*"):
            ask("ip", "link", "delete", link.name)
        ask("ip", "link", "delete", BRIDGE)
        FORWARD.write_text(forward)


class Names:
    """The few names of a cluster's DNS: `postgresql.outbox` is an address, or nothing yet."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}

    def give(self, name: str, address: str) -> None:
        self._addresses[f"{name}.svc.{DOMAIN}"] = address

    @classmethod
    @contextmanager
    def served(cls) -> Iterator["Names"]:
        names = cls()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as served:
            served.bind((GATEWAY, 53))
            served.settimeout(0.5)
            stopping = threading.Event()
            thread = threading.Thread(target=names._serve, args=(served, stopping), daemon=True)
            thread.start()
            try:
                yield names
            finally:
                stopping.set()
                thread.join(5)

    def _serve(self, served: socket.socket, stopping: threading.Event) -> None:
        while not stopping.is_set():
            with suppress(TimeoutError):
                question, asker = served.recvfrom(512)
                served.sendto(self.answer(question), asker)

    def answer(self, question: bytes) -> bytes:
        """One question in, its address out; a name without one does not exist."""
        labels, place = [], 12
        while length := question[place]:
            labels.append(question[place + 1 : place + 1 + length].decode())
            place += 1 + length
        asked = question[12 : place + 5]
        [kind] = struct.unpack(">H", question[place + 1 : place + 3])
        address = self._addresses.get(".".join(labels).lower())
        found = (
            b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton(address) if address and kind == 1 else b""
        )
        flags = 0x8580 if address else 0x8583
        return question[:2] + struct.pack(">HHHHH", flags, 1, bool(found), 0, 0) + asked + found


# The daemons


@contextmanager
def _containerd(place: Path, folder: Path, names: Names) -> Iterator[PodNode]:
    programs = fetch_programs(folder, PACKAGES)
    network = {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "ipMasq": False}
    network["ipam"] = {"type": "host-local", "dataDir": str(place / "addresses"), "ranges": [[{"subnet": PODS}]]}
    (place / "net.d").mkdir()
    configured = {"cniVersion": "1.0.0", "name": BRIDGE, "plugins": [network]}
    (place / "net.d" / "pods.conflist").write_text(json.dumps(configured))
    runc = shutil.which("runc") or "/usr/sbin/runc"
    (place / "containerd.toml").write_text(
        "version = 3\n"
        f"root = '{folder / 'node'}'\nstate = '{place / 'containerd'}'\n"
        f"[grpc]\naddress = '{place / 'containerd.sock'}'\n"
        f"[plugins.'io.containerd.internal.v1.opt']\npath = '{place / 'opt'}'\n"
        "[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n"
        f"[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = 'docker.io/library/{PAUSE}'\n"
        # Where root may not lower the score of a process, the runtime must not try.
        "[plugins.'io.containerd.cri.v1.runtime']\nrestrict_oom_score_adj = true\n"
        f"[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['{programs / 'usr/lib/cni'}']\n"
        f"conf_dir = '{place / 'net.d'}'\n"
        "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\nruntime_type = 'io.containerd.runc.v2'\n"
        "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\n"
        f"BinaryName = '{runc}'\nSystemdCgroup = false\n"
    )
    made = PodNode(folder, place, names)
    path = f"{programs / 'usr/bin'}:/usr/sbin:/usr/bin:/sbin:/bin"
    with running(place, programs / "usr/bin/containerd", "--config", str(place / "containerd.toml"), path=path):
        await_until(lambda: made.answers, f"containerd ({place / 'containerd.log'})", 60)
        _imported(made, folder)
        try:
            yield made
        finally:
            _ended(made)


def _imported(made: PodNode, folder: Path) -> None:
    for identity in sorted((folder / "images").glob("*.id")):
        archive = identity.with_suffix(".tar")
        if not archive.exists():
            continue
        say(f"   the node takes {archive.stem}")
        made.ctr("images", "import", "--local", archive)
        identity.rename(identity.with_suffix(".taken"))
        archive.unlink()


def _archive(folder: Path, name: str) -> Path:
    return folder / "images" / f"{name.replace('/', '_').replace(':', '_').replace('.', '_')}.tar"


def _stamp(folder: Path, name: str) -> Path:
    return _archive(folder, name).with_suffix(".taken")


@contextmanager
def _kubelet(server: ApiServer, folder: Path, made: PodNode) -> Iterator[None]:
    place = server.folder
    (place / "resolv.conf").write_text("")
    configuration = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": GATEWAY,
        "healthzPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},  # whoever is on that bridge
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        "containerRuntimeEndpoint": made.endpoint,
        "clusterDNS": [GATEWAY],
        "clusterDomain": DOMAIN,
        "resolvConf": str(place / "resolv.conf"),
        "podLogsDir": str(place / "logs"),
        "volumePluginDir": str(place / "plugins"),
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
    }
    (place / "kubelet.yaml").write_text(yaml.safe_dump(configuration))
    options = [f"--config={place / 'kubelet.yaml'}", f"--kubeconfig={server.config('kubelet')}", f"--node-ip={GATEWAY}"]
    options += [f"--hostname-override={NODE}", f"--root-dir={place / 'kubelet'}", f"--cert-dir={place / 'certs'}"]
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    with running(place, golang.kubernetes(folder, "kubelet") / "kubelet", *options, path=path):
        yield


# Taking down


def _emptied(server: ApiServer, made: PodNode) -> None:
    """While the kubelet runs, it unmounts what it mounted and lets containerd take the interfaces down."""
    with suppress(DeploymentFailed):
        for kind in ("deployments,jobs", "pods"):
            server.kubectl("delete", kind, "-A", "--all", "--grace-period=1", "--ignore-not-found", "--timeout=60s")
        await_until(lambda: not made.processes(), "the pods are gone", 60)


def _ended(made: PodNode) -> None:
    """What a kubelet that failed did not end."""
    for container, pid in made.processes().items():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        made.ctr("task", "rm", "-f", container, check=False)
    if containers := made.ctr("containers", "ls", "-q").split():
        made.ctr("containers", "rm", *containers, check=False)


def _clean(place: Path, spaces: frozenset[str]) -> None:
    for pid in _processes(place):  # a shim outlives its containerd
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for mount in reversed(_mounts(place)):
        ask("umount", "-l", mount)
    for name in _spaces() - spaces:
        ask("umount", "-l", str(NETWORKS / name))
        (NETWORKS / name).unlink(missing_ok=True)
    for path in _groups():
        with suppress(OSError):
            path.rmdir()


def _mounts(place: Path) -> list[str]:
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [mount for mount in mounts if mount.startswith(f"{place}/")]


def _spaces() -> frozenset[str]:
    return frozenset(path.name for path in NETWORKS.glob("cni-*"))


def _groups() -> list[Path]:
    """The deepest first."""
    tops = [*CONTROL_GROUPS.glob(f"*/{KUBEPODS}"), *CONTROL_GROUPS.glob(KUBEPODS)]
    found = [path for top in tops for path in (top, *top.rglob("*")) if path.is_dir()]
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


def _processes(place: Path) -> list[int]:
    """Those whose command names the folder: shims."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (path / "cmdline").read_bytes().split(b"\0")
            if command[0].endswith(b"containerd-shim-runc-v2") and any(str(place).encode() in word for word in command):
                found.append(int(path.name))
    return found
