"""`gadget study`: write and check study.toml, which all sites share. `gadget_svm.study` does the work."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gadget_svm.cli.file_options import KeyOption, by_section, naming_options, with_keys, write_file
from gadget_svm.cli.options import local_path, option, require_packages

study_app = typer.Typer(help="Studies: what all sites of a network of peers agree on.", no_args_is_help=True)
Toml = Annotated[Path, typer.Argument(metavar="STUDY.TOML", help="The study's file.")]
KEYS = {
    "data.columns": KeyOption("--column", list[str], "A feature's name. Repeatable, in order."),
    "data.features": KeyOption("--features", int, "The number of features, for files without names."),
    "data.classes": KeyOption("--class", list[str], "A label. Repeatable: all labels of all sites, in order."),
    "learn.algorithm": KeyOption("--algorithm", str, "pdmm or gadget."),
    "learn.lam": KeyOption("--lam", float, "The weight of the regulariser. Required."),
    "learn.intercept": KeyOption("--intercept/--no-intercept", bool, "Whether there is an intercept."),
    "learn.degree": KeyOption("--degree", int, "Neighbours of a peer, an even number."),
    "scaling.kind": KeyOption("--scaling", str, "none, max-abs or deviation."),
    "scaling.sites": KeyOption("--scaling-sites", int, "Sites whose statistics scaling waits for. Default: as --site."),
    "end.gap": KeyOption("--gap", float, "The study ends when the certified gap is below this, such as 0.01."),
    "end.sites": KeyOption("--site", list[str], "A site that the last certificate must cover. Repeatable."),
    "end.min_sites": KeyOption("--min-sites", int, "Or the least number of sites that it must cover."),
}
"""Every key of study.toml except the name, with its option."""


@study_app.command("new")
@with_keys(KEYS)
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The study's name.")],
    columns_from: Annotated[
        Path | None, option("--columns-from", metavar="FILE", help="Take columns and labels from a data file.")
    ] = None,
    label: Annotated[str | None, option("--label", help="The label's column in --columns-from.")] = None,
    out: Annotated[Path, option("--out", check=local_path, help="The file to write.")] = Path("study.toml"),
    overwrite: Annotated[bool, option("--overwrite", help="Replace an existing file.")] = False,
    **keys: Any,
) -> None:
    """Write a commented study.toml, the same file for all sites."""
    require_packages("studies", "pydantic")
    from gadget_svm.study.study_file import template

    values: dict[str, dict[str, Any]] = by_section(KEYS, keys) | {"study": {"name": name}}
    if columns_from is not None:
        _fill_from(values["data"], columns_from, label)
    with naming_options(KEYS):
        text = template(values)
    write_file(out, text, overwrite)
    typer.echo(f"{out} is written: give the same file to every site, then 'gadget peer new NAME --study {out}'.")


@study_app.command("check")
def check(
    study: Toml,
    data: Annotated[Path, typer.Argument(metavar="FILE", help="The rows of a site.")],
    label: Annotated[str | None, option("--label", help="The label's column.")] = None,
) -> None:
    """Compare the columns and labels of a site's rows with the study."""
    require_packages("studies", "pydantic")
    from gadget_svm.peers.process.site_files import read_site
    from gadget_svm.study.study_file import load_study

    site = read_site(data, load_study(study), label=label)
    typer.echo(f"{data} fits {study}: {site.X.shape[0]:,} rows, {site.X.shape[1]:,} features.")


def _fill_from(data: dict[str, Any], path: Path, label: str | None) -> None:
    """Take columns (or their number) and labels from a file, where they were not given."""
    import numpy as np

    from gadget_svm.data.formats import read_files

    tables, columns, _ = read_files([path], label=label)
    if columns is None and data["columns"] is None and data["features"] is None:
        data["features"] = tables[0][0].shape[1]
    elif data["columns"] is None and data["features"] is None:
        data["columns"] = list(columns or ())
    if data["classes"] is None:
        data["classes"] = np.unique(tables[0][1]).tolist()
