"""Seconds a round on Ray against the simulator in the same run: the same nodes, rows and bits, on 1, 2 and 4 actors."""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Table, generated, publish_tables, ratio, runtime_of, say
from gadget_svm.algorithms import Gadget, Pdmm
from gadget_svm.cluster import actor, connection, options
from gadget_svm.cluster import driver as engine
from gadget_svm.estimator.fitting import gathered
from gadget_svm.estimator.problem import Problem, share_rows
from gadget_svm.topologies import build

LAM, GRAPH, ROWS = 1e-4, "random-regular:4", 5
BOTH = {"gadget": Gadget(), "pdmm": Pdmm()}
LEAN = {"gadget (mass restarted)": Gadget(mass="restarted", average=False)}
"""One round of Push-Sum, restarted in every iteration, and the last iterate: two vectors a node, not four."""
SIZES = (
    (100, 123, 14, BOTH), (10_000, 123, 14, BOTH), (100, 47_236, 76, BOTH), (1_000, 47_236, 76, BOTH | LEAN),
    (10_000, 47_236, 76, LEAN),
)  # fmt: skip
QUICK = ((20, 123, 14, BOTH | LEAN),)
STORE = 5 * 2**30
"""Bytes of Ray's object store: all mail between actors of one round, or all weights, of the largest size."""
SECONDS = 2.0


def pace(advance: Any, seconds: float) -> float:
    """Seconds a round: the median of five turns of about the same length, after one to warm up."""
    advance(1)
    started = time.perf_counter()
    advance(2)
    count = max(1, int(seconds / 5 * 2 / (time.perf_counter() - started)))
    found = []
    for _ in range(5):
        started = time.perf_counter()
        advance(count)
        found.append((time.perf_counter() - started) / count)
    return float(np.median(found))


def problem_of(nodes: int, features: int, per_row: int) -> Problem:
    """Some rows a node, dealt evenly."""
    X, y = generated(ROWS * nodes, features, per_row)
    label = (y > 0).astype(np.int32)
    shares, names = share_rows(X, label, nodes, 0, None, None)
    return Problem(X, label, None, shares, names, 1)


def crossing(network: Any, bounds: np.ndarray) -> float:
    """The part of all edges whose ends are with two actors."""
    owner = np.searchsorted(bounds, np.arange(network.n), side="right") - 1
    return float((owner[network.sources] != owner[network.indices]).mean()) if network.n_edges else 0.0


def on_ray(
    problem: Problem, network: Any, run: Any, actors: int, seconds: float, weights: np.ndarray
) -> tuple[float, float]:
    """Seconds a round and the part of the mail that leaves its actor; ``weights`` are those after three rounds."""
    cluster = connection.Cluster(options.RayOptions(actors=actors, num_cpus=0.5))
    runtime = engine.RayRuntime(cluster, network.n, lambda *pair: actor.Given(gathered(problem.rows, *pair)))
    bounds = runtime.bounds
    try:
        shape = (1, problem.X.shape[1])
        runtime.begin(run, network, 0, problem.shares.sizes, shape, None)
        runtime.advance(3)
        for index, part in runtime.pool.ask_all("values", "weights").items():
            if not np.array_equal(weights[bounds[index] : bounds[index + 1]], part):
                raise RuntimeError("the actors' weights are not the simulator's")
            del part
        return pace(runtime.advance, seconds), crossing(network, bounds)
    finally:
        runtime.close()


def here(problem: Problem, network: Any, run: Any, seconds: float, file: Path) -> tuple[float, float, np.ndarray]:
    """The simulator on the same: seconds a round, megabytes of mail a round, and the weights, which stay on disk."""
    runtime = runtime_of(problem, network, run)
    runtime.warm_up()
    runtime.advance(3)
    np.save(file, runtime.weights())
    weights = np.load(file, mmap_mode="r")
    took = pace(runtime.advance, seconds)
    runtime.close()
    return took, runtime.nbytes / runtime.t / 1e6, weights


def main(quick: bool = False) -> None:
    """Every size on one Ray of our own."""
    table = Table(
        ("algorithm", "nodes", "features", "actors", "mail a round, MB", "between actors, MB", "local, ms a round",
         "Ray, ms a round", "Ray / local")
    )  # fmt: skip
    sizes, numbers, seconds = (QUICK, (1, 2), 0.3) if quick else (SIZES, (1, 2, 4), SECONDS)
    started = time.perf_counter()
    cluster = connection.Cluster(options.RayOptions(actors=max(numbers), object_store_memory=2**28 if quick else STORE))
    start = time.perf_counter() - started
    folder = tempfile.TemporaryDirectory()
    try:
        for nodes, features, per_row, algorithms in sizes:
            problem = problem_of(nodes, features, per_row)
            for name, algorithm in algorithms.items():
                network = algorithm.with_transition_of(build(GRAPH, nodes, seed=0))
                run = algorithm.bind(network, LAM, LAM**-0.5, sizes=problem.shares.sizes)
                say(f"ray_rounds: {name}, {nodes:,} nodes, {features:,} features")
                local, megabytes, weights = here(problem, network, run, seconds, Path(folder.name) / "weights.npy")
                for actors in numbers:
                    took, apart = on_ray(problem, network, run, actors, seconds, weights)
                    table.add(
                        name, nodes, features, actors, megabytes, megabytes * apart, 1e3 * local, 1e3 * took,
                        ratio(took, local),
                    )  # fmt: skip
    finally:
        cluster.close()
        folder.cleanup()
    notes = [
        f"Graph {GRAPH}, {ROWS} rows a node, half a CPU reserved and one thread an actor, the simulator with all "
        f"threads; medians of five turns of {seconds / 5:.2g} s. Weights were compared bit for bit. Starting Ray took "
        f"{start:.1f} s, once.",
        "Restarted Push-Sum has one round in every iteration, and the last iterate is the answer: two vectors a node. "
        "For 10,000 nodes of 47,236 features a vector each is 3.8 GB; GADGET by default keeps four, PDMM on this graph "
        "five, and a round's mail is one more: too much for this machine, so only that is measured there.",
        "What Ray adds: a call into every actor and back for each batch of rounds, and in each round one message from "
        "every actor to every other that has a neighbour with it, which 100 nodes of 123 features show by themselves; "
        "the vectors between actors are copied into the message and out of it. One actor sends nothing and runs fused "
        "iterations, as the simulator does: what is left is the call, and that it has one thread where the simulator "
        "has all. All actors of this table share one machine, so more of them do not bring more cores than the "
        "simulator's threads have.",
    ]
    publish_tables("ray_rounds", "Rounds on Ray beside the simulator", notes, [table], quick=quick)


if __name__ == "__main__":
    main()
