"""A training session: the learner, what waits for it, and what may leave it. Pure; a host runs its steps.

Owns the order within a tick: change edges, learn alone if the last neighbour is gone, solve, filter what is sent, apply
what arrived, measure. A step works on what `TrainingSession.next_step` collected, so pushes and changes of edges may
come in while it runs; everything else waits until `TrainingSession.finish`.
"""

import random
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.core.types import Floats
from gadget_svm.peers.membership.overlay import node_id
from gadget_svm.peers.training import session_state
from gadget_svm.peers.training.inbox import Inbox
from gadget_svm.peers.training.learner import Learner, Measures, NodeMessage
from gadget_svm.peers.training.release_filter import ReleaseFilter, RowFilter
from gadget_svm.peers.training.scale import Scale, ScalingError
from gadget_svm.peers.training.scaling import Scaling
from gadget_svm.peers.training.send_credits import SendCredits
from gadget_svm.peers.training.site import Site
from gadget_svm.peers.wire.messages import Push, Statistics
from gadget_svm.study.study import Study

REFRESH_TICKS = 64
"""Ticks after which w is computed anew from its parts."""
SCALE_BYTES = 16
"""How much of the digest of the scale goes into messages."""

_NOT_LEARNED: dict[str, Any] = {"learner": None, "incarnations": {}, "edges": []}
"""What a snapshot says of the learner if there is none."""
Send = tuple[str, int, Floats, float, float | None]
"""Neighbour, sequence number, vector, weight, note."""


class Outcome(NamedTuple):
    """What a step gives: pushes to send, and why the learner went back to an earlier state, if it did."""

    outgoing: tuple[Send, ...] = ()
    failed: str = ""


class _Parts(NamedTuple):
    """What works together on one scale."""

    learner: Learner
    filter: ReleaseFilter
    X_test: sp.csr_matrix | None


class _Built(NamedTuple):
    """The result of a step that builds a learner."""

    parts: _Parts
    digest: bytes


class _Ticked(NamedTuple):
    """The result of a tick."""

    parts: _Parts
    sends: tuple[Send, ...]
    edges: frozenset[str] | None  # if they changed
    finite: bool
    measures: Measures | None = None
    accuracy: float | None = None
    blocked: tuple[str, ...] = ()


