"""The loop around a runtime: stopping rules, limits and records."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from gadget_svm import Gadget, GadgetSVC
from gadget_svm.algorithms.certificate import Certificate
from gadget_svm.core.objective import Objective
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
from gadget_svm.simulation.trainer import Limits, disagreement, network_mean, train

NAMES = {"iteration", "seconds", "objective", "worst_objective", "error", "disagreement", "messages", "bytes"}


class Script:
    """A runtime of two nodes whose weights follow a script: w_t = path(t)."""

    def __init__(self, path, clock=None):
        self.path, self.t, self.messages, self.nbytes, self.calls, self.clock = path, 0, 0, 0, [], clock

    def warm_up(self):
        """Nothing to compile."""

    def advance(self, count):
        self.t, self.messages = self.t + count, self.messages + 2 * count
        self.calls.append(count)
        if self.clock is not None:
            self.clock[0] += count

    def weights(self):
        return np.full((2, 1, 3), float(self.path(self.t)))

    models = weights

    def live_row_weights(self):
        return np.array([1.0, 3.0])

    def live_mask(self):
        return np.array([True, True])

    def certify(self):
        """A bound of 1/t for the model w_t = 7, which takes two messages and, where there is a clock, three seconds."""
        self.messages += 2
        if self.clock is not None:
            self.clock[0] += 3
        bound = np.array([1 / self.t])
        return Certificate(np.full((1, 3), 7.0), 0, bound, np.ones(1), 2.0, 2, 5, 2, 100, nodes=np.arange(2))


def flat_objective():
    label = np.array([0, 1], dtype=np.int32)
    return Objective(sp.csr_matrix(np.eye(2, 3)), label, np.ones(2), np.ones(2), 0.1, 1)


def trained(path, rule=None, max_iter=1000, record_every=0, **more):
    runtime = Script(path)
    limits = Limits(max_iter, **more)
    return train(runtime, flat_objective(), rule, limits, record_every), runtime


@given(t=st.integers(0, 10**6), stride=st.floats(1.01, 3))
def test_marks_rise_and_grow_by_the_stride(t, stride):
    mark = geometric(t, stride)
    assert t < mark <= max(t + 1, int(t * stride) + 1)


def test_the_papers_rule_fires_when_no_weight_vector_moves_more_than_epsilon():
    """ "do not change more than" epsilon from one iteration to the next: 1/t moves by less than 0.001 at t = 33."""
    outcome, _ = trained(lambda t: 1 / t / np.sqrt(3), WeightsStill())
    assert outcome.converged
    assert outcome.n_iter == 33
    assert outcome.movement == pytest.approx(1 / 32 - 1 / 33)


def test_the_average_rule_compares_ever_longer_windows():
    """An average that creeps for ever is not still, however little it moves in one iteration."""
    creeping, _ = trained(lambda t: t**0.5, AverageStill(), max_iter=100_000)
    assert not creeping.converged
    settling, _ = trained(lambda t: 5 + 1 / t, AverageStill())
    assert settling.converged
    assert settling.movement < 0.05


def test_the_objective_rule_asks_for_three_quiet_checks():
    outcome, runtime = trained(lambda _: 1.0, ObjectiveStill())
    assert outcome.converged
    checks = [t for t in range(1, 1000) if t == geometric(t - 1) and t >= 100][:4]
    assert runtime.t == checks[3]  # the first has nothing to compare with


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_rule_that_cannot_be_met_ends_at_max_iter(name):
    outcome, _ = trained(lambda t: (-1) ** t * 2.0**t if t < 500 else t, stopping_rule(name, 1e-9), max_iter=300)
    assert (outcome.reason, outcome.n_iter, outcome.converged) == ("max_iter", 300, False)


def checks_of(bound, rule=None, max_iter=1000):
    """A run whose certificates say ``bound(t)``, and the iterations at which they were made."""
    runtime, seen = Script(lambda t: t), []
    certify = runtime.certify

    def noted():
        seen.append(runtime.t)
        return replace(certify(), bounds=np.array([bound(runtime.t)]))

    runtime.certify = noted
    return train(runtime, flat_objective(), rule or GapBelow(), Limits(max_iter), 0), seen


def test_the_gap_rule_fires_when_the_certified_bound_is_below_its_tolerance():
    outcome, runtime = trained(lambda t: t, GapBelow(), record_every=60)
    assert outcome.reason == "converged"
    assert outcome.movement == outcome.certificate.relative == 1 / outcome.n_iter <= 0.01
    assert outcome.n_iter <= 130  # the first iteration that can be certified is 100
    assert [record["iteration"] for record in outcome.history] == [60, outcome.n_iter]
    assert outcome.history[-1]["bound"] == outcome.movement
    assert outcome.history[-1]["messages"] == runtime.messages > 2 * outcome.n_iter  # certificates' are among them
    certified = flat_objective()(np.full((1, 1, 3), 7.0)).objective[0]
    assert outcome.history[-1]["objective"] == outcome.history[-1]["worst_objective"] == pytest.approx(certified)


def test_a_model_that_is_good_at_once_is_certified_at_once():
    """2,000,000 rows were 0.012 % off at iteration 4."""
    assert checks_of(lambda _: 0.002)[1] == [4]


@pytest.mark.parametrize("factor", [0.5, 0.8, 0.95, 0.99])
def test_bounds_that_fall_by_a_factor_are_predicted(factor):
    """The last of few certificates comes soon after the first iteration at which it can succeed."""
    outcome, seen = checks_of(lambda t: 4 * factor**t)
    first = next(t for t in range(1, 1000) if 4 * factor**t <= 0.01)
    assert outcome.converged
    assert outcome.n_iter <= 4 + 1.3 * first
    assert len(seen) <= 9


@pytest.mark.parametrize(
    "bound", [lambda _: 0.02, lambda t: 0.02 + 1 / t, lambda _: np.inf], ids=["rest", "slow", "none"]
)
def test_converged_is_a_certified_bound_of_at_most_tol(bound):
    """An objective that has come to rest at twice the tolerance is not converged, and few certificates are tried."""
    outcome, seen = checks_of(bound)
    assert (outcome.reason, outcome.converged, outcome.certificate) == ("max_iter", False, None)
    assert len(seen) < 30
    assert seen[-1] == 1000


def test_a_certificate_is_work_of_the_nodes_and_counts_as_time(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(trainer.time, "perf_counter", lambda: clock[0])
    runtime = Script(lambda t: t, clock)
    outcome = train(runtime, flat_objective(), GapBelow(tol=1 / 8), Limits(1000), 0)
    assert (outcome.n_iter, outcome.seconds) == (9, 9 + 3 * 3)


def test_the_gap_rule_has_a_last_look_at_the_last_iteration():
    """Certificates are due at the iterations 4 and 8."""
    outcome, _ = trained(lambda t: t, GapBelow(tol=1 / 6), max_iter=7)
    assert (outcome.reason, outcome.n_iter) == ("converged", 7)
    missed, _ = trained(lambda t: t, GapBelow(tol=1 / 8), max_iter=7)
    assert (missed.reason, missed.movement, missed.certificate) == ("max_iter", 1 / 7, None)


def test_rules_by_name_with_their_own_tolerance_unless_told():
    assert stopping_rule(None, None) is None
    assert stopping_rule("weights", None).tol == 1e-3  # the paper's epsilon
    assert stopping_rule("average", 0.2).tol == 0.2
    assert stopping_rule("gap", None).tol == 0.01
    with pytest.raises(ValueError, match="Did you mean 'average'"):
        stopping_rule("averge", None)


def test_max_seconds_counts_training_time_alone(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(trainer.time, "perf_counter", lambda: clock[0])
    runtime = Script(lambda t: t, clock)
    outcome = train(runtime, flat_objective(), None, Limits(1000, max_seconds=5.0), 0)
    assert (outcome.reason, outcome.n_iter, outcome.seconds) == ("max_seconds", 5, 5.0)
    assert not outcome.converged
    assert outcome.history[-1]["iteration"] == 5


def test_a_request_to_stop_is_heard_and_the_last_state_recorded():
    asked = iter([False] * 3 + [True] * 9)
    outcome, runtime = trained(lambda t: t, max_iter=10**9, should_stop=lambda: next(asked))
    assert (outcome.reason, outcome.converged) == ("interrupted", False)
    assert outcome.n_iter == runtime.t == outcome.history[-1]["iteration"] > 0


def test_a_request_before_the_first_iteration_leaves_a_record_of_nothing():
    outcome, _ = trained(lambda _: 0.0, should_stop=lambda: True)
    assert outcome.n_iter == 0
    assert outcome.history[0]["objective"] == pytest.approx(1.0)  # the loss at w = 0


@pytest.mark.parametrize(
    ("every", "wanted"),
    [(7, [7, 14, 20]), (1, list(range(1, 21))), (0, [20]), (50, [20]), (None, [4, 8, 16, 20])],
)
def test_records_are_kept_as_often_as_asked_and_at_the_end(every, wanted):
    outcome, _ = trained(lambda t: t, max_iter=20, record_every=every)
    assert [record["iteration"] for record in outcome.history] == wanted


def test_by_default_a_record_evaluates_one_model_and_the_last_one_all_nodes():
    """The history must cost next to nothing; who says how often to record has the worst node in every record."""
    counts = []

    def counted(models):
        counts.append(len(models))
        return flat_objective()(models)

    history = train(Script(lambda t: t), counted, None, Limits(20)).history
    assert counts == [1, 1, 1, 1, 2]
    assert ["worst_objective" in record for record in history] == [False, False, False, True]
    history = train(Script(lambda t: t), counted, None, Limits(20), 10).history
    assert all("worst_objective" in record for record in history)


def test_a_certified_model_is_evaluated_once():
    counts = []

    def counted(models):
        counts.append(len(models))
        return flat_objective()(models)

    assert train(Script(lambda t: t), counted, GapBelow(tol=1 / 3), Limits(20), 0).converged
    assert counts == [1]


@pytest.mark.parametrize(("nodes", "name"), [(200, "worst_objective"), (201, "worst_sampled_objective")])
def test_the_worst_of_a_sample_is_not_called_the_worst(nodes, name):
    runtime = Script(lambda t: t)
    runtime.models = lambda: np.full((nodes, 1, 3), 7.0)
    runtime.live_row_weights = lambda: np.ones(nodes)
    (record,) = train(runtime, flat_objective(), None, Limits(3), 0).history
    assert {key for key in record if key.startswith("worst")} == {name}


def test_long_stretches_are_run_at_once():
    """Nothing to look at until the end: a fast runtime is not called iteration by iteration."""
    _, runtime = trained(lambda t: t, max_iter=100_000)
    assert len(runtime.calls) < 1000


def test_observers_may_add_to_a_record():
    def observe(record, mean):
        record["accuracy"] = float(mean.sum())

    outcome = train(Script(lambda t: t), flat_objective(), None, Limits(3), 1, observe)
    assert [record["accuracy"] for record in outcome.history] == [3.0, 6.0, 9.0]


def test_a_record_says_what_its_names_say(toy):
    model = GadgetSVC(4, lam=0.05, algorithm="gadget", max_iter=30, stopping=None, record_every=10, random_state=0)
    model.fit(toy.X, toy.y)
    assert [record["iteration"] for record in model.history_] == [10, 20, 30]
    last = model.history_[-1]
    assert set(last) == NAMES

    def objective(w, b):
        margins = np.where(toy.y == 1, 1, -1) * (toy.X @ w + b)
        return 0.05 / 2 * (w @ w + b * b) + np.maximum(0, 1 - margins).mean()

    nodes = [objective(w, b) for w, b in zip(model.node_coef_, model.node_intercept_, strict=True)]
    assert last["objective"] == pytest.approx(objective(model.coef_[0], model.intercept_[0]))
    assert last["worst_objective"] == pytest.approx(max(nodes))
    assert last["error"] == pytest.approx(1 - model.score(toy.X, toy.y))
    full = np.c_[model.node_coef_, model.node_intercept_]
    mean = np.r_[model.coef_[0], model.intercept_]
    away = np.linalg.norm(full - mean, axis=1).max() / np.linalg.norm(mean)
    assert last["disagreement"] == pytest.approx(away)
    assert last["messages"] == 30 * 4  # Push-Sum: one message of every node an iteration
    assert last["bytes"] == 120 * (24 + 8 * (6 + 1))  # envelope, vector with its constant feature, weight
    assert last["seconds"] > 0


@pytest.mark.parametrize(("gossip", "messages"), [("diffusion", 4 * 3), ("push-sum", 4), ("running-sum", 4)])
def test_messages_are_counted_as_sent(toy, gossip, messages):
    """On the complete graph of 4: one to each of 3 neighbours, or one to one of them."""
    for rounds in (1, 3):
        algorithm = Gadget(gossip=gossip, gossip_rounds=rounds)
        model = GadgetSVC(4, "complete", algorithm=algorithm, max_iter=10, stopping=None).fit(toy.X, toy.y)
        assert model.history_[-1]["messages"] == 10 * rounds * messages


def test_the_network_mean_is_weighted_by_n_and_disagreement_is_the_farthest():
    models = np.array([[[0.0, 4.0]], [[4.0, 0.0]]])
    mean = network_mean(models, np.array([1.0, 3.0]))
    np.testing.assert_allclose(mean, [[3.0, 1.0]])
    assert disagreement(models, mean) == pytest.approx(np.sqrt(18) / np.sqrt(10))
    assert disagreement(np.zeros((2, 1, 2)), np.zeros((1, 2))) == 0


@pytest.mark.parametrize(("name", "tol"), [("average", 0.3), ("objective", 0.2), ("weights", 2.0)])
def test_a_fit_that_converges_says_so(toy, name, tol, recwarn):
    model = GadgetSVC(4, lam=0.05, stopping=name, tol=tol, random_state=0).fit(toy.X, toy.y)
    assert model.converged_ is True
    assert model.n_iter_ < model.max_iter
    assert model.movement_ <= tol
    assert model.stopped_by_ == "converged"
    assert not [w for w in recwarn if issubclass(w.category, ConvergenceWarning)]


def test_a_fit_that_does_not_converge_warns_and_keeps_its_models(toy):
    """The paper's rule cannot fire with a small lam; the fit says so and is usable all the same."""
    with pytest.warns(ConvergenceWarning, match="stopped at max_iter=50"):
        model = GadgetSVC(4, algorithm="gadget", stopping="weights", max_iter=50).fit(toy.X, toy.y)
    assert model.converged_ is False
    assert model.n_iter_ == 50
    assert model.predict(toy.X).shape == (60,)


