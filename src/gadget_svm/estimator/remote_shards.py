"""Shards that stay where they are read: files, URIs or a Ray Dataset, one shard a node, loaded by the actors.

Owns what is asked of the shards so that all agree (width, numbering, classes, costs) as if they had been read in one
place. No row passes through the driver: it hears of widths, labels and counts only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.cluster import connection, driver
from gadget_svm.core.rows import NO_PAIRS, Rows, Shares
from gadget_svm.core.types import Floats, Ints
from gadget_svm.data.formats import align_tables, read_raw, warn_guessed_label
from gadget_svm.data.parquet import read_arrow_table
from gadget_svm.data.partition import partition_by_site
from gadget_svm.data.tables import RawTable, binarize_labels, normalize_labels
from gadget_svm.estimator.problem import MAX_KEPT_SHARE, Lengths, as_csr, pairs_of, row_weights
from gadget_svm.estimator.shard_uris import display_name, shard_names
from gadget_svm.estimator.shards import Agreed, warn_of_kinds
from gadget_svm.estimator.validation import CHOOSE, require_classes
from gadget_svm.kernels import ThreadTeam
from gadget_svm.simulation.runtime import Evaluator

ONCE = np.empty(0)
AT_ONCE = 2**20
"""Entries of rows that are looked at together: numpy makes a copy of them in 64 bits."""
__all__ = ["RemoteProblem", "pose", "shard_names", "start_dataset", "start_files"]


class Look(NamedTuple):
    """What a shard says of itself, without its rows."""

    rows: int
    width: int
    sparse_text: bool
    from_zero: bool  # whether an id 0 occurs
    columns: tuple[str, ...] | None
    labels: NDArray[Any]  # each once
    counts: Ints
    guessed: int | None  # the number of the column that was taken as the label, where it has no name
    lengths: list[Lengths]  # of the rows of each label


class Terms(NamedTuple):
    """What all shards agreed on."""

    width: int
    shift: bool  # whether svmlight ids count from 1
    classes: NDArray[Any]  # the labels, each once
    weight: Floats | None  # of a row of each class; None: every row counts once
    intercept_unit: float  # see `Rows`; 0: no intercept
    merged: Ints | None = None  # where several labels are one class: that of every label
    pairs: NDArray[np.int32] = NO_PAIRS  # of classes, one against one


@dataclass
class Shards:
    """The shards of one actor's nodes; it is sent there, and reads there."""

    names: list[str]
    tables: list[list[Any]] = field(default_factory=list)  # of a Ray Dataset: parts of every node's table
    label: str | None = None  # its column
    _raws: list[RawTable] = field(default_factory=list)
    _width: int = 0
    _rows: Rows | None = None

    def look(self) -> list[Look]:
        """Read, and say what there is."""
        if self.tables:
            pairs = zip(self.names, self.tables, strict=True)
            self._raws = [_from_tables(name, parts, self.label) for name, parts in pairs]
        else:
            self._raws = [_slim(read_raw(name, self.label)) for name in self.names]
        return [_look(display_name(name), raw) for name, raw in zip(self.names, self._raws, strict=True)]

    def settle(self, terms: Terms) -> tuple[NDArray[np.bool_], Floats]:
        """Bring the rows into their common form, shard by shard, and let what was read go.

        Returns which features occur, and the weight of every node's rows.
        """
        tables, labels = [], [terms.classes[:0]]
        for name in self.names:
            X, y = align_tables([Path(display_name(name))], [self._raws.pop(0)], terms.width, not terms.shift)[0]
            tables.append(as_csr(X, terms.intercept_unit > 0))
            labels.append(y)
            del X
        start = np.cumsum([len(y) for y in labels])
        label = np.searchsorted(terms.classes, np.concatenate(labels)).astype(np.int32)
        label = label if terms.merged is None else terms.merged[label].astype(np.int32)
        whole = _stacked(tables)
        self._width = whole.shape[1]
        shares = Shares(np.arange(len(label)), start, ONCE)
        if terms.weight is not None:  # as `partition_by_site` does it
            owner = np.repeat(np.arange(len(self.names)), np.diff(start))
            shares = partition_by_site(owner, terms.weight[label], list(range(len(self.names))))[0]
        self._rows = Rows.of(whole, label, np.ones(len(label)), shares, terms.pairs, terms.intercept_unit)
        used = np.zeros(self._width, dtype=np.bool_)
        for some in _pieces(whole.indices):
            used[some] = True
        return used, shares.sizes

    def narrow(self, used: Ints) -> None:
        """Leave out features that occur nowhere."""
        if self._rows is None:
            raise RuntimeError("settle the terms first")
        place = np.zeros(self._width, dtype=self._rows.indices.dtype)
        place[used] = np.arange(len(used))
        for some in _pieces(self._rows.indices):
            some[:] = place[some]

    def rows(self) -> Rows:
        """As the kernels read them."""
        if self._rows is None:
            raise RuntimeError("settle the terms first")
        return self._rows


