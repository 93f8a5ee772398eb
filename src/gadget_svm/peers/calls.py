"""Calls to those who should be here and are not: seeds, members that were lost, and those known by hearsay.

Owns whom to call, what is under way and whether anybody's terms were found to be ours. Any answer brings a view.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gadget_svm.peers.logs import fields
from gadget_svm.peers.post import Disagreement, Line, Unreachable, introduce
from gadget_svm.peers.seeds import Seeds
from gadget_svm.peers.strangers import Strangers

if TYPE_CHECKING:
    from gadget_svm.peers.company import Company

log = logging.getLogger(__name__)

AT_ONCE = 16
"""Calls at a time by somebody who is alone."""


class PeerError(ValueError):
    """Why a peer cannot start or go on, and what to do about it."""


class Calls:
    """Those of one peer."""

    def __init__(self, company: Company) -> None:
        config = company.config
        self.company = company
        self.seeds = Seeds(config.peer.join)
        self.agreed = False  # whether anybody's terms were found to be the same
        self.refused = False  # whether they were found to be other ones, when there was nobody else
        self.strangers = Strangers(company.name, config.learn.degree, config.pace.heartbeat)
        self.under_way: set[asyncio.Task[None]] = set()  # to strangers

    async def round(self) -> None:
        """One to somebody who is missed, or to some of them if nobody is here."""
        company, members = self.company, self.company.members
        here = {company.address, *(members.get(name).address for name in members.met())}
        missed = [member for member in (*members.doubtful(), *members.lost()) if member.address]
        rumoured = [(member.name, member.address) for member in missed if not members.has_met(member.name)]
        self.to_strangers(company.rng.sample(rumoured, min(1, len(rumoured))))
        met = [member.address for member in missed if members.has_met(member.name)]
        some = self.seeds.take(AT_ONCE if len(here) == 1 else 1, met, here)
        outcomes = await asyncio.gather(*map(self.to, some), return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if errors and (not any(outcome is True for outcome in outcomes) or not isinstance(errors[0], PeerError)):
            raise errors[0]  # one seed of other terms among several is their affair, if another one agrees

    async def to(self, address: str) -> bool:
        """Greet whoever is at an address; whether it answered and learns the same."""
        company = self.company
        line = Line(company.identity, address, company.dimension)
        try:
            await introduce(company, line)
            self.agreed = True
            company.trouble.pop("terms", None)
            company.trouble.pop("join", None)
            return True
        except Disagreement as error:
            company.complain("terms", str(error))
            if not self.agreed and len(company.members.alive()) == 1:
                self.refused = True
                raise PeerError(f"cannot learn together with {address}: {error}") from error
        except Unreachable as error:
            if len(company.members.alive()) == 1:
                company.complain("join", str(error))
        finally:
            await line.close()
        return False

    def to_strangers(self, also: Iterable[tuple[str, str]] = ()) -> None:
        """Greet some of those known by hearsay, in the background: who answers may become a neighbour."""
        company = self.company
        if company.stopping.is_set():
            return
        strange = {member.name: member.address for member in company.members.strange()}
        for name, address in (*self.strangers.take(company.in_reach(), strange, time.monotonic()), *also):
            task = asyncio.create_task(self._meet(name, address))
            self.under_way.add(task)
            task.add_done_callback(self.under_way.discard)

    async def _meet(self, name: str, address: str) -> None:
        line, answered = Line(self.company.identity, address, self.company.dimension, name), False
        try:
            await introduce(self.company, line)
            answered = self.agreed = True
        except (Unreachable, Disagreement) as error:
            log.debug("a stranger was called in vain", extra=fields(name=name, why=str(error)))
        finally:
            self.strangers.called(name, answered, time.monotonic())
            await line.close()
