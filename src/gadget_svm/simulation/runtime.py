"""`Runtime`, which the training loop drives; `Evaluator`, which measures models on all rows; observers of a training.

Observers watch a training at its records. They measure; the training does not depend on them.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from gadget_svm.algorithms.base import Run
from gadget_svm.algorithms.certificate import Certificate
from gadget_svm.core.rows import Scores
from gadget_svm.core.types import Array, Flags, Floats, Ints
from gadget_svm.kernels.vectors import distances


class Runtime(Protocol):
    """Nodes that learn in lock step: all in this process, or spread over a cluster.

    The methods that have a body here suit a runtime that compiles when it starts and never loses the state of a node.
    """

    run: Run
    t: int
    """Iterations done."""
    messages: int
    """Messages sent by all nodes."""
    nbytes: int
    """The size of these messages on a wire, as float64."""
    omitted_columns: int
    """How many numbers of every vector are zero and left out here, but would be sent over a real network."""

    def warm_up(self) -> None:
        """Compile every kernel an iteration needs, so that no measured time includes it."""
        return

    def advance(self, count: int) -> None:
        """Do ``count`` iterations of all nodes."""

    def certify(self) -> Certificate:
        """Return one model for all live nodes, and a bound of its gap."""

    def gather(self, name: str) -> Array:
        """Return an array with an entry per node: "models", "weights", or an array of the blocks, as "iterates"."""

    def models(self) -> Floats:
        """Return every node's model, nodes x outputs x features."""
        return self.gather("models")

    def weights(self) -> Floats:
        """Return every node's last iterate, nodes x outputs x features."""
        return self.gather("weights")

    def exchanges(self) -> int:
        """Return how often every block has sent."""

    def sizes(self) -> Floats:
        """Return n_i of every node: its rows with their multiplicity."""
        return self.gather("n")

    def live_row_weights(self) -> Floats:
        """Return the weights of the network average: n_i of every live node, and 0 for nodes that are away.

        n_i counts a node's rows with their multiplicity. If no node is live, return n_i of all.
        """
        live = self.live_mask()
        return self.sizes() * live if live.any() else self.sizes()

    def live_mask(self) -> Flags:
        """Return which nodes are live."""

    def lost_mask(self) -> Flags:
        """Return which nodes lost their state, because their process ended."""
        return np.zeros(len(self.sizes()), dtype=np.bool_)

    def unseen(self, name: str) -> Flags:  # noqa: ARG002
        """Return which nodes were lost before this array was ever gathered."""
        return self.lost_mask()

    def events(self) -> list[dict[str, Any]]:
        """Return what happened since the last call, such as the loss of an actor; a record lists these events."""
        return []

    def close(self) -> None:
        """Release threads and processes."""

    def count(self, messages: int, nbytes: int, vectors: int | None = None) -> None:
        """Count messages that were sent. ``vectors`` of them carry a vector, with omitted columns; None: all."""
        self.messages += messages
        self.nbytes += nbytes + 8 * self.omitted_columns * (messages if vectors is None else vectors)


class Evaluator(Protocol):
    """Objective and error of models on all rows, in this process or elsewhere."""

    def __call__(self, models: Floats) -> Scores:
        """Return the scores of models, m x outputs x features."""


Record = dict[str, Any]
"""A line of ``history_``: iteration, seconds, objective, error, disagreement, messages, bytes, and more.

``objective`` and ``error`` are those of the average model on all rows, ``worst_objective`` that of the worst node. The
latter needs a pass over the rows for every node, so only the last record has it, and all others if ``record_every`` is
set. With more than SAMPLED_NODES nodes it is ``worst_sampled_objective``, of an even sample of the nodes. ``bound`` is
the relative gap certified last, under the rule "gap". ``events`` are lost and restored actors of a cluster. Observers
may add more.
"""


@dataclass(frozen=True)
class Layout:
    """What a view needs to present models: the nodes' labels, the features that are trained, and the evaluator.

    Features that occur in no row may be left out of the training; their weights are zero.
    """

    sites: Sequence[Hashable]
    width: int
    trained: Ints
    evaluate: Evaluator

    def widen(self, models: Floats) -> Floats:
        """Return the models with a weight for every feature."""
        if len(self.trained) == self.width:
            return models
        full = np.zeros((*models.shape[:-1], self.width))
        full[..., self.trained] = models
        return full


