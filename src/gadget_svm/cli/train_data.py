"""The rows of a training: read here and divided among nodes, read here as shards, or read by the actors of a cluster.

Owns how rows are scaled, how test rows are aligned with them, and which method of the estimator trains on them.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from glob import iglob
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from rich.console import Console
from scipy.sparse import csr_matrix

from gadget_svm.cli.errors import as_stdin
from gadget_svm.cli.evaluation import Evaluation
from gadget_svm.cli.option_names import naming
from gadget_svm.cli.output import say
from gadget_svm.cli.progress import download_bar
from gadget_svm.cli.train import TrainRequest
from gadget_svm.cli.train_model import partition_of, wants_intercept
from gadget_svm.core.types import Array, Ints
from gadget_svm.data import Dataset, load_dataset
from gadget_svm.data.catalog import ENTRIES
from gadget_svm.data.formats import align_tables, read_raw
from gadget_svm.data.partition import assign_sites
from gadget_svm.data.tables import RawTable, TrainTest
from gadget_svm.data.uris import display_name, scheme_of
from gadget_svm.estimator import GadgetSVC
from gadget_svm.estimator.advice import scale_advice
from gadget_svm.estimator.shards import DataSummary, Stack, shard_names, stack_shards
from gadget_svm.estimator.validation import CHOOSE, lam_of, require_classes
from gadget_svm.peers.training.scale import Scale, common_scale, statistics

SCALE_OPTIONS = "scale them with --scale deviation, or --scale max-abs if they are sparse"


def rows_of(request: TrainRequest, source: str, stderr: Console) -> "TrainingRows":
    """Read the rows, unless actors read them. ``source`` is the data set or file, if there are no shards."""
    if not request.shards:
        if source not in ENTRIES:
            check_file_name(source)
        say(stderr, f"reading {as_stdin(display_name(source))}")
        data = load(request, source, stderr)
        return TrainingRows(request).with_rows(data, divide(request, data.y))
    check_shards(request)
    test = None if request.test is None else read_raw(request.test, request.label, request.format)
    if request.engine == "ray":
        return TrainingRows(request, test)
    stack = stack_shards(request.shards, request.label, request.format)
    note = f"read from {display_name(request.shards[0])} to {display_name(request.shards[-1])}"
    return TrainingRows(request).with_rows(_dataset(request, stack, test, note), stack.sites)


def load(request: TrainRequest, source: str, stderr: Console) -> Dataset:
    """Load a data set or file, with a progress bar if it is downloaded."""
    positive = ... if request.positive is None else request.positive  # ...: the paper's choice
    with download_bar(stderr, source) as progress:
        return load_dataset(
            source, test=request.test, positive=positive, label=request.label, data_dir=request.data_dir,
            progress=progress, format=request.format,
        )  # fmt: skip


def divide(request: TrainRequest, y: Array) -> Array | None:
    """Return the site of every row, or None if the estimator divides the rows evenly."""
    scheme, options = partition_of(request)
    if scheme == "even":
        return None
    n_nodes = request.n_nodes or len(options.get("sizes", [])) or min(10, len(y))
    with naming(f"--partition {request.partition}"):
        seed = request.random_state if request.partition_seed is None else request.partition_seed
        return assign_sites(y, n_nodes, scheme, seed=seed, **options)


def _dataset(request: TrainRequest, stack: Stack, test: RawTable | None, note: str) -> Dataset:
    """Return shards as one data set. Test rows get the shards' width and numbering; other features are left out."""
    X_test, y_test, summary = None, None, stack.summary
    if test is not None and request.test is not None:
        like = RawTable(csr_matrix((1, summary.features)), np.zeros(1), summary.columns)
        places = [display_name(request.shards[0]), display_name(request.test)]
        X_test, y_test = align_tables(places, [like, test], None, summary.zero_based)[1]
        X_test = csr_matrix(X_test[:, : summary.features])
    parts = TrainTest(stack.X, stack.y, X_test, y_test).binarized(request.positive)
    return Dataset(request.name, *parts, None, note, summary.columns)


