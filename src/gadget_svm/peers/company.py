"""Whom a peer knows and talks to: members, neighbours, letters. Knows of learning only that there is somebody to link.

Answers other peers (see `desk.Host`) and calls them (see `post.Caller`). What came by letter
is in the `mailbox`; what is learned, written and shown is `peer`'s.
"""

import asyncio
import logging
import math
import random
import time

import numpy as np
from numpy.typing import NDArray

from gadget_svm.peers.calls import Calls
from gadget_svm.peers.charter import Charter, disagreements
from gadget_svm.peers.config import PeerConfig
from gadget_svm.peers.discretion import Discretion
from gadget_svm.peers.identity import Identity, Verifier
from gadget_svm.peers.learner import Learner, Parcel
from gadget_svm.peers.legacies import Legacies
from gadget_svm.peers.logs import fields
from gadget_svm.peers.mailbox import Mailbox
from gadget_svm.peers.member import Member, State
from gadget_svm.peers.membership import Membership
from gadget_svm.peers.messages import MEMBERS, Ack, Hello, HelloReply, Kept, Letter, Status, plain
from gadget_svm.peers.metrics import Metrics
from gadget_svm.peers.overlay import neighbours, node_id
from gadget_svm.peers.post import Contact, signed_reply

log = logging.getLogger(__name__)

VIEW = 8
"""Members that ride on a message."""
CROWD = 4
"""A peer lets itself be asked for by so many times the neighbours it wants itself, and no more."""
QUIET = 60.0
"""Seconds between two complaints about one thing in the log."""


