"""MoM-DSVM against the pooled optimum that LIBLINEAR finds, and its local solver against LIBLINEAR and scipy."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.svm import LinearSVC

from gadget_svm import GadgetSVC
from gadget_svm.algorithms import MomDsvm
from gadget_svm.algorithms.mom_dsvm import LAST_ADAPTATION, lower_bound
from gadget_svm.core.block import Block
from gadget_svm.core.messages import Delivery
from gadget_svm.core.rows import Objective, Rows, Shares
from gadget_svm.faults import FaultContext, Loss, wrap_all
from gadget_svm.kernels.dual import DualRows, dual_pass, multiplicity, path_pass, primal, shuffle
from gadget_svm.kernels.mom_dsvm import Ends, receive
from gadget_svm.simulation import LocalRuntime
from gadget_svm.topologies import build

LAM = 0.02


def duals(X, y, upper):
    """All rows of X as those of one node, with these upper bounds."""
    n = len(y)
    shares = Shares(np.arange(n), np.array([0, n]), np.empty(0))
    return DualRows.of(Rows.of(sp.csr_matrix(X), y.astype(np.int32), np.asarray(upper, float), shares), 1.0)


def ascended(rows, S, kappa, passes=2000, tol=1e-12, seed=0):
    """w and alpha where dual coordinate ascent ends."""
    w, alpha, turn = np.empty(len(S)), np.zeros(len(rows.order)), np.zeros(len(rows.order), dtype=np.int64)
    primal(w, alpha, rows, 0, 1, S, kappa)
    lo, hi = rows.start
    turn[:] = np.arange(hi)
    for done in range(passes):
        shuffle(turn, lo, hi, seed, 0, done)
        if dual_pass(w, alpha, turn, rows, lo, hi, 1, kappa) <= tol:
            return w, alpha
    raise AssertionError(f"not solved in {passes} passes")


@pytest.mark.parametrize("weighted", [False, True])
def test_the_local_solver_finds_liblinears_optimum(toy, weighted):
    """With S = 0 and kappa = 1 the local problem is the plain SVM with C_r = c_r."""
    upper = np.linspace(0.1, 3, 60) if weighted else np.full(60, 0.7)
    w, alpha = ascended(duals(toy.X, toy.y, upper), np.zeros(5), 1.0)
    svm = LinearSVC(loss="hinge", C=1.0, fit_intercept=False, tol=1e-10, max_iter=10**6)
    svm.fit(toy.X, toy.y, sample_weight=upper)
    np.testing.assert_allclose(w, svm.coef_[0], atol=1e-5)
    assert (alpha >= 0).all()
    assert (alpha <= upper).all()


def test_the_local_solver_knows_linear_term_and_curvature(toy):
    """min kappa/2 |w|^2 + S.w + sum c hinge, by scipy on the dual and by the duality gap."""
    kappa, S, c = 2.5, np.array([3.0, -1.0, 0.5, 2.0, -4.0]), np.linspace(0.1, 1, 60)
    signed = np.where(toy.y == 1, 1.0, -1.0)[:, None] * toy.X
    w, alpha = ascended(duals(toy.X, toy.y, c), S, kappa)

    def negative_dual(a):
        v = a @ signed - S
        return v @ v / (2 * kappa) - a.sum(), signed @ v / kappa - 1

    best = minimize(negative_dual, np.zeros(60), jac=True, bounds=[(0, top) for top in c], tol=1e-14)
    np.testing.assert_allclose(w, (best.x @ signed - S) / kappa, atol=1e-4)
    at_w = kappa / 2 * w @ w + S @ w + c @ np.maximum(0, 1 - signed @ w)
    assert at_w + negative_dual(alpha)[0] == pytest.approx(0, abs=1e-8)


def test_a_pass_moves_w_with_alpha_and_never_lowers_the_dual(toy):
    rows, S, kappa = duals(toy.X, toy.y, np.ones(60)), np.ones(5), 2.0
    signed = np.where(toy.y == 1, 1.0, -1.0)[:, None] * toy.X
    w, alpha, turn, before = -S / kappa, np.zeros(60), np.arange(60), -np.inf
    for _ in range(5):
        dual_pass(w, alpha, turn, rows, 0, 60, 1, kappa)
        v = alpha @ signed - S
        np.testing.assert_allclose(w, v / kappa, atol=1e-12)
        value = alpha.sum() - v @ v / (2 * kappa)
        assert value > before
        before = value


def test_rows_without_entries_divide_nothing_by_zero():
    """Their loss is 1 whatever w is: alpha at its bound, w untouched."""
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, -2.0]])
    w, alpha = ascended(duals(X, np.array([1, 1, 0, 0]), [0.5, 4, 0.25, 4]), np.zeros(2), 1.0)
    np.testing.assert_allclose(w, [1.0, 0.5])
    assert alpha[0] == 0.5
    assert alpha[2] == 0.25


def test_a_solved_problem_is_left_alone(toy):
    rows = duals(toy.X, toy.y, np.ones(60))
    w, alpha = ascended(rows, np.zeros(5), 1.0)
    again, turn = alpha.copy(), np.arange(60)
    assert dual_pass(w, again, turn, rows, 0, 60, 1, 1.0) <= 1e-9
    np.testing.assert_allclose(again, alpha, atol=1e-9)


def test_shuffles_are_permutations_of_the_nodes_own_places():
    turn, seen = np.full(30, -1), set()
    turn[10:14] = range(10, 14)
    for clock in range(200):
        shuffle(turn, 10, 14, 3, 5, clock)
        assert sorted(turn[10:14]) == [10, 11, 12, 13]
        seen.add(tuple(turn[10:14]))
    assert len(seen) == 24  # every order occurs
    assert (np.delete(turn, range(10, 14)) == -1).all()


def test_multiplicity_undoes_the_cumulation():
    times, start = np.array([2.0, 1, 1, 3, 5, 0.5]), np.array([0, 2, 2, 5, 6])
    mass = np.concatenate([np.cumsum(part) for part in np.split(times, start[1:-1])])
    np.testing.assert_allclose(multiplicity(mass, start), times)
    np.testing.assert_array_equal(multiplicity(np.empty(0), start), np.ones(6))


@pytest.fixture(scope="module")
def noisy():
    """240 rows of 8 features that no plane separates, with their optimum, and four ways to deal them to six nodes."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(240, 8)) * np.linspace(0.3, 2, 8)
    y = (X @ rng.normal(size=8) + 1.5 * rng.normal(size=240) > 0).astype(int)
    by_label = np.empty(240, dtype=int)
    by_label[np.argsort(y, kind="stable")] = np.repeat(np.arange(6), 40)
    deals = {
        "even": np.arange(240) % 6,
        "unequal": np.repeat(np.arange(6), [120, 60, 30, 15, 10, 5]),
        "by label": by_label,
    }
    best = LinearSVC(loss="hinge", C=1 / (LAM * 240), fit_intercept=False, tol=1e-9, max_iter=10**6).fit(X, y)
    objective = Objective(sp.csr_matrix(X), y.astype(np.int32), np.ones(240), np.ones(240), LAM, 1)
    return SimpleNamespace(X=X, y=y, deals=deals, f=float(objective(best.coef_[None]).objective[0]))


