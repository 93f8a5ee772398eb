"""Solvers that have all rows in one place, each tried with every setting of a stated sweep.

Owns the sweeps and what is optional: liblinear-official and snapml are used where they are installed.
"""

import importlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from sklearn.svm import LinearSVC

from benchmarks.common import quickest

Solve = Callable[[Any, np.ndarray, float], np.ndarray]
TOLS = tuple(10.0 ** (-k / 3) for k in range(-1, 19))
PASSES = (1, 2, 3, 4, 5, 7, 10, 14, 20, 28, 40, 57, 80, 113, 160, 226, 320, 640, 1280, 2560)
EPOCHS = (1, 2, 5, 10, 20, 50, 100)
RATES = (("optimal", 0.0), ("constant", 0.01), ("constant", 0.1), ("invscaling", 0.1), ("invscaling", 1.0))


class Try(NamedTuple):
    """A setting by name, and the solver with it."""

    setting: str
    solve: Solve


@dataclass(frozen=True)
class Peer:
    """A solver and its sweep: chains of settings, each dearer and more exact than the one before."""

    name: str
    chains: Callable[[], Iterator[Sequence[Try]]]
    sweep: str


class Best(NamedTuple):
    """The quickest setting that reached a gap."""

    setting: str
    wall: float
    cpu: float


def best_settings(
    peer: Peer, X: Any, y: np.ndarray, lam: float, gap: Callable[[np.ndarray], float], targets: Sequence[float],
    most_seconds: float, repeats: int = 3,
) -> dict[float, Best]:  # fmt: skip
    """For every target gap the quickest setting that reaches it, timed again; a chain ends at ``most_seconds``."""
    found: dict[float, tuple[float, Try]] = {}
    _warm_up(peer, X, y, lam)
    for chain in peer.chains():
        for attempt in chain:
            w, wall, _ = clocked(attempt.solve, X, y, lam)
            reached = gap(w)
            for target in targets:
                if reached <= target and (target not in found or wall < found[target][0]):
                    found[target] = wall, attempt
            if reached <= min(targets) or wall > most_seconds:
                break
    best = {}
    for target, (_, attempt) in found.items():
        wall, cpu = quickest(lambda solve=attempt.solve: clocked(solve, X, y, lam)[1:], repeats)
        best[target] = Best(attempt.setting, wall, cpu)
    # What reaches a narrower gap reaches a wider one too, and may prove the quicker when timed again.
    return {target: min((best[t] for t in best if t <= target), key=lambda one: one.wall) for target in best}


def _warm_up(peer: Peer, X: Any, y: np.ndarray, lam: float) -> None:
    """On some rows of every class: what is loaded or compiled on first use is not counted."""
    rows = np.sort(np.concatenate([np.flatnonzero(y == label)[:50] for label in np.unique(y)]))
    clocked(next(peer.chains())[0].solve, X[rows], y[rows], lam)


def clocked(solve: Solve, X: Any, y: np.ndarray, lam: float) -> tuple[np.ndarray, float, float]:
    """The model, and the wall and CPU seconds it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        w = solve(X, y, lam)
    return np.asarray(w, dtype=np.float64).ravel(), time.perf_counter() - wall, time.process_time() - cpu


def _linear_svc(tol: float, passes: int) -> Solve:
    return lambda X, y, lam: LinearSVC(
        loss="hinge", C=1 / (lam * len(y)), fit_intercept=False, tol=tol, max_iter=passes, random_state=0
    ).fit(X, y).coef_  # fmt: skip


def _linear_chains() -> Iterator[Sequence[Try]]:
    yield [Try(f"tol={tol:.2g}", _linear_svc(tol, 100_000)) for tol in TOLS]
    yield [Try(f"max_iter={passes}", _linear_svc(1e-10, passes)) for passes in PASSES]


def _sgd(rate: str, eta0: float, average: bool, epochs: int) -> Solve:
    start = {"eta0": eta0} if eta0 else {}
    return lambda X, y, lam: SGDClassifier(
        alpha=lam, fit_intercept=False, learning_rate=rate, average=average, max_iter=epochs, tol=None, random_state=0,
        **start,
    ).fit(X, y).coef_  # fmt: skip


def _sgd_chains() -> Iterator[Sequence[Try]]:
    for rate, eta0 in RATES:
        for average in (False, True):
            words = f"{rate}{f' {eta0:g}' if eta0 else ''}{', averaged' if average else ''}"
            yield [Try(f"{words}, {epochs} epochs", _sgd(rate, eta0, average, epochs)) for epochs in EPOCHS]


def _official(tol: float) -> Solve:
    def solve(X: Any, y: np.ndarray, lam: float) -> np.ndarray:
        from liblinear.liblinearutil import parameter, problem, train

        model = train(problem(y, X), parameter(f"-s 3 -c {1 / (lam * len(y))!r} -e {tol!r} -q"))
        w = np.ctypeslib.as_array(model.w, (model.nr_feature,)).copy()
        return w if model.get_labels()[0] > 0 else -w

    return solve


def _official_chains() -> Iterator[Sequence[Try]]:
    yield [Try(f"-e {tol:.2g}", _official(tol)) for tol in TOLS]


def _snapml(tol: float, jobs: int) -> Solve:
    def solve(X: Any, y: np.ndarray, lam: float) -> np.ndarray:
        from snapml import SupportVectorMachine

        model = SupportVectorMachine(
            max_iter=1000, tol=tol, regularizer=lam * len(y), fit_intercept=False, n_jobs=jobs, random_state=0
        )
        return np.asarray(model.fit(X, y).coef_)

    return solve


def _snapml_chains() -> Iterator[Sequence[Try]]:
    for jobs in (1, 2):
        yield [Try(f"tol={tol:.2g}, n_jobs={jobs}", _snapml(tol, jobs)) for tol in TOLS[::2]]


LINEAR = Peer("LinearSVC", _linear_chains, f"tol from {TOLS[0]:.2g} to {TOLS[-1]:.2g}; max_iter from 1 to {PASSES[-1]}")
SGD = Peer("SGDClassifier", _sgd_chains, "five learning rates, with averaging and without, 1 to 100 epochs")
OFFICIAL = Peer(
    "liblinear-official",
    _official_chains,
    f"-e from {TOLS[0]:.2g} to {TOLS[-1]:.2g}; how many passes it makes at most is its own affair",
)
SNAPML = Peer("snapml", _snapml_chains, "tol alike, one thread and two")
OPTIONAL = {"liblinear.liblinearutil": OFFICIAL, "snapml": SNAPML}


def peers() -> tuple[list[Peer], list[str]]:
    """Those that can be run here, and the names of those that are not installed."""
    here = [peer for module, peer in OPTIONAL.items() if _imports(module)]
    return [LINEAR, SGD, *here], [peer.name for peer in OPTIONAL.values() if peer not in here]


def _imports(module: str) -> bool:
    try:
        importlib.import_module(module)  # now, so that no clock counts it
    except ImportError:
        return False
    return True