class TrainingSession:
    """The learning of one node. ``rng`` seeds the noise of the release filter, which others must not be able to guess.

    Between steps everything may be called. While a step runs: `receive`, `set_edges`, `restart_edge`,
    `hear_statistics`, and the attributes.
    """

    def __init__(
        self, study: Study, site: Site, name: str, seed: int, *, rng: random.Random | None = None
    ) -> None:  # fmt: skip
        self.study, self.site, self.name, self.seed = study, site, name, seed
        self.node, self.rows = node_id(name), float(site.X.shape[0])
        self.name_clashes: tuple[str, ...] = ()
        self.edge_names: frozenset[str] = frozenset()
        self.blocked: tuple[str, ...] = ()
        self.measures: Measures | None = None
        self.test_accuracy: float | None = None
        self.ticks = 0
        self._rng = random.Random(seed) if rng is None else rng
        self._scaling = Scaling(study, name, site.X)
        self._inbox = Inbox(study)
        self._credits = SendCredits() if study.algorithm == "gadget" else None
        self._calls = 0  # of `next_step`
        self._stepping = False  # whether a step is under way
        self._names: Collection[str] = frozenset()  # of the edges, as asked for
        self._wanted: dict[int, str] = {}
        self._numbers: dict[str, int] = {}  # the same the other way round
        self._edges_changed = True
        self._parts: _Parts | None = None
        self._former: Learner | None = None  # the learner that a new one replaces
        self._filter_state: session_state.Arrays | None = None  # of the filter before, for the same scale
        self._good: tuple[session_state.Arrays, dict[str, Any]] | None = None  # the last snapshot of a learner

    # The scale

    @property
    def scale(self) -> Scale | None:
        """The scale of the features, once it is settled."""
        return self._scaling.scale

    @property
    def scale_digest(self) -> bytes:
        """What identifies the scale in messages; empty before it is settled."""
        return self._scaling.digest[:SCALE_BYTES]

    @property
    def ready(self) -> bool:
        """Whether there is a learner."""
        return self._parts is not None

    @property
    def waiting(self) -> str:
        """Why nothing is learned yet; empty if the scale is settled."""
        if self.scale is not None:
            return ""
        known = len(self._scaling.entries)
        return f"waiting for the statistics of {self._scaling.sites} sites, {known} known"

    @property
    def withheld(self) -> int:
        """How many vectors the release filter kept back."""
        return 0 if self._parts is None else self._parts.filter.suppressed

    def statistics(self) -> Statistics:
        """Return what to tell others about the sites' features."""
        return self._scaling.message()

    def hear_statistics(self, heard: Statistics) -> bool:
        """Take in statistics; return whether anything is new. With another scale learning begins anew."""
        before = self._scaling.digest
        new = self._scaling.hear(heard)
        if self._scaling.digest != before:
            self._discard()
            self._good = self._filter_state = self._former = None
            self.ticks = 0
        return new

    # Edges and pushes

    def set_edges(self, names: Collection[str]) -> None:
        """From the next step on the learner has edges to these. Of two names with one number the later is left out."""
        if self._names == (chosen := frozenset(names)):
            return
        self._names = chosen
        wanted: dict[int, str] = {self.node: self.name}
        for name in sorted(names, key=lambda name: (name not in self.edge_names, name)):
            wanted.setdefault(node_id(name), name)
        del wanted[self.node]
        self.name_clashes = tuple(sorted(set(names).difference(wanted.values())))
        for number in self._wanted.keys() - wanted.keys():
            self._forget(number)
        self._wanted, self._edges_changed = wanted, True
        self._numbers = {name: number for number, name in wanted.items()}

    def restart_edge(self, name: str) -> None:
        """The other end has a new incarnation, which counts its messages from 0."""
        self._inbox.restart(node_id(name))
        self._forget(node_id(name))

    def receive(self, name: str, push: Push) -> bool:
        """Keep a push for the next step; return False if it is old or not usable."""
        number = self._numbers.get(name)
        if number is None or self._parts is None or push.scale != self.scale_digest:
            return False
        if not self._inbox.put(number, push):
            return False
        if self._credits is not None:
            self._credits.received(number)
        return True

    def _forget(self, number: int) -> None:
        self._inbox.forget(number)
        if self._credits is not None:
            self._credits.forget(number)

    # Steps

    def next_step(self, open_to: Collection[str], measure: bool) -> Callable[[], Any] | None:
        """Return what to run next, or None if there is nothing to do; pass its result to `finish`."""
        if self.scale is None:
            return None
        if self._parts is None:
            self._stepping = True
            return self._build
        self._calls += 1
        parts, wanted, changed = self._parts, self._wanted, self._edges_changed
        open_numbers = {number for number, name in wanted.items() if name in open_to}
        if self._credits is not None:
            open_numbers = self._credits.open(open_numbers, self._calls)
            if wanted and not open_numbers and not changed:
                return None
        arrived, restarted = self._inbox.take()
        self._edges_changed, self._stepping = False, True
        near = self._near() if measure else ()

        def step() -> _Ticked:
            return _tick(parts, wanted, changed, restarted, open_numbers, arrived, self.site, near if measure else None)

        return step

    def finish(self, result: Any) -> Outcome:
        """Take over the result of a step."""
        self._stepping = False
        if isinstance(result, _Built):
            if result.digest == self._scaling.digest:
                self._enter(result.parts)
            return Outcome()
        ticked: _Ticked = result
        if ticked.parts is not self._parts:
            return Outcome()  # of a scale that is out of date
        if not ticked.finite:
            return self.abort("the weights are not finite")
        self.ticks = ticked.parts.learner.t
        if ticked.edges is not None:
            self.edge_names = ticked.edges
        if ticked.measures is not None:
            self.measures, self.test_accuracy, self.blocked = ticked.measures, ticked.accuracy, ticked.blocked
        if self._credits is not None:
            for send in ticked.sends:
                self._credits.sent(self._numbers.get(send[0], -1), self._calls)
        return Outcome(ticked.sends)

    def abort(self, reason: str) -> Outcome:
        """A step failed: the next one builds a learner from the last snapshot, or a new one."""
        self._stepping = False
        if self._parts is None:
            self._good = None  # it cannot be used
            return Outcome((), f"{reason}: training restarts from scratch")
        self._former = self._parts.learner
        self._filter_state = self._parts.filter.state()
        tick = self._former.t
        self._discard()
        to = "restarts from scratch" if self._good is None else f"goes back to tick {self._good[1]['learner']['t']}"
        return Outcome((), f"{reason} at tick {tick}: training {to}")

    def sums_step(self, model: Floats, scale: bytes) -> Callable[[], Floats] | None:
        """Return a step that computes this node's sums for a certificate of a model; None if that is not possible."""
        if self._parts is None or scale != self.scale_digest or self.study.algorithm != "pdmm":
            return None
        learner = self._parts.learner
        return lambda: learner.sums(model)

    def _discard(self) -> None:
        self._parts, self.measures, self.test_accuracy, self.blocked = None, None, None, ()
        self.edge_names, self._edges_changed = frozenset(), True
        self._inbox.clear()

    def _enter(self, parts: _Parts) -> None:
        incarnations = {} if self._good is None else self._good[1]["incarnations"]
        self._inbox.restore({int(number): int(one) for number, one in incarnations.items()})
        self._parts, self._former, self._edges_changed = parts, None, True
        self.ticks = parts.learner.t

    def _build(self) -> _Built:
        """Build a learner, from the last snapshot if there is one. Changes nothing here."""
        scale, digest = self._scaling.scale, self._scaling.digest
        assert scale is not None
        site, plain = self.site, self.study.scaling == "none"
        X = site.X if plain else scale.apply(site.X)
        X_test = site.X_test if plain or site.X_test is None else scale.apply(site.X_test)
        learner = Learner(X, site.label, self.study, self.node, seed=self.seed)
        released: ReleaseFilter = RowFilter(learner.X, self.study.outputs, self._rng)
        if self._good is not None:
            arrays, about = self._good
            learner.restore(session_state.without_prefix("learner", arrays), about["learner"])
        if self._filter_state is not None:
            released.restore(self._filter_state)
        if self._former is not None:
            learner.succeed(self._former)
        return _Built(_Parts(learner, released, X_test), digest)

    # Models

    def status(self) -> dict[str, Any]:
        """Return what an operator may want to know, as plain values."""
        measures = self.measures
        return {
            "rows": self.rows, "features": self.study.n_features, "ticks": self.ticks, "waiting": self.waiting,
            "classes": list(self.study.classes[:20]), "learning_with": sorted(self.edge_names),
            "local_objective": None if measures is None else measures.objective,
            "train_accuracy": None if measures is None else measures.accuracy,
            "test_accuracy": self.test_accuracy, "withheld": self.withheld, "blocked": list(self.blocked),
            "name_clashes": list(self.name_clashes),
        }  # fmt: skip

    def model(self) -> Floats | None:
        """Return a copy of the model, outputs x width; None if there is none, or not one of these rows alone yet."""
        if self._parts is None or self._parts.learner.isolated:
            return None
        return self._parts.learner.model()

    def neighbour_models(self) -> list[tuple[str, Floats]]:
        """Return estimates of the neighbours' models, as far as their pushes tell."""
        if self._parts is None:
            return []
        found = []
        for number, name in self._wanted.items():
            model = self._estimate(number)
            if model is not None:
                found.append((name, model))
        return found

    def gap_share(self) -> float:
        """Return this node's share of the duality gap; -1 if an edge was not used in both directions yet."""
        if self._parts is None or self.measures is None or self._parts.learner.isolated:
            return -1.0
        last_sent, heard = self._parts.filter.last_sent, self._inbox.heard
        in_touch = all(number in heard and last_sent(number) is not None for number in self._wanted)
        return self.measures.slack if in_touch else -1.0

    def _near(self) -> list[Floats]:
        return [model for _, model in self.neighbour_models()]

    def _estimate(self, number: int) -> Floats | None:
        heard = self._inbox.heard.get(number)
        if heard is None or self._parts is None:
            return None
        sent = self._parts.filter.last_sent(number)
        return self._parts.learner.estimate_neighbour_model(heard.last, heard.previous, sent)

    # Snapshots

    def snapshot(self) -> tuple[session_state.Arrays, dict[str, Any]]:
        """Return arrays and JSON values from which `restore` continues.

        While a step runs, or if the weights are not finite, the learner is that of the snapshot before.
        """
        arrays, statistics = {}, {}
        if self.study.scaling != "none" and self.scale is not None:
            arrays, statistics = session_state.pack_statistics(self.statistics())
        about = {
            "format": session_state.FORMAT, "study": self.study.text(), "fingerprint": self._fingerprint(),
            "scale": self._scaling.digest.hex(), "statistics": statistics, **_NOT_LEARNED,
        }  # fmt: skip
        own: session_state.Arrays = {}
        if self._parts is not None and not self._stepping:
            state, learner = self._parts.learner.state()
            own = session_state.with_prefix("learner", state)
            own |= session_state.with_prefix("filter", self._parts.filter.state())
            if not session_state.not_finite(own):
                targets = map(int, self._parts.learner.block.links.target)
                voices = self._inbox.keep_incarnations(set(targets))
                incarnations = {str(number): one for number, one in voices.items()}
                self._good = own, {"learner": learner, "incarnations": incarnations, "edges": sorted(self.edge_names)}
        own, learned = ({}, _NOT_LEARNED) if self._good is None else self._good
        return arrays | own, about | learned

    def restore(self, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> list[str]:
        """Continue from a snapshot, before the first step; return warnings. ValueError: it does not belong here."""
        try:
            if not session_state.check_snapshot(self.study, self._fingerprint(), arrays, about):
                return []
            if about["statistics"]:
                self._scaling.hear(session_state.unpack_statistics(arrays, about["statistics"]))
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"the state is damaged ({error!r}): {session_state.FRESH.removeprefix('or ')}") from error
        if about["learner"] is None:
            return []
        if about["scale"] != self._scaling.digest.hex():
            return ["the feature scaling differs from the snapshot: training restarts from scratch"]
        kept = {name: np.array(array) for name, array in arrays.items() if name.startswith(("learner.", "filter."))}
        self._good = kept, {name: about[name] for name in _NOT_LEARNED}
        self._filter_state = session_state.without_prefix("filter", kept)
        self.edge_names = frozenset(map(str, about["edges"]))
        self.ticks = int(about["learner"]["t"])
        return []

    def _fingerprint(self) -> str:
        if not hasattr(self, "_known_fingerprint"):
            self._known_fingerprint = self.site.fingerprint()
        return self._known_fingerprint


