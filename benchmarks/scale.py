"""Ten to a million nodes: Push-Sum on numbers and on vectors of 16, and GADGET with one row per node.

An exchange is one message of the randomised form: half of a node's mass, to one of its 20 neighbours.
"""

import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from benchmarks.common import Table, publish_tables, ratio, say, style
from benchmarks.fresh import in_fresh_process, status
from gadget_svm import Gadget, GadgetSVC, average, build_network
from gadget_svm.gossip import PushSum

GRAPH = "k-out:20"
SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
QUICK = (100, 1_000, 10_000)
TOL = 1e-6  # all nodes agree: no estimate is off by more than this part of the mean
FEATURES = 16
LAM, ROUNDS, ITERATIONS, TEST = 1e-3, 5, 60, 20_000
PEERSIM = {10_000: 1.1e6, 100_000: 2.3e6, 1_000_000: 1.75e6}  # exchanges/s of its Push-Sum, measured apart, Nov. 2026


def main(quick: bool = False) -> None:
    """Measure all sizes, each in a fresh process with compiled kernels."""
    _compile()
    average_table = _averaging(QUICK if quick else SIZES)
    gadget_table = _gadget(QUICK[1:2] if quick else SIZES)
    fits = [_fit(average_table, kind) for kind in KINDS]
    notes = [
        f"Random 20-out graph, threads on every core. An exchange is one message. Consensus: every node's estimate "
        f"within {TOL:g} of the mean, relatively (rounds found by bisection). Memory is the peak above the imports, "
        "graph included, each size in a fresh process. `numpy` is the same round in plain numpy and scipy, in the same "
        "process; PeerSim was measured apart on a machine like this one (November 2026).",
        "",
        *[f"Rounds to consensus, {kind}: {a:.1f} + {b:.2f} ln n (R^2 = {r2:.3f})." for kind, a, b, r2 in fits],
    ]
    publish_tables(
        "scale", "From ten nodes to a million", notes, [average_table, gadget_table],
        lambda figure: _draw(figure, average_table, fits), quick,
    )  # fmt: skip


KINDS = {"scalar": 1, "16 features": FEATURES}


def _averaging(sizes: tuple[int, ...]) -> Table:
    table = Table(
        ["what", "nodes", "rounds to consensus", "ms a round", "million exchanges/s", "graph, s", "memory, MiB",
         "PeerSim, million/s", "ratio to PeerSim", "numpy, million/s", "ratio to numpy"],
        title="Push-Sum",
    )  # fmt: skip
    for kind, features in KINDS.items():
        for nodes in sizes:
            say(f"scale: Push-Sum, {kind}, {nodes:,} nodes")
            got = in_fresh_process("benchmarks.scale:push_sum", nodes=nodes, features=features)
            pace, peer = nodes * got["rounds"] / got["seconds"], PEERSIM.get(nodes) if features == 1 else None
            table.add(
                kind, nodes, got["rounds"], 1e3 * got["seconds"] / got["rounds"], pace / 1e6, got["graph"],
                got["used"] / 2**20, peer and peer / 1e6, ratio(pace, peer), got["numpy"] / 1e6,
                ratio(pace, got["numpy"]),
            )  # fmt: skip
    return table


def push_sum(nodes: int, features: int) -> dict[str, Any]:
    """One size, in its own process."""
    started = time.perf_counter()
    network = build_network(GRAPH, nodes)
    graph = time.perf_counter() - started
    values = np.random.default_rng(0).random(nodes if features == 1 else (nodes, features))
    mean = values.mean(axis=0)

    def error(rounds: int) -> float:
        return float(np.abs(average(values, network, PushSum(), rounds) / mean - 1).max())

    rounds, seconds = rounds_to(error, TOL), np.inf
    for _ in range(3):
        started = time.perf_counter()
        average(values, network, PushSum(), rounds)
        seconds = min(seconds, time.perf_counter() - started)
    peak = status("VmHWM")
    return {
        "rounds": rounds, "seconds": seconds, "graph": graph, "peak": peak, "numpy": _numpy_pace(network, values),
    }  # fmt: skip


def rounds_to(error: Any, tol: float) -> int:
    """The fewest rounds with at most this error, by doubling and bisection: errors fall nearly evenly."""
    low, high = 0, 8
    while error(high) > tol:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if error(middle) <= tol else (middle, high)
    return high


def _numpy_pace(network: Any, values: np.ndarray) -> float:
    """Exchanges a second of whole-array rounds: what one would write without this library."""
    n, rng = network.n, np.random.default_rng(0)
    s, phi, degree = values.copy(), np.ones(n), network.degree[0]
    rounds, started = 0, time.perf_counter()
    while rounds < 3 or time.perf_counter() - started < 0.3:
        to = network.indices[np.arange(n) * degree + rng.integers(0, degree, n)]
        s *= 0.5
        phi *= 0.5
        phi += np.bincount(to, phi, n)
        if s.ndim == 1:
            s += np.bincount(to, s, n)
        else:
            s += sp.csr_array((np.ones(n), to, np.arange(n + 1)), shape=(n, n)).T @ s
        rounds += 1
    return rounds * n / (time.perf_counter() - started)


