"""Shards as an actor reads them: files, URIs or parts of a Ray Dataset, one shard per node.

The driver, `remote_fit`, gets a summary of each shard, and sends the format that all of them are brought into.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.rows import NO_PAIRS, Rows, Shares
from gadget_svm.core.types import Array, Flags, Floats, Indices, Ints
from gadget_svm.data.formats import align_tables, read_raw
from gadget_svm.data.parquet import read_arrow_table
from gadget_svm.data.partition import partition_by_site
from gadget_svm.data.tables import Labels, RawTable, normalize_labels
from gadget_svm.data.uris import display_name
from gadget_svm.estimator.problem import Lengths, as_csr

DATASET_TIMEOUT_S = 600


class ShardSummary(NamedTuple):
    """The facts about a shard that the driver needs: no rows."""

    table: RawTable  # one empty row, or one with an id 0 if that occurs; for `align_tables`
    rows: int
    labels: Array  # the distinct labels
    counts: Ints  # how many rows have each label
    lengths: list[Lengths]  # how long the rows of each label are


class CommonFormat(NamedTuple):
    """The format that all shards have in common."""

    width: int
    shift: bool  # whether svmlight ids count from 1
    classes: Array  # the distinct labels
    weight: Floats | None  # the weight of each class's rows; None: every row counts once
    intercept_unit: float  # see `Rows`; 0 if there is no intercept
    merged: Ints | None = None  # the class of every label, if several labels are one class
    pairs: Indices = NO_PAIRS  # the two classes of every output, one against one


@dataclass
class Shards:
    """The shards of one actor's nodes. The object is sent to the actor, and reads there."""

    names: list[str]
    tables: list[list[Any]] = field(default_factory=list)  # for a Ray Dataset: the parts of every node's table
    label: str | None = None  # the column with the labels
    _raws: list[RawTable] = field(default_factory=list)
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
        pairs = [self._convert_next(name, common) for name in self.names]
        X, y = sp.vstack([X for X, _ in pairs], format="csr"), np.concatenate([y for _, y in pairs])
        start = np.cumsum([0, *(len(y) for _, y in pairs)])
        del pairs
        label = np.searchsorted(common.classes, y).astype(np.int32)
        label = label if common.merged is None else common.merged[label].astype(np.int32)
        shares = Shares(np.arange(len(label)), start, np.empty(0))
        if common.weight is not None:  # as `partition_by_site` does it
            owner = np.repeat(np.arange(len(self.names)), np.diff(start))
            shares = partition_by_site(owner, common.weight[label], list(range(len(self.names))))[0]
        self._rows = Rows.of(X, label, np.ones(len(label)), shares, common.pairs, common.intercept_unit)
        used = np.zeros(X.shape[1], dtype=np.bool_)
        used[X.indices] = True
        return used, shares.sizes

    def _convert_next(self, name: str, common: CommonFormat) -> tuple[sp.csr_matrix, Labels]:
        X, y = align_tables([Path(display_name(name))], [self._raws.pop(0)], common.width, not common.shift)[0]
        return as_csr(X, common.intercept_unit > 0), y

    def keep_columns(self, used: Ints) -> None:
        """Leave out all other features."""
        indices = self.rows().indices
        place = np.zeros(indices.max(initial=0) + 1, dtype=indices.dtype)
        place[used] = np.arange(len(used))
        indices[:] = place[indices]

    def rows(self) -> Rows:
        """Return the rows as the kernels read them."""
        if self._rows is None:
            raise RuntimeError("convert the shards first")
        return self._rows


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
