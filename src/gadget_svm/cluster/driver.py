"""The same algorithm on a Ray cluster: an actor holds a block of nodes, mail goes from actor to actor.

Owns the driver's side of a run: it says how many iterations, hears how many messages, fetches models to be looked at,
and says what is done when actors are lost. Mail never passes here.
"""

import hashlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.algorithms.base import Run
from gadget_svm.algorithms.certificate import Certificate
from gadget_svm.cluster.actor import Begun, Charge
from gadget_svm.cluster.actor_pool import AllLost, Crew
from gadget_svm.cluster.checkpoint_schedule import Saves
from gadget_svm.cluster.connection import Cluster
from gadget_svm.cluster.last_known_state import Seen
from gadget_svm.cluster.loss_log import Account
from gadget_svm.cluster.restarts import Restarts
from gadget_svm.cluster.row_digests import changed, named
from gadget_svm.cluster.timeouts import ClusterError
from gadget_svm.cluster.worker import assemble, keeps_mass, refused, takes_back
from gadget_svm.core.block import Links
from gadget_svm.core.network import Network
from gadget_svm.core.objective import BATCH, Scores
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.simulation.engine import REJOIN_GRACE_ITERATIONS, UNCERTIFIABLE

STAYS_AWAY = "this algorithm cannot take nodes back: use pdmm, or gadget with push-sum"