def gap(noisy, max_iter=400, sites="unequal", **settings):
    """How far the worst node's objective is above the optimum, relative to it, and the model."""
    settings = {
        "lam": LAM,
        "algorithm": "mom-dsvm",
        "fit_intercept": False,
        "stopping": None,
        "random_state": 0,
    } | settings
    model = GadgetSVC(max_iter=max_iter, record_every=0, **settings)
    model.fit(noisy.X, noisy.y, sites=noisy.deals[sites])
    return model.history_[-1]["worst_objective"] / noisy.f - 1, model


@pytest.mark.parametrize("sites", ["even", "unequal", "by label"])
@pytest.mark.parametrize("topology", ["ring", "star", "complete", "random-regular:3", "erdos-renyi:0.6"])
def test_every_node_reaches_the_pooled_optimum(noisy, topology, sites):
    """The claim of Forero et al.: the local vectors converge to the centralised SVM, whoever owns what."""
    worst, model = gap(noisy, topology=topology, sites=sites)
    assert -1e-9 < worst < 1e-3
    assert model.history_[-1]["messages"] == 400 * model.network_.n_edges  # a broadcast a node and iteration


@pytest.mark.parametrize("eta", [0.3, 3.0])
@pytest.mark.parametrize("passes", [1, 50])
def test_the_optimum_does_not_depend_on_penalty_or_passes(noisy, eta, passes):
    assert abs(gap(noisy, 1500, algorithm=MomDsvm(eta=eta, passes=passes))[0]) < 1e-3


