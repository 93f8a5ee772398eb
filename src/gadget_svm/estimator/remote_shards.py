"""Shards that only actors read: files, URIs or a Ray Dataset, one shard per node.

Owns how the shards agree on width, numbering, classes and costs, as if they had been read in one place. No row passes
through the driver, only widths, labels and counts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.cluster.connection import Cluster, call_within
from gadget_svm.cluster.driver import RayRuntime, even_bounds
from gadget_svm.cluster.options import RayOptions
from gadget_svm.core.rows import NO_PAIRS, Rows, Shares
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.data.formats import align_tables, ids_from_zero, read_raw, warn_guessed_label
from gadget_svm.data.parquet import read_arrow_table
from gadget_svm.data.partition import partition_by_site
from gadget_svm.data.tables import RawTable, binarize_labels, normalize_labels
from gadget_svm.data.uris import display_name
from gadget_svm.estimator.problem import MAX_KEPT_SHARE, Lengths, as_csr, pairs_of, row_weights
from gadget_svm.estimator.shards import DataSummary, is_dataset, shard_names, warn_of_kinds
from gadget_svm.kernels import ThreadTeam
from gadget_svm.simulation.runtime import Evaluator

PIECE_ENTRIES = 2**20
"""Entries of rows that are indexed together: numpy makes a copy of the indices in 64 bits."""
DATASET_TIMEOUT_S = 600


class ShardSummary(NamedTuple):
    """The facts about a shard that the driver needs: no rows."""

    table: RawTable  # one empty row, or one with an id 0 if that occurs; for `align_tables`
    rows: int
    labels: NDArray[Any]  # each once
    counts: Ints  # of the rows of each label
    lengths: list[Lengths]  # of the rows of each label


class CommonFormat(NamedTuple):
    """The format that all shards have in common."""

    width: int
    shift: bool  # whether svmlight ids count from 1
    classes: NDArray[Any]  # the labels, each once
    weight: Floats | None  # of a row of each class; None: every row counts once
    intercept_unit: float  # see `Rows`; 0: no intercept
    merged: Ints | None = None  # if several labels are one class: the class of every label
    pairs: NDArray[np.int32] = NO_PAIRS  # of classes, one against one


@dataclass
class Shards:
    """The shards of one actor's nodes. The object is sent to the actor, and reads there."""

    names: list[str]
    tables: list[list[Any]] = field(default_factory=list)  # of a Ray Dataset: parts of every node's table
    label: str | None = None  # its column
    _raws: list[RawTable] = field(default_factory=list)
    _width: int = 0
    _rows: Rows | None = None

    def summarize(self) -> list[ShardSummary]:
        """Read the shards and return what they hold."""
        if self.tables:
            pairs = zip(self.names, self.tables, strict=True)
            self._raws = [_from_tables(name, parts, self.label) for name, parts in pairs]
        else:
            self._raws = [read_raw(name, self.label) for name in self.names]
        return [_summary(display_name(name), raw) for name, raw in zip(self.names, self._raws, strict=True)]

    def convert(self, common: CommonFormat) -> tuple[Flags, Floats]:
        """Bring the rows into their common format, shard by shard, and free what was read.

        Returns which features occur, and the weight of every node's rows.
        """
        tables, labels = [], [common.classes[:0]]
        for name in self.names:
            X, y = align_tables([Path(display_name(name))], [self._raws.pop(0)], common.width, not common.shift)[0]
            tables.append(as_csr(X, common.intercept_unit > 0))
            labels.append(y)
            del X
        start = np.cumsum([len(y) for y in labels])
        label = np.searchsorted(common.classes, np.concatenate(labels)).astype(np.int32)
        label = label if common.merged is None else common.merged[label].astype(np.int32)
        X = _stack(tables)
        self._width = X.shape[1]
        shares = Shares(np.arange(len(label)), start, np.empty(0))
        if common.weight is not None:  # as `partition_by_site` does it
            owner = np.repeat(np.arange(len(self.names)), np.diff(start))
            shares = partition_by_site(owner, common.weight[label], list(range(len(self.names))))[0]
        self._rows = Rows.of(X, label, np.ones(len(label)), shares, common.pairs, common.intercept_unit)
        used = np.zeros(self._width, dtype=np.bool_)
        for some in _pieces(X.indices):
            used[some] = True
        return used, shares.sizes

    def keep_columns(self, used: Ints) -> None:
        """Leave out all other features."""
        indices = self.rows().indices
        place = np.zeros(self._width, dtype=indices.dtype)
        place[used] = np.arange(len(used))
        for some in _pieces(indices):
            some[:] = place[some]

    def rows(self) -> Rows:
        """Return the rows as the kernels read them."""
        if self._rows is None:
            raise RuntimeError("convert the shards first")
        return self._rows


