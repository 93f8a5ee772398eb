"""What every topology of the registry does."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget_svm.topologies import TOPOLOGIES, Topology, build

DIRECTED = {"exponential", "k-out"}
every_topology = pytest.mark.parametrize("name", TOPOLOGIES)


def fits(name, n):
    """Whether the named graph exists on n nodes: a torus needs a rectangle, a hypercube a power of two."""
    if name == "torus":
        return n == 1 or any(n % side == 0 for side in range(2, math.isqrt(n) + 1))
    return name != "hypercube" or n & (n - 1) == 0


@every_topology
@settings(max_examples=25)
@given(n=st.one_of(st.integers(1, 12), st.sampled_from([16, 30, 64, 100])), seed=st.integers(0, 1000))
def test_it_is_simple_and_connected(name, n, seed):
    if not fits(name, n):
        with pytest.raises(ValueError, match="use"):
            build(name, n, seed=seed)
        return
    network = build(name, n, seed=seed)
    A = network.adjacency().toarray()
    assert network.n == n
    assert network.name == name
    assert A.max(initial=0) <= 1
    assert not np.diag(A).any()
    assert network.components[0] == 1
    assert network.directed == (not np.array_equal(A, A.T))
    assert not network.directed or name in DIRECTED
    np.testing.assert_allclose(network.matrix().sum(axis=1), 1)


@pytest.mark.parametrize("name", [*TOPOLOGIES, "k-out:3", "tree:3", "erdos-renyi:0.5", "small-world:2,0.2"])
def test_one_node_has_no_edges(name):
    network = build(name, 1)
    assert (network.n, network.n_edges) == (1, 0)
    assert network.self_share.tolist() == [1.0]


@every_topology
@pytest.mark.parametrize("n", [64, 1024])
def test_the_seed_decides_the_graph_if_it_is_drawn(name, n):
    first, again, other = (build(name, n, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.indices, again.indices)
    np.testing.assert_array_equal(first.indptr, again.indptr)
    assert np.array_equal(first.indices, other.indices) != TOPOLOGIES[name]().drawn


@every_topology
def test_it_may_be_given_as_an_object(name):
    topology = TOPOLOGIES[name]()
    assert isinstance(topology, Topology)
    assert topology.name == name
    assert topology.active(3, np.arange(4), np.arange(4)).all()
    np.testing.assert_array_equal(build(topology, 16, seed=2).indices, build(name, 16, seed=2).indices)


@every_topology
def test_a_wrong_parameter_is_refused(name):
    says = "at least|probability|two sides" if TOPOLOGIES[name]().parameter else "takes no parameter"
    with pytest.raises(ValueError, match=says):
        build(f"{name}:-3", 16)
