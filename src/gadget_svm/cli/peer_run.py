"""A demo of peers from start to end: starts them in steps, watches them, kills and restarts one, lets all leave."""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from json import dumps
from typing import Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gadget_svm.cli.errors import print_error
from gadget_svm.cli.evaluation import Evaluation
from gadget_svm.cli.output import MODEL, SUMMARY, check_targets, save_summary, say
from gadget_svm.cli.peer_client import peers_table
from gadget_svm.cli.peer_demo import PeerDemoRequest
from gadget_svm.cli.peer_folders import PACE, check_folder, check_rows, clear, locked, set_up
from gadget_svm.cli.peer_processes import Fleet, PeerProcess, PeersError, Stop, names_of
from gadget_svm.cli.peer_results import measure, show
from gadget_svm.cli.train import TrainRequest
from gadget_svm.cli.train_data import load
from gadget_svm.cli.train_model import lam_or_default
from gadget_svm.core.lookup import lookup
from gadget_svm.data import Dataset
from gadget_svm.report.formatting import number

START_S, START_PER_PEER_S, FIRST_MESSAGE_S = 120.0, 10.0, 90.0
"""Time limits for the start and for the first messages: the first run on a machine compiles in both."""
AWAY_S, POLL_S, LINE_INTERVAL_S = 5.0, 0.5, 5.0


def run_demo(request: PeerDemoRequest) -> int:
    """Divide the rows, start, watch, stop, measure; return 0 only if every peer left cleanly and with a model."""
    out, stderr = request.out, Console(stderr=True, quiet=request.quiet)
    lookup("algorithm of a peer", request.algorithm, dict.fromkeys(("pdmm", "gadget")))
    check_targets(out, None)
    check_folder(out)
    rows = with_number_labels(load(TrainRequest(data=[request.data]), request.data, stderr))
    check_rows(rows, request.peers)
    lam = lam_or_default(request.lam, rows.lam)
    evaluation = Evaluation.of(rows, lam, intercept=False)
    with locked(out), Stop() as stop:
        about = f"{len(rows.y):,} rows for {request.peers} peers in {out}, lam {lam:g}, {request.algorithm}"
        say(stderr, f"{rows.name}: {about}")
        clear(out)
        longest_s = _start_limit_s(request) + 2 * FIRST_MESSAGE_S + request.seconds  # the first waits for the others
        folders = set_up(
            out, rows, request.peers, algorithm=request.algorithm, lam=lam, seed=request.random_state, seconds=longest_s
        )
        with Fleet([PeerProcess(folder) for folder in folders]) as fleet:
            run = DemoRun(request, fleet, stop, stderr)
            try:
                run.run()
            except (PeersError, OSError) as error:
                show_logs(fleet.lost or [peer for peer in fleet.peers if not peer.answers], stderr)
                print_error(error)
                return 1
        if not run.seconds:
            print_error("interrupted before the peers had begun to learn")
            return stop.exit_code
        say(stderr, "The peers have left. For comparison, the optimum of all rows in one place is computed.")
        parameters = asdict(request) | {"data": rows.name, "lam": lam, "intercept": False, "pace": PACE}
        summary = measure(run, parameters, rows, evaluation)
        save_summary(out, summary)
    if request.json:
        typer.echo(dumps(summary, allow_nan=False))
    else:
        show(Console(), summary)
    unclean = {each["name"] for each in summary["peers"] if not each["clean"]}
    show_logs([peer for peer in fleet.peers if peer.name in unclean], stderr)
    say(stderr, f"The models are {out}/peer-*/{MODEL}, the summary is {out / SUMMARY}.")
    return stop.exit_code or int(not summary["clean"])


def _start_limit_s(request: PeerDemoRequest) -> float:
    return START_S + START_PER_PEER_S * request.peers


def with_number_labels(data: Dataset) -> Dataset:
    """Return the data with numbers for labels that are numbers in quotes, as peers with other file formats have."""
    if data.y.dtype.kind not in "OUS":
        return data
    try:
        return replace(data, y=data.y.astype(float), y_test=None if data.y_test is None else data.y_test.astype(float))
    except ValueError:
        return data


def show_logs(peers: Sequence[PeerProcess], stderr: Console) -> None:
    """Print the ends of the logs of these peers."""
    for peer in peers:
        if lines := peer.log_end():
            say(stderr, "\n  ".join([f"{peer.name}, the end of {peer.log}:", *lines]))