class Company:
    """Members, neighbours and what was heard of them."""

    def __init__(self, config: PeerConfig, rows: float, charter: Charter, identity: Identity) -> None:
        self.config, self.charter, self.identity = config, charter, identity
        self.verifier = Verifier(identity, config.tls.revoked)
        self.name, self.address = config.peer.name, config.peer.address
        self.dimension, self.features = charter.dimension, charter.features
        self.metrics = Metrics()
        self.rows = rows
        self.members = self._membership(0)
        self.contacts: dict[str, Contact] = {}
        self.learner: Learner | None = None
        self.discretion: Discretion | None = None
        self.trouble: dict[str, str] = {}  # what is wrong, by what it is about
        self.started = time.monotonic()
        self.stopping = asyncio.Event()
        self._chosen: set[str] = set()
        self.absorbed: list[Parcel] = []  # what the learner took in last
        self.unsaved = False  # whether there is something that should not wait for the next checkpoint
        self.former: dict[str, str] = {}  # neighbours of before a restart, and where they were
        self.set_neighbours = True  # see `links_due`
        self._linked: dict[str, float] = {}  # since when somebody is a neighbour
        self._cut: dict[str, tuple[float, float]] = {}  # here by hearsay only: when to call, and the wait
        self._meetings = 0  # of the membership, when links were tended last
        self._told: dict[str, float] = {}  # when a view last went along with a letter, and with an answer
        self._answered: dict[str, float] = {}
        self._said: dict[str, tuple[str, float]] = {}
        self.rng = random.Random()
        self.mailbox = Mailbox()
        self.legacies = Legacies(lambda name: self.members.latest(name), self.verifier)
        self.calls = Calls(self)

    @property
    def ticks(self) -> int:
        """Steps of learning, those before a restart among them."""
        return 0 if self.learner is None else self.learner.t

    @property
    def run(self) -> bytes:
        """The run on the wire."""
        raise NotImplementedError

    def _membership(self, before: int) -> Membership:
        pace = self.config.pace
        me = Member(
            self.name, self.address, max(int(time.time()), before + 1), 1, State.ALIVE, rows=self.rows, slack=-1.0
        )
        return Membership(me, suspect=pace.suspect, dead=pace.dead, limit=self.config.limits.members)

    def drain(self) -> list[Parcel]:
        """What came since, of those with an edge here. Last letters come first and alone: see `held`."""
        held = frozenset() if self.learner is None else self.learner.kept
        return self.legacies.last_letters(held) or self.mailbox.take(self.contacts)

    def taken_in(self) -> None:
        """What last letters say that the learner has now is kept from here on, and to be saved soon."""
        self.unsaved |= self.legacies.taken_in(self.absorbed)
        self.absorbed = []

    def send(self, name: str, parcel: Parcel | None) -> None:
        """A letter to a neighbour: with weights, or a bare sign of life."""
        contact = self.contacts.get(name)
        if contact is not None:
            contact.post(self.letter_to(name, contact, parcel))

    def letter_to(self, name: str, contact: Contact, parcel: Parcel | None) -> Letter:
        """As it goes on the wire, with a part of the view now and then."""
        me, chosen = self.members.me, name in self._chosen
        seq, vector, weight, note = (0, None, 0.0, None) if parcel is None else parcel[1:]
        view = self._view_for(name, self._told)
        return Letter(
            self.run, self.name, me.incarnation, name, contact.incarnation, seq, self.ticks, vector, weight, note,
            chosen, view, kept=self.legacies.names if view else (),
        )  # fmt: skip

    def _view_for(self, name: str, told: dict[str, float]) -> tuple[Member, ...]:
        """A part of what is known of the members, a few times a heartbeat: more would tell little that is new."""
        now = time.monotonic()
        if now - told.get(name, -math.inf) < self.config.pace.heartbeat / 4:
            return ()
        told[name] = now
        return self.members.view(VIEW, self.rng)

    # Neighbours

    @property
    def links_due(self) -> bool:
        """Whether somebody came, went or changed its mind since links were tended."""
        return self.set_neighbours or self._meetings != self.members.meetings

    async def tend_links(self) -> None:
        """Between two ticks: gossip with whom the members now here make neighbours, and with those who ask for it.

        Only those who have spoken themselves are chosen. Those of before a restart have, if there is an edge to them.
        """
        assert self.learner is not None
        while self.mailbox.renewed:
            self.learner.reset_edge(node_id(self.mailbox.renewed.pop()))
        if not self.links_due:
            return
        self.set_neighbours, self._meetings = False, self.members.meetings
        met = set(self.members.met())
        here = {name: self.members.get(name).address for name in self.members.alive() if name != self.name}
        if self.former and time.monotonic() < self.started + self.config.pace.suspect + self.config.pace.dead:
            here = {**self.former, **here}  # just back: nobody was heard of yet, and nobody is given up
            met |= {name for name in self.former if node_id(name) in self.learner.neighbours}
        here = {name: address for name, address in here.items() if name not in self._cut}
        chosen = set(neighbours(self.name, met & here.keys(), self.config.learn.degree))
        asking = sorted(name for name in here.keys() - chosen if self._asks(name))
        wanted = chosen | set(asking[: CROWD * self.config.learn.degree])
        wanted -= self._doubles(wanted)
        self.changed_legacies(self.legacies.settle())
        self._chosen = chosen & wanted
        for name in [name for name, contact in self.contacts.items() if here.get(name) != contact.address]:
            await self.contacts.pop(name).close()
        for name in set(self.contacts) - wanted:
            await self.contacts.pop(name).close()
        for name in sorted(wanted - set(self.contacts)):
            self.contacts[name] = Contact(self, name, here[name], self._narrow)
            self._linked[name] = time.monotonic()
        self.learner.kept = self.legacies.numbers
        numbers = sorted({*map(node_id, wanted), *self.learner.kept})
        if numbers != sorted(self.learner.neighbours):
            self.learner.set_neighbours(numbers)
            if self.discretion is not None:
                self.discretion.forget(set(numbers))
            log.info("neighbours", extra=fields(names=sorted(wanted)))
        self.mailbox.forget(set(self.mailbox.heard) - set(here))
        for told in (self._told, self._answered, self._linked):
            for name in set(told) - set(here):
                del told[name]
        self.calls.to_strangers()

    def _asks(self, name: str) -> bool:
        return self.mailbox.asks(name, self.config.pace.suspect)

    def _doubles(self, wanted: set[str]) -> set[str]:
        """Names with the number of another: the later in the alphabet is left out."""
        owner: dict[int, str] = {node_id(self.name): self.name}
        left_out = {name for name in sorted(wanted) if owner.setdefault(node_id(name), name) != name}
        for name in left_out:
            self.complain("names", f"{name} has the node number of {owner[node_id(name)]}: rename one of them")
        return left_out

    @property
    def _narrow(self) -> bool:
        """Whether to offer float32: running sums grow, and need all their digits."""
        return self.config.learn.float32 and self.charter.algorithm == "pdmm"

    def watch_link(self, name: str, now: float) -> None:
        """An edge counts only while its ends hear each other, whatever third ones say: else it pulls for nothing."""
        if name not in self._chosen:
            self.set_neighbours |= not self._asks(name)
            return
        pace = self.config.pace
        heard = self.mailbox.heard.get(name)
        patience = pace.suspect + pace.dead + 3 * pace.heartbeat  # the dead are gone first
        if now - max(self._linked.get(name, now), heard.at if heard else -math.inf) > patience:
            wait = 2 * self._cut[name][1] if name in self._cut else patience
            self._cut[name], self.set_neighbours = (now + wait, min(wait, 30 * patience)), True
            if not self.identity.expired:  # else nobody writes, and it is known why
                self.complain("links", f"{name} is said to be here, but sends no letter: can it reach {self.address}?")

    def _mend(self, name: str) -> None:
        """Somebody believed to be out of reach was heard."""
        if self._cut.pop(name, None) is not None:
            self.set_neighbours = True
            if not self._cut:
                self.trouble.pop("links", None)

    def in_reach(self) -> set[str]:
        """Those who have spoken themselves, and whose letters arrive."""
        return set(self.members.met()) - self._cut.keys()

    async def look_for_the_cut(self) -> None:
        """Call those out of reach, each when it is time: who answers may be a neighbour again."""
        for name in [name for name, (due, _) in self._cut.items() if time.monotonic() >= due]:
            known = self.members.known(name)
            if known is None or known.state >= State.DEAD or await self.calls.to(known.address):
                self._mend(name)
            elif name in self._cut:
                self._cut[name] = (time.monotonic() + self._cut[name][1], self._cut[name][1])

    # What other peers say: see `desk.Host` and `post.Caller`

    def hello(self, nonce: bytes) -> Hello:
        """Who I am, and on what terms I learn."""
        return Hello(
            self.name, self.address, self.members.me.incarnation, nonce, self.charter.text(), self._narrow,
            self.members.view(VIEW, self.rng),
        )  # fmt: skip

    def greeted(self, hello: Hello, name: str) -> HelloReply:
        """A first contact: signed, and accepted if both learn the same."""
        objection = ""
        view: tuple[Member, ...] = (self.members.me,)
        try:
            differing = disagreements(self.charter, Charter.parse(hello.charter), self.name, name)
        except ValueError as error:
            differing = [str(error)]
        if differing:
            objection = "; ".join(differing)
            self.metrics.refuse("run")
            self.complain("terms", objection)
        elif not self.members.accept(name, hello.incarnation):
            objection = f"incarnation {hello.incarnation} of {name} is over"
            self.metrics.refuse("incarnation")
            known = self.members.known(name)
            view = (self.members.me,) if known is None or name == self.name else (self.members.me, known)
            if name == self.name:
                self.learn_of(hello.members, name)
        else:
            self.learn_of(hello.members, name)
            view, self.calls.agreed = self.members.view(VIEW, self.rng), True
        return signed_reply(
            self.identity, self.members.me, self.charter, hello, float32=self._narrow, members=view,
            objection=objection,
        )  # fmt: skip

    def learn_of(self, members: tuple[Member, ...], speaker: str) -> None:
        """Somebody's view; only what it says of itself is first-hand."""
        for member in members:
            self.members.hear(member, direct=member.name == speaker)
        if any(member.name == speaker for member in members):  # else it is no view, but what it says of some
            self.calls.strangers.named(speaker, filter(self.members.is_strange, members))
        self.set_neighbours |= self.legacies.outdated

    def received(self, letter: Letter, name: str) -> Ack:
        """A letter of this run, well-formed and in its sender's name."""
        me = self.members.me
        if self.stopping.is_set():
            return self._ack(name, Status.LEFT, f"{self.name} is leaving")
        if letter.receiver != self.name or letter.receiver_incarnation not in (0, me.incarnation):
            return self.misdirected(name, "incarnation", f"this is {self.name}, incarnation {me.incarnation}")
        if not self.members.accept(name, letter.incarnation):
            return self.misdirected(name, "incarnation", f"incarnation {letter.incarnation} of {name} is over")
        if letter.members:
            self.learn_of(letter.members, name)
        else:
            self.members.spoke(name, letter.incarnation)
        heard, first = self.mailbox.listen(name, letter.incarnation)
        self.set_neighbours |= first
        if name in self._cut:
            self._mend(name)
        if heard.wanted != letter.wanted:
            heard.wanted, self.set_neighbours = letter.wanted, True
        news = () if letter.last else self._compare(letter.kept, name)
        if letter.vector is None:
            return self._ack(name, Status.OK, news=news)
        if not self._sensible(letter):
            return self.misdirected(name, "garbage", "the weight or the note is not what this algorithm sends")
        if letter.seq <= heard.seq:
            self.metrics.refuse("sequence")
            return self._ack(name, Status.REPEATED, news=news)
        parcel = Parcel(node_id(name), letter.seq, letter.vector, letter.weight, letter.note)
        if letter.last and not self._inherits(letter, name, parcel):
            return self._ack(name, Status.REFUSED, f"{self.name} cannot keep what {name} has taught")
        self.mailbox.put(name, parcel, letter.last)
        self.metrics.messages_received.inc()
        return self._ack(name, Status.OK, news=news)

    # What those who left have taught: see `leaving`

    def _inherits(self, letter: Letter, name: str, parcel: Parcel) -> bool:
        """Somebody leaves: whether what it has taught stays here."""
        linked = self.learner is not None and node_id(name) in self.learner.neighbours
        if self.charter.algorithm != "pdmm" or not linked:
            return False
        inherits = self.legacies.inherit(name, letter.incarnation, letter.kept, parcel)
        if inherits:
            self.farewell(name, letter.incarnation)
        return inherits

    def changed_legacies(self, changed: bool) -> None:
        """Edges to those whose legacies were dropped end, and no restart brings them back."""
        self.set_neighbours |= changed
        self.unsaved |= changed

    def _compare(self, theirs: tuple[Kept, ...], name: str) -> tuple[Member, ...]:
        """Whom somebody else keeps; what it may not know of them. Of two who keep one, that with the smaller name does,
        unless it keeps us: it is about to drop that."""
        others = [each for each in theirs if each.name not in (self.name, name)]
        self.learn_of(tuple(Member(each.name, "", each.incarnation, 0, State.LEFT) for each in others), name)
        if name < self.name and self.name not in {each.name for each in theirs}:
            self.changed_legacies(self.legacies.give_way(theirs))
        lines = [(each, self.members.known(each.name)) for each in theirs]
        later = [line for each, line in lines if line is not None and line.incarnation > each.incarnation]
        return tuple(line for line in later if line.address or line.state >= State.DEAD)[: MEMBERS - VIEW]

    def farewell(self, name: str, incarnation: int) -> None:
        """Somebody itself said that it goes."""
        self.members.leave(name, incarnation)
        self.former.pop(name, None)
        self.set_neighbours = True  # who came and went between two ticks of the membership is in none of its changes

    def _sensible(self, letter: Letter) -> bool:
        if self.charter.algorithm == "pdmm":
            return letter.weight > 0.0 and letter.note is not None and letter.note >= 0.0
        return letter.note is None

    def misdirected(self, name: str, reason: str, text: str) -> Ack:
        """Not for us, or not as we are now: the sender should greet again."""
        if reason != "run":
            self.metrics.refuse(reason)
        status = {"run": Status.WRONG_RUN, "incarnation": Status.UNKNOWN}.get(reason, Status.MALFORMED)
        return self._ack(name, status, text)

    def handed(self, name: str, vector: NDArray[np.float64]) -> None:
        """Weights go out: the next are compared with them."""
        if self.discretion is not None:
            self.discretion.handed(node_id(name), vector)

    def delivered(self, name: str, size: int, seconds: float, ack: Ack) -> None:
        """A letter was answered."""
        if ack.status in (Status.OK, Status.REPEATED):
            self.metrics.messages_sent.inc()
            self.metrics.bytes_sent.inc(size)
            self.metrics.rtt.observe(seconds)
        self.members.heard(name, ack.incarnation, ack.beat)

    def failed(self, name: str, why: str) -> None:  # noqa: ARG002
        """A letter was not delivered."""
        self.metrics.send_failures.inc()

    def _ack(self, name: str, status: Status, text: str = "", news: tuple[Member, ...] = ()) -> Ack:
        me = self.members.me
        return Ack(status, me.incarnation, me.beat, plain(text), (*news, *self._view_for(name, self._answered)))

    def complain(self, about: str, text: str) -> None:
        """Say it once in a while, and keep it for the status."""
        before, when = self._said.get(about, ("", -math.inf))
        if text != before or about not in self.trouble:
            if time.monotonic() - when > QUIET or not before:
                log.warning(text, extra=fields(about=about))
                when = time.monotonic()
            self._said[about] = (text, when)
        self.trouble[about] = text
