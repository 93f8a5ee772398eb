"""A training session: the learner of one node, what waits for it, and what may leave it. Pure; a host runs its steps.

Owns when a learner is built, what a step works on, and what becomes of its result. `steps` owns what happens in a step.
A step works on what `TrainingSession.next_step` collected, so messages and changes of edges may come in while it runs.
"""

import random
from collections.abc import Callable, Collection, Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from gadget_svm.core.types import Floats
from gadget_svm.peers.membership.overlay import node_id
from gadget_svm.peers.training import session_state, steps
from gadget_svm.peers.training.edge_set import EdgeSet
from gadget_svm.peers.training.inbox import Inbox
from gadget_svm.peers.training.learner import Measures
from gadget_svm.peers.training.scale import Scale
from gadget_svm.peers.training.scaling import Scaling
from gadget_svm.peers.training.send_credits import SendCredits
from gadget_svm.peers.training.site import Site
from gadget_svm.peers.wire.messages import Push, Statistics
from gadget_svm.study.study import Study

_NOT_LEARNED: dict[str, Any] = {"learner": None, "incarnations": {}, "edges": []}
"""What a snapshot says of the learner if there is none."""


class Outcome(NamedTuple):
    """What a step gives: pushes to send, and why the learner went back to an earlier state, if it did."""

    outgoing: tuple[steps.Sent, ...] = ()
    failed: str = ""


