"""From the records of trials to the rows of the paper's tables, in plain dictionaries and CSV."""

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gadget_svm.reproduction.published_numbers import Figure

Row = dict[str, Any]
COLUMNS = (
    "dataset", "method", "accuracy_mean", "accuracy_sd", "accuracy_whole_mean", "seconds_mean", "seconds_sd",
    "objective_mean", "iterations_mean", "epsilon", "messages", "paper_accuracy", "paper_accuracy_sd", "paper_seconds",
)  # fmt: skip


def spread(per_trial: Sequence[Sequence[float]]) -> float:
    """The paper's deviation: sqrt(Var(nodes) + Var(trials))."""
    nodes = float(np.mean([np.var(values) for values in per_trial]))
    return math.sqrt(nodes + float(np.var([np.mean(values) for values in per_trial])))


def summarise(
    dataset: str, method: str, results: Sequence[dict[str, Any]], paper: Figure | None = None, last: bool = False
) -> Row:
    """One row: means over nodes and trials, the paper's deviation, and the published figures beside them."""
    end = "_last" if last else ""
    own, whole = [r[f"own{end}"] for r in results], [r[f"whole{end}"] for r in results]
    seconds = [r["seconds"] for r in results]
    return {
        "dataset": dataset,
        "method": method,
        "accuracy_mean": _mean(own),
        "accuracy_sd": spread(own),
        "accuracy_whole_mean": _mean(whole),
        "seconds_mean": _mean(seconds),
        "seconds_sd": spread(seconds),
        "objective_mean": _mean([r[f"objective{end}"] for r in results]),
        "iterations_mean": _mean([r["iterations"] for r in results]),
        "epsilon": max(r["epsilon"] for r in results),
        "messages": _mean([[r["messages"]] for r in results]),
        "paper_accuracy": None if paper is None else paper.accuracy,
        "paper_accuracy_sd": None if paper is None else paper.accuracy_sd,
        "paper_seconds": None if paper is None else paper.seconds,
    }


def _mean(per_trial: Sequence[Sequence[float]]) -> float:
    return float(np.mean([np.mean(values) for values in per_trial]))


def better(first: Row, second: Row) -> str:
    """The paper's lexicographic comparison of (accuracy, time): who wins, accuracy to a tenth of a per cent."""
    a, b = (round(row["accuracy_mean"], 1) for row in (first, second))
    if a != b:
        return str(first["method"] if a > b else second["method"])
    return str(first["method"] if first["seconds_mean"] <= second["seconds_mean"] else second["method"])


def write_csv(path: Path, rows: Iterable[Row]) -> Path:
    """All rows, under the columns of the first; numbers as they are, so that nothing is rounded away."""
    listed = list(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(listed[0]) if listed else ["dataset"])
        writer.writeheader()
        writer.writerows(listed)
    return path


def markdown(rows: Sequence[Row], columns: dict[str, str]) -> str:
    """A Markdown table of some columns: {column: heading}. Numbers are rounded for reading."""
    lines = ["| " + " | ".join(columns.values()) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(shown(name, row.get(name)) for name in columns) + " |" for row in rows]
    return "\n".join(lines)


def shown(name: str, value: Any) -> str:
    """A cell for the eye: four digits of most things, two decimals of a per cent."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, str | bool):
        return str(value)
    if "accuracy" in name:
        return f"{value:.2f}"
    if name in ("iterations_mean", "messages", "train", "test", "features", "nodes", "iterations"):
        return f"{value:,.0f}"
    return f"{value:.3g}"
