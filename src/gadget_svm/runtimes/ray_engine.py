"""The same algorithm on a Ray cluster: an actor holds a block of nodes, mail goes from actor to actor.

Owns the driver's side: actors, their deaths and every wait for them. It says how many iterations, hears how many
messages, and fetches models to be looked at; mail never passes here.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.algorithms.certificate import Certificate
from gadget_svm.algorithms.contract import Run
from gadget_svm.block import Links
from gadget_svm.network import Network
from gadget_svm.objective import BATCH, Scores
from gadget_svm.runtimes import checkpoints
from gadget_svm.runtimes.local import FLEETING, UNCERTIFIABLE, certifiable
from gadget_svm.runtimes.ray_cluster import Cluster
from gadget_svm.runtimes.ray_host import Charge
from gadget_svm.runtimes.worker import assemble, has_mass, refused

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
A_WHILE = 60.0
"""Seconds after which a checkpoint is due, however few the iterations."""


class RayRuntime:
    """The driver's side: the surface of `LocalRuntime`, over actors.

    First actors with their rows; then, when it is known what is to be run, `begin`.
    """

    def __init__(self, cluster: Cluster, bounds: Ints, sources: Sequence[Any]) -> None:
        self.cluster, self.ray, self.options = cluster, cluster.ray, cluster.options
        self.bounds = bounds
        self._sources = [self.ray.put(source) for source in sources]
        self._actors: list[Any] = [cluster.make(source) for source in self._sources]
        self._asked: list[tuple[Any, ...]] = []  # what to ask of a new actor's rows, too
        self._charges: list[Any] = []
        self._happened: list[dict[str, Any]] = []
        self._unweighed: list[dict[str, Any]] = []
        self._seen: dict[str, Floats] = {}  # what was last fetched: all that is known of the lost
        self._given_up: set[int] = set()
        self.gone: dict[int, int] = {}  # who is away, and since which iteration
        self.t = self.messages = self.nbytes = self.spared = self.certificates = 0
        self._saved, self._saved_at = 0, time.monotonic()
        self._kept: dict[int, int] = {}  # the last generation of every actor's block on disk
        self._mass = 0.0
        self.pids: list[int] = []
        self.names: list[str] = []  # of shards that the actors read

    # beginning

    def ask(self, method: str, *args: Any) -> list[Any]:
        """Something of every actor's rows; what it answered is needed, so a loss is an error here."""
        self._asked.append((method, *args))
        return self._starting([actor.ask.remote(method, *args) for actor in self._actors])

    def begin(
        self, run: Run, network: Network, seed: int, sizes: Floats, shape: tuple[int, int], lam: float | None,
        memory: Callable[[int, int], dict[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        """Make the blocks, from ``memory(first, last)`` if there is one, or from the checkpoint to be resumed."""
        self.run, self.lam, self._sizes, self.shape = run, lam, sizes, shape
        self._print = _fingerprint(run, network, seed, sizes, shape, self.bounds)
        threads = max(1, int(self.options.num_cpus))
        for index, (first, last) in enumerate(zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True)):
            charge = Charge(
                index, self.bounds, run, Links.of(network, first, last), sizes[first:last], shape, seed, lam, threads,
                memory(first, last) if memory is not None else {},
            )  # fmt: skip
            self._charges.append(self.ray.put(charge))
        self.pids = self._starting(
            [actor.begin.remote(charge) for actor, charge in zip(self._actors, self._charges, strict=True)]
        )
        self._mass = float(sizes.sum())
        if self.options.checkpoint_dir is not None and not self.options.resume:
            checkpoints.set_aside(Path(self.options.checkpoint_dir))
        back = self._resume() if self.options.resume else []
        self._starting([actor.meet.remote(list(self._actors), self.t, back) for actor in self._actors])

    def _starting(self, refs: list[Any]) -> list[Any]:
        """All answers, or an error that says what hinders the start."""
        ready, late = self.ray.wait(refs, num_returns=len(refs), timeout=self.options.start_timeout)
        if late:
            have = self.ray.cluster_resources().get("CPU", 0)
            raise TimeoutError(
                f"{len(late)} of {len(refs)} actors did not start within start_timeout="
                f"{self.options.start_timeout:g} s: the cluster has {have:g} CPUs, {len(refs)} actors of "
                f"{self.options.num_cpus:g} were asked for; ask for fewer with engine_options={{'actors': ...}}"
            )
        try:
            return list(self.ray.get(ready, timeout=self.options.timeout))
        except self.ray.exceptions.RayTaskError as error:
            raise _cause(error) from None

    def rehearse(self) -> None:
        """Done by `begin`."""

    # learning

    def advance(self, count: int) -> None:
        """``count`` iterations of all actors; those that are lost on the way are left behind."""
        if self.options.restart:
            self._restart()
        sent = self._all("advance", count)
        self.t += count
        messages = sum(part[0] for part in sent.values())
        self._count(messages, sum(part[1] for part in sent.values()))
        self._weigh()
        due = self.t - self._saved >= self.options.checkpoint_every or time.monotonic() - self._saved_at > A_WHILE
        if self.options.checkpoint_dir is not None and due:
            self.save()

    def certify(self) -> Certificate:
        """As `LocalRuntime.certify`: of those who are here, by an exchange of their own."""
        if self.lam is None or not certifiable(self.run):
            raise ValueError(UNCERTIFIABLE)
        self.certificates += 1
        here = self.here()
        for node in np.flatnonzero(~here).tolist():
            if self.t - self.gone.get(node, self.t) < FLEETING:
                return refused(self.shape, f"node {node} has only just left and may come back")
        owner, live = int(np.argmax(here)), self._live()
        found = self._all("certify", owner, here, self.certificates)
        if list(found) != live:
            return refused(self.shape, "an actor was lost meanwhile")
        certificate = assemble(list(found.values()), self.shape, owner)
        self._count(certificate.messages, certificate.nbytes)
        return certificate

    def models(self) -> Floats:
        """Every node's model; of nodes that are lost, the one last seen."""
        return self.gather("models")

    def weights(self) -> Floats:
        """Every node's last iterate."""
        return self.gather("w")

    def gather(self, name: str) -> NDArray[Any]:
        """An array of all blocks with an entry per node."""
        parts = self._all("values", name)
        example = next(iter(parts.values()))
        whole = self._seen.get(name)
        if whole is None or not self.gone:
            whole = np.zeros((int(self.bounds[-1]), *example.shape[1:]), dtype=example.dtype)
        else:
            whole = whole.copy()
        for index, part in parts.items():
            whole[self.bounds[index] : self.bounds[index + 1]] = part
        self._seen[name] = whole
        return whole

    def sizes(self) -> Floats:
        """n_i of every node."""
        return self._sizes

    def voices(self) -> Floats:
        """n_i of the nodes that are here."""
        return self._sizes * self.here()

    def here(self) -> Flags:
        """Which nodes are not lost."""
        here = np.ones(int(self.bounds[-1]), dtype=np.bool_)
        here[list(self.gone)] = False
        return here

    def exchanges(self) -> int:
        """How often every block has sent."""
        return int(next(iter(self._all("exchanges").values())))

    def events(self) -> list[dict[str, Any]]:
        """Who was lost and who came back since this was last asked for."""
        self._weigh()
        happened, self._happened = self._happened, []
        return happened

    def judge(self, models: Floats, lam: float) -> Scores:
        """Objective and error on the rows of the actors that are here; the sums are added in the order of actors."""
        hinge, wrong, total = np.zeros(len(models)), np.zeros(len(models)), 0.0
        for start in range(0, len(models), BATCH):
            some = slice(start, start + BATCH)
            total = 0.0
            for loss, error, weight in self._all("losses", self.ray.put(models[some])).values():
                hinge[some] += loss
                wrong[some] += error
                total += weight
        ridge = 0.5 * lam * np.einsum("mkd,mkd->m", models, models)
        return Scores(ridge + hinge / total, wrong / total)

    def close(self) -> None:
        """Save what was not saved yet, end the actors, and Ray if we started it."""
        if self.options.checkpoint_dir is not None and self.t > self._saved and self._live():
            with suppress(RuntimeError, OSError, self.ray.exceptions.RayError):  # no model is at stake
                self.save()
        for actor in self._actors:
            if actor is not None:
                with suppress(Exception):  # it may be gone already
                    self.ray.kill(actor)
        self._actors = [None] * len(self._actors)
        self.cluster.close()

    # checkpoints

    def save(self) -> None:
        """A checkpoint of all actors that are here."""
        folder = self.options.checkpoint_dir
        if folder is None:
            return
        self._kept |= dict.fromkeys(self._all("save", folder), self.t)
        about: dict[str, Any] = {
            "t": self.t,
            "messages": self.messages,
            "nbytes": self.nbytes,
            "certificates": self.certificates,
        }
        about |= {"kept": [self._kept.get(index) for index in range(len(self._actors))], "fingerprint": self._print}
        checkpoints.save_run(Path(folder), about)
        self._saved, self._saved_at = self.t, time.monotonic()

    def _resume(self) -> list[int]:
        """Go on from the checkpoint. Actors that had been lost are back, as far as theirs goes; which, is returned."""
        folder = str(self.options.checkpoint_dir)
        about = checkpoints.load_run(Path(folder))
        if about["fingerprint"] != self._print:
            raise ValueError(
                f"the checkpoint in {folder} is of another run: data, nodes, topology, algorithm, seed and the number "
                f"of actors, there {len(about['kept'])}, must be the same"
            )
        self.t, self.messages, self.nbytes = about["t"], about["messages"], about["nbytes"]
        self.certificates, self._saved = about["certificates"], about["t"]
        self._kept = {index: t for index, t in enumerate(about["kept"]) if t is not None}
        whole = [index for index in range(len(self._actors)) if self._kept.get(index) == self.t]
        back = [index for index in range(len(self._actors)) if index not in whole]
        if back:
            self._check_return()
        self._starting([self._actors[index].restore.remote(folder, self.t) for index in whole])
        exchanges = self._starting([self._actors[whole[0]].exchanges.remote()])[0]
        for index in back:
            self._starting([self._rejoined(self._actors[index], index, exchanges)])
            self._note_return(index)
        return back

    # actors that live and die

    def _live(self) -> list[int]:
        return [index for index, actor in enumerate(self._actors) if actor is not None]

    def _all(self, method: str, *args: Any) -> dict[int, Any]:
        """The answers of all actors that are still here at the end, by their number. Every wait has its timeout."""
        pending = {getattr(self._actors[i], method).remote(*args): i for i in self._live()}
        answers: dict[int, Any] = {}
        before: dict[int, Any] = {}
        while pending:
            ready, _ = self.ray.wait(list(pending), num_returns=1, timeout=self.options.timeout / 2)
            for ref in ready:
                index = pending.pop(ref)
                if self._actors[index] is not None:
                    self._take(ref, index, answers)
            if not ready:
                before = self._probe(set(pending.values()), before)
            pending = {ref: index for ref, index in pending.items() if self._actors[index] is not None}
        if not answers:
            raise RuntimeError(
                f"all actors are lost at iteration {self.t}: see Ray's logs; with checkpoint_dir the run can be resumed"
            )
        return {index: answers[index] for index in sorted(answers) if self._actors[index] is not None}

    def _take(self, ref: Any, index: int, answers: dict[int, Any]) -> None:
        exceptions = self.ray.exceptions
        try:
            answers[index] = self.ray.get(ref, timeout=self.options.timeout)
        except exceptions.RayTaskError as error:
            raise _cause(error) from None
        except (exceptions.RayError, exceptions.GetTimeoutError) as error:
            self._lose(index, type(error).__name__)

    def _probe(self, pending: set[int], before: dict[int, Any]) -> dict[int, Any]:
        """Nobody has answered for long. Who does not say what it does is lost; if all wait for one another, one is."""
        asked = {self._actors[i].status.remote(): i for i in self._live()}
        ready, silent = self.ray.wait(list(asked), num_returns=len(asked), timeout=self.options.timeout / 2)
        now: dict[int, Any] = {}
        for ref in ready:
            try:
                now[asked[ref]] = self.ray.get(ref, timeout=self.options.timeout)
            except self.ray.exceptions.RayError as error:
                self._lose(asked[ref], type(error).__name__)
        for ref in silent:
            self._lose(asked[ref], "no answer")
        stuck = [i for i in pending if i in now and now[i][1] and before.get(i) == now[i]]
        if not silent and len(stuck) == len(pending & set(now)) and stuck:
            awaited = [other for i in stuck for other in now[i][1] if self._actors[other] is not None]
            if awaited:
                self._lose(max(set(awaited), key=lambda i: (awaited.count(i), i)), "its mail does not arrive")
        return now

    def _lose(self, index: int, why: str) -> None:
        """An actor is gone: so are its nodes, and the others are told."""
        actor, self._actors[index] = self._actors[index], None
        if actor is None:
            return
        with suppress(Exception):  # it may be gone already
            self.ray.kill(actor)
        first, last = self._range(index)
        for node in range(first, last):
            self.gone.setdefault(node, self.t)
        event = {"event": "lost", "actor": index, "nodes": [first, last - 1], "iteration": self.t, "why": why}
        self._happened.append(event)
        self._unweighed.append(event)
        for other in self._live():
            self._actors[other].forget.remote(index)
        if getattr(self.run, "still", None) is not None:
            raise RuntimeError(
                f"actor {index} was lost ({why}); gossip_rounds='diameter' trusts that every flag arrives in its "
                "round, so the run cannot go on: use a fixed number of rounds or 'mix'"
            )

    def _range(self, index: int) -> tuple[int, int]:
        return int(self.bounds[index]), int(self.bounds[index + 1])

    def _weigh(self) -> None:
        """Push-Sum's mass that went with the lost, or was on its way to them."""
        events, self._unweighed = self._unweighed, []
        if not events or not (has_mass(self.run) and getattr(self.run, "persist", False) and self.t):
            return
        now = float(sum(part.sum() for part in self._all("values", "phi").values()))
        for event in events:
            event["mass_lost"] = self._mass - now
        self._mass = now

    def _restart(self) -> None:
        """New actors in the place of the lost, with their rows and their last checkpoint; they join from here on."""
        for index, actor in enumerate(self._actors):
            if actor is None and index not in self._given_up:
                try:
                    self._replace(index)
                except (self.ray.exceptions.RayError, TimeoutError, RuntimeError, ValueError) as error:
                    self._given_up.add(index)
                    self._happened.append(
                        {"event": "restart failed", "actor": index, "iteration": self.t, "why": str(error)[:200]}
                    )

    def _replace(self, index: int) -> None:
        self._check_return()
        exchanges, live = self.exchanges(), self._live()
        actor = self.cluster.make(self._sources[index])
        try:
            for question in self._asked:
                self._starting([actor.ask.remote(*question)])
            (pid,) = self._starting([actor.begin.remote(self._charges[index])])
            self._starting([self._rejoined(actor, index, exchanges)])
        except BaseException:
            self.ray.kill(actor)
            raise
        self._actors[index], self.pids[index] = actor, pid
        refs = [self._actors[i].welcome.remote(index, actor) for i in live if self._actors[i] is not None]
        self.ray.wait(refs, num_returns=len(refs), timeout=self.options.timeout)
        for node in range(*self._range(index)):
            self.gone.pop(node, None)
        self._note_return(index)

    def _check_return(self) -> None:
        if not (hasattr(self.run, "drop") or has_mass(self.run)):
            raise ValueError("this algorithm cannot take nodes back: use pdmm, or gadget with push-sum")

    def _rejoined(self, actor: Any, index: int, exchanges: int) -> Any:
        """Let an actor take the place of one that was lost."""
        others = [actor if i == index else other for i, other in enumerate(self._actors)]
        return actor.rejoin.remote(others, self.t, exchanges, self.options.checkpoint_dir, self._kept.get(index))

    def _note_return(self, index: int) -> None:
        first, last = self._range(index)
        self._mass += float(self._sizes[first:last].sum())
        about = {"nodes": [first, last - 1], "iteration": self.t, "from": self._kept.get(index)}
        self._happened.append({"event": "restarted", "actor": index, **about})

    def _count(self, messages: int, nbytes: int) -> None:
        self.messages += messages
        self.nbytes += nbytes + 8 * self.spared * messages


def _cause(error: Any) -> Exception:
    """What went wrong in an actor, as it would have been raised here."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) else RuntimeError(str(error))


def even_bounds(nodes: int, parts: int) -> Ints:
    """Where blocks of consecutive nodes begin and end: as the simulator's."""
    return np.array([nodes * part // parts for part in range(parts + 1)], dtype=np.int64)


def _fingerprint(run: Run, network: Network, seed: int, sizes: Floats, shape: tuple[int, int], bounds: Ints) -> str:
    said = hashlib.sha256(repr((run, seed, shape, network.transition)).encode())
    for part in (network.indptr, network.indices, sizes, bounds):
        said.update(np.ascontiguousarray(part).tobytes())
    return said.hexdigest()
