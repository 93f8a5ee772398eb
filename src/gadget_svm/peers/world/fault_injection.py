"""The faults of a scenario: what each kind does to the world, at times and to peers that the seed draws.

Each kind is a function of a `Strike`; it schedules what begins and what ends. Faults without an end last for the run.
"""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from gadget_svm.peers.world.event_queue import EventQueue
from gadget_svm.peers.world.machine import Machine
from gadget_svm.peers.world.network import SimulatedNetwork
from gadget_svm.peers.world.randomness import generator, whole_within, within
from gadget_svm.peers.world.scenario import FaultPlan, Scenario

REVOCATION_SPREADS_S = 3.0
"""Within so many seconds all sites have the list of revoked certificates."""
MIN_SURVIVORS = 2


@dataclass
class Roles:
    """Which peers the faults of a run take away for good, and which are refused."""

    names: tuple[str, ...]
    gone: set[str] = field(default_factory=set)  # not running at the end
    revoked: set[str] = field(default_factory=set)
    late: dict[str, float] = field(default_factory=dict)  # when they start
    twice: dict[str, float] = field(default_factory=dict)  # when a second process of the name starts

    @property
    def survivors(self) -> list[str]:
        """The peers whose rows count at the end."""
        return [name for name in self.names if name not in self.gone and name not in self.revoked]


