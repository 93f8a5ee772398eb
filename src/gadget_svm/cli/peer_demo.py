"""`gadget peer demo`: real peer processes on this machine learn together, are shown, and then measured.

Owns the order of things and what is seen meanwhile. The folder is `peer_sites`, the processes are `peer_fleet`, what
it came to is `peer_verdict`.
"""

import asyncio
import dataclasses
import json
import math
import random
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
from rich.console import Console
from rich.table import Table

from gadget_svm.cli.errors import complain
from gadget_svm.cli.evaluation import Evaluator
from gadget_svm.cli.output_files import MODEL, SUMMARY, check_targets, write_summary
from gadget_svm.cli.peer import peers_table
from gadget_svm.cli.peer_fleet import Ending, Fleet, FleetError, PeerProcess, Story
from gadget_svm.cli.peer_sites import PACE, check_folder, check_rows, clear, locked, set_up, writing
from gadget_svm.cli.peer_verdict import measure, show
from gadget_svm.cli.tables import say
from gadget_svm.cli.train import load
from gadget_svm.cli.train_request import Order, lam_for
from gadget_svm.core.lookup import lookup
from gadget_svm.data import Dataset
from gadget_svm.report.formatting import number

ALGORITHMS = dict.fromkeys(("pdmm", "gadget"))
START, EACH, HEAR = 120.0, 10.0, 90.0
"""Seconds some may take to start, with some more for each peer, and then to hear from each other: the first run ever
compiles for both."""
AWAY, LOOK = 5.0, 0.5
"""Seconds a killed peer stays away, at most, and between two looks whether one may be killed."""
Plan = list[tuple[float, str, PeerProcess]]
"""What is still to be done: when, what, to whom."""


def run_peer_demo(
    peers: int, data: str, seconds: float, out: Path, chaos: bool, algorithm: str, lam: float | None, seed: int,
    quiet: bool, as_json: bool = False,
) -> int:  # fmt: skip
    """Deal out, start, watch, stop, measure; 0 only if every peer left in good order and with a model."""
    aside, order = Console(stderr=True, quiet=quiet), Order(data=data, lam=lam, out=out, quiet=quiet)
    demo = Demo(peers, seconds, chaos, algorithm, seed, aside)
    demo.check(order)
    rows = with_plain_labels(load(order, aside))
    check_rows(rows, peers)
    judge = Evaluator.of(rows, lam_for(order, rows), intercept=False)
    with locked(out), Ending() as ending:
        say(
            aside, f"{rows.name}: {len(rows.y):,} rows for {peers} peers in {out}, lam {judge.train.lam:g}, {algorithm}"
        )
        with writing(out):
            clear(out)
            folders = set_up(
                out, rows, peers, algorithm=algorithm, lam=judge.train.lam, seed=seed, seconds=demo.longest
            )
        try:
            story = demo.run([PeerProcess(folder) for folder in folders], ending)
        except (FleetError, OSError) as error:
            complain(error)
            return 1
        if not story.seconds:
            complain(RuntimeError("interrupted before the peers had begun to learn"))
            return ending.exit_code
        say(aside, "The peers have left. For comparison, the optimum of all rows in one place is computed.")
        summary = measure(story, demo.parameters(judge.train.lam), rows, judge)
        with writing(out):
            write_summary(out, summary)
    if as_json:
        print(json.dumps(summary, allow_nan=False))
    else:
        show(Console(), summary)
    good = {one["name"] for one in summary["peers"] if one["in_good_order"]}
    demo.last_words([peer for peer in story.peers if peer.name not in good])
    say(aside, f"The models are {out}/peer-*/{MODEL}, the summary is {out / SUMMARY}.")
    return ending.exit_code or (0 if summary["in_good_order"] else 1)


def with_plain_labels(data: Dataset) -> Dataset:
    """Labels that are numbers in quotes as numbers, which is how peers of different file formats compare them."""
    if data.y.dtype.kind not in "OUS":
        return data
    try:
        y = data.y.astype(np.float64)
        y_test = None if data.y_test is None else data.y_test.astype(np.float64)
    except ValueError:
        return data
    return dataclasses.replace(data, y=y, y_test=y_test)


