"""Trains models for a problem and a plan: binds the algorithm, makes the runtime, trains and collects the result."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gadget_svm.algorithms import Algorithm, Run
from gadget_svm.core.block import Block
from gadget_svm.core.network import Network
from gadget_svm.core.rows import Rows
from gadget_svm.core.types import Floats, Ints
from gadget_svm.estimator.advice import warn
from gadget_svm.estimator.problem import Problem
from gadget_svm.faults import ActiveEdges, Fault, FaultContext, wrap_all
from gadget_svm.kernels import ThreadTeam
from gadget_svm.simulation.engine import UNCERTIFIABLE, LocalRuntime
from gadget_svm.simulation.runtime import Layout, Observer, Runtime
from gadget_svm.simulation.stopping import StoppingRule
from gadget_svm.simulation.trainer import Outcome, Schedule, add_events, certified, network_mean, train

if TYPE_CHECKING:
    from gadget_svm.cluster.driver import RayRuntime
    from gadget_svm.estimator.remote_fit import RemoteProblem

TrainingProblem: TypeAlias = "Problem | RemoteProblem"
"""Both kinds have rows (here, or in the actors of ``runtime``), shares, a width, an objective and ``occurring``."""


@dataclass
class NodeState:
    """The state of all nodes between two calls of `partial_fit`."""

    n: Floats  # the rows every node has seen: its weight in the network average
    w: Floats
    w_sum: Floats
    iterates: Ints
    steps: Ints
    exchanges: int
    t: int
    messages: int
    nbytes: int


@dataclass
class Plan:
    """Everything that a fit needs besides the rows, with every parameter resolved."""

    algorithm: Algorithm
    network: Network
    lam: float
    seed: int
    rule: StoppingRule | None
    schedule: Schedule
    observers: Sequence[Observer] = ()
    faults: Sequence[Fault] = ()
    n_jobs: int | None = None
    engine: str = "local"
    engine_options: dict[str, Any] = field(default_factory=dict)
    sites: Sequence[Hashable] = ()
    """The nodes' labels, for observers."""

    @property
    def lossy(self) -> bool:
        """Whether messages may be lost."""
        return any(fault.loses for fault in self.faults)

    @property
    def certified_lam(self) -> float | None:
        """The problem's lam, if models are to be certified."""
        return self.lam if self.rule is not None and self.rule.certifies else None


@dataclass
class Fitted:
    """The result of a training."""

    models: Floats  # nodes x outputs x features
    last: Floats  # the last iterates, where the models are averages
    mean: Floats  # the network average, outputs x features
    outcome: Outcome
    gossip_name: str
    state: NodeState = field(repr=False)
    mass_left: float | None = None  # the share of the gossip protocol's mass that is left; None: none can be lost


def fit_network(problem: TrainingProblem, plan: Plan, state: NodeState | None = None) -> Fitted:
    """Train all nodes on the problem, from ``state`` if they have one.

    Raises
    ------
    ValueError
        The algorithm cannot run on this network, with these faults or under this stopping rule.
    """
    run = plan.algorithm.bind(plan.network, plan.lam, math.sqrt(1 / plan.lam), plan.lossy, problem.shares.sizes)
    if (plan.faults or plan.network.schedule) and run.refuses_faults:
        raise ValueError(run.refuses_faults)
    if plan.network.schedule and plan.engine != "local":
        raise ValueError("a time-varying graph runs in the simulator only: use engine='local' with it")
    if plan.certified_lam is not None and not run.certifiable:
        raise ValueError(f"no bound of the gap can be computed here: {UNCERTIFIABLE}")
    width, columns = problem.X.shape[1], np.arange(problem.X.shape[1])
    if state is None and plan.algorithm.omits_unused_columns:
        problem, columns = problem.occurring()
    team = ThreadTeam.of(plan.n_jobs)
    runtime: Runtime = RUNTIMES[plan.engine](problem, plan, run, team, state)
    runtime.omitted_columns = problem.n_outputs * (width - len(columns))
    try:
        layout = Layout(plan.sites, width, columns, problem.objective(plan.lam, team))
        outcome = train(runtime, plan.rule, plan.schedule, layout, plan.observers)
        return _collect(runtime, outcome, layout, plan.lossy)
    finally:
        runtime.close()
        team.close()


def _collect(runtime: Runtime, outcome: Outcome, layout: Layout, lossy: bool) -> Fitted:
    models = runtime.models()
    mean = network_mean(models, runtime.live_row_weights())
    if outcome.certificate is not None:  # every node that took part has the certified model
        models, mean = certified(models, outcome.certificate), outcome.certificate.model
    last = runtime.weights()
    _fill_unseen(runtime, models, last, mean)
    state = _state(runtime, models, last)
    state.w, state.w_sum = layout.widen(state.w), layout.widen(state.w_sum)
    add_events(outcome.history[-1], runtime)  # what happened after the last record
    mass = float(runtime.gather("phi").sum() / runtime.sizes().sum()) if lossy and runtime.run.loses_mass else None
    models, last, mean = layout.widen(models), layout.widen(last), layout.widen(mean)
    return Fitted(models, last, mean, outcome, runtime.run.gossip_name, state, mass)


