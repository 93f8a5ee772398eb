"""Names of nodes: sites, shards and the labels of a graph."""

import networkx as nx
import numpy as np
import pytest

from gadget_svm import GadgetSVC, build_network, load_model, save_model

QUICK = {"max_iter": 60, "stopping": None, "lam": 0.05, "random_state": 0}
STAR = nx.Graph([("d", "a"), ("d", "b"), ("d", "c"), ("d", "e")])


def test_a_graph_and_sites_are_matched_by_label(toy):
    towns = np.array(list("abcde"))[np.arange(60) % 5]
    model = GadgetSVC(topology=STAR, **QUICK).fit(toy.X, toy.y, sites=towns)
    assert model.sites_ == list("abcde")
    assert model.network_.degree.tolist() == [1, 1, 1, 4, 1]
    turned = nx.relabel_nodes(STAR, {"d": "a", "a": "d"})  # the hub is another site, listed in the same place
    other = GadgetSVC(topology=turned, **QUICK).fit(toy.X, toy.y, sites=towns)
    assert other.network_.degree.tolist() == [4, 1, 1, 1, 1]
    by_hand = np.zeros((5, 5))
    by_hand[3, [0, 1, 2, 4]] = by_hand[[0, 1, 2, 4], 3] = 1  # rows of a matrix are the sites in sorted order
    same = GadgetSVC(topology=by_hand, **QUICK).fit(toy.X, toy.y, sites=towns)
    np.testing.assert_array_equal(same.node_coef_, model.node_coef_)
    built = GadgetSVC(topology=build_network(STAR, 5), **QUICK).fit(toy.X, toy.y, sites=towns)
    np.testing.assert_array_equal(built.node_coef_, model.node_coef_)


def test_labels_that_differ_are_named(toy):
    towns = np.array(["a", "b", "c", "x", "y"])[np.arange(60) % 5]
    for graph in (STAR, build_network(STAR, 5)):
        with pytest.raises(ValueError, match=r"Sites without a node: 'x', 'y'\. Nodes without a site: 'd', 'e'$"):
            GadgetSVC(topology=graph, **QUICK).fit(toy.X, toy.y, sites=towns)
    with pytest.raises(ValueError, match=r"labels\. Nodes without a site: 'd', 'e'$"):
        GadgetSVC(topology=STAR, **QUICK).fit(toy.X[:3], toy.y[-3:], sites=["a", "b", "c"])
    texts = nx.relabel_nodes(nx.path_graph(3), str)
    with pytest.raises(ValueError, match=r"type int, nodes of type str: relabel with .*\(graph, int\)$"):
        GadgetSVC(topology=texts, **QUICK).fit(toy.X, toy.y, sites=toy.sites)


def test_a_node_is_found_by_its_name(toy):
    model = GadgetSVC(topology=STAR, **QUICK).fit(toy.X, toy.y, sites=np.array(list("abcde"))[np.arange(60) % 5])
    for i, town in enumerate("abcde"):
        np.testing.assert_array_equal(model.node(town).coef_[0], model.node_coef_[i])
        np.testing.assert_array_equal(model.node(i).coef_[0], model.node_coef_[i])
    assert model.node("d").sites_ == ["d"]
    with pytest.raises(IndexError, match="no node 'f': the nodes are 'a', 'b', 'c', 'd', 'e'"):
        model.node("f")
    numbered = GadgetSVC(**QUICK).fit(toy.X, toy.y, sites=toy.sites + 1)
    np.testing.assert_array_equal(numbered.node(1).coef_[0], numbered.node_coef_[0])  # by name: 1 is no position
    with pytest.raises(IndexError, match="no node 0: the nodes are 1, 2, 3"):
        numbered.node(0)


def test_a_graphs_labels_name_the_nodes_without_sites(toy):
    shuffled = nx.Graph([(3, 1), (1, 0), (0, 2)])  # listed as 3, 1, 0, 2
    model = GadgetSVC(topology=shuffled, **QUICK).fit(toy.X, toy.y)
    assert (model.sites_, model.network_.degree.tolist()) == ([0, 1, 2, 3], [2, 2, 1, 1])
    model = GadgetSVC(topology=nx.grid_2d_graph(2, 2), **QUICK).fit(toy.X, toy.y)
    assert model.node((1, 0)).sites_ == [(1, 0)]
    batches = GadgetSVC(topology=STAR, **QUICK).partial_fit(toy.X, toy.y, [0, 1], sites=["a", "d"] * 30)
    assert batches.sites_ == list("abcde")  # the sites of later batches are known from the graph
    batches.partial_fit(toy.X, toy.y, sites=["b", "c"] * 30)
    with pytest.raises(ValueError, match="unknown site 'f'"):
        batches.partial_fit(toy.X, toy.y, sites=["b", "f"] * 30)


def test_shards_can_be_named(toy):
    shards = [(toy.X[toy.sites == i], toy.y[toy.sites == i]) for i in range(3)]
    path = nx.Graph([("oslo", "rome"), ("rome", "bern")])
    model = GadgetSVC(topology=path, **QUICK).fit_shards(shards, sites=["rome", "bern", "oslo"])
    towns = np.array(["rome", "bern", "oslo"])[toy.sites]
    order = np.argsort(toy.sites, kind="stable")  # rows of a site in the same order
    same = GadgetSVC(topology=path, **QUICK).fit(toy.X[order], toy.y[order], sites=towns[order])
    assert model.sites_ == same.sites_ == ["bern", "oslo", "rome"]
    np.testing.assert_array_equal(model.node_coef_, same.node_coef_)
    with pytest.raises(ValueError, match=r"the nodes of the graph are 'bern', .* write fit_shards\(shards, sites="):
        GadgetSVC(topology=path, **QUICK).fit_shards(shards)
    with pytest.raises(ValueError, match="3 shards need 3 different sites, got 2"):
        GadgetSVC(**QUICK).fit_shards(shards, sites=["a", "b"])


@pytest.mark.parametrize(
    "names", [["x", "y", "z"], [7, 8, 9], [0.5, 1.5, 2.5], [(0, 1), (0, 2), (1, (2, "a"))]], ids=str
)
def test_a_model_file_keeps_the_labels_and_their_types(toy, tmp_path, names):
    model = GadgetSVC(**QUICK).fit(toy.X, toy.y, sites=[names[i] for i in toy.sites])
    again = load_model(save_model(model, tmp_path / "m"))
    assert again.sites_ == model.sites_ == names
    assert [type(site) for site in again.sites_] == [type(site) for site in names]
    for i, name in enumerate(names):
        np.testing.assert_array_equal(again.node(name).coef_[0], model.node_coef_[i])


def test_shards_of_a_named_format(tmp_path):
    for name in ("a", "b"):
        rows = [f"{x},{-x},{'yes' if x > 0 else 'no'}" for x in (1.0, 2.0, -1.0, -2.0)]
        (tmp_path / f"{name}.data").write_text("u,v,label\n" + "\n".join(rows) + "\n")
    files = [tmp_path / "a.data", tmp_path / "b.data"]
    model = GadgetSVC(random_state=0).fit_shards(files, format="csv")
    assert model.predict([[1.0, -1.0]]).tolist() == ["yes"]
    with pytest.raises(ValueError, match="rename the files"):
        GadgetSVC(engine="ray").fit_shards(files, format="csv")
