"""GadgetSVC among its scikit-learn relatives."""

import io
import pickle
import warnings

import joblib
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from gadget_svm import Gadget, GadgetSVC
from gadget_svm.estimator.problem import as_csr
from gadget_svm.faults import Loss

QUICK = {"max_iter": 60, "stopping": None, "lam": 0.05, "random_state": 0}


@pytest.mark.filterwarnings("ignore:stopped at max_iter")
@parametrize_with_checks([GadgetSVC()])
def test_scikit_learns_own_checks(estimator, check):
    """All of them, with default parameters and no exceptions."""
    check(estimator)


@pytest.mark.parametrize("intercept", [True, False])
def test_shapes_of_binary_and_multi_class_models(toy, intercept):
    two = GadgetSVC(4, fit_intercept=intercept, **QUICK).fit(toy.X, toy.y)
    assert (two.coef_.shape, two.intercept_.shape) == ((1, 5), (1,))
    assert (two.node_coef_.shape, two.node_intercept_.shape) == ((4, 5), (4,))
    assert two.decision_function(toy.X).shape == (60,)
    three = GadgetSVC(4, fit_intercept=intercept, **QUICK).fit(toy.X, toy.three)
    assert (three.coef_.shape, three.intercept_.shape) == ((3, 5), (3,))
    assert (three.node_coef_.shape, three.node_intercept_.shape) == ((4, 3, 5), (4, 3))
    assert three.decision_function(toy.X).shape == (60, 3)
    for model in (two, three):
        assert model.n_features_in_ == 5
        assert model.sites_ == [0, 1, 2, 3]
        assert (model.intercept_ != 0).any() == intercept


def test_the_constant_feature_is_regularised(toy):
    """fit_intercept=True is the same problem with a column of ones."""
    ones, close = np.c_[toy.X, np.ones(60)], {"lam": 0.05, "tol": 1e-9, "max_iter": 20_000, "random_state": 0}
    inside = GadgetSVC(fit_intercept=True, **close).fit(toy.X, toy.y, sites=toy.sites)
    outside = GadgetSVC(fit_intercept=False, **close).fit(ones, toy.y, sites=toy.sites)
    assert inside.converged_
    assert outside.converged_
    np.testing.assert_allclose(np.r_[inside.coef_[0], inside.intercept_], outside.coef_[0], atol=2e-4)


def test_the_network_average_is_weighted_by_the_shards(toy):
    model = GadgetSVC(**QUICK).fit(toy.X, toy.y, sites=toy.sites)
    np.testing.assert_allclose(model.coef_[0], np.average(model.node_coef_, axis=0, weights=[30, 20, 10]))


def test_averaged_and_last_iterates_are_both_there(toy):
    averaged = GadgetSVC(4, algorithm=Gadget(), **QUICK).fit(toy.X, toy.y)
    last = GadgetSVC(4, algorithm=Gadget(average=False), **QUICK).fit(toy.X, toy.y)
    np.testing.assert_array_equal(averaged.node_last_coef_, last.node_coef_)
    assert not np.array_equal(averaged.node_coef_, last.node_coef_)


@pytest.mark.parametrize("labels", ["y", "three"])
def test_a_nodes_model_is_usable_by_itself(toy, labels):
    y = getattr(toy, labels)
    model = GadgetSVC(4, **QUICK).fit(toy.X, y)
    for i in range(4):
        node = model.node(i)
        np.testing.assert_array_equal(np.squeeze(node.coef_), model.node_coef_[i])
        assert node.coef_.shape == model.coef_.shape
        assert node.predict(toy.X).shape == (60,)
        assert len(node.node_coef_) == len(node.node_last_coef_) == len(node.sites_) == 1
        np.testing.assert_array_equal(node.node(0).coef_, node.coef_)
    for wrong in (-1, 4):
        with pytest.raises(IndexError, match=r"no node .*: the nodes are 0 to 3"):
            model.node(wrong)
    with pytest.raises(NotFittedError):
        GadgetSVC().node(0)
    with pytest.raises(ValueError, match="cannot be trained further"):
        model.node(1).partial_fit(toy.X, y)


