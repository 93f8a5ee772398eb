"""From a problem to models: builds the network, the blocks and the runtime, and runs the loop."""

import warnings
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm import faults as faulty
from gadget_svm.algorithms import Algorithm, Run
from gadget_svm.core.block import Block
from gadget_svm.core.network import Network
from gadget_svm.core.rows import Rows, Shares
from gadget_svm.core.types import Floats
from gadget_svm.estimator.problem import Problem
from gadget_svm.kernels import ThreadTeam
from gadget_svm.simulation.engine import UNCERTIFIABLE, LocalRuntime
from gadget_svm.simulation.runtime import Evaluator, eventful
from gadget_svm.simulation.stopping import Stopping
from gadget_svm.simulation.trainer import Limits, Observe, Outcome, certified, network_mean, no_observer, train

if TYPE_CHECKING:
    from gadget_svm.cluster.driver import RayRuntime


@dataclass
class NodeState:
    """What the nodes remember between two batches of rows."""

    n: Floats  # the rows every node has seen: its weight in the network's average
    w: Floats
    w_sum: Floats
    iterates: NDArray[np.int64]
    steps: NDArray[np.int64]
    exchanges: int
    t: int
    messages: int
    nbytes: int


@dataclass
class Plan:
    """Everything a fit needs beside the rows."""

    algorithm: Algorithm
    network: Network
    lam: float
    seed: int
    rule: Stopping | None
    limits: Limits
    record_every: int | None = None
    faults: Any = None
    n_jobs: int | None = None
    observe: Observe = no_observer
    engine: str = "local"
    engine_options: dict[str, Any] = field(default_factory=dict)


class TrainingProblem(Protocol):
    """A problem as far as a fit looks at it: its rows are here, or with those who learn."""

    @property
    def X(self) -> sp.csr_matrix:
        """Of the width of the rows."""

    @property
    def shares(self) -> Shares:
        """How many rows every node has."""

    @property
    def n_outputs(self) -> int:
        """One, or one a class."""

    @property
    def mean_cost(self) -> float:
        """The average of c_r over the rows."""

    def occurring(self) -> "tuple[TrainingProblem, NDArray[np.intp]]":
        """The same without the features that no row has, and which are left."""

    def objective(self, lam: float, team: ThreadTeam) -> Evaluator:
        """To measure by."""


@dataclass
class Fitted:
    """What a fit leaves behind."""

    models: Floats  # nodes x outputs x features
    last: Floats  # the last iterates, where the models are averages
    mean: Floats  # the network average, outputs x features
    outcome: Outcome
    gossip: str  # the protocol it came down to
    memory: NodeState = field(repr=False)
    mass_left: float | None = None  # the share of the gossip protocol's mass that lost messages left; None: not known


def fit_network(problem: TrainingProblem, plan: Plan, memory: NodeState | None = None) -> Fitted:
    """Train all nodes on the problem, from ``memory`` if they have one."""
    wrong = faulty.make_faults(plan.faults)
    radius = float(np.sqrt(problem.mean_cost / plan.lam))
    lossy = any(fault.loses for fault in wrong)
    run = plan.algorithm.bind(plan.network, plan.lam, radius, lossy, problem.shares.sizes)
    if wrong and run.refuses_faults:
        raise ValueError(run.refuses_faults)
    certifies = plan.rule is not None and plan.rule.certifies
    if certifies and not run.certifiable:
        raise ValueError(f"no bound of the gap can be had here: {UNCERTIFIABLE}")
    width, columns = problem.X.shape[1], np.arange(problem.X.shape[1])
    if memory is None and plan.algorithm.omits_unused_columns:
        problem, columns = problem.occurring()

    def wide(models: Floats) -> Floats:
        """With the features that were left out, whose weights are zero."""
        if len(columns) == width:
            return models
        full = np.zeros((*models.shape[:-1], width))
        full[..., columns] = models
        return full

    team = ThreadTeam.of(plan.n_jobs)
    runtime = RUNTIMES[plan.engine](problem, plan, run, team, memory)
    runtime.omitted_columns = problem.n_outputs * (width - len(columns))
    try:
        outcome = train(
            runtime,
            problem.objective(plan.lam, team),
            plan.rule,
            plan.limits,
            plan.record_every,
            lambda record, mean: plan.observe(record, wide(mean)),
            0 if plan.engine == "ray" and runtime.options.resume else None,
        )
        models = runtime.models().copy()
        mean = network_mean(models, runtime.live_row_weights())
        if outcome.certificate is not None:  # it is this model that was certified, and every node has it
            models, mean = certified(models, outcome.certificate), outcome.certificate.model
        last = runtime.weights().copy()
        _stand_in(runtime, models, last, mean)
        kept = _remember(runtime, models, last)
        kept.w, kept.w_sum = wide(kept.w), wide(kept.w_sum)
        if eventful(runtime) and (late := runtime.events()):  # after the last record was made
            outcome.history[-1]["events"] = outcome.history[-1].get("events", []) + late
        return Fitted(wide(models), wide(last), wide(mean), outcome, run.gossip_name, kept, _mass_left(runtime, lossy))
    finally:
        runtime.close()
        team.close()


