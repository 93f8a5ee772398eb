"""The paper's claims, compared with the rows of the tables. Every number in the discussion is looked up."""

import math
from collections.abc import Callable

from gadget_svm.reproduction.headings import AS_PRINTED, PERSISTENT
from gadget_svm.reproduction.tables import Row

Rows = dict[str, list[Row]]
Methods = dict[str, Row]  # of one data set


def discussion(rows: Rows) -> str:
    """Return each claim, whether it holds here, and the figures behind it, as a Markdown list."""
    return "\n".join(f"- {verdict}" for verdict in (claim(rows) for claim in CLAIMS) if verdict)


def _sets(table: list[Row]) -> dict[str, Methods]:
    """The rows of a table by data set and method."""
    found: dict[str, Methods] = {}
    for row in table:
        found.setdefault(row["dataset"], {})[row["method"]] = row
    return found


def _verdict(table: list[Row], holds: Callable[[Methods], bool], figures: Callable[[Methods], str]) -> str:
    """On how many of the data sets something holds, and the figures of each."""
    sets = _sets(table)
    good = sum(holds(methods) for methods in sets.values())
    word = {0: "does not hold", len(sets): "holds"}.get(good, f"holds on {good} of {len(sets)} data sets")
    return f"{word}. {'; '.join(f'{name} {figures(methods)}' for name, methods in sets.items())}."


def _of_both(
    claim: str, table: list[Row], holds: Callable[[Row, Methods], bool], figures: Callable[[Row, Methods], str]
) -> str:
    """A claim about GADGET against Table 2, for both readings."""
    printed, persistent = (_of_reading(reading, table, holds, figures) for reading in (AS_PRINTED, PERSISTENT))
    return f"**{claim}**. As printed: {printed} Persistent mass: {persistent}"


def _of_reading(
    reading: str, table: list[Row], holds: Callable[[Row, Methods], bool], figures: Callable[[Row, Methods], str]
) -> str:
    return _verdict(table, lambda m: holds(m[reading], m), lambda m: figures(m[reading], m))


def _against(rivals: tuple[str, ...], unit: str, show: Callable[[Row], str]) -> Callable[[Row, Methods], str]:
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


def reaches_published(rows: Rows) -> str:
    """Ours against the paper's own figure for GADGET."""
    return _of_both(
        "GADGET reaches the accuracy that the paper prints for it",
        [row for row in rows["table2"] if row["paper_accuracy"] is not None],
        lambda mine, _: bool(mine["accuracy_mean"] >= mine["paper_accuracy"]),
        lambda mine, _: f"{_accuracy(mine)} % (paper {mine['paper_accuracy']:.2f} %)",
    )


def near_optimum(rows: Rows) -> str:
    """Averaged GADGET against LIBLINEAR on all rows: the accuracy is reached, the objective is not."""
    claim = "Averaged GADGET is within one per cent of LIBLINEAR on the pooled rows"
    verdict = _of_both(claim, rows["table2"], _as_accurate("liblinear"), _against(("liblinear",), "%", _accuracy))
    objectives = "; ".join(
        f"{name} {_objective(m[AS_PRINTED])} as printed and {_objective(m[PERSISTENT])} with persistent mass, where the "
        f"optimum is {_objective(m['liblinear'])}"
        for name, m in _sets(rows["table2"]).items()
    )
    return f"{verdict} The objective is not near the optimum: {objectives}."


def comparable_to_centralised(rows: Rows) -> str:
    """Section 4.5.1."""
    claim = '"The performance of the GADGET SVM is comparable to the centralized algorithm"'
    return _of_both(claim, rows["table2"], _as_accurate("pegasos"), _against(("pegasos",), "%", _accuracy))


def distributed_is_better(rows: Rows) -> str:
    """Section 4.1: the conjecture, by the lexicographic comparison of (accuracy, time)."""
    winner = {True: "GADGET", False: "Pegasos"}
    verdict = _of_both(
        'The conjecture that "the performance of the Distributed model is better than that of the Centralized"',
        rows["table2"],
        lambda mine, _: bool(mine["wins"]),
        lambda mine, _: f"{winner[mine['wins']]} wins, with as many examples {winner[mine['wins_equal']]}",
    )
    return (
        f"{verdict} GADGET's nodes together see as many examples in an iteration as there are nodes; where Pegasos is "
        "given as many, the advantage is smaller or gone."
    )


def centralised_is_faster(rows: Rows) -> str:
    """Section 4.5.1, without loading."""
    claim = (
        '"The training time of the centralized model often outperforms the distributed one when data loading time is '
        'not included"'
    )
    return _of_both(claim, rows["table2"], _slower("pegasos"), _against(("pegasos",), "s", _seconds))


def better_than_online(rows: Rows) -> str:
    """Section 4.5.2."""
    rivals = ("svm-perf", "svm-sgd")
    verdict = _of_table3(
        '"GADGET SVM has comparable or better performance than both SVM-Perf and SVM-SGD"', rows,
        _as_accurate(*rivals), _against(rivals, "%", _accuracy),
    )  # fmt: skip
    return f"{verdict} Both see one node's rows only. SVM-SGD's accuracy is that of its last iterate."


def sgd_is_faster(rows: Rows) -> str:
    """Section 4.5.2."""
    claim = '"SVM SGD also proved to be faster than GADGET"'
    return _of_table3(claim, rows, _slower("svm-sgd"), _against(("svm-sgd",), "s", _seconds))


def _of_table3(
    claim: str, rows: Rows, holds: Callable[[Row, Methods], bool], figures: Callable[[Row, Methods], str]
) -> str:
    """A claim about GADGET with persistent mass, the reading of Table 3."""
    return f"**{claim}**. Persistent mass: {_of_reading(PERSISTENT, rows['table3'], holds, figures)}"


