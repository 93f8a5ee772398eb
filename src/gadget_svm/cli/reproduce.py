"""`gadget reproduce`: run the paper's evaluation cell by cell under a progress bar, then write every file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gadget_svm.cli.errors import exit_code
from gadget_svm.cli.options import local_path, option

RESULTS = Path("results")
DataFolder = Annotated[Path | None, option("--data", check=local_path, help="A folder with the paper's data sets.")]


def reproduce(
    what: Annotated[str, typer.Argument(help="table1, table2, table3, table4, figures, network, or all.")] = "all",
    data: DataFolder = None,
    nodes: Annotated[int, typer.Option(help="Number of nodes.", min=2)] = 10,
    trials: Annotated[int | None, typer.Option(help="Trials per experiment (5; with --quick 1).", min=1)] = None,
    out: Annotated[Path, option("--out", check=local_path, help="A folder for tables, figures and page.")] = RESULTS,
    quick: Annotated[bool, typer.Option("--quick", help="One trial, fewer iterations: a few minutes for all.")] = False,
    docs: Annotated[Path | None, option("--docs", check=local_path, help="Another file for the Markdown page.")] = None,
) -> None:
    """Regenerate the paper's evaluation beside its published numbers. An interrupted run continues where it stopped."""
    from gadget_svm.cli.progress import steps_bar
    from gadget_svm.core.lookup import lookup
    from gadget_svm.reproduction.page import write_all
    from gadget_svm.reproduction.reproduce import PARTS, Reproduction

    parts = lookup("part of the evaluation", what, {"all": PARTS, **{part: (part,) for part in PARTS}})
    _check_packages(parts)
    out.mkdir(parents=True, exist_ok=True)
    run = Reproduction(out, data, nodes, trials or (1 if quick else 5), quick)
    if data is not None and not data.is_dir():
        raise FileNotFoundError(f"there is no folder {data}: --data names the folder with the paper's data sets")
    try:
        typer.echo("reading data sets", err=True)
        if not run.sets:
            raise FileNotFoundError("no data set of the paper was found: run `gadget data fetch adult`, or give --data")
        with steps_bar(sum(1 for _ in run.steps(parts))) as (tell, advance):
            run.report_progress = tell
            for step in run.steps(parts):
                step()
                advance()
            tell("writing tables and figures")
            made = write_all(run, parts, docs)
    except KeyboardInterrupt as error:
        kept = f"finished cells are kept in {out / 'cells'}; the same command continues from there"
        typer.echo(f"interrupted: {kept}", err=True)
        raise typer.Exit(exit_code(error)) from None
    for name, why in run.missing.items():
        typer.echo(f"left out: {name}: {why}")
    for path in (*(run.out / f"{part}.csv" for part in made["rows"]), *made["figures"]):
        typer.echo(path)
    typer.echo(f"All in one page: {made['html']}")


def _check_packages(parts: Any) -> None:
    """Raise ImportError for a missing package now, and not after hours of work."""
    if {"figures", "network"} & set(parts):
        from gadget_svm.reproduction.figures import pyplot

        pyplot()
    if {"table2", "table3"} & set(parts):
        from gadget_svm.reproduction.baselines.perf import load_solver

        load_solver()
