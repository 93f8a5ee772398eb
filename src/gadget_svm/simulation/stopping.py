"""Stopping rules, by name or as objects: each chooses when it looks at the runtime, and decides whether to stop.

`GapBelow` also decides when the next certificate is made. The messages of certificates count as messages of the run;
the other rules send none. To add a rule, add a class and an entry of `RULES`.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from gadget_svm.algorithms.certificate import Certificate
from gadget_svm.core.lookup import lookup, require_instance
from gadget_svm.core.registry import Registry
from gadget_svm.core.types import Floats
from gadget_svm.kernels.vectors import distances
from gadget_svm.simulation.runtime import Runtime

CHECK_GROWTH = 1.25
"""The factor between the iterations of two checks of a slow rule: an average moves less and less, so windows must
grow."""

FIRST_CERTIFICATE_ITERATION = 4
"""The iteration of the first certificate: with large shards, models are within one per cent of the optimum by then."""
PREDICTION_MARGIN = 1.5
"""A predicted number of iterations is multiplied by this factor: bounds fall more and more slowly, and a certificate
takes as long as several iterations of a small network."""
ASSUMED_DECAY_POWER = 3.5
"""After the first certificate, bounds are assumed to fall with this power of the iteration."""
MAX_WAIT, MIN_WAIT = 1.5, 1 / 16
"""The most and the fewest iterations until the next certificate, as a multiple of the iterations so far."""
QUIET_CHECKS = 3
"""The number of checks in a row at which the objective must not change by more than tol."""


class BaseStoppingRule:
    """Defaults of a stopping rule: it needs nothing, looks at every iteration and never certifies.

    Give an instance to ``GadgetSVC(stopping=...)``, which copies it for every fit.

    Attributes
    ----------
    tol : float
        The tolerance.
    value : float
        The figure last compared with ``tol``; infinite before the first check.
    needs_objective : bool
        Whether `fires` reads the objective of the average model, which takes a pass over all rows.
    certifies : bool
        Whether the rule calls `Runtime.certify`, which lets the nodes exchange messages. It then needs an algorithm
        that can be certified, and its time counts as training time.
    certificate : Certificate or None
        The last certificate.

    Examples
    --------
    >>> from gadget_svm import BaseStoppingRule, GadgetSVC
    >>> class After(BaseStoppingRule):
    ...     def __init__(self, messages):
    ...         self.messages = messages
    ...     def fires(self, runtime, objective):
    ...         return runtime.messages >= self.messages
    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [0.0, 2.0]], [0, 1, 1, 0]
    >>> model = GadgetSVC(2, lam=0.1, stopping=After(messages=20), random_state=0).fit(X, y)
    >>> model.converged_, model.n_iter_
    (True, 10)
    """

    tol: float = 0.0
    value: float = np.inf
    needs_objective: bool = False
    certifies: bool = False
    certificate: Certificate | None = None

    def next_check(self, t: int) -> int:
        """Return the next iteration after t at which `fires` is called: by default every iteration."""
        return t + 1

    def fires(self, runtime: Runtime, objective: float) -> bool:
        """Return whether to stop here. ``objective`` is 0 unless ``needs_objective``."""
        raise NotImplementedError(f"{type(self).__name__} needs a method fires(runtime, objective)")


StoppingRule = BaseStoppingRule
"""Decides when a training stops: the training calls `fires` at the iterations that `next_check` names."""


def geometric(t: int, growth: float = CHECK_GROWTH) -> int:
    """Return the next number after t in a sequence 1, 2, 3, ... that grows by ``growth``, or by 1 at least."""
    mark = 1
    while mark <= t:
        mark = max(mark + 1, int(mark * growth))
    return mark


@dataclass
class WeightsStill(BaseStoppingRule):
    """The paper's rule: "local weight vectors ... do not change more than" epsilon from one iteration to the next."""

    tol: float = 1e-3
    before: Floats | None = None

    def fires(self, runtime: Runtime, objective: float) -> bool:  # noqa: ARG002
        """Return whether no node's vector moved by more than tol."""
        now = runtime.weights()
        if self.before is not None:
            self.value = float(distances(now, self.before).max())
        self.before = now
        return self.value <= self.tol


@dataclass
class _GeometricChecks(BaseStoppingRule):
    """A rule whose checks are further and further apart."""

    tol: float = 0.01
    first_check: int = 100

    def next_check(self, t: int) -> int:
        """Return the next check after t; the checks are in geometric steps."""
        return max(geometric(t), self.first_check)


