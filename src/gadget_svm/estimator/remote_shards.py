"""Shards as an actor reads them: files, URIs or parts of a Ray Dataset, one shard per node.

The driver, `remote_fit`, gets a summary of each shard, and sends the format that all of them are brought into.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.core.rows import NO_PAIRS, Rows, Shares
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.data.formats import align_tables, read_raw
from gadget_svm.data.parquet import read_arrow_table
from gadget_svm.data.partition import partition_by_site
from gadget_svm.data.tables import RawTable, normalize_labels
from gadget_svm.data.uris import display_name
from gadget_svm.estimator.problem import Lengths, as_csr

PIECE_ENTRIES = 2**20
"""Entries of rows that are indexed together: numpy makes a copy of the indices in 64 bits."""
DATASET_TIMEOUT_S = 600


class ShardSummary(NamedTuple):
    """The facts about a shard that the driver needs: no rows."""

    table: RawTable  # one empty row, or one with an id 0 if that occurs; for `align_tables`
    rows: int
    labels: NDArray[Any]  # the distinct labels
    counts: Ints  # how many rows have each label
    lengths: list[Lengths]  # how long the rows of each label are


class CommonFormat(NamedTuple):
    """The format that all shards have in common."""

    width: int
    shift: bool  # whether svmlight ids count from 1
    classes: NDArray[Any]  # the distinct labels
    weight: Floats | None  # the weight of each class's rows; None: every row counts once
    intercept_unit: float  # see `Rows`; 0 if there is no intercept
    merged: Ints | None = None  # the class of every label, if several labels are one class
    pairs: NDArray[np.int32] = NO_PAIRS  # the two classes of every output, one against one


@dataclass
class Shards:
    """The shards of one actor's nodes. The object is sent to the actor, and reads there."""

    names: list[str]
    tables: list[list[Any]] = field(default_factory=list)  # for a Ray Dataset: the parts of every node's table
    label: str | None = None  # the column with the labels
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