def test_no_rule_is_no_promise_and_no_warning(toy, recwarn):
    model = GadgetSVC(4, stopping=None, max_iter=20).fit(toy.X, toy.y)
    assert (model.converged_, model.stopped_by_, model.n_iter_) == (False, "max_iter", 20)
    assert not [w for w in recwarn if issubclass(w.category, ConvergenceWarning)]


def test_a_time_budget_ends_a_fit_cleanly(toy):
    model = GadgetSVC(4, stopping=None, max_iter=10**9, max_seconds=0.05, record_every=0).fit(toy.X, toy.y)
    assert (model.converged_, model.stopped_by_) == (False, "max_seconds")
    assert 0 < model.n_iter_ < 10**9
    assert len(model.history_) == 1


def test_the_last_record_is_there_once_after_an_interruption(toy):
    """The request to stop may come right after a record: nothing has changed since, so there is no other one."""
    seen = []
    model = GadgetSVC(n_nodes=3, algorithm="gadget", stopping=None, random_state=0)
    model.fit_observed(toy.X, toy.y, observe=lambda record, _: seen.append(record), should_stop=lambda: len(seen) > 4)
    iterations = [record["iteration"] for record in model.history_]
    assert model.stopped_by_ == "interrupted"
    assert iterations == sorted(set(iterations)) == [record["iteration"] for record in seen]
    assert iterations[-1] == model.n_iter_


def test_should_stop_ends_a_fit_cleanly(toy):
    seen = []
    model = GadgetSVC(4, max_iter=10**9, stopping=None, record_every=10)
    model.fit_observed(toy.X, toy.y, observe=lambda record, _: seen.append(record), should_stop=lambda: len(seen) > 2)
    assert (model.converged_, model.stopped_by_) == (False, "interrupted")
    assert [record["iteration"] for record in seen[:3]] == [10, 20, 30]
    assert model.score(toy.X, toy.y) > 0.7