def network_of(noisy, sites, topology="ring", algorithm=None, **given):
    """The runtime of a network that owns the rows as `sites` says."""
    start = np.concatenate([[0], np.cumsum(np.bincount(sites))])
    shares = Shares(np.argsort(sites, kind="stable"), start, np.empty(0))
    network, X, label = build(topology, len(start) - 1), sp.csr_matrix(noisy.X), noisy.y.astype(np.int32)
    block = Block.fresh(network, Rows.of(X, label, np.ones(240), shares), shares.sizes, 1, 8, **given)
    return LocalRuntime((algorithm or MomDsvm()).bind(network, LAM, 1.0, sizes=shares.sizes), [block])


@pytest.mark.parametrize("topology", ["ring", "line"])
def test_nodes_without_rows_pass_on_what_they_hear(noisy, topology):
    """Two of them side by side know nothing to choose a penalty by, until a neighbour's wish has come through."""
    runtime = network_of(noisy, np.repeat([0, 4], 120), topology)
    assert not np.bincount(np.repeat([0, 4], 120))[1:4].any()
    runtime.advance(1500)
    objective = Objective(sp.csr_matrix(noisy.X), noisy.y.astype(np.int32), np.ones(240), np.ones(240), LAM, 1)
    assert objective(runtime.weights()).objective.max() / noisy.f - 1 < 1e-3


@pytest.mark.parametrize("sites", ["even", "unequal", "by label"])
def test_the_lower_bound_is_below_the_optimum_and_reaches_it(noisy, sites):
    """Weak duality: whatever the nodes' multipliers are, no w has an F below; so no gap is larger than it says."""
    runtime, bounds = network_of(noisy, noisy.deals[sites]), []
    for _ in range(300):
        runtime.advance(1)
        bounds.append(lower_bound(runtime.blocks, LAM)[0])
    assert max(bounds) <= noisy.f * (1 + 1e-9)
    assert bounds[0] < 0.9 * noisy.f
    runtime.advance(1000)
    assert lower_bound(runtime.blocks, LAM)[0] >= 0.999 * noisy.f


def test_the_lower_bound_is_the_value_of_the_pooled_dual(noisy):
    runtime = network_of(noisy, noisy.deals["unequal"])
    runtime.advance(7)
    (block,) = runtime.blocks
    a = np.empty(240)
    a[block.rows.order] = block.edge["dual"][0] * LAM * 240 / 6  # between 0 and 1
    assert a.min() >= 0
    assert a.max() <= 1 + 1e-12
    w = (a * np.where(noisy.y == 1, 1, -1)) @ noisy.X / (LAM * 240)
    assert lower_bound([block], LAM)[0] == pytest.approx(a.mean() - LAM / 2 * w @ w)


@pytest.mark.parametrize("lossy", [False, True])
def test_the_penalty_settles_and_is_one_at_both_ends(noisy, lossy):
    """It follows the strain for a while and then stands, so that what remains is ADMM."""
    runtime = network_of(noisy, noisy.deals["by label"])
    runtime.exchange = wrap_all([Loss(0.2)], FaultContext(6, 1)) if lossy else None
    (block,) = runtime.blocks
    seen = []
    for until in (1, 200, LAST_ADAPTATION + 50, LAST_ADAPTATION + 250):
        runtime.advance(until - runtime.t)
        seen.append(block.edge["eta"].copy())
    assert (np.abs(np.log(seen[1] / seen[0])) > np.log(2)).all()
    np.testing.assert_array_equal(seen[2], seen[3])
    pairs = {(j, i): eta for j, i, eta in zip(np.repeat(range(6), 2), block.links.target, seen[3], strict=True)}
    assert all(pairs[i, j] == eta for (j, i), eta in pairs.items())


def test_unlike_shards_take_a_larger_penalty(noisy):
    """Rows of one label pull away from where all agree, harder than a fair share of them."""
    totals = {}
    for sites in ("even", "by label"):
        runtime = network_of(noisy, noisy.deals[sites])
        runtime.advance(LAST_ADAPTATION)
        totals[sites] = runtime.blocks[0].edge["eta"].sum()
    assert totals["by label"] > totals["even"]


def test_a_given_penalty_stays(noisy):
    runtime = network_of(noisy, noisy.deals["by label"], algorithm=MomDsvm(eta=0.7))
    runtime.advance(40)
    assert (runtime.blocks[0].edge["eta"] == 0.7).all()


