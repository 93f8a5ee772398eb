"""Robust mixing: exact without liars, bounded with them, and what it refuses."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget_svm import Gadget, GadgetSVC, average, build_network
from gadget_svm.core.messages import Delivery, message_bytes
from gadget_svm.core.network import Network
from gadget_svm.faults import Bounce, Constant, Delay, FalseCounts, LittleIsEnough, Loss, SignFlip, Zeros
from gadget_svm.gossip import RobustMixing, averaging_block, rounds
from gadget_svm.gossip.robust import TRIMS
from support.gossip_blocks import drive, gossiped, some_block, split, with_faults
from support.strategies import networks

every_kind = pytest.mark.parametrize("kind", TRIMS)
LIARS = (2, 7)
HONEST = np.setdiff1d(np.arange(10), LIARS)


def six_regular():
    return build_network("random-regular:6", 10, seed=1)


@every_kind
@settings(max_examples=30)
@given(network=networks(directed=False), seed=st.integers(0, 2**32), steps=st.integers(1, 25))
def test_the_weighted_sum_is_conserved_if_nothing_is_clipped(kind, network, seed, steps):
    """n_i b_ij = n_j b_ji, on any graph and for any numbers of rows."""
    block = some_block(network, 3, seed, zeros=True)
    wanted = block.n @ block.flat
    for after in gossiped(RobustMixing(kind, 0), block, steps):
        np.testing.assert_allclose(block.n @ after.s, wanted, rtol=0, atol=1e-9)


@every_kind
@settings(max_examples=12)
@given(network=networks(most=6, directed=False), seed=st.integers(0, 2**32))
def test_estimates_go_to_the_weighted_mean(kind, network, seed):
    rng = np.random.default_rng(seed)
    x, n = rng.normal(size=(network.n, 2)), rng.integers(1, 20, network.n).astype(float)
    found = average(x, network, RobustMixing(kind, 0), 4000, weights=n)
    np.testing.assert_allclose(found, np.tile(n @ x / n.sum(), (network.n, 1)), atol=1e-6)


def test_lazy_mixing_moves_half_as_far():
    x = np.random.default_rng(0).normal(size=(10, 5))
    whole, half = (average(x, six_regular(), RobustMixing(liars=0, lazy=lazy), 1) for lazy in (False, True))
    np.testing.assert_allclose(half, (x + whole) / 2, rtol=1e-12)
    assert np.abs(whole - x).max() > 0.1


def test_a_node_without_rows_follows_the_others():
    found = average(
        [0.0, 3.0, 6.0, 100.0], build_network("complete", 4), RobustMixing("clip", 0), 300, weights=[1, 1, 1, 0]
    )
    np.testing.assert_allclose(found, 3.0)


@every_kind
def test_the_spread_shrinks_and_the_mean_hardly_moves_although_none_lies(kind):
    """Differences are bounded at both ends by different amounts, so the mean is not exact."""
    x = np.random.default_rng(0).normal(size=(10, 5))
    found = average(x, six_regular(), RobustMixing(kind, 2), 50)
    spread = np.linalg.norm(x - x.mean(axis=0), axis=1).max()
    assert np.linalg.norm(found - found.mean(axis=0), axis=1).max() < spread / 4
    assert 1e-6 < np.linalg.norm(found.mean(axis=0) - x.mean(axis=0)) < spread / 4


@every_kind
@pytest.mark.parametrize("blocks", [2, 3])
def test_blocks_agree_bit_for_bit(kind, blocks):
    network, gossip = build_network("complete", 9), RobustMixing(kind, 2)
    alone, whole = some_block(network, 3, 4), some_block(network, 3, 4)
    parts = split(network, whole, blocks)
    assert drive(gossip, [alone], 6) == drive(gossip, parts, 6)
    np.testing.assert_array_equal(np.concatenate([part.s for part in parts]), alone.s)


def test_a_message_has_the_vector_and_one_number():
    sent = []

    def exchange(messages):
        sent.append(messages)
        return Delivery(messages)

    block = averaging_block(build_network("ring", 4), np.eye(4), np.array([3.0, 6.0, 9.0, 12.0]))
    list(gossiped(RobustMixing("clip", 0), block, 1, exchange))
    assert sent[0].nbytes == sent[0].n_messages * message_bytes(4, 1)
    np.testing.assert_array_equal(sent[0].weight, np.repeat([1.0, 2.0, 3.0, 4.0], 2))


ATTACKS = {
    "sign flip": SignFlip(LIARS, factor=1e3),
    "constant": Constant(LIARS),
    "infinite": Constant(LIARS, np.inf),
    "not a number": Constant(LIARS, np.nan),
    "too large to square": Constant(LIARS, 1e300),
    "zeros": Zeros(LIARS),
    "little": LittleIsEnough(LIARS, z=1.5),
    "counts": FalseCounts(LIARS, 1e9),
    "negative counts": FalseCounts(LIARS, -1e9),
    "no counts": FalseCounts(LIARS, np.nan),
}


@every_kind
@pytest.mark.parametrize("attack", ATTACKS)
def test_two_liars_move_nobody_beyond_the_honest_vectors(kind, attack):
    """A step is at most 6/7 of the distance to an honest neighbour, so nobody gets further away than they were."""
    x = np.random.default_rng(3).normal(size=(10, 4)) + 50.0
    block = averaging_block(six_regular(), x, np.full(10, 7.0))
    exchange = with_faults([ATTACKS[attack]], 10)
    before = x
    for after in islice(rounds(RobustMixing(kind, 2), block, exchange), 1, 30):
        honest = before[HONEST]
        widest = np.linalg.norm(honest[:, None] - honest[None], axis=2).max()
        assert (np.linalg.norm(after.s[HONEST] - honest, axis=1) <= widest).all()
        before = after.s.copy()
    assert np.isfinite(before[HONEST]).all()
    assert np.linalg.norm(before[HONEST] - x[HONEST].mean(axis=0), axis=1).max() < 8.0


@every_kind
def test_claimed_rows_count_downwards_only(kind):
    """b_ij is at most 1/(d_i + 1), whatever number of rows a neighbour claims."""
    x = np.array([[0.0], [1.0], [1.0], [1.0]])
    moved = []
    for factor in (1.0, 1e12):
        block = averaging_block(build_network("complete", 4), x, np.ones(4))
        list(gossiped(RobustMixing(kind, 0), block, 1, with_faults([FalseCounts((1, 2, 3), factor)], 4)))
        moved.append(block.s[0, 0])
    assert moved == pytest.approx([0.75, 0.75])


def test_clipping_and_dropping_by_hand():
    """Node 0 at 0 hears 1, 2, 3, 4 and 100 with b = 1/6 each; one may lie."""
    x = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [100.0]])
    found = {}
    for kind in TRIMS:
        block = averaging_block(build_network("complete", 6), x, np.ones(6))
        list(gossiped(RobustMixing(kind, 1), block, 1))
        found[kind] = block.s[0, 0]
    assert found["clip"] == pytest.approx((1 + 2 + 3 + 3 + 3) / 6)  # at the third smallest of five
    assert found["trim"] == pytest.approx((1 + 2 + 3 + 4) / 6)


@every_kind
def test_of_late_messages_only_the_newest_counts(kind):
    """A neighbour cannot gain influence by sending several messages in one round."""
    x = np.array([[0.0], [6.0]])
    block, kept = averaging_block(build_network("complete", 2), x, np.ones(2)), []

    def repeated(messages):
        kept.append(messages._replace(vector=messages.vector * len(kept)))
        return Delivery(messages.merge([*kept]) if len(kept) > 1 else messages.select([]))

    list(gossiped(RobustMixing(kind, 0), block, 2, repeated))
    assert block.s[0, 0] == pytest.approx(3.0)


@every_kind
@pytest.mark.parametrize("fault", [Loss(0.3), Bounce(0.3), Delay(2)], ids=["lost", "returned", "late"])
def test_a_missing_neighbour_is_not_mixed_in(kind, fault):
    x = np.random.default_rng(1).normal(size=(10, 3)) + 20
    block = averaging_block(six_regular(), x, np.ones(10))
    list(gossiped(RobustMixing(kind, 1), block, 200, with_faults([fault], 10)))
    spread = np.linalg.norm(x - x.mean(axis=0), axis=1).max()
    assert np.linalg.norm(block.s - x.mean(axis=0), axis=1).max() < spread / 2


@every_kind
def test_plain_gossip_fails_and_robust_mixing_does_not(kind):
    """Two of ten send four times the opposite: the worst honest node, against the same run without liars."""
    from sklearn.datasets import make_classification

    X, y = make_classification(3000, 20, n_informative=10, class_sep=1.5, flip_y=0.02, random_state=0)
    settings = {"lam": 1e-2, "max_iter": 150, "stopping": None, "random_state": 0, "topology": "random-regular:6"}

    def worst(faults, **params):
        algorithm = Gadget(solver="implicit", local_steps=20, batch_size=20, **params)
        model = GadgetSVC(10, algorithm=algorithm, faults=faults, **settings).fit(X, y)
        return min(model.node(i).score(X, y) for i in HONEST)

    robust, flip = {"robust": kind, "liars": 2}, SignFlip(LIARS, factor=4.0)
    assert worst(flip, gossip="diffusion") < worst(None, gossip="diffusion") - 0.1
    assert worst(flip, **robust) >= worst(None, **robust) - 0.01
    assert worst(None, **robust) >= worst(None, gossip="diffusion") - 0.01


def test_several_classes_several_blocks_and_threads(toy):
    one, two = (
        GadgetSVC(
            6, topology="complete", algorithm=Gadget(robust="clip", liars=2), faults=SignFlip((1,)), lam=0.05,
            max_iter=40, stopping=None, random_state=0, engine_options={"blocks": blocks}, n_jobs=blocks,
        ).fit(toy.X, toy.y + (toy.X[:, 0] > 0))
        for blocks in (1, 2)
    )  # fmt: skip
    np.testing.assert_array_equal(one.node_coef_, two.node_coef_)
    assert len(one.coef_) == len(one.classes_) > 2


DIRECTED = Network.from_adjacency(np.roll(np.eye(5, dtype=int), 1, axis=1), directed=True)
MATRIX = Network.from_matrix(np.full((5, 5), 0.2))


@pytest.mark.parametrize(
    ("network", "params", "message"),
    [
        (build_network("ring", 5), {"robust": "clip"}, "at least 3 neighbours .* a node of 'ring' has 2: use a denser"),
        (build_network("complete", 5), {"robust": "trim", "liars": 2}, "'random-regular:6' or 'complete'"),
        (DIRECTED, {"robust": "clip"}, "is directed: use an undirected topology"),
        (MATRIX, {"robust": "clip"}, "give the graph alone"),
        (build_network("complete", 5), {"robust": "clp"}, "Did you mean 'clip'"),
        (build_network("complete", 5), {"robust": "clip", "liars": -1}, "a whole number; got -1"),
        (build_network("complete", 5), {"robust": "clip", "gossip": "push-sum"}, "takes the place of gossip"),
        (build_network("complete", 5), {"robust": "clip", "gossip_rounds": "mix"}, "use a fixed gossip_rounds"),
        (build_network("complete", 5), {"robust": "clip", "gossip_rounds": "diameter"}, "gossip='diffusion'"),
    ],
)
def test_what_is_refused(network, params, message):
    with pytest.raises(ValueError, match=message):
        Gadget(**params).bind(network, 0.1, 1.0)


def test_liars_without_robust_change_nothing():
    assert Gadget(liars=3).bind(build_network("ring", 5), 0.1, 1.0) == Gadget().bind(build_network("ring", 5), 0.1, 1.0)
