"""One shard per node, given as arrays or as files, put side by side."""

from collections.abc import Iterable
from os import PathLike, fspath
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.data.formats import read_tables
from gadget_svm.estimator.places import scheme_of, shown


def stack_shards(shards: Iterable[Any]) -> tuple[sp.csr_matrix, NDArray[Any], NDArray[np.int64]]:
    """All rows, all labels, and the node of each row. A shard is (X, y) or a path."""
    shards = list(shards)
    files = [fspath(shard) for shard in shards if isinstance(shard, str | PathLike)]
    for file in files:
        if scheme_of(file):
            raise ValueError(
                f"{shown(file)} is a URI, which actors read: use engine='ray', or fetch it and give a path"
            )
    tables = iter(read_tables(files) if files else [])
    pairs = [next(tables) if isinstance(shard, str | PathLike) else _pair(i, shard) for i, shard in enumerate(shards)]
    if not pairs:
        raise ValueError("fit_shards got no shards: give one (X, y) pair or one file per node")
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
    sizes = [X.shape[0] for X, _ in pairs]
    X = sp.vstack([X for X, _ in pairs], format="csr")
    return X, np.concatenate([y for _, y in pairs]), np.repeat(np.arange(len(pairs)), sizes)


def _pair(i: int, shard: Any) -> tuple[sp.csr_matrix, NDArray[Any]]:
    if not isinstance(shard, tuple | list) or len(shard) != 2:
        raise TypeError(f"shard {i} is neither an (X, y) pair nor a path: {type(shard).__name__}")
    X, y = shard
    dense_or_sparse: Any = X if sp.issparse(X) else np.atleast_2d(np.asarray(X, dtype=np.float64))
    return sp.csr_matrix(dense_or_sparse), np.asarray(y)


def are_places(shards: Any) -> bool:
    """Whether these are files or URIs, every one."""
    return isinstance(shards, list | tuple) and len(shards) > 0 and all(isinstance(s, str | PathLike) for s in shards)


def is_dataset(X: Any) -> bool:
    """Whether this is a Ray Dataset; Ray is not imported for it."""
    return type(X).__module__.startswith("ray.data")
