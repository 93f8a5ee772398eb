"""The processes of `gadget peer demo`: started, asked, killed, started again, stopped. None outlives a `Fleet`.

Talks to peers only as any other holder of their certificates could; learning is their business.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from gadget_svm.cli.progress import Interruption
from gadget_svm.peers import checkpoint
from gadget_svm.peers.config import load
from gadget_svm.peers.identity import Identity
from gadget_svm.peers.messages import Malformed, Notice, Status
from gadget_svm.peers.post import Line, Unreachable

ANSWER = 3.0
"""Seconds a peer may take to say how it is."""
LEAVE, TERMINATE = 30.0, 10.0
"""Seconds to leave when asked to, and when told to by SIGTERM; then it is killed."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
COUNTED = ("messages_sent", "bytes_sent")
LAST_LINES = 5


class FleetError(RuntimeError):
    """Peers that cannot be worked with; their logs say more."""


class Ending(Interruption):
    """Ctrl-C, a closed terminal and SIGTERM: the first asks for a clean end, the second for a quick one."""

    SIGNALS = (*Interruption.SIGNALS, signal.SIGHUP)


class PeerProcess:
    """One peer: its folder, its process while it runs, and what it last said of itself."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.toml, self.log = folder, folder / "peer.toml", folder / "log.jsonl"
        self.config = load(self.toml)
        self.name = self.config.peer.name
        self.process: subprocess.Popen[bytes] | None = None
        self.found: dict[str, Any] | None = None  # what it said when last asked; None if it did not
        self.last: dict[str, Any] = {}  # what it said when it last answered
        self.expected = False  # whether it should be running
        self.ready = False  # whether it has heard of a neighbour's weights, and taken them in
        self._heard_at: int | None = None  # ticks when it was first seen to have heard
        self._counted: Counter[str] = Counter()  # in former incarnations
        self._line: Line | None = None

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Of the last process, once it has ended; negative for a signal."""
        return None if self.process is None else self.process.poll()

    def total(self, key: str) -> int:
        """A counter, over all incarnations, as of the last answer of each."""
        return self._counted[key] + int(self.last.get(key, 0))

    def start(self) -> None:
        """As a user would, but on one thread, and out of reach of the terminal's Ctrl-C."""
        command = [sys.executable, "-m", "gadget_svm", "peer", "run", str(self.toml.absolute())]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **ONE_THREAD},
                start_new_session=True,
            )  # fmt: skip
        self.expected = True

    def send(self, number: signal.Signals) -> None:
        """A signal to the process and whatever it may have started."""
        if self.process is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """With -9, as a power failure would."""
        self.send(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
        self.expected, self.found = False, None

    async def ask(self) -> None:
        """Its status, over its own port; None if it does not answer."""
        try:
            said = await asyncio.wait_for(self.line().status(Notice(self.name)), ANSWER)
        except (Unreachable, Malformed, TimeoutError):
            self.found = None
            return
        self.found = json.loads(said)
        if self.last and self.last["incarnation"] != self.found["incarnation"]:
            self._counted.update({key: self.last[key] for key in COUNTED})
        self.last = self.found
        self._look_whether_ready(self.found["messages_received"], self.found["ticks"])

    def _look_whether_ready(self, received: int, ticks: int) -> None:
        """A tick after a letter was there has taken it in: what learning together needs is compiled by then.

        Two, since the first may have begun before the letter came.
        """
        if received and self._heard_at is None:
            self._heard_at = ticks
        self.ready = self._heard_at is not None and ticks >= self._heard_at + 2

    def saved_ticks(self) -> int:
        """Of its last checkpoint: where it would go on if it were killed now. 0 if it has saved nothing learned."""
        try:
            found = checkpoint.load(self.config.peer.state)
        except checkpoint.CheckpointError:
            return 0
        return 0 if found is None else int((found.about.get("learner") or {}).get("t", 0))

    async def stop(self) -> bool:
        """Ask it to leave, with its own certificate; whether it agreed."""
        try:
            ack = await self.line().notice("Stop", Notice(self.name, 0, "the demo is over"), 5.0)
        except (Unreachable, Malformed):
            return False
        return ack.status is Status.OK

    def line(self) -> Line:
        """A lasting connection, in the peer's own name."""
        if self._line is None:
            tls = self.config.tls
            identity = Identity.load(tls.cert, tls.key, tls.ca, tls.revoked, self.name)
            self._line = Line(identity, self.config.peer.address, 1, self.name)
        return self._line

    async def hang_up(self) -> None:
        """Let go of the connection."""
        if self._line is not None:
            await self._line.close()
            self._line = None

    def last_words(self) -> list[str]:
        """The end of its log: what went wrong, or if nothing is said to have gone wrong, the last events."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-200:]
        except OSError as error:
            return [f"no log: {error}"]
        told = [_in_words(line) for line in lines if line.strip()]
        bad = [text for serious, text in told if serious]
        return (bad or [text for _, text in told])[-LAST_LINES:]


def _in_words(line: str) -> tuple[bool, str]:
    """Whether a line of a log is about trouble, and what it says; what is no JSON was written in distress."""
    try:
        entry = json.loads(line)
        level, event = str(entry["level"]), str(entry["event"])
    except (ValueError, TypeError, KeyError):
        return True, line
    values = "".join(f", {key} {value}" for key, value in dict(entry.get("fields") or {}).items())
    error = str(entry.get("error", "")).strip().splitlines()[-1:]
    return level in ("error", "critical"), ": ".join([level, event + values, *error])


@dataclass
class Story:
    """What happened while the peers ran."""

    peers: list[PeerProcess]
    seconds: float = 0.0
    events: list[dict[str, Any]] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


class Fleet:
    """All peers of a demo. Leaving its context ends every process, whatever happened."""

    def __init__(self, peers: Sequence[PeerProcess]) -> None:
        self.peers = list(peers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: Any) -> None:
        """SIGTERM, a little patience, SIGKILL; a second Ctrl-C only shortens the patience."""
        try:
            for peer in self.peers:
                peer.send(signal.SIGTERM)
            until = time.monotonic() + TERMINATE
            while any(peer.running for peer in self.peers) and time.monotonic() < until:
                time.sleep(0.05)
        finally:
            for peer in self.peers:
                peer.kill()

    @property
    def names(self) -> list[str]:
        """In order."""
        return [peer.name for peer in self.peers]

    @property
    def lost(self) -> list[PeerProcess]:
        """Those that ended though nobody ended them."""
        return [peer for peer in self.peers if peer.expected and not peer.running]

    async def look(self) -> None:
        """Ask all how they are, at once."""
        await asyncio.gather(*(peer.ask() for peer in self.peers))

    async def until_up(self, some: Sequence[PeerProcess], seconds: float, tick: Callable[[], bool]) -> None:
        """Wait until they learn; ``tick`` is called meanwhile, and ends the waiting if it says so."""
        silent = await self._until(some, lambda peer: bool(peer.found and peer.found["ticks"]), seconds, tick)
        if silent:
            raise FleetError(f"{_listed(silent)} did not answer within {seconds:g} s")

    async def until_together(self, some: Sequence[PeerProcess], seconds: float, tick: Callable[[], bool]) -> list[str]:
        """Wait until they learn from each other; the names of those that have heard of nobody in that time.

        Which is no failure: a peer whose letters would say too much of a row keeps them back.
        """
        return [peer.name for peer in await self._until(some, lambda peer: peer.ready, seconds, tick)]

    async def _until(
        self, some: Sequence[PeerProcess], there: Callable[[PeerProcess], bool], seconds: float,
        tick: Callable[[], bool],
    ) -> list[PeerProcess]:  # fmt: skip
        """Ask them until all are there; those that are not when the time is up. None if ``tick`` ends it."""
        until = time.monotonic() + seconds
        while True:
            await asyncio.gather(*(peer.ask() for peer in some))
            missing = [peer for peer in some if not there(peer)]
            if not missing or tick():
                return []
            if self.lost:
                raise FleetError(f"{_listed(self.lost)} ended before all had started")
            if time.monotonic() > until:
                return missing
            await asyncio.sleep(0.25)

    async def stop(self) -> dict[str, str]:
        """Let all leave; how each of them went."""
        agreed = dict(zip(self.names, await asyncio.gather(*(peer.stop() for peer in self.peers)), strict=True))
        how = {}
        for peer in self.peers:
            words = ("left" if agreed[peer.name] else "terminated", "had ended", "never started")
            how[peer.name] = words[0 if peer.running else 1 if peer.process is not None else 2]
            if not agreed[peer.name]:
                peer.send(signal.SIGTERM)
        for patience, number, word in ((LEAVE, signal.SIGTERM, "terminated"), (TERMINATE, signal.SIGKILL, "killed")):
            until = time.monotonic() + patience
            while any(peer.running for peer in self.peers) and time.monotonic() < until:
                await asyncio.sleep(0.05)
            for late in [peer for peer in self.peers if peer.running]:
                how[late.name] = word
                late.send(number)
        for peer in self.peers:
            peer.expected = False
        return how

    async def hang_up(self) -> None:
        """Let go of all connections."""
        await asyncio.gather(*(peer.hang_up() for peer in self.peers))


def _listed(peers: Sequence[PeerProcess]) -> str:
    codes = {peer.name: peer.exit_code for peer in peers}
    return ", ".join(name if code is None else f"{name} (exit code {code})" for name, code in codes.items())
