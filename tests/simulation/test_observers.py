"""Observers: what a view shows, what they add and stop, and NodeRecords."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from gadget_svm import GadgetSVC, NodeRecords, Observer
from gadget_svm.simulation.runtime import View
from support.scripted_runtime import Script, layout, trained
from support.watch import Watch, watched

QUICK = {"lam": 0.05, "max_iter": 20, "stopping": None, "record_every": 10, "random_state": 0}


def whole(coef, intercept):
    return np.concatenate([coef, intercept[..., None]], axis=-1)


def test_observer_may_add_to_a_record():
    def add(record, view):
        record["total"] = float(view.average.sum())

    outcome, _ = trained(Script(lambda t: t), max_iter=3, record_every=1, observers=[Watch(add)])
    assert [record["total"] for record in outcome.history] == [3.0, 6.0, 9.0]


def test_base_class_needs_nothing(toy):
    assert GadgetSVC(3, observers=[Observer()], **QUICK).fit(toy.X, toy.y).n_iter_ == 20


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
@pytest.mark.parametrize("labels", ["y", "three"])
def test_view_has_every_nodes_model(toy, algorithm, labels):
    """With columns that occur in no row, which PDMM leaves out, and sites with names."""
    views, empty = [], np.zeros((60, 7))
    X, sites = sp.csr_matrix(np.hstack([toy.X[:, :2], empty, toy.X[:, 2:]])), np.array(list("abc"))[toy.sites]
    model = GadgetSVC(algorithm=algorithm, **QUICK)
    watched(model, lambda _, view: views.append(view)).fit(X, getattr(toy, labels), sites=sites)
    last, outputs = views[-1], 1 if labels == "y" else 3
    assert len(views) == 2
    assert list(last.sites) == ["a", "b", "c"]
    assert last.live_mask.tolist() == [True] * 3
    assert last.models.shape == (3, outputs, 13)
    nodes = whole(model.node_coef_, model.node_intercept_)
    np.testing.assert_array_equal(last.models, nodes[:, None] if labels == "y" else nodes)
    np.testing.assert_array_equal(last.average, whole(model.coef_, model.intercept_))
    assert not last.models[..., 2:9].any()
    scores = last.evaluate(last.average[None])
    assert scores.objective[0] == model.history_[-1]["objective"]
    assert last.evaluate(last.models).objective.max() == model.history_[-1]["worst_objective"]


def test_view_keeps_its_models(toy):
    """The runtime overwrites its own in later iterations."""
    seen = []
    watched(GadgetSVC(3, **QUICK), lambda _, view: seen.append((view.models, view.models.copy()))).fit(toy.X, toy.y)
    for kept, copied in seen:
        np.testing.assert_array_equal(kept, copied)


def test_omitted_features_do_not_count():
    view = View(np.ones(2, dtype=bool), np.ones((2, 1, 3)), np.ones((1, 3)), layout(trained=[0, 2, 4], width=5))
    assert view.models.tolist() == [[[1, 0, 1, 0, 1]]] * 2
    np.testing.assert_array_equal(view.evaluate(view.models), layout().evaluate(np.ones((2, 1, 3))))


def test_node_records(toy):
    records = NodeRecords()
    model = GadgetSVC(3, observers=[records], **QUICK).fit(toy.X, toy.y)
    frame = records.to_frame()
    assert frame.columns.tolist() == ["iteration", "node", "live", "objective", "error", "distance"]
    assert frame.iteration.tolist() == [10, 10, 10, 20, 20, 20]
    assert frame.node.tolist() == [0, 1, 2] * 2
    last = frame[frame.iteration == 20]
    assert last.objective.max() == model.history_[-1]["worst_objective"]
    apart = whole(model.node_coef_, model.node_intercept_) - whole(model.coef_, model.intercept_)
    np.testing.assert_allclose(last.distance, np.linalg.norm(apart, axis=1))
    np.testing.assert_allclose(last.error, [1 - model.node(i).score(toy.X, toy.y) for i in range(3)])
    assert NodeRecords().to_frame().empty


def test_nodes_that_are_away_are_marked(toy):
    records = NodeRecords()
    GadgetSVC(3, observers=[records], faults={"crash": {"nodes": [1], "at": 5}}, **QUICK).fit(toy.X, toy.y)
    assert [row["live"] for row in records.rows] == [True, False, True] * 2


def test_observers_change_nothing(toy):
    plain = GadgetSVC(3, **QUICK).fit(toy.X, toy.y)
    seen = GadgetSVC(3, observers=[NodeRecords()], **QUICK).fit(toy.X, toy.y)
    np.testing.assert_array_equal(plain.node_coef_, seen.node_coef_)


def test_clone_has_observers_of_its_own(toy):
    model = GadgetSVC(3, observers=[NodeRecords()], **QUICK)
    other = clone(model).fit(toy.X, toy.y)
    assert len(other.observers[0].rows) == 6
    assert model.observers[0].rows == []


def test_verbose_prints_a_line_per_record(toy, capsys):
    GadgetSVC(3, verbose=1, **QUICK).fit(toy.X, toy.y)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["10", "20"]


@pytest.mark.parametrize(
    ("observers", "fix"), [(NodeRecords(), r"a list, such as"), ([NodeRecords], r"such as NodeRecords\(\)")]
)
def test_wrong_observers_name_the_fix(toy, observers, fix):
    with pytest.raises(TypeError, match=fix):
        GadgetSVC(3, observers=observers).fit(toy.X, toy.y)


def test_a_frame_without_pandas_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        NodeRecords().to_frame()
