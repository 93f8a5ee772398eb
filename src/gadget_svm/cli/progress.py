"""Shows the progress of a run (a bar on a terminal, else plain lines). Handles Ctrl-C and SIGTERM during the run."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import typer
from rich import progress as bars
from rich.console import Console

from gadget_svm.cli.signals import raise_interrupt

Record = dict[str, Any]
TEXT = bars.TextColumn("{task.description}")


@contextmanager
def show_progress(console: Console, max_iter: int, max_seconds: float | None) -> Iterator[Callable[[Record], None]]:
    """Yield a function that shows a record of the history: as a bar on a terminal, else as a line if one is due."""
    if not console.is_terminal or console.quiet:
        yield lines(console)
        return
    # records get rarer during a training: the spinner and the elapsed time move in between
    columns = bars.SpinnerColumn(), bars.BarColumn(bar_width=16), bars.TimeElapsedColumn(), TEXT
    with bars.Progress(*columns, console=console) as bar:
        task = bar.add_task("starting (the first run on a machine compiles for some seconds)", total=1.0)

        def show(record: Record) -> None:
            spent = 0.0 if max_seconds is None else record["seconds"] / max_seconds
            done = min(1.0, max(record["iteration"] / max_iter, spent))
            bar.update(task, description=sentence(record), completed=done)

        yield show


def lines(console: Console) -> Callable[[Record], None]:
    """Return a function that prints a record if iterations have grown fourfold or five seconds have passed."""
    shown, at = 0, time.monotonic()

    def show(record: Record) -> None:
        nonlocal shown, at
        if record["iteration"] >= 4 * shown or time.monotonic() - at > 5:
            shown, at = record["iteration"], time.monotonic()
            console.print(sentence(record), highlight=False, soft_wrap=True)

    return show


def sentence(record: Record) -> str:
    """Return a record as text."""
    return (
        f"iteration {record['iteration']:,}, objective {record['objective']:.4g}, "
        f"disagreement {record['disagreement']:.1e}, {record['seconds']:.2f} s"
    )


class Interruption:
    """Handle Ctrl-C and SIGTERM: the first requests a clean stop, the second aborts.

    As long as ``stops_cleanly`` is false, the first aborts too. It is false until something has been learned.
    """

    def __init__(self) -> None:
        self.requested, self.stops_cleanly = False, False
        self.signal = 0  # the first one that arrived

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 143 after SIGTERM; 0 if no signal arrived."""
        return 128 + self.signal if self.signal else 0

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Request a clean stop, or abort."""
        self.signal = self.signal or number
        if self.requested or not self.stops_cleanly:
            raise_interrupt(number, frame)
        else:
            self.requested = True


@contextmanager
def download_bar(console: Console, name: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar for downloads, which appears with the first bytes; silent where there is no terminal."""
    columns = (bars.TextColumn(f"fetching {name}"), bars.BarColumn(), bars.DownloadColumn(), bars.TransferSpeedColumn())
    with bars.Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


@contextmanager
def steps_bar(total: int) -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """Yield a function that names the current step, and one that counts it as done. Shows a bar, or a line per step."""
    columns = TEXT, bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeElapsedColumn()
    console = Console(stderr=True)
    with bars.Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)

        def tell(text: str) -> None:
            bar.update(task, description=text)
            if bar.disable:
                typer.echo(text, err=True)

        yield tell, partial(bar.advance, task)