def test_string_labels_and_frames_with_names(toy):
    frame = pd.DataFrame(toy.X, columns=list("abcde"))
    names = np.array(["no", "yes"])[toy.y]
    model = GadgetSVC(4, **QUICK).fit(frame, pd.Series(names))
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.feature_names_in_.tolist() == list("abcde")
    assert set(model.predict(frame)) == {"no", "yes"}
    plain = GadgetSVC(4, **QUICK).fit(toy.X, toy.y)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[list("edcba")])


def test_dense_sparse_and_odd_arrays_give_the_same_model(toy, tmp_path):
    wanted = GadgetSVC(4, **QUICK).fit(toy.X, toy.y).coef_
    csr = sp.csr_matrix(toy.X)
    twice = sp.csr_matrix((np.repeat(csr.data / 2, 2), np.repeat(csr.indices, 2), csr.indptr * 2), shape=csr.shape)
    locked = toy.X.copy()
    locked.flags.writeable = False
    np.save(tmp_path / "X.npy", toy.X)
    kinds = {
        "csr": csr, "csc": csr.tocsc(), "coo": csr.tocoo(), "array": sp.csr_array(toy.X), "entries named twice": twice,
        "long indices": sp.csr_matrix((csr.data, csr.indices.astype(np.int64), csr.indptr.astype(np.int64)), csr.shape),
        "fortran": np.asfortranarray(toy.X), "strided": np.repeat(toy.X, 2, axis=1)[:, ::2], "read-only": locked,
        "memory map": np.load(tmp_path / "X.npy", mmap_mode="r"), "lists": toy.X.tolist(),
    }  # fmt: skip
    for kind, X in kinds.items():
        np.testing.assert_array_equal(GadgetSVC(4, **QUICK).fit(X, toy.y).coef_, wanted, err_msg=kind)
    assert twice.nnz == 600  # what the user gave stays as it was


def test_sparse_data_is_never_made_dense(monkeypatch):
    """A matrix of 200 rows and a million columns would take 1.6 GB."""
    rng = np.random.default_rng(0)
    columns = rng.integers(0, 10**6, (200, 10)).ravel()
    X = sp.csr_matrix((rng.normal(size=2000), columns, np.arange(0, 2001, 10)), shape=(200, 10**6))
    y = np.arange(200) % 2

    def refuse(*_args, **_kwargs):
        raise AssertionError("a sparse matrix was made dense")

    for kind in (sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.coo_matrix):
        for name in ("toarray", "todense"):
            monkeypatch.setattr(kind, name, refuse)
    model = GadgetSVC(2, max_iter=3, stopping=None).fit(X, y)
    assert model.predict(X).shape == (200,)
    assert model.coef_.shape == (1, 10**6)


SEEDS = {"topology_seed": 3, "partition_seed": 4}


@pytest.mark.parametrize("name", SEEDS)
def test_separate_seeds(toy, name):
    """Each changes its own part, and by default is that of random_state."""
    settings = {"n_nodes": 8, "algorithm": "gadget", **QUICK}
    whole, same = (GadgetSVC(**settings, **seed).fit(toy.X, toy.y) for seed in ({}, dict.fromkeys(SEEDS, 0)))
    np.testing.assert_array_equal(whole.node_coef_, same.node_coef_)
    other = GadgetSVC(**settings, **{name: SEEDS[name]}).fit(toy.X, toy.y)
    assert not np.array_equal(whole.node_coef_, other.node_coef_)
    graphs = [model.network_.indices.tolist() for model in (whole, other)]
    assert (graphs[0] == graphs[1]) == (name == "partition_seed")


def test_partition_seed_of_batches(toy):
    def model(**seeds):
        return GadgetSVC(4, random_state=0, **seeds).partial_fit(toy.X, toy.y, classes=[0, 1]).coef_

    np.testing.assert_array_equal(model(), model(partition_seed=0))
    assert not np.array_equal(model(), model(partition_seed=1))


@pytest.mark.parametrize("labels", ["y", "three"])
def test_the_order_of_rows_does_not_matter(toy, labels):
    y, turn = getattr(toy, labels), np.random.default_rng(1).permutation(60)
    one = GadgetSVC(4, **QUICK).fit(toy.X, y)
    other = GadgetSVC(4, **QUICK).fit(toy.X[turn], y[turn])
    np.testing.assert_array_equal(one.node_coef_, other.node_coef_)