class TrainingSession:
    """The learning of one node.

    While a step runs, call only `receive`, `set_edges`, `restart_edge`, `hear_statistics`, `status` and `snapshot`,
    which then holds the learner of the snapshot before. ``rng`` seeds the noise of the release filter: others must not
    be able to guess it.
    """

    def __init__(
        self, study: Study, site: Site, name: str, seed: int, *, rng: random.Random | None = None
    ) -> None:  # fmt: skip
        self.study, self.site, self.name, self.seed = study, site, name, seed
        self.rows = float(site.X.shape[0])
        self.ticks = 0
        self.edge_names: frozenset[str] = frozenset()  # in the learner
        self.blocked: tuple[str, ...] = ()  # neighbours that nothing may be sent to, as it would give a row away
        self.measures: Measures | None = None
        self.test_accuracy: float | None = None
        self._noise_seeds = random.Random(seed if rng is None else rng.getrandbits(128))
        self._scaling, self._inbox, self._edges = Scaling(study, name, site.X), Inbox(study), EdgeSet(name)
        self._credits = SendCredits() if study.algorithm == "gadget" else None
        self._parts: steps.Parts | None = None
        self._former: steps.Parts | None = None  # after a failure: what the next learner replaces
        self._good: session_state.Saved | None = None  # the last snapshot of a learner
        self._edges_changed = True
        self._is_stepping = False
        self._calls = 0  # of `next_step`

    # The scale

    @property
    def scale(self) -> Scale | None:
        """The scale of the features, once it is settled."""
        return self._scaling.scale

    @property
    def scale_digest(self) -> bytes:
        """What identifies the scale in messages; empty before it is settled."""
        return self._scaling.digest

    @property
    def waiting(self) -> str:
        """Why nothing is learned yet; empty if the scale is settled."""
        if self.scale is not None:
            return ""
        return f"waiting for the statistics of {self._scaling.sites} sites, {len(self._scaling.entries)} known"

    def statistics(self) -> Statistics:
        """Return what to tell others about the sites' features."""
        return self._scaling.message()

    def hear_statistics(self, heard: Statistics) -> bool:
        """Take in statistics; return whether anything is new. If the scale changes, training restarts from scratch."""
        before = self._scaling.digest
        new = self._scaling.hear(heard)
        if self._scaling.digest != before:
            self._discard()
            self._good, self._former, self.ticks = None, None, 0
        return new

    # Edges and pushes

    def set_edges(self, names: Collection[str]) -> None:
        """From the next step on, the learner has edges to these. `name_clashes` are left out."""
        gone = self._edges.replace(names)
        if gone is not None:
            self._edges_changed = True
            for number in gone:
                self._forget(number)

    @property
    def name_clashes(self) -> tuple[str, ...]:
        """Neighbours that are left out, because their name gives the number of another one."""
        return self._edges.clashes

    def restart_edge(self, name: str) -> None:
        """The other end has a new incarnation, which counts its messages from 0."""
        self._inbox.restart(node_id(name))
        self._forget(node_id(name))

    def receive(self, name: str, push: Push) -> bool:
        """Keep a push for the next step; return False if it is old or not usable."""
        number = self._edges.numbers.get(name)
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
            self._is_stepping = True
            return partial(
                steps.build, self.study, self.site, node_id(self.name), self.seed, self._noise_seeds.getrandbits(128),
                self.scale, self._scaling.digest, self._good, self._former,
            )  # fmt: skip
        self._calls += 1
        names, numbers = self._edges.names, self._edges.numbers
        open_numbers: Collection[int] = {numbers[name] for name in open_to if name in numbers}
        if self._credits is not None:
            open_numbers = self._credits.open(open_numbers, self._calls)
            if names and not open_numbers and not self._edges_changed:
                return None
        near = [model for _, model in self.neighbour_models()] if measure else None
        messages, restarted = self._inbox.take()
        given = steps.TickInput(names, self._edges_changed, restarted, open_numbers, messages, near)
        self._edges_changed, self._is_stepping = False, True
        return partial(steps.tick, self._parts, given)

    def finish(self, result: Any) -> Outcome:
        """Take over the result of a step."""
        self._is_stepping = False
        if isinstance(result, steps.Parts):
            if result.digest == self._scaling.digest:
                self._enter(result)
            return Outcome()
        ticked: steps.TickResult = result
        if ticked.parts is not self._parts:
            return Outcome()  # on a scale that is out of date
        if not ticked.finite:
            return self.abort("the weights are not finite")
        self.ticks = ticked.parts.learner.t
        if ticked.edges is not None:
            self.edge_names = ticked.edges
        if ticked.measures is not None:
            self.measures, self.test_accuracy, self.blocked = ticked.measures, ticked.accuracy, ticked.blocked
        if self._credits is not None:
            for name, *_ in ticked.sent:
                if name in self._edges.numbers:
                    self._credits.sent(self._edges.numbers[name], self._calls)
        return Outcome(ticked.sent)

    def abort(self, reason: str) -> Outcome:
        """Give up a step that failed: the next one builds a learner from the last snapshot, or from scratch."""
        self._is_stepping = False
        at = ""
        if self._parts is None:
            self._good = None  # it is of no use
        else:
            self._former, at = self._parts, f" at tick {self._parts.learner.t}"
        self._discard()
        to = "restarts from scratch" if self._good is None else f"goes back to tick {self._good[1]['learner']['t']}"
        return Outcome((), f"{reason}{at}: training {to}")

    def forget(self) -> None:
        """Give up everything that was learned."""
        self._good, self.ticks = None, 0
        self._discard()

    def sums_step(self, model: Floats, scale: bytes) -> Callable[[], Floats] | None:
        """Return a step that computes this node's sums for a certificate of a model; None if that is not possible."""
        if self._parts is None or scale != self.scale_digest or not self._parts.learner.run.certifiable:
            return None
        return partial(self._parts.learner.sums, model)

    def _discard(self) -> None:
        self._parts, self.measures, self.test_accuracy, self.blocked = None, None, None, ()
        self.edge_names, self._edges_changed = frozenset(), True
        self._inbox.clear()

    def _enter(self, parts: steps.Parts) -> None:
        incarnations = {} if self._good is None else self._good[1]["incarnations"]
        self._inbox.restore({int(number): int(one) for number, one in incarnations.items()})
        self._parts, self._former, self._edges_changed = parts, None, True
        self.ticks = parts.learner.t

    # Models

    @property
    def ready(self) -> bool:
        """Whether there is a learner."""
        return self._parts is not None

    @property
    def withheld(self) -> int:
        """How many vectors the release filter kept back."""
        return 0 if self._parts is None else self._parts.filter.suppressed

    def model(self) -> Floats | None:
        """Return a copy of the model, outputs x width.

        None if there is no learner, or if its last neighbour is gone and it has not solved its own problem yet.
        """
        if self._parts is None or self._parts.learner.isolated:
            return None
        return self._parts.learner.model()

    def neighbour_models(self) -> list[tuple[str, Floats]]:
        """Return estimates of the neighbours' models, as far as their pushes tell."""
        found = []
        if self._parts is not None:
            learner, last_sent = self._parts.learner, self._parts.filter.last_sent
            for number, name in self._edges.names.items():
                heard = self._inbox.heard.get(number)
                if heard is not None:
                    model = learner.estimate_neighbour_model(heard.last, heard.previous, last_sent(number))
                    if model is not None:
                        found.append((name, model))
        return found

    def gap_share(self) -> float:
        """Return this node's share of the duality gap; -1 if an edge was not used in both directions yet."""
        if self._parts is None or self.measures is None or self._parts.learner.isolated:
            return -1.0
        last_sent, heard = self._parts.filter.last_sent, self._inbox.heard
        if all(number in heard and last_sent(number) is not None for number in self._edges.names):
            return self.measures.slack
        return -1.0

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

    # Snapshots

    def snapshot(self) -> tuple[session_state.Arrays, dict[str, Any]]:
        """Return arrays and JSON values from which `restore` continues.

        While a step runs, or if the weights are not finite, the learner is that of the snapshot before.
        """
        statistics: tuple[session_state.Arrays, dict[str, Any]] = {}, {}
        if self.study.scaling != "none" and self.scale is not None:
            statistics = session_state.pack_statistics(self.statistics())
        if self._parts is not None and not self._is_stepping:
            arrays, learner = self._parts.learner.state()
            own = session_state.with_prefix("learner", arrays)
            own |= session_state.with_prefix("filter", self._parts.filter.state())
            if not session_state.not_finite(own):
                incarnations = self._inbox.incarnations_of(arrays["neighbours"].tolist())
                self._good = own, {"learner": learner, "incarnations": incarnations, "edges": sorted(self.edge_names)}
        own, learned = ({}, _NOT_LEARNED) if self._good is None else self._good
        about = {
            "format": session_state.FORMAT, "study": self.study.text(), "fingerprint": self._fingerprint,
            "scale": self._scaling.digest.hex(), "statistics": statistics[1], **learned,
        }  # fmt: skip
        return statistics[0] | own, about

    def restore(self, arrays: Mapping[str, Any], about: Mapping[str, Any]) -> list[str]:
        """Continue from a snapshot, before the first step; return warnings. ValueError: it does not belong here."""
        try:
            if not session_state.check_snapshot(self.study, self._fingerprint, arrays, about):
                return []
            if about["statistics"]:
                self._scaling.hear(session_state.unpack_statistics(arrays, about["statistics"]))
            if about["learner"] is None:
                return []
            if about["scale"] != self._scaling.digest.hex():
                return ["the feature scaling differs from the snapshot: training restarts from scratch"]
            kept = {name: np.array(array) for name, array in arrays.items() if name.startswith(("learner.", "filter."))}
            self._good = kept, {name: about[name] for name in _NOT_LEARNED}
            self.ticks, self.edge_names = int(about["learner"]["t"]), frozenset(map(str, about["edges"]))
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"the state is damaged ({error!r}): start anew with --fresh") from error
        return []

    @cached_property
    def _fingerprint(self) -> str:
        return self.site.fingerprint()
