"""From a problem to models: builds the network, the blocks and the runtime, and runs the loop."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm import faults as faulty
from gadget_svm.algorithms import Algorithm, Run
from gadget_svm.block import Block
from gadget_svm.estimator.problem import Problem
from gadget_svm.gossip import PROTOCOLS
from gadget_svm.kernels import Team
from gadget_svm.network import Network
from gadget_svm.runtimes.local import UNCERTIFIABLE, LocalRuntime, certifiable
from gadget_svm.runtimes.stopping import Stopping
from gadget_svm.runtimes.training import Limits, Observe, Outcome, certified, network_mean, train, unobserved

Floats = NDArray[np.float64]


@dataclass
class Memory:
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
    blocks: int = 1
    n_jobs: int | None = None
    observe: Observe = unobserved


@dataclass
class Fitted:
    """What a fit leaves behind."""

    models: Floats  # nodes x outputs x features
    last: Floats  # the last iterates, where the models are averages
    mean: Floats  # the network average, outputs x features
    outcome: Outcome
    gossip: str  # the protocol it came down to
    memory: Memory = field(repr=False)


def fit_network(problem: Problem, plan: Plan, memory: Memory | None = None) -> Fitted:
    """Train all nodes on the problem, from ``memory`` if they have one."""
    wrong = faulty.make_faults(plan.faults)
    radius = float(np.sqrt(problem.mean_cost / plan.lam))
    lossy = any(fault.loses for fault in wrong)
    run = plan.algorithm.bind(plan.network, plan.lam, radius, lossy, problem.shares.sizes)
    if wrong and getattr(run, "still", None) is not None:
        raise ValueError(
            "gossip_rounds='diameter' trusts that every flag arrives in its round, so it cannot be combined with "
            "faults: use a fixed number or 'mix'"
        )
    certifies = plan.rule is not None and plan.rule.certifies
    if certifies and not certifiable(run):
        raise ValueError(f"stopping='gap': {UNCERTIFIABLE}")
    width, columns = problem.X.shape[1], np.arange(problem.X.shape[1])
    if memory is None and getattr(plan.algorithm, "spares_columns", False):
        problem, columns = problem.occurring()

    def wide(models: Floats) -> Floats:
        """With the features that were left out, whose weights are zero."""
        if len(columns) == width:
            return models
        full = np.zeros((*models.shape[:-1], width))
        full[..., columns] = models
        return full

    blocks = make_blocks(problem, plan.network, plan.seed, plan.blocks, Team.of(plan.n_jobs))
    world = faulty.World(plan.network.n, plan.seed)
    exchange = faulty.wrap_all(wrong, world) if wrong else None
    runtime = LocalRuntime(run, blocks, exchange, lam=plan.lam if certifies else None)
    runtime.spared = problem.n_outputs * (width - len(columns))
    if memory is not None:
        _recall(runtime, memory)
    try:
        outcome = train(
            runtime,
            problem.objective(plan.lam, blocks[0].team),
            plan.rule,
            plan.limits,
            plan.record_every,
            lambda record, mean: plan.observe(record, wide(mean)),
        )
    finally:
        runtime.close()
    models = runtime.models().copy()
    mean = network_mean(models, runtime.voices())
    if outcome.certificate is not None:  # it is this model that was certified, and every node has it
        models, mean = certified(models, outcome.certificate, runtime.here()), outcome.certificate.model
    kept = _remember(runtime)
    kept.w, kept.w_sum = wide(kept.w), wide(kept.w_sum)
    return Fitted(wide(models), wide(runtime.weights().copy()), wide(mean), outcome, _gossip(run), kept)


def _gossip(run: Run) -> str:
    used = type(getattr(run, "protocol", None))
    return next((name for name, kind in PROTOCOLS.items() if kind is used), getattr(run, "pattern", "broadcast"))


def make_blocks(problem: Problem, network: Network, seed: int, parts: int, team: Team) -> list[Block]:
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


def _remember(runtime: LocalRuntime) -> Memory:
    """What the nodes go on from. One that kept no average has its last iterate for one, and every row was a step."""
    blocks = runtime.blocks
    w, w_sum, iterates, steps = (
        np.concatenate([getattr(b, name) for b in blocks]) for name in ("w", "w_sum", "iterates", "steps")
    )
    if not runtime.run.average:
        w_sum, steps = w * iterates[:, None, None], np.maximum(steps, np.int64(iterates * runtime.sizes()))
    return Memory(
        runtime.sizes(), w, w_sum, iterates, steps,
        blocks[0].exchanges, runtime.t, runtime.messages, runtime.nbytes,
    )  # fmt: skip


def _recall(runtime: LocalRuntime, memory: Memory) -> None:
    """Put the nodes back where they were. Gossip's mass starts anew, by all the rows a node has seen so far."""
    runtime.t, runtime.messages, runtime.nbytes = memory.t, memory.messages, memory.nbytes
    for block in runtime.blocks:
        mine = slice(block.first, block.first + block.k)
        block.w[:], block.w_sum[:] = memory.w[mine], memory.w_sum[mine]
        block.iterates[:], block.steps[:] = memory.iterates[mine], memory.steps[mine]
        block.n, block.exchanges = block.n + memory.n[mine], memory.exchanges
