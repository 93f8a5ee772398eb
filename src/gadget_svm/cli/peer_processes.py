"""The processes of `gadget peer demo`: starts, queries, kills, restarts and stops them.

All processes end with their `Fleet`. Queries use the network and certificates, like those of any other client.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from gadget_svm.cli.peer_client import status_of
from gadget_svm.cli.progress import Interruption
from gadget_svm.peers import checkpoint
from gadget_svm.peers.config import load
from gadget_svm.peers.messages import Malformed
from gadget_svm.peers.post import Unreachable

ANSWER_TIMEOUT_S = 3.0
LEAVE_TIMEOUT_S, TERMINATE_TIMEOUT_S = 30.0, 10.0
"""How long a peer may take to leave, and how long if something went wrong; then it is killed."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
COUNTERS = ("messages_sent", "bytes_sent")
LOG_LINES_READ, LOG_LINES_SHOWN = 200, 5


class PeersError(RuntimeError):
    """Peers that did not start; their logs say more."""


class Stop(Interruption):
    """Handle Ctrl-C, SIGTERM and a closed terminal: the first requests a clean stop, the second a quick one."""

    SIGNALS = (*Interruption.SIGNALS, signal.SIGHUP)


class PeerProcess:
    """One peer: its folder, its process while it runs, and its last answer."""

    def __init__(self, folder: Path) -> None:
        self.toml, self.log = folder / "peer.toml", folder / "log.jsonl"
        self.config = load(self.toml)
        self.name = self.config.peer.name
        self.process: subprocess.Popen[bytes] | None = None
        self.status: dict[str, Any] = {}  # the last answer of this process
        self.answers = False  # whether the last question had an answer
        self.expected = False  # whether it should be running
        self._killed: Counter[str] = Counter()  # the counters of processes that were killed

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last process, once it has ended; negative for a signal."""
        return None if self.process is None else self.process.poll()

    def total(self, counter: str) -> int:
        """Return a counter over all its processes, as of the last answer of each."""
        return self._killed[counter] + int(self.status.get(counter, 0))

    def start(self) -> None:
        """Start it as a user would, but on one thread, and in a session that the terminal's Ctrl-C does not reach."""
        command = [sys.executable, "-m", "gadget_svm", "peer", "run", str(self.toml.absolute())]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **ONE_THREAD},
                start_new_session=True,
            )  # fmt: skip
        self.expected = True

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process and its children."""
        if self.process is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Kill it with SIGKILL, as a power failure would."""
        self.send(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
        self._killed = Counter({counter: self.total(counter) for counter in COUNTERS})
        self.status, self.answers, self.expected = {}, False, False

    async def ask(self) -> None:
        """Ask for its status over its own port."""
        try:
            self.status = await asyncio.wait_for(status_of(self.config, name=self.name), ANSWER_TIMEOUT_S)
            self.answers = True
        except (Unreachable, Malformed, TimeoutError):
            self.answers = False

    def saved_ticks(self) -> int:
        """Return the tick of its last checkpoint; 0 if none holds anything learned."""
        try:
            found = checkpoint.load(self.config.peer.state)
        except checkpoint.CheckpointError:
            return 0
        return 0 if found is None else int((found.about.get("learner") or {}).get("t", 0))

    def log_end(self) -> list[str]:
        """Return the last errors in its log, or its last lines if there are none; what is no JSON is an error."""
        if not self.log.exists():
            return []
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES_READ:]
        errors = [line for line in lines if not line.startswith("{") or '"level": "error"' in line]
        return (errors or lines)[-LOG_LINES_SHOWN:]


def names_of(peers: Sequence[PeerProcess]) -> str:
    """Return the names of peers, with the exit codes of those that have ended."""
    codes = {peer.name: peer.exit_code for peer in peers}
    return ", ".join(name if code is None else f"{name} (exit code {code})" for name, code in codes.items())


class Fleet:
    """All peers of a demo. Leaving its context ends every process."""

    def __init__(self, peers: Sequence[PeerProcess]) -> None:
        self.peers = list(peers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: Any) -> None:
        self.stop(TERMINATE_TIMEOUT_S)

    @property
    def lost(self) -> list[PeerProcess]:
        """The peers that should be running and are not."""
        return [peer for peer in self.peers if peer.expected and not peer.running]

    def ask(self) -> None:
        """Ask all running peers for their status, at once."""

        async def gather() -> None:
            await asyncio.gather(*(peer.ask() for peer in self.peers if peer.running))

        asyncio.run(gather())

    def stop(self, timeout_s: float = LEAVE_TIMEOUT_S) -> dict[str, str]:
        """Let all peers leave, with SIGTERM; return how each ended. Those that stay are killed, at once on Ctrl-C."""
        ends = {peer.name: "never started" if peer.process is None else "had ended" for peer in self.peers}
        running = [peer for peer in self.peers if peer.running]
        for peer in self.peers:
            peer.expected = False
            peer.send(signal.SIGTERM)
        end = time.monotonic() + timeout_s
        try:
            while any(peer.running for peer in running) and time.monotonic() < end:
                time.sleep(0.05)
        finally:
            for peer in running:
                ends[peer.name] = "killed" if peer.running else "left"
                if peer.running:
                    peer.kill()
        return ends
