"""`gadget peer demo`: real peers on this machine learn until their model is certified. Owns the folder of the demo.

The folder gets an authority, a study, and for every peer a folder with its certificate, rows, peer.toml, log and model.
Loaded when a demo runs.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from json import dumps
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from gadget_svm.authority import certificates as authority
from gadget_svm.cli import output
from gadget_svm.cli.peer_client import percent
from gadget_svm.cli.train import TrainRequest
from gadget_svm.cli.train_data import load
from gadget_svm.cli.train_model import lam_or_default
from gadget_svm.core.file_lock import lock_file
from gadget_svm.data.partition import assign_sites
from gadget_svm.estimator import load_model
from gadget_svm.estimator.problem import as_csr
from gadget_svm.peers.process import config
from gadget_svm.peers.process.control import UnreachableError, fetch_status
from gadget_svm.peers.training.site import MIN_ROWS
from gadget_svm.study import study_file

if TYPE_CHECKING:
    from gadget_svm.cli.peer import PeerDemoRequest

MARK, CA, STUDY, LOCK, LOG, MODEL = "demo.json", "ca", "study.toml", "lock", "log.jsonl", "model.safetensors"
HOST, PORTS, VALIDITY_DAYS = "127.0.0.1", range(20_000, 32_000), 30
"""Ports below those that systems give to outgoing connections: one of those could take the port of an absent peer."""
PACE = {"tick": 0.02, "snapshot": 1.0, "linger": 20.0}
POLL_S, LINE_INTERVAL_S, AWAY_S, STOP_TIMEOUT_S = 0.5, 5.0, 3.0, 20.0
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


@dataclass
class PeerProcess:
    """One peer: its folder, and its process while it runs."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None
    status: dict[str, Any] = field(default_factory=dict)  # its last answer

    @property
    def exit_code(self) -> int | None:
        """The exit code; None if it runs or was never started."""
        return None if self.process is None else self.process.poll()

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self.process is not None and self.exit_code is None

    def start(self) -> None:
        """Start it as a user would, but on one thread, and in a session that the terminal's Ctrl-C does not reach."""
        command = [sys.executable, "-m", "gadget_svm", "peer", "run", str(self.folder / "peer.toml")]
        with (self.folder / LOG).open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--until", "certified"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **ONE_THREAD}, start_new_session=True,
            )  # fmt: skip

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process and its children."""
        if self.process is not None and self.running:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def ask(self) -> None:
        """Ask for its status over its own port, if it runs."""
        if self.running:
            own = config.load(self.folder / "peer.toml")
            with suppress(UnreachableError):
                self.status = fetch_status(own, own.local_address, own.peer.name)


def run_demo(request: "PeerDemoRequest") -> int:
    """Run a demo; return 0 if all peers ended with 0 and the same certified model."""
    out, stderr = request.out, Console(stderr=True, quiet=request.quiet)
    output.check_targets(out, None)
    if out.exists() and not (out / MARK).is_file() and any(path.name != LOCK for path in out.iterdir()):
        raise FileExistsError(f"--out {out} holds something else than an earlier demo: name a new folder")
    rows = load(TrainRequest(data=[request.data]), request.data, stderr)
    if len(rows.y) < MIN_ROWS * request.peers:
        raise ValueError(f"a peer learns from at least {MIN_ROWS} rows: {len(rows.y)} are too few for {request.peers}")
    out.mkdir(parents=True, exist_ok=True)
    lam = lam_or_default(request.lam, rows.lam)
    lock = lock_file(out / LOCK)
    try:
        peers = [PeerProcess(folder) for folder in set_up(request, rows, lam)]
        output.say(
            stderr, f"{rows.name}: {len(rows.y):,} rows for {len(peers)} peers in {out}. The first run compiles."
        )
        events, seconds = run_peers(peers, request, lambda text: output.say(stderr, text))
        summary = asdict(request) | {"out": str(out), "data": rows.name, "lam": lam}
        summary |= {"seconds": seconds, "events": events}
        summary |= results(peers, rows)
        output.save_summary(out, summary)
    finally:
        lock.release()
    print(dumps(summary)) if request.json else output.say(Console(), closing(summary))
    output.say(stderr, f"The models are {out}/peer-*/{MODEL}, the summary is {out / output.SUMMARY}.")
    return 0 if summary["clean"] else 1


def set_up(request: "PeerDemoRequest", data: Any, lam: float) -> list[Path]:
    """Write an authority, a study, and what each peer needs into a folder of its own; return these folders.

    What an earlier demo wrote there is removed.
    """
    out, names = request.out, [f"peer-{i + 1}" for i in range(request.peers)]
    (out / MARK).write_text("{}\n", encoding="utf-8")
    for folder in (out / CA, *out.glob("peer-*")):
        shutil.rmtree(folder, ignore_errors=True)
    X, site = as_csr(data.X, intercept=False), assign_sites(data.y, request.peers, seed=request.random_state)
    study: dict[str, dict[str, Any]] = {
        "study": {"name": f"demo on {data.name}"[:64]}, "learn": {"lam": lam},
        "data": {"features": X.shape[1], "classes": np.unique(data.y).tolist()},
        "end": {"gap": request.gap, "sites": names},
    }  # fmt: skip
    (out / STUDY).write_text(study_file.template(study), encoding="utf-8")
    if data.X_test is not None:
        _write_rows(out / "test.npz", as_csr(data.X_test, intercept=False), data.y_test)
    authority.init_ca(out / CA, name="gadget peer demo", days=VALIDITY_DAYS)
    addresses = [f"{HOST}:{port}" for port in free_ports(request.peers)]
    for i, (name, address) in enumerate(zip(names, addresses, strict=True)):
        authority.issue(out / CA, name, [HOST], days=VALIDITY_DAYS - 1, out=out / name)
        _write_rows(out / name / "train.npz", X[site == i], data.y[site == i])
        values: dict[str, dict[str, Any]] = {
            "peer": {"address": address, "listen": address, "join": addresses[:2], "study": f"../{STUDY}"},
            "data": {"train": "train.npz", "test": None if data.X_test is None else "../test.npz"},
            "pace": PACE | {"stop_after_seconds": 2 * request.seconds},  # if the demo is killed, they end as well
        }
        (out / name / "peer.toml").write_text(config.template(name, values), encoding="utf-8")
    return [out / name for name in names]


def run_peers(
    peers: list[PeerProcess], request: "PeerDemoRequest", say: Callable[[str], None]
) -> tuple[list[dict[str, Any]], float]:
    """Start the peers and wait until all have ended; return what happened to single peers, and the seconds."""
    began, next_line, events = time.monotonic(), 0.0, list[dict[str, Any]]()

    def note(peer: PeerProcess, event: str, **more: Any) -> None:
        events.append({"second": round(time.monotonic() - began, 2), "peer": peer.folder.name, "event": event, **more})
        say(f"{peer.folder.name} {event}" + "".join(f", {name} {value}" for name, value in more.items()))

    def wait(reached: Callable[[], Any]) -> None:
        nonlocal next_line
        while not reached() and (seconds := time.monotonic() - began) < request.seconds:
            for peer in peers:
                peer.ask()
            if seconds >= next_line:
                next_line = seconds + LINE_INTERVAL_S
                say(f"{seconds:.0f} s: {progress(peers)}")
            time.sleep(POLL_S)

    try:
        peers[0].start()  # it compiles for all
        wait(lambda: peers[0].status.get("ticks") or not peers[0].running)
        for peer in peers[1:]:
            peer.start()
        if request.chaos:
            victim = random.Random(request.random_state).choice(peers)
            wait(
                lambda: not victim.running or (victim.status.get("ticks") and victim.status["snapshot_age"] is not None)
            )
            if victim.process is not None and victim.running:
                victim.send(signal.SIGKILL)
                victim.process.wait()
                note(victim, "was killed", tick=victim.status.get("ticks"))
                time.sleep(AWAY_S)
                victim.start()
                note(victim, "was started again")
        wait(lambda: not any(peer.running for peer in peers) or any(peer.exit_code for peer in peers))
    finally:
        stop(peers)
    for peer in peers:
        note(peer, "ended", exit_code=peer.exit_code)
    return events, time.monotonic() - began


def stop(peers: list[PeerProcess]) -> None:
    """Let all peers that still run leave, and kill those that stay."""
    for peer in peers:
        peer.send(signal.SIGTERM)
    end = time.monotonic() + STOP_TIMEOUT_S
    while any(peer.running for peer in peers) and time.monotonic() < end:
        time.sleep(0.05)
    for peer in peers:
        peer.send(signal.SIGKILL)
        if peer.process is not None:
            peer.process.wait()


def progress(peers: list[PeerProcess]) -> str:
    """Return the state of the run as one line."""
    states = [peer.status["state"] if peer.running else "ended" for peer in peers if peer.status]
    gaps = [peer.status["gap_estimate"] for peer in peers if peer.status.get("gap_estimate") is not None]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return (counts or "starting") + (f"; estimated gap {percent(max(gaps))}" if gaps else "")


def results(peers: list[PeerProcess], data: Any) -> dict[str, Any]:
    """Return every peer's exit code, model and accuracy, and whether all went well."""
    X, y = (data.X, data.y) if data.X_test is None else (data.X_test, data.y_test)
    entries = []
    for peer in peers:
        entry: dict[str, Any] = {"name": peer.folder.name, "exit_code": peer.exit_code, "digest": None, "kind": None}
        if (path := peer.folder / MODEL).exists():
            model = load_model(path)
            entry |= {"digest": sha256(path.read_bytes()).hexdigest(), **model.study_}
            del model.__dict__["n_features_in_"]
            entry["accuracy"] = float(np.mean(model.predict(X).astype(str) == y.astype(str)))
        entries.append(entry)
    same = len({entry["digest"] for entry in entries}) == 1
    good = all(entry["exit_code"] == 0 and entry["kind"] == "certified" for entry in entries)
    return {"peers": entries, "identical": same, "clean": same and good}


