"""Progress of a run (a bar on a terminal, plain lines elsewhere), and the handling of Ctrl-C and SIGTERM during it."""

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from gadget_svm.cli.signals import raise_interrupt

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

Record = dict[str, Any]


class Meter:
    """Show a training's progress; this one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: Any) -> None:
        pass

    def record(self, record: Record) -> None:
        """Show a new record of the history."""

    def tick(self) -> None:
        """Update the display between records."""


class Lines(Meter):
    """Print a line when the iterations have grown fourfold, or five seconds have passed."""

    def __init__(self, console: "Console") -> None:
        self.console = console
        self.shown, self.at = 0, time.monotonic()

    def record(self, record: Record) -> None:
        """Print a line, if one is due."""
        now = time.monotonic()
        if record["iteration"] >= 4 * self.shown or now - self.at > 5:
            self.shown, self.at = record["iteration"], now
            self.console.print(sentence(record), highlight=False, soft_wrap=True)


class Bar(Meter):
    """Show a progress bar. Between records, which become rare, it moves at the last known speed."""

    def __init__(self, console: "Console", max_iter: int, max_seconds: float | None) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        columns = (SpinnerColumn(), BarColumn(bar_width=16), TextColumn("{task.description}"))
        self.progress = Progress(*columns, console=console)
        self.max_iter, self.max_seconds = max_iter, max_seconds
        self.iteration, self.started, self.at = 0, time.monotonic(), 0.0
        self.task = self.progress.add_task("starting (the first run on a machine compiles for some seconds)", total=1.0)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *failure: Any) -> None:
        self.progress.stop()

    def record(self, record: Record) -> None:
        """Show the record and move the bar to its iteration."""
        self.iteration, self.at = record["iteration"], self._elapsed()
        self.progress.update(self.task, description=sentence(record), completed=self._share(self.iteration))

    def tick(self) -> None:
        """Move the bar to the expected iteration, never to the end."""
        if self.at > 0:
            guess = self.iteration * self._elapsed() / self.at
            self.progress.update(self.task, completed=min(0.99, self._share(guess)))

    def _share(self, iteration: float) -> float:
        spent = 0.0 if self.max_seconds is None else self._elapsed() / self.max_seconds
        return min(1.0, max(iteration / self.max_iter, spent))

    def _elapsed(self) -> float:
        return time.monotonic() - self.started


def sentence(record: Record) -> str:
    """Return a record as text."""
    return (
        f"iteration {record['iteration']:,}, objective {record['objective']:.4g}, "
        f"disagreement {record['disagreement']:.1e}, {record['seconds']:.2f} s"
    )


def progress_meter(console: "Console", max_iter: int, max_seconds: float | None, quiet: bool) -> Meter:
    """Return the progress display that suits the console."""
    if quiet:
        return Meter()
    return Bar(console, max_iter, max_seconds) if console.is_terminal else Lines(console)


class Interruption:
    """Handle Ctrl-C and SIGTERM: the first requests a clean stop, the second aborts.

    The first aborts too while ``stops_cleanly`` is false. A signal that the process was started to ignore
    (as a shell starts a background job with SIGINT ignored) stays ignored. On exit the former handlers are restored.
    """

    SIGNALS: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.requested, self.stops_cleanly = False, True
        self.signal = 0  # the first one that arrived
        self._before: list[tuple[signal.Signals, Any]] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # elsewhere signals cannot be caught
            handled = [number for number in self.SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = [(number, signal.signal(number, self._on_signal)) for number in handled]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before:
            signal.signal(number, before)

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 143 after SIGTERM; 0 if no signal arrived."""
        return 128 + self.signal if self.signal else 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or number
        if self.requested or not self.stops_cleanly:
            raise_interrupt(number, frame)
            return
        self.requested = True


class Download:
    """Show a bar for downloads, which appears with the first bytes; silent where there is no terminal."""

    def __init__(self, console: "Console", name: str) -> None:
        self.console, self.name = console, name
        self.progress: Any = None
        self.done = 0

    def __enter__(self) -> "Callable[[int, int | None], None]":
        return self._show

    def __exit__(self, *failure: Any) -> None:
        if self.progress is not None:
            self.progress.stop()

    def _show(self, done: int, total: int | None) -> None:
        if self.progress is None:
            self._start()
        if done < self.done:  # the next file of the data set
            self.progress.reset(self.task)
        self.done = done
        self.progress.update(self.task, completed=done, total=total)

    def _start(self) -> None:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn(f"fetching {self.name}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self.progress = Progress(*columns, console=self.console, disable=not self.console.is_terminal)
        self.task = self.progress.add_task("", total=None)
        self.progress.start()
