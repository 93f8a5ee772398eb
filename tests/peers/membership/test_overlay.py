"""The overlay: everyone who knows the same names finds the same connected, sparse graph, in any process."""

import os
import subprocess
import sys
from hashlib import sha256

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget_svm.peers.membership.overlay import any_reachable, neighbours, node_id

NAMES = st.sets(st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,8}[a-z0-9])?", fullmatch=True), min_size=1, max_size=40)
DEGREES = st.integers(2, 9)


def open_to_all(names):
    return dict.fromkeys(names, True)


def graph(reachable, degree):
    reachable = reachable if isinstance(reachable, dict) else open_to_all(reachable)
    g = nx.DiGraph()
    g.add_nodes_from(reachable)
    g.add_edges_from((a, b) for a in reachable for b in neighbours(a, reachable, degree))
    return g


@settings(max_examples=150)
@given(NAMES, DEGREES)
def test_it_is_symmetric_connected_and_of_bounded_degree(names, degree):
    g = graph(names, degree)
    assert {(b, a) for a, b in g.edges} == set(g.edges)
    assert nx.is_strongly_connected(g)
    assert max(d for _, d in g.out_degree) <= degree
    assert not list(nx.selfloop_edges(g))


@given(NAMES, DEGREES)
def test_few_names_are_all_neighbours(names, degree):
    few = sorted(names)[: degree + 1]
    assert all(set(neighbours(name, open_to_all(few), degree)) == set(few) - {name} for name in few)


@settings(max_examples=150)
@given(NAMES, DEGREES, st.data())
def test_one_name_more_changes_three_edges_a_ring_at_most(names, degree, data):
    names = names | {f"more{i}" for i in range(degree + 3)}
    gone = data.draw(st.sampled_from(sorted(names)))
    with_it = set(graph(names, degree).to_undirected().edges)
    without = set(graph(names - {gone}, degree).to_undirected().edges)
    changed = {frozenset(edge) for edge in with_it} ^ {frozenset(edge) for edge in without}
    assert 0 < len(changed) <= 3 * (degree // 2)


REACHABLE = st.dictionaries(
    st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,8}[a-z0-9])?", fullmatch=True), st.booleans(), min_size=1, max_size=40
)


@settings(max_examples=300)
@given(REACHABLE, DEGREES)
def test_one_reachable_member_connects_all_and_every_edge_can_be_dialled(reachable, degree):
    g = graph(reachable, degree)
    assert max(d for _, d in g.out_degree) <= degree
    assert all(reachable[a] or reachable[b] for a, b in g.edges)
    assert not list(nx.selfloop_edges(g))
    assert any_reachable(reachable) == any(reachable.values())
    if any_reachable(reachable):
        assert nx.is_connected(g.to_undirected())
    else:
        assert not g.edges
    symmetric = [(a, b) for a, b in g.edges if reachable[a] and reachable[b]]
    assert {(b, a) for a, b in symmetric} == set(symmetric)


@given(REACHABLE, DEGREES)
def test_among_few_only_two_that_dial_out_are_no_neighbours(reachable, degree):
    few = dict(sorted(reachable.items())[: degree + 1])
    for name in few:
        others = {other for other in few if other != name and (few[other] or few[name])}
        assert set(neighbours(name, few, degree)) == others


def test_outbound_only_members_have_as_many_neighbours_and_spread_over_the_reachable_ones():
    reachable = {f"site{i}": i % 2 == 0 for i in range(100)}
    g = graph(reachable, 4)
    assert min(d for _, d in g.out_degree) >= 3
    assert max(d for _, d in g.in_degree) <= 16


def test_the_order_of_the_names_does_not_matter():
    names = [f"site{i}" for i in range(30)]
    assert neighbours("site3", open_to_all(names), 4) == neighbours("site3", open_to_all(reversed(names)), 4)


def test_every_process_finds_the_same_neighbours():
    names = [f"site{i}" for i in range(30)]
    program = (
        "import sys; from gadget_svm.peers.membership.overlay import neighbours; "
        "print(*neighbours('site3', dict.fromkeys(set(sys.argv[1:]), True), 4))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program, *names],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()[0]
        for seed in ("1", "2")
    }
    assert said == {neighbours("site3", open_to_all(names), 4)[0]}


def test_random_like_rings_make_it_shallow():
    """Rings of one order would give a diameter of n/4; rings of several orders give about log n."""
    g = graph([f"site{i}" for i in range(200)], 4).to_undirected()
    assert nx.diameter(g) <= 12


def test_one_neighbour_is_refused():
    with pytest.raises(ValueError, match="degree is 1"):
        neighbours("a", open_to_all("abc"), 1)


def test_the_number_is_the_first_31_bits_of_the_hash():
    bits = "".join(f"{byte:08b}" for byte in sha256(b"site1").digest())
    assert node_id("site1") == int(bits[:31], 2)
