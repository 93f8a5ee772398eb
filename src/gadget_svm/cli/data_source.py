"""Where the rows of a training come from: here they are, to be dealt out or in shards; or actors read them.

Owns what is known of them when, and which door of the estimator they go in by.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from gadget_svm.cli.evaluation import Evaluator, Outsider, rows_of_nodes
from gadget_svm.cli.scaling import scale_for, scaled
from gadget_svm.cli.shards import matched_test, read_test
from gadget_svm.cli.summary import describe_data
from gadget_svm.cli.train_request import Order, wants_intercept
from gadget_svm.data import Dataset
from gadget_svm.data.tables import RawTable, TrainTest
from gadget_svm.estimator import GadgetSVC
from gadget_svm.estimator.shard_uris import display_name
from gadget_svm.estimator.shards import Agreed, stack_shards
from gadget_svm.estimator.validation import CHOOSE, lam_of, require_classes
from gadget_svm.peers.scale import Scale
from gadget_svm.simulation.trainer import Observe

ShouldStop = Callable[[], bool]


@dataclass(frozen=True)
class Known:
    """What is known of the rows when they are read and nothing is learned yet."""

    about: dict[str, Any]  # as the summary has it
    judge: Outsider
    sites: NDArray[Any] | None = None  # None: they are dealt out evenly
    sizes: NDArray[np.int64] | None = None  # of shards that others read
    data: Dataset | None = None  # the rows themselves, where they are here, scaled
    scale: Scale | None = None  # of the model's features, if they are scaled
    columns: tuple[str, ...] | None = None  # the features' names, where files have them

    def rows(self, n_nodes: int) -> NDArray[np.int64]:
        """How many each node owns."""
        return self.sizes if self.sizes is not None else rows_of_nodes(self.about["rows"], n_nodes, self.sites)


class Source(Protocol):
    """Rows to learn from."""

    @property
    def lam(self) -> float | None:
        """The data's own."""

    @property
    def n_nodes(self) -> int | None:
        """As many as it has sites; None: as many as asked for."""

    def fit(self, model: GadgetSVC, ready: Callable[[Known], None], observe: Observe, should_stop: ShouldStop) -> None:
        """Train on it; ``ready`` is told of the rows, once, before anything is learned."""


@dataclass(frozen=True)
class Pooled:
    """All rows are here."""

    data: Dataset
    sites: NDArray[Any] | None
    shards: tuple[str, ...] = ()
    scale: Scale | None = None  # by which the rows are scaled

    @classmethod
    def of(cls, order: Order, data: Dataset, sites: NDArray[Any] | None) -> "Pooled":
        """Scale the rows as ordered."""
        require_classes(data.y, CHOOSE)
        scale = scale_for(order.scale, data, wants_intercept(order))
        return cls(scaled(data, scale), sites, tuple(map(display_name, order.shards)), scale)

    @property
    def lam(self) -> float | None:
        """The data set's."""
        return self.data.lam

    @property
    def n_nodes(self) -> int | None:
        """One a site."""
        return None if self.sites is None else int(self.sites.max()) + 1

    def fit(self, model: GadgetSVC, ready: Callable[[Known], None], observe: Observe, should_stop: ShouldStop) -> None:
        """Measured on all rows."""
        about = describe_data(self.data) | ({"shards": list(self.shards)} if self.shards else {})
        settings = model.fit_intercept, model.n_jobs, model.multi_class
        judge = Evaluator.of(self.data, lam_of(model, len(self.data.y)), *settings)
        columns = self.data.columns
        ready(Known(about, judge, sites=self.sites, data=self.data, scale=self.scale, columns=columns))
        model.fit_observed(self.data.X, self.data.y, sites=self.sites, observe=observe, should_stop=should_stop)


@dataclass(frozen=True)
class Remote:
    """Shards that actors read, one a node; of their rows nothing comes here but counts and labels."""

    order: Order
    test: RawTable | None
    lam: float | None = None

    @property
    def n_nodes(self) -> int | None:
        """One a shard."""
        return len(self.order.shards)

    def fit(self, model: GadgetSVC, ready: Callable[[Known], None], observe: Observe, should_stop: ShouldStop) -> None:
        """Measured by the actors, and on the test rows."""
        model.fit_shards(
            self.order.shards,
            label=self.order.label,
            positive=self.order.positive,
            agreed=lambda agreed: ready(self._known(agreed, model)),
            observe=observe,
            should_stop=should_stop,
        )

    def _known(self, agreed: Agreed, model: GadgetSVC) -> Known:
        none = csr_matrix((0, agreed.features))
        parts = TrainTest(none, agreed.labels, *matched_test(self.order, self.test, agreed))
        data = Dataset(self.order.data, *parts.binarized(self.order.positive), None, "read by the actors")
        settings = model.fit_intercept, model.n_jobs, model.multi_class
        judge = Outsider.of(data, lam_of(model, int(agreed.rows.sum())), *settings)
        about = describe_data(data) | {
            "rows": int(agreed.rows.sum()),
            "shards": [display_name(shard) for shard in self.order.shards],
        }
        return Known(about, judge, sizes=agreed.rows, columns=agreed.columns)


def shards_of(order: Order) -> Source:
    """Shards, read here or by actors, as the engine has it. The test rows are read here, and first."""
    test = read_test(order)
    if order.engine == "ray":
        return Remote(order, test)
    stack = stack_shards(order.shards, order.label, order.format)
    parts = TrainTest(stack.X, stack.y, *matched_test(order, test, stack.agreed()))
    first, last = order.shards[0], order.shards[-1]
    note = f"read from {display_name(first)} to {display_name(last)}"
    data = Dataset(order.data, *parts.binarized(order.positive), None, note, stack.columns)
    return Pooled.of(order, data, stack.sites)