def test_whole_sample_weights_are_repeated_rows(toy):
    times = np.random.default_rng(2).integers(0, 4, 60)
    weighted = GadgetSVC(4, **QUICK).fit(toy.X, toy.y, sample_weight=times)
    repeated = GadgetSVC(4, **QUICK).fit(np.repeat(toy.X, times, axis=0), np.repeat(toy.y, times))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-12)
    assert weighted.history_[-1]["objective"] == pytest.approx(repeated.history_[-1]["objective"])


def test_fractional_sample_weights_come_to_the_weighted_optimum(toy):
    weight = np.where(toy.X[:, 2] > 0, 2.5, 0.3)
    settings = {"lam": 0.1, "fit_intercept": False, "max_iter": 5000, "stopping": None, "random_state": 0}
    model = GadgetSVC(4, algorithm="gadget", **settings).fit(toy.X, toy.y, sample_weight=weight)
    solver = LinearSVC(loss="hinge", C=1 / (0.1 * weight.sum()), fit_intercept=False, max_iter=10**6)
    wanted = solver.fit(toy.X, toy.y, sample_weight=weight).coef_
    plain = LinearSVC(loss="hinge", C=1 / (0.1 * 60), fit_intercept=False, max_iter=10**6).fit(toy.X, toy.y).coef_
    assert np.linalg.norm(model.coef_ - wanted) < 0.1 * np.linalg.norm(wanted)
    assert np.linalg.norm(model.coef_ - wanted) < 0.5 * np.linalg.norm(plain - wanted)


def test_class_weight_moves_the_border(toy):
    def share_of_ones(weight):
        return GadgetSVC(4, class_weight=weight, **QUICK).fit(toy.X, toy.y).predict(toy.X).mean()

    assert share_of_ones({0: 1, 1: 20}) > share_of_ones(None) > share_of_ones({0: 20, 1: 1})


def test_balanced_is_the_weight_it_stands_for(toy):
    rare = np.r_[np.flatnonzero(toy.y == 0), np.flatnonzero(toy.y == 1)[:6]]
    X, y = toy.X[rare], toy.y[rare]
    by_hand = {c: len(y) / (2 * (y == c).sum()) for c in (0, 1)}
    one, other = (GadgetSVC(4, class_weight=w, **QUICK).fit(X, y).coef_ for w in ("balanced", by_hand))
    np.testing.assert_allclose(one, other, rtol=1e-12)


def test_sites_decide_the_nodes_whatever_n_nodes_says(toy):
    towns = np.array(["Rome", "Bern", "Oslo"])[toy.sites]
    model = GadgetSVC(10, **QUICK).fit(toy.X, toy.y, sites=towns)
    assert model.sites_ == ["Bern", "Oslo", "Rome"]
    assert len(model.node_coef_) == 3
    turned = GadgetSVC(10, **QUICK).fit(toy.X, toy.y, sites=pd.Series(towns, index=np.arange(60)[::-1]))
    np.testing.assert_array_equal(model.node_coef_, turned.node_coef_)


def test_sites_travel_by_metadata_routing(toy):
    """In a pipeline and in cross-validation, where only the training rows' sites reach fit."""
    with sklearn.config_context(enable_metadata_routing=True):
        model = GadgetSVC(**QUICK).set_fit_request(sites=True, sample_weight=True)
        model.set_score_request(sample_weight=True)
        line = make_pipeline(StandardScaler(), model).fit(toy.X, toy.y, sites=toy.sites)
        assert line[-1].sites_ == [0, 1, 2]
        weight = np.linspace(1, 2, 60)
        result = cross_validate(
            make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model), toy.X, toy.y,
            cv=KFold(3, shuffle=True, random_state=0),
            params={"sites": toy.sites, "sample_weight": weight}, return_estimator=True, error_score="raise",
        )  # fmt: skip
        for fitted in result["estimator"]:
            assert fitted[-1].sites_ == [0, 1, 2]


