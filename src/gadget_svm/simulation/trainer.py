"""The training loop around a runtime: when to check, when to record, when to stop. It never changes a model."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from gadget_svm.algorithms.certificate import Certificate
from gadget_svm.core.types import Floats, Ints
from gadget_svm.kernels.vectors import distances, weighted_sum
from gadget_svm.simulation.runtime import Layout, Observer, Record, Runtime, View
from gadget_svm.simulation.stopping import StoppingRule, geometric

POLL_INTERVAL_S = 0.05
"""Time between checks of the clock and of requests to stop. Results never depend on it."""
SAMPLED_NODES = 200
"""With more nodes than this, only an even sample of them is evaluated: the cost grows with nodes times rows."""
FIRST_RECORD_ITERATION, RECORD_GROWTH = 4, 4.0
"""If records are thinned: the iteration of the first one, and the factor to the next."""
MAX_NAMED_NODES = 5
"""The largest number of nodes that a note on a certificate lists."""


@dataclass
class Outcome:
    """How a training ended.

    Attributes
    ----------
    reason : str
        "converged", "max_iter", "max_seconds" or "interrupted".
    n_iter : int
    seconds : float
    movement : float
        The figure the stopping rule last compared with its tolerance.
    history : list of dict
        The records.
    certificate : Certificate or None
        The certificate of the common model of all live nodes, if the rule made one.
    certificate_note : str
        Why there is no certificate, or which nodes' rows it counts, if not all.
    """

    reason: str
    n_iter: int
    seconds: float
    movement: float
    history: list[Record] = field(default_factory=list)
    certificate: Certificate | None = None
    certificate_note: str = ""

    @property
    def converged(self) -> bool:
        """Whether the stopping rule fired."""
        return self.reason == "converged"


@dataclass(frozen=True)
class Schedule:
    """The limits at which a training stops even if its rule does not fire, and when it records.

    Parameters
    ----------
    max_iter : int
    max_seconds : float or None, default None
    record_every : int or None, default None
        Iterations between records; 0: only the last. None thins them geometrically, and only the last one has
        ``worst_objective``.
    first_iteration : int, default 0
        The iteration to count from. A resumed run counts from its beginning.
    """

    max_iter: int
    max_seconds: float | None = None
    record_every: int | None = None
    first_iteration: int = 0

    def next_record(self, done: int) -> int:
        """Return the next iteration after ``done`` that has a record."""
        if self.record_every is None:
            return max(FIRST_RECORD_ITERATION, geometric(done, RECORD_GROWTH))
        return (done // self.record_every + 1) * self.record_every if self.record_every > 0 else 2**62


def train(
    runtime: Runtime, rule: StoppingRule | None, schedule: Schedule, layout: Layout, observers: Sequence[Observer] = ()
) -> Outcome:
    """Iterate until the rule fires or a limit is reached.

    Parameters
    ----------
    runtime : Runtime
        Drives the nodes.
    rule : StoppingRule or None
    schedule : Schedule
        The limits, and when to record.
    layout : Layout
        The evaluator, and how models are presented to observers.
    observers : sequence of Observer, default ()
        They see each record, may add to it, and may ask to stop. An interruption keeps the models so far.
    """
    runtime.warm_up()
    begin, spent, history, reason = schedule.first_iteration, 0.0, list[Record](), ""
    record = partial(_record, runtime, layout, observers, rule)
    iteration_s = POLL_INTERVAL_S  # an estimate
    if runtime.t - begin >= schedule.max_iter:  # a resumed run that was complete
        reason = "max_iter"
        history.append(record(spent, reason))
    while not reason:
        done = runtime.t - begin
        marks = [schedule.max_iter, schedule.next_record(done)]
        marks += [] if rule is None else [rule.next_check(done)]
        goal = min(mark for mark in marks if mark > done)
        while runtime.t - begin < goal and not (reason := _cut_short(schedule, observers, spent)):
            count = min(goal - (runtime.t - begin), max(1, int(POLL_INTERVAL_S / iteration_s)))
            started = time.perf_counter()
            runtime.advance(count)
            took = time.perf_counter() - started
            spent, iteration_s = spent + took, max(took / count, 1e-7)
        done = runtime.t - begin
        ending = bool(reason) or done >= schedule.max_iter
        if rule is not None and not reason and (done >= rule.next_check(done - 1) or (ending and rule.certifies)):
            value, started = _mean_objective(runtime, layout) if rule.needs_objective else 0.0, time.perf_counter()
            reason = "converged" if rule.fires(runtime, value) else reason
            spent += time.perf_counter() - started if rule.certifies else 0.0  # only work of the nodes counts
        if not reason and done >= schedule.max_iter:
            reason = "max_iter"
        new = not history or history[-1]["iteration"] < runtime.t  # an interruption may follow a record at once
        if new and (reason or ending or done == schedule.next_record(done - 1)):
            history.append(record(spent, reason, bool(reason) or schedule.record_every is not None))
        elif reason:
            add_events(history[-1], runtime)
    outcome = Outcome(reason, runtime.t - begin, spent, np.inf if rule is None else rule.value, history)
    if rule is not None and (last := rule.certificate) is not None:
        outcome.certificate, outcome.certificate_note = last if outcome.converged else None, last.failure
        if outcome.converged and last.n_nodes < len(runtime.live_mask()):
            outcome.certificate_note = _coverage(last.nodes, len(runtime.live_mask()))
    return outcome


def certified(models: Floats, certificate: Certificate) -> Floats:
    """Return the models, with the certified one for the nodes that took part."""
    models = models.copy()
    models[certificate.nodes] = certificate.model
    return models


def network_mean(models: Floats, sizes: Floats) -> Floats:
    """Return the paper's w: the average of the nodes' models, weighted by n_i, outputs x features."""
    mean = weighted_sum(sizes / sizes.sum(), models.reshape(len(models), -1))
    return mean.reshape(models.shape[1:])


def disagreement(models: Floats, mean: Floats) -> float:
    """Return the distance from the average of the node farthest from it, relative to the average's length."""
    farthest = float(distances(models, mean).max())
    length = float(np.sqrt(np.einsum("kd,kd->", mean, mean)))  # no BLAS: its threads would wait in a busy loop
    return farthest / length if length > 0 else 0.0


