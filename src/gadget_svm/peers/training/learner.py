"""One node that learns: a block of one, the simulator's algorithm, and what is measured of them. No clock, no wire."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.algorithms import Gadget, GadgetRun, Pdmm
from gadget_svm.algorithms.base import Run, models
from gadget_svm.algorithms.pdmm import PdmmRun
from gadget_svm.core.block import Block, Links
from gadget_svm.core.messages import Delivery, MessageBatch
from gadget_svm.core.network import Network
from gadget_svm.core.rows import Rows, Shares
from gadget_svm.estimator.problem import as_csr
from gadget_svm.gossip import Round, RunningSum
from gadget_svm.peers.charter import Charter
from gadget_svm.peers.held import held, pulled, spare_turns
from gadget_svm.peers.recency import Recency
from gadget_svm.topologies import build

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

THETA = 0.8
"""How far to go towards a letter. On clocks of their own, senders that tick faster have heard little of an answer in
between, whatever the number of their letter: all the way, and a slow node among them never settles."""
SETTLED = 0.01
"""The duality gap, as a part of the objective, at which one who was left alone has solved its own problem."""
_STATE = ("w", "s", "phi", "held", "w_sum", "iterates", "steps")


class Parcel(NamedTuple):
    """One message between nodes, as numbers."""

    other: int
    seq: int
    vector: Floats
    weight: float
    note: float | None


@dataclass(frozen=True)
class Measures:
    """How the node's model does on its own rows."""

    objective: float  # lam/2 |w|^2 + mean hinge
    loss: float  # the sum of hinges, of the worst of its own and its neighbours' models
    slack: float  # hinges above what alpha promises, likewise: a share of the duality gap; -1 without dual variables
    norm: float
    accuracy: float


def algorithm_of(charter: Charter, rows: int) -> Gadget | Pdmm:
    """What peers run: PDMM, or GADGET by running sums with a pass's worth of steps between two pushes."""
    if charter.algorithm == "pdmm":
        return Pdmm(theta=THETA)
    return Gadget(gossip="running-sum", solver="implicit", local_steps=max(rows, 20))


