"""A training session: the learner of one node, what waits for it, and what may leave it. Pure; a host runs its steps.

Owns when a learner is built, what a step works on, and what becomes of its result. `trainer` owns what happens in a
step. A step works on what `TrainingSession.next_step` collected, so messages and changes of edges may come in while it
runs.
"""

from collections.abc import Callable, Collection, Mapping
from functools import cached_property, partial
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.types import Floats
from gadget_svm.peers.membership.overlay import node_id
from gadget_svm.peers.storage.snapshot import Part
from gadget_svm.peers.training.inbox import Inbox
from gadget_svm.peers.training.learner import Measures
from gadget_svm.peers.training.private_learner import PrivateLearner
from gadget_svm.peers.training.scale import Scale
from gadget_svm.peers.training.scale_agreement import ScaleAgreement
from gadget_svm.peers.training.site import Site
from gadget_svm.peers.training.trainer import Sent, TickInput, Trainer
from gadget_svm.peers.wire import codec
from gadget_svm.peers.wire.limits import Limits
from gadget_svm.peers.wire.messages import Push, Statistics
from gadget_svm.study.study import Study, differences

FORMAT = 2
FRESH = "or start anew with --fresh, which sets the state aside"
REPEAT_CALLS = 5
"""A private node waits for its neighbours' vectors of the round. After so many calls of `next_step` it sends its own
again: one of them may have been lost."""
ANSWER_TICKS = 15
"""A GADGET node sends to a neighbour again after a push came back, so that a slow edge carries no more than it can: a
node whose mass is late drifts away. A push may be lost, so after so many ticks the node sends all the same."""