def _tick(
    parts: _Parts, wanted: Mapping[int, str], changed: bool, restarted: Collection[int], open_to: Collection[int],
    arrived: list[NodeMessage], site: Site, near: list[Floats] | None,
) -> _Ticked:  # fmt: skip
    """Do one tick; ``near`` are the models to measure with, or None."""
    learner, released = parts.learner, parts.filter
    for number in restarted:
        learner.reset_edge(number)
    if changed:
        learner.set_neighbours(wanted.keys())
        released.forget(wanted.keys())
    learner.solve_alone()
    if learner.t % REFRESH_TICKS == REFRESH_TICKS - 1:
        learner.refresh()
    learner.draw_from(open_to)
    sends = []
    for message in learner.solve():
        if message.other in open_to:
            vector = released.release(message.other, message.vector, learner.duals)
            if vector is not None:
                released.sent(message.other, vector)
                sends.append((wanted[message.other], message.seq, vector, message.weight, message.note))
    learner.absorb(arrived)
    edges = frozenset(wanted.values()) if changed else None
    ticked = _Ticked(parts, tuple(sends), edges, learner.finite())
    if near is None or not ticked.finite:
        return ticked
    accuracy = None
    if parts.X_test is not None and site.label_test is not None and len(site.label_test):
        accuracy = learner.accuracy(parts.X_test, site.label_test)
    blocked = tuple(sorted(name for number, name in wanted.items() if released.blocked(number)))
    return ticked._replace(measures=learner.measure(near), accuracy=accuracy, blocked=blocked)


__all__ = ["Measures", "Outcome", "ScalingError", "TrainingSession"]
