"""`gadget reproduce`: runs the evaluation cell by cell under a progress bar, then writes every file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gadget_svm.cli.errors import exit_code
from gadget_svm.cli.tables import say
from gadget_svm.core.lookup import lookup
from gadget_svm.reproduction.figures import pyplot
from gadget_svm.reproduction.page import write_all
from gadget_svm.reproduction.reproduce import PARTS, Reproduction


def run_reproduction(
    what: str, data: Path | None, nodes: int, trials: int | None, out: Path, quick: bool, docs: Path | None
) -> int:
    """Compute, write, say where; the exit code."""
    parts = lookup("part of the evaluation", what, {"all": PARTS, **{part: (part,) for part in PARTS}})
    _check_tools(parts)
    out.mkdir(parents=True, exist_ok=True)
    run = Reproduction(out, data, nodes, trials or (1 if quick else 5), quick)
    console = Console(stderr=True)
    if data is not None and not data.is_dir():
        raise FileNotFoundError(f"there is no folder {data}: --data names the folder with the paper's data sets")
    try:
        say(console, "reading data sets")
        if not run.sets:
            raise FileNotFoundError(
                "none of the paper's data sets is here: name their folder with --data or GADGET_DATA, or get one with, "
                "for example, `gadget data fetch adult`"
            )
        with _progress(console, sum(1 for _ in run.steps(parts))) as (tell, advance):
            run.report_progress = tell
            for step in run.steps(parts):
                step()
                advance()
            tell("writing tables and figures")
            made = write_all(run, parts, docs)
    except KeyboardInterrupt as error:
        say(console, f"interrupted: what is finished is kept in {out / 'cells'}; the same command goes on from there")
        return exit_code(error)
    _closing(Console(), run, made)
    return 0


def _check_tools(parts: Any) -> None:
    """Complain about a missing package before hours of work, not after."""
    if {"figures", "network"} & set(parts):
        pyplot()
    if {"table2", "table3"} & set(parts) and find_spec("clarabel") is None:
        raise ImportError("SVM-Perf needs a QP solver, clarabel: pip install 'gadget-svm[paper]'")


@contextmanager
def _progress(console: Console, total: int) -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """A bar on a terminal; elsewhere a line for each piece that is computed."""
    if not console.is_terminal:
        yield (lambda text: say(console, text)), (lambda: None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("reading data", total=total)
        yield (lambda text: bar.update(task, description=text)), (lambda: bar.advance(task))


def _closing(console: Console, run: Reproduction, made: dict[str, Any]) -> None:
    for name, why in run.missing.items():
        say(console, f"left out: {name}: {why}")
    for part in made["rows"]:
        say(console, f"{run.out / part}.csv")
    for path in made["figures"]:
        say(console, str(path))
    say(console, f"All in one page: {made['html']}")