def _here(problem: Any, plan: Plan, run: Run, team: ThreadTeam, memory: NodeState | None) -> LocalRuntime:
    """All nodes in this process."""
    wrong = faulty.make_faults(plan.faults)
    blocks = make_blocks(problem, plan.network, plan.seed, plan.engine_options.get("blocks", 1), team)
    exchange = faulty.wrap_all(wrong, faulty.FaultContext(plan.network.n, plan.seed)) if wrong else None
    runtime = LocalRuntime(run, blocks, exchange, lam=_lam_certified(plan))
    if memory is not None:
        _recall(runtime, memory)
    return runtime


def _on_ray(problem: Any, plan: Plan, run: Run, team: ThreadTeam, memory: NodeState | None) -> "RayRuntime":  # noqa: ARG001
    """The nodes in actors on a Ray cluster, which may have their rows already."""
    from gadget_svm.cluster import actor, connection, driver

    runtime = getattr(problem, "runtime", None)
    if runtime is None:
        cluster = connection.Cluster(connection.RayOptions.of(plan.engine_options))
        try:
            bounds = driver.even_bounds(plan.network.n, cluster.actors(plan.network.n))
            sources = [actor.Given(gathered(problem.rows, *pair)) for pair in pairwise(bounds.tolist())]
            runtime = driver.RayRuntime(cluster, bounds, sources)
        except BaseException:
            cluster.close()
            raise
    sizes, remembered = problem.shares.sizes, None
    if memory is not None:
        runtime.t, runtime.messages, runtime.nbytes = memory.t, memory.messages, memory.nbytes
        sizes = sizes + memory.n

        def remembered(first: int, last: int) -> dict[str, Any]:
            names = ("w", "w_sum", "iterates", "steps")
            return {"exchanges": memory.exchanges, **{name: getattr(memory, name)[first:last] for name in names}}

    try:
        shape = (problem.n_outputs, problem.X.shape[1])
        runtime.begin(run, plan.network, plan.seed, sizes, shape, _lam_certified(plan), remembered)
    except BaseException:
        runtime.close()
        raise
    return runtime


RUNTIMES: dict[str, Any] = {"local": _here, "ray": _on_ray}


def _lam_certified(plan: Plan) -> float | None:
    return plan.lam if plan.rule is not None and plan.rule.certifies else None


def gathered(rows: Rows, first: int, last: int) -> Rows:
    """The rows of the nodes first:last alone, as they come."""
    mine = rows.of_nodes(first, last)
    X = sp.csr_matrix((rows.data, rows.indices, rows.indptr), (len(rows.label), int(rows.indices.max(initial=0)) + 1))
    X = X[mine.order]
    kind = rows.indptr.dtype
    return Rows(
        X.indptr.astype(kind), X.indices.astype(rows.indices.dtype), X.data, rows.label[mine.order],
        rows.cost[mine.order], np.arange(len(mine.order)), mine.start, mine.mass, rows.pairs,
        rows.intercept_unit,
    )  # fmt: skip


