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
    "learn.algorithm": KeyOption("--algorithm", str, "pdmm, gadget or private."),
    "learn.lam": KeyOption("--lam", float, "The weight of the regulariser. Required."),
    "learn.intercept": KeyOption("--intercept/--no-intercept", bool, "Whether there is an intercept."),
    "learn.degree": KeyOption("--degree", int, "Neighbours of a peer, an even number."),
    "scaling.kind": KeyOption("--scaling", str, "none, max-abs or deviation."),
    "scaling.sites": KeyOption("--scaling-sites", int, "Sites whose statistics scaling waits for. Default: as --site."),
    "privacy.epsilon": KeyOption("--epsilon", float, "Makes the study private, with this budget for every row."),
    "privacy.delta": KeyOption("--delta", float, "Far below 1 / rows. Default: 1e-6."),
    "privacy.clip": KeyOption("--clip", float, "Longer rows are scaled down to this norm. Default: 1."),
    "privacy.rounds": KeyOption("--rounds", int, "Noisy slopes of a site. Default: planned."),
    "privacy.step_size": KeyOption("--step-size", float, "Of the first step. Default: planned."),
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
    rows_expected: Annotated[
        int | None, option("--rows-expected", min=1, help="With --epsilon: the rows of all sites together, about.")
    ] = None,
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
    if rows_expected is not None or values["privacy"]["epsilon"] is not None:
        _plan_privacy(values, rows_expected)
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


def _plan_privacy(values: dict[str, dict[str, Any]], rows: int | None) -> None:
    """Plan rounds and step size from the budget and public numbers, so that all sites have the same plan."""
    from gadget_svm.privacy import DifferentialPrivacy

    privacy, learn, end, data = values["privacy"], values["learn"], values["end"], values["data"]
    if privacy["epsilon"] is None:
        raise ValueError("--rows-expected is for private studies: give a budget with --epsilon, or leave it out")
    if learn["algorithm"] not in (None, "private"):
        raise ValueError(
            f"--epsilon needs --algorithm private: {learn['algorithm']} sends exact functions of rows. Leave one out"
        )
    if rows is None:
        raise ValueError("--epsilon needs --rows-expected, the rows of all sites together: the plan depends on them")
    n_sites, n_classes = len(end["sites"] or ()) or end["min_sites"], len(data["classes"] or ())
    features = len(data["columns"]) if data["columns"] else data["features"]
    if not (n_sites and n_classes >= 2 and features):
        raise ValueError(
            "the plan of a private study depends on the sites, features and classes: give --site or --min-sites, "
            "--column, --features or --columns-from, and at least two of --class"
        )
    outputs, width = 1 if n_classes == 2 else n_classes, features + (learn["intercept"] is not False)
    given = {key: privacy[key] for key in ("delta", "clip", "rounds") if privacy[key] is not None}
    budget = DifferentialPrivacy(privacy["epsilon"], **given)
    plan = budget.plan(n_sites, rows, outputs * width)
    learn["algorithm"] = "private"
    privacy |= {"delta": budget.delta, "clip": budget.clip, "rounds": plan.rounds}
    privacy["step_size"] = privacy["step_size"] or round(plan.step_size, 6)


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
