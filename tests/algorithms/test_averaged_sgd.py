"""Averaged SGD under Push-Sum, against a transcription in numpy and against the optimum that LIBLINEAR finds."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.svm import LinearSVC

from gadget_svm import GadgetSVC
from gadget_svm.algorithms import AveragedSgd, resolve
from gadget_svm.algorithms.averaged_sgd import local_pass, pass_length, tune_eta0
from gadget_svm.core.block import Block
from gadget_svm.core.rows import Objective, Rows, Shares
from gadget_svm.estimator import load_model, save_model
from gadget_svm.faults import Crash
from gadget_svm.kernels import draw
from gadget_svm.kernels.counter_rng import EXAMPLE
from gadget_svm.kernels.sgd import average_step_sizes, permutation_keys, permute
from gadget_svm.simulation import LocalRuntime
from gadget_svm.topologies import build

LAM, START = 0.1, np.array([0, 30, 50, 60])
SIZES = np.diff(START).astype(float)


def rows_of(toy, cost=None, times=np.empty(0), label=None):  # noqa: B008
    """The toy's rows in three shards of 30, 20 and 10."""
    label = (toy.y if label is None else label).astype(np.int32)
    cost = np.ones(60) if cost is None else cost
    return Rows.of(sp.csr_matrix(toy.X), label, cost, Shares(np.arange(60), START, times))


def block_of(toy, network, outputs=1, **settings):
    return Block.fresh(network, rows_of(toy, **settings), SIZES, outputs, 5, seed=4)


