"""`gadget data`: the named data sets on the screen. Finding and fetching them is the catalog's work."""

import json
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from gadget_svm.cli.progress import Download
from gadget_svm.cli.summary import plain
from gadget_svm.cli.tables import say
from gadget_svm.data.catalog import ENTRIES
from gadget_svm.data.datasets import fetch_dataset, find_dataset, list_datasets


def show_list(data_dir: Path | None, as_json: bool = False) -> None:
    """All of them in a table, or as JSON."""
    if as_json:
        print(json.dumps([plain(asdict(listing)) for listing in list_datasets(data_dir)]))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("name", "rows", "features", "lambda"):
        table.add_column(name, justify="left" if name == "name" else "right", no_wrap=True)
    table.add_column("where", overflow="fold")
    for listing in list_datasets(data_dir):
        train, test = listing.rows
        lam = "-" if listing.lam is None else f"{listing.lam:g}"
        table.add_row(listing.name, f"{train:,} + {test:,}", f"{listing.features:,}", lam, listing.status)
    Console().print(table)


def show_path(name: str, data_dir: Path | None) -> None:
    """The folder of one, by itself on a line."""
    folder = find_dataset(name, data_dir)
    if folder is not None:
        print(folder)
        return
    if ENTRIES[name].builtin is not None:
        raise ValueError(f"{name!r} comes with scikit-learn: it has no folder of its own")
    raise FileNotFoundError(f"{name!r} is not on this machine: 'gadget data fetch {name}' downloads it")


def fetch_named(name: str, data_dir: Path | None) -> None:
    """Download one, and say where it went."""
    with Download(Console(stderr=True), name) as progress:
        folder = fetch_dataset(name, data_dir=data_dir, progress=progress)
    say(Console(), f"{name} is in {folder}")
