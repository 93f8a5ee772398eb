"""GADGET against the paper's Algorithm 2, and against the optimum that LIBLINEAR finds."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC

from gadget_svm import Gadget, GadgetSVC
from gadget_svm.algorithms import resolve
from gadget_svm.algorithms.gadget import UNLIMITED, LocalSteps, descend, local_steps, pick
from gadget_svm.core.block import Block
from gadget_svm.core.messages import Delivery
from gadget_svm.core.rows import Objective, Rows, Shares
from gadget_svm.gossip import PROTOCOLS
from gadget_svm.kernels import draw
from gadget_svm.kernels.counter_rng import EXAMPLE
from gadget_svm.simulation import LocalRuntime
from gadget_svm.topologies import build

LAM = 0.1


def algorithm_2(w, X, y, cost, mine, node, done, n_steps, batch, lam, radius, seed):
    """Steps (a)-(f) of Algorithm 2 in plain numpy, as printed; ``mine`` are the node's rows."""
    w = w.copy()
    for t in range(done + 1, done + n_steps + 1):
        drawn = [mine[int(draw(seed, node, t * batch + b, EXAMPLE) * len(mine))] for b in range(batch)]  # (a)
        violating = [r for r in drawn if y[r] * (w @ X[r]) < 1]  # (b)
        L = sum((cost[r] * y[r] * X[r] for r in violating), np.zeros(len(w))) / batch  # (c)
        alpha = 1 / (lam * t)  # (d)
        w = (1 - lam * alpha) * w + alpha * L  # (e)
        w *= min(1.0, radius / max(np.linalg.norm(w), 1e-300))  # (f)
    return w


def rows_of(toy, cost=None, times=np.empty(0)):  # noqa: B008
    """The toy's rows, node i owning the rows of site i."""
    order = np.arange(60)
    start = np.array([0, 30, 50, 60])
    cost = np.ones(60) if cost is None else cost
    return Rows.of(sp.csr_matrix(toy.X), toy.y.astype(np.int32), cost, Shares(order, start, times))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("n_steps", [1, 7])
@pytest.mark.parametrize("projects", [True, False])
@pytest.mark.parametrize("costs", [False, True])
@pytest.mark.parametrize("done", [0, 40])
def test_descend_is_steps_a_to_f_of_algorithm_2(toy, batch, n_steps, projects, costs, done):
    cost = np.where(toy.y == 1, 3.0, 0.5) if costs else np.ones(60)
    rows, y = rows_of(toy, cost), np.where(toy.y == 1, 1.0, -1.0)
    radius = 0.7 / np.sqrt(LAM) if projects else np.inf  # small enough to be felt
    for node in range(3):
        w = np.random.default_rng(node).normal(size=5)
        mine = np.arange(60)[rows.start[node] : rows.start[node + 1]]
        wanted = algorithm_2(w, toy.X, y, cost, mine, node + 4, done, n_steps, batch, LAM, radius, 11)
        descend(w, 1, rows, node, node + 4, done, LocalSteps(n_steps, batch, False, LAM, radius, 11, UNLIMITED))
        np.testing.assert_allclose(w, wanted, rtol=1e-10, atol=1e-12)


def test_projection_is_felt_in_that_comparison(toy):
    """Otherwise the test above would not show step (f)."""
    ends = []
    for radius in (0.7 / np.sqrt(LAM), np.inf):
        w = np.zeros(5)
        descend(w, 1, rows_of(toy), 0, 4, 0, LocalSteps(7, 1, False, LAM, radius, 11, UNLIMITED))
        ends.append(np.linalg.norm(w))
    assert ends[0] < ends[1]


def test_rows_of_weight_are_drawn_as_often_as_they_weigh(toy):
    """(a) with sample weights: row r of node i is drawn with probability times_r / sum of its node's."""
    times = np.ones(60)
    times[3], times[5] = 30.0, 0.5
    rows, counts = rows_of(toy, times=times), np.zeros(60)
    for t in range(20_000):
        counts[pick(rows, 0, draw(0, 0, t, EXAMPLE))] += 1
    assert counts[30:].sum() == 0
    np.testing.assert_allclose(counts[:30] / 20_000, times[:30] / times[:30].sum(), atol=0.01)


def test_the_implicit_step_goes_as_far_as_the_margin_and_no_farther(toy):
    """Kulis and Bartlett 2010: with a tiny lam the printed step overshoots, the implicit one ends at y<w,x> = 1."""
    rows = rows_of(toy)
    for node in range(3):
        for implicit in (True, False):
            w = np.zeros(5)
            descend(w, 1, rows, node, node, 0, LocalSteps(1, 1, implicit, 1e-6, np.inf, 3, UNLIMITED))
            r = rows.start[node] + int(draw(3, node, 1, EXAMPLE) * (rows.start[node + 1] - rows.start[node]))
            margin = (1 if toy.y[r] == 1 else -1) * (w @ toy.X[r])
            assert margin == pytest.approx(1.0) if implicit else margin > 1000