@dataclass(frozen=True)
class View:
    """The network as an observer sees it at a record.

    Attributes
    ----------
    models : ndarray, nodes x outputs x features
        Every node's model with all features; the last one is the constant feature if there is an intercept.
    average : ndarray, outputs x features
        The average of the live nodes' models, weighted by their rows: what ``coef_`` and ``intercept_`` hold.
    live_mask : ndarray of bool
        Which nodes are live. A node that is away keeps the model that it had when it left.
    sites : sequence
        The nodes' labels, as in ``GadgetSVC.sites_``.
    """

    live_mask: Flags
    _models: Floats
    _average: Floats
    _layout: Layout

    @property
    def sites(self) -> Sequence[Hashable]:
        """The nodes' labels."""
        return self._layout.sites

    @cached_property
    def models(self) -> Floats:
        """Every node's model."""
        return np.array(self._layout.widen(self._models))  # a copy: the runtime overwrites its own

    @cached_property
    def average(self) -> Floats:
        """The network average."""
        return self._layout.widen(self._average)

    def evaluate(self, models: Floats) -> Scores:
        """Return the objective (summed over outputs) and error of models (m x outputs x features) on all rows.

        Weights of features that occur in no row do not count.
        """
        return self._layout.evaluate(np.ascontiguousarray(models[..., self._layout.trained]))


class Observer:
    """Base class of observers; give instances to ``GadgetSVC(observers=[...])`` and override what is needed.

    Examples
    --------
    >>> from gadget_svm import GadgetSVC, Observer
    >>> class Objectives(Observer):
    ...     def on_record(self, record, view):
    ...         record["objectives"] = view.evaluate(view.models).objective.tolist()
    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [0.0, 2.0]], [0, 1, 1, 0]
    >>> model = GadgetSVC(2, lam=0.1, observers=[Objectives()], random_state=0).fit(X, y)
    >>> len(model.history_[-1]["objectives"])
    2
    """

    def on_record(self, record: Record, view: View) -> None:
        """Receive a new record of the history, and the network at that moment. It may add keys to the record."""

    def should_stop(self) -> bool:
        """Return whether to end the training now. It is called about every 0.05 seconds, between iterations."""
        return False


class PrintRecords(Observer):
    """Print a line per record, as ``GadgetSVC(verbose=1)`` does."""

    def on_record(self, record: Record, view: View) -> None:  # noqa: ARG002
        """Print the record."""
        print(
            f"iteration {record['iteration']:>8}  objective {record['objective']:.6f}  "
            f"disagreement {record['disagreement']:.2e}  {record['seconds']:.2f} s",
            flush=True,
        )


class NodeRecords(Observer):
    """Keep objective, error and distance to the average of every node at every record.

    This takes a pass over all rows per node and record. An object that observes several fits keeps the records of all.

    Attributes
    ----------
    rows : list of dict
        A row per node and record: iteration, node, live, objective, error, distance. ``distance`` is |w_i - w|, with
        the intercept.

    Examples
    --------
    >>> from gadget_svm import GadgetSVC, NodeRecords
    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [0.0, 2.0]], [0, 1, 1, 0]
    >>> records = NodeRecords()
    >>> model = GadgetSVC(2, lam=0.1, observers=[records], random_state=0).fit(X, y)
    >>> frame = records.to_frame()
    >>> list(frame.columns)
    ['iteration', 'node', 'live', 'objective', 'error', 'distance']
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def on_record(self, record: Record, view: View) -> None:
        """Measure every node."""
        scores, apart = view.evaluate(view.models), distances(view.models, view.average)
        columns = view.sites, view.live_mask.tolist(), *(each.tolist() for each in (*scores, apart))
        names = ("node", "live", "objective", "error", "distance")
        self.rows += [
            {"iteration": record["iteration"], **dict(zip(names, row, strict=True))}
            for row in zip(*columns, strict=True)
        ]

    def to_frame(self) -> Any:
        """Return the rows as a pandas DataFrame; only this method needs pandas."""
        try:
            import pandas as pd  # type: ignore[import-untyped,unused-ignore]
        except ImportError as error:
            raise ImportError("a DataFrame needs pandas, which is not installed: pip install pandas") from error

        return pd.DataFrame(self.rows, columns=["iteration", "node", "live", "objective", "error", "distance"])
