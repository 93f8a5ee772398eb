"""The rows of a training: read here and divided among nodes, read here as shards, or read by the actors of a cluster.

Owns how rows are scaled, how test rows meet them, and by which method of the estimator they are learned.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy.sparse import csr_matrix

from gadget_svm.cli.errors import as_stdin
from gadget_svm.cli.evaluation import Evaluation
from gadget_svm.cli.option_names import naming
from gadget_svm.cli.output import say
from gadget_svm.cli.progress import Download
from gadget_svm.cli.shard_names import check_file_name, check_shards
from gadget_svm.cli.train import TrainRequest
from gadget_svm.cli.train_model import partition_of, wants_intercept
from gadget_svm.data import Dataset, load_dataset
from gadget_svm.data.catalog import against_rest
from gadget_svm.data.dataset_table import ENTRIES
from gadget_svm.data.formats import agree, named, read_raw
from gadget_svm.data.paper_datasets import Parts
from gadget_svm.data.partition import assign_sites
from gadget_svm.data.raw_files import Raw
from gadget_svm.data.uris import shown
from gadget_svm.estimator import GadgetSVC
from gadget_svm.estimator.advice import scale_advice
from gadget_svm.estimator.shards import Agreed, stack_shards
from gadget_svm.estimator.validation import CHOOSE, lam_of, require_classes
from gadget_svm.peers.scale import Scale, common_scale, statistics
from gadget_svm.simulation.trainer import Observe

ShouldStop = Callable[[], bool]
SCALE_OPTIONS = "scale them with --scale deviation, or --scale max-abs if they are sparse"


class TrainingRows(Protocol):
    """Rows to learn from. ``data``, ``about`` and ``evaluation`` are complete once they are read."""

    data: Dataset
    evaluation: Evaluation

    @property
    def lam(self) -> float | None:
        """The data set's own regularisation weight."""

    @property
    def n_nodes(self) -> int | None:
        """The number of nodes the rows are divided among; None if the estimator divides them."""

    @property
    def about(self) -> dict[str, Any]:
        """Name and sizes for the summary."""

    def fit(self, model: GadgetSVC, ready: Callable[[], None], observe: Observe, should_stop: ShouldStop) -> None:
        """Train the model; ``ready`` is called once the rows are known, before anything is learned."""

    def node_sizes(self, n_nodes: int) -> NDArray[np.int64]:
        """Return the number of rows of each node."""

    def savable(self, model: GadgetSVC) -> GadgetSVC:
        """Return a copy of the model that takes rows as they are in files, and knows the names of columns."""

    def hints(self, model: GadgetSVC) -> list[str]:
        """Return advice about the rows after a training that did not converge."""


def rows_of(request: TrainRequest, source: str, stderr: Console) -> TrainingRows:
    """Read the rows, or find who reads them. ``source`` is the data set or file, if there are no shards."""
    if not request.shards:
        if source not in ENTRIES:
            check_file_name(source)
        say(stderr, f"reading {as_stdin(shown(source))}")
        data = load(request, source, stderr)
        return LocalRows.of(request, data, divide(request, data.y))
    check_shards(request)
    test = None if request.test is None else read_raw(request.test, request.label, request.format)
    if request.engine == "ray":
        return RemoteRows(request, test)
    stack = stack_shards(request.shards, request.label, request.format)
    parts = Parts(stack.X, stack.y, *_matching_test(request, test, stack.agreed()))
    note = f"read from {shown(request.shards[0])} to {shown(request.shards[-1])}"
    data = Dataset(request.name, *against_rest(parts, request.positive), None, note, stack.columns)
    return LocalRows.of(request, data, stack.sites)


def load(request: TrainRequest, source: str, stderr: Console) -> Dataset:
    """Load a data set or file, with a progress bar if it is downloaded."""
    chosen: dict[str, Any] = {} if request.positive is None else {"positive": request.positive}  # else the paper's
    with Download(stderr, source) as progress:
        return load_dataset(
            source, test=request.test, label=request.label, data_dir=request.data_dir, progress=progress,
            format=request.format, **chosen,
        )  # fmt: skip


def divide(request: TrainRequest, y: NDArray[Any]) -> NDArray[Any] | None:
    """Return the site of every row, or None where the estimator divides them evenly."""
    scheme, options = partition_of(request)
    if scheme == "even":
        return None
    n_nodes = request.n_nodes or len(options.get("sizes", [])) or min(10, len(y))
    with naming(f"--partition {request.partition}"):
        return assign_sites(y, n_nodes, scheme, seed=request.random_state, **options)


def _matching_test(
    request: TrainRequest, test: Raw | None, agreed: Agreed
) -> tuple[csr_matrix | None, NDArray[Any] | None]:
    """Return test rows with the shards' width and numbering. A feature that no shard has is left out."""
    if test is None or request.test is None:
        return None, None
    like = Raw(csr_matrix((1, agreed.features)), np.zeros(1), agreed.columns)
    X, y = agree([named(request.shards[0]), named(request.test)], [like, test], None, agreed.zero_based)[1]
    return csr_matrix(X[:, : agreed.features]), y


def describe_data(data: Dataset) -> dict[str, Any]:
    """Return name and sizes."""
    return {
        "name": data.name,
        "note": as_stdin(data.note),
        "rows": data.X.shape[0],
        "features": data.X.shape[1],
        "classes": np.unique(data.y).tolist(),
        "test_rows": None if data.X_test is None else data.X_test.shape[0],
    }


