"""Tables: one description of columns, title and caption, written as CSV, Markdown and LaTeX.

Owns formatting and the statistics of a row. ``evaluation.toml`` describes the tables of the paper.
"""

import csv
import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]
LATEX = str.maketrans({"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$", "*": r"$^*$"})
MAJORITY_NOTE = (
    "The share of the majority class of the test rows: a model that answers this class for every row has this accuracy "
    "too."
)
"""What the mark * of an accuracy means."""


@dataclass(frozen=True)
class Column:
    """A column as readers see it: its heading, and the text of a row's cell."""

    heading: str
    show: Callable[[Row], str]
    is_text: bool = False


@dataclass(frozen=True)
class Table:
    """The title, the caption and the columns of a table. It shows rows in these columns."""

    title: str
    caption: str
    columns: tuple[Column, ...]

    def cells(self, rows: Sequence[Row]) -> list[list[str]]:
        """Return the text of every cell."""
        return [[column.show(row) for column in self.columns] for row in rows]

    def has_marks(self, rows: Sequence[Row]) -> bool:
        """Return whether an accuracy is marked as the share of the majority class."""
        return any("*" in cell for cells in self.cells(rows) for cell in cells)

    def markdown(self, rows: Sequence[Row]) -> str:
        """Return a Markdown table."""
        heading = [column.heading for column in self.columns]
        rule = [":---" if column.is_text else "---:" for column in self.columns]
        lines = [heading, rule, *([cell.replace("*", r"\*") for cell in cells] for cells in self.cells(rows))]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def latex(self, rows: Sequence[Row]) -> str:
        """Return a ``tabular`` with the rules of booktabs, to be read with ``\\input``."""
        lines = [" & ".join(text.translate(LATEX) for text in texts) + r" \\" for texts in self.cells(rows)]
        head = " & ".join(column.heading.translate(LATEX) for column in self.columns) + r" \\"
        alignment = "".join("l" if column.is_text else "r" for column in self.columns)
        note = rf"\multicolumn{{{len(self.columns)}}}{{l}}{{$^*$ {MAJORITY_NOTE}}}"
        return "\n".join(
            [f"% {self.title}. Needs \\usepackage{{booktabs}}.", rf"\begin{{tabular}}{{{alignment}}}", r"\toprule",
             head, r"\midrule", *lines, r"\bottomrule", *[note] * self.has_marks(rows), r"\end{tabular}", ""]
        )  # fmt: skip

    def write(self, folder: Path, name: str, rows: Sequence[Row]) -> None:
        """Write ``name.csv``, all columns of the rows with all digits, and ``name.tex``, the columns shown."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.tex").write_text(self.latex(rows), encoding="utf-8")
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else ["dataset"])
            writer.writeheader()
            writer.writerows(rows)


def text(heading: str, key: str) -> Column:
    """Make a column of words."""
    return Column(heading, lambda row: str(row[key] or ""), is_text=True)


def whole(heading: str, key: str) -> Column:
    """Make a column of whole numbers."""
    return Column(heading, lambda row: _formatted(row.get(key), ",.0f"))


def number(heading: str, key: str) -> Column:
    """Make a column of numbers with three digits, and their standard deviations where there are any."""
    return Column(heading, lambda row: _with_deviation(row, key, ".3g"))


def accuracy(heading: str, key: str) -> Column:
    """Make a column of per cents. An accuracy that equals the share of the majority class is marked."""

    def show(row: Row) -> str:
        shown = _formatted(row.get(key), ".2f")
        equal = shown != "" and shown == _formatted(row.get("majority"), ".2f")
        return _with_deviation(row, key, ".2f", "*" if equal else "")

    return Column(heading, show)


def _with_deviation(row: Row, key: str, form: str, mark: str = "") -> str:
    deviation = _formatted(row.get(f"{key.removesuffix('_mean')}_sd"), ".2g" if form == ".3g" else form)
    return _formatted(row.get(key), form) + mark + (f" ± {deviation}" if deviation else "")


def _formatted(value: Any, form: str) -> str:
    """Format the number; an empty text where it is missing or not finite."""
    return "" if value is None or not math.isfinite(value) else format(value, form)


def spread(per_trial: Sequence[Sequence[float]]) -> float | None:
    """Return the paper's deviation, sqrt(Var(nodes) + Var(trials)); None for a single value."""
    if sum(len(values) for values in per_trial) < 2:
        return None
    nodes = float(np.mean([np.var(values) for values in per_trial]))
    return math.sqrt(nodes + float(np.var([np.mean(values) for values in per_trial])))


def mean(per_trial: Sequence[Sequence[float]]) -> float:
    """Return the mean over trials of the means over nodes."""
    return float(np.mean([np.mean(values) for values in per_trial]))


def summarise(results: Sequence[dict[str, Any]], last: bool = False) -> Row:
    """Return means over nodes and trials, and deviations; ``last`` takes the last iterates, not the averaged ones."""
    end = "_last" if last else ""
    own, seconds = [r[f"own{end}"] for r in results], [r["seconds"] for r in results]
    return {
        "accuracy_mean": mean(own),
        "accuracy_sd": spread(own),
        "accuracy_whole_mean": mean([r[f"whole{end}"] for r in results]),
        "seconds_mean": mean(seconds),
        "seconds_sd": spread(seconds),
        "objective_mean": mean([r[f"objective{end}"] for r in results]),
        "iterations_mean": mean([r["iterations"] for r in results]),
        "epsilon": max(r["epsilon"] for r in results),
        "messages": mean([[r["messages"]] for r in results]),
    }


def better(first: Row, second: Row) -> bool:
    """Return whether ``first`` wins the paper's lexicographic comparison of (accuracy, time).

    Accuracies are compared to a tenth of a per cent. If the times are equal too, the first wins.
    """
    a, b = (round(row["accuracy_mean"], 1) for row in (first, second))
    return bool(a > b or (a == b and first["seconds_mean"] <= second["seconds_mean"]))


AS_PRINTED, PERSISTENT = "gadget (as printed)", "gadget (persistent mass)"
READINGS = (AS_PRINTED, PERSISTENT)
"""The two readings of step (g) of Algorithm 2, as the tables name them."""
TEXTS = tomllib.loads(Path(__file__).with_name("evaluation.toml").read_text(encoding="utf-8"))


def verdicts(heading: str, key: str) -> Column:
    """Make a column of comparisons: with as many iterations, and with as many examples (``key``_equal)."""

    def show(row: Row) -> str:
        return "" if row[key] is None else ", ".join("yes" if row[each] else "no" for each in (key, f"{key}_equal"))

    return Column(heading, show, is_text=True)


KINDS = {"text": text, "whole": whole, "number": number, "accuracy": accuracy, "verdicts": verdicts}
TABLES = {
    part: Table(facts["title"], facts["caption"], tuple(KINDS[kind](*names) for *names, kind in facts["columns"]))
    for part, facts in TEXTS.items()
    if "columns" in facts
}
