"""When to stop: the rules by name. Each looks at the runtime at the iterations it asks for, and says yes or no.

All but one only look on: `GapBelow` lets the nodes certify a model among themselves, and what they send counts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gadget_svm.algorithms.certificate import Certificate
from gadget_svm.names import lookup
from gadget_svm.runtimes.contract import Runtime
from gadget_svm.runtimes.local import distances

Floats = NDArray[np.float64]
STRIDE = 1.25
"""Checks of slow rules come in geometric steps: an average moves ever less, so ever longer windows are compared."""


REST = 0.02
"""An objective that changes by no more than this part of itself from one check to the next has come to rest."""

LOOSE = 10.0


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

    A certificate costs about two ticks' bytes and a few times the network's depth in exchanges, so it is made in
    geometric steps. One that is refused since a node has only just left is tried again in the next iteration.
    """

    tol: float = 0.01
    value: float = np.inf
    certificate: Certificate | None = None
    least: int = 28
    certifies: bool = True

    def next_check(self, t: int) -> int:
        """In geometric steps; at once where the last try cost nothing."""
        if self.certificate is not None and self.certificate.failure and not self.certificate.exchanges:
            return t + 1
        return geometric(max(t, self.least - 1))

    def fires(self, runtime: Runtime, objective: float) -> bool:  # noqa: ARG002
        """Whether the certified bound is at most tol."""
        self.certificate = runtime.certify()
        self.value = self.certificate.relative
        return self.value <= self.tol


@dataclass
class CertifiedRest(GapBelow):
    """`GapBelow`, or the certified objective has come to rest: it changed by at most REST at three checks in a row.

    At rest a bound of LOOSE times the tolerance will do. On nearly separable data, whose optimum is next to zero, a
    small part of it may be thousands of iterations away when the model has long stopped changing its mind.
    """

    before: float = np.inf
    quiet: int = 0

    def fires(self, runtime: Runtime, objective: float) -> bool:
        """Whether the bound is at most tol, or the objective rests."""
        done = super().fires(runtime, objective)
        if self.certificate is None or self.certificate.failure:
            return done
        now = self.certificate.bound + float(self.certificate.duals.sum())
        self.quiet = self.quiet + 1 if abs(now - self.before) <= REST * abs(now) else 0
        self.before = now
        return done or (self.quiet >= 3 and self.value <= LOOSE * self.tol)


RULES: dict[str, Callable[..., Stopping]] = {
    "weights": WeightsStill,
    "average": AverageStill,
    "objective": ObjectiveStill,
    "gap": GapBelow,
    "certified": CertifiedRest,
}


def stopping_rule(name: str | None, tol: float | None) -> Stopping | None:
    """The rule called ``name``, at its own tolerance unless told; None never fires."""
    if name is None:
        return None
    rule = lookup("stopping rule", name, RULES)
    return rule() if tol is None else rule(tol=tol)