def transcript(w, X, y, cost, mine, node, done, count, eta0, power, lam, seed):
    """The steps one by one, every iterate kept: the last of them, and their mean."""
    iterates = []
    for t in range(done, done + count):
        keys = permutation_keys(seed, node, t // len(mine))
        r = mine[permute(t % len(mine), len(mine), keys)]
        eta = eta0 / (1 + lam * eta0 * t) ** power
        g = cost[r] * y[r] * X[r] if y[r] * (w @ X[r]) < 1 else 0.0
        w = (w + eta * g) / (1 + lam * eta)
        iterates.append(w)
    return w, np.mean(iterates, axis=0)


@pytest.mark.parametrize("power", [0.75, 1.0])
@pytest.mark.parametrize(("done", "count"), [(0, 1), (0, 45), (37, 80)])
@pytest.mark.parametrize("lam", [1e-3, 0.1, 40.0])
def test_a_local_pass_is_the_mean_of_the_iterates(toy, power, done, count, lam):
    """With lam = 40 the scale w is kept at falls below 1e-9 on the way and starts anew."""
    cost, y = np.where(toy.y == 1, 3.0, 0.5), np.where(toy.y == 1, 1.0, -1.0)
    start = np.random.default_rng(0).normal(size=(3, 1, 5))
    w, steps, eta0 = start.copy(), np.full(3, done), np.array([0.5, 0.2, 0.1])
    alive = np.array([True, True, False])
    local_pass(0, 3, alive, 6, w, rows_of(toy, cost), steps, count, eta0, power, lam, 11)
    for i in range(2):
        mine = np.arange(START[i], START[i + 1])
        args = (start[i, 0], toy.X, y, cost, mine, 6 + i, done, count, eta0[i], power, lam, 11)
        last, mean = transcript(*args)
        np.testing.assert_allclose(w[i, 0], mean, rtol=1e-9, atol=1e-13)
        assert count == 1 or not np.allclose(last, mean, rtol=1e-3)  # else the test would not tell them apart
    np.testing.assert_array_equal(w[2], start[2])  # nobody steps while away
    np.testing.assert_array_equal(steps, [done + count, done + count, done])


@pytest.mark.parametrize("recency", [0, 1, 2])
def test_iterations_are_passes_exact_averages_and_weighted_means(toy, recency):
    """Diffusion to its end on a complete graph is the mean. Shards are even: elsewhere Push-Sum holds back of steps."""
    network, y, start = build("complete", 3), np.where(toy.y == 1, 1.0, -1.0), np.array([0, 20, 40, 60])
    algorithm = AveragedSgd(eta0=0.3, power=0.75, passes=1.5, recency=recency, gossip="diffusion", gossip_rounds=200)
    block = Block.fresh(network, rows_of(toy)._replace(start=start), np.full(3, 20.0), 1, 5, seed=4)
    LocalRuntime(algorithm.bind(network, LAM, 1.0, sizes=block.n), [block]).advance(6)
    w, answers = np.zeros(5), []
    for done in range(0, 180, 30):
        shards = [np.arange(start[i], start[i + 1]) for i in range(3)]
        w = np.mean(
            [transcript(w, toy.X, y, np.ones(60), shards[i], i, done, 30, 0.3, 0.75, LAM, 4)[1] for i in range(3)],
            axis=0,
        )
        answers.append(w)
    np.testing.assert_allclose(block.w[:, 0], np.tile(w, (3, 1)), rtol=1e-8)
    wanted = np.average(answers, axis=0, weights=np.arange(1, 7) ** recency)
    np.testing.assert_allclose(block.averages()[:, 0], np.tile(wanted, (3, 1)), rtol=1e-8)


@given(count=st.integers(1, 300), seed=st.integers(0, 2**32), node=st.integers(0, 10**6), lap=st.integers(0, 2**40))
def test_everyone_has_one_turn_in_a_pass(count, seed, node, lap):
    keys = permutation_keys(seed, node, lap)
    assert sorted(permute(place, count, keys) for place in range(count)) == list(range(count))


def test_turns_are_evenly_spread_over_passes():
    """Every row is as likely at every place: 4000 passes of 7, of which each pair expects 571 and a deviation of 22."""
    counts = np.zeros((7, 7))
    for lap in range(4000):
        keys = permutation_keys(3, 1, lap)
        for place in range(7):
            counts[place, permute(place, 7, keys)] += 1
    assert abs(counts - 4000 / 7).max() < 6 * 22


def test_rows_of_weight_come_up_as_often_as_they_weigh(toy):
    """Also where weights are fractions, and smaller than a step."""
    from gadget_svm.algorithms.averaged_sgd import example

    times = np.ones(60)
    times[3], times[5] = 30.0, 0.25
    rows, counts = rows_of(toy, times=times), np.zeros(60)
    length = pass_length(rows, 0)
    assert length == 59  # 28 + 30 + 0.25, rounded up
    for t in range(400 * length):
        counts[example(rows, 0, 0, t, length, permutation_keys(0, 0, t // length), 0)] += 1
    assert counts[30:].sum() == 0
    np.testing.assert_allclose(counts[:30] / counts.sum(), times[:30] / times[:30].sum(), rtol=0.15)


def test_weight_and_repetition_are_the_same_bits(toy):
    times = np.arange(60) % 4
    settings = {"algorithm": "asgd", "lam": 0.01, "stopping": None, "max_iter": 12, "random_state": 3}
    weighted = GadgetSVC(4, **settings).fit(toy.X, toy.y, sample_weight=times)
    repeated = GadgetSVC(4, **settings).fit(np.repeat(toy.X, times, axis=0), np.repeat(toy.y, times))
    np.testing.assert_array_equal(weighted.node_coef_, repeated.node_coef_)


def chosen(rows, lam=1e-3, outputs=1):
    eta0 = np.empty(len(rows.start) - 1)
    tune_eta0(0, len(eta0), 0, outputs, 5, rows, lam, 0, eta0)
    return eta0


def test_step_sizes_are_tried_in_units_of_the_rows_lengths(toy):
    """Rows four times as long and lam sixteen times as large: w is a quarter, the steps a sixteenth, all else alike."""
    rows = rows_of(toy)
    eta0, longer = chosen(rows), chosen(rows._replace(data=4 * rows.data), 16e-3)
    np.testing.assert_allclose(longer, eta0 / 16, rtol=1e-12)
    units = eta0 * [np.mean(np.sum(toy.X[a:b] ** 2, axis=1)) for a, b in pairwise(START)]
    np.testing.assert_allclose(np.log2(units), np.round(np.log2(units)), atol=1e-9)  # halves of the largest
    assert (units <= 2 + 1e-9).all()


def test_noise_wants_smaller_first_steps():
    """Labels at random against labels that a plane decides."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 5))
    shares = Shares(np.arange(2000), np.array([0, 2000]), np.empty(0))
    clean, noise = (X[:, 0] > 0).astype(np.int32), rng.integers(0, 2, 2000).astype(np.int32)
    easy, hard = (chosen(Rows.of(sp.csr_matrix(X), y, np.ones(2000), shares), 1e-4)[0] for y in (clean, noise))
    assert hard < easy / 4


def test_who_has_nothing_to_try_on_has_no_opinion_and_takes_its_neighbours():
    X = sp.csr_matrix(np.vstack([np.zeros((2, 5)), np.eye(5)]))
    shares = Shares(np.arange(7), np.array([0, 2, 2, 7]), np.empty(0))  # empty rows, no rows, five rows
    eta0 = chosen(Rows.of(X, np.array([0, 1, 0, 1, 0, 1, 0], dtype=np.int32), np.ones(7), shares))
    assert eta0[0] == eta0[1] == 0 < eta0[2]
    average_step_sizes(0, 3, np.array([0, 1, 2, 3]), np.array([0, 2, 3, 4]), np.array([4.0, 1.0, 0.0, 0.0]), eta0)
    assert eta0[0] == 2.0  # took over 4, then met 1 in the middle
    assert eta0[1] == 0.0  # heard only somebody without an opinion
    assert eta0[2] > 0


@pytest.mark.parametrize("gossip", ["push-sum", "diffusion", "pairwise", "running-sum"])
def test_nodes_agree_on_a_step_size(toy, gossip):
    """Whatever gossips; and it lies between what the nodes found."""
    network = build("ring", 3)
    block = block_of(toy, network)
    runtime = LocalRuntime(AveragedSgd(gossip=gossip).bind(network, LAM, 1.0, sizes=SIZES), [block])
    wished = np.array([0.01, 0.1, 1.0])
    block.edge["eta0"] = wished.copy()
    runtime.advance(60)
    np.testing.assert_allclose(block.edge["eta0"], block.edge["eta0"][0], rtol=1e-4)
    assert wished.min() < block.edge["eta0"][0] < wished.max()


def test_a_given_step_size_does_not_travel(toy):
    """Eight bytes a message are for those who have to agree."""
    network, sent = build("ring", 3), []
    for eta0 in ("auto", 0.1):
        runtime = LocalRuntime(AveragedSgd(eta0=eta0).bind(network, LAM, 1.0, sizes=SIZES), [block_of(toy, network)])
        runtime.advance(10)
        sent.append((runtime.messages, runtime.nbytes))
    assert sent[0][0] == sent[1][0] > 0
    assert sent[0][1] - sent[1][1] == 8 * sent[0][0]


def gap(toy, model, y=None, cost=None, lam=LAM):
    """The worst node's relative distance from LIBLINEAR's optimum."""
    y, cost = toy.y if y is None else y, np.ones(60) if cost is None else cost
    best = LinearSVC(loss="hinge", C=1 / (lam * cost.sum()), fit_intercept=False, tol=1e-9, max_iter=10**7)
    best.fit(toy.X, y, sample_weight=cost)
    objective = Objective(sp.csr_matrix(toy.X), y.astype(np.int32), np.ones(60), cost, lam, 1)
    return objective(model.node_coef_[:, None]).objective.max() / objective(best.coef_[None]).objective[0] - 1


def network_of(**settings):
    options = {"algorithm": "asgd", "lam": LAM, "fit_intercept": False, "stopping": None, "max_iter": 2000}
    return GadgetSVC(random_state=0, **(options | settings))


def test_every_node_approaches_the_optimum(toy):
    """Shards of 30, 20 and 10 rows: with n_i steps at node i, or n_i forgotten, it would be another problem's."""
    assert 0 <= gap(toy, network_of().fit(toy.X, toy.y, sites=toy.sites)) < 4e-4


def test_shards_of_one_class_each_approach_it_too(toy):
    sites = np.where(toy.y == 1, 0, np.arange(60) % 2 + 1)
    assert gap(toy, network_of(max_iter=6000).fit(toy.X, toy.y, sites=sites)) < 4e-4


def test_class_weights_count(toy):
    model = network_of(class_weight={0: 0.1, 1: 3.0}).fit(toy.X, toy.y, sites=toy.sites)
    cost = np.where(toy.y == 1, 3.0, 0.1)
    assert gap(toy, model, cost=cost) < 2e-3
    assert gap(toy, network_of().fit(toy.X, toy.y, sites=toy.sites), cost=cost) > 4e-3  # and make a difference


def test_the_last_iterate_is_farther_off_than_the_average(toy):
    average, last = (
        gap(toy, network_of(algorithm=AveragedSgd(average=kept), max_iter=100).fit(toy.X, toy.y, sites=toy.sites))
        for kept in (True, False)
    )
    assert average < last


def test_one_against_the_rest_is_that_many_binary_machines(toy):
    """At a given step size; "auto" finds one for all outputs together."""
    settings = {"algorithm": AveragedSgd(eta0=0.2), "max_iter": 20, "stopping": None, "random_state": 2, "lam": 0.01}
    run_in_rounds = GadgetSVC(**settings).fit(toy.X, toy.three, sites=toy.sites)
    for c in range(3):
        alone = GadgetSVC(**settings).fit(toy.X, (toy.three == c).astype(int), sites=toy.sites)
        np.testing.assert_array_equal(run_in_rounds.node_coef_[:, c], alone.node_coef_)


FAULTS = [None, "loss=0.3", "delay=2", "bounce=0.3", {"churn": {"leave": 0.2, "join": 0.4}}]


@pytest.mark.parametrize(
    "faults", ["loss=0.3", {"loss": 0.2, "delay": 2, "churn": {"leave": 0.02, "join": 0.3}}], ids=str
)
def test_faults_do_not_move_the_limit(toy, faults):
    """gossip="auto" turns to running sums where messages get lost."""
    model = network_of(faults=faults, max_iter=4000).fit(toy.X, toy.y, sites=toy.sites)
    assert model.gossip_ == "running-sum"
    assert gap(toy, model) < 6e-4


def test_who_comes_back_from_a_crash_catches_up(toy):
    model = network_of(faults=[Crash(nodes=[2], at=20, back=60)]).fit(toy.X, toy.y, sites=toy.sites)
    assert gap(toy, model) < 1e-3  # without its rows the limit is 4e-3 off and more


def test_rows_stay_sparse_and_wide():
    """Half a million features, three in a row: a dense copy of the rows would take 800 MB."""
    rng = np.random.default_rng(0)
    X = sp.csr_matrix(
        (np.ones(600), rng.integers(0, 500_000, 600), np.arange(0, 601, 3)), shape=(200, 500_000)
    ) + sp.csr_matrix((np.ones(200), (np.arange(200), np.arange(200) % 2)), shape=(200, 500_000))
    model = GadgetSVC(2, topology="complete", algorithm="asgd", stopping=None, max_iter=3, random_state=0)
    assert model.fit(X, np.arange(200) % 2).score(X, np.arange(200) % 2) == 1.0


def test_many_nodes_of_one_row_each_are_one_step_an_iteration(toy):
    network = build("complete", 60)
    run = AveragedSgd().bind(network, LAM, 1.0, sizes=np.ones(60))
    assert run.local_steps == 1
    assert AveragedSgd(passes=0.5).bind(network, LAM, 1.0, sizes=np.full(60, 7.0)).local_steps == 4
    model = network_of(n_nodes=60, topology="complete").fit(toy.X, toy.y)
    assert model.score(toy.X, toy.y) > 0.85


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"eta0": 0}, "eta0 must be a positive number or 'auto', got 0"),
        ({"eta0": "automatic"}, "eta0 must be a positive number or 'auto', got 'automatic'"),
        ({"eta0": np.inf}, "eta0 must be a positive number"),
        ({"power": -1}, "power must be a positive number, got -1"),
        ({"power": None}, "power must be a positive number, got None"),
        ({"passes": 0.0}, r"passes must be a positive number, got 0\.0"),
        ({"passes": True}, "passes must be a positive number, got True"),
        ({"recency": 3}, "recency is 0, 1 or 2, got 3"),
        ({"recency": "late"}, "recency is 0, 1 or 2, got 'late'"),
        ({"gossip": "push-some"}, "push-sum"),
        ({"gossip_rounds": 0}, "gossip_rounds must be a whole number of at least 1"),
        ({"gossip_rounds": "diameter"}, "use gossip_rounds=1, or 'mix'"),
    ],
)
def test_bad_settings_say_what_is_right(settings, words):
    with pytest.raises(ValueError, match=words):
        AveragedSgd(**settings).bind(build("ring", 3), LAM, 1.0, sizes=SIZES)