@pytest.mark.parametrize("kappa", [1.0, 30.0])
def test_rows_out_of_reach_change_nothing(noisy, kappa):
    """A pass that leaves out rows which cannot move gives the same bits as one that looks at all of them."""
    rows = duals(noisy.X, noisy.y, np.full(240, 2.0))
    rng, skipped, looked = np.random.default_rng(0), 0, 0
    v, plain = np.zeros(8), np.zeros(8)
    alpha, other, limit, turn, path = np.zeros(240), np.zeros(240), np.zeros(240), np.arange(240), 0.0
    for _ in range(60):
        push = rng.normal(size=8) * 0.01
        v += push
        plain += push
        path += np.linalg.norm(push)
        rng.shuffle(turn)
        skipped += int((limit > path).sum())
        worst, path = path_pass(v, alpha, turn, limit, path, rows, 0, 240, 1, kappa)
        looked += dual_pass(plain, other, turn, rows, 0, 240, 1, kappa) != worst
        np.testing.assert_array_equal(v, plain)
        np.testing.assert_array_equal(alpha, other)
    assert looked == 0
    assert skipped > 2 * 240


def test_without_gossip_nodes_do_not_get_there(noisy):
    """Otherwise the tests above would show nothing: one iteration is every node by itself, or nearly."""
    assert gap(noisy, 1, sites="by label")[0] > 0.5


def reference(noisy, sites, network, eta, n_iter):
    """The iterations of Forero et al. without bias, with alpha kept as such and local problems solved to the end."""
    y, J, C = np.where(noisy.y == 1, 1.0, -1.0), network.n, 1 / (LAM * 240)
    near = [network.indices[network.indptr[j] : network.indptr[j + 1]] for j in range(J)]
    v, alpha = np.zeros((J, 8)), np.zeros((J, 8))
    for _ in range(n_iter):
        new = np.empty_like(v)
        for j in range(J):
            signed = (y[:, None] * noisy.X)[sites == j]
            U, f = 1 + 2 * eta * len(near[j]), 2 * alpha[j] - eta * sum(v[j] + v[i] for i in near[j])
            rows = duals(signed, np.ones(len(signed)), np.full(len(signed), J * C))
            new[j] = ascended(rows, f, U, passes=10**5)[0]
        v = new
        alpha = alpha + eta / 2 * np.array([sum(v[j] - v[i] for i in near[j]) for j in range(J)])
    return v


def test_the_iterations_are_those_of_the_paper(noisy):
    """Running sums are only another way to keep alpha."""
    model = gap(noisy, 12, topology="ring", algorithm=MomDsvm(eta=0.4, passes=10**5, tol=1e-12))[1]
    wanted = reference(noisy, noisy.deals["unequal"], model.network_, 0.4, 12)
    np.testing.assert_allclose(model.node_coef_, wanted, atol=1e-8)


@pytest.mark.parametrize("faults", ["loss=0.3", "delay=1", "bounce=0.3", {"slow": 2}])
def test_lost_late_and_bounced_messages_do_no_lasting_harm(noisy, faults):
    assert gap(noisy, 1500, faults=faults)[0] < 2e-3


def test_one_lost_message_is_made_good(noisy):
    """With v_j itself in the messages the sum of all alphas would stay off zero for good."""
    label, shares = noisy.y.astype(np.int32), Shares(np.arange(240), np.array([0, 120, 180, 240]), np.empty(0))
    network, rows = build("ring", 3), Rows.of(sp.csr_matrix(noisy.X), label, np.ones(240), shares)
    lossy = wrap_all([Loss(0.4)], FaultContext(3, 1))

    def early(messages):
        return lossy(messages) if messages.time < 40 else Delivery(messages)

    block = Block.fresh(network, rows, shares.sizes, 1, 8)
    runtime = LocalRuntime(MomDsvm().bind(network, LAM, 1.0, sizes=shares.sizes), [block], early)
    runtime.advance(2000)
    objective = Objective(sp.csr_matrix(noisy.X), label, np.ones(240), np.ones(240), LAM, 1)
    assert objective(block.w).objective.max() / noisy.f - 1 < 1e-5


RECEIVED = ("received", "received_v", "received_eta", "received_seq", "received_proposal")


