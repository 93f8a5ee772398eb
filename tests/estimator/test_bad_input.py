"""Bad input: each a clear error of the right type, that says what to do."""

import warnings
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from gadget_svm import Gadget, GadgetSVC, build_network
from gadget_svm.algorithms import Pdmm
from gadget_svm.estimator.shards import stack_shards

QUICK = {"max_iter": 5, "stopping": None}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_nan_and_infinity_in_the_data(toy, kind, value):
    X = toy.X.copy()
    X[3, 2] = value
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        GadgetSVC(4, **QUICK).fit(kind(X), toy.y)
    model = GadgetSVC(4, **QUICK).fit(toy.X, toy.y)
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        model.predict(kind(X))
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        model.partial_fit(kind(X), toy.y)


def test_nan_among_the_labels(toy):
    y = toy.y.astype(float)
    y[0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        GadgetSVC(4, **QUICK).fit(toy.X, y)


def test_labels_of_one_class(toy):
    with pytest.raises(ValueError, match=r"only one class, 'spam'.* needs rows of at least two"):
        GadgetSVC(4, **QUICK).fit(toy.X, ["spam"] * 60)
    with pytest.raises(ValueError, match="only one class"):  # the other class weighs nothing
        GadgetSVC(4, **QUICK).fit(toy.X, toy.y, sample_weight=toy.y)


def test_labels_that_are_measurements(toy):
    with pytest.raises(ValueError, match=r"[Uu]nknown label type"):
        GadgetSVC(4, **QUICK).fit(toy.X, toy.X[:, 0])


def test_a_node_without_rows(toy):
    with pytest.raises(ValueError, match="site 2 has no rows of positive weight"):
        GadgetSVC(**QUICK).fit(toy.X, toy.y, sites=toy.sites, sample_weight=(toy.sites != 2).astype(float))
    with pytest.raises(ValueError, match="shard 1 has no rows"):
        GadgetSVC(**QUICK).fit_shards([(toy.X, toy.y), (toy.X[:0], toy.y[:0])])
    with pytest.raises(ValueError, match=r"zero"):
        GadgetSVC(4, **QUICK).fit(toy.X, toy.y, sample_weight=np.zeros(60))


@pytest.mark.parametrize(
    ("settings", "near"),
    [
        ({"algorithm": "gadgt"}, "gadget"),
        ({"topology": "rng"}, "ring"),
        ({"topology": "k_out:3"}, "k-out"),
        ({"algorithm": Gadget(gossip="pushsum")}, "push-sum"),
        ({"algorithm": Gadget(solver="pegasus")}, "pegasos"),
        ({"algorithm": Gadget(transition="metropolys")}, "metropolis"),
        ({"algorithm": Gadget(project="lokal")}, "local"),
        ({"faults": "crsh"}, "crash"),
        ({"stopping": "weigths"}, "weights"),
        ({"engine": "locl"}, "local"),
        ({"engine_options": {"block": 2}}, "blocks"),
    ],
    ids=str,
)
def test_an_unknown_name_comes_with_the_nearest_known_one(toy, settings, near):
    with pytest.raises(ValueError, match=rf"unknown .*Did you mean '{near}'\?.*Known: "):
        GadgetSVC(4, **{**QUICK, **settings}).fit(toy.X, toy.y)


@pytest.mark.parametrize("lam", [0, -1, np.nan, np.inf, True, "0.1", None])
def test_lam_that_is_no_positive_number(toy, lam):
    with pytest.raises(ValueError, match="lam must be a positive number"):
        GadgetSVC(4, lam=lam, **QUICK).fit(toy.X, toy.y)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"n_nodes": 61}, "n_nodes=61 is more than the 60 rows"),
        ({"n_nodes": 0}, "n_nodes must be a whole number of at least 1"),
        ({"n_nodes": 2.5}, "n_nodes must be a whole number"),
        ({"n_nodes": True}, "n_nodes must be a whole number"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1"),
        ({"max_iter": 10.5}, "max_iter must be a whole number"),
        ({"tol": -1}, "tol must be a positive number"),
        ({"max_seconds": 0}, "max_seconds must be a positive number"),
        ({"record_every": -1}, "record_every must be a whole number"),
        ({"n_jobs": 0}, "no thread at all"),
        ({"fit_intercept": "no"}, "fit_intercept must be True or False"),
        ({"engine_options": ["blocks"]}, "engine_options must be a dictionary such as"),
        ({"n_jobs": 1.5}, "n_jobs must be a whole number of threads"),
        ({"n_jobs": "a"}, "n_jobs must be a whole number of threads"),
        ({"lam": 1e-320}, "out of the range of double precision"),
        ({"lam": 1e308}, "out of the range of double precision"),
        ({"algorithm": Pdmm(theta="a")}, "theta must be a positive number"),
        ({"algorithm": Pdmm(penalty=[1])}, "penalty must be a positive number"),
        ({"engine_options": {"blocks": 0}}, "blocks must be a whole number of at least 1"),
        ({"class_weight": {0: -1, 1: 1}}, "class weights must be numbers, none negative"),
        ({"class_weight": {0: 1, 7: 1}}, "not in class_weight"),
        ({"class_weight": "balance"}, "class_weight must be 'balanced', a dict"),
        ({"class_weight": {0: 1e-200, 1: 1e-201}}, "divide all weights by their mean"),
        ({"algorithm": Gadget(batch_size=0)}, "batch_size must be a whole number of at least 1"),
        ({"algorithm": Gadget(local_steps=1.5)}, "local_steps must be a whole number"),
        ({"algorithm": Gadget(gossip_rounds=True)}, "gossip_rounds must be a whole number"),
        ({"algorithm": Gadget(gossip_rounds="mix", gamma=1.5)}, "gamma is a relative error"),
        ({"algorithm": Gadget(gossip_rounds="diameter")}, "needs gossip='diffusion'"),
        ({"algorithm": Gadget(gossip="running-sum", mass="restarted")}, "cannot restart"),
        (
            {"algorithm": Gadget(average=False), "stopping": "average"},
            r"Gadget\(average=False\) does not keep: use stopping='auto'",
        ),
        ({"algorithm": "pdmm", "stopping": "average"}, r"Pdmm\(\) does not keep"),
        ({"topology_seed": -1}, "topology_seed must be a whole number of at least 0"),
        ({"partition_seed": "a"}, "partition_seed must be a whole number of at least 0"),
    ],
    ids=str,
)
def test_a_setting_out_of_its_range(toy, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        GadgetSVC(**{"n_nodes": 4, **QUICK, **settings}).fit(toy.X, toy.y)


@pytest.mark.parametrize("algorithm", [3, Gadget])
def test_an_algorithm_that_is_none(toy, algorithm):
    with pytest.raises(TypeError, match=r"algorithm is a name .* or an instance of .* such as Gadget\(\)"):
        GadgetSVC(4, algorithm=algorithm, **QUICK).fit(toy.X, toy.y)


def test_fewer_rows_of_positive_weight_than_nodes(toy):
    weight = np.zeros(60)
    weight[[np.argmax(toy.y), np.argmin(toy.y)]] = 1.0
    with pytest.raises(ValueError, match="n_nodes=3 is more than the 2 rows"):
        GadgetSVC(3, **QUICK).fit(toy.X, toy.y, sample_weight=weight)


def test_wrong_number_of_features_at_predict(toy):
    model = GadgetSVC(4, **QUICK).fit(toy.X, toy.y)
    for X in (toy.X[:, :3], sp.csr_matrix(np.c_[toy.X, toy.X])):
        with pytest.raises(ValueError, match="GadgetSVC is expecting 5 features"):
            model.predict(X)


def test_sites_that_do_not_fit_the_rows(toy):
    with pytest.raises(ValueError, match="sites has 3 entries for 60 rows"):
        GadgetSVC(**QUICK).fit(toy.X, toy.y, sites=[1, 2, 3])
    with pytest.raises(ValueError, match="missing values"):
        GadgetSVC(**QUICK).fit(toy.X, toy.y, sites=np.where(toy.sites == 1, np.nan, toy.sites))


@pytest.mark.parametrize("weight", [1e-200, 1e200])
def test_sample_weights_that_overflow(toy, weight):
    with pytest.raises(ValueError, match="divide all weights by their mean"):
        GadgetSVC(4, **QUICK).fit(toy.X, toy.y, sample_weight=np.full(60, weight))


@pytest.mark.parametrize("weight", [np.nan, np.inf, -1.0])
def test_sample_weights_that_are_none(toy, weight):
    with pytest.raises(ValueError, match=r"NaN|infinity|[Nn]egative"):
        GadgetSVC(4, **QUICK).fit(toy.X, toy.y, sample_weight=np.r_[weight, np.ones(59)])


@pytest.mark.parametrize(
    ("shards", "error", "sentence"),
    [
        ([], ValueError, "got no shards"),
        ([3], TypeError, r"shard 0 is neither an \(X, y\) pair nor a path: int"),
        ([(np.eye(2), [0, 1]), (np.eye(3), [0, 1, 1])], ValueError, "shard 0 has 2 features, another has 3"),
        ([(np.eye(2), [0, 1, 1])], ValueError, "shard 0 has 2 rows but 3 labels"),
        (["nowhere.svm"], FileNotFoundError, "nowhere.svm"),
        (["http://user:pw@127.0.0.1:1/p.svm"], OSError, "^http://127.0.0.1:1/p.svm cannot be read"),
    ],
)
def test_shards_that_are_none(shards, error, sentence):
    with pytest.raises(error, match=sentence):
        GadgetSVC(**QUICK).fit_shards(shards)


@pytest.mark.parametrize("engine", ["local", "ray"])
@pytest.mark.parametrize(
    ("place", "named"),
    [
        ("s/part-0.svm", "s/part-0.svm"),
        (Path("s/part-0.svm"), "s/part-0.svm"),
        ("https://user:pw@h/p.svm?key=secret", "https://h/p.svm"),
    ],
)
def test_a_single_place_is_no_list_of_shards(place, named, engine):
    with pytest.raises(TypeError, match=rf"one per node.* write fit_shards\(\['{named}', \.\.\.\]\).*to fit"):
        GadgetSVC(engine=engine, **QUICK).fit_shards(place)


def test_labels_of_a_dataset_are_a_column_of_it(toy):
    class Table:
        """Passes for a Ray Dataset."""

    Table.__module__ = "ray.data.dataset"
    for y in (toy.y, toy.y.tolist(), 3):
        with pytest.raises(TypeError, match=rf"y must be that column's name, such as 'label', got {type(y).__name__}$"):
            GadgetSVC(engine="ray", **QUICK).fit(Table(), y)


def shards_labelled(toy, *labels):
    """Shards of 20 rows that have these labels, in turn."""
    parts = [slice(20 * i, 20 * i + 20) for i in range(len(labels))]
    return [(toy.X[part], np.resize(some, 20)) for part, some in zip(parts, labels, strict=True)]


def test_labels_that_are_numbers_here_and_words_there(toy, tmp_path):
    shards = shards_labelled(toy, [1, -1], ["well", "ill"], ["d", "c", "b", "a"])
    with pytest.warns(UserWarning, match=r"^shard 0 .* -1, 1 and shard 1 .* ill, well, .* alike") as told:
        model = GadgetSVC(**QUICK).fit_shards(shards)
    assert told[0].filename == __file__
    assert len(model.classes_) == 8
    with pytest.warns(UserWarning, match=r"^shard 1 .* -1, 1 and shard 0 .* a, b, c, \.\.\., which"):
        GadgetSVC(**QUICK).fit_shards([shards[2], shards[0]])
    (tmp_path / "a.svm").write_text("+1 1:2\n-1 1:3\n")
    (tmp_path / "b.csv").write_text("2,ill\n3,well\n")
    with pytest.warns(UserWarning, match=r"a\.svm has the labels -1, 1 and .*b\.csv has the labels ill, well"):
        GadgetSVC(**QUICK).fit_shards([tmp_path / "a.svm", tmp_path / "b.csv"])


@pytest.mark.parametrize(
    "labels",
    [
        ([1, 2], ["1", "2", "A"], ["2", "A"]),
        ([-1, 1], [2, 3], [0.5, 1]),
        ([True, False], [0, 1], [1.0, 0.0]),
        (["a"], ["b"], ["c"]),
        ([1, 2], ["1", "2"], ["3"]),
    ],
    ids=str,
)
def test_labels_that_may_well_be_meant(toy, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stack_shards(shards_labelled(toy, *labels))


def test_a_graph_in_two_parts_names_one_of_them(toy):
    apart = nx.Graph([(0, 1), (2, 3), (3, 4), (4, 2)])
    with pytest.raises(ValueError, match=r"not connected: node 0 \(and 1 more: 1\) cannot be reached from node 2"):
        GadgetSVC(5, topology=apart, **QUICK).fit(toy.X, toy.y)
    one_way = nx.DiGraph([(0, 1), (1, 0), (1, 2)])
    with pytest.raises(ValueError, match=r"not strongly connected: node 2 cannot reach node 0"):
        GadgetSVC(3, topology=one_way, **QUICK).fit(toy.X, toy.y)


def test_a_periodic_graph_under_diffusion_that_is_not_lazy(toy):
    swinging = Gadget(gossip="diffusion", transition="random-walk")
    with pytest.raises(ValueError, match=r"period 2 .*bipartite.* use transition='lazy'"):
        GadgetSVC(4, topology="ring", algorithm=swinging, **QUICK).fit(toy.X, toy.y)
    GadgetSVC(5, topology="ring", algorithm=swinging, **QUICK).fit(toy.X, toy.y)  # an odd ring has no period
    drawn = Gadget(gossip="push-sum", transition="random-walk")
    GadgetSVC(4, topology="ring", algorithm=drawn, **QUICK).fit(toy.X, toy.y)  # the randomised form keeps half


def test_a_graph_of_another_size(toy):
    with pytest.raises(ValueError, match=r"the graph has 5 nodes and 4 are asked for: give n_nodes=5"):
        GadgetSVC(4, topology=nx.cycle_graph(5), **QUICK).fit(toy.X, toy.y)
    with pytest.raises(TypeError, match="a topology is a name such as 'ring'"):
        GadgetSVC(4, topology=3, **QUICK).fit(toy.X, toy.y)
    with pytest.raises(ValueError, match="at least one node"):
        build_network("ring", 0)
