"""Attacks on privacy: rows from sites that learn exactly, a neighbour that only listens, and sites with a budget."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.common import Table, generated, problem_of, publish_tables, runtime_of, say
from benchmarks.gaps import Task, absent
from gadget_svm import build_network, load_dataset
from gadget_svm.algorithms import Pdmm
from gadget_svm.algorithms.private_gradient import PrivateGradientRun
from gadget_svm.attacks import (
    ExactSites,
    audit,
    best_guess,
    closeness,
    cosine,
    edge_estimate,
    extract_rows,
    replay,
    start_at_random,
    true_sums,
)
from gadget_svm.core.messages import Delivery
from gadget_svm.privacy import DifferentialPrivacy, epsilon_of

SITES = (10,), (25,), (100,), (20, 20), (20, 30, 25)
"""Rows of the sites that are attacked; several sites are each other's neighbours."""
STARTS = (0.0, 0.003, 0.01, 0.02, 0.03, 0.1)
SEEDS = (0, 1, 2, 3, 4)
TARGET, MOST_TICKS = 0.01, 500
EPSILONS, RUNS = (0.5, 1.0, 4.0), 100_000
GUESSED_ROWS, KNOWN_ROWS = 200, 5_000


def main(quick: bool = False) -> None:
    """Run every attack; a quick run has fewer sites, settings and repetitions, and generated rows."""
    missing = list[str]()
    try:
        d = load_dataset("adult", download=False)
        X, y, lam, data = d.X, np.asarray(d.y), float(d.lam or 1e-4), "Adult"
    except FileNotFoundError:
        missing.append("adult")
    if quick or missing:
        (X, y), lam, data = generated(4_000, 123, 14), 1e-4, "generated rows"
    task = Task(data, X, y, lam)
    tables = [
        _extraction(X, y, quick),
        _passive(task, quick),
        _replayed(task),
        _meaning(),
        _audits(quick),
        _private(X, y, quick),
    ]
    notes = [
        f"Rows are of {data}. Peers' learner and messages are those of `gadget peer`, without a wire. "
        "The attacker holds a certificate and sends nothing that a peer refuses.",
        *absent(missing),
    ]
    publish_tables("attacks", "Attacks on privacy", notes, tables, None, quick)


def _extraction(X: sp.csr_matrix, y: np.ndarray, quick: bool) -> Table:
    """Recover the rows of sites by pushes that their neighbour chooses."""
    table = Table(
        ["rows of the sites", "questions", "ticks", "seconds", "worst cosine", "rows recovered, %", "classes right, %"],
        name="extraction",
        title="Active extraction from sites that learn exactly (PDMM)",
    )
    for sizes in SITES[:2] if quick else SITES:
        say(f"attacks: extraction from {sizes}")
        own, label = _distinct(X, y, sum(sizes))
        bounds = np.cumsum((0, *sizes))
        shards = [(own[lo:hi], label[lo:hi]) for lo, hi in pairwise(bounds)]
        sites, started = ExactSites(shards), time.perf_counter()
        found = extract_rows(sites, X.shape[1], len(label))
        seconds = time.perf_counter() - started
        rows = own.toarray()
        cosines = (rows @ found.rows.T) / np.outer(np.linalg.norm(rows, axis=1), np.linalg.norm(found.rows, axis=1))
        right = found.y[cosines.argmax(axis=1)] == 2 * label - 1
        best = cosines.max(axis=1)
        table.add(" + ".join(map(str, sizes)), found.queries, sites.ticks, seconds, f"{best.min():.6f}",
                  100.0 * (best > 0.999).mean(), 100.0 * right.mean())  # fmt: skip
    return table


