"""Runs of simulated peers: one scenario with one seed, or a network described in a few numbers with many seeds.

Owns the result of a run and the command that repeats it.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from gadget_svm.peers.wire.messages import Hello, Message
from gadget_svm.peers.world.network import RefusedMessageError
from gadget_svm.peers.world.randomness import generator
from gadget_svm.peers.world.scenario import DataPlan, LinkPlan, Range, Scenario, load
from gadget_svm.peers.world.world import NodeFactory, World, node_factory, run_world
from gadget_svm.study.study import Study

LATENCIES: dict[str, Range] = {"lan": (0.0002, 0.0005), "wan": (0.05, 0.05)}
AN_HOUR_S = 3_600.0
"""Networks without a certificate after so many simulated seconds have failed. Their losses never stop."""


class Records(list[dict[str, float]]):
    """A list that passes on what is added to it."""

    def __init__(self, tell: Callable[[dict[str, float]], None]) -> None:
        super().__init__()
        self.tell = tell

    def append(self, record: dict[str, float]) -> None:
        """Add a record, and tell it."""
        super().append(record)
        self.tell(record)


Observe = bool | Callable[[dict[str, float]], None]


@dataclass(frozen=True)
class Result:
    """One run. ``failure`` is empty if everything held; ``trace`` is there if it was asked for."""

    scenario: str
    seed: int
    peers: int
    failure: str
    seconds: float  # simulated, until all goals were reached
    models_after: float | None  # simulated seconds until all models were good
    certified_after: float | None  # and until all sites had the certified model
    ticks: int  # the most of one peer
    model_ticks: int | None  # and until all models were good
    messages: int
    nbytes: int
    calls: int
    cpu: float
    wire: bool
    trace: list[str] = field(default_factory=list, repr=False)
    history: list[dict[str, float]] = field(default_factory=list, repr=False)

    @property
    def ok(self) -> bool:
        """Whether everything held."""
        return not self.failure

    @property
    def command(self) -> str:
        """The command that repeats this run."""
        return f"gadget peer simulate {self.scenario} --seed {self.seed} --trace"


def run(
    scenario: Scenario | str | Path, seed: int, trace: bool = False, *, record: Observe = False,
    make_node: NodeFactory | None = None,
) -> Result:  # fmt: skip
    """Run one scenario with one seed.

    Parameters
    ----------
    scenario : Scenario, str or Path
        A scenario, the name of one that comes with the package, or a TOML file.
    seed : int
        All that is random follows from it.
    trace : bool, default False
        Keep a line of text for every event.
    record : bool or callable, default False
        Keep the course of the run in ``history``; a callable gets each record.
    make_node : callable, optional
        Makes the processes' nodes; by default the real `Node`.

    Returns
    -------
    Result
        What was reached, and what it took.
    """
    plan = scenario if isinstance(scenario, Scenario) else load(scenario)
    lines: list[str] = []
    encoded = generator(seed, "wire").random() < plan.wire
    world = World(
        plan, seed, make_node=make_node or node_factory(), transcoder=through_wire if encoded else None,
        say=(lambda name, text: lines.append(f"{world.queue.now:9.3f} {name:>9} {text}")) if trace else None,
    )  # fmt: skip
    if record:
        world.goals.history = Records(record) if callable(record) else []
    began = time.process_time()
    failure = run_world(world)
    machines, traffic, goals = world.machines, world.network.traffic, world.goals
    return Result(
        plan.name, seed, len(world.roles.names), failure, world.queue.now, goals.reached.get("models"),
        goals.reached.get("certified"), max((machine.steps for machine in machines.values()), default=0), goals.ticks,
        traffic.messages, traffic.nbytes, world.queue.calls, time.process_time() - began, encoded, lines,
        list(goals.history or ()),
    )  # fmt: skip


def through_wire(study: Study) -> Callable[[Message], Message]:
    """Return what encodes and decodes a message, with the checks of a host."""
    from gadget_svm.peers.wire import codec
    from gadget_svm.peers.wire.limits import Limits, MalformedError

    limits = Limits.of(study)

    def transcode(message: Message) -> Message:
        try:
            if isinstance(message, Hello):
                return codec.decode_hello(codec.encode_hello(message, limits), limits)
            found = codec.decode(codec.encode(message, limits), limits)
        except MalformedError as error:
            raise RefusedMessageError(f"{type(message).__name__} is refused: {error}") from error
        return cast(Message, found)

    return transcode


def run_many(
    scenario: Scenario | str | Path, seeds: range, processes: int = 1, make_node: NodeFactory | None = None
) -> Iterator[Result]:
    """Run a scenario with many seeds, in several processes if wanted; yield results in the order of the seeds."""
    plan = scenario if isinstance(scenario, Scenario) else load(scenario)
    if processes <= 1 or make_node is not None:
        for seed in seeds:
            yield run(plan, seed, make_node=make_node)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(run, [plan] * len(seeds), seeds, chunksize=max(1, min(20, len(seeds) // processes)))


def network_plan(
    peers: int = 10, *, latency: float | str = "wan", bandwidth: float = 12.5e6, loss: float = 0.0,
    rows: int = 100, features: int = 20, **settings: Any,
) -> Scenario:  # fmt: skip
    """Return a scenario without faults, from a few numbers.

    Parameters
    ----------
    peers : int, default 10
    latency : float or {"wan", "lan"}, default "wan"
        Seconds one way; "wan" is 50 ms.
    bandwidth : float, default 12.5e6
        Bytes per second that each site can send.
    loss : float, default 0.0
        The probability that a message is lost.
    rows, features : int
        Of each site's generated rows.
    **settings
        Fields of `NodeSettings`, such as ``tick``.

    Returns
    -------
    Scenario
        To be given to `run`.
    """
    spread = LATENCIES[latency] if isinstance(latency, str) else (latency, latency)
    return replace(
        Scenario("network"), title=f"{peers:,} peers", peers=(peers, peers), settings=settings, wire=0.0,
        faults_stop=AN_HOUR_S, settle=0.0, data=DataPlan((rows, rows), (features, features)),
        study={"min_sites": peers}, links=LinkPlan(spread, bandwidth=bandwidth, loss=(loss, loss)),
    )  # fmt: skip


def simulate(
    scenario: Scenario | str | Path | None = None, *, seeds: range | int = 0, trace: bool = False, processes: int = 1,
    **network: Any,
) -> list[Result]:  # fmt: skip
    """Run real peers' code in a simulated network.

    Parameters
    ----------
    scenario : Scenario, str or Path, optional
        By default, a network without faults: see `network_plan` for what ``**network`` may say.
    seeds : range or int, default 0
        One run each.
    trace : bool, default False
        Keep a line for every event.
    processes : int, default 1
        How many runs at a time.

    Returns
    -------
    list of Result
        In the order of the seeds.

    Examples
    --------
    >>> from gadget_svm.peers import simulate
    >>> result, = simulate(peers=3, latency="lan", rows=30, features=5)
    >>> result.ok
    True
    """
    plan = network_plan(**network) if scenario is None else scenario
    chosen = range(seeds, seeds + 1) if isinstance(seeds, int) else seeds
    if trace:
        return [run(plan, seed, trace=True) for seed in chosen]
    return list(run_many(plan, chosen, processes))