def perf_is_slower(rows: Rows) -> str:
    """Section 4.5.2."""

    def slowest(m: Methods) -> Row:
        return max(m[PERSISTENT], m["svm-sgd"], key=lambda row: float(row["seconds_mean"]))

    verdict = _verdict(
        rows["table3"],
        lambda m: bool(m["svm-perf"]["seconds_mean"] >= 2 * slowest(m)["seconds_mean"]),
        lambda m: f"{_seconds(m['svm-perf'])} s against {_seconds(slowest(m))} s",
    )
    claim = '"SVM-Perf was noted to take substantially longer than both" GADGET (persistent mass) and SVM-SGD'
    return f"**{claim}, at least twice as long as the slower**: {verdict}"


def perf_keeps_its_promise(rows: Rows) -> str:
    """SVM-Perf promises an objective within its epsilon of the optimum."""
    verdict = _verdict(
        rows["table2"],
        lambda m: _excess(m["svm-perf (all rows)"]) <= 1e-3,
        lambda m: f"{_excess(m['svm-perf (all rows)']):.2g} above",
    )
    return f"**SVM-Perf on all rows ends within its epsilon of 0.001 of the optimum**: {verdict}"


def _excess(row: Row) -> float:
    """The objective above the certified optimum."""
    return float(row["objective_mean"] - row["optimum"])


def pegasos_keeps_its_promise(rows: Rows) -> str:
    """The theorem of Pegasos: c^2 (1 + ln T) / (2 lambda T)."""
    verdict = _verdict(
        rows["table2"],
        lambda m: bool(_excess(m["pegasos"]) <= m["pegasos"]["promise"]),
        lambda m: f"{_excess(m['pegasos']):.3g} above, {m['pegasos']['promise']:.3g} promised",
    )
    return f"**Pegasos is within what its theorem promises, which with these lambdas is little**: {verdict}"


def admm_keeps_its_promise(rows: Rows) -> str:
    """MoM-DSVM promises a duality gap: its own multipliers and the certified optimum have to agree."""

    def holds(m: Methods) -> bool:
        row = m["mom-dsvm"]
        return bool(max(row["worst_gap_percent"], row["proven_percent"]) <= row["promise_percent"])

    def figures(m: Methods) -> str:
        row = m["mom-dsvm"]
        proven = float(row["proven_percent"])
        bound = f"at most {proven:.2g} % by its own proof" if math.isfinite(proven) else "without proof"
        return f"{row['worst_gap_percent']:.2g} % ({bound}, after {row['iterations_mean']:,.0f} iterations)"

    promise = max(float(row["promise_percent"]) for row in rows["table3"] if row["method"] == "mom-dsvm")
    claim = f"MoM-DSVM ends within the {promise:g} % of the optimum that it promises, at its worst node"
    return f"**{claim}**: {_verdict(rows['table3'], holds, figures)}"


def broadcasting_costs_more(rows: Rows) -> str:
    """Section 2.2, of MoM-DSVM: its objective is better."""

    def rate(row: Row) -> float:
        return float(row["messages"] / row["iterations_mean"])

    def figures(row: Row) -> str:
        return f"{_objective(row)} after {row['messages']:,.0f}"

    verdict = _verdict(
        rows["table3"],
        lambda m: rate(m["mom-dsvm"]) > rate(m[PERSISTENT]),
        lambda m: f"objective {figures(m['mom-dsvm'])} messages, GADGET {figures(m[PERSISTENT])}",
    )
    sets = _sets(rows["table3"]).values()
    fewer = sum(m["mom-dsvm"]["messages"] < m[PERSISTENT]["messages"] for m in sets)
    claim = 'MoM-DSVM broadcasts, "thereby having a higher communication cost" per iteration than GADGET'
    return f"**{claim} (persistent mass)**: {verdict} In all it sends fewer messages than GADGET on {fewer} of {len(sets)}."


def authors_program(rows: Rows) -> str:
    """The origin of the published 77 % on Adult."""
    row = _sets(rows["table2"]).get("adult", {}).get("authors' program")
    return "" if row is None else (
        f"**The published {row['paper_accuracy']:.2f} % on Adult are those of an unfinished run**: a program that "
        f"behaves as the authors' gives {_accuracy(row)} % (± {row['accuracy_sd']:.2f}) after "
        f"{row['iterations_mean']:,.0f} steps, with an objective of {_objective(row)}."
    )  # fmt: skip


def loading_helps(rows: Rows) -> str:
    """Appendix B."""
    table = [row for row in rows.get("table4", []) if row["method"] == PERSISTENT]
    verdict = _verdict(
        table,
        lambda m: bool(m[PERSISTENT]["speedup"] < 1),
        lambda m: f"{m[PERSISTENT]['speedup']:.2f} (paper {m[PERSISTENT]['paper_speedup']:.2f})",
    )
    claim = 'With loading, GADGET is faster (a factor below 1; the paper: "in four of the seven datasets")'
    return f"**{claim}**. Persistent mass: {verdict}" if table else ""


def equals_majority(rows: Rows) -> str:
    """Accuracies, ours and the paper's, that a model reaches that always answers the majority class."""
    found: dict[str, list[str]] = {}
    for part in ("table2", "table3"):
        for row in rows[part]:
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
    reaches_published, near_optimum, comparable_to_centralised, distributed_is_better, centralised_is_faster,
    better_than_online, sgd_is_faster, perf_is_slower, perf_keeps_its_promise, pegasos_keeps_its_promise,
    admm_keeps_its_promise, broadcasting_costs_more, authors_program, loading_helps, equals_majority, network_findings,
)  # fmt: skip
