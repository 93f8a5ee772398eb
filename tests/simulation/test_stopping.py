"""Stopping rules: when they look, when they fire, and rules from outside the package."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from gadget_svm import BaseStoppingRule, GadgetSVC
from gadget_svm.core import registry
from gadget_svm.simulation import trainer
from gadget_svm.simulation.stopping import (
    RULES,
    AverageStill,
    GapBelow,
    ObjectiveStill,
    WeightsStill,
    geometric,
    stopping_rule,
)
from support.scripted_runtime import Script, flat_objective, trained


@given(t=st.integers(0, 10**6), growth=st.floats(1.01, 3))
def test_marks_grow_by_the_factor(t, growth):
    mark = geometric(t, growth)
    assert t < mark <= max(t + 1, int(t * growth) + 1)


def test_weights_rule():
    """ "do not change more than" epsilon from one iteration to the next: 1/t moves by less than 0.001 at t = 33."""
    outcome, _ = trained(lambda t: 1 / t / np.sqrt(3), WeightsStill())
    assert (outcome.converged, outcome.n_iter) == (True, 33)
    assert outcome.movement == pytest.approx(1 / 32 - 1 / 33)


def test_average_rule_compares_ever_longer_windows():
    """An average that creeps is not still, however little it moves in one iteration."""
    creeping, _ = trained(lambda t: t**0.5, AverageStill(), max_iter=100_000)
    assert not creeping.converged
    settling, _ = trained(lambda t: 5 + 1 / t, AverageStill())
    assert settling.converged
    assert settling.movement < 0.05


def test_objective_rule_needs_three_quiet_checks():
    outcome, runtime = trained(lambda _: 1.0, ObjectiveStill())
    assert outcome.converged
    checks = [t for t in range(1, 1000) if t == geometric(t - 1) and t >= 100][:4]
    assert runtime.t == checks[3]  # the first has nothing to compare with


def checks_of(bound, rule=None, max_iter=1000):
    """A run whose certificates have the bound ``bound(t)``, and the iterations at which they were made."""
    runtime, seen = Script(lambda t: t), []
    certify = runtime.certify

    def noted():
        seen.append(runtime.t)
        return replace(certify(), bounds=np.array([bound(runtime.t)]))

    runtime.certify = noted
    return trained(runtime, rule or GapBelow(), max_iter)[0], seen


def test_gap_rule_certifies_and_its_messages_count():
    outcome, runtime = trained(lambda t: t, GapBelow(), record_every=60)
    assert outcome.converged
    assert outcome.movement == 1 / outcome.n_iter <= 0.01
    assert [record["iteration"] for record in outcome.history] == [60, outcome.n_iter]
    assert outcome.history[-1]["bound"] == outcome.movement
    assert outcome.history[-1]["messages"] == runtime.messages > 2 * outcome.n_iter
    certified = flat_objective()(np.full((1, 1, 3), 7.0)).objective[0]
    assert outcome.history[-1]["objective"] == outcome.history[-1]["worst_objective"] == pytest.approx(certified)


def test_gap_rule_certifies_a_good_model_early():
    """2,000,000 rows were 0.012 % off at iteration 4."""
    assert checks_of(lambda _: 0.002)[1] == [4]


@pytest.mark.parametrize("factor", [0.5, 0.8, 0.95, 0.99])
def test_gap_rule_predicts_falling_bounds(factor):
    """The last of few certificates comes soon after the first iteration at which it can succeed."""
    outcome, seen = checks_of(lambda t: 4 * factor**t)
    first = next(t for t in range(1, 1000) if 4 * factor**t <= 0.01)
    assert outcome.converged
    assert outcome.n_iter <= 4 + 1.3 * first
    assert len(seen) <= 9


@pytest.mark.parametrize(
    "bound", [lambda _: 0.02, lambda t: 0.02 + 1 / t, lambda _: np.inf], ids=["rest", "slow", "none"]
)
def test_gap_rule_needs_a_bound_of_at_most_tol(bound):
    """An objective at rest at twice the tolerance is not converged, and few certificates are tried."""
    outcome, seen = checks_of(bound)
    assert (outcome.reason, outcome.converged, outcome.certificate) == ("max_iter", False, None)
    assert len(seen) < 30
    assert seen[-1] == 1000


def test_gap_rule_looks_at_the_last_iteration():
    """Certificates are due at the iterations 4 and 8."""
    outcome, _ = trained(lambda t: t, GapBelow(tol=1 / 6), max_iter=7)
    assert (outcome.reason, outcome.n_iter) == ("converged", 7)
    missed, _ = trained(lambda t: t, GapBelow(tol=1 / 8), max_iter=7)
    assert (missed.reason, missed.movement, missed.certificate) == ("max_iter", 1 / 7, None)


def test_certificates_count_as_training_time(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(trainer.time, "perf_counter", lambda: clock[0])
    outcome, _ = trained(Script(lambda t: t, clock), GapBelow(tol=1 / 8))
    assert (outcome.n_iter, outcome.seconds) == (9, 9 + 3 * 3)


# all rules


@pytest.mark.parametrize("name", sorted(RULES))
def test_rule_that_is_not_met_ends_at_max_iter(name):
    outcome, _ = trained(lambda t: (-1) ** t * 2.0**t if t < 500 else t, stopping_rule(name, 1e-9), max_iter=300)
    assert (outcome.reason, outcome.n_iter, outcome.converged) == ("max_iter", 300, False)


@pytest.mark.parametrize("name", sorted(RULES))
def test_rule_has_what_the_protocol_declares(name):
    rule = stopping_rule(name, None)
    assert rule.tol > 0
    assert rule.value == np.inf
    assert rule.certificate is None
    assert {type(rule.needs_objective), type(rule.certifies)} == {bool}
    assert stopping_rule(name, 0.2).tol == 0.2
    assert all(rule.next_check(t) > t for t in (0, 5, 1000))


def test_rules_by_name():
    assert stopping_rule(None, 0.1) is None
    assert stopping_rule("weights", None).tol == 1e-3  # the paper's epsilon
    assert stopping_rule("gap", None).tol == 0.01
    with pytest.raises(ValueError, match="Did you mean 'average'"):
        stopping_rule("averge", None)


# rules from outside


class After(BaseStoppingRule):
    """Fires at an iteration, which it counts down."""

    tol = 0.25

    def __init__(self, left):
        self.left = left

    def fires(self, runtime, objective):  # noqa: ARG002
        self.left -= 1
        return self.left == 0


def test_rule_as_object(toy):
    """It is copied: a model is fitted twice with the same result."""
    model = GadgetSVC(3, stopping=After(7), random_state=0)
    for each in (model, clone(model)):
        for _ in range(2):
            each.fit(toy.X, toy.y)
            assert (each.n_iter_, each.converged_, each.stopping_, each.tol_) == (7, True, "After", 0.25)
    assert model.stopping.left == 7


def test_rule_from_an_entry_point(toy, monkeypatch):
    class Point:
        name = "after-five"

        def load(self):
            return lambda tol=0.0: After(5)  # noqa: ARG005

    monkeypatch.setattr(registry, "entry_points", lambda group: [Point()] if group == "gadget_svm.stopping" else [])
    monkeypatch.delitem(vars(RULES), "_outside", raising=False)
    monkeypatch.setattr(RULES, "_members", dict(RULES._members))
    assert GadgetSVC(3, stopping="after-five", random_state=0).fit(toy.X, toy.y).n_iter_ == 5


def test_wrong_rules_name_the_fix(toy):
    with pytest.raises(TypeError, match=r"an instance of a class .* such as After\(\)"):
        GadgetSVC(3, stopping=After).fit(toy.X, toy.y)
    with pytest.raises(TypeError, match=r"a class that derives from gadget_svm.BaseStoppingRule, .* got 5"):
        GadgetSVC(3, stopping=5).fit(toy.X, toy.y)
    with pytest.raises(ValueError, match="set the tolerance on the stopping object"):
        GadgetSVC(3, stopping=After(3), tol=0.1).fit(toy.X, toy.y)
