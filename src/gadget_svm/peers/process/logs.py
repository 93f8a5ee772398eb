"""How a peer's log reads: one line a record, JSON or text. Owns formatting and set-up, not what is worth saying.

Values travel beside the text: ``log.info("state saved", extra=fields(path=path, seconds=0.1))``. Texts of other peers
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

LONGEST = 2000  # characters of one text
MOST = 100  # entries of one list or table
DEEPEST = 4
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def fields(**values: Any) -> dict[str, Any]:
    """For ``extra=``: values of any name, also of those that logging keeps for itself."""
    return {"fields": values}


def plain(value: Any, depth: int = 0) -> Any:
    """The value as JSON can hold it: numbers that are not finite are None, long texts and lists are cut."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return cut(value[:LONGEST].hex())
    if depth < DEEPEST and isinstance(value, Mapping):
        return {cut(str(key)): plain(inner, depth + 1) for key, inner in list(value.items())[:MOST]}
    if depth < DEEPEST and isinstance(value, list | tuple | set | frozenset):
        return [plain(inner, depth + 1) for inner in list(value)[:MOST]]
    return cut(str(value))


def cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def one_line(text: str) -> str:
    """Without line breaks, escape sequences and signs that turn the direction of writing."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


class _Formatter(logging.Formatter):
    """What both kinds share: the parts of a record, plain and bounded."""

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
            parts["error"] = self.formatException(record.exc_info)[-10 * LONGEST :]  # the end says what happened
        return parts


class JsonFormatter(_Formatter):
    """One JSON object a line: time, level, peer, event, and where there are any, fields and error."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.parts(record), allow_nan=False)


class TextFormatter(_Formatter):
    """For a person at a terminal: time level peer: event key=value. An error's traceback follows, indented."""

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
    """A simple word as it is, anything else as JSON."""
    if isinstance(value, str) and value.isprintable() and value and not set(value) & set(' "=\\'):
        return value
    return one_line(json.dumps(value, ensure_ascii=False))


FORMATS: dict[str, type[_Formatter]] = {"json": JsonFormatter, "text": TextFormatter}


class _PeerHandler(logging.StreamHandler[TextIO]):
    """Ours, so that setting up again replaces it and leaves others alone."""


def setup_logging(
    level: str = "info", format: str = "json", peer: str = "", stream: TextIO | None = None
) -> logging.Handler:
    """Log to the stream (standard error), this package from ``level`` on, others and Python's warnings from warning on.

    Doing it again replaces the earlier set-up.
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
