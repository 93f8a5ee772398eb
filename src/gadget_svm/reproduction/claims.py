"""The paper's claims, compared with the rows of the tables. Every number in the discussion is looked up."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gadget_svm.reproduction.headings import READINGS
from gadget_svm.reproduction.tables import Row

Rows = dict[str, list[Row]]
Methods = dict[str, Row]  # the rows of one data set, by method
Verdict = tuple[bool, str]  # on one data set: whether a claim holds, and the figures


def discussion(rows: Rows) -> str:
    """Return each claim, whether it holds here, and the figures behind it, as a Markdown list."""
    findings = (authors_program(rows), equals_majority(rows), network_findings(rows))
    verdicts = [verdict for claim in CLAIMS for verdict in claim.verdicts(rows)]
    return "\n".join(f"- {text}" for text in (*verdicts, *filter(None, findings)))


@dataclass(frozen=True)
class Claim:
    """A claim about methods of one table. Each of the methods gets a verdict.

    ``judge`` is called with the method's row and all rows of a data set; None leaves the data set out.
    """

    text: str
    table: str
    judge: Callable[[Row, Methods], Verdict | None]
    methods: tuple[str, ...] = READINGS
    more: str = ""

    def verdicts(self, rows: Rows) -> Iterator[str]:
        """Yield the claim, the number of data sets on which it holds, and the figures of each."""
        sets = _sets(rows.get(self.table, []))
        for method in self.methods:
            found = {name: self.judge(m[method], m) for name, m in sets.items() if method in m}
            judged = {name: verdict for name, verdict in found.items() if verdict is not None}
            good = sum(holds for holds, _ in judged.values())
            word = {0: "does not hold", len(judged): "holds"}.get(good, f"holds on {good} of {len(judged)} data sets")
            listed = "; ".join(f"{name} {figures}" for name, (_, figures) in judged.items())
            reading = f" {method.removeprefix('gadget ')}" if method in READINGS else ""
            if judged:
                yield f"**{self.text}{reading}**: {word}. {listed}.{self.more}"


def _sets(table: list[Row]) -> dict[str, Methods]:
    """Group the rows of a table by data set and method."""
    found: dict[str, Methods] = {}
    for row in table:
        found.setdefault(row["dataset"], {})[row["method"]] = row
    return found


def _as_accurate(mine: Row, *others: Row) -> Verdict:
    """Judge whether a method is at most one per cent less accurate than each of the others."""
    holds = all(mine["accuracy_mean"] >= other["accuracy_mean"] - 1 for other in others)
    return holds, f"{_accuracy(mine)} against {' and '.join(map(_accuracy, others))} %"


def _slower(mine: Row, other: Row) -> Verdict:
    return mine["seconds_mean"] > other["seconds_mean"], f"{_seconds(mine)} against {_seconds(other)} s"


def _accuracy(row: Row) -> str:
    return f"{row['accuracy_mean']:.2f}"


def _seconds(row: Row) -> str:
    return f"{row['seconds_mean']:.3g}"


def _objective(row: Row) -> str:
    return f"{row['objective_mean']:.3g}"


def _as_published(mine: Row, _: Methods) -> Verdict | None:
    paper = mine["paper_accuracy"]
    if paper is None:
        return None
    return mine["accuracy_mean"] >= paper, f"{_accuracy(mine)} % (paper {paper:.2f} %)"


def _near_liblinear(mine: Row, m: Methods) -> Verdict:
    holds, figures = _as_accurate(mine, m["liblinear"])
    return holds, f"{figures}, with an objective of {_objective(mine)} against {_objective(m['liblinear'])}"


def _wins(mine: Row, _: Methods) -> Verdict:
    first, equal = ("GADGET" if mine[key] else "Pegasos" for key in ("wins", "wins_equal"))
    return mine["wins"], f"{first} wins, with as many examples {equal}"


def _perf_takes_longer(mine: Row, m: Methods) -> Verdict:
    online = max(mine, m["svm-sgd"], key=lambda row: float(row["seconds_mean"]))
    holds = m["svm-perf"]["seconds_mean"] >= 2 * online["seconds_mean"]
    return holds, f"{_seconds(m['svm-perf'])} s against {_seconds(online)} s"


def _within(row: Row, promise: float) -> Verdict:
    """Judge whether the objective is at most ``promise`` above the certified optimum."""
    excess = row["objective_mean"] - row["optimum"]
    return excess <= promise, f"{excess:.3g} above, {promise:.3g} promised"


def _admm_promise(row: Row, _: Methods) -> Verdict:
    """Judge by MoM-DSVM's own multipliers and by the certified optimum; both have to agree."""
    gap, proven = row["worst_gap_percent"], row["proven_percent"]
    bound = f"at most {proven:.2g} % by its own proof" if math.isfinite(proven) else "without proof"
    holds = max(gap, proven) <= row["promise_percent"]
    return holds, f"{gap:.2g} % ({bound}, after {row['iterations_mean']:,.0f} iterations)"


def _admm_messages(mine: Row, m: Methods) -> Verdict:
    admm = m["mom-dsvm"]
    figures = (f"objective {_objective(row)} after {row['messages']:,.0f} messages" for row in (admm, mine))
    more = admm["messages"] / admm["iterations_mean"] > mine["messages"] / mine["iterations_mean"]
    return more, ", GADGET ".join(figures)


