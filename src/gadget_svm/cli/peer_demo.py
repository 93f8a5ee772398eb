"""`gadget peer demo`: real peers on this machine learn until their model is certified. Owns the folder of the demo.

The folder gets an authority, a study, and for every peer a folder with its certificate, rows, peer.toml, log and model.
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
from typing import Any

import typer

from gadget_svm.cli.options import command_for, local_path, option_field, require_packages

MARK, CA, STUDY, LOCK, LOG = "demo.json", "ca", "study.toml", "lock", "log.jsonl"
HOST, PORTS, VALIDITY_DAYS = "127.0.0.1", range(20_000, 32_000), 30
"""Ports below those that systems give to outgoing connections: one of those could take the port of an absent peer."""
PACE = {"tick": 0.02, "snapshot": 1.0, "linger": 20.0}
POLL_S, LINE_INTERVAL_S, AWAY_S, STOP_TIMEOUT_S = 0.5, 5.0, 3.0, 20.0
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


@dataclass(frozen=True)
class PeerDemoRequest:
    """The arguments of a demo as typed."""

    peers: int = option_field("--peers", default=5, min=2, max=64, help="Number of processes.")
    data: str = option_field("--data", default="digits", help="A named data set, or a file.")
    seconds: float = option_field("--seconds", default=300.0, min=5.0, max=1e6, help="The longest that they may take.")
    out: Path = option_field("--out", default=Path("peers"), check=local_path, help="A new folder, or an earlier demo.")
    chaos: bool = option_field("--chaos", default=False, help="Kill one peer with SIGKILL, and start it again.")
    gap: float = option_field("--gap", default=0.01, min=1e-6, max=10.0, help="The certified gap at which they end.")
    lam: float | None = option_field("--lam", min=1e-12, max=1e6, help="Default: the paper's for its data sets.")
    random_state: int = option_field("--seed", default=0, min=0, help="The seed that divides the rows.")
    quiet: bool = option_field("--quiet", "-q", default=False, help="Print only the result.")
    json: bool = option_field("--json", default=False, help="Print one JSON object on stdout, and nothing else.")


def require_peer_packages() -> None:
    """Raise an ImportError that names the extra to install, if a package is missing."""
    # gadget_svm.peers first: it sets how much gRPC logs
    modules = (
        "gadget_svm.peers",
        "cryptography",
        "google.protobuf",
        "grpc",
        "prometheus_client",
        "pydantic",
        "aiohttp",
    )
    require_packages("peers", *modules)


@command_for(PeerDemoRequest)
def demo(request: PeerDemoRequest) -> None:
    """Real peers on this machine, with new certificates, learn until their common model is certified."""
    require_peer_packages()
    raise typer.Exit(run_demo(request))


@dataclass
class PeerProcess:
    """One peer: its folder, and its process while it runs."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None
    status: dict[str, Any] = field(default_factory=dict)  # its last answer

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self.process is not None and self.process.poll() is None

    @property
    def failed(self) -> bool:
        """Whether it has ended with an error."""
        return self.process is not None and self.process.poll() not in (None, 0)

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
        if not self.running:
            return
        from gadget_svm.cli.peer_client import ask
        from gadget_svm.peers.process.config import load
        from gadget_svm.peers.process.control import UnreachableError

        own = load(self.folder / "peer.toml")
        with suppress(UnreachableError):
            self.status = ask(own, own.local_address, own.peer.name)


def run_demo(request: PeerDemoRequest) -> int:
    """Run a demo; return 0 if all peers ended with 0 and the same certified model."""
    from rich.console import Console

    from gadget_svm.cli.output import SUMMARY, check_targets, save_summary, say
    from gadget_svm.cli.train import TrainRequest
    from gadget_svm.cli.train_data import load
    from gadget_svm.cli.train_model import lam_or_default
    from gadget_svm.core.file_lock import lock_file
    from gadget_svm.peers.training.site import MIN_ROWS

    out, stderr = request.out, Console(stderr=True, quiet=request.quiet)
    check_targets(out, None)
    if out.exists() and not (out / MARK).is_file() and any(path.name != LOCK for path in out.iterdir()):
        raise FileExistsError(f"--out {out} holds something else than an earlier demo: name a new folder")
    rows = load(TrainRequest(data=[request.data]), request.data, stderr)
    if len(rows.y) < MIN_ROWS * request.peers:
        raise ValueError(f"a peer learns from at least {MIN_ROWS} rows: {len(rows.y)} are too few for {request.peers}")
    out.mkdir(parents=True, exist_ok=True)
    lock = lock_file(out / LOCK)
    try:
        _clear(out)
        folders = set_up(request, rows, lam_or_default(request.lam, rows.lam))
        say(stderr, f"{rows.name}: {len(rows.y):,} rows for {request.peers} peers in {out}. The first run compiles.")
        events, seconds = run_peers(
            [PeerProcess(folder) for folder in folders], request, lambda text: say(stderr, text)
        )
        summary = asdict(request) | {"out": str(out), "data": rows.name, "seconds": seconds, "events": events}
        summary |= results(folders, rows, events)
        save_summary(out, summary)
    finally:
        lock.release()
    print(dumps(summary)) if request.json else say(Console(), closing(summary))
    say(stderr, f"The models are {out}/peer-*/model.safetensors, the summary is {out / SUMMARY}.")
    return 0 if summary["clean"] else 1


