"""Sentences of Dutta and Nataraj, "GADGET SVM", each restated as a test that cites it."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget_svm import GadgetSVC, load_dataset
from gadget_svm.algorithms import Gadget
from gadget_svm.core.messages import Delivery
from gadget_svm.data.catalog import ENTRIES
from gadget_svm.data.partition import partition_evenly
from gadget_svm.estimator.fitting import make_blocks
from gadget_svm.estimator.problem import Problem
from gadget_svm.gossip import Diffusion, PushSum, average, averaging_block, rounds
from gadget_svm.kernels import ThreadTeam
from gadget_svm.simulation.engine import LocalRuntime
from gadget_svm.spectral import rounds_to, tau_mix
from gadget_svm.topologies import build
from support.watch import watched

LAM = 0.1


def data(rows=60, features=5, seed=0):
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(rows) < 0.5, 1, -1)
    return sp.csr_matrix(rng.normal(size=(rows, features)) + y[:, None]), y


def network_of(X, y, *, n_nodes=6, topology="ring", lam=LAM, seed=0, exchange=None, **choices):
    """The nodes of a small network at the beginning of Algorithm 2."""
    label = (y > 0).astype(np.int32)
    shares = partition_evenly(X, label, n_nodes, seed)
    problem = Problem(X, label, None, shares, list(range(n_nodes)), 1)
    network = build(topology, n_nodes, seed=seed)
    run = Gadget(**choices).bind(network, lam, lam**-0.5)
    return LocalRuntime(run, make_blocks(problem, network, seed, 1, ThreadTeam()), exchange)


def rows_of(runtime, i):
    """The rows node i owns, as a dense array, with their labels."""
    rows = runtime.blocks[0].rows
    mine = rows.order[rows.start[i] : rows.start[i + 1]]
    X = sp.csr_matrix((rows.data, rows.indices, rows.indptr), shape=(len(rows.label), runtime.blocks[0].w.shape[2]))
    return X[mine].toarray(), np.where(rows.label[mine] == 1, 1.0, -1.0)


# Section 2.3 and Algorithm 1: Push-Sum


def test_push_sum_estimates_the_average():
    """Algorithm 1, step 6: "s/w is the current estimate of the average at node i at time t"."""
    x = np.arange(10.0)
    assert average(x, build("complete", 10), PushSum(), 60) == pytest.approx(np.full(10, 4.5), rel=1e-6)


def test_push_sum_starts_with_the_own_value():
    """Algorithm 1: "Each node maintains a sum s = x_i and weight w = 1"; at time 0 the estimate is x_i."""
    x = np.arange(7.0)
    block = averaging_block(build("ring", 7), x[:, None], np.ones(7))
    next(rounds(PushSum(), block))
    assert np.array_equal(block.s[:, 0], x)
    assert np.array_equal(block.phi, np.ones(7))


def test_push_sum_sums_what_it_receives():
    """Algorithm 1, steps 2, 3 and 5, with shares of one half: checked against the messages of the round."""
    network, x = build("random-regular", 8, seed=3), np.arange(1.0, 9.0)
    seen = []
    block = averaging_block(network, x[:, None], np.ones(8))
    running = rounds(PushSum(), block, lambda messages: seen.append(messages) or Delivery(messages))
    next(running)
    next(running)
    (messages,) = seen
    assert np.array_equal(messages.vector[:, 0], x / 2)
    expected = x / 2
    for receiver, value in zip(messages.receiver, messages.vector[:, 0], strict=True):
        expected[receiver] += value
    assert np.allclose(block.s[:, 0], expected, rtol=1e-15)


def test_push_vector_is_push_sum_of_every_component():
    """Section 2.3: "A simple extension to protocol Push-Vector where each node holds a vector"."""
    x = np.random.default_rng(0).normal(size=(9, 3))
    network = build("grid", 9)
    run_in_rounds = average(x, network, PushSum(), 12, seed=5)
    apart = np.column_stack([average(x[:, j], network, PushSum(), 12, seed=5) for j in range(3)])
    assert np.array_equal(run_in_rounds, apart)


def test_every_node_contacts_one_random_neighbour():
    """Section 2.2: "each peer exchanges information with only one randomly chosen immediate neighbor"."""
    network, seen = build("random-regular", 12, seed=1), []
    running = rounds(
        PushSum(), averaging_block(network, np.ones((12, 1)), np.ones(12)), lambda m: seen.append(m) or Delivery(m)
    )
    for _ in range(41):
        next(running)
    neighbours = [set(network.indices[network.indptr[i] : network.indptr[i + 1]].tolist()) for i in range(12)]
    for messages in seen:
        assert np.array_equal(messages.sender, np.arange(12))
        assert all(r in neighbours[s] for s, r in zip(messages.sender, messages.receiver, strict=True))
    contacted = {(int(s), int(r)) for messages in seen for s, r in zip(messages.sender, messages.receiver, strict=True)}
    assert len(contacted) == network.n_edges, "in 40 rounds every neighbour is drawn at some time"


def test_diffusion_simulates_a_random_walk():
    """Section 3: Push-Sum "deterministically simulates a random walk across G": t rounds are t steps of B."""
    network, x = build("scale-free", 10, seed=2), np.random.default_rng(1).normal(size=10)
    walk = np.linalg.matrix_power(network.matrix().toarray(), 7)
    assert average(x, network, Diffusion(), 7) == pytest.approx((x @ walk) / (np.ones(10) @ walk), rel=1e-12)


@pytest.mark.parametrize("name", ["ring", "complete", "star", "grid"])
def test_push_sum_reaches_gamma_in_mixing_time(name):
    """Section 3: "Push-Sum converges to a gamma-relative error solution in O(tau_mix log 1/gamma)"."""
    network = build(name, 16)
    x = np.zeros(16)
    x[0] = 16.0  # the average is 1, and sum|x|/N is too
    for gamma in (0.1, 0.01, 0.001):
        t = rounds_to(network, gamma)
        assert np.abs(average(x, network, Diffusion(), t) - 1).max() <= gamma
        assert t <= 2 + tau_mix(network) * np.log(3 / (gamma / 16 / 2))


def test_obvious_choice_of_B():
    """Section 3: "An obvious choice for B is to use the random walk ... b_ij = 1/deg i", and 0 without an edge."""
    network = build("star", 5, transition="random-walk")
    B = network.matrix().toarray()
    assert np.array_equal(B[0], [0, 0.25, 0.25, 0.25, 0.25])
    assert np.array_equal(B[3], [1, 0, 0, 0, 0])


# Section 3 and Algorithm 2: GADGET


def test_weights_start_at_zero():
    """Algorithm 2, initialization: w_i(1) = 0."""
    assert not network_of(*data()).weights().any()


def test_first_step_is_an_own_row_over_lambda():
    """Algorithm 2, (a)-(f) at t = 1: a row of the node's own, y x / lam, drawn into the ball of radius 1/sqrt(lam)."""
    sent = []
    runtime = network_of(*data(), exchange=lambda messages: sent.append(messages) or Delivery(messages))
    runtime.advance(1)
    for i, half in enumerate(sent[0].vector):
        w = half / sent[0].weight[i]
        X, y = rows_of(runtime, i)
        steps = (X * y[:, None]) / LAM
        steps *= np.minimum(1, LAM**-0.5 / np.linalg.norm(steps, axis=1))[:, None]
        assert np.abs(steps - w).max(axis=1).min() < 1e-12