CLAIMS = (
    Claim("GADGET reaches the accuracy that the paper prints for it", "table2", _as_published),
    Claim(
        "Averaged GADGET is within one per cent of the accuracy of LIBLINEAR on the pooled rows", "table2",
        _near_liblinear,
    ),
    Claim(
        '"The performance of the GADGET SVM is comparable to the centralized algorithm"', "table2",
        lambda mine, m: _as_accurate(mine, m["pegasos"]),
    ),
    Claim(
        'The conjecture that "the performance of the Distributed model is better than that of the Centralized"',
        "table2", _wins, more=" GADGET's nodes together see as many examples in an iteration as there are nodes; where "
        "Pegasos is given as many, the advantage is smaller or gone.",
    ),
    Claim(
        '"The training time of the centralized model often outperforms the distributed one when data loading time is '
        'not included"', "table2", lambda mine, m: _slower(mine, m["pegasos"]),
    ),
    Claim(
        '"GADGET SVM has comparable or better performance than both SVM-Perf and SVM-SGD"', "table3",
        lambda mine, m: _as_accurate(mine, m["svm-perf"], m["svm-sgd"]),
        more=" Both see one node's rows only. SVM-SGD's accuracy is that of its last iterate.",
    ),
    Claim('"SVM SGD also proved to be faster than GADGET"', "table3", lambda mine, m: _slower(mine, m["svm-sgd"])),
    Claim(
        '"SVM-Perf was noted to take substantially longer than both" SVM-SGD and GADGET, at least twice as long',
        "table3", _perf_takes_longer,
    ),
    Claim(
        "SVM-Perf on all rows ends within its epsilon of 0.001 of the optimum", "table2",
        lambda row, _: _within(row, 1e-3), ("svm-perf (all rows)",),
    ),
    Claim(
        "Pegasos is within what its theorem promises, which with these lambdas is little", "table2",
        lambda row, _: _within(row, row["promise"]), ("pegasos",),
    ),
    Claim(
        "MoM-DSVM ends within the gap of one per cent that it promises, at its worst node", "table3", _admm_promise,
        ("mom-dsvm",),
    ),
    Claim(
        'MoM-DSVM broadcasts, "thereby having a higher communication cost" per iteration than GADGET', "table3",
        _admm_messages,
    ),
    Claim(
        'With loading, GADGET is faster (a factor below 1; the paper: "in four of the seven datasets")', "table4",
        lambda mine, _: (
            None if mine["speedup"] is None
            else (mine["speedup"] < 1, f"{mine['speedup']:.2f} (paper {mine['paper_speedup']:.2f})")
        ),
    ),
)  # fmt: skip


def authors_program(rows: Rows) -> str:
    """Say where the published 77 % on Adult come from."""
    row = _sets(rows["table2"]).get("adult", {}).get("authors' program")
    return "" if row is None else (
        f"**The published {row['paper_accuracy']:.2f} % on Adult is the accuracy of an unfinished run**: a program that "
        f"behaves as the authors' gives {_accuracy(row)} % (± {row['accuracy_sd']:.2f}) after "
        f"{row['iterations_mean']:,.0f} steps, with an objective of {_objective(row)}."
    )  # fmt: skip


def equals_majority(rows: Rows) -> str:
    """List the accuracies, ours and the paper's, that a model reaches that always answers the majority class."""
    found: dict[str, list[str]] = {}
    kinds = {"accuracy_mean": "", "accuracy_whole_mean": " on all test rows", "paper_accuracy": " in the paper"}
    for row in rows["table2"] + rows["table3"]:
        for key, where in kinds.items():
            if row[key] is not None and f"{row[key]:.2f}" == f"{row['majority']:.2f}":
                found.setdefault(f"{row['dataset']} ({row['majority']:.2f} %)", []).append(row["method"] + where)
    listed = "; ".join(f"{name}: {', '.join(dict.fromkeys(methods))}" for name, methods in found.items())
    return listed and (
        f"**Accuracies that equal the share of the majority class of the test rows**, marked * in the tables: {listed}."
    )


def network_findings(rows: Rows) -> str:
    """Say what the study of networks shows."""
    study = rows.get("network", [])
    if not study:
        return ""

    def worst(kind: str, gossip: str) -> str:
        """Return the accuracy of the worst node at the highest level."""
        row = max((r for r in study if (r["study"], r["gossip"]) == (kind, gossip)), key=lambda r: r["level"])
        equal = f"{row['accuracy_min']:.2f}" == f"{row['majority']:.2f}"
        return f"{row['accuracy_min']:.2f} %{' (the share of the majority class)' if equal else ''}"

    graphs = sorted((r for r in study if r["study"] == "topology"), key=lambda r: float(r["accuracy_min"]))
    low, high = (f"{r['topology']} ({r['accuracy_min']:.2f} %)" for r in (graphs[0], graphs[-1]))
    leaves = ", whose leaves are rarely sent to" if graphs[0]["topology"] in SPARSE else ""
    return (
        f"**Network structure and failures, the paper's future work (persistent mass)**: the worst node is best on "
        f"{high} and worst on {low}{leaves}. The more nodes share the rows, the less each has learned in the same "
        f"iterations. Lost messages take mass with them, so plain Push-Sum fails: the worst node has "
        f"{worst('loss', 'push-sum')} at the highest loss. With running sums it has {worst('loss', 'running-sum')}. "
        f"Under crashes Push-Sum keeps {worst('crash', 'push-sum')}; running sums {worst('crash', 'running-sum')}, "
        f"because what is on its way to a crashed node stays there."
    )


SPARSE = ("star", "tree", "line", "scale-free", "erdos-renyi")
"""Graphs with nodes of one neighbour, or of few."""