def _stack(tables: list[sp.csr_matrix]) -> sp.csr_matrix:
    """Stack the tables and empty the list: each is freed as soon as it is copied, and a single one is not copied."""
    if len(tables) == 1:
        return tables.pop()
    (height, width), nnz = (sum(X.shape[0] for X in tables), tables[0].shape[1]), sum(X.nnz for X in tables)
    kind = tables[0].indices.dtype if nnz < 2**31 else np.dtype(np.int64)
    data, indices, ends = np.empty(nnz), np.empty(nnz, dtype=kind), [np.zeros(1, dtype=kind)]
    while tables:
        X, at = tables.pop(0), int(ends[-1][-1])
        data[at : at + X.nnz], indices[at : at + X.nnz] = X.data, X.indices
        ends.append(np.add(X.indptr[1:], at, dtype=kind))
    return sp.csr_matrix((data, indices, np.concatenate(ends)), shape=(height, width))


def _pieces(indices: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Return views of PIECE_ENTRIES consecutive entries each."""
    return (indices[at : at + PIECE_ENTRIES] for at in range(0, len(indices), PIECE_ENTRIES))


def _from_tables(name: str, parts: Sequence[Any], label: str | None) -> RawTable:
    import pyarrow as pa
    import ray

    tables = [ray.get(part, timeout=DATASET_TIMEOUT_S) for part in parts]
    tables = [table if isinstance(table, pa.Table) else pa.Table.from_pandas(table) for table in tables]
    return read_arrow_table(Path(name), pa.concat_tables([t for t in tables if t.num_rows] or tables[:1]), label)


def _summary(name: str, raw: RawTable) -> ShardSummary:
    tidy = normalize_labels(Path(name), raw.y)
    labels, counts = np.unique(tidy, return_counts=True)
    squares = np.asarray(raw.X.multiply(raw.X).sum(axis=1)).ravel()
    first = sp.csr_matrix((min(len(tidy), 1), raw.X.shape[1]))
    if raw.has_id_zero():
        first[0, 0] = 1.0
    lengths = [Lengths.of(squares[tidy == label]) for label in labels]
    return ShardSummary(replace(raw, X=first, y=np.zeros(first.shape[0])), len(tidy), labels, counts, lengths)


@dataclass(frozen=True)
class RemoteProblem:
    """A problem whose rows are with the actors of ``runtime``."""

    runtime: RayRuntime
    X: sp.csr_matrix  # of the width of the rows, and empty
    shares: Shares  # every node's rows as one, of their total weight
    n_outputs: int
    used: Flags
    mean_cost: float = 1.0

    def occurring(self) -> "tuple[RemoteProblem, NDArray[np.intp]]":
        """As `Problem.occurring`, at the actors."""
        used = np.flatnonzero(self.used)
        if len(used) > MAX_KEPT_SHARE * len(self.used):
            return self, np.arange(len(self.used))
        self.runtime.ask("keep_columns", used)
        return replace(self, X=sp.csr_matrix((0, len(used)))), used

    def objective(self, lam: float, team: ThreadTeam) -> Evaluator:  # noqa: ARG002
        """Return the objective, which the actors compute."""
        return lambda models: self.runtime.evaluate(models, lam)


def remote_problem(
    runtime: RayRuntime, class_weight: Any, intercept: bool, positive: str | None = None, multi_class: str = "ovr"
) -> tuple[RemoteProblem, NDArray[Any], DataSummary]:
    """Return the problem that the actors' shards make up, its classes, and what is known of all shards."""
    from sklearn.utils.multiclass import check_classification_targets  # here, as actors do without scikit-learn

    names, summaries = runtime.names, [summary for part in runtime.ask("summarize") for summary in part]
    tables = [replace(summary.table, X=summary.table.X.copy()) for summary in summaries]  # Ray's are read-only
    width = int(align_tables([Path(name) for name in names], tables, None, None)[0][0].shape[1])
    zero_based = ids_from_zero(tables)
    warn_guessed_label(names[0], tables[0].guessed)
    warn_of_kinds(names, [summary.labels for summary in summaries])
    labels, number = np.unique(np.concatenate([summary.labels for summary in summaries]), return_inverse=True)
    signs = binarize_labels(labels, positive)
    classes, merged = np.unique(signs, return_inverse=True)
    check_classification_targets(classes)
    if len(classes) < 2:
        raise ValueError(
            f"the data has only one class, {classes.tolist()[0]!r}: a classifier needs rows of at least two"
        )
    counts = np.bincount(merged[number], np.concatenate([summary.counts for summary in summaries])).astype(np.int64)
    weight = row_weights(class_weight, classes, np.repeat(np.arange(len(classes)), counts), None)
    weight = None if weight is None else weight[np.cumsum(counts) - 1]
    pairs = pairs_of(len(classes), multi_class)
    lengths = [length for summary in summaries for length in summary.lengths]
    positive_weight = np.ones(len(number), bool) if weight is None else weight[merged[number]] > 0
    unit = Lengths(*np.array(lengths)[positive_weight].sum(axis=0)).intercept_unit() if intercept else 0.0
    common = CommonFormat(width, not zero_based, labels, weight, unit, None if positive is None else merged, pairs)
    found = runtime.ask("convert", common)
    used, sizes = np.logical_or.reduce([part[0] for part in found]), np.concatenate([part[1] for part in found])
    if weight is not None and not sizes.all():
        name = names[int(np.argmin(sizes))]
        raise ValueError(f"shard {name} has no rows of positive weight: leave it out, or change class_weight")
    problem = RemoteProblem(
        runtime, sp.csr_matrix((0, len(used))), Shares(np.arange(len(sizes)), np.arange(len(sizes) + 1), sizes),
        len(pairs) or (1 if len(classes) == 2 else len(classes)), used,
    )  # fmt: skip
    rows = np.array([summary.rows for summary in summaries], dtype=np.int64)
    return problem, classes, DataSummary(rows, width, zero_based, tables[0].columns, labels)


def start(shards: Any, nodes: int | None, label: str | None, options: dict[str, Any]) -> RayRuntime:
    """Connect, and return a runtime whose actors will read these shards, one per node.

    The rows of a Ray Dataset are split evenly over the ``nodes``, in order.
    """
    tables: list[list[Any]] = []
    names = [] if is_dataset(shards) else shard_names(shards)
    cluster = Cluster(RayOptions.of(options))
    try:
        if is_dataset(shards):
            what = "share out the Dataset's rows (its tasks need CPUs beside what else runs on the cluster)"
            tables = call_within(cluster.options.start_timeout, what, lambda: _tables(cluster.ray, shards, nodes))
            names = [f"part {i} of the dataset" for i in range(len(tables))]
        bounds = even_bounds(len(names), cluster.actors(len(names)))
        sources = [Shards(names[a:b], tables[a:b], label) for a, b in pairwise(bounds.tolist())]
        runtime = RayRuntime(cluster, bounds, sources)
    except BaseException:
        cluster.close()
        raise
    runtime.names = [display_name(name) for name in names]
    return runtime


def _tables(ray: Any, dataset: Any, nodes: int | None) -> list[list[Any]]:
    """Return references to the tables of every node's part, computed before actors take the CPUs for it."""
    count = dataset.count()
    nodes = min(10, count) if nodes is None else nodes
    if nodes > count:
        raise ValueError(f"n_nodes={nodes} is more than the {count} rows: every node needs at least one row")
    cuts = [count * i // nodes for i in range(1, nodes)]
    parts = dataset.split_at_indices(cuts) if cuts else [dataset.materialize()]
    tables = [part.to_arrow_refs() for part in parts]
    refs = [ref for part in tables for ref in part]
    ray.wait(refs, num_returns=len(refs), fetch_local=False)
    return tables
