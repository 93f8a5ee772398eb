"""Single gossip protocols, and averaging; what all protocols do is in test_gossip_conformance.py."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget_svm.core.messages import Delivery, MessageBatch
from gadget_svm.core.network import Network
from gadget_svm.gossip import PROTOCOLS, Diffusion, Pairwise, PushSum, average, averaging_block
from gadget_svm.kernels.gossip import MIN_MASS, order_messages
from gadget_svm.topologies import build
from support.gossip_blocks import gossiped, some_block
from support.strategies import networks

NAMES = sorted(PROTOCOLS)


@settings(max_examples=30)
@given(network=networks(transition="random-walk"), steps=st.integers(1, 6), seed=st.integers(0, 2**32))
def test_diffusion_deterministically_simulates_a_random_walk(network, steps, seed):
    """After t rounds the sums are (B^t)' s and the weights (B^t)' phi."""
    block = some_block(network, 2, seed)
    walk = np.linalg.matrix_power(network.matrix().toarray(), steps).T
    s, phi = walk @ (block.n[:, None] * block.flat), walk @ block.n
    list(gossiped(Diffusion(), block, steps))
    np.testing.assert_allclose(block.s, s, atol=1e-9)
    np.testing.assert_allclose(block.phi, phi, atol=1e-9)


def test_push_sum_keeps_half_and_sends_half_to_one_neighbour():
    network = build("ring", 6)
    block = some_block(network, 3, 5)
    start, sent = block.n[:, None] * block.flat, []

    def exchange(messages):
        sent.append(messages)
        return Delivery(messages)

    list(gossiped(PushSum(), block, 1, exchange))
    (messages,) = sent
    np.testing.assert_array_equal(messages.sender, np.arange(6))
    np.testing.assert_array_equal(messages.vector, start / 2)
    assert all(abs(a - b) in (1, 5) for a, b in zip(messages.sender, messages.receiver, strict=True))
    arrived = np.zeros_like(start)
    np.add.at(arrived, messages.receiver, messages.vector)
    np.testing.assert_allclose(block.s, start / 2 + arrived)


@pytest.mark.parametrize("transition", ["lazy", "random-walk", "metropolis", "max-degree"])
def test_neighbours_are_drawn_with_probability_b_ij(transition):
    """In proportion to b_ij; with a doubly stochastic B the rest of the row is silence, else a node always sends."""
    graph = sp.csr_array(np.array([[0, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 1], [1, 0, 1, 0]]))
    network = Network.from_adjacency(graph, transition=transition)
    block, drawn = averaging_block(network, np.ones((4, 1)), np.ones(4), seed=3), np.zeros((4, 4))

    def exchange(messages):
        drawn[messages.sender, messages.receiver] += 1 / 4000
        return Delivery(messages)

    list(gossiped(PushSum(), block, 4000, exchange))
    B = network.matrix().toarray() * (1 - np.eye(4))
    for node in range(4):
        np.testing.assert_allclose(drawn[node] / drawn[node].sum(), B[node] / B[node].sum(), atol=0.04)
    if transition in ("lazy", "random-walk"):
        np.testing.assert_allclose(drawn.sum(axis=1), 1)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20)
def test_pairwise_partners_both_go_on_with_the_middle(seed):
    """Every vector after a round is one of before, or the middle of two: nobody is in two pairs at once."""
    block = averaging_block(build("complete", 7), np.eye(7), np.ones(7), seed)
    list(gossiped(Pairwise(), block, 1))
    for row in block.s:
        assert sorted(row[row != 0]) in ([1.0], [0.5, 0.5])
    np.testing.assert_array_equal(block.s.sum(axis=0), np.ones(7))


def test_a_node_of_a_star_answers_any_of_its_callers():
    """The hub's choice is even over its callers, also over hundreds of them."""
    n, chosen = 300, set()
    block = averaging_block(build("star", n), np.arange(n, dtype=float)[:, None], np.ones(n), seed=1)

    def exchange(messages):
        chosen.update(messages.receiver[messages.sender == 0].tolist())  # the hub's calls and answers
        return Delivery(messages)

    list(gossiped(Pairwise(), block, 400, exchange))
    assert len(chosen) > 180


