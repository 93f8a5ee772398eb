"""The log of a peer: one line per record, as JSON or text. Owns the format and the set-up, not what is logged.

Values go beside the text: ``log.info("state saved", extra=fields(path=path, seconds=0.1))``. Texts of other peers
may be among them, so a record is one line whatever it holds, without control characters, and bounded.
"""

import json
import logging
import math
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

import numpy as np

from gadget_svm.core.lookup import lookup

MAX_TEXT = 2000  # characters of one text
MAX_ENTRIES = 100  # of one list or table
MAX_DEPTH = 4
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def fields(**values: Any) -> dict[str, Any]:
    """Return values for ``extra=``, of any name, also of those that logging reserves."""
    return {"fields": values}


def plain(value: Any, depth: int = 0) -> Any:
    """Return the value as JSON can hold it: numbers that are not finite become None, long texts and lists are cut."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return cut(value[:MAX_TEXT].hex())
    if depth < MAX_DEPTH and isinstance(value, Mapping):
        return {cut(str(key)): plain(inner, depth + 1) for key, inner in list(value.items())[:MAX_ENTRIES]}
    if depth < MAX_DEPTH and isinstance(value, list | tuple | set | frozenset):
        return [plain(inner, depth + 1) for inner in list(value)[:MAX_ENTRIES]]
    return cut(str(value))


def cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"


def one_line(text: str) -> str:
    """Escape line breaks, control characters and those that change the direction of writing."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


class _Formatter(logging.Formatter):
    """The parts of a record, plain and bounded, for both formats."""

    def __init__(self, peer: str) -> None:
        super().__init__()
        self.peer = peer

    def parts(self, record: logging.LogRecord) -> dict[str, Any]:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        parts: dict[str, Any] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "peer": self.peer,
            "event": cut(_message(record)),
        }
        values = getattr(record, "fields", None)
        if isinstance(values, Mapping) and values:
            parts["fields"] = plain(values)
        if record.exc_info:
            parts["error"] = self.formatException(record.exc_info)[-10 * MAX_TEXT :]  # the end says what happened
        return parts


class JsonFormatter(_Formatter):
    """One JSON object per line: time, level, peer, event, and if there are any, fields and error."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.parts(record), allow_nan=False)


class TextFormatter(_Formatter):
    """For people: time level peer: event key=value. The traceback of an error follows, indented."""

    def format(self, record: logging.LogRecord) -> str:
        parts = self.parts(record)
        values = "".join(f" {one_line(key)}={_short(value)}" for key, value in parts.get("fields", {}).items())
        event = one_line(parts["event"])
        line = f"{parts['time']} {parts['level']:<7} {one_line(self.peer)}: {event}{values}"
        return "\n    ".join([line, *map(one_line, parts.get("error", "").splitlines())])


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):
        return f"{record.msg} (its arguments do not fit: {record.args!r})"


def _short(value: Any) -> str:
    """Return a simple word as it is, anything else as JSON."""
    if isinstance(value, str) and value.isprintable() and value and not set(value) & set(' "=\\'):
        return value
    return one_line(json.dumps(value, ensure_ascii=False))


FORMATS: dict[str, type[_Formatter]] = {"json": JsonFormatter, "text": TextFormatter}


class _PeerHandler(logging.StreamHandler[TextIO]):
    """The handler that `setup_logging` adds and replaces; it leaves others alone."""


def setup_logging(
    level: str = "info", format: str = "json", peer: str = "", stream: TextIO | None = None
) -> logging.Handler:
    """Log to a stream, by default standard error: this package from ``level`` on, others from warning on.

    A second call replaces the set-up of the first.
    """
    chosen = lookup("log level", level, LEVELS)
    handler = _PeerHandler(stream or sys.stderr)
    handler.setFormatter(lookup("log format", format, FORMATS)(peer))
    root = logging.getLogger()
    for earlier in [one for one in root.handlers if isinstance(one, _PeerHandler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(max(chosen, logging.WARNING))
    logging.getLogger("gadget_svm").setLevel(chosen)
    logging.captureWarnings(True)
    return handler
