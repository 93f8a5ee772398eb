"""The training loop around a runtime: when to look, when to record, when to stop. Observes; never touches a weight."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.algorithms.certificate import Certificate
from gadget_svm.core.types import Floats
from gadget_svm.kernels.vectors import weighted_sum
from gadget_svm.simulation.engine import distances
from gadget_svm.simulation.runtime import Evaluator, Runtime, eventful
from gadget_svm.simulation.stopping import Stopping, geometric

Record = dict[str, Any]
"""iteration, seconds, objective, error, disagreement, messages, bytes (and what observers add).

``objective`` and ``error`` are those of the average model on all rows: one pass over them. ``worst_objective`` is that
of the worst node. It takes a pass for every node, so only the last record has it, and the others where the caller says
how often to record. With more than SAMPLED_NODES nodes it is ``worst_sampled_objective``, of an even sample of so many.
Under the rule "gap" also bound: the relative gap that was certified last. Where a cluster lost actors, or has
them back, also events: what happened since the record before.
"""

Observe = Callable[[Record, Floats], None]
"""Sees each record and the network's average model; may add to the record."""


def no_observer(record: Record, mean: Floats) -> None:
    """Nobody looks."""


POLL_INTERVAL_S = 0.05
"""Seconds between looks at the clock and at requests to stop: results never depend on it, only manners do."""
SAMPLED_NODES = 200
"""Of more nodes than this an even sample of so many is evaluated: it costs nodes times rows."""
FIRST_RECORD, RECORD_STRIDE = 4, 2.0
"""Where records are thinned: the iteration of the first one, and the factor to the next."""

MOST_NAMED = 5
"""Nodes without a certificate that a remark names."""


@dataclass
class Outcome:
    """How a training ended: ``reason`` is converged, max_iter, max_seconds or interrupted."""

    reason: str
    n_iter: int
    seconds: float
    movement: float  # the figure the stopping rule last compared with its tolerance
    history: list[Record] = field(default_factory=list)
    certificate: Certificate | None = None  # of the model every node that is here answers with, if the rule gave one
    remark: str = ""  # why there was no certificate, or whose rows it counts if not all

    @property
    def converged(self) -> bool:
        """Whether the stopping rule fired, and not a limit."""
        return self.reason == "converged"


@dataclass
class Limits:
    """What ends a training whatever the rule says."""

    max_iter: int
    max_seconds: float | None = None
    should_stop: Callable[[], bool] = lambda: False


def train(
    runtime: Runtime,
    objective: Evaluator,
    rule: Stopping | None,
    limits: Limits,
    record_every: int | None = None,
    observe: Observe = no_observer,
    begin: int | None = None,
) -> Outcome:
    """Iterate until the rule fires or a limit is reached. An interruption keeps the models so far.

    ``record_every``: every so many iterations; None thins them geometrically and leaves ``worst_objective`` to the
    last; 0 keeps only the last.
    ``observe`` sees each record, and the network's average model, and may add to the record. ``begin`` is the iteration
    to count from, where it is not the one the runtime is at: a run that is resumed counts from its beginning.
    """
    runtime.warm_up()
    begin, spent, history, reason = runtime.t if begin is None else begin, 0.0, list[Record](), ""
    pace = POLL_INTERVAL_S  # seconds an iteration takes, as far as is known
    if runtime.t - begin >= limits.max_iter:  # a run that is resumed and had come as far
        reason = "max_iter"
        history.append(_record(runtime, objective, spent, observe, rule, reason))
    while not reason:
        done = runtime.t - begin
        marks = [limits.max_iter, _next_record(done, record_every)]
        marks += [] if rule is None else [rule.next_check(done)]
        goal = min(mark for mark in marks if mark > done)
        while runtime.t - begin < goal and not (reason := _cut_short(limits, spent)):
            advance_fused = min(goal - (runtime.t - begin), max(1, int(POLL_INTERVAL_S / pace)))
            started = time.perf_counter()
            runtime.advance(advance_fused)
            took = time.perf_counter() - started
            spent, pace = spent + took, max(took / advance_fused, 1e-7)
        done = runtime.t - begin
        ending = bool(reason) or done >= limits.max_iter
        if rule is not None and not reason and (done >= rule.next_check(done - 1) or (ending and rule.certifies)):
            value, started = _mean_objective(runtime, objective) if rule.needs_objective else 0.0, time.perf_counter()
            reason = "converged" if rule.fires(runtime, value) else reason
            spent += time.perf_counter() - started if rule.certifies else 0.0  # the nodes' own work, no observer's
        if not reason and done >= limits.max_iter:
            reason = "max_iter"
        new = not history or history[-1]["iteration"] < runtime.t  # an interruption may follow a record at once
        if new and (reason or ending or done == _next_record(done - 1, record_every)):
            every_node = bool(reason) or record_every is not None
            history.append(_record(runtime, objective, spent, observe, rule, reason, every_node))
        elif reason and eventful(runtime) and (events := runtime.events()):
            history[-1].setdefault("events", []).extend(events)
    outcome = Outcome(reason, runtime.t - begin, spent, np.inf if rule is None else rule.value, history)
    last = None if rule is None else rule.certificate
    if last is not None:
        outcome.certificate, outcome.remark = last if outcome.converged else None, last.failure
        if outcome.converged and last.n_nodes < len(runtime.live_mask()):
            outcome.remark = _left_out(last.nodes, len(runtime.live_mask()))
    return outcome