def a_block(toy, network, seed=0, outputs=1):
    rows = rows_of(toy)
    return Block.fresh(network, rows, np.diff(rows.start).astype(float), outputs, 5, seed=seed)


def bound(algorithm, network, lam=LAM):
    return algorithm.bind(network, lam, 1 / np.sqrt(lam))


@settings(max_examples=40)
@given(
    lam=st.floats(1e-6, 10),
    seed=st.integers(0, 2**32),
    gossip=st.sampled_from(sorted(PROTOCOLS)),
    n_steps=st.integers(1, 4),
    solver=st.sampled_from(["pegasos", "implicit"]),
)
def test_every_iterate_is_within_the_ball(toy, lam, seed, gossip, n_steps, solver):
    """Algorithm 2, step (h): after every iteration |w_i| <= 1/sqrt(lam)."""
    network = build("complete", 3)
    block = a_block(toy, network, seed)
    runtime = LocalRuntime(bound(Gadget(solver, gossip, local_steps=n_steps), network, lam), [block], Delivery)
    for _ in range(12):
        runtime.advance(1)
        assert (np.linalg.norm(block.w[:, 0], axis=1) <= (1 + 1e-12) / np.sqrt(lam)).all()


def test_without_projection_iterates_leave_the_ball(toy):
    """Both projections are optional, and do something."""
    network, lam, norms = build("complete", 3), 1e-3, {}
    for project in (True, "local", "mixed", False):
        block = a_block(toy, network)
        runtime = LocalRuntime(bound(Gadget(project=project), network, lam), [block])
        runtime.advance(1)
        norms[project] = np.linalg.norm(block.w)
    assert norms[False] > 5 * norms["mixed"]
    assert norms[True] <= norms[False]
    assert norms["local"] < norms[False]


@pytest.mark.parametrize("name", ["push-sum", "diffusion", "running-sum"])
def test_mass_that_persists_changes_by_the_steps_alone(toy, name):
    """s_i += n_i (w_new - w_old): all sums, and what is held back of them, change by exactly the nodes' steps."""
    network, protocol = build("line", 3), PROTOCOLS[name]()
    block = a_block(toy, network)

    def total():
        flight = 0.0
        if "sigma" in block.edge:
            flight = block.edge["sigma"].sum(axis=0) - block.edge["seen"].sum(axis=0)
        return block.s.sum(axis=0) + block.held.sum(axis=0) + flight

    protocol.load_vectors(block, persist=True)
    for t in range(1, 60):
        before, estimate = total(), block.s / block.phi[:, None]
        local = LocalSteps(2, 1, False, LAM, np.inf, 0, UNLIMITED)
        local_steps(0, 3, block.alive, 0, block.w, block.rows, block.steps, local)
        step = block.n @ (block.flat - estimate)
        protocol.load_vectors(block, persist=True)
        np.testing.assert_allclose(total(), before + step, rtol=1e-9, atol=1e-9)
        party = protocol.round(block, t, 0)
        with pytest.raises(StopIteration):
            party.send(Delivery(next(party)))
        np.testing.assert_allclose(total(), before + step, rtol=1e-9, atol=1e-9)
        block.w[:, 0] = block.s / block.phi[:, None]
    assert name == "diffusion" or np.abs(block.held).max() > 0  # otherwise nothing was ever held back


def test_the_averaged_iterate_is_the_mean_of_the_iterates(toy):
    """The theorem speaks of w-bar = (1/T) sum of the w_t."""
    network = build("complete", 3)
    block, seen = a_block(toy, network), []
    runtime = LocalRuntime(bound(Gadget(), network), [block], Delivery)
    for _ in range(25):
        runtime.advance(1)
        seen.append(block.w.copy())
    np.testing.assert_allclose(runtime.models(), np.mean(seen, axis=0), rtol=1e-12)
    np.testing.assert_array_equal(block.iterates, 25)
    np.testing.assert_array_equal(runtime.weights(), seen[-1])


def pooled(X, y, lam=LAM, weight=None):
    """The optimum of the pooled problem, and its objective."""
    times = np.ones(len(y)) if weight is None else weight
    solver = LinearSVC(loss="hinge", C=1 / (lam * times.sum()), fit_intercept=False, tol=1e-9, max_iter=10**6)
    w = solver.fit(X, y, sample_weight=times).coef_
    return w, objective(X, y, w, lam, times)


def objective(X, y, w, lam=LAM, times=None):
    times = np.ones(len(y)) if times is None else times
    F = Objective(sp.csr_matrix(X), y.astype(np.int32), np.ones(len(y)), times, lam, 1)
    return float(F(w[None]).objective[0])


