"""When to stop: the rules by name. Each looks at the runtime at the iterations it asks for, and says yes or no.

All but one only look on: `GapBelow` lets the nodes certify a model among themselves, and what they send counts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gadget_svm.algorithms.certificate import Certificate
from gadget_svm.core.lookup import lookup
from gadget_svm.core.types import Floats
from gadget_svm.simulation.engine import distances
from gadget_svm.simulation.runtime import Runtime

STRIDE = 1.25
"""Checks of slow rules come in geometric steps: an average moves ever less, so ever longer windows are compared."""

FIRST_CHECK = 4
"""The iteration of the first certificate: large shards are within a per cent of the optimum by then."""
SAFETY = 1.5
"""A predicted number of iterations is raised by this factor: bounds fall ever more slowly, and a certificate takes as
long as several iterations of a small network."""
FALL = 3.5
"""After the first certificate, bounds are taken to fall with this power of the iteration."""
LONGEST_WAIT, SHORTEST_WAIT = 1.5, 1 / 16
"""The next certificate comes after at most and at least so many times the iterations so far."""


class Stopping(Protocol):
    """A stopping rule: ``value`` is the last figure it compared with ``tol``."""

    tol: float
    value: float
    needs_objective: bool
    certifies: bool  # whether looking is itself an exchange between the nodes
    certificate: Certificate | None  # what came of the last one

    def next_check(self, t: int) -> int:
        """The next iteration after t at which to look."""

    def fires(self, runtime: Runtime, objective: float) -> bool:
        """Whether to stop here."""


def geometric(t: int, stride: float = STRIDE) -> int:
    """The next mark after t of 1, 2, 3, ... that grows by ``stride`` once that is more than one."""
    mark = 1
    while mark <= t:
        mark = max(mark + 1, int(mark * stride))
    return mark


class Plain:
    """A rule that needs nothing and only looks on."""

    needs_objective: bool = False
    certifies: bool = False
    certificate: Certificate | None = None


@dataclass
class WeightsStill(Plain):
    """The paper's rule: "local weight vectors ... do not change more than" epsilon from one iteration to the next."""

    tol: float = 1e-3
    value: float = np.inf
    before: Floats | None = None

    def next_check(self, t: int) -> int:
        """Every iteration."""
        return t + 1

    def fires(self, runtime: Runtime, objective: float) -> bool:  # noqa: ARG002
        """Whether no node's vector moved by more than tol."""
        now = runtime.weights().copy()
        if self.before is not None:
            self.value = float(distances(now, self.before).max())
        self.before = now
        return self.value <= self.tol


@dataclass
class AverageStill(Plain):
    """Watches the averaged iterates: how far they moved since the last check, relative to their length.

    The iterations between checks grow by a fixed factor, so an average cannot look still only because it is old.
    """

    tol: float = 0.05
    value: float = np.inf
    before: Floats | None = None
    least: int = 100

    def next_check(self, t: int) -> int:
        """In geometric steps."""
        return max(geometric(t), self.least)

    def fires(self, runtime: Runtime, objective: float) -> bool:  # noqa: ARG002
        """Whether every node's average moved by at most tol of its length."""
        now = runtime.models()
        if self.before is not None:
            lengths = np.maximum(distances(now, np.zeros(now.shape[1:])), 1e-300)
            self.value = float((distances(now, self.before) / lengths).max())
        self.before = now
        return self.value <= self.tol


@dataclass
class ObjectiveStill(Plain):
    """Watches the objective of the average model: relative change between geometric checks, three times in a row."""

    tol: float = 0.01
    value: float = np.inf
    before: float | None = None
    quiet: int = 0
    least: int = 100
    needs_objective: bool = True

    def next_check(self, t: int) -> int:
        """In geometric steps."""
        return max(geometric(t), self.least)

    def fires(self, runtime: Runtime, objective: float) -> bool:  # noqa: ARG002
        """Whether the objective has come to rest."""
        if self.before is not None:
            self.value = abs(objective - self.before) / max(abs(objective), 1e-300)
        self.before = objective
        self.quiet = self.quiet + 1 if self.value <= self.tol else 0
        return self.quiet >= 3


@dataclass
class GapBelow(Plain):
    """Stops when a model is certified to be at most tol above the optimum, relative to it, without a server.

    A certificate costs about as much computation as an iteration, two vectors a node, and a few times the network's
    depth in exchanges. So the next one is made where the last two predict that the bound is at most tol, if bounds go
    on falling by the same factor in every iteration. One that is refused because a node has only just left is tried
    again in the next iteration.
    """

    tol: float = 0.01
    value: float = np.inf
    certificate: Certificate | None = None
    certifies: bool = True
    checked: int = 0  # the iteration of the last certificate
    due: int = FIRST_CHECK

    def next_check(self, t: int) -> int:
        """Where the bound is predicted to be at most tol."""
        return max(t + 1, self.due)

    def fires(self, runtime: Runtime, objective: float) -> bool:  # noqa: ARG002
        """Whether the certified bound is at most tol."""
        self.certificate = runtime.certify()
        if self.certificate.failure and not self.certificate.exchanges:
            self.value, self.due = np.inf, runtime.t + 1
            return False
        self.due = runtime.t + self._wait(runtime.t, self.certificate.relative)
        self.checked, self.value = runtime.t, self.certificate.relative
        return self.value <= self.tol

    def _wait(self, t: int, bound: float) -> int:
        """Iterations until the next certificate, from the bound before, ``value``, and that of now."""
        if not np.isfinite(bound) or bound <= self.tol:
            return max(1, int(LONGEST_WAIT * t))
        if self.tol < bound < self.value < np.inf and t > self.checked:
            rate = np.log(self.value / bound) / (t - self.checked)
            wait = SAFETY * np.log(bound / self.tol) / rate
        else:
            wait = t * ((bound / self.tol) ** (1 / FALL) - 1)
        return int(np.ceil(np.clip(wait, max(1, SHORTEST_WAIT * t), LONGEST_WAIT * max(1, t))))


RULES: dict[str, Callable[..., Stopping]] = {
    "weights": WeightsStill,
    "average": AverageStill,
    "objective": ObjectiveStill,
    "gap": GapBelow,
}


def stopping_rule(name: str | None, tol: float | None) -> Stopping | None:
    """The rule called ``name``, at its own tolerance unless told; None never fires."""
    if name is None:
        return None
    rule = lookup("stopping rule", name, RULES)
    return rule() if tol is None else rule(tol=tol)