def make_blocks(problem: Problem, network: Network, seed: int, parts: int, team: ThreadTeam) -> list[Block]:
    """The network's nodes in ``parts`` blocks of consecutive nodes."""
    parts = max(1, min(parts, network.n))
    bounds = [network.n * part // parts for part in range(parts + 1)]
    rows, sizes = problem.rows, problem.shares.sizes
    blocks = []
    for first, last in pairwise(bounds):
        shape = (problem.n_outputs, problem.X.shape[1])
        mine = rows.of_nodes(first, last)
        blocks.append(
            Block.fresh(network, mine, sizes[first:last], *shape, seed=seed, first=first, last=last, team=team)
        )
    return blocks


def _stand_in(runtime: "LocalRuntime | RayRuntime", models: Floats, last: Floats, mean: Floats) -> None:
    """Nodes that were lost before anybody fetched their model answer with the average of the others."""
    if isinstance(runtime, LocalRuntime):
        return
    unseen = runtime.unseen("models")
    if unseen.any():
        models[unseen] = mean
        warnings.warn(
            f"{unseen.sum():,} of {len(models):,} nodes were lost before their models were ever fetched, for a "
            "record or at the end: the average of the others stands in for theirs",
            stacklevel=5,
        )
    unseen = runtime.unseen("w")
    last[unseen] = models[unseen]


def _mass_left(runtime: "LocalRuntime | RayRuntime", lossy: bool) -> float | None:
    """The share of the mass of a protocol such as Push-Sum that is still there, where messages may be lost."""
    if not lossy or not runtime.run.loses_mass or not isinstance(runtime, LocalRuntime):
        return None
    return float(sum(block.phi.sum() for block in runtime.blocks) / runtime.sizes().sum())


def _remember(runtime: "LocalRuntime | RayRuntime", models: Floats, last: Floats) -> NodeState:
    """What the nodes go on from. One that kept no average has its last iterate for one, and every row was a step. One
    that is lost goes on from the model it answers with, as if it had done as many iterations as the others."""
    names = ("w", "w_sum", "iterates", "steps")
    if isinstance(runtime, LocalRuntime):
        blocks, exchanges = runtime.blocks, runtime.blocks[0].exchanges
        w_sum, iterates, steps = (np.concatenate([getattr(b, name) for b in blocks]) for name in names[1:])
        w = last.copy()
    else:
        w, w_sum, iterates, steps = (runtime.gather(name) for name in names)
        exchanges, here = runtime.exchanges(), runtime.live_mask()
        iterates[~here], steps[~here] = iterates[here].max(), steps[here].max()
        w[~here], w_sum[~here] = last[~here], models[~here] * iterates[~here, None, None]
    if not runtime.run.average:
        seen = np.minimum(iterates * runtime.sizes(), 2.0**62)
        w_sum, steps = w * iterates[:, None, None], np.maximum(steps, seen.astype(np.int64))
    return NodeState(
        runtime.sizes(), w, w_sum, iterates, steps,
        exchanges, runtime.t, runtime.messages, runtime.nbytes,
    )  # fmt: skip


def _recall(runtime: LocalRuntime, memory: NodeState) -> None:
    """Put the nodes back where they were. Gossip's mass starts anew, by all the rows a node has seen so far."""
    runtime.t, runtime.messages, runtime.nbytes = memory.t, memory.messages, memory.nbytes
    for block in runtime.blocks:
        mine = slice(block.first, block.first + block.k)
        block.w[:], block.w_sum[:] = memory.w[mine], memory.w_sum[mine]
        block.iterates[:], block.steps[:] = memory.iterates[mine], memory.steps[mine]
        block.n, block.exchanges = block.n + memory.n[mine], memory.exchanges
