"""How a peer leaves so that what its rows have taught stays: one neighbour keeps it, whole or not at all.

With PDMM the pull of a site's rows lies on its edges, a part on each. Were they all left as they are, the next one to
crash or to withdraw would take its part along, and what stays is the pull of no rows at all. So the leaver drops every
edge but one, which bears the whole from then on, and says so along it in a last letter. Who gets that is its heir and
leaves the edge as it is. Should the heir vanish the legacy goes with it: the others are at the optimum of their rows.

A legacy may hold those that the leaver kept itself. If one of these comes back it must not count twice, so the whole
legacy is dropped; if the leaver does, the edge goes on where it was.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gadget_svm.peers.logs import fields
from gadget_svm.peers.messages import KEPT, Malformed
from gadget_svm.peers.overlay import node_id
from gadget_svm.peers.post import Disagreement, Unreachable

if TYPE_CHECKING:
    from gadget_svm.peers.discretion import Discretion
    from gadget_svm.peers.identity import Verifier
    from gadget_svm.peers.learner import Learner, Parcel
    from gadget_svm.peers.peer import Peer

log = logging.getLogger(__name__)

HEIRS = 3
"""Neighbours that are asked, one after the other."""
TURNS = 32
"""Ticks in which a last letter has to come about."""


@dataclass(frozen=True)
class Legacy:
    """What is known of one who has left, and whose pull stays as it was then."""

    serial: int  # of the certificate it showed
    others: tuple[str, ...] = ()  # whose legacies are part of its own


def names_in(kept: Mapping[str, Legacy]) -> tuple[str, ...]:
    """Everybody who must not come back to a sum that holds them already."""
    return tuple(sorted({*kept, *(name for legacy in kept.values() for name in legacy.others)}))


def has_room(kept: Mapping[str, Legacy], others: Collection[str]) -> bool:
    """Whether one more fits, with what it holds: all of them travel on in one letter some day."""
    return len(names_in(kept)) + 1 + len(others) <= KEPT


def standing(kept: Mapping[str, Legacy], here: Collection[str], verifier: Verifier) -> dict[str, Legacy]:
    """The legacies that still count: not of those who are here again, nor of those whose certificate was revoked."""
    return {
        name: legacy
        for name, legacy in kept.items()
        if not {name, *legacy.others} & set(here) and not verifier.is_revoked(legacy.serial)
    }


async def hand_over(peer: Peer) -> str | None:
    """Leave what our rows have taught to a neighbour; to whom. The learner's state is that of having left."""
    learner = peer.learner
    if learner is None or peer.discretion is None or peer.charter.algorithm != "pdmm":
        return None
    _take_in(peer, learner)
    for name in _heirs(peer):
        arrays, about = learner.state()
        before = {key: np.array(value) for key, value in arrays.items()}
        try:
            if await _hand_to(peer, learner, peer.discretion, name):
                log.info("what our rows have taught stays", extra=fields(heir=name))
                return name
        except (Unreachable, Disagreement, Malformed) as error:
            log.info("no heir", extra=fields(asked=name, why=str(error)))
        learner.restore(before, about)
    return None


def _take_in(peer: Peer, learner: Learner) -> None:
    """A last letter that came while we were about to leave ourselves: it was answered, so it counts."""
    learner.kept = frozenset(map(node_id, peer.kept))
    last = [parcel for parcel in peer.drain() if parcel.other in learner.kept]
    if last:
        learner.solve()
        learner.absorb(last)


def _heirs(peer: Peer) -> list[str]:
    """Neighbours that answer, the last who did first."""
    since = time.monotonic() - peer.config.pace.suspect
    found = [name for name, each in peer.contacts.items() if each.answered > since and name not in peer.kept]
    return sorted(found, key=lambda name: -peer.contacts[name].answered)[:HEIRS]


async def _hand_to(peer: Peer, learner: Learner, discretion: Discretion, name: str) -> bool:
    contact, number = peer.contacts[name], node_id(name)
    learner.relink(sorted({number, *learner.kept}))
    parcel = await asyncio.to_thread(_last_word, learner, discretion, number)
    if parcel is None:
        return False
    letter = replace(peer.letter_to(name, contact, parcel), last=True, kept=names_in(peer.kept))
    return await contact.hand(letter)


def _last_word(learner: Learner, discretion: Discretion, number: int) -> Parcel | None:
    """A letter along the one edge, not the first after the last one, which would be half believed.

    None if all would say too much of a row: noise, as in other letters, would stay for good.
    """
    for turn in range(TURNS):
        said = [parcel._replace(vector=parcel.vector.copy()) for parcel in learner.solve() if parcel.other == number]
        learner.absorb([])
        if turn and said and discretion.allows(number, said[0].vector, learner.duals):
            return said[0]
    return None