class TrainingSession:
    """The learning of one node.

    While a step runs, call neither `next_step` nor `snapshot`.
    """

    def __init__(self, study: Study, site: Site, name: str, seed: int, *, noise: str = "secret") -> None:
        self.study, self.site, self.name, self.seed = study, site, name, seed
        self.rows = float(site.X.shape[0])
        self.ticks = 0
        self.edge_names: frozenset[str] = frozenset()  # in the learner
        self.name_clashes: list[str] = []  # neighbours without an edge, because another one has the same number
        self.measures: Measures | None = None
        self._limits, self._scaling, self._inbox = Limits.of(study), ScaleAgreement(study, name, site.X), Inbox({})
        self._wanted: dict[int, str] = {}  # the edges that the learner shall have: numbers and names
        self._trainer: Trainer | None = None
        self._former: Trainer | None = None  # after a failure or with another scale: what the next one replaces
        self._good: Part | None = None  # the last snapshot of a learner
        self._asked_at: dict[int, int] = {}  # GADGET: neighbours that have not answered, and since which call
        self._calls = 0  # of `next_step`
        self._noise = noise
        self.reserved = 0  # rounds of a private study that the ledger has: no others are released
        self.rounds_done = 0  # of a private study
        self.held = ""  # why nothing may be released at present

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
        before = self.scale_digest
        new = self._scaling.hear(heard)
        if self.scale_digest != before:
            self._former = self._trainer or self._former
            self._good, self.ticks = None, 0
            self._discard()
        return new

    # Edges and pushes

    def set_edges(self, names: Collection[str]) -> None:
        """From the next tick on, the learner has edges to these; of names with one number, only to the first."""
        before, own = self._wanted, node_id(self.name)
        self._wanted = {node_id(name): name for name in sorted(names, reverse=True) if node_id(name) != own}
        self.name_clashes = sorted({*names}.difference(self._wanted.values()))
        for number, name in before.items():
            if self._wanted.get(number) != name:
                self._inbox.forget(number)
                self._asked_at.pop(number, None)

    def is_plausible(self, push: Push) -> bool:
        """Return whether an honest neighbour may have sent a push of this scale."""
        if self._trainer is None or push.scale != self.scale_digest:
            return True  # it is not used
        return self._trainer.learner.is_plausible(push.weight, push.seq)

    def receive(self, name: str, push: Push) -> bool:
        """Keep a push for the next tick; return False if it is old or not usable."""
        number = node_id(name)
        if self._trainer is None or self._wanted.get(number) != name or push.scale != self.scale_digest:
            return False
        if not self._inbox.put(number, push):
            return False
        self._asked_at.pop(number, None)
        return True

    # Steps

    def next_step(self, open_to: Collection[str], measure: bool) -> Callable[[], Any] | None:
        """Return what to run next, or None if there is nothing to do; pass its result to `finish`."""
        if self.scale is None:
            return None
        if self._trainer is None:
            return partial(
                Trainer, self.study, self.site, node_id(self.name), self.seed, self.scale,
                self._good, self._former, self._noise, self.reserved,
            )  # fmt: skip
        wanted = dict(self._wanted)
        open_numbers = {number for number, name in wanted.items() if name in open_to}
        if self.study.is_private:
            return self._private_step(self._trainer, wanted, open_numbers)
        if self.study.algorithm == "gadget":
            self._calls += 1
            late = self._calls - ANSWER_TICKS
            open_numbers = {number for number in open_numbers if self._asked_at.get(number, -inf) <= late}
            if wanted and not open_numbers and self.edge_names == {*wanted.values()}:
                return None
        near = self.neighbour_models() if measure else None
        messages, restarted = self._inbox.take()
        return partial(self._trainer.tick, TickInput(wanted, restarted, open_numbers, messages, near))

    @property
    def needs_rounds(self) -> bool:
        """Whether the next round of a private study has to be reserved."""
        planned = self.study.rounds or 0
        return self._trainer is not None and not self.held and self.reserved <= self.rounds_done < planned

    def _private_step(
        self, trainer: Trainer, wanted: Mapping[int, str], open_numbers: Collection[int]
    ) -> Callable[[], Any] | None:
        """Return the next round, when the vectors of all neighbours are here, or what repeats the last vector.

        A neighbour that is away for a short time is waited for: without it the others would spend their rounds.
        """
        assert isinstance(trainer.learner, PrivateLearner)
        seq, is_alone = trainer.learner.seq, max(len(self.study.sites), self.study.min_sites) == 1
        is_complete = len(open_numbers) == len(wanted) and (len(wanted) > 0 or is_alone)
        if self.held or self.needs_rounds or not is_complete:
            return None
        is_late = any(self._inbox.newest(number) < seq for number in open_numbers)
        self._calls = self._calls + 1 if is_late else 0
        if self._calls % REPEAT_CALLS:
            return None
        _, restarted = self._inbox.take()
        found = (self._inbox.of_round(number, seq) for number in sorted(wanted))
        messages = [message for message in found if message is not None]
        given = TickInput(wanted, restarted, open_numbers, messages, None, self.reserved, repeats=is_late)
        return partial(trainer.tick, given)

    def finish(self, result: Any) -> tuple[Sent, ...]:
        """Take over the result of a step; return the pushes to send."""
        if result.scale is not self.scale:
            return ()
        if isinstance(result, Trainer):
            self._trainer, self._former, self.ticks = result, None, result.learner.t
            if isinstance(result.learner, PrivateLearner):
                self.rounds_done = result.learner.rounds
            known = {} if self._good is None else self._good[1]["incarnations"]
            self._inbox = Inbox({int(number): incarnation for number, incarnation in known.items()})
            return ()
        self.ticks, self.edge_names, self.rounds_done = self.ticks + 1, result.edges, result.rounds
        self.measures = result.measures or self.measures
        self._asked_at.update({node_id(name): self._calls for name, *_ in result.sent})
        sent: tuple[Sent, ...] = result.sent
        return sent

    def abort(self, reason: str) -> str:
        """Give up a step that failed: the next one builds a learner from the last snapshot, or from scratch."""
        at = ""
        if self._trainer is None:
            self._good = None  # it is of no use
        else:
            self._former, at = self._trainer, f" at tick {self._trainer.learner.t}"
        self._discard()
        to = "restarts from scratch" if self._good is None else f"goes back to tick {self._good[1]['learner']['t']}"
        return f"{reason}{at}: training {to}"

    def forget(self) -> None:
        """Give up everything that was learned."""
        self._good, self._former, self.ticks = None, None, 0
        self._discard()

    def sums_step(self, model: Floats, scale: bytes) -> Callable[[], Floats] | None:
        """Return a step that computes this node's sums for a certificate of a model; None if that is not possible."""
        if self._trainer is None or scale != self.scale_digest or not self._trainer.learner.run.certifiable:
            return None
        return partial(self._trainer.learner.sums, model)

    def _discard(self) -> None:
        self._trainer, self.measures, self.edge_names, self._inbox = None, None, frozenset(), Inbox({})

    # Models

    @property
    def ready(self) -> bool:
        """Whether there is a learner."""
        return self._trainer is not None

    def model(self) -> Floats | None:
        """Return a copy of the model, outputs x width.

        None if there is no learner, or if its last neighbour is gone and it has not solved its own problem yet.
        """
        if self._trainer is None or not self._trainer.learner.has_model:
            return None
        return self._trainer.learner.model()

    def neighbour_models(self) -> list[Floats]:
        """Return estimates of the neighbours' models, as far as their pushes tell."""
        if self._trainer is None:
            return []
        learner, last_sent, heard = self._trainer.learner, self._trainer.last_sent, self._inbox.heard
        known = [(heard[number], last_sent.get(number)) for number in self._wanted if number in heard]
        found = (learner.estimate_neighbour_model(each.last, each.previous, sent) for each, sent in known)
        return [model for model in found if model is not None]

    def gap_share(self) -> float:
        """Return this node's share of the duality gap; -1 if an edge was not used in both directions yet."""
        if self._trainer is None or self.measures is None or self._trainer.learner.isolated:
            return -1.0
        last_sent, heard = self._trainer.last_sent, self._inbox.heard
        if all(number in heard and number in last_sent for number in self._wanted):
            return self.measures.slack
        return -1.0

    # Snapshots

    def snapshot(self) -> Part:
        """Return what `restore` continues from. If the weights are not finite, that is the learner before."""
        statistics: dict[str, NDArray[Any]] = {}
        if self.study.scaling != "none" and self.scale is not None:
            statistics["statistics"] = np.frombuffer(codec.encode(self.statistics(), self._limits), dtype=np.uint8)
        if self._trainer is not None and self.ticks:
            state, learner = self._trainer.learner.state()
            arrays = {name: np.array(array) for name, array in state.items()}
            if not _not_finite(arrays):
                known = self._inbox.incarnations
                incarnations = {
                    str(number): known[number] for number in state["neighbours"].tolist() if number in known
                }
                self._good = arrays, {"learner": learner, "incarnations": incarnations}
        own, learned = self._good or ({}, {})
        about = {
            "format": FORMAT, "study": self.study.text(), "fingerprint": self._fingerprint,
            "scale": self.scale_digest.hex(),
        }  # fmt: skip
        return {**statistics, **own}, {**about, **learned}

    def restore(self, part: Part) -> list[str]:
        """Continue from a snapshot, before the first step; return warnings. ValueError: it does not belong here."""
        arrays, about = part
        try:
            if about.get("format") != FORMAT:
                raise ValueError(f"the state is of another version of gadget-svm: install that one, {FRESH}")
            if not arrays:  # such as of a node that was refused because of its study
                return []
            self._check(part)
            if "statistics" in arrays:
                self.hear_statistics(codec.decode(arrays["statistics"].tobytes(), self._limits))  # type: ignore[arg-type]
            if "learner" not in about:
                return []
            if about["scale"] != self.scale_digest.hex():
                return ["the feature scaling differs from the snapshot: training restarts from scratch"]
            kept = {name: np.array(array) for name, array in arrays.items() if name != "statistics"}
            self._good = kept, {"learner": about["learner"], "incarnations": about["incarnations"]}
            self.ticks = int(about["learner"]["t"])
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"the state is damaged ({error!r}): start anew with --fresh") from error
        return []

    def _check(self, part: Part) -> None:
        arrays, about = part
        if about["study"] != self.study.text():
            found = differences(self.study, Study.parse(about["study"]), "study.toml", "the state")
            raise ValueError(f"the state is of another study: {'; '.join(found)}; {FRESH}")
        if about["fingerprint"] != self._fingerprint:
            raise ValueError(
                "the rows have changed since the state was saved, and what was learned belongs to the old ones: put "
                f"the old file back, {FRESH}"
            )
        if spoilt := _not_finite(arrays):
            raise ValueError(f"the state is not finite ({spoilt}): use an older one, {FRESH}")
        if self.study.is_private and "steps" in arrays and int(arrays["steps"][0]) > self.reserved:
            raise ValueError(
                f"the privacy ledger has {self.reserved} rounds of this study, and the state {arrays['steps'][0]}: the "
                "ledger is an older copy, or another one; put back the one that belongs to these rows"
            )

    @cached_property
    def _fingerprint(self) -> str:
        return self.site.fingerprint()


def _not_finite(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the names of the arrays that hold anything but finite numbers."""
    return ", ".join(name for name, array in arrays.items() if array.dtype.kind == "f" and not np.isfinite(array).all())
