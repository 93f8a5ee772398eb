"""Faults as wrappers of exchange: which keep mass and which lose it, and what becomes of nodes that are away."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget_svm import Gadget, GadgetSVC
from gadget_svm.core.messages import Delivery, MessageBatch
from gadget_svm.faults import (
    FAULTS,
    Asynchronous,
    Bounce,
    Churn,
    Crash,
    Delay,
    FaultContext,
    Loss,
    Partition,
    Slow,
    make_faults,
    wrap_all,
)
from gadget_svm.faults.base import chance
from gadget_svm.gossip import PROTOCOLS, Diffusion, PushSum, RunningSum, averaging_block
from gadget_svm.kernels.counter_rng import BOUNCE, DELAY, LOSS
from gadget_svm.topologies import build
from support.gossip_blocks import gossiped, mass, some_block
from support.strategies import networks

KEEPING = {
    "bounce": lambda _: Bounce(0.4),
    "delay": lambda _: Delay(3),
    "crash": lambda n: Crash(nodes=[n - 1], at=3, back=9),
    "crash for good": lambda _: Crash(nodes=[0], at=4),
    "churn": lambda _: Churn(leave=0.3, join=0.5),
    "partition": lambda _: Partition(at=2, heal=12),
    "slow": lambda n: Slow(every=3, nodes=[0, n - 1]),
    "async": lambda _: Asynchronous(0.5),
}


class Ledger:
    """An exchange that keeps account of what was sent and has not come out yet."""

    def __init__(self, exchange):
        self.exchange, self.vector, self.weight = exchange, 0.0, 0.0

    def __call__(self, messages):
        delivery = self.exchange(messages)
        self.vector = self.vector + messages.vector.sum(axis=0) - delivery.messages.vector.sum(axis=0)
        self.weight += messages.weight.sum() - delivery.messages.weight.sum()
        return delivery


def suffering(faults, n, seed=0):
    return wrap_all(faults, FaultContext(n, seed))


@pytest.mark.parametrize("fault", sorted(KEEPING))
@pytest.mark.parametrize("protocol", [PushSum(), Diffusion()], ids=["push-sum", "diffusion"])
@settings(max_examples=15)
@given(network=networks(least=2), seed=st.integers(0, 2**31), steps=st.integers(1, 20))
def test_these_faults_keep_mass_counting_what_waits(fault, protocol, network, seed, steps):
    """A share that comes back, comes late, or waits for a node is not lost."""
    block = some_block(network, 2, seed)
    wanted, total = block.n @ block.flat, block.n.sum()
    ledger = Ledger(suffering([KEEPING[fault](network.n)], network.n, seed))
    for after in gossiped(protocol, block, steps, ledger):
        s, phi = mass(after)
        np.testing.assert_allclose(s + ledger.vector, wanted, atol=1e-8)
        assert phi + ledger.weight == pytest.approx(total, rel=1e-12)
        if fault not in ("delay", "slow", "async"):
            assert ledger.weight == 0


@pytest.mark.parametrize("fault", [*sorted(KEEPING), "loss", "cut and lost"])
@settings(max_examples=15)
@given(network=networks(least=2), seed=st.integers(0, 2**31), steps=st.integers(1, 20))
def test_running_sums_keep_mass_under_every_fault(fault, network, seed, steps):
    """Counting what is in flight, sigma - seen: also where messages are lost."""
    losing = {"loss": lambda _: Loss(0.5), "cut and lost": lambda _: Partition(at=2, heal=9, lost=True)}
    block = some_block(network, 2, seed)
    wanted, total = block.n @ block.flat, block.n.sum()
    exchange = suffering([{**KEEPING, **losing}[fault](network.n)], network.n, seed)
    for after in gossiped(RunningSum(), block, steps, exchange):
        s, phi = mass(after)
        np.testing.assert_allclose(s, wanted, atol=1e-8)
        assert phi == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("fault", ["bounce", "crash", "crash for good", "churn", "partition"])
@settings(max_examples=15)
@given(network=networks(least=2), seed=st.integers(0, 2**31), steps=st.integers(1, 20))
def test_pairwise_keeps_the_mean_where_failures_are_noticed(fault, network, seed, steps):
    """A call that comes back is no call, an answer that comes back undoes the meeting."""
    block = some_block(network, 2, seed)
    wanted = block.flat.sum(axis=0)
    exchange = suffering([KEEPING[fault](network.n)], network.n, seed)
    for after in gossiped(PROTOCOLS["pairwise"](), block, steps, exchange):
        np.testing.assert_allclose(after.s.sum(axis=0), wanted, atol=1e-9)


def test_delay_delivers_everything_within_its_bound():
    network = build("ring", 6)
    block, ledger = some_block(network, 1, 3), Ledger(suffering([Delay(3, least=1)], 6))
    mails = []

    def noted(messages):
        mails.append(messages)
        return ledger(messages)

    list(gossiped(PushSum(), block, 10, noted))
    assert ledger.weight > 0
    nothing = mails[-1].select(np.zeros(len(mails[-1].sender), dtype=bool))
    for _ in range(3):
        ledger(nothing)
    assert ledger.weight == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(ledger.vector, 0, atol=1e-9)


def test_push_sum_loses_mass_with_every_lost_message():
    """Push-Sum as the paper states it has no way to notice; its average goes astray."""
    block = some_block(build("random-regular", 20), 1, 0)
    before = block.n.sum()
    list(gossiped(PushSum(), block, 100, suffering([Loss(0.2)], 20)))
    assert block.phi.sum() < 0.01 * before


def test_running_sums_reach_the_exact_mean_through_loss():
    """ "A lost message is made good by the next": at 30 % loss every node still finds the weighted mean."""
    block = some_block(build("random-regular", 20), 2, 0)
    mean = block.n @ block.flat / block.n.sum()
    list(gossiped(RunningSum(), block, 400, suffering([Loss(0.3)], 20)))
    np.testing.assert_allclose(block.s / block.phi[:, None], np.tile(mean, (20, 1)), rtol=1e-8)


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", [Loss, Bounce])
def test_messages_fail_as_often_as_asked(kind, rate):
    exchange, sent, arrived = suffering([kind(rate)], 50, seed=2), 0, 0

    def counted(messages):
        nonlocal sent, arrived
        delivery = exchange(messages)
        sent += len(messages.sender)
        arrived += (delivery.messages.receiver != delivery.messages.sender).sum()
        return delivery

    list(gossiped(PushSum(), some_block(build("complete", 50), 1, 1), 60, counted))
    assert 1 - arrived / sent == pytest.approx(rate, abs=0.03)


def test_loss_and_bounce_together_are_independent():
    """Composed faults draw separately: 0.5 lost, and half of the rest bounced."""
    exchange, sent, back = suffering([Bounce(0.5), Loss(0.5)], 50, seed=2), 0, 0

    def counted(messages):
        nonlocal sent, back
        delivery = exchange(messages)
        sent += len(messages.sender)
        back += (delivery.messages.receiver == delivery.messages.sender).sum()
        return delivery

    list(gossiped(PushSum(), some_block(build("complete", 50), 1, 1), 60, counted))
    assert back / sent == pytest.approx(0.25, abs=0.03)


def test_a_crashed_node_neither_sends_nor_hears_until_it_returns():
    network, sent, heard = build("complete", 5), [], []
    exchange = suffering([Crash(nodes=[2], at=3, back=6)], 5)

    def watched(messages):
        delivery = exchange(messages)
        other = delivery.messages.sender != delivery.messages.receiver
        if (delivery.messages.sender[other] == 2).any():
            sent.append(messages.time)
        if (delivery.messages.receiver[other] == 2).any():
            heard.append(messages.time)
        return delivery

    block = some_block(network, 1, 0)
    for t, after in enumerate(gossiped(Diffusion(), block, 8, watched), start=1):
        assert after.alive.tolist() == [True, True, t not in (3, 4, 5), True, True]
    assert heard == [1, 2, 6, 7, 8]
    assert sent == [1, 2, 7, 8]


def test_a_slow_node_acts_in_every_nth_iteration_and_misses_no_mail():
    block, sent = some_block(build("complete", 4), 1, 0), []
    exchange = Ledger(suffering([Slow(every=3, nodes=[1])], 4))

    def watched(messages):
        sent.extend(messages.sender[messages.sender == 1])
        return exchange(messages)

    for t, _ in enumerate(gossiped(PushSum(), block, 12, watched), start=1):
        if t % 3 == 0:
            assert exchange.weight == pytest.approx(0, abs=1e-12)  # it has collected what waited
    assert len(sent) == 4


@pytest.mark.parametrize("groups", [[[0]], [[0], [1, 2, 3, 4, 5]]], ids=["others are one more group", "both named"])
def test_a_partition_lets_nothing_cross_and_heals(groups):
    block = averaging_block(build("complete", 6), np.array([[6.0], [0], [0], [0], [0], [0]]), np.ones(6))
    exchange = suffering([Partition(at=1, heal=31, groups=groups)], 6)
    for t, after in enumerate(gossiped(PushSum(), block, 150, exchange), start=1):
        if t <= 30:
            np.testing.assert_array_equal(after.s / after.phi[:, None], [[6.0], [0], [0], [0], [0], [0]])
    np.testing.assert_allclose(after.s / after.phi[:, None], 1.0)


def test_by_default_the_network_falls_into_two_halves():
    values = np.array([1.0, 1, 1, 5, 5, 5])[:, None]
    block = averaging_block(build("complete", 6), values, np.ones(6))
    for after in gossiped(PushSum(), block, 20, suffering(make_faults("partition"), 6)):
        np.testing.assert_array_equal(after.s / after.phi[:, None], values)


def test_a_node_cut_off_for_a_thousand_rounds_is_whole_again_after_it():
    """Its mass has gone into running sums, half by half; it must not end as 0/0."""
    block = averaging_block(build("ring", 4), np.array([[1.0], [2], [3], [6]]), np.ones(4))
    exchange = suffering([Partition(at=1, heal=1501, groups=[[0]], lost=True)], 4)
    for after in gossiped(RunningSum(), block, 2000, exchange):
        assert np.isfinite(after.s).all()
    np.testing.assert_allclose(after.s / after.phi[:, None], 3.0)


@dataclass(frozen=True)
class Note:
    """A fault that only says when mail passes it."""

    name: str
    seen: list
    loses: bool = False

    def wrap(self, exchange, context):  # noqa: ARG002
        def noted(messages):
            self.seen.append(self.name)
            return exchange(messages)

        return noted


def test_the_first_fault_is_nearest_the_nodes():
    """Mail meets faults in the order they are given."""
    seen = []
    exchange = suffering([Note("first", seen), Note("second", seen)], 3)
    list(gossiped(PushSum(), some_block(build("ring", 3), 1, 0), 1, exchange))
    assert seen == ["first", "second"]


def test_a_messages_fate_does_not_depend_on_the_company_it_keeps():
    """Draws are keyed by sender, receiver and sequence, so mail may be grouped and ordered in any way."""
    mails, context = [], FaultContext(6, 4)
    list(gossiped(Diffusion(), some_block(build("complete", 6), 1, 0), 3, lambda m: mails.append(m) or Delivery(m)))
    run_in_rounds = MessageBatch.merge(mails)
    turn = np.random.default_rng(0).permutation(len(run_in_rounds.sender))
    for purpose in (LOSS, BOUNCE, DELAY):
        fate = chance(run_in_rounds, context, purpose)
        assert len(set(fate)) == len(fate)
        np.testing.assert_array_equal(chance(run_in_rounds.select(turn), context, purpose), fate[turn])
        np.testing.assert_array_equal(np.concatenate([chance(messages, context, purpose) for messages in mails]), fate)


def test_absences_for_two_reasons_end_with_the_later():
    block = some_block(build("complete", 4), 1, 0)
    exchange = suffering([Crash(nodes=[1], at=2, back=4), Crash(nodes=[1], at=3, back=6)], 4)
    seen = [bool(after.alive[1]) for after in gossiped(PushSum(), block, 7, exchange)]
    assert seen == [True, False, False, False, False, True, True]


def test_faults_by_name_by_value_and_as_instances():
    assert make_faults(None) == []
    assert make_faults("loss=0.1") == [Loss(0.1)]
    assert make_faults(["delay=2", Bounce(0.2)]) == [Delay(2.0), Bounce(0.2)]
    assert make_faults({"loss": 0.1, "crash": {"nodes": [3], "at": 9}}) == [Loss(0.1), Crash(nodes=[3], at=9)]
    assert make_faults(Churn()) == [Churn()]
    assert set(FAULTS) == {"loss", "bounce", "delay", "partition", "crash", "churn", "slow", "async"}


@pytest.mark.parametrize(
    ("spec", "error", "sentence"),
    [
        ("los=0.1", ValueError, "Did you mean 'loss'"),
        ("loss", ValueError, "takes p, for example"),
        ("loss=often", ValueError, "not a number"),
        ({"crash": {"node": 3}}, ValueError, "takes nodes, at, back"),
        ("loss=1.5", ValueError, "between 0 and 1"),
        ({"churn": {"leave": -1}}, ValueError, "leave is a probability"),
        ("delay=-1", ValueError, "number of exchanges"),
        ("slow=0", ValueError, "n >= 1"),
        ({"crash": {"nodes": [99]}}, ValueError, "there is no node 99"),
        ([Partition(groups=[[0], [77]])], ValueError, "there is no node 77"),
        ([3], TypeError, "not 3"),
    ],
)
def test_a_wrong_fault_says_what_is_wrong(toy, spec, error, sentence):
    with pytest.raises(error, match=sentence):
        GadgetSVC(n_nodes=4, max_iter=5, stopping=None, faults=spec).fit(toy.X, toy.y)


@pytest.mark.parametrize(
    "spec",
    ["loss=0.3", "bounce=0.3", "delay=3", "crash=1", {"crash": {"nodes": [0, 1, 2, 3], "at": 5}}, "churn", "slow=3",
     "async=0.3",
     {"partition": {"at": 5, "heal": 50, "lost": True}}, {"loss": 0.2, "delay": 2, "churn": None}],
    ids=str,
)  # fmt: skip
def test_learning_goes_on_under_every_fault(toy, spec):
    """The network learns, or at least stays finite where all its nodes are dead."""
    model = GadgetSVC(n_nodes=4, max_iter=300, stopping=None, lam=0.05, faults=spec, random_state=0)
    model.fit(toy.X, toy.y)
    assert np.isfinite(model.node_coef_).all()
    assert model.score(toy.X, toy.y) > 0.8


def test_loss_chooses_running_sums_unless_told(toy):
    """gossip='auto' is loss-proof where messages are lost for good: the nodes end nearer to each other."""
    ends = {}
    for name in ("auto", "running-sum", "push-sum"):
        algorithm = Gadget(gossip=name, solver="implicit")
        model = GadgetSVC(
            5, lam=0.05, algorithm=algorithm, max_iter=200, stopping=None, faults="loss=0.3", random_state=1
        )
        ends[name] = model.fit(toy.X, toy.y).node_coef_
    np.testing.assert_array_equal(ends["auto"], ends["running-sum"])
    assert not np.array_equal(ends["auto"], ends["push-sum"])


def test_an_undisturbed_exchange_is_the_plain_one():
    assert suffering([], 3) is Delivery