def _with_columns(model: GadgetSVC, columns: tuple[str, ...] | None) -> GadgetSVC:
    named = copy(model)
    if columns is not None:
        named.feature_names_in_ = np.array(columns, dtype=object)
    return named


@dataclass
class LocalRows:
    """Rows in this process."""

    data: Dataset
    sites: NDArray[Any] | None
    shards: list[str]
    scale: Scale | None
    evaluation: Evaluation = field(init=False)

    @classmethod
    def of(cls, request: TrainRequest, data: Dataset, sites: NDArray[Any] | None) -> "LocalRows":
        """Scale training and test rows as requested; what is sparse stays sparse."""
        require_classes(data.y, CHOOSE)
        scale = scale_of(request.scale, data, wants_intercept(request))
        if scale is not None:
            X_test = None if data.X_test is None else scale.apply(data.X_test)
            data = replace(data, X=scale.apply(data.X), X_test=X_test)
        return cls(data, sites, [shown(shard) for shard in request.shards], scale)

    @property
    def lam(self) -> float | None:
        """The data set's own regularisation weight."""
        return self.data.lam

    @property
    def n_nodes(self) -> int | None:
        """One per site."""
        return None if self.sites is None else int(self.sites.max()) + 1

    @property
    def about(self) -> dict[str, Any]:
        """Name and sizes."""
        return describe_data(self.data) | ({"shards": self.shards} if self.shards else {})

    def fit(self, model: GadgetSVC, ready: Callable[[], None], observe: Observe, should_stop: ShouldStop) -> None:
        """Train on the rows."""
        self.evaluation = Evaluation.of(
            self.data, lam_of(model, len(self.data.y)), model.fit_intercept, model.n_jobs, model.multi_class
        )
        ready()
        model.fit_observed(self.data.X, self.data.y, sites=self.sites, observe=observe, should_stop=should_stop)

    def node_sizes(self, n_nodes: int) -> NDArray[np.int64]:
        """Return the number of rows of each node."""
        if self.sites is not None:
            return np.bincount(self.sites, minlength=n_nodes)
        n_rows = len(self.data.y)
        return n_rows // n_nodes + (np.arange(n_nodes) < n_rows % n_nodes)

    def savable(self, model: GadgetSVC) -> GadgetSVC:
        """Return a copy of the model for unscaled rows."""
        model = _with_columns(model, self.data.columns)
        if self.scale is not None:
            model.coef_, model.intercept_ = self.scale.undo(model.coef_, model.intercept_)
            model.node_coef_, model.node_intercept_ = self.scale.undo(model.node_coef_, model.node_intercept_)
        return model

    def hints(self, model: GadgetSVC) -> list[str]:
        """Suggest --scale after a training that did not converge, if sizes of features explain it."""
        stopped_early = model.stopped_by_ in ("max_iter", "max_seconds") and model.stopping_ is not None
        advice = scale_advice(self.data.X, SCALE_OPTIONS) if stopped_early and self.scale is None else ""
        return [advice[0].upper() + advice[1:] + "."] if advice else []


def scale_of(kind: str, data: Dataset, intercept: bool) -> Scale | None:
    """Compute the scale from the training rows; None for the kind "none"."""
    if kind == "none":
        return None
    scale = common_scale(kind, [statistics(kind, "all", data.X)], shifts=intercept)
    if not np.isfinite(scale.divisor).all():
        raise ValueError(f"--scale {kind}: the squares of the features overflow: use --scale max-abs")
    return scale


@dataclass
class RemoteRows:
    """Shards that actors read, one per node: only counts, labels and names of columns arrive here."""

    request: TrainRequest
    test: Raw | None
    data: Dataset = field(init=False)  # no training rows
    evaluation: Evaluation = field(init=False)
    agreed: Agreed = field(init=False)
    lam: ClassVar[None] = None

    @property
    def n_nodes(self) -> int | None:
        """One per shard."""
        return len(self.request.shards)

    @property
    def about(self) -> dict[str, Any]:
        """Name and sizes."""
        shards = [shown(shard) for shard in self.request.shards]
        return describe_data(self.data) | {"rows": int(self.agreed.rows.sum()), "shards": shards}

    def fit(self, model: GadgetSVC, ready: Callable[[], None], observe: Observe, should_stop: ShouldStop) -> None:
        """Let the actors read and train."""

        def known(agreed: Agreed) -> None:
            self._learn_sizes(agreed, model)
            ready()

        model.fit_shards(
            self.request.shards, label=self.request.label, positive=self.request.positive, agreed=known,
            observe=observe, should_stop=should_stop,
        )  # fmt: skip

    def _learn_sizes(self, agreed: Agreed, model: GadgetSVC) -> None:
        self.agreed = agreed
        parts = Parts(csr_matrix((0, agreed.features)), agreed.labels, *_matching_test(self.request, self.test, agreed))
        parts = against_rest(parts, self.request.positive)
        self.data = Dataset(self.request.name, *parts, None, "read by the actors")
        lam = lam_of(model, int(agreed.rows.sum()))
        self.evaluation = Evaluation.of(self.data, lam, model.fit_intercept, model.n_jobs, model.multi_class)

    def node_sizes(self, n_nodes: int) -> NDArray[np.int64]:  # noqa: ARG002
        """Return the number of rows of each node."""
        return self.agreed.rows

    def savable(self, model: GadgetSVC) -> GadgetSVC:
        """Return a copy of the model that knows the names of columns."""
        return _with_columns(model, self.agreed.columns)

    def hints(self, model: GadgetSVC) -> list[str]:  # noqa: ARG002
        """Return nothing: the sizes of the features are not known here."""
        return []