@pytest.mark.parametrize(
    "algorithm",
    [Gadget(), Gadget("implicit", local_steps=5), Gadget(gossip="diffusion"), Gadget(gossip="running-sum"),
     Gadget(gossip_rounds="mix"), Gadget(gossip="diffusion", gossip_rounds="diameter"), Gadget(batch_size=4)],
    ids=lambda a: repr(a).replace("Gadget", ""),
)  # fmt: skip
def test_the_network_comes_to_the_optimum_of_liblinear(toy, algorithm):
    model = GadgetSVC(
        5, lam=LAM, algorithm=algorithm, fit_intercept=False, max_iter=6000, stopping=None, random_state=0
    )
    model.fit(toy.X, toy.y)
    best = pooled(toy.X, toy.y)[1]
    for node in range(5):
        assert best - 1e-9 <= objective(toy.X, toy.y, model.node(node).coef_) <= 1.03 * best


def unequal():
    """Two hundred rows: a large shard, and two small ones that see the world otherwise."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 2))
    sites = np.repeat([0, 1, 2], [160, 20, 20])
    y = np.where(sites == 0, X[:, 0] > 0, X[:, 1] > 0).astype(int)
    return X, y, sites


@pytest.mark.parametrize("gossip", ["push-sum", "diffusion", "running-sum"])
def test_shards_of_unequal_size_come_to_the_pooled_optimum(gossip):
    """Mass that persists keeps the n_i weights; s_i = phi_i w_i would let them diffuse away."""
    X, y, sites = unequal()
    model = GadgetSVC(
        lam=LAM, algorithm=Gadget(gossip=gossip, mass="persistent", local_steps=5), fit_intercept=False, max_iter=8000,
        stopping=None, topology="line", random_state=1,
    ).fit(X, y, sites=sites)  # fmt: skip
    right, _ = pooled(X, y)
    wrong, _ = pooled(X, y, weight=np.where(sites == 0, 1 / 160, 1 / 20) * 200 / 3)
    assert np.linalg.norm(right - wrong) > 0.5 * np.linalg.norm(right)
    assert np.linalg.norm(model.coef_ - right) < 0.1 * np.linalg.norm(right)
    for node in model.node_coef_:
        assert np.linalg.norm(node - right) < 0.2 * np.linalg.norm(right)


def test_one_node_is_pegasos(toy):
    """Without neighbours Algorithm 2 is Pegasos on the node's own rows."""
    model = GadgetSVC(1, lam=LAM, algorithm="gadget", fit_intercept=False, max_iter=50, stopping=None, random_state=4)
    model.fit(toy.X, toy.y, sites=np.zeros(60))
    y = np.where(toy.y == 1, 1.0, -1.0)
    w = algorithm_2(np.zeros(5), toy.X, y, np.ones(60), np.arange(60), 0, 0, 50, 1, LAM, 1 / np.sqrt(LAM), 4)
    np.testing.assert_allclose(model.node_last_coef_[0], w, rtol=1e-9)


def test_class_weights_do_not_change_the_ball(toy):
    """The loss is a weighted mean, F(0) = 1: the optimum lies within 1 / sqrt(lam)."""
    seen = {}

    class Spy(Gadget):
        def bind(self, network, lam, radius, *more):
            seen["radius"] = radius
            return super().bind(network, lam, radius, *more)

    weights = {0: 4.0, 1: 1.0}
    GadgetSVC(3, lam=0.5, algorithm=Spy(), class_weight=weights, max_iter=2, stopping=None).fit(toy.X, toy.y)
    assert seen["radius"] == pytest.approx(np.sqrt(1 / 0.5))


def test_whole_numbers_of_any_kind_count_as_rounds():
    """A grid of numpy integers must not change whether mass persists."""
    network = build("ring", 4)
    for one in (1, np.int64(1), np.int32(1)):
        assert bound(Gadget(gossip_rounds=one), network).persist is True
    assert bound(Gadget(gossip_rounds="mix"), network).persist is False
    assert resolve("auto").for_batches().local_steps == 10


def test_rounds_mix_are_more_for_the_randomised_form():
    star = build("star", 30)
    counts = {g: bound(Gadget(gossip=g, gossip_rounds="mix"), star).rounds for g in ("diffusion", "push-sum")}
    assert counts["push-sum"] >= 2 * counts["diffusion"]


def test_rows_without_any_feature_teach_nothing_and_harm_nothing(toy):
    X = np.vstack([toy.X, np.zeros((20, 5))])
    y = np.r_[toy.y, np.tile([0, 1], 10)]
    for solver in ("pegasos", "implicit"):
        model = GadgetSVC(4, algorithm=Gadget(solver), fit_intercept=False, max_iter=200, stopping=None, lam=LAM)
        model.fit(X, y)
        assert np.isfinite(model.node_coef_).all()
        assert model.score(toy.X, toy.y) > 0.8


@pytest.mark.parametrize("lam", [1e-30, 1e-12, 1e3, 1e30])
def test_extreme_lam_stays_finite(toy, lam):
    for solver in ("pegasos", "implicit"):
        model = GadgetSVC(3, lam=lam, algorithm=Gadget(solver), max_iter=50, stopping=None, random_state=0)
        assert np.isfinite(model.fit(toy.X, toy.y).node_coef_).all()
