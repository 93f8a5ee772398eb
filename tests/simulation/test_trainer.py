"""The loop around a runtime: limits, records and the mean."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from gadget_svm import Gadget, GadgetSVC
from gadget_svm.simulation import trainer
from gadget_svm.simulation.stopping import GapBelow
from gadget_svm.simulation.trainer import disagreement, network_mean
from support.scripted_runtime import Script, flat_objective, trained
from support.watch import Watch, watched

NAMES = {"iteration", "seconds", "objective", "worst_objective", "error", "disagreement", "messages", "bytes"}


def test_max_seconds_counts_training_time(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(trainer.time, "perf_counter", lambda: clock[0])
    outcome, _ = trained(Script(lambda t: t, clock), max_seconds=5.0)
    assert (outcome.reason, outcome.n_iter, outcome.seconds) == ("max_seconds", 5, 5.0)
    assert not outcome.converged
    assert outcome.history[-1]["iteration"] == 5


def test_stop_request():
    asked = iter([False] * 3 + [True] * 9)
    outcome, runtime = trained(lambda t: t, max_iter=10**9, observers=[Watch(should_stop=lambda: next(asked))])
    assert (outcome.reason, outcome.converged) == ("interrupted", False)
    assert outcome.n_iter == runtime.t == outcome.history[-1]["iteration"] > 0


def test_stop_before_the_first_iteration():
    outcome, _ = trained(lambda _: 0.0, observers=[Watch(should_stop=lambda: True)])
    assert outcome.n_iter == 0
    assert outcome.history[0]["objective"] == pytest.approx(1.0)  # the loss at w = 0


@pytest.mark.parametrize(
    ("every", "wanted"),
    [(7, [7, 14, 20]), (1, list(range(1, 21))), (0, [20]), (50, [20]), (None, [4, 16, 20])],
)
def test_record_every(every, wanted):
    outcome, _ = trained(lambda t: t, max_iter=20, record_every=every)
    assert [record["iteration"] for record in outcome.history] == wanted


def test_records_evaluate_all_nodes_only_where_asked():
    """The history must cost next to nothing; who says how often to record has the worst node in every record."""
    counts = []

    def counted(models):
        counts.append(len(models))
        return flat_objective()(models)

    history = trained(lambda t: t, max_iter=20, record_every=None, evaluate=counted)[0].history
    assert counts == [1, 1, 1, 2]
    assert ["worst_objective" in record for record in history] == [False, False, True]
    history = trained(lambda t: t, max_iter=20, record_every=10, evaluate=counted)[0].history
    assert all("worst_objective" in record for record in history)


def test_certified_model_is_evaluated_once():
    counts = []

    def counted(models):
        counts.append(len(models))
        return flat_objective()(models)

    assert trained(lambda t: t, GapBelow(tol=1 / 3), 20, evaluate=counted)[0].converged
    assert counts == [1]


@pytest.mark.parametrize(("nodes", "name"), [(200, "worst_objective"), (201, "worst_sampled_objective")])
def test_worst_of_a_sample(nodes, name):
    runtime = Script(lambda t: t)
    runtime.models = lambda: np.full((nodes, 1, 3), 7.0)
    runtime.live_row_weights = lambda: np.ones(nodes)
    (record,) = trained(runtime, max_iter=3)[0].history
    assert {key for key in record if key.startswith("worst")} == {name}


def test_iterations_are_run_together():
    """Nothing to look at until the end: a fast runtime is not called iteration by iteration."""
    _, runtime = trained(lambda t: t, max_iter=100_000)
    assert len(runtime.calls) < 1000


def test_record_values(toy):
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
def test_message_count(toy, gossip, messages):
    """On the complete graph of 4: one to each of 3 neighbours, or one to one of them."""
    for rounds in (1, 3):
        algorithm = Gadget(gossip=gossip, gossip_rounds=rounds)
        model = GadgetSVC(4, "complete", algorithm=algorithm, max_iter=10, stopping=None).fit(toy.X, toy.y)
        assert model.history_[-1]["messages"] == 10 * rounds * messages


def test_network_mean_and_disagreement():
    models = np.array([[[0.0, 4.0]], [[4.0, 0.0]]])
    mean = network_mean(models, np.array([1.0, 3.0]))
    np.testing.assert_allclose(mean, [[3.0, 1.0]])
    assert disagreement(models, mean) == pytest.approx(np.sqrt(18) / np.sqrt(10))
    assert disagreement(np.zeros((2, 1, 2)), np.zeros((1, 2))) == 0


@pytest.mark.parametrize(("name", "tol"), [("average", 0.3), ("objective", 0.2), ("weights", 2.0)])
def test_converged_fit(toy, name, tol, recwarn):
    model = GadgetSVC(4, lam=0.05, stopping=name, tol=tol, random_state=0).fit(toy.X, toy.y)
    assert model.converged_ is True
    assert model.n_iter_ < model.max_iter
    assert model.movement_ <= tol
    assert model.stopped_by_ == "converged"
    assert not [w for w in recwarn if issubclass(w.category, ConvergenceWarning)]


def test_fit_that_does_not_converge(toy):
    """The paper's rule cannot fire with a small lam; the fit says so and is usable all the same."""
    with pytest.warns(ConvergenceWarning, match="stopped at max_iter=50"):
        model = GadgetSVC(4, algorithm="gadget", stopping="weights", max_iter=50).fit(toy.X, toy.y)
    assert model.converged_ is False
    assert model.n_iter_ == 50
    assert model.predict(toy.X).shape == (60,)


def test_no_rule_no_warning(toy, recwarn):
    model = GadgetSVC(4, stopping=None, max_iter=20).fit(toy.X, toy.y)
    assert (model.converged_, model.stopped_by_, model.n_iter_) == (False, "max_iter", 20)
    assert not [w for w in recwarn if issubclass(w.category, ConvergenceWarning)]


def test_max_seconds_ends_a_fit(toy):
    model = GadgetSVC(4, stopping=None, max_iter=10**9, max_seconds=0.05, record_every=0).fit(toy.X, toy.y)
    assert (model.converged_, model.stopped_by_) == (False, "max_seconds")
    assert 0 < model.n_iter_ < 10**9
    assert len(model.history_) == 1


def test_interruption_records_once(toy):
    """The request to stop may come right after a record: nothing has changed since, so there is no other one."""
    seen = []
    model = GadgetSVC(n_nodes=3, algorithm="gadget", stopping=None, random_state=0)
    watched(model, lambda record, _: seen.append(record), lambda: len(seen) > 4).fit(toy.X, toy.y)
    iterations = [record["iteration"] for record in model.history_]
    assert model.stopped_by_ == "interrupted"
    assert iterations == sorted(set(iterations)) == [record["iteration"] for record in seen]
    assert iterations[-1] == model.n_iter_


def test_should_stop_ends_a_fit(toy):
    seen = []
    model = GadgetSVC(4, max_iter=10**9, stopping=None, record_every=10)
    watched(model, lambda record, _: seen.append(record), lambda: len(seen) > 2).fit(toy.X, toy.y)
    assert (model.converged_, model.stopped_by_) == (False, "interrupted")
    assert [record["iteration"] for record in seen[:3]] == [10, 20, 30]
    assert model.score(toy.X, toy.y) > 0.7
