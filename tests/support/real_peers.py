"""Real peers for tests and benchmarks: processes with certificates, rows and files of their own.

Owns starting, killing and watching them. What must hold is for the tests to say.
"""

import ctypes
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import scipy.sparse as sp

import gadget_svm
from gadget_svm import load_model
from gadget_svm.authority import certificates
from gadget_svm.estimator.problem import as_csr
from gadget_svm.peers.process.config import template
from gadget_svm.reproduction.baselines.optimum import Optimum, certified_optimum
from gadget_svm.study import study_file

PACE = {"tick": 0.02, "heartbeat": 0.2, "suspect": 2.0, "dead": 2.0, "snapshot": 0.5, "export": 2.0, "linger": 30.0}
TIMEOUT_S = 120.0
"""After so long, peers that are not as they should be are taken to hang."""
POLL_S = 0.1
PORT, STATUS_PORT = 7400, 7401
KILLED_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_libc = ctypes.CDLL(None)


class RealPeers:
    """Peers by name, each with its own rows, on this machine or on a simulated host each.

    Parameters
    ----------
    folder : Path
        Where their files go.
    rows : mapping
        Rows and labels (-1 or 1) by name.
    lam, gap : float
        Of the study.
    hosts : Hosts, optional
        Where they run.
    closed : mapping
        How a site accepts no connection: "outbound" (it says so), or "refusing" or "silent" (it does not know).
    sites : collection of str, optional
        Whom the last certificate must cover; by default all.
    algorithm : {"pdmm", "gadget", "private"}
        Of the study.
    privacy : mapping, optional
        [privacy] of a private study.
    pace : numbers
        Keys of [pace].
    """

    def __init__(
        self, folder: Path, rows: Mapping[str, tuple[Any, Any]], *, lam: float = 1e-2, gap: float = 0.01,
        hosts: Any = None, closed: Mapping[str, str] | None = None, sites: Collection[str] = (),
        algorithm: str = "pdmm", privacy: Mapping[str, Any] | None = None, **pace: float,
    ) -> None:  # fmt: skip
        self.folder, self.rows, self.lam, self.hosts = folder, dict(rows), lam, hosts
        self.names, self.closed = list(rows), dict(closed or {})
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        ports = free_ports(2 * len(self.names))
        self.ports = dict(zip(self.names, zip(ports[::2], ports[1::2], strict=True), strict=True))
        certificates.init_ca(folder / "ca")
        features = max(X.shape[1] for X, _ in rows.values())
        study = {
            "study": {"name": "test"}, "data": {"features": features, "classes": [-1, 1]},
            "learn": {"lam": lam, "algorithm": algorithm}, "end": {"gap": gap, "sites": list(sites or self.names)},
            "privacy": dict(privacy or {}),
        }  # fmt: skip
        self.study = folder / "study.toml"
        self.study.write_text(study_file.template(study))
        for name in self.names:
            self._write_site(name, PACE | pace)

    def __enter__(self) -> "RealPeers":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()

    def address(self, name: str) -> str:
        """The address that others get."""
        if self.hosts is None:
            return f"127.0.0.1:{self.ports[name][0]}"
        place = self.names.index(name)
        return f"{self.hosts.nowhere(place) if self.closed.get(name) == 'silent' else self.hosts.address(place)}:{PORT}"

    def _write_site(self, name: str, pace: Mapping[str, float]) -> None:
        home, how = self.folder / name, self.closed.get(name)
        certificates.issue(self.folder / "ca", name, [self.address(name).rpartition(":")[0], "127.0.0.1"], out=home)
        X, y = self.rows[name]
        X = sp.csr_matrix(X)
        np.savez(home / "train.npz", data=X.data, indices=X.indices, indptr=X.indptr, shape=np.array(X.shape), y=y)
        address = self.address(name)
        open_sites = [other for other in self.names if other not in self.closed]
        peer: dict[str, Any] = {"listen": address if how is None else f"127.0.0.1:{address.rpartition(':')[2]}"}
        peer |= {"join": [self.address(other) for other in open_sites[:2]], "study": "../study.toml"}
        peer |= {"reachable": False} if how == "outbound" else {"address": address}
        status_port = STATUS_PORT if self.hosts else self.ports[name][1]
        values = {"peer": peer, "data": {"train": "train.npz"}, "pace": pace, "metrics": {"port": status_port}}
        self.toml(name).write_text(template(name, values))

    def copy(self, name: str, copy: str) -> None:
        """Copy the files of a peer; the copy has its certificate, a state folder and ports of its own."""
        shutil.copytree(self.folder / name, self.folder / copy, ignore=shutil.ignore_patterns("state", "model*"))
        before, self.ports[copy] = self.ports[name], tuple(free_ports(2))
        text, lines = self.toml(name).read_text(), []
        for line in text.splitlines():
            if line.startswith(("listen", "address", "port")):
                for old, new in zip(before, self.ports[copy], strict=True):
                    line = line.replace(str(old), str(new))
            lines.append(line)
        self.toml(copy).write_text("\n".join(lines) + "\n")

    def toml(self, name: str) -> Path:
        """Its configuration."""
        return self.folder / name / "peer.toml"

    def model(self, name: str) -> Path:
        """Its model file."""
        return self.folder / name / "model.safetensors"

    # Starting and ending

    def start(self, *names: str, until: str = "stopped") -> None:
        """Start peers, all if none is named; none of them outlives this process."""
        for name in names or self.names:
            command = [sys.executable, "-m", "gadget_svm", "peer", "run", str(self.toml(name)), "--until", until]
            with (self.folder / f"{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    [*self._inside(name), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env=environment(), preexec_fn=lambda: _libc.prctl(KILLED_WITH_PARENT, signal.SIGKILL),
                )  # fmt: skip

    def kill(self, name: str) -> None:
        """Kill it with SIGKILL."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def terminate(self, *names: str) -> dict[str, int]:
        """Send SIGTERM to these, or all; return their exit codes."""
        some = list(names or self.processes)
        for name in some:
            self.processes[name].terminate()
        return self.ends(*some)

    def ends(self, *names: str, seconds: float = TIMEOUT_S) -> dict[str, int]:
        """Wait until these, or all, have ended; return their exit codes."""
        some, end = list(names or self.processes), time.monotonic() + seconds
        while any(self.processes[name].poll() is None for name in some):
            assert time.monotonic() < end, f"not ended after {seconds:g} s\n{self.report()}"
            time.sleep(POLL_S)
        return {name: self.processes.pop(name).returncode for name in some}

    # Watching

    def wait(self, what: str, reached: Callable[[], Any], seconds: float = TIMEOUT_S) -> None:
        """Wait until something is true. A peer that ends with an error is an error that shows the logs."""
        end = time.monotonic() + seconds
        while not reached():
            failed = {name: process.returncode for name, process in self.processes.items() if process.poll()}
            assert not failed, f"ended: {failed}\n{self.report()}"
            assert time.monotonic() < end, f"not after {seconds:g} s: {what}\n{self.report()}"
            time.sleep(POLL_S)

    def wait_for(self, names: Iterable[str], reached: Callable[[dict[str, Any]], Any]) -> None:
        """Wait until the status of each of these is as it should be, not necessarily at one time."""
        for name in names:
            self.wait(f"the status of {name}", lambda name=name: (s := self.status(name)) is not None and reached(s))

    def get(self, name: str, path: str) -> tuple[int, str]:
        """Return code and text of its status server; (0, "") without an answer."""
        if self.hosts is not None:
            return self.hosts.call(self.names.index(name), _get, f"http://127.0.0.1:{STATUS_PORT}{path}")
        return _get(f"http://127.0.0.1:{self.ports[name][1]}{path}")

    def status(self, name: str) -> dict[str, Any] | None:
        """Return its status; None without an answer."""
        code, text = self.get(name, "/status.json")
        return dict(json.loads(text)) if code == 200 else None

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the records of its log, of all its runs."""
        records = []
        for line in (self.folder / f"{name}.log").read_text(errors="replace").splitlines():
            with suppress(json.JSONDecodeError):  # the last one may be half written
                records.append(json.loads(line))
        return records

    def report(self) -> str:
        """Return the ends of all logs."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {log.stem}\n{log.read_text(errors='replace')[-2000:]}" for log in logs)

    def _inside(self, name: str) -> list[str]:
        return [] if self.hosts is None else list(self.hosts.inside(self.names.index(name)))

    # Judging

    def optimum(self, *names: str) -> Optimum:
        """Return the optimum of the rows of these, or of all."""
        return certified_optimum(*pooled([self.rows[name] for name in names or self.names]), self.lam, gap=1e-5)

    def objective(self, path: Path, *names: str) -> float:
        """Return F of a model file on the rows of these, or of all."""
        model = load_model(path)
        w = np.append(model.coef_[0], model.intercept_[0])
        X, y = pooled([self.rows[name] for name in names or self.names])
        return 0.5 * self.lam * float(w @ w) + float(np.maximum(0.0, 1.0 - y * (X @ w)).mean())


def _get(url: str) -> tuple[int, str]:
    try:
        with urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def pooled(shares: Iterable[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Return all rows, with the column of ones for the intercept, and their labels."""
    some = list(shares)
    return as_csr(sp.vstack([sp.csr_matrix(X) for X, _ in some]), True), np.concatenate([y for _, y in some])


def differing_rows(count: int, rows: int = 120, features: int = 12, seed: int = 5) -> dict[str, tuple[Any, Any]]:
    """Return sites whose rows follow related rules that differ, so that the optimum depends on who takes part."""
    rng = np.random.default_rng(seed)
    common, sites = rng.normal(size=features), {}
    for i in range(count):
        own = common + rng.normal(size=features)
        X = rng.normal(size=(rows, features)) + 0.3 * rng.normal(size=features)
        sites[f"site-{i + 1}"] = X, np.where(X @ own + 0.5 * rng.normal(size=rows) > 0, 1, -1)
    return sites


def free_ports(count: int) -> list[int]:
    """Return free ports; not from those that the system gives to outgoing connections, so that they stay free."""
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            probe, port = held.enter_context(socket.socket()), random.SystemRandom().randrange(12_000, 32_000)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
    return found


@cache
def environment() -> dict[str, str]:
    """A peer's environment: this source, and one thread, because there are many peers."""
    source = str(Path(gadget_svm.__file__).parents[1])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    threads = {f"{kind}_NUM_THREADS": "1" for kind in ("OMP", "OPENBLAS", "NUMBA")}
    return {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(paths)}
