"""Reads shards, one per node: stacks arrays and files in this process, or reads files and datasets in an actor.

The driver of a cluster, `remote_fit`, gets a summary of each shard, and sends every actor the common format into which
it converts its shards.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.rows import Rows, Shares
from gadget_svm.core.types import Array, Flags, Floats, Indices, Ints
from gadget_svm.data.binary_tables import read_arrow_table
from gadget_svm.data.formats import Files, align_tables, read_files, read_raw
from gadget_svm.data.partition import partition_by_site
from gadget_svm.data.tables import Labels, RawTable, is_number, normalize_labels
from gadget_svm.data.uris import LOCAL, display_name, file_name, local_path, scheme_of
from gadget_svm.estimator.advice import warn
from gadget_svm.estimator.problem import Lengths, as_csr
from gadget_svm.kernels.rows import NO_PAIRS

MAX_NAMED_LABELS = 3
"""A warning names at most this many labels of a shard."""


class DataSummary(NamedTuple):
    """Facts about all shards together, without their rows.

    Attributes
    ----------
    rows : ndarray of int
        The number of rows of every node.
    features : int
        The number of features.
    zero_based : bool or None
        Whether svmlight ids count from 0; None if no shard is svmlight.
    columns : tuple of str or None
        The features' names, if they have names.
    labels : ndarray
        The distinct labels.
    """

    rows: Ints
    features: int
    zero_based: bool | None
    columns: tuple[str, ...] | None
    labels: Array


class Stack(NamedTuple):
    """All shards in one table."""

    X: sp.csr_matrix
    y: Array
    sites: Ints  # the node of every row
    summary: DataSummary


def stack_shards(shards: Iterable[Any], label: str | None = None, format: str | None = None) -> Stack:
    """Read and stack the shards: (X, y) pairs, or paths of files with the column ``label``."""
    shards = list(shards)
    if not shards:
        raise ValueError("fit_shards got no shards: give one (X, y) pair or one file per node")
    places = [fspath(shard) for shard in shards if isinstance(shard, str | PathLike)]
    files = read_files(places, label=label, format=format) if places else Files([])
    tables = iter(files.tables)
    pairs, names = [], []
    for i, shard in enumerate(shards):
        is_file = isinstance(shard, str | PathLike)
        pairs.append(next(tables) if is_file else _pair(i, shard))
        names.append(display_name(fspath(shard)) if is_file else f"shard {i}")
    widest = max(X.shape[1] for X, _ in pairs)
    for i, (X, y) in enumerate(pairs):
        if X.shape[0] == 0:
            raise ValueError(f"shard {i} has no rows: leave the node out, or give it some")
        if X.shape[0] != len(y):
            raise ValueError(f"shard {i} has {X.shape[0]} rows but {len(y)} labels")
        if X.shape[1] != widest:
            widths = f"shard {i} has {X.shape[1]} features, another has {widest}"
            raise ValueError(f"{widths}: do the nodes share one set of features?")
    warn_of_kinds(names, [y for _, y in pairs])
    sizes = np.array([X.shape[0] for X, _ in pairs])
    X, y = sp.vstack([X for X, _ in pairs], format="csr"), np.concatenate([y for _, y in pairs])
    summary = DataSummary(sizes, widest, files.zero_based, files.columns, np.unique(y))
    return Stack(X, y, np.repeat(np.arange(len(pairs)), sizes), summary)


def _pair(i: int, shard: Any) -> tuple[sp.csr_matrix, Array]:
    if not isinstance(shard, tuple | list) or len(shard) != 2:
        raise TypeError(f"shard {i} is neither an (X, y) pair nor a path: {type(shard).__name__}")
    X, y = shard
    dense_or_sparse: Any = X if sp.issparse(X) else np.atleast_2d(np.asarray(X, dtype=np.float64))
    return sp.csr_matrix(dense_or_sparse), np.asarray(y)


def warn_of_kinds(names: Sequence[str], labels: Sequence[Array]) -> None:
    """Warn if all labels of one shard are numbers and all labels of another are words: they may mean the same."""
    if all(y.dtype.kind in "biuf" for y in labels):
        return
    kinds: dict[bool, str] = {}
    for name, y in zip(names, labels, strict=True):
        distinct = sorted({str(label) for label in y.ravel().tolist()})
        if len(number := {is_number(label) for label in distinct}) == 1:
            some = ", ".join([*distinct[:MAX_NAMED_LABELS], *["..."] * (len(distinct) > MAX_NAMED_LABELS)])
            kinds.setdefault(number.pop(), f"{name} has the labels {some}")
    if len(kinds) == 2:
        both = f"{kinds[True]} and {kinds[False]}, which are taken for different labels"
        warn(f"{both}: write the labels alike in all shards if they mean the same")


def require_list(shards: Any) -> None:
    """Raise if the shards are one path and not a list of paths."""
    if isinstance(shards, str | PathLike):
        place = display_name(fspath(shards))
        raise TypeError(
            f"shards must be a list of paths, one per node, and {place!r} is a single path: write "
            f"fit_shards([{place!r}, ...]), or, to split its rows over nodes, read them with "
            "gadget_svm.data.read_table and give them to fit"
        )


def are_places(shards: Any) -> bool:
    """Return whether all shards are paths or URIs."""
    return isinstance(shards, list | tuple) and len(shards) > 0 and all(isinstance(s, str | PathLike) for s in shards)


def is_dataset(X: Any) -> bool:
    """Return whether this is a Ray Dataset, without importing Ray."""
    return type(X).__module__.startswith("ray.data")


def shard_names(shards: Iterable[Any]) -> list[str]:
    """Check the paths and URIs of shards. Relative paths become absolute, as actors run in other folders."""
    return [_checked(fspath(shard)) for shard in shards]


def _checked(place: str) -> str:
    scheme = scheme_of(place)
    if scheme in LOCAL:
        return str(local_path(place) if scheme else local_path(place).resolve())
    try:
        urlsplit(place).port  # noqa: B018 - it raises
    except ValueError:
        raise ValueError(
            f"a {scheme}:// shard has something after a ':' that is no port: in a name or a password write %3A, %2F, "
            "%3F, %23 and %40 for : / ? # @"
        ) from None
    file_name(place)
    return place


DATASET_TIMEOUT_S = 600


class ShardSummary(NamedTuple):
    """The facts about a shard that the driver needs, without its rows."""

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
    """The shards of one actor's nodes. The driver sends this object to the actor, where it reads the shards."""

    names: list[str]
    tables: list[list[Any]] = field(default_factory=list)  # for a Ray Dataset: the parts of every node's table
    label: str | None = None  # the column with the labels
    _raws: list[RawTable] = field(default_factory=list)
    _rows: Rows | None = None

    def summarize(self) -> list[ShardSummary]:
        """Read the shards and return a summary of each."""
        if self.tables:
            pairs = zip(self.names, self.tables, strict=True)
            self._raws = [_from_tables(name, parts, self.label) for name, parts in pairs]
        else:
            self._raws = [read_raw(name, self.label) for name in self.names]
        return [_summary(display_name(name), raw) for name, raw in zip(self.names, self._raws, strict=True)]

    def convert(self, common: CommonFormat) -> tuple[Flags, Floats]:
        """Convert the rows to the common format, shard by shard, and free the tables that were read.

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
        """Keep only the features ``used``."""
        indices = self.rows().indices
        place = np.zeros(indices.max(initial=0) + 1, dtype=indices.dtype)
        place[used] = np.arange(len(used))
        indices[:] = place[indices]

    def rows(self) -> Rows:
        """Return the rows in the form that the kernels read."""
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