class Learner:
    """A node's state and how it moves on: `solve`, send what it gives, `absorb` what came."""

    def __init__(
        self, X: sp.csr_matrix, label: NDArray[np.int32], charter: Charter, node: int, *, seed: int = 0,
        network: Network | None = None, algorithm: Gadget | Pdmm | None = None,
    ) -> None:  # fmt: skip
        n = X.shape[0]
        self.charter, self.node, self.label = charter, node, label
        self.X = as_csr(X, charter.intercept)
        # These runs ask nothing of a network but that there is one; a peer's own is made of links alone.
        whole = build("complete", 2) if network is None else network
        chosen = algorithm_of(charter, n) if algorithm is None else algorithm
        whole = chosen.with_transition_of(whole)
        run: Any = chosen.bind(whole, charter.lam, 1.0 / np.sqrt(charter.lam), lossy=True, sizes=np.array([float(n)]))
        self.run: Run = run
        shares = Shares(np.arange(n, dtype=np.int64), np.array([0, n], dtype=np.int64), np.empty(0))
        rows = Rows.of(self.X, label, np.ones(n), shares)
        first = 0 if network is None else node
        self.block = Block.fresh(
            whole, rows, shares.sizes, charter.outputs, charter.width, seed=seed, first=first, last=first + 1
        )
        if network is None:
            self.block.first, self.block.links = node, Links.alone(np.zeros(0, dtype=np.int32))
        self.t = 0
        self.kept: frozenset[int] = frozenset()  # neighbours that are away, and whose edges stay as they are
        self._running: Round | None = None
        self._bereft = False  # whether the last neighbour is gone, and alpha is still that of everybody's model
        self._recency = Recency()

    @property
    def neighbours(self) -> list[int]:
        """Those the node sends to."""
        targets, is_open = self.block.links.target, self.block.edge.get("open")
        return [int(j) for j in (targets if is_open is None else targets[is_open])]

    @property
    def duals(self) -> Floats | None:
        """alpha, if the algorithm has any."""
        dual = self.block.edge.get("dual")
        return None if dual is None else np.asarray(dual, dtype=np.float64)

    def set_neighbours(self, neighbours: Sequence[int]) -> None:
        """From now on the node gossips with these."""
        self._between()
        new = set(neighbours).difference(self.block.links.target.tolist())
        linked = self.duals is not None and bool(self.neighbours)
        with held(self.block, self.kept):
            self.run.set_neighbours(self.block, np.array(sorted(neighbours), dtype=np.int64))
        self._bereft = (linked or self._bereft) and not self.neighbours
        if new and isinstance(self.run, GadgetRun):
            self.run.reset_edge(self.block, min(new))  # a new epoch: all are to hear of it, see `recency`

    def reset_edge(self, other: int) -> None:
        """A neighbour was started anew."""
        self._between()
        self.run.reset_edge(self.block, other)

    def settle(self, in_time: Callable[[], bool]) -> int:
        """Who has just lost the last neighbour solves the problem of its own rows, in time; in how many repeats.

        w is made of its own alphas alone from then on, and they were those of the model of all: a model of nothing at
        first, far worse than any that the rows alone would give. Repeats are no ticks.
        """
        if not self._bereft:
            return 0
        self._between()
        repeats, ticks = 0, self.t
        while in_time() and self._gap() > SETTLED:
            for _ in range(1 + repeats // 8):  # to look costs as much as a repeat
                self.solve()
                self.absorb([])
                repeats += 1
        self.refresh()
        self._bereft, self.t = False, ticks
        return repeats

    def succeed(self, former: Self) -> None:
        """Take the place of one whose letters the others have: to them the next is newer than its last.

        With GADGET they have its mass too, and would have it beside what its successor begins with: a new epoch.
        """
        self._between()
        self.block.exchanges, self._recency = former.block.exchanges, former._recency
        epoch = former.block.edge.get("epoch")
        if isinstance(self.run, GadgetRun) and isinstance(self.run.protocol, RunningSum) and epoch is not None:
            self.run.protocol.supersede(self.block, int(epoch[0]))

    def draw_from(self, others: Collection[int] | None) -> None:
        """Whom GADGET may push to in the next tick, each as likely as the others: these, nobody, or (None) anybody."""
        self._between()
        if not isinstance(self.run, GadgetRun):
            return
        links, table = self.block.links, np.empty(0)
        if others is not None:
            table = np.cumsum(np.isin(links.target, list(others)).astype(np.float64))
            table /= max(table[-1:].sum(), 1.0)
        self.block.links = links._replace(table=table)

    def solve(self) -> list[Parcel]:
        """The first half of a tick: learn from the rows, and say what to send to whom."""
        self._between()
        self.t += 1
        spare_turns(self.block, self.kept, self.t)
        self._running = self.run.iteration(self.block, self.t)
        messages = next(self._running)
        return [
            Parcel(
                int(messages.receiver[m]), int(messages.seq[m]), messages.vector[m], float(messages.weight[m]),
                None if messages.note is None else float(messages.note[m]),
            )
            for m in range(messages.n_messages)
        ]  # fmt: skip

    def absorb(self, parcels: Sequence[Parcel]) -> None:
        """The second half: take in what came, from whomever."""
        if self._running is None:
            raise RuntimeError("nothing was solved: absorb follows solve")
        running, self._running = self._running, None
        last = [parcel for parcel in parcels if parcel.other in self.kept]
        with held(self.block, self.kept, frozenset(parcel.other for parcel in parcels)):
            try:
                running.send(Delivery(self._mail([parcel for parcel in parcels if parcel.other not in self.kept])))
            except StopIteration:
                if last:
                    assert isinstance(self.run, PdmmRun)  # nobody else has edges that outlive their other end
                    self.run.apply_undamped(self.block, self._mail(last))
                return
        raise RuntimeError("an algorithm of several rounds cannot run on a clock of its own")

    def weigh_recent(self) -> None:
        """After a tick: GADGET's later iterates count for more, and those before a change of who is here no longer."""
        self._between()
        if isinstance(self.run, GadgetRun):
            self._recency.after_tick(self.block, self.run.local_steps)

    def refresh(self) -> None:
        """Work w out anew from what it is made of: kappa w = sum alpha y x - sum A z.

        It moves along with alpha and z, step by step, and what rounding puts it off by would stay for good: not much,
        unless it was very large for a while, as whatever a neighbour says may make it.
        """
        self._between()
        edge, alpha = self.block.edge, self.duals
        if alpha is not None:
            pull = np.asarray((self.X.T @ (alpha.T * self._signs())).T).ravel()
            self.block.flat[0] = (pull - pulled(self.block)) / (edge["n_lam"][0] + edge["R"][0])

    def model(self) -> Floats:
        """The weights to answer with: outputs x width."""
        return np.array(models(self.run, self.block)[0])

    def measure(self, others: Sequence[Floats] = ()) -> Measures:
        """The model, and what is known of the neighbours', on the node's own rows.

        Every model does best on the rows it was made of: their sum over all sites would flatter all of them.
        """
        w = self.model()
        scores, (loss, slack) = np.asarray(self.X @ w.T), self._loss_and_slack(w)
        length2 = float((w * w).sum())
        pairs = [(loss, slack), *(self._loss_and_slack(other.reshape(w.shape)) for other in others)]
        return Measures(
            0.5 * self.charter.lam * length2 + loss / len(self.label), max(pair[0] for pair in pairs),
            max(pair[1] for pair in pairs), float(np.sqrt(length2)),
            float((self._predicted(scores) == self.label).mean()),
        )  # fmt: skip

    def _gap(self) -> float:
        """The duality gap of one who is alone, as a part of the objective."""
        measured = self.measure()
        return measured.slack / (len(self.label) * measured.objective)

    def _loss_and_slack(self, w: Floats) -> tuple[float, float]:
        alpha, margin = self.duals, self._signs() * np.asarray(self.X @ w.T)
        hinge = np.maximum(0.0, 1.0 - margin)
        slack = -1.0 if alpha is None else float((hinge - alpha.T * (1.0 - margin)).sum())
        return float(hinge.sum()), slack

    def accuracy(self, X: sp.csr_matrix, label: NDArray[np.int32] | None) -> float | None:
        """The share of other rows, on the same scale, that the model has right."""
        if label is None or not len(label):
            return None
        return float((self._predicted(as_csr(X, self.charter.intercept) @ self.model().T) == label).mean())

    def glimpse(self, last: Parcel, previous: Parcel | None, sent: Floats | None) -> Floats | None:
        """About what a neighbour's weights are, by what it sent: a model flat as it travels, or None.

        PDMM: y_ji = z_ji + 2 rho A_ji w_j, where z_ji is what it heard last. Running sums: how both parts changed.
        """
        if self.charter.algorithm == "pdmm":
            if sent is None or last.weight <= 0.0:
                return None
            sign = 1.0 if last.other < self.node else -1.0
            return np.asarray(sign * (last.vector - sent) / (2.0 * last.weight), dtype=np.float64)
        if previous is None or last.weight == previous.weight:
            return None
        return np.asarray((last.vector - previous.vector) / (last.weight - previous.weight), dtype=np.float64)

    def finite(self) -> bool:
        """Whether the weights, and those to answer with, are numbers still."""
        return bool(np.isfinite(self.block.w).all() and np.isfinite(self.model()).all())

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Everything a checkpoint needs: arrays, and plain values beside them."""
        self._between()
        block = self.block
        arrays = {name: getattr(block, name) for name in _STATE}
        arrays |= {f"edge.{name}": value for name, value in block.edge.items()}
        arrays["neighbours"] = block.links.target
        return arrays, {"t": self.t, "exchanges": block.exchanges, "node": self.node, "seed": block.seed}

    def restore(self, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
        """Go on from a checkpoint of the same charter and rows."""
        block = self.block
        for name in _STATE:
            mine = getattr(block, name)
            if arrays[name].shape != mine.shape:
                raise ValueError(f"the checkpoint's {name} has the shape {arrays[name].shape}, here {mine.shape}")
            mine[...] = arrays[name]
        block.links = Links.alone(np.ascontiguousarray(arrays["neighbours"], dtype=np.int32))
        block.edge = {
            name.removeprefix("edge."): np.array(value) for name, value in arrays.items() if name.startswith("edge.")
        }
        self.t, block.exchanges, self._bereft = int(about["t"]), int(about["exchanges"]), False

    def _signs(self) -> Floats:
        if self.charter.outputs == 1:
            return np.where(self.label == 1, 1.0, -1.0)[:, None]
        return np.where(self.label[:, None] == np.arange(self.charter.outputs)[None, :], 1.0, -1.0)

    def _predicted(self, scores: Any) -> NDArray[Any]:
        found = np.asarray(scores)
        return found.argmax(axis=1) if found.shape[1] > 1 else (found[:, 0] > 0).astype(np.int32)

    def _between(self) -> None:
        if self._running is not None:
            raise RuntimeError("in the middle of a tick: absorb first")

    def _mail(self, parcels: Sequence[Parcel]) -> MessageBatch:
        count, width = len(parcels), self.block.s.shape[1]
        vector = np.empty((count, width))
        for m, parcel in enumerate(parcels):
            vector[m] = parcel.vector
        note = np.array([0.0 if parcel.note is None else parcel.note for parcel in parcels])
        return MessageBatch(
            self.t,
            np.array([parcel.other for parcel in parcels], dtype=np.int64),
            np.full(count, self.node, dtype=np.int64),
            np.array([parcel.seq for parcel in parcels], dtype=np.int64),
            vector,
            np.array([parcel.weight for parcel in parcels], dtype=np.float64),
            note if self.charter.algorithm == "pdmm" else None,
        )
