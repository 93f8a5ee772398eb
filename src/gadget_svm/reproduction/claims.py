"""The paper's claims, compared with the rows of the tables. Every number in the discussion comes from these rows.

`claims.toml` contains the claims; this module judges them.
"""

import math
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gadget_svm.reproduction.tables import READINGS, Row

Rows = dict[str, list[Row]]
TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
FINDINGS: dict[str, str] = TEXTS["findings"]
LEAF_GRAPHS = ("star", "tree", "line", "scale-free", "erdos-renyi")
"""Graphs in which some nodes have only one neighbour, or few."""


def discussion(rows: Rows) -> str:
    """Return each claim, whether it holds here, and the figures behind it, as a Markdown list."""
    findings = (authors_program(rows), equals_majority(rows), network_findings(rows))
    verdicts = [verdict for claim in TEXTS["claims"] for verdict in Claim(**claim).verdicts(rows)]
    return "\n".join(f"- {text}" for text in (*verdicts, *filter(None, findings)))


@dataclass(frozen=True)
class Claim:
    """A claim about methods of one table. Each of the methods gets a verdict.

    ``judge`` names the function that gets the method's row and those of the ``rivals``; if it returns None, the data
    set is left out. ``figures`` is the text about a data set, formatted with the same rows.
    """

    text: str
    table: str
    judge: str
    figures: str
    methods: tuple[str, ...] = READINGS
    rivals: tuple[str, ...] = ()
    more: str = ""

    def verdicts(self, rows: Rows) -> Iterator[str]:
        """Yield the claim, the number of data sets on which it holds, and the figures of each."""
        sets = _sets(rows.get(self.table, []))
        for method in self.methods:
            compared = {data: [m[name] for name in (method, *self.rivals)] for data, m in sets.items() if method in m}
            verdicts = {data: JUDGES[self.judge](*found) for data, found in compared.items()}
            judged = [(data, holds) for data, holds in verdicts.items() if holds is not None]
            good = sum(holds for _, holds in judged)
            word = {0: "does not hold", len(judged): "holds"}.get(good, f"holds on {good} of {len(judged)} data sets")
            listed = "; ".join(f"{data} {self.figures.format(*compared[data])}" for data, _ in judged)
            reading = f" {method.removeprefix('gadget ')}" if method in READINGS else ""
            if judged:
                yield f"**{self.text}{reading}**: {word}. {listed}.{self.more}"


def _sets(table: list[Row]) -> dict[str, dict[str, Row]]:
    """Group the rows of a table by data set and method, with the quantities that only the discussion shows."""
    found: dict[str, dict[str, Row]] = {}
    for row in table:
        winners = {f"{key}_by": "GADGET" if row.get(key) else "Pegasos" for key in ("wins", "wins_equal")}
        excess = row["objective_mean"] - row.get("optimum", math.nan)
        found.setdefault(row["dataset"], {})[row["method"]] = row | winners | {"excess": excess}
    return found


JUDGES: dict[str, Callable[..., bool | None]] = {
    # A method is at most one per cent less accurate than each of the others.
    "as_accurate": lambda mine, *others: all(mine["accuracy_mean"] >= other["accuracy_mean"] - 1 for other in others),
    # The accuracy is at least the paper's.
    "as_published": lambda mine: (
        None if mine["paper_accuracy"] is None else mine["accuracy_mean"] >= mine["paper_accuracy"]
    ),
    # A method sends fewer messages per iteration than the other.
    "fewer_messages": lambda mine, other: (
        other["messages"] / other["iterations_mean"] > mine["messages"] / mine["iterations_mean"]
    ),
    # SVM-Perf takes at least twice as long as each of the two others.
    "perf_takes_longer": lambda mine, perf, sgd: (
        perf["seconds_mean"] >= 2 * max(mine["seconds_mean"], sgd["seconds_mean"])
    ),
    # MoM-DSVM's own multipliers and the certified optimum both prove the promised gap.
    "proven_promise": lambda row: max(row["worst_gap_percent"], row["proven_percent"]) <= row["promise_percent"],
    # The training takes longer than the other's.
    "slower": lambda mine, other: mine["seconds_mean"] > other["seconds_mean"],
    # The distributed time, with loading, is below the centralised one.
    "speeds_up": lambda mine: None if mine["speedup"] is None else mine["speedup"] < 1,
    # GADGET wins the paper's comparison with Pegasos.
    "wins": lambda mine: mine["wins"],
    # The objective is above the certified optimum by at most the epsilon that SVM-Perf is given.
    "within_epsilon": lambda row: row["excess"] <= 1e-3,
    # The objective is above the certified optimum by at most the promised gap.
    "within_promise": lambda row: row["excess"] <= row["promise"],
}


def authors_program(rows: Rows) -> str:
    """Say where the published 77 % on Adult come from."""
    row = _sets(rows["table2"]).get("adult", {}).get("authors' program")
    return "" if row is None else FINDINGS["authors_program"].format(**row)


def equals_majority(rows: Rows) -> str:
    """List the accuracies, ours and the paper's, that equal those of always answering the majority class."""
    found: dict[str, list[str]] = {}
    kinds = {"accuracy_mean": "", "accuracy_whole_mean": " on all test rows", "paper_accuracy": " in the paper"}
    for row in rows["table2"] + rows["table3"]:
        for key, where in kinds.items():
            if row[key] is not None and f"{row[key]:.2f}" == f"{row['majority']:.2f}":
                found.setdefault(f"{row['dataset']} ({row['majority']:.2f} %)", []).append(row["method"] + where)
    listed = "; ".join(f"{name}: {', '.join(dict.fromkeys(methods))}" for name, methods in found.items())
    return listed and FINDINGS["majority"].format(listed=listed)


def network_findings(rows: Rows) -> str:
    """Say what the study of networks shows."""
    study = rows.get("network", [])
    if not study:
        return ""
    worst = {}  # the worst node at the highest level, by fault and protocol
    for row in sorted(study, key=lambda r: r["level"]):
        equal = f"{row['accuracy_min']:.2f}" == f"{row['majority']:.2f}"
        figure = f"{row['accuracy_min']:.2f} %{' (the share of the majority class)' * equal}"
        worst[f"{row['study']}_{row['gossip']}".replace("-", "_")] = figure
    graphs = sorted((r for r in study if r["study"] == "topology"), key=lambda r: float(r["accuracy_min"]))
    low, high = (f"{r['topology']} ({r['accuracy_min']:.2f} %)" for r in (graphs[0], graphs[-1]))
    leaves = FINDINGS["leaves"] * (graphs[0]["topology"] in LEAF_GRAPHS)
    return FINDINGS["network"].format(best=high, worst=low, leaves=leaves, **worst)
