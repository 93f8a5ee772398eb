"""The driver of a run on Ray: an actor holds a block of nodes, and messages go from actor to actor.

Owns the runtime that the training loop sees: it tells the actors how many iterations to do, fetches models, makes
checkpoints and, after a loss, restores the group of actors from the last one. Messages and rows do not pass through the
driver.
"""

import hashlib
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.algorithms.base import Run
from gadget_svm.algorithms.certificate import Certificate
from gadget_svm.cluster.actor import ActorReady, ActorSpec, Group, Question
from gadget_svm.cluster.actor_pool import ActorPool, AllLostError
from gadget_svm.cluster.checkpoints import Checkpoints, SaveFailedError, changed_nodes, describe_nodes
from gadget_svm.cluster.connection import Cluster, ClusterError
from gadget_svm.cluster.lost_actors import LastKnownState, LossLog
from gadget_svm.cluster.worker import assemble, failed_certificate
from gadget_svm.core.block import Links
from gadget_svm.core.network import Network
from gadget_svm.core.objective import BATCH, Scores
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.simulation.engine import REJOIN_GRACE_ITERATIONS, UNCERTIFIABLE

MAX_RESTORES = 3
"""How often in a row the group is restored; then actors that are lost again are left out."""


class RayRuntime:
    """A runtime over actors: the interface of `LocalRuntime`.

    Parameters
    ----------
    cluster : Cluster
        The connection to Ray; closed with the runtime.
    bounds : ndarray
        Actor ``i`` has the nodes ``bounds[i] : bounds[i + 1]``.
    sources : sequence of Source
        Where each actor gets its rows.
    """

    def __init__(self, cluster: Cluster, bounds: Ints, sources: Sequence[Any]) -> None:
        self.cluster, self.ray, self.options, self.bounds = cluster, cluster.ray, cluster.options, bounds
        self.log, self._state = LossLog(bounds), LastKnownState(bounds)
        self.checkpoints = Checkpoints(self.options.checkpoint_dir, self.options.checkpoint_every)
        self.pool = ActorPool(cluster, sources, self._on_loss)
        self._questions: list[Question] = []  # asked again after an actor is restarted
        self._specs: list[Any] = []
        self._given_up: set[int] = set()  # lost actors that did not come back
        self._group = self._restores = self._began = 0
        self._consistent = False  # whether all blocks are of iteration t
        self._closing = False
        self.t = self.messages = self.nbytes = self.omitted_columns = self.certificates = 0
        self._rows: list[str] = []  # digests of every node's rows
        self.pids: list[int] = []
        self.names: list[str] = []  # of shards that the actors read

    # start

    def ask(self, method: str, *args: Any) -> list[Any]:
        """Return what a method of every actor's source of rows returns."""
        self._questions.append((method, *args))
        pairs = zip(self.pool.actors, self.pool.sources, strict=True)
        return self.pool.wait_started([actor.ask.remote(source, method, *args) for actor, source in pairs])

    def begin(
        self, run: Run, network: Network, seed: int, sizes: Floats, shape: tuple[int, int], lam: float | None,
        memory: Callable[[int, int], dict[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        """Make the blocks, from ``memory(first, last)`` if there is one, or from the checkpoint to be resumed."""
        self.run, self.lam, self._sizes, self.shape = run, lam, sizes, shape
        self._fingerprint = _fingerprint(run, network, seed, sizes, shape, self.bounds)
        threads, digest_rows = max(1, int(self.options.num_cpus)), self.options.restart or self.checkpoints.enabled
        for index, (first, last) in enumerate(pairwise(self.bounds.tolist())):
            spec = ActorSpec(
                index, self.bounds, run, Links.of(network, first, last), sizes[first:last], shape, seed, lam, threads,
                memory(first, last) if memory is not None else {}, digest_rows, self._fingerprint,
            )  # fmt: skip
            self._specs.append(self.ray.put(spec))
        parts = zip(self.pool.actors, self.pool.sources, self._specs, strict=True)
        refs = [actor.begin.remote(source, spec) for actor, source, spec in parts]
        ready: list[ActorReady] = self.pool.wait_started(refs)
        self.pids, self._rows = [each.pid for each in ready], [digest for each in ready for digest in each.row_digests]
        self._began = self.t
        self.checkpoints.prepare(bool(self.options.resume))
        if self.options.resume:
            about = self.checkpoints.read(self._fingerprint, self._rows, self.names)
            self.t, self.messages, self.nbytes = about["t"], about["messages"], about["nbytes"]
            self.certificates = about["certificates"]
        group = self._next_group()
        self.pool.wait_started([actor.join.remote(group) for actor in self.pool.actors])
        self._consistent = True

    def _next_group(self) -> Group:
        """Return a group of the actors that are live, at the last checkpoint or at the start of the run."""
        self._group += 1
        lost, last = sorted(self.pool.lost), self.checkpoints.last
        if last < 0:
            return Group(self._group, self.pool.actors, lost, self._began)
        return Group(self._group, self.pool.actors, lost, last, str(self.checkpoints.folder))

    def warm_up(self) -> None:
        """Do nothing: `begin` has compiled everything."""

    # learning

    def advance(self, count: int) -> None:
        """Do ``count`` iterations of all actors, without those that are lost on the way."""
        self._recover()
        restores, self._consistent = self._restores, False
        try:
            self._note_iterations(self._ask_all("advance", count), count)
        except (KeyboardInterrupt, SystemExit):  # the actors finish these iterations, which can then be saved
            wanted = self.checkpoints.enabled and self._restores == restores
            if wanted and (sent := self.pool.wait_interrupted(self.options.timeout)):
                self._note_iterations(sent, count)
            raise
        self._recover()
        self._restores = 0
        if self.checkpoints.is_due(self.t) and not self.pool.lost:
            self._save()

    def _note_iterations(self, sent: dict[int, Any], count: int) -> None:
        self.t += count
        self._count(sum(part[0] for part in sent.values()), sum(part[1] for part in sent.values()))
        self._consistent = True

    def certify(self) -> Certificate:
        """Certify one model for the live nodes, as `LocalRuntime.certify` does."""
        if self.lam is None or not self.run.certifiable:
            raise ValueError(UNCERTIFIABLE)
        self.certificates += 1
        live_mask = self.live_mask()
        for node, since in self.log.lost_since.items():
            if self.t - since < REJOIN_GRACE_ITERATIONS:
                return failed_certificate(self.shape, f"node {node} left a moment ago and may return")
        owner, live = int(np.argmax(live_mask)), self.pool.live()
        parts = self._ask_all("certify", owner, live_mask, self.certificates)
        if list(parts) != live:
            return failed_certificate(self.shape, "an actor was lost meanwhile")
        certificate = assemble(list(parts.values()), self.shape, owner, live_mask)
        self._count(certificate.messages, certificate.nbytes, certificate.vectors)
        return certificate

    def models(self) -> Floats:
        """Return every node's model; of lost nodes, the last one fetched."""
        return self.gather("models")

    def weights(self) -> Floats:
        """Return every node's last iterate."""
        return self.gather("w")

    def gather(self, name: str) -> NDArray[Any]:
        """Return an array of all blocks with an entry per node."""
        return self._state.update(name, self._ask_all("values", name))

    def unseen(self, name: str) -> Flags:
        """Return which nodes were lost before this array was ever fetched: `gather` returns zeros for them."""
        return ~self.live_mask() & ~self._state.known(name)

    def sizes(self) -> Floats:
        """Return n_i of every node."""
        return self._sizes

    def live_row_weights(self) -> Floats:
        """Return n_i of the live nodes, 0 for lost ones."""
        return self._sizes * self.live_mask()

    def live_mask(self) -> Flags:
        """Return which nodes are not lost."""
        return self.log.live_mask()

    def lost_mask(self) -> Flags:
        """Which nodes lost their state, because their actor ended."""
        return ~self.live_mask()

    def exchanges(self) -> int:
        """Return how often every block has sent."""
        return int(next(iter(self._ask_all("exchanges").values())))

    def events(self) -> list[dict[str, Any]]:
        """Return the losses, returns and failed checkpoints since the last call."""
        return self.log.take_events()

    def evaluate(self, models: Floats, lam: float) -> Scores:
        """Return objective and error on the rows of live actors; the sums are added in the order of actors."""
        hinge, wrong = np.zeros(len(models)), np.zeros(len(models))
        for start in range(0, len(models), BATCH):
            some = slice(start, start + BATCH)
            total = 0.0
            for loss, error, weight in self._ask_all("losses", self.ray.put(models[some])).values():
                hinge[some] += loss
                wrong[some] += error
                total += weight
            hinge[some] /= total  # per batch: an actor may be lost before the next
            wrong[some] /= total
        ridge = 0.5 * lam * np.einsum("mkd,mkd->m", models, models)
        return Scores(ridge + hinge, wrong)

    def close(self) -> None:
        """Save what is not saved yet, end the actors, and Ray if it was started here."""
        self._closing = True
        try:
            unsaved = self.checkpoints.enabled and self.t > max(self.checkpoints.last, self._began)
            if unsaved and self._consistent and not self.pool.lost:
                self._save()
        except (RuntimeError, self.ray.exceptions.RayError) as error:  # the models are complete
            warnings.warn(f"the end of the run is not saved: {error}", stacklevel=2)
        finally:
            try:
                self.pool.close()
            finally:
                self.cluster.close()

    # checkpoints

    def _save(self) -> None:
        """Make a checkpoint of all actors; if that fails, the run continues and the next is made when it is due."""
        self.checkpoints.note_attempt(self.t)
        try:
            saved = self._ask_all("save", str(self.checkpoints.folder), self.checkpoints.last)
            if self.pool.lost:
                return
            counts = {"t": self.t, "messages": self.messages, "nbytes": self.nbytes, "certificates": self.certificates}
            about = {**counts, "fingerprint": self._fingerprint, "rows": self._rows, "actors": len(self.pool.actors)}
            self.checkpoints.complete(saved, about)
        except SaveFailedError as error:
            self.checkpoints.warn_of_failure(error)
            self.log.checkpoint_failed(self.t, str(error))

    # losses

    def _on_loss(self, index: int, why: str) -> None:
        self.log.lost(index, self.t, why)
        if self.run.refuses_faults:  # every flag must arrive in its round
            raise ClusterError(
                f"actor {index} was lost ({why}); gossip_rounds='diameter' needs every flag to arrive in its round, so "
                "the run cannot continue: use a fixed number of rounds or 'mix'"
            )
        if not self.options.restart and len(self.pool.lost) == 1 < len(self.pool.actors):
            self._warn_of_missing(index)

    def _warn_of_missing(self, index: int) -> None:
        if self.checkpoints.enabled:
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
                failed = self.pool.start_again(self._specs, self._questions, self._admit)
            for index, why in failed.items():
                self.log.restart_failed(index, self.t, why)
            self._given_up = set(failed)
            if not self.pool.live():
                raise ClusterError(self._why_all_lost())
            if failed:
                self._warn_of_missing(min(failed))
            if returned := sorted(lost - set(failed)):
                with suppress(AllLostError):
                    self._restore(returned)

    def _admit(self, index: int, ready: ActorReady) -> None:
        """Accept a restarted actor, or refuse it if it has read other rows than before."""
        first, last = self.bounds[index : index + 2].tolist()
        if nodes := changed_nodes(self._rows[first:last], ready.row_digests, first):
            raise ValueError(
                f"the rows of {describe_nodes(nodes, self.names)} are not those the run began with: put the former "
                "rows back"
            )
        self.pids[index] = ready.pid

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
            self.log.restarted(index, self.t, None if group.checkpoint is None else group.t)
        if self.t > group.t:
            self.pool.ask_all("advance", self.t - group.t)
        self._consistent = consistent

    def _why_all_lost(self) -> str:
        text = f"all actors are lost, the last by {self.log.last_reason}"
        if self._closing:
            return text
        if self._restores > 1:
            text += ", also after the group was restored: do they have enough memory?"
        if self.checkpoints.last >= 0:
            return f"{text}; resume=True continues from iteration {self.checkpoints.last}, in {self.checkpoints.folder}"
        hints = {
            "restart=True has Ray restart them": self.options.restart,
            "checkpoint_dir keeps what was learned": self.checkpoints.enabled,
        }
        return "; ".join([text, *(hint for hint, used in hints.items() if not used)])

    def _count(self, messages: int, nbytes: int, vectors: int | None = None) -> None:
        """Count messages and bytes. ``vectors``: how many messages carry a vector, with its omitted columns; None:
        all."""
        self.messages += messages
        self.nbytes += nbytes + 8 * self.omitted_columns * (messages if vectors is None else vectors)


def even_bounds(nodes: int, parts: int) -> Ints:
    """Return where blocks of consecutive nodes begin and end, as in the simulator."""
    return np.array([nodes * part // parts for part in range(parts + 1)], dtype=np.int64)


def _fingerprint(run: Run, network: Network, seed: int, sizes: Floats, shape: tuple[int, int], bounds: Ints) -> str:
    digest = hashlib.sha256(repr((run, seed, shape, network.transition)).encode())
    for part in (network.indptr, network.indices, *(network.weights or ()), sizes, bounds):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()
