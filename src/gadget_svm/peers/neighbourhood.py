"""Who is there, who is a neighbour, and on which link: membership, overlay, discovery, links and edges put together.

Owns greetings, heartbeats, and when `discovery` is asked whom to dial. Knows no learner: the node reads `edges.counted`
and the links that are ready.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from gadget_svm.peers.edges import EdgeTable
from gadget_svm.peers.issues import IssueTable
from gadget_svm.peers.links import Link, LinkTable
from gadget_svm.peers.membership.discovery import Discovery
from gadget_svm.peers.membership.failure_detector import FailureDetector
from gadget_svm.peers.membership.member import Member, State
from gadget_svm.peers.membership.overlay import Overlay
from gadget_svm.peers.outbox import Outbox
from gadget_svm.peers.reachability import Reachability
from gadget_svm.peers.refusals import Refusals
from gadget_svm.peers.settings import NodeSettings
from gadget_svm.peers.wire.limits import printable
from gadget_svm.peers.wire.messages import Heartbeat, Hello, Leave, Refusal, RefusalReason
from gadget_svm.study.study import Study

VIEW_LINES, RESTING_VIEW_LINES, NEWS_LINES = 8, 2, 32
"""Members in a heartbeat: usually, at rest if all members are linked, and while there is news of many."""
SPREAD = 16
"""Beats reach n members, each of which hears L entries per second, in about 8 n / L seconds. Twice that, because at
rest every second heartbeat is left out."""
UNUSED_LINK_HEARTBEATS = 5
"""A link on which neither end wants an edge is closed after so many heartbeats."""
DETECTION_HEARTBEATS = 3
PATIENCE_S = 20.0
"""For so long after the first dial that nobody answered, it is no warning: sites are not started at the same moment."""
NAME_CONFLICT_S = 600.0
"""For so long after another process was last outbid for this peer's name, the conflict is an issue."""
UNREACHABLE_ADVICE = (
    ". Check the address, the firewall and whether that peer runs. If the study has ended there, copy "
    "model.safetensors from another site, or start one peer there again without --until certified"
)
NOT_THERE = ("refused", "timed out", "no answer")
"""What a dial says if nobody listens there."""


