"""What every algorithm of the registry does, by the capabilities it declares."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from gadget_svm import GadgetSVC
from gadget_svm.algorithms import ALGORITHMS, BaseAlgorithm, Pdmm, resolve
from gadget_svm.core.messages import Delivery
from gadget_svm.core.rows import Shares
from gadget_svm.estimator.fitting import make_blocks
from gadget_svm.estimator.problem import Problem
from gadget_svm.kernels import ThreadTeam
from gadget_svm.simulation import LocalRuntime
from gadget_svm.topologies import build

NAMED = {name: make() for name, make in ALGORITHMS.items()}
every_algorithm = pytest.mark.parametrize("name", [*NAMED, "pdmm, all"])
FAULTS = {"none": None, "loss": "loss=0.3", "delay": "delay=2", "churn": {"churn": {"leave": 0.2, "join": 0.4}}}
STATE = ("w", "s", "phi", "held", "w_sum", "iterates", "steps", "alive")
LAM = 0.05


def algorithm(name):
    return Pdmm(neighbours="all") if name == "pdmm, all" else resolve(name)


def fitted(toy, name, *, X=None, y=None, blocks=1, **settings):
    """A model of seven nodes after some iterations, and everything about it but the clock."""
    options = {"random_state": 5, "max_iter": 12, "lam": 0.01, "stopping": None, "n_jobs": 1, **settings}
    model = GadgetSVC(7, algorithm=algorithm(name), engine_options={"blocks": blocks}, **options)
    model.fit(toy.X if X is None else X, toy.three if y is None else y, sample_weight=np.linspace(0.1, 2, 60))
    history = [[value for key, value in record.items() if key != "seconds"] for record in model.history_]
    return [model.coef_, model.node_coef_, model.node_intercept_, model.node_last_coef_, np.array(history, object)]


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def runtime(toy, name, parts=1, exchange=None, seed=3):
    """Four nodes on a line, three classes, and nothing between the test and the blocks."""
    network, shares = build("line", 4), Shares(np.arange(60), np.array([0, 25, 30, 45, 60]), np.empty(0))
    problem = Problem(
        sp.csr_matrix(toy.X), toy.three.astype(np.int32), None, shares, list(range(4)), 3
    )  # fmt: skip
    own = algorithm(name).for_network(network)
    run = own.bind(own.with_transition_of(network), LAM, 4.0, False, shares.sizes)
    return LocalRuntime(run, make_blocks(problem, network, seed, parts, ThreadTeam()), exchange, lam=LAM), problem


def state(runtime):
    return {name: np.concatenate([getattr(block, name) for block in runtime.blocks]) for name in STATE}


@every_algorithm
@pytest.mark.parametrize("faults", FAULTS)
def test_blocks_change_no_bit(toy, name, faults):
    one, other = (fitted(toy, name, faults=FAULTS[faults], blocks=blocks) for blocks in (1, 3))
    assert np.isfinite(one[1]).all()
    assert_same(one, other)


@every_algorithm
def test_threads_change_no_bit(toy, name, monkeypatch):
    monkeypatch.setattr(ThreadTeam, "of", lambda n_jobs: ThreadTeam(n_jobs, worth_sharing=0))
    assert_same(fitted(toy, name), fitted(toy, name, n_jobs=2, blocks=2))


@every_algorithm
def test_the_seed_decides(toy, name):
    one = fitted(toy, name)
    assert_same(one, fitted(toy, name))
    assert not np.array_equal(one[1], fitted(toy, name, random_state=6)[1])


@every_algorithm
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_sparse_and_dense_rows_give_the_same_bits(toy, name, fit_intercept):
    X = toy.X * (np.abs(toy.X) > 0.5)
    one, other = (fitted(toy, name, X=rows, y=toy.y, fit_intercept=fit_intercept) for rows in (X, sp.csr_matrix(X)))
    assert_same(one, other)


@every_algorithm
def test_fused_iterations_are_those_by_messages(toy, name):
    """All state of the blocks, and the count of messages and bytes."""
    fused, by_messages, apart = (runtime(toy, name, *how)[0] for how in ((), (1, Delivery), (3,)))
    for count in (1, 2, 17):
        for each in (fused, by_messages, apart):
            each.advance(count)
        for other in (by_messages, apart):
            for key, value in state(fused).items():
                np.testing.assert_array_equal(value, state(other)[key], err_msg=key)
            assert (fused.messages, fused.nbytes) == (other.messages, other.nbytes)
        for key, value in by_messages.blocks[0].edge.items():
            np.testing.assert_array_equal(fused.blocks[0].edge[key], value, err_msg=key)


@every_algorithm
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda block: pickle.loads(pickle.dumps(block))])
def test_all_state_is_in_the_block(toy, name, duplicate):
    one, _ = runtime(toy, name)
    one.advance(7)
    twin = LocalRuntime(one.run, [duplicate(one.blocks[0])], t=7)
    for each in (one, twin):
        each.advance(5)
    for key, value in state(one).items():
        np.testing.assert_array_equal(value, state(twin)[key], err_msg=key)


@every_algorithm
def test_several_classes_and_an_intercept_are_learned(toy, name):
    model = GadgetSVC(3, "complete", algorithm=algorithm(name), lam=LAM, stopping=None, max_iter=300, random_state=0)
    assert model.fit(toy.X + 2.0, toy.three).score(toy.X + 2.0, toy.three) > 0.6
    assert model.node_coef_.shape == (3, 3, 5)
    assert np.array_equal(model.node_coef_, model.node_last_coef_) != model.algorithm_.average


@every_algorithm
def test_a_certificate_is_never_below_the_true_gap(toy, name):
    each, problem = runtime(toy, name)
    if not each.run.certifiable:
        with pytest.raises(ValueError, match="use algorithm='pdmm'"):
            each.certify()
        return
    best, seen = np.inf, []
    for ticks in (1, 20, 400):
        each.advance(ticks)
        certificate = each.certify()
        value = float(problem.objective(LAM, ThreadTeam())(certificate.model[None]).objective[0])
        best = min(best, value)
        seen.append((value, certificate.bound))
    assert seen[-1][1] < 0.01 * best
    assert all(value - best <= bound for value, bound in seen)


@pytest.mark.parametrize("kind", ALGORITHMS.values(), ids=ALGORITHMS)
def test_parameters_are_stored_unchecked_and_cloned(kind):
    one = kind()
    assert isinstance(one, BaseAlgorithm)
    for name in one.get_params():
        one.set_params(**{name: (chosen := ["anything"])})
        twin = clone(one, safe=False)
        assert twin is not one
        assert twin.get_params()[name] == chosen
    with pytest.raises(ValueError, match="unknown parameter"):
        one.set_params(speed=1)
