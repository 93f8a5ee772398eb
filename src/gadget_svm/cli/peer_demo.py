"""`gadget peer demo`: real peer processes on this machine learn together, are watched, and then measured.

Owns its options and the order of its work. `peer_folders` writes what peers need, `peer_processes` starts and stops
them, `peer_results` measures their models.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gadget_svm.cli.options import command_for, local_path, option_field, seed

if TYPE_CHECKING:
    from rich.console import Console

    from gadget_svm.cli.peer_processes import Fleet, PeerProcess, Stop
    from gadget_svm.data import Dataset

START_S, START_PER_PEER_S, FIRST_MESSAGE_S = 120.0, 10.0, 90.0
"""Time limits for the start and for the first messages: the first run on a machine compiles in both."""
AWAY_S, SAVED_POLL_S, STATUS_POLL_S, LINE_INTERVAL_S = 5.0, 0.5, 1.0, 5.0


@dataclass(frozen=True)
class PeerDemoRequest:
    """The arguments of a demo as typed."""

    peers: int = option_field("--peers", default=5, min=2, max=64, help="Number of processes.")
    data: str = option_field("--data", default="digits", help="A named data set, or a file.")
    seconds: float = option_field("--seconds", default=30.0, min=5.0, help="How long they learn.")
    out: Path = option_field(
        "--out", default=Path("peers"), check=local_path, help="A folder for certificates, files, models, the summary."
    )
    chaos: bool = option_field("--chaos", default=False, help="Kill one peer with SIGKILL, and start it again.")
    algorithm: str = option_field("--algorithm", default="pdmm", help="pdmm or gadget.")
    lam: float | None = option_field("--lam", help="Default: the paper's for a data set of the paper.")
    random_state: int = option_field("--seed", default=0, check=seed, help="The seed that divides the rows.")
    quiet: bool = option_field("--quiet", "-q", default=False, help="Show no live table.")
    json: bool = option_field("--json", default=False, help="Print one JSON object on stdout, and nothing else.")

    @property
    def start_limit_s(self) -> float:
        """How long the peers may take to start."""
        return START_S + START_PER_PEER_S * self.peers


@command_for(PeerDemoRequest)
def demo(request: PeerDemoRequest) -> None:
    """Real peer processes on this machine, with new certificates, learn together; then each is measured."""
    from gadget_svm.cli.peer import require_peer_packages

    require_peer_packages()
    raise typer.Exit(run_demo(request))


def run_demo(request: PeerDemoRequest) -> int:
    """Divide the rows, start, watch, stop, measure; return 0 only if every peer left cleanly and with a model."""
    from rich.console import Console

    from gadget_svm.cli.errors import print_error
    from gadget_svm.cli.evaluation import Evaluation
    from gadget_svm.cli.output import MODEL, SUMMARY, save_summary, say
    from gadget_svm.cli.peer_folders import PACE, check_rows, clear, demo_folder, set_up
    from gadget_svm.cli.peer_processes import Fleet, PeerProcess, PeersError, Stop
    from gadget_svm.cli.peer_results import measure, show
    from gadget_svm.cli.train import TrainRequest
    from gadget_svm.cli.train_data import load
    from gadget_svm.cli.train_model import lam_or_default

    out, stderr = request.out, Console(stderr=True, quiet=request.quiet)
    _check(request)
    rows = with_number_labels(load(TrainRequest(data=[request.data]), request.data, stderr))
    check_rows(rows, request.peers)
    lam = lam_or_default(request.lam, rows.lam)
    evaluation = Evaluation.of(rows, lam, intercept=False)
    with demo_folder(out), Stop() as stop:
        say(
            stderr,
            f"{rows.name}: {len(rows.y):,} rows for {request.peers} peers in {out}, lam {lam:g}, {request.algorithm}",
        )
        clear(out)
        longest_s = request.start_limit_s + 2 * FIRST_MESSAGE_S + request.seconds  # the first peer waits for the others
        folders = set_up(
            out, rows, request.peers, algorithm=request.algorithm, lam=lam, seed=request.random_state,
            seconds=longest_s,
        )  # fmt: skip
        with Fleet([PeerProcess(folder) for folder in folders]) as fleet:
            run = DemoRun(request, fleet, stop, stderr)
            try:
                asyncio.run(run.run())
            except (PeersError, OSError) as error:
                show_logs(fleet.lost or [peer for peer in fleet.peers if peer.status is None], stderr)
                print_error(error)
                return 1
        if not run.seconds:
            print_error("interrupted before the peers had begun to learn")
            return stop.exit_code
        say(stderr, "The peers have left. For comparison, the optimum of all rows in one place is computed.")
        parameters = {
            **asdict(request), "out": str(out), "data": rows.name, "lam": lam, "intercept": False, "pace": PACE,
        }  # fmt: skip
        summary = measure(run, parameters, rows, evaluation)
        save_summary(out, summary)
    if request.json:
        typer.echo(dumps(summary, allow_nan=False))
    else:
        show(Console(), summary)
    clean = {each["name"] for each in summary["peers"] if each["clean"]}
    show_logs([peer for peer in fleet.peers if peer.name not in clean], stderr)
    say(stderr, f"The models are {out}/peer-*/{MODEL}, the summary is {out / SUMMARY}.")
    return stop.exit_code or (0 if summary["clean"] else 1)


def _check(request: PeerDemoRequest) -> None:
    """Refuse wrong options before anything is loaded or written."""
    from gadget_svm.cli.output import check_targets
    from gadget_svm.cli.peer_folders import check_folder
    from gadget_svm.core.lookup import lookup

    lookup("algorithm of a peer", request.algorithm, dict.fromkeys(("pdmm", "gadget")))
    if not math.isfinite(request.seconds):
        raise ValueError(f"--seconds must be a finite number, got {request.seconds:g}")
    if request.lam is not None and not 0.0 < request.lam < math.inf:
        raise ValueError(f"--lam must be a positive number, got {request.lam:g}")
    check_targets(request.out, None)
    check_folder(request.out)


def with_number_labels(data: "Dataset") -> "Dataset":
    """Return the data with numbers for labels that are numbers in quotes, as peers with other file formats have."""
    from dataclasses import replace

    if data.y.dtype.kind not in "OUS":
        return data
    try:
        return replace(data, y=data.y.astype(float), y_test=None if data.y_test is None else data.y_test.astype(float))
    except ValueError:
        return data


def show_logs(peers: "list[PeerProcess]", stderr: "Console") -> None:
    """Print the ends of the logs of these peers."""
    from gadget_svm.cli.output import say

    for peer in peers:
        lines = peer.log_end() if peer.process is not None else []
        if lines:
            say(stderr, f"{peer.name}, the end of {peer.log}:")
        for line in lines:
            say(stderr, f"  {line}")


class DemoRun:
    """The peers from start to end: starts them in steps, watches them, kills and restarts one, lets all leave.

    Attributes
    ----------
    seconds : float
        How long all peers learned; 0 if they did not start.
    events : list of dict
        What happened to single peers, with the second, the peer and the kind of event.
    ends : dict
        How each peer ended, by name.
    """

    def __init__(self, request: PeerDemoRequest, fleet: "Fleet", stop: "Stop", stderr: "Console") -> None:
        from rich.live import Live

        self.request, self.fleet, self.stop, self.stderr = request, fleet, stop, stderr
        self.seconds, self.events, self.ends = 0.0, list[dict[str, Any]](), dict[str, str]()
        self._live = Live(console=stderr, auto_refresh=False) if stderr.is_terminal and not stderr.quiet else None
        self._next_line = -math.inf
        self._start_time: float | None = None  # of the time in which all learn

    async def run(self) -> None:
        """Start the peers, let them learn for the time requested, and ask them to leave."""
        try:
            if self._live is not None:
                self._live.start()
            await self._start()
            if not self.stop.requested:
                await self._learn()
            await self.fleet.ask_all()
            self._show()
            self._say(f"{'Interrupted' if self.stop.requested else 'Time is up'}: all peers are asked to leave.")
            self.ends = await self.fleet.stop()
        finally:
            if self._live is not None:
                self._live.stop()
            await self.fleet.close()

    @property
    def _elapsed(self) -> float:
        return 0.0 if self._start_time is None else time.monotonic() - self._start_time

    def _say(self, text: str) -> None:
        from gadget_svm.cli.output import say

        say(self.stderr, text)

    def _note(self, peer: "PeerProcess", event: str, text: str, **fields: Any) -> None:
        self.events.append({"second": round(self._elapsed, 2), "peer": peer.name, "event": event, **fields})
        self._say(text)

    async def _start(self) -> None:
        """Start one peer, then a second, then all: what the first ones compile the others find on disk."""
        from gadget_svm.cli.peer_processes import PeersError, names_of

        self._say("The peers start; the first run on a machine compiles for some seconds, for one peer and for two.")
        for count in sorted({1, 2, self.request.peers}):
            started = self.fleet.peers[:count]
            for peer in started:
                if peer.process is None:
                    peer.start()
            silent = await self._wait(started, lambda peer: peer.ticks > 0, self.request.start_limit_s)
            if silent:
                raise PeersError(f"{names_of(silent)} did not answer within {self.request.start_limit_s:g} s")
            if count > 1:
                unheard = await self._wait(started, lambda peer: peer.hears, FIRST_MESSAGE_S)
                if unheard:  # no failure: a peer may suppress messages that reveal too much of a row
                    self._say(f"No message reached {names_of(unheard)} in {FIRST_MESSAGE_S:.0f} s; the demo continues.")
        if not self.stop.requested:
            self._say(f"The {self.request.peers} peers learn; the {self.request.seconds:g} s begin.")

    async def _wait(
        self, peers: "list[PeerProcess]", reached: "Callable[[PeerProcess], bool]", limit_s: float
    ) -> "list[PeerProcess]":
        """Ask the peers until all have ``reached`` a state; return those that have not in this time. Ctrl-C ends it."""
        from gadget_svm.cli.peer_processes import PeersError, names_of

        end = time.monotonic() + limit_s
        while True:
            await asyncio.gather(*(peer.ask() for peer in peers))
            self._show()
            missing = [peer for peer in peers if not reached(peer)]
            if not missing or self.stop.requested:
                return []
            if self.fleet.lost:
                raise PeersError(f"{names_of(self.fleet.lost)} ended before all had started")
            if time.monotonic() > end:
                return missing
            await asyncio.sleep(0.25)

    async def _learn(self) -> None:
        """Watch the peers for the time requested, or until Ctrl-C."""
        self._start_time = time.monotonic()
        tasks = [asyncio.sleep(self.request.seconds)]
        if self.request.chaos:
            tasks.append(self._kill_and_restart(random.Random(self.request.random_state).choice(self.fleet.peers)))
        work = asyncio.gather(*tasks)
        while not work.done() and not self.stop.requested:
            await self.fleet.ask_all()
            for peer in self.fleet.lost:
                peer.expected = False
                code = peer.exit_code
                self._note(peer, "ended", f"{peer.name} ended after {self._elapsed:.0f} s, exit code {code}.")
            self._show()
            await asyncio.wait([work], timeout=STATUS_POLL_S)
        if work.done():
            work.result()  # raises what went wrong
        work.cancel()
        self.seconds = self._elapsed

    async def _kill_and_restart(self, peer: "PeerProcess") -> None:
        """Kill a peer once it has a checkpoint, start it again, and give it a third of the time to catch up."""
        total = self.request.seconds
        await asyncio.sleep(total / 3)
        while not (saved := peer.saved_ticks()):
            if self._elapsed >= total:
                self._say(f"Chaos: {peer.name} has saved no checkpoint, and is not killed.")
                return
            await asyncio.sleep(SAVED_POLL_S)
        former = peer.last_status.get("incarnation")
        peer.kill()
        saved = peer.saved_ticks()
        self._note(peer, "killed", f"Chaos: {peer.name} is killed; its checkpoint is of tick {saved:,}.", ticks=saved)
        await asyncio.sleep(min(AWAY_S, total / 6))
        peer.start()
        self._note(peer, "started", f"Chaos: {peer.name} is started again, from tick {saved:,}.", ticks=saved)
        end = time.monotonic() + START_S
        while peer.last_status.get("incarnation") == former and peer.running and time.monotonic() < end:
            await asyncio.sleep(SAVED_POLL_S)
        if peer.status is not None:
            self._note(peer, "answers", f"Chaos: {peer.name} is back at tick {peer.ticks:,}.", ticks=peer.ticks)
            await asyncio.sleep(total / 3)

    def _show(self) -> None:
        """Update the live table; without a terminal print a line every few seconds."""
        if self._live is not None:
            from rich.console import Group
            from rich.text import Text

            from gadget_svm.cli.peer import peers_table

            table = peers_table([peer.status for peer in self.fleet.peers], [peer.name for peer in self.fleet.peers])
            self._live.update(Group(table, Text(self._line())), refresh=True)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_INTERVAL_S
            self._say(self._line())

    def _line(self) -> str:
        """Return the state of the run as one line."""
        from gadget_svm.report.formatting import number

        found = [peer.status for peer in self.fleet.peers if peer.status is not None]
        text = f"{len(found)} of {len(self.fleet.peers)} peers answer"
        if self._start_time is None:
            return f"starting: {text}, {sum(peer.hears for peer in self.fleet.peers)} learn from others"
        objectives = [each["objective"] for each in found if each["objective"] is not None]
        gaps = [each["gap_estimate"] for each in found if each["gap_estimate"] is not None]
        text = f"{self._elapsed:.0f} s of {self.request.seconds:g} s: {text}"
        text += f", objective about {number(max(objectives))}" if objectives else ""
        return text + (f", estimated gap {100 * max(gaps):.2g} %" if gaps else "")
