"""The overlay: everyone who knows the same names finds the same connected, sparse graph, in any process."""

import os
import subprocess
import sys
from hashlib import sha256

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget_svm.peers.overlay import check_distinct, neighbours, node_id

NAMES = st.sets(st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,8}[a-z0-9])?", fullmatch=True), min_size=1, max_size=40)
DEGREES = st.integers(2, 9)


def graph(names, degree):
    g = nx.DiGraph()
    g.add_nodes_from(names)
    g.add_edges_from((a, b) for a in names for b in neighbours(a, names, degree))
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
    assert all(set(neighbours(name, few, degree)) == set(few) - {name} for name in few)


@settings(max_examples=150)
@given(NAMES, DEGREES, st.data())
def test_one_name_more_changes_three_edges_a_ring_at_most(names, degree, data):
    names = names | {f"more{i}" for i in range(degree + 3)}
    gone = data.draw(st.sampled_from(sorted(names)))
    with_it = set(graph(names, degree).to_undirected().edges)
    without = set(graph(names - {gone}, degree).to_undirected().edges)
    changed = {frozenset(edge) for edge in with_it} ^ {frozenset(edge) for edge in without}
    assert 0 < len(changed) <= 3 * (degree // 2)


def test_the_order_of_the_names_and_me_among_them_do_not_matter():
    names = [f"site{i}" for i in range(30)]
    assert neighbours("site3", names, 4) == neighbours("site3", set(names) - {"site3"}, 4)


def test_every_process_finds_the_same_neighbours():
    names = [f"site{i}" for i in range(30)]
    program = (
        "import sys; from gadget_svm.peers.overlay import neighbours as f; print(*f('site3', set(sys.argv[1:]), 4))"
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
    assert said == {neighbours("site3", names, 4)[0]}


def test_random_like_rings_make_it_shallow():
    """Rings of one order would give a diameter of n/4; rings of several orders give about log n."""
    g = graph([f"site{i}" for i in range(200)], 4).to_undirected()
    assert nx.diameter(g) <= 12


def test_one_neighbour_is_refused():
    with pytest.raises(ValueError, match="degree is 1"):
        neighbours("a", ["a", "b", "c"], 1)


def test_the_number_is_the_first_31_bits_of_the_hash():
    bits = "".join(f"{byte:08b}" for byte in sha256(b"site1").digest())
    assert node_id("site1") == int(bits[:31], 2)


def test_two_names_with_one_number_are_both_named():
    seen: dict[int, str] = {}
    for i in range(1_000_000):  # by the birthday bound a pair is found after some 60 000
        first = seen.setdefault(node_id(f"p{i}"), f"p{i}")
        if first != f"p{i}":
            break
    with pytest.raises(ValueError, match="share the node number") as refused:
        check_distinct(["a", f"p{i}", "b", first])
    assert repr(first) in str(refused.value)
    assert repr(f"p{i}") in str(refused.value)
    check_distinct(["a", first, "b", first])
