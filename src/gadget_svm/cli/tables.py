"""Results for the eye: tables and lines. Owns how numbers look; measures nothing."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from gadget_svm.report.formatting import count, describe_losses, number, percent, size
from gadget_svm.report.lost_nodes import live_nodes, table_entry

if TYPE_CHECKING:
    from rich.console import Console

MOST_SHOWN = 20
Row = dict[str, Any]


def nodes_table(summary: dict[str, Any]) -> Table:
    """Every node up to twenty, else the span of those that are here; then the network average."""
    nodes, average = summary["nodes"], summary["average"]
    table = Table(title=summary["dataset"]["name"], title_justify="left")
    table.add_column("node")
    for name in ("rows", "train accuracy", "test accuracy", "objective"):
        table.add_column(name, justify="right")
    for name, row in shown_rows(nodes, summary["parameters"]["nodes"]):
        _add(table, name, row)
    table.add_section()
    _add(table, "average", {"rows": summary["dataset"]["rows"], **average})
    return table


def _add(table: Table, name: str, row: Row) -> None:
    accuracies = (percent(row[key]) for key in ("train_accuracy", "test_accuracy"))
    table.add_row(name, count(row["rows"]), *accuracies, number(row["train_objective"]))


def shown_rows(nodes: Sequence[Row], n_nodes: int) -> list[tuple[str, Row]]:
    """The nodes themselves, or the least, mean and greatest of each column."""
    if len(nodes) <= MOST_SHOWN:
        return [table_entry(row) for row in nodes]
    here = live_nodes(nodes)
    kind = " judged" * (len(nodes) < n_nodes) + " not lost" * (len(here) < len(nodes))
    among = f" of {len(here):,}" + (f"{kind} of {n_nodes:,}" if kind else "")
    spans: dict[str, Callable[[Sequence[float]], float]] = {
        "min": min,
        "mean": lambda values: sum(values) / len(values),
        "max": max,
    }
    return [(name + among, _span(here, of)) for name, of in spans.items()] if here else []


def _span(nodes: Sequence[Row], of: Callable[[Sequence[float]], float]) -> Row:
    return {
        key: None if nodes[0][key] is None else of([row[key] for row in nodes]) for key in nodes[0] if key != "node"
    }


def show_training(console: "Console", summary: dict[str, Any], history: Sequence[Row] = ()) -> None:
    """The table and the line below it."""
    console.print(nodes_table(summary))
    if summary["dataset"]["test_rows"] is None:
        say(console, f"No test rows (--test FILE gives some): accuracy is that on the training rows{whose(summary)}.")
    if "reference" in summary:
        say(console, f"For comparison, {summary['reference']['name']}: {summary['reference']['text']}.")
    say(console, summary["why"][0].upper() + summary["why"][1:] + ".")
    say(
        console,
        f"{summary['messages']:,} messages, {size(summary['bytes'])}, {summary['seconds']:.2f} s of training; "
        f"the nodes differ from their average by at most {100 * (summary['disagreement'] or 0):.3g} % of its length.",
    )
    if missed := describe_losses(history):
        say(console, missed)
    for hint in summary["hints"]:
        say(console, hint)


def whose(summary: dict[str, Any]) -> str:
    """Of shards that are read elsewhere only the average is measured."""
    return ", of the average alone, as the rows are with the actors" * (summary["nodes"][0]["train_accuracy"] is None)


def say(console: "Console", text: str) -> None:
    """A line as it is: a user's words are no markup, and a path is not broken."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
