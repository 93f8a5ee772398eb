"""How a peer leaves so that what its rows have taught stays: one neighbour keeps it, whole or not at all.

With PDMM the pull of a site's rows lies on its edges, a part on each. Were they all left as they are, the next one to
crash or to withdraw would take its part along, and what stays is the pull of no rows at all. So the leaver drops every
edge but one, which bears the whole from then on, and says so along it in a last letter. Who gets that is its heir and
leaves the edge as it is. Should the heir vanish the legacy goes with it: the others are at the optimum of their rows.

What the heir has from then on, and until when: `legacies`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gadget_svm.peers.logs import fields
from gadget_svm.peers.messages import Malformed
from gadget_svm.peers.overlay import node_id
from gadget_svm.peers.post import Disagreement, Unreachable

if TYPE_CHECKING:
    from gadget_svm.peers.discretion import Discretion
    from gadget_svm.peers.learner import Learner, Parcel
    from gadget_svm.peers.peer import Peer

log = logging.getLogger(__name__)

HEIRS = 3
"""Neighbours that are asked, one after the other."""
TURNS = 32
"""Ticks in which a last letter has to come about. They bring no mail, so the weights come to rest: more do not help."""
NEAR = 0.01
"""How far, as a part of it, a last letter may be from the one that is sent again instead."""


async def hand_over(peer: Peer) -> str | None:
    """Leave what our rows have taught to a neighbour; to whom. The learner's state is that of having left."""
    learner = peer.learner
    if learner is None or peer.discretion is None or peer.charter.algorithm != "pdmm" or not peer.contacts:
        return None
    why: dict[str, str] = {}
    for name in _heirs(peer):
        arrays, about = learner.state()
        before = {key: np.array(value) for key, value in arrays.items()}
        try:
            why[name] = await _hand_to(peer, learner, peer.discretion, name)
            if not why[name]:
                log.info("what our rows have taught stays", extra=fields(heir=name))
                return name
        except (Unreachable, Disagreement, Malformed) as error:
            why[name] = str(error)
        learner.restore(before, about)
    said = "; ".join(f"{name}: {text}" for name, text in why.items()) or "no neighbour has answered of late"
    log.warning("what our rows have taught does not stay: nobody keeps it", extra=fields(why=said))
    return None


def take_in(peer: Peer) -> None:
    """A last letter that came while we were about to leave ourselves: it was answered, so it counts."""
    learner = peer.learner
    if learner is None:
        return
    peer.taken_in()  # of a tick whose end nobody waited for
    learner.kept = peer.legacies.numbers
    if peer.legacies.bequests:
        last = peer.drain()
        learner.solve()
        learner.absorb(last)
        peer.absorbed = last
        peer.taken_in()


def _heirs(peer: Peer) -> list[str]:
    """Neighbours that answer, the last who did first."""
    since = time.monotonic() - peer.config.pace.suspect
    found = [name for name, each in peer.contacts.items() if each.answered > since and name not in peer.legacies.kept]
    return sorted(found, key=lambda name: -peer.contacts[name].answered)[:HEIRS]


async def _hand_to(peer: Peer, learner: Learner, discretion: Discretion, name: str) -> str:
    """Empty if it keeps what we have taught, or why not."""
    contact, number = peer.contacts[name], node_id(name)
    learner.set_neighbours(sorted({number, *learner.kept}))
    parcel = await asyncio.to_thread(_last_word, learner, discretion, number)
    if parcel is None:
        return "every letter would have said too much of a row"
    letter = replace(peer.letter_to(name, contact, parcel), last=True, kept=peer.legacies.names)
    return "" if await contact.hand(letter) else contact.trouble or "it is busy"


def _last_word(learner: Learner, discretion: Discretion, number: int) -> Parcel | None:
    """A letter along the one edge. None if all would say too much of a row: new noise would stay for good.

    One with a single neighbour drops no edge, and if it has settled all of them say nearly what the last one sent did.
    The small change may well be that of one row. That one is sent again then: it is as good, and tells nothing new.
    """
    said: list[Parcel] = []
    for _ in range(TURNS):
        said = [parcel._replace(vector=parcel.vector.copy()) for parcel in learner.solve() if parcel.other == number]
        learner.absorb([])
        if said and discretion.allows(number, said[0].vector, learner.duals):
            return said[0]
    sent = discretion.sent(number)
    if said and sent is not None and np.linalg.norm(said[0].vector - sent) <= NEAR * np.linalg.norm(sent):
        return said[0]._replace(vector=sent)
    return None
