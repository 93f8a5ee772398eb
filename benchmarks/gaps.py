"""Gaps of models to the optimum: the problems, their certified optima, and runs that are evaluated on the way.

The gap of a model is F(w)/F* - 1 with F* a lower bound proven by a dual feasible point, so it is never too small.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.common import generated, problem_of, quickest, runtime_of, say, seconds_of
from gadget_svm import build_network, load_dataset
from gadget_svm.algorithms import resolve
from gadget_svm.estimator.problem import Problem
from gadget_svm.kernels import ThreadTeam
from gadget_svm.reproduction.baselines.optimum import certified_optimum
from gadget_svm.simulation.engine import LocalRuntime

SETS = ("adult", "reuters", "ccat", "usps", "mnist")
NODES = 10
CERTIFIED = 1e-4
"""No optimum is used whose duality gap is wider, relatively."""
CACHE = Path(__file__).parent / ".cache"


@dataclass(frozen=True, eq=False)
class Task:
    """One data set dealt out to ten nodes of a random 4-regular graph; no bias."""

    name: str
    X: sp.csr_matrix
    y: np.ndarray
    lam: float
    bound: float | None = None  # F* from below, where it is known already

    @cached_property
    def problem(self) -> Problem:
        """The problem of ten nodes."""
        return problem_of(self.X, self.y, NODES)

    @cached_property
    def narrow(self) -> tuple[Problem, np.ndarray]:
        """The problem without the features that no row has, for algorithms that do not need them: as in `fit`."""
        return self.problem.occurring()

    @cached_property
    def optimum(self) -> float:
        """F*, from below."""
        return self.bound if self.bound is not None else certified(self.X, self.y, self.lam, self.name)

    def gaps(self, models: np.ndarray) -> np.ndarray:
        """The gap of every model (m x features, or those features that occur)."""
        if models.shape[1] < self.X.shape[1]:
            wide = np.zeros((len(models), self.X.shape[1]))
            wide[:, self.narrow[1]] = models
            models = wide
        values = self._objective(np.ascontiguousarray(models).reshape(len(models), 1, -1)).objective
        return np.asarray(values / self.optimum - 1)

    @cached_property
    def _objective(self) -> Any:
        return self.problem.objective(self.lam, ThreadTeam.of(None))

    def runtime(self, algorithm: Any) -> LocalRuntime:
        """Nodes at their start, on every core, with all kernels compiled."""
        network = build_network("random-regular", NODES)
        chosen = resolve(algorithm)
        network = chosen.with_transition_of(network)
        run = chosen.bind(network, self.lam, self.lam**-0.5, False, self.problem.shares.sizes)
        problem = self.narrow[0] if chosen.omits_unused_columns else self.problem
        runtime = runtime_of(problem, network, run)
        runtime.omitted_columns = self.X.shape[1] - problem.X.shape[1]
        runtime.warm_up()
        return runtime


def tasks(quick: bool, missing: list[str]) -> Iterator[Task]:
    """Yield the paper's data sets; names of those not on this machine go to ``missing``. Quick ones are generated."""
    if quick:
        yield Task("generated, narrow", *generated(5_000, 123, 14), 1e-4)
        yield Task("generated, wide", *generated(3_000, 8_000, 40), 1e-4)
        return
    for name in SETS:
        try:
            d = load_dataset(name, download=False)
        except FileNotFoundError:
            missing.append(name)
        else:
            yield Task(name, d.X, d.y, float(d.lam))


def certified(X: sp.csr_matrix, y: np.ndarray, lam: float, name: str) -> float:
    """Return a lower bound of F* that is tight to `CERTIFIED`; it is cached on disk by a digest of the rows."""
    key = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in (X.data, X.indices, X.indptr, y)))
    file = CACHE / f"{key.hexdigest()[:16]}-{lam:g}.npz"
    if file.exists():
        with np.load(file) as kept:
            return float(kept["bound"])
    say(f"certifying the optimum of {name}")
    found = certified_optimum(X, y, lam, CERTIFIED / 10, max_seconds=300)
    if found.objective - found.bound > CERTIFIED * found.bound:
        raise RuntimeError(f"{name}: the duality gap is {found.objective / found.bound - 1:.2g} after 300 s")
    CACHE.mkdir(exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n")
    np.savez(file, bound=found.bound, objective=found.objective)
    return float(found.bound)


@dataclass
class Curve:
    """The worst node's gap over the ticks, and what each node has sent by then."""

    ticks: list[int] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    messages: list[float] = field(default_factory=list)
    nbytes: list[float] = field(default_factory=list)

    def first(self, target: float) -> int | None:
        """Return the first place at which the gap is at most ``target``."""
        return next((i for i, gap in enumerate(self.gaps) if gap <= target), None)


def watched(task: Task, algorithm: Any, until: float, most_ticks: int, most_seconds: float) -> Curve:
    """Evaluate a run after every tick at first, then after every 4 % more, until the worst node's gap is small."""
    runtime, curve, started = task.runtime(algorithm), Curve(), time.perf_counter()
    while runtime.t < most_ticks and time.perf_counter() - started < most_seconds:
        runtime.advance(min(max(1, runtime.t // 25), most_ticks - runtime.t))
        curve.ticks.append(runtime.t)
        curve.gaps.append(float(task.gaps(runtime.models()[:, 0]).max()))
        curve.messages.append(runtime.messages / NODES)
        curve.nbytes.append(runtime.nbytes / NODES)
        if curve.gaps[-1] <= until:
            break
    runtime.close()
    return curve


def timed(task: Task, algorithm: Any, ticks: int, repeats: int = 3) -> tuple[float, float]:
    """Return wall and CPU seconds of so many ticks of all nodes, without evaluation; the quickest of some runs."""

    def run() -> tuple[float, float]:
        runtime = task.runtime(algorithm)
        took = seconds_of(runtime.advance, ticks)
        runtime.close()
        return took

    return quickest(run, repeats)


def percent(target: float) -> str:
    """0.001 is 0.1 %."""
    return f"{100 * target:.3g} %"


def absent(names: Sequence[str]) -> list[str]:
    """Return a note about data sets that are not on this machine."""
    return [f"Not on this machine, so left out: {', '.join(names)}."] if names else []
