"""One simulated machine: it starts, kills, pauses and restarts a node's process, and carries out the node's effects.

This is the host of a node, as `peers.process` is in reality. Owns the process's clock, timer, step and disk; what it
does on the network is the network's. An observer sees every event with its effects; it must not change anything.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gadget_svm.core.types import Floats
from gadget_svm.peers.events import (
    CredentialsChanged,
    Dial,
    Effect,
    Event,
    Export,
    Finish,
    Hangup,
    Report,
    RunStep,
    Save,
    Saved,
    SaveFailed,
    Send,
    SetTimer,
    Spend,
    Started,
    StepDone,
    StepFailed,
    StopRequested,
    TimerFired,
)  # fmt: skip
from gadget_svm.peers.storage.snapshot import Snapshot
from gadget_svm.peers.world.clock import MachineClock
from gadget_svm.peers.world.disk import Disk
from gadget_svm.peers.world.event_queue import EventQueue
from gadget_svm.peers.world.network import SimulatedNetwork
from gadget_svm.peers.world.randomness import generator, within

CERTIFICATE_LIFE_S = 365 * 86_400.0
TIMER_DELAY_S = 1e-6
"""Timers fire late, never early: also if a clock's readings are rounded."""
SUPERSEDED = "another process runs as"
"""What a process says when it ends for that reason."""
SECONDS_PER_NUMBER = 2e-9
"""Of a training step, for each number that it touches."""


class NodeLike(Protocol):
    """What a machine runs: a `Node`, or something that speaks the same events."""

    @property
    def finished(self) -> bool:
        """Whether it has left the network and saved its state."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take an event in; return what the host shall do."""

    def status(self, now: float) -> dict[str, Any]:
        """Return its state, as JSON."""

    def model(self) -> Floats | None:
        """Return its weights."""


class Observer(Protocol):
    """Sees what happens on all machines."""

    def started(self, machine: "Machine", snapshot: Snapshot | None) -> None:
        """A process begins."""

    def handled(self, machine: "Machine", event: Event, effects: Sequence[Effect]) -> None:
        """A node has handled an event; its effects come next."""

    def without_timer(self, machine: "Machine", event: Event) -> None:
        """A node waits for nothing after an event: no timer, step or write is under way."""

    def ended(self, machine: "Machine", reason: str) -> None:
        """A process has ended."""


MakeNode = Callable[[random.Random], NodeLike]


@dataclass
class Hardware:
    """What a machine consists of."""

    queue: EventQueue
    network: SimulatedNetwork
    disk: Disk
    clock: MachineClock
    step_seconds: tuple[float, float]


