"""The paper's claims, compared with the rows of the tables. Every number in the discussion is looked up."""

import math
from collections.abc import Callable

from gadget_svm.reproduction.headings import READINGS
from gadget_svm.reproduction.tables import Row

Rows = dict[str, list[Row]]
Methods = dict[str, Row]  # of one data set


def discussion(rows: Rows) -> str:
    """Return each claim, whether it holds here, and the figures behind it, as a Markdown list."""
    return "\n".join(f"- {verdict}" for verdict in (claim(rows) for claim in CLAIMS) if verdict)


def _sets(table: list[Row]) -> dict[str, Methods]:
    """Group the rows of a table by data set and method."""
    found: dict[str, Methods] = {}
    for row in table:
        found.setdefault(row["dataset"], {})[row["method"]] = row
    return found


def _claim(
    text: str, table: list[Row], holds: Callable[[Methods], bool], figures: Callable[[Methods], str], more: str = ""
) -> str:
    """Return the claim, the number of data sets on which it holds, and the figures of each."""
    sets = _sets(table)
    good = sum(holds(methods) for methods in sets.values())
    word = {0: "does not hold", len(sets): "holds"}.get(good, f"holds on {good} of {len(sets)} data sets")
    listed = "; ".join(f"{name} {figures(methods)}" for name, methods in sets.items())
    return f"**{text}**: {word}. {listed}.{more}"


def _about_gadget(
    text: str, table: list[Row], holds: Callable[[Row, Methods], bool], figures: Callable[[Row, Methods], str],
    more: str = "",
) -> str:  # fmt: skip
    """A claim about GADGET, for the readings that the table has."""

    def verdict(reading: str) -> str:
        name = reading.removeprefix("gadget ")
        return _claim(f"{text} {name}", table, lambda m: holds(m[reading], m), lambda m: figures(m[reading], m), more)

    return "\n- ".join(verdict(reading) for reading in READINGS if any(row["method"] == reading for row in table))


def _against(*rivals: str, unit: str, show: Callable[[Row], str]) -> Callable[[Row, Methods], str]:
    return lambda mine, m: f"{show(mine)} against {' and '.join(show(m[rival]) for rival in rivals)} {unit}"


def _as_accurate(*rivals: str) -> Callable[[Row, Methods], bool]:
    """At most one per cent below each of the others."""
    return lambda mine, m: all(mine["accuracy_mean"] >= m[rival]["accuracy_mean"] - 1 for rival in rivals)


def _slower(rival: str) -> Callable[[Row, Methods], bool]:
    return lambda mine, m: bool(mine["seconds_mean"] > m[rival]["seconds_mean"])


def _accuracy(row: Row) -> str:
    return f"{row['accuracy_mean']:.2f}"


def _seconds(row: Row) -> str:
    return f"{row['seconds_mean']:.3g}"


def _objective(row: Row) -> str:
    return f"{row['objective_mean']:.3g}"


def _excess(row: Row) -> float:
    """How far the objective is above the certified optimum."""
    return float(row["objective_mean"] - row["optimum"])


def _slower_online(mine: Row, m: Methods) -> Row:
    return max(mine, m["svm-sgd"], key=lambda row: float(row["seconds_mean"]))


def _published_accuracy(mine: Row, _: Methods) -> str:
    return f"{_accuracy(mine)} % (paper {mine['paper_accuracy']:.2f} %)"


def _accuracy_and_objective(mine: Row, m: Methods) -> str:
    central, against = m["liblinear"], "with an objective of"
    return (
        f"{_accuracy(mine)} against {_accuracy(central)} %, {against} {_objective(mine)} against {_objective(central)}"
    )


def _winners(mine: Row, _: Methods) -> str:
    wins, wins_equal = ("GADGET" if mine[key] else "Pegasos" for key in ("wins", "wins_equal"))
    return f"{wins} wins, with as many examples {wins_equal}"


def about_gadget(rows: Rows) -> str:
    """The paper's statements on accuracy and time of GADGET, in its Sections 4.1 and 4.5."""
    table2, table3 = rows["table2"], rows["table3"]
    return "\n- ".join(filter(None, [
        _about_gadget(
            "GADGET reaches the accuracy that the paper prints for it",
            [row for row in table2 if row["paper_accuracy"] is not None],
            lambda mine, _: bool(mine["accuracy_mean"] >= mine["paper_accuracy"]), _published_accuracy,
        ),
        _about_gadget(
            "Averaged GADGET is within one per cent of the accuracy of LIBLINEAR on the pooled rows",
            table2, _as_accurate("liblinear"), _accuracy_and_objective,
        ),
        _about_gadget(
            '"The performance of the GADGET SVM is comparable to the centralized algorithm"',
            table2, _as_accurate("pegasos"), _against("pegasos", unit="%", show=_accuracy),
        ),
        _about_gadget(
            'The conjecture that "the performance of the Distributed model is better than that of the Centralized"',
            table2, lambda mine, _: bool(mine["wins"]), _winners,
            " GADGET's nodes together see as many examples in an iteration as there are nodes; where Pegasos is given "
            "as many, the advantage is smaller or gone.",
        ),
        _about_gadget(
            '"The training time of the centralized model often outperforms the distributed one when data loading time '
            'is not included"', table2, _slower("pegasos"), _against("pegasos", unit="s", show=_seconds),
        ),
        _about_gadget(
            '"GADGET SVM has comparable or better performance than both SVM-Perf and SVM-SGD"',
            table3, _as_accurate("svm-perf", "svm-sgd"), _against("svm-perf", "svm-sgd", unit="%", show=_accuracy),
            " Both see one node's rows only. SVM-SGD's accuracy is that of its last iterate.",
        ),
        _about_gadget(
            '"SVM SGD also proved to be faster than GADGET"',
            table3, _slower("svm-sgd"), _against("svm-sgd", unit="s", show=_seconds),
        ),
        _about_gadget(
            '"SVM-Perf was noted to take substantially longer than both" SVM-SGD and GADGET, at least twice as long',
            table3, lambda mine, m: bool(m["svm-perf"]["seconds_mean"] >= 2 * _slower_online(mine, m)["seconds_mean"]),
            lambda mine, m: f"{_seconds(m['svm-perf'])} s against {_seconds(_slower_online(mine, m))} s",
        ),
    ]))  # fmt: skip


