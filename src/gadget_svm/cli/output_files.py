"""The files a training leaves: checked before it begins, written when it ends. Owns their names and their text."""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gadget_svm.cli.option_names import naming
from gadget_svm.cli.train_request import Order
from gadget_svm.core.lookup import lookup
from gadget_svm.core.temp_folders import Scratch
from gadget_svm.data.formats import FORMATS
from gadget_svm.data.uris import Location, check_writable, join, parse_location, scheme_of, write_file

MODEL, HISTORY, SUMMARY = "model.safetensors", "history.jsonl", "summary.json"


def check_targets(order: Order) -> None:
    """Fail now, and not after an hour of training, where something could not be written."""
    require_lasting(order.out, "--out")
    require_lasting(order.report, "--report")
    read = [parse_location(place) for place in (order.shards or [order.data])] + [order.test]
    require_other(order.report, "--report", *read)
    if order.out is not None:
        for name in (MODEL, HISTORY, SUMMARY):
            require_other(join(order.out, name), "--out", *read)
        require_writable(join(order.out, MODEL), "--out")
    if order.report is not None:
        from gadget_svm.report import require_plotly

        require_plotly()
        if isinstance(order.report, Path) and order.report.is_dir():
            raise IsADirectoryError(f"--report {order.report} is a folder: name a file, such as report.html, in it")
        require_writable(order.report, "--report")


def check_format(name: str | None) -> None:
    """Refuse a --format that is not known."""
    if name is not None:
        with naming(f"--format {name}"):
            lookup("format", name, FORMATS)


def require_lasting(target: Location | None, option: str) -> None:
    """Refuse a URI of this process's own memory: what is written there is lost when the command ends."""
    if isinstance(target, str) and scheme_of(target) == "memory":
        raise ValueError(
            f"{option} {target} is lost when this command ends: give a path, or a URI such as s3://bucket/name"
        )


def require_writable(target: Location, option: str) -> None:
    """Looks without leaving a trace: a folder is made when there is something to put in it."""
    if not isinstance(target, Path):
        try:
            with naming(option):
                check_writable(target)
        except OSError as error:
            raise OSError(f"{option}: {error}") from error
        return
    nearest = next(place for place in (target.parent, *target.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(f"{option}: {nearest} is a file, not a folder: name another place")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"{option}: {nearest} may not be written to: name another place")


def require_other(target: Location | None, option: str, *read: Location | None) -> None:
    """Refuse to write over a file that this command reads."""
    if isinstance(target, Path) and any(isinstance(p, Path) and p.resolve() == target.resolve() for p in read):
        raise ValueError(f"{option} {target} is also what this command reads, and would be lost: name another file")


@contextmanager
def from_stdin(place: str) -> Iterator[str]:
    """The place itself, or for "-" a temporary file with what stdin holds: some formats are not read in one go."""
    if place != "-":
        yield place
        return
    if sys.stdin is None:
        raise ValueError("- means stdin, and stdin is closed: name a file, or pipe the rows in")
    with Scratch() as scratch:
        path = scratch.path / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield str(path)


def write_history(folder: Location, history: Iterable[dict[str, Any]]) -> None:
    """One record per line."""
    lines = [json.dumps(record, allow_nan=False) + "\n" for record in history]
    write_file(join(folder, HISTORY), "".join(lines).encode())


def write_summary(folder: Location, summary: dict[str, Any]) -> None:
    """The run in one JSON object."""
    text = json.dumps(summary, allow_nan=False, indent=2)
    write_file(join(folder, SUMMARY), f"{text}\n".encode())
