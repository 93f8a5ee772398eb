"""The command line in process, and small files for it."""

from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from gadget_svm.cli.app import app

SRC = Path(__file__).parents[2] / "src"
QUICK = ["--nodes", "4", "--max-iter", "200", "--algorithm", "gadget", "--lam", "0.01"]


def gadget(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="gadget")


def write_rows(path: Path, rows: int = 120, features: int = 6, seed: int = 0, poison: str = "") -> Path:
    """An svmlight file of two classes that a line through the origin tells apart."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features)).round(4)
    y = np.where(X[:, 0] + 0.5 * X[:, 1] > 0, 1, -1)
    lines = [f"{label} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(row)) for label, row in zip(y, X, strict=True)]
    path.write_text("\n".join(lines) + "\n" + poison)
    return path


def table_of(path, separator="\t", rows=60):
    """A table without a header whose label, a word, stands in front."""
    X = np.random.default_rng(0).normal(size=(rows, 3))
    lines = [separator.join(["no" if x[0] < 0 else "yes", *map(str, x)]) for x in X]
    path.write_text("\n".join(lines) + "\n")
    return path
