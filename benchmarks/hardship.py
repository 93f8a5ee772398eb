"""PDMM where it is not easy: skewed shards, many nodes, loss, crashes, churn and asynchronous nodes. Gaps, no clock."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks.common import Table, problem_of, publish_tables, runtime_of, say
from benchmarks.gaps import Task, absent, tasks
from gadget_svm import build_network
from gadget_svm.algorithms import Pdmm
from gadget_svm.data.partition import assign_sites, partition_by_site
from gadget_svm.faults import Asynchronous, Churn, Crash, Delay, FaultContext, Loss, Partition, wrap_all

SEEDS = (0, 1, 2)
COLUMNS = [
    "data",
    "situation",
    "variant",
    "ticks",
    "gap asked, %",
    "worst node, %",
    "by seed",
    "ratio to what is asked",
]


class Case(NamedTuple):
    """A situation, and the gap in % that the worst node is asked to reach after so many ticks."""

    name: str
    asked: dict[int, float]
    neighbours: Any = 1
    nodes: int = 10
    topology: str = "random-regular"
    partition: str = "even"
    faults: tuple[Any, ...] = ()
    never: tuple[int, float] | None = None  # from which tick on no node may ever be how far off
    seeds: tuple[int, ...] = SEEDS
    only: tuple[str, ...] = ("adult", "reuters")


ONE, ALL = {100: 1.0, 400: 0.1}, {40: 1.0, 150: 0.1}
AWAY, AWAY_FAULTS = "20 % lost, 3 nodes away from 60 to 155", (Loss(0.2), Crash((1, 4, 7), at=60, back=155))
LINKS, CUT = (Loss(0.2), Delay(3)), Partition(at=250, heal=300, lost=True)
CASES = (
    Case("even shards", ONE, only=("adult", "reuters", "ccat")),
    Case("even shards", ALL, "all", only=("adult", "reuters", "ccat")),
    Case("ring", {2 * ticks: gap for ticks, gap in ONE.items()}, topology="ring"),
    Case("ring", {2 * ticks: gap for ticks, gap in ALL.items()}, "all", topology="ring"),
    Case("rows sorted by label", {600: 1.0}, partition="sorted"),
    Case("Dirichlet 0.1 by label", {600: 1.0}, partition="label-skew"),
    Case("100 nodes", {600: 1.0}, nodes=100, only=("adult",)),
    Case("100 nodes, complete graph", {600: 1.0}, nodes=100, topology="complete", only=("adult",)),
    Case("100 nodes, complete graph", {60: 1.0}, "all", nodes=100, topology="complete", only=("adult",)),
    *(Case(AWAY, {150: 1.0, 300: 0.5}, who, faults=AWAY_FAULTS, only=("adult",)) for who in (1, "all")),
    *(Case(AWAY, {150: 2.0, 300: 0.5}, who, faults=AWAY_FAULTS, only=("reuters",)) for who in (1, "all")),
)


def _restless(name: str, faults: tuple[Any, ...], who: Any, seeds: tuple[int, ...] = SEEDS) -> Case:
    asked = {1500: 1.0} if "asynchronous" in name else {400: 1.0}
    never = None if "asynchronous" in name else (200, 5.0)
    return Case(name, asked, who, nodes=20, faults=faults, never=never, seeds=seeds, only=("adult",))


RESTLESS = (
    *(_restless("churn, leave 0.01, join 0.1", (Churn(),), who, tuple(range(10))) for who in (1, "all")),
    *(
        _restless(name, faults, who)
        for name, faults in {
            "churn, leave 0.3, join 0.3": (Churn(0.3, 0.3),),
            "churn, 20 % lost, delays up to 3": (Churn(), *LINKS),
            "churn, partition from 250 to 300": (Churn(), CUT),
            "asynchronous, probability 0.3": (Asynchronous(0.3),),
            "asynchronous, 20 % lost, delays up to 3": (Asynchronous(0.3), *LINKS),
            "asynchronous, partition from 250 to 300": (Asynchronous(0.3), CUT),
            "asynchronous, churn, 20 % lost, delays, partition": (Asynchronous(0.3), Churn(), *LINKS, CUT),
        }.items()
        for who in (1, "all")
    ),
)
"""20 nodes that come and go, or take part in a tick with some probability."""


def main(quick: bool = False) -> None:
    """Every case on every data set it is asked of; in a quick run one seed of the first, on generated rows."""
    table, missing = Table(COLUMNS), list[str]()
    for task in tasks(quick, missing):
        for case in CASES[:1] if quick else (*CASES, *RESTLESS):
            if not quick and task.name not in case.only:
                continue
            say(f"hardship: {task.name}, {case.name}, {_variant(case)}")
            runs = [dict(_gaps(task, case, seed)) for seed in (SEEDS[:1] if quick else case.seeds)]
            asks: dict[Any, float] = dict(case.asked)
            if case.never:
                asks[f"all after {case.never[0]}"] = case.never[1]
            for ticks, asked in asks.items():
                gaps = [run[ticks] for run in runs]
                by_seed = ", ".join(f"{gap:.3g}" for gap in gaps)
                table.add(task.name, case.name, _variant(case), ticks, asked, max(gaps), by_seed, max(gaps) / asked)
    notes = [
        "The worst node of a network at default settings, the paper's lambda, no bias, so many ticks after the start; "
        "a graph, a deal of the rows and draws for each of the seeds 0, 1, ..., of which the worst counts. While nodes "
        "are away the worst of the others counts. The optimum is that of all rows: no node was declared dead.",
        *absent(missing),
    ]
    publish_tables("hardship", "Gaps where it is not easy", notes, [table], None, quick)


def _variant(case: Case) -> str:
    return f"{case.neighbours} neighbour{'s' if case.neighbours == 'all' else ''}"


def _gaps(task: Task, case: Case, seed: int) -> Iterator[tuple[Any, float]]:
    """(ticks, the worst node's gap in %) for everything that is asked."""
    shares = None
    if case.partition != "even":
        shares = partition_by_site(assign_sites(task.y, case.nodes, case.partition, seed=seed))[0]
    problem = problem_of(task.X, task.y, case.nodes, shares, seed)
    network = build_network(case.topology, case.nodes, seed=seed)
    exchange = wrap_all(case.faults, FaultContext(case.nodes, seed)) if case.faults else None
    run = Pdmm(neighbours=case.neighbours).bind(network, task.lam, 1.0)
    runtime = runtime_of(problem, network, run, seed, exchange=exchange)
    since, highest = case.never[0] if case.never else 2**62, 0.0
    while runtime.t < max(case.asked):
        step = 1 if runtime.t >= since else min(t for t in (*case.asked, since) if t > runtime.t) - runtime.t
        runtime.advance(step)
        gap = 100 * float(task.gaps(runtime.models()[runtime.live_row_weights() > 0][:, 0]).max())
        highest = max(highest, gap if runtime.t > since else 0.0)
        if runtime.t in case.asked:
            yield runtime.t, gap
    if case.never:
        yield f"all after {since}", highest
    if any(block.edge["epoch"].any() for block in runtime.blocks):
        raise RuntimeError(f"{case.name}, seed {seed}: a node was declared dead, so the optimum is another")
    runtime.close()


if __name__ == "__main__":
    main()