def _gadget(sizes: tuple[int, ...]) -> Table:
    table = Table(
        ["nodes", "s an iteration", "million exchanges/s", "memory, MiB", "pooled LinearSVC, %",
         "network's model, %", "mean node, %", "worst node, %", "mean node below pooled, points",
         "training, s", "LinearSVC, s", "ratio to LinearSVC's time"],
        name="gadget", title="GADGET, one row per node",
    )  # fmt: skip
    for nodes in sizes:
        say(f"scale: GADGET, {nodes:,} nodes of one row")
        got = in_fresh_process("benchmarks.scale:gadget", nodes=nodes)
        pooled, network, mean, worst = (100 * got[key] for key in ("pooled", "network", "mean", "worst"))
        table.add(
            nodes, got["seconds"] / ITERATIONS, got["messages"] / got["seconds"] / 1e6, got["used"] / 2**20,
            pooled, network, mean, worst, pooled - mean, got["seconds"], got["linear_seconds"],
            ratio(got["seconds"], got["linear_seconds"]),
        )  # fmt: skip
    return table


def gadget(nodes: int) -> dict[str, Any]:
    """One size, in its own process: every node has one row, and is tested on rows of no node."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    X, y = rows(nodes, 0)
    model = GadgetSVC(
        n_nodes=nodes, topology=GRAPH, lam=LAM, algorithm=Gadget(solver="implicit", gossip_rounds=ROUNDS),
        fit_intercept=False, max_iter=ITERATIONS, stopping=None, record_every=0, random_state=0,
    ).fit(X, y)  # fmt: skip
    peak = status("VmHWM")
    X_test, y_test = rows(TEST, 1)
    right = np.concatenate(
        [((X_test[:2000] @ W.T > 0) == (y_test[:2000, None] > 0)).mean(axis=0) for W in _parts(model.node_coef_)]
    )
    started = time.perf_counter()
    pooled = LinearSVC(loss="hinge", C=1 / (LAM * nodes), fit_intercept=False, random_state=0).fit(X, y)
    return {
        "seconds": model.history_[-1]["seconds"], "messages": model.history_[-1]["messages"], "peak": peak,
        "network": model.score(X_test, y_test), "mean": float(right.mean()), "worst": float(right.min()),
        "linear_seconds": time.perf_counter() - started, "pooled": pooled.score(X_test, y_test),
    }  # fmt: skip


def rows(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal rows about as long as one, labels by one plane for all seeds, with noise; both classes are there."""
    plane = np.random.default_rng(99).normal(size=FEATURES)
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, FEATURES)) / np.sqrt(FEATURES)
    y = np.where(X @ plane + 0.3 * rng.normal(size=count) > 0, 1, -1)
    y[:2] = 1, -1
    return X, y


def _parts(models: np.ndarray) -> list[np.ndarray]:
    flat = models.reshape(len(models), -1)
    return [flat[i : i + 5000] for i in range(0, len(flat), 5000)]


def _compile() -> None:
    """Compile every kernel to disk before a measured process needs it."""
    say("scale: compiling")
    X, y = rows(20_000, 0)
    network = build_network("k-out:20", len(X))
    for values in (X[:, :5], X):  # one large enough for threads, and both for one
        average(np.tile(values, 2), network, PushSum(), 2)
    average(X[:100], build_network("k-out:20", 100), PushSum(), 2)
    for count in (100, len(X)):
        GadgetSVC(
            n_nodes=count, topology=GRAPH, algorithm=Gadget(solver="implicit", gossip_rounds=2), fit_intercept=False,
            max_iter=2, stopping=None, record_every=0, random_state=0,
        ).fit(X[:count], y[:count])  # fmt: skip


def _fit(table: Table, kind: str) -> tuple[str, float, float, float]:
    """Rounds = a + b ln n by least squares, and how much of their variance it explains."""
    mine = [row for row in zip(table.column("what"), table.column("nodes"), table.column("rounds to consensus"),
                               strict=True) if row[0] == kind]  # fmt: skip
    logs, rounds = np.log([row[1] for row in mine]), np.array([float(row[2]) for row in mine])
    b, a = np.polyfit(logs, rounds, 1)
    spread = ((rounds - rounds.mean()) ** 2).sum()
    return kind, float(a), float(b), float(1 - ((rounds - a - b * logs) ** 2).sum() / spread)


def _draw(figure: Any, table: Table, fits: list[tuple[str, float, float, float]]) -> None:
    pace, rounds, memory = figure.subplots(1, 3)
    what = table.column("what")
    for (kind, a, b, _), colour in zip(fits, ("tab:blue", "tab:orange"), strict=True):
        mine = [i for i, name in enumerate(what) if name == kind]
        n = np.array([table.column("nodes")[i] for i in mine])
        for axis, column, marks in (
            (pace, "million exchanges/s", "o-"), (rounds, "rounds to consensus", "o"), (memory, "memory, MiB", "o-"),
        ):  # fmt: skip
            axis.plot(n, [table.column(column)[i] for i in mine], marks, color=colour, label=kind)
        pace.plot(n, [table.column("numpy, million/s")[i] for i in mine], ":", color=colour, label=f"{kind}, numpy")
        rounds.plot(n, a + b * np.log(n), "--", color=colour, label=f"{a:.0f} + {b:.1f} ln n")
    pace.plot(list(PEERSIM), [value / 1e6 for value in PEERSIM.values()], "ks", label="PeerSim, scalar (apart)")
    for axis, name in ((pace, "million exchanges/s"), (rounds, f"rounds to {TOL:g}"), (memory, "MiB above imports")):
        style(axis, xscale="log", xlabel="nodes", ylabel=name)
    pace.set_yscale("log")
    memory.set_yscale("log")


if __name__ == "__main__":
    main()
