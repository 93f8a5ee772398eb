"""The processes of `gadget peer demo`: starts, queries, kills, restarts and stops them.

All processes end with their `Fleet`. Queries use the network and certificates, like those of any other client.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from gadget_svm.cli.progress import Interruption
from gadget_svm.peers import checkpoint
from gadget_svm.peers.config import load
from gadget_svm.peers.identity import Identity
from gadget_svm.peers.messages import Malformed, Notice, Status
from gadget_svm.peers.post import Line, Unreachable

ANSWER_TIMEOUT_S, STOP_TIMEOUT_S = 3.0, 5.0
LEAVE_TIMEOUT_S, TERMINATE_TIMEOUT_S = 30.0, 10.0
"""How long a peer may take to leave when asked to, and then after SIGTERM; then it is killed."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
COUNTERS = ("messages_sent", "bytes_sent")
LOG_LINES_READ, LOG_LINES_SHOWN = 200, 5


class PeersError(RuntimeError):
    """Peers that did not start; their logs say more."""


class Stop(Interruption):
    """Handle Ctrl-C, SIGTERM and a closed terminal: the first requests a clean stop, the second a quick one."""

    SIGNALS = (*Interruption.SIGNALS, signal.SIGHUP)


class PeerProcess:
    """One peer: its folder, its process while it runs, and its last answers."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.toml, self.log = folder, folder / "peer.toml", folder / "log.jsonl"
        self.config = load(self.toml)
        self.name = self.config.peer.name
        self.process: subprocess.Popen[bytes] | None = None
        self.status: dict[str, Any] | None = None  # the last answer; None if the last question had none
        self.last_status: dict[str, Any] = {}
        self.expected = False  # whether it should be running
        self._counted: Counter[str] = Counter()  # in earlier incarnations
        self._line: Line | None = None

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last process, once it has ended; negative for a signal."""
        return None if self.process is None else self.process.poll()

    @property
    def ticks(self) -> int:
        """The peer's tick at the last query; 0 if it did not answer."""
        return int(self.status["ticks"]) if self.status else 0

    @property
    def hears(self) -> bool:
        """Whether it has received a message."""
        return bool(self.status and self.status["messages_received"])

    def total(self, counter: str) -> int:
        """Return a counter over all incarnations, as of the last answer of each."""
        return self._counted[counter] + int(self.last_status.get(counter, 0))

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
        self.expected, self.status = False, None

    async def ask(self) -> None:
        """Ask for its status over its own port."""
        try:
            answer = await asyncio.wait_for(self._connection().status(Notice(self.name)), ANSWER_TIMEOUT_S)
        except (Unreachable, Malformed, TimeoutError):
            self.status = None
            return
        self.status = json.loads(answer)
        if self.last_status and self.last_status["incarnation"] != self.status["incarnation"]:
            self._counted.update({key: self.last_status[key] for key in COUNTERS})
        self.last_status = self.status

    async def ask_to_leave(self) -> bool:
        """Ask it to leave, with its own certificate; return whether it agreed."""
        try:
            ack = await self._connection().notice("Stop", Notice(self.name, 0, "the demo is over"), STOP_TIMEOUT_S)
        except (Unreachable, Malformed):
            return False
        return ack.status is Status.OK

    def _connection(self) -> Line:
        if self._line is None:
            tls = self.config.tls
            identity = Identity.load(tls.cert, tls.key, tls.ca, tls.revoked, self.name)
            self._line = Line(identity, self.config.peer.address, 1, self.name)
        return self._line

    async def close(self) -> None:
        """Close the connection."""
        if self._line is not None:
            await self._line.close()
            self._line = None

    def saved_ticks(self) -> int:
        """Return the tick of its last checkpoint; 0 if none holds anything learned."""
        try:
            found = checkpoint.load(self.config.peer.state)
        except checkpoint.CheckpointError:
            return 0
        return 0 if found is None else int((found.about.get("learner") or {}).get("t", 0))

    def log_end(self) -> list[str]:
        """Return the last errors in its log, or the last events if there are none."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES_READ:]
        except OSError as error:
            return [f"no log: {error}"]
        entries = [_log_entry(line) for line in lines if line.strip()]
        errors = [text for is_error, text in entries if is_error]
        return (errors or [text for _, text in entries])[-LOG_LINES_SHOWN:]


def _log_entry(line: str) -> tuple[bool, str]:
    """Return whether a line of a log is an error, and its text; a line that is no JSON is an error."""
    try:
        entry = json.loads(line)
        level, event = str(entry["level"]), str(entry["event"])
    except (ValueError, TypeError, KeyError):
        return True, line
    values = "".join(f", {key} {value}" for key, value in dict(entry.get("fields") or {}).items())
    error = str(entry.get("error", "")).strip().splitlines()[-1:]
    return level in ("error", "critical"), ": ".join([level, event + values, *error])


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
        """Send SIGTERM, wait, kill; a second Ctrl-C only shortens the wait."""
        try:
            self._signal(signal.SIGTERM)
            self._wait(TERMINATE_TIMEOUT_S)
        finally:
            for peer in self.peers:
                peer.kill()

    @property
    def lost(self) -> list[PeerProcess]:
        """The peers that should be running and are not."""
        return [peer for peer in self.peers if peer.expected and not peer.running]

    async def ask_all(self) -> None:
        """Ask all peers for their status, at once."""
        await asyncio.gather(*(peer.ask() for peer in self.peers))

    async def stop(self) -> dict[str, str]:
        """Let all peers leave; return how each of them ended."""
        agreed = await asyncio.gather(*(peer.ask_to_leave() for peer in self.peers))
        ends = {}
        for peer, left in zip(self.peers, agreed, strict=True):
            peer.expected = False
            if not peer.running:
                ends[peer.name] = "never started" if peer.process is None else "had ended"
            else:
                ends[peer.name] = "left" if left else "terminated"
                if not left:
                    peer.send(signal.SIGTERM)
        for timeout_s, number, end in (
            (LEAVE_TIMEOUT_S, signal.SIGTERM, "terminated"),
            (TERMINATE_TIMEOUT_S, signal.SIGKILL, "killed"),
        ):
            ends |= dict.fromkeys((peer.name for peer in self._wait(timeout_s)), end)
            self._signal(number)
        return ends

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(peer.close() for peer in self.peers))

    def _signal(self, number: signal.Signals) -> None:
        for peer in self.peers:
            peer.send(number)

    def _wait(self, timeout_s: float) -> list[PeerProcess]:
        """Wait until all have ended; return those that have not in this time."""
        end = time.monotonic() + timeout_s
        while (running := [peer for peer in self.peers if peer.running]) and time.monotonic() < end:
            time.sleep(0.05)
        return running