def add_events(record: Record, runtime: Runtime) -> None:
    """Add to the record what happened to the runtime since the last record."""
    if events := runtime.events():
        record.setdefault("events", []).extend(events)


def _coverage(nodes: Ints, count: int) -> str:
    """Return a text on which of ``count`` nodes a certificate of ``nodes`` does not cover."""
    without = np.setdiff1d(np.arange(count), nodes)
    more = ", ..." if len(without) > MAX_NAMED_NODES else ""
    named = ", ".join(f"node {node}" for node in without[:MAX_NAMED_NODES]) + more
    return f"counting the rows of {len(nodes):,} of {count:,} nodes, not of {named}"


def _cut_short(schedule: Schedule, observers: Sequence[Observer], spent: float) -> str:
    if any(observer.should_stop() for observer in observers):
        return "interrupted"
    return "max_seconds" if schedule.max_seconds is not None and spent >= schedule.max_seconds else ""


def _mean_objective(runtime: Runtime, layout: Layout) -> float:
    return float(layout.evaluate(network_mean(runtime.models(), runtime.live_row_weights())[None]).objective[0])


def _record(
    runtime: Runtime, layout: Layout, observers: Sequence[Observer], rule: StoppingRule | None, spent: float,
    reason: str, every_node: bool = True,
) -> Record:  # fmt: skip
    all_models, weights = runtime.models(), runtime.live_row_weights()  # in this order: nodes may be lost in between
    certificate = rule.certificate if rule is not None and reason == "converged" else None
    if certificate is not None:
        all_models = certified(all_models, certificate)
    mean = network_mean(all_models, weights)
    models = all_models if weights.all() else all_models[weights > 0]
    of_mean = layout.evaluate(mean[None])
    record: Record = {
        "iteration": runtime.t,
        "seconds": spent,
        "objective": float(of_mean.objective[0]),
        "error": float(of_mean.error[0]),
        "disagreement": disagreement(models, mean),
        "messages": runtime.messages,
        "bytes": runtime.nbytes,
    }
    if certificate is not None:  # every node has the same model
        record["worst_objective"] = record["objective"]
    elif every_node:
        sample = models[:: max(1, -(-len(models) // SAMPLED_NODES))]
        name = "worst_objective" if len(sample) == len(models) else "worst_sampled_objective"
        record[name] = float(layout.evaluate(sample).objective.max())
    if rule is not None and rule.certifies:
        record["bound"] = rule.value
    add_events(record, runtime)
    view = View(runtime.live_mask(), all_models, mean, layout)
    for observer in observers:
        observer.on_record(record, view)
    return record