def test_old_repeated_and_foreign_mail_is_ignored():
    """Node 5 hears node 2 (of which it knows exchange 6) and node 9; sums of 2 v: 20 after exchange 6, 32 after 8."""
    ends = Ends(
        np.array([0, 2]), np.array([2, 9]), np.ones(2), np.zeros((2, 1)), np.array([[20.0], [0.0]]), np.ones((2, 1)),
        np.ones(2), np.array([6, 6]), np.ones(2),
    )  # fmt: skip

    def hear(sender, seq, total):
        receive(
            0, 1, np.array([0]), np.array([0, 1]), np.array([sender]), np.array([seq]), np.array([[total]]),
            np.array([2.0]), np.array([4.0]), ends,
        )  # fmt: skip
        return tuple(float(getattr(ends, name).flat[0]) for name in RECEIVED)

    assert hear(2, 8, 32.0) == (32, 3, 2, 8, 4)  # one was missed: 3 each
    assert hear(2, 8, 32.0) == (32, 3, 2, 8, 4)
    assert hear(2, 7, 26.0) == (32, 3, 2, 8, 4)
    assert hear(5, 9, 99.0) == (32, 3, 2, 8, 4)  # its own, come back
    assert ends.received[1, 0] == 0


def test_one_against_the_rest_is_that_many_binary_machines(toy):
    """Under one penalty; "auto" goes by the strain of all outputs together."""
    settings = {"algorithm": MomDsvm(eta=2.0), "max_iter": 40, "stopping": None, "random_state": 2, "lam": 0.01}
    run_in_rounds = GadgetSVC(**settings).fit(toy.X, toy.three, sites=toy.sites)
    for c in range(3):
        alone = GadgetSVC(**settings).fit(toy.X, (toy.three == c).astype(int), sites=toy.sites)
        np.testing.assert_array_equal(run_in_rounds.node_coef_[:, c], alone.node_coef_)


@pytest.mark.parametrize("weights", ["cost", "multiplicity"])
def test_costs_and_multiplicities_reach_their_own_optimum(toy, weights):
    """A row of weight 3 is three rows, also where it has its weight from its class."""
    times, costs = np.resize([1.0, 3.0, 0.5], 60), {0: 3.0, 1: 0.5}
    given = {"sample_weight": times} if weights == "multiplicity" else {}
    model = GadgetSVC(
        algorithm="mom-dsvm", max_iter=1000, stopping=None, lam=LAM, fit_intercept=False, random_state=0,
        class_weight=None if given else costs, topology="complete",
    ).fit(toy.X, toy.y, sites=toy.sites, **given)  # fmt: skip
    total = times.sum() if given else np.where(toy.y == 0, 3.0, 0.5).sum()
    best = LinearSVC(loss="hinge", C=1 / (LAM * total), fit_intercept=False, tol=1e-9, max_iter=10**6)
    best.set_params(class_weight=None if given else costs).fit(toy.X, toy.y, **given)
    for node in range(3):
        np.testing.assert_allclose(model.node_coef_[node], best.coef_[0], atol=2e-3)


def test_the_objective_stops_it_and_models_are_last_iterates(toy):
    model = GadgetSVC(3, algorithm="mom-dsvm", stopping="objective", lam=LAM, random_state=0).fit(toy.X, toy.three)
    assert model.converged_
    assert model.n_iter_ < 1000
    assert model.score(toy.X, toy.three) > 0.7
    np.testing.assert_array_equal(model.node_coef_, model.node_last_coef_)
    with pytest.raises(ValueError, match="does not keep: use stopping='auto'"):
        GadgetSVC(3, algorithm="mom-dsvm", stopping="average").fit(toy.X, toy.y)


def test_one_node_alone_solves_the_problem(noisy):
    model = GadgetSVC(1, algorithm="mom-dsvm", lam=LAM, fit_intercept=False, stopping=None, max_iter=100)
    model.fit(noisy.X, noisy.y)
    assert model.history_[-1]["worst_objective"] / noisy.f - 1 < 1e-4
    assert model.history_[-1]["messages"] == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"eta": 0}, "positive number"),
        ({"eta": "large"}, "positive number"),
        ({"passes": 0}, "passes"),
        ({"passes": 1.5}, "passes"),
        ({"tol": -1}, "tol"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        MomDsvm(**settings).bind(build("ring", 4), LAM, 1.0, sizes=np.ones(4))


def test_what_it_cannot_run_on_is_refused():
    with pytest.raises(ValueError, match="undirected topology"):
        MomDsvm().bind(build("exponential", 6), LAM, 1.0, sizes=np.ones(6))
    with pytest.raises(ValueError, match="sizes"):
        MomDsvm().bind(build("ring", 6), LAM, 1.0)
