"""Towns of real peers for tests: processes with certificates and files of their own, and hosts to put them on.

Owns starting, killing, watching and cleaning up. What must hold is for the tests to say.
"""

import asyncio
import contextlib
import errno
import ipaddress
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

import gadget_svm
from gadget_svm.estimator.model_file import load_model
from gadget_svm.estimator.problem import as_csr
from gadget_svm.peers.certs import init_ca, issue
from gadget_svm.peers.config import load, template
from gadget_svm.peers.identity import Identity
from gadget_svm.peers.messages import Notice
from gadget_svm.peers.post import Line, Unreachable
from gadget_svm.reproduction.baselines.optimum import Optimum, certified_optimum

PACE = {"tick": 0.02, "heartbeat": 0.5, "suspect": 3.0, "dead": 3.0, "checkpoint": 1.0, "export": 1.0}
PATIENCE = 180.0
"""Seconds after which a town that still is not as it should be is taken to hang."""
ORPHANS_DIE = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"
"""PR_SET_PDEATHSIG: no peer outlives the tests, however they end."""


class Town:
    """Peers by name, each with its own rows, on one machine or on a host each."""

    def __init__(
        self, folder: Path, sites: Mapping[str, Any], lam: float, hosts: "Hosts | None" = None, **terms: Any
    ) -> None:
        self.folder, self.sites, self.lam, self.hosts, self.terms = folder, dict(sites), lam, hosts, terms
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._optima: dict[frozenset[str], Optimum] = {}
        if hosts is not None:
            self.addresses = {name: f"{hosts.address(i)}:7400" for i, name in enumerate(self.sites)}
        else:
            self.addresses = {
                name: f"127.0.0.1:{port}" for name, port in zip(sites, free_ports(len(sites)), strict=True)
            }
        self._found()

    def __enter__(self) -> "Town":
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.processes):
            self.kill(name)

    def _found(self) -> None:
        """Certificates, rows and a peer.toml for everyone."""
        init_ca(self.folder / "ca")
        names = list(self.sites)
        width = max(X.shape[1] for X, _ in self.sites.values())
        for name, (X, y) in self.sites.items():
            home = self.folder / name
            home.mkdir()
            address = self.addresses[name]
            issue(self.folder / "ca", name, [address.rpartition(":")[0]], out=home)
            dump_svmlight_file(X, y, str(home / "train.svm"), zero_based=False)
            text = template(
                name, address=address, listen=address, join=[self.addresses[other] for other in names[:2]],
                train="train.svm", features=width, zero_based=False, classes=[-1, 1], lam=self.lam, **PACE,
                **self.terms,
            )  # fmt: skip
            (home / "peer.toml").write_text(text)

    # Starting and ending

    def start(self, *names: str) -> None:
        """Start peers; `up` waits for them."""
        for name in names:
            place = list(self.sites).index(name)
            inside = [] if self.hosts is None else self.hosts.inside(place)
            command = [
                *inside,
                sys.executable,
                "-m",
                "gadget_svm",
                "peer",
                "run",
                str(self.folder / name / "peer.toml"),
            ]
            with self.log_of(name).open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, "-c", ORPHANS_DIE, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env=surroundings(),
                )  # fmt: skip

    def open(self, *names: str) -> None:
        """Start peers and wait until they learn: two first, who compile what the others then find compiled."""
        for some in (names[:2], names[2:]):
            self.start(*some)
            self.wait(f"{some} learn", lambda some=some: all(self.model_of(name).is_file() for name in some))

    def kill(self, name: str) -> None:
        """kill -9, and gone."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def terminate(self, *names: str) -> dict[str, int]:
        """SIGTERM to all of them at once; how they exit. One that does not is an error."""
        going = {name: self.processes[name] for name in names}
        for process in going.values():
            process.send_signal(signal.SIGTERM)
        try:
            codes = {name: process.wait(PATIENCE) for name, process in going.items()}
        except subprocess.TimeoutExpired as error:
            hanging = [name for name, process in going.items() if process.poll() is None]
            raise AssertionError(f"{hanging} do not leave on SIGTERM\n{self.report(hanging)}") from error
        for name in names:
            del self.processes[name]
        return codes

    @property
    def live(self) -> list[str]:
        """Those that were started and not ended."""
        return sorted(self.processes)

    # Watching

    def wait(self, what: str, there: Callable[[], Any], patience: float = PATIENCE) -> None:
        """Until it is so. A peer that ends by itself, or time that runs out, is an error that shows the logs."""
        until = time.monotonic() + patience
        while not there():
            ended = {name: code for name, process in self.processes.items() if (code := process.poll()) is not None}
            assert not ended, f"ended by themselves: {ended}\n{self.report(ended)}"
            assert time.monotonic() < until, f"not in {patience:g} s: {what}\n{self.report(self.live)}"
            time.sleep(0.3)

    def status(self, name: str) -> dict[str, Any] | None:
        """What the peer says of itself, asked from this machine; None without an answer."""
        own = load(self.folder / name / "peer.toml")
        identity = Identity.load(own.tls.cert, own.tls.key, own.tls.ca, own.tls.revoked, name)

        async def ask() -> str:
            line = Line(identity, own.peer.address, 1, name)
            try:
                return await line.status(Notice(name))
            finally:
                await line.close()

        try:
            found: dict[str, Any] = json.loads(asyncio.run(ask()))
        except Unreachable:
            return None
        return found

    def see_each_other(self, names: Iterable[str]) -> bool:
        """Whether each of these knows as many to be present as these are."""
        some = list(names)
        found = [self.status(name) for name in some]
        return all(each is not None and each["members"]["alive"] == len(some) for each in found)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The records of a peer's log, of all its lives."""
        lines = self.log_of(name).read_text(errors="replace").splitlines() if self.log_of(name).is_file() else []
        records = []
        for line in lines:
            with contextlib.suppress(json.JSONDecodeError):  # the last may be half written
                records.append(json.loads(line))
        return records

    def starts(self, name: str) -> list[int]:
        """The incarnations a peer had, one after another."""
        return [each["fields"]["incarnation"] for each in self.events(name) if each["event"] == "up"]

    def errors(self) -> list[dict[str, Any]]:
        """What any peer ever logged as an error."""
        return [event for name in self.sites for event in self.events(name) if event["level"] == "error"]

    def report(self, names: Iterable[str]) -> str:
        """The ends of logs, for one who looks into a failure."""
        return "\n".join(f"--- {name}\n" + self.log_of(name).read_text(errors="replace")[-3000:] for name in names)

    def log_of(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def model_of(self, name: str) -> Path:
        return self.folder / name / "model.safetensors"

    # Judging

    def rows(self, names: Iterable[str]) -> tuple[Any, Any]:
        """The rows of some peers, pooled, with the column of ones that stands for the intercept."""
        some = [self.sites[name] for name in sorted(names)]
        return as_csr(sp.vstack([sp.csr_matrix(X) for X, _ in some]), True), np.concatenate([y for _, y in some])

    def optimum(self, names: Iterable[str]) -> Optimum:
        """Of the pooled rows of some peers, certified."""
        key = frozenset(names)
        if key not in self._optima:
            self._optima[key] = certified_optimum(*self.rows(key), self.lam, gap=1e-4)
        return self._optima[key]

    def above(self, w: Any, names: Iterable[str]) -> float:
        """How far F(w) on the rows of some peers is above their optimum, at most, as a part of it."""
        X, y = self.rows(names)
        value = 0.5 * self.lam * float(w @ w) + float(np.maximum(0.0, 1.0 - y * (X @ w)).mean())
        bound = self.optimum(names).bound
        return (value - bound) / bound

    def gaps(self, names: Iterable[str] | None = None) -> dict[str, float]:
        """Of the models that peers wrote last, each on the rows of all of these peers."""
        some = sorted(self.live if names is None else names)
        models = {name: load_model(self.model_of(name)) for name in some}
        return {name: self.above(np.append(m.coef_[0], m.intercept_[0]), some) for name, m in models.items()}

    def settle(self, names: Iterable[str] | None = None, within: float = 0.01) -> float:
        """Wait until every one of these wrote two models running, from now on, that are as good; the worst gap."""
        some = sorted(self.live if names is None else names)
        worst = np.inf
        times, since, begun = 0, time.time(), time.monotonic()

        def good() -> bool:
            nonlocal worst, times, since
            if any(self.model_of(name).stat().st_mtime < since for name in some):
                return False
            worst, since = max(self.gaps(some).values()), time.time()
            times = times + 1 if worst <= within else 0
            return times == 2

        try:
            self.wait(f"{some} within {within:.1%}", good)
        except AssertionError as error:
            raise AssertionError(f"the worst is {worst:.2%} above the optimum; {error}") from error
        print(f"{len(some)} peers within {worst:.3%} after {time.monotonic() - begun:.1f} s", flush=True)
        return worst


class Hosts:
    """A host for each of ``n`` peers: network namespaces, half of them at one bridge and half at another.

    Names hold this process's id, so that what a run left behind is known for what it is and taken down by the next.
    """

    PREFIX = "gpeer"
    _runs = count()

    def __init__(self, n: int) -> None:
        self.n = n
        self.tag = f"{self.PREFIX}{os.getpid():x}{'ghijklmnopqrstuv'[next(self._runs) % 16]}"

    @cached_property
    def net(self) -> ipaddress.IPv4Network:
        """A /24 of the range for testing networks (RFC 2544) that nothing here uses."""
        lines = run("ip", "-o", "-4", "addr").stdout.split("\n")
        used = [ipaddress.ip_interface(line.split()[3]).network for line in lines if line]
        nets = list(ipaddress.ip_network("198.18.0.0/15").subnets(new_prefix=24))
        first = os.getpid() * 7 % len(nets)
        return next(net for net in nets[first:] + nets[:first] if not any(net.overlaps(other) for other in used))

    def address(self, i: int) -> str:
        return str(self.net[i + 10])

    def inside(self, i: int) -> list[str]:
        """What to put before a command that is to run on host i."""
        return ["ip", "netns", "exec", f"{self.tag}{i}"]

    def __enter__(self) -> "Hosts":
        self.clear_leftovers()
        _ = self._guard
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._guard.communicate()

    @cached_property
    def _guard(self) -> subprocess.Popen[bytes]:
        """Takes everything down when its input ends: when it is told to, or when this process dies, however it does."""
        hosts = [f"ip netns delete {self.tag}{i}" for i in range(self.n)]
        links = [f"ip link delete {self.tag}{link}" for link in "xyz"]  # the bridges, and the cable between them
        script = f"read -r end; {'; '.join([*hosts, *links])}"
        return subprocess.Popen(
            ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    def _build(self) -> None:
        tag = self.tag
        for bridge in ("x", "y"):
            run("ip", "link", "add", f"{tag}{bridge}", "type", "bridge")
            run("ip", "link", "set", f"{tag}{bridge}", "up")
        run("ip", "link", "add", f"{tag}z", "type", "veth", "peer", "name", f"{tag}w")
        for end, bridge in (("z", "x"), ("w", "y")):
            run("ip", "link", "set", f"{tag}{end}", "master", f"{tag}{bridge}", "up")
        run("ip", "address", "add", f"{self.net[1]}/24", "dev", f"{tag}x")
        for i in range(self.n):
            host = f"{tag}{i}"
            run("ip", "netns", "add", host)
            run("ip", "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", host)
            run("ip", "link", "set", host, "master", f"{tag}{'x' if i < self.n // 2 else 'y'}", "up")
            run("ip", "-n", host, "link", "set", "lo", "up")
            run("ip", "-n", host, "address", "add", f"{self.address(i)}/24", "dev", "eth0")
            run("ip", "-n", host, "link", "set", "eth0", "up")

    def reach(self, i: int, j: int) -> bool:
        """Whether host j answers host i, if only that nobody listens there."""
        ask = f"print(socket.socket().connect_ex(('{self.address(j)}', 9)))"
        code = f"import socket; socket.setdefaulttimeout(5); {ask}"
        return run(*self.inside(i), sys.executable, "-c", code).stdout.strip() == str(errno.ECONNREFUSED)

    def lose(self, share: float) -> None:
        """Every host loses this share of the packets that reach it, from now on."""
        for i in range(self.n):
            run(*self.inside(i), "iptables", "-F", "INPUT")
            if share:
                rule = ("-m", "statistic", "--mode", "random", "--probability", str(share), "-j", "DROP")
                run(*self.inside(i), "iptables", "-A", "INPUT", *rule)

    def lost(self) -> int:
        """Packets lost so far on purpose."""
        lines = [run(*self.inside(i), "iptables", "-L", "INPUT", "-v", "-x", "-n").stdout for i in range(self.n)]
        return sum(int(line.split()[0]) for text in lines for line in text.split("\n") if " DROP " in line)

    def part(self, apart: bool = True) -> None:
        """Pull the cable between the two halves, or plug it in again."""
        run("ip", "link", "set", f"{self.tag}z", "down" if apart else "up")

    @staticmethod
    def _names() -> list[str]:
        folder = Path("/run/netns")
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    @classmethod
    def clear_leftovers(cls) -> None:
        """Take down what runs that are no more have left behind."""
        links = json.loads(run("ip", "-j", "link").stdout)
        for name in {*cls._names(), *(link["ifname"] for link in links)}:
            ours = re.fullmatch(rf"{cls.PREFIX}([0-9a-f]+)[g-v](\d+|[w-z])", name)
            if ours is None or Path(f"/proc/{int(ours[1], 16)}").exists():
                continue
            kind = "netns" if name in cls._names() else "link"
            subprocess.run(["ip", kind, "delete", name], capture_output=True, check=False)

    @classmethod
    def missing(cls, lossy: bool = False) -> str:
        """Why there can be no such hosts here; empty if there can."""
        if os.name != "posix" or not hasattr(os, "geteuid") or os.geteuid():
            return "network namespaces need root"
        for tool in ("ip", "iptables") if lossy else ("ip",):
            if shutil.which(tool) is None:
                return f"there is no {tool}: install {'iproute2' if tool == 'ip' else tool}"
        try:
            with cls(2) as hosts:
                if not hosts.reach(0, 1):
                    return "hosts at two bridges do not reach each other: does a firewall of this machine forbid it?"
                if lossy:
                    hosts.lose(0.5)
        except (subprocess.CalledProcessError, OSError) as error:
            return f"no network namespaces here: {getattr(error, 'stderr', '') or error}".strip()
        return ""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """A command that must succeed, soon."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)


def free_ports(number: int) -> list[int]:
    """Ports nobody listens on, below those the system gives to outgoing calls: free again for one that restarts."""
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    rng, ports = random.Random(), set[int]()
    while len(ports) < number:
        port = rng.randrange(10_000, max(first_outgoing, 11_000))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.add(port)
    return sorted(ports)


def surroundings() -> dict[str, str]:
    """A peer's environment: this source, and one thread, as there are many peers."""
    source = str(Path(gadget_svm.__file__).parents[1])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    threads = {f"{kind}_NUM_THREADS": "1" for kind in ("OMP", "OPENBLAS", "NUMBA")}
    return {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(paths)}