def closing(summary: dict[str, Any]) -> str:
    """Return the result as a sentence, with the exit codes of peers that failed."""
    first = summary["peers"][0]
    if summary["clean"]:
        return (
            f"All {len(summary['peers'])} peers wrote one certified model after {summary['seconds']:.0f} s: its gap "
            f"is at most {100 * first['gap_bound']:.2g} %, it covers {first['rows']:,.0f} rows, and its accuracy is "
            f"{100 * first['accuracy']:.2f} %."
        )
    ends = (f"{each['name']}: exit code {each['exit_code']}, model {each['kind']}" for each in summary["peers"])
    return f"Not all peers ended with one certified model ({'; '.join(ends)}): see {summary['out']}/*/{LOG}"


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that are free now."""
    found: list[int] = []
    with ExitStack() as held:
        for port in random.SystemRandom().sample(PORTS, len(PORTS)):
            with suppress(OSError):
                held.enter_context(socket()).bind((HOST, port))
                found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"no {count} free ports on {HOST} from {PORTS.start} to {PORTS.stop}: stop programs that use them")


def _write_rows(path: Path, X: Any, y: Any) -> None:
    """Write rows with all bits, the full width, and labels of any kind."""
    labels = y.astype(str) if y.dtype.kind == "O" else y
    np.savez(path, data=X.data, indices=X.indices, indptr=X.indptr, shape=np.array(X.shape), y=labels)
