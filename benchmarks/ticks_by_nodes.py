"""Ticks to a gap of 1 % as a network grows, rows of CCAT's shape: for planning a run on more machines.

With as many rows in all whatever the nodes, so that shards shrink, and with as many rows a node, few or more of them.
And the mail of a certificate between as many workers as there are nodes, beside that of a tick.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import numpy as np

from benchmarks.common import Table, generated, problem_of, publish_tables, ratio, runtime_of, say, seconds_of
from benchmarks.paper_scale import zipf_rows
from gadget_svm import build_network
from gadget_svm.algorithms import Pdmm
from gadget_svm.cluster.worker import Worker, certify_together
from gadget_svm.estimator.fitting import make_blocks
from gadget_svm.kernels import ThreadTeam
from gadget_svm.kernels.vectors import distances
from gadget_svm.reproduction.baselines.optimum import certified_optimum

FEATURES, PER_ROW, LAM, TARGET = 47_236, 76, 1e-4, 1e-2
SIZES: tuple[tuple[str, int, int], ...] = (
    ("rows in all fixed", 10, 30_000),
    ("rows in all fixed", 100, 30_000),
    ("rows in all fixed", 300, 30_000),
    ("rows a node fixed", 10, 2_000),
    ("rows a node fixed", 100, 20_000),
    ("rows a node fixed", 300, 60_000),
    ("rows a node fixed", 1_000, 200_000),
    ("more rows a node", 10, 30_000),
    ("more rows a node", 100, 300_000),
)
QUICK: tuple[tuple[str, int, int], ...] = (("rows in all fixed", 10, 2_000), ("rows in all fixed", 50, 2_000))
EVALUATED, MOST, EVERY = 8, 200, 2
WORKERS, QUICK_WORKERS = (16, 64, 256, 1_000), (16,)


def ticks_to_target(nodes: int, rows: int, neighbours: Any) -> tuple[int | None, float, float]:
    """The first tick from which on the nodes farthest from the average are within the target; seconds a tick; F*."""
    X, y = zipf_rows(rows, FEATURES, PER_ROW)
    best = certified_optimum(X, y, LAM, 1e-3)
    problem = problem_of(X, y, nodes)
    algorithm, network = Pdmm(neighbours=neighbours), build_network("random-regular", nodes)
    run = algorithm.bind(network, LAM, LAM**-0.5, False, problem.shares.sizes)
    narrow, columns = problem.occurring()
    runtime = runtime_of(narrow, network, run)
    runtime.warm_up()
    objective, spent, first = problem.objective(LAM, ThreadTeam.of(None)), 0.0, None
    while runtime.t < MOST:
        spent += seconds_of(runtime.advance, EVERY)[0]
        models = runtime.models()[:, 0]
        mean = np.average(models, axis=0, weights=runtime.sizes())
        farthest = np.argsort(distances(models[:, None], mean[None]))[-EVALUATED:]
        wide = np.zeros((len(farthest), 1, X.shape[1]))
        wide[:, 0, columns] = models[farthest]
        gap = float(objective(wide).objective.max()) / best.bound - 1
        if gap <= TARGET:
            first = runtime.t
            break
    return first, spent / runtime.t, best.objective


def batches(nodes: int) -> tuple[int, int, int]:
    """A network of a node a worker: batches of mail that go between workers in a tick and in a certificate, and the
    exchanges of the certificate."""
    X, y = generated(4 * nodes, 50, 5)
    problem, network = problem_of(X, y, nodes), build_network("random-regular", nodes)
    run = Pdmm(neighbours="all").bind(network, LAM, LAM**-0.5, False, problem.shares.sizes)
    workers: list[Worker] = []
    posted = count()

    def post_of(source: int) -> Any:
        def post(to: int, number: int, messages: Any) -> None:
            next(posted)
            workers[to].receive(source, number, messages)

        return post

    for i, block in enumerate(make_blocks(problem, network, 0, nodes, ThreadTeam())):
        workers.append(Worker(i, np.arange(nodes + 1), run, block, post_of(i), LAM))
    live = np.ones(nodes, dtype=np.bool_)
    with ThreadPoolExecutor(nodes) as pool:

        def ask() -> list[Any]:
            return list(pool.map(lambda worker: worker.certify(0, live, 1), workers))

        list(pool.map(lambda worker: worker.advance(1), workers))
        learning = next(posted)
        certificate = certify_together(ask, (1, X.shape[1]), 0, live)
    if certificate.failure:
        raise RuntimeError(certificate.failure)
    return learning, next(posted) - learning - 1, certificate.exchanges


def mail_table(quick: bool) -> Table:
    """What a certificate sends, in ticks."""
    table = Table(
        ("workers, one node each", "batches a tick", "exchanges of a certificate", "batches of a certificate",
         "certificate, ratio to a tick"), name="certificates", title="Mail of a certificate",
    )  # fmt: skip
    for nodes in QUICK_WORKERS if quick else WORKERS:
        say(f"ticks_by_nodes: mail of a certificate, {nodes} workers")
        learning, certifying, exchanges = batches(nodes)
        table.add(nodes, learning, exchanges, certifying, ratio(certifying, learning))
    return table


def main(quick: bool = False) -> None:
    """All sizes, one neighbour and all; the last column is the ratio to the smallest network of its kind."""
    table = Table(
        ("kind", "nodes", "rows a node", "neighbours a tick", "ticks to 1 %", "messages a node", "seconds a tick",
         "ticks, ratio to 10 nodes")
    )  # fmt: skip
    smallest: dict[tuple[str, Any], int | None] = {}
    for kind, nodes, rows in QUICK if quick else SIZES:
        for neighbours in ("all",) if quick else ("all", 1):
            say(f"ticks_by_nodes: {kind}, {nodes} nodes, neighbours {neighbours}")
            ticks, seconds, _ = ticks_to_target(nodes, rows, neighbours)
            smallest.setdefault((kind, neighbours), ticks)
            sent = None if ticks is None else ticks * (4 if neighbours == "all" else 1)
            table.add(
                kind, nodes, rows // nodes, str(neighbours), ticks or f"not reached in {MOST}", sent, seconds,
                ratio(ticks, smallest[kind, neighbours]),
            )  # fmt: skip
    notes = [
        f"Generated rows of CCAT's shape ({FEATURES:,} features, {PER_ROW} a row), lambda {LAM:g}, random 4-regular "
        f"graphs, PDMM at default settings, evaluated every {EVERY} ticks on the {EVALUATED} nodes farthest "
        "from the average; F* from below, by a dual bound.",
        "The second table counts batches of mail between workers, as between actors on Ray, in threads and on a few "
        "small rows: all neighbours in a tick, and one certificate.",
    ]
    tables = [table, mail_table(quick)]
    publish_tables("ticks_by_nodes", "Ticks to 1 % as a network grows", notes, tables, quick=quick)


if __name__ == "__main__":
    main()
