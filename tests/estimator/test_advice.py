"""What a user is told about a fit that ended early: each sentence only where it is true."""

import re
import warnings
from ast import literal_eval

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from gadget_svm import Gadget, GadgetSVC
from gadget_svm.algorithms import Pdmm
from gadget_svm.estimator.advice import scale_advice

RAW, Y = load_breast_cancer(return_X_y=True)
SCALED = StandardScaler().fit_transform(RAW)


def told(X, y=Y, **params) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GadgetSVC(random_state=0, lam=1e-3, **params).fit(X, y)
    return " ".join(str(one.message) for one in caught)


@pytest.mark.parametrize("nodes", [1, 2, 3, 10])
def test_unscaled_features_are_told_whatever_the_number_of_nodes(nodes):
    assert "StandardScaler" in told(RAW, n_nodes=nodes, max_iter=60)


def test_scaled_features_are_not_blamed():
    said = told(SCALED, max_iter=5)
    assert "raise max_iter" in said
    assert "Scaler" not in said


@pytest.mark.parametrize(("tol", "shown"), [(None, "tol is 1 %)"), (0.2, "tol is 20 %)")])
def test_the_last_bound_is_told_beside_the_tolerance(tol, shown):
    assert shown in told(SCALED, n_nodes=1, max_iter=5, tol=tol)


def test_a_value_below_the_tolerance_is_told_with_what_is_missing():
    said = told(SCALED, stopping="objective", algorithm="pdmm", tol=0.5, max_iter=160)
    assert "at most tol in three checks in a row" in said
    assert "in a row" not in told(SCALED, stopping="weights", algorithm="pdmm", max_iter=5)


def test_large_features_of_one_size_are_told():
    X = load_digits().data
    assert "typical size" in scale_advice(sp.csr_matrix(X))
    assert not scale_advice(sp.csr_matrix(X / 16))
    assert not scale_advice(sp.csr_matrix((3, 2)))


def test_lost_mass_is_named_with_what_helps():
    lossy = {"n_nodes": 10, "max_iter": 100, "faults": "loss=0.3"}
    said = told(SCALED, algorithm=Gadget(gossip="push-sum"), **lossy)
    assert "mass" in said
    assert "running-sum" in said
    assert "raise max_iter" not in said
    assert "mass" not in told(SCALED, algorithm=Gadget(gossip="running-sum"), **lossy)
    assert "mass" not in told(SCALED, algorithm=Gadget(gossip="push-sum"), n_nodes=10, max_iter=100)


def test_the_advice_about_lost_mass_is_accepted():
    """Also by an algorithm whose gossip restarts, which running sums cannot."""
    lossy, mixing = (
        {"n_nodes": 10, "max_iter": 100, "faults": "loss=0.3"},
        Gadget(gossip="push-sum", gossip_rounds="mix"),
    )
    said = told(SCALED, algorithm=mixing, **lossy)
    advised = {name: literal_eval(value) for name, value in re.findall(r"(\w+)=([^,)]+)", said.split("Gadget(")[1])[:2]}
    assert advised["gossip"] == "running-sum"
    assert "mass" not in told(SCALED, algorithm=mixing.set_params(**advised), **lossy)


def test_lost_mass_is_told_even_if_the_rule_was_met():
    params = {"algorithm": Gadget(gossip="push-sum"), "faults": "loss=0.3", "tol": 1e6, "n_nodes": 10}
    assert "mass" in told(SCALED, max_iter=2000, **params)


def test_a_refused_certificate_does_not_ask_for_more_iterations():
    cut = 'crash={"nodes": [0, 5], "at": 5}'
    said = told(SCALED, n_nodes=10, topology="ring", faults=cut, max_iter=600)
    assert "cut off" in said
    assert "reconnect" in said
    assert "raise max_iter" not in said


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ('crash={"nodes": [0, 5], "at": 5}', "the first of them node 'site-6', are cut off"),
        ('crash={"nodes": [3], "at": 5}', "counting the rows of 9 of 10 nodes, not of node 'site-3'"),
    ],
)
def test_remarks_name_sites(fault, said):
    sites = [f"site-{i % 10}" for i in range(len(Y))]
    model = GadgetSVC(topology="ring", faults=fault, max_iter=600, random_state=0, lam=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert said in model.fit(SCALED, Y, sites=sites).certificate_note_


def test_edges_that_were_hardly_used_are_told():
    assert "neighbours='all'" in told(SCALED, n_nodes=40, topology="complete", algorithm=Pdmm(), max_iter=20)
    assert "neighbours" not in told(SCALED, n_nodes=40, topology="complete", max_iter=3)


def test_a_time_limit_warns():
    with pytest.warns(ConvergenceWarning, match="max_seconds"):
        GadgetSVC(max_seconds=1e-6, random_state=0).fit(SCALED, Y)


def test_one_node_needs_no_more_iterations_than_two():
    X, y = load_digits(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one, two = (
            GadgetSVC(n_nodes=nodes, stopping="gap", max_iter=1000, record_every=0, random_state=0).fit(X, y == 8)
            for nodes in (1, 2)
        )
    assert one.converged_
    assert one.n_iter_ <= max(two.n_iter_, 1) * 1.5
    assert np.isfinite(one.gap_bound_)