def _slim(raw: RawTable) -> RawTable:
    """With 32 bits for an index where they are enough: readers of text take 64."""
    X = raw.X
    if max(X.nnz, X.shape[1]) >= 2**31:
        return raw
    return replace(raw, X=sp.csr_matrix((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), X.shape))


def _stacked(tables: list[sp.csr_matrix]) -> sp.csr_matrix:
    """One under another. The list is emptied: each is let go as soon as it is copied, and a single one is not."""
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
    """Views of a stretch each."""
    return (indices[at : at + AT_ONCE] for at in range(0, len(indices), AT_ONCE))


def _from_tables(name: str, parts: Sequence[Any], label: str | None) -> RawTable:
    import pyarrow as pa
    import ray

    tables = [ray.get(part, timeout=600) for part in parts]
    tables = [table if isinstance(table, pa.Table) else pa.Table.from_pandas(table) for table in tables]
    return read_arrow_table(Path(name), pa.concat_tables([t for t in tables if t.num_rows] or tables[:1]), label)


def _look(name: str, raw: RawTable) -> Look:
    tidy = normalize_labels(Path(name), raw.y)
    labels, counts = np.unique(tidy, return_counts=True)
    squares = np.asarray(raw.X.multiply(raw.X).sum(axis=1)).ravel()
    from_zero = raw.sparse_text and bool((raw.X.indices == 0).any())
    return Look(
        raw.X.shape[0], raw.X.shape[1], raw.sparse_text, from_zero, raw.columns, labels, counts, raw.guessed,
        [Lengths.of(squares[tidy == label]) for label in labels],
    )  # fmt: skip


def agreed_width(names: Sequence[str], looks: Sequence[Look]) -> tuple[int, bool]:
    """The common width, and whether svmlight ids count from 1: decided by stand-ins of one row, as by the tables."""
    stand_ins = [_stand_in(look) for look in looks]
    tables = align_tables([Path(name) for name in names], stand_ins, None, None)
    return int(tables[0][0].shape[1]), not any(look.from_zero for look in looks)


def _stand_in(look: Look) -> RawTable:
    X = sp.csr_matrix((min(look.rows, 1), look.width))
    if look.from_zero:
        X = sp.csr_matrix(([1.0], ([0], [0])), shape=X.shape)
    return RawTable(X, np.zeros(X.shape[0]), look.columns, look.sparse_text)


@dataclass(frozen=True)
class RemoteProblem:
    """A problem whose rows are with the actors of ``runtime``: what a fit looks at of it."""

    runtime: Any
    X: sp.csr_matrix  # of the width of the rows, and empty
    shares: Shares  # every node's rows as one, of their total weight
    n_outputs: int
    used: NDArray[np.bool_]
    mean_cost: float = 1.0

    def occurring(self) -> "tuple[RemoteProblem, NDArray[np.intp]]":
        """As `Problem.occurring`, at the actors."""
        used = np.flatnonzero(self.used)
        if len(used) > MAX_KEPT_SHARE * len(self.used):
            return self, np.arange(len(self.used))
        self.runtime.ask("narrow", used)
        return replace(self, X=sp.csr_matrix((0, len(used)))), used

    def objective(self, lam: float, team: ThreadTeam) -> Evaluator:  # noqa: ARG002
        """Measured by the actors."""
        return lambda models: self.runtime.judge(models, lam)


