"""The paper's claims, compared with the rows of the tables. Every number in the discussion is looked up.

`claims.toml` has the claims; this module judges them.
"""

import math
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gadget_svm.reproduction.headings import READINGS
from gadget_svm.reproduction.tables import Row

Rows = dict[str, list[Row]]
Verdict = tuple[bool, str]  # on one data set: whether a claim holds, and the figures
TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
FINDINGS: dict[str, str] = TEXTS["findings"]
LEAF_GRAPHS = ("star", "tree", "line", "scale-free", "erdos-renyi")
"""Graphs with nodes of one neighbour, or of few."""


def discussion(rows: Rows) -> str:
    """Return each claim, whether it holds here, and the figures behind it, as a Markdown list."""
    findings = (authors_program(rows), equals_majority(rows), network_findings(rows))
    verdicts = [verdict for claim in TEXTS["claims"] for verdict in Claim(**claim).verdicts(rows)]
    return "\n".join(f"- {text}" for text in (*verdicts, *filter(None, findings)))


@dataclass(frozen=True)
class Claim:
    """A claim about methods of one table. Each of the methods gets a verdict.

    ``judge`` names the function that gets the method's row and those of the ``rivals``; if it returns None, the data
    set is left out.
    """

    text: str
    table: str
    judge: str
    methods: tuple[str, ...] = READINGS
    rivals: tuple[str, ...] = ()
    more: str = ""

    def verdicts(self, rows: Rows) -> Iterator[str]:
        """Yield the claim, the number of data sets on which it holds, and the figures of each."""
        sets = _sets(rows.get(self.table, []))
        for method in self.methods:
            names = method, *self.rivals
            found = {data: JUDGES[self.judge](*(m[name] for name in names)) for data, m in sets.items() if method in m}
            judged = {data: verdict for data, verdict in found.items() if verdict is not None}
            good = sum(holds for holds, _ in judged.values())
            word = {0: "does not hold", len(judged): "holds"}.get(good, f"holds on {good} of {len(judged)} data sets")
            listed = "; ".join(f"{data} {figures}" for data, (_, figures) in judged.items())
            reading = f" {method.removeprefix('gadget ')}" if method in READINGS else ""
            if judged:
                yield f"**{self.text}{reading}**: {word}. {listed}.{self.more}"


def _sets(table: list[Row]) -> dict[str, dict[str, Row]]:
    """Group the rows of a table by data set and method."""
    found: dict[str, dict[str, Row]] = {}
    for row in table:
        found.setdefault(row["dataset"], {})[row["method"]] = row
    return found


def as_accurate(mine: Row, *others: Row) -> Verdict:
    """Judge whether a method is at most one per cent less accurate than each of the others."""
    holds = all(mine["accuracy_mean"] >= other["accuracy_mean"] - 1 for other in others)
    return holds, f"{_accuracy(mine)} against {' and '.join(map(_accuracy, others))} %"


def near_optimum(mine: Row, other: Row) -> Verdict:
    """Judge the accuracy, and compare the objectives too."""
    holds, figures = as_accurate(mine, other)
    return holds, f"{figures}, with an objective of {_objective(mine)} against {_objective(other)}"


def as_published(mine: Row) -> Verdict | None:
    """Judge whether the accuracy is at least the paper's."""
    paper = mine["paper_accuracy"]
    return None if paper is None else (mine["accuracy_mean"] >= paper, f"{_accuracy(mine)} % (paper {paper:.2f} %)")


def wins(mine: Row) -> Verdict:
    """Judge by the paper's comparison with Pegasos."""
    first, equal = ("GADGET" if mine[key] else "Pegasos" for key in ("wins", "wins_equal"))
    return mine["wins"], f"{first} wins, with as many examples {equal}"


def slower(mine: Row, other: Row) -> Verdict:
    """Judge whether the training takes longer than the other's."""
    return mine["seconds_mean"] > other["seconds_mean"], f"{_seconds(mine)} against {_seconds(other)} s"


def perf_takes_longer(mine: Row, perf: Row, sgd: Row) -> Verdict:
    """Judge whether SVM-Perf takes twice as long as the slower of the two others."""
    online = max(mine, sgd, key=lambda row: float(row["seconds_mean"]))
    return perf["seconds_mean"] >= 2 * online["seconds_mean"], f"{_seconds(perf)} s against {_seconds(online)} s"


def within_promise(row: Row, promise: float | None = None) -> Verdict:
    """Judge whether the objective is at most ``promise`` (default: the row's) above the certified optimum."""
    promise = row["promise"] if promise is None else promise
    excess = row["objective_mean"] - row["optimum"]
    return excess <= promise, f"{excess:.3g} above, {promise:.3g} promised"


def within_epsilon(row: Row) -> Verdict:
    """Judge by the epsilon that SVM-Perf is given."""
    return within_promise(row, 1e-3)


def proven_promise(row: Row) -> Verdict:
    """Judge by MoM-DSVM's own multipliers and by the certified optimum; both have to agree."""
    gap, proven = row["worst_gap_percent"], row["proven_percent"]
    bound = f"at most {proven:.2g} % by its own proof" if math.isfinite(proven) else "without proof"
    holds = max(gap, proven) <= row["promise_percent"]
    return holds, f"{gap:.2g} % ({bound}, after {row['iterations_mean']:,.0f} iterations)"


def fewer_messages(mine: Row, other: Row) -> Verdict:
    """Judge whether a method sends fewer messages per iteration than the other."""
    figures = (f"objective {_objective(row)} after {row['messages']:,.0f} messages" for row in (other, mine))
    fewer = other["messages"] / other["iterations_mean"] > mine["messages"] / mine["iterations_mean"]
    return fewer, ", GADGET ".join(figures)


def speeds_up(mine: Row) -> Verdict | None:
    """Judge whether the distributed time, with loading, is below the centralised one."""
    factor = mine["speedup"]
    return None if factor is None else (factor < 1, f"{factor:.2f} (paper {mine['paper_speedup']:.2f})")


JUDGES: dict[str, Callable[..., Verdict | None]] = {
    judge.__name__: judge
    for judge in (
        as_accurate, as_published, fewer_messages, near_optimum, perf_takes_longer, proven_promise, slower, speeds_up,
        wins, within_epsilon, within_promise,
    )
}  # fmt: skip


def _accuracy(row: Row) -> str:
    return f"{row['accuracy_mean']:.2f}"


def _seconds(row: Row) -> str:
    return f"{row['seconds_mean']:.3g}"


def _objective(row: Row) -> str:
    return f"{row['objective_mean']:.3g}"


def authors_program(rows: Rows) -> str:
    """Say where the published 77 % on Adult come from."""
    row = _sets(rows["table2"]).get("adult", {}).get("authors' program")
    return "" if row is None else FINDINGS["authors_program"].format(**row)


def equals_majority(rows: Rows) -> str:
    """List the accuracies, ours and the paper's, that a model reaches that always answers the majority class."""
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