def _distinct(X: sp.csr_matrix, y: np.ndarray, count: int) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return rows that differ from each other: equal ones are recovered together."""
    chosen = np.random.default_rng(0).permutation(X.shape[0])[: 4 * count]
    _, first = np.unique(X[chosen].toarray(), axis=0, return_index=True)
    rows = chosen[np.sort(first)[:count]]
    return sp.csr_matrix(X[rows]), (y[rows] > 0).astype(np.int32)


def _passive(task: Task, quick: bool) -> Table:
    """Measure what a neighbour's last message tells of a site's own sum, and what a random start costs in ticks."""
    table = Table(
        ["graph", "neighbours a tick", "random start", "ticks to 1 %", "mean cosine", "largest cosine",
         "ratio of ticks to zero start"],
        name="passive", title="A passive neighbour's estimate of a site's sum, four sites",
    )  # fmt: skip
    problem = problem_of(task.X, task.y, 4)
    for topology in ("complete", "ring", "star")[: 1 if quick else 3]:
        for neighbours in (1, "all")[: 1 if quick else 2]:
            plain = 0.0
            for size in STARTS[::3] if quick else STARTS:
                say(f"attacks: passive, {topology}, {neighbours}, start {size}")
                runs = [_ticks_and_cosines(task, problem, topology, neighbours, size, seed) for seed in SEEDS]
                ticks = float(np.mean([run[0] for run in runs]))
                plain = plain or ticks
                cosines = np.array([run[1] for run in runs])
                table.add(topology, str(neighbours), size, ticks, cosines.mean(), cosines.max(), ticks / plain)
    return table


def _ticks_and_cosines(
    task: Task, problem: Any, topology: str, neighbours: Any, size: float, seed: int
) -> tuple[int, list[float]]:
    """Return the ticks until the worst site is within 1 % of the optimum, and every neighbour's |cosine| then."""
    network = build_network(topology, 4)
    runtime = runtime_of(problem, network, Pdmm(neighbours=neighbours).bind(network, task.lam, 1.0), seed)
    start_at_random(runtime, size, seed)
    while runtime.t < MOST_TICKS:
        runtime.advance(1)
        if task.gaps(runtime.models()[:, 0]).max() <= TARGET:
            break
    (block,), truth = runtime.blocks, true_sums(runtime.run, runtime.blocks[0])
    ends = zip(np.repeat(np.arange(4), np.diff(block.links.indptr)).tolist(), block.links.target.tolist(), strict=True)
    return runtime.t, [abs(cosine(edge_estimate(block, i, j), truth[i])) for i, j in ends]


def _replayed(task: Task) -> Table:
    """Measure what a neighbour of all sites learns that repeats how their edges change."""
    table = Table(
        ["random start", "cosine of the sum", "cosine of its change in 5 ticks", "change of the sum, relative"],
        name="replay", title="A passive neighbour of all sites, complete graph, fixed penalty, all neighbours a tick",
    )  # fmt: skip
    for size in (0.0, 0.03, 1.0):
        found, truth = _sums_by_tick(task, size)
        change, true_change = found[-1] - found[-6], truth[-1] - truth[-6]
        table.add(size, _mean_cosine(found[-1], truth[-1]), f"{_mean_cosine(change, true_change):.6f}",
                  np.linalg.norm(true_change) / np.linalg.norm(truth[-1]))  # fmt: skip
    return table


