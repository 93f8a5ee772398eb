"""Shards, one per node, given as arrays or files: stacks them, and says what all of them have in common."""

from collections.abc import Iterable, Sequence
from os import PathLike, fspath
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.types import Array, Ints
from gadget_svm.data.formats import Files, read_files
from gadget_svm.data.tables import is_number
from gadget_svm.data.uris import LOCAL, display_name, file_name, local_path, scheme_of
from gadget_svm.estimator.advice import warn

MAX_NAMED_LABELS = 3
"""Labels of a shard that a warning names."""


class DataSummary(NamedTuple):
    """All shards together, without their rows.

    Attributes
    ----------
    rows : ndarray of int
        The number of rows of every node.
    features : int
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
            raise ValueError(
                f"shard {i} has {X.shape[1]} features, another has {widest}: do the nodes share one set of features?"
            )
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
    """Warn if all labels of one shard are numbers and all of another are words: they may be the same classes."""
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
    """Return whether all of these are paths or URIs."""
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
