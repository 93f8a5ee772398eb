"""The steps of a training session: build a `Trainer`, or do one of its ticks. A host may run them in a thread.

Owns the order within a tick: change edges, solve, apply what arrived, measure. A step gets everything as values, and
changes only the learner.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from gadget_svm.core.types import Floats
from gadget_svm.peers.storage.snapshot import Part
from gadget_svm.peers.training.learner import Learner, Measures, NodeMessage
from gadget_svm.peers.training.private_learner import PrivateLearner
from gadget_svm.peers.training.scale import Scale
from gadget_svm.peers.training.site import Site
from gadget_svm.study.study import Study

REFRESH_TICKS = 64
"""Ticks after which w is computed anew from its parts."""

Sent = tuple[str, int, Floats, float, float | None]
"""Neighbour, sequence number, vector, weight, note."""


class TickInput(NamedTuple):
    """What a tick works on."""

    wanted: Mapping[int, str]  # edges: numbers and names of the neighbours
    restarted: Collection[int]
    open_to: Collection[int]
    arrived: list[NodeMessage]
    near: list[Floats] | None  # models of the neighbours to measure with, or None: no measures
    reserved: int = 0  # of a private study: rounds whose slopes may be released
    repeats: bool = False  # of a private study: whether only to send again what was sent last


class TickResult(NamedTuple):
    """What a tick gives."""

    scale: Scale
    sent: tuple[Sent, ...]
    edges: frozenset[str]  # of the learner
    measures: Measures | None
    rounds: int = 0  # of a private study: rounds of the plan that are done


class Trainer:
    """A learner, what it sent last, and test rows, on one scale.

    Continues from a snapshot if there is one, and takes the place of a former trainer if there was one. In a private
    study ``reserved`` rounds count as done, and ``noise`` is as in `DifferentialPrivacy`.
    """

    def __init__(
        self, study: Study, site: Site, node: int, seed: int, scale: Scale, saved: Part | None,
        former: "Trainer | None", noise: str = "secret", reserved: int = 0,
    ) -> None:  # fmt: skip
        self.scale, self.label_test = scale, site.label_test
        self.X_test = None if site.X_test is None else scale.apply(site.X_test)
        X = scale.apply(site.X)
        self.learner: Learner = (
            PrivateLearner(X, site.label, study, node, seed=seed, noise=noise)
            if study.is_private
            else Learner(X, site.label, study, node, seed=seed)
        )
        self.last_sent: dict[int, Floats] = {}  # by the number of the neighbour
        if saved is not None:
            arrays, about = saved
            self.learner.restore(arrays, about["learner"])
        if former is not None:
            self.learner.succeed(former.learner)
        if isinstance(self.learner, PrivateLearner):
            self.learner.count_as_done(reserved)

    def tick(self, given: TickInput) -> TickResult:
        """Do one tick. FloatingPointError: the weights are not finite any more."""
        learner, wanted = self.learner, given.wanted
        for number in given.restarted:
            learner.reset_edge(number)
        if wanted.keys() != set(learner.neighbours):
            learner.set_neighbours(wanted.keys())
            self.last_sent = {number: sent for number, sent in self.last_sent.items() if number in wanted}
        if isinstance(learner, PrivateLearner):
            return self._private_tick(learner, given)
        if learner.t % REFRESH_TICKS == REFRESH_TICKS - 1:
            learner.refresh()
        learner.draw_from(given.open_to)
        sent = []
        for message in learner.solve():
            if message.other in given.open_to:
                vector = self.last_sent[message.other] = np.array(message.vector)
                sent.append((wanted[message.other], message.seq, vector, message.weight, message.note))
        learner.absorb(given.arrived)
        if not learner.finite():
            raise FloatingPointError("the weights are not finite")
        measures = None if given.near is None else learner.measure(given.near, self.X_test, self.label_test)
        return TickResult(self.scale, tuple(sent), frozenset(wanted.values()), measures)

    def _private_tick(self, learner: PrivateLearner, given: TickInput) -> TickResult:
        """Do one tick of a private study. What is sent depends on rows through noisy slopes only."""
        if given.repeats:
            messages = learner.repeat()
        else:
            learner.absorb(given.arrived)
            messages = learner.step(given.reserved)
        if not learner.finite():
            raise FloatingPointError("the weights are not finite")
        sent = tuple((given.wanted[each.other], *each[1:]) for each in messages if each.other in given.open_to)
        return TickResult(self.scale, sent, frozenset(given.wanted.values()), None, learner.rounds)
