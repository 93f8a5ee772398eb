"""The columns of the tables, with the titles and captions of ``texts.toml``."""

import tomllib
from pathlib import Path

from gadget_svm.reproduction.tables import Column, Row, Table, accuracy, number, text, whole

AS_PRINTED, PERSISTENT = "gadget (as printed)", "gadget (persistent mass)"
READINGS = (AS_PRINTED, PERSISTENT)
"""The two readings of step (g) of Algorithm 2, as the tables name them."""
TEXTS = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))


def _wins(row: Row) -> str:
    return "" if row["wins"] is None else ", ".join("yes" if row[key] else "no" for key in ("wins", "wins_equal"))


MEASURED = (
    text("data", "dataset"), text("method", "method"), accuracy("accuracy %", "accuracy_mean"),
    accuracy("paper %", "paper_accuracy"), number("seconds", "seconds_mean"), number("paper s", "paper_seconds"),
)  # fmt: skip
ENDED = (
    number("objective", "objective_mean"), number("above optimum %", "gap_percent"),
    whole("iterations", "iterations_mean"), whole("messages", "messages"),
)  # fmt: skip
ON_ALL_ROWS = accuracy("on all test rows %", "accuracy_whole_mean")
COLUMNS: dict[str, tuple[Column, ...]] = {
    "table1": (
        text("data", "dataset"), whole("train", "train"), whole("test", "test"), whole("features", "features"),
        number("non-zero %", "density_percent"), number("majority class, test rows %", "majority"),
        number("lambda", "lam"), text("what it is", "note"),
    ),
    "table2": (
        *MEASURED, Column("beats Pegasos", _wins, is_text=True), *ENDED, number("promised gap", "promise"),
        number("epsilon", "epsilon"), ON_ALL_ROWS,
    ),
    "table3": (
        *MEASURED, *ENDED, number("promised %", "promise_percent"), number("proven %", "proven_percent"), ON_ALL_ROWS,
    ),
    "table4": (
        *MEASURED[:4], number("loading s", "load_seconds"), number("training s", "seconds_mean"),
        number("total s", "total_seconds"), number("paper s", "paper_seconds"), number("speed-up factor", "speedup"),
        number("paper's factor", "paper_speedup"),
    ),
    "network": (
        text("study", "study"), text("graph", "topology"), whole("nodes", "nodes"), text("gossip", "gossip"),
        whole("level", "level"), whole("trials", "trials"), accuracy("accuracy %", "accuracy_mean"),
        accuracy("worst node %", "accuracy_min"), number("disagreement", "disagreement"),
        whole("messages", "messages"), number("spectral gap", "spectral_gap"),
    ),
}  # fmt: skip
TABLES = {part: Table(columns=columns, **TEXTS[part]) for part, columns in COLUMNS.items()}