def set_up(request: PeerDemoRequest, data: Any, lam: float) -> list[Path]:
    """Write an authority, a study, and what each peer needs into a folder of its own; return these folders."""
    import numpy as np

    from gadget_svm.data.partition import partition_evenly
    from gadget_svm.estimator.problem import as_csr
    from gadget_svm.peers.process.config import template
    from gadget_svm.peers.security import authority
    from gadget_svm.study import study_file

    out, names = request.out, [f"peer-{i + 1}" for i in range(request.peers)]
    classes, label = np.unique(data.y, return_inverse=True)
    X = as_csr(data.X, intercept=False)
    shares = partition_evenly(X, label.astype(np.int32), request.peers, request.random_state)
    authority.init_ca(out / CA, name="gadget peer demo", days=VALIDITY_DAYS)
    study: dict[str, dict[str, Any]] = {
        "study": {"name": f"demo on {data.name}"[:64]},
        "learn": {"lam": lam},
        "end": {"gap": request.gap},
    }
    study["data"], study["end"]["sites"] = {"features": X.shape[1], "classes": classes.tolist()}, names
    (out / STUDY).write_text(study_file.template(study), encoding="utf-8")
    if data.X_test is not None:
        _write_rows(out / "test.npz", as_csr(data.X_test, intercept=False), data.y_test)
    addresses = [f"{HOST}:{port}" for port in free_ports(request.peers)]
    for i, name in enumerate(names):
        mine = shares.order[shares.start[i] : shares.start[i + 1]]
        authority.issue(out / CA, name, [HOST], days=VALIDITY_DAYS - 1, out=out / name)
        _write_rows(out / name / "train.npz", X[mine], data.y[mine])
        values: dict[str, dict[str, Any]] = {
            "peer": {"address": addresses[i], "listen": addresses[i], "join": addresses[:2], "study": f"../{STUDY}"},
            "data": {"train": "train.npz", "test": None if data.X_test is None else "../test.npz"},
            "pace": PACE | {"stop_after_seconds": 2 * request.seconds},  # if the demo is killed, they end as well
        }
        (out / name / "peer.toml").write_text(template(name, values), encoding="utf-8")
    return [out / name for name in names]


def run_peers(
    peers: list[PeerProcess], request: PeerDemoRequest, say: Callable[[str], None]
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
                lambda: (victim.status.get("ticks") and victim.status["snapshot_age"] is not None) or not victim.running
            )
            if victim.running:
                victim.send(signal.SIGKILL)
                victim.process.wait()  # type: ignore[union-attr]
                note(victim, "was killed", tick=victim.status.get("ticks"))
                time.sleep(AWAY_S)
                victim.start()
                note(victim, "was started again")
        wait(lambda: not any(peer.running for peer in peers) or any(peer.failed for peer in peers))
    finally:
        stop(peers)
    for peer in peers:
        note(peer, "ended", exit_code=peer.process and peer.process.returncode)
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
    from gadget_svm.cli.peer_client import percent

    states = [peer.status["state"] if peer.running else "ended" for peer in peers if peer.status]
    gaps = [peer.status["gap_estimate"] for peer in peers if peer.status.get("gap_estimate") is not None]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return (counts or "starting") + (f"; estimated gap {percent(max(gaps))}" if gaps else "")


def results(folders: list[Path], data: Any, events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return every peer's exit code, model and accuracy, and whether all went well."""
    import numpy as np

    from gadget_svm.estimator import load_model

    entries = []
    for folder in folders:
        path, entry = folder / "model.safetensors", dict[str, Any](name=folder.name, digest=None, kind=None)
        entry["exit_code"] = next(event["exit_code"] for event in events[::-1] if event["peer"] == folder.name)
        if path.exists():
            model = load_model(path)
            entry |= {"digest": sha256(path.read_bytes()).hexdigest(), **model.study_}
            X, y = (data.X, data.y) if data.X_test is None else (data.X_test, data.y_test)
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
    raise OSError(
        f"no {count} free ports on {HOST} between {PORTS.start} and {PORTS.stop}: stop programs that use them"
    )


def _clear(out: Path) -> None:
    """Mark the folder as a demo's, and remove what an earlier one wrote."""
    (out / MARK).write_text("{}\n", encoding="utf-8")
    for folder in (out / CA, *out.glob("peer-*")):
        if folder.is_dir():
            shutil.rmtree(folder)


def _write_rows(path: Path, X: Any, y: Any) -> None:
    """Write rows with all bits, the full width, and labels of any kind."""
    import numpy as np

    labels = y.astype(str) if y.dtype.kind == "O" else y
    np.savez(path, data=X.data, indices=X.indices, indptr=X.indptr, shape=np.array(X.shape), y=labels)