def test_only_weights_travel():
    """Section 3: instead of "transferring data from all the sites": a message is d numbers and one weight."""
    sizes = set()
    for rows in (60, 600):
        runtime = network_of(*data(rows), exchange=lambda m: sizes.add((m.vector.shape, m.weight.shape)) or Delivery(m))
        runtime.advance(3)
    assert sizes == {((6, 5), (6,))}


def test_local_step_uses_local_rows_only():
    """Section 3: "each site S_i builds a linear SVM model on its local data M_i"."""
    X, y = data()
    sent = []
    for scale in (1.0, 7.0):
        runtime = network_of(X, y, exchange=lambda m: sent.append(m) or Delivery(m))
        rows = runtime.blocks[0].rows
        for r in rows.order[rows.start[3] : rows.start[4]]:
            rows.data[rows.indptr[r] : rows.indptr[r + 1]] *= scale  # other values at node 3
        runtime.advance(1)
    others = np.arange(6) != 3
    assert np.array_equal(sent[0].vector[others], sent[1].vector[others])
    assert not np.array_equal(sent[0].vector[3], sent[1].vector[3])


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6), lam=st.sampled_from([1e-4, 1e-2, 1.0]), batch=st.integers(1, 3))
def test_norm_stays_in_the_ball(seed, lam, batch):
    """Appendix A: "|w_i(t)| <= 1/sqrt(lambda) from the algorithm", and so is the network average."""
    runtime = network_of(*data(seed=seed), lam=lam, seed=seed, batch_size=batch)
    for _ in range(20):
        runtime.advance(1)
        norms = np.linalg.norm(runtime.weights()[:, 0], axis=1)
        assert norms.max() <= lam**-0.5 * (1 + 1e-12)
        assert np.linalg.norm(runtime.weights()[:, 0].mean(axis=0)) <= lam**-0.5 * (1 + 1e-12)


