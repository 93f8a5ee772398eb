"""`gadget data`: list, find and download the named data sets."""

from dataclasses import asdict
from json import dumps

import typer

from gadget_svm.cli.options import DataDir, DatasetName, Json

data_app = typer.Typer(help="Named data sets: list, find and download them.", no_args_is_help=True)


@data_app.command("list")
def list_data(data_dir: DataDir = None, json: Json = False) -> None:
    """List the named data sets, and where each was found or comes from."""
    from gadget_svm.cli.output import print_table
    from gadget_svm.cli.summary import plain
    from gadget_svm.data.datasets import list_datasets
    from gadget_svm.report.formatting import number

    listings = list_datasets(data_dir)
    if json:
        typer.echo(dumps([plain(asdict(listing)) for listing in listings]))
        return
    rows = ((each.name, "{:,} + {:,}".format(*each.rows), f"{each.features:,}", number(each.lam)) for each in listings)
    print_table(("name", "rows", "features", "lambda"), rows, plain=True)
    for each in listings:  # not in the table, which would break paths
        typer.echo(f"{each.name}: {each.status}")


@data_app.command("path")
def data_path(name: DatasetName, data_dir: DataDir = None) -> None:
    """Print the folder that holds a named data set."""
    from gadget_svm.data.catalog import ENTRIES
    from gadget_svm.data.datasets import find_dataset

    folder = find_dataset(name, data_dir)
    if folder is not None:
        typer.echo(folder)
    elif ENTRIES[name].builtin is not None:
        raise ValueError(f"{name!r} comes with scikit-learn: it has no folder of its own")
    else:
        raise FileNotFoundError(f"{name!r} is not on this machine: 'gadget data fetch {name}' downloads it")


@data_app.command("fetch")
def fetch_data(name: DatasetName, data_dir: DataDir = None) -> None:
    """Download a named data set from its official source."""
    from rich.console import Console

    from gadget_svm.cli.progress import download_bar
    from gadget_svm.data.datasets import fetch_dataset

    with download_bar(Console(stderr=True), name) as progress:
        folder = fetch_dataset(name, data_dir=data_dir, progress=progress)
    typer.echo(f"{name} is in {folder}")