class Neighbourhood:
    """The part of a node that deals with other peers as such."""

    def __init__(
        self, settings: NodeSettings, study: Study, me: Member, rng: random.Random, out: Outbox, issues: IssueTable
    ) -> None:
        self.settings, self.study, self.rng, self.out, self.issues = settings, study, rng, out, issues
        self.name = settings.name
        beat = settings.heartbeat
        spread = SPREAD * beat / (study.degree * VIEW_LINES)
        self.detector = FailureDetector(
            me, suspect=settings.suspect, dead=settings.dead, spread=spread, limit=settings.max_members
        )
        self.table = self.detector.table
        self._overlay = Overlay(self.table, study.degree)
        self.discovery = Discovery(settings.join, settings.address)
        self.links = LinkTable(self.name)
        detection = max(DETECTION_HEARTBEATS * beat, settings.suspect)
        self.edges = EdgeTable(study.degree, detection, settings.suspect + settings.dead + 3 * beat)
        self.refusals = Refusals(self.name, study, self.detector, issues)
        self.reachability = Reachability(settings, self.detector, self.links, out, issues)
        self.agreed = False  # whether any peer had the same study
        self.at_rest = False
        self._text, self._digest = study.text(), study.digest
        self._heartbeats = 0
        self._is_quiet = False
        self._last_beat = -inf
        self._outbid: float | None = None  # when another process was last outbid for this peer's name
        self._alone_since: float | None = None  # the first failed dial of a peer without links

    def begin(self, incarnation: int) -> None:
        """Begin a life with this incarnation."""
        has_address = bool(self.settings.address) and self.settings.reachable is not False
        self.table.me = replace(self.detector.me, incarnation=incarnation, reachable=has_address)

    # Links

    def link_up(self, number: int, identity: str, dialled: str | None, now: float) -> None:
        """Greet whoever is at the other end."""
        self.links.open(number, identity, dialled, now)
        me = self.detector.me
        hello = Hello(
            self.name, me.incarnation, self._text, self._digest, self.settings.address, self.settings.float32,
            self.detector.view(VIEW_LINES, self.rng),
        )  # fmt: skip
        self.out.send(number, hello)
        if dialled is None and identity != self.name:
            self.reachability.was_dialled()

    def link_down(self, number: int, reason: str, now: float) -> None:
        """Note a closed link, and dial again if it is needed."""
        link = self.links.close(number)
        if link is None:
            return
        self.out.log("debug", "link closed", peer=link.name, reason=reason)
        if link.dialled is not None and not link.ready:
            self.discovery.failed(link.dialled)
        if self.links.ready(link.name) is None and link.ready:
            self.edges.lose(link.name, now)
            self.dial(now)

    def dial_failed(self, address: str, reason: str, now: float) -> None:
        """Note that an address did not answer."""
        names = [line.name for line in self.present() if line.address == address]
        self.discovery.failed(address)
        self.reachability.dial_failed(names)
        if self.links.names:
            return
        self._alone_since = now if self._alone_since is None else self._alone_since
        if now - self._alone_since < PATIENCE_S and any(words in reason for words in NOT_THERE):
            text = f"waiting for a peer to answer at {address}; it is dialled again and again"
            self.issues.report("join", text, now, "info")
            return
        advice = "" if "certificate" in reason or "TLS" in reason else UNREACHABLE_ADVICE
        self.issues.report("join", f"cannot reach {address}: {reason}{advice}", now)

    def hello(self, link: Link, hello: Hello, now: float) -> bool:
        """Handle the first message of the other end; return whether the link is ready now."""
        if hello.name == link.name == self.name:
            if hello.incarnation != self.detector.me.incarnation:
                self._learn(hello.members[:1], self.name)
            self.discovery.connected(link.dialled or "", self.name, now)
            self._close(link, "this is the same peer")
            return False
        if (refusal := self.refusals.judge(link, hello)) is not None:
            self.out.send(link.number, refusal)
            self.refusals.by_us(link, refusal, now)
            self._close_refused(link)
            return False
        self.agreed, self._alone_since = True, None
        if (second := self.links.accept(link, hello)) is not None:
            self._close(second, "second link")
            if second is link:
                self.reachability.linked(link)
                return False
        if link.dialled is not None:
            self.reachability.linked(link)
            self.discovery.connected(link.dialled, link.name, now)
        self.issues.resolve("join", "study")
        self.detector.spoke(link.name, hello.incarnation)
        self._learn(hello.members, link.name)
        self._choose()
        self.heartbeat(link)
        return True

    def refused_by(self, link: Link, refusal: Refusal, now: float) -> None:
        """Handle the other end's refusal of this node's hello."""
        if refusal.reason == RefusalReason.INCARNATION:
            self._learn(refusal.members, link.name)
        self.refusals.by_them(link, refusal, now)
        self._close_refused(link)

    def left(self, link: Link, leave: Leave) -> None:
        """Handle the goodbye of the other end."""
        self.detector.leave(link.name, leave.incarnation)
        self.edges.forget(link.name)
        self._close(link, "the other end leaves")

    # Heartbeats

    def heartbeat(self, link: Link, lines: int = 1) -> None:
        """Send a heartbeat on a link, with so many entries of members; by default only this node's own."""
        self._heartbeats += 1
        me = self.detector.me
        hello = link.hello
        assert hello is not None
        self.out.send(
            link.number,
            Heartbeat(
                self._heartbeats, me.incarnation, hello.incarnation, self.edges.state(link.name),
                self.detector.view(lines, self.rng), self.reachability.cannot_dial(link.name),
                link.name in self.edges.chosen,
            ),
        )  # fmt: skip

    def heard(self, link: Link, beat: Heartbeat, now: float) -> None:
        """Handle a heartbeat. An old one says nothing."""
        if beat.number <= link.last_heartbeat or not self.detector.accept(link.name, beat.incarnation):
            return
        link.last_heartbeat = beat.number
        if link.hello is not None and beat.incarnation > link.hello.incarnation:  # it outbid a rumour
            link.hello = replace(link.hello, incarnation=beat.incarnation)
        self.detector.spoke(link.name, beat.incarnation)
        self._learn(beat.members, link.name)
        names_me = beat.receiver_incarnation == self.detector.me.incarnation
        if beat.dial_failed and names_me:
            self.reachability.was_not_reached(link.name, now)
        if self.edges.heard(link.name, beat.edge, beat.chosen, names_me, now):
            self.heartbeat(link)

    def beat(self, now: float, **own: Any) -> None:
        """Do what is due once per heartbeat; ``own`` are the fields of this node's entry.

        Raises `SupersededError` if another process has this name.
        """
        self.detector.beat(**own)
        gap = now - self._last_beat
        if 0 < gap - self.settings.heartbeat < inf and gap > self.settings.suspect:
            self.edges.forgive(gap)
        self._last_beat = now
        changes = self.detector.tick(now)
        self.out.muted |= changes.raised is not None  # the new incarnation has to be on disk first
        self._watch_name(changes.raised is not None, now)
        for name in changes.left:
            self.edges.forget(name)
            if (link := self.links.ready(name)) is not None:
                self._close(link, "the peer is gone")
        for name in changes.renewed:
            self.reachability.forget(name)
            self.edges.pardon(name)
        if changes.impostor is not None and changes.impostor.address not in ("", self.settings.address):
            self.out.dial(changes.impostor.address, None)
        if changes.joined or changes.left:
            dead = [name for name in changes.left if self.table.get(name).state == State.DEAD]
            self.out.log("info", "members", joined=changes.joined, left=changes.left)
            if dead:
                self.out.log("warning", "not heard any more", peers=dead)
        self._choose()
        self._report_refused_edges(now)
        self.edges.expire(now)
        self._close_unused(now)
        self.dial(now)
        knows_all = self.at_rest and len(self.links.names) == len(self.table.present())
        lines = NEWS_LINES if self.detector.has_news else RESTING_VIEW_LINES if knows_all else VIEW_LINES
        self._is_quiet = self.at_rest and not self._is_quiet and self.settings.suspect > 4 * self.settings.heartbeat
        if not self._is_quiet:  # at rest every second heartbeat is enough, if `suspect` is longer than four of them
            for link in self.links.all_ready():
                self.heartbeat(link, lines)

    def dial(self, now: float) -> None:
        """Dial the peers to which a link is missing. Possible neighbours that only others have mentioned come first."""
        overlay = self._overlay.choice()
        wanted = overlay.to_verify | self.edges.chosen
        for address, name in self.discovery.due(now, self.detector, self.links.names, wanted, self.rng):
            self.out.dial(address, name)
        self.reachability.dial_back()
        if not overlay.any_reachable:
            self.reachability.no_site_is_reachable(now)

    def refuse_edge(self, link: Link, reason: str) -> None:
        """Give up an edge whose other end sends what no honest peer would, until that peer restarts."""
        self.refusals.count("implausible", reason)
        self.edges.refuse(link.name, reason)
        self.heartbeat(link)

    def leave(self, reason: str) -> None:
        """Say goodbye and close all links."""
        for link in self.links.all_open():
            if link.ready:
                self.out.send(link.number, Leave(self.detector.me.incarnation, printable(reason)))
            self._close(link, "leaving")

    def confirm(self, certified: str) -> None:
        """Tell the neighbours which certificate's model is on disk here."""
        self.detector.beat(certified=certified)
        for link in self.links.all_ready():
            self.heartbeat(link)

    # For the node

    def present(self) -> list[Member]:
        """Return the entries of all who are present, this node included, by name."""
        return [self.table.get(name) for name in self.table.alive()]

    def everyone(self) -> list[Member]:
        """Return all entries, also those of members that are gone."""
        return [self.table.me, *(record.entry for record in self.table.records.values())]

    def snapshot(self, now: float) -> dict[str, Any]:
        """Return what to remember of others over a restart."""
        return {
            "known": self.table.incarnations(), "edges": sorted(self.edges.counted(now)),
            "addresses": {line.name: line.address for line in self.present() if line.address},
        }  # fmt: skip

    def restore(self, about: Mapping[str, Any], now: float) -> None:
        """Remember others as they were before a restart; edges of the learner are retained for a while."""
        self.edges.restore(about["edges"], now)
        for name, incarnation in about["known"].items():
            self.detector.remember(name, incarnation)
        self.discovery.remember(about["addresses"])

    def status(self, now: float) -> dict[str, Any]:
        """Return members, links and neighbours as plain values."""
        states = self.table.states()
        counts = {state.name.lower(): states[state] for state in State}
        dead = sorted(name for name in self.table.gone if self.table.get(name).state == State.DEAD)
        return {
            "reachable": self.detector.me.reachable,
            "members": counts | {"alive": counts["alive"] + 1},
            "dead": dead,
            "neighbours": [self._neighbour(name, now) for name in sorted(self.edges.wanted_names())],
            "links": [
                {"name": link.name, "opened_by": _opener(link), "address": link.dialled}
                for link in self.links.all_ready()
            ],
            "refused": dict(self.refusals.counts), "last_refusals": list(self.refusals.last),
        }  # fmt: skip

    def _neighbour(self, name: str, now: float) -> dict[str, Any]:
        link, line = self.links.ready(name), self.table.known(name)
        return {
            "name": name, "address": line.address if line else "", "edge": self.edges.state(name).name.lower(),
            "opened_by": None if link is None else _opener(link),
            "last_heard": None if link is None else now - link.heard,
            "pushes_sent": link.sent if link else 0, "pushes_received": link.received if link else 0,
            "objective": line.objective if line else None,
        }  # fmt: skip

    # Inside

    def _learn(self, members: tuple[Member, ...], speaker: str) -> None:
        for line in members:
            self.detector.hear(line, direct=line.name == speaker)

    def _choose(self) -> None:
        for name in self.edges.choose(self._overlay.choice().chosen):
            link = self.links.ready(name)
            if link is not None:
                self.heartbeat(link)

    def _watch_name(self, outbids: bool, now: float) -> None:
        """Report that another process has this name. Once may be a rumour of an earlier life of this peer."""
        if outbids and self._outbid is not None:
            text = (
                f"another process runs as {self.name!r}, or a site says so, and neither one can dial the other: they "
                "take the links from each other. Stop one; give every peer its own name, certificate and state folder"
            )
            self.issues.report("name", text, now)
        elif self._outbid is not None and now - self._outbid > NAME_CONFLICT_S:
            self.issues.resolve("name")
        self._outbid = now if outbids else self._outbid

    def _report_refused_edges(self, now: float) -> None:
        if reasons := [self.edges.refused[name] for name in sorted(self.edges.refused) if self.table.is_present(name)]:
            fix = "no honest peer of this study does; the edge is down until that peer restarts"
            self.issues.report("neighbours", f"{'; '.join(reasons)}: {fix}", now)
        else:
            self.issues.resolve("neighbours")

    def _close_unused(self, now: float) -> None:
        oldest = now - UNUSED_LINK_HEARTBEATS * self.settings.heartbeat
        for link in self.links.all_open():
            if link.opened < oldest and (
                not link.ready or (link.dialled is not None and not self.edges.wanted(link.name))
            ):
                self._close(link, "no longer needed" if link.ready else "no hello")

    def _close(self, link: Link, reason: str) -> None:
        self.links.close(link.number)
        self.out.hang_up(link.number, reason)

    def _close_refused(self, link: Link) -> None:
        if link.dialled is not None:
            self.discovery.failed(link.dialled)
        self._close(link, "refused")


def _opener(link: Link) -> str:
    return "them" if link.dialled is None else "us"
