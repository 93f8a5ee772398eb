"""The driver of a run on Ray: an actor holds a block of nodes, and messages go from actor to actor.

Owns the runtime that the training loop sees: it tells the actors how many iterations to do, fetches models, makes
checkpoints and, after a loss, restores the group of actors from the last one. Messages and rows do not pass through the
driver.
"""

import hashlib
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from itertools import chain, pairwise
from typing import Any

import numpy as np

from gadget_svm.algorithms.base import Run
from gadget_svm.algorithms.certificate import Certificate
from gadget_svm.cluster.actor import ActorSpec, Group, Question
from gadget_svm.cluster.actor_pool import ActorPool, AllLostError
from gadget_svm.cluster.checkpoints import Checkpoints, SaveFailedError, changed_nodes, describe_nodes, set_aside
from gadget_svm.cluster.connection import Cluster, ClusterError
from gadget_svm.cluster.worker import Answers, certify_together
from gadget_svm.core.block import Links
from gadget_svm.core.network import Network
from gadget_svm.core.rows import BATCH, Scores
from gadget_svm.core.types import Array, Flags, Floats, Ints
from gadget_svm.simulation.engine import REJOIN_GRACE_ITERATIONS, UNCERTIFIABLE
from gadget_svm.simulation.runtime import Runtime

MAX_RESTORES = 3
"""The group is restored at most this often in a row. After that, actors that are lost again are left out."""
MAX_REASON_LENGTH = 300
"""Characters of a reason that the history keeps."""