def _sums_by_tick(task: Task, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Return what node 0 works out of the others' sums after each of 40 ticks, and the truth."""
    rho, network, batches, truths = 0.1 * task.X.shape[0], build_network("complete", 4), [], []
    run = Pdmm(neighbours="all", penalty=rho).bind(network, task.lam, 1.0)

    def recording(messages: Any) -> Delivery:
        batches.append(messages._replace(vector=messages.vector.copy()))
        truths.append(true_sums(run, runtime.blocks[0]))
        return Delivery(messages)

    runtime = runtime_of(problem_of(task.X, task.y, 4), network, run, 0, exchange=recording)
    start_at_random(runtime, size)
    runtime.advance(40)
    found = replay(batches, 0, rho, run.theta, runtime.blocks[0].edge["n_lam"])
    return found[:, 1:], np.array(truths)[:, 1:]


def _mean_cosine(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.mean([cosine(*pair) for pair in zip(found, truth, strict=True)]))


@contextmanager
def _noise_times(part: float) -> Iterator[None]:
    """Scale the noise of private training, without telling the plan."""
    right = PrivateGradientRun.sensitivity
    PrivateGradientRun.sensitivity = lambda self, block: part * right(self, block)  # type: ignore[method-assign]
    try:
        yield
    finally:
        PrivateGradientRun.sensitivity = right  # type: ignore[method-assign]


def _meaning() -> Table:
    """Compute what budgets mean for a record of one row, and of five."""
    table = Table(
        ["epsilon", "delta", "best guess between two rows, right of 100", "epsilon of five rows",
         "best guess between two records of five rows"],
        name="meaning", title="What a budget means (computed)",
    )  # fmt: skip
    for epsilon in (0.1, 0.17, 0.5, 1.0, 2.0, 4.0, 10.0):
        privacy = DifferentialPrivacy(epsilon)
        table.add(epsilon, f"{privacy.delta:g}", 100.0 * best_guess(privacy), epsilon_of(5 * privacy.mu, privacy.delta),
                  100.0 * best_guess(privacy, 5))  # fmt: skip
    return table


def _audits(quick: bool) -> Table:
    """Bound what the private algorithm releases from below, with its noise and with half of it."""
    table = Table(
        ["claimed epsilon", "noise", "kind", "runs with each row", "proven epsilon", "ratio to the claim"],
        name="audit", title="Audit of the private algorithm: which of two rows does a site have?",
    )  # fmt: skip
    X = np.random.default_rng(0).normal(size=(30, 5))
    label = (X[:, 0] > 0).astype(int)
    cases = [(epsilon, part, "seeded") for epsilon in EPSILONS for part in (1.0, 0.5)] + [(1.0, 1.0, "secret")]
    for epsilon, part, noise in cases:
        say(f"attacks: audit of epsilon {epsilon}, noise {part}")
        runs = RUNS // (10 if quick or noise == "secret" else 1)
        with _noise_times(part):
            found = audit(X, label, DifferentialPrivacy(epsilon, noise=noise), runs=runs)
        table.add(found.claimed_epsilon, "as planned" if part == 1.0 else "half, untold",
                  noise, runs, found.epsilon,
                  found.epsilon / found.claimed_epsilon)  # fmt: skip
    return table


def _private(X: sp.csr_matrix, y: np.ndarray, quick: bool) -> Table:
    """Ask a private site of 200 rows for its rows, and compare the guesses with its rows and with fresh ones."""
    table = Table(
        ["epsilon", "guesses", "mean cosine to the nearest of the site's rows", "of fresh rows",
         "nearest row is the site's, %", "standard error, %", "permitted, %"],
        name="private", title=f"Extraction from a private site of {GUESSED_ROWS} rows",
    )  # fmt: skip
    for epsilon in (None, 1.0, 4.0, 10.0):
        say(f"attacks: extraction from a private site, epsilon {epsilon}")
        with _noise_times(0.0 if epsilon is None else 1.0):
            found = [_guessed(X, y, epsilon, seed) for seed in range(2 if quick else 20)]
        share = 100.0 * np.array([each.share for each in found])
        error = share.std(ddof=1) / len(found) ** 0.5
        table.add("no noise" if epsilon is None else epsilon, sum(each.guesses for each in found),
                  f"{np.mean([each.site for each in found]):.4f}", f"{np.mean([each.fresh for each in found]):.4f}",
                  share.mean(), error, None if epsilon is None else 100.0 * found[0].permitted)  # fmt: skip
    return table


def _guessed(X: sp.csr_matrix, y: np.ndarray, epsilon: float | None, seed: int) -> Any:
    """Attack a site of some rows; other rows serve as fresh ones, and as what the attacker knows."""
    rows = np.random.default_rng(seed).permutation(X.shape[0])[: 2 * GUESSED_ROWS + KNOWN_ROWS]
    own, fresh, known = (
        part.toarray() for part in (X[rows[:GUESSED_ROWS]], X[rows[GUESSED_ROWS : 2 * GUESSED_ROWS]],
                                    X[rows[2 * GUESSED_ROWS :]])
    )  # fmt: skip
    label = (y[rows[:GUESSED_ROWS]] > 0).astype(int)
    privacy = DifferentialPrivacy(1.0 if epsilon is None else epsilon, noise="seeded")
    return closeness(own, label, fresh, known, privacy, copies=1 if epsilon is None else 20, seed=seed)


if __name__ == "__main__":
    main()
