"""A host for each peer: network namespaces at one bridge. Owns their addresses, and packets that get lost on the way.

Names hold this process's id, so that what a run left behind is known for what it is, and removed by the next.
"""

import contextlib
import ctypes
import errno
import ipaddress
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

CLONE_NEWNET = 0x40000000
NO_CARD = "02:00:00:00:00:01"
"""An address of no network card: what is sent there is lost without a word, as behind a firewall that drops."""


class Hosts:
    """``n`` hosts that reach each other."""

    PREFIX = "gpeer"
    _runs = count()

    def __init__(self, n: int) -> None:
        self.n = n
        self._threads: dict[int, ThreadPoolExecutor] = {}
        self.tag = f"{self.PREFIX}{os.getpid():x}{'ghijklmnopqrstuv'[next(self._runs) % 16]}"

    @cached_property
    def _net(self) -> ipaddress.IPv4Network:
        """A /24 of the range for testing networks (RFC 2544) that nothing here uses."""
        lines = run("ip", "-o", "-4", "addr").stdout.split("\n")
        used = [ipaddress.ip_interface(line.split()[3]).network for line in lines if line]
        nets = list(ipaddress.ip_network("198.18.0.0/15").subnets(new_prefix=24))
        first = os.getpid() * 7 % len(nets)
        return next(net for net in nets[first:] + nets[:first] if not any(net.overlaps(other) for other in used))

    def address(self, i: int) -> str:
        """The address of host i."""
        return str(self._net[i + 10])

    def nowhere(self, i: int) -> str:
        """An address of host i from which nothing reaches it, like that of a router which forwards nothing to it."""
        return str(self._net[i + 100])

    def inside(self, i: int) -> list[str]:
        """What to put before a command that is to run on host i."""
        return ["ip", "netns", "exec", f"{self.tag}{i}"]

    def call(self, i: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function returns that is called in this process, but with the network of host i."""
        if i not in self._threads:
            self._threads[i] = ThreadPoolExecutor(1, initializer=_enter, initargs=(f"/run/netns/{self.tag}{i}",))
        return self._threads[i].submit(function, *arguments).result()

    def lose(self, sender: int, receiver: int, lost: bool = True) -> None:
        """All that one host sends to another is lost on the way, or no longer; the other direction works."""
        self._lose(sender, self.address(receiver), lost)

    def nbytes(self, i: int) -> tuple[int, int]:
        """Bytes that host i has received and sent, all protocols included."""
        for line in self.call(i, Path("/proc/thread-self/net/dev").read_text).splitlines():
            name, _, numbers = line.partition(":")
            if name.strip() == "eth0":
                return int(numbers.split()[0]), int(numbers.split()[8])
        raise LookupError(f"host {i} has no eth0")

    def __enter__(self) -> "Hosts":
        self.remove_leftovers()
        _ = self._guard
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads.values():
            thread.shutdown()
        self._guard.communicate()

    @cached_property
    def _guard(self) -> "subprocess.Popen[bytes]":
        """Removes everything when its input ends: when it is told to, or when this process dies, however it does."""
        commands = [*(f"ip netns delete {self.tag}{i}" for i in range(self.n)), f"ip link delete {self.tag}x"]
        return subprocess.Popen(
            ["sh", "-c", f"read -r end; {'; '.join(commands)}"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def _build(self) -> None:
        bridge = f"{self.tag}x"
        run("ip", "link", "add", bridge, "type", "bridge")
        run("ip", "link", "set", bridge, "up")
        for i in range(self.n):
            host = f"{self.tag}{i}"
            run("ip", "netns", "add", host)
            run("ip", "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", host)
            run("ip", "link", "set", host, "master", bridge, "up")
            run("ip", "-n", host, "link", "set", "lo", "up")
            run("ip", "-n", host, "address", "add", f"{self.address(i)}/24", "dev", "eth0")
            run("ip", "-n", host, "link", "set", "eth0", "up")
        for i in range(self.n):
            for j in range(self.n):
                self._lose(i, self.nowhere(j), True)

    def _lose(self, sender: int, address: str, lost: bool) -> None:
        change = ["replace", address, "lladdr", NO_CARD, "nud", "permanent"] if lost else ["del", address]
        run("ip", "-n", f"{self.tag}{sender}", "neigh", *change, "dev", "eth0")

    @classmethod
    def _namespaces(cls) -> list[str]:
        folder = Path("/run/netns")
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    @classmethod
    def remove_leftovers(cls) -> None:
        """Remove what runs that have died left behind."""
        links = json.loads(run("ip", "-j", "link").stdout)
        for name in {*cls._namespaces(), *(link["ifname"] for link in links)}:
            ours = re.fullmatch(rf"{cls.PREFIX}([0-9a-f]+)[g-v](\d+|x)", name)
            if ours is not None and not Path(f"/proc/{int(ours[1], 16)}").exists():
                kind = "netns" if name in cls._namespaces() else "link"
                subprocess.run(["ip", kind, "delete", name], capture_output=True, check=False)

    @classmethod
    def missing(cls) -> str:
        """Return why there can be no such hosts here; empty if there can."""
        if not hasattr(os, "geteuid") or os.geteuid():
            return "network namespaces need root"
        if shutil.which("ip") is None:
            return "there is no ip: install iproute2"
        try:
            with cls(2) as hosts:
                if not hosts.reach(0, 1):
                    return "hosts do not reach each other: does a firewall of this machine forbid it?"
                hosts.lose(1, 0)
                if hosts.reach(0, 1):
                    return "packets for an address without a network card arrive"
        except (subprocess.CalledProcessError, OSError) as error:
            return f"no network namespaces here: {getattr(error, 'stderr', '') or error}".strip()
        return ""

    def reach(self, i: int, j: int) -> bool:
        """Whether host j answers host i, if only that nothing listens there."""
        return bool(self.call(i, _connect, self.address(j)) == errno.ECONNREFUSED)


def _enter(namespace: str) -> None:
    """Give this thread, and no other, the network of a namespace."""
    with Path(namespace).open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns failed")


def _connect(address: str) -> int:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((address, 9))


@contextlib.contextmanager
def hosts_or_skip(n: int) -> Iterator[Hosts]:
    """Hosts for a test, which is skipped with a reason where there can be none."""
    import pytest

    if missing := Hosts.missing():
        pytest.skip(missing)
    with Hosts(n) as hosts:
        yield hosts


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command that must succeed, soon."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