class RayRuntime(Runtime):
    """A runtime over actors: the interface of `LocalRuntime`.

    Parameters
    ----------
    cluster : Cluster
        The connection to Ray; closed with the runtime.
    nodes : int
        How many nodes the actors share: actor ``i`` has the nodes ``bounds[i] : bounds[i + 1]``.
    source_of : callable
        ``source_of(first, last)`` returns the `Source` of the rows of the nodes first:last.

    Raises
    ------
    Exception
        The actors could not be made. The connection is closed then.
    """

    def __init__(self, cluster: Cluster, nodes: int, source_of: Callable[[int, int], Any]) -> None:
        self.cluster, self.ray, self.options = cluster, cluster.ray, cluster.options
        self.checkpoints = Checkpoints(self.options.checkpoint_dir, self.options.checkpoint_every)
        try:
            parts = cluster.actors(nodes)
            self.bounds: Ints = np.array([nodes * part // parts for part in range(parts + 1)])  # as the simulator
            self.pool = ActorPool(cluster, [source_of(*pair) for pair in pairwise(self.bounds.tolist())], self._on_loss)
        except BaseException:
            cluster.close()
            raise
        self.t = self.messages = self.nbytes = self.omitted_columns = self.certificates = 0
        self.names: list[str] = []  # the shards that the actors read
        self._questions: list[Question] = []  # asked again after an actor is restarted
        self._specs: list[Any] = []
        self._rows: list[str] = []  # digests of every node's rows
        self._fetched: dict[str, dict[int, Array]] = {}  # what actors answered last, by name and actor
        self._events: list[dict[str, Any]] = []
        self._lost_since: dict[int, int] = {}  # iterations, by actor
        self._given_up: set[int] = set()  # lost actors that did not come back
        self._group = self._restores = self._began = 0
        self._consistent = False  # whether all blocks are of iteration t
        self._closing = False

    # start

    def ask(self, method: str, *args: Any) -> list[Any]:
        """Return what a method of every actor's source of rows returns."""
        self._questions.append((method, *args))
        return self.pool.wait_started([actor.ask.remote(method, *args) for actor in self.pool.actors])

    def begin(
        self, run: Run, network: Network, seed: int, sizes: Floats, shape: tuple[int, int], lam: float | None,
        state: Callable[[int, int], dict[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        """Make the blocks, from ``state(first, last)`` if there is one, or from the checkpoint to be resumed."""
        self.run, self.lam, self._sizes, self.shape = run, lam, sizes, shape
        self._fingerprint = _fingerprint(run, network, seed, sizes, shape, self.bounds)
        threads = max(1, int(self.options.num_cpus))
        digest_rows = self.options.restart or self.checkpoints.folder is not None
        for index, (first, last) in enumerate(pairwise(self.bounds.tolist())):
            spec = ActorSpec(
                index, self.bounds, run, Links.of(network, first, last), sizes[first:last], shape, seed, lam, threads,
                state(first, last) if state is not None else {}, digest_rows,
            )  # fmt: skip
            self._specs.append(self.ray.put(spec))
        pairs = zip(self.pool.actors, self._specs, strict=True)
        digests = self.pool.wait_started([actor.begin.remote(spec) for actor, spec in pairs])
        self._rows = list(chain.from_iterable(digests))
        self._began = self.t
        if self.options.resume:
            about = self.checkpoints.read(self._fingerprint, self._rows, self.names)
            self.t, self.messages, self.nbytes = about["t"], about["messages"], about["nbytes"]
            self.certificates = about["certificates"]
        elif self.checkpoints.folder is not None:
            set_aside(self.checkpoints.folder)
        group = self._next_group()
        self.pool.wait_started([actor.join.remote(group) for actor in self.pool.actors])
        self._consistent = True

    def _next_group(self) -> Group:
        """Return a group of the actors that are live, at the last checkpoint or at the start of the run."""
        self._group += 1
        group = Group(self._group, self.pool.actors, sorted(self.pool.lost), self._began, self._fingerprint)
        if self.checkpoints.last < 0:
            return group
        return group._replace(t=self.checkpoints.last, checkpoint=str(self.checkpoints.folder))

    # learning

    def advance(self, count: int) -> None:
        """Do ``count`` iterations in all actors. Continue without actors that are lost meanwhile."""
        self._recover()
        restores, self._consistent = self._restores, False
        try:
            self._note_iterations(self._ask_all("advance", count), count)
        except (KeyboardInterrupt, SystemExit):  # the actors finish these iterations, which can then be saved
            wanted = self.checkpoints.folder is not None and self._restores == restores
            if wanted and (sent := self.pool.wait_interrupted(self.options.timeout)):
                self._note_iterations(sent, count)
            raise
        self._recover()
        self._restores = 0
        if self.checkpoints.is_due(self.t) and not self.pool.lost:
            self._save()

    def _note_iterations(self, sent: dict[int, Any], count: int) -> None:
        self.t += count
        self.count(sum(part[0] for part in sent.values()), sum(part[1] for part in sent.values()))
        self._consistent = True

    def certify(self) -> Certificate:
        """Certify one model for the live nodes, as `LocalRuntime.certify` does."""
        if self.lam is None or not self.run.certifiable:
            raise ValueError(UNCERTIFIABLE)
        self.certificates += 1
        live_mask = self.live_mask()
        for index, since in self._lost_since.items():
            if self.t - since < REJOIN_GRACE_ITERATIONS:
                return Certificate.failed(self.shape, f"node {self.bounds[index]} left a moment ago and may return")
        owner = int(np.argmax(live_mask))

        def ask() -> Answers:
            return list(self._ask_all("certify", owner, live_mask, self.certificates).values())

        certificate = certify_together(ask, self.shape, owner, live_mask)
        self.count(certificate.messages, certificate.nbytes, certificate.vectors)
        return certificate

    def gather(self, name: str) -> Array:
        """Return an array with an entry per node. For lost nodes it has the values last fetched, or zeros."""
        fetched = self._fetched.setdefault(name, {})
        fetched.update(self._ask_all("values", name))
        example = next(iter(fetched.values()))
        missing = [np.zeros((size, *example.shape[1:]), example.dtype) for size in np.diff(self.bounds).tolist()]
        return np.concatenate([fetched.get(index, zeros) for index, zeros in enumerate(missing)])

    def unseen(self, name: str) -> Flags:
        """Return which nodes were lost before this array was ever fetched: `gather` returns zeros for them."""
        return self.lost_mask() & self._per_node(lambda index: index not in self._fetched.get(name, {}))

    def sizes(self) -> Floats:
        """Return n_i of every node."""
        return self._sizes

    def live_mask(self) -> Flags:
        """Return which nodes are not lost."""
        return self._per_node(lambda index: index not in self._lost_since)

    def lost_mask(self) -> Flags:
        """Return which nodes lost their state because their actor ended."""
        return ~self.live_mask()

    def exchanges(self) -> int:
        """Return how often every block has sent."""
        return int(next(iter(self._ask_all("exchanges").values())))

    def events(self) -> list[dict[str, Any]]:
        """Return the losses, returns and failed checkpoints since the last call."""
        events, self._events = self._events, []
        return events

    def _per_node(self, holds: Callable[[int], bool]) -> Flags:
        return np.repeat([holds(index) for index in range(len(self.bounds) - 1)], np.diff(self.bounds))

    def evaluate(self, models: Floats, lam: float) -> Scores:
        """Return objective and error on the rows of live actors; the sums are added in the order of actors."""
        parts: list[list[Floats]] = []
        for start in range(0, len(models), BATCH):
            answers = self._ask_all("losses", self.ray.put(models[start : start + BATCH])).values()
            hinge, wrong, rows = (sum(column) for column in zip(*answers, strict=True))
            parts.append([hinge / rows, wrong / rows])  # divided now, as an actor may be lost before the next batch
        loss, error = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Scores(0.5 * lam * np.einsum("mkd,mkd->m", models, models) + loss, error)

    def close(self) -> None:
        """Save what is not saved yet, and end the actors. End Ray too if it was started here."""
        self._closing = True
        with ExitStack() as stack:
            stack.callback(self.cluster.close)
            stack.callback(self.pool.close)
            unsaved = self.checkpoints.folder is not None and self.t > max(self.checkpoints.last, self._began)
            if unsaved and self._consistent and not self.pool.lost:
                try:
                    self._save()
                except (RuntimeError, self.ray.exceptions.RayError) as error:  # the models are complete
                    warnings.warn(f"the end of the run is not saved: {error}", stacklevel=2)

    # checkpoints

    def _save(self) -> None:
        """Make a checkpoint of all actors; if that fails, the run continues and the next is made when it is due."""
        self.checkpoints.note_attempt(self.t)
        try:
            self._ask_all("save", str(self.checkpoints.folder), self.checkpoints.last)
            if self.pool.lost:
                return
            counts = {"t": self.t, "messages": self.messages, "nbytes": self.nbytes, "certificates": self.certificates}
            about = {**counts, "fingerprint": self._fingerprint, "rows": self._rows, "actors": len(self.pool.actors)}
            self.checkpoints.complete(about)
        except SaveFailedError as error:
            self.checkpoints.warn_of_failure(error)
            self._note("checkpoint failed", why=str(error))

    # losses

    def _on_loss(self, index: int, why: str) -> None:
        self._lost_since.setdefault(index, self.t)
        self._note("lost", index, why=why)
        if self.run.refuses_faults:  # every flag must arrive in its round
            raise ClusterError(
                f"actor {index} was lost ({why}); gossip_rounds='diameter' needs every flag to arrive in its round, so "
                "the run cannot continue: use a fixed number of rounds or 'mix'"
            )
        if not self.options.restart and len(self.pool.lost) == 1 < len(self.pool.actors):
            self._warn_of_missing(index)

    def _note(self, event: str, index: int | None = None, **more: Any) -> None:
        """Add an event, of one actor or of all, to the next record of the history."""
        first, last = (0, self.bounds[-1]) if index is None else self.bounds[index : index + 2]
        if "why" in more:
            more["why"] = " ".join(more["why"].split())[:MAX_REASON_LENGTH]
        nodes = [int(first), int(last) - 1]
        self._events.append({"event": event, "actor": index, "nodes": nodes, "iteration": self.t, **more})

    def _warn_of_missing(self, index: int) -> None:
        if self.checkpoints.folder is not None:
            self.checkpoints.warn(f"actor {index} is lost, and a checkpoint needs all actors: no more are made")

    def _ask_all(self, method: str, *args: Any) -> dict[int, Any]:
        """Return the answers of all live actors; if none is left, restore the group and ask again."""
        while True:
            try:
                return self.pool.ask_all(method, *args)
            except AllLostError:
                if not self.options.restart or self._closing:
                    raise ClusterError(self._why_all_lost()) from None
            self._recover()

    def _recover(self) -> None:
        """If an actor is lost, restore the group as soon as Ray has restarted it.

        Actors that do not come back in time are left out; they are tried again after the next loss.
        """
        while self.options.restart and (lost := set(self.pool.lost)) - self._given_up:
            self._restores += 1
            if self._restores > MAX_RESTORES:
                failed = dict.fromkeys(sorted(lost), f"lost again in {MAX_RESTORES} restored groups")
            else:
                failed = self._start_again()
            for index, why in failed.items():
                self.pool.lost[index] = why
                self._note("restart failed", index, why=why)
            self._given_up = set(failed)
            if not self.pool.live():
                raise ClusterError(self._why_all_lost())
            if failed:
                self._warn_of_missing(min(failed))
            if returned := sorted(lost - set(failed)):
                with suppress(AllLostError):
                    self._restore(returned)

    def _start_again(self) -> dict[int, str]:
        """Have lost actors build their blocks again. Return the actors that failed, each with the reason."""
        started, failed = self.pool.start_again(self._specs, self._questions)
        for index, digests in started.items():
            first, last = self.bounds[index : index + 2].tolist()
            if nodes := changed_nodes(self._rows[first:last], digests, first):
                failed[index] = (
                    f"the rows of {describe_nodes(nodes, self.names)} are not those the run began with: put the former "
                    "rows back"
                )
            else:
                del self.pool.lost[index]
        return failed

    def _restore(self, returned: Sequence[int]) -> None:
        """Bring all live actors to the last checkpoint or the start, and from there to iteration t.

        The seed is the same, so with all actors the models are the same bit for bit as without the loss.
        """
        consistent, self._consistent = self._consistent, False
        group = self._next_group()
        self.pool.ask_all("join", group)
        while sorted(self.pool.lost) != group.lost:  # another one was lost, and the other actors may not know
            group = self._next_group()
            self.pool.ask_all("join", group)
        for index in sorted(set(returned) - set(self.pool.lost)):
            self._lost_since.pop(index, None)
            self._note("restarted", index, **{"from": None if group.checkpoint is None else group.t})
        if self.t > group.t:
            self.pool.ask_all("advance", self.t - group.t)
        self._consistent = consistent

    def _why_all_lost(self) -> str:
        text = f"all actors are lost, the last by {[*self.pool.lost.values()][-1]}"
        if self._closing:
            return text
        if self._restores > 1:
            text += ", also after the group was restored: do they have enough memory?"
        if self.checkpoints.last >= 0:
            return f"{text}; resume=True continues from iteration {self.checkpoints.last}, in {self.checkpoints.folder}"
        text += "; restart=True has Ray restart them" * (not self.options.restart)
        return text + "; checkpoint_dir keeps what was learned" * (self.checkpoints.folder is None)


def _fingerprint(run: Run, network: Network, seed: int, sizes: Floats, shape: tuple[int, int], bounds: Ints) -> str:
    digest = hashlib.sha256(repr((run, seed, shape, network.transition)).encode())
    for part in (network.indptr, network.indices, *(network.weights or ()), sizes, bounds):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()