def _fill_unseen(runtime: Runtime, models: Floats, last: Floats, mean: Floats) -> None:
    """If a node was lost before its model was ever gathered, give it the average of the others."""
    unseen = runtime.unseen("models")
    if unseen.any():
        models[unseen] = mean
        warn(
            f"{unseen.sum():,} of {len(models):,} nodes were lost before their models were ever fetched, for a "
            "record or at the end: they get the average model of the others"
        )
    unseen = runtime.unseen("weights")
    last[unseen] = models[unseen]


def _state(runtime: Runtime, models: Floats, last: Floats) -> NodeState:
    """Return the state from which the nodes continue.

    If the algorithm keeps no average of iterates, the last iterate counts as the average, and an iteration counts as
    one step per row. A lost node continues from its reported model, as if it had done as many iterations as the others.
    """
    w, w_sum, iterates, steps = last.copy(), *(runtime.gather(name) for name in ("w_sum", "iterates", "steps"))
    lost = runtime.lost_mask()
    if lost.any():
        iterates[lost], steps[lost] = iterates[~lost].max(), steps[~lost].max()
        w_sum[lost] = models[lost] * iterates[lost, None, None]
    if not runtime.run.average:
        seen = np.minimum(iterates * runtime.sizes(), 2.0**62)
        w_sum, steps = w * iterates[:, None, None], np.maximum(steps, seen.astype(np.int64))
    return NodeState(
        runtime.sizes(), w, w_sum, iterates, steps,
        runtime.exchanges(), runtime.t, runtime.messages, runtime.nbytes,
    )  # fmt: skip


def _local_runtime(problem: Any, plan: Plan, run: Run, team: ThreadTeam, state: NodeState | None) -> LocalRuntime:
    """Make the runtime with all nodes in this process."""
    blocks = make_blocks(problem, plan.network, plan.seed, plan.engine_options.get("blocks", 1), team)
    active = None if plan.network.schedule is None else ActiveEdges(plan.network.schedule)
    exchange = wrap_all(plan.faults, FaultContext(plan.network.n, plan.seed)) if plan.faults or active else None
    if active and exchange:
        exchange = active.wrap(exchange)
    runtime = LocalRuntime(run, blocks, exchange, lam=plan.certified_lam, active_edges=active)
    if state is not None:  # the gossip protocol's mass restarts, from all rows a node has seen so far
        runtime.t, runtime.messages, runtime.nbytes = state.t, state.messages, state.nbytes
        for block in blocks:
            own = slice(block.first, block.first + block.k)
            block.w[:], block.w_sum[:] = state.w[own], state.w_sum[own]
            block.iterates[:], block.steps[:] = state.iterates[own], state.steps[own]
            block.n, block.exchanges = block.n + state.n[own], state.exchanges
    return runtime


def _ray_runtime(problem: Any, plan: Plan, run: Run, team: ThreadTeam, state: NodeState | None) -> "RayRuntime":  # noqa: ARG001
    """Make the runtime with the nodes in actors on a Ray cluster. The actors may have their rows already."""
    from gadget_svm.cluster import actor, connection, driver, options

    runtime = problem.runtime
    if runtime is None:
        rows, cluster = problem.rows, connection.Cluster(options.RayOptions.of(plan.engine_options))
        runtime = driver.RayRuntime(cluster, plan.network.n, lambda *pair: actor.Given(gathered(rows, *pair)))
    sizes, state_of = problem.shares.sizes, None
    if state is not None:
        runtime.t, runtime.messages, runtime.nbytes = state.t, state.messages, state.nbytes
        sizes = sizes + state.n

        def state_of(first: int, last: int) -> dict[str, Any]:
            names = ("w", "w_sum", "iterates", "steps")
            return {"exchanges": state.exchanges, **{name: getattr(state, name)[first:last] for name in names}}

    try:
        shape = (problem.n_outputs, problem.X.shape[1])
        runtime.begin(run, plan.network, plan.seed, sizes, shape, plan.certified_lam, state_of)
    except BaseException:
        runtime.close()
        raise
    return runtime  # type: ignore[no-any-return]


RUNTIMES: dict[str, Any] = {"local": _local_runtime, "ray": _ray_runtime}


def gathered(rows: Rows, first: int, last: int) -> Rows:
    """Return only the rows of the nodes first:last, node after node."""
    own = rows.of_nodes(first, last)
    X = rows.matrix()[own.order]
    return Rows(
        X.indptr.astype(rows.indptr.dtype), X.indices.astype(rows.indices.dtype), X.data, rows.label[own.order],
        rows.cost[own.order], np.arange(len(own.order)), own.start, own.mass, rows.pairs, rows.intercept_unit,
    )  # fmt: skip


def make_blocks(problem: Problem, network: Network, seed: int, parts: int, team: ThreadTeam) -> list[Block]:
    """Divide the network's nodes into ``parts`` blocks of consecutive nodes."""
    parts = max(1, min(parts, network.n))
    bounds = [network.n * part // parts for part in range(parts + 1)]
    rows, sizes, shape = problem.rows, problem.shares.sizes, (problem.n_outputs, problem.X.shape[1])
    return [
        Block.fresh(
            network, rows.of_nodes(first, last), sizes[first:last], *shape, seed=seed, first=first, last=last, team=team
        )
        for first, last in pairwise(bounds)
    ]
