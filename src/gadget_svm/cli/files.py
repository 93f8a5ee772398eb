"""The files a training leaves: checked before it begins, written when it ends. Owns their names and their text."""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gadget_svm.cli.order import Order

MODEL, HISTORY, SUMMARY = "model.safetensors", "history.jsonl", "summary.json"


def check_targets(order: Order) -> None:
    """Fail now, and not after an hour of training, where something could not be written."""
    if order.out is not None:
        _writable(order.out, "--out")
    if order.report is not None:
        from gadget_svm.report import require_plotly

        require_plotly()
        if order.report.is_dir():
            raise IsADirectoryError(f"--report {order.report} is a folder: name a file, such as report.html, in it")
        _writable(order.report.parent, "--report")


def _writable(folder: Path, option: str) -> None:
    """Looks without leaving a trace: the folder itself is made when there is something to put in it."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(f"{option}: {nearest} is a file, not a folder: name another place")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"{option}: {nearest} may not be written to: name another place")


@contextmanager
def from_stdin(place: str) -> Iterator[str]:
    """The place itself, or for "-" a temporary file with what stdin holds: some formats are not read in one go."""
    if place != "-":
        yield place
        return
    with TemporaryDirectory(prefix="gadget") as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield str(path)


def write_history(folder: Path, history: Iterable[dict[str, Any]]) -> None:
    """One record per line."""
    lines = [json.dumps(record, allow_nan=False) + "\n" for record in history]
    (folder / HISTORY).write_text("".join(lines), encoding="utf-8")


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """The run in one JSON object."""
    text = json.dumps(summary, allow_nan=False, indent=2)
    (folder / SUMMARY).write_text(text + "\n", encoding="utf-8")