def test_grid_search_over_the_algorithms_own_parameters(toy):
    base = GadgetSVC(4, algorithm=Gadget(solver="implicit"), **QUICK)
    grid = {"algorithm__local_steps": [1, 5], "algorithm__gossip_rounds": np.array([1, 2]), "lam": [0.01, 0.1]}
    search = GridSearchCV(base, grid, cv=2, error_score="raise").fit(toy.X, toy.y)
    assert len(search.cv_results_["params"]) == 8
    assert search.best_score_ > 0.7
    assert base.algorithm.local_steps == 1  # the one given is not touched
    chosen = search.best_estimator_.algorithm
    assert chosen.local_steps == search.best_params_["algorithm__local_steps"]


def test_grid_search_over_algorithms_in_two_processes(toy):
    grid = {"algorithm": ["auto", Gadget(local_steps=3)], "topology": ["ring", "complete"]}
    search = GridSearchCV(GadgetSVC(4, **QUICK), grid, cv=2, n_jobs=2, error_score="raise").fit(toy.X, toy.y)
    alone = GridSearchCV(GadgetSVC(4, **QUICK), grid, cv=2, error_score="raise").fit(toy.X, toy.y)
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])


def test_clone_and_pickle_and_joblib(toy, tmp_path):
    model = GadgetSVC(4, algorithm=Gadget(local_steps=2), faults=[Loss(0.1)], **QUICK)
    twin = clone(model)
    assert twin.get_params()["algorithm__local_steps"] == 2
    assert twin.algorithm is not model.algorithm
    model.fit(toy.X, toy.y)
    np.testing.assert_array_equal(twin.fit(toy.X, toy.y).coef_, model.coef_)
    joblib.dump(model, tmp_path / "model")
    for copy in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model")):
        np.testing.assert_array_equal(copy.predict(toy.X), model.predict(toy.X))
        assert copy.history_ == model.history_


def test_learning_can_be_pickled_in_the_middle(toy):
    """A stream that is stored and taken up again goes on as if nothing had happened."""
    straight = GadgetSVC(4, random_state=0)
    for part in range(3):
        straight.partial_fit(toy.X[part::3], toy.y[part::3], classes=[0, 1])
    stored = GadgetSVC(4, random_state=0).partial_fit(toy.X[::3], toy.y[::3], classes=[0, 1])
    for part in (1, 2):
        stored = pickle.loads(pickle.dumps(stored)).partial_fit(toy.X[part::3], toy.y[part::3])
    np.testing.assert_array_equal(straight.coef_, stored.coef_)


@pytest.mark.parametrize("labels", ["y", "three"])
def test_partial_fit_learns_from_a_stream_of_small_batches(toy, labels):
    """Batches smaller than the network too: nodes without rows of a batch keep what they know, and their weight."""
    y = getattr(toy, labels)
    model = GadgetSVC(4, lam=0.05, random_state=0)
    for _ in range(3):
        for r in range(0, 60, 2):
            model.partial_fit(toy.X[r : r + 2], y[r : r + 2], classes=np.unique(y))
    assert model.score(toy.X, y) > 0.75
    assert model.n_iter_ == 90
    for name in ("iteration", "seconds", "messages", "bytes"):
        values = [record[name] for record in model.history_]
        assert values == sorted(values), name
    assert model.history_[-1]["iteration"] == 90
    away = np.linalg.norm(model.node_coef_ - model.coef_ if labels == "y" else model.node_coef_ - model.coef_[None])
    assert away < np.linalg.norm(model.node_coef_)


def test_the_average_counts_all_rows_a_node_has_seen(toy):
    model = GadgetSVC(random_state=0).partial_fit(toy.X, toy.y, classes=[0, 1], sites=toy.sites)
    model.partial_fit(toy.X[:5], toy.y[:5], sites=np.full(5, 2))
    np.testing.assert_allclose(model.coef_[0], np.average(model.node_coef_, axis=0, weights=[30, 20, 15]))


def test_partial_fit_goes_on_after_fit(toy):
    model = GadgetSVC(4, **QUICK).fit(toy.X, toy.y)
    before = model.coef_.copy()
    model.partial_fit(toy.X, toy.y)
    assert model.n_iter_ == 60 + 2  # one pass: 15 rows a node, 10 local steps an iteration of GADGET, as rows come on
    assert not np.array_equal(model.coef_, before)
    assert np.linalg.norm(model.coef_ - before) < 0.3 * np.linalg.norm(before)