@dataclass
class TrainingRows:
    """Rows to learn from, in this process or in the actors of a cluster.

    If actors read the rows, this process gets only counts, labels and column names: ``data`` has no training rows.

    Attributes
    ----------
    data : Dataset
        The rows, scaled; known once they are read.
    sites : array or None
        The node of every row; None if the estimator divides them evenly.
    sizes : array or None
        The number of rows of each node, if actors read them.
    scale : Scale or None
        How the features are scaled.
    evaluation : Evaluation
        Measures models on these rows; known once training starts.
    """

    request: TrainRequest
    test: RawTable | None = None
    data: Dataset = field(init=False)
    sites: Array | None = field(init=False, default=None)
    sizes: Ints | None = field(init=False, default=None)
    scale: Scale | None = field(init=False, default=None)
    evaluation: Evaluation = field(init=False)

    def with_rows(self, data: Dataset, sites: Array | None) -> "TrainingRows":
        """Store the rows, scaled as requested. Sparse rows stay sparse."""
        require_classes(data.y, CHOOSE)
        self.data, self.sites, kind = data, sites, self.request.scale
        if kind == "none":
            return self
        self.scale = common_scale(kind, [statistics(kind, "all", data.X)], shifts=wants_intercept(self.request))
        if not np.isfinite(self.scale.divisor).all():
            raise ValueError(f"--scale {kind}: the squares of the features overflow: use --scale max-abs")
        X_test = None if data.X_test is None else self.scale.apply(data.X_test)
        self.data = replace(data, X=self.scale.apply(data.X), X_test=X_test)
        return self

    @property
    def n_rows(self) -> int:
        """The number of training rows."""
        return len(self.data.y) if self.sizes is None else int(self.sizes.sum())

    @property
    def about(self) -> dict[str, Any]:
        """Name and sizes for the summary."""
        data, shards = self.data, [display_name(shard) for shard in self.request.shards]
        about = {
            "name": data.name,
            "note": as_stdin(data.note),
            "rows": self.n_rows,
            "features": data.X.shape[1],
            "classes": np.unique(data.y).tolist(),
            "test_rows": None if data.X_test is None else data.X_test.shape[0],
        }
        return about | {"shards": shards} if shards else about

    def node_sizes(self, n_nodes: int) -> Ints:
        """Return the number of rows of each node."""
        if self.sizes is not None:
            return self.sizes
        return np.bincount(np.arange(self.n_rows) % n_nodes if self.sites is None else self.sites)

    def fit(self, model: GadgetSVC, ready: Callable[[], None]) -> None:
        """Train the model; ``ready`` is called once the rows are known, before anything is learned."""

        def start() -> None:
            lam = lam_of(model, self.n_rows)
            self.evaluation = Evaluation.of(self.data, lam, model.fit_intercept, model.n_jobs, model.multi_class)
            ready()

        def read_by_actors(known: DataSummary) -> None:
            no_rows = Stack(csr_matrix((0, known.features)), known.labels, np.empty(0, np.int64), known)
            self.data = _dataset(self.request, no_rows, self.test, "read by the actors")
            self.sizes = known.rows
            start()

        request = self.request
        if request.shards and request.engine == "ray":
            options = {name: getattr(request, name) for name in ("label", "positive", "format")}
            model.fit_shards(request.shards, **options, on_summary=read_by_actors)
        else:
            start()
            model.fit(self.data.X, self.data.y, sites=self.sites)

    def savable(self, model: GadgetSVC) -> GadgetSVC:
        """Return a copy of the model that takes unscaled rows and has the names of the columns."""
        model = copy(model)
        if self.data.columns is not None:
            model.feature_names_in_ = np.array(self.data.columns, dtype=object)
        if self.scale is not None:
            model.coef_, model.intercept_ = self.scale.undo(model.coef_, model.intercept_)
            model.node_coef_, model.node_intercept_ = self.scale.undo(model.node_coef_, model.node_intercept_)
        return model

    def hints(self, model: GadgetSVC) -> list[str]:
        """Suggest --scale after a training that did not converge, if sizes of features explain it."""
        stopped_early = model.stopped_by_ in ("max_iter", "max_seconds") and model.stopping_ is not None
        advice = scale_advice(self.data.X, SCALE_OPTIONS) if stopped_early and self.scale is None else ""
        return [advice[0].upper() + advice[1:] + "."] if advice else []


def check_shards(request: TrainRequest) -> None:
    """Refuse names that are not shards, duplicates, and options that divide rows. Files may be on other machines."""
    shards, count = request.shards, len(request.shards)
    for shard in shards:
        if shard in ENTRIES:
            raise ValueError(f"{shard!r} is a named data set: train on it alone, or write ./{shard} for a file")
        check_file_name(shard)
    if request.scale != "none" and request.engine == "ray":
        raise ValueError(
            f"--scale {request.scale}: the actors read the shards and do not scale them: scale them before, "
            "omit --engine ray, or put all rows into one file"
        )
    _check_distinct(shards)
    if request.n_nodes not in (None, count):
        raise ValueError(f"--nodes {request.n_nodes}: every shard is a node, and there are {count}: leave out --nodes")
    if request.partition != "even":
        raise ValueError(f"--partition {request.partition}: every shard is a node: omit --partition, or give one file")


def check_file_name(name: str) -> None:
    """Refuse a folder, and a pattern that no shell has expanded."""
    if scheme_of(name):
        if "*" in urlsplit(name).path:
            fix = "name each file, or write part-{0..9}.svm"
            raise ValueError(f"{display_name(name)}: a URI takes no pattern: {fix}")
        return
    path = Path(name)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name its files, such as {path / '*.svm'}; each is a node's shard")
    if not path.exists() and next(iglob(name), None) is not None:  # noqa: PTH207 - a pattern may be absolute
        raise ValueError(f"{name} is a pattern, which the shell expands: leave out the quotes around it")


def _check_distinct(shards: list[str]) -> None:
    seen: dict[str, str] = {}
    for shard, name in zip(shards, shard_names(shards), strict=True):
        place = name if scheme_of(name) else str(Path(name).resolve())  # a file: URI may name a link
        if place in seen:
            also = f", also as {display_name(shard)}," if shard != seen[place] else ""
            raise ValueError(f"{display_name(seen[place])}{also} is given twice: each node has its own rows; omit one")
        seen[place] = shard
