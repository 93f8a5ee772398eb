"""One trial on one data set: rows and test rows of every node, the graph, the evaluation of models. Stores results.

A stored result is a JSON file. Its name is a digest of everything that determines the result. An interrupted run reuses
its finished results. If data, settings or code change, the name changes, and the result is computed again.
"""

import hashlib
import json
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from gadget_svm.core.network import Network
from gadget_svm.core.rows import Objective, Shares
from gadget_svm.core.state_file import write_atomically
from gadget_svm.core.types import Array, Floats, Indices
from gadget_svm.data import Dataset, read_table
from gadget_svm.data.partition import partition_evenly
from gadget_svm.estimator.problem import Problem
from gadget_svm.kernels import ThreadTeam
from gadget_svm.topologies import build

MOST_ROWS_TIMED = 20_000
"""Loading a larger data set is timed on about this many evenly spaced rows, and the time is scaled up."""


@dataclass(frozen=True, eq=False)
class Trial:
    """The paper's method: "the train and test sets are split into k different files", one of each set per node."""

    data: Any  # a Dataset with a test part
    lam: float
    n_nodes: int
    seed: int
    topology: str = "random-regular"

    @cached_property
    def label(self) -> Indices:
        """Class numbers of the training rows: 1 is the positive class."""
        return np.asarray(self.data.y > 0, dtype=np.int32)

    @cached_property
    def shares(self) -> Shares:
        """Which node owns which training rows."""
        return partition_evenly(self.data.X, self.label, self.n_nodes, self.seed)

    @cached_property
    def network(self) -> Network:
        """The graph of this trial."""
        return build(self.topology, self.n_nodes, seed=self.seed)

    @cached_property
    def problem(self) -> Problem:
        """The training problem of the nodes."""
        return Problem(self.data.X, self.label, None, self.shares, list(range(self.n_nodes)), 1)

    def shard(self, i: int) -> tuple[sp.csr_matrix, Array]:
        """Return node i's rows and their labels."""
        mine = self.shares.order[self.shares.start[i] : self.shares.start[i + 1]]
        return self.data.X[mine], self.data.y[mine]

    @cached_property
    def _objective(self) -> Objective:
        return self.problem.objective(self.lam, ThreadTeam.of(None))

    @cached_property
    def _test_shares(self) -> Shares:
        return partition_evenly(self.data.X_test, (self.data.y_test > 0).astype(np.int32), self.n_nodes, self.seed)

    def objectives(self, models: Floats) -> list[float]:
        """Return F of every model (m x features) on all training rows."""
        return [float(value) for value in self._objective(models[:, None, :]).objective]

    def accuracies(self, models: Floats) -> tuple[list[float], list[float]]:
        """Return the accuracy of every model in per cent: on its node's share of the test rows, and on all of them."""
        right = np.where(self.data.X_test @ models.T > 0, 1, -1) == self.data.y_test[:, None]
        whole = [100 * float(column.mean()) for column in right.T]
        if len(models) != self.n_nodes:  # one model for all
            return whole, whole
        order, start = self._test_shares.order, self._test_shares.start
        own = [100 * float(right[order[start[i] : start[i + 1]], i].mean()) for i in range(self.n_nodes)]
        return own, whole

    def evaluate_all(self, models: Floats) -> tuple[list[float], list[float]]:
        """Return every model's objective on all training rows, and its zero-one error on all test rows."""
        return self.objectives(models), [1 - whole / 100 for whole in self.accuracies(models)[1]]

    def loading_seconds(self) -> dict[str, float]:
        """Time the reading of svmlight text: one file of all rows, and the mean over files of each node's rows."""
        step = max(1, self.data.X.shape[0] // MOST_ROWS_TIMED)
        with TemporaryDirectory() as folder:
            file = Path(folder) / "rows.svm"
            central, *nodes = (
                step * _reading_seconds(file, X[::step], y[::step])
                for X, y in ((self.data.X, self.data.y), *map(self.shard, range(self.n_nodes)))
            )
        return {"central": central, "nodes": sum(nodes) / len(nodes)}


def _reading_seconds(path: Path, X: Any, y: Any) -> float:
    dump_svmlight_file(X, y, str(path), zero_based=False)
    started = time.perf_counter()
    read_table(path, n_features=X.shape[1])
    return time.perf_counter() - started


def majority_percent(data: Dataset) -> float:
    """Return the share of the majority class among the test rows, in per cent."""
    assert data.y_test is not None
    positive = float(np.mean(data.y_test > 0))
    return 100 * max(positive, 1 - positive)


def fingerprint(data: Dataset) -> str:
    """Return a checksum of all rows and labels, in eight digits."""
    total = 0
    parts: list[tuple[Any, Any]] = [(data.X, data.y), (data.X_test, data.y_test)]
    for X, y in parts:
        for part in (X.data, X.indices, X.indptr, np.asarray(y, dtype=np.int64)):
            total = zlib.crc32(np.ascontiguousarray(part).tobytes(), total)
    return f"{total:08x}"


Result = dict[str, Any]
SOURCES = (
    "kernels/*.py", "gossip/*.py", "algorithms/*.py", "core/*.py", "faults/*.py", "topologies/*.py",
    "simulation/engine.py", "data/partition.py", "reproduction/baselines/*.py", "reproduction/methods.py",
    "reproduction/trials.py", "reproduction/network_study.py",
)  # fmt: skip
"""The modules that determine a result."""


def stored(folder: Path, key: dict[str, Any], compute: Callable[[], Result]) -> Result:
    """Return the result stored under ``key``, or compute and store it. A damaged file counts as missing."""
    text = json.dumps(key, sort_keys=True)
    path = folder / f"{key['method']}-{key['data']}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    with suppress(FileNotFoundError, ValueError, TypeError, KeyError):
        found = json.loads(path.read_text())
        if found["key"] == json.loads(text) and found["result"]:
            return dict(found["result"])
    result = compute()
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps({"key": key, "result": result}).encode())
    return dict(json.loads(json.dumps(result)))  # exactly what the next run reads from the file


@cache
def code_digest() -> str:
    """Return a digest of the modules that determine results, in twelve digits."""
    package = Path(__file__).parent.parent
    files = sorted(path for pattern in SOURCES for path in package.glob(pattern))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