def test_without_sizes_it_says_what_is_missing():
    with pytest.raises(ValueError, match="sizes"):
        AveragedSgd().bind(build("ring", 3), LAM, 1.0)


def test_it_is_known_by_name_to_scikit_learn_and_to_model_files(toy, tmp_path):
    assert isinstance(resolve("asgd"), AveragedSgd)
    assert clone(AveragedSgd(passes=0.5, recency=1)).get_params()["passes"] == 0.5
    model = GadgetSVC(3, algorithm=AveragedSgd(), stopping=None, max_iter=3, random_state=0)
    model.set_params(algorithm__power=0.75).fit(toy.X, toy.y)
    again = load_model(save_model(model, tmp_path / "model.safetensors"))
    assert again.algorithm.get_params() == model.algorithm.get_params()
    assert again.algorithm.power == 0.75


def test_a_step_size_is_a_pure_function_of_the_nodes_own_rows(toy):
    """Draws are keyed by (seed, node): the same node in another block finds the same."""
    rows = rows_of(toy)
    apart = np.empty(1)
    for i in range(3):
        tune_eta0(0, 1, i, 1, 5, rows.of_nodes(i, i + 1), 1e-3, 0, apart)
        assert apart[0] == chosen(rows)[i]
    assert draw(0, 0, 0, EXAMPLE) != draw(0, 1, 0, EXAMPLE)


def test_on_adult_it_is_nearer_than_gadget_with_as_many_steps_and_messages(adult):
    from gadget_svm import Gadget

    settings = {"lam": adult.lam, "fit_intercept": False, "stopping": None, "max_iter": 20, "random_state": 0}
    mine, theirs = (
        GadgetSVC(10, algorithm=algorithm, **settings).fit(adult.X, adult.y).history_[-1]
        for algorithm in ("asgd", Gadget(solver="implicit", local_steps=3256))
    )
    assert mine["messages"] == theirs["messages"]
    assert mine["worst_objective"] < theirs["worst_objective"]