class DemoRun:
    """The peers while they learn.

    Attributes
    ----------
    seconds : float
        How long all peers learned; 0 if they did not start.
    events : list of dict
        What happened to single peers, with the second, the peer and the kind of event.
    ends : dict
        How each peer ended, by name.
    """

    def __init__(self, request: PeerDemoRequest, fleet: Fleet, stop: Stop, stderr: Console) -> None:
        self.request, self.fleet, self.stop, self.stderr = request, fleet, stop, stderr
        self.seconds, self.events, self.ends = 0.0, list[dict[str, Any]](), dict[str, str]()
        self._live = Live(console=stderr, auto_refresh=False) if stderr.is_terminal and not stderr.quiet else None
        self._next_line = -math.inf
        self._start_time = math.inf  # of the time in which all learn

    def run(self) -> None:
        """Start the peers, let them learn for the time requested, and let them leave."""
        try:
            if self._live is not None:
                self._live.start()
            self._start()
            if not self.stop.requested:
                self._learn()
            self._say(f"{'Interrupted' if self.stop.requested else 'Time is up'}: all peers are asked to leave.")
        finally:
            if self._live is not None:
                self._live.stop()
        self.ends = self.fleet.stop()

    @property
    def _elapsed(self) -> float:
        return max(time.monotonic() - self._start_time, 0.0)

    def _say(self, text: str) -> None:
        say(self.stderr, text)

    def _note(self, peer: PeerProcess, event: str, text: str, **fields: Any) -> None:
        self.events.append({"second": round(self._elapsed, 2), "peer": peer.name, "event": event, **fields})
        self._say(text)

    def _watch(self, limit_s: float, reached: Callable[[], bool] = lambda: False) -> None:
        """Ask and show all peers until ``reached``, Ctrl-C, or the end of the time."""
        end = time.monotonic() + limit_s
        while True:
            self.fleet.ask()
            self._show()
            for peer in self.fleet.lost:
                if self._start_time == math.inf:
                    raise PeersError(f"{names_of(self.fleet.lost)} ended before all had started")
                peer.expected = False
                end_text = f"{peer.name} ended after {self._elapsed:.0f} s, exit code {peer.exit_code}."
                self._note(peer, "ended", end_text)
            if reached() or self.stop.requested or time.monotonic() >= end:
                return
            time.sleep(max(0.0, min(POLL_S, end - time.monotonic())))

    def _start(self) -> None:
        """Start one peer, then a second, then all: what the first ones compile the others find on disk."""
        self._say("The peers start; the first run on a machine compiles for some seconds, for one peer and for two.")
        limit_s = _start_limit_s(self.request)
        for count in sorted({1, 2, self.request.peers}):
            for peer in self.fleet.peers[:count]:
                if peer.process is None:
                    peer.start()
            self._watch(limit_s, lambda: not self._lacking("ticks"))
            if (silent := self._lacking("ticks")) and not self.stop.requested:
                raise PeersError(f"{names_of(silent)} did not answer within {limit_s:g} s")
            if count > 1:
                self._watch(FIRST_MESSAGE_S, lambda: not self._lacking("messages_received"))
                unheard = self._lacking("messages_received")
                if unheard and not self.stop.requested:  # a peer may suppress messages that reveal too much of a row
                    self._say(f"No message reached {names_of(unheard)} in {FIRST_MESSAGE_S:.0f} s; the demo continues.")
            if self.stop.requested:
                return
        self._say(f"The {self.request.peers} peers learn; the {self.request.seconds:g} s begin.")

    def _lacking(self, counter: str) -> list[PeerProcess]:
        """Return the started peers that do not answer, or whose counter of this name is 0."""
        started = [peer for peer in self.fleet.peers if peer.process is not None]
        return [peer for peer in started if not (peer.answers and peer.status[counter])]

    def _learn(self) -> None:
        """Watch the peers for the time requested, or until Ctrl-C."""
        self._start_time = time.monotonic()
        if self.request.chaos:
            self._kill_and_restart(random.Random(self.request.random_state).choice(self.fleet.peers))
        self._watch(self.request.seconds - self._elapsed)
        self.seconds = self._elapsed

    def _kill_and_restart(self, peer: PeerProcess) -> None:
        """Kill a peer once it has a checkpoint, start it again, and give it a third of the time to catch up."""
        total = self.request.seconds
        self._watch(total / 3)
        self._watch(total - self._elapsed, lambda: peer.saved_ticks() > 0)
        if not peer.saved_ticks():
            self._say(f"Chaos: {peer.name} has saved no checkpoint, and is not killed.")
        if not peer.saved_ticks() or self.stop.requested:
            return
        peer.kill()
        saved = peer.saved_ticks()
        self._note(peer, "killed", f"Chaos: {peer.name} is killed; its checkpoint is of tick {saved:,}.", ticks=saved)
        self._watch(min(AWAY_S, total / 6))
        peer.start()
        self._note(peer, "started", f"Chaos: {peer.name} is started again, from tick {saved:,}.", ticks=saved)
        self._watch(START_S, lambda: peer.answers or not peer.running)
        if peer.answers:
            ticks = peer.status["ticks"]
            self._note(peer, "answers", f"Chaos: {peer.name} is back at tick {ticks:,}.", ticks=ticks)
            self._watch(total / 3)

    def _show(self) -> None:
        """Update the live table; without a terminal print a line every few seconds."""
        if self._live is not None:
            self._live.update(Group(peers_table(self.fleet.peers), Text(self._line())), refresh=True)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_INTERVAL_S
            self._say(self._line())

    def _line(self) -> str:
        """Return the state of the run as one line."""
        found = [peer.status for peer in self.fleet.peers if peer.answers]
        text = f"{len(found)} of {len(self.fleet.peers)} peers answer"
        if self._start_time == math.inf:
            return f"starting: {text}, {sum(each['messages_received'] > 0 for each in found)} learn from others"
        objectives = [each["objective"] for each in found if each["objective"] is not None]
        gaps = [each["gap_estimate"] for each in found if each["gap_estimate"] is not None]
        text = f"{self._elapsed:.0f} s of {self.request.seconds:g} s: {text}"
        text += f", objective about {number(max(objectives))}" if objectives else ""
        return text + (f", estimated gap {100 * max(gaps):.2g} %" if gaps else "")