def test_running_sums_ignore_mail_that_is_repeated_or_older():
    """A repeated message, or an older one by its sequence number, says nothing new."""
    network, kept = build("complete", 5), []

    def stutter(messages):
        kept.append(messages)
        again = MessageBatch.merge([messages, *kept[-4:]])
        return Delivery(again.select(np.random.default_rng(len(kept)).permutation(len(again.sender))))

    twins = [some_block(network, 2, 9) for _ in range(2)]
    pair = [
        gossiped(PROTOCOLS["running-sum"](), twin, 30, way)
        for twin, way in zip(twins, (Delivery, stutter), strict=True)
    ]
    for _ in zip(*pair, strict=True):
        np.testing.assert_array_equal(twins[0].s, twins[1].s)


def test_what_cannot_be_averaged_says_so():
    ring = build("ring", 4)
    with pytest.raises(ValueError, match="3 values for 4 nodes"):
        average([1, 2, 3], ring, PushSum(), 1)
    for wrong in ([1, 1, 1], [1, 1, 1, -1], [0, 0, 0, 0]):
        with pytest.raises(ValueError, match="weights must be 4 numbers"):
            average([1, 2, 3, 4], ring, PushSum(), 1, weights=wrong)
    with pytest.raises(ValueError, match="cannot restart"):
        PROTOCOLS["running-sum"]().load_vectors(averaging_block(ring, np.ones((4, 1)), np.ones(4)), persist=False)


@pytest.mark.parametrize("name", ["push-sum", "diffusion"])
def test_compiled_rounds_keep_next_to_no_mass_as_rounds_of_mail_do(name):
    """Where some hold less than can be halved, and on a graph large enough for many messages to one node."""
    network = build("k-out:12", 400, seed=2)
    mass = np.where(np.arange(400) % 3, 1.0, MIN_MASS / 3)
    block = averaging_block(network, np.arange(800.0).reshape(400, 2), mass, 5)
    values = block.flat.copy()
    list(gossiped(PROTOCOLS[name](), block, 6))
    found = average(values, network, PROTOCOLS[name](), 6, weights=mass, seed=5)
    np.testing.assert_array_equal(found, block.s / block.phi[:, None])


def test_mail_in_any_order_is_absorbed_in_one():
    """By receiver, then sender, then sequence; what is in order already is only counted."""
    rng = np.random.default_rng(3)
    sender, seq, receiver = np.repeat(np.arange(50), 4), np.tile(np.arange(4), 50), rng.integers(0, 20, 200)
    for shuffled in (np.arange(200), rng.permutation(200)):
        order, start = order_messages(receiver[shuffled], sender[shuffled], seq[shuffled], 5, 10)
        wanted = [m for m in np.lexsort((seq, sender, receiver)) if 5 <= receiver[m] < 15]
        np.testing.assert_array_equal(shuffled[order], wanted)
        np.testing.assert_array_equal(np.diff(start), np.bincount(receiver, minlength=20)[5:15])


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (([1.0, np.nan], build("ring", 2), PROTOCOLS["push-sum"](), 3), ValueError, "finite"),
        (([1.0, 2.0], build("ring", 2), "push_sum", 3), ValueError, "Did you mean 'push-sum'"),
        (([1.0, 2.0], build("ring", 2), PushSum, 3), TypeError, r"an instance .* such as PushSum\(\)"),
        (([1.0, 2.0], "ring", PROTOCOLS["push-sum"](), 3), TypeError, "a Network"),
        (([1.0, 2.0], build("ring", 2), PROTOCOLS["push-sum"](), "lots"), ValueError, "'mix'"),
        (([1.0, 2.0, 3.0], build("ring", 2), PROTOCOLS["push-sum"](), 3), ValueError, "2 nodes"),
    ],
)
def test_average_refuses_what_it_cannot_average(arguments, error, says):
    with pytest.raises(error, match=says):
        average(*arguments)