def perf_keeps_its_promise(rows: Rows) -> str:
    """SVM-Perf promises an objective within its epsilon of the optimum."""
    return _claim(
        "SVM-Perf on all rows ends within its epsilon of 0.001 of the optimum",
        rows["table2"],
        lambda m: _excess(m["svm-perf (all rows)"]) <= 1e-3,
        lambda m: f"{_excess(m['svm-perf (all rows)']):.2g} above",
    )


def pegasos_keeps_its_promise(rows: Rows) -> str:
    """The theorem of Pegasos: c^2 (1 + ln T) / (2 lambda T)."""
    return _claim(
        "Pegasos is within what its theorem promises, which with these lambdas is little",
        rows["table2"],
        lambda m: bool(_excess(m["pegasos"]) <= m["pegasos"]["promise"]),
        lambda m: f"{_excess(m['pegasos']):.3g} above, {m['pegasos']['promise']:.3g} promised",
    )


def admm_keeps_its_promise(rows: Rows) -> str:
    """MoM-DSVM promises a duality gap: its own multipliers and the certified optimum have to agree."""

    def figures(m: Methods) -> str:
        row = m["mom-dsvm"]
        proven = float(row["proven_percent"])
        bound = f"at most {proven:.2g} % by its own proof" if math.isfinite(proven) else "without proof"
        return f"{row['worst_gap_percent']:.2g} % ({bound}, after {row['iterations_mean']:,.0f} iterations)"

    table = [row for row in rows["table3"] if row["method"] == "mom-dsvm"]
    promise = max(float(row["promise_percent"]) for row in table)
    return _claim(
        f"MoM-DSVM ends within the {promise:g} % of the optimum that it promises, at its worst node",
        table,
        lambda m: max(m["mom-dsvm"][f"{key}_percent"] for key in ("worst_gap", "proven")) <= promise,
        figures,
    )


def broadcasting_costs_more(rows: Rows) -> str:
    """Section 2.2: MoM-DSVM sends more per iteration than GADGET. (Its objective is better.)"""

    def rate(row: Row) -> float:
        return float(row["messages"] / row["iterations_mean"])

    def figures(row: Row) -> str:
        return f"{_objective(row)} after {row['messages']:,.0f}"

    return _about_gadget(
        'MoM-DSVM broadcasts, "thereby having a higher communication cost" per iteration than GADGET',
        rows["table3"],
        lambda mine, m: rate(m["mom-dsvm"]) > rate(mine),
        lambda mine, m: f"objective {figures(m['mom-dsvm'])} messages, GADGET {figures(mine)}",
    )


def authors_program(rows: Rows) -> str:
    """The origin of the published 77 % on Adult."""
    row = _sets(rows["table2"]).get("adult", {}).get("authors' program")
    return "" if row is None else (
        f"**The published {row['paper_accuracy']:.2f} % on Adult is the accuracy of an unfinished run**: a program that "
        f"behaves as the authors' gives {_accuracy(row)} % (± {row['accuracy_sd']:.2f}) after "
        f"{row['iterations_mean']:,.0f} steps, with an objective of {_objective(row)}."
    )  # fmt: skip


def loading_helps(rows: Rows) -> str:
    """Appendix B."""
    return _about_gadget(
        'With loading, GADGET is faster (a factor below 1; the paper: "in four of the seven datasets")',
        rows.get("table4", []),
        lambda mine, _: bool(mine["speedup"] < 1),
        lambda mine, _: f"{mine['speedup']:.2f} (paper {mine['paper_speedup']:.2f})",
    )


def equals_majority(rows: Rows) -> str:
    """Accuracies, ours and the paper's, that a model reaches that always answers the majority class."""
    found: dict[str, list[str]] = {}
    for row in rows["table2"] + rows["table3"]:
        for key, where in (("accuracy_mean", ""), ("paper_accuracy", " in the paper")):
            if row[key] is not None and f"{row[key]:.2f}" == f"{row['majority']:.2f}":
                found.setdefault(f"{row['dataset']} ({row['majority']:.2f} %)", []).append(row["method"] + where)
    listed = "; ".join(f"{name}: {', '.join(dict.fromkeys(methods))}" for name, methods in found.items())
    return listed and (
        f"**Accuracies that equal the share of the majority class of the test rows**, marked * in the tables: {listed}."
    )


def network_findings(rows: Rows) -> str:
    """What the study of networks shows, in words."""
    study = rows.get("network", [])
    if not study:
        return ""

    def worst(kind: str, gossip: str) -> str:
        """The worst node at the highest level."""
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

CLAIMS: tuple[Callable[[Rows], str], ...] = (
    about_gadget, perf_keeps_its_promise, pegasos_keeps_its_promise, admm_keeps_its_promise, broadcasting_costs_more,
    authors_program, loading_helps, equals_majority, network_findings,
)  # fmt: skip