def certified(models: Floats, certificate: Certificate) -> Floats:
    """The models with the certified one in the place of those of the nodes that took part."""
    models = models.copy()
    models[certificate.nodes] = certificate.model
    return models


def _left_out(nodes: NDArray[np.int64], count: int) -> str:
    """Which of ``count`` nodes a certificate of ``nodes`` does not cover."""
    without = np.setdiff1d(np.arange(count), nodes)
    named = ", ".join(f"node {node}" for node in without[:MOST_NAMED]) + (", ..." if len(without) > MOST_NAMED else "")
    return f"counting the rows of {len(nodes):,} of {count:,} nodes, not of {named}"


def _next_record(done: int, record_every: int | None) -> int:
    if record_every is None:
        return max(FIRST_RECORD, geometric(done, RECORD_STRIDE))
    return (done // record_every + 1) * record_every if record_every > 0 else 2**62


def _cut_short(limits: Limits, spent: float) -> str:
    if limits.should_stop():
        return "interrupted"
    return "max_seconds" if limits.max_seconds is not None and spent >= limits.max_seconds else ""


def network_mean(models: Floats, sizes: Floats) -> Floats:
    """The paper's w: the nodes' models averaged by n_i, outputs x features."""
    mean = weighted_sum(sizes / sizes.sum(), models.reshape(len(models), -1))
    return mean.reshape(models.shape[1:])


def _mean_objective(runtime: Runtime, objective: Evaluator) -> float:
    return float(objective(network_mean(runtime.models(), runtime.live_row_weights())[None]).objective[0])


def _record(
    runtime: Runtime, objective: Evaluator, spent: float, observe: Observe, rule: Stopping | None, reason: str,
    every_node: bool = True,
) -> Record:  # fmt: skip
    models, voices = runtime.models(), runtime.live_row_weights()  # in this order: who is lost in between has no voice
    certificate = rule.certificate if rule is not None and reason == "converged" else None
    if certificate is not None:
        models = certified(models, certificate)
    mean = network_mean(models, voices)
    models = models if voices.all() else models[voices > 0]
    ours = objective(mean[None])
    record: Record = {
        "iteration": runtime.t,
        "seconds": spent,
        "objective": float(ours.objective[0]),
        "error": float(ours.error[0]),
        "disagreement": disagreement(models, mean),
        "messages": runtime.messages,
        "bytes": runtime.nbytes,
    }
    if certificate is not None:  # every node has the same model
        record["worst_objective"] = record["objective"]
    elif every_node:
        some = models[:: max(1, -(-len(models) // SAMPLED_NODES))]
        name = "worst_objective" if len(some) == len(models) else "worst_sampled_objective"
        record[name] = float(objective(some).objective.max())
    if rule is not None and rule.certifies:
        record["bound"] = rule.value
    if eventful(runtime) and (events := runtime.events()):
        record["events"] = events
    observe(record, mean)
    return record


def disagreement(models: Floats, mean: Floats) -> float:
    """How far the node farthest from the average is from it, as a part of the average's length."""
    farthest = float(distances(models, mean).max())
    length = float(np.sqrt(np.einsum("kd,kd->", mean, mean)))  # no BLAS: its threads would wait in a busy loop
    return farthest / length if length > 0 else 0.0