@dataclasses.dataclass(frozen=True)
class Demo:
    """What was asked for, and where remarks go."""

    peers: int
    seconds: float
    chaos: bool
    algorithm: str
    seed: int
    aside: Console

    def check(self, order: Order) -> None:
        """Refuse what makes no sense before anything is loaded or written."""
        lookup("algorithm of a peer", self.algorithm, ALGORITHMS)
        if self.peers < 2:
            raise ValueError(f"--peers {self.peers}: one alone has nobody to learn with; take at least 2")
        if not 0.0 < self.seconds < math.inf:
            raise ValueError(f"--seconds {self.seconds:g}: a positive number")
        if order.lam is not None and not 0.0 < order.lam < math.inf:
            raise ValueError(f"--lam {order.lam:g}: a positive number")
        if self.seed < 0:
            raise ValueError(f"--seed {self.seed}: a number from 0 on")
        check_targets(order)
        assert isinstance(order.out, Path)
        check_folder(order.out)

    def parameters(self, lam: float) -> dict[str, Any]:
        """As asked for, with all defaults."""
        return {
            "peers": self.peers, "algorithm": self.algorithm, "lam": lam, "intercept": False, "seed": self.seed,
            "seconds": self.seconds, "chaos": self.chaos, "pace": PACE,
        }  # fmt: skip

    @property
    def patience(self) -> float:
        """Seconds for those who start at a time."""
        return START + EACH * self.peers

    @property
    def longest(self) -> float:
        """Seconds that a peer may have to be there: the first one waits for the others."""
        return self.patience + 2 * HEAR + self.seconds

    def _steps(self) -> list[int]:
        """How many peers run after each step of the start: one alone, two of a kind, all."""
        return sorted({1, 2, self.peers})

    # While they run

    def run(self, peers: list[PeerProcess], ending: Ending) -> Story:
        """The processes from start to end; none is left, whatever happens."""
        story = Story(peers)
        with Fleet(peers) as fleet:
            try:
                asyncio.run(self._live(fleet, story, ending))
            except Exception:
                self.last_words(fleet.lost or [peer for peer in peers if peer.found is None])
                raise
        return story

    async def _live(self, fleet: Fleet, story: Story, ending: Ending) -> None:
        try:
            with Screen(self.aside, fleet, self.seconds) as screen:
                await self._start(fleet, screen, ending)
                if not ending.asked:
                    await self._learn(fleet, story, screen, ending)
                await fleet.look()
                screen.show(story.seconds)
                screen.say(f"{'Interrupted' if ending.asked else 'Time is up'}: all peers are asked to leave.")
                story.ends = await fleet.stop()
        finally:
            await fleet.hang_up()
        story.interrupted = ending.asked

    async def _start(self, fleet: Fleet, screen: "Screen", ending: Ending) -> None:
        """Until they learn together: the time that was asked for begins then.

        One alone and then two, since the first run ever compiles what the others then find on disk.
        """

        def tick() -> bool:
            screen.show(None)
            return ending.asked

        screen.say("The peers start; the first run ever compiles for some seconds, once for one alone, once for two.")
        for count in self._steps():
            here = fleet.peers[:count]
            for peer in [peer for peer in here if peer.process is None]:
                peer.start()
            await fleet.until_up(here, self.patience, tick)
            deaf = [] if count == 1 or ending.asked else await fleet.until_together(here, HEAR, tick)
            if ending.asked:
                return
            if deaf:
                screen.say(f"No letter has come to {', '.join(deaf)} in {HEAR:.0f} s; the peers go on all the same.")
        screen.say(f"The {self.peers} peers learn; the {self.seconds:g} s begin.")

    async def _learn(self, fleet: Fleet, story: Story, screen: "Screen", ending: Ending) -> None:
        began, plan = time.monotonic(), self._plan(fleet)
        while (now := time.monotonic() - began) < self._until(plan, story) and not ending.asked:
            if plan and now >= plan[0][0]:
                plan = self._do(*plan[0], now, story, screen)
            await fleet.look()
            now = time.monotonic() - began
            self._note(fleet, now, story, screen)
            screen.show(now)
            due = [1.0, self._until(plan, story) - now, *(at - now for at, *_ in plan)]
            await _nap(min(due), ending)
        story.seconds = time.monotonic() - began

    def _plan(self, fleet: Fleet) -> Plan:
        """What is done to whom, and when."""
        if not self.chaos:
            return []
        return [(self.seconds / 3, "killed", random.Random(self.seed).choice(fleet.peers))]

    def _until(self, plan: Plan, story: Story) -> float:
        """When to stop: one that was killed is waited for, and given a third of the time to catch up."""
        last = _last_of_killed(story)
        match last.get("event"):
            case "started":
                return max(self.seconds, float(last["second"]) + START)  # a limit: it answers long before
            case "answers":
                return max(self.seconds, float(last["second"]) + self.seconds / 3)
        return math.inf if plan else self.seconds

    def _do(self, _at: float, what: str, peer: PeerProcess, now: float, story: Story, screen: "Screen") -> Plan:
        """Chaos; what is to be done next. Only who has saved what it learned is killed: else it would show nothing."""
        if what == "killed" and not peer.saved_ticks():
            if now < self.seconds:
                return [(now + LOOK, what, peer)]
            screen.say(f"Chaos: {peer.name} has saved nothing that it has learned, and is not killed.")
            return []
        if what == "killed":
            peer.kill()
        else:
            peer.start()
        saved = peer.saved_ticks()
        story.events.append({"second": round(now, 2), "peer": peer.name, "event": what, "saved_ticks": saved})
        if what == "killed":
            screen.say(f"Chaos: {peer.name} is killed with -9 after {now:.0f} s; its checkpoint is of tick {saved:,}.")
            return [(now + min(AWAY, self.seconds / 6), "started", peer)]
        screen.say(f"Chaos: {peer.name} is started again after {now:.0f} s, from its checkpoint of tick {saved:,}.")
        return []

    def _note(self, fleet: Fleet, now: float, story: Story, screen: "Screen") -> None:
        """Who has come back, and who has ended though nobody ended it."""
        last = _last_of_killed(story)
        for peer in fleet.peers:
            if last.get("event") == "started" and last["peer"] == peer.name and peer.found:
                ticks = peer.found["ticks"]
                story.events.append({"second": round(now, 2), "peer": peer.name, "event": "answers", "ticks": ticks})
                screen.say(f"Chaos: {peer.name} is back after {now:.0f} s, at tick {ticks:,}.")
        for peer in fleet.lost:
            peer.expected = False
            story.events.append({"second": round(now, 2), "peer": peer.name, "event": "ended by itself"})
            screen.say(f"{peer.name} has ended by itself after {now:.0f} s, exit code {peer.exit_code}.")

    def last_words(self, peers: list[PeerProcess]) -> None:
        """What the logs of these peers end with."""
        for peer in peers:
            words = peer.last_words() if peer.process is not None else []
            if words:
                say(self.aside, f"{peer.name}, the end of {peer.log}:")
            for line in words:
                say(self.aside, f"  {line}")