def pose(
    runtime: Any, class_weight: Any, intercept: bool, positive: str | None = None, multi_class: str = "ovr"
) -> tuple[RemoteProblem, NDArray[Any], Agreed]:
    """The problem that the actors' shards make up, its classes, and what the shards agreed on."""
    names, looks = runtime.names, [look for part in runtime.ask("look") for look in part]
    width, shift = agreed_width(names, looks)
    warn_guessed_label(names[0], looks[0].guessed)
    warn_of_kinds(names, [look.labels for look in looks])
    labels, number = np.unique(np.concatenate([look.labels for look in looks]), return_inverse=True)
    signs = binarize_labels(labels, positive)
    classes, merged = np.unique(signs, return_inverse=True)
    require_classes(classes, CHOOSE)
    if len(classes) < 2:
        raise ValueError(
            f"the data has only one class, {classes.tolist()[0]!r}: a classifier needs rows of at least two"
        )
    counts = np.bincount(merged[number], np.concatenate([look.counts for look in looks])).astype(np.int64)
    weight = row_weights(class_weight, classes, np.repeat(np.arange(len(classes)), counts), None)
    weight = None if weight is None else weight[np.cumsum(counts) - 1]
    pairs = pairs_of(len(classes), multi_class)
    merging = None if positive is None else merged
    rows = np.array([look.rows for look in looks], dtype=np.int64)
    lengths = [length for look in looks for length in look.lengths]
    counted = [length for length, c in zip(lengths, merged[number], strict=True) if weight is None or weight[c] > 0]
    unit = Lengths(*np.sum(counted, axis=0)).intercept_unit() if intercept else 0.0
    found = runtime.ask("settle", Terms(width, shift, labels, weight, unit, merging, pairs))
    used, sizes = np.logical_or.reduce([part[0] for part in found]), np.concatenate([part[1] for part in found])
    if weight is not None and not sizes.all():
        name = names[int(np.argmin(sizes))]
        raise ValueError(f"shard {name} has no rows of positive weight: leave it out, or change class_weight")
    problem = RemoteProblem(
        runtime, sp.csr_matrix((0, len(used))), Shares(np.arange(len(sizes)), np.arange(len(sizes) + 1), sizes),
        len(pairs) or (1 if len(classes) == 2 else len(classes)), used,
    )  # fmt: skip
    zero_based = not shift if any(look.sparse_text for look in looks) else None
    return problem, classes, Agreed(rows, width, zero_based, looks[0].columns, labels)


def start_files(names: list[str], options: dict[str, Any], label: str | None = None) -> Any:
    """Actors that will read these shards, one shard a node."""
    return _start(names, options, lambda first, last: Shards(names[first:last], label=label))


def start_dataset(dataset: Any, nodes: int | None, label: str | None, options: dict[str, Any]) -> Any:
    """Actors that will take the parts of a Ray Dataset: its rows in order, shared out evenly."""
    settings = connection.RayOptions.of(options)
    cluster = connection.Cluster(settings)
    try:
        what = "that the Dataset's rows are there: are CPUs free for its tasks beside what else runs on the cluster?"
        tables = connection.within(settings.start_timeout, what, lambda: _shared_out(cluster.ray, dataset, nodes))
    except BaseException:
        cluster.close()
        raise
    names = [f"part {i} of the dataset" for i in range(len(tables))]
    return _start(names, options, lambda first, last: Shards(names[first:last], tables[first:last], label), cluster)


def _shared_out(ray: Any, dataset: Any, nodes: int | None) -> list[list[Any]]:
    """The tables of every node's part, as references to what is computed.

    Tasks that are still to run would wait for CPUs that the actors hold, while the actors wait for them.
    """
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


def _start(names: list[str], options: dict[str, Any], source: Any, cluster: Any = None) -> Any:
    cluster = cluster or connection.Cluster(connection.RayOptions.of(options))
    try:
        bounds = driver.even_bounds(len(names), cluster.actors(len(names)))
        runtime = driver.RayRuntime(cluster, bounds, [source(*pair) for pair in pairwise(bounds.tolist())])
        runtime.names = [display_name(name) for name in names]
        return runtime
    except BaseException:
        cluster.close()
        raise