class RayRuntime:
    """The driver's side: the surface of `LocalRuntime`, over actors.

    First actors with their rows; then, when it is known what is to be run, `begin`.
    """

    def __init__(self, cluster: Cluster, bounds: Ints, sources: Sequence[Any]) -> None:
        self.cluster, self.ray, self.options = cluster, cluster.ray, cluster.options
        self.bounds = bounds
        self.account = Account(bounds)
        self.saves = Saves(self.options.checkpoint_dir, self.options.checkpoint_every, len(sources))
        self.crew = Crew(cluster, sources, self._lost)
        self._restarts = Restarts(self.crew, self._take_over, self._admit, self._not_back)
        self._asked: list[tuple[Any, ...]] = []  # what to ask of a new actor's rows, too
        self._charges: list[Any] = []
        self._seen = Seen(bounds)
        self._given_up: set[int] = set()
        self._began_again = -1  # where the run was when all were lost
        self._whole = False  # whether all blocks are of iteration t, so that they may be saved
        self._ending = False
        self.t = self.messages = self.nbytes = self.omitted_columns = self.certificates = 0
        self._rows: list[str] = []  # digests of every node's rows, where they may be needed
        self.pids: list[int] = []
        self.names: list[str] = []  # of shards that the actors read

    # beginning

    def ask(self, method: str, *args: Any) -> list[Any]:
        """Something of every actor's rows; what it answered is needed, so a loss is an error here."""
        self._asked.append((method, *args))
        return self.crew.starting([actor.ask.remote(method, *args) for actor in self.crew.actors])

    def begin(
        self, run: Run, network: Network, seed: int, sizes: Floats, shape: tuple[int, int], lam: float | None,
        memory: Callable[[int, int], dict[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        """Make the blocks, from ``memory(first, last)`` if there is one, or from the checkpoint to be resumed."""
        self.run, self.lam, self._sizes, self.shape = run, lam, sizes, shape
        self._print = _fingerprint(run, network, seed, sizes, shape, self.bounds)
        threads, digest = max(1, int(self.options.num_cpus)), self.options.restart or self.options.checkpoint_dir
        for index, (first, last) in enumerate(zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True)):
            charge = Charge(
                index, self.bounds, run, Links.of(network, first, last), sizes[first:last], shape, seed, lam, threads,
                memory(first, last) if memory is not None else {}, bool(digest), self._print,
            )  # fmt: skip
            self._charges.append(self.ray.put(charge))
        begun: list[Begun] = self.crew.starting(
            [actor.begin.remote(charge) for actor, charge in zip(self.crew.actors, self._charges, strict=True)]
        )
        self.pids, self._rows = [each.pid for each in begun], [digest for each in begun for digest in each.digests]
        resumed = bool(self.options.resume)
        self.saves.start(resumed)
        self._began = self.t
        self._set_out(resumed)
        self._whole = True

    def _set_out(self, resumed: bool) -> list[int]:
        """All actors have their blocks, or take them from the checkpoint, and get to know one another; which of them
        had been lost before and are back."""
        back = self._resume() if resumed else []
        self.crew.starting([actor.meet.remote(list(self.crew.actors), self.t) for actor in self.crew.actors])
        self.account.mass = float(self._sizes.sum())
        if resumed and keeps_mass(self.run):  # some may have been lost before, and some be back
            phi = self.crew.starting([actor.values.remote("phi") for actor in self.crew.actors])
            self.account.mass = float(sum(part.sum() for part in phi))
        return back

    def warm_up(self) -> None:
        """Done by `begin`."""

    # learning

    def advance(self, count: int) -> None:
        """``count`` iterations of all actors; those that are lost on the way are left behind."""
        if self.options.restart and self.crew.lost():
            self._restart()
        again, self._whole = self._began_again, False
        try:
            self._learn(self._all("advance", count), count)
        except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM: the actors go on, so this can still be saved
            kept = self.saves.folder is not None and self._began_again == again
            if kept and (sent := self.crew.finished(self.options.timeout)):
                self._learn(sent, count)
            raise
        self._weigh()
        if self.saves.due(self.t) and not self._forsaken():
            self._try_to_save()

    def _learn(self, sent: dict[int, Any], count: int) -> None:
        self.t += count
        self._count(sum(part[0] for part in sent.values()), sum(part[1] for part in sent.values()))
        self._whole = True

    def certify(self) -> Certificate:
        """As `LocalRuntime.certify`: of those who are here, by an exchange of their own."""
        if self.lam is None or not self.run.certifiable:
            raise ValueError(UNCERTIFIABLE)
        self.certificates += 1
        here = self.live_mask()
        for node in np.flatnonzero(~here).tolist():
            if self.t - self.account.gone.get(node, self.t) < REJOIN_GRACE_ITERATIONS:
                return refused(self.shape, f"node {node} has only just left and may come back")
        owner, live = int(np.argmax(here)), self.crew.live()
        found = self._all("certify", owner, here, self.certificates)
        if list(found) != live:
            return refused(self.shape, "an actor was lost meanwhile")
        certificate = assemble(list(found.values()), self.shape, owner, here)
        self._count(certificate.messages, certificate.nbytes, certificate.vectors)
        return certificate

    def models(self) -> Floats:
        """Every node's model; of nodes that are lost, the one last seen."""
        return self.gather("models")

    def weights(self) -> Floats:
        """Every node's last iterate."""
        return self.gather("w")

    def gather(self, name: str) -> NDArray[Any]:
        """An array of all blocks with an entry per node."""
        return self._seen.put_together(name, self._all("values", name))

    def unseen(self, name: str) -> Flags:
        """Which nodes are lost and were never asked for this: `gather` has zeros of them."""
        return ~self.live_mask() & ~self._seen.known(name)

    def sizes(self) -> Floats:
        """n_i of every node."""
        return self._sizes

    def live_row_weights(self) -> Floats:
        """n_i of the nodes that are here."""
        return self._sizes * self.live_mask()

    def live_mask(self) -> Flags:
        """Which nodes are not lost."""
        return self.account.live_mask()

    def lost_mask(self) -> Flags:
        """Which nodes lost their state, as their actor ended."""
        return ~self.live_mask()

    def exchanges(self) -> int:
        """How often every block has sent."""
        return int(next(iter(self._all("exchanges").values())))

    def events(self) -> list[dict[str, Any]]:
        """Who was lost, who came back and what could not be saved since this was last asked for."""
        self._weigh()
        return self.account.tell()

    def judge(self, models: Floats, lam: float) -> Scores:
        """Objective and error on the rows of the actors that are here; the sums are added in the order of actors."""
        hinge, wrong = np.zeros(len(models)), np.zeros(len(models))
        for start in range(0, len(models), BATCH):
            some = slice(start, start + BATCH)
            total = 0.0
            for loss, error, weight in self._all("losses", self.ray.put(models[some])).values():
                hinge[some] += loss
                wrong[some] += error
                total += weight
            hinge[some] /= total  # an actor may be lost before the next are judged
            wrong[some] /= total
        ridge = 0.5 * lam * np.einsum("mkd,mkd->m", models, models)
        return Scores(ridge + hinge, wrong)

    def close(self) -> None:
        """Save what was not saved yet, end the actors, and Ray if we started it. Nothing begins again here."""
        self._ending = True
        try:
            unsaved = self.saves.folder is not None and self.t > self.saves.last
            if unsaved and self._whole and self.crew.live() and not self._forsaken():
                self._try_to_save()
        except (RuntimeError, self.ray.exceptions.RayError) as error:  # no model is at stake
            warnings.warn(f"the end of the run is not saved: {error}", stacklevel=2)
        finally:
            try:
                self._restarts.close()
                self.crew.close()
            finally:
                self.cluster.close()

    # checkpoints

    def save(self) -> None:
        """A checkpoint of all actors that are here."""
        if self.saves.folder is None:
            return
        found = self._all("save", str(self.saves.folder))
        if self._forsaken():
            return
        counted = {"messages": self.messages, "nbytes": self.nbytes, "certificates": self.certificates}
        self.saves.complete(found, {"t": self.t, **counted, "fingerprint": self._print, "rows": self._rows})

    def _try_to_save(self) -> None:
        if why := self.saves.attempt(self.t, self.save):
            self.account.unsaved(self.t, why)

    def _forsaken(self) -> bool:
        """Whether some are lost that cannot be taken back: a checkpoint without them could not be resumed."""
        return bool(self.crew.lost()) and not takes_back(self.run)

    def _resume(self) -> list[int]:
        """Go on from the checkpoint. Actors that had been lost are back, as far as theirs goes; which, is returned."""
        folder = str(self.saves.folder)
        about = self.saves.read(self._print, self._rows, self.names)
        self.t, self.messages, self.nbytes = about["t"], about["messages"], about["nbytes"]
        self.certificates = about["certificates"]
        back = self.saves.behind()
        whole = [index for index in range(len(self.crew.actors)) if index not in back]
        if back and not takes_back(self.run):
            raise ValueError(f"the checkpoint in {folder} is of a run that had lost actors, and {STAYS_AWAY}")
        self.crew.starting([self.crew.actors[index].restore.remote(folder, self.t) for index in whole])
        exchanges = self.crew.starting([self.crew.actors[whole[0]].exchanges.remote()])[0]
        for index in back:
            self.crew.starting([self._rejoined(self.crew.actors[index], index, exchanges)])
            self._back(index)
        return back

    # actors that are lost and come back

    def _all(self, method: str, *args: Any) -> dict[int, Any]:
        """The answers of all actors that are here; if none is left, and it is asked for, of new ones."""
        again = self.options.restart and self.t > self._began_again and not self._ending
        try:
            return self.crew.all(method, *args)
        except AllLost:
            if not again:
                raise ClusterError(self._why_all_lost()) from None
        try:
            self._begin_again()
            return self.crew.all(method, *args)
        except AllLost:
            raise ClusterError(self._why_all_lost()) from None

    def _begin_again(self) -> None:
        """New actors in all places, from the last checkpoint or the beginning, and forward to where the run was: the
        seed is the same, and so are the models. Not twice at one place, where something ends them all."""
        self._began_again = there = self.t
        counted, whole, self._whole = (self.messages, self.nbytes, self.certificates), self._whole, False
        self._restarts.close()
        self._given_up.clear()
        self.crew.engage()
        begun: list[Begun] = self.crew.starting([self._take_over(i, actor) for i, actor in enumerate(self.crew.actors)])
        self._require_same_rows([digest for each in begun for digest in each.digests], 0)
        self.pids = [each.pid for each in begun]
        self.account.all_anew()
        self.t = self._began
        back = self._set_out(self._is_resumable())
        since, self.t = self.t, there
        for index in set(range(len(self.crew.actors))) - set(back):  # now: who is lost from here on stays lost
            self._back(index)
        if there > since:
            self.crew.all("advance", there - since)
        self.messages, self.nbytes, self.certificates = counted  # the way there was gone before
        self._whole = whole

    def _is_resumable(self) -> bool:
        """Whether there is a checkpoint of this run, and if some of it are older than the others, they can be taken
        back."""
        there = bool(self.saves.last or self.options.resume)
        return there and (not self.saves.behind() or takes_back(self.run))

    def _why_all_lost(self) -> str:
        said = f"all actors are lost, the last by {self.account.last_reason()}"
        if self._ending:
            return said
        if self._began_again >= 0:
            said += ", once more where they were lost before: have they memory enough?"
        if self.saves.last and self._is_resumable():
            return f"{said}; resume=True goes on from iteration {self.saves.last}, in {self.saves.folder}"
        hints = {
            "restart=True starts new ones": self.options.restart,
            "checkpoint_dir keeps what was learned": self.saves.folder,
        }
        return "; ".join([said, *(hint for hint, had in hints.items() if not had)])

    def _lost(self, index: int, why: str) -> None:
        self.account.lost(index, self.t, why)
        if getattr(self.run, "still", None) is not None:
            raise ClusterError(
                f"actor {index} was lost ({why}); gossip_rounds='diameter' trusts that every flag arrives in its "
                "round, so the run cannot go on: use a fixed number of rounds or 'mix'"
            )
        if self._forsaken() and len(self.crew.lost()) == 1 < len(self.crew.actors):
            self.saves.pause(f"actor {index} is lost, and {STAYS_AWAY}")

    def _weigh(self) -> None:
        """Ask what mass is left, if any was lost."""
        if keeps_mass(self.run):
            self.account.with_transition_of(
                lambda: float(sum(part.sum() for part in self._all("values", "phi").values()))
            )

    def _restart(self) -> None:
        """New actors in the place of the lost, with their rows and their last checkpoint; they join from here on."""
        lost = self.crew.lost()
        if takes_back(self.run):
            self._restarts.step(lost)
            return
        for index in set(lost) - self._given_up:
            self._given_up.add(index)
            self._not_back(index, STAYS_AWAY)

    def _take_over(self, index: int, actor: Any) -> Any:
        return actor.take_over.remote(self._asked, self._charges[index])

    def _admit(self, index: int, actor: Any, begun: Begun) -> None:
        """Let an actor in that has its rows and its block, unless all others are lost meanwhile: then all places are
        taken by new ones, and it has been ended."""
        first, last = self.account.nodes(index)
        self._require_same_rows(begun.digests, first)
        exchanges = self.exchanges()
        if index not in self._restarts.under_way:
            return
        self.ray.get(self._rejoined(actor, index, exchanges), timeout=self.options.timeout)
        self.crew.admit(index, actor)
        self.pids[index] = begun.pid
        self.account.mass += float(self._sizes[first:last].sum())
        self._back(index)

    def _require_same_rows(self, digests: list[str], first: int) -> None:
        """Of an actor that reads them again, whose nodes begin with ``first``."""
        before = self._rows[first : first + len(digests)]
        if nodes := changed(before, digests, first):
            raise ValueError(
                f"the rows of {named(nodes, self.names)} are not those the run began with: put the former ones back"
            )

    def _rejoined(self, actor: Any, index: int, exchanges: int) -> Any:
        """Let an actor take the place of one that was lost."""
        others = [actor if i == index else other for i, other in enumerate(self.crew.actors)]
        return actor.rejoin.remote(others, self.t, exchanges, self.options.checkpoint_dir, self.saves.kept.get(index))

    def _back(self, index: int) -> None:
        self.account.back(index, self.t, self.saves.kept.get(index))

    def _not_back(self, index: int, why: str) -> None:
        self.account.not_back(index, self.t, why)

    # small things

    def _count(self, messages: int, nbytes: int, vectors: int | None = None) -> None:
        """``vectors``: how many of the messages carry a vector; None: all. Omitted columns count in those alone."""
        self.messages += messages
        self.nbytes += nbytes + 8 * self.omitted_columns * (messages if vectors is None else vectors)


STATE_FORMAT = 2
"""Of a block's arrays in a checkpoint; a change of their meaning makes it the checkpoint of another run."""


def even_bounds(nodes: int, parts: int) -> Ints:
    """Where blocks of consecutive nodes begin and end: as the simulator's."""
    return np.array([nodes * part // parts for part in range(parts + 1)], dtype=np.int64)


def _fingerprint(run: Run, network: Network, seed: int, sizes: Floats, shape: tuple[int, int], bounds: Ints) -> str:
    said = hashlib.sha256(repr((STATE_FORMAT, run, seed, shape, network.transition)).encode())
    for part in (network.indptr, network.indices, *(network.weights or ()), sizes, bounds):
        said.update(np.ascontiguousarray(part).tobytes())
    return said.hexdigest()