def test_partial_fit_refuses_what_it_cannot_know(toy):
    model = GadgetSVC(random_state=0)
    with pytest.raises(ValueError, match="first call of partial_fit needs classes"):
        model.partial_fit(toy.X, toy.y)
    model.partial_fit(toy.X, toy.y, classes=[0, 1], sites=toy.sites)
    with pytest.raises(ValueError, match="label 7 is not among the classes"):
        model.partial_fit(toy.X[:2], [0, 7], sites=[0, 1])
    with pytest.raises(ValueError, match="unknown site 9"):
        model.partial_fit(toy.X[:2], [0, 1], sites=[0, 9])
    with pytest.raises(ValueError, match="classes are fixed by the first call"):
        model.partial_fit(toy.X[:2], [0, 1], classes=[0, 1, 2], sites=[0, 1])
    with pytest.raises(ValueError, match="5 features"):
        model.partial_fit(toy.X[:2, :3], [0, 1], sites=[0, 1])
    with pytest.raises(ValueError, match="needs all rows at once"):
        GadgetSVC(class_weight="balanced").partial_fit(toy.X, toy.y, classes=[0, 1])


def test_shards_as_arrays_as_files_and_mixed(toy, tmp_path):
    parts = [(toy.X[toy.sites == i], toy.y[toy.sites == i]) for i in range(3)]
    wanted = GadgetSVC(**QUICK).fit(toy.X, toy.y, sites=toy.sites).node_coef_
    np.testing.assert_array_equal(GadgetSVC(**QUICK).fit_shards(parts).node_coef_, wanted)
    np.testing.assert_array_equal(GadgetSVC(**QUICK).fit_shards(iter(parts)).node_coef_, wanted)
    paths = [tmp_path / f"{i}.npz" for i in range(3)]
    for path, (X, y) in zip(paths, parts, strict=True):
        np.savez(path, X=X, y=y)
    np.testing.assert_array_equal(GadgetSVC(**QUICK).fit_shards(paths).node_coef_, wanted)
    mixed = [str(paths[0]), (sp.csr_matrix(parts[1][0]), parts[1][1]), paths[2]]
    np.testing.assert_array_equal(GadgetSVC(**QUICK).fit_shards(mixed).node_coef_, wanted)


