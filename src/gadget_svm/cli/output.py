"""Writes the output of commands: files, which it checks before the work, and tables and lines on the screen."""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from gadget_svm.cli.option_names import naming
from gadget_svm.core.temp_folders import scratch_folder
from gadget_svm.data.uris import Location, check_writable, display_name, join, parse_location, scheme_of, write_file
from gadget_svm.report import formatting, require_plotly

MODEL, HISTORY, SUMMARY = "model.safetensors", "history.jsonl", "summary.json"
MAX_NODES_SHOWN = 20
Row = dict[str, Any]


# Files


def place(given: str | None) -> Location | None:
    """Return a path or URI in the form that the package's functions take; None for an option that was not given."""
    return None if given is None else parse_location(given)


def check_targets(out: Location | None, report: Location | None, read: Sequence[Location | None] = ()) -> None:
    """Check --out and --report before anything is computed; ``read`` are the files of this command."""
    if out is not None:
        check_target(join(out, MODEL), "--out", read)
    if report is not None:
        require_plotly()
        if isinstance(report, Path) and report.is_dir():
            raise IsADirectoryError(f"--report {report} is a folder: name a file, such as report.html, in it")
        check_target(report, "--report", read)


def check_target(target: Location, option: str, read: Iterable[Location | None] = ()) -> None:
    """Raise an error if a file cannot be written, or is one that this command reads.

    This makes no folder: a folder is made when there is a file to write.
    """
    with naming(f"{option} {display_name(target)}"):
        if not isinstance(target, Path):
            if scheme_of(target) == "memory":
                raise ValueError("it is lost when this command ends: give a path, or a URI such as s3://bucket/name")
            check_writable(target)
            return
        if any(isinstance(place, Path) and place.resolve() == target.resolve() for place in read):
            raise ValueError("this command reads it, and it would be lost: name another file")
        nearest = next(place for place in (target.parent, *target.absolute().parents) if place.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(f"{nearest} is a file, not a folder: name another place")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise PermissionError(f"{nearest} may not be written to: name another place")


@contextmanager
def from_stdin(source: str) -> Iterator[str]:
    """Yield the source itself, or for "-" a temporary file with the content of stdin: some formats need to seek."""
    if source != "-":
        yield source
        return
    if sys.stdin is None:
        raise ValueError("- means stdin, and stdin is closed: name a file, or pipe the rows in")
    with scratch_folder() as scratch:
        path = scratch / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield str(path)


def save_history(folder: Location, history: Iterable[Row]) -> None:
    """Write one record per line."""
    lines = "".join(json.dumps(record, allow_nan=False) + "\n" for record in history)
    write_file(join(folder, HISTORY), lines.encode())


def save_summary(folder: Location, summary: Row) -> None:
    """Write the run as one JSON object."""
    write_file(join(folder, SUMMARY), f"{json.dumps(summary, allow_nan=False, indent=2)}\n".encode())


# Screen


def say(console: Console, text: str) -> None:
    """Print a line unchanged: without markup, and without line breaks inside paths."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def gap_at_most(bound: float) -> str:
    """Return a certified bound in words. It is never rounded down, and has as many digits as in a peer's status."""
    return f"gap at most {formatting.at_most(bound, digits=3)}"


def make_table(columns: Iterable[str], title: str | None = None, plain: bool = False, **options: Any) -> Table:
    """Return a table whose first column is left-aligned and whose others are right-aligned."""
    if plain:
        options |= {"box": box.SIMPLE_HEAD, "pad_edge": False}
    table = Table(title=title, title_justify="left", **options)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", no_wrap=plain)
    return table


def print_table(columns: Iterable[str], rows: Iterable[Iterable[str]], **options: Any) -> None:
    """Print a table on stdout."""
    table = make_table(columns, **options)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def show_training(console: Console, summary: Row, history: Sequence[Row] = ()) -> None:
    """Print the table of nodes and the lines below it."""
    console.print(nodes_table(summary))
    if summary["dataset"]["test_rows"] is None:
        remote = summary["nodes"][0]["train_accuracy"] is None
        whose = ", for the average only, because the actors hold the rows" * remote
        say(console, f"No test rows (--test FILE gives some): the accuracy is that on the training rows{whose}.")
    if "reference" in summary:
        say(console, f"For comparison, {summary['reference']['name']}: {summary['reference']['text']}.")
    say(console, summary["why"][0].upper() + summary["why"][1:] + ".")
    sent = f"{summary['messages']:,} messages, {formatting.size(summary['bytes'])}"
    apart = f"by at most {100 * (summary['disagreement'] or 0):.3g} % of its length"
    say(console, f"{sent}, {summary['seconds']:.2f} s of training; the nodes differ from their average {apart}.")
    for line in (formatting.describe_losses(history), *summary["hints"]):
        if line:
            say(console, line)


def nodes_table(summary: Row) -> Table:
    """Return a table of every node, or of the range of values if there are many; then the network average."""
    table = make_table(formatting.NODE_COLUMNS, title=summary["dataset"]["name"])
    for entry in node_rows(summary["nodes"], summary["parameters"]["nodes"]):
        table.add_row(*formatting.table_cells(*entry))
    table.add_section()
    table.add_row(*formatting.table_cells(*formatting.average_entry(summary)))
    return table


def node_rows(nodes: Sequence[Row], n_nodes: int) -> list[tuple[str, Row]]:
    """Return the nodes themselves, or the minimum, mean and maximum of each column."""
    if len(nodes) <= MAX_NODES_SHOWN:
        return [formatting.table_entry(row) for row in nodes]
    here = formatting.live_nodes(nodes)
    kind = " evaluated" * (len(nodes) < n_nodes) + " not lost" * (len(here) < len(nodes))
    among = f" of {len(here):,}" + (f"{kind} of {n_nodes:,}" if kind else "")
    columns = {key: [row[key] for row in here] for key in here[0] if key != "node"} if here else {}
    return [
        (name + among, {key: None if values[0] is None else of(values) for key, values in columns.items()})
        for name, of in (("min", min), ("mean", fmean), ("max", max))
        if here
    ]
