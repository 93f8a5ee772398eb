"""The actors of a run as the driver knows them: questions to all of them, every wait, and who does not answer.

Owns the handles. What a loss means for the run is for whoever hears of it.
"""

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from gadget_svm.cluster.connection import Cluster
from gadget_svm.cluster.timeouts import ClusterError

HEARING = 5.0
"""Seconds in which others may end what one of them failed at."""
MOST_SAID = 300
"""Letters of Ray's own words in an error of ours."""


class AllLost(ClusterError):  # noqa: N818 - what happened
    """Nobody is left to answer."""


class Crew:
    """Actors by their number, with None in the place of one that is lost. ``heard(index, why)`` is told of a loss."""

    def __init__(self, cluster: Cluster, sources: Sequence[Any], heard: Callable[[int, str], None]) -> None:
        self.cluster, self.ray, self.options = cluster, cluster.ray, cluster.options
        self.sources = [self.ray.put(source) for source in sources]
        self.actors: list[Any] = []
        self._heard = heard
        self._telling: list[Any] = []  # calls that tell of a loss, and may not have arrived
        self._calls: dict[Any, int] = {}  # of a question that is not answered yet
        self.engage()

    def engage(self) -> None:
        """New actors in all places."""
        self.actors = [self.cluster.make(index, source) for index, source in enumerate(self.sources)]
        self._telling, self._calls = [], {}

    def live(self) -> list[int]:
        """Who is here."""
        return [index for index, actor in enumerate(self.actors) if actor is not None]

    def lost(self) -> list[int]:
        """Who is not."""
        return [index for index, actor in enumerate(self.actors) if actor is None]

    def starting(self, refs: list[Any]) -> list[Any]:
        """All answers, or an error that says what hinders the start."""
        _, late = self.ray.wait(refs, num_returns=len(refs), timeout=self.options.start_timeout)
        if late:
            raise TimeoutError(self._why_late(len(late), len(refs)))
        try:
            return list(self.ray.get(refs, timeout=self.options.timeout))
        except self.ray.exceptions.RayTaskError as error:
            raise cause(error) from None
        except self.ray.exceptions.RayError as error:
            why = said(error)
            fix = "has its machine memory enough? Try again, or resume"
            if "No module named" in why:
                fix = (
                    "install the same version of gadget-svm with Ray on all machines, pip install 'gadget-svm[ray]', "
                    "or have Ray do it by engine_options={'runtime_env': ...}"
                )
            raise ClusterError(f"an actor was lost while all were starting ({why}): {fix}") from None

    def _why_late(self, late: int, asked: int) -> str:
        """Tell actors that have no place in the cluster from actors that run and are slow."""
        said = f"{late} of {asked} actors were not ready within start_timeout={self.options.start_timeout:g} s: "
        pings = [self.actors[index].ping.remote() for index in self.live()]
        _, silent = self.ray.wait(pings, num_returns=len(pings), timeout=min(HEARING, self.options.timeout))
        if silent:
            return (
                f"{said}{len(silent)} of {len(pings)} have no place, as the cluster has {self._cpus()} CPUs, and "
                f"{len(pings)} actors of {self.options.num_cpus:g} {self._wishes()}were asked for; ask for fewer with "
                "engine_options={'actors': ...}, or wait until the cluster has room"
            )
        return (
            f"{said}all of them run, and still read their rows or compile; give them longer with "
            "engine_options={'start_timeout': ...}, or look for what they wait for in their logs"
        )

    def _wishes(self) -> str:
        wishes = {"resources": self.options.resources, "memory": self.options.memory}
        said = ", ".join(f"{name} {wish!r}" for name, wish in wishes.items() if wish)
        return f"with {said} each " if said else ""

    def _cpus(self) -> str:
        try:
            return f"{self.cluster.cpus():g}"
        except (OSError, self.ray.exceptions.RayError):  # what hinders the start may hinder this
            return "an unknown number of"

    def all(self, method: str, *args: Any) -> dict[int, Any]:
        """The answers of all actors that are still here at the end, by their number. Every wait has its timeout."""
        self._calls = {}
        self._settle()
        for i in self.live():
            self._calls[getattr(self.actors[i], method).remote(*args)] = i
        pending = dict(self._calls)
        answers: dict[int, Any] = {}
        before: dict[int, Any] = {}
        while pending:
            ready, _ = self.ray.wait(list(pending), num_returns=1, timeout=self.options.timeout / 2)
            for ref in ready:
                index = pending.pop(ref)
                if self.actors[index] is not None:
                    try:
                        self._take(ref, index, answers)
                    except Exception:
                        self._hear_out(list(pending))
                        raise
            if not ready:
                before = self._probe(set(pending.values()), before)
            pending = {ref: index for ref, index in pending.items() if self.actors[index] is not None}
        self._calls = {}
        if not self.live():
            raise AllLost("all actors are lost")
        return {index: answers[index] for index in sorted(answers) if self.actors[index] is not None}

    def finished(self, seconds: float) -> dict[int, Any]:
        """The answers to a question that an interruption broke off; none, unless all who are here give theirs."""
        calls = {ref: index for ref, index in self._calls.items() if self.actors[index] is not None}
        if sorted(calls.values()) != self.live():  # not all of them were asked
            return {}
        answers, end = dict[int, Any](), time.monotonic() + seconds
        while left := [ref for ref, index in calls.items() if index not in answers]:
            ready, _ = self.ray.wait(left, num_returns=1, timeout=max(0.0, end - time.monotonic()))
            try:
                answers |= {calls[ref]: self.ray.get(ref, timeout=self.options.timeout) for ref in ready}
            except self.ray.exceptions.RayError:
                return {}
            if not ready:
                return {}
        return answers

    def _take(self, ref: Any, index: int, answers: dict[int, Any]) -> None:
        exceptions = self.ray.exceptions
        try:
            answers[index] = self.ray.get(ref, timeout=self.options.timeout)
        except exceptions.RayTaskError as error:
            raise cause(error) from None
        except (exceptions.RayError, exceptions.GetTimeoutError) as error:
            self.lose(index, type(error).__name__)

    def _hear_out(self, refs: list[Any]) -> None:
        """One has failed. The others may still be at it, and what nobody asks for Ray would print."""
        if refs:
            ready, _ = self.ray.wait(refs, num_returns=len(refs), timeout=min(HEARING, self.options.timeout / 2))
            for ref in ready:
                with suppress(Exception):
                    self.ray.get(ref, timeout=self.options.timeout)

    def _probe(self, pending: set[int], before: dict[int, Any]) -> dict[int, Any]:
        """Nobody has answered for long. Who does not say what it does is lost; if all wait for one another, one is."""
        asked = {self.actors[i].status.remote(): i for i in self.live()}
        ready, silent = self.ray.wait(list(asked), num_returns=len(asked), timeout=self.options.timeout / 2)
        now: dict[int, Any] = {}
        for ref in ready:
            try:
                now[asked[ref]] = self.ray.get(ref, timeout=self.options.timeout)
            except self.ray.exceptions.RayError as error:
                self.lose(asked[ref], type(error).__name__)
        for ref in silent:
            self.lose(asked[ref], "no answer")
        stuck = [i for i in pending if i in now and now[i][1] and before.get(i) == now[i]]
        if not silent and len(stuck) == len(pending & set(now)) and stuck:
            awaited = [other for i in stuck for other in now[i][1] if self.actors[other] is not None]
            if awaited:
                self.lose(max(set(awaited), key=lambda i: (awaited.count(i), i)), "its mail does not arrive")
        return now

    def lose(self, index: int, why: str) -> None:
        """An actor is gone, and the others are told."""
        actor, self.actors[index] = self.actors[index], None
        if actor is None:
            return
        self.end(actor)
        self._telling += [self.actors[other].forget.remote(index) for other in self.live()]
        self._heard(index, why)

    def _settle(self) -> None:
        """Wait until the others know who is lost: mail to it would be gone, and it must be known before its heir."""
        telling, self._telling = self._telling, []
        if telling:
            self.ray.wait(telling, num_returns=len(telling), timeout=self.options.timeout / 2)

    def admit(self, index: int, actor: Any) -> None:
        """A new actor in the place of one that was lost; the others send to it from their next iteration on."""
        self._settle()
        refs = [self.actors[i].welcome.remote(index, actor) for i in self.live()]
        self.actors[index] = actor
        if refs:
            self.ray.wait(refs, num_returns=len(refs), timeout=self.options.timeout)

    def end(self, actor: Any) -> None:
        """Kill it."""
        with suppress(Exception):  # it may be gone already
            self.ray.kill(actor)

    def close(self) -> None:
        """End all of them."""
        for index in self.live():
            self.end(self.actors[index])
        self.actors = [None] * len(self.actors)


def cause(error: Any) -> Exception:
    """What went wrong in an actor, as it would have been raised here."""
    found = getattr(error, "cause", None)
    return found if isinstance(found, Exception) else RuntimeError(str(error))


def said(error: Exception) -> str:
    """An error of Ray's in a line: of what kind it is and its last words, which tell the cause."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
    return ": ".join([type(error).__name__, *lines[-1:]])[:MOST_SAID]