class Machine:
    """A machine, with at most one process at a time on it. ``make`` makes the process's node.

    ``identity`` is the peer's name. It differs from the machine's if a peer runs on a second machine.
    """

    def __init__(
        self, name: str, address: str, hardware: Hardware, make: MakeNode, seed: int, observer: Observer,
        identity: str = "",
    ) -> None:  # fmt: skip
        self.name, self.address, self.seed, self.observer = name, address, seed, observer
        self.identity = identity or name
        self.hardware, self.queue, self.network = hardware, hardware.queue, hardware.network
        self.disk, self.clock = hardware.disk, hardware.clock
        self.make = make
        self.node: NodeLike | None = None
        self.life = 0  # grows with every start and end of a process
        self.slowness = [1.0]  # factors of the time of a step, of which the largest counts
        self.revoked: set[str] = set()  # identities that this machine's host refuses
        self.finish: Finish | None = None  # how the last process ended, if by itself
        self.timer: float | None = None  # by the machine's clock
        self.stepping = False
        self.retired = False  # no process starts on it any more
        self.steps = 0
        self._timer_serial = 0
        self._missed_timer = -1  # that came while the process was paused
        self._paused: list[Event] | None = None
        self._rng = generator(seed, "machine", name)
        self._actions: dict[type[Any], Callable[[Any], None]] = {
            Dial: self._dial, Hangup: self._hang_up, Send: self._send, RunStep: self._run_step, Save: self._save,
            Export: self._export, Spend: self._spend, SetTimer: self._set_timer, Report: self._report,
            Finish: self._finish,
        }  # fmt: skip

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self.node is not None

    @property
    def paused(self) -> bool:
        """Whether the process is halted, and its events wait."""
        return self._paused is not None

    @property
    def now(self) -> float:
        """The machine's monotonic clock."""
        return self.clock.monotonic(self.queue.now)

    @property
    def superseded(self) -> bool:
        """Whether the last process ended because another one proved that it has its name."""
        return self.finish is not None and SUPERSEDED in self.finish.error

    def refuses(self, identity: str) -> bool:
        """Return whether this machine's host refuses connections of a peer."""
        return identity in self.revoked

    # The process's life

    def start(self) -> None:
        """Start a process from what the disk holds, unless there is one."""
        if self.node is not None or self.retired:
            return
        self.life += 1
        self.finish, self.stepping, self.timer = None, False, None
        snapshot = self.disk.restore()
        self.node = self.make(generator(self.seed, "node", self.name, self.life))
        self.observer.started(self, snapshot)
        wall = self.clock.wall(self.queue.now)
        self.deliver(Started(wall, snapshot, self.disk.restore_ledger()))
        self.deliver(CredentialsChanged(wall + CERTIFICATE_LIFE_S))

    def kill(self, power_off: bool = False) -> None:
        """End the process at once. If the whole machine goes off, nothing tells its neighbours."""
        if self.node is None:
            return
        self.disk.kill()
        self._end("killed", silently=power_off)

    def stop(self, reason: str = "asked to") -> None:
        """Ask the process to leave."""
        self.deliver(StopRequested(reason))

    def pause(self) -> None:
        """Halt the process: its events wait."""
        if self.node is not None and self._paused is None:
            self._paused = []

    def resume(self) -> None:
        """Go on after `pause`."""
        held, self._paused = self._paused or [], None
        for event in held:
            self.deliver(event)
        if self._missed_timer == self._timer_serial:
            self._fire(self.life, self._timer_serial)

    def jump(self, seconds: float) -> None:
        """Set the machine's clocks forward; timers that are due now fire, and one fires too early."""
        self.clock.jump(seconds)
        if self.timer is not None:
            self._set_timer(SetTimer(self.timer))
        self.deliver(TimerFired())

    def _end(self, reason: str, silently: bool = False) -> None:
        self.life += 1
        self.node, self._paused, self.timer = None, None, None
        self.network.vanish(self, silently)
        self.observer.ended(self, reason)

    # Events

    def deliver(self, event: Event) -> None:
        """Hand an event to the node and carry out its effects; hold it while the process is paused."""
        if self.node is None:
            return
        if self._paused is not None:
            self._paused.append(event)
            return
        effects = self.node.handle(event, self.now)
        self.observer.handled(self, event, effects)
        life = self.life
        for effect in effects:
            self._actions[type(effect)](effect)
            if self.life != life:
                return
        if self.timer is None and not self.stepping and not self.disk.busy:
            self.observer.without_timer(self, event)

    # Effects

    def _dial(self, effect: Dial) -> None:
        self.network.dial(self, effect.address, effect.name)

    def _hang_up(self, effect: Hangup) -> None:
        self.network.hang_up(self, effect.link, effect.reason)

    def _send(self, effect: Send) -> None:
        self.network.send(self, effect.link, effect.message)

    def _run_step(self, effect: RunStep) -> None:
        if self.stepping:
            raise AssertionError(f"{self.name} asked for a step while one was running")
        self.stepping = True
        usual = within(self._rng, self.hardware.step_seconds) + SECONDS_PER_NUMBER * effect.work
        # A thread reads its inputs at any time between the two ends.
        result = self._call(effect) if self._rng.random() < 0.5 else None
        self.queue.after(max(self.slowness) * usual, self._step_done, self.life, effect, result)

    def _step_done(self, life: int, effect: RunStep, result: Event | None) -> None:
        if life == self.life:
            self.stepping = False
            self.steps += 1
            self.deliver(self._call(effect) if result is None else result)

    def _call(self, effect: RunStep) -> Event:
        try:
            return StepDone(effect.step())
        except ArithmeticError as error:
            return StepFailed(repr(error))

    def _save(self, effect: Save) -> None:
        life = self.life
        self.disk.write(effect.number, effect.snapshot, lambda number, why: self._saved(life, number, why))

    def _export(self, effect: Export) -> None:
        life = self.life
        self.disk.write(effect.number, effect.model, lambda number, why: self._saved(life, number, why))

    def _spend(self, effect: Spend) -> None:
        life = self.life
        self.disk.write(effect.number, effect.ledger, lambda number, why: self._saved(life, number, why))

    def _saved(self, life: int, number: int, why: str) -> None:
        if life == self.life:
            self.deliver(SaveFailed(number, why) if why else Saved(number))

    def _set_timer(self, effect: SetTimer) -> None:
        self.timer = effect.at
        self._timer_serial += 1
        self.queue.at(self.clock.virtual(effect.at) + TIMER_DELAY_S, self._fire, self.life, self._timer_serial)

    def _fire(self, life: int, serial: int) -> None:
        if life != self.life or serial != self._timer_serial:
            return
        if self._paused is not None:
            self._missed_timer = serial
        else:
            self.timer = None
            self.deliver(TimerFired())

    def _report(self, _effect: Report) -> None:
        """The observer has seen it."""

    def _finish(self, effect: Finish) -> None:
        self.finish = effect
        self._end(f"finished: {effect.reason}{effect.error}")