@dataclass
class AverageStill(_GeometricChecks):
    """Stop if no averaged iterate moved by more than tol since the last check, relative to its length.

    The iterations between checks grow by a fixed factor, so the rule does not stop only because one more iterate hardly
    changes a long average.
    """

    tol: float = 0.05
    before: Floats | None = None

    def fires(self, runtime: Runtime, objective: float) -> bool:  # noqa: ARG002
        """Return whether every node's average moved by at most tol of its length."""
        now = runtime.models()
        if self.before is not None:
            lengths = np.maximum(distances(now, np.zeros(now.shape[1:])), 1e-300)
            self.value = float((distances(now, self.before) / lengths).max())
        self.before = now
        return self.value <= self.tol


@dataclass
class ObjectiveStill(_GeometricChecks):
    """Stop if the objective of the average model changes by at most tol, relative to it, at three checks in a row."""

    before: float | None = None
    quiet_checks: int = 0
    needs_objective: bool = True

    def fires(self, runtime: Runtime, objective: float) -> bool:  # noqa: ARG002
        """Return whether the objective changed by at most tol at each of the last checks."""
        if self.before is not None:
            self.value = abs(objective - self.before) / max(abs(objective), 1e-300)
        self.before = objective
        self.quiet_checks = self.quiet_checks + 1 if self.value <= self.tol else 0
        return self.quiet_checks >= QUIET_CHECKS


@dataclass
class RoundsDone(BaseStoppingRule):
    """Stop when all planned iterations are done. Private trainings use it, as they must not look at rows."""

    rounds: int

    def next_check(self, t: int) -> int:  # noqa: ARG002
        """Return the last planned iteration."""
        return self.rounds

    def fires(self, runtime: Runtime, objective: float) -> bool:  # noqa: ARG002
        """Return whether the last planned iteration is done."""
        self.value = max(0.0, float(self.rounds - runtime.t))
        return self.value == 0.0


@dataclass
class GapBelow(BaseStoppingRule):
    """Stop when a model is certified, without a server, to be at most tol above the optimum, relative to it.

    A certificate costs about as much computation as an iteration, two vectors per node, and a few times the network's
    depth in exchanges. So the next certificate is made at the iteration for which the last two predict a bound of at
    most tol, if bounds keep falling by the same factor in every iteration. A certificate that fails because a node left
    a moment ago is tried again in the next iteration.
    """

    tol: float = 0.01
    certifies: bool = True
    last_check: int = 0
    due: int = FIRST_CERTIFICATE_ITERATION

    def next_check(self, t: int) -> int:
        """Return the iteration at which the bound is predicted to be at most tol."""
        return max(t + 1, self.due)

    def fires(self, runtime: Runtime, objective: float) -> bool:  # noqa: ARG002
        """Return whether the certified bound is at most tol."""
        self.certificate = runtime.certify()
        if self.certificate.failure and not self.certificate.exchanges:
            self.value, self.due = np.inf, runtime.t + 1
            return False
        self.due = runtime.t + self._wait(runtime.t, self.certificate.relative)
        self.last_check, self.value = runtime.t, self.certificate.relative
        return self.value <= self.tol

    def _wait(self, t: int, bound: float) -> int:
        """Return the iterations until the next certificate, from the last bound, ``value``, and the new one."""
        if not np.isfinite(bound) or bound <= self.tol:
            return max(1, int(MAX_WAIT * t))
        if self.tol < bound < self.value < np.inf and t > self.last_check:
            rate = np.log(self.value / bound) / (t - self.last_check)
            wait = PREDICTION_MARGIN * np.log(bound / self.tol) / rate
        else:
            wait = t * ((bound / self.tol) ** (1 / ASSUMED_DECAY_POWER) - 1)
        return int(np.ceil(np.clip(wait, max(1, MIN_WAIT * t), MAX_WAIT * max(1, t))))


RULES: Registry[Callable[..., StoppingRule]] = Registry(
    "gadget_svm.stopping",
    {"weights": WeightsStill, "average": AverageStill, "objective": ObjectiveStill, "gap": GapBelow},
)
"""The rules by name; packages add theirs by entry points of the group "gadget_svm.stopping"."""


def stopping_rule(rule: Any, tol: float | None) -> StoppingRule | None:
    """Return a rule that is ready for one training.

    Parameters
    ----------
    rule : str, StoppingRule or None
        A name, or an object, of which a copy is used; None: no rule, only limits end the training.
    tol : float or None
        The tolerance, if ``rule`` is a name; None: the rule's default.
    """
    if rule is None:
        return None
    if isinstance(rule, str):
        make = lookup("stopping rule", rule, RULES)
        return make() if tol is None else make(tol=tol)
    kind = "an instance of a class that derives from gadget_svm.BaseStoppingRule"
    expected = f"stopping is None, a name ({', '.join(RULES)}) or {kind}"
    require_instance(rule, BaseStoppingRule, expected, "GapBelow()")
    if tol is not None:
        fix = "set the tolerance on the stopping object, and leave out tol"
        raise ValueError(f"tol={tol!r} is for rules by name: {fix}")
    own: StoppingRule = deepcopy(rule)
    return own
