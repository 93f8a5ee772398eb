"""One learning node: a block of one node, the simulator's algorithm, and measures of its model. No clock, no wire."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.algorithms import Gadget, GadgetRun, Pdmm, PrivateGradient
from gadget_svm.algorithms.base import Run, models
from gadget_svm.algorithms.certificate import own_sums
from gadget_svm.algorithms.pdmm import PdmmRun
from gadget_svm.core.block import Block, Links
from gadget_svm.core.messages import Delivery, MessageBatch
from gadget_svm.core.network import Network
from gadget_svm.core.rows import Rows, Shares
from gadget_svm.core.types import Floats
from gadget_svm.estimator.problem import as_csr, clip_rows
from gadget_svm.gossip import RobustMixing, Round, RunningSum
from gadget_svm.peers.training.polynomial_averaging import PolynomialAveraging
from gadget_svm.study.study import Study
from gadget_svm.topologies import build

THETA = 0.8
"""The step towards a push. Neighbours tick on clocks of their own, so a faster one has heard little of an answer in
between: with theta = 1 a slow node between fast ones does not converge."""
ALONE_GAP = 0.01
"""The relative duality gap at which a node that lost its last neighbour has solved its own problem. Until then w is
made of dual variables that belong to the model of all nodes, and is worse than any model of the own rows."""
LARGEST_WEIGHT = 1e150
"""Weights beyond this count as not finite: their squares would be."""
PLAUSIBLE_RATIO = 1e6
"""An honest neighbour's penalty differs from what the own rows propose by less than this factor. In simulations with
equal sites it is between 0.007 and 2 times that, between sites with 20 and 20,000 rows of other units at least 0.0004
times. One of 1e-14 would never get back to where it is of use."""
_STATE = ("w", "s", "phi", "held", "w_sum", "iterates", "steps")


class NodeMessage(NamedTuple):
    """One message between nodes: the number of the other node, and what the algorithm sends."""

    other: int
    seq: int
    vector: Floats
    weight: float
    note: float | None


@dataclass(frozen=True, slots=True)
class Measures:
    """How the node's model does on its own rows."""

    objective: float  # lam/2 |w|^2 + mean hinge
    loss: float  # the sum of hinges, of the worst of its own and its neighbours' models
    slack: float  # hinges above what alpha promises, likewise: a share of the duality gap; -1 without dual variables
    norm: float
    accuracy: float
    test_accuracy: float | None  # of test rows, if there are any


def algorithm_of(study: Study, rows: int, noise: str = "secret") -> Gadget | Pdmm | PrivateGradient:
    """Return what peers run.

    PDMM; GADGET by running sums with one pass's worth of steps between two pushes; or private gradient descent by the
    study's plan, with one round of lazy mixing after every step.
    """
    if study.algorithm == "pdmm":
        return Pdmm(theta=THETA)
    if study.is_private:
        gossip = RobustMixing(liars=0, lazy=True)
        return PrivateGradient(study.budget(noise), gossip, gossip_rounds=1, step_size=study.step_size)
    return Gadget(gossip="running-sum", solver="implicit", local_steps=max(rows, 20))


