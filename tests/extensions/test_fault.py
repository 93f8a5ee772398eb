"""A fault from outside the package: links that lose messages in bursts (Gilbert's model)."""

from dataclasses import dataclass

import numpy as np
import pytest

from gadget_svm import Gadget, GadgetSVC
from gadget_svm.core.messages import Delivery
from gadget_svm.faults import FAULTS, Fault, FaultContext, make_faults
from gadget_svm.kernels.counter_rng import uniform
from support.entry_points import offer

PURPOSE = 100  # no fault of the package draws for it


@dataclass(frozen=True)
class Bursts(Fault):
    """Each sender is in a good state, in which all its messages arrive, or in a bad one, in which none does."""

    begin: float = 0.05
    end: float = 0.3
    loses = True

    def wrap(self, exchange, context):
        bad, time = np.zeros(context.n_nodes, dtype=bool), -1

        def exchange_with_bursts(messages):
            nonlocal bad, time
            if messages.time != time:
                time, nodes = messages.time, np.arange(context.n_nodes)
                u = uniform(context.seed, nodes, np.full(context.n_nodes, time), PURPOSE)
                bad = np.where(bad, u >= self.end, u < self.begin)
            return exchange(messages.select(~bad[messages.sender]))

        return exchange_with_bursts


def fitted(toy, faults, **settings):
    settings = {"max_iter": 100, "stopping": None, "lam": 0.05, "random_state": 0, **settings}
    return GadgetSVC(6, faults=faults, algorithm=Gadget(), **settings).fit(toy.X, toy.y)


def test_messages_are_lost_and_the_protocol_that_recovers_them_is_chosen(toy):
    model = fitted(toy, [Bursts(0.3, 0.3), "delay=1"])
    assert model.gossip_ == "running-sum"
    assert model.score(toy.X, toy.y) > 0.8
    assert not np.array_equal(model.node_coef_, fitted(toy, "delay=1").node_coef_)


def test_it_is_seeded_and_blocks_agree(toy):
    one, again, two = (fitted(toy, Bursts(), engine_options={"blocks": b}) for b in (1, 1, 2))
    np.testing.assert_array_equal(one.node_coef_, again.node_coef_)
    np.testing.assert_array_equal(one.node_coef_, two.node_coef_)


def test_an_entry_point_makes_it_known_by_name(monkeypatch):
    offer(monkeypatch, FAULTS, bursts=Bursts)
    assert make_faults(["bursts=0.5", "loss=0.1"])[0] == Bursts(0.5)
    with pytest.raises(ValueError, match="it takes begin, end"):
        make_faults({"bursts": {"start": 0.1}})


def test_a_fault_that_does_not_say_whether_it_loses_messages_is_refused(toy):
    class Silent(Fault):
        def wrap(self, exchange, context):  # noqa: ARG002
            return exchange

    with pytest.raises(TypeError, match=r"Silent does not declare .* 'loses'"):
        fitted(toy, Silent())
    assert Silent().wrap(Delivery, FaultContext(3, 0)) is Delivery
