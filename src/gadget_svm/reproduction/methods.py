"""How each system of the paper runs in a trial: over the network, on every node's shard, or on all rows at once.

Every method returns a record with the same keys; tables and figures do not know which method made it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gadget_svm.algorithms import TwoPushSum, resolve
from gadget_svm.algorithms.mom_dsvm import lower_bound
from gadget_svm.core.messages import Exchange
from gadget_svm.core.types import Floats
from gadget_svm.estimator.fitting import make_blocks
from gadget_svm.kernels import ThreadTeam
from gadget_svm.kernels.vectors import distances
from gadget_svm.reproduction.baselines.base import Fit
from gadget_svm.reproduction.baselines.optimum import certified_optimum
from gadget_svm.reproduction.baselines.pegasos import authors_program, pegasos
from gadget_svm.reproduction.baselines.perf import svm_perf
from gadget_svm.reproduction.baselines.scikit_learn import liblinear, svm_sgd
from gadget_svm.reproduction.trials import Result, Trial
from gadget_svm.simulation.engine import LocalRuntime
from gadget_svm.simulation.stopping import geometric

FIRST_CHECK_ITERATION, CHECK_STRIDE = 20, 1.25
"""MoM-DSVM's gap is computed after FIRST_CHECK_ITERATION iterations, then whenever their number has grown by
CHECK_STRIDE."""


@dataclass(frozen=True)
class Budget:
    """How much work each method may do. It is part of the key of every stored result."""

    iterations: int = 10_000  # GADGET and Pegasos
    admm_iterations: int = 4000  # MoM-DSVM, at most
    epochs: int = 5  # SVM-SGD
    perf_seconds: float = 10.0  # SVM-Perf, per shard
    admm_gap: float = 0.01  # what MoM-DSVM promises: the worst node's duality gap, relative to the optimum


def run_network(
    trial: Trial, algorithm: Any, iterations: int, trace: bool = False, exchange: Exchange | None = None
) -> Result:
    """Run a gossiping network for a number of iterations. Seconds are the mean over nodes, on one core."""
    runtime = _runtime(trial, algorithm, exchange)
    spent, points = 0.0, list[Any]()
    while runtime.t < iterations - 1:
        goal = min(geometric(runtime.t, 1.4), iterations - 1) if trace else iterations - 1
        spent += _timed(runtime, goal - runtime.t)
        if trace:
            points.append([spent / trial.n_nodes, runtime.t, *trial.evaluate_all(runtime.models()[:, 0])])
    before = runtime.weights()
    spent += _timed(runtime, 1)
    epsilon = float(distances(runtime.weights(), before).max())
    return _network_record(trial, runtime, spent) | {"epsilon": epsilon, "trace": points}


def run_to_gap(trial: Trial, algorithm: Any, promise: float, max_iterations: int) -> Result:
    """Run MoM-DSVM until its own multipliers prove that every node's F is at most ``promise`` above F*, relative to F*.

    The gap is computed at geometric steps, outside the measured time. ``epsilon`` is the worst node's duality gap.
    """
    runtime, spent, bound, worst = _runtime(trial, algorithm), 0.0, 0.0, np.inf
    while worst - bound > promise * bound and runtime.t < max_iterations:
        goal = min(max(FIRST_CHECK_ITERATION, geometric(runtime.t, CHECK_STRIDE)), max_iterations)
        spent += _timed(runtime, goal - runtime.t)
        bound = max(bound, float(lower_bound(runtime.blocks, trial.lam)[0]))  # no F is negative
        worst = max(trial.objectives(runtime.models()[:, 0]))
    gap = (worst - bound) / bound if bound > 0 else np.inf
    return _network_record(trial, runtime, spent) | {
        "epsilon": worst - bound, "gap": gap, "promise": promise, "converged": [gap <= promise] * trial.n_nodes,
    }  # fmt: skip


def _runtime(trial: Trial, algorithm: Any, exchange: Exchange | None = None) -> LocalRuntime:
    """Make the runtime of a trial. Kernels are compiled, and no iteration is done."""
    chosen = resolve(algorithm)
    network = chosen.with_transition_of(trial.network)
    run = chosen.bind(network, trial.lam, trial.lam**-0.5, False, trial.shares.sizes)
    runtime = LocalRuntime(run, make_blocks(trial.problem, network, trial.seed, 1, ThreadTeam(1)), exchange)
    runtime.warm_up()
    return runtime


def _timed(runtime: LocalRuntime, count: int) -> float:
    started = time.perf_counter()
    runtime.advance(count)
    return time.perf_counter() - started


def _network_record(trial: Trial, runtime: LocalRuntime, spent: float) -> Result:
    live = runtime.live_row_weights() > 0
    models = runtime.models()[:, 0]
    average = models[live].mean(axis=0)
    farthest = float(np.linalg.norm(models[live] - average, axis=1).max())
    return _record(trial, models, runtime.weights()[:, 0], runtime.messages, runtime.nbytes) | {
        "seconds": [spent / trial.n_nodes] * trial.n_nodes, "iterations": [runtime.t] * trial.n_nodes,
        "disagreement": farthest / max(float(np.linalg.norm(average)), 1e-300), "live": np.flatnonzero(live).tolist(),
    }  # fmt: skip


def run_shards(trial: Trial, baseline: Callable[..., Fit], **options: Any) -> Result:
    """Run a baseline on every node's shard by itself, without communication, as in the paper's Table 3."""
    seeds = [trial.seed * 1000 + i for i in range(trial.n_nodes)]
    return _fits_record(trial, [baseline(*trial.shard(i), trial.lam, seed, **options) for i, seed in enumerate(seeds)])


def run_central(trial: Trial, baseline: Callable[..., Fit], **options: Any) -> Result:
    """Run a baseline on all rows in one place."""
    fit = baseline(trial.data.X, trial.data.y, trial.lam, trial.seed, **options)
    return _fits_record(trial, [fit]) | {"trace": fit.trace}


def _fits_record(trial: Trial, fits: list[Fit]) -> Result:
    models = np.array([fit.w for fit in fits])
    return _record(trial, models, models) | {
        "seconds": [fit.seconds for fit in fits], "iterations": [fit.iterations for fit in fits],
        "epsilon": max(fit.epsilon for fit in fits), "converged": [fit.converged for fit in fits],
    }  # fmt: skip


def _record(trial: Trial, models: Floats, last: Floats, messages: int = 0, nbytes: int = 0) -> Result:
    """Evaluate the answers and the last iterates: accuracies and objectives."""
    own, whole = trial.accuracies(models)
    own_last, whole_last = trial.accuracies(last)
    return {
        "own": own, "whole": whole, "objective": trial.objectives(models), "messages": messages, "bytes": nbytes,
        "own_last": own_last, "whole_last": whole_last, "objective_last": trial.objectives(last),
    }  # fmt: skip


def run_optimum(trial: Trial, gap: float) -> Result:
    """Compute the certified optimum of the pooled problem: no w has an F below ``bound``."""
    best = certified_optimum(trial.data.X, trial.data.y, trial.lam, gap)
    return {"objective": best.objective, "bound": best.bound, "gap": best.gap, "seconds": best.seconds}


METHODS: dict[str, Callable[[Trial, Budget], Result]] = {
    "gadget-as-printed": lambda trial, b: run_network(trial, "gadget-as-printed", b.iterations),
    "gadget": lambda trial, b: run_network(trial, "gadget", b.iterations),
    "gadget-trace": lambda trial, b: run_network(trial, "gadget", b.iterations, trace=True),
    "gadget-2ps": lambda trial, b: run_network(trial, TwoPushSum(gossip_rounds=3), max(2, b.iterations // 5)),
    "mom-dsvm": lambda trial, b: run_to_gap(trial, "mom-dsvm", b.admm_gap, b.admm_iterations),
    "pegasos": lambda trial, b: run_central(trial, pegasos, iterations=b.iterations),
    "pegasos-trace": lambda trial, b: run_central(trial, pegasos, iterations=b.iterations, evaluate=trial.evaluate_all),
    "pegasos-equal": lambda trial, b: run_central(trial, pegasos, iterations=b.iterations * trial.n_nodes),
    "pegasos-last": lambda trial, b: run_central(trial, pegasos, iterations=b.iterations, average=False),
    "svm-perf-all": lambda trial, b: run_central(trial, svm_perf, max_seconds=20 * b.perf_seconds),
    "optimum": lambda trial, b: run_optimum(trial, 1e-4 if b.perf_seconds >= 1 else 1e-2),
    "liblinear": lambda trial, _: run_central(trial, liblinear),
    "local-only": lambda trial, b: run_shards(trial, pegasos, iterations=b.iterations),
    "svm-perf": lambda trial, b: run_shards(trial, svm_perf, max_seconds=b.perf_seconds),
    "svm-sgd": lambda trial, b: run_shards(trial, svm_sgd, epochs=b.epochs),
    "authors-program": lambda trial, _: run_shards(trial, authors_program),
    "loading": lambda trial, _: trial.loading_seconds(),
}
"""The methods that are run for the rows of tables and the lines of figures, by name. "gadget" has persistent mass."""