class Learner:
    """A node's state. A tick is `solve`, whose messages are sent, then `absorb` of the messages that arrived.

    Everything else is called between two ticks.
    """

    def __init__(
        self, X: sp.csr_matrix, label: NDArray[np.int32], study: Study, node: int, *, seed: int = 0,
        network: Network | None = None, algorithm: Gadget | Pdmm | PrivateGradient | None = None,
    ) -> None:  # fmt: skip
        n = X.shape[0]
        self.study, self.node, self.label = study, node, label
        self.X = as_csr(X, study.intercept)
        if study.clip is not None:
            self.X = clip_rows(self.X, study.clip)
        # These runs only require that a network exists; a peer's block has links of its own.
        whole = _any_network() if network is None else network
        chosen = algorithm_of(study, n) if algorithm is None else algorithm
        whole = chosen.with_transition_of(whole)
        run: Any = chosen.bind(whole, study.lam, 1.0 / np.sqrt(study.lam), lossy=True, sizes=np.array([float(n)]))
        self.run: Run = run
        shares = Shares(np.arange(n, dtype=np.int64), np.array([0, n], dtype=np.int64), np.empty(0))
        rows = Rows.of(self.X, label, np.ones(n), shares)
        first = 0 if network is None else node
        self.block = Block.fresh(
            whole, rows, shares.sizes, study.outputs, study.width, seed=seed, first=first, last=first + 1
        )
        if network is None:
            self.block.first, self.block.links = node, Links.alone(np.zeros(0, dtype=np.int32))
        self.t = 0
        self.isolated = False  # the last neighbour is gone, and alpha still belongs to the model of all
        self._running: Round | None = None
        self._averaging = PolynomialAveraging()
        self._signs = _signs(label, study.outputs)
        self._penalty = self.run.initial_penalty(self.block) if isinstance(self.run, PdmmRun) else None

    @property
    def neighbours(self) -> list[int]:
        """The nodes that the node pushes to."""
        targets, is_open = self.block.links.target, self.block.edge.get("open")
        return [int(j) for j in (targets if is_open is None else targets[is_open])]

    @property
    def duals(self) -> Floats | None:
        """alpha, outputs x rows; None if the algorithm has none."""
        return self.block.edge.get("dual")

    @property
    def has_model(self) -> bool:
        """Whether the model is one of the rows that it should be of."""
        return not self.isolated

    def set_neighbours(self, neighbours: Collection[int]) -> None:
        """Replace the neighbours, between two ticks."""
        new = set(neighbours).difference(self.block.links.target.tolist())
        linked = self.duals is not None and bool(self.neighbours)
        self.run.set_neighbours(self.block, np.array(sorted(neighbours), dtype=np.int64))
        self.isolated = (linked or self.isolated) and not neighbours
        if new and isinstance(self.run, GadgetRun):
            self.run.reset_edge(self.block, min(new))  # a new epoch: all nodes start a new average

    def is_plausible(self, weight: float, seq: int) -> bool:  # noqa: ARG002
        """Return whether an honest neighbour may push with this weight and this sequence number.

        Of GADGET any weight is plausible: it counts rows, so that the limits of messages are enough.
        """
        own = self._penalty
        return own is None or own / PLAUSIBLE_RATIO <= weight <= own * PLAUSIBLE_RATIO

    def reset_edge(self, other: int) -> None:
        """A neighbour was restarted, and counts its messages from 0."""
        self.run.reset_edge(self.block, other)

    def succeed(self, former: Self) -> None:
        """Replace a learner whose messages the neighbours have: the next message is newer than its last.

        With GADGET the neighbours have its mass too, besides what its successor begins with: start a new epoch.
        """
        self.block.exchanges = max(self.block.exchanges, former.block.exchanges)
        self._averaging = former._averaging
        epoch = former.block.edge.get("epoch")
        if isinstance(self.run, GadgetRun) and isinstance(self.run.protocol, RunningSum) and epoch is not None:
            self.run.protocol.supersede(self.block, int(epoch[0]))

    def draw_from(self, others: Collection[int]) -> None:
        """Let GADGET push to one of these in the next tick, all equally likely; PDMM has an order of its own."""
        if not isinstance(self.run, GadgetRun):
            return
        links = self.block.links
        table = np.cumsum([float(target in others) for target in links.target.tolist()])
        self.block.links = links._replace(table=table / max(table[-1:].sum(), 1.0))

    def solve(self) -> list[NodeMessage]:
        """Do the first half of a tick: learn from the rows, and return what to send."""
        self.t += 1
        self._running = self.run.iteration(self.block, self.t)
        sent = next(self._running)
        notes = [None] * sent.n_messages if sent.note is None else sent.note.tolist()
        return list(
            map(NodeMessage, sent.receiver.tolist(), sent.seq.tolist(), sent.vector, sent.weight.tolist(), notes)
        )

    def absorb(self, messages: Sequence[NodeMessage]) -> None:
        """Do the second half: apply the messages that arrived."""
        assert self._running is not None, "absorb follows solve"
        running, self._running = self._running, None
        try:
            running.send(Delivery(self._batch(messages)))
        except StopIteration:
            if isinstance(self.run, GadgetRun):
                self._averaging.after_tick(self.block, self.run.local_steps)
            if self.isolated:
                self.refresh()
                measured = self.measure()
                self.isolated = measured.slack > ALONE_GAP * len(self.label) * measured.objective
            return
        raise RuntimeError("an algorithm of several rounds per iteration cannot run on clocks of its own")

    def refresh(self) -> None:
        """Compute w from what it is made of: kappa w = sum alpha y x - sum A z.

        Ticks update w step by step, and rounding errors would stay. They are small unless w was very large for a while,
        as a neighbour's messages may make it.
        """
        edge, alpha, block = self.block.edge, self.duals, self.block
        if alpha is not None:
            pull = np.asarray((self.X.T @ (alpha.T * self._signs)).T).ravel()
            signs = np.where(block.first < block.links.target, 1.0, -1.0) * edge["open"]
            block.flat[0] = (pull - (signs[:, None] * edge["z"]).sum(axis=0)) / (edge["n_lam"][0] + edge["R"][0])

    def model(self) -> Floats:
        """Return a copy of the model, outputs x width."""
        return np.array(models(self.run, self.block)[0])

    def sums(self, w: Floats) -> Floats:
        """Return this node's sums for a certificate of the model w."""
        total: Floats = own_sums(self.run, self.block, w)[0]
        return total

    def measure(
        self, others: Sequence[Floats] = (), X_test: sp.csr_matrix | None = None,
        label_test: NDArray[np.int32] | None = None,
    ) -> Measures:  # fmt: skip
        """Measure the model, and those that neighbours are estimated to have, on the node's own rows.

        A model does best on the rows that it was made of: the sum over all sites of that would be too low.
        """
        w = self.model()
        loss, slack = self._loss_and_slack(w)
        length2 = float((w * w).sum())
        pairs = [(loss, slack), *(self._loss_and_slack(other.reshape(w.shape)) for other in others)]
        tested = None
        if X_test is not None and label_test is not None and len(label_test):
            tested = _accuracy(as_csr(X_test, self.study.intercept) @ w.T, label_test)
        return Measures(
            0.5 * self.study.lam * length2 + loss / len(self.label), max(pair[0] for pair in pairs),
            max(pair[1] for pair in pairs), float(np.sqrt(length2)), _accuracy(self.X @ w.T, self.label), tested,
        )  # fmt: skip

    def _loss_and_slack(self, w: Floats) -> tuple[float, float]:
        alpha, margin = self.duals, self._signs * np.asarray(self.X @ w.T)
        hinge = np.maximum(0.0, 1.0 - margin)
        slack = -1.0 if alpha is None else float((hinge - alpha.T * (1.0 - margin)).sum())
        return float(hinge.sum()), slack

    def estimate_neighbour_model(
        self, last: NodeMessage, previous: NodeMessage | None, sent: Floats | None
    ) -> Floats | None:
        """Estimate a neighbour's model, outputs x width, from what it sent; None if that is not possible yet.

        PDMM: y_ji = z_ji + 2 rho A_ji w_j, where z_ji is the last push that it received. Running sums: how both parts
        changed.
        """
        if self.study.algorithm == "pdmm":
            if sent is None:
                return None
            found = (1.0 if last.other < self.node else -1.0) * (last.vector - sent) / (2.0 * last.weight)
        elif previous is None or last.weight == previous.weight:
            return None
        else:
            found = (last.vector - previous.vector) / (last.weight - previous.weight)
        return np.asarray(found).reshape(self.block.w.shape[1:])

    def finite(self) -> bool:
        """Return whether the weights and the model are finite."""
        parts = (self.block.w, self.block.w_sum) if self.run.average else (self.block.w,)
        return all(bool((np.abs(part) <= LARGEST_WEIGHT).all()) for part in parts)

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return what a snapshot needs: arrays (not copies), and JSON values."""
        block = self.block
        arrays = {name: getattr(block, name) for name in _STATE}
        arrays |= {f"edge.{name}": value for name, value in block.edge.items()}
        arrays["neighbours"] = block.links.target
        return arrays, {"t": self.t, "exchanges": block.exchanges, "isolated": self.isolated}

    def restore(self, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
        """Continue from a snapshot of the same study and rows."""
        block = self.block
        for name in _STATE:
            mine = getattr(block, name)
            if arrays[name].shape != mine.shape:
                raise ValueError(f"the snapshot's {name} has the shape {arrays[name].shape}, here {mine.shape}")
            mine[...] = arrays[name]
        block.links = Links.alone(np.array(arrays["neighbours"], dtype=np.int32))
        block.edge = {
            name.removeprefix("edge."): np.array(value) for name, value in arrays.items() if name.startswith("edge.")
        }
        self.t, block.exchanges, self.isolated = int(about["t"]), int(about["exchanges"]), bool(about["isolated"])

    def _batch(self, messages: Sequence[NodeMessage]) -> MessageBatch:
        count = len(messages)
        notes = np.array([each.note for each in messages]) if self.study.algorithm == "pdmm" else None
        return MessageBatch(
            self.t, np.array([each.other for each in messages], dtype=np.int64), np.full(count, self.node),
            np.array([each.seq for each in messages], dtype=np.int64),
            np.array([each.vector for each in messages]).reshape(count, self.block.s.shape[1]),
            np.array([each.weight for each in messages], dtype=np.float64), notes,
        )  # fmt: skip


@cache
def _any_network() -> Network:
    return build("complete", 2)


def _signs(label: NDArray[np.int32], outputs: int) -> Floats:
    """Return y, rows x outputs."""
    if outputs == 1:
        return np.where(label == 1, 1.0, -1.0)[:, None]
    return np.where(label[:, None] == np.arange(outputs)[None, :], 1.0, -1.0)


def _accuracy(scores: Any, label: NDArray[np.int32]) -> float:
    found = np.asarray(scores)
    predicted = found.argmax(axis=1) if found.shape[1] > 1 else found[:, 0] > 0
    return float((predicted == label).mean())