def test_projections_are_optional():
    """Algorithm 2, (f) and (h) "[Optional]": without them early iterates leave the ball, with a small lambda."""
    runtime = network_of(*data(), lam=1e-4, project=False)
    runtime.advance(2)
    assert np.linalg.norm(runtime.weights()[:, 0], axis=1).max() > 1e2


def test_push_sum_to_termination_brings_nodes_together():
    """Section 3: "On termination of the network wide Push-Sum protocol" all nodes hold nearly one vector."""
    runtime = network_of(*data(), gossip="diffusion", gossip_rounds="mix", gamma=1e-6)
    runtime.advance(3)
    w = runtime.weights()[:, 0]
    assert np.linalg.norm(w - w.mean(axis=0), axis=1).max() <= 1e-5 * np.linalg.norm(w.mean(axis=0))


def test_every_node_learns_the_global_function():
    """Section 1: "learn at each node, a close approximation of the global function"."""
    d = load_dataset("breast-cancer")
    model = GadgetSVC(n_nodes=10, lam=1e-3, algorithm="gadget", stopping=None, max_iter=3000, random_state=0)
    model.fit(d.X, d.y)
    last = model.history_[-1]
    assert last["worst_objective"] <= 1.1 * last["objective"]
    assert min(model.node(i).score(d.X_test, d.y_test) for i in range(10)) >= 0.93


def test_stops_when_no_weight_vector_changes():
    """Section 4.4: until "local weight vectors ... do not change more than an user-defined parameter epsilon"."""
    X, y = data(rows=40)
    model = GadgetSVC(lam=10.0, stopping="weights", algorithm="gadget", max_iter=200_000, random_state=0).fit(X, y)
    assert model.converged_
    assert model.movement_ <= 0.001, "epsilon is 0.001, as in the paper"
    assert 100 < model.n_iter_ < 200_000


def test_anytime():
    """Section 1: "an anytime algorithm without any predefined termination criteria": stopped early, it answers."""
    X, y = data(rows=200)
    calls = iter(range(10**9))
    model = GadgetSVC(stopping=None, max_iter=10**9, random_state=0)
    watched(model, should_stop=lambda: next(calls) > 5).fit(X, y)
    assert model.stopped_by_ == "interrupted"
    assert not model.converged_
    assert model.score(X, y) > 0.9


def test_rows_are_split_evenly():
    """Section 4.4: "approximately equal number of instances ... distributed amongst the nodes", k = 10."""
    X, y = data(rows=103)
    sizes = partition_evenly(X, (y > 0).astype(np.int32), 10, 0).sizes
    assert sizes.sum() == 103
    assert sizes.max() - sizes.min() <= 1


def test_gossip_costs_less_than_broadcast():
    """Section 2.2: broadcasting has "a higher communication cost": one message a node against one an edge."""
    one, all_neighbours = network_of(*data()), network_of(*data(), gossip="diffusion")
    one.advance(10)
    all_neighbours.advance(10)
    assert one.messages == 10 * 6
    assert all_neighbours.messages == 10 * one.blocks[0].links.target.size


# Section 3.1: analysis


@given(seed=st.integers(0, 10**6))
def test_lemma_1(seed):
    """Lemma 1: |L_g(w_1) - L_g(w_2)| <= R |w_1 - w_2| for the global average loss."""
    rng = np.random.default_rng(seed)
    X, y = data(seed=seed)
    u, v = rng.normal(size=(2, 5)) * 10 ** rng.uniform(-3, 2)
    loss = [np.maximum(0, 1 - y * (X @ w)).mean() for w in (u, v)]
    R = np.sqrt(X.multiply(X).sum(axis=1).max())
    assert abs(loss[0] - loss[1]) <= R * np.linalg.norm(u - v) * (1 + 1e-12)


# Section 4: data


PUBLISHED = {
    "adult": ((32561, 16281), 123, 3.07e-5),
    "ccat": ((781265, 23149), 47236, 1e-4),
    "mnist": ((60000, 10000), 784, 1.67e-5),
    "reuters": ((7770, 3299), 8315, 1.29e-4),
    "webspam": ((234500, 115500), 254, 1e-5),
}  # USPS is split elsewhere: the same 9298 images, 7291 / 2007 here, 7329 / 1969 in the paper


@pytest.mark.parametrize("name", PUBLISHED)
def test_table_of_data_sets(name):
    """Table 1 of Section 4: rows, features and lambda of every data set, as the catalogue has them."""
    entry = ENTRIES[name]
    assert (entry.rows, entry.features, entry.lam) == PUBLISHED[name]
