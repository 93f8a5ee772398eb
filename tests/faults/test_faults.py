"""Faults as wrappers of exchange: which keep mass and which lose it, and what becomes of nodes that are away."""

from dataclasses import dataclass

import numpy as np
import pytest

from gadget_svm import Gadget, GadgetSVC
from gadget_svm.faults import FAULTS, Bounce, Churn, Crash, Delay, Loss, Partition, Slow, make_faults
from gadget_svm.gossip import Diffusion, PushSum, RunningSum, averaging_block
from gadget_svm.topologies import build
from support.gossip_blocks import Ledger, gossiped, some_block, with_faults


def test_delay_delivers_everything_within_its_bound():
    network = build("ring", 6)
    block, ledger = some_block(network, 1, 3), Ledger(with_faults([Delay(3, least=1)], 6))
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
    list(gossiped(PushSum(), block, 100, with_faults([Loss(0.2)], 20)))
    assert block.phi.sum() < 0.01 * before


def test_running_sums_reach_the_exact_mean_through_loss():
    """ "A lost message is made good by the next": at 30 % loss every node still finds the weighted mean."""
    block = some_block(build("random-regular", 20), 2, 0)
    mean = block.n @ block.flat / block.n.sum()
    list(gossiped(RunningSum(), block, 400, with_faults([Loss(0.3)], 20)))
    np.testing.assert_allclose(block.s / block.phi[:, None], np.tile(mean, (20, 1)), rtol=1e-8)


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", [Loss, Bounce])
def test_messages_fail_as_often_as_asked(kind, rate):
    exchange, sent, arrived = with_faults([kind(rate)], 50, seed=2), 0, 0

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
    exchange, sent, back = with_faults([Bounce(0.5), Loss(0.5)], 50, seed=2), 0, 0

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
    exchange = with_faults([Crash(nodes=[2], at=3, back=6)], 5)

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
    exchange = Ledger(with_faults([Slow(every=3, nodes=[1])], 4))

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
    exchange = with_faults([Partition(at=1, heal=31, groups=groups)], 6)
    for t, after in enumerate(gossiped(PushSum(), block, 150, exchange), start=1):
        if t <= 30:
            np.testing.assert_array_equal(after.s / after.phi[:, None], [[6.0], [0], [0], [0], [0], [0]])
    np.testing.assert_allclose(after.s / after.phi[:, None], 1.0)


def test_by_default_the_network_falls_into_two_halves():
    values = np.array([1.0, 1, 1, 5, 5, 5])[:, None]
    block = averaging_block(build("complete", 6), values, np.ones(6))
    for after in gossiped(PushSum(), block, 20, with_faults(make_faults("partition"), 6)):
        np.testing.assert_array_equal(after.s / after.phi[:, None], values)


def test_a_node_cut_off_for_a_thousand_rounds_is_whole_again_after_it():
    """Its mass has gone into running sums, half by half; it must not end as 0/0."""
    block = averaging_block(build("ring", 4), np.array([[1.0], [2], [3], [6]]), np.ones(4))
    exchange = with_faults([Partition(at=1, heal=1501, groups=[[0]], lost=True)], 4)
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
    exchange = with_faults([Note("first", seen), Note("second", seen)], 3)
    list(gossiped(PushSum(), some_block(build("ring", 3), 1, 0), 1, exchange))
    assert seen == ["first", "second"]


def test_absences_for_two_reasons_end_with_the_later():
    block = some_block(build("complete", 4), 1, 0)
    exchange = with_faults([Crash(nodes=[1], at=2, back=4), Crash(nodes=[1], at=3, back=6)], 4)
    seen = [bool(after.alive[1]) for after in gossiped(PushSum(), block, 7, exchange)]
    assert seen == [True, False, False, False, False, True, True]


def test_faults_by_name_by_value_and_as_instances():
    assert make_faults(None) == []
    assert make_faults("loss=0.1") == [Loss(0.1)]
    assert make_faults(["delay=2", Bounce(0.2)]) == [Delay(2.0), Bounce(0.2)]
    assert make_faults({"loss": 0.1, "crash": {"nodes": [3], "at": 9}}) == [Loss(0.1), Crash(nodes=[3], at=9)]
    assert make_faults(Churn()) == [Churn()]
    assert set(FAULTS) == {
        "loss", "bounce", "delay", "partition", "crash", "churn", "flapping", "slow", "async", "sign-flip", "constant",
        "zeros", "little-is-enough", "false-counts",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "error", "sentence"),
    [
        ("los=0.1", ValueError, "Did you mean 'loss'"),
        ("loss", ValueError, "takes p; write"),
        ("loss=often", ValueError, "not a number"),
        ({"crash": {"node": 3}}, ValueError, "takes nodes, at, back"),
        ("loss=1.5", ValueError, "between 0 and 1"),
        ({"churn": {"leave": -1}}, ValueError, "leave is a probability"),
        ("delay=-1", ValueError, "number of exchanges"),
        ("slow=0", ValueError, "n >= 1"),
        ({"crash": {"nodes": [99]}}, ValueError, "there is no node 99"),
        ([Partition(groups=[[0], [77]])], ValueError, "there is no node 77"),
        ([3], TypeError, "got 3"),
    ],
)
def test_a_wrong_fault_says_what_is_wrong(toy, spec, error, sentence):
    with pytest.raises(error, match=sentence):
        GadgetSVC(n_nodes=4, max_iter=5, stopping=None, faults=spec).fit(toy.X, toy.y)


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
