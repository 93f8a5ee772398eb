"""The older GADGET with two Push-Sum calls, against a transcription in numpy and against the optimum."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from gadget_svm import Gadget, GadgetSVC
from gadget_svm.algorithms import TwoPushSum
from gadget_svm.core.block import Block
from gadget_svm.core.messages import Delivery
from gadget_svm.core.rows import Objective, Rows, Shares
from gadget_svm.kernels import draw
from gadget_svm.kernels.counter_rng import EXAMPLE
from gadget_svm.simulation import LocalRuntime
from gadget_svm.topologies import build

LAM, START = 0.1, np.array([0, 30, 50, 60])


def block_of(toy, network, cost=None, seed=4):
    """The toy's rows in three shards of 30, 20 and 10, as one block."""
    shares = Shares(np.arange(60), START, np.empty(0))
    rows = Rows.of(sp.csr_matrix(toy.X), toy.y.astype(np.int32), np.ones(60) if cost is None else cost, shares)
    return Block.fresh(network, rows, shares.sizes, 1, 5, seed=seed)


def transcript(toy, cost, n_iter, batch, radius, seed):
    """w(t+1) = (1 - lam alpha) sum n_i w_i / N + alpha sum n_i L_i / N, projected: Push-Sum that errs nowhere."""
    y, n, w = np.where(toy.y == 1, 1.0, -1.0), np.diff(START), np.zeros((3, 5))
    for t in range(1, n_iter + 1):
        L = np.zeros((3, 5))
        for i in range(3):
            drawn = [START[i] + int(draw(seed, i, t * batch + b, EXAMPLE) * n[i]) for b in range(batch)]
            L[i] = sum((cost[r] * y[r] * toy.X[r] for r in drawn if y[r] * (w[i] @ toy.X[r]) < 1), np.zeros(5)) / batch
        alpha = 1 / (LAM * t)
        new = (1 - LAM * alpha) * (n @ w) / 60 + alpha * (n @ L) / 60
        w[:] = new * min(1.0, radius / max(np.linalg.norm(new), 1e-300))
    return w


@pytest.mark.parametrize("gossip", ["push-sum", "diffusion"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("projects", [True, False])
def test_with_push_sum_run_to_its_end_it_is_the_formula(toy, gossip, batch, projects):
    network, cost, radius = build("ring", 3), np.where(toy.y == 1, 2.0, 0.5), 0.4
    block = block_of(toy, network, cost)
    run = TwoPushSum(gossip, gossip_rounds=150, batch_size=batch, project=projects).bind(network, LAM, radius)
    LocalRuntime(run, [block]).advance(25)
    wanted = transcript(toy, cost, 25, batch, radius if projects else np.inf, 4)
    assert np.linalg.norm(wanted) > 0.1
    np.testing.assert_allclose(block.w[:, 0], wanted, rtol=1e-8, atol=1e-10)


def test_projection_is_felt_in_that_comparison(toy):
    lengths = [np.linalg.norm(transcript(toy, np.ones(60), 25, 1, radius, 4)[0]) for radius in (0.4, np.inf)]
    assert lengths[0] < lengths[1]


@pytest.mark.parametrize("rounds", [1, 4, "mix"])
def test_it_sends_twice_what_gadget_sends(toy, rounds):
    """Two calls of as many rounds: the price the newer form saves."""
    network, sent = build("ring", 3), []
    for algorithm in (TwoPushSum(gossip_rounds=rounds), Gadget(gossip="push-sum", gossip_rounds=rounds)):
        runtime = LocalRuntime(algorithm.bind(network, LAM, 3.0), [block_of(toy, network)])
        runtime.advance(10)
        sent.append((runtime.messages, runtime.nbytes))
    assert sent[0] == (2 * sent[1][0], 2 * sent[1][1])
    assert sent[1][0] > 0


def test_averaged_iterates_approach_the_optimum(toy):
    """Shards of 30, 20 and 10 rows: the n_i must be right in both calls."""
    model = GadgetSVC(
        algorithm=TwoPushSum("diffusion", batch_size=5), lam=LAM, fit_intercept=False, stopping=None, max_iter=4000,
        random_state=0,
    ).fit(toy.X, toy.y, sites=toy.sites)  # fmt: skip
    best = LinearSVC(loss="hinge", C=1 / (LAM * 60), fit_intercept=False, tol=1e-8, max_iter=10**6).fit(toy.X, toy.y)
    objective = Objective(sp.csr_matrix(toy.X), toy.y.astype(np.int32), np.ones(60), np.ones(60), LAM, 1)
    optimum = objective(best.coef_[None]).objective[0]
    assert objective(model.node_coef_[:, None]).objective.max() < 1.02 * optimum
    assert model.history_[-1]["disagreement"] < 0.02


@pytest.mark.parametrize("faults", ["loss=0.2", {"churn": {"leave": 0.1, "join": 0.5}}, {"slow": 2}])
def test_faults_leave_models_in_the_ball(toy, faults):
    """A loss vector must never be taken for a model, whoever comes or goes between the two calls."""
    model = GadgetSVC(
        algorithm="gadget-2ps", lam=LAM, fit_intercept=False, stopping=None, max_iter=300, faults=faults, random_state=1
    )
    model.fit(toy.X, toy.y, sites=toy.sites)
    assert (np.linalg.norm(model.node_last_coef_, axis=1) <= 1 / np.sqrt(LAM) + 1e-9).all()
    assert model.score(toy.X, toy.y) > 0.8


def test_protocols_that_cannot_start_anew_are_refused():
    for gossip in ("running-sum", "pairwise"):
        with pytest.raises(ValueError, match="'push-sum' or 'diffusion'"):
            TwoPushSum(gossip).bind(build("ring", 3), LAM, 3.0)


def test_a_node_that_returns_between_the_calls_brings_no_old_sums(toy):
    """What it held when it left may be loss vectors, and mass of another iteration."""
    network = build("ring", 3)
    block = block_of(toy, network)
    block.away[2], block.alive[2] = 1, False
    block.s[2], block.phi[2], block.steps[:] = 1e6, 1.0, 5  # at t = 1 the models would count for nothing
    returning = [True]

    def exchange(messages):
        return Delivery(messages, joined=(2,)) if returning and returning.pop() else Delivery(messages)

    run = TwoPushSum("diffusion", gossip_rounds=3, project=False).bind(network, LAM, np.inf)
    LocalRuntime(run, [block], exchange).advance(1)
    assert block.alive.all()
    assert 0 < np.abs(block.w).max() < 100
