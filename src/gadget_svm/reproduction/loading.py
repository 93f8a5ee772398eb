"""How long reading takes: one file of all rows for the centre, one file of its own rows for every node."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sklearn.datasets import dump_svmlight_file

from gadget_svm.data.formats import read_table
from gadget_svm.reproduction.trials import Trial


def loading_times(trial: Trial, most_rows: int = 20_000) -> dict[str, Any]:
    """Seconds to read svmlight text: all rows, and the mean over nodes of their own.

    Of a large data set an even part of ``most_rows`` is written and read, and the time scaled: text is read row by row.
    """
    rows = trial.data.X.shape[0]
    step = max(1, rows // most_rows)
    with TemporaryDirectory() as folder:
        whole = _read_seconds(Path(folder) / "all.svm", trial.data.X[::step], trial.data.y[::step]) * step
        shards = []
        for i in range(trial.n_nodes):
            X, y = trial.shard(i)
            shards.append(_read_seconds(Path(folder) / f"{i}.svm", X[::step], y[::step]) * step)
    return {"central": whole, "nodes": sum(shards) / len(shards), "each": shards, "every": step}


def _read_seconds(path: Path, X: Any, y: Any) -> float:
    dump_svmlight_file(X, y, str(path), zero_based=False)
    started = time.perf_counter()
    read_table(path, n_features=X.shape[1])
    return time.perf_counter() - started