@dataclass
class Strike:
    """One fault: when, how long, how strong, on whom."""

    plan: FaultPlan
    rng: random.Random
    begin: float
    end: float | None
    size: float
    machine: Machine
    machines: dict[str, Machine]
    network: SimulatedNetwork
    queue: EventQueue

    def span(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Schedule the two ends of the fault."""
        self.queue.at(self.begin, begin)
        if self.end is not None:
            self.queue.at(self.end, end)


def draw_roles(scenario: Scenario, names: tuple[str, ...], seed: int) -> tuple[Roles, list[tuple[FaultPlan, str]]]:
    """Return who is lost in the run, and the target of each fault."""
    rng, roles, targets = generator(seed, "targets"), Roles(names), []
    for plan in scenario.faults:
        for _ in range(whole_within(rng, plan.count)):
            name = rng.choice(names)
            if plan.kind in LASTING or (plan.seconds is None and plan.kind in ("kill", "power-off", "stop")):
                free = [each for each in roles.survivors if each not in roles.late]
                if len(free) <= MIN_SURVIVORS:
                    continue
                name = rng.choice(free)
                if plan.kind == "revoke":
                    roles.revoked.add(name)
                elif plan.kind == "join-late":
                    roles.late[name] = within(rng, plan.at)
                elif plan.kind == "same-name":
                    roles.twice[name] = within(rng, plan.at)
                else:
                    roles.gone.add(name)
            targets.append((plan, name))
    return roles, targets


def schedule(
    targets: Collection[tuple[FaultPlan, str]], scenario: Scenario, seed: int, machines: dict[str, Machine],
    network: SimulatedNetwork, queue: EventQueue,
) -> None:  # fmt: skip
    """Put all faults of a run into the queue. All that can end has ended when the faults stop."""
    rng = generator(seed, "faults")
    for plan, name in targets:
        begin = within(rng, plan.at)
        end = None if plan.seconds is None else min(begin + within(rng, plan.seconds), scenario.faults_stop)
        strike = Strike(
            plan, rng, begin, end, within(rng, plan.size), machines[name], machines, network, queue
        )  # fmt: skip
        if plan.kind in KINDS:
            KINDS[plan.kind](strike)


def _kill(strike: Strike, power_off: bool = False) -> None:
    _end_process(strike, partial(strike.machine.kill, power_off))


def _kill_and(strike: Strike, change: Callable[[Machine], None]) -> None:
    """Kill a process, and change what it finds on its disk."""

    def end() -> None:
        strike.machine.kill()
        change(strike.machine)

    _end_process(strike, end)


def _stop(strike: Strike) -> None:
    _end_process(strike, strike.machine.stop)


def _end_process(strike: Strike, end: Callable[[], None]) -> None:
    """End a process and start it again; one that has ended by itself stays as it is."""
    ended: list[int] = []  # the life of the process

    def begin() -> None:
        strike.machine.retired |= strike.end is None
        if strike.machine.running:
            ended.append(strike.machine.life)
            end()

    def start() -> None:
        if ended == [strike.machine.life]:  # it leaves late, such as after a pause
            strike.queue.after(1.0, start)
        elif ended:
            strike.machine.start()

    strike.span(begin, start)


def _pause(strike: Strike) -> None:
    strike.span(strike.machine.pause, strike.machine.resume)


def _slow(strike: Strike) -> None:
    factors = strike.machine.slowness
    strike.span(partial(factors.append, strike.size), partial(factors.remove, strike.size))


def _clock_jump(strike: Strike) -> None:
    strike.queue.at(strike.begin, strike.machine.jump, strike.size)


def _wall_jump(strike: Strike) -> None:
    def jump() -> None:
        strike.machine.clock.wall_offset += strike.size

    strike.queue.at(strike.begin, jump)


def _cut(strike: Strike, both: bool) -> None:
    """Cut a machine's links to one other or to all others."""
    me = strike.machine.name
    others = [name for name in strike.machines if name != me]
    if strike.rng.random() < 0.5:
        others = [strike.rng.choice(others)]
    outward = strike.rng.random() < 0.5
    pairs = [(me, other) if outward else (other, me) for other in others]
    pairs += [(b, a) for a, b in pairs] if both else []
    strike.span(partial(strike.network.cut, pairs), partial(strike.network.heal, pairs))


def _partition(strike: Strike) -> None:
    names = list(strike.machines)
    strike.rng.shuffle(names)
    edge = strike.rng.randint(1, len(names) - 1)
    pairs = [pair for a in names[:edge] for b in names[edge:] for pair in ((a, b), (b, a))]
    strike.span(partial(strike.network.cut, pairs), partial(strike.network.heal, pairs))


def _disk_full(strike: Strike) -> None:
    def set_full(full: bool) -> None:
        strike.machine.disk.full = full

    strike.span(partial(set_full, True), partial(set_full, False))


def _disk_slow(strike: Strike) -> None:
    factors = strike.machine.disk.slowness
    strike.span(partial(factors.append, strike.size), partial(factors.remove, strike.size))


def _revoke(strike: Strike) -> None:
    """Every site learns of it at a time of its own, and its host cuts the open links."""
    revoked = strike.machine.name

    def learn(machine: Machine) -> None:
        machine.revoked.add(revoked)
        strike.network.sever(machine, revoked, "certificate revoked")

    for machine in strike.machines.values():
        if machine.name != revoked:
            strike.queue.at(strike.begin + strike.rng.uniform(0.0, REVOCATION_SPREADS_S), learn, machine)


LASTING = ("revoke", "join-late", "same-name")
KINDS: dict[str, Callable[[Strike], None]] = {
    "kill": _kill,
    "power-off": partial(_kill, power_off=True),
    "kill-fresh": partial(_kill_and, change=lambda machine: machine.disk.set_aside()),
    "kill-older": partial(_kill_and, change=lambda machine: machine.disk.restore_older()),
    "stop": _stop,
    "pause": _pause,
    "slow": _slow,
    "clock-jump": _clock_jump,
    "wall-jump": _wall_jump,
    "one-way-cut": partial(_cut, both=False),
    "cut": partial(_cut, both=True),
    "partition": _partition,
    "disk-full": _disk_full,
    "disk-slow": _disk_slow,
    "revoke": _revoke,
}
"""What each kind does. "join-late", "same-name", "intruder", "hostile-neighbour" and "other-study" are done when the
machines are made."""