def test_svmlight_shards_that_lack_the_last_features_share_one_width(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1 4:2\n-1 2:1\n")
    (tmp_path / "b.svm").write_text("1 1:1\n-1 2:3\n")  # no third and no fourth feature here
    model = GadgetSVC(**QUICK).fit_shards([tmp_path / "a.svm", tmp_path / "b.svm"])
    assert model.n_features_in_ == 4
    assert model.sites_ == [0, 1]


def test_default_number_of_nodes(toy):
    assert len(GadgetSVC(**QUICK).fit(toy.X, toy.y).node_coef_) == 10
    few = np.flatnonzero(toy.y == 0)[:2].tolist() + np.flatnonzero(toy.y == 1)[:2].tolist()
    assert len(GadgetSVC(**QUICK).fit(toy.X[few], toy.y[few]).node_coef_) == 4


def test_the_constructor_only_stores():
    """Nonsense is found in fit, not before."""
    assert GadgetSVC(lam="x", topology=3, algorithm=None).get_params()["lam"] == "x"


def test_the_docstrings_parameters_are_the_constructors():
    """numpydoc names them, in any grouping."""
    text = GadgetSVC.__doc__ + Gadget.__doc__
    for name in [*GadgetSVC().get_params(deep=False), *Gadget().get_params()]:
        assert f"{name} :" in text or f"{name}," in text or f", {name}" in text, name


@pytest.mark.parametrize(("load", "least"), [(load_breast_cancer, 0.95), (load_digits, 0.93)])
def test_real_rows_are_learned_by_every_node(load, least):
    X, y = load(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GadgetSVC(lam=1e-2, max_iter=500, random_state=0).fit(X, y)
    assert min(model.node(i).score(X, y) for i in range(10)) >= least


def test_a_model_in_memory_is_no_larger_than_it_must_be(toy):
    """No view keeps the whole training state alive."""
    model = GadgetSVC(4, **QUICK).fit(toy.X, toy.y)
    for name in ("coef_", "intercept_", "node_coef_", "node_intercept_", "node_last_intercept_"):
        assert getattr(model, name).base is None, name
    buffer = io.BytesIO()
    joblib.dump(model, buffer)
    assert buffer.tell() < 40_000


def test_a_given_graph_brings_its_number_of_nodes():
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    assert len(GadgetSVC(topology=nx.cycle_graph(7), max_iter=3, stopping=None).fit(X, y).node_coef_) == 7


def test_no_leaf_of_a_star_starves():
    """One neighbour a round rarely reaches a leaf: there gossip="auto" sends to all of them, on a ring to one."""
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    sent = {
        name: GadgetSVC(8, topology=name, algorithm="gadget", max_iter=3, stopping=None)
        .fit(X, y)
        .history_[-1]["messages"]
        for name in ("star", "ring")
    }
    assert sent == {"star": 3 * 14, "ring": 3 * 8}


def test_nodes_that_are_away_do_not_count_in_the_average():
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    gone = {"crash": {"nodes": [0], "at": 1}}
    model = GadgetSVC(6, faults=gone, max_iter=50, stopping=None, fit_intercept=False, random_state=0).fit(X, y)
    others = np.average(model.node_coef_[1:], axis=0)
    np.testing.assert_allclose(model.coef_[0], others, rtol=1e-12)


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
def test_features_that_occur_nowhere_change_nothing(toy, algorithm):
    """Not a bit of the others, and on the wire they count: a peer does not know what occurs elsewhere."""
    wide = np.zeros((60, 15))
    wide[:, [1, 4, 7, 8, 13]] = toy.X
    settings = {"algorithm": algorithm, "max_iter": 50, "stopping": None, "random_state": 0, "lam": 0.01}
    narrow, padded = (
        GadgetSVC(**settings).fit(X, toy.y, sites=toy.sites) for X in (toy.X, sp.csr_matrix(wide))
    )  # fmt: skip
    if algorithm == "pdmm":
        np.testing.assert_array_equal(padded.node_coef_[:, [1, 4, 7, 8, 13]], narrow.node_coef_)
    assert padded.coef_.shape == (1, 15)
    assert not padded.coef_[0, [0, 2, 3, 5, 6, 9, 10, 11, 12, 14]].any()
    assert padded.history_[-1]["bytes"] - narrow.history_[-1]["bytes"] == 8 * 10 * padded.history_[-1]["messages"]
    padded.partial_fit(sp.csr_matrix(wide), toy.y, sites=toy.sites)
    assert padded.coef_.shape == (1, 15)


@pytest.mark.parametrize("kind", ["dense", "int64 indices", "duplicates", "read-only", "csc", "no rows' entries"])
def test_rows_become_csr_with_a_constant_at_the_end_of_each(kind):
    dense = np.random.default_rng(0).integers(-1, 2, size=(30, 6)).astype(np.float64)
    dense[[0, 7, 29]] = 0.0
    X = sp.csr_matrix(dense) if kind != "dense" else dense
    if kind == "int64 indices":
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    elif kind == "duplicates":
        X = sp.csr_matrix((np.r_[X.data, 1.0, -1.0], np.r_[X.indices, 3, 3], np.r_[X.indptr[:-1], X.nnz + 2]), X.shape)
    elif kind == "read-only":
        X.data.flags.writeable = False
    elif kind == "csc":
        X = X.tocsc()
    elif kind == "no rows' entries":
        dense, X = np.zeros((3, 2)), sp.csr_matrix((3, 2))
    for intercept in (False, True):
        csr = as_csr(X, intercept)
        wanted = np.c_[dense, np.ones(len(dense))] if intercept else dense
        np.testing.assert_array_equal(csr.toarray(), wanted)
        assert (csr.indices.dtype, csr.indptr.dtype, csr.data.dtype) == (np.int32, np.int32, np.float64)
        assert csr.has_canonical_format
        assert csr.data.flags.writeable