def _last_of_killed(story: Story) -> dict[str, Any]:
    """The last that happened to the peer that was killed on purpose."""
    killed = {event["peer"] for event in story.events if event["event"] == "killed"}
    return next((event for event in reversed(story.events) if event["peer"] in killed), {})


async def _nap(seconds: float, ending: Ending) -> None:
    """Sleep, but not through a Ctrl-C."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not ending.asked:
        await asyncio.sleep(min(left, 0.1))


class Screen:
    """The live table on a terminal; elsewhere a line every few seconds."""

    EVERY = 5.0

    def __init__(self, console: Console, fleet: Fleet, seconds: float) -> None:
        from rich.live import Live

        self.console, self.fleet, self.seconds = console, fleet, seconds
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal and not console.quiet else None
        self._line_at = -math.inf

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *failure: Any) -> None:
        if self.live is not None:
            self.live.stop()

    def say(self, text: str) -> None:
        """A remark, above the table."""
        say(self.console, text)

    def show(self, now: float | None) -> None:
        """How all are; None while they start."""
        found = [peer.found for peer in self.fleet.peers]
        if self.live is not None:
            self.live.update(self._table(found, now), refresh=True)
        elif time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + self.EVERY
            self.say(self._starting() if now is None else in_a_line(found, now))

    def _starting(self) -> str:
        """How far they are."""
        peers = self.fleet.peers
        up, ready = sum(peer.found is not None for peer in peers), sum(peer.ready for peer in peers)
        return f"starting: {up} of {len(peers)} peers are up, {ready} learn from others"

    def _table(self, found: list[dict[str, Any] | None], now: float | None) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar

        below = Table.grid(padding=(0, 1))
        if now is None:
            below.add_row(self._starting())
        else:
            left = max(0.0, self.seconds - now)
            below.add_row(
                ProgressBar(total=self.seconds, completed=min(now, self.seconds), width=40), f"{left:.0f} s left"
            )
        return Group(peers_table(found, self.fleet.names), below)


def in_a_line(found: list[dict[str, Any] | None], now: float) -> str:
    """The peers' own estimates in short."""
    here = [one for one in found if one is not None]
    gaps = [one["gap_estimate"] for one in here if one["gap_estimate"] is not None]
    objectives = [one["objective"] for one in here if one["objective"] is not None]
    text = f"{now:.0f} s: {len(here)} of {len(found)} peers answer"
    if objectives:
        text += f", objective about {number(max(objectives))}"
    return text + (f", estimated gap {100 * max(gaps):.2g} %" if gaps else "")
