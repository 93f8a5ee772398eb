"""What every gossip protocol of the registry does, by the capabilities it declares."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget_svm import Gadget
from gadget_svm.core.messages import Delivery, message_bytes
from gadget_svm.core.transitions import DOUBLY_STOCHASTIC, TRANSITIONS
from gadget_svm.gossip import PROTOCOLS, Gossip, average, resolve
from gadget_svm.gossip.base import until_converged
from gadget_svm.kernels import ThreadTeam
from gadget_svm.kernels.gossip import MIN_MASS
from gadget_svm.spectral import diameter
from gadget_svm.topologies import build
from support.gossip_blocks import drive, drive_rounds, gossiped, mass, some_block, split
from support.strategies import networks

GOSSIP = {name: make() for name, make in PROTOCOLS.items()}
every_protocol = pytest.mark.parametrize("gossip", GOSSIP.values(), ids=GOSSIP)


def weights(gossip, n):
    return n if gossip.weighted else np.ones(len(n))


@every_protocol
def test_it_is_resolved_by_name_or_as_an_object(gossip):
    assert isinstance(gossip, Gossip)
    assert resolve(gossip.name) == gossip
    assert resolve(gossip) is gossip


@every_protocol
@settings(max_examples=30)
@given(network=networks(), width=st.integers(1, 4), seed=st.integers(0, 2**32), steps=st.integers(1, 25))
def test_mass_is_conserved_on_any_connected_graph(gossip, network, width, seed, steps):
    """Kempe et al., Proposition 2.2: "the sum of all weights is always n"; with n_i, the sum of all n_i."""
    block = some_block(network, width, seed, zeros=True)
    weight = weights(gossip, block.n)
    wanted = weight @ block.flat
    for after in gossiped(gossip, block, steps):
        s, phi = mass(after)
        np.testing.assert_allclose(s, wanted, rtol=0, atol=1e-9)
        assert phi == pytest.approx(weight.sum(), rel=1e-12)
        if gossip.conserves_mass:
            assert after.phi.sum() == pytest.approx(block.n.sum(), rel=1e-12)


@every_protocol
@settings(max_examples=12)
@given(network=networks(most=6), seed=st.integers(0, 2**32))
def test_estimates_go_to_the_mean(gossip, network, seed):
    rng = np.random.default_rng(seed)
    x, n = rng.normal(size=(network.n, 2)), weights(gossip, rng.integers(1, 20, network.n))
    found = average(x, network, gossip, 1500, weights=n if gossip.weighted else None, seed=seed)
    np.testing.assert_allclose(found, np.tile(n @ x / n.sum(), (network.n, 1)), atol=1e-6)


@every_protocol
@settings(max_examples=15)
@given(network=networks(), seed=st.integers(0, 2**32), steps=st.integers(0, 12))
def test_coordinates_are_averaged_independently_and_seeded(gossip, network, seed, steps):
    """Push-Vector is Push-Sum in every coordinate."""
    x = np.random.default_rng(seed).normal(size=(network.n, 3))
    whole = average(x, network, gossip, steps, seed=seed)
    for column in range(3):
        np.testing.assert_array_equal(average(x[:, column], network, gossip, steps, seed=seed), whole[:, column])


@every_protocol
@pytest.mark.parametrize("n", [1, 2])
def test_the_smallest_networks_work(gossip, n):
    found = average(np.arange(n, dtype=float) + 1, build("complete", n), gossip, 200)
    np.testing.assert_allclose(found, (n + 1) / 2, rtol=1e-6)


@pytest.mark.parametrize("gossip", [each for each in GOSSIP.values() if each.weighted], ids=lambda g: g.name)
def test_as_many_rounds_as_mixing_needs(gossip):
    x = np.arange(12.0)
    found = average(x, build("torus", 12), gossip, "mix")
    assert np.abs(found - 5.5).max() <= 0.05 * np.abs(x).mean()


@every_protocol
def test_weights_are_used_or_refused(gossip):
    x, n = np.arange(4.0), np.array([1.0, 2, 3, 4])
    if gossip.weighted:
        np.testing.assert_allclose(average(x, build("ring", 4), gossip, 300, weights=n), 2.0, rtol=1e-6)
    else:
        with pytest.raises(ValueError, match="leave weights out"):
            average(x, build("ring", 4), gossip, 5, weights=n)


@every_protocol
@pytest.mark.parametrize("blocks", [2, 3])
def test_blocks_agree_bit_for_bit(gossip, blocks):
    network = build("random-regular", 9 if blocks == 3 else 8, seed=1)
    alone, whole = some_block(network, 3, 4), some_block(network, 3, 4)
    parts = split(network, whole, blocks)
    (sent_alone, sent) = drive(gossip, [alone], 6), drive(gossip, parts, 6)
    np.testing.assert_array_equal(np.concatenate([part.s for part in parts]), alone.s)
    np.testing.assert_array_equal(np.concatenate([part.phi for part in parts]), alone.phi)
    assert sent == sent_alone


@every_protocol
def test_bytes_are_those_of_the_messages(gossip):
    def exchange(messages):
        extra = messages.weight.shape[1] if messages.weight.ndim == 2 else 1
        if messages.packed_bytes is None:
            assert messages.nbytes == messages.n_messages * message_bytes(3, extra)
        return Delivery(messages)

    assert len(list(gossiped(gossip, some_block(build("ring", 6), 3, 0), 5, exchange))) == 5


@every_protocol
def test_a_restart_is_exact_or_refused(gossip):
    block = some_block(build("ring", 5), 2, 0)
    list(gossiped(gossip, block, 3))
    if gossip.restartable:
        gossip.load_vectors(block, persist=False)
        np.testing.assert_array_equal(block.s, weights(gossip, block.n)[:, None] * block.flat)
    else:
        with pytest.raises(ValueError, match="cannot restart"):
            gossip.load_vectors(block, persist=False)
        with pytest.raises(ValueError, match="gossip='push-sum'"):
            Gadget(gossip=gossip, mass="restarted").bind(build("ring", 5), 0.1, 1.0)


@every_protocol
def test_a_node_with_next_to_no_mass_keeps_it(gossip):
    """Mass that is halved a thousand times would end as 0/0; the node waits until some reaches it."""
    block = some_block(build("ring", 4), 2, 0)
    block.w[:] = 1.0
    list(gossiped(gossip, block, 1200, lambda messages: Delivery(messages.select(messages.sender < 0))))  # all is lost
    assert (block.phi >= MIN_MASS / 2).all()
    np.testing.assert_allclose(block.s / block.phi[:, None], 1.0)


@pytest.mark.parametrize("gossip", [each for each in GOSSIP.values() if each.fused_in_average], ids=lambda g: g.name)
@settings(max_examples=30)
@given(
    network=st.sampled_from(sorted(TRANSITIONS)).flatmap(
        lambda transition: networks(directed=False if transition in DOUBLY_STOCHASTIC else None, transition=transition)
    ),
    width=st.integers(1, 20),
    seed=st.integers(0, 2**32),
    steps=st.integers(0, 25),
)
def test_fused_rounds_agree_bit_for_bit(gossip, network, width, seed, steps):
    """On one thread and on several, also where nodes have no mass."""
    block = some_block(network, width, seed, zeros=True)
    start = np.column_stack([block.n[:, None] * block.flat, block.n])
    list(gossiped(gossip, block, steps))
    wanted = np.column_stack([block.s, block.phi]) if steps else start
    for team in (ThreadTeam(1), ThreadTeam(3, worth_sharing=0)):
        after = gossip.average_fused(network, start.copy(), steps, seed, team)
        team.close()
        np.testing.assert_array_equal(after, wanted)


def test_a_class_with_another_round_does_not_inherit_fused_code():
    class Other(type(GOSSIP["push-sum"])):
        def round(self, block, time, since):
            yield from super().round(block, time, since)

    assert GOSSIP["push-sum"].fused_in_gadget
    assert not Other().fused_in_gadget
    assert not Other().fused_in_average


@every_protocol
@pytest.mark.parametrize("name", ["line", "star", "exponential"])
def test_diameter_stopping_ends_everywhere_in_one_round_near_the_mean(gossip, name):
    """Kempe et al. 2003: nodes that know a bound of the diameter stop together, without knowing tau_mix."""
    network, gamma = build(name, 9, seed=1), 1e-3
    if not gossip.floods_flag:
        with pytest.raises(ValueError, match="gossip='diffusion'"):
            Gadget(gossip=gossip, gossip_rounds="diameter", mass="persistent").bind(network, 0.1, 1.0)
        return
    whole = some_block(network, 3, 4)
    whole.w += 20  # away from zero, so that an error relative to the estimate means something
    mean = whole.n @ whole.flat / whole.n.sum()
    for blocks in (1, 3):
        parts, taken = split(network, whole, blocks), []
        for block in parts:
            gossip.load_vectors(block, persist=False)
        drive_rounds([until_converged(gossip, block, 1, diameter(network), gamma, 10_000) for block in parts], taken)
        assert len(taken) % diameter(network) == 0
        assert len(taken) < 10_000
        found = np.concatenate([block.s / block.phi[:, None] for block in parts])
        assert np.abs(found / mean - 1).max() < 5 * gamma
        assert all("flag" not in block.edge for block in parts)
