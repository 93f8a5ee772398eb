"""What every benchmark needs: data of the right shape, and where results go."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gadget_svm.report.machine import machine

RESULTS = Path(__file__).parent / "results"


def named(name: str) -> tuple[sp.csr_matrix, np.ndarray, float, str]:
    """A data set by name, or generated data of its shape where it is not on this machine; the last says which."""
    from gadget_svm.data import load_dataset
    from gadget_svm.data.sources import ENTRIES

    entry = ENTRIES[name]
    try:
        d = load_dataset(name, download=False)
        return d.X, d.y, float(entry.lam or 1e-4), d.note
    except FileNotFoundError:
        shape = {"adult": (32561, 123, 14), "ccat": (13823, 47236, 76)}[name]
        X, y = generated(*shape)
        return X, y, float(entry.lam or 1e-4), f"generated data of the shape {shape[0]} x {shape[1]}, {shape[2]} a row"


def generated(rows: int, features: int, per_row: int, seed: int = 0) -> tuple[sp.csr_matrix, np.ndarray]:
    """Sparse rows of length one whose labels follow a random plane, with some noise."""
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, features, size=rows * per_row)
    data = np.full(rows * per_row, per_row**-0.5)
    X = sp.csr_matrix((data, indices.astype(np.int32), np.arange(rows + 1, dtype=np.int32) * per_row), (rows, features))
    X.sum_duplicates()
    score = X @ rng.normal(size=features) + 0.3 * rng.normal(size=rows)
    return X, np.where(score > 0, 1, -1)


def publish(name: str, title: str, lines: list[str], figures: dict[str, Any]) -> None:
    """Print the result, and keep it with machine and date."""
    head = [f"# {title}", "", f"{date.today().isoformat()}, {machine()}. Made by `make bench`.", ""]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text("\n".join([*head, *lines, ""]))
    (RESULTS / f"{name}.json").write_text(
        json.dumps({"date": date.today().isoformat(), "machine": machine(), **figures}, indent=1) + "\n"
    )
    print("\n".join([*head, *lines, ""]))
