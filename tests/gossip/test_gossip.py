"""Gossip protocols by themselves: mass is conserved, estimates go to the weighted mean, stopping times hold."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget_svm.core.messages import Delivery, MessageBatch
from gadget_svm.core.network import Network
from gadget_svm.core.transitions import DOUBLY_STOCHASTIC, TRANSITIONS
from gadget_svm.gossip import PROTOCOLS, Diffusion, Pairwise, PushSum, average, averaging_block, until_converged
from gadget_svm.kernels import ThreadTeam
from gadget_svm.kernels.gossip import MIN_MASS, order_messages
from gadget_svm.spectral import diameter
from gadget_svm.topologies import build
from support.gossip_blocks import gossiped, mass, some_block
from support.strategies import networks

NAMES = sorted(PROTOCOLS)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(network=networks(), width=st.integers(1, 4), seed=st.integers(0, 2**32), steps=st.integers(1, 25))
def test_mass_is_conserved_to_rounding_on_any_connected_graph(name, network, width, seed, steps):
    """Kempe et al., Proposition 2.2: "the sum of all weights is always n"; with n_i, the sum of all n_i."""
    block, protocol = some_block(network, width, seed, zeros=True), PROTOCOLS[name]()
    weight = np.ones(network.n) if name == "pairwise" else block.n
    wanted = weight @ block.flat
    for after in gossiped(protocol, block, steps):
        s, phi = mass(after)
        np.testing.assert_allclose(s, wanted, rtol=0, atol=1e-9)
        assert phi == pytest.approx(weight.sum(), rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(network=networks(most=6), seed=st.integers(0, 2**32))
def test_estimates_go_to_the_mean_weighted_by_n(name, network, seed):
    rng = np.random.default_rng(seed)
    x, n = rng.normal(size=(network.n, 2)), rng.integers(1, 20, network.n)
    n = np.ones(network.n) if name == "pairwise" else n  # pairwise averaging knows no weights
    believed = average(x, network, PROTOCOLS[name](), 1500, weights=None if name == "pairwise" else n, seed=seed)
    wanted = n @ x / n.sum()
    np.testing.assert_allclose(believed, np.tile(wanted, (network.n, 1)), atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(network=networks(), seed=st.integers(0, 2**32), steps=st.integers(0, 12))
def test_scalars_are_averaged_as_columns_of_vectors(name, network, seed, steps):
    """Push-Vector is Push-Sum in every coordinate."""
    x = np.random.default_rng(seed).normal(size=(network.n, 3))
    whole = average(x, network, PROTOCOLS[name](), steps, seed=seed)
    for column in range(3):
        alone = average(x[:, column], network, PROTOCOLS[name](), steps, seed=seed)
        assert alone.shape == (network.n,)
        np.testing.assert_array_equal(alone, whole[:, column])


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


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("name", ["line", "ring", "star", "random-regular", "exponential"])
def test_diameter_stopping_ends_in_one_round_everywhere_and_near_the_mean(name, blocks):
    """Kempe et al. 2003: nodes that know a bound of the diameter stop together, without knowing tau_mix."""
    network, gamma = build(name, 9, seed=1), 1e-3
    whole = some_block(network, 3, 4)
    whole.w += 20  # away from zero, so that an error relative to the estimate means something
    mean = whole.n @ whole.flat / whole.n.sum()
    parts = split(network, whole, blocks)
    for block in parts:
        Diffusion().load_vectors(block, persist=False)
    barrier_groups = [until_converged(Diffusion(), block, 1, diameter(network), gamma, 10_000) for block in parts]
    taken = drive(barrier_groups)
    assert len(set(taken)) == 1
    assert taken[0] % diameter(network) == 0
    assert taken[0] < 10_000
    believed = np.concatenate([block.s / block.phi[:, None] for block in parts])
    assert np.abs(believed / mean - 1).max() < 5 * gamma
    assert all("flag" not in block.edge for block in parts)


def split(network, whole, parts):
    """The nodes of a averaging_block over several blocks."""
    bounds = [network.n * p // parts for p in range(parts + 1)]
    made = []
    for first, last in pairwise(bounds):
        rows = whole.rows.of_nodes(first, last)
        block = type(whole).fresh(
            network, rows, whole.n[first:last], 1, whole.w.shape[2], seed=whole.seed, first=first, last=last
        )
        block.w[:] = whole.w[first:last]
        made.append(block)
    return made


def drive(barrier_groups):
    """Hand mail around until every party has stopped; the rounds each took."""
    outgoing, taken = [next(party, None) for party in barrier_groups], [0] * len(barrier_groups)
    while any(messages is not None for messages in outgoing):
        delivery = Delivery(MessageBatch.merge([messages for messages in outgoing if messages is not None]))
        for i, party in enumerate(barrier_groups):
            if outgoing[i] is not None:
                taken[i] += 1
                try:
                    outgoing[i] = party.send(delivery)
                except StopIteration:
                    outgoing[i] = None
    return taken


@pytest.mark.parametrize("name", ["push-sum", "diffusion", "running-sum"])
def test_a_node_with_next_to_no_mass_keeps_it(name):
    """Mass that has been halved a thousand times would end as 0/0; the node waits until some reaches it."""
    block = averaging_block(build("ring", 4), np.ones((4, 2)), np.ones(4))
    list(
        gossiped(PROTOCOLS[name](), block, 1200, lambda messages: Delivery(messages.select(messages.sender < 0)))
    )  # all is lost
    assert (block.phi >= MIN_MASS / 2).all()
    np.testing.assert_allclose(block.s / block.phi[:, None], 1.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 2])
def test_the_smallest_networks_work(name, n):
    believed = average(np.arange(n, dtype=float) + 1, build("complete", n), PROTOCOLS[name](), 200)
    np.testing.assert_allclose(believed, (n + 1) / 2, rtol=1e-6)


def test_what_cannot_be_averaged_says_so():
    ring = build("ring", 4)
    with pytest.raises(ValueError, match="3 values for 4 nodes"):
        average([1, 2, 3], ring, PushSum(), 1)
    for wrong in ([1, 1, 1], [1, 1, 1, -1], [0, 0, 0, 0]):
        with pytest.raises(ValueError, match="weights must be 4 numbers"):
            average([1, 2, 3, 4], ring, PushSum(), 1, weights=wrong)
    with pytest.raises(ValueError, match="cannot restart"):
        PROTOCOLS["running-sum"]().load_vectors(averaging_block(ring, np.ones((4, 1)), np.ones(4)), persist=False)


def test_pairwise_averaging_refuses_weights():
    with pytest.raises(ValueError, match="leave weights out"):
        average(np.arange(4.0), build("ring", 4), PROTOCOLS["pairwise"](), 5, weights=[1, 2, 3, 4])


@pytest.mark.parametrize("name", ["push-sum", "diffusion"])
@settings(max_examples=40)
@given(
    network=st.sampled_from(sorted(TRANSITIONS)).flatmap(
        lambda transition: networks(directed=False if transition in DOUBLY_STOCHASTIC else None, transition=transition)
    ),
    width=st.integers(1, 20),
    seed=st.integers(0, 2**32),
    steps=st.integers(0, 25),
)
def test_compiled_rounds_are_rounds_of_mail_bit_for_bit(name, network, width, seed, steps):
    """On one thread and on several, also where nodes have no mass."""
    block, protocol = some_block(network, width, seed, zeros=True), PROTOCOLS[name]()
    values, mass = block.flat.copy(), block.n.copy()
    list(gossiped(protocol, block, steps))
    wanted = np.column_stack([block.s, block.phi]) if steps else np.column_stack([mass[:, None] * values, mass])
    for team in (ThreadTeam(1), ThreadTeam(3, worth_sharing=0)):
        state = np.column_stack([mass[:, None] * values, mass])
        after = protocol.average_fused(network, state, steps, seed, team)
        team.close()
        np.testing.assert_array_equal(after, wanted)


@pytest.mark.parametrize("name", ["push-sum", "diffusion"])
def test_compiled_rounds_keep_next_to_no_mass_as_rounds_of_mail_do(name):
    """Where some hold less than can be halved, and on a graph large enough for many messages to one node."""
    network = build("k-out:12", 400, seed=2)
    mass = np.where(np.arange(400) % 3, 1.0, MIN_MASS / 3)
    block = averaging_block(network, np.arange(800.0).reshape(400, 2), mass, 5)
    values = block.flat.copy()
    list(gossiped(PROTOCOLS[name](), block, 6))
    believed = average(values, network, PROTOCOLS[name](), 6, weights=mass, seed=5)
    np.testing.assert_array_equal(believed, block.s / block.phi[:, None])


def test_mail_in_any_order_is_absorbed_in_one():
    """By receiver, then sender, then sequence; what is in order already is only counted."""
    rng = np.random.default_rng(3)
    sender, seq, receiver = np.repeat(np.arange(50), 4), np.tile(np.arange(4), 50), rng.integers(0, 20, 200)
    for shuffled in (np.arange(200), rng.permutation(200)):
        order, start = order_messages(receiver[shuffled], sender[shuffled], seq[shuffled], 5, 10)
        wanted = [m for m in np.lexsort((seq, sender, receiver)) if 5 <= receiver[m] < 15]
        np.testing.assert_array_equal(shuffled[order], wanted)
        np.testing.assert_array_equal(np.diff(start), np.bincount(receiver, minlength=20)[5:15])


@pytest.mark.parametrize("name", ["push-sum", "diffusion"])
def test_as_many_rounds_as_mixing_asks_for(name):
    x = np.arange(12.0)
    believed = average(x, build("torus", 12), PROTOCOLS[name](), "mix")
    assert np.abs(believed - 5.5).max() <= 0.05 * np.abs(x).mean()


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
