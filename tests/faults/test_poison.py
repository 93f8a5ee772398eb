"""Lies: what the messages of lying nodes become, who lies, and what stays true."""

from statistics import NormalDist

import numpy as np
import pytest

from gadget_svm.core.messages import Delivery, MessageBatch
from gadget_svm.faults import (
    Constant,
    FalseCounts,
    FaultContext,
    Flapping,
    LittleIsEnough,
    SignFlip,
    Zeros,
    flip_labels,
    make_faults,
    wrap_all,
)  # fmt: skip
from gadget_svm.faults.poison import liar_mask
from gadget_svm.gossip import Diffusion
from gadget_svm.topologies import build
from support.gossip_blocks import gossiped, some_block, with_faults


def some_messages(n=6, first_seq=0):
    """One message from every node to the next."""
    ids = np.arange(n)
    vector = np.random.default_rng(0).normal(size=(n, 3))
    return MessageBatch(1, ids, (ids + 1) % n, ids + first_seq, vector, ids + 1.0)


def by_sender(messages):
    return messages.select(np.argsort(messages.sender))


@pytest.mark.parametrize(
    ("fault", "vector", "weight"),
    [
        (SignFlip([1, 4]), lambda v: -v, 1.0),
        (SignFlip([1, 4], factor=3.0), lambda v: -3.0 * v, 1.0),
        (Constant([1, 4]), lambda v: np.full_like(v, 1e6), 1.0),
        (Zeros([1, 4]), np.zeros_like, 1.0),
        (FalseCounts([1, 4], 50.0), lambda v: v, 50.0),
    ],
    ids=["sign flip", "longer", "constant", "zeros", "counts"],
)
def test_the_messages_of_liars_are_changed_and_no_others(fault, vector, weight):
    sent, liars = some_messages(), [1, 4]
    found = by_sender(with_faults([fault], 6)(sent).messages)
    np.testing.assert_array_equal(found.vector[liars], vector(sent.vector[liars]))
    np.testing.assert_array_equal(found.weight[liars], weight * sent.weight[liars])
    others = np.setdiff1d(np.arange(6), liars)
    for field in ("sender", "receiver", "seq", "vector", "weight"):
        np.testing.assert_array_equal(getattr(found, field)[others], getattr(sent, field)[others])
    np.testing.assert_array_equal(found.receiver, sent.receiver)
    assert not fault.loses


def test_a_little_is_the_mean_less_z_deviations_of_the_honest_nodes():
    sent, liars, others = some_messages(), [0, 3], [1, 2, 4, 5]
    twice = MessageBatch.merge([sent, sent.select(np.array([1]))])  # a node that sends twice counts once
    found = with_faults([LittleIsEnough(liars, z=1.5)], 6)(twice).messages
    wanted = sent.vector[others].mean(axis=0) - 1.5 * sent.vector[others].std(axis=0)
    np.testing.assert_allclose(found.vector[np.isin(found.sender, liars)], [wanted, wanted])


@pytest.mark.parametrize(("n", "liars", "share"), [(50, 12, 24 / 38), (100, 20, 49 / 80), (10, 2, None)])
def test_how_little_is_enough(n, liars, share):
    """Baruch et al.: z is the (n - m - s)/(n - m) quantile, s = floor(n/2 + 1) - m. For ten nodes that is the mean."""
    sent, fault = some_messages(n), LittleIsEnough(list(range(liars)))
    found = with_faults([fault], n)(sent).messages
    honest = sent.vector[liars:]
    z = 0.0 if share is None else NormalDist().inv_cdf(share)
    wanted = honest.mean(axis=0) - z * honest.std(axis=0)
    np.testing.assert_allclose(found.vector[found.sender == 0][0], wanted)


def test_liars_alone_have_no_one_to_imitate():
    sent = some_messages(3)
    np.testing.assert_array_equal(with_faults([LittleIsEnough([0, 1, 2])], 3)(sent).messages.vector, sent.vector)


def test_messages_of_certificates_are_true():
    sent = some_messages(first_seq=-100)
    np.testing.assert_array_equal(with_faults([SignFlip(0.5)], 6)(sent).messages.vector, sent.vector)


def test_who_lies():
    def liars(nodes, seed=0, n=20):
        return np.flatnonzero(liar_mask(nodes, FaultContext(n, seed))).tolist()

    assert liars(3) == [3]
    assert liars([5, 2]) == [2, 5]
    assert len(liars(0.2)) == 4
    assert liars(0.2) == liars(0.2) != liars(0.2, seed=1)
    assert liars(1.0) == list(range(20))
    assert liars(0.0) == []
    with pytest.raises(ValueError, match="there is no node 20"):
        liars([20])
    with pytest.raises(ValueError, match=r"the fraction of nodes that lie is a probability, .* got 1.5"):
        liars(1.5)


def test_named_faults():
    assert make_faults(["sign-flip=0.2", 'constant={"nodes": [1], "value": 5}', "zeros=3"]) == [
        SignFlip(0.2), Constant([1], 5), Zeros(3),
    ]  # fmt: skip
    assert make_faults({"little-is-enough": {"z": 1}, "false-counts": {"factor": 2}, "flapping": {"period": 3}}) == [
        LittleIsEnough(z=1), FalseCounts(factor=2), Flapping(period=3),
    ]  # fmt: skip


def test_a_flapping_node_comes_and_goes():
    exchange = wrap_all([Flapping([1], period=3)], FaultContext(4, 0))
    live = [
        bool(after.alive[1]) for after in gossiped(Diffusion(), some_block(build("complete", 4), 1, 0), 12, exchange)
    ]
    assert live == [t // 3 % 2 == 0 for t in range(1, 13)]
    with pytest.raises(ValueError, match="at least 1"):
        wrap_all([Flapping(period=0)], FaultContext(4, 0))(some_messages(4))


def test_flipped_labels():
    y, sites = np.array(["a", "b", "c", "a"]), ["x", "x", "x", "y"]
    assert flip_labels(y, sites, ["x"]).tolist() == ["b", "c", "a", "a"]
    assert flip_labels(y, sites, []).tolist() == y.tolist()
    with pytest.raises(ValueError, match="there is no site 'z': the sites are x, y"):
        flip_labels(y, sites, ["z"])


def test_a_lie_stays_after_other_faults():
    """Faults compose in the order given: what a liar sends late is still a lie."""
    sent = some_messages()
    found = with_faults([*make_faults("delay=0"), SignFlip([2])], 6)(sent).messages
    np.testing.assert_array_equal(found.vector[found.sender == 2], -sent.vector[2:3])
    assert isinstance(with_faults([SignFlip([2])], 6)(sent), Delivery)
