"""The actors of a run, for the driver: calls their methods, waits for answers, and detects lost actors.

Owns the handles, all timeouts, and when an actor counts as lost. `on_loss` decides what that means for the run.
`connection` decides how many actors there are and creates them, and `driver` assigns the nodes to them.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from gadget_svm.cluster.actor import NotReadyError, Question
from gadget_svm.cluster.connection import Cluster, ClusterError, last_line

ERROR_GRACE_S = 5.0
"""How long to wait for the other actors' answers after one actor's error, and for pings."""
MAX_REASON_LENGTH = 300


class AllLostError(ClusterError):
    """No actor is left to answer."""


class ActorLostError(Exception):
    """An actor ended before it answered; ``cause`` is Ray's error."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ActorPool:
    """Actors by number.

    Parameters
    ----------
    cluster : Cluster
        Where the actors are created.
    sources : sequence
        Each actor's source of rows.
    on_loss : callable
        Called with an actor's number and the reason when it is lost.
    """

    def __init__(self, cluster: Cluster, sources: Sequence[Any], on_loss: Callable[[int, str], None]) -> None:
        self.cluster, self.ray, self.options = cluster, cluster.ray, cluster.options
        self.sources = [self.ray.put(source) for source in sources]  # which Ray also hands to restarted actors
        self.actors = [cluster.create(index, source) for index, source in enumerate(self.sources)]
        self.lost: dict[int, str] = {}  # why
        self._on_loss = on_loss
        self._calls: dict[Any, int] = {}  # those that have not returned yet

    def live(self) -> list[int]:
        """Return the numbers of the actors that are not lost."""
        return [index for index in range(len(self.actors)) if index not in self.lost]

    # start

    def wait_started(self, refs: list[Any]) -> list[Any]:
        """Return all answers, or raise an error that says what prevents the start."""
        _, late = self.ray.wait(refs, num_returns=len(refs), timeout=self.options.start_timeout)
        if late:
            raise TimeoutError(self._why_late(len(late), len(refs)))
        try:
            return [self._answer(ref) for ref in refs]
        except ActorLostError as error:
            why = describe(error.cause)
            fix = "does its machine have enough memory? Try again, or resume"
            if "No module named" in why:
                fix = (
                    "install the same version of gadget-svm with Ray on all machines, pip install 'gadget-svm[ray]', "
                    "or have Ray do it by engine_options={'runtime_env': ...}"
                )
            raise ClusterError(f"an actor was lost while all were starting ({why}): {fix}") from None

    def _why_late(self, late: int, asked: int) -> str:
        """Return why the start is late: actors have no place in the cluster, or they run and are slow."""
        start = f"{late} of {asked} actors were not ready within start_timeout={self.options.start_timeout:g} s: "
        pings = [actor.ping.remote() for actor in self.actors]
        _, silent = self.ray.wait(pings, num_returns=len(pings), timeout=min(ERROR_GRACE_S, self.options.timeout))
        if not silent:
            return (
                f"{start}all of them run, and still read their rows or compile; give them more time with "
                "engine_options={'start_timeout': ...}, or read in their logs what they wait for"
            )
        given = {name: getattr(self.options, name) for name in ("num_cpus", "resources", "memory")}
        each = ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)
        return (
            f"{start}{len(silent)} of {len(pings)} have no place, as the cluster has {self.cluster.cpus():g} CPUs, and "
            f"{len(pings)} actors with {each} each were asked for; ask for fewer with "
            "engine_options={'actors': ...}, or wait until the cluster has room"
        )

    def start_again(
        self, specs: Sequence[Any], questions: Sequence[Question]
    ) -> tuple[dict[int, list[str]], dict[int, str]]:
        """Let lost actors make their blocks as soon as Ray has restarted them, within ``start_timeout`` seconds.

        Returns, by actor, the results of `Host.begin` for those that are ready, and the reasons for those that are not.
        """
        calls, patience_s = dict[Any, int](), self.options.start_timeout / 2
        for i in sorted(self.lost):
            begin = self.actors[i].begin.options(max_task_retries=-1)
            calls[begin.remote(specs[i], questions, patience_s)] = i
        done, late = self.ray.wait(list(calls), num_returns=len(calls), timeout=self.options.start_timeout)
        room, limit = "has the cluster room and memory for it?", f"start_timeout={self.options.start_timeout:g} s"
        failed, ready = {calls[ref]: f"not there within {limit}: {room}" for ref in late}, {}
        for ref in done:
            try:
                ready[calls[ref]] = self._answer(ref)
            except ActorLostError as error:
                failed[calls[ref]] = f"{room} {describe(error.cause)}"
            except Exception as error:
                failed[calls[ref]] = f"{type(error).__name__}: {error}"
        return ready, failed

    # questions

    def ask_all(self, method: str, *args: Any) -> dict[int, Any]:
        """Call a method of all actors; return the answers by number, without lost actors. Waits have timeouts.

        Raises
        ------
        AllLostError
            No actor is left.
        Exception
            What an actor's method raised.
        """
        self._calls = {}
        for index in self.live():
            self._calls[getattr(self.actors[index], method).remote(*args)] = index
        pending, answers, before = dict(self._calls), dict[int, Any](), dict[int, Any]()
        while pending:
            ready, _ = self.ray.wait(list(pending), num_returns=1, timeout=self.options.timeout / 2)
            for ref in ready:
                index = pending.pop(ref)
                try:
                    answers[index] = self._answer(ref)
                except ActorLostError as error:
                    self.lose(index, type(error.cause).__name__)
                except NotReadyError as error:
                    self.lose(index, str(error))
                except Exception:
                    self._drain(list(pending))
                    raise
            if not ready:
                before = self._probe(set(pending.values()), before)
            pending = {ref: index for ref, index in pending.items() if index not in self.lost}
        self._calls = {}
        if not self.live():
            raise AllLostError("all actors are lost")
        return {index: answers[index] for index in self.live()}

    def _answer(self, ref: Any) -> Any:
        """Return what an actor's method returned, or raise what it raised.

        Raises
        ------
        ActorLostError
            The actor ended.
        """
        try:
            return self.ray.get(ref, timeout=self.options.timeout)
        except self.ray.exceptions.RayTaskError as error:
            raise cause(error) from None
        except self.ray.exceptions.RayError as error:
            raise ActorLostError(error) from None

    def wait_interrupted(self, seconds: float) -> dict[int, Any]:
        """Return the answers to the call that a signal interrupted, or none if a live actor does not answer."""
        calls = {ref: index for ref, index in self._calls.items() if index not in self.lost}
        if not calls or sorted(calls.values()) != self.live():  # not all of them were asked
            return {}
        ready, late = self.ray.wait(list(calls), num_returns=len(calls), timeout=seconds)
        try:
            return {} if late else {calls[ref]: self._answer(ref) for ref in ready}
        except Exception:  # it was interrupted in the middle
            return {}

    def _drain(self, refs: list[Any]) -> None:
        """Fetch the answers of the other actors after an error: Ray prints errors that are not fetched."""
        if refs:
            ready, _ = self.ray.wait(refs, num_returns=len(refs), timeout=min(ERROR_GRACE_S, self.options.timeout / 2))
            for ref in ready:
                with suppress(Exception):
                    self._answer(ref)

    def _probe(self, pending: set[int], before: dict[int, Any]) -> dict[int, Any]:
        """Ask all actors for their status, because no answer came for a long time; return the answers.

        Actors that do not answer count as lost. If all actors with work wait for messages, and already did in the last
        probe, the actor for which most of them wait counts as lost.
        """
        asked = {self.actors[index].status.remote(): index for index in self.live()}
        ready, silent = self.ray.wait(list(asked), num_returns=len(asked), timeout=self.options.timeout / 2)
        now: dict[int, Any] = {}
        for ref in ready:
            try:
                now[asked[ref]] = self._answer(ref)
            except ActorLostError as error:
                self.lose(asked[ref], type(error.cause).__name__)
        for ref in silent:
            self.lose(asked[ref], "no answer", hung=True)
        stuck = [i for i in pending if i in now and now[i][1] and before.get(i) == now[i]]
        if not silent and stuck and len(stuck) == len(pending & set(now)):
            awaited = [other for i in stuck for other in now[i][1] if other not in self.lost]
            if awaited:
                self.lose(max(set(awaited), key=lambda i: (awaited.count(i), i)), "its messages do not arrive", True)
        return now

    # losses

    def lose(self, index: int, why: str, hung: bool = False) -> None:
        """Treat an actor as lost, and inform the others. End its process if it hangs, or if Ray will not restart it."""
        if index in self.lost:
            return
        self.lost[index] = why
        if hung or not self.options.restart:
            self._end(index, no_restart=not self.options.restart)
        told = [self.actors[other].forget.remote(index) for other in self.live()]
        if told:  # so that they send it nothing more
            self.ray.wait(told, num_returns=len(told), timeout=self.options.timeout / 2)
        self._on_loss(index, why)

    def _end(self, index: int, no_restart: bool) -> None:
        with suppress(Exception):  # it may have ended already
            self.ray.kill(self.actors[index], no_restart=no_restart)

    def close(self) -> None:
        """End all actors."""
        for index in range(len(self.actors)):
            self._end(index, no_restart=True)
        self.lost = dict.fromkeys(range(len(self.actors)), "the run ended")


def cause(error: Any) -> Exception:
    """Return what an actor's method raised."""
    found = getattr(error, "cause", None)
    return found if isinstance(found, Exception) else RuntimeError(str(error))


def describe(error: Exception) -> str:
    """Return an error of Ray's in one line: its type and its last line, which names the cause."""
    words = last_line(re.sub(r"\x1b\[[0-9;]*m", "", str(error)))
    return ": ".join([type(error).__name__, *([words] if words else [])])[:MAX_REASON_LENGTH]
