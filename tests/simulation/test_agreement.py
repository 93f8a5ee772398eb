"""Fits are reproducible: the same models with faults in several blocks, from copies, and with more records."""

import copy
import pickle
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from gadget_svm import Gadget, GadgetSVC
from gadget_svm.core.messages import Delivery
from gadget_svm.core.rows import Shares
from gadget_svm.estimator.fitting import make_blocks
from gadget_svm.estimator.problem import Problem
from gadget_svm.faults import Crash, Partition, Slow
from gadget_svm.gossip.robust import TRIMS
from gadget_svm.kernels import ThreadTeam
from gadget_svm.simulation import LocalRuntime
from gadget_svm.topologies import build
from support.watch import watched

N = 7
FAULTS = {
    "loss": "loss=0.3",
    "bounce": "bounce=0.3",
    "delay": "delay=2",
    "crash": [Crash(nodes=[1, 5], at=4, back=11)],
    "churn": {"churn": {"leave": 0.2, "join": 0.4}},
    "partition": [Partition(at=3, heal=15)],
    "slow": [Slow(every=2, nodes=[0, 6])],
    "all": {"loss": 0.1, "bounce": 0.1, "delay": 2, "churn": {"leave": 0.1, "join": 0.5}, "slow": 2},
}


def fitted(toy, *, blocks=1, observe=None, **settings):
    """A model of N nodes after 40 iterations, and everything about it that is no clock."""
    options = {"random_state": 5, "max_iter": 40, "lam": 0.01, "stopping": None, "n_jobs": 1, **settings}
    model = GadgetSVC(N, engine_options={"blocks": blocks}, **options)
    watched(model, observe).fit(toy.X, toy.y)
    parts = [model.coef_, model.intercept_, model.node_coef_, model.node_intercept_, model.node_last_coef_]
    history = [{name: value for name, value in record.items() if name != "seconds"} for record in model.history_]
    return parts, history


def assert_same(one, other):
    for a, b in zip(one[0], other[0], strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    assert one[1] == other[1]


@pytest.mark.parametrize("fault", sorted(FAULTS))
@pytest.mark.parametrize("gossip", ["push-sum", "diffusion", "pairwise", "running-sum", "clip", "trim"])
def test_blocks_agree_under_faults(toy, gossip, fault):
    algorithm = Gadget(robust=gossip) if gossip in TRIMS else Gadget(gossip=gossip)
    alone = fitted(toy, algorithm=algorithm, faults=FAULTS[fault])
    undisturbed = fitted(toy, algorithm=algorithm)
    assert not np.array_equal(alone[0][2], undisturbed[0][2])  # the fault is felt
    for blocks in (2, N):
        assert_same(alone, fitted(toy, algorithm=algorithm, faults=FAULTS[fault], blocks=blocks))


def test_threads_share_the_kernels_and_end(toy, monkeypatch):
    """Also the smallest kernels; the bits stay the same."""
    monkeypatch.setattr(ThreadTeam, "of", lambda n_jobs: ThreadTeam(n_jobs, worth_sharing=0))
    before, at_work = set(threading.enumerate()), set()

    def observe(record, view):  # noqa: ARG001
        at_work.update(set(threading.enumerate()) - before)

    one = fitted(toy, algorithm="gadget", observe=observe)
    assert not at_work
    two = fitted(toy, algorithm="gadget", n_jobs=2, observe=observe)
    assert at_work
    assert_same(one, two)
    assert set(threading.enumerate()) <= before


def blocks_of(toy, network, parts=1, team=None, seed=3):
    shares = Shares(np.arange(60), np.array([0, 25, 30, 45, 60]), np.empty(0))
    X, label = sp.csr_matrix(toy.X), toy.three.astype(np.int32)
    problem = Problem(X, label, None, shares, list(range(4)), 3)
    return make_blocks(problem, network, seed, parts, team or ThreadTeam())


STATE = ("w", "s", "phi", "held", "w_sum", "iterates", "steps", "alive")


def assert_same_state(one, others):
    for name in STATE:
        parts = np.concatenate([getattr(block, name) for block in others])
        np.testing.assert_array_equal(getattr(one, name), parts, err_msg=name, strict=True)


@pytest.mark.parametrize("gossip", ["push-sum", "diffusion", "pairwise", "running-sum"])
@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda block: pickle.loads(pickle.dumps(block))], ids=["copy", "pickle"]
)
def test_a_copied_block_continues_alike(toy, gossip, duplicate):
    """All state belongs to the block, so a checkpoint forgets nothing."""
    network = build("ring", 4)
    run = Gadget(gossip=gossip).bind(network, 0.05, 4.0)
    (block,) = blocks_of(toy, network)
    runtime = LocalRuntime(run, [block], Delivery)
    runtime.advance(7)
    twin = LocalRuntime(run, [duplicate(block)], Delivery, t=7)
    for side in (runtime, twin):
        side.advance(5)
    assert_same_state(block, twin.blocks)


def test_same_seed_same_result_and_another_another(toy):
    one = fitted(toy)
    assert_same(one, fitted(toy))
    assert not np.array_equal(one[0][0], fitted(toy, random_state=6)[0][0])


def test_one_against_the_rest_is_that_many_binary_machines(toy):
    """All K vectors travel in one message, and each is what it would be alone."""
    settings = {"algorithm": "gadget", "max_iter": 60, "stopping": None, "random_state": 2, "lam": 0.01}
    run_in_rounds = GadgetSVC(**settings).fit(toy.X, toy.three, sites=toy.sites)
    for c in range(3):
        alone = GadgetSVC(**settings).fit(toy.X, (toy.three == c).astype(int), sites=toy.sites)
        np.testing.assert_array_equal(run_in_rounds.node_coef_[:, c], alone.node_coef_)
        np.testing.assert_array_equal(run_in_rounds.node_intercept_[:, c], alone.node_intercept_)
        np.testing.assert_array_equal(run_in_rounds.coef_[c], alone.coef_[0])


@pytest.mark.filterwarnings("ignore:stopped at max_iter")
def test_looking_more_often_changes_nothing(toy):
    """Records, stopping rules and pauses only observe."""
    plain = fitted(toy, record_every=0)
    assert_same((plain[0], []), (fitted(toy, record_every=1)[0], []))
    assert_same((plain[0], []), (fitted(toy, record_every=7, stopping="weights", tol=1e-12)[0], []))
    assert len(plain[1]) == 1


def test_blocks_agree_on_real_rows(adult):
    """Some hundreds of rows of Adult, sparse and of unequal length."""
    settings = {"n_nodes": 10, "lam": adult.lam, "algorithm": "gadget", "max_iter": 300, "stopping": None}
    models = [
        GadgetSVC(random_state=0, engine_options={"blocks": blocks}, **settings).fit(adult.X[:700], adult.y[:700])
        for blocks in (1, 4)
    ]
    np.testing.assert_array_equal(models[0].node_coef_, models[1].node_coef_)
    assert models[0].score(adult.X_test, adult.y_test) > 0.75
